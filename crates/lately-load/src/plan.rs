//! The plan of a load: server, requests, keys, rate and end.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::error::LoadError;
use crate::keys::Order;
use crate::limits::{MAX_CLIENTS, MAX_KEYS, MAX_PIPELINE, MAX_RATE, MAX_SECONDS, MAX_ZIPF};
use crate::request::Request;

/// When no further request is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// After this time.
    After(Duration),
    /// After this many requests.
    Requests(u64),
}

/// The times of the hits. They advance by a step whenever all keys were used once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The first, in Unix seconds.
    pub start: u64,
    /// The step in seconds.
    pub step: u64,
}

/// The kind of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// One line, of which little more than the end is parsed.
    Line,
    /// A decision: an integer of one digit, or an array that starts with one. It says whether the request was
    /// allowed.
    Decision {
        /// The digit that means allowed.
        allowed: u8,
    },
}

/// The user that each connection logs in as.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A load.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// The user. `None`: connections do not log in.
    pub login: Option<Login>,
    /// The request.
    pub request: Request,
    /// The kind of its replies.
    pub answer: Answer,
    /// The number of keys.
    pub keys: u64,
    /// The order of keys.
    pub order: Order,
    /// The times of the hits, where the request has one.
    pub times: Times,
    /// The first id, where the request has one.
    pub first_id: u64,
    /// The number of connections.
    pub clients: usize,
    /// The number of requests that a connection sends before it waits for their replies.
    pub pipeline: usize,
    /// When the load ends.
    pub ending: Ending,
    /// Requests per second over all connections, independent of the server. `None`: as many as the server
    /// answers. With a rate, the latency of a request starts when it was due, not when it could be sent.
    pub rate: Option<u64>,
}

impl Plan {
    /// A load of this request, whose reply is a line. A million keys in permuted order, 50 connections, one
    /// request at a time, for a second.
    #[must_use]
    pub fn new(address: SocketAddr, request: Request) -> Plan {
        Plan {
            address,
            login: None,
            request,
            answer: Answer::Line,
            keys: 1_000_000,
            order: Order::Permuted,
            times: Times { start: 0, step: 0 },
            first_id: 0,
            clients: 50,
            pipeline: 1,
            ending: Ending::After(Duration::from_secs(1)),
            rate: None,
        }
    }

    /// Checks all bounds.
    ///
    /// # Errors
    /// [`LoadError::Bounds`] has the value that is out of bounds.
    pub fn check(&self) -> Result<(), LoadError> {
        check("clients", self.clients, 1, MAX_CLIENTS)?;
        check("pipeline", self.pipeline, 1, MAX_PIPELINE)?;
        check("keys", self.keys, 1, MAX_KEYS)?;
        if let Some(rate) = self.rate {
            check("rate", rate, 1, MAX_RATE)?;
        }
        if let Order::Zipf(exponent) = self.order {
            check("zipf", exponent, 0.0, MAX_ZIPF)?;
        }
        match self.ending {
            Ending::After(time) => {
                check("seconds", time.as_secs_f64(), 0.001, Duration::from_secs(MAX_SECONDS).as_secs_f64())
            }
            Ending::Requests(requests) => check("requests", requests, 1, u64::MAX),
        }
    }
}

fn check<T: PartialOrd + ToString + Copy>(
    what: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), LoadError> {
    if value >= least && value <= most {
        return Ok(());
    }
    let (value, least, most) = (value.to_string(), least.to_string(), most.to_string());
    Err(LoadError::Bounds { what, value, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(SocketAddr::from(([127, 0, 0, 1], 1)), Request::parse("HIT {key}", "key:"))
    }

    #[test]
    fn bounds_hold_at_the_bound_and_not_past_it() {
        let check = |change: fn(&mut Plan), expected: Option<&str>| {
            let mut plan = plan();
            change(&mut plan);
            let error = plan.check().err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected);
        };
        check(|_| {}, None);
        check(|plan| plan.clients = MAX_CLIENTS, None);
        check(|plan| plan.clients = MAX_CLIENTS + 1, Some("clients 10001 is out of bounds: give 1 to 10000"));
        check(|plan| plan.clients = 0, Some("clients 0 is out of bounds: give 1 to 10000"));
        check(|plan| plan.pipeline = MAX_PIPELINE, None);
        check(
            |plan| plan.pipeline = MAX_PIPELINE + 1,
            Some("pipeline 10001 is out of bounds: give 1 to 10000"),
        );
        check(|plan| plan.keys = MAX_KEYS, None);
        check(|plan| plan.keys = MAX_KEYS + 1, Some("keys 100000001 is out of bounds: give 1 to 100000000"));
        check(|plan| plan.rate = Some(MAX_RATE), None);
        check(
            |plan| plan.rate = Some(MAX_RATE + 1),
            Some("rate 1000000001 is out of bounds: give 1 to 1000000000"),
        );
        check(|plan| plan.order = Order::Zipf(MAX_ZIPF), None);
        check(|plan| plan.order = Order::Zipf(10.5), Some("zipf 10.5 is out of bounds: give 0 to 10"));
        check(|plan| plan.order = Order::Zipf(f64::NAN), Some("zipf NaN is out of bounds: give 0 to 10"));
        check(|plan| plan.ending = Ending::After(Duration::from_secs(MAX_SECONDS)), None);
        check(
            |plan| plan.ending = Ending::After(Duration::from_secs(MAX_SECONDS + 1)),
            Some("seconds 86401 is out of bounds: give 0.001 to 86400"),
        );
        check(
            |plan| plan.ending = Ending::Requests(0),
            Some("requests 0 is out of bounds: give 1 to 18446744073709551615"),
        );
    }
}
