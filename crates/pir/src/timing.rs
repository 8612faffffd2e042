//! Is the time of clients and kernels independent of secrets? By [`hushtable_prg::timing`].

use std::hint::black_box;

use hushtable_prg::timing::T_MAX;
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ring::{NoiseSource, Ring};
use hushtable_table::Version;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::TableShape;
use crate::dpf::{Domain, Group, KeyPair};
use crate::kernel::{BLOCK_GROUPS, Kernel, LANES, UNIT_BYTES};
use crate::onion::{Client, Geometry, ParameterSet};

/// [`hushtable_prg::timing::leakage`] between classes of a fixed seed.
fn leakage<S>(
    samples: usize,
    state: &mut S,
    prepare: impl Fn(&mut S, bool),
    run: impl Fn(&mut S),
) -> f64 {
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    hushtable_prg::timing::leakage(samples, state, || rng.random(), prepare, run)
}

#[test]
fn key_generation_takes_the_same_time_for_every_index() {
    let rows = 1 << 20;
    for group in Group::ALL {
        let domain = Domain::new(rows, group).unwrap();
        for prg in [PrgKind::Aes128, PrgKind::ChaCha20] {
            let prg = Prg::new(prg, Platform::detect());
            let seeds = [[3; 16], [4; 16]];
            // The shallowest contrast: all path bits zero against all one.
            let mut index = 0;
            let t = leakage(
                4000,
                &mut index,
                |index, class| *index = u64::from(class) * (rows - 1),
                |index| {
                    black_box(KeyPair::from_seeds(prg, domain, *index, &seeds).ok());
                },
            );
            assert!(t < T_MAX, "{group:?}: |t| = {t}");
        }
    }
}

#[test]
fn the_answer_kernels_take_the_same_time_for_every_share() {
    let tile = vec![0xA5; BLOCK_GROUPS * 4 * UNIT_BYTES];
    let shares = [[0u8; 64], [0xFF; 64]];
    for platform in Platform::available() {
        let kernel = Kernel::new(platform);
        let mut state = (vec![0; 4 * UNIT_BYTES], [0; 64]);
        let t = leakage(
            4000,
            &mut state,
            |(_, secret), class| *secret = shares[usize::from(class)],
            |(sums, secret)| kernel.scan(&tile, &[], 4, secret, sums),
        );
        assert!(t < T_MAX, "{} scan: |t| = {t}", kernel.name());
        let operands = shares.map(|shares| {
            let mut operand = vec![0; kernel.operand_bytes()];
            kernel.pack(&[&shares; LANES], &mut operand);
            operand
        });
        let mut state = (vec![0; 4 * UNIT_BYTES], vec![0; kernel.operand_bytes()]);
        let t = leakage(
            4000,
            &mut state,
            |(_, secret), class| secret.copy_from_slice(&operands[usize::from(class)]),
            |(sums, secret)| kernel.multiply(&tile, &[], 4, secret, sums),
        );
        assert!(t < T_MAX, "{} multiply: |t| = {t}", kernel.name());
    }
}

#[test]
fn a_scan_that_skips_zero_shares_is_caught() {
    let tile = vec![0xA5u8; 64 * 1024];
    let t = leakage(
        4000,
        &mut false,
        |secret, class| *secret = class,
        |secret| {
            let mut sum = 0u8;
            for (row, group) in tile.chunks_exact(1024).enumerate() {
                // What Google's inner product does: rows whose bit is 0 are not read.
                if black_box(*secret) || row % 2 == 0 {
                    sum ^= group.iter().fold(0, |sum, byte| sum ^ black_box(*byte));
                }
            }
            black_box(sum);
        },
    );
    assert!(t > T_MAX, "the planted leak went unseen: |t| = {t}");
}

/// A source, from the seed of the shortest draws among many or from a random one: what a sampler
/// whose time depends on what it draws tells apart best.
struct Draws {
    source: NoiseSource,
    shortest: [u8; 32],
    seeds: ChaCha12Rng,
}

impl Draws {
    fn new(ring: &Ring) -> Self {
        let mut seeds = ChaCha12Rng::seed_from_u64(6);
        let magnitudes = |seed: &[u8; 32]| {
            let poly = NoiseSource::from_seed(seed).gaussian(ring);
            let modulus = ring.modulus(0);
            poly.limb(0).iter().map(|&x| modulus.to_signed(x).unsigned_abs()).sum::<u64>()
        };
        let shortest = (0..300).map(|_| seeds.random()).min_by_key(magnitudes).unwrap();
        Self { source: NoiseSource::from_seed(&shortest), shortest, seeds }
    }

    fn prepare(&mut self, class: bool) {
        let random: [u8; 32] = self.seeds.random();
        let seed = [self.shortest, random][usize::from(class)];
        self.source = NoiseSource::from_seed(&seed);
    }
}

#[test]
fn noise_takes_the_same_time_whatever_is_drawn() {
    let params = ParameterSet::N256Test.parameters();
    let ring = params.ring();
    let mut draws = Draws::new(ring);
    let t = leakage(2000, &mut draws, Draws::prepare, |draws| {
        black_box(draws.source.gaussian(ring));
    });
    assert!(t < T_MAX, "gaussian: |t| = {t}");
    let t = leakage(4000, &mut draws, Draws::prepare, |draws| {
        black_box(draws.source.ternary(ring));
    });
    assert!(t < T_MAX, "ternary: |t| = {t}");
}

#[test]
fn a_sampler_that_stops_at_its_draw_is_caught() {
    let params = ParameterSet::N256Test.parameters();
    let ring = params.ring();
    let mut draws = Draws::new(ring);
    let modulus = ring.modulus(0);
    let mut magnitudes: Vec<u64> = Vec::new();
    let t = leakage(
        2000,
        &mut (&mut draws, &mut magnitudes),
        |(draws, magnitudes), class| {
            draws.prepare(class);
            let poly = draws.source.gaussian(ring);
            let values = poly.limb(0).iter().map(|&x| modulus.to_signed(x).unsigned_abs());
            magnitudes.clear();
            magnitudes.extend(values);
        },
        // What walks a table of thresholds up to the one that is met does.
        |(_, magnitudes)| {
            for &magnitude in magnitudes.iter() {
                let mut at = 0;
                while black_box(at) < magnitude {
                    at += 1;
                }
            }
        },
    );
    assert!(t > T_MAX, "the planted leak went unseen: |t| = {t}");
}

#[test]
fn encryption_takes_the_same_time_for_every_secret_and_error() {
    let params = ParameterSet::N256Test.parameters();
    let ring = params.ring();
    let secret = SecretKey::draw(params.ring(), &mut NoiseSource::from_seed(&[1; 32]));
    let mut state = (Draws::new(ring), secret);
    let message = ring.zero();
    let t = leakage(
        2000,
        &mut state,
        |(draws, secret), class| {
            draws.prepare(class);
            *secret = SecretKey::draw(params.ring(), &mut draws.source);
            draws.prepare(class);
        },
        // One mask for all: its time depends on its seed, which is public.
        |(draws, secret)| {
            black_box(secret.encrypt(ring, &[2; 32], 0, &message, &mut draws.source));
        },
    );
    assert!(t < T_MAX, "|t| = {t}");
}

#[test]
fn a_single_server_query_takes_the_same_time_for_every_id() {
    let shape = TableShape::new(2_000, 64).unwrap();
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 5).unwrap();
    let client = Client::new(geometry, Version::from([0; 32])).unwrap();
    // Everything is in the id: every query has the same randomness, masks and their time included.
    let mut state = ([0], NoiseSource::from_seed(&[3; 32]), ChaCha12Rng::seed_from_u64(7));
    let prepare = |(id, source, ids): &mut ([u64; 1], NoiseSource, ChaCha12Rng), class: bool| {
        let random = ids.random_range(0..2_000);
        id[0] = [0, random][usize::from(class)];
        *source = NoiseSource::from_seed(&[3; 32]);
    };
    let t = leakage(2000, &mut state, prepare, |(id, source, _)| {
        black_box(client.query_from(id, 1, source));
    });
    assert!(t < T_MAX, "|t| = {t}");
    // What scales items up to the wanted one, and stops there.
    let t = leakage(2000, &mut state, prepare, |(id, source, _)| {
        black_box(client.query_from(id, 1, source));
        let geometry = client.geometry();
        let place = geometry.place(id[0]);
        let wanted = place.column * geometry.rows() as u64 + place.row as u64;
        for item in 0..black_box(wanted) {
            black_box(geometry.params().ring().modulus(0).inv(black_box(item + 1)));
        }
    });
    assert!(t > T_MAX, "the planted leak went unseen: |t| = {t}");
}

#[test]
fn responses_are_read_in_the_same_time_for_every_id_and_secret() {
    let shape = TableShape::new(2_000, 64).unwrap();
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 5).unwrap();
    let version = Version::from([0; 32]);
    let responses = vec![0x5A; geometry.response_bytes()];
    let lookup = |seed: &[u8; 32], id: u64| {
        let mut source = NoiseSource::from_seed(seed);
        let client = Client::draw(geometry.clone(), version, &mut source);
        let (_, pending) = client.query_from(&[id], 1, &mut source);
        (client, pending)
    };
    let mut state = (lookup(&[4; 32], 0), ChaCha12Rng::seed_from_u64(8));
    let t = leakage(
        600,
        &mut state,
        |(state, random), class| {
            let drawn = (random.random(), random.random_range(0..2_000));
            let (seed, id) = [([4; 32], 0), drawn][usize::from(class)];
            *state = lookup(&seed, id);
        },
        |((client, pending), _)| {
            black_box(client.decode(pending, version, &responses).ok());
        },
    );
    assert!(t < T_MAX, "|t| = {t}");
}
