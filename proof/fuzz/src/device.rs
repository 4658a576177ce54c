// SPDX-License-Identifier: GPL-2.0

//! The device that programs use: its files, its removal and return, and what the module and the
//! kernel list of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::errno::errno;

/// That of this process and its children, as `guest` numbers the devices that it makes.
static NUMBER: AtomicU8 = AtomicU8::new(0);

pub fn number() -> u8 {
    NUMBER.load(SeqCst)
}
pub fn set_number(number: u8) {
    NUMBER.store(number, SeqCst);
}

fn name() -> String {
    format!("rxe_fuzz{}", number())
}

/// The network device that it is on.
fn network() -> String {
    format!("fuzz{}", number())
}

const DEBUGFS: &str = "/sys/kernel/debug/ib_xrc_rcv";

/// Until a device that does not come is believed never to come: a guest may be short of CPU.
const PATIENCE: Duration = Duration::from_secs(240);

// <rdma/rdma_netlink.h>
const NLDEV: u16 = 5 << 10;
const NEWLINK: u16 = NLDEV | 3;
const DELLINK: u16 = NLDEV | 4;
const RES_GET: u16 = NLDEV | 9;
const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_RES_SUMMARY: u16 = 15;
const ATTR_RES_SUMMARY_ENTRY_NAME: u16 = 17;
const ATTR_RES_SUMMARY_ENTRY_CURR: u16 = 18;
const ATTR_NDEV_NAME: u16 = 51;
const ATTR_LINK_TYPE: u16 = 65;

// <rdma/ib_user_verbs.h>
const GET_CONTEXT: u32 = 0;
const OPEN_XRCD: u32 = 37;
const CLOSE_XRCD: u32 = 38;

/// The device as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The index of the device.
    pub index: u32,
    /// The number of its uverbs file.
    pub uverbs: u32,
}

impl Device {
    /// Waits until all of it is there.
    pub fn find() -> Device {
        let end = Instant::now() + PATIENCE;
        loop {
            if let (Some(index), Some(uverbs)) = (index(), uverbs()) {
                return Device { index, uverbs };
            }
            assert!(Instant::now() < end, "no device {}", name());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for `most` until the module lists no domain, QP or registration, and the device has no
    /// QPs but its own.
    pub fn wait_until_unused(
        self,
        most: Duration,
        count: &QpCount,
        own_qps: u64,
    ) -> Result<(), String> {
        let end = Instant::now() + most;
        loop {
            match self.left(count, own_qps)? {
                None => return Ok(()),
                Some(left) if Instant::now() >= end => return Err(left),
                Some(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn left(self, count: &QpCount, own_qps: u64) -> Result<Option<String>, String> {
        for what in ["registrations", "qps", "domains"] {
            let path = format!("{DEBUGFS}/{}/{what}", self.index);
            let left = fs::read_to_string(path).map_err(|error| format!("{what}: {error}"))?;
            if !left.is_empty() {
                return Ok(Some(format!("{what} are left:\n{left}")));
            }
        }
        let qps = count.read(self.index).ok_or("the QPs are not counted")?;
        Ok((qps != own_qps).then(|| format!("the device has {qps} QPs, not {own_qps}")))
    }
}

fn index() -> Option<u32> {
    let mut devices = fs::read_dir(DEBUGFS).ok()?.filter_map(Result::ok);
    devices.find_map(|entry| {
        let text = fs::read_to_string(entry.path().join("device")).ok()?;
        let (index, found) = text.trim().strip_prefix("index=")?.split_once(" name=")?;
        if found == name() {
            index.parse().ok()
        } else {
            None
        }
    })
}

fn uverbs() -> Option<u32> {
    let mut files = fs::read_dir("/sys/class/infiniband_verbs")
        .ok()?
        .filter_map(Result::ok);
    files.find_map(|entry| {
        let device = fs::read_to_string(entry.path().join("ibdev")).ok()?;
        let file = entry.file_name().into_string().ok()?;
        if device.trim() == name() {
            file.strip_prefix("uverbs")?.parse().ok()
        } else {
            None
        }
    })
}

/// A request of rdma netlink with some attributes.
fn message(command: u16, flags: i32, attrs: &[(u16, &[u8])]) -> Vec<u8> {
    let mut payload = vec![];
    for (kind, value) in attrs {
        payload.extend((value.len() as u16 + 4).to_ne_bytes());
        payload.extend(kind.to_ne_bytes());
        payload.extend(*value);
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    let flags = (libc::NLM_F_REQUEST | flags) as u16;
    let mut message = (payload.len() as u32 + 16).to_ne_bytes().to_vec();
    message.extend(command.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    message
}

/// A socket of rdma netlink.
struct Netlink(OwnedFd);

impl Netlink {
    fn new() -> Result<Netlink, i32> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: No pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_RDMA) };
        if fd < 0 {
            return Err(-errno());
        }
        // SAFETY: It is new, and ours alone.
        Ok(Netlink(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a request, and returns what follows the header of the answer, which has at least four
    /// bytes.
    fn request<'a>(&self, message: &[u8], answer: &'a mut [u8; 2048]) -> Result<&'a [u8], i32> {
        let socket = self.0.as_raw_fd();
        // SAFETY: The message is as long as said.
        let sent = unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 {
            return Err(-errno());
        }
        // SAFETY: The buffer is as long as said.
        let got = unsafe { libc::recv(socket, answer.as_mut_ptr().cast(), answer.len(), 0) };
        if got < 20 {
            return Err(-libc::EPROTO);
        }
        Ok(&answer[16..got as usize])
    }
}

/// A request that is acknowledged: 0 or a negative errno.
fn acknowledged(command: u16, attrs: &[(u16, &[u8])]) -> i32 {
    let message = message(command, libc::NLM_F_ACK, attrs);
    let mut answer = [0; 2048];
    let result = Netlink::new().and_then(|netlink| {
        let answer = netlink.request(&message, &mut answer)?;
        Ok(i32::from_ne_bytes(
            answer[..4].try_into().expect("four bytes"),
        ))
    });
    result.unwrap_or_else(|error| error)
}

/// Attributes of netlink.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let payload = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, payload))
    }
}

/// Counts the QPs of a device, as the kernel's resource tracking has them.
pub struct QpCount(Netlink);

impl QpCount {
    pub fn new() -> QpCount {
        QpCount(Netlink::new().expect("there is rdma netlink"))
    }

    /// Those of the device of this index, and of the device itself; none if it is away.
    pub fn read(&self, index: u32) -> Option<u64> {
        let message = message(RES_GET, 0, &[(ATTR_DEV_INDEX, &index.to_ne_bytes())]);
        let mut answer = [0; 2048];
        let answer = self.0.request(&message, &mut answer).ok()?;
        let (_, table) = Attributes(answer).find(|(kind, _)| *kind == ATTR_RES_SUMMARY)?;
        Attributes(table).find_map(|(_, entry)| {
            let value = |wanted| {
                Attributes(entry)
                    .find(|(kind, _)| *kind == wanted)
                    .map(|(_, value)| value)
            };
            if value(ATTR_RES_SUMMARY_ENTRY_NAME)? != b"qp\0" {
                return None;
            }
            let count = value(ATTR_RES_SUMMARY_ENTRY_CURR)?;
            Some(u64::from_ne_bytes(count.try_into().ok()?))
        })
    }
}

/// Removes the device of this index.
pub fn remove(index: u32) -> i32 {
    acknowledged(DELLINK, &[(ATTR_DEV_INDEX, &index.to_ne_bytes())])
}

/// Makes it. Its name may be in use for a moment after a removal.
pub fn add() {
    let string = |text: &str| [text.as_bytes(), &[0]].concat();
    let (name, kind, network) = (string(&name()), string("rxe"), string(&network()));
    let attrs = [
        (ATTR_DEV_NAME, &name[..]),
        (ATTR_LINK_TYPE, &kind[..]),
        (ATTR_NDEV_NAME, &network[..]),
    ];
    let end = Instant::now() + PATIENCE;
    loop {
        let result = acknowledged(NEWLINK, &attrs);
        if result == 0 {
            return;
        }
        assert!(Instant::now() < end, "the device cannot be made: {result}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Opens its file as a context: the descriptor, or a negative errno.
pub fn open(uverbs: u32) -> Result<RawFd, i32> {
    let path = format!("/dev/infiniband/uverbs{uverbs}");
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
        .map_err(|error: io::Error| -error.raw_os_error().unwrap_or(libc::EIO))?;
    let mut response = [0u32; 2];
    command(file.as_raw_fd(), GET_CONTEXT, &[], Some(&mut response))?;
    Ok(std::os::fd::IntoRawFd::into_raw_fd(file))
}

/// Opens the domain of a file, or one without: its handle, or a negative errno.
pub fn open_domain(fd: RawFd, path: Option<&str>) -> Result<u32, i32> {
    let file = match path {
        Some(path) => Some(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(|error| -error.raw_os_error().unwrap_or(libc::EIO))?,
        ),
        None => None,
    };
    let inode = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut handle = [0u32; 1];
    let request = [inode as u32, libc::O_CREAT as u32];
    command(fd, OPEN_XRCD, &request, Some(&mut handle))?;
    Ok(handle[0])
}

/// Closes it.
pub fn close_domain(fd: RawFd, handle: u32) -> i32 {
    command(fd, CLOSE_XRCD, &[handle], None).err().unwrap_or(0)
}

/// A command by write(2).
fn command(fd: RawFd, number: u32, input: &[u32], output: Option<&mut [u32]>) -> Result<(), i32> {
    let mut words = vec![number, 0];
    let output_words = output.as_ref().map_or(0, |output| output.len());
    if let Some(output) = output {
        let address = output.as_mut_ptr().expose_provenance() as u64;
        words.extend([address as u32, (address >> 32) as u32]);
    }
    words.extend(input);
    words[1] = words.len() as u32 | ((output_words as u32) << 16);
    // SAFETY: The command is as long as said, and so is the place for its output, if there is one.
    let result = unsafe { libc::write(fd, words.as_ptr().cast(), words.len() * 4) };
    if result < 0 { Err(-errno()) } else { Ok(()) }
}
