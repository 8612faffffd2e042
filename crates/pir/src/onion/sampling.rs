//! Noise, sampled over real lookups, to be held against its prediction.

use std::sync::Arc;

use hushtable_rlwe::Ciphertext;
use hushtable_rlwe::bfv::noise::{Measured, measure};
use hushtable_rlwe::bfv::scheme::Encrypted;
use hushtable_rlwe::bfv::{Evaluator, response};
use hushtable_rlwe::ring::NoiseSource;
use hushtable_table::Version;

use super::engine::{Engine, Expanded, OnionSpec, Stages};
use super::tree::{self, Alone};
use super::{Asked, Client, Error, EvaluationKeys, Geometry, Mask, OnionBackend, Query};
use crate::kernel::rowsel::{LANES, Packing};

/// Variances (mean squares over a ciphertext's coefficients, modulo q), one a sample.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Samples {
    /// Of expanded leaves.
    pub leaves: Vec<f64>,
    /// Of what RowSel makes, before any game: the wanted column's.
    pub row_selects: Vec<f64>,
    /// Of answers, after the last game.
    pub answers: Vec<f64>,
    /// Of responses, scaled up to q: with the noise of their compression, and with what rounding
    /// their bodies adds.
    pub responses: Vec<f64>,
    /// The largest absolute value of each answer's noise.
    pub largest: Vec<f64>,
}

/// Looks `ids` up, each by a client with a secret of its own, in the table of these bytes whose
/// version is said to be `version`, and measures the noise of what comes of it.
///
/// # Errors
/// What making the table fails with, and [`Error::IdRange`].
///
/// # Panics
/// Where `table` has not the size that the geometry says.
pub fn sample_noise(
    geometry: &Geometry,
    table: &[u8],
    version: Version,
    ids: &[u64],
    seed: u64,
) -> Result<Samples, Error> {
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let mut source = NoiseSource::from_seed(&seeds);
    let shape = geometry.shape();
    assert_eq!(table.len() as u64, shape.table_bytes(), "the table's size");
    if let Some(&id) = ids.iter().find(|&&id| id >= shape.rows()) {
        return Err(Error::IdRange { id, rows: shape.rows() });
    }
    let copy = |first: u64, out: &mut [u8]| {
        let first = first as usize * shape.row_bytes();
        out.copy_from_slice(&table[first..first + out.len()]);
        Ok(())
    };
    let engine = Engine::from_rows(geometry.clone(), version, &OnionSpec::new(), &copy)?;
    let mut samples = Samples::default();
    for &id in ids {
        let client = Client::draw(geometry.clone(), version, &mut source);
        let keys = Arc::new(EvaluationKeys::parse(geometry, client.keys())?);
        let query = Query::make(geometry, client.secret(), geometry.place(id), &mut source);
        let asked = [Asked::new(Arc::clone(&keys), Query::parse(geometry, &query)?)];
        sample(&engine, &client, &asked, id, table, &mut samples);
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
    let plaintext = plaintext(engine, place.item, table);
    let message = |index: usize| delta * i128::from(plaintext[index]);
    let column = engine.column_sum(&expanded, place.column);
    samples.row_selects.push(noise(&column, &message).variance);
    let won = engine.install(|| engine.play(&expanded, &mut Stages::default()));
    let mut evaluator = Evaluator::new(params);
    let mut scheme = Encrypted { evaluator: &mut evaluator, levels: &[], keys: &[] };
    let bits = expanded[0].selectors();
    for subtrees in won.into_iter().flatten() {
        let winners = tree::join(&mut scheme, bits, subtrees, bits.len() as u32, Alone::Advances);
        for winner in winners {
            let Measured { variance, largest } = noise(&winner.ciphertext, &message);
            samples.answers.push(variance);
            samples.largest.push(largest);
            let mut response = Vec::new();
            response::compress(params, &winner.ciphertext, &mut response);
            samples.responses.push(of_response(client, &response, &plaintext));
        }
    }
}

/// An item's stored plaintext, centred.
fn plaintext(engine: &Engine, item: u64, table: &[u8]) -> Vec<i64> {
    let geometry = engine.geometry();
    assert_eq!(geometry.chunks(), 1, "rows that share plaintexts are sampled");
    let item_bytes = geometry.rows_per_item() * geometry.shape().row_bytes();
    let rows = table.chunks(item_bytes).nth(item as usize).unwrap_or_default();
    let mut bytes = vec![0; geometry.plaintext_bytes()];
    bytes[..rows.len()].copy_from_slice(rows);
    let mask = Mask::new(engine.version(), geometry.set());
    mask.apply(geometry.plaintext_number(item, 0), &mut bytes);
    let bits = geometry.params().plain_bits();
    let number = |bytes: &[u8]| {
        let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | i64::from(byte));
        number - ((number >> (bits - 1)) << bits)
    };
    bytes.chunks_exact(bits as usize / 8).map(number).collect()
}

/// The variance of a response's noise, scaled up to q.
fn of_response(client: &Client, response: &[u8], plaintext: &[i64]) -> f64 {
    let params = client.geometry().params();
    let phase = response::phase(params, client.secret(), response).expect("a whole response");
    let bits = params.spec().response_mask_bits;
    let squares = phase.iter().zip(plaintext).map(|(&phase, &number)| {
        let noise = phase.wrapping_sub((number << (bits - params.plain_bits())) as u64);
        let noise = (noise << (64 - bits)) as i64 >> (64 - bits);
        (noise as f64).powi(2)
    });
    let scale = params.answer_ring().modulus_log2() - f64::from(bits);
    squares.sum::<f64>() / plaintext.len() as f64 * (2.0 * scale).exp2()
}

/// One row's leaf, out of the order in which RowSel reads them.
fn leaf(geometry: &Geometry, expanded: &Expanded, row: usize) -> Ciphertext {
    let ring = geometry.params().answer_ring();
    let mut out = Ciphertext::zero(ring);
    let packing = Packing::of(ring.modulus(0));
    let words = packing.query_words();
    let masks = out.mask.values_mut().chunks_exact_mut(LANES);
    let bodies = out.body.values_mut().chunks_exact_mut(LANES);
    for (vector, (mask, body)) in masks.zip(bodies).enumerate() {
        let at = (vector * geometry.rows() + row) * words;
        let [from_mask, from_body] = packing.unpack_query(&expanded.rows()[at..at + words]);
        mask.copy_from_slice(&from_mask);
        body.copy_from_slice(&from_body);
    }
    out
}
