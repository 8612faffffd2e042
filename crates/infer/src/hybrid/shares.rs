//! What each party does on its own share.

use super::program::{Shape, Term};

/// Adds a term of windows of `source` to `sum`, modulo 2^64.
pub(super) fn add_windows(term: &Term, source: &[u64], sum: &mut [u64]) {
    let Term::Windows { input, window, stride, shift, .. } = *term else {
        return;
    };
    let Shape { height, width, .. } = input;
    let rows = (height - window[0]) / stride[0] + 1;
    let columns = (width - window[1]) / stride[1] + 1;
    for (plane, out) in
        source.chunks_exact(height * width).zip(sum.chunks_exact_mut(rows * columns))
    {
        for (index, out) in out.iter_mut().enumerate() {
            let corner = index / columns * stride[0] * width + index % columns * stride[1];
            let mut total = 0u64;
            for row in 0..window[0] {
                let from = corner + row * width;
                let values = plane[from..from + window[1]].iter();
                total = values.fold(total, |total, value| total.wrapping_add(*value));
            }
            *out = out.wrapping_add(total << shift);
        }
    }
}
