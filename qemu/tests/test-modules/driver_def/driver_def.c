// SPDX-License-Identifier: GPL-2.0
/*
 * Stands for a driver with uverbs methods of its own, which neither rxe nor mlx4 has: to be loaded
 * before ib_xrc_rcv, which is to keep them and to leave the device as it found it. mlx5 has its
 * own, and with those of ib_xrc_rcv all ids that drivers may use: there this is for "taken" only.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#define UVERBS_MODULE_NAME driver_def
#include <rdma/uverbs_named_ioctl.h>

#include "driver_def.h"

static int UVERBS_HANDLER(DRIVER_DEF_METHOD)(struct uverbs_attr_bundle *attrs)
{
	u32 answer = DRIVER_DEF_ANSWER;

	return uverbs_copy_to(attrs, DRIVER_DEF_ATTR_ANSWER, &answer, sizeof(answer));
}

DECLARE_UVERBS_NAMED_METHOD(DRIVER_DEF_METHOD,
			    UVERBS_ATTR_PTR_OUT(DRIVER_DEF_ATTR_ANSWER, UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY));

DECLARE_UVERBS_GLOBAL_METHODS(DRIVER_DEF_OBJECT, &UVERBS_METHOD(DRIVER_DEF_METHOD));

static const struct uapi_definition definitions[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(DRIVER_DEF_OBJECT),
	{},
};

/* Another with the id of an object of ib_xrc_rcv, in a table that another includes. */
DECLARE_UVERBS_GLOBAL_METHODS(DRIVER_DEF_TAKEN_OBJECT, &UVERBS_METHOD(DRIVER_DEF_METHOD));

static const struct uapi_definition taken_definitions[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(DRIVER_DEF_TAKEN_OBJECT),
	{},
};

static bool taken;
module_param(taken, bool, 0);
MODULE_PARM_DESC(taken, "Use the id of an object of ib_xrc_rcv, too");

static struct ib_client client;

/* The definitions of a device while this module is loaded. */
struct brought {
	const struct uapi_definition *before;
	struct uapi_definition now[3];
};

static int driver_def_add(struct ib_device *device)
{
	struct brought *brought;

	if (device->driver_def && !taken)
		return -EBUSY;
	brought = kzalloc_obj(*brought);
	if (!brought)
		return -ENOMEM;
	brought->before = device->driver_def;
	brought->now[0] = (struct uapi_definition)UAPI_DEF_CHAIN(taken ? taken_definitions : definitions);
	if (brought->before)
		brought->now[1] = (struct uapi_definition)UAPI_DEF_CHAIN(brought->before);
	device->driver_def = brought->now;
	ib_set_client_data(device, &client, brought);
	return 0;
}

static void driver_def_remove(struct ib_device *device, void *client_data)
{
	struct brought *brought = client_data;

	WARN_ON(device->driver_def != brought->now);
	device->driver_def = brought->before;
	kfree(brought);
}

static struct ib_client client = {
	.name = "driver_def",
	.add = driver_def_add,
	.remove = driver_def_remove,
};

static int __init driver_def_init(void)
{
	return ib_register_client(&client);
}
module_init(driver_def_init);

static void __exit driver_def_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(driver_def_exit);

MODULE_DESCRIPTION("Gives every RDMA device a uverbs method, as a driver may");
MODULE_LICENSE("GPL");
