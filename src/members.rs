// SPDX-License-Identifier: GPL-2.0

//! The members of a domain by their numbers, as the events of its QPs find them.
//!
//! Part of the [log](crate::log) of the domain, whose lock guards it. A member has its number from
//! the creation of its event channel until that is closed and no QP has a bit of it any more.

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
    /// Members end when the QPs of the domain do.
    is_ending: bool,
    /// The QPs of the domain have ended.
    is_closed: bool,
}

/// Some of the members.
pub(crate) struct MemberRow {
    /// Those that exist.
    used: u64,
    /// Those whose masks have a kind of event, for each kind.
    wanting: [u64; EventType::COUNT],
    listeners: [Option<Arc<Listener>>; ROW],
}

impl Default for MemberRow {
    fn default() -> Self {
        Self {
            used: 0,
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

    /// Takes a member out, of which no QP has a bit. Returns the reference to it.
    #[must_use]
    pub(crate) fn remove(&mut self, number: usize) -> Option<Arc<Listener>> {
        let row = number / ROW;
        let members = self.rows.get_mut(row)?;

        self.free = self.free.min(row);
        members.used &= !bit(number);
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

    /// Returns the members of a row whose masks have a kind of event, for each kind.
    pub(crate) fn wanting(&self, row: usize) -> [u64; EventType::COUNT] {
        match self.rows.get(row) {
            Some(members) => members.wanting,
            None => [0; EventType::COUNT],
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
