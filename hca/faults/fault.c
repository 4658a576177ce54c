// SPDX-License-Identifier: GPL-2.0
/* The seeded fault that the drivers of a card have: one at a time, or none. */
#include <linux/export.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

static char fault[32];
module_param_string(fault, fault, sizeof(fault), 0644);
MODULE_PARM_DESC(fault, "name of a patch in the directory of the card, beside this file");

bool card_fault(const char *name)
{
	return sysfs_streq(fault, name);
}
EXPORT_SYMBOL_GPL(card_fault);
