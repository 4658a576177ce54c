// SPDX-License-Identifier: GPL-2.0
/*
 * The module ib_uverbs, as seen by a module that has no symbol of it: whether it
 * is there, and whether its client sees devices before ours does.
 *
 * ib_core adds clients to a device in the order in which they registered. A
 * module that is loaded is announced before its initialisation runs, so an
 * ib_uverbs that is announced when our client has registered is behind it. For
 * an announcement before that the answer is that ib_uverbs is first, because
 * nothing tells whether its client registers before ours. Announcements wait
 * while our client registers.
 */

#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>

#include "helpers.h"

#define UVERBS "ib_uverbs"

static DEFINE_MUTEX(order);
static bool client_is_registered;	/* guarded by order */
static bool uverbs_is_behind;		/* written under order */

static int uverbs_announced(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *module = data;

	if (state != MODULE_STATE_COMING || strcmp(module->name, UVERBS))
		return NOTIFY_DONE;
	mutex_lock(&order);
	WRITE_ONCE(uverbs_is_behind, client_is_registered);
	mutex_unlock(&order);
	return NOTIFY_OK;
}

static struct notifier_block modules = {
	.notifier_call = uverbs_announced,
};

/* Calls @register_client, and pays attention to ib_uverbs if that succeeds. */
int xrc_rcv_uverbs_watch(int (*register_client)(void *context), void *context)
{
	int result = register_module_notifier(&modules);

	if (result)
		return result;
	mutex_lock(&order);
	result = register_client(context);
	client_is_registered = !result;
	mutex_unlock(&order);
	if (result)
		unregister_module_notifier(&modules);
	return result;
}

void xrc_rcv_uverbs_unwatch(void)
{
	unregister_module_notifier(&modules);
}

/*
 * sysfs knows every module that is being initialised or more. It keeps a module
 * from being freed while its object there is referenced.
 */
static struct kobject *uverbs_find(void)
{
	return kset_find_obj(THIS_MODULE->mkobj.kobj.kset, UVERBS);
}

/* Whether the client of ib_uverbs may see a device before ours does. */
bool xrc_rcv_uverbs_came_first(void)
{
	struct kobject *uverbs;

	if (READ_ONCE(uverbs_is_behind))
		return false;
	uverbs = uverbs_find();
	kobject_put(uverbs);
	return uverbs;
}

/* Takes a reference to ib_uverbs; NULL if it is not there. */
struct module *xrc_rcv_uverbs_get(void)
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
