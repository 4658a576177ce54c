// SPDX-License-Identifier: GPL-2.0
/*
 * packets [INDEX] - connects receive QPs with a sender, by paths of which each attribute differs
 * from the default and from the sender's own, so that it can come from nowhere else: a QP by ALLOC,
 * another by MODIFY, and on InfiniBand a third, which moves to its alternate path. Each gets a
 * message to acknowledge, and another for an SRQ without receives. With INDEX, of right's table of
 * GIDs, MODIFY chooses another GID than ALLOC.
 *
 * Prints a line for each answer that there has to be, "NAME QP PSN FIELD=VALUE...": the name of the
 * QP, the sender's QP, the sequence number, and the fields as nfstest names them.
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "method.h"
#include "node.h"

#define DOMAIN_FILE "/tmp/packets"

enum {
	SIZE = 64,
	DEPTH = 8,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	TIMEOUT = 18,		/* 4.096 us << 18 = 1 s */
	RETRIES = 7,

	/* The syndrome of an AETH. */
	ACK = 0x1f,		/* credits are not counted */
	RNR_NAK = 0x20,		/* and the code of the timer */
};

/* A path, as the receive QP sees it. */
struct way {
	bool has_grh;
	uint8_t sl, path_bits, peer_bits;
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
	uint16_t pkey;
};

static const struct way
	bare = {
		.sl = 3, .path_bits = 1, .peer_bits = 1, .pkey = 0x8001,
		.traffic_class = 0x68, .flow_label = 0x12345, .hop_limit = 63,
	},
	global = {
		.has_grh = true,
		.sl = 6, .path_bits = 1, .peer_bits = 0, .pkey = 0x8001,
		.traffic_class = 0x24, .flow_label = 0x54321, .hop_limit = 9,
	},
	alternate = {
		.has_grh = true,
		.sl = 5, .path_bits = 0, .peer_bits = 1, .pkey = 0xffff,
		.traffic_class = 0x4c, .flow_label = 0xabcde, .hop_limit = 17,
	};

static struct node left, right;
static struct domain domain;
static struct ibv_cq *left_cq, *right_cq;
static struct ibv_mr *message;
static struct ibv_srq *full, *empty;
static uint8_t sent[SIZE], received[SIZE];
/* The first of a connection. They differ, should a sender get the number of one before it. */
static uint32_t first_psn = 0x5a0000;

static bool on_infiniband(void)
{
	return left.lid;
}

/* ---- the sender: its path is the other way round, and has other attributes ---- */

static struct ibv_ah_attr reversed(const struct way *way)
{
	struct ibv_ah_attr address = {
		.port_num = left.port,
		.is_global = way->has_grh || !on_infiniband(),
		.sl = way->sl ^ 8,
		.grh = {
			.dgid = right.gid,
			.sgid_index = left.gid_index,
			.traffic_class = way->traffic_class ^ 0xfc,
			.flow_label = way->flow_label ^ 0xfffff,
			.hop_limit = way->hop_limit + 1,
		},
	};

	if (on_infiniband()) {
		address.dlid = right.lid | way->path_bits;
		address.src_path_bits = way->peer_bits;
	}
	return address;
}

static uint16_t pkey_index(const struct node *node, uint16_t pkey)
{
	int index = on_infiniband() ? node_pkey_index(node, pkey) : 0;

	if (index < 0)
		errx(1, "P_Key %#x is not in the table", pkey);
	return index;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		err(1, "initiator to state %d, mask %#x", attr->qp_state, mask);
}

/* MIGRATION may be NULL. */
static void connect_sender(struct ibv_qp *qp, uint32_t qp_num, const struct way *way,
			   const struct way *migration)
{
	int paths = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = left.port,
		.pkey_index = pkey_index(&left, way->pkey),
		.path_mtu = left.mtu,
		.dest_qp_num = qp_num,
		.ah_attr = reversed(way),
		.sq_psn = first_psn,
		.max_rd_atomic = 1,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = 1,
	};

	modify(qp, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	modify(qp, &attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	attr.qp_state = IBV_QPS_RTS;
	if (migration) {
		attr.alt_ah_attr = reversed(migration);
		attr.alt_port_num = left.port;
		attr.alt_pkey_index = pkey_index(&left, migration->pkey);
		attr.alt_timeout = TIMEOUT;
		attr.path_mig_state = IBV_MIG_REARM;
	}
	modify(qp, &attr, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_MAX_QP_RD_ATOMIC | (migration ? paths : 0));
}

static void send_to(struct ibv_qp *qp, struct ibv_srq *srq, enum ibv_wc_status expected)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	struct ibv_sge sge = { (uintptr_t)sent, SIZE, message->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type.xrc.remote_srqn = srq_number(srq),
	}, *bad;
	struct ibv_wc wc;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		err(1, "send");
	while (ibv_poll_cq(left_cq, 1, &wc) <= 0) {
		if (now_ns() > end)
			errx(1, "a message to SRQ %#x does not complete", srq_number(srq));
		usleep(200);
	}
	if (wc.status != expected)
		errx(1, "a message to SRQ %#x: %s, not %s", srq_number(srq),
		     ibv_wc_status_str(wc.status), ibv_wc_status_str(expected));
}

/* ---- receive QPs ---- */

static struct ib_uverbs_ah_attr address_of(const struct way *way)
{
	struct ib_uverbs_ah_attr address = {
		.port_num = right.port,
		.is_global = way->has_grh || !on_infiniband(),
	};

	if (on_infiniband()) {
		address.dlid = left.lid | way->peer_bits;
		address.sl = way->sl;
		address.src_path_bits = way->path_bits;
	}
	if (!address.is_global)
		return address;
	memcpy(address.grh.dgid, &left.gid, sizeof(address.grh.dgid));
	address.grh.sgid_index = right.gid_index;
	address.grh.traffic_class = way->traffic_class;
	address.grh.flow_label = way->flow_label;
	address.grh.hop_limit = way->hop_limit;
	return address;
}

/* All that ALLOC takes to RTR. */
static struct ib_uverbs_qp_attr connected(uint32_t sender, const struct way *way, uint8_t rnr_timer)
{
	return (struct ib_uverbs_qp_attr) {
		.qp_attr_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_AV |
				IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		.pkey_index = pkey_index(&right, way->pkey),
		.port_num = right.port,
		.qp_access_flags = ACCESS,
		.ah_attr = address_of(way),
		.path_mtu = right.mtu,
		.dest_qp_num = sender,
		.rq_psn = first_psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = rnr_timer,
	};
}

static struct registration alloc(const struct ib_uverbs_qp_attr *attr)
{
	struct registration registration;
	int result = rcv_alloc(domain, 0, attr, NO_CHANNEL, &registration);

	if (result)
		errx(1, "ALLOC: %s", strerror(-result));
	return registration;
}

static void disconnect(struct ibv_qp *sender, const struct registration *registration)
{
	int result;

	errno = ibv_destroy_qp(sender);
	if (errno)
		err(1, "initiator");
	result = rcv_unreg(registration);
	if (result)
		errx(1, "UNREG: %s", strerror(-result));
	first_psn += 0x1000;
}

static void modify_receive_qp(uint32_t qp_num, struct ib_uverbs_qp_attr attr,
			      enum ibv_qp_state state, uint32_t mask)
{
	int result;

	attr.qp_state = state;
	attr.qp_attr_mask = mask | IBV_QP_STATE;
	result = rcv_modify(domain, qp_num, &attr);
	if (result)
		errx(1, "MODIFY to state %d, mask %#x: %s", state, mask, strerror(-result));
}

static void migrates(uint32_t qp_num, enum ibv_mig_state state)
{
	struct ib_uverbs_qp_attr attr;
	int result = rcv_query(domain, qp_num, &attr, NULL);

	if (result || attr.path_mig_state != state)
		errx(1, "QUERY: %s, migration state %u, not %u", strerror(-result),
		     attr.path_mig_state, state);
}

/* ---- expected answers ---- */

static void print_gid(const char *field, const union ibv_gid *gid)
{
	/* A RoCE v2 GID has the IPv4 address in its last bytes. */
	int family = on_infiniband() ? AF_INET6 : AF_INET;
	size_t offset = on_infiniband() ? 0 : 12;
	char text[INET6_ADDRSTRLEN];

	printf(" %s=%s", field, inet_ntop(family, gid->raw + offset, text, sizeof(text)));
}

/*
 * HOP_LIMIT is that of QUERY. With RoCE, the kernel's route to the address decides it, and
 * everything above UDP but the AETH is rxe's own choice.
 */
static void expect(const char *name, const struct way *way, uint32_t sender, uint32_t psn,
		   bool migrated, uint8_t hop_limit, uint8_t syndrome)
{
	printf("%s %#x %#x ib.aeth.syndrome=%#x", name, sender, psn, syndrome);
	if (on_infiniband()) {
		printf(" ib.lrh.sl=%u ib.lrh.slid=%#x ib.lrh.dlid=%#x ib.bth.pkey=%#x ib.bth.migreq=%u",
		       way->sl, right.lid | way->path_bits, left.lid | way->peer_bits, way->pkey,
		       migrated);
		if (way->has_grh) {
			printf(" ib.grh.tclass=%#x ib.grh.flabel=%#x ib.grh.hoplmt=%u",
			       way->traffic_class, way->flow_label, hop_limit);
			print_gid("ib.grh.sgid", &right.gid);
			print_gid("ib.grh.dgid", &left.gid);
		} else {
			printf(" ib.grh=None");
		}
	} else {
		printf(" ip.DSCP=%u ip.ECN=%u ip.TTL=%u", way->traffic_class >> 2,
		       way->traffic_class & 3, hop_limit);
		print_gid("ip.src", &right.gid);
		print_gid("ip.dst", &left.gid);
	}
	printf("\n");
}

static uint8_t hop_limit_of(uint32_t qp_num, const struct way *way)
{
	struct ib_uverbs_qp_attr attr;
	int result = rcv_query(domain, qp_num, &attr, NULL);

	if (result)
		errx(1, "QUERY: %s", strerror(-result));
	return on_infiniband() ? way->hop_limit : attr.ah_attr.grh.hop_limit;
}

/* Message number COUNT of SENDER, to an SRQ that has receives, and one to an SRQ that has none. */
static void answers(const char *name, struct ibv_qp *sender, uint32_t qp_num, unsigned int count,
		    const struct way *way, bool migrated, uint8_t rnr_timer)
{
	uint8_t hop_limit = hop_limit_of(qp_num, way);

	send_to(sender, full, IBV_WC_SUCCESS);
	expect(name, way, sender->qp_num, first_psn + count, migrated, hop_limit, ACK);
	send_to(sender, empty, IBV_WC_RNR_RETRY_EXC_ERR);
	expect(name, way, sender->qp_num, first_psn + count + 1, migrated, hop_limit,
	       RNR_NAK | rnr_timer);
}

static void by_alloc(void)
{
	enum { RNR_TIMER = 13 };
	struct ibv_qp *sender = node_create_initiator(&left, left_cq, 1);
	struct ib_uverbs_qp_attr attr = connected(sender->qp_num, &bare, RNR_TIMER);
	struct registration registration = alloc(&attr);

	connect_sender(sender, registration.qp_num, &bare, NULL);
	answers("alloc", sender, registration.qp_num, 0, &bare, true, RNR_TIMER);
	disconnect(sender, &registration);
}

static void by_modify(void)
{
	enum { RNR_TIMER = 9 };
	struct ibv_qp *sender = node_create_initiator(&left, left_cq, 1);
	struct ib_uverbs_qp_attr attr = connected(sender->qp_num, &global, RNR_TIMER);
	uint32_t init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct registration registration = alloc(NULL);

	modify_receive_qp(registration.qp_num, attr, IBV_QPS_INIT, init);
	modify_receive_qp(registration.qp_num, attr, IBV_QPS_RTR, attr.qp_attr_mask & ~init);
	connect_sender(sender, registration.qp_num, &global, NULL);
	answers("modify", sender, registration.qp_num, 0, &global, true, RNR_TIMER);
	disconnect(sender, &registration);
}

/* MODIFY changes the RNR timer as well, which is the QP's and not a path's. */
static void by_migration(void)
{
	enum { RNR_TIMER = 7, LATER_RNR_TIMER = 11 };
	struct ibv_qp *sender = node_create_initiator(&left, left_cq, 1);
	struct ib_uverbs_qp_attr attr = connected(sender->qp_num, &global, RNR_TIMER);
	struct ibv_qp_attr move = { .qp_state = IBV_QPS_RTS, .path_mig_state = IBV_MIG_MIGRATED };
	struct registration registration;

	attr.qp_attr_mask |= IBV_QP_ALT_PATH;
	attr.alt_ah_attr = address_of(&alternate);
	attr.alt_port_num = right.port;
	attr.alt_pkey_index = pkey_index(&right, alternate.pkey);
	attr.alt_timeout = TIMEOUT;
	registration = alloc(&attr);
	attr.timeout = TIMEOUT;
	attr.path_mig_state = IBV_MIG_REARM;
	attr.min_rnr_timer = LATER_RNR_TIMER;
	modify_receive_qp(registration.qp_num, attr, IBV_QPS_RTS,
			  IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_PATH_MIG_STATE |
			  IBV_QP_MIN_RNR_TIMER);
	connect_sender(sender, registration.qp_num, &global, &alternate);
	send_to(sender, full, IBV_WC_SUCCESS);
	expect("armed", &global, sender->qp_num, first_psn, false, global.hop_limit, ACK);
	migrates(registration.qp_num, IBV_MIG_ARMED);
	modify(sender, &move, IBV_QP_PATH_MIG_STATE);
	answers("alternate", sender, registration.qp_num, 1, &alternate, true, LATER_RNR_TIMER);
	migrates(registration.qp_num, IBV_MIG_MIGRATED);
	disconnect(sender, &registration);
}

/* ---- both ends ---- */

static void choose_gid(struct node *node, int index)
{
	if (ibv_query_gid(node->context, node->port, index, &node->gid))
		err(1, "GID %d", index);
	node->gid_index = index;
}

static void open_node(struct node *node, const char *name)
{
	node_enter(name);
	node_open(node, name);
	if (node->lid)
		choose_gid(node, 0);
}

static void open_both(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)received, .length = SIZE };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_xrcd *xrcd;
	struct ibv_mr *memory;
	unsigned int i;

	open_node(&right, "right");
	xrcd = node_open_domain(&right, DOMAIN_FILE);
	domain = domain_of(xrcd);
	open_node(&left, "left");
	left_cq = ibv_create_cq(left.context, DEPTH, NULL, NULL, 0);
	right_cq = ibv_create_cq(right.context, DEPTH, NULL, NULL, 0);
	if (!left_cq || !right_cq)
		err(1, "CQ");
	message = ibv_reg_mr(left.pd, sent, SIZE, IBV_ACCESS_LOCAL_WRITE);
	memory = ibv_reg_mr(right.pd, received, SIZE, IBV_ACCESS_LOCAL_WRITE);
	if (!message || !memory)
		err(1, "memory region");
	full = node_create_xrc_srq(&right, right.pd, xrcd, right_cq, DEPTH);
	empty = node_create_xrc_srq(&right, right.pd, xrcd, right_cq, DEPTH);
	sge.lkey = memory->lkey;
	for (i = 0; i < DEPTH; i++) {
		errno = ibv_post_srq_recv(full, &wr, &bad);
		if (errno)
			err(1, "receive");
	}
}

int main(int argc, char **argv)
{
	open_both();
	by_alloc();
	if (argc > 1)
		choose_gid(&right, atoi(argv[1]));
	by_modify();
	if (on_infiniband())
		by_migration();
	unlink(DOMAIN_FILE);
	return 0;
}
