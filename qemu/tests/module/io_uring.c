// SPDX-License-Identifier: GPL-2.0
/*
 * Event channels read and polled through io_uring. A read waits without a thread
 * of the caller: io_uring polls the channel, and one of its own threads reads
 * when an event has come. If another read took the record meanwhile, that thread
 * waits in the channel's read. Both kinds end by an event, a cancellation, the end
 * of the channel or the device, or a kill.
 *
 * tags: races
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/io_uring"

enum {
	ENTRIES = 32,
	PENDING = 16,		/* reads of one channel */
	/* user_data; those of reads are smaller. */
	POLL = 76,
	CANCEL = 77,
	SIZE = sizeof(struct xrc_rcv_record),
};

/* A ring with the submission and completion queues in one mapping. */
struct ring {
	int fd;
	void *queues;
	size_t size;
	struct io_uring_sqe *sqes;
	struct io_uring_params params;
};

static struct actor a;
static struct member_info *ma;

static uint32_t *field(const struct ring *ring, uint32_t offset)
{
	return (uint32_t *)((char *)ring->queues + offset);
}

static int ring_open(struct ring *ring)
{
	const struct io_uring_params *params = &ring->params;

	memset(ring, 0, sizeof(*ring));
	ring->fd = syscall(SYS_io_uring_setup, ENTRIES, &ring->params);
	CHECK(ring->fd >= 0);
	CHECK(params->features & IORING_FEAT_SINGLE_MMAP);
	ring->size = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
	ring->queues = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			    ring->fd, IORING_OFF_SQ_RING);
	ring->sqes = mmap(NULL, params->sq_entries * sizeof(*ring->sqes), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	CHECK(ring->queues != MAP_FAILED && ring->sqes != MAP_FAILED);
	return 0;
}

static int ring_close(struct ring *ring)
{
	CHECK(!munmap(ring->queues, ring->size));
	CHECK(!munmap(ring->sqes, ring->params.sq_entries * sizeof(*ring->sqes)));
	return -close(ring->fd);
}

static int submit(struct ring *ring, struct io_uring_sqe sqe)
{
	uint32_t *tail = field(ring, ring->params.sq_off.tail);
	uint32_t index = *tail & *field(ring, ring->params.sq_off.ring_mask);

	ring->sqes[index] = sqe;
	field(ring, ring->params.sq_off.array)[index] = index;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) == 1);
	return 0;
}

static bool is_completed(const struct ring *ring)
{
	return *field(ring, ring->params.cq_off.head) !=
	       __atomic_load_n(field(ring, ring->params.cq_off.tail), __ATOMIC_ACQUIRE);
}

/* Waits for a completion if there is none. */
static int completion(struct ring *ring, struct io_uring_cqe *cqe)
{
	const struct io_uring_cqe *cqes =
		(void *)((char *)ring->queues + ring->params.cq_off.cqes);
	uint32_t *head = field(ring, ring->params.cq_off.head);

	while (!is_completed(ring))
		CHECK(!syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL,
			       0));
	*cqe = cqes[*head & *field(ring, ring->params.cq_off.ring_mask)];
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return 0;
}

/* As at read(2): the channel's file has no position. */
static struct io_uring_sqe sqe_read(int channel, void *buffer, uint32_t length, uint64_t user_data)
{
	return (struct io_uring_sqe){
		.opcode = IORING_OP_READ,
		.fd = channel,
		.off = -1,
		.addr = (uintptr_t)buffer,
		.len = length,
		.user_data = user_data,
	};
}

/* Reports each change; completes without IORING_CQE_F_MORE when it ends. */
static struct io_uring_sqe sqe_poll(int channel)
{
	return (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD,
		.fd = channel,
		.len = IORING_POLL_ADD_MULTI,
		.poll32_events = POLLIN,
		.user_data = POLL,
	};
}

static int cancel(struct ring *ring, uint64_t user_data)
{
	return submit(ring, (struct io_uring_sqe){
		.opcode = IORING_OP_ASYNC_CANCEL,
		.addr = user_data,
		.user_data = CANCEL,
	});
}

static int new_channel(void)
{
	return rcv_channel(member.domain);
}

/* With O_NONBLOCK, io_uring reads by itself when it has polled, and no thread waits in read(2). */
static const int blocking, nonblocking = O_NONBLOCK;

static int new_channel_with(const int *flags)
{
	int channel = new_channel();

	return fcntl(channel, F_SETFL, *flags) ? -errno : channel;
}

static int new_qp(int channel, struct registration *registration)
{
	return rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel, registration);
}

/*
 * Reads of an empty channel. A record wakes all of them: one gets it, and the others wait on. Those
 * that a thread of io_uring had begun wait in read(2).
 */
struct reads {
	struct xrc_rcv_record records[PENDING];
	bool completed[PENDING];
	unsigned int pending;
};

static int reads_start(struct ring *ring, struct reads *reads, int channel)
{
	unsigned int i;

	*reads = (struct reads){ .pending = PENDING };
	for (i = 0; i < PENDING; i++)
		CHECK(!submit(ring, sqe_read(channel, &reads->records[i], SIZE, i)));
	CHECK(!is_completed(ring));
	return 0;
}

static int read_completed(struct reads *reads, const struct io_uring_cqe *cqe)
{
	CHECK(cqe->user_data < PENDING && !reads->completed[cqe->user_data]);
	reads->completed[cqe->user_data] = true;
	reads->pending--;
	return 0;
}

/* The QP is destroyed, and one of the reads gets that. */
static int one_read_gets(struct ring *ring, struct reads *reads,
			 const struct registration *registration)
{
	struct io_uring_cqe cqe;

	CHECK(!rcv_destroy_forced(member.domain, registration->qp_num));
	CHECK(!completion(ring, &cqe));
	CHECK(!read_completed(reads, &cqe));
	CHECK(cqe.res == SIZE && is_gone(&reads->records[cqe.user_data], registration));
	return 0;
}

/*
 * A cancellation does not find a read that io_uring is passing to one of its threads, so it is
 * repeated. A read that such a thread had begun is interrupted.
 */
static int cancel_all(struct ring *ring, struct reads *reads)
{
	struct io_uring_cqe cqe;
	unsigned int i, cancels;

	while (reads->pending) {
		for (i = cancels = 0; i < PENDING; i++) {
			if (reads->completed[i])
				continue;
			CHECK(!cancel(ring, i));
			cancels++;
		}
		while (cancels) {
			CHECK(!completion(ring, &cqe));
			if (cqe.user_data == CANCEL) {
				CHECK(!cqe.res || cqe.res == -EALREADY || cqe.res == -ENOENT);
				cancels--;
				continue;
			}
			CHECK(cqe.res == -ECANCELED || cqe.res == -EINTR);
			CHECK(!read_completed(reads, &cqe));
		}
	}
	return 0;
}

/* ---- acts ---- */

static int reads_wait(void *argument)
{
	struct registration registration[PENDING];
	struct xrc_rcv_record records[PENDING] = {};
	int channel = new_channel_with(argument), i;
	struct io_uring_cqe cqe;
	struct ring ring;
	uint32_t seen = 0;

	CHECK(!ring_open(&ring));
	for (i = 0; i < PENDING; i++) {
		CHECK(!new_qp(channel, &registration[i]));
		CHECK(!submit(&ring, sqe_read(channel, &records[i], SIZE, i)));
	}
	CHECK(!is_completed(&ring));
	for (i = 0; i < PENDING; i++)
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
	/* The reads complete in any order; each has one record, and each record one read. */
	for (i = 0; i < PENDING; i++) {
		const struct xrc_rcv_record *record;
		uint64_t qp;

		CHECK(!completion(&ring, &cqe));
		CHECK(cqe.res == SIZE && cqe.user_data < PENDING);
		record = &records[cqe.user_data];
		qp = record->serial - registration[0].serial;
		CHECK(qp < PENDING && is_gone(record, &registration[qp]));
		seen |= 1U << qp;
	}
	CHECK(seen == (1U << PENDING) - 1);
	CHECK(!is_completed(&ring));
	for (i = 0; i < PENDING; i++)
		CHECK(!rcv_unreg(&registration[i]));
	CHECK(!ring_close(&ring));
	return -close(channel);
}

static int cancelled(void *argument)
{
	struct registration registration;
	struct xrc_rcv_record record;
	struct io_uring_cqe cqe;
	int channel = new_channel(), i;
	bool read_ended = false, cancel_ended = false;
	struct ring ring;

	(void)argument;
	CHECK(!ring_open(&ring));
	CHECK(!new_qp(channel, &registration));
	CHECK(!submit(&ring, sqe_read(channel, &record, SIZE, 0)));
	CHECK(!cancel(&ring, 0));
	for (i = 0; i < 2; i++) {
		CHECK(!completion(&ring, &cqe));
		if (cqe.user_data == CANCEL)
			cancel_ended = !cqe.res;
		else
			read_ended = cqe.res == -ECANCELED;
	}
	CHECK(read_ended && cancel_ended);
	/* It took no record with it. */
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	CHECK(read(channel, &record, SIZE) == SIZE && is_gone(&record, &registration));
	CHECK(!rcv_unreg(&registration));
	CHECK(!ring_close(&ring));
	return -close(channel);
}

static int outrun(void *argument)
{
	struct registration registration[2];
	int channel = new_channel_with(argument), i;
	struct xrc_rcv_record record;
	struct reads reads;
	struct ring ring;

	CHECK(!ring_open(&ring));
	for (i = 0; i < 2; i++)
		CHECK(!new_qp(channel, &registration[i]));
	CHECK(!reads_start(&ring, &reads, channel));
	CHECK(!one_read_gets(&ring, &reads, &registration[0]));
	CHECK(!cancel_all(&ring, &reads));
	/* They took no record with them. */
	CHECK(!rcv_destroy_forced(member.domain, registration[1].qp_num));
	CHECK(!fcntl(channel, F_SETFL, 0));
	CHECK(read(channel, &record, SIZE) == SIZE && is_gone(&record, &registration[1]));
	CHECK(!rcv_unreg(&registration[0]) && !rcv_unreg(&registration[1]));
	CHECK(!ring_close(&ring));
	return -close(channel);
}

static int polled(void *argument)
{
	struct registration registration[3];
	struct xrc_rcv_record record;
	int channel = new_channel(), i;
	struct io_uring_cqe cqe;
	struct ring ring;

	(void)argument;
	CHECK(!ring_open(&ring));
	CHECK(!submit(&ring, sqe_poll(channel)));
	for (i = 0; i < 3; i++) {
		CHECK(!new_qp(channel, &registration[i]));
		CHECK(!is_completed(&ring));
		CHECK(!rcv_destroy_forced(member.domain, registration[i].qp_num));
		CHECK(!completion(&ring, &cqe));
		CHECK(cqe.res & POLLIN && cqe.flags & IORING_CQE_F_MORE);
		CHECK(read(channel, &record, SIZE) == SIZE);
		CHECK(is_gone(&record, &registration[i]));
		CHECK(!rcv_unreg(&registration[i]));
	}
	CHECK(!ring_close(&ring));
	return -close(channel);
}

static int bad_buffers(void *argument)
{
	void *nowhere = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct registration registration;
	struct xrc_rcv_record record;
	const struct io_uring_sqe bad[] = {
		/* io_uring reads nothing then. */
		sqe_read(-1, &record, 0, 0),
		sqe_read(-1, &record, SIZE - 1, -EINVAL),
		sqe_read(-1, nowhere, SIZE, -EFAULT),
		sqe_read(-1, (void *)1, SIZE, -EFAULT),
		sqe_read(-1, (void *)(-1UL << 47), SIZE, -EFAULT),
	};
	struct io_uring_cqe cqe;
	int channel = new_channel();
	struct ring ring;
	unsigned int i;

	(void)argument;
	CHECK(!ring_open(&ring));
	CHECK(!new_qp(channel, &registration));
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct io_uring_sqe sqe = bad[i];

		sqe.fd = channel;
		CHECK(!submit(&ring, sqe));
		CHECK(!completion(&ring, &cqe));
		CHECK(cqe.res == (int)(int64_t)cqe.user_data);
	}
	CHECK(read(channel, &record, SIZE) == SIZE && is_gone(&record, &registration));
	CHECK(!rcv_unreg(&registration));
	CHECK(!munmap(nowhere, SIZE));
	CHECK(!ring_close(&ring));
	return -close(channel);
}

/*
 * The reads and the poll of a channel that ends. If QP_GONE of a QP came before the end, one read
 * gets it; that read completes in any order with those that got EIO after it.
 */
static int end_with_the_channel(struct ring *ring, struct reads *reads,
				const struct registration *last)
{
	struct io_uring_cqe cqe;
	bool polls = true;

	while (reads->pending || polls) {
		CHECK(!completion(ring, &cqe));
		if (cqe.user_data == POLL) {
			CHECK(cqe.res > 0);
			/* Without POLLHUP it is the poll of an event before. */
			CHECK(cqe.flags & IORING_CQE_F_MORE || cqe.res & POLLHUP);
			polls = !(cqe.res & POLLHUP);
			continue;
		}
		CHECK(!read_completed(reads, &cqe));
		if (cqe.res == -EIO)
			continue;
		CHECK(last && cqe.res == SIZE);
		CHECK(is_gone(&reads->records[cqe.user_data], last));
		last = NULL;
	}
	CHECK(!last);
	return 0;
}

/*
 * The descriptor is closed while reads and a poll are pending, which hold the channel's file. The
 * close of the device's file does not wait for them, and ends them.
 */
static int channel_ends(void *argument)
{
	struct member_info *member_info = argument;
	struct reads reads;
	struct file other;
	struct ring ring;
	int channel;

	CHECK(!ring_open(&ring));
	file_open(&other, member_info->domain_file);
	channel = rcv_channel(other.domain);
	CHECK(!reads_start(&ring, &reads, channel));
	CHECK(!submit(&ring, sqe_poll(channel)));
	CHECK(!close(channel));
	CHECK(!is_completed(&ring));
	CHECK(!file_close(&other));
	CHECK(!end_with_the_channel(&ring, &reads, NULL));
	return ring_close(&ring);
}

/* A ring keeps the files that are registered with it. */
static int registered_file(void *argument)
{
	struct registration registration;
	struct io_uring_sqe read_fixed;
	struct xrc_rcv_record record;
	int channel = new_channel();
	struct io_uring_cqe cqe;
	struct ring ring;

	(void)argument;
	CHECK(!ring_open(&ring));
	CHECK(!new_qp(channel, &registration));
	CHECK(!syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &channel, 1));
	CHECK(!close(channel));
	read_fixed = sqe_read(0, &record, SIZE, 0);
	read_fixed.flags = IOSQE_FIXED_FILE;
	CHECK(!submit(&ring, read_fixed));
	CHECK(!is_completed(&ring));
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	CHECK(!completion(&ring, &cqe));
	CHECK(cqe.res == SIZE && is_gone(&record, &registration));
	/* With a read pending: the ring's end releases the channel. */
	CHECK(!submit(&ring, read_fixed));
	return ring_close(&ring);
}

/* The reads of a ring end with it, and take no record with them. */
static int ring_ends(void *argument)
{
	struct registration registration;
	struct xrc_rcv_record record;
	int channel = new_channel();
	struct reads reads;
	struct ring ring;

	(void)argument;
	CHECK(!ring_open(&ring));
	CHECK(!new_qp(channel, &registration));
	CHECK(!reads_start(&ring, &reads, channel));
	CHECK(!submit(&ring, sqe_poll(channel)));
	CHECK(!ring_close(&ring));
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	CHECK(read(channel, &record, SIZE) == SIZE && is_gone(&record, &registration));
	CHECK(!rcv_unreg(&registration));
	return -close(channel);
}

/* Kept for the next act of a process. */
static struct ring pending_ring;
static struct reads pending_reads;
static struct registration pending_qp;

/* Both kinds of waiting reads, and a poll. */
static int begin_to_wait(void *argument)
{
	struct registration first;
	int channel = new_channel();

	(void)argument;
	CHECK(!ring_open(&pending_ring));
	CHECK(!new_qp(channel, &first));
	CHECK(!new_qp(channel, &pending_qp));
	CHECK(!reads_start(&pending_ring, &pending_reads, channel));
	CHECK(!one_read_gets(&pending_ring, &pending_reads, &first));
	CHECK(!submit(&pending_ring, sqe_poll(channel)));
	return 0;
}

static int wait_until_the_end(void *argument)
{
	(void)argument;
	return end_with_the_channel(&pending_ring, &pending_reads, &pending_qp);
}

/* ---- scenarios ---- */

static bool killed(void)
{
	struct actor victim;
	bool right;

	actor_start(&victim);
	right = DO(victim, member_join, ma) && DO(victim, begin_to_wait, NULL);
	actor_kill(&victim);
	return right;
}

static bool removed(void)
{
	bool right = DO(a, begin_to_wait, NULL);

	device_remove();
	right = right && DO(a, wait_until_the_end, NULL);
	actor_exit(&a);
	device_add();
	return right;
}

int main(void)
{
	struct counts before;

	ktap_start("event channels in io_uring", 13);
	before = count_objects();
	ma = member_info_new(DOMAIN_FILE, 0, 0);
	actor_start(&a);
	if (!DO(a, member_join, ma))
		errx(1, "the actor is not ready");
	ktap_result(DO(a, reads_wait, (void *)&blocking),
		    "reads of an empty channel wait, each gets one record");
	ktap_result(DO(a, reads_wait, (void *)&nonblocking), "so do those with O_NONBLOCK");
	ktap_result(DO(a, cancelled, NULL), "a read that is cancelled takes no record");
	ktap_result(DO(a, outrun, (void *)&blocking), "nor do reads whose record another one took");
	ktap_result(DO(a, outrun, (void *)&nonblocking), "nor do those with O_NONBLOCK");
	ktap_result(DO(a, polled, NULL), "a multishot poll reports each event");
	ktap_result(DO(a, bad_buffers, NULL), "a read with a bad buffer loses no record");
	ktap_result(DO(a, registered_file, NULL), "a channel is read as a registered file");
	ktap_result(DO(a, channel_ends, ma), "reads and polls end with their channel");
	ktap_result(DO(a, ring_ends, NULL), "reads that ended with their ring take no record");
	ktap_result(killed(), "a process is killed with reads pending");
	ktap_result(removed(), "reads and polls end with the device");
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
