//! Frames: entries one after the other, each of an inference's number, its kind and its message.

use super::Name;
use crate::shares::joint::Id;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It ends within an entry.
    #[error(
        "a frame of the other server ends within an entry: {left} bytes are left, {needed} needed"
    )]
    Cut {
        /// Bytes that are left.
        left: usize,
        /// Bytes that the entry needs.
        needed: usize,
    },
    /// An entry of a kind that there is not.
    #[error("a frame of the other server has an entry of kind {found}, there are 0 to 6")]
    Kind {
        /// What it was.
        found: u8,
    },
    /// An inference's number that is not above those before it.
    #[error("the other server began inference {found} after {last}: each has a number of its own")]
    Number {
        /// The last one's.
        last: u64,
        /// This one's.
        found: u64,
    },
    /// Right began an inference.
    #[error("the other server began an inference, which left alone does")]
    Begins,
    /// Left said whether it has a client's part.
    #[error("the other server said whether it has a client's part, which right alone does")]
    Has,
}

/// What is said of one inference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub number: u64,
    pub kind: Kind,
    pub message: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It begins, and is called so by its client.
    Begin(Name),
    /// The same, with the precompute of this id.
    BeginWith(Name, Id),
    /// It does not begin: left has no precompute for it. Its number says nothing.
    Declined(Name),
    /// Right has a client's part of an inference, which left has not begun. Its number says nothing.
    Has(Name),
    /// Right has it no longer.
    Lacks(Name),
    Message,
    /// It is over.
    GivenUp,
}

impl Entry {
    pub fn bytes(&self) -> usize {
        let name = match self.kind {
            Kind::Begin(name) | Kind::Declined(name) | Kind::Has(name) | Kind::Lacks(name) => {
                name.len()
            }
            Kind::BeginWith(name, id) => name.len() + id.len(),
            Kind::Message | Kind::GivenUp => 0,
        };
        HEAD_BYTES + name + self.message.len()
    }
}

pub(super) fn encode(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut frame = Vec::new();
    for Entry { number, kind, message } in entries {
        let (mark, names): (u8, [&[u8]; 2]) = match &kind {
            Kind::Begin(name) => (0, [name, &[]]),
            Kind::Message => (1, [&[], &[]]),
            Kind::GivenUp => (2, [&[], &[]]),
            Kind::BeginWith(name, id) => (3, [name, id]),
            Kind::Declined(name) => (4, [name, &[]]),
            Kind::Has(name) => (5, [name, &[]]),
            Kind::Lacks(name) => (6, [name, &[]]),
        };
        frame.extend(number.to_le_bytes());
        frame.push(mark);
        // A message has some megabytes at most: an outline is bounded.
        frame.extend((message.len() as u32).to_le_bytes());
        names.iter().for_each(|name| frame.extend(*name));
        frame.extend(message);
    }
    frame
}

/// The entries of a frame; after an error there are none.
pub(super) fn parse(frame: &[u8]) -> impl Iterator<Item = Result<Entry, FrameError>> {
    let mut rest = frame;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = parse_entry(&mut rest);
        if parsed.is_err() {
            rest = &[];
        }
        Some(parsed)
    })
}

fn parse_entry(rest: &mut &[u8]) -> Result<Entry, FrameError> {
    let number = u64::from_le_bytes(take(rest)?);
    let [mark] = take(rest)?;
    let bytes = u32::from_le_bytes(take(rest)?) as usize;
    let kind = match mark {
        0 => Kind::Begin(take(rest)?),
        1 => Kind::Message,
        2 => Kind::GivenUp,
        3 => Kind::BeginWith(take(rest)?, take(rest)?),
        4 => Kind::Declined(take(rest)?),
        5 => Kind::Has(take(rest)?),
        6 => Kind::Lacks(take(rest)?),
        found => return Err(FrameError::Kind { found }),
    };
    let cut = FrameError::Cut { left: rest.len(), needed: bytes };
    let (message, after) = rest.split_at_checked(bytes).ok_or(cut)?;
    *rest = after;
    Ok(Entry { number, kind, message: message.to_vec() })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FrameError> {
    let cut = FrameError::Cut { left: rest.len(), needed: N };
    let (taken, after) = rest.split_first_chunk().ok_or(cut)?;
    *rest = after;
    Ok(*taken)
}

/// Number, kind, bytes of the message.
const HEAD_BYTES: usize = 8 + 1 + 4;
