// SPDX-License-Identifier: GPL-2.0

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "node.h"
#include "method.h"

void call_start(struct call *call, uint16_t object, uint16_t method)
{
	memset(call, 0, sizeof(*call));
	call->header.object_id = object;
	call->header.method_id = method;
	call->header.driver_id = driver_id();
}

struct ib_uverbs_attr *call_add(struct call *call, uint16_t id, uint16_t length,
				uint64_t data)
{
	struct ib_uverbs_attr *attribute = &call->attributes[call->header.num_attrs++];

	attribute->attr_id = id;
	attribute->len = length;
	attribute->flags = UVERBS_ATTR_F_MANDATORY;
	attribute->data = data;
	return attribute;
}

struct ib_uverbs_attr *call_in(struct call *call, uint16_t id, const void *data,
			       uint16_t length)
{
	uint64_t inline_data = 0;

	if (length > sizeof(inline_data))
		return call_add(call, id, length, (uintptr_t)data);
	memcpy(&inline_data, data, length);
	return call_add(call, id, length, inline_data);
}

struct ib_uverbs_attr *call_out(struct call *call, uint16_t id, void *data,
				uint16_t length)
{
	return call_add(call, id, length, (uintptr_t)data);
}

struct ib_uverbs_attr *call_object(struct call *call, uint16_t id, int64_t object)
{
	return call_add(call, id, 0, object);
}

int call_run(struct call *call, int uverbs_fd)
{
	call->header.length = sizeof(call->header) +
			      call->header.num_attrs * sizeof(call->attributes[0]);
	return ioctl(uverbs_fd, RDMA_VERBS_IOCTL, &call->header) ? -errno : 0;
}

uint32_t driver_id(void)
{
	const char *id = getenv("LAB_DRIVER_ID");

	if (!id)
		errx(1, "LAB_DRIVER_ID is not set");
	return strtoul(id, NULL, 10);
}

struct domain domain_of(const struct ibv_xrcd *xrcd)
{
	const struct {
		struct ibv_xrcd xrcd;
		uint32_t comp_mask;
		uint32_t handle;
	} *verbs_xrcd = (const void *)xrcd;

	return (struct domain) {
		.uverbs_fd = xrcd->context->cmd_fd,
		.handle = verbs_xrcd->handle,
	};
}

/* The channels for those that have none. */
static struct quiet {
	struct domain domain;
	int channel;
} quiet[8192];
static unsigned int quiet_count;

static struct quiet *quiet_find(struct domain domain)
{
	struct quiet *found;

	for (found = quiet; found < quiet + quiet_count; found++)
		if (found->domain.uverbs_fd == domain.uverbs_fd &&
		    found->domain.handle == domain.handle)
			return found;
	return NULL;
}

static int quiet_channel(struct domain domain, bool again)
{
	struct quiet *found = quiet_find(domain);

	if (found && found->channel >= 0 && !again)
		return found->channel;
	if (!found) {
		if (quiet_count == ARRAY_SIZE(quiet))
			errx(1, "more than %zu domains", ARRAY_SIZE(quiet));
		found = &quiet[quiet_count++];
	} else if (found->channel >= 0) {
		close(found->channel);
	}
	found->domain = domain;
	found->channel = rcv_channel(domain);
	return found->channel;
}

/* Whether the quiet channel may be that of a file or a domain that was closed. */
static bool may_be_stale(int channel, int result)
{
	struct pollfd poll_fd = { .fd = channel };

	if (result == -EIO)
		return poll(&poll_fd, 1, 0) == 1;
	return result == -EBADF || result == -EINVAL;
}

static int alloc(struct domain domain, uint32_t flags, const struct ib_uverbs_qp_attr *attr,
		 int channel, const uint64_t *label, struct registration *registration)
{
	struct call call;

	*registration = (struct registration) { .uverbs_fd = domain.uverbs_fd, .channel = channel };
	if (channel < 0 && channel != NO_REGISTRATION)
		return channel;
	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_ALLOC);
	call_object(&call, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, domain.handle);
	if (flags)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_FLAGS, &flags, sizeof(flags));
	if (attr)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_ATTR, attr, sizeof(*attr));
	if (channel != NO_REGISTRATION)
		call_object(&call, XRC_RCV_ATTR_QP_ALLOC_CHANNEL, channel);
	call_out(&call, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &registration->qp_num,
		 sizeof(registration->qp_num));
	if (label)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_LABEL, label, sizeof(*label));
	call_out(&call, XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL, &registration->serial,
		 sizeof(registration->serial));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_alloc(struct domain domain, uint32_t flags, const struct ib_uverbs_qp_attr *attr,
	      int channel, struct registration *registration)
{
	return rcv_alloc_labelled(domain, flags, attr, channel, NULL, registration);
}

int rcv_alloc_labelled(struct domain domain, uint32_t flags,
		       const struct ib_uverbs_qp_attr *attr, int channel, const uint64_t *label,
		       struct registration *registration)
{
	bool is_quiet = channel == NO_CHANNEL;
	int result;

	if (is_quiet)
		channel = quiet_channel(domain, false);
	result = alloc(domain, flags, attr, channel, label, registration);
	if (is_quiet && may_be_stale(channel, result)) {
		channel = quiet_channel(domain, true);
		result = alloc(domain, flags, attr, channel, label, registration);
	}
	return result;
}

static int reg(struct domain domain, uint32_t qp_num, int channel,
	       struct registration *registration)
{
	*registration = (struct registration) {
		.uverbs_fd = domain.uverbs_fd,
		.channel = channel,
		.qp_num = qp_num,
	};
	if (channel < 0)
		return channel;
	return rcv_reg_many(domain.uverbs_fd, channel, &qp_num, 1, NULL);
}

int rcv_reg(struct domain domain, uint32_t qp_num, int channel,
	    struct registration *registration)
{
	bool is_quiet = channel == NO_CHANNEL;
	int result;

	if (is_quiet)
		channel = quiet_channel(domain, false);
	result = reg(domain, qp_num, channel, registration);
	if (is_quiet && may_be_stale(channel, result)) {
		channel = quiet_channel(domain, true);
		result = reg(domain, qp_num, channel, registration);
	}
	return result;
}

int rcv_reg_info(struct domain domain, uint32_t qp_num, int channel,
		 struct xrc_rcv_reg_info *info)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG);
	call_object(&call, XRC_RCV_ATTR_QP_REG_CHANNEL, channel);
	call_in(&call, XRC_RCV_ATTR_QP_REG_QPNS, &qp_num, sizeof(qp_num));
	call_out(&call, XRC_RCV_ATTR_QP_REG_RESP_INFO, info, sizeof(*info));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_unreg(const struct registration *registration)
{
	return rcv_unreg_many(registration->uverbs_fd, registration->channel,
			      &registration->qp_num, 1, NULL);
}

int rcv_reg_many(int uverbs_fd, int channel, const uint32_t *qp_nums, uint16_t count,
		 uint32_t *done)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_REG);
	call_object(&call, XRC_RCV_ATTR_QP_REG_CHANNEL, channel);
	call_in(&call, XRC_RCV_ATTR_QP_REG_QPNS, qp_nums, count * sizeof(*qp_nums));
	if (done)
		call_out(&call, XRC_RCV_ATTR_QP_REG_RESP_DONE, done, sizeof(*done));
	return call_run(&call, uverbs_fd);
}

int rcv_unreg_many(int uverbs_fd, int channel, const uint32_t *qp_nums, uint16_t count,
		   uint32_t *done)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QP_UNREG);
	call_object(&call, XRC_RCV_ATTR_QP_UNREG_CHANNEL, channel);
	call_in(&call, XRC_RCV_ATTR_QP_UNREG_QPNS, qp_nums, count * sizeof(*qp_nums));
	if (done)
		call_out(&call, XRC_RCV_ATTR_QP_UNREG_RESP_DONE, done, sizeof(*done));
	return call_run(&call, uverbs_fd);
}

static int channel_ioctl(int channel, unsigned long request, struct xrc_rcv_qpns *args,
			 uint32_t *done)
{
	int result = ioctl(channel, request, args) ? -errno : 0;

	if (done)
		*done = args->done;
	return result;
}

int rcv_ioctl_reg(int channel, const uint32_t *qp_nums, uint32_t count,
		  struct xrc_rcv_reg_info *infos, uint32_t *done)
{
	struct xrc_rcv_qpns args = {
		.qpns = (uintptr_t)qp_nums,
		.infos = (uintptr_t)infos,
		.count = count,
		.info_size = infos ? sizeof(*infos) : 0,
		.done = ~0u,
	};

	return channel_ioctl(channel, XRC_RCV_IOCTL_REG, &args, done);
}

int rcv_ioctl_unreg(int channel, const uint32_t *qp_nums, uint32_t count, uint32_t *done)
{
	struct xrc_rcv_qpns args = {
		.qpns = (uintptr_t)qp_nums,
		.count = count,
		.done = ~0u,
	};

	return channel_ioctl(channel, XRC_RCV_IOCTL_UNREG, &args, done);
}

int rcv_modify(struct domain domain, uint32_t qp_num,
	       const struct ib_uverbs_qp_attr *attr)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_MODIFY);
	call_object(&call, XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, domain.handle);
	call_in(&call, XRC_RCV_ATTR_QP_MODIFY_QPN, &qp_num, sizeof(qp_num));
	call_in(&call, XRC_RCV_ATTR_QP_MODIFY_ATTR, attr, sizeof(*attr));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_to_state(struct domain domain, uint32_t qp_num, enum ibv_qp_state state)
{
	struct ib_uverbs_qp_attr attr = {
		.qp_attr_mask = IBV_QP_STATE,
		.qp_state = state,
	};

	return rcv_modify(domain, qp_num, &attr);
}

int rcv_query(struct domain domain, uint32_t qp_num, struct ib_uverbs_qp_attr *attr,
	      struct xrc_rcv_qp_info *info)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_QUERY);
	call_object(&call, XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, domain.handle);
	call_in(&call, XRC_RCV_ATTR_QP_QUERY_QPN, &qp_num, sizeof(qp_num));
	if (attr)
		call_out(&call, XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, attr, sizeof(*attr));
	if (info)
		call_out(&call, XRC_RCV_ATTR_QP_QUERY_RESP_INFO, info, sizeof(*info));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_destroy(struct domain domain, uint32_t qp_num)
{
	return rcv_destroy_with(domain, qp_num, 0);
}

int rcv_destroy_forced(struct domain domain, uint32_t qp_num)
{
	return rcv_destroy_with(domain, qp_num, XRC_RCV_DESTROY_FORCE);
}

int rcv_destroy_with(struct domain domain, uint32_t qp_num, uint32_t flags)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QP_DESTROY);
	call_object(&call, XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, domain.handle);
	call_in(&call, XRC_RCV_ATTR_QP_DESTROY_QPN, &qp_num, sizeof(qp_num));
	if (flags)
		call_in(&call, XRC_RCV_ATTR_QP_DESTROY_FLAGS, &flags, sizeof(flags));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_list(struct domain domain, uint32_t after, struct xrc_rcv_qp_info *infos,
	     uint32_t *count, uint32_t *total)
{
	const uint32_t size = sizeof(*infos);
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN);
	call_object(&call, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, domain.handle);
	if (after)
		call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN, &after, sizeof(after));
	if (*count)
		call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos,
			 *count * sizeof(*infos));
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, count, sizeof(*count));
	if (total)
		call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, total, sizeof(*total));
	call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &size, sizeof(size));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_list_sized(struct domain domain, void *infos, uint32_t size, uint32_t *count)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_QUERY_DOMAIN);
	call_object(&call, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, domain.handle);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos, *count * size);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, count, sizeof(*count));
	call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &size, sizeof(size));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_caps(int uverbs_fd, struct xrc_rcv_caps *caps)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_QP, XRC_RCV_METHOD_QUERY_CAPS);
	call_out(&call, XRC_RCV_ATTR_QUERY_CAPS_RESP, caps, sizeof(*caps));
	return call_run(&call, uverbs_fd);
}

int rcv_channel_with(struct domain domain, const uint32_t *size, const uint64_t *events)
{
	return rcv_channel_of(domain, 0, size, events);
}

int rcv_channel_of(struct domain domain, uint32_t flags, const uint32_t *size,
		   const uint64_t *events)
{
	const uint32_t known = sizeof(struct xrc_rcv_record);
	struct ib_uverbs_attr *fd;
	struct call call;
	int result;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC);
	fd = call_object(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, -1);
	call_object(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE, domain.handle);
	call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE, size ?: &known, sizeof(known));
	if (events)
		call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS, events, sizeof(*events));
	if (flags)
		call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS, &flags, sizeof(flags));
	result = call_run(&call, domain.uverbs_fd);
	return result ? result : (int)fd->data_s64;
}

int rcv_channel(struct domain domain)
{
	return rcv_channel_with(domain, NULL, NULL);
}

bool is_record(const struct xrc_rcv_record *record, const struct registration *registration,
	       uint32_t type, uint64_t count)
{
	return record->type == type && record->count == count &&
	       record->qp_num == registration->qp_num && record->serial == registration->serial;
}

bool is_gone(const struct xrc_rcv_record *record, const struct registration *registration)
{
	return is_record(record, registration, XRC_RCV_EVENT_QP_GONE, 1);
}
