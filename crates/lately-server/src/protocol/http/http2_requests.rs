//! The requests of a connection of HTTP/2. They begin as soon as the connection has read what came, and their answers are
//! sent together.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests that were read and have not begun.
#[derive(Clone, Default)]
pub(super) struct Http2Requests(Arc<Mutex<Vec<Request>>>);

impl Http2Requests {
    /// Polls a connection, and then begins what it has read. If requests were only queued, a server at work for many connections
    /// would first read the heads of all their requests, and the memory for them has no place yet. If each began when its head was
    /// read, each answer would take a call of the system of its own.
    pub(super) fn poll<C: Future>(
        &self,
        connection: Pin<&mut C>,
        context: &mut Context<'_>,
    ) -> Poll<C::Output> {
        // An answer wakes the connection.
        let ended = connection.poll(context);
        let requests = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for mut request in requests {
            // A task of its own polls what waits again, with its own waker.
            let mut at_once = Context::from_waker(Waker::noop());
            if request.as_mut().poll(&mut at_once).is_pending() {
                tokio::spawn(request);
            }
        }
        ended
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Http2Requests {
    fn execute(&self, request: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(request));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::sync::oneshot;

    use super::*;

    /// Symptom: clients of HTTP/2 took more memory than the ceiling allows, by requests alone. Cause: all heads of all
    /// connections were read before the first request began. Fix: each request begins before another connection is read.
    #[test]
    fn a_request_begins_before_another_connection_is_read() {
        let (requests, begun) = (Http2Requests::default(), Arc::new(AtomicUsize::new(0)));
        let mut connection = pin!(poll_fn(|_| -> Poll<()> {
            for _ in 0..3 {
                let begun = Arc::clone(&begun);
                requests.execute(async move { _ = begun.fetch_add(1, Relaxed) });
            }
            // None begins before the connection has read all: their answers are sent together.
            assert!(begun.load(Relaxed).is_multiple_of(3));
            Poll::Pending
        }));
        let mut context = Context::from_waker(Waker::noop());
        for polls in 1..4 {
            // Without a runtime: nothing is queued.
            assert_eq!(requests.poll(connection.as_mut(), &mut context), Poll::Pending);
            assert_eq!(begun.load(Relaxed), 3 * polls);
        }
    }

    /// A client may send a request and go. The request counts, and goes on after it has waited.
    #[tokio::test]
    async fn a_request_goes_on_though_its_connection_has_ended() {
        let (sender, receiver) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let requests = Http2Requests::default();
        let mut connection = pin!(async {
            requests.execute(async move {
                let received: u32 = receiver.await.expect("it is sent");
                done.send(received).expect("it is awaited");
            });
        });
        poll_fn(|context| requests.poll(connection.as_mut(), context)).await;
        sender.send(7).expect("it waits");
        assert_eq!(is_done.await, Ok(7));
    }
}
