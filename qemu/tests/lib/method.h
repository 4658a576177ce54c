/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The methods of ib_xrc_rcv, called without a library: tests choose every byte
 * of the ioctl. The named calls below pass the attributes of a correct
 * caller; others are put together attribute by attribute.
 *
 * All return 0 or a negative errno.
 */
#ifndef METHOD_H
#define METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_xrc_rcv.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* A call in the making; on the caller's stack. */
struct call {
	union {
		struct ib_uverbs_ioctl_hdr header;
		struct {
			uint8_t header_bytes[sizeof(struct ib_uverbs_ioctl_hdr)];
			struct ib_uverbs_attr attributes[16];
		};
	};
};

void call_start(struct call *call, uint16_t object, uint16_t method);
struct ib_uverbs_attr *call_add(struct call *call, uint16_t id, uint16_t length,
				uint64_t data);
/* Up to eight bytes travel in the attribute itself, as the kernel wants it. */
struct ib_uverbs_attr *call_in(struct call *call, uint16_t id, const void *data,
			       uint16_t length);
struct ib_uverbs_attr *call_out(struct call *call, uint16_t id, void *data,
				uint16_t length);
/* A handle or a file descriptor; -1 where the kernel is to fill one in. */
struct ib_uverbs_attr *call_object(struct call *call, uint16_t id, int64_t object);
int call_run(struct call *call, int uverbs_fd);

/* The driver that calls are meant for: that of the lab's device. */
uint32_t driver_id(void);

/* A domain as a method wants it. */
struct domain {
	int uverbs_fd;
	uint32_t handle;
};

/* The handle is where rdma-core's private struct verbs_xrcd has it. */
struct domain domain_of(const struct ibv_xrcd *xrcd);

/*
 * A channel that nothing reads: one of the domain that is created when it is needed
 * first, and stays open as long as the process.
 */
enum {
	NO_CHANNEL = -1,
	NO_REGISTRATION = -2,	/* ALLOC without a channel */
};

struct registration {
	int uverbs_fd;
	int channel;
	uint32_t qp_num;
	uint64_t serial;	/* of ALLOC; 0 of REG */
};

int rcv_alloc(struct domain domain, uint32_t flags, const struct ib_uverbs_qp_attr *attr,
	      int channel, struct registration *registration);
/* LABEL may be NULL. */
int rcv_alloc_labelled(struct domain domain, uint32_t flags,
		       const struct ib_uverbs_qp_attr *attr, int channel, const uint64_t *label,
		       struct registration *registration);
int rcv_reg(struct domain domain, uint32_t qp_num, int channel,
	    struct registration *registration);
int rcv_reg_info(struct domain domain, uint32_t qp_num, int channel,
		 struct xrc_rcv_reg_info *info);
int rcv_unreg(const struct registration *registration);
/* COUNT QPs at once. DONE: out, how many; may be NULL. */
int rcv_reg_many(int uverbs_fd, int channel, const uint32_t *qp_nums, uint16_t count,
		 uint32_t *done);
int rcv_unreg_many(int uverbs_fd, int channel, const uint32_t *qp_nums, uint16_t count,
		   uint32_t *done);
/* The same by the ioctls of a channel. INFOS may be NULL. */
int rcv_ioctl_reg(int channel, const uint32_t *qp_nums, uint32_t count,
		  struct xrc_rcv_reg_info *infos, uint32_t *done);
int rcv_ioctl_unreg(int channel, const uint32_t *qp_nums, uint32_t count, uint32_t *done);
int rcv_modify(struct domain domain, uint32_t qp_num,
	       const struct ib_uverbs_qp_attr *attr);
/* ATTR and INFO may be NULL. */
int rcv_query(struct domain domain, uint32_t qp_num, struct ib_uverbs_qp_attr *attr,
	      struct xrc_rcv_qp_info *info);
int rcv_destroy(struct domain domain, uint32_t qp_num);
int rcv_destroy_with(struct domain domain, uint32_t qp_num, uint32_t flags);
/* By the owner of the domain, whatever keeps it. */
int rcv_destroy_forced(struct domain domain, uint32_t qp_num);
/* COUNT: in, how many fit into INFOS; out, how many are there. TOTAL may be NULL. */
int rcv_list(struct domain domain, uint32_t after, struct xrc_rcv_qp_info *infos,
	     uint32_t *count, uint32_t *total);
/* The first of them, as elements of SIZE bytes. */
int rcv_list_sized(struct domain domain, void *infos, uint32_t size, uint32_t *count);
int rcv_caps(int uverbs_fd, struct xrc_rcv_caps *caps);
/* Returns the channel's file descriptor. */
int rcv_channel(struct domain domain);
/* The same for records of a size, and for the events of a mask; NULL leaves one out. */
int rcv_channel_with(struct domain domain, const uint32_t *size, const uint64_t *events);
int rcv_channel_of(struct domain domain, uint32_t flags, const uint32_t *size,
		   const uint64_t *events);

/* Whether a record is of the QP of a registration that ALLOC made. */
bool is_record(const struct xrc_rcv_record *record, const struct registration *registration,
	       uint32_t type, uint64_t count);
bool is_gone(const struct xrc_rcv_record *record, const struct registration *registration);

/* Only the state: to RESET or ERR, or a step that wants nothing else. */
int rcv_to_state(struct domain domain, uint32_t qp_num, enum ibv_qp_state state);

#endif
