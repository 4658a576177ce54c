// SPDX-License-Identifier: GPL-2.0
/*
 * A process does not wait for the memory of another: one to which charged memory comes
 * slowly, as at the limit of its memory cgroup, creates a QP and registers with
 * another's, where the list of registrations has to grow. Meanwhile the owner's calls
 * in the same domain do not wait: an allocation ends when they were made.
 *
 * A process that lists QPs is as slow between the list and the first query. The owner
 * destroys the QP of that page meanwhile; an empty page would be the end of the list.
 * One that reads the list in debugfs is killed in the first domain, and goes on to no other.
 *
 * Needs kprobes and memory cgroups: the stock kernel.
 *
 * tags: stock
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"

#define DOMAIN_FILE "/tmp/memory"
#define OTHER_FILE DOMAIN_FILE ".other"
#define PARAMETERS "/sys/module/slow_memory/parameters/"
#define CGROUP "/sys/fs/cgroup"
#define GROUP CGROUP "/memory"

enum {
	CROWD = 3,		/* with the creator as many as a QP has room for at first */
	DELAYS = 6,		/* at least, in the calls below */
	DOMAINS = 4,		/* with a QP each, that debugfs lists */
};

static struct actor owner, slow;
static struct member_info *owned;
static struct file crowd[CROWD + 1], second, other;
static uint32_t neighbour;	/* the owner's other QP */
static int group = -1;	/* where processes enter it */

/* Shared. */
static struct progress {
	atomic_bool done;
	unsigned int rounds;
	uint32_t listed, first;		/* how many QPs a page of one has, and the QP's number */
	uint32_t numbers[2];		/* of QPs of the domain */
} *progress;

static void be_slow(pid_t tid)
{
	write_number(PARAMETERS "tid", tid);
}

static int make_qps(void *argument)
{
	struct registration registration;

	(void)argument;
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &member.registration));
	owned->qp_num = member.registration.qp_num;
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration));
	neighbour = registration.qp_num;
	file_open(&second, DOMAIN_FILE);
	return 0;
}

static int fill_the_list(void *argument)
{
	struct registration registration;
	unsigned int i;

	(void)argument;
	for (i = 0; i <= CROWD; i++)
		file_open(&crowd[i], DOMAIN_FILE);
	for (i = 0; i < CROWD; i++)
		CHECK(!rcv_reg(crowd[i].domain, owned->qp_num, NO_CHANNEL, &registration));
	file_open(&other, OTHER_FILE);
	return 0;
}

static int call_slowly(void *argument)
{
	struct registration registration;
	int channel = rcv_channel(other.domain);
	int result;

	(void)argument;
	/* Memory allocated in the root cgroup is not charged. */
	if (write(group, "0", 1) != 1)
		return -errno;
	be_slow(gettid());
	/* The first of its file, of its domain, and of its channel. */
	result = rcv_alloc(other.domain, 0, NULL, channel, &registration) ?:
		 rcv_reg(crowd[CROWD].domain, owned->qp_num, NO_CHANNEL, &registration);
	be_slow(0);
	progress->done = true;
	return result;
}

/*
 * All that the owner may want in the meantime. It registers with another QP: where the
 * slow one does, the list of registrations would have grown already. An allocation
 * ends when all calls were made that began after it: they did not wait for it.
 */
static int call_on(void *argument)
{
	struct registration registration;
	struct xrc_rcv_qp_info info;
	unsigned int delays;
	uint32_t count;

	(void)argument;
	while (!progress->done) {
		delays = read_number(PARAMETERS "delays");
		CHECK(!rcv_query(member.domain, owned->qp_num, NULL, NULL));
		CHECK(!rcv_reg(second.domain, neighbour, NO_CHANNEL, &registration));
		CHECK(!rcv_unreg(&registration));
		CHECK(!rcv_alloc(second.domain, 0, NULL, NO_CHANNEL, &registration));
		CHECK(!rcv_unreg(&registration));
		count = 1;
		CHECK(!rcv_list(member.domain, 0, &info, &count, NULL));
		write_number(PARAMETERS "ended", delays);
		progress->rounds++;
	}
	return 0;
}

static int list_one(void *argument)
{
	struct xrc_rcv_qp_info info;
	uint32_t count = 1;

	(void)argument;
	CHECK(!rcv_list(member.domain, 0, &info, &count, NULL));
	progress->listed = count;
	progress->first = count ? info.qp_num : 0;
	return 0;
}

static int list_slowly(void *argument)
{
	int result;

	be_slow(gettid());
	result = list_one(argument);
	be_slow(0);
	return result;
}

static int make_two(void *argument)
{
	struct registration registration;
	unsigned int i;

	(void)argument;
	for (i = 0; i < 2; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				 NO_REGISTRATION, &registration));
		progress->numbers[i] = registration.qp_num;
	}
	return 0;
}

static int destroy(void *number)
{
	return rcv_destroy(member.domain, *(uint32_t *)number);
}

/* The other QP is listed, or none if that was destroyed as well. */
static bool lists_what_is_left(bool both)
{
	uint32_t *numbers = progress->numbers, first, tries;
	unsigned int before = read_number(PARAMETERS "delays");
	bool right;

	/* Before it is slow: the pages that the call uses are there then. */
	right = DO(owner, make_two, NULL) && DO(slow, list_one, NULL);
	first = progress->first == numbers[1];
	actor_begin(&slow, list_slowly, NULL);
	for (tries = 0; tries < PATIENCE_MS / 10 && read_number(PARAMETERS "delays") == before; tries++)
		usleep(10000);
	right = right && read_number(PARAMETERS "delays") == before + 1 &&
		DO(owner, destroy, &numbers[first]) && (!both || DO(owner, destroy, &numbers[!first]));
	write_number(PARAMETERS "ended", ~0u);
	right = succeeded("slow: list", actor_wait(&slow)) && right;
	ktap_note("a page of one QP has %u", progress->listed);
	right = right && progress->listed == !both && (both || progress->first == numbers[!first]);
	write_number(PARAMETERS "ended", read_number(PARAMETERS "delays"));
	return right && (both || DO(owner, destroy, &numbers[!first]));
}

static bool pages_are_not_empty(void)
{
	return DO(slow, member_join, owned) && lists_what_is_left(false) &&
	       lists_what_is_left(true);
}

static int make_domains(void *argument)
{
	struct registration registration;
	struct file files[DOMAINS];
	unsigned int i;
	char path[64];

	(void)argument;
	for (i = 0; i < DOMAINS; i++) {
		snprintf(path, sizeof(path), DOMAIN_FILE ".%u", i);
		file_open(&files[i], path);
		unlink(path);
		CHECK(!rcv_alloc(files[i].domain, 0, NULL, NO_CHANNEL, &registration));
	}
	return 0;
}

/* Makes the text of the list of the device that has the domains, as open() does. */
static int read_list(void *argument)
{
	char line[64], path[256];
	glob_t files;
	int fd = -1;
	size_t i;

	(void)argument;
	/* A process that has not joined sees debugfs. */
	CHECK(!glob("/sys/kernel/debug/ib_xrc_rcv/*", 0, NULL, &files));
	for (i = 0; i < files.gl_pathc; i++) {
		snprintf(path, sizeof(path), "%s/domains", files.gl_pathv[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		if (read(fd, line, sizeof(line)) > 0)
			break;
		close(fd);
	}
	CHECK(i < files.gl_pathc && !close(fd));
	snprintf(path, sizeof(path), "%s/qps", files.gl_pathv[i]);
	be_slow(gettid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	be_slow(0);
	CHECK(!close(fd));
	globfree(&files);
	return 0;
}

/*
 * Each domain takes an allocation, and the text some more. A process that is killed in the
 * first makes no other.
 */
static bool stops_listing(void)
{
	unsigned int all, killed, tries;
	bool right;

	write_number(PARAMETERS "ended", ~0u);
	right = DO(owner, make_domains, NULL) && DO(slow, read_list, NULL);
	all = read_number(PARAMETERS "delays");
	write_number(PARAMETERS "ended", all);
	actor_begin(&slow, read_list, NULL);
	for (tries = 0; tries < PATIENCE_MS / 10 && read_number(PARAMETERS "delays") == all; tries++)
		usleep(10000);
	kill(slow.pid, SIGKILL);
	write_number(PARAMETERS "ended", ~0u);
	actor_kill(&slow);
	be_slow(0);
	killed = read_number(PARAMETERS "delays") - all;
	ktap_note("%u allocations for the list, %u by a process that was killed", all, killed);
	return right && all >= DOMAINS && killed && killed + DOMAINS <= all + 1;
}

static void insert(const char *parameters)
{
	const char *build = getenv("LAB_BUILD");
	char command[512];

	snprintf(command, sizeof(command), "insmod %s/test-modules/slow_memory/slow_memory.ko %s",
		 build ? build : "", parameters);
	if (system(command))
		errx(1, "%s", command);
}

/* With another function that is slow. */
static bool with_slow(const char *symbol, bool (*scenario)(void))
{
	bool right = !system("rmmod slow_memory");

	insert(symbol);
	actor_start(&owner);
	actor_start(&slow);
	right = right && DO(owner, member_join, owned) && scenario() && !read_number(PARAMETERS "expired");
	actor_exit(&slow);
	actor_exit(&owner);
	return right;
}

int main(void)
{
	bool right;

	ktap_start("slow memory of another process, and slow queries", 4);
	insert("");
	if (access(CGROUP "/cgroup.controllers", F_OK) &&
	    mount("cgroup2", CGROUP, "cgroup2", 0, NULL))
		err(1, CGROUP);
	write_file(CGROUP "/cgroup.subtree_control", "+memory");
	if (mkdir(GROUP, 0755))
		err(1, GROUP);
	/* A namespace has another /sys. */
	group = open(GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (group < 0)
		err(1, GROUP);
	progress = share(sizeof(*progress));
	owned = member_info_new(DOMAIN_FILE, 0, 0);
	actor_start(&owner);
	actor_start(&slow);
	right = DO(owner, member_join, owned) && DO(owner, make_qps, NULL) &&
		DO(slow, member_join, owned) && DO(slow, fill_the_list, NULL);
	if (right) {
		actor_begin(&slow, call_slowly, NULL);
		right = DO(owner, call_on, NULL);
		right = succeeded("slow: calls", actor_wait(&slow)) && right;
	}
	ktap_note("%u allocations took until %u rounds of calls were made",
		  read_number(PARAMETERS "delays"), progress->rounds);
	ktap_result(right && read_number(PARAMETERS "delays") >= DELAYS, "allocations of a process are delayed");
	ktap_result(right && !read_number(PARAMETERS "expired"), "others in the domain do not wait for them");
	actor_exit(&slow);
	actor_exit(&owner);

	ktap_result(with_slow("symbol=down_read_killable", pages_are_not_empty),
		    "a page has QPs as long as some are left");
	ktap_result(with_slow("symbol=kvrealloc_node_align_noprof", stops_listing),
		    "a process that is killed while it lists QPs in debugfs stops");
	unlink(DOMAIN_FILE);
	unlink(OTHER_FILE);
	rmdir(GROUP);
	return ktap_end() || system("rmmod slow_memory");
}
