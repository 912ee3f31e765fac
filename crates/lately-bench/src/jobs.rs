//! Runs untimed work on both cores.

use std::sync::{Mutex, PoisonError};

/// The cores that work at the same time.
const CORES: usize = 2;

/// Work that gives a `T`.
pub(crate) type Job<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs all jobs in order, as many at a time as there are cores. Returns their results in that order.
pub(crate) fn side_by_side<T: Send>(jobs: Vec<Job<'_, T>>) -> Vec<T> {
    let done: Vec<Mutex<Option<T>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let waiting = Mutex::new(jobs.into_iter().zip(&done));
    // No work is done under the lock, so a poisoned lock has consistent data.
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((job, place)) = next() {
            let given = job();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CORES {
            scope.spawn(work);
        }
    });
    let given = |place: Mutex<Option<T>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().map(|place| given(place).expect("the scope ends when all jobs are done")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn two_jobs_run_at_once_and_results_are_in_order() {
        // Passes only if two jobs run at the same time.
        let meeting = Barrier::new(2);
        let job = |number: u32| -> Job<'_, u32> {
            let meeting = &meeting;
            Box::new(move || {
                meeting.wait();
                number
            })
        };
        assert_eq!(side_by_side((0..8).map(job).collect()), (0..8).collect::<Vec<u32>>());
        assert!(side_by_side(Vec::<Job<'_, ()>>::new()).is_empty());
    }
}
