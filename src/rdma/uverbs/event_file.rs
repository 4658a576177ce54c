// SPDX-License-Identifier: GPL-2.0

//! Objects that processes know by a file descriptor, and from which they read events.
//!
//! The data of such a file lives until the file descriptor is closed, and outlives the removal of
//! the device, of which it is told.

use super::Removal;
use crate::rdma::bindings;
use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
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
    sync::poll::PollTable,
    types::ForeignOwnable,
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    }, //
};

/// What is behind the file descriptor.
pub(crate) trait EventFile: Sized + 'static {
    /// Its number in the uverbs interface.
    const OBJECT: u32;

    /// Its type.
    const TYPE: &'static FileType<Self>;

    /// Owned by the file.
    type Data: ForeignOwnable + Send + Sync;

    /// `read(2)`: writes whole records and returns their length in bytes.
    fn read(
        data: <Self::Data as ForeignOwnable>::Borrowed<'_>,
        writer: UserSliceWriter,
        nonblocking: bool,
    ) -> Result<usize>;

    /// `poll(2)`: registers with `table` and returns a mask of `EPOLL…` bits.
    fn poll(
        data: <Self::Data as ForeignOwnable>::Borrowed<'_>,
        file: &File,
        table: PollTable<'_>,
    ) -> u32;

    /// The descriptor is being closed, or the device is removed. No method gets the file any more.
    fn closed(data: <Self::Data as ForeignOwnable>::Borrowed<'_>, why: Removal);
}

/// The object as uverbs allocates it.
///
/// # Invariants
///
/// `data` is null, or comes from `F::Data::into_foreign` and belongs to the object.
#[repr(C)]
struct FileObject<F> {
    uobject: bindings::ib_uobject,
    data: *mut c_void,
    _file: PhantomData<F>,
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
    /// `file` must be an open file with these operations.
    unsafe fn data<'a>(
        file: *mut kernel::bindings::file,
    ) -> Result<<F::Data as ForeignOwnable>::Borrowed<'a>> {
        // SAFETY: uverbs sets the private data of a file before a process can see it, to the object
        // that stays until the file is released.
        let data = unsafe { (*(*file).private_data.cast::<FileObject<F>>()).data };

        if data.is_null() {
            return Err(EIO);
        }
        // SAFETY: By the invariant of `FileObject`; the data is taken back on release only.
        Ok(unsafe { F::Data::borrow(data) })
    }

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
            let writer = UserSlice::new(UserPtr::from_ptr(buffer.cast()), length).writer();
            let written = F::read(data, writer, flags & O_NONBLOCK != 0)?;

            Ok(isize::try_from(written)?)
        })
    }

    unsafe extern "C" fn poll_callback(
        file: *mut kernel::bindings::file,
        table: *mut poll_table,
    ) -> u32 {
        // SAFETY: The VFS passes a file of this type, open for the length of the call.
        let Ok(data) = (unsafe { Self::data(file) }) else {
            return kernel::bindings::POLLERR;
        };
        // SAFETY: As above.
        let file = unsafe { File::from_raw_file(file) };

        // SAFETY: The VFS passes a table that is null or valid for the length of the call.
        F::poll(data, file, unsafe { PollTable::from_raw(table) })
    }
}

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
                destroy_object: Some(Self::destroy_callback),
                release_cleanup: Some(Self::release_callback),
                fops: &operations.0,
                name: name.as_ptr().cast(),
                flags: kernel::bindings::O_RDONLY as c_int,
            },
            PhantomData,
        )
    }

    pub(super) const fn as_ptr(&'static self) -> *const bindings::uverbs_obj_type {
        &self.0.type_
    }

    unsafe extern "C" fn destroy_callback(
        uobject: *mut bindings::ib_uobject,
        why: bindings::rdma_remove_reason,
    ) {
        // SAFETY: uverbs passes an object of this type.
        let data = unsafe { (*uobject.cast::<FileObject<F>>()).data };

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`.
            F::closed(unsafe { F::Data::borrow(data) }, why.into());
        }
    }

    /// Called once, on release of the file, after everything else.
    unsafe extern "C" fn release_callback(uobject: *mut bindings::ib_uobject) {
        // SAFETY: uverbs passes an object of this type, which nobody else uses any more.
        let object = unsafe { &mut *uobject.cast::<FileObject<F>>() };
        let data = core::mem::replace(&mut object.data, core::ptr::null_mut());

        if !data.is_null() {
            // SAFETY: By the invariant of `FileObject`; nobody borrows the data.
            drop(unsafe { F::Data::from_foreign(data) });
        }
    }
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
    pub(crate) fn set(self, data: F::Data) {
        // INVARIANT: From `into_foreign`; it was null.
        // SAFETY: By the type invariant.
        unsafe { (*self.0).data = data.into_foreign() };
    }
}

/// The data of a file that an attribute names.
///
/// # Safety
///
/// `uobject` must be that of an attribute, and stay so for `'a`.
pub(super) unsafe fn data<'a, F: EventFile>(
    uobject: *mut bindings::ib_uobject,
) -> Result<<F::Data as ForeignOwnable>::Borrowed<'a>> {
    // SAFETY: The caller's promise.
    let data = unsafe { (*object::<F>(uobject)?).data };

    if data.is_null() {
        return Err(EIO);
    }
    // SAFETY: By the invariant of `FileObject`; the attribute holds the file open.
    Ok(unsafe { F::Data::borrow(data) })
}
