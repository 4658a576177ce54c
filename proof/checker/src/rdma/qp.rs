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
use crate::ib_verbs::ib_qp_attr;
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

const SENDER_ONLY: QpAttrMask = QpAttrMask::MAX_QP_RD_ATOMIC
    .or(QpAttrMask::RETRY_CNT)
    .or(QpAttrMask::RNR_RETRY);

pub(crate) struct Modifier(u32);

pub(crate) struct TargetQp<H> {
    qpn: u32,
    state: Atomic<u32>,
    destination: Atomic<u32>,
    /// The port that it was modified to.
    port: Atomic<u32>,
    max_dest_rd_atomic: Atomic<u32>,
    min_rnr_timer: Atomic<u32>,
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
            destination: Atomic::new(0),
            port: Atomic::new(1),
            max_dest_rd_atomic: Atomic::new(0),
            min_rnr_timer: Atomic::new(0),
            device: device.into(),
            _handler: handler,
        };

        Ok((qp, Modifier(qpn)))
    }

    pub(crate) fn port(&self) -> u32 {
        self.port.load(Relaxed)
    }

    pub(crate) fn modify(
        &self,
        modifier: &mut Modifier,
        attributes: &mut QpAttr,
        _: Option<&UData<'_>>,
    ) -> Result {
        assert_eq!(modifier.0, self.qpn);
        // ib_core knows no such transition, nor such attributes of a QP that does not send.
        if attributes.mask().and(SENDER_ONLY) != QpAttrMask::NONE {
            return Err(EINVAL);
        }
        if self.state.load(Relaxed) == QpState::Reset as u32
            && attributes.mask().has(QpAttrMask::STATE)
            && attributes.state()? == QpState::Rtr
        {
            return Err(EINVAL);
        }

        let result = self.device.call(Verb::Modify, self.qpn);

        // A device that fails may have modified the QP.
        if attributes.mask().has(QpAttrMask::STATE) {
            self.state.store(attributes.state()? as u32, Relaxed);
        }
        if attributes.mask().has(QpAttrMask::DEST_QPN) {
            self.destination.store(attributes.destination(), Relaxed);
        }
        if attributes.mask().has(QpAttrMask::PORT) {
            self.port.store(attributes.port(), Relaxed);
        }
        if attributes.mask().has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            let number = attributes.attr.max_dest_rd_atomic;

            self.max_dest_rd_atomic.store(number.into(), Relaxed);
        }
        if attributes.mask().has(QpAttrMask::MIN_RNR_TIMER) {
            let timer = attributes.attr.min_rnr_timer;

            self.min_rnr_timer.store(timer.into(), Relaxed);
        }
        result
    }

    pub(crate) fn admits(&self, _label: &SecurityLabel) -> Result {
        Ok(())
    }

    pub(crate) fn query(&self) -> Result<QpAttr> {
        self.device.call(Verb::Query, self.qpn)?;
        Ok(QpAttr::of_query(ib_qp_attr {
            qp_state: self.state.load(Relaxed),
            port_num: self.port.load(Relaxed),
            path_port: 1,
            dest_qp_num: self.destination.load(Relaxed),
            max_dest_rd_atomic: self.max_dest_rd_atomic.load(Relaxed) as u8,
            min_rnr_timer: self.min_rnr_timer.load(Relaxed) as u8,
        }))
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
