// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs that list something.
//!
//! Unlike those of `kernel::debugfs`, an open one keeps the module loaded: debugfs calls the release of
//! a file also after the file was removed. And a file is printed once, when it is opened; reading it
//! hands out what was printed, however long it is and however often it is read.
//!
//! C header: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h)

use crate::bindings;
use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};
use kernel::{
    error::from_result,
    fmt::{
        self,
        Write, //
    },
    prelude::*,
    sync::Arc, //
};

/// A directory, until dropped.
///
/// # Invariants
///
/// `dentry` is what debugfs returned, a directory or an error pointer, and removed by nobody else.
pub(crate) struct Dir {
    dentry: *mut bindings::dentry,
    _parent: Option<Arc<Dir>>,
}

// SAFETY: debugfs has locks of its own.
unsafe impl Send for Dir {}

// SAFETY: As above.
unsafe impl Sync for Dir {}

impl Dir {
    /// Makes a directory. As everywhere in debugfs, failure makes no difference to the caller.
    pub(crate) fn new(name: &CStr, parent: Option<Arc<Dir>>) -> Self {
        let parent_dentry = match &parent {
            Some(parent) => parent.dentry,
            None => core::ptr::null_mut(),
        };

        // INVARIANT: debugfs returns it. The parent, whose removal would take it along, stays longer.
        Self {
            // SAFETY: By the type invariant of the parent.
            dentry: unsafe {
                bindings::ib_xrc_rcv_debugfs_create_dir(name.as_char_ptr(), parent_dentry)
            },
            _parent: parent,
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Waits for files that are being opened or read.
        unsafe { bindings::ib_xrc_rcv_debugfs_remove(self.dentry) }
    }
}

/// What a file says, as it is being printed.
pub(crate) struct Text(KVVec<u8>);

impl Text {
    /// Adds to it.
    pub(crate) fn print(&mut self, arguments: fmt::Arguments<'_>) -> Result {
        // Nothing that is printed fails by itself.
        self.write_fmt(arguments).map_err(|_| ENOMEM)
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0
            .extend_from_slice(text.as_bytes(), GFP_KERNEL)
            .map_err(|_| fmt::Error)
    }
}

/// Prints what a file says of `T`.
pub(crate) type Print<T> = fn(&T, &mut Text) -> Result;

/// A file that is there.
struct File<T> {
    print: Print<T>,
    data: Arc<T>,
}

/// A directory with files, until dropped.
pub(crate) struct Listing<T> {
    /// First: no file is being opened any more when what it prints goes.
    _dir: Dir,
    _files: KVec<KBox<File<T>>>,
}

impl<T: Send + Sync + 'static> Listing<T> {
    /// Makes a directory with a file for each of `files`, which print `data`.
    pub(crate) fn new(
        name: &CStr,
        parent: Arc<Dir>,
        operations: &'static FileOperations<T>,
        data: &Arc<T>,
        files: &[(&CStr, Print<T>)],
    ) -> Result<Self> {
        // Before the directory, so that it goes after the directory if this fails half-way.
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

            // SAFETY: The directory is valid. The file is removed with it, before what is passed as its
            // data, of the type that the operations expect.
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

/// The file operations, to be put in a `static`.
pub(crate) struct FileOperations<T>(bindings::file_operations, PhantomData<fn(&T)>);

// SAFETY: Constant.
unsafe impl<T> Sync for FileOperations<T> {}

impl<T: Send + Sync + 'static> FileOperations<T> {
    /// Describes the files; an open one keeps `owner` loaded.
    pub(crate) const fn new(owner: &'static ThisModule) -> Self {
        Self(
            bindings::file_operations {
                owner: owner.as_ptr(),
                open: Some(Self::open_callback),
                read: Some(read_callback),
                llseek: Some(bindings::default_llseek),
                release: Some(release_callback),
                // SAFETY: Zeroes are valid: operations that are not there.
                ..unsafe { MaybeUninit::zeroed().assume_init() }
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
            // SAFETY: debugfs keeps the file from being removed while it is being opened, and its data
            // is what `Listing::new` passed.
            let listed = unsafe { &*(*inode).i_private.cast::<File<T>>() };
            let mut text = KBox::new(Text(KVVec::new()), GFP_KERNEL)?;

            (listed.print)(&listed.data, &mut text)?;
            // SAFETY: The file is being opened, so nobody else has it.
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
    // SAFETY: `open_callback` stored the text, and nothing changes it until the file is released.
    let text = unsafe { &(*(*file).private_data.cast::<Text>()).0 };

    // SAFETY: debugfs passes a buffer of user space and a valid offset; the text is as long as it says.
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
    // SAFETY: `open_callback` stored it, and nobody uses it any more.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<Text>()) });
    0
}
