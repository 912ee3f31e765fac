//! The kinds of limits, each set to 10 requests in 10 s.

use lately::{Rate, Span, Store, Throttle, Timestamp, seconds};

use super::fixed::{Begin, FixedWindow};

/// The limit of each kind, as far as it can express it.
pub(crate) const MAX: u64 = 10;
const KEY: &[u8] = b"client";

/// The length of a window.
pub(crate) fn window() -> Span {
    seconds(10)
}

/// Admits or denies requests, in the order of their times.
pub(crate) enum Limiter {
    /// At most [`MAX`] in any window.
    Sliding(Box<Store>),
    /// At a rate, with a burst.
    Throttle(Box<Store>, Rate),
    /// At most [`MAX`] in each of consecutive windows.
    Fixed(FixedWindow),
}

impl Limiter {
    pub(crate) fn sliding() -> Limiter {
        Limiter::Sliding(Box::new(store()))
    }

    /// `count` in each window, evenly, and a burst of `burst` more.
    pub(crate) fn throttle(burst: u64, count: u64) -> Limiter {
        Limiter::Throttle(Box::new(store()), Rate::new(burst, count, window()).expect("the rate is not zero"))
    }

    pub(crate) fn fixed(begin: Begin) -> Limiter {
        Limiter::Fixed(FixedWindow::new(MAX, window(), begin))
    }

    pub(crate) fn admits(&mut self, now: Timestamp) -> bool {
        let decision = match self {
            Limiter::Fixed(fixed) => return fixed.admits(now),
            Limiter::Sliding(store) => store.limit(KEY, MAX, window(), 1, now),
            Limiter::Throttle(store, rate) => {
                store.throttle(Throttle { key: KEY, rate: *rate, quantity: 1 }, now)
            }
        };
        decision.expect("the key is good and there is room").is_allowed()
    }
}

fn store() -> Store {
    Store::builder().build().expect("the default settings are good")
}
