//! The settings of the model, and the definitions that depend only on them: panes, grids and edges.

use crate::limits::MAX_WINDOW_MS;

/// The widths that the grid of an edge can have, in milliseconds, narrowest first. Each divides the next.
#[rustfmt::skip]
pub const RUNGS_MS: [i64; 21] = [
    1, 2, 10, 50, 100, 500,
    1_000, 2_000, 10_000, 30_000,
    60_000, 300_000, 600_000, 1_800_000,
    3_600_000, 7_200_000, 21_600_000, 43_200_000,
    86_400_000, 864_000_000, 8_640_000_000,
];

/// The settings of a model. Spans are in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelSettings {
    /// Width of the newest panes; one of [`RUNGS_MS`].
    pub resolution_ms: i64,
    /// The window of a hit's outcome.
    pub window_ms: i64,
    /// The highest age of an edge on the grid of the resolution.
    pub exact_ms: i64,
    /// The highest age of a hit.
    pub retain_ms: i64,
    /// How far ahead of now a hit may be.
    pub max_skew_ms: i64,
    /// The width of a cell is at most this many millionths of the age of its newer end.
    pub precision_millionths: i64,
    /// How long an id counts once. `None`: hits have no ids.
    pub dedupe_ms: Option<i64>,
    /// Whether hits have members.
    pub unique: bool,
}

impl Default for ModelSettings {
    /// Panes of 1 s, a window of 5 min, exact for 6 min, 7 d kept, 10 s ahead, 1 %.
    fn default() -> ModelSettings {
        ModelSettings {
            resolution_ms: 1_000,
            window_ms: 300_000,
            exact_ms: 360_000,
            retain_ms: 604_800_000,
            max_skew_ms: 10_000,
            precision_millionths: 10_000,
            dedupe_ms: None,
            unique: false,
        }
    }
}

impl ModelSettings {
    /// Consistent settings, in panes of `resolution_ms`: the window; how much longer than necessary the exact
    /// span is; and how much longer than that the retention is.
    #[must_use]
    pub fn of_panes(resolution_ms: i64, [window, slack, retain]: [i64; 3]) -> ModelSettings {
        let window_ms = window * resolution_ms;
        let exact_ms = window_ms + (60 * resolution_ms).min(60_000) + slack * resolution_ms;
        let whole_panes = |ms: i64| ms / resolution_ms * resolution_ms;
        let least_retain_ms = whole_panes(exact_ms + resolution_ms - 1);
        let retain_ms = (least_retain_ms + retain * resolution_ms).min(whole_panes(MAX_WINDOW_MS));
        ModelSettings { resolution_ms, window_ms, exact_ms, retain_ms, ..ModelSettings::default() }
    }
}

/// Computed in `i128`, where no sum or product of times overflows.
impl ModelSettings {
    /// The number of the pane that holds `ms`.
    pub(crate) fn pane(&self, ms: i128) -> i128 {
        ms.div_euclid(self.resolution_ms.into())
    }

    /// `span_ms` in panes, rounded up.
    pub(crate) fn panes_in(&self, span_ms: i64) -> i128 {
        ceil(span_ms.into(), self.resolution_ms.into()) / i128::from(self.resolution_ms)
    }

    /// Whether a cell of this width may end at this age.
    fn allows(&self, rung: i128, age_ms: i128) -> bool {
        rung == i128::from(self.resolution_ms)
            || rung > i128::from(self.resolution_ms)
                && age_ms >= i128::from(self.exact_ms)
                && rung * 1_000_000 <= i128::from(self.precision_millionths) * age_ms
    }

    /// The width of the cell around an edge: the widest that is allowed by the age of its newer end.
    pub(crate) fn grid(&self, edge: i128, now: i128) -> i128 {
        let allowed = |rung: &i128| self.allows(*rung, now - floor(edge, *rung) - rung);
        RUNGS_MS.map(i128::from).into_iter().rfind(allowed).expect("the resolution is allowed")
    }

    /// The widest cell that may end at this age or younger.
    fn coarsest(&self, age_ms: i128) -> i128 {
        let allowed = |rung: &i128| self.allows(*rung, age_ms);
        RUNGS_MS.map(i128::from).into_iter().rfind(allowed).expect("the resolution is allowed")
    }

    /// The start of a window of the retention that ends now.
    pub(crate) fn retention_edge(&self, now: i128) -> i128 {
        (self.pane(now) - self.panes_in(self.retain_ms) + 1) * i128::from(self.resolution_ms)
    }

    /// Hits before this time show in no answer, now or later.
    pub(crate) fn horizon(&self, now: i128) -> i128 {
        floor(self.retention_edge(now), self.coarsest(self.retain_ms.into()))
    }
}

/// The last multiple of `grid` at or before `ms`.
pub(crate) fn floor(ms: i128, grid: i128) -> i128 {
    ms.div_euclid(grid) * grid
}

/// The first multiple of `grid` at or after `ms`.
pub(crate) fn ceil(ms: i128, grid: i128) -> i128 {
    -floor(-ms, grid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rung_divides_the_next() {
        for pair in RUNGS_MS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] % pair[0] == 0, "{pair:?}");
        }
    }

    #[test]
    fn floors_and_ceilings() {
        let check = |ms: i128, expected: (i128, i128)| assert_eq!((floor(ms, 10), ceil(ms, 10)), expected);
        check(0, (0, 0));
        check(1, (0, 10));
        check(10, (10, 10));
        check(-1, (-10, 0));
        check(-10, (-10, -10));
    }

    #[test]
    fn grids_follow_the_age_of_the_end_of_a_cell() {
        // Cells of all widths up to a minute begin at this time.
        let now = 1_700_000_040_000;
        let check = |age_s: i128, grid_s: i128| {
            let grid = ModelSettings::default().grid(now - age_s * 1_000, now);
            assert_eq!(grid, grid_s * 1_000, "age {age_s}");
        };
        for (age_s, grid_s) in
            [(-5, 1), (0, 1), (360, 1), (361, 2), (1_000, 2), (1_001, 10), (3_000, 10), (3_001, 30)]
        {
            check(age_s, grid_s);
        }
        let fine = ModelSettings { precision_millionths: 100, ..ModelSettings::default() };
        assert_eq!(fine.grid(now - 362_000, now), 1_000, "no rung is narrow enough: the resolution");
    }

    #[test]
    fn the_horizon_lies_on_the_coarsest_grid() {
        let settings = ModelSettings::default();
        let now = 1_700_000_000_123;
        assert_eq!(settings.retention_edge(now), 1_699_395_201_000);
        assert_eq!(settings.horizon(now), 1_699_394_400_000);
    }
}
