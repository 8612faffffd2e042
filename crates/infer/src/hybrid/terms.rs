//! What a server announces and a client must know.

use hushtable_table::Version;
use serde::{Deserialize, Serialize};

use super::check::{POST_MAX, check_name};
use super::network::{Error, Post};
use super::program::Program;

/// The most bytes of terms.
pub const TERMS_BYTES_MAX: usize = 4 << 20;

/// Terms as they travel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Announced {
    format: u32,
    model: String,
    version: Version,
    input_max: u64,
    post: Vec<Post>,
    program: Program,
}

/// What a server announces, checked: the whole program. Of the model it tells everything but its weights:
/// the layers, their sizes, and how numbers are held.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    announced: Announced,
    id: [u8; 32],
}

impl Terms {
    /// The terms of a model; `version` stands for its weights.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Program`] for what no client would accept.
    pub fn new(
        model: &str,
        version: Version,
        program: Program,
        post: Vec<Post>,
        input_max: u64,
    ) -> Result<Self, Error> {
        let model = model.to_owned();
        Self::check(Announced { format: FORMAT, model, version, input_max, post, program })
    }

    /// Reads and checks what a server announced.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Program`] say what no client accepts: sizes out of bounds, terms of
    /// tensors that are not there, text that is not as [`to_bytes`](Self::to_bytes) writes it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let refuse = |why: String| Error::Refused { what: "terms", why };
        if bytes.len() > TERMS_BYTES_MAX {
            return Err(refuse(format!("{} bytes, at most {TERMS_BYTES_MAX}", bytes.len())));
        }
        let announced = serde_json::from_slice(bytes);
        let terms = Self::check(announced.map_err(|error| refuse(error.to_string()))?)?;
        match terms.to_bytes() == bytes {
            true => Ok(terms),
            // Entries that are unknown or twice there would be the same to one party and not the other.
            false => Err(refuse("they hold more than they should, or in another order".into())),
        }
    }

    fn check(announced: Announced) -> Result<Self, Error> {
        let refuse = |why: String| Error::Refused { what: "terms", why };
        if announced.format != FORMAT {
            return Err(refuse(format!("format {}, this build reads {FORMAT}", announced.format)));
        }
        check_name("the model", &announced.model)?;
        if announced.post.len() > POST_MAX {
            return Err(refuse(format!("{} steps after the answer", announced.post.len())));
        }
        announced.program.check()?;
        if !(1..=announced.program.mask() >> 1).contains(&announced.input_max) {
            return Err(refuse(format!("inputs up to {}", announced.input_max)));
        }
        let mut terms = Self { announced, id: [0; 32] };
        let bytes = terms.to_bytes();
        if bytes.len() > TERMS_BYTES_MAX {
            return Err(refuse(format!("{} bytes, at most {TERMS_BYTES_MAX}", bytes.len())));
        }
        terms.id = blake3::derive_key("hushtable hybrid terms", &bytes);
        Ok(terms)
    }

    /// The terms as JSON: one text for the same terms.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.announced).unwrap_or_default()
    }

    /// What both parties must agree on: a hash of all of it.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.announced.model
    }

    /// What stands for the model's weights.
    pub fn version(&self) -> &Version {
        &self.announced.version
    }

    /// What both parties run.
    pub fn program(&self) -> &Program {
        &self.announced.program
    }

    /// What the client does to the answer, in order.
    pub fn post(&self) -> &[Post] {
        &self.announced.post
    }

    /// The largest absolute value of an input, times 2^fraction.
    pub fn input_max(&self) -> u64 {
        self.announced.input_max
    }

    /// An input's numbers as they are shared.
    ///
    /// # Errors
    /// [`Error::Input`], [`Error::InputRange`].
    pub fn encode(&self, input: &[f32]) -> Result<Vec<u64>, Error> {
        super::network::encode(self.program(), self.input_max(), input)
    }

    /// An answer's numbers, with what is left to the client done.
    pub fn decode(&self, output: &[u64]) -> Vec<f32> {
        let mut values = super::network::decode(self.program(), output);
        self.post().iter().for_each(|post| post.apply(&mut values));
        values
    }
}

const FORMAT: u32 = 1;
