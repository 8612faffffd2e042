//! How a batch is answered, by name.

use std::fmt;
use std::str::FromStr;

use crate::ExpandStrategy;

/// How an engine answers batches. What a strategy has no kernel for is answered as by
/// [`Auto`](Strategy::Auto).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// By the batch: few keys by [`BlockPerKey`](Strategy::BlockPerKey) and a scan of the table, more
    /// keys of bytes by [`Tensor`](Strategy::Tensor), of bits and words by
    /// [`Hybrid`](Strategy::Hybrid).
    #[default]
    Auto,
    /// Lam et al., §III-C1: every thread goes from the root to its leaf. Then a product.
    BlockPerKey,
    /// §III-C2: a level at a time. Then a product.
    LevelByLevel,
    /// §III-C3: breadth first to `k` nodes, then depth first. Then a product.
    Hybrid {
        /// The expansion factor.
        k: u32,
    },
    /// §III-C4: a block a key, which multiplies `k` leaves with their rows before it expands the
    /// next. For tables in device memory.
    Fused {
        /// The expansion factor: rounded to a power of two from 2 to 512.
        k: u32,
    },
    /// §III-C5: the whole device works on one key. For tables in device memory.
    Cooperative,
    /// Ours: keys of bytes 16 at a time, expanded in registers into products on tensor cores.
    Tensor,
}

impl Strategy {
    /// How shares are made where a product follows; `None` for those that make none.
    pub(crate) fn expand(self) -> Option<ExpandStrategy> {
        match self {
            Self::BlockPerKey => Some(ExpandStrategy::BlockPerKey),
            Self::LevelByLevel => Some(ExpandStrategy::LevelByLevel),
            Self::Hybrid { k } => Some(ExpandStrategy::Hybrid { k }),
            Self::Auto | Self::Fused { .. } | Self::Cooperative | Self::Tensor => None,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::BlockPerKey => f.write_str("block-per-key"),
            Self::LevelByLevel => f.write_str("level-by-level"),
            Self::Hybrid { k } => write!(f, "hybrid:{k}"),
            Self::Fused { k } => write!(f, "fused:{k}"),
            Self::Cooperative => f.write_str("cooperative"),
            Self::Tensor => f.write_str("tensor"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    /// Reads what `Display` writes: `auto`, `block-per-key`, `level-by-level`, `hybrid:K`, `fused:K`,
    /// `cooperative` or `tensor`.
    fn from_str(text: &str) -> Result<Self, String> {
        let factor = |prefix: &str| {
            let k = text.strip_prefix(prefix)?.parse().ok()?;
            (k > 0).then_some(k)
        };
        match text {
            "auto" => Ok(Self::Auto),
            "block-per-key" => Ok(Self::BlockPerKey),
            "level-by-level" => Ok(Self::LevelByLevel),
            "cooperative" => Ok(Self::Cooperative),
            "tensor" => Ok(Self::Tensor),
            _ => match (factor("hybrid:"), factor("fused:")) {
                (Some(k), _) => Ok(Self::Hybrid { k }),
                (_, Some(k)) => Ok(Self::Fused { k }),
                _ => Err(format!(
                    "a strategy is auto, block-per-key, level-by-level, hybrid:K, fused:K, \
                     cooperative or tensor, not {text:?}"
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy;

    #[test]
    fn strategies_read_what_they_write() {
        for strategy in [
            Strategy::Auto,
            Strategy::BlockPerKey,
            Strategy::LevelByLevel,
            Strategy::Hybrid { k: 128 },
            Strategy::Fused { k: 64 },
            Strategy::Cooperative,
            Strategy::Tensor,
        ] {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        for text in ["", "fused", "fused:", "fused:0", "hybrid:x", "Tensor"] {
            let refused: Result<Strategy, String> = text.parse();
            assert!(refused.unwrap_err().contains("fused:K"), "{text:?}");
        }
    }
}
