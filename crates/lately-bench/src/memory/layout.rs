//! The layouts of hits, and the keepers that hold them.

/// Keys and how they are hit.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) keys: u32,
    /// Keys of a quick run: fewer if each gets many hits.
    pub(crate) quick_keys: u32,
    pub(crate) hits: Hits,
    /// The bound and the aim of the bytes per key.
    pub(crate) must: (f64, f64),
    /// Other keepers to compare with.
    pub(crate) rivals: &'static [Keeper],
    /// A note for readers; may be empty.
    pub(crate) note: &'static str,
}

/// When the keys are hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hits {
    /// Each in each stretch of time, the oldest first.
    InTurn(&'static [Stretch]),
    /// Each this many times on average, at random times within this many milliseconds.
    Randomly { within_ms: u32, times: u32 },
}

/// Hits of one weight at a fixed distance in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) ms: u32,
    pub(crate) times: u32,
    pub(crate) weight: u32,
}

/// An object that keeps the hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeper {
    /// Ours.
    Store,
    /// A queue of counts by second, with containers of the standard library.
    Queues,
    /// A table of indices, and an array of key, second and count, both in their final size.
    Floor,
}

impl Keeper {
    pub(crate) const ALL: [Keeper; 3] = [Keeper::Store, Keeper::Queues, Keeper::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Keeper::Store => "Store",
            Keeper::Queues => "HashMap of VecDeque of seconds",
            Keeper::Floor => "index table and exact array",
        }
    }
}

const SECOND_MS: u32 = 1_000;
const MINUTE_MS: u32 = 60 * SECOND_MS;
const HOUR_MS: u32 = 60 * MINUTE_MS;
const WEEK_MS: u32 = 7 * 24 * HOUR_MS;

/// A hit a second. Hits older than two hours are kept in panes of a minute or more. Sixty at once each minute
/// leave as many panes there, and a few bytes more, in a sixtieth of the time.
const EACH_SECOND: [Stretch; 2] = [
    Stretch { ms: MINUTE_MS, times: (WEEK_MS - 2 * HOUR_MS) / MINUTE_MS, weight: 60 },
    Stretch { ms: SECOND_MS, times: 2 * HOUR_MS / SECOND_MS, weight: 1 },
];

/// One hit.
pub(crate) const ONE_HIT: Hits = Hits::InTurn(&[Stretch { ms: SECOND_MS, times: 1, weight: 1 }]);

/// The last two take about equally long, and longer than the others.
pub(crate) const LAYOUTS: [Layout; 5] = [
    Layout {
        name: "one hit",
        keys: 1_000_000,
        quick_keys: 1_000_000,
        hits: ONE_HIT,
        must: (52.0, 42.0),
        rivals: &[Keeper::Floor, Keeper::Queues],
        note: "",
    },
    Layout {
        name: "300 hits in 300 s",
        keys: 10_000,
        quick_keys: 10_000,
        hits: Hits::InTurn(&[Stretch { ms: SECOND_MS, times: 300, weight: 1 }]),
        must: (450.0, 260.0),
        rivals: &[Keeper::Queues],
        note: "",
    },
    Layout {
        name: "10 hits a day for 7 d",
        keys: 20_000,
        quick_keys: 20_000,
        hits: Hits::Randomly { within_ms: WEEK_MS, times: 70 },
        must: (400.0, 300.0),
        rivals: &[Keeper::Queues],
        note: "",
    },
    Layout {
        name: "a hit a minute for 7 d",
        keys: 3_000,
        quick_keys: 600,
        hits: Hits::InTurn(&[Stretch { ms: MINUTE_MS, times: WEEK_MS / MINUTE_MS, weight: 1 }]),
        must: (2_500.0, 2_000.0),
        rivals: &[Keeper::Queues],
        note: "",
    },
    Layout {
        name: "a hit a second for 7 d",
        keys: 2_000,
        quick_keys: 600,
        hits: Hits::InTurn(&EACH_SECOND),
        must: (5_000.0, 4_000.0),
        // A queue would need an entry for every second: gigabytes, which is known without measuring.
        rivals: &[],
        note: "beyond the last two hours: 60 hits at once each minute",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_names_are_distinct() {
        for (index, layout) in LAYOUTS.iter().enumerate() {
            assert!(LAYOUTS[index + 1..].iter().all(|other| other.name != layout.name));
            assert!(layout.must.0 >= layout.must.1, "{}: the aim is beyond the must", layout.name);
        }
        let hits = |layout: &Layout| match layout.hits {
            Hits::InTurn(stretches) => stretches.iter().map(|stretch| stretch.times * stretch.weight).sum(),
            Hits::Randomly { times, .. } => times,
        };
        assert_eq!(LAYOUTS.each_ref().map(hits), [1, 300, 70, 7 * 24 * 60, 7 * 24 * 3_600]);
    }
}
