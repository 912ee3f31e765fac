//! A small number for each thread that asks: the lowest that no living thread has.
//!
//! So as many threads as there are stripes never share one, however many came and went before.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Numbers given back by threads that ended, and the next that was never given.
struct Pool {
    free: BTreeSet<usize>,
    next: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: BTreeSet::new(), next: 0 });

const UNNUMBERED: usize = usize::MAX;

/// Gives the number back when the thread ends.
struct Lease(Cell<usize>);

thread_local! {
    /// Apart from the lease: what needs no drop is read without asking whether it was dropped.
    static NUMBER: Cell<usize> = const { Cell::new(UNNUMBERED) };
    static LEASE: Lease = const { Lease(Cell::new(UNNUMBERED)) };
}

/// The number of this thread.
#[inline]
pub(crate) fn thread_number() -> usize {
    let number = NUMBER.get();
    if number == UNNUMBERED { take_number() } else { number }
}

#[cold]
#[inline(never)]
fn take_number() -> usize {
    let number = {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.pop_first().unwrap_or_else(|| {
            pool.next += 1;
            pool.next - 1
        })
    };
    // A thread that is ending keeps no lease: any number does for the hits of its last moments.
    if LEASE.try_with(|lease| lease.0.set(number)).is_ok() {
        NUMBER.set(number);
    } else {
        give_back(number);
    }
    number
}

fn give_back(number: usize) {
    POOL.lock().unwrap_or_else(PoisonError::into_inner).free.insert(number);
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.0.get() != UNNUMBERED {
            give_back(self.0.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn living_threads_have_numbers_of_their_own() {
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

    #[test]
    fn numbers_of_threads_that_ended_are_given_again() {
        // Other tests run meanwhile and take some: far fewer than a thousand at a time.
        let numbers = (0..1_000).map(|_| thread::spawn(thread_number).join().expect("no panic"));
        assert!(numbers.max().is_some_and(|most| most < 500));
    }
}
