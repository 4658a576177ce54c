// SPDX-License-Identifier: GPL-2.0
/*
 * The device is removed while a program of OFED is registered: it gets the event of
 * the device and the last one of its receive QP, in any order, then EIO.
 *
 * usage: gone DEVICE COMMAND
 *
 * COMMAND removes the device.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "ktap.h"
#include "ofed_node.h"

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init_attr = { 0 };
	struct ibv_async_event event;
	int of_device = 0, of_qp = 0, ret;
	struct node node;
	uint32_t qpn;

	if (argc != 3)
		errx(2, "usage: gone DEVICE COMMAND");
	node_open(&node, argv[1]);
	init_attr.xrc_domain = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	if (!init_attr.xrc_domain)
		err(1, "a domain of %s", argv[1]);
	ret = ibv_create_xrc_rcv_qp(&init_attr, &qpn);
	if (ret)
		errx(1, "a receive QP: %s", strerror(ret));

	ktap_start("the OFED layer when the device is removed", 4);
	ktap_result(!system(argv[2]), "the device is removed while it is in use");
	/* Both events were reported during the removal, so no call has to wait. */
	fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK);
	while (!(ret = ibv_get_async_event(node.context, &event))) {
		of_device += event.event_type == IBV_EVENT_DEVICE_FATAL;
		of_qp += event.event_type == (IBV_EVENT_QP_FATAL |
					      IBV_XRC_QP_EVENT_FLAG) &&
			 event.element.xrc_qp_num == qpn;
		ibv_ack_async_event(&event);
	}
	ktap_result(errno == EIO, "there is no event after the last one: EIO");
	ktap_result(of_device == 1, "IBV_EVENT_DEVICE_FATAL comes once");
	ktap_result(of_qp == 1, "the end of the receive QP comes once, as IBV_EVENT_QP_FATAL");
	return ktap_end();
}
