//! Seconds of hybrid inference, both parties in one process and on one thread:
//! `cargo run --release -p hushtable-infer --example hybrid_speed -- resnet32 32 server [verified]`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::architectures::Architecture;
use hushtable_infer::hybrid::network::{CompileSpec, compile, reference};
use hushtable_infer::hybrid::{HybridModel, Party, Precompute};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or("resnet32".into());
    let size = arguments.next().map_or(Ok(32), |size| size.parse())?;
    let garbler = match arguments.next().as_deref() {
        Some("client") => Party::Client,
        _ => Party::Server,
    };
    let verify_uploads = arguments.next().as_deref() == Some("verified");
    let began = Instant::now();
    let network = name.parse::<Architecture>()?.build(size, 1)?;
    let compiled = compile(&network, &CompileSpec { verify_uploads, ..CompileSpec::default() })?;
    println!("{name} {size}: compiled in {:.2?}", began.elapsed());
    let program = &compiled.program;
    println!(
        "k {} f {} {} activations {}",
        program.bits,
        program.fraction,
        program.lattice,
        program.activations()
    );
    let began = Instant::now();
    let model = HybridModel::new(program.clone(), compiled.weights.clone(), Platform::detect())?;
    let model = Arc::new(model);
    println!("prepared in {:.2?}", began.elapsed());
    let x: Vec<u64> = (0..program.input.count() as u64).map(|index| index * 37 % 4096).collect();
    let began = Instant::now();
    let precompute = Precompute::make(&model, garbler)?;
    println!("offline {:.2?}, bytes {:?}", began.elapsed(), precompute.bytes);
    let dither = precompute.dither.clone();
    let began = Instant::now();
    let found = precompute.predict(&model, &x)?;
    println!("online {:.2?}, bytes {:?}", began.elapsed(), found.bytes);
    let began = Instant::now();
    let expected = reference(program, model.weights(), &x, Some(&dither));
    println!("equal {} (reference {:.2?})", found.output == expected, began.elapsed());
    Ok(())
}
