// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The descriptors that processes give the service, by user and name, for those that come after
//! them. The service manager has each of them as well, if it has a store: so the next process of
//! the service gets them again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;

use super::quota::{Quota, Share};

/// The greatest length of a name.
const NAME: usize = 64;
/// The names of kept descriptors in the manager's store begin with this; user, time and name
/// follow.
const KEPT: &str = "kept";
/// Since Linux 6.10, and so wherever the module is. kcmp(2) is an option of the kernel's.
const F_DUPFD_QUERY: libc::c_int = 1024 + 3;

/// A descriptor, which counts for its user until it is closed.
struct Kept {
    fd: OwnedFd,
    /// On the clock that also runs while the machine is suspended.
    since: u64,
    share: Share,
}

pub(super) struct Store {
    kept: BTreeMap<(u32, String), Kept>,
    quota: Quota,
}

impl Store {
    /// The store of at most `limit` descriptors for a domain whose file belongs to `owner`.
    pub(super) fn new(limit: usize, owner: u32) -> Store {
        Store {
            kept: BTreeMap::new(),
            quota: Quota::new(limit, owner),
        }
    }

    pub(super) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Takes back what an earlier process of the service had stored under this name, unless that is
    /// no descriptor of a user.
    pub(super) fn inherit(&mut self, name: &str, fd: OwnedFd) -> Result<(), OwnedFd> {
        let mut words = name.splitn(4, '.');
        if words.next() != Some(KEPT) {
            return Err(fd);
        }
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let (uid, since, name) = (number(words.next()), number(words.next()), words.next());
        let uid = uid.and_then(|uid| u32::try_from(uid).ok());
        match (uid, since, name) {
            (Some(uid), Some(since), Some(name)) if is_name(name) => {
                let share = self.quota.count(uid);
                let kept = Kept { fd, since, share };
                self.kept.insert((uid, name.into()), kept);
                Ok(())
            }
            _ => Err(fd),
        }
    }

    /// Whether a descriptor of that name may be kept.
    pub(super) fn check(&self, uid: u32, name: &str) -> Result<(), Errno> {
        if !is_name(name) {
            return Err(Errno::INVAL);
        }
        match self.kept.contains_key(&(uid, name.into())) {
            true => Err(Errno::EXIST),
            false => Ok(()),
        }
    }

    /// Whether the open file is kept, by any name or user. A service manager stores it only once:
    /// another name of it would be lost with this process.
    pub(super) fn has(&self, fd: &OwnedFd) -> bool {
        self.kept.values().any(|kept| is_same_file(&kept.fd, fd))
    }

    /// Keeps a descriptor whose name was checked. The result comes to its end when the service
    /// manager has it as well. Gives the descriptor back if the manager cannot be reached.
    pub(super) fn keep(
        &mut self,
        uid: u32,
        name: &str,
        fd: OwnedFd,
        share: Share,
    ) -> Result<UnixStream, (OwnedFd, Share)> {
        let since = now();
        let stored = manager_name(uid, since, name);
        let pushed = push(&stored, fd.as_fd());
        let until = pushed.and_then(|()| barrier().inspect_err(|_| drop(forget(&stored))));
        let Ok(until) = until else {
            return Err((fd, share));
        };
        let kept = Kept { fd, since, share };
        self.kept.insert((uid, name.into()), kept);
        Ok(until)
    }

    pub(super) fn get(&self, uid: u32, name: &str) -> Option<BorrowedFd<'_>> {
        let kept = self.kept.get(&(uid, name.into()))?;
        Some(kept.fd.as_fd())
    }

    /// Closes a descriptor, if there is one. The result comes to its end when the service manager
    /// has closed it as well. The descriptor stays if the manager cannot be reached.
    pub(super) fn remove(&mut self, uid: u32, name: &str) -> io::Result<Option<UnixStream>> {
        let Entry::Occupied(entry) = self.kept.entry((uid, name.into())) else {
            return Ok(None);
        };
        let kept = entry.get();
        let stored = manager_name(uid, kept.since, name);
        forget(&stored)?;
        let until = barrier().inspect_err(|_| drop(push(&stored, kept.fd.as_fd())))?;
        let kept = entry.remove();
        close((kept.fd, kept.share));
        Ok(Some(until))
    }

    /// The names of a user's descriptors, and for how many seconds each is kept.
    pub(super) fn list(&self, uid: u32) -> impl Iterator<Item = (&str, u64)> {
        let own = self.kept.range((uid, String::new())..);
        let own = own.take_while(move |((user, _), _)| *user == uid);
        let now = now();
        own.map(move |((_, name), kept)| (name.as_str(), now.saturating_sub(kept.since)))
    }
}

/// The number that stands for all users of other user namespaces.
pub(super) const OVERFLOW_UID: u32 = 65534;

/// Whether a descriptor in the manager's store is one of a user, by its name.
pub(super) fn is_stored(name: &str) -> bool {
    name.split('.').next() == Some(KEPT)
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=NAME).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    // SAFETY: The call compares two open descriptors, and touches no memory.
    let result = unsafe { libc::fcntl(one.as_raw_fd(), F_DUPFD_QUERY, other.as_raw_fd()) };
    result == 1
}

fn manager_name(uid: u32, since: u64, name: &str) -> String {
    format!("{KEPT}.{uid}.{since}.{name}")
}

/// Seconds since the boot.
pub(super) fn now() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or_default()
}

/// Gives the service manager a descriptor, if there is one. Those that have no store close it.
pub(super) fn push(name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    let state = [
        NotifyState::FdStore,
        NotifyState::FdName(name),
        NotifyState::Custom("FDPOLL=0"),
    ];
    sd_notify::notify_with_fds(&state, &[fd])
}

/// Has the service manager close a descriptor.
pub(super) fn forget(name: &str) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])
}

/// A stream that comes to its end when the manager has read what was sent to it before: it ignores
/// messages of a process that has ended.
fn barrier() -> io::Result<UnixStream> {
    let (barrier, theirs) = UnixStream::pair()?;
    let state = [NotifyState::Custom("BARRIER=1")];
    sd_notify::notify_with_fds(&state, &[theirs.as_fd()])?;
    Ok(barrier)
}

/// Closes descriptors of others in a thread: the end of an open device takes its time, and a file
/// system of a stranger decides when the close of its file returns. They count for the user until
/// then.
pub(super) fn close(things: impl Send + 'static) {
    let thread = thread::Builder::new().stack_size(1 << 16);
    // Without memory for a thread they are closed here.
    let _ = thread.spawn(move || drop(things));
}

/// As [`close`]. The stream comes to its end when they are closed.
pub(super) fn closed(things: impl Send + 'static) -> io::Result<UnixStream> {
    match UnixStream::pair() {
        Ok((until, theirs)) => {
            close((things, theirs));
            Ok(until)
        }
        Err(error) => {
            close(things);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn null() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    fn keep(store: &mut Store, uid: u32, name: &str) -> Result<(), Errno> {
        store.check(uid, name)?;
        let share = store.quota().take(uid).ok_or(Errno::DQUOT)?;
        store
            .keep(uid, name, null(), share)
            .map(drop)
            .map_err(|_| Errno::IO)
    }

    #[test]
    fn each_user_has_names_of_their_own() {
        let mut store = Store::new(16, 1);
        // Root's are no other's either.
        keep(&mut store, 0, "root").unwrap();
        keep(&mut store, 1, "a").unwrap();
        keep(&mut store, 2, "a").unwrap();
        keep(&mut store, 2, "b").unwrap();
        assert_eq!(keep(&mut store, 2, "b"), Err(Errno::EXIST));
        assert_eq!(keep(&mut store, 2, "c"), Err(Errno::DQUOT));
        for wrong in ["", "a b", "a:b", "a\n", "\u{e4}", &"x".repeat(65)] {
            assert_eq!(keep(&mut store, 1, wrong), Err(Errno::INVAL), "{wrong}");
        }
        let names = |store: &Store, uid| -> Vec<String> {
            store.list(uid).map(|(name, _)| name.into()).collect()
        };
        assert_eq!(names(&store, 2), ["a", "b"]);
        assert!(names(&store, 3).is_empty() && store.get(1, "root").is_none());
        assert!(store.get(3, "a").is_none() && store.get(1, "b").is_none());
        assert!(store.remove(3, "a").unwrap().is_none() && store.remove(2, "a").unwrap().is_some());
        assert_eq!(
            [0, 1, 2].map(|uid| names(&store, uid)),
            [["root"], ["a"], ["b"]]
        );
    }

    #[test]
    fn the_next_process_of_the_service_knows_them() {
        let mut store = Store::new(16, 1);
        // A clock that has just started has no time before.
        let before = now().saturating_sub(7);
        store
            .inherit(&manager_name(5, before, "x.y"), null())
            .unwrap();
        for wrong in [
            "device.mlx5_0.1",
            "kept",
            "kept.1",
            "kept.1.2",
            "kept.1.2.",
            "kept.-1.2.x",
            "kept.4294967296.2.x",
        ] {
            assert!(store.inherit(wrong, null()).is_err(), "{wrong}");
        }
        let (name, seconds) = store.list(5).next().unwrap();
        assert!(name == "x.y" && seconds >= now().min(7), "{name} {seconds}");
        assert_eq!(store.quota().used_by(5).0, 1);
        store.remove(5, "x.y").unwrap().unwrap();
        // Another thread closes it.
        while store.quota().used().0 != 0 {
            thread::yield_now();
        }
    }
}
