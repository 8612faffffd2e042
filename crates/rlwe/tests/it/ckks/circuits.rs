//! Circuits on ciphertexts, in the clear and simulated: equal values, levels and scales, equal errors.

use hushtable_rlwe::ckks::{
    Approximation, Basis, Ciphertext, Clear, Diagonals, Encrypted, Error, Evaluate, Parameters,
    Polynomial, Simulated, Split,
};

use super::fixtures::{Client, deviation, largest_error, numbers, parameters};

/// What the implementations differ in: how a vector comes to be.
trait World {
    type Evaluator: Evaluate;
    fn start(
        &mut self,
        values: &[f64],
        level: usize,
    ) -> (&mut Self::Evaluator, <Self::Evaluator as Evaluate>::Ciphertext);
}

struct InClear(Clear);

impl World for InClear {
    type Evaluator = Clear;
    fn start(
        &mut self,
        values: &[f64],
        level: usize,
    ) -> (&mut Clear, <Clear as Evaluate>::Ciphertext) {
        let scale = self.0.parameters().scale();
        let vector = self.0.vector(values, level, scale).unwrap();
        (&mut self.0, vector)
    }
}

struct InSimulation(Simulated);

impl World for InSimulation {
    type Evaluator = Simulated;
    fn start(
        &mut self,
        values: &[f64],
        level: usize,
    ) -> (&mut Simulated, <Simulated as Evaluate>::Ciphertext) {
        let scale = self.0.parameters().scale();
        let vector = self.0.vector(values, level, scale).unwrap();
        (&mut self.0, vector)
    }
}

struct InCiphertexts<'a>(&'a mut Client, Encrypted<'a>);

impl<'a> World for InCiphertexts<'a> {
    type Evaluator = Encrypted<'a>;
    fn start(
        &mut self,
        values: &[f64],
        level: usize,
    ) -> (&mut Encrypted<'a>, <Encrypted<'a> as Evaluate>::Ciphertext) {
        let ciphertext = self.0.encrypt(values, level);
        (&mut self.1, ciphertext)
    }
}

const STEPS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Runs `work` on the three implementations, with keys for `STEPS`.
macro_rules! on_all {
    ($params:expr, $work:expr) => {{
        let params: &Parameters = $params;
        let mut client = Client::new(params, 40);
        let keys = client.keys(&STEPS);
        let encoder = client.encoder.clone();
        let clear = Clear::with_rotations(params, STEPS);
        (
            $work(&mut InClear(clear.clone())),
            $work(&mut InSimulation(Simulated::new(clear, &[5; 32]))),
            $work(&mut InCiphertexts(&mut client, Encrypted::new(&encoder, &keys))),
        )
    }};
}

/// Every misuse of every operation, and what is said of it.
fn misuses<W: World>(world: &mut W) -> Vec<String> {
    let (_, mut x) = world.start(&[0.5], 3);
    let (_, lower) = world.start(&[0.5], 2);
    let (e, last) = world.start(&[0.5], 0);
    let scale = e.scale(&x);
    let mut errors = Vec::new();
    let mut expect = |result: Result<(), Error>| {
        errors.push(result.expect_err("a misuse").to_string());
    };
    let mut louder = x.clone();
    e.multiply_constant(&mut louder, 1.0, 1.5).unwrap();
    expect(e.add_assign(&mut x, &lower));
    expect(e.sub_assign(&mut x, &lower));
    expect(e.add_assign(&mut x, &louder));
    expect(e.sub_assign(&mut x, &louder));
    for (level, scale) in [(2, scale), (3, 1.5 * scale)] {
        let plain = e.encode(&[1.0, 2.0], level, scale).unwrap();
        expect(e.add_plain(&mut x, &plain));
    }
    let plain = e.encode(&[1.0], 2, scale).unwrap();
    expect(e.multiply_plain(&mut x, &plain));
    for value in [f64::NAN, f64::INFINITY, 1e30] {
        expect(e.add_constant(&mut x, value));
        expect(e.multiply_constant(&mut x, value, scale));
        expect(e.encode(&[0.0, value], 3, scale).map(|_| ()));
    }
    expect(e.encode(&[0.0], 4, scale).map(|_| ()));
    expect(e.encode(&[0.0; 3], 3, scale).map(|_| ()));
    expect(e.encode(&[0.0], 3, 0.25).map(|_| ()));
    expect(e.multiply(&x, &lower).map(|_| ()));
    // 2^160 fits 170 bits of modulus; 2^200 does not, nor 2^160 a limb lower.
    let square = e.square(&x).unwrap();
    let mut fourth = e.square(&square).unwrap();
    expect(e.multiply(&fourth, &x).map(|_| ()));
    expect(e.square(&fourth).map(|_| ()));
    expect(e.multiply_constant(&mut fourth, 1.0, scale));
    let plain = e.encode(&[1.0], 3, scale).unwrap();
    expect(e.multiply_plain(&mut fourth, &plain));
    expect(e.drop_to(&mut fourth, 2));
    expect(e.drop_to(&mut last.clone(), 1));
    expect(e.rescale(&mut last.clone()));
    expect(e.square_rescale(&last).map(|_| ()));
    expect(e.rotate(&x, 3).map(|_| ()));
    expect(e.rotate_many(&x, &[1, 5]).map(|_| ()));
    expect(e.fold(&mut x.clone(), 3, 4));
    // Maps of other slots, levels and scales; rotations without a key, as baby and as giant step.
    let slots = e.parameters().slots();
    let map = |steps: usize, value: f64| {
        let mut map = Diagonals::new(slots);
        map.insert(steps, vec![value]).unwrap();
        map
    };
    let split = Split::new(4);
    expect(e.prepare(&Diagonals::new(slots / 2), split, 3, scale).map(|_| ()));
    expect(e.prepare(&map(0, 1e30), split, 3, scale).map(|_| ()));
    expect(e.prepare(&map(0, 1.0), split, 4, scale).map(|_| ()));
    expect(e.prepared_bytes(&Diagonals::new(slots / 2), split, 3).map(|_| ()));
    expect(e.prepared_bytes(&Diagonals::new(slots), split, 4).map(|_| ()));
    let whole = e.prepare(&map(4, 1.0), split, 3, scale).unwrap();
    let low = e.prepare(&map(4, 1.0), split, 2, scale).unwrap();
    let loud = e.prepare(&map(4, 1.0), split, 3, 1.5 * scale).unwrap();
    let baby = e.prepare(&map(3, 1.0), split, 3, scale).unwrap();
    let giant = e.prepare(&map(12, 1.0), split, 3, scale).unwrap();
    expect(e.transform(&[&low], &[&x]).map(|_| ()));
    expect(e.transform(&[&whole, &low], &[&x, &x]).map(|_| ()));
    expect(e.transform(&[&whole, &loud], &[&x, &x]).map(|_| ()));
    expect(e.transform(&[&whole, &whole], &[&x, &lower]).map(|_| ()));
    expect(e.transform(&[&whole, &whole], &[&x, &louder]).map(|_| ()));
    expect(e.transform(&[&baby], &[&x]).map(|_| ()));
    expect(e.transform(&[&giant], &[&x]).map(|_| ()));
    expect(e.transform(&[&whole], &[&fourth]).map(|_| ()));
    let polynomial = Polynomial::new(Basis::Monomial, vec![1.0; 9]).unwrap();
    expect(polynomial.evaluate(e, &x, 0, scale).map(|_| ()));
    errors
}

#[test]
fn every_implementation_refuses_the_same_with_the_same_words() {
    let (clear, simulated, encrypted) = on_all!(&parameters(128, 40, 3), |w: &mut _| misuses(w));
    assert_eq!(clear.len(), 45);
    assert_eq!(clear, simulated);
    assert_eq!(clear, encrypted);
}

/// A circuit with everything in it: layers, folds, an activation, a sum of two maps.
fn circuit<W: Open>(world: &mut W, a: &[f64], b: &[f64]) -> (usize, f64, W::Output) {
    let (_, x) = world.start(a, 6);
    let (e, y) = world.start(b, 6);
    let slots = e.parameters().slots();
    let scale = e.parameters().scale();
    let mut maps = [Diagonals::new(slots), Diagonals::new(slots)];
    for (index, steps) in [0, 1, 2, 8, 9, 16, 33, 34].into_iter().enumerate() {
        let values = numbers(steps as u8 + 50, 1 << (index % 6));
        maps[index % 2].insert(steps, values.iter().map(|v| v / 8.0).collect()).unwrap();
    }
    let prime = e.parameters().modulus(6).value() as f64;
    let split = Split::new(4);
    let maps = maps.map(|map| e.prepare(&map, split, 6, prime).unwrap());
    let mut sum = e.transform_rescale(&[&maps[0], &maps[1]], &[&x, &y]).unwrap();
    // What the activation gets is from −1 to 1: beyond, its polynomial and every error grow fast.
    let bias: Vec<f64> = numbers(60, 16).iter().map(|value| value / 4.0).collect();
    let bias = e.encode(&bias, 5, scale).unwrap();
    e.add_plain(&mut sum, &bias).unwrap();
    let silu = Approximation::silu(15, 4.0).unwrap();
    let mut out = silu.evaluate(e, &sum, 1, scale).unwrap();
    e.fold(&mut out, 1, 8).unwrap();
    let turned = e.rotate(&out, 16).unwrap();
    e.sub_assign(&mut out, &turned).unwrap();
    let mut out = e.square_rescale(&out).unwrap();
    e.add_constant(&mut out, -0.25).unwrap();
    let (level, scale) = (e.level(&out), e.scale(&out));
    (level, scale, world.open(out))
}

/// The numbers of a vector, and beside a simulated one those it would have without noise.
trait Open: World {
    type Output;
    fn open(&self, x: <Self::Evaluator as Evaluate>::Ciphertext) -> Self::Output;
}

impl Open for InClear {
    type Output = Vec<f64>;
    fn open(&self, x: <Clear as Evaluate>::Ciphertext) -> Vec<f64> {
        x.values().to_vec()
    }
}

impl Open for InSimulation {
    type Output = [Vec<f64>; 2];
    fn open(&self, x: <Simulated as Evaluate>::Ciphertext) -> [Vec<f64>; 2] {
        [x.exact().to_vec(), x.values().to_vec()]
    }
}

impl<'a> Open for InCiphertexts<'a> {
    type Output = Vec<f64>;
    fn open(&self, x: <Encrypted<'a> as Evaluate>::Ciphertext) -> Vec<f64> {
        self.0.decrypt(&x)
    }
}

#[test]
fn circuits_are_equal_and_as_precise_as_is_predicted() {
    let params = parameters(1 << 11, 42, 6);
    let (a, b) = (numbers(1, 1024), numbers(2, 256));
    let mut client = Client::new(&params, 41);
    let keys = client.keys(&STEPS);
    let encoder = client.encoder.clone();
    let clear = Clear::with_rotations(&params, STEPS);
    let exact = circuit(&mut InClear(clear.clone()), &a, &b);
    let simulated = circuit(&mut InSimulation(Simulated::new(clear, &[6; 32])), &a, &b);
    let mut world = InCiphertexts(&mut client, Encrypted::new(&encoder, &keys));
    let encrypted = circuit(&mut world, &a, &b);
    assert_eq!((exact.0, exact.1), (simulated.0, simulated.1));
    assert_eq!(exact.0, encrypted.0);
    assert!((exact.1 / encrypted.1 - 1.0).abs() < 1e-12);
    assert_eq!(exact.2, simulated.2[0]);
    let [bits, predicted] =
        [&encrypted.2, &simulated.2[1]].map(|found| -deviation(found, &exact.2).log2());
    println!("{bits:.2} bits, {predicted:.2} were predicted");
    assert!((bits - predicted).abs() < 0.5 && bits > 24.0, "{bits}, predicted {predicted}");
}

#[test]
fn relu_on_ciphertexts_is_its_composition() {
    let params = parameters(1 << 11, 45, 14);
    let mut client = Client::new(&params, 42);
    let keys = client.keys(&[]);
    let encoder = client.encoder.clone();
    let relu = Approximation::relu(&[15, 15, 27], 8.0).unwrap();
    let values = numbers(3, 1024);
    let x = client.encrypt(&values, 14);
    let mut evaluator = Encrypted::new(&encoder, &keys);
    let out = relu.evaluate(&mut evaluator, &x, 0, params.scale()).unwrap();
    assert_eq!(out.level(), 0);
    let found = client.decrypt(&out);
    let expected: Vec<f64> = values.iter().map(|t| relu.at(8.0 * t)).collect();
    let bits = -largest_error(&found, &expected).log2();
    let clear = Clear::new(&params);
    let mut simulated = Simulated::new(clear, &[7; 32]);
    let x = simulated.vector(&values, 14, params.scale()).unwrap();
    let out = relu.evaluate(&mut simulated, &x, 0, params.scale()).unwrap();
    println!("ReLU: {bits:.2} bits, {:.2} were predicted", out.precision_bits());
    assert!((bits - out.precision_bits()).abs() < 1.5 && bits > 12.0, "{bits}");
    // Of ReLU itself, it is what the approximation leaves.
    let wanted: Vec<f64> = values.iter().map(|t| (8.0 * t).max(0.0)).collect();
    assert!(largest_error(&found, &wanted) < relu.error() + 2f64.powf(-bits));
}

#[test]
fn results_in_the_room_of_used_ciphertexts_are_what_they_are_in_fresh_room() {
    let params = parameters(1 << 11, 42, 6);
    let mut client = Client::new(&params, 43);
    let keys = client.keys(&[1]);
    let encoder = client.encoder.clone();
    let [a, b] = [1, 2].map(|number| client.encrypt(&numbers(number, 1024), 4));
    let used: Vec<_> = (0..=6).map(|level| client.encrypt(&numbers(3, 16), level)).collect();
    let compute = |used: &[Ciphertext]| {
        let mut evaluator = Encrypted::new(&encoder, &keys);
        used.iter().cloned().for_each(|x| evaluator.recycle(x));
        let product = evaluator.multiply_rescale(&a, &b).unwrap();
        let turned = evaluator.rotate(&product, 1).unwrap();
        let lower = evaluator.lowered(&turned, 1).unwrap();
        [product, turned, lower]
    };
    let bytes = |all: &[Ciphertext; 3]| all.each_ref().map(|x| x.to_bytes(&params));
    let fresh = compute(&[]);
    for used in [&used[..], &used[5..], &used[..2]] {
        assert!(bytes(&compute(used)) == bytes(&fresh), "{} used", used.len());
    }
    // The lowest that has the levels is taken, and nothing fresh where one is left.
    let memory = compute(&used[5..]).map(|x| x.memory_bytes());
    assert_eq!(memory[..2], [used[5].memory_bytes(), used[6].memory_bytes()]);
    assert_eq!(memory[2], fresh[2].memory_bytes());
}
