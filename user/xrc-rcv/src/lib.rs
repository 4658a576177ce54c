// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! XRC receive queue pairs that the kernel owns.
//!
//! With InfiniBand's extended reliable connected transport (XRC) one connection per remote *node*
//! feeds the shared receive queues of every local *process*. The kernel module `ib_xrc_rcv` owns
//! the receiving end of such a connection, so that it belongs to no process: any process of an XRC
//! domain creates it, others register with it, each of them receives its events, and it is
//! destroyed with its last registration.
//!
//! # Examples
//!
//! ```no_run
//! # #[cfg(feature = "verbs")]
//! # fn main() -> xrc_rcv::Result<()> {
//! use xrc_rcv::{AllocOptions, Device, verbs::Srq};
//!
//! let device = Device::open("mlx4_0")?;
//! let domain = device.open_domain_at("/run/service/domain")?;
//! let mut srq = Srq::new(&domain, 16, 4096)?;
//! let channel = domain.create_event_channel()?;
//! let qp = domain.alloc(&AllocOptions::new().channel(&channel).cookie(7))?;
//! println!("senders connect to {:#x} and name SRQ {:#x}", qp.qp_num(), srq.srq_num());
//! while let Some(message) = srq.receive(None)? {
//!     println!("{} bytes", message.len());
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "verbs"))]
//! # fn main() {}
//! ```
//!
//! # Objects
//!
//! [`Device`], [`Domain`], [`Registration`], [`EventChannel`], [`Pd`] and those of the module
//! `verbs` are owned, `'static`, `Send` and `Sync`; `Device`, `Domain` and `Pd` are cheap to clone.
//! Each keeps open the objects it was made through, so they may be dropped in any order. All calls
//! may be made from any thread, with the same object as well; an event and a message are returned
//! to one of several readers.
//!
//! # Other bindings
//!
//! [`Device::from_ibv`] takes an open `ibv_context` of any binding of libibverbs, with an owner
//! that keeps it open; [`Domain::from_ibv`] does the same with an `ibv_xrcd`, and
//! [`Device::open_domain`] opens one on such a device for bindings that have none.
//! [`Device::as_ibv`] and [`Domain::as_ibv`] are the way back; [`Pd`] has the same calls.
//!
//! With the feature `sideway`, `Device` and `Pd` are made from that crate's `Arc<DeviceContext>`
//! and `Arc<ProtectionDomain>` without unsafe code:
//!
//! ```no_run
//! # #[cfg(feature = "sideway")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use xrc_rcv::{Device, Pd};
//!
//! let list = sideway::ibverbs::device::DeviceList::new()?;
//! let context = list.iter().next().ok_or("there is no device")?.open()?;
//! let pd = Pd::from(context.alloc_pd()?);
//! let device = Device::from(context);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sideway"))]
//! # fn main() {}
//! ```
//!
//! The crate `ibverbs` (0.9.2) does not return the pointers to its context and its protection
//! domains, so neither can be made from them. A program that uses it opens the device a second
//! time, by `Device::open` of the same name: both see the same domains, which are found by their
//! file, but PDs, SRQs and memory regions of one are not usable with the other.
//!
//! # Waiting
//!
//! [`EventChannel`] is a file descriptor: poll it ([`AsFd`](std::os::fd::AsFd)), give it to an
//! event loop after [`set_nonblocking`](EventChannel::set_nonblocking), or use
//! [`wait`](EventChannel::wait). SRQs and initiators of the module `verbs` have descriptors as
//! well. With the feature `tokio`, `EventStream` is the stream of a channel, `verbs::MessageStream`
//! that of an SRQ, and `verbs::Requests` has the requests of an initiator as futures.
//!
//! # Restarts
//!
//! [`Domain::adopt`] registers the successor of a process with the receive QPs that it left in the
//! domain, which are those with [`Lifetime::Domain`] if another process holds the domain open, such
//! as `xrc-rcv hold`. With a socket it is the [`Keeper`] of descriptors as well: an open device, so
//! that requests under way are done while no process runs, and the memory that they need. With the
//! feature `verbs`, `Device::import` gives the successor such a device, and with it the PDs and
//! memory regions whose keys its peers know, where the device's provider can.
//!
//! # Processes
//!
//! The crate has no threads, and its locks are free in a child after `fork()`, but those of an
//! `EventStream` and of `verbs::Requests`. Parent and child share the open objects, and with them
//! the registrations: one that the child drops ends for both. A process that reads an event returns
//! it if it knows the registration, and a child knows those that were made before it was forked.
//! The kernel ends the registrations of a process when it exits, however it exits.
//!
//! # Requirements
//!
//! Linux 7.2 or later with the module `ib_xrc_rcv`, and a device whose driver has XRC, as
//! [`Device::query_caps`] reports. Rust 1.85. Without features the crate links with
//! nothing but the C library; `verbs` links with libibverbs, and adds `Device::open` and the module
//! `verbs`; `tokio` adds `EventStream`, `verbs::MessageStream` and `verbs::Requests`; `sideway`
//! builds that crate, with CMake and libclang.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "verbs")]
#[cfg_attr(docsrs, doc(cfg(feature = "verbs")))]
pub mod verbs;

mod registration;
#[cfg(feature = "tokio")]
mod stream;

mod domain;
#[cfg(feature = "sideway")]
#[cfg_attr(docsrs, doc(cfg(feature = "sideway")))]
mod sideway;

mod pd;

mod device;

pub mod borrowed;

mod receive_qp;

mod attr;
mod caps;

mod channel;
mod records;
mod registered;

mod channel_ioctl;
mod uverbs;
#[doc(hidden)]
pub mod verbs_sys;

mod error;

#[cfg(feature = "tokio")]
mod async_fd;
#[cfg(feature = "verbs")]
mod completion;
pub mod ffi;
mod keeper;
pub mod uapi;

pub use attr::{Access, Mtu, Path, QpAttr, QpAttrMask, QpState};
pub use caps::Caps;
pub use channel::{Event, EventChannel, EventType, EventTypes, Events};
pub use device::Device;
pub use domain::{Domain, QpInfos};
pub use error::{Cause, Error, Result};
pub use keeper::Keeper;
pub use pd::Pd;
pub use receive_qp::{AllocOptions, Lifetime, QpInfo, RegisterOptions};
pub use registration::{AdoptedQp, Registration};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use stream::EventStream;
