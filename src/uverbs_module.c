// SPDX-License-Identifier: GPL-2.0
/*
 * The module ib_uverbs, of which this module uses no symbol. And whether those whose
 * symbols it uses are the kernel's own.
 */

#include <linux/kobject.h>
#include <linux/module.h>

#include "helpers.h"

#define UVERBS "ib_uverbs"

/*
 * Code that is built in has no entry in sysfs, by which event channels refer to
 * ib_uverbs. Without hooks, this module must be loaded before it, too.
 */
#if IS_BUILTIN(CONFIG_INFINIBAND_USER_ACCESS)
#error "ib_xrc_rcv needs ib_uverbs as a module: set CONFIG_INFINIBAND_USER_ACCESS=m"
#endif

/*
 * A module is in sysfs from before its init function runs, and is not freed while
 * its kobject is referenced.
 */
struct kobject *ib_xrc_rcv_uverbs_find(void)
{
	return kset_find_obj(THIS_MODULE->mkobj.kobj.kset, UVERBS);
}

/*
 * Whether a module was built apart from the kernel, as the ib_core of MLNX_OFED or
 * DOCA-OFED is. Its structures may be others than those that this module was compiled
 * with: the first device that such an ib_core added crashed the kernel. Where symbols
 * have versions, those tell, and this module may have been built for that ib_core.
 */
static bool is_foreign(const char *name)
{
	struct kobject *kobj;
	struct module *module;
	bool foreign;

	if (IS_ENABLED(CONFIG_MODVERSIONS))
		return false;
	kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);
	/* Code that is built in has no entry, or no module. */
	if (!kobj)
		return false;
	module = container_of(kobj, struct module_kobject, kobj)->mod;
	foreign = module && test_bit(TAINT_OOT_MODULE, &module->taints);
	kobject_put(kobj);
	if (foreign)
		pr_err("%s: not loaded: %s was built apart from the kernel\n", KBUILD_MODNAME, name);
	return foreign;
}

/* Fails if those whose symbols are used are not; ib_uverbs is replaced with them. */
int ib_xrc_rcv_check_core(void)
{
	if (is_foreign("ib_core") || is_foreign("ib_uverbs_support"))
		return -ENODEV;
	return 0;
}

/* Takes a reference to ib_uverbs. Returns NULL if it is not loaded. */
struct module *ib_xrc_rcv_uverbs_get(void)
{
	struct kobject *uverbs = ib_xrc_rcv_uverbs_find();
	struct module *module;

	if (!uverbs)
		return NULL;
	module = container_of(uverbs, struct module_kobject, kobj)->mod;
	if (!try_module_get(module))
		module = NULL;
	kobject_put(uverbs);
	return module;
}
