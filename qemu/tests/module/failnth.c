// SPDX-License-Identifier: GPL-2.0
/*
 * Every allocation of every call fails once: the first, the second, and so on
 * until the call no longer allocates that often. Each time the call returns the error, or
 * succeeds without; either way nothing is left of it that the module lists. At
 * the end no limit or cgroup is charged; kmemleak finds memory without a reference,
 * which the lab asks when the guest ends.
 *
 * Needs a kernel with failslab: the lab's debug kernel.
 *
 * tags: debug partitions failslab
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/failnth"
#define CGROUP "/sys/fs/cgroup"
#define GROUP CGROUP "/failnth"
#define PARAMETERS "/sys/module/ib_xrc_rcv/parameters"

enum {
	LIMIT = 2000,
	CHILDREN = 4,
	CROWD = 3,		/* with the creator as many as a QP has room for at first */
	FULL = 8,		/* as many as a channel has room for at first */
};

/* The object of a call: new each time. */
static struct fixture {
	struct file file;		/* a second one of the process */
	struct ibv_xrcd *xrcd;
	struct registration others;	/* a QP that the second file created */
	struct registration mine;
	int channel;
	struct file passing;		/* a file that is closed */
	struct file crowd[CROWD];
	struct registration crowds[CROWD], full[FULL];
} fixture;

struct operation {
	const char *name;
	int (*prepare)(void);
	int (*call)(void);
	/* Back to where prepare() began, whether the call succeeded or not. */
	int (*undo)(bool done);
};

/* ---- operations ---- */

static int nothing(void)
{
	return 0;
}

static int nothing_to_undo(bool done)
{
	(void)done;
	return 0;
}

static int qp_of_other(void)
{
	return rcv_alloc(fixture.file.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_CHANNEL,
			 &fixture.others);
}

static int drop_qp_of_other(bool done)
{
	(void)done;
	return rcv_unreg(&fixture.others) ?:
	       rcv_destroy(fixture.file.domain, fixture.others.qp_num);
}

static int caps(void)
{
	struct xrc_rcv_caps caps;

	return rcv_caps(member.domain.uverbs_fd, &caps);
}

static int channel(void)
{
	int result = rcv_channel(member.domain);

	fixture.channel = result;
	return result < 0 ? result : 0;
}

static int close_channel(bool done)
{
	return done ? -close(fixture.channel) : 0;
}

static int alloc_in_reset(void)
{
	return rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &fixture.mine);
}

static int alloc_connected(void)
{
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node,
						       member.member_info->sender);

	return rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, &attr, member.channel,
			 &fixture.mine);
}

static int unregister(bool done)
{
	return done ? rcv_unreg(&fixture.mine) : 0;
}

static int read_event(void)
{
	struct xrc_rcv_record event;

	return read(member.channel, &event, sizeof(event)) == sizeof(event) ? 0 : -errno;
}

static int destroy_and_unregister(bool done)
{
	if (!done)
		return 0;
	return rcv_destroy_forced(member.domain, fixture.mine.qp_num) ?: read_event() ?:
	       rcv_unreg(&fixture.mine);
}

static int reg(void)
{
	return rcv_reg(member.domain, fixture.others.qp_num, member.channel, &fixture.mine);
}

static int reg_with_info(void)
{
	struct xrc_rcv_reg_info info;

	fixture.mine = (struct registration) {
		.uverbs_fd = member.domain.uverbs_fd,
		.channel = member.channel,
		.qp_num = fixture.others.qp_num,
	};
	return rcv_reg_info(member.domain, fixture.mine.qp_num, member.channel, &info);
}

static int reg_by_ioctl(void)
{
	struct xrc_rcv_reg_info info;

	fixture.mine = (struct registration) {
		.uverbs_fd = member.domain.uverbs_fd,
		.channel = member.channel,
		.qp_num = fixture.others.qp_num,
	};
	return rcv_ioctl_reg(member.channel, &fixture.mine.qp_num, 1, &info, NULL);
}

static int unregister_and_drop(bool done)
{
	return unregister(done) ?: drop_qp_of_other(done);
}

static int mine_registered(void)
{
	return qp_of_other() ?: reg();
}

/* Where one registration more, on the same channel, needs more room in both. */
static int crowd(void)
{
	int result = qp_of_other() ?: channel();
	unsigned int i;

	for (i = 0; !result && i < CROWD; i++)
		result = rcv_reg(fixture.crowd[i].domain, fixture.others.qp_num, NO_CHANNEL,
				 &fixture.crowds[i]);
	for (i = 0; !result && i < FULL; i++)
		result = rcv_alloc(member.domain, 0, NULL, fixture.channel, &fixture.full[i]);
	return result;
}

static int reg_in_crowd(void)
{
	return rcv_reg(member.domain, fixture.others.qp_num, fixture.channel, &fixture.mine);
}

static int disperse(bool done)
{
	int result = unregister(done);
	unsigned int i;

	for (i = 0; i < FULL; i++)
		result |= rcv_unreg(&fixture.full[i]);
	for (i = 0; i < CROWD; i++)
		result |= rcv_unreg(&fixture.crowds[i]);
	return result | close_channel(true) | drop_qp_of_other(done);
}

static int unreg(void)
{
	return rcv_unreg(&fixture.mine);
}

static int unreg_by_ioctl(void)
{
	return rcv_ioctl_unreg(fixture.mine.channel, &fixture.mine.qp_num, 1, NULL);
}

static int unregister_if_not_and_drop(bool done)
{
	return unregister(!done) ?: drop_qp_of_other(done);
}

static int modify_to_init(void)
{
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);

	return rcv_modify(member.domain, fixture.others.qp_num, &attr);
}

static int modify_to_rtr(void)
{
	struct ib_uverbs_qp_attr attr = attr_to_rtr(&member.node, member.member_info->sender);

	return rcv_modify(member.domain, fixture.others.qp_num, &attr);
}

static int qp_in_init(void)
{
	return qp_of_other() ?: modify_to_init();
}

static int modify_to_error(void)
{
	return rcv_to_state(member.domain, fixture.others.qp_num, IBV_QPS_ERR);
}

static int query(void)
{
	struct ib_uverbs_qp_attr attr;
	struct xrc_rcv_qp_info info;

	return rcv_query(member.domain, fixture.others.qp_num, &attr, &info);
}

static int list(void)
{
	struct xrc_rcv_qp_info infos[8];
	uint32_t count = 8, total;

	return rcv_list(member.domain, 0, infos, &count, &total) ?: count != 1;
}

static int qp_without_registration(void)
{
	return qp_of_other() ?: rcv_unreg(&fixture.others);
}

static int destroy(void)
{
	return rcv_destroy(member.domain, fixture.others.qp_num);
}

static int destroy_if_not(bool done)
{
	return done ? 0 : destroy();
}

/* The registration of others would keep the QP. */
static int force(void)
{
	return rcv_destroy_with(member.domain, fixture.others.qp_num, XRC_RCV_DESTROY_FORCE);
}

static int force_if_not_and_unregister(bool done)
{
	return (done ? 0 : force()) ?: rcv_unreg(&fixture.others);
}

static int events_of_mine(void)
{
	return mine_registered() ?: rcv_destroy_forced(member.domain, fixture.others.qp_num);
}

/* Either has an event of the QP, which stays in the log until both are read or discarded. */
static int unregister_all(bool done)
{
	(void)done;
	return rcv_unreg(&fixture.mine) ?: rcv_unreg(&fixture.others);
}

/* A channel of its own, with something to read. */
static int unread(void)
{
	return qp_of_other() ?: channel() ?: reg_in_crowd() ?:
	       rcv_destroy_forced(member.domain, fixture.others.qp_num);
}

static int close_unread(void)
{
	return -close(fixture.channel);
}

/* The registration of mine ends with its channel, which close(2) closes whatever it returns. */
static int unregister_others(bool done)
{
	(void)done;
	return rcv_unreg(&fixture.others);
}

/* A file with a QP of its own, and a registration with another's, on a channel. */
static int busy_file(void)
{
	struct registration registration;
	int result = qp_of_other();

	if (result)
		return result;
	file_open(&fixture.passing, member.member_info->domain_file);
	fixture.channel = rcv_channel(fixture.passing.domain);
	if (fixture.channel < 0)
		return fixture.channel;
	return rcv_alloc(fixture.passing.domain, 0, NULL, fixture.channel, &registration) ?:
	       rcv_reg(fixture.passing.domain, fixture.others.qp_num, fixture.channel,
		       &registration);
}

/* As an exit does it: nothing was given up before. */
static int close_file(void)
{
	return -ibv_close_device(fixture.passing.node.context);
}

static int close_channel_and_drop(bool done)
{
	return close_channel(true) ?: drop_qp_of_other(done);
}

/* A domain of its own, with which the module has had nothing to do. */
static int new_domain(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	fixture.xrcd = ibv_open_xrcd(member.node.context, &attr);
	return fixture.xrcd ? 0 : -errno;
}

static int alloc_in_new_domain(void)
{
	return rcv_alloc(domain_of(fixture.xrcd), 0, NULL, NO_CHANNEL, &fixture.mine);
}

static int unregister_and_close_domain(bool done)
{
	return unregister(done) ?: -ibv_close_xrcd(fixture.xrcd);
}

/* The same, with QPs, that the call closes for the last time. */
static int private_domain(void)
{
	struct registration registration;
	unsigned int i;
	int result = new_domain();

	if (result)
		return result;
	for (i = 0; i < CHILDREN && !result; i++) {
		result = rcv_alloc(domain_of(fixture.xrcd), XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				   NO_CHANNEL, &registration);
		if (!result)
			result = rcv_unreg(&registration);
	}
	return result;
}

static int close_domain(void)
{
	return -ibv_close_xrcd(fixture.xrcd);
}

static int close_domain_if_not(bool done)
{
	return done ? 0 : close_domain();
}

static const struct operation operations[] = {
	{ "QUERY_CAPS", nothing, caps, nothing_to_undo },
	{ "EVENT_CHANNEL_ALLOC", nothing, channel, close_channel },
	{ "ALLOC in RESET", nothing, alloc_in_reset, unregister },
	{ "ALLOC, the first of a domain", new_domain, alloc_in_new_domain,
	  unregister_and_close_domain },
	{ "ALLOC in RTR, with a channel", nothing, alloc_connected, destroy_and_unregister },
	{ "REG", qp_of_other, reg, unregister_and_drop },
	{ "REG with the totals", qp_of_other, reg_with_info, unregister_and_drop },
	{ "REG where it is crowded", crowd, reg_in_crowd, disperse },
	{ "REG by the ioctl", qp_of_other, reg_by_ioctl, unregister_and_drop },
	{ "UNREG", mine_registered, unreg, unregister_if_not_and_drop },
	{ "UNREG by the ioctl", mine_registered, unreg_by_ioctl, unregister_if_not_and_drop },
	{ "MODIFY to INIT", qp_of_other, modify_to_init, drop_qp_of_other },
	{ "MODIFY to RTR", qp_in_init, modify_to_rtr, drop_qp_of_other },
	{ "MODIFY to ERR", qp_in_init, modify_to_error, drop_qp_of_other },
	{ "QUERY", qp_of_other, query, drop_qp_of_other },
	{ "QUERY_DOMAIN", qp_of_other, list, drop_qp_of_other },
	{ "DESTROY", qp_without_registration, destroy, destroy_if_not },
	{ "DESTROY with FORCE", qp_of_other, force, force_if_not_and_unregister },
	{ "read", events_of_mine, read_event, unregister_all },
	{ "a channel's close", unread, close_unread, unregister_others },
	{ "a file's close", busy_file, close_file, close_channel_and_drop },
	{ "the domain's last close", private_domain, close_domain, close_domain_if_not },
};

enum { OPERATIONS = ARRAY_SIZE(operations) };

/* ---- the sweep ---- */

/*
 * ENFILE is how a socket says ENOMEM, which rxe makes for each QP, and ENOBUFS how the table of
 * neighbours does, if the address of the peer is not in it.
 */
static bool out_of_memory(int result)
{
	return result == -ENOMEM || result == -ENFILE || result == -ENOBUFS;
}

/* Runs the call with its N-th allocation failing; whether it had as many. */
static bool nth_fails(unsigned int n, int (*call)(void), int *result)
{
	char text[16] = {};
	int fd = open("/proc/thread-self/fail-nth", O_RDWR);

	if (fd < 0)
		err(1, "fail-nth");
	snprintf(text, sizeof(text), "%u", n);
	if (write(fd, text, strlen(text)) < 0)
		err(1, "fail-nth");
	*result = call();
	memset(text, 0, sizeof(text));
	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		err(1, "fail-nth");
	if (write(fd, "0", 1) != 1)
		err(1, "fail-nth");
	close(fd);
	return !strtoul(text, NULL, 10);
}

static int sweep(void *argument)
{
	const struct operation *operation = &operations[*(unsigned int *)argument];
	unsigned int n, failed = 0, left;
	bool injected;
	int result;

	for (n = 1; n < LIMIT; n++) {
		result = operation->prepare();
		if (result) {
			warnx("%s: allocation %u: preparation: %d", operation->name, n, result);
			return -EBADMSG;
		}
		injected = nth_fails(n, operation->call, &result);
		if (result && !out_of_memory(result)) {
			warnx("%s: allocation %u failed: %s", operation->name, n,
			      strerror(-result));
			return -EBADMSG;
		}
		failed += !!result;
		if (operation->undo(!result)) {
			warnx("%s: allocation %u failed: cannot be undone", operation->name, n);
			return -EBADMSG;
		}
		left = count_listed("domains") + count_listed("qps") +
		       count_listed("registrations");
		if (left) {
			warnx("%s: allocation %u failed: %u objects are left", operation->name, n,
			      left);
			return -EBADMSG;
		}
		if (!injected)
			break;
	}
	if (result || n == LIMIT) {
		warnx("%s: does not get through: %d", operation->name, result);
		return -EBADMSG;
	}
	/* So a reader that waits is charged for nothing. */
	CHECK(operation->call != read_event || n == 1);
	*(unsigned int *)argument = n - 1;
	return failed;
}

static int open_second_file(void *argument)
{
	struct member_info *member_info = argument;
	unsigned int i;

	file_open(&fixture.file, member_info->domain_file);
	for (i = 0; i < CROWD; i++)
		file_open(&fixture.crowd[i], member_info->domain_file);
	return 0;
}

/* The counts behind the limits are shown nowhere, but a limit of one shows that they are 0. */
static int creates_one_and_no_more(void *argument)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct registration first, second;

	(void)argument;
	CHECK(!syscall(SYS_capget, &header, data));
	data[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
	CHECK(!syscall(SYS_capset, &header, data));
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &first));
	CHECK(rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &second) == -EDQUOT);
	return rcv_unreg(&first);
}

static bool limits_count_none(struct actor *actor, const char *parameter)
{
	char was[16] = {};
	int fd = open(parameter, O_RDONLY | O_CLOEXEC);
	bool right;

	if (fd < 0 || read(fd, was, sizeof(was) - 1) <= 0)
		err(1, "%s", parameter);
	close(fd);
	write_file(parameter, "1");
	right = DO(*actor, creates_one_and_no_more, NULL);
	write_file(parameter, was);
	return right;
}

/* Whether anything is charged to the group that this process and its children are in. */
static bool charged(void)
{
	char line[256];
	bool any = false;
	FILE *file = fopen(GROUP "/rdma.current", "re");

	if (!file)
		err(1, GROUP);
	while (fgets(line, sizeof(line), file)) {
		const char *number = line;

		while ((number = strchr(number, '=')))
			any |= strtoul(++number, NULL, 10) != 0;
	}
	fclose(file);
	return any;
}

int main(void)
{
	static struct actor a, remote_actor;
	struct member_info *member_info;
	struct remote *remote;
	unsigned int *index, i;
	struct counts before;
	char text[96];

	ktap_start("every allocation fails once", OPERATIONS + 3);
	write_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	/* A line and a stack per failure would fill the log. */
	write_file("/sys/kernel/debug/failslab/verbose", "0");
	write_file("/sys/kernel/debug/fail_page_alloc/verbose", "0");
	write_file(CGROUP "/cgroup.subtree_control", "+rdma");
	if (mkdir(GROUP, 0700))
		err(1, GROUP);
	write_file(GROUP "/cgroup.procs", "0");
	before = count_objects();
	member_info = member_info_new(DOMAIN_FILE, 0, 0);
	member_info->wants_events = true;
	remote = remote_new(64);
	member_info->sender = &remote->path;
	index = share(sizeof(*index));
	actor_start(&remote_actor);
	actor_start(&a);
	if (!(DO(remote_actor, sender_start, remote) && DO(a, member_join, member_info) &&
	      DO(a, open_second_file, member_info)))
		errx(1, "the actors are not ready");

	for (i = 0; i < OPERATIONS; i++) {
		int failed;

		*index = i;
		failed = actor_do(&a, sweep, index);
		if (failed >= 0)
			ktap_note("%s: %u allocations, %d of them needed", operations[i].name,
				  *index, failed);
		snprintf(text, sizeof(text), "%s fails with each allocation and leaves nothing",
			 operations[i].name);
		ktap_result(failed >= 0, text);
	}
	ktap_result(limits_count_none(&a, PARAMETERS "/max_qps_per_domain") &
		    limits_count_none(&a, PARAMETERS "/max_qps_per_user"),
		    "limits count no QP any more");
	actor_exit(&a);
	actor_exit(&remote_actor);
	ktap_result(counts_return_to(&before), "no object is left");
	ktap_result(!charged(), "nothing is charged to the cgroup");
	write_file(CGROUP "/cgroup.procs", "0");
	rmdir(GROUP);
	unlink(DOMAIN_FILE);
	return ktap_end();
}
