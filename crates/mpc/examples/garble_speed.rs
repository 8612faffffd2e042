//! Prints what garbling costs here: `garble_speed [threads]`.

use hushtable_mpc::Platform;
use hushtable_mpc::bench::{GarblingSpec, Rates, garbling};

fn main() {
    let threads = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    for platform in Platform::available() {
        let spec = GarblingSpec { platform, threads, ..Default::default() };
        let cost = garbling(&spec).expect("the defaults are in range");
        println!("{} {} threads, AES {:.0} M blocks/s", cost.isa, threads, cost.aes_blocks / 1e6);
        let show = |name: &str, of: Rates, floor: Rates| {
            println!(
                "  {name:28} garble {:8.2} M/s ({:3.0} %)  evaluate {:8.2} M/s ({:3.0} %)",
                of.garble / 1e6,
                100.0 * of.garble / floor.garble,
                of.evaluate / 1e6,
                100.0 * of.evaluate / floor.evaluate,
            );
        };
        show("AND, 2 AES a hash", cost.tmmo, cost.tmmo_floor);
        show("AND, 1 AES a hash", cost.mmo, cost.mmo_floor);
        for own in &cost.circuits {
            let name = format!("{} {} AND {:.0} B", own.name, own.and_gates, own.table_bytes);
            show(&name, own.rates, own.floor);
        }
    }
}
