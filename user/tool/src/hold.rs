// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `xrc-rcv hold`: keeps the domain of a file open, so that its receive QPs outlive the processes
//! that use them, until a signal ends it; and by its socket the descriptors that these processes
//! give it.
//!
//! The service manager's store has the open devices, and the descriptors, so that a new process of
//! the service continues where a killed one has ended.

mod quota;
mod server;
mod store;
mod view;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, connect, listen, socket_with, sockopt};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use xrc_rcv::{Device, Domain, EventChannel};

use crate::cli::Hold;
use crate::snapshot::Status;
use crate::{show, sysfs};
use server::Server;
use store::Store;

/// The names of open devices in the service manager's store begin with this.
const DEVICE: &str = "device";

/// A domain that is held on one device.
struct Held {
    domain: Domain,
    /// Without registrations. It comes to its end when the device is removed.
    removal: EventChannel,
    /// The name of the device in the service manager's store, which keeps the domain open as well.
    stored: String,
}

impl Held {
    fn open(device: Device, file: &File) -> Result<Held> {
        let domain = device.open_domain(Some(file.as_fd()))?;
        // Processes of the service have different ones.
        let (name, process) = (domain.device().name(), std::process::id());
        let stored = format!("{DEVICE}.{name}.{process}.{}", store::now());
        Ok(Held {
            removal: domain.create_event_channel()?,
            domain,
            stored,
        })
    }

    fn name(&self) -> &str {
        self.domain.device().name()
    }
}

/// Returns whether the module is attached to any of the devices. If so, a signal has ended it.
pub(crate) fn run(args: &Hold, out: &mut impl Write) -> Result<bool> {
    let inherited = Inherited::take()?;
    if inherited.listener.is_some() || args.socket.is_some() {
        server::check_path(&args.file.to_string_lossy())?;
    }
    let (signalled, wake) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    let file = open(&args.file, args.create)?;
    // To close a domain would destroy its QPs, even if the service manager has the device as well.
    let mut held = ManuallyDrop::new(hold(args, &file)?);
    if held.is_empty() {
        return Ok(false);
    }
    let mut server = serve(args, &file, inherited)?;
    let path = args.file.display();
    let status = |held: &[Held]| format!("holds the domain of {path} on {}", names(held));
    // The service manager waits for this.
    sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status(&held))])
        .context("$NOTIFY_SOCKET")?;
    // From here on the QPs depend on this process, which does not end because nothing reads what it
    // reports.
    let _ = writeln!(out, "{}", status(&held)).and_then(|()| out.flush());
    while !wait(&signalled, &held, server.as_mut())? {
        let before = held.len();
        held.retain(|held| {
            let removed = is_removed(&held.removal);
            if removed {
                let _ = writeln!(
                    io::stderr(),
                    "xrc-rcv: {}: the device was removed, and with it the domain of {path}",
                    held.name()
                );
                let _ = store::forget(&held.stored);
            }
            !removed
        });
        if held.is_empty() {
            bail!("no device is left");
        }
        if held.len() != before {
            let _ = sd_notify::notify(&[NotifyState::Status(&status(&held))]);
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    Ok(true)
}

/// Descriptors that the service manager has given this process.
#[derive(Default)]
struct Inherited {
    listener: Option<OwnedFd>,
    /// The descriptors of processes before it, by their names.
    stored: Vec<(String, OwnedFd)>,
}

impl Inherited {
    fn take() -> Result<Inherited> {
        let passed = sd_listen_fds::get().context("$LISTEN_FDS")?;
        let named = passed
            .into_iter()
            .map(|(name, fd)| (name.unwrap_or_default(), fd.into_std()));
        Ok(named.collect())
    }
}

impl FromIterator<(String, OwnedFd)> for Inherited {
    fn from_iter<T: IntoIterator<Item = (String, OwnedFd)>>(passed: T) -> Inherited {
        let mut inherited = Inherited::default();
        for (name, fd) in passed {
            // A descriptor that a user has given may be a socket as well.
            let is_stored = store::is_stored(&name) || name.starts_with(DEVICE);
            if !is_stored && sockopt::socket_acceptconn(&fd) == Ok(true) {
                inherited.listener = Some(fd);
            } else {
                inherited.stored.push((name, fd));
            }
        }
        inherited
    }
}

/// Takes over from the processes before it, and serves the socket, if there is one.
fn serve(args: &Hold, file: &File, inherited: Inherited) -> Result<Option<Server>> {
    let owner = file.metadata()?.uid();
    let mut store = Store::new(args.max_descriptors, owner);
    for (name, fd) in inherited.stored {
        // The devices of before have kept the domain until now.
        if let Err(fd) = store.inherit(&name, fd) {
            store::forget(&name).context("$NOTIFY_SOCKET")?;
            store::close(fd);
        }
    }
    let listener = match (inherited.listener, &args.socket) {
        (Some(listener), _) => listener,
        (None, Some(path)) => bound(path).with_context(|| path.display().to_string())?,
        (None, None) => return Ok(None),
    };
    let path = args.file.to_string_lossy();
    Ok(Some(Server::new(listener, store, &path, owner)?))
}

/// A socket at a path. A socket that no process listens at any more is replaced.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let new = || {
        let flags = SocketFlags::CLOEXEC;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    };
    let (socket, address) = (new()?, SocketAddrUnix::new(path)?);
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if connect(new()?, &address) == Err(Errno::CONNREFUSED) => {
            fs::remove_file(path)?;
            bind(&socket, &address)?;
        }
        result => result?,
    }
    // Each user may connect, and has a share of the service.
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Opens the file of the domain, and creates it with the permissions `create` if it does not exist.
/// One that another user may have put there in the meantime, or a link to it, is refused: its owner
/// would decide who uses the domain.
fn open(path: &Path, create: Option<u32>) -> Result<File> {
    let what = || path.display().to_string();
    let mut options = OpenOptions::new();
    // A FIFO is refused below, and must not be waited for.
    let follow = if create.is_some() {
        libc::O_NOFOLLOW
    } else {
        0
    };
    options.read(true).custom_flags(libc::O_NONBLOCK | follow);
    if let Some(mode) = create {
        let created = options.clone().write(true).create_new(true).open(path);
        match created {
            Ok(file) => {
                // Whatever the umask.
                let permissions = Permissions::from_mode(mode);
                file.set_permissions(permissions).with_context(what)?;
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(what),
        }
    }
    let file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("{}: {error}; --create creates it", path.display()),
        _ => anyhow::Error::new(error).context(what()),
    })?;
    let metadata = file.metadata().with_context(what)?;
    if !metadata.is_file() {
        bail!(
            "{}: not a regular file, without which a domain has no receive QPs",
            path.display()
        );
    }
    let user = rustix::process::geteuid().as_raw();
    if create.is_some() && metadata.uid() != user && !is_private(path, user).with_context(what)? {
        bail!(
            "{}: exists and belongs to user {}, and others can create files in its directory: remove it, \
             or hold it without --create",
            path.display(),
            metadata.uid()
        );
    }
    Ok(file)
}

/// Whether only the user and root can create files in the directory of a file.
fn is_private(path: &Path, user: u32) -> io::Result<bool> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let metadata = fs::metadata(directory)?;
    Ok([0, user].contains(&metadata.uid()) && metadata.mode() & 0o022 == 0)
}

/// Opens the domain on the devices that are named, which have to have receive QPs, or on all that
/// have them.
fn hold(args: &Hold, file: &File) -> Result<Vec<Held>> {
    let root = Path::new(sysfs::ROOT);
    let mut found = sysfs::devices(root)?;
    for name in &args.devices {
        sysfs::devices_named(root, Some(name))?;
    }
    if !args.devices.is_empty() {
        found.retain(|device| args.devices.contains(&device.name));
    }
    if found.is_empty() {
        eprintln!("xrc-rcv: {}", show::NO_DEVICE);
    }
    let mut held = Vec::new();
    let mut advice = Vec::new();
    for device in found {
        let (status, _) = show::query_caps(&device)?;
        match status.advice() {
            None => {
                let one = Held::open(Device::open(&device.name)?, file)?;
                store::push(&one.stored, one.domain.device().as_fd()).context("$NOTIFY_SOCKET")?;
                held.push(one);
            }
            Some(remedy) => advice.push((device.name, status, remedy)),
        }
    }
    for (name, status, remedy) in advice {
        if !args.devices.is_empty() {
            bail!("{name}: {remedy}");
        }
        if held.is_empty() || status != Status::NoXrc {
            eprintln!("xrc-rcv: {name}: {remedy}");
        }
    }
    Ok(held)
}

fn names(held: &[Held]) -> String {
    let names: Vec<&str> = held.iter().map(Held::name).collect();
    names.join(", ")
}

/// Waits for a signal, the removal of a device, or clients, which it serves. Returns whether it was
/// a signal.
fn wait(signalled: &UnixStream, held: &[Held], server: Option<&mut Server>) -> Result<bool> {
    let mut fds = vec![PollFd::new(signalled, PollFlags::IN)];
    fds.extend(held.iter().map(|h| PollFd::new(&h.removal, PollFlags::IN)));
    let own = fds.len();
    let mut patience = None;
    if let Some(server) = &server {
        fds.extend(server.interests());
        patience = server.patience();
    }
    loop {
        match poll(&mut fds, patience.as_ref()) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        break;
    }
    let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
    drop(fds);
    if let Some(server) = server {
        server.proceed(&events[own..]);
    }
    Ok(!events[0].is_empty())
}

fn is_removed(channel: &EventChannel) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    let now = Timespec::default();
    matches!(poll(&mut fds, Some(&now)), Ok(1..)) && fds[0].revents().contains(PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_once_with_its_permissions() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("domain");
        let error = open(&path, None).unwrap_err();
        assert!(format!("{error:#}").starts_with(path.to_str().unwrap()));
        let mode = |file: File| file.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(open(&path, Some(0o666)).unwrap()), 0o666);
        assert_eq!(mode(open(&path, Some(0o600)).unwrap()), 0o666);
        let error = open(root.path(), Some(0o600)).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(open(&link, Some(0o600)).is_err());
        open(&link, None).unwrap();
    }

    #[test]
    fn a_socket_admits_every_user_and_is_replaced_when_nobody_listens() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        for _ in 0..2 {
            let socket = bound(&path).unwrap();
            // That of the socket's unit.
            let mode = path.metadata().unwrap().mode();
            assert_eq!(mode & 0o7777, 0o666);
            assert_eq!(sockopt::socket_acceptconn(&socket), Ok(true));
            assert_eq!(bound(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        }
    }
}
