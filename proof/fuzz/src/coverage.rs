// SPDX-License-Identifier: GPL-2.0

//! The map that the plugin for QEMU, coverage.c, fills: memory that it shares with the guest, as a
//! PCI device.

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// As in coverage.c.
pub const MAP: usize = 1 << 16;
const HEADER: usize = 4096;

/// Maps the plugin's memory, and writes the first address and the end of the module's code to it.
pub fn open(size: u64) -> Result<&'static mut [u8], String> {
    let text = "/sys/module/ib_xrc_rcv/sections/.text";
    let begin = fs::read_to_string(text).map_err(|error| format!("{text}: {error}"))?;
    let begin = u64::from_str_radix(begin.trim().trim_start_matches("0x"), 16)
        .map_err(|error| format!("{text}: {error}"))?;
    let device = device().ok_or("there is no device of shared memory; proof/fuzz/run has one")?;
    fs::write(device.join("enable"), "1").map_err(|error| format!("the device: {error}"))?;
    let path = device.join("resource2").display().to_string();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| format!("{path}: {error}"))?;
    let anywhere = std::ptr::null_mut();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: New memory, of which no other part of the program knows.
    let memory = unsafe {
        libc::mmap(
            anywhere,
            HEADER + MAP,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(format!("{path}: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: The memory stays, begins with the two numbers, and is used here only. The plugin
    // writes to it, which is volatile enough for counts: they are read after a system call.
    unsafe {
        memory.cast::<u64>().add(1).write_volatile(begin + size);
        memory.cast::<u64>().write_volatile(begin);
        Ok(std::slice::from_raw_parts_mut(
            memory.cast::<u8>().add(HEADER),
            MAP,
        ))
    }
}

/// The memory of QEMU's ivshmem-plain.
fn device() -> Option<PathBuf> {
    let mut devices = fs::read_dir("/sys/bus/pci/devices")
        .ok()?
        .filter_map(Result::ok);
    devices.find_map(|entry| {
        let id = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let found = id("vendor").trim() == "0x1af4" && id("device").trim() == "0x1110";
        found.then(|| entry.path())
    })
}
