/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node of the lab's guest, as seen from a test program: "left" or "right". It
 * is a port of a device, LAB_LEFT or LAB_RIGHT, and with LAB_NETNS in a network
 * namespace of its name (qemu/devices/lib/hooks.sh). A program may enter several
 * nodes, one after the other: objects opened in one stay usable from the next.
 *
 * These are tests: a failure of anything else ends the program with a message.
 */
#ifndef NODE_H
#define NODE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct node {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint8_t port;
	uint16_t lid;		/* 0 on Ethernet */
	union ibv_gid gid;	/* on Ethernet the RoCE v2 one of the IPv4 address */
	int gid_index;
	uint16_t pkey_index;
	enum ibv_mtu mtu;
};

/* The device and the port of a node. */
const char *node_device(const char *name);
uint8_t node_port(const char *name);
/* Whether the nodes are ports of one device. */
bool nodes_share_device(void);
/* Whether the nodes are network namespaces of their names. */
bool nodes_are_namespaces(void);

/* Moves the caller into the node's namespace, with its view of /sys. */
void node_enter(const char *name);

/* Opens the device of the node the caller is in. */
void node_open(struct node *node, const char *name);

/* The index of a P_Key in the table of the node's port, or -1. */
int node_pkey_index(const struct node *node, uint16_t pkey);

struct ibv_xrcd *node_open_domain(struct node *node, const char *path);
struct ibv_srq *node_create_xrc_srq(struct node *node, struct ibv_pd *pd,
				    struct ibv_xrcd *domain, struct ibv_cq *cq,
				    unsigned int depth);
uint32_t srq_number(struct ibv_srq *srq);
struct ibv_qp *node_create_target(struct node *node, struct ibv_xrcd *domain);
struct ibv_qp *node_create_initiator(struct node *node, struct ibv_cq *cq,
				     unsigned int depth);

struct path {
	union ibv_gid gid;	/* of the peer */
	uint16_t lid;		/* of the peer; 0 on Ethernet */
	uint32_t qp_num;	/* of the peer */
	uint32_t send_psn, recv_psn;
	uint8_t timeout;	/* as in ibv_qp_attr; 0: wait for ever */
	uint8_t retries;	/* after a timeout; 0: for ever, with rxe */
};

/* The address vector that leads from the node to a peer. */
struct ibv_ah_attr node_address(const struct node *node, const struct path *path);
void qp_connect(struct node *node, struct ibv_qp *qp, const struct path *path);
enum ibv_qp_state qp_state(struct ibv_qp *qp);

uint64_t now_ns(void);

#endif
