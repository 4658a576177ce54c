// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The subnet: adapters, and the packets between their ports. While cables are in, packets are
//! lost, repeated or delayed only as a test requests ([`crate::engine::fault::Wire`]).
//!
//! A message travels as a whole, but counts as the packets it would be: sequence numbers advance by
//! them, and both ends must agree on their size.
//!
//! One mutex around it guards the whole model. A caller that changes something calls
//! [`Fabric::run`] afterwards, or lets the engine thread do it.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use crate::engine::adapter::Adapter;
use crate::engine::administration::{Administration, Endport, SM_LID};
use crate::engine::capture::Capture;
use crate::engine::fault::Fate;
use crate::engine::packet::{DropReason, Packet, Reply, Response, LID_MULTICAST, LID_PERMISSIVE};
use crate::engine::port::Port;

/// Requests of one QP before another gets its turn, and the lock can change hands.
const BURST: usize = 16;

/// The subnet.
pub struct Fabric<A: ?Sized = dyn Adapter> {
    /// Its adapters.
    pub hcas: Vec<Box<A>>,
    /// Subnet administration.
    pub administration: Administration,
    /// Messages that arrive after the next one: those that are late, and answers of the
    /// administration.
    late: Vec<Packet>,
    /// The directory of captures, if there may be any.
    pub captures: Option<PathBuf>,
    /// The capture that runs.
    capture: Option<Capture>,
}

impl<A: Adapter + ?Sized> Fabric<A> {
    /// A subnet of these adapters.
    pub fn new(hcas: Vec<Box<A>>) -> Self {
        Self {
            hcas,
            administration: Administration::default(),
            late: Vec::new(),
            captures: None,
            capture: None,
        }
    }

    /// Captures packets in the file `name` of the directory of captures, or no longer.
    pub fn set_capture(&mut self, name: Option<&str>) -> Result<(), String> {
        let Some(name) = name else {
            self.capture = None;
            return Ok(());
        };
        let directory = self.captures.clone();
        let directory = directory.ok_or("there is no directory for captures")?;
        // A guest chooses it.
        let harmless = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(harmless) {
            return Err(format!("{name:?} is no name for a capture"));
        }
        let path = directory.join(name).with_extension("pcap");
        // It may be the same file.
        self.capture = None;
        let created = std::fs::create_dir_all(&directory).and_then(|()| Capture::create(&path));
        self.capture = Some(created.map_err(|error| format!("{}: {error}", path.display()))?);
        Ok(())
    }

    /// Gives `port` of adapter `index` the LIDs from `lid` on, which differ in `lmc` low bits.
    pub fn set_lids(&mut self, index: usize, port: u8, lid: u16, lmc: u8) -> Result<(), String> {
        let place = self.port_mut(index, port);
        let mut given = *place.ok_or_else(|| format!("no port {port}"))?;
        given.set_lids(lid, lmc)?;
        if given.lid_with(u8::MAX) >= SM_LID {
            return Err(format!(
                "LID {SM_LID} is the subnet administration's, those above are no port's"
            ));
        }
        for (adapter, hca) in self.hcas.iter_mut().enumerate() {
            for (number, other) in (1..).zip(hca.ports()) {
                let is_other = (adapter, number) != (index, port);
                if is_other && (given.has_lid(other.lid) || other.has_lid(lid)) {
                    return Err(format!("LID {} is another port's", other.lid));
                }
            }
        }
        if let Some(place) = self.port_mut(index, port) {
            *place = given;
        }
        Ok(())
    }

    fn port_mut(&mut self, index: usize, port: u8) -> Option<&mut Port> {
        let number = usize::from(port.checked_sub(1)?);
        self.hca(index)?.ports().get_mut(number)
    }

    /// Writes to the capture, and ends it if that fails.
    fn capture(&mut self, write: impl FnOnce(&mut Capture) -> io::Result<()>) {
        if let Some(Err(error)) = self.capture.as_mut().map(write) {
            log::warn!("capture: {error}");
            self.capture = None;
        }
    }

    /// Adapter `index`.
    pub fn hca(&mut self, index: usize) -> Option<&mut A> {
        self.hcas.get_mut(index).map(Box::as_mut)
    }

    /// The adapter with an active port of this LID.
    fn at(&mut self, lid: u16) -> Option<&mut A> {
        let mut hcas = self.hcas.iter_mut();
        hcas.find(|hca| hca.has_lid(lid)).map(Box::as_mut)
    }

    /// Carries a packet of QP `qpn` of adapter `index` to its port, and the answer back.
    pub fn deliver(&mut self, index: usize, qpn: u32, packet: &Packet, now: Instant) -> Reply {
        let late = std::mem::take(&mut self.late);
        let response = match self.fate(index) {
            Fate::Arrives => self.carry(packet, now),
            Fate::Lost => None,
            Fate::Repeated => {
                let response = self.carry(packet, now);
                self.carry(packet, now);
                response
            }
            Fate::Late => {
                self.late.push(packet.clone());
                match packet.service.reliable() {
                    true => self.carry(packet, now),
                    false => None,
                }
            }
        };
        for packet in late {
            self.carry(&packet, now);
        }
        match response {
            Some(response) => self.answer(index, qpn, packet, response),
            None => Reply::Silence,
        }
    }

    /// The ports that carry packets.
    fn endports(&self) -> Vec<Endport> {
        self.hcas.iter().flat_map(|hca| hca.endports()).collect()
    }

    fn fate(&mut self, index: usize) -> Fate {
        match self.hca(index) {
            Some(hca) => hca.faults().fate(),
            None => Fate::Arrives,
        }
    }

    /// Carries a packet to its port.
    fn carry(&mut self, packet: &Packet, now: Instant) -> Option<Response> {
        if packet.slid != SM_LID {
            self.at(packet.slid)?;
        }
        self.capture(|capture| capture.request(packet));
        if packet.dlid == SM_LID {
            let ports = self.endports();
            let answer = self.administration.answer(packet, &ports);
            self.late.extend(answer);
            return None;
        }
        if packet.dlid == LID_PERMISSIVE {
            return None;
        }
        if packet.dlid >= LID_MULTICAST {
            for hca in &mut self.hcas {
                hca.receive_multicast(packet);
            }
            return None;
        }
        self.at(packet.dlid)?.respond(packet, now)
    }

    /// Carries the answer to a packet of QP `qpn` of adapter `index` to its destination.
    fn answer(&mut self, index: usize, qpn: u32, packet: &Packet, response: Response) -> Reply {
        let sender = self.at(response.slid);
        if sender.is_none_or(|hca| hca.faults().answer_is_lost()) {
            return Reply::Silence;
        }
        self.capture(|capture| capture.response(packet, &response));
        match self.at(response.dlid) {
            Some(hca) if hca.index() == index => hca.take_response(qpn, packet, response),
            Some(hca) => {
                hca.count_drop(DropReason::Response);
                Reply::Silence
            }
            None => Reply::Silence,
        }
    }

    /// Does one round of the work that is due. Returns when there is more, if at all.
    pub fn run(&mut self, now: Instant) -> Option<Instant> {
        for index in 0..self.hcas.len() {
            let Some(hca) = self.hca(index) else {
                continue;
            };
            hca.run_timers(now);
            if let Some(qpn) = hca.schedule().next_queue() {
                self.send(index, qpn, now);
            }
        }
        // There is no next one to wait for.
        while !self.late.is_empty() {
            for packet in std::mem::take(&mut self.late) {
                self.carry(&packet, now);
            }
        }
        self.hcas.iter().filter_map(|hca| hca.deadline(now)).min()
    }

    /// Sends the WQEs posted to QP `qpn` of adapter `index`, up to a burst.
    fn send(&mut self, index: usize, qpn: u32, now: Instant) {
        for _ in 0..BURST {
            let Some(transfer) = self.hca(index).and_then(|hca| hca.next_transfer(qpn, now)) else {
                return;
            };
            let reply = match &transfer.packet {
                Some(packet) => self.deliver(index, qpn, packet, now),
                None => Reply::Silence,
            };
            let Some(hca) = self.hca(index) else {
                return;
            };
            if !hca.finish_transfer(qpn, transfer, reply, now) {
                return;
            }
        }
        if let Some(hca) = self.hca(index) {
            hca.schedule().queue(qpn);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::engine::bytes::Fields;
    use crate::engine::fault::Wire;
    use crate::mlx4::testing::{Bench, QpSetup};

    const LOCAL: u64 = 0x1_0000;
    const MESSAGES: u64 = 12;

    /// Sends messages of eight bytes from one QP to the other over such a wire, and waits for each.
    /// Returns those that arrived, in order.
    fn send(service: u32, wire: Wire) -> Vec<u8> {
        let mut bench = Bench::connected();
        let setup = QpSetup {
            retries: 7,
            ..QpSetup::new(service, 0x41)
        };
        bench.qp_rts(0x40, &setup);
        let back = QpSetup {
            path: (2, 1),
            ..QpSetup::new(service, 0x40)
        };
        bench.qp_rts(0x41, &back);
        let (key, page) = bench.region(0x10, LOCAL, 0x1000, 0x1f << 10);
        bench.hca.faults.set_wire(wire);
        let (mut sent, mut received, mut arrived) = (0, 0, Vec::new());
        for number in 0..MESSAGES {
            bench
                .hca
                .dma
                .memory
                .write(page, &[number as u8; 8])
                .unwrap();
            while bench.receives(0x41) < received + 4 {
                let slot = u64::from(bench.receives(0x41) % 4) * 64;
                bench.post_receive(0x41, 64, key, LOCAL + 0x100 + slot);
            }
            let mut wqe = Bench::wqe(0x0a, 0, None, (8, key, LOCAL));
            if service == 3 {
                let mut address = [0; 48];
                address.set_be32(0, 1 << 24);
                address.set_be16(6, 2);
                address.set_be32(32, 0x41);
                address.set_be32(36, Bench::QKEY);
                wqe.splice(16..16, address);
                wqe[7] += 3;
            }
            bench.post_send(0x40, wqe);
            bench.settle();
            for _ in 0..8 {
                bench.wait(Duration::from_millis(5));
            }
            while bench.received(received) {
                let slot = u64::from(received % 4) * 64;
                let grh = if service == 3 { 40 } else { 0 };
                let at = page + 0x100 + slot + grh;
                arrived.push(bench.hca.dma.memory.block::<1>(at).unwrap()[0]);
                received += 1;
                bench.set_cq_consumer(Bench::RECV_CQN, received);
            }
            sent += 1;
            bench.set_cq_consumer(Bench::SEND_CQN, sent);
            assert_eq!(bench.completion(Bench::SEND_CQN, number), Some(0));
        }
        arrived
    }

    fn in_order() -> Vec<u8> {
        (0..MESSAGES as u8).collect()
    }

    #[test]
    fn a_reliable_connection_loses_repeats_and_reorders_nothing() {
        let wires = [
            (2, 0, 0, 0, None),
            (0, 3, 0, 0, None),
            (0, 0, 1, 0, None),
            (0, 0, 0, 1, None),
            (5, 4, 3, 2, None),
            (4, 4, 2, 2, Some(7)),
        ];
        for (lose, lose_answers, repeat, delay, seed) in wires {
            let wire = Wire {
                lose,
                lose_answers,
                repeat,
                delay,
                seed,
            };
            assert_eq!(send(0, wire), in_order(), "{wire:?}");
        }
    }

    #[test]
    fn datagrams_are_lost_repeated_and_delayed() {
        let lose = Wire {
            lose: 4,
            ..Wire::default()
        };
        assert_eq!(send(3, lose), [0, 1, 2, 4, 5, 6, 8, 9, 10]);
        let repeat = Wire {
            repeat: 6,
            ..Wire::default()
        };
        assert_eq!(
            send(3, repeat),
            [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 11]
        );
    }
}

/// Adapters of both kinds on one subnet.
#[cfg(test)]
#[cfg(mlx5)]
mod mixed {
    use serde_json::json;

    use super::*;
    use crate::mlx4::card::Hca as ConnectX3;
    use crate::mlx4::testing::{Bench as First, QpSetup};
    use crate::mlx5::testing::{self, Bench as Second};

    const LENGTH: u32 = 0x300;
    /// Virtual addresses at the ConnectX-3.
    const BUFFERS: u64 = 0x1_0000;
    const XRCD: u32 = 7;
    const SRQN: u32 = 0x45;
    /// The number of an XRC target of a ConnectX-3 has bit 23.
    const TARGET: u32 = 0x80_0208;
    const INITIATOR: u32 = 0x209;
    const CONNECTED: u32 = 0x40;
    const CONNECTX3_XRC: u32 = 6;

    /// LIDs of the first port of the first adapter, and of the only one of the second.
    const LIDS: (u16, u16) = (1, 3);

    /// Bytes of a buffer that differ in each, and from its neighbours.
    fn data(number: u8) -> Vec<u8> {
        let byte = |index: u32| (index as u8).wrapping_mul(7).wrapping_add(number);
        (0..LENGTH).map(byte).collect()
    }

    /// A ConnectX-3 and a ConnectX-6, and where in the memory of each are four buffers, of which
    /// two have what it sends.
    struct Pair {
        first: First,
        key: u32,
        second: Second,
        pages: (u64, u64),
    }

    fn pair() -> Pair {
        let mut first = First::connected();
        let (key, page) = first.region(0x10, BUFFERS, 0x1000, 0x1f << 10);
        let mut second = Second::new(1);
        let pages = (page, second.page());
        for number in 0..2 {
            let at = |page: u64| page + u64::from(number) * u64::from(LENGTH);
            first
                .hca
                .dma
                .memory
                .write(at(pages.0), &data(number))
                .unwrap();
            second.write(at(pages.1), &data(number + 2));
        }
        Pair {
            first,
            key,
            second,
            pages,
        }
    }

    impl Pair {
        /// The address of buffer `number` for requests of the ConnectX-3.
        fn at_first(number: u64) -> u64 {
            BUFFERS + number * u64::from(LENGTH)
        }

        /// The same for requests of the ConnectX-6.
        fn at_second(&self, number: u64) -> u64 {
            self.pages.1 + number * u64::from(LENGTH)
        }

        fn setup(service: u32, remote: u32) -> QpSetup {
            QpSetup {
                path: (1, LIDS.1),
                ..QpSetup::new(service, remote)
            }
        }

        /// The two adapters do all that was posted, and violate nothing. Returns the third and
        /// the fourth buffer of each.
        fn run(mut self) -> [[Vec<u8>; 2]; 2] {
            let now = self.first.now;
            let first = std::mem::replace(&mut self.first.hca, ConnectX3::new(7));
            let second = std::mem::replace(&mut self.second.hca, crate::mlx5::card::Hca::new(8));
            let hcas: Vec<Box<dyn Adapter>> = vec![Box::new(first), Box::new(second)];
            let mut fabric = Fabric::new(hcas);
            while fabric.run(now).is_some_and(|deadline| deadline <= now) {}
            let pages = [self.pages.0, self.pages.1];
            let mut received = Vec::new();
            for (hca, page) in fabric.hcas.iter_mut().zip(pages) {
                assert_eq!(hca.status()["violations"], json!({}));
                assert_eq!(hca.status()["messages"], json!(1));
                received.push([2, 3].map(|number: u64| {
                    let mut bytes = vec![0; LENGTH as usize];
                    let at = page + number * u64::from(LENGTH);
                    hca.memory().read(at, &mut bytes).unwrap();
                    bytes
                }));
            }
            received.try_into().unwrap()
        }
    }

    #[test]
    fn a_reliable_connection_joins_cards_of_two_kinds() {
        let mut pair = pair();
        let qpn = pair.second.create_qp(testing::RC, &[]).unwrap();
        pair.second.connect(qpn, LIDS.0, CONNECTED);
        pair.first.qp_rts(CONNECTED, &Pair::setup(0, qpn));
        // A message each way, then a WRITE.
        pair.first
            .post_receive(CONNECTED, LENGTH, pair.key, Pair::at_first(2));
        let at = pair.at_second(2);
        pair.second.post_receive(qpn, false, LENGTH, at);
        let from = |number| (LENGTH, pair.key, Pair::at_first(number));
        let send = First::wqe(0x0a, 0, None, from(0));
        let write = First::wqe(0x08, 0, Some((pair.at_second(3), pair.second.key)), from(1));
        pair.first.post_send(CONNECTED, send);
        pair.first.post_send(CONNECTED, write);
        let from = [pair.at_second(0), pair.at_second(1)];
        let to = (Pair::at_first(3), pair.key);
        pair.second.post_send(qpn, None, None, (LENGTH, from[0]));
        pair.second
            .post_send(qpn, None, Some(to), (LENGTH, from[1]));
        assert_eq!(pair.run(), [[data(2), data(3)], [data(0), data(1)]]);
    }

    #[test]
    fn xrc_joins_cards_of_two_kinds() {
        let mut pair = pair();
        let (target, initiator) = (pair.second.target(), pair.second.initiator());
        let srqn = pair.second.srq();
        pair.second.connect(target, LIDS.0, INITIATOR);
        pair.second.connect(initiator, LIDS.0, TARGET);
        pair.first.srq(SRQN, 2, XRCD as u16, First::RECV_CQN);
        let setup = QpSetup {
            xrcd: XRCD,
            ..Pair::setup(CONNECTX3_XRC, initiator)
        };
        pair.first.qp_rtr(TARGET, &setup);
        pair.first
            .qp_rts(INITIATOR, &Pair::setup(CONNECTX3_XRC, target));
        pair.first
            .fill_srq(SRQN, 0, LENGTH, pair.key, Pair::at_first(2));
        pair.first.post_srq(SRQN, 1);
        let at = pair.at_second(2);
        pair.second.post_receive(srqn, true, LENGTH, at);
        let from = |number| (LENGTH, pair.key, Pair::at_first(number));
        let send = First::wqe(0x0a, srqn, None, from(0));
        let write = First::wqe(
            0x08,
            srqn,
            Some((pair.at_second(3), pair.second.key)),
            from(1),
        );
        pair.first.post_send(INITIATOR, send);
        pair.first.post_send(INITIATOR, write);
        let from = [pair.at_second(0), pair.at_second(1)];
        let to = (Pair::at_first(3), pair.key);
        pair.second
            .post_send(initiator, Some(SRQN), None, (LENGTH, from[0]));
        pair.second
            .post_send(initiator, Some(SRQN), Some(to), (LENGTH, from[1]));
        assert_eq!(pair.run(), [[data(2), data(3)], [data(0), data(1)]]);
    }
}
