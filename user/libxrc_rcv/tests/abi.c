// SPDX-License-Identifier: GPL-2.0
/*
 * A program that was built with structs of some version of the interface, and
 * runs with a library and a kernel of others: with OLD its structs have fewer
 * members than they know, with LATER (and the header of a later version) more.
 * Members that either side does not know are neither written nor left as they were.
 *
 * usage: abi DEVICE [later-kernel] [later-library]
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef OLD
#define xrc_rcv_caps current_caps
#define xrc_rcv_qp_info current_qp_info
#include <rdma/ib_xrc_rcv.h>
#undef xrc_rcv_caps
#undef xrc_rcv_qp_info

struct xrc_rcv_caps {
	uint32_t version;
	uint32_t alloc_flags;
	uint64_t event_types;
};

struct xrc_rcv_qp_info {
	uint32_t qp_num;
	uint32_t state;
};

#define xrc_rcv_event current_event
#define xrc_rcv_init_attr current_init_attr
#endif

#include <infiniband/xrc_rcv.h>

#ifdef OLD
#undef xrc_rcv_event
#undef xrc_rcv_init_attr

struct xrc_rcv_event {
	uint64_t cookie;
	uint64_t last_ns;
	uint32_t qp_num;
	uint32_t type;
};

struct xrc_rcv_init_attr {
	uint32_t comp_mask;
	uint32_t flags;
	struct xrc_rcv_event_channel *channel;
	uint64_t cookie;
};

#define xrc_rcv_alloc_qp(xrcd, init_attr, attr, attr_mask) \
	xrc_rcv_alloc_qp(xrcd, (const struct current_init_attr *)(init_attr), attr, attr_mask)
#define xrc_rcv_read_events(channel, events, size, count) \
	xrc_rcv_read_events(channel, (struct current_event *)(events), size, count)
#define xrc_rcv_get_event(channel, event, size) \
	xrc_rcv_get_event(channel, (struct current_event *)(event), size)
#endif

#include "ktap.h"

#define QPS 3

static struct ibv_context *context;
static struct ibv_xrcd *xrcd;
static struct xrc_rcv_event_channel *channel;
static struct xrc_rcv_qp *qps[QPS];

/* Returns @size bytes that end at the end of a page; the bytes before are 0xee. */
static void *at_the_end(size_t size)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE))
		err(1, "pages");
	memset(pages, 0xee, page);
	return pages + page - size;
}

static bool untouched_before(const void *place)
{
	const unsigned char *before = place;
	int i;

	for (i = 1; i <= 64; i++)
		if (before[-i] != 0xee)
			return false;
	return true;
}

/*
 * The values of a later kernel, read directly and through the library, and those of
 * a later library.
 */
static uint64_t from_kernel, through_library, from_library;

#ifdef LATER
#define later_is(record, value) ((record)->later[0] == (value) && (record)->later[1] == (value))
#else
#define later_is(record, value) ((void)(record), (void)(value), true)
#endif

static bool capabilities(void)
{
	struct xrc_rcv_caps *caps = at_the_end(sizeof(*caps));

	HOLDS(!xrc_rcv_query_caps(context, caps, sizeof(*caps)));
	HOLDS(caps->version >= XRC_RCV_VERSION);
	HOLDS(caps->event_types & 1ULL << IBV_EVENT_QP_LAST_WQE_REACHED);
	HOLDS(later_is(caps, from_kernel) && untouched_before(caps));
	HOLDS(xrc_rcv_query_caps(context, caps, 0) == EINVAL);
	return true;
}

static bool create(void)
{
	struct xrc_rcv_init_attr *init = at_the_end(sizeof(*init));
	int i;

	for (i = 0; i < QPS; i++) {
		*init = (struct xrc_rcv_init_attr){ .channel = channel,
						    .cookie = 100 + i };
		qps[i] = xrc_rcv_alloc_qp(xrcd, init, NULL, 0);
		HOLDS(qps[i]);
	}
	return true;
}

static bool query(void)
{
	struct xrc_rcv_qp_info *info = at_the_end(sizeof(*info)), *infos;
	size_t count = QPS + 2;
	uint32_t total, i;

	HOLDS(!xrc_rcv_query_qp(xrcd, qps[1]->qp_num, NULL, info, sizeof(*info)));
	HOLDS(info->qp_num == qps[1]->qp_num && info->state == IBV_QPS_RESET);
	HOLDS(later_is(info, from_kernel) && untouched_before(info));

	infos = at_the_end((QPS + 2) * sizeof(*infos));
	HOLDS(!xrc_rcv_query_domain(xrcd, 0, infos, sizeof(*infos), &count, &total));
	HOLDS(count == QPS && total == QPS && untouched_before(infos));
	for (i = 0; i < QPS; i++) {
		HOLDS(infos[i].state == IBV_QPS_RESET && later_is(&infos[i], through_library));
		HOLDS(!i || infos[i].qp_num > infos[i - 1].qp_num);
	}
	return true;
}

static bool adopt(void)
{
	struct xrc_rcv_adopted_qp *adopted;
	size_t count;
	uint32_t i;

	HOLDS(!xrc_rcv_adopt_domain(xrcd, NULL, &adopted, sizeof(*adopted), &count));
	HOLDS(count == QPS);
	for (i = 0; i < QPS; i++) {
		HOLDS(adopted[i].qp && !adopted[i].error && !xrc_rcv_unreg_qp(adopted[i].qp));
		HOLDS(adopted[i].info.qp_num == qps[i]->qp_num);
		HOLDS(adopted[i].info.state == IBV_QPS_RESET);
		HOLDS(later_is(&adopted[i].info, through_library));
	}
	free(adopted);
	return true;
}

static bool break_qp(const struct xrc_rcv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	HOLDS(!xrc_rcv_modify_qp(xrcd, qp->qp_num, &attr, IBV_QP_STATE | IBV_QP_PORT |
				 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_ERR;
	HOLDS(!xrc_rcv_modify_qp(xrcd, qp->qp_num, &attr, IBV_QP_STATE));
	return true;
}

static int by_cookie(const void *a, const void *b)
{
	const struct xrc_rcv_event *one = a, *other = b;

	return (one->cookie > other->cookie) - (one->cookie < other->cookie);
}

static bool events(void)
{
	struct xrc_rcv_event *records = at_the_end(QPS * sizeof(*records));
	int i, n;

	HOLDS(break_qp(qps[0]));
	HOLDS(!xrc_rcv_get_event(channel, &records[2], sizeof(*records)));
	HOLDS(records[2].cookie == 100 && records[2].qp_num == qps[0]->qp_num);
	HOLDS(later_is(&records[2], from_library));

	/* Events of different QPs come in any order. */
	for (i = 1; i < QPS; i++)
		HOLDS(break_qp(qps[i]));
	for (n = 0; n < QPS - 1; n += i) {
		i = xrc_rcv_read_events(channel, &records[n], sizeof(*records), QPS - n);
		HOLDS(i > 0 && n + i <= QPS - 1);
	}
	qsort(records, QPS - 1, sizeof(*records), by_cookie);
	for (i = 0; i < QPS - 1; i++) {
		HOLDS(records[i].cookie == (uint64_t)101 + i);
		HOLDS(records[i].qp_num == qps[1 + i]->qp_num);
		HOLDS(records[i].type == IBV_EVENT_QP_LAST_WQE_REACHED);
		HOLDS(records[i].last_ns && later_is(&records[i], from_library));
	}
	HOLDS(untouched_before(records));
	for (i = 0; i < QPS; i++)
		HOLDS(!xrc_rcv_unreg_qp(qps[i]));
	return true;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_xrcd_init_attr private = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	bool kernel, library;
	int i;

	if (argc < 2)
		errx(2, "usage: abi DEVICE [later-kernel] [later-library]");
	for (i = 2, kernel = library = false; i < argc; i++) {
		kernel |= !strcmp(argv[i], "later-kernel");
		library |= !strcmp(argv[i], "later-library");
	}
	from_kernel = kernel ? 0x1a7e : 0;
	through_library = kernel && library ? 0x1a7e : 0;
	from_library = library ? 0x1a7e : 0;
	while (device && *device && strcmp(ibv_get_device_name(*device), argv[1]))
		device++;
	context = device && *device ? ibv_open_device(*device) : NULL;
	xrcd = context ? ibv_open_xrcd(context, &private) : NULL;
	channel = xrcd ? xrc_rcv_create_event_channel(xrcd) : NULL;
	if (!channel)
		err(1, "%s", argv[1]);
	ktap_start("structs of another version", 5);
	ktap_result(capabilities(), "query_caps fills the struct of that version");
	ktap_result(create(), "alloc_qp reads the struct of that version");
	ktap_result(query(), "query_qp and query_domain fill the structs of that version");
	ktap_result(adopt(), "adopt_domain fills elements of that version");
	ktap_result(events(), "read_events and get_event fill the structs of that version");
	return ktap_end();
}
