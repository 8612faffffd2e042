//! What a server announces and a client must know.

use std::collections::BTreeSet;
use std::fmt;

use hushtable_rlwe::ckks::{
    Ciphertext, KeySpec, Masks, Parameters, key_bytes, key_memory_bytes, wire,
};
use hushtable_rlwe::pack::{packed_bytes, poly_bytes};
use hushtable_rlwe::ring::Platform;
use serde::{Deserialize, Serialize};

use super::digits::{BASE_MAX, Digits};
use super::error::{Error, hex};
use super::features::Sizes;
use super::layout::{Input, check_inputs};
use super::plan::{Fusion, ParametersSpec, Plan, is_dense_max};
use super::spec::{FeatureSpec, SLOTS_MAX, WIDTH_MAX};

/// The most bytes of terms.
pub const TERMS_BYTES_MAX: usize = 1 << 20;

/// Announced terms that are longer than [`TERMS_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("terms is {found}, but must be 1 to {TERMS_BYTES_MAX}")]
#[non_exhaustive]
pub struct TermsTooLong {
    /// Bytes announced.
    pub found: u64,
}

/// Refuses announced terms for their length, before they are read.
pub(crate) fn check_terms_bytes(terms: &[u8]) -> Result<(), TermsTooLong> {
    match terms.len() <= TERMS_BYTES_MAX {
        true => Ok(()),
        false => Err(TermsTooLong { found: terms.len() as u64 }),
    }
}
/// The most bytes of keys that a client makes.
pub const KEY_BYTES_MAX: usize = 8 << 30;
/// Bytes that keys, queries and answers begin with: which plan they are for.
pub(super) const PLAN_BYTES: usize = 32;

/// Terms as they stand in the file; [`Terms::parse`] checks them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Announced {
    format: u32,
    plan: String,
    parameters: ParametersSpec,
    users: usize,
    dense: usize,
    is_lifted: bool,
    base: u64,
    threshold: u64,
    features: Vec<FeatureSpec>,
    inputs: Vec<Input>,
    /// The level of the highest product of ciphertexts.
    products: Option<usize>,
    /// Steps to the left, and the highest level of each rotation.
    rotations: Vec<(usize, usize)>,
    /// The highest level of a conjugation, where bootstraps conjugate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conjugation: Option<usize>,
    /// The level that bootstraps raise to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raise: Option<usize>,
    /// By dense feature: its largest absolute value, a power of two. Of the weights it says that much.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dense_max: Vec<f32>,
}

/// What a server announces, checked: sizes, layout and which keys it needs. Of the model it tells the
/// sizes of features and, by levels and rotations, the shape of the circuit.
#[derive(Clone)]
pub struct Terms {
    announced: Announced,
    plan: [u8; 32],
    parameters: Parameters,
    keys: KeySpec,
    sizes: Sizes,
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameters hold tables of roots.
        f.debug_struct("Terms").field("announced", &self.announced).finish_non_exhaustive()
    }
}

impl Terms {
    /// The terms of a plan.
    ///
    /// # Errors
    /// [`Error::Terms`] and [`Error::Ckks`] for a plan that no client would accept.
    pub fn of(plan: &Plan, platform: Platform) -> Result<Self, Error> {
        let KeySpec { products, rotations, conjugation, raise } = plan.key_spec();
        let announced = Announced {
            // Who reads the first format alone reads all that is not bootstrapped.
            format: match (plan.fusion(), raise) {
                (Fusion::Parts { .. }, _) => FORMAT,
                (_, Some(_)) => RAISED,
                _ => *FORMATS.start(),
            },
            plan: hex(&plan.hash()),
            parameters: plan.parameters.clone(),
            users: plan.users,
            dense: plan.model.dense,
            is_lifted: plan.chain.is_lifted,
            base: plan.model.base,
            threshold: plan.model.threshold,
            // What the server calls its tables is its own.
            features: {
                let features = plan.model.features.iter().cloned();
                features.map(|feature| FeatureSpec { table: None, ..feature }).collect()
            },
            inputs: plan.inputs.clone(),
            products,
            rotations: rotations.iter().collect(),
            conjugation,
            raise,
            dense_max: plan.dense_max.clone(),
        };
        Self::check(announced, platform)
    }

    /// Reads and checks what a server announced.
    ///
    /// # Errors
    /// [`Error::Terms`] and [`Error::Ckks`] say what no client accepts: a set below 128 bits, sizes out
    /// of bounds, a layout that does not hold its values, rotations that there are not.
    pub fn parse(bytes: &[u8], platform: Platform) -> Result<Self, Error> {
        if bytes.len() > TERMS_BYTES_MAX {
            let why = format!("{} bytes, at most {TERMS_BYTES_MAX}", bytes.len());
            return Err(Error::Terms { why });
        }
        let wrong = |error: serde_json::Error| Error::Terms { why: error.to_string() };
        // The format first: terms of another one may say what is not known here.
        let Version { format } = serde_json::from_slice(bytes).map_err(wrong)?;
        check_format(format)?;
        Self::check(serde_json::from_slice(bytes).map_err(wrong)?, platform)
    }

    fn check(announced: Announced, platform: Platform) -> Result<Self, Error> {
        let refuse = |why: String| Error::Terms { why };
        let own = &announced;
        check_format(own.format)?;
        let plan = unhex(&own.plan).ok_or_else(|| refuse("plan is no BLAKE3 hash".into()))?;
        let ParametersSpec { degree, moduli, special_moduli, .. } = &own.parameters;
        if !(4096..=65_536).contains(degree) || !degree.is_power_of_two() {
            return Err(refuse(format!("{degree} coefficients, possible are 2^12 to 2^16")));
        }
        let primes = moduli.len() + special_moduli.len();
        if moduli.is_empty() || special_moduli.is_empty() || primes > 64 {
            return Err(refuse(format!("{primes} primes, possible are 2 to 64")));
        }
        if !own.users.is_power_of_two() || own.users > degree / 2 {
            return Err(refuse(format!("{} users a ciphertext", own.users)));
        }
        if !(1..=WIDTH_MAX).contains(&own.dense) || own.features.len() > 1024 {
            return Err(refuse("dense and sparse features out of bounds".into()));
        }
        if !(2..=BASE_MAX).contains(&own.base) || own.inputs.is_empty() || own.inputs.len() > 3 {
            return Err(refuse("a base or a number of inputs out of bounds".into()));
        }
        let mut features: Vec<(String, Digits)> = Vec::new();
        let mut total = 0usize;
        for FeatureSpec { name, rows, table: _, bag } in &own.features {
            if *bag != 1 {
                return Err(refuse(
                    "a feature with a bag, which encrypted features do not have".into(),
                ));
            }
            if name.is_empty() || name.len() > 160 || *rows == 0 {
                return Err(refuse("a feature without a name or rows".into()));
            }
            let digits = Digits::new(*rows, own.threshold, own.base);
            total = total.saturating_add(digits.slots());
            features.push((name.clone(), digits));
        }
        if total > SLOTS_MAX {
            return Err(refuse(format!("one-hot vectors of {total} slots, at most {SLOTS_MAX}")));
        }
        let slots = degree / 2 / own.users;
        let (dense, is_lifted, users) = (own.dense, own.is_lifted, own.users);
        if !is_dense_max(&own.dense_max, dense) {
            return Err(refuse("ends of dense features that are none".into()));
        }
        let dense_max = own.dense_max.clone();
        let sizes = Sizes { dense, is_lifted, features, users, slots, dense_max };
        let parameters = own.parameters.check(platform)?;
        let levels = parameters.levels();
        for input in &own.inputs {
            if input.level == 0 || input.level > levels {
                return Err(refuse(format!("an input at level {} of {levels}", input.level)));
            }
        }
        check_inputs(&own.inputs, slots, sizes.dense_values(), &sizes.digits())?;
        let is_level = |&level: &usize| (1..=levels).contains(&level);
        let mut others = own.products.iter().chain(&own.conjugation).chain(&own.raise);
        if !others.all(is_level) || own.rotations.len() > 4096 {
            return Err(refuse("products, rotations or bootstraps out of bounds".into()));
        }
        let steps: BTreeSet<usize> = own.rotations.iter().map(|&(steps, _)| steps).collect();
        let is_rotation =
            |&(steps, level): &(usize, usize)| (1..degree / 2).contains(&steps) && level <= levels;
        if steps.len() != own.rotations.len() || !own.rotations.iter().all(is_rotation) {
            return Err(refuse("rotations that are none".into()));
        }
        let rotations = own.rotations.iter().copied().collect();
        let (products, conjugation, raise) = (own.products, own.conjugation, own.raise);
        let keys = KeySpec { products, rotations, conjugation, raise };
        let terms = Self { plan, parameters, keys, sizes, announced };
        let found = terms.key_bytes()?;
        if found > KEY_BYTES_MAX {
            return Err(refuse(format!("keys of {found} bytes, at most {KEY_BYTES_MAX}")));
        }
        Ok(terms)
    }

    /// The terms as JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.announced).unwrap_or_default()
    }

    /// BLAKE3 of the plan.
    pub fn plan(&self) -> [u8; 32] {
        self.plan
    }

    /// The parameter set.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Users of a query at most.
    pub fn users(&self) -> usize {
        self.announced.users
    }

    /// Dense features of a user.
    pub fn dense(&self) -> usize {
        self.announced.dense
    }

    /// By dense feature: the largest absolute value that the plan holds; none where it does not say.
    pub fn dense_max(&self) -> &[f32] {
        &self.announced.dense_max
    }

    /// Checks the features of any number of users, which may be several queries, before any is made.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Feature`], [`Error::Index`].
    pub fn check_features(&self, dense: &[f32], indices: &[u64]) -> Result<(), Error> {
        self.sizes.check_values(dense, indices)
    }

    /// The sparse features: names and rows.
    pub fn features(&self) -> &[FeatureSpec] {
        &self.announced.features
    }

    /// Ciphertexts of a query.
    pub fn ciphertexts(&self) -> usize {
        self.announced.inputs.iter().map(|input| input.ciphertexts).sum()
    }

    /// Rotations that keys are made for.
    pub fn rotations(&self) -> usize {
        self.announced.rotations.len()
    }

    /// Bytes of the keys, known before there are any.
    ///
    /// # Errors
    /// [`Error::Ckks`].
    pub fn key_bytes(&self) -> Result<usize, Error> {
        let keys = key_bytes(&self.parameters, &self.keys)?;
        Ok(PLAN_BYTES + self.zero_bytes() + keys)
    }

    /// Bytes of memory that the keys take at a server, known before there are any.
    ///
    /// # Errors
    /// [`Error::Ckks`].
    pub fn key_memory_bytes(&self, masks: Masks) -> Result<usize, Error> {
        let keys = key_memory_bytes(&self.parameters, &self.keys, masks)?;
        let zero = hushtable_rlwe::Ciphertext::zero(self.parameters.ring(0)).memory_bytes();
        Ok(keys + size_of::<Ciphertext>() + zero)
    }

    /// Bytes of a query.
    pub fn query_bytes(&self) -> usize {
        let levels = self.announced.inputs.iter().flat_map(Input::levels);
        let each = |level| wire::ciphertext_bytes(&self.parameters, level, wire::Form::Fresh);
        PLAN_BYTES + levels.map(each).sum::<usize>()
    }

    /// Bytes of an answer.
    pub fn answer_bytes(&self) -> usize {
        let ring = self.parameters.ring(0);
        let bits = ring.modulus(0).bits();
        PLAN_BYTES + poly_bytes(ring) + packed_bytes(2 * self.users(), bits)
    }

    /// Bytes of the encryption of zero that answers are hidden with.
    pub(super) fn zero_bytes(&self) -> usize {
        wire::ciphertext_bytes(&self.parameters, 0, wire::Form::Fresh)
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    pub(super) fn inputs(&self) -> &[Input] {
        &self.announced.inputs
    }

    pub(super) fn key_spec(&self) -> &KeySpec {
        &self.keys
    }

    /// Refuses bytes that are not for this plan, or of another length than `expected`; the rest of them.
    pub(super) fn open<'b>(
        &self,
        what: &'static str,
        expected: usize,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], Error> {
        let Some((plan, rest)) =
            bytes.split_first_chunk::<PLAN_BYTES>().filter(|_| bytes.len() == expected)
        else {
            return Err(Error::Bytes { what, expected, found: bytes.len() });
        };
        self.check_plan(what, plan)?;
        Ok(rest)
    }

    /// Refuses what names another plan.
    pub(super) fn check_plan(
        &self,
        what: &'static str,
        plan: &[u8; PLAN_BYTES],
    ) -> Result<(), Error> {
        if *plan != self.plan {
            let (expected, found) = (hex(&self.plan), hex(plan));
            return Err(Error::OtherPlan { what, expected, found });
        }
        Ok(())
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let text = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut out = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (out, pair) in out.iter_mut().zip(text.as_chunks::<2>().0) {
        *out = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

fn check_format(found: u32) -> Result<(), Error> {
    let (first, last) = (FORMATS.start(), FORMATS.end());
    let why = || format!("format {found}, this build reads {first} to {last}: upgrade the client");
    if FORMATS.contains(&found) { Ok(()) } else { Err(Error::Terms { why: why() }) }
}

/// Terms' format, whatever else is in them.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

const FORMAT: u32 = 3;
/// That of terms with bootstraps and without parts.
const RAISED: u32 = 2;
/// What is read: the first has no bootstraps, the second no one-hot vectors in parts.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=FORMAT;
