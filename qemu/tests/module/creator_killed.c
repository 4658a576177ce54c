// SPDX-License-Identifier: GPL-2.0
/*
 * The reason the module exists. Process A creates a receive QP, B and C
 * register, A is killed: before, between and after the steps that make the QP
 * ready, and in the middle of a message. B and C continue, each on its own SRQ,
 * with one and the same remote sender, and no message is lost, damaged or
 * delivered to the other. The QP is destroyed when the last of them unregisters.
 *
 * tags: debug vmlx4 long-vmlx4 vmlx5 traced
 */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/survive"

enum {
	DEPTH = 8,
	SIZE = 2048,
	MESSAGES = 100,
	ATTEMPTS = 10,
};

enum stage { RESET, INIT, RTR, REGISTERED, IN_MESSAGE };

/* The bytes of a message that takes long enough to be hit in its middle. */
static size_t long_message(void)
{
	return memory_is_checked() ? 1 << 20 : 4 << 20;
}

static const char *const names[] = {
	[RESET] = "in RESET",
	[INIT] = "in INIT",
	[RTR] = "in RTR",
	[REGISTERED] = "while messages flow",
	[IN_MESSAGE] = "in the middle of a message",
};

static struct actor a, b, c, observer, remote_actor;
static struct member_info *ma, *mb, *mc, *mo;
static struct remote *remote;
static struct traffic *traffic;
static struct delivery *to_b, *to_c;

static bool enter(size_t size)
{
	ma = member_info_new(DOMAIN_FILE, 0, 0);
	mb = member_info_new(DOMAIN_FILE, DEPTH, size);
	mc = member_info_new(DOMAIN_FILE, DEPTH, size);
	mo = member_info_new(DOMAIN_FILE, 0, 0);
	remote = remote_new(size);
	traffic = share(sizeof(*traffic));
	to_b = share(sizeof(*to_b));
	to_c = share(sizeof(*to_c));
	ma->sender = mb->sender = mc->sender = &remote->path;
	actor_start(&a);
	actor_start(&b);
	actor_start(&c);
	actor_start(&observer);
	actor_start(&remote_actor);
	return DO(remote_actor, sender_start, remote) && DO(a, member_join, ma) &&
	       DO(b, member_join, mb) && DO(c, member_join, mc) &&
	       DO(observer, member_join, mo);
}

static void leave(void)
{
	actor_exit(&a);
	actor_exit(&b);
	actor_exit(&c);
	actor_exit(&observer);
	actor_exit(&remote_actor);
	unlink(DOMAIN_FILE);
}

/* A has to be a member for the others to be able to register. */
static bool others_register(void)
{
	mb->qp_num = mc->qp_num = mo->qp_num = ma->qp_num;
	return DO(b, member_reg, mb) && DO(c, member_reg, mc);
}

static bool connected(void)
{
	remote_aim(remote, mb, ma->qp_num);
	return DO(remote_actor, sender_connect, remote);
}

static void plan(uint32_t count, size_t size)
{
	traffic->srq_num[0] = mb->srq_num;
	traffic->srq_num[1] = mc->srq_num;
	traffic->srqs = 2;
	traffic->first += traffic->count;
	traffic->count = count;
	traffic->size = size;
	*to_b = (struct delivery) { traffic, 0, ma->qp_num };
	*to_c = (struct delivery) { traffic, 1, ma->qp_num };
}

static void begin_traffic(void)
{
	actor_begin(&b, member_receive, to_b);
	actor_begin(&c, member_receive, to_c);
	actor_begin(&remote_actor, sender_send, traffic);
}

static bool end_traffic(void)
{
	bool sent = succeeded("sender", actor_wait(&remote_actor));
	bool at_b = succeeded("B receives", actor_wait(&b));
	bool at_c = succeeded("C receives", actor_wait(&c));

	return sent && at_b && at_c && DO(b, member_idle, NULL) && DO(c, member_idle, NULL);
}

static bool messages_flow(uint32_t count, size_t size)
{
	plan(count, size);
	begin_traffic();
	return end_traffic();
}

/* Whether A has exited when the first word of a message to B was there and the last was not. */
static bool hit;

static bool kill_in_message(void)
{
	uint64_t *first = (uint64_t *)mb->buffers;
	uint64_t *last = (uint64_t *)(mb->buffers + mb->message_size) - 1;

	traffic->first = 0;
	traffic->count = 0;
	plan(4, mb->message_size);
	begin_traffic();
	while (!__atomic_load_n(first, __ATOMIC_RELAXED))
		usleep(200);
	actor_kill(&a);
	hit = !__atomic_load_n(last, __ATOMIC_RELAXED);
	return end_traffic();
}

static bool killed_at(enum stage stage)
{
	bool done;

	switch (stage) {
	case RESET:
		done = DO(a, member_alloc, ma) && others_register();
		actor_kill(&a);
		return done && DO(b, member_to_init, mb) && DO(c, member_to_rtr, mc) &&
		       connected() && messages_flow(MESSAGES, SIZE);
	case INIT:
		done = DO(a, member_alloc, ma) && DO(a, member_to_init, ma) &&
		       others_register();
		actor_kill(&a);
		return done && DO(b, member_to_rtr, mb) && connected() &&
		       messages_flow(MESSAGES, SIZE);
	case RTR:
		done = DO(a, member_alloc_connected, ma) && others_register();
		actor_kill(&a);
		return done && connected() && messages_flow(MESSAGES, SIZE);
	case REGISTERED:
		done = DO(a, member_alloc_connected, ma) && others_register() &&
		       connected() && messages_flow(10, SIZE);
		plan(MESSAGES, SIZE);
		begin_traffic();
		actor_kill(&a);
		return end_traffic() && done;
	case IN_MESSAGE:
		return DO(a, member_alloc_connected, ma) && others_register() &&
		       connected() && kill_in_message();
	}
	return false;
}

/* The guest may not run A's killer before the message is there: then all of it once more. */
static bool killed_in_message(void)
{
	unsigned int attempts;

	for (attempts = 1; killed_at(IN_MESSAGE); attempts++) {
		if (hit)
			return true;
		ktap_note("the message was there before A had exited");
		if (attempts == ATTEMPTS)
			return false;
		leave();
		if (!enter(long_message()))
			return false;
	}
	return false;
}

/* A registration less does not matter, the last one does; unreg and exit are one. */
static bool ends_with_the_last(void)
{
	bool right = true;

	actor_exit(&b);
	if (!qp_is_shown(ma->qp_num)) {
		ktap_note("destroyed with B, though C is registered");
		right = false;
	}
	plan(8, SIZE);
	traffic->srq_num[0] = mc->srq_num;
	traffic->srqs = 1;
	*to_c = (struct delivery) { traffic, 0, ma->qp_num };
	actor_begin(&c, member_receive, to_c);
	right &= DO(remote_actor, sender_send, traffic);
	right &= succeeded("C receives alone", actor_wait(&c));

	right &= DO(c, member_unreg, mc);
	if (qp_is_shown(ma->qp_num)) {
		ktap_note("still there after the last registration");
		right = false;
	}
	right &= actor_do(&observer, member_state, mo) == -EINVAL;
	right &= actor_do(&observer, member_reg, mo) == -EINVAL;
	right &= actor_do(&c, member_reg, mc) == -EINVAL;

	/* The number does not answer the sender any more. */
	plan(1, SIZE);
	right &= DO(remote_actor, sender_connect_to_nobody, NULL);
	right &= actor_do(&remote_actor, sender_send, traffic) == -EIO;
	if (traffic->status != IBV_WC_RETRY_EXC_ERR) {
		ktap_note("the sender sees %s", ibv_wc_status_str(traffic->status));
		right = false;
	}
	return right && DO(c, member_idle, NULL);
}

/* Without others the QP is its creator's, in whichever step of its creation. */
static bool alone(enum stage stage)
{
	bool done = false, shown;

	switch (stage) {
	case RESET:
		done = DO(a, member_alloc, ma);
		break;
	case INIT:
		done = DO(a, member_alloc, ma) && DO(a, member_to_init, ma);
		break;
	default:
		done = DO(a, member_alloc_connected, ma);
	}
	shown = qp_is_shown(ma->qp_num);
	mo->qp_num = ma->qp_num;
	actor_kill(&a);
	return done && shown && !qp_is_shown(ma->qp_num) &&
	       actor_do(&observer, member_state, mo) == -EINVAL;
}

int main(void)
{
	/* On a modelled adapter a message travels as a whole, and has no middle to be hit. */
	enum stage last = device_is_modelled() || nodes_share_device() ? REGISTERED : IN_MESSAGE;
	struct counts before;
	char text[128];
	enum stage stage;

	ktap_start("receive QPs survive their creator", 2 * (last + 1) + 4);
	before = count_objects();
	for (stage = RESET; stage <= last; stage++) {
		bool entered = enter(stage == IN_MESSAGE ? long_message() : SIZE);

		snprintf(text, sizeof(text),
			 "A killed %s: B and C receive every message", names[stage]);
		entered = ktap_result(entered && (stage == IN_MESSAGE ? killed_in_message() :
							killed_at(stage)), text);
		snprintf(text, sizeof(text),
			 "A killed %s: the QP is destroyed with the last registration", names[stage]);
		ktap_result(entered && ends_with_the_last(), text);
		leave();
	}
	for (stage = RESET; stage <= RTR; stage++) {
		snprintf(text, sizeof(text), "A killed %s without others: the QP is destroyed", names[stage]);
		ktap_result(enter(SIZE) && alone(stage), text);
		leave();
	}
	ktap_result(counts_return_to(&before), "no object is left");
	return ktap_end();
}
