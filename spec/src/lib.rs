// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The specification of receive QPs in `Documentation/semantics.rst`, as state machines.
//!
//! [`Qp`] is the state machine of one receive QP. Its [steps](Step) are the module's reports to
//! tracepoints and notifiers, in the order of the lock of the domain, and [`Qp::step`] fails at the
//! first one that the specification does not allow. [`Device`] has the QPs of a device with the
//! holders of their registrations. [`Contract`] has the calls of processes with the results that
//! each may have, and the records that each event channel has to read. [`Method::errors`] are the
//! errors that the documents have, of which [`Wrong`] has those that depend on no object.
//! `Documentation/proof.rst` says what uses them, and each [`Mutant`] is a fault that these have to
//! notice.

mod call;
mod contract;
mod device;
mod errno;
mod method;
mod mutant;
mod objects;
mod qp;
mod wrong;

pub use call::{
    Alloc, Attributes, Breach, Call, Caller, Destroy, Id, Membership, Modify, Outcome, Results,
    Right, State,
};
pub use contract::Contract;
pub use device::{Delivery, Device, Holder, Record, Registrations, What};
pub use errno::{Errno, Errnos};
pub use method::Method;
pub use mutant::Mutant;
pub use objects::{Event, OVERRUN, Objects, QP_ADDED, QP_GONE};
pub use qp::{Lifetime, Phase, Qp, Step, Violation};
pub use wrong::Wrong;
