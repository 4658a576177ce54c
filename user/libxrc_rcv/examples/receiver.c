// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One receiving process of a domain, see Documentation/tutorial.rst: prints the
 * messages to its SRQ, and the events of the receive QPs that it is registered with.
 *
 * usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT
 *
 * A sender, of any language, connects to TCP_PORT and writes "LID GID QPN RECEIVE_QPN":
 * the receive QP in the domain of FILE that its QP is connected to, or 0. It is
 * answered "LID GID RECEIVE_QPN SRQ".
 */
#define _DEFAULT_SOURCE
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include <infiniband/xrc_rcv.h>

#include "exchange.h"

enum { DEPTH = 16, SIZE = 64, MAX_QPS = 64 };

static struct port port;
static struct ibv_xrcd *xrcd;
static struct xrc_rcv_srq *srq;
static struct xrc_rcv_event_channel *channel;
static struct xrc_rcv_qp *qps[MAX_QPS];
static int count;

/* Registers with the sender's receive QP, or creates one, and answers the sender. */
static struct xrc_rcv_qp *join(FILE *sender)
{
	int mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
		   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct xrc_rcv_init_attr init = {
		.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,	/* it needs no process */
		.channel = channel,
		.comp_mask = XRC_RCV_INIT_ATTR_LABEL,
	};
	struct ibv_qp_attr attr = { .port_num = port.num, .path_mtu = IBV_MTU_1024 };
	struct xrc_rcv_qp *qp;
	uint32_t qp_num;

	if (!read_address(sender, &port, &attr.ah_attr, &attr.dest_qp_num, &qp_num))
		return NULL;
	/* Processes that list the QPs of the domain see whose connection it is. */
	init.label = be64toh(attr.ah_attr.grh.dgid.global.interface_id);

	/* The sample in the README. */
	if (qp_num)
		qp = xrc_rcv_reg_qp(xrcd, qp_num, channel, 0);
	else
		qp = xrc_rcv_alloc_qp(xrcd, &init, &attr, mask);	/* ready to receive */
	if (!qp) {
		warn("receive QP %u", qp_num);
		return NULL;
	}
	write_address(sender, &port, qp->qp_num, srq->srq_num);
	printf("QP %u: %s\n", qp->qp_num, qp_num ? "joined" : "created");
	return qp;
}

/* The TCP connection stays open, so that the sender sees the end of this process. */
static void accept_sender(int listener)
{
	FILE *sender = fdopen(accept(listener, NULL, NULL), "r");

	if (!sender)
		return;
	qps[count] = join(sender);
	if (qps[count])
		count++;
	else
		fclose(sender);
}

/* Prints an event, and ends the registration with a QP whose connection is broken. */
static void print_event(void)
{
	struct xrc_rcv_event event;
	int i;

	errno = xrc_rcv_get_event(channel, &event, sizeof(event));
	if (errno)
		err(1, "event");
	printf("QP %u: %s\n", event.qp_num, xrc_rcv_event_type_str(event.type));
	if (event.type == IBV_EVENT_COMM_EST)
		return;
	for (i = 0; i < count; i++)
		if (qps[i]->qp_num == event.qp_num) {
			xrc_rcv_unreg_qp(qps[i]);
			qps[i--] = qps[--count];
		}
	xrc_rcv_destroy_qp(xrcd, event.qp_num, 0);	/* fails but for the last one */
}

int main(int argc, char **argv)
{
	struct pollfd ready[3] = { { .events = POLLIN }, { .events = POLLIN }, { .events = POLLIN } };
	char message[SIZE];
	ssize_t length;
	int file;

	if (argc != 4)
		errx(2, "usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT");
	port = open_port(argv[1]);
	file = open(argv[2], O_RDONLY);
	if (file < 0)	/* -1 would be a domain of its own */
		err(1, "%s", argv[2]);
	xrcd = xrc_rcv_open_domain(port.context, file, O_CREAT);	/* shared by the file */
	if (!xrcd)
		err(1, "XRC domain of %s", argv[2]);
	srq = xrc_rcv_create_srq(xrcd, DEPTH, SIZE);
	channel = xrc_rcv_create_event_channel(xrcd);
	if (!srq || !channel)
		err(1, "SRQ and event channel");
	ready[0].fd = listen_at(atoi(argv[3]));
	ready[1].fd = srq->fd;
	ready[2].fd = channel->fd;
	signal(SIGPIPE, SIG_IGN);
	setlinebuf(stdout);
	printf("ready\n");
	while (count < MAX_QPS) {
		/* The descriptor is readable by the next message after there was none. */
		while ((length = xrc_rcv_receive(srq, message, SIZE, 0)) >= 0)
			printf("%.*s\n", (int)length, message);
		if (errno != EAGAIN || poll(ready, 3, -1) < 0)
			err(1, "receive");
		if (ready[0].revents)
			accept_sender(ready[0].fd);
		if (ready[2].revents)
			print_event();
	}
	errx(1, "too many senders");
}
