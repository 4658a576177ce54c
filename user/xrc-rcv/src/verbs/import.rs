// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Objects that another process has made, in an open device that outlives it.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use super::Open;
use super::object::{Object, Result, ibv_dereg_mr};
use crate::device::Device;
use crate::error::{Cause, Error};
use crate::ffi::{ibv_context, ibv_pd};
use crate::pd::Pd;
use crate::verbs_sys::ibv_mr;

/// The functions of libibverbs 1.10 (rdma-core 31) and later. They are looked up at run time: what
/// stands for libibverbs in a program's link, such as the library of sideway, need not have them.
struct Functions {
    import_device: unsafe extern "C" fn(c_int) -> *mut ibv_context,
    import_pd: unsafe extern "C" fn(*mut ibv_context, u32) -> *mut ibv_pd,
    unimport_pd: unsafe extern "C" fn(*mut ibv_pd),
    import_mr: unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mr,
    unimport_mr: unsafe extern "C" fn(*mut ibv_mr),
}

impl Functions {
    fn get() -> Result<&'static Functions> {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
        let functions = FUNCTIONS.get_or_init(Functions::find).as_ref();
        functions.ok_or(Cause::Os(libc::EOPNOTSUPP))
    }

    fn find() -> Option<Functions> {
        // SAFETY: The name is a C string. The library is loaded already, and stays.
        let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY) };
        let library = NonNull::new(library)?;
        // SAFETY: The types are those that `<infiniband/verbs.h>` declares.
        unsafe {
            Some(Functions {
                import_device: function(library, c"ibv_import_device")?,
                import_pd: function(library, c"ibv_import_pd")?,
                unimport_pd: function(library, c"ibv_unimport_pd")?,
                import_mr: function(library, c"ibv_import_mr")?,
                unimport_mr: function(library, c"ibv_unimport_mr")?,
            })
        }
    }
}

/// A function of a library.
///
/// # Safety
///
/// `library` came from `dlopen()` and stays open, and `F` is the type of a pointer to the function.
unsafe fn function<F: Copy>(library: NonNull<c_void>, name: &CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: The library is open, and the name is a C string.
    let found = NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })?;
    // SAFETY: The caller names the type, of the size of a pointer.
    Some(unsafe { ptr::from_ref(&found).cast::<F>().read() })
}

unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) -> c_int {
    if let Ok(functions) = Functions::get() {
        // SAFETY: The caller's PD was imported, and is not used any more.
        unsafe { (functions.unimport_pd)(pd) };
    }
    0
}

unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) -> c_int {
    if let Ok(functions) = Functions::get() {
        // SAFETY: The caller's MR was imported, and is not used any more.
        unsafe { (functions.unimport_mr)(mr) };
    }
    0
}

/// A descriptor of the same open file, for libibverbs, which takes it.
fn duplicate(fd: impl AsFd) -> Result<c_int> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `stat` is all integers, for which zero is a value, and is there to be written.
    let is_device = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR
    };
    if !is_device {
        return Err(Cause::Os(libc::EINVAL));
    }
    // SAFETY: The call touches no memory.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
        -1 => Err(Cause::last()),
        fd => Ok(fd),
    }
}

fn import(fd: impl AsFd) -> Result<NonNull<ibv_context>> {
    let functions = Functions::get()?;
    let fd = duplicate(fd)?;
    // SAFETY: The descriptor is libibverbs' from here on.
    if let Some(context) = NonNull::new(unsafe { (functions.import_device)(fd) }) {
        return Ok(context);
    }
    let cause = Cause::last();
    // A provider that fails has closed it. These are the errors of libibverbs before it asks one.
    if let Cause::Os(libc::ENODEV | libc::EOPNOTSUPP) = cause {
        // SAFETY: The descriptor was made here, and nothing has it.
        unsafe { libc::close(fd) };
    }
    Err(cause)
}

impl Device {
    /// Imports the device of a descriptor that another process has given ([`AsFd`]), or left in a
    /// [`Keeper`](crate::Keeper) or a descriptor store: with it the objects that were made through
    /// it, of which [`Pd::import`] and [`ImportedRegion`] find PDs and memory regions.
    ///
    /// The descriptor stays with the caller. Dropping the device, and what was imported through it,
    /// destroys none of these objects: they end with the last descriptor of the file, or when one
    /// of its processes destroys them. What this process makes through the device is destroyed when
    /// it is dropped, but stays in the file if the process is killed. Of libmlx5 that is a page of
    /// doorbells (UAR) for the device itself, so drop it as soon as it is not used.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if libibverbs or the device's provider cannot import, as all but mlx5's;
    /// `EINVAL` if the descriptor is not that of a device, `ENODEV` if its device is not there, and
    /// `EIO` if it was removed since.
    pub fn import(fd: impl AsFd) -> crate::Result<Device> {
        let context =
            import(fd).map_err(|cause| Error::new(&"RDMA".into(), "import a device", cause))?;
        // SAFETY: The context was just opened, and its owner closes it.
        Ok(unsafe { Device::from_ibv(context, Open(context)) })
    }
}

impl Pd {
    /// Imports the PD that [`handle`](Self::handle) of another process has named, of the same open
    /// device. Dropping it leaves that PD as it is.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the open device has no such PD, and `EOPNOTSUPP` as [`Device::import`].
    pub fn import(device: &Device, handle: u32) -> crate::Result<Pd> {
        let import = || {
            // SAFETY: The context is open as long as `device` exists.
            let pd = unsafe { (Functions::get()?.import_pd)(device.as_ibv(), handle) };
            Object::new(pd, unimport_pd)
        };
        let pd = import().map_err(device.error("import a PD"))?;
        // SAFETY: It was just imported, and its owner ends that.
        Ok(unsafe { Pd::from_ibv(device, NonNull::new_unchecked(pd.as_ptr()), pd) })
    }

    /// The number by which another process of the same open device imports the PD.
    pub fn handle(&self) -> u32 {
        // SAFETY: The PD is allocated as long as `self` exists.
        unsafe { (*self.as_ibv()).handle }
    }
}

/// A memory region that another process has registered; clones are the same one.
///
/// Its key is good for peers, which reach the pages that were registered: those of a
/// [`Memory`](super::Memory) that both processes have are the successor's as well. Requests of this
/// process need a [`Region`](super::Region) of its own.
///
/// Dropping it leaves the region as it is.
#[derive(Clone)]
pub struct ImportedRegion(Arc<Imported>);

struct Imported {
    // Dropped before the PD.
    mr: Object<ibv_mr>,
    pd: Pd,
}

impl ImportedRegion {
    /// Imports the region that [`Region::handle`](super::Region::handle) of another process has
    /// named, of the same open device.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the open device has no such region, and `EOPNOTSUPP` as [`Device::import`].
    pub fn new(pd: &Pd, handle: u32) -> crate::Result<ImportedRegion> {
        let import = || {
            // SAFETY: The PD is allocated as long as `pd` exists.
            let mr = unsafe { (Functions::get()?.import_mr)(pd.as_ibv(), handle) };
            Object::new(mr, unimport_mr)
        };
        let mr = import().map_err(pd.device().error("import a memory region"))?;
        Ok(ImportedRegion(Arc::new(Imported { mr, pd: pd.clone() })))
    }

    /// The key that peers know.
    pub fn key(&self) -> u32 {
        // SAFETY: The MR is alive.
        unsafe { (*self.0.mr.as_ptr()).rkey }
    }

    /// The size of it, in bytes.
    pub fn size(&self) -> usize {
        // SAFETY: The MR is alive.
        unsafe { (*self.0.mr.as_ptr()).length }
    }

    /// The PD.
    pub fn pd(&self) -> &Pd {
        &self.0.pd
    }

    /// Deregisters the region of the other process: peers that know its key get an error.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there are clones, and those of `ibv_dereg_mr()`.
    pub fn deregister(self) -> crate::Result<()> {
        let error = self.pd().device().error("deregister memory");
        let inner = Arc::into_inner(self.0).ok_or_else(|| error(Cause::Os(libc::EBUSY)))?;
        inner.mr.destroy_by(ibv_dereg_mr).map_err(error)
    }
}

impl fmt::Debug for ImportedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedRegion")
            .field("pd", &self.0.pd)
            .field("key", &self.key())
            .field("size", &self.size())
            .finish()
    }
}
