// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The sending half of a QP: takes work requests in order, turns each into a packet, and completes
//! it by the answer. A request that has to be tried again stays at the head of its queue.

use std::time::Instant;

use crate::engine::completion::{Cqe, LocalError, Syndrome};
use crate::engine::event::EventType;
use crate::engine::hca::{Card, Hca, Qp};
use crate::engine::headers::Grh;
use crate::engine::packet::{
    previous_psn, Atomic, Body, DatagramHeader, DropReason, Extra, Nak, Packet, Reply, Response,
};
use crate::engine::qp::{Context, Queues};
use crate::engine::transport::{Migration, Service, State};
use crate::engine::violation::Violation;
use crate::engine::work::{Beside, Request, SendWqe};

/// Bytes of an atomic's operand and answer.
const ATOMIC_SIZE: u64 = 8;
/// In a Q_Key: the sender's own is meant.
const QKEY_OWN: u32 = 1 << 31;

/// A request under way.
pub struct Transfer {
    /// The WQE; none when it is not looked at, or broken.
    wqe: Option<SendWqe>,
    /// The packet to send; none when the request ends here.
    pub packet: Option<Packet>,
    /// The reason why it fails here.
    error: Option<Syndrome>,
    /// Bytes the completion reports.
    bytes: u64,
}

impl Transfer {
    /// A request that fails, whatever its WQE says.
    fn failed(error: Syndrome) -> Self {
        Self {
            wqe: None,
            packet: None,
            error: Some(error),
            bytes: 0,
        }
    }
}

/// The field of a SEND, by that of its WQE.
fn extra(beside: Beside, field: [u8; 4]) -> Extra {
    match beside {
        Beside::Nothing => Extra::Nothing,
        Beside::Immediate => Extra::Immediate(field),
        Beside::Invalidate => Extra::Invalidate(u32::from_be_bytes(field)),
    }
}

impl<C: Card> Hca<C> {
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
        if qp
            .stall
            .is_some_and(|stall| stall.until.is_none_or(|until| until > now))
        {
            return None;
        }
        if self.gives_up(qpn) {
            return Some(Transfer::failed(Syndrome::TransportRetryExcErr));
        }
        let qp = self.qps.get_mut(qpn)?;
        let control = match qp.queues.head(&self.dma, &qp.context) {
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
        let parsed = qp.queues.request(&self.dma, &control, qp.service);
        let Some(wqe) = parsed else {
            return Some(Transfer::failed(Syndrome::LocalQpOpErr));
        };
        if wqe.inline_across_line {
            self.dma.violations.note(
                Violation::InlineAcrossLine,
                format_args!("QP {qpn:#x}, WQE {:#x}", qp.queues.index()),
            );
        }
        let bytes = match wqe.request {
            Request::CompareSwap { .. } | Request::FetchAdd { .. } => ATOMIC_SIZE,
            _ => wqe.length(),
        };
        let built = match &wqe.request {
            Request::Local(bytes) => C::execute_local(self, qpn, bytes).map(|()| None),
            _ => self.packet(qp, &wqe),
        };
        let (packet, error) = match built {
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

    fn packet(&self, qp: &Qp<C>, wqe: &SendWqe) -> Result<Option<Packet>, LocalError> {
        let length = wqe.length();
        if length > qp.context.max_message() {
            return Err(LocalError::Length(length));
        }
        let immediate = |wanted: bool| wanted.then_some(wqe.control.immediate);
        let body = match wqe.request {
            Request::Nop | Request::Local(_) => return Ok(None),
            Request::Send { .. } if qp.service == Service::Mlx && wqe.datagram.is_none() => {
                return C::management_packet(self, qp.qpn, wqe).map(Some);
            }
            Request::Send { beside } => Body::Send {
                payload: self.gather(qp, &wqe.segments)?,
                extra: extra(beside, wqe.control.immediate),
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
        let (port, slid) = match &wqe.datagram {
            Some(datagram) => (datagram.port, self.port(datagram.port).map(|port| port.lid)),
            None => (path.port, self.lid(&path)),
        };
        let slid = slid.ok_or(LocalError::Operation)?;
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
                service: Service::Ud,
                pkey,
                grh: datagram.grh.map(|grh| Grh {
                    sgid: self.port_gid(port),
                    ..grh
                }),
                dqpn: datagram.dqpn,
                psn,
                mtu,
                srqn: 0,
                migration_request: false,
                solicited: wqe.control.solicited,
                body,
                datagram: Some(DatagramHeader {
                    sqpn: qp.context.source_qpn().unwrap_or(qp.qpn),
                    qkey: if datagram.qkey & QKEY_OWN != 0 {
                        qp.context.qkey()
                    } else {
                        datagram.qkey
                    },
                }),
            },
            None => Packet {
                slid,
                dlid: path.remote_lid,
                service_level: path.service_level,
                service: qp.service,
                pkey,
                grh: self.grh(&path),
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
            self.counters.count_drop(DropReason::Response);
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
        let user = qp.user();
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
                match self.scatter(user, segments, &data) {
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
                self.stall_unanswered(qpn, now);
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
        let index = qp.queues.index();
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
        let cqe = Cqe::send_error(qpn, qp.queues.index(), syndrome);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::administration::SM_LID;
    use crate::engine::bytes::Fields;
    use crate::engine::headers::tests::general;
    use crate::engine::headers::{RawDatagram, VL_MANAGEMENT};
    use crate::mlx4::testing::{Bench, QpSetup};

    const LOCAL: u64 = 0x1_0000;
    /// Where a datagram is received, and its length with the space for a GRH.
    const RECEIVED: u64 = 0x200;
    const LENGTH: u32 = 40 + 256;

    /// QP0 and QP1 of both ports, with memory for a datagram.
    struct Management {
        bench: Bench,
        key: u32,
        page: u64,
    }

    fn management() -> Management {
        let mut bench = Bench::connected();
        bench.special_qps();
        let (key, page) = bench.region(0x10, LOCAL, 0x1000, 0x1f << 10);
        Management { bench, key, page }
    }

    impl Management {
        /// Posts a receive on `to`, sends from `from`, and returns the completion if the datagram
        /// arrived.
        fn send(&mut self, from: u32, to: u32, datagram: &RawDatagram) -> Option<[u8; 32]> {
            let bench = &mut self.bench;
            bench.post_receive(to, LENGTH, self.key, LOCAL + RECEIVED);
            let memory = &bench.hca.dma.memory;
            memory.write(self.page, &datagram.payload).unwrap();
            let wqe = Bench::management_wqe(datagram, self.key, LOCAL);
            bench.post_send(from, wqe);
            bench.settle();
            bench.received(0).then(|| bench.cqe(Bench::RECV_CQN, 0))
        }

        fn arrived<const N: usize>(&self, at: u64) -> [u8; N] {
            let memory = &self.bench.hca.dma.memory;
            memory.block(self.page + RECEIVED + at).unwrap()
        }
    }

    #[test]
    fn a_management_datagram_reaches_qp1_of_the_other_port() {
        let mut test = management();
        let datagram = RawDatagram {
            service_level: 3,
            pkey: 0x8001,
            solicited: true,
            ..general(2, &[0xa5; 256])
        };
        let cqe = test.send(Bench::QP1, Bench::QP1 + 1, &datagram).unwrap();
        assert_eq!(test.bench.completion(Bench::SEND_CQN, 0), Some(0));
        assert_eq!(cqe.get_be24(0), Bench::QP1 + 1);
        // The P_Key's index at port 2, QP1 without GRH, service level and LID, bytes.
        assert_eq!((cqe.get_be32(4), cqe.get_be32(8)), (2, 1));
        assert_eq!((cqe.get_be16(12), cqe.get_be16(14)), (0x3000, 1));
        assert_eq!(cqe.get_be32(0x14), LENGTH);
        assert_eq!(test.arrived::<40>(0), [0; 40]);
        assert_eq!(test.arrived::<256>(40), [0xa5; 256]);
    }

    #[test]
    fn its_grh_arrives_as_the_driver_wrote_it() {
        let mut test = management();
        let grh = Grh {
            traffic_class: 9,
            flow_label: 0x1_2345,
            hop_limit: 63,
            sgid: test.bench.hca.port_gid(1),
            dgid: test.bench.hca.port_gid(2),
        };
        let datagram = RawDatagram {
            grh: Some(grh),
            ..general(2, &[0x5a; 256])
        };
        let cqe = test.send(Bench::QP1, Bench::QP1 + 1, &datagram).unwrap();
        assert_eq!(cqe.get_be32(8), 1 << 31 | 1);
        assert_eq!(test.arrived::<40>(0), grh.of_datagram(256));
        assert_eq!(test.arrived::<256>(40), [0x5a; 256]);
    }

    #[test]
    fn a_subnet_management_packet_reaches_qp0_without_a_key() {
        let mut test = management();
        let datagram = RawDatagram {
            virtual_lane: VL_MANAGEMENT,
            dqpn: 0,
            sqpn: 0,
            qkey: 0,
            pkey: 0x1234,
            ..general(2, &[1; 256])
        };
        let cqe = test.send(Bench::QP0, Bench::QP0 + 1, &datagram).unwrap();
        assert_eq!((cqe.get_be24(0), cqe.get_be32(8)), (Bench::QP0 + 1, 0));
    }

    #[test]
    fn a_strange_key_or_partition_is_dropped() {
        let wrong = [
            RawDatagram {
                qkey: 0x8001_0001,
                ..general(2, &[0; 256])
            },
            RawDatagram {
                pkey: 0x8003,
                ..general(2, &[0; 256])
            },
            general(0xffff, &[0; 256]),
            general(77, &[0; 256]),
        ];
        for datagram in wrong {
            let mut test = management();
            let cqe = test.send(Bench::QP1, Bench::QP1 + 1, &datagram);
            assert_eq!(cqe, None, "{datagram:?}");
            assert_eq!(test.bench.completion(Bench::SEND_CQN, 0), Some(0));
        }
    }

    #[test]
    fn headers_that_contradict_the_wqe_are_refused() {
        for wrong in 0..3 {
            let mut test = management();
            let datagram = general(2, &[0; 256]);
            let mut wqe = Bench::management_wqe(&datagram, test.key, LOCAL);
            let mut from = Bench::QP1;
            match wrong {
                // Another LID, another length, QP0 without its virtual lane.
                0 => wqe.set_be16(12, 1),
                1 => wqe.set_be32(48, 252),
                _ => from = Bench::QP0,
            }
            test.bench.post_send(from, wqe);
            test.bench.settle();
            assert_eq!(test.bench.completion(Bench::SEND_CQN, 0), Some(2));
            assert_eq!(test.bench.violations(), [Violation::ManagementHeaders]);
        }
    }

    #[test]
    fn inline_data_across_a_line_are_noticed() {
        let mut bench = Bench::connected();
        bench.pair(0, 0x40, 0x41);
        let (key, _) = bench.region(0x10, LOCAL, 0x1000, 0x1f << 10);
        bench.post_receive(0x41, 64, key, LOCAL);
        let mut wqe = Bench::wqe(0x0a, 0, None, (8, key, LOCAL));
        wqe.truncate(16);
        wqe.extend_from_slice(&(1u32 << 31 | 45).to_be_bytes());
        wqe.resize(80, 0);
        wqe[7] = 5;
        bench.post_send(0x40, wqe);
        bench.settle();
        assert_eq!(bench.completion(Bench::SEND_CQN, 0), Some(0));
        assert_eq!(bench.violations(), [Violation::InlineAcrossLine]);
    }

    #[test]
    fn a_connected_qp_does_not_reach_qp1() {
        let mut test = management();
        test.bench.qp_rts(0x40, &QpSetup::new(1, 1));
        test.bench
            .post_receive(Bench::QP1 + 1, LENGTH, test.key, LOCAL);
        let wqe = Bench::wqe(0x0a, 0, None, (8, test.key, LOCAL));
        test.bench.post_send(0x40, wqe);
        test.bench.settle();
        assert!(!test.bench.received(0));
        assert_eq!(test.bench.hca.counters.drops[&DropReason::Service], 1);
    }

    #[test]
    fn the_subnet_administration_answers() {
        let mut test = management();
        let mut query = [0; 256];
        // SubnAdmGet(PathRecord) by LIDs.
        query.set_be32(0, 0x0103_0201);
        query.set_be64(8, 0x1234);
        query.set_be16(16, 0x35);
        query.set_be64(48, 3 << 4);
        query.set_be16(56 + 40, 2);
        query.set_be16(56 + 42, 1);
        let datagram = general(SM_LID, &query);
        let cqe = test.send(Bench::QP1, Bench::QP1, &datagram).unwrap();
        assert_eq!((cqe.get_be16(14), cqe.get_be32(8)), (SM_LID, 1));
        let answer = test.arrived::<256>(40);
        assert_eq!((answer.get_be32(0), answer.get_be16(4)), (0x0103_0281, 0));
        assert_eq!(answer.get_be64(8), 0x1234);
        let dgid = answer.field::<16>(56 + 8);
        assert_eq!(dgid, test.bench.hca.port_gid(2));
    }
}
