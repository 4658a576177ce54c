// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The receiving half of a QP: checks a packet, executes it, and answers.
//!
//! The security boundary is the protection domain. An XRC request names an SRQ; the SRQ must be of
//! the target's domain, and both the buffers it receives into and the remote keys it uses are
//! checked against the SRQ's protection domain, not the QP's.

use std::time::Instant;

use thiserror::Error;

use crate::engine::completion::{Cqe, RecvOpcode, Syndrome};
use crate::engine::event::EventType;
use crate::engine::hca::{Card, Hca};
use crate::engine::headers::GRH_SIZE;
use crate::engine::key::{Access, KeyError, Region, User};
use crate::engine::memory::DmaError;
use crate::engine::packet::{
    previous_psn, psn_is_before, Body, DatagramHeader, DropReason, Extra, Nak, Packet, Reply,
    Response, LID_MULTICAST,
};
use crate::engine::qp::{Context, Queues};
use crate::engine::transport::{Migration, Path, Service, State};
use crate::engine::violation::Violation;
use crate::engine::work::RecvWqe;

/// The reason why a request is not executed.
#[derive(Debug, Error)]
enum Refusal {
    /// The receive queue has no WQE; the sender tries again.
    #[error("not ready")]
    NotReady,
    /// The QP does not execute such a request. No receive WQE was taken, so only the sender learns
    /// of it.
    #[error("invalid request")]
    Invalid,
    /// The remote key does not allow it.
    #[error(transparent)]
    Access(#[from] KeyError),
    /// A receive WQE was taken and completed in error.
    #[error("receive failed: {0:?}")]
    Completed(Syndrome),
    /// The receive queue itself cannot be read.
    #[error("receive queue: {0}")]
    Queue(DmaError),
}

/// The parts of a QP that a request needs.
struct Target<X> {
    qpn: u32,
    context: X,
    /// The SRQ it receives from.
    srqn: Option<u32>,
    /// The user of remote keys and receive buffers: an SRQ's protection domain.
    user: User,
    /// The CQ of its completions.
    cqn: u32,
    /// The number that the completion shows as its other end.
    remote: u32,
}

impl<C: Card> Hca<C> {
    /// Executes a packet that arrived at one of our ports.
    pub fn respond(&mut self, packet: &Packet, now: Instant) -> Option<Response> {
        if self.faults.is_dead() {
            return None;
        }
        let port = self.port_of_lid(packet.dlid)?;
        let qpn = self.card.behind(port, packet.dqpn);
        if !self.admits(qpn, packet) {
            return None;
        }
        if let Some(header) = &packet.datagram {
            self.receive_datagram(qpn, packet, header);
            return None;
        }
        self.establish(qpn);
        let qp = self.qps.get(qpn)?;
        if !qp.service.reliable() {
            // Sequence numbers show that something was lost; each first packet begins anew.
            self.execute_unreliable(packet, now);
            return None;
        }
        let expected = qp.context.receive_psn();
        let (psn, reply) = if packet.psn == expected {
            match self.execute_request(packet) {
                Ok(data) => {
                    self.expect(packet, &data);
                    (previous_psn(packet.next_psn()), self.acknowledge(qpn, data))
                }
                Err(refusal) => (packet.psn, self.refuse(qpn, &refusal, now)),
            }
        } else {
            let repeated = psn_is_before(packet.psn, expected);
            let Some(data) = repeated.then(|| self.repeat(packet)).flatten() else {
                self.counters.count_drop(DropReason::Sequence);
                return None;
            };
            // The last request received is acknowledged, however old the packet.
            (previous_psn(expected), self.acknowledge(qpn, data))
        };
        self.address(qpn, psn, reply)
    }

    /// Whether QP `qpn` processes a packet. One that it drops is counted.
    fn admits(&mut self, qpn: u32, packet: &Packet) -> bool {
        match self.admit(qpn, packet) {
            Ok(()) => true,
            Err(reason) => {
                log::debug!("packet for QP {qpn:#x} dropped: {reason:?}");
                self.counters.count_drop(reason);
                false
            }
        }
    }

    /// Checks what a QP requires of a packet before it looks at the request in it.
    fn admit(&mut self, qpn: u32, packet: &Packet) -> Result<(), DropReason> {
        let qp = self.qps.get(qpn).ok_or(DropReason::Qp)?;
        let service = match packet.dqpn {
            0 | 1 => Service::Mlx,
            _ => packet.service,
        };
        if qp.service != service || (service == Service::Mlx && packet.datagram.is_none()) {
            return Err(DropReason::Service);
        }
        if !qp.can_receive() {
            return Err(DropReason::State);
        }
        if qp.service == Service::Xrc && !qp.is_xrc_target() {
            return Err(DropReason::Initiator);
        }
        let path = match &packet.datagram {
            // QP 0 has no partition: a port must answer the subnet manager before it has a table of
            // P_Keys.
            Some(_) if packet.dqpn == 0 => return Ok(()),
            Some(header) if header.qkey != qp.context.qkey() => return Err(DropReason::QKey),
            Some(_) if packet.dqpn == 1 => {
                let index = self.pkey_index(qp.context.path().port, packet.pkey);
                return index.map(|_| ()).ok_or(DropReason::PKey);
            }
            Some(_) => {
                let path = qp.context.path();
                let port = self.port(path.port);
                let here = port.is_some_and(|port| port.has_lid(packet.dlid))
                    || packet.dlid >= LID_MULTICAST;
                here.then_some(path).ok_or(DropReason::Path)?
            }
            None => self.check_path(packet)?,
        };
        if !self.pkey_matches(&path, packet.pkey) {
            return Err(DropReason::PKey);
        }
        Ok(())
    }

    /// Returns the index in the table of `port` of the P_Key that admits a packet with `pkey`.
    fn pkey_index(&self, port: u8, pkey: u16) -> Option<u8> {
        self.port(port)?.pkey_index(pkey)
    }

    /// Whether a GRH, if there is one, names both ends of `path`.
    fn gids_match(&self, path: &Path, packet: &Packet) -> bool {
        match (path.grh, packet.grh) {
            (None, None) => true,
            (Some((index, ours)), Some(theirs)) => {
                theirs.sgid == ours.dgid && self.gid(path.port, index) == Some(theirs.dgid)
            }
            (ours, _) => {
                self.dma.violations.note(
                    Violation::GrhMismatch,
                    format_args!("QP {:#x} with GRH: {}", packet.dqpn, ours.is_some()),
                );
                true
            }
        }
    }

    /// Keeps the answer for a repeated request, and expects the next one.
    fn expect(&mut self, packet: &Packet, data: &[u8]) {
        if let Some(qp) = self.qps.get_mut(packet.dqpn) {
            qp.context.set_receive_psn(packet.next_psn());
            if matches!(packet.body, Body::Atomic { .. }) {
                qp.last_atomic = Some((packet.psn, data.to_vec()));
            }
        }
    }

    /// Answers a request that was executed before, whose answer was lost. A READ is executed again,
    /// as it changes nothing; an atomic must not be, and returns the value that it returned then.
    fn repeat(&mut self, packet: &Packet) -> Option<Vec<u8>> {
        match &packet.body {
            Body::Send { .. } | Body::Write { .. } => Some(Vec::new()),
            Body::Read { .. } => self.execute_request(packet).ok(),
            Body::Atomic { .. } => {
                let (psn, data) = self.qps.get(packet.dqpn)?.last_atomic.as_ref()?;
                (*psn == packet.psn).then(|| data.clone())
            }
        }
    }

    fn acknowledge(&self, qpn: u32, data: Vec<u8>) -> Reply {
        let migration = self.qps.get(qpn).map(|qp| qp.context.migration());
        Reply::Ack {
            data,
            rearmed: migration != Some(Migration::Migrated),
        }
    }

    /// Sends a reply of QP `qpn` to the other end of its connection, over the QP's own path: its
    /// attributes need not be those of the request.
    fn address(&self, qpn: u32, psn: u32, reply: Reply) -> Option<Response> {
        let context = &self.qps.get(qpn)?.context;
        let path = context.path();
        Some(Response {
            slid: self.lid(&path)?,
            dlid: path.remote_lid,
            service_level: path.service_level,
            pkey: self.pkey(path.port, path.pkey_index).unwrap_or(0),
            grh: self.grh(&path),
            dqpn: context.remote_qpn(),
            migration_request: context.migration() == Migration::Migrated,
            psn,
            mtu: context.path_mtu()?,
            reply,
        })
    }

    fn execute_request(&mut self, packet: &Packet) -> Result<Vec<u8>, Refusal> {
        let target = self.target(packet)?;
        self.execute_packet(&target, packet)
    }

    /// Executes a packet of an unreliable connection. It is never answered: one that is refused is
    /// dropped, and counted.
    fn execute_unreliable(&mut self, packet: &Packet, now: Instant) {
        let executed = self.execute_request(packet);
        self.expect(packet, &[]);
        match executed {
            Ok(_) => {}
            Err(Refusal::NotReady) => self.counters.count_drop(DropReason::NoReceive),
            Err(Refusal::Invalid | Refusal::Access(_)) => {
                self.counters.count_drop(DropReason::Refused)
            }
            Err(refusal) => {
                self.refuse(packet.dqpn, &refusal, now);
            }
        }
    }

    /// The first packet to a QP in RTR reports to the driver that the connection is there.
    fn establish(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            if qp.state == State::Rtr && !std::mem::replace(&mut qp.established, true) {
                self.event(EventType::CommEst, qpn);
            }
        }
    }

    /// Returns the path that a packet came over, if it is one of the QP's. If the sender has moved
    /// to the alternate path and the QP is armed for it, the QP moves, too: else it would answer
    /// over the path that the sender has left because it failed.
    fn check_path(&mut self, packet: &Packet) -> Result<Path, DropReason> {
        let qp = self.qps.get(packet.dqpn).ok_or(DropReason::Qp)?;
        let (path, alternate) = (qp.context.path(), qp.context.alternate_path());
        let came_over = |path: &Path| {
            self.on_path(path, packet.slid, packet.dlid) && self.gids_match(path, packet)
        };
        match (qp.context.migration(), packet.migration_request) {
            (Migration::Armed, true) => {
                if !came_over(&alternate) {
                    self.event(EventType::PathMigFailed, packet.dqpn);
                    return Err(DropReason::Path);
                }
                self.migrate(packet.dqpn);
                Ok(alternate)
            }
            (migration, _) => {
                if !came_over(&path) {
                    return Err(DropReason::Path);
                }
                if migration == Migration::Rearm && !packet.migration_request {
                    self.peer_rearmed(packet.dqpn);
                }
                Ok(path)
            }
        }
    }

    /// Returns the receive queue for a packet, which an XRC packet names itself: an SRQ of the
    /// target's domain. With any other, a sender could write into processes that have never shared
    /// a file with the target's.
    fn target(&self, packet: &Packet) -> Result<Target<C::Context>, Refusal> {
        let qpn = packet.dqpn;
        let qp = self.qps.get(qpn).ok_or(Refusal::Invalid)?;
        let context = qp.context.clone();
        if qp.service != Service::Xrc {
            return Ok(Target {
                qpn,
                srqn: context.srqn(),
                user: qp.user(),
                cqn: context.cqn_recv(),
                remote: context.remote_qpn(),
                context,
            });
        }
        let srq = C::shared(self, packet.srqn).ok_or(Refusal::Invalid)?;
        if srq.xrcd != context.xrcd() {
            return Err(Refusal::Invalid);
        }
        Ok(Target {
            qpn,
            srqn: Some(packet.srqn),
            user: User { pd: srq.pd, qpn },
            cqn: srq.cqn,
            remote: packet.srqn,
            context,
        })
    }

    fn execute_packet(
        &mut self,
        target: &Target<C::Context>,
        packet: &Packet,
    ) -> Result<Vec<u8>, Refusal> {
        let context = &target.context;
        let mtu = context.path_mtu().ok_or(Refusal::Invalid)?;
        // The answer to a READ is cut by our MTU, everything else by the sender's.
        let cut_alike = packet.mtu == mtu || packet.length() <= packet.mtu.min(mtu);
        if !cut_alike && !matches!(packet.body, Body::Read { .. })
            || packet.length() > context.max_message()
        {
            return Err(Refusal::Invalid);
        }
        match &packet.body {
            Body::Send { payload, extra } => {
                // With a key that it may not end, a message is refused before it takes a receive.
                if let Extra::Invalidate(key) = *extra {
                    C::may_invalidate(self, key, target.user)?;
                }
                let wqe = self.take_receive(target)?;
                self.receive(target, packet, wqe, payload, *extra)?;
                Ok(Vec::new())
            }
            Body::Write {
                address,
                rkey,
                payload,
                immediate,
            } => {
                if !context.remote_write_enabled() {
                    return Err(Refusal::Invalid);
                }
                let region = match payload.len() {
                    // No bytes, no key.
                    0 => None,
                    length => Some(self.open_remote(
                        target,
                        *rkey,
                        *address,
                        length as u64,
                        Access::RemoteWrite,
                    )?),
                };
                // The write is retried with its receive, so the receive is secured first.
                let wqe = match immediate {
                    Some(_) => Some(self.take_receive(target)?),
                    None => None,
                };
                if let Some(region) = region {
                    region
                        .write(&self.dma, payload)
                        .map_err(|error| Refusal::Access(error.into()))?;
                }
                if let (Some(immediate), Some(wqe)) = (immediate, wqe) {
                    let bytes = payload.len() as u32;
                    let cqe = Cqe::receive(target.qpn, wqe.index, RecvOpcode::RdmaWriteImm, bytes)
                        .immediate(*immediate);
                    self.complete_receive(target, packet, cqe);
                }
                Ok(Vec::new())
            }
            Body::Read {
                address,
                rkey,
                length,
            } => {
                if !context.remote_read_enabled() {
                    return Err(Refusal::Invalid);
                }
                let bytes = usize::try_from(*length).map_err(|_| Refusal::Invalid)?;
                // No bytes, no key; and no memory for a queue without one.
                let region = match bytes {
                    0 => return Ok(Vec::new()),
                    _ => self.open_remote(target, *rkey, *address, *length, Access::RemoteRead)?,
                };
                let mut data = Vec::new();
                data.try_reserve_exact(bytes)
                    .map_err(|_| Refusal::Invalid)?;
                data.resize(bytes, 0);
                region
                    .read(&self.dma, &mut data)
                    .map_err(|error| Refusal::Access(error.into()))?;
                Ok(data)
            }
            Body::Atomic {
                address,
                rkey,
                operation,
            } => {
                if !context.remote_atomic_enabled() || *address % 8 != 0 {
                    return Err(Refusal::Invalid);
                }
                let old = self
                    .open_remote(target, *rkey, *address, 8, Access::Atomic)?
                    .fetch_update(&self.dma, |old| operation.apply(old))
                    .map_err(|error| Refusal::Access(error.into()))?;
                Ok(old.to_ne_bytes().to_vec())
            }
        }
    }

    fn open_remote(
        &self,
        target: &Target<C::Context>,
        rkey: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<C::Region, KeyError> {
        C::open(self, rkey, target.user, address, length, access)
    }

    /// Takes a receive WQE from the SRQ or the QP's own queue.
    fn take_receive(&mut self, target: &Target<C::Context>) -> Result<RecvWqe, Refusal> {
        let taken = match target.srqn {
            Some(srqn) => {
                let taken = C::take_shared(self, srqn).ok_or(Refusal::Invalid)?;
                if taken.is_err() {
                    self.event(EventType::SrqCatasError, srqn);
                }
                taken
            }
            None => match self.qps.get_mut(target.qpn) {
                Some(qp) => qp.queues.take(&self.dma, &qp.context, target.qpn),
                None => Ok(None),
            },
        };
        taken.map_err(Refusal::Queue)?.ok_or(Refusal::NotReady)
    }

    fn receive(
        &mut self,
        target: &Target<C::Context>,
        packet: &Packet,
        wqe: RecvWqe,
        payload: &[u8],
        extra: Extra,
    ) -> Result<(), Refusal> {
        let error = match self.scatter(target.user, &wqe.scatter, payload) {
            Ok(true) => None,
            Ok(false) => Some(Syndrome::LocalLengthErr),
            Err(error) => {
                log::debug!("QP {:#x} receive: {error}", target.qpn);
                Some(Syndrome::LocalProtErr)
            }
        };
        let bytes = payload.len() as u32;
        let received = |opcode| Cqe::receive(target.qpn, wqe.index, opcode, bytes);
        let cqe = match (error, extra) {
            (Some(syndrome), _) => Cqe::receive_error(target.qpn, wqe.index, syndrome),
            (None, Extra::Nothing) => received(RecvOpcode::Send),
            (None, Extra::Immediate(data)) => received(RecvOpcode::SendImm).immediate(data),
            (None, Extra::Invalidate(key)) => {
                // Its consumer may use the memory again as soon as it reads the completion.
                C::invalidate(self, key);
                received(RecvOpcode::SendInval).immediate(key.to_be_bytes())
            }
        };
        self.complete_receive(target, packet, cqe);
        match error {
            None => {
                self.messages = self.messages.saturating_add(1);
                Ok(())
            }
            Some(syndrome) => Err(Refusal::Completed(syndrome)),
        }
    }

    fn complete_receive(&mut self, target: &Target<C::Context>, packet: &Packet, cqe: Cqe) {
        let cqe = cqe
            .remote(target.remote, false)
            .source(packet.slid, packet.service_level);
        self.complete(target.qpn, target.cqn, cqe, packet.solicited);
    }

    /// Answers a request that was not executed, and breaks the QP where it must.
    fn refuse(&mut self, qpn: u32, refusal: &Refusal, now: Instant) -> Reply {
        log::debug!("QP {qpn:#x}: {refusal}");
        let (nak, event) = match refusal {
            Refusal::NotReady => {
                let wait = self.qps.get(qpn).map(|qp| qp.context.rnr_timer());
                return Reply::NotReady(wait.unwrap_or_default());
            }
            Refusal::Invalid => (Nak::InvalidRequest, Some(EventType::WqInvalReqError)),
            Refusal::Access(_) => (Nak::RemoteAccess, Some(EventType::WqAccessError)),
            Refusal::Completed(Syndrome::LocalLengthErr) => (Nak::InvalidRequest, None),
            Refusal::Completed(_) => (Nak::RemoteOperational, None),
            Refusal::Queue(_) => (Nak::RemoteOperational, Some(EventType::WqCatasError)),
        };
        if let Some(event) = event {
            self.event(event, qpn);
        }
        self.enter_error(qpn, now);
        Reply::Nak(nak)
    }

    /// Delivers a datagram to every member of its group.
    pub fn receive_multicast(&mut self, packet: &Packet) {
        let Some(header) = &packet.datagram else {
            return;
        };
        let Some(grh) = &packet.grh else {
            return;
        };
        for qpn in self.card.members(&grh.dgid) {
            if self.admits(qpn, packet) {
                self.receive_datagram(qpn, packet, header);
            }
        }
    }

    fn receive_datagram(&mut self, qpn: u32, packet: &Packet, header: &DatagramHeader) {
        let Body::Send { payload, extra } = &packet.body else {
            return;
        };
        let Some(qp) = self.qps.get(qpn) else {
            return;
        };
        let target = Target {
            qpn,
            srqn: qp.context.srqn(),
            user: qp.user(),
            cqn: qp.context.cqn_recv(),
            remote: header.sqpn,
            context: qp.context.clone(),
        };
        let Ok(wqe) = self.take_receive(&target) else {
            self.counters.count_drop(DropReason::NoReceive);
            return;
        };
        let mut message = match &packet.grh {
            Some(grh) => grh.of_datagram(payload.len()),
            None => [0; GRH_SIZE],
        }
        .to_vec();
        message.extend_from_slice(payload);
        let cqe = match self.scatter(target.user, &wqe.scatter, &message) {
            Ok(true) => {
                // In place of immediate data, a completion has the index of the P_Key that admitted
                // the datagram.
                let pkey_index = self.pkey_index(target.context.path().port, packet.pkey);
                let (opcode, immediate) = match *extra {
                    Extra::Immediate(data) => (RecvOpcode::SendImm, data),
                    _ => (RecvOpcode::Send, [0, 0, 0, pkey_index.unwrap_or(0)]),
                };
                Cqe::receive(qpn, wqe.index, opcode, message.len() as u32).immediate(immediate)
            }
            Ok(false) => Cqe::receive_error(qpn, wqe.index, Syndrome::LocalLengthErr),
            Err(_) => Cqe::receive_error(qpn, wqe.index, Syndrome::LocalProtErr),
        };
        let cqe = cqe
            .remote(header.sqpn, packet.grh.is_some())
            .source(packet.slid, packet.service_level);
        self.complete(qpn, target.cqn, cqe, packet.solicited);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::bytes::Fields;
    use crate::engine::headers::Grh;
    use crate::mlx4::command::Status;
    use crate::mlx4::testing::{Bench, QpSetup};

    const XRC: u32 = 6;
    const RC: u32 = 0;
    const XRCD: u32 = 7;
    const SRQN: u32 = 0x45;
    const TARGET: u32 = 0x80_0208;
    const INITIATOR: u32 = 0x209;
    const SRQ_CQN: u32 = 0x83;
    const LOCAL: u64 = 0x1_0000;
    const REMOTE: u64 = 0x2_0000;
    const ALL: u32 = 0x1f << 10;
    /// PD of the initiator, and of the target's private PD: neither is the SRQ's.
    const INITIATOR_PD: u32 = 0x8002;
    const TARGET_PD: u32 = 0x8003;

    /// An XRC connection: an initiator at port 1, a target in RTR at port 2, and an SRQ of the
    /// target's domain with one receive of 64 bytes at REMOTE.
    struct Xrc {
        bench: Bench,
        lkey: u32,
        rkey: u32,
        local: u64,
        remote: u64,
    }

    fn xrc() -> Xrc {
        xrc_with(|setup| setup)
    }

    /// The same with a target that is set up in another way.
    fn xrc_with(spoil: impl FnOnce(QpSetup) -> QpSetup) -> Xrc {
        let mut bench = Bench::connected();
        bench.cq(SRQ_CQN, 4);
        let (lkey, local) = bench.region_of(INITIATOR_PD, 0x10, LOCAL, 0x1000, ALL);
        let (rkey, remote) = bench.region(0x11, REMOTE, 0x1000, ALL);
        bench.srq(SRQN, 2, XRCD as u16, SRQ_CQN);
        bench.fill_srq(SRQN, 0, 64, rkey, REMOTE);
        bench.post_srq(SRQN, 1);
        let target = QpSetup {
            pd: TARGET_PD,
            xrcd: XRCD,
            path: (2, 1),
            ..QpSetup::new(XRC, INITIATOR)
        };
        bench.qp_rtr(TARGET, &spoil(target));
        let initiator = QpSetup {
            pd: INITIATOR_PD,
            ..QpSetup::new(XRC, TARGET)
        };
        bench.qp_rts(INITIATOR, &initiator);
        Xrc {
            bench,
            lkey,
            rkey,
            local,
            remote,
        }
    }

    impl Xrc {
        fn send(&mut self, opcode: u8, srqn: u32, remote: Option<(u64, u32)>, length: u32) {
            let local = (length, self.lkey, LOCAL);
            let wqe = Bench::wqe(opcode, srqn, remote, local);
            self.bench.post_send(INITIATOR, wqe);
            self.bench.settle();
        }

        fn sent(&self) -> Option<u8> {
            self.bench.completion(Bench::SEND_CQN, 0)
        }
    }

    #[test]
    fn an_xrc_send_is_received_by_the_named_srq_and_its_cq() {
        let mut xrc = xrc();
        xrc.bench.hca.dma.memory.write(xrc.local, b"hello").unwrap();
        xrc.send(0x0b, SRQN, None, 5);
        assert_eq!(xrc.sent(), Some(0));
        let memory = &xrc.bench.hca.dma.memory;
        assert_eq!(&memory.block::<5>(xrc.remote).unwrap(), b"hello");
        let cqe = xrc.bench.cqe(SRQ_CQN, 0);
        assert_eq!(cqe.get_be32(0x00), TARGET);
        assert_eq!(cqe.get_be32(0x04), 0xcafe_f00d);
        assert_eq!(cqe.get_be32(0x08), SRQN);
        assert_eq!(cqe.get_be16(0x0e), 1);
        assert_eq!(cqe.get_be32(0x14), 5);
        // The first packet reported that the connection is there.
        assert_eq!(xrc.bench.last_event(), Some((0x02, TARGET)));
        assert_eq!(xrc.bench.hca.messages, 1);
        xrc.send(0x0b, SRQN + 1, None, 5);
        assert_eq!(xrc.bench.hca.messages, 1);
    }

    #[test]
    fn an_srq_of_another_domain_is_refused() {
        let mut xrc = xrc();
        xrc.bench.srq(0x46, 2, 8, SRQ_CQN);
        xrc.bench.post_srq(0x46, 1);
        xrc.send(0x0a, 0x46, None, 5);
        assert_eq!(xrc.sent(), Some(0x12));
        // Communication established, invalid request, last WQE.
        assert_eq!(xrc.bench.event_types(), [0x02, 0x10, 0x13]);
        assert_eq!(xrc.bench.hca.qps.get(TARGET).unwrap().state, State::Err);
        assert_eq!(xrc.bench.hca.qps.get(INITIATOR).unwrap().state, State::Err);
    }

    #[test]
    fn an_rkey_must_be_of_the_srqs_pd() {
        let mut allowed = xrc();
        let rkey = allowed.rkey;
        allowed.send(0x08, SRQN, Some((REMOTE + 8, rkey)), 4);
        assert_eq!(allowed.sent(), Some(0));

        // A region of the target's own PD is not enough.
        let mut denied = xrc();
        let (rkey, _) = denied.bench.region_of(TARGET_PD, 0x12, REMOTE, 0x1000, ALL);
        denied.send(0x08, SRQN, Some((REMOTE, rkey)), 4);
        assert_eq!(denied.sent(), Some(0x13));
        assert_eq!(denied.bench.event_types(), [0x02, 0x11, 0x13]);
    }

    #[test]
    fn a_write_with_immediate_takes_a_receive() {
        let mut xrc = xrc();
        let rkey = xrc.rkey;
        xrc.bench.hca.dma.memory.write(xrc.local, b"data").unwrap();
        xrc.send(0x09, SRQN, Some((REMOTE + 256, rkey)), 4);
        let memory = &xrc.bench.hca.dma.memory;
        assert_eq!(&memory.block::<4>(xrc.remote + 256).unwrap(), b"data");
        let cqe = xrc.bench.cqe(SRQ_CQN, 0);
        assert_eq!((cqe[31], cqe.get_be32(0x14)), (0, 4));
        assert_eq!(
            xrc.bench
                .hca
                .card
                .srqs
                .get(SRQN)
                .unwrap()
                .wqes
                .available(&xrc.bench.hca.dma),
            Ok(0)
        );
    }

    #[test]
    fn reads_and_atomics_bring_data_back() {
        let mut xrc = xrc();
        let rkey = xrc.rkey;
        let memory = &xrc.bench.hca.dma.memory;
        memory.write(xrc.remote, &40u64.to_ne_bytes()).unwrap();
        xrc.send(0x10, SRQN, Some((REMOTE, rkey)), 8);
        let memory = &xrc.bench.hca.dma.memory;
        assert_eq!(memory.block::<8>(xrc.local).unwrap(), 40u64.to_ne_bytes());

        let mut wqe = Bench::wqe(0x12, SRQN, Some((REMOTE, rkey)), (8, xrc.lkey, LOCAL + 64));
        wqe.splice(32..32, [0; 16]);
        wqe.set_be64(32, 2);
        wqe[7] += 1;
        xrc.bench.post_send(INITIATOR, wqe);
        xrc.bench.settle();
        let memory = &xrc.bench.hca.dma.memory;
        assert_eq!(
            memory.block::<8>(xrc.local + 64).unwrap(),
            40u64.to_ne_bytes()
        );
        assert_eq!(memory.block::<8>(xrc.remote).unwrap(), 42u64.to_ne_bytes());
    }

    #[test]
    fn requests_that_the_qp_does_not_allow_are_invalid() {
        let mut bench = Bench::connected();
        bench.pair(RC, 0x40, 0x41);
        bench.hca.qps.get_mut(0x41).unwrap().state = State::Init;
        bench
            .modify(0x2d, 0x41, &{
                let mut mailbox = QpSetup {
                    access: 0,
                    ..QpSetup::new(RC, 0x40)
                }
                .mailbox(None);
                mailbox.set_be32(0, 0xe);
                mailbox
            })
            .unwrap();
        bench.hca.qps.get_mut(0x41).unwrap().state = State::Rts;
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, ALL);
        let wqe = Bench::wqe(0x08, 0, Some((LOCAL, key)), (4, key, LOCAL));
        bench.post_send(0x40, wqe);
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x12));
        assert_eq!(bench.last_event(), Some((0x10, 0x41)));
    }

    #[test]
    fn a_receive_too_small_fails_on_both_sides() {
        let mut xrc = xrc();
        xrc.send(0x0a, SRQN, None, 65);
        assert_eq!(xrc.sent(), Some(0x12));
        assert_eq!(xrc.bench.completion(SRQ_CQN, 0), Some(0x01));
        // The SRQ's number is there for the library to find it.
        assert_eq!(xrc.bench.cqe(SRQ_CQN, 0).get_be32(8), SRQN);
        assert_eq!(xrc.bench.event_types(), [0x02, 0x13]);
    }

    #[test]
    fn an_empty_srq_answers_not_ready_until_there_is_a_receive() {
        let mut xrc = xrc();
        xrc.bench.post_srq(SRQN, 0);
        xrc.send(0x0a, SRQN, None, 5);
        assert_eq!(xrc.sent(), None);
        // Code 12 is 640 us.
        assert_eq!(xrc.bench.next_timer(), Some(Duration::from_micros(640)));
        xrc.bench.post_srq(SRQN, 1);
        xrc.bench.wait(Duration::from_micros(640));
        assert_eq!(xrc.sent(), Some(0));
    }

    #[test]
    fn patience_with_an_empty_srq_ends() {
        let mut xrc = xrc();
        xrc.bench.post_srq(SRQN, 0);
        xrc.send(0x0a, SRQN, None, 5);
        xrc.bench.wait(Duration::from_millis(1));
        assert_eq!(xrc.sent(), Some(0x16));
    }

    #[test]
    fn datagrams_need_the_key_and_leave_room_for_their_header() {
        const UD: u32 = 3;
        let mut bench = Bench::connected();
        bench.pair(UD, 0x40, 0x41);
        let (key, page) = bench.region(0x10, LOCAL, 0x1000, ALL);
        bench.post_receive(0x41, 100, key, LOCAL + 0x100);
        bench.hca.dma.memory.write(page, b"datagram").unwrap();
        for qkey in [1, Bench::QKEY] {
            let mut wqe = Bench::wqe(0x0a, 0, None, (8, key, LOCAL));
            let mut address = [0; 48];
            address.set_be32(0, 1 << 24);
            address.set_be16(6, 2);
            address.set_be32(32, 0x41);
            address.set_be32(36, qkey);
            wqe.splice(16..16, address);
            wqe[7] += 3;
            bench.post_send(0x40, wqe);
            bench.settle();
        }
        // Both were sent, one arrived.
        assert_eq!(bench.completion(Bench::SEND_CQN, 1), Some(0));
        let cqe = bench.cqe(Bench::RECV_CQN, 0);
        assert_eq!((cqe.get_be32(8), cqe.get_be32(0x14)), (0x40, 48));
        assert_eq!(bench.completion(Bench::RECV_CQN, 1), None);
        let arrived = bench.hca.dma.memory.block::<8>(page + 0x128).unwrap();
        assert_eq!(&arrived, b"datagram");
    }

    /// An RC pair, the second of which the test sets up its own way; with a receive, and a key for
    /// both ends.
    fn pair_with(
        first: impl FnOnce(QpSetup) -> QpSetup,
        second: impl FnOnce(QpSetup) -> QpSetup,
    ) -> (Bench, u32) {
        let mut bench = Bench::connected();
        bench.qp_rts(0x40, &first(QpSetup::new(RC, 0x41)));
        let back = QpSetup {
            path: (2, 1),
            alternate: (1, 2),
            ..QpSetup::new(RC, 0x40)
        };
        bench.qp_rts(0x41, &second(back));
        let (key, _) = bench.region(0x10, LOCAL, 0x4000, ALL);
        bench.post_receive(0x41, 0x2000, key, LOCAL + 0x2000);
        (bench, key)
    }

    fn as_it_is(setup: QpSetup) -> QpSetup {
        setup
    }

    /// Sends `length` bytes, and waits until all retries are over: how it ended.
    fn send_from_first(bench: &mut Bench, key: u32, length: u32) -> Option<u8> {
        bench.post_send(0x40, Bench::wqe(0x0a, 0, None, (length, key, LOCAL)));
        bench.settle();
        for _ in 0..3 {
            bench.wait(Duration::from_millis(10));
        }
        bench.completion(Bench::SEND_CQN, 0)
    }

    fn drops(bench: &Bench, reason: DropReason) -> u64 {
        bench.hca.counters.drops.get(&reason).copied().unwrap_or(0)
    }

    const RETRIES_EXCEEDED: Option<u8> = Some(0x15);
    /// The first, and one retry.
    const TRIES: u64 = 2;

    #[test]
    fn both_ends_must_know_each_others_lid() {
        let (mut bench, key) = pair_with(as_it_is, as_it_is);
        assert_eq!(send_from_first(&mut bench, key, 8), Some(0));
        // The responder expects another sender; it is at another port; the packet has another
        // destination.
        for path in [(2, 0xbeef), (1, 1)] {
            let (mut bench, key) = pair_with(as_it_is, |setup| QpSetup { path, ..setup });
            assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
            assert_eq!(drops(&bench, DropReason::Path), TRIES);
            assert_eq!(bench.completion(Bench::RECV_CQN, 0), None);
        }
        let path = (1, 0xbeef);
        let (mut bench, key) = pair_with(|setup| QpSetup { path, ..setup }, as_it_is);
        assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
    }

    #[test]
    fn an_answer_is_sent_to_the_connected_qp() {
        let other = |setup| QpSetup {
            remote_qpn: 0x42,
            ..setup
        };
        let (mut bench, key) = pair_with(as_it_is, other);
        assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
        // The request itself arrived, once.
        assert_eq!(bench.completion(Bench::RECV_CQN, 0), Some(0));
        assert_eq!(bench.completion(Bench::RECV_CQN, 1), None);
        assert_eq!(drops(&bench, DropReason::Response), TRIES);
    }

    #[test]
    fn both_ends_must_begin_with_the_same_sequence_number() {
        let first = |setup| QpSetup {
            send_psn: 0xff_ffff,
            ..setup
        };
        let second = |receive_psn| {
            move |setup| QpSetup {
                receive_psn,
                ..setup
            }
        };
        let (mut bench, key) = pair_with(first, second(0xff_ffff));
        assert_eq!(send_from_first(&mut bench, key, 8), Some(0));
        // A packet that comes too early is dropped.
        let (mut bench, key) = pair_with(first, second(0xff_fffe));
        assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
        assert_eq!(drops(&bench, DropReason::Sequence), TRIES);
        assert_eq!(bench.completion(Bench::RECV_CQN, 0), None);
        // A packet that seems to be a repetition is acknowledged, but as another request's.
        let (mut bench, key) = pair_with(first, second(5));
        assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
        assert_eq!(drops(&bench, DropReason::Response), TRIES);
        assert_eq!(bench.completion(Bench::RECV_CQN, 0), None);
    }

    #[test]
    fn sequence_numbers_advance_by_packets() {
        let small = |setup| QpSetup { mtu: 1, ..setup };
        let (mut bench, key) = pair_with(small, small);
        // Five packets of 256 bytes, a READ of three, an empty message of one.
        assert_eq!(send_from_first(&mut bench, key, 1025), Some(0));
        let wqe = Bench::wqe(0x10, 0, Some((LOCAL, key)), (768, key, LOCAL + 0x1000));
        bench.post_send(0x40, wqe);
        bench.settle();
        let wqe = Bench::wqe(0x08, 0, Some((LOCAL, key)), (1 << 31, key, LOCAL));
        bench.post_send(0x40, wqe);
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 2), Some(0));
        let psn = |qpn| bench.hca.qps.get(qpn).unwrap().context.clone();
        assert_eq!(psn(0x40).send_psn(), 9);
        assert_eq!(psn(0x41).receive_psn(), 9);
        assert_eq!(psn(0x40).receive_psn(), 0);
    }

    #[test]
    fn a_request_that_comes_twice_is_executed_once() {
        let (mut bench, key) = pair_with(as_it_is, as_it_is);
        let page = bench.region(0x11, 0x9_0000, 0x1000, ALL);
        bench
            .hca
            .dma
            .memory
            .write(page.1, &5u64.to_ne_bytes())
            .unwrap();
        let repeat = |bench: &mut Bench, wqe: Vec<u8>, index: u64| {
            let before = bench.hca.qps.get(0x40).unwrap().context.send_psn();
            bench.post_send(0x40, wqe);
            bench.settle();
            assert_eq!(bench.completion(Bench::SEND_CQN, index), Some(0));
            // Its answer was lost: the sender asks again.
            let qp = bench.hca.qps.get_mut(0x40).unwrap();
            qp.context.set_send_psn(before);
        };
        repeat(&mut bench, Bench::wqe(0x0a, 0, None, (8, key, LOCAL)), 0);
        repeat(&mut bench, Bench::wqe(0x0a, 0, None, (8, key, LOCAL)), 1);
        assert_eq!(bench.completion(Bench::RECV_CQN, 0), Some(0));
        assert_eq!(bench.completion(Bench::RECV_CQN, 1), None);
        bench.hca.qps.get_mut(0x40).unwrap().context.set_send_psn(1);
        for index in [2, 3] {
            let mut wqe = Bench::wqe(0x12, 0, Some((0x9_0000, page.0)), (8, key, LOCAL));
            wqe.splice(32..32, [0; 16]);
            wqe.set_be64(32, 2);
            wqe[7] += 1;
            repeat(&mut bench, wqe, index);
        }
        // Added once, and the same answer twice.
        let memory = &bench.hca.dma.memory;
        assert_eq!(memory.block::<8>(page.1).unwrap(), 7u64.to_ne_bytes());
    }

    #[test]
    fn both_ends_must_be_in_the_partition() {
        let index = |pkey_index| {
            move |setup| QpSetup {
                pkey_index,
                ..setup
            }
        };
        // The tables have the same keys in another order.
        let (mut bench, key) = pair_with(index(1), index(2));
        assert_eq!(send_from_first(&mut bench, key, 8), Some(0));
        for (first, second) in [(1, 1), (0, 1), (1, 0), (5, 0), (0, 5), (5, 5)] {
            let (mut bench, key) = pair_with(index(first), index(second));
            assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
            assert_eq!(drops(&bench, DropReason::PKey), TRIES);
        }
    }

    #[test]
    fn both_ends_must_cut_messages_alike() {
        let mtu = |mtu| move |setup| QpSetup { mtu, ..setup };
        for (first, second) in [(1, 5), (5, 1)] {
            let (mut bench, key) = pair_with(mtu(first), mtu(second));
            // A message that fits the smaller packet is sent.
            assert_eq!(send_from_first(&mut bench, key, 256), Some(0));
            let (mut bench, key) = pair_with(mtu(first), mtu(second));
            assert_eq!(send_from_first(&mut bench, key, 257), Some(0x12));
            assert_eq!(bench.last_event(), Some((0x10, 0x41)));
            // A READ is cut by the responder, and the requester sees that.
            let (mut bench, key) = pair_with(mtu(first), mtu(second));
            let wqe = Bench::wqe(0x10, 0, Some((LOCAL, key)), (257, key, LOCAL));
            bench.post_send(0x40, wqe);
            bench.settle();
            assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0x10));
        }
    }

    #[test]
    fn an_mtu_that_does_not_exist_is_refused() {
        for mtu in [0, 6, 7] {
            let mut bench = Bench::connected();
            let setup = QpSetup {
                mtu,
                ..QpSetup::new(RC, 0x41)
            };
            bench.qp_init(0x40, &setup);
            let mailbox = setup.mailbox(None);
            assert_eq!(bench.modify(0x1a, 0x40, &mailbox), Err(Status::BadParam));
            assert_eq!(bench.violations(), [Violation::Mtu]);
        }
    }

    #[test]
    fn a_grh_names_both_ends() {
        let gid = |bench: &Bench, port| bench.hca.port_gid(port);
        let bench = Bench::new();
        let (one, two) = (Some(gid(&bench, 1)), Some(gid(&bench, 2)));
        let grh = |remote_gid| {
            move |setup| QpSetup {
                remote_gid,
                ..setup
            }
        };
        let (mut bench, key) = pair_with(grh(two), grh(one));
        assert_eq!(send_from_first(&mut bench, key, 8), Some(0));
        let (mut bench, key) = pair_with(grh(two), grh(two));
        assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
        let (mut bench, key) = pair_with(grh(one), grh(one));
        assert_eq!(send_from_first(&mut bench, key, 8), RETRIES_EXCEEDED);
        // The behaviour of a card where only one end has a GRH is not known.
        for (first, second) in [(two, None), (None, one)] {
            let (mut bench, key) = pair_with(grh(first), grh(second));
            assert_eq!(send_from_first(&mut bench, key, 8), Some(0));
            assert_eq!(bench.violations(), [Violation::GrhMismatch]);
        }
    }

    #[test]
    fn an_answer_has_the_attributes_of_the_responders_own_path() {
        let mut bench = Bench::connected();
        (bench.hca.ports[1].lid, bench.hca.ports[1].lmc) = (0x10, 1);
        let gids = [1, 2].map(|port| bench.hca.port_gid(port));
        let setup = QpSetup {
            path: (2, 1),
            path_bits: 0x7f,
            service_level: 3,
            remote_gid: Some(gids[0]),
            migration: Migration::Rearm as u32,
            ..QpSetup::new(RC, 0x40)
        };
        bench.qp_rts(0x41, &setup);
        let request = |dlid| Packet {
            slid: 1,
            dlid,
            service_level: 1,
            service: Service::Rc,
            pkey: 0xffff,
            grh: Some(Grh {
                traffic_class: 1,
                flow_label: 1,
                hop_limit: 1,
                sgid: gids[0],
                dgid: gids[1],
            }),
            dqpn: 0x41,
            psn: 0,
            mtu: 4096,
            srqn: 0,
            migration_request: true,
            solicited: false,
            body: Body::Write {
                address: 0,
                rkey: 0,
                payload: Vec::new(),
                immediate: None,
            },
            datagram: None,
        };
        // The port has this LID as well, but the path does not.
        assert!(bench.hca.respond(&request(0x10), bench.now).is_none());
        assert_eq!(drops(&bench, DropReason::Path), 1);
        let response = bench.hca.respond(&request(0x11), bench.now).unwrap();
        assert_eq!((response.slid, response.dlid), (0x11, 1));
        assert_eq!(response.service_level, 3);
        let grh = Grh {
            sgid: gids[1],
            dgid: gids[0],
            ..Grh::default()
        };
        assert_eq!(response.grh, Some(grh));
        assert!(!response.migration_request);
    }

    #[test]
    fn a_target_looks_at_all_of_its_address() {
        type Spoil = fn(QpSetup) -> QpSetup;
        let spoils: [Spoil; 4] = [
            |setup| QpSetup {
                remote_qpn: 0x20a,
                ..setup
            },
            |setup| QpSetup {
                path: (2, 0xbeef),
                ..setup
            },
            |setup| QpSetup {
                receive_psn: 77,
                ..setup
            },
            |setup| QpSetup {
                pkey_index: 5,
                ..setup
            },
        ];
        for spoil in spoils {
            let mut xrc = xrc_with(spoil);
            xrc.send(0x0a, SRQN, None, 5);
            for _ in 0..3 {
                xrc.bench.wait(Duration::from_millis(10));
            }
            assert_eq!(xrc.sent(), RETRIES_EXCEEDED);
        }
    }

    #[test]
    fn a_request_to_an_initiator_is_dropped() {
        let mut xrc = xrc();
        let back = QpSetup {
            path: (2, 1),
            ..QpSetup::new(XRC, INITIATOR)
        };
        xrc.bench.qp_rts(0x20a, &back);
        let setup = QpSetup {
            path: (1, 2),
            ..QpSetup::new(XRC, 0x20a)
        };
        xrc.bench.qp_rts(0x20b, &setup);
        let wqe = Bench::wqe(0x0a, SRQN, None, (8, xrc.rkey, REMOTE));
        xrc.bench.post_send(0x20b, wqe);
        xrc.bench.settle();
        assert_eq!(drops(&xrc.bench, DropReason::Initiator), 1);
        assert_eq!(xrc.bench.hca.qps.get(0x20a).unwrap().state, State::Rts);
        assert!(xrc.bench.event_types().is_empty());
    }

    #[test]
    fn an_unreliable_connection_drops_bad_requests() {
        const UC: u32 = 1;
        let mut bench = Bench::connected();
        bench.pair(UC, 0x40, 0x41);
        let (key, page) = bench.region(0x10, LOCAL, 0x1000, ALL);
        let write = |bench: &mut Bench, rkey| {
            let wqe = Bench::wqe(0x08, 0, Some((LOCAL + 64, rkey)), (4, key, LOCAL));
            bench.post_send(0x40, wqe);
            bench.settle();
        };
        bench.hca.dma.memory.write(page, b"data").unwrap();
        write(&mut bench, key ^ 1);
        assert_eq!(drops(&bench, DropReason::Refused), 1);
        let send = Bench::wqe(0x0a, 0, None, (4, key, LOCAL));
        bench.post_send(0x40, send);
        bench.settle();
        assert_eq!(drops(&bench, DropReason::NoReceive), 1);
        assert!(bench.event_types().is_empty());
        // The QP continues as before.
        write(&mut bench, key);
        assert_eq!(bench.completion(Bench::SEND_CQN, 2), Some(0));
        let arrived = bench.hca.dma.memory.block::<4>(page + 64).unwrap();
        assert_eq!(&arrived, b"data");
        assert_eq!(bench.hca.qps.get(0x41).unwrap().state, State::Rts);
    }

    #[test]
    fn an_srq_that_cannot_be_read_breaks() {
        let mut xrc = xrc();
        let base = xrc.bench.srq_mtt(SRQN);
        xrc.bench.hca.dma.memory.write(base, &[0; 8]).unwrap();
        xrc.send(0x0a, SRQN, None, 5);
        assert_eq!(xrc.sent(), Some(0x14));
        // Established, the SRQ, the target, and its last WQE.
        assert_eq!(xrc.bench.event_types(), [0x02, 0x12, 0x05, 0x13]);
    }
}
