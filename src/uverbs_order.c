// SPDX-License-Identifier: GPL-2.0
/*
 * Whether the client of ib_uverbs registered before that of this module, which matters
 * without hooks.
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

static DEFINE_MUTEX(order);
static bool client_is_registered;	/* protected by order */
static bool uverbs_is_behind;		/* not cleared while the client is registered */

static int uverbs_announced(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *module = data;

	if (state != MODULE_STATE_COMING || strcmp(module->name, "ib_uverbs"))
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
 * Whether the client of ib_uverbs may have been added to a device before ours. Must
 * be called while ours is registered.
 */
bool ib_xrc_rcv_uverbs_came_first(void)
{
	struct kobject *uverbs;

	if (READ_ONCE(uverbs_is_behind))
		return false;
	uverbs = ib_xrc_rcv_uverbs_find();
	if (!uverbs)
		WRITE_ONCE(uverbs_is_behind, true);
	kobject_put(uverbs);
	return uverbs;
}

/* Registers the client, and the notifier that detects ib_uverbs. */
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
