//! The noise that is predicted against the noise that there is, for every operation.

use hushtable_rlwe::ckks::{
    Approximation, Clear, Diagonals, Encrypted, Error, Evaluate, ModulusBits, Parameters,
    Simulated, Split,
};

use super::fixtures::{Client, deviation, numbers, of_bits};

/// One operation, or a few.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Nothing,
    Add,
    AddPlain,
    AddConstant,
    MultiplyPlain(usize),
    MultiplyConstant,
    Multiply,
    Square,
    Rescale,
    DropAndRescale,
    Rotate,
    RotateMany,
    Fold,
    /// Rescaled or not.
    Transform(Split, bool),
    MultiplyRescale,
    Silu,
}

/// Babies of two rotations, giants in a chain, both, and a chain alone.
const SPLITS: [Split; 4] = [
    Split { baby_steps: 8, inner_steps: 2, is_chained: false },
    Split { baby_steps: 8, inner_steps: 8, is_chained: true },
    Split { baby_steps: 8, inner_steps: 2, is_chained: true },
    Split { baby_steps: 1, inner_steps: 1, is_chained: true },
];

const ALL: [Operation; 24] = [
    Operation::Nothing,
    Operation::Add,
    Operation::AddPlain,
    Operation::AddConstant,
    Operation::MultiplyPlain(1),
    Operation::MultiplyPlain(64),
    Operation::MultiplyPlain(512),
    Operation::MultiplyConstant,
    Operation::Multiply,
    Operation::Square,
    Operation::Rescale,
    Operation::DropAndRescale,
    Operation::Rotate,
    Operation::RotateMany,
    Operation::Fold,
    Operation::Transform(Split::new(1), false),
    Operation::Transform(Split::new(8), false),
    Operation::Transform(Split::new(8), true),
    Operation::Transform(SPLITS[0], false),
    Operation::Transform(SPLITS[1], true),
    Operation::Transform(SPLITS[2], false),
    Operation::Transform(SPLITS[3], false),
    Operation::MultiplyRescale,
    Operation::Silu,
];

const STEPS: [usize; 9] = [1, 2, 3, 4, 5, 8, 16, 19, 24];

impl Operation {
    fn run<E: Evaluate>(
        self,
        e: &mut E,
        mut x: E::Ciphertext,
        y: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let (level, scale) = (e.level(&x), e.scale(&x));
        match self {
            Self::Nothing => {}
            Self::Add => e.add_assign(&mut x, y)?,
            Self::AddPlain => {
                let plain = e.encode(&numbers(3, 512), level, scale)?;
                e.add_plain(&mut x, &plain)?;
            }
            Self::AddConstant => e.add_constant(&mut x, 0.3)?,
            Self::MultiplyPlain(count) => {
                // At a scale that rounds more than it leaves.
                let plain = e.encode(&numbers(4, count), level, 2f64.powi(24))?;
                e.multiply_plain(&mut x, &plain)?;
            }
            Self::MultiplyConstant => e.multiply_constant(&mut x, 0.3, 2f64.powi(24))?,
            Self::Multiply => return e.multiply(&x, y),
            Self::Square => return e.square(&x),
            Self::Rescale => {
                e.multiply_constant(&mut x, 1.0, 2f64.powi(40))?;
                e.rescale(&mut x)?;
            }
            Self::DropAndRescale => {
                e.drop_to(&mut x, 1)?;
                e.multiply_constant(&mut x, 1.0, 2f64.powi(38))?;
                e.rescale(&mut x)?;
            }
            Self::Rotate => return e.rotate(&x, 5),
            Self::RotateMany => {
                let turned = e.rotate_many(&x, &[3, 0, 5])?;
                for other in &turned {
                    e.add_assign(&mut x, other)?;
                }
            }
            Self::Fold => e.fold(&mut x, 1, 16)?,
            Self::Transform(split, rescales) => {
                let mut map = Diagonals::new(e.parameters().slots());
                for (steps, count) in [(0, 512), (1, 16), (3, 512), (16, 1), (19, 512), (24, 64)] {
                    map.insert(steps, numbers(steps as u8 + 10, count))?;
                }
                let map = e.prepare(&map, split, level, scale)?;
                let (maps, xs) = ([&map, &map], [&x, y]);
                match rescales {
                    true => return e.transform_rescale(&maps, &xs),
                    false => return e.transform(&maps, &xs),
                }
            }
            Self::MultiplyRescale => return e.multiply_rescale(&x, y),
            Self::Silu => {
                let scale = e.parameters().scale();
                return Approximation::silu(15, 4.0)?.evaluate(e, &x, 0, scale);
            }
        }
        Ok(x)
    }
}

/// A long P, which leaves little but rounding; a short one, one of two primes, and one of three, whose
/// second digit is shorter.
fn sets() -> [Parameters; 4] {
    let bits = |first, special| ModulusBits { first, level: 40, special };
    [
        of_bits(1024, bits(50, 50), 4, 1),
        of_bits(1024, bits(42, 41), 4, 1),
        of_bits(1024, bits(42, 41), 4, 2),
        of_bits(1024, bits(42, 41), 4, 3),
    ]
}

#[test]
fn the_noise_of_every_operation_is_what_is_predicted() {
    for (number, params) in sets().into_iter().enumerate() {
        let mut client = Client::new(&params, number as u8 + 30);
        let keys = client.keys(&STEPS);
        let encoder = client.encoder.clone();
        let mut encrypted = Encrypted::new(&encoder, &keys);
        let mut clear = Clear::with_rotations(&params, STEPS);
        let mut simulated = Simulated::new(clear.clone(), &[number as u8; 32]);
        let (a, b) = (numbers(1, 512), numbers(2, 512));
        let (level, scale) = (params.levels(), params.scale());
        for operation in ALL {
            let [x, y] = [&a, &b].map(|values| clear.vector(values, level, scale).unwrap());
            let exact = operation.run(&mut clear, x, &y).unwrap();
            // Mean squares over a few runs.
            let (mut predicted, mut measured) = (0.0, 0.0);
            for _ in 0..4 {
                let [x, y] = [&a, &b].map(|values| simulated.vector(values, level, scale).unwrap());
                let out = operation.run(&mut simulated, x, &y).unwrap();
                assert_eq!(out.exact(), exact.values(), "{operation:?}");
                predicted += deviation(out.values(), exact.values()).powi(2);
                let [x, y] = [&a, &b].map(|values| client.encrypt(values, level));
                let out = operation.run(&mut encrypted, x, &y).unwrap();
                assert_eq!(out.level(), clear.level(&exact), "{operation:?}");
                assert!((out.scale() / clear.scale(&exact) - 1.0).abs() < 1e-12, "{operation:?}");
                measured += deviation(&client.decrypt(&out), exact.values()).powi(2);
            }
            let ratio = (measured / predicted).sqrt();
            println!(
                "set {number} {operation:?}: measured 2^{:.2}, of the prediction {ratio:.3}",
                (measured / 4.0).sqrt().log2()
            );
            assert!((0.8..1.25).contains(&ratio), "set {number} {operation:?}: {ratio}");
        }
    }
}
