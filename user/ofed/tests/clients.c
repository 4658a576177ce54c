// SPDX-License-Identifier: GPL-2.0
/*
 * The XRC calls of OFED 1.5 in the order in which GASNet, Open MPI and
 * MVAPICH2 make them, with real processes, their races, and a real sender.
 *
 * usage: clients DEVICE [SCENARIO]
 *
 * Runs the scenarios whose description begins with SCENARIO, or all.
 *
 * Every scenario is a node: a few receiving processes that share a domain by a
 * file, and a sender, on the same device. A process writes a
 * failed check as a diagnostic and exits with failure, and so does the
 * scenario.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "ofed_node.h"

#define RECEIVERS 4

static const char *device;
static char domain_file[] = "/tmp/ofed-clients.XXXXXX";

/* Messages between the processes of a scenario. */
static struct shared {
	pthread_barrier_t all;
	atomic_uint rcv_qpn;
	atomic_uint sender_qpn;
	atomic_uint srq_num[RECEIVERS];
	atomic_int received[RECEIVERS];
	atomic_int step;
} *shared;

/* Ends a process that finds something else than it expects, and says what it found. */
#define CHECK(condition, ...) \
	ktap_check(condition, ({ ktap_note(" " __VA_ARGS__); exit(1); }))

static void barrier(void)
{
	pthread_barrier_wait(&shared->all);
}

static void reach(int step)
{
	atomic_store(&shared->step, step);
}

static void await(int step)
{
	int i;

	for (i = 0; atomic_load(&shared->step) < step; i++) {
		CHECK(i < PATIENCE_MS, "waited for step %d", step);
		usleep(1000);
	}
}

static struct ibv_xrc_domain *open_domain(struct node *node, int flags)
{
	struct ibv_xrc_domain *domain;
	int fd = open(domain_file, flags, 0600);

	CHECK(fd >= 0, "%s", strerror(errno));
	domain = ibv_open_xrc_domain(node->context, fd, O_CREAT);
	CHECK(domain, "%s", strerror(errno));
	close(fd);
	return domain;
}

static uint32_t create(struct ibv_xrc_domain *domain)
{
	struct ibv_qp_init_attr attr;
	uint32_t qpn;
	int ret;

	/* Programs set nothing else. */
	memset(&attr, 0xa5, sizeof(attr));
	attr.xrc_domain = domain;
	ret = ibv_create_xrc_rcv_qp(&attr, &qpn);
	CHECK(!ret, "%s", strerror(ret));
	return qpn;
}

static enum ibv_qp_state state(struct ibv_xrc_domain *domain, uint32_t qpn)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int ret = ibv_query_xrc_rcv_qp(domain, qpn, &attr, IBV_QP_STATE,
				       &init_attr);

	CHECK(!ret, "%s", strerror(ret));
	return attr.qp_state;
}

/* The sending process: connects to the receive QP, then follows its orders. */
static struct ibv_qp *connect_sender(struct node *node,
				     struct ibv_xrc_domain *domain)
{
	struct connection c = { .qp = node_sender(node, domain) };

	CHECK(c.qp, "%s", strerror(errno));
	atomic_store(&shared->sender_qpn, c.qp->qp_num);
	barrier();	/* its number is known */
	barrier();	/* the receive QP is in RTR */
	c.peer = shared->rcv_qpn;
	CHECK(!to_init(node, &c));
	CHECK(!to_rtr(node, &c));
	CHECK(!to_rts(node, &c));
	return c.qp;
}

static void expect_message(struct node *node, struct ibv_srq *srq, int me)
{
	struct ibv_wc wc;

	CHECK(completion(node, &wc));
	CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	CHECK(!post_receive(node, srq));
	shared->received[me]++;
}

/* Everything is there, but late processes do not know it: that is no error. */
static void modify_together(struct node *node, struct connection *c,
			    int (*to)(struct node *, struct connection *),
			    enum ibv_qp_state goal)
{
	int ret = to(node, c);

	if (ret) {
		CHECK(ret == EINVAL, "%s", strerror(ret));
		CHECK(state(c->domain, c->rcv_qpn) >= goal);
	}
}

/* ---- GASNet: the winner creates, the others register, all modify ---- */

static void gasnet(int me)
{
	struct ibv_xrc_domain *domain;
	struct connection c = { 0 };
	struct node node;
	struct ibv_srq *srq;
	uint32_t none = 0;

	node_open(&node, device);
	domain = open_domain(&node, O_CREAT | O_RDONLY);
	c.domain = domain;
	srq = node_srq(&node, domain);
	CHECK(srq, "%s", strerror(errno));
	shared->srq_num[me] = srq->xrc_srq_num;
	barrier();
	if (me == 0)
		unlink(domain_file);

	/* 1 is no QP: it marks that creation is in progress. */
	if (atomic_compare_exchange_strong(&shared->rcv_qpn, &none, 1)) {
		atomic_store(&shared->rcv_qpn, create(domain));
	} else {
		int ret;

		while (atomic_load(&shared->rcv_qpn) == 1)
			usleep(100);
		ret = ibv_reg_xrc_rcv_qp(domain, shared->rcv_qpn);
		CHECK(!ret, "%s", strerror(ret));
	}
	c.rcv_qpn = shared->rcv_qpn;
	c.peer = shared->sender_qpn;
	modify_together(&node, &c, to_init, IBV_QPS_INIT);
	modify_together(&node, &c, to_rtr, IBV_QPS_RTR);
	barrier();

	expect_message(&node, srq, me);
	await(1);	/* one of us was killed */
	expect_message(&node, srq, me);
	/* No unregistering, no closing: that is how it ends. */
	exit(0);
}

static void gasnet_sender(pid_t *pids)
{
	struct ibv_xrc_domain *domain;
	struct node node;
	struct ibv_qp *qp;
	int i, status;

	node_open(&node, device);
	domain = open_domain(&node, O_CREAT | O_RDONLY);
	qp = connect_sender(&node, domain);
	for (i = 0; i < RECEIVERS; i++)
		CHECK(!send_to(&node, qp, shared->srq_num[i]), "to %d", i);
	while (!shared->received[0])
		usleep(1000);
	kill(pids[0], SIGKILL);
	waitpid(pids[0], &status, 0);
	reach(1);
	for (i = 1; i < RECEIVERS; i++) {
		CHECK(!send_to(&node, qp, shared->srq_num[i]), "to %d", i);
		waitpid(pids[i], &status, 0);
		CHECK(status == 0, "receiver %d", i);
	}
	/* The last one took the QP with it. */
	CHECK(ibv_reg_xrc_rcv_qp(domain, shared->rcv_qpn) == EINVAL);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_close_xrc_domain(domain));
}

/* ---- Open MPI: one creates, an event thread polls async_fd ---- */

/* A receive QP that stays in RTR says so when the first message arrives. */
#define ESTABLISHED (IBV_EVENT_COMM_EST | IBV_XRC_QP_EVENT_FLAG)

enum waiting { POLL, SELECT, EPOLL, BLOCK, PPOLL, PSELECT, WAYS };

static void wait_readable(struct node *node, enum waiting how)
{
	struct pollfd fd = { .fd = node->context->async_fd, .events = POLLIN };
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 7 };
	struct timespec seconds = { .tv_sec = PATIENCE_MS / 1000 };
	struct timeval timeout = { .tv_sec = PATIENCE_MS / 1000 };
	fd_set set;
	int epoll;

	switch (how) {
	case POLL:
		CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN);
		break;
	case PPOLL:
		CHECK(ppoll(&fd, 1, &seconds, NULL) == 1 && fd.revents == POLLIN);
		break;
	case PSELECT:
		FD_ZERO(&set);
		FD_SET(fd.fd, &set);
		CHECK(pselect(fd.fd + 1, &set, NULL, NULL, &seconds, NULL) == 1);
		CHECK(FD_ISSET(fd.fd, &set));
		break;
	case SELECT:
		FD_ZERO(&set);
		FD_SET(fd.fd, &set);
		CHECK(select(fd.fd + 1, &set, NULL, NULL, &timeout) == 1);
		CHECK(FD_ISSET(fd.fd, &set));
		break;
	case EPOLL:
		epoll = epoll_create1(0);
		CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd.fd, &event));
		event.data.u32 = 0;
		CHECK(epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1);
		CHECK(event.data.u32 == 7);
		CHECK(!epoll_ctl(epoll, EPOLL_CTL_DEL, fd.fd, NULL));
		close(epoll);
		break;
	default:	/* BLOCK: ibv_get_async_event() waits */
		break;
	}
}

/* Returns the number of COMM_EST events that it read before. */
static int expect_event(struct node *node, enum waiting how,
			enum ibv_event_type type)
{
	struct ibv_async_event event;
	int established = -1;

	do {
		established++;
		wait_readable(node, how);
		CHECK(!ibv_get_async_event(node->context, &event), "%s",
		      strerror(errno));
		CHECK(event.event_type & IBV_XRC_QP_EVENT_FLAG);
		CHECK(event.element.xrc_qp_num == shared->rcv_qpn);
		ibv_ack_async_event(&event);
	} while (event.event_type == ESTABLISHED);
	CHECK(event.event_type == (type | IBV_XRC_QP_EVENT_FLAG), "%#x",
	      event.event_type);
	return established;
}

/* As in the migration of a path: the answer to an empty mask is used. */
static void use_query(struct node *node, struct ibv_xrc_domain *domain)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;

	memset(&attr, 0xa5, sizeof(attr));
	CHECK(!ibv_query_xrc_rcv_qp(domain, shared->rcv_qpn, &attr, 0,
				    &init_attr));
	CHECK(attr.qp_state == IBV_QPS_RTR);
	CHECK(attr.port_num == 1 && attr.pkey_index == 0);
	CHECK(attr.ah_attr.port_num == 1);
	CHECK(attr.ah_attr.is_global == node->by_gid);
	CHECK(!node->by_gid || !memcmp(&attr.ah_attr.grh.dgid, &node->gid, 16));
	CHECK(attr.cap.max_recv_wr == 0 && attr.cap.max_send_wr == 0);
	CHECK(init_attr.xrc_domain == domain);
}

static void openmpi(int me)
{
	struct ibv_xrc_domain *domain, *other;
	struct connection c = { 0 };
	struct ibv_async_event event;
	struct node node;
	struct ibv_srq *srq;
	int ret, i;

	node_open(&node, device);
	domain = open_domain(&node, O_CREAT);
	other = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	CHECK(other, "%s", strerror(errno));
	srq = node_srq(&node, domain);
	CHECK(srq, "%s", strerror(errno));
	shared->srq_num[me] = srq->xrc_srq_num;
	barrier();
	if (me == 0) {
		c.domain = domain;
		c.peer = shared->sender_qpn;
		c.rcv_qpn = create(domain);
		CHECK(!to_init(&node, &c));
		CHECK(!to_rtr(&node, &c));
		atomic_store(&shared->rcv_qpn, c.rcv_qpn);
		reach(1);
	}
	await(1);
	/* A number that is dead or foreign has to fail, for a new QP to be made. */
	CHECK(ibv_reg_xrc_rcv_qp(domain, 0xfffffe) == EINVAL);
	CHECK(ibv_reg_xrc_rcv_qp(other, shared->rcv_qpn) == EINVAL);
	for (i = 0; i < 3; i++) {
		ret = ibv_reg_xrc_rcv_qp(domain, shared->rcv_qpn);
		CHECK(!ret, "%s", strerror(ret));
	}
	use_query(&node, domain);
	barrier();

	expect_message(&node, srq, me);
	reach(2);
	/*
	 * The sender causes an error, and each process gets its event in its own way. OFED had
	 * no event masks: the layer asks for all events, communication established included.
	 */
	CHECK(expect_event(&node, 2 * me % WAYS, IBV_EVENT_QP_ACCESS_ERR) > 0);
	expect_event(&node, (2 * me + 1) % WAYS, IBV_EVENT_QP_LAST_WQE_REACHED);
	fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK);
	CHECK(ibv_get_async_event(node.context, &event) && errno == EAGAIN);

	CHECK(!ibv_close_xrc_domain(other));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(ibv_close_xrc_domain(domain) == EBUSY);
	CHECK(ibv_unreg_xrc_rcv_qp(domain, shared->rcv_qpn) == 0);
	CHECK(ibv_unreg_xrc_rcv_qp(domain, shared->rcv_qpn) == EINVAL);
	CHECK(!ibv_close_xrc_domain(domain));
	CHECK(!ibv_dereg_mr(node.mr) && !ibv_destroy_cq(node.cq) &&
	      !ibv_dealloc_pd(node.pd));
	CHECK(!ibv_close_device(node.context));
	exit(0);
}

static void openmpi_sender(pid_t *pids)
{
	struct ibv_xrc_domain *domain;
	struct node node;
	struct ibv_qp *qp;
	int i, status;

	node_open(&node, device);
	domain = open_domain(&node, O_CREAT);
	qp = connect_sender(&node, domain);
	for (i = 0; i < RECEIVERS; i++)
		CHECK(!send_to(&node, qp, shared->srq_num[i]), "to %d", i);
	for (i = 0; i < RECEIVERS; i++)
		while (!shared->received[i])
			usleep(1000);
	CHECK(write_wildly(&node, qp, shared->srq_num[0]) ==
	      IBV_WC_REM_ACCESS_ERR);
	for (i = 0; i < RECEIVERS; i++) {
		waitpid(pids[i], &status, 0);
		CHECK(status == 0, "receiver %d", i);
	}
	CHECK(ibv_reg_xrc_rcv_qp(domain, shared->rcv_qpn) == EINVAL);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_close_xrc_domain(domain));
	unlink(domain_file);
}

/* ---- MVAPICH2: functions from dlsym(), a blocked thread that is cancelled ---- */

static struct {
	int (*reg)(struct ibv_xrc_domain *domain, uint32_t qpn);
	int (*unreg)(struct ibv_xrc_domain *domain, uint32_t qpn);
	int (*get)(struct ibv_context *context, struct ibv_async_event *event);
	int (*close)(struct ibv_xrc_domain *domain);
} verbs;

static void look_up(void)
{
	void *handle = dlopen(NULL, RTLD_NOW);

	CHECK(handle, "%s", dlerror());
	verbs.reg = dlsym(handle, "ibv_reg_xrc_rcv_qp");
	verbs.unreg = dlsym(handle, "ibv_unreg_xrc_rcv_qp");
	verbs.get = dlsym(handle, "ibv_get_async_event");
	verbs.close = dlsym(handle, "ibv_close_xrc_domain");
	CHECK(verbs.reg && verbs.unreg && verbs.get && verbs.close);
	/* The same functions that a plain call reaches. */
	CHECK(verbs.reg == ibv_reg_xrc_rcv_qp);
	CHECK(verbs.get == ibv_get_async_event);
}

static _Atomic int thread_events;

static void *event_thread(void *context)
{
	struct ibv_async_event event;

	for (;;) {
		CHECK(!verbs.get(context, &event));
		CHECK(event.event_type & IBV_XRC_QP_EVENT_FLAG);
		CHECK(event.element.xrc_qp_num == shared->rcv_qpn);
		ibv_ack_async_event(&event);
		if (event.event_type != ESTABLISHED)
			thread_events++;
	}
	return NULL;
}

static void mvapich2(int me)
{
	struct ibv_xrc_domain *domain;
	struct connection c = { 0 };
	struct node node;
	struct ibv_srq *srq;
	pthread_t thread;
	void *result;
	int i;

	look_up();
	node_open(&node, device);
	CHECK(!pthread_create(&thread, NULL, event_thread, node.context));
	domain = open_domain(&node, O_CREAT | O_RDWR);
	srq = node_srq(&node, domain);
	CHECK(srq, "%s", strerror(errno));
	shared->srq_num[me] = srq->xrc_srq_num;
	barrier();
	if (me == 0) {
		unlink(domain_file);
		c.domain = domain;
		c.peer = shared->sender_qpn;
		c.rcv_qpn = create(domain);
		CHECK(!to_init(&node, &c));
		CHECK(!to_rtr(&node, &c));
		atomic_store(&shared->rcv_qpn, c.rcv_qpn);
		reach(1);
	} else {
		await(1);
		CHECK(!verbs.reg(domain, shared->rcv_qpn));
	}
	barrier();

	expect_message(&node, srq, me);
	for (i = 0; thread_events < 2; i++) {
		CHECK(i < PATIENCE_MS, "%d events", thread_events);
		usleep(1000);
	}
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	/* A failure here would abort the whole job. */
	CHECK(!verbs.unreg(domain, shared->rcv_qpn));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!verbs.close(domain));
	CHECK(!ibv_dereg_mr(node.mr) && !ibv_destroy_cq(node.cq) &&
	      !ibv_dealloc_pd(node.pd));
	CHECK(!ibv_close_device(node.context));
	exit(0);
}

/* ---- rdma_bw moves to RTS, librdmacm's XRC to SQD and ERR, Open MPI migrates ---- */

static void all_states(void)
{
	bool drains = strncmp(device, "mlx5_", strlen("mlx5_"));
	struct connection c = { .peer = 0x123 };
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	struct node node;
	int ret;

	node_open(&node, device);
	c.domain = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	CHECK(c.domain, "%s", strerror(errno));
	c.rcv_qpn = create(c.domain);
	CHECK(!to_init(&node, &c) && !to_rtr(&node, &c));

	/* Open MPI takes unchanged attributes from the answer. */
	CHECK(!ibv_query_xrc_rcv_qp(c.domain, c.rcv_qpn, &attr, 0, &init_attr));
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_ah_attr.port_num = 0;	/* alt_port_num has it */
	attr.alt_port_num = attr.port_num;
	attr.alt_pkey_index = attr.pkey_index;
	attr.alt_timeout = 14;
	attr.path_mig_state = IBV_MIG_REARM;
	ret = ibv_modify_xrc_rcv_qp(c.domain, c.rcv_qpn, &attr,
				    IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
	CHECK(ret == EINVAL, "%s", strerror(ret));	/* it ignores that */
	CHECK(state(c.domain, c.rcv_qpn) == IBV_QPS_RTR);

	ret = to_rts(&node, &c);
	CHECK(!ret, "%s", strerror(ret));
	CHECK(state(c.domain, c.rcv_qpn) == IBV_QPS_RTS);
	ret = ibv_modify_xrc_rcv_qp(c.domain, c.rcv_qpn, &attr,
				    IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
	/* The core allows that on InfiniBand only. */
	CHECK(ret == (node.by_gid ? EINVAL : 0), "%s", strerror(ret));
	CHECK(!ibv_query_xrc_rcv_qp(c.domain, c.rcv_qpn, &attr, 0, &init_attr));
	CHECK(node.by_gid || (attr.alt_port_num == 1 &&
			      attr.alt_ah_attr.dlid == node.lid));

	attr.qp_state = IBV_QPS_SQD;
	ret = ibv_modify_xrc_rcv_qp(c.domain, c.rcv_qpn, &attr, IBV_QP_STATE);
	/* mlx5_ib has no command for that. */
	CHECK(ret == (drains ? 0 : EINVAL), "%s", strerror(ret));
	CHECK(state(c.domain, c.rcv_qpn) == (drains ? IBV_QPS_SQD : IBV_QPS_RTS));
	attr.qp_state = IBV_QPS_ERR;
	CHECK(!ibv_modify_xrc_rcv_qp(c.domain, c.rcv_qpn, &attr, IBV_QP_STATE));
	CHECK(state(c.domain, c.rcv_qpn) == IBV_QPS_ERR);
	CHECK(!ibv_unreg_xrc_rcv_qp(c.domain, c.rcv_qpn));
	CHECK(!ibv_close_xrc_domain(c.domain));
}

/* ---- The last one leaves while others register ---- */

enum { RACES = 100 };

static void latecomer(int me)
{
	struct ibv_xrc_domain *domain;
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	struct node node;
	uint32_t qpn;
	int i, ret;

	node_open(&node, device);
	domain = open_domain(&node, O_CREAT);
	for (i = 0; i < RACES; i++) {
		if (me == 0)
			shared->rcv_qpn = create(domain);
		barrier();
		qpn = shared->rcv_qpn;
		ret = me ? ibv_reg_xrc_rcv_qp(domain, qpn) : 0;
		CHECK(!ret || ret == EINVAL, "%s", strerror(ret));
		if (!ret) {
			/* A process that is registered has the QP. */
			shared->received[me]++;
			CHECK(!ibv_query_xrc_rcv_qp(domain, qpn, &attr, 0, &init_attr));
			CHECK(!ibv_unreg_xrc_rcv_qp(domain, qpn));
		}
		barrier();
		/* A dead number, for which Open MPI makes a new QP. */
		CHECK(ibv_reg_xrc_rcv_qp(domain, qpn) == EINVAL);
		barrier();
	}
	CHECK(!ibv_close_xrc_domain(domain));
	exit(0);
}

static void race_watcher(pid_t *pids)
{
	int i, status, late = 0;

	for (i = 0; i < 3 * RACES; i++)
		barrier();
	for (i = 0; i < RECEIVERS; i++) {
		waitpid(pids[i], &status, 0);
		CHECK(status == 0, "process %d", i);
		late += i ? shared->received[i] : 0;
	}
	printf("# %d of %d registrations beside the last one's leaving were in time\n",
	       late, RACES * (RECEIVERS - 1));
}

/* ---- Children share the objects that were open when they were forked ---- */

static void forked(void)
{
	struct ibv_xrc_domain *domain;
	struct node node;
	uint32_t qpn;
	int i, status;
	pid_t pid;

	node_open(&node, device);
	domain = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	CHECK(domain, "%s", strerror(errno));
	qpn = create(domain);
	for (i = 0; i < 2; i++) {
		pid = fork();
		if (!pid) {
			/* The one open device is registered already. */
			CHECK(!ibv_reg_xrc_rcv_qp(domain, qpn));
			CHECK(i == 0 || !ibv_unreg_xrc_rcv_qp(domain, qpn));
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		/* The end of the first child ends nothing; the second gave it up. */
		CHECK(ibv_reg_xrc_rcv_qp(domain, qpn) == (i ? EINVAL : 0));
	}
	CHECK(ibv_unreg_xrc_rcv_qp(domain, qpn) == EINVAL);
	CHECK(!ibv_close_xrc_domain(domain));
}

/* ---- A domain's file that is opened twice is one domain ---- */

static void opened_twice(void)
{
	struct ibv_xrc_domain *domain[2], *other;
	struct node node;
	uint32_t qpn;
	int i;

	node_open(&node, device);
	for (i = 0; i < 2; i++)
		domain[i] = open_domain(&node, 0);
	other = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	CHECK(other, "%s", strerror(errno));
	qpn = create(domain[0]);
	CHECK(!ibv_reg_xrc_rcv_qp(domain[1], qpn));
	CHECK(ibv_unreg_xrc_rcv_qp(other, qpn) == EINVAL);
	CHECK(ibv_close_xrc_domain(domain[0]) == EBUSY);
	CHECK(!ibv_unreg_xrc_rcv_qp(domain[1], qpn));
	/* It was the only registration. */
	CHECK(ibv_reg_xrc_rcv_qp(domain[0], qpn) == EINVAL);
	for (i = 0; i < 2; i++)
		CHECK(!ibv_close_xrc_domain(domain[i]));
	CHECK(!ibv_close_xrc_domain(other));
}

/* ---- The first proposal: one call, a QP as long-lived as its domain ---- */

static void first_proposal(void)
{
	struct ibv_xrc_domain *domain;
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.port_num = 1,
	};
	int mask = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN | IBV_QP_MIN_RNR_TIMER;
	struct node node;
	uint32_t qpn;
	int ret;

	node_open(&node, device);
	domain = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	CHECK(domain, "%s", strerror(errno));
	attr.ah_attr = (struct ibv_ah_attr){
		.dlid = node.lid,
		.port_num = 1,
		.is_global = node.by_gid,
		.grh = {
			.dgid = node.gid,
			.sgid_index = node.gid_index,
			.hop_limit = 64,
		},
	};
	attr.dest_qp_num = 0x123;
	CHECK(ibv_alloc_xrc_rcv_qp(node.pd, domain, &attr,
				   mask & ~IBV_QP_AV, &qpn) == EINVAL);
	ret = ibv_alloc_xrc_rcv_qp(node.pd, domain, &attr, mask, &qpn);
	CHECK(!ret, "%s", strerror(ret));
	CHECK(state(domain, qpn) == IBV_QPS_RTR);
	/* It outlives registrations, and does not keep the domain open. */
	CHECK(!ibv_reg_xrc_rcv_qp(domain, qpn));
	CHECK(!ibv_unreg_xrc_rcv_qp(domain, qpn));
	CHECK(state(domain, qpn) == IBV_QPS_RTR);
	CHECK(!ibv_close_xrc_domain(domain));
}

/* As Open MPI does: the port of the alternate path is in alt_port_num alone. */
static void load_path(struct node *node, struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int ret;

	CHECK(!ibv_query_qp(qp, &attr, 0, &init_attr));
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_ah_attr.port_num = 0;
	attr.alt_port_num = attr.port_num;
	attr.alt_pkey_index = attr.pkey_index;
	attr.alt_timeout = attr.timeout;
	attr.path_mig_state = IBV_MIG_REARM;
	ret = ibv_modify_qp(qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
	/* The core allows that on InfiniBand only. */
	CHECK(ret == (node->by_gid ? EINVAL : 0), "%s", strerror(ret));
	CHECK(!ibv_query_qp(qp, &attr, 0, &init_attr));
	CHECK(node->by_gid || (attr.alt_port_num == 1 &&
			       attr.alt_ah_attr.dlid == node->lid));
}

/* ---- Two QPs that both send and receive ---- */

static void connect_both_ways(struct node *node, struct ibv_srq **srq,
			      struct connection *c)
{
	struct ibv_xrc_domain *domain;
	int i;

	for (i = 0; i < 2; i++) {
		node_open(&node[i], device);
		domain = ibv_open_xrc_domain(node[i].context, -1, O_CREAT);
		CHECK(domain, "%s", strerror(errno));
		srq[i] = node_srq(&node[i], domain);
		c[i].qp = node_sender(&node[i], domain);
		CHECK(srq[i] && c[i].qp, "%s", strerror(errno));
		c[i].domain = domain;
		CHECK(!to_init(&node[i], &c[i]));
	}
	for (i = 0; i < 2; i++) {
		c[i].peer = c[!i].qp->qp_num;
		CHECK(!to_rtr(&node[i], &c[i]));
		CHECK(!to_rts(&node[i], &c[i]));
	}
}

static void both_ways(void)
{
	struct connection c[2] = { 0 };
	struct node node[2];
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	struct ibv_srq *srq[2];
	struct ibv_wc wc;
	int i;

	connect_both_ways(node, srq, c);
	for (i = 0; i < 2; i++) {
		CHECK(!ibv_query_qp(c[i].qp, &attr, IBV_QP_STATE, &init_attr));
		CHECK(attr.qp_state == IBV_QPS_RTS);
		CHECK(init_attr.qp_type == IBV_QPT_XRC);
		CHECK(init_attr.xrc_domain == c[i].domain);
		load_path(&node[i], c[i].qp);
	}
	for (i = 0; i < 2; i++) {
		CHECK(!send_to(&node[i], c[i].qp, srq[!i]->xrc_srq_num));
		CHECK(completion(&node[!i], &wc) && !wc.status);
	}
	for (i = 0; i < 2; i++) {
		CHECK(ibv_close_xrc_domain(c[i].domain) == EBUSY);
		CHECK(!ibv_destroy_qp(c[i].qp));
		CHECK(ibv_close_xrc_domain(c[i].domain) == EBUSY);
		CHECK(!ibv_destroy_srq(srq[i]));
		CHECK(!ibv_close_xrc_domain(c[i].domain));
	}
}

/* Acknowledges an event while the QP is being destroyed. */
struct late_ack {
	struct ibv_async_event event;
	atomic_bool acknowledged;
};

static void *acknowledge_late(void *arg)
{
	struct late_ack *late = arg;

	usleep(500 * 1000);
	late->acknowledged = true;
	ibv_ack_async_event(&late->event);
	return NULL;
}

static void destroyed_when_acknowledged(void)
{
	struct connection c[2] = { 0 };
	struct late_ack late = { 0 };
	struct node node[2];
	struct ibv_srq *srq[2];
	pthread_t thread;

	connect_both_ways(node, srq, c);
	CHECK(write_wildly(&node[0], c[0].qp, srq[1]->xrc_srq_num) ==
	      IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_get_async_event(node[1].context, &late.event));
	CHECK(late.event.event_type == IBV_EVENT_QP_ACCESS_ERR, "%d",
	      late.event.event_type);
	/* It is an event of the pair's target, which the program has no pointer to. */
	CHECK(late.event.element.qp == c[1].qp);
	CHECK(!pthread_create(&thread, NULL, acknowledge_late, &late));
	CHECK(!ibv_destroy_qp(c[1].qp));
	CHECK(late.acknowledged);
	CHECK(!pthread_join(thread, NULL));
}

/* ---- A QP that only sends, to one that receives ---- */

static void one_way(void)
{
	struct connection c[2] = { 0 };
	struct node node[2];
	struct ibv_srq *srq;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++) {
		node_open(&node[i], device);
		c[i].domain = ibv_open_xrc_domain(node[i].context, -1, O_CREAT);
		CHECK(c[i].domain, "%s", strerror(errno));
		/* The first has nothing to receive for. */
		srq = i ? node_srq(&node[i], c[i].domain) : NULL;
		CHECK(!i || srq, "%s", strerror(errno));
		c[i].qp = node_sender(&node[i], c[i].domain);
		CHECK(c[i].qp, "%s", strerror(errno));
		CHECK(!to_init(&node[i], &c[i]));
	}
	for (i = 0; i < 2; i++) {
		c[i].peer = c[!i].qp->qp_num;
		CHECK(!to_rtr(&node[i], &c[i]));
		CHECK(!to_rts(&node[i], &c[i]));
	}
	CHECK(!send_to(&node[0], c[0].qp, srq->xrc_srq_num));
	CHECK(completion(&node[1], &wc) && !wc.status);
}

/* ---- rdma_bw: numbers are sent as six digits ---- */

/* Longer ones end the process: this is built with _FORTIFY_SOURCE. */
static uint32_t printed(uint32_t qpn)
{
	char message[sizeof("000000")];

	sprintf(message, "%06x", qpn);
	return strtoul(message, NULL, 16);
}

static void six_digits(void)
{
	struct connection client = { 0 }, server = { 0 };
	struct node node[2];
	struct ibv_xrc_domain *domain;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	node_open(&node[0], device);
	client.domain = ibv_open_xrc_domain(node[0].context, -1, O_CREAT);
	CHECK(client.domain, "%s", strerror(errno));
	client.qp = node_sender(&node[0], client.domain);
	CHECK(client.qp, "%s", strerror(errno));
	server.peer = printed(client.qp->qp_num);

	node_open(&node[1], device);
	server.domain = ibv_open_xrc_domain(node[1].context, -1, O_CREAT);
	CHECK(server.domain, "%s", strerror(errno));
	srq = node_srq(&node[1], server.domain);
	CHECK(srq, "%s", strerror(errno));
	server.rcv_qpn = create(server.domain);
	client.peer = printed(server.rcv_qpn);

	CHECK(!to_init(&node[0], &client) && !to_init(&node[1], &server));
	CHECK(!to_rtr(&node[0], &client) && !to_rtr(&node[1], &server));
	CHECK(!to_rts(&node[0], &client) && !to_rts(&node[1], &server));
	load_path(&node[0], client.qp);
	CHECK(!send_to(&node[0], client.qp, srq->xrc_srq_num));
	CHECK(completion(&node[1], &wc) && !wc.status);
	CHECK(printed(client.qp->qp_num) == server.peer);
	CHECK(ibv_close_xrc_domain(client.domain) == EBUSY);
	CHECK(!ibv_destroy_qp(client.qp));
	CHECK(!ibv_close_xrc_domain(client.domain));

	/* Where messages come through a receive QP, the other QPs only send. */
	qp = node_sender(&node[1], server.domain);
	CHECK(qp, "%s", strerror(errno));
	CHECK(printed(qp->qp_num) == qp->qp_num);
	CHECK(!ibv_destroy_qp(qp));

	/* The same in a domain that others may use, and for a QP that was there before. */
	domain = open_domain(&node[1], O_CREAT);
	qp = node_sender(&node[1], domain);
	CHECK(qp, "%s", strerror(errno));
	CHECK(!ibv_unreg_xrc_rcv_qp(domain, create(domain)));
	CHECK(printed(qp->qp_num) == qp->qp_num);
	CHECK(ibv_close_xrc_domain(domain) == EBUSY);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_close_xrc_domain(domain));

	/* A process that only sends in such a domain: once it is connected to a receive QP. */
	client.domain = open_domain(&node[0], O_CREAT);
	client.qp = node_sender(&node[0], client.domain);
	CHECK(client.qp, "%s", strerror(errno));
	client.peer = server.rcv_qpn;
	CHECK(!to_init(&node[0], &client));
	CHECK(client.qp->qp_num >> 24);
	CHECK(!to_rtr(&node[0], &client));
	CHECK(printed(client.qp->qp_num) == client.qp->qp_num);
	CHECK(!ibv_destroy_qp(client.qp));
	CHECK(!ibv_close_xrc_domain(client.domain));
}

/* ---- Errors of opening ---- */

static void open_errors(void)
{
	struct ibv_xrc_domain *domain;
	struct node node;
	int fd;

	node_open(&node, device);
	errno = 0;
	CHECK(!ibv_open_xrc_domain(node.context, 12345, O_CREAT));
	CHECK(errno == EBADF, "%s", strerror(errno));
	fd = open(domain_file, O_CREAT | O_RDONLY, 0600);
	CHECK(!ibv_open_xrc_domain(node.context, fd, 0));
	CHECK(errno == EAGAIN, "%s", strerror(errno));
	domain = ibv_open_xrc_domain(node.context, fd, O_CREAT);
	CHECK(domain, "%s", strerror(errno));
	CHECK(!ibv_open_xrc_domain(node.context, fd, O_CREAT | O_EXCL));
	CHECK(errno == EINVAL, "%s", strerror(errno));
	CHECK(!ibv_close_xrc_domain(domain));
	close(fd);
	unlink(domain_file);
}

static const struct scenario {
	const char *description;
	/* Either several processes, */
	void (*receiver)(int me);
	void (*sender)(pid_t *pids);
	/* or one. */
	void (*alone)(void);
} scenarios[] = {
	{ "opening a domain fails as in OFED", .alone = open_errors },
	{ "QPs of type IBV_QPT_XRC send and receive", .alone = both_ways },
	{ "a QP of type IBV_QPT_XRC is destroyed when its events are acknowledged",
	  .alone = destroyed_when_acknowledged },
	{ "a QP of type IBV_QPT_XRC without an SRQ sends to one that receives", .alone = one_way },
	{ "rdma_bw: QP numbers have six digits where receive QPs receive", .alone = six_digits },
	{ "GASNet: processes race to create, all modify, one is killed",
	  .receiver = gasnet, .sender = gasnet_sender },
	{ "Open MPI: poll, ppoll, select, pselect, epoll and read wait on async_fd; a close is EBUSY",
	  .receiver = openmpi, .sender = openmpi_sender },
	{ "MVAPICH2: dlsym finds the calls, an event thread is cancelled",
	  .receiver = mvapich2, .sender = openmpi_sender },
	{ "rdma_bw, librdmacm, Open MPI: a QP passes RTS, SQD and ERR and takes a second path", .alone = all_states },
	{ "a process registers while the last other unregisters",
	  .receiver = latecomer, .sender = race_watcher },
	{ "forked children share a registration", .alone = forked },
	{ "a domain whose file was opened twice is one", .alone = opened_twice },
	{ "ibv_alloc_xrc_rcv_qp creates a QP of its domain's lifetime", .alone = first_proposal },
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

static bool run(const struct scenario *scenario)
{
	pthread_barrierattr_t attr;
	pid_t pids[RECEIVERS] = { 0 }, pid;
	int i, status;

	memset(shared, 0, sizeof(*shared));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->all, &attr, RECEIVERS + 1);
	strcpy(domain_file + sizeof(domain_file) - 7, "XXXXXX");
	close(mkstemp(domain_file));

	fflush(stdout);
	pid = fork();
	if (pid) {
		waitpid(pid, &status, 0);
		unlink(domain_file);
		return status == 0;
	}
	/* A scenario that hangs fails, with all its processes. */
	setpgid(0, 0);
	alarm(PATIENCE_MS / 1000);
	if (scenario->alone) {
		scenario->alone();
		exit(0);
	}
	for (i = 0; i < RECEIVERS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			scenario->receiver(i);
		}
	}
	scenario->sender(pids);
	exit(0);
}

int main(int argc, char **argv)
{
	const char *only = argc > 2 ? argv[2] : "";
	int i, count = 0;

	if (argc < 2)
		errx(2, "usage: clients DEVICE [SCENARIO]");
	device = argv[1];
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		err(1, "mmap");

#define WANTED(i) (!strncmp(scenarios[i].description, only, strlen(only)))
	for (i = 0; i < SCENARIOS; i++)
		count += WANTED(i);
	ktap_start("programs for OFED 1.5", count);
	for (i = 0; i < SCENARIOS; i++)
		if (WANTED(i))
			ktap_result(run(&scenarios[i]), scenarios[i].description);
	return ktap_end();
}
