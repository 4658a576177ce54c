// SPDX-License-Identifier: GPL-2.0
/*
 * A domain is closed with a thousand receive QPs in it (ten thousand with --long), on a device
 * whose commands take 5 ms or more: the last ibv_close_xrcd() keeps several of them in flight, with
 * a few threads, and leaves nothing. Beside it, in the same run, a process that owns a thousand XRC
 * target QPs destroys them with mainline's ibv_destroy_qp(), one after the other. Closing other
 * objects meanwhile does not wait for the thousand, unless they are destroyed with their domain:
 * then it waits for commands, several at a time.
 *
 * The times of commands are the host's, and a guest on a busy host takes any time between two of
 * them. So commands in flight are counted and no times compared. Where several have to be in
 * flight, they take longer than this guest needs to begin several, and where many have to be left,
 * longer than such a guest needs for the rest.
 *
 * tags: vmlx4 long-vmlx4 long-vmlx5
 */

#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"
#include "adapter.h"

#define DOMAIN_FILE "/tmp/teardown"
#define OTHER_FILE "/tmp/teardown-other"

enum {
	QPS = 1000,
	LONG_QPS = 10000,
	COMMAND_US = 5000,	/* at least */
	TIMES = 8,		/* as long as the guest takes to create a QP */
	/* 16 at a time, a thousand take two minutes, or until the latency is reset. */
	SLOW_COMMAND_US = 2000000,
	IN_FLIGHT = 4,		/* at least */
	THREADS = 40,		/* at most: 16 of the module, the watcher, and those of others */
};

static struct ibv_qp *own[LONG_QPS];
/* That come and go. */
static unsigned int count = QPS;

static struct measurement {
	uint64_t ns, worst_ns;
	atomic_uint turns;
	atomic_bool stop;
	struct path peer;
} *measured;

/* ---- acts ---- */

static int create_own(void *argument)
{
	unsigned int i;

	(void)argument;
	for (i = 0; i < count; i++) {
		own[i] = node_create_target(&member.node, member.xrcd);
		qp_connect(&member.node, own[i], &measured->peer);
	}
	return 0;
}

static int destroy_own(void *argument)
{
	uint64_t begin = now_ns();
	unsigned int i;
	int result;

	(void)argument;
	for (i = 0; i < count; i++) {
		result = -ibv_destroy_qp(own[i]);
		if (result)
			return result;
	}
	measured->ns = now_ns() - begin;
	return 0;
}

static int create_receive_qps(unsigned int qps, uint32_t flags, bool stay)
{
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, &measured->peer);
	struct registration registration;
	unsigned int i;
	int result;

	for (i = 0; i < qps; i++) {
		result = rcv_alloc(member.domain, flags, &attr, NO_CHANNEL, &registration);
		if (!result && !stay)
			result = rcv_unreg(&registration);
		if (result)
			return result;
	}
	return 0;
}

/* They have no registrations. */
static int create_domains(void *argument)
{
	(void)argument;
	return create_receive_qps(count, XRC_RCV_ALLOC_LIFETIME_DOMAIN, false);
}

static int create_registered(void *argument)
{
	(void)argument;
	return create_receive_qps(count, 0, true);
}

static int create_one_of_domain(void *argument)
{
	(void)argument;
	return create_receive_qps(1, XRC_RCV_ALLOC_LIFETIME_DOMAIN, false);
}

static int create_one_registered(void *argument)
{
	(void)argument;
	return create_receive_qps(1, 0, true);
}

static int close_domain(void *argument)
{
	uint64_t begin = now_ns();
	int result = -ibv_close_xrcd(member.xrcd);

	(void)argument;
	measured->ns = now_ns() - begin;
	return result;
}

/* A domain of a file of one's own, again and again. */
static int open_and_close(void *argument)
{
	(void)argument;
	while (!measured->stop) {
		uint64_t begin = now_ns();
		struct ibv_xrcd *xrcd = node_open_domain(&member.node, OTHER_FILE);
		int result = -ibv_close_xrcd(xrcd);

		if (result)
			return result;
		if (now_ns() - begin > measured->worst_ns)
			measured->worst_ns = now_ns() - begin;
		measured->turns++;
	}
	return 0;
}

/* ---- scenario ---- */

static struct account {
	const char *what;
	act *create;
	act *destroy;			/* NULL: the process is killed */
	unsigned long in_flight, overlapping;
	unsigned int threads;
	bool failed;
} accounts[] = {
	{ .what = "ibv_destroy_qp()", .create = create_own, .destroy = destroy_own },
	{ .what = "last ibv_close_xrcd()", .create = create_domains, .destroy = close_domain },
	{ .what = "SIGKILL", .create = create_registered },
};

static const struct account *const serial = &accounts[0], *const last_close = &accounts[1],
			    *const killed = &accounts[2];

/* Returns the number of threads of the whole system. */
static unsigned int threads(void)
{
	struct sysinfo info;

	if (sysinfo(&info))
		err(1, "sysinfo");
	return info.procs;
}

/* The latency of commands, after QPs have been created without any since BEGIN. */
static unsigned int command_us(uint64_t begin)
{
	uint64_t us = TIMES * (now_ns() - begin) / 1000 / count;

	return us > COMMAND_US ? us : COMMAND_US;
}

static atomic_bool watching;
static unsigned int most_threads;

static void *watch_threads(void *argument)
{
	unsigned int now;

	(void)argument;
	while (watching) {
		now = threads();
		if (now > most_threads)
			most_threads = now;
		usleep(2000);
	}
	return NULL;
}

/* The QPs are created, then destroyed, with slow commands, before anything else. */
static void come_and_go(struct account *account, const struct counts *before)
{
	struct member_info *member_info = member_info_new(DOMAIN_FILE, 0, 0);
	unsigned long qps = adapter_qps(), there, left, in_flight, overlapping;
	unsigned int threads_before, us;
	uint64_t begin;
	struct actor owner;
	pthread_t watcher;
	bool right;

	actor_start(&owner);
	right = DO(owner, member_join, member_info);
	measured->peer = (struct path) { .lid = member_info->path.lid, .qp_num = 0x40 };
	begin = now_ns();
	right = right && DO(owner, account->create, NULL);
	us = account == serial ? COMMAND_US : command_us(begin);
	there = adapter_qps() - qps;
	adapter_reset_counts();
	adapter_latency(us);
	watching = true;
	most_threads = threads_before = threads();
	if (pthread_create(&watcher, NULL, watch_threads, NULL))
		errx(1, "no thread");
	if (account->destroy) {
		right = right && DO(owner, account->destroy, NULL);
	} else {
		measured->ns = now_ns();
		actor_kill(&owner);
		measured->ns = now_ns() - measured->ns;
	}
	watching = false;
	pthread_join(watcher, NULL);
	adapter_clear();
	left = adapter_qps() - qps;
	in_flight = adapter_count("max_commands_in_flight");
	overlapping = adapter_count("overlapping_commands");
	actor_exit(&owner);
	ktap_note("%s: %lu QPs in %lu ms, a command in %u ms, %lu commands in flight and %u more threads at most, %lu commands came beside others",
		  account->what, there - left, measured->ns / 1000000, us / 1000, in_flight,
		  most_threads - threads_before, overlapping);
	account->threads = most_threads - threads_before;
	account->in_flight = in_flight;
	account->overlapping = overlapping;
	account->failed = !right || there != count || left || !counts_return_to(before);
}

/*
 * A process with a thousand QPs is killed. While they are destroyed, others close a domain
 * with one QP, and end with one: most of the thousand exist still after that.
 */
static bool others_do_not_wait(const struct counts *before)
{
	struct member_info *member_info = member_info_new(DOMAIN_FILE, 0, 0);
	struct member_info *other = member_info_new(OTHER_FILE, 0, 0);
	unsigned long qps = adapter_qps(), there;
	struct actor owner, closing, ending;
	bool right;

	actor_start(&owner);
	actor_start(&closing);
	actor_start(&ending);
	right = DO(owner, member_join, member_info);
	measured->peer = (struct path) { .lid = member_info->path.lid, .qp_num = 0x40 };
	right = right && DO(closing, member_join, other) && DO(ending, member_join, member_info) &&
		DO(closing, create_one_of_domain, NULL) &&
		DO(ending, create_one_registered, NULL) && DO(owner, create_registered, NULL);
	there = adapter_qps() - qps;
	adapter_latency(SLOW_COMMAND_US);
	kill(owner.pid, SIGKILL);
	while (adapter_qps() - qps > there - 32)
		usleep(1000);
	right = right && DO(closing, close_domain, NULL);
	ktap_note("after another's close %lu of %lu QPs are left", adapter_qps() - qps, there);
	actor_kill(&ending);
	right = right && adapter_qps() - qps > QPS / 2;
	ktap_note("after another's end %lu are left", adapter_qps() - qps);
	adapter_clear();
	actor_kill(&owner);
	right = right && there == QPS + 2 && adapter_qps() == qps;
	actor_exit(&closing);
	unlink(OTHER_FILE);
	return right && counts_return_to(before);
}

/*
 * uverbs holds a mutex of the device while a domain is closed for the last time, which
 * strangers who open one of their own wait for.
 */
static bool strangers_wait_for_several_at_once(const struct counts *before)
{
	struct member_info *member_info = member_info_new(DOMAIN_FILE, 0, 0);
	struct member_info *other = member_info_new(OTHER_FILE ".unused", 0, 0);
	unsigned long qps = adapter_qps(), there, in_flight;
	struct actor owner, stranger;
	uint64_t begin;
	bool right;

	actor_start(&owner);
	actor_start(&stranger);
	right = DO(owner, member_join, member_info) && DO(stranger, member_join, other);
	measured->peer = (struct path) { .lid = member_info->path.lid, .qp_num = 0x40 };
	begin = now_ns();
	right = right && DO(owner, create_domains, NULL);
	there = adapter_qps() - qps;
	adapter_reset_counts();
	adapter_latency(command_us(begin));
	measured->worst_ns = measured->turns = 0;
	measured->stop = false;
	actor_begin(&stranger, open_and_close, NULL);
	while (right && measured->turns < 2)
		usleep(1000);
	right = right && DO(owner, close_domain, NULL);
	measured->stop = true;
	right = succeeded("a stranger", actor_wait(&stranger)) && right;
	in_flight = adapter_count("max_commands_in_flight");
	ktap_note("%lu QPs went with their domain in %lu ms, %lu commands in flight at most; a stranger waited for %lu ms",
		  there, measured->ns / 1000000, in_flight, measured->worst_ns / 1000000);
	right = right && there == QPS && adapter_qps() == qps && in_flight >= IN_FLIGHT;
	adapter_clear();
	actor_exit(&owner);
	actor_exit(&stranger);
	unlink(OTHER_FILE);
	unlink(OTHER_FILE ".unused");
	return right && counts_return_to(before);
}

static bool overlaps(const struct account *account)
{
	return account->in_flight >= IN_FLIGHT && account->overlapping > count / 2;
}

/* The driver of a ConnectX-6 destroys memory keys that were unused for a minute, meanwhile. */
static bool one_after_the_other(const struct account *account)
{
	return account->overlapping < count / 100;
}

int main(void)
{
	struct counts before;
	unsigned int i;

	adapter_or_skip("the time of commands");
	ktap_start("many receive QPs are destroyed", 8);
	if (is_long_run() && !memory_is_checked())
		count = LONG_QPS;
	measured = share(sizeof(*measured));
	before = count_objects();
	for (i = 0; i < ARRAY_SIZE(accounts); i++)
		come_and_go(&accounts[i], &before);
	ktap_result(!serial->failed && one_after_the_other(serial),
		    "a process destroys its target QPs one after the other");
	ktap_result(!last_close->failed, "the domain's last close destroys all of them");
	ktap_result(overlaps(last_close), "with several commands in flight");
	ktap_result(!killed->failed, "the exit of their last process destroys all of them");
	ktap_result(overlaps(killed), "with several commands in flight");
	ktap_result(last_close->threads <= THREADS && killed->threads <= THREADS,
		    "at most 40 threads more destroy them");
	count = QPS;
	ktap_result(others_do_not_wait(&before), "close() by others meanwhile does not wait for them");
	ktap_result(strangers_wait_for_several_at_once(&before),
		    "the last close that an open waits for has several commands in flight");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
