//! The codec of refusals, the same at both ends of the wire: one table has each reason's status, facts
//! and text, and all else is made of it.
//!
//! A refusal travels as a gRPC status whose details hold google.rpc.ErrorInfo (a reason and a few
//! facts) and, where a retry makes sense, google.rpc.RetryInfo. The heads of the protos list the
//! reasons. [`refusals!`](crate::refusals) makes an enum of a table. Those that every server may answer
//! with are [`Refusal`]'s; a service's own lie beside it, and no list of all is kept here.

mod own;
mod reasons;
mod table;
mod words;

use std::collections::HashMap;
use std::time::Duration;

use hushtable_table::Version;
pub use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use self::own::Tables;
pub use self::own::{Listed, OwnRefusal, Table};
pub use self::reasons::Refusal;
pub(crate) use self::words::words;
pub use self::words::{KeyDefect, Limit};

/// What the table says of a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// The reason, as it travels: `NO_ROUND`, say.
    pub name: &'static str,
    /// The status that it comes with.
    pub code: Code,
    /// What users read, with the facts' names where their values go.
    pub text: &'static str,
    /// Its facts, in the order in which the contract lists them.
    pub facts: Vec<FactKind>,
}

/// What the table says of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FactKind {
    /// Its name, as it travels.
    pub name: &'static str,
    /// What it is: `count`, say.
    pub kind: &'static str,
    /// The words that it may be, of a closed list.
    pub words: &'static [&'static str],
}

/// A value that travels with a refusal.
pub trait Fact: Clone {
    /// What it is, in a word.
    const KIND: &'static str;
    /// The words that it may be, of a closed list.
    const WORDS: &'static [&'static str] = &[];

    /// Notes the value under `name`.
    fn write(&self, name: &'static str, facts: &mut Facts);

    /// Reads what [`write`](Self::write) noted; `None` for what is missing or makes no sense.
    fn read(name: &str, facts: &Facts) -> Option<Self>;

    /// A few values, all where they are few, for tests of what carries them. Never empty.
    fn samples() -> Vec<Self>;
}

/// The facts of one refusal.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    metadata: HashMap<String, String>,
    retry_after: Option<Duration>,
}

impl FactKind {
    /// The kind of the fact called `name`, of type `T`.
    pub fn of<T: Fact>(name: &'static str) -> Self {
        Self { name, kind: T::KIND, words: T::WORDS }
    }

    /// Whether it is the delay of a retry, which travels as google.rpc.RetryInfo.
    pub fn is_delay(&self) -> bool {
        self.kind == Duration::KIND
    }
}

impl Reason {
    /// A line of a table.
    pub fn new(
        name: &'static str,
        code: Code,
        text: &'static str,
        facts: impl IntoIterator<Item = FactKind>,
    ) -> Self {
        Self { name, code, text, facts: facts.into_iter().collect() }
    }

    /// The status's name on the wire: `NOT_FOUND`, say.
    pub fn status(&self) -> &'static str {
        code_name(self.code)
    }
}

impl Facts {
    /// Notes `text` under `name`.
    pub fn put(&mut self, name: &'static str, text: String) {
        self.metadata.insert(name.to_owned(), text);
    }

    /// What is noted under `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(String::as_str)
    }

    /// The status that carries these facts.
    pub fn into_status(self, code: Code, reason: &'static str, text: String) -> Status {
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, self.metadata);
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        Status::with_error_details(code, text, details)
    }

    /// The reason and the facts that `status` carries; `None` where it carries none of hushtable's.
    pub fn from_status(status: &Status) -> Option<(String, Self)> {
        // This reads what another machine sent: unknown details are no error, only unknown.
        let details = status.check_error_details().ok()?;
        let retry_after = details.retry_info().and_then(|info| info.retry_delay);
        let info = details.error_info().filter(|info| info.domain == DOMAIN)?;
        Some((info.reason.clone(), Self { metadata: info.metadata.clone(), retry_after }))
    }
}

macro_rules! number_facts {
    ($($number:ty),*) => {$(
        impl Fact for $number {
            const KIND: &'static str = "count";

            fn write(&self, name: &'static str, facts: &mut Facts) {
                facts.put(name, self.to_string());
            }

            fn read(name: &str, facts: &Facts) -> Option<Self> {
                facts.text(name)?.parse().ok()
            }

            fn samples() -> Vec<Self> {
                vec![0, 31, <$number>::MAX]
            }
        }
    )*};
}

number_facts!(u32, u64, usize);

impl Fact for String {
    const KIND: &'static str = "text";

    fn write(&self, name: &'static str, facts: &mut Facts) {
        facts.put(name, self.clone());
    }

    fn read(name: &str, facts: &Facts) -> Option<Self> {
        Some(facts.text(name)?.chars().take(MESSAGE_CHARS_MAX).collect())
    }

    fn samples() -> Vec<Self> {
        vec![String::new(), "why".into()]
    }
}

impl Fact for Version {
    const KIND: &'static str = "version";

    fn write(&self, name: &'static str, facts: &mut Facts) {
        facts.put(name, self.to_string());
    }

    fn read(name: &str, facts: &Facts) -> Option<Self> {
        facts.text(name)?.parse().ok()
    }

    fn samples() -> Vec<Self> {
        vec![Self::from([1; 32]), Self::from([0xa5; 32])]
    }
}

/// Empty where there is none.
impl Fact for Option<Version> {
    const KIND: &'static str = "version or nothing";

    fn write(&self, name: &'static str, facts: &mut Facts) {
        facts.put(name, self.map_or_else(String::new, |version| version.to_string()));
    }

    fn read(name: &str, facts: &Facts) -> Option<Self> {
        match facts.text(name)?.is_empty() {
            true => Some(None),
            false => Version::read(name, facts).map(Some),
        }
    }

    fn samples() -> Vec<Self> {
        vec![None, Some(Version::from([6; 32]))]
    }
}

/// The delay after which the same request may be sent again.
impl Fact for Duration {
    const KIND: &'static str = "delay";

    fn write(&self, _: &'static str, facts: &mut Facts) {
        facts.retry_after = Some(*self);
    }

    fn read(_: &str, facts: &Facts) -> Option<Self> {
        facts.retry_after
    }

    fn samples() -> Vec<Self> {
        vec![Self::from_micros(12_345)]
    }
}

/// A status's name: `NOT_FOUND`, say.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// ErrorInfo's domain: whose reasons these are.
pub(crate) const DOMAIN: &str = "hushtable";
/// What is kept of a text that another machine sent.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;
