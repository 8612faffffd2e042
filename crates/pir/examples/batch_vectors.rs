//! Prints `vectors/batch.json`: layouts, where rows lie in them, and requests from given seeds.
//!
//! `cargo run -p hushtable-pir --example batch_vectors > vectors/batch.json`

use hushtable_pir::PrgKind;
use hushtable_pir::batch::{Client, Geometry};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Plan};
use hushtable_table::{DType, Shape, Version};
use serde_json::{Value, json};

const ROWS: u64 = 1_500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let part = |rows, bins, queries, hashes, companions| {
        Some(PartSpec { rows, bins, queries, hashes, companions })
    };
    let mut vectors = Vec::new();
    for (hot, full) in [
        (None, part(ROWS, 5, 1, 1, 0)),
        (None, part(ROWS, 2, 2, 3, 1)),
        (part(20, 4, 1, 1, 1), None),
        (part(20, 3, 1, 2, 0), part(ROWS, 1, 1, 1, 0)),
    ] {
        for prg in [PrgKind::Aes128, PrgKind::ChaCha20] {
            vectors.push(vector(hot, full, prg, vectors.len() as u8)?);
        }
    }
    let file = json!({ "format": 1, "vectors": vectors });
    println!("{}", serde_json::to_string_pretty(&file)?);
    Ok(())
}

fn vector(
    hot: Option<PartSpec>,
    full: Option<PartSpec>,
    prg: PrgKind,
    number: u8,
) -> Result<Value, Box<dyn std::error::Error>> {
    let spec = LayoutSpec { hot, full, ids_max: 9, drop: DropRule::Earliest, seed: [number; 32] };
    let count =
        |part: Option<PartSpec>| part.map_or(0, |part| part.rows * u64::from(part.companions));
    let map = LayoutMap {
        hot_ids: (0..hot.map_or(0, |hot| hot.rows as u32)).map(|i| 7 * i + 3).collect(),
        hot_companions: (0..count(hot) as u32).collect(),
        full_companions: (0..count(full) as u32).map(|i| i / 2).collect(),
    };
    let shape = Shape::new(ROWS, 2, DType::F32)?;
    let layout = Layout::new(spec, map, shape, Version::from([0xAB; 32]))?;
    let geometry = Geometry::new(&layout);
    // The first row of the first bin, the last of the last, nothing of others.
    let mut plan = Plan::empty(geometry.keys());
    let mut offsets = vec![None; geometry.keys()];
    offsets[0] = Some(0);
    let bin_rows = geometry.parts().last().map_or(0, |part| part.bin_rows());
    *offsets.last_mut().ok_or("no keys")? = Some(bin_rows as u32 - 1);
    plan.offsets = offsets.iter().map(|offset| offset.unwrap_or(0)).collect();
    let seeds = [[number; 16], [number + 100; 16]];
    let (request, _) = Client::new(geometry, prg).query_from_seeds(&plan, &seeds)?;
    let places: Vec<Value> = layout
        .parts()
        .map(|part| {
            let place = |index: u64| -> Vec<[u32; 2]> {
                part.places(index).map(|place| [place.bin, place.offset]).collect()
            };
            json!([place(0), place(part.spec().rows - 1)])
        })
        .collect();
    Ok(json!({
        "prg": prg.name(),
        "layout": hex(&layout.to_bytes()),
        "layout_version": layout.version().to_string(),
        "first_and_last_places": places,
        "offsets": offsets,
        "seeds": seeds.map(|seed| hex(&seed)),
        "left_request": hex(&request.left),
        "right_request": hex(&request.right),
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
