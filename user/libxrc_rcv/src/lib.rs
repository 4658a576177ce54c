// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The C interface, `<infiniband/xrc_rcv.h>`: nothing but translation to the crate `xrc-rcv`.
//!
//! Every pointer comes from the caller, and is what the header says it is: a `SAFETY:` comment says
//! "the caller's" for that.

#![allow(non_camel_case_types, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use xrc_rcv::ffi::{ibv_context, ibv_qp_attr, ibv_xrcd};
use xrc_rcv::uapi::{xrc_rcv_caps, xrc_rcv_event, xrc_rcv_qp_info};
use xrc_rcv::{
    AllocOptions, Context, Domain, Error, Event, EventChannel, EventType, QpAttr, RegisterOptions,
    Registration, Result,
};

/// `struct xrc_rcv_event_channel`
#[repr(C)]
pub struct xrc_rcv_event_channel {
    /// The device it was created on.
    pub context: *mut ibv_context,
    /// The descriptor, owned by this struct.
    pub fd: c_int,
}

impl xrc_rcv_event_channel {
    /// The channel, without its ownership of the descriptor.
    fn borrow(&self) -> ManuallyDrop<EventChannel> {
        // SAFETY: The descriptor is open as long as the struct is, and the result does not close it.
        let fd = unsafe { OwnedFd::from_raw_fd(self.fd) };
        ManuallyDrop::new(EventChannel::from(fd))
    }
}

/// `struct xrc_rcv_qp`
#[repr(C)]
pub struct xrc_rcv_qp {
    /// The device.
    pub context: *mut ibv_context,
    /// The domain.
    pub xrcd: *mut ibv_xrcd,
    /// The number senders connect to.
    pub qp_num: u32,
    /// The registration's uverbs handle, owned by this struct.
    pub handle: u32,
}

/// `struct xrc_rcv_init_attr`
#[repr(C)]
pub struct xrc_rcv_init_attr {
    comp_mask: u32,
    flags: u32,
    channel: *mut xrc_rcv_event_channel,
    cookie: u64,
}

/// 0, or the errno of `result`.
fn code(result: Result<()>) -> c_int {
    result.map_or_else(Error::errno, |()| 0)
}

fn set_errno(error: Error) {
    // SAFETY: The C library gives every thread an errno of its own.
    unsafe { *libc::__errno_location() = error.errno() };
}

/// An array to be written, cleared as the caller need not have done so.
///
/// # Safety
///
/// It has room for `count`, for `'a`, and all zeroes is a valid `T`.
unsafe fn cleared<'a, T>(array: *mut T, count: usize) -> &'a mut [T] {
    // SAFETY: By the caller's word.
    unsafe {
        array.write_bytes(0, count);
        std::slice::from_raw_parts_mut(array, count)
    }
}

/// `result` as a pointer to a new object, or null after setting errno.
fn object<T>(result: Result<T>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(error) => {
            set_errno(error);
            std::ptr::null_mut()
        }
    }
}

fn registered(xrcd: *mut ibv_xrcd, registration: Registration<'_>) -> xrc_rcv_qp {
    xrc_rcv_qp {
        // SAFETY: The caller's domain is open.
        context: unsafe { (*xrcd).context },
        xrcd,
        qp_num: registration.qp_num(),
        handle: registration.into_handle(),
    }
}

/// Asks what the kernel and a device offer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_query_caps(
    context: *mut ibv_context,
    caps: *mut xrc_rcv_caps,
) -> c_int {
    // SAFETY: The caller's context is open.
    let answer = unsafe { Context::from_ibv(context) }.and_then(|file| file.query_caps());
    // SAFETY: The caller's, to be written.
    code(answer.map(|answer| unsafe { caps.write(*answer.as_raw()) }))
}

/// Creates a channel to read events from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_create_event_channel(
    context: *mut ibv_context,
) -> *mut xrc_rcv_event_channel {
    // SAFETY: The caller's context is open.
    let file = unsafe { Context::from_ibv(context) };
    let channel = file.and_then(|file| file.create_event_channel());
    object(channel.map(|channel| xrc_rcv_event_channel {
        context,
        fd: channel.into_raw_fd(),
    }))
}

/// Closes a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_destroy_event_channel(
    channel: *mut xrc_rcv_event_channel,
) -> c_int {
    // SAFETY: The caller's object, which `object()` allocated and nobody uses any more.
    let channel = unsafe { Box::from_raw(channel) };
    drop(ManuallyDrop::into_inner(channel.borrow()));
    0
}

/// Reads as many events as there are and fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_read_events(
    channel: *mut xrc_rcv_event_channel,
    events: *mut xrc_rcv_event,
    count: usize,
) -> isize {
    if count == 0 {
        set_errno(Error::Os(libc::EINVAL));
        return -1;
    }
    // SAFETY: The caller's array has that many, of which `Event` is a transparent wrapper.
    let events = unsafe { cleared(events.cast::<Event>(), count) };
    // SAFETY: The caller's channel.
    match unsafe { &*channel }.borrow().read(events) {
        Ok(count) => count as isize,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

/// Reads one event, whatever signals come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_get_event(
    channel: *mut xrc_rcv_event_channel,
    event: *mut xrc_rcv_event,
) -> c_int {
    // SAFETY: The caller's channel.
    let channel = unsafe { &*channel }.borrow();
    let mut record = [Event::default()];
    loop {
        match channel.read(&mut record) {
            Err(Error::Os(libc::EINTR)) => continue,
            Err(error) => return error.errno(),
            Ok(_) => break,
        }
    }
    // SAFETY: The caller's, to be written.
    unsafe { event.write(*record[0].as_raw()) };
    0
}

/// Creates a receive QP and registers with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_alloc_qp(
    xrcd: *mut ibv_xrcd,
    init_attr: *const xrc_rcv_init_attr,
    attr: *const ibv_qp_attr,
    attr_mask: c_int,
) -> *mut xrc_rcv_qp {
    let mut options = AllocOptions::new();
    let mut channel = None;
    // SAFETY: The caller's attribute, or null.
    if let Some(init_attr) = unsafe { init_attr.as_ref() } {
        if init_attr.comp_mask != 0 {
            set_errno(Error::Os(libc::EINVAL));
            return std::ptr::null_mut();
        }
        options = options.flags(init_attr.flags).cookie(init_attr.cookie);
        // SAFETY: The caller's channel, or null.
        channel = unsafe { init_attr.channel.as_ref() }.map(xrc_rcv_event_channel::borrow);
    }
    if let Some(channel) = &channel {
        options = options.channel(channel);
    }
    // SAFETY: The caller's attributes, or null; libibverbs' struct begins with this one.
    if let Some(attr) = unsafe { attr.as_ref() } {
        options = options.attr(QpAttr::from_ibv(attr, attr_mask as u32));
    }
    // SAFETY: The caller's domain is open.
    let registration = unsafe { Domain::from_ibv(xrcd) }.and_then(|domain| domain.alloc(&options));
    object(registration.map(|registration| registered(xrcd, registration)))
}

/// Registers with an existing receive QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_reg_qp(
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
    channel: *mut xrc_rcv_event_channel,
    cookie: u64,
) -> *mut xrc_rcv_qp {
    // SAFETY: The caller's channel, or null.
    let channel = unsafe { channel.as_ref() }.map(xrc_rcv_event_channel::borrow);
    let mut options = RegisterOptions::new().cookie(cookie);
    if let Some(channel) = &channel {
        options = options.channel(channel);
    }
    // SAFETY: The caller's domain is open.
    let domain = unsafe { Domain::from_ibv(xrcd) };
    let registration = domain.and_then(|domain| domain.register(qp_num, &options));
    object(registration.map(|registration| registered(xrcd, registration)))
}

/// Gives a registration up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_unreg_qp(qp: *mut xrc_rcv_qp) -> c_int {
    // SAFETY: The caller's context is open.
    let result = unsafe { Context::from_ibv((*qp).context) }.and_then(|context| {
        // SAFETY: The caller's registration.
        let (handle, qp_num) = unsafe { ((*qp).handle, (*qp).qp_num) };
        Registration::from_handle(context, handle, qp_num).unregister()
    });
    if result.is_ok() {
        // SAFETY: The caller's object, which `object()` allocated and nobody uses any more.
        drop(unsafe { Box::from_raw(qp) });
    }
    code(result)
}

/// Modifies a receive QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_modify_qp(
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
    attr: *const ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: The caller's attributes.
    let attr = QpAttr::from_ibv(unsafe { &*attr }, attr_mask as u32);
    // SAFETY: The caller's domain is open.
    code(unsafe { Domain::from_ibv(xrcd) }.and_then(|domain| domain.modify(qp_num, &attr)))
}

/// Queries a receive QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_query_qp(
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
    attr: *mut ibv_qp_attr,
    info: *mut xrc_rcv_qp_info,
) -> c_int {
    // SAFETY: The caller's domain is open.
    let answer = unsafe { Domain::from_ibv(xrcd) }.and_then(|domain| domain.query(qp_num));
    // SAFETY: The caller's structs are to be written, unless null.
    code(answer.map(|(qp_attr, qp_info)| unsafe {
        if !attr.is_null() {
            attr.write(qp_attr.to_ibv());
        }
        if !info.is_null() {
            info.write(*qp_info.as_raw());
        }
    }))
}

/// Destroys a receive QP whose lifetime is the domain's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_destroy_qp(xrcd: *mut ibv_xrcd, qp_num: u32) -> c_int {
    // SAFETY: The caller's domain is open.
    code(unsafe { Domain::from_ibv(xrcd) }.and_then(|domain| domain.destroy(qp_num)))
}

/// Lists the receive QPs of a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_query_domain(
    xrcd: *mut ibv_xrcd,
    after: u32,
    infos: *mut xrc_rcv_qp_info,
    count: *mut usize,
    total: *mut u32,
) -> c_int {
    // SAFETY: The caller's count.
    let infos = match unsafe { *count } {
        0 => Default::default(),
        // SAFETY: The caller's array has that many.
        room => unsafe { cleared(infos, room) },
    };
    // No QP has number 0.
    let after = (after != 0).then_some(after);
    // SAFETY: The caller's domain is open.
    let page = unsafe { Domain::from_ibv(xrcd) }.and_then(|domain| domain.query_page(after, infos));
    // SAFETY: The caller's, to be written.
    code(page.map(|(filled, all)| unsafe {
        count.write(filled);
        if !total.is_null() {
            total.write(all);
        }
    }))
}

/// The name of an event type.
#[unsafe(no_mangle)]
pub extern "C" fn xrc_rcv_event_type_str(r#type: u32) -> *const c_char {
    let name = match EventType::from_raw(r#type) {
        EventType::QP_FATAL => c"local work queue catastrophic error",
        EventType::QP_REQ_ERR => c"invalid request local work queue error",
        EventType::QP_ACCESS_ERR => c"local access violation work queue error",
        EventType::COMM_EST => c"communication established",
        EventType::SQ_DRAINED => c"send queue drained",
        EventType::PATH_MIG => c"path migrated",
        EventType::PATH_MIG_ERR => c"path migration request error",
        EventType::QP_LAST_WQE_REACHED => c"last WQE reached",
        EventType::QP_GONE => c"receive QP destroyed",
        _ => c"unknown",
    };
    name.as_ptr()
}
