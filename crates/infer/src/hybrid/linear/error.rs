//! What the linear layers refuse.

use super::super::program::Convolution;

/// Why layers, weights or bytes were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The encryption's parameters or bytes.
    #[error("linear layers: {0}")]
    Encryption(#[from] hushtable_rlwe::Error),
    /// A convolution that cannot be.
    #[error(
        "convolution {convolution} is none: {found:?}; sizes and strides are at least 1, the kernel no larger \
         than the padded input, and inputs, outputs and weights at most 2^28"
    )]
    Shape {
        /// Its number.
        convolution: usize,
        /// What was given.
        found: Convolution,
    },
    /// A kernel too large for a polynomial.
    #[error(
        "convolution {convolution} fits no polynomial of {degree} coefficients: its kernel of {rows} × {columns} \
         is too large"
    )]
    Kernel {
        /// Its number.
        convolution: usize,
        /// N.
        degree: usize,
        /// The kernel's rows.
        rows: usize,
        /// The kernel's columns.
        columns: usize,
    },
    /// More encryptions than one secret is good for.
    #[error("the layers take {found} encryptions: at most {most} are possible under one key")]
    Uploads {
        /// What they take.
        found: usize,
        /// The most.
        most: usize,
    },
    /// Too much noise.
    #[error(
        "convolution {convolution}: its weights may make noise of {noise:.1} bits, and {lattice} hides {most:.1} \
         for numbers of {bits} bits: take fewer bits or fraction bits, or another set (linear_8192, or with proofs of \
         uploads linear_8192_4_verified)"
    )]
    Noise {
        /// Its number.
        convolution: usize,
        /// The set.
        lattice: String,
        /// Bits of numbers.
        bits: u32,
        /// log2 of the bound on its noise.
        noise: f64,
        /// log2 of the most.
        most: f64,
    },
    /// Another number of values than the shape says.
    #[error("{what} of convolution {convolution}: {found} numbers, expected {expected}")]
    Count {
        /// What was given.
        what: &'static str,
        /// The convolution's number.
        convolution: usize,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A convolution, chunk or unit that there is not.
    #[error("there is no {what} {index}: there are {count}")]
    Index {
        /// What was asked for.
        what: &'static str,
        /// Its number.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A message of another length.
    #[error("{what}: {found} bytes, expected {expected}")]
    Bytes {
        /// What was being read.
        what: &'static str,
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// A chunk was sent again with other bytes.
    #[error("chunk {chunk} of convolution {convolution} was sent before, with other bytes")]
    Changed {
        /// The convolution's number.
        convolution: usize,
        /// The chunk.
        chunk: usize,
    },
    /// Uploads that are to be computed on before they were proven to be encryptions.
    #[error(
        "the uploads of batch {batch} are not proven to be encryptions of numbers: the proof comes first, and a false \
         one ends the precompute"
    )]
    Unproven {
        /// The batch.
        batch: usize,
    },
    /// A proof under masks that were used for another seed.
    #[error(
        "the proof of batch {batch} was begun for another seed: a second answer would give the secret away"
    )]
    OtherSeed {
        /// The batch.
        batch: usize,
    },
    /// An upload after its convolution was done with.
    #[error("the uploads of convolution {convolution} were used and dropped: no others are taken")]
    Forgotten {
        /// The convolution's number.
        convolution: usize,
    },
    /// Numbers that are too long for a proof to say under which secret they are encrypted.
    #[error(
        "numbers of {bits} bits are too long for uploads to be proven in {lattice}, in batches of {columns}: take fewer \
         bits, or linear_8192_4_verified"
    )]
    ProofBits {
        /// Bits of numbers.
        bits: u32,
        /// The set.
        lattice: String,
        /// Encryptions of the largest batch.
        columns: usize,
    },
    /// A part of a proof before what it needs.
    #[error("the proof of batch {batch} was not begun: {missing} comes first")]
    ProofOrder {
        /// The batch.
        batch: usize,
        /// What is missing.
        missing: &'static str,
    },
    /// A unit before all its chunks.
    #[error("convolution {convolution} is not there as a whole: send all its chunks first")]
    Incomplete {
        /// The convolution's number.
        convolution: usize,
    },
}

impl Error {
    /// Whether an honest party had no luck: a new precompute has other masks.
    pub fn is_unlucky(&self) -> bool {
        matches!(self, Self::Encryption(hushtable_rlwe::Error::NoMask))
    }

    /// Whether uploads were not proven to be encryptions.
    pub fn is_unproven(&self) -> bool {
        matches!(
            self,
            Self::Unproven { .. } | Self::Encryption(hushtable_rlwe::Error::Unproven { .. })
        )
    }
}
