// SPDX-License-Identifier: GPL-2.0

//! The modelled RDMA device: its QPs, their events, and verbs that fail when a scenario says so.

use super::attachment::Data;
use crate::{
    device::AttachedDevice,
    ib_verbs::{self, atomic_t, ib_device, net, refcount_t, Provider},
    oracle::Oracle,
};
use core::{
    cell::{RefCell, UnsafeCell},
    ffi::c_int,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicU64, Ordering},
};
use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    runtime,
    sync::{
        aref::{ARef, AlwaysRefCounted},
        CondVar, Mutex,
    },
};
use std::{
    collections::BTreeMap,
    sync::{Arc as StdArc, Weak},
};
use xrc_rcv_spec::{Record, What};

pub(crate) use crate::ib_verbs::Verb;

/// A device that has QPs with numbers, which it gives away again at once, and reports their events.
#[repr(C)]
pub(crate) struct Device {
    /// What C sees of it, which is first.
    ib: UnsafeCell<ib_device>,
    /// The number of protection domains, and of references to entries of GID tables.
    lent: AtomicIsize,
    driver: AtomicU32,
    /// An entry of the P_Key table of a port that one user may not use.
    denied: Mutex<Option<(u32, u32, u16)>>,
    qps: Mutex<BTreeMap<u32, HwQp>>,
    /// No event of a QP that is being destroyed is being reported.
    is_quiet: CondVar,
    /// The number of objects that are charged.
    pub(crate) charges: AtomicIsize,
    pub(crate) oracle: Oracle,
    /// A verb that fails the next time.
    fails: std::sync::Mutex<Option<(Verb, Error)>>,
    /// The events that were written to the kernel's log.
    logged: std::sync::Mutex<Vec<LoggedEvent>>,
    /// The number of the QP whose destruction takes until there is no other; 0: none.
    slow: AtomicU32,
    /// The data of the module, until it is detached.
    attached: Mutex<Weak<Pin<KBox<AttachedDevice>>>>,
    /// The events of the QPs so far, by their serial numbers.
    histories: Mutex<BTreeMap<u64, StdArc<History>>>,
    /// The `Arc` that it is in: the references of a count cannot be taken of a `&Self`.
    this: Weak<Self>,
}

/// The user for whom the QP counts, the number of the QP, and the type of the event.
pub(crate) type LoggedEvent = (u32, u32, u32);

struct HwQp {
    xrcd: usize,
    handler: StdArc<dyn Fn(u32, u32) + Send + Sync>,
    /// The number of events that are being reported.
    events: usize,
    /// The number of verbs that are being called.
    calls: usize,
    is_modified: bool,
    history: StdArc<History>,
}

/// The types of the events that are reported.
pub(crate) const REPORTED: [u32; 2] = [
    ib_verbs::ib_event_type_IB_EVENT_COMM_EST,
    ib_verbs::ib_event_type_IB_EVENT_PATH_MIG,
];

/// A number for each type.
pub(crate) type Counts = [u64; REPORTED.len()];

/// The events of a QP, which outlive it.
#[derive(Default)]
pub(crate) struct History {
    begun: [AtomicU64; REPORTED.len()],
    done: [AtomicU64; REPORTED.len()],
}

impl History {
    /// Returns the number of events that the device began to report.
    pub(crate) fn begun(&self) -> Counts {
        core::array::from_fn(|index| self.begun[index].load(Ordering::SeqCst))
    }

    /// Returns the number of events that the device has reported.
    pub(crate) fn done(&self) -> Counts {
        core::array::from_fn(|index| self.done[index].load(Ordering::SeqCst))
    }
}

runtime::thread_local! {
    /// The QPs that calls of the thread ended, and whose destruction was not checked yet.
    static ENDED: RefCell<Vec<(u32, StdArc<History>)>> = const { RefCell::new(Vec::new()) };
}

// SAFETY: The members of the cell are constant, but for a count that is changed atomically.
unsafe impl Sync for Device {}

// SAFETY: Any thread may change that count, and drop the device.
unsafe impl Send for Device {}

// SAFETY: It is in an `Arc` of std.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        core::mem::forget(self.shared());
    }

    unsafe fn dec_ref(device: NonNull<Self>) {
        // SAFETY: The caller has a reference.
        let shared = StdArc::into_raw(unsafe { device.as_ref() }.shared());

        // SAFETY: This returns the reference of `shared`, which is no longer used.
        drop(unsafe { StdArc::from_raw(shared) });
        // SAFETY: The caller gives up its own, of the same `Arc`.
        drop(unsafe { StdArc::from_raw(shared) });
    }
}

impl Provider for Device {
    fn reported(&self, record: &Record) {
        self.oracle.reported(record);
        if let Record::Qp {
            number,
            serial,
            what: What::Alloc { .. },
            ..
        } = record
        {
            let history = self.history(*number).unwrap_or_default();

            self.histories.lock().insert(*serial, history);
        }
    }

    fn ends(&self, qpn: u32) {
        if let Some(history) = self.history(qpn) {
            ENDED.with(|ended| ended.borrow_mut().push((qpn, history)));
        }
    }

    fn users(&self, number: c_int) -> c_int {
        // SAFETY: The count is changed atomically, but for tests without other threads.
        let count = unsafe { AtomicI32::from_ptr(&raw mut (*self.ib.get()).refcount.refs.counter) };

        count.fetch_add(number, Ordering::SeqCst) - 1
    }

    fn lends(&self, number: isize) {
        self.lent.fetch_add(number, Ordering::SeqCst);
    }

    fn may_use(&self, uid: u32, port: u32, index: u16) -> Result {
        if *self.denied.lock() == Some((uid, port, index)) {
            return Err(EACCES);
        }
        Ok(())
    }

    fn check(&self, verb: Verb) -> Result {
        let mut fails = self.fails.lock().unwrap();

        match fails.take_if(|(fails, _)| *fails == verb) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn create_qp(&self, xrcd: usize, handler: Box<dyn Fn(u32, u32) + Send + Sync>) -> Result<u32> {
        self.check(Verb::Create)?;
        self.oracle.uses_xrcd(xrcd);

        let mut qps = self.qps.lock();
        let qpn = (1..)
            .find(|qpn| !qps.contains_key(qpn))
            .expect("a number is free");

        qps.insert(
            qpn,
            HwQp {
                xrcd,
                handler: handler.into(),
                events: 0,
                calls: 0,
                is_modified: false,
                history: StdArc::default(),
            },
        );
        Ok(qpn)
    }

    fn call(&self, verb: Verb, qpn: u32) -> Result {
        let begin_or_end = |begins: bool| {
            let mut qps = self.qps.lock();
            let qp = qps.get_mut(&qpn).expect("the QP exists");

            if verb == Verb::Modify {
                assert_ne!(qp.is_modified, begins, "{verb:?} during another");
                qp.is_modified = begins;
            }
            if begins {
                qp.calls += 1;
            } else {
                qp.calls -= 1;
            }
        };

        begin_or_end(true);
        runtime::interleave();
        begin_or_end(false);
        self.check(verb)
    }

    fn destroy_qp(&self, qpn: u32) {
        self.oracle.destroys(qpn);

        let mut qps = self.qps.lock();

        loop {
            let qp = &qps[&qpn];

            assert_eq!(qp.calls, 0, "destroyed during another verb");
            self.oracle.uses_xrcd(qp.xrcd);
            if qp.events == 0 && (qpn != self.slow.load(Ordering::SeqCst) || qps.len() == 1) {
                break;
            }
            self.is_quiet.wait(&mut qps);
        }

        let qp = qps.remove(&qpn);

        drop(qps);
        drop(qp);
        self.is_quiet.notify_all();
    }

    fn is_of_processes(&self) -> bool {
        self.modifies_for_processes_only()
    }

    fn charges(&self, number: isize) {
        self.charges.fetch_add(number, Ordering::SeqCst);
    }
}

impl Device {
    pub(crate) fn new() -> StdArc<Self> {
        Self::with_roce(0)
    }

    /// Returns a device with some ports of RoCE, as bits.
    pub(crate) fn with_roce(ports_of_roce: u32) -> StdArc<Self> {
        StdArc::new_cyclic(|this: &Weak<Self>| Self {
            ib: UnsafeCell::new(ib_device {
                refcount: refcount_t {
                    refs: atomic_t { counter: 1 },
                },
                ports_of_roce,
                provider: this.as_ptr(),
            }),
            lent: AtomicIsize::new(0),
            driver: AtomicU32::new(ib_verbs::rdma_driver_id_RDMA_DRIVER_UNKNOWN),
            denied: new_mutex!(None, "Device::denied"),
            qps: new_mutex!(BTreeMap::new(), "Device::qps"),
            is_quiet: new_condvar!("Device::is_quiet"),
            charges: AtomicIsize::new(0),
            oracle: Oracle::default(),
            fails: std::sync::Mutex::default(),
            logged: std::sync::Mutex::default(),
            slow: AtomicU32::new(0),
            attached: new_mutex!(Weak::new(), "Device::attached"),
            histories: new_mutex!(BTreeMap::new(), "Device::histories"),
            this: this.clone(),
        })
    }

    fn shared(&self) -> StdArc<Self> {
        self.this.upgrade().expect("it is borrowed")
    }

    /// # Safety
    ///
    /// As in the module.
    pub(crate) unsafe fn from_ptr<'a>(device: *mut ib_device) -> &'a Self {
        // SAFETY: By the requirements of this function. The structure of C is the first member.
        unsafe { &*device.cast() }
    }

    pub(crate) fn as_ptr(&self) -> *mut ib_device {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// The device is one of a driver.
    pub(crate) fn is_of(&self, driver: ib_verbs::rdma_driver_id) {
        self.driver.store(driver, Ordering::SeqCst);
    }

    fn is_driven_by(&self, driver: ib_verbs::rdma_driver_id) -> bool {
        self.driver.load(Ordering::SeqCst) == driver
    }

    pub(crate) fn modifies_for_processes_only(&self) -> bool {
        self.is_driven_by(ib_verbs::rdma_driver_id_RDMA_DRIVER_QEDR)
    }

    pub(crate) fn gives_kernel_reserved_key(&self) -> bool {
        self.is_driven_by(ib_verbs::rdma_driver_id_RDMA_DRIVER_MLX4)
    }

    pub(crate) fn has_port(&self, port: u32) -> bool {
        (1..=ib_verbs::PORTS).contains(&port)
    }

    /// A user may not use an entry of the P_Key table of a port.
    pub(crate) fn deny(&self, uid: u32, port: u32, index: u16) {
        *self.denied.lock() = Some((uid, port, index));
    }

    pub(crate) fn name(&self) -> &'static str {
        "modelled"
    }

    pub(crate) fn log_qp_event(&self, user: u32, qpn: u32, event: u32) {
        if let Ok(mut logged) = self.logged.lock() {
            logged.push((user, qpn, event));
        }
    }

    /// Returns the events that were written to the log since the last call.
    pub(crate) fn take_logged(&self) -> Vec<LoggedEvent> {
        let logged = self.logged.lock();

        logged.map_or_else(|_| Vec::new(), |mut logged| core::mem::take(&mut logged))
    }

    /// The module is attached.
    pub(crate) fn attach(&self, data: &Data) {
        *self.attached.lock() = StdArc::downgrade(data);
    }

    /// The module is not attached any more.
    pub(crate) fn detach(&self) {
        *self.attached.lock() = Weak::new();
    }

    /// Returns the data of the module, if it is attached.
    pub(crate) fn attached(&self) -> Option<Data> {
        self.attached.lock().upgrade()
    }

    /// Lets a verb fail the next time that it is called.
    pub(crate) fn fail(&self, verb: Verb) {
        self.fail_with(verb, EIO);
    }

    /// Lets it fail with an error.
    pub(crate) fn fail_with(&self, verb: Verb, error: Error) {
        *self.fails.lock().unwrap() = Some((verb, error));
    }

    /// Lets the destruction of a QP take until there is no other.
    pub(crate) fn is_slow_with(&self, qpn: u32) {
        self.slow.store(qpn, Ordering::SeqCst);
    }

    /// Reports an event of a QP, if it exists. The history has those of scenarios alone.
    pub(crate) fn report(&self, qpn: u32, event: u32) {
        let index = REPORTED.iter().position(|reported| *reported == event);
        let (handler, history) = {
            let mut qps = self.qps.lock();
            let Some(qp) = qps.get_mut(&qpn) else {
                return;
            };

            qp.events += 1;
            if let Some(index) = index {
                qp.history.begun[index].fetch_add(1, Ordering::SeqCst);
            }
            (qp.handler.clone(), qp.history.clone())
        };

        runtime::for_others(|| runtime::atomic(|| handler(qpn, event)));
        if let Some(index) = index {
            history.done[index].fetch_add(1, Ordering::SeqCst);
        }
        drop(handler);

        let mut qps = self.qps.lock();
        let qp = qps.get_mut(&qpn).expect("it is not destroyed meanwhile");

        qp.events -= 1;
        if qp.events == 0 {
            self.is_quiet.notify_all();
        }
    }

    /// Returns the events of the QP that has a number now.
    pub(crate) fn history(&self, qpn: u32) -> Option<StdArc<History>> {
        self.qps.lock().get(&qpn).map(|qp| qp.history.clone())
    }

    /// Returns the events of the last QP with a serial number.
    pub(crate) fn history_of(&self, serial: u64) -> Option<StdArc<History>> {
        self.histories.lock().get(&serial).cloned()
    }

    /// Whether events of the QP that has a number now were reported.
    pub(crate) fn had_events(&self, qpn: u32) -> bool {
        self.history(qpn).is_some_and(|history| {
            let mut begun = history.begun.iter();

            begun.any(|count| count.load(Ordering::SeqCst) != 0)
        })
    }

    /// Whether a domain has a QP.
    pub(crate) fn has_qps(&self, xrcd: usize) -> bool {
        self.qps.lock().values().any(|qp| qp.xrcd == xrcd)
    }

    /// Panics if a QP exists that the calling thread has ended. Called when that call returns.
    pub(crate) fn check_ended(&self) {
        for (qpn, history) in ENDED.with(RefCell::take) {
            let exists = self
                .history(qpn)
                .is_some_and(|now| StdArc::ptr_eq(&now, &history));

            assert!(!exists, "a call that ends a QP has returned, and it exists");
        }
    }

    /// Panics if there is a QP that cannot be found. No call is running.
    pub(crate) fn check_destroyed(&self) {
        for qpn in self.qps.lock().keys() {
            assert!(self.oracle.is_live(*qpn), "a QP has ended and exists");
        }
    }

    /// Panics unless all was returned.
    pub(crate) fn check_is_idle(&self) {
        assert!(self.qps.lock().is_empty(), "a QP is left");
        assert_eq!(self.users(0), 0, "a reference to the registration is left");
        assert_eq!(self.lent.load(Ordering::SeqCst), 0, "something is lent");
        assert_eq!(self.charges.load(Ordering::SeqCst), 0, "a charge is left");
        self.oracle.check_is_idle();
    }
}

/// A reference that keeps a device registered.
pub(crate) struct Registered(ARef<Device>);

impl Registered {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        device.users(1);
        Ok(Self(device.into()))
    }
}

impl Deref for Registered {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.users(-1);
    }
}

/// Devices are in no namespace.
#[allow(non_upper_case_globals)]
pub(crate) static mut init_net: net = net;

/// # Safety
///
/// None.
pub(crate) unsafe fn _ib_alloc_device(_size: usize, _net: *mut net) -> *mut ib_device {
    let device = Device::new();

    device.inc_ref();
    device.as_ptr()
}

/// # Safety
///
/// The caller gives the device up.
pub(crate) unsafe fn ib_dealloc_device(device: *mut ib_device) {
    // SAFETY: By the requirements of this function, whose reference that of the device was.
    unsafe { Device::dec_ref(Device::from_ptr(device).into()) }
}
