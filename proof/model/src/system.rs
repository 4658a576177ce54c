// SPDX-License-Identifier: GPL-2.0

//! The state of the whole: files, QPs and the device, the steps that each can do next, and the
//! properties that hold in every state.

use stateright::{Model, Property};
use xrc_rcv_spec::{Lifetime, Mutant, Phase, Qp, Step, Violation};

/// The configuration: `F` uverbs files, each with a handle of the domain at first, and `Q` receive
/// QPs that exist at the same time.
pub struct System<const F: usize, const Q: usize> {
    /// The number of events that the device reports of each QP.
    pub events: u8,
    /// The event masks, of which each file has any.
    pub masks: &'static [Mask],
    pub fault: Option<Fault>,
    /// A fault in the specification.
    pub mutant: Option<Mutant>,
}

/// An event mask: whether it has the events of the device, and QP_GONE.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mask {
    pub events: bool,
    pub gone: bool,
}

impl Mask {
    pub const ALL: Mask = Mask {
        events: true,
        gone: true,
    };
    pub const NO_GONE: Mask = Mask {
        events: true,
        gone: false,
    };
    pub const GONE: Mask = Mask {
        events: false,
        gone: true,
    };
}

/// A fault in the design, which one of the properties has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// REG does not check that the QP can still be found.
    RegisterOnEnded,
    /// The last UNREG releases the lock before it removes the QP from its domain.
    UnregisterInTwoSteps,
    /// DESTROY does not count registrations.
    DestroyWhileRegistered,
    /// The last close of the domain removes QPs that another call has removed.
    CloseEndsAll,
    /// A registration gets events that happened before it.
    RegisterJoinsPending,
    /// QP_GONE takes the place of events that are unread.
    GoneDropsPending,
    /// QP_GONE is delivered while the device still reports events.
    GoneBeforeDestroy,
    /// Two threads read an event.
    DeliveredTwice,
    /// An event is for registrations whose masks exclude it.
    MaskIgnored,
    /// A registration that has not read all ends with the QP.
    GoneEndsUnread,
    /// The last close of the domain does not wait for QPs that other calls destroy.
    CloseDoesNotWait,
    /// UNREG returns before the QP is destroyed.
    UnregisterDoesNotWait,
    /// The close of a file forgets one of its registrations.
    CloseForgets,
    /// A QP that ended is destroyed by its last holder only, and not where a file is closed.
    NobodyDestroys,
}

impl Fault {
    /// All of them, with the property that finds each.
    pub const ALL: [(Fault, &'static str); 14] = [
        (Fault::RegisterOnEnded, REGISTER),
        (Fault::UnregisterInTwoSteps, ONE_STEP),
        (Fault::DestroyWhileRegistered, REGISTERED),
        (Fault::CloseEndsAll, ONCE),
        (Fault::RegisterJoinsPending, EVENTS),
        (Fault::GoneDropsPending, EVENTS),
        (Fault::GoneBeforeDestroy, LAST),
        (Fault::DeliveredTwice, EVENTS),
        (Fault::MaskIgnored, MASKED),
        (Fault::GoneEndsUnread, UNREAD),
        (Fault::CloseDoesNotWait, DOMAIN),
        (Fault::UnregisterDoesNotWait, RETURNS),
        (Fault::CloseForgets, FILE),
        (Fault::NobodyDestroys, EVENTUALLY),
    ];
}

const ONCE: &str = "a QP is destroyed once";
const REGISTERED: &str = "no QP is destroyed while registered, unless its domain or device goes";
const REGISTER: &str = "no REG succeeds on a QP that has ended";
const ONE_STEP: &str = "the last UNREG and the end of the QP are one step";
const EVENTS: &str = "every event reaches each registration once";
const LAST: &str = "QP_GONE is the last event";
const MASKED: &str = "no registration reads what its mask excludes";
const UNREAD: &str = "a registration that ends with its QP has read all";
const DOMAIN: &str = "no QP outlives its domain";
const RETURNS: &str = "a call that ends a QP returns when it is destroyed";
const EVENTUALLY: &str = "everything is destroyed in the end";
const FILE: &str = "no registration outlives its file";
const ZERO: &str = "counts return to zero";
const NOTHING: &str = "no step breaks anything else";

/// A rule that a step has broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Broken {
    Specification(Violation),
    DestroyedTwice,
    OutlivesDomain,
    OutlivesFile,
    ReturnedEarly,
    /// A registration got an event twice, or an event of before it, or has lost one.
    Event,
    Masked,
    Unread,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State<const F: usize, const Q: usize> {
    broken: Option<Broken>,
    device: Device,
    /// The last close of the domain has begun.
    closing: bool,
    /// It is over.
    closed: bool,
    files: [File<Q>; F],
    qps: [Slot<F>; Q],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Device {
    Present,
    Removing,
    Removed,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct File<const Q: usize> {
    mask: Mask,
    is_open: bool,
    has_handle: bool,
    call: Option<Call<Q>>,
}

/// A call that is not over, of the file's one thread, or of uverbs that closes the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Call<const Q: usize> {
    /// ALLOC has created the QP; it cannot be found yet.
    Alloc(usize),
    /// UNREG or DESTROY has ended the QP, and waits until it is destroyed.
    Ended(usize),
    /// UNREG has removed the last registration; see [`Fault::UnregisterInTwoSteps`].
    Unregistered(usize),
    /// The last close of the domain.
    CloseDomain,
    /// The file is closed by its process, or with the device. `ended` are the QPs that this has
    /// ended.
    CloseFile { removed: bool, ended: [bool; Q] },
    /// As before, with the domain: its last handle is closed, and all registrations have ended.
    CloseFileAndDomain,
}

/// One of the QPs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Slot<const F: usize> {
    qp: Qp,
    provider: Provider,
    destructions: u8,
    happened: u8,
    /// The files that are to read each event, and QP_GONE, and have not yet.
    pending: [[bool; F]; 2],
    gone: [bool; F],
    registrations: [Option<Registration>; F],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Provider {
    Absent,
    Exists,
    /// It is destroyed; QP_GONE was not delivered.
    Destroyed,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Registration {
    /// The number of events that had happened before.
    since: u8,
    got: u8,
}

impl<const F: usize> Slot<F> {
    const UNUSED: Self = Self {
        qp: Qp::NEW,
        provider: Provider::Absent,
        destructions: 0,
        happened: 0,
        pending: [[false; F]; 2],
        gone: [false; F],
        registrations: [None; F],
    };

    fn is_found(&self) -> bool {
        matches!(self.qp.phase, Phase::Found | Phase::Unneeded)
    }

    /// Whether no report of it is to come, so that a new QP may take its place.
    fn is_free(&self) -> bool {
        *self == Self::UNUSED
    }

    fn register(&mut self, file: usize) {
        self.registrations[file] = Some(Registration {
            since: self.happened,
            got: 0,
        });
    }

    fn unregister(&mut self, file: usize) {
        self.registrations[file] = None;
        self.gone[file] = false;
        for pending in &mut self.pending {
            pending[file] = false;
        }
    }

    /// Whether a file has an event to read, but QP_GONE.
    fn has_pending(&self, file: usize) -> bool {
        self.pending.iter().any(|event| event[file])
    }

    fn is_registered(&self) -> bool {
        self.registrations.iter().any(Option::is_some)
    }
}

/// A file, or a QP, or both, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// With a registration of the creator, or without.
    AllocBegins(usize, usize, Lifetime, bool),
    AllocFails(usize),
    AllocEnds(usize),
    Register(usize, usize),
    Unregister(usize, usize),
    /// The second step of UNREG; see [`Fault::UnregisterInTwoSteps`].
    RemoveUnneeded(usize),
    Destroy(usize, usize),
    /// UNREG or DESTROY returns.
    Return(usize),
    CloseHandle(usize),
    CloseFile(usize),
    /// uverbs destroys the handle of a registration of a file that is closed.
    CloseRegistration(usize, usize),
    CloseFileHandle(usize),
    /// The last close of the domain reports the end of a QP.
    End(usize),
    /// The last close of the domain is over.
    DomainClosed(usize),
    RemoveDevice,
    RemoveFile(usize),
    DeviceRemoved,
    Event(usize),
    Deliver(usize, usize),
    ProviderDestroys(usize),
    /// QP_GONE is delivered.
    Gone(usize),
}

impl<const F: usize, const Q: usize> State<F, Q> {
    fn step(&mut self, qp: usize, step: Step) {
        match self.qps[qp].qp.step(step, self.closing) {
            Ok(after) => self.qps[qp].qp = after,
            Err(violation) => self.breaks(Broken::Specification(violation)),
        }
    }

    fn breaks(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    /// The provider has created a QP, which cannot be found yet.
    fn alloc_begins(&mut self, file: usize, qp: usize, lifetime: Lifetime, registers: bool) {
        let slot = &mut self.qps[qp];

        slot.provider = Provider::Exists;
        slot.qp.lifetime = Some(lifetime);
        if registers {
            slot.register(file);
        }
        self.files[file].call = Some(Call::Alloc(qp));
    }

    fn alloc_fails(&mut self, file: usize) -> Option<()> {
        let Some(Call::Alloc(qp)) = self.files[file].call.take() else {
            return None;
        };

        self.qps[qp] = Slot::UNUSED;
        Some(())
    }

    /// A QP is added to its domain, with the registration of its creator if that registers.
    fn alloc_ends(&mut self, file: usize) -> Option<()> {
        let Some(Call::Alloc(qp)) = self.files[file].call.take() else {
            return None;
        };
        let registers = self.qps[qp].is_registered();

        self.step(qp, Step::Alloc { registers });
        if registers {
            self.step(qp, Step::Register { keeps: true });
        }
        Some(())
    }

    /// A registration ends. Returns whether the QP ends with it.
    fn unregister(&mut self, file: usize, qp: usize) -> bool {
        self.qps[qp].unregister(file);
        if self.qps[qp].qp.phase == Phase::Gone {
            // It has ended with the QP: its records are dropped.
            return false;
        }
        self.step(qp, Step::Unregister { keeps: true });
        self.qps[qp].qp.phase == Phase::Unneeded && !self.closing
    }

    /// UNREG or DESTROY ends a QP, and waits until it is destroyed.
    fn end_by_call(&mut self, file: usize, qp: usize) {
        self.step(qp, Step::End { forced: false });
        self.files[file].call = Some(Call::Ended(qp));
    }

    /// UNREG ends a QP in a step of its own, if no other call has ended it meanwhile.
    fn remove_unneeded(&mut self, file: usize) -> Option<()> {
        let Some(Call::Unregistered(qp)) = self.files[file].call.take() else {
            return None;
        };

        if self.qps[qp].is_found() {
            self.step(qp, Step::End { forced: false });
        }
        Some(())
    }

    fn return_from_call(&mut self, file: usize) -> Option<()> {
        let Some(Call::Ended(qp)) = self.files[file].call.take() else {
            return None;
        };

        if !self.is_destroyed(qp) {
            self.breaks(Broken::ReturnedEarly);
        }
        self.forget(qp);
        Some(())
    }

    fn close_file(&mut self, file: usize, removed: bool) {
        self.files[file].call = Some(Call::CloseFile {
            removed,
            ended: [false; Q],
        });
    }

    fn close_registration(&mut self, file: usize, qp: usize) {
        if self.unregister(file, qp) {
            self.step(qp, Step::End { forced: false });
            if let Some(Call::CloseFile { ended, .. }) = &mut self.files[file].call {
                ended[qp] = true;
            }
        }
        self.forget(qp);
    }

    fn close_file_handle(&mut self, file: usize) {
        if self
            .qps
            .iter()
            .any(|slot| slot.registrations[file].is_some())
        {
            self.breaks(Broken::OutlivesFile);
        }
        if self.files[file].has_handle && self.close_handle(file) {
            self.files[file].call = Some(Call::CloseFileAndDomain);
        } else {
            self.files[file].call = None;
            self.files[file].is_open = false;
        }
        for qp in 0..Q {
            self.forget(qp);
        }
    }

    fn domain_closed(&mut self, file: usize) {
        if (0..Q).any(|qp| !self.is_destroyed(qp)) {
            self.breaks(Broken::OutlivesDomain);
        }
        self.closed = true;
        if self.files[file].call.take() == Some(Call::CloseFileAndDomain) {
            self.files[file].is_open = false;
        }
    }

    fn provider_destroys(&mut self, qp: usize) {
        let slot = &mut self.qps[qp];

        slot.destructions += 1;
        slot.provider = if slot.qp.phase == Phase::Gone {
            Provider::Absent
        } else {
            Provider::Destroyed
        };
        if slot.destructions > 1 {
            self.breaks(Broken::DestroyedTwice);
        } else if self.closed {
            self.breaks(Broken::OutlivesDomain);
        }
        self.forget(qp);
    }

    /// The handle of the domain is closed. Returns whether it was the last.
    fn close_handle(&mut self, file: usize) -> bool {
        self.files[file].has_handle = false;

        let last = self.files.iter().all(|file| !file.has_handle);

        self.closing |= last;
        last
    }

    /// All that a QP was, after the last report of it.
    fn forget(&mut self, qp: usize) {
        let slot = &self.qps[qp];
        let is_over =
            slot.qp.is_over() && slot.provider == Provider::Absent && !slot.is_registered();
        let is_awaited = self.files.iter().any(|file| match file.call {
            Some(Call::Ended(awaited)) => awaited == qp,
            Some(Call::CloseFile { ended, .. }) => ended[qp],
            _ => false,
        });

        if is_over && !is_awaited {
            self.qps[qp] = Slot::UNUSED;
        }
    }

    /// Whether the provider has destroyed it. QP_GONE may be delivered later.
    fn is_destroyed(&self, qp: usize) -> bool {
        self.qps[qp].provider != Provider::Exists
    }

    /// The same state with other numbers for files and QPs: one of all that differ in these only.
    fn canonical(self) -> Self {
        let mut best = self.with_files_sorted();

        for first in 0..Q {
            for second in first + 1..Q {
                best = best.min(self.with_qps_swapped(first, second).with_files_sorted());
            }
        }
        best
    }

    fn with_qps_swapped(mut self, first: usize, second: usize) -> Self {
        let other = |qp: usize| match qp {
            _ if qp == first => second,
            _ if qp == second => first,
            _ => qp,
        };

        self.qps.swap(first, second);
        for file in &mut self.files {
            match &mut file.call {
                Some(Call::Alloc(qp) | Call::Ended(qp) | Call::Unregistered(qp)) => {
                    *qp = other(*qp)
                }
                Some(Call::CloseFile { ended, .. }) => ended.swap(first, second),
                Some(Call::CloseDomain | Call::CloseFileAndDomain) | None => (),
            }
        }
        self
    }

    fn with_files_sorted(mut self) -> Self {
        let key = |state: &Self, file: usize| {
            let of_qps = state.qps.map(|slot| {
                (
                    slot.registrations[file],
                    slot.pending.map(|event| event[file]),
                    slot.gone[file],
                )
            });

            (state.files[file], of_qps)
        };

        // Few files: a bubble sort.
        for end in (1..F).rev() {
            for file in 0..end {
                if key(&self, file) > key(&self, file + 1) {
                    self.files.swap(file, file + 1);
                    for slot in &mut self.qps {
                        slot.registrations.swap(file, file + 1);
                        slot.gone.swap(file, file + 1);
                        for pending in &mut slot.pending {
                            pending.swap(file, file + 1);
                        }
                    }
                }
            }
        }
        self
    }
}

impl<const F: usize, const Q: usize> System<F, Q> {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn register(&self, state: &mut State<F, Q>, file: usize, qp: usize) {
        let slot = &mut state.qps[qp];

        slot.register(file);
        if self.has(Fault::RegisterJoinsPending) {
            for event in &mut slot.pending {
                event[file] = event.iter().any(|file| *file);
            }
        }
        state.step(qp, Step::Register { keeps: true });
    }

    fn unregister(&self, state: &mut State<F, Q>, file: usize, qp: usize) {
        if state.unregister(file, qp) {
            if self.has(Fault::UnregisterInTwoSteps) {
                state.files[file].call = Some(Call::Unregistered(qp));
            } else {
                state.end_by_call(file, qp);
            }
        }
        state.forget(qp);
    }

    /// The device reports an event, which each registration that exists now, and whose mask has it,
    /// is to read.
    fn event(&self, state: &mut State<F, Q>, qp: usize) {
        let slot = &mut state.qps[qp];
        let is_masked =
            |file: usize| !state.files[file].mask.events && !self.has(Fault::MaskIgnored);

        for file in 0..F {
            let is_for = slot.registrations[file].is_some() && !is_masked(file);

            slot.pending[usize::from(slot.happened)][file] = is_for;
        }
        slot.happened += 1;
        state.step(qp, Step::Event);
    }

    /// QP_GONE follows the events that registrations have not read.
    fn gone(&self, state: &mut State<F, Q>, qp: usize) {
        let slot = &mut state.qps[qp];

        if self.has(Fault::GoneDropsPending) {
            slot.pending = [[false; F]; 2];
        }
        if slot.provider == Provider::Destroyed {
            slot.provider = Provider::Absent;
        }
        for file in 0..F {
            slot.gone[file] = slot.registrations[file].is_some() && state.files[file].mask.gone;
        }
        state.step(qp, Step::Gone);
        for file in 0..F {
            self.ends_with_qp(state, qp, file);
        }
        state.forget(qp);
    }

    /// A registration with a QP that is gone ends when all was read.
    fn ends_with_qp(&self, state: &mut State<F, Q>, qp: usize, file: usize) {
        let slot = &mut state.qps[qp];
        let has_unread = slot.has_pending(file) || slot.gone[file];
        let Some(Registration { since, got }) = slot.registrations[file] else {
            return;
        };

        if slot.qp.phase != Phase::Gone || has_unread && !self.has(Fault::GoneEndsUnread) {
            return;
        }
        slot.unregister(file);
        if has_unread {
            state.breaks(Broken::Unread);
        } else if state.files[file].mask.events && got != state.qps[qp].happened - since {
            state.breaks(Broken::Event);
        }
    }

    /// A registration reads its next event, the last of which is QP_GONE.
    fn deliver(&self, state: &mut State<F, Q>, qp: usize, file: usize) -> Option<()> {
        let slot = &mut state.qps[qp];
        let registration = slot.registrations[file].as_mut()?;

        if let Some(event) = slot.pending.iter_mut().find(|event| event[file]) {
            event[file] = false;
            // With the fault, each of two threads has found it unread.
            registration.got += 1 + u8::from(self.has(Fault::DeliveredTwice));

            let is_too_many = registration.got > slot.happened - registration.since;

            if !state.files[file].mask.events {
                state.breaks(Broken::Masked);
            } else if is_too_many {
                state.breaks(Broken::Event);
            }
        } else {
            slot.gone[file] = false;
        }
        self.ends_with_qp(state, qp, file);
        state.forget(qp);
        Some(())
    }

    fn actions_of_file(&self, state: &State<F, Q>, file: usize, actions: &mut Vec<Action>) {
        let File {
            is_open,
            has_handle,
            call,
            ..
        } = state.files[file];

        match call {
            Some(Call::Alloc(_)) => {
                actions.extend([Action::AllocEnds(file), Action::AllocFails(file)]);
            }
            Some(Call::Unregistered(_)) => actions.push(Action::RemoveUnneeded(file)),
            Some(Call::Ended(qp)) => {
                if state.is_destroyed(qp) || self.has(Fault::UnregisterDoesNotWait) {
                    actions.push(Action::Return(file));
                }
            }
            Some(Call::CloseFile { ended, .. }) => {
                let mut registrations = (0..Q)
                    .filter(|qp| state.qps[*qp].registrations[file].is_some())
                    .skip(self.has(Fault::CloseForgets).into());

                if let Some(qp) = registrations.next() {
                    actions.push(Action::CloseRegistration(file, qp));
                } else if (0..Q).all(|qp| !ended[qp] || state.is_destroyed(qp)) {
                    actions.push(Action::CloseFileHandle(file));
                }
            }
            Some(Call::CloseDomain | Call::CloseFileAndDomain) => {
                let found = (0..Q).find(|qp| {
                    state.qps[*qp].is_found()
                        || self.has(Fault::CloseEndsAll) && state.qps[*qp].qp.phase == Phase::Ended
                });

                if let Some(qp) = found {
                    actions.push(Action::End(qp));
                } else if self.has(Fault::CloseDoesNotWait)
                    || (0..Q).all(|qp| state.is_destroyed(qp))
                {
                    actions.push(Action::DomainClosed(file));
                }
            }
            None if !is_open => (),
            None if state.device == Device::Removing => actions.push(Action::RemoveFile(file)),
            None => {
                actions.push(Action::CloseFile(file));
                if has_handle {
                    actions.push(Action::CloseHandle(file));
                }
                for qp in 0..Q {
                    self.calls(state, file, qp, actions);
                }
            }
        }
    }

    /// The calls that a file without one can begin on a QP, or on its place if there is none.
    fn calls(&self, state: &State<F, Q>, file: usize, qp: usize, actions: &mut Vec<Action>) {
        let slot = &state.qps[qp];

        if slot.registrations[file].is_some() {
            actions.push(Action::Unregister(file, qp));
        }
        if !state.files[file].has_handle {
            return;
        }

        let is_ended = self.has(Fault::RegisterOnEnded) && slot.qp.phase == Phase::Ended;

        if slot.registrations[file].is_none() && (slot.is_found() || is_ended) {
            actions.push(Action::Register(file, qp));
        }
        if slot.is_free() {
            for (lifetime, registers) in [
                (Lifetime::Registrations, true),
                (Lifetime::Domain, true),
                (Lifetime::Domain, false),
            ] {
                actions.push(Action::AllocBegins(file, qp, lifetime, registers));
            }
        }
        if slot.is_found()
            && slot.qp.lifetime == Some(Lifetime::Domain)
            && (!slot.is_registered() || self.has(Fault::DestroyWhileRegistered))
        {
            actions.push(Action::Destroy(file, qp));
        }
    }

    fn actions_of_qp(&self, state: &State<F, Q>, number: usize, actions: &mut Vec<Action>) {
        let slot = &state.qps[number];

        if slot.provider == Provider::Exists && slot.happened < self.events {
            actions.push(Action::Event(number));
        }
        for file in 0..F {
            if slot.has_pending(file) || slot.gone[file] {
                actions.push(Action::Deliver(number, file));
            }
        }

        let helps = match self.fault {
            // Only those that wait destroy it.
            Some(Fault::NobodyDestroys) => state
                .files
                .iter()
                .any(|file| file.call == Some(Call::Ended(number)) || state.closing),
            _ => true,
        };

        if slot.qp.phase == Phase::Ended {
            if slot.provider == Provider::Exists && helps {
                actions.push(Action::ProviderDestroys(number));
            }

            if slot.provider == Provider::Destroyed
                || self.has(Fault::GoneBeforeDestroy) && slot.provider == Provider::Exists
            {
                actions.push(Action::Gone(number));
            }
        }
        // The device still reports events, if QP_GONE did not wait for it.
        if slot.qp.phase == Phase::Gone && slot.provider == Provider::Exists {
            actions.push(Action::ProviderDestroys(number));
        }
    }

    /// States that are reached, without which the properties would say less than they seem to.
    fn shown() -> Vec<Property<Self>> {
        vec![
            Property::sometimes("a QP outlives its creator", |_, state: &State<F, Q>| {
                let is_closed = state.files.iter().any(|file| !file.is_open);

                is_closed && state.qps.iter().any(Slot::is_found)
            }),
            Property::sometimes(
                "a registration is added while an event is pending",
                |_, state: &State<F, Q>| {
                    state.qps.iter().any(|slot| {
                        let is_later = |file: &Option<Registration>| {
                            file.is_some_and(|file| file.since == slot.happened)
                        };

                        slot.pending.iter().flatten().any(|file| *file)
                            && slot.registrations.iter().any(is_later)
                    })
                },
            ),
            Property::sometimes(
                "a QP is gone whose events are unread",
                |_, state: &State<F, Q>| {
                    let is_gone = |slot: &&Slot<F>| slot.qp.phase == Phase::Gone;

                    state
                        .qps
                        .iter()
                        .filter(is_gone)
                        .any(|slot| (0..F).any(|file| slot.has_pending(file)))
                },
            ),
            Property::sometimes("the device is removed", |_, state: &State<F, Q>| {
                state.device == Device::Removed
            }),
        ]
    }

    /// Does what an action does; `None` if nothing can.
    fn take(&self, next: &mut State<F, Q>, action: Action) -> Option<()> {
        match action {
            Action::AllocBegins(file, qp, lifetime, registers) => {
                next.alloc_begins(file, qp, lifetime, registers);
            }
            Action::AllocFails(file) => next.alloc_fails(file)?,
            Action::AllocEnds(file) => next.alloc_ends(file)?,
            Action::Register(file, qp) => self.register(next, file, qp),
            Action::Unregister(file, qp) => self.unregister(next, file, qp),
            Action::RemoveUnneeded(file) => next.remove_unneeded(file)?,
            Action::Destroy(file, qp) => next.end_by_call(file, qp),
            Action::Return(file) => next.return_from_call(file)?,
            Action::CloseHandle(file) => {
                if next.close_handle(file) {
                    next.files[file].call = Some(Call::CloseDomain);
                }
            }
            Action::CloseFile(file) => next.close_file(file, false),
            Action::RemoveFile(file) => next.close_file(file, true),
            Action::CloseRegistration(file, qp) => next.close_registration(file, qp),
            Action::CloseFileHandle(file) => next.close_file_handle(file),
            Action::End(qp) => next.step(qp, Step::End { forced: false }),
            Action::DomainClosed(file) => next.domain_closed(file),
            Action::RemoveDevice => next.device = Device::Removing,
            Action::DeviceRemoved => next.device = Device::Removed,
            Action::Event(qp) => self.event(next, qp),
            Action::Deliver(qp, file) => self.deliver(next, qp, file)?,
            Action::ProviderDestroys(qp) => next.provider_destroys(qp),
            Action::Gone(qp) => self.gone(next, qp),
        }
        Some(())
    }
}

impl<const F: usize, const Q: usize> Model for System<F, Q> {
    type State = State<F, Q>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        assert!(self.events <= 2);
        // The order of files is none: so many masks of each kind.
        let choices = self.masks.len().pow(F as u32);
        let choose = |choice: usize| {
            std::array::from_fn(|file| {
                self.masks[choice / self.masks.len().pow(file as u32) % self.masks.len()]
            })
        };
        let masks = (0..choices)
            .map(choose)
            .filter(|masks: &[Mask; F]| masks.is_sorted());
        let state = |masks: [Mask; F]| State {
            broken: None,
            device: Device::Present,
            closing: false,
            closed: false,
            files: masks.map(|mask| File {
                mask,
                is_open: true,
                has_handle: true,
                call: None,
            }),
            qps: [Slot::UNUSED; Q],
        };
        masks.map(state).collect()
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        if state.broken.is_some() {
            return;
        }
        for file in 0..F {
            self.actions_of_file(state, file, actions);
        }
        for qp in 0..Q {
            self.actions_of_qp(state, qp, actions);
        }
        match state.device {
            // uverbs waits for commands that are running; of files that are being closed, one at a
            // time.
            Device::Present => actions.push(Action::RemoveDevice),
            Device::Removing if state.files.iter().all(|file| !file.is_open) => {
                actions.push(Action::DeviceRemoved);
            }
            Device::Removing | Device::Removed => (),
        }
    }

    fn next_state(&self, state: &Self::State, action: Self::Action) -> Option<Self::State> {
        Mutant::during(self.mutant, || {
            let mut next = *state;

            self.take(&mut next, action)?;
            Some(next.canonical())
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        use Violation::*;

        macro_rules! never {
            ($name:ident: $broken:pat) => {
                Property::always($name, |_: &Self, state: &State<F, Q>| {
                    !matches!(state.broken, Some($broken))
                })
            };
        }

        fn is_last<const F: usize, const Q: usize>(
            system: &System<F, Q>,
            state: &State<F, Q>,
        ) -> bool {
            let mut actions = Vec::new();

            system.actions(state, &mut actions);
            actions.is_empty() && state.broken.is_none()
        }

        let mut properties = vec![
            never!(ONCE: Broken::DestroyedTwice
                | Broken::Specification(EndedTwice | GoneTwice | AllocatedTwice)),
            never!(REGISTERED: Broken::Specification(EndedWhileRegistered)),
            never!(REGISTER: Broken::Specification(RegisteredOnEnded)),
            never!(ONE_STEP: Broken::Specification(NotOneStep | NotCreator | NotRegistered)),
            never!(EVENTS: Broken::Event),
            never!(LAST: Broken::Specification(EventAfterGone)),
            never!(MASKED: Broken::Masked),
            never!(UNREAD: Broken::Unread),
            never!(DOMAIN: Broken::OutlivesDomain),
            never!(RETURNS: Broken::ReturnedEarly),
            never!(FILE: Broken::OutlivesFile),
            // Such a state is the last, and no end of the properties below.
            Property::always(NOTHING, |_, state: &State<F, Q>| state.broken.is_none()),
            Property::always(EVENTUALLY, |system, state: &State<F, Q>| {
                let exists = |slot: &Slot<F>| slot.provider != Provider::Absent;

                !is_last(system, state) || !state.qps.iter().any(exists)
            }),
            Property::always(ZERO, |system, state: &State<F, Q>| {
                let is_left = |file: &File<Q>| file.is_open || file.has_handle;
                let is_used =
                    |slot: &Slot<F>| slot.provider == Provider::Absent && *slot != Slot::UNUSED;

                !is_last(system, state)
                    || !state.qps.iter().any(is_used) && !state.files.iter().any(is_left)
                    || state
                        .qps
                        .iter()
                        .any(|slot| slot.provider != Provider::Absent)
            }),
        ];
        properties.extend(Self::shown());
        properties
    }
}
