// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Events of target QPs as libibverbs has them: delivered to the process that created the QP.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

use anyhow::{Context, Result};
use xrc_rcv::ffi::ibv_context;
use xrc_rcv::verbs_sys::ibv_async_event;
use xrc_rcv::{Device, EventType};

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> i32;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
}

/// The descriptor from which the asynchronous events of an open device are read.
pub(crate) fn async_fd(device: &Device) -> BorrowedFd<'_> {
    // SAFETY: The context is open, and its descriptor with it, as long as the device.
    unsafe { BorrowedFd::borrow_raw((*device.as_ibv()).async_fd) }
}

/// Takes the next asynchronous event, and waits for it.
pub(crate) fn take_event(device: &Device) -> Result<EventType> {
    let mut event = ibv_async_event {
        element: ptr::null_mut(),
        event_type: 0,
    };
    // SAFETY: The context is open, and the event is to be written and then given back.
    unsafe {
        if ibv_get_async_event(device.as_ibv(), &mut event) != 0 {
            return Err(io::Error::last_os_error()).context("ibv_get_async_event");
        }
        ibv_ack_async_event(&mut event);
    }
    Ok(EventType::from_raw(event.event_type))
}
