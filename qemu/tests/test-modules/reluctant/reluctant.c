// SPDX-License-Identifier: GPL-2.0
/*
 * A driver that deallocates XRC domains late, or not at first, and memory that an XRC target QP
 * does not get. For the devices of one driver; needs kprobes.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

static unsigned int refusals;
module_param(refusals, uint, 0644);
MODULE_PARM_DESC(refusals, "How many of the next domains the driver does not deallocate");

static unsigned int waiting;
module_param(waiting, uint, 0444);
MODULE_PARM_DESC(waiting, "How many domains the driver is deallocating");

static unsigned int allocation;
module_param(allocation, uint, 0644);
MODULE_PARM_DESC(allocation,
		 "Which allocation of the next QPs fails (0 = none, or it has failed)");

static bool held;
static DECLARE_WAIT_QUEUE_HEAD(released);

static int set_held(const char *text, const struct kernel_param *kp)
{
	int result = param_set_bool(text, kp);

	wake_up_all(&released);
	return result;
}

static const struct kernel_param_ops held_ops = { .set = set_held, .get = param_get_bool };
module_param_cb(held, &held_ops, &held, 0644);
MODULE_PARM_DESC(held, "Whether the driver waits before it deallocates a domain");

/* ---- the driver ---- */

typedef int dealloc_t(struct ib_xrcd *xrcd, struct ib_udata *udata);

static dealloc_t *drivers_own;
static DEFINE_SPINLOCK(counts);

static int dealloc_xrcd(struct ib_xrcd *xrcd, struct ib_udata *udata)
{
	bool refused;

	spin_lock(&counts);
	refused = refusals;
	refusals -= refused;
	waiting += !refused;
	spin_unlock(&counts);
	if (refused)
		return -EBUSY;

	wait_event(released, !READ_ONCE(held));
	spin_lock(&counts);
	waiting--;
	spin_unlock(&counts);
	return drivers_own(xrcd, udata);
}

static int reluctant_add(struct ib_device *device)
{
	dealloc_t *own = device->ops.dealloc_xrcd;

	if (!own || (drivers_own && drivers_own != own))
		return -EOPNOTSUPP;
	drivers_own = own;
	WRITE_ONCE(device->ops.dealloc_xrcd, dealloc_xrcd);
	return 0;
}

static void reluctant_remove(struct ib_device *device, void *data)
{
	WRITE_ONCE(device->ops.dealloc_xrcd, drivers_own);
}

static struct ib_client client = {
	.name = "reluctant",
	.add = reluctant_add,
	.remove = reluctant_remove,
};

/* ---- memory ---- */

static struct task_struct *creator;	/* in ib_create_qp_user() */

static int begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct ib_qp_init_attr *attr = (void *)regs_get_kernel_argument(regs, 2);

	if (attr->qp_type == IB_QPT_XRC_TGT)
		WRITE_ONCE(creator, current);
	return 0;
}

static int ends(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (creator == current)
		WRITE_ONCE(creator, NULL);
	return 0;
}

static struct kretprobe creation = {
	.kp.symbol_name = "ib_create_qp_user",
	.entry_handler = begins,
	.handler = ends,
};

static void *no_memory(void)
{
	return NULL;
}

static int before_allocation(struct kprobe *p, struct pt_regs *regs)
{
	if (READ_ONCE(creator) != current || !allocation || --allocation)
		return 0;
	instruction_pointer_set(regs, (unsigned long)no_memory);
	return 1;
}

/* Only a probe that has a post_handler may change the instruction pointer of a function that ftrace
 * traces.
 */
static void after(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

#define ALLOCATES(function) \
	{ .symbol_name = function, .pre_handler = before_allocation, .post_handler = after }

static struct kprobe allocations[] = {
	ALLOCATES("__kmalloc_noprof"),
	ALLOCATES("__kmalloc_cache_noprof"),
	ALLOCATES("kmem_cache_alloc_noprof"),
	ALLOCATES("kmem_cache_alloc_lru_noprof"),
};

static struct kprobe *all[] = {
	&allocations[0], &allocations[1], &allocations[2], &allocations[3],
};

static int __init reluctant_init(void)
{
	int result = register_kretprobe(&creation);

	if (result)
		return result;
	result = register_kprobes(all, ARRAY_SIZE(all));
	if (result)
		goto err_creation;
	result = ib_register_client(&client);
	if (result)
		goto err_allocations;
	return 0;

err_allocations:
	unregister_kprobes(all, ARRAY_SIZE(all));
err_creation:
	unregister_kretprobe(&creation);
	return result;
}
module_init(reluctant_init);

static void __exit reluctant_exit(void)
{
	ib_unregister_client(&client);
	unregister_kprobes(all, ARRAY_SIZE(all));
	unregister_kretprobe(&creation);
}
module_exit(reluctant_exit);

MODULE_DESCRIPTION("A driver that deallocates XRC domains late, and memory that is scarce");
MODULE_LICENSE("GPL");
