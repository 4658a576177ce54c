// SPDX-License-Identifier: GPL-2.0

//! Lists of domains, receive QPs and registrations in debugfs.
//!
//! `/sys/kernel/debug/ib_xrc_rcv/INDEX/` has the files `device`, `domains`, `members`, `qps` and
//! `registrations`, with a line of `key=value` pairs for each object. INDEX is the index of the
//! device as `rdma dev` shows it: devices in different network namespaces may have the same name.
//! The members are those of all QPs, of whom `registrations` has no line.
//!
//! The text is made when a file is opened. References are taken under the locks and printed without
//! them, so that readers do not delay commands. There can be millions of lines: a reader lets
//! others run between two of them, and can be killed. The files are removed before the device is,
//! which waits until the text of those that are being opened is made.

use crate::{
    domain::{
        Domain,
        Domains, //
    },
    kernel_ext::{
        cond_resched,
        debugfs::{
            Dir,
            Listing,
            ListingOperations,
            Text, //
        },
        process::{
            is_killed,
            uid_here,
            Process, //
        },
        this_module, //
    },
    listener::Listener,
    rdma::device::Device,
    receive_qp::ReceiveQp, //
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
    // SAFETY: `Root::new` initialises it, once, and before a device is attached: only `Root` and
    // the files of a device use it.
    unsafe(uninit) static ROOT: Mutex<Option<Arc<Dir>>> = None;
}

/// The module's directory. Removed on drop.
pub(crate) struct Root(());

impl Root {
    /// Creates the directory.
    ///
    /// # Safety
    ///
    /// Must be called once, and before any other function of this file.
    pub(crate) unsafe fn new() -> Result<Self> {
        // SAFETY: By the requirements of this function, this is the one call, and nothing has used
        // `ROOT`.
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

/// The data that the files of a device list.
struct Shown {
    device: ARef<Device>,
    domains: Arc<Domains>,
}

/// The files of a device. Removed on drop.
pub(crate) struct DeviceDir(#[expect(dead_code)] Listing<Shown>);

static OPERATIONS: ListingOperations<Shown> = ListingOperations::new(this_module());

impl DeviceDir {
    /// Creates the files, in a directory named by the index of the device.
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
                (c"members", print_members),
                (c"qps", print_qps),
                (c"registrations", print_registrations),
            ],
        )?))
    }
}

/// Lets other tasks run between two lines. `EINTR` if the reader was killed.
fn pause() -> Result {
    cond_resched();
    if is_killed() {
        return Err(EINTR);
    }
    Ok(())
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
            pause()?;
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
    // Domains without QPs stay in the table until the XRCD is closed; do not list them.
    for_each_domain(shown, |domain| {
        match (domain.len(), domain.gone(), domain.of_all().number) {
            (0, 0, 0) => Ok(()),
            (qps, gone, all) => text.print(fmt!(
                "domain={} qps={qps} gone={gone} all={all}\n",
                domain.id()
            )),
        }
    })
}

fn print_members(shown: &Shown, text: &mut Text) -> Result {
    for_each_domain(shown, |domain| {
        domain.for_each_of_all(|listener, keeps| {
            pause()?;
            text.print(fmt!("domain={} keeps={} ", domain.id(), u8::from(keeps)))?;
            print_member(listener, text)?;
            print_holder(listener, text)
        })
    })
}

fn print_qps(shown: &Shown, text: &mut Text) -> Result {
    for_each_qp(shown, |qp| {
        let creator = qp.status().creator();
        let state = qp
            .status()
            .known()
            .state()
            .map_or("?", |state| state.name());

        text.print(fmt!(
            "domain={} qpn={:#x} state={} lifetime={} registrations={} dest_qpn={:#x} \
             label={:#x} events={} creator={} user={} serial={} ",
            qp.status().domain(),
            qp.qpn(),
            state,
            qp.status().lifetime().name(),
            qp.registrations().len(),
            qp.status().known().destination(),
            qp.status().label(),
            qp.status().events(),
            uid_here(creator.process().uid()),
            uid_here(creator.accounting_uid()),
            qp.status().serial(),
        ))?;
        print_process(creator.process(), text)
    })
}

fn print_registrations(shown: &Shown, text: &mut Text) -> Result {
    for_each_qp(shown, |qp| {
        qp.registrations().for_each(|listener, unread| {
            pause()?;
            print_registration(qp, listener, unread, text)
        })
    })
}

fn print_registration(
    qp: &ReceiveQp,
    listener: &Listener,
    unread: usize,
    text: &mut Text,
) -> Result {
    print_member(listener, text)?;
    text.print(fmt!(
        "pending={} domain={} qpn={:#x} serial={} ",
        unread,
        qp.status().domain(),
        qp.qpn(),
        qp.status().serial(),
    ))?;
    print_holder(listener, text)
}

fn print_member(listener: &Listener, text: &mut Text) -> Result {
    let is_file = listener.process().is_some();

    text.print(fmt!(
        "kind={} channel={} mask={:#x} ",
        if is_file { "file" } else { "kernel" },
        u8::from(is_file),
        listener.mask().as_raw(),
    ))
}

fn print_holder(listener: &Listener, text: &mut Text) -> Result {
    match listener.process() {
        Some(process) => {
            text.print(fmt!("uid={} ", uid_here(process.uid())))?;
            print_process(process, text)
        }
        None => text.print(fmt!("pid=0 comm=\n")),
    }
}

/// Ends a line. A name may have blanks, but no newline: it is printed without control characters.
fn print_process(process: &Process, text: &mut Text) -> Result {
    text.print(fmt!(
        "pid={} cgroup={} comm={}\n",
        process.pid(),
        process.cgroup(),
        process.name(),
    ))
}
