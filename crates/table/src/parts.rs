//! Work on many items, a part of them a thread.

use std::panic::resume_unwind;
use std::thread;

/// What `work` makes of each part of `items`, in their order: as many parts as there are cores, of `least` items or more.
pub(crate) fn in_parts<T: Sync, R: Send>(
    items: &[T],
    least: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = items.len().div_ceil(threads).max(least).max(1);
    let mut parts = items.chunks(each);
    let Some(first) = parts.next() else { return Vec::new() };
    thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let own = work(first);
        let joined = others.into_iter().map(|thread| thread.join());
        let joined = joined.map(|made| made.unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(own).chain(joined).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_in_their_order_and_hold_all() {
        for (count, least) in [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 999), (5, 0)] {
            let items: Vec<usize> = (0..count).collect();
            let parts = in_parts(&items, least, <[usize]>::to_vec);
            assert!(parts.iter().all(|part| !part.is_empty()));
            assert!(count == 0 || parts.len() <= count.div_ceil(least.max(1)));
            assert_eq!(parts.concat(), items);
        }
    }
}
