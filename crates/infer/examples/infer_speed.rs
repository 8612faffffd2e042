//! Times encrypted recommendation: `infer_speed uci|criteo|criteo-large [RUNS [THRESHOLD [MAP_BYTES]]]`,
//! `infer_speed lookup [RUNS]`; `infer_speed calibrate MACHINE` prints a table of costs.

use std::error::Error;

use hushtable_infer::dlrm::bench::{Shape, measure, measure_lookup, synthetic_weights};
use hushtable_infer::dlrm::cost::{CostTable, calibrate};
use hushtable_infer::dlrm::planner::{Prediction, describe};
use hushtable_infer::dlrm::{Goal, MAP_BYTES_MAX, plan};
use hushtable_rlwe::ring::Platform;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str).unwrap_or_default();
    if argument(0) == "calibrate" {
        let table = calibrate(argument(1), Platform::detect())?;
        println!("{}", serde_json::to_string_pretty(&table)?);
        return Ok(());
    }
    if argument(0) == "lookup" {
        let measured = measure_lookup(argument(1).parse().unwrap_or(3))?;
        println!("{}", serde_json::to_string_pretty(&measured)?);
        return Ok(());
    }
    let shape = match argument(0) {
        "uci" => Shape::Uci,
        "criteo-large" => Shape::Criteo { threshold: 5_000_000 },
        "criteo" => Shape::Criteo { threshold: argument(2).parse().unwrap_or(500) },
        other => return Err(format!("{other:?} is none of uci, criteo, criteo-large").into()),
    };
    let (dlrm, costs) = (shape.dlrm()?, CostTable::shipped()?);
    let weights = synthetic_weights(&dlrm, 1)?;
    let plan = plan(&dlrm, &weights, Goal::default(), &costs)?;
    print!("{}", describe(&plan, &Prediction::of(&plan, &costs, Platform::detect())?));
    let runs = argument(1).parse().unwrap_or(3);
    let map_bytes_max = argument(3).parse().unwrap_or(MAP_BYTES_MAX);
    let measured = measure(&dlrm, &weights, &plan, &costs, runs, map_bytes_max)?;
    println!("{}", serde_json::to_string_pretty(&measured)?);
    Ok(())
}
