//! A long answer, written piece by piece: the next one is made when the socket has taken the one before it. So a slow client
//! holds one piece, which counts towards the ceiling.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::oneshot;

use super::pace::Pace;
use crate::service::Service;

pub(super) struct LongBody<I> {
    pieces: I,
    service: Arc<Service>,
    pace: Arc<Pace>,
    /// The bytes of the piece that the socket has not taken yet, and how it is known that it has.
    untaken: Option<(usize, oneshot::Receiver<()>)>,
}

impl<I> LongBody<I> {
    pub(super) fn new(pieces: I, service: Arc<Service>, pace: Arc<Pace>) -> LongBody<I> {
        LongBody { pieces, service, pace, untaken: None }
    }
}

impl<I: Iterator<Item = String> + Unpin> HttpBody for LongBody<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let LongBody { pace, untaken, .. } = &mut *self;
        if let Some((bytes, taken)) = untaken {
            // An error is the end of the sender: the piece was dropped.
            let _ = ready!(Pin::new(taken).poll(cx));
            pace.moved(*bytes);
            *untaken = None;
        }
        let Some(text) = self.pieces.next() else { return Poll::Ready(None) };
        let (sender, taken) = oneshot::channel();
        self.untaken = Some((text.len(), taken));
        let piece = Piece::new(self.service.charged(text.into_bytes()), sender);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }
}

/// A piece, until the socket has taken it.
pub(super) struct Piece<B> {
    bytes: B,
    _untaken: oneshot::Sender<()>,
}

impl<B> Piece<B> {
    pub(super) fn new(bytes: B, untaken: oneshot::Sender<()>) -> Piece<B> {
        Piece { bytes, _untaken: untaken }
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Piece<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::protocol::fixture::service;

    #[test]
    fn a_piece_is_made_when_the_one_before_it_was_taken() {
        let service = service();
        let pace = Arc::<Pace>::default();
        let mut made = 0;
        let pieces = std::iter::from_fn(|| {
            made += 1;
            (made < 3).then(|| "x".repeat(1_000))
        });
        let mut body = LongBody::new(pieces, Arc::clone(&service), Arc::clone(&pace));
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = || Pin::new(&mut body).poll_frame(&mut cx);
        for _ in 0..2 {
            let Poll::Ready(Some(Ok(frame))) = next() else { panic!("a piece") };
            assert_eq!(service.held_by_dumps(), 1_000);
            assert!(next().is_pending());
            drop(frame);
            assert_eq!(service.held_by_dumps(), 0);
        }
        assert!(matches!(next(), Poll::Ready(None)));
        assert_eq!(made, 3);
    }
}
