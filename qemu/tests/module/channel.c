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
	COOKIE = 1000,
	SIZE = sizeof(struct xrc_rcv_event),
	RACES = 8,
	RACERS = 16,
};

static struct actor a;
static struct member_info *ma;

static int new_channel(void)
{
	return rcv_channel(member.domain);
}

static int new_qp(int channel, uint64_t cookie, struct registration *registration)
{
	return rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel, cookie,
			 registration);
}

static short ready(int channel)
{
	struct pollfd poll_fd = { .fd = channel, .events = POLLIN | POLLOUT | POLLPRI };

	return poll(&poll_fd, 1, 0) == 1 ? poll_fd.revents : 0;
}

static bool gone(const struct xrc_rcv_event *event, uint32_t qp_num, uint64_t cookie)
{
	return event->type == XRC_RCV_EVENT_QP_GONE && event->qp_num == qp_num &&
	       event->cookie == cookie && event->count == 1 && !event->reserved;
}

/* ---- acts ---- */

static int empty(void *argument)
{
	int channel = new_channel(), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = { .events = EPOLLIN }, event;
	struct xrc_rcv_event record;
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
	struct xrc_rcv_event record;
	uint64_t before, after;
	fd_set set;

	(void)argument;
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, channel, &interest));
	CHECK(!new_qp(channel, COOKIE, &registration));
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
	CHECK(gone(&record, registration.qp_num, COOKIE));
	CHECK(record.last_ns >= before && record.last_ns <= after);
	CHECK(!ready(channel));
	CHECK(!epoll_wait(epoll, &event, 1, 0));
	CHECK(!rcv_unreg(&registration));
	close(epoll);
	return -close(channel);
}

static int buffers(void *argument)
{
	struct xrc_rcv_event records[MANY + 1] = {};
	struct registration registration[MANY];
	int channel = new_channel(), i;
	void *nowhere = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)argument;
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	for (i = 0; i < MANY; i++)
		CHECK(!new_qp(channel, COOKIE + i, &registration[i]));
	/* In the order of the events, not of registration. */
	for (i = MANY - 1; i >= 0; i--)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));

	CHECK(read(channel, records, SIZE - 1) == -1 && errno == EINVAL);
	CHECK(read(channel, records, 0) == -1 && errno == EINVAL);
	CHECK(ready(channel) == POLLIN);
	CHECK(read(channel, records, SIZE) == SIZE);
	CHECK(gone(&records[0], registration[MANY - 1].qp_num, COOKIE + MANY - 1));
	/* Two and a half: the half is not written. */
	memset(records, 0xee, sizeof(records));
	CHECK(read(channel, records, 2 * SIZE + SIZE / 2) == 2 * SIZE);
	CHECK(gone(&records[0], registration[MANY - 2].qp_num, COOKIE + MANY - 2));
	CHECK(gone(&records[1], registration[MANY - 3].qp_num, COOKIE + MANY - 3));
	CHECK(records[2].qp_num == 0xeeeeeeee);
	CHECK(read(channel, records, SIZE) == SIZE);
	CHECK(gone(&records[0], registration[1].qp_num, COOKIE + 1));
	/* Nothing is lost to a buffer that is not there. */
	CHECK(read(channel, nowhere, SIZE) == -1 && errno == EFAULT);
	CHECK(read(channel, records, sizeof(records)) == SIZE);
	CHECK(gone(&records[0], registration[0].qp_num, COOKIE));
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
	static struct xrc_rcv_event records[2 * CROWD];
	static struct registration registration[CROWD];
	int channel = new_channel(), i, got = 0, count;

	(void)argument;
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	for (i = 0; i < CROWD; i++)
		CHECK(!new_qp(channel, COOKIE + i, &registration[i]));
	for (i = 0; i < CROWD; i++)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	while (got < CROWD) {
		count = read(channel, records, sizeof(records)) / SIZE;
		CHECK(count == (CROWD - got < BATCH ? CROWD - got : BATCH));
		for (i = 0; i < count; i++, got++)
			CHECK(gone(&records[i], registration[got].qp_num, COOKIE + got));
	}
	CHECK(read(channel, records, sizeof(records)) == -1 && errno == EAGAIN);
	for (i = 0; i < CROWD; i++)
		CHECK(!rcv_unreg(&registration[i]));
	return -close(channel);
}

/*
 * A process that reads one record at a time gets those of a QP in the order of its events, QP_GONE
 * last, and QPs in the order of their last events. Another file shows when the other event has
 * happened.
 */
static int one_by_one(void *argument)
{
	const struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	struct member_info *member_info = argument;
	struct registration registration[2], watching;
	int channel = new_channel(), watched, i;
	struct xrc_rcv_event record;
	struct file other;

	file_open(&other, member_info->domain_file);
	watched = rcv_channel(other.domain);
	for (i = 0; i < 2; i++) {
		CHECK(!new_qp(channel, COOKIE + i, &registration[i]));
		CHECK(!rcv_reg(other.domain, registration[i].qp_num, watched, 0, &watching));
		CHECK(!rcv_modify(member.domain, registration[i].qp_num, &init));
		CHECK(!rcv_to_state(member.domain, registration[i].qp_num, IBV_QPS_ERR));
		CHECK(read(watched, &record, SIZE) == SIZE);
	}
	close(watched);
	CHECK(!file_close(&other));
	for (i = 0; i < 2; i++)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	for (i = 0; i < 4; i++) {
		CHECK(read(channel, &record, SIZE) == SIZE);
		CHECK(record.type == (i % 2 == 0 ? IBV_EVENT_QP_LAST_WQE_REACHED :
						   XRC_RCV_EVENT_QP_GONE));
		CHECK(record.cookie == (uint64_t)COOKIE + i / 2);
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
		struct xrc_rcv_event event;
		uint64_t unknown[2];
	} records[2];
	unsigned int i;
	int channel;

	(void)argument;
	for (i = 0; i < ARRAY_SIZE(none); i++)
		CHECK(rcv_channel_sized(member.domain, none[i]) == -EINVAL);
	channel = rcv_channel_sized(member.domain, sizeof(records[0]));
	CHECK(channel >= 0);
	for (i = 0; i < 2; i++) {
		CHECK(!new_qp(channel, COOKIE + i, &registration[i]));
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	}
	memset(records, 0xee, sizeof(records));
	CHECK(read(channel, records, SIZE) == -1 && errno == EINVAL);
	CHECK(read(channel, records, sizeof(records)) == sizeof(records));
	for (i = 0; i < 2; i++) {
		CHECK(gone(&records[i].event, registration[i].qp_num, COOKIE + i));
		CHECK(!records[i].unknown[0] && !records[i].unknown[1]);
		CHECK(!rcv_unreg(&registration[i]));
	}
	return -close(channel);
}

/* The same QP, registered through two files, each with a channel. */
static int two_channels(void *argument)
{
	struct member_info *member_info = argument;
	struct registration first, second;
	struct xrc_rcv_event record;
	struct file other;
	int channel = new_channel(), other_channel;

	file_open(&other, member_info->domain_file);
	other_channel = rcv_channel(other.domain);
	CHECK(other_channel >= 0);
	CHECK(!rcv_alloc(member.domain, 0, NULL, channel, 1, &first));
	/* A channel is of the file it was made through. */
	CHECK(rcv_reg(other.domain, first.qp_num, channel, 2, &second) == -EBADF);
	CHECK(rcv_reg(other.domain, first.qp_num, 0, 2, &second) == -EBADF);
	CHECK(!rcv_reg(other.domain, first.qp_num, other_channel, 2, &second));
	/* A last close of the domain: both get QP_GONE, both handles stay. */
	CHECK(!ibv_close_xrcd(other.xrcd));
	CHECK(!ready(channel) && !ready(other_channel));
	CHECK(!ibv_close_xrcd(member.xrcd));
	CHECK(read(channel, &record, SIZE) == SIZE);
	CHECK(gone(&record, first.qp_num, 1));
	CHECK(read(other_channel, &record, SIZE) == SIZE);
	CHECK(gone(&record, first.qp_num, 2));
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
	struct xrc_rcv_event record;
	struct file other;
	int channel;

	file_open(&other, member_info->domain_file);
	channel = rcv_channel(other.domain);
	CHECK(!rcv_alloc(other.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel, 1,
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
			CHECK(!rcv_alloc(other.domain, 0, NULL, channels[i], i, &registration));
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
	struct xrc_rcv_event record;
	int channel = new_channel();

	(void)argument;
	CHECK(!fcntl(channel, F_SETFL, O_NONBLOCK));
	CHECK(!new_qp(channel, 1, &first) && !new_qp(channel, 2, &second));
	CHECK(!rcv_destroy_forced(member.domain, first.qp_num));
	CHECK(!rcv_destroy_forced(member.domain, second.qp_num));
	CHECK(ready(channel) == POLLIN);
	CHECK(!rcv_unreg(&first));
	CHECK(read(channel, &record, SIZE) == SIZE);
	CHECK(gone(&record, second.qp_num, 2));
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
	CHECK(!new_qp(channel, 1, &first) && !new_qp(channel, 2, &second));
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
	struct xrc_rcv_event record;
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

	CHECK(!new_qp(waiter.channel, COOKIE, &registration));
	CHECK(!pthread_create(&thread, NULL, wait_for_event, &waiter));
	usleep(200000);
	CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += PATIENCE_MS / 1000;
	CHECK(!pthread_timedjoin_np(thread, NULL, &deadline));
	CHECK(waiter.result == SIZE && gone(&waiter.record, registration.qp_num, COOKIE));
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
	struct xrc_rcv_event record;
	unsigned int i;

	(void)argument;
	for (i = 0; i < 3; i++)
		CHECK(!new_qp(reader.channel, COOKIE + i, &registration[i]));
	CHECK(!rcv_destroy_forced(member.domain, registration[0].qp_num));
	CHECK(!stall(&reader));
	/* Other readers, events and UNREG do not wait. */
	CHECK(ready(reader.channel) == POLLIN);
	CHECK(read(reader.channel, &record, SIZE) == SIZE);
	CHECK(gone(&record, registration[0].qp_num, COOKIE));
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
	CHECK(gone(reader.page, registration[2].qp_num, COOKIE + 2));
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
	struct xrc_rcv_event records[2];
	unsigned int i;

	(void)argument;
	for (i = 0; i < 2; i++)
		CHECK(!new_qp(reader.channel, COOKIE + i, &registration[i]));
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
		CHECK(gone(&records[i], registration[i].qp_num, COOKIE + i));
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
	struct xrc_rcv_event record;
	struct file other;

	file_open(&other, member_info->domain_file);
	reader.channel = rcv_channel(other.domain);
	CHECK(!rcv_alloc(other.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, reader.channel, 1,
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
	struct xrc_rcv_event record;
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
	struct xrc_rcv_event record;

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

	ktap_start("event channels", 19);
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
