// SPDX-License-Identifier: GPL-2.0
/*
 * A user of receive QPs in the kernel: calls the whole API on each device
 * that ib_xrc_rcv is attached to, and logs the results.
 *
 * Every line is "DEVICE: ok - TITLE" or "DEVICE: not ok - TITLE"; the last one of a
 * device is "DEVICE: N failed".
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/shmem_fs.h>
#include <linux/workqueue.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_xrc_rcv.h>

/* QPs that end while a handler runs: more than it is called for before others are served. */
#define ENDED_IN_HANDLER 20

/*
 * Registrations of each device whose QP is destroyed under them: two of a QP, and those of the QPs
 * above, by force, and of one with the domain. Their end is not reported.
 */
#define ENDED_WITH_QP (2 + ENDED_IN_HANDLER + 1)

/* The notifications of one device. */
struct changes {
	struct notifier_block nb;
	struct ib_device *device;
	unsigned int count[IB_XRC_RCV_DESTROY + 1];
	u32 registrations;
};

/* The events of a member, of one QP, and what its handler does. */
struct witness {
	struct ib_xrc_rcv_member *member;
	atomic_t events;
	u32 qpn;
	u32 type;
	u64 serial, count;
	bool may_sleep;
	/* The handler begins to wait, and is let go. */
	struct completion *begun, *go;
	int left;
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
	witness->may_sleep = in_task() && !irqs_disabled();
	msleep(20);
	if (witness->go) {
		complete(witness->begun);
		wait_for_completion(witness->go);
		witness->left = ib_xrc_rcv_leave(witness->member);
	}
	atomic_inc_return_release(&witness->events);
}

/* A worker calls the handler, sooner or later. */
static bool saw_gone(const struct witness *witness, u32 qpn)
{
	unsigned int times;

	for (times = 0; times < 30000 && !atomic_read_acquire(&witness->events); times++)
		msleep(20);
	return atomic_read(&witness->events) == 1 && witness->qpn == qpn && witness->may_sleep &&
	       witness->type == XRC_RCV_EVENT_QP_GONE && witness->serial && witness->count == 1;
}

static struct ib_xrc_rcv_member *join(struct ib_xrcd *xrcd, u64 events, struct witness *witness)
{
	struct ib_xrc_rcv_member *member = ib_xrc_rcv_join(xrcd, 0, events, handler, witness);

	witness->member = member;
	return member;
}

static enum ib_qp_state state(struct ib_xrc_rcv_member *member, u32 qpn)
{
	struct ib_qp_attr attr = {};

	return ib_xrc_rcv_query_qp(member, qpn, &attr) ? IB_QPS_ERR : attr.qp_state;
}

static bool is_gone(struct ib_xrc_rcv_member *member, u32 qpn)
{
	struct ib_qp_attr attr;

	return ib_xrc_rcv_query_qp(member, qpn, &attr) == -EINVAL;
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
static const struct ib_xrc_rcv_init_attr of_domain = { .flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN };

static void refuse(struct ib_device *device, struct ib_xrcd *xrcd, struct ib_xrc_rcv_member *member)
{
	const struct ib_xrc_rcv_init_attr incomplete = {
		.attr = &init,
		.attr_mask = IB_QP_PORT,
	};
	const struct ib_xrc_rcv_init_attr unknown_flag = { .flags = ~0U };
	struct witness witness = {};
	u32 qpn;

	check(device, PTR_ERR(ib_xrc_rcv_join(xrcd, 0, 0, NULL, NULL)) == -EINVAL,
	      "a member without a handler is refused");
	check(device, PTR_ERR(join(xrcd, BIT_ULL(8), &witness)) == -EINVAL,
	      "unknown events are refused");
	check(device, PTR_ERR(join(xrcd, ~0ULL, &witness)) == -EINVAL, "all bits are refused");
	check(device, ib_xrc_rcv_alloc_qp(member, &incomplete, &qpn, NULL) == -EINVAL,
	      "incomplete attributes are refused");
	check(device, ib_xrc_rcv_alloc_qp(member, &unknown_flag, &qpn, NULL) == -EINVAL,
	      "unknown flags are refused");
}

/* A QP that lives as long as its registrations. */
static void use_registrations(struct ib_device *device, struct ib_xrc_rcv_member *first,
			      struct ib_xrc_rcv_member *second, struct changes *changes)
{
	const struct ib_xrc_rcv_init_attr labelled = { .label = 0xfedcba9876543210 };
	struct xrc_rcv_reg_info info = {};
	u64 serial = 0;
	u32 qpn = 0;

	check(device, !ib_xrc_rcv_alloc_qp(first, &labelled, &qpn, &serial), "a QP is created");
	check(device, state(first, qpn) == IB_QPS_RESET, "new QP is in RESET");
	check(device, changed(changes, 1, 1, 0, 0), "the notifier reports the creation");

	check(device, ib_xrc_rcv_reg_qp(second, qpn ^ 0x400000, NULL) == -EINVAL,
	      "unknown QP number is refused");
	check(device, !ib_xrc_rcv_reg_qp(second, qpn, &info) && serial && info.serial == serial,
	      "a second member registers with the QP");
	check(device, !ib_xrc_rcv_reg_qp(second, qpn, NULL) && changes->registrations == 2,
	      "the notifier reports two registrations, that of a member once");

	check(device, !ib_xrc_rcv_modify_qp(second, qpn, &init, INIT_MASK | IB_QP_STATE) &&
		      state(first, qpn) == IB_QPS_INIT, "the QP is modified to INIT");
	check(device, ib_xrc_rcv_destroy_qp(first, qpn, 0) == -EINVAL,
	      "destroy is refused for the lifetime of registrations");

	ib_xrc_rcv_unreg_qp(first, qpn);
	check(device, state(first, qpn) == IB_QPS_INIT, "QP outlives the registration of its creator");
	ib_xrc_rcv_unreg_qp(second, qpn);
	check(device, is_gone(first, qpn), "QP is destroyed with its last registration");
	ib_xrc_rcv_unreg_qp(second, qpn);
	check(device, changed(changes, 1, 2, 2, 1), "the notifier reports its end");
}

/* qedr modifies XRC target QPs for processes only; here any provider stands for it. */
static void pretend_qedr(struct ib_device *device, struct ib_xrc_rcv_member *member)
{
	const enum rdma_driver_id driver_id = device->ops.driver_id;
	u32 qpn;

	device->ops.driver_id = RDMA_DRIVER_QEDR;
	check(device, ib_xrc_rcv_alloc_qp(member, &in_init, &qpn, NULL) == -EOPNOTSUPP,
	      "qedr: create in INIT is refused");
	check(device, !ib_xrc_rcv_alloc_qp(member, &in_reset, &qpn, NULL),
	      "qedr: a QP is created in RESET");
	check(device,
	      ib_xrc_rcv_modify_qp(member, qpn, &init, INIT_MASK | IB_QP_STATE) == -EOPNOTSUPP &&
	      state(member, qpn) == IB_QPS_RESET, "qedr: modify is refused");
	ib_xrc_rcv_unreg_qp(member, qpn);
	device->ops.driver_id = driver_id;
}

/*
 * mlx4 lets a QP that the kernel takes to INIT use the reserved L_Key, which must not
 * be in a domain that processes share. Here any provider stands for it.
 */
static void pretend_mlx4(struct ib_device *device, struct ib_xrcd *xrcd,
			 struct ib_xrc_rcv_member *member)
{
	const enum rdma_driver_id driver_id = device->ops.driver_id;
	struct file *file = shmem_file_setup(KBUILD_MODNAME, 0, EMPTY_VMA_FLAGS);
	u32 qpn;

	check(device, !IS_ERR(file), "the domain has a file");
	if (IS_ERR(file))
		return;
	device->ops.driver_id = RDMA_DRIVER_MLX4;

	check(device, !ib_xrc_rcv_alloc_qp(member, &in_init, &qpn, NULL),
	      "mlx4: a QP is created in INIT in a domain of the kernel");
	ib_xrc_rcv_unreg_qp(member, qpn);

	xrcd->inode = file_inode(file);
	check(device, ib_xrc_rcv_alloc_qp(member, &in_init, &qpn, NULL) == -EOPNOTSUPP,
	      "mlx4: create in INIT in a shared domain is refused");
	check(device, !ib_xrc_rcv_alloc_qp(member, &in_reset, &qpn, NULL),
	      "mlx4: a QP is created in RESET in a shared domain");
	check(device,
	      ib_xrc_rcv_modify_qp(member, qpn, &init, INIT_MASK | IB_QP_STATE) == -EOPNOTSUPP &&
	      state(member, qpn) == IB_QPS_RESET, "mlx4: RESET to INIT is refused there");
	ib_xrc_rcv_unreg_qp(member, qpn);
	xrcd->inode = NULL;

	device->ops.driver_id = driver_id;
	fput(file);
}

/* Of the attributes that RTR requires, two are 0 unless the caller passes them. */
static void create_in_rtr(struct ib_device *device, struct ib_xrc_rcv_member *member)
{
	const struct ib_gid_attr *gid = rdma_get_gid_attr(device, 1, rdma_protocol_roce(device, 1));
	struct ib_xrc_rcv_init_attr init_attr = {};
	struct ib_qp_attr attr;
	union ib_gid dgid;
	u32 qpn;
	int ret;

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
	ret = ib_xrc_rcv_alloc_qp(member, &init_attr, &qpn, NULL);
	rdma_destroy_ah_attr(&attr.ah_attr);
	check(device, !ret, "a QP is created in RTR");
	if (ret)
		return;
	memset(&attr, 0xff, sizeof(attr));
	/* mlx4 keeps the logarithm of max_dest_rd_atomic, and returns 1 for 0. */
	check(device, !ib_xrc_rcv_query_qp(member, qpn, &attr) && attr.qp_state == IB_QPS_RTR &&
		      attr.max_dest_rd_atomic <= 1 && !attr.min_rnr_timer,
	      "attributes that were not passed are 0");
	ib_xrc_rcv_unreg_qp(member, qpn);
}

/* A QP that lives as long as its domain. */
static void use_domain(struct ib_device *device, struct ib_xrcd *xrcd,
		       struct ib_xrc_rcv_member *other)
{
	struct witness witness = {}, unasked = {};
	struct ib_xrc_rcv_member *member = join(xrcd, BIT_ULL(XRC_RCV_EVENT_QP_GONE), &witness);
	struct ib_xrc_rcv_member *masked =
		join(xrcd, BIT_ULL(IB_EVENT_QP_FATAL) | BIT_ULL(IB_EVENT_COMM_EST), &unasked);
	u32 qpn = 0;

	check(device, !IS_ERR(member) && !IS_ERR(masked), "two others join");
	if (IS_ERR(member) || IS_ERR(masked))
		return;
	check(device, !ib_xrc_rcv_alloc_qp(other, &of_domain, &qpn, NULL),
	      "a QP is created with the domain's lifetime");
	ib_xrc_rcv_unreg_qp(other, qpn);
	check(device, state(other, qpn) == IB_QPS_RESET, "QP outlives its registrations");

	check(device, !ib_xrc_rcv_reg_qp(member, qpn, NULL) && !ib_xrc_rcv_reg_qp(other, qpn, NULL) &&
		      !ib_xrc_rcv_reg_qp(masked, qpn, NULL),
	      "a QP without registrations takes new ones");
	check(device, ib_xrc_rcv_destroy_qp(other, qpn, 0) == -EBUSY,
	      "destroy is refused while there are registrations");
	ib_xrc_rcv_unreg_qp(other, qpn);
	check(device, ib_xrc_rcv_destroy_qp(other, qpn, 0) == -EBUSY,
	      "destroy is refused for others");
	check(device, !ib_xrc_rcv_destroy_qp(other, qpn, XRC_RCV_DESTROY_FORCE), "destroy is forced");
	check(device, is_gone(other, qpn), "QP is destroyed");
	check(device, saw_gone(&witness, qpn), "handler gets QP_GONE, where it may sleep");
	check(device, !ib_xrc_rcv_leave(masked) && !atomic_read(&unasked.events),
	      "handler is not called for events that its mask excludes");
	check(device, !ib_xrc_rcv_leave(member), "a member leaves");
}

struct leaving {
	struct work_struct work;
	struct ib_xrc_rcv_member *member;
	atomic_t has_left;
};

static void leave(struct work_struct *work)
{
	struct leaving *leaving = container_of(work, struct leaving, work);

	atomic_set(&leaving->has_left, ib_xrc_rcv_leave(leaving->member) ? -1 : 1);
}

/*
 * A member leaves while its handler runs, which has more records to come, and tries to leave
 * itself.
 */
static void leave_in_handler(struct ib_device *device, struct ib_xrcd *xrcd,
			     struct ib_xrc_rcv_member *other)
{
	DECLARE_COMPLETION_ONSTACK(begun);
	DECLARE_COMPLETION_ONSTACK(go);
	struct witness witness = { .begun = &begun, .go = &go };
	struct leaving leaving = { .member = join(xrcd, 0, &witness) };
	unsigned int index, failures = 0;
	u32 qpn = 0;

	check(device, !IS_ERR(leaving.member), "another joins");
	if (IS_ERR(leaving.member))
		return;
	for (index = 0; index < ENDED_IN_HANDLER; index++)
		failures += ib_xrc_rcv_alloc_qp(leaving.member, &of_domain, &qpn, NULL) ||
			    ib_xrc_rcv_destroy_qp(other, qpn, XRC_RCV_DESTROY_FORCE);
	check(device, !failures, "many QPs are created and destroyed");
	wait_for_completion(&begun);
	INIT_WORK_ONSTACK(&leaving.work, leave);
	schedule_work(&leaving.work);
	/* So that it has the time to be wrong. */
	msleep(100);
	check(device, !atomic_read(&leaving.has_left) && !atomic_read(&witness.events),
	      "to leave waits for the handler");
	complete_all(&go);
	flush_work(&leaving.work);
	destroy_work_on_stack(&leaving.work);
	check(device, atomic_read(&leaving.has_left) == 1, "the member leaves after that");
	check(device, witness.left == -EBUSY, "its own handler cannot let it leave");
	index = atomic_read(&witness.events);
	msleep(100);
	check(device, index && index == atomic_read(&witness.events),
	      "no handler runs after the member has left");
}

/* The records of one QP. */
struct life {
	atomic_t records;
	u32 types[4];
	u32 qpn;
	u64 label;
};

static void note_life(const struct xrc_rcv_record *record, void *context)
{
	unsigned int number = atomic_read(&((struct life *)context)->records);
	struct life *life = context;

	if (number < ARRAY_SIZE(life->types))
		life->types[number] = record->type;
	life->qpn = record->qp_num;
	life->label = record->label;
	atomic_inc_return_release(&life->records);
}

static bool saw(const struct life *life, int records)
{
	unsigned int times;

	for (times = 0; times < 30000 && atomic_read_acquire(&life->records) < records; times++)
		msleep(20);
	return atomic_read(&life->records) == records;
}

/* A member that is registered with all QPs, also those of others. */
static void use_all(struct ib_device *device, struct ib_xrcd *xrcd,
		    struct ib_xrc_rcv_member *other, struct changes *changes)
{
	const struct ib_xrc_rcv_init_attr labelled = { .label = 0x123456789abcdef0 };
	const u32 unknown = XRC_RCV_EVENT_CHANNEL_OBSERVE;
	int registrations = changes->count[IB_XRC_RCV_REG];
	struct ib_xrc_rcv_member *member;
	struct life life = {};
	u32 qpn = 0;

	check(device, PTR_ERR(ib_xrc_rcv_join(xrcd, unknown, 0, note_life, &life)) == -EINVAL,
	      "an observer of named QPs is refused");
	member = ib_xrc_rcv_join(xrcd, XRC_RCV_EVENT_CHANNEL_ALL, 0, note_life, &life);
	check(device, !IS_ERR(member), "a member of all QPs joins a domain");
	if (IS_ERR(member))
		return;
	check(device, !ib_xrc_rcv_alloc_qp(other, &labelled, &qpn, NULL) && saw(&life, 1) &&
		      life.types[0] == XRC_RCV_EVENT_QP_ADDED && life.qpn == qpn &&
		      life.label == labelled.label, "the member gets QP_ADDED of another's QP");
	ib_xrc_rcv_unreg_qp(other, qpn);
	ib_xrc_rcv_unreg_qp(member, qpn);
	check(device, state(other, qpn) == IB_QPS_RESET, "it keeps the QP");
	check(device, !ib_xrc_rcv_destroy_qp(other, qpn, XRC_RCV_DESTROY_FORCE) &&
		      saw(&life, 2) && life.types[1] == XRC_RCV_EVENT_QP_GONE,
	      "the member gets QP_GONE");
	registrations++;
	check(device, !ib_xrc_rcv_alloc_qp(member, &labelled, &qpn, NULL) && saw(&life, 3) &&
		      changes->count[IB_XRC_RCV_REG] == registrations,
	      "it creates a QP without a registration of its own");
	check(device, !ib_xrc_rcv_leave(member) && is_gone(other, qpn),
	      "the QP ends with the last member that keeps it");
	check(device, atomic_read(&life.records) == 3, "a member that has left gets no event");
}

static int consumer_add(struct ib_device *device)
{
	struct changes changes = {
		.nb.notifier_call = count_change,
		.device = device,
	};
	struct ib_xrc_rcv_member *first, *second;
	struct witness last = {}, unused = {};
	struct ib_xrcd *xrcd;
	u32 qpn = 0;

	xrcd = ib_alloc_xrcd_user(device, NULL, NULL);
	if (IS_ERR(xrcd))
		return PTR_ERR(xrcd);

	failed = 0;
	ib_xrc_rcv_register_notifier(&changes.nb);
	first = join(xrcd, 0, &last);
	second = join(xrcd, 0, &unused);
	check(device, !IS_ERR(first) && !IS_ERR(second), "two members join a domain");
	if (IS_ERR(first) || IS_ERR(second))
		goto out;
	refuse(device, xrcd, first);
	use_registrations(device, first, second, &changes);
	create_in_rtr(device, first);
	pretend_qedr(device, first);
	pretend_mlx4(device, xrcd, first);
	use_domain(device, xrcd, second);
	leave_in_handler(device, xrcd, second);
	use_all(device, xrcd, second, &changes);
	check(device, !atomic_read(&last.events) && !atomic_read(&unused.events),
	      "records of registrations that have ended are dropped");
	check(device, !ib_xrc_rcv_alloc_qp(first, &of_domain, &qpn, NULL),
	      "a QP is created that outlives the test");

	check(device, !ib_dealloc_xrcd_user(xrcd, NULL), "the domain is closed");
	check(device, saw_gone(&last, qpn), "the remaining QP is destroyed with the domain");
	check(device, is_gone(first, qpn) && ib_xrc_rcv_reg_qp(first, qpn, NULL) == -EINVAL,
	      "a closed domain has no QP");
	check(device, changes.count[IB_XRC_RCV_ALLOC] == changes.count[IB_XRC_RCV_DESTROY],
	      "all QPs are destroyed");
	check(device, !ib_xrc_rcv_leave(first) && !ib_xrc_rcv_leave(second), "the members leave");
	check(device, changes.count[IB_XRC_RCV_REG] ==
		      changes.count[IB_XRC_RCV_UNREG] + ENDED_WITH_QP,
	      "each registration ends by itself or with its QP");
out:
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
