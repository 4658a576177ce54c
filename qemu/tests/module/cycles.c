// SPDX-License-Identifier: GPL-2.0
/*
 * cycles [COUNT]
 *
 * COUNT times: one file creates a receive QP, another registers and unregisters,
 * the first unregisters, which ends the QP; every tenth QP is the domain's and is
 * destroyed, every thousandth time a file ends with a QP. Memory and counts are flat.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/cycles"

enum {
	WARM_UP = 2000,
	ENOUGH = 1000,
	PATIENCE_S = 60,
	AVAILABLE_KIB = 8 << 10,	/* a page per fifty cycles is more than that */
};

static struct actor a;
static struct membership *ma;
static uint32_t *cycles;

static int many_cycles(void *argument)
{
	uint64_t end = give_up_at(PATIENCE_S);
	uint32_t *cycles = argument;
	struct registration first, second;
	struct xrc_rcv_event event;
	struct node other_node;
	struct ibv_xrcd *other;
	uint32_t i;

	node_open(&other_node, "right");
	other = node_open_domain(&other_node, DOMAIN_FILE);
	for (i = 0; i < *cycles && now_ns() < end; i++) {
		uint32_t flags = i % 10 ? 0 : XRC_RCV_ALLOC_LIFETIME_DOMAIN;

		CHECK(!rcv_alloc(member.domain, flags, NULL, member.channel, i + 1, &first));
		CHECK(!rcv_reg(domain_of(other), first.qp_num, NO_CHANNEL, 0, &second));
		CHECK(!rcv_unreg(&second));
		if (flags) {
			CHECK(!rcv_destroy(member.domain, first.qp_num));
			CHECK(read(member.channel, &event, sizeof(event)) == sizeof(event));
			CHECK(event.cookie == i + 1);
		}
		CHECK(!rcv_unreg(&first));
		if (i % 1000 == 999) {
			CHECK(!rcv_alloc(domain_of(other), 0, NULL, NO_CHANNEL, 0, &second));
			CHECK(!ibv_close_xrcd(other));
			CHECK(!ibv_dealloc_pd(other_node.pd));
			CHECK(!ibv_close_device(other_node.context));
			node_open(&other_node, "right");
			other = node_open_domain(&other_node, DOMAIN_FILE);
		}
	}
	*cycles = i;
	CHECK(!ibv_close_xrcd(other));
	CHECK(!ibv_dealloc_pd(other_node.pd));
	CHECK(!ibv_close_device(other_node.context));
	return 0;
}

/* A process that does COUNT cycles and is gone afterwards; returns how many it did. */
static uint32_t round_of(uint32_t count)
{
	bool done;

	*cycles = count;
	actor_start(&a);
	done = DO(a, member_join, ma) && DO(a, many_cycles, cycles);
	actor_exit(&a);
	/* What waits for a grace period goes now. */
	sleep(1);
	return done ? *cycles : 0;
}

int main(int argc, char **argv)
{
	uint32_t count = argc > 1 ? strtoul(argv[1], NULL, 10) :
			 memory_is_checked() ? 5000 : 100000;
	long slab, available, slab_grown, available_shrunk;
	struct counts before;
	char text[96];
	uint64_t begin;

	ktap_start("cycles of create, register, unregister", 3);
	ma = membership_new(DOMAIN_FILE, 0, 0);
	ma->wants_events = true;
	cycles = share(sizeof(*cycles));
	if (!round_of(WARM_UP))
		errx(1, "not even the first cycles work");
	before = count_objects();
	available = memory_available();
	slab = slab_unreclaimable();
	begin = now_ns();
	count = round_of(count);
	ktap_note("%u ms", (unsigned int)((now_ns() - begin) / 1000000));
	snprintf(text, sizeof(text), "%u cycles", count);
	ktap_result(count >= ENOUGH, text);
	ktap_result(counts_return_to(&before, 5), "as many objects as before");
	available_shrunk = available - memory_available();
	slab_grown = slab_unreclaimable() - slab;
	ktap_note("%ld KiB more in slabs, %ld KiB less available", slab_grown, available_shrunk);
	ktap_result(count && slab_grown < slab_noise() &&
		    available_shrunk < slab_noise() + AVAILABLE_KIB, "as much memory as before");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
