//! The checker that every backend's test calls.

use hushtable_prg::Platform;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::float::Slack;
use super::*;
use crate::{GadgetSpec, ntt_primes};

/// Moduli around every threshold between paths.
const BITS: [u32; 10] = [5, 17, 27, 28, 30, 38, 39, 49, 50, 51];

/// The guard around a backend's output, which the backend must leave unchanged.
const GUARD: u64 = 0x5a5a_a5a5_5a5a_a5a5;

/// Random residues, the extremes among them: or those alone, for every seventh call.
fn residues(rng: &mut ChaCha12Rng, modulus: Modulus, length: usize) -> Vec<u64> {
    let top = modulus.value() - 1;
    let kind = rng.random_range(0..7u32);
    (0..length)
        .map(|_| match (kind, rng.random_range(0..6u32)) {
            (0, _) => top,
            (1, draw) => top * u64::from(draw % 2),
            (_, 0) => 0,
            (_, 1) => top,
            (_, 2) => modulus.value() / 2,
            (_, 3) => modulus.value() / 2 + 1,
            _ => rng.random_range(0..=top),
        })
        .collect()
}

/// What grows most on the way: all at the top, every other one, and the first half.
fn extremes(modulus: Modulus, length: usize) -> [Vec<u64>; 3] {
    let top = modulus.value() - 1;
    let tops = |is_top: fn(usize, usize) -> bool| {
        (0..length).map(|index| top * u64::from(is_top(index, length))).collect()
    };
    [tops(|_, _| true), tops(|index, _| index % 2 == 0), tops(|index, length| index < length / 2)]
}

/// Of some factors those whose product is farthest off the multiple of q that `float` takes off, by an
/// odd number: the first that sums beyond 2^53 lose.
fn farthest(rng: &mut ChaCha12Rng, modulus: Modulus) -> [u64; 2] {
    let q = modulus.value();
    let mut draw = || q - 1 - rng.random_range(0..=q / 16);
    let pairs = (0..256).map(|_| [draw(), draw()]);
    let rest = |&[x, w]: &[u64; 2]| {
        let multiple = (x as f64 * (w as f64 * (1.0 / q as f64))).round_ties_even();
        let rest = i128::from(x) * i128::from(w) - multiple as i128 * i128::from(q);
        (rest & 1) as u128 * rest.unsigned_abs()
    };
    pairs.max_by_key(rest).unwrap()
}

/// Every modulus of [`BITS`] with an NTT of `degree`.
fn moduli(degree: usize) -> impl Iterator<Item = Modulus> {
    let first = move |bits| ntt_primes(bits, degree, 1).first().copied();
    BITS.into_iter().filter_map(first).map(|prime| Modulus::new(prime).unwrap())
}

/// Every backend that this machine can run, whatever the cap, each once.
fn kernels() -> Vec<Kernel> {
    let mut kernels: Vec<_> = Platform::available().into_iter().map(Kernel::new).collect();
    kernels.dedup();
    kernels
}

/// Runs `kernel` on a copy of `values` between guards, `specification` on another, and compares.
fn compare(
    name: &str,
    values: &[u64],
    kernel: impl FnOnce(&mut [u64]),
    specification: impl FnOnce(&mut [u64]),
) {
    let mut expected = values.to_vec();
    specification(&mut expected);
    let mut found = vec![GUARD; values.len() + 16];
    found[8..][..values.len()].copy_from_slice(values);
    kernel(&mut found[8..][..values.len()]);
    assert!(found[8..][..values.len()] == expected, "{name}");
    assert_eq!(found[..8], [GUARD; 8], "{name}: written before the output");
    assert_eq!(found[8 + values.len()..], [GUARD; 8], "{name}: written behind the output");
}

#[test]
fn transforms_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    for kernel in kernels() {
        for degree in (3..=14).chain([17]).map(|log| 1 << log) {
            for modulus in moduli(degree) {
                let name = format!("{} N = {degree} q = {}", kernel.isa(), modulus.value());
                let table = NttTable::new(modulus, degree).unwrap();
                let draws = if degree > 4096 { 2 } else { 6 };
                let drawn: Vec<_> =
                    (0..draws).map(|_| residues(&mut rng, modulus, degree)).collect();
                for values in drawn.into_iter().chain(extremes(modulus, degree)) {
                    compare(
                        &format!("forward {name}"),
                        &values,
                        |x| kernel.forward(&table, x),
                        |x| portable::forward(&table, x),
                    );
                    let w = modulus.value() / 3;
                    compare(
                        &format!("inverse by {w} {name}"),
                        &values,
                        |x| kernel.inverse_scaled(&table, w, x),
                        |x| portable::inverse_scaled(&table, w, x),
                    );
                    compare(
                        &format!("inverse {name}"),
                        &values,
                        |x| kernel.inverse(&table, x),
                        |x| portable::inverse(&table, x),
                    );
                }
            }
        }
    }
}

#[test]
fn sums_and_products_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(2);
    for kernel in kernels() {
        // Small odd moduli too: an element by itself needs no root.
        let odd = [3, 5, 9, (1 << 50) + 1, (1 << 51) - 1].map(|value| Modulus::new(value).unwrap());
        for modulus in moduli(8).chain(odd) {
            // Lengths that are no multiple of a vector are the specification's.
            for length in [8, 12, 16, 40, 64, 264] {
                let name = format!("{} {length} of q = {}", kernel.isa(), modulus.value());
                let [x, y, w] = [(); 3].map(|()| residues(&mut rng, modulus, length));
                compare(
                    &format!("add {name}"),
                    &x,
                    |x| kernel.add_assign(modulus, x, &y),
                    |x| portable::add_assign(modulus, x, &y),
                );
                compare(
                    &format!("sub {name}"),
                    &x,
                    |x| kernel.sub_assign(modulus, x, &y),
                    |x| portable::sub_assign(modulus, x, &y),
                );
                compare(
                    &format!("neg {name}"),
                    &x,
                    |x| kernel.neg_assign(modulus, x),
                    |x| portable::neg_assign(modulus, x),
                );
                compare(
                    &format!("mul {name}"),
                    &x,
                    |x| kernel.mul_assign(modulus, x, &y),
                    |x| portable::mul_assign(modulus, x, &y),
                );
                compare(
                    &format!("scale {name}"),
                    &x,
                    |x| kernel.scale_assign(modulus, x, w[0]),
                    |x| portable::scale_assign(modulus, x, w[0], modulus.shoup(w[0])),
                );
                let (mut differences, mut expected) = (y.clone(), y.clone());
                compare(
                    &format!("split {name}"),
                    &x,
                    |x| kernel.split(modulus, x, &mut differences, &w),
                    |x| portable::split(modulus, x, &mut expected, &w),
                );
                assert!(differences == expected, "split {name}");
                for from in moduli(8) {
                    let values = residues(&mut rng, from, length);
                    compare(
                        &format!("recentre {name} from {}", from.value()),
                        &vec![0; length],
                        |out| kernel.recentre(from, modulus, &values, out),
                        |out| portable::recentre(from, modulus, &values, out),
                    );
                }
            }
        }
    }
}

fn slices(of: &[Vec<u64>]) -> Vec<&[u64]> {
    of.iter().map(|values| &values[..]).collect()
}

#[test]
fn inner_products_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(3);
    for kernel in kernels() {
        for modulus in moduli(8).chain([Modulus::new(3).unwrap(), Modulus::new(33).unwrap()]) {
            for (terms, length) in [
                (1, 8),
                (2, 24),
                (5, 40),
                (7, 64),
                (8, 64),
                (9, 32),
                (15, 72),
                (16, 72),
                (17, 20),
                (TERMS_MAX, 56),
            ] {
                let draw = |rng: &mut _| residues(rng, modulus, length);
                let xs: Vec<_> = (0..terms).map(|_| draw(&mut rng)).collect();
                let ys: Vec<_> = (0..terms).map(|_| draw(&mut rng)).collect();
                let all_top = vec![modulus.value() - 1; length];
                let tops = vec![all_top.as_slice(); terms];
                // Where products are reduced by doubles, their sums outgrow all others.
                let far: Vec<_> = (0..length).map(|_| farthest(&mut rng, modulus)).collect();
                let far = [0, 1].map(|side| far.iter().map(|pair| pair[side]).collect::<Vec<_>>());
                let [far_xs, far_ys] = far.each_ref().map(|far| vec![far.as_slice(); terms]);
                for (xs, ys) in [(slices(&xs), slices(&ys)), (tops.clone(), tops), (far_xs, far_ys)]
                {
                    compare(
                        &format!("{} {terms} terms of q = {}", kernel.isa(), modulus.value()),
                        &vec![0; length],
                        |out| kernel.inner_product(modulus, &xs, &ys, out),
                        |out| portable::inner_product(modulus, &xs, &ys, out),
                    );
                }
            }
        }
    }
}

/// Packs `polys` of one length together.
fn pack_together(modulus: Modulus, polys: &[Vec<u64>]) -> Vec<u8> {
    let mut packed = vec![0; polys.len() * polys[0].len() * width_bytes(modulus)];
    for (index, poly) in polys.iter().enumerate() {
        pack_rows(modulus, poly, (polys.len(), index), &mut packed);
    }
    packed
}

#[test]
fn sums_of_packed_polynomials_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(9);
    for kernel in kernels() {
        for modulus in moduli(8).chain([Modulus::new(3).unwrap()]) {
            for (terms, others, length) in [
                (1, 0, 8),
                (2, 1, 32),
                (6, 0, 64),
                (7, 2, 96),
                (14, 0, 32),
                (3, 59, 64),
                (62, 0, 32),
            ] {
                let mut draw = |count: usize| -> Vec<Vec<u64>> {
                    (0..count).map(|_| residues(&mut rng, modulus, length)).collect()
                };
                let drawn =
                    [draw(terms), draw(2 * terms + 2), draw(others), draw(others), draw(others)];
                let top = vec![modulus.value() - 1; length];
                let tops = [terms, 2 * terms + 2, others, others, others]
                    .map(|count| vec![top.clone(); count]);
                let name = format!("{} {terms} rows of q = {}", kernel.isa(), modulus.value());
                for [xs, rows, x, y, z] in [drawn, tops] {
                    let more: Vec<_> = x
                        .iter()
                        .zip(y.iter().zip(&z))
                        .map(|(x, (y, z))| (&x[..], [&y[..], &z[..]]))
                        .collect();
                    let (xs, packed) = (slices(&xs), pack_together(modulus, &rows));
                    let run = |kernel: Option<Kernel>, rows: Rows, out: &mut [u64]| {
                        let (a, b) = out.split_at_mut(length);
                        match kernel {
                            None => portable::row_products(modulus, &xs, rows, &more, [a, b]),
                            Some(kernel) => kernel.row_products(modulus, &xs, rows, &more, [a, b]),
                        }
                    };
                    let empty = vec![0; 2 * length];
                    let expected = |out: &mut [u64]| run(None, Rows::Packed(&packed), out);
                    let found = |out: &mut [u64]| run(Some(kernel), Rows::Packed(&packed), out);
                    compare(&name, &empty, found, expected);
                    let side = |side| rows.iter().skip(side).step_by(2).cloned();
                    let firsts: Vec<u64> = side(0).flatten().collect();
                    let seconds = pack_together(modulus, &side(1).collect::<Vec<_>>());
                    let apart = Rows::Apart { firsts: &firsts, seconds: &seconds };
                    compare(&name, &empty, |out| run(None, apart, out), expected);
                    compare(&name, &empty, |out| run(Some(kernel), apart, out), expected);
                }
            }
        }
    }
}

#[test]
fn uniform_numbers_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(12);
    // Just below a power of two and just above, where half of all words are refused.
    let others = [(1 << 37) - 45, (1 << 37) + 9, 3].map(|value| Modulus::new(value).unwrap());
    for kernel in kernels() {
        for modulus in moduli(8).chain(others) {
            for length in [1, 7, 8, 9, 128, 500, 4096] {
                let (seed, index) = (rng.random(), rng.random());
                let limb = rng.random_range(0..3);
                let stream = Stream { seed: &seed, index, limb };
                for weight in [1, (1 << 52) % modulus.value(), modulus.value() - 1] {
                    let name = format!("{} {length} below {}", kernel.isa(), modulus.value());
                    let empty = vec![0; length];
                    compare(
                        &name,
                        &empty,
                        |out| kernel.uniform(modulus, stream, weight, out),
                        |out| portable::uniform(modulus, stream, weight, out),
                    );
                }
            }
        }
    }
}

#[test]
fn products_of_packed_polynomials_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(10);
    for kernel in kernels() {
        for modulus in moduli(8).chain([Modulus::new(3).unwrap()]) {
            // Runs by group: none, shorter than a vector, than a block, than what is written, longer.
            for (terms, length, runs) in [
                (1, 8, &[1][..]),
                (3, 16, &[2, 16]),
                (2, 32, &[1, 2, 4, 8]),
                (7, 64, &[16, 1, 32]),
                (4, 128, &[64, 128, 2, 1]),
                (40, 256, &[4, 256, 8]),
                (PACKED_MAX, 64, &[32]),
                (PACKED_MAX, 64, &[1]),
            ] {
                let name = format!("{} {terms} in {runs:?} of {}", kernel.isa(), modulus.value());
                let mut draw = |count: usize, length: usize| -> Vec<Vec<u64>> {
                    (0..count).map(|_| residues(&mut rng, modulus, length)).collect()
                };
                // One more is packed than is used.
                let words = |run: usize| draw(terms + 1, length / run);
                let drawn: Vec<_> = runs.iter().copied().map(words).collect();
                let sides = [draw(terms, length), draw(terms, length)];
                let top = modulus.value() - 1;
                let tops: Vec<_> =
                    runs.iter().map(|run| vec![vec![top; length / run]; terms + 1]).collect();
                let top_sides = [(); 2].map(|()| vec![vec![top; length]; terms]);
                for (words, sides) in [(drawn, sides), (tops, top_sides)] {
                    let packed: Vec<_> = words
                        .iter()
                        .zip(runs)
                        .map(|(words, &run)| {
                            let mut packed =
                                vec![0; (terms + 1) * words[0].len() * width_bytes(modulus)];
                            for (index, words) in words.iter().enumerate() {
                                pack_runs(modulus, words, run, (terms + 1, index), &mut packed);
                            }
                            packed
                        })
                        .collect();
                    let sides = sides.each_ref().map(|side| slices(side));
                    let factors: Vec<_> = (0..terms)
                        .map(|term| (term + 1, [sides[0][term], sides[1][term]]))
                        .collect();
                    let groups: Vec<_> = packed
                        .iter()
                        .zip(runs)
                        .map(|(packed, &run)| PackedGroup {
                            packed,
                            count: terms + 1,
                            run,
                            terms: factors.clone(),
                        })
                        .collect();
                    for (start, length) in [(0, length), (length / 2, length / 2)] {
                        if !start.is_multiple_of(ROW_BLOCK) {
                            continue;
                        }
                        let run = |specified: bool, out: &mut [u64]| {
                            let (a, b) = out.split_at_mut(length);
                            match specified {
                                true => portable::packed_products(modulus, &groups, start, [a, b]),
                                false => kernel.packed_products(modulus, &groups, start, [a, b]),
                            }
                        };
                        let empty = vec![0; 2 * length];
                        compare(&name, &empty, |out| run(false, out), |out| run(true, out));
                        // And the specification agrees with sums that know of no runs.
                        let mut found = empty;
                        run(true, &mut found);
                        for (at, &found) in found.iter().enumerate() {
                            let (side, at) = (at / length, start + at % length);
                            let mut sum = 0;
                            for (words, &run) in words.iter().zip(runs) {
                                for term in 0..terms {
                                    let x = words[term + 1][at / run];
                                    sum = modulus.add(sum, modulus.mul(x, sides[side][term][at]));
                                }
                            }
                            let found = modulus.mul(found, (1 << 52) % modulus.value());
                            assert_eq!(found, sum, "{name} at {at}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn changes_of_basis_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(8);
    let long = ntt_primes(51, 8, SOURCES_MAX).into_iter().map(|prime| Modulus::new(prime).unwrap());
    let long: Vec<_> = long.collect();
    let mixed: Vec<_> = long[10..].iter().copied().chain(moduli(8)).collect();
    for kernel in kernels() {
        for (count, sources) in
            (1..=SOURCES_MAX).flat_map(|count| [(count, &mixed), (count, &long)])
        {
            for length in [8, 20, 40, 72] {
                let from = &sources[sources.len() - count..];
                let xs: Vec<_> = from.iter().map(|&q| residues(&mut rng, q, length)).collect();
                let name = format!("{} {length} of {count} sources", kernel.isa());
                let mut counts = vec![0; length];
                portable::count_wraps(from, &slices(&xs), &mut counts);
                let mut found = vec![0xff; length];
                kernel.count_wraps(from, &slices(&xs), &mut found);
                assert_eq!(found, counts, "{name}");
                assert!(counts.iter().all(|&wraps| usize::from(wraps) <= count), "{name}");
                let any: Vec<u8> = (0..length).map(|_| rng.random_range(0..16)).collect();
                for modulus in moduli(8) {
                    let weights = residues(&mut rng, modulus, count);
                    let wrap = residues(&mut rng, modulus, 1)[0];
                    // Every term at its end as the kernels hold it: a weight times 2^52, and 15 wraps,
                    // are q − 1; the last bits differ, so that what is taken off does.
                    let mut near_top =
                        |_| (0..length).map(|_| (1 << 51) - rng.random_range(1..1000)).collect();
                    let tops: Vec<Vec<u64>> = (0..count).map(&mut near_top).collect();
                    let minus_over = |x: u64| match x % modulus.value() {
                        0 => modulus.value() - 1,
                        x => modulus.neg(modulus.inv(x)),
                    };
                    let most = vec![minus_over(1 << 52); count];
                    let wraps = vec![15; length];
                    for (xs, weights, counts, wrap) in [
                        (&xs, &weights, &counts, wrap),
                        (&xs, &weights, &any, wrap),
                        (&tops, &vec![modulus.value() - 1; count], &wraps, modulus.value() - 1),
                        (&tops, &most, &wraps, minus_over(15)),
                    ] {
                        compare(
                            &format!("{name} to q = {}", modulus.value()),
                            &vec![0; length],
                            |out| {
                                let xs = slices(xs);
                                kernel.combine(modulus, &xs, weights, counts, wrap, out);
                            },
                            |out| {
                                let xs = slices(xs);
                                portable::combine(modulus, &xs, weights, counts, wrap, out);
                            },
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn permutations_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(4);
    for kernel in kernels() {
        for length in [8usize, 12, 64, 1024] {
            let values: Vec<u64> = (0..length).map(|_| rng.random()).collect();
            let any: Vec<_> = (0..length).map(|_| rng.random_range(0..length as u32)).collect();
            // Eight outputs out of eight inputs side by side, as automorphisms have them.
            let blocks = length as u32 / 8;
            let near: Vec<_> = (0..length as u32)
                .map(|i| (i / 8 * 3 + 1) % blocks.max(1) * 8 + (i * 5 + 3) % 8)
                .collect();
            for indices in [any, near] {
                compare(
                    &format!("{} permute {length}", kernel.isa()),
                    &vec![0; length],
                    |out| kernel.permute(&values, &indices, out),
                    |out| portable::permute(&values, &indices, out),
                );
            }
        }
        for wrong in [64, 71, u32::MAX] {
            let mut indices = [0; 64];
            indices[13] = wrong;
            let outcome = std::panic::catch_unwind(|| {
                kernel.permute(&[0; 64], &indices, &mut [0; 64]);
            });
            assert!(outcome.is_err(), "{} read out of bounds at {wrong}", kernel.isa());
        }
    }
}

#[test]
fn digits_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    let sets: [&[u32]; 10] = [
        &[27],
        &[50],
        &[51],
        &[50, 50],
        &[51, 49],
        &[28, 51],
        &[51, 28],
        &[27, 27, 27],
        &[28, 27, 27, 26],
        &[12, 12, 12, 12, 12, 12, 12, 12, 11],
    ];
    for kernel in kernels() {
        for bits in sets {
            let mut primes: Vec<u64> = Vec::new();
            for &bits in bits {
                let next = ntt_primes(bits, 16, 16).into_iter().find(|p| !primes.contains(p));
                primes.push(next.unwrap());
            }
            let moduli: Vec<_> = primes.iter().map(|&prime| Modulus::new(prime).unwrap()).collect();
            let crt = Crt::new(&moduli);
            let product = crt.product().unwrap();
            let modulus_bits = u128::BITS - product.leading_zeros();
            for (base_bits, dropped_bits) in [(2, 0), (5, 3), (11, 20), (18, 0), (26, 7), (50, 0)] {
                let digits = (modulus_bits.saturating_sub(dropped_bits)).div_ceil(base_bits);
                let spec = GadgetSpec { digits: digits as usize, base_bits, dropped_bits };
                let Ok(gadget) = Gadget::new(spec, modulus_bits) else { continue };
                for degree in [8, 16, 36] {
                    let edges = [0, 1, product / 2, product / 2 + 1, product - 1];
                    let mut values = Vec::new();
                    for &modulus in &moduli {
                        let mut limb = residues(&mut rng, modulus, degree);
                        for (value, edge) in limb.iter_mut().zip(edges) {
                            *value = (edge % u128::from(modulus.value())) as u64;
                        }
                        values.extend(limb);
                    }
                    compare(
                        &format!("{} {spec:?} of {primes:?}", kernel.isa()),
                        &vec![0; values.len() * gadget.digits()],
                        |out| kernel.decompose(gadget, &crt, &values, out),
                        |out| portable::decompose(gadget, &crt, &values, out),
                    );
                }
            }
        }
    }
}

/// Two doubles by plain arithmetic: what NEON computes, on every machine.
#[derive(Clone, Copy)]
struct Pair([f64; 2]);

impl Pair {
    fn zip(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self([f(self.0[0], other.0[0]), f(self.0[1], other.0[1])])
    }
}

impl float::Floats for Pair {
    const LANES: usize = 2;

    fn splat(x: f64) -> Self {
        Self([x; 2])
    }

    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: two doubles, as the caller promises.
        Self(unsafe { from.cast::<[f64; 2]>().read_unaligned() })
    }

    unsafe fn load_integers(from: *const u64) -> Self {
        // SAFETY: two integers, as the caller promises.
        Self(unsafe { from.cast::<[u64; 2]>().read_unaligned() }.map(|x| x as f64))
    }

    unsafe fn store(self, to: *mut f64) {
        // SAFETY: room for two doubles, as the caller promises.
        unsafe { to.cast::<[f64; 2]>().write_unaligned(self.0) }
    }

    unsafe fn store_integers(self, to: *mut u64) {
        // SAFETY: room for two integers, as the caller promises.
        unsafe { to.cast::<[u64; 2]>().write_unaligned(self.0.map(|x| x as u64)) }
    }

    fn add(self, other: Self) -> Self {
        self.zip(other, |x, y| x + y)
    }

    fn sub(self, other: Self) -> Self {
        self.zip(other, |x, y| x - y)
    }

    fn mul(self, other: Self) -> Self {
        self.zip(other, |x, y| x * y)
    }

    fn mul_sub(self, other: Self, less: Self) -> Self {
        Self([0, 1].map(|i| self.0[i].mul_add(other.0[i], -less.0[i])))
    }

    fn mul_from(self, other: Self, more: Self) -> Self {
        Self([0, 1].map(|i| (-self.0[i]).mul_add(other.0[i], more.0[i])))
    }

    fn round(self) -> Self {
        Self(self.0.map(f64::round_ties_even))
    }

    fn period_if_negative(self, period: Self) -> Self {
        self.zip(period, |x, period| if x < 0.0 { period } else { 0.0 })
    }

    fn interleave(self, other: Self) -> (Self, Self) {
        (Self([self.0[0], other.0[0]]), Self([self.0[1], other.0[1]]))
    }

    fn separate(self, other: Self) -> (Self, Self) {
        self.interleave(other)
    }
}

#[test]
fn two_doubles_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(6);
    for degree in [8, 16, 32, 1024] {
        for modulus in moduli(degree) {
            let table = NttTable::new(modulus, degree).unwrap();
            let [x, y] = [(); 2].map(|()| residues(&mut rng, modulus, degree));
            let name = format!("N = {degree} q = {}", modulus.value());
            let slack = Slack::of(&table);
            compare(
                &format!("forward {name}"),
                &x,
                |x| match slack {
                    Slack::AMPLE => float::forward::<Pair, { Slack::AMPLE }>(&table, x),
                    Slack::SOME => float::forward::<Pair, { Slack::SOME }>(&table, x),
                    _ => float::forward::<Pair, { Slack::LITTLE }>(&table, x),
                },
                |x| portable::forward(&table, x),
            );
            compare(
                &format!("inverse {name}"),
                &x,
                |x| match slack {
                    Slack::AMPLE => float::inverse::<Pair, { Slack::AMPLE }>(&table, x),
                    Slack::SOME => float::inverse::<Pair, { Slack::SOME }>(&table, x),
                    _ => float::inverse::<Pair, { Slack::LITTLE }>(&table, x),
                },
                |x| portable::inverse(&table, x),
            );
            compare(
                &format!("mul {name}"),
                &x,
                |x| float::mul_assign::<Pair>(modulus, x, &y),
                |x| portable::mul_assign(modulus, x, &y),
            );
        }
    }
}

#[test]
fn columns_agree_with_the_specification() {
    let mut rng = ChaCha12Rng::seed_from_u64(9);
    for kernel in kernels() {
        for bits in [16, 37, 52, 53, 64] {
            for (rows, taps) in [(0, 3), (1, 0), (1, 1), (5, 7), (6, 9), (13, 40)] {
                let stride = taps + rng.random_range(0..3usize);
                let edge = |rng: &mut ChaCha12Rng| match rng.random_range(0..4u32) {
                    0 => i32::MIN,
                    1 => i32::MAX,
                    _ => rng.random(),
                };
                let weights: Vec<_> = (0..rows * stride).map(|_| edge(&mut rng)).collect();
                let columns: Vec<[u64; COLUMNS]> = (0..taps).map(|_| rng.random()).collect();
                let mut found: Vec<[u64; COLUMNS]> = (0..rows).map(|_| rng.random()).collect();
                let mut expected = found.clone();
                kernel.add_columns(bits, &weights, stride, &columns, &mut found);
                portable::add_columns(&weights, stride, &columns, &mut expected);
                let low = |rows: &[[u64; COLUMNS]]| -> Vec<u64> {
                    rows.iter().flatten().map(|value| value << (64 - bits)).collect()
                };
                assert_eq!(low(&found), low(&expected), "{} {bits} {rows} {taps}", kernel.isa());
            }
        }
    }
}
