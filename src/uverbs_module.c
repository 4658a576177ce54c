// SPDX-License-Identifier: GPL-2.0
/*
 * The module ib_uverbs, as seen by a module that has no symbol of it: whether it
 * is there, and whether its client sees devices before ours does.
 *
 * ib_core adds clients to a device in the order in which they registered. A
 * module that is loaded is announced, then appears in sysfs, then its
 * initialisation runs. So an ib_uverbs that is announced when our client has
 * registered is behind it, and so is one that is not in sysfs then. For one that
 * is, the answer is that it came first, because nothing tells whether its client
 * registered before ours. Announcements wait while our client registers.
 */

#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>

#include "helpers.h"

#define UVERBS "ib_uverbs"

/* What is not a module is neither announced nor in sysfs. */
#if IS_BUILTIN(CONFIG_INFINIBAND_USER_ACCESS)
#error "ib_xrc_rcv has to come before ib_uverbs: build that as a module"
#endif

static DEFINE_MUTEX(order);
static bool client_is_registered;	/* guarded by order */
static bool uverbs_is_behind;		/* stays while the client is registered */

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
 * sysfs knows every module that is being initialised or more. It keeps a module
 * from being freed while its object there is referenced.
 */
static struct kobject *uverbs_find(void)
{
	return kset_find_obj(THIS_MODULE->mkobj.kobj.kset, UVERBS);
}

/*
 * Whether the client of ib_uverbs may see a device before ours does. Called when
 * ours is registered.
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

/* Registers @client, and pays attention to ib_uverbs if that succeeds. */
int ib_xrc_rcv_register_client(struct ib_client *client)
{
	int result = register_module_notifier(&modules);

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

/* Takes a reference to ib_uverbs; NULL if it is not there. */
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
