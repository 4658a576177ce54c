// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user whose handlers sleep: its members, on the device "name", are registered with a
 * QP that is destroyed when it is loaded. Each handler is counted in "begun", sleeps until "go" is
 * written, and is counted in "ended".
 */

#include <linux/delay.h>
#include <linux/module.h>
#include <rdma/ib_xrc_rcv.h>

/* More than a workqueue of ib_xrc_rcv runs items at a time. */
#define MEMBERS 20

static char *name;
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "The device that it uses");

static bool go;
module_param(go, bool, 0644);
MODULE_PARM_DESC(go, "Lets the handlers go");

static atomic_t begun, ended;

static int get_count(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", atomic_read(param->arg));
}

static const struct kernel_param_ops count_ops = { .get = get_count };
module_param_cb(begun, &count_ops, &begun, 0444);
module_param_cb(ended, &count_ops, &ended, 0444);

static struct ib_device *ibdev;
static struct ib_xrcd *xrcd;
static struct ib_xrc_rcv_member *members[MEMBERS];

static void handler(const struct xrc_rcv_record *record, void *context)
{
	atomic_inc(&begun);
	while (!READ_ONCE(go))
		msleep(20);
	atomic_inc(&ended);
}

static void leave(void)
{
	unsigned int i;

	WRITE_ONCE(go, true);
	for (i = 0; i < MEMBERS; i++)
		if (!IS_ERR_OR_NULL(members[i]))
			WARN_ON(ib_xrc_rcv_leave(members[i]));
	ib_dealloc_xrcd_user(xrcd, NULL);
}

static int sleeper_add(struct ib_device *device)
{
	const struct ib_xrc_rcv_init_attr of_domain = { .flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN };
	unsigned int i;
	u32 qpn;
	int ret;

	if (strcmp(dev_name(&device->dev), name ?: ""))
		return -ENODEV;
	xrcd = ib_alloc_xrcd_user(device, NULL, NULL);
	if (IS_ERR(xrcd))
		return PTR_ERR(xrcd);
	for (i = 0; i < MEMBERS; i++) {
		members[i] = ib_xrc_rcv_join(xrcd, 0, 0, handler, NULL);
		ret = PTR_ERR_OR_ZERO(members[i]);
		if (!ret && !i)
			ret = ib_xrc_rcv_alloc_qp(members[0], &of_domain, &qpn, NULL);
		else if (!ret)
			ret = ib_xrc_rcv_reg_qp(members[i], qpn, NULL);
		if (ret)
			goto err;
	}
	ret = ib_xrc_rcv_destroy_qp(members[0], qpn, XRC_RCV_DESTROY_FORCE);
	if (ret)
		goto err;
	ibdev = device;
	return 0;

err:
	leave();
	return ret;
}

static void sleeper_remove(struct ib_device *device, void *data)
{
	if (device == ibdev)
		leave();
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = sleeper_add,
	.remove = sleeper_remove,
};

static int __init sleeper_init(void)
{
	return ib_register_client(&client);
}
module_init(sleeper_init);

static void __exit sleeper_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(sleeper_exit);

MODULE_DESCRIPTION("A kernel user of ib_xrc_rcv whose handlers sleep");
MODULE_LICENSE("GPL");
