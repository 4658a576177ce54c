// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"

enum {
	SEND_DEPTH = 8,
	/* rxe answers when its workers have run, which takes any time on a busy host. */
	TIMEOUT = 18,		/* 4.096 us << 18 = 1 s */
	RETRIES = 7,		/* with rxe for ever */
	/* Where no answer comes. */
	BRIEF_TIMEOUT = 14,	/* 67 ms */
	FEW_RETRIES = 6,
};

struct member member = { .channel = NO_CHANNEL };

static struct {
	struct node node;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffers;
	struct remote *remote;
} sender;

struct member_info *member_info_new(const char *domain_file, unsigned int depth,
				  size_t message_size)
{
	struct member_info *member_info = share(sizeof(*member_info));

	snprintf(member_info->domain_file, sizeof(member_info->domain_file), "%s", domain_file);
	member_info->depth = depth;
	member_info->message_size = message_size;
	if (depth)
		member_info->buffers = share(depth * message_size);
	return member_info;
}

/* Word I of message SEQ is in no other message, nor elsewhere in this one. */
static uint64_t word(uint32_t seq, size_t i)
{
	uint64_t x = ((uint64_t)seq << 32 | i) + 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	return x ^ (x >> 27);
}

void fill(uint8_t *data, size_t size, uint32_t seq)
{
	uint64_t *words = (uint64_t *)data;
	size_t i;

	for (i = 0; i < size / sizeof(*words); i++)
		words[i] = word(seq, i);
}

bool holds(const uint8_t *data, size_t size, uint32_t seq)
{
	const uint64_t *words = (const uint64_t *)data;
	size_t i;

	for (i = 0; i < size / sizeof(*words); i++)
		if (words[i] != word(seq, i))
			return false;
	return true;
}

/* ---- members ---- */

static int post(unsigned int buffer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)member.member_info->buffers +
			buffer * member.member_info->message_size,
		.length = member.member_info->message_size,
		.lkey = member.mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_srq_recv(member.srq, &wr, &bad);
}

static int make_srq(void)
{
	struct member_info *member_info = member.member_info;
	unsigned int buffer;
	int result;

	member.cq = ibv_create_cq(member.node.context, member_info->depth, NULL, NULL, 0);
	if (!member.cq)
		return -errno;
	member.mr = ibv_reg_mr(member.node.pd, member_info->buffers,
			       member_info->depth * member_info->message_size,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!member.mr)
		return -errno;
	member.srq = node_create_xrc_srq(&member.node, member.node.pd, member.xrcd,
					 member.cq, member_info->depth);
	member_info->srq_num = srq_number(member.srq);
	member_info->rkey = member.mr->rkey;
	for (buffer = 0; buffer < member_info->depth; buffer++) {
		result = post(buffer);
		if (result)
			return result;
	}
	return 0;
}

void file_open(struct file *file, const char *domain_file)
{
	node_open(&file->node, "right");
	file->xrcd = node_open_domain(&file->node, domain_file);
	file->domain = domain_of(file->xrcd);
}

int file_close(struct file *file)
{
	return -ibv_close_xrcd(file->xrcd) ?: -ibv_dealloc_pd(file->node.pd) ?:
	       -ibv_close_device(file->node.context);
}

int member_open_channel(void *argument)
{
	struct member_info *member_info = argument;

	if (member.channel != NO_CHANNEL)
		close(member.channel);
	member.channel = rcv_channel_with(member.domain, NULL, member_info->chooses_events ?
							       &member_info->events : NULL);
	return member.channel < 0 ? member.channel : 0;
}

int member_join(void *argument)
{
	struct member_info *member_info = argument;
	int result = 0;

	member.member_info = member_info;
	node_enter("right");
	node_open(&member.node, "right");
	member.xrcd = node_open_domain(&member.node, member_info->domain_file);
	member.domain = domain_of(member.xrcd);
	member_info->path.gid = member.node.gid;
	member_info->path.lid = member.node.lid;
	if (member_info->wants_events)
		result = member_open_channel(member_info);
	return result ?: member_info->depth ? make_srq() : 0;
}

struct ib_uverbs_qp_attr attr_to_init(const struct node *node)
{
	return (struct ib_uverbs_qp_attr) {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				IBV_QP_ACCESS_FLAGS,
		.qp_state = IBV_QPS_INIT,
		.pkey_index = node->pkey_index,
		.port_num = node->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
}

struct ib_uverbs_qp_attr attr_to_rtr(const struct node *node, const struct path *sender)
{
	struct ibv_ah_attr address = node_address(node, sender);
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		.qp_state = IBV_QPS_RTR,
		.path_mtu = node->mtu,
		.dest_qp_num = sender->qp_num,
		.rq_psn = sender->send_psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {
			.grh = {
				.sgid_index = address.grh.sgid_index,
				.hop_limit = address.grh.hop_limit,
			},
			.dlid = address.dlid,
			.is_global = address.is_global,
			.port_num = address.port_num,
		},
	};

	memcpy(attr.ah_attr.grh.dgid, &address.grh.dgid, sizeof(attr.ah_attr.grh.dgid));
	return attr;
}

struct ib_uverbs_qp_attr attr_connected(const struct node *node, const struct path *sender)
{
	struct ib_uverbs_qp_attr init = attr_to_init(node), attr = attr_to_rtr(node, sender);

	attr.qp_attr_mask |= init.qp_attr_mask;
	attr.pkey_index = init.pkey_index;
	attr.port_num = init.port_num;
	attr.qp_access_flags = init.qp_access_flags;
	return attr;
}

static int alloc(struct member_info *member_info, const struct ib_uverbs_qp_attr *attr)
{
	int result = rcv_alloc(member.domain, member_info->flags, attr, member.channel,
			       &member.registration);

	member_info->qp_num = member.registration.qp_num;
	member_info->serial = member.registration.serial;
	return result;
}

int member_alloc(void *argument)
{
	return alloc(argument, NULL);
}

int member_alloc_connected(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, member_info->sender);

	return alloc(member_info, &attr);
}

int member_to_init(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);

	return rcv_modify(member.domain, member_info->qp_num, &attr);
}

int member_to_rtr(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_to_rtr(&member.node, member_info->sender);

	return rcv_modify(member.domain, member_info->qp_num, &attr);
}

int member_reg(void *argument)
{
	struct member_info *member_info = argument;

	return rcv_reg(member.domain, member_info->qp_num, member.channel, &member.registration);
}

int member_unreg(void *argument)
{
	(void)argument;
	return rcv_unreg(&member.registration);
}

int member_state(void *argument)
{
	struct member_info *member_info = argument;
	struct xrc_rcv_qp_info info;
	int result = rcv_query(member.domain, member_info->qp_num, NULL, &info);

	return result ? result : (int)info.state;
}

int member_load_pages(void *argument)
{
	(void)argument;
	return mlockall(MCL_CURRENT) || munlockall() ? -errno : 0;
}

/* Waits for a completion; false if none came. */
static bool poll_for(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	unsigned int pause = 100;

	while (!ibv_poll_cq(cq, 1, wc)) {
		if (now_ns() > end)
			return false;
		/* Emulated, the waiting processes would have all of the CPU. */
		usleep(pause);
		if (pause < 10000)
			pause *= 2;
	}
	return true;
}

static int check(const struct delivery *delivery, uint32_t seq, const struct ibv_wc *wc)
{
	const struct member_info *member_info = member.member_info;
	const char *what;

	if (wc->status)
		what = ibv_wc_status_str(wc->status);
	else if (!(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) != seq)
		what = "another message";
	else if (wc->byte_len != delivery->traffic->size)
		what = "another size";
	else if (wc->qp_num != delivery->qp_num)
		what = "another QP";
	else if (!holds(member_info->buffers + wc->wr_id * member_info->message_size,
			wc->byte_len, seq))
		what = "damaged";
	else
		return 0;
	warnx("SRQ %#x, message %u: %s (message %u, %u bytes, QP %#x)",
	      member_info->srq_num, seq, what, ntohl(wc->imm_data), wc->byte_len, wc->qp_num);
	return -EBADMSG;
}

int member_receive(void *argument)
{
	struct delivery *delivery = argument;
	struct traffic *traffic = delivery->traffic;
	uint32_t seq;
	int result;

	for (seq = traffic->first; seq != traffic->first + traffic->count; seq++) {
		struct ibv_wc wc;

		if (seq % traffic->srqs != delivery->srq)
			continue;
		if (!poll_for(member.cq, &wc)) {
			warnx("SRQ %#x: message %u did not come", member.member_info->srq_num, seq);
			return -ETIMEDOUT;
		}
		result = check(delivery, seq, &wc);
		if (!result)
			result = post(wc.wr_id);
		if (result)
			return result;
	}
	return 0;
}

int member_idle(void *argument)
{
	struct ibv_wc wc;

	(void)argument;
	return ibv_poll_cq(member.cq, 1, &wc) ? -EBADMSG : 0;
}

/* ---- senders ---- */

struct remote *remote_new(size_t message_size)
{
	struct remote *remote = share(sizeof(*remote));

	remote->message_size = message_size;
	return remote;
}

void remote_aim(struct remote *remote, const struct member_info *member_info,
		uint32_t qp_num)
{
	remote->target = member_info->path;
	remote->target.qp_num = qp_num;
	remote->target.send_psn = remote->path.send_psn;
	remote->target.timeout = TIMEOUT;
	remote->target.retries = RETRIES;
}

int sender_start(void *argument)
{
	struct remote *remote = argument;

	sender.remote = remote;
	node_enter("left");
	node_open(&sender.node, "left");
	sender.cq = ibv_create_cq(sender.node.context, SEND_DEPTH, NULL, NULL, 0);
	if (!sender.cq)
		return -errno;
	sender.buffers = share(SEND_DEPTH * remote->message_size);
	sender.mr = ibv_reg_mr(sender.node.pd, sender.buffers,
			       SEND_DEPTH * remote->message_size, IBV_ACCESS_LOCAL_WRITE);
	if (!sender.mr)
		return -errno;
	sender.qp = node_create_initiator(&sender.node, sender.cq, SEND_DEPTH);
	remote->path = (struct path) {
		.gid = sender.node.gid,
		.lid = sender.node.lid,
		.qp_num = sender.qp->qp_num,
		.send_psn = 0x123456,
	};
	return 0;
}

int sender_connect(void *argument)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	(void)argument;
	if (ibv_modify_qp(sender.qp, &attr, IBV_QP_STATE))
		return -errno;
	qp_connect(&sender.node, sender.qp, &sender.remote->target);
	return 0;
}

int sender_connect_to_nobody(void *argument)
{
	sender.remote->target.timeout = BRIEF_TIMEOUT;
	sender.remote->target.retries = FEW_RETRIES;
	return sender_connect(argument);
}

static int post_send(const struct traffic *traffic, uint32_t seq)
{
	size_t size = sender.remote->message_size;
	uint8_t *data = sender.buffers + seq % SEND_DEPTH * size;
	struct ibv_sge sge = {
		.addr = (uintptr_t)data,
		.length = traffic->size,
		.lkey = sender.mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = seq,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(seq),
		.qp_type.xrc.remote_srqn = traffic->srq_num[seq % traffic->srqs],
	}, *bad;

	fill(data, traffic->size, seq);
	return -ibv_post_send(sender.qp, &wr, &bad);
}

/* rxe completes a request with an error before its QP is in ERR, which would undo a RESET. */
static int fails(void)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;

	while (qp_state(sender.qp) != IBV_QPS_ERR) {
		if (now_ns() > end)
			return -ETIMEDOUT;
		usleep(1000);
	}
	return -EIO;
}

int sender_send(void *argument)
{
	struct traffic *traffic = argument;
	uint32_t posted = 0, done = 0;
	struct ibv_wc wc;
	int result;

	traffic->completed = 0;
	traffic->status = IBV_WC_SUCCESS;
	while (done < traffic->count) {
		while (!traffic->status && posted < traffic->count &&
		       posted - done < SEND_DEPTH) {
			result = post_send(traffic, traffic->first + posted);
			if (result)
				return result;
			posted++;
		}
		if (done == posted)
			break;
		if (!poll_for(sender.cq, &wc))
			return -ETIMEDOUT;
		done++;
		if (!wc.status)
			traffic->completed++;
		else if (!traffic->status)
			traffic->status = wc.status;
	}
	return traffic->status ? fails() : 0;
}

int sender_write(void *argument)
{
	struct write *write = argument;
	struct ibv_sge sge = {
		.addr = (uintptr_t)sender.buffers,
		.length = sizeof(uint64_t),
		.lkey = sender.mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = write->address,
			.rkey = write->rkey,
		},
		.qp_type.xrc.remote_srqn = write->srq_num,
	}, *bad;
	struct ibv_wc wc;
	int result;

	result = -ibv_post_send(sender.qp, &wr, &bad);
	if (result)
		return result;
	if (!poll_for(sender.cq, &wc))
		return -ETIMEDOUT;
	write->status = wc.status;
	return wc.status ? fails() : 0;
}
