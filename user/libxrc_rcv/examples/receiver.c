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
#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/xrc_rcv.h>

enum { DEPTH = 16, SIZE = 64, MAX_QPS = 64 };

static char name[64];
static uint8_t port = 1, gid_index;

static struct ibv_context *open_device(void)
{
	struct ibv_device **device = ibv_get_device_list(NULL);
	struct ibv_context *context;

	if (!device)
		errx(1, "no RDMA devices: %s", errno == ENOSYS ? "ib_uverbs is not loaded" : strerror(errno));
	while (*device && strcmp(ibv_get_device_name(*device), name))
		device++;
	if (!*device)
		errx(1, "%s: no such RDMA device", name);
	context = ibv_open_device(*device);
	if (!context)
		err(1, "%s", name);
	return context;
}

static int listen_at(uint16_t tcp_port)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(tcp_port) };
	int fd = socket(AF_INET6, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 8))
		err(1, "TCP port %u", tcp_port);
	return fd;
}

/* Registers with the sender's receive QP, or creates one, and answers the sender. */
static struct xrc_rcv_qp *join(FILE *sender, struct ibv_xrcd *xrcd,
			       struct xrc_rcv_event_channel *channel, uint32_t srq_num)
{
	int mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
		   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct xrc_rcv_init_attr init = {
		.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,	/* it needs no process */
		.channel = channel,
		.comp_mask = XRC_RCV_INIT_ATTR_LABEL,
	};
	struct ibv_qp_attr attr = {
		.port_num = port,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .port_num = port, .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};
	char text[INET6_ADDRSTRLEN];
	struct ibv_port_attr local;
	struct xrc_rcv_qp *qp;
	union ibv_gid gid;
	uint32_t qp_num;

	if (fscanf(sender, "%hu %45s %u %u", &attr.ah_attr.dlid, text, &attr.dest_qp_num, &qp_num) != 4 ||
	    inet_pton(AF_INET6, text, &attr.ah_attr.grh.dgid) != 1)
		return NULL;
	attr.ah_attr.is_global = !attr.ah_attr.dlid;	/* RoCE has no LIDs */
	/* Processes that list the QPs of the domain see whose connection it is. */
	init.label = be64toh(attr.ah_attr.grh.dgid.global.interface_id);
	if (ibv_query_port(xrcd->context, port, &local) ||
	    ibv_query_gid(xrcd->context, port, gid_index, &gid))
		err(1, "port %u of %s", port, name);

	/* The sample in the README. */
	if (qp_num)
		qp = xrc_rcv_reg_qp(xrcd, qp_num, channel, 0);
	else
		qp = xrc_rcv_alloc_qp(xrcd, &init, &attr, mask);	/* ready to receive */
	if (!qp) {
		warn("receive QP %u", qp_num);
		return NULL;
	}
	dprintf(fileno(sender), "%u %s %u %u\n", local.lid, inet_ntop(AF_INET6, &gid, text, sizeof(text)),
		qp->qp_num, srq_num);

	printf("QP %u: %s\n", qp->qp_num, qp_num ? "joined" : "created");
	return qp;
}

/* The TCP connection stays open, so that the sender sees the end of this process. */
static struct xrc_rcv_qp *accept_sender(int listener, struct ibv_xrcd *xrcd,
					struct xrc_rcv_event_channel *channel, uint32_t srq_num)
{
	FILE *sender = fdopen(accept(listener, NULL, NULL), "r");
	struct xrc_rcv_qp *qp = sender ? join(sender, xrcd, channel, srq_num) : NULL;

	if (!qp && sender)
		fclose(sender);
	return qp;
}

/* Prints an event, and ends the registration with a QP whose connection is broken. */
static void print_event(struct ibv_xrcd *xrcd, struct xrc_rcv_event_channel *channel,
			struct xrc_rcv_qp **qps, int *count)
{
	struct xrc_rcv_event event;
	int i;

	errno = xrc_rcv_get_event(channel, &event, sizeof(event));
	if (errno)
		err(1, "event");
	printf("QP %u: %s\n", event.qp_num, xrc_rcv_event_type_str(event.type));
	for (i = 0; event.type != IBV_EVENT_COMM_EST && i < *count; i++) {
		if (qps[i]->qp_num != event.qp_num)
			continue;
		xrc_rcv_unreg_qp(qps[i]);
		qps[i--] = qps[--*count];
	}
	if (event.type != IBV_EVENT_COMM_EST)
		xrc_rcv_destroy_qp(xrcd, event.qp_num, 0);	/* fails but for the last one */
}

int main(int argc, char **argv)
{
	struct xrc_rcv_event_channel *channel;
	struct xrc_rcv_qp *qps[MAX_QPS];
	struct ibv_context *context;
	struct xrc_rcv_srq *srq;
	struct pollfd ready[3];
	struct ibv_xrcd *xrcd;
	char message[SIZE];
	ssize_t length;
	int file, count = 0;

	if (argc != 4 || sscanf(argv[1], "%63[^/]/%hhu/%hhu", name, &port, &gid_index) < 1)
		errx(2, "usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT");
	context = open_device();
	file = open(argv[2], O_RDONLY);
	if (file < 0)	/* -1 would be a domain of its own */
		err(1, "%s", argv[2]);
	xrcd = xrc_rcv_open_domain(context, file, O_CREAT);	/* shared by the file */
	if (!xrcd)
		err(1, "XRC domain of %s", argv[2]);
	srq = xrc_rcv_create_srq(xrcd, DEPTH, SIZE);
	channel = xrc_rcv_create_event_channel(xrcd);
	if (!srq || !channel)
		err(1, "SRQ and event channel");
	ready[0] = (struct pollfd){ .fd = listen_at(atoi(argv[3])), .events = POLLIN };
	ready[1] = (struct pollfd){ .fd = srq->fd, .events = POLLIN };
	ready[2] = (struct pollfd){ .fd = channel->fd, .events = POLLIN };
	signal(SIGPIPE, SIG_IGN);
	setlinebuf(stdout);
	printf("ready\n");
	while (count < MAX_QPS) {
		/* The descriptor is readable by the next message after there was none. */
		while ((length = xrc_rcv_receive(srq, message, SIZE, 0)) >= 0)
			printf("%.*s\n", (int)length, message);
		if (errno != EAGAIN || poll(ready, 3, -1) < 0)
			err(1, "receive");
		if (ready[0].revents) {
			qps[count] = accept_sender(ready[0].fd, xrcd, channel, srq->srq_num);
			count += !!qps[count];
		}
		if (ready[2].revents)
			print_event(xrcd, channel, qps, &count);
	}
	errx(1, "too many senders");
}
