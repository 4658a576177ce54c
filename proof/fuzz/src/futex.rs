// SPDX-License-Identifier: GPL-2.0

//! Waiting for a word of shared memory to change.

use std::sync::atomic::AtomicU32;

/// A time after which a wait ends, so long that it is none.
pub const HOUR: u64 = 3_600_000_000_000;

/// Waits until a thread that wakes one of the bits has changed the word, which has a value until
/// then, or the time is over.
pub fn wait(word: &AtomicU32, value: u32, bits: u32, nanoseconds: u64) {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a place for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let total = now.tv_nsec as u64 + nanoseconds;
    now.tv_sec += (total / 1_000_000_000) as i64;
    now.tv_nsec = (total % 1_000_000_000) as i64;
    // SAFETY: The word and the time are valid during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            value,
            &raw const now,
            std::ptr::null::<u32>(),
            bits,
        )
    };
}

/// Wakes those that wait for one of the bits.
pub fn wake(word: &AtomicU32, bits: u32) {
    // SAFETY: The word is valid during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            i32::MAX,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            bits,
        )
    };
}
