// SPDX-License-Identifier: GPL-2.0

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
    sync::{aref::ARef, Arc, ArcBorrow},
};

pub(crate) trait EventHandler: Send + Sync + Sized + 'static {
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, event: u32);
}

pub(crate) struct TargetQp<H> {
    qpn: u32,
    state: QpState,
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
    ) -> Result<Self> {
        let device = xrcd.device();
        let context = handler.clone();
        let qpn = device.create_qp(xrcd.id, move |qpn, event| {
            H::event(context.as_arc_borrow(), qpn, event);
        })?;

        Ok(Self {
            qpn,
            state: QpState::Reset,
            device: device.into(),
            _handler: handler,
        })
    }

    pub(crate) fn port(&self) -> u32 {
        1
    }

    pub(crate) fn modify(&mut self, attributes: &mut QpAttr, _: Option<&UData<'_>>) -> Result {
        self.device.call(Verb::Modify, self.qpn)?;
        if attributes.mask().has(QpAttrMask::STATE) {
            self.state = attributes.state()?;
        }
        Ok(())
    }

    pub(crate) fn admits(&self, _label: &SecurityLabel) -> Result {
        Ok(())
    }

    pub(crate) fn query(&mut self) -> Result<QpAttr> {
        self.device.call(Verb::Query, self.qpn)?;
        Ok(QpAttr::with_state(self.state))
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
