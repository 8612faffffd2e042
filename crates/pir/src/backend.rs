//! What answers keys.

use std::sync::Arc;

use hushtable_table::Version;

use crate::dpf::{Group, Key};
use crate::{Error, TableShape};

/// What a [`Patched`](crate::Patched) engine lies over, and keeps for as long as it is there.
#[derive(Clone)]
pub struct Below {
    /// The version of the table without the changes.
    pub version: Version,
    /// What holds that version.
    pub backend: Arc<dyn Backend>,
    /// Bytes in memory of the changes.
    pub changed_bytes: u64,
}

/// Something that holds a table and answers batches of keys: a processor, a GPU.
///
/// Implementations never branch on a share or index memory by one.
pub trait Backend: Send + Sync {
    /// The table's shape.
    fn shape(&self) -> TableShape;

    /// Answers every key: the answer to `keys[i]` lands in
    /// `answers[i * row_bytes..(i + 1) * row_bytes]`.
    ///
    /// A [`Bits`](crate::dpf::Group::Bits) answer is the XOR of the rows whose share bit is set. A
    /// [`Z8`](crate::dpf::Group::Z8) answer is, per byte, the sum of share × row byte modulo 2^8; a
    /// [`Z32`](crate::dpf::Group::Z32) answer the same over little-endian 32-bit words modulo 2^32
    /// (a last, shorter word is taken as if zero bytes followed, and its answer cut to length).
    ///
    /// # Errors
    /// [`Error::Domain`] for a key made for another number of rows, [`Error::AnswerBytes`] for a
    /// buffer of another size than `keys.len() * row_bytes`.
    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error>;

    /// As [`answer`](Self::answer), for keys that do not lie side by side. Backends that do not say
    /// how answer copies of them.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    fn answer_each(&self, keys: &[&Key], answers: &mut [u8]) -> Result<(), Error> {
        let keys: Vec<Key> = keys.iter().map(|key| key.copy()).collect();
        self.answer(&keys, answers)
    }

    /// Keys that one pass over the table answers best; a scheduler batches up to this many.
    fn batch_keys_best(&self) -> usize;

    /// Output groups that it answers at full speed, fastest first, [`Group::Bits`] among them. A
    /// server announces them, and refuses keys of others: those would cost it several times the work.
    fn groups(&self) -> &[Group] {
        &[Group::Bits]
    }

    /// What this one's changed rows lie over, where it is a [`Patched`](crate::Patched) one.
    fn below(&self) -> Option<Below> {
        None
    }

    /// One line for logs and `doctor`: device, instruction set, threads, resident bytes.
    fn description(&self) -> String;
}
