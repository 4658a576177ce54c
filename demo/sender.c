// SPDX-License-Identifier: GPL-2.0
/*
 * The process in node left: one connection to the one receive QP of the other
 * node. Each message names the shared receive queue it is for.
 *
 * Orders: connect GID LID QPN PSN, send SRQ TEXT, write SRQ.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "protocol.h"

enum { PSN = 0x100, NO_SUCH_RKEY = 0xbad };

static struct node node;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char buffer[64];

/* Sends, waits for the completion and reports it. */
static void send_and_report(struct ibv_send_wr *wr, uint32_t srq_num)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer,
		.length = sizeof(buffer),
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->qp_type.xrc.remote_srqn = srq_num;
	report("sending", ", \"srq\": %" PRIu32, srq_num);
	errno = ibv_post_send(qp, wr, &bad);
	if (errno)
		err(1, "post");
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	report("sent", ", \"srq\": %" PRIu32 ", \"status\": \"%s\"", srq_num,
	     ibv_wc_status_str(wc.status));
}

static void obey(const char *order)
{
	struct ibv_send_wr wr = {};
	uint32_t srq_num;
	int text;

	if (!strncmp(order, "connect ", 8)) {
		struct path path = parse_path(order + 8);

		path.send_psn = PSN;
		qp_connect(&node, qp, &path);
		report("connected", ", \"qpn\": %" PRIu32, path.qp_num);
	} else if (sscanf(order, "send %" SCNu32 " %n", &srq_num, &text) == 1) {
		snprintf(buffer, sizeof(buffer), "%s", order + text);
		wr.opcode = IBV_WR_SEND;
		send_and_report(&wr, srq_num);
	} else if (sscanf(order, "write %" SCNu32, &srq_num) == 1) {
		/* Without a key that permits it. */
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = 0x1000;
		wr.wr.rdma.rkey = NO_SUCH_RKEY;
		send_and_report(&wr, srq_num);
	} else {
		errx(1, "no such order: %s", order);
	}
}

int main(void)
{
	char order[128];

	prctl(PR_SET_NAME, "sender");
	node_enter("left");
	node_open(&node, "left");
	cq = ibv_create_cq(node.context, 1, NULL, NULL, 0);
	mr = ibv_reg_mr(node.pd, buffer, sizeof(buffer), 0);
	if (!cq || !mr)
		err(1, "CQ and memory");
	qp = node_create_initiator(&node, cq, 1);
	report_ready(&node, qp->qp_num, PSN, 0);
	while (next_order(order, sizeof(order)))
		obey(order);
	return 0;
}
