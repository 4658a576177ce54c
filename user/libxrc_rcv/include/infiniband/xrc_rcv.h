/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * XRC receive QPs that the kernel owns.
 *
 * Any process of an XRC domain creates the receiving end of a connection,
 * others register with it, each of them gets its events, and it is destroyed
 * with its last registration. Takes the ordinary objects of libibverbs.
 *
 * As in libibverbs, functions return 0 or a positive errno, or a pointer that
 * is NULL after errno was set. EOPNOTSUPP means that the device has no receive
 * QPs: ib_xrc_rcv is not loaded, was loaded after ib_uverbs had exposed the
 * device, or the device has no XRC.
 *
 * A struct that a function fills is passed with its size, as in efadv and
 * mlx5dv: "xrc_rcv_query_caps(context, &caps, sizeof(caps))". Structs grow at
 * their end. Library and kernel fill as much as they and the caller know, and
 * clear the rest, so programs and libraries of different age work together.
 *
 * All functions may be called from any thread, with the same objects as well,
 * and in a forked child; but nothing may be in use that another thread
 * destroys: an open device, a domain, a channel or a registration.
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
 * struct xrc_rcv_event_channel - where the events of registrations are read
 *
 * @context: the device it was created on
 * @fd: to be polled for input, or made non-blocking with fcntl(2)
 *
 * Created by xrc_rcv_create_event_channel(), and destroyed by
 * xrc_rcv_destroy_event_channel(). One channel serves any number of
 * registrations.
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
 * @qp_num: the number senders connect to
 * @handle: the registration's uverbs handle
 *
 * Returned by xrc_rcv_alloc_qp() and xrc_rcv_reg_qp(), and freed by
 * xrc_rcv_unreg_qp(), which gives the registration up. So does closing the
 * device, which does not free this.
 */
struct xrc_rcv_qp {
	struct ibv_context *context;
	struct ibv_xrcd *xrcd;
	uint32_t qp_num;
	uint32_t handle;
};

/**
 * struct xrc_rcv_init_attr - how to create a receive QP
 *
 * @comp_mask: 0; has a bit for each member that was added later and is there.
 *	EINVAL for a bit that the library does not know.
 * @flags: &enum xrc_rcv_alloc_flags
 * @channel: where to report events, or NULL
 * @cookie: returned in each event of the registration
 */
struct xrc_rcv_init_attr {
	uint32_t comp_mask;
	uint32_t flags;
	struct xrc_rcv_event_channel *channel;
	uint64_t cookie;
};

/**
 * xrc_rcv_query_caps - ask what the kernel and a device offer
 *
 * @size: sizeof(*@caps)
 */
int xrc_rcv_query_caps(struct ibv_context *context, struct xrc_rcv_caps *caps,
		       size_t size);

/**
 * xrc_rcv_create_event_channel - create a channel to read events from
 */
struct xrc_rcv_event_channel *
xrc_rcv_create_event_channel(struct ibv_context *context);

/**
 * xrc_rcv_destroy_event_channel - close a channel
 *
 * Registrations that report to it stay, without a channel.
 */
int xrc_rcv_destroy_event_channel(struct xrc_rcv_event_channel *channel);

/**
 * xrc_rcv_read_events - read as many events as there are and fit
 *
 * @size: sizeof(*@events)
 *
 * Waits for the first, unless the channel is non-blocking. Returns the number
 * of events read, or -1 after errno was set: EAGAIN, EINTR, EINVAL (@count is
 * 0), EIO (the device is gone and all events are read).
 */
ssize_t xrc_rcv_read_events(struct xrc_rcv_event_channel *channel,
			    struct xrc_rcv_event *events, size_t size,
			    size_t count);

/**
 * xrc_rcv_get_event - read one event
 *
 * @size: sizeof(*@event)
 *
 * As xrc_rcv_read_events(), but waits on after signals.
 */
int xrc_rcv_get_event(struct xrc_rcv_event_channel *channel,
		      struct xrc_rcv_event *event, size_t size);

/**
 * xrc_rcv_alloc_qp - create a receive QP and register with it
 *
 * @init_attr: may be NULL: lifetime by registrations, no channel
 * @attr: may be NULL: the QP stays in RESET. With what INIT needs, or INIT and
 *	RTR, the QP is taken there in the same call.
 * @attr_mask: &enum ibv_qp_attr_mask; EINVAL if not 0 without @attr
 */
struct xrc_rcv_qp *xrc_rcv_alloc_qp(struct ibv_xrcd *xrcd,
				    const struct xrc_rcv_init_attr *init_attr,
				    const struct ibv_qp_attr *attr,
				    int attr_mask);

/**
 * xrc_rcv_reg_qp - register with an existing receive QP
 *
 * @channel: where to report events, or NULL
 *
 * EEXIST if this open device is registered already.
 */
struct xrc_rcv_qp *xrc_rcv_reg_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
				  struct xrc_rcv_event_channel *channel,
				  uint64_t cookie);

/**
 * xrc_rcv_unreg_qp - give a registration up, its unread events with it
 *
 * The last one destroys the QP, unless its lifetime is the domain's. Frees @qp,
 * also if the registration was given up with the device before.
 */
int xrc_rcv_unreg_qp(struct xrc_rcv_qp *qp);

/**
 * xrc_rcv_modify_qp - modify a receive QP of the domain, registered or not
 */
int xrc_rcv_modify_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
		      const struct ibv_qp_attr *attr, int attr_mask);

/**
 * xrc_rcv_query_qp - query a receive QP of the domain, registered or not
 *
 * @attr: every attribute is filled but rate_limit; may be NULL
 * @info: may be NULL
 * @size: sizeof(*@info)
 */
int xrc_rcv_query_qp(struct ibv_xrcd *xrcd, uint32_t qp_num,
		     struct ibv_qp_attr *attr, struct xrc_rcv_qp_info *info,
		     size_t size);

/**
 * xrc_rcv_destroy_qp - destroy a receive QP whose lifetime is the domain's
 *
 * EBUSY if another open device is registered with it.
 */
int xrc_rcv_destroy_qp(struct ibv_xrcd *xrcd, uint32_t qp_num);

/**
 * xrc_rcv_query_domain - list the receive QPs of a domain
 *
 * @after: 0, then the last number of the page before
 * @infos: filled in ascending order of QP numbers; may be NULL if *@count is 0
 * @size: sizeof(*@infos)
 * @count: in, how many fit; out, how many were filled. 0 ends the list.
 * @total: how many the domain has; may be NULL
 */
int xrc_rcv_query_domain(struct ibv_xrcd *xrcd, uint32_t after,
			 struct xrc_rcv_qp_info *infos, size_t size,
			 size_t *count, uint32_t *total);

/**
 * xrc_rcv_event_type_str - the name of an event type
 */
const char *xrc_rcv_event_type_str(uint32_t type);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_XRC_RCV_H */
