//! The baseline of a spike: what the total usually is in a window.
//!
//! It is the median of the same hour of the days before. While none of these has hits, it is the exponentially weighted moving
//! average of the windows before this one: each counts [`WEIGHT`] of what is left by later ones.

use lately::{Span, Timestamp, days, hours, minutes};

use crate::limits::{BASELINE_DAYS, BASELINE_LEAST_WINDOWS, BASELINE_WINDOWS};

/// The share of the newest window in the moving average.
const WEIGHT: f64 = 0.2;

/// The usual hits of a window that ends at `now`. `hits` returns those of a window that ends at a time. `None`: there
/// were too few hits before.
pub(crate) fn baseline(window: Span, now: Timestamp, hits: impl Fn(Span, Timestamp) -> u64) -> Option<f64> {
    same_hour(window, now, &hits).or_else(|| average(window, now, &hits))
}

#[expect(clippy::cast_precision_loss, reason = "a baseline is an estimate")]
fn same_hour(window: Span, now: Timestamp, hits: &impl Fn(Span, Timestamp) -> u64) -> Option<f64> {
    // The hour around the same time, or the whole window if that is longer.
    let (around, after) = if window < hours(1) { (hours(1), Some(minutes(30))) } else { (window, None) };
    let of_day = |day: u64| {
        let at = now.saturating_sub(days(day));
        hits(around, after.map_or(at, |after| at.saturating_add(after)))
    };
    let mut usual: Vec<u64> = (1..=BASELINE_DAYS).map(of_day).filter(|hits| *hits > 0).collect();
    usual.sort_unstable();
    let middle = usual.len() / 2;
    let median = match usual.len() {
        0 => return None,
        len if len % 2 == 1 => usual[middle] as f64,
        _ => usual[middle - 1].midpoint(usual[middle]) as f64,
    };
    Some(median * window.as_seconds_f64() / around.as_seconds_f64())
}

#[expect(clippy::cast_precision_loss, reason = "a baseline is an estimate")]
fn average(window: Span, now: Timestamp, hits: &impl Fn(Span, Timestamp) -> u64) -> Option<f64> {
    let ends = std::iter::successors(Some(now.saturating_sub(window)), |at| Some(at.saturating_sub(window)));
    let mut before: Vec<u64> = ends.take(BASELINE_WINDOWS).map(|at| hits(window, at)).collect();
    // Before the first hit nothing was counted yet.
    while before.last() == Some(&0) {
        before.pop();
    }
    if before.len() < BASELINE_LEAST_WINDOWS {
        return None;
    }
    let (mut sum, mut weights, mut weight) = (0.0, 0.0, WEIGHT);
    for hits in before {
        sum += weight * hits as f64;
        weights += weight;
        weight *= 1.0 - WEIGHT;
    }
    Some(sum / weights)
}

#[cfg(test)]
mod tests {
    use lately::seconds;

    use super::*;

    /// The hits of a window, from a list of times in seconds.
    fn of(hits: &[(u64, u64)]) -> impl Fn(Span, Timestamp) -> u64 {
        move |window, at| {
            let from_ms = at.as_millis() - window.as_millis();
            let is_in = |second: u64| {
                let ms = Timestamp::from_seconds(second).expect("a time").as_millis();
                from_ms < ms && ms <= at.as_millis()
            };
            hits.iter().filter(|(second, _)| is_in(*second)).map(|(_, hits)| hits).sum()
        }
    }

    fn near(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?} {expected}");
    }

    const DAY: u64 = 86_400;

    #[test]
    fn the_same_hour_of_past_days_comes_first() {
        let now = Timestamp::from_seconds(100 * DAY).expect("a time");
        let at = |day: u64| 100 * DAY - day * DAY;
        // 3,600 hits an hour are 60 a minute. An hour later does not matter.
        let hits = [(at(1), 3_600), (at(1) + 3_600, 1_000_000)];
        near(baseline(minutes(1), now, of(&hits)), 60.0);
        // The median: an outlier does not matter, nor do days without hits.
        let hits = [(at(1), 3_600), (at(2), 3_600_000), (at(5), 7_200)];
        near(baseline(minutes(1), now, of(&hits)), 120.0);
        let hits = [(at(1), 3_600), (at(2), 7_200)];
        near(baseline(minutes(1), now, of(&hits)), 90.0);
        // A window of an hour or more is compared with itself.
        near(baseline(hours(2), now, of(&[(at(1) - 5_000, 70)])), 70.0);
        // Eight days ago is too long ago.
        assert_eq!(baseline(minutes(1), now, of(&[(at(8), 3_600)])), None);
    }

    #[test]
    fn the_windows_before_are_averaged_where_no_day_is_kept() {
        let now = Timestamp::from_seconds(100 * DAY).expect("a time");
        let at = |windows_before: u64| 100 * DAY - 60 * windows_before;
        let steady: Vec<(u64, u64)> = (0..=10).map(|index| (at(index), 50)).collect();
        near(baseline(minutes(1), now, of(&steady)), 50.0);
        // The current window does not count.
        let mut spike = steady.clone();
        spike[0].1 = 5_000;
        near(baseline(minutes(1), now, of(&spike)), 50.0);
        // Later windows weigh more.
        let [low, high] =
            [[(at(1), 10), (at(2), 10), (at(3), 100)], [(at(1), 100), (at(2), 10), (at(3), 10)]];
        let [low, high] = [low, high].map(|hits| baseline(minutes(1), now, of(&hits)).expect("enough"));
        assert!(low < 40.0 && 40.0 < high, "{low} {high}");
        // Too few windows.
        assert_eq!(baseline(minutes(1), now, of(&steady[..3])), None);
        assert_eq!(baseline(seconds(1), now, of(&[])), None);
    }
}
