// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel without the module, or a device it is not attached to: EOPNOTSUPP,
 * and from the OFED layer ENOSYS, as OFED had it, while calls that need no
 * receive QP work.
 *
 * usage: unavailable DEVICE
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <infiniband/ofa_xrc.h>
#include <infiniband/xrc_rcv.h>

#include "ktap.h"

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_qp_init_attr init_attr = { 0 };
	struct ibv_xrcd *xrcd;
	struct ibv_xrc_domain *domain;
	struct ibv_context *context;
	struct xrc_rcv_caps caps;
	uint32_t qpn;

	if (argc != 2)
		errx(2, "usage: unavailable DEVICE");
	while (device && *device && strcmp(ibv_get_device_name(*device), argv[1]))
		device++;
	if (!device || !*device)
		errx(1, "no device %s", argv[1]);
	context = ibv_open_device(*device);
	if (!context)
		err(1, "%s", argv[1]);

	ktap_start("without ib_xrc_rcv", 4);
	ktap_result(xrc_rcv_query_caps(context, &caps, sizeof(caps)) == EOPNOTSUPP,
		    "xrc_rcv_query_caps fails with EOPNOTSUPP");
	xrcd = xrc_rcv_open_domain(context, -1, O_CREAT);
	ktap_result(xrcd ? !xrc_rcv_create_event_channel(xrcd) && errno == EOPNOTSUPP :
			   errno == EOPNOTSUPP,
		    "xrc_rcv_create_event_channel fails with EOPNOTSUPP");
	if (xrcd)
		xrc_rcv_close_domain(xrcd);
	domain = ibv_open_xrc_domain(context, -1, O_CREAT);
	init_attr.xrc_domain = domain;
	if (domain) {
		ktap_result(ibv_create_xrc_rcv_qp(&init_attr, &qpn) == ENOSYS,
			    "ibv_create_xrc_rcv_qp fails with ENOSYS");
		ktap_result(!ibv_close_xrc_domain(domain),
			    "ibv_open_xrc_domain succeeds");
	} else {
		ktap_result(errno == ENOSYS,
			    "ibv_open_xrc_domain fails with ENOSYS without XRC");
		ktap_result(true, "a domain that was not opened need not be closed");
	}
	return ktap_end();
}
