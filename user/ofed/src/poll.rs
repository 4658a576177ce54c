// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Waiting for a context's `async_fd`: the events of its receive QPs wake the program, too.
//!
//! OFED's programs get those events from `async_fd`, and so wait for it with `poll()` and similar
//! calls. No other file can replace it, because libibverbs passes it to the kernel whenever a CQ, a QP
//! or an SRQ is created. So the waiting is widened instead: a call that waits for an `async_fd` to
//! become readable waits for the device's event channel with it. For every other descriptor these
//! functions are the C library's, and so they are for programs without an open device. System calls made past the C library are not seen.
//!
//! Like the C library's, these functions may be called in signal handlers, wherever the signal came
//! in, and in a forked child: they take no lock and call no allocator.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;

use crate::fds::{channel_of, for_each};
use crate::real;

/// So many descriptors are copied to the stack, which may be that of a signal handler; more to pages of
/// their own.
const ON_STACK: usize = 32;

/// Returns the channel of the open device whose events `fd` reports.
fn channel_for(fd: &libc::pollfd) -> Option<RawFd> {
    (fd.events & libc::POLLIN != 0)
        .then(|| channel_of(fd.fd))
        .flatten()
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
    // More than any process can have is for the kernel to refuse.
    let length = match usize::try_from(count) {
        Ok(length @ 1..=0x0fff_ffff) if !fds.is_null() => length,
        _ => return poll(fds, count),
    };
    // SAFETY: By the caller's word.
    let own = unsafe { std::slice::from_raw_parts_mut(fds, length) };
    if !own.iter().any(|fd| channel_for(fd).is_some()) {
        return poll(fds, count);
    }
    let none = libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    if length <= ON_STACK {
        return poll_both(own, &mut [none; 2 * ON_STACK][..2 * length], poll);
    }
    let size = 2 * length * size_of::<libc::pollfd>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: New pages, which touch nothing. (A system call, not an allocator.)
    let pages = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, -1, 0) };
    if pages == libc::MAP_FAILED {
        return -1;
    }
    // SAFETY: The pages are as long, are ours until they are unmapped, and zeroes are descriptors.
    let result = unsafe {
        poll_both(
            own,
            std::slice::from_raw_parts_mut(pages.cast(), 2 * length),
            poll,
        )
    };
    // SAFETY: The pages are not used any more. This does not fail, and leaves errno alone.
    unsafe { libc::munmap(pages, size) };
    result
}

/// Polls with `all`, which has room for each of `own` and for a channel to each.
fn poll_both(
    own: &mut [libc::pollfd],
    all: &mut [libc::pollfd],
    poll: impl FnOnce(*mut libc::pollfd, libc::nfds_t) -> c_int,
) -> c_int {
    let (copies, channels) = all.split_at_mut(own.len());
    copies.copy_from_slice(own);
    for (channel, fd) in channels.iter_mut().zip(own.iter()) {
        *channel = libc::pollfd {
            // A negative one is not polled.
            fd: channel_for(fd).unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        };
    }
    let result = poll(all.as_mut_ptr(), all.len() as libc::nfds_t);
    if result < 0 {
        return result;
    }
    let (copies, channels) = all.split_at(own.len());
    for ((fd, copy), channel) in own.iter_mut().zip(copies).zip(channels) {
        fd.revents = copy.revents;
        // A device that was closed meanwhile has no events.
        if channel.revents & !libc::POLLNVAL != 0 {
            fd.revents |= libc::POLLIN;
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

/// The check of the C library: `size` is the array's size as the compiler knows it.
fn check(count: libc::nfds_t, size: usize) {
    assert!(
        size / size_of::<libc::pollfd>() >= count as usize,
        "buffer overflow detected"
    );
}

/// The descriptors below `count` that are in `set`.
fn members(set: &libc::fd_set, count: c_int) -> impl Iterator<Item = RawFd> {
    // SAFETY: Descriptors below `FD_SETSIZE` are within the set.
    (0..count).filter(|&fd| unsafe { libc::FD_ISSET(fd, set) })
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
    const LIMIT: c_int = libc::FD_SETSIZE as c_int;
    // A longer set than the C library's is a program's own invention, and passed on as it is.
    if read.is_null() || count > LIMIT {
        return select(count, read);
    }
    // SAFETY: All zeroes is an empty set.
    let mut own = unsafe { std::mem::zeroed::<libc::fd_set>() };
    for fd in 0..count {
        // SAFETY: By the caller's word, and `fd` is below `FD_SETSIZE`.
        unsafe {
            if libc::FD_ISSET(fd, read) {
                libc::FD_SET(fd, &mut own);
            }
        }
    }
    let belongs = |own: &libc::fd_set, async_fd: RawFd, channel: RawFd| {
        // SAFETY: Descriptors below `FD_SETSIZE` are within the set.
        async_fd < count && channel < LIMIT && unsafe { libc::FD_ISSET(async_fd, own) }
    };
    let mut all = own;
    let mut count_all = count;
    for_each(|async_fd, channel| {
        if belongs(&own, async_fd, channel) {
            // SAFETY: `channel` is below `FD_SETSIZE`.
            unsafe { libc::FD_SET(channel, &mut all) };
            count_all = count_all.max(channel + 1);
        }
    });
    if count_all == count && members(&all, count).eq(members(&own, count)) {
        return select(count, read);
    }
    let mut result = select(count_all, &mut all);
    if result < 0 {
        return result;
    }
    result -= members(&all, count_all).count() as c_int;
    let mut ready = all;
    for_each(|async_fd, channel| {
        // SAFETY: Both are below `FD_SETSIZE`.
        unsafe {
            if belongs(&own, async_fd, channel) && libc::FD_ISSET(channel, &all) {
                libc::FD_SET(async_fd, &mut ready);
            }
        }
    });
    for fd in members(&own, count) {
        // SAFETY: As above.
        unsafe {
            if libc::FD_ISSET(fd, &ready) {
                result += 1;
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
    // The result is ignored: the channel may have been added after the descriptor.
    // SAFETY: A valid event, or none where none is read.
    unsafe {
        if real::epoll_ctl(epoll, op, channel, event) != 0 && op == libc::EPOLL_CTL_MOD {
            real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, channel, event);
        }
    }
    0
}
