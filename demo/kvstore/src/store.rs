// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The descriptor store of the service manager.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use sd_notify::NotifyState;

use crate::Result;

/// Keeps `fd` in the store, and returns when it is there: a manager may ignore messages of a
/// process that has ended.
pub(crate) fn keep(name: &str, fd: impl AsFd) -> Result<()> {
    let state = [
        NotifyState::FdStore,
        NotifyState::FdName(name),
        NotifyState::Custom("FDPOLL=0"),
    ];
    sd_notify::notify_with_fds(&state, &[fd.as_fd()])?;
    barrier()
}

/// Returns when the manager has read all messages before.
fn barrier() -> Result<()> {
    let (mut barrier, theirs) = UnixStream::pair()?;
    let state = [NotifyState::Custom("BARRIER=1")];
    sd_notify::notify_with_fds(&state, &[theirs.as_fd()])?;
    drop(theirs);
    barrier.read_to_end(&mut Vec::new())?;
    Ok(())
}

pub(crate) fn remove(name: &str) -> Result<()> {
    sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])?;
    barrier()
}

/// The descriptors that earlier servers have kept, with their names.
pub(crate) fn inherited() -> Result<Vec<(String, OwnedFd)>> {
    let fds = sd_listen_fds::get()?.into_iter();
    Ok(fds
        .map(|(name, fd)| (name.unwrap_or_default(), fd.into_std()))
        .collect())
}
