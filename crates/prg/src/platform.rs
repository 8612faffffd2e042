//! Which instructions this machine has, found once and carried as a value.

use std::fmt;

/// The instruction tier that a kernel runs on.
///
/// A tier is a promise that *every* flag its kernels use was detected, so a value of this type is
/// what makes the calls into `#[target_feature]` code sound. Tiers are only made by
/// [`Platform::detect`] and [`Platform::available`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform(Tier);

/// The names behind [`Platform`], in rising order of preference on one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_enums, reason = "kernels match on every tier")]
pub enum Tier {
    /// Plain Rust: the readable specification of every other tier.
    Portable,
    /// 128-bit NEON with the AES and carry-less multiplication instructions (aarch64).
    Neon,
    /// AVX2, AES-NI and PCLMULQDQ (x86-64).
    Avx2,
    /// AVX-512 F/BW/DQ/VL with GFNI, VAES and VPCLMULQDQ (x86-64).
    Avx512,
}

impl Platform {
    /// The specification path, there on every machine.
    pub const PORTABLE: Self = Self(Tier::Portable);

    /// The best tier that this machine has and `HUSHTABLE_ISA` allows.
    ///
    /// `HUSHTABLE_ISA` may be `portable`, `neon`, `avx2` or `avx512`; it caps detection and never
    /// raises it. Any other value is ignored here ([`Platform::isa_cap`] reports it).
    pub fn detect() -> Self {
        let cap = Self::isa_cap().ok().flatten().unwrap_or(Tier::Avx512);
        let best = Self::available().into_iter().rfind(|p| p.0 <= cap);
        best.unwrap_or(Self::PORTABLE)
    }

    /// Every tier that this machine can run, worst first; the cap is not applied.
    pub fn available() -> Vec<Self> {
        let mut tiers = vec![Self::PORTABLE];
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if std::arch::is_aarch64_feature_detected!("neon")
            && std::arch::is_aarch64_feature_detected!("aes")
        {
            tiers.push(Self(Tier::Neon));
        }
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("aes")
                && is_x86_feature_detected!("pclmulqdq");
            if avx2 {
                tiers.push(Self(Tier::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("gfni")
                && is_x86_feature_detected!("vaes")
                && is_x86_feature_detected!("vpclmulqdq")
            {
                tiers.push(Self(Tier::Avx512));
            }
        }
        tiers
    }

    /// The cap in `HUSHTABLE_ISA`, if it is set.
    ///
    /// # Errors
    /// The unknown text itself, so that `doctor` can name it.
    pub fn isa_cap() -> Result<Option<Tier>, String> {
        match std::env::var("HUSHTABLE_ISA") {
            Err(_) => Ok(None),
            Ok(text) => match text.to_ascii_lowercase().as_str() {
                "" => Ok(None),
                "portable" => Ok(Some(Tier::Portable)),
                "neon" => Ok(Some(Tier::Neon)),
                "avx2" => Ok(Some(Tier::Avx2)),
                "avx512" => Ok(Some(Tier::Avx512)),
                _ => Err(text),
            },
        }
    }

    /// The tier, to match on.
    pub fn tier(self) -> Tier {
        self.0
    }

    /// The tier's name as `HUSHTABLE_ISA` and the benchmarks spell it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Tier::Portable => "portable",
            Tier::Neon => "neon",
            Tier::Avx2 => "avx2",
            Tier::Avx512 => "avx512",
        }
    }
}

/// Plain Rust that gains from being compiled for wider instructions, by [`Platform::run`].
pub trait Vectorised {
    /// What it returns.
    type Output;

    /// Does it. Mark it `#[inline(always)]`, and whatever it calls in its loops: only what is inlined is
    /// compiled for the platform.
    fn run(self) -> Self::Output;
}

impl Platform {
    /// Runs `work`, compiled for the instructions of this platform: the same text for each, so the same
    /// results.
    #[inline]
    pub fn run<W: Vectorised>(self, work: W) -> W::Output {
        match self.0 {
            // SAFETY: a tier is made only where all of its flags, these among them, were detected.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => unsafe { run_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => unsafe { run_avx512(work) },
            // NEON is part of arm64's baseline.
            _ => work.run(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<W: Vectorised>(work: W) -> W::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<W: Vectorised>(work: W) -> W::Output {
    work.run()
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_gives_the_same_on_every_platform() {
        struct Sum<'a>(&'a [u16]);
        impl Vectorised for Sum<'_> {
            type Output = u16;

            #[inline(always)]
            fn run(self) -> u16 {
                self.0.iter().fold(0, |sum, &term| sum.wrapping_mul(3) ^ term)
            }
        }
        let terms: Vec<u16> = (0..1000u16).map(|i| i.wrapping_mul(77)).collect();
        let expected = Sum(&terms).run();
        for platform in Platform::available() {
            assert_eq!(platform.run(Sum(&terms)), expected, "{platform:?}");
        }
    }

    /// What `make test-neon` asks for: where NEON is not found, its other tests would pass by the portable
    /// kernels alone.
    #[test]
    fn neon_is_found_where_it_is_needed() {
        if std::env::var_os("HUSHTABLE_NEEDS_NEON").is_some() {
            assert_eq!(Platform::available().last().map(|best| best.tier()), Some(Tier::Neon));
        }
    }
}
