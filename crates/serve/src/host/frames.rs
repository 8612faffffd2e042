//! What a client's HTTP/2 frames are, without what is in them: whether one takes too long to come,
//! and whether there are too many of those that cost it nothing (RFC 9113, sections 4.1 and 10.5).

use std::time::{Duration, Instant};

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    /// More of PING, SETTINGS, PRIORITY and empty DATA than a client has reason to send.
    Pings,
}

/// Follows the bytes that a client sends.
pub(crate) struct Frames {
    /// Bytes of the preface still to come.
    preface: usize,
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Bytes of the frame still to come.
    payload: usize,
    /// Frames and header blocks that have begun.
    begun: u64,
    /// Whether the frame is DATA, which a body's own limits bound.
    is_data: bool,
    /// Whether a header block has begun that the frame does not end.
    block: bool,
    /// Whether the frame ends a header block.
    ends_block: bool,
    pings_max: u32,
    /// Such frames that may come now, and as of when.
    pings: f64,
    counted: Option<Instant>,
}

impl Frames {
    /// Of a connection on which `pings_max` such frames may come a second.
    pub fn new(pings_max: u32) -> Self {
        Self {
            preface: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            payload: 0,
            begun: 0,
            is_data: false,
            block: false,
            ends_block: false,
            pings_max,
            pings: f64::from(pings_max),
            counted: None,
        }
    }

    /// Whether the preface has not come yet.
    pub fn awaits_preface(&self) -> bool {
        self.preface > 0
    }

    /// Whether something has begun that must come to its end soon: a header block, or any frame but
    /// DATA.
    pub fn is_open(&self) -> bool {
        self.block || self.head_bytes > 0 || self.payload > 0 && !self.is_data
    }

    /// How many frames and header blocks have begun: what is open is another one where this differs.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Takes note of the next bytes.
    pub fn follow(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> Result<(), Misuse> {
        let skipped = self.preface.min(bytes.len());
        self.preface -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.payload > 0 {
                let taken = self.payload.min(bytes.len());
                bytes = &bytes[taken..];
                self.payload -= taken;
                if self.payload == 0 {
                    self.end();
                }
                continue;
            }
            if self.head_bytes == 0 && !self.block {
                self.begun += 1;
            }
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            if self.head_bytes == HEAD_BYTES {
                self.begin(&now)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: impl Fn() -> Instant) -> Result<(), Misuse> {
        let [a, b, c, kind, flags, ..] = self.head;
        self.head_bytes = 0;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        self.is_data = kind == DATA;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.block = true;
            self.ends_block = flags & END_HEADERS != 0;
        }
        let is_ping = match kind {
            PING | SETTINGS => flags & ACK == 0,
            PRIORITY => true,
            DATA => self.payload == 0 && flags & END_STREAM == 0,
            _ => false,
        };
        if self.payload == 0 {
            self.end();
        }
        if is_ping { self.count(now()) } else { Ok(()) }
    }

    fn end(&mut self) {
        if self.ends_block {
            (self.block, self.ends_block) = (false, false);
        }
    }

    /// A bucket of one second's frames, which fills up within one.
    fn count(&mut self, now: Instant) -> Result<(), Misuse> {
        let rate = f64::from(self.pings_max);
        let since = self.counted.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.counted = Some(now);
        self.pings = (self.pings + rate * since.as_secs_f64()).min(rate) - 1.0;
        if self.pings < 0.0 { Err(Misuse::Pings) } else { Ok(()) }
    }
}

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = (payload as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.resize(HEAD_BYTES + payload, 7);
        frame
    }

    /// Whether something is open after each byte, as 0 and 1.
    fn open_after_each(bytes: &[u8]) -> String {
        let mut frames = Frames::new(1000);
        frames.follow(&[0; PREFACE_BYTES], Instant::now).unwrap();
        let mut open = String::new();
        for byte in bytes {
            frames.follow(&[*byte], Instant::now).unwrap();
            open.push(if frames.is_open() { '1' } else { '0' });
        }
        open
    }

    #[test]
    fn what_has_begun_is_open_until_it_ends_however_the_bytes_come() {
        assert_eq!(open_after_each(&frame(PING, 0, 8)), "11111111111111110");
        assert_eq!(open_after_each(&frame(DATA, 0, 3)), "111111110000");
        assert_eq!(open_after_each(&frame(HEADERS, END_HEADERS, 2)), "11111111110");
        let block = [frame(HEADERS, 0, 1), frame(CONTINUATION, END_HEADERS, 1)].concat();
        assert_eq!(open_after_each(&block), "11111111111111111110");
        // Whole, in pieces of any size, the same.
        let all = [block, frame(DATA, 1, 100), frame(PING, 1, 8), frame(HEADERS, 0, 5)].concat();
        for size in 1..all.len() {
            let mut frames = Frames::new(1);
            assert!(frames.awaits_preface());
            frames.follow(&[0; PREFACE_BYTES], Instant::now).unwrap();
            all.chunks(size).for_each(|part| frames.follow(part, Instant::now).unwrap());
            assert!(frames.is_open() && !frames.awaits_preface(), "{size}");
            frames.follow(&frame(CONTINUATION, END_HEADERS, 0), Instant::now).unwrap();
            assert!(!frames.is_open());
            assert_eq!(frames.begun(), 4, "two blocks, DATA, and PING");
        }
    }

    #[test]
    fn frames_that_cost_nothing_are_counted_a_second() {
        let start = Instant::now();
        let at = |ms| move || start + Duration::from_millis(ms);
        for cheap in [frame(PING, 0, 8), frame(SETTINGS, 0, 0), frame(DATA, 0, 0)] {
            let mut frames = Frames::new(10);
            frames.follow(&[0; PREFACE_BYTES], at(0)).unwrap();
            frames.follow(&cheap.repeat(10), at(0)).unwrap();
            assert_eq!(frames.follow(&cheap, at(0)), Err(Misuse::Pings));
            let mut frames = Frames::new(10);
            frames.follow(&[0; PREFACE_BYTES], at(0)).unwrap();
            (0..1000).for_each(|i| frames.follow(&cheap, at(100 * i)).unwrap());
        }
        // Acknowledgements and what carries something are not.
        let mut frames = Frames::new(1);
        let rest = [frame(PING, ACK, 8), frame(DATA, 0, 1), frame(HEADERS, 4, 1)].concat();
        frames.follow(&[vec![0; PREFACE_BYTES], rest.repeat(100)].concat(), at(0)).unwrap();
    }
}
