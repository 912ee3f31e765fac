//! What is filled in, and what keeps it.

/// Keys and how they are hit.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) keys: u32,
    /// Keys of a quick run: fewer where each gets many hits.
    pub(crate) quick_keys: u32,
    pub(crate) hits: Hits,
    /// The most bytes per key, and what they should be.
    pub(crate) must: (f64, f64),
    /// What else keeps the same.
    pub(crate) beside: &'static [Keeper],
}

/// When the keys are hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hits {
    /// Each this many times, one after the other, so many milliseconds apart.
    Every { ms: u32, times: u32 },
    /// Each this many times on average, whenever it happens in so many milliseconds.
    Randomly { within_ms: u32, times: u32 },
}

/// What keeps the hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeper {
    /// Ours.
    Store,
    /// The count of each second that had hits, all of them, in what the standard library has.
    Queues,
    /// A table of indices and an array of key, second and count, both at their final size.
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
const WEEK_MS: u32 = 7 * 24 * 3_600 * SECOND_MS;

/// The last takes about as long as all others.
pub(crate) const LAYOUTS: [Layout; 5] = [
    Layout {
        name: "one hit",
        keys: 1_000_000,
        quick_keys: 1_000_000,
        hits: Hits::Every { ms: SECOND_MS, times: 1 },
        must: (52.0, 42.0),
        beside: &[Keeper::Floor, Keeper::Queues],
    },
    Layout {
        name: "300 hits in 300 s",
        keys: 10_000,
        quick_keys: 10_000,
        hits: Hits::Every { ms: SECOND_MS, times: 300 },
        must: (450.0, 260.0),
        beside: &[Keeper::Queues],
    },
    Layout {
        name: "10 hits a day for 7 d",
        keys: 20_000,
        quick_keys: 20_000,
        hits: Hits::Randomly { within_ms: WEEK_MS, times: 70 },
        must: (400.0, 300.0),
        beside: &[Keeper::Queues],
    },
    Layout {
        name: "a hit a minute for 7 d",
        keys: 2_000,
        quick_keys: 500,
        hits: Hits::Every { ms: 60 * SECOND_MS, times: WEEK_MS / (60 * SECOND_MS) },
        must: (2_500.0, 2_000.0),
        beside: &[Keeper::Queues],
    },
    Layout {
        name: "a hit a second for 7 d",
        keys: 500,
        quick_keys: 100,
        hits: Hits::Every { ms: SECOND_MS, times: WEEK_MS / SECOND_MS },
        must: (5_000.0, 4_000.0),
        // Every second a pair of its own: gigabytes that are known without filling them.
        beside: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (index, layout) in LAYOUTS.iter().enumerate() {
            assert!(LAYOUTS[index + 1..].iter().all(|other| other.name != layout.name));
            assert!(layout.must.0 >= layout.must.1, "{}: the aim is beyond the must", layout.name);
        }
        assert_eq!(LAYOUTS[3].hits, Hits::Every { ms: 60_000, times: 10_080 });
        assert_eq!(LAYOUTS[4].hits, Hits::Every { ms: 1_000, times: 604_800 });
    }
}
