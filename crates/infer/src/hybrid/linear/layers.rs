//! How the linear layers of a program lie in polynomials: known to both parties.

use std::ops::Range;

use hushtable_rlwe::linear::proof::{is_unique, response_bytes, verified_noise_log2};
use hushtable_rlwe::linear::{Parameters, PublicKey, names, noise_log2};
use hushtable_rlwe::ring::Platform;

use super::super::program::Convolution;
use super::error::Error;
use super::layout::{Costs, Layout, Work};

/// Whether uploads are proven to be encryptions in the set of this name.
pub fn is_verified(lattice: &str) -> bool {
    names(true).any(|name| name == lattice)
}

/// The fastest set that hides the noise of these convolutions and weights, for numbers of `bits` bits; of those
/// whose uploads are proven to be encryptions where `is_verified`, or of the others.
///
/// # Errors
/// As [`Layers::new`]; what is wrong with the last set where none will do: [`Error::Noise`] says which
/// convolution's weights are too large.
pub fn choose(
    bits: u32,
    convolutions: &[(Convolution, &[i32])],
    is_verified: bool,
    platform: Platform,
) -> Result<&'static str, Error> {
    let shapes: Vec<_> = convolutions.iter().map(|(convolution, _)| *convolution).collect();
    let mut refused = None;
    for name in names(is_verified) {
        let fits = Layers::new(name, bits, &shapes, platform).and_then(|layers| {
            let mut weights = convolutions.iter().enumerate();
            weights.try_for_each(|(index, (_, weights))| layers.check(index, weights))
        });
        match fits {
            Ok(()) => return Ok(name),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.expect("there are sets"))
}

/// The layouts of all convolutions of a program.
#[derive(Clone, Debug)]
pub struct Layers {
    parameters: Parameters,
    layouts: Vec<Layout>,
    /// The number of each convolution's first encryption, and of the one after the last.
    firsts: Vec<usize>,
    /// The convolutions whose uploads are proven together; none where uploads are taken as they are.
    batches: Vec<Range<usize>>,
}

impl Layers {
    /// Lays `convolutions` out, in order, for numbers of `bits` bits in the set `lattice`.
    ///
    /// # Errors
    /// [`Error::Encryption`] for a set that there is not, or bits that it does not carry; [`Error::Shape`],
    /// [`Error::Kernel`], [`Error::Uploads`], [`Error::ProofBits`].
    pub fn new(
        lattice: &str,
        bits: u32,
        convolutions: &[Convolution],
        platform: Platform,
    ) -> Result<Self, Error> {
        let parameters = Parameters::new(lattice, bits, platform)?;
        let mask_bytes = parameters.answer_bytes(0);
        let costs = Costs {
            degree: parameters.degree(),
            limbs: parameters.ring().limbs(),
            upload_bytes: parameters.upload_bytes(),
            mask_bytes,
            body_bits: parameters.answer_bytes(8) - mask_bytes,
            upload_kilo: if parameters.is_verified() { PROVEN_UPLOAD } else { UPLOAD },
        };
        let mut layouts: Vec<Layout> = Vec::with_capacity(convolutions.len());
        // 0 is the public key's.
        let mut firsts = vec![1usize];
        for (index, own) in convolutions.iter().enumerate() {
            if !is_shape(own) {
                return Err(Error::Shape { convolution: index, found: *own });
            }
            // Networks repeat their layers.
            let known = layouts.iter().find(|layout| layout.convolution() == own).cloned();
            let found = known.or_else(|| Layout::search(*own, &costs));
            let [rows, columns] = own.kernel;
            let degree = costs.degree;
            let unfit = Error::Kernel { convolution: index, degree, rows, columns };
            let layout = found.ok_or(unfit)?;
            firsts.push(firsts[index] + layout.uploads());
            layouts.push(layout);
            if firsts[index + 1] > UPLOADS_MAX {
                return Err(Error::Uploads { found: firsts[index + 1], most: UPLOADS_MAX });
            }
        }
        let mut batches: Vec<Range<usize>> = Vec::new();
        if parameters.is_verified() {
            for index in 0..layouts.len() {
                match batches.last_mut() {
                    Some(last) if firsts[index] - firsts[last.start] < BATCH => last.end += 1,
                    _ => batches.push(index..index + 1),
                }
            }
        }
        let found = Self { parameters, layouts, firsts, batches };
        for batch in 0..found.batches.len() {
            let columns = found.columns(batch);
            if !is_unique(&found.parameters, columns) {
                let lattice = lattice.to_owned();
                return Err(Error::ProofBits { bits, lattice, columns });
            }
        }
        Ok(found)
    }

    /// What is encrypted with.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// How many convolutions there are.
    pub fn convolutions(&self) -> usize {
        self.layouts.len()
    }

    /// Bytes of [`LinearClient::public_key`](super::LinearClient::public_key).
    pub fn public_key_bytes(&self) -> usize {
        PublicKey::bytes(&self.parameters)
    }

    /// Chunks in which a convolution's input is uploaded: 1 or more.
    pub fn uploads(&self, convolution: usize) -> usize {
        self.layouts[convolution].chunks()
    }

    /// Bytes of a chunk: at most 1 MiB.
    pub fn upload_bytes(&self, convolution: usize, chunk: usize) -> usize {
        self.layouts[convolution].chunk(chunk).len() * self.parameters.upload_bytes()
    }

    /// Units in which a convolution's output is answered: 1 or more.
    pub fn units(&self, convolution: usize) -> usize {
        self.layouts[convolution].units()
    }

    /// Bytes of a unit's reply: about 1 MiB at most.
    pub fn unit_bytes(&self, convolution: usize, unit: usize) -> usize {
        self.answers(convolution, unit).map(|(.., bytes)| bytes).sum()
    }

    /// The convolutions whose uploads are proven together to be encryptions, before any of them is computed on; none
    /// where uploads are taken as they are.
    pub fn batches(&self) -> &[Range<usize>] {
        &self.batches
    }

    /// The batch that a convolution's uploads are proven in.
    pub fn batch_of(&self, convolution: usize) -> Option<usize> {
        self.batches.iter().position(|batch| batch.contains(&convolution))
    }

    /// Bodies of a batch: its uploads and the public key.
    pub(super) fn columns(&self, batch: usize) -> usize {
        let Range { start, end } = self.batches[batch];
        1 + self.firsts[end] - self.firsts[start]
    }

    /// Bytes of the answer to one row of a batch's proof.
    pub fn proof_row_bytes(&self, batch: usize) -> usize {
        response_bytes(&self.parameters, self.columns(batch))
    }

    /// What a convolution takes, in operations on polynomials.
    pub fn work(&self, convolution: usize) -> Work {
        self.layouts[convolution].work()
    }

    /// Whether a set hides the noise of a convolution's weights.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Noise`].
    pub(super) fn check(&self, convolution: usize, weights: &[i32]) -> Result<(), Error> {
        let layout = &self.layouts[convolution];
        let (expected, found) = (layout.convolution().weights(), weights.len());
        if expected != found {
            return Err(Error::Count { what: "weights", convolution, expected, found });
        }
        let most = self.parameters.noise_log2_max();
        let plane = expected / layout.convolution().outputs;
        for group in 0..layout.output_groups() {
            let outputs = layout.outputs_of(group);
            let own = &weights[outputs.start * plane..outputs.end * plane];
            let weights = own.iter().map(|&weight| f64::from(weight).abs());
            let degree = self.parameters.degree();
            let noise = match self.batch_of(convolution) {
                None => noise_log2(degree, weights.map(|weight| weight * weight).sum()),
                Some(batch) => verified_noise_log2(degree, self.columns(batch), weights.sum()),
            };
            if noise > most {
                return Err(Error::Noise {
                    convolution,
                    lattice: self.parameters.name().to_owned(),
                    bits: self.parameters.bits(),
                    noise,
                    most,
                });
            }
        }
        Ok(())
    }

    /// The layout of a convolution.
    pub(super) fn layout(&self, convolution: usize) -> Result<&Layout, Error> {
        let count = self.layouts.len();
        let missing = Error::Index { what: "convolution", index: convolution, count };
        self.layouts.get(convolution).ok_or(missing)
    }

    /// The number of a convolution's upload among all encryptions.
    pub(super) fn index(&self, convolution: usize, upload: usize) -> u64 {
        (self.firsts[convolution] + upload) as u64
    }

    /// The answers of a unit, in order: tile, output group, bytes.
    pub(super) fn answers(
        &self,
        convolution: usize,
        unit: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let layout = &self.layouts[convolution];
        let (tiles, groups) = layout.unit(unit);
        tiles.flat_map(move |tile| {
            groups.clone().map(move |group| {
                let count = layout.outputs_count(tile, group);
                (tile, group, self.parameters.answer_bytes(count))
            })
        })
    }
}

/// Whether sizes are possible, and none too large to count with.
fn is_shape(convolution: &Convolution) -> bool {
    let Convolution { input, outputs, kernel, stride, pad } = *convolution;
    let sizes = [input.channels, input.height, input.width, outputs, kernel[0], kernel[1]];
    let is_some = sizes.iter().chain(&stride).all(|&size| (1..=SIZE_MAX).contains(&size));
    if !is_some || pad.iter().any(|&size| size > SIZE_MAX) {
        return false;
    }
    let [top, left, bottom, right] = pad;
    let fits = kernel[0] <= input.height + top + bottom && kernel[1] <= input.width + left + right;
    let is_bounded = |sizes: [usize; 4]| {
        let product = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        product.is_some_and(|product| product <= NUMBERS_MAX)
    };
    let padded = [input.height + top + bottom, input.width + left + right];
    let output = convolution.output();
    fits && is_bounded([input.channels, padded[0], padded[1], 1])
        && is_bounded([output.channels, output.height, output.width, 1])
        && is_bounded([outputs, input.channels, kernel[0], kernel[1]])
}

/// Most of any size.
const SIZE_MAX: usize = 1 << 24;

/// Most numbers of a tensor, and weights of a convolution.
const NUMBERS_MAX: usize = 1 << 28;

/// Nanoseconds that an upload takes both parties, for 1000 numbers of each prime.
const UPLOAD: u64 = 45_000;

/// The same with its part of a proof, and as much again: at equal times of everything fewer bytes go the client's way,
/// which links are slower in.
const PROVEN_UPLOAD: u64 = 150_000;

/// Uploads that are proven together, once there are as many: a proof's bytes are those of about nine.
const BATCH: usize = 256;

/// Most encryptions under one secret.
const UPLOADS_MAX: usize = 1 << 24;
