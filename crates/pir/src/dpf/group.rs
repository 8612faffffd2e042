//! The tree's sides, output groups and depth.

use std::fmt;

use crate::{Error, TableShape};

/// One of the two servers that do not collude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there are two sides")]
pub enum Side {
    /// The server whose root control bit is 0.
    Left,
    /// The server whose root control bit is 1.
    Right,
}

impl Side {
    /// Left, then right.
    pub const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// The byte in a key: 0 for left, 1 for right.
    pub fn id(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_id(id: u8) -> Result<Self, Error> {
        match id {
            0 => Ok(Self::Left),
            1 => Ok(Self::Right),
            found => Err(Error::UnknownSide { found }),
        }
    }

    /// `left` or `right`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

impl std::str::FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|group| group.name() == text)
            .ok_or_else(|| format!("a group is bits, z8 or z32, not {text:?}"))
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::BOTH
            .into_iter()
            .find(|side| side.name() == text)
            .ok_or_else(|| format!("a side is left or right, not {text:?}"))
    }
}

/// The group in which the two shares of a leaf add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// Bits under XOR, 512 rows a leaf: what lookups use.
    Bits,
    /// Bytes under addition modulo 2^8, 64 rows a leaf.
    Z8,
    /// Words under addition modulo 2^32, 16 rows a leaf.
    Z32,
}

impl Group {
    /// Every group, in order of its id.
    pub const ALL: [Self; 3] = [Self::Bits, Self::Z8, Self::Z32];

    /// The byte in a key.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The group of that id.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`].
    pub fn from_id(id: u8) -> Result<Self, Error> {
        Self::ALL.get(usize::from(id)).copied().ok_or(Error::UnknownGroup { found: id })
    }

    /// `bits`, `z8` or `z32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bits => "bits",
            Self::Z8 => "z8",
            Self::Z32 => "z32",
        }
    }

    /// Adds one share of a row, `from`, to another, `to`. Of [`Z32`](Self::Z32) a row's last word may
    /// be cut short: what is carried out of it belongs to no byte of the row.
    pub fn add(self, to: &mut [u8], from: &[u8]) {
        match self {
            Self::Bits => to.iter_mut().zip(from).for_each(|(a, b)| *a ^= b),
            Self::Z8 => to.iter_mut().zip(from).for_each(|(a, b)| *a = a.wrapping_add(*b)),
            Self::Z32 => {
                for (a, b) in to.chunks_mut(4).zip(from.chunks(4)) {
                    let sum = le_word(a).wrapping_add(le_word(b)).to_le_bytes();
                    a.copy_from_slice(&sum[..a.len()]);
                }
            }
        }
    }

    /// Rows that one 512-bit leaf holds shares of.
    pub fn rows_per_leaf(self) -> u64 {
        1 << self.leaf_bits()
    }

    /// log2 of that. A secret row is shifted by it: a division would take a time of its own.
    pub(super) fn leaf_bits(self) -> u32 {
        match self {
            Self::Bits => 9,
            Self::Z8 => 6,
            Self::Z32 => 4,
        }
    }
}

/// The word of up to four little-endian bytes.
#[inline]
pub(crate) fn le_word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

/// The rows a key addresses: the leaf count and depth of its tree follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    rows: u64,
    group: Group,
}

impl Domain {
    /// A domain of `rows` (1 to 2^32) with shares in `group`.
    ///
    /// # Errors
    /// [`Error::Rows`] outside that range.
    pub fn new(rows: u64, group: Group) -> Result<Self, Error> {
        if !(1..=TableShape::ROWS_MAX).contains(&rows) {
            return Err(Error::Rows { rows });
        }
        Ok(Self { rows, group })
    }

    /// Rows addressed.
    pub fn rows(self) -> u64 {
        self.rows
    }

    /// The output group.
    pub fn group(self) -> Group {
        self.group
    }

    /// Leaves that hold a row: `ceil(rows / rows_per_leaf)`.
    pub fn leaf_count(self) -> u64 {
        self.rows.div_ceil(self.group.rows_per_leaf())
    }

    /// Levels between the root and the leaves: `ceil(log2(leaf_count))`.
    pub fn depth(self) -> u32 {
        self.leaf_count().next_power_of_two().trailing_zeros()
    }
}
