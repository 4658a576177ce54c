// SPDX-License-Identifier: GPL-2.0
/* The seeded fault that mlx4_core and mlx4_ib have: one at a time, or none. */
#include <linux/export.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

static char fault[32];
module_param_string(fault, fault, sizeof(fault), 0644);
MODULE_PARM_DESC(fault, "name of a patch in mlx4/");

bool mlx4_fault(const char *name)
{
	return sysfs_streq(fault, name);
}
EXPORT_SYMBOL_GPL(mlx4_fault);
