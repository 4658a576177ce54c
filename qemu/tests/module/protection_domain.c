// SPDX-License-Identifier: GPL-2.0
/*
 * The protection domain is the boundary: a sender can access by a receive QP
 * only memory of the protection domain of the SRQ that it names. The QP
 * itself is in the kernel's, where no memory is. So processes that share a
 * domain and a connection do not share their memory.
 *
 * tags: long-debug vmlx4 long-vmlx4 vmlx5 traced
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/boundary"

enum { DEPTH = 4, SIZE = 64 };

static struct actor b, c, remote_actor;
static struct member_info *mb, *mc;
static struct remote *remote;
static struct write *write_;
static uint32_t *stranger;	/* an rkey of B's memory in another protection domain of B */

/* ---- acts ---- */

static int register_memory_elsewhere(void *argument)
{
	struct member_info *member_info = argument;
	struct ibv_pd *pd = ibv_alloc_pd(member.node.context);
	struct ibv_mr *mr;

	if (!pd)
		return -errno;
	mr = ibv_reg_mr(pd, member_info->buffers, DEPTH * SIZE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		return -errno;
	*stranger = mr->rkey;
	return 0;
}

static int connect_to_sender(void *argument)
{
	(void)argument;
	return rcv_to_state(member.domain, mb->qp_num, IBV_QPS_RESET) ?:
	       member_to_init(mb) ?: member_to_rtr(mb);
}

/* ---- scenarios ---- */

/* A write to B's memory, by way of an SRQ; whether it arrived. */
static enum ibv_wc_status written(const struct member_info *by, uint32_t rkey, bool *arrived)
{
	uint64_t *target = (uint64_t *)mb->buffers;

	memset(mb->buffers, 0xee, DEPTH * SIZE);
	*write_ = (struct write) {
		.srq_num = by->srq_num,
		.address = (uintptr_t)mb->buffers,
		.rkey = rkey,
	};
	/* Also after the error before. */
	if (!(DO(b, connect_to_sender, NULL) && DO(remote_actor, sender_connect, NULL)))
		return IBV_WC_GENERAL_ERR;
	actor_do(&remote_actor, sender_write, write_);
	*arrived = *target != 0xeeeeeeeeeeeeeeeeull;
	if (write_->status)
		ktap_note("the sender sees: %s", ibv_wc_status_str(write_->status));
	return write_->status;
}

static bool allowed(const struct member_info *by, uint32_t rkey)
{
	bool arrived = false;

	return written(by, rkey, &arrived) == IBV_WC_SUCCESS && arrived;
}

/* The receive QP is in ERR a moment after the answer, and would be so after a RESET. */
static bool is_broken(void)
{
	unsigned int tries;
	int state = -1;

	for (tries = 0; tries < PATIENCE_MS / 10 && state != IBV_QPS_ERR; tries++) {
		state = actor_do(&b, member_state, mb);
		if (state != IBV_QPS_ERR)
			usleep(10000);
	}
	return state == IBV_QPS_ERR || ktap_wrong("the receive QP is in state %d", state);
}

static bool refused(const struct member_info *by, uint32_t rkey)
{
	bool arrived = true;

	return written(by, rkey, &arrived) == IBV_WC_REM_ACCESS_ERR && !arrived && is_broken();
}

static bool prepared(void)
{
	remote = remote_new(SIZE);
	write_ = share(sizeof(*write_));
	stranger = share(sizeof(*stranger));
	mb = member_info_new(DOMAIN_FILE, DEPTH, SIZE);
	mc = member_info_new(DOMAIN_FILE, DEPTH, SIZE);
	mb->sender = &remote->path;
	actor_start(&remote_actor);
	actor_start(&b);
	actor_start(&c);
	if (!(DO(remote_actor, sender_start, remote) && DO(b, member_join, mb) &&
	      DO(c, member_join, mc) && DO(b, member_alloc_connected, mb) &&
	      DO(b, register_memory_elsewhere, mb)))
		return false;
	remote_aim(remote, mb, mb->qp_num);
	return true;
}

int main(void)
{
	struct counts before;

	ktap_start("the protection domain is the boundary", 6);
	before = count_objects();
	ktap_result(prepared(), "two processes share a connection, each with its SRQ and memory");
	ktap_result(allowed(mb, mb->rkey), "a key of the protection domain of the SRQ works");
	ktap_result(refused(mc, mb->rkey), "a key is refused by another process's SRQ");
	ktap_result(refused(mb, *stranger), "a key of another protection domain of the process is refused");
	ktap_result(allowed(mb, mb->rkey), "a key works again after the QP is connected again");
	actor_exit(&b);
	actor_exit(&c);
	actor_exit(&remote_actor);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
