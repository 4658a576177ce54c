// SPDX-License-Identifier: GPL-2.0
/*
 * Shows the address vector with which a QP of a RoCE device was modified last: the MAC address that
 * ib_core or ib_xrc_rcv resolved is in no query. Stands between ib_core and the driver's modify_qp.
 */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

static char *name;
module_param(name, charp, 0);
MODULE_PARM_DESC(name, "The device");

static char last[ETH_ALEN * 3 + 8];
module_param_string(last, last, sizeof(last), 0444);
MODULE_PARM_DESC(last, "MAC address and hop limit of the last modification with an address vector");

static int (*driver_modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			       struct ib_udata *udata);

static int modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	if (mask & IB_QP_AV)
		snprintf(last, sizeof(last), "%pM %u", attr->ah_attr.roce.dmac,
			 attr->ah_attr.grh.hop_limit);
	return driver_modify_qp(qp, attr, mask, udata);
}

static int last_path_add(struct ib_device *device)
{
	if (strcmp(dev_name(&device->dev), name))
		return -EOPNOTSUPP;
	driver_modify_qp = device->ops.modify_qp;
	device->ops.modify_qp = modify_qp;
	return 0;
}

static void last_path_remove(struct ib_device *device, void *client_data)
{
	device->ops.modify_qp = driver_modify_qp;
}

static struct ib_client client = {
	.name = "last_path",
	.add = last_path_add,
	.remove = last_path_remove,
};

static int __init last_path_init(void)
{
	return name ? ib_register_client(&client) : -EINVAL;
}
module_init(last_path_init);

static void __exit last_path_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(last_path_exit);

MODULE_DESCRIPTION("Shows the address vector with which a QP was modified last");
MODULE_LICENSE("GPL");
