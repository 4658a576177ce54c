// SPDX-License-Identifier: GPL-2.0
/*
 * A process in node right: a shared receive queue of its own in the common XRC
 * domain, and a part in the one receive QP that all messages come through.
 *
 * usage: receiver NAME DOMAINFILE ib_xrc_rcv|mainline
 *
 * The last word says whose receive QP it is: the kernel's, through libxrc_rcv,
 * or the creator's, through ibv_create_qp() and ibv_open_qp().
 * Orders: create GID LID QPN PSN (of the sender); keep, the same for a QP that is to
 * live as long as the domain, where there is such a thing; join QPN; state; leave.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <infiniband/xrc_rcv.h>

#include "protocol.h"

enum { BUFFERS = 8, BUFFER_SIZE = 64 };

static struct node node;
static struct ibv_xrcd *domain;
static struct ibv_comp_channel *completions;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_srq *srq;
static char buffers[BUFFERS][BUFFER_SIZE];

/* ---- the receive QP, when the kernel owns it ---- */

static struct xrc_rcv_event_channel *channel;
static struct xrc_rcv_qp *registration;

static void open_channel(void)
{
	struct xrc_rcv_caps caps;

	if (xrc_rcv_query_caps(node.context, &caps, sizeof(caps)))
		errx(1, "there are no receive QPs here, ib_xrc_rcv is not loaded");
	channel = xrc_rcv_create_event_channel(domain);
	if (!channel)
		err(1, "event channel");
}

static uint32_t kernel_create(const struct path *sender, bool keep)
{
	struct xrc_rcv_init_attr init = {
		.flags = keep ? XRC_RCV_ALLOC_LIFETIME_DOMAIN : 0,
		.channel = channel,
	};
	struct ibv_qp_attr attr = {
		.pkey_index = node.pkey_index,
		.port_num = node.port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.ah_attr = node_address(&node, sender),
		.path_mtu = node.mtu,
		.dest_qp_num = sender->qp_num,
		.rq_psn = sender->recv_psn,
	};

	registration = xrc_rcv_alloc_qp(domain, &init, &attr,
					IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
					IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN);
	if (!registration)
		err(1, "xrc_rcv_alloc_qp");
	return registration->qp_num;
}

static bool kernel_join(uint32_t qp_num)
{
	registration = xrc_rcv_reg_qp(domain, qp_num, channel, 0);
	return registration;
}

static int kernel_state(void)
{
	struct xrc_rcv_qp_info info;

	errno = xrc_rcv_query_qp(domain, registration->qp_num, NULL, &info, sizeof(info));
	if (errno)
		err(1, "xrc_rcv_query_qp");
	return info.state;
}

static void kernel_leave(void)
{
	errno = xrc_rcv_unreg_qp(registration);
	if (errno)
		err(1, "xrc_rcv_unreg_qp");
}

/* ---- the receive QP, when a process owns it ---- */

static struct ibv_qp *qp;

static uint32_t mainline_create(const struct path *sender, bool keep)
{
	(void)keep;
	qp = node_create_target(&node, domain);
	qp_connect(&node, qp, sender);
	return qp->qp_num;
}

static bool mainline_join(uint32_t qp_num)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qp_num,
		.xrcd = domain,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	qp = ibv_open_qp(node.context, &attr);
	return qp;
}

static int mainline_state(void)
{
	return qp_state(qp);
}

static void mainline_leave(void)
{
	errno = ibv_destroy_qp(qp);
	if (errno)
		err(1, "ibv_destroy_qp");
}

static const struct {
	const char *name;
	uint32_t (*create)(const struct path *sender, bool keep);
	bool (*join)(uint32_t qp_num);
	int (*state)(void);
	void (*leave)(void);
} kinds[] = {
	{ "ib_xrc_rcv", kernel_create, kernel_join, kernel_state, kernel_leave },
	{ "mainline", mainline_create, mainline_join, mainline_state, mainline_leave },
}, *kind = kinds;

/* ---- messages and events ---- */

static void post(unsigned int buffer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffers[buffer],
		.length = BUFFER_SIZE,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_srq_recv(srq, &wr, &bad);
	if (errno)
		err(1, "post");
}

static void open_queue(void)
{
	unsigned int buffer;

	completions = ibv_create_comp_channel(node.context);
	if (!completions)
		err(1, "completion channel");
	cq = ibv_create_cq(node.context, BUFFERS, NULL, completions, 0);
	mr = ibv_reg_mr(node.pd, buffers, sizeof(buffers), IBV_ACCESS_LOCAL_WRITE);
	if (!cq || !mr || ibv_req_notify_cq(cq, 0))
		err(1, "CQ and memory");
	srq = node_create_xrc_srq(&node, node.pd, domain, cq, BUFFERS);
	for (buffer = 0; buffer < BUFFERS; buffer++)
		post(buffer);
}

static void take_messages(void)
{
	struct ibv_cq *ready;
	struct ibv_wc wc;
	void *context;

	if (ibv_get_cq_event(completions, &ready, &context) || ibv_req_notify_cq(cq, 0))
		err(1, "completion");
	ibv_ack_cq_events(ready, 1);
	while (ibv_poll_cq(cq, 1, &wc)) {
		if (wc.status)
			errx(1, "a receive failed: %s", ibv_wc_status_str(wc.status));
		make_plain(buffers[wc.wr_id], BUFFER_SIZE);
		report("message", ", \"text\": \"%s\", \"qpn\": %" PRIu32 ", \"srq\": %" PRIu32,
		     buffers[wc.wr_id], wc.qp_num, srq_number(srq));
		post(wc.wr_id);
	}
}

static void take_records(void)
{
	struct xrc_rcv_event records[8];
	ssize_t i, n = xrc_rcv_read_events(channel, records, sizeof(*records), 8);

	if (n < 0)
		err(1, "event record");
	for (i = 0; i < n; i++)
		report("event", ", \"type\": \"%s\", \"qpn\": %" PRIu32 ", \"count\": %" PRIu32
		     ", \"happened\": %" PRIu64,
		     xrc_rcv_event_type_str(records[i].type), records[i].qp_num,
		     records[i].count, (uint64_t)records[i].last_ns);
}

/* Takes an event from the device's async_fd, where mainline reports those of QPs. */
static void take_async_event(void)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(node.context, &event))
		err(1, "asynchronous event");
	switch (event.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		report("event", ", \"type\": \"%s\", \"qpn\": %" PRIu32 ", \"count\": 1",
		     ibv_event_type_str(event.event_type), event.element.qp->qp_num);
		break;
	default:
		break;
	}
	ibv_ack_async_event(&event);
}

/* ---- orders ---- */

static void create(const char *words, bool keep)
{
	struct path sender = parse_path(words);
	uint32_t qp_num = kind->create(&sender, keep);

	report("created", ", \"qpn\": %" PRIu32 ", \"state\": %d", qp_num, kind->state());
}

static void obey(const char *order)
{
	uint32_t qp_num;

	if (!strncmp(order, "create ", 7)) {
		create(order + 7, false);
	} else if (!strncmp(order, "keep ", 5)) {
		create(order + 5, true);
	} else if (sscanf(order, "join %" SCNu32, &qp_num) == 1) {
		if (kind->join(qp_num))
			report("joined", ", \"qpn\": %" PRIu32, qp_num);
		else
			report("refused", ", \"error\": \"%s\"", strerror(errno));
	} else if (!strcmp(order, "state")) {
		report("state", ", \"state\": %d", kind->state());
	} else if (!strcmp(order, "leave")) {
		kind->leave();
		report("left", ", \"srq\": %" PRIu32, srq_number(srq));
	} else {
		errx(1, "no such order: %s", order);
	}
}

int main(int argc, char **argv)
{
	struct pollfd fds[4] = { { .events = POLLIN }, { .events = POLLIN },
				 { .events = POLLIN }, { .events = POLLIN } };
	char order[128];

	if (argc != 4)
		errx(2, "usage: receiver NAME DOMAINFILE ib_xrc_rcv|mainline");
	prctl(PR_SET_NAME, argv[1]);
	if (strcmp(argv[3], kind->name))
		kind++;

	node_enter("right");
	node_open(&node, "right");
	domain = node_open_domain(&node, argv[2]);
	open_queue();
	if (kind == kinds)
		open_channel();
	report_ready(&node, 0, 0, srq_number(srq));

	fds[0].fd = 0;
	fds[1].fd = completions->fd;
	fds[2].fd = node.context->async_fd;
	fds[3].fd = channel ? channel->fd : -1;
	while (poll(fds, 4, -1) > 0) {
		if (fds[1].revents)
			take_messages();
		if (fds[2].revents)
			take_async_event();
		if (fds[3].revents)
			take_records();
		if (fds[0].revents) {
			if (!next_order(order, sizeof(order)))
				return 0;
			obey(order);
		}
	}
	err(1, "poll");
}
