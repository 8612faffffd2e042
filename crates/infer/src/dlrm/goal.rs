//! What a plan is to reach.

/// What a plan is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written out by callers, with ..Default::default()")]
pub struct Goal {
    /// Users of one query, rounded up to a power of two.
    pub users: usize,
    /// −log2 of the largest error of a logit.
    pub precision_bits: u32,
    /// Whether the client may send degree-2 monomials of its dense features.
    pub lift: bool,
    /// The largest ring.
    pub degree_max: usize,
    /// The most bytes of keys, where they are bounded.
    pub key_bytes_max: Option<usize>,
    /// The most bytes of a query, where they are bounded.
    pub query_bytes_max: Option<usize>,
    /// Whether levels may be restored.
    pub bootstraps: Bootstraps,
}

/// Whether a plan is to bootstrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "all there is to say")]
pub enum Bootstraps {
    /// Where it takes the least time, or nothing else carries the model.
    #[default]
    Allowed,
    /// Not at all.
    Never,
    /// At least once.
    Required,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            users: 1,
            precision_bits: 10,
            lift: true,
            degree_max: 65_536,
            key_bytes_max: None,
            query_bytes_max: None,
            bootstraps: Bootstraps::Allowed,
        }
    }
}
