// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "node.h"

enum {
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* "DEVICE/PORT" */
static const char *link_of(const char *name)
{
	const char *variable = !strcmp(name, "right") ? "LAB_RIGHT" : "LAB_LEFT";
	const char *link = getenv(variable);

	if (!link || !strchr(link, '/'))
		errx(1, "%s is no DEVICE/PORT", variable);
	return link;
}

const char *node_device(const char *name)
{
	static char devices[2][64];
	char *device = devices[!strcmp(name, "right")];
	const char *link = link_of(name);

	snprintf(device, sizeof(devices[0]), "%.*s", (int)strcspn(link, "/"), link);
	return device;
}

uint8_t node_port(const char *name)
{
	return strtoul(strchr(link_of(name), '/') + 1, NULL, 10);
}

bool nodes_share_device(void)
{
	return !strcmp(node_device("left"), node_device("right"));
}

bool nodes_are_namespaces(void)
{
	const char *namespaces = getenv("LAB_NETNS");

	return namespaces && *namespaces;
}

void node_enter(const char *name)
{
	char path[PATH_MAX];
	int fd;

	if (!nodes_are_namespaces())
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		err(1, "%s", path);
	close(fd);

	/* sysfs shows the devices of the namespace it was mounted in. */
	if (unshare(CLONE_NEWNS) ||
	    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL))
		err(1, "/sys of %s", name);
}

static void find_gid(struct node *node)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; !ibv_query_gid_ex(node->context, node->port, i, &entry, 0); i++) {
		static const uint8_t v4_mapped[12] = { [10] = 0xff, [11] = 0xff };

		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !memcmp(entry.gid.raw, v4_mapped, sizeof(v4_mapped))) {
			node->gid = entry.gid;
			node->gid_index = i;
			return;
		}
	}
	errx(1, "no RoCE v2 GID of an IPv4 address");
}

int node_pkey_index(const struct node *node, uint16_t pkey)
{
	__be16 entry;
	int i;

	for (i = 0; i < 8 && !ibv_query_pkey(node->context, node->port, i, &entry); i++)
		if (ntohs(entry) == pkey)
			return i;
	return -1;
}

/* A partition that the modelled adapter's ports have under different indices, so that the loss of
 * one is noticed; elsewhere the first.
 */
static void find_pkey(struct node *node)
{
	int index = node_pkey_index(node, 0x8001);

	if (index > 0)
		node->pkey_index = index;
}

void node_open(struct node *node, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device;
	struct ibv_port_attr port;
	const char *wanted = node_device(name);

	*node = (struct node){ .port = node_port(name) };
	if (!list)
		err(1, "devices");
	for (device = list; *device; device++)
		if (!strcmp(ibv_get_device_name(*device), wanted))
			break;
	if (!*device)
		errx(1, "no device %s", wanted);

	node->context = ibv_open_device(*device);
	if (!node->context)
		err(1, "%s", wanted);
	ibv_free_device_list(list);

	node->pd = ibv_alloc_pd(node->context);
	if (!node->pd)
		err(1, "pd");
	if (ibv_query_port(node->context, node->port, &port))
		err(1, "port");
	node->mtu = port.active_mtu;
	find_pkey(node);
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		node->lid = port.lid;
	else
		find_gid(node);
}

struct ibv_xrcd *node_open_domain(struct node *node, const char *path)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *domain;

	attr.fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	if (attr.fd < 0)
		err(1, "%s", path);
	domain = ibv_open_xrcd(node->context, &attr);
	if (!domain)
		err(1, "domain of %s", path);
	close(attr.fd);
	return domain;
}

struct ibv_srq *node_create_xrc_srq(struct node *node, struct ibv_pd *pd,
				    struct ibv_xrcd *domain, struct ibv_cq *cq,
				    unsigned int depth)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = depth, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = domain,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(node->context, &attr);

	if (!srq)
		err(1, "XRC SRQ");
	return srq;
}

uint32_t srq_number(struct ibv_srq *srq)
{
	uint32_t number;

	errno = ibv_get_srq_num(srq, &number);
	if (errno)
		err(1, "number of an SRQ");
	return number;
}

struct ibv_qp *node_create_target(struct node *node, struct ibv_xrcd *domain)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = domain,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(node->context, &attr);

	if (!qp)
		err(1, "target QP");
	return qp;
}

struct ibv_qp *node_create_initiator(struct node *node, struct ibv_cq *cq,
				     unsigned int depth)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = node->pd,
		.send_cq = cq,
		.cap = { .max_send_wr = depth, .max_send_sge = 1 },
		.sq_sig_all = 1,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(node->context, &attr);

	/* libmlx4 has the old post API only. */
	if (!qp && errno == EOPNOTSUPP) {
		attr.comp_mask &= ~IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		qp = ibv_create_qp_ex(node->context, &attr);
	}
	if (!qp)
		err(1, "initiator QP");
	return qp;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		err(1, "QP %#x to state %d", qp->qp_num, attr->qp_state);
}

struct ibv_ah_attr node_address(const struct node *node, const struct path *path)
{
	struct ibv_ah_attr address = { .port_num = node->port };

	if (node->lid) {
		address.dlid = path->lid;
		return address;
	}
	address.is_global = 1;
	address.grh.dgid = path->gid;
	address.grh.sgid_index = node->gid_index;
	address.grh.hop_limit = 64;
	return address;
}

void qp_connect(struct node *node, struct ibv_qp *qp, const struct path *path)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = node->pkey_index,
		.port_num = node->port,
		.qp_access_flags = ACCESS,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = node->mtu,
		.dest_qp_num = path->qp_num,
		.rq_psn = path->recv_psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = node_address(node, path),
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = path->send_psn,
		.max_rd_atomic = 4,
		.timeout = path->timeout,
		.retry_cnt = path->retries ?: 7,
		.rnr_retry = 7,
	};

	modify(qp, &init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, &rtr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN |
			 (qp->qp_type == IBV_QPT_XRC_SEND ? 0 :
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	if (qp->qp_type != IBV_QPT_XRC_RECV)
		modify(qp, &rts, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	errno = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	if (errno)
		err(1, "state of QP %#x", qp->qp_num);
	return attr.qp_state;
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}
