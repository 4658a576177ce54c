// SPDX-License-Identifier: GPL-2.0
/*
 * A process of a job on several nodes. In every round it sends 64 KiB to each
 * process of the other nodes, and checks what it gets from them.
 *
 * usage: peer NUMBER DOMAINFILE receive-qps|rc
 *
 * With receive-qps it has a connection to each other node, whose end there is a
 * receive QP of all processes of that node; with rc it has one to each process.
 * Orders, in the words of which a connection has a number:
 *	dial N					makes our end of a connection
 *	accept GID LID QPN PSN			creates the receive QP for a sender
 *	join QPN				registers with a receive QP
 *	connect N GID LID QPN PSN		connects our end
 *	target NUMBER N SRQ			the process NUMBER is behind connection N
 *	forget NUMBER				no messages to this process any more
 *	expect ROUND MESSAGES			a round in which so many come
 *	send					sends our messages of it
 */

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/xrc_rcv.h>

#include "protocol.h"

enum {
	PEERS = 64,
	WORDS = 65536 / 4,
	/* 2.1 s until a request is sent again, 7 times: a link may be out for that long. */
	TIMEOUT = 19,
	/* A work request with this number has no target, but a buffer. */
	RECEIVE = PEERS,
};

static unsigned int self;
static bool is_rc;
static struct node node;
static struct ibv_xrcd *domain;
static struct ibv_comp_channel *completions;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
/* What is sent to each, and room for what comes. */
static struct {
	uint32_t out[PEERS][WORDS], in[PEERS][WORDS];
} *memory;

static struct ibv_qp *connections[PEERS];
static struct target {
	bool is_alive;
	unsigned int connection;
	uint32_t srq_num;
} targets[PEERS];

/* The round, and what it waits for. */
static uint32_t current_round;
static unsigned int to_come, to_complete;
static bool has_sent;
static bool has_come[PEERS];

static uint32_t word(uint32_t from, uint32_t to, uint32_t round, uint32_t i)
{
	return from << 24 ^ to << 16 ^ round << 20 ^ i * 2654435761u;
}

static void post_receive(unsigned int buffer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory->in[buffer],
		.length = sizeof(memory->in[buffer]),
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = RECEIVE + buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_srq_recv(srq, &wr, &bad);
	if (errno)
		err(1, "post");
}

static void post_send(unsigned int to)
{
	const struct target *target = &targets[to];
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory->out[to],
		.length = sizeof(memory->out[to]),
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = to,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type.xrc.remote_srqn = target->srq_num,
	}, *bad;
	uint32_t i;

	memory->out[to][0] = self;
	memory->out[to][1] = current_round;
	for (i = 2; i < WORDS; i++)
		memory->out[to][i] = word(self, to, current_round, i);
	errno = ibv_post_send(connections[target->connection], &wr, &bad);
	if (errno)
		err(1, "send to %u", to);
}

/* ---- connections ---- */

static void open_device(const char *path)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = PEERS, .max_sge = 1 } };
	unsigned int buffer;

	node_open(&node, "left");
	memory = calloc(1, sizeof(*memory));
	completions = ibv_create_comp_channel(node.context);
	if (!memory || !completions)
		err(1, "completion channel");
	cq = ibv_create_cq(node.context, 4 * PEERS, NULL, completions, 0);
	mr = ibv_reg_mr(node.pd, memory, sizeof(*memory), IBV_ACCESS_LOCAL_WRITE);
	if (!cq || !mr || ibv_req_notify_cq(cq, 0))
		err(1, "CQ and memory");
	if (is_rc) {
		srq = ibv_create_srq(node.pd, &attr);
		if (!srq)
			err(1, "SRQ");
	} else {
		domain = node_open_domain(&node, path);
		srq = node_create_xrc_srq(&node, node.pd, domain, cq, PEERS);
	}
	for (buffer = 0; buffer < PEERS; buffer++)
		post_receive(buffer);
}

static struct ibv_qp *dial(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = is_rc ? ibv_create_qp(node.pd, &attr) :
				    node_create_initiator(&node, cq, PEERS);

	if (!qp)
		err(1, "QP");
	return qp;
}

static uint32_t accept_sender(const struct path *sender)
{
	struct xrc_rcv_init_attr init = {};
	struct ibv_qp_attr attr = {
		.pkey_index = node.pkey_index,
		.port_num = node.port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE,
		.ah_attr = node_address(&node, sender),
		.path_mtu = node.mtu,
		.dest_qp_num = sender->qp_num,
		.rq_psn = sender->recv_psn,
	};
	struct xrc_rcv_qp *registration =
		xrc_rcv_alloc_qp(domain, &init, &attr,
				 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
				 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN);

	if (!registration)
		err(1, "xrc_rcv_alloc_qp");
	return registration->qp_num;
}

/* ---- rounds ---- */

/* Each sender's message comes once in a round, with the right bytes. */
static void check(const uint32_t *data, uint32_t length)
{
	uint32_t from = data[0], i;

	if (length != WORDS * 4 || from >= PEERS || has_come[from] || data[1] != current_round || !to_come)
		errx(1, "round %u has a message of process %u and of round %u, of %u bytes",
		     current_round, from, data[1], length);
	for (i = 2; i < WORDS; i++)
		if (data[i] != word(from, self, current_round, i))
			errx(1, "round %u: word %u of process %u is %#x", current_round, i, from, data[i]);
	has_come[from] = true;
	to_come--;
}

static void take_completion(const struct ibv_wc *wc)
{
	unsigned int number = wc->wr_id;

	if (number < RECEIVE) {
		to_complete--;
		if (!wc->status)
			return;
		targets[number].is_alive = false;
		report("lost", ", \"number\": %u, \"status\": \"%s\"", number, ibv_wc_status_str(wc->status));
		return;
	}
	if (wc->status)
		errx(1, "a receive failed: %s", ibv_wc_status_str(wc->status));
	check(memory->in[number - RECEIVE], wc->byte_len);
	post_receive(number - RECEIVE);
}

static void end_round(void)
{
	if (!has_sent || to_come || to_complete)
		return;
	has_sent = false;
	report("round", ", \"round\": %u", current_round);
}

static void take_completions(void)
{
	struct ibv_cq *ready;
	struct ibv_wc wc;
	void *context;

	if (ibv_get_cq_event(completions, &ready, &context) || ibv_req_notify_cq(cq, 0))
		err(1, "completion");
	ibv_ack_cq_events(ready, 1);
	while (ibv_poll_cq(cq, 1, &wc)) {
		take_completion(&wc);
		end_round();
	}
}

static void send_all(void)
{
	unsigned int to;

	for (to = 0; to < PEERS; to++)
		if (targets[to].is_alive) {
			post_send(to);
			to_complete++;
		}
	has_sent = true;
	end_round();
}

/* ---- orders ---- */

static void obey(const char *order)
{
	unsigned int n, words;
	struct path path;
	uint32_t number;

	if (sscanf(order, "dial %u", &n) == 1 && n < PEERS) {
		connections[n] = dial();
		report("dialed", ", \"qpn\": %u", connections[n]->qp_num);
	} else if (!strncmp(order, "accept ", 7)) {
		path = parse_path(order + 7);
		report("accepted", ", \"qpn\": %u", accept_sender(&path));
	} else if (sscanf(order, "join %" SCNu32, &number) == 1) {
		if (!xrc_rcv_reg_qp(domain, number, NULL, 0))
			err(1, "xrc_rcv_reg_qp");
		report("done", "%s", "");
	} else if (sscanf(order, "connect %u %n", &n, &words) == 1 && n < PEERS) {
		path = parse_path(order + words);
		path.timeout = TIMEOUT;
		qp_connect(&node, connections[n], &path);
		report("done", "%s", "");
	} else if (sscanf(order, "target %" SCNu32 " %u %u", &number, &n, &words) == 3 && number < PEERS) {
		targets[number] = (struct target){ true, n, words };
		report("done", "%s", "");
	} else if (sscanf(order, "forget %" SCNu32, &number) == 1 && number < PEERS) {
		targets[number].is_alive = false;
		report("done", "%s", "");
	} else if (sscanf(order, "expect %" SCNu32 " %u", &current_round, &to_come) == 2) {
		memset(has_come, 0, sizeof(has_come));
		report("done", "%s", "");
	} else if (!strcmp(order, "send")) {
		send_all();
	} else {
		errx(1, "no such order: %s", order);
	}
}

int main(int argc, char **argv)
{
	struct pollfd fds[2] = { { .events = POLLIN }, { .events = POLLIN } };
	char order[128];

	if (argc != 4)
		errx(2, "usage: peer NUMBER DOMAINFILE receive-qps|rc");
	self = atoi(argv[1]);
	is_rc = !strcmp(argv[3], "rc");
	open_device(argv[2]);
	report_ready(&node, 0, 0, is_rc ? 0 : srq_number(srq));
	fds[1].fd = completions->fd;
	while (poll(fds, 2, -1) > 0) {
		if (fds[1].revents)
			take_completions();
		if (fds[0].revents) {
			if (!next_order(order, sizeof(order)))
				return 0;
			obey(order);
		}
	}
	err(1, "poll");
}
