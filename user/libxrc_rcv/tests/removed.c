// SPDX-License-Identifier: GPL-2.0
/*
 * The device is removed while a process is registered and waits for events: it gets
 * its last record, then EIO from every call, and can leave.
 *
 * usage: removed DEVICE COMMAND
 *
 * COMMAND removes the device.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/xrc_rcv.h>

#include "ktap.h"

/* The observations of the waiting thread. */
static struct xrc_rcv_event last;
static int first_ret, second_ret;

static void *wait_for_events(void *channel)
{
	struct xrc_rcv_event none;

	first_ret = xrc_rcv_get_event(channel, &last, sizeof(last));
	second_ret = xrc_rcv_get_event(channel, &none, sizeof(none));
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_xrcd_init_attr private = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct xrc_rcv_init_attr init = { .cookie = 42 };
	struct pollfd fd = { .events = POLLIN };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct xrc_rcv_event record;
	struct xrc_rcv_qp_info info;
	struct xrc_rcv_qp *qp, *other;
	struct ibv_context *context;
	struct ibv_xrcd *xrcd;
	struct xrc_rcv_caps caps;
	pthread_t thread;
	size_t count = 1;
	uint32_t qpn;

	if (argc != 3)
		errx(2, "usage: removed DEVICE COMMAND");
	while (device && *device && strcmp(ibv_get_device_name(*device), argv[1]))
		device++;
	context = device && *device ? ibv_open_device(*device) : NULL;
	xrcd = context ? ibv_open_xrcd(context, &private) : NULL;
	if (!xrcd)
		err(1, "a domain of %s", argv[1]);
	init.channel = xrc_rcv_create_event_channel(xrcd);
	qp = xrc_rcv_alloc_qp(xrcd, &init, NULL, 0);
	other = xrc_rcv_alloc_qp(xrcd, NULL, NULL, 0);
	if (!init.channel || !qp || !other ||
	    pthread_create(&thread, NULL, wait_for_events, init.channel))
		err(1, "receive QPs");
	qpn = qp->qp_num;

	ktap_start("libxrc_rcv when the device is removed", 6);
	ktap_result(!system(argv[2]), "the device is removed while it is in use");
	pthread_join(thread, NULL);
	ktap_result(!first_ret && last.type == XRC_RCV_EVENT_QP_GONE &&
		    last.qp_num == qpn && last.cookie == 42 && last.count == 1,
		    "a waiting reader gets QP_GONE");
	fd.fd = init.channel->fd;
	ktap_result(second_ret == EIO && poll(&fd, 1, 0) == 1 &&
		    fd.revents & POLLHUP &&
		    xrc_rcv_read_events(init.channel, &record, sizeof(record), 1) == -1 &&
		    errno == EIO,
		    "a reader then gets EIO and POLLHUP");
	ktap_result(xrc_rcv_query_caps(context, &caps, sizeof(caps)) == EIO &&
		    xrc_rcv_query_qp(xrcd, qpn, NULL, &info, sizeof(info)) == EIO &&
		    xrc_rcv_query_domain(xrcd, 0, &info, sizeof(info), &count, NULL) == EIO &&
		    xrc_rcv_modify_qp(xrcd, qpn, &attr, IBV_QP_STATE) == EIO &&
		    xrc_rcv_destroy_qp(xrcd, qpn, 0) == EIO,
		    "calls that return an errno return EIO");
	ktap_result(!xrc_rcv_create_event_channel(xrcd) && errno == EIO &&
		    !xrc_rcv_alloc_qp(xrcd, NULL, NULL, 0) && errno == EIO &&
		    !xrc_rcv_reg_qp(xrcd, qpn, NULL, 0) && errno == EIO,
		    "calls that return a pointer set EIO");
	ktap_result(!xrc_rcv_unreg_qp(qp) && !xrc_rcv_unreg_qp(other) &&
		    !xrc_rcv_destroy_event_channel(init.channel) &&
		    !ibv_close_device(context),
		    "unreg_qp and destroy_event_channel succeed");
	return ktap_end();
}
