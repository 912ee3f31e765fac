//! A small number for each thread: the lowest that no living thread has.
//!
//! So threads share a stripe only if there are more of them than stripes, however many threads came and went.
//! The writes of a thread are visible to the next one that gets its number.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The returned numbers of ended threads, and the next new number.
struct Pool {
    free: BTreeSet<usize>,
    next: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: BTreeSet::new(), next: 0 });

const UNNUMBERED: usize = usize::MAX;
/// The number that ending threads share after they have returned theirs.
const ENDED: usize = usize::MAX - 1;

/// Returns the number when the thread ends.
struct Lease(Cell<usize>);

thread_local! {
    /// Separate from the lease: a thread-local without a destructor is read without a check.
    static NUMBER: Cell<usize> = const { Cell::new(UNNUMBERED) };
    static LEASE: Lease = const { Lease(Cell::new(UNNUMBERED)) };
}

/// The number of this thread. While it ends, a high number that threads share.
#[inline]
pub(crate) fn thread_number() -> usize {
    let number = NUMBER.get();
    if number == UNNUMBERED { take_number() } else { number }
}

#[cold]
#[inline(never)]
fn take_number() -> usize {
    let number = LEASE.try_with(|lease| {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let number = pool.free.pop_first().unwrap_or_else(|| {
            pool.next += 1;
            pool.next - 1
        });
        lease.0.set(number);
        number
    });
    // A thread that is ending cannot have a lease.
    let number = number.unwrap_or(ENDED);
    NUMBER.set(number);
    number
}

impl Drop for Lease {
    fn drop(&mut self) {
        // First, so that later hits of this thread do not use the returned number.
        NUMBER.set(ENDED);
        if self.0.get() != UNNUMBERED {
            POOL.lock().unwrap_or_else(PoisonError::into_inner).free.insert(self.0.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn running_threads_have_distinct_numbers() {
        let all_asked = Barrier::new(8);
        let numbers: BTreeSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let number = thread_number();
                        all_asked.wait();
                        assert_eq!(thread_number(), number);
                        number
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(numbers.len(), 8);
    }

    /// A destructor that hits after the number was returned must not write to the stripe of the next thread
    /// with that number.
    #[test]
    fn an_ending_thread_has_no_number_of_its_own() {
        struct Last(std::sync::mpsc::Sender<usize>);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.send(thread_number()).expect("somebody waits");
            }
        }
        thread_local! {
            static LAST: Cell<Option<Last>> = const { Cell::new(None) };
        }
        let (sender, numbers) = std::sync::mpsc::channel();
        // Destructors run in the order of first use or in reverse, so test both.
        for first in [true, false] {
            let last = Last(sender.clone());
            let ask = thread::spawn(move || {
                let number = if first { thread_number() } else { 0 };
                LAST.set(Some(last));
                if first { number } else { thread_number() }
            });
            let number = ask.join().expect("no panic");
            let in_the_end = numbers.recv().expect("it ends");
            assert!(in_the_end == number || in_the_end == ENDED, "{number} {in_the_end}");
        }
    }

    #[test]
    fn numbers_of_ended_threads_are_reused() {
        // Other tests take numbers meanwhile, but far fewer than a thousand at a time.
        let numbers = (0..1_000).map(|_| thread::spawn(thread_number).join().expect("no panic"));
        assert!(numbers.max().is_some_and(|most| most < 500));
    }
}
