// SPDX-License-Identifier: GPL-2.0
/*
 * Every firmware command of every call fails once: the first, the second, and so
 * on until the call needs no more of them, and with one status after the other.
 * Each time the driver's error is returned, the QP is unchanged, and the failed
 * call has left nothing, in the module or in the device.
 *
 * Then, on mlx4, the commands that the driver cannot let fail, because a device that does not
 * release a QP has to be reset: the QP is destroyed all the same, and after the
 * reset the device has receive QPs again. mlx5_ib only logs such a failure.
 *
 * tags: vmlx4 long-vmlx4 vmlx5 traced
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"
#include "adapter.h"

#define DOMAIN_FILE "/tmp/steps"

enum {
	LIMIT = 64,		/* no call takes so many commands */
	PAGE = 1024,		/* QPs whose contexts share a page of the device's memory */
	CROWD = 20,
	ATTEMPTS = 10,
};

enum { STATUSES = 6 };

/* The statuses of a command, and the driver's errno for each. */
static const struct status {
	const char *name;
	int result;
} mlx4_statuses[STATUSES] = {
	{ "internal_err", -EIO },
	{ "bad_param", -EINVAL },
	{ "bad_sys_state", -ENXIO },
	{ "resource_busy", -EBUSY },
	{ "exceed_lim", -ENOMEM },
	{ "icm_error", -ENFILE },
}, mlx5_statuses[STATUSES] = {
	{ "int_err", -EIO },
	{ "bad_param", -EINVAL },
	{ "bad_sys_state", -EIO },
	{ "res_busy", -EBUSY },
	{ "lim", -ENOMEM },
	{ "no_res", -EAGAIN },
}, *statuses;

static bool is_mlx4(void)
{
	return driver_id() == RDMA_DRIVER_MLX4;
}

static struct registration mine;
static const struct path *silent_sender;	/* a sender that never sends */

/* ---- how a QP gets from state to state ---- */

static int modify(const struct ib_uverbs_qp_attr *attr)
{
	return rcv_modify(member.domain, mine.qp_num, attr);
}

static int to_init(void)
{
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);

	return modify(&attr);
}

static int to_rtr(void)
{
	struct ib_uverbs_qp_attr attr = attr_to_rtr(&member.node, silent_sender);

	return modify(&attr);
}

static int to_rts(void)
{
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
	};

	return modify(&attr);
}

static int load_alternate_path(void)
{
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_ALT_PATH,
		.qp_state = IBV_QPS_RTS,
		.alt_port_num = 1,
		.alt_timeout = 14,
		.alt_ah_attr = { .dlid = silent_sender->lid, .port_num = 1 },
	};

	return modify(&attr);
}

static int to_sqd(void)
{
	return rcv_to_state(member.domain, mine.qp_num, IBV_QPS_SQD);
}

static int back_to_rts(void)
{
	return rcv_to_state(member.domain, mine.qp_num, IBV_QPS_RTS);
}

static int to_error(void)
{
	return rcv_to_state(member.domain, mine.qp_num, IBV_QPS_ERR);
}

/* ---- calls ---- */

static int nothing(void)
{
	return 0;
}

/* Not NO_CHANNEL: a call that fails is not repeated. */
static int channel(void)
{
	static int channel = -1;

	if (channel < 0)
		channel = rcv_channel(member.domain);
	return channel;
}

static int alloc(void)
{
	return rcv_alloc(member.domain, 0, NULL, channel(), &mine);
}

static int alloc_in_init(void)
{
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);

	return rcv_alloc(member.domain, 0, &attr, channel(), &mine);
}

static int alloc_connected(void)
{
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, silent_sender);

	return rcv_alloc(member.domain, 0, &attr, channel(), &mine);
}

static int query(void)
{
	return rcv_query(member.domain, mine.qp_num, NULL, NULL);
}

static int list(void)
{
	struct xrc_rcv_qp_info info;
	uint32_t count = 1;
	int result = rcv_list(member.domain, mine.qp_num - 1, &info, &count, NULL);

	if (result)
		return result;
	CHECK(count == 1 && info.qp_num == mine.qp_num);
	return 0;
}

static int unreg(void)
{
	return rcv_unreg(&mine);
}

static int in_init(void) { return alloc() ?: to_init(); }
static int in_rtr(void) { return in_init() ?: to_rtr(); }
static int in_rts(void) { return in_rtr() ?: to_rts(); }
static int in_sqd(void) { return in_rts() ?: to_sqd(); }

/*
 * The driver lends the device memory for contexts by the page: here for the next QP, as its
 * number is the first of one. All that come until the end are in that page, too.
 */
static int at_the_end_of_a_page(void)
{
	static bool there;

	while (!there) {
		int result = alloc();

		if (result)
			return result;
		there = mine.qp_num % PAGE == PAGE - 1;
	}
	return 0;
}

/* Instead of a state: */
enum { NO_QP = -1 };

static const struct call_ {
	const char *name;
	int (*prepare)(void);
	int (*call)(void);
	const char *command;		/* the last that it needs */
	int state;			/* of the QP before, and after a failure */
} calls[] = {
	{ "ALLOC in INIT", nothing, alloc_in_init, "RST2INIT_QP", NO_QP },
	{ "ALLOC in RTR", nothing, alloc_connected, "INIT2RTR_QP", NO_QP },
	{ "MODIFY to INIT", alloc, to_init, "RST2INIT_QP", IBV_QPS_RESET },
	{ "MODIFY in INIT", in_init, to_init, "INIT2INIT_QP", IBV_QPS_INIT },
	{ "MODIFY to RTR", in_init, to_rtr, "INIT2RTR_QP", IBV_QPS_INIT },
	{ "MODIFY to RTS", in_rtr, to_rts, "RTR2RTS_QP", IBV_QPS_RTR },
	{ "MODIFY of the alternate path", in_rts, load_alternate_path, "RTS2RTS_QP", IBV_QPS_RTS },
	{ "MODIFY to ERR", in_rtr, to_error, "2ERR_QP", IBV_QPS_RTR },
	{ "QUERY", in_rtr, query, "QUERY_QP", IBV_QPS_RTR },
	{ "QUERY_DOMAIN", in_rtr, list, "QUERY_QP", IBV_QPS_RTR },
	/* These need commands that mlx5_ib does not give. */
	{ "MODIFY to SQD", in_rts, to_sqd, "RTS2SQD_QP", IBV_QPS_RTS },
	{ "MODIFY from SQD", in_sqd, back_to_rts, "SQD2RTS_QP", IBV_QPS_SQD },
	{ "ALLOC in INIT that takes the device's memory", at_the_end_of_a_page, alloc_in_init,
	  "RST2INIT_QP", NO_QP },
};

enum { MLX4_CALLS = ARRAY_SIZE(calls), MLX5_CALLS = MLX4_CALLS - 3 };

/* ---- the sweep ---- */

/* Some failures mlx4_ib reports in words of its own. */
static int expected(const char *command, int result)
{
	if (!is_mlx4())
		return result;
	if (!strcmp(command, "MAP_ICM"))
		return -ENOMEM;
	return strcmp(command, "QUERY_QP") ? result : -EINVAL;
}

static uint32_t total(void)
{
	uint32_t count = 0, total = 0;

	return rcv_list(member.domain, 0, NULL, &count, &total) ? UINT32_MAX : total;
}

/* A reader of many QPs must not keep the device busy. */
static int debugfs_asks_nothing(void *argument)
{
	(void)argument;
	CHECK(!in_rtr());
	adapter_reset_counts();
	CHECK(count_listed("qps") == total());
	CHECK(!adapter_commands("QUERY_QP"));
	CHECK(!query() && adapter_commands("QUERY_QP") == 1);
	return unreg();
}

static int state(void)
{
	struct xrc_rcv_qp_info info;

	return rcv_query(member.domain, mine.qp_num, NULL, &info) ?: (int)info.state;
}

/* Command SKIP of the call fails: its name is COMMAND, "" if the call has not so many. */
static int one_fails(const struct call_ *call, unsigned int status, unsigned int skip,
		     char *command, size_t size)
{
	int result;

	adapter_reset_counts();
	adapter_fail(statuses[status].name, skip, 1);
	result = call->call();
	adapter_clear();
	snprintf(command, size, "%s", adapter_failed());
	return result;
}

static int sweep(const struct call_ *call, unsigned int status)
{
	unsigned long pages, qps;
	bool reached = false;
	char command[64];
	unsigned int skip;
	uint32_t others;
	int result;

	CHECK(!call->prepare());
	pages = adapter_count("icm_pages");
	qps = adapter_qps();
	others = total();
	for (skip = 0; skip < LIMIT; skip++) {
		result = one_fails(call, status, skip, command, sizeof(command));
		if (!command[0])
			break;
		reached = !strcmp(command, call->command);
		if (!status)
			ktap_note("%s, command %u: %s", call->name, skip + 1, command);
		if (result != expected(command, statuses[status].result)) {
			warnx("%s: %s fails with %s: %s", call->name, command,
			      statuses[status].name, strerror(-result));
			return -EBADMSG;
		}
		CHECK(total() == others);
		CHECK(adapter_qps() == qps && adapter_count("icm_pages") == pages);
		CHECK(call->state == NO_QP || state() == call->state);
	}
	/* All commands succeeded: the call succeeds. */
	CHECK(!result && reached);
	CHECK(call->prepare != at_the_end_of_a_page || skip > 1);
	CHECK(total() == others + (call->state == NO_QP));
	return rcv_unreg(&mine);
}

static int sweep_all(void *argument)
{
	const struct call_ *call = &calls[*(unsigned int *)argument];
	unsigned int status;
	int result;

	for (status = 0; status < STATUSES; status++) {
		result = sweep(call, status);
		if (result)
			return result;
	}
	return 0;
}

/* ---- attributes that a QP of a process must not have ---- */

/*
 * The SRQs are the processes': with the reserved L_Key, their receives could name any memory.
 * mlx5_ib enables it in the QP's context, for mainline's target QPs as well: of these, too, it sees
 * the ib_qp without a uobject. The context of an XRC SRQ has a bit for the key there, which is 0.
 */
static int has_no_reserved_key(void *argument)
{
	static int (*const ways[])(void) = { in_init, in_rtr, in_rts, alloc_in_init, alloc_connected };
	struct ibv_qp *mainlines = node_create_target(&member.node, member.xrcd);
	unsigned int i;
	bool enabled;

	(void)argument;
	qp_connect(&member.node, mainlines, silent_sender);
	enabled = adapter_lets_use_all_memory(mainlines->qp_num);
	CHECK(!enabled || !is_mlx4());
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		CHECK(!ways[i]());
		CHECK(adapter_lets_use_all_memory(mine.qp_num) == enabled);
		CHECK(!unreg());
	}
	return -ibv_destroy_qp(mainlines);
}

/* ---- failures that reset the device ---- */

/* The last registration's end; then the device is lost, and later calls change nothing. */
static int last_one_out(void *argument)
{
	struct registration kept;
	int result;

	(void)argument;
	CHECK(!in_rtr());
	kept = mine;
	CHECK(!in_rtr());
	adapter_fail("bad_qp_state", 0, 1);
	CHECK(!unreg());
	adapter_clear();
	CHECK(total() == 1);
	mine = kept;
	CHECK(alloc_in_init() == -EIO && total() == 1);
	mine = kept;
	result = to_error();
	CHECK(result == -EIO);
	CHECK(!unreg() && total() == 0);
	return 0;
}

/* The second step fails, and then its undoing. */
static int undoing(void *argument)
{
	(void)argument;
	adapter_fail("exceed_lim", 1, ALL_FAIL);
	CHECK(alloc_connected() == -ENOMEM);
	adapter_clear();
	CHECK(total() == 0);
	return 0;
}

static int one_of_a_crowd(void *argument)
{
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, silent_sender);
	unsigned int i;

	(void)argument;
	for (i = 0; i < CROWD; i++)
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, &attr, NO_CHANNEL,
				 &mine) && !unreg());
	adapter_fail("bad_res_state", CROWD / 2, 1);
	CHECK(!ibv_close_xrcd(member.xrcd));
	adapter_clear();
	return 0;
}

static const struct fatality {
	const char *name;
	act *act;
} fatalities[] = {
	{ "a QP whose last registration is dropped", last_one_out },
	{ "a QP that could not be connected", undoing },
	{ "a QP of a domain that is closed", one_of_a_crowd },
};

enum { FATALITIES = ARRAY_SIZE(fatalities) };

/* A process that does not use the QP gets the event. */
static int gets_the_event_of_the_reset(void *argument)
{
	struct member_info *member_info = argument;
	struct xrc_rcv_record event;

	CHECK(read(member.channel, &event, sizeof(event)) == sizeof(event));
	CHECK(event.type == XRC_RCV_EVENT_QP_GONE && event.qp_num == member_info->qp_num);
	CHECK(read(member.channel, &event, sizeof(event)) == -1 && errno == EIO);
	return 0;
}

static bool restarted(int log)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;

	while (!log_count(log, "mlx4_restart_one was ended, ret=0")) {
		if (now_ns() > end)
			return false;
		usleep(50000);
	}
	return true;
}

static bool works(void)
{
	struct member_info *member_info = member_info_new(DOMAIN_FILE, 0, 0);
	struct actor fresh;
	bool right;

	actor_start(&fresh);
	member_info->sender = silent_sender;
	right = DO(fresh, member_join, member_info) &&
		DO(fresh, member_alloc_connected, member_info) && DO(fresh, member_unreg, NULL);
	actor_exit(&fresh);
	return right;
}

/*
 * The driver notices that the device is lost when it polls, every five seconds, and then takes it
 * from the processes. If it has done so while the villain made its calls, as on a busy host, their
 * results are those of a removed device, and say nothing: *is_late.
 */
static bool reset_once(const struct fatality *fatality, bool *is_late)
{
	struct member_info *mv = member_info_new(DOMAIN_FILE, 0, 0);
	struct member_info *mo = member_info_new(DOMAIN_FILE ".other", 0, 0);
	int polls = log_open(), restarts = log_open();
	bool right, is_reset, polled;
	struct actor villain, other;

	mo->wants_events = true;
	mo->sender = silent_sender;
	actor_start(&villain);
	actor_start(&other);
	is_reset = DO(villain, member_join, mv) && DO(other, member_join, mo) &&
		   DO(other, member_alloc_connected, mo);
	actor_begin(&other, gets_the_event_of_the_reset, mo);
	right = is_reset && DO(villain, fatality->act, NULL);
	polled = log_count(polls, "Internal error mark was detected on device");
	adapter_clear();
	/* Also when a call was wrong: what comes next needs the device. */
	is_reset = is_reset && restarted(restarts) &&
		   succeeded("another process", actor_wait(&other));
	*is_late = is_reset && polled && !right;
	actor_exit(&villain);
	actor_kill(&other);
	close(polls);
	close(restarts);
	return right && is_reset;
}

static bool reset_by(const struct fatality *fatality, const struct counts *before,
		     unsigned long qps)
{
	unsigned int attempt;
	bool right, is_late;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		right = reset_once(fatality, &is_late);
		if (!is_late)
			break;
		ktap_note("the driver polled before all calls were made");
	}
	return right && works() && adapter_qps() == qps && counts_return_to(before);
}

int main(void)
{
	struct member_info *member_info;
	unsigned int *index, i, count, fatal;
	struct counts before;
	struct path *peer;
	unsigned long qps;
	struct actor a;
	char text[128];

	adapter_or_skip("commands that fail");
	statuses = is_mlx4() ? mlx4_statuses : mlx5_statuses;
	count = is_mlx4() ? MLX4_CALLS : MLX5_CALLS;
	fatal = is_mlx4() ? FATALITIES : 0;
	ktap_start("every firmware command fails once", count + fatal + 3);
	before = count_objects();
	qps = adapter_qps();
	silent_sender = peer = share(sizeof(*peer));
	index = share(sizeof(*index));
	member_info = member_info_new(DOMAIN_FILE, 0, 0);
	actor_start(&a);
	DO(a, member_join, member_info);
	*peer = (struct path) { .lid = member_info->path.lid, .qp_num = 0x40 };
	for (i = 0; i < count; i++) {
		*index = i;
		snprintf(text, sizeof(text), "%s fails with each of its commands and leaves nothing",
			 calls[i].name);
		ktap_result(DO(a, sweep_all, index), text);
	}
	ktap_result(DO(a, has_no_reserved_key, NULL),
		    is_mlx4() ? "no QP may use the reserved L_Key" :
				"no QP may use the reserved L_Key if mainline's may not");
	ktap_result(DO(a, debugfs_asks_nothing, NULL), "reading debugfs gives the device no command");
	actor_exit(&a);
	ktap_result(counts_return_to(&before) && adapter_qps() == qps,
		    "no object is left in the module and the device");
	for (i = 0; i < fatal; i++) {
		snprintf(text, sizeof(text), "%s is destroyed though the device keeps it",
			 fatalities[i].name);
		ktap_result(reset_by(&fatalities[i], &before, qps), text);
	}
	unlink(DOMAIN_FILE);
	unlink(DOMAIN_FILE ".other");
	return ktap_end();
}
