//! Keys and seeds from the operating system.

/// Fills `bytes` from the operating system's entropy source.
///
/// Every key, seed and share starts here. The system's source is used as it stands: nothing is
/// cached, buffered or reseeded in this process, so a fork cannot repeat a value.
///
/// # Errors
/// [`EntropyError`] if the system refuses; the content of `bytes` is then unspecified and must not
/// be used.
pub fn fill_random(bytes: &mut [u8]) -> Result<(), EntropyError> {
    getrandom::fill(bytes).map_err(|source| EntropyError { requested_bytes: bytes.len(), source })
}

/// The operating system gave no entropy.
#[derive(Debug, thiserror::Error)]
#[error(
    "the operating system gave no random bytes ({requested_bytes} asked): {source}; \
     no key can be made without them: check that getrandom(2) or /dev/urandom is allowed to this \
     process (a seccomp filter or a bare chroot often is why)"
)]
#[non_exhaustive]
pub struct EntropyError {
    /// How many bytes were asked for.
    pub requested_bytes: usize,
    /// What the system said.
    pub source: getrandom::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written() {
        // 64 draws leave some byte at zero with chance 5 * 256^-64.
        let mut union = [0u8; 5];
        for _ in 0..64 {
            let mut draw = [0u8; 5];
            fill_random(&mut draw).unwrap();
            union.iter_mut().zip(draw).for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(union.iter().all(|&byte| byte != 0), "{union:?}");
        fill_random(&mut []).unwrap();
    }

    #[test]
    fn two_draws_differ() {
        let (mut first, mut second) = ([0u8; 32], [0u8; 32]);
        fill_random(&mut first).unwrap();
        fill_random(&mut second).unwrap();
        assert_ne!(first, second);
    }
}
