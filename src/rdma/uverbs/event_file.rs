// SPDX-License-Identifier: GPL-2.0

//! Objects with file descriptors, from which processes read events.
//!
//! uverbs *destroys* the object of such a file when the file descriptor or the uverbs file is
//! closed, or when the device is removed. It *releases* the file when the descriptor is closed. The
//! two may run at the same time, so the object and the file hold a reference to the data each.
//!
//! The VFS holds a reference to the owner of the file operations, this module. But the release of
//! the file may drop the last reference to the character device of the uverbs device, which runs
//! code of ib_uverbs, and once the uverbs file is closed nothing else holds a reference to
//! ib_uverbs. So the object does.
//!
//! C header: [`include/rdma/uverbs_types.h`](srctree/include/rdma/uverbs_types.h)

use super::{
    rdma_remove_reason,
    RemoveReason, //
};
use crate::{
    kernel_ext::wait_queue::WaitQueue,
    rdma::{
        bindings,
        module::ModuleReference, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::transmute, //
};
use kernel::{
    bindings::{
        file_operations,
        loff_t,
        poll_table, //
    },
    error::from_result,
    fs::{
        file::flags::O_NONBLOCK,
        File, //
    },
    prelude::*,
    str::as_char_ptr_in_const_context,
    sync::{
        Arc,
        ArcBorrow, //
    },
    uaccess::UserPtr, //
};

/// An object with file descriptors.
pub(crate) trait EventFile: Send + Sync + Sized + 'static {
    /// The number of the object.
    const OBJECT: u32;

    /// The type of the object.
    const TYPE: &'static FileType<Self>;

    /// Implements `read(2)`: writes whole records to the `length` bytes at `buffer`, and returns
    /// their size.
    fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize>;

    /// Returns the queue whose tasks are woken when the result of [`Self::poll`] changes.
    fn wait_queue(&self) -> &WaitQueue;

    /// Implements `poll(2)`: returns a mask of `EPOLL…` bits.
    fn poll(&self) -> u32;

    /// Implements `ioctl(2)`, also of 32-bit processes. May run after [`closed`](Self::closed), and
    /// at the same time.
    fn ioctl(&self, request: u32, argument: UserPtr) -> Result;

    /// Called when the descriptor or the uverbs file is closed, or the device removed. No method
    /// looks up the file after this.
    fn closed(data: Arc<Self>, why: RemoveReason);

    /// Called when the file is released. No process reads it after this.
    fn released(&self);
}

/// An object as uverbs allocates it.
///
/// # Invariants
///
/// `data` is null until [`NewFile::set`] and constant from then on. It owns two references of an
/// [`Arc`]: that of the object until it is destroyed, and that of the file until it is released.
///
/// `uverbs` is `None` until [`NewFile::set`], and accessed only by that and by the release.
#[repr(C)]
struct FileObject<F> {
    uobject: bindings::ib_uobject,
    data: *const F,
    uverbs: Option<ModuleReference>,
}

/// The file operations, for a `static`.
#[repr(transparent)]
pub(crate) struct FileOperations<F>(file_operations, PhantomData<fn() -> F>);

// SAFETY: Nothing writes to the structure. Of its pointers, the VFS uses `owner`, a module, whose
// reference count is atomic; the others are to functions.
unsafe impl<F> Sync for FileOperations<F> {}

impl<F: EventFile> FileOperations<F> {
    /// Creates the operations. An open file holds a reference to `owner`.
    pub(crate) const fn new(owner: &'static ThisModule) -> Self {
        Self(
            file_operations {
                owner: owner.as_ptr(),
                read: Some(Self::read_callback),
                poll: Some(Self::poll_callback),
                unlocked_ioctl: Some(Self::ioctl_callback),
                compat_ioctl: kernel::bindings::compat_ptr_ioctl,
                // uverbs requires this of every file.
                release: Some(bindings::uverbs_uobject_fd_release),
                ..pin_init::zeroed()
            },
            PhantomData,
        )
    }

    /// # Safety
    ///
    /// `file` must be a file with these operations, and stay open for `'a`.
    unsafe fn data<'a>(file: *mut kernel::bindings::file) -> Result<ArcBorrow<'a, F>> {
        // SAFETY:
        // * uverbs creates files with these operations for objects of the `FileType` that refers to
        //   them, which are `FileObject<F>`s. It stores the object in the private data before it
        //   installs the file, and nothing changes the private data later.
        // * The file holds a reference to the object until it is released, which does not happen
        //   during `'a`.
        unsafe { borrow((*file).private_data.cast()) }
    }

    /// # Safety
    ///
    /// Called by the VFS only, for an open file with these operations.
    unsafe extern "C" fn read_callback(
        file: *mut kernel::bindings::file,
        buffer: *mut c_char,
        length: usize,
        _offset: *mut loff_t,
    ) -> isize {
        from_result(|| {
            // SAFETY: By the requirements of this function, the file has these operations, and the
            // VFS holds it for the length of the call.
            let data = unsafe { Self::data(file) }?;
            // SAFETY:
            // * The VFS holds the file for the length of the call, and the reference ends before
            //   it.
            // * The file position is not accessed, so an active `fdget_pos` does not matter.
            let flags = unsafe { File::from_raw_file(file) }.flags();
            let buffer = UserPtr::from_ptr(buffer.cast());
            let written = data.read(buffer, length, flags & O_NONBLOCK != 0)?;

            Ok(isize::try_from(written)?)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS only, for an open file with these operations.
    unsafe extern "C" fn poll_callback(
        file: *mut kernel::bindings::file,
        table: *mut poll_table,
    ) -> u32 {
        // SAFETY: By the requirements of this function, the file has these operations, and the VFS
        // holds it for the length of the call.
        let Ok(data) = (unsafe { Self::data(file) }) else {
            return kernel::bindings::POLLERR;
        };

        // SAFETY:
        // * The VFS passes a table that is null or valid for the length of the call.
        // * The queue is valid until the file is released: `F::wait_queue` borrows it from `data`,
        //   to which the file holds a reference.
        // * Nothing waits in it after that: a process that polls a file holds it, and so does a
        //   request of io_uring until it has left the queue; the VFS removes a file from every
        //   epoll before it releases it.
        unsafe { kernel::bindings::poll_wait(file, data.wait_queue().as_ptr(), table) };
        data.poll()
    }

    /// # Safety
    ///
    /// Called by the VFS only, for an open file with these operations.
    unsafe extern "C" fn ioctl_callback(
        file: *mut kernel::bindings::file,
        request: c_uint,
        argument: c_ulong,
    ) -> c_long {
        from_result(|| {
            // SAFETY: By the requirements of this function, the file has these operations, and the
            // VFS holds it for the length of the call.
            let data = unsafe { Self::data(file) }?;

            data.ioctl(request, UserPtr::from_addr(argument))?;
            Ok(0)
        })
    }
}

/// `destroy_object` as bindgen declares it.
type DestroyObject = unsafe extern "C" fn(*mut bindings::ib_uobject, bindings::rdma_remove_reason);

/// `destroy_object` with the type that C encodes for kCFI, see [`rdma_remove_reason`].
type DestroyObjectByName = unsafe extern "C" fn(*mut bindings::ib_uobject, rdma_remove_reason);

/// The type of an object with file descriptors, for a `static`.
#[repr(transparent)]
pub(crate) struct FileType<F>(bindings::uverbs_obj_fd_type, PhantomData<fn() -> F>);

// SAFETY: Nothing writes to the structure. Its pointers are to constants, to file operations that
// are `Sync`, and to functions.
unsafe impl<F> Sync for FileType<F> {}

impl<F: EventFile> FileType<F> {
    /// Creates the type. `/proc/PID/fd` shows `name`.
    pub(crate) const fn new(name: &'static CStr, operations: &'static FileOperations<F>) -> Self {
        Self(
            bindings::uverbs_obj_fd_type {
                type_: bindings::uverbs_obj_type {
                    type_class: &raw const bindings::uverbs_fd_class,
                    obj_size: size_of::<FileObject<F>>(),
                },
                // SAFETY:
                // * The types differ in the second argument: an integer, or a structure of this
                //   integer, which is passed in the same way.
                // * Only C calls the function, with the prototype of the callback.
                destroy_object: Some(unsafe {
                    transmute::<DestroyObjectByName, DestroyObject>(Self::destroy_callback)
                }),
                release_cleanup: Some(Self::release_callback),
                fops: &operations.0,
                name: as_char_ptr_in_const_context(name),
                flags: kernel::bindings::O_RDONLY as c_int,
            },
            PhantomData,
        )
    }

    /// Returns the C structure.
    pub(super) const fn as_ptr(&'static self) -> *const bindings::uverbs_obj_type {
        &self.0.type_
    }

    /// Called at most once for an object, possibly while its file is being released.
    ///
    /// # Safety
    ///
    /// Called by uverbs only, for an object of this type.
    unsafe extern "C" fn destroy_callback(
        uobject: *mut bindings::ib_uobject,
        why: rdma_remove_reason,
    ) {
        // SAFETY: By the requirements of this function, the object is valid and of this type, for
        // which uverbs allocated `obj_size` bytes, a `FileObject<F>`. `data` is constant: the
        // method that creates the object has returned.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`, one of the two references is that of the
            // object. uverbs destroys an object once, so nothing else takes this reference back.
            F::closed(unsafe { Arc::from_raw(data) }, why.into());
        }
    }

    /// Called once, when the file is released, possibly while the object is being destroyed.
    ///
    /// # Safety
    ///
    /// Called by uverbs only, for an object of this type.
    unsafe extern "C" fn release_callback(uobject: *mut bindings::ib_uobject) {
        // SAFETY: By the requirements of this function, the object is valid and of this type, for
        // which uverbs allocated a `FileObject<F>`. `data` is constant: the method that creates the
        // object has returned.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`, the other reference is that of the file. A
            // file is released once, so nothing else takes this reference back.
            unsafe { Arc::from_raw(data) }.released();
        }

        // uverbs has dropped its reference to the uverbs file before this call, so no more code of
        // ib_uverbs runs for this file. The caller is in ib_uverbs_support, of which this module
        // uses symbols.
        // SAFETY: By the requirements of this function, the object is valid, and a `FileObject<F>`.
        // By the invariant of `FileObject`, only `NewFile::set` accesses the member besides, which
        // has returned.
        drop(unsafe { (*uobject.cast::<FileObject<F>>()).uverbs.take() });
    }
}

/// # Safety
///
/// `object` must be valid, and its file stay open for `'a`.
unsafe fn borrow<'a, F: EventFile>(object: *mut FileObject<F>) -> Result<ArcBorrow<'a, F>> {
    // SAFETY: The object is valid by the requirements of this function. `data` is constant: the
    // method that creates the file sets it, and the file cannot be looked up before that has
    // returned.
    let data = unsafe { (*object).data };

    if data.is_null() {
        return Err(EIO);
    }
    // SAFETY:
    // * By the invariant of `FileObject`, the pointer comes from `Arc::into_raw`.
    // * The file holds a reference until it is released, which does not happen during `'a`.
    Ok(unsafe { ArcBorrow::from_raw(data) })
}

/// Checks that the object of an attribute is of type `F`.
///
/// # Safety
///
/// `uobject` must be that of an attribute.
unsafe fn object<F: EventFile>(uobject: *mut bindings::ib_uobject) -> Result<*mut FileObject<F>> {
    // SAFETY: The object is valid by the requirements of this function. uverbs sets `uapi_object`
    // when it allocates an object, to an entry of the device's interface, which stays as long as
    // the file.
    let type_attrs = unsafe { (*(*uobject).uapi_object).type_attrs };

    if !core::ptr::eq(type_attrs, F::TYPE.as_ptr()) {
        return Err(EINVAL);
    }
    Ok(uobject.cast())
}

/// A file that the running method creates.
///
/// # Invariants
///
/// * The object is valid for `'a`.
/// * `uverbs` is a reference to ib_uverbs.
pub(crate) struct NewFile<'a, F: EventFile> {
    object: *mut FileObject<F>,
    uverbs: ModuleReference,
    _object: PhantomData<&'a ()>,
}

impl<'a, F: EventFile> NewFile<'a, F> {
    /// Wraps the object of an attribute. `EINVAL` if it has another type, or is not new, and
    /// `ENODEV` if there is no reference to ib_uverbs.
    ///
    /// # Safety
    ///
    /// `uobject` must be that of an attribute, and valid for `'a`.
    pub(super) unsafe fn new(uobject: *mut bindings::ib_uobject) -> Result<Self> {
        // SAFETY: `uobject` is that of an attribute, by the requirements of this function.
        let object = unsafe { object::<F>(uobject) }?;

        // SAFETY: The object is valid, and a `FileObject<F>`, as was just checked. If the running
        // method creates it, no other method can look it up; otherwise its data is constant.
        if !unsafe { (*object).data }.is_null() {
            return Err(EINVAL);
        }
        // INVARIANT: The object is valid for `'a` by the requirements of this function.
        Ok(Self {
            object,
            // Here, as `set` cannot fail.
            uverbs: ModuleReference::uverbs()?,
            _object: PhantomData,
        })
    }

    /// Sets the data of the file. The method must succeed after this: uverbs does not release a
    /// file that never became visible.
    pub(crate) fn set(self, data: Arc<F>) {
        let of_file = data.clone().into_raw();
        let _of_object = data.into_raw();

        // INVARIANT: `data` was null; it owns two references from now on.
        // SAFETY:
        // * By the type invariant, the object is valid. The running method creates it, so nothing
        //   else uses it.
        // * Assigning to `uverbs` drops its previous value: uverbs allocates a zeroed object, which
        //   is a `None` of `ModuleReference`, a transparent wrapper of a `NonNull`.
        unsafe {
            (*self.object).data = of_file;
            (*self.object).uverbs = Some(self.uverbs);
        }
    }
}

/// Returns the data of an event file.
///
/// # Safety
///
/// `uobject` must be that of an attribute, and held by uverbs for `'a`.
pub(super) unsafe fn data<'a, F: EventFile>(
    uobject: *mut bindings::ib_uobject,
) -> Result<ArcBorrow<'a, F>> {
    // SAFETY: By the requirements of this function, `uobject` is that of an attribute. uverbs holds
    // the object of an attribute, and its file, for `'a`.
    unsafe { borrow(object::<F>(uobject)?) }
}
