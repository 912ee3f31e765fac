//! Reads the counts of all keys from the server, and compares them with the hits that were sent.

use redis::{Connection, IntoConnectionInfo, RedisConnectionInfo};

use crate::error::LoadError;
use crate::limits::{KEY_DIGITS, KEYS_AT_ONCE, PATIENCE};
use crate::numbers::Numbers;
use crate::plan::{Login, Plan};

/// The command for reading counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// `MHITS` over the whole retention.
    Hits,
    /// `MGET`, for counters of `INCR`.
    Values,
}

/// The longest window, which covers the whole retention.
const WHOLE_WINDOW: &str = "1000000000";

/// The counts of all keys of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts(Vec<u64>);

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Hits that were sent.
    pub sent: u64,
    /// Hits that the server counted.
    pub counted: u64,
    /// The number of keys with a wrong count.
    pub wrong_keys: u64,
    /// The first of them: its name, the hits sent, and the hits counted.
    pub first_wrong: Option<(String, u64, u64)>,
}

impl Checked {
    /// Whether every key has its count.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong_keys == 0
    }
}

impl Counts {
    /// Reads the counts of all keys of the plan from the server.
    ///
    /// # Errors
    /// The server cannot be reached, or does not have these commands.
    pub fn read(plan: &Plan, how: Counted) -> Result<Counts, LoadError> {
        let mut connection = connect(plan)?;
        let mut counts = Vec::with_capacity(usize::try_from(plan.keys).unwrap_or(0));
        let mut first = 0;
        while first < plan.keys {
            let end = plan.keys.min(first + KEYS_AT_ONCE);
            let mut command = match how {
                Counted::Hits => redis::cmd("MHITS"),
                Counted::Values => redis::cmd("MGET"),
            };
            if how == Counted::Hits {
                command.arg(WHOLE_WINDOW);
            }
            for key in first..end {
                command.arg(name(plan, key));
            }
            let answer: Vec<Option<u64>> = command.query(&mut connection)?;
            counts.extend(answer.into_iter().map(Option::unwrap_or_default));
            first = end;
        }
        Ok(Counts(counts))
    }

    /// Compares the hits since `before` with those of `requests` requests of the plan. Each request hits each
    /// of its keys once; reads hit none.
    #[must_use]
    pub fn check(&self, before: &Counts, plan: &Plan, requests: u64) -> Checked {
        let mut expected = vec![0_u64; self.0.len()];
        let mut checked = Checked { sent: 0, counted: 0, wrong_keys: 0, first_wrong: None };
        let mut numbers = Numbers::new(plan);
        let mut named = Vec::with_capacity(plan.request.keys());
        for _ in 0..requests {
            named.clear();
            for _ in 0..plan.request.keys() {
                let key = numbers.next_key();
                // A request that names a key twice hits it once.
                if named.contains(&key) {
                    continue;
                }
                named.push(key);
                checked.sent += 1;
                if let Some(expected) = usize::try_from(key).ok().and_then(|key| expected.get_mut(key)) {
                    *expected += 1;
                }
            }
        }
        for (key, ((&after, &before), expected)) in (0..).zip(self.0.iter().zip(&before.0).zip(expected)) {
            let counted = after.saturating_sub(before);
            checked.counted += counted;
            if counted != expected {
                checked.wrong_keys += 1;
                checked.first_wrong.get_or_insert_with(|| {
                    (String::from_utf8_lossy(&name(plan, key)).into_owned(), expected, counted)
                });
            }
        }
        checked
    }
}

fn name(plan: &Plan, key: u64) -> Vec<u8> {
    [&plan.request.prefix, format!("{key:0KEY_DIGITS$}").as_bytes()].concat()
}

fn connect(plan: &Plan) -> Result<Connection, LoadError> {
    let mut info = format!("redis://{}/", plan.address).into_connection_info()?;
    if let Some(Login { user, password }) = &plan.login {
        info =
            info.set_redis_settings(RedisConnectionInfo::default().set_username(user).set_password(password));
    }
    let client = redis::Client::open(info)?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::keys::Order;
    use crate::request::Request;

    #[test]
    fn a_wrong_count_is_reported_with_its_key() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let plan = Plan {
            keys: 4,
            order: Order::Sequential,
            ..Plan::new(address, Request::parse("HIT {key}", "key:"))
        };
        let before = Counts(vec![5, 0, 0, 9]);
        let check = |after: [u64; 4]| Counts(after.to_vec()).check(&before, &plan, 6);
        let good = check([7, 2, 1, 10]);
        assert!(good.holds() && good.sent == 6 && good.counted == 6 && good.first_wrong.is_none());
        // The sum is right, but two keys are wrong.
        let swapped = check([7, 1, 2, 10]);
        assert_eq!((swapped.counted, swapped.wrong_keys), (6, 2));
        assert_eq!(swapped.first_wrong, Some(("key:000000000001".to_owned(), 2, 1)));
        assert!(!check([7, 2, 1, 9]).holds());
    }

    #[test]
    fn a_request_hits_each_key_that_it_names_once() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let check = |keys: u64, counted: &[u64], sent: u64| {
            let request = Request::parse("MLIMIT {key} 5 1m {key} 9 1h {key} 9 1d", "key:");
            let plan = Plan { keys, order: Order::Sequential, ..Plan::new(address, request) };
            let checked = Counts(counted.to_vec()).check(&Counts(vec![0; counted.len()]), &plan, 4);
            assert!(checked.holds() && checked.sent == sent, "{checked:?}");
        };
        check(4, &[3, 3, 3, 3], 12);
        check(2, &[4, 4], 8);
        check(1, &[4], 4);
    }
}
