// SPDX-License-Identifier: GPL-2.0
/*
 * REG and UNREG as ioctls of an event channel, by a process that has nothing but the
 * descriptor, which it got from another: calls with mistakes, pages that are missing,
 * and the ends of the channel.
 *
 * tags: races stock traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/channel-ioctl"

enum {
	PAGE = 1 << 16,		/* whole pages, whatever their size */
	BLOCK = 64,		/* numbers that the kernel reads at once */
	QPS = BLOCK + 6,
	DEAD = 0xabcdef,
	UNTOUCHED = 0xee,
	LONGEST = XRC_RCV_RECORD_SIZE_MAX,
};

static struct actor owner, guest;
static struct member_info *info;
static int sockets[2];

/* The QPs of the owner. */
static struct shared {
	uint32_t qp_nums[QPS];
	uint64_t serials[QPS];
	unsigned int registrations[QPS];
	atomic_bool has_begun;		/* registers_until_the_end() */
} *shared;

/* The owner's second file. */
static struct file second;

/* ---- acts of the owner ---- */

static int create(void *argument)
{
	struct registration registration;
	unsigned int i;

	(void)argument;
	for (i = 0; i < QPS; i++) {
		CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_CHANNEL,
				 &registration));
		shared->qp_nums[i] = registration.qp_num;
		shared->serials[i] = registration.serial;
	}
	return 0;
}

static int send_channel(int channel)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {
		.header = {
			.cmsg_len = CMSG_LEN(sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
		},
	};
	struct iovec byte = { .iov_base = "", .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &byte,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	CHECK(channel >= 0);
	memcpy(CMSG_DATA(&control.header), &channel, sizeof(channel));
	CHECK(sendmsg(sockets[0], &message, 0) == 1);
	return -close(channel);
}

static int pass_channel(void *argument)
{
	(void)argument;
	return send_channel(rcv_channel(member.domain));
}

static int pass_channel_of_second(void *argument)
{
	(void)argument;
	file_open(&second, info->domain_file);
	return send_channel(rcv_channel(second.domain));
}

static int close_second(void *argument)
{
	(void)argument;
	return file_close(&second);
}

/* QPs that are destroyed with their last registration, the guest's. */
static int create_for_guest(void *argument)
{
	struct registration registration;
	unsigned int i;

	(void)argument;
	for (i = 0; i < BLOCK; i++) {
		CHECK(!rcv_alloc(member.domain, 0, NULL, member.channel, &registration));
		shared->qp_nums[i] = registration.qp_num;
	}
	return 0;
}

static int leave_to_guest(void *argument)
{
	(void)argument;
	return rcv_unreg_many(member.domain.uverbs_fd, member.channel, shared->qp_nums, BLOCK, NULL);
}

static int count_registrations(void *argument)
{
	struct xrc_rcv_qp_info qp;
	unsigned int i;

	(void)argument;
	for (i = 0; i < QPS; i++) {
		CHECK(!rcv_query(member.domain, shared->qp_nums[i], NULL, &qp));
		shared->registrations[i] = qp.registrations;
	}
	return 0;
}

static int destroy_all(void *argument)
{
	unsigned int i;

	(void)argument;
	for (i = 0; i < QPS; i++)
		CHECK(!rcv_destroy_forced(member.domain, shared->qp_nums[i]));
	return 0;
}

/* ---- acts of the guest ---- */

static int channel;

static int take_channel(void *argument)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec bytes = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	(void)argument;
	CHECK(recvmsg(sockets[1], &message, MSG_CMSG_CLOEXEC) == 1);
	memcpy(&channel, CMSG_DATA(&control.header), sizeof(channel));
	CHECK(channel >= 0 && !fcntl(channel, F_SETFL, O_NONBLOCK));
	return 0;
}

static int drop_channel(void *argument)
{
	(void)argument;
	return -close(channel);
}

static int registers(void *argument)
{
	struct xrc_rcv_reg_info infos[QPS];
	unsigned int i;
	uint32_t done;

	(void)argument;
	memset(infos, UNTOUCHED, sizeof(infos));
	CHECK(!rcv_ioctl_reg(channel, shared->qp_nums, QPS, infos, &done) && done == QPS);
	for (i = 0; i < QPS; i++)
		CHECK(infos[i].serial == shared->serials[i] && !infos[i].counts[IBV_EVENT_QP_FATAL]);
	/* A registration that it has already stays. */
	CHECK(!rcv_ioctl_reg(channel, shared->qp_nums, 1, NULL, &done) && done == 1);
	return 0;
}

static int unregisters(void *argument)
{
	uint32_t done;

	(void)argument;
	CHECK(!rcv_ioctl_unreg(channel, shared->qp_nums, QPS, &done) && done == QPS);
	CHECK(!rcv_ioctl_unreg(channel, shared->qp_nums, 1, &done) && done == 1);
	return 0;
}

static int reads_all_gone(void *argument)
{
	struct xrc_rcv_record record;
	struct pollfd polled = { .fd = channel, .events = POLLIN };
	unsigned int i;

	(void)argument;
	for (i = 0; i < QPS; i++) {
		CHECK(poll(&polled, 1, PATIENCE_MS) == 1);
		CHECK(read(channel, &record, sizeof(record)) == sizeof(record));
		CHECK(record.type == XRC_RCV_EVENT_QP_GONE && record.serial == shared->serials[i]);
	}
	return 0;
}

/* One number in the second block is unknown. */
static int registers_around_unknown(void *argument)
{
	uint32_t numbers[QPS + 1], done;

	(void)argument;
	memcpy(numbers, shared->qp_nums, sizeof(shared->qp_nums));
	numbers[QPS] = numbers[BLOCK + 2];
	numbers[BLOCK + 2] = DEAD;
	CHECK(rcv_ioctl_reg(channel, numbers, QPS + 1, NULL, &done) == -EINVAL && done == BLOCK + 2);
	return 0;
}

/* The last bytes of a page, which another follows that is not there. */
static void *before_the_end(size_t size)
{
	static uint8_t *pages;

	if (!pages) {
		pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
		if (pages == MAP_FAILED || munmap(pages + PAGE, PAGE))
			err(1, "mmap");
	}
	memset(pages, 0, PAGE);
	return pages + PAGE - size;
}

/* A number of the second block cannot be read: the first is done. */
static int registers_missing_numbers(void *argument)
{
	uint32_t *numbers = before_the_end((BLOCK + 1) * sizeof(*numbers)), done;

	(void)argument;
	memcpy(numbers, shared->qp_nums, (BLOCK + 1) * sizeof(*numbers));
	CHECK(rcv_ioctl_reg(channel, numbers, QPS, NULL, &done) == -EFAULT && done == BLOCK);
	return 0;
}

static int unregisters_missing_numbers(void *argument)
{
	uint32_t *numbers = before_the_end((BLOCK + 1) * sizeof(*numbers)), done;

	(void)argument;
	memcpy(numbers, shared->qp_nums, (BLOCK + 1) * sizeof(*numbers));
	CHECK(rcv_ioctl_unreg(channel, numbers, QPS, &done) == -EFAULT && done == BLOCK);
	return 0;
}

/* There is no place for the fourth: its registration counts. */
static int registers_missing_infos(void *argument)
{
	struct xrc_rcv_reg_info *infos = before_the_end(3 * sizeof(*infos));
	uint32_t done;

	(void)argument;
	CHECK(rcv_ioctl_reg(channel, shared->qp_nums, QPS, infos, &done) == -EFAULT && done == 4);
	CHECK(infos[2].serial == shared->serials[2]);
	/* The last of the array. */
	CHECK(rcv_ioctl_reg(channel, shared->qp_nums, 4, infos, &done) == -EFAULT && done == 4);
	CHECK(!rcv_ioctl_reg(channel, shared->qp_nums, 3, infos, &done) && done == 3);
	return 0;
}

/* A struct that cannot be read, or not be written. */
static int registers_bad_struct(void *argument)
{
	struct xrc_rcv_qpns *args = before_the_end(sizeof(*args) - 8);
	int result;

	(void)argument;
	CHECK(ioctl(channel, XRC_RCV_IOCTL_REG, args) == -1 && errno == EFAULT);
	CHECK(ioctl(channel, XRC_RCV_IOCTL_REG, NULL) == -1 && errno == EFAULT);
	CHECK(ioctl(channel, XRC_RCV_IOCTL_REG, ~0ul - 63) == -1 && errno == EFAULT);
	args = before_the_end(sizeof(*args));
	*args = (struct xrc_rcv_qpns) { .qpns = (uintptr_t)shared->qp_nums, .count = QPS };
	CHECK(!mprotect(args + 1 - PAGE / sizeof(*args), PAGE, PROT_READ));
	result = ioctl(channel, XRC_RCV_IOCTL_REG, args) ? -errno : 0;
	CHECK(!mprotect(args + 1 - PAGE / sizeof(*args), PAGE, PROT_READ | PROT_WRITE));
	CHECK(result == -EFAULT);
	return 0;
}

/* REG of the first QP with a struct of that size, the last 32 bits of which are a value. */
static int sized(size_t size, uint32_t last)
{
	union {
		struct xrc_rcv_qpns args;
		uint32_t words[2 * LONGEST / 4];
	} longer = { .args = { .qpns = (uintptr_t)shared->qp_nums, .count = 1 } };

	if (size > sizeof(longer.args))
		longer.words[size / 4 - 1] = last;
	return ioctl(channel, _IOC(_IOC_READ | _IOC_WRITE, RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_REG,
				   size), &longer) ? -errno : 0;
}

static int sizes(void *argument)
{
	static const size_t accepted[] = { sizeof(struct xrc_rcv_qpns), 40, LONGEST };
	static const size_t refused[] = { 0, 8, 24, 28, 36, LONGEST + 8, 2 * LONGEST };
	unsigned int i;

	(void)argument;
	for (i = 0; i < ARRAY_SIZE(refused); i++)
		CHECK(sized(refused[i], 0) == -EINVAL);
	for (i = 1; i < ARRAY_SIZE(accepted); i++)
		CHECK(sized(accepted[i], 1) == -EOPNOTSUPP);
	CHECK(sized(40, 1u << 31) == -EOPNOTSUPP);
	return 0;
}

static int longer_sizes(void *argument)
{
	(void)argument;
	CHECK(!sized(40, 0) && !sized(LONGEST, 0));
	return rcv_ioctl_unreg(channel, shared->qp_nums, 1, NULL);
}

static int other_requests(void *argument)
{
	struct xrc_rcv_qpns args = { .qpns = (uintptr_t)shared->qp_nums, .count = 1 };
	const unsigned long requests[] = {
		0, ~0ul,
		_IOWR(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_REG - 1, args),
		_IOWR(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_UNREG + 1, args),
		_IOWR(RDMA_IOCTL_MAGIC + 1, XRC_RCV_IOCTL_NR_REG, args),
		_IOW(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_REG, args),
		_IOR(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_UNREG, args),
		_IO(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_REG),
		RDMA_VERBS_IOCTL,
	};
	unsigned int i;

	(void)argument;
	for (i = 0; i < ARRAY_SIZE(requests); i++)
		CHECK(ioctl(channel, requests[i], &args) == -1 && errno == ENOTTY);
	return 0;
}

static int wrong_members(void *argument)
{
	struct xrc_rcv_reg_info place;
	const struct xrc_rcv_qpns good = { .qpns = (uintptr_t)shared->qp_nums, .count = 1 };
	struct xrc_rcv_qpns wrong[10];
	unsigned int i;

	(void)argument;
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		wrong[i] = good;
	wrong[0].flags = 1;
	wrong[1].flags = 1u << 31;
	wrong[2].count = 0;
	wrong[3].info_size = sizeof(place);
	for (i = 4; i < ARRAY_SIZE(wrong); i++)
		wrong[i].infos = (uintptr_t)&place;
	wrong[5].info_size = 8;
	wrong[6].info_size = sizeof(place) - 8;
	wrong[7].info_size = sizeof(place) + 4;
	wrong[8].info_size = LONGEST + 8;
	wrong[9].info_size = ~0u;
	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		CHECK(ioctl(channel, XRC_RCV_IOCTL_REG, &wrong[i]) == -1 && errno == EINVAL);
	/* UNREG has no information. */
	wrong[4].info_size = sizeof(place);
	for (i = 0; i < 5; i++)
		CHECK(ioctl(channel, XRC_RCV_IOCTL_UNREG, &wrong[i]) == -1 && errno == EINVAL);
	return 0;
}

/* The channel has ended, whatever the numbers are. */
static int has_ended(void *argument)
{
	const uint32_t dead = DEAD;
	uint32_t done;

	(void)argument;
	CHECK(rcv_ioctl_reg(channel, shared->qp_nums, QPS, NULL, &done) == -EIO && !done);
	CHECK(rcv_ioctl_reg(channel, &dead, 1, NULL, &done) == -EIO && !done);
	CHECK(rcv_ioctl_unreg(channel, shared->qp_nums, QPS, &done) == -EIO && !done);
	CHECK(rcv_ioctl_unreg(channel, &dead, 1, &done) == -EIO && !done);
	return 0;
}

static int reads_nothing(void *argument)
{
	struct xrc_rcv_record record;

	(void)argument;
	CHECK(read(channel, &record, sizeof(record)) == -1 && errno == EIO);
	return 0;
}

static int registers_for_owner(void *argument)
{
	(void)argument;
	return rcv_ioctl_reg(channel, shared->qp_nums, BLOCK, NULL, NULL);
}

/* The last number is in a page that does not come. */
static int unregisters_for_ever(void *argument)
{
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t *numbers = (uint32_t *)(pages + PAGE) - BLOCK;
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC);

	(void)argument;
	CHECK(faults >= 0 && !ioctl(faults, UFFDIO_API, &api));
	area.range.start = (uintptr_t)pages + PAGE;
	area.range.len = PAGE;
	CHECK(!ioctl(faults, UFFDIO_REGISTER, &area));
	memcpy(numbers, shared->qp_nums, BLOCK * sizeof(*numbers));
	return rcv_ioctl_unreg(channel, numbers, BLOCK + 1, NULL);
}

/* Until the device is removed. */
static int registers_until_the_end(void *argument)
{
	int result;

	(void)argument;
	do {
		result = rcv_ioctl_reg(channel, shared->qp_nums, QPS, NULL, NULL) ?:
			 rcv_ioctl_unreg(channel, shared->qp_nums, QPS, NULL);
		if (!result)
			shared->has_begun = true;
	} while (!result);
	CHECK(shared->has_begun && result == -EIO);
	return 0;
}

/* ---- scenario ---- */

/* The first QPS have one registration beside the owner's, the others none. */
static bool are_registered(unsigned int first)
{
	unsigned int i;

	if (!DO(owner, count_registrations, NULL))
		return false;
	for (i = 0; i < QPS; i++)
		if (shared->registrations[i] != 1 + (i < first))
			return ktap_wrong("QP %u has %u registrations, %u of the guest are wanted", i,
					  shared->registrations[i], first);
	return true;
}

static bool registers_and_not(act *registers_some, unsigned int some)
{
	return DO(guest, registers_some, NULL) && are_registered(some) &&
	       DO(guest, unregisters, NULL) && are_registered(0);
}

static bool refuses(act *wrong)
{
	return DO(guest, wrong, NULL) && are_registered(0);
}

static bool unregisters_in_part(void)
{
	unsigned int i;

	if (!DO(guest, registers, NULL) || !DO(guest, unregisters_missing_numbers, NULL) ||
	    !DO(owner, count_registrations, NULL))
		return false;
	for (i = 0; i < QPS; i++)
		if (shared->registrations[i] != 1 + (i >= BLOCK))
			return ktap_wrong("QP %u has %u registrations", i, shared->registrations[i]);
	return DO(guest, unregisters, NULL);
}

static bool any_is_shown(void)
{
	unsigned int i;

	for (i = 0; i < BLOCK; i++)
		if (qp_is_shown(shared->qp_nums[i]))
			return true;
	return false;
}

/* The QPs that UNREG ends are destroyed before it waits for a page; and it can be killed. */
static bool holds_no_qp(void)
{
	unsigned int i;

	if (!DO(owner, create_for_guest, NULL) || !DO(guest, registers_for_owner, NULL) ||
	    !DO(owner, leave_to_guest, NULL) || !any_is_shown())
		return false;
	actor_begin(&guest, unregisters_for_ever, NULL);
	for (i = 0; any_is_shown() && i < PATIENCE_MS / 1000; i++)
		sleep(1);
	actor_kill(&guest);
	return i < PATIENCE_MS / 1000;
}

static bool guest_gets(act *pass)
{
	return DO(owner, pass, NULL) && DO(guest, take_channel, NULL);
}

static bool ends_with_file(void)
{
	return guest_gets(pass_channel_of_second) && DO(guest, registers, NULL) &&
	       are_registered(QPS) && DO(owner, close_second, NULL) && are_registered(0) &&
	       DO(guest, has_ended, NULL) && are_registered(0) && DO(guest, reads_nothing, NULL) &&
	       DO(guest, drop_channel, NULL);
}

/* The device is removed while the guest registers. */
static void remove_meanwhile(void)
{
	unsigned int i;

	actor_begin(&guest, registers_until_the_end, NULL);
	for (i = 0; i < PATIENCE_MS / 10 && !shared->has_begun; i++)
		usleep(10000);
	device_remove();
}

int main(void)
{
	struct counts before;

	ktap_start("REG and UNREG by the file of a channel", 16);
	before = count_objects();
	info = member_info_new(DOMAIN_FILE, 0, 0);
	info->wants_events = true;
	shared = share(sizeof(*shared));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "socketpair");
	actor_start(&guest);
	actor_start(&owner);
	if (!DO(owner, member_join, info) || !DO(owner, create, NULL) || !guest_gets(pass_channel))
		errx(1, "the actors are not ready");

	ktap_result(registers_and_not(registers, QPS), "a process that has the descriptor alone registers");
	ktap_result(registers_and_not(registers_around_unknown, BLOCK + 2), "up to a number that is unknown");
	ktap_result(registers_and_not(registers_missing_numbers, BLOCK), "up to numbers that cannot be read");
	ktap_result(registers_and_not(registers_missing_infos, 4), "up to a QP whose totals cannot be written");
	ktap_result(unregisters_in_part(), "UNREG up to numbers that cannot be read");
	ktap_result(refuses(registers_bad_struct), "a struct that cannot be read or written");
	ktap_result(refuses(sizes), "sizes that the struct does not have, and longer ones that are not 0");
	ktap_result(refuses(longer_sizes), "longer structs");
	ktap_result(refuses(other_requests), "other requests");
	ktap_result(refuses(wrong_members), "each member wrong");
	ktap_result(DO(guest, registers, NULL) && DO(owner, destroy_all, NULL) &&
		    DO(guest, reads_all_gone, NULL), "events of its registrations are read from it");
	ktap_result(DO(guest, drop_channel, NULL) && DO(owner, create, NULL) && ends_with_file(),
		    "the channel ends with its uverbs file");
	ktap_result(guest_gets(pass_channel) && holds_no_qp(), "UNREG holds no QP while a page is missing");

	actor_start(&guest);
	if (!DO(owner, create, NULL) || !guest_gets(pass_channel))
		errx(1, "the actors are not ready again");
	remove_meanwhile();
	ktap_result(succeeded("guest", actor_wait(&guest)), "calls until the device is removed, then EIO");
	ktap_result(DO(guest, has_ended, NULL), "EIO afterwards");
	device_add();
	actor_exit(&guest);
	actor_exit(&owner);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
