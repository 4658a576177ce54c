// SPDX-License-Identifier: GPL-2.0
/*
 * The rights of users in a domain that they share: of the owner of its file, of one who may
 * write to it, and of one who may only read it, who takes nothing from the others.
 *
 * Each process opens the device and the domain as root, and becomes a user then: the handle and
 * the credentials at the time of a call decide, not those of the open.
 *
 * tags: debug vmlx5
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/rights"
#define PRIVATE_FILE DOMAIN_FILE ".private"
#define PARAMETERS "/sys/module/ib_xrc_rcv/parameters/"

enum {
	OWNER = 1501,
	WRITER = 1777,		/* in the file's group */
	READER = 1888,
	OTHER_READER = 1999,
	SUBORDINATE = 100000,
	LIMIT = 4,
	LABEL = 0x5ec2e7,
};

static struct actor owner, second, writer, reader;
static struct member_info *info;

/* The QP that acts are about. */
static struct shared {
	uint32_t qp_num;
	uint32_t qp_nums[LIMIT];
} *shared;

/* ---- acts ---- */

static int become(void *user)
{
	uid_t uid = (uintptr_t)user;

	CHECK(!setresgid(uid, uid, uid));
	CHECK(!setresuid(uid, uid, uid));
	return 0;
}

static int alloc(void *flags)
{
	struct registration registration;
	int result = rcv_alloc(member.domain, (uintptr_t)flags, NULL, NO_CHANNEL, &registration);

	if (!result) {
		shared->qp_num = registration.qp_num;
		member.registration = registration;
	}
	return result;
}

static int alloc_unregistered(void *flags)
{
	struct registration registration;
	int result = rcv_alloc(member.domain, (uintptr_t)flags, NULL, NO_REGISTRATION,
			       &registration);

	if (!result)
		shared->qp_num = registration.qp_num;
	return result;
}

/* With the channel that the process has. */
static int alloc_registered(void *flags)
{
	int result = rcv_alloc(member.domain, (uintptr_t)flags, NULL, member.channel,
			       &member.registration);

	if (!result)
		shared->qp_num = member.registration.qp_num;
	return result;
}

static int alloc_labelled(void *label)
{
	const uint64_t value = (uintptr_t)label;
	struct registration registration;

	return rcv_alloc_labelled(member.domain, 0, NULL, NO_CHANNEL, &value, &registration);
}

/* As many as it can. */
static int alloc_many(void *many)
{
	struct registration registration;
	uintptr_t i;

	for (i = 0; i < (uintptr_t)many; i++) {
		int result = rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration);

		if (result)
			return result;
		shared->qp_nums[i] = registration.qp_num;
	}
	return 0;
}

static int reg(void *nothing)
{
	(void)nothing;
	if (member.channel == NO_CHANNEL)
		member.channel = rcv_channel(member.domain);
	CHECK(member.channel >= 0);
	return rcv_reg(member.domain, shared->qp_num, member.channel, &member.registration);
}

static int reg_masked(void *nothing)
{
	const uint64_t events = 0;

	(void)nothing;
	return rcv_reg(member.domain, shared->qp_num, rcv_channel_with(member.domain, NULL, &events),
		       &member.registration);
}

static int reg_all(void *many)
{
	struct registration registration;
	uintptr_t i;

	for (i = 0; i < (uintptr_t)many; i++)
		CHECK(!rcv_reg(member.domain, shared->qp_nums[i], NO_CHANNEL, &registration));
	return 0;
}

/* Of files of its own, as many as it can: how many those were. */
static int reg_files(void *user)
{
	struct file files[LIMIT];
	struct registration registration;
	unsigned int i;

	for (i = 0; i < LIMIT; i++)
		file_open(&files[i], DOMAIN_FILE);
	CHECK(!become(user));
	for (i = 0; i < LIMIT; i++)
		if (rcv_reg(files[i].domain, shared->qp_num, NO_CHANNEL, &registration))
			break;
	return i;
}

static int unreg(void *nothing)
{
	(void)nothing;
	return rcv_unreg(&member.registration);
}

static int to_init(void *nothing)
{
	struct ib_uverbs_qp_attr init = attr_to_init(&member.node);

	(void)nothing;
	return rcv_modify(member.domain, shared->qp_num, &init);
}

static int to_state(void *state)
{
	return rcv_to_state(member.domain, shared->qp_num, (uintptr_t)state);
}

static int destroy(void *flags)
{
	return rcv_destroy_with(member.domain, shared->qp_num, (uintptr_t)flags);
}

static int query(void *nothing)
{
	(void)nothing;
	return rcv_query(member.domain, shared->qp_num, NULL, NULL);
}

static int registrations(void *nothing)
{
	struct xrc_rcv_qp_info qp_info;

	(void)nothing;
	CHECK(!rcv_query(member.domain, shared->qp_num, NULL, &qp_info));
	return qp_info.registrations;
}

/* Returns the number of QPs of the domain that have a label. */
static int labelled(void *label)
{
	struct xrc_rcv_qp_info infos[8];
	uint32_t count = ARRAY_SIZE(infos), i;
	int found = 0;

	CHECK(!rcv_list(member.domain, 0, infos, &count, NULL));
	for (i = 0; i < count; i++)
		found += infos[i].label == (uintptr_t)label;
	return found;
}

/* Whether the next records are of these types. */
static int reads(const uint32_t *types, unsigned int count)
{
	struct xrc_rcv_record event;
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct pollfd ready = { .fd = member.channel, .events = POLLIN };

		CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
		CHECK(read(member.channel, &event, sizeof(event)) == sizeof(event));
		CHECK(event.type == types[i] && event.qp_num == shared->qp_num);
	}
	return 0;
}

static int reads_gone(void *nothing)
{
	const uint32_t types[] = { XRC_RCV_EVENT_QP_GONE };

	(void)nothing;
	return reads(types, ARRAY_SIZE(types));
}

static int reads_event_and_gone(void *nothing)
{
	const uint32_t types[] = { IBV_EVENT_QP_LAST_WQE_REACHED, XRC_RCV_EVENT_QP_GONE };

	(void)nothing;
	return reads(types, ARRAY_SIZE(types));
}

/* In another domain. */
static int alloc_private(void *user)
{
	struct registration registration;
	struct file file;

	file_open(&file, PRIVATE_FILE);
	CHECK(!chown(PRIVATE_FILE, OWNER, OWNER));
	CHECK(!become(user));
	return rcv_alloc(file.domain, 0, NULL, NO_CHANNEL, &registration);
}

/* As an id of a user namespace of WRITER's. */
static int as_subordinate(act *acts, void *argument)
{
	int made[2], mapped[2], status, map;
	char path[64], byte;
	pid_t child;

	CHECK(!pipe2(made, O_CLOEXEC) && !pipe2(mapped, O_CLOEXEC));
	child = fork();
	if (!child) {
		if (become((void *)WRITER) || prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER) ||
		    write(made[1], "m", 1) != 1 || read(mapped[0], &byte, 1) != 1 ||
		    setresgid(1, 1, 1) || setresuid(1, 1, 1))
			_exit(255);
		_exit(-acts(argument));
	}
	CHECK(read(made[0], &byte, 1) == 1);
	snprintf(path, sizeof(path), "/proc/%d/gid_map", child);
	map = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(map >= 0 && dprintf(map, "0 %d 2\n", SUBORDINATE) > 0);
	close(map);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	map = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(map >= 0 && dprintf(map, "0 %d 2\n", SUBORDINATE) > 0);
	close(map);
	CHECK(write(mapped[1], "x", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static int destroy_as_subordinate(void *flags)
{
	return as_subordinate(destroy, flags);
}

static int alloc_as_subordinate(void *flags)
{
	return as_subordinate(alloc_unregistered, flags);
}

/* ---- scenarios ---- */

static bool joins(struct actor *actor)
{
	actor_start(actor);
	return succeeded("member_join", actor_do(actor, member_join, info));
}

static bool joins_as(struct actor *actor, uid_t user)
{
	return joins(actor) && succeeded("become", actor_do(actor, become, (void *)(uintptr_t)user));
}

static bool all_join(void)
{
	return joins_as(&owner, OWNER) && joins_as(&writer, WRITER) && joins_as(&reader, READER);
}

static bool all_exit(void)
{
	actor_exit(&reader);
	actor_exit(&writer);
	actor_exit(&second);
	actor_exit(&owner);
	return count_listed("qps") == 0;
}

static bool is(const char *what, int result, int wanted)
{
	if (result != wanted)
		ktap_note("%s: %d (%s), not %d (%s)", what, result,
			  result < 0 ? strerrorname_np(-result) : "no error", wanted,
			  wanted < 0 ? strerrorname_np(-wanted) : "no error");
	return result == wanted;
}

#define IS(actor, act, argument, wanted) \
	is(#actor ": " #act "(" #argument ")", \
	   actor_do(&(actor), act, (void *)(uintptr_t)(argument)), wanted)

static bool reader_may_use(void)
{
	bool right = all_join() && IS(owner, alloc, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0);

	right = right && IS(reader, alloc, 0, -EACCES) &&
		IS(reader, alloc, XRC_RCV_ALLOC_LIFETIME_DOMAIN, -EACCES);
	right = right && IS(reader, to_init, 0, -EACCES) &&
		IS(reader, to_state, IBV_QPS_ERR, -EACCES);
	right = right && IS(reader, destroy, 0, -EACCES) &&
		IS(reader, destroy, XRC_RCV_DESTROY_FORCE, -EACCES);
	right = right && IS(reader, query, 0, 0) && IS(reader, labelled, 0, 1) &&
		IS(reader, reg, 0, 0) && IS(reader, unreg, 0, 0);
	/* Nor does it own what it is registered with. */
	right = right && IS(reader, reg, 0, 0) && IS(reader, destroy, 0, -EACCES);
	right = right && IS(owner, unreg, 0, 0) && IS(owner, destroy, 0, 0);
	return all_exit() && right;
}

static bool writer_may_change(void)
{
	bool right = all_join() && IS(owner, alloc, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0);

	right = right && IS(writer, to_init, 0, 0) && IS(writer, destroy, 0, -EBUSY) &&
		IS(writer, destroy, XRC_RCV_DESTROY_FORCE, -EACCES) && IS(owner, unreg, 0, 0) &&
		IS(writer, destroy, 0, 0) && IS(writer, query, 0, -EINVAL);
	right = right && IS(writer, alloc, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0) &&
		IS(writer, destroy, 0, -EBUSY) && IS(writer, unreg, 0, 0) &&
		IS(writer, destroy, 0, 0) && IS(writer, alloc, 0, 0);
	return all_exit() && right;
}

/* The owner of the file, whatever the lifetime is and whoever is registered. */
static bool owner_may_force(uint32_t flags)
{
	bool right = all_join() && IS(writer, alloc, flags, 0) && IS(reader, reg, 0, 0) &&
		     joins_as(&second, WRITER) && IS(second, reg, 0, 0);

	right = right && IS(owner, destroy, 0, flags ? -EBUSY : -EINVAL) &&
		IS(owner, destroy, XRC_RCV_DESTROY_FORCE << 1, -EINVAL) &&
		IS(owner, destroy, XRC_RCV_DESTROY_FORCE, 0) && count_listed("qps") == 0;
	right = right && IS(owner, query, 0, -EINVAL) &&
		IS(owner, destroy, XRC_RCV_DESTROY_FORCE, -EINVAL);
	right = right && IS(reader, reads_gone, 0, 0) && IS(second, reads_gone, 0, 0);
	/* Registrations stay. */
	right = right && IS(reader, unreg, 0, 0) && IS(second, unreg, 0, 0) &&
		IS(writer, unreg, 0, 0);
	return all_exit() && right;
}

static bool creator_may_force(void)
{
	bool right = all_join() && IS(writer, alloc, 0, 0) && joins_as(&second, OWNER) &&
		     IS(second, reg, 0, 0);

	/* And after it has lost the right to write. */
	right = right && !chmod(DOMAIN_FILE, 0644) && IS(writer, alloc, 0, -EACCES) &&
		IS(writer, to_init, 0, 0) && IS(writer, destroy, 0, -EINVAL) &&
		IS(writer, destroy, XRC_RCV_DESTROY_FORCE, 0) && IS(second, reads_gone, 0, 0);
	right = !chmod(DOMAIN_FILE, 0664) && right;
	return all_exit() && right;
}

static bool subordinate_is_not_creator(void)
{
	bool right = all_join() && IS(writer, alloc, 0, 0) && joins(&second);

	right = right && IS(second, destroy_as_subordinate, XRC_RCV_DESTROY_FORCE, -EACCES);
	return all_exit() && right;
}

/* The QP counts for the user who made the namespace, and who can therefore destroy it. */
static bool maker_of_namespace_is_creator(void)
{
	bool right = all_join() && joins(&second) && !chmod(DOMAIN_FILE, 0666) &&
		     IS(second, alloc_as_subordinate, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0);

	right = right && IS(reader, destroy, XRC_RCV_DESTROY_FORCE, -EACCES) &&
		IS(writer, destroy, XRC_RCV_DESTROY_FORCE, 0) && IS(owner, query, 0, -EINVAL);
	right = !chmod(DOMAIN_FILE, 0664) && right;
	return all_exit() && right;
}

static bool creator_keeps(void)
{
	bool right = all_join() && IS(writer, alloc, 0, 0) && joins_as(&second, WRITER);

	right = right && !chmod(DOMAIN_FILE, 0644) && IS(second, reg, 0, 0);
	actor_kill(&writer);
	right = right && IS(second, query, 0, 0);
	right = !chmod(DOMAIN_FILE, 0664) && right;
	return all_exit() && right;
}

/* The event of a QP in ERR comes a moment after the error, if the QP exists then. */
static bool has_event(void)
{
	unsigned int i;

	for (i = 0; i < PATIENCE_MS / 10; i++) {
		if (count_listed_with("qps", "events=1"))
			return true;
		usleep(10000);
	}
	return ktap_wrong("no event of the error");
}

static bool reader_gets_events(void)
{
	bool right = all_join() && IS(owner, alloc, 0, 0) && IS(owner, to_init, 0, 0) &&
		     IS(reader, reg, 0, 0) && IS(owner, to_state, IBV_QPS_ERR, 0) && has_event();

	actor_kill(&owner);
	right = right && count_listed("qps") == 0 && IS(reader, query, 0, -EINVAL) &&
		IS(reader, reads_event_and_gone, 0, 0);
	right = right && IS(reader, unreg, 0, 0);
	return all_exit() && right;
}

static bool reader_does_not_keep(uint32_t flags)
{
	bool right = all_join() && IS(owner, alloc, flags, 0) && IS(reader, reg, 0, 0);

	right = right && IS(owner, unreg, 0, 0) && (!flags || IS(owner, destroy, 0, 0));
	right = right && IS(owner, query, 0, -EINVAL) && IS(reader, reads_gone, 0, 0);
	return all_exit() && right;
}

/* The own registration of a process that may write since then does not count. */
static bool own_that_does_not_keep(void)
{
	bool right = all_join() && IS(owner, alloc, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0) &&
		     IS(reader, reg, 0, 0) && !chmod(DOMAIN_FILE, 0666);

	right = right && IS(reader, destroy, 0, -EBUSY) && IS(owner, unreg, 0, 0) &&
		IS(reader, destroy, 0, 0) && IS(reader, reads_gone, 0, 0);
	right = !chmod(DOMAIN_FILE, 0664) && right;
	return all_exit() && right;
}

/* The right to a domain is that of the channel, that to an own QP is not. */
static bool creator_keeps_by_channel_of_reader(void)
{
	bool right = all_join() && IS(owner, alloc, 0, 0) && IS(reader, reg, 0, 0) &&
		     !chmod(DOMAIN_FILE, 0666) &&
		     IS(reader, alloc_registered, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0) &&
		     !chmod(DOMAIN_FILE, 0664);

	right = right && IS(owner, destroy, 0, -EBUSY) && IS(reader, unreg, 0, 0) &&
		IS(owner, destroy, 0, 0);
	right = !chmod(DOMAIN_FILE, 0664) && right;
	return all_exit() && right;
}

static bool writer_keeps(void)
{
	bool right = all_join() && IS(owner, alloc, 0, 0) && IS(writer, reg, 0, 0) &&
		     IS(reader, reg, 0, 0);

	/* QUERY counts those that keep nothing as well. */
	right = right && IS(reader, registrations, 0, 3);
	actor_kill(&owner);
	right = right && IS(reader, registrations, 0, 2) && IS(writer, unreg, 0, 0) &&
		IS(reader, query, 0, -EINVAL) && IS(reader, reads_gone, 0, 0);
	return all_exit() && right;
}

static bool registrations_are_left(void)
{
	unsigned int was = replace_number(PARAMETERS "max_registrations_per_qp", LIMIT);
	bool right = joins_as(&owner, OWNER) && IS(owner, alloc, 0, 0) && joins(&reader) &&
		     IS(reader, reg_files, READER, LIMIT / 2) && joins_as(&second, OWNER) &&
		     IS(second, reg, 0, 0);

	right = right && IS(second, unreg, 0, 0) && joins(&writer) &&
		IS(writer, reg_files, WRITER, LIMIT - LIMIT / 2 - 1);
	right = all_exit() && right;
	write_number(PARAMETERS "max_registrations_per_qp", was);
	return right;
}

static bool quota_is_left(void)
{
	unsigned int was = replace_number(PARAMETERS "max_qps_per_user", LIMIT);
	bool right = joins_as(&owner, OWNER) && joins_as(&reader, READER) &&
		     IS(owner, alloc_many, LIMIT, 0) && IS(reader, reg_all, LIMIT, 0);

	actor_kill(&owner);
	right = right && count_listed("qps") == 0 && joins(&second) &&
		IS(second, alloc_private, OWNER, 0);
	right = all_exit() && right;
	write_number(PARAMETERS "max_qps_per_user", was);
	return right;
}

static bool domain_is_left(void)
{
	unsigned int was = replace_number(PARAMETERS "max_qps_per_domain", LIMIT);
	bool right = joins_as(&owner, OWNER) && joins_as(&reader, READER) &&
		     joins_as(&writer, OTHER_READER);

	right = right && IS(reader, alloc_many, LIMIT, -EACCES) &&
		IS(writer, alloc_many, LIMIT, -EACCES) && IS(owner, alloc_many, LIMIT, 0);
	right = all_exit() && right;
	write_number(PARAMETERS "max_qps_per_domain", was);
	return right;
}

static bool labels_are_writers(void)
{
	bool right = all_join() && IS(owner, alloc_labelled, LABEL, 0) &&
		     IS(reader, alloc_labelled, LABEL, -EACCES) && IS(owner, labelled, LABEL, 1);

	return all_exit() && right;
}

/* The lines of the log about the QP's events. */
static bool is_logged(int log, unsigned int wanted)
{
	unsigned int lines;
	char text[64];

	snprintf(text, sizeof(text), "XRC receive QP 0x%06x", shared->qp_num);
	/* The event is logged before the QP's end. */
	lines = log_count(log, text);
	if (lines != wanted)
		ktap_note("%u lines in the log, not %u", lines, wanted);
	return lines == wanted;
}

static bool events_are_logged(act *registers, struct actor *registered, unsigned int wanted)
{
	int log = log_open();
	bool right = all_join() && IS(owner, alloc, XRC_RCV_ALLOC_LIFETIME_DOMAIN, 0) &&
		     IS(owner, unreg, 0, 0) && IS(owner, to_init, 0, 0) &&
		     succeeded("REG", actor_do(registered, registers, NULL)) &&
		     IS(owner, to_state, IBV_QPS_ERR, 0);

	/* An event is counted when it is delivered, before it is logged. */
	right = right && has_event();
	right = all_exit() && right;
	right = is_logged(log, wanted) && right;
	close(log);
	return right;
}

int main(void)
{
	struct counts before;

	ktap_start("rights of the users of a domain", 21);
	before = count_objects();
	info = member_info_new(DOMAIN_FILE, 0, 0);
	shared = share(sizeof(*shared));
	close(open(DOMAIN_FILE, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	if (chown(DOMAIN_FILE, OWNER, WRITER) || chmod(DOMAIN_FILE, 0664))
		err(1, DOMAIN_FILE);

	ktap_result(reader_may_use(), "a reader of the file uses QPs, and cannot change them");
	ktap_result(writer_may_change(), "a writer creates, modifies and destroys QPs, and cannot force");
	ktap_result(owner_may_force(0) && owner_may_force(XRC_RCV_ALLOC_LIFETIME_DOMAIN),
		    "the owner of the file destroys a QP that others keep");
	ktap_result(creator_may_force(), "the creator destroys a QP that others keep");
	ktap_result(subordinate_is_not_creator(), "an id of the creator's user namespace is not the creator");
	ktap_result(maker_of_namespace_is_creator(), "the user who made the creator's user namespace is, too");
	ktap_result(creator_keeps(), "a registration of the creator's user keeps the QP");
	ktap_result(creator_keeps_by_channel_of_reader(), "the creator keeps its QP by a channel of before it could write");
	ktap_result(writer_keeps(), "a registration of a writer keeps the QP, one of a reader does not");
	ktap_result(reader_gets_events(), "a reader gets events, and QP_GONE");
	ktap_result(reader_does_not_keep(0), "the last UNREG that keeps a QP destroys it");
	ktap_result(reader_does_not_keep(XRC_RCV_ALLOC_LIFETIME_DOMAIN), "DESTROY succeeds beside a reader");
	ktap_result(own_that_does_not_keep(), "an own registration that keeps nothing does not count for DESTROY");
	ktap_result(registrations_are_left(), "readers leave half of a QP's registrations to writers");
	ktap_result(quota_is_left(), "readers do not use up the quota of a user");
	ktap_result(domain_is_left(), "readers do not use up the QPs of a domain");
	ktap_result(labels_are_writers(), "a reader cannot give a QP a label");
	ktap_result(events_are_logged(reg_masked, &reader, 1), "an event that only a reader's mask excludes is logged");
	ktap_result(events_are_logged(reg, &reader, 1), "an event that only a reader gets is logged");
	ktap_result(events_are_logged(reg_masked, &writer, 0), "an event that a writer's mask excludes is not logged");
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	unlink(PRIVATE_FILE);
	return ktap_end();
}
