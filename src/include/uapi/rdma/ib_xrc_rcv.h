/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * XRC receive QPs owned by the kernel: the uverbs ioctl interface of ib_xrc_rcv.
 *
 * Methods are called with ioctl(uverbs_fd, RDMA_VERBS_IOCTL, struct ib_uverbs_ioctl_hdr *);
 * hdr.driver_id is that of the device, as for every driver-namespace method.
 *
 * Structs grow only at their end, and padding in input must be zero. The length of
 * an attribute is the size of a struct in the version that the caller was built with.
 * The kernel accepts a longer input whose additional bytes are zero, and zeroes the
 * additional bytes of a longer output. The caller passes the size of elements of an
 * array, and of records of an event channel, see &enum xrc_rcv_record_sizes.
 *
 * XRC_RCV_IOCTL_REG and XRC_RCV_IOCTL_UNREG are ioctls of an event channel itself.
 */

#ifndef IB_XRC_RCV_H
#define IB_XRC_RCV_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/**
 * XRC_RCV_VERSION - version of this interface, reported by XRC_RCV_METHOD_QUERY_CAPS
 *
 * Raised when a method, attribute, flag or field is added. Nothing is ever removed.
 *
 * 2: event channels of a domain, which have registrations and an event mask, and from
 * which totals are read; arrays of QP numbers in XRC_RCV_METHOD_QP_REG and
 * XRC_RCV_METHOD_QP_UNREG, XRC_RCV_IOCTL_REG and XRC_RCV_IOCTL_UNREG; event channels of
 * all QPs of a domain; label and dest_qp_num of &struct xrc_rcv_qp_info; label of &struct
 * xrc_rcv_record. Version 1 was not released.
 */
#define XRC_RCV_VERSION 2

/**
 * enum xrc_rcv_record_sizes - sizes of &struct xrc_rcv_qp_info, &struct xrc_rcv_reg_info,
 * &struct xrc_rcv_record and &struct xrc_rcv_qpns
 *
 * The caller passes the size of the struct in the version that it was built with: a
 * multiple of 8 from the size in version 1 up to %XRC_RCV_RECORD_SIZE_MAX, otherwise
 * EINVAL. If this is longer than the struct of the kernel, the rest is zeroed; that of
 * &struct xrc_rcv_qpns, which is input, has to be zero, otherwise EOPNOTSUPP.
 *
 * @XRC_RCV_QP_INFO_SIZE_VER1: &struct xrc_rcv_qp_info in version 1
 * @XRC_RCV_REG_INFO_SIZE_VER1: &struct xrc_rcv_reg_info in version 1
 * @XRC_RCV_RECORD_SIZE_VER1: &struct xrc_rcv_record in version 1
 * @XRC_RCV_QPNS_SIZE_VER1: &struct xrc_rcv_qpns in its first version
 * @XRC_RCV_RECORD_SIZE_MAX: the maximum for all versions
 */
enum xrc_rcv_record_sizes {
	XRC_RCV_QP_INFO_SIZE_VER1 = 16,
	XRC_RCV_REG_INFO_SIZE_VER1 = 144,
	XRC_RCV_RECORD_SIZE_VER1 = 32,
	XRC_RCV_QPNS_SIZE_VER1 = 32,
	XRC_RCV_RECORD_SIZE_MAX = 256,
};

/**
 * enum xrc_rcv_objects - uverbs objects, in the driver namespace of the device
 *
 * @XRC_RCV_OBJECT_QP: methods on receive QPs, which have numbers and no handles
 * @XRC_RCV_OBJECT_EVENT_CHANNEL: FD object of one domain, which has *registrations*
 *	with receive QPs of the domain, and from which &struct xrc_rcv_record is read.
 *	Closing the descriptor, or the uverbs file, ends the registrations.
 */
enum xrc_rcv_objects {
	XRC_RCV_OBJECT_QP = (1U << UVERBS_ID_NS_SHIFT) + 10,
	XRC_RCV_OBJECT_EVENT_CHANNEL,
};

/**
 * enum xrc_rcv_qp_methods - methods of XRC_RCV_OBJECT_QP
 *
 * @XRC_RCV_METHOD_QP_ALLOC: create a receive QP, and register an event channel
 * @XRC_RCV_METHOD_QP_MODIFY: modify a receive QP
 * @XRC_RCV_METHOD_QP_QUERY: query a receive QP
 * @XRC_RCV_METHOD_QP_DESTROY: destroy a receive QP of %XRC_RCV_LIFETIME_DOMAIN, or
 *	any, with %XRC_RCV_DESTROY_FORCE
 * @XRC_RCV_METHOD_QUERY_CAPS: query the capabilities of kernel and device
 */
enum xrc_rcv_qp_methods {
	XRC_RCV_METHOD_QP_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_METHOD_QP_MODIFY,
	XRC_RCV_METHOD_QP_QUERY,
	XRC_RCV_METHOD_QP_DESTROY,
	XRC_RCV_METHOD_QUERY_CAPS,
};

/**
 * enum xrc_rcv_event_channel_methods - methods of XRC_RCV_OBJECT_EVENT_CHANNEL
 *
 * @XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC: create an event channel of a domain
 * @XRC_RCV_METHOD_QP_REG: register with receive QPs
 * @XRC_RCV_METHOD_QP_UNREG: end registrations
 * @XRC_RCV_METHOD_QUERY_DOMAIN: list the receive QPs of a domain
 */
enum xrc_rcv_event_channel_methods {
	XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_METHOD_QP_REG,
	XRC_RCV_METHOD_QP_UNREG,
	XRC_RCV_METHOD_QUERY_DOMAIN,
};

/**
 * enum xrc_rcv_lifetime - lifetime of a receive QP
 *
 * @XRC_RCV_LIFETIME_REGISTRATIONS: destroyed with its last registration that keeps
 *	it (see XRC_RCV_METHOD_QP_REG), with the last close of its domain, or by
 *	XRC_RCV_METHOD_QP_DESTROY with %XRC_RCV_DESTROY_FORCE, whichever comes first
 * @XRC_RCV_LIFETIME_DOMAIN: destroyed with the last close of its domain, or by
 *	XRC_RCV_METHOD_QP_DESTROY
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
 * @XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 *	EPERM if the domain has an inode that is not a regular file's, or one of a
 *	file system such as procfs, sysfs or nsfs, which processes do not make.
 *	EACCES if the caller neither owns the domain's file nor may write to it.
 * @XRC_RCV_ATTR_QP_ALLOC_FLAGS: in, &enum xrc_rcv_alloc_flags, u32 or u64.
 *	Optional, 0 if absent. EINVAL for an unknown flag.
 * @XRC_RCV_ATTR_QP_ALLOC_ATTR: in, &struct ib_uverbs_qp_attr, with the bits of
 *	&enum ib_qp_attr_mask of the verbs API in its qp_attr_mask. Optional.
 *	If absent, the QP stays in RESET. With the attributes that INIT requires
 *	(PKEY_INDEX, PORT, ACCESS_FLAGS), the QP is modified to INIT; with those that
 *	RTR requires as well (AV, PATH_MTU, DEST_QPN, RQ_PSN), to RTR. STATE is
 *	optional and must be that state. MAX_DEST_RD_ATOMIC and MIN_RNR_TIMER are 0
 *	if absent; ALT_PATH and PATH_MIG_STATE are optional; QKEY, TIMEOUT, RETRY_CNT
 *	and RNR_RETRY are accepted and ignored. EACCES if a security module denies
 *	the caller a partition.
 * @XRC_RCV_ATTR_QP_ALLOC_CHANNEL: in, fd of an event channel that was created
 *	through the same uverbs file, otherwise EBADF, and for the same domain,
 *	otherwise EINVAL. It is registered with the QP. Optional with
 *	%XRC_RCV_ALLOC_LIFETIME_DOMAIN, otherwise EINVAL if absent, or if it is one of
 *	all QPs whose registrations do not keep them.
 * @XRC_RCV_ATTR_QP_ALLOC_RESP_QPN: out, u32 QP number. Mandatory.
 * @XRC_RCV_ATTR_QP_ALLOC_LABEL: in, u64, kept with the QP and returned by
 *	queries. The kernel does not interpret it. Optional, 0 if absent.
 * @XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL: out, u64, the serial number of the QP, as in
 *	&struct xrc_rcv_record. All totals of its events are 0. Optional.
 */
enum xrc_rcv_qp_alloc_attrs {
	XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_ALLOC_FLAGS,
	XRC_RCV_ATTR_QP_ALLOC_ATTR,
	XRC_RCV_ATTR_QP_ALLOC_CHANNEL,
	XRC_RCV_ATTR_QP_ALLOC_RESP_QPN,
	XRC_RCV_ATTR_QP_ALLOC_LABEL,
	XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL,
};

/**
 * enum xrc_rcv_qp_modify_attrs - attributes of XRC_RCV_METHOD_QP_MODIFY
 *
 * @XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 *	The caller need not be registered.
 * @XRC_RCV_ATTR_QP_MODIFY_QPN: in, u32 QP number. Mandatory. EACCES unless the
 *	caller owns the domain's file or may write to it, or is the user who created
 *	the QP.
 * @XRC_RCV_ATTR_QP_MODIFY_ATTR: in, &struct ib_uverbs_qp_attr with its
 *	qp_attr_mask. Mandatory. EINVAL if an XRC target QP has no such transition;
 *	QUERY returns the state. EACCES if a security module denies the caller, or
 *	the creator of the QP, a partition.
 */
enum xrc_rcv_qp_modify_attrs {
	XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_MODIFY_QPN,
	XRC_RCV_ATTR_QP_MODIFY_ATTR,
};

/**
 * struct xrc_rcv_qp_info - information on a receive QP
 *
 * @qp_num: QP number, 24 bits
 * @state: &enum ib_qp_state of the verbs API (0 RESET … 6 ERR)
 * @lifetime: &enum xrc_rcv_lifetime
 * @registrations: number of registrations, those with all QPs of the domain included
 * @label: as given to XRC_RCV_METHOD_QP_ALLOC
 * @dest_qp_num: number of the peer's QP; 0 as long as the QP has no peer
 * @reserved: 0
 */
struct xrc_rcv_qp_info {
	__u32 qp_num;
	__u32 state;
	__u32 lifetime;
	__u32 registrations;
	__aligned_u64 label;
	__u32 dest_qp_num;
	__u32 reserved;
};

/**
 * enum xrc_rcv_qp_query_attrs - attributes of XRC_RCV_METHOD_QP_QUERY
 *
 * @XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 * @XRC_RCV_ATTR_QP_QUERY_QPN: in, u32 QP number. Mandatory.
 * @XRC_RCV_ATTR_QP_QUERY_RESP_ATTR: out, &struct ib_uverbs_qp_attr, of which all
 *	attributes are filled; capabilities are 0. Optional.
 * @XRC_RCV_ATTR_QP_QUERY_RESP_INFO: out, &struct xrc_rcv_qp_info. Optional.
 */
enum xrc_rcv_qp_query_attrs {
	XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_QUERY_QPN,
	XRC_RCV_ATTR_QP_QUERY_RESP_ATTR,
	XRC_RCV_ATTR_QP_QUERY_RESP_INFO,
};

/**
 * enum xrc_rcv_destroy_flags - XRC_RCV_ATTR_QP_DESTROY_FLAGS
 *
 * @XRC_RCV_DESTROY_FORCE: destroy the QP whatever its lifetime is, and whoever is
 *	registered. EACCES unless the caller owns the domain's file, the domain has
 *	none, or the caller is the user who created the QP.
 */
enum xrc_rcv_destroy_flags {
	XRC_RCV_DESTROY_FORCE = 1 << 0,
};

/**
 * enum xrc_rcv_qp_destroy_attrs - attributes of XRC_RCV_METHOD_QP_DESTROY
 *
 * @XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 * @XRC_RCV_ATTR_QP_DESTROY_QPN: in, u32 QP number. Mandatory. EINVAL if it is
 *	unknown in the domain; EACCES unless the caller owns the domain's file or may
 *	write to it, or is the user who created the QP. Without
 *	%XRC_RCV_DESTROY_FORCE, EINVAL if it is not of XRC_RCV_LIFETIME_DOMAIN, and
 *	EBUSY if a registration keeps it, be it one of the caller.
 * @XRC_RCV_ATTR_QP_DESTROY_FLAGS: in, &enum xrc_rcv_destroy_flags, u32 or u64.
 *	Optional, 0 if absent. EINVAL for an unknown flag.
 */
enum xrc_rcv_qp_destroy_attrs {
	XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_DESTROY_QPN,
	XRC_RCV_ATTR_QP_DESTROY_FLAGS,
};

/**
 * enum xrc_rcv_query_domain_attrs - attributes of XRC_RCV_METHOD_QUERY_DOMAIN
 *
 * @XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle. Mandatory.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN: in, u32. Only QPs with a greater number
 *	are listed, in ascending order: pass the last number of a page to get the
 *	next one. Optional; if absent, the list starts at its beginning.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO: out, array of &struct xrc_rcv_qp_info;
 *	its length in bytes limits the number of elements of INFO_SIZE. Optional.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT: out, u32, the number of elements
 *	written to RESP_INFO; 0 ends the list. Mandatory.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL: out, u32, the number of receive QPs in
 *	the domain. Optional.
 * @XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE: in, u32, the size of an element of
 *	RESP_INFO (&enum xrc_rcv_record_sizes). Optional,
 *	%XRC_RCV_QP_INFO_SIZE_VER1 if absent.
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
 * struct xrc_rcv_caps - capabilities of kernel and device
 *
 * @version: XRC_RCV_VERSION of the kernel
 * @alloc_flags: mask of the supported &enum xrc_rcv_alloc_flags
 * @event_types: bit n is set if events of type n can be reported; the bits that
 *	event masks may have
 * @max_qps_per_domain: limit on the receive QPs of a domain; 0 = unlimited
 * @max_qps_per_user: limit on the receive QPs that a user created, on all devices;
 *	0 = unlimited. CAP_SYS_RESOURCE is exempt.
 * @record_size: size of &struct xrc_rcv_record in the version of the kernel
 * @max_registrations_per_qp: limit on the registrations of a receive QP; 0 =
 *	unlimited. CAP_SYS_RESOURCE is exempt.
 */
struct xrc_rcv_caps {
	__u32 version;
	__u32 alloc_flags;
	__aligned_u64 event_types;
	__u32 max_qps_per_domain;
	__u32 max_qps_per_user;
	__u32 record_size;
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
 * enum xrc_rcv_event_channel_flags - XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS
 *
 * @XRC_RCV_EVENT_CHANNEL_ALL: the channel is registered with all receive QPs of the
 *	domain, those that exist and those that are created while it is open. It gets
 *	%XRC_RCV_EVENT_QP_ADDED of each new one; XRC_RCV_METHOD_QUERY_DOMAIN, called
 *	after this, lists the others. Its registrations keep the QPs if
 *	the caller owns the domain's file or may write to it, or the domain has none.
 *	XRC_RCV_METHOD_QP_REG has no effect, and XRC_RCV_METHOD_QP_UNREG fails: the
 *	registrations end when the channel is closed.
 * @XRC_RCV_EVENT_CHANNEL_OBSERVE: the registrations keep no QP, whatever the caller's
 *	right is. EINVAL without %XRC_RCV_EVENT_CHANNEL_ALL.
 */
enum xrc_rcv_event_channel_flags {
	XRC_RCV_EVENT_CHANNEL_ALL = 1 << 0,
	XRC_RCV_EVENT_CHANNEL_OBSERVE = 1 << 1,
};

/**
 * enum xrc_rcv_event_channel_alloc_attrs - attributes of XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC
 *
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD: out, new file descriptor, close-on-exec,
 *	blocking (fcntl(2) sets O_NONBLOCK). Mandatory.
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE: in, UVERBS_OBJECT_XRCD handle of the
 *	domain. The channel does not keep the domain open. Mandatory. EPERM as for
 *	XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE.
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE: in, u32, the size of the records
 *	that read() returns (&enum xrc_rcv_record_sizes). Optional,
 *	%XRC_RCV_RECORD_SIZE_VER1 if absent.
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS: in, u64, the event mask: the events that
 *	the channel reports, of all its registrations. Bit n is for those of type n, as
 *	in event_types of &struct xrc_rcv_caps. EINVAL for a bit that is not set there.
 *	0 is no event at all. Optional, absent: every event. With
 *	%XRC_RCV_EVENT_CHANNEL_ALL, EINVAL for a mask that has events, but not
 *	%XRC_RCV_EVENT_QP_GONE.
 * @XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS: in, &enum xrc_rcv_event_channel_flags, u32 or
 *	u64. Optional, 0 if absent. EINVAL for an unknown flag. With
 *	%XRC_RCV_EVENT_CHANNEL_ALL, EDQUOT if the domain has the maximum number of such
 *	channels, max_registrations_per_qp of &struct xrc_rcv_caps, or half of it, of
 *	those that do not keep QPs, and this one would not either; EINTR if the caller is
 *	killed.
 */
enum xrc_rcv_event_channel_alloc_attrs {
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE,
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE,
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS,
	XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS,
};

/**
 * struct xrc_rcv_reg_info - information on a QP that a channel is registered with
 *
 * @serial: the serial number of the QP, as in &struct xrc_rcv_record
 * @counts: element n is the total of the QP's events of type n when the channel was
 *	registered: a record that is read later has a greater one. If the channel was
 *	registered before the call, the total now, of which events may be unread.
 */
struct xrc_rcv_reg_info {
	__aligned_u64 serial;
	__aligned_u64 counts[17];
};

/**
 * enum xrc_rcv_qp_reg_attrs - attributes of XRC_RCV_METHOD_QP_REG
 *
 * @XRC_RCV_ATTR_QP_REG_CHANNEL: in, fd of an event channel that was created through the
 *	same uverbs file, otherwise EBADF. Mandatory.
 * @XRC_RCV_ATTR_QP_REG_QPNS: in, array of 1 to 16383 u32, QP numbers of the channel's
 *	domain. Mandatory. The channel is registered with the QPs in this order, until
 *	one fails; a registration that it has already stays as it is. EINVAL if the
 *	length is not a multiple of 4, or no receive QP of the domain has the number;
 *	EACCES if a security module denies the caller a partition of the QP; EDQUOT if
 *	the QP has the maximum number of registrations, or half of it, of registrations
 *	that do not keep it, and the channel's would not either; EINTR if the caller is
 *	killed.
 * @XRC_RCV_ATTR_QP_REG_RESP_DONE: out, u32, the number of QPs, from the first of the
 *	array, with which the channel is registered; also where the call fails after it
 *	has read its attributes. Optional.
 * @XRC_RCV_ATTR_QP_REG_RESP_INFO: out, array of &struct xrc_rcv_reg_info, an element for
 *	each of these QPs, in the order of QPNS. EINVAL, and no registration, if it is
 *	too short for all of QPNS: an attribute has up to 65535 bytes, that is 455
 *	elements of version 1. EFAULT if it cannot be written; then the registrations
 *	stay, and RESP_DONE has their number. Optional.
 * @XRC_RCV_ATTR_QP_REG_INFO_SIZE: in, u32, the size of an element of RESP_INFO
 *	(&enum xrc_rcv_record_sizes). Optional, %XRC_RCV_REG_INFO_SIZE_VER1 if absent.
 *
 * The registration *keeps* the QP if the process that created the channel owned the
 * domain's file then or could write to it, if the domain has no file, or if the caller is
 * the user who created the QP. Another gets the same events, until the QP is destroyed,
 * which it does not delay.
 */
enum xrc_rcv_qp_reg_attrs {
	XRC_RCV_ATTR_QP_REG_CHANNEL = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_REG_QPNS,
	XRC_RCV_ATTR_QP_REG_RESP_DONE,
	XRC_RCV_ATTR_QP_REG_RESP_INFO,
	XRC_RCV_ATTR_QP_REG_INFO_SIZE,
};

/**
 * enum xrc_rcv_qp_unreg_attrs - attributes of XRC_RCV_METHOD_QP_UNREG
 *
 * @XRC_RCV_ATTR_QP_UNREG_CHANNEL: in, fd of an event channel, as for REG. Mandatory.
 * @XRC_RCV_ATTR_QP_UNREG_QPNS: in, array of 1 to 16383 u32, QP numbers. Mandatory. The
 *	registrations of the channel with the QPs that have, or had, each number end,
 *	together with their unread events. A number with which the channel is not
 *	registered is skipped. EINVAL if the length is not a multiple of 4, or the channel
 *	is registered with all QPs; EINTR if the caller is killed.
 * @XRC_RCV_ATTR_QP_UNREG_RESP_DONE: out, u32, the number of QP numbers, from the first of
 *	the array, that were processed; also where the call fails after it has read its
 *	attributes. Optional.
 */
enum xrc_rcv_qp_unreg_attrs {
	XRC_RCV_ATTR_QP_UNREG_CHANNEL = (1U << UVERBS_ID_NS_SHIFT),
	XRC_RCV_ATTR_QP_UNREG_QPNS,
	XRC_RCV_ATTR_QP_UNREG_RESP_DONE,
};

/**
 * struct xrc_rcv_qpns - the argument of XRC_RCV_IOCTL_REG and XRC_RCV_IOCTL_UNREG
 *
 * @qpns: in, the address of an array of u32, QP numbers. 64 are read at once: EFAULT, and
 *	none of the 64 is processed, if one of them cannot be read.
 * @infos: in, the address of an array of &struct xrc_rcv_reg_info, an element for each QP
 *	that is registered with, in the order of @qpns; 0 for none. EFAULT after the first
 *	that cannot be written, whose QP is counted in @done. 0 for XRC_RCV_IOCTL_UNREG.
 * @count: in, the number of elements of @qpns, not 0. No number is too great.
 * @info_size: in, the size of an element of @infos (&enum xrc_rcv_record_sizes); 0
 *	without @infos
 * @flags: in, 0. EINVAL for an unknown flag.
 * @done: out, the number of QP numbers, from the first of the array, that were processed;
 *	also where the call fails after it has read the struct
 */
struct xrc_rcv_qpns {
	__aligned_u64 qpns;
	__aligned_u64 infos;
	__u32 count;
	__u32 info_size;
	__u32 flags;
	__u32 done;
};

/**
 * enum xrc_rcv_ioctls - numbers of the ioctls of an event channel
 *
 * Those of %RDMA_IOCTL_MAGIC from 0x80 on, which nothing else of RDMA uses.
 *
 * @XRC_RCV_IOCTL_NR_REG: XRC_RCV_IOCTL_REG
 * @XRC_RCV_IOCTL_NR_UNREG: XRC_RCV_IOCTL_UNREG
 */
enum xrc_rcv_ioctls {
	XRC_RCV_IOCTL_NR_REG = 0x80,
	XRC_RCV_IOCTL_NR_UNREG,
};

/**
 * XRC_RCV_IOCTL_REG - register an event channel with receive QPs
 *
 * XRC_RCV_METHOD_QP_REG of the channel that it is called on, by a process that need not
 * have the uverbs file. The size of &struct xrc_rcv_qpns is in the request, as the caller
 * knows it. EIO when the channel has ended with its uverbs file or the device; ENOTTY for
 * another request.
 */
#define XRC_RCV_IOCTL_REG \
	_IOWR(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_REG, struct xrc_rcv_qpns)

/**
 * XRC_RCV_IOCTL_UNREG - end registrations of an event channel
 *
 * XRC_RCV_METHOD_QP_UNREG, likewise.
 */
#define XRC_RCV_IOCTL_UNREG \
	_IOWR(RDMA_IOCTL_MAGIC, XRC_RCV_IOCTL_NR_UNREG, struct xrc_rcv_qpns)

/**
 * XRC_RCV_EVENT_QP_GONE - the receive QP was destroyed while it had a registration
 *
 * Not a value of enum ib_event_type. Reported when the domain is closed for the last
 * time, the device is removed, or XRC_RCV_METHOD_QP_DESTROY is called. The QP number is
 * no longer valid, and may be that of a new QP.
 */
#define XRC_RCV_EVENT_QP_GONE 63

/**
 * XRC_RCV_EVENT_QP_ADDED - a receive QP was created
 *
 * Not a value of enum ib_event_type. Reported to channels with %XRC_RCV_EVENT_CHANNEL_ALL:
 * the first record of a QP that was created since the channel.
 */
#define XRC_RCV_EVENT_QP_ADDED 61

/**
 * XRC_RCV_EVENT_OVERRUN - records of receive QPs that were destroyed are lost
 *
 * Not a value of enum ib_event_type, nor a bit of an event mask: it is reported to a
 * channel that had records to read of a QP that was destroyed before as many others of the
 * domain as max_qps_per_domain of &struct xrc_rcv_caps (16384 if that is 0). Its
 * registration with the QP has ended. XRC_RCV_METHOD_QUERY_DOMAIN lists the QPs that
 * exist.
 */
#define XRC_RCV_EVENT_OVERRUN 62

/**
 * struct xrc_rcv_record - a record read from an event channel
 *
 * @last_ns: CLOCK_MONOTONIC time of the last occurrence, in nanoseconds, in the time
 *	namespace of the reader
 * @serial: which QP of the domain it is, in the order of creation, from 1: tells the QP
 *	from another that had, or will have, its number
 * @count: the total: all occurrences of the type in the life of the QP, also those
 *	before the registration; 1 for XRC_RCV_EVENT_QP_ADDED, XRC_RCV_EVENT_QP_GONE and
 *	XRC_RCV_EVENT_OVERRUN
 * @qp_num: QP number
 * @type: &enum ib_event_type of the verbs API, XRC_RCV_EVENT_QP_ADDED,
 *	XRC_RCV_EVENT_QP_GONE, or XRC_RCV_EVENT_OVERRUN, of which all others but @count are 0
 * @label: the label of the QP, as given to XRC_RCV_METHOD_QP_ALLOC
 *
 * read() returns whole records, as many as are unread and fit, up to 16, or fewer if
 * a page of the buffer is not in memory: in the order of the last events that they are
 * for. It fails with EINVAL if the buffer is shorter than a record, and with EFAULT if no
 * record can be written to it; none is lost. If there is no record, it blocks, or fails
 * with EAGAIN with O_NONBLOCK. After the device was removed or the uverbs file closed, it
 * fails with EIO once all records are read.
 */
struct xrc_rcv_record {
	__aligned_u64 last_ns;
	__aligned_u64 serial;
	__aligned_u64 count;
	__u32 qp_num;
	__u32 type;
	__aligned_u64 label;
};

#endif /* IB_XRC_RCV_H */
