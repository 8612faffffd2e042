//! Why a server refuses an encrypted inference: `infer.proto` lists the reasons.

use hushtable_infer::ckks;
use hushtable_infer::dlrm;

use crate::KeyDefect;
use crate::keys::refusal::KeysRefusal;
use crate::refusal::Listed;
use crate::refusal::Tables;
use crate::refusals;

refusals! {
    /// Why a server refused an encrypted inference.
    pub enum CkksRefusal {
        /// Encrypted features that are no ciphertexts of the server's plan.
        #[error("the encrypted features are not usable ({defect}): {message}")]
        BadFeatures = InvalidArgument "BAD_FEATURES" {
            /// What is wrong with them.
            defect: crate::KeyDefect,
            /// The server's explanation.
            message: String,
        },
        /// Keys or features that were made for another plan.
        #[error(
            "the server computes by plan {expected}, the request is for {found}: connect again, and \
             make keys for that plan"
        )]
        PlanSkew = FailedPrecondition "PLAN_SKEW" {
            /// The server's plan.
            expected: hushtable_table::Version,
            /// The request's plan.
            found: hushtable_table::Version,
        },
    }
}

/// What its servers may refuse by, beside what any server may.
pub(super) const REFUSALS: Tables = &[Listed::of::<CkksRefusal>(), Listed::of::<KeysRefusal>()];

impl CkksRefusal {
    /// The refusal of a query for what was found in it.
    pub(super) fn of_query(error: &dlrm::Error) -> Self {
        Self::BadFeatures { defect: defect_of(error), message: error.to_string() }
    }
}

/// The refusal of a client's keys for what was found in them.
pub(super) fn of_keys(error: &dlrm::Error) -> KeysRefusal {
    KeysRefusal::BadKeys { defect: defect_of(error), message: error.to_string() }
}

fn defect_of(error: &dlrm::Error) -> KeyDefect {
    use dlrm::Error as Infer;
    match error {
        Infer::Bytes { .. } => KeyDefect::Length,
        Infer::OtherPlan { .. } => KeyDefect::Parameters,
        Infer::Ckks(ckks::Error::Level { .. } | ckks::Error::Scale { .. }) => KeyDefect::Level,
        Infer::Core(_) | Infer::Ckks(ckks::Error::Core(_)) => KeyDefect::Residue,
        _ => KeyDefect::Other,
    }
}
