// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The sending half of a QP: takes work requests in order, turns each into a packet, and completes
//! it by the answer. A request that has to be tried again stays at the head of its queue.

use std::time::Instant;

use thiserror::Error;

use crate::cq::{Cqe, Syndrome};
use crate::eq::EventType;
use crate::fabric::{previous_psn, Atomic, Body, DatagramHeader, Nak, Packet, Reply, Response};
use crate::hca::Hca;
use crate::memory::DmaError;
use crate::mpt::{Access, KeyError};
use crate::qp::Qp;
use crate::qpc::{Migration, Service, State};
use crate::responder::Drop;
use crate::violation::Violation;
use crate::wqe::{Request, Segment, SendWqe};

/// Bytes of an atomic's operand and answer.
const ATOMIC_SIZE: u64 = 8;
/// In a Q_Key: the sender's own is meant.
const QKEY_OWN: u32 = 1 << 31;

/// A request under way.
pub struct Transfer {
    /// The WQE; none when even that is broken.
    wqe: Option<SendWqe>,
    /// The packet to send; none when the request ends here.
    pub packet: Option<Packet>,
    /// Why it fails here.
    error: Option<Syndrome>,
    /// Bytes the completion reports.
    bytes: u64,
}

/// Why a request cannot even leave.
#[derive(Debug, Error)]
enum LocalError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Dma(#[from] DmaError),
    #[error("message of {0} bytes is too long")]
    Length(u64),
    #[error("not possible with this QP")]
    Operation,
}

impl LocalError {
    fn syndrome(&self) -> Syndrome {
        match self {
            Self::Key(_) | Self::Dma(_) => Syndrome::LocalProtErr,
            Self::Length(_) => Syndrome::LocalLengthErr,
            Self::Operation => Syndrome::LocalQpOpErr,
        }
    }
}

impl Hca {
    /// The request QP `qpn` sends next, if it may send now.
    pub fn next_transfer(&mut self, qpn: u32, now: Instant) -> Option<Transfer> {
        if self.faults.is_dead() {
            return None;
        }
        let qp = self.qps.get_mut(qpn)?;
        if std::mem::take(&mut qp.overrun) && qp.state != State::Err {
            self.event(EventType::WqCatasError, qpn);
            self.enter_error(qpn, now);
            return None;
        }
        let qp = self.qps.get_mut(qpn)?;
        match qp.state {
            // A target has no requester.
            _ if qp.is_xrc_target() && qp.state != State::Err => return None,
            State::Rts => {}
            State::SqDraining if qp.stall.is_some() => {}
            State::Err => {
                self.flush(qpn, now);
                return None;
            }
            State::Sqer => {
                self.enter_send_error(qpn);
                return None;
            }
            _ => return None,
        }
        if qp.stall.is_some_and(|stall| stall.until > now) {
            return None;
        }
        let control = match qp.send_head(&self.dma) {
            Ok(head) => head?,
            Err(error) => {
                // The queue itself cannot be read: there is no WQE to complete.
                log::warn!("QP {qpn:#x}: {error}");
                self.event(EventType::WqCatasError, qpn);
                self.enter_error(qpn, now);
                return None;
            }
        };
        let qp = self.qps.get(qpn)?;
        if qp.service == Service::Mlx {
            return Some(self.swallow(qpn, control));
        }
        let parsed = qp
            .send_wqe(&self.dma, &control)
            .ok()
            .flatten()
            .and_then(|bytes| SendWqe::parse(control, &bytes, qp.service == Service::Ud));
        let Some(wqe) = parsed else {
            return Some(Transfer {
                wqe: None,
                packet: None,
                error: Some(Syndrome::LocalQpOpErr),
                bytes: 0,
            });
        };
        if wqe.inline_across_line {
            self.dma.violations.note(
                Violation::InlineAcrossLine,
                format_args!("QP {qpn:#x}, WQE {:#x}", qp.sq.index),
            );
        }
        let bytes = match wqe.request {
            Request::CompareSwap { .. } | Request::FetchAdd { .. } => ATOMIC_SIZE,
            _ => wqe.length(),
        };
        let (packet, error) = match self.packet(qp, &wqe) {
            Ok(packet) => (packet, None),
            Err(error) => {
                log::debug!("QP {qpn:#x}: {error}");
                (None, Some(error.syndrome()))
            }
        };
        if packet.is_some() {
            self.counters.count_request(wqe.request.name());
        }
        Some(Transfer {
            wqe: Some(wqe),
            packet,
            error,
            bytes,
        })
    }

    /// QP0 and QP1 send to a subnet manager, and there is none: the request completes.
    fn swallow(&mut self, qpn: u32, control: crate::wqe::ControlSegment) -> Transfer {
        log::debug!("MAD of QP {qpn:#x} swallowed");
        self.counters.mads_swallowed = self.counters.mads_swallowed.saturating_add(1);
        Transfer {
            wqe: Some(SendWqe {
                control,
                request: Request::Nop,
                datagram: None,
                segments: Vec::new(),
                inline_across_line: false,
            }),
            packet: None,
            error: None,
            bytes: 0,
        }
    }

    fn packet(&self, qp: &Qp, wqe: &SendWqe) -> Result<Option<Packet>, LocalError> {
        let length = wqe.length();
        if length > qp.context.max_message() {
            return Err(LocalError::Length(length));
        }
        let immediate = |wanted: bool| wanted.then_some(wqe.control.immediate);
        let body = match wqe.request {
            Request::Nop => return Ok(None),
            Request::Send { immediate: wanted } => Body::Send {
                payload: self.gather(qp, &wqe.segments)?,
                immediate: immediate(wanted),
            },
            Request::Write {
                remote,
                immediate: wanted,
            } => Body::Write {
                address: remote.address,
                rkey: remote.rkey,
                payload: self.gather(qp, &wqe.segments)?,
                immediate: immediate(wanted),
            },
            _ if !qp.service.reliable() => return Err(LocalError::Operation),
            Request::Read { remote } => Body::Read {
                address: remote.address,
                rkey: remote.rkey,
                length,
            },
            Request::CompareSwap {
                remote,
                swap,
                compare,
            } => Body::Atomic {
                address: remote.address,
                rkey: remote.rkey,
                operation: Atomic::CompareSwap { swap, compare },
            },
            Request::FetchAdd { remote, add } => Body::Atomic {
                address: remote.address,
                rkey: remote.rkey,
                operation: Atomic::FetchAdd(add),
            },
        };
        let path = qp.context.path();
        let port = match &wqe.datagram {
            Some(datagram) => datagram.port,
            None => path.port,
        };
        let slid = self.port(port).ok_or(LocalError::Operation)?.lid;
        let pkey = self.pkey(port, path.pkey_index).unwrap_or(0);
        let psn = qp.context.send_psn();
        let mtu = qp.context.path_mtu().ok_or(LocalError::Operation)?;
        if wqe.datagram.is_some() && length > mtu {
            return Err(LocalError::Length(length));
        }
        Ok(Some(match &wqe.datagram {
            Some(datagram) => Packet {
                slid,
                dlid: datagram.dlid,
                service_level: datagram.service_level,
                service: qp.service,
                pkey,
                gids: None,
                dqpn: datagram.dqpn,
                psn,
                mtu,
                srqn: 0,
                migration_request: false,
                solicited: wqe.control.solicited,
                body,
                datagram: Some(DatagramHeader {
                    sqpn: qp.qpn,
                    qkey: if datagram.qkey & QKEY_OWN != 0 {
                        qp.context.qkey()
                    } else {
                        datagram.qkey
                    },
                    sgid: self.port_gid(port),
                    dgid: datagram.dgid,
                }),
            },
            None => Packet {
                slid,
                dlid: path.remote_lid,
                service_level: qp.context.service_level(),
                service: qp.service,
                pkey,
                gids: path
                    .grh
                    .map(|(index, remote)| (self.gid(port, index).unwrap_or([0; 16]), remote)),
                dqpn: qp.context.remote_qpn(),
                psn,
                mtu,
                srqn: wqe.control.srqn,
                migration_request: qp.context.migration() == Migration::Migrated,
                solicited: wqe.control.solicited,
                body,
                datagram: None,
            },
        }))
    }

    /// Reads a gather list.
    fn gather(&self, qp: &Qp, segments: &[Segment]) -> Result<Vec<u8>, LocalError> {
        let length = crate::wqe::total(segments);
        let mut payload = Vec::new();
        usize::try_from(length)
            .ok()
            .and_then(|length| payload.try_reserve_exact(length).ok())
            .ok_or(LocalError::Length(length))?;
        for segment in segments {
            match segment {
                Segment::Inline(data) => payload.extend_from_slice(data),
                Segment::Memory {
                    length,
                    lkey,
                    address,
                } => {
                    let region = self.keys.open(
                        &self.dma,
                        *lkey,
                        qp.context.pd(),
                        *address,
                        u64::from(*length),
                        Access::LocalRead,
                    )?;
                    let start = payload.len();
                    payload.resize(start.saturating_add(*length as usize), 0);
                    if let Some(piece) = payload.get_mut(start..) {
                        region.read(&self.dma, piece)?;
                    }
                }
            }
        }
        Ok(payload)
    }

    /// Writes `data` over a scatter list that belongs to protection domain `pd`. False: it does
    /// not fit.
    pub fn scatter(&self, pd: u32, segments: &[Segment], data: &[u8]) -> Result<bool, KeyError> {
        let mut rest = data;
        for segment in segments {
            if rest.is_empty() {
                break;
            }
            let Segment::Memory {
                length,
                lkey,
                address,
            } = segment
            else {
                continue;
            };
            let (now, later) = rest.split_at((*length as usize).min(rest.len()));
            let region = self.keys.open(
                &self.dma,
                *lkey,
                pd,
                *address,
                now.len() as u64,
                Access::LocalWrite,
            )?;
            region.write(&self.dma, now)?;
            rest = later;
        }
        Ok(rest.is_empty())
    }

    /// Applies a response to the request of QP `qpn` that waits for one.
    pub fn take_response(&mut self, qpn: u32, packet: &Packet, response: Response) -> Reply {
        let ours = self.qps.get(qpn).is_some_and(|qp| {
            let path = qp.context.path();
            response.dqpn == qpn
                && self.on_path(&path, response.slid, response.dlid)
                && self.pkey_matches(&path, response.pkey)
        });
        let awaited = match response.reply {
            Reply::Ack { .. } => previous_psn(packet.next_psn()),
            _ => packet.psn,
        };
        if !ours || response.psn != awaited {
            self.counters.count_drop(Drop::Response);
            return Reply::Silence;
        }
        // Data come in packets of the responder's size.
        let cut_alike =
            response.mtu == packet.mtu || packet.length() <= response.mtu.min(packet.mtu);
        match response.reply {
            Reply::Ack { .. } if !cut_alike => Reply::Bad,
            reply => reply,
        }
    }

    /// Completes `transfer` by its `reply`. Returns whether the queue continues.
    pub fn finish_transfer(
        &mut self,
        qpn: u32,
        transfer: Transfer,
        reply: Reply,
        now: Instant,
    ) -> bool {
        let Some(qp) = self.qps.get(qpn) else {
            return false;
        };
        let reliable = qp.service.reliable();
        let pd = qp.context.pd();
        if let Some(syndrome) = transfer.error {
            self.fail(qpn, syndrome, now);
            return false;
        }
        if transfer.packet.is_none() || !reliable {
            self.succeed(qpn, &transfer);
            return true;
        }
        match reply {
            Reply::Ack { data, rearmed } => {
                if rearmed {
                    self.peer_rearmed(qpn);
                }
                let segments = transfer.wqe.as_ref().map_or(&[][..], |wqe| &wqe.segments);
                match self.scatter(pd, segments, &data) {
                    Ok(true) => {
                        self.succeed(qpn, &transfer);
                        true
                    }
                    Ok(false) => {
                        self.fail(qpn, Syndrome::LocalLengthErr, now);
                        false
                    }
                    Err(error) => {
                        log::debug!("QP {qpn:#x}: {error}");
                        self.fail(qpn, Syndrome::LocalProtErr, now);
                        false
                    }
                }
            }
            Reply::NotReady(wait) => {
                self.counters.rnr_naks = self.counters.rnr_naks.saturating_add(1);
                if self.stall_rnr(qpn, wait, now) {
                    self.fail(qpn, Syndrome::RnrRetryExcErr, now);
                }
                false
            }
            Reply::Silence => {
                self.counters.timeouts = self.counters.timeouts.saturating_add(1);
                if self.stall_timeout(qpn, now) {
                    self.fail(qpn, Syndrome::TransportRetryExcErr, now);
                }
                false
            }
            Reply::Bad => {
                self.fail(qpn, Syndrome::BadRespErr, now);
                false
            }
            Reply::Nak(nak) => {
                let syndrome = match nak {
                    Nak::InvalidRequest => Syndrome::RemoteInvalReqErr,
                    Nak::RemoteAccess => Syndrome::RemoteAccessErr,
                    Nak::RemoteOperational => Syndrome::RemoteOpErr,
                };
                self.fail(qpn, syndrome, now);
                false
            }
        }
    }

    fn succeed(&mut self, qpn: u32, transfer: &Transfer) {
        let Some(qp) = self.qps.get(qpn) else {
            return;
        };
        let cqn = qp.context.cqn_send();
        let index = qp.sq.index;
        self.advance_send(qpn, transfer.packet.as_ref().map(Packet::next_psn));
        if let Some(wqe) = &transfer.wqe {
            if wqe.control.signaled {
                let bytes = u32::try_from(transfer.bytes).unwrap_or(u32::MAX);
                let cqe = Cqe::send(qpn, index, wqe.control.opcode, bytes);
                self.complete(qpn, cqn, cqe, false);
            }
        }
        self.check_drained(qpn);
    }

    /// The request at the head of QP `qpn` fails, and with it the queue.
    fn fail(&mut self, qpn: u32, syndrome: Syndrome, now: Instant) {
        let Some(qp) = self.qps.get(qpn) else {
            return;
        };
        log::debug!("QP {qpn:#x}: {syndrome:?}");
        let connected = qp.service.reliable();
        let cqe = Cqe::send_error(qpn, qp.sq.index, syndrome);
        let cqn = qp.context.cqn_send();
        self.advance_send(qpn, None);
        self.complete(qpn, cqn, cqe, false);
        if connected {
            self.enter_error(qpn, now);
        } else {
            self.enter_send_error(qpn);
        }
    }
}

impl Request {
    /// Its name in the counters.
    fn name(&self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Send { immediate: false } => "send",
            Self::Send { immediate: true } => "send_imm",
            Self::Write {
                immediate: false, ..
            } => "rdma_write",
            Self::Write {
                immediate: true, ..
            } => "rdma_write_imm",
            Self::Read { .. } => "rdma_read",
            Self::CompareSwap { .. } => "atomic_cs",
            Self::FetchAdd { .. } => "atomic_fa",
        }
    }
}
