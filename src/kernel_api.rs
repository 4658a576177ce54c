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
    domain::{
        Domain,
        QpInitAttr,
        Registration, //
    },
    event::EventMask,
    kernel_ext::not_supported,
    kernel_holder::{
        Callback,
        KernelHolder, //
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
    registrations::Holder,
    uapi::{
        xrc_rcv_record,
        XRC_RCV_ALLOC_LIFETIME_DOMAIN,
        XRC_RCV_DESTROY_FORCE, //
    }, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};

/// An `ib_xrc_rcv_handler` that is not `NULL`.
type RawHandler = unsafe extern "C" fn(event: *const xrc_rcv_record, context: *mut c_void);

/// A handler with its context.
///
/// # Invariants
///
/// The handler may be called with the context, in any context of execution.
struct CHandler {
    handler: RawHandler,
    context: *mut c_void,
}

// SAFETY: By the type invariant, any thread may call the handler with the context. Nothing else is
// done with the pointers.
unsafe impl Send for CHandler {}

// SAFETY: By the type invariant, several threads may call the handler at the same time.
unsafe impl Sync for CHandler {}

impl Callback for CHandler {
    fn event(&self, record: &xrc_rcv_record) {
        // SAFETY:
        // * By the type invariant, the handler may be called with the context, in any context.
        // * `record` is valid for the length of the call, and the handler does not keep it.
        unsafe { (self.handler)(record, self.context) }
    }
}

/// Creates the holder of a registration.
///
/// # Safety
///
/// `handler` may be called with `context`, in any context of execution, until the holder is
/// dropped.
unsafe fn holder(
    handler: bindings::ib_xrc_rcv_handler,
    context: *mut c_void,
    events: u64,
) -> Result<Holder> {
    let events = match events {
        0 => EventMask::ALL,
        bits => EventMask::from_raw(bits)?,
    };
    let callback: Option<KBox<dyn Callback>> = match handler {
        // INVARIANT: By the requirements of this function.
        Some(handler) => Some(KBox::new(CHandler { handler, context }, GFP_KERNEL)?),
        None => None,
    };

    Ok(Holder::User(KernelHolder::new(callback, events)?))
}

fn device(xrcd: &Xrcd) -> Result<DataRef<AttachedDevice>> {
    AttachedDevice::of_xrcd(xrcd).ok_or_else(not_supported)
}

fn domain(xrcd: &Xrcd) -> Result<Arc<Domain>> {
    device(xrcd)?.domains().get(xrcd).ok_or(EINVAL)
}

fn qp(xrcd: &Xrcd, qpn: u32) -> Result<Arc<ReceiveQp>> {
    domain(xrcd)?.find(qpn)
}

/// Creates a receive QP and registers with it.
///
/// # Safety
///
/// The attributes that `init` points to must be valid for the length of the call, and its handler
/// must be callable with its context until the registration ends.
unsafe fn create(xrcd: &Xrcd, init: &bindings::ib_xrc_rcv_init_attr) -> Result<KBox<Registration>> {
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
    // SAFETY: By the requirements of this function, the handler may be called until the
    // registration ends, which drops the holder.
    let holder = unsafe { holder(init.handler, init.context, init.events) }?;
    let room = KBox::new_uninit(GFP_KERNEL)?;
    let domain = device.domains().get_or_new(xrcd)?;
    let qp = domain.create(xrcd, device.pd(), init_attr, Some(holder))?;
    let registration = qp.publish().ok_or(EINVAL)?;

    Ok(KBox::write(room, registration))
}

/// Passes ownership of a registration to the caller, until `ib_xrc_rcv_unreg_qp`.
fn into_pointer(
    registration: Result<KBox<Registration>>,
) -> *mut bindings::ib_xrc_rcv_registration {
    match registration {
        Ok(registration) => KBox::into_raw(registration).cast(),
        Err(e) => e.to_ptr(),
    }
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
    ib_xrc_rcv_alloc_qp,
    ib_xrc_rcv_reg_qp,
    ib_xrc_rcv_unreg_qp,
    ib_xrc_rcv_qpn,
    ib_xrc_rcv_modify_qp,
    ib_xrc_rcv_query_qp,
    ib_xrc_rcv_destroy_qp,
);

/// Creates a receive QP and registers with it.
///
/// # Safety
///
/// See the header: `xrcd` is open, and `init_attr` and the attributes that it points to are valid,
/// for the length of the call; its handler may be called until the registration ends.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_alloc_qp(
    xrcd: *mut bindings::ib_xrcd,
    init_attr: *const bindings::ib_xrc_rcv_init_attr,
) -> *mut bindings::ib_xrc_rcv_registration {
    // SAFETY:
    // * By the requirements of this function, `xrcd` is open for the length of the call.
    // * By the requirements of this function, `init_attr` and its attributes are valid for as long,
    //   and the handler may be called until the registration ends.
    into_pointer(unsafe { create(Xrcd::from_ptr(xrcd), &*init_attr) })
}

/// Registers with a receive QP.
///
/// # Safety
///
/// See the header: `xrcd` is open for the length of the call, and `handler` may be called until the
/// registration ends.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_reg_qp(
    xrcd: *mut bindings::ib_xrcd,
    qpn: u32,
    events: u64,
    handler: bindings::ib_xrc_rcv_handler,
    context: *mut c_void,
) -> *mut bindings::ib_xrc_rcv_registration {
    let register = || {
        // SAFETY: By the requirements of this function, `xrcd` is open for the length of the call.
        let domain = domain(unsafe { Xrcd::from_ptr(xrcd) })?;
        // SAFETY: By the requirements of this function, the handler may be called until the
        // registration ends, which drops the holder.
        let holder = unsafe { holder(handler, context, events) }?;

        let room = KBox::new_uninit(GFP_KERNEL)?;
        let qp = domain.find(qpn)?;
        let (registration, _) = Registration::new(domain, &qp, holder)?;

        Ok(KBox::write(room, registration))
    };

    into_pointer(register())
}

/// Ends a registration.
///
/// # Safety
///
/// `registration` comes from one of the above, and is not used again.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_unreg_qp(
    registration: *mut bindings::ib_xrc_rcv_registration,
) {
    // SAFETY: By the requirements of this function, the pointer is that of `into_pointer`, which
    // leaked the box of a `Registration`, and nothing uses it after this.
    let registration = unsafe { KBox::from_raw(registration.cast::<Registration>()) };

    let unneeded = KBox::into_inner(registration).end();

    if let Some(qp) = unneeded {
        qp.destroy();
    }
}

/// Returns the QP number of a registration.
///
/// # Safety
///
/// `registration` comes from one of the above, and does not end before this returns.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_qpn(
    registration: *const bindings::ib_xrc_rcv_registration,
) -> u32 {
    // SAFETY: By the requirements of this function, the pointer is that of `into_pointer`, and the
    // `Registration` stays for the length of the call. Nothing has a mutable reference to it.
    unsafe { &*registration.cast::<Registration>() }.qpn()
}

/// Modifies a receive QP.
///
/// # Safety
///
/// See the header: `xrcd` is open, and `attr` and the pointers in it are valid, for the length of
/// the call.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_modify_qp(
    xrcd: *mut bindings::ib_xrcd,
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
        // SAFETY: By the requirements of this function, `xrcd` is open for the length of the call.
        let xrcd = unsafe { Xrcd::from_ptr(xrcd) };

        qp(xrcd, qpn)?.modify_from_kernel(&mut attributes)?;
        Ok(0)
    })
}

/// Queries a receive QP.
///
/// # Safety
///
/// See the header: `xrcd` is open, and `attr` valid for writes, for the length of the call.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_query_qp(
    xrcd: *mut bindings::ib_xrcd,
    qpn: u32,
    attr: *mut bindings::ib_qp_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function, `xrcd` is open for the length of the call.
        let xrcd = unsafe { Xrcd::from_ptr(xrcd) };
        let attributes = qp(xrcd, qpn)?.query()?.ok_or(EINVAL)?;

        // SAFETY: By the requirements of this function, `attr` is valid for writes.
        unsafe { attributes.write_to(attr) };
        Ok(0)
    })
}

/// Destroys a receive QP.
///
/// # Safety
///
/// See the header: `xrcd` is open for the length of the call.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_destroy_qp(
    xrcd: *mut bindings::ib_xrcd,
    qpn: u32,
    flags: u32,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function, `xrcd` is open for the length of the call.
        let xrcd = unsafe { Xrcd::from_ptr(xrcd) };
        let domain = domain(xrcd)?;

        if flags & !XRC_RCV_DESTROY_FORCE != 0 {
            return Err(EINVAL);
        }

        let force = flags & XRC_RCV_DESTROY_FORCE != 0;

        domain.destroy(&domain.find(qpn)?, force)?;
        Ok(0)
    })
}
