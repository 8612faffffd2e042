//! Noise, sampled over real lookups, to be held against its prediction.

use std::sync::Arc;

use hushtable_rlwe::noise::{Measured, measure};
use hushtable_rlwe::ring::NoiseSource;
use hushtable_rlwe::scheme::Encrypted;
use hushtable_rlwe::{Ciphertext, Evaluator};
use hushtable_table::Version;

use super::engine::{Engine, Expanded, OnionSpec, Stages};
use super::tree::{self, Alone};
use super::{Asked, Client, Error, EvaluationKeys, Geometry, OnionBackend, Query};
use crate::kernel::rowsel::LANES;

/// Variances (mean squares over a ciphertext's coefficients, modulo q), one a sample.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Samples {
    /// Of expanded leaves.
    pub leaves: Vec<f64>,
    /// Of answers before the tournament's last join, where no game was played yet; one column each.
    pub row_selects: Vec<f64>,
    /// Of answers.
    pub answers: Vec<f64>,
    /// The largest absolute value of each answer's noise.
    pub largest: Vec<f64>,
}

/// Looks `count` random rows of a random table up, and measures the noise of what comes of it.
///
/// # Errors
/// What making a client or the table fails with.
pub fn sample_noise(geometry: &Geometry, count: usize, seed: u64) -> Result<Samples, Error> {
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let mut source = NoiseSource::from_seed(&seeds);
    let shape = geometry.shape();
    let mut table = Vec::with_capacity(shape.table_bytes() as usize + 32);
    while table.len() < shape.table_bytes() as usize {
        table.extend(source.seed());
    }
    let version = Version::from([0; 32]);
    let copy = |first: u64, out: &mut [u8]| {
        let first = first as usize * shape.row_bytes();
        out.copy_from_slice(&table[first..first + out.len()]);
        Ok(())
    };
    let spec = OnionSpec::new();
    let engine = Engine::from_rows(geometry.clone(), version, &spec, &copy)?;
    let client = Client::draw(geometry.clone(), version, &mut source);
    let keys = Arc::new(EvaluationKeys::parse(geometry, client.keys())?);
    let mut samples = Samples::default();
    for _ in 0..count {
        let draw = source.seed();
        let id = u64::from_le_bytes(draw[..8].try_into().expect("eight bytes")) % shape.rows();
        let query = Query::make(geometry, client.secret(), geometry.place(id), &mut source);
        let asked = [Asked::new(Arc::clone(&keys), Query::parse(geometry, &query)?)];
        sample(&engine, &client, &asked, id, &table, &mut samples);
    }
    Ok(samples)
}

fn sample(
    engine: &Engine,
    client: &Client,
    asked: &[Asked],
    id: u64,
    table: &[u8],
    samples: &mut Samples,
) {
    let geometry = engine.geometry();
    let (params, place) = (geometry.params(), geometry.place(id));
    let ring = params.answer_ring();
    let delta = ring.crt().compose_signed(|limb| params.delta()[limb]);
    let noise = |ciphertext: &Ciphertext, message: &dyn Fn(usize) -> i128| {
        measure(params, client.secret(), ciphertext, message)
    };
    let expanded = engine.install(|| engine.expand(asked));
    for row in [place.row, (place.row + 1) % geometry.rows()] {
        let one = i128::from(row == place.row) * delta;
        let leaf = leaf(geometry, &expanded[0], row);
        let Measured { variance, .. } = noise(&leaf, &|index| if index == 0 { one } else { 0 });
        samples.leaves.push(variance);
    }
    let message = |column: u64| {
        let item = column * geometry.rows() as u64 + place.row as u64;
        let bytes = (params.plain_bits() / 8) as usize;
        let first = item as usize * geometry.rows_per_item() * geometry.shape().row_bytes();
        move |index: usize| {
            let at = (first + index * bytes).min(table.len());
            let end = (at + bytes).min(table.len()).min(first + geometry.plaintext_bytes());
            let mut word = [0; 16];
            word[..end.saturating_sub(at)].copy_from_slice(&table[at..end.max(at)]);
            let number = i128::from_le_bytes(word);
            delta * (number - ((number >> (params.plain_bits() - 1)) << params.plain_bits()))
        }
    };
    let columns = engine.column_sums(&expanded);
    for (column, ciphertext) in columns.iter().enumerate().take(3) {
        let Measured { variance, .. } = noise(ciphertext, &message(column as u64));
        samples.row_selects.push(variance);
    }
    let won = engine.install(|| engine.play(&expanded, &mut Stages::default()));
    let mut evaluator = Evaluator::new(params);
    let mut scheme = Encrypted { evaluator: &mut evaluator, levels: &[], keys: &[] };
    let bits = expanded[0].selectors();
    for subtrees in won.into_iter().flatten() {
        let winners = tree::join(&mut scheme, bits, subtrees, bits.len() as u32, Alone::Advances);
        for winner in winners {
            let Measured { variance, largest } = noise(&winner.ciphertext, &message(place.column));
            samples.answers.push(variance);
            samples.largest.push(largest);
        }
    }
}

/// One row's leaf, out of the order in which RowSel reads them.
fn leaf(geometry: &Geometry, expanded: &Expanded, row: usize) -> Ciphertext {
    let ring = geometry.params().answer_ring();
    let mut out = Ciphertext::zero(ring);
    for (side, poly) in [&mut out.mask, &mut out.body].into_iter().enumerate() {
        for (vector, to) in poly.values_mut().chunks_exact_mut(LANES).enumerate() {
            let at = ((vector * geometry.rows() + row) * 2 + side) * LANES;
            to.copy_from_slice(&expanded.rows()[at..at + LANES]);
        }
    }
    out
}
