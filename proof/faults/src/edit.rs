// SPDX-License-Identifier: GPL-2.0

//! Changes of a text, which surround parts of it or replace them, and where they are in the result.

use std::ops::Range;

/// The order of edits at the same offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// It ends a part: the innermost comes first.
    End(i64),
    /// It begins a part: the outermost comes first.
    Begin(i64),
    /// It replaces a part.
    Instead,
}

/// A text that is inserted, or stands in place of a part.
#[derive(Clone)]
pub struct Edit {
    place: Range<usize>,
    side: Side,
    text: String,
}

impl Edit {
    /// Begins a part that has been found after those around it, whose sequence numbers are less.
    pub fn begin(at: usize, sequence: i64, text: String) -> Self {
        Self {
            place: at..at,
            side: Side::Begin(sequence),
            text,
        }
    }

    /// Ends such a part.
    pub fn end(at: usize, sequence: i64, text: String) -> Self {
        Self {
            place: at..at,
            side: Side::End(-sequence),
            text,
        }
    }

    /// Replaces a part in which there are no other edits.
    pub fn instead(place: Range<usize>, text: String) -> Self {
        Self {
            place,
            side: Side::Instead,
            text,
        }
    }
}

/// A text with edits, each with its owner.
pub struct Edited<O> {
    pub text: String,
    /// The place in the text that each edit has.
    pub inserted: Vec<(O, Range<usize>)>,
}

impl<O: Copy> Edited<O> {
    /// Makes all edits.
    pub fn new(original: &str, edits: impl Iterator<Item = (O, Edit)>) -> Self {
        let mut edits: Vec<_> = edits.collect();
        let mut text = String::with_capacity(2 * original.len());
        let mut inserted = Vec::with_capacity(edits.len());
        let mut copied = 0;

        edits.sort_by_key(|(_, edit)| (edit.place.start, edit.side));
        for (owner, edit) in edits {
            text.push_str(&original[copied..edit.place.start]);
            inserted.push((owner, text.len()..text.len() + edit.text.len()));
            text.push_str(&edit.text);
            copied = edit.place.end;
        }
        text.push_str(&original[copied..]);
        Self { text, inserted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_nested() {
        let edits = [
            Edit::begin(0, 0, "(".into()),
            Edit::end(5, 0, ")".into()),
            Edit::begin(0, 1, "[".into()),
            Edit::end(1, 1, "]".into()),
            Edit::instead(2..3, "-".into()),
            Edit::begin(4, 2, "{".into()),
            Edit::end(5, 2, "}".into()),
        ];
        let edited = Edited::new("a + b", (0..).zip(edits));

        assert_eq!(edited.text, "([a] - {b})");
        for (owner, place) in [(0, 0..1), (2, 1..2), (4, 5..6), (1, 10..11)] {
            assert!(edited.inserted.contains(&(owner, place)));
        }
    }

    #[test]
    fn a_part_ends_before_the_next_begins() {
        let edits = [
            Edit::begin(0, 0, "(".into()),
            Edit::end(1, 0, ")".into()),
            Edit::begin(1, 1, "[".into()),
            Edit::end(2, 1, "]".into()),
        ];

        assert_eq!(Edited::new("ab", (0..).zip(edits)).text, "(a)[b]");
    }
}
