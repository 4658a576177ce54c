// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A service that may be restarted or killed at any moment, and a client of it that notices
//! nothing: `xrc-rcv hold --socket` keeps the receive QPs, the open device and the counts.
//!
//! The service counts the messages of each client. A message to a server that has ended completes
//! at its SRQ, which the kept device has; the client sends it again to the next server, which knows
//! by the count whether it was executed.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Parser;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use xrc_rcv::verbs::{Address, Initiator, Memory, MessageStream, Region, Srq};
use xrc_rcv::{
    Access, AllocOptions, Device, Domain, EventStream, EventType, Keeper, Lifetime, Mtu, Pd,
    QpAttr, QpState, RegisterOptions, Registration,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CLIENTS: u64 = 64;
/// The messages that a client sends before it reads that they were counted.
const BURST: u64 = 8;
/// The words of a message: its client, and its number again and again.
const WORDS: usize = 8;

#[derive(Parser)]
enum Command {
    /// Serve until SIGTERM
    Serve {
        #[command(flatten)]
        port: Port,
        /// The file of the domain
        file: String,
        /// The socket of xrc-rcv hold
        socket: String,
        /// Where clients connect to, such as 127.0.0.1:7000
        address: String,
    },
    /// Send messages until the end of the standard input
    Send {
        #[command(flatten)]
        port: Port,
        /// The address of the service
        address: String,
        /// The number of this client
        #[arg(long, default_value_t = 0)]
        client: u64,
    },
}

#[derive(clap::Args)]
struct Port {
    device: String,
    #[arg(long, default_value_t = 1)]
    port: u8,
    /// Index of the GID
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
}

impl Port {
    /// The attributes of a QP that is connected to another.
    fn attr(&self, peer: Address, qp_num: u32) -> QpAttr {
        QpAttr::new()
            .with_pkey_index(0)
            .with_port(self.port)
            .with_access(Access::empty())
            .with_path(peer.path_from(self.port, self.gid_index))
            .with_path_mtu(Mtu::Mtu1024)
            .with_dest_qp_num(qp_num)
            .with_rq_psn(0)
    }

    fn address(&self, device: &Device) -> xrc_rcv::Result<Address> {
        device.query_address(self.port, self.gid_index)
    }
}

struct Service {
    port: Port,
    domain: Domain,
    events: EventStream,
    keeper: Keeper,
    /// The number of messages of each client that were counted.
    counts: Memory,
    srq_num: u32,
    /// Devices of servers before, which clients may have sent messages to.
    older: Mutex<Vec<String>>,
    connections: Mutex<HashMap<u64, Connection>>,
}

/// The receiving end of a client, and the stream that counts are written to.
struct Connection {
    qp: Registration,
    peer: u32,
    stream: Option<TcpStream>,
}

impl Service {
    /// Takes over what the server before has left, and keeps the device for the next one.
    fn start(port: Port, file: &str, socket: &str) -> Result<(Service, MessageStream)> {
        let keeper = Keeper::connect(socket)?;
        let counts = match keeper.get("counts")? {
            Some(fd) => Memory::from_fd(fd)?,
            None => {
                let counts = Memory::new("counts", CLIENTS as usize)?;
                keeper.keep("counts", &counts)?;
                counts
            }
        };
        let device = Device::open(&port.device)?;
        let domain = device.open_domain_at(file)?;
        let events = EventStream::new(domain.create_event_channel()?)?;
        let connections = adopt(&domain, &events)?;
        let srq = Srq::new(&domain, (CLIENTS * BURST) as u32, (WORDS * 8) as u32)?;
        let mut older = keeper.names()?;
        older.retain(|name| name.starts_with("device-"));
        let generations = older
            .iter()
            .filter_map(|name| name["device-".len()..].parse().ok());
        let generation = generations.max().unwrap_or(0u64) + 1;
        keeper.keep(&format!("device-{generation}"), &device)?;
        let service = Service {
            port,
            events,
            keeper,
            counts,
            srq_num: srq.srq_num(),
            older: Mutex::new(older),
            connections: Mutex::new(connections),
            domain,
        };
        Ok((service, MessageStream::new(srq)?))
    }

    fn count(&self, message: &[u8]) -> Result<()> {
        let words = message
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let words: Vec<u64> = words.collect();
        let (client, number) = (words[0], words[1]);
        if client >= CLIENTS
            || words.len() != WORDS
            || words[1..].iter().any(|&word| word != number)
        {
            return Err(format!("{words:?} is no message").into());
        }
        let count = &self.counts[client as usize];
        match number.checked_sub(count.load(Ordering::Relaxed)) {
            Some(1) => count.store(number, Ordering::Relaxed),
            // It was counted by a server before.
            None | Some(0) => {}
            Some(_) => return Err(format!("message {number} of {client} comes too early").into()),
        }
        let connections = self.connections.lock().unwrap();
        if let Some(stream) = connections.get(&client).and_then(|one| one.stream.as_ref()) {
            // A client that has left does not read it; the next server sends the count again.
            let _ = stream.try_write(format!("{number}\n").as_bytes());
        }
        Ok(())
    }

    /// Gives a client its receive QP. It has no message under way.
    async fn join(&self, stream: TcpStream) -> Result<()> {
        let hello = line(&stream).await?;
        let words: Vec<&str> = hello.split_whitespace().collect();
        let [client, lid, gid, peer] = words[..] else {
            return Err(format!("'{}' is no address", hello.trim_end()).into());
        };
        let (client, peer) = (client.parse::<u64>()?, peer.parse::<u32>()?);
        let (lid, gid) = (lid.parse()?, gid.parse::<Ipv6Addr>()?.octets());
        let count = self.counts.get(client as usize).ok_or("no such client")?;
        let mut connections = self.connections.lock().unwrap();
        if connections
            .get(&client)
            .is_none_or(|connection| connection.peer != peer)
        {
            if let Some(old) = connections.remove(&client) {
                self.destroy(old.qp)?;
            }
            // It starts again, or leaves.
            count.store(0, Ordering::Relaxed);
            if peer == 0 {
                stream.try_write(b"\n")?;
                return Ok(());
            }
            let (qp, stream) = (self.create(client, Address { lid, gid }, peer)?, None);
            connections.insert(client, Connection { qp, peer, stream });
        }
        let connection = connections.get_mut(&client).expect("it was inserted");
        let own = self.port.address(self.domain.device())?;
        let (gid, qp_num) = (Ipv6Addr::from(own.gid), connection.qp.qp_num());
        let count = count.load(Ordering::Relaxed);
        let answer = format!("{} {gid} {qp_num} {} {count}\n", own.lid, self.srq_num);
        stream.try_write(answer.as_bytes())?;
        connection.stream = Some(stream);
        if connections
            .values()
            .all(|connection| connection.stream.is_some())
        {
            for name in self.older.lock().unwrap().drain(..) {
                self.keeper.remove(&name)?;
            }
        }
        Ok(())
    }

    fn create(&self, client: u64, address: Address, peer: u32) -> xrc_rcv::Result<Registration> {
        let attr = self.port.attr(address, peer);
        let options = AllocOptions::new().lifetime(Lifetime::Domain).label(client);
        let options = options.channel(self.events.channel()).attr(attr);
        let qp = self.domain.alloc(&options)?;
        println!("QP {} of {client}: created", qp.qp_num());
        Ok(qp)
    }

    fn destroy(&self, qp: Registration) -> xrc_rcv::Result<()> {
        let qp_num = qp.qp_num();
        qp.unregister()?;
        self.domain.destroy(qp_num)
    }

    /// Ends connections that have broken.
    async fn watch(&self) {
        while let Some(Ok(event)) = self.events.next().await {
            println!("{event}");
            if event.event_type() != EventType::COMM_EST {
                let mut connections = self.connections.lock().unwrap();
                let broken = connections
                    .values_mut()
                    .find(|one| one.qp.qp_num() == event.qp_num());
                // Destroyed when its client connects again.
                broken
                    .into_iter()
                    .for_each(|connection| connection.peer = 0);
            }
        }
    }
}

/// Registers with the QPs that the server before has left, and destroys those that have broken.
fn adopt(domain: &Domain, events: &EventStream) -> Result<HashMap<u64, Connection>> {
    let mut connections = HashMap::new();
    for adopted in domain.adopt(&RegisterOptions::new().channel(events.channel()))? {
        let (info, qp) = (adopted.info, adopted.registration?);
        let (qp_num, client) = (qp.qp_num(), info.label());
        if info.state() != Some(QpState::Rtr) {
            println!("QP {qp_num} of {client}: broken");
            qp.unregister()?;
            domain.destroy(qp_num)?;
            continue;
        }
        println!("QP {qp_num} of {client}: adopted");
        let connection = Connection {
            qp,
            peer: info.dest_qp_num(),
            stream: None,
        };
        connections.insert(client, connection);
    }
    Ok(connections)
}

/// Reads a line.
async fn line(stream: &TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        stream.readable().await?;
        let mut part = [0; 256];
        match stream.try_read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => line.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if line.len() > 4096 {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    String::from_utf8(line).map_err(|_| ErrorKind::InvalidData.into())
}

#[tokio::main(flavor = "current_thread")]
async fn serve(port: Port, file: &str, socket: &str, address: &str) -> Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let (service, mut messages) = Service::start(port, file, socket)?;
    let service = Arc::new(service);
    let listener = TcpListener::bind(address).await?;
    println!("ready");
    let watching = service.clone();
    tokio::spawn(async move { watching.watch().await });
    let counting = service.clone();
    tokio::spawn(async move {
        while let Some(message) = messages.next().await {
            let counted = message
                .map_err(Into::into)
                .and_then(|message| counting.count(&message));
            if let Err(error) = counted {
                eprintln!("kept: {error}");
            }
        }
    });
    loop {
        tokio::select! {
            stream = listener.accept() => {
                let (service, stream) = (service.clone(), stream?.0);
                tokio::spawn(async move {
                    if let Err(error) = service.join(stream).await {
                        eprintln!("kept: a client: {error}");
                    }
                });
            }
            _ = end.recv() => {
                println!("ends");
                // Without the end of its objects: clients have messages under way to the SRQ.
                std::process::exit(0);
            }
        }
    }
}

struct Client {
    port: Port,
    address: String,
    number: u64,
    initiator: Initiator,
    region: Region,
    own: Address,
    /// 0 before it is connected.
    receive_qp: u32,
}

impl Client {
    fn new(port: Port, address: String, number: u64) -> Result<Client> {
        let device = Device::open(&port.device)?;
        let pd = Pd::new(&device)?;
        let memory = Memory::new("messages", BURST as usize * WORDS)?;
        Ok(Client {
            address,
            number,
            initiator: Initiator::new(&pd, BURST as u32)?,
            region: Region::new(&pd, &memory, Access::empty())?,
            own: port.address(&device)?,
            receive_qp: 0,
            port,
        })
    }

    /// The answer of the service that runs now, or of the next one.
    fn hello(&self, qp_num: u32) -> Result<(BufReader<std::net::TcpStream>, String)> {
        loop {
            let ask = || -> io::Result<_> {
                let mut stream = std::net::TcpStream::connect(&self.address)?;
                let (client, lid, gid) = (self.number, self.own.lid, Ipv6Addr::from(self.own.gid));
                stream.write_all(format!("{client} {lid} {gid} {qp_num}\n").as_bytes())?;
                let (mut reader, mut line) = (BufReader::new(stream), String::new());
                match reader.read_line(&mut line)? {
                    0 => Err(ErrorKind::UnexpectedEof.into()),
                    _ => Ok((reader, line)),
                }
            };
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Sends the messages from a number on, and waits for their completions.
    fn send_burst(&mut self, srq_num: u32, first: u64) -> Result<()> {
        for slot in 0..BURST as usize {
            let words = slot * WORDS..(slot + 1) * WORDS;
            let number = first + slot as u64;
            for (at, word) in self.region.memory()[words.clone()].iter().enumerate() {
                word.store(
                    if at == 0 { self.number } else { number },
                    Ordering::Relaxed,
                );
            }
            self.initiator.send(srq_num, &self.region, words)?;
        }
        while self.initiator.in_flight() != 0 {
            let completion = self.initiator.wait(None)?.expect("a request is under way");
            if !completion.is_success() {
                return Err(completion.to_string().into());
            }
        }
        Ok(())
    }

    /// Sends messages until the service ends, or `end` is set. Returns how many were counted.
    fn send(&mut self, end: &AtomicBool) -> Result<u64> {
        let (mut counts, answer) = self.hello(self.initiator.qp_num())?;
        let words: Vec<&str> = answer.split_whitespace().collect();
        let [lid, gid, receive_qp, srq_num, count] = words[..] else {
            return Err(format!("the answer '{}'", answer.trim_end()).into());
        };
        let (lid, gid) = (lid.parse()?, gid.parse::<Ipv6Addr>()?.octets());
        let (receive_qp, srq_num, mut count) =
            (receive_qp.parse()?, srq_num.parse()?, count.parse()?);
        if self.receive_qp == 0 {
            let attr = self.port.attr(Address { lid, gid }, receive_qp);
            self.initiator
                .connect(&attr.with_max_dest_rd_atomic(1).with_min_rnr_timer(12))?;
            self.receive_qp = receive_qp;
        }
        if self.receive_qp != receive_qp {
            return Err(format!("QP {} became {receive_qp}", self.receive_qp).into());
        }
        println!("QP {receive_qp} SRQ {srq_num}: {count}");
        while !end.load(Ordering::Relaxed) {
            self.send_burst(srq_num, count + 1)?;
            let last = count + BURST;
            while count < last {
                let mut line = String::new();
                match counts.read_line(&mut line) {
                    Ok(1..) if line.ends_with('\n') => count = line.trim_end().parse()?,
                    // The service has ended.
                    _ => return Ok(count),
                }
            }
        }
        Ok(count)
    }
}

fn send(port: Port, address: String, number: u64) -> Result<()> {
    let mut client = Client::new(port, address, number)?;
    let end = Arc::new(AtomicBool::new(false));
    let ended = end.clone();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    let mut count = 0;
    while !end.load(Ordering::Relaxed) {
        count = client.send(&end)?;
    }
    client.hello(0)?;
    println!("{count} messages were counted");
    Ok(())
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Serve {
            port,
            file,
            socket,
            address,
        } => serve(port, &file, &socket, &address),
        Command::Send {
            port,
            address,
            client,
        } => send(port, address, client),
    }
}
