//! The tables of services: each its own enum, all of them [`Refusal`]s.

use std::any::Any;
use std::error::Error;
use std::fmt;

use super::{Facts, Reason, Refusal, Status};

/// The reasons of one service: an enum that [`refusals!`](crate::refusals) made.
pub trait Table: Error + Clone + PartialEq + Send + Sync + 'static {
    /// Every reason, with its status, text and facts.
    fn reasons() -> Vec<Reason>;

    /// The reason, as it travels.
    fn reason(&self) -> &'static str;

    /// The gRPC status that carries this.
    fn to_status(&self) -> Status;

    /// The reason of this name with these facts; `None` where the table has it not, or not with such facts.
    fn from_facts(reason: &str, facts: &Facts) -> Option<Self>;

    /// A few of each reason, for tests of what carries them.
    #[doc(hidden)]
    fn samples() -> Vec<Self>;
}

/// One [`Table`], for those that read what a server of it answered.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Listed {
    /// Every reason of the table.
    pub reasons: fn() -> Vec<Reason>,
    /// A few of each.
    #[doc(hidden)]
    pub samples: fn() -> Vec<Refusal>,
    read: fn(&str, &Facts) -> Option<Refusal>,
}

/// The tables that a client of a service reads by.
pub(crate) type Tables = &'static [Listed];

impl Listed {
    /// The entry of table `T`.
    pub const fn of<T: Table>() -> Self {
        Self {
            reasons: T::reasons,
            samples: || T::samples().into_iter().map(Refusal::from).collect(),
            read: |reason, facts| T::from_facts(reason, facts).map(Refusal::from),
        }
    }
}

/// A reason of a service's own table.
pub struct OwnRefusal(Box<dyn Erased>);

/// A [`Table`]'s value whose type is found out later.
trait Erased: Error + Send + Sync {
    fn name(&self) -> &'static str;
    fn status(&self) -> Status;
    fn copy(&self) -> Box<dyn Erased>;
    fn equals(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Table> Erased for T {
    fn name(&self) -> &'static str {
        self.reason()
    }

    fn status(&self) -> Status {
        self.to_status()
    }

    fn copy(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<T: Table> From<T> for Refusal {
    fn from(reason: T) -> Self {
        Self::Own(OwnRefusal(Box::new(reason)))
    }
}

impl Refusal {
    /// The reason, where it is one of table `T`.
    pub fn of<T: Table>(&self) -> Option<&T> {
        match self {
            Self::Own(own) => own.0.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Reads the refusal that `status` carries; `None` where it carries none that every server may answer
    /// with, and none of `tables`.
    pub fn read(status: &Status, tables: &[Listed]) -> Option<Self> {
        let (reason, facts) = Facts::from_status(status)?;
        Self::of_facts(&reason, &facts, tables)
    }

    pub(crate) fn of_facts(reason: &str, facts: &Facts, tables: &[Listed]) -> Option<Self> {
        let own = || tables.iter().find_map(|table| (table.read)(reason, facts));
        Self::from_facts(reason, facts).or_else(own)
    }
}

/// What `reasons!` asks of all that is not in a table: nobody's own reason can be listed here.
impl OwnRefusal {
    pub(crate) fn reasons() -> Vec<Reason> {
        Vec::new()
    }

    pub(crate) fn from_facts(_: &str, _: &Facts) -> Option<Self> {
        None
    }

    pub(crate) fn samples() -> Vec<Self> {
        Vec::new()
    }

    /// The reason, as it travels.
    pub fn reason(&self) -> &'static str {
        self.0.name()
    }

    /// The gRPC status that carries this.
    pub fn to_status(&self) -> Status {
        self.0.status()
    }
}

impl Clone for OwnRefusal {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl PartialEq for OwnRefusal {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.0.as_any())
    }
}

impl Eq for OwnRefusal {}

impl fmt::Debug for OwnRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for OwnRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for OwnRefusal {}
