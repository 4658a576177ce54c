/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * <infiniband/verbs.h> for programs of OFED 1.5.
 *
 * In addition to the declarations of rdma-core, OFED's header had the XRC calls,
 * and more members in five structs. Four of these, and the functions that take
 * them, get another name while rdma-core's header is read, and are then declared
 * with OFED's members; struct ibv_qp is rdma-core's. Another one, struct
 * ibv_context, gets a second descriptor in its padding. The layouts are compatible
 * with rdma-core's, so objects are passed without conversion. OFED's programs
 * include this header through the infiniband/verbs.h that pkg-config ofa_xrc puts
 * before rdma-core's.
 *
 * All XRC calls return 0 or a positive errno. ENOSYS means that the device has no
 * XRC or, from the calls for receive QPs, that ib_xrc_rcv is not loaded.
 */

#ifndef INFINIBAND_OFA_XRC_H
#define INFINIBAND_OFA_XRC_H

#ifdef INFINIBAND_VERBS_H
#error "<infiniband/ofa_xrc.h> must be included before rdma-core's <infiniband/verbs.h>"
#endif

#if !defined(__LP64__)
#error "<infiniband/ofa_xrc.h> needs 64-bit pointers, for the padding of struct ibv_srq"
#endif

#include <stddef.h>
#include <stdint.h>
/* Has the names of the members of struct ibv_context, too. */
#include <rdma/ib_user_verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The names for rdma-core's declarations that differ from OFED's. The functions
 * keep their symbols.
 */
struct ibv_context;
struct ibv_pd;
struct ibv_qp;
struct ibv_qp_attr;
struct ibv_srq_attr;
struct ibv_srq_init_attr;
struct ofa_core_async_event;
struct ofa_core_qp_init_attr;
struct ofa_core_srq;

int ofa_core_get_async_event(struct ibv_context *context,
			     struct ofa_core_async_event *event)
	__asm__("ibv_get_async_event");
void ofa_core_ack_async_event(struct ofa_core_async_event *event)
	__asm__("ibv_ack_async_event");
struct ibv_qp *ofa_core_create_qp(struct ibv_pd *pd,
				  struct ofa_core_qp_init_attr *qp_init_attr)
	__asm__("ibv_create_qp");
int ofa_core_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
		      int attr_mask, struct ofa_core_qp_init_attr *init_attr)
	__asm__("ibv_query_qp");
struct ofa_core_srq *ofa_core_create_srq(struct ibv_pd *pd,
					 struct ibv_srq_init_attr *init_attr)
	__asm__("ibv_create_srq");
int ofa_core_modify_srq(struct ofa_core_srq *srq, struct ibv_srq_attr *srq_attr,
			int srq_attr_mask) __asm__("ibv_modify_srq");
int ofa_core_query_srq(struct ofa_core_srq *srq, struct ibv_srq_attr *srq_attr)
	__asm__("ibv_query_srq");
int ofa_core_destroy_srq(struct ofa_core_srq *srq) __asm__("ibv_destroy_srq");

#ifdef __cplusplus
}
#endif

#define ibv_open_device		ofa_core_open_device
#define ibv_import_device	ofa_core_import_device
#define ibv_close_device	ofa_core_close_device
#define ibv_modify_qp		ofa_core_modify_qp
#define ibv_destroy_qp		ofa_core_destroy_qp
#define ibv_async_event		ofa_core_async_event
#define ibv_get_async_event	ofa_core_get_async_event
#define ibv_ack_async_event	ofa_core_ack_async_event
#define ibv_qp_init_attr	ofa_core_qp_init_attr
#define ibv_create_qp		ofa_core_create_qp
#define ibv_query_qp		ofa_core_query_qp
#define ibv_srq			ofa_core_srq
#define ibv_create_srq		ofa_core_create_srq
#define ibv_create_srq_ex	ofa_core_create_srq_ex
#define ibv_modify_srq		ofa_core_modify_srq
#define ibv_query_srq		ofa_core_query_srq
#define ibv_get_srq_num		ofa_core_get_srq_num
#define ibv_destroy_srq		ofa_core_destroy_srq
#define ibv_post_srq_recv	ofa_core_post_srq_recv
#define ibv_post_srq_ops	ofa_core_post_srq_ops
#define ibv_send_wr		ofa_core_send_wr
#define ibv_post_send		ofa_core_post_send

/*
 * The end of struct ibv_context is
 *
 *	int async_fd;
 *	int num_comp_vectors;
 *	(padding)
 *
 * and becomes
 *
 *	int ofa_core_async_fd;
 *	union {
 *		struct {
 *			int ofa_core_before_async_fd;
 *			int async_fd;
 *			int : 0;
 *		};
 *		int num_comp_vectors;
 *	};
 *
 * The kernel wants libibverbs' own descriptor back when objects are created; a
 * program waits for the one in the padding, which is readable when there is an
 * event of libibverbs or of a receive QP.
 */
#define async_fd							\
	ofa_core_async_fd;						\
	__extension__ union {						\
		__extension__ struct {					\
			int ofa_core_before_async_fd;			\
			int async_fd
#define num_comp_vectors						\
			: 0;						\
		};							\
		int num_comp_vectors;					\
	}

#include <infiniband/verbs.h>

#undef ibv_open_device
#undef ibv_import_device
#undef ibv_close_device
#undef ibv_modify_qp
#undef ibv_destroy_qp
#undef ibv_async_event
#undef ibv_get_async_event
#undef ibv_ack_async_event
#undef ibv_qp_init_attr
#undef ibv_create_qp
#undef ibv_query_qp
#undef ibv_srq
#undef ibv_create_srq
#undef ibv_create_srq_ex
#undef ibv_modify_srq
#undef ibv_query_srq
#undef ibv_get_srq_num
#undef ibv_destroy_srq
#undef ibv_post_srq_recv
#undef ibv_post_srq_ops
#undef ibv_send_wr
#undef ibv_post_send
#undef async_fd
#undef num_comp_vectors

#ifdef __cplusplus
extern "C" {
#endif

/* The type of a QP that sends to XRC SRQs and receives for them. */
#define IBV_QPT_XRC ((enum ibv_qp_type)5)

/**
 * enum ibv_event_flags - flag in the type of an event of a receive QP
 */
__extension__ enum ibv_event_flags {
	IBV_XRC_QP_EVENT_FLAG = 0x80000000,
};

struct ibv_srq;

/**
 * struct ibv_async_event - an asynchronous event
 *
 * element.xrc_qp_num is valid if event_type has %IBV_XRC_QP_EVENT_FLAG.
 */
struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		struct ibv_wq *wq;
		int port_num;
		uint32_t xrc_qp_num;
	} element;
	enum ibv_event_type event_type;
};

/**
 * struct ibv_xrc_domain - an open XRC domain
 */
struct ibv_xrc_domain {
	struct ibv_context *context;
	uint32_t handle;
};

/**
 * struct ibv_srq - a shared receive queue
 *
 * @xrc_srq_num: for the sender, in ibv_send_wr.xrc_remote_srq_num. It occupies
 *	padding of rdma-core's struct.
 */
struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	uint32_t xrc_srq_num;

	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

/**
 * struct ibv_qp_init_attr - parameters of a new QP
 *
 * @xrc_domain: for %IBV_QPT_XRC and for ibv_create_xrc_rcv_qp()
 */
struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	struct ibv_xrc_domain *xrc_domain;
};

/**
 * struct ibv_send_wr - a work request of a send queue
 *
 * @xrc_remote_srq_num: the SRQ that a send to a receive QP is for; rdma-core's
 *	qp_type.xrc.remote_srqn is the same.
 */
struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags;

	__extension__ union {
		__be32 imm_data;
		uint32_t invalidate_rkey;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	__extension__ union {
		union {
			struct {
				uint32_t remote_srqn;
			} xrc;
		} qp_type;
		uint32_t xrc_remote_srq_num;
	};
	__extension__ union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_mw_bind_info bind_info;
		} bind_mw;
		struct {
			void *hdr;
			uint16_t hdr_sz;
			uint16_t mss;
		} tso;
	};
};

#ifdef __cplusplus
#define OFA_XRC_SAME(a, b) static_assert((a) == (b), #a " == " #b)
#else
#define OFA_XRC_SAME(a, b) \
	__extension__ _Static_assert((a) == (b), #a " == " #b)
#endif
OFA_XRC_SAME(sizeof(struct ibv_async_event),
	     sizeof(struct ofa_core_async_event));
OFA_XRC_SAME(offsetof(struct ibv_async_event, event_type),
	     offsetof(struct ofa_core_async_event, event_type));
OFA_XRC_SAME(sizeof(struct ibv_srq), sizeof(struct ofa_core_srq));
OFA_XRC_SAME(offsetof(struct ibv_srq, handle),
	     offsetof(struct ofa_core_srq, handle));
OFA_XRC_SAME(offsetof(struct ibv_srq, mutex),
	     offsetof(struct ofa_core_srq, mutex));
OFA_XRC_SAME(offsetof(struct ibv_qp_init_attr, sq_sig_all),
	     offsetof(struct ofa_core_qp_init_attr, sq_sig_all));
OFA_XRC_SAME(offsetof(struct ibv_qp_init_attr, xrc_domain),
	     sizeof(struct ofa_core_qp_init_attr));
OFA_XRC_SAME(sizeof(struct ibv_send_wr), sizeof(struct ofa_core_send_wr));
OFA_XRC_SAME(offsetof(struct ibv_send_wr, imm_data),
	     offsetof(struct ofa_core_send_wr, imm_data));
OFA_XRC_SAME(offsetof(struct ibv_send_wr, wr),
	     offsetof(struct ofa_core_send_wr, wr));
OFA_XRC_SAME(offsetof(struct ibv_send_wr, xrc_remote_srq_num),
	     offsetof(struct ofa_core_send_wr, qp_type));
OFA_XRC_SAME(offsetof(struct ibv_send_wr, bind_mw),
	     offsetof(struct ofa_core_send_wr, bind_mw));
/* rdma-core's layout, with the descriptor between the last int and the mutex. */
OFA_XRC_SAME(offsetof(struct ibv_context, num_comp_vectors),
	     offsetof(struct ibv_context, ofa_core_async_fd) + sizeof(int));
OFA_XRC_SAME(offsetof(struct ibv_context, async_fd),
	     offsetof(struct ibv_context, num_comp_vectors) + sizeof(int));
OFA_XRC_SAME(offsetof(struct ibv_context, mutex),
	     offsetof(struct ibv_context, async_fd) + sizeof(int));

/*
 * The functions that OFED widened. Their symbols are the layer's own: a program
 * that is opened with dlopen() may find those of libibverbs before the layer's.
 */
struct ibv_context *ibv_open_device(struct ibv_device *device)
	__asm__("ofa_xrc_open_device");
struct ibv_context *ibv_import_device(int cmd_fd)
	__asm__("ofa_xrc_import_device");
int ibv_close_device(struct ibv_context *context)
	__asm__("ofa_xrc_close_device");
int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
	__asm__("ofa_xrc_get_async_event");
void ibv_ack_async_event(struct ibv_async_event *event)
	__asm__("ofa_xrc_ack_async_event");
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd,
			     struct ibv_qp_init_attr *qp_init_attr)
	__asm__("ofa_xrc_create_qp");
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
	__asm__("ofa_xrc_modify_qp");
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
	__asm__("ofa_xrc_query_qp");
int ibv_destroy_qp(struct ibv_qp *qp) __asm__("ofa_xrc_destroy_qp");

/* rdma-core's functions, with OFED's structs. */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *srq_init_attr);
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr,
		   int srq_attr_mask);
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr);
int ibv_destroy_srq(struct ibv_srq *srq);

static inline struct ibv_srq *
ibv_create_srq_ex(struct ibv_context *context,
		  struct ibv_srq_init_attr_ex *srq_init_attr_ex)
{
	return (struct ibv_srq *)ofa_core_create_srq_ex(context,
							srq_init_attr_ex);
}

static inline int ibv_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	return ofa_core_get_srq_num((struct ofa_core_srq *)srq, srq_num);
}

static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				struct ibv_send_wr **bad_wr)
{
	return ofa_core_post_send(qp, (struct ofa_core_send_wr *)wr,
				  (struct ofa_core_send_wr **)bad_wr);
}

static inline int ibv_post_srq_recv(struct ibv_srq *srq,
				    struct ibv_recv_wr *recv_wr,
				    struct ibv_recv_wr **bad_recv_wr)
{
	return ofa_core_post_srq_recv((struct ofa_core_srq *)srq, recv_wr,
				      bad_recv_wr);
}

static inline int ibv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op,
				   struct ibv_ops_wr **bad_op)
{
	return ofa_core_post_srq_ops((struct ofa_core_srq *)srq, op, bad_op);
}

/**
 * ibv_open_xrc_domain - open the XRC domain of a file
 *
 * @fd: open in any mode; it may be closed, and the file unlinked, after the call.
 *	-1 for a domain without a file
 * @oflag: O_CREAT, O_EXCL
 *
 * NULL with errno EBADF (bad descriptor), EAGAIN (no such domain and no
 * O_CREAT), EINVAL (it exists and O_EXCL), ENOSYS.
 */
struct ibv_xrc_domain *ibv_open_xrc_domain(struct ibv_context *context, int fd,
					   int oflag);

/**
 * ibv_close_xrc_domain - close an XRC domain
 *
 * EBUSY if this process has a QP, an SRQ or a registration in the domain. Its last
 * close destroys the remaining receive QPs.
 */
int ibv_close_xrc_domain(struct ibv_xrc_domain *d);

/**
 * ibv_create_xrc_srq - create an SRQ in an XRC domain
 */
struct ibv_srq *ibv_create_xrc_srq(struct ibv_pd *pd,
				   struct ibv_xrc_domain *xrc_domain,
				   struct ibv_cq *xrc_cq,
				   struct ibv_srq_init_attr *srq_init_attr);

/**
 * ibv_create_xrc_rcv_qp - create a receive QP and register with it
 *
 * @init_attr: only xrc_domain is read
 * @xrc_qp_num: the QP number, for the sender and for the calls below
 */
int ibv_create_xrc_rcv_qp(struct ibv_qp_init_attr *init_attr,
			  uint32_t *xrc_qp_num);

/**
 * ibv_modify_xrc_rcv_qp - modify a receive QP
 *
 * The process need not be registered. EINVAL if the QP is not in this domain, or
 * the transition is invalid.
 */
int ibv_modify_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			  uint32_t xrc_qp_num, struct ibv_qp_attr *attr,
			  int attr_mask);

/**
 * ibv_query_xrc_rcv_qp - query a receive QP
 *
 * The process need not be registered. Fills all attributes, regardless of
 * @attr_mask.
 */
int ibv_query_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num,
			 struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_qp_init_attr *init_attr);

/**
 * ibv_reg_xrc_rcv_qp - register with a receive QP
 *
 * Does nothing if the process is registered already.
 */
int ibv_reg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num);

/**
 * ibv_unreg_xrc_rcv_qp - end the registration with a receive QP
 *
 * One call is enough, however often the process registered. Giving up the last
 * registration destroys the QP.
 */
int ibv_unreg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			 uint32_t xrc_qp_num);

/**
 * ibv_alloc_xrc_rcv_qp - create a receive QP and modify it to RTR
 *
 * @pd: not used, the QP has a PD of the kernel
 * @attr_mask: the attributes that INIT and RTR require
 *
 * The call of the first proposal, which had no registrations: the QP lives until
 * the domain is closed for the last time.
 */
int ibv_alloc_xrc_rcv_qp(struct ibv_pd *pd, struct ibv_xrc_domain *xrc_domain,
			 struct ibv_qp_attr *attr,
			 enum ibv_qp_attr_mask attr_mask,
			 uint32_t *xrc_rcv_qpn);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_OFA_XRC_H */
