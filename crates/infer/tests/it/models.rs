//! Small models with random weights.

use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, FeatureSpec, Interaction};
use hushtable_infer::dlrm::weights::{Tensor, Tensors};
use hushtable_infer::dlrm::{Dlrm, Weights};

/// Numbers that are the same in every run.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From −1 to 1.
    pub fn unit(&mut self) -> f32 {
        ((self.word() >> 40) as f32 / (1u64 << 24) as f32) * 2.0 - 1.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }
}

pub fn spec(activation: Activation, interaction: Interaction) -> DlrmSpec {
    let feature = |name: &str, rows| FeatureSpec { name: name.into(), rows, table: None, bag: 1 };
    DlrmSpec {
        dense: 3,
        bottom: vec![6, 4],
        top: vec![7, 1],
        dim: 4,
        interaction,
        activation,
        relu_degree: None,
        bottom_activates_last: false,
        base: 4,
        threshold: 8,
        features: vec![feature("sex", 2), feature("town", 1000), feature("day", 7)],
    }
}

/// A model's tensors: inputs of activations stay small; polynomials have degree `degree`.
pub fn tensors(dlrm: &Dlrm, seed: u64, degree: usize) -> Tensors {
    let mut numbers = Numbers::new(seed);
    let mut all = Tensors::new();
    let mut put = |name: String, shape: Vec<usize>, scale: f32| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| scale * numbers.unit()).collect();
        all.insert(name, Tensor { shape, values });
    };
    for (index, digits) in dlrm.digits().iter().enumerate() {
        put(format!("emb_l.{index}.weight"), vec![digits.slots(), dlrm.spec().dim], 0.5);
    }
    for (part, shapes) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
        for (index, shape) in shapes.iter().enumerate() {
            let scale = 1.0 / (shape.inputs as f32).sqrt();
            let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
            put(name("weight"), vec![shape.outputs, shape.inputs], scale);
            put(name("bias"), vec![shape.outputs], 0.3);
        }
    }
    for (part, shapes) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
        for (index, _) in shapes.iter().enumerate().filter(|(_, shape)| shape.is_activated) {
            let one = |values: Vec<f32>| Tensor { shape: vec![values.len()], values };
            all.insert(format!("{part}_a.{index}.range"), one(vec![4.0]));
            if dlrm.spec().activation == Activation::Polynomial {
                let coefficients = (0..=degree).map(|power| [0.1, 0.5, 0.25, 0.05, 0.02][power]);
                let name = format!("{part}_a.{index}.coefficients");
                all.insert(name, one(coefficients.collect()));
            }
        }
    }
    all
}

pub fn model(spec: DlrmSpec, seed: u64) -> (Dlrm, Weights) {
    let dlrm = Dlrm::new(spec).unwrap();
    let weights = Weights::new(&dlrm, tensors(&dlrm, seed, 2)).unwrap();
    (dlrm, weights)
}

/// Features of `users` users.
pub fn features(dlrm: &Dlrm, users: usize, seed: u64) -> (Vec<f32>, Vec<u64>) {
    let mut numbers = Numbers::new(seed);
    let dense = (0..users * dlrm.spec().dense).map(|_| numbers.unit()).collect();
    let rows = dlrm.spec().features.iter().map(|feature| feature.rows);
    let rows: Vec<u64> = rows.collect();
    let indices =
        (0..users).flat_map(|_| rows.iter().map(|&rows| numbers.below(rows)).collect::<Vec<_>>());
    let indices = indices.collect();
    (dense, indices)
}

/// The reference's logits.
pub fn logits(dlrm: &Dlrm, weights: &Weights, dense: &[f32], indices: &[u64]) -> Vec<f64> {
    let count = dlrm.spec().features.len();
    dense
        .chunks_exact(dlrm.spec().dense)
        .enumerate()
        .map(|(user, dense)| {
            let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
            let indices = &indices[user * count..(user + 1) * count];
            hushtable_infer::dlrm::reference::forward(dlrm, weights, &dense, indices).unwrap().logit
        })
        .collect()
}
