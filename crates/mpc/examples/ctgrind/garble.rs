//! What a garbler does with its own bits.

use hushtable_mpc::{Platform, garble};
use hushtable_prg::valgrind::{mark_public, mark_secret};

/// Labels of secret bits.
pub fn select() {
    let mut zeros = [0; 48];
    garble::labels(Platform::detect(), &[5; 16], 0, &mut zeros);
    let (mut choices, mut delta) = ([0xF00F, 0x1234, 0], [0x1357_u128]);
    mark_secret(&mut choices);
    mark_secret(&mut delta);
    let mut labels = [0; 48];
    garble::select(Platform::detect(), delta[0], &zeros, &choices, &mut labels);
    mark_public(&mut labels);
    assert_eq!(labels[0] ^ zeros[0], 0x1357);
    assert_eq!(labels[4], zeros[4]);
}
