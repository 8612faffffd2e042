//! The codec of refusals, the same at both ends of the wire: one table has each reason's status, facts
//! and text, and all else is made of it.
//!
//! A refusal travels as a gRPC status whose details hold google.rpc.ErrorInfo (a reason and a few
//! facts) and, where a retry makes sense, google.rpc.RetryInfo. The heads of the protos list the
//! reasons. [`refusals!`](crate::refusals) makes an enum of a table; a scheme keeps its own in its
//! folder, those that every server may answer with are `host_reasons` here.

use std::collections::HashMap;
use std::time::Duration;

use hushtable_table::Version;
pub use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::batch::{Absent, Unanswered};
use crate::{Limit, Refusal};

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
        crate::host::metrics::code_name(self.code)
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

/// Makes an enum of a table of reasons, with what carries them over the wire.
///
/// Each entry is a variant, the status that it comes with, the reason that travels, and the facts in
/// the order in which the contract lists them; `#[error("...")]` is the text, which says what to do.
/// The types of facts are [`Fact`](crate::refusal::Fact)s. Enums after `with` are tried in turn for
/// what the table does not have. The crate that calls this must depend on `thiserror`.
///
/// ```
/// hushtable_serve::refusals! {
///     /// Why an echo is refused.
///     pub enum EchoRefusal {
///         /// A text that is longer than an echo.
///         #[error("the text has {chars} characters: shorten it to {chars_max}")]
///         TooLong = InvalidArgument "TOO_LONG" {
///             /// Characters received.
///             chars: usize,
///             /// Characters allowed.
///             chars_max: usize,
///         },
///         /// Nobody is there.
///         #[error("nobody is there: come back later")]
///         Away = Unavailable "AWAY",
///     }
/// }
///
/// let status = EchoRefusal::TooLong { chars: 9, chars_max: 8 }.to_status();
/// assert_eq!(
///     EchoRefusal::from_status(&status),
///     Some(EchoRefusal::TooLong { chars: 9, chars_max: 8 })
/// );
/// ```
#[macro_export]
macro_rules! refusals {
    (
        $(#[doc = $doc:literal])*
        $vis:vis enum $name:ident {
            $(
                $(#[doc = $reason_doc:literal])*
                #[error($text:literal $($args:tt)*)]
                $variant:ident = $code:ident $reason:literal $({
                    $( $(#[doc = $fact_doc:literal])* $fact:ident: $kind:ty ),* $(,)?
                })?
            ),* $(,)?
        }
        $(with {
            $(
                $(#[doc = $other_doc:literal])*
                $(#[cfg($cfg:meta)])?
                $other:ident($table:ty)
            ),* $(,)?
        })?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[non_exhaustive]
        $vis enum $name {
            $(
                $(#[doc = $reason_doc])*
                #[error($text $($args)*)]
                $variant $({ $( $(#[doc = $fact_doc])* $fact: $kind, )* })?,
            )*
            $($(
                $(#[doc = $other_doc])*
                $(#[cfg($cfg)])?
                #[error(transparent)]
                $other(#[from] $table),
            )*)?
        }

        #[allow(dead_code, unused_mut, unused_variables, reason = "a table may lack facts")]
        impl $name {
            /// The table: every reason, with its status, text and facts.
            pub fn reasons() -> Vec<$crate::refusal::Reason> {
                use $crate::refusal::{Code, FactKind, Reason};
                let mut all = vec![$(
                    Reason::new(
                        $reason,
                        Code::$code,
                        $text,
                        [$($( FactKind::of::<$kind>(stringify!($fact)), )*)?],
                    ),
                )*];
                $($( $(#[cfg($cfg)])? all.extend(<$table>::reasons()); )*)?
                all
            }

            /// The reason, as it travels.
            pub fn reason(&self) -> &'static str {
                match self {
                    $( Self::$variant { .. } => $reason, )*
                    $($( $(#[cfg($cfg)])? Self::$other(refusal) => refusal.reason(), )*)?
                }
            }

            /// The gRPC status that carries this.
            pub fn to_status(&self) -> $crate::refusal::Status {
                use $crate::refusal::{Code, Fact, Facts};
                let mut facts = Facts::default();
                match self {
                    $(
                        Self::$variant $({ $($fact),* })? => {
                            $($( Fact::write($fact, stringify!($fact), &mut facts); )*)?
                            facts.into_status(Code::$code, $reason, self.to_string())
                        }
                    )*
                    $($( $(#[cfg($cfg)])? Self::$other(refusal) => refusal.to_status(), )*)?
                }
            }

            /// Reads the refusal that a status carries; `None` where it carries none of this table.
            pub fn from_status(status: &$crate::refusal::Status) -> Option<Self> {
                let (reason, facts) = $crate::refusal::Facts::from_status(status)?;
                Self::from_facts(&reason, &facts)
            }

            #[doc(hidden)]
            pub fn from_facts(reason: &str, facts: &$crate::refusal::Facts) -> Option<Self> {
                use $crate::refusal::Fact;
                $(
                    if reason == $reason {
                        return Some(Self::$variant $({
                            $( $fact: Fact::read(stringify!($fact), facts)?, )*
                        })?);
                    }
                )*
                $($(
                    $(#[cfg($cfg)])?
                    if let Some(refusal) = <$table>::from_facts(reason, facts) {
                        return Some(Self::$other(refusal));
                    }
                )*)?
                None
            }

            /// A few of each reason, for tests of what carries them.
            #[doc(hidden)]
            pub fn samples() -> Vec<Self> {
                use $crate::refusal::Fact;
                let mut all = Vec::new();
                $({
                    $($( let $fact = <$kind as Fact>::samples(); )*)?
                    let most = [1, $($( $fact.len(), )*)?].into_iter().max().unwrap_or(1);
                    for i in 0..most {
                        all.push(Self::$variant $({
                            $( $fact: $fact[i % $fact.len()].clone(), )*
                        })?);
                    }
                })*
                $($(
                    $(#[cfg($cfg)])?
                    all.extend(<$table>::samples().into_iter().map(Self::$other));
                )*)?
                all
            }
        }

        impl From<$name> for $crate::refusal::Status {
            fn from(refusal: $name) -> Self {
                refusal.to_status()
            }
        }
    };
}

/// Makes an enum of a closed list of words, which is a [`Fact`]. A word after `or` stands for every
/// other word.
macro_rules! words {
    (
        $(#[doc = $doc:literal])*
        $vis:vis enum $name:ident {
            $( $(#[doc = $word_doc:literal])* $variant:ident = $word:literal ),* $(,)?
        }
        $(or $other:ident)?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        $vis enum $name {
            $( $(#[doc = $word_doc])* $variant, )*
        }

        impl $name {
            /// The word that travels.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::refusal::Fact for $name {
            const KIND: &'static str = "word";
            const WORDS: &'static [&'static str] = &[$($word),*];

            fn write(&self, name: &'static str, facts: &mut $crate::refusal::Facts) {
                facts.put(name, self.name().to_owned());
            }

            fn read(name: &str, facts: &$crate::refusal::Facts) -> Option<Self> {
                let word = facts.text(name)?;
                let known = Self::samples().into_iter().find(|known| known.name() == word);
                $( let known = known.or(Some(Self::$other)); )?
                known
            }

            fn samples() -> Vec<Self> {
                vec![$(Self::$variant),*]
            }
        }
    };
}
pub(crate) use words;

/// Hands a table on from one list of reasons to the next, then to [`refusals!`].
macro_rules! gather {
    ([] { $($head:tt)* } { $($tail:tt)* } $($reasons:tt)*) => {
        $crate::refusals! { $($head)* { $($reasons)* } $($tail)* }
    };
    ([$first:ident $($rest:ident)*] $($table:tt)*) => {
        $first! { [$($rest)*] $($table)* }
    };
}
pub(crate) use gather;

/// What any server may answer with.
macro_rules! host_reasons {
    ([$($rest:ident)*] { $($head:tt)* } { $($tail:tt)* } $($table:tt)*) => {
        $crate::peer::refusal::gather! {
            [$($rest)*] { $($head)* } { $($tail)* } $($table)*
            /// The backend failed; the server's log says how.
            #[error("the server could not answer: its log has the cause")]
            Backend = Internal "BACKEND",
            /// A pass that is not made by the map of shards that it names.
            #[error("the pass does not fit the shard's map: {message}")]
            BadPass = InvalidArgument "BAD_PASS" {
                /// The shard's explanation.
                message: String,
            },
            /// A version of a table or layout that is not 32 bytes.
            #[error("a version has 32 bytes, this one {bytes}: send the one of the table info")]
            BadVersion = InvalidArgument "BAD_VERSION" {
                /// Bytes received.
                bytes: usize,
            },
            /// The server has as much to do as it may.
            #[error(
                "the server is busy ({limit} reached): retry in {} ms", retry_after.as_millis()
            )]
            Busy = ResourceExhausted "BUSY" {
                /// Which limit was reached.
                limit: $crate::Limit,
                /// When there should be room.
                retry_after: std::time::Duration,
            },
            /// The server is shutting down.
            #[error(
                "the server is shutting down: connect to another one, or retry after its restart"
            )]
            Draining = Unavailable "DRAINING",
            /// A shard of what is asked that no server answers for.
            #[error(
                "no server of shard {shard} answers: retry in {} ms; the front's log says which were \
                 asked",
                retry_after.as_millis()
            )]
            ShardAbsent = Unavailable "SHARD_ABSENT" {
                /// Its number in the map of shards.
                shard: usize,
                /// When one may answer again.
                retry_after: std::time::Duration,
            },
            /// A map of shards that the server does not hold.
            #[error(
                "the shard holds no map {found}: it has not loaded that version, or dropped it"
            )]
            UnknownMap = NotFound "UNKNOWN_MAP" {
                /// The request's map.
                found: hushtable_table::Version,
            },
            /// A model that the server does not hold.
            #[error(
                "the server holds no model version {found}: ask for its catalog again, or serve \
                 that model"
            )]
            UnknownModel = NotFound "UNKNOWN_MODEL" {
                /// The request's version.
                found: hushtable_table::Version,
            },
            /// A table, or a table's layout, that a server of several does not hold.
            #[error(
                "the server holds {tables} tables, and none of version {}: ask for its catalog \
                 again",
                found.map_or_else(|| "\"\"".to_owned(), |found| found.to_string())
            )]
            UnknownTable = NotFound "UNKNOWN_TABLE" {
                /// The request's version; none where it named no table.
                found: Option<hushtable_table::Version>,
                /// How many tables the server holds.
                tables: usize,
            },
            /// A request made for another version of the table.
            #[error(
                "the server holds table version {expected}, the request is for {found}: fetch the \
                 table info again"
            )]
            VersionSkew = FailedPrecondition "VERSION_SKEW" {
                /// The server's version.
                expected: hushtable_table::Version,
                /// The request's version.
                found: hushtable_table::Version,
            },
            /// A pass for another shard.
            #[error(
                "this is shard {expected}, the pass is for shard {found}: put the servers in \
                 shards.toml in the order of their shards"
            )]
            WrongShard = FailedPrecondition "WRONG_SHARD" {
                /// The server's shard.
                expected: usize,
                /// The pass's shard.
                found: usize,
            },
        }
    };
}
pub(crate) use host_reasons;

impl Refusal {
    /// The refusal of a request that a scheduler did not answer; `queue` is what it has room in.
    pub(crate) fn of_unanswered(unanswered: Unanswered, queue: Limit) -> Self {
        match unanswered {
            Unanswered::Busy { retry_after, .. } => Self::Busy { limit: queue, retry_after },
            Unanswered::Closed => Self::Draining,
            Unanswered::Absent(Absent { shard, retry_after }) => {
                Self::ShardAbsent { shard, retry_after }
            }
            Unanswered::Failed => Self::Backend,
        }
    }
}

/// ErrorInfo's domain: whose reasons these are.
const DOMAIN: &str = "hushtable";
/// What is kept of a text that another machine sent.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_refusal_survives_the_wire() {
        let all = Refusal::samples();
        let mut seen = BTreeSet::new();
        for refusal in all {
            let status = refusal.to_status();
            assert_eq!(status.message(), refusal.to_string());
            seen.insert(Facts::from_status(&status).unwrap().0);
            assert_eq!(Refusal::from_status(&status), Some(refusal));
        }
        let known: BTreeSet<_> = Refusal::reasons().iter().map(|r| r.name.to_owned()).collect();
        assert_eq!(seen, known, "each reason has a sample");
        assert_eq!(known.len(), Refusal::reasons().len(), "no reason has two meanings");
    }

    #[test]
    fn a_fact_that_is_missing_or_odd_makes_a_reason_unknown() {
        for reason in Refusal::reasons() {
            let facts = Facts::default();
            let known = Refusal::from_facts(reason.name, &facts);
            assert_eq!(known.is_some(), reason.facts.is_empty(), "{}", reason.name);
            let mut facts = Facts { retry_after: Some(Duration::ZERO), ..Facts::default() };
            reason.facts.iter().for_each(|fact| facts.put(fact.name, "\u{1}?".into()));
            let is_lax = |fact: &FactKind| {
                fact.kind == "text" || fact.is_delay() || fact.words.contains(&"other")
            };
            let lax = reason.facts.iter().all(is_lax);
            let known = Refusal::from_facts(reason.name, &facts);
            assert_eq!(known.is_some(), lax, "{}", reason.name);
        }
    }

    #[test]
    fn a_long_text_of_another_machine_is_cut() {
        let mut facts = Facts::default();
        facts.put("why", "x".repeat(9999));
        assert_eq!(String::read("why", &facts).unwrap().len(), MESSAGE_CHARS_MAX);
    }

    #[test]
    fn a_status_of_other_origin_is_no_refusal() {
        assert_eq!(Refusal::from_status(&Status::unavailable("gone")), None);
        let other = ErrorDetails::with_error_info("BUSY", "elsewhere", HashMap::new());
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", other);
        assert_eq!(Refusal::from_status(&status), None);
        let incomplete = ErrorDetails::with_error_info("BUSY", DOMAIN, HashMap::new());
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", incomplete);
        assert_eq!(Refusal::from_status(&status), None);
        let garbage = Status::with_details(Code::Internal, "?", vec![0xff; 40].into());
        assert_eq!(Refusal::from_status(&garbage), None);
    }
}
