// SPDX-License-Identifier: GPL-2.0

//! A fault, with its place and its name.
//!
//! Numbers of faults move with each change of the source. The name is what stays: the file, the
//! function, the operator and the text, and which it is of those that are the same in all of these.

use crate::edit::Edit;
use std::fmt;

macro_rules! operators {
    ($($(#[$doc:meta])* $operator:ident = $name:literal,)*) => {
        /// The kinds of faults.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Operator { $($(#[$doc])* $operator,)* }

        impl Operator {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$operator),*];

            /// Returns the name in lists.
            pub fn name(self) -> &'static str {
                match self { $(Self::$operator => $name,)* }
            }
        }
    };
}

operators! {
    /// A condition is the opposite.
    Negated = "negated",
    /// A condition always holds.
    Always = "always",
    /// A condition never holds.
    Never = "never",
    /// `<` is `<=`.
    Boundary = "boundary",
    /// `&&` is `||`.
    AndOr = "and-or",
    /// `+` is `-`; bits are taken together in another way, or shifted the other way.
    Arithmetic = "arithmetic",
    /// A number is another, or `true` is `false`.
    Constant = "constant",
    /// An error is another.
    Errno = "errno",
    /// A function is called in place of another.
    Function = "function",
    /// Two arguments change places.
    Arguments = "arguments",
    /// A statement that calls is missing.
    Call = "call missing",
    /// An assignment is missing.
    Assignment = "assignment missing",
    /// Two statements change places.
    Order = "order",
    /// The error of a call is ignored.
    Error = "error ignored",
    /// A function does nothing, and returns a value that it could.
    Body = "body",
    /// The block of a pattern does nothing.
    Branch = "branch missing",
    /// A loop ends after its first turn, or before it.
    Loop = "loop",
    /// A lock is not held, or another thread can take it meanwhile.
    Lock = "lock",
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// See the [module's documentation](self).
#[derive(Clone)]
pub struct Fault {
    pub file: String,
    pub line: usize,
    pub function: String,
    pub operator: Operator,
    pub before: String,
    pub after: String,
    pub edits: Vec<Edit>,
    /// Which it is of those that have all of the above in common, from 1 on.
    pub twin: usize,
}

/// The length of a text in a list.
const LONGEST: usize = 90;

/// Makes one line of a text.
pub fn in_line(text: &str) -> String {
    let code: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
        .flat_map(str::split_whitespace)
        .collect();
    let line = code.join(" ");

    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl Fault {
    /// Returns the name, which is that of no other fault.
    pub fn name(&self) -> String {
        let twin = if self.twin > 1 {
            format!(" #{}", self.twin)
        } else {
            String::new()
        };

        format!(
            "{}\t{}\t{}\t{} → {}{twin}",
            self.file, self.function, self.operator, self.before, self.after
        )
    }

    /// Whether two faults differ in their places only.
    pub fn is_twin_of(&self, other: &Self) -> bool {
        self.file == other.file
            && self.function == other.function
            && self.operator == other.operator
            && self.before == other.before
            && self.after == other.after
    }
}

/// Numbers twins.
pub fn tell_apart(faults: &mut [Fault]) {
    for index in 0..faults.len() {
        let (before, rest) = faults.split_at_mut(index);
        let twins = before
            .iter()
            .filter(|other| other.is_twin_of(&rest[0]))
            .count();

        rest[0].twin = 1 + twins;
    }
}
