// SPDX-License-Identifier: GPL-2.0
/* A module that warns or leaks memory when it is loaded: the lab has to notice. */
#include <linux/module.h>
#include <linux/slab.h>

static bool warn;
module_param(warn, bool, 0);
MODULE_PARM_DESC(warn, "Warn");

static bool leak;
module_param(leak, bool, 0);
MODULE_PARM_DESC(leak, "Lose memory");

static int __init splat_init(void)
{
	int i;

	WARN(warn, "deliberate\n");
	/* So many because SLUB's sheaves still point to the last of a size that were allocated. */
	for (i = 0; leak && i < 500; i++) {
		char *lost = kmalloc(1000, GFP_KERNEL);

		if (lost)
			memset(lost, i, 1000);
	}
	return 0;
}
module_init(splat_init);

static void __exit splat_exit(void)
{
}
module_exit(splat_exit);

MODULE_DESCRIPTION("Warns or leaks when loaded");
MODULE_LICENSE("GPL");
