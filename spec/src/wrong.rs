// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Faults of a call of a method, whatever the objects are, and the error for each.

use crate::{Errno, Errno::*};

macro_rules! wrongs {
    ($($wrong:ident $name:literal $errno:ident $text:literal,)*) => {
        /// One thing that is wrong with the header or with an attribute of a call.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Wrong { $(#[doc = $text] $wrong),* }

        impl Wrong {
            /// All of them, in the order of `uapi.rst`.
            pub const ALL: &[Wrong] = &[$(Wrong::$wrong),*];

            /// Returns the name for C.
            pub fn name(self) -> &'static str {
                match self { $(Wrong::$wrong => $name),* }
            }

            /// Returns the error with which the call fails.
            pub fn errno(self) -> Errno {
                match self { $(Wrong::$wrong => $errno),* }
            }

            /// Returns the words of `uapi.rst`.
            pub fn text(self) -> &'static str {
                match self { $(Wrong::$wrong => $text),* }
            }
        }
    };
}

wrongs! {
    Length "LENGTH" EINVAL "the length of the call is not that of its attributes",
    Driver "DRIVER" EINVAL "the driver is another",
    Method "METHOD" EPROTONOSUPPORT "the object or the method is unknown",
    HeaderReserved "HEADER_RESERVED" EPROTONOSUPPORT "a reserved member of the header is not 0",
    Missing "MISSING" EINVAL "a mandatory attribute is missing",
    Twice "TWICE" EINVAL "an attribute comes twice",
    Unknown "UNKNOWN" EPROTONOSUPPORT "an attribute is unknown, and mandatory by its flags",
    Reserved "RESERVED" EINVAL "a reserved member of an attribute is not 0",
    Short "SHORT" EINVAL "an attribute is too short",
    Long "LONG" EINVAL "an attribute is too long",
    Elements "ELEMENTS" EINVAL "the length of an array is not one of elements",
    NotZero "NOT_ZERO" EOPNOTSUPP "a longer structure has a byte that is unknown and not 0",
    Bits "BITS" EINVAL "a flag, an event or a bit of a mask is unknown",
    Padding "PADDING" EINVAL "a reserved member of a structure is not 0",
    Pointer "POINTER" EFAULT "the memory that an attribute is in cannot be accessed",
    NoHandle "NO_HANDLE" EINVAL "a handle is negative",
    Handle "HANDLE" ENOENT "the file has no such handle",
    Object "OBJECT" EINVAL "a handle is one of another object",
    Channel "CHANNEL" EBADF "a descriptor is not that of an event channel of the file",
    Descriptor "DESCRIPTOR" EINVAL "a descriptor has more than 32 bits",
}
