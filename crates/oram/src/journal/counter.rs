//! The root counter: the little that must not be rolled back, so that nothing else can be.

use super::JournalError;
use super::chain::{Keys, array, random};
use crate::disk::Faults;
use crate::instance::Instance;
use crate::seal::{Key, TAG_BYTES};

const MAGIC: [u8; 8] = *b"HTORAMC2";
const INSTANCE_AT: usize = 8;
const ROUND_AT: usize = 40;
const EVICTIONS_AT: usize = 48;
const HEAD_AT: usize = 56;
const NONCE_AT: usize = 88;
const TAG_AT: usize = 120;

/// Bytes of a sealed counter.
pub const COUNTER_BYTES: usize = TAG_AT + TAG_BYTES;

/// What the root counter holds: as far as everything had come at the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Whose counter it is.
    pub instance: Instance,
    /// Rounds committed.
    pub round: u64,
    /// Evictions of the main ORAM, from which every bucket's counter follows (FEDORA, section 5.2).
    pub evictions: u64,
    /// The journal's head with the commit's record.
    pub head: [u8; 32],
}

/// A counter that an adversary with the disks cannot put back, and that only one controller moves.
pub trait RootCounter: Send {
    /// The value at which it stands.
    ///
    /// # Errors
    ///
    /// What is wrong with where it is kept.
    fn read(&mut self) -> Result<CounterValue, JournalError>;

    /// Advances it from `expected` to `value` in one step, durably, if `expected` is where it stands:
    /// of two controllers that went on from one state, one finds that the other was first.
    ///
    /// # Errors
    ///
    /// A counter that stands elsewhere ([`JournalError::CounterMoved`]), a value before `expected` or of
    /// another instance ([`JournalError::Backwards`]), or what is wrong with where it is kept; it
    /// then stands where it stood, or, where nobody can tell whether it was reached, at `value`.
    fn advance(
        &mut self,
        expected: &CounterValue,
        value: &CounterValue,
    ) -> Result<(), JournalError>;
}

/// Where a root counter is kept: made with a controller, and found again when that is opened. A
/// `PathBuf` is the place of a [`FileCounter`](super::FileCounter).
pub trait CounterPlace: Send + Sync {
    /// Checks that there is no counter yet, before anything else is made.
    ///
    /// # Errors
    ///
    /// A counter that is there, or what is wrong with the place.
    fn check_free(&self) -> Result<(), JournalError>;

    /// Makes a counter that stands at `value`. `faults` is [`Faults::none`] outside tests.
    ///
    /// # Errors
    ///
    /// As [`check_free`](Self::check_free).
    fn create(
        &self,
        key: &Key,
        value: &CounterValue,
        faults: &Faults,
    ) -> Result<Box<dyn RootCounter>, JournalError>;

    /// Opens the counter that [`create`](Self::create) made.
    ///
    /// # Errors
    ///
    /// A counter that is missing, held by another controller, or of another key.
    fn open(&self, key: &Key, faults: &Faults) -> Result<Box<dyn RootCounter>, JournalError>;
}

/// Checks that a counter which stands at `found` may go from `expected` to `value`; `place` is where it
/// is kept, for the error.
///
/// # Errors
///
/// [`JournalError::CounterMoved`], [`JournalError::Backwards`].
pub fn check_advance(
    place: &str,
    found: &CounterValue,
    expected: &CounterValue,
    value: &CounterValue,
) -> Result<(), JournalError> {
    if found != expected {
        return Err(JournalError::CounterMoved {
            place: place.to_owned(),
            expected_round: expected.round,
            expected_evictions: expected.evictions,
            found_round: found.round,
            found_evictions: found.evictions,
        });
    }
    let forward = value.round >= found.round && value.evictions >= found.evictions;
    if forward && value.instance == found.instance {
        return Ok(());
    }
    Err(JournalError::Backwards {
        place: place.to_owned(),
        round: found.round,
        evictions: found.evictions,
        wanted_round: value.round,
        wanted_evictions: value.evictions,
    })
}

/// A counter's bytes, wherever they are kept: authenticated by the controller's key.
pub type Sealed = [u8; COUNTER_BYTES];

/// Makes and reads a counter's bytes.
///
/// They cannot be forged without the key, nor taken for another instance's; an old copy is as good
/// as it ever was, so where they are kept must not give one.
///
/// ```text
/// magic 8 | instance 32 | round 8 | evictions 8 | head 32 | nonce 32 | tag 16
/// ```
#[derive(Debug)]
pub struct CounterSeal(Keys);

impl CounterSeal {
    /// The seal under `key`.
    pub fn new(key: &Key) -> Self {
        Self(Keys::derive(key))
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.0
    }

    /// The bytes of `value`; no two calls give the same.
    ///
    /// # Errors
    ///
    /// The operating system has no random bytes to give.
    pub fn seal(&self, value: &CounterValue) -> Result<Sealed, JournalError> {
        let nonce = random()?;
        let mut bytes = [0; COUNTER_BYTES];
        bytes[..INSTANCE_AT].copy_from_slice(&MAGIC);
        bytes[INSTANCE_AT..ROUND_AT].copy_from_slice(value.instance.bytes());
        bytes[ROUND_AT..EVICTIONS_AT].copy_from_slice(&value.round.to_le_bytes());
        bytes[EVICTIONS_AT..HEAD_AT].copy_from_slice(&value.evictions.to_le_bytes());
        bytes[HEAD_AT..NONCE_AT].copy_from_slice(&value.head);
        bytes[NONCE_AT..TAG_AT].copy_from_slice(&nonce);
        let tag = self.0.counter_tag(&nonce, &bytes[..NONCE_AT]);
        bytes[TAG_AT..].copy_from_slice(&tag);
        Ok(bytes)
    }

    /// The value of `bytes`, which were at `place`.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotACounter`] for what begins as no counter does or has another length,
    /// [`JournalError::ForgedCounter`] for what does not authenticate.
    pub fn open(&self, place: &str, bytes: &[u8]) -> Result<CounterValue, JournalError> {
        let foreign =
            || JournalError::NotACounter { place: place.to_owned(), bytes: bytes.len() as u64 };
        let bytes: &Sealed = bytes.try_into().map_err(|_| foreign())?;
        if bytes[..INSTANCE_AT] != MAGIC {
            return Err(foreign());
        }
        let (nonce, tag) = (array(bytes, NONCE_AT), array(bytes, TAG_AT));
        if !self.0.is_counter_tag(&nonce, &bytes[..NONCE_AT], &tag) {
            return Err(JournalError::ForgedCounter { place: place.to_owned() });
        }
        Ok(CounterValue {
            instance: Instance::from_bytes(array(bytes, INSTANCE_AT)),
            round: u64::from_le_bytes(array(bytes, ROUND_AT)),
            evictions: u64::from_le_bytes(array(bytes, EVICTIONS_AT)),
            head: array(bytes, HEAD_AT),
        })
    }
}
