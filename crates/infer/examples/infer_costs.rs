//! Compares what plans are predicted to take with what they take: `infer_costs [TABLE.json] [RUNS [MODEL ...]]`.
//! MODEL is a name of `bench::PUBLISHED`; without one, all are measured but those whose maps are made at each use.
//! TABLE.json is a table that `infer_speed calibrate` wrote on this machine; without it, the shipped table counts.
//!
//! Each circuit runs on encrypted zeros, which take what any numbers take, on this thread and by its clock: once
//! with each operation timed, by layer and group, and as a whole with the queries' ciphertexts read.

use std::collections::BTreeMap;
use std::error::Error;

use hushtable_infer::dlrm::MAP_BYTES_MAX;
use hushtable_infer::dlrm::bench::{PUBLISHED, Published, synthetic_weights};
use hushtable_infer::dlrm::compile::Compiled;
use hushtable_infer::dlrm::cost::{CostTable, Counted, Group, operations, thread_ms};
use hushtable_infer::dlrm::planner::{Goal, plan_precisely};
use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{Ciphertext, Encoder, Encrypted, EvaluationKeys, encrypt};
use hushtable_rlwe::ring::{NoiseSource, Platform};

/// Predicted and measured milliseconds.
type Row = [f64; 2];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let costs = match arguments.first() {
        Some(path) if path.ends_with(".json") => {
            CostTable::parse(&std::fs::read_to_string(arguments.remove(0))?)?
        }
        _ => CostTable::shipped()?,
    };
    let runs: usize = arguments.first().map_or(Ok(3), |text| text.parse())?;
    let mut models = Vec::new();
    for name in arguments.iter().skip(1) {
        let names = PUBLISHED.map(|model| model.name).join(", ");
        models.push(Published::named(name).ok_or(format!("{name:?} is none of {names}"))?);
    }
    if models.is_empty() {
        models = PUBLISHED.into_iter().filter(|model| model.name != "criteo-large").collect();
    }
    println!("prices       {}", costs.machine);
    for model in models {
        compare(model, runs.max(1), &costs)?;
    }
    Ok(())
}

fn compare(model: Published, runs: usize, costs: &CostTable) -> Result<(), Box<dyn Error>> {
    let (dlrm, platform) = (model.dlrm()?, Platform::detect());
    let weights = synthetic_weights(&dlrm, model.range, 1)?;
    let plan = plan_precisely(&dlrm, &weights, Goal::default(), costs, platform)?;
    let parameters = plan.parameters.check(platform)?;
    let (degree, special) = (parameters.degree(), parameters.special_limbs());
    let mut rows: BTreeMap<(String, Group), Row> = BTreeMap::new();
    for own in operations(&plan) {
        let each = costs.cost_ms(own.kind, degree, own.level + 1, special);
        rows.entry((own.layer, Group::of(own.kind))).or_default()[0] += own.count as f64 * each;
    }

    let (encoder, mut source) = (Encoder::new(&parameters), NoiseSource::from_os()?);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let seed = source.seed();
    let keys =
        EvaluationKeys::generate(&parameters, &secret, &plan.key_spec(), &seed, &mut source)?;
    let mut queries = Vec::new();
    for input in &plan.inputs {
        let zeros = encoder.encode_real(&[0.0], input.level, parameters.scale())?;
        for _ in 0..input.ciphertexts {
            let (seed, index) = (source.seed(), queries.len() as u64);
            let x = encrypt(&parameters, &secret, &zeros, &seed, index, &mut source)?;
            queries.push(x.to_fresh_bytes(&parameters, &seed, index)?);
        }
    }
    let read = || -> Result<Vec<Ciphertext>, Box<dyn Error>> {
        Ok(queries
            .iter()
            .map(|own| Ciphertext::parse(&parameters, own))
            .collect::<Result<_, _>>()?)
    };
    let whole_ms = {
        let mut evaluator = Encrypted::new(&encoder, &keys);
        let compiled = Compiled::new(&plan, &weights, &evaluator, MAP_BYTES_MAX)?;
        let mut least = f64::INFINITY;
        for _ in 0..=runs {
            let start = thread_ms();
            compiled.run(&mut evaluator, read()?, &mut |_, _| Ok(()))?;
            least = least.min(thread_ms() - start);
        }
        least
    };
    let mut evaluator = Counted::timed(Encrypted::new(&encoder, &keys));
    let compiled = Compiled::new(&plan, &weights, &evaluator, MAP_BYTES_MAX)?;
    for run in 0..=runs {
        let start = thread_ms();
        let xs = read()?;
        let mut found = vec![(("query".to_owned(), Group::Reads), thread_ms() - start)];
        compiled.run(&mut evaluator, xs, &mut |_, _| Ok(()))?;
        let spent = evaluator.take_spent().into_iter();
        found.extend(spent.map(|own| ((own.layer, own.group), own.ms)));
        for (row, ms) in found {
            let measured = &mut rows.entry(row).or_default()[1];
            *measured = if run == 0 { ms } else { measured.min(ms) };
        }
    }

    let log2 = degree.ilog2();
    println!(
        "{:<24} N = 2^{log2}, {} levels, {special} primes of P, {} bootstraps",
        model.name,
        parameters.levels(),
        plan.bootstraps()
    );
    let mut groups: BTreeMap<Group, Row> = BTreeMap::new();
    for ((layer, group), row) in &rows {
        print_row(layer, &format!("{group:?}"), *row);
        let sums = groups.entry(*group).or_default();
        sums.iter_mut().zip(row).for_each(|(sum, own)| *sum += own);
    }
    for (group, row) in groups {
        print_row("all layers", &format!("{group:?}"), row);
    }
    print_row(model.name, "whole", [costs.server_ms(&plan), whole_ms]);
    Ok(())
}

fn print_row(layer: &str, group: &str, [predicted, measured]: Row) {
    let group = group.to_lowercase();
    let ratio = predicted / measured;
    println!("  {layer:<30} {group:<10} {predicted:>10.3} ms {measured:>10.3} ms {ratio:>7.3}");
}
