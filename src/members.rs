// SPDX-License-Identifier: GPL-2.0

//! The members of a domain by their numbers, as the events of its QPs find them.
//!
//! Part of the [log](crate::log) of the domain, whose lock guards it. A member has its number from
//! the creation of its event channel until that is closed and no QP has a bit of it any more.
//!
//! A member that is registered with all QPs, also those that do not exist yet, has no bit in any of
//! them, but one here.

use crate::{
    event::EventType,
    listener::Listener,
    member_set::{
        bit,
        first,
        MemberRows,
        Room,
        ROW, //
    },
};
use kernel::sync::Arc;

/// See the [module's documentation](self).
pub(crate) struct Members {
    rows: MemberRows<MemberRow>,
    /// No row before it has a place.
    free: usize,
    of_all: OfAll,
    /// Members end when the QPs of the domain do.
    is_ending: bool,
    /// The QPs of the domain have ended.
    is_closed: bool,
}

/// The numbers of members that are registered with all QPs.
#[derive(Clone, Copy, Default)]
pub(crate) struct OfAll {
    pub(crate) number: usize,
    /// Those that keep them.
    pub(crate) keeping: usize,
    /// Those that events are reported to: their masks have `QP_GONE`.
    pub(crate) following: usize,
}

/// Some of the members.
pub(crate) struct MemberRow {
    /// Those that exist.
    used: u64,
    /// Those that are registered with all QPs; of them those that keep the QPs, and those that
    /// events are reported to.
    of_all: u64,
    keeping: u64,
    pub(crate) following: u64,
    /// Those that no task waited for when they had an event, and that were not looked at since.
    pub(crate) idle: u64,
    /// Those whose masks have a kind of event, for each kind.
    pub(crate) wanting: [u64; EventType::COUNT],
    listeners: [Option<Arc<Listener>>; ROW],
}

/// Takes a member out of a set. Returns the number of members that were in it.
fn take_bit(set: &mut u64, member: usize) -> usize {
    let had = *set & bit(member) != 0;

    *set &= !bit(member);
    had.into()
}

impl Default for MemberRow {
    fn default() -> Self {
        Self {
            used: 0,
            of_all: 0,
            keeping: 0,
            following: 0,
            idle: 0,
            wanting: [0; EventType::COUNT],
            listeners: [const { None }; ROW],
        }
    }
}

impl Members {
    /// Creates a table without members.
    pub(crate) fn new() -> Self {
        Self {
            rows: MemberRows::new(),
            free: 0,
            of_all: OfAll::default(),
            is_ending: false,
            is_closed: false,
        }
    }

    /// Returns the first row that may have a place for a member.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Whether there is a row.
    pub(crate) fn has_room(&self, row: usize) -> bool {
        self.rows.has_room(row * ROW)
    }

    /// Adds a row, see [`MemberRows::grow`].
    #[must_use]
    pub(crate) fn grow(&mut self, room: Room<MemberRow>) -> Room<MemberRow> {
        self.rows.grow(room)
    }

    /// Adds a member to a row, and gives it its number. Returns `false` if there is no place.
    pub(crate) fn add(&mut self, row: usize, listener: &Arc<Listener>) -> bool {
        let Some(members) = self.rows.get_mut(row) else {
            return false;
        };
        let place = first(!members.used);
        let Some(free) = members.listeners.get_mut(place) else {
            if self.free == row {
                self.free += 1;
            }
            return false;
        };

        *free = Some(listener.clone());
        members.used |= bit(place);
        for kind in listener.mask().kinds() {
            members.wanting[kind.index()] |= bit(place);
        }
        listener.set_number(row * ROW + place);
        true
    }

    /// Returns the numbers of members of all QPs.
    pub(crate) fn of_all(&self) -> OfAll {
        self.of_all
    }

    /// Returns the row of a member.
    pub(crate) fn row(&self, member: usize) -> Option<&MemberRow> {
        self.rows.get(member / ROW)
    }

    /// Whether a member is registered with all QPs.
    pub(crate) fn is_of_all(&self, member: usize) -> bool {
        self.row(member)
            .is_some_and(|row| row.of_all & bit(member) != 0)
    }

    /// Whether the events of all QPs are reported to a member.
    pub(crate) fn follows(&self, member: usize) -> bool {
        self.row(member)
            .is_some_and(|row| row.following & bit(member) != 0)
    }

    /// Returns the number of rows that can have such members.
    pub(crate) fn following_rows(&self) -> usize {
        match self.of_all.following {
            0 => 0,
            _ => self.rows.len(),
        }
    }

    /// Registers a member with all QPs, which it keeps or not.
    pub(crate) fn register_with_all(&mut self, member: usize, keeps: bool) {
        let Some(row) = self.rows.get_mut(member / ROW) else {
            return;
        };
        let follows = row.wanting[EventType::QP_GONE.index()] & bit(member) != 0;

        row.of_all |= bit(member);
        self.of_all.number += 1;
        if keeps {
            row.keeping |= bit(member);
            self.of_all.keeping += 1;
        }
        if follows {
            row.following |= bit(member);
            self.of_all.following += 1;
        }
    }

    /// A member keeps all QPs no more.
    pub(crate) fn release_all(&mut self, member: usize) {
        if let Some(row) = self.rows.get_mut(member / ROW) {
            self.of_all.keeping -= take_bit(&mut row.keeping, member);
        }
    }

    /// Ends the registration of a member with all QPs, which it does not keep.
    pub(crate) fn unregister_from_all(&mut self, member: usize) {
        if let Some(row) = self.rows.get_mut(member / ROW) {
            self.of_all.number -= take_bit(&mut row.of_all, member);
            self.of_all.following -= take_bit(&mut row.following, member);
        }
    }

    /// Returns the first member of all QPs with this number or a greater one, and whether it keeps
    /// the QPs.
    pub(crate) fn next_of_all(&self, from: usize) -> Option<(&Arc<Listener>, bool)> {
        (from / ROW..self.rows.len()).find_map(|number| {
            let row = self.rows.get(number)?;
            let left = match from.checked_sub(number * ROW) {
                Some(place) => row.of_all & (u64::MAX << place),
                None => row.of_all,
            };
            let listener = row.listeners.get(first(left))?.as_ref()?;

            Some((listener, row.keeping & bit(first(left)) != 0))
        })
    }

    /// Takes a member out, of which no QP has a bit. Returns the reference to it.
    #[must_use]
    pub(crate) fn remove(&mut self, number: usize) -> Option<Arc<Listener>> {
        let row = number / ROW;
        let members = self.rows.get_mut(row)?;

        self.free = self.free.min(row);
        members.used &= !bit(number);
        members.idle &= !bit(number);
        for wanting in &mut members.wanting {
            *wanting &= !bit(number);
        }
        members.listeners.get_mut(number % ROW)?.take()
    }

    /// Returns a member.
    pub(crate) fn get(&self, number: usize) -> Option<&Arc<Listener>> {
        self.rows
            .get(number / ROW)?
            .listeners
            .get(number % ROW)?
            .as_ref()
    }

    /// No task waits for a member that has an event, or its events are about to be read or polled.
    pub(crate) fn set_idle(&mut self, member: usize, is_idle: bool) {
        if let Some(row) = self.rows.get_mut(member / ROW) {
            row.idle = (row.idle & !bit(member)) | (u64::from(is_idle) << (member % ROW));
        }
    }

    /// A member ends when the QPs of the domain do. Returns whether these have ended.
    pub(crate) fn note_ending(&mut self) -> bool {
        self.is_ending = true;
        self.is_closed
    }

    /// The QPs of the domain have ended. Returns up to which number members end with them.
    pub(crate) fn close(&mut self) -> usize {
        self.is_closed = true;
        if self.is_ending {
            self.rows.len() * ROW
        } else {
            0
        }
    }
}
