// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The relation between one open uverbs file and one receive QP.

use std::mem::ManuallyDrop;
use std::os::fd::AsFd;

use super::context::Context;
use crate::error::Cause;
use crate::uapi::*;
use crate::uverbs::{Command, Result};

/// A registration with a receive QP, which ends when it is dropped.
#[derive(Debug)]
#[must_use = "dropping a registration ends it"]
pub struct Registration<'file> {
    context: Context<'file>,
    handle: u32,
    qp_num: u32,
}

impl<'file> Registration<'file> {
    /// The number that senders connect to.
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// As [`crate::Registration::unregister`].
    pub fn unregister(self) -> Result<()> {
        ManuallyDrop::new(self).unregister_in_place()
    }

    fn unregister_in_place(&mut self) -> Result<()> {
        // After the device was removed there is no registration, which EIO reports.
        match Command::new(XRC_RCV_OBJECT_REGISTRATION, XRC_RCV_METHOD_QP_UNREG)
            .handle(XRC_RCV_ATTR_QP_UNREG_HANDLE, self.handle)
            .execute(self.context.as_fd())
        {
            Err(Cause::Os(libc::EIO)) => Ok(()),
            result => result,
        }
    }

    /// Returns the registration's uverbs handle, which the caller has to destroy from now on.
    pub fn into_handle(self) -> u32 {
        ManuallyDrop::new(self).handle
    }

    /// The registration that [`into_handle`](Self::into_handle) gave the handle of.
    pub fn from_handle(context: Context<'file>, handle: u32, qp_num: u32) -> Self {
        Registration {
            context,
            handle,
            qp_num,
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // A failure means that the handle does not exist any more: a forked child that shares the
        // file destroyed it, or the file was closed. Either way the registration has ended.
        let _ = self.unregister_in_place();
    }
}
