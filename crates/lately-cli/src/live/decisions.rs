//! What the named limits of a server decide: requests a second, from the sums that it answers.

use std::collections::VecDeque;

use lately::Timestamp;

use crate::live::hits::LATEST;

/// The sums of a named limit since the server started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sums {
    pub(crate) name: String,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) would_deny: u64,
}

/// Requests a second on a named limit. `None` after one answer only.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rates {
    pub(crate) name: String,
    pub(crate) allowed: Option<f64>,
    pub(crate) denied: Option<f64>,
    pub(crate) would_deny: Option<f64>,
}

/// The answers of the last [`LATEST`], oldest first.
#[derive(Default, Debug)]
pub(crate) struct Decisions(VecDeque<(Timestamp, Vec<Sums>)>);

impl Sums {
    /// The limits in `INFO limits`. A line that is none is left out.
    pub(crate) fn of_info(info: &str) -> Vec<Sums> {
        info.lines().filter_map(Sums::of_line).collect()
    }

    /// Parses `limit_login:max=3,…,allowed=3,denied=2,would_deny=0`.
    fn of_line(line: &str) -> Option<Sums> {
        let (name, fields) = line.strip_prefix("limit_")?.split_once(':')?;
        let number = |wanted: &str| {
            let mut fields = fields.split(',').filter_map(|field| field.split_once('='));
            fields.find(|(name, _)| *name == wanted)?.1.trim().parse().ok()
        };
        let (allowed, denied, would_deny) = (number("allowed")?, number("denied")?, number("would_deny")?);
        Some(Sums { name: name.to_owned(), allowed, denied, would_deny })
    }

    fn refused(&self) -> u64 {
        self.denied.saturating_add(self.would_deny)
    }
}

impl Decisions {
    /// Adds an answer. After a restart of the server, sums begin at 0: then those of before are dropped.
    pub(crate) fn add(&mut self, now: Timestamp, sums: Vec<Sums>) {
        let has_restarted = self.0.back().is_some_and(|(_, before)| {
            let is_less = |sums: &Sums| {
                let before = before.iter().find(|before| before.name == sums.name);
                before.is_some_and(|it| sums.allowed < it.allowed || sums.refused() < it.refused())
            };
            sums.iter().any(is_less)
        });
        if has_restarted {
            self.0.clear();
        }
        self.0.push_back((now, sums));
        // One answer that is older stays: there have to be two.
        while self.0.len() > 2 && self.0[1].0.saturating_add(LATEST) <= now {
            self.0.pop_front();
        }
    }

    /// The rates of all limits, those first that have refused the most.
    pub(crate) fn rates(&self) -> Vec<Rates> {
        let (Some((from, before)), Some((to, sums))) = (self.0.front(), self.0.back()) else {
            return Vec::new();
        };
        let elapsed_ms = to.as_millis() - from.as_millis();
        let mut sums: Vec<&Sums> = sums.iter().collect();
        sums.sort_by_key(|sums| std::cmp::Reverse(sums.refused()));
        let rates = |sums: &Sums| {
            let before = before.iter().find(|before| before.name == sums.name);
            let rate = |of: fn(&Sums) -> u64| {
                let more = of(sums).saturating_sub(before.map_or(0, of));
                (elapsed_ms > 0).then(|| more as f64 * 1e3 / elapsed_ms as f64)
            };
            Rates {
                name: sums.name.clone(),
                allowed: rate(|sums| sums.allowed),
                denied: rate(|sums| sums.denied),
                would_deny: rate(|sums| sums.would_deny),
            }
        };
        sums.into_iter().map(rates).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + s).expect("a time")
    }

    fn sums(name: &str, allowed: u64, denied: u64, would_deny: u64) -> Sums {
        Sums { name: name.to_owned(), allowed, denied, would_deny }
    }

    #[test]
    fn limits_are_read_from_info() {
        let info = "# Limits\r\nlimit_login:max=3,window_ms=60000,lockout_ms=0,shadow=0,allowed=7,denied=2,would_deny=0\r\n\
            limit_broken:max=3,allowed=x\r\nother:1\r\nlimit_a_b:allowed=0,denied=0,would_deny=5\r\n";
        assert_eq!(Sums::of_info(info), [sums("login", 7, 2, 0), sums("a_b", 0, 0, 5)]);
    }

    #[test]
    fn rates_are_those_of_the_last_ten_seconds() {
        let mut decisions = Decisions::default();
        let rates = |decisions: &Decisions| {
            let rates = decisions.rates().into_iter();
            rates.map(|it| (it.name, it.allowed, it.denied, it.would_deny)).collect::<Vec<_>>()
        };
        assert_eq!(rates(&decisions), []);
        decisions.add(at(0), vec![sums("login", 100, 0, 0), sums("search", 5, 0, 9)]);
        // Of one answer there is no rate.
        let none = |name: &str| (name.to_owned(), None, None, None);
        assert_eq!(rates(&decisions), [none("search"), none("login")]);
        decisions.add(at(2), vec![sums("login", 110, 20, 0), sums("search", 5, 0, 13)]);
        let some = |name: &str, all: [f64; 3]| (name.to_owned(), Some(all[0]), Some(all[1]), Some(all[2]));
        assert_eq!(rates(&decisions), [some("login", [5.0, 10.0, 0.0]), some("search", [0.0, 0.0, 2.0])]);
        // What is older than ten seconds counts no more.
        decisions.add(at(12), vec![sums("login", 120, 20, 0), sums("search", 5, 0, 13)]);
        assert_eq!(rates(&decisions)[0], some("login", [1.0, 0.0, 0.0]));
        // The server has started anew.
        decisions.add(at(13), vec![sums("login", 1, 0, 0)]);
        assert_eq!(rates(&decisions), [none("login")]);
        decisions.add(at(14), vec![sums("login", 4, 1, 0)]);
        assert_eq!(rates(&decisions), [some("login", [3.0, 1.0, 0.0])]);
    }
}
