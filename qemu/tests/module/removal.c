// SPDX-License-Identifier: GPL-2.0
/*
 * The device is removed while processes have receive QPs, registrations and channels
 * on it, and some of them wait for events: they get a last record, then EIO and
 * a hang-up, nothing waits for them, and their later calls fail cleanly.
 * A process that closes its channels then frees the memory of its registrations,
 * though another process still has registrations with the same QPs.
 * When the device is back everything begins anew.
 *
 * tags: races vmlx4 long-vmlx4 vmlx5 traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/removal"
#define CGROUP "/sys/fs/cgroup"
#define GROUP CGROUP "/removal"

enum {
	MANY = 128,
	CHANNELS = 16,		/* that are registered with each of MANY others */
	SIZE = sizeof(struct xrc_rcv_record),
	MEMORY = MANY * 512,	/* no less, in bytes, for QPs with unread records */
	SUM_S = 3,		/* after which the kernel has summed up memory.stat */
};

static struct actor holder, reader, poller, crowd, remote_actor;
static struct member_info *mh, *mr, *mp, *mc;
static struct remote *remote;
static struct traffic *traffic;
static uint32_t *numbers;	/* shared: of the holder's QPs */
static uint64_t first_serial;	/* the holder's */
static int group = -1;		/* where processes enter it */
static int channels[CHANNELS];	/* the crowd's */

/* ---- acts ---- */

static int many_qps(void *argument)
{
	unsigned int i;

	(void)argument;
	for (i = 0; i < MANY; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL,
				 member.channel, &member.registration));
		numbers[i] = member.registration.qp_num;
		if (!i)
			first_serial = member.registration.serial;
	}
	return 0;
}

/* What the channels cost is charged to the group, too. */
static int open_channels(void *argument)
{
	unsigned int i;

	(void)argument;
	CHECK(write(group, "0", 1) == 1);
	for (i = 0; i < CHANNELS; i++)
		CHECK((channels[i] = rcv_channel(member.domain)) >= 0);
	return 0;
}

/* With QPs of its own, which are charged to the group as well. */
static int register_channels(void *argument)
{
	struct registration registration;
	uint32_t own[MANY];
	unsigned int i;

	(void)argument;
	for (i = 0; i < MANY; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channels[0],
				 &registration));
		own[i] = registration.qp_num;
	}
	for (i = 1; i < CHANNELS; i++)
		CHECK(!rcv_reg_many(member.domain.uverbs_fd, channels[i], own, MANY, NULL));
	return 0;
}

static int close_channels(void *argument)
{
	unsigned int i;

	(void)argument;
	for (i = 0; i < CHANNELS; i++)
		CHECK(!close(channels[i]));
	return 0;
}

static bool says_gone(const struct xrc_rcv_record *record)
{
	return record->type == XRC_RCV_EVENT_QP_GONE && record->count == 1 && record->serial;
}

/* Waits in read: the record, then the end. */
static int read_until_the_end(void *argument)
{
	struct member_info *member_info = argument;
	struct xrc_rcv_record event;

	CHECK(read(member.channel, &event, SIZE) == SIZE);
	CHECK(says_gone(&event) && event.qp_num == member_info->qp_num);
	CHECK(read(member.channel, &event, SIZE) == -1 && errno == EIO);
	CHECK(read(member.channel, &event, SIZE) == -1 && errno == EIO);
	return 0;
}

static int poll_until_the_end(void *argument)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = { .events = EPOLLIN }, found;
	struct pollfd ready = { .fd = member.channel, .events = POLLIN };
	struct xrc_rcv_record event;

	(void)argument;
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, member.channel, &interest));
	CHECK(epoll_wait(epoll, &found, 1, PATIENCE_MS) == 1 && found.events & EPOLLIN);
	CHECK(read(member.channel, &event, SIZE) == SIZE && says_gone(&event));
	/* The hang-up may come a moment after the record. */
	ready.events = 0;
	CHECK(poll(&ready, 1, PATIENCE_MS) == 1 && ready.revents & POLLHUP);
	CHECK(epoll_wait(epoll, &found, 1, 0) == 1 && found.events & EPOLLHUP);
	CHECK(!fcntl(member.channel, F_SETFL, O_NONBLOCK));
	CHECK(read(member.channel, &event, SIZE) == -1 && errno == EIO);
	close(epoll);
	return 0;
}

/* One record per QP, although no process read them. */
static int read_all_records(void *argument)
{
	struct xrc_rcv_record events[MANY + 2];
	bool seen[MANY] = {};
	ssize_t size = 0, got;
	unsigned int i;

	(void)argument;
	while (size < MANY * SIZE) {
		got = read(member.channel, (char *)events + size, sizeof(events) - size);
		CHECK(got > 0);
		size += got;
	}
	CHECK(size == MANY * SIZE);
	for (i = 0; i < MANY; i++) {
		uint64_t qp = events[i].serial - first_serial;

		CHECK(says_gone(&events[i]) && qp < MANY && !seen[qp]);
		CHECK(events[i].qp_num == numbers[qp]);
		seen[qp] = true;
	}
	CHECK(read(member.channel, events, sizeof(events)) == -1 && errno == EIO);
	return 0;
}

static int every_call_fails(void *argument)
{
	struct member_info *member_info = argument;
	struct registration registration;
	struct xrc_rcv_caps caps;

	CHECK(rcv_caps(member.node.context->cmd_fd, &caps) == -EIO);
	CHECK(rcv_channel(member.domain) == -EIO);
	CHECK(rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration) == -EIO);
	CHECK(rcv_query(member.domain, member_info->qp_num, NULL, NULL) == -EIO);
	return 0;
}

/* UNREG, too; the registration has ended. */
static int gives_up(void *argument)
{
	(void)argument;
	CHECK(rcv_unreg(&member.registration) == -EIO);
	return 0;
}

/* ---- scenario ---- */

static bool silent(void)
{
	*traffic = (struct traffic) {
		.srq_num = { mr->srq_num }, .srqs = 1, .count = 1, .size = 64,
	};
	return DO(remote_actor, sender_connect_to_nobody, NULL) &&
	       actor_do(&remote_actor, sender_send, traffic) == -EIO;
}

/* Bytes of slabs that the group is charged for. */
static long charged(void)
{
	FILE *file = fopen(GROUP "/memory.stat", "re");
	long bytes = -1, value;
	char name[64];

	if (!file)
		err(1, GROUP "/memory.stat");
	while (bytes < 0 && fscanf(file, "%63s %ld", name, &value) == 2)
		if (!strcmp(name, "slab"))
			bytes = value;
	fclose(file);
	return bytes;
}

/* Waits until it is less than LESS, and not less than LEAST. */
static long charged_between(long least, long less)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	long bytes;

	while (((bytes = charged()) < least || bytes >= less) && now_ns() < end)
		usleep(100000);
	return bytes;
}

/* The memory comes back but for a quarter, which may be in use for something else. */
static bool memory_returns(long before, long unread)
{
	const long limit = before + (unread - before) / 4;
	long left = charged_between(LONG_MIN, limit);

	ktap_note("%u QPs with unread records: %ld bytes, of which %ld are left", MANY,
		  unread - before, left - before);
	return unread - before >= MEMORY && left < limit;
}

static void make_group(void)
{
	int fd;

	if (access(CGROUP "/cgroup.controllers", F_OK) &&
	    mount("cgroup2", CGROUP, "cgroup2", 0, NULL))
		err(1, CGROUP);
	fd = open(CGROUP "/cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "+memory", 7) != 7 || close(fd))
		err(1, CGROUP "/cgroup.subtree_control");
	if (mkdir(GROUP, 0755))
		err(1, GROUP);
	/* A namespace has another /sys. */
	group = open(GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (group < 0)
		err(1, GROUP);
}

static void start(struct actor *actor, struct member_info **member_info, unsigned int depth)
{
	*member_info = member_info_new(DOMAIN_FILE, depth, 64);
	(*member_info)->wants_events = true;
	(*member_info)->sender = &remote->path;
	actor_start(actor);
	if (!DO(*actor, member_join, *member_info))
		errx(1, "the actors are not ready");
}

int main(void)
{
	struct counts before;
	long memory, unread;
	uint64_t begin, took;
	bool gone;

	ktap_start("a device is removed under its users", nodes_share_device() ? 11 : 12);
	before = count_objects();
	make_group();
	numbers = share(MANY * sizeof(*numbers));
	remote = remote_new(64);
	traffic = share(sizeof(*traffic));
	actor_start(&remote_actor);
	if (!DO(remote_actor, sender_start, remote))
		errx(1, "the sender is not ready");
	start(&holder, &mh, 0);
	start(&reader, &mr, 4);
	start(&poller, &mp, 0);
	start(&crowd, &mc, 0);

	/* One QP that both are registered with and that messages come through. */
	ktap_result(DO(reader, member_alloc_connected, mr) &&
		    (mp->qp_num = mh->qp_num = mr->qp_num) && DO(poller, member_reg, mp) &&
		    DO(holder, many_qps, NULL), "processes hold QPs, registrations and channels");
	remote_aim(remote, mr, mr->qp_num);
	DO(remote_actor, sender_connect, remote);
	if (!DO(crowd, open_channels, NULL))
		errx(1, "the channels are not open");
	sleep(SUM_S);
	memory = charged();
	if (!DO(crowd, register_channels, NULL))
		errx(1, "the channels are not registered");
	actor_begin(&reader, read_until_the_end, mr);
	actor_begin(&poller, poll_until_the_end, NULL);
	usleep(300000);

	begin = now_ns();
	device_remove();
	took = (now_ns() - begin) / 1000000;
	ktap_note("removed after %lu ms", took);
	/* They hold all of it until the end: a removal that waited for them would not return. */
	ktap_result(took < PATIENCE_MS, "removal of the device does not wait for them");
	ktap_result(succeeded("reader", actor_wait(&reader)), "read() returns a record, then EIO");
	ktap_result(succeeded("poller", actor_wait(&poller)), "poll() reports a record, then a hang-up");
	ktap_result(DO(holder, read_all_records, NULL), "the records of many QPs can be read afterwards");
	sleep(SUM_S);
	unread = charged();
	ktap_result(DO(crowd, close_channels, NULL) && memory_returns(memory, unread),
		    "QPs free their memory when the last channel with records of them is closed");
	ktap_result(DO(holder, every_call_fails, mh), "every call returns EIO");
	ktap_result(DO(holder, gives_up, NULL), "a registration can be dropped");
	/* Where it is the sender's device, too, there is no sender left. */
	if (!nodes_share_device())
		ktap_result(silent(), "the sender gets no answer");

	/* Processes that have it open do not keep the device from coming back, or from working. */
	device_add();
	gone = actor_do(&holder, every_call_fails, mh) == 0;
	actor_exit(&poller);
	start(&poller, &mp, 0);
	ktap_result(DO(poller, member_alloc, mp) && qp_is_shown(mp->qp_num) &&
		    DO(poller, member_unreg, NULL) && !qp_is_shown(mp->qp_num),
		    "a device that comes back has receive QPs again");
	ktap_result(gone, "files that were open before stay dead");
	actor_kill(&holder);
	actor_exit(&reader);
	actor_exit(&poller);
	actor_exit(&crowd);
	actor_exit(&remote_actor);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	rmdir(GROUP);
	return ktap_end();
}
