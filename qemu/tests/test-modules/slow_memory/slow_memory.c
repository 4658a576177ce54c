// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is charged to a memory cgroup comes slowly to one thread, as it does
 * when the cgroup is at its limit and the kernel has to reclaim: each allocation
 * from a slab sleeps where it is charged, until the user says that it may end. Or another
 * function sleeps before it begins. Needs kprobes.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>

static char *symbol = "__memcg_slab_post_alloc_hook";
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "The function that is slow: the charge, if not another");

static bool charges;

static int tid;
module_param(tid, int, 0644);
MODULE_PARM_DESC(tid, "Thread to which memory comes slowly (0 = none)");

static unsigned int patience_ms = 240000;
module_param(patience_ms, uint, 0644);
MODULE_PARM_DESC(patience_ms, "How long an allocation takes if it may not end");

static unsigned int delays;
module_param(delays, uint, 0444);
MODULE_PARM_DESC(delays, "How many slow allocations have begun");

static unsigned int ended;
module_param(ended, uint, 0644);
MODULE_PARM_DESC(ended, "How many of them may end");

static unsigned int expired;
module_param(expired, uint, 0444);
MODULE_PARM_DESC(expired, "How many ended though they might not");

/* As many arguments as registers hold, of any type. */
typedef unsigned long function(unsigned long, unsigned long, unsigned long,
			       unsigned long, unsigned long, unsigned long);

static struct kprobe probe;
static bool slept;	/* of the one thread: on its second way through the probe */

static unsigned long slow(unsigned long a, unsigned long b, unsigned long c,
			  unsigned long d, unsigned long e, unsigned long f)
{
	const unsigned long limit = jiffies + msecs_to_jiffies(patience_ms);
	const unsigned int number = READ_ONCE(delays) + 1;

	WRITE_ONCE(delays, number);
	while (READ_ONCE(ended) < number && time_before(jiffies, limit))
		msleep(20);
	if (READ_ONCE(ended) < number)
		WRITE_ONCE(expired, READ_ONCE(expired) + 1);
	slept = true;
	return ((function *)probe.addr)(a, b, c, d, e, f);
}

static int pre_handler(struct kprobe *p, struct pt_regs *regs)
{
	const gfp_t flags = regs_get_kernel_argument(regs, 2);

	if (current->pid != READ_ONCE(tid) || (charges && !gfpflags_allow_blocking(flags)))
		return 0;
	if (slept) {
		slept = false;
		return 0;
	}
	instruction_pointer_set(regs, (unsigned long)slow);
	return 1;
}

/* A function with this may change where the probed function continues. */
static void post_handler(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.pre_handler = pre_handler,
	.post_handler = post_handler,
};

static int __init slow_memory_init(void)
{
	charges = strstr(symbol, "memcg");
	probe.symbol_name = symbol;
	return register_kprobe(&probe);
}
module_init(slow_memory_init);

static void __exit slow_memory_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(slow_memory_exit);

MODULE_DESCRIPTION("Lets memory come slowly to one thread");
MODULE_LICENSE("GPL");
