//! The server's half.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hushtable_rlwe::linear::{Plaintexts, PublicKey, Sum, Upload, add_products};
use hushtable_rlwe::ring::Secret;

use super::error::Error;
use super::layers::Layers;
use super::proofs::Check;
use super::source;

/// Weights whose noise was checked, for any number of precomputes.
pub struct Prepared {
    /// Of each convolution.
    weights: Vec<Vec<i32>>,
}

impl Prepared {
    /// Checks the weights of all convolutions: each outputs × channels × rows × columns.
    ///
    /// # Errors
    /// [`Error::Index`] for another number of convolutions, [`Error::Count`]; [`Error::Noise`] for weights
    /// whose noise would not be hidden.
    pub fn new(layers: Arc<Layers>, weights: &[Vec<i32>]) -> Result<Self, Error> {
        let count = layers.convolutions();
        if weights.len() != count {
            return Err(Error::Index { what: "weights", index: weights.len(), count });
        }
        for (index, own) in weights.iter().enumerate() {
            layers.check(index, own)?;
        }
        Ok(Self { weights: weights.to_vec() })
    }
}

/// Computes on encrypted masks.
///
/// Everything follows from the seed and from what was accepted: a unit that is answered again has the same
/// bytes.
pub struct LinearServer {
    pub(super) layers: Arc<Layers>,
    prepared: Arc<Prepared>,
    pub(super) seed: Secret<[u8; 32]>,
    pub(super) key: PublicKey,
    /// Of each convolution.
    uploads: Vec<RwLock<Vec<Option<Arc<Upload>>>>>,
    /// Of each batch.
    pub(super) checks: Vec<Check>,
    /// Whether a row of a proof did not hold.
    pub(super) is_false: AtomicBool,
    /// Of each convolution, whether its uploads were forgotten: others would not be proven.
    forgotten: Vec<AtomicBool>,
}

impl LinearServer {
    /// A server of one precompute, of a seed that is used for no other.
    ///
    /// # Errors
    /// [`Error::Encryption`] for bytes that are no public key.
    pub fn new(
        layers: Arc<Layers>,
        prepared: Arc<Prepared>,
        seed: &[u8; 32],
        public_key: &[u8],
    ) -> Result<Self, Error> {
        let key = PublicKey::read(layers.parameters(), public_key)?;
        let uploads = (0..layers.convolutions())
            .map(|index| Ok(RwLock::new(vec![None; layers.layout(index)?.uploads()])))
            .collect::<Result<_, Error>>()?;
        let checks = layers.batches().iter().map(|_| Check::default()).collect();
        let forgotten = (0..layers.convolutions()).map(|_| AtomicBool::new(false)).collect();
        let (seed, is_false) = (Secret::new(*seed), AtomicBool::new(false));
        Ok(Self { layers, prepared, seed, key, uploads, checks, is_false, forgotten })
    }

    /// Takes a chunk; the same again changes nothing.
    ///
    /// # Errors
    /// [`Error::Index`]; [`Error::Bytes`], [`Error::Encryption`] for bytes that are none;
    /// [`Error::Changed`]; [`Error::Forgotten`] after [`forget`](Self::forget).
    pub fn accept(&self, convolution: usize, chunk: usize, bytes: &[u8]) -> Result<(), Error> {
        let layout = self.layers.layout(convolution)?;
        let (index, count) = (chunk, layout.chunks());
        if index >= count {
            return Err(Error::Index { what: "chunk", index, count });
        }
        let (expected, found) = (self.layers.upload_bytes(convolution, chunk), bytes.len());
        if expected != found {
            return Err(Error::Bytes { what: "a chunk of encryptions", expected, found });
        }
        if self.forgotten[convolution].load(Ordering::Relaxed) {
            return Err(Error::Forgotten { convolution });
        }
        let parameters = self.layers.parameters();
        let parts = bytes.chunks_exact(parameters.upload_bytes());
        for (upload, bytes) in layout.chunk(chunk).zip(parts) {
            let index = self.layers.index(convolution, upload);
            let own = self.key.upload(parameters, index, bytes)?;
            let mut held =
                self.uploads[convolution].write().unwrap_or_else(PoisonError::into_inner);
            match &held[upload] {
                None => held[upload] = Some(Arc::new(own)),
                Some(held) if held.is_same(&own) => {}
                Some(_) => return Err(Error::Changed { convolution, chunk }),
            }
        }
        Ok(())
    }

    /// A unit of W · r − s; `share` is the whole output s, below 2^bits, always the same for one
    /// convolution.
    ///
    /// # Errors
    /// [`Error::Index`], [`Error::Count`]; [`Error::Incomplete`] before all chunks were accepted,
    /// [`Error::Unproven`] before they were proven to be encryptions, where they have to be.
    pub fn answer(&self, convolution: usize, unit: usize, share: &[u64]) -> Result<Vec<u8>, Error> {
        let layout = self.layers.layout(convolution)?;
        let (index, count) = (unit, layout.units());
        if index >= count {
            return Err(Error::Index { what: "unit", index, count });
        }
        let (expected, found) = (layout.convolution().output().count(), share.len());
        if expected != found {
            return Err(Error::Count { what: "the output's share", convolution, expected, found });
        }
        let (tiles, groups) = layout.unit(unit);
        if let Some(batch) = self.layers.batch_of(convolution) {
            self.proven(batch)?;
        }
        let held = self.held(convolution)?;
        let uploads: Vec<&Upload> = held.iter().map(Arc::as_ref).collect();
        let parameters = self.layers.parameters();
        let uploads: Vec<_> = uploads[tiles.start * layout.channel_groups()..]
            .chunks(layout.channel_groups())
            .take(tiles.len())
            .map(<[&Upload]>::to_vec)
            .collect();
        let zeros = || groups.clone().map(|_| Sum::zero(parameters)).collect();
        let mut sums: Vec<Vec<Sum>> = tiles.clone().map(|_| zeros()).collect();
        let weights = &self.prepared.weights[convolution];
        let inputs = layout.channel_groups();
        let mut plaintexts = Plaintexts::new(parameters, inputs, groups.len());
        let batch = plaintexts.outputs();
        for start in groups.clone().step_by(batch) {
            let end = (start + batch).min(groups.end);
            plaintexts.clear();
            for (group, input) in (start..end).flat_map(|g| (0..inputs).map(move |i| (g, i))) {
                plaintexts.push(parameters, |each| {
                    layout.taps(group, input, |at, weight| each(at, weights[weight]));
                });
            }
            let range = start - groups.start..end - groups.start;
            let mut part: Vec<_> = sums.iter_mut().map(|sums| &mut sums[range.clone()]).collect();
            add_products(parameters, &plaintexts, &uploads, &mut part);
        }
        let mut bytes = Vec::with_capacity(self.layers.unit_bytes(convolution, unit));
        for (tile, sums) in tiles.zip(sums) {
            for (group, sum) in groups.clone().zip(sums) {
                let (coefficients, indices) = layout.outputs(tile, group);
                let shares: Vec<_> = indices.iter().map(|&index| share[index]).collect();
                let mut own = source(&self.seed, "answer", [convolution, tile, group]);
                sum.seal(parameters, &self.key, &coefficients, &shares, &mut own, &mut bytes);
            }
        }
        Ok(bytes)
    }

    /// The uploads of a convolution.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub(super) fn held(&self, convolution: usize) -> Result<Vec<Arc<Upload>>, Error> {
        let all = self.uploads[convolution].read().unwrap_or_else(PoisonError::into_inner);
        all.iter().cloned().collect::<Option<_>>().ok_or(Error::Incomplete { convolution })
    }

    /// Forgets the uploads of a convolution whose units have all been taken; units of it can no longer be
    /// answered.
    pub fn forget(&self, convolution: usize) {
        if let Some(uploads) = self.uploads.get(convolution) {
            self.forgotten[convolution].store(true, Ordering::Relaxed);
            uploads.write().unwrap_or_else(PoisonError::into_inner).fill(None);
        }
    }
}
