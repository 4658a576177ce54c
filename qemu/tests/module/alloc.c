// SPDX-License-Identifier: GPL-2.0
/*
 * ALLOC as the first proposal had it: one call and the QP is ready, it belongs
 * to its domain and dies with the domain's last close. And ALLOC, MODIFY and
 * QUERY attribute by attribute: which are required, which may be missing, which
 * are refused, and that a refusal leaves nothing behind, nor does an ALLOC that
 * fails when its QP has had an event.
 *
 * tags: debug vmlx4 long-vmlx4 vmlx5 traced
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ktap.h"
#include "member.h"
#include "observe.h"

#define DOMAIN_FILE "/tmp/alloc"
#define OTHER_FILE "/tmp/alloc-other"
#define LABEL 0xfedcba9876543210

enum {
	DEPTH = 8,
	SIZE = 4096,
	MESSAGES = 50,

	INIT_BITS = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR_BITS = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
};

static struct actor a, b, stranger, remote_actor;
static struct member_info *ma, *mb, *ms;
static struct remote *remote;
static struct traffic *traffic;
static struct delivery *delivery;

/* ---- acts ---- */

static int info(struct xrc_rcv_qp_info *info)
{
	return rcv_query(member.domain, member.member_info->qp_num, NULL, info);
}

static int no_registrations(void *argument)
{
	struct xrc_rcv_qp_info found;
	int result = info(&found);

	(void)argument;
	if (result)
		return result;
	return found.registrations == 0 && found.lifetime == XRC_RCV_LIFETIME_DOMAIN ?
	       0 : -EBADMSG;
}

/* Every way in from another domain. */
static int unknown_to_other_domain(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_to_init(&member.node);
	struct registration registration;
	struct xrc_rcv_qp_info found;
	uint32_t count = 0, total = 77;

	if (rcv_query(member.domain, member_info->qp_num, NULL, &found) != -EINVAL ||
	    rcv_modify(member.domain, member_info->qp_num, &attr) != -EINVAL ||
	    rcv_reg(member.domain, member_info->qp_num, NO_CHANNEL, &registration) != -EINVAL ||
	    rcv_destroy(member.domain, member_info->qp_num) != -EINVAL)
		return -EBADMSG;
	return rcv_list(member.domain, 0, NULL, &count, &total) || total ? -EBADMSG : 0;
}

/* A process that ends its use of the domain as libibverbs wants it, and lives on. */
static int close_domain(void *argument)
{
	(void)argument;
	if (member.srq) {
		errno = ibv_destroy_srq(member.srq);
		if (errno)
			return -errno;
		member.srq = NULL;
	}
	return -ibv_close_xrcd(member.xrcd);
}

static int open_domain(void *argument)
{
	(void)argument;
	member.xrcd = node_open_domain(&member.node, member.member_info->domain_file);
	member.domain = domain_of(member.xrcd);
	return 0;
}

/* Creates a QP with ATTR, which has to be in STATE then. Unregisters. */
static bool ends_in(const char *what, const struct ib_uverbs_qp_attr *attr,
		    enum ibv_qp_state state)
{
	struct registration registration;
	struct xrc_rcv_qp_info found;
	int result;

	result = rcv_alloc(member.domain, 0, attr, NO_CHANNEL, &registration);
	if (result) {
		warnx("ALLOC %s: %s", what, strerror(-result));
		return false;
	}
	result = rcv_query(member.domain, registration.qp_num, NULL, &found);
	if (result || found.state != state || found.qp_num != registration.qp_num ||
	    found.registrations != 1 || found.lifetime != XRC_RCV_LIFETIME_REGISTRATIONS) {
		warnx("ALLOC %s: QUERY %d, state %u, %u registrations", what, result,
		      found.state, found.registrations);
		return false;
	}
	return !rcv_unreg(&registration);
}

static bool refused(const char *what, uint32_t flags, const struct ib_uverbs_qp_attr *attr,
		    int error)
{
	struct registration registration;
	uint32_t count = 0, total = 0;
	int result;

	result = rcv_alloc(member.domain, flags, attr, NO_CHANNEL, &registration);
	if (result != error) {
		warnx("ALLOC %s: %s, not %s", what, strerror(-result), strerror(-error));
		if (!result)
			rcv_unreg(&registration);
		return false;
	}
	if (rcv_list(member.domain, 0, NULL, &count, &total) || total) {
		warnx("ALLOC %s left %u QPs", what, total);
		return false;
	}
	return true;
}

static int attributes_of_alloc(void *argument)
{
	struct member_info *member_info = argument;
	const struct ib_uverbs_qp_attr all = attr_connected(&member.node, member_info->sender);
	struct ib_uverbs_qp_attr attr;
	bool right;

	right = ends_in("without attributes", NULL, IBV_QPS_RESET);

	attr = all;
	attr.qp_attr_mask = INIT_BITS;
	right &= ends_in("to INIT", &attr, IBV_QPS_INIT);
	attr.qp_attr_mask = INIT_BITS | IBV_QP_STATE;
	attr.qp_state = IBV_QPS_INIT;
	right &= ends_in("to INIT by name", &attr, IBV_QPS_INIT);

	attr = all;
	attr.qp_attr_mask = INIT_BITS | RTR_BITS;
	right &= ends_in("to RTR, all that may be missing missing", &attr, IBV_QPS_RTR);
	attr.qp_attr_mask |= IBV_QP_STATE;
	right &= ends_in("to RTR by name", &attr, IBV_QPS_RTR);

	attr.qp_attr_mask |= IBV_QP_QKEY | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY;
	attr.qkey = 0x11111111;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	right &= ends_in("with ignored attributes", &attr, IBV_QPS_RTR);
	return right ? 0 : -EBADMSG;
}

static unsigned int ports(void)
{
	struct ibv_device_attr attr;

	return ibv_query_device(member.node.context, &attr) ? 0 : attr.phys_port_cnt;
}

/* Returns ATTR with an alternate path: the same one. */
static struct ib_uverbs_qp_attr with_alternate_path(const struct ib_uverbs_qp_attr *attr)
{
	struct ib_uverbs_qp_attr both = *attr;

	both.qp_attr_mask |= IBV_QP_ALT_PATH;
	both.alt_port_num = attr->port_num;
	both.alt_pkey_index = attr->pkey_index;
	both.alt_timeout = 17;
	both.alt_ah_attr = attr->ah_attr;
	return both;
}

/* A QP in INIT is not modified to RTR with WRONG, and then is with RIGHT: that is what is wrong. */
static bool not_connected(const char *what, const struct ib_uverbs_qp_attr *wrong,
			  const struct ib_uverbs_qp_attr *right)
{
	struct ib_uverbs_qp_attr init = attr_to_init(&member.node), attr = *wrong;
	struct registration registration;
	int refused, connected;

	if (rcv_alloc(member.domain, 0, &init, NO_CHANNEL, &registration))
		return false;
	attr.qp_attr_mask &= ~INIT_BITS;
	refused = rcv_modify(member.domain, registration.qp_num, &attr);
	attr = *right;
	attr.qp_attr_mask &= ~INIT_BITS;
	connected = rcv_modify(member.domain, registration.qp_num, &attr);
	if (refused != -EINVAL || connected)
		warnx("MODIFY %s: %s, then without: %s", what, strerror(-refused),
		      strerror(-connected));
	return !rcv_unreg(&registration) && refused == -EINVAL && !connected;
}

static int missing_attributes(void *argument)
{
	struct member_info *member_info = argument;
	const struct ib_uverbs_qp_attr all = attr_connected(&member.node, member_info->sender);
	struct ib_uverbs_qp_attr attr = all;
	bool right = true;
	uint32_t bit;

	for (bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
		char what[32];

		if (!(bit & (INIT_BITS | RTR_BITS)))
			continue;
		snprintf(what, sizeof(what), "without %#x", bit);
		attr.qp_attr_mask = ((INIT_BITS | RTR_BITS) & ~bit) | IBV_QP_STATE;
		right &= refused(what, 0, &attr, -EINVAL);
	}
	attr.qp_attr_mask = ~0u;
	right &= refused("with all bits", 0, &attr, -EINVAL);
	attr.qp_attr_mask = all.qp_attr_mask | 1u << 30;
	right &= refused("with an unknown bit", 0, &attr, -EINVAL);
	attr.qp_attr_mask = all.qp_attr_mask;
	attr.qp_state = IBV_QPS_RTS;
	right &= refused("with a state it does not end in", 0, &attr, -EINVAL);
	attr.qp_state = 99;
	right &= refused("with no state at all", 0, &attr, -EINVAL);
	attr = all;
	attr.port_num = 99;
	right &= refused("with a port that is not there", 0, &attr, -EINVAL);
	attr = all;
	attr.qp_access_flags |= 1 << 12;
	right &= refused("with an unknown access flag", 0, &attr, -EINVAL);
	if (attr.ah_attr.is_global) {
		attr = all;
		attr.ah_attr.grh.sgid_index = 30;
		right &= refused("with a GID that is not there", 0, &attr, -ENODATA);
		attr = all;
		attr.ah_attr.is_global = 0;
		right &= refused("with an Ethernet path without GIDs", 0, &attr, -EINVAL);
	}
	attr = all;
	attr.qp_attr_mask |= IBV_QP_ALT_PATH;
	attr.alt_port_num = 1;
	attr.alt_ah_attr.port_num = 2;
	right &= refused("with an alternate path of two ports", 0, &attr, -EINVAL);
	attr = all;
	attr.qp_attr_mask = INIT_BITS | IBV_QP_PATH_MIG_STATE;
	attr.path_mig_state = IBV_MIG_MIGRATED;
	right &= refused("to INIT with a migration state", 0, &attr, -EINVAL);
	if (ports() > 1) {
		attr = all;
		attr.ah_attr.port_num = attr.port_num == 1 ? 2 : 1;
		right &= refused("with a path of another port", 0, &attr, -EINVAL);
		right &= not_connected("to a path of another port", &attr, &all);
	}
	attr = all;
	attr.min_rnr_timer = 32;
	right &= refused("with an RNR timer of more than 31", 0, &attr, -EINVAL);
	attr = with_alternate_path(&all);
	attr.alt_timeout = 32;
	right &= refused("with an alternate path's timeout of more than 31", 0, &attr, -EINVAL);
	attr = all;
	attr.path_mtu = 77;
	right &= refused("with an MTU that is none", 0, &attr, -EINVAL);
	attr = all;
	attr.reserved[4] = 1;
	right &= refused("with padding that is not zero", 0, &attr, -EINVAL);
	/* Addresses, which no bit of the mask says anything about. */
	memset(&attr, 0, sizeof(attr));
	attr.ah_attr.reserved = 1;
	right &= refused("with padding in an address", 0, &attr, -EINVAL);
	attr.ah_attr.reserved = 0;
	attr.ah_attr.grh.reserved = 1;
	right &= refused("with padding in a route", 0, &attr, -EINVAL);
	attr.ah_attr.grh.reserved = 0;
	attr.alt_ah_attr.reserved = 1;
	right &= refused("with padding in an alternate address", 0, &attr, -EINVAL);
	attr.alt_ah_attr.reserved = 0;
	attr.alt_ah_attr.grh.reserved = 1;
	right &= refused("with padding in an alternate route", 0, &attr, -EINVAL);
	right &= refused("with unknown flags", 1 << 5, NULL, -EINVAL);
	return right ? 0 : -EBADMSG;
}

static bool on_infiniband(const struct ib_uverbs_qp_attr *attr)
{
	return attr->ah_attr.dlid;
}

#define SAME(field) \
	(got.field == set.field || \
	 (warnx(#field ": %#x, set to %#x", (unsigned int)got.field, \
		(unsigned int)set.field), false))
#define ZERO(field) \
	(!got.field || (warnx(#field ": %#x, not 0", (unsigned int)got.field), false))

/* But for the hop limit, which depends on the route to a RoCE address. */
static bool same_route(struct ib_uverbs_ah_attr got, struct ib_uverbs_ah_attr set)
{
	if (memcmp(got.grh.dgid, set.grh.dgid, sizeof(got.grh.dgid))) {
		warnx("another GID");
		return false;
	}
	return SAME(grh.flow_label) & SAME(grh.traffic_class) & SAME(grh.sgid_index);
}

static int queried_as_set(struct ib_uverbs_qp_attr set)
{
	struct ib_uverbs_qp_attr got;
	struct registration registration;
	int result;

	set.rq_psn = 0xabcdef;
	set.min_rnr_timer = 13;
	result = rcv_alloc(member.domain, 0, &set, NO_CHANNEL, &registration);
	if (result)
		return result;
	memset(&got, 0xff, sizeof(got));
	result = rcv_query(member.domain, registration.qp_num, &got, NULL);
	rcv_unreg(&registration);
	if (result)
		return result;

	result = SAME(qp_state) & SAME(path_mtu) & SAME(rq_psn) & SAME(dest_qp_num) &
		 SAME(port_num) & SAME(pkey_index) & SAME(max_dest_rd_atomic) &
		 SAME(min_rnr_timer) & SAME(ah_attr.is_global) & SAME(ah_attr.dlid) &
		 SAME(ah_attr.port_num) & same_route(got.ah_attr, set.ah_attr) &
		 ZERO(max_send_wr) & ZERO(max_recv_wr) & ZERO(max_send_sge) &
		 ZERO(max_recv_sge) & ZERO(max_inline_data);
	if (on_infiniband(&set))
		result &= SAME(ah_attr.sl) & SAME(ah_attr.static_rate) &
			  SAME(ah_attr.src_path_bits) & SAME(ah_attr.grh.hop_limit);
	if (set.qp_attr_mask & IBV_QP_ALT_PATH)
		result &= SAME(alt_port_num) & SAME(alt_pkey_index) & SAME(alt_timeout) &
			  SAME(alt_ah_attr.is_global) & SAME(alt_ah_attr.dlid) &
			  SAME(alt_ah_attr.port_num) & SAME(alt_ah_attr.sl) &
			  SAME(alt_ah_attr.static_rate) & SAME(alt_ah_attr.src_path_bits) &
			  SAME(alt_ah_attr.grh.hop_limit) &
			  same_route(got.alt_ah_attr, set.alt_ah_attr);
	if ((got.qp_access_flags & set.qp_access_flags & ~IBV_ACCESS_LOCAL_WRITE) !=
	    (set.qp_access_flags & ~IBV_ACCESS_LOCAL_WRITE)) {
		warnx("access flags %#x, set to %#x", got.qp_access_flags, set.qp_access_flags);
		result = false;
	}
	return result ? 0 : -EBADMSG;
}

static int everything_is_queried(void *argument)
{
	struct member_info *member_info = argument;

	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, member_info->sender);
	struct ib_uverbs_ah_attr *path = &attr.ah_attr;

	if (!on_infiniband(&attr)) {
		path->grh.flow_label = 0x12345;
		path->grh.traffic_class = 0x68;
		return queried_as_set(attr);
	}

	/*
	 * 2.5 Gb/s, the least rate. The modelled ConnectX-6 offers none, and mlx5_ib takes that of
	 * the port then.
	 */
	path->static_rate = driver_id() == RDMA_DRIVER_MLX5 ? 0 : 2;
	path->sl = 3;
	path->src_path_bits = 1;
	attr = with_alternate_path(&attr);
	attr.alt_ah_attr.sl = 5;
	attr.alt_ah_attr.src_path_bits = 0;
	CHECK(!queried_as_set(attr));

	/* The same with a GRH, of each path. */
	path->is_global = 1;
	memcpy(path->grh.dgid, &member_info->sender->gid, sizeof(path->grh.dgid));
	path->grh.flow_label = 0x12345;
	path->grh.traffic_class = 0x68;
	path->grh.hop_limit = 63;
	attr.alt_ah_attr.is_global = 1;
	attr.alt_ah_attr.grh = path->grh;
	attr.alt_ah_attr.grh.flow_label = 0x54321;
	attr.alt_ah_attr.grh.traffic_class = 0x24;
	attr.alt_ah_attr.grh.hop_limit = 9;
	return queried_as_set(attr);
}

/* With RoCE, ib_core maps the address of a multicast group to a MAC address, of an RC QP as well.
 */
static int groups_are_queried(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, member_info->sender);
	static const char *const groups[] = { "::ffff:224.0.0.2", "ff0e::2", NULL };
	const char *const *group;
	int result = 0;

	for (group = groups; attr.ah_attr.is_global && !result && *group; group++) {
		CHECK(inet_pton(AF_INET6, *group, attr.ah_attr.grh.dgid) == 1);
		result = queried_as_set(attr);
		if (result)
			warnx("with the address %s", *group);
	}
	return result;
}

/* The label and the peer, as processes other than the creator query them. */
static int labelled(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr attr = attr_connected(&member.node, member_info->sender);
	const uint64_t label = LABEL;

	CHECK(!rcv_alloc_labelled(member.domain, 0, &attr, NO_CHANNEL, &label,
				  &member.registration));
	member_info->qp_num = member.registration.qp_num;
	return 0;
}

static int label_is_known(void *argument)
{
	struct member_info *member_info = argument;
	struct {
		uint32_t qp_num, state, lifetime, registrations;
	} old[2];
	struct xrc_rcv_qp_info found, listed[2];
	struct registration other;
	uint32_t count = 2, i;

	CHECK(!rcv_query(member.domain, member_info->qp_num, NULL, &found));
	CHECK(found.label == LABEL && found.dest_qp_num == member_info->sender->qp_num);
	CHECK(found.state == IBV_QPS_RTR && !found.reserved);

	/* Beside one without a label and without a peer. */
	CHECK(!rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &other));
	CHECK(!rcv_list(member.domain, 0, listed, &count, NULL) && count == 2);
	i = listed[0].qp_num != member_info->qp_num;
	CHECK(!memcmp(&listed[i], &found, sizeof(found)));
	CHECK(listed[!i].qp_num == other.qp_num && !listed[!i].label);
	CHECK(!listed[!i].dest_qp_num && !listed[!i].reserved);

	/* A caller that knows version 1 of the struct. */
	CHECK(!rcv_list_sized(member.domain, old, sizeof(old[0]), &count) && count == 2);
	CHECK(old[i].qp_num == member_info->qp_num && old[i].state == IBV_QPS_RTR);
	CHECK(old[!i].qp_num == other.qp_num && old[!i].registrations == 1);
	CHECK(!rcv_unreg(&other));
	return 0;
}

static bool moves(uint32_t qp_num, const struct ib_uverbs_qp_attr *attr,
		  enum ibv_qp_state before, int expected)
{
	struct xrc_rcv_qp_info found;
	int result = rcv_modify(member.domain, qp_num, attr);
	enum ibv_qp_state after = expected ? before : attr->qp_state;

	if (rcv_query(member.domain, qp_num, NULL, &found))
		return false;
	if (result != expected || found.state != after) {
		warnx("from %d to %d: %s, now in %d", before, attr->qp_state,
		      strerror(-result), found.state);
		return false;
	}
	return true;
}

/*
 * From RTS to SQD and back. The table of mlx5_ib (optab in __mlx5_ib_modify_qp()) has no command
 * that drains the send queue of a QP, whatever its type.
 */
static bool drains(uint32_t number)
{
	const struct ib_uverbs_qp_attr sqd = { .qp_attr_mask = IBV_QP_STATE, .qp_state = IBV_QPS_SQD },
		back = { .qp_attr_mask = IBV_QP_STATE, .qp_state = IBV_QPS_RTS };

	if (driver_id() == RDMA_DRIVER_MLX5)
		return moves(number, &sqd, IBV_QPS_RTS, -EINVAL) & moves(number, &back, IBV_QPS_RTS, 0);
	return moves(number, &sqd, IBV_QPS_RTS, 0) & moves(number, &back, IBV_QPS_SQD, 0);
}

static int transitions(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr init = attr_to_init(&member.node),
		rtr = attr_to_rtr(&member.node, member_info->sender),
		rts = {
			.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT,
			.qp_state = IBV_QPS_RTS,
			.timeout = 14,
		},
		error = { .qp_attr_mask = IBV_QP_STATE, .qp_state = IBV_QPS_ERR },
		reset = { .qp_attr_mask = IBV_QP_STATE, .qp_state = IBV_QPS_RESET },
		path = {
			.qp_attr_mask = IBV_QP_AV,
			.qp_state = IBV_QPS_RTR,
			.ah_attr = rtr.ah_attr,
		},
		two_ports = path, wide = init;
	struct registration registration;
	uint32_t number;
	bool right;

	if (rcv_alloc(member.domain, 0, NULL, NO_CHANNEL, &registration))
		return -EBADMSG;
	number = registration.qp_num;
	two_ports.qp_attr_mask |= IBV_QP_PORT;
	two_ports.port_num = path.ah_attr.port_num == 1 ? 2 : 1;
	wide.qp_attr_mask |= 1u << 29;
	right = moves(number, &rtr, IBV_QPS_RESET, -EINVAL) &
		moves(number, &rts, IBV_QPS_RESET, -EINVAL) &
		moves(number, &wide, IBV_QPS_RESET, -EINVAL) &
		moves(number, &init, IBV_QPS_RESET, 0) &
		moves(number, &init, IBV_QPS_INIT, 0) &
		moves(number, &rts, IBV_QPS_INIT, -EINVAL) &
		moves(number, &rtr, IBV_QPS_INIT, 0) &
		moves(number, &init, IBV_QPS_RTR, -EINVAL) &
		/* rxe only checks changes of the state. */
		moves(number, &path, IBV_QPS_RTR, device_is_modelled() ? -EINVAL : 0) &
		moves(number, &two_ports, IBV_QPS_RTR, -EINVAL) &
		moves(number, &rts, IBV_QPS_RTR, 0) &
		drains(number) &
		moves(number, &error, IBV_QPS_RTS, 0) &
		moves(number, &rtr, IBV_QPS_ERR, -EINVAL) &
		moves(number, &reset, IBV_QPS_ERR, 0) &
		moves(number, &init, IBV_QPS_RESET, 0) &
		moves(number, &error, IBV_QPS_INIT, 0);
	return !rcv_unreg(&registration) && right ? 0 : -EBADMSG;
}

/* ---- an ALLOC that is stopped before its last result is written: its QP is in RTR ---- */

static struct {
	struct ib_uverbs_qp_attr attr;
	struct call call;
	struct registration registration;
	pthread_t thread;
	void *page;
	int faults, result;
} stopped;

static void *run_stopped(void *argument)
{
	(void)argument;
	stopped.result = call_run(&stopped.call, member.domain.uverbs_fd);
	return NULL;
}

static int withhold_page(void)
{
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };

	stopped.faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK(stopped.faults >= 0);
	CHECK(!ioctl(stopped.faults, UFFDIO_API, &api));
	stopped.page = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stopped.page != MAP_FAILED);
	area.range.start = (uintptr_t)stopped.page;
	area.range.len = getpagesize();
	CHECK(!ioctl(stopped.faults, UFFDIO_REGISTER, &area));
	return 0;
}

static int stop_alloc(void *argument)
{
	struct member_info *member_info = argument;
	struct uffd_msg fault;

	stopped.attr = attr_connected(&member.node, member_info->sender);
	stopped.registration.uverbs_fd = member.domain.uverbs_fd;
	stopped.registration.channel = rcv_channel(member.domain);
	CHECK(!fcntl(stopped.registration.channel, F_SETFL, O_NONBLOCK));
	CHECK(!withhold_page());
	call_start(&stopped.call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC);
	call_object(&stopped.call, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, member.domain.handle);
	call_object(&stopped.call, XRC_RCV_ATTR_QP_ALLOC_CHANNEL, stopped.registration.channel);
	call_in(&stopped.call, XRC_RCV_ATTR_QP_ALLOC_ATTR, &stopped.attr, sizeof(stopped.attr));
	call_out(&stopped.call, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &stopped.registration.qp_num,
		 sizeof(stopped.registration.qp_num));
	call_out(&stopped.call, XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL, stopped.page,
		 sizeof(stopped.registration.serial));
	CHECK(!pthread_create(&stopped.thread, NULL, run_stopped, NULL));
	CHECK(read(stopped.faults, &fault, sizeof(fault)) == sizeof(fault));
	member_info->qp_num = stopped.registration.qp_num;
	return 0;
}

static int no_record(void *argument)
{
	struct xrc_rcv_record record;

	(void)argument;
	CHECK(read(stopped.registration.channel, &record, sizeof(record)) == -1);
	CHECK(errno == EAGAIN);
	return 0;
}

/* The page comes. */
static int alloc_succeeds(void *argument)
{
	struct uffdio_zeropage zero = {
		.range = { .start = (uintptr_t)stopped.page, .len = getpagesize() },
	};
	struct pollfd ready = { .fd = stopped.registration.channel, .events = POLLIN };
	struct xrc_rcv_record record;

	(void)argument;
	CHECK(!ioctl(stopped.faults, UFFDIO_ZEROPAGE, &zero));
	CHECK(!pthread_join(stopped.thread, NULL) && !stopped.result);
	memcpy(&stopped.registration.serial, stopped.page, sizeof(stopped.registration.serial));
	/* The interrupt of a modelled adapter may come later than the message. */
	CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
	CHECK(read(stopped.registration.channel, &record, sizeof(record)) == sizeof(record));
	CHECK(is_record(&record, &stopped.registration, IBV_EVENT_COMM_EST, 1));
	CHECK(!rcv_unreg(&stopped.registration));
	CHECK(!munmap(stopped.page, getpagesize()));
	close(stopped.faults);
	return -close(stopped.registration.channel);
}

/* The page is not there any more. */
static int alloc_fails(void *argument)
{
	uint32_t count = 0, total = 77;

	CHECK(!munmap(stopped.page, getpagesize()));
	/* A thread that waits for a page looks again. */
	close(stopped.faults);
	CHECK(!pthread_join(stopped.thread, NULL) && stopped.result == -EFAULT);
	CHECK(!no_record(argument));
	CHECK(!rcv_list(member.domain, 0, NULL, &count, &total) && !total);
	return -close(stopped.registration.channel);
}

/* ---- scenarios ---- */

static void plan(void)
{
	*traffic = (struct traffic) {
		.srq_num = { mb->srq_num },
		.srqs = 1,
		.first = traffic->first + traffic->count,
		.count = MESSAGES,
		.size = SIZE,
	};
	*delivery = (struct delivery) { traffic, 0, ma->qp_num };
}

static bool messages_flow(void)
{
	bool sent;

	plan();
	actor_begin(&b, member_receive, delivery);
	sent = DO(remote_actor, sender_send, traffic);
	return succeeded("B receives", actor_wait(&b)) && sent && DO(b, member_idle, NULL);
}

static bool label_is_shown(void)
{
	char words[128];

	snprintf(words, sizeof(words), "qpn=%#x label=%#lx dest_qpn=%#x", ma->qp_num, LABEL,
		 remote->path.qp_num);
	return count_listed_with("qps", words) == 1;
}

/* Some providers report the last one. */
static int has_no_peer_before_rtr(void *argument)
{
	struct member_info *member_info = argument;
	struct ib_uverbs_qp_attr init = attr_to_init(&member.node);
	const char *states[] = { "RESET", "INIT" };
	uint32_t qp_num = member_info->qp_num;
	struct xrc_rcv_qp_info info;
	unsigned int i;
	char words[64];

	for (i = 0; i < ARRAY_SIZE(states); i++) {
		snprintf(words, sizeof(words), "qpn=%#x state=%s dest_qpn=0x0", qp_num, states[i]);
		CHECK(!(i ? rcv_modify(member.domain, qp_num, &init) :
			    rcv_to_state(member.domain, qp_num, IBV_QPS_RESET)));
		CHECK(count_listed_with("qps", words) == 1);
		CHECK(!rcv_query(member.domain, qp_num, NULL, &info) && !info.dest_qp_num);
		CHECK(count_listed_with("qps", words) == 1);
	}
	return 0;
}

static bool labels(void)
{
	bool right = DO(a, labelled, ma);

	mb->qp_num = ma->qp_num;
	return right && DO(b, label_is_known, mb) && label_is_shown() &&
	       DO(b, has_no_peer_before_rtr, mb) && DO(a, member_unreg, NULL);
}

static bool one_call(uint32_t flags)
{
	ma->flags = flags;
	if (!DO(a, member_alloc_connected, ma))
		return false;
	mb->qp_num = ms->qp_num = ma->qp_num;
	remote_aim(remote, ma, ma->qp_num);
	return actor_do(&a, member_state, ma) == IBV_QPS_RTR &&
	       DO(remote_actor, sender_connect, remote) && messages_flow();
}

/* The QP has an event before ALLOC has returned. */
static bool ends_after_event(act *end)
{
	bool right = DO(a, stop_alloc, ma);

	remote_aim(remote, ma, ma->qp_num);
	right = right && DO(remote_actor, sender_connect, remote) && messages_flow() &&
		DO(a, no_record, NULL);
	return succeeded("the end", actor_do(&a, end, NULL)) && right;
}

static bool silent(void)
{
	int result;

	plan();
	traffic->count = 1;
	if (!DO(remote_actor, sender_connect_to_nobody, NULL))
		return false;
	result = actor_do(&remote_actor, sender_send, traffic);
	if (result == -EIO && traffic->status == IBV_WC_RETRY_EXC_ERR)
		return true;
	ktap_note("the sender sees: %s, %s", strerror(-result),
		  ibv_wc_status_str(traffic->status));
	return false;
}

int main(void)
{
	struct counts before;

	ktap_start("ALLOC, MODIFY, QUERY and both lifetimes", 18);
	before = count_objects();
	ma = member_info_new(DOMAIN_FILE, 0, 0);
	mb = member_info_new(DOMAIN_FILE, DEPTH, SIZE);
	ms = member_info_new(OTHER_FILE, 0, 0);
	remote = remote_new(SIZE);
	traffic = share(sizeof(*traffic));
	delivery = share(sizeof(*delivery));
	ma->sender = mb->sender = ms->sender = &remote->path;
	actor_start(&a);
	actor_start(&b);
	actor_start(&stranger);
	actor_start(&remote_actor);
	if (!(DO(remote_actor, sender_start, remote) && DO(a, member_join, ma) &&
	      DO(b, member_join, mb) && DO(stranger, member_join, ms)))
		errx(1, "the actors are not ready");

	ktap_result(DO(a, attributes_of_alloc, ma),
		    "ALLOC ends in the state its attributes allow");
	ktap_result(DO(a, missing_attributes, ma),
		    "ALLOC refuses wrong attributes and leaves nothing");
	ktap_result(DO(a, everything_is_queried, ma), "QUERY fills every attribute");
	ktap_result(DO(a, groups_are_queried, ma), "so it does with the addresses of multicast groups");
	ktap_result(DO(a, transitions, ma), "MODIFY makes every transition of a target QP");
	ktap_result(labels(), "queries return the label, and the peer from RTR on");

	ktap_result(ends_after_event(alloc_succeeds) && !qp_is_shown(ma->qp_num),
		    "an event that comes before ALLOC has returned is read after it");
	ktap_result(ends_after_event(alloc_fails) && !qp_is_shown(ma->qp_num) && silent(),
		    "an ALLOC whose result cannot be written leaves no QP, and no record");
	ktap_result(one_call(0), "messages flow after one ALLOC");
	ktap_result(DO(stranger, unknown_to_other_domain, ms), "another domain does not find the QP");
	ktap_result(DO(a, member_unreg, NULL) && !qp_is_shown(ma->qp_num) && silent(),
		    "the QP is destroyed with its only registration");

	ktap_result(one_call(XRC_RCV_ALLOC_LIFETIME_DOMAIN),
		    "messages flow after one ALLOC for the domain's lifetime");
	ktap_result(DO(a, member_unreg, NULL) && DO(b, no_registrations, NULL) &&
		    qp_is_shown(ma->qp_num) && messages_flow(),
		    "the QP outlives its registrations");
	actor_kill(&a);
	ktap_result(DO(b, no_registrations, NULL) && messages_flow(),
		    "the QP outlives its creator");
	ktap_result(DO(stranger, unknown_to_other_domain, ms),
		    "another domain does not find that QP either");
	ktap_result(qp_is_shown(ma->qp_num) && DO(b, close_domain, NULL) &&
		    !qp_is_shown(ma->qp_num) && silent(),
		    "the QP is destroyed by the domain's last close");
	ktap_result(DO(b, open_domain, NULL) && actor_do(&b, member_state, mb) == -EINVAL,
		    "a domain that is opened anew does not find the QP");
	actor_exit(&b);
	actor_exit(&stranger);
	actor_exit(&remote_actor);
	ktap_result(counts_return_to(&before), "no object is left");
	unlink(DOMAIN_FILE);
	unlink(OTHER_FILE);
	return ktap_end();
}
