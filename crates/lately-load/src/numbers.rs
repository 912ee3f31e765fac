//! The sequence of keys and times that all connections draw from. The check of the counts replays it.

use crate::keys::Keys;
use crate::plan::{Plan, Times};

pub(crate) struct Numbers {
    keys: Keys,
    count: u64,
    /// How many keys have had their turn at this time.
    turn: u64,
    time: u64,
    times: Times,
}

impl Numbers {
    pub(crate) fn new(plan: &Plan) -> Numbers {
        Numbers {
            keys: Keys::new(plan.order, plan.keys),
            count: plan.keys,
            turn: 0,
            time: plan.times.start,
            times: plan.times,
        }
    }

    /// The time of the key that comes next.
    #[inline]
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// The next key.
    #[inline]
    pub(crate) fn next_key(&mut self) -> u64 {
        self.turn += 1;
        if self.turn == self.count {
            self.turn = 0;
            self.time += self.times.step;
        }
        self.keys.next()
    }
}
