//! Errors of encrypted inference to the classes of `hushtable.errors`.

use hushtable_infer::dlrm::Error;
use hushtable_infer::shares;

use crate::errors::Failure;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = match &error {
            Error::Depth { .. } => "ModelTooDeep",
            Error::Toml(_)
            | Error::Spec { .. }
            | Error::Safetensors(_)
            | Error::MissingTensor { .. }
            | Error::NoTable { .. }
            | Error::Unread { .. }
            | Error::TensorShape { .. }
            | Error::TensorType { .. }
            | Error::TensorValue { .. }
            | Error::Layout { .. }
            | Error::Plan { .. } => "ModelError",
            Error::Count { .. } | Error::Users { .. } | Error::Feature { .. } => "BadFeatures",
            Error::Index { .. } => "IdOutOfRange",
            Error::Range { .. } => "ActivationRange",
            Error::Terms { .. } | Error::Bytes { .. } | Error::Answer => "ProtocolError",
            Error::OtherPlan { .. } => "PlanMismatch",
            _ => "Error",
        };
        let failure = Self::new(class, &error);
        match error {
            Error::Table(error) => error.into(),
            Error::Depth { levels, levels_max, .. } => {
                failure.count("levels", levels as u64).count("levels_max", levels_max as u64)
            }
            Error::Index { index, rows, .. } => failure.count("id", index).count("rows", rows),
            Error::Range { layer, value, limit } => {
                failure.text("layer", layer).number("value", value).number("limit", limit)
            }
            Error::OtherPlan { expected, found, .. } => {
                failure.text("expected", expected).text("found", found)
            }
            _ => failure,
        }
    }
}

impl From<shares::Error> for Failure {
    fn from(error: shares::Error) -> Self {
        let class = match error {
            shares::Error::Dlrm(error) => return error.into(),
            shares::Error::Unsupported { .. } => "ConfigError",
            shares::Error::Range { .. }
            | shares::Error::Uncalibrated { .. }
            | shares::Error::Plan { .. }
            | shares::Error::Weights { .. } => "ModelError",
            shares::Error::Count { .. } | shares::Error::Feature { .. } => "BadFeatures",
            shares::Error::Bytes { .. } | shares::Error::Packed(_) | shares::Error::Words(_) => {
                "ProtocolError"
            }
            _ => "Error",
        };
        Self::new(class, error)
    }
}
