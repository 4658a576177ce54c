// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Memory that devices and other processes access at the same time.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Memory of a `memfd_create(2)`, as a slice of atomic words; clones are the same memory.
///
/// Others change it meanwhile: devices, other processes, and peers with the key of a
/// [`Region`](super::Region) of it. So it is never borrowed as bytes. A word is in the byte order
/// of the machine; a peer with another one sees it swapped.
///
/// The memory stays as long as a descriptor of it is open in any process ([`AsFd`]), or it is
/// registered in an open device.
///
/// # Examples
///
/// ```
/// use std::os::fd::AsFd;
/// use std::sync::atomic::Ordering::Relaxed;
/// use xrc_rcv::verbs::Memory;
///
/// # fn main() -> std::io::Result<()> {
/// let memory = Memory::new("table", 512)?;
/// memory[7].store(1, Relaxed);
/// // As another process does with a descriptor that it was given.
/// let same = Memory::from_fd(memory.as_fd().try_clone_to_owned()?)?;
/// assert_eq!((same.len(), same[7].load(Relaxed)), (512, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

struct Inner {
    words: NonNull<AtomicU64>,
    length: usize,
    fd: OwnedFd,
}

// SAFETY: The words are atomic, and mapped until this is dropped.
unsafe impl Send for Inner {}
// SAFETY: The words are atomic, so that several threads may use them at once.
unsafe impl Sync for Inner {}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

impl Memory {
    /// Creates memory of `length` words of zeroes, which is called `name` in `/proc`. Its size is
    /// sealed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `name` has a zero byte or `length` is 0 or too much; those of `memfd_create(2)`
    /// and `mmap(2)`.
    pub fn new(name: &str, length: usize) -> io::Result<Memory> {
        let name = CString::new(name)?;
        let size = length.checked_mul(size_of::<u64>()).ok_or_else(invalid)?;
        let size = libc::off_t::try_from(size).map_err(|_| invalid())?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: `name` is a C string.
        let fd = checked(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
        // SAFETY: It was just opened.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: Neither call touches memory.
        unsafe {
            checked(libc::ftruncate(fd.as_raw_fd(), size))?;
            checked(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
        }
        Memory::from_fd(fd)
    }

    /// The memory of a descriptor that [`as_fd`](AsFd::as_fd) of another process has given.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not the descriptor of a memfd, of one that can shrink, or of one whose
    /// size is no multiple of 8; those of `mmap(2)`.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Memory> {
        // SAFETY: The call touches no memory.
        let seals = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(invalid());
        }
        // SAFETY: `stat` is all integers, for which zero is a value, and is there to be written.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            checked(libc::fstat(fd.as_raw_fd(), &mut stat))?;
            stat.st_size as usize
        };
        if size % size_of::<u64>() != 0 {
            return Err(invalid());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: A new mapping replaces no other.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Memory(Arc::new(Inner {
            words: NonNull::new(map.cast()).ok_or_else(invalid)?,
            length: size / size_of::<u64>(),
            fd,
        })))
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: The words are mapped as long as `self` exists, and because the file cannot shrink
        // there is memory behind them. Whatever changes them, they are words, and only accessed
        // atomically.
        unsafe { std::slice::from_raw_parts(self.0.words.as_ptr(), self.0.length) }
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let size = self.length * size_of::<u64>();
        // SAFETY: Nothing borrows the mapping any more. (Regions hold the memory.)
        unsafe { libc::munmap(self.words.as_ptr().cast(), size) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_sealed_memory_is_mapped() {
        for length in [0, usize::MAX, usize::MAX / 8] {
            assert!(Memory::new("none", length).is_err());
        }
        let null = File::open("/dev/null").unwrap();
        let error = Memory::from_fd(null.into()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        // SAFETY: The name is a C string; the descriptor was just opened.
        let shrinking = unsafe {
            let fd = libc::memfd_create(c"shrinking".as_ptr(), libc::MFD_ALLOW_SEALING);
            OwnedFd::from_raw_fd(fd)
        };
        let error = Memory::from_fd(shrinking).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let memory = Memory::new("sealed", 1).unwrap();
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        assert!(file.set_len(0).is_err());
    }
}
