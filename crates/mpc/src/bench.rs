//! What garbling costs here: gates and activations a second, bytes, and what AES alone would allow.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::garble::{
    Activation, ActivationSpec, Builder, Circuit, Delphi, Error, Inputs, Wire, labels,
};
use crate::kernel::gates::{self, Hash};
use crate::{Block, LANES, Platform};

/// What to measure.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct GarblingSpec {
    /// On which instructions.
    pub platform: Platform,
    /// Threads that garble at once, each its own instances; at least 1.
    pub threads: usize,
    /// k of the activations; 16 to 64.
    pub bits: u32,
    /// f of the activations: bits that they drop.
    pub fraction: u32,
    /// How long each figure is measured; at least one call of about a millisecond is timed.
    pub seconds: f64,
}

impl Default for GarblingSpec {
    fn default() -> Self {
        Self { platform: Platform::detect(), threads: 1, bits: 37, fraction: 12, seconds: 0.5 }
    }
}

/// How often a second, over all threads: of the fastest call of each.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rates {
    /// By the garbler.
    pub garble: f64,
    /// By the evaluator.
    pub evaluate: f64,
}

/// What a circuit costs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CircuitCost {
    /// `stochastic`, `nearest` (how activations round), or `delphi` (the textbook modulo a prime).
    pub name: &'static str,
    /// AND gates.
    pub and_gates: usize,
    /// Bytes of table, which the evaluator holds.
    pub table_bytes: f64,
    /// Bytes of labels of the evaluator's inputs.
    pub evaluator_label_bytes: usize,
    /// Bytes of labels of the garbler's inputs.
    pub garbler_label_bytes: usize,
    /// Instances a second.
    pub rates: Rates,
    /// As often as AES alone would allow: [`GarblingCost::aes_blocks`] over the blocks of an instance.
    pub floor: Rates,
}

/// What garbling costs here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GarblingCost {
    /// As [`Platform::name`] has it.
    pub isa: &'static str,
    /// Threads that garbled at once.
    pub threads: usize,
    /// AES-128 blocks a second from registers alone, over all threads.
    pub aes_blocks: f64,
    /// AND gates a second of a chain of carries, with the hash that circuits use (two AES blocks).
    pub tmmo: Rates,
    /// AES alone: eight blocks an AND of the garbler, four of the evaluator.
    pub tmmo_floor: Rates,
    /// AND gates a second with a hash of one AES block and a weaker bound, which nothing uses.
    pub mmo: Rates,
    /// Likewise.
    pub mmo_floor: Rates,
    /// Activations of k bits that drop f, by their rounding, and the textbook circuit.
    pub circuits: Vec<CircuitCost>,
}

/// Measures garbling on this machine.
///
/// # Errors
/// If there is no activation of such `bits` and `fraction`.
pub fn garbling(spec: &GarblingSpec) -> Result<GarblingCost, Error> {
    let activation = |dropped| {
        let GarblingSpec { bits, fraction, .. } = *spec;
        let (window, rectify, most) = (1, true, None);
        Activation::new(ActivationSpec { bits, dropped, shift: fraction, window, rectify, most })
    };
    let (stochastic, nearest, delphi) = (activation(spec.fraction)?, activation(0)?, Delphi::new());
    let aes_blocks = rate(spec, || {
        let mut block = 1;
        move || {
            const BLOCKS: u64 = 1 << 20;
            block = gates::churn(spec.platform, block, BLOCKS);
            BLOCKS as f64
        }
    });
    let floor = |[garble, evaluate]: [usize; 2], blocks: f64| Rates {
        garble: aes_blocks / (garble as f64 * blocks),
        evaluate: aes_blocks / (evaluate as f64 * blocks),
    };
    let carries = carries();
    let gates = carries.and_gates() as f64;
    let gates_of = |hash| {
        let Rates { garble, evaluate } = rates(spec, &carries, hash);
        Rates { garble: gates * garble, evaluate: gates * evaluate }
    };
    let cost = |name, circuit: &Circuit| CircuitCost {
        name,
        and_gates: circuit.and_gates(),
        table_bytes: circuit.group_bytes() as f64 / LANES as f64,
        evaluator_label_bytes: circuit.evaluator_wires() * size_of::<Block>(),
        garbler_label_bytes: circuit.garbler_wires() * size_of::<Block>(),
        rates: rates(spec, circuit, Hash::Tmmo),
        floor: floor(circuit.hashes(), 2.0),
    };
    Ok(GarblingCost {
        isa: spec.platform.name(),
        threads: spec.threads.max(1),
        aes_blocks,
        tmmo: gates_of(Hash::Tmmo),
        tmmo_floor: floor([4, 2], 2.0),
        mmo: gates_of(Hash::Mmo),
        mmo_floor: floor([4, 2], 1.0),
        circuits: vec![
            cost("stochastic", stochastic.circuit()),
            cost("nearest", nearest.circuit()),
            cost("delphi", delphi.circuit()),
        ],
    })
}

/// Whether the sum of two numbers of 64 bits takes a 65th: as an activation's gates are chained, and
/// nothing else.
fn carries() -> Circuit {
    let mut builder = Builder::new(64, 64);
    let (a, b) = (builder.evaluator(0, 64), builder.garbler(0, 64));
    let (_, carry) = builder.add(&a, &b, Wire::ZERO);
    builder.reveal(carry, 1);
    builder.finish(1)
}

/// Instances of `circuit` a second.
fn rates(spec: &GarblingSpec, circuit: &Circuit, hash: Hash) -> Rates {
    // The tables of a call: about half a megabyte, which a core's own cache takes.
    let groups = (1usize << 19).div_ceil(circuit.group_bytes()).max(1);
    let count = groups * LANES;
    let delta = 0x5bd1_e995_9e37_79b9_7f4a_7c15_85eb_ca6b;
    let fresh = |seed: u8, wires: usize| {
        let mut zeros = vec![0; groups * wires * LANES];
        labels(spec.platform, &[seed; 16], 0, &mut zeros);
        zeros
    };
    let (garbler, evaluator) =
        (fresh(1, circuit.garbler_wires()), fresh(2, circuit.evaluator_wires()));
    let inputs = Inputs { circuit, first_instance: 0, garbler: &garbler, evaluator: &evaluator };
    let inputs = &inputs;
    let garble = rate(spec, || {
        let mut tables = vec![0; groups * circuit.group_bytes()];
        let mut masks = vec![0; count];
        move || {
            gates::garble(spec.platform, hash, inputs, delta, &mut tables, &mut masks);
            count as f64
        }
    });
    // All inputs are 0: what time takes does not depend on them.
    let mut tables = vec![0; groups * circuit.group_bytes()];
    gates::garble(spec.platform, hash, inputs, delta, &mut tables, &mut vec![0; count]);
    let tables = &tables;
    let evaluate = rate(spec, || {
        let mut out = vec![0; count];
        move || {
            gates::evaluate(spec.platform, hash, inputs, tables, &mut out);
            count as f64
        }
    });
    Rates { garble, evaluate }
}

/// The sum over threads of what the calls that `start` prepares do a second, by the fastest of each.
fn rate<C: FnMut() -> f64>(spec: &GarblingSpec, start: impl Fn() -> C + Sync) -> f64 {
    let threads = spec.threads.max(1);
    let barrier = Barrier::new(threads);
    let run = || {
        let mut call = start();
        call();
        barrier.wait();
        let begun = Instant::now();
        let mut best = 0.0f64;
        loop {
            let before = Instant::now();
            let done = call();
            best = best.max(done / before.elapsed().max(Duration::from_nanos(1)).as_secs_f64());
            if begun.elapsed().as_secs_f64() >= spec.seconds {
                return best;
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        own + others.into_iter().filter_map(|other| other.join().ok()).sum::<f64>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_has_its_figures() {
        for platform in Platform::available() {
            let spec = GarblingSpec { platform, threads: 2, seconds: 0.01, ..Default::default() };
            let cost = garbling(&spec).unwrap();
            assert_eq!((cost.isa, cost.threads), (platform.name(), 2));
            for rates in [cost.tmmo, cost.mmo, cost.tmmo_floor, cost.mmo_floor] {
                assert!(rates.garble > 0.0 && rates.evaluate > 0.0, "{cost:?}");
            }
            let bytes: Vec<_> =
                cost.circuits.iter().map(|own| (own.and_gates, own.table_bytes)).collect();
            assert_eq!(bytes[..2], [(24, 1128.0), (36, 1512.0)]);
            assert!(bytes[2].1 > 3072.0 && bytes[2].1 < 15_896.0, "{bytes:?}");
        }
        let spec = GarblingSpec { bits: 8, ..Default::default() };
        assert!(garbling(&spec).is_err());
    }
}
