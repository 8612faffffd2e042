//! A clock of one thread.

use std::sync::OnceLock;
use std::time::Instant;

/// Milliseconds that this thread ran, so that what else the machine does counts less; of the clock where
/// the system does not say.
pub fn thread_ms() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // The system counts up to the last time that it looked at the thread: asked for its place, it looks.
    std::thread::yield_now();
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let own = own.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    match own {
        Some(nanoseconds) => nanoseconds / 1e6,
        None => START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_clock_goes_on_while_it_runs_and_stands_while_it_sleeps() {
        let start = thread_ms();
        std::thread::sleep(std::time::Duration::from_millis(60));
        let slept = thread_ms() - start;
        let (start, clock) = (thread_ms(), Instant::now());
        let mut word = 1u64;
        while clock.elapsed().as_millis() < 60 {
            word = std::hint::black_box(word.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
        }
        let ran = thread_ms() - start;
        assert!(ran > 0.0, "{ran}");
        if std::path::Path::new("/proc/thread-self/schedstat").exists() {
            assert!(slept < 40.0, "{slept}");
        }
    }
}
