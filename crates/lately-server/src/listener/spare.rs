//! Whether the machine has a core to spare for the last event loop.
//!
//! Where each core has a loop, and whoever sends takes a core of the same machine, more loops than cores are left get in
//! each other's way. How much of the machine is idle tells that, but only as long as the last loop does nothing: once
//! all are at work nothing is idle, whether that is for the better or the worse.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{SPARE_EVERY, SPARE_LOOKS, SPARE_SHARE, SPARE_TIME};

/// What is known of that.
#[derive(Default)]
pub(super) enum Spare {
    /// Nothing: nobody asked lately.
    #[default]
    Unknown,
    /// The machine is looked at.
    Looking(Look),
    /// There is one, or it cannot be told; the machine is looked at again at this moment.
    Found(Instant),
}

/// A look at the machine, not over yet.
#[derive(Clone, Copy)]
pub(super) struct Look {
    begun: Instant,
    /// How long its cores had been idle then.
    idle: Duration,
    /// How many looks before it in a row found a core to spare: a few alone may be mistaken.
    found: u32,
}

impl Spare {
    /// Whether the last loop is to serve deep pipelines from here on, when so many clients have some; `idle` tells how long
    /// the cores have been idle.
    pub(super) fn serves(
        &mut self,
        moment: Instant,
        clients: usize,
        idle: impl FnOnce() -> Option<Duration>,
    ) -> bool {
        if clients < 2 {
            // Who comes next may leave less, or more.
            *self = Spare::Unknown;
        } else {
            match *self {
                Spare::Looking(look) if moment < look.begun + SPARE_TIME => {}
                Spare::Found(until) if moment < until => {}
                _ => self.look(moment, idle()),
            }
        }
        matches!(self, Spare::Found(_))
    }

    fn look(&mut self, moment: Instant, idle: Option<Duration>) {
        let found = Spare::Found(moment + SPARE_EVERY);
        *self = match (&*self, idle) {
            (_, None) => found,
            // After a pause it would be the pause that is looked at.
            (Spare::Looking(last), Some(idle)) if moment < last.begun + 2 * SPARE_TIME => {
                let is_enough = idle.saturating_sub(last.idle) >= (moment - last.begun).mul_f64(SPARE_SHARE);
                let looks = if is_enough { last.found + 1 } else { 0 };
                if looks == SPARE_LOOKS {
                    found
                } else {
                    Spare::Looking(Look { begun: moment, idle, found: looks })
                }
            }
            (_, Some(idle)) => Spare::Looking(Look { begun: moment, idle, found: 0 }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    /// A machine of two cores, on which time passes.
    struct Machine {
        spare: Spare,
        moment: Instant,
        idle: Option<Duration>,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { spare: Spare::default(), moment: Instant::now(), idle: Some(Duration::from_secs(7)) }
        }

        /// Lets time pass with so many clients, while so much of a core is idle when the last loop has nothing to do; gives
        /// whether it has.
        fn pass(&mut self, time: Duration, clients: usize, idle: f64) -> bool {
            let (mut serves, end) = (false, self.moment + time);
            while self.moment < end {
                serves = self.spare.serves(self.moment, clients, || self.idle);
                self.moment += STEP;
                if let Some(total) = self.idle.as_mut().filter(|_| !serves) {
                    *total += STEP.mul_f64(idle);
                }
            }
            serves
        }
    }

    #[test]
    fn the_last_loop_serves_where_a_core_is_idle() {
        for (idle, serves) in [(0.0, false), (0.2, false), (0.25, false), (0.35, true), (1.0, true)] {
            let mut machine = Machine::new();
            assert!(!machine.pass(SPARE_LOOKS * SPARE_TIME, 2, idle));
            assert_eq!(machine.pass(2 * STEP, 2, idle), serves, "{idle}");
            // Nothing is idle any more, and it goes on.
            assert_eq!(machine.pass(SPARE_EVERY / 2, 2, idle), serves, "{idle}");
        }
    }

    #[test]
    fn it_is_asked_again_and_forgotten_with_the_clients() {
        let mut machine = Machine::new();
        assert!(machine.pass(SPARE_LOOKS * SPARE_TIME + 2 * STEP, 50, 0.5));
        assert!(machine.pass(SPARE_EVERY - 5 * STEP, 50, 0.1));
        assert!(!machine.pass(6 * STEP, 50, 0.1));
        assert!(!machine.pass((SPARE_LOOKS + 1) * SPARE_TIME, 50, 0.1));
        assert!(machine.pass(SPARE_LOOKS * SPARE_TIME + 2 * STEP, 50, 0.5));
        assert!(!machine.pass(STEP, 1, 0.5));
        assert!(!machine.pass(SPARE_LOOKS * SPARE_TIME, 50, 0.5));
        assert!(machine.pass(2 * STEP, 50, 0.5));
    }

    #[test]
    fn a_pause_is_not_taken_for_a_core_to_spare() {
        let mut machine = Machine::new();
        assert!(!machine.pass(STEP, 50, 0.0));
        machine.moment += (SPARE_LOOKS + 1) * SPARE_TIME;
        machine.idle = machine.idle.map(|idle| idle + 6 * SPARE_TIME);
        assert!(!machine.pass((SPARE_LOOKS + 1) * SPARE_TIME, 50, 0.0));
    }

    #[test]
    fn a_few_looks_may_be_mistaken() {
        let mut machine = Machine::new();
        for look in 0..4 * SPARE_LOOKS {
            assert!(!machine.pass(SPARE_TIME, 50, if look % SPARE_LOOKS > 0 { 1.0 } else { 0.1 }));
        }
    }

    #[test]
    fn all_serve_where_it_cannot_be_told() {
        let mut machine = Machine { idle: None, ..Machine::new() };
        assert!(machine.pass(STEP, 2, 0.0));
        assert!(machine.pass(SPARE_EVERY * 2, 2, 0.0));
    }
}
