// SPDX-License-Identifier: GPL-2.0
/*
 * integrity [-k KIB] [-m MAX-SIZE] [-s SEED] [-o FILE]
 *
 * KIB kibibytes of messages from processes in left to processes in right
 * through XRC, each checked byte for byte where it arrives. Every sender has
 * one QP pair; every receiver has SRQs in the one domain the receivers share.
 *
 * The properties of message number SEQ of a sender (operation, size, SRQ, content) follow
 * from SEED, the sender and SEQ alone, and the immediate data carries SEQ. So a
 * receiver knows the next message on each of its SRQs from each sender,
 * and a message that is lost, repeated, overtaken or on the wrong SRQ is seen
 * at once. Atomics count on the receiver's side and have to add up.
 *
 * Prints KTAP. With -o, FILE gets a line "QP-NUMBER SRQ-NUMBER…" per target QP:
 * the SRQ that each message of that QP names, in order.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "node.h"

enum {
	SENDERS = 3,
	RECEIVERS = 2,
	SRQS_PER_RECEIVER = 2,
	SRQS = RECEIVERS * SRQS_PER_RECEIVER,
	MAX_SIZE = 1 << 20,
	DEPTH = 8,		/* of an SRQ, and of a send queue */
	SLOTS = 4,		/* RDMA WRITE buffers per sender and receiver */
	TIMEOUT = 12,		/* 4.096 us << 12 = 17 ms */
	GIVE_UP = 7200,		/* seconds */
};

enum operation { SEND, WRITE, READ, ADD };

struct message {
	enum operation operation;
	unsigned int srq;
	size_t size;
};

/* The memory that a receiver exposes to RDMA; one memory region. */
struct exposed {
	uint64_t counter;
	uint8_t pattern[MAX_SIZE];
	uint8_t slot[SENDERS][SLOTS][MAX_SIZE];
};

/* Shared by all processes; each field has one writer, slot_used two in turn. */
static struct shared {
	struct {
		struct path path;	/* to the sender's QP */
		uint32_t messages;
		uint32_t adds[RECEIVERS];
		atomic_bool done;
	} sender[SENDERS];
	struct {
		uint32_t srq_num[SRQS_PER_RECEIVER];
		uint64_t address;	/* of its struct exposed */
		uint32_t rkey;
		uint64_t received;
		uint64_t bytes;
		uint64_t counter;
		atomic_bool done;
	} receiver[RECEIVERS];
	struct path target[SENDERS];
	atomic_bool slot_used[RECEIVERS][SENDERS][SLOTS];
	atomic_uint senders_up, receivers_up;
} *shared;

static uint64_t seed = 1;
static size_t max_size = MAX_SIZE;

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static uint64_t key(unsigned int sender, uint32_t seq)
{
	return mix(mix(seed) ^ ((uint64_t)sender << 32) ^ seq);
}

/* Sizes are spread evenly over the powers of two, and over each one's range. */
static struct message message(unsigned int sender, uint32_t seq)
{
	static const enum operation operations[8] = {
		SEND, SEND, SEND, SEND, WRITE, WRITE, READ, ADD,
	};
	uint64_t random = mix(key(sender, seq));
	struct message message = {
		.operation = operations[random % 8],
		.srq = (random >> 8) % SRQS,
	};
	size_t power = (size_t)1 << ((random >> 16) % 21);

	message.size = power + (random >> 32) % power;
	if (message.size > max_size)
		message.size = max_size - (message.size - max_size) % max_size;
	if (message.operation == ADD)
		message.size = sizeof(uint64_t);
	return message;
}

static unsigned int receiver_of(unsigned int srq)
{
	return srq / SRQS_PER_RECEIVER;
}

static uint32_t srq_num_of(unsigned int srq)
{
	return shared->receiver[receiver_of(srq)].srq_num[srq % SRQS_PER_RECEIVER];
}

/* Word I of a content identifies its place: no other message has it, nor another I. */
static void fill(uint8_t *data, size_t size, uint64_t content)
{
	uint64_t word;
	size_t i;

	for (i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
		word = content + i * 0xd1b54a32d192ed03;
		memcpy(data + i, &word, sizeof(word));
	}
	word = content + i * 0xd1b54a32d192ed03;
	memcpy(data + i, &word, size - i);
}

static bool holds(const uint8_t *data, size_t size, uint64_t content)
{
	uint64_t word, found;
	size_t i;

	for (i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
		word = content + i * 0xd1b54a32d192ed03;
		memcpy(&found, data + i, sizeof(found));
		if (found != word)
			return false;
	}
	word = content + i * 0xd1b54a32d192ed03;
	return !memcmp(data + i, &word, size - i);
}

static void *allocate(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "%zu bytes", size);
	return memory;
}

static struct ibv_mr *expose(struct node *node, void *memory, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(node->pd, memory, size,
				       IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_ATOMIC);

	if (!mr)
		err(1, "memory region of %zu bytes", size);
	return mr;
}

static struct ibv_cq *create_cq(struct node *node, unsigned int depth,
				struct ibv_comp_channel **channel)
{
	struct ibv_cq *cq;

	if (!*channel)
		*channel = ibv_create_comp_channel(node->context);
	if (!*channel)
		err(1, "completion channel");
	cq = ibv_create_cq(node->context, depth, NULL, *channel, 0);
	if (!cq || ibv_req_notify_cq(cq, 0))
		err(1, "CQ");
	return cq;
}

/* Sleeps until a CQ of the channel may have work, or 10 ms. */
static void wait_for_work(struct ibv_comp_channel *channel)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&ready, 1, 10) != 1)
		return;
	if (ibv_get_cq_event(channel, &cq, &context))
		err(1, "CQ event");
	ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(cq, 0))
		err(1, "CQ notification");
}

static void wait_until(atomic_uint *counter, unsigned int value)
{
	while (atomic_load(counter) != value)
		usleep(1000);
}

/* ---- right ---- */

struct receive_queue {
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buffers;
	uint32_t next[SENDERS];		/* message that has to arrive from each */
};

static void post(struct receive_queue *queue, uint64_t buffer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)queue->buffers + buffer * MAX_SIZE,
		.length = MAX_SIZE,
		.lkey = queue->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_srq_recv(queue->srq, &wr, &bad);
	if (errno)
		err(1, "receive");
}

/* The first message at or after SEQ that lands on the SRQ. */
static uint32_t next_on(unsigned int srq, unsigned int sender, uint32_t seq)
{
	for (; seq < shared->sender[sender].messages; seq++) {
		struct message expected = message(sender, seq);

		if (expected.srq == srq && expected.operation <= WRITE)
			break;
	}
	return seq;
}

static void check(struct receive_queue *queue, struct exposed *exposed,
		  unsigned int srq, unsigned int sender, const struct ibv_wc *wc)
{
	unsigned int me = receiver_of(srq);
	uint32_t seq = ntohl(wc->imm_data);
	struct message expected;
	uint8_t *data;

	if (wc->status)
		errx(1, "SRQ %u: %s", srq, ibv_wc_status_str(wc->status));
	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || seq != queue->next[sender])
		errx(1, "SRQ %u: message %u of sender %u, not %u", srq, seq,
		     sender, queue->next[sender]);

	expected = message(sender, seq);
	if (wc->byte_len != expected.size)
		errx(1, "message %u of sender %u: %u bytes, not %zu", seq,
		     sender, wc->byte_len, expected.size);
	if (expected.operation == WRITE)
		data = exposed->slot[sender][seq % SLOTS];
	else
		data = queue->buffers + wc->wr_id * MAX_SIZE;
	if (!holds(data, expected.size, key(sender, seq)))
		errx(1, "message %u of sender %u, %zu bytes, is damaged", seq,
		     sender, expected.size);
	if (expected.operation == WRITE)
		atomic_store(&shared->slot_used[me][sender][seq % SLOTS], false);

	queue->next[sender] = next_on(srq, sender, seq + 1);
	shared->receiver[me].received++;
	shared->receiver[me].bytes += expected.size;
}

static bool complete(const struct receive_queue *queue)
{
	unsigned int i, sender;

	for (i = 0; i < SRQS_PER_RECEIVER; i++)
		for (sender = 0; sender < SENDERS; sender++)
			if (queue[i].next[sender] != shared->sender[sender].messages)
				return false;
	return true;
}

static void receiver(unsigned int me, const char *domain_file)
{
	struct receive_queue queue[SRQS_PER_RECEIVER] = {};
	struct ibv_comp_channel *channel = NULL;
	struct ibv_qp *target[SENDERS];
	struct ibv_xrcd *domain;
	struct exposed *exposed;
	struct ibv_mr *mr;
	struct node node;
	unsigned int i, sender;

	node_enter("right");
	node_open(&node, "right");
	domain = node_open_domain(&node, domain_file);

	exposed = allocate(sizeof(*exposed));
	fill(exposed->pattern, MAX_SIZE, key(SENDERS, me));
	mr = expose(&node, exposed, sizeof(*exposed));
	shared->receiver[me].address = (uintptr_t)exposed;
	shared->receiver[me].rkey = mr->rkey;

	for (i = 0; i < SRQS_PER_RECEIVER; i++) {
		unsigned int buffer;

		queue[i].cq = create_cq(&node, DEPTH, &channel);
		queue[i].srq = node_create_xrc_srq(&node, node.pd, domain,
						   queue[i].cq, DEPTH);
		queue[i].buffers = allocate(DEPTH * MAX_SIZE);
		queue[i].mr = expose(&node, queue[i].buffers, DEPTH * MAX_SIZE);
		shared->receiver[me].srq_num[i] = srq_number(queue[i].srq);
		for (buffer = 0; buffer < DEPTH; buffer++)
			post(&queue[i], buffer);
		for (sender = 0; sender < SENDERS; sender++)
			queue[i].next[sender] =
				next_on(me * SRQS_PER_RECEIVER + i, sender, 0);
	}

	/* The first receiver's target QPs serve the SRQs of all. */
	wait_until(&shared->senders_up, SENDERS);
	for (sender = 0; me == 0 && sender < SENDERS; sender++) {
		target[sender] = node_create_target(&node, domain);
		qp_connect(&node, target[sender], &shared->sender[sender].path);
		shared->target[sender] = (struct path) {
			.gid = node.gid,
			.qp_num = target[sender]->qp_num,
			.send_psn = 0x100 * sender,
			.recv_psn = 0,
			.timeout = TIMEOUT,
		};
	}
	atomic_fetch_add(&shared->receivers_up, 1);
	wait_until(&shared->receivers_up, RECEIVERS);

	while (!complete(queue)) {
		bool idle = true;

		for (i = 0; i < SRQS_PER_RECEIVER; i++) {
			unsigned int srq = me * SRQS_PER_RECEIVER + i;
			struct ibv_wc wc;

			while (ibv_poll_cq(queue[i].cq, 1, &wc) > 0) {
				for (sender = 0; sender < SENDERS; sender++)
					if (shared->target[sender].qp_num == wc.qp_num)
						break;
				if (sender == SENDERS)
					errx(1, "SRQ %u: a message from QP %#x", srq, wc.qp_num);
				check(&queue[i], exposed, srq, sender, &wc);
				post(&queue[i], wc.wr_id);
				idle = false;
			}
		}
		if (idle)
			wait_for_work(channel);
	}
	atomic_store(&shared->receiver[me].done, true);

	/* A message repeated now would be one too many. */
	for (sender = 0; sender < SENDERS; sender++)
		while (!atomic_load(&shared->sender[sender].done))
			usleep(1000);
	for (i = 0; i < RECEIVERS; i++)
		while (!atomic_load(&shared->receiver[i].done))
			usleep(1000);
	usleep(100000);
	for (i = 0; i < SRQS_PER_RECEIVER; i++) {
		struct ibv_wc wc;

		if (ibv_poll_cq(queue[i].cq, 1, &wc))
			errx(1, "receiver %u: a message too many", me);
	}
	shared->receiver[me].counter = exposed->counter;
}

/* ---- left ---- */

struct send_queue {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint8_t *buffers;
	uint32_t posted, completed;
};

static void post_message(struct send_queue *queue, unsigned int me, uint32_t seq)
{
	struct message message_ = message(me, seq);
	unsigned int peer = receiver_of(message_.srq);
	struct exposed *remote = (struct exposed *)shared->receiver[peer].address;
	uint32_t rkey = shared->receiver[peer].rkey;
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(queue->qp);
	uint8_t *data = queue->buffers + seq % DEPTH * MAX_SIZE;
	uint64_t address;

	if (message_.operation <= WRITE)
		fill(data, message_.size, key(me, seq));
	address = (uintptr_t)(message_.operation == WRITE ? remote->slot[me][seq % SLOTS] :
			      message_.operation == READ ? remote->pattern :
			      (uint8_t *)&remote->counter);

	/* Odd senders use the new interface, even ones the old. */
	if (me % 2) {
		ibv_wr_start(qp);
		qp->wr_id = seq;
		qp->wr_flags = IBV_SEND_SIGNALED;
		switch (message_.operation) {
		case SEND:
			ibv_wr_send_imm(qp, htonl(seq));
			break;
		case WRITE:
			ibv_wr_rdma_write_imm(qp, rkey, address, htonl(seq));
			break;
		case READ:
			ibv_wr_rdma_read(qp, rkey, address);
			break;
		case ADD:
			ibv_wr_atomic_fetch_add(qp, rkey, address, 1);
			break;
		}
		ibv_wr_set_xrc_srqn(qp, srq_num_of(message_.srq));
		ibv_wr_set_sge(qp, queue->mr->lkey, (uintptr_t)data, message_.size);
		errno = ibv_wr_complete(qp);
	} else {
		static const enum ibv_wr_opcode opcodes[] = {
			[SEND] = IBV_WR_SEND_WITH_IMM,
			[WRITE] = IBV_WR_RDMA_WRITE_WITH_IMM,
			[READ] = IBV_WR_RDMA_READ,
			[ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		};
		struct ibv_sge sge = {
			.addr = (uintptr_t)data,
			.length = message_.size,
			.lkey = queue->mr->lkey,
		};
		struct ibv_send_wr wr = {
			.wr_id = seq,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcodes[message_.operation],
			.send_flags = IBV_SEND_SIGNALED,
			.imm_data = htonl(seq),
			.qp_type.xrc.remote_srqn = srq_num_of(message_.srq),
		}, *bad;

		if (message_.operation == ADD) {
			wr.wr.atomic.remote_addr = address;
			wr.wr.atomic.compare_add = 1;
			wr.wr.atomic.rkey = rkey;
		} else {
			wr.wr.rdma.remote_addr = address;
			wr.wr.rdma.rkey = rkey;
		}
		errno = ibv_post_send(queue->qp, &wr, &bad);
	}
	if (errno)
		err(1, "sender %u: message %u", me, seq);
}

static void finish(struct send_queue *queue, unsigned int me, const struct ibv_wc *wc,
		   uint64_t *counter)
{
	uint32_t seq = wc->wr_id;
	struct message message_ = message(me, seq);
	unsigned int peer = receiver_of(message_.srq);
	uint8_t *data = queue->buffers + seq % DEPTH * MAX_SIZE;
	uint64_t count;

	if (wc->status)
		errx(1, "sender %u: message %u: %s", me, seq,
		     ibv_wc_status_str(wc->status));
	if (seq != queue->completed)
		errx(1, "sender %u: message %u done, not %u", me, seq, queue->completed);
	if (message_.operation == READ &&
	    !holds(data, message_.size, key(SENDERS, peer)))
		errx(1, "sender %u: message %u read damaged data", me, seq);
	if (message_.operation == ADD) {
		memcpy(&count, data, sizeof(count));
		/* Others add too, but none subtracts: repeated means lower. */
		if (count + 1 <= counter[peer])
			errx(1, "sender %u: message %u counted %lu after %lu", me,
			     seq, count, counter[peer] - 1);
		counter[peer] = count + 1;
	}
	queue->completed++;
}

static bool may_post(const struct send_queue *queue, unsigned int me, uint32_t seq)
{
	struct message next;

	if (seq == shared->sender[me].messages || seq - queue->completed == DEPTH)
		return false;
	next = message(me, seq);
	return next.operation != WRITE ||
	       !atomic_load(&shared->slot_used[receiver_of(next.srq)][me][seq % SLOTS]);
}

static void sender(unsigned int me)
{
	uint64_t counter[RECEIVERS] = {};
	struct send_queue queue = {};
	struct node node;

	node_enter("left");
	node_open(&node, "left");
	queue.cq = create_cq(&node, DEPTH, &queue.channel);
	queue.qp = node_create_initiator(&node, queue.cq, DEPTH);
	queue.buffers = allocate(DEPTH * MAX_SIZE);
	queue.mr = expose(&node, queue.buffers, DEPTH * MAX_SIZE);
	shared->sender[me].path = (struct path) {
		.gid = node.gid,
		.qp_num = queue.qp->qp_num,
		.send_psn = 0,
		.recv_psn = 0x100 * me,
		.timeout = TIMEOUT,
	};
	atomic_fetch_add(&shared->senders_up, 1);
	wait_until(&shared->receivers_up, RECEIVERS);
	qp_connect(&node, queue.qp, &shared->target[me]);

	while (queue.completed != shared->sender[me].messages) {
		bool idle = true;
		struct ibv_wc wc;

		while (may_post(&queue, me, queue.posted)) {
			struct message next = message(me, queue.posted);

			if (next.operation == WRITE)
				atomic_store(&shared->slot_used[receiver_of(next.srq)][me]
							       [queue.posted % SLOTS], true);
			post_message(&queue, me, queue.posted++);
			idle = false;
		}
		while (ibv_poll_cq(queue.cq, 1, &wc) > 0) {
			finish(&queue, me, &wc, counter);
			idle = false;
		}
		if (idle)
			wait_for_work(queue.channel);
	}
	atomic_store(&shared->sender[me].done, true);
}

/* ---- both ---- */

static void plan(uint64_t bytes)
{
	unsigned int me;

	for (me = 0; me < SENDERS; me++) {
		uint64_t left = bytes / SENDERS;

		while (left) {
			uint32_t seq = shared->sender[me].messages++;
			struct message next = message(me, seq);

			left -= left < next.size ? left : next.size;
			if (next.operation == ADD)
				shared->sender[me].adds[receiver_of(next.srq)]++;
		}
	}
}

static void write_srqs(const char *name)
{
	FILE *file = fopen(name, "w");
	unsigned int me;
	uint32_t seq;

	if (!file)
		err(1, "%s", name);
	for (me = 0; me < SENDERS; me++) {
		fprintf(file, "%u", shared->target[me].qp_num);
		for (seq = 0; seq < shared->sender[me].messages; seq++)
			fprintf(file, " %u", srq_num_of(message(me, seq).srq));
		fprintf(file, "\n");
	}
	if (fclose(file))
		err(1, "%s", name);
}

static bool counters_add_up(void)
{
	bool right = true;
	unsigned int i, me;

	for (i = 0; i < RECEIVERS; i++) {
		uint64_t adds = 0;

		for (me = 0; me < SENDERS; me++)
			adds += shared->sender[me].adds[i];
		ktap_note("receiver %u: %lu messages, %lu bytes, %lu atomics counted of %lu", i,
			  shared->receiver[i].received, shared->receiver[i].bytes,
			  shared->receiver[i].counter, adds);
		right &= shared->receiver[i].counter == adds;
	}
	return right;
}

int main(int argc, char **argv)
{
	char domain_file[] = "/tmp/integrity.XXXXXX";
	const char *output = NULL;
	uint64_t bytes = 64 << 20, start;
	bool all_well = true;
	pid_t children[SENDERS + RECEIVERS];
	unsigned int i;
	int option, fd;

	while ((option = getopt(argc, argv, "k:m:s:o:")) != -1) {
		switch (option) {
		case 'k':
			bytes = strtoull(optarg, NULL, 0) << 10;
			break;
		case 'm':
			max_size = strtoul(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			output = optarg;
			break;
		default:
			errx(2, "usage: integrity [-k KIB] [-m MAX-SIZE] [-s SEED] [-o FILE]");
		}
	}
	if (!bytes || !max_size || max_size > MAX_SIZE)
		errx(2, "sizes are 1 to %d bytes", MAX_SIZE);

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		err(1, "shared memory");
	fd = mkstemp(domain_file);
	if (fd < 0)
		err(1, "%s", domain_file);
	close(fd);

	ktap_start("data integrity over XRC", 2);
	plan(bytes);
	start = now_ns();
	for (i = 0; i < SENDERS + RECEIVERS; i++) {
		children[i] = fork();
		if (children[i] < 0)
			err(1, "fork");
		if (!children[i]) {
			alarm(GIVE_UP);
			if (i < SENDERS)
				sender(i);
			else
				receiver(i - SENDERS, domain_file);
			_exit(0);
		}
	}
	/* A process that fails ends the others, too: they would wait for it. */
	for (i = 0; i < SENDERS + RECEIVERS; i++) {
		unsigned int other;
		int status;

		if (wait(&status) < 0)
			err(1, "wait");
		if (!status)
			continue;
		if (WIFSIGNALED(status) && all_well)
			ktap_note("a process ended by signal %d", WTERMSIG(status));
		for (other = 0; all_well && other < SENDERS + RECEIVERS; other++)
			kill(children[other], SIGKILL);
		all_well = false;
	}
	unlink(domain_file);

	ktap_note("%u, %u and %u messages, %lu KiB in %.1f s",
		  shared->sender[0].messages, shared->sender[1].messages,
		  shared->sender[2].messages, bytes >> 10, (now_ns() - start) / 1e9);
	ktap_result(all_well, "every message arrives once, whole, in order, on the SRQ it names");
	ktap_result(counters_add_up() && all_well, "every atomic counts once");
	if (output && all_well)
		write_srqs(output);
	return ktap_end();
}
