// SPDX-License-Identifier: GPL-2.0
/*
 * stress [-t SECONDS] [-s SEED]
 *
 * Sixteen processes do everything to the receive QPs of eight domains at once,
 * in any order: create, register, modify into errors, list, read, give up,
 * destroy, close, exit. Meanwhile some are killed, and the device is taken away
 * and brought back, each after a number of calls: killed by a clock, processes
 * of a slow host would not live until their first QP. No call may return an
 * undocumented error; at the end all counts are as before. KASAN and lockdep
 * report to the kernel's log, which the lab reads.
 *
 * tags: races traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

enum {
	PROCESSES = 16,
	DOMAINS = 8,
	HELD = 8,		/* registrations a process remembers */
	SECONDS = 30,
	LONG_SECONDS = 600,
	REMOVAL_S = 10,		/* between two removals, which take time themselves */
	REMOVAL_CALLS = 100,
	KILL_MS = 150,
	KILL_CALLS = 8,		/* a process makes 16 times as many before it is killed */
};

/* Shared; counted by all. */
static struct {
	atomic_uint calls, refused, exits, gone, events;
	atomic_int unexpected, failed;
	atomic_uint where;
} *tally;

static uint64_t state;

static uint64_t dice(uint64_t sides)
{
	uint64_t x = state += 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return (x ^ (x >> 31)) % sides;
}

/* ---- a process ---- */

static struct worker {
	struct ibv_context *context;
	struct {
		struct ibv_xrcd *xrcd;
		struct domain domain;
		int channel;	/* 0: none */
		struct registration held[HELD];
	} domains[DOMAINS];
} worker;

/* The result of a call; the process ends if the device was removed. */
static int answer(int result, unsigned int line)
{
	atomic_fetch_add(&tally->calls, 1);
	if (result >= 0)
		return result;
	switch (-result) {
	case EINVAL:
	case EBUSY:
	case ENOENT:
	case EDQUOT:
	case EAGAIN:	/* all QPs that were to be listed were destroyed */
		atomic_fetch_add(&tally->refused, 1);
		break;
	case EIO:
	case ENODEV:
		atomic_fetch_add(&tally->gone, 1);
		exit(0);
	default:
		atomic_store(&tally->unexpected, result);
		atomic_store(&tally->where, line);
	}
	return result;
}

#define ANSWER(call) answer(call, __LINE__)

static void open_device(void)
{
	struct ibv_device **list, **device;

	node_enter("right");
	list = ibv_get_device_list(NULL);
	for (device = list; list && *device; device++)
		if (!strcmp(ibv_get_device_name(*device), node_device("right")))
			worker.context = ibv_open_device(*device);
	if (!worker.context) {
		/* Between removal and return: try again, as another process. */
		usleep(200000);
		exit(0);
	}
}

/* The registrations of the one before end. */
static void open_channel(unsigned int index)
{
	if (worker.domains[index].channel)
		close(worker.domains[index].channel);
	memset(worker.domains[index].held, 0, sizeof(worker.domains[index].held));
	worker.domains[index].channel = 0;
	worker.domains[index].channel = ANSWER(rcv_channel(worker.domains[index].domain));
	fcntl(worker.domains[index].channel, F_SETFL, O_NONBLOCK);
}

static void open_domain(unsigned int index)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.oflags = O_CREAT,
	};
	char path[32];

	snprintf(path, sizeof(path), "/tmp/stress-%u", index);
	attr.fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	worker.domains[index].xrcd = ibv_open_xrcd(worker.context, &attr);
	close(attr.fd);
	if (!worker.domains[index].xrcd) {
		ANSWER(-errno);
		return;
	}
	worker.domains[index].domain = domain_of(worker.domains[index].xrcd);
	open_channel(index);
}

static void close_domain(unsigned int index)
{
	/* Registrations are no reason to stay; they are given up later or never. */
	if (!ANSWER(-ibv_close_xrcd(worker.domains[index].xrcd)))
		worker.domains[index].xrcd = NULL;
}

static uint32_t some_qp(struct domain domain)
{
	struct xrc_rcv_qp_info infos[32];
	uint32_t count = 32;

	if (ANSWER(rcv_list(domain, 0, infos, &count, NULL)) || !count)
		return dice(1 << 24);
	return infos[dice(count)].qp_num;
}

/* All channels are read: of one, few processes would live to read an event of their own. */
static void read_events(void)
{
	struct xrc_rcv_record events[16];
	unsigned int i;
	ssize_t size;

	for (i = 0; i < DOMAINS; i++) {
		if (worker.domains[i].channel <= 0)
			continue;
		size = read(worker.domains[i].channel, events, sizeof(events));
		if (size > 0)
			atomic_fetch_add(&tally->events, size / sizeof(events[0]));
		else if (errno != EAGAIN)
			ANSWER(-errno);
	}
}

static void do_something(void)
{
	unsigned int index = dice(DOMAINS);
	struct domain domain = worker.domains[index].domain;
	struct registration *slot = &worker.domains[index].held[dice(HELD)];
	struct xrc_rcv_qp_info info;
	struct ib_uverbs_qp_attr attr;
	struct node node = { .port = node_port("right") };
	int channel = worker.domains[index].channel;

	if (!worker.domains[index].xrcd) {
		open_domain(index);
		return;
	}
	switch (dice(16)) {
	case 0:
	case 1:
	case 2:
		if (slot->qp_num)
			break;
		if (ANSWER(rcv_alloc(domain, dice(3) ? 0 : XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				     channel, slot)))
			slot->qp_num = 0;
		return;
	case 3:
	case 4:
	case 5:
		if (slot->qp_num)
			break;
		if (ANSWER(rcv_reg(domain, some_qp(domain), channel, slot)))
			slot->qp_num = 0;
		return;
	case 6:
	case 7:
		attr = attr_to_init(&node);
		ANSWER(rcv_modify(domain, some_qp(domain), &attr));
		return;
	case 8:
		ANSWER(rcv_to_state(domain, some_qp(domain), IBV_QPS_ERR));
		return;
	case 9:
		ANSWER(rcv_to_state(domain, some_qp(domain), IBV_QPS_RESET));
		return;
	case 10:
		ANSWER(rcv_query(domain, some_qp(domain), &attr, &info));
		return;
	case 11:
		ANSWER(rcv_destroy_with(domain, some_qp(domain),
					dice(2) ? XRC_RCV_DESTROY_FORCE : 0));
		return;
	case 12:
	case 13:
		read_events();
		return;
	case 14:
		if (!dice(4))
			close_domain(index);
		return;
	case 15:
		if (!dice(64)) {
			open_channel(index);
		} else if (!dice(8)) {
			atomic_fetch_add(&tally->exits, 1);
			exit(0);
		}
		return;
	}
	if (slot->qp_num) {
		ANSWER(rcv_unreg(slot));
		slot->qp_num = 0;
	}
}

static pid_t start(uint64_t seed)
{
	pid_t director = getpid(), pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != director)
		_exit(1);
	setpriority(PRIO_PROCESS, 0, 0);
	state = seed;
	open_device();
	for (;;)
		do_something();
}

/* ---- all of them ---- */

static pid_t processes[PROCESSES];
static unsigned int kills;	/* that a process has died of */
static pid_t replugger;		/* while the device is removed and brought back */

/* Processes exit in the seconds that a removal takes, and some must be there to see it. */
static void replug(void)
{
	replugger = fork();
	if (replugger < 0)
		err(1, "fork");
	if (replugger)
		return;
	device_remove();
	usleep(dice(500000));
	device_add();
	_exit(0);
}

/* A process exits by itself, or is killed. */
static void note_end(int status)
{
	if (WIFSIGNALED(status) ? WTERMSIG(status) != SIGKILL : status)
		atomic_store(&tally->failed, status);
	if (WIFSIGNALED(status))
		kills++;
}

/* Any end of a process makes room for the next. */
static void restart(uint64_t *seed)
{
	unsigned int i;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == replugger) {
			if (status)
				errx(1, "the device was not removed and brought back");
			replugger = 0;
		}
		for (i = 0; i < PROCESSES; i++)
			if (processes[i] == pid) {
				note_end(status);
				processes[i] = start((*seed)++);
			}
	}
}

static void kill_all(void)
{
	unsigned int i;

	for (i = 0; i < PROCESSES; i++)
		kill(processes[i], SIGKILL);
	for (i = 0; i < PROCESSES; i++)
		waitpid(processes[i], NULL, 0);
}

static bool all_happened(unsigned int calls, unsigned int removals)
{
	return tally->calls > calls && tally->events && tally->exits && kills && removals &&
	       tally->gone;
}

int main(int argc, char **argv)
{
	unsigned int seconds = is_long_run() ? LONG_SECONDS : SECONDS, removals = 0, i;
	unsigned int killed_at = 0, removed_at = 0;	/* numbers of calls */
	uint64_t seed = 1, end, limit, removal;
	struct counts before;
	int option;

	while ((option = getopt(argc, argv, "t:s:")) != -1) {
		if (option == 't')
			seconds = strtoul(optarg, NULL, 10);
		else if (option == 's')
			seed = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	ktap_start("everything at once", 3);
	tally = share(sizeof(*tally));
	before = count_objects();
	state = seed ^ 0xd1ec704;
	ktap_note("seed %lu, %u s", seed, seconds);
	seed <<= 32;
	/* The process that kills and removes does not wait for its victims. */
	setpriority(PRIO_PROCESS, 0, -20);

	for (i = 0; i < PROCESSES; i++)
		processes[i] = start(seed++);
	end = now_ns() + seconds * 1000000000ull;
	/* A removal alone can take longer than all of it on a busy host. */
	limit = now_ns() + seconds * 1000000000ull + PATIENCE_MS * 1000000ull;
	removal = now_ns() + REMOVAL_S / 2 * 1000000000ull;
	while (replugger || (!tally->unexpected && !tally->failed &&
			     (now_ns() < end ||
			      (now_ns() < limit &&
			       !all_happened(seconds * 10, removals))))) {
		usleep(dice(2 * KILL_MS * 1000));
		restart(&seed);
		if (replugger) {
			removal = now_ns() + REMOVAL_S * 1000000000ull;
			continue;
		}
		if (tally->calls - killed_at >= KILL_CALLS) {
			kill(processes[dice(PROCESSES)], SIGKILL);
			killed_at = tally->calls;
		}
		if (now_ns() > removal && now_ns() < limit &&
		    tally->calls - removed_at >= REMOVAL_CALLS) {
			replug();
			removals++;
			removed_at = tally->calls;
		}
	}
	kill_all();

	ktap_note("%u calls, %u refused; %u events read; %u exits, %u kills, %u removals (%u processes saw one)",
		  tally->calls, tally->refused, tally->events, tally->exits, kills, removals,
		  tally->gone);
	if (tally->unexpected)
		ktap_note("stress.c:%u: %s", tally->where, strerror(-tally->unexpected));
	if (tally->failed)
		ktap_note("a process ended with status %#x", tally->failed);
	ktap_result(!tally->unexpected && !tally->failed,
		    "every call returned a documented errno");
	ktap_result(all_happened(seconds * 10, removals),
		    "calls, events, exits, kills and removals all happened");
	ktap_result(counts_return_to(&before), "no object is left");
	for (i = 0; i < DOMAINS; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/tmp/stress-%u", i);
		unlink(path);
	}
	return ktap_end();
}
