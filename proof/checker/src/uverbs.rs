// SPDX-License-Identifier: GPL-2.0

//! A device that the module is attached to, and uverbs files open on it.
//!
//! Calls have the order of those in `src/commands.rs` and take the locks of uverbs: a command holds
//! the handle of the domain that it uses, and its file, which is not closed meanwhile.

use crate::{
    bindings,
    device::AttachedDevice,
    domain::Domain,
    event::{EventMask, EventType},
    kernel_ext::{process::as_process, workqueue::ModuleQueue},
    listener::{self, ReaderQueues},
    member::Member,
    methods::{Methods, LABEL, SIZE as RECORD},
    opened::{with_right, OpenXrcd},
    orders::{self, Orders, DOMAIN, HANDLE},
    qp_status::Lifetime,
    rdma::{
        attachment::Data,
        device::{Device, REPORTED},
        passed,
        qp_attr::{QpAttrMask, QpState},
        uverbs::{event_file::EventFile, RemoveReason},
    },
    receive_qp::ReceiveQp,
    right::Right,
    uapi::{
        xrc_rcv_qp_info, xrc_rcv_record, xrc_rcv_reg_info, XRC_RCV_EVENT_CHANNEL_ALL,
        XRC_RCV_EVENT_CHANNEL_OBSERVE, XRC_RCV_EVENT_OVERRUN, XRC_RCV_EVENT_QP_GONE,
    },
    watch::{Found, Watch},
};
use core::{
    ops::Deref,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use kernel::{
    prelude::*,
    runtime::{self, RwLock},
    sync::Arc,
    uaccess::{UserBuffer, UserPtr},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc as StdArc, Mutex as StdMutex},
};
use xrc_rcv_spec::{Errno, Id, Membership};

/// The device with its one domain that processes share.
pub(crate) struct Attached {
    pub(crate) device: StdArc<Device>,
    pub(crate) data: Data,
    pub(crate) xrcd: OpenXrcd,
    /// `xrcd_tree_mutex`, with the number of handles of the domain.
    xrcd_users: runtime::Mutex<usize>,
    files: StdMutex<Vec<StdArc<File>>>,
    /// The number of files and kernel users so far.
    ids: AtomicU64,
    pub(crate) orders: StdArc<Orders>,
    is_removed: runtime::Mutex<bool>,
    /// The objects that exist before a file is opened.
    objects: isize,
    _readers: ReaderQueues,
}

/// A uverbs file, as a thread uses it, with one of its event channels.
pub(crate) struct File {
    uverbs: StdArc<UverbsFile>,
    channel: StdArc<Channel>,
}

/// A uverbs file, or what a user in the kernel has in place of one.
pub(crate) struct UverbsFile {
    /// Its number in the contract, and that of its first event channel.
    id: Id,
    /// `hw_destroy_rwsem`, with whether the file still has objects.
    is_open: RwLock<bool>,
    /// The handle of the domain, with its lock, and whether it still exists.
    xrcd: RwLock<bool>,
}

impl Deref for File {
    type Target = UverbsFile;

    fn deref(&self) -> &UverbsFile {
        &self.uverbs
    }
}

impl UverbsFile {
    pub(crate) fn new(id: Id) -> StdArc<Self> {
        StdArc::new(Self {
            id,
            is_open: RwLock::new(true),
            xrcd: RwLock::new(true),
        })
    }
}

/// Returns the flags of EVENT_CHANNEL_ALLOC.
pub(crate) fn flags(of: Membership) -> u32 {
    match of {
        Membership::Named => 0,
        Membership::All => XRC_RCV_EVENT_CHANNEL_ALL,
        Membership::Observer => XRC_RCV_EVENT_CHANNEL_ALL | XRC_RCV_EVENT_CHANNEL_OBSERVE,
    }
}

struct Registration {
    qpn: u32,
    serial: u64,
    watch: StdArc<Watch>,
}

/// The descriptor of an event channel, or the handler of a user in the kernel.
pub(crate) struct Channel {
    id: Id,
    file: StdArc<UverbsFile>,
    orders: StdArc<Orders>,
    /// `None` for a user in the kernel, whose member is opaque.
    member: Option<Arc<Member>>,
    /// The registrations, the oldest first.
    registered: StdMutex<Vec<Registration>>,
    object: AtomicBool,
    descriptor: AtomicBool,
    mask: EventMask,
    of: Membership,
    /// By the serial number of the QP. The first record may be read before REG returns.
    watches: StdMutex<BTreeMap<u64, StdArc<Watch>>>,
    /// The unread events of all registrations were discarded.
    is_discarded: AtomicBool,
    /// OVERRUN was read.
    has_lost: AtomicBool,
    /// A read failed as the channel is at its end, and all was read.
    has_ended: AtomicBool,
    /// Held by processes that read, which keep the descriptor open.
    readers: RwLock<()>,
}

impl Channel {
    pub(crate) fn new(
        id: Id,
        file: StdArc<UverbsFile>,
        orders: StdArc<Orders>,
        member: Option<Arc<Member>>,
        mask: EventMask,
        of: Membership,
    ) -> StdArc<Self> {
        let mask = match of {
            Membership::Named => mask.without(EventType::QP_ADDED),
            _ => mask,
        };

        StdArc::new(Self {
            id,
            file,
            orders,
            member,
            registered: StdMutex::default(),
            object: AtomicBool::new(true),
            descriptor: AtomicBool::new(true),
            mask,
            of,
            watches: StdMutex::default(),
            is_discarded: AtomicBool::new(false),
            has_lost: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            readers: RwLock::new(()),
        })
    }

    /// Returns the member, unless its file was closed.
    fn get(&self) -> Result<Arc<Member>> {
        let exists = self.object.load(Ordering::SeqCst);

        exists.then(|| self.member().clone()).ok_or(EBADF)
    }

    /// uverbs destroys the object.
    fn destroy(&self, why: RemoveReason) {
        if self.object.swap(false, Ordering::SeqCst) {
            if why != RemoveReason::DeviceRemoved {
                self.discard();
            }
            self.for_each_watch(Watch::ends);
            runtime::for_others(|| Member::closed(self.member().clone(), why));
            if why != RemoveReason::DeviceRemoved {
                self.for_each_watch(Watch::is_over);
            }
        }
    }

    fn for_each_watch(&self, call: impl Fn(&Watch)) {
        self.watches
            .lock()
            .unwrap()
            .values()
            .for_each(|watch| call(watch));
    }

    /// A member of all QPs lists those that there are: it gets QP_ADDED of the others.
    pub(crate) fn begins(&self, domain: &Domain) {
        if self.of == Membership::Named {
            return;
        }

        let listed = domain.list(None, usize::MAX);

        for qp in listed.iter().flat_map(|(qps, _)| qps) {
            self.watch(qp.status().serial()).begins_with(None);
        }
    }

    /// Returns the serial numbers of the QPs that a member of all QPs knows.
    pub(crate) fn known(&self) -> BTreeSet<u64> {
        let watches = self.watches.lock().unwrap();
        let known = watches.iter().filter(|(_, watch)| watch.has_begun());

        known.map(|(serial, _)| *serial).collect()
    }

    /// Returns that of the QP with a serial number.
    fn watch(&self, serial: u64) -> StdArc<Watch> {
        let mut watches = self.watches.lock().unwrap();
        let watch = watches
            .entry(serial)
            .or_insert_with(|| Watch::new(self.mask));

        if self.is_discarded.load(Ordering::SeqCst) {
            watch.discard();
        }
        watch.clone()
    }

    fn discard(&self) {
        self.is_discarded.store(true, Ordering::SeqCst);
        self.for_each_watch(Watch::discard);
    }

    /// A process closes the descriptor, which no thread reads.
    pub(crate) fn close(&self) {
        let _no_reader = self.readers.write().unwrap();
        let id = self.id;

        self.discard();
        self.orders.effect(
            || {
                // A thread that ends the file comes to the object before this, or after it.
                if let Ok(_is_open) = self.file.is_open.try_read() {
                    self.destroy(RemoveReason::FileClosed);
                }
                // Ends the registrations, too, whether the object is destroyed or not.
                if self.descriptor.swap(false, Ordering::SeqCst) {
                    self.member().released();
                }
            },
            move |objects| objects.close_channel(id),
        );
    }

    /// A user in the kernel leaves, once.
    pub(crate) fn leave(&self, leave: impl FnOnce() -> Result) {
        let id = self.id;

        if !self.object.swap(false, Ordering::SeqCst) {
            return;
        }
        self.discard();
        self.for_each_watch(Watch::ends);
        self.orders.effect(
            || runtime::for_others(leave).expect("no handler calls it"),
            move |objects| objects.close_channel(id),
        );
        self.for_each_watch(Watch::is_over);
    }

    /// Returns the member of a process.
    pub(crate) fn member(&self) -> &Arc<Member> {
        self.member.as_ref().expect("it is of a process")
    }

    /// Whether all events that are to come were read. The QPs have ended if `have_ended`.
    pub(crate) fn is_complete(&self, have_ended: bool) -> bool {
        let watches = self.watches.lock().unwrap();

        watches.values().all(|watch| watch.is_complete(have_ended))
    }

    /// Reads the events that have happened. The QPs have ended if `have_ended`.
    pub(crate) fn read_all(&self, have_ended: bool) {
        // An event that does not come is a deadlock, or the end of a channel of a file that was
        // closed.
        while !self.is_complete(have_ended) && self.read(4, 4, false).is_ok() {}
        while self.read(4, 4, true).is_ok() {}
        if have_ended {
            self.check();
        }
    }

    /// Checks the events that were read, after the QPs have ended.
    pub(crate) fn check(&self) {
        self.for_each_watch(Watch::check);
    }

    /// Returns the serial numbers of the QPs of which no call that began then may get a record.
    pub(crate) fn silent_at(&self, time: u64) -> BTreeSet<u64> {
        let watches = self.watches.lock().unwrap();
        let silent = watches.iter().filter(|(_, watch)| watch.is_silent_at(time));

        silent.map(|(serial, _)| *serial).collect()
    }

    /// A call got a record, before which those QPs were silent.
    pub(crate) fn got(&self, record: &xrc_rcv_record, silent: &mut BTreeSet<u64>) {
        if record.type_ == XRC_RCV_EVENT_OVERRUN {
            assert_eq!((record.qp_num, record.serial, record.count), (0, 0, 1));
            assert_eq!((record.last_ns, record.label), (0, 0));
            self.has_lost.store(true, Ordering::SeqCst);
            return;
        }
        assert!(
            !silent.contains(&record.serial),
            "an event after QP_GONE, or after UNREG"
        );
        assert_eq!(record.label, LABEL);
        assert!((1..runtime::monotonic_ns()).contains(&record.last_ns));
        self.watch(record.serial).got(record);
        if record.type_ == XRC_RCV_EVENT_QP_GONE {
            silent.insert(record.serial);
        }
    }

    /// The channel is registered with a QP, whichever thread has registered it.
    fn registered(&self, qpn: u32, serial: u64, watch: StdArc<Watch>) {
        let mut registered = self.registered.lock().unwrap();

        if registered.iter().all(|known| known.serial != serial) {
            registered.push(Registration { qpn, serial, watch });
        }
    }

    /// Whether OVERRUN was read.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::SeqCst)
    }

    /// Returns the serial numbers of the QPs of which QP_GONE was read.
    pub(crate) fn gone(&self) -> Vec<u64> {
        let watches = self.watches.lock().unwrap();
        let gone = watches.iter().filter(|(_, watch)| watch.is_gone());

        gone.map(|(serial, _)| *serial).collect()
    }

    /// The records that were not read are lost.
    pub(crate) fn lose(&self) {
        self.for_each_watch(|watch| {
            if !watch.is_gone() {
                watch.discard();
            }
        });
    }

    /// Whether `poll(2)` reports records to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.member().poll() & kernel::bindings::POLLIN != 0
    }

    /// Returns the descriptor, which is not closed as long as a process uses it.
    fn descriptor(&self) -> Result<impl Drop + '_> {
        let descriptor = self.readers.read().unwrap();
        let is_open = self.descriptor.load(Ordering::SeqCst);

        is_open.then_some(descriptor).ok_or(EIO)
    }

    /// Reads up to `max` records, of which `valid` can be copied. Returns the number of records.
    pub(crate) fn read(&self, max: usize, valid: usize, nonblocking: bool) -> Result<usize> {
        let _descriptor = self.descriptor()?;
        let mut buffer = UserBuffer::new(max * RECORD, valid * RECORD);
        let mut silent = self.silent_at(runtime::monotonic_ns());
        let has_ended = self.has_ended.load(Ordering::SeqCst);
        let bytes = self
            .member()
            .read(UserPtr::new(&mut buffer), max * RECORD, nonblocking)
            .inspect_err(|e| {
                if *e == EIO {
                    self.has_ended.store(true, Ordering::SeqCst);
                }
            })?;

        assert!(!has_ended, "a record after the end of the channel");

        for record in buffer.bytes[..bytes].chunks(RECORD) {
            let longer = &record[size_of::<xrc_rcv_record>()..];

            assert!(longer.iter().all(|byte| *byte == 0), "a longer record");
            // SAFETY: The record consists of integers, and was copied whole.
            let record: xrc_rcv_record =
                unsafe { record.as_ptr().cast::<xrc_rcv_record>().read_unaligned() };

            self.got(&record, &mut silent);
        }
        Ok(bytes / RECORD)
    }
}

/// `XRC_RCV_IOCTL_REG` of one QP.
fn register_one(member: &Member, qpn: u32) -> Result<xrc_rcv_reg_info> {
    let mut infos = Vec::new();
    let push = |info: &xrc_rcv_reg_info| {
        infos.push(*info);
        Ok(())
    };
    let (done, result) = member.register_all(&[qpn], Some(push));

    one_info(&infos[..done], result)
}

/// Returns what REG of one QP copies.
fn one_info(infos: &[xrc_rcv_reg_info], result: Result) -> Result<xrc_rcv_reg_info> {
    assert_eq!(infos.len(), usize::from(result.is_ok()));
    result.map(|()| infos[0])
}

impl Attached {
    pub(crate) fn new() -> StdArc<Self> {
        Self::with_roce(0)
    }

    /// Returns a device with some ports of RoCE, as bits.
    pub(crate) fn with_roce(ports: u32) -> StdArc<Self> {
        let device = Device::with_roce(ports);
        let data = Data::new(AttachedDevice::new(&device).expect("there is memory"));
        let xrcd = OpenXrcd::new(&device);

        // SAFETY: There is no listener: there is one device in an execution, without shuttle one at
        // a time.
        let readers = unsafe { listener::init() }.expect("there is memory");

        device.attach(&data);
        // The workqueues come with the first domain, and stay.
        data.domains().get_or_new(&xrcd).expect("there is memory");
        data.domains().close(&xrcd);
        StdArc::new(Self {
            objects: runtime::objects(),
            data,
            xrcd,
            device,
            xrcd_users: runtime::Mutex::new(0),
            files: StdMutex::default(),
            ids: AtomicU64::new(0),
            orders: StdArc::default(),
            is_removed: runtime::Mutex::new(false),
            _readers: readers,
        })
    }

    /// A process that may write to the domain's file opens the device, the domain and an event
    /// channel.
    pub(crate) fn open(&self) -> StdArc<File> {
        self.open_with(Right::Write, EventMask::ALL)
    }

    /// A process with a right does so, for the events of a mask.
    pub(crate) fn open_with(&self, right: Right, mask: EventMask) -> StdArc<File> {
        self.open_of(Membership::Named, right, mask)
    }

    /// A process with a right becomes a member of all QPs.
    pub(crate) fn open_all(&self, right: Right) -> StdArc<File> {
        self.open_of(Membership::All, right, EventMask::ALL)
    }

    /// A process with a right opens the device, the domain and an event channel.
    pub(crate) fn open_of(&self, of: Membership, right: Right, mask: EventMask) -> StdArc<File> {
        self.open_in(None, of, right, mask)
    }

    /// A process with a right does so, or creates another event channel of a file.
    pub(crate) fn open_in(
        &self,
        file: Option<&File>,
        of: Membership,
        right: Right,
        mask: EventMask,
    ) -> StdArc<File> {
        let opened = match file {
            Some(file) => self.open_another(file, of, right, mask),
            None => self.try_open(of, right, mask),
        };

        opened.expect("there is memory, and no limit")
    }

    /// A process does so, unless an allocation fails: it closes the domain then.
    pub(crate) fn try_open(
        &self,
        of: Membership,
        right: Right,
        mask: EventMask,
    ) -> Result<StdArc<File>> {
        let uverbs = UverbsFile::new(self.new_id());
        let id = uverbs.id;

        self.orders.open(id, || self.get_xrcd());
        self.join(&uverbs, id, (of, right, mask))
            .inspect_err(|_| self.close_domain_of(id))
    }

    /// A process creates another event channel of a file that it has open: fails if the handle of
    /// the domain is closed, or the device removed.
    pub(crate) fn open_another(
        &self,
        file: &File,
        of: Membership,
        right: Right,
        mask: EventMask,
    ) -> Result<StdArc<File>> {
        self.join(&file.uverbs, self.new_id(), (of, right, mask))
    }

    /// `XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC`
    fn join(
        &self,
        uverbs: &StdArc<UverbsFile>,
        id: Id,
        (of, right, mask): (Membership, Right, EventMask),
    ) -> Result<StdArc<File>> {
        let open = || with_right(right, || self.methods().open_channel(mask, flags(of)));
        let create = || {
            let member = as_process(uverbs.id, open)?;
            let orders = self.orders.clone();
            let channel = Channel::new(id, uverbs.clone(), orders, Some(member), mask, of);
            let file = StdArc::new(File {
                uverbs: uverbs.clone(),
                channel,
            });

            // Before the file can end.
            self.files.lock().unwrap().push(file.clone());
            Ok(file)
        };
        let make = || self.on_domain(uverbs, create);
        let file = self.orders.join((uverbs.id, id), right, of, make)?;

        file.channel.begins(file.channel.member().domain());
        Ok(file)
    }

    /// A process without a file, or a user in the kernel, closes its handle of the domain.
    pub(crate) fn close_domain_of(&self, id: Id) {
        self.orders.effect(
            || self.put_xrcd(),
            move |objects| {
                objects.close_handle(id, HANDLE);
            },
        );
    }

    /// Returns a number for a file or a kernel user.
    pub(crate) fn new_id(&self) -> Id {
        self.ids.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn files(&self) -> Vec<StdArc<File>> {
        self.files.lock().unwrap().clone()
    }

    /// Returns the domain, creating it if it does not exist.
    pub(crate) fn domain_or_new(&self) -> Arc<Domain> {
        self.data
            .domains()
            .get_or_new(&self.xrcd)
            .expect("there is memory")
    }

    /// Looks up a QP.
    pub(crate) fn find(&self, qpn: u32) -> Result<Arc<ReceiveQp>> {
        self.domain()?.find(qpn)
    }

    fn domain(&self) -> Result<Arc<Domain>> {
        self.data.domains().get(&self.xrcd).ok_or(EINVAL)
    }

    /// Returns what users in the kernel name the domain by.
    pub(crate) fn xrcd_ptr(&self) -> *mut bindings::ib_xrcd {
        self.xrcd.as_ptr()
    }

    /// Returns the methods, with the handle of the domain.
    pub(crate) fn methods(&self) -> Methods<'_> {
        Methods {
            data: Pin::as_ref(&self.data),
            xrcd: &self.xrcd,
            spoil: None,
        }
    }

    /// Runs a command of a file.
    fn command<R>(&self, file: &UverbsFile, command: impl FnOnce() -> Result<R>) -> Result<R> {
        let is_open = file.is_open.read().unwrap();

        if !*is_open {
            return Err(EIO);
        }
        command()
    }

    /// Runs a command of a file that names the domain by its handle.
    fn on_domain<R>(&self, file: &UverbsFile, command: impl FnOnce() -> Result<R>) -> Result<R> {
        self.command(file, || {
            let xrcd = file.xrcd.read().unwrap();

            if !*xrcd {
                return Err(ENOENT);
            }
            command()
        })
    }

    /// `XRC_RCV_METHOD_QP_ALLOC`. `fault` is at the copying of the QP number to the process.
    pub(crate) fn alloc(&self, file: &File, lifetime: Lifetime, fault: bool) -> Result<u32> {
        let call = orders::alloc(file.channel.id, lifetime);
        let possible = [Errno::EIO, Errno::EFAULT, Errno::EDQUOT];
        let make = || {
            self.on_domain(file, || {
                let member = file.channel.get()?;
                let copied = |qpn, serial| {
                    if fault {
                        return Err(EFAULT);
                    }
                    self.creates(&file.channel, qpn, serial);
                    Ok(())
                };

                self.methods().alloc(&member, lifetime, copied)
            })
        };
        let result = self
            .orders
            .call(file.id, call, &possible, make, orders::allocated);

        result.map(|(qpn, _)| qpn)
    }

    /// ALLOC of a channel has created a QP, and succeeds.
    pub(crate) fn creates(&self, channel: &Channel, qpn: u32, serial: u64) {
        let watch = channel.watch(serial);

        watch.begins_with(self.device.history_of(serial));
        channel.registered(qpn, serial, watch);
    }

    /// `XRC_RCV_METHOD_QP_REG`. A channel that is registered already stays as it is.
    pub(crate) fn register(&self, file: &File, qpn: u32) -> Result {
        let call = orders::reg(file.channel.id, &[qpn]);
        let possible = [Errno::EINTR, Errno::EDQUOT];
        let make = || {
            self.command(file, || {
                let member = file.channel.get()?;

                self.register_as(&file.channel, qpn, || {
                    let (infos, result) = self.methods().register(&member, &[qpn]);

                    one_info(&infos, result)
                })
            })
        };

        self.orders
            .call(file.id, call, &possible, make, orders::one_done)
    }

    /// `XRC_RCV_IOCTL_REG` by a process that has the descriptor, but not the uverbs file, which may
    /// be closed meanwhile.
    pub(crate) fn register_by_ioctl(&self, file: &File, qpn: u32) -> Result {
        let channel = file.channel();
        let _descriptor = channel.descriptor()?;

        let call = orders::reg(file.channel.id, &[qpn]);
        let make = || self.register_as(channel, qpn, || register_one(channel.member(), qpn));

        self.orders
            .call(file.id, call, &[Errno::EIO], make, orders::one_done)
    }

    /// Registers a channel, by a function that returns the totals.
    pub(crate) fn register_as(
        &self,
        channel: &Channel,
        qpn: u32,
        register: impl FnOnce() -> Result<xrc_rcv_reg_info>,
    ) -> Result {
        let found = self.device.history(qpn).map(Found::new);
        let info = register()?;
        let after = self.device.history(qpn);
        let watch = channel.watch(info.serial);

        watch.begins(
            &info,
            found.and_then(|found| found.unless_other(after.as_ref())),
        );
        channel.registered(qpn, info.serial, watch);
        Ok(())
    }

    /// `XRC_RCV_METHOD_QP_DESTROY`
    pub(crate) fn destroy(&self, file: &File, qpn: u32, force: bool) -> Result {
        let call = orders::destroy(qpn, force);
        let make = || {
            self.on_domain(file, || {
                let result = runtime::for_others(|| self.methods().destroy(qpn, force));

                self.device.check_ended();
                result
            })
        };

        self.orders.call(file.id, call, &[], make, orders::result)
    }

    /// `XRC_RCV_METHOD_QP_MODIFY` to a state.
    pub(crate) fn modify(&self, file: &File, qpn: u32, state: QpState) -> Result {
        let call = orders::modify(qpn, state);
        let attributes = passed::to(QpAttrMask::STATE, state);
        let possible = [Errno::EIO];
        let make = || self.on_domain(file, || self.methods().modify(qpn, &attributes));

        self.orders
            .call(file.id, call, &possible, make, orders::result)
    }

    /// `XRC_RCV_METHOD_QP_QUERY`
    pub(crate) fn query(&self, file: &File, qpn: u32) -> Result<xrc_rcv_qp_info> {
        let call = orders::query(qpn);
        let make = || self.on_domain(file, || self.methods().query(qpn));
        let possible = [Errno::EIO];
        let outcome = |info: &Result<_>| orders::result(&info.map(drop));
        let info = self.orders.call(file.id, call, &possible, make, outcome)?;

        assert_eq!(info.qp_num, qpn);
        Ok(info)
    }

    /// `XRC_RCV_METHOD_QUERY_DOMAIN` of all QPs, so many in a call. Returns their numbers.
    pub(crate) fn query_domain(&self, file: &File, room: usize) -> Result<Vec<u32>> {
        let mut qpns: Vec<u32> = Vec::new();

        loop {
            let after = qpns.last().copied().unwrap_or(0);
            let make = || self.on_domain(file, || self.methods().query_domain(after, room));
            let call = orders::query_domain();
            let outcome = orders::listed;
            let (infos, _) = self
                .orders
                .call(file.id, call, &[Errno::EIO], make, outcome)?;

            if infos.is_empty() {
                return Ok(qpns);
            }
            assert!(infos.len() <= room, "more than there is room for");
            qpns.extend(infos.iter().map(|info| info.qp_num));
            assert!(qpns.is_sorted_by(|one, next| one < next), "the order");
        }
    }

    /// `XRC_RCV_METHOD_QP_UNREG` of the number of the latest registration, which ends all with QPs
    /// of this number.
    pub(crate) fn unregister(&self, file: &File) -> Result {
        let is_open = file.is_open.read().unwrap();

        if !*is_open {
            return Ok(());
        }
        match file.channel.get() {
            Ok(member) => self.unregister_as(&file.channel, |qpn| {
                self.methods().unregister(&member, &[qpn])
            }),
            Err(_) => Ok(()),
        }
    }

    /// `XRC_RCV_IOCTL_UNREG`, likewise.
    pub(crate) fn unregister_by_ioctl(&self, file: &File) -> Result {
        let channel = file.channel();
        let _descriptor = channel.descriptor()?;

        self.unregister_as(channel, |qpn| channel.member().unregister_all(&[qpn]))
    }

    /// Ends the registrations of a channel with the number of the latest, by a function that
    /// returns how many numbers were processed.
    pub(crate) fn unregister_as(
        &self,
        channel: &Channel,
        unregister: impl FnOnce(u32) -> (usize, Result),
    ) -> Result {
        let (ended, is_last) = {
            let mut registered = channel.registered.lock().unwrap();
            let qpn = registered.last().ok_or(ENODEV)?.qpn;
            let (ended, left): (Vec<_>, Vec<_>) = registered
                .drain(..)
                .partition(|registered| registered.qpn == qpn);

            *registered = left;
            (ended, registered.is_empty())
        };
        let qpn = ended[0].qpn;

        for Registration { watch, .. } in &ended {
            watch.discard();
            watch.ends();
        }

        let call = orders::unreg(channel.id, &[qpn]);
        let make = || unregister(qpn);
        // By the ioctl, when the channel has begun to end.
        let possible = [Errno::EIO];
        let (done, result) = self
            .orders
            .call(channel.file.id, call, &possible, make, orders::done);

        // Records can be read if the channel has ended before.
        result?;
        ended.iter().for_each(|ended| ended.watch.is_over());
        assert_eq!(done, 1);
        self.device.check_ended();
        if is_last && channel.member.is_some() {
            assert!(
                !channel.is_readable(),
                "records of registrations that have ended"
            );
        }
        Ok(())
    }

    /// `XRC_RCV_METHOD_QP_UNREG` of all numbers of a file, by a thread that is killed before the
    /// one with the index. Returns the number of those that were processed.
    pub(crate) fn unregister_killed(&self, file: &File, index: usize) -> (usize, Result) {
        let member = file.channel.get().expect("the file is open");
        let mut registered = file.channel.registered.lock().unwrap();
        let qpns: Vec<_> = registered.iter().map(|registered| registered.qpn).collect();

        runtime::kill_after(index);

        let call = orders::unreg(file.channel.id, &qpns);
        let make = || self.methods().unregister(&member, &qpns);
        let possible = [Errno::EINTR];
        let (done, result) = self
            .orders
            .call(file.id, call, &possible, make, orders::done);

        for ended in registered.drain(..done) {
            ended.watch.discard();
            ended.watch.ends();
            ended.watch.is_over();
        }
        self.device.check_ended();
        (done, result)
    }

    /// `XRC_RCV_METHOD_QP_UNREG` of a number that the channel is not registered with.
    pub(crate) fn unregister_unknown(&self, file: &File, qpn: u32) -> (usize, Result) {
        let member = file.channel.get().expect("the file is open");
        let call = orders::unreg(file.channel.id, &[qpn]);
        let make = || self.methods().unregister(&member, &[qpn]);

        self.orders.call(file.id, call, &[], make, orders::done)
    }

    /// A process closes its handle of the domain.
    pub(crate) fn close_domain(&self, file: &File) {
        let is_open = file.is_open.read().unwrap();
        let id = file.id;

        if *is_open {
            self.orders.effect(
                || self.close_handle(file),
                move |objects| {
                    objects.close_handle(id, HANDLE);
                },
            );
        }
    }

    fn close_handle(&self, file: &UverbsFile) {
        let mut exists = file.xrcd.write().unwrap();

        if core::mem::replace(&mut *exists, false) {
            self.put_xrcd();
        }
    }

    /// Opens the domain once more.
    pub(crate) fn get_xrcd(&self) {
        *self.xrcd_users.lock().unwrap() += 1;
    }

    /// Whether the device has QPs of the domain.
    pub(crate) fn has_qps(&self) -> bool {
        self.device.has_qps(self.xrcd.as_ptr().addr())
    }

    /// Closes the domain once.
    pub(crate) fn put_xrcd(&self) {
        let mut users = self.xrcd_users.lock().unwrap();

        *users -= 1;
        if *users == 0 {
            runtime::for_others(|| self.data.domains().close(&self.xrcd));
            assert!(!self.has_qps(), "a closed domain has a QP");
            self.device.oracle.closed(self.xrcd.as_ptr().addr());
            self.device.check_ended();
        }
    }

    /// Returns the event channels of a file, the newest first.
    fn channels_of(&self, uverbs: &StdArc<UverbsFile>) -> impl Iterator<Item = StdArc<Channel>> {
        let mut files = self.files();

        files.retain(|file| StdArc::ptr_eq(&file.uverbs, uverbs));
        files.into_iter().map(|file| file.channel.clone()).rev()
    }

    /// uverbs destroys the objects of a file, the newest first.
    fn destroy_objects(&self, file: &File, why: RemoveReason) {
        let mut is_open = file.is_open.write().unwrap();

        if !core::mem::replace(&mut *is_open, false) {
            return;
        }

        for channel in self.channels_of(&file.uverbs) {
            let id = channel.id;

            self.orders.effect(
                || {
                    channel.destroy(why);
                    self.device.check_ended();
                },
                move |objects| match why {
                    RemoveReason::DeviceRemoved => objects.release_channel(id),
                    _ => objects.end_channel(id),
                },
            );
        }

        let id = file.id;

        self.orders.effect(
            || self.close_handle(file),
            move |objects| match why {
                RemoveReason::DeviceRemoved => objects.remove_device_of(id),
                _ => objects.close_file(id),
            },
        );
    }

    /// A process closes the file for the last time. Its event channels stay open.
    pub(crate) fn close(&self, file: &File) {
        self.destroy_objects(file, RemoveReason::FileClosed);
    }

    /// The device is removed, once.
    pub(crate) fn remove(&self) {
        let mut is_removed = self.is_removed.lock().unwrap();

        if core::mem::replace(&mut *is_removed, true) {
            return;
        }
        for file in self.files() {
            self.destroy_objects(&file, RemoveReason::DeviceRemoved);
        }
        self.orders.effect(
            || {
                runtime::for_others(|| self.data.domains().close_all());
                self.device.detach();
            },
            |objects| objects.end_domain(DOMAIN),
        );
        self.device.check_ended();
    }

    /// Panics unless all is as before the first file was opened. All files are closed.
    pub(crate) fn check_is_idle(&self) {
        self.files.lock().unwrap().clear();
        ModuleQueue::drain();
        // A worker may have been started for events that are not pending any more.
        for _ in 0..1000 {
            if runtime::objects() == self.objects {
                break;
            }
            runtime::yield_now();
        }
        assert_eq!(
            runtime::objects(),
            self.objects,
            "objects after the last file was closed"
        );
    }

    /// Reports an event of each type.
    pub(crate) fn report(&self, qpn: u32) {
        for event in REPORTED {
            self.device.report(qpn, event);
        }
    }
}

impl File {
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }
}
