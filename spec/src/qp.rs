// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The life of one receive QP, as a state machine of the steps that the module reports.

use std::fmt;

use crate::Mutant;

/// The lifetime of a receive QP: it ends with the last registration that keeps it, or with its
/// domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lifetime {
    /// Its registrations.
    Registrations,
    /// Its domain.
    Domain,
}

/// The phases of a receive QP's life, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// It is being created, and cannot be found.
    New,
    /// ALLOC was reported with a registration of its creator, which follows.
    Allocated,
    /// It can be found by its number.
    Found,
    /// No registration keeps it any more: but for events, its end is the next step.
    Unneeded,
    /// It has ended: the provider destroys it.
    Ended,
    /// The provider has destroyed it, and QP_GONE was delivered, which may be after the call that
    /// ended it. Its registrations have ended with it.
    Gone,
}

/// A report of a receive QP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// It was added to its domain.
    Alloc {
        /// With a registration of its creator, which a QP of lifetime [`Lifetime::Domain`] may
        /// be created without.
        registers: bool,
    },
    /// A registration was added, which keeps the QP or not.
    Register {
        /// Whether it does.
        keeps: bool,
    },
    /// A registration ended, which kept the QP or not.
    Unregister {
        /// Whether it did.
        keeps: bool,
    },
    /// It was removed from its domain, to be destroyed.
    End {
        /// By DESTROY with FORCE.
        forced: bool,
    },
    /// An event was delivered to its registrations. This report alone is not in the order of the
    /// lock of the domain: an event from before the last UNREG may be reported after the QP's end,
    /// but none after [`Step::Gone`].
    Event,
    /// It was destroyed, and QP_GONE delivered.
    Gone,
}

/// The rule that a step breaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Violation {
    /// ALLOC was reported before.
    AllocatedTwice,
    /// A step came between ALLOC and the registration of the QP's creator, or there is none to
    /// keep the QP.
    NotCreator,
    /// A REG succeeded on a QP that has ended, or cannot be found yet.
    RegisteredOnEnded,
    /// A registration ended that did not exist.
    NotRegistered,
    /// The last registration that kept the QP has ended, and another step came before its end: a
    /// REG there would succeed on a QP that is destroyed at once.
    NotOneStep,
    /// The QP ended before.
    EndedTwice,
    /// The QP ended while registrations kept it, its domain was not closed, and it was not forced.
    EndedWhileRegistered,
    /// The QP was destroyed before it ended, or twice.
    GoneTwice,
    /// An event was delivered after QP_GONE.
    EventAfterGone,
    /// An event was for more or for fewer registrations than there were, or was delivered to more
    /// or to fewer than those whose masks have its type.
    DeliveredToOthers,
    /// A registration ended with another event mask than it began with.
    OtherMask,
    /// Another number of registrations was reported.
    WrongCount,
    /// The QP was never created, or was destroyed.
    Unknown,
    /// Another QP that can be found has the number.
    SameNumber,
    /// The event channel is registered with the QP.
    SameFile,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::AllocatedTwice => "the QP was created before",
            Violation::NotCreator => {
                "the registration of the creator follows ALLOC, and nothing comes between"
            }
            Violation::RegisteredOnEnded => "no REG succeeds on a QP that cannot be found",
            Violation::NotRegistered => "the registration does not exist",
            Violation::NotOneStep => "the last UNREG that keeps a QP and its end are one step",
            Violation::EndedTwice => "a QP that cannot be found ends",
            Violation::EndedWhileRegistered => {
                "a QP ends while registrations keep it, and its domain is open"
            }
            Violation::GoneTwice => "a QP is destroyed once, after it has ended",
            Violation::EventAfterGone => "QP_GONE is the last event",
            Violation::DeliveredToOthers => {
                "an event is delivered to each registration that exists when it happens, and no other"
            }
            Violation::OtherMask => "a registration has one event mask",
            Violation::WrongCount => "the QP has another number of registrations",
            Violation::Unknown => "there is no such QP",
            Violation::SameNumber => "another QP of the domain has the number",
            Violation::SameFile => "an event channel registers with a QP once",
        })
    }
}

/// A receive QP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Qp {
    /// The phase of its life.
    pub phase: Phase,
    /// `None` if it is not known, as that of a QP that was created before the reports began.
    pub lifetime: Option<Lifetime>,
    /// The number of registrations, that of the creator not before it is reported.
    pub registrations: u32,
    /// The number of those that keep it.
    pub keeping: u32,
    /// Members that are registered with all QPs of the domain keep it, too.
    pub held: bool,
}

impl Qp {
    /// A QP that is being created.
    pub const NEW: Qp = Qp {
        phase: Phase::New,
        lifetime: None,
        registrations: 0,
        keeping: 0,
        held: false,
    };

    /// The state after a step, or what that breaks. `closed`: the last close of its domain has
    /// begun.
    pub fn step(mut self, step: Step, closed: bool) -> Result<Qp, Violation> {
        use Phase::*;
        match (step, self.phase) {
            (Step::Event, Gone) => return Err(Violation::EventAfterGone),
            (Step::Event, _) => (),

            (Step::Alloc { registers: true }, New) => self.phase = Allocated,
            (Step::Alloc { registers: false }, New) => {
                if self.lifetime != Some(Lifetime::Domain) && !self.held {
                    return Err(Violation::NotCreator);
                }
                self.phase = if closed { Unneeded } else { Found };
            }
            (Step::Alloc { .. }, _) => return Err(Violation::AllocatedTwice),

            (Step::Register { keeps: true }, Allocated) => {
                self.registrations = 1;
                self.keeping = 1;
                // The domain was closed while it was created: it was added and removed at once.
                self.phase = if closed { Unneeded } else { Found };
            }
            (_, Allocated) => return Err(Violation::NotCreator),
            (Step::Register { keeps }, Found) if !closed => {
                self.registrations += 1;
                self.keeping += u32::from(keeps);
            }
            (Step::Register { .. }, Unneeded) if !closed => return Err(Violation::NotOneStep),
            (Step::Register { .. }, _) => return Err(Violation::RegisteredOnEnded),

            // A registration may end after its QP has, and be reported after QP_GONE.
            (Step::Unregister { .. }, New) => return Err(Violation::NotRegistered),
            (Step::Unregister { keeps }, _)
                if self.registrations == 0 || self.keeping < u32::from(keeps) =>
            {
                return Err(Violation::NotRegistered);
            }
            (Step::Unregister { keeps }, phase) => {
                self.loses(keeps);
                if phase == Found
                    && !self.is_kept()
                    && self.lifetime == Some(Lifetime::Registrations)
                {
                    self.phase = Unneeded;
                }
            }

            (Step::End { forced }, Found | Unneeded) => {
                let may_be_kept = closed || forced || self.lifetime.is_none();
                if self.is_kept() && !may_be_kept {
                    return Err(Violation::EndedWhileRegistered);
                }
                self.phase = Ended;
            }
            (Step::End { .. }, _) => return Err(Violation::EndedTwice),

            (Step::Gone, Ended) => self.phase = Gone,
            (Step::Gone, Found) if self.lifetime.is_none() => self.phase = Gone,
            (Step::Gone, _) => return Err(Violation::GoneTwice),
        }
        Ok(self)
    }

    /// A registration ends.
    fn loses(&mut self, keeps: bool) {
        if !Mutant::UnregNotCounted.is_made() {
            self.registrations -= 1;
            self.keeping -= u32::from(keeps);
        }
    }

    fn is_kept(&self) -> bool {
        self.keeping != 0 || self.held
    }

    /// Whether nothing is reported of it any more.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Gone
    }
}
