// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The XRC calls of OFED 1.5, for programs that were written for it.
//!
//! OFED had its own libibverbs; this library stands in front of today's. It adds the calls that
//! were removed ([`domain`], [`receive_qp`]), and intercepts those whose meaning OFED widened
//! ([`context`], [`qp`], [`event`]) before calling libibverbs, which does the rest.
//! `<infiniband/ofa_xrc.h>` declares both. Programs link with it, or are started with it preloaded.
//!
//! The exported functions take the pointers that the C declarations name, valid as libibverbs
//! requires them. A `SAFETY:` comment says "the caller's" for that.

#![allow(clippy::missing_safety_doc)]

pub mod domain;
pub mod event;
pub mod receive_qp;

pub mod context;
pub mod qp;

mod state;

mod device;
mod pair;
mod real;

pub mod ffi;

use std::ffi::c_int;

use xrc_rcv::Cause;

/// Sets errno.
fn set_errno(errno: c_int) {
    // SAFETY: The C library gives every thread an errno of its own.
    unsafe { *libc::__errno_location() = errno };
}

fn errno() -> c_int {
    // SAFETY: The C library gives every thread an errno of its own.
    unsafe { *libc::__errno_location() }
}

/// 0 or a positive errno, which is how every OFED call answers.
fn code(result: Result<(), Cause>) -> c_int {
    match result {
        Ok(()) => 0,
        // A handle that is no longer one, as a forked child sharing the file may leave behind; OFED
        // knows only bad arguments.
        Err(Cause::Os(libc::ENOENT | libc::EBADF) | Cause::UnknownDomain) => libc::EINVAL,
        // The return value of OFED's libibverbs.
        Err(Cause::Unavailable) => libc::ENOSYS,
        Err(cause) => cause.errno(),
    }
}
