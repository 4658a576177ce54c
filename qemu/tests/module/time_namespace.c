// SPDX-License-Identifier: GPL-2.0
/*
 * Two processes read the same event, each with the time of its own clock: one is in a time
 * namespace, whose CLOCK_MONOTONIC is a day ahead.
 *
 * tags: debug stock
 */

#define _GNU_SOURCE
#include <err.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/time_namespace"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

enum {
	DAY_S = 86400,
	SIZE = sizeof(struct xrc_rcv_record),
};

static const uint64_t day_ns = DAY_S * 1000000000ull;

static struct actor inside, outside;
static struct member_info *mi, *mo;

/* ---- acts ---- */

/* The process's own. */
static uint64_t before;

static int look_at_clock(void *argument)
{
	(void)argument;
	before = now_ns();
	return 0;
}

static int is_a_day_ahead(void *argument)
{
	const uint64_t *now = argument;

	CHECK(before >= *now + day_ns);
	return 0;
}

static int break_qp(void *argument)
{
	struct member_info *member_info = argument;

	return member_to_init(member_info) ?:
	       rcv_to_state(member.domain, member_info->qp_num, IBV_QPS_ERR);
}

static int read_time(void *argument)
{
	struct member_info *member_info = argument;
	struct pollfd readable = { .fd = member.channel, .events = POLLIN };
	struct xrc_rcv_record event;

	CHECK(poll(&readable, 1, PATIENCE_MS) == 1);
	CHECK(read(member.channel, &event, SIZE) == SIZE);
	CHECK(event.qp_num == member_info->qp_num);
	CHECK(event.last_ns >= before && event.last_ns <= now_ns());
	return 0;
}

/* ---- scenarios ---- */

/* Processes that are forked afterwards are in a time namespace. */
static void enter(void)
{
	FILE *offsets;

	if (unshare(CLONE_NEWTIME))
		err(1, "no time namespace");
	offsets = fopen("/proc/self/timens_offsets", "w");
	if (!offsets || fprintf(offsets, "monotonic %d 0\n", DAY_S) < 0 || fclose(offsets))
		err(1, "/proc/self/timens_offsets");
}

static bool prepared(void)
{
	uint64_t *now = share(sizeof(*now));

	mi = member_info_new(DOMAIN_FILE, 0, 0);
	mo = member_info_new(DOMAIN_FILE, 0, 0);
	mi->wants_events = mo->wants_events = true;
	*now = now_ns();
	actor_start(&outside);
	enter();
	actor_start(&inside);
	if (!DO(inside, look_at_clock, NULL) || !DO(inside, is_a_day_ahead, now) ||
	    !DO(inside, member_join, mi) || !DO(inside, member_alloc, mi))
		return false;
	mo->qp_num = mi->qp_num;
	return DO(outside, member_join, mo) && DO(outside, member_reg, mo);
}

int main(void)
{
	bool broken;

	ktap_start("events in a time namespace", 3);
	ktap_result(prepared(), "processes in two time namespaces are registered with a QP");
	broken = DO(inside, look_at_clock, NULL) && DO(outside, look_at_clock, NULL) &&
		DO(inside, break_qp, mi);
	ktap_result(broken && DO(outside, read_time, mo),
		    "outside, the time of an event is that of the clock outside");
	ktap_result(broken && DO(inside, read_time, mi),
		    "inside, the time of an event is that of the clock inside");
	actor_exit(&inside);
	actor_exit(&outside);
	unlink(DOMAIN_FILE);
	return ktap_end();
}
