//! A link of a given speed: what a connection sends and receives is held back to it.
//!
//! A token bucket for each direction, under TLS, so that every byte on the wire counts. All connections of a
//! client share its link. What is read may be late by one buffer, never the mean.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How fast a client's link is. None for as fast as it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct LinkSpec {
    /// Bits a second to the server.
    pub up_bits_per_s: Option<u64>,
    /// Bits a second from the server.
    pub down_bits_per_s: Option<u64>,
}

/// A link that all connections of a client share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    up: Option<Arc<Mutex<Bucket>>>,
    down: Option<Arc<Mutex<Bucket>>>,
}

/// What may go now, and how fast more may.
#[derive(Debug)]
struct Bucket {
    bytes_per_s: f64,
    burst_bytes: f64,
    /// Below zero after a burst: then nothing goes until it is made good.
    bytes: f64,
    filled: Instant,
}

impl Bucket {
    fn new(bits_per_s: u64, now: Instant) -> Self {
        let bytes_per_s = bits_per_s.max(1) as f64 / 8.0;
        let burst_bytes = (bytes_per_s * BURST.as_secs_f64()).max(BURST_BYTES_MIN);
        Self { bytes_per_s, burst_bytes, bytes: burst_bytes, filled: now }
    }

    /// Until when nothing may go; none where something may.
    fn closed_until(&mut self, now: Instant) -> Option<Instant> {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.bytes = (self.bytes + elapsed * self.bytes_per_s).min(self.burst_bytes);
        self.filled = now;
        let missing = -self.bytes;
        (missing > 0.0).then(|| now + Duration::from_secs_f64(missing / self.bytes_per_s))
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes -= bytes as f64;
    }
}

impl Link {
    pub fn new(spec: LinkSpec) -> Self {
        let now = Instant::now();
        let bucket =
            |rate: Option<u64>| rate.map(|rate| Arc::new(Mutex::new(Bucket::new(rate, now))));
        Self { up: bucket(spec.up_bits_per_s), down: bucket(spec.down_bits_per_s) }
    }

    /// A connection over this link.
    pub fn carry<S>(&self, stream: S) -> Shaped<S> {
        let gate =
            |bucket: &Option<Arc<Mutex<Bucket>>>| Gate { bucket: bucket.clone(), sleep: None };
        Shaped { stream, up: gate(&self.up), down: gate(&self.down) }
    }
}

/// A stream that goes no faster than its link.
pub(crate) struct Shaped<S> {
    stream: S,
    up: Gate,
    down: Gate,
}

struct Gate {
    bucket: Option<Arc<Mutex<Bucket>>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Gate {
    /// Ready when something may go; how many bytes at most.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(bucket) = &self.bucket else { return Poll::Ready(usize::MAX) };
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            let closed = {
                let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
                bucket.closed_until(Instant::now())
            };
            match closed {
                None => return Poll::Ready(PIECE_BYTES_MAX),
                Some(until) => self.sleep = Some(Box::pin(sleep_until(until))),
            }
        }
    }

    fn spend(&self, bytes: usize) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().unwrap_or_else(PoisonError::into_inner).spend(bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Shaped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.down.bucket.is_none() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let most = ready!(this.down.poll_open(cx)).min(buffer.remaining());
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece))?;
        let read = piece.filled().len();
        buffer.advance(read);
        this.down.spend(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Shaped<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let most = ready!(this.up.poll_open(cx)).min(bytes.len());
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, &bytes[..most]))?;
        this.up.spend(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.up.bucket.is_none() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        }
        let first = parts.iter().find(|part| !part.is_empty());
        self.poll_write(cx, first.map_or(&[], |part| part))
    }

    fn is_write_vectored(&self) -> bool {
        self.up.bucket.is_none() && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const BURST: Duration = Duration::from_millis(10);
const BURST_BYTES_MIN: f64 = 16.0 * 1024.0;
const PIECE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_direction_goes_at_its_own_speed() {
        let spec = LinkSpec { up_bits_per_s: Some(8_000_000), down_bits_per_s: Some(80_000_000) };
        let (ours, mut theirs) = duplex(1 << 26);
        let mut shaped = Link::new(spec).carry(ours);
        let bytes = vec![7; 2_000_000];
        let started = Instant::now();
        shaped.write_all(&bytes).await.unwrap();
        let up = started.elapsed().as_secs_f64();
        assert!((1.85..=2.05).contains(&up), "{up}");
        let mut found = vec![0; bytes.len()];
        theirs.read_exact(&mut found).await.unwrap();
        assert_eq!(found, bytes);

        theirs.write_all(&bytes).await.unwrap();
        let started = Instant::now();
        shaped.read_exact(&mut found).await.unwrap();
        let down = started.elapsed().as_secs_f64();
        assert!((0.17..=0.21).contains(&down), "{down}");
        assert_eq!(found, bytes);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_share_their_link() {
        let spec = LinkSpec { up_bits_per_s: Some(8_000_000), down_bits_per_s: None };
        let link = Link::new(spec);
        let (one, mut one_end) = duplex(1 << 22);
        let (two, mut two_end) = duplex(1 << 22);
        let (mut one, mut two) = (link.carry(one), link.carry(two));
        let bytes = vec![1; 1_000_000];
        let started = Instant::now();
        let (first, second) = tokio::join!(one.write_all(&bytes), two.write_all(&bytes));
        first.and(second).unwrap();
        let took = started.elapsed().as_secs_f64();
        assert!((1.85..=2.1).contains(&took), "{took}");
        // The other direction has no limit.
        one_end.write_all(&bytes).await.unwrap();
        two_end.write_all(&bytes).await.unwrap();
        let (started, mut found) = (Instant::now(), vec![0; bytes.len()]);
        one.read_exact(&mut found).await.unwrap();
        two.read_exact(&mut found).await.unwrap();
        assert!(started.elapsed() < Duration::from_millis(1));
    }

    #[tokio::test]
    async fn without_a_speed_nothing_is_held_back() {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut plain = Link::default().carry(ours);
        plain.write_all(&[5; 1000]).await.unwrap();
        let mut found = [0; 1000];
        theirs.read_exact(&mut found).await.unwrap();
        assert_eq!(found, [5; 1000]);
    }
}
