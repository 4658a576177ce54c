/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions for the Rust part of the module: helpers for inline functions and
 * macros of C headers, and code that is written in C. Read by bindgen.
 */

#ifndef _IB_XRC_RCV_HELPERS_H
#define _IB_XRC_RCV_HELPERS_H

#include <linux/cgroup_rdma.h>
#include <linux/debugfs.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/spinlock_types.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
unsigned long ib_xrc_rcv_spin_lock_irqsave(spinlock_t *lock);
void ib_xrc_rcv_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool ib_xrc_rcv_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
#endif
int ib_xrc_rcv_mutex_lock_killable(struct mutex *mutex);
bool ib_xrc_rcv_is_killed(void);
void ib_xrc_rcv_cond_resched(void);
bool ib_xrc_rcv_has_waiters(struct wait_queue_head *queue);
u64 ib_xrc_rcv_in_time_namespace(u64 ns);

struct workqueue_struct *ib_xrc_rcv_alloc_workqueue(const char *name);

void ib_xrc_rcv_ibdev_name(struct ib_device *ibdev, char name[IB_DEVICE_NAME_MAX]);
void ib_xrc_rcv_ibdev_get(struct ib_device *ibdev);
void ib_xrc_rcv_ibdev_put(struct ib_device *ibdev);
bool ib_xrc_rcv_ibdev_try_get(struct ib_device *ibdev);
void *ib_xrc_rcv_client_data(struct ib_device *ibdev, struct ib_client *client);
void ib_xrc_rcv_lock_client_data(struct ib_device *ibdev);
void ib_xrc_rcv_unlock_client_data(struct ib_device *ibdev);
bool ib_xrc_rcv_port_is_valid(struct ib_device *ibdev, u32 port);
struct ib_qp *ib_xrc_rcv_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *init_attr,
				   const char *owner);

int ib_xrc_rcv_alloc_security_label(void **label);
void ib_xrc_rcv_free_security_label(void *label);
int ib_xrc_rcv_pkey_access(void *label, struct ib_device *ibdev, u32 port, u16 index);

void ib_xrc_rcv_log_qp_event(struct ib_device *ibdev, u32 user, u32 qpn, enum ib_event_type type);

void ib_xrc_rcv_ah_from_user(struct ib_device *ibdev, struct rdma_ah_attr *to,
			     const struct ib_uverbs_ah_attr *from);
int ib_xrc_rcv_resolve_ah(struct ib_device *ibdev, struct rdma_ah_attr *ah);
void ib_xrc_rcv_ah_to_user(struct ib_uverbs_ah_attr *to, const struct rdma_ah_attr *from);

bool ib_xrc_rcv_attr_is_valid(const struct uverbs_attr_bundle *bundle, u16 id);
int ib_xrc_rcv_attr_len(const struct uverbs_attr_bundle *bundle, u16 id);
struct ib_uobject *ib_xrc_rcv_attr_uobject(const struct uverbs_attr_bundle *bundle, u16 id);
int ib_xrc_rcv_copy_from_or_zero(void *to, const struct uverbs_attr_bundle *bundle,
				 u16 id, size_t size);

int ib_xrc_rcv_rdmacg_try_charge(struct rdma_cgroup **cg, struct ib_device *ibdev);
void ib_xrc_rcv_rdmacg_uncharge(struct rdma_cgroup *cg, struct ib_device *ibdev);

int ib_xrc_rcv_inode_is_private(const struct inode *inode);
bool ib_xrc_rcv_inode_is_callers(const struct inode *inode);
bool ib_xrc_rcv_inode_is_writable(struct inode *inode);

void ib_xrc_rcv_task_comm(char comm[TASK_COMM_LEN]);
u64 ib_xrc_rcv_cgroup_id(void);
u32 ib_xrc_rcv_effective_uid(void);
u32 ib_xrc_rcv_uid_here(u32 uid);
struct dentry *ib_xrc_rcv_debugfs_create_dir(const char *name, struct dentry *parent);
void ib_xrc_rcv_debugfs_create_file(const char *name, struct dentry *parent, void *data,
				    const struct file_operations *fops);
void ib_xrc_rcv_debugfs_remove(struct dentry *dentry);

/* src/uverbs_module.c */
struct kobject *ib_xrc_rcv_uverbs_find(void);
int ib_xrc_rcv_check_core(void);
struct module *ib_xrc_rcv_uverbs_get(void);

/* src/uverbs_order.c */
int ib_xrc_rcv_register_client(struct ib_client *client);
void ib_xrc_rcv_unregister_client(struct ib_client *client);
bool ib_xrc_rcv_uverbs_came_first(void);

#endif /* _IB_XRC_RCV_HELPERS_H */
