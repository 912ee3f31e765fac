//! How busy an event loop is, and whether a core of the machine is idle meanwhile.
//!
//! A second loop helps only if a core has time for it: where clients on the same machine need that core, more loops give
//! the store fewer requests at once, and no more are served. So the machine is asked, a few times in a row.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::limits::{BUSY, IDLE_CORE, LOOK_EVERY, LOOKS, QUIET, QUIET_TIME};

/// The time of all cores since the machine started, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CoreTime {
    idle: u64,
    all: u64,
    cores: u64,
}

impl CoreTime {
    /// That of this machine, if the system says it.
    pub(super) fn now() -> Option<CoreTime> {
        let mut text = String::new();
        File::open("/proc/stat").ok()?.read_to_string(&mut text).ok()?;
        CoreTime::parse(&text)
    }

    /// Reads `/proc/stat`: a line for all cores, and one for each.
    pub(super) fn parse(text: &str) -> Option<CoreTime> {
        let mut lines = text.lines();
        let times = lines.next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        // User, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen. Guests are in the first two.
        let times: Vec<u64> = times.take(8).map(|time| time.parse().ok()).collect::<Option<_>>()?;
        let cores = lines.take_while(|line| line.starts_with("cpu")).count() as u64;
        Some(CoreTime { idle: times.get(3)? + times.get(4)?, all: times.iter().sum(), cores })
    }

    /// How many cores were idle since then.
    fn idle_since(self, before: CoreTime) -> f64 {
        let [idle, all] = [self.idle.saturating_sub(before.idle), self.all.saturating_sub(before.all)];
        if all == 0 { 0.0 } else { idle as f64 / all as f64 * self.cores as f64 }
    }
}

/// What an event loop does about its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    /// Nothing.
    Stay,
    /// Begin to count what clients send: it seems busy.
    Count,
    /// Hand clients over: it is busy, and a core is idle.
    HandOver,
    /// Give back the clients that it took over: it was quiet for long.
    GiveBack,
}

/// The load of an event loop.
pub(super) struct Load {
    /// When it was looked at last, and how long the loop has waited since.
    looked: Instant,
    waited: Duration,
    /// The time of the cores at the last look, if the loop was busy.
    before: Option<CoreTime>,
    /// How many looks in a row it was busy while a core was idle.
    found: u32,
    /// Since when it is quiet.
    quiet: Option<Instant>,
}

impl Load {
    pub(super) fn new(moment: Instant) -> Load {
        Load { looked: moment, waited: Duration::ZERO, before: None, found: 0, quiet: None }
    }

    /// The loop has waited for events.
    pub(super) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Whether it is time for a look.
    pub(super) fn is_due(&self, moment: Instant) -> bool {
        moment >= self.looked + LOOK_EVERY
    }

    /// Looks at the time since the last look. Returns the part of it, in percent, that the loop was busy, and what to do.
    pub(super) fn look(&mut self, moment: Instant, cores: impl FnOnce() -> Option<CoreTime>) -> (u8, Advice) {
        let time = moment.saturating_duration_since(self.looked);
        let waited =
            std::mem::take(&mut self.waited).as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE);
        self.looked = moment;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let busy = (100.0 * (1.0 - waited.min(1.0))) as u8;
        (busy, self.advice(busy, moment, cores))
    }

    fn advice(&mut self, busy: u8, moment: Instant, cores: impl FnOnce() -> Option<CoreTime>) -> Advice {
        let quiet_since = if busy > QUIET { None } else { Some(self.quiet.unwrap_or(moment)) };
        self.quiet = quiet_since;
        if quiet_since.is_some_and(|since| moment >= since + QUIET_TIME) {
            self.quiet = None;
            return Advice::GiveBack;
        }
        if busy < BUSY {
            (self.before, self.found) = (None, 0);
            return Advice::Stay;
        }
        let now = cores();
        let Some(before) = std::mem::replace(&mut self.before, now) else { return Advice::Count };
        let is_idle = now.is_some_and(|now| now.idle_since(before) >= IDLE_CORE);
        self.found = if is_idle { self.found + 1 } else { 0 };
        if self.found < LOOKS {
            return Advice::Stay;
        }
        (self.before, self.found) = (None, 0);
        Advice::HandOver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The advice of looks with this part of the time busy, and `idle` thousandths of a core idle.
    fn advice(busy: f64, idle: u64, looks: u32) -> Vec<Advice> {
        let mut moment = crate::clock::moment();
        let (mut load, mut time) = (Load::new(moment), CoreTime { idle: 5, all: 10, cores: 2 });
        let mut look = || {
            moment += LOOK_EVERY;
            load.waited(LOOK_EVERY.mul_f64(1.0 - busy));
            time.all += 2_000;
            time.idle += idle;
            assert!(load.is_due(moment));
            load.look(moment, || Some(time)).1
        };
        (0..looks).map(|_| look()).filter(|&advice| advice != Advice::Stay).collect()
    }

    #[test]
    fn clients_are_handed_over_while_a_core_is_idle() {
        assert_eq!(advice(1.0, 900, LOOKS + 1), [Advice::Count, Advice::HandOver]);
        assert_eq!(advice(0.95, 400, 2 * LOOKS + 2).len(), 4, "and again");
        // Nothing is idle.
        assert_eq!(advice(1.0, 200, 100), [Advice::Count]);
        // It has time itself.
        assert_eq!(advice(0.7, 1_300, 100), []);
    }

    #[test]
    fn a_quiet_loop_gives_clients_back() {
        let looks = u32::try_from(QUIET_TIME.as_millis() / LOOK_EVERY.as_millis()).expect("few") + 2;
        assert_eq!(advice(0.1, 1_900, looks), [Advice::GiveBack]);
        assert_eq!(advice(0.5, 1_500, looks), []);
    }

    #[test]
    fn nothing_is_known_without_the_time_of_cores() {
        let mut moment = crate::clock::moment();
        let mut load = Load::new(moment);
        for _ in 0..100 {
            moment += LOOK_EVERY;
            let (busy, advice) = load.look(moment, || None);
            assert_eq!((busy, advice), (100, Advice::Count));
        }
    }

    #[test]
    fn the_time_of_cores_is_read() {
        let text =
            "cpu  100 5 20 700 30 1 2 3 50 0\ncpu0 50 0 0 0 0 0 0 0 0 0\ncpu1 50 0 0 0 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(CoreTime::parse(text), Some(CoreTime { idle: 730, all: 861, cores: 2 }));
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 3 x 5", "intr 5"] {
            assert_eq!(CoreTime::parse(text), None, "{text}");
        }
        if cfg!(target_os = "linux") {
            let time = CoreTime::now().expect("this machine has it");
            assert!(time.cores > 0 && time.idle <= time.all, "{time:?}");
        }
    }
}
