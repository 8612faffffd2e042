//! Clipped and noised sums.

use zeroize::Zeroizing;

use super::average::keep;
use super::clip::shorten;
use super::gauss::fill_normal;
use super::lanes::Lane;
use super::spec::ClipPer;
use super::{Aggregate, AggregateError, Batch, rows_of};

/// θ ← θ - η · (Σ_c Δ_c / max(1, |Δ_c| / C) + N(0, r σ² C²)) / users, section 4.3 of the paper.
///
/// Where every row gets the noise of every round, r is the number of rounds whose noise the row has
/// not had: independent noise of r rounds adds up to that of r times the variance, so it need not be
/// drawn before somebody is given the row (Lim et al., LazyDP, ASPLOS 2024). Up to which round it has
/// been drawn is the row's state, a little-endian `u32`. Who sent a row decides nothing of that.
///
/// Otherwise r is 1, and a row that nobody sent is left as it was.
#[derive(Clone, Debug)]
pub(super) struct NoisySum {
    pub(super) name: &'static str,
    pub(super) learning_rate: f32,
    pub(super) clip: f32,
    pub(super) clip_per: ClipPer,
    pub(super) noise_multiplier: f32,
    pub(super) users: f32,
    pub(super) owes_noise: bool,
}

impl Aggregate for NoisySum {
    fn name(&self) -> &'static str {
        self.name
    }

    fn state_bytes(&self, _dim: usize) -> usize {
        if self.owes_noise { 4 } else { 0 }
    }

    fn owes_noise(&self) -> bool {
        self.owes_noise
    }

    fn pre(&self, gradients: &mut [f32], weights: &mut [f32]) -> Result<(), AggregateError> {
        let dim = rows_of(gradients, weights)?;
        let rows = gradients.chunks_exact_mut(dim).zip(weights.iter_mut());
        let mut squares_of_all = 0.0;
        for (gradient, weight) in rows {
            let is_sent = Lane::is_nonzero(*weight);
            *weight = is_sent.select(1.0, 0.0);
            let mut squares = 0.0;
            for value in gradient.iter_mut() {
                *value = is_sent.select(*value, 0.0);
                squares += f64::from(*value) * f64::from(*value);
            }
            squares_of_all += squares;
            // Public: the spec.
            if self.clip_per == ClipPer::Row {
                shorten(gradient, squares, self.clip);
            }
        }
        if self.clip_per == ClipPer::User {
            shorten(gradients, squares_of_all, self.clip);
        }
        Ok(())
    }

    fn post(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        let state_bytes = self.state_bytes(batch.dim);
        batch.check(state_bytes)?;
        let dim = batch.dim;
        let mut noise = Zeroizing::new(vec![0.0; dim]);
        let mut next = vec![0.0; dim];
        let inputs = batch.sums.chunks_exact(dim).zip(batch.weights);
        let rows = batch.rows.chunks_exact_mut(dim).zip(inputs).enumerate();
        for (index, (row, (sums, &weight))) in rows {
            fill_normal(&mut noise, batch.noise);
            let state = &mut batch.state[index * state_bytes..][..state_bytes];
            let scale = self.scale(state, batch.round);
            for (((next, &value), &sum), &noise) in
                next.iter_mut().zip(&*row).zip(sums).zip(noise.iter())
            {
                *next = self.step(value, f64::from(sum) + scale * noise);
            }
            let is_updated = Lane::of(self.owes_noise).or(Lane::is_nonzero(weight));
            let is_kept = is_updated.and(Lane::is_finite(&next));
            keep(row, &next, is_kept);
            mark(state, batch.round, is_kept);
        }
        Ok(())
    }

    fn settle(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        // Public: the spec.
        if !self.owes_noise {
            return Ok(());
        }
        batch.check_rows(4)?;
        let dim = batch.dim;
        let mut noise = Zeroizing::new(vec![0.0; dim]);
        let mut next = vec![0.0; dim];
        for (row, state) in batch.rows.chunks_exact_mut(dim).zip(batch.state.chunks_exact_mut(4)) {
            fill_normal(&mut noise, batch.noise);
            let scale = self.scale(state, batch.round);
            for ((next, &value), &noise) in next.iter_mut().zip(&*row).zip(noise.iter()) {
                *next = self.step(value, scale * noise);
            }
            let is_kept = Lane::is_finite(&next);
            keep(row, &next, is_kept);
            mark(state, batch.round, is_kept);
        }
        Ok(())
    }
}

impl NoisySum {
    /// √r σ C.
    fn scale(&self, state: &[u8], round: u32) -> f64 {
        let rounds = match state.first_chunk() {
            Some(last) => round.saturating_sub(u32::from_le_bytes(*last)),
            None => 1,
        };
        f64::from(rounds).sqrt() * f64::from(self.noise_multiplier) * f64::from(self.clip)
    }

    fn step(&self, value: f32, sum: f64) -> f32 {
        (f64::from(value) - f64::from(self.learning_rate) / f64::from(self.users) * sum) as f32
    }
}

/// Notes in a row's state that it has the noise of all rounds up to this one.
fn mark(state: &mut [u8], round: u32, is_kept: Lane) {
    if let Some(last) = state.first_chunk_mut() {
        let before = u32::from_le_bytes(*last);
        *last = is_kept.select_u32(round, before).to_le_bytes();
    }
}
