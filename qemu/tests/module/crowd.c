// SPDX-License-Identifier: GPL-2.0
/*
 * A QP with more registrations than are signalled in its handler. Each gets each event that
 * happened while it was registered, once, and none that happened before; nothing after UNREG; and
 * QP_GONE after all else, though the QP is destroyed while a worker signals another event.
 *
 * tags: debug stock traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/crowd"

enum {
	MANY = 1000,
	FEWER = 100,		/* on the debug kernel */
	GUESTS = 4,		/* threads that register and give up again */
	ERRORS = 300,		/* at least; and until some guests have come and gone */
	QUIET_MS = 300,
};

static struct one {
	struct file file;
	struct registration registration;
	int channel;
	uint64_t total;		/* of the last record, or when it was registered */
	unsigned int events;
} *steady, guests[GUESTS];

static unsigned int count;
static uint32_t qp_num;
static struct ib_uverbs_qp_attr to_init;

/* Errors that have begun, and that the provider has reported. */
static atomic_uint begun, happened;
static atomic_bool done;
static atomic_uint early, late, visits;

static void one_open(struct one *one)
{
	file_open(&one->file, DOMAIN_FILE);
	one->channel = rcv_channel(one->file.domain);
	if (one->channel < 0 || fcntl(one->channel, F_SETFL, O_NONBLOCK))
		errx(1, "no event channel");
}

/* Returns the number of errors that it reads now; all records are of that kind. */
static unsigned int one_read(struct one *one)
{
	struct xrc_rcv_record record;
	unsigned int errors = 0;

	while (read(one->channel, &record, sizeof(record)) == sizeof(record)) {
		if (record.type != IBV_EVENT_QP_LAST_WQE_REACHED)
			errx(1, "a record of type %u", record.type);
		errors += record.count - one->total;
		one->total = record.count;
	}
	return errors;
}

static bool error_happens(void)
{
	struct pollfd ready = { .fd = steady[0].channel, .events = POLLIN };
	struct domain domain = steady[0].file.domain;

	atomic_fetch_add(&begun, 1);
	if (rcv_modify(domain, qp_num, &to_init) ||
	    rcv_to_state(domain, qp_num, IBV_QPS_ERR))
		return false;
	/* That the first has it, while others wait for it, says that it happened. */
	if (poll(&ready, 1, PATIENCE_MS) != 1)
		return false;
	steady[0].events += one_read(&steady[0]);
	atomic_fetch_add(&happened, 1);
	return !rcv_to_state(domain, qp_num, IBV_QPS_RESET);
}

/* Registers and unregisters. */
static void *visit(void *argument)
{
	struct one *guest = argument;
	unsigned int before, errors;
	struct xrc_rcv_reg_info info;

	while (!done) {
		before = happened;
		if (rcv_reg_info(guest->file.domain, qp_num, guest->channel, &info))
			errx(1, "a guest cannot register");
		guest->total = info.counts[IBV_EVENT_QP_LAST_WQE_REACHED];
		if (guest->total < before)
			errx(1, "%" PRIu64 " errors in total, after %u", guest->total, before);
		usleep(rand() % 3000);
		errors = one_read(guest);
		/* Not more than began since: none from before. */
		if (errors > begun - before)
			atomic_fetch_add(&early, 1);
		if (rcv_unreg_many(guest->file.domain.uverbs_fd, guest->channel, &qp_num, 1, NULL))
			errx(1, "a guest cannot give its registration up");
		usleep(rand() % 1000);
		if (one_read(guest))
			atomic_fetch_add(&late, 1);
		atomic_fetch_add(&visits, 1);
	}
	return NULL;
}

/* Whether each of the steady ones reads so many, and then nothing more. */
static bool all_read(unsigned int errors)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	unsigned int i, complete = 0;

	while (complete < count && now_ns() < end) {
		complete = 0;
		for (i = 0; i < count; i++) {
			steady[i].events += one_read(&steady[i]);
			complete += steady[i].events == errors;
		}
	}
	usleep(QUIET_MS * 1000);
	for (i = 0; i < count; i++)
		complete -= one_read(&steady[i]) != 0;
	if (complete != count)
		ktap_note("%u of %u read %u errors", complete, count, errors);
	return complete == count;
}

static bool each_gets_the_events_meanwhile(void)
{
	pthread_t threads[GUESTS];
	bool right = true;
	unsigned int i;

	for (i = 0; i < GUESTS; i++)
		if (pthread_create(&threads[i], NULL, visit, &guests[i]))
			errx(1, "no thread");
	for (i = 0; right && (i < ERRORS || visits <= GUESTS); i++)
		right = error_happens();
	done = true;
	for (i = 0; i < GUESTS; i++)
		pthread_join(threads[i], NULL);
	ktap_note("%u errors, %u registrations, %u more came and went; %u got earlier errors, %u later ones",
		  happened, count, visits, early, late);
	return right && !early && !late && all_read(happened);
}

/* Reads COUNT events, which may come one after the other. */
static bool read_events(int channel, struct xrc_rcv_record *events, size_t count)
{
	struct pollfd ready = { .fd = channel, .events = POLLIN };
	size_t got = 0;
	ssize_t size;

	while (got < count) {
		if (poll(&ready, 1, PATIENCE_MS) != 1)
			return false;
		size = read(channel, events + got, (count - got) * sizeof(*events));
		if (size < (ssize_t)sizeof(*events))
			return false;
		got += size / sizeof(*events);
	}
	return true;
}

/* The last close of the domain destroys the QP just after an error. */
static bool gone_is_last(void)
{
	struct pollfd ready = { .fd = steady[0].channel, .events = POLLIN };
	struct xrc_rcv_record events[2];
	unsigned int i, right = 0;

	if (rcv_modify(steady[0].file.domain, qp_num, &to_init) ||
	    rcv_to_state(steady[0].file.domain, qp_num, IBV_QPS_ERR) ||
	    poll(&ready, 1, PATIENCE_MS) != 1)
		return false;
	for (i = 0; i < GUESTS; i++)
		file_close(&guests[i].file);
	for (i = 0; i < count; i++)
		if (ibv_close_xrcd(steady[i].file.xrcd))
			return false;
	for (i = 0; i < count; i++) {
		right += read_events(steady[i].channel, events, 2) &&
			 events[0].type == IBV_EVENT_QP_LAST_WQE_REACHED &&
			 events[0].count == steady[i].total + 1 &&
			 events[1].type == XRC_RCV_EVENT_QP_GONE && events[1].count == 1 &&
			 !poll(&(struct pollfd){ .fd = steady[i].channel, .events = POLLIN }, 1, 0);
	}
	if (right != count)
		ktap_note("%u of %u read the error, then QP_GONE", right, count);
	return right == count && !qp_is_shown(qp_num);
}

int main(void)
{
	static const struct rlimit files = { 16 * MANY, 16 * MANY };
	unsigned int i;

	if (setrlimit(RLIMIT_NOFILE, &files))
		err(1, "setrlimit");
	ktap_start("events of a QP with many registrations", 3);
	count = memory_is_checked() ? FEWER : MANY;
	node_enter("right");
	steady = calloc(count, sizeof(*steady));
	if (!steady)
		err(1, "calloc");
	for (i = 0; i < count; i++)
		one_open(&steady[i]);
	for (i = 0; i < GUESTS; i++)
		one_open(&guests[i]);
	to_init = attr_to_init(&steady[0].file.node);
	if (rcv_alloc(steady[0].file.domain, 0, NULL, steady[0].channel, &steady[0].registration))
		errx(1, "no receive QP");
	qp_num = steady[0].registration.qp_num;
	for (i = 1; i < count; i++)
		if (rcv_reg(steady[i].file.domain, qp_num, steady[i].channel,
			    &steady[i].registration))
			errx(1, "registration %u", i);

	ktap_result(each_gets_the_events_meanwhile(),
		    "each registration gets the events of its time once");
	ktap_result(gone_is_last(),
		    "QP_GONE is the last event of each registration, right after an error");
	for (i = 0; i < count; i++) {
		rcv_unreg(&steady[i].registration);
		close(steady[i].channel);
		close(steady[i].file.domain.uverbs_fd);
	}
	ktap_result(!qp_is_shown(qp_num), "the QP is destroyed");
	return ktap_end();
}
