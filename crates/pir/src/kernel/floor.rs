//! What this machine's core and memory can do at best: the floors that benchmarks report against.
//!
//! Each function measures for some tens of milliseconds (a gigabyte of memory: some tenths of a second) and returns the
//! best of its repeats.

use std::hint::black_box;
use std::time::Instant;

use hushtable_prg::{Platform, Tier};
use memmap2::MmapMut;
use zerocopy::FromBytes;

/// Times that memory is read at least: on a shared machine some fall into another's busy moment.
const REPEATS_MIN: usize = 9;

/// Bytes read a second, in GB/s, by `threads` threads that together stream over `bytes` of memory.
///
/// `bytes` far beyond the last-level cache measures the memory; few bytes measure a cache.
pub fn read_gb_per_s(bytes: usize, threads: usize) -> f64 {
    let threads = threads.max(1);
    let words = (bytes / 8 / threads).max(8192) & !4095;
    let repeats = ((256 << 20) / (words * 8)).clamp(REPEATS_MIN, 1 << 14);
    let barrier = std::sync::Barrier::new(threads);
    let seconds = std::thread::scope(|scope| {
        let run = |_| {
            scope.spawn(|| {
                let memory = mapped_memory(words * 8).ok();
                barrier.wait();
                let words = <[u64]>::ref_from_bytes(memory.as_ref()?).ok()?;
                Some((0..repeats).fold(f64::INFINITY, |best, _| {
                    let start = Instant::now();
                    black_box(stream(words));
                    best.min(start.elapsed().as_secs_f64())
                }))
            })
        };
        let runs: Vec<_> = (0..threads).map(run).collect();
        runs.into_iter().filter_map(|run| run.join().ok().flatten()).fold(0.0, f64::max)
    });
    // No memory, no reading: the floor is then unknown, and 0 says so.
    if seconds > 0.0 { (words * 8 * threads) as f64 / seconds / 1e9 } else { 0.0 }
}

/// Memory mapped as the table is, with huge pages where the system gives them, and written once so
/// that no read finds the shared zero page.
fn mapped_memory(bytes: usize) -> std::io::Result<MmapMut> {
    let mut memory = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.fill(0x5A);
    Ok(memory)
}

/// XORs everything, four pages side by side so that several streams are in flight.
fn stream(memory: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if Platform::available().iter().any(|platform| platform.tier() == Tier::Avx512) {
        // SAFETY: a `Platform` of this tier exists only where its features were detected.
        return unsafe { stream_avx512(memory) };
    }
    let mut sums = [0u64; 32];
    for line in memory.chunks_exact(32) {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum ^= word;
        }
    }
    sums.into_iter().fold(0, |a, b| a ^ b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn stream_avx512(memory: &[u64]) -> u64 {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_setzero_si512(); 4];
    for lines in memory.chunks_exact(32) {
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(512).cast());
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(520).cast());
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(528).cast());
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(536).cast());
        for (sum, line) in sums.iter_mut().zip(lines.chunks_exact(8)) {
            // SAFETY: `line` has 64 bytes.
            *sum = _mm512_xor_si512(*sum, unsafe { _mm512_loadu_si512(line.as_ptr().cast()) });
        }
    }
    let [a, b, c, d] = sums;
    let sum = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
    _mm512_reduce_or_epi64(sum) as u64
}

/// Nanoseconds a 512-bit `vgf2p8affineqb` takes in a full pipeline; `None` below AVX-512.
pub fn affine_ns() -> Option<f64> {
    measure_avx512(|| {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `measure_avx512` calls this only where the tier was detected.
        unsafe {
            affine_avx512()
        }
    })
}

/// Nanoseconds a 512-bit `vaesenc` (four blocks, one round) takes in a full pipeline; `None` below
/// AVX-512.
pub fn aes_round_ns() -> Option<f64> {
    measure_avx512(|| {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `measure_avx512` calls this only where the tier was detected.
        unsafe {
            aes_round_avx512()
        }
    })
}

/// Nanoseconds a 512-bit `vpmadd52luq` takes in a full pipeline; `None` where the processor has none.
pub fn multiply_ns() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512ifma") {
        return measure_avx512(|| {
            // SAFETY: AVX-512 F by `measure_avx512`'s tier; IFMA was detected above.
            unsafe { multiply_avx512() }
        });
    }
    None
}

const CHAINS: usize = 12;
const STEPS: usize = 100_000;

fn measure_avx512(run: impl Fn()) -> Option<f64> {
    Platform::available().into_iter().find(|platform| platform.tier() == Tier::Avx512)?;
    let best = (0..30).fold(f64::INFINITY, |best, _| {
        let start = Instant::now();
        run();
        best.min(start.elapsed().as_secs_f64())
    });
    Some(best * 1e9 / (CHAINS * STEPS) as f64)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn affine_avx512() {
    use std::arch::x86_64::*;
    let matrix = _mm512_set1_epi64(black_box(0x0102_0408_1020_4081));
    let mut x: [__m512i; CHAINS] = std::array::from_fn(|i| _mm512_set1_epi64(i as i64));
    for _ in 0..STEPS {
        for x in &mut x {
            *x = _mm512_gf2p8affine_epi64_epi8::<0>(*x, matrix);
        }
    }
    black_box(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512ifma")]
fn multiply_avx512() {
    use std::arch::x86_64::*;
    let factor = _mm512_set1_epi64(black_box(0x000F_1234_5678_9ABC));
    let mut x: [__m512i; CHAINS] = std::array::from_fn(|i| _mm512_set1_epi64(i as i64));
    for _ in 0..STEPS {
        for x in &mut x {
            *x = _mm512_madd52lo_epu64(*x, *x, factor);
        }
    }
    black_box(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,vaes")]
fn aes_round_avx512() {
    use std::arch::x86_64::*;
    let key = _mm512_set1_epi64(black_box(0x0123_4567_89AB_CDEF));
    let mut x: [__m512i; CHAINS] = std::array::from_fn(|i| _mm512_set1_epi64(i as i64));
    for _ in 0..STEPS {
        for x in &mut x {
            *x = _mm512_aesenc_epi128(*x, key);
        }
    }
    black_box(x);
}
