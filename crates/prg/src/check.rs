//! The checker that every backend's test calls.

use crate::{Platform, Prg, PrgKind, Tier};

/// Node counts around every backend's group sizes (1, 2, 4, 8, 16 and 32 nodes).
const COUNTS: [usize; 26] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 31, 32, 33, 47, 63, 64, 65, 127, 200,
];

/// What stands beyond a backend's output, and must stay.
const GUARD: u128 = 0x5a5a_5a5a_5a5a_5a5a_a5a5_a5a5_a5a5_a5a5;

/// Compares `kind` on `tier` with the portable path. Says so and returns where the machine lacks the tier.
pub(crate) fn agrees_with_portable(kind: PrgKind, tier: Tier) {
    let Some(platform) = Platform::available().into_iter().find(|p| p.tier() == tier) else {
        eprintln!("this machine has no {tier:?}: nothing to compare");
        return;
    };
    let prg = Prg::new(kind, platform);
    functions_agree_with_portable(
        kind,
        &format!("{tier:?}"),
        |nodes, correction, children| prg.expand(nodes, correction, children),
        |nodes, correction, leaves| prg.convert(nodes, correction, leaves),
    );
}

/// Compares `kind`, as two functions named `name` compute it, with the portable path, bit for bit, over [`COUNTS`];
/// also that nothing is written beyond the output.
pub(crate) fn functions_agree_with_portable(
    kind: PrgKind,
    name: &str,
    expand: impl Fn(&[u128], &[u128; 2], &mut [u128]),
    convert: impl Fn(&[u128], &[u128; 4], &mut [u128]),
) {
    let specification = Prg::new(kind, Platform::PORTABLE);
    let mut draw = generator();
    for count in COUNTS {
        let nodes: Vec<u128> = (0..count).map(|_| draw()).collect();
        let correction = [draw(), draw()];
        let mut expected = vec![GUARD; 2 * count];
        specification.expand(&nodes, &correction, &mut expected);
        let mut children = vec![GUARD; 2 * count + 8];
        expand(&nodes, &correction, &mut children[4..2 * count + 4]);
        assert_eq!(children[4..][..2 * count], expected, "{kind} {name} expand {count}");
        assert_guards(&children);

        let correction = [draw(), draw(), draw(), draw()];
        let mut expected = vec![GUARD; 4 * count];
        specification.convert(&nodes, &correction, &mut expected);
        let mut leaves = vec![GUARD; 4 * count + 8];
        convert(&nodes, &correction, &mut leaves[4..4 * count + 4]);
        assert_eq!(leaves[4..][..4 * count], expected, "{kind} {name} convert {count}");
        assert_guards(&leaves);
    }
}

fn assert_guards(out: &[u128]) {
    assert_eq!(out[..4], [GUARD; 4], "written before the output");
    assert_eq!(out[out.len() - 4..], [GUARD; 4], "written behind the output");
}

/// Reproducible test input (SplitMix64), control bits mixed.
pub(crate) fn generator() -> impl FnMut() -> u128 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut half = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    move || u128::from(half()) << 64 | u128::from(half())
}
