// SPDX-License-Identifier: GPL-2.0
/*
 * The floor for an event's delivery to many processes: as many calls of
 * eventfd_signal(), one after the other. A write() to /dev/eventfds passes
 * the file descriptors, an fsync() signals them.
 */
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

struct eventfds {
	size_t len;
	struct eventfd_ctx *contexts[];
};

static void eventfds_free(struct eventfds *eventfds)
{
	while (eventfds && eventfds->len)
		eventfd_ctx_put(eventfds->contexts[--eventfds->len]);
	kvfree(eventfds);
}

static ssize_t eventfds_write(struct file *file, const char __user *data, size_t size,
			      loff_t *offset)
{
	const size_t len = size / sizeof(int);
	struct eventfds *eventfds;
	int fd;

	if (file->private_data)
		return -EBUSY;
	eventfds = kvzalloc(struct_size(eventfds, contexts, len), GFP_KERNEL);
	if (!eventfds)
		return -ENOMEM;
	while (eventfds->len < len) {
		struct eventfd_ctx *context;

		if (copy_from_user(&fd, data + eventfds->len * sizeof(fd), sizeof(fd))) {
			eventfds_free(eventfds);
			return -EFAULT;
		}
		context = eventfd_ctx_fdget(fd);
		if (IS_ERR(context)) {
			eventfds_free(eventfds);
			return PTR_ERR(context);
		}
		eventfds->contexts[eventfds->len++] = context;
	}
	file->private_data = eventfds;
	return size;
}

static int eventfds_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	const struct eventfds *eventfds = file->private_data;
	size_t i;

	for (i = 0; eventfds && i < eventfds->len; i++)
		eventfd_signal(eventfds->contexts[i]);
	return 0;
}

static int eventfds_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;	/* misc_open() left the device there */
	return 0;
}

static int eventfds_release(struct inode *inode, struct file *file)
{
	eventfds_free(file->private_data);
	return 0;
}

static const struct file_operations eventfds_operations = {
	.owner = THIS_MODULE,
	.open = eventfds_open,
	.write = eventfds_write,
	.fsync = eventfds_fsync,
	.release = eventfds_release,
};

static struct miscdevice eventfds_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "eventfds",
	.fops = &eventfds_operations,
};
module_misc_device(eventfds_device);

MODULE_DESCRIPTION("Signals many eventfds");
MODULE_LICENSE("GPL");
