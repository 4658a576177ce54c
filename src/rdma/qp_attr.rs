// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs, as processes pass them and as verbs take them.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/uapi/rdma/ib_user_verbs.h`](srctree/include/uapi/rdma/ib_user_verbs.h)

mod mask;
mod state;

pub(crate) use mask::QpAttrMask;
pub(crate) use state::QpState;

use super::{
    bindings,
    device::{
        Device,
        Registered, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

/// The attributes of the interface to processes: `struct ib_uverbs_qp_attr`.
#[repr(transparent)]
pub(crate) struct UserQpAttr(bindings::ib_uverbs_qp_attr);

// SAFETY: It consists of integers, of which any bytes are a valid value.
unsafe impl FromBytes for UserQpAttr {}

// SAFETY: It consists of integers. The only padding is explicit: the members add up to the size of
// the whole, as the assertion below says.
unsafe impl AsBytes for UserQpAttr {}

const _: () = assert!(size_of::<UserQpAttr>() == 10 * 4 + 2 * 32 + 5 * 4 + 2 * 2 + 11 + 5);

impl UserQpAttr {
    /// Returns the mask. `EINVAL` if it has unknown bits.
    pub(crate) fn mask(&self) -> Result<QpAttrMask> {
        let mask = QpAttrMask::from_bits(self.0.qp_attr_mask);

        if !mask.without(QpAttrMask::STANDARD).is_empty() {
            return Err(EINVAL);
        }
        Ok(mask)
    }

    /// Returns the new state, if `mask` has one.
    pub(crate) fn state(&self, mask: QpAttrMask) -> Result<Option<QpState>> {
        if !mask.has(QpAttrMask::STATE) {
            return Ok(None);
        }
        self.0.qp_state.try_into().map(Some)
    }

    /// Converts the attributes in `mask` for verbs. `EINVAL` if a value is out of the range that
    /// the specification defines; not all providers check the ranges.
    ///
    /// A RoCE address is resolved, which takes up to a second: the caller must not hold a lock. The
    /// attributes keep a reference to the GID table entry that the address was resolved for.
    pub(crate) fn resolve(&self, device: &Device, mask: QpAttrMask) -> Result<QpAttr> {
        let user = &self.0;

        if user.reserved != [0; 5] || has_reserved(&user.ah_attr) || has_reserved(&user.alt_ah_attr)
        {
            return Err(EINVAL);
        }

        let mut attributes = QpAttr {
            device: Some(Registered::new(device)?),
            ..QpAttr::new()
        };
        let attr = &mut attributes.attr;
        let within = |value: u32, range: core::ops::RangeInclusive<u32>| {
            if range.contains(&value) {
                Ok(value)
            } else {
                Err(EINVAL)
            }
        };
        let port = |port: u8| {
            if device.has_port(port.into()) {
                Ok(u32::from(port))
            } else {
                Err(EINVAL)
            }
        };

        if mask.has(QpAttrMask::STATE) {
            attr.qp_state = QpState::try_from(user.qp_state)? as u32;
        }
        if mask.has(QpAttrMask::CUR_STATE) {
            attr.cur_qp_state = QpState::try_from(user.cur_qp_state)? as u32;
        }
        if mask.has(QpAttrMask::ACCESS_FLAGS) {
            if user.qp_access_flags & !ACCESS != 0 {
                return Err(EINVAL);
            }
            attr.qp_access_flags = user.qp_access_flags as c_int;
        }
        if mask.has(QpAttrMask::PKEY_INDEX) {
            attr.pkey_index = user.pkey_index;
        }
        if mask.has(QpAttrMask::PORT) {
            attr.port_num = port(user.port_num)?;
        }
        if mask.has(QpAttrMask::QKEY) {
            attr.qkey = user.qkey;
        }
        if mask.has(QpAttrMask::PATH_MTU) {
            attr.path_mtu = within(user.path_mtu, MTU)?;
        }
        if mask.has(QpAttrMask::TIMEOUT) {
            attr.timeout = within(user.timeout.into(), 0..=31)? as u8;
        }
        if mask.has(QpAttrMask::RETRY_CNT) {
            attr.retry_cnt = within(user.retry_cnt.into(), 0..=7)? as u8;
        }
        if mask.has(QpAttrMask::RNR_RETRY) {
            attr.rnr_retry = within(user.rnr_retry.into(), 0..=7)? as u8;
        }
        if mask.has(QpAttrMask::MAX_QP_RD_ATOMIC) {
            attr.max_rd_atomic = user.max_rd_atomic;
        }
        if mask.has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            attr.max_dest_rd_atomic = user.max_dest_rd_atomic;
        }
        if mask.has(QpAttrMask::MIN_RNR_TIMER) {
            attr.min_rnr_timer = within(user.min_rnr_timer.into(), 0..=31)? as u8;
        }
        // Packet sequence numbers have 24 bits. Programs pass random numbers of 32 bits, for each
        // of which ib_core would log a warning.
        if mask.has(QpAttrMask::RQ_PSN) {
            attr.rq_psn = user.rq_psn & BITS_24;
        }
        if mask.has(QpAttrMask::SQ_PSN) {
            attr.sq_psn = user.sq_psn & BITS_24;
        }
        if mask.has(QpAttrMask::DEST_QPN) {
            attr.dest_qp_num = within(user.dest_qp_num, 0..=BITS_24)?;
        }
        if mask.has(QpAttrMask::PATH_MIG_STATE) {
            attr.path_mig_state = within(user.path_mig_state, MIGRATION)?;
        }
        if mask.has(QpAttrMask::EN_SQD_ASYNC_NOTIFY) {
            attr.en_sqd_async_notify = user.en_sqd_async_notify;
        }
        if mask.has(QpAttrMask::AV) {
            port(user.ah_attr.port_num)?;
            // SAFETY: The device is valid as long as it is borrowed, and has the port. Both address
            // vectors are valid, and `attr.ah_attr` is zeroed: no reference to a GID entry is
            // overwritten.
            unsafe {
                bindings::ib_xrc_rcv_ah_from_user(device.as_ptr(), &mut attr.ah_attr, &user.ah_attr)
            };
        }
        if mask.has(QpAttrMask::ALT_PATH) {
            if user.alt_port_num != user.alt_ah_attr.port_num {
                return Err(EINVAL);
            }
            attr.alt_port_num = port(user.alt_port_num)?;
            attr.alt_pkey_index = user.alt_pkey_index;
            attr.alt_timeout = within(user.alt_timeout.into(), 0..=31)? as u8;
            // SAFETY: The device is valid as long as it is borrowed, and has the port, which was
            // checked as `alt_port_num`. Both address vectors are valid, and `attr.alt_ah_attr` is
            // zeroed.
            unsafe {
                bindings::ib_xrc_rcv_ah_from_user(
                    device.as_ptr(),
                    &mut attr.alt_ah_attr,
                    &user.alt_ah_attr,
                )
            };
        }
        if mask.has(QpAttrMask::AV) {
            // SAFETY:
            // * The device is valid as long as it is borrowed, and registered: a process calls a
            //   method on it.
            // * `ah_attr` is an address vector, with a port that the device has and without a GID
            //   entry.
            // * The caller may sleep, and holds no lock.
            to_result(unsafe {
                bindings::ib_xrc_rcv_resolve_ah(device.as_ptr(), &mut attr.ah_attr)
            })?;
            // SAFETY: `sgid_attr` is null, or an entry to which `ib_xrc_rcv_resolve_ah` took the
            // reference that is passed on here. It is dropped before `attributes.device`, which
            // keeps the device registered.
            attributes.source = unsafe { GidEntry::from_raw(attr.ah_attr.grh.sgid_attr) };
        }
        attributes.mask = mask;
        Ok(attributes)
    }
}

/// Whether a reserved member is not 0.
fn has_reserved(ah: &bindings::ib_uverbs_ah_attr) -> bool {
    ah.reserved != 0 || ah.grh.reserved != 0
}

const BITS_24: u32 = 0xff_ffff;
const ACCESS: u32 = bindings::ib_access_flags_IB_ACCESS_SUPPORTED;
const MTU: core::ops::RangeInclusive<u32> =
    bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096;
const MIGRATION: core::ops::RangeInclusive<u32> =
    bindings::ib_mig_state_IB_MIG_MIGRATED..=bindings::ib_mig_state_IB_MIG_ARMED;

/// The attributes of kernel users: `struct ib_qp_attr`.
#[repr(transparent)]
pub(crate) struct KernelQpAttr(bindings::ib_qp_attr);

impl KernelQpAttr {
    /// Borrows the attributes that a kernel user passes; `None` if the pointer is `NULL`.
    ///
    /// # Safety
    ///
    /// `attr` must be `NULL`, or valid and unchanged for `'a`.
    pub(crate) unsafe fn from_ptr<'a>(attr: *const bindings::ib_qp_attr) -> Option<&'a Self> {
        // SAFETY:
        // * By the requirements of this function, the pointer is `NULL`, or valid for `'a`.
        // * `KernelQpAttr` is a transparent wrapper of a `struct ib_qp_attr`.
        unsafe { attr.cast::<Self>().as_ref() }
    }

    /// Returns the new state, if `mask` has one.
    pub(crate) fn state(&self, mask: QpAttrMask) -> Result<Option<QpState>> {
        if !mask.has(QpAttrMask::STATE) {
            return Ok(None);
        }
        self.0.qp_state.try_into().map(Some)
    }

    /// Copies the attributes. The values of kernel users are not checked.
    ///
    /// # Safety
    ///
    /// Pointers in the attributes, such as `sgid_attr`, must be valid as long as the copy is used.
    pub(crate) unsafe fn to_attributes(&self, mask: QpAttrMask) -> QpAttr {
        QpAttr {
            // SAFETY: `self` is valid for reads, and C structures may be copied. By the
            // requirements of this function, the pointers are valid as long as the copy is used.
            attr: unsafe { core::ptr::read(&self.0) },
            mask,
            source: None,
            device: None,
        }
    }
}

/// A reference to an entry of the GID table of a registered device.
///
/// # Invariants
///
/// `self` owns the reference.
struct GidEntry(NonNull<bindings::ib_gid_attr>);

impl GidEntry {
    /// Takes ownership of a reference; returns `None` if the pointer is null.
    ///
    /// # Safety
    ///
    /// The caller must own a reference to `entry`, unless that is null, and give it up. The device
    /// must stay registered until this is dropped.
    unsafe fn from_raw(entry: *const bindings::ib_gid_attr) -> Option<Self> {
        // INVARIANT: By the requirements of this function, the caller owns a reference and gives it
        // up.
        NonNull::new(entry.cast_mut()).map(Self)
    }
}

impl Drop for GidEntry {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, we own a reference to the entry, which this drops. By the
        // requirements of `from_raw`, the device is still registered.
        unsafe { bindings::rdma_put_gid_attr(self.0.as_ptr()) }
    }
}

/// Attributes for verbs: `struct ib_qp_attr` with its mask.
pub(crate) struct QpAttr {
    pub(super) attr: bindings::ib_qp_attr,
    pub(super) mask: QpAttrMask,
    /// Keeps the GID table entry that `attr.ah_attr` was resolved for from being used for another
    /// address.
    source: Option<GidEntry>,
    /// The device that the attributes were resolved for. Dropped after the entry of its table.
    device: Option<Registered>,
}

impl QpAttr {
    /// Creates attributes with an empty mask.
    pub(crate) fn new() -> Self {
        Self {
            // SAFETY: Zeroes are valid for all members: integers, null pointers, and unions of
            // integers.
            attr: unsafe { core::mem::zeroed() },
            mask: QpAttrMask::NONE,
            source: None,
            device: None,
        }
    }

    /// Returns `EINVAL` if the attributes were resolved for another device.
    pub(super) fn check_are_for(&self, device: &Device) -> Result {
        match &self.device {
            Some(resolved_for) if !core::ptr::eq(&**resolved_for, device) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// Sets the new state, and limits the attributes to those of `mask`.
    pub(crate) fn towards(&mut self, state: QpState, mask: QpAttrMask) -> &mut Self {
        self.attr.qp_state = state as u32;
        self.mask = mask | QpAttrMask::STATE;
        self
    }

    /// Sets attributes that the caller did not pass to 0. Only `MAX_DEST_RD_ATOMIC` and
    /// `MIN_RNR_TIMER` are required without being passed.
    pub(crate) fn clear(&mut self, absent: QpAttrMask) {
        if absent.has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            self.attr.max_dest_rd_atomic = 0;
        }
        if absent.has(QpAttrMask::MIN_RNR_TIMER) {
            self.attr.min_rnr_timer = 0;
        }
    }

    /// Whether the attributes have a RoCE address vector.
    pub(super) fn has_roce_address(&self) -> bool {
        self.mask.has(QpAttrMask::AV)
            && self.attr.ah_attr.type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE
    }

    /// Whether the new state is INIT.
    pub(super) fn enters_init(&self) -> bool {
        self.mask.has(QpAttrMask::STATE) && self.attr.qp_state == QpState::Init as u32
    }

    /// Returns the port of the address vector.
    pub(crate) fn path_port(&self) -> u32 {
        self.attr.ah_attr.port_num
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u32 {
        self.attr.port_num
    }

    /// Sets the port.
    pub(crate) fn set_port(&mut self, port: u32) {
        self.attr.port_num = port;
        self.mask = self.mask | QpAttrMask::PORT;
    }

    /// Returns the QP number of the peer, or 0 before RTR, where some providers report the last
    /// one.
    pub(crate) fn destination(&self) -> u32 {
        match self.state() {
            Ok(QpState::Reset | QpState::Init) => 0,
            _ => self.attr.dest_qp_num,
        }
    }

    /// Returns the mask.
    pub(crate) fn mask(&self) -> QpAttrMask {
        self.mask
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> Result<QpState> {
        self.attr.qp_state.try_into()
    }

    /// Writes all attributes for a kernel user.
    ///
    /// # Safety
    ///
    /// `attr` must be valid for writes.
    pub(crate) unsafe fn write_to(self, attr: *mut bindings::ib_qp_attr) {
        // SAFETY: By the requirements of this function, `attr` is valid for writes.
        unsafe { attr.write(self.attr) }
    }

    /// Converts all attributes for a process. The capabilities are 0: XRC target QPs have no
    /// queues.
    pub(crate) fn to_user(&self) -> UserQpAttr {
        let attr = &self.attr;
        let mut user = bindings::ib_uverbs_qp_attr {
            qp_attr_mask: QpAttrMask::STANDARD.bits(),
            qp_state: attr.qp_state,
            cur_qp_state: attr.cur_qp_state,
            path_mtu: attr.path_mtu,
            path_mig_state: attr.path_mig_state,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num,
            qp_access_flags: attr.qp_access_flags as u32,
            pkey_index: attr.pkey_index,
            alt_pkey_index: attr.alt_pkey_index,
            en_sqd_async_notify: attr.en_sqd_async_notify,
            sq_draining: attr.sq_draining,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num as u8,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            alt_port_num: attr.alt_port_num as u8,
            alt_timeout: attr.alt_timeout,
            ..pin_init::zeroed()
        };

        // SAFETY: The address vectors of `user` are valid for writes, and those of `attr` for
        // reads. `type` selects the member of their union; if none is set it is 0, for IB, with a
        // union of zeroes.
        unsafe {
            bindings::ib_xrc_rcv_ah_to_user(&mut user.ah_attr, &attr.ah_attr);
            bindings::ib_xrc_rcv_ah_to_user(&mut user.alt_ah_attr, &attr.alt_ah_attr);
        }
        UserQpAttr(user)
    }
}

#[kunit_tests(ib_xrc_rcv_qp_attr)]
mod tests {
    use super::*;

    /// A device of this test only, which counts as registered.
    struct TestDevice(NonNull<bindings::ib_device>);

    impl TestDevice {
        fn new() -> Result<Self> {
            // SAFETY: The size is that of the structure. The network namespace stays.
            let device = NonNull::new(unsafe {
                bindings::_ib_alloc_device(
                    size_of::<bindings::ib_device>(),
                    &raw mut bindings::init_net,
                )
            })
            .ok_or(ENOMEM)?;

            // SAFETY: Newly allocated, so it has no other user.
            unsafe { (*device.as_ptr()).refcount.refs.counter = 1 };
            Ok(Self(device))
        }

        fn device(&self) -> &Device {
            // SAFETY: It is valid as long as `self` is.
            unsafe { Device::from_ptr(self.0.as_ptr()) }
        }

        /// Returns the number of references to its registration.
        fn users(&self) -> c_int {
            // SAFETY: It is valid, and has no other user.
            unsafe { (*self.0.as_ptr()).refcount.refs.counter - 1 }
        }
    }

    impl Drop for TestDevice {
        fn drop(&mut self) {
            // SAFETY: It was allocated in `new`, and never registered.
            unsafe {
                (*self.0.as_ptr()).refcount.refs.counter = 0;
                bindings::ib_dealloc_device(self.0.as_ptr());
            }
        }
    }

    fn resolve(device: &TestDevice) -> Result<QpAttr> {
        // SAFETY: Zeroes are valid for all members.
        let user = UserQpAttr(unsafe { core::mem::zeroed() });

        user.resolve(device.device(), QpAttrMask::STATE)
    }

    #[test]
    fn resolved_attributes_keep_the_device_registered() -> Result {
        let device = TestDevice::new()?;
        let attributes = resolve(&device)?;

        assert_eq!(device.users(), 1);
        drop(attributes);
        assert_eq!(device.users(), 0);
        Ok(())
    }

    #[test]
    fn resolved_attributes_are_for_one_device() -> Result {
        let device = TestDevice::new()?;
        let other = TestDevice::new()?;
        let attributes = resolve(&device)?;

        assert!(attributes.check_are_for(device.device()).is_ok());
        assert_eq!(attributes.check_are_for(other.device()), Err(EINVAL));
        assert!(QpAttr::new().check_are_for(other.device()).is_ok());
        Ok(())
    }
}
