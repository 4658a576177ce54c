// SPDX-License-Identifier: GPL-2.0
/*
 * Every call of libxrc_rcv against the kernel: its effects, its errors, and
 * that a call that fails leaves nothing behind.
 *
 * usage: library DEVICE
 *
 * Two open devices of one process are two parties to the kernel, which counts
 * by open file.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/xrc_rcv.h>

#include "ktap.h"

static const char *device_name;
static char file_name[] = "/tmp/library.XXXXXX";

/* One party: an open device that holds the domain of the file. */
struct party {
	struct ibv_context *context;
	struct ibv_xrcd *xrcd;
	struct xrc_rcv_event_channel *channel;
};

static struct party a, b;
static struct ibv_port_attr port;
static union ibv_gid gid;

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(context, &attr);
}

static void join(struct party *party)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	int fd = open(file_name, O_RDONLY);

	while (device && *device &&
	       strcmp(ibv_get_device_name(*device), device_name))
		device++;
	if (!device || !*device)
		errx(1, "no device %s", device_name);
	party->context = ibv_open_device(*device);
	ibv_free_device_list(list);
	if (!party->context)
		err(1, "%s", device_name);
	party->xrcd = open_domain(party->context, fd);
	close(fd);
	if (!party->xrcd)
		err(1, "domain");
	party->channel = xrc_rcv_create_event_channel(party->xrcd);
	if (!party->channel)
		err(1, "event channel");
}

static void leave(struct party *party)
{
	xrc_rcv_destroy_event_channel(party->channel);
	if (ibv_close_xrcd(party->xrcd) || ibv_close_device(party->context))
		err(1, "leaving");
}

#define INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static struct ibv_qp_attr attributes(enum ibv_qp_state state)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 0x123,
		.rq_psn = 0x456,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 12,
		.ah_attr = {
			.dlid = port.lid,
			.port_num = 1,
			.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET,
			.grh = { .dgid = gid, .hop_limit = 64 },
		},
	};
}

static struct xrc_rcv_qp *create(struct party *party, uint64_t cookie)
{
	struct xrc_rcv_init_attr init = {
		.channel = party->channel,
		.cookie = cookie,
	};

	return xrc_rcv_alloc_qp(party->xrcd, &init, NULL, 0);
}

static int go(struct party *party, uint32_t qpn, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = attributes(state);
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= INIT_MASK;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
	if (state == IBV_QPS_RTR)
		mask |= RTR_MASK | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
	return xrc_rcv_modify_qp(party->xrcd, qpn, &attr, mask);
}

static struct xrc_rcv_qp_info info(struct party *party, uint32_t qpn)
{
	struct xrc_rcv_qp_info info = { 0 };

	errno = xrc_rcv_query_qp(party->xrcd, qpn, NULL, &info, sizeof(info));
	return info;
}

static bool capabilities(void)
{
	struct xrc_rcv_caps caps;

	HOLDS(!xrc_rcv_query_caps(a.context, &caps, sizeof(caps)));
	HOLDS(caps.version >= XRC_RCV_VERSION);
	HOLDS(caps.alloc_flags & XRC_RCV_ALLOC_LIFETIME_DOMAIN);
	HOLDS(caps.record_size == sizeof(struct xrc_rcv_record));
	HOLDS(caps.event_types & 1ULL << XRC_RCV_EVENT_QP_GONE);
	HOLDS(!(caps.event_types & 1ULL << XRC_RCV_EVENT_OVERRUN));
	HOLDS(caps.event_types & 1ULL << IBV_EVENT_QP_ACCESS_ERR);
	return true;
}

static bool life(void)
{
	struct xrc_rcv_qp *qp = create(&a, 0);
	struct ibv_qp_attr attr;
	uint32_t qpn;

	HOLDS(qp && qp->qp_num && qp->xrcd == a.xrcd);
	qpn = qp->qp_num;
	HOLDS(info(&a, qpn).state == IBV_QPS_RESET);
	HOLDS(info(&a, qpn).lifetime == XRC_RCV_LIFETIME_REGISTRATIONS);
	HOLDS(info(&a, qpn).registrations == 1);
	/* Holding the domain is enough. */
	HOLDS(!go(&b, qpn, IBV_QPS_INIT));
	HOLDS(go(&b, qpn, IBV_QPS_RTS) == EINVAL);
	HOLDS(info(&a, qpn).state == IBV_QPS_INIT);
	HOLDS(!go(&b, qpn, IBV_QPS_RTR));
	memset(&attr, 0xa5, sizeof(attr));
	HOLDS(!xrc_rcv_query_qp(b.xrcd, qpn, &attr, NULL, 0));
	HOLDS(attr.qp_state == IBV_QPS_RTR && attr.dest_qp_num == 0x123);
	HOLDS(attr.rq_psn == 0x456 && attr.path_mtu == IBV_MTU_1024);
	HOLDS(attr.min_rnr_timer == 12 && attr.port_num == 1);
	HOLDS(attr.cap.max_send_wr == 0 && attr.cap.max_recv_wr == 0);
	HOLDS(!xrc_rcv_unreg_qp(qp));
	HOLDS(xrc_rcv_query_qp(a.xrcd, qpn, &attr, NULL, 0) == EINVAL);
	return true;
}

static bool one_call(void)
{
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTR);
	struct xrc_rcv_qp *qp;

	qp = xrc_rcv_alloc_qp(a.xrcd, NULL, &attr, INIT_MASK);
	HOLDS(qp && info(&a, qp->qp_num).state == IBV_QPS_INIT);
	HOLDS(!xrc_rcv_unreg_qp(qp));
	qp = xrc_rcv_alloc_qp(a.xrcd, NULL, &attr, INIT_MASK | RTR_MASK);
	HOLDS(qp && info(&a, qp->qp_num).state == IBV_QPS_RTR);
	HOLDS(!xrc_rcv_unreg_qp(qp));
	qp = xrc_rcv_alloc_qp(a.xrcd, NULL, &attr,
			      INIT_MASK | RTR_MASK | IBV_QP_QKEY |
			      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY);
	HOLDS(qp && info(&a, qp->qp_num).state == IBV_QPS_RTR);
	HOLDS(!xrc_rcv_unreg_qp(qp));
	return true;
}

static bool count(struct party *party, uint32_t expected)
{
	size_t none = 0;
	uint32_t total;

	return !xrc_rcv_query_domain(party->xrcd, 0, NULL, 0, &none, &total) &&
	       total == expected;
}

/* The core allows a second path on InfiniBand only. */
static bool alternate_path(void)
{
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTR), seen;
	struct xrc_rcv_qp *qp;

	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_ah_attr.sl = 3;
	attr.alt_port_num = 1;
	attr.alt_timeout = 14;
	qp = xrc_rcv_alloc_qp(a.xrcd, NULL, &attr,
			      INIT_MASK | RTR_MASK | IBV_QP_ALT_PATH);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		HOLDS(!qp && errno == EINVAL && count(&a, 0));
		return true;
	}
	HOLDS(qp && !xrc_rcv_query_qp(a.xrcd, qp->qp_num, &seen, NULL, 0));
	HOLDS(seen.alt_ah_attr.sl == 3 && seen.alt_ah_attr.dlid == port.lid);
	HOLDS(seen.alt_port_num == 1 && seen.alt_timeout == 14);
	HOLDS(!go(&a, qp->qp_num, IBV_QPS_RTS));
	attr.alt_ah_attr.sl = 5;
	attr.path_mig_state = IBV_MIG_REARM;
	HOLDS(!xrc_rcv_modify_qp(b.xrcd, qp->qp_num, &attr,
				 IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
	HOLDS(!xrc_rcv_query_qp(a.xrcd, qp->qp_num, &seen, NULL, 0));
	HOLDS(seen.alt_ah_attr.sl == 5 && seen.path_mig_state != IBV_MIG_MIGRATED);
	HOLDS(!xrc_rcv_unreg_qp(qp) && count(&a, 0));
	return true;
}

static bool refused(void)
{
	struct xrc_rcv_init_attr init = { .flags = 1u << 31 };
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTR);
	struct {
		struct ibv_context *context;
		uint32_t comp_mask, handle;
	} foreign = { a.context, 0, 0xfffff };

	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0) && errno == EINVAL);
	init = (struct xrc_rcv_init_attr){ .comp_mask = 1 << 2 };
	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0) && errno == EINVAL);
	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, NULL, &attr,
				INIT_MASK & ~IBV_QP_PORT) && errno == EINVAL);
	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, NULL, &attr,
				(INIT_MASK | RTR_MASK) & ~IBV_QP_AV) &&
	      errno == EINVAL);
	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, NULL, NULL, IBV_QP_PORT) &&
	      errno == EINVAL);
	attr.port_num = 99;
	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, NULL, &attr, INIT_MASK) && errno);
	HOLDS(!xrc_rcv_alloc_qp((struct ibv_xrcd *)&foreign, NULL, NULL, 0) &&
	      errno == EBADF);
	HOLDS(count(&a, 0));
	return true;
}

static bool registering(void)
{
	struct ibv_xrcd *other = open_domain(b.context, -1);
	struct xrc_rcv_qp *first = create(&a, 0), *second, *again, *twice;

	HOLDS(first && other);
	/* Of a channel once, of another as well. */
	again = xrc_rcv_reg_qp(b.xrcd, first->qp_num, b.channel, 0);
	twice = xrc_rcv_reg_qp(b.xrcd, first->qp_num, b.channel, 0);
	HOLDS(again && twice && info(&a, first->qp_num).registrations == 2);
	HOLDS(!xrc_rcv_unreg_qp(again) && info(&a, first->qp_num).registrations == 1);
	HOLDS(!xrc_rcv_unreg_qp(twice) && info(&a, first->qp_num).registrations == 1);
	again = xrc_rcv_reg_qp(a.xrcd, first->qp_num, b.channel, 0);
	HOLDS(again && info(&a, first->qp_num).registrations == 2);
	HOLDS(!xrc_rcv_unreg_qp(again) && info(&a, first->qp_num).registrations == 1);
	HOLDS(!xrc_rcv_reg_qp(b.xrcd, 0xfffffe, NULL, 0) && errno == EINVAL);
	HOLDS(!xrc_rcv_reg_qp(other, first->qp_num, NULL, 0) &&
	      errno == EINVAL);
	second = xrc_rcv_reg_qp(b.xrcd, first->qp_num, NULL, 0);
	HOLDS(second && info(&a, first->qp_num).registrations == 2);
	HOLDS(!xrc_rcv_unreg_qp(first));
	HOLDS(info(&a, second->qp_num).registrations == 1);
	HOLDS(!xrc_rcv_unreg_qp(second));
	HOLDS(count(&a, 0) && !ibv_close_xrcd(other));
	return true;
}

static bool domain_lifetime(void)
{
	struct xrc_rcv_init_attr init = {
		.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,
		.channel = a.channel,
		.cookie = 77,
	};
	struct xrc_rcv_qp *qp = xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0);
	struct xrc_rcv_event event;
	struct xrc_rcv_qp *other;
	uint32_t qpn;

	HOLDS(qp);
	qpn = qp->qp_num;
	HOLDS(info(&a, qpn).lifetime == XRC_RCV_LIFETIME_DOMAIN);
	HOLDS(!xrc_rcv_unreg_qp(qp));
	HOLDS(info(&a, qpn).qp_num == qpn && info(&a, qpn).registrations == 0);
	qp = xrc_rcv_reg_qp(a.xrcd, qpn, a.channel, 78);
	other = xrc_rcv_reg_qp(b.xrcd, qpn, NULL, 0);
	HOLDS(qp && other);
	HOLDS(xrc_rcv_destroy_qp(a.xrcd, qpn, 0) == EBUSY);
	HOLDS(!xrc_rcv_unreg_qp(other));
	HOLDS(xrc_rcv_destroy_qp(a.xrcd, qpn, 0) == EBUSY);
	HOLDS(!xrc_rcv_destroy_qp(a.xrcd, qpn, XRC_RCV_DESTROY_FORCE));
	HOLDS(xrc_rcv_destroy_qp(a.xrcd, qpn, 0) == EINVAL);
	HOLDS(!xrc_rcv_get_event(a.channel, &event, sizeof(event)));
	HOLDS(event.type == XRC_RCV_EVENT_QP_GONE && event.cookie == 78);
	/* The registration stays until UNREG. */
	HOLDS(!xrc_rcv_unreg_qp(qp));
	qp = create(&a, 0);
	HOLDS(qp && xrc_rcv_destroy_qp(a.xrcd, qp->qp_num, 0) == EINVAL);
	HOLDS(!xrc_rcv_unreg_qp(qp));
	return true;
}

static bool pages(void)
{
	struct xrc_rcv_qp_info page[7];
	struct xrc_rcv_qp *qps[30];
	uint32_t after = 0, total;
	size_t filled, seen = 0, i;

	for (i = 0; i < 30; i++)
		HOLDS((qps[i] = create(&a, i)));
	do {
		filled = 7;
		HOLDS(!xrc_rcv_query_domain(b.xrcd, after, page, sizeof(*page),
					    &filled, &total));
		HOLDS(filled <= 7 && total == 30);
		for (i = 0; i < filled; i++) {
			HOLDS(page[i].qp_num > after);
			after = page[i].qp_num;
		}
		seen += filled;
	} while (filled);
	HOLDS(seen == 30);
	for (i = 0; i < 30; i++)
		HOLDS(!xrc_rcv_unreg_qp(qps[i]));
	HOLDS(count(&b, 0));
	return true;
}

static bool readable(struct party *party, int timeout)
{
	struct pollfd fd = { .fd = party->channel->fd, .events = POLLIN };

	return poll(&fd, 1, timeout) == 1 && fd.revents == POLLIN;
}

static bool events(void)
{
	struct xrc_rcv_qp *first = create(&a, 0x1122334455667788), *second;
	struct xrc_rcv_event records[8];
	struct timespec now;
	uint64_t start;
	ssize_t n;

	HOLDS(first);
	second = xrc_rcv_reg_qp(b.xrcd, first->qp_num, b.channel, 2);
	HOLDS(second);
	HOLDS(!readable(&a, 0) && !readable(&b, 0));
	clock_gettime(CLOCK_MONOTONIC, &now);
	start = now.tv_sec * 1000000000ULL + now.tv_nsec;
	HOLDS(!go(&a, first->qp_num, IBV_QPS_INIT));
	HOLDS(!go(&a, first->qp_num, IBV_QPS_RTR));
	HOLDS(!go(&a, first->qp_num, IBV_QPS_ERR));

	/* An SRQ's QP that is in error says that it takes no more receives. */
	HOLDS(readable(&a, PATIENCE_MS) && readable(&b, PATIENCE_MS));
	n = xrc_rcv_read_events(a.channel, records, sizeof(*records), 8);
	HOLDS(n == 1 && records[0].type == IBV_EVENT_QP_LAST_WQE_REACHED);
	HOLDS(records[0].cookie == 0x1122334455667788);
	HOLDS(records[0].qp_num == first->qp_num && records[0].count == 1);
	HOLDS(records[0].last_ns >= start && !records[0].reserved);
	HOLDS(!readable(&a, 0));
	HOLDS(xrc_rcv_read_events(a.channel, records, sizeof(*records), 0) == -1 &&
	      errno == EINVAL);
	HOLDS(xrc_rcv_read_events(a.channel, records, 0, 8) == -1 &&
	      errno == EINVAL);
	HOLDS(!fcntl(a.channel->fd, F_SETFL, O_NONBLOCK));
	HOLDS(xrc_rcv_read_events(a.channel, records, sizeof(*records), 8) == -1 &&
	      errno == EAGAIN);
	HOLDS(xrc_rcv_get_event(a.channel, records, sizeof(*records)) == EAGAIN);
	HOLDS(!fcntl(a.channel->fd, F_SETFL, 0));

	/* Unread records are dropped with the registration. */
	HOLDS(readable(&b, 0) && !xrc_rcv_unreg_qp(second));
	HOLDS(!readable(&b, 0));
	HOLDS(!xrc_rcv_unreg_qp(first));
	return true;
}

/* Whether a party has no event, whatever records its channel has. */
static bool has_none(struct party *party)
{
	struct xrc_rcv_event event;

	HOLDS(!fcntl(party->channel->fd, F_SETFL, O_NONBLOCK));
	HOLDS(xrc_rcv_get_event(party->channel, &event, sizeof(event)) == EAGAIN);
	HOLDS(!fcntl(party->channel->fd, F_SETFL, 0));
	return true;
}

/* Breaks a QP, from any state: it has an event some time after that. */
static bool breaks(struct party *party, uint32_t qpn)
{
	return !go(party, qpn, IBV_QPS_RESET) && !go(party, qpn, IBV_QPS_INIT) &&
	       !go(party, qpn, IBV_QPS_ERR);
}

/*
 * The same, and waits for the event, by a registration of another channel: a QP that
 * leaves ERR before has none.
 */
static bool breaks_before(struct xrc_rcv_event_channel *witness, uint32_t qpn)
{
	struct xrc_rcv_event event;

	HOLDS(breaks(&a, qpn));
	HOLDS(!xrc_rcv_get_event(witness, &event, sizeof(event)));
	HOLDS(event.qp_num == qpn && event.count == 1);
	return true;
}

/* Whether the next events of a party, of one type, are that many, and have that cookie. */
static bool hears(struct party *party, uint64_t cookie, uint32_t times)
{
	struct xrc_rcv_event event;

	for (; times; times -= event.count) {
		HOLDS(!xrc_rcv_get_event(party->channel, &event, sizeof(event)));
		HOLDS(event.type == IBV_EVENT_QP_LAST_WQE_REACHED);
		HOLDS(event.cookie == cookie && event.count && event.count <= times);
	}
	return true;
}

/* The kernel counts the events of a QP; those of a registration begin with it. */
static bool counts(void)
{
	struct xrc_rcv_event_channel *witness = xrc_rcv_create_event_channel(b.xrcd);
	struct xrc_rcv_qp *first = create(&a, 1), *second, *again, *third;
	uint32_t qpn;

	HOLDS(first && witness);
	qpn = first->qp_num;
	third = xrc_rcv_reg_qp(b.xrcd, qpn, witness, 0);
	HOLDS(third && breaks_before(witness, qpn) && hears(&a, 1, 1));
	HOLDS(breaks_before(witness, qpn) && breaks_before(witness, qpn) && hears(&a, 1, 2));
	second = xrc_rcv_reg_qp(b.xrcd, qpn, b.channel, 2);
	HOLDS(second && breaks_before(witness, qpn) && hears(&a, 1, 1) && hears(&b, 2, 1));

	/* A registration stays as it is, and a new one begins anew. */
	HOLDS((again = xrc_rcv_reg_qp(b.xrcd, qpn, b.channel, 3)));
	HOLDS(breaks_before(witness, qpn) && hears(&b, 2, 1) && breaks_before(witness, qpn));
	HOLDS(!xrc_rcv_unreg_qp(again) && has_none(&b));
	HOLDS(!xrc_rcv_unreg_qp(second) && has_none(&b));
	second = xrc_rcv_reg_qp(b.xrcd, qpn, b.channel, 4);
	HOLDS(second && has_none(&b) && breaks_before(witness, qpn) && hears(&b, 4, 1));
	HOLDS(hears(&a, 1, 3) && has_none(&a));
	HOLDS(!xrc_rcv_unreg_qp(second) && !xrc_rcv_unreg_qp(first) && !xrc_rcv_unreg_qp(third));
	HOLDS(!xrc_rcv_destroy_event_channel(witness));
	HOLDS(count(&a, 0));
	return true;
}

/* Registrations that begin and end while threads read the channel, by their cookies. */
#define CYCLES 200
static _Atomic bool has_ended[2 * CYCLES + 1];
static _Atomic bool all_is_done;
static _Atomic uint32_t read_of_kept;

static void *reader(void *argument)
{
	static const char ok[] = "";
	struct xrc_rcv_event events[4];
	bool ended[2 * CYCLES + 1];
	ssize_t count, i;

	(void)argument;
	while (!all_is_done) {
		for (i = 0; i <= 2 * CYCLES; i++)
			ended[i] = has_ended[i];
		count = xrc_rcv_read_events(a.channel, events, sizeof(*events), 4);
		if (count < 0 && errno == EAGAIN) {
			sched_yield();
			continue;
		}
		if (count < 0)
			return NULL;
		for (i = 0; i < count; i++) {
			if (events[i].cookie > 2 * CYCLES || ended[events[i].cookie])
				return NULL;
			if (!events[i].cookie)
				read_of_kept += events[i].count;
		}
	}
	return (void *)ok;
}

static void *cycler(void *first_cookie)
{
	static const char ok[] = "";
	uint64_t cookie = (uintptr_t)first_cookie;
	int i;

	for (i = 0; i < CYCLES; i++, cookie++) {
		struct xrc_rcv_qp *other = create(&a, cookie);

		if (!other || go(&b, other->qp_num, IBV_QPS_INIT) ||
		    go(&b, other->qp_num, IBV_QPS_ERR) || xrc_rcv_unreg_qp(other))
			return NULL;
		has_ended[cookie] = true;
	}
	return (void *)ok;
}

static bool readers(void)
{
	struct xrc_rcv_event_channel *witness = xrc_rcv_create_event_channel(b.xrcd);
	struct xrc_rcv_qp *kept = create(&a, 0), *other;
	pthread_t reading[3], cycling[2];
	bool fine = true;
	void *result;
	uint32_t i;

	HOLDS(kept && witness && !fcntl(a.channel->fd, F_SETFL, O_NONBLOCK));
	other = xrc_rcv_reg_qp(b.xrcd, kept->qp_num, witness, 0);
	HOLDS(other);
	for (i = 0; i < 3; i++)
		HOLDS(!pthread_create(&reading[i], NULL, reader, NULL));
	for (i = 0; i < 2; i++)
		HOLDS(!pthread_create(&cycling[i], NULL, cycler, (void *)(uintptr_t)(1 + i * CYCLES)));
	for (i = 0; i < CYCLES; i++)
		fine &= breaks_before(witness, kept->qp_num);
	for (i = 0; i < 2; i++)
		fine &= !pthread_join(cycling[i], &result) && result;
	for (i = 0; i < PATIENCE_MS && read_of_kept < CYCLES; i++)
		usleep(1000);
	all_is_done = true;
	for (i = 0; i < 3; i++)
		fine &= !pthread_join(reading[i], &result) && result;
	HOLDS(fine && read_of_kept == CYCLES);
	HOLDS(!fcntl(a.channel->fd, F_SETFL, 0));
	HOLDS(!xrc_rcv_unreg_qp(other) && !xrc_rcv_unreg_qp(kept) && count(&a, 0));
	HOLDS(!xrc_rcv_destroy_event_channel(witness));
	return true;
}

static bool names(void)
{
	HOLDS(!strcmp(xrc_rcv_event_type_str(IBV_EVENT_QP_ACCESS_ERR),
		      ibv_event_type_str(IBV_EVENT_QP_ACCESS_ERR)));
	HOLDS(!strcmp(xrc_rcv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED),
		      ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED)));
	HOLDS(!strcmp(xrc_rcv_event_type_str(XRC_RCV_EVENT_QP_GONE),
		      "receive QP destroyed"));
	HOLDS(!strcmp(xrc_rcv_event_type_str(XRC_RCV_EVENT_OVERRUN),
		      "events of receive QPs lost"));
	HOLDS(!strcmp(xrc_rcv_event_type_str(1000), "unknown"));
	return true;
}

#define BIT(type) (1ULL << (type))

/* No event is returned that the mask of its registration excludes. */
static bool event_masks(void)
{
	struct xrc_rcv_init_attr init = {
		.comp_mask = XRC_RCV_INIT_ATTR_EVENTS,
		.channel = a.channel,
		.events = BIT(IBV_EVENT_COMM_EST),
	};
	struct xrc_rcv_reg_attr attr = { .channel = b.channel, .cookie = 5 };
	struct xrc_rcv_qp *first = xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0), *second;
	struct xrc_rcv_event event;

	HOLDS(first);
	second = xrc_rcv_reg_qp_ex(b.xrcd, first->qp_num, NULL);
	HOLDS(second && !xrc_rcv_unreg_qp(second));
	second = xrc_rcv_reg_qp_ex(b.xrcd, first->qp_num, &attr);
	HOLDS(second && second->qp_num == first->qp_num);
	HOLDS(!go(&a, first->qp_num, IBV_QPS_INIT) && !go(&a, first->qp_num, IBV_QPS_ERR));
	HOLDS(!xrc_rcv_get_event(b.channel, &event, sizeof(event)));
	HOLDS(event.type == IBV_EVENT_QP_LAST_WQE_REACHED && event.cookie == 5);
	HOLDS(has_none(&a) && !readable(&a, 0) && !xrc_rcv_unreg_qp(second));

	/* A blocking read waits for another. */
	second = create(&a, 6);
	HOLDS(second && breaks(&a, first->qp_num) && breaks(&a, second->qp_num));
	HOLDS(hears(&a, 6, 1) && !xrc_rcv_unreg_qp(second));

	/* QP_GONE only; and not even that. */
	HOLDS(!xrc_rcv_unreg_qp(first));
	init.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
	init.events = 0;
	first = xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0);
	attr.comp_mask = XRC_RCV_REG_ATTR_EVENTS;
	attr.events = BIT(XRC_RCV_EVENT_QP_GONE);
	HOLDS(first && (second = xrc_rcv_reg_qp_ex(b.xrcd, first->qp_num, &attr)));
	HOLDS(!go(&a, first->qp_num, IBV_QPS_INIT) && !go(&a, first->qp_num, IBV_QPS_ERR));
	HOLDS(has_none(&b) && !xrc_rcv_unreg_qp(second));
	HOLDS(!xrc_rcv_destroy_qp(a.xrcd, first->qp_num, XRC_RCV_DESTROY_FORCE));
	HOLDS(has_none(&a) && !xrc_rcv_unreg_qp(first));

	HOLDS(count(&a, 0));
	return true;
}

static bool refused_masks(void)
{
	struct xrc_rcv_init_attr init = { .comp_mask = XRC_RCV_INIT_ATTR_EVENTS, .events = BIT(8) };
	struct xrc_rcv_reg_attr attr = { .comp_mask = XRC_RCV_REG_ATTR_EVENTS, .channel = b.channel };
	struct xrc_rcv_qp *first = create(&a, 0);

	HOLDS(first);
	HOLDS(!xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0) && errno == EINVAL);
	attr.events = ~0ULL;
	HOLDS(!xrc_rcv_reg_qp_ex(b.xrcd, first->qp_num, &attr) && errno == EINVAL);
	attr = (struct xrc_rcv_reg_attr){ .comp_mask = 1 << 1 };
	HOLDS(!xrc_rcv_reg_qp_ex(b.xrcd, first->qp_num, &attr) && errno == EINVAL);
	attr = (struct xrc_rcv_reg_attr){ .reserved = 1 };
	HOLDS(!xrc_rcv_reg_qp_ex(b.xrcd, first->qp_num, &attr) && errno == EINVAL);
	HOLDS(info(&a, first->qp_num).registrations == 1);
	HOLDS(!xrc_rcv_unreg_qp(first) && count(&a, 0));
	return true;
}

/* Processes other than the creator identify a QP by its label and its peer. */
static bool labels(void)
{
	struct xrc_rcv_init_attr init = {
		.comp_mask = XRC_RCV_INIT_ATTR_LABEL,
		.label = 0xfedcba9876543210,
	};
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTR);
	struct xrc_rcv_qp *labelled, *unlabelled;
	struct xrc_rcv_qp_info infos[2], *other;
	size_t filled = 2;

	labelled = xrc_rcv_alloc_qp(a.xrcd, &init, &attr, INIT_MASK | RTR_MASK);
	HOLDS(labelled && (unlabelled = create(&a, 77)));
	HOLDS(info(&b, labelled->qp_num).label == init.label);
	HOLDS(info(&b, labelled->qp_num).dest_qp_num == 0x123);
	HOLDS(!info(&b, unlabelled->qp_num).label && !info(&b, unlabelled->qp_num).dest_qp_num);
	HOLDS(!xrc_rcv_query_domain(b.xrcd, 0, infos, sizeof(*infos), &filled, NULL));
	HOLDS(filled == 2);
	other = &infos[infos[0].qp_num == labelled->qp_num];
	HOLDS(other->qp_num == unlabelled->qp_num && !other->label && !other->dest_qp_num);
	other = &infos[infos[0].qp_num != labelled->qp_num];
	HOLDS(other->qp_num == labelled->qp_num && other->label == init.label);
	HOLDS(other->dest_qp_num == 0x123 && other->state == IBV_QPS_RTR && !other->reserved);
	HOLDS(!xrc_rcv_unreg_qp(labelled) && !xrc_rcv_unreg_qp(unlabelled));
	return true;
}

/* The next event of a channel is of a QP, of one type and one occurrence. */
static bool next_is(struct xrc_rcv_event_channel *channel, uint32_t qpn, uint32_t type,
		    uint64_t cookie)
{
	struct xrc_rcv_event event;

	HOLDS(!xrc_rcv_get_event(channel, &event, sizeof(event)));
	HOLDS(event.qp_num == qpn && event.type == type && event.count == 1);
	HOLDS(event.cookie == cookie);
	return true;
}

/*
 * As the channel of ALLOC, a channel of all has no registration of its own, whose cookie its events
 * would have, and which UNREG would end.
 */
static bool creates(struct xrc_rcv_event_channel *keeper, struct xrc_rcv_event_channel *observer)
{
	struct xrc_rcv_init_attr init = {
		.comp_mask = XRC_RCV_INIT_ATTR_LABEL,
		.channel = keeper,
		.cookie = 78,
		.label = 79,
	};
	struct xrc_rcv_qp *qp = xrc_rcv_alloc_qp(b.xrcd, &init, NULL, 0);

	HOLDS(qp && info(&a, qp->qp_num).registrations == 2);
	HOLDS(next_is(keeper, qp->qp_num, XRC_RCV_EVENT_QP_ADDED, 79) && !xrc_rcv_unreg_qp(qp));
	init.channel = observer;
	HOLDS(!xrc_rcv_alloc_qp(b.xrcd, &init, NULL, 0) && errno == EINVAL);
	return true;
}

/* A channel of all gets events of each QP, with its label, and keeps it or not. */
static bool all(void)
{
	struct xrc_rcv_init_attr init = {
		.comp_mask = XRC_RCV_INIT_ATTR_LABEL,
		.label = 0xfedcba9876543210,
	};
	struct xrc_rcv_qp *old = xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0), *qp;
	struct xrc_rcv_event_channel *keeper, *observer;
	uint32_t qpn, old_qpn;

	HOLDS(!xrc_rcv_create_event_channel_of_all(b.xrcd, 1) && errno == EINVAL);
	HOLDS(old && (old_qpn = old->qp_num));
	observer = xrc_rcv_create_event_channel_of_all(b.xrcd, XRC_RCV_EVENT_CHANNEL_OBSERVE);
	HOLDS(observer && observer->context == b.context && info(&a, old_qpn).registrations == 2);

	/* QPs that are created later, with a label and without, end with their registration. */
	init.label = 77;
	qp = xrc_rcv_alloc_qp(a.xrcd, &init, NULL, 0);
	HOLDS(qp && (qpn = qp->qp_num) && info(&a, qpn).registrations == 2);
	HOLDS(next_is(observer, qpn, XRC_RCV_EVENT_QP_ADDED, 77));
	HOLDS(!xrc_rcv_unreg_qp(qp) && next_is(observer, qpn, XRC_RCV_EVENT_QP_GONE, 77));
	qp = create(&a, 5);
	HOLDS(qp && (qpn = qp->qp_num) && next_is(observer, qpn, XRC_RCV_EVENT_QP_ADDED, 0));
	HOLDS(breaks(&a, qpn) && next_is(observer, qpn, IBV_EVENT_QP_LAST_WQE_REACHED, 0));
	HOLDS(hears(&a, 5, 1) && !xrc_rcv_unreg_qp(qp));
	HOLDS(next_is(observer, qpn, XRC_RCV_EVENT_QP_GONE, 0));

	keeper = xrc_rcv_create_event_channel_of_all(b.xrcd, 0);
	/* Of QPs that exist come events, and no QP_ADDED. */
	HOLDS(keeper && !xrc_rcv_unreg_qp(old) && breaks(&a, old_qpn));
	HOLDS(next_is(keeper, old_qpn, IBV_EVENT_QP_LAST_WQE_REACHED, 0xfedcba9876543210));
	HOLDS(next_is(observer, old_qpn, IBV_EVENT_QP_LAST_WQE_REACHED, 0xfedcba9876543210));
	qp = create(&a, 0);
	HOLDS(qp && (qpn = qp->qp_num) && !xrc_rcv_unreg_qp(qp) && count(&a, 2));
	HOLDS(next_is(keeper, qpn, XRC_RCV_EVENT_QP_ADDED, 0));

	HOLDS(creates(keeper, observer) && count(&a, 3));

	/* With it the QPs end that nothing else keeps. */
	HOLDS(!xrc_rcv_destroy_event_channel(keeper) && count(&a, 0));
	HOLDS(next_is(observer, qpn, XRC_RCV_EVENT_QP_ADDED, 0));
	HOLDS(!xrc_rcv_destroy_event_channel(observer));
	return true;
}

static bool closing(void)
{
	struct xrc_rcv_qp *first, *second;
	struct party c;

	join(&c);
	first = create(&c, 0);
	HOLDS(first);
	second = xrc_rcv_reg_qp(a.xrcd, first->qp_num, NULL, 0);
	HOLDS(second && info(&a, second->qp_num).registrations == 2);
	/* A receive QP does not keep its domain from being closed. */
	leave(&c);
	HOLDS(info(&a, second->qp_num).registrations == 1);
	/* The other remains an object, even if its descriptor is another's. */
	HOLDS(!xrc_rcv_unreg_qp(first));
	HOLDS(info(&a, second->qp_num).registrations == 1);
	HOLDS(!xrc_rcv_unreg_qp(second) && count(&a, 0));
	return true;
}

/* A child while the parent's threads are in the library: all its calls return. */
static bool child_returns(void)
{
	struct xrc_rcv_caps caps;
	struct xrc_rcv_qp *qp;
	int i, status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		if (xrc_rcv_query_caps(a.context, &caps, sizeof(caps)))
			_exit(1);
		qp = xrc_rcv_alloc_qp(a.xrcd, NULL, NULL, 0);
		if (!qp || xrc_rcv_unreg_qp(qp))
			_exit(1);
		/* With a channel that these threads register. */
		qp = create(&a, 0);
		_exit(!qp || xrc_rcv_unreg_qp(qp));
	}
	for (i = 0; i < PATIENCE_MS; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return !status;
		usleep(1000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return false;
}

static bool killing(void)
{
	struct xrc_rcv_qp *second;
	uint32_t qpn = 0;
	int pipes[2], i;
	pid_t pid;

	HOLDS(!pipe(pipes));
	pid = fork();
	if (!pid) {
		struct xrc_rcv_qp *first;
		struct party c;

		join(&c);
		first = create(&c, 0);
		if (first && write(pipes[1], &first->qp_num, 4) == 4)
			pause();
		_exit(1);
	}
	HOLDS(read(pipes[0], &qpn, 4) == 4);
	second = xrc_rcv_reg_qp(a.xrcd, qpn, NULL, 0);
	HOLDS(second && info(&a, qpn).registrations == 2);
	HOLDS(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
	for (i = 0; i < PATIENCE_MS && info(&a, qpn).registrations != 1; i++)
		usleep(1000);
	HOLDS(info(&a, qpn).registrations == 1);
	HOLDS(!xrc_rcv_unreg_qp(second) && count(&a, 0));
	close(pipes[0]);
	close(pipes[1]);
	return true;
}

/* A thread's own QP, and all others', on the same two open devices. */
static void *crowd(void *argument)
{
	static const char ok[] = "";
	unsigned int i;

	(void)argument;
	for (i = 0; i < 50; i++) {
		struct xrc_rcv_qp *qp = create(&a, i), *other;
		struct xrc_rcv_qp_info page[8];
		size_t filled = 8;

		if (!qp || go(&b, qp->qp_num, IBV_QPS_INIT))
			return NULL;
		if (xrc_rcv_query_domain(b.xrcd, 0, page, sizeof(*page), &filled,
					 NULL) || !filled)
			return NULL;
		/* Another thread's QP may be destroyed at any time. */
		if (xrc_rcv_query_qp(b.xrcd, page[0].qp_num, NULL, page,
				     sizeof(*page)) &&
		    page[0].qp_num == qp->qp_num)
			return NULL;
		other = xrc_rcv_reg_qp(b.xrcd, qp->qp_num, b.channel, i);
		if (!other || xrc_rcv_unreg_qp(qp) || xrc_rcv_unreg_qp(other))
			return NULL;
	}
	return (void *)ok;
}

static bool threads(void)
{
	pthread_t thread[4];
	bool fine = true;
	void *result;
	int i;

	for (i = 0; i < 4; i++)
		HOLDS(!pthread_create(&thread[i], NULL, crowd, NULL));
	for (i = 0; i < 30; i++)
		fine &= child_returns();
	for (i = 0; i < 4; i++)
		fine &= !pthread_join(thread[i], &result) && result;
	HOLDS(fine && count(&a, 0));
	return true;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		errx(2, "usage: library DEVICE");
	device_name = argv[1];
	close(mkstemp(file_name));
	join(&a);
	join(&b);
	if (ibv_query_port(a.context, 1, &port) ||
	    ibv_query_gid(a.context, 1, 0, &gid))
		err(1, "port 1");

	ktap_start("libxrc_rcv", 19);
	ktap_result(capabilities(), "query_caps returns the capabilities");
	ktap_result(life(), "alloc_qp, modify_qp, query_qp and unreg_qp work together");
	ktap_result(one_call(), "alloc_qp takes a QP to INIT or RTR in one call");
	ktap_result(alternate_path(), "alloc_qp and modify_qp take an alternate path, except on Ethernet");
	ktap_result(refused(), "a refused alloc_qp leaves nothing");
	ktap_result(registering(), "reg_qp takes a channel of another file, and refuses an unknown number and another domain");
	ktap_result(domain_lifetime(), "destroy_qp destroys a QP of the domain's lifetime");
	ktap_result(pages(), "query_domain returns the QPs page by page");
	ktap_result(events(), "events have a cookie and a time, and are dropped by unreg_qp");
	ktap_result(event_masks(), "alloc_qp and reg_qp_ex select the events of a registration");
	ktap_result(refused_masks(), "alloc_qp and reg_qp_ex refuse events that there are not");
	ktap_result(counts(), "events are counted from the registration on, once");
	ktap_result(readers(), "threads read a channel whose registrations begin and end");
	ktap_result(labels(), "query_qp and query_domain return the label and the peer");
	ktap_result(names(), "event_type_str names every type");
	ktap_result(all(), "create_event_channel_of_all reports each QP, and keeps it or not");
	ktap_result(closing(), "closing the device drops its registrations");
	ktap_result(killing(), "killing the creator drops its registration");
	ktap_result(threads(), "threads and forked children share open devices");
	leave(&b);
	leave(&a);
	unlink(file_name);
	return ktap_end();
}
