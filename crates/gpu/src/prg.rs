//! Generators on the device: which macros choose them, and what they take.

use hushtable_prg::PrgKind;

/// How the kernels of a generator are made, where only a measurement on a device can tell which of
/// two ways is faster. The shares are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct PrgTuning {
    /// AES as a circuit on bits, and not by tables in shared memory.
    pub aes_bitsliced: bool,
    /// One ChaCha rotation of four by multiplication, on the pipe that has less to do.
    pub rotate_by_multiply: bool,
}

/// The table that AES looks up, once a bank.
const AES_TABLE_BYTES: u32 = 32 << 10;

impl PrgTuning {
    /// Every generator in each way that differs for it.
    pub fn all() -> impl Iterator<Item = (PrgKind, Self)> {
        let plain = Self::default();
        let bitsliced = Self { aes_bitsliced: true, ..plain };
        let multiplied = Self { rotate_by_multiply: true, ..plain };
        let others = [
            (PrgKind::Aes128, bitsliced),
            (PrgKind::ChaCha20, multiplied),
            (PrgKind::ChaCha12, multiplied),
        ];
        PrgKind::ALL.into_iter().map(move |prg| (prg, plain)).chain(others)
    }

    /// The macros of a module that includes `tree.cuh` for this generator.
    pub fn defines(self, prg: PrgKind) -> Vec<(&'static str, u32)> {
        let mut defines = vec![("PRG", u32::from(prg.id()))];
        if self.aes_bitsliced && prg == PrgKind::Aes128 {
            defines.push(("AES_BITSLICED", 1));
        }
        if self.rotate_by_multiply && matches!(prg, PrgKind::ChaCha20 | PrgKind::ChaCha12) {
            defines.push(("ROTATE_BY_MULTIPLY", 1));
        }
        defines
    }

    /// `PRG_SHARED_BYTES`: what the generator takes of a block's shared memory, from its beginning.
    pub fn shared_bytes(self, prg: PrgKind) -> u32 {
        if prg == PrgKind::Aes128 && !self.aes_bitsliced { AES_TABLE_BYTES } else { 0 }
    }
}
