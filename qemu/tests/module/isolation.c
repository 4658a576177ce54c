// SPDX-License-Identifier: GPL-2.0
/*
 * The effects of a process on others, and its use of the device, when it has no more than
 * a domain's file that it may write to: others do not wait for it, and there are limits
 * by default. rights.c has those who may only read it.
 *
 * Wants the lab's --icount: a second is a number of instructions, however busy the host is.
 *
 * tags: clock long-clock traced
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/strangers"
#define OWN_FILE DOMAIN_FILE ".own"
#define PARAMETERS "/sys/module/ib_xrc_rcv/parameters/"

enum {
	THREADS = 20,		/* each of their calls takes RESOLUTION_MS */
	REMOVALS = 3,		/* of an idle device take longer than one beside them */
	RESOLUTION_MS = 1000,	/* after which an address is given up */
	AT_ONCE_MS = 500,	/* of a call that does not wait for them: most take a tenth of it */
	STRANGER = 1777,	/* a user */
	SUBORDINATE = 100000,
	NAMESPACES_IDS = 10,
	LIMIT = 3,
};

static struct actor owner, stranger;
static struct member_info *owned, *joined;
static struct counts before;

static double seconds_since(uint64_t start)
{
	return (now_ns() - start) / 1e9;
}

/* Printed when all was measured: the console takes time, which is the host's. */
static struct measurement {
	const char *what;
	double took;
} measured[8];
static unsigned int measurements;

static void measure(const char *what, uint64_t start)
{
	measured[measurements++] = (struct measurement){ what, seconds_since(start) };
}

static bool all_at_once(void)
{
	bool right = true;
	unsigned int i;

	for (i = 0; i < measurements; i++) {
		ktap_note("%s took %.2f s", measured[i].what, measured[i].took);
		right &= measured[i].took * 1000 < AT_ONCE_MS;
	}
	return right;
}

/* ---- acts ---- */

static int make_qp(void *argument)
{
	struct ib_uverbs_qp_attr init;

	(void)argument;
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &member.registration));
	init = attr_to_init(&member.node);
	owned->qp_num = member.registration.qp_num;
	CHECK(!rcv_modify(member.domain, owned->qp_num, &init));
	return 0;
}

static int query(void *argument)
{
	(void)argument;
	return rcv_query(member.domain, owned->qp_num, NULL, NULL);
}

static int list(void *argument)
{
	struct xrc_rcv_qp_info info;
	uint32_t count = 1;

	(void)argument;
	CHECK(!rcv_list(member.domain, 0, &info, &count, NULL) && count == 1);
	return 0;
}

static atomic_uint asking;

/* An address of the network that no interface has. */
static void *ask_for_nobody(void *argument)
{
	struct path path = { .gid = member.node.gid, .qp_num = 0x40 };
	struct ib_uverbs_qp_attr attr;
	int result;

	path.gid.raw[15] = 100 + (uintptr_t)argument;
	attr = attr_to_rtr(&member.node, &path);
	do {
		asking++;
		result = rcv_modify(member.domain, owned->qp_num, &attr);
	} while (result == -ETIMEDOUT || result == -EHOSTUNREACH || result == -ENETUNREACH);
	/* Until the QP is destroyed or the device removed. */
	return NULL;
}

static int become(void *argument)
{
	uid_t *user = argument;

	CHECK(!setresgid(*user, *user, *user));
	CHECK(!setresuid(*user, *user, *user));
	return 0;
}

static int attack(void *argument)
{
	uintptr_t i;

	(void)argument;
	for (i = 0; i < THREADS; i++) {
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, ask_for_nobody, (void *)i));
	}
	while (asking < THREADS)
		usleep(1000);
	usleep(100000);
	return 0;
}

/* As many files as the limit, and one more: the owner's is one of them. */
static int register_beyond(void *argument)
{
	struct registration registrations[LIMIT];
	struct file files[LIMIT];
	unsigned int i;

	for (i = 0; i < LIMIT; i++)
		file_open(&files[i], DOMAIN_FILE);
	CHECK(!become(argument));
	for (i = 0; i < LIMIT - 1; i++)
		CHECK(!rcv_reg(files[i].domain, owned->qp_num, NO_CHANNEL, &registrations[i]));
	CHECK(rcv_reg(files[i].domain, owned->qp_num, NO_CHANNEL, &registrations[i]) ==
	      -EDQUOT);
	CHECK(!rcv_unreg(&registrations[0]));
	CHECK(!rcv_reg(files[i].domain, owned->qp_num, NO_CHANNEL, &registrations[i]));
	return 0;
}

static struct ibv_xrcd *open_domain(int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.oflags = O_CREAT,
		.fd = fd,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(member.node.context, &attr);

	if (!xrcd)
		err(1, "domain");
	return xrcd;
}

/* The result of ALLOC in the domain of an open file. */
static int alloc_by(int fd, uint32_t flags)
{
	struct ibv_xrcd *xrcd = open_domain(fd);
	struct domain domain = domain_of(xrcd);
	struct registration registration;
	int result = rcv_alloc(domain, flags, NULL, NO_CHANNEL, &registration);

	if (!result) {
		CHECK(!rcv_unreg(&registration));
		if (flags)
			CHECK(!rcv_destroy(domain, registration.qp_num));
	}
	CHECK(!ibv_close_xrcd(xrcd));
	return result;
}

static int alloc_in(const char *path, int mode, uint32_t flags)
{
	int fd = open(path, mode | O_CLOEXEC, 0600), result;

	CHECK(fd >= 0);
	result = alloc_by(fd, flags);
	close(fd);
	return result;
}

/* Each call by itself: an ALLOC that registers fails where its channel does. */
static int refused_by(int fd)
{
	struct ibv_xrcd *xrcd = open_domain(fd);
	struct domain domain = domain_of(xrcd);
	struct registration registration;

	CHECK(rcv_channel(domain) == -EPERM);
	CHECK(rcv_alloc(domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_REGISTRATION,
			&registration) == -EPERM);
	return -ibv_close_xrcd(xrcd);
}

static int common_inodes(void *argument)
{
	static const char *const common[] = {
		"/", "/tmp", "/dev/null", "/proc/version", "/proc/self/ns/net",
		"/sys/kernel/uevent_seqnum",
	};
	int epoll = epoll_create1(EPOLL_CLOEXEC), memory = memfd_create("domain", MFD_CLOEXEC);
	unsigned int i;

	(void)argument;
	for (i = 0; i < ARRAY_SIZE(common); i++) {
		int fd = open(common[i], O_RDONLY | O_CLOEXEC);

		CHECK(fd >= 0);
		CHECK(!refused_by(fd));
		close(fd);
	}
	CHECK(epoll >= 0 && memory >= 0);
	CHECK(!refused_by(epoll));
	CHECK(!alloc_by(memory, 0));
	CHECK(!alloc_by(-1, 0));
	CHECK(!alloc_in(DOMAIN_FILE, O_RDONLY, 0));
	return 0;
}

static int leaves_nothing_behind(void *argument)
{
	CHECK(!become(argument));
	CHECK(alloc_in(DOMAIN_FILE, O_RDONLY, 0) == -EACCES);
	CHECK(alloc_in(DOMAIN_FILE, O_RDONLY, XRC_RCV_ALLOC_LIFETIME_DOMAIN) == -EACCES);
	CHECK(!alloc_in(OWN_FILE, O_RDONLY | O_CREAT, XRC_RCV_ALLOC_LIFETIME_DOMAIN));
	CHECK(!alloc_by(-1, XRC_RCV_ALLOC_LIFETIME_DOMAIN));
	return 0;
}

static int writers_may(void *argument)
{
	CHECK(!become(argument));
	CHECK(!alloc_in(DOMAIN_FILE, O_RDONLY, XRC_RCV_ALLOC_LIFETIME_DOMAIN));
	return 0;
}

/* Each id of a user namespace creates as many QPs as it can: how many those were. */
static int take_in_namespace(void *argument)
{
	struct registration registration;
	int made[2], mapped[2];
	unsigned int id, taken = 0;
	char path[64], byte;
	int status, map;
	pid_t child;

	CHECK(!pipe2(made, O_CLOEXEC) && !pipe2(mapped, O_CLOEXEC));
	child = fork();
	if (!child) {
		if (become(argument) || prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER) ||
		    write(made[1], "m", 1) != 1 || read(mapped[0], &byte, 1) != 1)
			_exit(255);
		for (id = 1; id < NAMESPACES_IDS; id++) {
			if (setresuid(id, id, 0))
				_exit(254);
			while (!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration))
				taken++;
			if (setresuid(0, 0, 0))
				_exit(253);
		}
		_exit(taken);
	}
	CHECK(read(made[0], &byte, 1) == 1);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	map = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(map >= 0 && dprintf(map, "0 %d %d\n", SUBORDINATE, NAMESPACES_IDS) > 0);
	CHECK(write(mapped[1], "x", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ---- scenarios ---- */

static bool owner_starts(void)
{
	actor_start(&owner);
	return DO(owner, member_join, owned) && DO(owner, make_qp, NULL);
}

static bool stranger_starts(void)
{
	actor_start(&stranger);
	return DO(stranger, member_join, joined);
}

static bool no_process_waits(void)
{
	static const uid_t user = STRANGER;
	uint64_t start;
	bool right;

	right = owner_starts() && DO(owner, member_load_pages, NULL) && !member_load_pages(NULL) &&
		stranger_starts() && DO(stranger, become, (void *)&user) &&
		DO(stranger, attack, NULL);
	start = now_ns();
	right = right && DO(owner, query, NULL) && DO(owner, list, NULL);
	measure("QUERY and QUERY_DOMAIN", start);
	start = now_ns();
	right = count_listed("qps") == 1 && right;
	measure("reading debugfs", start);
	/* The stranger is not registered: the QP's end is the owner's. */
	start = now_ns();
	actor_kill(&owner);
	measure("the owner's end after SIGKILL", start);
	right = count_listed("qps") == 0 && right;
	start = now_ns();
	actor_kill(&stranger);
	measure("the stranger's end after SIGKILL", start);
	return all_at_once() && right;
}

static double removal_takes(void)
{
	uint64_t start = now_ns();
	double took;

	device_remove();
	took = seconds_since(start);
	actor_kill(&owner);
	actor_kill(&stranger);
	device_add();
	return took;
}

/* Compared with its time beside the same processes while they are idle. */
static bool device_is_removed(void)
{
	static const uid_t user = STRANGER;
	double idle, attacked;
	bool right;

	right = owner_starts() && stranger_starts() && DO(stranger, become, (void *)&user);
	idle = removal_takes();
	right = owner_starts() && stranger_starts() && DO(stranger, become, (void *)&user) &&
		DO(stranger, attack, NULL) && right;
	attacked = removal_takes();
	ktap_note("removal: %.2f s, and %.2f s beside %u calls that wait", idle, attacked, THREADS);
	return right && (attacked - REMOVALS * idle) * 1000 < RESOLUTION_MS + AT_ONCE_MS;
}

static bool by_default(void)
{
	unsigned int domain = read_number(PARAMETERS "max_qps_per_domain"),
		     user = read_number(PARAMETERS "max_qps_per_user"),
		     registrations = read_number(PARAMETERS "max_registrations_per_qp");

	ktap_note("%u QPs in a domain, %u of a user, %u registrations", domain, user,
		  registrations);
	/* And a user who can write to the file leaves something of the domain to its owner. */
	return domain && user && registrations && user <= domain / 2;
}

static bool registrations(void)
{
	unsigned int was = replace_number(PARAMETERS "max_registrations_per_qp", LIMIT);
	uid_t user = STRANGER, *shared = share(sizeof(*shared));
	bool right;

	*shared = user;
	right = owner_starts() && stranger_starts() &&
		DO(stranger, register_beyond, shared);
	actor_exit(&stranger);
	actor_exit(&owner);
	write_number(PARAMETERS "max_registrations_per_qp", was);
	return right;
}

/* One act of a stranger of its own, as a user. */
static int as_user(uid_t uid, act *act, bool *started)
{
	uid_t *user = share(sizeof(*user));
	int result;

	*user = uid;
	*started = stranger_starts();
	result = actor_do(&stranger, act, user);
	actor_exit(&stranger);
	return result;
}

static bool succeeds_as_stranger(act *act)
{
	bool started;

	return as_user(STRANGER, act, &started) == 0 && started;
}

/* The ids of a namespace that the user makes create so many QPs. */
static bool ids_create(uid_t user, int wanted)
{
	unsigned int was = replace_number(PARAMETERS "max_qps_per_user", LIMIT);
	bool started;
	int taken = as_user(user, take_in_namespace, &started);

	write_number(PARAMETERS "max_qps_per_user", was);
	if (taken != wanted)
		ktap_note("%d QPs with a limit of %d", taken, LIMIT);
	return started && taken == wanted;
}

int main(void)
{
	bool right;

	ktap_start("isolation of processes that share a domain", 10);
	before = count_objects();
	owned = member_info_new(DOMAIN_FILE, 0, 0);
	joined = member_info_new(DOMAIN_FILE, 0, 0);
	close(open(DOMAIN_FILE, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	if (chmod(DOMAIN_FILE, 0666))
		err(1, DOMAIN_FILE);

	ktap_result(no_process_waits(), "no process waits for an address that another resolves");
	ktap_result(device_is_removed(), "removal of the device waits only for the calls that run");
	ktap_result(by_default(), "limits apply by default");
	ktap_result(registrations(), "registrations of a QP are limited");
	ktap_result(succeeds_as_stranger(common_inodes), "ALLOC is refused on an inode that every process has");
	right = !chmod(DOMAIN_FILE, 0644);
	ktap_result(succeeds_as_stranger(leaves_nothing_behind) && right,
		    "a reader of the file cannot create a QP");
	right = !chmod(DOMAIN_FILE, 0666);
	ktap_result(succeeds_as_stranger(writers_may) && right, "a writer of the file can create a QP of the domain's lifetime");
	ktap_result(ids_create(STRANGER, LIMIT),
		    "QPs of subordinate ids are charged to their user");
	ktap_result(ids_create(0, (NAMESPACES_IDS - 1) * LIMIT),
		    "ids of a user namespace that root made have a limit each");
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	unlink(OWN_FILE);
	return ktap_end();
}
