// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Receive QPs: the calls of OFED and the first of them all, `ibv_alloc_xrc_rcv_qp()`.
//!
//! A program knows a receive QP by its number alone, and may register as often as it likes.

use std::ffi::c_int;

use xrc_rcv::borrowed::{Domain, Result};
use xrc_rcv::ffi::ibv_qp_attr;
use xrc_rcv::verbs_sys::ibv_pd;
use xrc_rcv::{AllocOptions, Cause, Lifetime, QpAttr};

use crate::code;
use crate::device::Device;
use crate::ffi::*;
use crate::pair::Number;
use crate::qp::with_alternate_port;

/// The attributes of `attr` with the number that the peer's sending QP really has, and the port of
/// an alternate path where the kernel looks for it.
///
/// # Safety
///
/// `attr` points to a `struct ibv_qp_attr`.
unsafe fn attributes(attr: *const ibv_qp_attr, mask: c_int) -> QpAttr {
    // SAFETY: By the caller's word.
    let mut attr = with_alternate_port(unsafe { *attr }, mask);
    attr.dest_qp_num = Number::from_public(attr.dest_qp_num).initiator();
    QpAttr::from_ibv(&attr, mask as u32)
}

/// Creates a receive QP in RESET and registers with it. Only the domain of `init_attr` is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_xrc_rcv_qp(
    init_attr: *mut ibv_qp_init_attr,
    qp_num: *mut u32,
) -> c_int {
    // SAFETY: The caller's attribute has OFED's length.
    let domain = unsafe { (*init_attr).xrc_domain };
    if domain.is_null() {
        return libc::EINVAL;
    }
    let create = || -> Result<u32> {
        // SAFETY: The caller's domain is open.
        let (device, rcv) = unsafe { (Device::of((*domain).context)?, (*domain).as_domain()?) };
        let channel = device.channel(domain.addr(), &rcv)?;
        let number = rcv.alloc(Some(channel.borrowed()), &AllocOptions::new())?;
        device.remember(channel, number, domain.addr());
        // SAFETY: The caller's domain is open.
        unsafe { (*domain).receives() };
        Ok(number)
    };
    // SAFETY: The caller's `qp_num` is to be written.
    code(create().map(|number| unsafe { qp_num.write(number) }))
}

/// Creates a receive QP and takes it to RTR. It lives as long as the domain.
///
/// That is the call as it was first proposed: there is no registration, so events are logged by the
/// kernel until a process registers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_xrc_rcv_qp(
    _pd: *mut ibv_pd,
    domain: *mut ibv_xrc_domain,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    qp_num: *mut u32,
) -> c_int {
    // SAFETY: The caller's attribute is valid, with all that `mask` names.
    let attr = unsafe { attributes(attr, mask) };
    // SAFETY: The caller's domain is open.
    let rcv = unsafe { (*domain).as_domain() };
    let options = AllocOptions::new().lifetime(Lifetime::Domain).attr(attr);
    let allocated = rcv.and_then(|rcv| rcv.alloc(None, &options));
    code(allocated.map(|number| {
        // SAFETY: The caller's `qp_num` is to be written.
        unsafe { qp_num.write(number) };
        // SAFETY: The caller's domain is open.
        unsafe { (*domain).receives() };
    }))
}

/// Modifies a receive QP of the domain, registered or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_xrc_rcv_qp(
    domain: *mut ibv_xrc_domain,
    qp_num: u32,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: The caller's attribute is valid, with all that `mask` names.
    let attr = unsafe { attributes(attr, mask) };
    // SAFETY: The caller's domain is open.
    code(unsafe { (*domain).as_domain() }.and_then(|rcv| rcv.modify(qp_num, &attr)))
}

/// Queries a receive QP of the domain, registered or not. The mask is ignored: all members are
/// filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_xrc_rcv_qp(
    domain: *mut ibv_xrc_domain,
    qp_num: u32,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: The caller's domain is open.
    let answer = unsafe { (*domain).as_domain() }.and_then(|rcv| rcv.query(qp_num));
    code(answer.map(|(answer, _)| {
        // SAFETY: The caller's structs are to be written, and the second has OFED's length.
        unsafe {
            attr.write(answer.to_ibv());
            init_attr.write_bytes(0, 1);
            (*init_attr).qp_type = IBV_QPT_XRC;
            (*init_attr).xrc_domain = domain;
        }
    }))
}

/// Registers with a receive QP; doing so again changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_xrc_rcv_qp(domain: *mut ibv_xrc_domain, qp_num: u32) -> c_int {
    let register = |device: &Device, rcv: Domain<'_>| {
        let _turn = device.registering.lock().unwrap();
        // It may have been registered with through another `ibv_xrc_domain` of the same domain.
        if let Some(known) = device.registered(qp_num) {
            if known.domain == domain.addr() || rcv.query(qp_num).is_ok() {
                match device.register(&known.channel, qp_num) {
                    // That was with a QP that has ended.
                    Err(Cause::Os(libc::EINVAL)) => device.forget_ended(qp_num, &known),
                    result => return result,
                }
            }
        }
        let channel = device.channel(domain.addr(), &rcv)?;
        device.register(&channel, qp_num)?;
        device.remember(channel, qp_num, domain.addr());
        Ok(())
    };
    // SAFETY: The caller's domain is open.
    let device = unsafe { Device::of((*domain).context) };
    // SAFETY: The caller's domain is open during the call.
    let rcv = unsafe { (*domain).as_domain() };
    code(
        device
            .and_then(|device| register(&device, rcv?))
            // SAFETY: The caller's domain is open during the call.
            .map(|()| unsafe { (*domain).receives() }),
    )
}

/// Undoes any number of registrations. The last process to do so destroys the QP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unreg_xrc_rcv_qp(domain: *mut ibv_xrc_domain, qp_num: u32) -> c_int {
    // SAFETY: The caller's domain is open.
    let device = unsafe { Device::of((*domain).context) };
    // SAFETY: The caller's domain is open during the call.
    let is_member = || unsafe { (*domain).as_domain() }.is_ok_and(|rcv| rcv.query(qp_num).is_ok());
    code(device.and_then(|device| device.forget(qp_num, domain.addr(), is_member)))
}
