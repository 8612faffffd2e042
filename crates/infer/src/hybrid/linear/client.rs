//! The client's half.

use std::sync::Arc;

use hushtable_rlwe::linear::{Client, Errors};
use hushtable_rlwe::ring::Secret;
use zeroize::Zeroizing;

use super::error::Error;
use super::layers::Layers;
use super::proofs::Proofs;
use super::source;

/// Encrypts masks and opens products.
///
/// Everything follows from the seed: a chunk that is made again of the same tensor has the same bytes.
pub struct LinearClient {
    pub(super) layers: Arc<Layers>,
    pub(super) seed: Secret<[u8; 32]>,
    pub(super) client: Client,
    pub(super) proofs: Proofs,
}

impl LinearClient {
    /// A client of one precompute, of a seed that is used for no other.
    ///
    /// # Errors
    /// None at present.
    pub fn new(layers: Arc<Layers>, seed: &[u8; 32]) -> Result<Self, Error> {
        let seed = Secret::new(*seed);
        let mut own = source(&seed, "secret", [0; 3]);
        let client = Client::draw(layers.parameters().clone(), &mut own);
        Ok(Self { layers, seed, client, proofs: Proofs::default() })
    }

    /// What the server re-randomises with: [`Layers::public_key_bytes`].
    pub fn public_key(&self) -> Vec<u8> {
        self.public_key_and_errors().0
    }

    pub(super) fn public_key_and_errors(&self) -> (Vec<u8>, Errors) {
        self.client.public_key_and_errors(&mut source(&self.seed, "public key", [0; 3]))
    }

    /// A chunk of the encrypted input of a convolution. `tensor` is the whole input, below 2^bits: always the
    /// same for one convolution, for two under one seed would tell the server their difference.
    ///
    /// # Errors
    /// [`Error::Index`]; [`Error::Count`] for another number of values than the input's shape has.
    pub fn upload(
        &self,
        convolution: usize,
        chunk: usize,
        tensor: &[u64],
    ) -> Result<Vec<u8>, Error> {
        let layout = self.layers.layout(convolution)?;
        let (index, count) = (chunk, layout.chunks());
        if index >= count {
            return Err(Error::Index { what: "chunk", index, count });
        }
        let (expected, found) = (layout.convolution().input.count(), tensor.len());
        if expected != found {
            return Err(Error::Count { what: "the input", convolution, expected, found });
        }
        let mut bytes = Vec::with_capacity(self.layers.upload_bytes(convolution, chunk));
        let mut values = Zeroizing::new(vec![0; self.layers.parameters().degree()]);
        for upload in layout.chunk(chunk) {
            values.fill(0);
            layout.pack(upload, tensor, &mut values);
            let index = self.layers.index(convolution, upload);
            let mut own = source(&self.seed, "upload", [index as usize, 0, 0]);
            let errors = self.client.encrypt(index, &values, &mut own, &mut bytes);
            if self.layers.parameters().is_verified() {
                self.proofs.keep(index, errors);
            }
        }
        Ok(bytes)
    }

    /// Opens a unit into its part of `out`, the whole output W · r − s, numbers below 2^bits.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Count`]; [`Error::Bytes`] for another length than
    /// [`Layers::unit_bytes`].
    pub fn open(
        &self,
        convolution: usize,
        unit: usize,
        reply: &[u8],
        out: &mut [u64],
    ) -> Result<(), Error> {
        let layout = self.layers.layout(convolution)?;
        let (index, count) = (unit, layout.units());
        if index >= count {
            return Err(Error::Index { what: "unit", index, count });
        }
        let (expected, found) = (layout.convolution().output().count(), out.len());
        if expected != found {
            return Err(Error::Count { what: "the output", convolution, expected, found });
        }
        let (expected, found) = (self.layers.unit_bytes(convolution, unit), reply.len());
        if expected != found {
            return Err(Error::Bytes { what: "a unit of products", expected, found });
        }
        let mut rest = reply;
        for (tile, group, bytes) in self.layers.answers(convolution, unit) {
            let (own, others) = rest.split_at(bytes);
            rest = others;
            let (coefficients, indices) = layout.outputs(tile, group);
            let mut values = Zeroizing::new(vec![0; coefficients.len()]);
            self.client.open(own, &coefficients, &mut values)?;
            for (&index, &value) in indices.iter().zip(values.iter()) {
                out[index] = value;
            }
        }
        Ok(())
    }
}
