// SPDX-License-Identifier: GPL-2.0
/*
 * What ib_xrc_rcv costs beside mainline, measured: everything is done with both
 * in the same run, in turns, and each round is a line of JSON. All of it is
 * control path; packets are for perftest (qemu/tests/rxe/bench).
 *
 * usage: measure [DIVISOR]
 *
 * DIVISOR makes everything that much smaller, to try the program.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <infiniband/xrc_rcv.h>

#include "../tests/rxe/node.h"

#define DOMAIN_FILE "/tmp/bench-domain"

enum {
	CALLS = 100,		/* timed together */
	ROUNDS = 15,
	OBJECTS = 4000,		/* whose memory is looked at together */
	MEMORY_ROUNDS = 3,
	MAX_QPS = 10000,
	MAX_READERS = 1024,
	STACK = 64 << 10,
};

static unsigned int divisor = 1;
static struct path peer;	/* in left; nothing is ever sent to it */

/* An open device of node right, and its handle of the domain. */
struct file {
	struct node node;
	struct ibv_xrcd *domain;
	struct xrc_rcv_event_channel *channel;
};

static struct file creator, joiner;
static struct xrc_rcv_qp *created[MAX_QPS], *registered[OBJECTS];
static struct ibv_qp *owned[MAX_QPS], *opened[OBJECTS];

static void file_open(struct file *file)
{
	node_open(&file->node, "right");
	file->domain = node_open_domain(&file->node, DOMAIN_FILE);
	file->channel = xrc_rcv_create_event_channel(file->node.context);
	if (!file->channel)
		err(1, "event channel");
}

static void report(const char *what, unsigned int n, const char *unit, double ours,
		   double mainline)
{
	printf("{\"measurement\": \"%s\", \"n\": %u, \"unit\": \"%s\", \"ib_xrc_rcv\": %.3f, \"mainline\": %.3f}\n",
	       what, n, unit, ours, mainline);
	fflush(stdout);
}

/* ---- the same things done with both ---- */

static void alloc_to_rtr(unsigned int n, uint32_t flags)
{
	struct xrc_rcv_init_attr init = { .flags = flags, .channel = creator.channel };
	struct ibv_qp_attr attr = {
		.port_num = creator.node.port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.ah_attr = node_address(&creator.node, &peer),
		.path_mtu = creator.node.mtu,
		.dest_qp_num = peer.qp_num,
		.rq_psn = peer.recv_psn,
	};
	unsigned int i;

	for (i = 0; i < n; i++) {
		created[i] = xrc_rcv_alloc_qp(creator.domain, &init, &attr,
					      IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS | IBV_QP_AV |
					      IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					      IBV_QP_RQ_PSN);
		if (!created[i])
			err(1, "alloc of QP %u", i);
	}
}

static void create_to_rtr(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		owned[i] = node_create_target(&creator.node, creator.domain);
		qp_connect(&creator.node, owned[i], &peer);
	}
}

static void reg(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		registered[i] = xrc_rcv_reg_qp(joiner.domain, created[i]->qp_num,
					       joiner.channel, i);
		if (!registered[i])
			err(1, "reg %u", i);
	}
}

static void open_qps(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct ibv_qp_open_attr attr = {
			.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
				     IBV_QP_OPEN_ATTR_TYPE,
			.qp_num = owned[i]->qp_num,
			.xrcd = joiner.domain,
			.qp_type = IBV_QPT_XRC_RECV,
		};

		opened[i] = ibv_open_qp(joiner.node.context, &attr);
		if (!opened[i])
			err(1, "open %u", i);
	}
}

static void unreg(struct xrc_rcv_qp **qps, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		errno = xrc_rcv_unreg_qp(qps[i]);
		if (errno)
			err(1, "unreg %u", i);
	}
}

static void destroy(struct ibv_qp **qps, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		errno = ibv_destroy_qp(qps[i]);
		if (errno)
			err(1, "destroy %u", i);
	}
}

/* ---- calls ---- */

static double us_each(uint64_t begin, unsigned int n)
{
	return (now_ns() - begin) / 1e3 / n;
}

static double time_alloc(unsigned int n)
{
	uint64_t begin = now_ns();
	double us;

	alloc_to_rtr(n, 0);
	us = us_each(begin, n);
	unreg(created, n);
	return us;
}

static double time_create(unsigned int n)
{
	uint64_t begin = now_ns();
	double us;

	create_to_rtr(n);
	us = us_each(begin, n);
	destroy(owned, n);
	return us;
}

static void measure_creation(void)
{
	unsigned int round, n = CALLS / divisor;

	for (round = 0; round < ROUNDS; round++) {
		double ours, mainline;

		if (round % 2) {
			ours = time_alloc(n);
			mainline = time_create(n);
		} else {
			mainline = time_create(n);
			ours = time_alloc(n);
		}
		report("create, to RTR", 1, "us", ours, mainline);
	}
}

static void time_reg(unsigned int n, double *join, double *leave)
{
	uint64_t begin = now_ns();

	reg(n);
	*join = us_each(begin, n);
	begin = now_ns();
	unreg(registered, n);
	*leave = us_each(begin, n);
}

static void time_open(unsigned int n, double *join, double *leave)
{
	uint64_t begin = now_ns();

	open_qps(n);
	*join = us_each(begin, n);
	begin = now_ns();
	destroy(opened, n);
	*leave = us_each(begin, n);
}

static void measure_joining(void)
{
	unsigned int round, n = CALLS / divisor;

	alloc_to_rtr(n, 0);
	create_to_rtr(n);
	for (round = 0; round < ROUNDS; round++) {
		double join[2], leave[2];

		if (round % 2) {
			time_reg(n, &join[0], &leave[0]);
			time_open(n, &join[1], &leave[1]);
		} else {
			time_open(n, &join[1], &leave[1]);
			time_reg(n, &join[0], &leave[0]);
		}
		report("join (REG, ibv_open_qp)", 1, "us", join[0], join[1]);
		report("leave (UNREG, ibv_destroy_qp)", 1, "us", leave[0], leave[1]);
	}
	unreg(created, n);
	destroy(owned, n);
}

/* ---- memory ---- */

/* Bytes in use by the kernel's slab and per-CPU allocators. */
static double kernel_memory(void)
{
	unsigned long long active, size, kib;
	double bytes = 0;
	char line[512];
	FILE *file;

	usleep(500000);		/* what is freed after a grace period is free then */
	file = fopen("/proc/slabinfo", "r");
	if (!file)
		err(1, "slabinfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%*s %llu %*u %llu", &active, &size) == 2)
			bytes += active * size;
	fclose(file);
	file = fopen("/proc/meminfo", "r");
	if (!file)
		err(1, "meminfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Percpu: %llu kB", &kib) == 1)
			bytes += kib * 1024;
	fclose(file);
	return bytes;
}

static double reg_memory(unsigned int n)
{
	double before = kernel_memory(), bytes;

	reg(n);
	bytes = (kernel_memory() - before) / n;
	unreg(registered, n);
	return bytes;
}

static double open_memory(unsigned int n)
{
	double before = kernel_memory(), bytes;

	open_qps(n);
	bytes = (kernel_memory() - before) / n;
	destroy(opened, n);
	return bytes;
}

static void measure_memory(void)
{
	unsigned int round, n = OBJECTS / divisor;

	for (round = 0; round < MEMORY_ROUNDS; round++) {
		double before, ours, mainline, ours_qp, mainline_qp;

		before = kernel_memory();
		alloc_to_rtr(n, 0);
		ours_qp = (kernel_memory() - before) / n;
		ours = reg_memory(n);
		unreg(created, n);

		before = kernel_memory();
		create_to_rtr(n);
		mainline_qp = (kernel_memory() - before) / n;
		mainline = open_memory(n);
		destroy(owned, n);

		report("kernel memory of a QP with its creator", 1, "bytes", ours_qp, mainline_qp);
		report("kernel memory of one more who joined", 1, "bytes", ours, mainline);
	}
}

/* ---- events ---- */

static atomic_uint unread;
static atomic_ullong last_read;
static sem_t all_read;

/* Ends with the process. */
static void *reader(void *argument)
{
	struct file *file = argument;
	struct xrc_rcv_event event;

	while (!xrc_rcv_get_event(file->channel, &event)) {
		if (event.type != IBV_EVENT_QP_LAST_WQE_REACHED)
			continue;
		atomic_store(&last_read, now_ns());
		if (atomic_fetch_sub(&unread, 1) == 1)
			sem_post(&all_read);
	}
	err(1, "event");
}

static void add_reader(uint32_t qp_num)
{
	struct file *file = calloc(1, sizeof(*file));
	pthread_attr_t attr;
	pthread_t thread;

	file_open(file);
	if (!xrc_rcv_reg_qp(file->domain, qp_num, file->channel, 0))
		err(1, "reg of a reader");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	errno = pthread_create(&thread, &attr, reader, file);
	if (errno)
		err(1, "reader");
}

/* From the call that breaks the QP until the last reader has the record. */
static double time_event(uint32_t qp_num, unsigned int readers)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	uint64_t begin;
	double us;

	usleep(50000);		/* all readers wait again */
	atomic_store(&unread, readers);
	begin = now_ns();
	errno = xrc_rcv_modify_qp(creator.domain, qp_num, &attr, IBV_QP_STATE);
	if (errno)
		err(1, "QP to ERR");
	sem_wait(&all_read);
	us = (atomic_load(&last_read) - begin) / 1e3;
	attr.qp_state = IBV_QPS_RESET;
	errno = xrc_rcv_modify_qp(creator.domain, qp_num, &attr, IBV_QP_STATE);
	if (errno)
		err(1, "QP to RESET");
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = creator.node.port;
	errno = xrc_rcv_modify_qp(creator.domain, qp_num, &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				  IBV_QP_ACCESS_FLAGS);
	if (errno)
		err(1, "QP to INIT");
	return us;
}

/* The same for mainline's only reader, the creator. */
static uint64_t creator_read;

static void *creator_reader(void *argument)
{
	struct ibv_async_event event;

	(void)argument;
	do {
		if (ibv_get_async_event(creator.node.context, &event))
			err(1, "asynchronous event");
		creator_read = now_ns();
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED);
	return NULL;
}

static double time_creators_event(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	pthread_t thread;
	uint64_t begin;

	create_to_rtr(1);
	errno = pthread_create(&thread, NULL, creator_reader, NULL);
	if (errno)
		err(1, "reader");
	usleep(50000);
	begin = now_ns();
	errno = ibv_modify_qp(owned[0], &attr, IBV_QP_STATE);
	if (errno)
		err(1, "QP to ERR");
	pthread_join(thread, NULL);
	destroy(owned, 1);
	return (creator_read - begin) / 1e3;
}

static void measure_events(void)
{
	unsigned int n, round, readers = 0;
	struct xrc_rcv_qp *qp;

	sem_init(&all_read, 0, 0);
	alloc_to_rtr(1, 0);
	qp = created[0];
	for (n = 1; n <= MAX_READERS / divisor; n *= 4) {
		for (; readers < n; readers++)
			add_reader(qp->qp_num);
		for (round = 0; round < ROUNDS; round++) {
			double ours, mainline;

			if (round % 2) {
				ours = time_event(qp->qp_num, n);
				mainline = time_creators_event();
			} else {
				mainline = time_creators_event();
				ours = time_event(qp->qp_num, n);
			}
			report("event, until the last reader has it", n, "us", ours, mainline);
		}
	}
}

/* ---- the end of many ---- */

static void close_domain(void)
{
	errno = ibv_close_xrcd(creator.domain);
	if (errno)
		err(1, "last close of the domain");
}

static double ms_since(uint64_t begin)
{
	return (now_ns() - begin) / 1e6;
}

/* QPs that outlived whoever was registered, at the end of their domain. */
static double time_domain_close(unsigned int n)
{
	uint64_t begin;
	double ms;

	creator.domain = node_open_domain(&creator.node, DOMAIN_FILE "-of-many");
	alloc_to_rtr(n, XRC_RCV_ALLOC_LIFETIME_DOMAIN);
	unreg(created, n);
	begin = now_ns();
	close_domain();
	ms = ms_since(begin);
	return ms;
}

static double time_destroy_loop(unsigned int n)
{
	uint64_t begin;
	double ms;

	creator.domain = node_open_domain(&creator.node, DOMAIN_FILE "-of-many");
	create_to_rtr(n);
	begin = now_ns();
	destroy(owned, n);
	close_domain();
	ms = ms_since(begin);
	return ms;
}

static void measure_teardown(unsigned int n, unsigned int rounds)
{
	struct ibv_xrcd *domain = creator.domain;
	unsigned int round;

	for (round = 0; round < rounds; round++) {
		double ours, mainline;

		if (round % 2) {
			ours = time_domain_close(n);
			mainline = time_destroy_loop(n);
		} else {
			mainline = time_destroy_loop(n);
			ours = time_domain_close(n);
		}
		report("teardown (domain close, ibv_destroy_qp loop)", n, "ms", ours, mainline);
	}
	creator.domain = domain;
}

int main(int argc, char **argv)
{
	struct rlimit files = { 65536, 65536 };
	struct node left;

	if (argc > 1)
		divisor = atoi(argv[1]);
	if (setrlimit(RLIMIT_NOFILE, &files))
		err(1, "limit of open files");
	node_enter("left");
	node_open(&left, "left");
	peer = (struct path) { .gid = left.gid, .lid = left.lid, .qp_num = 0x11 };
	node_enter("right");
	file_open(&creator);
	file_open(&joiner);

	measure_creation();
	measure_joining();
	measure_memory();
	measure_teardown(1000 / divisor, 5);
	measure_teardown(MAX_QPS / divisor, 3);
	measure_events();
	return 0;
}
