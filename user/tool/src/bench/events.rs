// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The time from an error of a QP until the last of the processes that share it has read it.
//!
//! Each reader has a device, a domain and a thread of its own, as a process would. With mainline,
//! the first is the QP's creator, and the others opened it.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use xrc_rcv::verbs::TargetQp;
use xrc_rcv::{AllocOptions, Device, Event, EventType, QpAttr, QpState, RegisterOptions};

use super::mainline;
use super::{Measurement, Party, Runner, Side, to_init, us};

const ROUNDS: usize = 7;
/// The objects of one reader; libibverbs needs some of them.
const STACK: usize = 256 << 10;
/// With mainline, silence for this long after the creator's event means that nothing more comes.
const SILENCE: Duration = Duration::from_secs(1);
/// With ours, or without any event, it is an error.
const PATIENCE: Duration = Duration::from_secs(240);
/// The error of a post to a QP that takes no more receives.
const BROKEN: EventType = EventType::QP_LAST_WQE_REACHED;

/// A reader's reports: that it waits, and the time when the event was delivered to it.
enum Word {
    Ready(Result<()>),
    Delivered(Instant),
}

/// The readers that wait for the events of one QP.
struct Readers<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    words: (Sender<Word>, Receiver<Word>),
    /// Readers end when its other end is closed.
    stop: &'env UnixStream,
    count: usize,
}

impl<'scope, 'env> Readers<'scope, 'env> {
    fn new(scope: &'scope Scope<'scope, 'env>, stop: &'env UnixStream) -> Self {
        Readers {
            scope,
            words: mpsc::channel(),
            stop,
            count: 0,
        }
    }

    /// Adds a reader, and returns when it waits.
    fn add(
        &mut self,
        read: impl FnOnce(&Listener<'_>) -> Result<()> + Send + 'scope,
    ) -> Result<()> {
        let (say, stop) = (self.words.0.clone(), self.stop);
        thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(self.scope, move || {
                let listener = Listener { say: &say, stop };
                if let Err(error) = read(&listener) {
                    // The receiver is gone if another reader failed before.
                    let _ = say.send(Word::Ready(Err(error)));
                }
            })?;
        match self.words.1.recv()? {
            Word::Ready(result) => result?,
            Word::Delivered(_) => bail!("an event before the error"),
        }
        self.count += 1;
        Ok(())
    }

    /// Has `error` break the QP. Returns how many readers its event was delivered to until there
    /// was `silence` after one of them, and how long it took to the last.
    fn time(
        &self,
        silence: Duration,
        error: impl FnOnce() -> Result<()>,
    ) -> Result<(usize, Duration)> {
        // All wait again.
        thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        error()?;
        let (mut delivered, mut last) = (0, begin);
        while delivered < self.count {
            let patience = if delivered == 0 { PATIENCE } else { silence };
            match self.words.1.recv_timeout(patience) {
                Ok(Word::Delivered(when)) => {
                    delivered += 1;
                    last = last.max(when);
                }
                Ok(Word::Ready(result)) => result?,
                Err(_) => break,
            }
        }
        Ok((delivered, last - begin))
    }
}

/// The part of a reader that is the same for both sides.
struct Listener<'a> {
    say: &'a Sender<Word>,
    stop: &'a UnixStream,
}

impl Listener<'_> {
    /// Waits at `fd` for events, has `take` take them, and passes on when the QP was broken.
    fn listen(
        &self,
        fd: BorrowedFd<'_>,
        mut take: impl FnMut() -> Result<EventType>,
    ) -> Result<()> {
        self.say.send(Word::Ready(Ok(())))?;
        loop {
            let mut fds = [
                PollFd::new(&fd, PollFlags::IN),
                PollFd::new(self.stop, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            if take()? == BROKEN {
                self.say.send(Word::Delivered(Instant::now()))?;
            }
        }
    }
}

/// Measures with 1, 4, 16 … `most` readers.
pub(super) fn measure(runner: &Runner<'_>, most: usize) -> Result<Vec<Measurement>> {
    let devices = [runner.open()?, runner.open()?];
    let ours = Party::new(&devices[0], runner.file)?;
    let mainline = Party::new(&devices[1], runner.file)?;
    // Without a channel: it is not one of the readers.
    let ours_qp = ours.domain.alloc(&AllocOptions::new().attr(runner.attr))?;
    let ours_num = ours_qp.qp_num();
    let mainline_qp = runner.mainline().map(|side| side.create(&mainline));
    let mainline_qp = mainline_qp.transpose()?;
    let in_error = QpAttr::new().with_state(QpState::Err);
    let again = [
        QpAttr::new().with_state(QpState::Reset),
        to_init(&runner.attr),
    ];

    let (stop, running) = UnixStream::pair()?;
    thread::scope(|scope| {
        // Closed when this returns, however it does.
        let _running = running;
        let mut results = Vec::new();
        let mut registered = Readers::new(scope, &stop);
        let mut opened = Readers::new(scope, &stop);
        let mut n = 1;
        while n <= most {
            while registered.count < n {
                registered.add(move |listener| read_ours(runner, ours_num, listener))?;
                let Some(qp) = &mainline_qp else { continue };
                let (number, device) = (qp.qp_num(), (opened.count == 0).then_some(&devices[1]));
                opened.add(move |listener| read_mainline(runner, number, device, listener))?;
            }
            let mut rounds = Vec::new();
            let mut silent = None;
            for _ in 0..ROUNDS {
                let domain = &ours.domain;
                let (delivered, took) =
                    registered.time(PATIENCE, || Ok(domain.modify(ours_num, &in_error)?))?;
                if delivered != n {
                    bail!("the event was delivered to {delivered} of {n} readers");
                }
                again
                    .iter()
                    .try_for_each(|attr| domain.modify(ours_num, attr))?;
                let own = us(took, 1);
                let mut theirs = None;
                // A reader that was silent once is not waited for again.
                if let (Some(qp), None) = (&mainline_qp, silent) {
                    let (delivered, took) = opened.time(SILENCE, || Ok(qp.modify(&in_error)?))?;
                    again.iter().try_for_each(|attr| qp.modify(attr))?;
                    match delivered == n {
                        true => theirs = Some(us(took, 1)),
                        false => silent = Some(delivered),
                    }
                }
                rounds.push((own, theirs));
            }
            let name = "event, from the error to the last reader";
            let mut result = Measurement::new(name, n, "us", &rounds);
            result.delivered = silent;
            results.push(result);
            n *= 4;
        }
        Ok(results)
    })
}

/// A process that registers.
fn read_ours(runner: &Runner<'_>, qp_num: u32, listener: &Listener<'_>) -> Result<()> {
    let device = runner.open()?;
    let party = Party::new(&device, runner.file)?;
    let options = RegisterOptions::new().channel(&party.channel);
    let _registration = party.domain.register(qp_num, &options)?;
    listener.listen(party.channel.as_fd(), || {
        let mut record = [Event::default()];
        party.channel.read(&mut record)?;
        Ok(record[0].event_type())
    })
}

/// The process that created the QP, on its device; or another that opens it, if there is none.
fn read_mainline(
    runner: &Runner<'_>,
    qp_num: u32,
    creators: Option<&Device>,
    listener: &Listener<'_>,
) -> Result<()> {
    if let Some(device) = creators {
        return listener.listen(mainline::async_fd(device), || mainline::take_event(device));
    }
    let device = runner.open()?;
    let domain = device
        .open_domain(Some(runner.file.as_fd()))
        .context("domain")?;
    let _qp = TargetQp::open(&domain, qp_num)?;
    listener.listen(mainline::async_fd(&device), || {
        mainline::take_event(&device)
    })
}
