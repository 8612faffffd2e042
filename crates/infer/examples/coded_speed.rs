//! Times both lookups over hidden sizes (HE-LRM, figure 5), of base 4 with no level left:
//! `coded_speed 50 300 768`; or of another base, so many levels left, in a set that bootstraps too:
//! `coded_speed 50 --bootstraps 64 21`.

use hushtable_infer::coded::{Asked, Indicator, compare};
use hushtable_rlwe::ring::Platform;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = words.split(|word| word == "--bootstraps");
    let numbers = |words: &[String]| -> Vec<usize> {
        words.iter().filter_map(|word| word.parse().ok()).collect()
    };
    let sizes = numbers(parts.next().unwrap_or_default());
    let set = parts.next().map(numbers);
    let (base, left) = match set.as_deref() {
        Some(&[base, left]) => (base, left),
        _ => (4, 0),
    };
    let indicator = Indicator::of_base(base).expect("a base of 4 to 64");
    let (is_bootstrapped, runs) = (set.is_some(), if set.is_some() { 1 } else { 3 });
    for dim in sizes {
        let asked = Asked { dim, indicator, digits: 8, left, is_bootstrapped, runs };
        let found = compare(&asked, Platform::detect()).expect("levels that there are");
        println!("{}", serde_json::to_string(&found).expect("numbers"));
        for way in found.coded.iter().chain(&found.bootstrapped) {
            let (coded, linear) = (way.coded.ms, way.linear.ms);
            println!("{dim}: {} bootstraps, {:.1}x", way.coded.bootstraps, coded / linear);
        }
    }
}
