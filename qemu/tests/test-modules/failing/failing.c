// SPDX-License-Identifier: GPL-2.0
/*
 * What drivers of the lab never do, and memory that one thread does not get. Needs kprobes.
 *
 * QPs and protection domains of ib_xrc_rcv are not destroyed as often as "qps" and "pds" say. QPs
 * are then destroyed when "qps" is written, protection domains when their device has left its
 * clients.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <rdma/ib_verbs.h>

static int tid;
module_param(tid, int, 0644);
MODULE_PARM_DESC(tid, "Thread that does not get memory (0 = none)");

static unsigned int allocation;
module_param(allocation, uint, 0644);
MODULE_PARM_DESC(allocation, "Which of its next allocations in Rust fails (0 = none, or it has failed)");

static unsigned int pds;
module_param(pds, uint, 0644);
MODULE_PARM_DESC(pds, "How many protection domains the driver does not deallocate");

enum { REFUSED = 8 };

static unsigned int qps;
static struct ib_qp *refused_qps[REFUSED];
static struct ib_pd *refused_pds[REFUSED];

/* A probed function returns this instead. */
static int refuse(void)
{
	return -EBUSY;
}

static void *no_memory(void)
{
	return NULL;
}

static int instead(struct pt_regs *regs, void *function)
{
	instruction_pointer_set(regs, (unsigned long)function);
	return 1;
}

static bool keep(void *object, void **kept)
{
	unsigned int i;

	for (i = 0; i < REFUSED; i++) {
		if (!kept[i] || kept[i] == object) {
			kept[i] = object;
			return true;
		}
	}
	return false;
}

static int before_qp(struct kprobe *p, struct pt_regs *regs)
{
	struct ib_qp *qp = (void *)regs_get_kernel_argument(regs, 0);

	if (!qps || qp->qp_type != IB_QPT_XRC_TGT || qp->uobject)
		return 0;
	/* Its protection domain stays, too. */
	if (!keep(qp, (void **)refused_qps) || !keep(qp->pd, (void **)refused_pds))
		return 0;
	qps--;
	return instead(regs, refuse);
}

static int before_pd(struct kprobe *p, struct pt_regs *regs)
{
	struct ib_pd *pd = (void *)regs_get_kernel_argument(regs, 0);

	if (!pds || strcmp(pd->res.kern_name ?: "", "ib_xrc_rcv") || !keep(pd, (void **)refused_pds))
		return 0;
	pds--;
	return instead(regs, refuse);
}

static int before_allocation(struct kprobe *p, struct pt_regs *regs)
{
	const size_t size = regs_get_kernel_argument(regs, 1);

	if (!allocation || current->pid != READ_ONCE(tid) || !size || --allocation)
		return 0;
	return instead(regs, no_memory);
}

/* Only a probe that has a post_handler may change the instruction pointer of a function that ftrace
 * traces.
 */
static void after(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe leaves;
static bool left;	/* on its second way through the probe */

static void leave(struct ib_core_device *device)
{
	unsigned int i;

	for (i = 0; i < REFUSED; i++) {
		if (refused_pds[i])
			ib_dealloc_pd(refused_pds[i]);
		refused_pds[i] = NULL;
	}
	left = true;
	((typeof(leave) *)leaves.addr)(device);
}

static int before_leaving(struct kprobe *p, struct pt_regs *regs)
{
	if (left) {
		left = false;
		return 0;
	}
	return instead(regs, leave);
}

/* The first that is called when a device has left its clients. */
static struct kprobe leaves = {
	.symbol_name = "ib_free_port_attrs",
	.pre_handler = before_leaving,
	.post_handler = after,
};

static struct kprobe probes[] = {
	{ .symbol_name = "ib_destroy_qp_user", .pre_handler = before_qp, .post_handler = after },
	{ .symbol_name = "ib_dealloc_pd_user", .pre_handler = before_pd, .post_handler = after },
	{
		.symbol_name = "krealloc_node_align_noprof",
		.pre_handler = before_allocation,
		.post_handler = after,
	},
};

static struct kprobe *all[] = { &probes[0], &probes[1], &probes[2], &leaves };

static void destroy_qps(void)
{
	unsigned int i;

	qps = 0;
	for (i = 0; i < REFUSED; i++) {
		if (refused_qps[i] && ib_destroy_qp(refused_qps[i]))
			pr_err("failing: a QP cannot be destroyed\n");
		refused_qps[i] = NULL;
	}
}

static int set_qps(const char *text, const struct kernel_param *kp)
{
	destroy_qps();
	return param_set_uint(text, kp);
}

static const struct kernel_param_ops qps_ops = { .set = set_qps, .get = param_get_uint };
module_param_cb(qps, &qps_ops, &qps, 0644);
MODULE_PARM_DESC(qps, "How many QPs the driver does not destroy");

static int __init failing_init(void)
{
	return register_kprobes(all, ARRAY_SIZE(all));
}
module_init(failing_init);

static void __exit failing_exit(void)
{
	unregister_kprobes(all, ARRAY_SIZE(all));
	destroy_qps();
}
module_exit(failing_exit);

MODULE_DESCRIPTION("Lets a driver fail to destroy, and memory be scarce");
MODULE_LICENSE("GPL");
