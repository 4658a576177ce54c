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

// SAFETY: Nothing writes to the structure. Of its pointers, the VFS uses `owner`, a module, whose
// reference count is atomic; the others are to functions.
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
        // * A file with these operations is made by uverbs, for an object of the `FileType` that names
        //   them, which is a `FileObject<F>`. uverbs stores the object in the private data before it
        //   installs the file, and nothing changes that.
        // * The file has a reference to the object until it is released, which it is not for `'a`.
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
            // SAFETY: By the requirements of this function, the file has these operations, and the VFS holds
            // it for the length of the call.
            let data = unsafe { Self::data(file) }?;
            // SAFETY:
            // * The VFS holds the file for the length of the call, and the reference is not kept.
            // * No `fdget_pos` is active that this could get in the way of: the position is not used.
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
        // SAFETY: By the requirements of this function, the file has these operations, and the VFS holds it
        // for the length of the call.
        let Ok(data) = (unsafe { Self::data(file) }) else {
            return kernel::bindings::POLLERR;
        };

        // SAFETY:
        // * The VFS passes a table that is null or valid for the length of the call.
        // * The queue is valid until the file is released: `F::wait_queue` borrows it from `data`, and would
        //   do so for as long as the file has its reference to that.
        // * Nothing waits on it for longer: a process that polls a file holds it, and the VFS takes a file
        //   out of every epoll before it releases it.
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

// SAFETY: Nothing writes to the structure. Its pointers are to what is constant as well, to file
// operations that are `Sync`, and to functions.
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
        // SAFETY: By the requirements of this function, the object is valid and of this type, for which
        // uverbs allocated a `FileObject<F>`: `obj_size` says so. `data` does not change any more, as the
        // object was visible, or will not, as it never was.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`, one of the two references that `NewFile::set` took
            // is the object's. uverbs destroys an object once, so nothing else takes this one back.
            F::closed(unsafe { Arc::from_raw(data) });
        }
    }

    /// Called once, when the file is released; the object may be being destroyed.
    ///
    /// # Safety
    ///
    /// Called by uverbs only, for an object of this type.
    unsafe extern "C" fn release_callback(uobject: *mut bindings::ib_uobject) {
        // SAFETY: By the requirements of this function, the object is valid and of this type, for which
        // uverbs allocated a `FileObject<F>`. `data` does not change any more: the file that is released was
        // visible, so the method that created it has returned.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`, the other of the two references is the file's. A file
            // is released once, so nothing else takes this one back.
            drop(unsafe { Arc::from_raw(data) });
        }

        // uverbs gave its reference to the uverbs file up before this, so all that there was to run
        // of ib_uverbs for this file has run. What follows is in ib_uverbs_support, of which this
        // module has symbols.
        // SAFETY: By the requirements of this function, the object is valid, and a `FileObject<F>`. By the invariant of `FileObject`, only `NewFile::set`
        // touches the member besides, which returned before the file could be released.
        drop(unsafe { (*uobject.cast::<FileObject<F>>()).uverbs.take() });
    }
}

/// # Safety
///
/// `object` must be valid, and its file stay open for `'a`.
unsafe fn borrow<'a, F: EventFile>(object: *mut FileObject<F>) -> Result<ArcBorrow<'a, F>> {
    // SAFETY: The object is valid by the requirements of this function. `data` does not change meanwhile:
    // it is set by the method that creates the file, and no other gets the file before that returns.
    let data = unsafe { (*object).data };

    if data.is_null() {
        return Err(EIO);
    }
    // SAFETY:
    // * By the invariant of `FileObject`, the pointer comes from `Arc::into_raw`.
    // * The file has a reference until it is released, which it is not for `'a`.
    Ok(unsafe { ArcBorrow::from_raw(data) })
}

/// Checks that an attribute is an object of type `F`.
///
/// # Safety
///
/// `uobject` must be that of an attribute.
unsafe fn object<F: EventFile>(uobject: *mut bindings::ib_uobject) -> Result<*mut FileObject<F>> {
    // SAFETY: The object is valid by the requirements of this function. uverbs sets `uapi_object` when it
    // allocates an object, to an entry of the device's interface, which stays as long as the file.
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
        // SAFETY: `uobject` is that of an attribute, by the requirements of this function.
        let object = unsafe { object::<F>(uobject) }?;

        // SAFETY: The object is valid, and a `FileObject<F>`, as was just checked. If it is being created,
        // no other method can see it; if it was created before, its data do not change any more.
        if !unsafe { (*object).data }.is_null() {
            return Err(EINVAL);
        }
        // INVARIANT: Valid for `'a` by the requirements of this function.
        Ok(Self(object, PhantomData))
    }

    /// Gives the file its data. The method must succeed after that: uverbs does not release what
    /// was never visible.
    pub(crate) fn set(self, data: Arc<F>) {
        let of_file = data.clone().into_raw();
        let _of_object = data.into_raw();

        // INVARIANT: `data` was null; these are two references.
        // SAFETY:
        // * By the type invariant, the object is valid. The running method creates it, so nothing else
        //   uses it.
        // * Assigning to `uverbs` drops what it was: uverbs allocates the object with zeroes, which are
        //   `None` of a `ModuleReference`, a transparent wrapper of a `NonNull`.
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
    // SAFETY: `uobject` is that of an attribute for `'a`, by the requirements of this function, and an
    // attribute holds its object and its file.
    unsafe { borrow(object::<F>(uobject)?) }
}
