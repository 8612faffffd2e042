//! Counts what the GPU's kernels do, on the host shim: calls of the generator and bytes of device
//! memory, for every step of the paper's ablation (Lam et al., §III-C), for trees with a leaf for
//! each row and with our wider leaves, for `tensor`, and for whole inferences by a layout.
//!
//! Nothing is timed, and no GPU is needed: a count is the same on every machine. Every answer is
//! compared with the row that was asked for before its counts are kept.
//!
//! ```console
//! $ cargo run -p hushtable-gpu --features shim --example count -- --rows 16384,65536 --keys 2
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::{env, fs};

use hushtable_gpu::shim::{Counts, Shim};
use hushtable_gpu::{
    Ablation, BinsSpec, GpuBatchEngine, GpuEngine, GpuSpec, KeyKind, Strategy, row_domain,
};
use hushtable_pir::batch::{BatchBackend, BatchKeys, Client, Geometry};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, Reply, Side};
use hushtable_pir::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Planner};
use hushtable_pir::{Backend, DType, Platform, Prg, PrgKind, Table, TableShape};
use serde_json::{Value, json};

const USAGE: &str = "usage: count [--rows N,N,...] [--row-bytes N] [--keys N] [--out FILE]";
const MEMORY_BYTES: u64 = 16 << 30;
const PRG: PrgKind = PrgKind::Salsa12;
/// As many nodes at a time as the steps that name none take.
const K: u32 = 128;

struct Asked {
    rows: Vec<u64>,
    row_bytes: usize,
    keys: usize,
    out: Option<String>,
}

fn parse() -> Result<Asked, Box<dyn Error>> {
    let mut asked = Asked { rows: vec![1 << 14], row_bytes: 256, keys: 2, out: None };
    let mut words: VecDeque<String> = env::args().skip(1).collect();
    while let Some(word) = words.pop_front() {
        let value = words.pop_front().ok_or(USAGE)?;
        match word.as_str() {
            "--rows" => asked.rows = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--row-bytes" => asked.row_bytes = value.parse()?,
            "--keys" => asked.keys = value.parse()?,
            "--out" => asked.out = Some(value),
            _ => return Err(format!("no option {word:?}; {USAGE}").into()),
        }
    }
    Ok(asked)
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = parse()?;
    let mut results = Vec::new();
    for &rows in &asked.rows {
        let shape = TableShape::new(rows, asked.row_bytes)?;
        let bytes: Vec<u8> =
            (0..shape.table_bytes()).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        let own = row_domain(shape)?;
        let steps = [
            Strategy::BlockPerKey,
            Strategy::LevelByLevel,
            Strategy::Hybrid { k: K },
            Strategy::Fused { k: K },
            Strategy::Cooperative,
        ];
        for (leaf, domain) in [("row", own), ("wide", Domain::new(rows, Group::Z32)?)] {
            for step in steps {
                results.push(count(shape, &bytes, asked.keys, domain, leaf, step, true)?);
            }
        }
        let bytes_of_rows = Domain::new(rows, Group::Z8)?;
        // A warp of `tensor` has 16 keys.
        let full = asked.keys.next_multiple_of(16);
        for (strategy, keys, is_step) in
            [(steps[3], asked.keys, true), (Strategy::Tensor, full, false)]
        {
            let counted = count(shape, &bytes, keys, bytes_of_rows, "wide", strategy, is_step)?;
            results.push(counted);
        }
        eprintln!("counted {rows} rows");
    }
    results.extend(count_bins()?);
    let document = json!({
        "machine": {
            "kind": "counted",
            "device": "host shim: kernels run on the processor, and no GPU was there",
            "counted": "calls of the generator (a node to its two children, or to its leaf's 512 \
                        bits) and bytes that threads read from and write to device memory, whatever \
                        a cache would serve, without the words of keys and without copies from and \
                        to the host. No time was measured.",
            "command": format!(
                "cargo run -p hushtable-gpu --features shim --example count -- --rows {} \
                 --row-bytes {} --keys {}",
                asked.rows.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
                asked.row_bytes,
                asked.keys,
            ),
        },
        "results": results,
    });
    let text = serde_json::to_string_pretty(&document)? + "\n";
    match asked.out {
        Some(path) => fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

/// Counts one batch, whose answers are first held to the rows.
fn count(
    shape: TableShape,
    rows: &[u8],
    keys: usize,
    domain: Domain,
    leaf: &str,
    strategy: Strategy,
    is_step: bool,
) -> Result<Value, Box<dyn Error>> {
    let shim = Shim::counting(1, MEMORY_BYTES);
    let mut engine = GpuEngine::from_rows(shim.clone(), shape, rows, &GpuSpec::default())?;
    engine.set_strategy(strategy);
    engine.set_ablation(is_step.then_some(Ablation { streams: false }));
    let prg = Prg::new(PRG, Platform::detect());
    let apart = domain.rows() / shape.rows();
    let (mut left, mut right): (Vec<Key>, Vec<Key>) = (Vec::new(), Vec::new());
    let ids: Vec<u64> = (0..keys as u64).map(|i| i * 7919 % shape.rows()).collect();
    for id in &ids {
        let pair = KeyPair::generate(prg, domain, id * apart)?;
        left.push(pair.left);
        right.push(pair.right);
    }
    let mut answers = [0, 1].map(|_| vec![0; keys * shape.row_bytes()]);
    engine.answer(&right, &mut answers[1])?;
    shim.start_counting();
    engine.answer(&left, &mut answers[0])?;
    let counts = shim.counts();
    let [sums, others] = &mut answers;
    for ((sum, other), id) in
        sums.chunks_mut(shape.row_bytes()).zip(others.chunks(shape.row_bytes())).zip(ids)
    {
        domain.group().add(sum, other);
        if sum != &rows[id as usize * shape.row_bytes()..][..shape.row_bytes()] {
            return Err(format!("{strategy}: row {id} came back wrong").into());
        }
    }
    let kind = KeyKind::of(&left[0]);
    let needs = if is_step { engine.step_needs(kind, 1) } else { Default::default() };
    let group = domain.group().name();
    let leaves = 1u64 << domain.depth();
    let params = json!({
        "rows": shape.rows(),
        "row_bytes": shape.row_bytes(),
        "batch": keys,
        "prg": PRG.name(),
        "group": group,
        "leaf": leaf,
        "strategy": strategy.to_string(),
    });
    // A node of a tree of that many leaves for each call, and none twice.
    let least = (2 * leaves - 1) as f64;
    let mut detail = detail(counts, keys as f64);
    detail["leaves"] = json!(leaves);
    detail["node_bytes"] = json!(needs.node_bytes);
    detail["share_bytes"] = json!(needs.share_bytes);
    Ok(record("gpu-count", params, counts, keys as f64, "generator calls/key", least, detail))
}

/// Whole inferences by a layout with a hot and a full part, on 2^16 rows of 64 B: batches of one and
/// of 16.
fn count_bins() -> Result<Vec<Value>, Box<dyn Error>> {
    const ROWS: u64 = 1 << 16;
    let values: Vec<f32> = (0..ROWS * 16).map(|i| i as f32).collect();
    let table = Table::from_weight("counted", ROWS, 16, DType::F32, &values)?;
    let full = PartSpec { rows: ROWS, bins: 64, queries: 1, hashes: 1, companions: 0 };
    let hot = PartSpec { rows: 2048, bins: 32, ..full };
    let spec = LayoutSpec {
        hot: Some(hot),
        full: Some(full),
        ids_max: 64,
        drop: DropRule::MostFrequent,
        seed: [0; 32],
    };
    let map = LayoutMap {
        hot_ids: (0..2048).collect(),
        hot_companions: Vec::new(),
        full_companions: Vec::new(),
    };
    let layout = Arc::new(Layout::new(spec, map, table.shape(), table.version())?);
    let geometry = Geometry::new(&layout);
    let (costs, planner) = (geometry.costs(&layout), Planner::new(Arc::clone(&layout)));
    let least = |side: Side| -> u64 {
        let each = geometry.parts().iter().map(|part| {
            let nodes = 2 * part.leaf_count - 1;
            part.keys() * if part.has_shares(side) { 0 } else { nodes }
        });
        each.sum::<usize>() as u64
    };
    let mut results = Vec::new();
    for requests in [1usize, 16] {
        let shim = Shim::counting(1, MEMORY_BYTES);
        let engine =
            GpuBatchEngine::from_table(shim.clone(), &table, &layout, &BinsSpec::default())?;
        let client = Client::new(geometry.clone(), PRG);
        let ids: Vec<u64> = (0..60).map(|i| i * 997 % ROWS).collect();
        let plan = planner.plan_vartime(&ids, 0)?;
        let (mut left, mut right, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..requests {
            let (request, wait) = client.query(&plan)?;
            left.push(BatchKeys::parse(&geometry, Side::Left, request.left.clone())?);
            right.push(BatchKeys::parse(&geometry, Side::Right, request.right.clone())?);
            pending.push(wait);
        }
        let bytes = geometry.answer_bytes();
        let mut answers = [0, 1].map(|_| vec![0; requests * bytes]);
        engine.answer(&right, &mut answers[1])?;
        shim.start_counting();
        engine.answer(&left, &mut answers[0])?;
        let counts = shim.counts();
        for (i, pending) in pending.iter().enumerate() {
            let [left, right] = answers.each_ref().map(|answers| Reply {
                version: layout.version(),
                answers: &answers[i * bytes..][..bytes],
            });
            let entries = pending.combine(left, right)?;
            let rows = pending.rows(&plan, &entries, table.row_bytes());
            let mut expected = vec![0; table.row_bytes()];
            for ((id, found), row) in ids.iter().zip(&plan.found).zip(rows.chunks(64)) {
                expected.fill(0);
                if found.is_some() {
                    table.copy_rows(*id, &mut expected)?;
                }
                if row != expected {
                    return Err(format!("row {id} of an inference came back wrong").into());
                }
            }
        }
        let mut detail = detail(counts, requests as f64);
        detail["keys"] = json!(costs.keys);
        detail["stored_bytes"] = json!(costs.stored_bytes);
        detail["one_query_a_key_calls"] =
            json!(costs.keys * (2 * (ROWS / Group::Bits.rows_per_leaf()) - 1));
        let params = json!({
            "rows": ROWS,
            "row_bytes": 64,
            "batch": requests,
            "prg": PRG.name(),
            "hot": {"rows": hot.rows, "bins": hot.bins},
            "full": {"rows": full.rows, "bins": full.bins},
        });
        let least = least(Side::Left) as f64;
        results.push(record(
            "gpu-count-bins",
            params,
            counts,
            requests as f64,
            "generator calls/inference",
            least,
            detail,
        ));
    }
    Ok(results)
}

fn detail(counts: Counts, each: f64) -> Value {
    json!({
        "launches": counts.launches,
        "read_bytes": counts.read_bytes as f64 / each,
        "written_bytes": counts.written_bytes as f64 / each,
    })
}

fn record(
    bench: &str,
    params: Value,
    counts: Counts,
    each: f64,
    unit: &str,
    floor: f64,
    detail: Value,
) -> Value {
    let value = counts.calls as f64 / each;
    json!({
        "bench": bench,
        "params": params,
        "value": value,
        "unit": unit,
        "floor": floor,
        "of_floor": floor / value,
        "threads": null,
        "isa": null,
        "detail": detail,
    })
}
