// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Errors of calls, and sets of them.

use std::fmt;

macro_rules! errnos {
    ($($name:ident $number:literal,)*) => {
        /// An error of a call, by its name in `<errno.h>`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Errno { $($name = $number),* }

        impl Errno {
            /// All of them.
            pub const ALL: &[Errno] = &[$(Errno::$name),*];
        }
    };
}

// With the numbers of all architectures that the module is built for.
errnos! {
    EPERM 1,
    ENOENT 2,
    EINTR 4,
    EIO 5,
    EBADF 9,
    EAGAIN 11,
    ENOMEM 12,
    EACCES 13,
    EFAULT 14,
    EBUSY 16,
    ENODEV 19,
    EINVAL 22,
    ENFILE 23,
    EMFILE 24,
    ENODATA 61,
    EPROTONOSUPPORT 93,
    EOPNOTSUPP 95,
    ENETUNREACH 101,
    ENOBUFS 105,
    ETIMEDOUT 110,
    EHOSTUNREACH 113,
    EDQUOT 122,
}

impl Errno {
    /// Returns the positive number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Returns the error with a positive number, if the contract has it.
    pub fn from_number(number: i32) -> Option<Errno> {
        let mut all = Errno::ALL.iter().copied();
        all.find(|errno| errno.number() == number)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A set of errors.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Errnos(u128);

impl Errnos {
    /// The empty set.
    pub const NONE: Errnos = Errnos(0);

    /// Returns the set of these.
    pub const fn of(errnos: &[Errno]) -> Errnos {
        let (mut bits, mut index) = (0, 0);
        while index < errnos.len() {
            bits |= 1 << errnos[index] as u32;
            index += 1;
        }
        Errnos(bits)
    }

    /// Returns the union of two sets.
    pub const fn or(self, other: Errnos) -> Errnos {
        Errnos(self.0 | other.0)
    }

    /// Returns the set without those of another.
    pub const fn without(self, other: Errnos) -> Errnos {
        Errnos(self.0 & !other.0)
    }

    /// Whether the set has an error.
    pub const fn has(self, errno: Errno) -> bool {
        self.0 & (1 << errno as u32) != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds an error if something is wrong.
    pub fn add_if(&mut self, is_wrong: bool, errno: Errno) {
        if is_wrong {
            self.0 |= 1 << errno as u32;
        }
    }

    /// Returns the errors, by number.
    pub fn iter(self) -> impl Iterator<Item = Errno> {
        let all = Errno::ALL.iter().copied();
        all.filter(move |errno| self.has(*errno))
    }
}

impl fmt::Debug for Errnos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
