// SPDX-License-Identifier: GPL-2.0

//! Errors of system calls, and their names.

const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::EIO, "EIO"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::ENODEV, "ENODEV"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
];

/// Returns the error of the last system call of the thread.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Returns the text of a result: of a call 0 or an errno, of poll(2) its events.
pub fn result_name(result: i32) -> String {
    let known = NAMES.iter().find(|(errno, _)| *errno == -result);
    known.map_or_else(|| result.to_string(), |(_, name)| name.to_string())
}

/// Returns the result that a text stands for.
pub fn result_of(name: &str) -> Option<i32> {
    let known = NAMES.iter().find(|(_, text)| *text == name);
    known.map_or_else(|| name.parse().ok(), |(errno, _)| Some(-errno))
}
