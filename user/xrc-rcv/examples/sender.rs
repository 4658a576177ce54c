// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The sending end of a connection to a receive QP, see Documentation/tutorial.rst. The module need
//! not be on its node: a sender cannot tell a receive QP from other QPs.
//!
//! usage: sender DEVICE[/PORT[/GID_INDEX]] HOST TCP_PORT…
//!
//! Sends each line of the standard input to the SRQs of all receivers: processes of one domain on
//! HOST, each with a TCP_PORT, by one connection. The line "break" is sent to an SRQ that does not
//! exist, which breaks it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::{array, env};

use xrc_rcv::verbs::{Address, Completion, Initiator, Memory, Region};
use xrc_rcv::{Access, Device, Mtu, Pd, QpAttr};

/// The bytes of a message, in words.
const WORDS: usize = 8;
const NO_SRQ: u32 = 0xff_ffff;

/// A QP that sends to the SRQs of a domain.
struct Sender {
    initiator: Initiator,
    region: Region,
    address: Address,
    port: u8,
    gid_index: u8,
    /// 0 before it is connected.
    receive_qp: u32,
}

impl Sender {
    fn new(device: &str) -> Result<Sender, Box<dyn Error>> {
        let mut words = device.split('/');
        let device = Device::open(words.next().unwrap_or_default())?;
        let (port, gid_index) = (words.next().unwrap_or("1"), words.next().unwrap_or("0"));
        let (port, gid_index) = (port.parse()?, gid_index.parse()?);
        let pd = Pd::new(&device)?;
        Ok(Sender {
            initiator: Initiator::new(&pd, 1)?,
            region: Region::new(&pd, &Memory::new("message", WORDS)?, Access::empty())?,
            address: device.query_address(port, gid_index)?,
            port,
            gid_index,
            receive_qp: 0,
        })
    }

    fn connect(&mut self, receiver: Address, qp_num: u32) -> xrc_rcv::Result<()> {
        let attr = QpAttr::new()
            .with_pkey_index(0)
            .with_port(self.port)
            .with_access(Access::empty())
            .with_path(receiver.path_from(self.port, self.gid_index))
            .with_path_mtu(Mtu::Mtu1024)
            .with_dest_qp_num(qp_num)
            .with_rq_psn(0)
            .with_max_dest_rd_atomic(1)
            .with_min_rnr_timer(12);
        self.initiator.connect(&attr)?;
        self.receive_qp = qp_num;
        Ok(())
    }

    /// Sends `message`, with zeroes behind it.
    fn send(&mut self, srq_num: u32, message: &str) -> xrc_rcv::Result<Completion> {
        let mut bytes = message.bytes();
        for word in self.region.memory().iter() {
            let word_bytes = array::from_fn(|_| bytes.next().unwrap_or(0));
            word.store(u64::from_ne_bytes(word_bytes), Ordering::Relaxed);
        }
        self.initiator.send(srq_num, &self.region, 0..WORDS)?;
        Ok(self.initiator.wait(None)?.expect("a request is under way"))
    }
}

/// A receiving process; stream and SRQ are of the process that had the port last.
struct Receiver<'a> {
    host: &'a str,
    tcp_port: &'a str,
    srq: Option<(TcpStream, u32)>,
}

impl Receiver<'_> {
    /// Its SRQ. The first receiver is asked for a receive QP as well.
    fn srq_num(&mut self, sender: &mut Sender) -> Result<u32, Box<dyn Error>> {
        if let Some((stream, srq_num)) = &mut self.srq {
            // The end of the process would be read, and that of its SRQ with it.
            if matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            {
                return Ok(*srq_num);
            }
        }
        self.srq = None;
        let mut stream = TcpStream::connect((self.host, self.tcp_port.parse()?))?;
        let (lid, gid) = (sender.address.lid, Ipv6Addr::from(sender.address.gid));
        let (qp_num, receive_qp) = (sender.initiator.qp_num(), sender.receive_qp);
        stream.write_all(format!("{lid} {gid} {qp_num} {receive_qp}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [lid, gid, qp_num, srq_num] = words[..] else {
            return Err("no answer".into());
        };
        let (lid, gid) = (lid.parse()?, gid.parse::<Ipv6Addr>()?.octets());
        if sender.receive_qp == 0 {
            sender.connect(Address { lid, gid }, qp_num.parse()?)?;
        }
        println!("{}: QP {qp_num}, SRQ {srq_num}", self.tcp_port);
        stream.set_nonblocking(true)?;
        let srq_num = srq_num.parse()?;
        self.srq = Some((stream, srq_num));
        Ok(srq_num)
    }
}

/// Returns whether all was sent.
fn send(device: &str, host: &str, tcp_ports: &[String]) -> Result<bool, Box<dyn Error>> {
    let mut sender = Sender::new(device)?;
    let receiver = |tcp_port| Receiver {
        host,
        tcp_port,
        srq: None,
    };
    let mut receivers: Vec<Receiver> = tcp_ports.iter().map(|port| receiver(port)).collect();
    for message in io::stdin().lines() {
        let message = message?;
        for receiver in &mut receivers {
            let Ok(srq_num) = receiver.srq_num(&mut sender) else {
                println!("{}: no receiver", receiver.tcp_port);
                continue;
            };
            let srq_num = if message == "break" { NO_SRQ } else { srq_num };
            let completion = sender.send(srq_num, &message)?;
            println!("{}: {message}: {completion}", receiver.tcp_port);
            if !completion.is_success() {
                return Ok(false); // the QP is in ERR, and ends with this process
            }
        }
    }
    Ok(true)
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [device, host, _, ..] = args.as_slice() else {
        eprintln!("usage: sender DEVICE[/PORT[/GID_INDEX]] HOST TCP_PORT...");
        return ExitCode::from(2);
    };
    match send(device, host, &args[2..]) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sender: {error}");
            ExitCode::FAILURE
        }
    }
}
