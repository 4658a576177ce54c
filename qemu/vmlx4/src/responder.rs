// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The receiving half of a QP: checks a packet, executes it, and answers.
//!
//! The security boundary is the protection domain. An XRC request names an SRQ; the SRQ must be of
//! the target's domain, and both the buffers it receives into and the remote keys it uses are
//! checked against the SRQ's protection domain, not the QP's.

use std::time::Instant;

use thiserror::Error;

use crate::bytes::Fields;
use crate::cq::{Cqe, RecvOpcode, Syndrome};
use crate::eq::EventType;
use crate::fabric::{Body, DatagramHeader, Nak, Packet, Reply};
use crate::hca::Hca;
use crate::memory::DmaError;
use crate::mpt::{Access, KeyError, Region};
use crate::qpc::{Context, Migration, Service, State};
use crate::srq::RecvWqe;
use crate::wqe::parse_scatter;

/// Space before every received datagram for its GRH.
const GRH_SIZE: usize = 40;

/// Why a request is not executed.
#[derive(Debug, Error)]
enum Refusal {
    /// No receive WQE.
    #[error("not ready")]
    NotReady,
    /// Not possible with this QP; there is no WQE to say so in.
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

/// What of a QP a request needs to know.
struct Target {
    qpn: u32,
    context: Context,
    /// The SRQ it receives from.
    srqn: Option<u32>,
    /// The protection domain that remote keys and receive buffers must belong to.
    pd: u32,
    /// Where its completions go.
    cqn: u32,
    /// What the completion shows as its other end.
    remote: u32,
}

impl Hca {
    /// Executes a packet that arrived at one of our ports.
    pub fn respond(&mut self, packet: &Packet, now: Instant) -> Reply {
        if self.faults.is_dead() {
            return Reply::Silence;
        }
        let qpn = packet.dqpn;
        let Some(qp) = self.qps.get(qpn) else {
            return Reply::Silence;
        };
        if qp.service != packet.service || !qp.can_receive() {
            return Reply::Silence;
        }
        if let Some(header) = &packet.datagram {
            if header.qkey == qp.context.qkey() {
                self.receive_datagram(qpn, packet, header);
            }
            return Reply::Silence;
        }
        if !self.check_path(qpn, packet) {
            return Reply::Silence;
        }
        self.establish(qpn);
        let reply = match self.target(qpn, packet).and_then(|target| {
            self.execute_packet(&target, packet)
                .map(|data| (target, data))
        }) {
            Ok((target, data)) => Reply::Ack {
                data,
                rearmed: target.context.migration() != Migration::Migrated,
            },
            Err(refusal) => self.refuse(qpn, &refusal, now),
        };
        if packet.service.reliable() {
            reply
        } else {
            Reply::Silence
        }
    }

    /// The first packet to a QP in RTR tells the driver that the connection is there.
    fn establish(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            if qp.state == State::Rtr && !std::mem::replace(&mut qp.established, true) {
                self.event(EventType::CommEst, qpn);
            }
        }
    }

    /// Path migration at the responder: the sender has moved, so do we, if we are ready to.
    fn check_path(&mut self, qpn: u32, packet: &Packet) -> bool {
        let Some(qp) = self.qps.get(qpn) else {
            return false;
        };
        let context = &qp.context;
        match (context.migration(), packet.migration_request) {
            (Migration::Rearm, false) => self.peer_rearmed(qpn),
            (Migration::Armed, true) => {
                let ours = self.port(context.alternate_port()).map(|port| port.lid);
                let fits =
                    ours == Some(packet.dlid) && context.alternate_remote_lid() == packet.slid;
                if !fits {
                    self.event(EventType::PathMigFailed, qpn);
                    return false;
                }
                self.migrate(qpn);
            }
            _ => {}
        }
        true
    }

    /// What the packet is for: for XRC that is an SRQ of the target's domain.
    fn target(&self, qpn: u32, packet: &Packet) -> Result<Target, Refusal> {
        let qp = self.qps.get(qpn).ok_or(Refusal::Invalid)?;
        let context = qp.context.clone();
        if qp.service != Service::Xrc {
            return Ok(Target {
                qpn,
                srqn: context.srqn(),
                pd: context.pd(),
                cqn: context.cqn_recv(),
                remote: context.remote_qpn(),
                context,
            });
        }
        let srq = self.srqs.get(packet.srqn).ok_or(Refusal::Invalid)?;
        if !qp.is_xrc_target() || srq.xrcd() != context.xrcd() {
            return Err(Refusal::Invalid);
        }
        Ok(Target {
            qpn,
            srqn: Some(packet.srqn),
            pd: srq.pd(),
            cqn: srq.cqn(),
            remote: packet.srqn,
            context,
        })
    }

    fn execute_packet(&mut self, target: &Target, packet: &Packet) -> Result<Vec<u8>, Refusal> {
        let context = &target.context;
        match &packet.body {
            Body::Send { payload, immediate } => {
                let wqe = self.take_receive(target)?;
                let opcode = match immediate {
                    Some(_) => RecvOpcode::SendImm,
                    None => RecvOpcode::Send,
                };
                self.receive(target, packet, wqe, payload, opcode, *immediate)?;
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
                if !context.remote_read_enabled() || *length > context.max_message() {
                    return Err(Refusal::Invalid);
                }
                let bytes = usize::try_from(*length).map_err(|_| Refusal::Invalid)?;
                // No bytes, no key; and no memory for whoever has none.
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
        target: &Target,
        rkey: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Region, KeyError> {
        self.keys
            .open(&self.dma, rkey, target.pd, address, length, access)
    }

    /// Takes a receive WQE from the SRQ or the QP's own queue.
    fn take_receive(&mut self, target: &Target) -> Result<RecvWqe, Refusal> {
        let taken = match target.srqn {
            Some(srqn) => {
                let srq = self.srqs.get_mut(srqn).ok_or(Refusal::Invalid)?;
                let taken = srq.take(&self.dma);
                self.check_srq_limit(srqn);
                taken
            }
            None => match self.qps.get_mut(target.qpn) {
                Some(qp) => qp.take_receive(&self.dma),
                None => Ok(None),
            },
        };
        taken.map_err(Refusal::Queue)?.ok_or(Refusal::NotReady)
    }

    fn receive(
        &mut self,
        target: &Target,
        packet: &Packet,
        wqe: RecvWqe,
        payload: &[u8],
        opcode: RecvOpcode,
        immediate: Option<[u8; 4]>,
    ) -> Result<(), Refusal> {
        let error = match self.scatter(target.pd, &parse_scatter(&wqe.scatter), payload) {
            Ok(true) => None,
            Ok(false) => Some(Syndrome::LocalLengthErr),
            Err(error) => {
                log::debug!("QP {:#x} receive: {error}", target.qpn);
                Some(Syndrome::LocalProtErr)
            }
        };
        let cqe = match error {
            None => Cqe::receive(target.qpn, wqe.index, opcode, payload.len() as u32)
                .immediate(immediate.unwrap_or_default()),
            Some(syndrome) => Cqe::receive_error(target.qpn, wqe.index, syndrome),
        };
        self.complete_receive(target, packet, cqe);
        match error {
            None => Ok(()),
            Some(syndrome) => Err(Refusal::Completed(syndrome)),
        }
    }

    fn complete_receive(&mut self, target: &Target, packet: &Packet, cqe: Cqe) {
        let cqe = cqe
            .remote(target.remote, false)
            .source(packet.slid, packet.service_level);
        self.complete(target.cqn, cqe, packet.solicited);
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
        let Some(dgid) = header.dgid else {
            return;
        };
        for qpn in self.mcgs.members(&dgid) {
            let takes = self.qps.get(qpn).is_some_and(|qp| {
                qp.service == Service::Ud && qp.can_receive() && qp.context.qkey() == header.qkey
            });
            if takes {
                self.receive_datagram(qpn, packet, header);
            }
        }
    }

    fn receive_datagram(&mut self, qpn: u32, packet: &Packet, header: &DatagramHeader) {
        let Body::Send { payload, immediate } = &packet.body else {
            return;
        };
        let Some(qp) = self.qps.get(qpn) else {
            return;
        };
        let target = Target {
            qpn,
            srqn: qp.context.srqn(),
            pd: qp.context.pd(),
            cqn: qp.context.cqn_recv(),
            remote: header.sqpn,
            context: qp.context.clone(),
        };
        let Ok(wqe) = self.take_receive(&target) else {
            self.counters.dropped = self.counters.dropped.saturating_add(1);
            return;
        };
        let mut message = grh(header, payload.len()).to_vec();
        message.extend_from_slice(payload);
        let cqe = match self.scatter(target.pd, &parse_scatter(&wqe.scatter), &message) {
            Ok(true) => {
                let opcode = match immediate {
                    Some(_) => RecvOpcode::SendImm,
                    None => RecvOpcode::Send,
                };
                Cqe::receive(qpn, wqe.index, opcode, message.len() as u32)
                    .immediate(immediate.unwrap_or_default())
            }
            Ok(false) => Cqe::receive_error(qpn, wqe.index, Syndrome::LocalLengthErr),
            Err(_) => Cqe::receive_error(qpn, wqe.index, Syndrome::LocalProtErr),
        };
        let cqe = cqe
            .remote(header.sqpn, header.dgid.is_some())
            .source(packet.slid, packet.service_level);
        self.complete(target.cqn, cqe, packet.solicited);
    }
}

/// The global route header a datagram came with, or blank space in its place.
fn grh(header: &DatagramHeader, payload: usize) -> [u8; GRH_SIZE] {
    // Base and datagram transport headers, and the invariant CRC.
    const HEADERS: usize = 12 + 8 + 4;
    const NEXT_HEADER_IBA: u8 = 0x1b;
    const VERSION: u32 = 6 << 28;
    let mut grh = [0; GRH_SIZE];
    if let Some(dgid) = header.dgid {
        grh.set_be32(0, VERSION);
        grh.set_be16(4, payload.saturating_add(HEADERS) as u16);
        grh.set_u8(6, NEXT_HEADER_IBA);
        grh.set_u8(7, 0xff);
        grh.set_field(8, &header.sgid);
        grh.set_field(24, &dgid);
    }
    grh
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Bench, QpSetup};

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
        bench.qp_rtr(TARGET, &target);
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
    fn an_xrc_send_goes_to_the_named_srq_and_its_cq() {
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
        // The first packet told that the connection is there.
        assert_eq!(xrc.bench.last_event(), Some((0x02, TARGET)));
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

        // A region of the target's own PD is not what counts.
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
                .srqs
                .get(SRQN)
                .unwrap()
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
    fn what_the_qp_does_not_allow_is_invalid() {
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
}
