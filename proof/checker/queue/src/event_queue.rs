// SPDX-License-Identifier: GPL-2.0

#![no_main]

libfuzzer_sys::fuzz_target!(|calls: &[u8]| checker::queue::check(calls));
