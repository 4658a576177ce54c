// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The C interface, `<infiniband/xrc_rcv.h>`: nothing but translation to the crate `xrc-rcv`.
//!
//! Every pointer comes from the caller and is valid as the header requires: a `SAFETY:` comment
//! says "the caller's" for that. Structs that the kernel fills have the length that the caller
//! gives, which may be less or more than this library knows; they are passed to the kernel as they
//! are.
//!
//! Nothing is remembered but the registrations of a channel, whose lock the crate frees in a child
//! after `fork()`, and the receives of an SRQ. A child may call all but those.

#![allow(non_camel_case_types, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use xrc_rcv::borrowed::{self, Context, Domain, Registered, Result};
use xrc_rcv::ffi::{ibv_context, ibv_qp_attr, ibv_xrcd, xrc_rcv_event};
use xrc_rcv::uapi::{XRC_RCV_EVENT_CHANNEL_OBSERVE, xrc_rcv_caps, xrc_rcv_qp_info};
use xrc_rcv::verbs::Srq;
use xrc_rcv::verbs_sys;
use xrc_rcv::{
    AllocOptions, Cause, EventChannel, EventType, EventTypes, QpAttr, QpInfo, RegisterOptions,
};

/// `struct xrc_rcv_event_channel`
#[repr(C)]
pub struct xrc_rcv_event_channel {
    /// The device it was created on.
    pub context: *mut ibv_context,
    /// The descriptor, owned by this struct.
    pub fd: c_int,
    /// Not in the header.
    shared: Channel,
}

/// An event channel, which a registration knows to be closed.
#[derive(Clone)]
struct Channel(Arc<Descriptor>);

struct Descriptor {
    /// -1 after it was closed.
    fd: AtomicI32,
    /// The size of the records.
    record_size: usize,
    registered: Registered,
}

impl Channel {
    /// Takes the descriptor of a new channel over.
    fn of(channel: EventChannel) -> Result<Channel> {
        let record_size = channel.event_size();
        // Nothing is registered yet.
        let (fd, registered) = channel
            .try_into_parts()
            .map_err(|_| Cause::Os(libc::EBUSY))?;
        Ok(Channel(Arc::new(Descriptor {
            fd: AtomicI32::new(fd.into_raw_fd()),
            record_size,
            registered,
        })))
    }

    /// The channel `given`, or a new one of the domain, without events.
    ///
    /// # Safety
    ///
    /// `given` is null or open.
    unsafe fn new(given: *mut xrc_rcv_event_channel, domain: &Domain<'_>) -> Result<Channel> {
        // SAFETY: By the caller's word.
        match unsafe { given.as_ref() } {
            Some(channel) => Ok(channel.shared.clone()),
            None => Channel::of(domain.create_unread_channel()?),
        }
    }

    fn fd(&self) -> c_int {
        self.0.fd.load(Ordering::Relaxed)
    }

    /// The channel for a call.
    ///
    /// # Safety
    ///
    /// It is open, or nothing is done with the descriptor but an ioctl, which fails.
    unsafe fn borrow(&self) -> borrowed::EventChannel<'_> {
        // SAFETY: By the caller's word.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd()) };
        borrowed::EventChannel::new(fd, self.0.record_size, &self.0.registered)
    }
}

impl Descriptor {
    /// Closes it, which ends the registrations.
    fn close(&self) {
        let fd = self.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: The descriptor is the channel's, and is taken once.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.close();
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
    /// The channel that is registered, until the registration ends. Not in the header.
    channel: Option<Channel>,
}

impl xrc_rcv_qp {
    fn new(xrcd: *mut ibv_xrcd, channel: &Channel, qp_num: u32) -> Self {
        // SAFETY: The caller's domain is open.
        let context = unsafe { (*xrcd).context };
        xrc_rcv_qp {
            context,
            xrcd,
            qp_num,
            channel: Some(channel.clone()),
        }
    }

    /// Ends the registration.
    fn unregister(&mut self) -> Result<()> {
        if let Some(channel) = self.channel.as_ref().filter(|channel| channel.fd() >= 0) {
            // SAFETY: Nothing but an ioctl is done with the descriptor, which fails if closed.
            let (_, ended) = unsafe { channel.borrow() }.unregister(&[self.qp_num]);
            match ended {
                // The caller closed the descriptor, and it may since be that of another file.
                Ok(()) | Err(Cause::Unavailable | Cause::Os(libc::EBADF | libc::EINVAL)) => {}
                Err(cause) => return Err(cause),
            }
        }
        self.channel = None;
        Ok(())
    }
}

impl Drop for xrc_rcv_qp {
    fn drop(&mut self) {
        let _ = self.unregister();
    }
}

/// `struct xrc_rcv_srq`
#[repr(C)]
pub struct xrc_rcv_srq {
    /// The domain.
    pub xrcd: *mut ibv_xrcd,
    /// The number senders address messages to.
    pub srq_num: u32,
    /// The descriptor of its completion channel.
    pub fd: c_int,
    /// The length of the longest message. Not in the header.
    size: usize,
    /// Not in the header.
    srq: Srq,
}

/// `struct xrc_rcv_init_attr`. That of a program that was built before a member was added ends
/// before it.
#[repr(C)]
pub struct xrc_rcv_init_attr {
    comp_mask: u32,
    flags: u32,
    channel: *mut xrc_rcv_event_channel,
    cookie: u64,
    events: u64,
    label: u64,
}

const XRC_RCV_INIT_ATTR_EVENTS: u32 = 1 << 0;
const XRC_RCV_INIT_ATTR_LABEL: u32 = 1 << 1;

/// `struct xrc_rcv_reg_attr`. That of an older program is shorter likewise.
#[repr(C)]
pub struct xrc_rcv_reg_attr {
    comp_mask: u32,
    reserved: u32,
    channel: *mut xrc_rcv_event_channel,
    cookie: u64,
    events: u64,
}

const XRC_RCV_REG_ATTR_EVENTS: u32 = 1 << 0;

/// 0, or the errno of `result`.
fn code(result: Result<()>) -> c_int {
    result.map_or_else(Cause::errno, |()| 0)
}

fn set_errno(cause: Cause) {
    // SAFETY: The C library gives every thread an errno of its own.
    unsafe { *libc::__errno_location() = cause.errno() };
}

/// `count` places of `size` bytes each, cleared as the caller need not have done so.
///
/// # Safety
///
/// They are there for `'a`, unless there are none.
unsafe fn places<'a, T>(array: *mut T, size: usize, count: usize) -> Result<&'a mut [u8]> {
    let length = size.checked_mul(count).filter(|&length| {
        // Nothing is longer than half of the address space.
        length <= isize::MAX as usize
    });
    match length.ok_or(Cause::Os(libc::EINVAL))? {
        0 => Ok(&mut []),
        length => {
            let bytes = array.cast::<u8>();
            // SAFETY: By the caller's word.
            unsafe {
                bytes.write_bytes(0, length);
                Ok(std::slice::from_raw_parts_mut(bytes, length))
            }
        }
    }
}

/// `result` as a pointer to a new object, or null after setting errno.
fn object<T>(result: Result<T>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(cause) => {
            set_errno(cause);
            std::ptr::null_mut()
        }
    }
}

/// Null, after setting errno to `EINVAL`.
fn invalid<T>() -> *mut T {
    object(Err(Cause::Os(libc::EINVAL)))
}

/// What `reg_attr` says, and its channel.
///
/// # Safety
///
/// It is null, or has the members up to `cookie` and those that its mask names, and its channel is
/// open.
unsafe fn register_options(
    reg_attr: *const xrc_rcv_reg_attr,
) -> Result<(RegisterOptions<'static>, *mut xrc_rcv_event_channel)> {
    let mut options = RegisterOptions::new();
    if reg_attr.is_null() {
        return Ok((options, std::ptr::null_mut()));
    }
    // SAFETY: By the caller's word.
    let (mask, reserved) = unsafe { ((*reg_attr).comp_mask, (*reg_attr).reserved) };
    if mask & !XRC_RCV_REG_ATTR_EVENTS != 0 || reserved != 0 {
        return Err(Cause::Os(libc::EINVAL));
    }
    // SAFETY: By the caller's word.
    options = options.cookie(unsafe { (*reg_attr).cookie });
    // SAFETY: By the caller's word.
    let channel = unsafe { (*reg_attr).channel };
    if mask & XRC_RCV_REG_ATTR_EVENTS != 0 {
        // SAFETY: Its mask says that it has this member.
        options = options.events(EventTypes::from_bits_retain(unsafe { (*reg_attr).events }));
    }
    Ok((options, channel))
}

/// Queries the capabilities of the kernel and a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_query_caps(
    context: *mut ibv_context,
    caps: *mut xrc_rcv_caps,
    size: usize,
) -> c_int {
    // SAFETY: The caller's struct has that size.
    let caps = match unsafe { places(caps, size, 1) } {
        Ok(caps) if !caps.is_empty() => caps,
        _ => return libc::EINVAL,
    };
    // SAFETY: The caller's context is open.
    code(unsafe { Context::from_ibv(context) }.and_then(|file| file.query_caps_bytes(caps)))
}

/// Creates a channel to read events from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_create_event_channel(
    xrcd: *mut ibv_xrcd,
) -> *mut xrc_rcv_event_channel {
    // SAFETY: The caller's domain is open.
    unsafe { create_channel(xrcd, |domain| domain.create_event_channel()) }
}

/// Creates a channel that is registered with all receive QPs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_create_event_channel_of_all(
    xrcd: *mut ibv_xrcd,
    flags: u32,
) -> *mut xrc_rcv_event_channel {
    if flags & !XRC_RCV_EVENT_CHANNEL_OBSERVE != 0 {
        return object(Err(Cause::Os(libc::EINVAL)));
    }
    let create = |domain: &Domain<'_>| domain.create_event_channel_of_all(flags == 0);
    // SAFETY: The caller's domain is open.
    unsafe { create_channel(xrcd, create) }
}

/// Creates a channel.
///
/// # Safety
///
/// The domain is open.
unsafe fn create_channel(
    xrcd: *mut ibv_xrcd,
    create: impl FnOnce(&Domain<'_>) -> Result<EventChannel>,
) -> *mut xrc_rcv_event_channel {
    // SAFETY: The caller's domain is open.
    let (domain, context) = unsafe { (Domain::from_ibv(xrcd), (*xrcd).context) };
    let channel = domain.and_then(|domain| create(&domain));
    object(
        channel
            .and_then(Channel::of)
            .map(|shared| xrc_rcv_event_channel {
                context,
                fd: shared.fd(),
                shared,
            }),
    )
}

/// Closes a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_destroy_event_channel(
    channel: *mut xrc_rcv_event_channel,
) -> c_int {
    // SAFETY: The caller's object, which `object()` allocated and which is no longer used.
    unsafe { Box::from_raw(channel) }.shared.0.close();
    0
}

/// Reads as many events as there are and fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_read_events(
    channel: *mut xrc_rcv_event_channel,
    events: *mut xrc_rcv_event,
    size: usize,
    count: usize,
) -> isize {
    // SAFETY: The caller's array has that many of that size.
    let read = unsafe { places(events, size, count) }.and_then(|events| {
        // SAFETY: The caller's channel, which stays open during the call.
        unsafe { (*channel).shared.borrow() }.read_records(events, size)
    });
    match read {
        Ok(count) => count as isize,
        Err(cause) => {
            set_errno(cause);
            -1
        }
    }
}

/// Reads one event; signals do not interrupt it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_get_event(
    channel: *mut xrc_rcv_event_channel,
    event: *mut xrc_rcv_event,
    size: usize,
) -> c_int {
    // SAFETY: The caller's channel, which stays open during the call.
    let channel = unsafe { (*channel).shared.borrow() };
    // SAFETY: The caller's struct has that size.
    let event = match unsafe { places(event, size, 1) } {
        Ok(event) => event,
        Err(cause) => return cause.errno(),
    };
    loop {
        match channel.read_records(event, size) {
            Err(Cause::Os(libc::EINTR)) => {}
            result => return code(result.map(drop)),
        }
    }
}

/// Opens an XRC domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_open_domain(
    context: *mut ibv_context,
    fd: c_int,
    oflags: c_int,
) -> *mut ibv_xrcd {
    // SAFETY: The caller's context is open.
    match unsafe { verbs_sys::open_xrcd(context, fd, oflags) } {
        Ok(xrcd) => xrcd.as_ptr(),
        Err(cause) => {
            set_errno(cause);
            std::ptr::null_mut()
        }
    }
}

/// Closes an XRC domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_close_domain(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: The caller's domain, which is no longer used.
    unsafe { verbs_sys::close_xrcd(xrcd) }
}

/// Creates an SRQ with memory for messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_create_srq(
    xrcd: *mut ibv_xrcd,
    depth: u32,
    size: u32,
) -> *mut xrc_rcv_srq {
    // SAFETY: The caller's domain is open.
    let context = unsafe { (*xrcd).context };
    let (Some(xrcd), Some(context)) = (NonNull::new(xrcd), NonNull::new(context)) else {
        return invalid();
    };
    // SAFETY: The caller keeps the device and the domain open as long as the SRQ.
    let domain = unsafe {
        let device = xrc_rcv::Device::from_ibv(context, ());
        xrc_rcv::Domain::from_ibv(&device, xrcd, ())
    };
    let srq = Srq::new(&domain, depth, size).map_err(|error| Cause::Os(error.errno()));
    object(srq.map(|srq| xrc_rcv_srq {
        xrcd: xrcd.as_ptr(),
        srq_num: srq.srq_num(),
        fd: srq.as_raw_fd(),
        size: size as usize,
        srq,
    }))
}

/// Destroys an SRQ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_destroy_srq(srq: *mut xrc_rcv_srq) -> c_int {
    // SAFETY: The caller's object, which `object()` allocated and which is no longer used.
    drop(unsafe { Box::from_raw(srq) });
    0
}

/// Receives a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_receive(
    srq: *mut xrc_rcv_srq,
    message: *mut c_void,
    size: usize,
    timeout: c_int,
) -> isize {
    // SAFETY: The caller's SRQ, which no other thread uses.
    let srq = unsafe { &mut *srq };
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let received = if size < srq.size {
        Err(Cause::Os(libc::EINVAL))
    } else {
        let received = srq.srq.receive(timeout);
        received.map_err(|error| Cause::Os(error.errno()))
    };
    match received.and_then(|received| received.ok_or(Cause::Os(libc::EAGAIN))) {
        Ok(received) => {
            // SAFETY: The caller's memory has that size, and no message is longer than `srq.size`.
            unsafe { message.copy_from_nonoverlapping(received.as_ptr().cast(), received.len()) };
            received.len() as isize
        }
        Err(cause) => {
            set_errno(cause);
            -1
        }
    }
}

/// What the caller chooses for a receive QP and the registration with it, and the channel of that.
///
/// # Safety
///
/// `init_attr` is null, or has the members that its mask names.
unsafe fn alloc_options(
    init_attr: *const xrc_rcv_init_attr,
) -> Result<(AllocOptions<'static>, *mut xrc_rcv_event_channel)> {
    let mut options = AllocOptions::new();
    let mut register = RegisterOptions::new();
    if init_attr.is_null() {
        return Ok((options, std::ptr::null_mut()));
    }
    // SAFETY: The caller's attribute has these members in any case.
    let (mask, flags, cookie, channel) = unsafe {
        let attr = init_attr;
        (
            (*attr).comp_mask,
            (*attr).flags,
            (*attr).cookie,
            (*attr).channel,
        )
    };
    if mask & !(XRC_RCV_INIT_ATTR_EVENTS | XRC_RCV_INIT_ATTR_LABEL) != 0 {
        return Err(Cause::Os(libc::EINVAL));
    }
    options = options.flags(flags);
    register = register.cookie(cookie);
    if mask & XRC_RCV_INIT_ATTR_EVENTS != 0 {
        // SAFETY: Its mask says that it has this member.
        register = register.events(EventTypes::from_bits_retain(unsafe { (*init_attr).events }));
    }
    if mask & XRC_RCV_INIT_ATTR_LABEL != 0 {
        // SAFETY: Its mask says that it has this member.
        options = options.label(unsafe { (*init_attr).label });
    }
    Ok((options.register(register), channel))
}

/// Creates a receive QP and registers with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_alloc_qp(
    xrcd: *mut ibv_xrcd,
    init_attr: *const xrc_rcv_init_attr,
    attr: *const ibv_qp_attr,
    attr_mask: c_int,
) -> *mut xrc_rcv_qp {
    // SAFETY: The caller's attribute, or null.
    let Ok((mut options, channel)) = (unsafe { alloc_options(init_attr) }) else {
        return invalid();
    };
    // SAFETY: The caller's attributes, or null; libibverbs' struct begins with this one.
    match unsafe { attr.as_ref() } {
        Some(attr) => options = options.attr(QpAttr::from_ibv(attr, attr_mask as u32)),
        None if attr_mask != 0 => return invalid(),
        None => {}
    }
    // SAFETY: The caller's domain is open.
    let domain = unsafe { Domain::from_ibv(xrcd) };
    object(domain.and_then(|domain| {
        // SAFETY: The caller's channel, or null.
        let channel = unsafe { Channel::new(channel, &domain) }?;
        // SAFETY: It is open during the call.
        let qp_num = domain.alloc(Some(unsafe { channel.borrow() }), &options)?;
        Ok(xrc_rcv_qp::new(xrcd, &channel, qp_num))
    }))
}

/// Registers with an existing receive QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_reg_qp(
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
    channel: *mut xrc_rcv_event_channel,
    cookie: u64,
) -> *mut xrc_rcv_qp {
    let reg_attr = xrc_rcv_reg_attr {
        comp_mask: 0,
        reserved: 0,
        channel,
        cookie,
        events: 0,
    };
    // SAFETY: The caller's domain and channel.
    unsafe { xrc_rcv_reg_qp_ex(xrcd, qp_num, &raw const reg_attr) }
}

/// Registers with an existing receive QP, with more to choose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_reg_qp_ex(
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
    reg_attr: *const xrc_rcv_reg_attr,
) -> *mut xrc_rcv_qp {
    // SAFETY: The caller's attribute, or null.
    let Ok((options, channel)) = (unsafe { register_options(reg_attr) }) else {
        return invalid();
    };
    // SAFETY: The caller's domain is open.
    let domain = unsafe { Domain::from_ibv(xrcd) };
    object(domain.and_then(|domain| {
        // SAFETY: The caller's channel, or null.
        let channel = unsafe { Channel::new(channel, &domain) }?;
        let file = domain.context();
        // SAFETY: It is open during the call.
        file.register(unsafe { channel.borrow() }, &[qp_num], &options)
            .1?;
        Ok(xrc_rcv_qp::new(xrcd, &channel, qp_num))
    }))
}

/// Gives a registration up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_unreg_qp(qp: *mut xrc_rcv_qp) -> c_int {
    // SAFETY: The caller's object, which `object()` allocated and which is no longer used if this
    // succeeds.
    let mut qp = unsafe { Box::from_raw(qp) };
    match qp.unregister() {
        Ok(()) => 0,
        Err(cause) => {
            Box::leak(qp);
            cause.errno()
        }
    }
}

/// Modifies a receive QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_modify_qp(
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
    attr: *const ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: The caller's attributes are valid during the call.
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
    size: usize,
) -> c_int {
    let size = if info.is_null() { 0 } else { size };
    // SAFETY: The caller's struct has that size.
    let info = match unsafe { places(info, size, 1) } {
        Ok(place) if !place.is_empty() || info.is_null() => place,
        _ => return libc::EINVAL,
    };
    // SAFETY: The caller's domain is open.
    let domain = unsafe { Domain::from_ibv(xrcd) };
    let answer = domain.and_then(|domain| domain.query_bytes(qp_num, info));
    code(answer.map(|answer| {
        if !attr.is_null() {
            // SAFETY: The caller's struct is to be written; libibverbs' begins with this one.
            unsafe { attr.write(answer.to_ibv()) };
        }
    }))
}

/// Destroys a receive QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_destroy_qp(xrcd: *mut ibv_xrcd, qp_num: u32, flags: u32) -> c_int {
    // SAFETY: The caller's domain is open.
    code(unsafe { Domain::from_ibv(xrcd) }.and_then(|domain| domain.destroy_with(qp_num, flags)))
}

/// Lists the receive QPs of a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_query_domain(
    xrcd: *mut ibv_xrcd,
    after: u32,
    infos: *mut xrc_rcv_qp_info,
    size: usize,
    count: *mut usize,
    total: *mut u32,
) -> c_int {
    // SAFETY: The caller's count is valid, with the room of its array.
    let room = unsafe { *count };
    // SAFETY: The caller's array has that many of that size.
    let infos = match unsafe { places(infos, size, room) } {
        Ok(infos) if size != 0 || room == 0 => infos,
        _ => return libc::EINVAL,
    };
    // No QP has number 0.
    let after = (after != 0).then_some(after);
    // SAFETY: The caller's domain is open.
    let domain = unsafe { Domain::from_ibv(xrcd) };
    let page = domain.and_then(|domain| domain.query_page_bytes(after, infos, size));
    // SAFETY: The caller's, to be written.
    code(page.map(|(filled, all)| unsafe {
        count.write(filled);
        if !total.is_null() {
            total.write(all);
        }
    }))
}

/// `struct xrc_rcv_adopted_qp` up to the QP's info.
#[repr(C)]
pub struct xrc_rcv_adopted_qp {
    /// The registration, or null.
    pub qp: *mut xrc_rcv_qp,
    /// Why it is null, or 0.
    pub error: c_int,
    /// 0.
    pub reserved: u32,
}

/// Returns an array for the caller, and its length; null if it is empty. The elements have `size`
/// bytes: more than the head, and a multiple of its alignment.
fn adopted_array(
    adopted: Vec<(QpInfo, Result<xrc_rcv_qp>)>,
    size: usize,
) -> Result<(*mut xrc_rcv_adopted_qp, usize)> {
    const INFO: usize = size_of::<xrc_rcv_adopted_qp>();
    if adopted.is_empty() {
        return Ok((std::ptr::null_mut(), 0));
    }
    // SAFETY: Any size will do.
    let array = unsafe { libc::calloc(adopted.len(), size) }.cast::<u8>();
    if array.is_null() {
        return Err(Cause::Os(libc::ENOMEM));
    }
    let count = adopted.len();
    for (index, (info, registration)) in adopted.into_iter().enumerate() {
        let (qp, error) = match registration {
            Ok(registration) => (Box::into_raw(Box::new(registration)), 0),
            Err(cause) => (std::ptr::null_mut(), cause.errno()),
        };
        let head = xrc_rcv_adopted_qp {
            qp,
            error,
            reserved: 0,
        };
        let info = info.as_raw();
        let known = (size - INFO).min(size_of_val(info));
        // SAFETY: The element is one of the array's, as aligned as its head by the caller of
        // this function, and has room for both.
        unsafe {
            let element = array.add(index * size);
            element.cast::<xrc_rcv_adopted_qp>().write(head);
            std::ptr::from_ref(info)
                .cast::<u8>()
                .copy_to_nonoverlapping(element.add(INFO), known);
        }
    }
    Ok((array.cast(), count))
}

/// Registers with all receive QPs of a domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrc_rcv_adopt_domain(
    xrcd: *mut ibv_xrcd,
    reg_attr: *const xrc_rcv_reg_attr,
    qps: *mut *mut xrc_rcv_adopted_qp,
    size: usize,
    count: *mut usize,
) -> c_int {
    const INFO: usize = size_of::<xrc_rcv_adopted_qp>();
    if size <= INFO || size % align_of::<xrc_rcv_adopted_qp>() != 0 {
        return libc::EINVAL;
    }
    let adopt = || {
        // SAFETY: The caller's attribute, or null.
        let (options, channel) = unsafe { register_options(reg_attr) }?;
        // SAFETY: The caller's domain is open.
        let domain = unsafe { Domain::from_ibv(xrcd) }?;
        // SAFETY: The caller's channel, or null.
        let channel = unsafe { Channel::new(channel, &domain) }?;
        let mut adopted = Vec::new();
        // SAFETY: It is open during the call.
        let borrowed = unsafe { channel.borrow() };
        // Those that are dropped on failure end.
        domain.adopt(borrowed, &options, |info, result| {
            let qp = result.map(|()| xrc_rcv_qp::new(xrcd, &channel, info.qp_num()));
            adopted.push((info, qp));
        })?;
        adopted_array(adopted, size)
    };
    // SAFETY: The caller's, to be written.
    code(adopt().map(|(array, length)| unsafe {
        qps.write(array);
        count.write(length);
    }))
}

/// The name of an event type.
#[unsafe(no_mangle)]
pub extern "C" fn xrc_rcv_event_type_str(r#type: u32) -> *const c_char {
    EventType::from_raw(r#type)
        .description()
        .unwrap_or(c"unknown")
        .as_ptr()
}
