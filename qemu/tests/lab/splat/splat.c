// SPDX-License-Identifier: GPL-2.0
/* A module that warns when it is loaded: the lab has to notice. */
#include <linux/module.h>

static int __init splat_init(void)
{
	WARN(1, "deliberate\n");
	return 0;
}
module_init(splat_init);

static void __exit splat_exit(void)
{
}
module_exit(splat_exit);

MODULE_DESCRIPTION("Warns when loaded");
MODULE_LICENSE("GPL");
