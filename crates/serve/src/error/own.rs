//! Errors that belong to one part: a scheme, a shard, a reload.

use super::Error;
use crate::refusal::Table;

/// An error that belongs to one part, and is an [`Error`] too.
pub trait Own: std::error::Error + Send + Sync + 'static {}

impl<E: Own> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Own(Box::new(error))
    }
}

impl Error {
    /// The error, where it is `E`.
    pub fn of<E: Own>(&self) -> Option<&E> {
        match self {
            Self::Own(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The reason for which a server refused, where it is one of table `T`.
    pub fn refused<T: Table>(&self) -> Option<&T> {
        match self {
            Self::Refused { refusal, .. } => refusal.of(),
            _ => None,
        }
    }
}
