// SPDX-License-Identifier: GPL-2.0

//! Objects that processes know by a file descriptor, and from which they read events.
//!
//! uverbs *destroys* the object behind such a file when the file descriptor is closed, but also when
//! the uverbs file is closed or the device removed; and it *releases* the file when the descriptor is
//! closed. The two can happen at the same time, so the object and the file have a reference to the
//! data each.
//!
//! The VFS keeps the module that owns the file operations loaded, which is ours. But releasing the file
//! can also release the last reference to the device's character device, and that runs code of
//! ib_uverbs, which nothing else holds once the uverbs file is closed. So the object holds it.

use super::rdma_remove_reason;
use crate::rdma::{
    bindings,
    module::ModuleReference,
    wait_queue::WaitQueue, //
};
use core::{
    marker::PhantomData,
    mem::{
        transmute,
        MaybeUninit, //
    }, //
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

/// What is behind the file descriptor.
pub(crate) trait EventFile: Send + Sync + Sized + 'static {
    /// Its number in the uverbs interface.
    const OBJECT: u32;

    /// Its type.
    const TYPE: &'static FileType<Self>;

    /// `read(2)`: writes whole records to the `length` bytes at `buffer`, and returns how many bytes
    /// they take.
    fn read(&self, buffer: UserPtr, length: usize, nonblocking: bool) -> Result<usize>;

    /// Where to wait for a change of what [`Self::poll`] returns.
    fn wait_queue(&self) -> &WaitQueue;

    /// `poll(2)`: a mask of `EPOLL…` bits.
    fn poll(&self) -> u32;

    /// The descriptor or the uverbs file is closed, or the device removed. No method gets the file
    /// any more.
    fn closed(data: Arc<Self>);
}

/// The object as uverbs allocates it.
///
/// # Invariants
///
/// `data` is null until [`NewFile::set`] and constant from then on. It stands for two references of
/// an [`Arc`]: the object's until it is destroyed, and the file's until it is released.
///
/// `uverbs` is `None` until [`NewFile::set`] and touched only by that and by the release.
#[repr(C)]
struct FileObject<F> {
    uobject: bindings::ib_uobject,
    data: *const F,
    uverbs: Option<ModuleReference>,
}

/// The file operations, to be put in a `static`.
#[repr(transparent)]
pub(crate) struct FileOperations<F>(file_operations, PhantomData<fn() -> F>);

// SAFETY: Constant.
unsafe impl<F> Sync for FileOperations<F> {}

impl<F: EventFile> FileOperations<F> {
    /// Describes the file; an open one keeps `owner` loaded.
    pub(crate) const fn new(owner: &'static ThisModule) -> Self {
        Self(
            file_operations {
                owner: owner.as_ptr(),
                read: Some(Self::read_callback),
                poll: Some(Self::poll_callback),
                // What uverbs requires of every file of its own.
                release: Some(bindings::uverbs_uobject_fd_release),
                // SAFETY: Zeroes are valid: operations that are not there.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
            },
            PhantomData,
        )
    }

    /// # Safety
    ///
    /// `file` must be a file with these operations, and stay open for `'a`.
    unsafe fn data<'a>(file: *mut kernel::bindings::file) -> Result<ArcBorrow<'a, F>> {
        // SAFETY: uverbs sets the private data of a file before a process can see it, to the object,
        // which stays until the file is released.
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
            // SAFETY: The VFS passes a file of this type, open for the length of the call.
            let data = unsafe { Self::data(file) }?;
            // SAFETY: As above. The position of the file is not used.
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
        // SAFETY: The VFS passes a file of this type, open for the length of the call.
        let Ok(data) = (unsafe { Self::data(file) }) else {
            return kernel::bindings::POLLERR;
        };

        // SAFETY: The VFS passes a table that is null or valid for the length of the call. The queue
        // is in `data`: it is borrowed from it for as long as that may be borrowed, and the file has a
        // reference to it until it is released. A process that polls a file holds it, and the VFS
        // takes a file out of every epoll before it releases it.
        unsafe { kernel::bindings::poll_wait(file, data.wait_queue().as_ptr(), table) };
        data.poll()
    }
}

/// `destroy_object` of a file, as bindgen has it.
type DestroyObject = unsafe extern "C" fn(*mut bindings::ib_uobject, bindings::rdma_remove_reason);

/// The same with the type that C gives it.
type DestroyObjectByName = unsafe extern "C" fn(*mut bindings::ib_uobject, rdma_remove_reason);

/// The type of the object, to be put in a `static`.
#[repr(transparent)]
pub(crate) struct FileType<F>(bindings::uverbs_obj_fd_type, PhantomData<fn() -> F>);

// SAFETY: Constant.
unsafe impl<F> Sync for FileType<F> {}

impl<F: EventFile> FileType<F> {
    /// Describes the object; `name` is what `/proc/PID/fd` shows.
    pub(crate) const fn new(name: &'static CStr, operations: &'static FileOperations<F>) -> Self {
        Self(
            bindings::uverbs_obj_fd_type {
                type_: bindings::uverbs_obj_type {
                    type_class: &raw const bindings::uverbs_fd_class,
                    obj_size: size_of::<FileObject<F>>(),
                },
                // SAFETY:
                // * The types differ in that the second argument is an integer in one and a structure of
                //   that integer in the other, which are passed alike.
                // * Only C calls it, by the prototype that the callback has.
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

    pub(super) const fn as_ptr(&'static self) -> *const bindings::uverbs_obj_type {
        &self.0.type_
    }

    /// Called at most once for an object, also while its file is being released.
    ///
    /// # Safety
    ///
    /// Called by uverbs only, for an object of this type.
    unsafe extern "C" fn destroy_callback(
        uobject: *mut bindings::ib_uobject,
        _why: rdma_remove_reason,
    ) {
        // SAFETY: uverbs passes an object of this type.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`, this is the object's reference.
            F::closed(unsafe { Arc::from_raw(data) });
        }
    }

    /// Called once, when the file is released; the object may be being destroyed.
    ///
    /// # Safety
    ///
    /// Called by uverbs only, for an object of this type.
    unsafe extern "C" fn release_callback(uobject: *mut bindings::ib_uobject) {
        // SAFETY: uverbs passes an object of this type.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`, this is the file's reference.
            drop(unsafe { Arc::from_raw(data) });
        }

        // uverbs gave its reference to the uverbs file up before this, so all that there was to run
        // of ib_uverbs for this file has run. What follows is in ib_uverbs_support, of which this
        // module has symbols.
        // SAFETY: As above; by the invariant of `FileObject`, nobody else touches it.
        drop(unsafe { (*uobject.cast::<FileObject<F>>()).uverbs.take() });
    }
}

/// # Safety
///
/// `object` must be valid, and its file stay open for `'a`.
unsafe fn borrow<'a, F: EventFile>(object: *mut FileObject<F>) -> Result<ArcBorrow<'a, F>> {
    // SAFETY: The caller's promise.
    let data = unsafe { (*object).data };

    if data.is_null() {
        return Err(EIO);
    }
    // SAFETY: By the invariant of `FileObject`, the file has a reference.
    Ok(unsafe { ArcBorrow::from_raw(data) })
}

/// Checks that an attribute is an object of type `F`.
///
/// # Safety
///
/// `uobject` must be that of an attribute.
unsafe fn object<F: EventFile>(uobject: *mut bindings::ib_uobject) -> Result<*mut FileObject<F>> {
    // SAFETY: Valid by the caller's promise; uverbs sets `uapi_object` when it allocates.
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
/// The object is valid for `'a`.
pub(crate) struct NewFile<'a, F: EventFile>(*mut FileObject<F>, PhantomData<&'a ()>);

impl<'a, F: EventFile> NewFile<'a, F> {
    /// # Safety
    ///
    /// `uobject` must be that of an attribute, and valid for `'a`.
    pub(super) unsafe fn new(uobject: *mut bindings::ib_uobject) -> Result<Self> {
        // SAFETY: The caller's promise.
        let object = unsafe { object::<F>(uobject) }?;

        // SAFETY: As above. What has no data yet is not visible to other methods.
        if !unsafe { (*object).data }.is_null() {
            return Err(EINVAL);
        }
        // INVARIANT: The caller's promise.
        Ok(Self(object, PhantomData))
    }

    /// Gives the file its data. The method must succeed after that: uverbs does not release what
    /// was never visible.
    pub(crate) fn set(self, data: Arc<F>) {
        let of_file = data.clone().into_raw();
        let _of_object = data.into_raw();

        // INVARIANT: `data` was null; these are two references.
        // SAFETY: By the type invariant. uverbs allocates the object with zeroes, which are `None`.
        unsafe {
            (*self.0).data = of_file;
            (*self.0).uverbs = ModuleReference::uverbs();
        }
    }
}

/// The data of a file that an attribute names.
///
/// # Safety
///
/// `uobject` must be that of an attribute, and stay so for `'a`.
pub(super) unsafe fn data<'a, F: EventFile>(
    uobject: *mut bindings::ib_uobject,
) -> Result<ArcBorrow<'a, F>> {
    // SAFETY: The caller's promise; an attribute holds its file open.
    unsafe { borrow(object::<F>(uobject)?) }
}
