//! 128 oblivious transfers of random keys over Ristretto: Chou and Orlandi, "The Simplest Protocol for
//! Oblivious Transfer" (LATINCRYPT 2015), whose honest-but-curious security rests on computational
//! Diffie-Hellman with BLAKE3 as the random oracle.
//!
//! The sender sends A = aG; the receiver, for bit c, B = bG + cA; the sender's keys are H(aB) and
//! H(a(B − A)), of which the receiver can compute H(bA) alone. B is uniform, so it says nothing of c.

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoBasepointTable, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use super::{Error, check_length};

/// Transfers of a setup: bits of Δ.
pub(super) const TRANSFERS: usize = 128;
/// Bytes of a point.
pub(super) const POINT_BYTES: usize = 32;

/// Both keys of each transfer.
pub(super) type KeyPairs = Zeroizing<Vec<[u128; 2]>>;

/// Who has both keys of each transfer.
pub(super) struct BaseSender {
    scalar: Zeroizing<Scalar>,
    opening: [u8; POINT_BYTES],
}

impl BaseSender {
    pub(super) fn new(seed: &[u8; 32]) -> Self {
        let scalar = Zeroizing::new(scalar("hushtable base transfer sender v1", seed, 0));
        let opening = RistrettoPoint::mul_base(&scalar).compress().to_bytes();
        Self { scalar, opening }
    }

    pub(super) fn opening(&self) -> [u8; POINT_BYTES] {
        self.opening
    }

    /// The two keys of each transfer, and what binds all to these points.
    pub(super) fn finish(&self, points: &[u8]) -> Result<(KeyPairs, [u8; 32]), Error> {
        check_length("the points", points, TRANSFERS * POINT_BYTES)?;
        let session = session(&self.opening, points);
        // a(B − A) = aB − aA.
        let squared = RistrettoPoint::mul_base(&(*self.scalar * *self.scalar));
        let mut keys = Zeroizing::new(Vec::with_capacity(TRANSFERS));
        for (index, bytes) in points.chunks_exact(POINT_BYTES).enumerate() {
            let mut shared = *self.scalar * point("the points", index, bytes)?;
            let mut other = shared - squared;
            keys.push([key(&session, index, &shared), key(&session, index, &other)]);
            shared.zeroize();
            other.zeroize();
        }
        Ok((keys, session))
    }
}

/// Who has the key of each transfer that its bit chooses.
pub(super) struct BaseReceiver {
    /// Of each transfer.
    pub(super) keys: Zeroizing<Vec<u128>>,
    /// What binds all to the points.
    pub(super) session: [u8; 32],
}

impl BaseReceiver {
    /// Chooses by the bits of `choices`, and gives the points to send.
    pub(super) fn new(
        seed: &[u8; 32],
        choices: u128,
        opening: &[u8],
    ) -> Result<(Self, Vec<u8>), Error> {
        check_length("the opening", opening, POINT_BYTES)?;
        let sender = point("the opening", 0, opening)?;
        let table = RistrettoBasepointTable::create(&sender);
        let scalars: Zeroizing<Vec<Scalar>> = Zeroizing::new(
            (0..TRANSFERS)
                .map(|index| scalar("hushtable base transfer receiver v1", seed, index as u64))
                .collect(),
        );
        let mut points = Vec::with_capacity(TRANSFERS * POINT_BYTES);
        for (index, scalar) in scalars.iter().enumerate() {
            let bit = Choice::from((choices >> index) as u8 & 1);
            let added =
                RistrettoPoint::conditional_select(&RistrettoPoint::identity(), &sender, bit);
            points.extend((scalar * RISTRETTO_BASEPOINT_TABLE + added).compress().to_bytes());
        }
        let session = session(opening, &points);
        let mut keys = Zeroizing::new(Vec::with_capacity(TRANSFERS));
        for (index, scalar) in scalars.iter().enumerate() {
            let mut shared = scalar * &table;
            keys.push(key(&session, index, &shared));
            shared.zeroize();
        }
        Ok((Self { keys, session }, points))
    }
}

fn scalar(context: &str, seed: &[u8; 32], index: u64) -> Scalar {
    let mut wide = Zeroizing::new([0; 64]);
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(seed).update(&index.to_le_bytes()).finalize_xof().fill(&mut *wide);
    hasher.zeroize();
    Scalar::from_bytes_mod_order_wide(&wide)
}

fn point(what: &'static str, index: usize, bytes: &[u8]) -> Result<RistrettoPoint, Error> {
    let compressed = CompressedRistretto::from_slice(bytes).ok();
    let point = compressed.and_then(|compressed| compressed.decompress());
    let usable = point.filter(|point| *point != RistrettoPoint::identity());
    usable.ok_or(Error::Point { what, index })
}

fn session(opening: &[u8], points: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable base transfer session v1");
    hasher.update(opening).update(points).finalize().into()
}

/// The hash of what is shared in transfer `index`.
fn key(session: &[u8; 32], index: usize, shared: &RistrettoPoint) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable base transfer key v1");
    let shared = Zeroizing::new(shared.compress().to_bytes());
    hasher.update(session).update(&(index as u64).to_le_bytes()).update(&*shared);
    let mut bytes = Zeroizing::new([0; 16]);
    hasher.finalize_xof().fill(&mut *bytes);
    hasher.zeroize();
    u128::from_le_bytes(*bytes)
}
