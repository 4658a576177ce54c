// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A malicious guest: from a working adapter on, it writes arbitrary values to registers,
//! doorbells and memory, and posts arbitrary commands and work requests. The model
//! may refuse them and may do nonsense; it must not panic, run out of bounds, or stop.

use std::cell::Cell;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use strum::VariantArray;

use crate::engine::administration::SM_LID;
use crate::engine::bytes::Fields;
use crate::engine::fabric::Fabric;
use crate::engine::headers::tests::general;
use crate::mlx4::card::Hca;
use crate::mlx4::command::Opcode;
use crate::mlx4::testing::{Bench, QpSetup, HEAP, ICM_GUEST, INBOX, OUTBOX};

/// Guests, and the number of actions of each: a few seconds in all, unoptimised.
const GUESTS: u32 = 200;
const DEEDS: usize = 300;

// Objects of the adapter that the guest begins with.
const RC: (u32, u32) = (0x40, 0x41);
const UD: (u32, u32) = (0x42, 0x43);
const SENDER: u32 = 0x44;
const TARGET: u32 = 0x80_0045;
const SRQN: u32 = 0x50;
const KEY_INDEX: u32 = 0x10;
const OBJECTS: &[u32] = &[
    RC.0,
    RC.1,
    UD.0,
    UD.1,
    SENDER,
    TARGET,
    SRQN,
    KEY_INDEX,
    Bench::SEND_CQN,
    Bench::RECV_CQN,
    1,
    2,
];
const REGION: u64 = 0x1_0000;
const EVERY_ACCESS: u32 = 0x1f << 10;

// Service types as the QP context has them.
const ST_RC: u32 = 0;
const ST_UC: u32 = 1;
const ST_UD: u32 = 3;
const ST_XRC: u32 = 6;
const ST_MLX: u32 = 7;

const HCR: u64 = 0x8_0680;

/// One thing that a guest does.
#[derive(Clone, Debug)]
enum Deed {
    Command {
        opcode: u16,
        opmod: u32,
        event: bool,
        modifier: u32,
        inbox: u64,
        outbox: u64,
        mailbox: Vec<u8>,
    },
    WorkRequest {
        qpn: u32,
        opcode: u8,
        remote: u64,
        local: u64,
        spoil: Vec<(usize, u32)>,
    },
    Management {
        qpn: u32,
        dlid: u16,
        datagram: Vec<u8>,
        spoil: Vec<(usize, u32)>,
    },
    Memory(u64, Vec<u8>),
    Doorbell(u64, Vec<u8>),
    Registers(u64, Vec<u8>),
    Time(Duration),
}

/// A number that tends to mean something.
fn number() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        1 => any::<u64>(),
        1 => (0u32..64).prop_map(|shift| u64::MAX >> shift),
        1 => (0u32..64).prop_map(|shift| 1 << shift),
        1 => HEAP..HEAP + (1 << 20),
        2 => 0u64..0x100,
    ]
}

fn object() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![1 => number().prop_map(|number| number as u32), 3 => select(OBJECTS)]
}

fn address() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        1 => number(),
        1 => ICM_GUEST..ICM_GUEST + 0x10_0000,
        2 => HEAP..HEAP + 0x20_0000,
    ]
}

fn access() -> impl Strategy<Value = Vec<u8>> {
    select(&[1usize, 2, 4, 8][..]).prop_flat_map(|size| vec(any::<u8>(), size))
}

/// A few fields to overwrite, with their values.
fn spoil() -> impl Strategy<Value = Vec<(usize, u32)>> {
    vec(
        (any::<usize>(), number().prop_map(|value| value as u32)),
        1..5,
    )
}

fn apply(spoil: &[(usize, u32)], bytes: &mut [u8]) {
    for (at, value) in spoil {
        let words = bytes.len() / 4;
        bytes.set_be32(at % words * 4, *value);
    }
}

fn mailbox() -> impl Strategy<Value = Vec<u8>> {
    let services = select(&[ST_RC, ST_UC, ST_UD, ST_XRC, ST_MLX][..]);
    let valid =
        (services, object(), 0u64..64, 0u64..64).prop_map(|(service, peer, mtt, doorbell)| {
            let memory = Some((mtt * 8, HEAP + doorbell * 8));
            let mut mailbox = QpSetup::new(service, peer).mailbox(memory).to_vec();
            mailbox.resize(0x200, 0);
            mailbox
        });
    let any = prop_oneof![1 => vec(any::<u8>(), 0x200), 2 => valid];
    (any, spoil()).prop_map(|(mut mailbox, spoil)| {
        apply(&spoil, &mut mailbox);
        mailbox
    })
}

fn command() -> impl Strategy<Value = Deed> {
    let opcodes = select(Opcode::VARIANTS).prop_map(|opcode| opcode as u16);
    let boxes = prop_oneof![7 => Just((INBOX, OUTBOX)), 1 => (number(), address())];
    let fields = (
        prop_oneof![1 => 0u16..0x1000, 15 => opcodes],
        0u32..5,
        any::<bool>(),
        object(),
        boxes,
        mailbox(),
    );
    fields.prop_map(
        |(opcode, opmod, event, modifier, (inbox, outbox), mailbox)| Deed::Command {
            opcode,
            opmod,
            event,
            modifier,
            inbox,
            outbox,
            mailbox,
        },
    )
}

/// RDMA WRITE, READ and the atomics work as they are; the others want a receive.
fn work_request(spoil: impl Strategy<Value = Vec<(usize, u32)>>) -> impl Strategy<Value = Deed> {
    let fields = (
        select(&[RC.0, RC.1, UD.0, SENDER][..]),
        select(&[0x08u8, 0x10, 0x11, 0x12][..]),
        0u64..0x1000,
        0u64..0x2000,
        spoil,
    );
    fields.prop_map(|(qpn, opcode, remote, local, spoil)| Deed::WorkRequest {
        qpn,
        opcode,
        remote: REGION + remote * 8,
        local: REGION + local,
        spoil,
    })
}

/// A datagram of QP0 or QP1: mostly a request that the subnet administration has an answer to.
fn management(spoil: impl Strategy<Value = Vec<(usize, u32)>>) -> impl Strategy<Value = Deed> {
    const MULTICAST: u32 = 0xff12_0000;
    let fields = (
        select(&[Bench::QP1, Bench::QP1, Bench::QP1 + 1, Bench::QP0][..]),
        select(&[SM_LID, SM_LID, SM_LID, 2, 0xc000, 0xffff][..]),
        select(&[0x01u8, 0x02, 0x15][..]),
        select(&[0x01u16, 0x35, 0x38][..]),
        prop_oneof![any::<u64>(), Just(u64::MAX)],
        (vec(any::<u8>(), 200), any::<bool>(), 0u8..4),
        spoil,
    );
    fields.prop_map(|(qpn, dlid, method, attribute, components, data, spoil)| {
        let mut datagram = vec![0; 256];
        datagram.set_be32(0, 0x0103_0200 | u32::from(method));
        datagram.set_be16(16, attribute);
        datagram.set_be64(48, components);
        let (data, ours, last) = data;
        datagram.set_field(56, &data);
        if ours {
            // A group that others join too, and our port.
            datagram.set_field(56, &[0; 32]);
            datagram.set_be32(56, MULTICAST);
            datagram.set_u8(71, last);
            datagram.set_be64(72, 0xfe80 << 48);
            datagram.set_be64(80, 0x0002_c903_0010_0001);
        }
        Deed::Management {
            qpn,
            dlid,
            datagram,
            spoil,
        }
    })
}

fn doorbell() -> impl Strategy<Value = Deed> {
    let pages = select(&[0, 1, Bench::UAR, 131, u32::MAX >> 12][..]);
    let within = select(&[0x14u64, 0x20, 0x24, 0x800, 0x808, 0xffc][..]);
    let sizes = select(&[1usize, 2, 4, 8][..]);
    (pages, within, object(), number(), sizes).prop_map(|(page, within, object, value, size)| {
        let mut data = [0; 8];
        data.set_be32(0, object << 8);
        data.set_be32(4, value as u32);
        Deed::Doorbell(u64::from(page) << 12 | within, data[..size].to_vec())
    })
}

/// A guest with one action in `patience` that may break its objects; the others use them.
fn deeds(patience: u32) -> impl Strategy<Value = Vec<Deed>> {
    // A reset would leave nothing to play with.
    let registers = (number(), access()).prop_filter("reset", |(at, _)| {
        !(0xf_0000..=0xf_0010).contains(at) && *at != 4
    });
    let deed = prop_oneof![
        3 => command(),
        2 => (address(), vec(any::<u8>(), 0..64)).prop_map(|(at, data)| Deed::Memory(at, data)),
        1 => doorbell(),
        1 => work_request(spoil()),
        1 => management(spoil()),
        2 => registers.prop_map(|(at, data)| Deed::Registers(at, data)),
    ];
    let civil = prop_oneof![
        (0u64..5000).prop_map(|micros| Deed::Time(Duration::from_micros(micros))),
        work_request(Just(Vec::new())),
        management(Just(Vec::new())),
    ];
    vec(prop_oneof![1 => deed, patience => civil], DEEDS)
}

struct Guest {
    bench: Bench,
    key: u32,
    /// The first page of the region.
    page: u64,
}

impl Guest {
    fn new() -> Self {
        let mut bench = Bench::connected();
        let (key, page) = bench.region(KEY_INDEX, REGION, 0x4000, EVERY_ACCESS);
        bench.pair(ST_RC, RC.0, RC.1);
        bench.pair(ST_UD, UD.0, UD.1);
        bench.srq(SRQN, 3, 7, Bench::RECV_CQN);
        bench.qp_rts(SENDER, &QpSetup::new(ST_XRC, TARGET));
        let target = QpSetup {
            xrcd: 7,
            path: (2, 1),
            alternate: (1, 2),
            ..QpSetup::new(ST_XRC, SENDER)
        };
        bench.qp_rtr(TARGET, &target);
        bench.special_qps();
        for slot in 0..4 {
            bench.post_receive(Bench::QP1, 296, key, REGION + 0x800 + slot * 296);
        }
        Self { bench, key, page }
    }

    fn write_register(&mut self, offset: u64, data: &[u8]) {
        let now = self.bench.now;
        self.bench.hca.write_registers(offset, data, now);
    }

    fn commit(&mut self, deed: &Deed) {
        match deed {
            Deed::Command {
                opcode,
                opmod,
                event,
                modifier,
                inbox,
                outbox,
                mailbox,
            } => {
                let _ = self.bench.hca.dma.memory.write(INBOX, mailbox);
                let go = 1 << 23 | u32::from(*event) << 22 | opmod << 12 | u32::from(*opcode);
                let words = [
                    (inbox >> 32) as u32,
                    *inbox as u32,
                    *modifier,
                    (outbox >> 32) as u32,
                    *outbox as u32,
                    7 << 16,
                    go,
                ];
                for (at, word) in (HCR..).step_by(4).zip(words) {
                    self.write_register(at, &word.to_be_bytes());
                }
            }
            Deed::WorkRequest {
                qpn,
                opcode,
                remote,
                local,
                spoil,
            } => {
                let local = (8, self.key, *local);
                let mut wqe = Bench::wqe(*opcode, SRQN, Some((*remote, self.key)), local);
                apply(spoil, &mut wqe);
                let _ = self.bench.try_post_send(*qpn, wqe);
            }
            Deed::Management {
                qpn,
                dlid,
                datagram,
                spoil,
            } => {
                let _ = self.bench.hca.dma.memory.write(self.page, datagram);
                let datagram = general(*dlid, datagram);
                let mut wqe = Bench::management_wqe(&datagram, self.key, REGION);
                apply(spoil, &mut wqe);
                let _ = self.bench.try_post_send(*qpn, wqe);
            }
            Deed::Memory(at, data) => {
                let _ = self.bench.hca.dma.memory.write(*at, data);
            }
            Deed::Doorbell(at, data) => self.bench.hca.write_doorbell(*at, data),
            Deed::Registers(at, data) => {
                let mut answer = data.clone();
                self.bench.hca.read_registers(*at, &mut answer);
                self.bench.hca.config.read(*at, &mut answer);
                self.bench.hca.write_config(*at, data);
                self.write_register(*at, data);
            }
            Deed::Time(time) => self.time_passes(*time),
        }
    }

    /// As the engine does it, but not for ever: requests that post each other never end.
    fn time_passes(&mut self, time: Duration) {
        self.bench.now += time;
        let hca = std::mem::replace(&mut self.bench.hca, Hca::new(7));
        let mut fabric = Fabric::new(vec![Box::new(hca)]);
        fabric.administration = std::mem::take(&mut self.bench.administration);
        for _ in 0..64 {
            let next = fabric.run(self.bench.now);
            if next.is_none_or(|deadline| deadline > self.bench.now) {
                break;
            }
        }
        self.bench.hca = *fabric.hcas.pop().unwrap();
        self.bench.administration = fabric.administration;
    }
}

#[test]
fn nothing_a_guest_does_brings_the_model_down() {
    let config = Config {
        cases: GUESTS,
        failure_persistence: None,
        ..Config::default()
    };
    // The same deeds in every run.
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let (done, refused, requests) = (Cell::new(0u64), Cell::new(0u64), Cell::new(0u64));
    let guests = (0u32..8).prop_flat_map(|patience| deeds(1 << patience));
    let outcome = TestRunner::new_with_rng(config, random).run(&guests, |deeds| {
        let mut guest = Guest::new();
        for deed in &deeds {
            guest.commit(deed);
        }
        guest.bench.violations();
        let counters = &guest.bench.hca.counters;
        for (status, count) in counters.commands.values().flatten() {
            let counter = if *status == "ok" { &done } else { &refused };
            counter.set(counter.get() + count);
        }
        requests.set(requests.get() + counters.requests.values().sum::<u64>());
        Ok(())
    });
    outcome.unwrap();
    // It would be no test if all were refused at the door.
    println!("{done:?} commands done, {refused:?} refused, {requests:?} requests sent");
    assert!(done.get() > 1000 && refused.get() > 1000 && requests.get() > 500);
}
