//! Which pane is sent next.

use lately::{Settings, Span, Timestamp};

use crate::limits::HISTORY_MARGIN;
use crate::service::history::Pane;

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// No pane is closed before this time.
    Wait(Timestamp),
    /// A closed pane. It begins where the one before it ended.
    Pane(Pane),
    /// The hits before this time are known no more apart from those after the last pane that was sent.
    Skip(Timestamp),
}

/// The panes of a history.
#[derive(Debug)]
pub(super) struct Panes {
    /// The width of a pane. Panes end at multiples of it.
    pub(super) interval: Span,
    /// How long after its end a pane is closed.
    pub(super) delay: Span,
    /// The settings of all keys that may match.
    pub(super) settings: Vec<Settings>,
}

impl Panes {
    /// The start of the pane that contains a time.
    pub(super) fn start_of(&self, at: Timestamp) -> Timestamp {
        let interval_ms = self.interval.as_millis();
        timestamp(at.as_millis().div_euclid(interval_ms) * interval_ms)
    }

    /// What comes after the pane that ended at `sent_to`.
    ///
    /// After a long outage panes have been merged. Then a pane ends where hits are known apart again: it is wider, and its hits are
    /// exact all the same.
    pub(super) fn next(&self, sent_to: Timestamp, now: Timestamp) -> Next {
        let closed_ms = now.as_millis() - self.delay.as_millis();
        let seen_from = timestamp(now.as_millis().saturating_add(HISTORY_MARGIN.as_millis()));
        let is_border =
            |at: Timestamp| self.settings.iter().all(|settings| settings.keeps_apart(at, seen_from));
        let mut ends = self.ends_after(sent_to);
        let first = ends.next().unwrap_or(sent_to);
        if first.as_millis() > closed_ms {
            return Next::Wait(timestamp(first.as_millis() + self.delay.as_millis()));
        }
        let is_kept = is_border(sent_to);
        let found = self
            .ends_after(sent_to)
            .take_while(|end| end.as_millis() <= closed_ms)
            .find(|end| is_border(*end));
        match found {
            Some(end) if is_kept => Next::Pane(Pane { from: sent_to, to: end }),
            Some(end) => Next::Skip(end),
            None => Next::Wait(timestamp(now.as_millis() + self.interval.as_millis())),
        }
    }

    fn ends_after(&self, at: Timestamp) -> impl Iterator<Item = Timestamp> + use<> {
        let (start_ms, interval_ms) = (self.start_of(at).as_millis(), self.interval.as_millis());
        (1..).map(move |number| timestamp(start_ms.saturating_add(interval_ms.saturating_mul(number))))
    }
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use lately::{hours, minutes, seconds};

    use super::*;

    /// A whole day.
    const DAY_S: i64 = 1_700_006_400;

    fn at(s: i64) -> Timestamp {
        timestamp((DAY_S + s) * 1_000)
    }

    fn panes(interval: Span, settings: &[Settings]) -> Panes {
        Panes { interval, delay: seconds(10), settings: settings.to_vec() }
    }

    fn pane(from: i64, to: i64) -> Next {
        Next::Pane(Pane { from: at(from), to: at(to) })
    }

    #[test]
    fn a_pane_is_closed_after_the_delay() {
        let panes = panes(minutes(1), &[Settings::default()]);
        assert_eq!(panes.next(at(60), at(129)), Next::Wait(at(130)));
        assert_eq!(panes.next(at(60), at(130)), pane(60, 120));
        assert_eq!(panes.next(at(60), at(1_000)), pane(60, 120));
        // The interval was another one before.
        assert_eq!(panes.next(at(75), at(130)), pane(75, 120));
        assert_eq!(panes.start_of(at(75)), at(60));
        // The clock was set back.
        assert_eq!(panes.next(at(600), at(0)), Next::Wait(at(670)));
    }

    #[test]
    fn panes_are_wider_after_a_long_outage() {
        let panes = panes(minutes(1), &[Settings::default()]);
        // Panes of a minute stay for 30,000 seconds.
        assert_eq!(panes.next(at(60), at(29_000)), pane(60, 120));
        assert_eq!(panes.next(at(300), at(31_000)), pane(300, 600));
        // Where a pane of 5 minutes has begun that is sent already.
        assert_eq!(panes.next(at(360), at(31_000)), Next::Skip(at(600)));
        // Past the retention.
        let now = 9 * 86_400;
        let Next::Skip(end) = panes.next(at(0), at(now)) else { panic!("it is not kept") };
        assert!(end >= at(2 * 86_400) && end < at(2 * 86_400 + 8_000), "{end:?}");
        assert!(matches!(panes.next(end, at(now)), Next::Pane(_)));
    }

    #[test]
    fn the_classes_of_all_keys_count() {
        let fine = Settings::builder().exact(hours(1)).build().expect("valid");
        let odd = seconds(15);
        // Panes of 2 seconds do not end at 15 seconds.
        assert_eq!(panes(odd, &[Settings::default()]).next(at(15), at(400)), Next::Skip(at(30)));
        assert_eq!(panes(odd, std::slice::from_ref(&fine)).next(at(15), at(400)), pane(15, 30));
        assert_eq!(panes(odd, &[fine, Settings::default()]).next(at(15), at(400)), Next::Skip(at(30)));
    }

    /// Panes follow each other without a gap or an overlap, however late they are read.
    #[test]
    fn panes_follow_each_other() {
        for (interval, interval_s) in
            [(seconds(1), 1), (seconds(15), 15), (minutes(1), 60), (hours(1), 3_600)]
        {
            let panes = panes(interval, &[Settings::default()]);
            let (mut sent_to, mut now_s) = (at(0), 0);
            let mut random = 1_u64;
            for _ in 0..500 {
                match panes.next(sent_to, at(now_s)) {
                    Next::Wait(until) => {
                        assert!(until > at(now_s));
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        now_s += i64::try_from(random >> 40).expect("small") % (40 * interval_s) + 1;
                    }
                    Next::Pane(Pane { from, to }) => {
                        assert!(from == sent_to && to > from && to == panes.start_of(to));
                        assert!(to.as_millis() + 10_000 <= at(now_s).as_millis());
                        sent_to = to;
                    }
                    Next::Skip(to) => {
                        assert!(to > sent_to && to == panes.start_of(to));
                        sent_to = to;
                    }
                }
            }
        }
    }
}
