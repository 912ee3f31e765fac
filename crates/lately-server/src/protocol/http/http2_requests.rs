//! The requests of a connection of HTTP/2. They begin as soon as the connection has read what came, and their answers are
//! sent together.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use hyper::rt::Executor;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests that were read and have not begun.
#[derive(Clone, Default)]
pub(super) struct Http2Requests(Arc<Mutex<Vec<Request>>>);

impl Http2Requests {
    /// Begins those that were read. If they were only queued, a server at work for many connections would first read the heads of
    /// all their requests, and the memory for them has no place yet. If each began when its head was read, each answer would
    /// take a call of the system of its own. Returns whether there were some.
    fn begin(&self) -> bool {
        let requests = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let are_some = !requests.is_empty();
        for mut request in requests {
            // A task of its own polls what waits again, with its own waker.
            let mut context = Context::from_waker(Waker::noop());
            // A panic has been reported, and ends this request only.
            let polled = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut context)));
            if matches!(polled, Ok(Poll::Pending)) {
                tokio::spawn(request);
            }
        }
        are_some
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Http2Requests {
    fn execute(&self, request: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(request));
    }
}

/// Wakes the task of a connection, but not for the answers that are sent before its poll ends.
struct Bell {
    task: Mutex<Waker>,
    is_polled: AtomicBool,
    has_rung: AtomicBool,
}

impl Bell {
    fn task(&self) -> MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        // Each sets its own flag before it reads the other one: a wake is seen by the poll, or wakes the task.
        self.has_rung.store(true, SeqCst);
        if !self.is_polled.load(SeqCst) {
            self.task().wake_by_ref();
        }
    }
}

/// A connection with its requests.
pub(super) struct Http2Connection<C> {
    connection: Pin<Box<C>>,
    requests: Http2Requests,
    bell: Arc<Bell>,
}

impl<C: Future> Http2Connection<C> {
    /// Polls a connection, which runs its requests by `requests`.
    pub(super) fn new(connection: C, requests: Http2Requests) -> Http2Connection<C> {
        let (is_polled, has_rung) = (AtomicBool::new(false), AtomicBool::new(false));
        let bell = Bell { task: Mutex::new(Waker::noop().clone()), is_polled, has_rung };
        Http2Connection { connection: Box::pin(connection), requests, bell: Arc::new(bell) }
    }

    pub(super) fn inner(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C> Drop for Http2Connection<C> {
    fn drop(&mut self) {
        // After a panic some may be left. They hold the queue, so it would hold itself.
        let left = mem::take(&mut *self.requests.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(left);
    }
}

impl<C: Future> Future for Http2Connection<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let bell = Arc::clone(&self.bell);
        bell.task().clone_from(context.waker());
        bell.is_polled.store(true, SeqCst);
        // Whatever has woken it before this is seen by the poll.
        bell.has_rung.swap(false, SeqCst);
        let waker = Waker::from(Arc::clone(&bell));
        let mut bell_context = Context::from_waker(&waker);
        let mut ended = self.connection.as_mut().poll(&mut bell_context);
        if self.requests.begin() && ended.is_pending() {
            // Now it sends their answers, and sees what has woken it meanwhile.
            bell.has_rung.swap(false, SeqCst);
            ended = self.connection.as_mut().poll(&mut bell_context);
            self.requests.begin();
        }
        bell.is_polled.store(false, SeqCst);
        if bell.has_rung.swap(false, SeqCst) {
            context.waker().wake_by_ref();
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::sync::oneshot;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Symptom: clients of HTTP/2 took more memory than the ceiling allows, by requests alone. Cause: all heads of all
    /// connections were read before the first request began. Fix: each request begins before another connection is read.
    #[test]
    fn a_request_begins_before_another_connection_is_read() {
        let (requests, begun) = (Http2Requests::default(), Arc::new(AtomicUsize::new(0)));
        let (executor, count) = (requests.clone(), Arc::clone(&begun));
        let mut polls = 0;
        let connection = poll_fn(move |_| -> Poll<()> {
            polls += 1;
            if polls == 1 {
                for _ in 0..3 {
                    let begun = Arc::clone(&count);
                    executor.execute(async move { _ = begun.fetch_add(1, Relaxed) });
                }
            } else {
                // None begins before the connection has read all: their answers are sent together, by the second poll.
                assert_eq!((polls, count.load(Relaxed)), (2, 3));
            }
            Poll::Pending
        });
        // Without a runtime: nothing is queued.
        let mut connection = Http2Connection::new(connection, requests);
        let polled = Pin::new(&mut connection).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((polled, begun.load(Relaxed)), (Poll::Pending, 3));
    }

    /// An answer that the same poll sends does not wake the task. Everything else does.
    #[test]
    fn a_wake_is_missed_only_if_the_poll_has_seen_it() {
        let requests = Http2Requests::default();
        let (executor, wakers) = (requests.clone(), Arc::new(Mutex::new(Vec::<Waker>::new())));
        let kept = Arc::clone(&wakers);
        let mut polls = 0;
        let connection = poll_fn(move |context| -> Poll<()> {
            polls += 1;
            let waker = context.waker().clone();
            kept.lock().expect("no panic").push(waker.clone());
            // 1 reads a request, 2 sends its answer. 3 is out of its budget, and wants to be polled again.
            match polls {
                1 => executor.execute(async move { waker.wake() }),
                3 => waker.wake(),
                _ => {}
            }
            Poll::Pending
        });
        let mut connection = Http2Connection::new(connection, requests);
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll = || {
            assert!(Pin::new(&mut connection).poll(&mut Context::from_waker(&waker)).is_pending());
            woken.0.load(Relaxed)
        };
        assert_eq!([poll(), poll(), poll()], [0, 1, 1]);
        wakers.lock().expect("no panic")[0].wake_by_ref();
        assert_eq!(woken.0.load(Relaxed), 2, "between two polls");
        assert_eq!(poll(), 2, "once");
    }

    /// A panic in a request ends neither the others nor the connection.
    #[test]
    fn a_panic_ends_one_request_only() {
        let (requests, begun) = (Http2Requests::default(), Arc::new(AtomicUsize::new(0)));
        let executor = requests.clone();
        for number in 0..3 {
            let begun = Arc::clone(&begun);
            executor.execute(async move {
                begun.fetch_add(1, Relaxed);
                assert_ne!(number, 1, "a panic on purpose");
            });
        }
        let mut connection = Http2Connection::new(poll_fn(|_| Poll::<()>::Pending), requests);
        let polled = Pin::new(&mut connection).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((polled, begun.load(Relaxed)), (Poll::Pending, 3));
    }

    /// Requests hold the queue that they are in.
    #[test]
    fn requests_that_never_begin_are_dropped_with_their_connection() {
        let (executor, alive) = (Http2Requests::default(), Arc::new(()));
        let connection = Http2Connection::new(poll_fn(|_| Poll::<()>::Pending), executor.clone());
        let (held, queue) = (Arc::clone(&alive), executor.clone());
        executor.execute(async move { drop((held, queue)) });
        drop((connection, executor));
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    /// A client may send a request and go. The request counts, and goes on after it has waited.
    #[tokio::test]
    async fn a_request_goes_on_though_its_connection_has_ended() {
        let (sender, receiver) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let requests = Http2Requests::default();
        let executor = requests.clone();
        let connection = async move {
            executor.execute(async move {
                let received: u32 = receiver.await.expect("it is sent");
                done.send(received).expect("it is awaited");
            });
        };
        Http2Connection::new(connection, requests).await;
        sender.send(7).expect("it waits");
        assert_eq!(is_done.await, Ok(7));
    }
}
