// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The socket of `xrc-rcv hold`: connections of users, and the answers to their requests.
//! `xrc-rcv-hold(5)` describes the protocol.
//!
//! A client is never waited for: it has its next answer when it has read those before, and loses
//! lines of `watch` that it does not read. Threads close descriptors that it sends, one at a time
//! for a connection: a file system of the client decides how long a thread takes.

use std::fmt::Write;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, accept_with, recvmsg, sendmsg,
    shutdown, sockopt,
};

use super::quota::{Quota, Share};
use super::store::{self, OVERFLOW_UID, Store};
use super::view::{Listing, PACKET, Trace, check_debugfs};

/// The greatest number of connections.
const CLIENTS: usize = 32;
/// The greatest length of a request.
const REQUEST: usize = 128;
/// The greatest length of the path of the domain's file: an answer to `list` has room for it, and
/// for as many descriptors of one user as there may be.
const FILE: usize = PACKET / 4;
/// The memory for answers that a client has not read, and for lines of `watch`.
const UNREAD: usize = 2 * PACKET;
const UNREAD_LINES: usize = 1 << 16;

/// The thing that a client waits for.
enum State {
    /// For nothing: it may have a request.
    Idle,
    /// It has not read the answers before.
    Blocked,
    /// For the end of a stream, with this answer: the service manager has stored a descriptor, or
    /// closed one, or a thread has closed a refused one.
    Waiting {
        until: UnixStream,
        answer: Result<(), Errno>,
    },
    /// For the next packet of `show`.
    Showing(Box<Listing>),
    /// For lines of `watch`, of which it has lost some.
    Watching { lost: u64 },
}

struct Client {
    socket: Parting,
    uid: u32,
    state: State,
    /// Descriptors of a malformed request, which are closed with the connection.
    refused: Vec<OwnedFd>,
    /// It counts until all of the above is closed.
    _share: Share,
}

impl Client {
    fn wait(&mut self, until: UnixStream, answer: Result<(), Errno>) {
        self.state = State::Waiting { until, answer };
    }
}

pub(super) struct Server {
    listener: OwnedFd,
    store: Store,
    /// The file of the domain, for people.
    file: String,
    quota: Quota,
    clients: Vec<Client>,
    /// While a client watches.
    watch: Option<Trace>,
}

/// The end of a connection.
struct Ended;

/// A socket that will be closed. Requests are read before: otherwise the client gets `ECONNRESET`
/// in place of the last answer.
struct Parting(OwnedFd);

impl Drop for Parting {
    fn drop(&mut self) {
        if shutdown(&self.0, Shutdown::Read).is_ok() {
            while discard(&self.0).is_ok_and(|length| length > 0) {}
        }
    }
}

impl Server {
    pub(super) fn new(
        listener: OwnedFd,
        store: Store,
        file: &str,
        owner: u32,
    ) -> io::Result<Server> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        pass_rights(&listener, false);
        Ok(Server {
            listener,
            store,
            file: file.replace(char::is_control, "?"),
            quota: Quota::new(CLIENTS, owner),
            clients: Vec::new(),
            watch: None,
        })
    }

    /// The files that it waits for; [`proceed`](Self::proceed) is given their events in this order.
    pub(super) fn interests(&self) -> Vec<PollFd<'_>> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.clients.iter().map(|client| match &client.state {
            State::Idle | State::Watching { .. } => PollFd::new(&client.socket.0, PollFlags::IN),
            State::Blocked | State::Showing(_) => PollFd::new(&client.socket.0, PollFlags::OUT),
            State::Waiting { until, .. } => PollFd::new(until, PollFlags::IN),
        }));
        fds.extend(
            self.watch
                .as_ref()
                .map(|watch| PollFd::new(&watch.pipe, PollFlags::IN)),
        );
        fds
    }

    /// The longest time that it waits.
    pub(super) fn patience(&self) -> Option<Timespec> {
        let is_showing = |client: &Client| matches!(client.state, State::Showing(_));
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        self.clients.iter().any(is_showing).then_some(second)
    }

    /// Does what can be done without waiting.
    pub(super) fn proceed(&mut self, events: &[PollFlags]) {
        let (accepting, events) = (events[0], &events[1..]);
        let (of_clients, of_watch) = events.split_at(self.clients.len());
        if of_watch.iter().any(|events| !events.is_empty()) {
            self.report();
        }
        let clients = mem::take(&mut self.clients);
        for (mut client, events) in clients.into_iter().zip(of_clients) {
            match self.serve(&mut client, *events) {
                Ok(()) => self.clients.push(client),
                // Descriptors may be under way in it.
                Err(Ended) => store::close(client),
            }
        }
        let is_watching = |client: &Client| matches!(client.state, State::Watching { .. });
        if !self.clients.iter().any(is_watching) {
            self.watch = None;
        }
        if !accepting.is_empty() {
            self.accept();
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            // The machine or the process has no room, and the listener stays readable.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                thread::sleep(Duration::from_millis(10));
                return;
            }
            // The client may have left already.
            Err(_) => return,
        };
        let (Ok(peer), Ok(())) = (
            sockopt::socket_peercred(&socket),
            sockopt::set_socket_send_buffer_size(&socket, UNREAD),
        ) else {
            return;
        };
        let uid = peer.uid.as_raw();
        match self.quota.take(uid) {
            Some(share) => {
                pass_rights(&socket, true);
                self.clients.push(Client {
                    socket: Parting(socket),
                    uid,
                    state: State::Idle,
                    refused: Vec::new(),
                    _share: share,
                });
            }
            None => {
                let _ = reply(&socket, Err(Errno::DQUOT));
                store::close(Parting(socket));
            }
        }
    }

    fn serve(&mut self, client: &mut Client, events: PollFlags) -> Result<(), Ended> {
        match &mut client.state {
            State::Showing(show) if show.is_late() => return Err(Ended),
            State::Watching { .. } if self.watch.is_none() => return Err(Ended),
            _ if events.is_empty() => {}
            State::Waiting { answer, .. } => {
                let answer = *answer;
                client.state = State::Idle;
                reply(&client.socket.0, answer)?;
            }
            _ if events.intersects(PollFlags::HUP | PollFlags::ERR) => return Err(Ended),
            State::Showing(show) => match show.next() {
                Some(packet) if packet.is_empty() => {}
                Some(packet) => send(&client.socket.0, &packet, None).map_err(|_| Ended)?,
                None => {
                    client.state = State::Idle;
                    reply(&client.socket.0, Ok(()))?;
                }
            },
            State::Blocked => client.state = State::Idle,
            // It has nothing more to say.
            State::Watching { .. } => return Err(Ended),
            State::Idle if !is_writable(&client.socket.0) => client.state = State::Blocked,
            State::Idle => self.request(client)?,
        }
        Ok(())
    }

    /// Reads a request, and answers it. A malformed request ends the connection.
    fn request(&mut self, client: &mut Client) -> Result<(), Ended> {
        let mut buffer = [0; REQUEST];
        let (uid, socket) = (client.uid, &client.socket.0);
        let (length, mut fds, is_cut) = peek(socket, &mut buffer).map_err(|_| Ended)?;
        let text = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
        let words: Vec<&str> = text.split(' ').collect();
        let is_keep = words[0] == "keep" && words.len() == 2;
        if is_cut || fds.len() != usize::from(is_keep) {
            let _ = reply(socket, Err(Errno::INVAL));
            client.refused = fds;
            return Err(Ended);
        }
        // The packet does not have the last reference to the file.
        let _ = discard(socket);
        match (&words[..], fds.pop()) {
            // The kernel gives this number to all users that have none here.
            (_, fd) if uid == OVERFLOW_UID => {
                client.wait(store::closed(fd).map_err(|_| Ended)?, Err(Errno::PERM))
            }
            (["keep", name], Some(fd)) => match self.share(uid, name, &fd) {
                Ok(share) => match self.store.keep(uid, name, fd, share) {
                    Ok(stored) => client.wait(stored, Ok(())),
                    Err(unkept) => {
                        client.wait(store::closed(unkept).map_err(|_| Ended)?, Err(Errno::IO))
                    }
                },
                Err(errno) => client.wait(store::closed(fd).map_err(|_| Ended)?, Err(errno)),
            },
            (["get", name], _) => match self.store.get(uid, name) {
                Some(fd) => answer(socket, "ok", Some(fd))?,
                None => reply(socket, Err(Errno::NOENT))?,
            },
            (["drop", name], _) => match self.store.remove(uid, name) {
                Ok(Some(removed)) => client.wait(removed, Ok(())),
                Ok(None) => reply(socket, Err(Errno::NOENT))?,
                Err(_) => reply(socket, Err(Errno::IO))?,
            },
            (["list"], _) => answer(socket, &self.list(uid), None)?,
            (["show"], _) => match check_debugfs() {
                Ok(()) => client.state = State::Showing(Box::new(Listing::new(uid))),
                Err(error) => refuse(socket, &error)?,
            },
            (["watch"], _) => match self.start_watch() {
                Ok(()) => {
                    let _ = sockopt::set_socket_send_buffer_size(socket, UNREAD_LINES);
                    reply(socket, Ok(()))?;
                    client.state = State::Watching { lost: 0 };
                }
                Err(error) => refuse(socket, &error)?,
            },
            _ => reply(socket, Err(Errno::NOSYS))?,
        }
        Ok(())
    }

    /// Counts one more descriptor for a user, who may keep it by that name.
    fn share(&self, uid: u32, name: &str, fd: &OwnedFd) -> Result<Share, Errno> {
        self.store.check(uid, name)?;
        let share = self.store.quota().take(uid).ok_or(Errno::DQUOT)?;
        match self.store.has(fd) {
            true => Err(Errno::EXIST),
            false => Ok(share),
        }
    }

    fn list(&self, uid: u32) -> String {
        let (kept, may_be_kept) = self.store.quota().used();
        let (own, own_may_be) = self.store.quota().used_by(uid);
        let (clients, clients_may_be) = self.quota.used();
        let mut text = format!(
            "ok kept={kept} max_kept={may_be_kept} own={own} max_own={own_may_be} clients={clients} \
             max_clients={clients_may_be} file={}",
            self.file
        );
        for (name, seconds) in self.store.list(uid) {
            let _ = write!(text, "\n{name} {seconds}");
        }
        text
    }

    fn start_watch(&mut self) -> Result<()> {
        if self.watch.is_none() {
            self.watch = Some(Trace::start()?);
        }
        Ok(())
    }

    /// Sends each watching client the lines that are for it.
    fn report(&mut self) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let lines = match watch.read() {
            Ok(lines) => lines,
            Err(error) => {
                eprintln!("xrc-rcv: the trace: {error:#}");
                // Its clients end with it.
                self.watch = None;
                return;
            }
        };
        for client in &mut self.clients {
            let State::Watching { lost } = &mut client.state else {
                continue;
            };
            let own = lines
                .iter()
                .filter(|(audience, _)| audience.has(client.uid));
            for (_, line) in own {
                if *lost != 0
                    && send(&client.socket.0, format!("lost {lost}").as_bytes(), None).is_ok()
                {
                    *lost = 0;
                }
                let line = &line[..line.len().min(PACKET)];
                if *lost != 0 || send(&client.socket.0, line, None).is_err() {
                    *lost += 1;
                }
            }
        }
    }
}

/// Whether answers have room for the path of the domain's file.
pub(super) fn check_path(file: &str) -> Result<()> {
    if file.len() > FILE {
        bail!(
            "the path of the file has more than {FILE} bytes, too many for the answers of the socket"
        );
    }
    Ok(())
}

/// Whether clients can send descriptors to a socket, or to those that it accepts. None are under
/// way in a connection that is one too many, so that its end waits for nothing. Before Linux 6.16
/// all sockets pass them.
fn pass_rights(socket: &OwnedFd, pass: bool) {
    // That of most architectures: others keep theirs.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let pass = libc::c_int::from(pass);
    let length = size_of_val(&pass) as libc::socklen_t;
    // SAFETY: The value is readable for its length.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const pass).cast(),
            length,
        )
    };
}

fn is_writable(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    let events = poll(&mut fds, Some(&Timespec::default()));
    events.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

/// The next packet, which stays in the socket, and copies of its descriptors; whether it has more
/// text or descriptors than are returned.
fn peek(socket: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>, bool), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    // A packet of no bytes is the end, or as good as it.
    if message.bytes == 0 && fds.is_empty() {
        return Err(Errno::PIPE);
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    Ok((message.bytes, fds, message.flags.intersects(cut)))
}

/// Takes the next packet out of the socket. Returns how many bytes, of at most one.
fn discard(socket: &OwnedFd) -> Result<usize, Errno> {
    let mut control = RecvAncillaryBuffer::default();
    let mut byte = [0];
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::DONTWAIT,
    )?;
    Ok(message.bytes)
}

fn send(socket: &OwnedFd, text: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(text)], &mut control, flags).map(drop)
}

/// Sends an answer, for which there is room.
fn answer(socket: &OwnedFd, text: &str, fd: Option<BorrowedFd<'_>>) -> Result<(), Ended> {
    send(socket, text.as_bytes(), fd).map_err(|_| Ended)
}

/// Answers that a request was done, or not.
fn reply(socket: &OwnedFd, result: Result<(), Errno>) -> Result<(), Ended> {
    let Err(errno) = result else {
        return answer(socket, "ok", None);
    };
    let errno = errno.raw_os_error();
    let words = io::Error::from_raw_os_error(errno).to_string();
    let words = words.split(" (").next().unwrap_or_default();
    answer(socket, &format!("error {errno} {words}"), None)
}

/// Answers that the service cannot do what was asked for.
fn refuse(socket: &OwnedFd, error: &anyhow::Error) -> Result<(), Ended> {
    answer(
        socket,
        &format!("error {} {error:#}", libc::EOPNOTSUPP),
        None,
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketType, connect, recv, socket_with, socketpair,
    };
    use xrc_rcv::Keeper;

    use super::*;
    use crate::cli::Hold;
    use crate::hold::{bound, serve};

    /// More than anything takes on a busy host.
    const PATIENCE: Duration = Duration::from_secs(240);

    struct Running {
        directory: tempfile::TempDir,
        ended: Arc<AtomicBool>,
        thread: Option<thread::JoinHandle<()>>,
    }

    fn socket() -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    impl Running {
        fn start() -> Running {
            let directory = tempfile::tempdir().unwrap();
            let listener = bound(&directory.path().join("s")).unwrap();
            let owner = rustix::process::geteuid().as_raw();
            let store = Store::new(16, owner);
            let server = Server::new(listener, store, "/run/a\nb", owner).unwrap();
            Running::of(server, directory)
        }

        /// A server that listens at "s" of the directory.
        fn of(mut server: Server, directory: tempfile::TempDir) -> Running {
            let ended = Arc::new(AtomicBool::new(false));
            let end = ended.clone();
            let serve = move || {
                let moment = Timespec {
                    tv_sec: 0,
                    tv_nsec: 10_000_000,
                };
                while !end.load(Ordering::Relaxed) {
                    let mut fds = server.interests();
                    poll(&mut fds, Some(&moment)).unwrap();
                    let events: Vec<_> = fds.iter().map(PollFd::revents).collect();
                    drop(fds);
                    server.proceed(&events);
                }
            };
            Running {
                directory,
                ended,
                thread: Some(thread::spawn(serve)),
            }
        }

        /// A connection, when there are not too many: those before count until a thread has closed
        /// them.
        fn keeper(&self) -> Keeper {
            loop {
                match Keeper::connect(self.directory.path().join("s")) {
                    Err(error) if error.raw_os_error() == Some(libc::EDQUOT) => thread::yield_now(),
                    result => return result.unwrap(),
                }
            }
        }

        /// The same, of a socket.
        fn client(&self) -> OwnedFd {
            let address = SocketAddrUnix::new(self.directory.path().join("s")).unwrap();
            loop {
                let client = socket();
                connect(&client, &address).unwrap();
                // Then it has been accepted.
                let mut answer = [0; PACKET];
                let _ = send(&client, b"list", None);
                if recv(&client, &mut answer[..], RecvFlags::empty()).is_ok()
                    && answer.starts_with(b"ok")
                {
                    return client;
                }
            }
        }

        /// The answer to a packet.
        fn answer(&self, text: &[u8], fds: &[BorrowedFd<'_>]) -> String {
            let client = self.client();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
            sendmsg(
                &client,
                &[IoSlice::new(text)],
                &mut control,
                SendFlags::empty(),
            )
            .unwrap();
            let mut buffer = [0; PACKET];
            let length =
                recv(&client, &mut buffer[..], RecvFlags::empty()).map_or(0, |(length, _)| length);
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.ended.store(true, Ordering::Relaxed);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn descriptors_are_kept_and_returned() {
        let (running, null) = (Running::start(), File::open("/dev/null").unwrap());
        let keeper = running.keeper();
        assert!(keeper.names().unwrap().is_empty() && keeper.get("null").unwrap().is_none());
        keeper.keep("null", &null).unwrap();
        // The same open file by another name is refused since Linux 6.10: user/service has that.
        let other = File::open("/dev/null").unwrap();
        let again = keeper.keep("null", other).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        drop(keeper);
        let next = running.keeper();
        assert_eq!(next.names().unwrap(), ["null"]);
        assert!(next.get("null").unwrap().is_some());
        assert!(next.remove("null").unwrap() && !next.remove("null").unwrap());
        assert!(
            running
                .answer(b"list", &[])
                .ends_with(" max_clients=32 file=/run/a?b")
        );
    }

    #[test]
    fn a_dropped_descriptor_is_closed() {
        let running = Running::start();
        let (mut peer, kept) = UnixStream::pair().unwrap();
        running.keeper().keep("stream", &kept).unwrap();
        assert!(running.keeper().get("stream").unwrap().is_some());
        drop(kept);
        peer.set_nonblocking(true).unwrap();
        let open = io::Read::read(&mut peer, &mut [0]).unwrap_err();
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
        assert!(running.keeper().remove("stream").unwrap());
        peer.set_nonblocking(false).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(io::Read::read(&mut peer, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_next_process_has_each_descriptor_for_as_long_as_it_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("domain");
        let file = File::create(&path).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let own = |name| format!("kept.{user}.0.{name}");
        let any = || OwnedFd::from(tempfile::tempfile().unwrap());
        let listener = |name| bound(&directory.path().join(name)).unwrap();
        let passed = [
            (own("first"), any()),
            // A user's: the service listens at the next.
            (own("socket"), listener("other")),
            ("socket".into(), listener("s")),
            ("device.mlx5_0.1.0".into(), any()),
            (format!("kept.{}.0.other", user + 1), any()),
            (own("last"), any()),
        ];
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let expected = [0, 5, 1].map(|index: usize| inode(&passed[index].1));
        let args = Hold {
            devices: Vec::new(),
            create: None,
            socket: None,
            max_descriptors: 64,
            file: path,
        };
        let before = store::now();
        let server = serve(&args, &file, passed.into_iter().collect());
        let running = Running::of(server.unwrap().unwrap(), directory);
        let answer = running.answer(b"list", &[]);
        let after = store::now();
        assert!(
            answer.starts_with("ok kept=4 max_kept=64 own=3 "),
            "{answer}"
        );
        let seconds = |line: &str| line.split_once(' ').unwrap().1.parse::<u64>().unwrap();
        // They are kept since the boot.
        let mut ages = answer.lines().skip(1).map(seconds);
        assert!(ages.all(|age| (before..=after).contains(&age)), "{answer}");
        let keeper = running.keeper();
        assert_eq!(keeper.names().unwrap(), ["first", "last", "socket"]);
        let found = ["first", "last", "socket"].map(|name| keeper.get(name).unwrap().unwrap());
        assert_eq!(found.each_ref().map(inode), expected);
    }

    #[test]
    fn wrong_packets_are_refused() {
        let (running, null) = (Running::start(), File::open("/dev/null").unwrap());
        let fds = [null.as_fd(); 8];
        let long = [b'x'; 1000];
        let texts: [&[u8]; 11] = [
            b"",
            b"\0",
            b"keep",
            b"keep a b",
            b"keep \xff",
            b"keep a\n",
            b"get",
            b"lists",
            b"list ",
            b"\xff",
            &long,
        ];
        for text in texts {
            for count in [0, 1, 2, 3, 8] {
                let answer = running.answer(text, &fds[..count]);
                // One without a byte is the end of the connection.
                let expected = if text.is_empty() && count == 0 {
                    ""
                } else {
                    "error "
                };
                assert!(
                    answer.starts_with(expected) && answer.len() < 64,
                    "{text:?} {count}: {answer}"
                );
            }
        }
        assert_eq!(running.answer(&long, &[]), "error 22 Invalid argument");
        for count in [0, 2, 3, 8] {
            assert_eq!(
                running.answer(b"keep a", &fds[..count]),
                "error 22 Invalid argument"
            );
        }
        assert_eq!(running.answer(b"keep a", &fds[..1]), "ok");
        for count in [1, 2] {
            assert_eq!(
                running.answer(b"get a", &fds[..count]),
                "error 22 Invalid argument"
            );
        }
        assert_eq!(running.keeper().names().unwrap(), ["a"]);
    }

    #[test]
    fn an_answer_to_list_has_room_for_the_longest_path_and_names() {
        const MOST: usize = 64;
        let mut store = Store::new(MOST, 7);
        for number in 0..MOST {
            let (name, null) = (format!("{number:064}"), File::open("/dev/null").unwrap());
            store
                .inherit(&format!("kept.7.0.{name}"), null.into())
                .unwrap();
        }
        let path = "x".repeat(FILE);
        check_path(&path).unwrap();
        check_path(&format!("{path}x")).unwrap_err();
        let server = Server::new(socket(), store, &path, 7).unwrap();
        let text = server.list(7);
        assert_eq!(text.lines().count(), 1 + MOST);
        assert!(text.len() + MOST * "18446744073709551615".len() <= PACKET);
    }

    /// A TCP connection whose end waits until its peer, which is returned as well, reads or ends.
    fn slow_to_close() -> (OwnedFd, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut writer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        writer.set_nonblocking(true).unwrap();
        while io::Write::write(&mut writer, &[0; 1 << 16]).is_ok() {}
        sockopt::set_socket_linger(&writer, Some(Duration::from_secs(1000))).unwrap();
        (writer.into(), listener.accept().unwrap().0)
    }

    #[test]
    fn a_descriptor_that_takes_long_to_close_delays_its_client_alone() {
        let running = Running::start();
        let keeper = running.keeper();
        keeper.keep("a", File::open("/dev/null").unwrap()).unwrap();
        let (slow, peer) = slow_to_close();
        let refused = thread::spawn(move || keeper.keep("a", slow).unwrap_err().raw_os_error());
        for _ in 0..100 {
            assert_eq!(running.keeper().names().unwrap(), ["a"]);
        }
        assert!(!refused.is_finished());
        drop(peer);
        assert_eq!(refused.join().unwrap(), Some(libc::EEXIST));
        // A kept descriptor counts until it is closed.
        let (slow, peer) = slow_to_close();
        running.keeper().keep("slow", slow).unwrap();
        assert!(running.keeper().remove("slow").unwrap());
        let counts = |kept| {
            running
                .answer(b"list", &[])
                .starts_with(&format!("ok kept={kept} "))
        };
        assert!((0..100).all(|_| counts(2)));
        drop(peer);
        while !counts(1) {}
    }

    /// A server with one client of user 7, and the client's end of the connection.
    fn with_client(state: State) -> (Server, OwnedFd) {
        let mut server = Server::new(socket(), Store::new(1, 7), "", 7).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let (client, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        server.clients.push(Client {
            socket: Parting(theirs),
            uid: 7,
            state,
            refused: Vec::new(),
            _share: server.quota.count(7),
        });
        (server, client)
    }

    #[test]
    fn drop_is_answered_when_the_service_manager_has_closed_the_descriptor() {
        let (mut server, client) = with_client(State::Idle);
        let null = File::open("/dev/null").unwrap().into();
        server.store.inherit("kept.7.0.null", null).unwrap();
        send(&client, b"drop null", None).unwrap();
        let events = [PollFlags::empty(), PollFlags::IN];
        server.proceed(&events);
        // It is gone, and the answer comes with the end of this stream.
        assert!(server.store.get(7, "null").is_none());
        let State::Waiting {
            until,
            answer: Ok(()),
        } = &server.clients[0].state
        else {
            panic!("it waits for nothing");
        };
        assert_eq!(server.interests()[1].as_fd().as_raw_fd(), until.as_raw_fd());
        let mut buffer = [0; PACKET];
        let mut receive =
            || recv(&client, &mut buffer[..], RecvFlags::DONTWAIT).map(|(length, _)| length);
        assert_eq!(receive(), Err(Errno::AGAIN));
        server.proceed(&[PollFlags::empty(); 2]);
        assert_eq!(receive(), Err(Errno::AGAIN));
        server.proceed(&events);
        assert_eq!(receive(), Ok(2));
    }

    #[test]
    fn a_client_that_reads_no_lines_learns_how_many_it_has_lost() {
        let root = tempfile::tempdir().unwrap();
        let (qps, text) = (root.path().join("3/qps"), root.path().join("trace"));
        fs::create_dir(root.path().join("3")).unwrap();
        let line = |serial| {
            format!(
                "            task-12      [000] 7.25: ib_xrc_rcv_reg: index=3 device=a domain=1 \
                 qpn=0x20 serial={serial}\n"
            )
        };
        fs::write(
            qps,
            "domain=1 creator=7 user=7 serial=1\ndomain=1 creator=8 user=8 serial=2\n",
        )
        .unwrap();
        const COUNT: usize = 5000;
        fs::write(&text, (line(1) + &line(2)).repeat(COUNT)).unwrap();
        let (mut server, client) = with_client(State::Watching { lost: 0 });
        server.watch = Some(Trace::of(root.path().into()));
        let events = [PollFlags::empty(), PollFlags::empty(), PollFlags::IN];
        (0..100).for_each(|_| server.proceed(&events));
        let mut buffer = [0; PACKET];
        let mut next = || {
            let received = recv(&client, &mut buffer[..], RecvFlags::DONTWAIT).ok()?;
            Some(String::from_utf8_lossy(&buffer[..received.0]).into_owned())
        };
        let seen = std::iter::from_fn(&mut next).collect::<Vec<_>>();
        assert!(seen.iter().all(|text| text.ends_with("serial=1")));
        assert!(!seen.is_empty() && seen.len() < COUNT);
        fs::OpenOptions::new()
            .append(true)
            .open(&text)
            .and_then(|mut file| io::Write::write_all(&mut file, line(1).as_bytes()))
            .unwrap();
        server.proceed(&events);
        assert_eq!(next(), Some(format!("lost {}", COUNT - seen.len())));
        assert!(next().is_some_and(|text| text.ends_with("serial=1")) && next().is_none());
    }

    #[test]
    fn a_client_has_half_a_minute_for_an_answer_to_show() {
        let begin = Instant::now();
        let mut show = Listing::new(7);
        assert!(show.until > begin && show.until <= Instant::now() + Duration::from_secs(30));
        let (mut server, _silent) = with_client(State::Showing(Box::new(show)));
        let nothing = [PollFlags::empty(); 2];
        server.proceed(&nothing);
        assert!(server.clients.len() == 1 && server.patience().is_some());
        show = Listing::new(7);
        show.until = begin;
        server.clients[0].state = State::Showing(Box::new(show));
        server.proceed(&nothing);
        assert!(server.clients.is_empty() && server.patience().is_none());
    }

    #[test]
    fn a_client_that_does_not_read_has_a_few_answers_and_stops_nobody() {
        let (running, null) = (Running::start(), File::open("/dev/null").unwrap());
        running.keeper().keep("null", &null).unwrap();
        let silent = running.client();
        let flags = SendFlags::DONTWAIT;
        let mut control = SendAncillaryBuffer::default();
        // Until neither takes one more.
        for _ in 0..100 {
            while sendmsg(&silent, &[IoSlice::new(b"get null")], &mut control, flags).is_ok() {}
            assert_eq!(running.keeper().names().unwrap(), ["null"]);
        }
        let mut answers = 0;
        while recv(&silent, &mut [0; 8][..], RecvFlags::DONTWAIT).is_ok() {
            answers += 1;
            assert!(answers < 1_000_000);
        }
        assert!(answers > 1);
    }
}
