// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Devices, shared receive queues, memory regions and sending ends of libibverbs (feature `verbs`).
//!
//! Enough, without unsafe code, for a program that receives messages through a receive QP and lets
//! its peers read memory ([`Srq`], [`Region`]), and for such a peer ([`Initiator`]). [`TargetQp`]
//! is the receiving end without the module, and [`RcQp`] either end of a connection without XRC.
//! Programs with a binding of their own use [`Device::from_ibv`] and create their SRQs by it, with
//! [`Domain::as_ibv`](crate::Domain::as_ibv).
//!
//! This module is no binding of all verbs. An [`Initiator`] sends, reads, writes, and does atomics;
//! with the feature `tokio`, `Requests` has these as futures of any number of tasks. A receive
//! copies its message, so that the buffer is posted again at once, and a message is its bytes:
//! immediate data, which an [`Srq`] would have to return beside or instead of them, belong to a
//! general binding.
//!
//! Objects keep alive those that they use, so they may be dropped in any order.
//!
//! # Why not another binding
//!
//! The examples need calls that neither `sideway` (0.4.3) nor `ibverbs` (0.9.2) has:
//!
//! * [`Srq`]: neither has SRQs.
//! * [`Initiator`]: a request of neither can name an SRQ.
//! * [`TargetQp`]: neither gives a QP an XRC domain, or opens a QP.
//! * Waiting: both poll CQs, without `ibv_req_notify_cq()` and `ibv_get_cq_event()`, so neither can
//!   have requests or messages as futures.
//! * [`Region`] and [`Memory`]: a region holds its memory, and a request its region, so that no
//!   unsafe code is needed. `sideway` leaves both to its callers, who register and post in unsafe
//!   blocks. The memory of `ibverbs` is that of one process.
//!
//! Both open devices, query addresses and have RC QPs. To open a device and a PD, query an address
//! and register memory takes 4 statements here, and 10 with `sideway`, one of which is unsafe; a
//! program is built from 3 crates, and from 55 with `sideway`. [`RcQp`] is an initiator with the
//! receives of an SRQ, and waits; a QP of `sideway` can only be polled.

mod import;
mod initiator;
mod memory;
mod object;
mod rc;
mod receives;
mod region;
#[cfg(feature = "tokio")]
mod requests;
mod srq;
#[cfg(feature = "tokio")]
mod stream;
mod target;

pub use crate::completion::Completion;
pub use import::ImportedRegion;
pub use initiator::Initiator;
pub use memory::Memory;
pub use rc::RcQp;
pub use region::{Region, Remote};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use requests::Requests;
pub use srq::Srq;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use stream::MessageStream;
pub use target::TargetQp;

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::attr::Path;
use crate::device::Device;
use crate::error::{Cause, Error, Result};
use crate::ffi::{ibv_context, ibv_device, ibv_gid};
use crate::verbs_sys::ibv_port_attr;

#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid)
    -> c_int;
}

/// Closes a context when dropped.
struct Open(NonNull<ibv_context>);

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl Send for Open {}
// SAFETY: libibverbs' objects may be used from several threads at once.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: `self` owns the context, and everything made through it was dropped.
        unsafe { ibv_close_device(self.0.as_ptr()) };
    }
}

/// The devices of the node.
struct List(NonNull<*mut ibv_device>);

impl List {
    /// `None` if ib_uverbs is not loaded.
    fn new() -> std::result::Result<Option<List>, Cause> {
        // SAFETY: A null count is allowed.
        let list = unsafe { ibv_get_device_list(std::ptr::null_mut()) };
        match NonNull::new(list) {
            Some(list) => Ok(Some(List(list))),
            None if Cause::last() == Cause::Os(libc::ENOSYS) => Ok(None),
            None => Err(Cause::last()),
        }
    }

    /// The devices, each with its name.
    fn iter(&self) -> impl Iterator<Item = (*mut ibv_device, &CStr)> {
        (0..)
            // SAFETY: The list ends with a null, at which the iteration stops.
            .map(|i| unsafe { *self.0.as_ptr().add(i) })
            .take_while(|device| !device.is_null())
            .map(|device| {
                // SAFETY: The device is alive as long as the list, and its name is a C string in
                // it.
                let name = unsafe { CStr::from_ptr(ibv_get_device_name(device)) };
                (device, name)
            })
    }

    fn find(&self, name: &str) -> Option<*mut ibv_device> {
        self.iter()
            .find(|(_, found)| found.to_bytes() == name.as_bytes())
            .map(|(device, _)| device)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: It came from `ibv_get_device_list()`; an open context holds its device.
        unsafe { ibv_free_device_list(self.0.as_ptr()) };
    }
}

impl Device {
    /// The names of the devices that processes of this network namespace can open, for
    /// [`open`](Self::open); none without RDMA.
    ///
    /// # Errors
    ///
    /// Those of `ibv_get_device_list()`.
    pub fn list() -> Result<Vec<String>> {
        let list =
            List::new().map_err(|cause| Error::new(&"RDMA".into(), "list the devices", cause))?;
        let name = |(_, name): (_, &CStr)| name.to_string_lossy().into_owned();
        Ok(list.iter().flat_map(List::iter).map(name).collect())
    }

    /// Opens the device called `name`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none ([`list`](Self::list) has their names), and those of
    /// `ibv_open_device()`.
    pub fn open(name: &str) -> Result<Device> {
        let open = || {
            let list = List::new()?;
            let device = list.as_ref().and_then(|list| list.find(name));
            let device = device.ok_or(Cause::Os(libc::ENODEV))?;
            // SAFETY: `device` is alive as long as the list.
            NonNull::new(unsafe { ibv_open_device(device) }).ok_or_else(Cause::last)
        };
        let context =
            open().map_err(|cause| Error::new(&Arc::from(name), "open the device", cause))?;
        // SAFETY: The context was just opened, and its owner closes it.
        Ok(unsafe { Device::from_ibv(context, Open(context)) })
    }

    /// The kernel's number of the device called `name`, as rdma(8) shows it, if libibverbs knows
    /// it.
    ///
    /// It identifies a device of all network namespaces as long as it is there. A name does so only
    /// in its own namespace, and can change.
    pub fn index_of(name: &str) -> Option<u32> {
        let list = List::new().ok()??;
        // SAFETY: The device is alive as long as the list.
        let index = unsafe { ibv_get_device_index(list.find(name)?) };
        u32::try_from(index).ok()
    }

    /// The file in `/dev/infiniband` of the device called `name`, such as `uverbs0`, if libibverbs
    /// knows it.
    ///
    /// sysfs has the files of the devices of all network namespaces, which can have the same name.
    pub fn uverbs_of(name: &str) -> Option<String> {
        let list = List::new().ok()??;
        // SAFETY: The device is alive as long as the list, and the name of its file is a C string
        // in it.
        let file = unsafe { CStr::from_ptr((&raw const (*list.find(name)?).dev_name).cast()) };
        Some(file.to_str().ok()?.to_owned())
    }

    /// Queries what peers have to know of `port` to connect to it, by entry `gid_index` of its GID
    /// table.
    ///
    /// # Errors
    ///
    /// Those of `ibv_query_port()` and `ibv_query_gid()`.
    pub fn query_address(&self, port: u8, gid_index: u8) -> Result<Address> {
        let error = self.error("query the port");
        let mut attr = ibv_port_attr::default();
        // SAFETY: The context is open as long as `self` exists, and the struct has all that is
        // written.
        match unsafe { ibv_query_port(self.as_ibv(), port, &mut attr) } {
            0 => {}
            errno => return Err(error(Cause::Os(errno))),
        }
        let mut gid = ibv_gid::default();
        // SAFETY: The context is open as long as `self` is, and `gid` is to be written.
        match unsafe { ibv_query_gid(self.as_ibv(), port, gid_index.into(), &mut gid) } {
            0 => Ok(Address {
                lid: attr.lid,
                gid: gid.raw.0,
            }),
            _ => Err(error(Cause::last())),
        }
    }
}

/// The address of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Its LID; 0 with RoCE, which has none.
    pub lid: u16,
    /// A GID of it.
    pub gid: [u8; 16],
}

impl Address {
    /// The path to it from local port `port`: within a subnet by its LID, with RoCE by its GID and
    /// entry `sgid_index` of the local port's.
    pub fn path_from(&self, port: u8, sgid_index: u8) -> Path {
        match self.lid {
            0 => Path::gid(port, self.gid, sgid_index),
            lid => Path::lid(port, lid),
        }
    }
}
