//! The choice of a plan's splits: which rotations have keys, by time and by the keys' bytes.

use hushtable_rlwe::ckks::KeySpec;

use super::cost::CostTable;
use super::plan::{BootstrapPlan, ParametersSpec, Plan, TurnSplit};
use super::turn::Map;

/// What bytes of keys count for: how many times their price.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPrice(pub f64);

impl KeyPrice {
    /// Milliseconds of a query that keys, uploaded once and held since, count for.
    fn ms(self, bytes: usize) -> f64 {
        let dear = bytes.saturating_sub(KEYS_FREE_BYTES);
        self.0 * (bytes as f64 * KEY_BYTE_MS + dear as f64 * DEAR_KEY_BYTE_MS)
    }
}

/// Bytes of keys that hardly count: any server holds them.
pub(super) const KEYS_FREE_BYTES: usize = 256 << 20;
/// Milliseconds that a byte counts for: enough to choose among plans that take the same time.
const KEY_BYTE_MS: f64 = 1e-8;
/// Milliseconds that a byte above counts for: four seconds for a gigabyte.
const DEAR_KEY_BYTE_MS: f64 = 4e-6;

/// What chosen splits come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chosen {
    /// Milliseconds of all maps.
    pub ms: f64,
    /// Bytes of all keys.
    pub key_bytes: usize,
    /// Milliseconds with the keys' price.
    pub total: f64,
}

/// The splits among which a plan's are chosen.
pub(super) struct Choices {
    /// By map; the fastest first.
    maps: Vec<Vec<Candidate>>,
    /// By rotation that some candidate has: the level that it is needed at whatever is chosen.
    fixed: Vec<Option<usize>>,
    /// By level: bytes of a key.
    bytes: Vec<usize>,
    /// Of the keys that are no rotations'.
    other_bytes: usize,
}

struct Candidate {
    split: TurnSplit,
    ms: f64,
    /// Its rotations' numbers, and the map's level.
    rotations: Vec<usize>,
    level: usize,
}

impl Choices {
    pub fn new(plan: &Plan, costs: &CostTable) -> Self {
        let mut numbers = std::collections::BTreeMap::new();
        let mut number = |steps: usize| {
            let next = numbers.len();
            *numbers.entry(steps).or_insert(next)
        };
        let maps = plan.maps();
        let maps = maps.iter().map(|map| candidates(plan, costs, map, &mut number)).collect();
        let always: Vec<_> =
            plan.fixed_rotations().iter().map(|(&steps, &level)| (number(steps), level)).collect();
        let mut fixed = vec![None; numbers.len()];
        always.into_iter().for_each(|(number, level)| fixed[number] = Some(level));
        let levels = 0..plan.parameters.moduli.len();
        let bytes: Vec<usize> = levels.map(|level| key_bytes_at(plan, level)).collect();
        let other_bytes = other_keys(plan).map(|level| bytes[level]).sum();
        Self { maps, fixed, bytes, other_bytes }
    }

    /// Milliseconds of all maps if time alone counted.
    pub fn least_ms(&self) -> f64 {
        self.maps.iter().map(|candidates| candidates[0].ms).sum()
    }

    /// The splits for which time and price are least together, as far as changing that of one map after
    /// the other finds them: from the fastest ones, and, as maps share keys, from one split for all.
    pub fn choose(&self, price: KeyPrice) -> (Vec<TurnSplit>, Chosen) {
        let starts = TurnSplit::shared().into_iter().map(|split| {
            let start = |own: &Vec<Candidate>| {
                let is_same = |found: &Candidate| found.split == split;
                own.iter().position(is_same).unwrap_or(0)
            };
            self.maps.iter().map(start).collect()
        });
        let starts = std::iter::once(vec![0; self.maps.len()]).chain(starts);
        let found = starts.map(|start| self.descend(start, price));
        let best = found.min_by(|(_, a), (_, b)| a.total.total_cmp(&b.total));
        let (own, chosen) = best.expect("there is a start");
        let splits = self.maps.iter().zip(own).map(|(candidates, own)| candidates[own].split);
        (splits.collect(), chosen)
    }

    fn descend(&self, mut own: Vec<usize>, price: KeyPrice) -> (Vec<usize>, Chosen) {
        let mut best = self.total(&own, price);
        loop {
            let before = best.total;
            for (index, candidates) in self.maps.iter().enumerate() {
                for candidate in 0..candidates.len() {
                    let kept = std::mem::replace(&mut own[index], candidate);
                    let found = self.total(&own, price);
                    if found.total < best.total {
                        best = found;
                    } else {
                        own[index] = kept;
                    }
                }
            }
            if best.total >= before {
                return (own, best);
            }
        }
    }

    fn total(&self, own: &[usize], price: KeyPrice) -> Chosen {
        let mut levels = self.fixed.clone();
        let mut ms = 0.0;
        for (candidates, &own) in self.maps.iter().zip(own) {
            let candidate = &candidates[own];
            ms += candidate.ms;
            for &rotation in &candidate.rotations {
                levels[rotation] = levels[rotation].max(Some(candidate.level));
            }
        }
        let rotations = levels.into_iter().flatten().map(|level| self.bytes[level]);
        let key_bytes = self.other_bytes + rotations.sum::<usize>();
        Chosen { ms, key_bytes, total: ms + price.ms(key_bytes) }
    }
}

/// Every split of a map that may pay, the fastest first and of those as fast that with the fewest keys.
fn candidates(
    plan: &Plan,
    costs: &CostTable,
    map: &Map,
    number: &mut impl FnMut(usize) -> usize,
) -> Vec<Candidate> {
    // Sums over several ciphertexts are rotated, not each ciphertext, where they are many.
    let all = map.splits().filter(|split| map.ciphertexts <= FEW || split.baby_steps == 1);
    let mut found: Vec<Candidate> = all
        .map(|split| {
            let turn = map.turn.with(split);
            let ms = costs.map_ms(plan, map, &turn);
            let rotations = turn.rotations(plan.users).into_iter().map(&mut *number).collect();
            Candidate { split, ms, rotations, level: map.level }
        })
        .collect();
    found.sort_by(|a, b| {
        let keys = || a.rotations.len().cmp(&b.rotations.len());
        a.ms.total_cmp(&b.ms).then_with(keys)
    });
    let slowest = SLOWEST * found[0].ms;
    found.retain(|candidate| candidate.ms <= slowest);
    found
}

/// How many ciphertexts may each be rotated by baby steps.
const FEW: usize = 2;
/// How many times the fastest split's time a split may take.
const SLOWEST: f64 = 4.0;

/// The levels of the keys that are no rotations': of products, and of bootstraps. That to the sparse secret,
/// of two primes, is left out.
fn other_keys(plan: &Plan) -> impl Iterator<Item = usize> + use<> {
    let KeySpec { products, conjugation, raise, .. } = plan.key_spec();
    products.into_iter().chain(conjugation).chain(raise)
}

/// Bytes of all keys of a plan.
pub(super) fn key_bytes(plan: &Plan) -> usize {
    let levels = plan.rotations().into_values().chain(other_keys(plan));
    levels.map(|level| key_bytes_at(plan, level)).sum()
}

/// Bytes of one polynomial at `level` on the wire.
pub(super) fn poly_bytes(plan: &Plan, level: usize) -> usize {
    let moduli = plan.parameters.moduli[..=level].iter();
    let bits: u32 = moduli.map(|&modulus| bits_below(modulus)).sum();
    plan.parameters.degree * bits as usize / 8
}

/// Bytes of a key of `level`, its halves' masks left out: the wire's.
fn key_bytes_at(plan: &Plan, level: usize) -> usize {
    let parameters = &plan.parameters;
    let digits = (level + 1).div_ceil(parameters.special_moduli.len());
    let moduli = parameters.moduli[..=level].iter().chain(&parameters.special_moduli);
    let bits: u32 = moduli.map(|&modulus| bits_below(modulus)).sum();
    digits * parameters.degree * bits as usize / 8
}

/// Bytes of memory of all keys: both halves of their rows, whole bytes a number, and where rotations take
/// what.
pub(super) fn key_memory_bytes(plan: &Plan) -> usize {
    let (parameters, rotations) = (&plan.parameters, plan.rotations());
    let rows = |level: usize| {
        let digits = (level + 1).div_ceil(parameters.special_moduli.len());
        2 * digits * parameters.degree * width_at(parameters, level, true)
    };
    let indices = 4 * parameters.degree * rotations.len();
    indices + rotations.into_values().chain(other_keys(plan)).map(rows).sum::<usize>()
}

/// Bytes of memory of the prepared maps, those of inputs left out that are made at each use, because all
/// would take more than `input_bytes_max`. Of a plaintext that repeats, one run is held.
pub(super) fn map_memory_bytes(plan: &Plan, input_bytes_max: usize) -> usize {
    let maps = plan.maps();
    let bytes = maps.iter().enumerate().map(|(index, map)| {
        let words = (2 * map.period * plan.users).min(plan.parameters.degree);
        let diagonals = map.turn.diagonals * map.ciphertexts * map.outputs.unwrap_or(1);
        // What parts' baby steps rotate is divided by P at once.
        let is_over_p = map.turn.baby_steps > 1 && map.outputs.is_none();
        let width = width_at(&plan.parameters, map.level, is_over_p);
        let bytes = diagonals * words * width;
        if index < plan.inputs.len() && bytes > input_bytes_max { 0 } else { bytes }
    });
    let bootstrap = plan.bootstrap.as_ref().map(|own| bootstrap_bytes(own, &plan.parameters));
    bytes.sum::<usize>() + bootstrap.unwrap_or(0)
}

/// Bytes of memory of a bootstrap's prepared maps.
pub(super) fn bootstrap_bytes(own: &BootstrapPlan, parameters: &ParametersSpec) -> usize {
    let bytes = own.maps.iter().map(|map| {
        let words = (2 * map.period).min(parameters.degree);
        map.diagonals * words * width_at(parameters, map.level, map.babies > 0)
    });
    bytes.sum()
}

/// Whole bytes of a number at `level`, over Q's limbs, and P's besides.
fn width_at(parameters: &ParametersSpec, level: usize, is_over_p: bool) -> usize {
    let special = parameters.special_moduli.iter().filter(|_| is_over_p);
    let moduli = parameters.moduli[..=level].iter().chain(special);
    moduli.map(|&modulus| bits_below(modulus).div_ceil(8) as usize).sum()
}

/// Bits of what lies below `modulus`: as many as it has, or of a sketch's power of two those of its primes.
fn bits_below(modulus: u64) -> u32 {
    64 - modulus.saturating_sub(1).leading_zeros()
}
