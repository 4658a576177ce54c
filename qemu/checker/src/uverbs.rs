// SPDX-License-Identifier: GPL-2.0

//! A device that the module is attached to, and uverbs files open on it.
//!
//! Calls have the order of those in `src/commands.rs` and take the locks of uverbs: a command holds
//! the handle of the domain that it uses, and its file, which is not closed meanwhile.

use crate::{
    attributes::InitialState,
    bindings,
    domain::{Domain, Domains, QpInitAttr, Registration},
    event::EventMask,
    kernel_ext::process::Process,
    rdma::{
        device::{Device, History},
        pd::ProtectionDomain,
        qp_attr::{QpAttr, QpAttrMask},
        uverbs::{event_file::EventFile, FileId, RemoveReason},
        xrcd::Xrcd,
    },
    receive_qp::Lifetime,
    subscriber::{EventChannel, Holder, Subscriber},
    uapi::{xrc_rcv_event, RecordSize, XRC_RCV_EVENT_QP_GONE},
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use kernel::{
    prelude::*,
    runtime::{self, RwLock},
    sync::Arc,
    uaccess::{UserBuffer, UserPtr},
};
use std::sync::{Arc as StdArc, Mutex as StdMutex, OnceLock};

/// The device with its one domain that processes share.
pub(crate) struct Attached {
    pub(crate) device: StdArc<Device>,
    domains: Arc<Domains>,
    pd: Arc<ProtectionDomain>,
    xrcd: Xrcd,
    /// `xrcd_tree_mutex`, with the number of handles of the domain.
    xrcd_users: runtime::Mutex<usize>,
    files: StdMutex<Vec<StdArc<File>>>,
    is_removed: runtime::Mutex<bool>,
    /// The objects that exist before a file is opened.
    objects: isize,
}

/// A uverbs file, which has one event channel.
pub(crate) struct File {
    id: FileId,
    /// `hw_destroy_rwsem`, with whether the file still has objects.
    is_open: RwLock<bool>,
    /// The handle of the domain, with its lock, and whether it still exists.
    xrcd: RwLock<bool>,
    /// The handles of registrations, the oldest first.
    handles: StdMutex<Vec<Handle>>,
    channel: StdArc<Channel>,
    cookies: AtomicU64,
}

struct Handle {
    registration: Registration,
    watch: StdArc<Watch>,
}

/// What a registration was promised, and what it got.
#[derive(Default)]
pub(crate) struct Watch {
    cookie: u64,
    promise: OnceLock<Promise>,
    /// Events that were over before the registration began to end.
    over_at_end: OnceLock<u32>,
    read: AtomicU32,
    gone: AtomicBool,
    /// It did not come into being, or its unread events were discarded: by UNREG, or its file or
    /// channel was closed.
    is_discarded: AtomicBool,
}

/// The events of the QP, of which a registration gets each that happens while it exists.
struct Promise {
    history: StdArc<History>,
    /// Events that were over before REG began.
    over_before: u32,
    /// Events that had begun when REG returned.
    begun_before: u32,
}

/// The descriptor of an event channel.
pub(crate) struct Channel {
    channel: Arc<EventChannel>,
    object: AtomicBool,
    descriptor: AtomicBool,
    watches: StdMutex<Vec<StdArc<Watch>>>,
    /// One process reads at a time, in the order of the records.
    reader: runtime::Mutex<()>,
}

impl Channel {
    fn new() -> StdArc<Self> {
        let size = RecordSize::new(None).expect("the default is valid");

        StdArc::new(Self {
            channel: EventChannel::new(size).expect("there is memory"),
            object: AtomicBool::new(true),
            descriptor: AtomicBool::new(true),
            watches: StdMutex::default(),
            reader: runtime::Mutex::default(),
        })
    }

    /// Returns the channel, unless it was closed.
    fn get(&self) -> Option<Arc<EventChannel>> {
        let exists = self.object.load(Ordering::SeqCst);

        exists.then(|| self.channel.clone())
    }

    /// uverbs destroys the object.
    fn destroy(&self) {
        if self.object.swap(false, Ordering::SeqCst) {
            EventChannel::closed(self.channel.clone());
        }
    }

    /// A process closes the descriptor, which no thread reads.
    pub(crate) fn close(&self) {
        let _reader = self.reader.lock().unwrap();

        for watch in &*self.watches.lock().unwrap() {
            watch.discard();
        }
        self.destroy();
        if self.descriptor.swap(false, Ordering::SeqCst) {
            self.channel.released();
        }
    }

    /// Reads the events that have happened, and checks them. The QPs have ended if `have_ended`.
    pub(crate) fn read_all(&self, have_ended: bool) {
        let watches = self.watches.lock().unwrap().clone();

        for watch in watches {
            let is_complete = || {
                let gone = watch.gone.load(Ordering::SeqCst);

                watch.is_discarded.load(Ordering::SeqCst) || gone || !have_ended && !watch.waits()
            };

            // An event that does not come is a deadlock, or the end of a channel of a file that was
            // closed.
            while !is_complete() && self.read(4, 4, false).is_ok() {}
            if have_ended {
                watch.check();
            }
        }
    }

    /// Reads up to `max` records, of which `valid` can be copied. Returns whether to read again.
    pub(crate) fn read(&self, max: usize, valid: usize, nonblocking: bool) -> Result<usize> {
        let _reader = self.reader.lock().unwrap();
        let size = size_of::<xrc_rcv_event>();
        let mut buffer = UserBuffer {
            bytes: vec![0; max * size],
            valid: valid * size,
        };

        if !self.descriptor.load(Ordering::SeqCst) {
            return Err(EIO);
        }

        let bytes = self
            .channel
            .read(UserPtr::new(&mut buffer), max * size, nonblocking)?;
        let watches = self.watches.lock().unwrap();

        for record in buffer.bytes[..bytes].chunks(size) {
            // SAFETY: The record consists of integers, and was copied whole.
            let event: xrc_rcv_event =
                unsafe { record.as_ptr().cast::<xrc_rcv_event>().read_unaligned() };
            let watch = watches
                .iter()
                .find(|watch| watch.cookie == event.cookie)
                .expect("an event of a registration of the channel");

            watch.got(&event);
        }
        Ok(bytes / size)
    }
}

impl Watch {
    /// REG has returned.
    fn begins(&self, history: StdArc<History>, over_before: u32) {
        let promise = Promise {
            begun_before: history.begun(),
            history,
            over_before,
        };

        assert!(self.promise.set(promise).is_ok());
    }

    /// UNREG is called, or another end begins.
    fn ends(&self, why: RemoveReason) {
        if why != RemoveReason::DeviceRemoved {
            self.discard();
        }
        if let Some(promise) = self.promise.get() {
            let _ = self.over_at_end.set(promise.history.done());
        }
    }

    fn got(&self, event: &xrc_rcv_event) {
        assert!(
            !self.gone.load(Ordering::SeqCst),
            "an event after QP_GONE, the last one"
        );
        if event.type_ == XRC_RCV_EVENT_QP_GONE {
            assert_eq!(event.count, 1, "QP_GONE comes once");
            self.gone.store(true, Ordering::SeqCst);
        } else {
            self.read.fetch_add(event.count, Ordering::SeqCst);
        }
    }

    /// Returns how many events the registration has to get at least.
    fn least(&self) -> u32 {
        self.promise.get().map_or(0, |promise| {
            let over = self.over_at_end.get().copied();

            over.unwrap_or_else(|| promise.history.done())
                .saturating_sub(promise.begun_before)
        })
    }

    fn discard(&self) {
        self.is_discarded.store(true, Ordering::SeqCst);
    }

    /// Whether events are to come that have happened.
    fn waits(&self) -> bool {
        !self.is_discarded.load(Ordering::SeqCst) && self.read.load(Ordering::SeqCst) < self.least()
    }

    /// Checks what was read, after the QP has ended.
    fn check(&self) {
        let read = self.read.load(Ordering::SeqCst);

        if let Some(promise) = self.promise.get() {
            let most = promise.history.begun() - promise.over_before;

            assert!(read <= most, "{read} events of {most}");
        }
        if !self.is_discarded.load(Ordering::SeqCst) {
            let least = self.least();

            assert!(read >= least, "{read} events of {least}");
            assert!(self.gone.load(Ordering::SeqCst), "no QP_GONE");
        }
    }
}

impl Attached {
    pub(crate) fn new() -> StdArc<Self> {
        let device = Device::new();
        let domains = Domains::new().expect("there is memory");
        let pd = Arc::new(ProtectionDomain, GFP_KERNEL).expect("there is memory");

        StdArc::new(Self {
            objects: runtime::objects(),
            domains,
            pd,
            xrcd: Xrcd {
                device: (&*device).into(),
                id: 1,
            },
            device,
            xrcd_users: runtime::Mutex::new(0),
            files: StdMutex::default(),
            is_removed: runtime::Mutex::new(false),
        })
    }

    /// A process opens the device, the domain and an event channel.
    pub(crate) fn open(&self) -> StdArc<File> {
        let mut files = self.files.lock().unwrap();
        let file = StdArc::new(File {
            id: FileId(files.len() + 1),
            is_open: RwLock::new(true),
            xrcd: RwLock::new(true),
            handles: StdMutex::default(),
            channel: Channel::new(),
            cookies: AtomicU64::new(0),
        });

        *self.xrcd_users.lock().unwrap() += 1;
        files.push(file.clone());
        file
    }

    pub(crate) fn files(&self) -> Vec<StdArc<File>> {
        self.files.lock().unwrap().clone()
    }

    fn domain(&self) -> Result<Arc<Domain>> {
        self.domains.get(&self.xrcd).ok_or(EINVAL)
    }

    /// Runs a command of a file that uses the domain.
    fn command<R>(&self, file: &File, command: impl FnOnce() -> Result<R>) -> Result<R> {
        let is_open = file.is_open.read().unwrap();

        if !*is_open {
            return Err(EIO);
        }

        let xrcd = file.xrcd.read().unwrap();

        if !*xrcd {
            return Err(ENODEV);
        }
        command()
    }

    /// Creates a subscriber whose events are reported on the channel of a file.
    fn subscriber(&self, file: &File) -> Result<(Arc<Subscriber>, StdArc<Watch>)> {
        let watch = StdArc::new(Watch {
            cookie: file.cookies.fetch_add(1, Ordering::SeqCst),
            ..Watch::default()
        });
        let holder = Holder::File(file.id, Process::new(file.id.0 as i32), EventMask::ALL);
        let channel = file.channel.get();

        if channel.is_none() {
            watch.discard();
        }

        let subscriber = Subscriber::new(holder, channel, watch.cookie)?;

        // The first event may be read before REG returns.
        file.channel.watches.lock().unwrap().push(watch.clone());
        Ok((subscriber, watch))
    }

    /// `XRC_RCV_METHOD_QP_ALLOC`. `fault` is at the copying of the QP number to the process.
    pub(crate) fn alloc(&self, file: &File, lifetime: Lifetime, fault: bool) -> Result<u32> {
        self.command(file, || {
            let (subscriber, watch) = self.subscriber(file)?;
            let mut attributes = QpAttr::new();
            let init = QpInitAttr {
                lifetime,
                initial_state: InitialState::Init(QpAttrMask::PORT),
                label: 0,
                attributes: &mut attributes,
                udata: None,
            };
            let domain = self.domains.get_or_new(&self.xrcd)?;
            let qp = domain
                .create(&self.xrcd, &self.pd, init, subscriber)
                .inspect_err(|_| watch.discard())?;
            let qpn = qp.qpn();

            runtime::interleave();
            if fault {
                watch.discard();
                return Err(EFAULT);
            }

            if let Some(history) = self.device.history(qpn) {
                watch.begins(history, 0);
            }
            file.handles.lock().unwrap().push(Handle {
                registration: qp.publish(),
                watch,
            });
            Ok(qpn)
        })
    }

    /// `XRC_RCV_METHOD_QP_REG`
    pub(crate) fn register(&self, file: &File, qpn: u32) -> Result {
        self.command(file, || {
            let before = self.device.history(qpn);
            let over_before = before.as_ref().map_or(0, |history| history.done());
            let domain = self.domain()?;
            let (subscriber, watch) = self.subscriber(file)?;
            let registration = domain
                .find(qpn)
                .and_then(|qp| domain.register(&qp, subscriber))
                .inspect_err(|_| watch.discard())?;
            let after = self.device.history(qpn);

            // Otherwise another QP got the number meanwhile.
            if let Some(history) = before.filter(|before| is_same(before, after.as_ref())) {
                watch.begins(history, over_before);
            }
            file.handles.lock().unwrap().push(Handle {
                registration,
                watch,
            });
            Ok(())
        })
    }

    /// `XRC_RCV_METHOD_QP_DESTROY`
    pub(crate) fn destroy(&self, file: &File, qpn: u32) -> Result {
        self.command(file, || {
            let domain = self.domain()?;
            let history = self.device.history(qpn);

            self.device.oracle.may_end_with(1);
            domain.destroy(qpn, |subscribers| subscribers.has(file.id))?;

            let after = self.device.history(qpn);
            let exists = history.is_some_and(|before| is_same(&before, after.as_ref()));

            assert!(!exists, "DESTROY has returned and the QP exists");
            Ok(())
        })
    }

    /// `XRC_RCV_METHOD_QP_UNREG`, of the latest registration.
    pub(crate) fn unregister(&self, file: &File) -> Result {
        let is_open = file.is_open.read().unwrap();

        if !*is_open {
            return Ok(());
        }

        let handle = file.handles.lock().unwrap().pop();
        let handle = handle.ok_or(ENODEV)?;

        handle.end(RemoveReason::Destroyed);
        Ok(())
    }

    /// A process closes its handle of the domain.
    pub(crate) fn close_domain(&self, file: &File) {
        let is_open = file.is_open.read().unwrap();

        if *is_open {
            self.put_xrcd(file);
        }
    }

    fn put_xrcd(&self, file: &File) {
        let mut exists = file.xrcd.write().unwrap();

        if !core::mem::replace(&mut *exists, false) {
            return;
        }

        let mut users = self.xrcd_users.lock().unwrap();

        *users -= 1;
        if *users == 0 {
            self.device.oracle.may_end_with(u32::MAX);
            self.domains.close(&self.xrcd);
            assert!(
                !self.device.has_qps(self.xrcd.id),
                "a closed domain has a QP"
            );
            self.device.oracle.closed(self.xrcd.id);
        }
    }

    /// uverbs destroys the objects of a file, the newest first.
    fn destroy_objects(&self, file: &File, why: RemoveReason) {
        let mut is_open = file.is_open.write().unwrap();

        if !core::mem::replace(&mut *is_open, false) {
            return;
        }
        loop {
            let handle = file.handles.lock().unwrap().pop();
            let Some(handle) = handle else {
                break;
            };

            handle.end(why);
        }
        file.channel.destroy();
        self.put_xrcd(file);
    }

    /// A process closes the file for the last time. Its event channel stays open.
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
        self.domains.close_all();
    }

    /// Panics unless all is as before the first file was opened. All files are closed.
    pub(crate) fn check_is_idle(&self) {
        self.files.lock().unwrap().clear();
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

    /// Reports two events of a QP.
    pub(crate) fn report(&self, qpn: u32) {
        self.device
            .report(qpn, bindings::ib_event_type_IB_EVENT_COMM_EST);
        self.device
            .report(qpn, bindings::ib_event_type_IB_EVENT_PATH_MIG);
    }
}

impl Handle {
    fn end(self, why: RemoveReason) {
        self.watch.ends(why);
        self.registration.unregister(why);
    }
}

impl File {
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }
}

/// Whether a QP with these events exists still.
fn is_same(before: &StdArc<History>, after: Option<&StdArc<History>>) -> bool {
    after.is_some_and(|after| StdArc::ptr_eq(before, after))
}
