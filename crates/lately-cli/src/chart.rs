//! A chart of hits over time: equal steps of time, the outline of the hits in them, and the marks at the axes.

use lately::{Span, Timestamp};

use crate::limits::MAX_REPORT_STEPS;
use crate::words::{grouped, per, time, time_as};

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Customary units of time up to a day. Each divides the day.
const WIDTHS_MS: [i64; 26] = [
    1,
    2,
    10,
    20,
    50,
    100,
    200,
    500,
    SECOND_MS,
    2 * SECOND_MS,
    5 * SECOND_MS,
    10 * SECOND_MS,
    15 * SECOND_MS,
    30 * SECOND_MS,
    MINUTE_MS,
    2 * MINUTE_MS,
    5 * MINUTE_MS,
    10 * MINUTE_MS,
    15 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    2 * HOUR_MS,
    3 * HOUR_MS,
    6 * HOUR_MS,
    12 * HOUR_MS,
    DAY_MS,
];

/// Height of the picture. Its width is the number of steps.
const HEIGHT: u64 = 1_000;

/// The least height of a step with hits, because a few hits would not be visible beside many.
const LEAST_HEIGHT: u64 = 6;

/// Equal steps of time, which start at multiples of their width from the epoch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Steps {
    first: i64,
    count: usize,
    width_ms: i64,
}

/// A mark at an axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mark {
    /// The place, from 0 to 1.
    pub(crate) share: f64,
    pub(crate) label: String,
    /// At the axis of time: the day, where it changes.
    pub(crate) day: String,
}

impl Mark {
    /// The place, in percent of the axis.
    pub(crate) fn percent(&self) -> String {
        format!("{:.2}", self.share * 100.0)
    }
}

/// The place of a span of time in a picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Band {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) width: String,
}

/// The hits of one key, or of all, as a picture.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chart {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) description: String,
    /// Width of the picture.
    pub(crate) columns: usize,
    /// Lines at the marks, as a path.
    pub(crate) grid: String,
    /// The hits, as the path of an area.
    pub(crate) outline: String,
    /// The window with the peak.
    pub(crate) band: Band,
    pub(crate) counts: Vec<Mark>,
    pub(crate) times: Vec<Mark>,
}

impl Chart {
    /// Characters of the longest number at the axis.
    pub(crate) fn counts_width(&self) -> usize {
        self.counts.iter().map(|mark| mark.label.len()).max().unwrap_or(0)
    }
}

/// Widths of steps, from narrow to wide: those up to a day, then 2, 5, 10, 20, 50 … days.
fn widths_ms() -> impl Iterator<Item = i64> {
    let days = (0..6_u32).flat_map(|zeros| [1, 2, 5].map(|digit| digit * 10_i64.pow(zeros)));
    WIDTHS_MS.into_iter().chain(days.skip(1).map(|days| days * DAY_MS))
}

impl Steps {
    /// The narrowest steps from one time to another that are whole panes and not more than a report has.
    pub(crate) fn covering(first: Timestamp, last: Timestamp, pane: Span) -> Steps {
        let of = |width_ms: i64| {
            let first = first.as_millis() / width_ms;
            let count = usize::try_from(last.as_millis() / width_ms - first + 1).unwrap_or(usize::MAX);
            Steps { first, count, width_ms }
        };
        let whole = widths_ms().filter(|width| width % pane.as_millis() == 0).map(of);
        let fits = whole.into_iter().find(|steps| steps.count <= MAX_REPORT_STEPS);
        // The widest steps are enough for the whole range of time.
        fits.unwrap_or_else(|| of(500_000 * DAY_MS))
    }

    /// Width of a step.
    pub(crate) fn width(&self) -> Span {
        Span::from_millis(self.width_ms).unwrap_or(Span::MAX)
    }

    /// The start of the step with this index.
    pub(crate) fn start(&self, index: usize) -> Timestamp {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        Timestamp::from_millis((self.first + index) * self.width_ms).unwrap_or(Timestamp::MAX)
    }

    /// The hits in each step of panes with these hits.
    pub(crate) fn hits(&self, panes: &[(Timestamp, u64)]) -> Vec<u64> {
        let mut steps = vec![0; self.count];
        for (at, hits) in panes {
            let step = usize::try_from(at.as_millis() / self.width_ms - self.first).ok();
            if let Some(step) = step.and_then(|step| steps.get_mut(step)) {
                *step += hits;
            }
        }
        steps
    }

    /// A picture of the hits in the steps. The band is from one time to another; the axis of time has a bounded number of
    /// spaces.
    pub(crate) fn chart(
        &self,
        id: String,
        title: String,
        hits: &[u64],
        band: (i64, i64),
        spaces: i64,
    ) -> Chart {
        let most = hits.iter().copied().max().unwrap_or(0);
        let (top, counts) = count_marks(most);
        let times = self.time_marks(spaces);
        Chart {
            id,
            title,
            description: self.description(hits),
            columns: self.count,
            grid: grid(&counts, &times, self.count),
            outline: outline(hits, top),
            band: self.band(band),
            counts,
            times,
        }
    }

    /// What the picture shows, in words.
    fn description(&self, hits: &[u64]) -> String {
        let per = per(self.width());
        let (from, to) = (time(self.start(0)), time(self.start(self.count)));
        let most = hits.iter().enumerate().rev().max_by_key(|(_, hits)| **hits);
        let (step, most) = most.map_or((0, 0), |(step, hits)| (step, *hits));
        let at = time(self.start(step));
        format!("Hits per {per} from {from} to {to} UTC. The most are {}, from {at} UTC on.", grouped(most))
    }

    /// The place of a span of time in the picture.
    fn band(&self, (from_ms, to_ms): (i64, i64)) -> Band {
        let columns = self.count as f64;
        let place = |at_ms: i64| {
            let column = (at_ms - self.first * self.width_ms) as f64 / self.width_ms as f64;
            column.clamp(0.0, columns)
        };
        let (from, to) = (place(from_ms), place(to_ms));
        Band { from: format!("{from:.2}"), to: format!("{to:.2}"), width: format!("{:.2}", to - from) }
    }

    /// Times at the axis, at multiples of a customary unit, with a bounded number of spaces between them.
    fn time_marks(&self, spaces: i64) -> Vec<Mark> {
        let start_ms = self.first * self.width_ms;
        let span_ms = self.width_ms * i64::try_from(self.count).unwrap_or(i64::MAX / DAY_MS);
        let least_ms = (span_ms / spaces).max(self.width_ms);
        let every_ms = widths_ms().find(|width| *width >= least_ms).unwrap_or(span_ms);
        let (label, day) = match every_ms {
            ..SECOND_MS => ("%H:%M:%S%.3f", "%-d %b"),
            SECOND_MS..MINUTE_MS => ("%H:%M:%S", "%-d %b"),
            MINUTE_MS..DAY_MS => ("%H:%M", "%-d %b"),
            _ => ("%-d %b", "%Y"),
        };
        let mut marks: Vec<Mark> = Vec::new();
        let mut day_before = String::new();
        let from_ms = (start_ms + every_ms - 1) / every_ms * every_ms;
        let mut at_ms = from_ms;
        while at_ms <= start_ms + span_ms {
            if let Some(at) = Timestamp::from_millis(at_ms) {
                let day = time_as(at, day);
                let is_new = day != day_before;
                day_before.clone_from(&day);
                marks.push(Mark {
                    share: (at_ms - start_ms) as f64 / span_ms as f64,
                    label: time_as(at, label),
                    day: if is_new { day } else { String::new() },
                });
            }
            at_ms += every_ms;
        }
        marks
    }
}

/// A line across the picture at each mark.
fn grid(counts: &[Mark], times: &[Mark], columns: usize) -> String {
    let across = |mark: &Mark| format!("M0 {:.0}H{columns}", HEIGHT as f64 * (1.0 - mark.share));
    let up = |mark: &Mark| format!("M{:.2} 0V{HEIGHT}", columns as f64 * mark.share);
    counts.iter().map(across).chain(times.iter().map(up)).collect()
}

/// Numbers of hits at the axis, 0 among them, and the one at its top.
fn count_marks(most: u64) -> (u64, Vec<Mark>) {
    // The distances are 1, 2, 5, 10, 20, 50 …; four of them reach the highest number.
    let mut units = (0..19_u32).flat_map(|zeros| [1, 2, 5].map(|digit| digit * 10_u64.pow(zeros)));
    let unit = units.find(|unit| unit.saturating_mul(4) >= most).unwrap_or(u64::MAX);
    let count = most.div_ceil(unit).max(1);
    let top = unit.saturating_mul(count);
    let mark = |index: u64| Mark {
        share: index as f64 / count as f64,
        label: grouped(unit.saturating_mul(index)),
        day: String::new(),
    };
    (top, (0..=count).map(mark).collect())
}

/// The area under the hits: right and up by steps, down at the end.
fn outline(hits: &[u64], top: u64) -> String {
    let y = |hits: u64| match hits {
        0 => HEIGHT,
        hits => {
            let height = u128::from(hits) * u128::from(HEIGHT) / u128::from(top.max(1));
            HEIGHT - u64::try_from(height).unwrap_or(HEIGHT).clamp(LEAST_HEIGHT, HEIGHT)
        }
    };
    let mut path = format!("M0 {HEIGHT}");
    let mut before = HEIGHT;
    for (step, hits) in hits.iter().enumerate() {
        let y = y(*hits);
        if y != before {
            path.push_str(&format!("H{step}V{y}"));
            before = y;
        }
    }
    path.push_str(&format!("H{}V{HEIGHT}Z", hits.len()));
    path
}

#[cfg(test)]
mod tests {
    use lately::{milliseconds, minutes, seconds};

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).expect("in range")
    }

    #[test]
    fn steps_are_whole_panes_and_bounded() {
        let check = |first_ms: i64, last_ms: i64, pane: Span, width_ms: i64, count: usize| {
            let steps = Steps::covering(at(first_ms), at(last_ms), pane);
            assert_eq!((steps.width_ms, steps.count), (width_ms, count), "{first_ms} to {last_ms}");
        };
        check(5_000, 5_000, seconds(1), 1_000, 1);
        check(0, 239_999, seconds(1), 1_000, 240);
        check(0, 240_000, seconds(1), 2_000, 121);
        check(500, 240_499, seconds(1), 2_000, 121);
        check(0, 100, milliseconds(2), 2, 51);
        check(0, 1_000, milliseconds(2), 10, 101);
        check(0, 9_000, milliseconds(50), 50, 181);
        check(0, 12_000, milliseconds(50), 100, 121);
        check(0, DAY_MS - 1, seconds(1), 10 * MINUTE_MS, 144);
        check(0, 365 * DAY_MS - 1, seconds(1), 2 * DAY_MS, 183);
        let all = Steps::covering(Timestamp::MIN, Timestamp::MAX, seconds(1));
        assert_eq!((all.width_ms, all.count), (20_000 * DAY_MS, 147));
        for width in widths_ms() {
            assert_eq!(DAY_MS.max(width) % DAY_MS.min(width), 0, "{width}");
        }
    }

    #[test]
    fn hits_are_counted_in_their_steps() {
        let steps = Steps { first: 3, count: 3, width_ms: 2_000 };
        let panes = [(at(6_000), 1), (at(7_000), 2), (at(10_000), 4)];
        assert_eq!(steps.hits(&panes), [3, 0, 4]);
        assert_eq!((steps.start(0), steps.start(2)), (at(6_000), at(10_000)));
        assert_eq!(steps.hits(&[(at(5_999), 1), (at(12_000), 1)]), [0, 0, 0], "outside");
    }

    #[test]
    fn an_outline_follows_the_hits() {
        assert_eq!(outline(&[3, 3, 0, 4], 4), "M0 1000H0V250H2V1000H3V0H4V1000Z");
        assert_eq!(
            outline(&[0, 1], 1_000_000),
            "M0 1000H1V994H2V1000Z",
            "a few hits beside many can be seen"
        );
        assert_eq!(outline(&[u64::MAX], u64::MAX), "M0 1000H0V0H1V1000Z");
        assert_eq!(outline(&[0], 1), "M0 1000H1V1000Z");
    }

    #[test]
    fn numbers_at_the_axis_are_round() {
        let check = |most: u64, expected: &[&str]| {
            let (_, marks) = count_marks(most);
            assert_eq!(marks.iter().map(|mark| &mark.label).collect::<Vec<_>>(), expected, "{most}");
        };
        check(0, &["0", "1"]);
        check(3, &["0", "1", "2", "3"]);
        check(5, &["0", "2", "4", "6"]);
        check(40, &["0", "10", "20", "30", "40"]);
        check(41, &["0", "20", "40", "60"]);
        check(12_345, &["0", "5,000", "10,000", "15,000"]);
        assert_eq!(count_marks(41).0, 60);
        assert!(count_marks(u64::MAX).0 >= u64::MAX - 1);
    }

    #[test]
    fn times_at_the_axis_are_round_and_name_their_day_once() {
        let marks = |first_ms: i64, last_ms: i64| {
            let marks = Steps::covering(at(first_ms), at(last_ms), seconds(1)).time_marks(6);
            assert!(marks.len() <= 8, "{marks:?}");
            marks
                .into_iter()
                .map(|mark| format!("{} {} {}", mark.percent(), mark.label, mark.day))
                .collect::<Vec<_>>()
        };
        let noon = 1_431_864_000_000;
        assert_eq!(marks(noon, noon), ["0.00 12:00:00 17 May", "100.00 12:00:01 "]);
        assert_eq!(
            marks(noon, noon + 20 * HOUR_MS),
            ["0.00 12:00 17 May", "29.75 18:00 ", "59.50 00:00 18 May", "89.26 06:00 "],
        );
        assert_eq!(marks(noon, noon + 40 * DAY_MS)[..2], ["18.63 25 May 2015", "43.48 4 Jun "]);
    }

    #[test]
    fn the_band_is_clipped_to_the_picture() {
        let steps = Steps { first: 10, count: 4, width_ms: 1_000 };
        let check = |from_ms, to_ms, expected: (&str, &str, &str)| {
            let Band { from, to, width } = steps.band((from_ms, to_ms));
            assert_eq!((from.as_str(), to.as_str(), width.as_str()), expected);
        };
        check(11_000, 12_500, ("1.00", "2.50", "1.50"));
        check(0, 11_000, ("0.00", "1.00", "1.00"));
        check(-5_000, 99_000, ("0.00", "4.00", "4.00"));
        let chart = steps.chart("a".into(), "b".into(), &[1, 0, 0, 9], (0, minutes(5).as_millis()), 4);
        assert_eq!((chart.columns, chart.counts.last().map(|mark| mark.label.as_str())), (4, Some("10")));
    }
}
