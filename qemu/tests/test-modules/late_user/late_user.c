// SPDX-License-Identifier: GPL-2.0
/*
 * A part of the kernel that is unloaded while its device is removed: ib_core then
 * does not wait for it before it removes the device from ib_xrc_rcv. It
 * releases its objects at the end of its module, and pauses until "go" is written.
 *
 * Every line in the log is "ok - TITLE" or "not ok - TITLE", but for "waits" and
 * "has left".
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_xrc_rcv.h>

static char *name;
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "The device that it uses");

static char *where = "closing";
module_param(where, charp, 0444);
MODULE_PARM_DESC(where, "closing: in the last close of the domain; creating: in the creation of a QP; after: before it does anything");

static bool go;
module_param(go, bool, 0644);
MODULE_PARM_DESC(go, "Ends the pause");

static const struct ib_xrc_rcv_init_attr of_domain = {
	.flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN,
};

/* Its objects on the device. */
static struct ib_device *ibdev;
static struct ib_xrcd *xrcd;
static struct ib_xrc_rcv_member *member;
static u32 held;
static int (*dealloc_xrcd)(struct ib_xrcd *xrcd, struct ib_udata *udata);
static int (*create_qp)(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
static atomic_t gone;

static bool is(const char *place)
{
	return !strcmp(where, place);
}

static void check(bool ok, const char *what)
{
	pr_info("%s - %s\n", ok ? "ok" : "not ok", what);
}

static void wait(void)
{
	pr_info("waits\n");
	while (!READ_ONCE(go))
		msleep(20);
}

static void handler(const struct xrc_rcv_record *record, void *context)
{
	if (record->type == XRC_RCV_EVENT_QP_GONE)
		atomic_inc(&gone);
}

/* A worker calls the handler, sooner or later. */
static bool are_gone(int qps)
{
	unsigned int times;

	for (times = 0; times < 30000 && atomic_read(&gone) < qps; times++)
		msleep(20);
	return atomic_read(&gone) == qps;
}

static void leave(void)
{
	check(!ib_xrc_rcv_leave(member), "the member leaves");
}

static int on_change(struct notifier_block *nb, unsigned long action, void *data)
{
	struct ib_xrc_rcv_notifier_info *info = data;

	if (action == IB_XRC_RCV_DESTROY && info->device == ibdev && is("closing"))
		wait();
	return NOTIFY_OK;
}

static struct notifier_block changes = { .notifier_call = on_change };

static int slow_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	wait();
	return create_qp(qp, attr, udata);
}

static int late_user_add(struct ib_device *device)
{
	int ret;

	if (strcmp(dev_name(&device->dev), name ?: ""))
		return -ENODEV;
	xrcd = ib_alloc_xrcd_user(device, NULL, NULL);
	if (IS_ERR(xrcd))
		return PTR_ERR(xrcd);
	member = ib_xrc_rcv_join(xrcd, 0, 0, handler, NULL);
	if (IS_ERR(member)) {
		ib_dealloc_xrcd_user(xrcd, NULL);
		return PTR_ERR(member);
	}
	ret = ib_xrc_rcv_alloc_qp(member, &of_domain, &held, NULL);
	if (ret) {
		ib_xrc_rcv_leave(member);
		ib_dealloc_xrcd_user(xrcd, NULL);
		return ret;
	}
	ibdev = device;
	dealloc_xrcd = device->ops.dealloc_xrcd;
	create_qp = device->ops.create_qp;
	return 0;
}

/* Closing the domain waits until its QPs are destroyed, by this thread or another. */
static void close_domain(void)
{
	check(!ib_dealloc_xrcd_user(xrcd, NULL), "the domain is closed");
	check(are_gone(is("creating") ? 2 : 1), "its QP is destroyed");
	leave();
}

static void create(void)
{
	u32 created;

	ibdev->ops.create_qp = slow_create_qp;
	check(!ib_xrc_rcv_alloc_qp(member, &of_domain, &created, NULL), "a QP that was being created");
	ibdev->ops.create_qp = create_qp;
	check(are_gone(2), "is destroyed like the other one");
}

/* It may have looked up the operation just before the device was removed. */
static void use_after_removal(void)
{
	struct ib_qp_attr attr;
	u32 qpn;

	wait();
	check(are_gone(1), "the QP is destroyed with the device");
	check(ib_xrc_rcv_reg_qp(member, held, NULL) == -EINVAL &&
	      ib_xrc_rcv_query_qp(member, held, &attr) == -EINVAL &&
	      ib_xrc_rcv_destroy_qp(member, held, 0) == -EINVAL, "no QP has its number");
	check(PTR_ERR(ib_xrc_rcv_join(xrcd, 0, 0, handler, NULL)) == -EOPNOTSUPP &&
	      ib_xrc_rcv_alloc_qp(member, &of_domain, &qpn, NULL) == -EOPNOTSUPP,
	      "the module is not attached any more");
	leave();
	check(dealloc_xrcd != ibdev->ops.dealloc_xrcd, "the device is as it was");
	check(!dealloc_xrcd(xrcd, NULL), "the dealloc_xrcd that ib_core was about to call closes the domain");
	kfree(xrcd);
}

static void late_user_remove(struct ib_device *device, void *data)
{
	if (device != ibdev)
		return;
	ib_xrc_rcv_register_notifier(&changes);
	if (is("creating"))
		create();
	if (is("after"))
		use_after_removal();
	else
		close_domain();
	ib_xrc_rcv_unregister_notifier(&changes);
	ibdev = NULL;
	pr_info("has left\n");
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = late_user_add,
	.remove = late_user_remove,
};

static int __init late_user_init(void)
{
	return ib_register_client(&client);
}
module_init(late_user_init);

static void __exit late_user_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(late_user_exit);

MODULE_DESCRIPTION("A part of the kernel that leaves while its device is removed");
MODULE_LICENSE("GPL");
