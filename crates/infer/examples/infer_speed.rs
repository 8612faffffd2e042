//! Times encrypted recommendation: `infer_speed MODEL [RUNS [THRESHOLD [MAP_BYTES [drawn]]]]` with a name of
//! `bench::PUBLISHED`, of which THRESHOLD counts for Criteo's, and keys without masks where they are `drawn`; `infer_speed lookup [RUNS]`; `infer_speed calibrate MACHINE` prints a table of costs.

use std::error::Error;

use hushtable_infer::dlrm::bench::{
    PUBLISHED, Published, Shape, measure, measure_lookup, synthetic_weights,
};
use hushtable_infer::dlrm::cost::{CostTable, calibrate};
use hushtable_infer::dlrm::planner::{Prediction, describe};
use hushtable_infer::dlrm::{Goal, MAP_BYTES_MAX, Masks, plan};
use hushtable_rlwe::ring::Platform;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str).unwrap_or_default();
    if argument(0) == "calibrate" {
        let mut seen = 0;
        let table = calibrate(argument(1), Platform::detect(), |entry| {
            seen += 1;
            // A run of minutes says where it is.
            eprintln!(
                "{seen}: N = {}, {} limbs, {} primes of P: {:.3} ms a rotation",
                entry.degree, entry.limbs, entry.special, entry.rotate_ms
            );
        })?;
        println!("{}", serde_json::to_string_pretty(&table)?);
        return Ok(());
    }
    if argument(0) == "lookup" {
        let measured = measure_lookup(argument(1).parse().unwrap_or(3))?;
        println!("{}", serde_json::to_string_pretty(&measured)?);
        return Ok(());
    }
    let mut model = Published::named(argument(0)).ok_or_else(|| {
        format!("{:?} is none of {}", argument(0), PUBLISHED.map(|model| model.name).join(", "))
    })?;
    if let (Shape::Criteo { .. }, Ok(threshold)) = (model.shape, argument(2).parse()) {
        model.shape = Shape::Criteo { threshold };
    }
    let (dlrm, costs) = (model.dlrm()?, CostTable::shipped()?);
    let weights = synthetic_weights(&dlrm, model.range, 1)?;
    let plan = plan(&dlrm, &weights, Goal::default(), &costs)?;
    print!("{}", describe(&plan, &Prediction::of(&plan, &costs, Platform::detect())?));
    let runs = argument(1).parse().unwrap_or(3);
    let map_bytes_max = argument(3).parse().unwrap_or(MAP_BYTES_MAX);
    let masks = if argument(4) == "drawn" { Masks::Drawn } else { Masks::Held };
    let measured = measure(&dlrm, &weights, &plan, &costs, runs, masks, map_bytes_max)?;
    println!("{}", serde_json::to_string_pretty(&measured)?);
    Ok(())
}
