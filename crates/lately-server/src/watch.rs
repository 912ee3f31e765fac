//! Log lines about the state of a running server: clock, disk, memory, slow clients.

use std::sync::atomic::Ordering::Relaxed;

use lately::Timestamp;
use lately_journal::{Journal, JournalStats};

use crate::config::Config;
use crate::limits::{CLOCK_STEP_MS, LOG_EVERY_MS};
use crate::service::Service;

/// The state at the last check, and when lines that repeat were last logged.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    /// The system clock was more than [`CLOCK_STEP_MS`] away from the server's.
    is_clock_far: bool,
    /// How far the system clock was ahead of the server's, before the jumps of the latter.
    clock_ms: i64,
    jumped_ms: i64,
    evicted_keys: u64,
    /// Loading had ended.
    is_loaded: bool,
    evictions_logged: Option<Timestamp>,
    forgotten_ids: u64,
    forgotten_ids_logged: Option<Timestamp>,
    fault: Option<String>,
    failures: u64,
    failures_logged: Option<Timestamp>,
    checkpoint_error: Option<String>,
    slow: u64,
    slow_logged: Option<Timestamp>,
    refused_clients: u64,
    refused_clients_logged: Option<Timestamp>,
    http_connections: u64,
    http_logged: Option<Timestamp>,
}

impl Watch {
    /// The lines to log since the last check.
    pub(crate) fn check(&mut self, service: &Service) -> Vec<String> {
        self.jump(service.clock_jumped_ms())
            .into_iter()
            .chain(self.clock(service.clock_step_ms(), service.clock_jumped_ms()))
            .chain(self.evictions(service.memory().evicted_keys, service.now(), service.is_loading()))
            .chain(self.forgotten_ids(service.memory().forgotten_ids, service.now()))
            .chain(self.slow(service.slow(), service.now()))
            .chain(self.http(service.stats.http_connections.load(Relaxed), service.now()))
            .chain(self.refused_clients(
                service.stats.refused_connections.load(Relaxed),
                service.most_clients(),
                &service.config,
                service.now(),
            ))
            .chain(
                service
                    .journal()
                    .map(Journal::stats)
                    .into_iter()
                    .flat_map(|stats| self.disk(stats, service.now())),
            )
            .collect()
    }

    /// Failures of the disk, and their end.
    fn disk(&mut self, stats: JournalStats, now: Timestamp) -> Vec<String> {
        let JournalStats { fault, checkpoint_error, failures, failed, .. } = stats;
        let mut news = Vec::new();
        match (&self.fault, &fault) {
            (None, Some(why)) => {
                news.push(format!(
                    "the journal cannot be written: {why}: hits are refused until the disk works again"
                ));
            }
            (Some(_), None) => {
                news.push("the journal can be written again: hits are accepted".to_owned());
            }
            // It failed and recovered between two checks. On a disk that the log itself fills, this repeats.
            (None, None) if failures > self.failures && is_due(self.failures_logged, now) => {
                self.failures_logged = Some(now);
                news.push(format!("the journal failed for a moment: {failed}: some hits were refused"));
            }
            _ => {}
        }
        self.failures = failures;
        if let Some(why) = checkpoint_error.as_ref().filter(|_| checkpoint_error != self.checkpoint_error) {
            news.push(format!("a checkpoint failed: {why}: no counts are lost, and the server tries again"));
        }
        (self.fault, self.checkpoint_error) = (fault, checkpoint_error);
        news
    }

    /// Clients of dumps and restores that were disconnected because they were too slow.
    fn slow(&mut self, (count, last): (u64, String), now: Timestamp) -> Option<String> {
        if count == self.slow || !is_due(self.slow_logged, now) {
            return None;
        }
        let others = match count - self.slow - 1 {
            0 => String::new(),
            others => format!(", and {others} more before it"),
        };
        (self.slow, self.slow_logged) = (count, Some(now));
        Some(format!("{last}{others}: disconnected (logged at most once a minute)"))
    }

    /// Connections to the port of RESP that sent HTTP.
    fn http(&mut self, count: u64, now: Timestamp) -> Option<String> {
        if count == self.http_connections || !is_due(self.http_logged, now) {
            return None;
        }
        let more = count - self.http_connections;
        (self.http_connections, self.http_logged) = (count, Some(now));
        Some(format!(
            "{more} connections to the port of RESP sent HTTP, and were closed: a client has the wrong port, \
             or a web page attacks (logged at most once a minute)"
        ))
    }

    /// Clients that were refused because `most` are connected.
    fn refused_clients(
        &mut self,
        count: u64,
        most: usize,
        config: &Config,
        now: Timestamp,
    ) -> Option<String> {
        if count == self.refused_clients || !is_due(self.refused_clients_logged, now) {
            return None;
        }
        let more = count - self.refused_clients;
        (self.refused_clients, self.refused_clients_logged) = (count, Some(now));
        let Config { max_clients, ceiling_bytes, .. } = config;
        let why = if most < *max_clients {
            format!(
                "the memory ceiling of {ceiling_bytes} bytes has room for {most} of max_clients = {max_clients}"
            )
        } else {
            format!("max_clients = {max_clients} are connected")
        };
        Some(format!("{more} clients were refused: {why} (logged at most once a minute)"))
    }

    /// A jump of the server's clock. `jumped_ms` is the sum of its jumps since the start.
    fn jump(&mut self, jumped_ms: i64) -> Option<String> {
        let more_ms = jumped_ms - std::mem::replace(&mut self.jumped_ms, jumped_ms);
        (more_ms > 0).then(|| {
            let seconds = more_ms / 1_000;
            format!("the system clock stayed {seconds} s ahead for a minute: the server's clock jumped to it")
        })
    }

    /// A step of the system clock. Logged once until both clocks agree, and again when the system clock was set further
    /// away. Meanwhile the server's clock moves towards it, slowly or by jumps.
    fn clock(&mut self, step_ms: i64, jumped_ms: i64) -> Option<String> {
        let is_far = step_ms.abs() > CLOCK_STEP_MS;
        let was_far = std::mem::replace(&mut self.is_clock_far, is_far);
        let set_ms = step_ms + jumped_ms - std::mem::replace(&mut self.clock_ms, step_ms + jumped_ms);
        let is_further = set_ms.abs() > CLOCK_STEP_MS && set_ms.signum() == step_ms.signum();
        if !is_far || (was_far && !is_further) {
            return None;
        }
        let set_ms = if is_further { set_ms } else { step_ms };
        let (direction, place, jump) = if step_ms > 0 {
            ("ahead", "ahead of", ", and jumps to it if it stays more than max_skew ahead for a minute")
        } else {
            ("back", "behind", "")
        };
        let [set_s, step_s] = [set_ms, step_ms].map(|ms| ms.abs() / 1_000);
        Some(format!(
            "the system clock was set {direction} by {set_s} s: it is {step_s} s {place} the server's clock, \
             which moves towards it by 50 ms a second{jump}"
        ))
    }

    /// Ids that were forgotten before their span was over.
    fn forgotten_ids(&mut self, count: u64, now: Timestamp) -> Option<String> {
        if count == self.forgotten_ids || !is_due(self.forgotten_ids_logged, now) {
            return None;
        }
        let more = count - self.forgotten_ids;
        (self.forgotten_ids, self.forgotten_ids_logged) = (count, Some(now));
        Some(format!(
            "ids of hits take half of the memory ceiling: {more} were forgotten before their dedupe was over, the oldest \
             first, so a hit that is sent again may count twice (logged at most once a minute)"
        ))
    }

    fn evictions(&mut self, evicted_keys: u64, now: Timestamp, is_loading: bool) -> Option<String> {
        if is_loading || !self.is_loaded {
            // Keys evicted while loading are logged once, when loading ends.
            self.evicted_keys = evicted_keys;
            self.is_loaded = !is_loading;
        }
        if evicted_keys == self.evicted_keys || !is_due(self.evictions_logged, now) {
            return None;
        }
        let more = evicted_keys - self.evicted_keys;
        (self.evicted_keys, self.evictions_logged) = (evicted_keys, Some(now));
        Some(format!(
            "the memory ceiling is reached: {more} keys with hits were evicted (logged at most once a minute)"
        ))
    }
}

/// Whether a line that was last logged then may be logged again.
fn is_due(logged: Option<Timestamp>, now: Timestamp) -> bool {
    logged.is_none_or(|logged| now.as_millis() - logged.as_millis() >= LOG_EVERY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_step_is_logged_once() {
        let mut watch = Watch::default();
        assert_eq!(watch.clock(9_999, 0), None);
        let back = "the system clock was set back by 69 s: it is 60 s behind the server's clock, which moves towards it by 50 ms a second";
        assert_eq!(watch.clock(-60_000, 0).as_deref(), Some(back));
        assert_eq!(watch.clock(-50_000, 0), None);
        assert_eq!(watch.clock(0, 0), None);
        assert!(
            watch.clock(11_000, 0).is_some_and(
                |line| line.contains("set ahead by 11 s: it is 11 s ahead of the server's clock")
            )
        );
    }

    /// Symptom: a clock that was set ahead by 10 s and then by a day was logged as 10 s. Cause: nothing was logged until both
    /// clocks agreed again. Fix: a further step is logged.
    #[test]
    fn a_further_clock_step_is_logged_again() {
        let mut watch = Watch::default();
        let mut logged = |step_ms, jumped_ms| watch.clock(step_ms, jumped_ms);
        let is = |line: Option<String>, expected: &str| {
            assert!(line.as_ref().is_some_and(|line| line.contains(expected)), "{line:?} {expected}");
        };
        is(logged(10_500, 0), "set ahead by 10 s: it is 10 s ahead of");
        assert_eq!(logged(10_450, 0), None);
        is(logged(86_410_400, 0), "set ahead by 86399 s: it is 86410 s ahead of");
        // The server's clock came closer while the process was stopped, and jumped.
        assert_eq!(logged(86_380_000, 0), None);
        assert_eq!(logged(70_000_000, 16_380_000), None);
        is(logged(70_020_000, 16_380_000), "set ahead by 20 s: it is 70020 s ahead of");
        is(logged(-20_000, 16_380_000), "set back by 70040 s: it is 20 s behind");
        is(logged(-40_000, 16_380_000), "set back by 20 s: it is 40 s behind");
        assert_eq!(logged(-45_000, 16_380_000), None);
        assert_eq!(logged(0, 16_380_000), None);
        is(logged(11_000, 16_380_000), "set ahead by 11 s");
    }

    #[test]
    fn a_clock_jump_is_logged_once() {
        let mut watch = Watch::default();
        assert_eq!(watch.jump(0), None);
        let hour = "the system clock stayed 3600 s ahead for a minute: the server's clock jumped to it";
        assert_eq!(watch.jump(3_600_000).as_deref(), Some(hour));
        assert_eq!(watch.jump(3_600_000), None);
        assert!(watch.jump(3_612_000).is_some_and(|line| line.contains("stayed 12 s ahead")));
    }

    #[test]
    fn slow_clients_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut watch = Watch::default();
        let mut logged = |count, seconds| watch.slow((count, "x was slow".to_owned()), at(seconds));
        assert_eq!(logged(0, 0), None);
        let ended = "disconnected (logged at most once a minute)";
        assert_eq!(logged(1, 0), Some(format!("x was slow: {ended}")));
        assert_eq!([logged(1, 1), logged(3, 59)], [None, None]);
        assert_eq!(logged(4, 60), Some(format!("x was slow, and 2 more before it: {ended}")));
    }

    #[test]
    fn http_on_the_port_of_resp_is_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut watch = Watch::default();
        assert_eq!(watch.http(0, at(0)), None);
        assert!(
            watch
                .http(2, at(0))
                .is_some_and(|line| line.starts_with("2 connections to the port of RESP sent HTTP"))
        );
        assert_eq!([watch.http(2, at(70)), watch.http(5, at(59))], [None, None]);
        assert!(watch.http(5, at(60)).is_some_and(|line| line.starts_with("3 connections")));
    }

    #[test]
    fn refused_clients_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let config = Config { max_clients: 70, ceiling_bytes: 1 << 20, ..Config::default() };
        let mut watch = Watch::default();
        let mut logged = |count, most, seconds| watch.refused_clients(count, most, &config, at(seconds));
        assert_eq!(logged(0, 64, 0), None);
        let full = "2 clients were refused: the memory ceiling of 1048576 bytes has room for 64 of max_clients = 70 (logged at most once a minute)";
        assert_eq!(logged(2, 64, 0).as_deref(), Some(full));
        assert_eq!([logged(2, 64, 70), logged(5, 64, 59)], [None, None]);
        let most = "3 clients were refused: max_clients = 70 are connected (logged at most once a minute)";
        assert_eq!(logged(5, 70, 60).as_deref(), Some(most));
    }

    #[test]
    fn brief_failures_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let stats = |failures, fault: Option<&str>| JournalStats {
            durability: lately_journal::Durability::Interval,
            log_bytes: 0,
            checkpoint_bytes: 0,
            checkpoints: 0,
            checkpoint_at: None,
            records: 0,
            syncs: 0,
            is_checkpointing: false,
            checkpoint_error: None,
            fault: fault.map(str::to_owned),
            failures,
            failed: "it is full".to_owned(),
        };
        let mut watch = Watch::default();
        let moment = ["the journal failed for a moment: it is full: some hits were refused"];
        assert!(watch.disk(stats(0, None), at(1)).is_empty());
        assert_eq!(watch.disk(stats(1, None), at(2)), moment);
        assert!(watch.disk(stats(3, None), at(3)).is_empty());
        assert!(watch.disk(stats(3, None), at(90)).is_empty());
        assert_eq!(watch.disk(stats(4, None), at(91)), moment);
        // A failure that lasts is logged at once, and only once.
        let logged = watch.disk(stats(5, Some("it is gone")), at(92));
        let refused =
            "the journal cannot be written: it is gone: hits are refused until the disk works again";
        assert_eq!(logged, [refused]);
        let recovered = watch.disk(stats(5, None), at(93));
        assert_eq!(recovered, ["the journal can be written again: hits are accepted"]);
    }

    #[test]
    fn forgotten_ids_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut watch = Watch::default();
        assert_eq!(watch.forgotten_ids(0, at(1)), None);
        assert!(watch.forgotten_ids(5, at(1)).is_some_and(|line| line.contains("ceiling: 5 were forgotten")));
        assert_eq!([watch.forgotten_ids(5, at(90)), watch.forgotten_ids(9, at(60))], [None, None]);
        assert!(watch.forgotten_ids(12, at(61)).is_some_and(|line| line.contains("7 were forgotten")));
    }

    #[test]
    fn evictions_are_logged_once_a_minute() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("a time");
        let mut watch = Watch::default();
        assert_eq!(watch.evictions(0, at(1), false), None);
        assert!(watch.evictions(5, at(1), false).is_some_and(|line| line.contains("5 keys")));
        assert_eq!(watch.evictions(9, at(60), false), None);
        assert!(watch.evictions(12, at(61), false).is_some_and(|line| line.contains("7 keys")));
        assert_eq!(watch.evictions(12, at(200), false), None);
        assert_eq!(watch.evictions(20, at(300), true), None);
        assert_eq!(watch.evictions(20, at(400), false), None);
    }
}
