// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers for src/rdma/ and src/kernel_ext/: inline functions and macros of C
 * headers. A helper that is longer than a line says why it is written in C.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cgroup.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/magic.h>
#include <linux/ratelimit.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "helpers.h"

/* Private to fs/configfs/mount.c in 7.2. */
#ifndef CONFIGFS_MAGIC
#define CONFIGFS_MAGIC	0x62656570
#endif

/* For src/kernel_ext/spinlock_irq.rs. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
unsigned long ib_xrc_rcv_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void ib_xrc_rcv_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool ib_xrc_rcv_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}
#endif

int ib_xrc_rcv_mutex_lock_killable(struct mutex *mutex)
{
	return mutex_lock_killable(mutex);
}

bool ib_xrc_rcv_is_killed(void)
{
	return fatal_signal_pending(current);
}

void ib_xrc_rcv_cond_resched(void)
{
	cond_resched();
}

bool ib_xrc_rcv_has_waiters(struct wait_queue_head *queue)
{
	/* Callers have a lock with which all that wait look at their condition. */
	return waitqueue_active(queue);
}

u64 ib_xrc_rcv_in_time_namespace(u64 ns)
{
	struct timespec64 time = ns_to_timespec64(ns);

	timens_add_monotonic(&time);
	/* An event may be older than the clock of the namespace, which is negative then. */
	return max(timespec64_to_ns(&time), 0);
}

/*
 * Devices execute a limited number of commands at a time (mlx4 10 to 16, mlx5 32).
 * More workers would only wait.
 */
#define MAX_ACTIVE 16

/*
 * WQ_MEM_RECLAIM: closing the domains of a process that the OOM killer chose must
 * not depend on free memory.
 */
struct workqueue_struct *ib_xrc_rcv_alloc_workqueue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM, MAX_ACTIVE, name);
}

/* Not dev_name(): ib_device_rename() frees that string, but overwrites this one. */
void ib_xrc_rcv_ibdev_name(struct ib_device *ibdev, char name[IB_DEVICE_NAME_MAX])
{
	strscpy(name, ibdev->name, IB_DEVICE_NAME_MAX);
}

void ib_xrc_rcv_ibdev_get(struct ib_device *ibdev)
{
	get_device(&ibdev->dev);
}

void ib_xrc_rcv_ibdev_put(struct ib_device *ibdev)
{
	put_device(&ibdev->dev);
}

bool ib_xrc_rcv_ibdev_try_get(struct ib_device *ibdev)
{
	return ib_device_try_get(ibdev);
}

void *ib_xrc_rcv_client_data(struct ib_device *ibdev, struct ib_client *client)
{
	return ib_get_client_data(ibdev, client);
}

/* The lock that ib_set_client_data() takes. */
void ib_xrc_rcv_lock_client_data(struct ib_device *ibdev)
{
	xa_lock(&ibdev->client_data);
}

void ib_xrc_rcv_unlock_client_data(struct ib_device *ibdev)
{
	xa_unlock(&ibdev->client_data);
}

bool ib_xrc_rcv_port_is_valid(struct ib_device *ibdev, u32 port)
{
	return rdma_is_port_valid(ibdev, port);
}

struct creation {
	struct work_struct work;
	const struct cred *cred;
	struct ib_pd *pd;
	struct ib_qp_init_attr *init_attr;
	const char *owner;
	struct ib_qp *qp;
};

static void create_qp_work(struct work_struct *work)
{
	struct creation *c = container_of(work, struct creation, work);
	const struct cred *old = override_creds(c->cred);
	void *label = NULL;
	int ret = security_ib_alloc_security(&label);

	if (ret) {
		c->qp = ERR_PTR(ret);
	} else {
		security_ib_free_security(label);
		c->qp = ib_create_qp_kernel(c->pd, c->init_attr, c->owner);
	}
	revert_creds(old);
}

/*
 * If ib_core fails to allocate the security label of a new QP, it has the provider
 * destroy the QP. mlx4 then reads the CQ and the protection domain of an XRC target
 * QP through qp->xrcd, which ib_core sets later, and dereferences NULL.
 *
 * The allocations are small: they fail in a process that the OOM killer chose, but
 * not in a kworker, which waits for memory. So a kworker creates the QP, with the
 * credentials of the caller, from which the label is made. A label is allocated
 * before the QP is created, in case that the security module refuses it.
 */
struct ib_qp *ib_xrc_rcv_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *init_attr,
				   const char *owner)
{
	struct creation c = {
		.cred = current_cred(),
		.pd = pd,
		.init_attr = init_attr,
		.owner = owner,
	};

	if (!IS_ENABLED(CONFIG_SECURITY_INFINIBAND) ||
	    pd->device->ops.driver_id != RDMA_DRIVER_MLX4)
		return ib_create_qp_kernel(pd, init_attr, owner);

	INIT_WORK_ONSTACK(&c.work, create_qp_work);
	queue_work(system_dfl_wq, &c.work);
	flush_work(&c.work);
	destroy_work_on_stack(&c.work);
	return c.qp;
}

int ib_xrc_rcv_alloc_security_label(void **label)
{
	return security_ib_alloc_security(label);
}

void ib_xrc_rcv_free_security_label(void *label)
{
	security_ib_free_security(label);
}

/* The check of ib_core, which does not export it without hooks. */
int ib_xrc_rcv_pkey_access(void *label, struct ib_device *ibdev, u32 port, u16 index)
{
#ifdef XRC_RCV_HOOKED
	return rdma_is_port_valid(ibdev, port) ? ib_security_pkey_access(ibdev, port, index, label) : 0;
#else
	unsigned long flags;
	u64 subnet_prefix;
	u16 pkey;
	int ret;

	if (!IS_ENABLED(CONFIG_SECURITY_INFINIBAND))
		return 0;
	if (!rdma_is_port_valid(ibdev, port) || !rdma_protocol_ib(ibdev, port))
		return 0;

	ret = ib_get_cached_pkey(ibdev, port, index, &pkey);
	if (ret)
		return ret;

	read_lock_irqsave(&ibdev->cache_lock, flags);
	subnet_prefix = ibdev->port_data[port].cache.subnet_prefix;
	read_unlock_irqrestore(&ibdev->cache_lock, flags);

	return security_ib_pkey_access(label, subnet_prefix, pkey);
#endif
}

/*
 * Users have one of these each, or share it with one of 64: if all had the same, the
 * events of one user would keep those of the others out of the log.
 */
#define LOG_LIMIT_BITS 6

static struct ratelimit_state log_limits[1 << LOG_LIMIT_BITS] = {
	[0 ... (1 << LOG_LIMIT_BITS) - 1] =
		RATELIMIT_STATE_INIT(log_limits, DEFAULT_RATELIMIT_INTERVAL, DEFAULT_RATELIMIT_BURST),
};

/* Called in event context. For the name, see ib_xrc_rcv_ibdev_name(). */
void ib_xrc_rcv_log_qp_event(struct ib_device *ibdev, u32 user, u32 qpn, enum ib_event_type type)
{
	if (__ratelimit(&log_limits[hash_32(user, LOG_LIMIT_BITS)]))
		pr_notice("%s: XRC receive QP 0x%06x: %s\n", ibdev->name, qpn,
			  ib_event_msg(type));
}

/*
 * Each conversion of an address vector uses a dozen inline accessors, which depend
 * on the type of the address: one C function instead of a dozen helpers.
 */
void ib_xrc_rcv_ah_from_user(struct ib_device *ibdev, struct rdma_ah_attr *to,
			     const struct ib_uverbs_ah_attr *from)
{
	to->type = rdma_ah_find_type(ibdev, from->port_num);
	rdma_ah_set_port_num(to, from->port_num);
	rdma_ah_set_dlid(to, from->dlid);
	rdma_ah_set_path_bits(to, from->src_path_bits);
	rdma_ah_set_sl(to, from->sl);
	rdma_ah_set_static_rate(to, from->static_rate);
	rdma_ah_set_make_grd(to, false);
	if (!from->is_global) {
		rdma_ah_set_ah_flags(to, 0);
		return;
	}
	rdma_ah_set_grh(to, NULL, from->grh.flow_label, from->grh.sgid_index,
			from->grh.hop_limit, from->grh.traffic_class);
	rdma_ah_set_dgid_raw(to, (void *)from->grh.dgid);
}

/* As in ib_core. */
#define RESOLVE_TIMEOUT_MS 1000

/*
 * Not on the stack: rdma_addr_cancel() finds a request by the address of its
 * rdma_dev_addr, and requests of ib_core itself, with addresses on stacks, may be in
 * the list after their function has returned.
 */
struct resolution {
	struct rdma_dev_addr addr;
	struct completion done;
	int status;
};

static void resolved(int status, struct sockaddr *src, struct rdma_dev_addr *addr,
		     void *context)
{
	struct resolution *resolution = context;

	resolution->status = status;
	complete(&resolution->done);
}

/*
 * The route from a device to an address, with a reference that the caller must drop, as
 * addr4_resolve() and addr6_resolve() of ib_core look it up. *own is set if it leads to an
 * address of the namespace itself.
 */
static struct dst_entry *route_from(const struct net_device *ndev, const struct sockaddr *from,
				    const struct sockaddr *to, u8 *hop_limit, bool *own)
{
	if (to->sa_family == AF_INET) {
		struct flowi4 flow = {
			.daddr = ((const struct sockaddr_in *)to)->sin_addr.s_addr,
			.saddr = ((const struct sockaddr_in *)from)->sin_addr.s_addr,
			.flowi4_oif = ndev->ifindex,
		};
		struct rtable *route = ip_route_output_key(dev_net(ndev), &flow);

		if (IS_ERR(route))
			return ERR_CAST(route);
		*hop_limit = ip4_dst_hoplimit(&route->dst);
		*own = route->rt_type == RTN_LOCAL;
		return &route->dst;
	}
	if (IS_ENABLED(CONFIG_IPV6)) {
		struct flowi6 flow = {
			.daddr = ((const struct sockaddr_in6 *)to)->sin6_addr,
			.saddr = ((const struct sockaddr_in6 *)from)->sin6_addr,
			.flowi6_oif = ndev->ifindex,
		};
		struct dst_entry *dst = ip6_dst_lookup_flow(dev_net(ndev), NULL, &flow, NULL);

		if (IS_ERR(dst))
			return dst;
		*hop_limit = ip6_dst_hoplimit(dst);
		*own = dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL;
		return dst;
	}
	return ERR_PTR(-EADDRNOTAVAIL);
}

/* The MAC address of a valid neighbour, which is the gateway if the route has one. */
static int neighbour_mac(const struct dst_entry *dst, const struct sockaddr *to, u8 mac[ETH_ALEN])
{
	const void *address = to->sa_family == AF_INET ?
		(const void *)&((const struct sockaddr_in *)to)->sin_addr :
		(const void *)&((const struct sockaddr_in6 *)to)->sin6_addr;
	struct neighbour *neighbour;
	char found[MAX_ADDR_LEN];
	int ret = -ENODATA;

	neighbour = dst_neigh_lookup(dst, address);
	if (!neighbour)
		return ret;
	read_lock_bh(&neighbour->lock);
	/* Behind a gateway on IPoIB, ib_core asks a process instead. */
	if (neighbour->nud_state & NUD_VALID && neighbour->dev->addr_len == ETH_ALEN) {
		neigh_ha_snapshot(found, neighbour, neighbour->dev);
		memcpy(mac, found, ETH_ALEN);
		ret = 0;
	}
	read_unlock_bh(&neighbour->lock);
	neigh_release(neighbour);
	return ret;
}

/*
 * Another address of the namespace may be one of another device. And one whose duplicates are
 * still looked for is none for ib_core.
 */
static bool is_own_address(const struct ib_gid_attr *sgid_attr, const struct net_device *ndev,
			   const union ib_gid *gid)
{
	const struct in6_addr *address = (const struct in6_addr *)gid->raw;

	if (memcmp(&sgid_attr->gid, gid, sizeof(*gid)))
		return false;
	return ipv6_addr_v4mapped(address) ||
	       (IS_ENABLED(CONFIG_IPV6) && ipv6_chk_addr(dev_net(ndev), address, ndev, 1));
}

/*
 * Resolves the address of the GID itself, or that of a valid neighbour. rdma_resolve_ip()
 * finds these at once, too, but reports them from a workqueue, because some of its callers
 * hold locks; the wait takes more instructions than all the rest of ALLOC in the module.
 * Fails for any other address, and with each error, all of which are rdma_resolve_ip()'s.
 */
static int resolve_at_once(struct rdma_ah_attr *ah, const struct ib_gid_attr *sgid_attr,
			   const struct sockaddr *from, const struct sockaddr *to)
{
	struct ib_global_route *grh = rdma_ah_retrieve_grh(ah);
	const struct net_device *ndev;
	struct dst_entry *dst;
	int ret = -ENODATA;
	u8 hop_limit;
	bool own;

	if (from->sa_family != to->sa_family)
		return ret;

	/* The namespace and the index of an interface change only after a grace period. */
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(sgid_attr);
	if (IS_ERR(ndev))
		goto out;
	dst = route_from(ndev, from, to, &hop_limit, &own);
	if (IS_ERR(dst))
		goto out;
	if (!own) {
		ret = neighbour_mac(dst, to, ah->roce.dmac);
	} else if (is_own_address(sgid_attr, ndev, &grh->dgid)) {
		memcpy(ah->roce.dmac, ndev->dev_addr, ETH_ALEN);
		ret = 0;
	}
	if (!ret)
		grh->hop_limit = hop_limit;
	dst_release(dst);
out:
	rcu_read_unlock();
	return ret;
}

static int resolve_unicast(struct rdma_ah_attr *ah, const struct ib_gid_attr *sgid_attr)
{
	struct ib_global_route *grh = rdma_ah_retrieve_grh(ah);
	struct sockaddr_storage from = {}, to = {};
	struct resolution *resolution;
	int ret;

	if (rdma_link_local_addr((struct in6_addr *)grh->dgid.raw) &&
	    sgid_attr->gid_type == IB_GID_TYPE_ROCE) {
		rdma_get_ll_mac((struct in6_addr *)grh->dgid.raw, ah->roce.dmac);
		return 0;
	}

	rdma_gid2ip((struct sockaddr *)&from, &sgid_attr->gid);
	rdma_gid2ip((struct sockaddr *)&to, &grh->dgid);
	if (!resolve_at_once(ah, sgid_attr, (struct sockaddr *)&from, (struct sockaddr *)&to))
		return 0;

	resolution = kzalloc_obj(*resolution);
	if (!resolution)
		return -ENOMEM;
	resolution->addr.net = &init_net;
	resolution->addr.sgid_attr = sgid_attr;
	init_completion(&resolution->done);
	ret = rdma_resolve_ip((struct sockaddr *)&from, (struct sockaddr *)&to,
			      &resolution->addr, RESOLVE_TIMEOUT_MS, resolved, true,
			      resolution);
	if (ret)
		goto out;
	ret = wait_for_completion_killable(&resolution->done);
	/*
	 * Also if the request is complete: it is removed from ib_core's list only after
	 * resolved() has returned. After the call it is not in the list, and resolved()
	 * is not running.
	 */
	rdma_addr_cancel(&resolution->addr);
	if (ret) {
		ret = -EINTR;
		goto out;
	}
	ret = resolution->status;
	if (ret)
		goto out;
	memcpy(ah->roce.dmac, resolution->addr.dst_dev_addr, ETH_ALEN);
	grh->hop_limit = resolution->addr.hoplimit;
out:
	kfree(resolution);
	return ret;
}

/*
 * Resolves a RoCE address as ib_modify_qp_with_udata() does for processes, but
 * killably, and before the caller takes a lock.
 *
 * On success, ah->grh.sgid_attr is the GID table entry that the address was resolved
 * for, with a reference that the caller must drop; it stays NULL for other types.
 */
int ib_xrc_rcv_resolve_ah(struct ib_device *ibdev, struct rdma_ah_attr *ah)
{
	struct in6_addr *to = (struct in6_addr *)ah->grh.dgid.raw;
	const struct ib_gid_attr *sgid_attr;
	int ret = 0;

	if (ah->type != RDMA_AH_ATTR_TYPE_ROCE)
		return 0;
	if (!(rdma_ah_get_ah_flags(ah) & IB_AH_GRH))
		return -EINVAL;
	sgid_attr = rdma_get_gid_attr(ibdev, ah->port_num, ah->grh.sgid_index);
	if (IS_ERR(sgid_attr))
		return PTR_ERR(sgid_attr);
	if (!rdma_is_multicast_addr(to))
		ret = resolve_unicast(ah, sgid_attr);
	else if (ipv6_addr_v4mapped(to))
		ip_eth_mc_map(to->s6_addr32[3], ah->roce.dmac);
	else
		ipv6_eth_mc_map(to, ah->roce.dmac);
	if (ret)
		rdma_put_gid_attr(sgid_attr);
	else
		ah->grh.sgid_attr = sgid_attr;
	return ret;
}

void ib_xrc_rcv_ah_to_user(struct ib_uverbs_ah_attr *to, const struct rdma_ah_attr *from)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(from);

	*to = (struct ib_uverbs_ah_attr) {
		.dlid = rdma_ah_get_dlid(from),
		.sl = rdma_ah_get_sl(from),
		.src_path_bits = rdma_ah_get_path_bits(from),
		.static_rate = rdma_ah_get_static_rate(from),
		.is_global = !!(rdma_ah_get_ah_flags(from) & IB_AH_GRH),
		.port_num = rdma_ah_get_port_num(from),
	};
	if (!to->is_global)
		return;
	memcpy(to->grh.dgid, grh->dgid.raw, sizeof(to->grh.dgid));
	to->grh.flow_label = grh->flow_label;
	to->grh.sgid_index = grh->sgid_index;
	to->grh.hop_limit = grh->hop_limit;
	to->grh.traffic_class = grh->traffic_class;
}

bool ib_xrc_rcv_attr_is_valid(const struct uverbs_attr_bundle *bundle, u16 id)
{
	return uverbs_attr_is_valid(bundle, id);
}

int ib_xrc_rcv_attr_len(const struct uverbs_attr_bundle *bundle, u16 id)
{
	return uverbs_attr_get_len(bundle, id);
}

struct ib_uobject *ib_xrc_rcv_attr_uobject(const struct uverbs_attr_bundle *bundle, u16 id)
{
	return uverbs_attr_get_uobject(bundle, id);
}

int ib_xrc_rcv_copy_from_or_zero(void *to, const struct uverbs_attr_bundle *bundle,
				 u16 id, size_t size)
{
	return _uverbs_copy_from_or_zero(to, bundle, id, size);
}

#ifdef CONFIG_CGROUP_RDMA
int ib_xrc_rcv_rdmacg_try_charge(struct rdma_cgroup **cg, struct ib_device *ibdev)
{
	return rdmacg_try_charge(cg, &ibdev->cg_device, RDMACG_RESOURCE_HCA_OBJECT);
}

void ib_xrc_rcv_rdmacg_uncharge(struct rdma_cgroup *cg, struct ib_device *ibdev)
{
	rdmacg_uncharge(cg, &ibdev->cg_device, RDMACG_RESOURCE_HCA_OBJECT);
}
#else
int ib_xrc_rcv_rdmacg_try_charge(struct rdma_cgroup **cg, struct ib_device *ibdev)
{
	*cg = NULL;
	return 0;
}

void ib_xrc_rcv_rdmacg_uncharge(struct rdma_cgroup *cg, struct ib_device *ibdev)
{
}
#endif

/*
 * Every process that can open the inode of a domain shares the domain. All processes
 * can open devices, directories and the files of kernel file systems, and all file
 * descriptors of a kind may have the same anonymous inode. Of the file systems that
 * only the kernel mounts, that of memfds is the one with files of processes.
 */
int ib_xrc_rcv_inode_is_private(const struct inode *inode)
{
	const struct super_block *sb;

	if (!inode)
		return 0;
	if (!S_ISREG(inode->i_mode) || IS_ANON_FILE(inode))
		return -EPERM;

	sb = inode->i_sb;
	if ((sb->s_flags & SB_NOUSER) && sb->s_magic != TMPFS_MAGIC)
		return -EPERM;
	switch (sb->s_magic) {
	case BINFMTFS_MAGIC:
	case BPF_FS_MAGIC:
	case CGROUP_SUPER_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case CONFIGFS_MAGIC:
	case DEBUGFS_MAGIC:
	case EFIVARFS_MAGIC:
	case NSFS_MAGIC:
	case PROC_SUPER_MAGIC:
	case PSTOREFS_MAGIC:
	case RDTGROUP_SUPER_MAGIC:
	case SECURITYFS_MAGIC:
	case SELINUX_MAGIC:
	case SMACK_MAGIC:
	case SYSFS_MAGIC:
	case TRACEFS_MAGIC:
		return -EPERM;
	}
	return 0;
}

/*
 * The open file of the domain, and its mount, are not known here. So the caller's
 * permissions for the inode are checked, without the id mapping of a mount.
 */
bool ib_xrc_rcv_inode_is_callers(const struct inode *inode)
{
	return !inode || inode_owner_or_capable(&nop_mnt_idmap, inode);
}

/* Not if the file system is read-only, or the file immutable. */
bool ib_xrc_rcv_inode_is_writable(struct inode *inode)
{
	return !inode || !inode_permission(&nop_mnt_idmap, inode, MAY_WRITE);
}

void ib_xrc_rcv_task_comm(char comm[TASK_COMM_LEN])
{
	/* A name that changes meanwhile may be mixed; its last byte is always 0. */
	memcpy(comm, current->group_leader->comm, TASK_COMM_LEN);
}

/* As bpf_get_current_cgroup_id(), which is not exported: an id is not used again. */
u64 ib_xrc_rcv_cgroup_id(void)
{
	u64 id = 0;

#ifdef CONFIG_CGROUPS
	rcu_read_lock();
	id = cgroup_id(task_dfl_cgroup(current));
	rcu_read_unlock();
#endif
	return id;
}

u32 ib_xrc_rcv_effective_uid(void)
{
	return __kuid_val(current_euid());
}

u32 ib_xrc_rcv_uid_here(u32 uid)
{
	return from_kuid_munged(current_user_ns(), KUIDT_INIT(uid));
}

struct dentry *ib_xrc_rcv_debugfs_create_dir(const char *name, struct dentry *parent)
{
	return debugfs_create_dir(name, parent);
}

void ib_xrc_rcv_debugfs_create_file(const char *name, struct dentry *parent, void *data,
				    const struct file_operations *fops)
{
	debugfs_create_file(name, 0444, parent, data, fops);
}

void ib_xrc_rcv_debugfs_remove(struct dentry *dentry)
{
	debugfs_remove(dentry);
}
