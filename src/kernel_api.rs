// SPDX-License-Identifier: GPL-2.0

//! What other parts of the kernel can ask for.
//!
//! The functions of the C header `src/include/rdma/ib_xrc_rcv.h`, with the semantics of the
//! commands of processes. `kernel_api.c` exports them.

use crate::{
    attributes::{
        modification,
        InitialState, //
    },
    device::AttachedDevice,
    domain::{
        Domain,
        QpInitAttr,
        Registration, //
    },
    event::Event,
    kernel_ext::not_supported,
    rdma::{
        qp_attr::{
            KernelQpAttr,
            QpAttr,
            QpAttrMask, //
        },
        uverbs::RemoveReason,
        xrcd::Xrcd, //
    },
    receive_qp::{
        Lifetime,
        ReceiveQp, //
    },
    subscriber::{
        Callback,
        Holder,
        Sink,
        Subscriber, //
    },
    uapi::{
        xrc_rcv_event,
        XRC_RCV_ALLOC_LIFETIME_DOMAIN, //
    }, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};

/// `ib_xrc_rcv_handler`
///
/// With pointers, not references: kCFI compares the type of the call with that of the C function,
/// and encodes a reference as a type that C does not have.
type Handler = unsafe extern "C" fn(event: *const xrc_rcv_event, context: *mut c_void);

/// A handler with its context.
///
/// # Invariants
///
/// The handler may be called with the context, in any context of execution.
struct CHandler {
    handler: Handler,
    context: *mut c_void,
}

// SAFETY: By the type invariant.
unsafe impl Send for CHandler {}

// SAFETY: By the type invariant.
unsafe impl Sync for CHandler {}

impl Callback for CHandler {
    fn event(&self, event: &Event) {
        let event = xrc_rcv_event {
            cookie: 0,
            first_ns: event.time,
            qp_num: event.qpn,
            type_: event.kind.as_raw(),
            count: 1,
            reserved: 0,
        };

        // SAFETY:
        // * By the type invariant, the handler may be called with the context, in any context.
        // * `event` is valid for the length of the call, and the handler does not keep it.
        unsafe { (self.handler)(&event, self.context) }
    }
}

/// `struct ib_xrc_rcv_init_attr`
#[repr(C)]
pub(crate) struct InitAttributes<'a> {
    flags: u32,
    attr_mask: c_int,
    attr: Option<&'a KernelQpAttr>,
    handler: Option<Handler>,
    context: *mut c_void,
}

fn subscriber(handler: Option<Handler>, context: *mut c_void) -> Result<Arc<Subscriber>> {
    let sink = match handler {
        // INVARIANT: The caller gave them for this.
        Some(handler) => Sink::Callback(KBox::new(CHandler { handler, context }, GFP_KERNEL)?),
        None => Sink::Nowhere,
    };

    Subscriber::new(Holder::Kernel, sink)
}

fn device(xrcd: &Xrcd) -> Result<Pin<&AttachedDevice>> {
    xrcd.client_data::<AttachedDevice>()
        .ok_or_else(not_supported)
}

fn domain(xrcd: &Xrcd) -> Result<Arc<Domain>> {
    device(xrcd)?.domains().get(xrcd).ok_or(EINVAL)
}

fn qp(xrcd: &Xrcd, qpn: u32) -> Result<Arc<ReceiveQp>> {
    domain(xrcd)?.find(qpn)
}

fn create(xrcd: &Xrcd, init: &InitAttributes<'_>) -> Result<KBox<Registration>> {
    let device = device(xrcd)?;
    let lifetime = match init.flags {
        0 => Lifetime::Registrations,
        XRC_RCV_ALLOC_LIFETIME_DOMAIN => Lifetime::Domain,
        _ => return Err(EINVAL),
    };
    let (initial_state, attributes) = match init.attr {
        Some(attr) => {
            let mask = QpAttrMask::from_bits(init.attr_mask as u32);
            // SAFETY: The caller of the API keeps what they point to for the length of the call, which
            // they are used in.
            let attributes = unsafe { attr.to_attributes(mask) };

            (InitialState::new(mask, attr.state(mask)?)?, attributes)
        }
        None => (InitialState::Reset, QpAttr::new()),
    };
    let init_attr = QpInitAttr {
        lifetime,
        initial_state,
        attributes,
        udata: None,
    };
    let subscriber = subscriber(init.handler, init.context)?;

    Ok(device
        .domains()
        .get_or_new(xrcd)?
        .create(xrcd, device.pd(), init_attr, subscriber, None)?
        .publish())
}

fn into_pointer(registration: Result<KBox<Registration>>) -> *mut Registration {
    match registration {
        Ok(registration) => KBox::into_raw(registration),
        Err(e) => e.to_ptr(),
    }
}

/// # Safety
///
/// See the header: the domain is kept open, and the handler may be called as it says.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_alloc_qp(
    xrcd: &Xrcd,
    init: &InitAttributes<'_>,
) -> *mut Registration {
    into_pointer(create(xrcd, init))
}

/// # Safety
///
/// See the header: the domain is kept open, and the handler may be called as it says.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_reg_qp(
    xrcd: &Xrcd,
    qpn: u32,
    handler: Option<Handler>,
    context: *mut c_void,
) -> *mut Registration {
    let register = || {
        let domain = domain(xrcd)?;

        domain.register(&domain.find(qpn)?, subscriber(handler, context)?, None)
    };

    into_pointer(register())
}

/// # Safety
///
/// `registration` comes from one of the above, and is not used again.
#[no_mangle]
pub(crate) unsafe extern "C" fn ib_xrc_rcv_unreg_qp(registration: *mut Registration) {
    // SAFETY: The caller's promise.
    unsafe { KBox::from_raw(registration) }.leave(RemoveReason::Destroyed);
}

#[no_mangle]
pub(crate) extern "C" fn ib_xrc_rcv_qpn(registration: &Registration) -> u32 {
    registration.qpn()
}

#[no_mangle]
pub(crate) extern "C" fn ib_xrc_rcv_modify_qp(
    xrcd: &Xrcd,
    qpn: u32,
    attr: &KernelQpAttr,
    attr_mask: c_int,
) -> c_int {
    let mask = modification(QpAttrMask::from_bits(attr_mask as u32));

    from_result(|| {
        // SAFETY: The caller of the API keeps what they point to for the length of the call, which
        // they are used in.
        let mut attributes = unsafe { attr.to_attributes(mask) };

        qp(xrcd, qpn)?.modify_from_kernel(&mut attributes)?;
        Ok(0)
    })
}

#[no_mangle]
pub(crate) extern "C" fn ib_xrc_rcv_query_qp(
    xrcd: &Xrcd,
    qpn: u32,
    attr: &mut KernelQpAttr,
) -> c_int {
    from_result(|| {
        attr.fill(qp(xrcd, qpn)?.query()?.ok_or(EINVAL)?);
        Ok(0)
    })
}

#[no_mangle]
pub(crate) extern "C" fn ib_xrc_rcv_destroy_qp(
    xrcd: &Xrcd,
    qpn: u32,
    own: Option<&Registration>,
) -> c_int {
    from_result(|| {
        domain(xrcd)?.destroy(qpn, |subscriber| {
            own.is_some_and(|own| core::ptr::eq(&**own.subscriber(), subscriber))
        })?;
        Ok(0)
    })
}
