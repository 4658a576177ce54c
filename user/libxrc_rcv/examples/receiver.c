// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One receiving process: it holds the domain, creates the receive QP or
 * registers with it, and leaves when the connection is broken.
 *
 * "receiver DEVICE FILE INDEX GID QPN" creates it for the sender's QP at GID,
 * by entry INDEX of the GIDs of port 1; "receiver DEVICE FILE QPN" registers.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/xrc_rcv.h>

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_context *context = NULL;

	while (device && *device && strcmp(ibv_get_device_name(*device), name))
		device++;
	if (device && *device)
		context = ibv_open_device(*device);
	ibv_free_device_list(list);
	return context;
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
	struct ibv_context *context;
	struct xrc_rcv_event event;
	uint32_t qp_num = 0;

	if (argc == 4) {
		qp_num = atoi(argv[3]);
	} else if (argc == 6 && inet_pton(AF_INET6, argv[4], &attr.ah_attr.grh.dgid) == 1) {
		attr.ah_attr.grh.sgid_index = atoi(argv[3]);
		attr.dest_qp_num = atoi(argv[5]);
	} else {
		errx(2, "usage: receiver DEVICE FILE {QPN|INDEX GID QPN}");
	}
	context = open_device(argv[1]);
	if (!context)
		errx(1, "%s cannot be opened", argv[1]);
	setlinebuf(stdout);

	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(argv[2], O_RDONLY), .oflags = O_CREAT };

	/* This is what the README shows. */
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &domain);	/* shared by a file */
	struct xrc_rcv_init_attr init = { .channel = xrc_rcv_create_event_channel(context) };
	struct xrc_rcv_qp *qp = !xrcd || !init.channel ? NULL :
		qp_num ? xrc_rcv_reg_qp(xrcd, qp_num, init.channel, 0) :
		xrc_rcv_alloc_qp(xrcd, &init, &attr, mask);	/* ready to receive */
	printf("%u\n", qp ? qp->qp_num : 0);	/* for the sender and the others */
	while (qp && !xrc_rcv_get_event(init.channel, &event) && event.type == IBV_EVENT_COMM_EST)
		printf("%s\n", xrc_rcv_event_type_str(event.type));
	if (!qp || xrc_rcv_unreg_qp(qp))	/* the last one to leave destroys the QP */
		err(1, "receive QP");
	return 0;
}
