// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The standard output.
//!
//! Before `main()`, Rust's runtime opens /dev/null in place of a descriptor that is closed: output
//! would be lost, and the exit status that of success.

use std::io::{self, StdoutLock};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: F_GETFD touches no memory.
    let is_open = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } >= 0;
    IS_CLOSED.store(!is_open, Ordering::Relaxed);
}

// SAFETY: The C library calls the functions of this section before `main()`. This one calls fcntl()
// only, and needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Returns it, unless it was closed when the program was started.
pub(crate) fn open() -> Result<StdoutLock<'static>> {
    if IS_CLOSED.load(Ordering::Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::EBADF)).context("the standard output");
    }
    Ok(io::stdout().lock())
}

/// The number of columns, if it is a terminal that has some.
pub(crate) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
