// SPDX-License-Identifier: GPL-2.0
/*
 * Event channels as files: read, poll, select, epoll, O_NONBLOCK, buffers of
 * any size, signals; many QPs on one channel, one QP on many; and unread events
 * when a registration or a channel ends.
 *
 * Most of it uses QP_GONE: a process that holds the domain causes it
 * with DESTROY, at once, on any device.
 *
 * tags: races traced
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/channel"

enum {
	MANY = 5,
	CROWD = 100,
	BATCH = 16,		/* the records of a read, at most */
	SIZE = sizeof(struct xrc_rcv_record),
	RACES = 8,
	RACERS = 16,
	ERROR = IBV_EVENT_QP_LAST_WQE_REACHED,	/* of a QP that is modified to ERR */
};

static struct actor a;
static struct member_info *ma;

static int new_channel(void)
{
	return rcv_channel(member.domain);
}

static int new_qp(int channel, struct registration *registration)
{
	return rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel, registration);
}

static short ready(int channel)
{
	struct pollfd poll_fd = { .fd = channel, .events = POLLIN | POLLOUT | POLLPRI };

	return poll(&poll_fd, 1, 0) == 1 ? poll_fd.revents : 0;
}

/* ---- acts ---- */

static int empty(void *argument)
{
	int channel = new_channel(), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = { .events = EPOLLIN }, event;
	struct xrc_rcv_record record;
	struct rlimit usual, none;
	struct timeval now = {};
	fd_set set;

	(void)argument;
	CHECK(channel >= 0);
	CHECK(!getrlimit(RLIMIT_NOFILE, &usual));
	none = usual;
	none.rlim_cur = 0;
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHECK(new_channel() == -EMFILE);
	CHECK(!setrlimit(RLIMIT_NOFILE, &usual));
	CHECK(fcntl(channel, F_GETFD) == FD_CLOEXEC);
	CHECK(!(fcntl(channel, F_GETFL) & O_NONBLOCK));
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	CHECK(read(channel, &record, SIZE) == -1 && errno == EAGAIN);
	CHECK(!ready(channel));
	FD_ZERO(&set);
	FD_SET(channel, &set);
	CHECK(!select(channel + 1, &set, NULL, NULL, &now));
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, channel, &interest));
	CHECK(!epoll_wait(epoll, &event, 1, 0));
	CHECK(write(channel, &record, SIZE) == -1 && errno == EBADF);
	CHECK(lseek(channel, 0, SEEK_END) == -1 || !lseek(channel, 0, SEEK_CUR));
	CHECK(ioctl(channel, 0, 0) == -1 && errno == ENOTTY);
	close(epoll);
	return -close(channel);
}

static int signalled(void *argument)
{
	int channel = new_channel(), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = { .events = EPOLLIN, .data.u32 = 7 }, event;
	struct registration registration;
	struct timeval now = {};
	struct xrc_rcv_record record;
	uint64_t before, after;
	fd_set set;

	(void)argument;
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, channel, &interest));
	CHECK(!new_qp(channel, &registration));
	CHECK(!ready(channel));
	before = now_ns();
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	after = now_ns();
	CHECK(ready(channel) == POLLIN);
	FD_ZERO(&set);
	FD_SET(channel, &set);
	CHECK(select(channel + 1, &set, NULL, NULL, &now) == 1 && FD_ISSET(channel, &set));
	/* epoll reports it when a worker has woken its readers. */
	CHECK(epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1);
	CHECK(event.events == EPOLLIN && event.data.u32 == 7);
	CHECK(read(channel, &record, SIZE) == SIZE);
	CHECK(is_gone(&record, &registration));
	CHECK(record.last_ns >= before && record.last_ns <= after);
	CHECK(!ready(channel));
	CHECK(!epoll_wait(epoll, &event, 1, 0));
	CHECK(!rcv_unreg(&registration));
	close(epoll);
	return -close(channel);
}

static int buffers(void *argument)
{
	struct xrc_rcv_record records[MANY + 1] = {};
	struct registration registration[MANY];
	int channel = new_channel(), i;
	void *nowhere = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)argument;
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	for (i = 0; i < MANY; i++)
		CHECK(!new_qp(channel, &registration[i]));
	/* In the order of the events, not of registration. */
	for (i = MANY - 1; i >= 0; i--)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));

	CHECK(read(channel, records, SIZE - 1) == -1 && errno == EINVAL);
	CHECK(read(channel, records, 0) == -1 && errno == EINVAL);
	CHECK(ready(channel) == POLLIN);
	CHECK(read(channel, records, SIZE) == SIZE);
	CHECK(is_gone(&records[0], &registration[MANY - 1]));
	/* Two and a half: the half is not written. */
	memset(records, 0xee, sizeof(records));
	CHECK(read(channel, records, 2 * SIZE + SIZE / 2) == 2 * SIZE);
	CHECK(is_gone(&records[0], &registration[MANY - 2]));
	CHECK(is_gone(&records[1], &registration[MANY - 3]));
	CHECK(records[2].qp_num == 0xeeeeeeee);
	CHECK(read(channel, records, SIZE) == SIZE);
	CHECK(is_gone(&records[0], &registration[1]));
	/* Nothing is lost to a buffer that is not there. */
	CHECK(read(channel, nowhere, SIZE) == -1 && errno == EFAULT);
	CHECK(read(channel, records, sizeof(records)) == SIZE);
	CHECK(is_gone(&records[0], &registration[0]));
	CHECK(read(channel, records, SIZE) == -1 && errno == EAGAIN);
	for (i = 0; i < MANY; i++)
		CHECK(!rcv_unreg(&registration[i]));
	return -close(channel);
}

/*
 * A read takes few records with interrupts disabled, and no more than these, however long its
 * buffer is: all that it returns are settled at once.
 */
static int many_records(void *argument)
{
	static struct xrc_rcv_record records[2 * CROWD];
	static struct registration registration[CROWD];
	int channel = new_channel(), i, got = 0, count;

	(void)argument;
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	for (i = 0; i < CROWD; i++)
		CHECK(!new_qp(channel, &registration[i]));
	for (i = 0; i < CROWD; i++)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	while (got < CROWD) {
		count = read(channel, records, sizeof(records)) / SIZE;
		CHECK(count == (CROWD - got < BATCH ? CROWD - got : BATCH));
		for (i = 0; i < count; i++, got++)
			CHECK(is_gone(&records[i], &registration[got]));
	}
	CHECK(read(channel, records, sizeof(records)) == -1 && errno == EAGAIN);
	for (i = 0; i < CROWD; i++)
		CHECK(!rcv_unreg(&registration[i]));
	return -close(channel);
}

/* Another file of the process, whose channel shows when an event has happened. */
struct witness {
	struct file file;
	int channel;
};

static int call_witness(struct witness *witness, const struct member_info *member_info)
{
	file_open(&witness->file, member_info->domain_file);
	witness->channel = rcv_channel(witness->file.domain);
	return witness->channel < 0 ? witness->channel : 0;
}

static int dismiss(struct witness *witness)
{
	return -close(witness->channel) ?: file_close(&witness->file);
}

/* A QP in RESET gets an error, which is the last so far of TOTAL, and is in RESET again. */
static int error(const struct witness *witness, const struct registration *qp, uint64_t total)
{
	const struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	struct registration registration;
	struct xrc_rcv_record record;

	CHECK(!rcv_reg(witness->file.domain, qp->qp_num, witness->channel, &registration));
	CHECK(!rcv_modify(member.domain, qp->qp_num, &init));
	CHECK(!rcv_to_state(member.domain, qp->qp_num, IBV_QPS_ERR));
	CHECK(read(witness->channel, &record, SIZE) == SIZE);
	CHECK(is_record(&record, qp, ERROR, total));
	return rcv_to_state(member.domain, qp->qp_num, IBV_QPS_RESET);
}

/*
 * A process that reads one record at a time gets them in the order of the events, QP_GONE of a QP
 * last.
 */
static int one_by_one(void *argument)
{
	struct registration registration[2];
	int channel = new_channel(), i;
	struct xrc_rcv_record record;
	struct witness witness;

	CHECK(!call_witness(&witness, argument));
	for (i = 0; i < 2; i++) {
		CHECK(!new_qp(channel, &registration[i]));
		CHECK(!error(&witness, &registration[i], 1));
	}
	CHECK(!dismiss(&witness));
	for (i = 0; i < 2; i++)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	for (i = 0; i < 4; i++) {
		CHECK(read(channel, &record, SIZE) == SIZE);
		CHECK(is_record(&record, &registration[i % 2],
				i < 2 ? ERROR : XRC_RCV_EVENT_QP_GONE, 1));
	}
	CHECK(!ready(channel));
	for (i = 0; i < 2; i++)
		CHECK(!rcv_unreg(&registration[i]));
	return -close(channel);
}

/* The caller says how much of a record it knows. */
static int sizes(void *argument)
{
	static const uint32_t none[] = { 0, 24, 36, 264, 1024 };
	struct registration registration[2];
	struct {
		struct xrc_rcv_record record;
		uint64_t unknown[2];
	} records[2];
	const uint32_t size = sizeof(records[0]);
	unsigned int i;
	int channel;

	(void)argument;
	for (i = 0; i < ARRAY_SIZE(none); i++)
		CHECK(rcv_channel_with(member.domain, &none[i], NULL) == -EINVAL);
	channel = rcv_channel_with(member.domain, &size, NULL);
	CHECK(channel >= 0);
	for (i = 0; i < 2; i++) {
		CHECK(!new_qp(channel, &registration[i]));
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	}
	memset(records, 0xee, sizeof(records));
	CHECK(read(channel, records, SIZE) == -1 && errno == EINVAL);
	CHECK(read(channel, records, sizeof(records)) == sizeof(records));
	for (i = 0; i < 2; i++) {
		CHECK(is_gone(&records[i].record, &registration[i]));
		CHECK(!records[i].unknown[0] && !records[i].unknown[1]);
		CHECK(!rcv_unreg(&registration[i]));
	}
	return -close(channel);
}

static bool says(int channel, const struct registration *qp, uint64_t total)
{
	struct xrc_rcv_record record;

	HOLDS(ready(channel) == POLLIN && read(channel, &record, SIZE) == SIZE);
	HOLDS(is_record(&record, qp, ERROR, total) && !ready(channel));
	return true;
}

/* REG, and what it says of the QP. */
static bool registers(int channel, const struct registration *qp, uint64_t total)
{
	struct xrc_rcv_reg_info info;
	unsigned int type;

	memset(&info, 0xee, sizeof(info));
	HOLDS(!rcv_reg_info(member.domain, qp->qp_num, channel, &info) && info.serial == qp->serial);
	for (type = 0; type < ARRAY_SIZE(info.counts); type++)
		HOLDS(info.counts[type] == (type == ERROR ? total : 0));
	return true;
}

/* A QP counts its events: reads, registrations and other channels do not change the totals. */
static int totals(void *argument)
{
	int channel = new_channel(), late = new_channel();
	struct registration qp, other;
	struct witness witness;
	struct xrc_rcv_record record;
	uint64_t total;

	CHECK(!call_witness(&witness, argument));
	CHECK(!new_qp(channel, &qp) && !new_qp(channel, &other));
	CHECK(qp.serial && other.serial == qp.serial + 1);
	for (total = 1; total <= 3; total++)
		CHECK(!error(&witness, &qp, total));
	CHECK(says(channel, &qp, 3));
	CHECK(!error(&witness, &qp, 4));
	/* Events before the registration are in the total, and are not reported. */
	CHECK(registers(late, &qp, 4) && !ready(late));
	CHECK(registers(late, &other, 0));
	CHECK(!error(&witness, &qp, 5));
	CHECK(says(late, &qp, 5) && says(channel, &qp, 5));
	/* REG of a registered channel keeps its unread events, and returns the total. */
	CHECK(!error(&witness, &qp, 6));
	CHECK(registers(channel, &qp, 6) && says(channel, &qp, 6));
	/* One that registers again has lost those of before. */
	CHECK(!rcv_unreg_many(member.domain.uverbs_fd, late, &qp.qp_num, 1, NULL));
	CHECK(registers(late, &qp, 6) && !ready(late));
	CHECK(!rcv_destroy_forced(member.domain, qp.qp_num));
	CHECK(read(channel, &record, SIZE) == SIZE && is_gone(&record, &qp));
	CHECK(read(late, &record, SIZE) == SIZE && is_gone(&record, &qp));
	CHECK(!rcv_destroy_forced(member.domain, other.qp_num));
	CHECK(!dismiss(&witness));
	return -close(late) ?: -close(channel);
}

/* Three QPs, which have had no, two and no errors. */
struct three {
	struct registration registration[3];
	uint32_t qp_nums[3];
	int channel;
};

static int make_three(struct three *qps, const struct member_info *member_info)
{
	struct witness witness;
	unsigned int i;

	qps->channel = new_channel();
	CHECK(!call_witness(&witness, member_info));
	for (i = 0; i < 3; i++) {
		CHECK(!new_qp(qps->channel, &qps->registration[i]));
		qps->qp_nums[i] = qps->registration[i].qp_num;
	}
	CHECK(!error(&witness, &qps->registration[1], 1));
	CHECK(!error(&witness, &qps->registration[1], 2));
	return dismiss(&witness);
}

/* REG of an array; INFOS has room for LENGTH bytes, and elements of SIZE bytes. */
static int reg_sized(int channel, const uint32_t *qp_nums, unsigned int count, void *infos,
		     uint16_t length, uint32_t size, uint32_t *done)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG);
	call_object(&call, XRC_RCV_ATTR_QP_REG_CHANNEL, channel);
	call_in(&call, XRC_RCV_ATTR_QP_REG_QPNS, qp_nums, count * sizeof(*qp_nums));
	call_out(&call, XRC_RCV_ATTR_QP_REG_RESP_DONE, done, sizeof(*done));
	call_out(&call, XRC_RCV_ATTR_QP_REG_RESP_INFO, infos, length);
	call_in(&call, XRC_RCV_ATTR_QP_REG_INFO_SIZE, &size, sizeof(size));
	return call_run(&call, member.domain.uverbs_fd);
}

static bool has_info(const struct xrc_rcv_reg_info *info, const struct three *qps, unsigned int i)
{
	return info->serial == qps->registration[i].serial && info->counts[ERROR] == (i == 1 ? 2 : 0);
}

/* Elements of the QPs that are done, as long as the caller knows them, and no byte more. */
static int infos(void *argument)
{
	static const uint32_t none[] = { 0, 8, 136, 148, 264, 1024 };
	struct {
		struct xrc_rcv_reg_info info;
		uint64_t unknown[2];
	} infos[3];
	const uint32_t size = sizeof(infos[0]);
	struct xrc_rcv_reg_info known[3];
	struct xrc_rcv_qp_info qp_info;
	int channel = new_channel();
	uint32_t two[3], done = 77;
	struct three qps;
	unsigned int i;

	CHECK(!make_three(&qps, argument));
	for (i = 0; i < ARRAY_SIZE(none); i++)
		CHECK(reg_sized(channel, qps.qp_nums, 1, infos, size, none[i], &done) == -EINVAL);
	CHECK(reg_sized(channel, qps.qp_nums, 3, infos, 3 * size - 1, size, &done) == -EINVAL);
	CHECK(!rcv_query(member.domain, qps.qp_nums[0], NULL, &qp_info) && qp_info.registrations == 1);

	memcpy(two, qps.qp_nums, sizeof(two));
	two[2] = 0;
	memset(infos, 0xee, sizeof(infos));
	CHECK(reg_sized(channel, two, 3, infos, sizeof(infos), size, &done) == -EINVAL && done == 2);
	for (i = 0; i < 2; i++)
		CHECK(has_info(&infos[i].info, &qps, i) && !infos[i].unknown[0] && !infos[i].unknown[1]);
	CHECK(infos[2].info.serial == 0xeeeeeeeeeeeeeeee);

	CHECK(!reg_sized(channel, qps.qp_nums, 3, known, sizeof(known), sizeof(known[0]), &done));
	CHECK(done == 3);
	for (i = 0; i < 3; i++)
		CHECK(has_info(&known[i], &qps, i) && !rcv_destroy_forced(member.domain, qps.qp_nums[i]));
	return -close(qps.channel) ?: -close(channel);
}

/* The mask of a channel is that of all its registrations, and no event of another is unread. */
static int masks(void *argument)
{
	const uint64_t events[] = { 1ull << ERROR, 1ull << XRC_RCV_EVENT_QP_GONE, 0 };
	struct registration registration[2];
	struct xrc_rcv_record record;
	struct witness witness;
	unsigned int i, j;
	int channels[3];

	CHECK(!call_witness(&witness, argument));
	for (i = 0; i < 3; i++)
		CHECK((channels[i] = rcv_channel_with(member.domain, NULL, &events[i])) >= 0);
	for (i = 0; i < 2; i++) {
		CHECK(!new_qp(channels[0], &registration[i]));
		CHECK(registers(channels[1], &registration[i], 0));
		CHECK(registers(channels[2], &registration[i], 0));
		CHECK(!error(&witness, &registration[i], 1));
		CHECK(says(channels[0], &registration[i], 1));
		CHECK(!ready(channels[1]) && !ready(channels[2]));
	}
	for (i = 0; i < 2; i++) {
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
		CHECK(read(channels[1], &record, SIZE) == SIZE && is_gone(&record, &registration[i]));
	}
	for (j = 0; j < 3; j++)
		CHECK(!ready(channels[j]) && !close(channels[j]));
	return dismiss(&witness);
}

/* The same QP, registered through two files, each with a channel. */
static int two_channels(void *argument)
{
	struct member_info *member_info = argument;
	struct registration first, second;
	struct xrc_rcv_record record;
	struct file other;
	int channel = new_channel(), other_channel;

	file_open(&other, member_info->domain_file);
	other_channel = rcv_channel(other.domain);
	CHECK(other_channel >= 0);
	CHECK(!rcv_alloc(member.domain, 0, NULL, channel, &first));
	/* A channel is of the file it was made through. */
	CHECK(rcv_reg(other.domain, first.qp_num, channel, &second) == -EBADF);
	CHECK(rcv_reg(other.domain, first.qp_num, 0, &second) == -EBADF);
	CHECK(!rcv_reg(other.domain, first.qp_num, other_channel, &second));
	/* A last close of the domain: both get QP_GONE, both handles stay. */
	CHECK(!ibv_close_xrcd(other.xrcd));
	CHECK(!ready(channel) && !ready(other_channel));
	CHECK(!ibv_close_xrcd(member.xrcd));
	CHECK(read(channel, &record, SIZE) == SIZE);
	CHECK(is_gone(&record, &first));
	CHECK(read(other_channel, &record, SIZE) == SIZE);
	CHECK(is_gone(&record, &first));
	CHECK(!rcv_unreg(&first) && !rcv_unreg(&second));
	member.xrcd = node_open_domain(&member.node, member_info->domain_file);
	member.domain = domain_of(member.xrcd);
	close(other_channel);
	ibv_dealloc_pd(other.node.pd);
	CHECK(!ibv_close_device(other.node.context));
	return -close(channel);
}

/* The objects of a file end with the file, and so do their events. */
static int orphaned(void *argument)
{
	struct member_info *member_info = argument;
	struct registration registration;
	struct xrc_rcv_record record;
	struct file other;
	int channel;

	file_open(&other, member_info->domain_file);
	channel = rcv_channel(other.domain);
	CHECK(!rcv_alloc(other.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel,
			 &registration));
	CHECK(!rcv_destroy_forced(other.domain, registration.qp_num));
	CHECK(ready(channel) == POLLIN);
	CHECK(!file_close(&other));
	CHECK(ready(channel) == POLLHUP);
	CHECK(read(channel, &record, SIZE) == -1 && errno == EIO);
	return -close(channel);
}

static pthread_barrier_t start;

static void *close_at_start(void *channel)
{
	pthread_barrier_wait(&start);
	close(*(int *)channel);
	return NULL;
}

/* uverbs ends channels when they are closed and when their file is: here both at once. */
static int closed_with_file(void *argument)
{
	struct member_info *member_info = argument;
	unsigned int race, i;

	CHECK(!pthread_barrier_init(&start, NULL, RACERS + 1));
	for (race = 0; race < RACES; race++) {
		struct registration registration;
		pthread_t threads[RACERS];
		int channels[RACERS];
		struct file other;

		file_open(&other, member_info->domain_file);
		for (i = 0; i < RACERS; i++) {
			channels[i] = rcv_channel(other.domain);
			CHECK(channels[i] >= 0);
			CHECK(!rcv_alloc(other.domain, 0, NULL, channels[i], &registration));
			CHECK(!pthread_create(&threads[i], NULL, close_at_start, &channels[i]));
		}
		pthread_barrier_wait(&start);
		CHECK(!ibv_close_device(other.node.context));
		for (i = 0; i < RACERS; i++)
			CHECK(!pthread_join(threads[i], NULL));
		CHECK(!count_listed("registrations") && !count_listed("qps"));
	}
	return -pthread_barrier_destroy(&start);
}

static int unregistered(void *argument)
{
	struct registration first, second;
	struct xrc_rcv_record record;
	int channel = new_channel();

	(void)argument;
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	CHECK(!new_qp(channel, &first) && !new_qp(channel, &second));
	CHECK(!rcv_destroy_forced(member.domain, first.qp_num));
	CHECK(!rcv_destroy_forced(member.domain, second.qp_num));
	CHECK(ready(channel) == POLLIN);
	CHECK(!rcv_unreg(&first));
	CHECK(read(channel, &record, SIZE) == SIZE);
	CHECK(is_gone(&record, &second));
	CHECK(!ready(channel));
	CHECK(!rcv_unreg(&second));
	CHECK(read(channel, &record, SIZE) == -1 && errno == EAGAIN);
	return -close(channel);
}

/* Registrations end with the last descriptor of their channel. */
static int closed(void *argument)
{
	const struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	struct registration first, second;
	struct xrc_rcv_qp_info info;
	int channel = new_channel(), still_open;

	(void)argument;
	CHECK(!new_qp(channel, &first) && !new_qp(channel, &second));
	CHECK(!rcv_destroy_forced(member.domain, first.qp_num));
	/* The file is closed with its last descriptor. */
	still_open = dup(channel);
	CHECK(still_open >= 0 && !close(channel));
	CHECK(ready(still_open) == POLLIN);
	CHECK(!rcv_query(member.domain, second.qp_num, NULL, &info) && info.registrations == 1);
	CHECK(!close(still_open));
	CHECK(!rcv_query(member.domain, second.qp_num, NULL, &info) && !info.registrations);
	CHECK(!rcv_modify(member.domain, second.qp_num, &init));
	CHECK(!rcv_to_state(member.domain, second.qp_num, IBV_QPS_ERR));
	return rcv_destroy_with(member.domain, second.qp_num, 0);
}

struct waiter {
	int channel;
	bool in_poll;
	struct xrc_rcv_record record;
	ssize_t result;
};

static void *wait_for_event(void *argument)
{
	struct waiter *waiter = argument;
	struct pollfd poll_fd = { .fd = waiter->channel, .events = POLLIN };

	if (waiter->in_poll && poll(&poll_fd, 1, -1) != 1)
		return NULL;
	waiter->result = read(waiter->channel, &waiter->record, SIZE);
	return NULL;
}

static int wakes(bool in_poll)
{
	struct waiter waiter = { .channel = new_channel(), .in_poll = in_poll, .result = -1 };
	struct registration registration;
	struct timespec deadline;
	pthread_t thread;

	CHECK(!new_qp(waiter.channel, &registration));
	CHECK(!pthread_create(&thread, NULL, wait_for_event, &waiter));
	usleep(200000);
	CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += PATIENCE_MS / 1000;
	CHECK(!pthread_timedjoin_np(thread, NULL, &deadline));
	CHECK(waiter.result == SIZE && is_gone(&waiter.record, &registration));
	CHECK(!rcv_unreg(&registration));
	return -close(waiter.channel);
}

/* A reader whose page does not come: the record that the kernel has stays unread. */
struct stalled {
	pthread_t thread;
	int channel, faults;
	unsigned int more;	/* records than one */
	void *page;
	ssize_t result;
	int error;
};

static void *read_into_page(void *argument)
{
	struct stalled *reader = argument;

	reader->result = read(reader->channel, reader->page, SIZE * (1 + reader->more));
	reader->error = errno;
	return NULL;
}

static int stall(struct stalled *reader)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffd_msg fault;

	reader->faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK(reader->faults >= 0);
	CHECK(!ioctl(reader->faults, UFFDIO_API, &api));
	reader->page = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area.range.start = (uintptr_t)reader->page;
	area.range.len = getpagesize();
	CHECK(!ioctl(reader->faults, UFFDIO_REGISTER, &area));
	CHECK(!pthread_create(&reader->thread, NULL, read_into_page, reader));
	CHECK(read(reader->faults, &fault, sizeof(fault)) == sizeof(fault));
	return 0;
}

/* The page comes. */
static int resume(struct stalled *reader)
{
	struct uffdio_zeropage zero = {
		.range = { .start = (uintptr_t)reader->page, .len = getpagesize() },
	};

	return ioctl(reader->faults, UFFDIO_ZEROPAGE, &zero) ? -errno : 0;
}

static int reader_stalls(void *argument)
{
	struct stalled reader = { .channel = new_channel() };
	struct registration registration[3];
	struct xrc_rcv_record record;
	unsigned int i;

	(void)argument;
	for (i = 0; i < 3; i++)
		CHECK(!new_qp(reader.channel, &registration[i]));
	CHECK(!rcv_destroy_forced(member.domain, registration[0].qp_num));
	CHECK(!stall(&reader));
	/* Other readers, events and UNREG do not wait. */
	CHECK(ready(reader.channel) == POLLIN);
	CHECK(read(reader.channel, &record, SIZE) == SIZE);
	CHECK(is_gone(&record, &registration[0]));
	CHECK(!ready(reader.channel));
	CHECK(!rcv_destroy_forced(member.domain, registration[1].qp_num));
	CHECK(ready(reader.channel) == POLLIN);
	CHECK(!rcv_unreg(&registration[1]));
	/* One record was read, and UNREG has discarded the other: none is left for the reader. */
	CHECK(!resume(&reader));
	usleep(200000);
	CHECK(pthread_tryjoin_np(reader.thread, NULL) == EBUSY);
	CHECK(!rcv_destroy_forced(member.domain, registration[2].qp_num));
	CHECK(!pthread_join(reader.thread, NULL));
	CHECK(reader.result == SIZE);
	CHECK(is_gone(reader.page, &registration[2]));
	CHECK(!munmap(reader.page, getpagesize()));
	close(reader.faults);
	CHECK(!rcv_unreg(&registration[0]) && !rcv_unreg(&registration[2]));
	return -close(reader.channel);
}

/* Records that a reader could not be given are read by the next one, before later records. */
static int stalled_reader_faults(void *argument)
{
	struct stalled reader = { .channel = new_channel() };
	struct registration registration[2];
	struct xrc_rcv_record records[2];
	unsigned int i;

	(void)argument;
	for (i = 0; i < 2; i++)
		CHECK(!new_qp(reader.channel, &registration[i]));
	CHECK(!rcv_destroy_forced(member.domain, registration[0].qp_num));
	CHECK(!stall(&reader));
	CHECK(!rcv_destroy_forced(member.domain, registration[1].qp_num));
	CHECK(!munmap(reader.page, getpagesize()));
	/* A thread that waits for a page looks again. */
	close(reader.faults);
	CHECK(!pthread_join(reader.thread, NULL));
	CHECK(reader.result == -1 && reader.error == EFAULT);
	CHECK(read(reader.channel, records, sizeof(records)) == sizeof(records));
	for (i = 0; i < 2; i++) {
		CHECK(is_gone(&records[i], &registration[i]));
		CHECK(!rcv_unreg(&registration[i]));
	}
	return -close(reader.channel);
}

/* A reader that waits for a page does not delay the end of the channel, and finds it later. */
static int ends_during_a_read(void *argument)
{
	struct member_info *member_info = argument;
	struct registration registration;
	struct stalled reader = {};
	struct xrc_rcv_record record;
	struct file other;

	file_open(&other, member_info->domain_file);
	reader.channel = rcv_channel(other.domain);
	CHECK(!rcv_alloc(other.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, reader.channel,
			 &registration));
	CHECK(!rcv_destroy_forced(other.domain, registration.qp_num));
	CHECK(!stall(&reader));
	CHECK(!fcntl(reader.channel, F_SETFL, O_NONBLOCK));
	CHECK(!file_close(&other));
	CHECK(ready(reader.channel) == POLLHUP);
	CHECK(read(reader.channel, &record, SIZE) == -1 && errno == EIO);
	CHECK(!resume(&reader));
	CHECK(!pthread_join(reader.thread, NULL));
	CHECK(reader.result == -1 && reader.error == EIO);
	CHECK(ready(reader.channel) == POLLHUP);
	CHECK(read(reader.channel, &record, SIZE) == -1 && errno == EIO);
	CHECK(!munmap(reader.page, getpagesize()));
	close(reader.faults);
	return -close(reader.channel);
}

static long waits(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? -1 : usage.ru_nvcsw;
}

/*
 * A process may have as many as it may have files, and its exit closes them all. If each waited for
 * a grace period, that would take seconds. How long it takes is the host's matter, so the waits are
 * counted: a few may be for a lock.
 */
static int many_are_closed(void *argument)
{
	enum { CHANNELS = 300, WAITS = CHANNELS / 10 };
	int channels[CHANNELS], i;
	long before;

	(void)argument;
	for (i = 0; i < CHANNELS; i++) {
		channels[i] = new_channel();
		CHECK(channels[i] >= 0);
	}
	before = waits();
	for (i = 0; i < CHANNELS; i++)
		CHECK(!close(channels[i]));
	ktap_note("%d channels closed, %ld waits", CHANNELS, waits() - before);
	CHECK(before >= 0 && waits() - before <= WAITS);
	return 0;
}

static int blocking(void *argument)
{
	(void)argument;
	return wakes(false) ?: wakes(true);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static int interrupted(void *argument)
{
	/* Again and again: the first may come before the read begins. */
	static const struct itimerval alarms = { .it_interval.tv_sec = 1, .it_value.tv_sec = 1 }, none;
	struct sigaction action = { .sa_handler = on_alarm };
	struct xrc_rcv_record record;
	int channel = new_channel();

	(void)argument;
	sigaction(SIGALRM, &action, NULL);
	CHECK(!setitimer(ITIMER_REAL, &alarms, NULL));
	CHECK(read(channel, &record, SIZE) == -1 && errno == EINTR);
	CHECK(!setitimer(ITIMER_REAL, &none, NULL));
	return -close(channel);
}

static int read_for_ever(void *argument)
{
	struct xrc_rcv_record record;

	(void)argument;
	return read(new_channel(), &record, SIZE);
}

static bool killed_while_blocked(void)
{
	actor_begin(&a, read_for_ever, NULL);
	usleep(200000);
	actor_kill(&a);
	return true;
}

int main(void)
{
	struct counts before;

	ktap_start("event channels", 22);
	before = count_objects();
	ma = member_info_new(DOMAIN_FILE, 0, 0);
	actor_start(&a);
	if (!DO(a, member_join, ma))
		errx(1, "the actor is not ready");
	ktap_result(DO(a, empty, NULL), "an empty channel has nothing to read");
	ktap_result(DO(a, signalled, NULL), "poll, select and epoll show an event");
	ktap_result(DO(a, buffers, NULL), "read() returns whole records in order, as many as fit");
	ktap_result(DO(a, many_records, NULL), "read() returns 16 records at most, none is lost");
	ktap_result(DO(a, one_by_one, ma), "single reads return records in order, QP_GONE last");
	ktap_result(DO(a, sizes, NULL), "records have the size that the caller gave");
	ktap_result(DO(a, totals, ma), "a record has the total, whatever was read or registered before");
	ktap_result(DO(a, infos, ma), "REG returns the totals of each QP with which it registers");
	ktap_result(DO(a, masks, ma), "a channel reports the events of its mask");
	ktap_result(DO(a, two_channels, ma), "the domain's last close reaches both channels of a QP");
	ktap_result(DO(a, unregistered, NULL), "unread events are dropped with their registration");
	ktap_result(DO(a, closed, NULL), "registrations end with their channel");
	ktap_result(DO(a, orphaned, ma), "a channel ends with its file");
	ktap_result(DO(a, closed_with_file, ma), "a channel and its file can be closed at once");
	ktap_result(DO(a, blocking, NULL), "an event ends a read and a poll that wait for it");
	ktap_result(DO(a, reader_stalls, NULL), "a stalled reader does not delay others");
	ktap_result(DO(a, stalled_reader_faults, NULL), "a record that could not be copied is not lost");
	ktap_result(DO(a, ends_during_a_read, ma), "a channel ends while a reader waits for a page");
	ktap_result(DO(a, many_are_closed, NULL), "closing a channel waits for nothing");
	ktap_result(DO(a, interrupted, NULL), "a signal ends a blocked read");
	ktap_result(killed_while_blocked(), "a kill ends a blocked read");
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
