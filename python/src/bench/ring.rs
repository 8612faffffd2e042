//! How fast one thread does each operation that a retrieval from one server is made of.

use std::hint::black_box;

use hushtable_ring::{Automorphism, Buffer, Evaluations, Poly};
use hushtable_rlwe::Ciphertext;
use hushtable_rlwe::bfv::response;
use pyo3::prelude::*;

use crate::bench::repeat;
use crate::errors::Failure;
use crate::machine::Random;
use crate::prepare::parameter_set;

/// Seconds that each of several operations took under a parameter set, on one thread.
///
/// Operands are polynomials modulo one prime, taken in turn from `bytes` of them: where those fit
/// into a cache, the time is that of operands in this cache. Operations: `forward`, `inverse`, `add`,
/// `permute`, `split`, `copy`; `gather`, a copy of pieces that lie far apart; `sum_key` and `sum_selector`, the sum of as many products as a key
/// switch or one half of an external product has digits, twice that for the selector's two halves;
/// `rescale`, the arithmetic of dropping a prime, without its transforms; `decompose_key` and
/// `decompose_selector`, the cutting of a polynomial over all primes into digits; `uniform`, drawing
/// from a seed; `compress`, a whole ciphertext into a response, its transforms too.
#[pyfunction]
#[pyo3(signature = (operation, *, parameters, bytes, seconds))]
pub(crate) fn unit_seconds(
    py: Python<'_>,
    operation: &str,
    parameters: &str,
    bytes: usize,
    seconds: f64,
) -> PyResult<Vec<f64>> {
    if bytes > BYTES_MAX {
        let text = format!("bytes is {bytes}, but must be at most {BYTES_MAX}");
        return Err(Failure::config(text).into());
    }
    let params = parameter_set(parameters)?.parameters();
    let (ring, degree) = (params.ring(), params.degree());
    let (kernel, table, modulus) = (ring.kernel(), ring.table(0), ring.modulus(0));
    // Any other prime of the same length.
    let dropped = ring.modulus(ring.limbs() - 1);
    let (gadget, digits_ring) = match operation {
        "decompose_selector" | "sum_selector" => (params.selector(), params.answer_ring()),
        _ => (params.key_switch(), ring),
    };
    let terms = match operation {
        "sum_selector" => 2 * gadget.digits(),
        _ => gadget.digits(),
    };
    let map = Automorphism::new(degree / 8 + 1, degree);
    let seed = [7; 32];
    // What one operation reads, and what it writes: numbers of polynomials.
    let (taken, written) = match operation {
        "forward" | "inverse" => (0, 1),
        "add" | "permute" | "copy" | "rescale" => (1, 1),
        "gather" => (1, 0),
        "split" => (1, 2),
        "sum_key" | "sum_selector" => (2 * terms, 1),
        "decompose_key" | "decompose_selector" => {
            (digits_ring.limbs(), digits_ring.limbs() * terms)
        }
        "uniform" | "compress" => (0, 1),
        _ => {
            let text = format!("operation is {operation:?}, which is none of the known");
            return Err(Failure::config(text).into());
        }
    };
    let places = (bytes / (8 * degree) / (taken + written)).max(1);
    let mut pool = Buffer::zeroed(places * (taken + written) * degree);
    // Residues of every prime: below the least of the primes' length.
    let least = ring.moduli().map(|modulus| modulus.value()).min().unwrap_or(1);
    let mut random = Random(1);
    pool.iter_mut().for_each(|value| *value = random.next() % least);
    let mut drawn = ring.zero();
    let mut ciphertext = Ciphertext::zero(params.answer_ring());
    for poly in [&mut ciphertext.mask, &mut ciphertext.body] {
        poly.values_mut().iter_mut().for_each(|value| *value = random.next() % least);
    }
    let mut response = Vec::new();
    if operation == "gather" {
        // Each polynomial is put together of pieces that lie as far apart as they can.
        let (from, _) = pool.split_at(places * degree);
        let mut out = ring.zero();
        let times = repeat(py, seconds, || {
            for place in 0..places {
                let out: &mut Poly<Evaluations> = black_box(&mut out);
                for (index, to) in out.limb_mut(0).chunks_exact_mut(PIECE).enumerate() {
                    let at = (index * places + place) * PIECE;
                    to.copy_from_slice(&from[at..at + PIECE]);
                }
            }
            Ok(())
        })?;
        return Ok(times.into_iter().map(|time| time / places as f64).collect());
    }
    let times = repeat(py, seconds, || {
        for place in pool.chunks_exact_mut((taken + written) * degree) {
            let (from, to) = black_box(place).split_at_mut(taken * degree);
            match operation {
                "forward" => kernel.forward(table, to),
                "inverse" => kernel.inverse(table, to),
                "add" => kernel.add_assign(modulus, to, from),
                "permute" => kernel.permute(from, map.indices(), to),
                "copy" => to.copy_from_slice(from),
                "rescale" => {
                    kernel.recentre(dropped, modulus, from, to);
                    kernel.sub_assign(modulus, to, from);
                    kernel.scale_assign(modulus, to, modulus.value() / 3);
                }
                "split" => {
                    let (x, y) = to.split_at_mut(degree);
                    kernel.split(modulus, x, y, from);
                }
                "sum_key" | "sum_selector" => {
                    let polys: Vec<&[u64]> = from.chunks_exact(degree).collect();
                    let (xs, ys) = polys.split_at(terms);
                    kernel.inner_product(modulus, xs, ys, to);
                }
                "uniform" => ring.uniform_into(&seed, 0, &mut drawn),
                "compress" => {
                    response.clear();
                    response::compress(&params, black_box(&ciphertext), &mut response);
                }
                _ => kernel.decompose(gadget, digits_ring.crt(), from, to),
            }
        }
        Ok(())
    })?;
    Ok(times.into_iter().map(|time| time / places as f64).collect())
}

/// Numbers that lie side by side where a polynomial is spread over memory: a chunk of RowSel's.
const PIECE: usize = 64;
/// Most bytes of operands.
const BYTES_MAX: usize = 1 << 30;
