/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * XRC receive QPs owned by the kernel: the uverbs ioctl interface of ib_xrc_rcv.
 *
 * Methods are called with ioctl(uverbs_fd, RDMA_VERBS_IOCTL, struct ib_uverbs_ioctl_hdr *);
 * hdr.driver_id is that of the device, as for every driver-namespace method.
 *
 * Every struct grows only at its end, and padding in input must be zero. The
 * kernel learns from the length of an attribute which version of a struct the
 * caller knows: it accepts a longer input whose tail is zero, and fills as much
 * of a shorter or longer output as both sides know, zeroing the rest. The
 * elements of an array and the records of an event channel have no length of
 * their own; the caller passes their size, see &enum xrc_rcv_record_sizes.
 */

#ifndef IB_XRC_RCV_H
#define IB_XRC_RCV_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

/**
 * XRC_RCV_VERSION - version of this interface, reported by XRC_RCV_METHOD_QUERY_CAPS
 *
 * Raised when a method, flag or field is added. Nothing is ever removed.
 */
#define XRC_RCV_VERSION 1

/**
 * enum xrc_rcv_record_sizes - sizes of &struct xrc_rcv_qp_info and &struct xrc_rcv_event
 *
 * A size that the caller passes is that of the struct as it knows it: a multiple
 * of 8 from the size in version 1 up to %XRC_RCV_RECORD_SIZE_MAX; EINVAL for any
 * other. The kernel fills as much of each record as both know and zeroes the rest.
 *
 * @XRC_RCV_QP_INFO_SIZE_VER1: &struct xrc_rcv_qp_info in version 1
 * @XRC_RCV_EVENT_SIZE_VER1: &struct xrc_rcv_event in version 1
 * @XRC_RCV_RECORD_SIZE_MAX: no record will ever be longer
 */
enum xrc_rcv_record_sizes {
	XRC_RCV_QP_INFO_SIZE_VER1 = 16,
	XRC_RCV_EVENT_SIZE_VER1 = 32,
	XRC_RCV_RECORD_SIZE_MAX = 256,
};

/**
 * enum xrc_rcv_objects - uverbs objects, in the driver namespace of the device
 *
 * @XRC_RCV_OBJECT_REGISTRATION: IDR object. A handle is a *registration*: the relation
 *	between one open uverbs file and one receive QP. Destroying the handle,
 *	or closing the file, unregisters.
 * @XRC_RCV_OBJECT_EVENT_CHANNEL: FD object from which &struct xrc_rcv_event
 *	records are read.
 */
enum xrc_rcv_objects {
	XRC_RCV_OBJECT_REGISTRATION = (1U << UVERBS_ID_NS_SHIFT) + 10,
	XRC_RCV_OBJECT_EVENT_CHANNEL,
};

/**
 * enum xrc_rcv_qp_methods - methods of XRC_RCV_OBJECT_REGISTRATION
 *
 * @XRC_RCV_METHOD_QP_ALLOC: create a receive QP and register the caller
 * @XRC_RCV_METHOD_QP_REG: register with an existing receive QP
 * @XRC_RCV_METHOD_QP_UNREG: give a registration up
 * @XRC_RCV_METHOD_QP_MODIFY: modify a receive QP
 * @XRC_RCV_METHOD_QP_QUERY: query a receive QP
 * @XRC_RCV_METHOD_QP_DESTROY: destroy a receive QP of %XRC_RCV_LIFETIME_DOMAIN
 * @XRC_RCV_METHOD_QUERY_DOMAIN: list the receive QPs of a domain
 * @XRC_RCV_METHOD_QUERY_CAPS: what this kernel and device offer
 */
enum xrc_rcv_qp_methods {
	XRC_RCV_METHOD_QP_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_METHOD_QP_REG,
	XRC_RCV_METHOD_QP_UNREG,
	XRC_RCV_METHOD_QP_MODIFY,
	XRC_RCV_METHOD_QP_QUERY,
	XRC_RCV_METHOD_QP_DESTROY,
	XRC_RCV_METHOD_QUERY_DOMAIN,
	XRC_RCV_METHOD_QUERY_CAPS,
};

/**
 * enum xrc_rcv_event_channel_methods - methods of XRC_RCV_OBJECT_EVENT_CHANNEL
 *
 * @XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC: create an event channel
 */
enum xrc_rcv_event_channel_methods {
	XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
};

/**
 * enum xrc_rcv_lifetime - what keeps a receive QP alive
 *
 * @XRC_RCV_LIFETIME_REGISTRATIONS: destroyed with its last registration, or
 *	with the last close of its domain, whichever comes first
 * @XRC_RCV_LIFETIME_DOMAIN: destroyed with the last close of its domain, or by
 *	XRC_RCV_METHOD_QP_DESTROY; registrations come and go
 */
enum xrc_rcv_lifetime {
	XRC_RCV_LIFETIME_REGISTRATIONS,
	XRC_RCV_LIFETIME_DOMAIN,
};

/**
 * enum xrc_rcv_alloc_flags - XRC_RCV_ATTR_QP_ALLOC_FLAGS
 *
 * @XRC_RCV_ALLOC_LIFETIME_DOMAIN: the QP gets XRC_RCV_LIFETIME_DOMAIN. Without
 *	this flag it gets XRC_RCV_LIFETIME_REGISTRATIONS.
 */
enum xrc_rcv_alloc_flags {
	XRC_RCV_ALLOC_LIFETIME_DOMAIN = 1 << 0,
};

/**
 * enum xrc_rcv_qp_alloc_attrs - attributes of XRC_RCV_METHOD_QP_ALLOC
 *
 * @XRC_RCV_ATTR_QP_ALLOC_HANDLE: out, new XRC_RCV_OBJECT_REGISTRATION handle. Mandatory.
 * @XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 *	EPERM if the domain has an inode that is not a regular file's.
 * @XRC_RCV_ATTR_QP_ALLOC_FLAGS: in, &enum xrc_rcv_alloc_flags, u32 or u64.
 *	Optional, 0 if absent. EINVAL for an unknown flag. EACCES for
 *	%XRC_RCV_ALLOC_LIFETIME_DOMAIN if the caller neither owns the domain's
 *	file nor may write to it.
 * @XRC_RCV_ATTR_QP_ALLOC_ATTR: in, &struct ib_uverbs_qp_attr whose
 *	qp_attr_mask (&enum ib_uverbs_qp_attr_mask bits of the verbs API) says
 *	what is given. Optional. Absent: the QP stays in RESET. With what INIT
 *	needs (PKEY_INDEX, PORT, ACCESS_FLAGS): INIT. With what RTR needs as well
 *	(AV, PATH_MTU, DEST_QPN, RQ_PSN): RTR. STATE may be given and then names
 *	the state to end in. MAX_DEST_RD_ATOMIC and MIN_RNR_TIMER count as 0 if
 *	missing; ALT_PATH and PATH_MIG_STATE are optional; QKEY, TIMEOUT,
 *	RETRY_CNT and RNR_RETRY are accepted and ignored. EACCES if a security
 *	module denies the caller a partition that is named.
 * @XRC_RCV_ATTR_QP_ALLOC_CHANNEL: in, fd of an event channel that was made
 *	through the same uverbs file; EBADF for any other. Optional.
 * @XRC_RCV_ATTR_QP_ALLOC_COOKIE: in, u64 returned in each event of this
 *	registration. Optional, 0 if absent.
 * @XRC_RCV_ATTR_QP_ALLOC_RESP_QPN: out, u32 QP number. Mandatory.
 */
enum xrc_rcv_qp_alloc_attrs {
	XRC_RCV_ATTR_QP_ALLOC_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE,
	XRC_RCV_ATTR_QP_ALLOC_FLAGS,
	XRC_RCV_ATTR_QP_ALLOC_ATTR,
	XRC_RCV_ATTR_QP_ALLOC_CHANNEL,
	XRC_RCV_ATTR_QP_ALLOC_COOKIE,
	XRC_RCV_ATTR_QP_ALLOC_RESP_QPN,
};

/**
 * enum xrc_rcv_qp_reg_attrs - attributes of XRC_RCV_METHOD_QP_REG
 *
 * @XRC_RCV_ATTR_QP_REG_HANDLE: out, new XRC_RCV_OBJECT_REGISTRATION handle. Mandatory.
 * @XRC_RCV_ATTR_QP_REG_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle of the QP's
 *	domain. Mandatory.
 * @XRC_RCV_ATTR_QP_REG_QPN: in, u32 QP number. Mandatory. EINVAL if no receive
 *	QP of the domain has it; EEXIST if this file is registered already;
 *	EACCES if a security module denies the caller a partition of the QP;
 *	EDQUOT if the QP has as many registrations as it may.
 * @XRC_RCV_ATTR_QP_REG_CHANNEL: in, fd of an event channel, as for ALLOC. Optional.
 * @XRC_RCV_ATTR_QP_REG_COOKIE: in, u64, as for ALLOC. Optional.
 */
enum xrc_rcv_qp_reg_attrs {
	XRC_RCV_ATTR_QP_REG_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_REG_XRCD_HANDLE,
	XRC_RCV_ATTR_QP_REG_QPN,
	XRC_RCV_ATTR_QP_REG_CHANNEL,
	XRC_RCV_ATTR_QP_REG_COOKIE,
};

/**
 * enum xrc_rcv_qp_unreg_attrs - attributes of XRC_RCV_METHOD_QP_UNREG
 *
 * @XRC_RCV_ATTR_QP_UNREG_HANDLE: in, XRC_RCV_OBJECT_REGISTRATION handle, gone afterwards
 *	together with its unread events. Mandatory.
 */
enum xrc_rcv_qp_unreg_attrs {
	XRC_RCV_ATTR_QP_UNREG_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
};

/**
 * enum xrc_rcv_qp_modify_attrs - attributes of XRC_RCV_METHOD_QP_MODIFY
 *
 * @XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 *	Holding the domain is enough; registration is not needed.
 * @XRC_RCV_ATTR_QP_MODIFY_QPN: in, u32 QP number. Mandatory.
 * @XRC_RCV_ATTR_QP_MODIFY_ATTR: in, &struct ib_uverbs_qp_attr with its
 *	qp_attr_mask. Mandatory. EINVAL for a transition that an XRC target QP
 *	does not have; QUERY then shows the state it is in. EACCES if a security
 *	module denies the caller, or the QP's creator, a partition.
 */
enum xrc_rcv_qp_modify_attrs {
	XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_MODIFY_QPN,
	XRC_RCV_ATTR_QP_MODIFY_ATTR,
};

/**
 * struct xrc_rcv_qp_info - one receive QP
 *
 * @qp_num: QP number, 24 bits
 * @state: &enum ib_qp_state of the verbs API (0 RESET … 6 ERR)
 * @lifetime: &enum xrc_rcv_lifetime
 * @registrations: number of registrations of files and of kernel users
 */
struct xrc_rcv_qp_info {
	__u32 qp_num;
	__u32 state;
	__u32 lifetime;
	__u32 registrations;
};

/**
 * enum xrc_rcv_qp_query_attrs - attributes of XRC_RCV_METHOD_QP_QUERY
 *
 * @XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 * @XRC_RCV_ATTR_QP_QUERY_QPN: in, u32 QP number. Mandatory.
 * @XRC_RCV_ATTR_QP_QUERY_RESP_ATTR: out, &struct ib_uverbs_qp_attr. Every
 *	attribute is filled, whatever the caller is after; capabilities are 0.
 *	Optional.
 * @XRC_RCV_ATTR_QP_QUERY_RESP_INFO: out, &struct xrc_rcv_qp_info. Optional.
 */
enum xrc_rcv_qp_query_attrs {
	XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_QUERY_QPN,
	XRC_RCV_ATTR_QP_QUERY_RESP_ATTR,
	XRC_RCV_ATTR_QP_QUERY_RESP_INFO,
};

/**
 * enum xrc_rcv_qp_destroy_attrs - attributes of XRC_RCV_METHOD_QP_DESTROY
 *
 * @XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 * @XRC_RCV_ATTR_QP_DESTROY_QPN: in, u32 QP number. Mandatory. EINVAL if it is
 *	unknown in the domain or not of XRC_RCV_LIFETIME_DOMAIN; EBUSY if anybody
 *	but the calling file is registered with it. The caller's own registration
 *	handle stays and is unregistered as ever.
 */
enum xrc_rcv_qp_destroy_attrs {
	XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_DESTROY_QPN,
};

/**
 * enum xrc_rcv_query_domain_attrs - attributes of XRC_RCV_METHOD_QUERY_DOMAIN
 *
 * @XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN: in, u32. Only QPs with a greater number
 *	are listed, in ascending order: the last number of one page asks for the
 *	next. Optional, absent: from the start.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO: out, array of &struct xrc_rcv_qp_info;
 *	its length in bytes says how many of INFO_SIZE fit. Optional.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT: out, u32, the number of elements
 *	written to RESP_INFO; 0 ends the list. Mandatory.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL: out, u32, the number of receive QPs in
 *	the domain, whatever the page. Optional.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE: in, u32, the size of an element of
 *	RESP_INFO (&enum xrc_rcv_record_sizes). Optional, absent:
 *	%XRC_RCV_QP_INFO_SIZE_VER1.
 */
enum xrc_rcv_query_domain_attrs {
	XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN,
	XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO,
	XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT,
	XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL,
	XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE,
};

/**
 * struct xrc_rcv_caps - what this kernel and device offer
 *
 * @version: XRC_RCV_VERSION of the kernel
 * @alloc_flags: the &enum xrc_rcv_alloc_flags that are known
 * @event_types: bit n is set if an event of type n can be reported
 * @max_qps_per_domain: receive QPs a domain can hold; 0 = unlimited
 * @max_qps_per_user: receive QPs that one user can have created and that still
 *	exist, on all devices; 0 = unlimited. CAP_SYS_RESOURCE is exempt.
 * @event_size: size of &struct xrc_rcv_event as the kernel knows it
 * @max_registrations_per_qp: registrations that a receive QP can have; 0 = unlimited.
 *	CAP_SYS_RESOURCE is exempt.
 */
struct xrc_rcv_caps {
	__u32 version;
	__u32 alloc_flags;
	__aligned_u64 event_types;
	__u32 max_qps_per_domain;
	__u32 max_qps_per_user;
	__u32 event_size;
	__u32 max_registrations_per_qp;
};

/**
 * enum xrc_rcv_query_caps_attrs - attributes of XRC_RCV_METHOD_QUERY_CAPS
 *
 * @XRC_RCV_ATTR_QUERY_CAPS_RESP: out, &struct xrc_rcv_caps. Mandatory.
 */
enum xrc_rcv_query_caps_attrs {
	XRC_RCV_ATTR_QUERY_CAPS_RESP = (1U << UVERBS_ID_NS_SHIFT),
};

/**
 * enum xrc_rcv_event_channel_alloc_attrs - attributes of XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC
 *
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD: out, new file descriptor, close-on-exec,
 *	blocking (fcntl(2) sets O_NONBLOCK). Mandatory.
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE: in, u32, the size of the records
 *	that read() gives (&enum xrc_rcv_record_sizes). Optional, absent:
 *	%XRC_RCV_EVENT_SIZE_VER1.
 */
enum xrc_rcv_event_channel_alloc_attrs {
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE,
};

/**
 * XRC_RCV_EVENT_QP_GONE - the receive QP was destroyed under its registration
 *
 * Beside the values of enum ib_event_type. Reported when the domain was closed
 * for the last time, the device was removed, or XRC_RCV_METHOD_QP_DESTROY was
 * called. The registration stays until it is given up; its QP number is dead.
 */
#define XRC_RCV_EVENT_QP_GONE 63

/**
 * struct xrc_rcv_event - a record read from an event channel
 *
 * @cookie: as given when the registration was made
 * @first_ns: CLOCK_MONOTONIC time of the first occurrence, in nanoseconds
 * @qp_num: QP number
 * @type: &enum ib_event_type of the verbs API, or XRC_RCV_EVENT_QP_GONE
 * @count: how often the event happened since the last record of this type for
 *	this registration was read; stays at 0xffffffff once there
 * @reserved: 0
 *
 * read() returns as many whole records as fit and are there, up to 256; EINVAL if not one
 * fits; blocks, or gives EAGAIN with O_NONBLOCK, if none is there; EIO once the
 * device is gone or the uverbs file closed, and all records are read.
 */
struct xrc_rcv_event {
	__aligned_u64 cookie;
	__aligned_u64 first_ns;
	__u32 qp_num;
	__u32 type;
	__u32 count;
	__u32 reserved;
};

#endif /* IB_XRC_RCV_H */
