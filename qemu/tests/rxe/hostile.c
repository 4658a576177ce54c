// SPDX-License-Identifier: GPL-2.0
/*
 * hostile [-n MUTATIONS] [-s SEED]
 *
 * Packets that no peer should send, made by hand in left, against XRC queue pairs in
 * right. The peer of those QPs does not exist, so every packet on the wire is
 * ours or an answer to us. Each scenario has an expected answer: an
 * acknowledgement, a NAK with its syndrome, or nothing; and expected effects
 * on the QP, on completions and on asynchronous events.
 *
 * Then MUTATIONS packets that started out as good ones, half of them with a
 * right ICRC. KASAN reports to the kernel's log;
 * this test checks that everything still works and can be destroyed at once.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "node.h"
#include "packet.h"

#define PEER "10.0.0.1"
#define STRANGER "10.0.0.9"

enum {
	PEER_QP = 0xbad001,	/* more than rxe ever hands out */
	FIRST_PSN = 0x1000,	/* that a QP sends */
	UNKNOWN_SRQ = 0xfffff0,
	LINK_MTU = 4200,	/* of the lab's veth pair */
	BUFFER = 16384,
	DEPTH = 32,		/* of an SRQ */
	AT_ONCE_MS = 45000,	/* below the 50 s that a leaked reference costs */

	NAK_PSN = 0x60,
	NAK_INVALID_REQUEST = 0x61,
	NAK_REMOTE_ACCESS = 0x62,
	NAK_OPERATIONAL = 0x63,
	RNR_NAK = 0x21,		/* with the timer of qp_connect() */

	IMMEDIATE = 0x1badcafe,
};

static struct node node;
static struct link link_;
static struct ibv_pd *other_pd;
static struct ibv_xrcd *domain, *foreign_domain;
static struct ibv_cq *cq, *foreign_cq;
static struct ibv_srq *srq, *second_srq, *foreign_srq, *plain_srq, *empty_srq;
static struct ibv_qp *target, *initiator, *connected;
static struct ibv_mr *mr, *other_mr;
static uint8_t buffer[BUFFER], other_buffer[BUFFER];
static uint32_t psn;		/* that the target expects next */

/* ---- the victim ---- */

static bool post(struct ibv_srq *srq, struct ibv_mr *mr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = mr->length,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)srq, .sg_list = &sge, .num_sge = 1 }, *bad;

	return !ibv_post_srq_recv(srq, &wr, &bad);
}

static void replenish(struct ibv_srq *srq, struct ibv_mr *mr)
{
	while (post(srq, mr))
		;
}

/* Empties a CQ, counts, and keeps the last completion. */
static unsigned int drain(struct ibv_cq *cq, struct ibv_wc *last)
{
	unsigned int count = 0;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		count++;
		if (last)
			*last = wc;
	}
	return count;
}

/* Takes the next asynchronous event; false if none comes in time. */
static bool next_event(unsigned int timeout_ms, struct ibv_async_event *event)
{
	struct pollfd ready = { .fd = node.context->async_fd, .events = POLLIN };

	if (poll(&ready, 1, timeout_ms) != 1 ||
	    ibv_get_async_event(node.context, event))
		return false;
	ibv_ack_async_event(event);
	return true;
}

/* rxe can still put the QP into ERR, for a packet that its worker is at: then once more. */
static void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	do {
		errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
		if (errno)
			err(1, "reset of QP %#x", qp->qp_num);
	} while (qp_state(qp) != IBV_QPS_RESET);
}

/* Connects to a QP that does not exist at an address. */
static void connect_to(struct ibv_qp *qp, const char *address)
{
	struct in_addr ipv4 = { .s_addr = inet_addr(address) };
	struct path path = {
		.gid = node.gid,
		.qp_num = PEER_QP,
		.send_psn = FIRST_PSN,
		.recv_psn = psn,
		.timeout = 0,
	};

	memcpy(path.gid.raw + 12, &ipv4, sizeof(ipv4));
	qp_connect(&node, qp, &path);
}

/* A target QP in RTR that has seen nothing, SRQs full, CQs empty. */
static void refresh(void)
{
	struct ibv_async_event event;

	reset(target);
	psn = (psn * 5 + 0x123457) & 0xffffff;
	connect_to(target, PEER);
	drain(cq, NULL);
	drain(foreign_cq, NULL);
	replenish(srq, mr);
	replenish(second_srq, mr);
	replenish(foreign_srq, mr);
	memset(buffer, 0, sizeof(buffer));
	while (next_event(0, &event))
		;
	link_flush(&link_);
}

static void set_up(void)
{
	struct ibv_srq_init_attr plain = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr rc = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	node_enter("right");
	node_open(&node, "right");
	node_enter("left");
	link_open(&link_);
	if (fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK))
		err(1, "async events");

	other_pd = ibv_alloc_pd(node.context);
	mr = ibv_reg_mr(node.pd, buffer, BUFFER, access);
	cq = ibv_create_cq(node.context, 1024, NULL, NULL, 0);
	foreign_cq = ibv_create_cq(node.context, 1024, NULL, NULL, 0);
	if (!other_pd || !mr || !cq || !foreign_cq)
		err(1, "set-up");
	other_mr = ibv_reg_mr(other_pd, other_buffer, BUFFER, access);
	if (!other_mr)
		err(1, "set-up");

	domain = node_open_domain(&node, "/tmp/hostile.domain");
	foreign_domain = node_open_domain(&node, "/tmp/hostile.foreign");
	srq = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
	second_srq = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
	/* rxe numbers SRQs of all kinds in one row: this is the next number. */
	plain_srq = ibv_create_srq(node.pd, &plain);
	foreign_srq = node_create_xrc_srq(&node, node.pd, foreign_domain, foreign_cq, DEPTH);
	empty_srq = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
	target = node_create_target(&node, domain);
	initiator = node_create_initiator(&node, cq, 8);
	connect_to(initiator, PEER);
	rc.send_cq = rc.recv_cq = cq;
	rc.srq = plain_srq;
	connected = plain_srq ? ibv_create_qp(node.pd, &rc) : NULL;
	if (!connected)
		err(1, "ordinary SRQ and RC QP");
	connect_to(connected, PEER);
	replenish(plain_srq, mr);
}

/* ---- packets ---- */

static struct packet start(uint8_t operation, uint32_t at_psn)
{
	struct packet packet = {};

	packet_start(&packet, PEER, XRC | operation, target->qp_num, at_psn);
	return packet;
}

static void go(struct packet *packet)
{
	packet_seal(packet);
	link_send(&link_, packet, 1);
}

static const uint8_t *pattern(void)
{
	static uint8_t bytes[4096];
	size_t i;

	for (i = 0; !bytes[sizeof(bytes) - 1] && i < sizeof(bytes); i++)
		bytes[i] = i * 7 + (i >> 8);
	return bytes;
}

static bool has_immediate(uint8_t operation)
{
	return operation == SEND_LAST_IMM || operation == SEND_ONLY_IMM ||
	       operation == WRITE_LAST_IMM || operation == WRITE_ONLY_IMM;
}

static void send_message(uint8_t operation, uint32_t at_psn, uint32_t srqn, size_t size)
{
	struct packet packet = start(operation, at_psn);

	packet_u32(&packet, srqn);
	if (has_immediate(operation))
		packet_u32(&packet, IMMEDIATE);
	packet_payload(&packet, pattern(), size);
	go(&packet);
}

static void rdma(uint8_t operation, uint32_t at_psn, uint32_t srqn, uint64_t address,
		 uint32_t rkey, uint32_t length, size_t size)
{
	struct packet packet = start(operation, at_psn);

	packet_u32(&packet, srqn);
	packet_u64(&packet, address);
	packet_u32(&packet, rkey);
	packet_u32(&packet, length);
	if (has_immediate(operation))
		packet_u32(&packet, IMMEDIATE);
	packet_payload(&packet, pattern(), size);
	go(&packet);
}

static void atomic(uint8_t operation, uint32_t at_psn, uint64_t address, uint32_t rkey,
		   uint64_t swap_or_add, uint64_t compare)
{
	struct packet packet = start(operation, at_psn);

	packet_u32(&packet, srq_number(srq));
	packet_u64(&packet, address);
	packet_u32(&packet, rkey);
	packet_u64(&packet, swap_or_add);
	packet_u64(&packet, compare);
	go(&packet);
}

static size_t mtu_bytes(void)
{
	return 128u << node.mtu;
}

/* ---- expected results ---- */

/* The next answer is an acknowledgement, of any number of credits. */
static bool acknowledged(uint32_t at_psn)
{
	struct answer answer;

	if (!link_answer(&link_, PEER_QP, PATIENCE_MS, &answer))
		return ktap_wrong("no answer to psn %#x", at_psn);
	if (answer.opcode != (XRC | ACKNOWLEDGE) || answer.syndrome > 0x1f ||
	    answer.psn != at_psn)
		return ktap_wrong("answer %#x, syndrome %#x, psn %#x instead of an ack of %#x",
			     answer.opcode, answer.syndrome, answer.psn, at_psn);
	return true;
}

static bool refused(int syndrome, uint32_t at_psn)
{
	struct answer answer;

	if (!link_answer(&link_, PEER_QP, PATIENCE_MS, &answer))
		return ktap_wrong("no answer, a NAK %#x was due", syndrome);
	if (answer.opcode != (XRC | ACKNOWLEDGE) || answer.syndrome != syndrome ||
	    answer.psn != at_psn)
		return ktap_wrong("answer %#x, syndrome %#x, psn %#x instead of NAK %#x, psn %#x",
			     answer.opcode, answer.syndrome, answer.psn, syndrome, at_psn);
	return true;
}

/* So many completions have come, all of them good. */
static bool completions(unsigned int expected)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	unsigned int found = 0;
	struct ibv_wc wc;

	do {
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			if (wc.status)
				return ktap_wrong("a completion: %s", ibv_wc_status_str(wc.status));
			found++;
		}
	} while (found < expected && now_ns() < end && !usleep(200));
	return found == expected || ktap_wrong("%u completions instead of %u", found, expected);
}

/* The one completion is of a receive that the message took from an SRQ in vain. */
static bool taken_in_vain(struct ibv_srq *from, enum ibv_wc_status status)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) <= 0) {
		if (now_ns() > end)
			return ktap_wrong("the receive does not complete");
		usleep(200);
	}
	if (wc.status != status || wc.qp_num != target->qp_num || wc.wr_id != (uintptr_t)from)
		return ktap_wrong("%s from QP %#x, of %s SRQ", ibv_wc_status_str(wc.status), wc.qp_num,
			     wc.wr_id == (uintptr_t)from ? "the right" : "another");
	return completions(0);
}

/* The answer to a packet can be here before the QP is in its next state. */
static bool in_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	enum ibv_qp_state found;

	do
		found = qp_state(qp);
	while (found != state && now_ns() < end);
	return found == state || ktap_wrong("QP in state %d instead of %d", found, state);
}

#define EVENT(type) (1ull << IBV_EVENT_##type)
#define QP_ERRORS (EVENT(QP_ACCESS_ERR) | EVENT(QP_REQ_ERR) | EVENT(QP_FATAL))

/*
 * The events so far, COMM_EST apart, are those of the mask (1 << type), each
 * once. They come with the answers or shortly after, errors of a QP when it
 * is in the error state.
 */
static bool events(uint64_t expected)
{
	struct ibv_async_event event;
	uint64_t missing = expected;

	while (next_event(missing ? PATIENCE_MS : 20, &event)) {
		if (event.event_type == IBV_EVENT_COMM_EST)
			continue;
		if (!(missing & 1ull << event.event_type))
			return ktap_wrong("event %s %s", ibv_event_type_str(event.event_type),
				     expected & 1ull << event.event_type ?
				     "a second time" : "was not due");
		if (1ull << event.event_type & QP_ERRORS && qp_state(event.element.qp) != IBV_QPS_ERR)
			return ktap_wrong("%s comes before the error state", ibv_event_type_str(event.event_type));
		missing &= ~(1ull << event.event_type);
	}
	return !missing || ktap_wrong("events are missing, mask %#lx", missing);
}

static bool dead(int syndrome, uint32_t at_psn, uint64_t event)
{
	bool right = refused(syndrome, at_psn);

	right &= events(event | EVENT(QP_LAST_WQE_REACHED));
	return right & in_state(target, IBV_QPS_ERR);
}

/* The same, and no receive was taken. */
static bool killed(int syndrome, uint32_t at_psn, uint64_t event)
{
	return dead(syndrome, at_psn, event) & completions(0);
}

/* The packets before were ignored: the next answer is to this good message. */
static bool ignored(void)
{
	bool right;

	send_message(SEND_ONLY, psn, srq_number(srq), 32);
	right = acknowledged(psn);
	right &= completions(1);
	right &= in_state(target, IBV_QPS_RTR);
	return right & events(0);
}

/* ---- scenarios ---- */

static bool good_message(void)
{
	struct ibv_async_event event;
	struct ibv_wc wc = {};
	bool right;

	send_message(SEND_ONLY_IMM, psn, srq_number(srq), 333);
	right = acknowledged(psn);
	if (drain(cq, &wc) != 1)
		return ktap_wrong("no completion");
	if (wc.status || wc.byte_len != 333 || wc.qp_num != target->qp_num ||
	    memcmp(buffer, pattern(), 333))
		right = ktap_wrong("%s, %u bytes from QP %#x", ibv_wc_status_str(wc.status),
			      wc.byte_len, wc.qp_num);
	if (!next_event(PATIENCE_MS, &event) || event.event_type != IBV_EVENT_COMM_EST ||
	    event.element.qp != target)
		right = ktap_wrong("no communication-established event of the target QP");
	return right & events(0);
}

/* Waits for the acknowledgement of the last of several packets; those before may be merged. */
static bool acknowledged_up_to(uint32_t last)
{
	struct answer answer;

	while (link_answer(&link_, PEER_QP, PATIENCE_MS, &answer)) {
		if (answer.opcode != (XRC | ACKNOWLEDGE) || answer.syndrome > 0x1f)
			return ktap_wrong("answer %#x, syndrome %#x to psn %#x", answer.opcode,
				     answer.syndrome, answer.psn);
		if (answer.psn == last)
			return true;
	}
	return ktap_wrong("no answer to psn %#x", last);
}

/* One message of these packets, the first of them with RETH if the message is a WRITE. */
static bool message_arrives(const uint8_t *operations, unsigned int count)
{
	bool write = operations[0] >= WRITE_FIRST;
	uint8_t last = operations[count - 1];
	size_t mtu = mtu_bytes(), size = (count - 1) * mtu + 77, at;
	bool right;
	unsigned int i;

	memset(buffer, 0, sizeof(buffer));
	for (i = 0; i < count; i++) {
		size_t bytes = i < count - 1 ? mtu : 77;

		if (i == 0 && write)
			rdma(operations[i], psn + i, srq_number(srq), (uintptr_t)buffer,
			     mr->rkey, size, bytes);
		else
			send_message(operations[i], psn + i, srq_number(srq), bytes);
	}
	right = acknowledged_up_to(psn + count - 1);
	psn += count;
	for (at = 0; at < size; at += mtu)
		right &= !memcmp(buffer + at, pattern(), size - at < mtu ? size - at : mtu) ||
			 ktap_wrong("operation %#x: wrong data at %zu", last, at);
	if (!write || has_immediate(last)) {
		struct ibv_wc wc = {};

		if (drain(cq, &wc) != 1 || wc.status || wc.byte_len != size ||
		    !!(wc.wc_flags & IBV_WC_WITH_IMM) != has_immediate(last) ||
		    (has_immediate(last) && wc.imm_data != htonl(IMMEDIATE)))
			return ktap_wrong("operation %#x: %s, %u bytes, flags %#x", last,
				     ibv_wc_status_str(wc.status), wc.byte_len, wc.wc_flags);
	}
	return right & completions(0);
}

#define MESSAGE(...) \
	message_arrives((uint8_t[]){ __VA_ARGS__ }, sizeof((uint8_t[]){ __VA_ARGS__ }))

static bool every_message(void)
{
	bool right = MESSAGE(SEND_ONLY);

	right &= MESSAGE(SEND_ONLY_IMM);
	right &= MESSAGE(SEND_FIRST, SEND_LAST);
	right &= MESSAGE(SEND_FIRST, SEND_MIDDLE, SEND_LAST_IMM);
	right &= MESSAGE(WRITE_ONLY);
	right &= MESSAGE(WRITE_ONLY_IMM);
	right &= MESSAGE(WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST);
	right &= MESSAGE(WRITE_FIRST, WRITE_LAST_IMM);
	return right & events(0);
}

static bool read_and_atomics(void)
{
	uint64_t *word = (uint64_t *)buffer;
	struct answer answer;
	bool right = true;

	memcpy(buffer, pattern(), 77);
	rdma(READ_REQUEST, psn, srq_number(srq), (uintptr_t)buffer, mr->rkey, 77, 0);
	if (!link_answer(&link_, PEER_QP, PATIENCE_MS, &answer) || answer.psn != psn ||
	    answer.opcode != (XRC | READ_RESPONSE_ONLY) || answer.size != 4 + 80 ||
	    memcmp(answer.body + 4, pattern(), 77))
		right = ktap_wrong("no good READ response");

	*word = 5;
	atomic(FETCH_ADD, ++psn, (uintptr_t)buffer, mr->rkey, 3, 0);
	if (!link_answer(&link_, PEER_QP, PATIENCE_MS, &answer) || answer.psn != psn ||
	    answer.opcode != (XRC | ATOMIC_ACKNOWLEDGE) || answer.body[11] != 5 || *word != 8)
		right = ktap_wrong("no good acknowledgement of FETCH & ADD");
	atomic(COMPARE_SWAP, ++psn, (uintptr_t)buffer, mr->rkey, 13, 8);
	if (!link_answer(&link_, PEER_QP, PATIENCE_MS, &answer) || answer.psn != psn ||
	    answer.opcode != (XRC | ATOMIC_ACKNOWLEDGE) || answer.body[11] != 8 || *word != 13)
		right = ktap_wrong("no good acknowledgement of COMPARE & SWAP");
	atomic(COMPARE_SWAP, ++psn, (uintptr_t)buffer, mr->rkey, 21, 8);
	if (!link_answer(&link_, PEER_QP, PATIENCE_MS, &answer) || answer.body[11] != 13 || *word != 13)
		right = ktap_wrong("COMPARE & SWAP does not compare");
	return right & events(0);
}

static bool unknown_srq(void)
{
	send_message(SEND_ONLY, psn, UNKNOWN_SRQ, 32);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR));
}

static bool ordinary_srq(void)
{
	send_message(SEND_ONLY, psn, srq_number(second_srq) + 1, 32);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR));
}

static bool foreign_srq_(void)
{
	send_message(SEND_ONLY, psn, srq_number(foreign_srq), 32);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR)) &
	       (drain(foreign_cq, NULL) == 0 || ktap_wrong("the other domain got it"));
}

static bool foreign_srq_write(void)
{
	rdma(WRITE_ONLY, psn, srq_number(foreign_srq), (uintptr_t)buffer, mr->rkey, 64, 64);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR)) &
	       (buffer[1] == 0 || ktap_wrong("it was written"));
}

static bool srq_changes(void)
{
	send_message(SEND_FIRST, psn, srq_number(srq), mtu_bytes());
	if (!acknowledged(psn))
		return false;
	send_message(SEND_LAST, psn + 1, srq_number(second_srq), 32);
	return dead(NAK_REMOTE_ACCESS, psn + 1, EVENT(QP_ACCESS_ERR)) &
	       taken_in_vain(srq, IBV_WC_REM_ACCESS_ERR);
}

static bool srq_is_destroyed(void)
{
	struct ibv_srq *gone = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
	uint32_t number = srq_number(gone);
	uint64_t start_ns, ms;

	replenish(gone, mr);
	send_message(SEND_FIRST, psn, number, mtu_bytes());
	if (!acknowledged(psn))
		return false;
	start_ns = now_ns();
	if (ibv_destroy_srq(gone))
		return ktap_wrong("the SRQ cannot be destroyed");
	ms = (now_ns() - start_ns) / 1000000;
	send_message(SEND_LAST, psn + 1, number, 32);
	return killed(NAK_REMOTE_ACCESS, psn + 1, EVENT(QP_ACCESS_ERR)) &
	       (ms < AT_ONCE_MS || ktap_wrong("destroying the SRQ took %lu ms", ms));
}

/* Packets for an SRQ are on their way, some of them being handled, when it is destroyed. */
static bool srqs_under_fire(void)
{
	unsigned int i, j, arrived = 0, refusals = 0;
	uint64_t slowest = 0;

	for (i = 0; i < 64; i++) {
		struct ibv_srq *gone = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
		uint32_t number = srq_number(gone);
		struct answer answer;
		uint64_t start_ns, ns;

		replenish(gone, mr);
		for (j = 0; j < 8; j++)
			send_message(SEND_ONLY, psn + j, number, 32);
		start_ns = now_ns();
		if (ibv_destroy_srq(gone))
			return ktap_wrong("the SRQ cannot be destroyed");
		ns = now_ns() - start_ns;
		slowest = ns > slowest ? ns : slowest;
		for (j = 0; j < 8 && link_answer(&link_, PEER_QP, PATIENCE_MS, &answer); j++) {
			if (answer.opcode != (XRC | ACKNOWLEDGE) ||
			    (answer.syndrome > 0x1f && answer.syndrome != NAK_REMOTE_ACCESS))
				return ktap_wrong("syndrome %#x", answer.syndrome);
			if (answer.syndrome == NAK_REMOTE_ACCESS)
				break;
		}
		refusals += j < 8;
		arrived += drain(cq, NULL);
		refresh();
	}
	ktap_note("%u messages arrived, %u SRQs went before their last one, slowest in %lu us",
		  arrived, refusals, slowest / 1000);
	return slowest < AT_ONCE_MS * 1000000ull || ktap_wrong("destroying an SRQ took too long");
}

static bool repeated_after_srq_is_gone(void)
{
	struct ibv_srq *gone = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
	uint32_t number = srq_number(gone);

	replenish(gone, mr);
	send_message(SEND_ONLY, psn, number, 32);
	if (!acknowledged(psn) || !completions(1) || ibv_destroy_srq(gone))
		return false;
	send_message(SEND_ONLY, psn, number, 32);
	if (!acknowledged(psn))
		return false;
	psn++;
	return ignored();
}

static bool request_to_initiator(void)
{
	struct packet packet;
	uint8_t operation;

	for (operation = 0; operation < 0x18; operation++) {
		if (!is_request(operation))
			continue;
		packet_start(&packet, PEER, XRC | operation, initiator->qp_num, psn);
		packet_u32(&packet, srq_number(srq));
		packet_u64(&packet, (uintptr_t)buffer);
		packet_u32(&packet, mr->rkey);
		packet_u32(&packet, 64);
		packet_payload(&packet, pattern(), 64);
		go(&packet);
	}
	return ignored() & in_state(initiator, IBV_QPS_RTS);
}

static bool post_send(struct ibv_qp *qp, struct ibv_mr *from, size_t size)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)from->addr,
		.length = size,
		.lkey = from->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.qp_type.xrc.remote_srqn = srq_number(srq),
	}, *bad;

	return !ibv_post_send(qp, &wr, &bad);
}

/*
 * Sends of QP complete; until then the peer acknowledges, COUNT times in a row,
 * everything up to AT_PSN.
 */
static bool completes(struct ibv_qp *qp, uint32_t at_psn, unsigned int count)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	struct packet packets[2] = {};
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < count; i++) {
		packet_start(&packets[i], PEER, XRC | ACKNOWLEDGE, qp->qp_num, at_psn);
		packet_u32(&packets[i], 0x1f000001);
		packet_seal(&packets[i]);
	}
	do {
		link_send(&link_, packets, count);
		for (i = 0; i < 1000; i++)
			if (ibv_poll_cq(qp->send_cq, 1, &wc) > 0)
				return !wc.status || ktap_wrong("%s", ibv_wc_status_str(wc.status));
	} while (now_ns() < end);
	return ktap_wrong("psn %#x does not complete", at_psn);
}

/*
 * The peer has two acknowledgements for a message that is still being sent, as happens when it is
 * sent again. The send queue has room for one message: a requester that lost its place in the
 * first would not find the second.
 */
static bool acknowledged_twice(void)
{
	static uint8_t message[512 * 4096];
	struct ibv_mr *from = ibv_reg_mr(node.pd, message, sizeof(message), 0);
	struct ibv_cq *sent = ibv_create_cq(node.context, 4, NULL, NULL, 0);
	uint32_t last = FIRST_PSN + sizeof(message) / mtu_bytes() - 1;
	struct ibv_qp *sender;
	struct answer request;
	bool right;

	if (!from || !sent)
		err(1, "a long message");
	sender = node_create_initiator(&node, sent, 1);
	connect_to(sender, PEER);
	right = post_send(sender, from, sizeof(message)) &&
		(link_answer(&link_, PEER_QP, PATIENCE_MS, &request) || ktap_wrong("nothing is sent"));
	right = right && completes(sender, last, 2);
	right = right && post_send(sender, from, 64) && completes(sender, last + 1, 1);
	return !ibv_destroy_qp(sender) & !ibv_destroy_cq(sent) & !ibv_dereg_mr(from) & right;
}

static bool response_to_target(void)
{
	uint8_t operation;

	for (operation = READ_RESPONSE_FIRST; operation <= ATOMIC_ACKNOWLEDGE; operation++) {
		struct packet packet = start(operation, psn);

		packet_u32(&packet, 0x1f000001);
		packet_payload(&packet, pattern(), 64);
		go(&packet);
	}
	return ignored();
}

static bool truncated(void)
{
	struct packet packet;
	uint8_t operation;
	size_t size;

	for (operation = 0; operation < 0x18; operation++) {
		if (!is_request(operation))
			continue;
		for (size = 0; size < 4; size++) {
			packet = start(operation, psn);
			packet.size += size;
			go(&packet);
		}
	}
	return ignored();
}

static bool psn_ahead(void)
{
	bool right;

	send_message(SEND_ONLY, psn + 5, srq_number(srq), 32);
	right = refused(NAK_PSN, psn);
	right &= completions(0);
	return right & ignored();
}

static bool psn_behind(void)
{
	send_message(SEND_ONLY, psn, srq_number(srq), 32);
	if (!acknowledged(psn) || !completions(1))
		return false;
	send_message(SEND_ONLY, psn, srq_number(srq), 32);
	if (!acknowledged(psn) || !completions(0))
		return false;
	psn++;
	return ignored();
}

static void stranger_sends(void)
{
	struct packet packet;

	packet_start(&packet, STRANGER, XRC | SEND_ONLY, target->qp_num, psn);
	packet_u32(&packet, srq_number(srq));
	packet_payload(&packet, pattern(), 32);
	go(&packet);
}

static bool stranger(void)
{
	bool right;

	stranger_sends();
	right = ignored();
	/* Nothing but the address was wrong: a QP connected to the stranger takes it. */
	reset(target);
	connect_to(target, STRANGER);
	stranger_sends();
	return right & acknowledged(psn) & completions(1);
}

static bool bad_icrc(void)
{
	struct packet packet = start(SEND_ONLY, psn);

	packet_u32(&packet, srq_number(srq));
	packet_payload(&packet, pattern(), 32);
	packet_seal(&packet);
	packet.bytes[packet.size - 1] ^= 1;
	link_send(&link_, &packet, 1);
	return ignored();
}

static bool other_transport(void)
{
	struct packet packet;

	packet_start(&packet, PEER, RC | SEND_ONLY, target->qp_num, psn);
	packet_payload(&packet, pattern(), 32);
	go(&packet);
	packet_start(&packet, PEER, XRC | SEND_ONLY, connected->qp_num, psn);
	packet_u32(&packet, srq_number(srq));
	packet_payload(&packet, pattern(), 32);
	go(&packet);
	return ignored() & in_state(connected, IBV_QPS_RTS);
}

static bool middle_without_first(void)
{
	send_message(SEND_MIDDLE, psn, srq_number(srq), mtu_bytes());
	return killed(NAK_INVALID_REQUEST, psn, EVENT(QP_REQ_ERR));
}

static bool first_without_last(void)
{
	send_message(SEND_FIRST, psn, srq_number(srq), mtu_bytes());
	if (!acknowledged(psn))
		return false;
	send_message(SEND_ONLY, psn + 1, srq_number(srq), 32);
	/* Its completion reports the error, so that no event has to. */
	return dead(NAK_INVALID_REQUEST, psn + 1, 0) &
	       taken_in_vain(srq, IBV_WC_REM_INV_REQ_ERR);
}

static bool short_middle(void)
{
	send_message(SEND_FIRST, psn, srq_number(srq), 100);
	return dead(NAK_INVALID_REQUEST, psn, 0) & taken_in_vain(srq, IBV_WC_REM_INV_REQ_ERR);
}

static bool bad_rkey(void)
{
	rdma(WRITE_ONLY, psn, srq_number(srq), (uintptr_t)buffer, mr->rkey ^ 0x55, 64, 64);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR));
}

static bool other_pd_write(void)
{
	rdma(WRITE_ONLY, psn, srq_number(srq), (uintptr_t)other_buffer, other_mr->rkey, 64, 64);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR)) &
	       (other_buffer[1] == 0 || ktap_wrong("it was written"));
}

static bool other_pd_read(void)
{
	rdma(READ_REQUEST, psn, srq_number(srq), (uintptr_t)other_buffer, other_mr->rkey, 64, 0);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR));
}

static bool other_pd_atomic(void)
{
	atomic(FETCH_ADD, psn, (uintptr_t)other_buffer, other_mr->rkey, 1, 0);
	return killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR)) &
	       (other_buffer[0] == 0 || ktap_wrong("it was counted"));
}

/* User space's regions cannot be; those of the kernel are seen to by rxe/invalidate. */
static bool bad_invalidate(void)
{
	struct packet packet = start(SEND_ONLY_INVALIDATE, psn);
	bool right;

	packet_u32(&packet, srq_number(srq));
	packet_u32(&packet, mr->rkey);
	packet_payload(&packet, pattern(), 32);
	go(&packet);
	/* The message itself is executed by then. */
	right = acknowledged(psn);
	right &= events(EVENT(QP_LAST_WQE_REACHED));
	right &= in_state(target, IBV_QPS_ERR);
	right &= taken_in_vain(srq, IBV_WC_REM_INV_REQ_ERR);

	refresh();
	rdma(WRITE_ONLY, psn, srq_number(srq), (uintptr_t)buffer, mr->rkey, 64, 64);
	return right & acknowledged(psn);
}

/* Through an SRQ of its own protection domain the other region is accessible. */
static bool own_pd_write(void)
{
	struct ibv_srq *own = node_create_xrc_srq(&node, other_pd, domain, cq, DEPTH);
	bool right;

	rdma(WRITE_ONLY, psn, srq_number(own), (uintptr_t)other_buffer, other_mr->rkey, 64, 64);
	right = acknowledged(psn);
	right &= !memcmp(other_buffer, pattern(), 64) || ktap_wrong("it was not written");
	memset(other_buffer, 0, 64);
	return right & !ibv_destroy_srq(own);
}

/* All are of the SRQ's protection domain; one of type 2 is its QP's alone, too. */
static bool memory_windows(void)
{
	struct ibv_mw *any = ibv_alloc_mw(node.pd, IBV_MW_TYPE_1);
	struct ibv_mw *of_qp = ibv_alloc_mw(node.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.bind_info = {
			.mr = mr,
			.addr = (uintptr_t)buffer,
			.length = 64,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
		},
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .bind_mw.bind_info = bind.bind_info };
	struct ibv_send_wr *bad;
	bool right;

	if (!any || !of_qp)
		err(1, "memory windows");
	wr.bind_mw.mw = of_qp;
	wr.bind_mw.rkey = ibv_inc_rkey(of_qp->rkey);
	right = !ibv_bind_mw(initiator, any, &bind) && completions(1) &&
		!ibv_post_send(initiator, &wr, &bad) && completions(1);
	if (!right)
		ktap_wrong("the windows cannot be bound");

	rdma(WRITE_ONLY, psn, srq_number(srq), (uintptr_t)buffer, any->rkey, 64, 64);
	right &= acknowledged(psn);
	right &= !memcmp(buffer, pattern(), 64) || ktap_wrong("it was not written");
	psn++;
	rdma(WRITE_ONLY, psn, srq_number(srq), (uintptr_t)buffer, wr.bind_mw.rkey, 64, 64);
	right &= killed(NAK_REMOTE_ACCESS, psn, EVENT(QP_ACCESS_ERR));
	return right & !ibv_dealloc_mw(any) & !ibv_dealloc_mw(of_qp);
}

static bool nothing_posted(void)
{
	send_message(SEND_ONLY, psn, srq_number(empty_srq), 32);
	return refused(RNR_NAK, psn) & ignored();
}

static bool last_wqe_once(void)
{
	unsigned int i;

	send_message(SEND_ONLY, psn, UNKNOWN_SRQ, 32);
	if (!refused(NAK_REMOTE_ACCESS, psn))
		return false;
	for (i = 0; i < 100; i++)
		send_message(SEND_ONLY, psn + i % 3, srq_number(srq), 32);
	usleep(100000);
	return events(EVENT(QP_ACCESS_ERR) | EVENT(QP_LAST_WQE_REACHED));
}

static bool srq_limit(void)
{
	struct ibv_srq *limited = node_create_xrc_srq(&node, node.pd, domain, cq, DEPTH);
	struct ibv_srq_attr attr = { .srq_limit = DEPTH / 2 };
	struct ibv_async_event event;
	unsigned int i, seen = 0;

	for (i = 0; i < DEPTH; i++)
		post(limited, mr);
	errno = ibv_modify_srq(limited, &attr, IBV_SRQ_LIMIT);
	if (errno)
		err(1, "SRQ limit");
	for (i = 0; i < DEPTH; i++)
		send_message(SEND_ONLY, psn + i, srq_number(limited), 8);
	while (next_event(seen ? 50 : PATIENCE_MS, &event)) {
		if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED)
			continue;
		if (event.element.srq != limited)
			return ktap_wrong("the event is of another SRQ");
		seen++;
	}
	reset(target);
	return (seen == 1 || ktap_wrong("%u limit events", seen)) & !ibv_destroy_srq(limited);
}

static bool cq_overflow(void)
{
	struct ibv_cq *small = ibv_create_cq(node.context, 1, NULL, NULL, 0);
	struct ibv_srq *full;
	unsigned int i;
	bool right;

	if (!small)
		err(1, "small CQ");
	full = node_create_xrc_srq(&node, node.pd, domain, small, DEPTH);
	replenish(full, mr);
	for (i = 0; i < 8; i++)
		send_message(SEND_ONLY, psn + i, srq_number(full), 8);
	right = events(EVENT(CQ_ERR) | EVENT(QP_FATAL) | EVENT(QP_LAST_WQE_REACHED));
	right &= in_state(target, IBV_QPS_ERR);
	reset(target);
	return right & !ibv_destroy_srq(full) & !ibv_destroy_cq(small);
}

/* ---- mutations ---- */

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
	random_state = random_state * 6364136223846793005 + 1442695040888963407;
	return (random_state >> 32) % limit;
}

/* A packet as it should be, for the target or as an answer to the initiator. */
static void good_packet(struct packet *packet, uint32_t at_psn, uint32_t read_psn)
{
	uint32_t numbers[] = {
		srq_number(srq), srq_number(second_srq), srq_number(foreign_srq),
		srq_number(second_srq) + 1,
	};
	uint8_t operation = random_below(0x18);
	uint64_t address = (uintptr_t)buffer + random_below(BUFFER / 2);
	uint32_t size = random_below(4) ? random_below(256) : mtu_bytes();

	if (is_request(operation)) {
		packet_start(packet, PEER, XRC | operation, target->qp_num, at_psn);
		packet_u32(packet, numbers[random_below(8) ? random_below(2) : random_below(4)]);
		switch (operation) {
		case WRITE_FIRST:
		case WRITE_ONLY:
		case WRITE_ONLY_IMM:
		case READ_REQUEST:
			packet_u64(packet, address);
			packet_u32(packet, mr->rkey);
			packet_u32(packet, size);
			break;
		case COMPARE_SWAP:
		case FETCH_ADD:
			packet_u64(packet, address & ~7ull);
			packet_u32(packet, mr->rkey);
			packet_u64(packet, 1);
			packet_u64(packet, 0);
			return;
		}
		if (has_immediate(operation))
			packet_u32(packet, IMMEDIATE);
		if (operation == SEND_LAST_INVALIDATE || operation == SEND_ONLY_INVALIDATE)
			packet_u32(packet, random_below(2) ? other_mr->rkey : ~0u);
		if (operation != READ_REQUEST)
			packet_payload(packet, pattern(), size);
	} else {
		packet_start(packet, PEER, XRC | operation, initiator->qp_num, read_psn);
		if (operation != READ_RESPONSE_MIDDLE)
			packet_u32(packet, random_below(8) << 29 | random_below(0x2000000));
		if (operation == ATOMIC_ACKNOWLEDGE)
			packet_u64(packet, 0);
		else if (operation != ACKNOWLEDGE)
			packet_payload(packet, pattern(), size);
	}
}

static void mutate(struct packet *packet)
{
	uint8_t *bth = packet->bytes + BTH_OFFSET;
	unsigned int i, size = packet->size - BTH_OFFSET;

	switch (random_below(8)) {
	case 0:					/* no change but the ICRC's */
		break;
	case 1:					/* single bits */
		for (i = random_below(8) + 1; i; i--)
			bth[random_below(size)] ^= 1 << random_below(8);
		break;
	case 2:					/* another opcode for this body */
		bth[0] = random_below(2) ? XRC | random_below(32) : random_below(256);
		break;
	case 3:					/* shorter */
		packet->size = BTH_OFFSET + random_below(size + 1);
		break;
	case 4:					/* longer, as far as the link takes it */
		for (i = random_below(64); i && packet->size < LINK_MTU - ICRC_BYTES; i--)
			packet->bytes[packet->size++] = random_below(256);
		break;
	case 5:					/* the header that XRC adds */
		for (i = 0; size > BTH_BYTES + 3 && i < 4; i++)
			bth[BTH_BYTES + i] = random_below(256);
		break;
	case 6:					/* near and far sequence numbers */
		bth[11] += random_below(16) - 8;
		if (!random_below(4))
			bth[9] ^= 0x80;
		break;
	case 7:					/* headers full of noise */
		for (i = BTH_BYTES; i < size && i < BTH_BYTES + 40; i++)
			bth[i] = random_below(256);
		break;
	}
}

/* The initiator asks for something, so that answers to it have a meaning. */
static void ask(uint32_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer,
		.length = BUFFER / 2,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = number % 2 ? IBV_WR_RDMA_READ : IBV_WR_SEND,
		.wr.rdma.remote_addr = 4096,
		.wr.rdma.rkey = 1,
		.qp_type.xrc.remote_srqn = number,
	}, *bad;

	ibv_post_send(initiator, &wr, &bad);
}

/* Packets arrive in order: an answer to the last one follows those to all that were sent before. */
static bool settled(void)
{
	struct answer answer;

	refresh();
	send_message(SEND_ONLY, psn, srq_number(srq), 32);
	while (link_answer(&link_, PEER_QP, PATIENCE_MS, &answer))
		if (answer.opcode == (XRC | ACKNOWLEDGE) && answer.syndrome <= 0x1f &&
		    answer.psn == psn)
			return true;
	return ktap_wrong("no answer to the last packet");
}

static bool mutations(unsigned int count)
{
	enum { BATCH = 16 };
	static struct packet packets[BATCH];
	unsigned int sent, i, resets = 0, answers = 0;
	struct ibv_async_event event;
	struct answer answer;

	for (sent = 0; sent < count; sent += BATCH) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;

		if (qp_state(target) != IBV_QPS_RTR) {
			refresh();
			resets++;
		}
		if (qp_state(initiator) != IBV_QPS_RTS || sent % (64 * BATCH) == 0) {
			reset(initiator);
			connect_to(initiator, PEER);
			ask(sent / BATCH);
			ask(sent / BATCH + 1);
		}
		if (ibv_query_qp(target, &attr, IBV_QP_RQ_PSN, &init))
			err(1, "psn of the target QP");
		for (i = 0; i < BATCH; i++) {
			good_packet(&packets[i], attr.rq_psn, FIRST_PSN + random_below(4));
			mutate(&packets[i]);
			packet_seal(&packets[i]);
			if (random_below(2))
				packets[i].bytes[packets[i].size - 1 - random_below(4)] ^=
					1 << random_below(8);
			else	/* this one may be taken: the next follows it */
				attr.rq_psn++;
		}
		link_send(&link_, packets, BATCH);
		while (link_answer(&link_, PEER_QP, 0, &answer))
			answers++;
		drain(cq, NULL);
		drain(foreign_cq, NULL);
		while (next_event(0, &event))
			;
	}
	ktap_note("%u packets, %u packets in answer, target QP reset %u times", sent,
		  answers, resets);
	if (!answers || !resets)
		return ktap_wrong("they have no effect, so they show nothing");
	/* Its requests would be repeated among the answers that follow. */
	reset(initiator);
	connect_to(initiator, PEER);
	if (!settled())
		return false;
	refresh();
	return good_message();
}

/* ---- the end ---- */

static bool destroyed_at_once(void)
{
	struct ibv_srq *srqs[] = { srq, second_srq, foreign_srq, empty_srq };
	uint64_t start_ns, ms;
	bool right = true;
	unsigned int i;

	refresh();
	send_message(SEND_FIRST, psn, srq_number(srq), mtu_bytes());
	if (!acknowledged(psn))
		return false;
	for (i = 0; i < sizeof(srqs) / sizeof(*srqs); i++) {
		start_ns = now_ns();
		if (ibv_destroy_srq(srqs[i]))
			right = ktap_wrong("SRQ %u cannot be destroyed", i);
		ms = (now_ns() - start_ns) / 1000000;
		if (ms >= AT_ONCE_MS)
			right = ktap_wrong("destroying SRQ %u took %lu ms", i, ms);
	}
	start_ns = now_ns();
	right &= !ibv_destroy_qp(target) & !ibv_destroy_qp(initiator) &
		 !ibv_destroy_qp(connected) & !ibv_destroy_srq(plain_srq);
	right &= !ibv_close_xrcd(domain) & !ibv_close_xrcd(foreign_domain);
	right &= !ibv_dereg_mr(mr) & !ibv_dereg_mr(other_mr);
	right &= !ibv_destroy_cq(cq) & !ibv_destroy_cq(foreign_cq);
	right &= !ibv_dealloc_pd(other_pd) & !ibv_dealloc_pd(node.pd);
	right &= !ibv_close_device(node.context);
	ms = (now_ns() - start_ns) / 1000000;
	unlink("/tmp/hostile.domain");
	unlink("/tmp/hostile.foreign");
	return right & (ms < AT_ONCE_MS || ktap_wrong("taking the rest down took %lu ms", ms));
}

static const struct {
	const char *description;
	bool (*run)(void);
} scenarios[] = {
	{ "a good message arrives, its first packet establishes communication", good_message },
	{ "every kind of SEND and WRITE is served", every_message },
	{ "READ and both atomics are served", read_and_atomics },
	{ "unknown SRQ: NAK, access error", unknown_srq },
	{ "an SRQ that is not XRC: NAK, access error", ordinary_srq },
	{ "SRQ of another domain: NAK, access error", foreign_srq_ },
	{ "RDMA WRITE naming an SRQ of another domain: NAK, nothing written", foreign_srq_write },
	{ "SRQ changed within a message: NAK, access error", srq_changes },
	{ "SRQ destroyed within a message: no wait, then NAK", srq_is_destroyed },
	{ "SRQs destroyed while their packets arrive: no wait", srqs_under_fire },
	{ "repeated message to a destroyed SRQ: acknowledged again", repeated_after_srq_is_gone },
	{ "requests to an initiator are ignored", request_to_initiator },
	{ "a message acknowledged twice while it is being sent: the next one is sent", acknowledged_twice },
	{ "responses to a target are ignored", response_to_target },
	{ "truncated XRCETH is ignored", truncated },
	{ "sequence number ahead: NAK, no harm", psn_ahead },
	{ "sequence number behind: acknowledged again, delivered once", psn_behind },
	{ "another sender's address is ignored", stranger },
	{ "a wrong ICRC is ignored", bad_icrc },
	{ "RC to a target and XRC to an RC QP are ignored", other_transport },
	{ "middle without first: NAK, request error", middle_without_first },
	{ "first without last: NAK", first_without_last },
	{ "first shorter than the MTU: NAK", short_middle },
	{ "wrong rkey: NAK, access error", bad_rkey },
	{ "WRITE to memory of another PD than the SRQ's: NAK", other_pd_write },
	{ "WRITE to it through an SRQ of its PD: served", own_pd_write },
	{ "READ from memory of another PD than the SRQ's: NAK", other_pd_read },
	{ "atomic on memory of another PD than the SRQ's: NAK", other_pd_atomic },
	{ "memory windows: one of type 1 works, one of another QP does not", memory_windows },
	{ "SEND with Invalidate of an invalid key: acknowledged, nothing invalidated", bad_invalidate },
	{ "nothing posted on the SRQ: RNR NAK, no harm", nothing_posted },
	{ "LAST_WQE_REACHED is reported once however many packets follow", last_wqe_once },
	{ "SRQ limit: one event, of that SRQ", srq_limit },
	{ "overflow of the SRQ's CQ: fatal to the QP", cq_overflow },
};

int main(int argc, char **argv)
{
	unsigned int count = 100000, i;
	char text[80];
	int option;

	random_state = 1;
	while ((option = getopt(argc, argv, "n:s:")) != -1) {
		switch (option) {
		case 'n':
			count = strtoul(optarg, NULL, 0);
			break;
		case 's':
			random_state = strtoull(optarg, NULL, 0);
			break;
		default:
			errx(2, "usage: hostile [-n MUTATIONS] [-s SEED]");
		}
	}

	ktap_start("hostile packets", sizeof(scenarios) / sizeof(*scenarios) + 2);
	set_up();
	for (i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		refresh();
		ktap_result(scenarios[i].run(), scenarios[i].description);
	}
	refresh();
	snprintf(text, sizeof(text), "a good message arrives after %u mutated packets", count);
	ktap_result(mutations(count), text);
	ktap_result(destroyed_at_once(), "all objects are destroyed in the middle of a message");
	return ktap_end();
}
