// SPDX-License-Identifier: GPL-2.0
/*
 * A peer breaks the connection with an RDMA WRITE it has no right to. Every
 * registered process reads one record of it, whichever process created the QP; a process that
 * is not registered reads nothing. While no process reads, repetition costs no memory.
 *
 * Beside it the same on the QP of mainline's own verbs: processes that joined
 * with ibv_open_qp() get no event, and this test shows it for as long as it is true.
 *
 * tags: debug stock vmlx4 long-vmlx4 vmlx5 every-kernel traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/events"

enum {
	MANY = 64,
	SIZE = 64,
	QUIET_MS = 1000,
	WARM_UP = 100,
};

/* The records that a member reads, in shared memory. */
struct account {
	struct xrc_rcv_record records[8];
	unsigned int count;
	unsigned int repetitions;	/* that repeat_error() is to make */
};

static struct actor creator, members[MANY], idler, opener, remote_actor;
static unsigned int many;		/* up to MANY */
static struct member_info *mc, *mm[MANY], *mi, *mo;
static struct account *accounts;
static struct remote *remote;
static struct traffic *traffic;
static struct delivery *delivery;
static struct write *forbidden;

/* ---- acts ---- */

/* All unread records, and further ones until none comes. Of an error, that the QP has done its last
 * comes any time later.
 */
static int read_events(void *argument)
{
	struct account *account = argument;
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };
	int timeout = PATIENCE_MS;
	ssize_t size;

	if (member.channel < 0)
		return -EBADF;
	account->count = 0;
	while (poll(&ready, 1, timeout) == 1) {
		if (ready.revents != POLLIN)
			return -EIO;
		if (account->count == 8)
			return -EOVERFLOW;
		size = read(member.channel, &account->records[account->count],
			    sizeof(account->records) -
			    account->count * sizeof(account->records[0]));
		if (size <= 0 || size % sizeof(account->records[0]))
			return -EBADMSG;
		account->count += size / sizeof(account->records[0]);
		timeout = account->records[account->count - 1].type == IBV_EVENT_QP_ACCESS_ERR ?
				  PATIENCE_MS : QUIET_MS;
	}
	return 0;
}

static int read_nothing(void *argument)
{
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };

	(void)argument;
	return poll(&ready, 1, 0) ? -EBADMSG : 0;
}

/* Round and round, without a look at the channel. When an error has happened says another
 * file of the process, which does look at its own.
 */
static struct file witness;
static int witness_channel;
static uint64_t witnessed;

static int call_witness(void *argument)
{
	struct member_info *member_info = argument;
	struct registration registration;

	file_open(&witness, member_info->domain_file);
	witness_channel = rcv_channel(witness.domain);
	return rcv_reg(witness.domain, member_info->qp_num, witness_channel, &registration);
}

static int dismiss_witness(void *argument)
{
	(void)argument;
	return -close(witness_channel) ?: file_close(&witness);
}

static int repeat_error(void *argument)
{
	const struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	struct account *account = argument;
	struct xrc_rcv_record record;
	unsigned int i;
	int result;

	for (i = 0; i < account->repetitions; i++) {
		result = rcv_modify(member.domain, member.registration.qp_num, &init);
		if (!result)
			result = rcv_to_state(member.domain, member.registration.qp_num,
					      IBV_QPS_ERR);
		CHECK(read(witness_channel, &record, sizeof(record)) == sizeof(record));
		CHECK(is_record(&record, &member.registration, IBV_EVENT_QP_LAST_WQE_REACHED,
				++witnessed));
		if (!result)
			result = rcv_to_state(member.domain, member.registration.qp_num,
					      IBV_QPS_RESET);
		if (result)
			return result;
	}
	return 0;
}

/* Mainline's verbs: a shared target QP, created by one process, opened by others. */
static struct ibv_qp *mainline_qp;

static int mainline_create(void *argument)
{
	struct member_info *member_info = argument;

	mainline_qp = node_create_target(&member.node, member.xrcd);
	member_info->qp_num = mainline_qp->qp_num;
	return 0;
}

static int mainline_open(void *argument)
{
	struct member_info *member_info = argument;
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = member_info->qp_num,
		.xrcd = member.xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	mainline_qp = ibv_open_qp(member.node.context, &attr);
	return mainline_qp ? 0 : -errno;
}

static int mainline_connect(void *argument)
{
	struct member_info *member_info = argument;
	struct path path = *member_info->sender;

	path.recv_psn = member_info->sender->send_psn;
	qp_connect(&member.node, mainline_qp, &path);
	return 0;
}

/*
 * Returns the number of QP_ACCESS_ERR events of the QP that come by mainline's way. The first may
 * come so many milliseconds after the sender knows of the error.
 */
static int mainline_events(void *argument)
{
	struct pollfd ready = { .fd = member.node.context->async_fd, .events = POLLIN };
	const int *first_ms = argument;
	struct ibv_async_event event;
	int count = 0;

	while (poll(&ready, 1, count ? QUIET_MS : *first_ms) == 1) {
		if (ibv_get_async_event(member.node.context, &event))
			return -errno;
		if (event.event_type == IBV_EVENT_QP_ACCESS_ERR &&
		    event.element.qp == mainline_qp)
			count++;
		ibv_ack_async_event(&event);
	}
	return count;
}

/* ---- scenarios ---- */

static bool message_arrives(void)
{
	*traffic = (struct traffic) {
		.srq_num = { mi->srq_num },
		.srqs = 1,
		.count = 1,
		.size = SIZE,
	};
	*delivery = (struct delivery) { traffic, 0, mc->qp_num };
	return DO(remote_actor, sender_send, traffic) && DO(idler, member_receive, delivery);
}

static bool broken_by_the_peer(void)
{
	*forbidden = (struct write) {
		.srq_num = mi->srq_num,
		.address = (uintptr_t)mi->buffers,
		.rkey = mi->rkey ^ 0x5a5a00,
	};
	return actor_do(&remote_actor, sender_write, forbidden) == -EIO &&
	       forbidden->status == IBV_WC_REM_ACCESS_ERR;
}

static bool is_event(const struct xrc_rcv_record *record, uint32_t type, uint64_t from, uint64_t to)
{
	return record->type == type && record->qp_num == mc->qp_num &&
	       record->serial == mc->serial && record->count == 1 &&
	       record->last_ns >= from && record->last_ns <= to;
}

/* The error once, and then at most that the QP has done its last. */
static bool one_error(unsigned int index, uint64_t from, uint64_t to)
{
	struct account *account = &accounts[index];
	unsigned int i;

	if (account->count && account->count <= 2 &&
	    is_event(&account->records[0], IBV_EVENT_QP_ACCESS_ERR, from, to) &&
	    (account->count == 1 ||
	     is_event(&account->records[1], IBV_EVENT_QP_LAST_WQE_REACHED, from, to)))
		return true;
	ktap_note("process %u read %u records", index, account->count);
	for (i = 0; i < account->count; i++)
		ktap_note("  type %u, total %llu, QP %#x, serial number %llu",
			  account->records[i].type, account->records[i].count,
			  account->records[i].qp_num, account->records[i].serial);
	return false;
}

static bool all_read(unsigned int count)
{
	bool right = true;
	unsigned int i;

	for (i = 0; i < count; i++)
		actor_begin(&members[i], read_events, &accounts[i]);
	for (i = 0; i < count; i++)
		right &= succeeded("reading events", actor_wait(&members[i]));
	return right;
}

/* That the connection is there is an event, too. */
static bool all_get_the_event_of_the_connection(unsigned int count)
{
	bool right = all_read(count);
	unsigned int i;

	for (i = 0; i < count; i++)
		right &= accounts[i].count == 1 &&
			 accounts[i].records[0].type == IBV_EVENT_COMM_EST;
	return right;
}

static bool all_get_the_event_of_the_error(unsigned int count, uint64_t from)
{
	bool right = all_read(count);
	uint64_t to = now_ns();
	unsigned int i;

	for (i = 0; i < count; i++)
		right &= one_error(i, from, to);
	return right;
}

/* COUNT processes are registered; the creator is not any more. */
static bool read_by(unsigned int count)
{
	unsigned int i;
	bool right;
	uint64_t from;

	right = DO(creator, member_alloc_connected, mc);
	mi->qp_num = mc->qp_num;
	for (i = 0; right && i < count; i++) {
		mm[i]->qp_num = mc->qp_num;
		right = DO(members[i], member_reg, mm[i]);
	}
	right = right && DO(creator, member_unreg, NULL);
	remote_aim(remote, mi, mc->qp_num);
	right = right && DO(remote_actor, sender_connect, remote) && message_arrives();
	right = right && all_get_the_event_of_the_connection(count);
	from = now_ns();
	right = right && broken_by_the_peer() && all_get_the_event_of_the_error(count, from);
	right &= DO(idler, read_nothing, NULL) & DO(creator, read_nothing, NULL);
	for (i = 0; i < count; i++)
		right &= DO(members[i], read_nothing, NULL) & DO(members[i], member_unreg, NULL);
	return right && !qp_is_shown(mc->qp_num);
}

#define BIT(type) (1ull << (type))

/* Many are registered, one for all events, and the others for all but COMM_EST. */
static bool asked_by(unsigned int asking)
{
	const struct xrc_rcv_record *record = accounts[asking].records;
	uint64_t from;
	unsigned int i;
	bool right;

	mc->chooses_events = true;
	mc->events = 0;
	right = DO(creator, member_open_channel, mc) && DO(creator, member_alloc_connected, mc);
	mi->qp_num = mc->qp_num;
	for (i = 0; right && i < many; i++) {
		mm[i]->qp_num = mc->qp_num;
		mm[i]->chooses_events = i != asking;
		mm[i]->events = BIT(IBV_EVENT_QP_ACCESS_ERR) | BIT(IBV_EVENT_QP_LAST_WQE_REACHED);
		right = DO(members[i], member_open_channel, mm[i]) &&
			DO(members[i], member_reg, mm[i]);
	}
	remote_aim(remote, mi, mc->qp_num);
	right = right && DO(remote_actor, sender_connect, remote);
	right = right && message_arrives() &&
		DO(members[asking], read_events, &accounts[asking]);
	for (i = 0; i < many; i++)
		right = right && (i == asking || DO(members[i], read_nothing, NULL));
	right = right && accounts[asking].count == 1 && record->type == IBV_EVENT_COMM_EST;

	/* Each gets the events of its mask, and no others. */
	from = now_ns();
	right = right && broken_by_the_peer() && all_get_the_event_of_the_error(many, from);
	right &= DO(creator, read_nothing, NULL);
	for (i = 0; i < many; i++) {
		mm[i]->chooses_events = false;
		right &= DO(members[i], member_unreg, NULL) &&
			 DO(members[i], member_open_channel, mm[i]);
	}
	mc->chooses_events = false;
	return DO(creator, member_unreg, NULL) && DO(creator, member_open_channel, mc) && right &&
	       !qp_is_shown(mc->qp_num);
}

static bool bounded(unsigned int repetitions)
{
	struct account *account = &accounts[0];
	const struct xrc_rcv_record *record = &account->records[0];
	long before, after;
	uint64_t begin;
	bool right;

	right = DO(members[0], member_alloc, mm[0]) && DO(members[0], call_witness, mm[0]);
	account->repetitions = WARM_UP;
	right = right && DO(members[0], repeat_error, account);
	before = slab_unreclaimable();
	begin = now_ns();
	account->repetitions = repetitions - WARM_UP;
	right = right && DO(members[0], repeat_error, account);
	after = slab_unreclaimable();
	right = right && DO(members[0], read_events, account);
	ktap_note("%u errors in %lu ms: %ld KiB more in slabs, %u record(s), the first says %llu times",
		  repetitions, (now_ns() - begin) / 1000000, after - before, account->count,
		  record->count);
	return DO(members[0], member_unreg, NULL) && DO(members[0], dismiss_witness, NULL) &&
	       right && after - before < slab_noise() &&
	       account->count == 1 && record->type == IBV_EVENT_QP_LAST_WQE_REACHED &&
	       record->count == repetitions && record->serial == mm[0]->serial;
}

/* The lab's kernel with hooks has upstream/core/0002, too. */
static bool openers_get_events(void)
{
	const char *kernel = getenv("LAB_KERNEL");

	return kernel && !strcmp(kernel, "hooked");
}

static bool mainline(void)
{
	static int event_ms = PATIENCE_MS, quiet_ms = QUIET_MS;
	int at_creator, at_opener;

	if (!DO(creator, mainline_create, mc))
		return false;
	mo->qp_num = mc->qp_num;
	if (!(DO(opener, mainline_open, mo) && DO(creator, mainline_connect, mc)))
		return false;
	remote_aim(remote, mi, mc->qp_num);
	if (!(DO(remote_actor, sender_connect, remote) && broken_by_the_peer()))
		return false;
	at_creator = actor_do(&creator, mainline_events, &event_ms);
	at_opener = actor_do(&opener, mainline_events, &quiet_ms);
	ktap_note("ibv_create_qp: %d event(s), ibv_open_qp: %d", at_creator, at_opener);
	return at_creator == 1 && at_opener == openers_get_events();
}

int main(void)
{
	const unsigned int counts[] = { 1, 2, memory_is_checked() && !is_long_run() ? 8 : MANY };
	/*
	 * On the debug kernel each takes many times as long; on a modelled adapter each is three
	 * commands of its firmware.
	 */
	bool slow = memory_is_checked() || device_is_modelled();
	unsigned int repetitions = slow ? 1000 : is_long_run() ? 100000 : 20000;
	struct counts before;
	bool ready = true;
	char text[96];
	unsigned int i;

	many = counts[2];
	ktap_start("events of receive QPs", 7);
	before = count_objects();
	accounts = share(many * sizeof(*accounts));
	traffic = share(sizeof(*traffic));
	delivery = share(sizeof(*delivery));
	forbidden = share(sizeof(*forbidden));
	remote = remote_new(SIZE);
	mc = member_info_new(DOMAIN_FILE, 0, 0);
	mi = member_info_new(DOMAIN_FILE, 4, SIZE);
	mo = member_info_new(DOMAIN_FILE, 0, 0);
	mc->sender = &remote->path;
	mc->wants_events = mi->wants_events = true;
	actor_start(&remote_actor);
	actor_start(&creator);
	actor_start(&idler);
	actor_start(&opener);
	ready = DO(remote_actor, sender_start, remote) & DO(creator, member_join, mc) &
		DO(idler, member_join, mi) & DO(opener, member_join, mo);
	for (i = 0; i < many; i++) {
		mm[i] = member_info_new(DOMAIN_FILE, 0, 0);
		mm[i]->wants_events = true;
		actor_start(&members[i]);
		ready &= DO(members[i], member_join, mm[i]);
	}
	if (!ready)
		errx(1, "the actors are not ready");

	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		snprintf(text, sizeof(text),
			 "an access error is delivered once to each of %u registrations", counts[i]);
		ktap_result(read_by(counts[i]), text);
	}
	snprintf(text, sizeof(text),
		 "an event wakes only the registration of %u that has it in its mask", many);
	ktap_result(asked_by(many / 2), text);
	snprintf(text, sizeof(text), "%u unread errors are one record", repetitions);
	ktap_result(bounded(repetitions), text);
	ktap_result(mainline(), openers_get_events() ?
		    "with upstream/core/0002 openers of the QP get the event, too" :
		    "in mainline only the creator gets the event, openers of the QP do not");

	for (i = 0; i < many; i++)
		actor_exit(&members[i]);
	actor_exit(&creator);
	actor_exit(&idler);
	actor_exit(&opener);
	actor_exit(&remote_actor);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
