// SPDX-License-Identifier: GPL-2.0
/*
 * usage: scale FILE readers N…
 *        scale FILE objects QPS FILES
 *        scale FILE channel QPS
 *        scale FILE teardown QPS ROUNDS
 *        scale FILE costs
 *        scale FILE registering
 *        scale FILE crowd PROCESSES CALLS
 *        scale FILE members QPS MEMBERS
 *        scale FILE profile
 *
 * readers: an error of a QP with N registrations, each of a uverbs file with an event channel of
 * its own, from the command to the last channel that is readable; beside it N eventfds that a loop
 * in the kernel signals (/dev/eventfds). The registrations and the reading process share a CPU with
 * the delivery. Marks both for irqs_off.c.
 *
 * objects: QPS receive QPs, with each of which FILES uverbs files register.
 *
 * channel: a uverbs file that registers with QPS receive QPs of another, all on one event channel;
 * an error of each QP, and reading the events, of which there must be one of each QP; the same
 * errors again, and closing the channel with their unread events. The calls at the beginning and at
 * the end are timed apart, the first and last tenths.
 *
 * teardown: the last close of a domain with QPS receive QPs of its lifetime, the close of a uverbs
 * file that was the last to be registered with as many, and beside them that of a uverbs file with
 * as many of mainline's target QPs, as the exit of a process closes it.
 *
 * costs: time to create, connect and destroy, and the memory, of an object of each kind that
 * processes are connected with.
 *
 * registering: REG and UNREG by the methods and by the ioctls of the channel, of one QP and of many
 * in a call, beside ibv_open_qp() and ibv_destroy_qp() of mainline.
 *
 * crowd: PROCESSES processes of one domain, each with a channel of its own, that register and
 * unregister with a QP each, CALLS times.
 *
 * members: MEMBERS channels of a domain with QPS receive QPs, those of all QPs and those that name
 * each: how they join, an error of each QP, which all read, and how they leave.
 *
 * profile: the same calls beside mainline's, an event of 10,000 registrations and as many eventfds,
 * as sections for profile.c.
 *
 * Prints a JSON object for each measurement.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "irqs_off.h"
#include "member.h"
#include "observe.h"
#include "profile.h"

enum { WAIT_MS = 600000, BATCH = 1024, ROUNDS = 3 };

/* The sections of the profile. */
enum {
	SECTION_ALLOC = 1, SECTION_CREATE, SECTION_REG, SECTION_OPEN, SECTION_UNREG, SECTION_CLOSE,
	SECTION_CAPS, SECTION_TEARDOWN, SECTION_DESTROY, SECTION_EVENT, SECTION_EVENTFD,
	SECTION_EXIT, SECTION_EXIT_TARGETS, SECTION_REG_MANY, SECTION_UNREG_MANY,
};

/* A uverbs file with the domain open, without what libibverbs adds. */
struct party {
	struct domain domain;
	int channel;
	struct registration registration;
};

static char uverbs_path[64];
static int domain_fd;
static struct { unsigned long begin, end; } text;

static uint32_t command(int fd, uint32_t number, void *request, size_t request_size, void *response,
			size_t response_size)
{
	struct ib_uverbs_cmd_hdr *header = request;

	*header = (struct ib_uverbs_cmd_hdr){ .command = number, .in_words = request_size / 4,
					      .out_words = response_size / 4 };
	memcpy(header + 1, &response, sizeof(response));
	if (write(fd, request, request_size) != (ssize_t)request_size)
		err(1, "command %u of uverbs", number);
	return 0;
}

static void party_open(struct party *party)
{
	struct ib_uverbs_get_context_resp context;
	struct { struct ib_uverbs_cmd_hdr header; struct ib_uverbs_get_context get; } get = { 0 };
	struct ib_uverbs_open_xrcd_resp xrcd;
	struct { struct ib_uverbs_cmd_hdr header; struct ib_uverbs_open_xrcd open; } open_xrcd = {
		.open.fd = domain_fd, .open.oflags = O_CREAT };

	party->domain.uverbs_fd = open(uverbs_path, O_RDWR | O_CLOEXEC);
	if (party->domain.uverbs_fd < 0)
		err(1, "%s", uverbs_path);
	command(party->domain.uverbs_fd, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get), &context,
		sizeof(context));
	close(context.async_fd);
	command(party->domain.uverbs_fd, IB_USER_VERBS_CMD_OPEN_XRCD, &open_xrcd, sizeof(open_xrcd),
		&xrcd, sizeof(xrcd));
	party->domain.handle = xrcd.xrcd_handle;
	party->channel = NO_CHANNEL;
}

static struct party *parties_open(size_t len, bool channels)
{
	struct party *parties = calloc(len, sizeof(*parties));
	size_t i;

	if (!parties)
		err(1, "calloc");
	for (i = 0; i < len; i++) {
		party_open(&parties[i]);
		if (channels)
			parties[i].channel = rcv_channel(parties[i].domain);
		if (channels && parties[i].channel < 0)
			errx(1, "event channel %zu: %s", i, strerror(-parties[i].channel));
	}
	return parties;
}

static void parties_close(struct party *parties, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (parties[i].channel >= 0)
			close(parties[i].channel);
		close(parties[i].domain.uverbs_fd);
	}
	free(parties);
}

/* Waits until all are readable. */
static void wait_for(int epoll, size_t len)
{
	struct epoll_event events[BATCH];
	int found;

	while (len) {
		found = epoll_wait(epoll, events, BATCH, WAIT_MS);
		if (found <= 0)
			errx(1, "%zu descriptors are not readable", len);
		len -= found;
	}
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		err(1, "epoll_ctl");
}

static int new_epoll(void)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll < 0)
		err(1, "epoll_create1");
	return epoll;
}

static void read_once(int fd)
{
	uint64_t data[8];

	if (read(fd, data, sizeof(data)) < 0)
		err(1, "read");
}

static uint64_t signal_eventfds(size_t len)
{
	int *fds = calloc(len, sizeof(*fds)), epoll = new_epoll();
	int device = open("/dev/eventfds", O_RDWR | O_CLOEXEC);
	uint64_t begin, took = UINT64_MAX;
	size_t i, round;

	if (!fds || device < 0)
		err(1, "/dev/eventfds");
	for (i = 0; i < len; i++) {
		fds[i] = eventfd(0, EFD_CLOEXEC);
		if (fds[i] < 0)
			err(1, "eventfd");
		watch(epoll, fds[i]);
	}
	if (write(device, fds, len * sizeof(*fds)) < 0)
		err(1, "/dev/eventfds");
	for (round = 0; round < ROUNDS; round++) {
		begin = now_ns();
		if (round == ROUNDS - 1)
			PROFILE(SECTION_EVENTFD);
		fsync(device);
		wait_for(epoll, len);
		PROFILE(0);
		begin = now_ns() - begin;
		took = begin < took ? begin : took;
		for (i = 0; i < len; i++)
			read_once(fds[i]);
	}
	close(device);
	for (i = 0; i < len; i++)
		close(fds[i]);
	close(epoll);
	free(fds);
	return took;
}

static void measure_readers(size_t len)
{
	struct party *parties = parties_open(len, true);
	struct ib_uverbs_qp_attr to_init;
	struct node node;
	uint64_t reg, begin, end, took = UINT64_MAX, command_took = UINT64_MAX;
	int epoll = new_epoll();
	uint32_t qp_num;
	size_t i, round;

	node_open(&node, "right");
	to_init = attr_to_init(&node);
	if (rcv_alloc(parties[0].domain, 0, NULL, parties[0].channel, &parties[0].registration))
		errx(1, "no receive QP");
	qp_num = parties[0].registration.qp_num;
	reg = now_ns();
	for (i = 1; i < len; i++)
		if (rcv_reg(parties[i].domain, qp_num, parties[i].channel,
			    &parties[i].registration))
			errx(1, "registration %zu", i);
	reg = now_ns() - reg;
	for (i = 0; i < len; i++)
		watch(epoll, parties[i].channel);
	for (round = 0; round < ROUNDS; round++) {
		if (rcv_modify(parties[0].domain, qp_num, &to_init))
			errx(1, "INIT");
		if (!round)
			irqs_off_search(text.begin, text.end);
		begin = now_ns();
		if (round == ROUNDS - 1)
			PROFILE(SECTION_EVENT);
		if (rcv_to_state(parties[0].domain, qp_num, IBV_QPS_ERR))
			errx(1, "ERR");
		end = now_ns();
		command_took = end - begin < command_took ? end - begin : command_took;
		wait_for(epoll, len);
		PROFILE(0);
		end = now_ns();
		took = end - begin < took ? end - begin : took;
		if (!round)
			irqs_off_search(0, 0);
		for (i = 0; i < len; i++)
			read_once(parties[i].channel);
		if (rcv_to_state(parties[0].domain, qp_num, IBV_QPS_RESET))
			errx(1, "RESET");
	}
	close(epoll);
	parties_close(parties, len);
	ibv_close_device(node.context);
	printf("{\"measurement\": \"readers\", \"n\": %zu, \"reg_ns\": %" PRIu64
	       ", \"delivery_ns\": %" PRIu64 ", \"eventfds_ns\": %" PRIu64 "}\n",
	       len, len > 1 ? reg / (len - 1) : 0, took, signal_eventfds(len));
	fflush(stdout);
}

static void measure_objects(size_t qps, size_t files)
{
	const long before = slab_unreclaimable();
	struct party *parties = parties_open(files, true);
	uint32_t *numbers = calloc(qps, sizeof(*numbers));
	struct registration registration;
	uint64_t alloc, reg, close_ns;
	long with_files, with_qps, with_all;
	size_t i, j;

	if (!numbers)
		err(1, "calloc");
	with_files = slab_unreclaimable();
	alloc = now_ns();
	for (i = 0; i < qps; i++) {
		if (rcv_alloc(parties[0].domain, 0, NULL, parties[0].channel, &registration))
			errx(1, "receive QP %zu", i);
		numbers[i] = registration.qp_num;
	}
	alloc = now_ns() - alloc;
	with_qps = slab_unreclaimable();
	reg = now_ns();
	for (j = 1; j < files; j++)
		for (i = 0; i < qps; i++)
			if (rcv_reg(parties[j].domain, numbers[i], parties[j].channel, &registration))
				errx(1, "registration %zu of QP %zu", j, i);
	reg = now_ns() - reg;
	with_all = slab_unreclaimable();
	close_ns = now_ns();
	parties_close(parties, files);
	close_ns = now_ns() - close_ns;
	free(numbers);
	printf("{\"measurement\": \"objects\", \"qps\": %zu, \"files\": %zu, \"alloc_ns\": %" PRIu64
	       ", \"reg_ns\": %" PRIu64 ", \"close_ns\": %" PRIu64
	       ", \"file_bytes\": %ld, \"qp_bytes\": %ld, \"registration_bytes\": %ld, \"left_kib\": %ld}\n",
	       qps, files, alloc / qps, files > 1 ? reg / (qps * (files - 1)) : 0, close_ns,
	       (with_files - before) * 1024 / (long)files, (with_qps - with_files) * 1024 / (long)qps,
	       files > 1 ? (with_all - with_qps) * 1024 / (long)(qps * (files - 1)) : 0,
	       slab_unreclaimable() - before);
}

/* The time of a call: of the first tenth of many, and of the last. */
struct tenths {
	uint64_t first_ns, last_ns;
};

static struct tenths each_of(size_t len, void (*call)(size_t i))
{
	const uint64_t begin = now_ns();
	uint64_t first = begin, last = begin;
	struct tenths tenths;
	size_t i;

	for (i = 0; i < len; i++) {
		if (i == len / 10)
			first = now_ns();
		if (i == len - len / 10)
			last = now_ns();
		call(i);
	}
	tenths.first_ns = (first - begin) / (len / 10);
	tenths.last_ns = (now_ns() - last) / (len / 10);
	return tenths;
}

static struct {
	struct party *creator, *holder;
	struct ib_uverbs_qp_attr to_init;
	uint32_t *numbers;
} shared;

static void alloc_in_init(size_t i)
{
	struct registration registration;

	if (rcv_alloc(shared.creator->domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, &shared.to_init,
		      NO_REGISTRATION, &registration))
		errx(1, "receive QP %zu", i);
	shared.numbers[i] = registration.qp_num;
}

static void reg_on_channel(size_t i)
{
	struct registration registration;

	if (rcv_reg(shared.holder->domain, shared.numbers[i], shared.holder->channel, &registration))
		errx(1, "registration %zu", i);
}

static void to_error(size_t i)
{
	if (rcv_to_state(shared.creator->domain, shared.numbers[i], IBV_QPS_ERR))
		errx(1, "ERR of QP %zu", i);
}

static void from_error_to_error(size_t i)
{
	if (rcv_to_state(shared.creator->domain, shared.numbers[i], IBV_QPS_RESET) ||
	    rcv_modify(shared.creator->domain, shared.numbers[i], &shared.to_init))
		errx(1, "RESET or INIT of QP %zu", i);
	to_error(i);
}

/* Reads as many records. */
static void read_each(size_t len)
{
	struct xrc_rcv_record events[16];
	size_t read_so_far = 0;
	ssize_t found;

	while (read_so_far < len) {
		found = read(shared.holder->channel, events, sizeof(events));
		if (found <= 0 || found % sizeof(*events))
			err(1, "event %zu", read_so_far);
		read_so_far += found / sizeof(*events);
	}
	if (read_so_far != len)
		errx(1, "more events than QPs");
}

/* Fails unless the channel has one event of each QP, in the order in which they happened. */
static void read_all(size_t len)
{
	struct xrc_rcv_record events[16];
	size_t read_so_far = 0;
	ssize_t found, i;

	while (read_so_far < len) {
		found = read(shared.holder->channel, events, sizeof(events));
		if (found <= 0 || found % sizeof(*events))
			err(1, "event %zu", read_so_far);
		for (i = 0; i < found / (ssize_t)sizeof(*events); i++, read_so_far++)
			if (read_so_far == len || events[i].count != 1 ||
			    events[i].qp_num != shared.numbers[read_so_far])
				errx(1, "event %zu is %" PRIu64 " times type %u of QP %u", read_so_far,
				     (uint64_t)events[i].count, events[i].type, events[i].qp_num);
	}
	if (fcntl(shared.holder->channel, F_SETFL, O_NONBLOCK) ||
	    read(shared.holder->channel, events, sizeof(events)) >= 0 || errno != EAGAIN)
		errx(1, "more events than QPs");
}

static void measure_channel(size_t qps)
{
	struct party *parties = parties_open(2, false);
	struct tenths reg, error;
	uint64_t read_ns, close_ns, unregister_ns;
	struct node node;
	long before;

	node_open(&node, "right");
	shared.creator = &parties[0];
	shared.holder = &parties[1];
	shared.to_init = attr_to_init(&node);
	shared.numbers = calloc(qps, sizeof(*shared.numbers));
	shared.holder->channel = rcv_channel(shared.holder->domain);
	if (!shared.numbers || shared.holder->channel < 0)
		errx(1, "event channel");
	each_of(qps, alloc_in_init);
	before = slab_unreclaimable();
	reg = each_of(qps, reg_on_channel);
	before = slab_unreclaimable() - before;
	error = each_of(qps, to_error);
	read_ns = now_ns();
	read_all(qps);
	read_ns = now_ns() - read_ns;
	each_of(qps, from_error_to_error);
	close_ns = now_ns();
	close(shared.holder->channel);
	close_ns = now_ns() - close_ns;
	shared.holder->channel = NO_CHANNEL;
	unregister_ns = now_ns();
	close(shared.holder->domain.uverbs_fd);
	unregister_ns = now_ns() - unregister_ns;
	shared.holder->domain.uverbs_fd = -1;
	parties_close(parties, 2);
	ibv_close_device(node.context);
	free(shared.numbers);
	printf("{\"measurement\": \"channel\", \"qps\": %zu, \"reg_first_ns\": %" PRIu64
	       ", \"reg_last_ns\": %" PRIu64 ", \"error_first_ns\": %" PRIu64
	       ", \"error_last_ns\": %" PRIu64 ", \"read_ns\": %" PRIu64 ", \"close_ns\": %" PRIu64
	       ", \"file_close_ns\": %" PRIu64 ", \"registration_bytes\": %ld}\n",
	       qps, reg.first_ns, reg.last_ns, error.first_ns, error.last_ns, read_ns / qps, close_ns,
	       unregister_ns, before * 1024 / (long)qps);
}

/* ---- costs ---- */

enum { SEND_DEPTH = 16, RECV_DEPTH = 8, COPIES = 2000 };

static struct {
	struct file creator, other;
	int creator_channel, other_channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qps[COPIES], *opened[COPIES];
	struct registration registrations[COPIES], others[COPIES];
	struct path path;
	struct ib_uverbs_qp_attr attr;
} objects;

static void connected(size_t i, struct ibv_qp *qp)
{
	if (!qp)
		err(1, "QP %zu", i);
	qp_connect(&objects.creator.node, qp, &objects.path);
	objects.qps[i] = qp;
}

static void create_rc_with(size_t i, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = objects.cq,
		.recv_cq = objects.cq,
		.srq = srq,
		.cap = { .max_send_wr = SEND_DEPTH, .max_send_sge = 1,
			 .max_recv_wr = srq ? 0 : RECV_DEPTH, .max_recv_sge = srq ? 0 : 1 },
	};

	connected(i, ibv_create_qp(objects.creator.node.pd, &attr));
}

static void create_rc(size_t i)
{
	create_rc_with(i, NULL);
}

static void create_rc_srq(size_t i)
{
	create_rc_with(i, objects.srq);
}

static void create_xrc_send(size_t i)
{
	connected(i, node_create_initiator(&objects.creator.node, objects.cq, SEND_DEPTH));
}

static void create_target(size_t i)
{
	connected(i, node_create_target(&objects.creator.node, objects.creator.xrcd));
}

static void destroy_qp(size_t i)
{
	if (ibv_destroy_qp(objects.qps[i]))
		errx(1, "QP %zu is not destroyed", i);
}

static void open_target(size_t i)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = objects.qps[i]->qp_num,
		.xrcd = objects.other.xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	objects.opened[i] = ibv_open_qp(objects.other.node.context, &attr);
	if (!objects.opened[i])
		err(1, "ibv_open_qp %zu", i);
}

static void close_target(size_t i)
{
	if (ibv_destroy_qp(objects.opened[i]))
		errx(1, "opened QP %zu is not closed", i);
}

static void create_receive(size_t i)
{
	if (rcv_alloc(objects.creator.domain, 0, &objects.attr, objects.creator_channel,
		      &objects.registrations[i]))
		errx(1, "receive QP %zu", i);
}

static void destroy_receive(size_t i)
{
	if (rcv_unreg(&objects.registrations[i]))
		errx(1, "registration %zu", i);
}

static void create_registration(size_t i)
{
	if (rcv_reg(objects.other.domain, objects.registrations[i].qp_num, objects.other_channel,
		    &objects.others[i]))
		errx(1, "registration %zu", i);
}

static void destroy_registration(size_t i)
{
	if (rcv_unreg(&objects.others[i]))
		errx(1, "registration %zu", i);
}

/* The objects that one needs are those of the kind before it. */
static const struct kind {
	const char *name;
	void (*create)(size_t i);
	void (*destroy)(size_t i);
	bool needs_before;
} kinds[] = {
	{ "rc", create_rc, destroy_qp, false },
	{ "rc_srq", create_rc_srq, destroy_qp, false },
	{ "xrc_send", create_xrc_send, destroy_qp, false },
	{ "target", create_target, destroy_qp, false },
	{ "opened", open_target, close_target, true },
	{ "receive", create_receive, destroy_receive, false },
	{ "registration", create_registration, destroy_registration, true },
};

static uint64_t each(void (*action)(size_t i))
{
	const uint64_t begin = now_ns();
	size_t i;

	for (i = 0; i < COPIES; i++)
		action(i);
	return (now_ns() - begin) / COPIES;
}

static void objects_open(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = RECV_DEPTH, .max_sge = 1 } };

	file_open(&objects.creator, "/tmp/scale");
	file_open(&objects.other, "/tmp/scale");
	objects.creator_channel = rcv_channel(objects.creator.domain);
	objects.other_channel = rcv_channel(objects.other.domain);
	if (objects.creator_channel < 0 || objects.other_channel < 0)
		errx(1, "event channels");
	objects.cq = ibv_create_cq(objects.creator.node.context, 16, NULL, NULL, 0);
	objects.srq = ibv_create_srq(objects.creator.node.pd, &srq);
	if (!objects.cq || !objects.srq)
		err(1, "CQ and SRQ");
	objects.path = (struct path){ .gid = objects.creator.node.gid, .lid = objects.creator.node.lid,
				      .qp_num = 0x11, .timeout = 14 };
	objects.attr = attr_connected(&objects.creator.node, &objects.path);
}

static void measure_costs(void)
{
	const char *separator = "";
	const struct kind *kind;
	uint64_t create, destroy;
	long before;

	objects_open();
	printf("{\"measurement\": \"costs\", \"costs\": {");
	for (kind = kinds; kind < kinds + ARRAY_SIZE(kinds); kind++) {
		if (kind->needs_before)
			each(kind[-1].create);
		before = memory_available();
		create = each(kind->create);
		before -= memory_available();
		destroy = each(kind->destroy);
		if (kind->needs_before)
			each(kind[-1].destroy);
		printf("%s\"%s\": {\"create_us\": %.3f, \"destroy_us\": %.3f, \"bytes\": %ld}",
		       separator, kind->name, create / 1e3, destroy / 1e3, before * 1024 / COPIES);
		separator = ", ";
	}
	printf("}}\n");
}

/* ---- registering ---- */

enum { MANY = 64 };

static uint32_t numbers[COPIES];

static int method_reg(size_t first, size_t count)
{
	return rcv_reg_many(objects.other.domain.uverbs_fd, objects.other_channel, numbers + first,
			    count, NULL);
}

static int method_unreg(size_t first, size_t count)
{
	return rcv_unreg_many(objects.other.domain.uverbs_fd, objects.other_channel,
			      numbers + first, count, NULL);
}

static int ioctl_reg(size_t first, size_t count)
{
	return rcv_ioctl_reg(objects.other_channel, numbers + first, count, NULL, NULL);
}

static int ioctl_unreg(size_t first, size_t count)
{
	return rcv_ioctl_unreg(objects.other_channel, numbers + first, count, NULL);
}

/* The time of a registration. */
static uint64_t by_calls(int (*call)(size_t first, size_t count), size_t count)
{
	const size_t all = COPIES / count * count;
	const uint64_t begin = now_ns();
	size_t first;

	for (first = 0; first < all; first += count)
		if (call(first, count))
			errx(1, "registrations from %zu on", first);
	return (now_ns() - begin) / all;
}

static void print_pair(const char *name, uint64_t begin_ns, uint64_t end_ns)
{
	printf(", \"%s\": {\"begin_ns\": %" PRIu64 ", \"end_ns\": %" PRIu64 "}", name, begin_ns, end_ns);
}

static void measure_registering(void)
{
	uint64_t begin;
	size_t i, count;

	objects_open();
	printf("{\"measurement\": \"registering\"");
	each(create_target);
	begin = each(open_target);
	print_pair("mainline", begin, each(close_target));
	each(destroy_qp);
	each(create_receive);
	for (i = 0; i < COPIES; i++)
		numbers[i] = objects.registrations[i].qp_num;
	for (count = 1; count <= MANY; count += MANY - 1) {
		begin = by_calls(method_reg, count);
		print_pair(count == 1 ? "method" : "method_many", begin, by_calls(method_unreg, count));
		begin = by_calls(ioctl_reg, count);
		print_pair(count == 1 ? "ioctl" : "ioctl_many", begin, by_calls(ioctl_unreg, count));
	}
	each(destroy_receive);
	printf("}\n");
}

/* ---- crowd ---- */

static void reg_and_unreg(size_t calls, int ready, int start)
{
	struct registration registration, other;
	struct party party;
	char byte;
	size_t i;

	party_open(&party);
	party.channel = rcv_channel(party.domain);
	if (party.channel < 0 ||
	    rcv_alloc(party.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_REGISTRATION, &other))
		errx(1, "a QP of the crowd");
	/* The director closes the other end when all are ready. */
	if (write(ready, "", 1) != 1 || read(start, &byte, 1))
		err(1, "pipe");
	for (i = 0; i < calls; i++)
		if (rcv_reg(party.domain, other.qp_num, party.channel, &registration) ||
		    rcv_unreg(&registration))
			errx(1, "registration %zu", i);
}

static void measure_crowd(size_t processes, size_t calls)
{
	int start[2], ready[2], status;
	uint64_t begin;
	char byte;
	size_t i;

	if (pipe(start) || pipe(ready))
		err(1, "pipe");
	for (i = 0; i < processes; i++) {
		if (fork())
			continue;
		close(start[1]);
		reg_and_unreg(calls, ready[1], start[0]);
		_exit(0);
	}
	for (i = 0; i < processes; i++)
		if (read(ready[0], &byte, 1) != 1)
			err(1, "pipe");
	begin = now_ns();
	close(start[1]);
	for (i = 0; i < processes; i++)
		if (wait(&status) < 0 || status)
			errx(1, "a process of the crowd");
	printf("{\"measurement\": \"crowd\", \"processes\": %zu, \"calls\": %zu, \"ns\": %" PRIu64 "}\n",
	       processes, calls, now_ns() - begin);
}

/* ---- members ---- */

static void join_all(struct party *party, size_t qps)
{
	(void)qps;
	party->channel = rcv_channel_of(party->domain, XRC_RCV_EVENT_CHANNEL_ALL, NULL, NULL);
	if (party->channel < 0)
		errx(1, "a channel of all");
}

static void join_named(struct party *party, size_t qps)
{
	uint32_t done;

	party->channel = rcv_channel(party->domain);
	if (party->channel < 0 ||
	    rcv_ioctl_reg(party->channel, shared.numbers, qps, NULL, &done) || done != qps)
		errx(1, "a channel with its registrations");
}

/* The time of all members together, of each step. */
static void print_members(const char *name, void (*join)(struct party *party, size_t qps),
			  struct party *parties, size_t members, size_t qps)
{
	uint64_t joined, heard, begin;
	size_t i;

	for (i = 0; i < qps; i++)
		if (rcv_to_state(shared.creator->domain, shared.numbers[i], IBV_QPS_RESET) ||
		    rcv_modify(shared.creator->domain, shared.numbers[i], &shared.to_init))
			errx(1, "RESET or INIT of QP %zu", i);
	begin = now_ns();
	for (i = 0; i < members; i++)
		join(&parties[i], qps);
	joined = now_ns();
	for (i = 0; i < qps; i++)
		to_error(i);
	for (i = 0; i < members; i++) {
		shared.holder = &parties[i];
		read_each(qps);
	}
	heard = now_ns();
	for (i = 0; i < members; i++)
		close(parties[i].channel);
	printf(", \"%s\": {\"join_ns\": %" PRIu64 ", \"events_ns\": %" PRIu64
	       ", \"leave_ns\": %" PRIu64 "}", name, joined - begin, heard - joined, now_ns() - heard);
}

static void measure_members(size_t qps, size_t members)
{
	struct party *parties = parties_open(members + 1, false);
	struct node node;
	size_t i;

	node_open(&node, "right");
	shared.to_init = attr_to_init(&node);
	shared.creator = &parties[members];
	shared.numbers = calloc(qps, sizeof(*shared.numbers));
	if (!shared.numbers)
		err(1, "calloc");
	for (i = 0; i < qps; i++)
		alloc_in_init(i);
	printf("{\"measurement\": \"members\", \"qps\": %zu, \"members\": %zu", qps, members);
	print_members("all", join_all, parties, members, qps);
	print_members("named", join_named, parties, members, qps);
	printf("}\n");
	for (i = 0; i < members; i++)
		parties[i].channel = NO_CHANNEL;
	parties_close(parties, members + 1);
	free(shared.numbers);
	ibv_close_device(node.context);
}

/* ---- teardown ---- */

/* A uverbs file with as many QPs of a kind, and what destroys them. */
struct ending {
	struct file file;
	int channel;
	unsigned int qps;
};

static void end_begin(struct ending *ending, size_t qps)
{
	file_open(&ending->file, "/tmp/teardown");
	ending->channel = NO_REGISTRATION;
	ending->qps = qps;
}

static void create_targets(struct ending *ending)
{
	struct file *file = &ending->file;
	size_t i;

	for (i = 0; i < ending->qps; i++)
		qp_connect(&file->node, node_create_target(&file->node, file->xrcd), &objects.path);
}

static void alloc_qps(struct ending *ending, uint32_t flags)
{
	struct registration registration;
	size_t i;

	for (i = 0; i < ending->qps; i++)
		if (rcv_alloc(ending->file.domain, flags, &objects.attr, ending->channel, &registration))
			errx(1, "receive QP %zu", i);
}

static void alloc_lasting(struct ending *ending)
{
	alloc_qps(ending, XRC_RCV_ALLOC_LIFETIME_DOMAIN);
}

static void alloc_registered(struct ending *ending)
{
	ending->channel = rcv_channel(ending->file.domain);
	if (ending->channel < 0)
		errx(1, "an event channel");
	alloc_qps(ending, 0);
}

static void end_domain(struct ending *ending)
{
	if (ibv_close_xrcd(ending->file.xrcd))
		errx(1, "the domain is not closed");
}

/* The exit of a process closes it so. */
static void end_file(struct ending *ending)
{
	if (close(ending->file.node.context->cmd_fd))
		err(1, "a uverbs file");
}

/* The context stays: libibverbs would close a descriptor again. */
static void end_done(struct ending *ending)
{
	if (ending->channel >= 0)
		close(ending->channel);
	close(ending->file.node.context->async_fd);
}

static const struct way {
	const char *name;
	void (*create)(struct ending *ending);
	void (*end)(struct ending *ending);
} ways[] = {
	{ "mainline_ns", create_targets, end_file },
	{ "domain_ns", alloc_lasting, end_domain },
	{ "file_ns", alloc_registered, end_file },
};

static void measure_teardown(size_t qps, size_t rounds)
{
	const struct way *way;
	struct ending ending;
	uint64_t begin;

	objects_open();
	for (; rounds; rounds--) {
		printf("{\"measurement\": \"teardown\", \"qps\": %zu", qps);
		for (way = ways; way < ways + ARRAY_SIZE(ways); way++) {
			end_begin(&ending, qps);
			way->create(&ending);
			begin = now_ns();
			way->end(&ending);
			printf(", \"%s\": %" PRIu64, way->name, now_ns() - begin);
			end_done(&ending);
			if (way->end == end_domain)
				end_file(&ending);
		}
		printf("}\n");
	}
}

/* ---- profile ---- */

enum { READERS = 10000 };

static void query_caps(size_t i)
{
	struct xrc_rcv_caps caps;

	(void)i;
	if (rcv_caps(objects.other.domain.uverbs_fd, &caps))
		errx(1, "QUERY_CAPS");
}

static void create_lasting(size_t i)
{
	if (rcv_alloc(objects.creator.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, &objects.attr, NO_CHANNEL,
		      &objects.registrations[i]))
		errx(1, "receive QP %zu", i);
	destroy_receive(i);
}

static void close_domain(void)
{
	if (ibv_close_xrcd(objects.creator.xrcd))
		errx(1, "the domain is not closed");
}

static void print_section(unsigned int section, const char *name, unsigned int calls)
{
	printf("{\"section\": %u, \"name\": \"%s\", \"calls\": %u}\n", section, name, calls);
}

#define PROFILED_CALLS(section, name, calls, action) do {	\
		PROFILE(section);				\
		action;						\
		PROFILE(0);					\
		print_section(section, name, calls);		\
	} while (0)

#define PROFILED(section, name, action) PROFILED_CALLS(section, name, COPIES, action)

/* Without the first round, in which caches are filled. */
static void measure_profile(void)
{
	struct ending ending;
	size_t i;

	objects_open();
	each(create_receive);
	each(create_registration);
	each(destroy_registration);
	each(destroy_receive);
	each(create_target);
	each(open_target);
	each(close_target);
	each(destroy_qp);
	PROFILED(SECTION_ALLOC, "ALLOC to RTR", each(create_receive));
	PROFILED(SECTION_REG, "REG", each(create_registration));
	PROFILED(SECTION_UNREG, "UNREG", each(destroy_registration));
	for (i = 0; i < COPIES; i++)
		numbers[i] = objects.registrations[i].qp_num;
	by_calls(ioctl_reg, MANY);
	by_calls(ioctl_unreg, MANY);
	PROFILED_CALLS(SECTION_REG_MANY, "REG, of 64", COPIES / MANY * MANY, by_calls(ioctl_reg, MANY));
	PROFILED_CALLS(SECTION_UNREG_MANY, "UNREG, of 64", COPIES / MANY * MANY,
		       by_calls(ioctl_unreg, MANY));
	each(destroy_receive);
	PROFILED(SECTION_CREATE, "create, two modifies", each(create_target));
	PROFILED(SECTION_OPEN, "ibv_open_qp()", each(open_target));
	PROFILED(SECTION_CLOSE, "ibv_destroy_qp(), opened", each(close_target));
	PROFILED(SECTION_DESTROY, "ibv_destroy_qp()", each(destroy_qp));
	PROFILED(SECTION_CAPS, "QUERY_CAPS", each(query_caps));
	close(objects.other_channel);
	if (file_close(&objects.other))
		errx(1, "the other file is not closed");
	each(create_lasting);
	PROFILED(SECTION_TEARDOWN, "close of the domain", close_domain());
	end_begin(&ending, COPIES);
	alloc_registered(&ending);
	PROFILED(SECTION_EXIT, "close of a file", end_file(&ending));
	end_begin(&ending, COPIES);
	create_targets(&ending);
	PROFILED(SECTION_EXIT_TARGETS, "close, mainline's QPs", end_file(&ending));
	measure_readers(READERS);
	print_section(SECTION_EVENT, "event", READERS);
	print_section(SECTION_EVENTFD, "eventfd", READERS);
}

/* The text of the module, from the first of its functions to the last. */
static void find_text(void)
{
	FILE *symbols = fopen("/proc/kallsyms", "re");
	unsigned long address;
	char line[512], type;

	if (!symbols)
		err(1, "/proc/kallsyms");
	while (fgets(line, sizeof(line), symbols)) {
		if (!strstr(line, "[ib_xrc_rcv]") || sscanf(line, "%lx %c", &address, &type) != 2 ||
		    !strchr("tT", type))
			continue;
		if (!text.begin || address < text.begin)
			text.begin = address;
		if (address > text.end)
			text.end = address;
	}
	fclose(symbols);
}

int main(int argc, char **argv)
{
	static const struct rlimit files = { 1 << 20, 1 << 20 };
	char link[64];
	struct node node;
	int i;

	if (argc < 3 || setrlimit(RLIMIT_NOFILE, &files))
		errx(1, "usage: scale FILE readers N… | objects QPS FILES | channel QPS | teardown QPS ROUNDS | costs | registering | crowd PROCESSES CALLS | members QPS MEMBERS | profile");
	find_text();
	domain_fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	node_open(&node, "right");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", node.context->cmd_fd);
	if (domain_fd < 0 || readlink(link, uverbs_path, sizeof(uverbs_path) - 1) < 0)
		err(1, "%s", argv[1]);
	ibv_close_device(node.context);
	if (!strcmp(argv[2], "readers"))
		for (i = 3; i < argc; i++)
			measure_readers(strtoul(argv[i], NULL, 0));
	else if (!strcmp(argv[2], "costs"))
		measure_costs();
	else if (!strcmp(argv[2], "registering"))
		measure_registering();
	else if (!strcmp(argv[2], "crowd") && argc == 5)
		measure_crowd(strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	else if (!strcmp(argv[2], "members") && argc == 5)
		measure_members(strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	else if (!strcmp(argv[2], "profile"))
		measure_profile();
	else if (!strcmp(argv[2], "channel") && argc == 4)
		measure_channel(strtoul(argv[3], NULL, 0));
	else if (!strcmp(argv[2], "teardown") && argc == 5)
		measure_teardown(strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	else if (argc == 5)
		measure_objects(strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	return 0;
}
