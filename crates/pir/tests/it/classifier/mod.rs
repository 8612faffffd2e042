//! Tells two classes of views apart, if a view's bits say anything of its class.
//!
//! Naive Bayes over the bits of the view, trained on some views and scored on others: it finds any
//! flaw that is linear in the bits.
#![allow(dead_code, reason = "each user calls one of the two")]

const TRAIN: usize = 1500;
const TEST: usize = 1000;
/// Six standard deviations above a coin's accuracy on `TEST` views: a false alarm in 10^9 runs.
pub const CHANCE_MAX: f64 = 0.5 + 6.0 * 0.5 / 31.62;

/// The accuracy, on fresh views, of a classifier trained to tell `view(false)` from `view(true)`.
pub fn accuracy(view: impl FnMut(bool) -> Vec<u8>) -> f64 {
    accuracy_of([TRAIN, TEST], view)
}

/// As [`accuracy`], of a classifier that sees `train` views of each class and is scored on `test`: where
/// views are dear.
pub fn accuracy_of([train, test]: [usize; 2], mut view: impl FnMut(bool) -> Vec<u8>) -> f64 {
    // How often each bit is set, by class; a shorter view's missing bits count as zero.
    let mut ones = [Vec::<f64>::new(), Vec::new()];
    for i in 0..2 * train {
        let class = i % 2;
        let bytes = view(class == 1);
        for ones in &mut ones {
            ones.resize(ones.len().max(8 * bytes.len()), 0.0);
        }
        for (bit, count) in ones[class].iter_mut().enumerate() {
            *count += f64::from(bit_of(&bytes, bit));
        }
    }
    let log_odds: Vec<[f64; 2]> = ones[0]
        .iter()
        .zip(&ones[1])
        .map(|(a, b)| {
            let rate = |count: f64| (count + 1.0) / (train as f64 + 2.0);
            [((1.0 - rate(*b)) / (1.0 - rate(*a))).ln(), (rate(*b) / rate(*a)).ln()]
        })
        .collect();
    let right = (0..test).filter(|i| {
        let class = i % 2 == 1;
        let bytes = view(class);
        let score: f64 =
            log_odds.iter().enumerate().map(|(bit, odds)| odds[bit_of(&bytes, bit) as usize]).sum();
        (score > 0.0) == class
    });
    right.count() as f64 / test as f64
}

fn bit_of(bytes: &[u8], bit: usize) -> u8 {
    bytes.get(bit / 8).map_or(0, |byte| byte >> (bit % 8) & 1)
}
