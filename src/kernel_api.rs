// SPDX-License-Identifier: GPL-2.0

//! The interface to kernel users.
//!
//! Implements the functions of the C header `src/include/rdma/ib_xrc_rcv.h`, with the semantics of
//! the uverbs methods. `kernel_api.c` exports them.

use crate::{
    attributes::{
        modification,
        InitialState, //
    },
    bindings,
    device::AttachedDevice,
    domain::QpInitAttr,
    event::{
        no_totals,
        EventMask, //
    },
    kernel_ext::not_supported,
    listener::EventReader,
    member::{
        Member,
        Terms, //
    },
    qp_status::Lifetime,
    rdma::{
        attachment::{
            ClientOperations,
            DataRef, //
        },
        qp_attr::{
            KernelQpAttr,
            QpAttr,
            QpAttrMask, //
        },
        xrcd::Xrcd, //
    },
    receive_qp::ReceiveQp,
    right::Right,
    uapi::{
        xrc_rcv_record,
        xrc_rcv_reg_info,
        XRC_RCV_ALLOC_LIFETIME_DOMAIN,
        XRC_RCV_DESTROY_FORCE, //
    }, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};

/// A `struct ib_xrc_rcv_member`.
struct KernelMember {
    member: Arc<Member>,
    xrcd: *mut bindings::ib_xrcd,
}

/// An `ib_xrc_rcv_handler` that is not `NULL`.
type RawHandler = unsafe extern "C" fn(record: *const xrc_rcv_record, context: *mut c_void);

/// The handler of a member.
///
/// # Invariants
///
/// Any thread may call the handler with the context, where it may sleep.
struct CHandler {
    handler: RawHandler,
    context: *mut c_void,
    member: Arc<Member>,
}

// SAFETY: By the type invariant, any thread may call the handler with the context. Nothing else is
// done with the pointers. The member is `Send` and `Sync`.
unsafe impl Send for CHandler {}

// SAFETY: By the type invariant, any thread may call the handler with the context. A shared
// reference is used for nothing else.
unsafe impl Sync for CHandler {}

impl EventReader for CHandler {
    fn handle_next(&self) -> bool {
        let Some(record) = self.member.next_record() else {
            return false;
        };

        // SAFETY:
        // * By the type invariant, the handler may be called with the context. The caller may
        //   sleep.
        // * `record` is valid for the length of the call, and the handler does not keep it.
        unsafe { (self.handler)(&record, self.context) };
        true
    }
}

fn device(xrcd: &Xrcd) -> Result<DataRef<AttachedDevice>> {
    AttachedDevice::of_xrcd(xrcd).ok_or_else(not_supported)
}

/// Creates a member of a domain.
///
/// # Safety
///
/// `xrcd` must be open for the length of the call. `handler` may be called with `context`, where it
/// may sleep, until the member leaves.
unsafe fn join(
    xrcd: *mut bindings::ib_xrcd,
    flags: u32,
    events: u64,
    handler: bindings::ib_xrc_rcv_handler,
    context: *mut c_void,
) -> Result<KBox<KernelMember>> {
    let handler = handler.ok_or(EINVAL)?;
    let mask = match events {
        0 => EventMask::ALL,
        bits => EventMask::from_raw(bits)?,
    };
    let terms = Terms::new(flags, Right::Own, mask)?;
    // SAFETY: By the requirements of this function, `xrcd` is open for the length of the call.
    let opened = unsafe { Xrcd::from_ptr(xrcd) };
    let domain = device(opened)?.domains().get_or_new(opened)?;
    let room = KBox::new_uninit(GFP_KERNEL)?;
    let member = Member::join(domain, terms, |member| {
        // INVARIANT: By the requirements of this function. The reader of a member is dropped when
        // it leaves.
        let handler = CHandler {
            handler,
            context,
            member,
        };

        Ok(KBox::new(handler, GFP_KERNEL)?)
    })?;

    Ok(KBox::write(room, KernelMember { member, xrcd }))
}

/// Creates a receive QP and registers with it. Returns its number and its serial number.
///
/// # Safety
///
/// The domain of the member must be open, and the attributes that `init` points to be valid, for
/// the length of the call.
unsafe fn create(user: &KernelMember, init: &bindings::ib_xrc_rcv_init_attr) -> Result<(u32, u64)> {
    // SAFETY: By the requirements of this function, it is open for the length of the call.
    let xrcd = unsafe { Xrcd::from_ptr(user.xrcd) };
    let device = device(xrcd)?;
    let lifetime = match init.flags {
        0 => Lifetime::Registrations,
        XRC_RCV_ALLOC_LIFETIME_DOMAIN => Lifetime::Domain,
        _ => return Err(EINVAL),
    };
    // SAFETY: By the requirements of this function, `attr` is `NULL`, or valid for the length of
    // the call.
    let attr = unsafe { KernelQpAttr::from_ptr(init.attr) };
    let (initial_state, mut attributes) = match attr {
        Some(attr) => {
            let mask = QpAttrMask::from_bits(init.attr_mask as u32);
            // SAFETY: By the requirements of this function, the pointers in the attributes are
            // valid for the length of the call. The copy is dropped before it ends.
            let mut attributes = unsafe { attr.to_attributes(mask) };
            let initial_state = InitialState::new(mask, attr.state(mask)?)?;

            attributes.clear(initial_state.mask().without(mask));
            (initial_state, attributes)
        }
        None => (InitialState::Reset, QpAttr::new()),
    };
    let init_attr = QpInitAttr {
        lifetime,
        label: init.label,
        initial_state,
        attributes: &mut attributes,
        udata: None,
    };
    let holder = user.member.first_holder(lifetime)?;
    let qp = user
        .member
        .domain()
        .create(xrcd, device.pd(), init_attr, holder)?;
    let created = (qp.qpn(), qp.serial());

    qp.publish();
    Ok(created)
}

/// Borrows the member of a caller.
///
/// # Safety
///
/// `member` must come from `ib_xrc_rcv_join`, and not leave during `'a`.
unsafe fn user<'a>(member: *mut bindings::ib_xrc_rcv_member) -> &'a KernelMember {
    // SAFETY: By the requirements of this function, the pointer is that of `ib_xrc_rcv_join`, which
    // leaked the box of a `KernelMember`; `ib_xrc_rcv_leave` frees it after `'a`. Nothing has a
    // mutable reference to it.
    unsafe { &*member.cast() }
}

/// Looks up a QP of the domain of a member.
///
/// # Safety
///
/// As of [`user`].
unsafe fn qp(member: *mut bindings::ib_xrc_rcv_member, qpn: u32) -> Result<Arc<ReceiveQp>> {
    // SAFETY: By the requirements of this function.
    unsafe { user(member) }.member.domain().find(qpn)
}

/// Fails to compile unless functions have the types that the C header declares.
macro_rules! check_prototypes {
    ($($function:ident),* $(,)?) => {
        $(const _: () = {
            // Both branches of an `if` have the same type.
            if true {
                bindings::$function
            } else {
                $function
            };
        };)*
    };
}

check_prototypes!(
    ib_xrc_rcv_join,
    ib_xrc_rcv_leave,
    ib_xrc_rcv_alloc_qp,
    ib_xrc_rcv_reg_qp,
    ib_xrc_rcv_unreg_qp,
    ib_xrc_rcv_modify_qp,
    ib_xrc_rcv_query_qp,
    ib_xrc_rcv_destroy_qp,
);

/// Becomes a member of a domain.
///
/// # Safety
///
/// See the header: `xrcd` is open for the length of the call, and `handler` may be called until the
/// member has left.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_join(
    xrcd: *mut bindings::ib_xrcd,
    flags: u32,
    events: u64,
    handler: bindings::ib_xrc_rcv_handler,
    context: *mut c_void,
) -> *mut bindings::ib_xrc_rcv_member {
    // SAFETY: By the requirements of this function.
    match unsafe { join(xrcd, flags, events, handler, context) } {
        Ok(member) => KBox::into_raw(member).cast(),
        Err(e) => e.to_ptr(),
    }
}

/// Ends a member with its registrations.
///
/// # Safety
///
/// `member` comes from `ib_xrc_rcv_join`. No other call uses it, nor one after this has succeeded.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_leave(
    member: *mut bindings::ib_xrc_rcv_member,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function, the member does not leave meanwhile.
        unsafe { user(member) }.member.leave()?;
        // SAFETY: By the requirements of this function, the pointer is that of `ib_xrc_rcv_join`,
        // which leaked the box of a `KernelMember`, and nothing uses it after this.
        drop(unsafe { KBox::from_raw(member.cast::<KernelMember>()) });
        Ok(0)
    })
}

/// Creates a receive QP and registers with it.
///
/// # Safety
///
/// See the header: the domain of the member is open for the length of the call, as long as which
/// `init_attr` and the attributes that it points to are valid, and the others valid for writes or
/// `NULL`.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_alloc_qp(
    member: *mut bindings::ib_xrc_rcv_member,
    init_attr: *const bindings::ib_xrc_rcv_init_attr,
    qpn: *mut u32,
    serial: *mut u64,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function, the member does not leave meanwhile, the
        // domain is open, and `init_attr` and its attributes are valid, for the length of the call.
        let created = unsafe { create(user(member), &*init_attr) }?;

        // SAFETY: By the requirements of this function, the pointers are valid for writes or
        // `NULL`.
        unsafe {
            write(qpn, created.0);
            write(serial, created.1);
        }
        Ok(0)
    })
}

/// Writes an output of a call.
///
/// # Safety
///
/// `output` must be `NULL` or valid for writes.
unsafe fn write<T>(output: *mut T, value: T) {
    if !output.is_null() {
        // SAFETY: By the requirements of this function, it is valid for writes.
        unsafe { output.write(value) };
    }
}

/// Registers with a receive QP.
///
/// # Safety
///
/// See the header: the member does not leave meanwhile, and `info` is `NULL` or valid for writes.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_reg_qp(
    member: *mut bindings::ib_xrc_rcv_member,
    qpn: u32,
    info: *mut xrc_rcv_reg_info,
) -> c_int {
    from_result(|| {
        let mut registered = no_totals();

        // SAFETY: By the requirements of this function, the member does not leave meanwhile.
        let KernelMember { member, .. } = unsafe { user(member) };

        member.register(qpn, Some(&mut registered))?;
        // SAFETY: By the requirements of this function, it is `NULL` or valid for writes.
        unsafe { write(info, registered) };
        Ok(0)
    })
}

/// Ends the registrations with a receive QP.
///
/// # Safety
///
/// See the header: the member does not leave meanwhile.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_unreg_qp(
    member: *mut bindings::ib_xrc_rcv_member,
    qpn: u32,
) {
    // SAFETY: By the requirements of this function, the member does not leave meanwhile.
    unsafe { user(member) }.member.unregister(qpn);
}

/// Modifies a receive QP.
///
/// # Safety
///
/// See the header: the member does not leave meanwhile, and `attr` and the pointers in it are valid
/// for the length of the call.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_modify_qp(
    member: *mut bindings::ib_xrc_rcv_member,
    qpn: u32,
    attr: *const bindings::ib_qp_attr,
    attr_mask: c_int,
) -> c_int {
    from_result(|| {
        let mask = modification(QpAttrMask::from_bits(attr_mask as u32));
        // SAFETY: By the requirements of this function, `attr` is valid for the length of the call.
        let attr = unsafe { KernelQpAttr::from_ptr(attr) }.ok_or(EINVAL)?;
        // SAFETY: By the requirements of this function, so are the pointers in it. The copy is
        // dropped before the call ends.
        let mut attributes = unsafe { attr.to_attributes(mask) };

        // SAFETY: By the requirements of this function, the member does not leave meanwhile.
        unsafe { qp(member, qpn) }?.modify_from_kernel(&mut attributes)?;
        Ok(0)
    })
}

/// Queries a receive QP.
///
/// # Safety
///
/// See the header: the member does not leave meanwhile, and `attr` is valid for writes.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_query_qp(
    member: *mut bindings::ib_xrc_rcv_member,
    qpn: u32,
    attr: *mut bindings::ib_qp_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function, the member does not leave meanwhile.
        let attributes = unsafe { qp(member, qpn) }?.query()?.ok_or(EINVAL)?;

        // SAFETY: By the requirements of this function, `attr` is valid for writes.
        unsafe { attributes.write_to(attr) };
        Ok(0)
    })
}

/// Destroys a receive QP.
///
/// # Safety
///
/// See the header: the member does not leave meanwhile.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_destroy_qp(
    member: *mut bindings::ib_xrc_rcv_member,
    qpn: u32,
    flags: u32,
) -> c_int {
    from_result(|| {
        if flags & !XRC_RCV_DESTROY_FORCE != 0 {
            return Err(EINVAL);
        }

        // SAFETY: By the requirements of this function, the member does not leave meanwhile.
        let domain = unsafe { user(member) }.member.domain();
        let force = flags & XRC_RCV_DESTROY_FORCE != 0;

        domain.destroy(&domain.find(qpn)?, force)?;
        Ok(0)
    })
}
