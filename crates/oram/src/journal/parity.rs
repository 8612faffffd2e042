//! Parity: makes a body whole again when one part of it came back wrong.
//!
//! A body is cut into parts of equal size, at most [`PARTS`], and followed by their exclusive or. Where
//! one part is wrong, it is the exclusive or of the others and the parity. Which one that is nobody
//! says: each is tried, and the body's own authentication code knows. So what is wrong may be a flipped
//! bit, or all of a part, and a part is never smaller than [`PART_BYTES_MIN`].
//!
//! Parity is of sealed bytes, and says nothing that they do not.

/// Parts of a body, at most: mending tries so many bodies.
const PARTS: usize = 64;
/// Parts of short bodies. A sector of a disk has more, but a short body is there in one anyway.
const PART_BYTES_MIN: usize = 64;

/// Bytes of a part, and of the parity.
pub(super) fn parity_bytes(body_bytes: usize) -> usize {
    body_bytes.div_ceil(PARTS).max(PART_BYTES_MIN)
}

/// The exclusive or of the parts of `body`, the last of them padded with zeros.
pub(super) fn parity(body: &[u8]) -> Vec<u8> {
    let mut parity = vec![0; parity_bytes(body.len())];
    let part_bytes = parity.len();
    body.chunks(part_bytes).for_each(|part| add(&mut parity, part));
    parity
}

/// Calls `is_whole` with `body` as it would be if each part in turn were the wrong one, until it
/// says yes; the body is then that, else as it was.
pub(super) fn mend(
    body: &mut [u8],
    parity_read: &[u8],
    is_whole: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    // What has to be added to the wrong part; all the others cancel out.
    let mut wrong = parity(body);
    add(&mut wrong, parity_read);
    if wrong.iter().all(|&byte| byte == 0) {
        return false;
    }
    let part_bytes = wrong.len();
    for at in (0..body.len()).step_by(part_bytes) {
        let part = at..body.len().min(at + part_bytes);
        // In the padding nothing can be wrong.
        if wrong[part.len()..].iter().any(|&byte| byte != 0) {
            continue;
        }
        add(&mut body[part.clone()], &wrong);
        if is_whole(body) {
            return true;
        }
        add(&mut body[part], &wrong);
    }
    false
}

fn add(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_part_is_mended_and_two_are_not() {
        for body_bytes in [1, 16, 63, 64, 65, 200, 4096, 5000, 40_000] {
            let good: Vec<u8> = (0..body_bytes).map(|at| (at * 7 + body_bytes) as u8).collect();
            let parity = parity(&good);
            for at in (0..body_bytes).step_by(parity.len().min(61)) {
                let part = at / parity.len() * parity.len();
                let mut bad = good.clone();
                let part = part..body_bytes.min(part + parity.len());
                bad[part].fill(0xa5);
                assert!(mend(&mut bad, &parity, &mut |body| body == good));
                assert_eq!(bad, good);
            }
            if body_bytes > parity.len() {
                let mut bad = good.clone();
                bad[0] ^= 1;
                bad[parity.len()] ^= 2;
                let as_it_was = bad.clone();
                assert!(!mend(&mut bad, &parity, &mut |body| body == good));
                assert_eq!(bad, as_it_was);
            }
        }
    }
}
