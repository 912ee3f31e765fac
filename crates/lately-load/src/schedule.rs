//! The schedule of batches, and the end of the load.

use std::time::Duration;

use crate::plan::{Ending, Plan};

/// The next step of an idle connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Send this many requests, which were due at this time.
    Batch { requests: usize, due_ns: u64 },
    /// Nothing is due before this time.
    NotBefore { due_ns: u64 },
    /// The load is over.
    Over,
}

pub(crate) struct Schedule {
    pipeline: u64,
    rate: Option<u64>,
    end_ns: u64,
    requests: u64,
    sent: u64,
}

impl Schedule {
    pub(crate) fn new(plan: &Plan) -> Schedule {
        let (end_ns, requests) = match plan.ending {
            Ending::After(time) => (u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), u64::MAX),
            Ending::Requests(requests) => (u64::MAX, requests),
        };
        Schedule { pipeline: plan.pipeline as u64, rate: plan.rate, end_ns, requests, sent: 0 }
    }

    #[inline]
    pub(crate) fn next(&mut self, now_ns: u64) -> Next {
        let due_ns = match self.rate {
            None => now_ns,
            Some(rate) => nanoseconds_of(self.sent, rate),
        };
        if self.sent >= self.requests || now_ns >= self.end_ns || due_ns >= self.end_ns {
            return Next::Over;
        }
        if due_ns > now_ns {
            return Next::NotBefore { due_ns };
        }
        let requests = self.pipeline.min(self.requests - self.sent);
        self.sent += requests;
        Next::Batch { requests: usize::try_from(requests).unwrap_or(usize::MAX), due_ns }
    }

    /// The number of requests so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

/// How long `requests` take at a rate.
fn nanoseconds_of(requests: u64, rate: u64) -> u64 {
    let nanoseconds = u128::from(requests) * Duration::from_secs(1).as_nanos() / u128::from(rate);
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn schedule(ending: Ending, rate: Option<u64>) -> Schedule {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let plan = Plan::new(address, Request::parse("HIT {key}", "key:"));
        Schedule::new(&Plan { ending, rate, pipeline: 10, ..plan })
    }

    fn batch(requests: usize, due_ns: u64) -> Next {
        Next::Batch { requests, due_ns }
    }

    #[test]
    fn as_fast_as_it_goes() {
        let mut counted = schedule(Ending::Requests(25), None);
        assert_eq!(
            [5, 6, 7, 8].map(|now| counted.next(now)),
            [batch(10, 5), batch(10, 6), batch(5, 7), Next::Over]
        );
        assert_eq!(counted.sent(), 25);
        let mut timed = schedule(Ending::After(Duration::from_nanos(7)), None);
        assert_eq!([5, 6, 7].map(|now| timed.next(now)), [batch(10, 5), batch(10, 6), Next::Over]);
    }

    #[test]
    fn at_a_rate_what_is_late_was_due_all_the_same() {
        // Ten requests every 10 ms.
        let mut timed = schedule(Ending::After(Duration::from_millis(25)), Some(1_000));
        assert_eq!(timed.next(0), batch(10, 0));
        assert_eq!(timed.next(9_999_999), Next::NotBefore { due_ns: 10_000_000 });
        assert_eq!(timed.next(24_000_000), batch(10, 10_000_000));
        assert_eq!(timed.next(24_000_000), batch(10, 20_000_000));
        assert_eq!(timed.next(24_000_000), Next::Over);
        assert_eq!(timed.sent(), 30);
    }
}
