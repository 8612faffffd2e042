//! A compressed embedding looked up under encryption: as CodedHELUT does, and as one linear map.

use hushtable_infer::coded::{Asked, Indicator, compare};
use hushtable_prg::Platform;
use hushtable_rlwe::ckks;
use pyo3::prelude::*;

use crate::errors::Failure;

/// Both lookups of one embedding of `dim` numbers that has `left` levels at the end, timed `runs` times on
/// one thread: JSON.
#[pyfunction]
#[pyo3(signature = (dim, *, base, digits, left, bootstraps, runs))]
pub(crate) fn coded_lookup(
    py: Python<'_>,
    dim: usize,
    base: usize,
    digits: usize,
    left: usize,
    bootstraps: bool,
    runs: usize,
) -> PyResult<String> {
    let Some(indicator) = Indicator::of_base(base) else {
        let text = format!("base is {base}, but must be 4, 8, 16, 32 or 64");
        return Err(Failure::config(text).into());
    };
    if !(1..=DIM_MAX).contains(&dim) || !(1..=DIGITS_MAX).contains(&digits) || runs == 0 {
        let text = format!(
            "dim {dim}, digits {digits}, runs {runs}: 1 to {DIM_MAX}, 1 to {DIGITS_MAX} and at least \
             1 are possible"
        );
        return Err(Failure::config(text).into());
    }
    let asked = Asked { dim, indicator, digits, left, is_bootstrapped: bootstraps, runs };
    let compared = py.detach(|| compare(&asked, Platform::detect()));
    let compared = compared.map_err(|error| match error {
        error @ ckks::Error::Parameters { .. } => Failure::config(error),
        error => Failure::new("Error", error),
    })?;
    let both = [&compared.coded, &compared.bootstrapped].into_iter().flatten();
    let of_both = both.flat_map(|beside| [&beside.coded, &beside.linear]);
    for found in of_both.chain([&compared.linear]) {
        if found.error.is_nan() || found.error > ERROR_MAX {
            let text = format!("a lookup is off by {}: nothing was measured", found.error);
            return Err(Failure::new("Error", text).into());
        }
    }
    Ok(serde_json::to_string(&compared).expect("numbers"))
}

/// CodedHELUT's indicator is within 2 % of 0 and 1 before it is cleaned.
const ERROR_MAX: f64 = 0.02;
/// An embedding's numbers fit the slots of the smallest ring.
const DIM_MAX: usize = 4096;
const DIGITS_MAX: usize = 16;
