// SPDX-License-Identifier: GPL-2.0

//! `src/channel_ioctl.rs`, which reads the memory of a process: the scenarios pass QP numbers.

use crate::uapi::xrc_rcv_reg_info;
use kernel::{prelude::*, uaccess::UserPtr};

pub(crate) enum Request {
    Register(QpNumbers, Option<Infos>),
    Unregister(QpNumbers),
}

pub(crate) struct QpNumbers;

pub(crate) struct Infos;

impl Request {
    pub(crate) fn new(_request: u32, _argument: UserPtr) -> Result<Self> {
        Err(EINVAL)
    }
}

impl QpNumbers {
    pub(crate) fn for_each(self, _call: impl FnMut(&[u32]) -> (usize, Result)) -> Result {
        Ok(())
    }
}

impl Infos {
    pub(crate) fn write(&mut self, _info: &xrc_rcv_reg_info) -> Result {
        Ok(())
    }
}
