// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Asynchronous events: those of libibverbs, and those of receive QPs among them.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};

use xrc_rcv::ffi::ibv_context;
use xrc_rcv::{Event, EventType};

use crate::device::Device;
use crate::ffi::*;
use crate::{qp, real, set_errno};

/// The result of one attempt to take an event.
enum Look {
    Event,
    Failed,
    /// There is none until this descriptor is readable.
    Wait(RawFd),
    /// The device has no receive QPs.
    NotOurs,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Calls `function` in a thread that cannot be cancelled meanwhile.
///
/// Programs cancel threads that wait for events, asynchronously, too. Such a thread must not hold a
/// lock then or a reference to a channel, which would never be closed.
fn uncancelled<T>(function: impl FnOnce() -> T) -> T {
    const PTHREAD_CANCEL_DISABLE: c_int = 1;

    let mut old = 0;
    // SAFETY: `old` is to be written.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut old) };
    let result = function();
    // SAFETY: The state is the one from before; the other is not asked for.
    unsafe { pthread_setcancelstate(old, std::ptr::null_mut()) };
    result
}

/// Takes an event if there is one.
///
/// # Safety
///
/// As [`ibv_get_async_event`].
unsafe fn look(context: *mut ibv_context, event: *mut ibv_async_event) -> Look {
    let Some(device) = Device::find(context) else {
        return Look::NotOurs;
    };
    let _turn = device.reading.lock().unwrap();
    // SAFETY: The caller's context is open.
    let async_fd = unsafe { (*context).async_fd };
    let mut own = readable(async_fd);
    // SAFETY: `own` is one descriptor.
    if unsafe { libc::poll(&mut own, 1, 0) } > 0 {
        // This does not block: no other thread of this process takes events meanwhile.
        // SAFETY: The caller's context is open, and `event` is to be written.
        if unsafe { real::get_async_event(context, event) } != 0 {
            return Look::Failed;
        }
        // SAFETY: `event` was just filled.
        unsafe { adopt(&mut *event) };
        return Look::Event;
    }
    for channel in device.channels() {
        let mut records = [Event::default()];
        let mut read = channel.read(&mut records);
        // OFED has no event that is of no QP.
        while read.is_ok() && records[0].event_type() == EventType::OVERRUN {
            read = channel.read(&mut records);
        }
        match read {
            Ok(_) => {
                // SAFETY: The caller's `event` is to be written.
                unsafe { event.write(translate(&records[0])) };
                return Look::Event;
            }
            Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EINTR) => {}
            Err(error) => {
                set_errno(error.errno());
                return Look::Failed;
            }
        }
    }
    let events = device.events.as_raw_fd();
    // Programs set the flag of the descriptor they see: this one, or libibverbs' own if they
    // were compiled without <infiniband/ofa_xrc.h>.
    if is_nonblocking(events) || is_nonblocking(async_fd) {
        set_errno(libc::EAGAIN);
        return Look::Failed;
    }
    Look::Wait(events)
}

fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: F_GETFL touches no memory.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// `fd`, to be polled for input.
fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// OFED's form of an event of a receive QP.
///
/// OFED had no QP that is destroyed under a registration; its programs get an event that ends the
/// connection.
fn translate(record: &Event) -> ibv_async_event {
    let event_type = match record.event_type() {
        EventType::QP_GONE => IBV_EVENT_QP_FATAL,
        other => other.raw(),
    };
    ibv_async_event {
        element: ibv_async_event_element {
            xrc_qp_num: record.qp_num(),
        },
        event_type: event_type | IBV_XRC_QP_EVENT_FLAG,
    }
}

/// Whether an event of libibverbs has a QP as its element.
fn is_of_qp(event_type: u32) -> bool {
    let event_type = EventType::from_raw(event_type);
    event_type != EventType::QP_GONE && EventType::ALL.contains(&event_type)
}

/// Gives an event of a pair's target to the initiator. The target counts it until the program
/// acknowledges it, so that a pair is not destroyed before.
///
/// # Safety
///
/// `event` came from libibverbs.
unsafe fn adopt(event: &mut ibv_async_event) {
    if !is_of_qp(event.event_type) {
        return;
    }
    // SAFETY: It is of a QP.
    let target = unsafe { event.element.qp };
    if let Some(initiator) = qp::adopt_event(target) {
        event.element.qp = initiator;
    }
}

/// Takes the next event, of libibverbs or of a receive QP, and waits for one unless `async_fd` is
/// non-blocking.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        // SAFETY: The caller's context is open, and `event` is to be written.
        match uncancelled(|| unsafe { look(context, event) }) {
            Look::Event => return 0,
            Look::Failed => return -1,
            Look::Wait(fd) => {
                let mut fd = readable(fd);
                // SAFETY: `fd` is one descriptor.
                if unsafe { libc::poll(&mut fd, 1, -1) } < 0 {
                    return -1;
                }
            }
            Look::NotOurs => {
                // SAFETY: The caller's context is open, and `event` is to be written.
                let result = unsafe { real::get_async_event(context, event) };
                if result == 0 {
                    // SAFETY: `event` was just filled.
                    uncancelled(|| unsafe { adopt(&mut *event) });
                }
                return result;
            }
        }
    }
}

/// Acknowledges an event. Those of receive QPs need none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: The caller's event was filled by `ibv_get_async_event()`.
    let mut own = unsafe { *event };
    if own.event_type & IBV_XRC_QP_EVENT_FLAG != 0 {
        return;
    }
    uncancelled(|| {
        if is_of_qp(own.event_type) {
            // SAFETY: An event of these types is a QP's.
            own.element.qp = qp::counting(unsafe { own.element.qp });
        }
        // SAFETY: The caller's event, with the QP that libibverbs gave it, which is not destroyed
        // before this.
        unsafe { real::ack_async_event(&mut own) }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrc_rcv::ffi::xrc_rcv_event;

    fn event(event_type: u32) -> ibv_async_event {
        let raw = xrc_rcv_event {
            qp_num: 0x1234,
            type_: event_type,
            count: 1,
            ..Default::default()
        };
        // SAFETY: `Event` is a transparent wrapper of the struct.
        translate(&unsafe { std::mem::transmute::<xrc_rcv_event, Event>(raw) })
    }

    #[test]
    fn events_are_flagged_and_carry_the_number() {
        let access_error = event(3);
        assert_eq!(access_error.event_type, 0x8000_0003);
        // SAFETY: The event is flagged.
        assert_eq!(unsafe { access_error.element.xrc_qp_num }, 0x1234);
        assert_eq!(event(63).event_type, 0x8000_0001);
    }
}
