//! The sequence of keys, times and ids that all connections draw from. The check of the counts replays it.

use crate::keys::Keys;
use crate::plan::{Plan, Times};

pub(crate) struct Numbers {
    keys: Keys,
    count: u64,
    /// The number of keys that were used at the current time.
    used_keys: u64,
    time: u64,
    times: Times,
    next_id: u64,
}

impl Numbers {
    pub(crate) fn new(plan: &Plan) -> Numbers {
        Numbers {
            keys: Keys::new(plan.order, plan.keys),
            count: plan.keys,
            used_keys: 0,
            time: plan.times.start,
            times: plan.times,
            next_id: plan.first_id,
        }
    }

    /// The time of the next key.
    #[inline]
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// The next id.
    #[inline]
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// The next key.
    #[inline]
    pub(crate) fn next_key(&mut self) -> u64 {
        self.used_keys += 1;
        if self.used_keys == self.count {
            self.used_keys = 0;
            self.time += self.times.step;
        }
        self.keys.next()
    }
}
