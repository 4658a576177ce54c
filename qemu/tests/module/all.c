// SPDX-License-Identifier: GPL-2.0
/*
 * Members that are registered with all receive QPs of a domain: they get the events of each QP with
 * its label, keep it if they may, and lose its records if they do not read.
 *
 * Each process opens the device and the domain as root, and becomes a user then.
 *
 * tags: stock debug vmlx4 vmlx5
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/all"
#define LIMIT "/sys/module/ib_xrc_rcv/parameters/max_qps_per_domain"
#define REGISTRATIONS "/sys/module/ib_xrc_rcv/parameters/max_registrations_per_qp"

enum {
	OWNER = 1001,
	READER = 1002,
	LABEL = 0x5ec2e7,
	KEPT = 4,		/* QPs that were destroyed */
	MANY = 12,
	ERROR = IBV_EVENT_QP_LAST_WQE_REACHED,	/* of a QP that is modified to ERR */
};

/* The events that there are. */
#define EVERY (1ULL << XRC_RCV_EVENT_QP_GONE | 1ULL << XRC_RCV_EVENT_QP_ADDED | 0x100fe)

#define ALL XRC_RCV_EVENT_CHANNEL_ALL
#define OBSERVE (ALL | XRC_RCV_EVENT_CHANNEL_OBSERVE)

static struct actor owner, second, watcher, reader;	/* the last of another user */
static struct member_info *info;

static struct shared {
	struct registration qp;		/* that acts are about */
	uint64_t events;		/* of a new channel */
	uint64_t label;
} *shared;

static int become(void *user)
{
	uid_t uid = (uintptr_t)user;

	CHECK(!setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid));
	return 0;
}

static int join(void *flags)
{
	if (member.channel != NO_CHANNEL)
		close(member.channel);
	member.channel = rcv_channel_of(member.domain, (uintptr_t)flags, NULL, &shared->events);
	if (member.channel < 0)
		return member.channel;
	return fcntl(member.channel, F_SETFL, O_NONBLOCK) ? -errno : 0;
}

static int leave(void *nothing)
{
	int result = close(member.channel);

	(void)nothing;
	member.channel = NO_CHANNEL;
	return result ? -errno : 0;
}

/* With a channel of no other use, or that of the process. */
static int alloc(void *channel)
{
	return rcv_alloc_labelled(member.domain, 0, NULL, (intptr_t)channel, &shared->label,
				  &shared->qp);
}

static int alloc_own(void *nothing)
{
	(void)nothing;
	return alloc((void *)(intptr_t)member.channel);
}

static int alloc_unregistered(void *nothing)
{
	(void)nothing;
	return rcv_alloc_labelled(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				  NO_REGISTRATION, &shared->label, &shared->qp);
}

static int destroy(void *flags)
{
	return rcv_destroy_with(member.domain, shared->qp.qp_num, (uintptr_t)flags);
}

static int reg(void *nothing)
{
	struct registration registration;

	(void)nothing;
	return rcv_reg(member.domain, shared->qp.qp_num, member.channel, &registration);
}

static int unreg(void *nothing)
{
	const struct registration own = {
		.uverbs_fd = member.domain.uverbs_fd,
		.channel = member.channel,
		.qp_num = shared->qp.qp_num,
	};

	(void)nothing;
	return rcv_unreg(&own);
}

/* The QP has an event. */
static int fail(void *nothing)
{
	const struct ib_uverbs_qp_attr init = attr_to_init(&member.node);

	(void)nothing;
	return rcv_modify(member.domain, shared->qp.qp_num, &init) ?:
	       rcv_to_state(member.domain, shared->qp.qp_num, IBV_QPS_ERR);
}

/* Whether it is the event that comes next. */
static int get(uint32_t type)
{
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };
	struct xrc_rcv_record record;

	CHECK(poll(&ready, 1, PATIENCE_MS) == 1 && ready.revents == POLLIN);
	CHECK(read(member.channel, &record, sizeof(record)) == sizeof(record));
	CHECK(is_record(&record, &shared->qp, type, 1) && record.label == shared->label);
	return 0;
}

static int get_added(void *nothing)
{
	(void)nothing;
	return get(XRC_RCV_EVENT_QP_ADDED);
}

static int get_error(void *nothing)
{
	(void)nothing;
	return get(ERROR);
}

static int get_gone(void *nothing)
{
	(void)nothing;
	return get(XRC_RCV_EVENT_QP_GONE);
}

static int get_nothing(void *nothing)
{
	struct xrc_rcv_record record;

	(void)nothing;
	CHECK(read(member.channel, &record, sizeof(record)) == -1 && errno == EAGAIN);
	return 0;
}

static int registrations(void *nothing)
{
	struct xrc_rcv_qp_info found;

	(void)nothing;
	return rcv_query(member.domain, shared->qp.qp_num, NULL, &found) ?: (int)found.registrations;
}

static bool is(const char *what, int result, int wanted)
{
	if (result != wanted)
		ktap_note("%s: %d instead of %d", what, result, wanted);
	return result == wanted;
}

#define IS(actor, act, argument, wanted) \
	is(#actor ": " #act, actor_do(&(actor), act, (void *)(uintptr_t)(argument)), wanted)

static bool starts(struct actor *actor, uid_t user)
{
	actor_start(actor);
	return !actor_do(actor, member_join, info) &&
	       !actor_do(actor, become, (void *)(uintptr_t)user);
}

/* The member that joined before the QP gets QP_ADDED, the later one does not. */
static bool are_told(void)
{
	return IS(watcher, join, ALL, 0) && IS(owner, alloc, NO_CHANNEL, 0) &&
	       IS(reader, join, ALL, 0) && IS(owner, registrations, 0, 3) &&
	       IS(watcher, get_added, 0, 0) && IS(watcher, get_nothing, 0, 0) &&
	       IS(reader, get_nothing, 0, 0) && IS(owner, fail, 0, 0) &&
	       IS(watcher, get_error, 0, 0) && IS(reader, get_error, 0, 0) &&
	       IS(owner, destroy, XRC_RCV_DESTROY_FORCE, 0) &&
	       IS(watcher, get_gone, 0, 0) && IS(reader, get_gone, 0, 0) &&
	       IS(watcher, get_nothing, 0, 0) && IS(reader, get_nothing, 0, 0) &&
	       IS(watcher, leave, 0, 0) && IS(reader, leave, 0, 0);
}

/* QP_ADDED and ERROR are left out; a mask without QP_GONE is none. */
static bool are_told_by_mask(void)
{
	bool right;

	shared->events = 1ULL << ERROR;
	right = IS(second, join, ALL, -EINVAL) && IS(second, join, 0, 0);
	shared->events = 1ULL << XRC_RCV_EVENT_QP_GONE;
	right = right && IS(second, join, OBSERVE & ~ALL, -EINVAL) && IS(second, join, 4, -EINVAL) &&
		IS(second, join, ALL, 0) && IS(owner, alloc, NO_CHANNEL, 0) &&
		IS(owner, fail, 0, 0) && IS(second, get_nothing, 0, 0) &&
		IS(owner, destroy, XRC_RCV_DESTROY_FORCE, 0) && IS(second, get_gone, 0, 0) &&
		IS(second, get_nothing, 0, 0);
	shared->events = 0;
	right = right && IS(second, join, ALL, 0) && IS(owner, alloc, NO_CHANNEL, 0) &&
		IS(owner, destroy, XRC_RCV_DESTROY_FORCE, 0) && IS(second, get_nothing, 0, 0) &&
		IS(second, leave, 0, 0);
	shared->events = EVERY;
	return right;
}

static bool kill_owner(void)
{
	actor_kill(&owner);
	return true;
}

/* The creator is killed. The last member that keeps the QP ends it, a reader does not keep it. */
static bool keep(void)
{
	uint32_t qp_num;

	if (!IS(watcher, join, ALL, 0) || !IS(second, join, ALL, 0) || !IS(reader, join, ALL, 0) ||
	    !IS(owner, alloc, NO_CHANNEL, 0) || !kill_owner())
		return false;
	qp_num = shared->qp.qp_num;
	if (!qp_is_shown(qp_num) || !IS(watcher, leave, 0, 0) || !qp_is_shown(qp_num) ||
	    count_listed_with("members", "keeps=1") != 1 ||
	    count_listed_with("members", "keeps=0") != 1)
		return false;
	return IS(second, leave, 0, 0) && !qp_is_shown(qp_num) && IS(reader, get_added, 0, 0) &&
	       IS(reader, get_gone, 0, 0) && IS(reader, get_nothing, 0, 0) &&
	       starts(&owner, OWNER);
}

/* With a reader alone the QP ends with its creator. */
static bool reader_does_not_keep(void)
{
	return IS(owner, alloc, NO_CHANNEL, 0) && kill_owner() && IS(reader, get_added, 0, 0) &&
	       IS(reader, get_gone, 0, 0) && !qp_is_shown(shared->qp.qp_num) &&
	       starts(&owner, OWNER) && IS(owner, alloc_unregistered, 0, 0) &&
	       IS(owner, destroy, 0, 0) && IS(second, join, OBSERVE, 0) &&
	       IS(owner, alloc_unregistered, 0, 0) && IS(owner, destroy, 0, 0) &&
	       IS(second, leave, 0, 0) && IS(reader, leave, 0, 0);
}

/* DESTROY takes FORCE, for which the right to own is needed. */
static bool destroy_of_kept(void)
{
	return IS(second, join, ALL, 0) && IS(owner, alloc_unregistered, 0, 0) &&
	       IS(owner, destroy, 0, -EBUSY) && IS(second, destroy, 0, -EBUSY) &&
	       IS(reader, destroy, XRC_RCV_DESTROY_FORCE, -EACCES) &&
	       IS(owner, destroy, XRC_RCV_DESTROY_FORCE, 0) && IS(second, leave, 0, 0);
}

/* A member of all has no registration with one QP. */
static bool no_single_registration(void)
{
	return IS(second, join, ALL, 0) && IS(second, alloc_own, 0, 0) &&
	       IS(second, registrations, 0, 1) && IS(second, reg, 0, 0) &&
	       IS(second, registrations, 0, 1) && IS(second, unreg, 0, -EINVAL) &&
	       IS(second, get_added, 0, 0) && IS(second, get_nothing, 0, 0) &&
	       count_listed("registrations") == 0 && qp_is_shown(shared->qp.qp_num) &&
	       IS(second, leave, 0, 0) && !qp_is_shown(shared->qp.qp_num) &&
	       IS(second, join, OBSERVE, 0) && IS(second, alloc_own, 0, -EINVAL) &&
	       IS(second, leave, 0, 0);
}

static int create_and_destroy(void *many)
{
	uintptr_t i;

	for (i = 0; i < (uintptr_t)many; i++)
		CHECK(!alloc_unregistered(NULL) &&
		      !destroy((void *)XRC_RCV_DESTROY_FORCE));
	return 0;
}

/* One OVERRUN, and the records of the QPs that were destroyed last. */
static int read_what_is_left(void *nothing)
{
	struct xrc_rcv_record record;
	uint64_t i;

	(void)nothing;
	CHECK(read(member.channel, &record, sizeof(record)) == sizeof(record));
	CHECK(record.type == XRC_RCV_EVENT_OVERRUN && record.count == 1 && !record.label);
	for (i = KEPT; i--;) {
		CHECK(read(member.channel, &record, sizeof(record)) == sizeof(record));
		CHECK(record.type == XRC_RCV_EVENT_QP_ADDED);
		CHECK(record.serial == shared->qp.serial - i);
		CHECK(read(member.channel, &record, sizeof(record)) == sizeof(record));
		CHECK(record.type == XRC_RCV_EVENT_QP_GONE);
		CHECK(record.serial == shared->qp.serial - i && record.label == shared->label);
	}
	return get_nothing(NULL);
}

/* Two members do not read, one reads in time, and one leaves without. */
static bool overrun(void)
{
	char words[64];

	snprintf(words, sizeof(words), "qps=0 gone=%d", KEPT);
	return IS(watcher, join, ALL, 0) && IS(second, join, OBSERVE, 0) &&
	       IS(reader, join, ALL, 0) && IS(owner, create_and_destroy, 1, 0) &&
	       IS(second, get_added, 0, 0) && IS(second, get_gone, 0, 0) &&
	       IS(owner, create_and_destroy, MANY, 0) &&
	       count_listed_with("domains", words) == 1 &&
	       IS(reader, leave, 0, 0) && IS(watcher, read_what_is_left, 0, 0) &&
	       count_listed_with("domains", words) == 1 &&
	       IS(second, read_what_is_left, 0, 0) &&
	       count_listed_with("domains", "gone=0") == 1 &&
	       IS(owner, create_and_destroy, 1, 0) && IS(watcher, get_added, 0, 0) &&
	       IS(watcher, get_gone, 0, 0) && IS(watcher, leave, 0, 0) && IS(second, leave, 0, 0) &&
	       count_listed("domains") == 0;
}

/* Of two, one may be of those that keep nothing. */
static bool limited(void)
{
	unsigned int limit = replace_number(REGISTRATIONS, 2);
	bool right = IS(reader, join, ALL, 0) && IS(second, join, OBSERVE, -EDQUOT) &&
		     IS(second, join, ALL, 0) && IS(watcher, join, ALL, -EDQUOT) &&
		     IS(reader, leave, 0, 0) && IS(watcher, join, ALL, 0) &&
		     IS(watcher, leave, 0, 0) && IS(second, leave, 0, 0);

	write_number(REGISTRATIONS, limit);
	return right;
}

int main(void)
{
	struct counts before;
	unsigned int limit;

	ktap_start("members of all receive QPs of a domain", 9);
	before = count_objects();
	limit = replace_number(LIMIT, KEPT);
	shared = share(sizeof(*shared));
	shared->events = EVERY;
	shared->label = LABEL;
	close(open(DOMAIN_FILE, O_CREAT | O_RDWR | O_CLOEXEC, 0644));
	if (chown(DOMAIN_FILE, OWNER, OWNER) || chmod(DOMAIN_FILE, 0644))
		err(1, DOMAIN_FILE);
	info = member_info_new(DOMAIN_FILE, 0, 0);
	ktap_result(starts(&owner, OWNER) && starts(&second, OWNER) && starts(&watcher, OWNER) &&
		    starts(&reader, READER), "processes of two users open a domain");
	ktap_result(are_told(), "members get the label of each QP, its events and its end");
	ktap_result(are_told_by_mask(), "a mask leaves events out, but for the end");
	ktap_result(keep(), "the last member that keeps the QPs ends them, not their creator");
	ktap_result(reader_does_not_keep(), "who may only read, or observes, keeps no QP");
	ktap_result(destroy_of_kept(), "the owner destroys QPs that members of all keep");
	ktap_result(no_single_registration(), "a member of all has no registration with one QP");
	ktap_result(overrun() && limited(), "who does not read loses records, and not without limit");
	actor_exit(&reader);
	actor_exit(&watcher);
	actor_exit(&second);
	actor_exit(&owner);
	write_number(LIMIT, limit);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
