// SPDX-License-Identifier: GPL-2.0
/*
 * operations - one XRC message of every kind and of one and of three packets
 * from left to right, so that a capture of them has every opcode.
 *
 * Prints a line "QP-NUMBER SRQ-NUMBER" per message: the target QP, which is
 * another one each time, and the SRQ that the message names.
 *
 * tags: part
 */

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "ktap.h"
#include "node.h"

enum { SIZE = 9001, MESSAGES = 32, TIMEOUT = 14 };

static uint64_t exposed[SIZE / 8 + 1], local[SIZE / 8 + 1];

static struct ibv_mr *region(struct node *node, void *memory)
{
	struct ibv_mr *mr = ibv_reg_mr(node->pd, memory, sizeof(exposed),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

	if (!mr)
		err(1, "memory region");
	return mr;
}

static void wait_for(struct ibv_cq *cq, enum ibv_wr_opcode opcode)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) <= 0) {
		if (now_ns() > end)
			errx(1, "operation %d does not complete", opcode);
		usleep(200);
	}
	if (wc.status)
		errx(1, "operation %d: %s", opcode, ibv_wc_status_str(wc.status));
}

int main(void)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct node left, right;
	struct ibv_cq *left_cq, *right_cq;
	struct ibv_mr *left_mr, *right_mr;
	struct ibv_xrcd *domain;
	struct ibv_srq *srq;
	unsigned int i, size;

	node_enter("right");
	node_open(&right, "right");
	node_enter("left");
	node_open(&left, "left");
	left_mr = region(&left, local);
	right_mr = region(&right, exposed);
	left_cq = ibv_create_cq(left.context, MESSAGES, NULL, NULL, 0);
	right_cq = ibv_create_cq(right.context, MESSAGES, NULL, NULL, 0);
	if (!left_cq || !right_cq)
		err(1, "CQ");
	domain = node_open_domain(&right, "/tmp/operations.domain");
	srq = node_create_xrc_srq(&right, right.pd, domain, right_cq, MESSAGES);
	for (i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = { (uintptr_t)exposed, SIZE, right_mr->lkey };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

		errno = ibv_post_srq_recv(srq, &wr, &bad);
		if (errno)
			err(1, "receive");
	}

	for (i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		bool atomic = opcodes[i] >= IBV_WR_ATOMIC_CMP_AND_SWP &&
			      opcodes[i] <= IBV_WR_ATOMIC_FETCH_AND_ADD;

		for (size = 8; size <= (atomic ? 8 : SIZE); size += SIZE - 8) {
			struct ibv_qp *initiator = node_create_initiator(&left, left_cq, 1);
			struct ibv_qp *target = node_create_target(&right, domain);
			struct path there = { right.gid, 0, target->qp_num, 0, 0, TIMEOUT, 7 };
			struct path back = { left.gid, 0, initiator->qp_num, 0, 0, TIMEOUT, 7 };
			struct ibv_sge sge = { (uintptr_t)local, size, left_mr->lkey };
			struct ibv_send_wr wr = {
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = opcodes[i],
				.qp_type.xrc.remote_srqn = srq_number(srq),
			}, *bad;

			if (atomic) {
				wr.wr.atomic.remote_addr = (uintptr_t)exposed;
				wr.wr.atomic.rkey = right_mr->rkey;
			} else {
				wr.wr.rdma.remote_addr = (uintptr_t)exposed;
				wr.wr.rdma.rkey = right_mr->rkey;
			}
			qp_connect(&right, target, &back);
			qp_connect(&left, initiator, &there);
			printf("%u %u\n", target->qp_num, srq_number(srq));
			errno = ibv_post_send(initiator, &wr, &bad);
			if (errno)
				err(1, "operation %d", opcodes[i]);
			wait_for(left_cq, opcodes[i]);
		}
	}
	return 0;
}
