// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The module's directory in debugfs: `ib_xrc_rcv/<index>/{domains,members,qps,registrations}`.
//!
//! Each file has one object a line, as `key=value` words. Words that are not known are left alone,
//! so that the module may add some; a line without a required word is an error.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::io::Errno;

use crate::snapshot::{Cgroup, Domain, MemberOfAll, Qp, Registration};

/// The mount point of debugfs.
pub(crate) const ROOT: &str = "/sys/kernel/debug";

/// The domains of a device, or `None` if this user may not see them or the device has no directory,
/// which can be removed while it is read.
pub(crate) fn domains(root: &Path, index: u32) -> Result<Option<Vec<Domain>>> {
    let directory = root.join("ib_xrc_rcv").join(index.to_string());
    let mut texts = Vec::new();
    for name in ["domains", "qps", "registrations"] {
        let path = directory.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => texts.push(text),
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::IO)
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error).context(path.display().to_string()),
        }
    }
    // Modules before it was added do not have it.
    let members = fs::read_to_string(directory.join("members")).unwrap_or_default();
    join(&texts[0], &texts[1], &texts[2])
        .and_then(|domains| with_members(domains, &members))
        .with_context(|| directory.display().to_string())
        .map(Some)
}

/// Adds the members of all QPs to their domains.
fn with_members(mut domains: Vec<Domain>, members: &str) -> Result<Vec<Domain>> {
    for domain in &mut domains {
        domain.members_of_all = Some(Vec::new());
    }
    for line in lines(members) {
        let number = Some(line.number("domain")?);
        let domain = domains.iter_mut().find(|domain| domain.domain == number);
        if let Some(members) = domain.and_then(|domain| domain.members_of_all.as_mut()) {
            members.push(member(&line)?);
        }
    }
    Ok(domains)
}

fn member(line: &Line<'_>) -> Result<MemberOfAll> {
    let pid = line.number32("pid")?;
    Ok(MemberOfAll {
        kind: line.word("kind")?.into(),
        keeps: line.number("keeps")? != 0,
        pid: (pid != 0).then_some(pid),
        program: line.word("comm")?.into(),
        uid: line.number32_if_any("uid")?,
        mask: line.number_if_any("mask")?,
    })
}

/// The reason why this process cannot read the lists.
pub(crate) fn obstacle(root: &Path) -> &'static str {
    let is_debugfs = |line: &str| line.ends_with("\tdebugfs");
    match fs::read_dir(root.join("ib_xrc_rcv")) {
        Ok(_) => "the device was removed meanwhile",
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            "this user may not read debugfs: root may, and a socket of xrc-rcv hold shows this \
             user's"
        }
        Err(_) => match fs::read_to_string("/proc/filesystems") {
            Ok(known) if !known.lines().any(is_debugfs) => "this kernel has no debugfs",
            _ => "debugfs is not mounted at /sys/kernel/debug",
        },
    }
}

/// The domains of the QPs that a service reports.
pub(crate) fn reported(qps: &str, registrations: &str) -> Result<Vec<Domain>> {
    let numbers = lines(qps).map(|line| line.number("domain"));
    let domains = numbers.map(|number| Ok(format!("domain={}\n", number?)));
    join(&domains.collect::<Result<String>>()?, qps, registrations)
}

/// Joins the three lists. They are not read at one instant: an object that is in one of them only
/// was created or destroyed meanwhile, and is left out. So is a registration with another QP that
/// was given the number of a listed one.
fn join(domains: &str, qps: &str, registrations: &str) -> Result<Vec<Domain>> {
    let mut result = BTreeMap::new();
    for line in lines(domains) {
        let number = line.number("domain")?;
        result.insert(
            number,
            Domain {
                domain: Some(number),
                ..Domain::default()
            },
        );
    }
    for line in lines(qps) {
        if let Some(domain) = result.get_mut(&line.number("domain")?) {
            domain.qps.push(qp(&line)?);
        }
    }
    for domain in result.values_mut() {
        domain.qps.sort_by_key(|qp| qp.qpn);
    }
    for line in lines(registrations) {
        let (domain, qpn) = (line.number("domain")?, line.number32("qpn")?);
        let serial = line.number_if_any("serial")?;
        // A user can make so many that a linear search takes minutes.
        let qp = result.get_mut(&domain).and_then(|domain| {
            let index = domain.qps.binary_search_by_key(&qpn, |qp| qp.qpn).ok()?;
            domain.qps.get_mut(index).filter(|qp| qp.serial == serial)
        });
        if let Some(registered) = qp.and_then(|qp| qp.registered.as_mut()) {
            registered.push(registration(&line)?);
        }
    }
    for qp in result.values_mut().flat_map(|domain| &mut domain.qps) {
        let registered = qp.registered.iter_mut();
        registered.for_each(|all| all.sort_by_key(|registration| registration.pid));
    }
    Ok(result.into_values().collect())
}

fn qp(line: &Line<'_>) -> Result<Qp> {
    let dest_qpn = line.number32("dest_qpn")?;
    Ok(Qp {
        qpn: line.number32("qpn")?,
        state: line.word("state")?.into(),
        lifetime: line.word("lifetime")?.into(),
        dest_qpn: (dest_qpn != 0).then_some(dest_qpn),
        label: line.number_if_any("label")?.filter(|label| *label != 0),
        events: Some(line.number("events")?),
        creator: line.number32_if_any("creator")?,
        user: line.number32_if_any("user")?,
        serial: line.number_if_any("serial")?,
        pid: line.number32_if_any("pid")?,
        program: line.word("comm").ok().map(Into::into),
        cgroup: cgroup(line)?,
        registrations: line.number("registrations")?,
        registered: Some(Vec::new()),
    })
}

fn registration(line: &Line<'_>) -> Result<Registration> {
    let pid = line.number32("pid")?;
    Ok(Registration {
        kind: line.word("kind")?.into(),
        pid: (pid != 0).then_some(pid),
        program: line.word("comm")?.into(),
        uid: line.number32_if_any("uid")?,
        cgroup: cgroup(line)?,
        channel: line.number("channel")? != 0,
        mask: line.number_if_any("mask")?,
        pending: line.number("pending")?,
    })
}

/// The control group of a process. A kernel without any has 0.
fn cgroup(line: &Line<'_>) -> Result<Option<Cgroup>> {
    let id = line.number_if_any("cgroup")?.filter(|id| *id != 0);
    Ok(id.map(|id| Cgroup { id, path: None }))
}

/// One line of `key=value` words; the value of `comm`, the last, extends to the line's end.
pub(crate) struct Line<'a>(&'a str);

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter(|line| !line.is_empty()).map(Line)
}

impl<'a> Line<'a> {
    pub(crate) fn new(line: &'a str) -> Line<'a> {
        Line(line)
    }

    fn word(&self, key: &str) -> Result<&'a str> {
        let (words, comm) = match self.0.find("comm=") {
            Some(at) => (&self.0[..at], Some(&self.0[at + "comm=".len()..])),
            None => (self.0, None),
        };
        if key == "comm" {
            return comm.with_context(|| format!("no comm in '{}'", self.0));
        }
        words
            .split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
            .with_context(|| format!("no {key} in '{}'", self.0))
    }

    pub(crate) fn number(&self, key: &str) -> Result<u64> {
        let word = self.word(key)?;
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        parsed.with_context(|| format!("{key}={word}"))
    }

    /// A number that modules before it was added do not have.
    fn number_if_any(&self, key: &str) -> Result<Option<u64>> {
        self.word(key).ok().map(|_| self.number(key)).transpose()
    }

    fn number32(&self, key: &str) -> Result<u32> {
        u32::try_from(self.number(key)?).with_context(|| key.to_string())
    }

    fn number32_if_any(&self, key: &str) -> Result<Option<u32>> {
        self.word(key).ok().map(|_| self.number32(key)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAINS: &str = "domain=1 qps=2\ndomain=4 qps=0\n";
    const QPS: &str = "\
domain=1 qpn=0x20 state=RTR lifetime=registrations registrations=2 dest_qpn=0x1f label=0xfedcba9876543210 events=3 creator=100000 user=1000 serial=7 pid=70 cgroup=4294967297 comm=creator=7
domain=1 qpn=0x12 state=RESET lifetime=domain registrations=0 dest_qpn=0x0 label=0x0 events=0 creator=0 user=0
domain=9 qpn=0x99 state=ERR lifetime=domain registrations=0 dest_qpn=0x0 events=0
";
    const REGISTRATIONS: &str = "\
kind=file channel=1 mask=0x8000000000000010 pending=1 domain=1 qpn=0x20 serial=7 uid=1001 pid=77 cgroup=0 comm=my prog=x
kind=file channel=0 mask=0x0 pending=0 domain=1 qpn=0x20 serial=7 pid=9 comm=older
kind=file channel=0 mask=0x0 pending=0 domain=1 qpn=0x20 serial=8 pid=10 comm=next
kind=kernel channel=0 pending=0 domain=1 qpn=0x20 serial=7 pid=0 comm=
kind=file channel=0 pending=0 domain=1 qpn=0x21 pid=78 comm=late
";

    #[test]
    fn members_of_all_are_of_their_domains() {
        let members = "domain=4 keeps=1 kind=file channel=1 mask=0x0 uid=5 pid=7 cgroup=0 comm=a b\n\
                       domain=4 keeps=0 kind=kernel channel=0 mask=0x2 pid=0 comm=\n\
                       domain=9 keeps=0 kind=kernel channel=0 mask=0x2 pid=0 comm=\n";
        let domains = with_members(join(DOMAINS, "", "").unwrap(), members).unwrap();
        let of = |index: usize| domains[index].members_of_all.as_ref().unwrap();
        assert!(of(0).is_empty());
        let (process, kernel) = (&of(1)[0], &of(1)[1]);
        assert_eq!(of(1).len(), 2);
        assert_eq!((process.pid, process.keeps), (Some(7), true));
        assert_eq!((&*process.program, process.uid), ("a b", Some(5)));
        assert_eq!(
            (kernel.pid, kernel.keeps, kernel.mask),
            (None, false, Some(2))
        );
    }

    #[test]
    fn the_lists_are_put_together() {
        let domains = join(DOMAINS, QPS, REGISTRATIONS).unwrap();
        assert_eq!(domains.len(), 2);
        assert_eq!((domains[0].domain, domains[1].domain), (Some(1), Some(4)));
        assert!(domains[1].qps.is_empty());
        let [first, second] = &domains[0].qps[..] else {
            panic!("{:?}", domains[0])
        };
        assert_eq!(
            (first.qpn, first.dest_qpn, &*first.lifetime),
            (0x12, None, "domain")
        );
        assert_eq!(
            (second.qpn, second.dest_qpn, second.events),
            (0x20, Some(0x1f), Some(3))
        );
        assert_eq!(
            (first.label, second.label),
            (None, Some(0xfedc_ba98_7654_3210))
        );
        assert_eq!(
            (second.creator, second.user, first.user),
            (Some(100_000), Some(1000), Some(0))
        );
        let path = None;
        assert_eq!(
            (second.pid, second.program.as_deref(), &second.cgroup),
            (
                Some(70),
                Some("creator=7"),
                &Some(Cgroup {
                    id: (1 << 32) + 1,
                    path
                })
            )
        );
        let registered = second.registered.as_ref().unwrap();
        // In the order of their pids, the kernel first, without the one of the QP that has this
        // number by now.
        let pids: Vec<_> = registered.iter().map(|one| one.pid).collect();
        assert_eq!(pids, [None, Some(9), Some(77)]);
        assert_eq!(
            registered[2],
            Registration {
                kind: "file".into(),
                pid: Some(77),
                program: "my prog=x".into(),
                uid: Some(1001),
                cgroup: None,
                channel: true,
                mask: Some(0x8000_0000_0000_0010),
                pending: 1,
            }
        );
        assert_eq!((&*registered[0].kind, registered[0].mask), ("kernel", None));
        assert_eq!((registered[0].uid, registered[1].uid), (None, None));
    }

    #[test]
    fn a_line_without_a_required_word_is_an_error() {
        let error = join("domain=1\n", "domain=1 qpn=0x1\n", "").unwrap_err();
        assert!(error.to_string().contains("no dest_qpn"), "{error}");
        assert!(join("domain=one\n", "", "").is_err());
        assert!(join("domain=1\n", &QPS.replace("0x20", "0x100000000"), "").is_err());
    }

    #[test]
    fn words_that_earlier_modules_lack_have_no_value() {
        let before = QPS
            .replace(" label=0xfedcba9876543210", "")
            .replace(" label=0x0", "")
            .replace(
                " creator=100000 user=1000 serial=7 pid=70 cgroup=4294967297 comm=creator=7",
                "",
            );
        let registered = REGISTRATIONS.replace(" serial=7", "");
        let domains = join(DOMAINS, &before, &registered).unwrap();
        let registered = domains[0].qps[1].registered.as_ref();
        assert_eq!(registered.map(Vec::len), Some(3));
        assert!(domains[0].qps.iter().all(|qp| qp.label.is_none()));
        assert_eq!(domains[0].qps.len(), 2);
        let qp = &domains[0].qps[1];
        assert_eq!(
            (qp.creator, qp.pid, &qp.program, &qp.cgroup),
            (None, None, &None, &None)
        );
        for (word, wrong) in [("label=0x0", "label=no"), ("user=1000", "user=4294967296")] {
            assert!(join(DOMAINS, &QPS.replace(word, wrong), "").is_err());
        }
    }

    #[test]
    fn a_directory_that_is_removed_meanwhile_has_no_domains() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("ib_xrc_rcv/3");
        fs::create_dir_all(&directory).unwrap();
        // Reading it fails with EIO, as reading an open file of debugfs after its removal does.
        std::os::unix::fs::symlink("/proc/self/mem", directory.join("domains")).unwrap();
        assert_eq!(domains(root.path(), 3).unwrap(), None);
    }

    #[test]
    fn a_device_without_a_directory_has_no_visible_domains() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(domains(root.path(), 3).unwrap(), None);
        let directory = root.path().join("ib_xrc_rcv/3");
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in [
            ("domains", DOMAINS),
            ("qps", QPS),
            ("registrations", REGISTRATIONS),
        ] {
            fs::write(directory.join(name), text).unwrap();
        }
        assert_eq!(domains(root.path(), 3).unwrap().unwrap().len(), 2);
    }
}
