// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Waiting for a context's `async_fd`: the events of its receive QPs wake the program, too.
//!
//! OFED's programs find those events on `async_fd`, and so wait for that with `poll()` and its kin.
//! It has to stay the descriptor it is, because libibverbs hands it to the kernel whenever a CQ, a QP
//! or an SRQ is created; no other file can be put in its place. So the waiting is widened instead:
//! whoever waits for an `async_fd` to become readable waits for the device's event channel with it.
//! For every other descriptor these functions are the C library's, and so they are for programs
//! without an open device. System calls made past the C library are not seen.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;

use crate::context::for_each_channel;
use crate::real;

/// The channel of the device whose `async_fd` is `fd`.
fn channel_of(fd: RawFd) -> Option<RawFd> {
    let mut found = None;
    for_each_channel(|async_fd, channel| {
        if async_fd == fd {
            found = Some(channel);
        }
    });
    found
}

/// Has `poll` wait for `fds` and for the channels that belong to them.
///
/// # Safety
///
/// `fds` are `count` descriptors.
unsafe fn widen_poll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    poll: impl FnOnce(*mut libc::pollfd, libc::nfds_t) -> c_int,
) -> c_int {
    let mut channels: Vec<(usize, RawFd)> = Vec::new();
    for_each_channel(|async_fd, channel| {
        for i in 0..count as usize {
            // SAFETY: By the caller's word.
            let fd = unsafe { &*fds.add(i) };
            if fd.fd == async_fd && fd.events & libc::POLLIN != 0 {
                channels.push((i, channel));
            }
        }
    });
    if channels.is_empty() {
        return poll(fds, count);
    }
    // SAFETY: By the caller's word.
    let own = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let mut all = own.to_vec();
    all.extend(channels.iter().map(|&(_, fd)| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }));
    let result = poll(all.as_mut_ptr(), all.len() as libc::nfds_t);
    if result < 0 {
        return result;
    }
    own.copy_from_slice(&all[..own.len()]);
    for (&(i, _), channel) in channels.iter().zip(&all[own.len()..]) {
        if channel.revents != 0 {
            own[i].revents |= libc::POLLIN;
        }
    }
    own.iter().filter(|fd| fd.revents != 0).count() as c_int
}

/// `poll()`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: The caller's arguments, or copies that are longer.
    unsafe { widen_poll(fds, count, |fds, count| real::poll(fds, count, timeout)) }
}

/// `ppoll()`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: As in `poll()`.
    unsafe {
        widen_poll(fds, count, |fds, count| {
            real::ppoll(fds, count, timeout, mask)
        })
    }
}

/// `poll()` of programs built with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
    size: usize,
) -> c_int {
    check(count, size);
    // SAFETY: The caller's arguments.
    unsafe { poll(fds, count, timeout) }
}

/// `ppoll()` of programs built with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
    size: usize,
) -> c_int {
    check(count, size);
    // SAFETY: The caller's arguments.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// What the C library checks: `size` is what the compiler knows of the array's size.
fn check(count: libc::nfds_t, size: usize) {
    assert!(
        size / size_of::<libc::pollfd>() >= count as usize,
        "buffer overflow detected"
    );
}

/// Has `select` wait for the set `read` and for the channels that belong to it.
///
/// # Safety
///
/// `read` is null or has `count` bits.
unsafe fn widen_select(
    count: c_int,
    read: *mut libc::fd_set,
    select: impl FnOnce(c_int, *mut libc::fd_set) -> c_int,
) -> c_int {
    let limit = libc::FD_SETSIZE as c_int;
    let mut channels: Vec<(RawFd, RawFd)> = Vec::new();
    // A longer set than the C library's is a program's own invention, and passed on as it is.
    if !read.is_null() && count <= limit {
        for_each_channel(|async_fd, channel| {
            // SAFETY: By the caller's word; `async_fd` is within the set.
            if async_fd < count && channel < limit && unsafe { libc::FD_ISSET(async_fd, read) } {
                channels.push((async_fd, channel));
            }
        });
    }
    if channels.is_empty() {
        return select(count, read);
    }
    // SAFETY: All zeroes is an empty set.
    let mut all = unsafe { std::mem::zeroed::<libc::fd_set>() };
    let mut count_all = count;
    for fd in 0..count {
        // SAFETY: By the caller's word, and `fd` is below `FD_SETSIZE`.
        unsafe {
            if libc::FD_ISSET(fd, read) {
                libc::FD_SET(fd, &mut all);
            }
        }
    }
    for &(_, channel) in &channels {
        // SAFETY: `channel` is below `FD_SETSIZE`.
        unsafe { libc::FD_SET(channel, &mut all) };
        count_all = count_all.max(channel + 1);
    }
    let mut result = select(count_all, &mut all);
    if result < 0 {
        return result;
    }
    for (async_fd, channel) in channels {
        // SAFETY: Both are below `FD_SETSIZE`.
        unsafe {
            if libc::FD_ISSET(channel, &all) {
                libc::FD_CLR(channel, &mut all);
                result -= 1;
                if !libc::FD_ISSET(async_fd, &all) {
                    libc::FD_SET(async_fd, &mut all);
                    result += 1;
                }
            }
        }
    }
    for fd in 0..count {
        // SAFETY: As above.
        unsafe {
            if libc::FD_ISSET(fd, &all) {
                libc::FD_SET(fd, read);
            } else {
                libc::FD_CLR(fd, read);
            }
        }
    }
    result
}

/// `select()`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: The caller's arguments, or a copy of the first set.
    unsafe {
        widen_select(count, read, |count, read| {
            real::select(count, read, write, except, timeout)
        })
    }
}

/// `pselect()`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: As in `select()`.
    unsafe {
        widen_select(count, read, |count, read| {
            real::pselect(count, read, write, except, timeout, mask)
        })
    }
}

/// `epoll_ctl()`: the channel is added, changed and removed with its `async_fd`, under the same
/// data, so that the program takes one for the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: The caller's arguments.
    let result = unsafe { real::epoll_ctl(epoll, op, fd, event) };
    if result != 0 {
        return result;
    }
    let Some(channel) = channel_of(fd) else {
        return 0;
    };
    let mut copy;
    let event = if op == libc::EPOLL_CTL_DEL || event.is_null() {
        ptr::null_mut()
    } else {
        // SAFETY: The caller's event.
        copy = unsafe { *event };
        &mut copy
    };
    // Whether the channel was there is of no interest: it may have come after the descriptor.
    // SAFETY: A valid event, or none where none is read.
    unsafe {
        if real::epoll_ctl(epoll, op, channel, event) != 0 && op == libc::EPOLL_CTL_MOD {
            real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, channel, event);
        }
    }
    0
}
