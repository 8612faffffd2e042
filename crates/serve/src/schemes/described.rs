//! A scheme as commands, documents and clients list it: what it says of itself, once, in its folder.

use serde_json::Value;

use crate::refusal::{Listed, Tables};
use crate::settings::{NETWORK, Setting};

/// What a scheme says of itself to whoever lists schemes: [`SCHEMES`](crate::SCHEMES) has all.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Described {
    /// Its name: `pair`, say.
    pub name: &'static str,
    /// What a server of it is one of: "a single server", say.
    pub whose: &'static str,
    /// How its servers are asked: "as a single server, for rows", say.
    pub asked: &'static str,
    /// The service that clients ask, by its full name.
    pub service: &'static str,
    /// Whether one server is asked alone, so that it can be found out which scheme it speaks.
    pub is_alone: bool,
    /// The reasons of its own.
    pub(crate) refusals: Tables,
    pub(crate) settings: &'static [Setting],
    pub(crate) defaults: fn() -> serde_json::Result<Value>,
}

impl Described {
    /// Every setting of its servers, in the order of a help page.
    pub fn settings(&self) -> Vec<Setting> {
        [self.settings, NETWORK].concat()
    }

    /// The value that `setting` has where nobody gives one; null for none.
    pub fn default_of(&self, setting: &Setting) -> Value {
        // What has no default is not what its spec's constructor was given.
        if REQUIRED.contains(&setting.name) {
            return Value::Null;
        }
        let mut value = (self.defaults)().unwrap_or_default();
        for part in setting.name.split('.') {
            value = value.get_mut(part).map(Value::take).unwrap_or_default();
        }
        value
    }

    /// The tables of its reasons, beside those that any server may refuse by.
    pub fn refusals(&self) -> &'static [Listed] {
        self.refusals
    }
}

const REQUIRED: [&str; 3] = ["model", "side", "table"];
