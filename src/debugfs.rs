// SPDX-License-Identifier: GPL-2.0

//! What receive QPs there are, and who holds them, for people and tools to read.
//!
//! `/sys/kernel/debug/ib_xrc_rcv/INDEX/`, by the index that `rdma dev` shows, has the files `device`,
//! `domains`, `qps` and `registrations`, with a line of `key=value` for each. A name would not do: two
//! network namespaces may have a device of the same name. Opening a file prints it: that takes
//! references under the locks and prints without them, so it holds nobody up. The files of a device go
//! before the device.

use crate::{
    domain::{
        Domain,
        Domains, //
    },
    kernel_ext::{
        debugfs::{
            Dir,
            FileOperations,
            Listing,
            Text, //
        },
        this_module, //
    },
    rdma::device::Device,
    receive_qp::ReceiveQp,
    subscriber::Holder, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::{
        aref::ARef,
        global_lock,
        Arc, //
    }, //
};

global_lock! {
    // SAFETY: `Root::new` initialises it, once, and before a device is attached: only `Root` and the
    // files of a device use it.
    unsafe(uninit) static ROOT: Mutex<Option<Arc<Dir>>> = None;
}

/// The module's directory, until dropped.
pub(crate) struct Root(());

impl Root {
    /// Makes the directory.
    ///
    /// # Safety
    ///
    /// To be called once, before anything else in here.
    pub(crate) unsafe fn new() -> Result<Self> {
        // SAFETY: By the requirements of this function, this is the one call, and nothing has used `ROOT`.
        unsafe { ROOT.init() };

        let dir = Arc::new(Dir::new(crate::NAME, None), GFP_KERNEL)?;

        *ROOT.lock() = Some(dir);
        Ok(Self(()))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let root = ROOT.lock().take();

        drop(root);
    }
}

/// What the files of a device print.
struct Shown {
    device: ARef<Device>,
    domains: Arc<Domains>,
}

/// The files of a device, until dropped.
pub(crate) struct DeviceDir(#[expect(dead_code)] Listing<Shown>);

static OPERATIONS: FileOperations<Shown> = FileOperations::new(this_module());

impl DeviceDir {
    /// Makes the files, in a directory that has the index of the device.
    pub(crate) fn new(device: &Device, domains: &Arc<Domains>) -> Result<Self> {
        let root = ROOT.lock().clone().ok_or(ENODEV)?;
        let name = CString::try_from_fmt(fmt!("{}", device.index()))?;
        let shown = Arc::new(
            Shown {
                device: device.into(),
                domains: domains.clone(),
            },
            GFP_KERNEL,
        )?;

        Ok(Self(Listing::new(
            &name,
            root,
            &OPERATIONS,
            &shown,
            &[
                (c"device", print_device),
                (c"domains", print_domains),
                (c"qps", print_qps),
                (c"registrations", print_registrations),
            ],
        )?))
    }
}

fn for_each_domain(shown: &Shown, mut print: impl FnMut(&Domain) -> Result) -> Result {
    for domain in shown.domains.list()?.values() {
        print(domain)?;
    }
    Ok(())
}

fn for_each_qp(shown: &Shown, mut print: impl FnMut(&ReceiveQp) -> Result) -> Result {
    for_each_domain(shown, |domain| {
        let (qps, _) = domain.list(None, usize::MAX)?;

        for qp in qps {
            print(&qp)?;
        }
        Ok(())
    })
}

fn print_device(shown: &Shown, text: &mut Text) -> Result {
    let device = &shown.device;

    text.print(fmt!("index={} name={}\n", device.index(), device.name()))
}

fn print_domains(shown: &Shown, text: &mut Text) -> Result {
    // One that has none any more, or whose first could not be made, is only remembered.
    for_each_domain(shown, |domain| match domain.len() {
        0 => Ok(()),
        qps => text.print(fmt!("domain={} qps={}\n", domain.id(), qps)),
    })
}

fn print_qps(shown: &Shown, text: &mut Text) -> Result {
    for_each_qp(shown, |qp| {
        let state = qp.subscribers().state().map_or("?", |state| state.name());

        text.print(fmt!(
            "domain={} qpn={:#x} state={} lifetime={} registrations={} dest_qpn={:#x} events={}\n",
            qp.subscribers().domain(),
            qp.qpn(),
            state,
            qp.lifetime().name(),
            qp.subscribers().len(),
            qp.subscribers().destination(),
            qp.subscribers().events(),
        ))
    })
}

fn print_registrations(shown: &Shown, text: &mut Text) -> Result {
    for_each_qp(shown, |qp| {
        for subscriber in qp.subscribers().snapshot()? {
            let (kind, pid) = match subscriber.holder() {
                Holder::File(_, process) => ("file", process.pid()),
                Holder::Kernel => ("kernel", 0),
            };

            text.print(fmt!(
                "kind={} channel={} events={} pending={} domain={} qpn={:#x} pid={} comm=",
                kind,
                u8::from(subscriber.has_channel()),
                subscriber.delivered(),
                subscriber.unread(),
                qp.subscribers().domain(),
                qp.qpn(),
                pid,
            ))?;
            match subscriber.holder() {
                Holder::File(_, process) => text.print(fmt!("{}\n", process.name()))?,
                Holder::Kernel => text.print(fmt!("\n"))?,
            }
        }
        Ok(())
    })
}
