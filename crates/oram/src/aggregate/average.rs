//! The weighted mean of gradients, and the optimizers that start from it.

use super::lanes::Lane;
use super::{Aggregate, AggregateError, Batch, rows_of};

/// θ ← θ - η · Σ n_c Δ_c / Σ n_c, per row over the users who sent it (equation 1; section 4.3).
#[derive(Clone, Debug)]
pub(super) struct FedAvg {
    pub(super) learning_rate: f32,
}

impl Aggregate for FedAvg {
    fn name(&self) -> &'static str {
        "fed_avg"
    }

    fn state_bytes(&self, _dim: usize) -> usize {
        0
    }

    fn pre(&self, gradients: &mut [f32], weights: &mut [f32]) -> Result<(), AggregateError> {
        weigh(gradients, weights)
    }

    fn post(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        batch.check(0)?;
        let dim = batch.dim;
        let mut next = vec![0.0; dim];
        let sums = batch.sums.chunks_exact(dim);
        for ((row, sums), &weight) in batch.rows.chunks_exact_mut(dim).zip(sums).zip(batch.weights)
        {
            let is_active = Lane::is_nonzero(weight);
            let weight = is_active.select(weight, 1.0);
            for ((next, &value), &sum) in next.iter_mut().zip(&*row).zip(sums) {
                *next = value - self.learning_rate * (sum / weight);
            }
            keep(row, &next, is_active.and(Lane::is_finite(&next)));
        }
        Ok(())
    }
}

/// What the second moment of an adaptive optimizer is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moments {
    /// m ← β1 m + (1 - β1) x, v ← β2 v + (1 - β2) x².
    Adam { beta1: f32, beta2: f32 },
    /// v ← v + x².
    Adagrad,
}

/// FedAdam and FedAdagrad (Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2):
/// with x the mean of `FedAvg`, θ ← θ - η m / (√v + τ), without bias correction.
///
/// State of a row: under Adam m, then v; under Adagrad v; each `dim` little-endian `f32`. A row's
/// moments stand still in rounds that do not touch it.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    pub(super) learning_rate: f32,
    pub(super) tau: f32,
    pub(super) moments: Moments,
}

impl Aggregate for Adaptive {
    fn name(&self) -> &'static str {
        match self.moments {
            Moments::Adam { .. } => "fed_adam",
            Moments::Adagrad => "fed_adagrad",
        }
    }

    fn state_bytes(&self, dim: usize) -> usize {
        match self.moments {
            Moments::Adam { .. } => 8 * dim,
            Moments::Adagrad => 4 * dim,
        }
    }

    fn pre(&self, gradients: &mut [f32], weights: &mut [f32]) -> Result<(), AggregateError> {
        weigh(gradients, weights)
    }

    fn post(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        let dim = batch.dim;
        let state_bytes = self.state_bytes(dim);
        batch.check(state_bytes)?;
        let (mut next, mut first, mut second) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        let rows = batch.rows.chunks_exact_mut(dim).zip(batch.state.chunks_exact_mut(state_bytes));
        let inputs = batch.sums.chunks_exact(dim).zip(batch.weights);
        for ((row, state), (sums, &weight)) in rows.zip(inputs) {
            let is_active = Lane::is_nonzero(weight);
            let weight = is_active.select(weight, 1.0);
            for index in 0..dim {
                let x = sums[index] / weight;
                let (m, v) = match self.moments {
                    Moments::Adam { beta1, beta2 } => (
                        beta1 * read(state, index) + (1.0 - beta1) * x,
                        beta2 * read(state, dim + index) + (1.0 - beta2) * (x * x),
                    ),
                    Moments::Adagrad => (x, read(state, index) + x * x),
                };
                (first[index], second[index]) = (m, v);
                next[index] = row[index] - self.learning_rate * (m / (v.sqrt() + self.tau));
            }
            let is_kept = is_active
                .and(Lane::is_finite(&next))
                .and(Lane::is_finite(&first))
                .and(Lane::is_finite(&second));
            keep(row, &next, is_kept);
            match self.moments {
                Moments::Adam { .. } => {
                    let (m, v) = state.split_at_mut(4 * dim);
                    write(m, &first, is_kept);
                    write(v, &second, is_kept);
                }
                Moments::Adagrad => write(state, &second, is_kept),
            }
        }
        Ok(())
    }
}

/// Multiplies each gradient by its weight.
pub(super) fn weigh(gradients: &mut [f32], weights: &[f32]) -> Result<(), AggregateError> {
    let dim = rows_of(gradients, weights)?;
    for (gradient, &weight) in gradients.chunks_exact_mut(dim).zip(weights) {
        gradient.iter_mut().for_each(|value| *value *= weight);
    }
    Ok(())
}

pub(super) fn keep(row: &mut [f32], next: &[f32], is_kept: Lane) {
    for (value, &next) in row.iter_mut().zip(next) {
        *value = is_kept.select(next, *value);
    }
}

fn read(state: &[u8], index: usize) -> f32 {
    let bytes = &state[4 * index..][..4];
    f32::from_le_bytes(std::array::from_fn(|at| bytes[at]))
}

fn write(state: &mut [u8], values: &[f32], is_kept: Lane) {
    for (bytes, &value) in state.chunks_exact_mut(4).zip(values) {
        let before = f32::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        bytes.copy_from_slice(&is_kept.select(value, before).to_le_bytes());
    }
}
