// SPDX-License-Identifier: GPL-2.0

//! `kernel::transmute`

/// A type without padding.
///
/// # Safety
///
/// Each byte of a value must be initialised.
pub unsafe trait AsBytes {
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: By the requirements of the trait, all bytes of `self` are initialised.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of_val(self)) }
    }
}

// SAFETY: It is an integer.
unsafe impl AsBytes for u32 {}

// SAFETY: It is an integer.
unsafe impl AsBytes for u64 {}

// SAFETY: Each byte is one of an element.
unsafe impl<T: AsBytes, const N: usize> AsBytes for [T; N] {}

/// A type of which any bytes are a valid value.
///
/// # Safety
///
/// As the description.
pub unsafe trait FromBytes {}

// SAFETY: It is an integer.
unsafe impl FromBytes for u32 {}

// SAFETY: It is an integer.
unsafe impl FromBytes for u64 {}
