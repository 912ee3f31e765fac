//! The kinds of limits: 10 requests each 10 s, as each kind says that.

use lately::{Rate, Span, Store, Throttle, Timestamp, seconds};

use super::fixed::{Begin, FixedWindow};

/// The most requests in a window, as far as a kind can say so.
pub(crate) const MAX: u64 = 10;
const KEY: &[u8] = b"client";

/// How long a window is.
pub(crate) fn window() -> Span {
    seconds(10)
}

/// Says of requests, in the order of their times, whether they are admitted.
pub(crate) enum Limiter {
    /// At most [`MAX`] in any window.
    Sliding(Box<Store>),
    /// Evenly, and so many more at once.
    Throttle(Box<Store>, Rate),
    /// At most [`MAX`] in windows that follow each other.
    Fixed(FixedWindow),
}

impl Limiter {
    pub(crate) fn sliding() -> Limiter {
        Limiter::Sliding(Box::new(store()))
    }

    /// `count` each window, evenly, and `burst` more at once.
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
