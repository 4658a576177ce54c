/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The common part of the processes of the OFED tests: an open device and the path to
 * itself, as all of them are on one node. qemu/tests/lib/node.c does the same with
 * mainline's verbs.h; this is written for OFED 1.5's, whose calls and structs are
 * others, and part of user/, which packages have without qemu/.
 */

#ifndef OFED_NODE_H
#define OFED_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct node {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint16_t lid;
	/* RoCE has no LIDs. */
	bool by_gid;
	union ibv_gid gid;
	uint8_t gid_index;
	char buffer[64];
};

/* Ends the process, with a diagnostic, if anything fails. */
void node_open(struct node *node, const char *device);

/* Takes a QP, or a receive QP of a domain, to a state as OFED's programs do. */
struct connection {
	struct ibv_qp *qp;
	struct ibv_xrc_domain *domain;
	uint32_t rcv_qpn;
	uint32_t peer;
};

int to_init(struct node *node, struct connection *c);
int to_rtr(struct node *node, struct connection *c);
int to_rts(struct node *node, struct connection *c);

/* An SRQ in a domain, with a receive posted. */
struct ibv_srq *node_srq(struct node *node, struct ibv_xrc_domain *domain);
int post_receive(struct node *node, struct ibv_srq *srq);

/* A QP that sends to the SRQs behind a receive QP. */
struct ibv_qp *node_sender(struct node *node, struct ibv_xrc_domain *domain);

/* The status of the send's completion, or a negative number. */
int send_to(struct node *node, struct ibv_qp *qp, uint32_t srq_num);

/* The same for a write to memory that the receiver never gave away. */
int write_wildly(struct node *node, struct ibv_qp *qp, uint32_t srq_num);

/* Waits for a completion; false after some seconds. */
bool completion(struct node *node, struct ibv_wc *wc);

#endif
