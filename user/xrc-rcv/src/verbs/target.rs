// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The receiving end of an XRC connection as libibverbs has it.

use std::fmt;
use std::ptr;

use super::object::{Object, ibv_destroy_qp, modify, ready_to_receive};
use crate::attr::{QpAttr, QpState};
use crate::domain::Domain;
use crate::error::{Cause, Result};
use crate::verbs_sys::*;

/// An XRC target QP that belongs to the processes that created and opened it, and is destroyed with
/// the last of them: what Linux has without the module `ib_xrc_rcv`.
///
/// One that opened it gets none of its events. A domain does not list them: the number has to be
/// known.
pub struct TargetQp {
    // Each is dropped before the objects it uses.
    qp: Object<ibv_qp>,
    domain: Domain,
}

impl TargetQp {
    /// Creates a QP in `domain`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no XRC, and those of `ibv_create_qp_ex()`.
    pub fn create(domain: &Domain) -> Result<TargetQp> {
        let mut attr = ibv_qp_init_attr_ex::xrc_target(domain.as_ibv(), ptr::null_mut());
        let create = domain.device().xrc_ops().and_then(|ops| ops.create_qp_ex);
        // SAFETY: The provider's function is given its own context, and an attribute with
        // everything its mask names; the domain is open.
        let qp = create.map(|create| unsafe { create(domain.device().as_ibv(), &mut attr) });
        TargetQp::made(qp, domain).map_err(domain.device().error("create an XRC target QP"))
    }

    /// Opens a QP of `domain` that another process has created.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the domain has no such QP, and those of `ibv_open_qp()`.
    pub fn open(domain: &Domain, qp_num: u32) -> Result<TargetQp> {
        let mut attr = ibv_qp_open_attr {
            comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
            qp_num,
            xrcd: domain.as_ibv(),
            qp_context: ptr::null_mut(),
            qp_type: IBV_QPT_XRC_RECV,
        };
        let open = domain.device().xrc_ops().and_then(|ops| ops.open_qp);
        // SAFETY: The provider's function is given its own context.
        let qp = open.map(|open| unsafe { open(domain.device().as_ibv(), &mut attr) });
        TargetQp::made(qp, domain)
            .map_err(|cause| domain.error("open XRC target QP", qp_num, cause))
    }

    fn made(qp: Option<*mut ibv_qp>, domain: &Domain) -> std::result::Result<TargetQp, Cause> {
        Ok(TargetQp {
            qp: Object::new(qp.ok_or(Cause::Os(libc::EOPNOTSUPP))?, ibv_destroy_qp)?,
            domain: domain.clone(),
        })
    }

    /// The number that senders connect to.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: The QP is alive.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Connects to an initiator: takes the QP from RESET to RTR.
    ///
    /// # Errors
    ///
    /// `EINVAL` for attributes that are missing or wrong; the provider's own.
    pub fn connect(&self, attr: &QpAttr) -> Result<()> {
        ready_to_receive(&self.qp, attr)
            .map_err(|cause| self.domain.error("connect QP", self.qp_num(), cause))
    }

    /// Modifies the QP.
    ///
    /// # Errors
    ///
    /// Those of `ibv_modify_qp()`.
    pub fn modify(&self, attr: &QpAttr) -> Result<()> {
        let state = attr.state().unwrap_or(QpState::Reset);
        modify(&self.qp, &attr.to_ibv(), state, attr.mask())
            .map_err(|cause| self.domain.error("modify QP", self.qp_num(), cause))
    }

    /// Destroys the QP, or closes it if another process has it; dropping it does the same silently.
    pub fn destroy(self) -> Result<()> {
        let (qp_num, domain) = (self.qp_num(), self.domain.clone());
        self.qp
            .destroy()
            .map_err(|cause| domain.error("destroy QP", qp_num, cause))
    }
}

impl fmt::Debug for TargetQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetQp")
            .field("qp_num", &format_args!("{:#x}", self.qp_num()))
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
