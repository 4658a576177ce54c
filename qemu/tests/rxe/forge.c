// SPDX-License-Identifier: GPL-2.0
/*
 * forge [-n WQES] [-s SEED]
 *
 * A process writes into the queues that rxe lets it map values that libibverbs
 * would not: operations that a QP does not have, lengths and offsets beyond a WQE,
 * indices beyond a queue; then WQES WQEs on each transport in which a few words
 * are random, WQEs that change while the driver works on them, and receive and
 * completion queues of random words.
 *
 * The worst result allowed is a completion in error. The sender's memory
 * holds one byte only and the peer's another one, so a byte of neither is
 * seen where it arrives. KASAN reports to the
 * kernel's log. Each scenario is a process of its own, since an error may well
 * be that a QP cannot be destroyed.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_user_rxe.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "node.h"

enum transport { RC, UC, UD, XRC, TRANSPORTS };

enum {
	SEND_DEPTH = 15, RECV_DEPTH = 63, CQ_DEPTH = 1023,	/* and the mask of its index */
	SGES = 2,
	INLINE = 128,
	BUFFER = 8192,
	GRH = 40,			/* bytes that precede the data of UD */
	QKEY = 0x11111111,
	PSNS = 0x1000,			/* more than a pair of QPs gets to send */
	RXE_REG_MR = 32,		/* IB_WR_REG_MR, the kernel's own */
	BATCH = 8,
	SILENCE_MS = 20,
	DESTRUCTION_S = 45,

	SENDERS = 'L', PEERS = 'E',
};

/* Operations that send to the peer. */
static const uint32_t carried[TRANSPORTS] = {
	[RC] = 0x7f | 1 << IBV_WR_SEND_WITH_INV | 1 << IBV_WR_FLUSH | 1 << IBV_WR_ATOMIC_WRITE,
	[UC] = 0xf,
	[UD] = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM,
	[XRC] = 0x7f | 1 << IBV_WR_SEND_WITH_INV,
};
/* Operations that send nothing. */
static const uint32_t local_only[TRANSPORTS] = {
	[RC] = 1 << IBV_WR_LOCAL_INV | 1 << IBV_WR_BIND_MW,
	[UC] = 1 << IBV_WR_BIND_MW,
	[XRC] = 1 << IBV_WR_LOCAL_INV | 1 << IBV_WR_BIND_MW,
};
static const char *const names[TRANSPORTS] = { "RC", "UC", "UD", "XRC" };

static unsigned int wqes = 2000, seed = 1;

static enum transport transport;
static struct node left, right;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_qp *from, *to;
static struct ibv_qp_ex *post;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct ibv_mr *local_mr, *landing_mr, *exposed_mr, *counters_mr;
static uint8_t local[BUFFER], landing[BUFFER], exposed[BUFFER], counters[BUFFER];
static uint32_t remote_srq, psn;

/* A queue as the process has it mapped. */
struct ring {
	struct rxe_queue_buf *buffer;
	uint32_t mask, shift;
};
static struct ring send_ring, recv_ring, cq_ring;

static uint32_t random_word(void)
{
	static uint64_t state;

	if (!state)
		state = seed * 0x9e3779b97f4a7c15ull + getpid() % 2;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 16;
}

/* A number that the driver may have forgotten to check. */
static uint32_t odd_word(void)
{
	static const uint32_t odd[] = {
		0, 1, 2, 3, 4, 8, 9, 127, 128, 129, 4095, 4096, 4097, 8192, 0xffff, 0x10000,
		0xffffff, 0x7fffffff, 0x80000000, 0xfffff000, 0xfffffff8, 0xffffffff,
	};
	uint32_t word = random_word();

	return word % 3 ? odd[(word >> 8) % (sizeof(odd) / sizeof(*odd))] : random_word();
}

/* ---- queues ---- */

/* The mapping of the queue with such a mask, but for another one. */
static struct ring find_ring(uint32_t mask, const struct ring *other)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	struct ring ring = {};
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		struct rxe_queue_buf *buffer;
		unsigned long start;

		if (!strstr(line, "uverbs") || sscanf(line, "%lx-", &start) != 1)
			continue;
		buffer = (void *)start;
		if (buffer->index_mask == mask && buffer != other->buffer)
			ring = (struct ring){ buffer, mask, buffer->log2_elem_size };
	}
	if (maps)
		fclose(maps);
	if (!ring.buffer)
		errx(1, "no queue with mask %#x is mapped", mask);
	return ring;
}

static void *slot(const struct ring *ring, uint32_t index)
{
	return ring->buffer->data + ((size_t)(index & ring->mask) << ring->shift);
}

static struct ibv_mr *region(struct node *node, void *memory, int value)
{
	struct ibv_mr *mr = ibv_reg_mr(node->pd, memory, BUFFER,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				       IBV_ACCESS_MW_BIND);

	if (!mr)
		err(1, "memory region");
	memset(memory, value, BUFFER);
	return mr;
}

static struct ibv_qp *create(struct node *node, struct ibv_cq *cq)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = types[transport],
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = node->pd,
		.send_cq = cq,
		.recv_cq = transport == XRC ? NULL : cq,
		.cap = {
			.max_send_wr = SEND_DEPTH, .max_send_sge = SGES, .max_inline_data = INLINE,
			.max_recv_wr = transport == XRC ? 0 : RECV_DEPTH,
			.max_recv_sge = transport == XRC ? 0 : 1,
		},
		.sq_sig_all = 1,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(node->context, &attr);

	if (!qp)
		err(1, "%s QP", names[transport]);
	return qp;
}

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask, struct ibv_qp_attr attr)
{
	attr.qp_state = state;
	errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
	if (errno)
		err(1, "QP %#x to state %d", qp->qp_num, state);
}

/* rxe can still put the QP into ERR, for a WQE or packet that its worker is at: then once more. */
static void reset(struct ibv_qp *qp)
{
	do
		modify(qp, IBV_QPS_RESET, 0, (struct ibv_qp_attr){});
	while (qp_state(qp) != IBV_QPS_RESET);
}

static void unreliable(struct node *node, struct ibv_qp *qp, struct ibv_qp *peer, struct node *there)
{
	struct path path = { .gid = there->gid, .lid = there->lid };
	struct ibv_qp_attr attr = {
		.port_num = node->port,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = node->mtu,
		.dest_qp_num = peer->qp_num,
		.rq_psn = psn,
		.sq_psn = psn,
		.ah_attr = node_address(node, &path),
	};

	modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       (transport == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), attr);
	modify(qp, IBV_QPS_RTR, transport == UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU |
	       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, attr);
	modify(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN, attr);
	if (transport == UD && !ah) {
		ah = ibv_create_ah(node->pd, &attr.ah_attr);
		if (!ah)
			err(1, "address handle");
	}
}

static void drain(struct ibv_cq *cq)
{
	unsigned int limit = CQ_DEPTH;	/* for a queue that a thread writes to */
	struct ibv_wc wc;

	while (limit-- && ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/*
 * Two connected QPs on which nothing has happened, and receives. An answer that may not come is not
 * waited for. Where it has to come, a busy machine is given its time: with a timeout of 0 nothing
 * is sent again, as nothing is lost either.
 */
static void reconnect(uint8_t timeout, uint8_t retries)
{
	/* not where a packet of before may still be on its way to */
	uint32_t fresh = psn = (psn + PSNS) & 0xffffff;
	struct path there = { right.gid, right.lid, to->qp_num, fresh, fresh, timeout, retries };
	struct path back = { left.gid, left.lid, from->qp_num, fresh, fresh, timeout, retries };
	struct ibv_sge sge = { (uintptr_t)exposed, BUFFER, exposed_mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int i;

	reset(from);
	reset(to);
	if (transport == RC || transport == XRC) {
		qp_connect(&right, to, &back);
		qp_connect(&left, from, &there);
	} else {
		unreliable(&left, from, to, &right);
		unreliable(&right, to, from, &left);
	}
	drain(send_cq);
	drain(recv_cq);
	for (i = 0; i < BATCH + 1; i++)
		if (srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(to, &wr, &bad))
			break;
}

static void refresh(void)
{
	reconnect(8, 1);		/* a millisecond, twice */
}

static void set_up(enum transport kind)
{
	struct ring none = {}, theirs = {};

	transport = kind;
	node_enter("right");
	node_open(&right, "right");
	node_enter("left");
	node_open(&left, "left");
	local_mr = region(&left, local, SENDERS);
	landing_mr = region(&left, landing, 0);
	exposed_mr = region(&right, exposed, PEERS);
	counters_mr = region(&right, counters, 0);
	send_cq = ibv_create_cq(left.context, 300, NULL, NULL, 0);
	recv_cq = ibv_create_cq(right.context, CQ_DEPTH, NULL, NULL, 0);
	if (!send_cq || !recv_cq)
		err(1, "completion queues");
	if (transport == XRC) {
		struct ibv_xrcd *domain = node_open_domain(&right, "/tmp/forge.domain");

		srq = node_create_xrc_srq(&right, right.pd, domain, recv_cq, RECV_DEPTH);
		remote_srq = srq_number(srq);
		to = node_create_target(&right, domain);
	} else {
		to = create(&right, recv_cq);
		theirs = find_ring(SEND_DEPTH, &none);
	}
	recv_ring = find_ring(RECV_DEPTH, &none);
	from = create(&left, send_cq);
	send_ring = find_ring(SEND_DEPTH, &theirs);
	cq_ring = find_ring(CQ_DEPTH, &none);
	post = ibv_qp_to_qp_ex(from);
	refresh();
}

/* A good SEND of size bytes, not yet for the driver to see. */
static struct rxe_send_wqe *start(size_t size)
{
	uint32_t index;

	ibv_wr_start(post);
	index = send_ring.buffer->producer_index;
	post->wr_id = 1;
	post->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(post);
	if (transport == UD)
		ibv_wr_set_ud_addr(post, ah, to->qp_num, QKEY);
	if (transport == XRC)
		ibv_wr_set_xrc_srqn(post, remote_srq);
	ibv_wr_set_sge(post, local_mr->lkey, (uintptr_t)local, size);
	return slot(&send_ring, index);
}

/* Another operation, as good as it can be on any transport. */
static void set_operation(struct rxe_send_wqe *wqe, uint32_t opcode)
{
	bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	wqe->wr.opcode = opcode;
	if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM)
		return;
	memset(&wqe->wr.wr, 0x41, sizeof(wqe->wr.wr));
	wqe->iova = atomic ? (uintptr_t)counters : (uintptr_t)exposed;
	if (atomic) {
		wqe->wr.wr.atomic.remote_addr = wqe->iova;
		wqe->wr.wr.atomic.rkey = counters_mr->rkey;
		wqe->dma.length = 8;
		wqe->dma.resid = 8;
		wqe->dma.sge[0].length = 8;
	} else if (opcode != RXE_REG_MR) {
		wqe->wr.wr.rdma.remote_addr = wqe->iova;
		wqe->wr.wr.rdma.rkey = exposed_mr->rkey;
	}
	if (atomic || opcode == IBV_WR_RDMA_READ) {
		wqe->dma.sge[0].addr = (uintptr_t)landing;
		wqe->dma.sge[0].lkey = landing_mr->lkey;
	}
	if (opcode == IBV_WR_ATOMIC_WRITE) {
		wqe->dma.length = 8;
		wqe->dma.resid = 8;
		memset(wqe->dma.inline_data, SENDERS, INLINE);
	}
}

static void ring_doorbell(void)
{
	ibv_wr_start(post);
	ibv_wr_complete(post);
}

/* ---- expected results ---- */

/* Names the transport, too. */
#define wrong(format, ...) ktap_wrong("%s: " format, names[transport], ##__VA_ARGS__)

static bool completion(struct ibv_cq *cq, unsigned int timeout_ms, struct ibv_wc *wc)
{
	uint64_t end = now_ns() + timeout_ms * 1000000ull;

	do {
		if (ibv_poll_cq(cq, 1, wc) > 0)
			return true;
		usleep(200);
	} while (now_ns() < end);
	return false;
}

/* Nothing arrived at the peer that was neither's. */
static bool clean(void)
{
	size_t i;

	for (i = transport == UD ? GRH : 0; i < BUFFER; i++)
		if (exposed[i] != SENDERS && exposed[i] != PEERS)
			return wrong("byte %zu at the peer is %#x, which the sender did not have",
				     i, exposed[i]);
	return true;
}

static bool works(void)
{
	struct ibv_wc wc;

	reconnect(0, 7);
	start(64);
	errno = ibv_wr_complete(post);
	if (errno)
		return wrong("a good SEND: %s", strerror(errno));
	if (!completion(send_cq, PATIENCE_MS, &wc))
		return wrong("a good SEND does not complete");
	if (wc.status)
		return wrong("a good SEND completes with %s, the peer's state is %d",
			     ibv_wc_status_str(wc.status), qp_state(to));
	if (!completion(recv_cq, PATIENCE_MS, &wc))
		return wrong("a good SEND does not arrive");
	if (wc.status)
		return wrong("a good SEND arrives with %s", ibv_wc_status_str(wc.status));
	return clean();
}

/* The driver's own waits end after 50 seconds. */
static bool tear_down(void)
{
	uint64_t begin = now_ns();

	errno = ibv_destroy_qp(from);
	if (now_ns() - begin > DESTRUCTION_S * 1000000000ull)
		return wrong("to destroy a QP takes %u seconds",
			     (unsigned int)((now_ns() - begin) / 1000000000));
	if (!errno)
		errno = ibv_destroy_qp(to);
	if (!errno && srq)
		errno = ibv_destroy_srq(srq);
	return !errno || wrong("destroy: %s", strerror(errno));
}

/* ---- scenarios ---- */

/* One operation: if the QP does not have it, it completes in error, and sends nothing. */
static bool operation(uint32_t opcode)
{
	bool goes_out = opcode < 32 && carried[transport] & 1u << opcode;
	enum ibv_qp_state state, before;
	struct ibv_wc wc;

	refresh();
	before = qp_state(to);
	set_operation(start(64), opcode);
	errno = ibv_wr_complete(post);
	if (errno)
		return wrong("operation %#x: %s", opcode, strerror(errno));
	if (!completion(send_cq, PATIENCE_MS, &wc))
		return wrong("operation %#x does not complete", opcode);
	if (goes_out)
		return true;
	if (wc.status == IBV_WC_SUCCESS)
		return wrong("operation %#x completes with success", opcode);
	if (wc.status == IBV_WC_WR_FLUSH_ERR)
		return wrong("operation %#x is flushed, and does not say why", opcode);
	usleep(SILENCE_MS * 1000);
	state = qp_state(to);
	if (state != before)
		return wrong("operation %#x moved the peer from state %d to %d", opcode, before, state);
	if (completion(recv_cq, 0, &wc))
		return wrong("operation %#x arrived", opcode);
	return true;
}

static bool operations(void)
{
	static const uint32_t wild[] = {
		34, 63, 64, 0xff, 0x100, 0x120, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff,
	};
	bool good = true;
	uint32_t i;

	for (i = 0; i < 34; i++)
		good &= operation(i);
	for (i = 0; i < sizeof(wild) / sizeof(*wild); i++)
		good &= operation(wild[i]);
	for (i = 0; i < 16; i++)
		good &= operation(random_word() | 0x40);
	return good;
}

/*
 * The same through libibverbs: EINVAL if the QP does not have it, or else a completion. A bind has
 * no data, and is refused with it.
 */
static bool posted_operations(void)
{
	bool good = true;
	uint32_t opcode;

	for (opcode = 0; opcode < 34; opcode++) {
		const bool has = opcode < 32 && (carried[transport] | local_only[transport]) & 1u << opcode;
		const int wanted = has && opcode != IBV_WR_BIND_MW ? 0 : EINVAL;
		struct ibv_sge sge = { (uintptr_t)local, 8, local_mr->lkey };
		struct ibv_send_wr wr = {
			.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
		}, *bad;
		struct ibv_wc wc;

		refresh();
		if (transport == UD) {
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = to->qp_num;
			wr.wr.ud.remote_qkey = QKEY;
		} else {
			wr.wr.rdma.remote_addr = (uintptr_t)exposed;
			wr.wr.rdma.rkey = exposed_mr->rkey;
		}
		if (transport == XRC)
			wr.qp_type.xrc.remote_srqn = remote_srq;
		errno = ibv_post_send(from, &wr, &bad);
		if (errno != wanted)
			good = wrong("operation %#x: %s", opcode, strerror(errno));
		if (errno)
			continue;
		if (!completion(send_cq, PATIENCE_MS, &wc))
			good = wrong("operation %#x does not complete", opcode);
		else if (wc.status == IBV_WC_SUCCESS && !(opcode < 32 && carried[transport] & 1u << opcode))
			good = wrong("operation %#x completes with success", opcode);
	}
	return good;
}

/* An inline send begins where the inline data begins, not where the WQE says. */
static bool inline_offset(void)
{
	static const uint32_t offsets[] = { 1, 64, INLINE, 4096, 8192, 65536, 1 << 20, 0x7fffff00 };
	bool good = true;
	unsigned int i;

	for (i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		struct rxe_send_wqe *wqe;
		struct ibv_wc wc;

		refresh();
		memset(exposed, PEERS, BUFFER);
		wqe = start(64);
		wqe->wr.send_flags |= IBV_SEND_INLINE;
		wqe->dma.sge_offset = offsets[i];
		memset(wqe->dma.inline_data, SENDERS, INLINE);
		if (ibv_wr_complete(post) || !completion(send_cq, PATIENCE_MS, &wc))
			return wrong("an inline send from offset %#x does not complete", offsets[i]);
		if (wc.status == IBV_WC_SUCCESS && !completion(recv_cq, PATIENCE_MS, &wc))
			return wrong("an inline send from offset %#x does not arrive", offsets[i]);
		good &= clean();
	}
	return good;
}

/* Data longer than a WQE has room for. */
static bool long_data(void)
{
	static const uint32_t lengths[] = { INLINE + 1, 512, 4096, 65536, 1 << 24, 0xffffffff };
	bool good = true;
	unsigned int i;

	for (i = 0; i < 2 * sizeof(lengths) / sizeof(*lengths); i++) {
		uint32_t length = lengths[i / 2];
		struct rxe_send_wqe *wqe;
		struct ibv_wc wc;

		refresh();
		memset(exposed, PEERS, BUFFER);
		wqe = start(64);
		if (i % 2) {
			set_operation(wqe, IBV_WR_ATOMIC_WRITE);
		} else {
			wqe->wr.send_flags |= IBV_SEND_INLINE;
			memset(wqe->dma.inline_data, SENDERS, INLINE);
		}
		wqe->dma.length = length;
		wqe->dma.resid = length;
		if (ibv_wr_complete(post) || !completion(send_cq, PATIENCE_MS, &wc))
			return wrong("%u bytes do not complete", length);
		if (wc.status == IBV_WC_SUCCESS)
			good = wrong("%u bytes complete with success", length);
		good &= clean();
	}
	return good;
}

/* The response of a READ is scattered to the entries that were checked. */
static bool read_response(void)
{
	static const uint32_t entries[] = { 1, 2, 3, 64, 4096, 1 << 20, 0x10000000 };
	unsigned int i;

	for (i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		struct rxe_send_wqe *wqe;
		struct ibv_wc wc;
		uint64_t end;

		refresh();
		wqe = start(64);
		set_operation(wqe, IBV_WR_RDMA_READ);
		if (ibv_wr_complete(post))
			return wrong("a READ cannot be posted");
		/* while it is on its way */
		end = now_ns() + PATIENCE_MS * 1000000ull;
		do {
			wqe->dma.cur_sge = entries[i];
			wqe->dma.num_sge = 0xffffffff;
			if (now_ns() > end)
				return wrong("a READ does not complete");
		} while (ibv_poll_cq(send_cq, 1, &wc) <= 0);
	}
	return true;
}

/* A window that is not bound has no QP and no region to be released from. */
static bool unbound_window(void)
{
	struct ibv_mw *ours = ibv_alloc_mw(left.pd, IBV_MW_TYPE_2);
	struct ibv_mw *theirs = ibv_alloc_mw(right.pd, IBV_MW_TYPE_2);
	struct rxe_send_wqe *wqe;
	struct ibv_wc wc;
	bool good = true;

	if (!ours || !theirs)
		err(1, "memory windows");
	refresh();
	wqe = start(0);
	wqe->wr.opcode = IBV_WR_LOCAL_INV;
	wqe->wr.ex.invalidate_rkey = ours->rkey;
	if (ibv_wr_complete(post) || !completion(send_cq, PATIENCE_MS, &wc))
		return wrong("a local invalidation does not complete");
	if (wc.status == IBV_WC_SUCCESS)
		good = wrong("a window that is not bound is invalidated");

	reconnect(0, 7);
	wqe = start(64);
	wqe->wr.opcode = IBV_WR_SEND_WITH_INV;
	wqe->wr.ex.invalidate_rkey = theirs->rkey;
	if (ibv_wr_complete(post) || !completion(recv_cq, PATIENCE_MS, &wc))
		return wrong("a SEND with Invalidate does not arrive");
	if (wc.status == IBV_WC_SUCCESS)
		good = wrong("the peer's window that is not bound is invalidated");
	if (ibv_dealloc_mw(ours) || ibv_dealloc_mw(theirs))
		good = wrong("the windows stay");
	return good;
}

/* Nor does the QP that it is bound on have to wait for such a window. */
static bool bound_window(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(left.pd, IBV_MW_TYPE_2);
	struct rxe_send_wqe *wqe;
	struct ibv_wc wc;

	if (!mw)
		err(1, "memory window");
	refresh();
	wqe = start(0);
	wqe->wr.opcode = IBV_WR_BIND_MW;
	wqe->wr.wr.mw.addr = (uintptr_t)local;
	wqe->wr.wr.mw.length = BUFFER;
	wqe->wr.wr.mw.mr_lkey = local_mr->lkey;
	wqe->wr.wr.mw.mw_rkey = mw->rkey;
	wqe->wr.wr.mw.rkey = mw->rkey ^ 1;
	wqe->wr.wr.mw.access = IBV_ACCESS_REMOTE_WRITE;
	if (ibv_wr_complete(post) || !completion(send_cq, PATIENCE_MS, &wc))
		return wrong("a window's binding does not complete");
	return !wc.status || wrong("a window's binding completes with %s", ibv_wc_status_str(wc.status));
}

static bool indices(void)
{
	static const uint32_t wild[] = { 16, 17, 0x100, 0xfffffff, 0x80000000, 0xfffffff0, 0xffffffff };
	unsigned int i;

	for (i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		struct ibv_wc wc;

		refresh();
		start(64);
		if (ibv_wr_complete(post) || !completion(send_cq, PATIENCE_MS, &wc))
			return wrong("a good SEND does not complete");
		send_ring.buffer->producer_index = wild[i];
		ring_doorbell();
		usleep(SILENCE_MS * 1000);
		/* the library believes the index, too */
		reset(from);
		send_ring.buffer->producer_index = send_ring.buffer->consumer_index & send_ring.mask;
		if (send_ring.buffer->producer_index != (wild[i] & send_ring.mask))
			return wrong("index %#x: the queue was emptied up to %#x", wild[i],
				     send_ring.buffer->producer_index);
	}
	return true;
}

/* Some words of a WQE become random, its operation among them. */
static void spoil(struct rxe_send_wqe *wqe)
{
	uint32_t *words = (uint32_t *)wqe, word;
	unsigned int n = random_word() % 4;

	if (random_word() % 4)
		set_operation(wqe, random_word() % 4 ? random_word() % 16 : odd_word());
	while (n--) {
		word = random_word() % (sizeof(*wqe) / 4);
		if (&words[word] != &wqe->wr.opcode)
			words[word] = odd_word();
	}
	if (!(random_word() % 4))
		words[sizeof(*wqe) / 4 + random_word() % (INLINE / 4)] = odd_word();
	/* Then this is sent, and not the numbers in it. */
	if (wqe->wr.send_flags & IBV_SEND_INLINE || wqe->wr.opcode == IBV_WR_ATOMIC_WRITE)
		memset(wqe->dma.inline_data, SENDERS, INLINE);
}

static bool random_wqes(void)
{
	unsigned int done, i, succeeded = 0, failed = 0, flushed = 0;

	for (done = 0; done < wqes; done += BATCH) {
		struct ibv_wc wc;
		bool more;

		refresh();
		/* the library believes the index of before */
		send_ring.buffer->producer_index = send_ring.buffer->consumer_index;
		for (i = 0; i < BATCH; i++) {
			spoil(start(random_word() % BUFFER));
			errno = ibv_wr_complete(post);
			if (errno)
				return wrong("WQE %u: %s", done + i, strerror(errno));
		}
		if (random_word() % 4 == 0)
			send_ring.buffer->producer_index = odd_word();
		ring_doorbell();
		for (more = completion(send_cq, 2, &wc); more; more = ibv_poll_cq(send_cq, 1, &wc) > 0) {
			succeeded += wc.status == IBV_WC_SUCCESS;
			flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
			failed += wc.status && wc.status != IBV_WC_WR_FLUSH_ERR;
		}
		if (!clean())
			return false;
	}
	reset(from);
	send_ring.buffer->producer_index = send_ring.buffer->consumer_index;
	ktap_note("%s: %u WQEs: %u succeed, %u fail, %u are flushed after one that fails", names[transport],
		  done, succeeded, failed, flushed);
	return true;
}

static pthread_mutex_t scribbling = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;

static void *scribble(void *of)
{
	struct ring *ring = of;
	uint32_t *data = (uint32_t *)ring->buffer->data;
	size_t elements = ring->mask + 1, words = 1u << (ring->shift - 2);
	uint32_t state = seed | 1, odd;
	int burst;

	while (!stop) {
		pthread_mutex_lock(&scribbling);
		for (burst = 0; burst < 64; burst++) {
			state = state * 1664525 + 1013904223;
			odd = state & 0x1000 ? state >> 8 : (state >> 8) % 9;
			data[(state >> 16) % elements * words + (state >> 4) % (words < 64 ? words : 64)] = odd;
			if (!(state >> 26))
				ring->buffer->producer_index = odd;
			if (!(state >> 27))
				ring->buffer->consumer_index = odd;
		}
		pthread_mutex_unlock(&scribbling);
		sched_yield();
	}
	return NULL;
}

/*
 * A thread writes to a queue while the driver works on it; any of its bytes may be sent.
 * libibverbs gets to see only indices that it can handle.
 */
static bool race(struct ring *ring)
{
	unsigned int done, i;
	pthread_t thread;

	stop = false;
	errno = pthread_create(&thread, NULL, scribble, ring);
	if (errno)
		err(1, "thread");
	for (done = 0; done < wqes / 5; done += BATCH) {
		pthread_mutex_lock(&scribbling);
		ring->buffer->producer_index = 0;
		reset(from);
		reset(to);
		ring->buffer->producer_index = 0;
		ring->buffer->consumer_index = 0;
		refresh();
		pthread_mutex_unlock(&scribbling);
		for (i = 0; i < BATCH; i++) {
			spoil(start(random_word() % BUFFER));
			ibv_wr_complete(post);
			ring_doorbell();
		}
	}
	stop = true;
	pthread_join(thread, NULL);
	return true;
}

static bool changing_wqes(void)
{
	return race(&send_ring);
}

static bool changing_receives(void)
{
	return race(&recv_ring);
}

static bool changing_completions(void)
{
	return race(&cq_ring);
}

/* ---- processes ---- */

/*
 * A process that does not end waits for the driver, whose worker may well be spinning. Another one
 * would only be the next to wait, until no CPU is left that could report it.
 */
static bool in_child(enum transport kind, bool (*scenario)(void), bool still_works)
{
	uint64_t end = now_ns() + (2 * PATIENCE_MS + wqes * 50) * 1000000ull;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		bool good;

		set_up(kind);
		good = scenario();
		if (still_works)
			good = works() && good;
		good = tear_down() && good;
		fflush(NULL);
		_exit(!good);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_ns() > end) {
			kill(pid, SIGKILL);
			printf("Bail out! %s: the process does not end\n", names[kind]);
			exit(1);
		}
		usleep(1000);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		ktap_note("%s: wait status %#x", names[kind], status);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static void each(bool (*scenario)(void), bool still_works, const char *what)
{
	enum transport kind;
	bool good = true;

	for (kind = RC; kind < TRANSPORTS; kind++)
		good &= in_child(kind, scenario, still_works);
	ktap_result(good, what);
}

int main(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "n:s:")) != -1)
		switch (option) {
		case 'n':
			wqes = strtoul(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoul(optarg, NULL, 0);
			break;
		default:
			errx(2, "usage: forge [-n WQES] [-s SEED]");
		}

	ktap_start("forged work queues", 12);
	each(posted_operations, true, "ibv_post_send() refuses an operation that a QP lacks, and others complete");
	each(operations, true, "an operation that a QP lacks completes in error and sends nothing to the peer");
	each(inline_offset, true, "an inline send sends the inline data, whatever its offset");
	each(long_data, true, "data longer than a WQE is refused");
	ktap_result(in_child(RC, read_response, true) & in_child(XRC, read_response, true),
		    "the response of a READ stays within the WQE");
	ktap_result(in_child(RC, unbound_window, true) & in_child(XRC, unbound_window, true),
		    "a memory window that is not bound is not invalidated");
	ktap_result(in_child(RC, bound_window, true), "a QP with a bound memory window can be destroyed");
	each(indices, true, "an index beyond the queue is one within");
	each(random_wqes, true, "random WQEs do no harm");
	each(changing_wqes, false, "WQEs that change do no harm");
	each(changing_receives, false, "receives that change do no harm");
	ktap_result(in_child(RC, changing_completions, false), "completions that change do no harm");
	return ktap_end();
}
