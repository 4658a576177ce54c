// SPDX-License-Identifier: GPL-2.0

//! Calls of the event queue as libFuzzer chooses them, compared with a plain list.

#![no_main]

libfuzzer_sys::fuzz_target!(|calls: &[u8]| checker::queue::check(calls));
