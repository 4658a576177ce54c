// SPDX-License-Identifier: GPL-2.0
/*
 * A process that is killed, and its successor, which adopts the receive QPs of the domain; the
 * peer's connection stays as it is. Then what a descriptor of the open device, kept elsewhere,
 * preserves of a killed process, and what happens to a sender without it.
 *
 * usage: successor DEVICE
 *
 * The process itself is the holder of the domain, and the peer; the device sends to itself.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/xrc_rcv.h>

#include "ktap.h"

#define QPS 3
#define LABEL 0x123456789abcdef0ULL
#define SIZE 64
/* Others have to run meanwhile. */
#define POLL_US 100

static const char *device_name;
static char file_name[] = "/tmp/successor.XXXXXX";

/* An open device that holds the domain of the file, with what it sends or receives by. */
struct party {
	struct ibv_context *context;
	struct ibv_xrcd *xrcd;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	char *buffer;
};

static struct party peer, successor;
static struct ibv_qp *sender;
static struct ibv_port_attr port;
static union ibv_gid gid;

/* The account that a process gives of itself before it is killed. */
struct account {
	uint32_t qp_num[QPS];
	uint32_t srq_num;
	uint32_t rkey;
	uint64_t address;
};

static void join(struct party *party, char *buffer)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(file_name, O_RDONLY),
		.oflags = O_CREAT,
	};

	while (device && *device && strcmp(ibv_get_device_name(*device), device_name))
		device++;
	if (!device || !*device)
		errx(1, "no device %s", device_name);
	party->context = ibv_open_device(*device);
	ibv_free_device_list(list);
	if (!party->context)
		err(1, "%s", device_name);
	party->xrcd = ibv_open_xrcd(party->context, &attr);
	close(attr.fd);
	party->pd = ibv_alloc_pd(party->context);
	party->cq = ibv_create_cq(party->context, 16, NULL, NULL, 0);
	party->buffer = buffer;
	party->mr = party->pd ? ibv_reg_mr(party->pd, buffer, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) : NULL;
	if (!party->xrcd || !party->cq || !party->mr)
		err(1, "domain, PD, CQ and MR");
}

static void post_receive(struct party *party)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)party->buffer + SIZE,
		.length = SIZE,
		.lkey = party->mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_srq_recv(party->srq, &wr, &bad))
		errx(1, "post_srq_recv");
}

/* With two receives in one place: the peer sends a message when the one before was answered. */
static uint32_t create_srq(struct party *party)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = party->pd,
		.xrcd = party->xrcd,
		.cq = party->cq,
	};
	uint32_t srq_num;

	party->srq = ibv_create_srq_ex(party->context, &attr);
	if (!party->srq || ibv_get_srq_num(party->srq, &srq_num))
		err(1, "SRQ");
	post_receive(party);
	post_receive(party);
	return srq_num;
}

static bool completion(struct party *party, struct ibv_wc *wc)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i, n;

	for (i = 0; i < PATIENCE_MS; i++) {
		n = ibv_poll_cq(party->cq, 1, wc);
		if (n)
			return n == 1;
		nanosleep(&pause, NULL);
	}
	return false;
}

#define RTR_MASK (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTS_MASK (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
		  IBV_QP_MAX_QP_RD_ATOMIC)

static struct ibv_qp_attr attributes(enum ibv_qp_state state, uint32_t dest_qp_num)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest_qp_num,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {
			.dlid = port.lid,
			.port_num = 1,
			.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET,
			.grh = { .dgid = gid, .hop_limit = 64 },
		},
	};
}

static struct ibv_qp *create_sender(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = peer.cq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = peer.pd,
	};

	return ibv_create_qp_ex(peer.context, &init);
}

static bool connect_to(struct ibv_qp *qp, uint32_t qp_num)
{
	struct ibv_qp_attr attr = attributes(IBV_QPS_INIT, qp_num);

	HOLDS(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | INIT_MASK));
	attr.qp_state = IBV_QPS_RTR;
	HOLDS(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | RTR_MASK));
	attr.qp_state = IBV_QPS_RTS;
	HOLDS(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | RTS_MASK));
	return true;
}

/* Returns the status of the request, or -1; it takes or gives the first half of the buffer. */
static int request(enum ibv_wr_opcode opcode, const struct account *to)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)peer.buffer,
		.length = SIZE,
		.lkey = peer.mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = to->address, .rkey = to->rkey },
		.qp_type.xrc.remote_srqn = to->srq_num,
	}, *bad;
	struct ibv_wc wc;

	return !ibv_post_send(sender, &wr, &bad) && completion(&peer, &wc) ? (int)wc.status : -1;
}

/* Whether the peer can use its connection: its own state does not change by restarts. */
static bool is_connected(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return !ibv_query_qp(sender, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS;
}

static uint32_t total(void)
{
	size_t none = 0;
	uint32_t all = ~0u;

	xrc_rcv_query_domain(peer.xrcd, 0, NULL, 0, &none, &all);
	return all;
}

/* The first process: QPs in RTR, connected to the peer; in RTR; in INIT. */
static void create_qps(struct party *party, struct account *account)
{
	struct xrc_rcv_init_attr init = {
		.comp_mask = XRC_RCV_INIT_ATTR_LABEL,
		.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,
	};
	struct ibv_qp_attr attr;
	struct xrc_rcv_qp *qp;
	uint32_t i;

	for (i = 0; i < QPS; i++) {
		attr = attributes(i < 2 ? IBV_QPS_RTR : IBV_QPS_INIT,
				  i ? 0x100 + i : sender->qp_num);
		init.label = LABEL + i;
		qp = xrc_rcv_alloc_qp(party->xrcd, &init, &attr,
				      i < 2 ? INIT_MASK | RTR_MASK : INIT_MASK);
		if (!qp)
			err(1, "alloc_qp");
		account->qp_num[i] = qp->qp_num;
	}
}

static void adopt_qps(struct party *party, struct account *account)
{
	struct xrc_rcv_adopted_qp *qps;
	size_t count, i;

	errno = xrc_rcv_adopt_domain(party->xrcd, NULL, &qps, sizeof(*qps), &count);
	if (errno || count != QPS)
		err(1, "adopt_domain: %zu", count);
	for (i = 0; i < count; i++) {
		if (qps[i].error || qps[i].info.label != LABEL + i)
			errx(1, "QP %#x: %s", qps[i].info.qp_num, strerror(qps[i].error));
		account->qp_num[i] = qps[i].info.qp_num;
	}
	free(qps);
}

/* The state of a service in memory that outlives it. */
struct store {
	/* Read by the peer. */
	_Atomic uint64_t value;
	/* The number of the last message that was stored. */
	_Atomic uint64_t answered;
};

/* Stores each message's number, and posts its receive again. */
static _Noreturn void serve(struct party *party)
{
	struct store *store = (void *)party->buffer;
	uint64_t *message = (void *)(party->buffer + SIZE);
	struct ibv_wc wc;

	for (;;) {
		if (ibv_poll_cq(party->cq, 1, &wc) != 1) {
			usleep(POLL_US);
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS)
			errx(1, "receive: %s", ibv_wc_status_str(wc.status));
		store->value = *message;
		store->answered = *message;
		post_receive(party);
	}
}

static void send_descriptor(int to, int fd, const struct account *account)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .header = {
		.cmsg_len = CMSG_LEN(sizeof(int)),
		.cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
	} };
	struct iovec data = { (void *)account, sizeof(*account) };
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (sendmsg(to, &message, 0) < 0)
		err(1, "sendmsg");
}

static int receive_descriptor(int from, struct account *account)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec data = { account, sizeof(*account) };
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(from, &message, MSG_WAITALL) != sizeof(*account) || !CMSG_FIRSTHDR(&message))
		errx(1, "the process has failed");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/*
 * A process that gives its account, and its open device, and is killed when it has been used. Its
 * memory is in a file, so that it outlives the process.
 */
struct process {
	pid_t pid;
	int device;
	struct account account;
};

enum role { CREATOR, SUCCESSOR };

static void start(struct process *process, enum role role, char *memory)
{
	struct account account = { 0 };
	struct party party = { 0 };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		err(1, "socketpair");
	process->pid = fork();
	if (process->pid < 0)
		err(1, "fork");
	if (process->pid) {
		close(pair[1]);
		process->device = receive_descriptor(pair[0], &process->account);
		close(pair[0]);
		return;
	}
	join(&party, memory);
	if (role == CREATOR)
		create_qps(&party, &account);
	else
		adopt_qps(&party, &account);
	account.srq_num = create_srq(&party);
	account.rkey = party.mr->rkey;
	account.address = (uintptr_t)memory;
	send_descriptor(pair[1], party.context->cmd_fd, &account);
	serve(&party);
}

static void kill_it(struct process *process)
{
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
}

static struct process first;
static struct xrc_rcv_event_channel *channel;
static struct xrc_rcv_adopted_qp *adopted;

static bool survive(void)
{
	HOLDS(connect_to(sender, first.account.qp_num[0]));
	HOLDS(request(IBV_WR_SEND, &first.account) == IBV_WC_SUCCESS);
	close(first.device);
	kill_it(&first);
	HOLDS(total() == QPS && is_connected());
	return true;
}

static bool adopt(void)
{
	struct xrc_rcv_reg_attr attr = { .cookie = 9 };
	size_t count = 0;
	int i;

	channel = xrc_rcv_create_event_channel(successor.xrcd);
	attr.channel = channel;
	HOLDS(channel && !xrc_rcv_adopt_domain(successor.xrcd, &attr, &adopted, sizeof(*adopted), &count));
	HOLDS(count == QPS);
	for (i = 0; i < QPS; i++) {
		struct xrc_rcv_qp_info *info = &adopted[i].info;

		HOLDS(adopted[i].qp && !adopted[i].error && !adopted[i].reserved);
		HOLDS(adopted[i].qp->qp_num == first.account.qp_num[i]);
		HOLDS(info->qp_num == first.account.qp_num[i] && info->label == LABEL + i);
		HOLDS(info->state == (i < 2 ? IBV_QPS_RTR : IBV_QPS_INIT));
		HOLDS(info->lifetime == XRC_RCV_LIFETIME_DOMAIN && info->registrations == 1);
	}
	HOLDS(adopted[0].info.dest_qp_num == sender->qp_num);
	HOLDS(adopted[1].info.dest_qp_num == 0x101);
	return true;
}

/* Without a change of the peer's but the number of the SRQ. */
static bool receive(void)
{
	struct account account = { .srq_num = create_srq(&successor) };
	struct ibv_wc wc;

	strcpy(peer.buffer, "to the successor");
	HOLDS(request(IBV_WR_SEND, &account) == IBV_WC_SUCCESS && is_connected());
	HOLDS(completion(&successor, &wc) && wc.status == IBV_WC_SUCCESS);
	HOLDS(wc.byte_len == SIZE && !strcmp(successor.buffer + SIZE, peer.buffer));
	return true;
}

static bool control(void)
{
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTR, 0x102);
	struct xrc_rcv_event event;

	HOLDS(!xrc_rcv_modify_qp(successor.xrcd, adopted[2].qp->qp_num, &attr, IBV_QP_STATE | RTR_MASK));
	HOLDS(!xrc_rcv_query_qp(peer.xrcd, adopted[2].qp->qp_num, &attr, NULL, 0));
	HOLDS(attr.qp_state == IBV_QPS_RTR && attr.dest_qp_num == 0x102);
	attr.qp_state = IBV_QPS_ERR;
	HOLDS(!xrc_rcv_modify_qp(successor.xrcd, adopted[1].qp->qp_num, &attr, IBV_QP_STATE));
	/* The first message on the adopted connection may be reported before. */
	do {
		HOLDS(!xrc_rcv_get_event(channel, &event, sizeof(event)));
	} while (event.type == IBV_EVENT_COMM_EST);
	HOLDS(event.type == IBV_EVENT_QP_LAST_WQE_REACHED && event.cookie == 9);
	HOLDS(event.qp_num == adopted[1].qp->qp_num);
	HOLDS(!xrc_rcv_destroy_qp(successor.xrcd, adopted[1].qp->qp_num, XRC_RCV_DESTROY_FORCE) &&
	      total() == QPS - 1);
	HOLDS(!xrc_rcv_get_event(channel, &event, sizeof(event)));
	HOLDS(event.type == XRC_RCV_EVENT_QP_GONE && event.qp_num == adopted[1].qp->qp_num);
	HOLDS(!xrc_rcv_unreg_qp(adopted[1].qp));
	return true;
}

/* Each failure is that of its QP, or of the whole call; neither leaves anything. */
static bool refused(void)
{
	struct xrc_rcv_reg_attr attr = { .comp_mask = XRC_RCV_REG_ATTR_EVENTS, .events = 1 << 8 };
	struct { struct xrc_rcv_adopted_qp now; uint64_t later[2]; } *longer;
	struct xrc_rcv_adopted_qp *qps = (void *)1;
	struct xrc_rcv_qp_info info;
	size_t count = 77, i;

	HOLDS(!xrc_rcv_adopt_domain(successor.xrcd, NULL, &qps, sizeof(*longer), &count));
	longer = (void *)qps;
	HOLDS(count == QPS - 1);
	for (i = 0; i < count; i++) {
		HOLDS(longer[i].now.qp && !longer[i].now.error && !xrc_rcv_unreg_qp(longer[i].now.qp));
		HOLDS(longer[i].now.info.qp_num == adopted[2 * i].qp->qp_num);
		HOLDS(!longer[i].later[0] && !longer[i].later[1]);
	}
	free(longer);
	HOLDS(!xrc_rcv_adopt_domain(peer.xrcd, &attr, &qps, sizeof(*qps), &count));
	HOLDS(count == QPS - 1 && !qps[0].qp && qps[0].error == EINVAL && qps[1].error == EINVAL);
	free(qps);
	qps = (void *)1;
	count = 77;
	for (i = 0; i <= 16; i++)
		HOLDS(xrc_rcv_adopt_domain(peer.xrcd, NULL, &qps, i, &count) == EINVAL);
	HOLDS(xrc_rcv_adopt_domain(peer.xrcd, NULL, &qps, sizeof(*qps) + 4, &count) == EINVAL);
	attr.comp_mask = 1 << 1;
	HOLDS(xrc_rcv_adopt_domain(peer.xrcd, &attr, &qps, sizeof(*qps), &count) == EINVAL);
	HOLDS(qps == (void *)1 && count == 77);
	HOLDS(!xrc_rcv_query_qp(peer.xrcd, adopted[0].qp->qp_num, NULL, &info, sizeof(info)));
	HOLDS(info.registrations == 1);
	return true;
}

static atomic_bool stop;

static void *come_and_go(void *arg)
{
	struct xrc_rcv_qp *qps[4];
	int i;

	while (!stop) {
		for (i = 0; i < 4; i++)
			qps[i] = xrc_rcv_alloc_qp(peer.xrcd, NULL, NULL, 0);
		for (i = 0; i < 4; i++)
			if (!qps[i] || xrc_rcv_unreg_qp(qps[i]))
				return arg;
	}
	return NULL;
}

/* Others create and destroy QPs: what vanishes before it was adopted is not there, and not an
 * error. The rounds do not end before some were there, as the thread may begin late.
 */
static bool vanishing(void)
{
	struct xrc_rcv_adopted_qp *qps;
	struct party other = { 0 };
	size_t count, i, more = 0;
	pthread_t thread;
	void *failed;
	int round;

	join(&other, successor.buffer);
	HOLDS(!pthread_create(&thread, NULL, come_and_go, &other));
	for (round = 0; round < 200 || (!more && round < PATIENCE_MS); round++) {
		HOLDS(!xrc_rcv_adopt_domain(other.xrcd, NULL, &qps, sizeof(*qps), &count));
		HOLDS(count >= QPS - 1);
		for (i = 0; i < count; i++)
			HOLDS(qps[i].qp && !qps[i].error && !xrc_rcv_unreg_qp(qps[i].qp));
		more += count - (QPS - 1);
		free(qps);
	}
	stop = true;
	HOLDS(!pthread_join(thread, &failed) && !failed);
	HOLDS(more && total() == QPS - 1);
	return true;
}

static bool emptied(void)
{
	size_t count = 77;
	int i;

	for (i = 0; i < QPS; i += 2) {
		uint32_t qp_num = adopted[i].qp->qp_num;

		/* The peer is not disturbed by a registration that ends. */
		HOLDS(!xrc_rcv_unreg_qp(adopted[i].qp) && is_connected());
		HOLDS(!xrc_rcv_destroy_qp(successor.xrcd, qp_num, 0));
	}
	free(adopted);
	HOLDS(!xrc_rcv_adopt_domain(successor.xrcd, NULL, &adopted, sizeof(*adopted), &count));
	HOLDS(!adopted && !count && !total());
	return true;
}

/* Starts a process with QPs and connects the peer to it. */
static bool restart(struct process *process, char *memory)
{
	if (sender)
		HOLDS(!ibv_destroy_qp(sender));
	sender = create_sender();
	HOLDS(sender);
	start(process, CREATOR, memory);
	return connect_to(sender, process->account.qp_num[0]);
}

/* Ends what is left of a dead process, and of its QPs. */
static bool forget(struct process *process)
{
	int i;

	close(process->device);
	for (i = 0; i < QPS; i++)
		HOLDS(!xrc_rcv_destroy_qp(peer.xrcd, process->account.qp_num[i], 0));
	HOLDS(!total());
	return true;
}

/* The open device of the dead process is kept, as by a service manager. */
static bool kept(char *memory)
{
	struct process process;

	HOLDS(restart(&process, memory));
	kill_it(&process);
	strcpy(memory, "of the dead");
	HOLDS(request(IBV_WR_RDMA_READ, &process.account) == IBV_WC_SUCCESS);
	HOLDS(!strcmp(peer.buffer, "of the dead"));
	strcpy(peer.buffer, "to the dead");
	HOLDS(request(IBV_WR_RDMA_WRITE, &process.account) == IBV_WC_SUCCESS);
	HOLDS(!strcmp(memory, "to the dead"));
	HOLDS(request(IBV_WR_SEND, &process.account) == IBV_WC_SUCCESS);
	HOLDS(!strcmp(memory + SIZE, "to the dead"));
	HOLDS(is_connected() && total() == QPS);
	return forget(&process);
}

#define KILLS 20

/* The peer's view of 20 restarts. */
static struct {
	struct process process[KILLS + 1];
	struct store *store;
	/* The process that requests are for, and the one that the peer has changed over to. */
	atomic_int current, confirmed;
	atomic_bool end;
	uint64_t sent, read, repeated, longest_ns;
	const char *failure;
} load;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static bool fails(const char *what)
{
	load.failure = what;
	return false;
}

/* Sends a message until it was answered: again to each successor. Returns whether every request
 * completed.
 */
static bool put(uint64_t number)
{
	int to;

	do {
		to = load.current;
		load.confirmed = to;
		*(uint64_t *)peer.buffer = number;
		if (request(IBV_WR_SEND, &load.process[to].account) != IBV_WC_SUCCESS)
			return fails("SEND");
		while (load.store->answered < number && load.current == to)
			usleep(POLL_US);
		load.repeated += load.store->answered < number;
	} while (load.store->answered < number);
	return true;
}

/* One-sided, whether a process runs or not. */
static bool get(uint64_t least)
{
	const struct store *seen = (void *)peer.buffer;
	int from = load.current;

	load.confirmed = from;
	if (request(IBV_WR_RDMA_READ, &load.process[from].account) != IBV_WC_SUCCESS)
		return fails("RDMA READ");
	if (seen->value < least)
		return fails("an older value");
	load.read++;
	return true;
}

static void *put_and_get(void *arg)
{
	uint64_t last = now_ns(), now;

	while (!load.end && put(load.sent + 1) && get(load.sent + 1)) {
		load.sent++;
		now = now_ns();
		if (now - last > load.longest_ns)
			load.longest_ns = now - last;
		last = now;
	}
	return arg;
}

/* A service under load is killed again and again; its peer sees nothing of it but a pause. */
static bool restarts(char *memory)
{
	uint64_t start_ns, longest_ns = 0, before;
	pthread_t thread;
	int i;

	memset(memory, 0, 2 * SIZE);
	load.store = (void *)memory;
	HOLDS(restart(&load.process[0], memory));
	HOLDS(!pthread_create(&thread, NULL, put_and_get, NULL));
	for (i = 0; i < KILLS; i++) {
		struct process *next = &load.process[i + 1];

		/* Under load, at any moment of it. */
		before = load.store->answered;
		while (load.store->answered < before + 5 && !load.failure)
			usleep(POLL_US);
		usleep(rand() % 5000);
		start_ns = now_ns();
		kill_it(&load.process[i]);
		start(next, SUCCESSOR, memory);
		load.current = i + 1;
		if (now_ns() - start_ns > longest_ns)
			longest_ns = now_ns() - start_ns;
		HOLDS(!memcmp(next->account.qp_num, load.process[0].account.qp_num, sizeof(next->account.qp_num)));
		while (load.confirmed != i + 1 && !load.failure)
			usleep(POLL_US);
		close(load.process[i].device);
	}
	load.end = true;
	pthread_join(thread, NULL);
	ktap_note("%d kills: %llu messages and reads, %llu repeated; longest restart %llu ms, longest pause %llu ms",
		  KILLS, (unsigned long long)load.sent, (unsigned long long)load.repeated,
		  (unsigned long long)longest_ns / 1000000, (unsigned long long)load.longest_ns / 1000000);
	if (load.failure)
		ktap_note("%s", load.failure);
	HOLDS(!load.failure && load.sent >= 5 * KILLS && is_connected());
	kill_it(&load.process[KILLS]);
	return forget(&load.process[KILLS]);
}

/* rxe reports the error of the request, and that of the receive QP, before it changes the state of
 * either QP.
 */
static bool breaks(uint32_t qp_num, struct ibv_qp_attr *attr)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int i;

	for (i = 0; i < PATIENCE_MS; i++) {
		HOLDS(!xrc_rcv_query_qp(peer.xrcd, qp_num, attr, NULL, 0));
		if (attr->qp_state == IBV_QPS_ERR && !is_connected())
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Without it, each request that names the SRQ of the dead process breaks the connection, as the
 * domain learns.
 */
static bool gone(char *memory, enum ibv_wr_opcode opcode)
{
	struct xrc_rcv_event_channel *domain_channel = xrc_rcv_create_event_channel(peer.xrcd);
	struct xrc_rcv_event event = { .type = IBV_EVENT_COMM_EST };
	struct pollfd fd = { .events = POLLIN };
	struct process process;
	struct ibv_qp_attr attr;
	struct xrc_rcv_qp *qp;
	bool broken;
	int status;

	HOLDS(domain_channel && restart(&process, memory));
	qp = xrc_rcv_reg_qp(peer.xrcd, process.account.qp_num[0], domain_channel, 0);
	HOLDS(qp);
	close(process.device);
	kill_it(&process);
	status = request(opcode, &process.account);
	fd.fd = domain_channel->fd;
	while (event.type == IBV_EVENT_COMM_EST && poll(&fd, 1, PATIENCE_MS) == 1)
		HOLDS(!xrc_rcv_get_event(domain_channel, &event, sizeof(event)));
	broken = breaks(qp->qp_num, &attr);
	ktap_note("sender: %s; receive QP: %s, state %u", ibv_wc_status_str(status),
		  xrc_rcv_event_type_str(event.type), attr.qp_state);
	HOLDS(status > IBV_WC_SUCCESS && broken);
	/* Drivers differ. */
	HOLDS(event.type == IBV_EVENT_QP_ACCESS_ERR || event.type == IBV_EVENT_QP_REQ_ERR);
	HOLDS(!xrc_rcv_unreg_qp(qp) && !xrc_rcv_destroy_event_channel(domain_channel));
	process.device = -1;
	return forget(&process);
}

int main(int argc, char **argv)
{
	int memory_fd = memfd_create("memory", MFD_CLOEXEC);
	char *memory;

	if (argc != 2)
		errx(2, "usage: successor DEVICE");
	device_name = argv[1];
	close(mkstemp(file_name));
	memory = memory_fd >= 0 && !ftruncate(memory_fd, 2 * SIZE) ?
		mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0) : MAP_FAILED;
	if (memory == MAP_FAILED)
		err(1, "memory");
	join(&peer, calloc(2, SIZE));
	if (ibv_query_port(peer.context, 1, &port) || ibv_query_gid(peer.context, 1, 0, &gid))
		err(1, "port 1");
	sender = create_sender();
	if (!sender)
		err(1, "sender");
	start(&first, CREATOR, memory);

	ktap_start("a successor", 12);
	ktap_result(survive(), "a held domain keeps the QPs of a process that is killed");
	join(&successor, calloc(2, SIZE));
	ktap_result(adopt(), "adopt_domain returns numbers, labels, peers and states as they were");
	ktap_result(receive(), "the successor receives on its own SRQ by the connection of before");
	ktap_result(control(), "the successor modifies and destroys what it adopted, and gets its events");
	ktap_result(refused(), "a refused adopt_domain names the error, and leaves nothing");
	ktap_result(vanishing(), "QPs that vanish meanwhile are left out");
	ktap_result(emptied(), "the last QPs are destroyed, and there is nothing to adopt");
	ktap_result(kept(memory), "an open device that is kept keeps the SRQ and the memory of a dead process");
	ktap_result(restarts(memory), "a peer has no error while a service is killed 20 times under load");
	ktap_result(gone(memory, IBV_WR_SEND), "a SEND to the SRQ of a dead process breaks the connection");
	ktap_result(gone(memory, IBV_WR_RDMA_READ), "an RDMA READ by it does");
	ktap_result(gone(memory, IBV_WR_RDMA_WRITE), "an RDMA WRITE by it does");
	unlink(file_name);
	return ktap_end();
}
