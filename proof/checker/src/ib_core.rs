// SPDX-License-Identifier: GPL-2.0

//! The functions of ib_core and of `src/helpers.c` that `src/rdma/` calls, on a modelled device.
//!
//! The conversions of address vectors are those of `src/helpers.c`, in C.

use crate::ib_verbs::*;
use core::{
    cell::Cell,
    ffi::{c_char, c_int, c_void},
    mem::ManuallyDrop,
    ptr::{null, without_provenance_mut},
};
use kernel::{new_mutex, prelude::*, runtime};

/// Returns an errno as C does.
fn status(result: Result) -> c_int {
    result.map_or_else(Error::to_errno, |()| 0)
}

/// Returns a pointer that C frees, or the errno as C does.
fn allocated<T>(result: Result<T>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(e) => e.to_ptr(),
    }
}

// Devices.

/// # Safety
///
/// As in the module, and for the functions below.
pub(crate) unsafe fn ib_xrc_rcv_ibdev_try_get(device: *mut ib_device) -> bool {
    // SAFETY: The device is valid.
    unsafe { provider(device) }.users(1);
    true
}

pub(crate) unsafe fn ib_device_put(device: *mut ib_device) {
    // SAFETY: The device is valid.
    unsafe { provider(device) }.users(-1);
}

pub(crate) unsafe fn __ib_alloc_pd(
    device: *mut ib_device,
    _flags: u32,
    _owner: *const c_char,
) -> *mut ib_pd {
    // SAFETY: The device is valid.
    unsafe { provider(device) }.lends(1);
    allocated(Ok(ib_pd { device }))
}

pub(crate) unsafe fn ib_dealloc_pd_user(pd: *mut ib_pd, _udata: *mut ib_udata) -> c_int {
    // SAFETY: It was allocated above, and is freed once.
    let pd = unsafe { Box::from_raw(pd) };

    // SAFETY: The device is valid as long as it has protection domains.
    unsafe { provider(pd.device) }.lends(-1);
    0
}

// Address vectors.

// They leave the provider alone.
#[cfg(not(miri))]
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub(crate) fn ib_xrc_rcv_ah_from_user(
        device: *mut ib_device,
        to: *mut rdma_ah_attr,
        from: *const ib_uverbs_ah_attr,
    );
    pub(crate) fn ib_xrc_rcv_ah_to_user(to: *mut ib_uverbs_ah_attr, from: *const rdma_ah_attr);
}

/// Miri calls no C.
#[cfg(miri)]
pub(crate) unsafe fn ib_xrc_rcv_ah_from_user(
    _device: *mut ib_device,
    to: *mut rdma_ah_attr,
    from: *const ib_uverbs_ah_attr,
) {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    unsafe { (*to).port_num = (*from).port_num.into() }
}

#[cfg(miri)]
pub(crate) unsafe fn ib_xrc_rcv_ah_to_user(to: *mut ib_uverbs_ah_attr, from: *const rdma_ah_attr) {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    unsafe { (*to).port_num = (*from).port_num as u8 }
}

pub(crate) unsafe fn ib_xrc_rcv_port_is_valid(_device: *mut ib_device, port: u32) -> bool {
    (1..=PORTS).contains(&port)
}

/// The MAC address that each RoCE address has.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

pub(crate) unsafe fn ib_xrc_rcv_resolve_ah(ibdev: *mut ib_device, ah: *mut rdma_ah_attr) -> c_int {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    let (device, ah) = unsafe { (provider(ibdev), &mut *ah) };

    runtime::might_sleep("resolving an address");
    if ah.type_ != rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE {
        return 0;
    }
    if ah.ah_flags & IB_AH_GRH == 0 {
        return EINVAL.to_errno();
    }
    if let Err(e) = device.check(Verb::Resolve) {
        return e.to_errno();
    }
    device.lends(1);
    ah.dmac = MAC;
    ah.grh.sgid_attr = allocated(Ok(ib_gid_attr { device: ibdev }));
    0
}

pub(crate) unsafe fn rdma_put_gid_attr(entry: *mut ib_gid_attr) {
    // SAFETY: It was allocated above, and is put once.
    let entry = unsafe { Box::from_raw(entry) };
    // SAFETY: The device is registered as long as there is a reference to an entry.
    let device = unsafe { provider(entry.device) };

    assert_ne!(device.users(0), 0, "the device is not registered");
    device.lends(-1);
}

// QPs.

pub(crate) unsafe fn ib_xrc_rcv_create_qp(
    pd: *mut ib_pd,
    init: *mut ib_qp_init_attr,
    _owner: *const c_char,
) -> *mut ib_qp {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    let (device, init) = unsafe { ((*pd).device, *init) };
    let qp = Box::into_raw(Box::new(ib_qp {
        device,
        pd,
        xrcd: core::ptr::null_mut(),
        qp_num: 0,
        attr: new_mutex!(ib_qp_attr::default(), "ib_qp::attr"),
    }));
    let (handler, context) = (init.event_handler, Sent((init.qp_context, qp)));

    assert_eq!(init.qp_type, ib_qp_type_IB_QPT_XRC_TGT);
    runtime::might_sleep("creating a QP");
    let report = move |_, event| {
        let Sent((context, qp)) = *context.get();
        let mut event = ib_event {
            element: ib_event__bindgen_ty_1 {
                qp: ManuallyDrop::new(qp),
            },
            event,
        };

        if let Some(handler) = handler {
            // SAFETY: The QP is not destroyed meanwhile.
            unsafe { handler(&mut event, context) }
        }
    };

    // SAFETY: The device is valid.
    match unsafe { provider(device) }.create_qp(init.xrcd.addr(), Box::new(report)) {
        Ok(qpn) => {
            // SAFETY: Only the owner of the QP uses it.
            unsafe { (*qp).qp_num = qpn };
            qp
        }
        Err(e) => {
            // SAFETY: It was allocated above.
            drop(unsafe { Box::from_raw(qp) });
            e.to_ptr()
        }
    }
}

/// Pointers that the device keeps.
struct Sent<T>(T);

impl<T> Sent<T> {
    fn get(&self) -> &Self {
        self
    }
}

// SAFETY: The thread that reports an event uses what they point to.
unsafe impl<T> Send for Sent<T> {}

// SAFETY: They do not change.
unsafe impl<T> Sync for Sent<T> {}

/// The attributes that ib_core takes of no QP that does not send.
const SENDER_ONLY: u32 = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC
    | ib_qp_attr_mask_IB_QP_RETRY_CNT
    | ib_qp_attr_mask_IB_QP_RNR_RETRY;

pub(crate) unsafe fn ib_modify_qp_with_udata(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    mask: c_int,
    udata: *mut ib_udata,
) -> c_int {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    let (qp, new, device) = unsafe { (&*qp, &*attr, provider((*qp).device)) };
    let has = |bits: u32| mask as u32 & bits == bits;
    let state = qp.attr.lock().qp_state;
    let is_roce = new.ah_attr.type_ == rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;

    // ib_core knows no such transition, nor such attributes of a QP that does not send.
    if mask as u32 & SENDER_ONLY != 0
        || state == ib_qp_state_IB_QPS_RESET
            && has(ib_qp_attr_mask_IB_QP_STATE)
            && new.qp_state == ib_qp_state_IB_QPS_RTR
    {
        return EINVAL.to_errno();
    }
    if has(ib_qp_attr_mask_IB_QP_AV) && is_roce {
        assert!(!new.ah_attr.grh.sgid_attr.is_null(), "it is not resolved");
        assert!(
            udata.is_null() || device.is_of_processes(),
            "ib_core resolves it again"
        );
    }

    let result = device.call(Verb::Modify, qp.qp_num);

    // A device that fails may have modified the QP.
    let mut attr = qp.attr.lock();

    set(&mut attr, new, mask as u32);
    status(result)
}

/// Sets the attributes of a mask.
fn set(attr: &mut ib_qp_attr, new: &ib_qp_attr, mask: u32) {
    macro_rules! set {
        ($($bit:ident: $($member:ident),*;)*) => {
            $(if mask & $bit != 0 {
                $(attr.$member = new.$member;)*
            })*
        };
    }
    set! {
        ib_qp_attr_mask_IB_QP_STATE: qp_state;
        ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ib_qp_attr_mask_IB_QP_ACCESS_FLAGS: qp_access_flags;
        ib_qp_attr_mask_IB_QP_PKEY_INDEX: pkey_index;
        ib_qp_attr_mask_IB_QP_PORT: port_num;
        ib_qp_attr_mask_IB_QP_QKEY: qkey;
        ib_qp_attr_mask_IB_QP_AV: ah_attr;
        ib_qp_attr_mask_IB_QP_PATH_MTU: path_mtu;
        ib_qp_attr_mask_IB_QP_TIMEOUT: timeout;
        ib_qp_attr_mask_IB_QP_RETRY_CNT: retry_cnt;
        ib_qp_attr_mask_IB_QP_RNR_RETRY: rnr_retry;
        ib_qp_attr_mask_IB_QP_RQ_PSN: rq_psn;
        ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        ib_qp_attr_mask_IB_QP_ALT_PATH: alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
        ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER: min_rnr_timer;
        ib_qp_attr_mask_IB_QP_SQ_PSN: sq_psn;
        ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        ib_qp_attr_mask_IB_QP_PATH_MIG_STATE: path_mig_state;
        ib_qp_attr_mask_IB_QP_DEST_QPN: dest_qp_num;
    }
    attr.ah_attr.grh.sgid_attr = null();
    attr.cur_qp_state = attr.qp_state;
}

pub(crate) unsafe fn ib_query_qp(
    qp: *mut ib_qp,
    attr: *mut ib_qp_attr,
    _mask: c_int,
    _init: *mut ib_qp_init_attr,
) -> c_int {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    let (qp, device) = unsafe { (&*qp, provider((*qp).device)) };
    let result = device.call(Verb::Query, qp.qp_num);

    if result.is_ok() {
        // SAFETY: It is valid for writes.
        unsafe { attr.write(*qp.attr.lock()) };
    }
    status(result)
}

pub(crate) unsafe fn ib_destroy_qp_user(qp: *mut ib_qp, _udata: *mut ib_udata) -> c_int {
    // SAFETY: It was created above, and is valid until it is freed here.
    unsafe {
        provider((*qp).device).destroy_qp((*qp).qp_num);
        drop(Box::from_raw(qp));
    }
    0
}

// A security label is the uid of the user that it was allocated for.

/// A label is as large as that of SELinux.
struct Label {
    uid: u32,
}

pub(crate) unsafe fn ib_xrc_rcv_alloc_security_label(label: *mut *mut c_void) -> c_int {
    let uid = runtime::user().map_or(0, |user| user.uid);

    match KBox::new(Label { uid }, GFP_KERNEL) {
        Ok(allocated) => {
            // SAFETY: It is valid for writes.
            unsafe { label.write(KBox::into_raw(allocated).cast()) };
            0
        }
        Err(e) => Error::from(e).to_errno(),
    }
}

pub(crate) unsafe fn ib_xrc_rcv_free_security_label(label: *mut c_void) {
    // SAFETY: It was allocated above, and is freed once.
    drop(unsafe { KBox::from_raw(label.cast::<Label>()) });
}

pub(crate) unsafe fn ib_xrc_rcv_pkey_access(
    label: *mut c_void,
    device: *mut ib_device,
    port: u32,
    index: u16,
) -> c_int {
    // SAFETY: The caller passes valid pointers, as to the function in C.
    let (label, device) = unsafe { (&*label.cast::<Label>(), provider(device)) };

    status(device.may_use(label.uid, port, index))
}

// The RDMA cgroup.

pub(crate) unsafe fn ib_xrc_rcv_rdmacg_try_charge(
    cgroup: *mut *mut rdma_cgroup,
    device: *mut ib_device,
) -> c_int {
    // SAFETY: The device is valid.
    let device = unsafe { provider(device) };

    status(device.check(Verb::Charge).map(|()| {
        device.charges(1);
        let of_user = runtime::user().map_or(0, |user| user.cgroup);

        // SAFETY: It is valid for writes.
        unsafe { cgroup.write(without_provenance_mut(of_user)) };
    }))
}

pub(crate) unsafe fn ib_xrc_rcv_rdmacg_uncharge(_cgroup: *mut rdma_cgroup, device: *mut ib_device) {
    // SAFETY: The device is valid.
    let device = unsafe { provider(device) };

    device.charges(-1);
}

// XRC domains.

runtime::thread_local! {
    /// Whether the calling process owns the inodes of domains, and may write to them.
    static RIGHTS: Cell<(bool, bool)> = const { Cell::new((true, true)) };
}

/// Calls a function as a process that owns inodes or not, and may write to them or not. Else it
/// does and may.
pub(crate) fn with_rights<R>(rights: (bool, bool), call: impl FnOnce() -> R) -> R {
    let before = RIGHTS.with(|now| now.replace(rights));
    let result = call();

    RIGHTS.with(|now| now.set(before));
    result
}

/// Returns these.
pub(crate) fn rights() -> (bool, bool) {
    RIGHTS.with(Cell::get)
}

pub(crate) unsafe fn ib_xrc_rcv_inode_is_private(inode: *mut c_void) -> c_int {
    // SAFETY: It is the device of an open domain, see [`crate::opened`].
    status(unsafe { provider(inode.cast()) }.check(Verb::Share))
}

pub(crate) unsafe fn ib_xrc_rcv_inode_is_callers(_inode: *mut c_void) -> bool {
    rights().0
}

pub(crate) unsafe fn ib_xrc_rcv_inode_is_writable(_inode: *mut c_void) -> bool {
    rights().1
}
