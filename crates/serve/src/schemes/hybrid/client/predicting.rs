//! Predicts: the online phase, which uses a precompute up.

use std::sync::Arc;
use std::time::Duration;

use hushtable_infer::hybrid::session::{Answer, Halves, Predicted};

use super::super::machines::Error as MachineError;
use super::{HybridClient, PrecomputeProgress, PrecomputeStats};
use crate::Error;
use crate::peer::random_u64;

/// What a network says of an input.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HybridPrediction {
    /// The network's numbers, with what is left to the client done.
    pub outputs: Vec<f32>,
    /// The same as they were decrypted: modulo 2^bits, in the last stage's fraction.
    pub raw: Vec<u64>,
    /// What it cost.
    pub stats: HybridStats,
}

/// What a prediction cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HybridStats {
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Frames, both ways.
    pub frames: usize,
    /// The online phase, from the precompute's use to the answer.
    pub online: Duration,
    /// Precomputes that the server did not have any more.
    pub lost: usize,
    /// What making a precompute cost, where there was none: by then the offline phase ran.
    pub offline: Option<PrecomputeStats>,
}

impl HybridClient {
    /// The network's outputs for `input`: its numbers, flat, as the network takes them. Uses up a precompute;
    /// where there is none, makes one first, which `progress` is told of.
    ///
    /// # Errors
    /// [`hushtable_infer::hybrid::Error`] for an input of another size or with numbers that the network cannot take, or a half
    /// that is damaged: it is dropped, and the next call takes another; [`Error::Refused`],
    /// [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`]; what
    /// [`precompute`](Self::precompute) says.
    pub async fn predict(
        &self,
        input: &[f32],
        progress: Option<PrecomputeProgress>,
    ) -> Result<HybridPrediction, Error> {
        let terms = &self.info().terms;
        let input = Arc::new(terms.encode(input).map_err(MachineError::from)?);
        let mut stats = HybridStats::default();
        loop {
            let (halves, is_fresh) = (Arc::clone(&self.halves), stats.offline.is_some());
            let (halves, input) = (halves as Arc<dyn Halves>, Arc::clone(&input));
            let predicting = self.predictor.predict(halves, input, is_fresh, random_u64()?);
            match self.driver.run_apart(predicting).await? {
                // Another prediction of this client may be faster to use what is made here.
                Predicted::Dry { lost } => {
                    stats.lost += lost;
                    stats.offline = Some(self.precompute(1, progress.clone()).await?);
                }
                Predicted::Answer(answer) => {
                    let Answer { raw, sent_bytes, received_bytes, frames, online, lost, .. } =
                        answer;
                    let lost = stats.lost + lost;
                    let outputs = terms.decode(&raw);
                    stats =
                        HybridStats { sent_bytes, received_bytes, frames, online, lost, ..stats };
                    return Ok(HybridPrediction { outputs, raw, stats });
                }
            }
        }
    }
}
