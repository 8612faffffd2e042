//! Honest proofs pass, others do not, and neither says anything.

use hushtable_ring::{NoiseSource, Platform};

use super::*;
use crate::Error;
use crate::linear::{Client, Errors, PublicKey, Upload};
use crate::pack::{pack_poly, poly_bytes, unpack_poly};

/// A client's batch: the public key and some uploads.
struct Batch {
    parameters: Parameters,
    client: Client,
    source: NoiseSource,
    key: PublicKey,
    key_errors: Errors,
    plain: Vec<Vec<u64>>,
    bytes: Vec<Vec<u8>>,
    errors: Vec<Errors>,
}

const ROW_SEED: [u8; 32] = [7; 32];
const CHALLENGE_SEED: [u8; 32] = [9; 32];

impl Batch {
    fn new(name: &str, bits: u32, count: usize) -> Self {
        let parameters = Parameters::new(name, bits, Platform::detect()).unwrap();
        let mut source = NoiseSource::from_seed(&[bits as u8; 32]);
        let client = Client::draw(parameters.clone(), &mut source);
        let (key, key_errors) = client.public_key_and_errors(&mut source);
        let key = PublicKey::read(&parameters, &key).unwrap();
        let (mut plain, mut bytes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for index in 1..=count as u64 {
            let mut values = vec![0; parameters.degree()];
            source.words(&mut values);
            values.iter_mut().for_each(|value| *value >>= 64 - bits);
            let mut own = Vec::new();
            errors.push(client.encrypt(index, &values, &mut source, &mut own));
            plain.push(values);
            bytes.push(own);
        }
        Self { parameters, client, source, key, key_errors, plain, bytes, errors }
    }

    fn uploads(&self) -> Vec<Upload> {
        let read = |(index, bytes): (u64, &Vec<u8>)| {
            self.key.upload(&self.parameters, index, bytes).unwrap()
        };
        (1..).zip(&self.bytes).map(read).collect()
    }

    fn prover(&mut self) -> Prover {
        let columns = 1 + self.plain.len();
        let mut prover = Prover::new(&self.client, columns, &ROW_SEED, &mut self.source);
        prover.add(&self.client, 0, None, &self.key_errors);
        for ((index, plain), errors) in (1..).zip(&self.plain).zip(&self.errors) {
            prover.add(&self.client, index, Some(plain), errors);
        }
        prover
    }

    /// What the server says of the proof that the honest client makes of this batch.
    fn prove(&mut self) -> Result<(), Error> {
        let mut prover = self.prover();
        let verifier = self.verifier(&prover.commit());
        (0..ROWS).try_for_each(|row| {
            verifier.check(&CHALLENGE_SEED, row, &prover.respond(&CHALLENGE_SEED, row)?)
        })
    }

    fn verifier(&self, commitment: &[u8]) -> Verifier {
        let uploads = self.uploads();
        let uploads: Vec<_> = uploads.iter().collect();
        Verifier::new(&self.parameters, &self.key, &uploads, &ROW_SEED, commitment).unwrap()
    }

    /// Adds a multiple of Q / 2^`bits` to the coefficients of an upload.
    fn add_fractions(&mut self, upload: usize, bits: u32, numbers: &[u64]) {
        let fine = Parameters::new("linear_8192", bits, Platform::detect()).unwrap();
        let ring = self.parameters.ring();
        let mut body = unpack_poly("upload", ring, &mut self.bytes[upload].as_slice()).unwrap();
        let added = ring.forward(fine.encode(numbers));
        ring.add_assign(&mut body, &added);
        self.bytes[upload].clear();
        pack_poly(ring, &body, &mut self.bytes[upload]);
        assert_eq!(self.bytes[upload].len(), poly_bytes(ring));
    }
}

#[test]
fn honest_uploads_are_always_proven() {
    for (name, bits, count) in [
        ("linear_8192_verified", 16, 1),
        ("linear_8192_verified", 37, 5),
        ("linear_8192_verified", 32, 2),
        ("linear_8192_verified", 33, 2),
        ("linear_8192_4_verified", 48, 2),
        ("linear_8192_4_verified", 62, 2),
        ("linear_8192_verified", 40, 0),
    ] {
        Batch::new(name, bits, count).prove().unwrap();
    }
}

#[test]
fn fractions_of_a_step_are_refused() {
    // Eighths of a step: what is left of them in an answer is hidden by nothing.
    let mut batch = Batch::new("linear_8192_verified", 37, 3);
    let mut numbers = vec![0; batch.parameters.degree()];
    numbers[5] = 1;
    batch.add_fractions(1, 40, &numbers);
    let found = batch.prove().unwrap_err();
    assert!(matches!(found, Error::Unproven { row: 0, .. }), "{found}");
    // In the public key.
    let mut batch = Batch::new("linear_8192_verified", 37, 1);
    let ring = batch.parameters.ring().clone();
    let fine = Parameters::new("linear_8192", 40, Platform::detect()).unwrap();
    let added = ring.forward(fine.encode(&numbers));
    ring.add_assign(&mut batch.key.zero.body, &added);
    assert!(matches!(batch.prove(), Err(Error::Unproven { .. })));
}

#[test]
fn uploads_under_another_secret_are_refused() {
    let mut batch = Batch::new("linear_8192_verified", 37, 2);
    let parameters = batch.parameters.clone();
    let other = Client::draw(parameters, &mut NoiseSource::from_seed(&[77; 32]));
    let mut own = Vec::new();
    let plain = batch.plain[1].clone();
    batch.errors[1] = other.encrypt(2, &plain, &mut batch.source, &mut own);
    batch.bytes[1] = own;
    assert!(matches!(batch.prove(), Err(Error::Unproven { .. })));
}

#[test]
fn every_part_of_an_answer_counts() {
    let mut batch = Batch::new("linear_8192_verified", 37, 2);
    let mut prover = batch.prover();
    let commitment = prover.commit();
    let verifier = batch.verifier(&commitment);
    let answer = prover.respond(&CHALLENGE_SEED, 3).unwrap();
    assert_eq!(answer.len(), response_bytes(&batch.parameters, 3));
    verifier.check(&CHALLENGE_SEED, 3, &answer).unwrap();
    // One bit of the candidate, the salt, the secret, the errors, the numbers' halves.
    let bounds = Bounds::new(8192, 3);
    let secrets = 33 + packed_bytes(8192, bounds.secret_mask_log2 + 1);
    let errors = secrets + packed_bytes(8192, bounds.error_mask_log2 + 1);
    for at in [0, 1, 40, secrets + 4, errors + 4, answer.len() - 1] {
        let mut changed = answer.clone();
        changed[at] ^= 1;
        let found = verifier.check(&CHALLENGE_SEED, 3, &changed);
        assert!(matches!(found, Err(Error::Unproven { row: 3, .. })), "byte {at}");
    }
    // Another row's, another challenge's, other bytes committed to, other lengths.
    assert!(verifier.check(&CHALLENGE_SEED, 4, &answer).is_err());
    assert!(verifier.check(&ROW_SEED, 3, &answer).is_err());
    let other = batch.verifier(&vec![0; COMMITMENT_BYTES]);
    assert!(other.check(&CHALLENGE_SEED, 3, &answer).is_err());
    for length in [0, 1, answer.len() - 1] {
        let found = verifier.check(&CHALLENGE_SEED, 3, &answer[..length]);
        assert!(matches!(found, Err(Error::Bytes { .. })));
    }
    let uploads = batch.uploads();
    let uploads: Vec<_> = uploads.iter().collect();
    let short = Verifier::new(&batch.parameters, &batch.key, &uploads, &ROW_SEED, &[]);
    assert!(matches!(short.err(), Some(Error::Bytes { .. })));
}

#[test]
fn large_secrets_and_errors_are_refused() {
    // All that a dishonest client may put there, with the hash that belongs to it.
    let mut batch = Batch::new("linear_8192_verified", 20, 1);
    let commitment = batch.prover().commit();
    let verifier = batch.verifier(&commitment);
    let bounds = Bounds::new(8192, 2);
    let mut answer = vec![0; response_bytes(&batch.parameters, 2)];
    let found = verifier.check(&CHALLENGE_SEED, 0, &answer).unwrap_err().to_string();
    assert!(found.contains("its secret is too large"), "{found}");
    // Every secret 1, which is the least that leaves 1 to the end.
    let ones = vec![1; 8192];
    let mut packed = Vec::new();
    crate::pack::pack(&ones, bounds.secret_mask_log2 + 1, &mut packed);
    answer[33..33 + packed.len()].copy_from_slice(&packed);
    let found = verifier.check(&CHALLENGE_SEED, 0, &answer).unwrap_err().to_string();
    assert!(found.contains("its errors are too large"), "{found}");
    // The most that anything passed can be leaves a flood 2^40 above what weights make of it.
    let most = verified_noise_log2(8192, 257, f64::from(1 << 24));
    assert!((62.0..66.0).contains(&most), "{most}");
    assert!(most < batch.parameters.noise_log2_max());
}

#[test]
fn answers_are_as_likely_whatever_is_masked() {
    // All masks of few bits, exhaustively: what is sent is each value of one range, once, for every secret.
    let (most, log2) = (5u64, 6);
    for own in -(most as i64)..=most as i64 {
        let mut sent = Vec::new();
        for mask in -(1i64 << log2)..1 << log2 {
            let mut out = Vec::new();
            if prover::offset(mask, own, most, log2, &mut out) {
                sent.extend(out);
            }
        }
        assert_eq!(sent, (most..(2 << log2) - most).collect::<Vec<_>>(), "{own}");
    }
    let mut out = Vec::new();
    assert!(!prover::offset(0, most as i64 + 1, most, log2, &mut out));
}

#[test]
fn masks_are_seldom_too_narrow() {
    // Of 40 candidates one is no good with a chance of half; of one row's four all are with 2^-24.
    let mut batch = Batch::new("linear_8192_verified", 20, 1);
    let prover = batch.prover();
    let answers = (0..ROWS).map(|row| prover.respond(&CHALLENGE_SEED, row).unwrap()[0]);
    assert!(answers.filter(|&candidate| candidate == 0).count() >= ROWS - 3);
}
