// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The sending end of a connection to a receive QP, for receiver.c. It uses
 * nothing but libibverbs: a sender cannot tell a receive QP from other QPs.
 *
 * "sender DEVICE INDEX" prints the GID of entry INDEX of port 1 and the number
 * of its QP, which are arguments of the receiver. From standard input it reads
 * the GID and the number of the receive QP, and then messages, a line each:
 * the number of an SRQ and a word to send to it.
 */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_context *context;

	if (!list && errno == ENOSYS)
		errx(1, "no RDMA devices: ib_uverbs is not loaded");
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

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, struct ibv_qp_attr *attr, int mask)
{
	attr->qp_state = state;
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		err(1, "modifying the QP to state %d", state);
}

/* Takes the QP from RESET to RTS, connected to QP @qp_num at @gid. */
static void connect_qp(struct ibv_qp *qp, uint8_t index, const char *gid, uint32_t qp_num)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp_num,
		.min_rnr_timer = 12,
		.timeout = 14,		/* 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7,		/* without an end */
		.ah_attr = { .port_num = 1, .is_global = 1, .grh = { .sgid_index = index, .hop_limit = 64 } },
	};

	if (inet_pton(AF_INET6, gid, &attr.ah_attr.grh.dgid) != 1)
		errx(1, "%s: not a GID", gid);
	modify(qp, IBV_QPS_INIT, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, IBV_QPS_RTR, &attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp, IBV_QPS_RTS, &attr, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Sends @length bytes of @mr to an SRQ, and returns the status of the request. */
static enum ibv_wc_status send_to(uint32_t srq_num, struct ibv_qp *qp, struct ibv_mr *mr,
				  uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr *bad, request = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type = { .xrc = { .remote_srqn = srq_num } },
	};
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *unused;

	errno = ibv_req_notify_cq(qp->send_cq, 0);
	if (!errno)
		errno = ibv_post_send(qp, &request, &bad);
	if (errno || ibv_get_cq_event(qp->send_cq->channel, &cq, &unused))
		err(1, "SEND");
	ibv_ack_cq_events(cq, 1);
	if (ibv_poll_cq(cq, 1, &wc) != 1)
		errx(1, "no completion");
	return wc.status;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
	};
	char text[INET6_ADDRSTRLEN], message[64], *end;
	struct ibv_context *context;
	uint32_t qp_num, srq_num;
	struct ibv_comp_channel *channel;
	enum ibv_wc_status status;
	union ibv_gid gid;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	long index;

	index = argc == 3 ? strtol(argv[2], &end, 0) : -1;
	if (index < 0 || index > 255 || *end || end == argv[2])
		errx(2, "usage: sender DEVICE INDEX");
	context = open_device(argv[1]);
	if (ibv_query_gid(context, 1, index, &gid))
		err(1, "GID %ld of port 1", index);
	init.pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	init.send_cq = channel ? ibv_create_cq(context, 1, NULL, channel, 0) : NULL;
	mr = init.pd ? ibv_reg_mr(init.pd, message, sizeof(message), 0) : NULL;
	if (!init.send_cq || !mr)
		err(1, "PD, CQ and memory");
	qp = ibv_create_qp_ex(context, &init);
	if (!qp)
		err(1, "QP");
	setlinebuf(stdout);
	printf("%s %u\n", inet_ntop(AF_INET6, &gid, text, sizeof(text)), qp->qp_num);

	if (scanf("%45s %u", text, &qp_num) != 2)
		errx(1, "no receive QP");
	connect_qp(qp, index, text, qp_num);
	while (scanf("%u %63s", &srq_num, message) == 2) {
		status = send_to(srq_num, qp, mr, strlen(message));
		printf("%s: %s\n", message, ibv_wc_status_str(status));
	}
	return 0;	/* the kernel destroys what is left */
}
