//! What an inference on shares takes: `cargo run --release -p hushtable-infer --features bench
//! --example shares_speed -- [FRACTION_BITS]`.

use hushtable_infer::shares::price::{Model, measure, measure_dealing};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fraction_bits = std::env::args().nth(1).map_or(Ok(12), |bits| bits.parse())?;
    let model = Model::criteo(1000, fraction_bits, 1)?;
    let measured = measure(&model, 200)?;
    println!("{}", serde_json::to_string(&measured)?);
    for batch in [1, 4] {
        println!("{}", serde_json::to_string(&measure_dealing(&model, batch, 10)?)?);
    }
    for step in &model.network.outline().steps {
        println!("{}", serde_json::to_string(step)?);
    }
    Ok(())
}
