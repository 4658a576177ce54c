// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One receiving process: it opens the domain, creates the receive QP or
 * registers with it, and unregisters when the connection breaks.
 *
 * "receiver DEVICE FILE INDEX GID QPN" creates the QP for the sender's QP at
 * GID, by entry INDEX of the GIDs of port 1; "receiver DEVICE FILE QPN"
 * registers. The number of the QP is the only output before events.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/xrc_rcv.h>

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
	struct xrc_rcv_init_attr init = {};
	struct ibv_context *context;
	struct xrc_rcv_event event;
	struct ibv_xrcd *xrcd;
	struct xrc_rcv_qp *qp;
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
	setlinebuf(stdout);

	/* The sample in the README. */
	init.channel = xrc_rcv_create_event_channel(context);
	if (!init.channel)
		err(1, "event channel");
	if (qp_num)
		qp = xrc_rcv_reg_qp(xrcd, qp_num, init.channel, 0);
	else
		qp = xrc_rcv_alloc_qp(xrcd, &init, &attr, mask);	/* ready to receive */
	if (!qp)
		err(1, "receive QP");
	printf("%u\n", qp->qp_num);	/* for the sender and the other receivers */

	do {
		errno = xrc_rcv_get_event(init.channel, &event, sizeof(event));
		if (errno)
			err(1, "event of receive QP %u", qp->qp_num);
		printf("%s\n", xrc_rcv_event_type_str(event.type));
	} while (event.type == IBV_EVENT_COMM_EST);

	errno = xrc_rcv_unreg_qp(qp);	/* the last registration destroys the QP */
	if (errno)
		err(1, "unregistering from receive QP");
	errno = xrc_rcv_destroy_event_channel(init.channel);
	if (errno)
		err(1, "closing the event channel");
	errno = ibv_close_xrcd(xrcd);
	if (errno)
		err(1, "closing the XRC domain");
	if (ibv_close_device(context))
		err(1, "closing %s", argv[1]);
	return 0;
}
