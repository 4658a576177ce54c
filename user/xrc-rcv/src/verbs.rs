// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Opening devices and XRC domains through libibverbs.
//!
//! Just enough for a program whose only verbs are this crate's; others bring a binding of their own
//! and use [`Domain::from_ibv`](crate::Domain::from_ibv).

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::context::Context;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::ffi::{self, ibv_context, ibv_device, ibv_xrcd};

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
}

/// An open RDMA device, closed when dropped.
#[derive(Debug)]
pub struct Device {
    context: NonNull<ibv_context>,
}

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: As above, and from several at once.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device called `name`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none, and those of `ibv_open_device()`.
    pub fn open(name: &str) -> Result<Device> {
        // SAFETY: A null count is allowed.
        let list = unsafe { ibv_get_device_list(std::ptr::null_mut()) };
        if list.is_null() {
            return Err(Error::last());
        }
        let mut result = Err(Error::Os(libc::ENODEV));
        for i in 0.. {
            // SAFETY: The list ends with a null, at which the loop stops.
            let device = unsafe { *list.add(i) };
            if device.is_null() {
                break;
            }
            // SAFETY: `device` is alive as long as the list, and its name is a C string in it.
            let found = unsafe { CStr::from_ptr(ibv_get_device_name(device)) };
            if found.to_bytes() == name.as_bytes() {
                // SAFETY: As above.
                result = NonNull::new(unsafe { ibv_open_device(device) })
                    .map(|context| Device { context })
                    .ok_or_else(Error::last);
                break;
            }
        }
        // SAFETY: `list` came from `ibv_get_device_list()`; an open context holds its device.
        unsafe { ibv_free_device_list(list) };
        result
    }

    /// The device's uverbs file.
    pub fn context(&self) -> Context<'_> {
        // SAFETY: The context is open as long as `self` is, which the result borrows.
        unsafe { Context::from_ibv(self.context.as_ptr()) }
            .expect("a device that libibverbs opened through the kernel")
    }

    /// The open device for calls that this crate does not wrap.
    pub fn as_ibv(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// Opens the XRC domain of `file`, which processes share by opening the same file, making it
    /// if there is none; any open mode will do, and the file may be closed or unlinked afterwards.
    /// Without a file the domain is this process's own.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC, and those of `ibv_open_xrcd()`.
    pub fn open_domain(&self, file: Option<BorrowedFd<'_>>) -> Result<OpenDomain<'_>> {
        self.open_domain_with(file, libc::O_CREAT)
    }

    /// As [`open_domain`](Self::open_domain), but fails with `EAGAIN` if there is no such domain.
    pub fn open_existing_domain(&self, file: BorrowedFd<'_>) -> Result<OpenDomain<'_>> {
        self.open_domain_with(Some(file), 0)
    }

    fn open_domain_with(
        &self,
        file: Option<BorrowedFd<'_>>,
        oflags: c_int,
    ) -> Result<OpenDomain<'_>> {
        let mut init_attr = ffi::ibv_xrcd_init_attr {
            comp_mask: ffi::IBV_XRCD_INIT_ATTR_FD | ffi::IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.map_or(-1, |file| file.as_raw_fd()),
            oflags,
        };
        // SAFETY: The context is open and came from libibverbs.
        let ops = unsafe { ffi::verbs_context_xrc_ops::of(self.context.as_ptr()) };
        let open_xrcd = ops
            .and_then(|ops| ops.open_xrcd)
            .ok_or(Error::Os(libc::EOPNOTSUPP))?;
        // SAFETY: The provider's function is given its own context and a valid attribute.
        let xrcd = unsafe { open_xrcd(self.context.as_ptr(), &mut init_attr) };
        match NonNull::new(xrcd) {
            Some(xrcd) => Ok(OpenDomain { device: self, xrcd }),
            None => Err(Error::last()),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `self` owns the context, and nothing borrows it any more.
        unsafe { ibv_close_device(self.context.as_ptr()) };
    }
}

/// An XRC domain held open, closed when dropped.
#[derive(Debug)]
pub struct OpenDomain<'device> {
    device: &'device Device,
    xrcd: NonNull<ibv_xrcd>,
}

impl OpenDomain<'_> {
    /// The domain as this crate's calls take it.
    ///
    /// # Errors
    ///
    /// Those of [`Domain::from_ibv`].
    pub fn domain(&self) -> Result<Domain<'_>> {
        // SAFETY: The domain is open as long as `self` is, which the result borrows.
        unsafe { Domain::from_ibv(self.xrcd.as_ptr()) }
    }

    /// The domain for calls that this crate does not wrap.
    pub fn as_ibv(&self) -> *mut ibv_xrcd {
        self.xrcd.as_ptr()
    }

    /// Closes the domain, and says whether that succeeded.
    ///
    /// # Errors
    ///
    /// `EBUSY` while this process has SRQs or QPs of its own in the domain; it then stays open
    /// until the device is closed.
    pub fn close(self) -> io::Result<()> {
        let domain = std::mem::ManuallyDrop::new(self);
        match domain.close_in_place() {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn close_in_place(&self) -> c_int {
        // SAFETY: The context is open and came from libibverbs.
        let ops = unsafe { ffi::verbs_context_xrc_ops::of(self.device.as_ibv()) };
        match ops.and_then(|ops| ops.close_xrcd) {
            // SAFETY: The provider's function is given its own domain, which only `self` has.
            Some(close_xrcd) => unsafe { close_xrcd(self.xrcd.as_ptr()) },
            None => libc::EOPNOTSUPP,
        }
    }
}

impl Drop for OpenDomain<'_> {
    fn drop(&mut self) {
        self.close_in_place();
    }
}
