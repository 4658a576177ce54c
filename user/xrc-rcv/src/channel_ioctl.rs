// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The ioctls of an event channel: REG and UNREG without a uverbs file.
//!
//! They take less than half of the instructions of the methods, and arrays of any length.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Cause;
use crate::uapi::*;
use crate::uverbs::Result;

/// Registers the channel with QPs of its domain, in order. Returns for how many of them the kernel
/// has filled an element of `infos`, of which there are as many, and why not for the next.
pub(crate) fn register(
    channel: BorrowedFd<'_>,
    qp_nums: &[u32],
    infos: &mut [xrc_rcv_reg_info],
) -> (usize, Result<()>) {
    assert_eq!(qp_nums.len(), infos.len());
    let mut args = arguments(qp_nums);
    args.infos = infos.as_mut_ptr().expose_provenance() as u64;
    args.info_size = size_of::<xrc_rcv_reg_info>() as u32;
    // SAFETY: The kernel reads as many numbers as `count` says, which is at most the length of
    // `qp_nums`, and writes an element of `infos`, which is as long, for each.
    unsafe { call(channel, CHANNEL_IOCTL_REG, args) }
}

/// Ends the registrations of the channel with QPs, in order. Returns how many of the numbers it is
/// not registered with any more, and why with the next.
pub(crate) fn unregister(channel: BorrowedFd<'_>, qp_nums: &[u32]) -> (usize, Result<()>) {
    // SAFETY: The kernel reads as many numbers as `count` says, which is at most the length of
    // `qp_nums`.
    match unsafe { call(channel, CHANNEL_IOCTL_UNREG, arguments(qp_nums)) } {
        // The device was removed, or its file closed: there is no registration.
        (_, Err(Cause::Os(libc::EIO))) => (qp_nums.len(), Ok(())),
        answer => answer,
    }
}

fn arguments(qp_nums: &[u32]) -> xrc_rcv_qpns {
    xrc_rcv_qpns {
        qpns: qp_nums.as_ptr().expose_provenance() as u64,
        // No domain has as many QPs: the caller learns that the rest was not done.
        count: u32::try_from(qp_nums.len()).unwrap_or(u32::MAX),
        ..Default::default()
    }
}

/// # Safety
///
/// The kernel may access the arrays that the arguments name.
unsafe fn call(
    channel: BorrowedFd<'_>,
    request: uverbs_constants,
    mut args: xrc_rcv_qpns,
) -> (usize, Result<()>) {
    let request = libc::c_ulong::from(request);
    // SAFETY: `args` is the struct whose size is in the request; its arrays by the caller's word.
    let answer = unsafe { libc::ioctl(channel.as_raw_fd(), request, &raw mut args) };
    let result = match answer {
        0 => Ok(()),
        _ => Err(match Cause::last() {
            // The descriptor is not that of an event channel.
            Cause::Os(libc::ENOTTY) => Cause::Unavailable,
            cause => cause,
        }),
    };
    (args.done as usize, result)
}
