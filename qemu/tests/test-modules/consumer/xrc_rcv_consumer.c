// SPDX-License-Identifier: GPL-2.0
/*
 * A user of receive QPs in the kernel: calls the whole API on each device
 * that ib_xrc_rcv is attached to, and logs the results.
 *
 * Every line is "DEVICE: ok - TITLE" or "DEVICE: not ok - TITLE"; the last one of a
 * device is "DEVICE: N failed".
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/file.h>
#include <linux/module.h>
#include <linux/shmem_fs.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_xrc_rcv.h>

/*
 * Registrations of each device whose QP is destroyed under them: of two QPs by force, and of one
 * with the domain. Their end is not reported.
 */
#define ENDED_WITH_QP 3

/* The notifications of one device. */
struct changes {
	struct notifier_block nb;
	struct ib_device *device;
	unsigned int count[IB_XRC_RCV_DESTROY + 1];
	u32 registrations;
};

/* The events of a handler. */
struct witness {
	atomic_t events;
	u32 qpn;
	u32 type;
	u64 serial, count;
};

static unsigned int failed;

static void check(struct ib_device *device, bool ok, const char *what)
{
	pr_info("%s: %s - %s\n", dev_name(&device->dev), ok ? "ok" : "not ok", what);
	failed += !ok;
}

static int count_change(struct notifier_block *nb, unsigned long action, void *data)
{
	struct changes *changes = container_of(nb, struct changes, nb);
	struct ib_xrc_rcv_notifier_info *info = data;

	if (info->device == changes->device && action <= IB_XRC_RCV_DESTROY) {
		changes->count[action]++;
		changes->registrations = info->registrations;
	}
	return NOTIFY_OK;
}

static bool changed(const struct changes *changes, unsigned int creates, unsigned int regs,
		    unsigned int unregs, unsigned int destroys)
{
	return changes->count[IB_XRC_RCV_ALLOC] == creates &&
	       changes->count[IB_XRC_RCV_REG] == regs &&
	       changes->count[IB_XRC_RCV_UNREG] == unregs &&
	       changes->count[IB_XRC_RCV_DESTROY] == destroys;
}

static void handler(const struct xrc_rcv_record *record, void *context)
{
	struct witness *witness = context;

	witness->qpn = record->qp_num;
	witness->type = record->type;
	witness->serial = record->serial;
	witness->count = record->count;
	atomic_inc(&witness->events);
}

static bool saw_gone(const struct witness *witness, u32 qpn)
{
	return atomic_read(&witness->events) == 1 && witness->qpn == qpn &&
	       witness->type == XRC_RCV_EVENT_QP_GONE && witness->serial && witness->count == 1;
}

static enum ib_qp_state state(struct ib_xrcd *xrcd, u32 qpn)
{
	struct ib_qp_attr attr = {};

	return ib_xrc_rcv_query_qp(xrcd, qpn, &attr) ? IB_QPS_ERR : attr.qp_state;
}

static bool is_gone(struct ib_xrcd *xrcd, u32 qpn)
{
	struct ib_qp_attr attr;

	return ib_xrc_rcv_query_qp(xrcd, qpn, &attr) == -EINVAL;
}

#define INIT_MASK (IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS)

static const struct ib_qp_attr init = {
	.qp_state = IB_QPS_INIT,
	.port_num = 1,
	.qp_access_flags = IB_ACCESS_REMOTE_WRITE,
};

static const struct ib_xrc_rcv_init_attr in_reset, in_init = {
	.attr = &init,
	.attr_mask = INIT_MASK,
};

/* A QP that lives as long as its registrations. */
static void use_registrations(struct ib_device *device, struct ib_xrcd *xrcd,
			      struct changes *changes)
{
	const struct ib_xrc_rcv_init_attr incomplete = {
		.attr = &init,
		.attr_mask = IB_QP_PORT,
	};
	const struct ib_xrc_rcv_init_attr unknown_flag = { .flags = ~0U };
	const struct ib_xrc_rcv_init_attr unknown_event = { .events = BIT_ULL(8) };
	const struct ib_xrc_rcv_init_attr labelled = { .label = 0xfedcba9876543210 };
	struct ib_xrc_rcv_registration *first, *second;
	u32 qpn;

	check(device, PTR_ERR(ib_xrc_rcv_alloc_qp(xrcd, &incomplete)) == -EINVAL,
	      "incomplete attributes are refused");
	check(device, PTR_ERR(ib_xrc_rcv_alloc_qp(xrcd, &unknown_flag)) == -EINVAL,
	      "unknown flags are refused");
	check(device, PTR_ERR(ib_xrc_rcv_alloc_qp(xrcd, &unknown_event)) == -EINVAL,
	      "unknown events are refused");

	first = ib_xrc_rcv_alloc_qp(xrcd, &labelled);
	check(device, !IS_ERR(first), "a QP is created");
	if (IS_ERR(first))
		return;
	qpn = ib_xrc_rcv_qpn(first);
	check(device, state(xrcd, qpn) == IB_QPS_RESET, "new QP is in RESET");
	check(device, changed(changes, 1, 1, 0, 0), "the notifier reports the creation");

	check(device, PTR_ERR(ib_xrc_rcv_reg_qp(xrcd, qpn ^ 0x400000, 0, NULL, NULL)) == -EINVAL,
	      "unknown QP number is refused");
	check(device, PTR_ERR(ib_xrc_rcv_reg_qp(xrcd, qpn, ~0ULL, NULL, NULL)) == -EINVAL,
	      "unknown events are refused by a registration");
	second = ib_xrc_rcv_reg_qp(xrcd, qpn, 0, NULL, NULL);
	check(device, !IS_ERR(second), "a second registration is added");
	check(device, changes->registrations == 2, "the notifier reports two registrations");

	check(device, !ib_xrc_rcv_modify_qp(xrcd, qpn, &init, INIT_MASK | IB_QP_STATE) &&
		      state(xrcd, qpn) == IB_QPS_INIT, "the QP is modified to INIT");
	check(device, ib_xrc_rcv_destroy_qp(xrcd, qpn, 0) == -EINVAL,
	      "destroy is refused for the lifetime of registrations");

	ib_xrc_rcv_unreg_qp(first);
	check(device, state(xrcd, qpn) == IB_QPS_INIT, "QP outlives its creator");
	if (!IS_ERR(second))
		ib_xrc_rcv_unreg_qp(second);
	check(device, is_gone(xrcd, qpn), "QP is destroyed with its last registration");
	check(device, changed(changes, 1, 2, 2, 1), "the notifier reports its end");
}

/* qedr modifies XRC target QPs for processes only; here any provider stands for it. */
static void pretend_qedr(struct ib_device *device, struct ib_xrcd *xrcd)
{
	const enum rdma_driver_id driver_id = device->ops.driver_id;
	struct ib_xrc_rcv_registration *registration;

	device->ops.driver_id = RDMA_DRIVER_QEDR;
	check(device, PTR_ERR(ib_xrc_rcv_alloc_qp(xrcd, &in_init)) == -EOPNOTSUPP,
	      "qedr: create in INIT is refused");
	registration = ib_xrc_rcv_alloc_qp(xrcd, &in_reset);
	check(device, !IS_ERR(registration), "qedr: a QP is created in RESET");
	if (!IS_ERR(registration)) {
		const u32 qpn = ib_xrc_rcv_qpn(registration);

		check(device,
		      ib_xrc_rcv_modify_qp(xrcd, qpn, &init, INIT_MASK | IB_QP_STATE) == -EOPNOTSUPP &&
		      state(xrcd, qpn) == IB_QPS_RESET, "qedr: modify is refused");
		ib_xrc_rcv_unreg_qp(registration);
	}
	device->ops.driver_id = driver_id;
}

/*
 * mlx4 lets a QP that the kernel takes to INIT use the reserved L_Key, which must not
 * be in a domain that processes share. Here any provider stands for it.
 */
static void pretend_mlx4(struct ib_device *device, struct ib_xrcd *xrcd)
{
	const enum rdma_driver_id driver_id = device->ops.driver_id;
	struct file *file = shmem_file_setup(KBUILD_MODNAME, 0, EMPTY_VMA_FLAGS);
	struct ib_xrc_rcv_registration *registration;
	u32 qpn;

	check(device, !IS_ERR(file), "the domain has a file");
	if (IS_ERR(file))
		return;
	device->ops.driver_id = RDMA_DRIVER_MLX4;

	registration = ib_xrc_rcv_alloc_qp(xrcd, &in_init);
	check(device, !IS_ERR(registration), "mlx4: a QP is created in INIT in a domain of the kernel");
	if (!IS_ERR(registration))
		ib_xrc_rcv_unreg_qp(registration);

	xrcd->inode = file_inode(file);
	check(device, PTR_ERR(ib_xrc_rcv_alloc_qp(xrcd, &in_init)) == -EOPNOTSUPP,
	      "mlx4: create in INIT in a shared domain is refused");
	registration = ib_xrc_rcv_alloc_qp(xrcd, &in_reset);
	check(device, !IS_ERR(registration), "mlx4: a QP is created in RESET in a shared domain");
	if (!IS_ERR(registration)) {
		qpn = ib_xrc_rcv_qpn(registration);
		check(device,
		      ib_xrc_rcv_modify_qp(xrcd, qpn, &init, INIT_MASK | IB_QP_STATE) == -EOPNOTSUPP &&
		      state(xrcd, qpn) == IB_QPS_RESET, "mlx4: RESET to INIT is refused there");
		ib_xrc_rcv_unreg_qp(registration);
	}
	xrcd->inode = NULL;

	device->ops.driver_id = driver_id;
	fput(file);
}

/* Of the attributes that RTR requires, two are 0 unless the caller passes them. */
static void create_in_rtr(struct ib_device *device, struct ib_xrcd *xrcd)
{
	const struct ib_gid_attr *gid = rdma_get_gid_attr(device, 1, rdma_protocol_roce(device, 1));
	struct ib_xrc_rcv_registration *registration;
	struct ib_xrc_rcv_init_attr init_attr = {};
	struct ib_qp_attr attr;
	union ib_gid dgid;

	check(device, !IS_ERR(gid), "the port has a GID");
	if (IS_ERR(gid))
		return;
	memset(&attr, 0xff, sizeof(attr));
	memset(&attr.ah_attr, 0, sizeof(attr.ah_attr));
	attr.ah_attr.type = rdma_ah_find_type(device, 1);
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	if (attr.ah_attr.type == RDMA_AH_ATTR_TYPE_IB)
		rdma_ah_set_dlid(&attr.ah_attr, 1);
	dgid = gid->gid;
	rdma_move_grh_sgid_attr(&attr.ah_attr, &dgid, 0, 64, 0, gid);
	attr.pkey_index = 0;
	attr.port_num = 1;
	attr.qp_access_flags = IB_ACCESS_REMOTE_WRITE;
	attr.path_mtu = IB_MTU_256;
	attr.dest_qp_num = 0x11;
	attr.rq_psn = 0;
	init_attr.attr = &attr;
	init_attr.attr_mask = INIT_MASK | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;
	registration = ib_xrc_rcv_alloc_qp(xrcd, &init_attr);
	rdma_destroy_ah_attr(&attr.ah_attr);
	check(device, !IS_ERR(registration), "a QP is created in RTR");
	if (IS_ERR(registration))
		return;
	memset(&attr, 0xff, sizeof(attr));
	/* mlx4 keeps the logarithm of max_dest_rd_atomic, and returns 1 for 0. */
	check(device, !ib_xrc_rcv_query_qp(xrcd, ib_xrc_rcv_qpn(registration), &attr) &&
		      attr.qp_state == IB_QPS_RTR && attr.max_dest_rd_atomic <= 1 && !attr.min_rnr_timer,
	      "attributes that were not passed are 0");
	ib_xrc_rcv_unreg_qp(registration);
}

/* A QP that lives as long as its domain. Returns the registration of the last. */
static struct ib_xrc_rcv_registration *use_domain(struct ib_device *device,
					       struct ib_xrcd *xrcd, struct witness *last)
{
	struct witness witness = {}, unasked = {};
	const struct ib_xrc_rcv_init_attr init_attr = {
		.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,
		.handler = handler,
		.context = &witness,
	};
	struct ib_xrc_rcv_registration *registration, *other;
	u32 qpn;

	registration = ib_xrc_rcv_alloc_qp(xrcd, &init_attr);
	check(device, !IS_ERR(registration), "a QP is created with the domain's lifetime");
	if (IS_ERR(registration))
		return registration;
	qpn = ib_xrc_rcv_qpn(registration);
	ib_xrc_rcv_unreg_qp(registration);
	check(device, state(xrcd, qpn) == IB_QPS_RESET, "QP outlives its registrations");

	registration = ib_xrc_rcv_reg_qp(xrcd, qpn, BIT_ULL(XRC_RCV_EVENT_QP_GONE), handler, &witness);
	other = ib_xrc_rcv_reg_qp(xrcd, qpn, 0, NULL, NULL);
	check(device, !IS_ERR(registration) && !IS_ERR(other), "a QP without registrations takes new ones");
	check(device, ib_xrc_rcv_destroy_qp(xrcd, qpn, 0) == -EBUSY,
	      "destroy is refused while there are registrations");
	if (!IS_ERR(other))
		ib_xrc_rcv_unreg_qp(other);
	check(device, ib_xrc_rcv_destroy_qp(xrcd, qpn, 0) == -EBUSY, "destroy is refused for the last registration");
	check(device, !ib_xrc_rcv_destroy_qp(xrcd, qpn, XRC_RCV_DESTROY_FORCE), "destroy is forced");
	check(device, is_gone(xrcd, qpn), "QP is destroyed");
	check(device, saw_gone(&witness, qpn), "handler gets QP_GONE");
	if (!IS_ERR(registration))
		ib_xrc_rcv_unreg_qp(registration);

	registration = ib_xrc_rcv_alloc_qp(xrcd, &init_attr);
	check(device, !IS_ERR(registration), "another QP is created");
	if (IS_ERR(registration))
		return registration;
	qpn = ib_xrc_rcv_qpn(registration);
	ib_xrc_rcv_unreg_qp(registration);
	registration = ib_xrc_rcv_reg_qp(xrcd, qpn,
					 BIT_ULL(IB_EVENT_QP_FATAL) | BIT_ULL(IB_EVENT_COMM_EST),
					 handler, &unasked);
	check(device, !IS_ERR(registration) &&
		      !ib_xrc_rcv_destroy_qp(xrcd, qpn, XRC_RCV_DESTROY_FORCE) &&
		      !atomic_read(&unasked.events),
	      "handler is not called for events that its mask excludes");
	if (!IS_ERR(registration))
		ib_xrc_rcv_unreg_qp(registration);

	return ib_xrc_rcv_alloc_qp(xrcd, &(const struct ib_xrc_rcv_init_attr) {
		.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,
		.handler = handler,
		.context = last,
	});
}

static int consumer_add(struct ib_device *device)
{
	struct changes changes = {
		.nb.notifier_call = count_change,
		.device = device,
	};
	struct ib_xrc_rcv_registration *registration;
	struct witness last = {};
	struct ib_xrcd *xrcd;
	u32 qpn;

	xrcd = ib_alloc_xrcd_user(device, NULL, NULL);
	if (IS_ERR(xrcd))
		return PTR_ERR(xrcd);

	failed = 0;
	ib_xrc_rcv_register_notifier(&changes.nb);
	use_registrations(device, xrcd, &changes);
	create_in_rtr(device, xrcd);
	pretend_qedr(device, xrcd);
	pretend_mlx4(device, xrcd);
	registration = use_domain(device, xrcd, &last);
	check(device, !IS_ERR(registration), "a QP is created that outlives the test");
	qpn = IS_ERR(registration) ? 0 : ib_xrc_rcv_qpn(registration);

	check(device, !ib_dealloc_xrcd_user(xrcd, NULL), "the domain is closed");
	check(device, saw_gone(&last, qpn), "the remaining QP is destroyed with the domain");
	check(device, changes.count[IB_XRC_RCV_ALLOC] == changes.count[IB_XRC_RCV_DESTROY],
	      "all QPs are destroyed");
	if (!IS_ERR(registration))
		ib_xrc_rcv_unreg_qp(registration);
	check(device, changes.count[IB_XRC_RCV_REG] ==
		      changes.count[IB_XRC_RCV_UNREG] + ENDED_WITH_QP,
	      "each registration ends by itself or with its QP");
	ib_xrc_rcv_unregister_notifier(&changes.nb);
	pr_info("%s: %u failed\n", dev_name(&device->dev), failed);
	return -ENODEV;	/* Nothing to remember of the device. */
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = consumer_add,
};

static int __init consumer_init(void)
{
	return ib_register_client(&client);
}
module_init(consumer_init);

static void __exit consumer_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(consumer_exit);

MODULE_DESCRIPTION("Tests the in-kernel API of ib_xrc_rcv");
MODULE_LICENSE("GPL");
