/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * XRC receive QPs that the kernel owns.
 *
 * A process of an XRC domain creates a receive QP, the receiving end of a
 * connection, and others register with it. Its events are delivered to all
 * registrations, and it is destroyed with the last one. The functions take the
 * objects of libibverbs.
 *
 * As in libibverbs, functions return 0 or a positive errno, or a pointer, which
 * is NULL with errno set on failure. EOPNOTSUPP means that the device has no
 * receive QPs: ib_xrc_rcv is not loaded, was loaded after ib_uverbs had exposed
 * the device, or the device has no XRC.
 *
 * A struct that a function fills is passed with its size, as in efadv and
 * mlx5dv: "xrc_rcv_query_caps(context, &caps, sizeof(caps))". Structs grow at
 * their end. If the struct of the caller is longer than that of the library or
 * the kernel, the rest is cleared; so programs and libraries of different
 * versions work together.
 *
 * All functions may be called from any thread, also with the same objects, and
 * in a child of fork(2). An object (an open device, a domain, a channel, an SRQ or a
 * registration) must not be destroyed while another thread uses it. An SRQ is for
 * one thread at a time, and not for a child.
 */

#ifndef INFINIBAND_XRC_RCV_H
#define INFINIBAND_XRC_RCV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <infiniband/verbs.h>
#include <rdma/ib_xrc_rcv.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct xrc_rcv_event_channel - a channel of a domain, with registrations
 *
 * @context: the device of the channel
 * @fd: file descriptor, to poll for input or make non-blocking with fcntl(2)
 *
 * Created by xrc_rcv_create_event_channel(), and destroyed by
 * xrc_rcv_destroy_event_channel(). A channel can be registered with any number of
 * QPs of its domain, once with each. The library knows the registrations that the
 * process made, and in a forked child those before the fork: an event of another is
 * lost if the process reads it.
 */
struct xrc_rcv_event_channel {
	struct ibv_context *context;
	int fd;
};

/**
 * struct xrc_rcv_qp - a registration with a receive QP
 *
 * @context: the device
 * @xrcd: the domain
 * @qp_num: the QP number, which senders connect to
 *
 * Returned by xrc_rcv_alloc_qp() and xrc_rcv_reg_qp(), and freed by
 * xrc_rcv_unreg_qp(), which ends the registration. Destroying the channel or closing
 * the device ends it as well, but does not free the struct.
 */
struct xrc_rcv_qp {
	struct ibv_context *context;
	struct ibv_xrcd *xrcd;
	uint32_t qp_num;
};

/**
 * struct xrc_rcv_srq - an SRQ of a domain, with memory for messages
 *
 * @xrcd: the domain
 * @srq_num: the SRQ number, which senders address messages to
 * @fd: file descriptor, readable by the next message after xrc_rcv_receive() found
 *	none
 *
 * Returned by xrc_rcv_create_srq(), and freed by xrc_rcv_destroy_srq().
 */
struct xrc_rcv_srq {
	struct ibv_xrcd *xrcd;
	uint32_t srq_num;
	int fd;
};

/**
 * enum xrc_rcv_init_attr_mask - optional members of &struct xrc_rcv_init_attr
 *
 * @XRC_RCV_INIT_ATTR_EVENTS: events is valid
 * @XRC_RCV_INIT_ATTR_LABEL: label is valid
 */
enum xrc_rcv_init_attr_mask {
	XRC_RCV_INIT_ATTR_EVENTS = 1 << 0,
	XRC_RCV_INIT_ATTR_LABEL = 1 << 1,
};

/**
 * struct xrc_rcv_init_attr - parameters of a new receive QP
 *
 * @comp_mask: mask of the members after @cookie that are valid, &enum
 *	xrc_rcv_init_attr_mask. EINVAL if the library does not know a bit.
 * @flags: &enum xrc_rcv_alloc_flags
 * @channel: channel of the domain to be registered; NULL for one of the registration's
 *	own, to which no event is delivered
 * @cookie: returned in each event of the registration
 * @events: mask of the events of the registration: bit n is that of events of
 *	type n. All events if it is not valid. EINVAL for a bit that event_types of
 *	&struct xrc_rcv_caps does not have. An event that it excludes can make the
 *	channel readable, and the next read find nothing.
 * @label: label of the QP, returned by queries; 0 if it is not valid
 */
struct xrc_rcv_init_attr {
	uint32_t comp_mask;
	uint32_t flags;
	struct xrc_rcv_event_channel *channel;
	uint64_t cookie;
	uint64_t events;
	uint64_t label;
};

/**
 * enum xrc_rcv_reg_attr_mask - optional members of &struct xrc_rcv_reg_attr
 *
 * @XRC_RCV_REG_ATTR_EVENTS: events is valid
 */
enum xrc_rcv_reg_attr_mask {
	XRC_RCV_REG_ATTR_EVENTS = 1 << 0,
};

/**
 * struct xrc_rcv_reg_attr - parameters of a registration
 *
 * @comp_mask: mask of the members after @cookie that are valid, &enum
 *	xrc_rcv_reg_attr_mask. EINVAL if the library does not know a bit.
 * @reserved: must be 0
 * @channel: as in &struct xrc_rcv_init_attr
 * @cookie: returned in each event of the registration
 * @events: as in &struct xrc_rcv_init_attr
 */
struct xrc_rcv_reg_attr {
	uint32_t comp_mask;
	uint32_t reserved;
	struct xrc_rcv_event_channel *channel;
	uint64_t cookie;
	uint64_t events;
};

/**
 * struct xrc_rcv_event - an event of a registration, or XRC_RCV_EVENT_OVERRUN
 *
 * @cookie: the cookie of the registration; the label of the QP if the channel has all
 *	receive QPs; 0 for XRC_RCV_EVENT_OVERRUN
 * @last_ns: CLOCK_MONOTONIC time of the last occurrence, in nanoseconds
 * @qp_num: QP number
 * @type: &enum ibv_event_type, XRC_RCV_EVENT_QP_ADDED, XRC_RCV_EVENT_QP_GONE or
 *	XRC_RCV_EVENT_OVERRUN
 * @count: number of occurrences since an event of this type was last read for this
 *	registration; stays at 0xffffffff once there; 1 for XRC_RCV_EVENT_OVERRUN
 * @reserved: 0
 */
struct xrc_rcv_event {
	__aligned_u64 cookie;
	__aligned_u64 last_ns;
	__u32 qp_num;
	__u32 type;
	__u32 count;
	__u32 reserved;
};

/**
 * struct xrc_rcv_adopted_qp - a receive QP that xrc_rcv_adopt_domain() has found
 *
 * @qp: the registration, to be freed by xrc_rcv_unreg_qp(), or NULL
 * @error: 0, or a positive errno if @qp is NULL
 * @reserved: 0
 * @info: the QP, as it is after it was registered with, or as it was listed if @qp is NULL
 *	or the QP was destroyed since
 */
struct xrc_rcv_adopted_qp {
	struct xrc_rcv_qp *qp;
	int error;
	uint32_t reserved;
	struct xrc_rcv_qp_info info;
};

/**
 * xrc_rcv_query_caps - query the capabilities of the kernel and a device
 *
 * @size: sizeof(*@caps)
 */
int xrc_rcv_query_caps(struct ibv_context *context, struct xrc_rcv_caps *caps,
		       size_t size);

/**
 * xrc_rcv_open_domain - open an XRC domain
 *
 * @fd: the file of the domain, open in any mode, which processes share; -1 for a
 *	domain of the caller's own
 * @oflags: O_CREAT to create the domain if there is none, O_CREAT | O_EXCL to fail
 *	with EINVAL if there is one; without O_CREAT, EAGAIN if there is none
 *
 * ibv_open_xrcd(), which is inline, for languages without a C compiler. EOPNOTSUPP if
 * the provider has no XRC.
 */
struct ibv_xrcd *xrc_rcv_open_domain(struct ibv_context *context, int fd,
				     int oflags);

/**
 * xrc_rcv_close_domain - close an XRC domain
 *
 * ibv_close_xrcd(), which is inline. EBUSY if this open device has an SRQ or a QP of
 * mainline in the domain, which stays open.
 */
int xrc_rcv_close_domain(struct ibv_xrcd *xrcd);

/**
 * xrc_rcv_create_srq - create an SRQ in a domain, with memory for messages
 *
 * @depth: how many messages can be there that are not yet received, at least 1
 * @size: the greatest length of a message in bytes, at least 1
 *
 * For languages without a C compiler: ibv_create_srq_ex() and the functions that
 * receive are inline. The SRQ has a PD and a CQ of its own, so that senders access no
 * memory by it. EINVAL if @depth or @size is 0 or more than the device can have.
 */
struct xrc_rcv_srq *xrc_rcv_create_srq(struct ibv_xrcd *xrcd, uint32_t depth,
				       uint32_t size);

/**
 * xrc_rcv_destroy_srq - destroy an SRQ, and discard its messages
 *
 * Before the domain is closed. A message that is sent to the SRQ later breaks the
 * connection. Returns 0.
 */
int xrc_rcv_destroy_srq(struct xrc_rcv_srq *srq);

/**
 * xrc_rcv_receive - receive a message
 *
 * @message: to be filled
 * @size: the length of @message in bytes, not less than @size of the SRQ
 * @timeout: how long to wait in milliseconds; 0 not at all, negative without an end
 *
 * Returns the length of the message, or -1 with errno set: EAGAIN (there was none in
 * that time), EINVAL (@size is too small), EIO (the receive failed, as of a message
 * that was too long, or the device was removed). One thread at a time may receive
 * from an SRQ.
 */
ssize_t xrc_rcv_receive(struct xrc_rcv_srq *srq, void *message, size_t size,
			int timeout);

/**
 * xrc_rcv_create_event_channel - create a channel of a domain
 *
 * The channel does not keep the domain open.
 */
struct xrc_rcv_event_channel *
xrc_rcv_create_event_channel(struct ibv_xrcd *xrcd);

/**
 * xrc_rcv_create_event_channel_of_all - create a channel that has all receive QPs
 *
 * @flags: 0, or XRC_RCV_EVENT_CHANNEL_OBSERVE to keep no QP
 *
 * It is registered with the receive QPs that the domain has and will have. The cookie
 * of their events is their label; XRC_RCV_EVENT_QP_ADDED is the first of a new one.
 */
struct xrc_rcv_event_channel *
xrc_rcv_create_event_channel_of_all(struct ibv_xrcd *xrcd, uint32_t flags);

/**
 * xrc_rcv_destroy_event_channel - close a channel
 *
 * Its registrations end; each &struct xrc_rcv_qp is still to be freed by
 * xrc_rcv_unreg_qp().
 */
int xrc_rcv_destroy_event_channel(struct xrc_rcv_event_channel *channel);

/**
 * xrc_rcv_read_events - read the unread events, as many as fit
 *
 * @size: sizeof(*@events)
 *
 * Waits for the first event, unless the channel is non-blocking. Returns the
 * number of events, or -1 with errno set: EAGAIN, EINTR, EINVAL (@count is 0), EIO
 * (the device was removed, and all events are read).
 */
ssize_t xrc_rcv_read_events(struct xrc_rcv_event_channel *channel,
			    struct xrc_rcv_event *events, size_t size,
			    size_t count);

/**
 * xrc_rcv_get_event - read one event
 *
 * @size: sizeof(*@event)
 *
 * As xrc_rcv_read_events(), but not interrupted by signals, and returns 0 or a
 * positive errno.
 */
int xrc_rcv_get_event(struct xrc_rcv_event_channel *channel,
		      struct xrc_rcv_event *event, size_t size);

/**
 * xrc_rcv_alloc_qp - create a receive QP and register with it
 *
 * @init_attr: parameters; NULL for the lifetime of registrations, and no events
 * @attr: attributes; NULL to leave the QP in RESET. With the attributes that INIT
 *	requires, or INIT and RTR, the QP is modified to that state.
 * @attr_mask: &enum ibv_qp_attr_mask; EINVAL if not 0 without @attr
 *
 * EOPNOTSUPP if label is valid, and the kernel has a version before 2 (&struct
 * xrc_rcv_caps).
 */
struct xrc_rcv_qp *xrc_rcv_alloc_qp(struct ibv_xrcd *xrcd,
				    const struct xrc_rcv_init_attr *init_attr,
				    const struct ibv_qp_attr *attr,
				    int attr_mask);

/**
 * xrc_rcv_reg_qp - register with an existing receive QP
 *
 * @channel: as in &struct xrc_rcv_init_attr
 *
 * A channel that is registered already stays as it is: the first xrc_rcv_unreg_qp() of
 * the two ends its registration. With a channel, the QP is looked for in the domain of
 * that, which should be @xrcd. EINVAL if the domain has no receive QP of this number.
 */
struct xrc_rcv_qp *xrc_rcv_reg_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
				  struct xrc_rcv_event_channel *channel,
				  uint64_t cookie);

/**
 * xrc_rcv_reg_qp_ex - register with a receive QP for selected events
 *
 * @reg_attr: parameters; NULL for a registration for no events
 *
 * As xrc_rcv_reg_qp().
 */
struct xrc_rcv_qp *xrc_rcv_reg_qp_ex(struct ibv_xrcd *xrcd, uint32_t qp_num,
				     const struct xrc_rcv_reg_attr *reg_attr);

/**
 * xrc_rcv_unreg_qp - end a registration, and discard its unread events
 *
 * The end of the last registration destroys the QP, unless it has the lifetime of
 * the domain. Frees @qp, also if the device was closed before.
 */
int xrc_rcv_unreg_qp(struct xrc_rcv_qp *qp);

/**
 * xrc_rcv_modify_qp - modify a receive QP of the domain
 *
 * The caller need not be registered.
 */
int xrc_rcv_modify_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
		      const struct ibv_qp_attr *attr, int attr_mask);

/**
 * xrc_rcv_query_qp - query a receive QP of the domain
 *
 * @attr: filled with all attributes but rate_limit; may be NULL
 * @info: may be NULL
 * @size: sizeof(*@info)
 *
 * The caller need not be registered.
 */
int xrc_rcv_query_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
		     struct ibv_qp_attr *attr, struct xrc_rcv_qp_info *info,
		     size_t size);

/**
 * xrc_rcv_destroy_qp - destroy a receive QP
 *
 * @flags: 0, or XRC_RCV_DESTROY_FORCE
 *
 * Without XRC_RCV_DESTROY_FORCE, EINVAL if it does not have the lifetime of the
 * domain, and EBUSY if a registration keeps it. EACCES if the caller may not (see
 * semantics.rst, Permissions).
 */
int xrc_rcv_destroy_qp(struct ibv_xrcd *xrcd, uint32_t qp_num, uint32_t flags);

/**
 * xrc_rcv_query_domain - list the receive QPs of a domain
 *
 * @after: 0 for the first page, then the last QP number of the previous page
 * @infos: filled in ascending order of QP numbers; may be NULL if *@count is 0
 * @size: sizeof(*@infos)
 * @count: in, the number of elements of @infos; out, the number that were filled,
 *	which is 0 at the end of the list
 * @total: the number of receive QPs of the domain; may be NULL
 */
int xrc_rcv_query_domain(struct ibv_xrcd *xrcd, uint32_t after,
			 struct xrc_rcv_qp_info *infos, size_t size,
			 size_t *count, uint32_t *total);

/**
 * xrc_rcv_adopt_domain - register with all receive QPs of a domain
 *
 * @reg_attr: parameters of each registration, as of xrc_rcv_reg_qp_ex(); may be NULL
 * @qps: an array of the QPs in ascending order of their numbers, to be freed with
 *	free(); NULL if there are none
 * @size: sizeof(**@qps)
 * @count: the number of elements of the array
 *
 * For the successor of a process that has ended. QPs that are destroyed before they are
 * registered with are left out. If registering with a QP fails, its element has the error, and the
 * others are registered with nevertheless. If the call itself fails, nothing is registered with.
 *
 * EINVAL if @size is not that of a version of &struct xrc_rcv_adopted_qp, or
 * for @reg_attr as of xrc_rcv_reg_qp_ex().
 */
int xrc_rcv_adopt_domain(struct ibv_xrcd *xrcd,
			 const struct xrc_rcv_reg_attr *reg_attr,
			 struct xrc_rcv_adopted_qp **qps, size_t size,
			 size_t *count);

/**
 * xrc_rcv_event_type_str - describe an event type
 */
const char *xrc_rcv_event_type_str(uint32_t type);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_XRC_RCV_H */
