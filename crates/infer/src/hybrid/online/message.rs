//! Messages of several frames, of which both sides know the length.

use std::collections::VecDeque;

use hushtable_mpc::Block;

use super::super::error::Error;

/// The most bytes of a frame.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Cuts a message into frames.
pub(super) fn cut(message: &[u8], out: &mut VecDeque<Vec<u8>>) {
    out.extend(message.chunks(FRAME_BYTES_MAX).map(<[u8]>::to_vec));
}

/// A message that comes in frames.
pub(super) struct Incoming {
    what: &'static str,
    expected: usize,
    bytes: Vec<u8>,
}

impl Incoming {
    /// Of so many bytes.
    pub fn new(what: &'static str, expected: usize) -> Self {
        Self { what, expected, bytes: Vec::new() }
    }

    /// Takes a frame; the message, once it is whole.
    pub fn push(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let rest = self.expected - self.bytes.len();
        if frame.len() != rest.min(FRAME_BYTES_MAX) {
            let (what, expected) = (self.what, rest.min(FRAME_BYTES_MAX));
            return Err(Error::Bytes { what, expected, found: frame.len() });
        }
        self.bytes.extend_from_slice(frame);
        let is_whole = self.bytes.len() == self.expected;
        Ok(is_whole.then(|| std::mem::take(&mut self.bytes)))
    }
}

/// Labels as bytes.
pub(super) fn label_bytes(labels: &[Block]) -> Vec<u8> {
    labels.iter().flat_map(|label| label.to_le_bytes()).collect()
}

/// Labels from bytes: `count` of them.
pub(super) fn read_labels(bytes: &[u8], count: usize) -> Result<Vec<Block>, Error> {
    if bytes.len() != 16 * count {
        let (what, found) = ("a chunk's labels", bytes.len());
        return Err(Error::Bytes { what, expected: 16 * count, found });
    }
    let (labels, _) = bytes.as_chunks::<16>();
    Ok(labels.iter().map(|label| Block::from_le_bytes(*label)).collect())
}
