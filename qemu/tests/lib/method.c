// SPDX-License-Identifier: GPL-2.0

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

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

int rcv_alloc(struct domain domain, uint32_t flags, const struct ib_uverbs_qp_attr *attr,
	      int channel, uint64_t cookie, struct registration *registration)
{
	return rcv_alloc_with(domain, flags, attr, channel, cookie, (struct choice){},
			      registration);
}

int rcv_alloc_with(struct domain domain, uint32_t flags, const struct ib_uverbs_qp_attr *attr,
		   int channel, uint64_t cookie, struct choice choice,
		   struct registration *registration)
{
	struct ib_uverbs_attr *handle;
	struct call call;
	int result;

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_ALLOC);
	handle = call_object(&call, XRC_RCV_ATTR_QP_ALLOC_HANDLE, -1);
	call_object(&call, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, domain.handle);
	if (flags)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_FLAGS, &flags, sizeof(flags));
	if (attr)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_ATTR, attr, sizeof(*attr));
	if (channel != NO_CHANNEL)
		call_object(&call, XRC_RCV_ATTR_QP_ALLOC_CHANNEL, channel);
	if (cookie)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_COOKIE, &cookie, sizeof(cookie));
	call_out(&call, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &registration->qp_num,
		 sizeof(registration->qp_num));
	if (choice.events)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_EVENTS, choice.events, sizeof(uint64_t));
	if (choice.label)
		call_in(&call, XRC_RCV_ATTR_QP_ALLOC_LABEL, choice.label, sizeof(uint64_t));
	result = call_run(&call, domain.uverbs_fd);
	registration->uverbs_fd = domain.uverbs_fd;
	registration->handle = handle->data;
	return result;
}

int rcv_reg(struct domain domain, uint32_t qp_num, int channel, uint64_t cookie,
	    struct registration *registration)
{
	return rcv_reg_with(domain, qp_num, channel, cookie, (struct choice){}, registration);
}

int rcv_reg_with(struct domain domain, uint32_t qp_num, int channel, uint64_t cookie,
		 struct choice choice, struct registration *registration)
{
	struct ib_uverbs_attr *handle;
	struct call call;
	int result;

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_REG);
	handle = call_object(&call, XRC_RCV_ATTR_QP_REG_HANDLE, -1);
	call_object(&call, XRC_RCV_ATTR_QP_REG_XRCD_HANDLE, domain.handle);
	call_in(&call, XRC_RCV_ATTR_QP_REG_QPN, &qp_num, sizeof(qp_num));
	if (channel != NO_CHANNEL)
		call_object(&call, XRC_RCV_ATTR_QP_REG_CHANNEL, channel);
	if (cookie)
		call_in(&call, XRC_RCV_ATTR_QP_REG_COOKIE, &cookie, sizeof(cookie));
	if (choice.events)
		call_in(&call, XRC_RCV_ATTR_QP_REG_EVENTS, choice.events, sizeof(uint64_t));
	result = call_run(&call, domain.uverbs_fd);
	registration->uverbs_fd = domain.uverbs_fd;
	registration->handle = handle->data;
	registration->qp_num = qp_num;
	return result;
}

int rcv_unreg(const struct registration *registration)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_UNREG);
	call_object(&call, XRC_RCV_ATTR_QP_UNREG_HANDLE, registration->handle);
	return call_run(&call, registration->uverbs_fd);
}

int rcv_modify(struct domain domain, uint32_t qp_num,
	       const struct ib_uverbs_qp_attr *attr)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_MODIFY);
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

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_QUERY);
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

int rcv_destroy_with(struct domain domain, uint32_t qp_num, uint32_t flags)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_DESTROY);
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

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QUERY_DOMAIN);
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

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QUERY_DOMAIN);
	call_object(&call, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, domain.handle);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos, *count * size);
	call_out(&call, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT, count, sizeof(*count));
	call_in(&call, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, &size, sizeof(size));
	return call_run(&call, domain.uverbs_fd);
}

int rcv_caps(int uverbs_fd, struct xrc_rcv_caps *caps)
{
	struct call call;

	call_start(&call, XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QUERY_CAPS);
	call_out(&call, XRC_RCV_ATTR_QUERY_CAPS_RESP, caps, sizeof(*caps));
	return call_run(&call, uverbs_fd);
}

static int new_channel(int uverbs_fd, const uint32_t *size)
{
	struct ib_uverbs_attr *fd;
	struct call call;
	int result;

	call_start(&call, XRC_RCV_OBJECT_EVENT_CHANNEL, XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC);
	fd = call_object(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD, -1);
	if (size)
		call_in(&call, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE, size, sizeof(*size));
	result = call_run(&call, uverbs_fd);
	return result ? result : (int)fd->data_s64;
}

int rcv_channel(int uverbs_fd)
{
	return new_channel(uverbs_fd, NULL);
}

int rcv_channel_sized(int uverbs_fd, uint32_t size)
{
	return new_channel(uverbs_fd, &size);
}
