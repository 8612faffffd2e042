//! The client: deals shares and keys, and opens the logit.

use hushtable_mpc::Platform;
use hushtable_mpc::Secret;
use hushtable_mpc::compare::Prg;
use zeroize::Zeroize;

use super::dense::{DENSE, whole};
use super::outline::Outline;
use super::stream::{PRG, Stream, dealt_stream, random_seed};
use super::{Error, convert, steps};

pub use super::dense::check_dense;

/// What a client sends for one inference beside its lookup keys: used once, by both servers or by neither.
pub struct Dealt {
    /// What both servers get: comparison keys' correction words.
    pub common: Vec<u8>,
    /// What left alone gets: a seed.
    pub left: Vec<u8>,
    /// What right alone gets: a seed, and its shares of what left's seed is a share of.
    pub right: Vec<u8>,
}

impl Drop for Dealt {
    fn drop(&mut self) {
        self.left.zeroize();
        self.right.zeroize();
    }
}

/// Deals an inference on these dense features.
///
/// # Errors
/// [`Error::Unsupported`] for an outline that no model has; [`Error::Count`] and [`Error::Feature`] for features that this
/// one does not have; [`Error::Entropy`].
///
/// # Security
/// Time and memory accesses depend on the outline alone; each call draws anew.
pub fn deal(outline: &Outline, dense: &[f64]) -> Result<Dealt, Error> {
    let seeds = [random_seed()?, random_seed()?, random_seed()?];
    deal_from(outline, dense, &seeds)
}

/// What a client sends for one inference where the servers deal, beside its lookup keys: shares of its dense features.
pub struct Shared {
    /// What left alone gets: a seed.
    pub left: Vec<u8>,
    /// What right alone gets: 4 bytes a feature.
    pub right: Vec<u8>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.left.zeroize();
        self.right.zeroize();
    }
}

/// Shares dense features between servers that have what else an inference takes ([`joint`](super::joint)).
///
/// # Errors
/// As [`deal`].
///
/// # Security
/// Time and memory accesses depend on the outline alone; each call draws anew.
pub fn share(outline: &Outline, dense: &[f64]) -> Result<Shared, Error> {
    outline.check()?;
    let mut numbers = whole(outline, dense)?;
    let seed = random_seed()?;
    let mut shares = Stream::new(seed.expose(), DENSE).words(outline.dense);
    let rest =
        numbers.iter().zip(&shares).map(|(number, share)| (*number as u32).wrapping_sub(*share));
    let right = rest.flat_map(u32::to_le_bytes).collect();
    shares.zeroize();
    numbers.zeroize();
    Ok(Shared { left: seed.expose().to_vec(), right })
}

/// What [`deal`] gives, from the dealer's own, left's and right's seed: for known answers.
pub(super) fn deal_from(
    outline: &Outline,
    dense: &[f64],
    [own, left, right]: &[Secret<[u8; 32]>; 3],
) -> Result<Dealt, Error> {
    outline.check()?;
    let mut numbers = whole(outline, dense)?;
    let prg = Prg::new(PRG, Platform::detect());
    let mut dealt = Dealt {
        common: Vec::with_capacity(outline.common_bytes()),
        left: left.expose().to_vec(),
        right: Vec::with_capacity(outline.right_bytes()),
    };
    dealt.right.extend(right.expose());
    let mut own = Stream::new(own.expose(), DEALER);
    let [mut left, mut right] = [left, right].map(|seed| dealt_stream(seed.expose()));
    let mut shares = left.words(outline.dense);
    let rest =
        numbers.iter().zip(&shares).map(|(number, share)| (*number as u32).wrapping_sub(*share));
    dealt.right.extend(rest.flat_map(u32::to_le_bytes));
    convert::deal(outline, &mut left, &mut right, &mut dealt.right);
    for step in &outline.steps {
        let to = [&mut left, &mut right];
        steps::deal(*step, prg, &mut own, to, &mut dealt.common, &mut dealt.right);
    }
    shares.zeroize();
    numbers.zeroize();
    Ok(dealt)
}

/// The logit of two shares.
///
/// # Errors
/// [`Error::Unsupported`] as for [`deal`], [`Error::Bytes`] for shares of another model.
pub fn open(outline: &Outline, left: &[u8], right: &[u8]) -> Result<f64, Error> {
    outline.check()?;
    let number = |bytes: &[u8]| {
        let (what, expected, found) = ("a share of a logit", outline.logit_bytes(), bytes.len());
        if expected != found {
            return Err(Error::Bytes { what, expected, found });
        }
        let mut word = [0; 4];
        word[..found].copy_from_slice(bytes);
        Ok(u32::from_le_bytes(word))
    };
    let unused = 32 - outline.logit_bits;
    let sum = (number(left)?.wrapping_add(number(right)?) << unused) as i32 >> unused;
    Ok(f64::from(sum) / f64::from(1_u32 << outline.fraction_bits))
}

const DEALER: &str = "hushtable shares 2026-11 dealer";
