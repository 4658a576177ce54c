// SPDX-License-Identifier: GPL-2.0
/*
 * cycles [COUNT]
 *
 * COUNT times: one file creates a receive QP, another registers and unregisters,
 * the first unregisters, which ends the QP; every tenth QP is the domain's and is
 * destroyed, every fiftieth time a file ends with a QP. That in rounds, each by a
 * process of its own. Counts are the same after each. Memory is flat: chance
 * allocations differ between rounds, those of a cycle occur in every round; so
 * the median of the rounds has to be less than any object per cycle. (Where
 * KASAN keeps freed memory back, the lab's leak check is used instead.)
 *
 * tags: debug stock traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/cycles"

enum {
	WARM_UP = 2000,
	ROUNDS = 5,
	CYCLES_PER_FILE = 50,
	/* Bytes per cycle: the least that a slab gives out, and a page per 128 cycles. */
	SLAB_BYTES = 8,
	PAGE_BYTES = 32,
};

static struct actor a;
static struct member_info *ma;
static uint32_t *cycles;

static int many_cycles(void *argument)
{
	const uint32_t *count = argument;
	struct registration first, second;
	struct xrc_rcv_record event;
	struct file other;
	uint32_t i;

	file_open(&other, DOMAIN_FILE);
	for (i = 1; i <= *count; i++) {
		uint32_t flags = i % 10 ? 0 : XRC_RCV_ALLOC_LIFETIME_DOMAIN;

		CHECK(!rcv_alloc(member.domain, flags, NULL, member.channel, &first));
		CHECK(!rcv_reg(other.domain, first.qp_num, NO_CHANNEL, &second));
		CHECK(!rcv_unreg(&second));
		if (flags) {
			CHECK(!rcv_destroy_forced(member.domain, first.qp_num));
			CHECK(read(member.channel, &event, sizeof(event)) == sizeof(event));
			CHECK(is_gone(&event, &first));
		}
		CHECK(!rcv_unreg(&first));
		if (i % CYCLES_PER_FILE == 0) {
			CHECK(!rcv_alloc(other.domain, 0, NULL, NO_CHANNEL, &second));
			CHECK(!file_close(&other));
			file_open(&other, DOMAIN_FILE);
		}
	}
	return file_close(&other);
}

/* A process that does COUNT cycles and has exited afterwards. */
static bool round_of(uint32_t count)
{
	bool done;

	*cycles = count;
	actor_start(&a);
	done = DO(a, member_join, ma) && DO(a, many_cycles, cycles);
	actor_exit(&a);
	/* Memory that waits for a grace period is freed now. */
	sleep(1);
	return done;
}

static int ascending(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

/* Of kibibytes that COUNT cycles took, in bytes per cycle. */
static double median_per_cycle(long kib[ROUNDS], uint32_t count)
{
	qsort(kib, ROUNDS, sizeof(*kib), ascending);
	return kib[ROUNDS / 2] * 1024. / count;
}

static uint32_t usual_count(bool checked)
{
	if (checked)
		return is_long_run() ? 500 : 200;
	return is_long_run() ? 100000 : 20000;
}

int main(int argc, char **argv)
{
	bool checked = memory_is_checked();
	uint32_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : usual_count(checked),
		 per_round = count / ROUNDS, round;
	long slab[ROUNDS] = {}, pages[ROUNDS] = {}, slab_before, available_before;
	bool done = true, same = true;
	struct counts before;
	char text[96];
	uint64_t begin;

	ktap_start("cycles of create, register, unregister", checked ? 2 : 3);
	ma = member_info_new(DOMAIN_FILE, 0, 0);
	ma->wants_events = true;
	cycles = share(sizeof(*cycles));
	before = count_objects();
	if (!round_of(per_round > WARM_UP ? WARM_UP : per_round))
		errx(1, "not even the first cycles work");
	begin = now_ns();
	for (round = 0; done && round < ROUNDS; round++) {
		available_before = checked ? 0 : memory_available();
		slab_before = slab_unreclaimable();
		done = round_of(per_round);
		same &= counts_return_to(&before);
		if (checked)
			continue;
		pages[round] = available_before - memory_available();
		slab[round] = slab_unreclaimable() - slab_before;
		ktap_note("%ld KiB more in slabs, %ld KiB less available", slab[round],
			  pages[round]);
	}
	ktap_note("%u ms", (unsigned int)((now_ns() - begin) / 1000000));
	snprintf(text, sizeof(text), "%u cycles succeed", per_round * ROUNDS);
	ktap_result(done, text);
	ktap_result(done && same, "objects are as many as before");
	if (!checked) {
		double in_slabs = median_per_cycle(slab, per_round),
		       in_pages = median_per_cycle(pages, per_round);

		ktap_note("median: %.1f bytes per cycle in slabs, %.1f in all", in_slabs, in_pages);
		ktap_result(done && in_slabs < SLAB_BYTES && in_pages < PAGE_BYTES,
			    "memory is as much as before");
	}
	unlink(DOMAIN_FILE);
	return ktap_end();
}
