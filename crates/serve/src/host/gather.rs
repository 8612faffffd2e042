//! Small writes go out together.
//!
//! HTTP/2 writes a reply's headers, its data and its trailers one after the other, and flushes each:
//! three system calls, three packets, three wake-ups of the client. A [`Gather`] keeps what one turn
//! of a connection writes, and its [`Outlet`] sends it at the end of the turn.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that may keep what is written to it.
pub(crate) struct Gather<S>(Arc<Mutex<Held<S>>>);

/// Sends what a [`Gather`] kept.
pub(crate) struct Outlet<S>(Arc<Mutex<Held<S>>>);

struct Held<S> {
    stream: S,
    keeps: bool,
    bytes: Vec<u8>,
    /// How many of them are sent.
    sent: usize,
}

impl<S> Gather<S> {
    /// Wraps `stream`; until [`Outlet::start`] every write goes out at once.
    pub fn new(stream: S) -> (Self, Outlet<S>) {
        let held = Held { stream, keeps: false, bytes: Vec::new(), sent: 0 };
        let held = Arc::new(Mutex::new(held));
        (Self(Arc::clone(&held)), Outlet(held))
    }

    fn lock(&self) -> MutexGuard<'_, Held<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Outlet<S> {
    /// From now on writes are kept: whoever calls this calls [`poll_drain`](Self::poll_drain) at the
    /// end of every turn.
    pub fn start(&self) {
        self.lock().keeps = true;
    }

    /// Sends what was kept.
    pub fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().poll_drain(cx)
    }

    fn lock(&self) -> MutexGuard<'_, Held<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Held<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.bytes.len() {
            let rest = &self.bytes[self.sent..];
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        // Thousands of quiet connections keep no buffers.
        self.bytes = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Whether `bytes` more are to be kept; makes room for them, or sends what is kept so that they
    /// can go out past it.
    fn poll_keep(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<bool>> {
        let keep = self.keeps && bytes < KEPT_BYTES_MAX;
        if !keep || self.bytes.len() >= KEPT_BYTES_MAX {
            ready!(self.poll_drain(cx))?;
        }
        if keep {
            self.bytes.reserve(bytes);
        }
        Poll::Ready(Ok(keep))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.lock();
        if !ready!(held.poll_keep(cx, bytes.len()))? {
            return Pin::new(&mut held.stream).poll_write(cx, bytes);
        }
        held.bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.lock();
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if !ready!(held.poll_keep(cx, bytes))? {
            return Pin::new(&mut held.stream).poll_write_vectored(cx, slices);
        }
        slices.iter().for_each(|slice| held.bytes.extend_from_slice(slice));
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.lock();
        match held.keeps {
            // The turn's end flushes.
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut held.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.lock();
        ready!(held.poll_drain(cx))?;
        Pin::new(&mut held.stream).poll_shutdown(cx)
    }
}

/// Larger writes are worth a call of their own, and not worth a copy. A connection keeps less than
/// twice this.
const KEPT_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    async fn drain<S: AsyncWrite + Unpin>(outlet: &Outlet<S>) {
        std::future::poll_fn(|cx| outlet.poll_drain(cx)).await.unwrap();
    }

    #[tokio::test]
    async fn writes_wait_for_the_end_of_the_turn_and_keep_their_order() {
        let (ours, mut theirs) = duplex(1 << 20);
        let (mut gather, outlet) = Gather::new(ours);
        gather.write_all(b"now ").await.unwrap();
        let mut found = [0; 4];
        theirs.read_exact(&mut found).await.unwrap();
        assert_eq!(&found, b"now ");

        outlet.start();
        gather.write_all(b"head").await.unwrap();
        gather.flush().await.unwrap();
        let parts = [IoSlice::new(b"er, "), IoSlice::new(b"data")];
        assert_eq!(gather.write_vectored(&parts).await.unwrap(), 8);
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), theirs.read_u8());
        assert!(early.await.is_err(), "nothing goes out before the turn's end");
        drain(&outlet).await;
        let mut found = [0; 12];
        theirs.read_exact(&mut found).await.unwrap();
        assert_eq!(&found, b"header, data");

        // A large write goes out at once, after what was kept.
        gather.write_all(b"kept").await.unwrap();
        let large = vec![7; KEPT_BYTES_MAX];
        gather.write_all(&large).await.unwrap();
        let mut found = vec![0; 4 + large.len()];
        theirs.read_exact(&mut found).await.unwrap();
        assert!(&found[..4] == b"kept" && found[4..] == large);

        // The last words are not lost.
        gather.write_all(b"bye").await.unwrap();
        gather.shutdown().await.unwrap();
        drop((gather, outlet));
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"bye");
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_bounds_what_is_kept() {
        let (ours, mut theirs) = duplex(16);
        let (mut gather, outlet) = Gather::new(ours);
        outlet.start();
        let mut written = 0;
        let chunk = [1; 1000];
        while let Ok(result) =
            tokio::time::timeout(std::time::Duration::from_millis(20), gather.write(&chunk)).await
        {
            written += result.unwrap();
        }
        assert!((KEPT_BYTES_MAX..2 * KEPT_BYTES_MAX).contains(&written), "{written}");
        let reader = tokio::spawn(async move {
            let mut found = vec![0; written];
            theirs.read_exact(&mut found).await.unwrap();
            found
        });
        drain(&outlet).await;
        assert!(reader.await.unwrap().iter().all(|&byte| byte == 1));
    }
}
