// SPDX-License-Identifier: GPL-2.0
#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "ofed_node.h"

/* RoCE version 2 over IPv4, if there is one; else the last entry there is. */
static void find_gid(struct node *node)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };
	union ibv_gid gid, none = { 0 };
	int i;

	for (i = 0; i < 16; i++) {
		if (ibv_query_gid(node->context, 1, i, &gid) ||
		    !memcmp(&gid, &none, sizeof(gid)))
			continue;
		node->gid = gid;
		node->gid_index = i;
		if (!memcmp(gid.raw, ipv4, sizeof(ipv4)))
			break;
	}
}

void node_open(struct node *node, const char *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d = list;
	struct ibv_port_attr port;

	while (d && *d && strcmp(ibv_get_device_name(*d), device))
		d++;
	if (!d || !*d)
		errx(1, "no device %s", device);
	memset(node, 0, sizeof(*node));
	node->context = ibv_open_device(*d);
	ibv_free_device_list(list);
	if (!node->context)
		err(1, "%s", device);
	if (ibv_query_port(node->context, 1, &port))
		err(1, "%s port 1", device);
	node->lid = port.lid;
	node->by_gid = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	find_gid(node);

	node->pd = ibv_alloc_pd(node->context);
	node->cq = ibv_create_cq(node->context, 64, NULL, NULL, 0);
	if (!node->pd || !node->cq)
		err(1, "PD and CQ");
	node->mr = ibv_reg_mr(node->pd, node->buffer, sizeof(node->buffer),
			      IBV_ACCESS_LOCAL_WRITE);
	if (!node->mr)
		err(1, "MR");
}

static int modify(struct connection *c, struct ibv_qp_attr *attr, int mask)
{
	if (c->qp)
		return ibv_modify_qp(c->qp, attr, mask);
	return ibv_modify_xrc_rcv_qp(c->domain, c->rcv_qpn, attr, mask);
}

int to_init(struct node *node, struct connection *c)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	(void)node;
	return modify(c, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		      IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct node *node, struct connection *c)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = c->peer,
		.rq_psn = 0,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.dlid = node->lid,
			.port_num = 1,
			.is_global = node->by_gid,
			.grh = {
				.dgid = node->gid,
				.sgid_index = node->gid_index,
				.hop_limit = 64,
			},
		},
	};

	return modify(c, &attr,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct node *node, struct connection *c)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	(void)node;
	return modify(c, &attr,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		      IBV_QP_MAX_QP_RD_ATOMIC);
}

int post_receive(struct node *node, struct ibv_srq *srq)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)node->buffer,
		.length = sizeof(node->buffer),
		.lkey = node->mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

struct ibv_srq *node_srq(struct node *node, struct ibv_xrc_domain *domain)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq;

	srq = ibv_create_xrc_srq(node->pd, domain, node->cq, &attr);
	if (srq && post_receive(node, srq))
		errx(1, "post_srq_recv");
	return srq;
}

struct ibv_qp *node_sender(struct node *node, struct ibv_xrc_domain *domain)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 1 },
		.qp_type = IBV_QPT_XRC,
		.xrc_domain = domain,
	};

	return ibv_create_qp(node->pd, &attr);
}

bool completion(struct node *node, struct ibv_wc *wc)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i, n;

	for (i = 0; i < PATIENCE_MS; i++) {
		n = ibv_poll_cq(node->cq, 1, wc);
		if (n)
			return n == 1;
		nanosleep(&pause, NULL);
	}
	return false;
}

static int post(struct node *node, struct ibv_qp *qp, uint32_t srq_num,
		enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)node->buffer,
		.length = sizeof(node->buffer),
		.lkey = node->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.rkey = 0xbad,
		.xrc_remote_srq_num = srq_num,
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (ibv_post_send(qp, &wr, &bad))
		return -1;
	return completion(node, &wc) ? (int)wc.status : -2;
}

int send_to(struct node *node, struct ibv_qp *qp, uint32_t srq_num)
{
	return post(node, qp, srq_num, IBV_WR_SEND);
}

int write_wildly(struct node *node, struct ibv_qp *qp, uint32_t srq_num)
{
	return post(node, qp, srq_num, IBV_WR_RDMA_WRITE);
}
