// SPDX-License-Identifier: GPL-2.0
/*
 * The module ib_uverbs, of which this module uses no symbol: whether it is loaded,
 * and whether its client registered before ours. And whether those whose symbols it
 * uses are the kernel's own.
 *
 * ib_core adds clients to a device in the order in which they registered. When a
 * module is loaded, its notifiers are called, then it appears in sysfs, then its
 * init function runs. So the client of ib_uverbs registers after ours if, once ours
 * is registered, a notifier is called for ib_uverbs, or if ib_uverbs is not in sysfs
 * then. If it is in sysfs, its client may have registered before ours, and is taken
 * to have. The notifier waits while our client registers.
 */

#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>

#include "helpers.h"

#define UVERBS "ib_uverbs"

/* Code that is built in has no notifier call, and no entry in sysfs. */
#if IS_BUILTIN(CONFIG_INFINIBAND_USER_ACCESS)
#error "ib_xrc_rcv must be loaded before ib_uverbs: build ib_uverbs as a module"
#endif

static DEFINE_MUTEX(order);
static bool client_is_registered;	/* protected by order */
static bool uverbs_is_behind;		/* not cleared while the client is registered */

static int uverbs_announced(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *module = data;

	if (state != MODULE_STATE_COMING || strcmp(module->name, UVERBS))
		return NOTIFY_DONE;
	mutex_lock(&order);
	if (client_is_registered)
		WRITE_ONCE(uverbs_is_behind, true);
	mutex_unlock(&order);
	return NOTIFY_OK;
}

static struct notifier_block modules = {
	.notifier_call = uverbs_announced,
};

/*
 * A module is in sysfs from before its init function runs, and is not freed while
 * its kobject is referenced.
 */
static struct kobject *uverbs_find(void)
{
	return kset_find_obj(THIS_MODULE->mkobj.kobj.kset, UVERBS);
}

/*
 * Whether the client of ib_uverbs may have been added to a device before ours. Must
 * be called while ours is registered.
 */
bool ib_xrc_rcv_uverbs_came_first(void)
{
	struct kobject *uverbs;

	if (READ_ONCE(uverbs_is_behind))
		return false;
	uverbs = uverbs_find();
	if (!uverbs)
		WRITE_ONCE(uverbs_is_behind, true);
	kobject_put(uverbs);
	return uverbs;
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

/* Registers the client, and the notifier that detects ib_uverbs. */
int ib_xrc_rcv_register_client(struct ib_client *client)
{
	int result;

	/* Those whose symbols are used; ib_uverbs is loaded later, and replaced with them. */
	if (is_foreign("ib_core") || is_foreign("ib_uverbs_support"))
		return -ENODEV;
	result = register_module_notifier(&modules);
	if (result)
		return result;
	mutex_lock(&order);
	result = ib_register_client(client);
	client_is_registered = !result;
	if (result)
		WRITE_ONCE(uverbs_is_behind, false);
	else
		ib_xrc_rcv_uverbs_came_first();
	mutex_unlock(&order);
	if (result)
		unregister_module_notifier(&modules);
	return result;
}

void ib_xrc_rcv_unregister_client(struct ib_client *client)
{
	ib_unregister_client(client);
	unregister_module_notifier(&modules);
}

/* Takes a reference to ib_uverbs. Returns NULL if it is not loaded. */
struct module *ib_xrc_rcv_uverbs_get(void)
{
	struct kobject *uverbs = uverbs_find();
	struct module *module;

	if (!uverbs)
		return NULL;
	module = container_of(uverbs, struct module_kobject, kobj)->mod;
	if (!try_module_get(module))
		module = NULL;
	kobject_put(uverbs);
	return module;
}
