// SPDX-License-Identifier: GPL-2.0
/*
 * The time for which a user holds up others with whom it shares no more than the device. Each
 * factor that it controls is large alone, and then all together: the QPs of its domain, the
 * registrations of each, the channels on which their events are reported, the epolls that watch
 * these, events all the time, processes that create QPs, and a memory cgroup without room.
 * Meanwhile it ends its domain. What strangers then wait for is at most what is written below,
 * whatever the factors are.
 *
 * Wants the lab's --icount: its clock counts instructions, those of all CPUs, and neither the
 * host's speed nor its load changes them. A process that never waits keeps it from being the
 * host's clock while all others wait.
 *
 * tags: clock
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/hold_ups"
#define STRANGERS_FILE DOMAIN_FILE ".stranger"
#define HOLDERS_FILE DOMAIN_FILE ".holder"
#define STORM_FILE DOMAIN_FILE ".storm"
#define CGROUP "/sys/fs/cgroup"
#define GROUP CGROUP "/hold_ups"

enum {
	ROUNDS = 20,		/* of the stranger's calls, before the domain's end and beside it */
	MOST_US = 100000,	/* that one of them may take, where others compete for the CPU */
	MOST_REGISTRATIONS = 200,
	MOST_PROCESSES = 4,
	READERS = 8,
	HOGS = 8,
	QUERIES = 200,		/* 20 ms apart */
	RUN_MS = 300,		/* that the reader's others leave nothing of the CPU for it */
	PAUSE_US = 5000,
};

/* The acts of the user; 0 of QPS: it does not exist. */
static const struct load {
	const char *what;
	unsigned int qps;
	unsigned int registrations;	/* of each QP, of files of their own */
	bool channels;			/* one for each file, else one for all of them */
	unsigned int watches;		/* of all channels */
	bool events, memory;
	unsigned int processes;
	bool queries;			/* of the stranger's QP, by readers that hardly ever run */
} loads[] = {
	{ "nobody else", .qps = 0 },
	{ "many QPs", .qps = 200 },
	{ "many registrations", .qps = 1, .registrations = MOST_REGISTRATIONS },
	{ "many channels", .qps = 1, .registrations = MOST_REGISTRATIONS, .channels = true },
	{ "many epolls", .qps = 1, .registrations = 1, .watches = 20000 },
	{ "events all the time", .qps = 4, .registrations = 3, .events = true },
	{ "many processes", .qps = 1, .processes = MOST_PROCESSES },
	{ "full memory", .qps = 1, .processes = 1, .memory = true },
	{ "many QPs with many registrations", .qps = 200, .registrations = MOST_REGISTRATIONS },
	{ "many QPs and many epolls", .qps = 200, .registrations = 3, .watches = 4000 },
	{ "queries of its QP", .queries = true },
	{ "all of these", .qps = 200, .registrations = MOST_REGISTRATIONS, .channels = true,
	  .watches = 20000, .events = true, .processes = MOST_PROCESSES, .memory = true },
};

enum cost { OPEN_AND_CLOSE, EXIT, ALLOC_AND_UNREG, DESTROY, EVENT, QUERY, COSTS };

static const char *const names[] = {
	[OPEN_AND_CLOSE] = "open and close of a domain",
	[EXIT] = "exit",
	[ALLOC_AND_UNREG] = "ALLOC and UNREG",
	[DESTROY] = "DESTROY",
	[EVENT] = "an event",
	[QUERY] = "QUERY",
};

/* Shared. */
static struct progress {
	uint64_t longest_ns[COSTS];
	atomic_bool ending, ended, stop, over;
	atomic_uint events, qp_num, queries;
} *progress;

static struct actor user, stranger, holder, storms[MOST_PROCESSES], readers[READERS], hogs[HOGS];

/* ---- acts of the user ---- */

static const struct load *load;		/* set before it is started */
static struct file files[MOST_REGISTRATIONS];
static int channels[MOST_REGISTRATIONS];
static uint32_t numbers[200];

static int watch(int channel, unsigned int watches)
{
	enum { COPIES = 500 };
	int copies[COPIES], epoll = -1;
	unsigned int i, copied = watches < COPIES ? watches : COPIES;
	struct epoll_event event = { .events = EPOLLIN };

	for (i = 0; i < copied; i++) {
		copies[i] = fcntl(channel, F_DUPFD_CLOEXEC, 0);
		CHECK(copies[i] >= 0);
	}
	for (i = 0; i < watches; i++) {
		if (i % COPIES == 0)
			epoll = epoll_create1(EPOLL_CLOEXEC);
		CHECK(epoll >= 0);
		CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, copies[i % COPIES], &event));
	}
	return 0;
}

/* The files close their handles of the domain: that of the process is the last. */
static int prepare(void *argument)
{
	struct registration registration;
	unsigned int i, j, watches = 0;
	int result;

	(void)argument;
	for (i = 0; i < load->qps; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_CHANNEL,
				 &registration));
		numbers[i] = registration.qp_num;
	}
	for (i = 0; i < load->registrations; i++) {
		file_open(&files[i], DOMAIN_FILE);
		channels[i] = rcv_channel(files[i].domain);
		CHECK(channels[i] >= 0);
		for (j = 0; j < load->qps; j++)
			CHECK(!rcv_reg(files[i].domain, numbers[j], channels[i], &registration));
		CHECK(!ibv_close_xrcd(files[i].xrcd));
		if (load->channels || i == 0) {
			unsigned int share = load->channels ? load->watches / load->registrations :
							      load->watches;

			result = watch(channels[i], share);
			if (result)
				return result;
			watches += share;
		}
	}
	return 0;
}

/* Events of each QP until the stop: each of them wakes all who watch. */
static void *make_events(void *argument)
{
	struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	struct xrc_rcv_record events[16];
	unsigned int i, j;

	(void)argument;
	for (i = 0; !progress->stop; i = (i + 1) % load->qps) {
		if (rcv_to_state(member.domain, numbers[i], IBV_QPS_RESET) ||
		    rcv_modify(member.domain, numbers[i], &init) ||
		    rcv_to_state(member.domain, numbers[i], IBV_QPS_ERR))
			break;
		progress->events++;
		for (j = 0; j < load->registrations; j++)
			(void)!read(channels[j], events, sizeof(events));
	}
	return NULL;
}

static int begin_events(void *argument)
{
	pthread_t thread;
	unsigned int i;

	(void)argument;
	for (i = 0; i < load->registrations; i++)
		CHECK(!fcntl(channels[i], F_SETFL, O_NONBLOCK));
	CHECK(!pthread_create(&thread, NULL, make_events, NULL));
	while (!progress->events)
		usleep(1000);
	return 0;
}

static int end_domain(void *argument)
{
	int result;

	(void)argument;
	progress->ending = true;
	/* A handle that a thread uses cannot be destroyed. */
	do
		result = ibv_close_xrcd(member.xrcd);
	while (result == EBUSY);
	progress->ended = true;
	return -result;
}

static const struct sched_param no_priority, real_time = { .sched_priority = 1 };

/* A reader of the stranger's domain, which others of its user keep from the CPU at any moment. */
static int query(void *argument)
{
	struct ib_uverbs_qp_attr attr;

	(void)argument;
	CHECK(!sched_setscheduler(0, SCHED_IDLE, &no_priority));
	while (!progress->stop)
		if (progress->qp_num && !rcv_query(member.domain, progress->qp_num, &attr, NULL))
			progress->queries++;
	return 0;
}

/* The readers run while it pauses. One of them is in QUERY when it ends the pause. */
static int compete(void *argument)
{
	uint64_t end;

	(void)argument;
	while (!progress->stop) {
		usleep(PAUSE_US);
		for (end = now_ns() + RUN_MS * 1000000ull; now_ns() < end;)
			atomic_signal_fence(memory_order_seq_cst);
	}
	return 0;
}

/* ---- acts of others ---- */

/* ALLOC and UNREG in a domain of its own until the stop, in a memory cgroup if there is one. */
static int storm(void *argument)
{
	struct registration registration;

	if (argument) {
		int group = open(GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);

		CHECK(group >= 0 && write(group, "0", 1) == 1);
		close(group);
	}
	while (!progress->stop)
		if (!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration))
			rcv_unreg(&registration);
	return 0;
}

static int hold_one(void *argument)
{
	(void)argument;
	return rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, member.channel,
			 &member.registration);
}

static void note_cost(enum cost cost, uint64_t start)
{
	uint64_t took = now_ns() - start;

	if (took > progress->longest_ns[cost])
		progress->longest_ns[cost] = took;
}

static int query_once(void)
{
	struct ib_uverbs_qp_attr attr;
	uint64_t start = now_ns();

	CHECK(!rcv_query(member.domain, member.registration.qp_num, &attr, NULL));
	note_cost(QUERY, start);
	return 0;
}

static int one_round(struct ib_uverbs_qp_attr *init)
{
	uint32_t number = member.registration.qp_num;
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };
	struct registration registration;
	struct xrc_rcv_record event;
	struct ibv_xrcd *xrcd;
	uint64_t start;

	CHECK(!query_once());
	start = now_ns();
	xrcd = node_open_domain(&member.node, STRANGERS_FILE ".other");
	CHECK(!ibv_close_xrcd(xrcd));
	note_cost(OPEN_AND_CLOSE, start);

	start = now_ns();
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration));
	CHECK(!rcv_unreg(&registration));
	note_cost(ALLOC_AND_UNREG, start);

	CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_CHANNEL,
			 &registration));
	start = now_ns();
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	note_cost(DESTROY, start);
	CHECK(!rcv_unreg(&registration));

	CHECK(!rcv_modify(member.domain, number, init));
	start = now_ns();
	CHECK(!rcv_to_state(member.domain, number, IBV_QPS_ERR));
	CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
	CHECK(read(member.channel, &event, sizeof(event)) == sizeof(event));
	note_cost(EVENT, start);
	CHECK(!rcv_to_state(member.domain, number, IBV_QPS_RESET));
	return 0;
}

/* It waits for locks only, and not for the CPU beside those that compete for it. */
static int query_often(void *argument)
{
	unsigned int i;

	(void)argument;
	progress->qp_num = member.registration.qp_num;
	CHECK(!sched_setscheduler(0, SCHED_FIFO, &real_time));
	for (i = 0; i < QUERIES; i++) {
		usleep(20000);
		CHECK(!query_once());
	}
	CHECK(!sched_setscheduler(0, SCHED_OTHER, &no_priority));
	CHECK(progress->queries);
	return 0;
}

/* Rounds of calls until the user's domain has ended, and some more. */
static int live(void *argument)
{
	struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	unsigned int after;
	int result;

	(void)argument;
	for (after = 0; after < ROUNDS; after += progress->ended) {
		result = one_round(&init);
		if (result)
			return result;
	}
	return 0;
}

static int spin(void *argument)
{
	(void)argument;
	CHECK(!sched_setscheduler(0, SCHED_IDLE, &no_priority));
	while (!progress->over)
		atomic_signal_fence(memory_order_seq_cst);
	return 0;
}

/* ---- scenario ---- */

static bool join(struct actor *actor, const char *domain_file, bool wants_events)
{
	struct member_info *member_info = member_info_new(domain_file, 0, 0);

	member_info->wants_events = wants_events;
	actor_start(actor);
	return DO(*actor, member_join, member_info);
}

/* Whether no stranger waited longer than may be. */
static bool holds_up_nobody(const struct load *now)
{
	unsigned int i;
	bool right;
	uint64_t start;

	load = now;
	memset(progress, 0, sizeof(*progress));
	right = join(&stranger, STRANGERS_FILE, true) && DO(stranger, hold_one, NULL) &&
		DO(stranger, member_load_pages, NULL) &&
		join(&holder, HOLDERS_FILE, false) && DO(holder, hold_one, NULL);
	right = right && join(&user, DOMAIN_FILE, false) && DO(user, prepare, NULL);
	for (i = 0; right && i < load->processes; i++) {
		right = join(&storms[i], STORM_FILE, false);
		actor_begin(&storms[i], storm, load->memory && i == 0 ? (void *)load : NULL);
	}
	for (i = 0; right && load->queries && i < READERS; i++) {
		right = join(&readers[i], STRANGERS_FILE, false);
		actor_begin(&readers[i], query, NULL);
	}
	for (i = 0; right && load->queries && i < HOGS; i++) {
		actor_start(&hogs[i]);
		actor_begin(&hogs[i], compete, NULL);
	}
	if (right && load->queries)
		right = DO(stranger, query_often, NULL);
	/* All other calls wait for threads of the kernel, which would compete with them, too. */
	for (i = 0; load->queries && i < HOGS; i++)
		actor_kill(&hogs[i]);
	if (right && load->events)
		right = DO(user, begin_events, NULL);
	if (right) {
		actor_begin(&stranger, live, NULL);
		actor_begin(&user, end_domain, NULL);
		while (!progress->ending)
			sched_yield();
		start = now_ns();
		actor_kill(&holder);
		note_cost(EXIT, start);
		right = succeeded("the domain's end", actor_wait(&user));
		right = succeeded("the stranger", actor_wait(&stranger)) && right;
	}
	progress->stop = true;
	for (i = 0; i < load->processes; i++)
		actor_kill(&storms[i]);
	for (i = 0; load->queries && i < READERS; i++)
		actor_kill(&readers[i]);
	actor_kill(&user);
	actor_kill(&holder);
	actor_kill(&stranger);
	for (i = 0; i < COSTS; i++)
		ktap_note("%s: %s takes %llu us at most", load->what, names[i],
			  (unsigned long long)progress->longest_ns[i] / 1000);
	/* The last notes are in the report of a failure. */
	for (i = 0; i < COSTS; i++) {
		if (progress->longest_ns[i] / 1000 <= MOST_US)
			continue;
		ktap_note("%s: %s takes more than %u us", load->what, names[i], MOST_US);
		right = false;
	}
	return right;
}

int main(void)
{
	static const struct rlimit many = { 65536, 65536 };
	struct counts before;
	struct actor spinner;
	unsigned int i;

	if (setrlimit(RLIMIT_NOFILE, &many))
		err(1, "files");
	if (access(CGROUP "/cgroup.controllers", F_OK) &&
	    mount("cgroup2", CGROUP, "cgroup2", 0, NULL))
		err(1, CGROUP);
	write_file(CGROUP "/cgroup.subtree_control", "+memory");
	if (mkdir(GROUP, 0755))
		err(1, GROUP);
	/* Allocations beyond are slowed down, not refused. */
	write_file(GROUP "/memory.high", "65536");
	progress = share(sizeof(*progress));
	before = count_objects();
	actor_start(&spinner);
	actor_begin(&spinner, spin, NULL);
	ktap_start("what a user holds up others by", ARRAY_SIZE(loads) + 1);
	for (i = 0; i < ARRAY_SIZE(loads); i++) {
		char description[128];

		snprintf(description, sizeof(description), "a stranger waits little beside %s",
			 loads[i].what);
		ktap_result(holds_up_nobody(&loads[i]), description);
	}
	ktap_result(counts_return_to(&before), "no object is left");
	actor_kill(&spinner);
	rmdir(GROUP);
	unlink(DOMAIN_FILE);
	unlink(STRANGERS_FILE);
	unlink(STRANGERS_FILE ".other");
	unlink(HOLDERS_FILE);
	unlink(STORM_FILE);
	return ktap_end();
}
