// SPDX-License-Identifier: GPL-2.0

//! A user in the kernel, which has the domain open, and a handler in place of an event channel.
//!
//! Calls have the order of those in `src/kernel_api.rs`. Nothing keeps them from the removal of the
//! device.

use crate::{
    domain::Registration,
    event::EventMask,
    kernel_holder::{Callback, KernelHolder},
    orders::{self, HANDLE},
    qp_status::Lifetime,
    registrations::Holder,
    uapi::xrc_rcv_record,
    uverbs::Attached,
    watch::Watch,
};
use kernel::{prelude::*, runtime};
use std::sync::{Arc as StdArc, Mutex as StdMutex};
use xrc_rcv_spec::{Errno, Id, Right};

pub(crate) struct KernelUser {
    /// Its number in the contract: it is a file with a channel there.
    id: Id,
    registration: StdMutex<Option<(Registration, StdArc<Watch>)>>,
}

struct Handler(StdArc<Watch>);

impl Callback for Handler {
    fn event(&self, record: &xrc_rcv_record) {
        assert!(
            !self.0.is_silent(),
            "an event after UNREG, or after QP_GONE"
        );
        self.0.got(record);
    }
}

impl KernelUser {
    /// Opens the domain.
    pub(crate) fn open(attached: &Attached) -> StdArc<Self> {
        let id = attached.new_id();

        attached.orders.open(id, Right::Own, || attached.get_xrcd());
        StdArc::new(Self {
            id,
            registration: StdMutex::default(),
        })
    }

    fn holder() -> Result<(Holder, StdArc<Watch>)> {
        let watch = Watch::new(EventMask::ALL);
        let handler: Box<dyn Callback> = Box::new(Handler(watch.clone()));
        let holder = KernelHolder::new(Some(handler.into()), EventMask::ALL)?;

        Ok((Holder::User(holder), watch))
    }

    fn keep(&self, registration: Registration, watch: StdArc<Watch>) {
        let before = self
            .registration
            .lock()
            .unwrap()
            .replace((registration, watch));

        assert!(before.is_none(), "a user registers once");
    }

    /// `ib_xrc_rcv_alloc_qp`
    pub(crate) fn alloc(&self, attached: &Attached, lifetime: Lifetime) -> Result {
        let make = || {
            let (holder, watch) = Self::holder()?;
            let qp = attached.create(lifetime, Some(holder))?;
            let created = (qp.qpn(), qp.serial());

            watch.begins_with(attached.device.history(qp.qpn()));
            self.keep(qp.publish().expect("it has a holder"), watch);
            Ok(created)
        };
        let call = orders::alloc(self.id, lifetime);
        // ENODEV of a domain that is created during the removal of the device.
        let possible = [Errno::EIO, Errno::ENODEV];
        let created = attached
            .orders
            .call(self.id, call, &possible, make, orders::allocated);

        attached.device.check_ended();
        created.map(drop)
    }

    /// `ib_xrc_rcv_reg_qp`
    pub(crate) fn register(&self, attached: &Attached, qpn: u32) -> Result {
        let make = || {
            let (holder, watch) = Self::holder()?;
            let registration = attached.register_holder(qpn, holder, &watch)?;

            self.keep(registration, watch);
            Ok(())
        };
        let call = orders::reg(self.id, &[qpn]);

        attached
            .orders
            .call(self.id, call, &[], make, orders::one_done)
    }

    /// `ib_xrc_rcv_unreg_qp`
    pub(crate) fn unregister(&self, attached: &Attached) {
        let registration = self.registration.lock().unwrap().take();
        let Some((registration, watch)) = registration else {
            return;
        };
        let make = || {
            if let Some(qp) = registration.end() {
                qp.destroy();
            }
            Ok(())
        };
        let call = orders::unreg(self.id, &[registration.qpn()]);

        watch.ends();
        attached
            .orders
            .call(self.id, call, &[], make, orders::one_done)
            .expect("it does not fail");
        watch.is_over();
        attached.device.check_ended();
    }

    /// `ib_xrc_rcv_destroy_qp`
    pub(crate) fn destroy(&self, attached: &Attached, qpn: u32) -> Result {
        let call = orders::destroy(qpn, false);
        let make = || attached.destroy_qp(qpn, false);

        attached
            .orders
            .call(self.id, call, &[], make, orders::result)
    }

    /// Closes the domain; the registration may end later.
    pub(crate) fn close_domain(&self, attached: &Attached) {
        let id = self.id;

        attached.orders.effect(
            || attached.put_xrcd(),
            move |objects| {
                objects.close_handle(id, HANDLE);
            },
        );
    }

    /// Waits for the events, and checks them. The QP has ended.
    pub(crate) fn check(&self) {
        if let Some((_, watch)) = &*self.registration.lock().unwrap() {
            while !watch.is_complete(true) {
                runtime::yield_now();
            }
            watch.check();
        }
    }
}
