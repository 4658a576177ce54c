// SPDX-License-Identifier: GPL-2.0
/*
 * Every event that the driver reports of a QP reaches every process that is
 * registered with it, once, and no other process. The modelled adapter raises
 * them: some of them are hard to provoke with an XRC target QP.
 *
 * tags: vmlx4 long-vmlx4 vmlx5 traced
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"
#include "adapter.h"

#define DOMAIN_FILE "/tmp/fan_out"

enum {
	MEMBERS = 2,
	REPEATED = 200,
	COMMAND_US = 2000000,	/* longer than it takes, on most hosts, to raise an event */
	LONGEST_US = 16000000,	/* for which the drivers wait */
	SIZE = sizeof(struct xrc_rcv_record),
};

/* MLX4_EVENT_TYPE_... and MLX5_EVENT_TYPE_... of QPs, with the event types of verbs. */
static const struct kind {
	const char *name;
	uint32_t type;
} kinds[] = {
	{ "path_mig", IBV_EVENT_PATH_MIG },
	{ "comm_est", IBV_EVENT_COMM_EST },
	{ "sq_drained", IBV_EVENT_SQ_DRAINED },
	{ "wq_catas_error", IBV_EVENT_QP_FATAL },
	{ "path_mig_failed", IBV_EVENT_PATH_MIG_ERR },
	{ "wq_inval_req_error", IBV_EVENT_QP_REQ_ERR },
	{ "wq_access_error", IBV_EVENT_QP_ACCESS_ERR },
	{ "srq_qp_last_wqe", IBV_EVENT_QP_LAST_WQE_REACHED },
};

enum { KINDS = ARRAY_SIZE(kinds) };

/* Members 0 and 1 are registered, the bystander with another QP of the domain. */
static struct actor creator, members[MEMBERS], bystander;
static struct member_info *mc, *mm[MEMBERS], *mb;

/* The next record that a member has to read. */
static struct expectation {
	uint32_t type, count;
} *expected;

/* ---- acts ---- */

static int read_expected_records(void *argument)
{
	struct member_info *member_info = argument;
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };
	static uint64_t totals[64];	/* of the process, by type */
	uint64_t *total = &totals[expected->type], end = *total + expected->count;
	struct xrc_rcv_record record;

	/* While they are read they may come as several records; of one event there is one. */
	while (*total < end) {
		CHECK(poll(&ready, 1, PATIENCE_MS) == 1 && ready.revents == POLLIN);
		CHECK(read(member.channel, &record, SIZE) == SIZE);
		CHECK(record.type == expected->type && record.qp_num == member_info->qp_num);
		CHECK(record.serial == member_info->serial && record.count > *total);
		*total = record.count;
	}
	CHECK(*total == end);
	return 0;
}

static int read_nothing(void *argument)
{
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };

	(void)argument;
	return poll(&ready, 1, 200) ? -EBADMSG : 0;
}

static int knows_these_events_only(void *argument)
{
	struct xrc_rcv_caps caps;
	uint64_t types = 1ull << XRC_RCV_EVENT_QP_ADDED | 1ull << XRC_RCV_EVENT_QP_GONE;
	unsigned int i;

	(void)argument;
	for (i = 0; i < KINDS; i++)
		types |= 1ull << kinds[i].type;
	CHECK(!rcv_caps(member.node.context->cmd_fd, &caps));
	CHECK(caps.event_types == types);
	return 0;
}

static int query(void *argument)
{
	struct member_info *member_info = argument;

	return rcv_query(member.domain, member_info->qp_num, NULL, NULL);
}

static int modify_to_rts(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
	};

	return rcv_modify(member.domain, member_info->qp_num, &attr);
}

static int modify_to_reset(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE,
		.qp_state = IBV_QPS_RESET,
	};

	return rcv_modify(member.domain, member_info->qp_num, &attr);
}

/* ---- scenarios ---- */

static bool all_read(uint32_t type, uint32_t count)
{
	bool right = true;
	unsigned int i;

	*expected = (struct expectation) { type, count };
	for (i = 0; i < MEMBERS; i++)
		actor_begin(&members[i], read_expected_records, mm[i]);
	for (i = 0; i < MEMBERS; i++)
		right &= succeeded("a registered process", actor_wait(&members[i]));
	return right;
}

static bool no_process_reads(void)
{
	bool right = true;
	unsigned int i;

	for (i = 0; i < MEMBERS; i++)
		actor_begin(&members[i], read_nothing, NULL);
	actor_begin(&creator, read_nothing, NULL);
	actor_begin(&bystander, read_nothing, NULL);
	for (i = 0; i < MEMBERS; i++)
		right &= succeeded("a registered process", actor_wait(&members[i]));
	right &= succeeded("the creator", actor_wait(&creator));
	return right & succeeded("the bystander", actor_wait(&bystander));
}

static bool fanned_out(const struct kind *kind)
{
	adapter_event(kind->name, mc->qp_num, 1);
	return all_read(kind->type, 1) & no_process_reads();
}

/* No more than the driver's queue of events holds. */
static bool all_counted(void)
{
	bool right = true;
	unsigned int i;

	for (i = 0; i < KINDS; i++) {
		adapter_event(kinds[i].name, mc->qp_num, REPEATED);
		right &= all_read(kinds[i].type, REPEATED);
	}
	return right & no_process_reads();
}

/* An unread event of a QP is not another one's, and is dropped with its registration. */
static bool of_the_other_qp(void)
{
	adapter_event("wq_access_error", mb->qp_num, 1);
	*expected = (struct expectation) { IBV_EVENT_QP_ACCESS_ERR, 1 };
	return DO(bystander, read_expected_records, mb) & no_process_reads();
}

static bool is_listed_in(const char *state)
{
	char words[64];

	snprintf(words, sizeof(words), "qpn=%#x state=%s", mb->qp_num, state);
	return count_listed_with("qps", words) == 1;
}

/* Whether the event of breaks_during() came before the end of its command. */
static bool in_time;

/* While the device executes a command on a QP, an event reports that the QP is broken. */
static bool breaks_during(act *call, const char *command, unsigned int us, const char *state)
{
	bool right = DO(bystander, query, mb) && !is_listed_in("ERR");

	adapter_reset_counts();
	adapter_latency_of(command, us);
	actor_begin(&bystander, call, mb);
	while (!adapter_count("max_commands_in_flight"))
		usleep(1000);
	adapter_event("wq_catas_error", mb->qp_num, 1);
	in_time = !adapter_commands(command);
	right &= succeeded(command, actor_wait(&bystander)) && adapter_commands(command) == 1;
	adapter_clear();
	*expected = (struct expectation) { IBV_EVENT_QP_FATAL, 1 };
	return right & DO(bystander, read_expected_records, mb) & is_listed_in(state);
}

/* The state that the command returns is older than the event. */
static bool stays_broken(act *call, const char *command)
{
	return breaks_during(call, command, COMMAND_US, "ERR");
}

/*
 * A QP in RESET has left ERR, whenever it came there. An event that a busy host raises after the
 * command says that the QP came there again.
 */
static bool is_reset(void)
{
	unsigned int us;
	bool right;

	for (us = COMMAND_US; us <= LONGEST_US; us *= 2) {
		right = breaks_during(modify_to_reset, "2RST_QP", us, "RESET");
		if (in_time)
			return right;
		ktap_note("the event came after the command, which took %u ms", us / 1000);
	}
	return false;
}

static bool leaves_nothing(const struct counts *before)
{
	bool right = true;
	unsigned int i;

	for (i = 0; i < KINDS; i++)
		adapter_event(kinds[i].name, mc->qp_num, 1);
	for (i = 0; i < MEMBERS; i++) {
		right &= DO(members[i], member_unreg, NULL) & DO(members[i], read_nothing, NULL);
		actor_exit(&members[i]);
	}
	actor_exit(&creator);
	actor_exit(&bystander);
	return right & counts_return_to(before);
}

static bool prepared(void)
{
	struct path *nobody = share(sizeof(*nobody));
	bool right = true;
	unsigned int i;

	expected = share(sizeof(*expected));
	mc = member_info_new(DOMAIN_FILE, 0, 0);
	mb = member_info_new(DOMAIN_FILE, 0, 0);
	mc->wants_events = mb->wants_events = true;
	mc->sender = mb->sender = nobody;
	actor_start(&creator);
	actor_start(&bystander);
	right &= DO(creator, member_join, mc) && DO(bystander, member_join, mb);
	nobody->lid = mc->path.lid;
	right = right && DO(creator, member_alloc_connected, mc) &&
		DO(bystander, member_alloc_connected, mb);
	for (i = 0; i < MEMBERS; i++) {
		mm[i] = member_info_new(DOMAIN_FILE, 0, 0);
		mm[i]->wants_events = true;
		mm[i]->qp_num = mc->qp_num;
		mm[i]->serial = mc->serial;
		actor_start(&members[i]);
		right = right && DO(members[i], member_join, mm[i]) &&
			DO(members[i], member_reg, mm[i]);
	}
	/* From here on only the kernel uses the QP. */
	return right && DO(creator, member_unreg, NULL);
}

int main(void)
{
	struct counts before;
	char text[96];
	unsigned int i;

	adapter_or_skip("raising events");
	ktap_start("every event of a receive QP", KINDS + 8);
	before = count_objects();
	ktap_result(prepared(), "two processes are registered with a QP");
	ktap_result(DO(creator, knows_these_events_only, NULL), "the device reports no other events");
	for (i = 0; i < KINDS; i++) {
		snprintf(text, sizeof(text), "%s is delivered once to each registration and to no other",
			 kinds[i].name);
		ktap_result(fanned_out(&kinds[i]), text);
	}
	ktap_result(all_counted(), "hundreds of each event are counted exactly");
	ktap_result(of_the_other_qp(), "an event of another QP is delivered to its registrations only");
	ktap_result(stays_broken(query, "QUERY_QP"),
		    "debugfs shows ERR after an event during a QUERY");
	ktap_result(stays_broken(modify_to_rts, "RTR2RTS_QP"),
		    "debugfs shows ERR after an event during a MODIFY");
	ktap_result(is_reset(), "debugfs shows RESET after an event during a MODIFY to RESET");
	ktap_result(leaves_nothing(&before), "unread events are dropped with their registrations");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
