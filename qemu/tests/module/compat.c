// SPDX-License-Identifier: GPL-2.0
/*
 * Every method of the module with all of its attributes, and the reads of an event channel, by a
 * process without libibverbs. This file is built for 64 bits and for 32; module/compat runs both
 * programs, and compares the accounts that they write: the result of each call, and the bytes that
 * the kernel wrote, with QP numbers and times replaced.
 *
 * usage: compat BITS DEVICE PORT ACCOUNT
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "method.h"

#define DOMAIN_FILE "/tmp/compat"

enum {
	QPS = 3,
	DEAD = 0xabcdef,
	/* A record and an element that are longer than the kernel's. */
	LONG = 64,
	LONG_INFO = sizeof(struct xrc_rcv_reg_info) + 8,
	UNWRITTEN = 0xee,
};

static const uint64_t first_label = 0xfedcba9876543210;
static const uint64_t gone = 1ull << XRC_RCV_EVENT_QP_GONE;

static const char *device;
static uint8_t port;
static FILE *account;

/* Two open files of the process with the same domain, and a channel of each. */
static struct domain domains[2];
static int channels[2] = { -1, -1 };
static uint32_t qp_nums[QPS];
static uint64_t serials[QPS];

/* ---- the account ---- */

/* Calls a method through one of the two files. */
static int run(unsigned int which, const char *what, struct call *call)
{
	int result = call_run(call, domains[which].uverbs_fd);

	fprintf(account, "%s: %d\n", what, result);
	return result;
}

static void wrote(const char *what, const void *data, size_t size)
{
	const uint8_t *bytes = data;
	size_t i;

	fprintf(account, "  %s:", what);
	for (i = 0; i < size; i++)
		fprintf(account, " %02x", bytes[i]);
	fprintf(account, "\n");
}

/* Numbers of QPs differ from one run to the next. */
static bool is_qp(uint32_t *qp_num, unsigned int qp)
{
	HOLDS(*qp_num == qp_nums[qp]);
	*qp_num = qp;
	return true;
}

/* A domain counts from 1, but may have had QPs in the run before. */
static bool is_serial(uint64_t *serial, unsigned int qp)
{
	HOLDS(*serial == serials[qp] && serials[qp] == serials[0] + qp);
	*serial = qp;
	return true;
}

/* ---- the device, without a library ---- */

/* The first line of a file of sysfs. */
__attribute__((format(printf, 3, 4)))
static bool read_line(char *line, size_t size, const char *format, ...)
{
	char path[256];
	va_list args;
	FILE *file;
	bool is_read;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	file = fopen(path, "re");
	if (!file)
		return false;
	is_read = fgets(line, size, file);
	fclose(file);
	line[is_read ? strcspn(line, "\n") : 0] = 0;
	return is_read;
}

static int open_device(void)
{
	char name[64], path[64];
	int i, fd;

	for (i = 0; i < 32; i++) {
		if (!read_line(name, sizeof(name), "/sys/class/infiniband_verbs/uverbs%d/ibdev", i) ||
		    strcmp(name, device))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/uverbs%d", i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			err(1, "%s", path);
		return fd;
	}
	errx(1, "no device %s", device);
}

/* A call of ib_uverbs that is a write: the header, then the command. */
static void write_command(int fd, uint32_t command, const void *body, size_t size, size_t response)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint8_t body[64];
	} call = {
		.header = {
			.command = command,
			.in_words = (sizeof(call.header) + size) / 4,
			.out_words = response / 4,
		},
	};
	ssize_t length = sizeof(call.header) + size;

	memcpy(call.body, body, size);
	if (write(fd, &call, length) != length)
		err(1, "command %u", command);
}

static struct domain open_domain(void)
{
	struct ib_uverbs_get_context_resp context;
	struct ib_uverbs_get_context get_context = { .response = (uintptr_t)&context };
	struct ib_uverbs_open_xrcd_resp xrcd;
	struct ib_uverbs_open_xrcd open_xrcd = { .response = (uintptr_t)&xrcd, .oflags = O_CREAT };
	int uverbs_fd = open_device(), fd = open(DOMAIN_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		err(1, DOMAIN_FILE);
	open_xrcd.fd = fd;
	write_command(uverbs_fd, IB_USER_VERBS_CMD_GET_CONTEXT, &get_context, sizeof(get_context),
		      sizeof(context));
	write_command(uverbs_fd, IB_USER_VERBS_CMD_OPEN_XRCD, &open_xrcd, sizeof(open_xrcd),
		      sizeof(xrcd));
	close(fd);
	return (struct domain) { .uverbs_fd = uverbs_fd, .handle = xrcd.xrcd_handle };
}

/* The RoCE v2 address of an IPv4 address, as find_gid() of node.c finds it. */
static void find_address(struct ib_uverbs_global_route *route)
{
	char type[64], gid[64];
	int i, byte;

	for (i = 0; i < 16; i++) {
		if (!read_line(type, sizeof(type), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d",
			       device, port, i) ||
		    strcmp(type, "RoCE v2") ||
		    !read_line(gid, sizeof(gid), "/sys/class/infiniband/%s/ports/%u/gids/%d",
			       device, port, i) ||
		    strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30))
			continue;
		route->sgid_index = i;
		/* Two bytes, four digits, between colons. */
		for (byte = 0; byte < 16; byte++) {
			const char *at = &gid[byte / 2 * 5 + byte % 2 * 2];
			const char digits[] = { at[0], at[1], 0 };

			route->dgid[byte] = strtoul(digits, NULL, 16);
		}
		return;
	}
	errx(1, "no RoCE v2 address of %s", device);
}

static struct ib_uverbs_qp_attr to_init(void)
{
	return (struct ib_uverbs_qp_attr) {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				IBV_QP_ACCESS_FLAGS,
		.qp_state = IBV_QPS_INIT,
		.port_num = port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
}

/* The peer would be a QP of the same port; nothing is sent. */
static struct ib_uverbs_qp_attr to_rtr(void)
{
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_MIN_RNR_TIMER,
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 0x123456,
		.rq_psn = 0x654321,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.grh = { .flow_label = 0x12345, .hop_limit = 64, .traffic_class = 8 },
			.is_global = 1,
			.port_num = port,
		},
	};

	find_address(&attr.ah_attr.grh);
	return attr;
}

/* ---- tests ---- */

static bool query_caps(void)
{
	struct xrc_rcv_caps caps;
	struct call call;

	memset(&caps, UNWRITTEN, sizeof(caps));
	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS);
	call_out(&call, XRC_RCV_ATTR_QUERY_CAPS_RESP, &caps, sizeof(caps));
	HOLDS(!run(0, "QUERY_CAPS", &call));
	wrote("caps", &caps, sizeof(caps));
	HOLDS(caps.version >= 2 && caps.record_size == sizeof(struct xrc_rcv_record));
	HOLDS(caps.event_types & gone);

	/* An address is not cut to the bits that a process has. */
	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS);
	call_add(&call, XRC_RCV_ATTR_QUERY_CAPS_RESP, sizeof(caps), (uintptr_t)&caps | 1ull << 63);
	HOLDS(run(0, "QUERY_CAPS at no address", &call) == -EFAULT);
	return true;
}

static bool alloc_channel(unsigned int which, uint32_t size)
{
	const uint64_t flags = 0;
	struct ib_uverbs_attr *fd;
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC);
	fd = call_object(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, -1);
	call_object(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE, domains[which].handle);
	call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE, &size, sizeof(size));
	call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS, &gone, sizeof(gone));
	call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS, &flags, sizeof(flags));
	HOLDS(!run(which, "EVENT_CHANNEL_ALLOC", &call));
	channels[which] = fd->data_s64;
	HOLDS(fcntl(channels[which], F_GETFD) == FD_CLOEXEC);
	return true;
}

static bool alloc_channels(void)
{
	return alloc_channel(0, sizeof(struct xrc_rcv_record)) && alloc_channel(1, LONG);
}

/* QP 0 in RTR by ALLOC, with all of its attributes; flags of 64 bits. */
static bool alloc_connected(void)
{
	const uint64_t flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
	struct ib_uverbs_qp_attr init = to_init(), attr = to_rtr();
	struct call call;

	attr.qp_attr_mask |= init.qp_attr_mask;
	attr.qp_access_flags = init.qp_access_flags;
	attr.port_num = init.port_num;
	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC);
	call_object(&call, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, domains[0].handle);
	call_in(&call, XRC_RCV_ATTR_QP_ALLOC_FLAGS, &flags, sizeof(flags));
	call_in(&call, XRC_RCV_ATTR_QP_ALLOC_ATTR, &attr, sizeof(attr));
	call_object(&call, XRC_RCV_ATTR_QP_ALLOC_CHANNEL, channels[0]);
	call_out(&call, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &qp_nums[0], sizeof(qp_nums[0]));
	call_in(&call, XRC_RCV_ATTR_QP_ALLOC_LABEL, &first_label, sizeof(first_label));
	call_out(&call, XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL, &serials[0], sizeof(serials[0]));
	HOLDS(!run(0, "QP_ALLOC", &call));
	HOLDS(qp_nums[0] && qp_nums[0] <= 0xffffff && serials[0]);
	return true;
}

/* The others in RESET, without optional attributes. */
static bool alloc_others(void)
{
	struct call call;
	unsigned int qp;

	for (qp = 1; qp < QPS; qp++) {
		call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC);
		call_object(&call, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, domains[0].handle);
		call_object(&call, XRC_RCV_ATTR_QP_ALLOC_CHANNEL, channels[0]);
		call_out(&call, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &qp_nums[qp], sizeof(qp_nums[qp]));
		HOLDS(!run(0, "QP_ALLOC", &call));
		serials[qp] = serials[0] + qp;
	}
	return true;
}

static int modify_to(unsigned int qp, const struct ib_uverbs_qp_attr *attr)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY);
	call_object(&call, XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, domains[0].handle);
	call_in(&call, XRC_RCV_ATTR_QP_MODIFY_QPN, &qp_nums[qp], sizeof(qp_nums[qp]));
	call_in(&call, XRC_RCV_ATTR_QP_MODIFY_ATTR, attr, sizeof(*attr));
	return run(0, "QP_MODIFY", &call);
}

static bool modify(void)
{
	struct ib_uverbs_qp_attr init = to_init(), rtr = to_rtr();

	HOLDS(modify_to(1, &rtr) == -EINVAL);
	HOLDS(!modify_to(1, &init));
	HOLDS(!modify_to(1, &rtr));
	return true;
}

static bool query_one(unsigned int qp, struct ib_uverbs_qp_attr *attr, struct xrc_rcv_qp_info *info)
{
	struct call call;

	memset(attr, UNWRITTEN, sizeof(*attr));
	memset(info, UNWRITTEN, sizeof(*info));
	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_QUERY);
	call_object(&call, XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, domains[1].handle);
	call_in(&call, XRC_RCV_ATTR_QP_QUERY_QPN, &qp_nums[qp], sizeof(qp_nums[qp]));
	call_out(&call, XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, attr, sizeof(*attr));
	call_out(&call, XRC_RCV_ATTR_QP_QUERY_RESP_INFO, info, sizeof(*info));
	HOLDS(!run(1, "QP_QUERY", &call));
	HOLDS(is_qp(&info->qp_num, qp));
	wrote("attr", attr, sizeof(*attr));
	wrote("info", info, sizeof(*info));
	return true;
}

/* The attributes that ALLOC and MODIFY were called with. */
static bool query(void)
{
	struct ib_uverbs_qp_attr attr, rtr = to_rtr();
	struct xrc_rcv_qp_info info;
	unsigned int qp;

	for (qp = 0; qp < QPS; qp++) {
		bool is_connected = qp < 2;

		HOLDS(query_one(qp, &attr, &info));
		HOLDS(attr.qp_state == (is_connected ? IBV_QPS_RTR : IBV_QPS_RESET));
		HOLDS(info.state == attr.qp_state && info.registrations == 1);
		HOLDS(info.lifetime == (qp ? XRC_RCV_LIFETIME_REGISTRATIONS : XRC_RCV_LIFETIME_DOMAIN));
		HOLDS(info.label == (qp ? 0 : first_label));
		if (!is_connected)
			continue;
		HOLDS(info.dest_qp_num == rtr.dest_qp_num && attr.dest_qp_num == rtr.dest_qp_num);
		HOLDS(attr.rq_psn == rtr.rq_psn && attr.path_mtu == rtr.path_mtu);
		HOLDS(attr.max_dest_rd_atomic == 4 && attr.min_rnr_timer == 12);
		HOLDS(!memcmp(&attr.ah_attr.grh, &rtr.ah_attr.grh, sizeof(rtr.ah_attr.grh)));
	}
	return true;
}

static int reg_array(const uint32_t *numbers, unsigned int count, uint8_t infos[][LONG_INFO],
		     uint32_t *done)
{
	const uint32_t size = LONG_INFO;
	struct call call;
	int result;

	*done = ~0u;
	memset(infos, UNWRITTEN, count * size);
	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG);
	call_object(&call, XRC_RCV_ATTR_QP_REG_CHANNEL, channels[1]);
	call_in(&call, XRC_RCV_ATTR_QP_REG_QPNS, numbers, count * sizeof(*numbers));
	call_out(&call, XRC_RCV_ATTR_QP_REG_RESP_DONE, done, sizeof(*done));
	call_out(&call, XRC_RCV_ATTR_QP_REG_RESP_INFO, infos, count * size);
	call_in(&call, XRC_RCV_ATTR_QP_REG_INFO_SIZE, &size, sizeof(size));
	result = run(1, "QP_REG", &call);
	wrote("done", done, sizeof(*done));
	return result;
}

/* The part of a longer record that the kernel does not know is zero. */
static bool is_zero(const uint8_t *bytes, size_t size)
{
	while (size--)
		HOLDS(!bytes[size]);
	return true;
}

/* Elements of the first QPs, which have had no event. The others are not written. */
static bool wrote_infos(uint8_t infos[][LONG_INFO], unsigned int count, unsigned int done)
{
	struct xrc_rcv_reg_info info;
	unsigned int qp;

	for (qp = 0; qp < done; qp++) {
		memcpy(&info, infos[qp], sizeof(info));
		HOLDS(is_serial((uint64_t *)&info.serial, qp));
		HOLDS(is_zero(infos[qp] + sizeof(info.serial), LONG_INFO - sizeof(info.serial)));
		memcpy(infos[qp], &info, sizeof(info));
	}
	wrote("infos", infos, count * LONG_INFO);
	return true;
}

/* Arrays that are in the attribute, and arrays at an address. */
static bool reg(void)
{
	const uint32_t unknown[] = { qp_nums[0], qp_nums[1], DEAD, qp_nums[2] };
	uint8_t infos[ARRAY_SIZE(unknown)][LONG_INFO];
	uint32_t done;

	HOLDS(!reg_array(qp_nums, 1, infos, &done) && done == 1 && wrote_infos(infos, 1, 1));
	HOLDS(reg_array(unknown, ARRAY_SIZE(unknown), infos, &done) == -EINVAL && done == 2);
	HOLDS(wrote_infos(infos, ARRAY_SIZE(unknown), 2) && infos[2][0] == UNWRITTEN);
	HOLDS(!reg_array(qp_nums, QPS, infos, &done) && done == QPS);
	return wrote_infos(infos, QPS, QPS);
}

/* By the file of the channel. The request has the size of a longer struct. */
static int by_ioctl(const char *what, unsigned int number, const uint32_t *numbers,
		    unsigned int count, uint8_t infos[][LONG_INFO], uint32_t *done)
{
	struct {
		struct xrc_rcv_qpns args;
		uint64_t unknown;
	} longer = {
		.args = {
			.qpns = (uintptr_t)numbers,
			.infos = (uintptr_t)infos,
			.count = count,
			.info_size = infos ? LONG_INFO : 0,
			.done = ~0u,
		},
	};
	int result;

	if (infos)
		memset(infos, UNWRITTEN, count * LONG_INFO);
	result = ioctl(channels[1], _IOWR(RDMA_IOCTL_MAGIC, number, longer), &longer) ? -errno : 0;
	*done = longer.args.done;
	fprintf(account, "%s: %d\n", what, result);
	wrote("done", done, sizeof(*done));
	return result;
}

/* The second channel is registered with all QPs afterwards, as it was before. */
static bool ioctls(void)
{
	const uint32_t unknown[] = { qp_nums[0], DEAD, qp_nums[1] };
	uint8_t infos[ARRAY_SIZE(unknown)][LONG_INFO];
	uint32_t done;

	HOLDS(!by_ioctl("UNREG", XRC_RCV_IOCTL_NR_UNREG, qp_nums, QPS, NULL, &done) && done == QPS);
	HOLDS(by_ioctl("REG", XRC_RCV_IOCTL_NR_REG, unknown, 3, infos, &done) == -EINVAL && done == 1);
	HOLDS(wrote_infos(infos, 3, 1) && infos[1][0] == UNWRITTEN);
	HOLDS(!by_ioctl("REG", XRC_RCV_IOCTL_NR_REG, qp_nums, QPS, infos, &done) && done == QPS);
	return wrote_infos(infos, QPS, QPS);
}

/* A page of two elements, which are longer than the kernel's. */
static bool list_page(uint32_t after, uint8_t page[2][LONG], uint32_t *count)
{
	const uint32_t size = LONG;
	uint32_t total = ~0u;
	struct call call;

	memset(page, UNWRITTEN, 2 * LONG);
	*count = ~0u;
	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN);
	call_object(&call, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, domains[1].handle);
	call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN, &after, sizeof(after));
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, page, 2 * LONG);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, count, sizeof(*count));
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, &total, sizeof(total));
	call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &size, sizeof(size));
	HOLDS(!run(1, "QUERY_DOMAIN", &call));
	wrote("count", count, sizeof(*count));
	wrote("total", &total, sizeof(total));
	HOLDS(total == QPS && *count <= 2);
	return true;
}

static bool query_domain(void)
{
	uint8_t listed[QPS + 3][LONG];
	uint32_t after = 0, count, found = 0;
	unsigned int qp, i;

	do {
		HOLDS(found <= QPS + 1);
		HOLDS(list_page(after, &listed[found], &count));
		found += count;
		if (count)
			memcpy(&after, listed[found - 1], sizeof(after));
	} while (count);
	HOLDS(found == QPS);
	/* In the order in which they were created: that of their numbers may be another. */
	for (qp = 0; qp < QPS; qp++) {
		struct xrc_rcv_qp_info info;

		for (i = 0; i < QPS - 1 && memcmp(listed[i], &qp_nums[qp], sizeof(qp_nums[qp])); i++)
			;
		memcpy(&info, listed[i], sizeof(info));
		HOLDS(is_qp(&info.qp_num, qp) && info.registrations == 2);
		HOLDS(is_zero(listed[i] + sizeof(info), LONG - sizeof(info)));
		memcpy(listed[i], &info, sizeof(info));
		wrote("info", listed[i], LONG);
	}
	return true;
}

static int unreg_array(const uint32_t *numbers, unsigned int count, uint32_t *done)
{
	struct call call;
	int result;

	*done = ~0u;
	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG);
	call_object(&call, XRC_RCV_ATTR_QP_UNREG_CHANNEL, channels[1]);
	call_in(&call, XRC_RCV_ATTR_QP_UNREG_QPNS, numbers, count * sizeof(*numbers));
	call_out(&call, XRC_RCV_ATTR_QP_UNREG_RESP_DONE, done, sizeof(*done));
	result = run(1, "QP_UNREG", &call);
	wrote("done", done, sizeof(*done));
	return result;
}

/* Afterwards the second channel has a registration with QP 0 alone. */
static bool unreg(void)
{
	const uint32_t others[] = { DEAD, qp_nums[1], qp_nums[2] };
	struct ib_uverbs_qp_attr attr;
	struct xrc_rcv_qp_info info;
	uint32_t done;

	HOLDS(!unreg_array(others, ARRAY_SIZE(others), &done) && done == ARRAY_SIZE(others));
	HOLDS(!unreg_array(others, 1, &done) && done == 1);
	HOLDS(query_one(0, &attr, &info) && info.registrations == 2);
	HOLDS(query_one(1, &attr, &info) && info.registrations == 1);
	return true;
}

static int destroy_with(unsigned int qp, uint32_t flags)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_DESTROY);
	call_object(&call, XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, domains[0].handle);
	call_in(&call, XRC_RCV_ATTR_QP_DESTROY_QPN, &qp_nums[qp], sizeof(qp_nums[qp]));
	call_in(&call, XRC_RCV_ATTR_QP_DESTROY_FLAGS, &flags, sizeof(flags));
	return run(0, "QP_DESTROY", &call);
}

/* QPs 0 and 1, which have registrations. */
static bool destroy(void)
{
	HOLDS(destroy_with(0, 0) == -EBUSY);
	HOLDS(destroy_with(1, 0) == -EINVAL);
	HOLDS(!destroy_with(0, XRC_RCV_DESTROY_FORCE));
	HOLDS(!destroy_with(1, XRC_RCV_DESTROY_FORCE));
	HOLDS(destroy_with(1, XRC_RCV_DESTROY_FORCE) == -EINVAL);
	return true;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now))
		err(1, "clock_gettime");
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* The next record of a channel, of SIZE bytes, is QP_GONE. */
static bool read_gone(unsigned int which, size_t size, unsigned int qp)
{
	uint8_t record[LONG];
	struct xrc_rcv_record event;
	struct pollfd polled = { .fd = channels[which], .events = POLLIN };

	HOLDS(poll(&polled, 1, PATIENCE_MS) == 1 && polled.revents == POLLIN);
	memset(record, UNWRITTEN, sizeof(record));
	HOLDS(read(channels[which], record, size) == (ssize_t)size);
	memcpy(&event, record, sizeof(event));
	HOLDS(is_zero(record + sizeof(event), size - sizeof(event)));
	HOLDS(event.type == XRC_RCV_EVENT_QP_GONE && event.count == 1);
	HOLDS(event.last_ns && event.last_ns <= now_ns());
	HOLDS(is_qp(&event.qp_num, qp) && is_serial((uint64_t *)&event.serial, qp));
	event.last_ns = 0;
	memcpy(record, &event, sizeof(event));
	fprintf(account, "read:\n");
	wrote("record", record, sizeof(record));
	return true;
}

/* The registrations with QPs 0 and 1 of the first channel, and that with QP 0 of the second. */
static bool events(void)
{
	uint8_t record[LONG];

	HOLDS(read(channels[1], record, LONG - 1) < 0 && errno == EINVAL);
	HOLDS(read_gone(0, sizeof(struct xrc_rcv_record), 0));
	HOLDS(read_gone(0, sizeof(struct xrc_rcv_record), 1));
	HOLDS(read_gone(1, LONG, 0));
	for (int which = 0; which < 2; which++) {
		HOLDS(!fcntl(channels[which], F_SETFL, O_NONBLOCK));
		HOLDS(read(channels[which], record, LONG) < 0 && errno == EAGAIN);
	}
	return true;
}

/* QP 2 is destroyed with its only registration, which ends with the channel. */
static bool close_channel(void)
{
	struct ib_uverbs_qp_attr attr;
	struct xrc_rcv_qp_info info;

	HOLDS(query_one(2, &attr, &info));
	HOLDS(!close(channels[0]));
	HOLDS(destroy_with(2, XRC_RCV_DESTROY_FORCE) == -EINVAL);
	HOLDS(!close(channels[1]));
	return true;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		errx(2, "usage: compat BITS DEVICE PORT ACCOUNT");
	if (strtoul(argv[1], NULL, 10) != 8 * sizeof(void *))
		errx(1, "this program has %zu bits", 8 * sizeof(void *));
	device = argv[2];
	port = strtoul(argv[3], NULL, 10);
	account = fopen(argv[4], "we");
	if (!account)
		err(1, "%s", argv[4]);
	domains[0] = open_domain();
	domains[1] = open_domain();

	ktap_start("methods without a library", 12);
	ktap_result(query_caps(), "QUERY_CAPS");
	ktap_result(alloc_channels(), "EVENT_CHANNEL_ALLOC");
	ktap_result(alloc_connected(), "QP_ALLOC, to RTR");
	ktap_result(alloc_others(), "QP_ALLOC, to RESET");
	ktap_result(modify(), "QP_MODIFY");
	ktap_result(query(), "QP_QUERY");
	ktap_result(reg(), "QP_REG");
	ktap_result(ioctls(), "REG and UNREG by ioctls of the channel");
	ktap_result(query_domain(), "QUERY_DOMAIN");
	ktap_result(unreg(), "QP_UNREG");
	ktap_result(destroy(), "QP_DESTROY");
	ktap_result(events() && close_channel(), "records of QP_GONE, and the end of a channel");
	if (fclose(account))
		err(1, "%s", argv[4]);
	unlink(DOMAIN_FILE);
	return ktap_end();
}
