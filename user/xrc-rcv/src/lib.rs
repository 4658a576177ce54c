// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! XRC receive queue pairs that the kernel owns.
//!
//! With InfiniBand's extended reliable connected transport (XRC) one connection per remote *node*
//! feeds the shared receive queues of every local *process*. The kernel module `ib_xrc_rcv` owns
//! the receiving end of such a connection, so that it belongs to no process: any process of an XRC
//! domain creates it, others register with it, each of them hears of its events, and it goes away
//! when nobody needs it.
//!
//! This crate speaks the module's ioctl interface on the uverbs file that an ordinary
//! `ibv_context` has open. It needs nothing of libibverbs but the objects it is given, and works
//! with whatever binding made them.
//!
//! # Examples
//!
//! ```no_run
//! # use xrc_rcv::{Context, Domain, AllocOptions, QpAttr, ffi};
//! # fn f(xrcd: *mut ffi::ibv_xrcd) -> xrc_rcv::Result<()> {
//! // `xrcd` came from `ibv_open_xrcd()` and is open.
//! let domain = unsafe { Domain::from_ibv(xrcd) }?;
//! let channel = domain.context().create_event_channel()?;
//! let qp = domain.alloc(&AllocOptions::new().channel(&channel).cookie(7))?;
//! println!("senders connect to {:#x}", qp.qp_num());
//! for event in channel.wait()? {
//!     println!("{event}");
//! }
//! # Ok(()) }
//! ```

mod attr;
mod caps;
mod channel;
mod context;
mod domain;
mod error;
pub mod ffi;
mod registration;
pub mod uapi;
mod uverbs;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use attr::{Access, Mtu, Path, QpAttr, QpAttrMask, QpState};
pub use caps::Caps;
pub use channel::{Event, EventChannel, EventType, Events};
pub use context::Context;
pub use domain::{AllocOptions, Domain, Lifetime, QpInfo, QpInfos, RegisterOptions};
pub use error::{Error, Result};
pub use registration::Registration;
