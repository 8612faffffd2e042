//! Whom a client asks.

use std::fmt;

/// Which server a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a client asks a pair, or one alone")]
pub enum Place {
    /// The left one of a pair.
    Left,
    /// The right one of a pair.
    Right,
    /// The one that is asked alone.
    Single,
}

impl Place {
    /// Left, then right.
    pub const PAIR: [Self; 2] = [Self::Left, Self::Right];
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Left, Self::Right, Self::Single];

    /// `left`, `right` or `single`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
            Self::Single => "single",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
