//! Times both lookups over hidden sizes (HE-LRM, figure 5): `coded_speed 50 300 768`.

use hushtable_infer::coded::compare;
use hushtable_rlwe::ring::Platform;

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    for dim in sizes {
        let found = compare(dim, 4, 8, 3, Platform::detect()).expect("parameters that are valid");
        println!("{}", serde_json::to_string(&found).expect("numbers"));
        println!("{dim}: {:.1}x", found.coded.ms / found.linear.ms);
    }
}
