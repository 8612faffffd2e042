//! Closed lists of words that travel with refusals.

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

words! {
    /// What is wrong with a key or an encrypted query.
    pub enum KeyDefect {
        /// A key format that the server does not know.
        Format = "format",
        /// An output group that the server does not answer.
        Group = "group",
        /// Too few or too many bytes.
        Length = "length",
        /// A ciphertext at another level, or of another scale, than the plan asks for.
        Level = "level",
        /// Bits that must be zero are not.
        Padding = "padding",
        /// Made for other parameters than the server's.
        Parameters = "parameters",
        /// A generator that the server does not take.
        Prg = "prg",
        /// A number at or above its modulus.
        Residue = "residue",
        /// A side that is neither left nor right, or anything newer than this version.
        Other = "other",
    }
    or Other
}

words! {
    /// A limit that a busy server reached.
    pub enum Limit {
        /// One connection's part of the bytes in flight.
        ConnectionBytes = "connection_bytes",
        /// Bytes of requests and answers in flight.
        InflightBytes = "inflight_bytes",
        /// One peer's part of the bytes in flight.
        PeerBytes = "peer_bytes",
        /// One peer's requests in a second.
        PeerRequests = "peer_requests",
        /// Precomputes that are being made, or that are kept.
        Precomputes = "precomputes",
        /// Predictions at once.
        Predictions = "predictions",
        /// Inferences that wait.
        QueueBags = "queue_bags",
        /// Keys that wait.
        QueueKeys = "queue_keys",
        /// Encrypted queries that wait.
        QueueQueries = "queue_queries",
        /// A user's rows made anew, where they are not kept.
        RowsAgain = "rows_again",
        /// Uploads of keys at once.
        Uploads = "uploads",
    }
}
