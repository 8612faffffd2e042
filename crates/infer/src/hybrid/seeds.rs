//! Everything that a party draws for a precompute, from one seed.

use hushtable_mpc::ot::CotReceiver;
use hushtable_mpc::{Block, Party, Secret};

use super::error::Error;
use super::outline::{Chunk, Outline, meta_bytes};

/// 32 bytes that all of a party's randomness for one precompute comes from.
pub type Seed = Secret<[u8; 32]>;

/// What a seed is used for: the context of BLAKE3's key derivation.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// The client's masks of the input, or of every tensor where the server garbles.
    Masks,
    /// The server's shares of convolutions.
    Shares,
    /// The free-XOR offset.
    Offset,
    /// The garbler's own labels.
    Labels,
    /// The oblivious transfer.
    Transfer,
    /// The homomorphic encryption.
    Encryption,
    /// What the server chooses its labels by, where the client garbles.
    Choices,
}

impl Use {
    fn context(self) -> &'static str {
        match self {
            Self::Masks => "hushtable hybrid 2026-11 masks",
            Self::Shares => "hushtable hybrid 2026-11 shares",
            Self::Offset => "hushtable hybrid 2026-11 offset",
            Self::Labels => "hushtable hybrid 2026-11 labels",
            Self::Transfer => "hushtable hybrid 2026-11 transfer",
            Self::Encryption => "hushtable hybrid 2026-11 encryption",
            Self::Choices => "hushtable hybrid 2026-11 choices",
        }
    }
}

/// The seed for one use.
pub(super) fn derive(seed: &Seed, of: Use) -> [u8; 32] {
    blake3::derive_key(of.context(), seed.expose())
}

/// `count` numbers of `bits` bits: number `index` of a use.
pub(super) fn numbers(seed: &Seed, of: Use, index: usize, count: usize, bits: u32) -> Vec<u64> {
    let mut hasher = blake3::Hasher::new_keyed(&derive(seed, of));
    hasher.update(&(index as u64).to_le_bytes());
    let mut reader = hasher.finalize_xof();
    let mask = u64::MAX >> (64 - bits);
    let mut bytes = vec![0; 8 * count];
    reader.fill(&mut bytes);
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word) & mask).collect()
}

/// The free-XOR offset: its lowest bit is 1, so that colours differ.
pub(super) fn offset(seed: &Seed) -> Block {
    let bytes = derive(seed, Use::Offset);
    Block::from_le_bytes(*bytes.first_chunk().expect("32 bytes")) | 1
}

/// The seed of the garbler's labels.
pub(super) fn labels(seed: &Seed) -> [u8; 16] {
    *derive(seed, Use::Labels).first_chunk().expect("32 bytes")
}

/// Reads the first record.
pub(super) fn read_meta(
    bytes: &[u8],
    garbler: Party,
    party: Party,
) -> Result<(Seed, Option<CotReceiver>), Error> {
    let expected = meta_bytes(garbler, party);
    let (seed, transfer) = match bytes.split_first_chunk::<32>() {
        Some(parts) if bytes.len() == expected => parts,
        _ => return Err(Error::Bytes { what: "a kept seed", expected, found: bytes.len() }),
    };
    let receiver = match party == garbler {
        true => None,
        false => Some(CotReceiver::from_bytes(transfer)?),
    };
    Ok((Secret::new(*seed), receiver))
}

/// The number of a chunk's first circuit: from a place on that the transfer's session gives, so that the
/// same tweak stands for different offsets nowhere (`mpc::garble`, "many instances").
pub(super) fn first_circuit(session: &[u8; 32], chunk: &Chunk) -> u64 {
    let place = blake3::derive_key("hushtable hybrid 2026-11 circuits", session);
    let place = u64::from_le_bytes(*place.first_chunk().expect("32 bytes"));
    // Half of all numbers are left for those behind it.
    (place >> 1) + chunk.first_instance
}

/// The number of a chunk's first label among all of the garbler's.
pub(super) fn first_label(chunk: &Chunk) -> u64 {
    chunk.first_instance * LABELS_PER_INSTANCE_MAX
}

/// More than one party's labels for an instance.
const LABELS_PER_INSTANCE_MAX: u64 = 1 << 16;

/// The server's share of a convolution.
pub(super) fn share_of(seed: &Seed, outline: &Outline, convolution: usize) -> Vec<u64> {
    let (.., shape) = outline.convolutions()[convolution];
    let count = shape.output().count();
    numbers(seed, Use::Shares, convolution, count, outline.program().bits)
}

/// Where the client garbles, the numbers that the server chose its labels of a chunk by, as shares of
/// which the circuit takes the highest bits.
pub(super) fn choices_of(seed: &Seed, outline: &Outline, index: usize) -> Vec<u64> {
    let chunk: &Chunk = &outline.chunks()[index];
    let count = chunk.count() * outline.circuit(chunk).spec().window;
    numbers(seed, Use::Choices, index, count, outline.program().bits)
}
