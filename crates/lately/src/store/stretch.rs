//! The hits of a stretch of time, to send them elsewhere.

use super::Store;
use crate::time::Timestamp;
use crate::window::Window;

impl Store {
    /// The hits that this store counted of a key from one time on and before another; those that other nodes counted are left out.
    /// `None` if they are not known exactly: a time is no border of the panes of the key's class, or is older than the retention, or
    /// panes were merged across it, which [`Settings::keeps_apart`](crate::Settings::keeps_apart) tells.
    #[must_use]
    pub fn own_hits_between(
        &self,
        key: &[u8],
        from: Timestamp,
        to: Timestamp,
        now: Timestamp,
    ) -> Option<u64> {
        let settings = self.settings_of(key);
        let hash = self.hash(key);
        let (mut shard, now, mut context) = self.lock_for(hash, now, None);
        if !settings.keeps_apart(from, now) || !settings.keeps_apart(to, now) {
            return None;
        }
        let Some(slot) = shard.live(key, hash, &mut context) else { return Some(0) };
        let window = Window::between(from.as_millis(), to.as_millis(), settings, now);
        let count = slot.state.hits().count_window(&window, settings);
        // Hits that came in panes of another class may be known less exactly.
        (count.upper == Some(count.lower)).then_some(count.lower)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::Settings;
    use crate::time::{Span, minutes, seconds};

    const START_MS: i64 = 1_700_000_040_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(START_MS + ms).expect("a time")
    }

    proptest! {
        /// Stretches that follow each other have each hit once, however old they are, as long as their borders keep hits apart.
        #[test]
        fn stretches_have_each_hit_once(
            gaps_ms in prop::collection::vec(prop_oneof![0..50_i64, 0..5_000_i64, 0..400_000_i64], 1..400),
            width in prop_oneof![Just(seconds(1)), Just(seconds(10)), Just(seconds(15)), Just(minutes(1)), Just(minutes(5))],
            later_ms in prop_oneof![Just(0_i64), 0..10_000_i64, 0..100_000_000_i64],
        ) {
            let settings = Settings::default();
            let store = Store::builder().build().expect("a store");
            let mut hits: Vec<i64> = Vec::new();
            let mut now_ms = 0;
            for gap_ms in gaps_ms {
                now_ms += gap_ms;
                hits.push(now_ms);
                store.hit(b"k", at(now_ms)).expect("room");
            }
            let width_ms = width.as_millis();
            let now = at(now_ms + later_ms);
            let mut from_ms = 0;
            for to_ms in (width_ms..=now_ms + width_ms).step_by(usize::try_from(width_ms).expect("positive")) {
                let [from, to] = [at(from_ms), at(to_ms)];
                let found = store.own_hits_between(b"k", from, to, now);
                let known = settings.keeps_apart(from, now) && settings.keeps_apart(to, now);
                prop_assert_eq!(found.is_some(), known);
                if let Some(found) = found {
                    let expected = hits.iter().filter(|hit| (from_ms..to_ms).contains(hit)).count();
                    prop_assert_eq!(found, expected as u64, "{} {}", from_ms, to_ms);
                }
                if settings.keeps_apart(to, now) {
                    from_ms = to_ms;
                }
            }
        }
    }

    #[test]
    fn only_borders_of_panes_within_the_retention_keep_hits_apart() {
        let settings = Settings::default();
        let now = at(0);
        let ago = |span: Span| at(-span.as_millis());
        assert!(settings.keeps_apart(now, now) && !settings.keeps_apart(at(-500), now));
        assert!(settings.keeps_apart(ago(seconds(359)), now));
        // Panes of 2 seconds, from an age of 6 minutes on.
        assert!(
            !settings.keeps_apart(ago(seconds(399)), now) && settings.keeps_apart(ago(seconds(400)), now)
        );
        let week = settings.retain();
        assert!(
            !settings.keeps_apart(ago(Span::from_millis(week.as_millis() + 60_000).expect("a span")), now)
        );
        // What other nodes counted, and another key, is not among the hits.
        let store = Store::builder().build().expect("a store");
        assert_eq!(store.own_hits_between(b"none", ago(seconds(10)), now, now), Some(0));
        assert_eq!(store.own_hits_between(b"none", at(-10_500), now, now), None);
    }
}
