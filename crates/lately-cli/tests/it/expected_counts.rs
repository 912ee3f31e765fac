//! The counts that a client expects: exactly the acknowledged hits.

use std::collections::BTreeSet;

use crate::ledger::{Counts, Request, counted};
use crate::running::Running;
use crate::wire::{Reply, Wire};

/// The expected counts, from the replies that a client received.
#[derive(Default)]
pub(crate) struct ExpectedCounts {
    pub(crate) counts: Counts,
    /// All keys in its requests.
    named: BTreeSet<String>,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    /// The error of the last refused request.
    pub(crate) why: String,
}

impl ExpectedCounts {
    /// Sends requests and reads the replies. Returns whether all were acknowledged.
    pub(crate) fn exchange(&mut self, wire: &mut Wire, requests: &[Request]) -> bool {
        let refused = self.refused;
        let lines: String = requests.iter().map(|request| request.text.as_str()).collect();
        wire.send(&lines).expect("the server reads");
        for request in requests {
            let mut reply = || wire.reply().expect("a reply");
            (0..request.before).for_each(|_| drop(reply()));
            self.take(request, &reply());
        }
        self.refused == refused
    }

    /// Records the reply to a request.
    pub(crate) fn take(&mut self, request: &Request, reply: &Reply) {
        self.named.extend(request.changes.iter().map(|change| change.key().to_owned()));
        match request.refusal(reply) {
            Some(why) => {
                self.refused += 1;
                why.clone_into(&mut self.why);
            }
            // There was nothing to delete, because a refused request had deleted it.
            None if *reply == Reply::Number(0) => {}
            None => {
                self.acknowledged += 1;
                request.changes.iter().for_each(|change| change.apply(&mut self.counts));
            }
        }
    }

    /// Adds the expected counts of another client.
    pub(crate) fn add(&mut self, other: ExpectedCounts) {
        for (key, hits) in other.counts {
            *self.counts.entry(key).or_default() += hits;
        }
        self.named.extend(other.named);
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        if other.refused > 0 {
            self.why = other.why;
        }
    }

    /// Checks that the server has the acknowledged hits, and no others.
    pub(crate) fn check(&self, server: &Running, when: &str) {
        let found = counted(server, self.named.iter().map(String::as_str));
        let wrong = self.named.iter().filter(|key| found.get(*key) != self.counts.get(*key));
        let wrong: Vec<_> = wrong.map(|key| (key, found.get(key), self.counts.get(key))).collect();
        assert!(wrong.is_empty(), "{when}: key, found, acknowledged: {wrong:?}");
        assert_eq!(server.ask::<usize>("DBSIZE"), self.counts.len(), "{when}: keys");
    }
}
