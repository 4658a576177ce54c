// SPDX-License-Identifier: GPL-2.0
/*
 * QPs that were destroyed while a process that does not read is registered with them: they take
 * memory of their creator for as many as the domain may have, and no more. The process reads once
 * that it has lost records, then those that are left, and lists the QPs that exist.
 *
 * Needs memory cgroups, and memory that is freed at once: the stock kernel.
 *
 * tags: stock
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/gone"
#define LIMIT "/sys/module/ib_xrc_rcv/parameters/max_qps_per_domain"
#define CGROUP "/sys/fs/cgroup"
#define GROUP CGROUP "/gone"

enum {
	KEPT = 64,		/* QPs that were destroyed */
	QPS = 500,		/* at a time: root may have more than the limit */
	ROUNDS = 8,
	LEFT = 3,		/* QPs that exist in the end */
	BYTES = 64,		/* of a QP that was destroyed, at most */
};

static struct actor owner, reader;
static struct member_info *info;
static int group = -1;	/* where processes enter it */

static struct shared {
	uint32_t qp_nums[QPS];
	uint64_t serial;	/* of the last QP that was destroyed */
} *shared;

static int enter(void *nothing)
{
	(void)nothing;
	return write(group, "0", 1) == 1 ? 0 : -errno;
}

/* Creates QPs that no registration of the caller keeps. */
static int create(void *many)
{
	struct registration registration;
	uintptr_t i;

	for (i = 0; i < (uintptr_t)many; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				 NO_REGISTRATION, &registration));
		shared->qp_nums[i] = registration.qp_num;
		shared->serial = registration.serial;
	}
	return 0;
}

static int destroy(void *many)
{
	uintptr_t i;

	for (i = 0; i < (uintptr_t)many; i++)
		CHECK(!rcv_destroy_forced(member.domain, shared->qp_nums[i]));
	return 0;
}

static int reg(void *many)
{
	uint32_t done;

	if (member.channel == NO_CHANNEL)
		member.channel = rcv_channel(member.domain);
	CHECK(member.channel >= 0);
	CHECK(!fcntl(member.channel, F_SETFL, O_NONBLOCK));
	CHECK(!rcv_reg_many(member.domain.uverbs_fd, member.channel, shared->qp_nums,
			    (uintptr_t)many, &done) && done == (uintptr_t)many);
	return 0;
}

/* A round: a process creates QPs, the other registers with them, and they are destroyed. */
static bool ends(uintptr_t many)
{
	return DO(owner, create, (void *)many) && DO(reader, reg, (void *)many) &&
	       DO(owner, destroy, (void *)many);
}

/* Kernel memory of the group, in bytes. */
static long long charged(void)
{
	char line[128];
	long long bytes = -1;
	FILE *file;

	/* The kernel adds the figures of all CPUs up every two seconds. */
	sleep(5);
	file = fopen(GROUP "/memory.stat", "re");
	if (!file)
		err(1, GROUP);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "kernel %lld", &bytes) == 1)
			break;
	fclose(file);
	return bytes;
}

static bool takes_no_memory(void)
{
	long long before, after;
	unsigned int i;
	bool right = true;

	/* The first rounds allocate memory that stays. */
	for (i = 0; i < ROUNDS && right; i++)
		right = ends(QPS);
	before = charged();
	for (i = 0; i < ROUNDS && right; i++)
		right = ends(QPS);
	after = charged();
	ktap_note("%d QPs that were destroyed take %lld bytes, after as many took %lld",
		  ROUNDS * QPS, after - before, before);
	return right && before > 0 && after - before < (long long)ROUNDS * QPS * BYTES;
}

static bool is_listed(void)
{
	char words[64];

	snprintf(words, sizeof(words), "qps=0 gone=%d", KEPT);
	return count_listed_with("domains", words) == 1;
}

/* One OVERRUN, then QP_GONE of the QPs that were destroyed last, in order. */
static int read_what_is_left(void *nothing)
{
	struct xrc_rcv_record record;
	uint64_t i;

	(void)nothing;
	CHECK(read(member.channel, &record, sizeof(record)) == sizeof(record));
	CHECK(record.type == XRC_RCV_EVENT_OVERRUN && record.count == 1);
	CHECK(!record.last_ns && !record.serial && !record.qp_num);
	for (i = KEPT; i--;) {
		CHECK(read(member.channel, &record, sizeof(record)) == sizeof(record));
		CHECK(record.type == XRC_RCV_EVENT_QP_GONE && record.count == 1);
		CHECK(record.serial == shared->serial - i);
	}
	CHECK(read(member.channel, &record, sizeof(record)) == -1 && errno == EAGAIN);
	return 0;
}

static int list(void *nothing)
{
	struct xrc_rcv_qp_info infos[LEFT + 1];
	uint32_t count = ARRAY_SIZE(infos), total, i, j, found = 0;

	(void)nothing;
	CHECK(!rcv_list(member.domain, 0, infos, &count, &total));
	CHECK(count == LEFT && total == LEFT);
	for (i = 0; i < LEFT; i++)
		for (j = 0; j < LEFT; j++)
			found += infos[i].qp_num == shared->qp_nums[j];
	CHECK(found == LEFT);
	return reg((void *)LEFT);
}

/* A mask without QP_GONE: nothing is lost, and nothing is said. */
static int open_silent_channel(void *nothing)
{
	const uint64_t events = 0;

	(void)nothing;
	member.channel = rcv_channel_with(member.domain, NULL, &events);
	return member.channel >= 0 ? 0 : -errno;
}

static int reads_nothing(void *nothing)
{
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };
	struct xrc_rcv_record record;

	(void)nothing;
	CHECK(read(member.channel, &record, sizeof(record)) == -1 && errno == EAGAIN);
	CHECK(!poll(&ready, 1, 0));
	return 0;
}

/* The second and the third of three QPs stay. */
static int unreg_two(void *nothing)
{
	uint32_t done;

	(void)nothing;
	CHECK(!rcv_unreg_many(member.domain.uverbs_fd, member.channel, shared->qp_nums, 2, &done));
	return done == 2 ? 0 : -EBADMSG;
}

int main(void)
{
	struct counts before;
	unsigned int limit;

	ktap_start("unread records of destroyed QPs", 7);
	before = count_objects();
	limit = replace_number(LIMIT, KEPT);
	if (access(CGROUP "/cgroup.controllers", F_OK) &&
	    mount("cgroup2", CGROUP, "cgroup2", 0, NULL))
		err(1, CGROUP);
	write_file(CGROUP "/cgroup.subtree_control", "+memory");
	if (mkdir(GROUP, 0755))
		err(1, GROUP);
	/* A namespace has another /sys. */
	group = open(GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (group < 0)
		err(1, GROUP);
	shared = share(sizeof(*shared));
	info = member_info_new(DOMAIN_FILE, 0, 0);
	actor_start(&owner);
	actor_start(&reader);
	ktap_result(DO(owner, member_join, info) && DO(reader, member_join, info) &&
		    DO(owner, enter, NULL) && DO(reader, enter, NULL) && takes_no_memory(),
		    "the kernel keeps a number of QPs that were destroyed");
	ktap_result(is_listed(), "debugfs lists how many");
	ktap_result(DO(reader, read_what_is_left, NULL), "one record of all that is lost, then the others");
	ktap_result(DO(owner, create, (void *)LEFT) && DO(reader, list, NULL),
		    "the QPs that exist are listed, and can be registered with");
	ktap_result(DO(owner, destroy, (void *)LEFT) && DO(reader, unreg_two, NULL) &&
		    count_listed_with("domains", "gone=1") == 1,
		    "UNREG gives up the records of QPs that were destroyed");
	ktap_result(DO(reader, open_silent_channel, NULL) && ends(2 * KEPT) &&
		    DO(reader, reads_nothing, NULL),
		    "a channel that has no records loses none");
	actor_exit(&reader);
	actor_exit(&owner);
	write_number(LIMIT, limit);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	rmdir(GROUP);
	return ktap_end();
}
