// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One receiving process, for sender.c: it opens the domain, creates the
 * receive QP or registers with it, prints what it receives, and unregisters
 * when the connection breaks.
 *
 * "receiver DEVICE FILE INDEX GID QPN" creates the QP for the sender's QP at
 * GID, by entry INDEX of the GIDs of port 1, and first prints that GID;
 * "receiver DEVICE FILE QPN" registers. The numbers of the QP and of the SRQ
 * of this process are the only output before messages and events.
 */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/xrc_rcv.h>

enum { MESSAGES = 16, SIZE = 64 };

/* The shared receive queue of this process, to which senders address messages. */
struct queue {
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint32_t srq_num;
	char messages[MESSAGES][SIZE];
};

static uint32_t number(const char *what, const char *word, uint32_t most)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(word, &end, 0);
	if (errno || end == word || *end || *word == '-' || value > most)
		errx(2, "%s %s: not a number up to %u", what, word, most);
	return value;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_context *context;

	if (!list && errno == ENOSYS)
		errx(1, "no RDMA devices: ib_uverbs is not loaded");
	if (!list)
		err(1, "RDMA devices");
	while (*device && strcmp(ibv_get_device_name(*device), name))
		device++;
	if (!*device)
		errx(1, "%s: no such RDMA device", name);
	context = ibv_open_device(*device);
	if (!context)
		err(1, "%s", name);
	ibv_free_device_list(list);
	return context;
}

static struct ibv_xrcd *open_domain(struct ibv_context *context, const char *file)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(file, O_RDONLY),	/* -1 would be a domain of its own */
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	if (attr.fd < 0)
		err(1, "%s", file);
	xrcd = ibv_open_xrcd(context, &attr);
	if (!xrcd)
		err(1, "XRC domain of %s", file);
	return xrcd;
}

static void post_receive(struct queue *queue, uint64_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)queue->messages[index],
		.length = SIZE,
		.lkey = queue->mr->lkey,
	};
	struct ibv_recv_wr *bad, request = { .wr_id = index, .sg_list = &sge, .num_sge = 1 };

	errno = ibv_post_srq_recv(queue->srq, &request, &bad);
	if (errno)
		err(1, "receive");
}

/* Creates the SRQ in the domain, and posts a receive for each message. */
static void create_queue(struct queue *queue, struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = MESSAGES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = ibv_alloc_pd(xrcd->context),
		.xrcd = xrcd,
	};
	uint64_t index;

	queue->channel = ibv_create_comp_channel(xrcd->context);
	if (!init.pd || !queue->channel)
		err(1, "PD and channel");
	init.cq = ibv_create_cq(xrcd->context, MESSAGES, NULL, queue->channel, 0);
	queue->mr = ibv_reg_mr(init.pd, queue->messages, sizeof(queue->messages),
			       IBV_ACCESS_LOCAL_WRITE);
	if (!init.cq || !queue->mr)
		err(1, "CQ and memory");
	queue->srq = ibv_create_srq_ex(xrcd->context, &init);
	if (!queue->srq)
		err(1, "SRQ");
	errno = ibv_req_notify_cq(init.cq, 0);
	if (!errno)
		errno = ibv_get_srq_num(queue->srq, &queue->srq_num);
	if (errno)
		err(1, "CQ and SRQ");
	for (index = 0; index < MESSAGES; index++)
		post_receive(queue, index);
}

/* Prints the messages that have arrived. The next one makes the channel readable. */
static void print_messages(struct queue *queue)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *unused;

	if (ibv_get_cq_event(queue->channel, &cq, &unused))
		err(1, "completion");
	ibv_ack_cq_events(cq, 1);
	errno = ibv_req_notify_cq(cq, 0);
	if (errno)
		err(1, "CQ");
	while (ibv_poll_cq(cq, 1, &wc) == 1) {
		if (wc.status)
			errx(1, "receive: %s", ibv_wc_status_str(wc.status));
		printf("%.*s\n", (int)wc.byte_len, queue->messages[wc.wr_id]);
		post_receive(queue, wc.wr_id);
	}
}

int main(int argc, char **argv)
{
	int mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
		   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .port_num = 1, .is_global = 1, .grh = { .hop_limit = 64 } },
	};
	struct xrc_rcv_event event = { .type = IBV_EVENT_COMM_EST };
	struct xrc_rcv_init_attr init = { 0 };
	struct ibv_context *context;
	char text[INET6_ADDRSTRLEN];
	struct pollfd ready[2];
	struct ibv_xrcd *xrcd;
	struct xrc_rcv_qp *qp;
	struct queue queue;
	union ibv_gid gid;
	uint32_t qp_num = 0;

	if (argc == 4) {
		qp_num = number("QPN", argv[3], 0xffffff);
		if (!qp_num)
			errx(2, "QPN 0: not a receive QP");
	} else if (argc == 6) {
		attr.ah_attr.grh.sgid_index = number("INDEX", argv[3], 255);
		if (inet_pton(AF_INET6, argv[4], &attr.ah_attr.grh.dgid) != 1)
			errx(2, "%s: not a GID", argv[4]);
		init.comp_mask = XRC_RCV_INIT_ATTR_LABEL;	/* whose connection it is */
		init.label = be64toh(attr.ah_attr.grh.dgid.global.interface_id);
		attr.dest_qp_num = number("QPN", argv[5], 0xffffff);
	} else {
		errx(2, "usage: receiver DEVICE FILE {QPN|INDEX GID QPN}");
	}
	context = open_device(argv[1]);
	xrcd = open_domain(context, argv[2]);	/* shared by a file */
	create_queue(&queue, xrcd);
	setlinebuf(stdout);
	if (!qp_num) {
		if (ibv_query_gid(context, 1, attr.ah_attr.grh.sgid_index, &gid))
			err(1, "GID %u of port 1", attr.ah_attr.grh.sgid_index);
		printf("%s ", inet_ntop(AF_INET6, &gid, text, sizeof(text)));
	}

	/* The sample in the README. */
	init.channel = xrc_rcv_create_event_channel(xrcd);
	if (!init.channel)
		err(1, "event channel");
	if (qp_num)
		qp = xrc_rcv_reg_qp(xrcd, qp_num, init.channel, 0);
	else
		qp = xrc_rcv_alloc_qp(xrcd, &init, &attr, mask);	/* ready to receive */
	if (!qp)
		err(1, "receive QP");
	printf("%u\n", qp->qp_num);	/* for the sender and the other receivers */

	printf("%u\n", queue.srq_num);	/* for the sender */

	ready[0] = (struct pollfd){ .fd = queue.channel->fd, .events = POLLIN };
	ready[1] = (struct pollfd){ .fd = init.channel->fd, .events = POLLIN };
	while (event.type == IBV_EVENT_COMM_EST) {
		if (poll(ready, 2, -1) < 0)
			err(1, "poll");
		if (ready[0].revents)
			print_messages(&queue);
		if (!ready[1].revents)
			continue;
		errno = xrc_rcv_get_event(init.channel, &event, sizeof(event));
		if (errno)
			err(1, "event of receive QP %u", qp->qp_num);
		printf("%s\n", xrc_rcv_event_type_str(event.type));
	}

	errno = xrc_rcv_unreg_qp(qp);	/* the last registration destroys the QP */
	if (errno)
		err(1, "unregistering from receive QP");
	return 0;	/* all else ends with the process */
}
