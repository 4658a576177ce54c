// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Calls of processes, and the results that they have.

use std::fmt;

use crate::{Errno, Errnos, Lifetime, Method};

/// The number that the user of the contract gives to a uverbs file, a domain or an event channel.
pub type Id = u64;

/// The right of a process in a domain or over a QP. Each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Right {
    /// To list and query QPs, and to receive their events.
    Use,
    /// To create, modify and keep QPs.
    Write,
    /// To destroy QPs that others keep.
    Own,
}

/// A process at the time of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The uverbs file that the call is made on; that of the event channel, for an ioctl of the
    /// channel itself.
    pub file: Id,
    /// The user.
    pub user: u32,
    /// The right of the process by the file of the domain that the call names: that over a QP of
    /// its own does not depend on it.
    pub right: Right,
}

/// The attributes that ALLOC or MODIFY passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attributes {
    /// None.
    Absent,
    /// Those with which the QP goes to this state, from RESET with ALLOC.
    To(State),
    /// A set that no transition has, or values that are out of range.
    Invalid,
    /// Attributes that the user of the contract does not know.
    Any,
}

/// The state of a receive QP, in `ibv_modify_qp()`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Err,
}

impl State {
    /// All of them.
    pub const ALL: [State; 6] = [
        State::Reset,
        State::Init,
        State::Rtr,
        State::Rts,
        State::Sqd,
        State::Err,
    ];

    /// Whether an XRC target QP has a transition to another state, or to the same one.
    pub fn may_go_to(self, to: State) -> bool {
        use State::*;
        matches!(
            (self, to),
            (_, Reset)
                | (Init | Rtr | Rts | Sqd | Err, Err)
                | (Reset | Init, Init)
                | (Init, Rtr)
                | (Rtr | Rts | Sqd, Rts)
                | (Rts | Sqd, Sqd)
        )
    }
}

/// The arguments of ALLOC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alloc {
    /// The handle of the domain.
    pub handle: u64,
    /// `None` if a flag is unknown.
    pub lifetime: Option<Lifetime>,
    /// The attributes.
    pub attributes: Attributes,
    /// The event channel that is registered.
    pub channel: Option<Id>,
}

/// The arguments of MODIFY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modify {
    /// The handle of the domain.
    pub handle: u64,
    /// The QP number.
    pub number: u32,
    /// The attributes.
    pub attributes: Attributes,
}

/// The arguments of DESTROY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destroy {
    /// The handle of the domain.
    pub handle: u64,
    /// The QP number.
    pub number: u32,
    /// Whether FORCE is set; `None` if an unknown flag is.
    pub force: Option<bool>,
}

/// The QPs that an event channel is registered with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Membership {
    /// Those that REG names.
    Named,
    /// All of the domain, also those that are created later.
    All,
    /// So, and it keeps none.
    Observer,
}

/// A call of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// ALLOC.
    Alloc(Alloc),
    /// MODIFY.
    Modify(Modify),
    /// QUERY.
    Query {
        /// The handle of the domain.
        handle: u64,
        /// The QP number.
        number: u32,
    },
    /// REG of an event channel with QPs, in this order: the method, or the ioctl of the channel.
    Reg {
        /// The event channel.
        channel: Id,
        /// The QP numbers.
        numbers: Vec<u32>,
    },
    /// UNREG, likewise.
    Unreg {
        /// The event channel.
        channel: Id,
        /// The QP numbers.
        numbers: Vec<u32>,
    },
    /// DESTROY.
    Destroy(Destroy),
    /// QUERY_DOMAIN.
    QueryDomain {
        /// The handle of the domain.
        handle: u64,
    },
    /// QUERY_CAPS.
    QueryCaps,
    /// EVENT_CHANNEL_ALLOC.
    EventChannelAlloc {
        /// The handle of the domain.
        handle: u64,
        /// The types of events that it reports: bit n is that of type n.
        mask: u64,
        /// The QPs that it is registered with; `None` if a flag is unknown.
        of: Option<Membership>,
    },
}

impl Call {
    /// Returns the method.
    pub fn method(&self) -> Method {
        match self {
            Call::Alloc(..) => Method::Alloc,
            Call::Modify(..) => Method::Modify,
            Call::Query { .. } => Method::Query,
            Call::Reg { .. } => Method::Reg,
            Call::Unreg { .. } => Method::Unreg,
            Call::Destroy(..) => Method::Destroy,
            Call::QueryDomain { .. } => Method::QueryDomain,
            Call::QueryCaps => Method::QueryCaps,
            Call::EventChannelAlloc { .. } => Method::EventChannelAlloc,
        }
    }
}

/// The results that a call may have. Those that the objects do not decide are the user's of the
/// contract to add: a bad pointer, a signal, no memory, a provider that fails.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Results {
    /// The call fails with one of these, if there is one.
    pub certain: Errnos,
    /// The call may fail with these.
    pub possible: Errnos,
    /// The number of QP numbers that REG or UNREG processes before an error of `certain`.
    pub done: usize,
}

impl Results {
    /// Adds an error that is certain if something is wrong.
    pub(crate) fn refuse_if(&mut self, is_wrong: bool, errno: Errno) {
        self.certain.add_if(is_wrong, errno);
    }

    /// Whether it is one of the results.
    pub fn has(&self, result: Result<(), Errno>) -> bool {
        match result {
            Ok(()) => self.certain.is_empty(),
            Err(errno) => self.certain.or(self.possible).has(errno),
        }
    }
}

/// The result of a call, with its answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Success, or the error.
    pub result: Result<(), Errno>,
    /// The QP number that ALLOC returns.
    pub number: u32,
    /// The serial number that ALLOC returns.
    pub serial: u64,
    /// The event channel that EVENT_CHANNEL_ALLOC makes.
    pub channel: Id,
    /// The number of QP numbers that REG or UNREG processed.
    pub done: usize,
    /// The number of QPs that QUERY_DOMAIN returns.
    pub total: Option<usize>,
}

impl Outcome {
    /// Returns the QP numbers of an array that were processed: all if the call succeeds, those
    /// before the first that is wrong, or fewer if the call ends for another reason.
    pub(crate) fn check_done<'a>(
        &self,
        numbers: &'a [u32],
        results: &Results,
    ) -> Result<&'a [u32], Breach> {
        let is_right = match self.result {
            Ok(()) => self.done == numbers.len(),
            Err(errno) if results.certain.has(errno) => self.done == results.done,
            Err(_) => self.done <= results.done,
        };
        match numbers.get(..self.done) {
            Some(done) if is_right => Ok(done),
            _ => Err(Breach::Done(results.done)),
        }
    }
}

/// A promise of the contract that a call breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Breach {
    /// The call has another result than these.
    Result(Results),
    /// Another QP of the domain has the number.
    Number,
    /// The domain had a QP with the serial number.
    Serial,
    /// The domain has another number of QPs.
    Total(usize),
    /// REG or UNREG processed another number of QP numbers.
    Done(usize),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Result(results) if results.certain.is_empty() => {
                write!(
                    f,
                    "the call succeeds, or fails with one of {:?}",
                    results.possible
                )
            }
            Breach::Result(results) => {
                let errors = results.certain.or(results.possible);
                write!(f, "the call fails with one of {errors:?}")
            }
            Breach::Number => f.write_str("another QP of the domain has the number"),
            Breach::Serial => f.write_str("a serial number is given away once"),
            Breach::Total(total) => write!(f, "the domain has {total} QPs"),
            Breach::Done(done) => write!(f, "{done} QP numbers are processed"),
        }
    }
}
