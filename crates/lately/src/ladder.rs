//! The ladder of pane widths, and the widths that a pane may have at each age.
//!
//! Each rung divides the next, so panes of different widths nest: two panes are equal, disjoint, or
//! one lies inside the other.

use crate::time::{Span, ceil_div};

/// The widths of panes, in milliseconds, narrowest first.
pub const RUNGS_MS: [i64; 21] = [
    1,
    2,
    10,
    50,
    100,
    500,
    1_000,
    2_000,
    10_000,
    30_000,
    60_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    43_200_000,
    86_400_000,
    864_000_000,
    8_640_000_000,
];

/// The widest rung that may be a resolution: one day.
pub(crate) const MAX_RESOLUTION_MS: i64 = 86_400_000;

/// Precision is stored in millionths, so that widths are the same on every machine.
pub(crate) const PRECISION_UNIT: i64 = 1_000_000;

/// The widths one class uses, and the age from which each may be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ladder {
    /// (width, least age) in milliseconds, narrowest first; the first is the resolution at age 0.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    width_ms: i64,
    /// The age of its newer edge from which a pane may have this width.
    pane_age_ms: i64,
}

impl Ladder {
    /// The ladder of a class: `resolution_ms` inside `exact`, then at most `precision_ppm`
    /// millionths of the age.
    pub(crate) fn new(resolution_ms: i64, exact: Span, precision_ppm: i64) -> Ladder {
        let mut steps = vec![Step { width_ms: resolution_ms, pane_age_ms: 0 }];
        for width_ms in RUNGS_MS.into_iter().filter(|&rung| rung > resolution_ms) {
            let least = i128::from(width_ms) * i128::from(PRECISION_UNIT);
            let least = (least + i128::from(precision_ppm) - 1) / i128::from(precision_ppm);
            let pane_age_ms = i64::try_from(least).unwrap_or(i64::MAX).max(exact.as_millis());
            // A width may be useless because a wider one is allowed at the same age. It stays in the list,
            // because searches start at the wide end and never reach it.
            steps.push(Step { width_ms, pane_age_ms });
        }
        Ladder { steps }
    }

    /// The ladder of panes that are never merged.
    pub(crate) fn of_one_width(width_ms: i64) -> Ladder {
        Ladder { steps: vec![Step { width_ms, pane_age_ms: 0 }] }
    }

    /// The widest pane whose newer edge may be `age_ms` old.
    #[must_use]
    pub fn pane_width_ms(&self, age_ms: i64) -> i64 {
        self.widest(|step| step.pane_age_ms <= age_ms)
    }

    /// A function like [`Ladder::pane_width_ms`] for ages that never grow from call to call, which makes it faster.
    pub(crate) fn pane_widths_ms(&self) -> impl FnMut(i64) -> i64 {
        let mut steps = self.steps.as_slice();
        move |age_ms| {
            while let [rest @ .., Step { pane_age_ms, .. }] = steps
                && *pane_age_ms > age_ms
                && !rest.is_empty()
            {
                steps = rest;
            }
            steps.last().expect("the first stays").width_ms
        }
    }

    /// The age of its newer edge from which a pane may be this wide; `None` if it never may.
    #[must_use]
    pub fn age_of_ms(&self, width_ms: i64) -> Option<i64> {
        self.steps.iter().find(|step| step.width_ms == width_ms).map(|step| step.pane_age_ms)
    }

    /// The age of its newer edge from which a pane may be wider than the resolution.
    pub(crate) fn finest_until_ms(&self) -> i64 {
        self.steps.get(1).map_or(i64::MAX, |step| step.pane_age_ms)
    }

    /// The widest of the wider panes that may be `age_ms` old. If none may, the next wider one. With the age
    /// from which it is allowed.
    pub(crate) fn next_wider(&self, width_ms: i64, age_ms: i64) -> Option<(i64, i64)> {
        let wider = self.steps.iter().filter(|step| step.width_ms > width_ms);
        let next = wider.clone().next()?;
        let fitting = wider.rev().find(|step| step.pane_age_ms <= age_ms);
        let Step { width_ms, pane_age_ms } = *fitting.unwrap_or(next);
        Some((width_ms, pane_age_ms))
    }

    /// The widest cell that an edge of age `age_ms` can have: the resolution up to and including the exact
    /// span, then as wide as the precision allows.
    #[must_use]
    pub fn edge_grid_ms(&self, age_ms: i64, exact: Span) -> i64 {
        if age_ms <= exact.as_millis() {
            return self.steps[0].width_ms;
        }
        self.pane_width_ms(age_ms)
    }

    /// The cell around an edge, as seen from `now_ms`: its start and its width. It is the widest pane that
    /// may contain the edge at that time, so a pane that starts before a border of the cell never ends behind
    /// it. The cells of all edges are disjoint or equal, so answers over nested windows are nested, too.
    #[must_use]
    pub fn cell(&self, edge_ms: i64, now_ms: i64) -> (i64, i64) {
        let age_ms = now_ms - edge_ms;
        let start_ms = |width_ms: i64| edge_ms.div_euclid(width_ms) * width_ms;
        let [first, wider @ ..] = &*self.steps else { unreachable!("the resolution is a step") };
        let may_hold = |step: &&Step| {
            step.pane_age_ms <= age_ms && step.pane_age_ms <= now_ms - start_ms(step.width_ms) - step.width_ms
        };
        let width_ms = wider.iter().rev().find(may_hold).unwrap_or(first).width_ms;
        (start_ms(width_ms), width_ms)
    }

    fn widest(&self, allowed: impl Fn(&Step) -> bool) -> i64 {
        self.steps.iter().rev().find(|step| allowed(step)).unwrap_or(&self.steps[0]).width_ms
    }

    /// The most panes of a key after merging. `ahead` is how far hits may be ahead of the clock. It is the
    /// sum over all widths of the ages at which the width is the widest allowed, divided by the width, and of
    /// the panes that wait for their neighbours to grow old enough to merge.
    #[must_use]
    pub fn pane_bound(&self, retain: Span, ahead: Span) -> usize {
        let age_limit_ms = retain.as_millis();
        let mut bound = ceil_div(ahead.as_millis(), self.steps[0].width_ms);
        for (index, step) in self.steps.iter().enumerate() {
            let next = self.steps.get(index + 1);
            let from = step.pane_age_ms.min(age_limit_ms);
            let to = next.map_or(age_limit_ms, |next| next.pane_age_ms.min(age_limit_ms));
            let waiting = next.map_or(1, |next| next.width_ms / step.width_ms);
            if from < age_limit_ms {
                bound += ceil_div(to - from, step.width_ms) + waiting + 1;
            }
        }
        usize::try_from(bound).unwrap_or(usize::MAX)
    }
}

/// The retention has at most 2 to this number of the narrowest panes of sketches of members.
const UNIQUE_OCTAVES: u32 = 24;

/// The narrowest panes of sketches of members. They double from there on.
pub(crate) fn unique_pane_ms(resolution_ms: i64, retain_ms: i64) -> i64 {
    let mut width_ms = resolution_ms;
    while retain_ms >> UNIQUE_OCTAVES >= width_ms {
        width_ms *= 2;
    }
    width_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{days, minutes, seconds};

    #[test]
    fn each_rung_divides_the_next() {
        for pair in RUNGS_MS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] % pair[0] == 0, "{pair:?}");
        }
    }

    #[test]
    fn widths_follow_age() {
        let ladder = Ladder::new(1_000, minutes(6), 10_000);
        let check = |age_s: i64, width_s: i64| {
            assert_eq!(ladder.pane_width_ms(age_s * 1_000), width_s * 1_000, "age {age_s}");
        };
        for (age_s, width_s) in [
            (-5, 1),
            (0, 1),
            (359, 1),
            (360, 2),
            (999, 2),
            (1_000, 10),
            (3_000, 30),
            (6_000, 60),
            (604_800, 3_600),
        ] {
            check(age_s, width_s);
        }
        let mut width_ms = ladder.pane_widths_ms();
        for age_ms in (-5_000..700_000_000).rev().step_by(997) {
            assert_eq!(width_ms(age_ms), ladder.pane_width_ms(age_ms), "age {age_ms} ms");
        }
        assert_eq!(ladder.edge_grid_ms(360_000, minutes(6)), 1_000);
        assert_eq!(ladder.edge_grid_ms(360_001, minutes(6)), 2_000);
    }

    #[test]
    fn a_cell_is_the_widest_pane_that_may_hold_the_edge() {
        let ladder = Ladder::new(1_000, minutes(6), 10_000);
        let now_s = 1_000_007;
        let check = |edge_s: i64, expected: (i64, i64)| {
            let (start_ms, width_ms) = ladder.cell(edge_s * 1_000, now_s * 1_000);
            assert_eq!((start_ms / 1_000, width_ms / 1_000), expected, "edge {edge_s}");
        };
        check(now_s - 360, (999_647, 1));
        // A pane of 2 s around an edge that is 361 s old would end 359 s ago, so it may not exist yet.
        check(now_s - 361, (999_646, 1));
        check(now_s - 362, (999_644, 2));
        // 1,003 s old: a pane of 10 s would end 997 s ago.
        check(now_s - 1_003, (999_004, 2));
        check(now_s - 1_008, (998_990, 10));
        check(now_s + 5, (1_000_012, 1));
    }

    #[test]
    fn cells_lie_side_by_side() {
        let ladder = Ladder::new(10, seconds(1), 50_000);
        for now_ms in [1_700_000_000_123, 1_700_000_003_500] {
            let mut edge_ms = now_ms + 100;
            while edge_ms > now_ms - 100_000 {
                let (start_ms, width_ms) = ladder.cell(edge_ms, now_ms);
                for inside_ms in [start_ms, start_ms + width_ms / 2, start_ms + width_ms - 1] {
                    assert_eq!(
                        ladder.cell(inside_ms, now_ms),
                        (start_ms, width_ms),
                        "{inside_ms} at {now_ms}"
                    );
                }
                edge_ms = start_ms - 1;
            }
        }
    }

    #[test]
    fn a_coarse_precision_widens_at_the_end_of_the_exact_span() {
        let ladder = Ladder::new(1_000, minutes(6), 1_000_000);
        assert_eq!(ladder.pane_width_ms(359_999), 1_000);
        assert_eq!(ladder.pane_width_ms(360_000), 300_000);
    }

    #[test]
    fn a_week_at_one_percent_fits_two_thousand_panes() {
        let bound = Ladder::new(1_000, minutes(6), 10_000).pane_bound(days(7), seconds(10));
        assert!((1_850..2_100).contains(&bound), "{bound}");
        assert!(Ladder::new(1_000, seconds(60), 10_000).pane_bound(seconds(60), seconds(10)) >= 70);
    }
}
