// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The server, and how it becomes the successor of one that was killed.

use std::collections::{BTreeMap, HashMap};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use sd_notify::NotifyState;
use xrc_rcv::verbs::{Memory, RcQp, Srq, TargetQp};
use xrc_rcv::{
    AllocOptions, Device, Domain, EventChannel, EventType, Lifetime, Pd, QpState, RegisterOptions,
    Registration,
};

use crate::Result;
use crate::hello::Hello;
use crate::keys::{KEYS, Keys};
use crate::store;
use crate::table::{CLIENTS, CREDITS, RECORD, Record, Slot, Table, Target, WORDS};

#[derive(clap::Args)]
pub(crate) struct Args {
    device: String,
    /// The file of the domain
    file: PathBuf,
    /// Where clients connect to, by TCP, to get a receive QP
    address: String,
    /// Index of the GID
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
    #[arg(long, value_enum, default_value_t)]
    connections: Connections,
    /// Keep the table alone in the descriptor store, and not the open device
    #[arg(long)]
    table_only: bool,
}

/// The type of the QPs that clients are connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Connections {
    /// Receive QPs of the domain, which a successor adopts
    #[default]
    ReceiveQps,
    /// XRC target QPs, which need no module: a successor opens them by their numbers
    TargetQps,
    /// RC QPs, which end with the server: clients connect again
    Rc,
}

/// Names in the store; that of a device ends with its server's generation.
const MEMORY: &str = "memory";
const DEVICE: &str = "device-";

/// The length of a client's message.
const MESSAGE: u32 = (RECORD * size_of::<u64>()) as u32;

fn name_of(generation: u64) -> String {
    format!("{DEVICE}{generation}")
}

impl Args {
    /// Whether an open device outlives its server.
    fn keeps_device(&self) -> bool {
        self.connections != Connections::Rc && !self.table_only
    }
}

/// The receiving end of a client's connection.
enum Connection {
    Receive(Registration),
    /// A receive QP that this server is not registered with any more.
    Left {
        domain: Domain,
        qp_num: u32,
    },
    Target(TargetQp),
    /// It is a thread's, which destroys it soon after this is dropped.
    Rc {
        qp_num: u32,
        _thread: Arc<()>,
    },
}

impl Connection {
    fn qp_num(&self) -> u32 {
        match self {
            Connection::Receive(registration) => registration.qp_num(),
            Connection::Target(qp) => qp.qp_num(),
            Connection::Left { qp_num, .. } | Connection::Rc { qp_num, .. } => *qp_num,
        }
    }

    /// Destroys the QP, or returns the connection if another open device is still registered.
    fn destroy(self) -> xrc_rcv::Result<Option<Connection>> {
        match self {
            Connection::Receive(registration) => {
                let (domain, qp_num) = (registration.domain().clone(), registration.qp_num());
                registration.unregister()?;
                Connection::Left { domain, qp_num }.destroy()
            }
            Connection::Left { domain, qp_num } => match domain.destroy(qp_num) {
                Err(error) if error.errno() == Errno::BUSY.raw_os_error() => {
                    Ok(Some(Connection::Left { domain, qp_num }))
                }
                result => result.map(|()| None),
            },
            Connection::Target(qp) => qp.destroy().map(|()| None),
            Connection::Rc { .. } => Ok(None),
        }
    }
}

/// The state that the threads of the server share.
struct Server {
    connections: Connections,
    domain: Domain,
    pd: Pd,
    memory: Memory,
    /// The channel of events, if connections are receive QPs.
    channel: Option<EventChannel>,
    target: Target,
    gid_index: u8,
    state: Mutex<State>,
    /// Has what is no longer used removed, which takes time, by a thread that delays no answer.
    tidy: Sender<()>,
}

#[derive(Default)]
struct State {
    /// The connection of each client.
    connections: HashMap<u64, Connection>,
    /// The open devices of servers before this one, by their generation.
    devices: BTreeMap<u64, OwnedFd>,
    /// Connections that have ended. A QP cannot be destroyed while a server is registered.
    ended: Vec<Connection>,
}

impl State {
    /// Takes over the connections that a server before this one has left.
    fn adopt(&mut self, domain: &Domain, table: &Table<'_>, channel: &EventChannel) -> Result<()> {
        for qp in domain.adopt(&RegisterOptions::new().channel(channel))? {
            let (client, is_broken) = (qp.info.label(), qp.info.state() == Some(QpState::Err));
            let connection = Connection::Receive(qp.registration?);
            if client < CLIENTS && !is_broken && table.slot(client).qp_num == connection.qp_num() {
                self.connections.insert(client, connection);
            } else {
                self.ended.push(connection);
            }
        }
        Ok(())
    }

    /// The same with target QPs, whose numbers are known from the table alone.
    fn open(&mut self, domain: &Domain, table: &Table<'_>) {
        for client in 0..CLIENTS {
            let slot = table.slot(client);
            if slot.qp_num == 0 {
                continue;
            }
            match TargetQp::open(domain, slot.qp_num) {
                Ok(qp) => {
                    self.connections.insert(client, Connection::Target(qp));
                }
                // It has ended with the process that had it, as the client will see.
                Err(_) => table.set_slot(client, Slot { qp_num: 0, ..slot }),
            }
        }
    }

    /// Takes out the devices that no client uses any more, and if they were the last the
    /// connections that have ended.
    fn unused(&mut self, table: &Table<'_>) -> (BTreeMap<u64, OwnedFd>, Vec<Connection>) {
        let used = self
            .connections
            .keys()
            .map(|&client| table.slot(client).confirmed);
        let used = self.devices.split_off(&used.min().unwrap_or(u64::MAX));
        let unused = std::mem::replace(&mut self.devices, used);
        let ended = match self.devices.is_empty() {
            true => std::mem::take(&mut self.ended),
            false => Vec::new(),
        };
        (unused, ended)
    }
}

/// The memory that servers before this one have kept, the device of [`Keys`], and open devices.
fn inherit() -> Result<(Memory, Option<OwnedFd>, BTreeMap<u64, OwnedFd>)> {
    let (mut memory, mut kept, mut devices) = (None, None, BTreeMap::new());
    for (name, fd) in store::inherited()? {
        match name.as_str() {
            MEMORY => memory = Some(Memory::from_fd(fd)?),
            KEYS => kept = Some(fd),
            _ => {
                let generation = name.strip_prefix(DEVICE).ok_or("an unknown descriptor")?;
                devices.insert(generation.parse()?, fd);
            }
        }
    }
    let memory = match memory {
        Some(memory) => memory,
        None => {
            let memory = Memory::new("kvstore", WORDS)?;
            store::keep(MEMORY, &memory)?;
            memory
        }
    };
    Ok((memory, kept, devices))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (memory, kept, devices) = inherit()?;
    let mut state = State {
        devices,
        ..State::default()
    };
    let keys = match kept {
        Some(fd) => Some(Keys::import(&fd, &memory)?),
        None if args.keeps_device() => Keys::new(&args.device, &args.file, &memory)?,
        None => None,
    };
    let device = Device::open(&args.device)?;
    let domain = device.open_domain_at(&args.file)?;
    let pd = Pd::new(&device)?;
    let depth = (CLIENTS * CREDITS) as u32;
    let srq = match args.connections {
        Connections::Rc => None,
        _ => Some(Srq::in_pd(&pd, &domain, depth, MESSAGE)?),
    };
    let mut channel = None;
    match args.connections {
        Connections::ReceiveQps => {
            let channel = channel.insert(domain.create_event_channel()?);
            state.adopt(&domain, &Table(&memory), channel)?;
        }
        Connections::TargetQps => state.open(&domain, &Table(&memory)),
        Connections::Rc => {}
    }

    // From the announcement on requests name this device's objects.
    let generation = Table(&memory).next_generation();
    if args.keeps_device() {
        store::keep(&name_of(generation), &device)?;
    }
    let srq_num = srq.as_ref().map_or(0, Srq::srq_num);
    let keys = match keys {
        Some(keys) => keys,
        None => Keys::of_server(&pd, &memory, srq_num)?,
    };
    let target = Target {
        generation,
        srq_num,
        table: keys.table,
        table_srq: keys.srq_num,
    };
    for &client in state.connections.keys() {
        let slot = Table(&memory).slot(client);
        Table(&memory).set_slot(client, Slot { target, ..slot });
    }
    let listener = TcpListener::bind(&args.address)?;
    sd_notify::notify(&[NotifyState::Ready])?;

    let (tidy, untidy) = mpsc::channel();
    let server = Arc::new(Server {
        connections: args.connections,
        domain,
        pd,
        memory,
        channel,
        target,
        gid_index: args.gid_index,
        state: Mutex::new(state),
        tidy,
    });
    thread::spawn({
        let server = server.clone();
        move || server.welcome(&listener)
    });
    thread::spawn({
        let server = server.clone();
        move || server.watch()
    });
    thread::spawn({
        let server = server.clone();
        move || server.clean(&untidy)
    });
    let Some(mut srq) = srq else {
        loop {
            thread::park();
        }
    };
    loop {
        // Its receive is posted again, before it is answered.
        server.handle(&srq.receive(None)?.unwrap_or_default())?;
    }
}

impl Server {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    fn handle(&self, message: &[u8]) -> Result<()> {
        let record = Record::from_message(message).ok_or("a message of another protocol")?;
        let client = record.client();
        if client >= CLIENTS {
            return Err("a message of a client that cannot be".into());
        }
        let table = Table(&self.memory);
        // With the lock: the client's connection may end or begin at the same time.
        let _state = self.state();
        if table.apply(&record, self.target.generation) {
            self.tidy.send(())?;
        }
        Ok(())
    }

    /// Closes devices and destroys connections that are no longer used.
    fn clean(&self, requests: &Receiver<()>) {
        while requests.recv().is_ok() {
            loop {
                while requests.try_recv().is_ok() {}
                let (devices, ended) = self.state().unused(&Table(&self.memory));
                for (generation, fd) in devices {
                    drop(fd);
                    if let Err(error) = store::remove(&name_of(generation)) {
                        eprintln!("kvstore: {error}");
                    }
                }
                let mut busy = Vec::new();
                for connection in ended {
                    match connection.destroy() {
                        Ok(again) => busy.extend(again),
                        Err(error) => eprintln!("kvstore: {error}"),
                    }
                }
                if busy.is_empty() {
                    break;
                }
                // The manager has not closed a device yet.
                self.state().ended.extend(busy);
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn disconnect(&self, state: &mut State, client: u64) {
        if let Some(connection) = state.connections.remove(&client) {
            let slot = Table(&self.memory).slot(client);
            Table(&self.memory).set_slot(client, Slot { qp_num: 0, ..slot });
            state.ended.push(connection);
        }
    }

    /// Gives clients their receive QPs.
    fn welcome(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if let Err(error) = stream
                .map_err(Into::into)
                .and_then(|stream| self.connect(&stream))
            {
                eprintln!("kvstore: a client cannot connect: {error}");
            }
        }
    }

    fn connect(self: &Arc<Self>, stream: &TcpStream) -> Result<()> {
        // A client that is silent does not delay the others for ever.
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let hello = Hello::read(stream)?;
        if hello.client >= CLIENTS {
            return Err("its number is too large".into());
        }
        let mut state = self.state();
        if hello.target != Target::default() {
            let answer = self.present(&state, &hello);
            answer.write(stream)?;
            return Ok(());
        }
        // The client leaves, was started again, or has lost its connection.
        self.disconnect(&mut state, hello.client);
        if hello.qp_num == 0 {
            self.tidy.send(())?;
            hello.write(stream)?;
            return Ok(());
        }
        let connection = Arc::clone(self).create(&hello)?;
        let slot = Slot {
            qp_num: connection.qp_num(),
            target: self.target,
            confirmed: self.target.generation,
            ..Table(&self.memory).slot(hello.client)
        };
        Table(&self.memory).set_slot(hello.client, slot);
        state.connections.insert(hello.client, connection);
        self.tidy.send(())?;
        let hello = Hello {
            address: self.domain.device().query_address(1, self.gid_index)?,
            qp_num: slot.qp_num,
            target: self.target,
            ..hello
        };
        hello.write(stream)?;
        Ok(())
    }

    /// The answer to a client that has waited for this server: its receive QP, if that is still
    /// connected.
    fn present(&self, state: &State, hello: &Hello) -> Hello {
        Hello {
            qp_num: state
                .connections
                .get(&hello.client)
                .map_or(0, Connection::qp_num),
            target: self.target,
            ..*hello
        }
    }

    fn create(self: Arc<Self>, peer: &Hello) -> Result<Connection> {
        let attr = peer.attr(self.gid_index);
        match self.connections {
            Connections::ReceiveQps => {
                let mut options = AllocOptions::new()
                    .lifetime(Lifetime::Domain)
                    .label(peer.client)
                    .attr(attr);
                if let Some(channel) = &self.channel {
                    options = options.channel(channel);
                }
                Ok(Connection::Receive(self.domain.alloc(&options)?))
            }
            Connections::TargetQps => {
                let qp = TargetQp::create(&self.domain)?;
                qp.connect(&attr)?;
                Ok(Connection::Target(qp))
            }
            Connections::Rc => {
                let mut qp = RcQp::new(&self.pd, 1, CREDITS as u32, MESSAGE)?;
                qp.connect(&attr)?;
                let (qp_num, thread) = (qp.qp_num(), Arc::new(()));
                let used = Arc::downgrade(&thread);
                thread::spawn(move || {
                    while used.strong_count() != 0 {
                        let received = qp.receive(Some(Duration::from_millis(500)));
                        let handled = received.map_err(Into::into).and_then(|message| {
                            message.map_or(Ok(()), |message| self.handle(&message))
                        });
                        if let Err(error) = handled {
                            eprintln!("kvstore: {error}");
                            break;
                        }
                    }
                });
                Ok(Connection::Rc {
                    qp_num,
                    _thread: thread,
                })
            }
        }
    }

    /// Ends connections that have broken.
    fn watch(&self) {
        let Some(channel) = &self.channel else {
            return;
        };
        while let Ok(events) = channel.wait(None) {
            for event in events.filter(|event| event.event_type() != EventType::COMM_EST) {
                let mut state = self.state();
                let client = state.connections.iter().find_map(|(client, connection)| {
                    (connection.qp_num() == event.qp_num()).then_some(*client)
                });
                if let Some(client) = client {
                    eprintln!("kvstore: the connection of client {client} has broken: {event}");
                    self.disconnect(&mut state, client);
                    // The thread that it is for is there as long as this one.
                    let _ = self.tidy.send(());
                }
            }
        }
    }
}
