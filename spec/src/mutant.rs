// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Faults of the contract itself, which each of its users has to notice.
//!
//! A test makes one of them [for a time](Mutant::during). The feature `mutants`, without which
//! there is none, is for tests alone.

macro_rules! mutants {
    ($($(#[$doc:meta])* $mutant:ident,)*) => {
        /// A rule of the contract that is wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant { $($(#[$doc])* $mutant),* }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$mutant),*];
        }
    };
}

mutants! {
    /// A registration that ends is counted as before.
    UnregNotCounted,
    /// REG succeeds if no QP has the number.
    RegOfUnknown,
    /// DESTROY succeeds while a registration keeps the QP.
    DestroyOfKept,
    /// DESTROY with FORCE needs no right.
    ForceByAnyone,
    /// A registration of a process that may only read the domain's file keeps the QP.
    ReadersKeep,
    /// So does that of an observer.
    ObserversKeep,
    /// A number is looked for in all domains.
    NumberOfAnyDomain,
    /// The last close of a domain leaves its QPs.
    CloseLeavesQps,
    /// The registrations of a uverbs file stay when it is closed.
    CloseLeavesChannels,
    /// An event is for the registrations whose masks exclude it, too.
    MaskIgnored,
    /// REG registers with the events of before.
    LateHearsAll,
    /// A record stays unread.
    ReadAgain,
    /// A read takes all records, and returns one.
    ReadSkips,
    /// UNREG leaves the records of a QP that had the number before.
    UnregLeavesRecords,
    /// The records of a QP come together.
    Unordered,
    /// QP_GONE is missing.
    GoneMissing,
    /// Events come after QP_GONE.
    EventAfterGone,
    /// The creator gets QP_ADDED.
    AddedToCreator,
    /// A member of all misses the QPs that are created.
    AllMissNew,
    /// Records are lost without OVERRUN.
    LossIsSilent,
    /// OVERRUN comes to members that have lost nothing.
    OverrunOfNothing,
    /// The records of the QP that was destroyed last are lost.
    NewestIsLost,
    /// The registrations that end with the device lose their records.
    RemovalDropsRecords,
    /// A QP that was destroyed is remembered when no channel has records of it.
    GoneStay,
    /// DESTROY has no EBUSY in the tables.
    BusyUndocumented,
}

#[cfg(feature = "mutants")]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

impl Mutant {
    /// Runs something with a mutant of the contract in this thread, or without any.
    #[cfg(feature = "mutants")]
    pub fn during<R>(mutant: Option<Mutant>, run: impl FnOnce() -> R) -> R {
        /// Also if that panics.
        struct Before(Option<Mutant>);

        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }

        let _before = Before(CURRENT.replace(mutant));
        run()
    }

    /// Whether the contract is this mutant.
    #[cfg(feature = "mutants")]
    pub(crate) fn is_made(self) -> bool {
        CURRENT.get() == Some(self)
    }

    /// Whether the contract is this mutant.
    #[cfg(not(feature = "mutants"))]
    pub(crate) fn is_made(self) -> bool {
        false
    }
}
