// SPDX-License-Identifier: GPL-2.0
/*
 * rcvctl caps|driver|channel|queue|others|stalls DEVICE
 * rcvctl hold [-d] [-n] [-e] [-i] [-p PKEY] [-a PKEY] [-u UID] [-m EVENTS] [-l LABEL]
 *	DOMAIN-FILE COUNT
 * rcvctl alloc DOMAIN-FILE
 * rcvctl turns DOMAIN-FILE
 * rcvctl join DOMAIN-FILE
 * rcvctl connect [-a PKEY] DOMAIN-FILE
 * rcvctl error [-p PKEY] DOMAIN-FILE [TIMES]
 * rcvctl path [-i | -t] DOMAIN-FILE FROM TO
 *
 * Receive QPs from a shell script, on the device of the node it runs in.
 *
 * caps: the results of QUERY_CAPS, a line of NAME=VALUE each.
 * driver: the result of a method that is not ib_xrc_rcv's: that of driver_def.ko, or on mlx5 the
 *	number of bytes of a doorbell page that mlx5_ib allocates.
 * channel: keeps an event channel of a file that it has closed.
 * queue: the same, but the channel is in the queue of a socket only.
 * others: says "ready"; until its input ends, threads open and close the device, and create and
 *	destroy objects that are not ib_xrc_rcv's. Then it says "done", or an error ends it.
 * stalls: says "ready" when a call of the device waits for a page of its attributes, which comes
 *	when its input ends.
 * hold: creates COUNT QPs (-d: for the domain's lifetime, -n: so, and without a
 *	registration, -e: with an event channel that is its own; -i: in INIT; -a: in
 *	RTR, with an alternate path in that partition; -p: in that partition; -u: as
 *	that user; -m: with that event mask; -l: with that label) and says "qp
 *	NUMBER" for each, or the error that ends it; then "ready", and stays until its input ends.
 * alloc: says "ready", and creates a QP for each byte of its input likewise.
 * turns: says "ready", and creates and destroys a QP for each byte of its input, which it
 *	says the number of and "done", or the error.
 * join: registers with all QPs of the domain, says "ready" and stays likewise.
 * connect: takes every QP of the domain from INIT to RTR.
 * error: takes every QP of the domain into the error state, TIMES times.
 * path: creates a QP in RTR with the path from the GID FROM to the GID TO, and prints
 *	"RTR" or the error; -i: by MODIFY; -t: a target QP of ib_core's.
 *
 * tags: part
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "../test-modules/driver_def/driver_def.h"
#include "member.h"

static struct node node;
static struct domain domain;
static const uint64_t *label;

static struct ibv_context *open_device(const char *device_name)
{
	struct ibv_device **device = ibv_get_device_list(NULL);
	struct ibv_context *context;

	for (; device && *device; device++)
		if (!strcmp(ibv_get_device_name(*device), device_name))
			break;
	context = device && *device ? ibv_open_device(*device) : NULL;
	if (!context)
		errx(1, "no device %s", device_name);
	return context;
}

static void call_driver_def(struct call *call, uint32_t *answer)
{
	call_start(call, DRIVER_DEF_OBJECT, DRIVER_DEF_METHOD);
	call_out(call, DRIVER_DEF_ATTR_ANSWER, answer, sizeof(*answer));
}

static void call_mlx5(struct call *call, uint32_t *answer)
{
	static const uint64_t type = MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC;
	static uint64_t offset;
	static uint32_t page;

	call_start(call, MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
	call_object(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, -1);
	call_in(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, &type, sizeof(type));
	call_out(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset));
	call_out(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, answer, sizeof(*answer));
	call_out(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page, sizeof(page));
}

static int driver(const char *device_name)
{
	uint32_t answer = 0;
	struct call call;
	int result;

	if (driver_id() == RDMA_DRIVER_MLX5)
		call_mlx5(&call, &answer);
	else
		call_driver_def(&call, &answer);
	result = call_run(&call, open_device(device_name)->cmd_fd);
	if (result) {
		printf("%s\n", strerrorname_np(-result));
		return 2;
	}
	printf("%u\n", answer);
	return 0;
}

static int caps(const char *device_name)
{
	struct xrc_rcv_caps caps;
	int result = rcv_caps(open_device(device_name)->cmd_fd, &caps);

	if (result) {
		printf("%s\n", strerrorname_np(-result));
		return 2;
	}
	printf("version=%u\nalloc_flags=%#x\nevent_types=%#" PRIx64 "\n", caps.version,
	       caps.alloc_flags, (uint64_t)caps.event_types);
	printf("max_qps_per_domain=%u\nmax_qps_per_user=%u\nrecord_size=%u\n"
	       "max_registrations_per_qp=%u\n",
	       caps.max_qps_per_domain, caps.max_qps_per_user, caps.record_size,
	       caps.max_registrations_per_qp);
	return 0;
}

static int stay(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

/* A channel of a domain without a file; with any libibverbs, also one without XRC for rxe. */
static int new_channel(struct ibv_context *context)
{
	struct ib_uverbs_open_xrcd_resp response;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_open_xrcd open;
	} call = {
		.header = {
			.command = IB_USER_VERBS_CMD_OPEN_XRCD,
			.in_words = sizeof(call) / 4,
			.out_words = sizeof(response) / 4,
		},
		.open = {
			.response = (uintptr_t)&response,
			.fd = -1,
			.oflags = O_CREAT,
		},
	};
	struct domain domain = { .uverbs_fd = context->cmd_fd };
	int result;

	if (write(context->cmd_fd, &call, sizeof(call)) != sizeof(call))
		err(1, "domain");
	domain.handle = response.xrcd_handle;
	result = rcv_channel(domain);
	if (result < 0) {
		errno = -result;
		err(1, "channel");
	}
	return result;
}

static int keep_channel(const char *device_name)
{
	struct ibv_context *context = open_device(device_name);

	new_channel(context);
	if (ibv_close_device(context))
		err(1, "channel");
	return stay();
}

static int queue(const char *device_name)
{
	struct ibv_context *context = open_device(device_name);
	int channel = new_channel(context), sockets[2];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(channel))];
	} control = {
		.header = {
			.cmsg_len = CMSG_LEN(sizeof(channel)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
		},
	};
	struct iovec byte = { .iov_base = "", .iov_len = 1 };
	const struct msghdr message = {
		.msg_iov = &byte,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_LEN(sizeof(channel)),
	};

	memcpy(CMSG_DATA(&control.header), &channel, sizeof(channel));
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) ||
	    sendmsg(sockets[0], &message, 0) != 1 || close(channel) || ibv_close_device(context))
		err(1, "queue");
	return stay();
}

static atomic_bool stops;

/* Large, as the file is locked for reading while its memory is pinned. */
#define BUFFER_SIZE (4 << 20)

static void *register_memory(void *argument)
{
	struct ibv_pd *pd = argument;
	void *buffer = aligned_alloc(4096, BUFFER_SIZE);
	struct ibv_mr *mr;

	while (!stops) {
		mr = ibv_reg_mr(pd, buffer, BUFFER_SIZE, IBV_ACCESS_LOCAL_WRITE);
		if (!mr || ibv_dereg_mr(mr))
			err(1, "MR");
	}
	free(buffer);
	return NULL;
}

static void *create_cqs(void *argument)
{
	struct ibv_pd *pd = argument;
	struct ibv_cq *cq;

	while (!stops) {
		cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0);
		if (!cq || ibv_destroy_cq(cq))
			err(1, "CQ");
	}
	return NULL;
}

static void *open_and_close(void *argument)
{
	struct ibv_pd *pd = argument;
	struct ibv_context *context;

	while (!stops) {
		context = ibv_open_device(pd->context->device);
		if (!context || ibv_close_device(context))
			err(1, "device");
	}
	return NULL;
}

static int others(const char *device_name)
{
	void *(*const loops[])(void *) = {
		register_memory, register_memory, create_cqs, open_and_close
	};
	const unsigned int count = sizeof(loops) / sizeof(*loops);
	struct ibv_context *context = open_device(device_name);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	pthread_t threads[count];
	unsigned int i;

	if (!pd)
		err(1, "PD");
	for (i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, loops[i], pd))
			errx(1, "no threads");
	stay();
	stops = true;
	for (i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	if (ibv_dealloc_pd(pd) || ibv_close_device(context))
		err(1, "close");
	printf("done\n");
	return 0;
}

enum { PAGE = 1 << 16 };	/* whole pages, whatever their size */

struct stalled {
	int file;
	struct ib_uverbs_ioctl_hdr *call;
};

static void *make_call(void *argument)
{
	const struct stalled *stalled = argument;

	/* An attribute of zeros: no method has it. */
	if (!ioctl(stalled->file, RDMA_VERBS_IOCTL, stalled->call))
		errx(1, "the call succeeded");
	return NULL;
}

static int stalls(const char *device_name)
{
	const uint16_t length = sizeof(struct ib_uverbs_ioctl_hdr) + sizeof(struct ib_uverbs_attr);
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register area = {
		.range = { .start = (uintptr_t)pages + PAGE, .len = PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_zeropage zeros = { .range = area.range };
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct stalled stalled;
	struct uffd_msg fault;
	pthread_t thread;

	if (pages == MAP_FAILED || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &area))
		err(1, "pages");
	stalled.file = open_device(device_name)->cmd_fd;
	/* The header is before the page, and its attribute in it. */
	stalled.call = (void *)(pages + PAGE - sizeof(*stalled.call));
	*stalled.call = (struct ib_uverbs_ioctl_hdr){
		.length = length,
		.object_id = UVERBS_OBJECT_DEVICE,
		.method_id = UVERBS_METHOD_INFO_HANDLES,
		.num_attrs = 1,
		.driver_id = driver_id(),
	};
	if (pthread_create(&thread, NULL, make_call, &stalled))
		errx(1, "no thread");
	if (read(faults, &fault, sizeof(fault)) != sizeof(fault))
		err(1, "page fault");
	stay();
	if (ioctl(faults, UFFDIO_ZEROPAGE, &zeros))
		err(1, "page");
	pthread_join(thread, NULL);
	return 0;
}

static bool in_init;
static int alternate = -1;	/* P_Key index */

/* A connection to a QP of the same port. */
static struct path peer(void)
{
	return (struct path){ .lid = node.lid, .qp_num = 0x17 };
}

static void add_alternate(struct ib_uverbs_qp_attr *attr)
{
	if (alternate < 0)
		return;
	attr->qp_attr_mask |= IBV_QP_ALT_PATH;
	attr->alt_ah_attr = attr->ah_attr;
	attr->alt_port_num = node.port;
	attr->alt_pkey_index = alternate;
}

static bool create(uint32_t flags, int channel)
{
	struct registration registration;
	struct ib_uverbs_qp_attr attr;
	struct path path = peer();
	int result;

	attr = alternate < 0 ? attr_to_init(&node) : attr_connected(&node, &path);
	add_alternate(&attr);
	result = rcv_alloc_labelled(domain, flags, in_init || alternate >= 0 ? &attr : NULL, channel,
				    label, &registration);
	if (result)
		printf("%s\n", strerrorname_np(-result));
	else
		printf("qp %u\n", registration.qp_num);
	return !result;
}

static int hold(unsigned int count, uint32_t flags, int channel)
{
	while (count-- && create(flags, channel))
		;
	return stay();
}

static int alloc(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0) {
		create(0, NO_CHANNEL);
		fflush(stdout);
	}
	return 0;
}

static int turns(void)
{
	struct registration registration;
	int number = 0, result;
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0) {
		result = rcv_alloc(domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, NO_REGISTRATION,
				   &registration) ?:
			 rcv_destroy(domain, registration.qp_num);
		printf("%d %s\n", ++number, result ? strerrorname_np(-result) : "done");
		fflush(stdout);
	}
	return 0;
}

static void visit_qps(void (*function)(uint32_t qp_num))
{
	struct xrc_rcv_qp_info infos[64];
	uint32_t after = 0, count, i;

	for (;;) {
		count = 64;
		errno = -rcv_list(domain, after, infos, &count, NULL);
		if (errno)
			err(1, "QUERY_DOMAIN");
		if (!count)
			return;
		for (i = 0; i < count; i++)
			function(infos[i].qp_num);
		after = infos[count - 1].qp_num;
	}
}

static void join_qp(uint32_t qp_num)
{
	struct registration registration;

	errno = -rcv_reg(domain, qp_num, NO_CHANNEL, &registration);
	if (errno)
		err(1, "REG");
}

static void connect_qp(uint32_t qp_num)
{
	struct path path = peer();
	struct ib_uverbs_qp_attr attr = attr_to_rtr(&node, &path);

	add_alternate(&attr);
	errno = -rcv_modify(domain, qp_num, &attr);
	if (errno)
		err(1, "MODIFY");
}

static void break_qp(uint32_t qp_num)
{
	struct ib_uverbs_qp_attr init = attr_to_init(&node);

	errno = -rcv_to_state(domain, qp_num, IBV_QPS_RESET);
	if (!errno)
		errno = -rcv_modify(domain, qp_num, &init);
	if (!errno)
		errno = -rcv_to_state(domain, qp_num, IBV_QPS_ERR);
	if (errno)
		err(1, "MODIFY");
}

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid gid;

	if (inet_pton(AF_INET6, address, gid.raw) != 1)
		errx(2, "%s is no address of IPv6", address);
	return gid;
}

/* As rcv_alloc() with the attributes of a path. */
static int connect_target(struct ibv_qp *qp, const struct path *path)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = node.port };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = node.mtu,
		.dest_qp_num = path->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = node_address(&node, path),
	};

	return ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS) ?:
	       ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int connect_path(const char *from, const char *to, bool of_core, struct ibv_xrcd *xrcd)
{
	struct path path = { .gid = gid_of(to), .qp_num = 0x17 };
	struct registration registration;
	struct ib_uverbs_qp_attr attr;
	struct ibv_gid_entry entry;
	int i, result;

	node.gid = gid_of(from);
	for (i = 0;; i++) {
		result = ibv_query_gid_ex(node.context, node.port, i, &entry, 0);
		/* An entry may be empty. */
		if (result && result != ENODATA)
			errx(1, "no GID %s", from);
		if (!result && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !memcmp(&entry.gid, &node.gid, sizeof(node.gid)))
			break;
	}
	node.gid_index = i;
	if (of_core) {
		result = connect_target(node_create_target(&node, xrcd), &path);
	} else if (in_init) {
		attr = attr_to_init(&node);
		if (rcv_alloc(domain, 0, &attr, NO_CHANNEL, &registration))
			errx(1, "ALLOC to INIT");
		attr = attr_to_rtr(&node, &path);
		result = -rcv_modify(domain, registration.qp_num, &attr);
	} else {
		attr = attr_connected(&node, &path);
		result = -rcv_alloc(domain, 0, &attr, NO_CHANNEL, &registration);
	}
	printf("%s\n", result ? strerrorname_np(result) : "RTR");
	return 0;
}

/* The index of what an option says. */
static int partition(const char *pkey)
{
	int index = pkey ? node_pkey_index(&node, strtoul(pkey, NULL, 0)) : -1;

	if (pkey && index < 0)
		errx(1, "no P_Key %s", pkey);
	return index;
}

int main(int argc, char **argv)
{
	const char *primary_pkey = NULL, *alternate_pkey = NULL;
	const char *what = argc > 1 ? argv[1] : "";
	bool wants_channel = false, of_core = false;
	int channel = NO_CHANNEL;
	uint64_t *mask = NULL, events, value;
	struct ibv_xrcd *xrcd;
	uint32_t flags = 0;
	uid_t user = 0;
	int option;

	if (!strcmp(what, "caps") && argc == 3)
		return caps(argv[2]);
	if (!strcmp(what, "driver") && argc == 3)
		return driver(argv[2]);
	if (!strcmp(what, "channel") && argc == 3)
		return keep_channel(argv[2]);
	if (!strcmp(what, "queue") && argc == 3)
		return queue(argv[2]);
	if (!strcmp(what, "others") && argc == 3)
		return others(argv[2]);
	if (!strcmp(what, "stalls") && argc == 3)
		return stalls(argv[2]);
	argc--;
	argv++;
	while ((option = getopt(argc, argv, "a:deinp:tu:m:l:")) != -1)
		if (option == 'a') {
			alternate_pkey = optarg;
		} else if (option == 'd') {
			flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
		} else if (option == 'n') {
			flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
			channel = NO_REGISTRATION;
		} else if (option == 'e') {
			wants_channel = true;
		} else if (option == 'i') {
			in_init = true;
		} else if (option == 'p') {
			primary_pkey = optarg;
		} else if (option == 't') {
			of_core = true;
		} else if (option == 'u') {
			user = strtoul(optarg, NULL, 10);
		} else if (option == 'm') {
			events = strtoull(optarg, NULL, 0);
			mask = &events;
		} else if (option == 'l') {
			value = strtoull(optarg, NULL, 0);
			label = &value;
		}
	if (optind == argc)
		errx(2, "usage: rcvctl caps|driver|channel|queue|others|hold|alloc|turns|join|connect|error|path …");
	node_open(&node, "right");
	alternate = partition(alternate_pkey);
	if (primary_pkey)
		node.pkey_index = partition(primary_pkey);
	/* A file that it makes is the user's. */
	if (user && setresuid(user, user, user))
		err(1, "user %u", user);
	xrcd = node_open_domain(&node, argv[optind]);
	domain = domain_of(xrcd);
	if (!strcmp(what, "hold") && optind + 2 == argc)
		return hold(strtoul(argv[optind + 1], NULL, 10), flags,
			    wants_channel ? rcv_channel_with(domain, NULL, mask) : channel);
	if (!strcmp(what, "alloc"))
		return alloc();
	if (!strcmp(what, "turns"))
		return turns();
	if (!strcmp(what, "path") && optind + 3 == argc)
		return connect_path(argv[optind + 1], argv[optind + 2], of_core, xrcd);
	if (!strcmp(what, "join")) {
		visit_qps(join_qp);
		return stay();
	}
	if (!strcmp(what, "connect")) {
		visit_qps(connect_qp);
		return 0;
	}
	if (!strcmp(what, "error")) {
		unsigned long times = optind + 1 < argc ? strtoul(argv[optind + 1], NULL, 10) : 1;

		/* The event comes a moment after the error; RESET would forget it. */
		while (times--) {
			visit_qps(break_qp);
			usleep(2000);
		}
		return 0;
	}
	errx(2, "%s is not known", what);
}
