// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A guest that means harm: from a working adapter on, it writes whatever it likes to registers,
//! doorbells and memory, and posts whatever commands and work requests it can think of. The model
//! may refuse and may do nonsense; it must not panic, run out of bounds, or stop.

use std::time::Duration;

use strum::VariantArray;

use crate::bytes::Fields;
use crate::command::Opcode;
use crate::fabric::Fabric;
use crate::hca::Hca;
use crate::testing::{Bench, QpSetup, HEAP, ICM_GUEST, INBOX, OUTBOX};

/// Guests, and what each of them tries: a few seconds in all, unoptimised.
const GUESTS: u64 = 400;
const DEEDS: usize = 300;

// Objects of the adapter that the guest begins with.
const RC: (u32, u32) = (0x40, 0x41);
const UD: (u32, u32) = (0x42, 0x43);
const SENDER: u32 = 0x44;
const TARGET: u32 = 0x80_0045;
const SRQN: u32 = 0x50;
const KEY_INDEX: u32 = 0x10;
const EVERY_ACCESS: u32 = 0x1f << 10;

// Service types as the QP context has them.
const ST_RC: u32 = 0;
const ST_UD: u32 = 3;
const ST_XRC: u32 = 6;

/// xorshift64*: the same deeds in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A number that tends to mean something.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => self.next(),
            1 => u64::MAX >> self.below(64),
            2 => 1 << self.below(64),
            3 => HEAP + self.below(1 << 20),
            _ => self.below(0x100),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A few fields become something else.
    fn spoil(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() as u64) as usize & !3;
            let value = self.number() as u32;
            bytes.set_be32(at, value);
        }
    }
}

struct Guest {
    bench: Bench,
    random: Random,
    key: u32,
    /// One deed in so many may break what the guest has; others use it.
    patience: u64,
}

impl Guest {
    fn new(seed: u64) -> Self {
        let mut bench = Bench::connected();
        let (key, _) = bench.region(KEY_INDEX, 0x1_0000, 0x4000, EVERY_ACCESS);
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
        Self {
            bench,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            key,
            patience: 1 << (seed % 8),
        }
    }

    fn object(&mut self) -> u32 {
        let own = [
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
        match self.random.below(4) {
            0 => self.random.number() as u32,
            _ => self.random.one_of(&own),
        }
    }

    fn address(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.number(),
            1 => ICM_GUEST + self.random.below(0x10_0000),
            _ => HEAP + self.random.below(0x20_0000),
        }
    }

    fn command(&mut self) {
        let mut mailbox = match self.random.below(3) {
            0 => self.random.bytes(0x200),
            _ => {
                let service = self.random.one_of(&[ST_RC, ST_UD, ST_XRC, 1, 7]);
                let (mtt, doorbell) = (self.random.below(64) * 8, self.random.below(64) * 8);
                let memory = Some((mtt, HEAP + doorbell));
                let mut valid = QpSetup::new(service, self.object())
                    .mailbox(memory)
                    .to_vec();
                valid.resize(0x200, 0);
                valid
            }
        };
        self.random.spoil(&mut mailbox);
        let opcode = match self.random.below(16) {
            0 => self.random.next() as u32 & 0xfff,
            _ => self.random.one_of(Opcode::VARIANTS) as u32,
        };
        let opmod = self.random.below(5) as u32;
        let event = self.random.below(2) as u32;
        let modifier = self.object();
        let (inbox, outbox) = match self.random.below(8) {
            0 => (self.random.number(), self.address()),
            _ => (INBOX, OUTBOX),
        };
        let _ = self.bench.hca.dma.memory.write(INBOX, &mailbox);
        for (at, value) in [
            (0x00, (inbox >> 32) as u32),
            (0x04, inbox as u32),
            (0x08, modifier),
            (0x0c, (outbox >> 32) as u32),
            (0x10, outbox as u32),
            (0x14, 7 << 16),
            (0x18, 1 << 23 | event << 22 | opmod << 12 | opcode),
        ] {
            self.write_register(0x8_0680 + at, &value.to_be_bytes());
        }
    }

    fn write_register(&mut self, offset: u64, data: &[u8]) {
        let now = self.bench.now;
        self.bench.hca.write_registers(offset, data, now);
    }

    /// RDMA WRITE, READ and the atomics work as they are; the others want a receive.
    fn work_request(&mut self) {
        let qpn = self.random.one_of(&[RC.0, RC.1, UD.0, SENDER]);
        let opcode = self.random.one_of(&[0x08, 0x10, 0x11, 0x12]);
        let remote = (0x1_0000 + self.random.below(0x1000) * 8, self.key);
        let local = (8, self.key, 0x1_0000 + self.random.below(0x2000));
        let mut wqe = Bench::wqe(opcode, SRQN, Some(remote), local);
        if self.loses_patience() {
            wqe[3] = self.random.below(0x20) as u8;
            self.random.spoil(&mut wqe);
        }
        let _ = self.bench.try_post_send(qpn, wqe);
    }

    fn loses_patience(&mut self) -> bool {
        self.random.below(self.patience) == 0
    }

    fn deed(&mut self) {
        if !self.loses_patience() {
            return match self.random.below(2) {
                0 => self.time_passes(),
                _ => self.work_request(),
            };
        }
        match self.random.below(8) {
            0..=2 => self.command(),
            3 | 4 => {
                let (at, count) = (self.address(), self.random.below(64) as usize);
                let data = self.random.bytes(count);
                let _ = self.bench.hca.dma.memory.write(at, &data);
            }
            5 => {
                let page = self.random.one_of(&[0, 1, Bench::UAR, 131, u32::MAX >> 12]);
                let within = self.random.one_of(&[0x14, 0x20, 0x24, 0x800, 0x808, 0xffc]);
                let number = self.object() << 8;
                let mut data = [0; 8];
                data.set_be32(0, number);
                let value = self.random.number() as u32;
                data.set_be32(4, value);
                let size = self.random.one_of(&[1, 2, 4, 8]);
                let at = u64::from(page) << 12 | within;
                self.bench.hca.write_doorbell(at, &data[..size]);
            }
            _ => {
                let (at, size) = (self.random.number(), self.random.one_of(&[1, 2, 4, 8]));
                let mut data = self.random.bytes(size);
                self.bench.hca.read_registers(at, &mut data);
                self.bench.hca.config.read(at, &mut data);
                self.bench.hca.config.write(at, &data);
                // A reset would leave nothing to play with.
                if !(0xf_0000..=0xf_0010).contains(&at) {
                    self.write_register(at, &data);
                }
            }
        }
    }

    /// As the engine does it, but not for ever: requests that post each other never end.
    fn time_passes(&mut self) {
        self.bench.now += Duration::from_micros(self.random.below(5000));
        let hca = std::mem::replace(&mut self.bench.hca, Hca::new(7));
        let mut fabric = Fabric { hcas: vec![hca] };
        for _ in 0..64 {
            let next = fabric.run(self.bench.now);
            if next.is_none_or(|deadline| deadline > self.bench.now) {
                break;
            }
        }
        self.bench.hca = fabric.hcas.pop().unwrap();
    }
}

#[test]
fn nothing_a_guest_does_brings_the_model_down() {
    let (mut done, mut refused, mut requests, mut violations) = (0, 0, 0, 0);
    for seed in 1..=GUESTS {
        let mut guest = Guest::new(seed);
        for _ in 0..DEEDS {
            guest.deed();
        }
        let counters = &guest.bench.hca.counters;
        for outcomes in counters.commands.values() {
            for (status, count) in outcomes {
                *if *status == "ok" {
                    &mut done
                } else {
                    &mut refused
                } += count;
            }
        }
        requests += counters.requests.values().sum::<u64>();
        violations += guest.bench.violations().len();
    }
    // It would be no test if all were refused at the door.
    println!("{done} commands done, {refused} refused, {requests} requests sent, {violations} violations");
    assert!(done > 1000 && refused > 1000 && requests > 500);
}
