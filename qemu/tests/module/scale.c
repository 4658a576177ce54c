// SPDX-License-Identifier: GPL-2.0
/*
 * Costs that must not grow with the square of a number, or not at all, as ratios of
 * times in one run: the list of all domains, a page of QUERY_DOMAIN, and REG with a QP
 * that has many registrations, which it searches with interrupts disabled. The shortest
 * of several times counts: other processes of the guest make them longer.
 *
 * Wants the lab's --icount: a time is a number of instructions, however busy the host is.
 *
 * tags: clock
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/scale"

enum {
	DOMAINS = 500,
	MORE_DOMAINS = 16 * DOMAINS,
	LISTS = 15,
	QPS = 4000,
	FILES = 100,
	MORE_FILES = 20 * FILES,
	CALLS = 300,
};

/* Shared. */
static struct times {
	uint64_t few_ns, many_ns;
} *times;

/*
 * The table of domains is in the order of their addresses, the list in that of their numbers, which
 * they get with the first QP: that is created in any order here.
 */
static int create_domains(unsigned int count)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	static struct ibv_xrcd *xrcds[MORE_DOMAINS];
	struct registration registration;
	unsigned int i;

	for (i = 0; i < count; i++) {
		xrcds[i] = ibv_open_xrcd(member.node.context, &attr);
		CHECK(xrcds[i]);
	}
	for (i = count; i > 0; i--) {
		unsigned int other = random() % i;
		struct ibv_xrcd *xrcd = xrcds[other];

		xrcds[other] = xrcds[i - 1];
		CHECK(!rcv_alloc(domain_of(xrcd), XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				 NO_REGISTRATION, &registration));
	}
	return 0;
}

static int time_lists(unsigned int domains, uint64_t *shortest)
{
	unsigned int i;

	*shortest = UINT64_MAX;
	for (i = 0; i < LISTS; i++) {
		uint64_t begin = now_ns(), took;

		CHECK(count_listed("domains") == domains);
		took = now_ns() - begin;
		if (took < *shortest)
			*shortest = took;
	}
	return 0;
}

static int list_domains(void *argument)
{
	(void)argument;
	return create_domains(DOMAINS) ?: time_lists(DOMAINS, &times->few_ns) ?:
	       create_domains(MORE_DOMAINS - DOMAINS) ?:
	       time_lists(MORE_DOMAINS, &times->many_ns);
}

static int time_page(uint32_t after, uint64_t *shortest)
{
	uint64_t begin = now_ns(), took;
	struct xrc_rcv_qp_info info;
	uint32_t count = 1;

	CHECK(!rcv_list(member.domain, after, &info, &count, NULL) && count == 1);
	took = now_ns() - begin;
	if (took < *shortest)
		*shortest = took;
	return 0;
}

static int list_pages(void *argument)
{
	struct registration registration;
	uint32_t last = 0, before_last = 0;
	unsigned int i;

	(void)argument;
	for (i = 0; i < QPS; i++) {
		CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration));
		if (registration.qp_num > last) {
			before_last = last;
			last = registration.qp_num;
		} else if (registration.qp_num > before_last) {
			before_last = registration.qp_num;
		}
	}
	times->few_ns = times->many_ns = UINT64_MAX;
	for (i = 0; i < CALLS; i++)
		CHECK(!time_page(0, &times->few_ns) && !time_page(before_last, &times->many_ns));
	return 0;
}

/* Files stay open: their registrations end with the process. */
static int register_files(uint32_t qp_num, unsigned int count)
{
	struct registration registration;
	struct file file;
	unsigned int i;

	for (i = 0; i < count; i++) {
		file_open(&file, DOMAIN_FILE);
		CHECK(!rcv_reg(file.domain, qp_num, NO_CHANNEL, &registration));
	}
	return 0;
}

static int time_reg(const struct file *file, uint32_t qp_num, uint64_t *shortest)
{
	uint64_t begin = now_ns(), took;
	struct registration registration;

	CHECK(!rcv_reg(file->domain, qp_num, NO_CHANNEL, &registration));
	CHECK(!rcv_unreg(&registration));
	took = now_ns() - begin;
	if (took < *shortest)
		*shortest = took;
	return 0;
}

static int register_with_many(void *argument)
{
	struct rlimit files = { .rlim_cur = 1 << 16, .rlim_max = 1 << 16 };
	struct registration few, many;
	struct file file;
	unsigned int i;

	(void)argument;
	CHECK(!setrlimit(RLIMIT_NOFILE, &files));
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &few));
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &many));
	CHECK(!register_files(few.qp_num, FILES) && !register_files(many.qp_num, MORE_FILES));
	file_open(&file, DOMAIN_FILE);
	times->few_ns = times->many_ns = UINT64_MAX;
	for (i = 0; i < CALLS; i++)
		CHECK(!time_reg(&file, few.qp_num, &times->few_ns) &&
		      !time_reg(&file, many.qp_num, &times->many_ns));
	return file_close(&file);
}

/* Whether the case of many takes at most FACTOR times as long as that of few. */
static bool grows(act *measure, double factor)
{
	struct member_info *member_info = member_info_new(DOMAIN_FILE, 0, 0);
	struct actor actor;
	bool right;

	actor_start(&actor);
	right = DO(actor, member_join, member_info) && DO(actor, measure, NULL);
	actor_exit(&actor);
	ktap_note("%.1f us and %.1f us: %.2f times as long, of %.1f", times->few_ns / 1e3,
		  times->many_ns / 1e3, (double)times->many_ns / times->few_ns, factor);
	return right && times->many_ns <= factor * times->few_ns;
}

int main(void)
{
	struct counts before;

	ktap_start("costs of many objects", 4);
	before = count_objects();
	times = share(sizeof(*times));
	ktap_result(grows(list_domains, 24), "16 times the domains take no 24 times as long to list");
	ktap_result(grows(list_pages, 1.5), "the last page of 4000 QPs takes no longer than the first");
	ktap_result(grows(register_with_many, 1.5), "REG takes no longer with 20 times the registrations");
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
