// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! As much of a service manager as the server needs: a descriptor store, as sd_notify(3) and
//! sd_listen_fds(3) describe it, and a process that is started again when it ends.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs, io, process, thread};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::{Result, now};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kill the server that often for each line of the standard input, and print when that was and
    /// when the next was ready
    #[arg(long, default_value_t = 0)]
    kills: u32,
    /// The most milliseconds that are added to it, at random, before the server is killed
    #[arg(long, default_value_t = 500)]
    interval: u64,
    /// Milliseconds from the end of a server that was killed to the start of the next: a service
    /// that loads its data takes such a time
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// The server and its arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// Descriptors and their names.
type Store = Arc<Mutex<Vec<(String, OwnedFd)>>>;

/// bash puts the descriptors where the command looks for them, and knows its own number.
const EXEC: &str = r#"
for ((n = 3; n < 3 + LISTEN_FDS; n++)); do
	[ "$1" = "$n" ] || eval "exec $n<&$1-"
	shift
done
export LISTEN_PID=$$
exec "$@"
"#;

fn start(args: &Args, store: &Store, notify_socket: &str) -> Result<Child> {
    let mut store = store.lock().expect("no thread panics");
    // In ascending order none is put where another one is.
    store.sort_by_key(|(_, fd)| fd.as_raw_fd());
    let names: Vec<&str> = store.iter().map(|(name, _)| name.as_str()).collect();
    Ok(Command::new("bash")
        .args(["-c", EXEC, "bash"])
        .args(store.iter().map(|(_, fd)| fd.as_raw_fd().to_string()))
        .args(&args.command)
        .env("NOTIFY_SOCKET", notify_socket)
        .env("LISTEN_FDS", names.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"))
        .spawn()?)
}

/// Does what messages of servers say; reports each that is ready.
fn listen(socket: &UnixDatagram, store: &Store, ready: &Sender<(u32, u64)>) -> Result<()> {
    loop {
        let mut message = [0; 4096];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut message)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let (mut fds, mut pid) = (Vec::new(), 0);
        for control in control.drain() {
            match control {
                RecvAncillaryMessage::ScmRights(received) => fds.extend(received),
                RecvAncillaryMessage::ScmCredentials(sender) => {
                    pid = sender.pid.as_raw_nonzero().get() as u32;
                }
                _ => {}
            }
        }
        let message = String::from_utf8_lossy(&message[..received.bytes]).into_owned();
        let has = |line: &str| message.lines().any(|found| found == line);
        let name = message
            .lines()
            .find_map(|line| line.strip_prefix("FDNAME="));
        let mut store = store.lock().expect("no thread panics");
        match name {
            // The next server inherits the store. It is started with the lock held.
            Some(name) if has("FDSTORE=1") => {
                for fd in fds {
                    fcntl_setfd(&fd, FdFlags::empty())?;
                    store.push((name.to_owned(), fd));
                }
            }
            Some(name) if has("FDSTOREREMOVE=1") => {
                let (removed, kept): (Vec<_>, _) =
                    store.drain(..).partition(|(kept, _)| kept == name);
                *store = kept;
                for (_, fd) in &removed {
                    fcntl_setfd(fd, FdFlags::CLOEXEC)?;
                }
                // As systemd does it: nothing waits for a device to be closed.
                thread::spawn(move || drop(removed));
            }
            // A barrier's descriptor is closed when all messages before it were handled.
            _ => drop(fds),
        }
        drop(store);
        if has("READY=1") && ready.send((pid, now())).is_err() {
            return Ok(());
        }
    }
}

/// A server that is started again, and the store that it leaves to the next.
struct Supervisor<'args> {
    args: &'args Args,
    store: Store,
    notify_socket: String,
    /// The servers that are ready, and since when.
    ready: Receiver<(u32, u64)>,
    server: Child,
    /// The time without a server, the last time.
    absence: Duration,
}

impl Supervisor<'_> {
    fn restart(&mut self) -> Result<()> {
        self.server = start(self.args, &self.store, &self.notify_socket)?;
        Ok(())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.server.kill()?;
        self.server.wait().map(drop)
    }

    fn until_ready(&mut self) -> Result<u64> {
        loop {
            match self.ready.recv_timeout(Duration::from_millis(100)) {
                Ok((pid, since)) if pid == self.server.id() => return Ok(since),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(status) = self.server.try_wait()? {
                        return Err(format!("the server has ended: {status}").into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills the server at some moment, every fifth time also its successor while that one starts.
    /// Before, it has had as long as the absence of the round before, for what has waited
    /// meanwhile.
    fn disturb(&mut self, round: u32, delay: &mut impl FnMut(u64) -> Duration) -> Result<()> {
        let before = if round > 0 {
            self.absence
        } else {
            Duration::ZERO
        };
        thread::sleep(before + delay(self.args.interval));
        let killed = now();
        self.kill()?;
        thread::sleep(Duration::from_millis(self.args.pause));
        self.restart()?;
        if round % 5 == 4 {
            thread::sleep(delay(40));
            self.kill()?;
            self.restart()?;
        }
        let ready = self.until_ready()?;
        self.absence = Duration::from_nanos(ready - killed);
        println!(r#"{{"killed": {killed}, "ready": {ready}}}"#);
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = env::temp_dir().join(format!("kvstore-{}", process::id()));
    let socket = UnixDatagram::bind(&path)?;
    set_socket_passcred(&socket, true)?;
    let store = Store::default();
    let (sender, ready) = mpsc::channel();
    thread::spawn({
        let store = store.clone();
        move || listen(&socket, &store, &sender)
    });
    let (order, orders) = mpsc::channel();
    thread::spawn(move || io::stdin().lines().try_for_each(|line| order.send(line)));

    let notify_socket = path.to_string_lossy().into_owned();
    let server = start(args, &store, &notify_socket)?;
    let mut supervisor = Supervisor {
        args,
        store,
        notify_socket,
        ready,
        server,
        absence: Duration::ZERO,
    };
    let mut seed = 1u64;
    let mut delay = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((seed >> 33) % (most * 1000).max(1))
    };
    let mut serve = || {
        println!(r#"{{"ready": {}}}"#, supervisor.until_ready()?);
        loop {
            match orders.recv_timeout(Duration::from_millis(10)) {
                Ok(_) => {
                    for round in 0..args.kills {
                        supervisor.disturb(round, &mut delay)?;
                    }
                    println!(r#"{{"kills": {}}}"#, args.kills);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(status) = supervisor.server.try_wait()? {
                        eprintln!("kvstore: the server has ended: {status}");
                        supervisor.restart()?;
                    }
                }
            }
        }
    };
    let result = serve();
    supervisor.kill()?;
    fs::remove_file(path)?;
    result
}
