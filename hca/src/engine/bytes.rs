// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Big-endian fields of the device's structures, by constant offset.
//!
//! Every structure the device shares with the driver is a block of bytes of a constant size whose
//! fields lie at constant offsets. An access outside the block is a mistake of ours, not of the
//! guest: tests catch it, production reads zero.

/// Reads and writes the fields of a block.
pub trait Fields {
    /// `N` bytes at `at`.
    fn field<const N: usize>(&self, at: usize) -> [u8; N];
    /// Replaces the bytes at `at`.
    fn set_field(&mut self, at: usize, value: &[u8]);

    /// The byte at `at`.
    fn get_u8(&self, at: usize) -> u8 {
        u8::from_be_bytes(self.field(at))
    }
    /// The 16-bit field at `at`.
    fn get_be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.field(at))
    }
    /// The 32-bit field at `at`.
    fn get_be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.field(at))
    }
    /// The low 24 bits of the 32-bit field at `at`: an object's number.
    fn get_be24(&self, at: usize) -> u32 {
        self.get_be32(at) & 0xff_ffff
    }
    /// The 64-bit field at `at`.
    fn get_be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.field(at))
    }
    /// Sets the byte at `at`.
    fn set_u8(&mut self, at: usize, value: u8) {
        self.set_field(at, &[value]);
    }
    /// Sets the 16-bit field at `at`.
    fn set_be16(&mut self, at: usize, value: u16) {
        self.set_field(at, &value.to_be_bytes());
    }
    /// Sets the 32-bit field at `at`.
    fn set_be32(&mut self, at: usize, value: u32) {
        self.set_field(at, &value.to_be_bytes());
    }
    /// Sets the 64-bit field at `at`.
    fn set_be64(&mut self, at: usize, value: u64) {
        self.set_field(at, &value.to_be_bytes());
    }
}

impl Fields for [u8] {
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = at.checked_add(N).and_then(|end| self.get(at..end));
        debug_assert!(bytes.is_some(), "field {at:#x}+{N} of {:#x}", self.len());
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; N])
    }

    fn set_field(&mut self, at: usize, value: &[u8]) {
        let len = self.len();
        let bytes = at
            .checked_add(value.len())
            .and_then(|end| self.get_mut(at..end));
        debug_assert!(bytes.is_some(), "field {at:#x}+{} of {len:#x}", value.len());
        if let Some(bytes) = bytes {
            bytes.copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian() {
        let mut block = [0u8; 16];
        block.set_be32(4, 0x8000_0208);
        assert_eq!(block[4..8], [0x80, 0, 2, 8]);
        assert_eq!(block.get_be24(4), 0x208);
        block.set_be64(8, 0x0102_0304_0506_0708);
        assert_eq!(block.get_be16(8), 0x0102);
        assert_eq!(block.get_u8(15), 8);
        assert_eq!(block.get_be64(8), 0x0102_0304_0506_0708);
    }

    #[test]
    #[should_panic(expected = "field 0xe+4")]
    fn a_field_outside_is_our_mistake() {
        [0u8; 16].get_be32(14);
    }
}
