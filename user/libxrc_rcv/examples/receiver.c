// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The whole job of one receiving process: join the domain, create the receive
 * QP or register with it, and hear of its events.
 *
 * "receiver DEVICE FILE" creates, "receiver DEVICE FILE QPN" registers.
 */
#include <err.h>
#include <errno.h>
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
	struct ibv_context *context;
	struct xrc_rcv_event event;
	int ret;

	if (argc < 3)
		errx(2, "usage: receiver DEVICE FILE [QPN]");
	context = open_device(argv[1]);
	if (!context)
		errx(1, "%s cannot be opened", argv[1]);

	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(argv[2], O_RDONLY), .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &domain);
	struct xrc_rcv_init_attr init = {
		.channel = xrc_rcv_create_event_channel(context) };
	struct xrc_rcv_qp *qp = !xrcd || !init.channel ? NULL :
		argc == 3 ? xrc_rcv_alloc_qp(xrcd, &init, NULL, 0) :
		xrc_rcv_reg_qp(xrcd, atoi(argv[3]), init.channel, 0);
	if (!qp)
		err(1, "no receive QP");
	printf("%u\n", qp->qp_num);
	fflush(stdout);
	while (!(ret = xrc_rcv_get_event(init.channel, &event)))
		printf("%s\n", xrc_rcv_event_type_str(event.type));
	errno = ret;
	err(1, "event channel");
}
