// SPDX-License-Identifier: GPL-2.0

//! What receive QPs there are, and who holds them, for people and tools to read.
//!
//! `/sys/kernel/debug/ib_xrc_rcv/DEVICE/` has the files `domains`, `qps` and `registrations`,
//! with a line of `key=value` for each. Reading takes references under the locks and prints
//! without them, so it holds nobody up; the files of a device go before the device.

use crate::{
    domain::{
        Domain,
        Domains, //
    },
    rdma::device::Device,
    receive_qp::ReceiveQp,
    registration::Holder, //
};
use kernel::{
    debugfs::{
        Dir,
        Scope, //
    },
    fmt,
    prelude::*,
    str::CString,
    sync::{
        global_lock,
        Arc, //
    }, //
};

global_lock! {
    // SAFETY: `Root::new` is called before anything else of the module runs.
    unsafe(uninit) static ROOT: Mutex<Option<Dir>> = None;
}

/// The module's directory, until dropped.
pub(crate) struct Root(());

impl Root {
    /// Makes the directory.
    ///
    /// # Safety
    ///
    /// To be called once, before anything else in here.
    pub(crate) unsafe fn new() -> Self {
        // SAFETY: The caller's promise.
        unsafe { ROOT.init() };
        *ROOT.lock() = Some(Dir::new(crate::NAME));
        Self(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let root = ROOT.lock().take();

        drop(root);
    }
}

/// The files of a device, until dropped.
pub(crate) struct Files(#[expect(dead_code)] Pin<KBox<Scope<Arc<Domains>>>>);

impl Files {
    /// Makes the files, in a directory that has the name of the device.
    pub(crate) fn new(device: &Device, domains: &Arc<Domains>) -> Result<Self> {
        let root = ROOT.lock().clone().ok_or(ENODEV)?;
        let name = CString::try_from_fmt(fmt!("{}", device.name()))?;
        let files = root.scope(domains.clone(), &name, |domains, dir| {
            dir.read_callback_file(c"domains", domains, &print_domains);
            dir.read_callback_file(c"qps", domains, &print_qps);
            dir.read_callback_file(c"registrations", domains, &print_registrations);
        });

        Ok(Self(KBox::pin_init(files, GFP_KERNEL)?))
    }
}

fn for_each_domain(
    domains: &Domains,
    mut print: impl FnMut(&Domain) -> Result<(), fmt::Error>,
) -> fmt::Result {
    for domain in domains.list().map_err(|_| fmt::Error)? {
        print(&domain)?;
    }
    Ok(())
}

fn for_each_qp(
    domains: &Domains,
    mut print: impl FnMut(&ReceiveQp) -> Result<(), fmt::Error>,
) -> fmt::Result {
    for_each_domain(domains, |domain| {
        let (qps, _) = domain.list(None, usize::MAX).map_err(|_| fmt::Error)?;

        for qp in qps {
            print(&qp)?;
        }
        Ok(())
    })
}

fn print_domains(domains: &Arc<Domains>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // One that has none any more, or whose first could not be made, is only remembered.
    for_each_domain(domains, |domain| match domain.len() {
        0 => Ok(()),
        qps => writeln!(f, "domain={} qps={}", domain.number(), qps),
    })
}

fn print_qps(domains: &Arc<Domains>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for_each_qp(domains, |qp| {
        let state = qp.fan_out().state().map_or("?", |state| state.name());

        writeln!(
            f,
            "domain={} qpn={:#x} state={} lifetime={} registrations={} dest_qpn={:#x} events={}",
            qp.fan_out().domain(),
            qp.number(),
            state,
            qp.lifetime().name(),
            qp.fan_out().len(),
            qp.fan_out().destination(),
            qp.fan_out().events(),
        )
    })
}

fn print_registrations(domains: &Arc<Domains>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for_each_qp(domains, |qp| {
        for registration in qp.fan_out().snapshot().map_err(|_| fmt::Error)? {
            let (kind, pid) = match registration.holder() {
                Holder::File(_, process) => ("file", process.pid()),
                Holder::Kernel => ("kernel", 0),
            };

            write!(
                f,
                "kind={} channel={} events={} pending={} domain={} qpn={:#x} pid={} comm=",
                kind,
                u8::from(registration.has_channel()),
                registration.delivered(),
                registration.unread(),
                qp.fan_out().domain(),
                qp.number(),
                pid,
            )?;
            match registration.holder() {
                Holder::File(_, process) => f.write_fmt(fmt!("{}\n", process.name()))?,
                Holder::Kernel => writeln!(f)?,
            }
        }
        Ok(())
    })
}
