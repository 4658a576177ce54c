// SPDX-License-Identifier: GPL-2.0
/*
 * A process queries an XRC target QP that it opened with ibv_open_qp(), and
 * modifies, resets and closes it, before and after the creator does.
 * upstream/rdma-core/open-qp has the same as a test of pyverbs.
 *
 * tags: debug vmlx4
 */

#include <err.h>
#include <errno.h>
#include <unistd.h>

#include "ktap.h"
#include "node.h"

#define DOMAIN_FILE "/tmp/opened-qp"

struct process {
	struct node node;
	struct ibv_xrcd *domain;
	struct ibv_qp *qp;
};

static struct process creator, opener;

static void begin(void)
{
	node_open(&creator.node, "left");
	creator.domain = node_open_domain(&creator.node, DOMAIN_FILE);
	creator.qp = node_create_target(&creator.node, creator.domain);
	node_open(&opener.node, "left");
	opener.domain = node_open_domain(&opener.node, DOMAIN_FILE);

	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = creator.qp->qp_num,
		.xrcd = opener.domain,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	opener.qp = ibv_open_qp(opener.node.context, &attr);
	if (!opener.qp)
		err(1, "ibv_open_qp");
}

static bool closes(struct process *process)
{
	HOLDS(!ibv_destroy_qp(process->qp));
	HOLDS(!ibv_close_xrcd(process->domain));
	HOLDS(!ibv_dealloc_pd(process->node.pd));
	HOLDS(!ibv_close_device(process->node.context));
	return true;
}

static bool modify(struct ibv_qp *qp, enum ibv_qp_state state)
{
	int mask = IBV_QP_STATE;
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = creator.node.port };

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	HOLDS(!ibv_modify_qp(qp, &attr, mask));
	return true;
}

static bool modifies(void)
{
	begin();
	HOLDS(opener.qp->qp_num == creator.qp->qp_num);
	HOLDS(modify(opener.qp, IBV_QPS_INIT));
	HOLDS(qp_state(opener.qp) == IBV_QPS_INIT && qp_state(creator.qp) == IBV_QPS_INIT);
	HOLDS(modify(opener.qp, IBV_QPS_RESET));
	HOLDS(qp_state(opener.qp) == IBV_QPS_RESET && qp_state(creator.qp) == IBV_QPS_RESET);
	return closes(&opener) && closes(&creator);
}

static bool closes_first(void)
{
	begin();
	HOLDS(closes(&opener));
	HOLDS(modify(creator.qp, IBV_QPS_INIT));
	return closes(&creator);
}

static bool closes_last(void)
{
	begin();
	HOLDS(closes(&creator));
	HOLDS(modify(opener.qp, IBV_QPS_INIT));
	HOLDS(qp_state(opener.qp) == IBV_QPS_INIT);
	return closes(&opener);
}

int main(void)
{
	ktap_start("an XRC target QP that ibv_open_qp() opened", 3);
	node_enter("left");
	ktap_result(modifies(), "its opener modifies and resets it");
	ktap_result(closes_first(), "its opener closes it, and its creator still has it");
	ktap_result(closes_last(), "its creator closes it, and its opener still has it");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
