// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user of XRC on rxe_right: an SRQ, a target QP that feeds it, and a
 * region for fast registration in the SRQ's protection domain and in another.
 * User space has no regions that SEND with Invalidate could invalidate, so
 * qemu/tests/rxe/invalidate needs the kernel for it. Numbers, keys and
 * completions are the parameters of the module.
 */
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define DEPTH 8
#define SIZE 2048
#define PEER_QP 0xbad001	/* more than rxe ever hands out */

static u32 qp_number, srq_number, own_key, other_key;
module_param(qp_number, uint, 0444);
module_param(srq_number, uint, 0444);
module_param(own_key, uint, 0444);
module_param(other_key, uint, 0444);

static void *buffer;
static struct ib_pd *pd, *other_pd;
static struct ib_mr *mr, *other_mr;
static struct ib_xrcd *domain;
static struct ib_cq *cq;
static struct ib_srq *srq;
static struct ib_qp *target;

/* Takes the next completion: its status and the key it says was invalidated. */
static int completion_get(char *text, const struct kernel_param *kp)
{
	struct ib_wc wc = {};

	if (!cq || ib_poll_cq(cq, 1, &wc) != 1)
		return sysfs_emit(text, "none\n");
	return sysfs_emit(text, "%s, %#x\n", ib_wc_status_msg(wc.status),
			  wc.wc_flags & IB_WC_WITH_INVALIDATE ? wc.ex.invalidate_rkey : 0);
}

static const struct kernel_param_ops completion_ops = { .get = completion_get };
module_param_cb(completion, &completion_ops, NULL, 0444);

static union ib_gid gid_of(const char *address)
{
	union ib_gid gid;

	ipv6_addr_set_v4mapped(in_aton(address), (struct in6_addr *)gid.raw);
	return gid;
}

/* The peer does not exist: its packets are made by hand. */
static int listen_to_peer(struct ib_device *device)
{
	union ib_gid own = gid_of("10.0.0.2"), peer = gid_of("10.0.0.1");
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = 1,
	};
	const struct ib_gid_attr *source;
	int ret;

	ret = ib_modify_qp(target, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
					  IB_QP_ACCESS_FLAGS);
	if (ret)
		return ret;

	source = rdma_find_gid(device, &own, IB_GID_TYPE_ROCE_UDP_ENCAP, NULL);
	if (IS_ERR(source))
		return PTR_ERR(source);

	attr = (struct ib_qp_attr){
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = PEER_QP,
		.min_rnr_timer = 1,
		.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE,
	};
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	rdma_move_grh_sgid_attr(&attr.ah_attr, &peer, 0, 64, 0, source);
	ret = ib_modify_qp(target, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
					  IB_QP_DEST_QPN | IB_QP_RQ_PSN |
					  IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	rdma_destroy_ah_attr(&attr.ah_attr);
	return ret;
}

#define unless_error(object) (IS_ERR_OR_NULL(object) ? NULL : (object))

static void tear_down(struct ib_device *device, void *data)
{
	if (unless_error(target))
		ib_destroy_qp(target);
	if (unless_error(srq))
		ib_destroy_srq(srq);
	if (unless_error(domain))
		ib_dealloc_xrcd_user(domain, NULL);
	if (unless_error(cq))
		ib_free_cq(cq);
	if (unless_error(mr))
		ib_dereg_mr(mr);
	if (unless_error(other_mr))
		ib_dereg_mr(other_mr);
	if (unless_error(pd))
		ib_dealloc_pd(pd);
	if (unless_error(other_pd))
		ib_dealloc_pd(other_pd);
	kfree(buffer);
	buffer = NULL;
	target = NULL;
	srq = NULL;
	domain = NULL;
	cq = NULL;
	mr = NULL;
	other_mr = NULL;
	pd = NULL;
	other_pd = NULL;
}

static int set_up(struct ib_device *device)
{
	struct ib_srq_init_attr srq_attr = {
		.attr = { .max_wr = DEPTH, .max_sge = 1 },
		.srq_type = IB_SRQT_XRC,
	};
	struct ib_qp_init_attr qp_attr = { .qp_type = IB_QPT_XRC_TGT };
	struct ib_sge sge = { .length = SIZE };
	struct ib_recv_wr receive = { .sg_list = &sge, .num_sge = 1 };
	unsigned int i;
	int ret;

	if (strcmp(dev_name(&device->dev), "rxe_right"))
		return -EOPNOTSUPP;

	buffer = kmalloc(SIZE, GFP_KERNEL);
	pd = ib_alloc_pd(device, 0);
	other_pd = ib_alloc_pd(device, 0);
	cq = ib_alloc_cq(device, NULL, 2 * DEPTH, 0, IB_POLL_DIRECT);
	domain = ib_alloc_xrcd_user(device, NULL, NULL);
	ret = -ENOMEM;
	if (!buffer || IS_ERR(pd) || IS_ERR(other_pd) || IS_ERR(cq) || IS_ERR(domain))
		goto err;

	mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 1);
	other_mr = ib_alloc_mr(other_pd, IB_MR_TYPE_MEM_REG, 1);
	srq_attr.ext.cq = cq;
	srq_attr.ext.xrc.xrcd = domain;
	srq = ib_create_srq(pd, &srq_attr);
	qp_attr.xrcd = domain;
	target = ib_create_qp_kernel(pd, &qp_attr, KBUILD_MODNAME);
	if (IS_ERR(mr) || IS_ERR(other_mr) || IS_ERR(srq) || IS_ERR(target))
		goto err;

	/* rxe takes addresses as they are. The received data is not used. */
	sge.addr = (uintptr_t)buffer;
	sge.lkey = pd->local_dma_lkey;
	ret = listen_to_peer(device);
	for (i = 0; !ret && i < DEPTH; i++)
		ret = ib_post_srq_recv(srq, &receive, NULL);
	if (ret)
		goto err;

	qp_number = target->qp_num;
	srq_number = srq->ext.xrc.srq_num;
	own_key = mr->lkey;
	other_key = other_mr->lkey;
	return 0;

err:
	tear_down(device, NULL);
	return ret;
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = set_up,
	.remove = tear_down,
};

static int __init xrc_user_init(void)
{
	return ib_register_client(&client);
}
module_init(xrc_user_init);

static void __exit xrc_user_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(xrc_user_exit);

MODULE_DESCRIPTION("A kernel user of XRC on rxe");
MODULE_LICENSE("GPL");
