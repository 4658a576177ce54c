// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An XRC domain that the process holds, and the receive QPs in it.
//!
//! Holding the domain is the authority for everything here: a QP number alone is none.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::attr::QpAttr;
use crate::borrowed;
use crate::channel::EventChannel;
use crate::device::Device;
use crate::error::{Cause, Result};
use crate::ffi::ibv_xrcd;
use crate::receive_qp::QpInfo;
use crate::uapi::xrc_rcv_qp_info;
use crate::verbs_sys;

/// An XRC domain held open. Clones refer to the same domain, which is closed when the last of them
/// and of the objects made through it is dropped.
///
/// # Examples
///
/// A server keeps everything in one struct, in any order, and hands parts of it to threads:
///
/// ```no_run
/// use xrc_rcv::{AllocOptions, Device, Domain, EventChannel, RegisterOptions, Registration};
///
/// struct Server {
///     device: Device,
///     domain: Domain,
///     channel: EventChannel,
///     registrations: Vec<Registration>,
/// }
///
/// impl Server {
///     fn new(device: Device, path: &str) -> xrc_rcv::Result<Server> {
///         let domain = device.open_domain_at(path)?;
///         let channel = domain.create_event_channel()?;
///         let first = domain.alloc(&AllocOptions::new().channel(&channel))?;
///         Ok(Server { device, domain, channel, registrations: vec![first] })
///     }
///
///     fn watch(&self) -> std::thread::JoinHandle<()> {
///         let domain = self.domain.clone();
///         std::thread::spawn(move || {
///             for qp in domain.receive_qps().flatten() {
///                 println!("{:#x}", qp.qp_num());
///             }
///         })
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Domain(Arc<Inner>);

struct Inner {
    xrcd: NonNull<ibv_xrcd>,
    /// Whether the domain was opened here, and is still to be closed.
    to_be_closed: bool,
    /// The channel of registrations without events.
    unread: Mutex<Option<Arc<EventChannel>>>,
    /// Keeps others from closing the domain.
    _owner: Option<Box<dyn Any + Send + Sync>>,
    /// The last to be dropped.
    device: Device,
}

// SAFETY: libibverbs' objects may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: libibverbs' objects may be used from several threads at once.
unsafe impl Sync for Inner {}

impl Domain {
    /// The domain that another binding has opened on `device`.
    ///
    /// `owner` is dropped when the domain is no longer used, after everything made through it.
    ///
    /// # Safety
    ///
    /// `xrcd` came from `ibv_open_xrcd()` or its like on the context of `device`, and stays open at
    /// least until `owner` is dropped.
    pub unsafe fn from_ibv(
        device: &Device,
        xrcd: NonNull<ibv_xrcd>,
        owner: impl Send + Sync + 'static,
    ) -> Domain {
        Domain(Arc::new(Inner {
            xrcd,
            to_be_closed: false,
            unread: Mutex::default(),
            _owner: Some(Box::new(owner)),
            device: device.clone(),
        }))
    }

    fn open(
        device: &Device,
        file: Option<BorrowedFd<'_>>,
        oflags: i32,
    ) -> borrowed::Result<Domain> {
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: The context is open as long as `device` exists.
        let xrcd = unsafe { verbs_sys::open_xrcd(device.as_ibv(), fd, oflags) }?;
        Ok(Domain(Arc::new(Inner {
            xrcd,
            to_be_closed: true,
            unread: Mutex::default(),
            _owner: None,
            device: device.clone(),
        })))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The domain for calls that this crate does not wrap.
    pub fn as_ibv(&self) -> *mut ibv_xrcd {
        self.0.xrcd.as_ptr()
    }

    pub(crate) fn borrowed(&self) -> borrowed::Result<borrowed::Domain<'_>> {
        // SAFETY: The domain and its device are open as long as `self` is, which the result
        // borrows.
        unsafe { borrowed::Domain::from_ibv(self.as_ibv()) }
    }

    /// Closes the domain, and returns the error that dropping it would ignore.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a clone, a registration or an SRQ of this crate uses the domain, which is
    /// closed with the last of them; and while the process has other SRQs or QPs in it: it then
    /// stays open until the device is closed.
    pub fn close(self) -> Result<()> {
        let error = self.device().error("close the domain");
        let inner = Arc::into_inner(self.0);
        let mut inner = inner.ok_or_else(|| error(Cause::Os(libc::EBUSY)))?;
        match inner.close() {
            0 => Ok(()),
            errno => Err(error(Cause::Os(errno))),
        }
    }

    /// Creates an event channel of the domain, with which processes register with receive QPs, and
    /// from which they read events.
    ///
    /// The channel does not keep the domain open; its registrations do.
    ///
    /// # Errors
    ///
    /// `EPERM` if the domain has an inode that is not a regular file's, `ENOMEM`.
    pub fn create_event_channel(&self) -> Result<EventChannel> {
        self.create_channel(|domain| domain.create_event_channel())
    }

    /// Creates an event channel that is registered with all receive QPs of the domain, those that
    /// exist and those that are created while it is open. It *keeps* them if `keeps` is set, and
    /// the process may write to the domain's file.
    ///
    /// It gets [`QP_ADDED`](crate::EventType::QP_ADDED) of each new QP first, and
    /// [`QP_GONE`](crate::EventType::QP_GONE) last. [`receive_qps`](Self::receive_qps), called
    /// after this, lists the others, of which the number of events before is not known. The
    /// [cookie](crate::Event::cookie) of its events is the label of the QP. It can be used to
    /// create QPs, and it registers with no other.
    ///
    /// # Errors
    ///
    /// `EPERM` if the domain has an inode that is not a regular file's, `EDQUOT` if it has as many
    /// such channels as [`Caps::max_registrations_per_qp`](crate::Caps) allows, `ENOMEM`.
    pub fn create_event_channel_of_all(&self, keeps: bool) -> Result<EventChannel> {
        self.create_channel(|domain| domain.create_event_channel_of_all(keeps))
    }

    fn create_channel(
        &self,
        create: impl FnOnce(&borrowed::Domain<'_>) -> borrowed::Result<EventChannel>,
    ) -> Result<EventChannel> {
        self.borrowed()
            .and_then(|domain| create(&domain))
            .map(|channel| channel.of_device(self.device().name().into()))
            .map_err(self.device().error("create an event channel"))
    }

    /// The channel of registrations without events.
    pub(crate) fn unread_channel(&self) -> Result<Arc<EventChannel>> {
        let mut unread = self.0.unread.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*unread {
            Some(channel) => channel.clone(),
            None => unread
                .insert(Arc::new(
                    self.create_channel(|domain| domain.create_unread_channel())?,
                ))
                .clone(),
        })
    }

    /// Modifies a receive QP; the caller need not be registered with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP, or its state does not allow this; `EACCES` if the
    /// process neither owns the domain's file, nor may write to it, nor created the QP, and if a
    /// security module denies the process, or the QP's creator, a partition.
    pub fn modify(&self, qp_num: u32, attr: &QpAttr) -> Result<()> {
        self.borrowed()
            .and_then(|domain| domain.modify(qp_num, attr))
            .map_err(|cause| self.error("modify receive QP", qp_num, cause))
    }

    /// All attributes of a receive QP; the caller need not be registered with it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP.
    pub fn query(&self, qp_num: u32) -> Result<(QpAttr, QpInfo)> {
        self.borrowed()
            .and_then(|domain| domain.query(qp_num))
            .map_err(|cause| self.error("query receive QP", qp_num, cause))
    }

    /// Destroys a receive QP of [`Lifetime::Domain`](crate::Lifetime::Domain).
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP or it is not of that lifetime, `EBUSY` if a
    /// registration keeps it, `EACCES` if the process neither owns the domain's file, nor may write
    /// to it, nor created the QP.
    pub fn destroy(&self, qp_num: u32) -> Result<()> {
        self.borrowed()
            .and_then(|domain| domain.destroy(qp_num))
            .map_err(|cause| self.error("destroy receive QP", qp_num, cause))
    }

    /// Destroys a receive QP, whatever its lifetime is and whoever keeps it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP, `EACCES` if the process neither owns the domain's
    /// file nor created the QP, `EOPNOTSUPP` if the kernel's version of the interface is less than
    /// 2.
    pub fn destroy_forced(&self, qp_num: u32) -> Result<()> {
        self.borrowed()
            .and_then(|domain| domain.destroy_forced(qp_num))
            .map_err(|cause| self.error("destroy receive QP", qp_num, cause))
    }

    /// Fills `infos` with the receive QPs of the domain in ascending order of their numbers, those
    /// after number `after` if given. Returns how many were filled, and how many the domain has.
    pub fn query_page(
        &self,
        after: Option<u32>,
        infos: &mut [xrc_rcv_qp_info],
    ) -> Result<(usize, u32)> {
        self.borrowed()
            .and_then(|domain| domain.query_page(after, infos))
            .map_err(self.device().error("list the receive QPs"))
    }

    /// The receive QPs of the domain, in ascending order of their numbers.
    ///
    /// QPs that are created or destroyed meanwhile may or may not be listed; all others are, once.
    pub fn receive_qps(&self) -> QpInfos {
        QpInfos {
            domain: self.clone(),
            after: None,
            page: Vec::new().into_iter(),
            done: false,
        }
    }

    pub(crate) fn error(&self, operation: &'static str, qp_num: u32, cause: Cause) -> crate::Error {
        self.device().error(operation)(cause).of_qp(qp_num)
    }
}

impl Device {
    /// Opens the XRC domain of `file`, which processes share by opening the same file, creating it
    /// if there is none; any open mode will do, and the file may be closed or unlinked afterwards.
    /// Without a file the domain is this process's own.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC, and those of `ibv_open_xrcd()`.
    pub fn open_domain(&self, file: Option<BorrowedFd<'_>>) -> Result<Domain> {
        Domain::open(self, file, libc::O_CREAT)
            .map_err(|cause| self.error("open the domain of")(cause).of_file(path_of(file)))
    }

    /// As [`open_domain`](Self::open_domain), but fails with `EAGAIN` if there is no such domain.
    pub fn open_existing_domain(&self, file: BorrowedFd<'_>) -> Result<Domain> {
        let file = Some(file);
        Domain::open(self, file, 0)
            .map_err(|cause| self.error("open the domain of")(cause).of_file(path_of(file)))
    }

    /// As [`open_domain`](Self::open_domain), of the existing file at `path`.
    pub fn open_domain_at(&self, path: impl AsRef<Path>) -> Result<Domain> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| {
            let cause = Cause::Os(error.raw_os_error().unwrap_or(libc::EIO));
            self.error("open the file")(cause).of_file(Some(path.to_owned()))
        })?;
        self.open_domain(Some(file.as_fd()))
    }
}

/// Returns the name of `file`, for an error.
fn path_of(file: Option<BorrowedFd<'_>>) -> Option<PathBuf> {
    let fd = file?.as_raw_fd();
    Some(std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or("?".into()))
}

impl Inner {
    /// Returns 0 or an errno.
    fn close(&mut self) -> i32 {
        if !std::mem::take(&mut self.to_be_closed) {
            return 0;
        }
        // SAFETY: The domain is open and only `self` has it. It is closed once.
        unsafe { verbs_sys::close_xrcd(self.xrcd.as_ptr()) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("device", &self.device().name())
            .finish_non_exhaustive()
    }
}

/// Iterator over the receive QPs of a domain.
#[derive(Debug)]
pub struct QpInfos {
    domain: Domain,
    after: Option<u32>,
    page: std::vec::IntoIter<xrc_rcv_qp_info>,
    done: bool,
}

impl Iterator for QpInfos {
    type Item = Result<QpInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        const PAGE: usize = 256;

        if self.page.len() == 0 && !self.done {
            let mut page = vec![xrc_rcv_qp_info::default(); PAGE];
            match self.domain.query_page(self.after, &mut page) {
                Ok((count, _)) => page.truncate(count),
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
            self.after = page.last().map(|info| info.qp_num);
            self.done = page.is_empty();
            self.page = page.into_iter();
        }
        self.page.next().map(|info| Ok(QpInfo(info)))
    }
}
