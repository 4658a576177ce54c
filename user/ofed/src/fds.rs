// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Which event channel belongs to which `async_fd`, for functions that run in signal handlers: a table
//! without a lock, read without allocating.
//!
//! A place holds both descriptors in one word, so that it is never half written. Places are used
//! again; the table only grows, by chunks, where devices are opened.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const PLACES: usize = 32;

/// In a place without descriptors: both are -1.
const EMPTY: u64 = u64::MAX;

struct Chunk {
    places: [AtomicU64; PLACES],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Chunk {
        Chunk {
            places: [const { AtomicU64::new(EMPTY) }; PLACES],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Chunk> {
        // SAFETY: Chunks are leaked, and published when they are complete.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The next chunk, made if there is none.
    fn grow(&self) -> &'static Chunk {
        let new = Box::into_raw(Box::new(Chunk::new()));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match self
            .next
            .compare_exchange(ptr::null_mut(), new, success, failure)
        {
            // SAFETY: It is published now, and is never freed.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: `new` was not published; `other` is a chunk that was.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

static FIRST: Chunk = Chunk::new();

fn pack(async_fd: RawFd, channel: RawFd) -> u64 {
    (u64::from(async_fd as u32) << u32::BITS) | u64::from(channel as u32)
}

fn unpack(place: u64) -> (RawFd, RawFd) {
    ((place >> u32::BITS) as RawFd, place as RawFd)
}

fn replace(old: u64, new: u64) -> impl Fn(&AtomicU64) -> bool {
    move |place| {
        place
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// Adds a device's descriptors.
pub(crate) fn insert(async_fd: RawFd, channel: RawFd) {
    let mut chunk = &FIRST;
    while !chunk
        .places
        .iter()
        .any(replace(EMPTY, pack(async_fd, channel)))
    {
        chunk = chunk.next().unwrap_or_else(|| chunk.grow());
    }
}

/// Removes the entry that [`insert`] added.
pub(crate) fn remove(async_fd: RawFd, channel: RawFd) {
    let mut chunk = Some(&FIRST);
    while let Some(here) = chunk {
        if here
            .places
            .iter()
            .any(replace(pack(async_fd, channel), EMPTY))
        {
            return;
        }
        chunk = here.next();
    }
}

/// Calls `visit` with each `async_fd` and the channel that belongs to it. Takes no lock and allocates
/// nothing.
pub(crate) fn for_each(mut visit: impl FnMut(RawFd, RawFd)) {
    let mut chunk = Some(&FIRST);
    while let Some(here) = chunk {
        for place in &here.places {
            match place.load(Ordering::Acquire) {
                EMPTY => {}
                place => {
                    let (async_fd, channel) = unpack(place);
                    visit(async_fd, channel);
                }
            }
        }
        chunk = here.next();
    }
}

/// The channel of the device whose `async_fd` is `fd`.
pub(crate) fn channel_of(fd: RawFd) -> Option<RawFd> {
    let mut found = None;
    for_each(|async_fd, channel| {
        if async_fd == fd {
            found = Some(channel);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors that no other test has.
    const BASE: RawFd = 1_000_000;

    #[test]
    fn an_entry_is_found_until_it_is_removed() {
        let count = 3 * PLACES as RawFd;
        for i in 0..count {
            insert(BASE + i, BASE + 2 * i);
        }
        for i in 0..count {
            assert_eq!(channel_of(BASE + i), Some(BASE + 2 * i));
        }
        remove(BASE + 5, BASE + 10);
        assert_eq!(channel_of(BASE + 5), None);
        insert(BASE + 5, 7);
        assert_eq!(channel_of(BASE + 5), Some(7));
        remove(BASE + 5, 7);
        for i in (0..count).filter(|i| *i != 5) {
            remove(BASE + i, BASE + 2 * i);
        }
        let mut left = 0;
        for_each(|async_fd, _| left += usize::from((BASE..2 * BASE).contains(&async_fd)));
        assert_eq!(left, 0);
    }

    #[test]
    fn a_reader_never_sees_halves_of_two() {
        let base = 2 * BASE;
        std::thread::scope(|scope| {
            for writer in 0..2 {
                scope.spawn(move || {
                    for i in (writer..20_000).step_by(2) {
                        insert(base + i, base + i);
                        remove(base + i, base + i);
                    }
                });
            }
            for _ in 0..20_000 {
                for_each(|async_fd, channel| {
                    assert!(async_fd < base || async_fd == channel);
                });
            }
        });
    }
}
