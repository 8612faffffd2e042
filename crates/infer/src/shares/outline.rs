//! What a client knows of a model: sizes, and no weight.

use hushtable_mpc::compare::Half;
use hushtable_mpc::share::packed_bytes;
use serde::{Deserialize, Serialize};

use super::Error;
use super::gate::Gates;
use super::lift::Lifts;
use super::products::Products;

/// A model's sizes: all that dealing takes. What [`check`](Self::check) refuses is not dealt for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct Outline {
    /// Bits after the point of activations, dense features and the logit.
    pub fraction_bits: u32,
    /// Dense features.
    pub dense: usize,
    /// Each sparse feature's rows, in the order of the tables.
    pub lookups: Vec<LookupOutline>,
    /// Whether the first step reads rows, which then are opened in a message of their own.
    pub rows_first: bool,
    /// What the servers do together, in order.
    pub steps: Vec<StepOutline>,
    /// Bits of the ring in which the logit is shared.
    pub logit_bits: u32,
}

/// The rows that are looked up for a feature and summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct LookupOutline {
    /// Rows.
    pub rows: usize,
    /// Values of a row.
    pub dim: usize,
    /// Bits of a value: 8 or 16.
    pub value_bits: u32,
}

/// What the servers do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[allow(clippy::exhaustive_enums, reason = "a server that knows another step has another outline")]
pub enum StepOutline {
    /// max(x, 0) of each value.
    Relu {
        /// How many values.
        count: usize,
        /// Bits of each, sign and bits after the point included.
        bits: u32,
    },
    /// Each value as it is, modulo 2^32 again.
    Lift {
        /// How many values.
        count: usize,
        /// Bits of each, sign and bits after the point included, and one to spare.
        bits: u32,
    },
    /// The dot products of each pair of vectors.
    Products {
        /// How many vectors.
        vectors: usize,
        /// Values of each.
        dim: usize,
    },
}

impl StepOutline {
    /// Bytes that both servers get.
    fn common_bytes(self) -> usize {
        match self {
            Self::Relu { count, bits } => Gates { count, bits }.words_bytes(),
            Self::Lift { .. } | Self::Products { .. } => 0,
        }
    }

    /// Bytes of shares that are given to whom they do not come from a seed.
    fn given_bytes(self) -> usize {
        match self {
            Self::Relu { count, bits } => Gates { count, bits }.given_bytes(),
            Self::Lift { count, bits } => Lifts { count, bits }.given_bytes(),
            Self::Products { vectors, dim } => Products { vectors, dim }.given_bytes(),
        }
    }

    /// Bytes of all messages of one server.
    fn peer_bytes(self) -> usize {
        match self {
            Self::Relu { count, bits } => packed_bytes(bits, count) + packed_bytes(1, count),
            Self::Lift { count, bits } => packed_bytes(bits, count),
            Self::Products { vectors, dim } => 4 * vectors * dim,
        }
    }

    fn rounds(self) -> usize {
        match self {
            Self::Relu { .. } => 2,
            Self::Lift { .. } | Self::Products { .. } => 1,
        }
    }
}

impl Outline {
    /// Whether this can be a model's: a client has it from a server, which may say anything.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names what cannot be.
    pub fn check(&self) -> Result<(), Error> {
        let refuse =
            |field, found: String, possible| Err(Error::Unsupported { field, found, possible });
        if !(4..=20).contains(&self.fraction_bits) {
            return refuse("bits after the point", self.fraction_bits.to_string(), "4 to 20");
        }
        if self.dense > VALUES_MAX {
            return refuse("dense features", self.dense.to_string(), "at most 1,048,576");
        }
        for lookup in &self.lookups {
            if !matches!(lookup.value_bits, 8 | 16) {
                return refuse("bits of a row's value", lookup.value_bits.to_string(), "8 or 16");
            }
        }
        let values = |lookup: &LookupOutline| lookup.rows.checked_mul(lookup.dim);
        let looked = self.lookups.iter().try_fold(0_usize, |sum, it| sum.checked_add(values(it)?));
        if looked.is_none_or(|looked| looked > VALUES_MAX) {
            return refuse("values of rows", format!("{looked:?}"), "at most 1,048,576");
        }
        let mut all = 0_usize;
        for step in &self.steps {
            let (count, bits) = match *step {
                StepOutline::Relu { count, bits } => (Some(count), bits),
                StepOutline::Lift { count, bits } => (Some(count), bits),
                // Its products are about half as many as pairs.
                StepOutline::Products { vectors, dim } => {
                    let pairs = vectors.checked_mul(vectors);
                    (pairs.and_then(|pairs| pairs.checked_add(vectors.checked_mul(dim)?)), 32)
                }
            };
            if !(3..=32).contains(&bits) {
                return refuse("bits of a step's values", bits.to_string(), "3 to 32");
            }
            match count.and_then(|count| all.checked_add(count)) {
                Some(sum) if sum <= VALUES_MAX => all = sum,
                _ => {
                    return refuse("values of all steps", format!("{step:?}"), "at most 1,048,576");
                }
            }
        }
        if !(2..=32).contains(&self.logit_bits) {
            return refuse("bits of the logit", self.logit_bits.to_string(), "2 to 32");
        }
        Ok(())
    }

    /// A hash of all of it: what is dealt for one outline is of no use for another.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable shares 2026-11 outline");
        hasher.update(&serde_json::to_vec(self).expect("numbers alone"));
        hasher.finalize().into()
    }

    /// Bits of all rows that are looked up.
    pub fn looked_bits(&self) -> usize {
        self.lookups.iter().map(|it| it.rows * it.dim * it.value_bits as usize).sum()
    }

    fn sum(&self, of: impl Fn(StepOutline) -> usize) -> usize {
        self.steps.iter().copied().map(of).sum()
    }

    /// Bytes that both servers get.
    pub fn common_bytes(&self) -> usize {
        self.sum(StepOutline::common_bytes)
    }

    /// Bytes that left alone gets.
    pub fn left_bytes(&self) -> usize {
        SEED_BYTES
    }

    /// Bytes that right alone gets.
    pub fn right_bytes(&self) -> usize {
        SEED_BYTES + 4 * self.dense + self.given_bytes()
    }

    /// Bytes of shares that a server has beside its seed where the servers deal.
    pub(super) fn given_bytes(&self) -> usize {
        4 * self.looked_bits() + self.sum(StepOutline::given_bytes)
    }

    /// That what a client dealt to a server is as long as it must be.
    ///
    /// # Errors
    /// [`Error::Bytes`] says what is not.
    pub fn check_part(&self, half: Half, common: &[u8], dealt: &[u8]) -> Result<(), Error> {
        let own_bytes = match half {
            Half::Left => self.left_bytes(),
            Half::Right => self.right_bytes(),
        };
        check_bytes("dealt correction words", self.common_bytes(), common)?;
        check_bytes("dealt shares", own_bytes, dealt)
    }

    /// Bytes of the shares of dense features that a server gets where the servers deal.
    pub fn dense_bytes(&self, half: Half) -> usize {
        match half {
            Half::Left => SEED_BYTES,
            Half::Right => 4 * self.dense,
        }
    }

    /// That those have that length.
    ///
    /// # Errors
    /// [`Error::Bytes`].
    pub fn check_dense(&self, half: Half, dense: &[u8]) -> Result<(), Error> {
        check_bytes("shares of dense features", self.dense_bytes(half), dense)
    }

    /// The same of a client's part where the servers deal: nothing for both, and a share of the dense features.
    ///
    /// # Errors
    /// [`Error::Bytes`].
    pub fn check_shared(&self, half: Half, common: &[u8], dense: &[u8]) -> Result<(), Error> {
        check_bytes("dealt correction words, where the servers deal,", 0, common)?;
        self.check_dense(half, dense)
    }

    /// The same of a server's share of the rows.
    ///
    /// # Errors
    /// [`Error::Bytes`].
    pub fn check_rows(&self, rows: &[u8]) -> Result<(), Error> {
        check_bytes("rows", self.looked_bits() / 8, rows)
    }

    /// Bytes that a client sends for one inference, to both servers together, beside its lookup keys.
    pub fn up_bytes(&self) -> usize {
        2 * self.common_bytes() + self.left_bytes() + self.right_bytes()
    }

    /// Bytes that each server sends the other for one inference.
    pub fn peer_bytes(&self) -> usize {
        self.looked_bits().div_ceil(8) + self.sum(StepOutline::peer_bytes)
    }

    /// Messages that each server sends the other, each after one of the other's.
    pub fn rounds(&self) -> usize {
        usize::from(self.rows_first) + self.sum(StepOutline::rounds)
    }

    /// Values that go through a ReLU.
    pub fn activations(&self) -> usize {
        self.sum(|step| match step {
            StepOutline::Relu { count, .. } => count,
            StepOutline::Lift { .. } | StepOutline::Products { .. } => 0,
        })
    }

    /// Bytes of a share of the logit.
    pub fn logit_bytes(&self) -> usize {
        self.logit_bits.div_ceil(8) as usize
    }
}

fn check_bytes(what: &'static str, expected: usize, bytes: &[u8]) -> Result<(), Error> {
    match bytes.len() {
        found if found == expected => Ok(()),
        found => Err(Error::Bytes { what, expected, found }),
    }
}

pub(super) const SEED_BYTES: usize = 32;
/// What a client deals for at most: some 500 MB.
const VALUES_MAX: usize = 1 << 20;
