// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Everything an adapter has that is no card's own. It knows no card; a group of lines may import
//! groups below it.

pub mod control;
pub mod server;

pub mod fabric;

pub mod adapter;

pub mod management;
pub mod requester;
pub mod responder;

pub mod data;
pub mod progress;

pub mod hca;

pub mod administration;
pub mod capture;

pub mod completion;
pub mod key;
pub mod packet;
pub mod port;
pub mod qp;

pub mod event;
pub mod fault;
pub mod headers;
pub mod memory;
pub mod pci;
pub mod schedule;
pub mod transport;
pub mod work;

pub mod bytes;
pub mod violation;
