//! Clients that record their requests and the acknowledgements, to know the counts that the server must have.

use std::collections::BTreeMap;

use crate::running::Running;
use crate::wire::Reply;
use test_support::Rng;

/// Keys that all clients hit.
pub(crate) const SHARED: u64 = 4;
/// Keys that a client repeatedly hits and deletes.
const FICKLE: u64 = 6;
/// The window contains all hits, including late ones.
const WINDOW: &str = "1d";
/// The longest delay of a late hit.
const LATE_SECONDS: u64 = 3 * 60 * 60;
/// The most keys in one read.
const ASKED: usize = 8_000;

/// A change made by a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Hits(String, u64),
    Forget(String),
}

/// A request or a transaction: all of its changes are made, or none.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The lines to send.
    pub(crate) text: String,
    /// The number of replies before the result, such as `QUEUED`.
    pub(crate) before: usize,
    pub(crate) changes: Vec<Change>,
}

/// Hits by key. A missing key has no hits.
pub(crate) type Counts = BTreeMap<String, u64>;

/// A client.
pub(crate) struct Client {
    name: u64,
    pub(crate) rng: Rng,
    /// Keys that it has hit once and will not hit again.
    keys: u64,
    /// The server's time when it began.
    now: u64,
}

pub(crate) fn shared(number: u64) -> String {
    format!("all:{number}")
}

pub(crate) fn is_shared(key: &str) -> bool {
    key.starts_with("all:")
}

impl Change {
    pub(crate) fn key(&self) -> &str {
        match self {
            Change::Hits(key, _) | Change::Forget(key) => key,
        }
    }

    pub(crate) fn apply(&self, counts: &mut Counts) {
        match self {
            Change::Hits(key, hits) => *counts.entry(key.clone()).or_default() += hits,
            Change::Forget(key) => _ = counts.remove(key),
        }
    }
}

impl Request {
    fn line(line: String, changes: Vec<Change>) -> Request {
        Request { text: line + "\r\n", before: 0, changes }
    }

    /// A hit.
    pub(crate) fn hit(key: &str) -> Request {
        Request::line(format!("HIT {key}"), vec![Change::Hits(key.to_owned(), 1)])
    }

    /// A request that changes nothing.
    pub(crate) fn idle(line: &str) -> Request {
        Request::line(line.to_owned(), Vec::new())
    }

    /// The error of a refused request. A request is never refused in part.
    pub(crate) fn refusal<'r>(&self, reply: &'r Reply) -> Option<&'r str> {
        let leaves = reply.leaves();
        let errors = leaves.iter().filter_map(|leaf| match leaf {
            Reply::Error(error) => Some(error.as_str()),
            _ => None,
        });
        let errors: Vec<&str> = errors.collect();
        assert!(errors.is_empty() || errors.len() == leaves.len(), "half of {self:?} was refused: {reply:?}");
        errors.first().copied()
    }
}

impl Client {
    pub(crate) fn new(name: u64, rng: &mut Rng) -> Client {
        Client { name, rng: Rng::new(rng.next_u64()), keys: 0, now: 0 }
    }

    /// Sets the time of the client to that of the server.
    pub(crate) fn look_at_the_clock(&mut self, server: &Running) {
        self.now = server.ask::<Vec<u64>>("TIME")[0];
    }

    /// Up to `most` random requests.
    pub(crate) fn requests(&mut self, most: u64) -> Vec<Request> {
        let count = self.rng.below(most) + 1;
        (0..count).map(|_| self.request()).collect()
    }

    fn request(&mut self) -> Request {
        match self.rng.below(16) {
            0..=7 => self.hit_of(Client::own_key, 1),
            8..=11 => {
                let hits = self.rng.below(5) + 1;
                self.hit_of(|client| shared(client.rng.below(SHARED)), hits)
            }
            12 => self.hit_of(Client::fickle_key, 3),
            13 => {
                let keys = [self.fickle_key(), self.known_key()];
                let line = format!("DEL {}", keys.join(" "));
                Request::line(line, keys.map(Change::Forget).to_vec())
            }
            14 => {
                let keys: Vec<String> = (0..3).map(|_| self.own_key()).collect();
                let pairs: String = keys.iter().map(|key| format!(" {key} 2")).collect();
                let changes = keys.into_iter().map(|key| Change::Hits(key, 2)).collect();
                Request::line(format!("MHIT{pairs}"), changes)
            }
            _ => self.transaction(),
        }
    }

    /// A hit, sometimes a late one.
    fn hit_of(&mut self, key: impl Fn(&mut Client) -> String, hits: u64) -> Request {
        let key = key(self);
        let late = self.rng.once_in(4).then(|| self.now - self.rng.below(LATE_SECONDS));
        let at = late.map(|at| format!(" AT {at}")).unwrap_or_default();
        Request::line(format!("HIT {key} {hits}{at}"), vec![Change::Hits(key, hits)])
    }

    fn transaction(&mut self) -> Request {
        let own = self.hit_of(Client::own_key, 1);
        let fickle = self.hit_of(Client::fickle_key, 1);
        let all = self.hit_of(|client| shared(client.rng.below(SHARED)), 7);
        let parts = [own, fickle, all];
        let lines: String = parts.iter().map(|part| part.text.as_str()).collect();
        let before = 1 + parts.len();
        let changes = parts.into_iter().flat_map(|part| part.changes).collect();
        Request { text: format!("MULTI\r\n{lines}EXEC\r\n"), before, changes }
    }

    fn own_key(&mut self) -> String {
        self.keys += 1;
        format!("own:{}:{}", self.name, self.keys)
    }

    /// One of the client's own keys, which may have been deleted or refused.
    fn known_key(&mut self) -> String {
        format!("own:{}:{}", self.name, self.rng.below(self.keys + 1))
    }

    fn fickle_key(&mut self) -> String {
        format!("fickle:{}:{}", self.name, self.rng.below(FICKLE))
    }
}

/// The server's counts of these keys.
pub(crate) fn counted<'k>(server: &Running, keys: impl Iterator<Item = &'k str>) -> Counts {
    let keys: Vec<&str> = keys.collect();
    let mut connection = server.connect();
    let mut counts = Counts::new();
    for keys in keys.chunks(ASKED) {
        let found = redis::cmd("MHITS").arg(WINDOW).arg(keys).query(&mut connection);
        let found: Vec<u64> = found.expect("an answer");
        counts.extend(keys.iter().map(|key| (*key).to_owned()).zip(found));
    }
    counts.retain(|_, hits| *hits > 0);
    counts
}
