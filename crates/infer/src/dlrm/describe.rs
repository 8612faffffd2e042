//! A plan in words.

use std::fmt::Write as _;

use super::gate;
use super::plan::{EmbeddingPlan, ParametersSpec, Plan};
use super::turn;

impl Plan {
    /// The plan in words: set, inputs, links.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let ParametersSpec { degree, moduli, special_moduli, scale_log2, .. } = &self.parameters;
        let log2 = |primes: &[u64]| primes.iter().map(|&prime| (prime as f64).log2()).sum::<f64>();
        let _ = writeln!(
            text,
            "parameters   N = {degree}, log2 Q = {:.1} in {} primes, log2 P = {:.1} in {}, scale \
             2^{scale_log2}, {} levels, 128 bits",
            log2(moduli),
            moduli.len(),
            log2(special_moduli),
            special_moduli.len(),
            moduli.len() - 1
        );
        let (users, slots) = (self.users, self.slots());
        let _ = writeln!(text, "users        {users} a ciphertext, {slots} slots each");
        if let Some(own) = &self.bootstrap {
            let count = self.bootstraps();
            let _ = writeln!(
                text,
                "bootstraps   {count} of {} numbers, to level {}",
                own.slots,
                own.output()
            );
        }
        for (index, input) in self.inputs.iter().enumerate() {
            let turn = self.input_turn(index);
            let _ = writeln!(
                text,
                "input {index}      {:?} at level {}: {} ciphertexts, {}; {}",
                input.values,
                input.level,
                input.ciphertexts,
                input.layout.describe(),
                turn::describe(&turn)
            );
        }
        for (index, (link, plan)) in self.chain.links.iter().zip(&self.links).enumerate() {
            let _ = write!(
                text,
                "link {index}       {} at level {}: {} -> {}",
                link.name, plan.level, plan.inputs, plan.outputs
            );
            let _ = match &plan.turn {
                Some(turn) => write!(text, "; {}", turn::describe(turn)),
                None => Ok(()),
            };
            if index == self.chain.join {
                let _ = match &self.embedding {
                    EmbeddingPlan::Joined => Ok(()),
                    EmbeddingPlan::Fused => write!(text, "; embeddings fused in"),
                    EmbeddingPlan::Lookup { turn } => {
                        write!(text, "; of embeddings: {}", turn::describe(turn))
                    }
                    EmbeddingPlan::Dot { .. } => {
                        write!(text, "; then {} dot products", self.model.features.len())
                    }
                };
            }
            if let Some(level) = plan.restored {
                let _ = write!(text, "; bootstrapped, and on at level {level}");
            }
            let _ = match link.gate {
                Some(gate) => {
                    let _ = write!(text, "; then {}", gate::describe(&gate));
                    match gate::error(&gate) {
                        Some(error) => writeln!(text, ", at most {error:.1e} from it"),
                        None => writeln!(text),
                    }
                }
                None => writeln!(text),
            };
        }
        let _ = writeln!(text, "rotations    {}", self.rotations().len());
        text
    }
}
