//! Instances: what one call of create made, and nothing else did.

use std::fmt;

use hushtable_prg::{EntropyError, fill_random};

/// Bytes of an instance's name.
pub const INSTANCE_BYTES: usize = 32;

/// The name that a controller gets when it is created: public, random, in every journal's header and
/// in the root counter, and in the key that its buckets are sealed under. So of two controllers of one
/// key neither can be given the other's files.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Instance([u8; INSTANCE_BYTES]);

impl Instance {
    /// A new one.
    ///
    /// # Errors
    ///
    /// The operating system has no random bytes to give.
    pub fn random() -> Result<Self, EntropyError> {
        let mut name = [0; INSTANCE_BYTES];
        fill_random(&mut name)?;
        Ok(Self(name))
    }

    /// The one of this name.
    pub fn from_bytes(name: [u8; INSTANCE_BYTES]) -> Self {
        Self(name)
    }

    /// Its name.
    pub fn bytes(&self) -> &[u8; INSTANCE_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instance({self})")
    }
}

impl fmt::Display for Instance {
    /// The first 8 bytes in hexadecimal: enough to tell two apart in a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
