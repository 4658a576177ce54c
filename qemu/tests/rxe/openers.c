// SPDX-License-Identifier: GPL-2.0
/*
 * The asynchronous events of a shared XRC target QP: its creator and each context that
 * opened it with ibv_open_qp() get one of an error, under the ibv_qp of their own.
 *
 * tags: part
 */

#include <err.h>
#include <poll.h>
#include <unistd.h>

#include "ktap.h"
#include "node.h"

#define DOMAIN_FILE "/tmp/openers"

enum {
	OPENERS = 2,
	QUIET_MS = 1000,
};

struct opener {
	struct node node;
	struct ibv_xrcd *domain;
	struct ibv_qp *qp;
};

static struct opener creator, openers[OPENERS];

static void join(struct opener *opener)
{
	node_open(&opener->node, "left");
	opener->domain = node_open_domain(&opener->node, DOMAIN_FILE);
}

static void open_qp(struct opener *opener)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = creator.qp->qp_num,
		.xrcd = opener->domain,
		.qp_context = opener,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	opener->qp = ibv_open_qp(opener->node.context, &attr);
	if (!opener->qp)
		err(1, "ibv_open_qp");
}

static void modify(enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = creator.node.port };

	errno = ibv_modify_qp(creator.qp, &attr, mask);
	if (errno)
		err(1, "ibv_modify_qp");
}

static void break_qp(void)
{
	modify(IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(IBV_QPS_ERR, IBV_QP_STATE);
}

static bool has_event(struct opener *opener, int timeout)
{
	struct pollfd ready = { .fd = opener->node.context->async_fd, .events = POLLIN };

	return poll(&ready, 1, timeout) == 1;
}

static bool gets_one_event(struct opener *opener)
{
	struct ibv_async_event event;

	HOLDS(has_event(opener, PATIENCE_MS));
	HOLDS(!ibv_get_async_event(opener->node.context, &event));
	ibv_ack_async_event(&event);
	HOLDS(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
	HOLDS(event.element.qp == opener->qp);
	HOLDS(!has_event(opener, QUIET_MS));
	return true;
}

static bool each_gets_one_event(void)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < OPENERS; i++)
		all &= gets_one_event(&openers[i]);
	return all;
}

/* An opener that has closed the QP gets none; to close it drops an event that is unread. */
static bool closed_with_an_event_unread(void)
{
	HOLDS(!ibv_destroy_qp(openers[0].qp));
	modify(IBV_QPS_RESET, IBV_QP_STATE);
	break_qp();
	HOLDS(has_event(&openers[1], PATIENCE_MS));
	HOLDS(!has_event(&openers[0], QUIET_MS));
	HOLDS(!ibv_destroy_qp(openers[1].qp));
	HOLDS(!has_event(&openers[1], 0));
	return true;
}

static bool closes(struct opener *opener)
{
	HOLDS(!ibv_close_xrcd(opener->domain));
	HOLDS(!ibv_dealloc_pd(opener->node.pd));
	HOLDS(!ibv_close_device(opener->node.context));
	return true;
}

static bool all_close(void)
{
	HOLDS(gets_one_event(&creator));
	HOLDS(!ibv_destroy_qp(creator.qp));
	return closes(&openers[0]) && closes(&openers[1]) && closes(&creator);
}

int main(void)
{
	unsigned int i;

	ktap_start("events of a QP that ibv_open_qp() opened", 4);
	node_enter("left");
	join(&creator);
	creator.qp = node_create_target(&creator.node, creator.domain);
	for (i = 0; i < OPENERS; i++) {
		join(&openers[i]);
		open_qp(&openers[i]);
	}
	break_qp();
	ktap_result(gets_one_event(&creator), "the creator of a QP gets one event of its error");
	ktap_result(each_gets_one_event(), "each opener of the QP gets one");
	ktap_result(closed_with_an_event_unread(), "a closed QP has no events");
	ktap_result(all_close(), "nothing keeps the domain or the device");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
