// SPDX-License-Identifier: GPL-2.0

//! Rows of 64 members of a domain: a set of members has a bit for each, by the member's number.
//!
//! The first row needs no allocation of its own. Others are added where there is a member, and
//! stay; memory for them is allocated before the lock is taken that guards the rows.

use kernel::prelude::*;

/// The number of members that a row is for.
pub(crate) const ROW: usize = u64::BITS as usize;

/// Returns the bit of a member in the words of its row.
pub(crate) fn bit(member: usize) -> u64 {
    1 << (member % ROW)
}

/// Returns the place in its row of the first member of a set that is not empty.
pub(crate) fn first(set: u64) -> usize {
    set.trailing_zeros() as usize
}

/// See the [module's documentation](self).
pub(crate) struct MemberRows<R> {
    first: R,
    others: KVVec<Option<KBox<R>>>,
}

/// Memory for a row, or memory that is not needed any more.
pub(crate) struct Room<R> {
    number: usize,
    row: Option<KBox<R>>,
    others: KVVec<Option<KBox<R>>>,
}

impl<R: Default> Room<R> {
    /// Allocates memory for the row of a member.
    pub(crate) fn new(member: usize) -> Result<Self> {
        let number = member / ROW;
        let places = number.next_power_of_two();
        let mut others = KVVec::with_capacity(places, GFP_KERNEL_ACCOUNT)?;

        for _ in 0..places {
            others.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            number,
            row: Some(KBox::new(R::default(), GFP_KERNEL_ACCOUNT)?),
            others,
        })
    }
}

impl<R: Default> MemberRows<R> {
    /// Creates the first row.
    pub(crate) fn new() -> Self {
        Self {
            first: R::default(),
            others: KVVec::new(),
        }
    }

    /// Returns the number of rows that there can be without larger memory.
    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether there is a row for a member.
    pub(crate) fn has_room(&self, member: usize) -> bool {
        self.get(member / ROW).is_some()
    }

    /// Adds a row, unless there is one for these members. Returns memory to free.
    #[must_use]
    pub(crate) fn grow(&mut self, mut room: Room<R>) -> Room<R> {
        if room.others.len() > self.others.len() {
            for (new, old) in room.others.iter_mut().zip(self.others.iter_mut()) {
                *new = old.take();
            }
            core::mem::swap(&mut self.others, &mut room.others);
        }
        if let Some(place) = room
            .number
            .checked_sub(1)
            .and_then(|other| self.others.get_mut(other))
            .filter(|place| place.is_none())
        {
            *place = room.row.take();
        }
        room
    }

    /// Returns a row, or `None` if it has no members.
    pub(crate) fn get(&self, row: usize) -> Option<&R> {
        match row.checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get(other)?.as_deref(),
        }
    }

    /// Returns a row to change, or `None` if it has no members.
    pub(crate) fn get_mut(&mut self, row: usize) -> Option<&mut R> {
        match row.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other)?.as_deref_mut(),
        }
    }
}

#[kunit_tests(ib_xrc_rcv_member_set)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_where_there_is_a_member() -> Result {
        let mut rows = MemberRows::<u64>::new();

        assert!(rows.has_room(63) && !rows.has_room(64));
        *rows.get_mut(0).ok_or(EINVAL)? = bit(5);
        drop(rows.grow(Room::new(200)?));
        assert!(rows.has_room(0) && !rows.has_room(64) && rows.has_room(200));
        assert!(!rows.has_room(256));
        *rows.get_mut(3).ok_or(EINVAL)? = bit(200);
        drop(rows.grow(Room::new(64)?));
        drop(rows.grow(Room::new(200)?));
        drop(rows.grow(Room::new(1000)?));
        assert!(rows.has_room(64) && rows.has_room(1000));
        assert_eq!(rows.get(0), Some(&bit(5)));
        assert_eq!(rows.get(1), Some(&0));
        assert_eq!(rows.get(2), None);
        assert_eq!(rows.get(3), Some(&bit(200)));
        assert_eq!(first(bit(200)), 200 % ROW);
        Ok(())
    }
}
