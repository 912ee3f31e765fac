//! Replays a log against limits.
//!
//! Each request is decided by an exact log of the requests that were allowed before it, in milliseconds. A request at
//! t is allowed if, for each limit, the allowed requests later than t minus the window, plus this one, are at most
//! its maximum. A denied request is not counted. The requests of a key are decided in the order of their times,
//! whatever the order of the lines. Keys are independent, so each key is replayed by itself at the end.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use lately::{Lockout, Timestamp};

use crate::by_key::ByKey;
use crate::error::SetupError;
use crate::limit::Limit;
use crate::limits::MAX_LIMITS;
use crate::parser::Record;
use crate::ranking::Ranking;
use lately_keys::Exempt;
use lately_keys::address::is_network;

/// A replay: collects requests in any order, and decides them at the end.
#[derive(Clone, Debug)]
pub struct Backtest {
    limits: Vec<Limit>,
    lockout: Option<Lockout>,
    exempt: Vec<Exempt>,
    /// By key and millisecond.
    requests: ByKey,
    /// Exempt keys among these.
    exempt_keys: BTreeSet<Vec<u8>>,
    has_networks: bool,
    has_addresses: bool,
}

/// The result of a replay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// The first keys, as many as were requested.
    pub verdicts: Vec<Verdict>,
    /// All requests.
    pub requests: u64,
    /// Requests of these that are denied.
    pub denied: u64,
    /// Distinct keys.
    pub keys: usize,
    /// Keys with at least one denied request.
    pub denied_keys: usize,
    /// The number of lockouts.
    pub lockouts: u64,
}

/// The decisions for one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The key.
    pub key: Vec<u8>,
    /// Requests that are allowed.
    pub allowed: u64,
    /// Requests that are denied.
    pub denied: u64,
    /// The time of the first denied request.
    pub first_denied_at: Option<Timestamp>,
}

/// The verdict on a key, before its name is looked up.
#[derive(Default)]
struct Figures {
    key: u32,
    allowed: u64,
    denied: u64,
    first_denied_ms: Option<i64>,
    lockouts: u64,
}

/// The requests of one key in one millisecond, and their number.
type Moment = (i64, u64);

/// The requests that count against one limit: the newest allowed moments.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// The oldest one.
    from: usize,
    requests: u64,
}

impl Figures {
    /// The verdict on a key whose requests are all allowed.
    fn allowed(moments: &[Moment]) -> Figures {
        Figures { allowed: moments.iter().map(|(_, requests)| requests).sum(), ..Figures::default() }
    }
}

impl Backtest {
    /// A replay of these limits. All of them must allow a request. After a denial, a lockout denies all requests of
    /// the key for its duration. Denials during a lockout do not extend it. Exempt keys are never denied.
    ///
    /// # Errors
    /// When there are more than [`MAX_LIMITS`].
    pub fn new(
        limits: &[Limit],
        lockout: Option<Lockout>,
        exempt: &[Exempt],
    ) -> Result<Backtest, SetupError> {
        if limits.len() > MAX_LIMITS {
            return Err(SetupError::Limits { limits: limits.len() });
        }
        Ok(Backtest {
            limits: limits.to_vec(),
            lockout,
            exempt: exempt.to_vec(),
            requests: ByKey::default(),
            exempt_keys: BTreeSet::new(),
            has_networks: exempt.iter().any(|exempt| matches!(exempt, Exempt::Network(_))),
            has_addresses: false,
        })
    }

    /// Adds a request. Panics past four billion distinct keys.
    pub fn request(&mut self, request: &Record<'_>) {
        let Record { at, key, address } = *request;
        self.requests.hit(key, at.as_millis());
        self.has_addresses |= self.has_networks && !self.has_addresses && is_network(address);
        if self.exempt.iter().any(|exempt| exempt.is_of(key, address)) && !self.exempt_keys.contains(key) {
            self.exempt_keys.insert(key.to_vec());
        }
    }

    /// Whether networks are exempt but no key has an address.
    #[must_use]
    pub fn lacks_addresses(&self) -> bool {
        self.has_networks && !self.has_addresses && self.requests.len() > 0
    }

    /// Decides all requests. The verdicts are on the first `top` keys, or on all of them, sorted by denied requests,
    /// then allowed ones (most first), then by key bytes. The sums are over all keys.
    #[must_use]
    pub fn replay(&self, top: Option<usize>) -> Replay {
        let mut replay = Replay { keys: self.requests.len(), ..Replay::default() };
        let mut ranking = Ranking::new(top, |a, b| self.order(a, b));
        let mut moments = Vec::new();
        for (key, runs) in self.requests.iter() {
            runs.sorted_into(&mut moments);
            let name = self.requests.key(key);
            let is_exempt = self.exempt_keys.contains(name);
            let figures = if is_exempt { Figures::allowed(&moments) } else { self.decide(&mut moments) };
            let figures = Figures { key, ..figures };
            replay.requests += figures.allowed + figures.denied;
            replay.denied += figures.denied;
            replay.denied_keys += usize::from(figures.denied > 0);
            replay.lockouts += figures.lockouts;
            ranking.push(figures);
        }
        replay.verdicts = ranking.into_best().iter().map(|figures| self.verdict(figures)).collect();
        replay
    }

    /// Decides the requests of one key, oldest first. Allowed ones are written over them, from the start: there are
    /// never more of them.
    fn decide(&self, moments: &mut [Moment]) -> Figures {
        let mut figures = Figures::default();
        let mut counted = vec![Counted::default(); self.limits.len()];
        let (mut kept, mut locked_until_ms, mut past) = (0, 0, None);
        for next in 0..moments.len() {
            let (at_ms, requests) = moments[next];
            let room =
                if at_ms < locked_until_ms { 0 } else { self.room(at_ms, &moments[..kept], &mut counted) };
            let allowed = requests.min(room);
            if allowed > 0 {
                moments[kept] = (at_ms, allowed);
                kept += 1;
                counted.iter_mut().for_each(|counted| counted.requests += allowed);
            }
            figures.allowed += allowed;
            if allowed < requests {
                figures.denied += requests - allowed;
                figures.first_denied_ms.get_or_insert(at_ms);
                if let Some(lockout) = self.lockout
                    && at_ms >= locked_until_ms
                    && let Some(at) = Timestamp::from_millis(at_ms)
                {
                    let started = lockout.start(at, past);
                    (locked_until_ms, past) = (started.until.as_millis(), started.past);
                    figures.lockouts += 1;
                }
            }
        }
        figures
    }

    /// The remaining requests of the tightest limit at `at_ms`, after these were allowed. Drops the moments that no
    /// longer count, so each is visited once per limit.
    fn room(&self, at_ms: i64, allowed: &[Moment], counted: &mut [Counted]) -> u64 {
        let mut room = u64::MAX;
        for (limit, counted) in self.limits.iter().zip(counted) {
            while let Some((oldest_ms, requests)) = allowed.get(counted.from)
                && *oldest_ms <= at_ms - limit.window.as_millis()
            {
                counted.requests -= requests;
                counted.from += 1;
            }
            room = room.min(limit.max - counted.requests);
        }
        room
    }

    /// Most denied first, then allowed, then key bytes.
    fn order(&self, a: &Figures, b: &Figures) -> Ordering {
        let numbers = |of: &Figures| Reverse((of.denied, of.allowed));
        numbers(a).cmp(&numbers(b)).then_with(|| self.requests.key(a.key).cmp(self.requests.key(b.key)))
    }

    fn verdict(&self, figures: &Figures) -> Verdict {
        Verdict {
            key: self.requests.key(figures.key).to_vec(),
            allowed: figures.allowed,
            denied: figures.denied,
            first_denied_at: figures.first_denied_ms.and_then(Timestamp::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lately::{Span, milliseconds, seconds};
    use proptest::prelude::*;

    use super::*;

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).expect("in range")
    }

    /// A key that is an address, if it has one.
    fn request(backtest: &mut Backtest, key: &[u8], at: Timestamp) {
        backtest.request(&Record { at, key, address: key });
    }

    fn limit(max: u64, window: Span) -> Limit {
        Limit { max, window }
    }

    fn replay(requests: &[(u8, i64)], limits: &[Limit], lockout: Option<Span>) -> Replay {
        let lockout = lockout.map(Lockout::of);
        let mut backtest = Backtest::new(limits, lockout, &[]).expect("few limits");
        requests.iter().for_each(|&(key, at_ms)| request(&mut backtest, &[key], time(at_ms)));
        backtest.replay(None)
    }

    /// One request after the other by time, ties as they came, each with a look at all that were allowed.
    fn naive(requests: &[(u8, i64)], limits: &[Limit], lockout: Option<Span>) -> Replay {
        let mut in_order = requests.to_vec();
        in_order.sort_by_key(|&(_, at_ms)| at_ms);
        let mut allowed: Vec<(u8, i64)> = Vec::new();
        let mut lockouts: Vec<(u8, i64)> = Vec::new();
        let mut verdicts: BTreeMap<u8, Verdict> = BTreeMap::new();
        for (key, at_ms) in in_order {
            let fits = |limit: &Limit| {
                let counts =
                    |other: &&(u8, i64)| other.0 == key && other.1 > at_ms - limit.window.as_millis();
                (allowed.iter().filter(counts).count() as u64) < limit.max
            };
            let length_ms = lockout.map_or(0, Span::as_millis);
            let is_locked_out =
                lockouts.iter().any(|&(other, from_ms)| other == key && at_ms < from_ms + length_ms);
            let verdict = verdicts.entry(key).or_insert(Verdict {
                key: vec![key],
                allowed: 0,
                denied: 0,
                first_denied_at: None,
            });
            if !is_locked_out && limits.iter().all(fits) {
                allowed.push((key, at_ms));
                verdict.allowed += 1;
            } else {
                verdict.denied += 1;
                verdict.first_denied_at = verdict.first_denied_at.or(Some(time(at_ms)));
                if lockout.is_some() && !is_locked_out {
                    lockouts.push((key, at_ms));
                }
            }
        }
        let mut verdicts: Vec<Verdict> = verdicts.into_values().collect();
        verdicts.sort_by_key(|of| (Reverse(of.denied), Reverse(of.allowed), of.key.clone()));
        Replay {
            requests: requests.len() as u64,
            denied: verdicts.iter().map(|of| of.denied).sum(),
            keys: verdicts.len(),
            denied_keys: verdicts.iter().filter(|of| of.denied > 0).count(),
            lockouts: lockouts.len() as u64,
            verdicts,
        }
    }

    /// Requests of one key, which of them are allowed (by their times), and how many lockouts there are.
    fn check(
        times_ms: &[i64],
        limits: &[Limit],
        lockout: Option<Span>,
        allowed: u64,
        first: i64,
        lockouts: u64,
    ) {
        let requests: Vec<(u8, i64)> = times_ms.iter().map(|&at_ms| (b'k', at_ms)).collect();
        let denied = times_ms.len() as u64 - allowed;
        let first_denied_at = (denied > 0).then(|| time(first));
        let found = replay(&requests, limits, lockout);
        let verdict = Verdict { key: b"k".to_vec(), allowed, denied, first_denied_at };
        assert_eq!(found.verdicts, [verdict], "{times_ms:?}");
        assert_eq!((found.denied, found.lockouts), (denied, lockouts), "{times_ms:?}");
        assert_eq!(found, naive(&requests, limits, lockout), "{times_ms:?}");
    }

    #[test]
    fn a_request_counts_until_it_is_as_old_as_the_window() {
        let limits = [limit(2, seconds(1))];
        check(&[0, 0, 999, 1_000, 1_000, 1_000], &limits, None, 4, 999, 0);
        // What is denied does not count: at 1,000 only that of 500 does.
        check(&[0, 500, 600, 700, 800, 1_000, 1_499, 1_500], &limits, None, 4, 600, 0);
    }

    #[test]
    fn lines_may_be_in_any_order() {
        check(&[1_000, 0, 1_000, 999, 0, 1_000], &[limit(2, seconds(1))], None, 4, 999, 0);
    }

    #[test]
    fn requests_of_one_millisecond_are_decided_one_after_the_other() {
        check(&[7; 10], &[limit(3, seconds(1))], None, 3, 7, 0);
        check(&[7; 10], &[limit(3, seconds(1))], Some(milliseconds(1)), 3, 7, 1);
        // Of two keys, whichever came first.
        let found = replay(&[(2, 5), (1, 5), (2, 5), (1, 5)], &[limit(1, seconds(1))], None);
        let verdict = |key| Verdict { key: vec![key], allowed: 1, denied: 1, first_denied_at: Some(time(5)) };
        assert_eq!(found.verdicts, [verdict(1), verdict(2)]);
    }

    #[test]
    fn a_window_of_a_millisecond_is_that_millisecond() {
        check(&[0, 0, 1, 2, 2, 2, 4], &[limit(1, milliseconds(1))], None, 4, 0, 0);
    }

    #[test]
    fn a_max_of_none_allows_none() {
        check(&[0, 5, 100_000], &[limit(0, milliseconds(1))], None, 0, 0, 0);
        check(&[0, 5, 100_000], &[limit(5, seconds(1)), limit(0, seconds(1))], None, 0, 0, 0);
    }

    #[test]
    fn the_bounds_of_limits_and_of_time_fit() {
        let last = Timestamp::MAX.as_millis();
        let widest = limit(lately::limits::MAX_TOTAL, Span::MAX);
        check(&[0, last, last], &[widest], Some(Span::MAX), 3, 0, 0);
        check(&[0, last, last], &[limit(1, Span::MAX)], Some(Span::MAX), 2, last, 1);
        assert_eq!(Backtest::new(&[widest; MAX_LIMITS], None, &[]).map(|_| ()), Ok(()));
        let error = SetupError::Limits { limits: MAX_LIMITS + 1 };
        assert_eq!(Backtest::new(&[widest; MAX_LIMITS + 1], None, &[]).map(|_| ()), Err(error));
    }

    #[test]
    fn all_limits_have_to_allow() {
        let limits = [limit(2, seconds(1)), limit(3, seconds(10))];
        // 0, 1 and 1,000 fill the ten seconds; at 10,000 the first of them counts no more.
        check(&[0, 1, 2, 1_000, 1_001, 9_999, 10_000, 10_000], &limits, None, 4, 2, 0);
        check(&[0, 1, 2, 1_000, 1_001, 9_999, 10_000, 10_000], &[limits[1], limits[0]], None, 4, 2, 0);
    }

    #[test]
    fn a_lockout_lasts_from_the_first_denial_on() {
        let (limits, lockout) = ([limit(2, seconds(1))], Some(seconds(5)));
        // Denied at 10, so until 5,009; those in between prolong nothing. At 5,010 the window is empty.
        check(&[0, 5, 10, 2_000, 5_009, 5_010, 5_011], &limits, lockout, 4, 10, 1);
        check(&[0, 5, 10, 2_000, 5_009, 5_010, 5_011, 5_012, 10_011, 10_012], &limits, lockout, 5, 10, 2);
        // A lockout that is shorter than the window: denied again after it, which is another.
        check(&[0, 1, 2, 50, 102, 103, 202, 1_500], &limits, Some(milliseconds(100)), 3, 2, 3);
    }

    #[test]
    fn rows_and_sums() {
        let requests =
            [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (5, 0), (5, 9_000), (6, 0), (6, 1), (6, 2)];
        let found = replay(&requests, &[limit(1, seconds(5))], Some(seconds(1)));
        let keys: Vec<u8> = found.verdicts.iter().map(|of| of.key[0]).collect();
        assert_eq!(keys, [6, 2, 3, 5, 1, 4]);
        let sums = (found.requests, found.denied, found.keys, found.denied_keys, found.lockouts);
        assert_eq!(sums, (11, 4, 6, 3, 3));
        let mut backtest =
            Backtest::new(&[limit(1, seconds(5))], Some(Lockout::of(seconds(1))), &[]).expect("one limit");
        requests.iter().for_each(|&(key, at_ms)| request(&mut backtest, &[key], time(at_ms)));
        for top in 0..8 {
            let verdicts = found.verdicts[..top.min(6)].to_vec();
            assert_eq!(backtest.replay(Some(top)), Replay { verdicts, ..found.clone() }, "top {top}");
        }
        assert_eq!(Backtest::new(&[], None, &[]).expect("no limit").replay(Some(10)), Replay::default());
    }

    #[test]
    fn lockouts_grow_up_to_their_longest() {
        let lockout =
            Lockout::growing(seconds(1), "2".parse().expect("a factor"), Some(seconds(3))).expect("it fits");
        let mut backtest = Backtest::new(&[limit(0, seconds(1))], Some(lockout), &[]).expect("one limit");
        // Lockouts from 0 for 1 s, from 1,000 for 2 s, from 3,000 for 3 s, from 6,000 for 3 s, from 9,000 on.
        for at_ms in [0, 999, 1_000, 2_999, 3_000, 5_999, 6_000, 8_999, 9_000] {
            request(&mut backtest, b"k", time(at_ms));
        }
        // Each key has lockouts of its own.
        request(&mut backtest, b"other", time(999));
        request(&mut backtest, b"other", time(1_999));
        let replay = backtest.replay(None);
        assert_eq!((replay.lockouts, replay.denied), (5 + 2, 11));
    }

    #[test]
    fn exempt_keys_are_never_denied() {
        let exempt = ["10.0.0.0/8", "login:monitor*"].map(|text| text.parse::<Exempt>().expect(text));
        let mut backtest = Backtest::new(&[limit(1, seconds(1))], Some(Lockout::of(seconds(9))), &exempt)
            .expect("one limit");
        for key in [&b"10.1.2.3"[..], b"192.0.2.1", b"login:monitor-2", b"login:jo"].repeat(3) {
            request(&mut backtest, key, time(5));
        }
        let found: Vec<(u64, u64)> =
            backtest.replay(None).verdicts.iter().map(|verdict| (verdict.allowed, verdict.denied)).collect();
        assert_eq!(found, [(1, 2), (1, 2), (3, 0), (3, 0)]);
    }

    /// Symptom: a network exempted nothing of keys with several fields, without a word. Cause: the whole key was taken for the
    /// address. Fix: the address in the key is.
    #[test]
    fn a_network_is_that_of_the_address_in_a_key() {
        let exempt = ["10.0.0.0/8"].map(|text| text.parse::<Exempt>().expect(text));
        let mut backtest = Backtest::new(&[limit(0, seconds(1))], None, &exempt).expect("one limit");
        for (key, address) in [
            ("10.1.2.3 /a", "10.1.2.3"),
            ("192.0.2.1 10.1.2.3", "192.0.2.1"),
            ("10.1.0.0/16 b", "10.1.0.0/16"),
        ] {
            backtest.request(&Record { at: time(5), key: key.as_bytes(), address: address.as_bytes() });
        }
        let verdicts = backtest.replay(None).verdicts;
        let denied: Vec<(&[u8], u64)> = verdicts.iter().map(|of| (&of.key[..], of.denied)).collect();
        assert_eq!(denied, [(&b"192.0.2.1 10.1.2.3"[..], 1), (b"10.1.0.0/16 b", 0), (b"10.1.2.3 /a", 0)]);
        assert!(!backtest.lacks_addresses());
        let mut backtest = Backtest::new(&[limit(0, seconds(1))], None, &exempt).expect("one limit");
        assert!(!backtest.lacks_addresses(), "it has no requests");
        request(&mut backtest, b"jo", time(5));
        assert!(backtest.lacks_addresses());
    }

    /// Mostly short, so that windows fill; sometimes far longer than all the requests.
    fn spans() -> impl Strategy<Value = Span> {
        let millis = prop_oneof![Just(1), 1..30_i64, 1..3_000_i64, Just(Span::MAX.as_millis())];
        millis.prop_map(|millis| Span::from_millis(millis).expect("in range"))
    }

    proptest! {
        #[test]
        fn a_backtest_equals_a_naive_replay(
            requests in proptest::collection::vec((0..4_u8, prop_oneof![0..40_i64, 0..5_000_i64]), 0..250),
            limits in proptest::collection::vec((0..12_u64, spans()), 1..4),
            lockout in proptest::option::of(spans()),
        ) {
            let limits: Vec<Limit> = limits.into_iter().map(|(max, window)| limit(max, window)).collect();
            prop_assert_eq!(replay(&requests, &limits, lockout), naive(&requests, &limits, lockout));
        }
    }
}
