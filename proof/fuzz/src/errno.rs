// SPDX-License-Identifier: GPL-2.0

//! Errors of system calls, and their names.

use xrc_rcv_spec::Errno;

/// Returns the error of the last system call of the thread.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Returns the text of a result: of a call 0 or an errno, of poll(2) its events.
pub fn result_name(result: i32) -> String {
    Errno::from_number(-result).map_or_else(|| result.to_string(), |errno| errno.to_string())
}

/// Returns the result that a text stands for.
pub fn result_of(name: &str) -> Option<i32> {
    let known = Errno::ALL.iter().find(|errno| errno.to_string() == name);
    known.map_or_else(|| name.parse().ok(), |errno| Some(-errno.number()))
}
