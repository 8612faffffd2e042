//! Makes enums of tables of reasons.

/// Makes an enum of a table of reasons, with what carries them over the wire.
///
/// Each entry is a variant, the status that it comes with, the reason that travels, and the facts in
/// the order in which the contract lists them; `#[error("...")]` is the text, which says what to do.
/// The types of facts are [`Fact`](crate::refusal::Fact)s. The enum is a
/// [`Table`](crate::refusal::Table), so a [`Refusal`](crate::Refusal) is made of each of its values.
/// The crate that calls this must depend on `thiserror`.
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
    ($(#[doc = $doc:literal])* $vis:vis enum $name:ident { $($reasons:tt)* }) => {
        $crate::refusal_table! { $(#[doc = $doc])* $vis enum $name { $($reasons)* } }

        impl $crate::refusal::Table for $name {
            fn reasons() -> Vec<$crate::refusal::Reason> {
                Self::reasons()
            }

            fn reason(&self) -> &'static str {
                self.reason()
            }

            fn to_status(&self) -> $crate::refusal::Status {
                self.to_status()
            }

            fn from_facts(reason: &str, facts: &$crate::refusal::Facts) -> Option<Self> {
                Self::from_facts(reason, facts)
            }

            fn samples() -> Vec<Self> {
                Self::samples()
            }
        }
    };
}

/// What [`refusals!`](crate::refusals) makes of a table alone; what comes after `with` are the reasons
/// that are not the table's.
#[doc(hidden)]
#[macro_export]
macro_rules! refusal_table {
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
                $($( all.extend(<$table>::reasons()); )*)?
                all
            }

            /// The reason, as it travels.
            pub fn reason(&self) -> &'static str {
                match self {
                    $( Self::$variant { .. } => $reason, )*
                    $($( Self::$other(refusal) => refusal.reason(), )*)?
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
                    $($( Self::$other(refusal) => refusal.to_status(), )*)?
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
