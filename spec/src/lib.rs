// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The specification of receive QPs in `Documentation/semantics.rst`, as state machines.
//!
//! [`Qp`] is the state machine of one receive QP. Its [steps](Step) are the module's reports to
//! tracepoints and notifiers, in the order of the lock of the domain, and [`Qp::step`] fails at the
//! first one that the specification does not allow. [`Device`] has the QPs of a device with the
//! holders of their registrations. `Documentation/proof.rst` says what uses them.

mod device;
mod qp;

pub use device::{Delivery, Device, Holder, Record, Registrations, What};
pub use qp::{Lifetime, Phase, Qp, Step, Violation};
