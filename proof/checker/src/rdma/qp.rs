// SPDX-License-Identifier: GPL-2.0

//! `src/rdma/qp.rs`: the receive QPs of the modelled device.

use super::{
    device::{Device, Verb},
    pd::ProtectionDomain,
    qp_attr::{QpAttr, QpAttrMask, QpState},
    security::SecurityLabel,
    udata::UData,
    xrcd::Xrcd,
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, ArcBorrow,
    },
};

pub(crate) trait EventHandler: Send + Sync + Sized + 'static {
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, event: u32);
}

pub(crate) struct Modifier(u32);

pub(crate) struct TargetQp<H> {
    qpn: u32,
    state: Atomic<u32>,
    device: ARef<Device>,
    _handler: Arc<H>,
}

impl<H: EventHandler> TargetQp<H> {
    /// # Safety
    ///
    /// As in the module.
    pub(crate) unsafe fn new(
        _pd: Arc<ProtectionDomain>,
        xrcd: &Xrcd,
        handler: Arc<H>,
        _owner: &'static CStr,
    ) -> Result<(Self, Modifier)> {
        let device = xrcd.device();
        let context = handler.clone();
        let qpn = device.create_qp(xrcd.id, move |qpn, event| {
            H::event(context.as_arc_borrow(), qpn, event);
        })?;

        let qp = Self {
            qpn,
            state: Atomic::new(QpState::Reset as u32),
            device: device.into(),
            _handler: handler,
        };

        Ok((qp, Modifier(qpn)))
    }

    pub(crate) fn port(&self) -> u32 {
        1
    }

    pub(crate) fn modify(
        &self,
        modifier: &mut Modifier,
        attributes: &mut QpAttr,
        _: Option<&UData<'_>>,
    ) -> Result {
        assert_eq!(modifier.0, self.qpn);

        let result = self.device.call(Verb::Modify, self.qpn);

        // A device that fails may have modified the QP.
        if attributes.mask().has(QpAttrMask::STATE) {
            self.state.store(attributes.state()? as u32, Relaxed);
        }
        result
    }

    pub(crate) fn admits(&self, _label: &SecurityLabel) -> Result {
        Ok(())
    }

    pub(crate) fn query(&self) -> Result<QpAttr> {
        self.device.call(Verb::Query, self.qpn)?;
        Ok(QpAttr::with_state(self.state.load(Relaxed).try_into()?))
    }
}

impl<H> TargetQp<H> {
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }
}

impl<H> Drop for TargetQp<H> {
    fn drop(&mut self) {
        self.device.destroy_qp(self.qpn);
    }
}
