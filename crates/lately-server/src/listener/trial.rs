//! Whether a core is worth more to the last event loop or to others, found out by trying.
//!
//! Where each core has a loop, and whoever sends takes a core of the same machine, more loops than cores are left get in
//! each other's way. Nothing that the system tells of a thread says reliably which is so: what is served in a time does.

use tokio::time::Instant;

use crate::limits::{TRIAL_EVERY, TRIAL_GAIN, TRIAL_SLICE, TRIAL_SLICES};

/// What was tried, and what came of it. In even slices all loops serve deep pipelines, in odd ones the last does not.
#[derive(Default)]
pub(super) struct Trial {
    /// Requests a second, in each slice that is over.
    rates: Vec<f64>,
    slice: Option<Slice>,
    /// Whether the last loop is left out, and until when that is not asked again.
    settled: Option<(bool, Instant)>,
}

#[derive(Clone, Copy)]
struct Slice {
    begun: Instant,
    /// Requests served before it, and how many clients had deep pipelines then.
    served: u64,
    clients: usize,
}

impl Trial {
    /// Whether all loops are to serve deep pipelines from here on, when so many clients have some, and so many requests
    /// have been served by now.
    pub(super) fn takes_all(&mut self, moment: Instant, clients: usize, served: u64) -> bool {
        if clients < 2 {
            // Who comes next may be another kind.
            *self = Trial::default();
            return true;
        }
        if let Some((leaves_out, until)) = self.settled {
            if moment < until {
                return !leaves_out;
            }
            *self = Trial::default();
        }
        match self.slice {
            Some(slice) if slice.clients != clients => {
                // What was tried before is not to be compared.
                *self = Trial::default();
                self.slice = Some(Slice { begun: moment, served, clients });
            }
            Some(slice) if moment < slice.begun + TRIAL_SLICE => {}
            last => {
                if let Some(slice) = last {
                    self.note(slice, moment, served);
                }
                self.slice = Some(Slice { begun: moment, served, clients });
            }
        }
        match self.settled {
            Some((leaves_out, _)) => !leaves_out,
            None => self.rates.len().is_multiple_of(2),
        }
    }

    /// Takes note of a slice that is over; settles it after the last.
    fn note(&mut self, slice: Slice, moment: Instant, served: u64) {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let requests = served.saturating_sub(slice.served) as f64;
        self.rates.push(requests / (moment - slice.begun).as_secs_f64());
        if self.rates.len() == TRIAL_SLICES {
            let [all, fewer] = [0, 1].map(|first| median(self.rates.iter().skip(first).step_by(2)));
            self.settled = Some((fewer > TRIAL_GAIN * all, moment + TRIAL_EVERY));
        }
    }
}

/// The one in the middle: a slice in which the machine stood still says nothing.
fn median<'a>(rates: impl Iterator<Item = &'a f64>) -> f64 {
    let mut rates: Vec<f64> = rates.copied().collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    /// Clients of a server that serves so many requests a step, as it is told which loops there are, for some time; then
    /// whether all serve.
    struct Served {
        trial: Trial,
        moment: Instant,
        served: u64,
    }

    impl Served {
        fn new() -> Served {
            Served { trial: Trial::default(), moment: Instant::now(), served: 7 }
        }

        fn pass(&mut self, time: Duration, clients: usize, rate: impl Fn(bool) -> u64) -> bool {
            let (mut takes_all, end) = (true, self.moment + time);
            while self.moment < end {
                takes_all = self.trial.takes_all(self.moment, clients, self.served);
                self.served += rate(takes_all);
                self.moment += STEP;
            }
            takes_all
        }
    }

    fn whole() -> Duration {
        TRIAL_SLICE * u32::try_from(TRIAL_SLICES + 1).expect("few")
    }

    #[test]
    fn the_last_loop_is_left_out_where_more_is_served_then() {
        let with = |all: u64, fewer: u64| {
            Served::new().pass(whole(), 2, |is_all: bool| if is_all { all } else { fewer })
        };
        assert!(with(3_000, 2_500));
        assert!(!with(2_500, 3_000));
        // As good as equal: all are ready for more.
        assert!(with(3_000, 3_000) && with(3_000, 3_100));
    }

    #[test]
    fn a_slice_in_which_the_machine_stands_still_says_nothing() {
        for still in 0..TRIAL_SLICES {
            let mut served = Served::new();
            let begun = served.moment;
            let mut takes_all = true;
            for slice in 0..=TRIAL_SLICES {
                let rate = |is_all: bool| if slice == still { 10 } else { 2_500 + 500 * u64::from(!is_all) };
                takes_all = served.pass(TRIAL_SLICE, 2, rate);
            }
            assert!(!takes_all, "{still}");
            assert_eq!(served.moment, begun + whole());
        }
    }

    #[test]
    fn it_is_tried_again_and_forgotten_with_the_clients() {
        let fewer_is_more = |is_all: bool| 2_500 + 500 * u64::from(!is_all);
        let all_is_more = |is_all: bool| 2_500 + 500 * u64::from(is_all);
        let mut served = Served::new();
        assert!(!served.pass(whole(), 50, fewer_is_more));
        assert!(!served.pass(TRIAL_EVERY - 2 * whole(), 50, all_is_more));
        assert!(served.pass(3 * whole(), 50, all_is_more));
        assert!(!served.pass(TRIAL_EVERY + whole(), 50, fewer_is_more));
        assert!(served.pass(STEP, 1, fewer_is_more));
        assert!(served.pass(STEP, 50, fewer_is_more));
    }

    #[test]
    fn nothing_is_found_out_while_clients_come_and_go() {
        let mut served = Served::new();
        for clients in 2..100 {
            assert!(served.pass(TRIAL_SLICE / 2, clients, |is_all: bool| 2_500 + 500 * u64::from(!is_all)));
        }
    }
}
