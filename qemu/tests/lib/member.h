/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The two kinds of process that scenarios are made of, as acts of an actor
 * (actor.h): a member is in right, has a domain open and an SRQ of its own in
 * it; a sender is in left and has one XRC connection to a receive QP.
 *
 * Message SEQ of a struct traffic is sent to SRQ number SEQ modulo the SRQs; its
 * immediate data is SEQ and its content follows from SEQ. Members compare the
 * messages byte for byte, in order, with nothing missing and nothing more.
 */
#ifndef MEMBER_H
#define MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "node.h"
#include "actor.h"
#include "method.h"

/* The actor's own. */
struct member {
	struct node node;
	struct ibv_xrcd *xrcd;
	struct domain domain;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct member_info *member_info;
	struct registration registration;
	int channel;
};

extern struct member member;

/* A member's data for other processes; from member_info_new(). */
struct member_info {
	char domain_file[64];
	unsigned int depth;		/* of the SRQ; 0: it has none */
	size_t message_size;		/* a buffer's */
	uint8_t *buffers;		/* shared: all see messages while they arrive */
	struct path path;		/* how to reach the member's device; no QP number */
	uint32_t srq_num;
	uint32_t rkey;			/* of the buffers, to write to, at their address */
	uint32_t qp_num;		/* of the receive QP that acts below are about */
	uint32_t flags;			/* for member_alloc() */
	const struct path *sender;	/* the peer of the receive QP */
	bool wants_events;
	bool chooses_events;		/* only these */
	uint64_t events;
	uint64_t serial;		/* of the receive QP, after member_alloc() */
	pid_t child;
};

struct member_info *member_info_new(const char *domain_file, unsigned int depth,
				  size_t message_size);

/* Acts with a struct member_info *. */
act member_join;		/* opens the device and the domain, makes the SRQ */
act member_open_channel;	/* again, for other events: registrations with the old one end */
act member_alloc;		/* ... in RESET */
act member_alloc_connected;	/* ... in RTR, by the same call */
act member_to_init;
act member_to_rtr;
act member_reg;
act member_unreg;
act member_state;		/* the state of the receive QP, or the error */

/*
 * Reads all pages of the program and its libraries, before times are measured: a page that was
 * never used comes from the host, for which the guest's clock does not stop.
 */
act member_load_pages;

/* One more open file of a process that is in right already, with the domain open. */
struct file {
	struct node node;
	struct ibv_xrcd *xrcd;
	struct domain domain;
};

void file_open(struct file *file, const char *domain_file);
/* First the domain, as libibverbs wants it. 0, or a negative errno. */
int file_close(struct file *file);

/* Attributes as masks of MODIFY and ALLOC want them. */
struct ib_uverbs_qp_attr attr_to_init(const struct node *node);
struct ib_uverbs_qp_attr attr_to_rtr(const struct node *node, const struct path *sender);
struct ib_uverbs_qp_attr attr_connected(const struct node *node, const struct path *sender);

struct traffic {
	uint32_t srq_num[8];
	unsigned int srqs;
	uint32_t first, count;
	size_t size;
	/* The sender's account. */
	uint32_t completed;
	enum ibv_wc_status status;	/* of the first that failed */
};

struct delivery {
	struct traffic *traffic;
	unsigned int srq;		/* which of the traffic's is the member's */
	uint32_t qp_num;		/* that it has to come through */
};

act member_receive;		/* a struct delivery *; all of it, or an error */
act member_idle;		/* 0 if nothing arrived that was not asked for */

void fill(uint8_t *data, size_t size, uint32_t seq);
bool holds(const uint8_t *data, size_t size, uint32_t seq);

/* A sender's side; acts with a struct remote *. */
struct remote {
	struct path path;		/* of the sender, for the receive QP */
	struct path target;		/* of the receive QP */
	size_t message_size;
};

struct remote *remote_new(size_t message_size);
/* The way from a sender to a member's device and the receive QP. */
void remote_aim(struct remote *remote, const struct member_info *member_info,
		uint32_t qp_num);

act sender_start;		/* makes its QP; the path is there afterwards */
act sender_connect;		/* to the target; again after an error, too */
act sender_connect_to_nobody;	/* to a target that is gone: requests fail soon */
act sender_send;		/* a struct traffic *: sends all, 0 if all completed */

/* An RDMA WRITE of eight bytes. */
struct write {
	uint32_t srq_num;
	uint64_t address;
	uint32_t rkey;
	enum ibv_wc_status status;
};

act sender_write;		/* a struct write * */

#endif
