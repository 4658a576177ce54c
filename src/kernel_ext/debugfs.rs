// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs that list objects.
//!
//! They differ from the files of `kernel::debugfs` in two respects:
//!
//! * An open file holds a reference to the module. debugfs calls the `release` of a file even after
//!   the file was removed.
//! * The text is printed once, when the file is opened, and every read returns parts of it. It may
//!   have any length, and is charged to the process that opens the file.
//!
//! C header: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h)

use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    error::from_result,
    fmt::{
        self,
        Write, //
    },
    prelude::*,
    sync::Arc, //
};

/// A directory. Removed on drop, with the files below it.
///
/// # Invariants
///
/// `dentry` is a directory or an error pointer, as debugfs returned it, and owned by `self`.
pub(crate) struct Dir {
    dentry: *mut bindings::dentry,
    _parent: Option<Arc<Dir>>,
}

// SAFETY: A directory may be removed by any thread: debugfs has locks of its own, and the dentry
// belongs to no thread. `_parent` is `Send` by the same reasons.
unsafe impl Send for Dir {}

// SAFETY: A shared reference gives access to making files and directories below this one, for which
// debugfs takes locks of its own.
unsafe impl Sync for Dir {}

impl Dir {
    /// Creates a directory. As is usual with debugfs, the caller does not learn of a failure.
    pub(crate) fn new(name: &CStr, parent: Option<Arc<Dir>>) -> Self {
        let parent_dentry = match &parent {
            Some(parent) => parent.dentry,
            None => core::ptr::null_mut(),
        };

        // INVARIANT: debugfs returns the dentry, and nothing else removes it: the parent, which
        // would be removed with all that is below it, is dropped later.
        Self {
            // SAFETY:
            // * `name` is a C string, of which debugfs makes a copy.
            // * By the type invariant of the parent, its dentry is a directory or an error pointer,
            //   for which debugfs returns an error pointer; without a parent it is null, for the
            //   root.
            dentry: unsafe {
                bindings::ib_xrc_rcv_debugfs_create_dir(name.as_char_ptr(), parent_dentry)
            },
            _parent: parent,
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the dentry is a directory that nothing else removes, or an
        // error pointer, which debugfs ignores. This waits for files below it that are being opened
        // or read.
        unsafe { bindings::ib_xrc_rcv_debugfs_remove(self.dentry) }
    }
}

/// The text of a file.
pub(crate) struct Text(KVVec<u8>);

impl Text {
    /// Appends formatted text.
    pub(crate) fn print(&mut self, arguments: fmt::Arguments<'_>) -> Result {
        // Only the allocation fails, not the formatting.
        self.write_fmt(arguments).map_err(|_| ENOMEM)
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0
            .extend_from_slice(text.as_bytes(), GFP_KERNEL_ACCOUNT)
            .map_err(|_| fmt::Error)
    }
}

/// A function that prints the text of a file from its data.
pub(crate) type Print<T> = fn(&T, &mut Text) -> Result;

/// A file, as its inode refers to it.
struct File<T> {
    print: Print<T>,
    data: Arc<T>,
}

/// A directory with files. Removed on drop.
pub(crate) struct Listing<T> {
    /// Dropped first: no file is opened after its data is freed.
    _dir: Dir,
    _files: KVec<KBox<File<T>>>,
}

impl<T: Send + Sync + 'static> Listing<T> {
    /// Creates a directory with a file for each of `files`, which print `data`.
    pub(crate) fn new(
        name: &CStr,
        parent: Arc<Dir>,
        operations: &'static ListingOperations<T>,
        data: &Arc<T>,
        files: &[(&CStr, Print<T>)],
    ) -> Result<Self> {
        // Declared before the directory, to be dropped after it if a step fails.
        let mut listed = KVec::with_capacity(files.len(), GFP_KERNEL)?;
        let dir = Dir::new(name, Some(parent));

        for (name, print) in files {
            let file = KBox::new(
                File {
                    print: *print,
                    data: data.clone(),
                },
                GFP_KERNEL,
            )?;

            // SAFETY:
            // * By the type invariant of `dir`, its dentry is a directory or an error pointer.
            // * `name` is a C string, of which debugfs makes a copy; the operations are static.
            // * The data is a `File<T>`, which the operations expect. It stays where it is, in a
            //   box, until after the directory is removed, and the file with it: `_dir` is dropped
            //   first.
            unsafe {
                bindings::ib_xrc_rcv_debugfs_create_file(
                    name.as_char_ptr(),
                    dir.dentry,
                    core::ptr::from_ref(&*file).cast_mut().cast(),
                    &operations.0,
                )
            };
            listed.push(file, GFP_KERNEL)?;
        }
        Ok(Self {
            _dir: dir,
            _files: listed,
        })
    }
}

/// The file operations, for a `static`.
pub(crate) struct ListingOperations<T>(bindings::file_operations, PhantomData<fn(&T)>);

// SAFETY: Nothing writes to the structure. Of its pointers, the VFS uses `owner`, a module, whose
// reference count is atomic; the others are to functions.
unsafe impl<T> Sync for ListingOperations<T> {}

impl<T: Send + Sync + 'static> ListingOperations<T> {
    /// Creates the operations. An open file holds a reference to `owner`.
    pub(crate) const fn new(owner: &'static ThisModule) -> Self {
        Self(
            bindings::file_operations {
                owner: owner.as_ptr(),
                open: Some(Self::open_callback),
                read: Some(read_callback),
                llseek: Some(bindings::default_llseek),
                release: Some(release_callback),
                ..pin_init::zeroed()
            },
            PhantomData,
        )
    }

    /// # Safety
    ///
    /// Called by debugfs only, for a file that [`Listing::new`] made with these operations.
    unsafe extern "C" fn open_callback(
        inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> c_int {
        from_result(|| {
            // SAFETY:
            // * By the requirements of this function, `Listing::new` made the file, and passed a
            //   `File<T>` as its data, which debugfs keeps in `i_private`.
            // * debugfs does not remove the file while it is being opened, and the data stays until
            //   the file is removed.
            let listed = unsafe { &*(*inode).i_private.cast::<File<T>>() };
            let mut text = KBox::new(Text(KVVec::new()), GFP_KERNEL)?;

            (listed.print)(&listed.data, &mut text)?;
            // SAFETY: The VFS passes a valid file. It is being opened, so nothing else uses it.
            unsafe { (*file).private_data = KBox::into_raw(text).cast() };
            Ok(0)
        })
    }
}

/// # Safety
///
/// Called by debugfs only, for a file that `open_callback` opened.
unsafe extern "C" fn read_callback(
    file: *mut bindings::file,
    buffer: *mut c_char,
    length: usize,
    offset: *mut bindings::loff_t,
) -> isize {
    // SAFETY: By the requirements of this function, the file is open, and `open_callback` stored a
    // `Text` in it, which nothing changes. `release_callback` takes it back, which the VFS calls
    // after every read has returned.
    let text = unsafe { &(*(*file).private_data.cast::<Text>()).0 };

    // SAFETY:
    // * The VFS passes a buffer of user space, which the function checks, and a valid offset.
    // * `text` can be read for its length.
    unsafe {
        bindings::simple_read_from_buffer(
            buffer.cast(),
            length,
            offset,
            text.as_ptr().cast(),
            text.len(),
        )
    }
}

/// # Safety
///
/// Called by debugfs only, once for a file that `open_callback` opened.
unsafe extern "C" fn release_callback(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: By the requirements of this function, `open_callback` stored a pointer from
    // `KBox::into_raw`, and this is the one call for the file. Every read of it has returned.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<Text>()) });
    0
}
