//! Compares answers with the truth.

use lately::{Count, Decision, Request, Store, Timestamp};
use lately_classics::{TrueHits, Truth};

use super::class::KEYS;
use super::play::{Fault, Kind, fault};
use super::script::Choices;
use super::world::{KeyTruth, World, span, time};

/// The number of windows that end at one time, and of such times.
const WINDOWS: usize = 6;
const TIMES: usize = 3;
/// The points of a series.
const POINTS: i64 = 12;
/// The maximum of a limit. The remaining hits show how many it counts.
const LARGE_MAX: u64 = 1 << 40;
/// The longest window of a question. A retention may be thirty years.
const MOST_WINDOW_MS: i64 = 1_000_000_000_000;

/// A question about a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    key: usize,
    at_ms: i64,
    window_ms: i64,
}

/// The answers of the store.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The counts of hits and of denied hits.
    pub(crate) counts: [Count; 2],
    /// The decision of a limit, if it can be decided.
    decision: Option<Decision>,
}

impl Answer {
    /// The remaining hits of a limit, if it can be decided.
    pub(crate) fn left(&self) -> Option<u64> {
        self.decision.as_ref().map(Decision::left)
    }
}

impl World {
    /// Asks questions about a key, and compares the answers with the truth.
    pub(crate) fn check_key(&self, key: usize, choices: &mut Choices<'_>) -> Result<(), Fault> {
        let mut last: Option<(Question, Answer)> = None;
        for question in self.questions_about(key, choices) {
            let answer = self.answer(&question);
            self.check_answer(&question, &answer)?;
            if let Some((narrower, before)) = &last
                && narrower.at_ms == question.at_ms
                && narrower.window_ms <= question.window_ms
                && before
                    .counts
                    .iter()
                    .zip(&answer.counts)
                    .any(|(narrow, wide)| narrow.estimate > wide.estimate)
            {
                let what = format!("{narrower:?} has {before:?}, {question:?} has {answer:?}");
                return Err(fault(Kind::Nested, what));
            }
            last = Some((question, answer));
        }
        last.map_or(Ok(()), |(question, answer)| self.check_series(&question, answer.counts[0].estimate))
    }

    pub(crate) fn questions(&self, choices: &mut Choices<'_>) -> Vec<Question> {
        (0..KEYS.len()).flat_map(|key| self.questions_about(key, choices)).collect()
    }

    /// Windows that end at a few times; those of one time from narrow to wide. Many start or end near a hit.
    fn questions_about(&self, key: usize, choices: &mut Choices<'_>) -> Vec<Question> {
        let (model, now_ms) = (self.models[key], self.now_ms);
        let KeyTruth { counted, denied } = &self.truths[key];
        let times_ms: Vec<i64> = counted.times_ms().chain(denied.times_ms()).collect();
        let near_hit = |choices: &mut Choices<'_>| {
            let hit_ms = *times_ms.get(choices.below(times_ms.len().max(1)))?;
            let off_ms = [0, 0, 1, -1, model.resolution_ms, -model.resolution_ms][choices.below(6)];
            Some(hit_ms + off_ms)
        };
        let any_span_ms = |choices: &mut Choices<'_>| {
            let most = [1_000, 100_000, 10_000_000, 1_000_000_000][choices.below(4)];
            1 + choices.ms(most)
        };
        let mut questions = Vec::new();
        for number in 0..TIMES {
            let at_ms = match (number, choices.below(3)) {
                (0, _) => now_ms,
                (_, 0) => now_ms - any_span_ms(choices),
                (_, 1) => now_ms + choices.ms(20_000),
                _ => near_hit(choices).unwrap_or(now_ms),
            };
            let mut windows_ms: Vec<i64> = (0..WINDOWS)
                .map(|_| match choices.below(6) {
                    0 => model.window_ms,
                    1 => model.retain_ms,
                    2 | 3 => any_span_ms(choices),
                    _ => near_hit(choices).map_or(1, |hit_ms| at_ms - hit_ms),
                })
                .map(|window_ms| window_ms.clamp(1, MOST_WINDOW_MS))
                .collect();
            windows_ms.sort_unstable();
            questions.extend(windows_ms.into_iter().map(|window_ms| Question { key, at_ms, window_ms }));
        }
        questions
    }

    pub(crate) fn answer(&self, question: &Question) -> Answer {
        let &Question { key, at_ms, window_ms } = question;
        let (store, window, now) = (&self.server.store, span(window_ms), self.now());
        // The time may be left out if it is now.
        let at = Some(time(at_ms)).filter(|&at| at != now || window_ms % 2 == 0);
        let ask = [Store::count, Store::denied];
        let counts = ask.map(|ask| ask(store, KEYS[key], Some(window), at, now));
        let request = Request { at, is_peek: true, ..Request::new(KEYS[key], LARGE_MAX, window, 1) };
        Answer { counts, decision: store.decide(request, now).ok() }
    }

    pub(crate) fn check_answer(&self, question: &Question, answer: &Answer) -> Result<(), Fault> {
        let KeyTruth { counted, denied } = &self.truths[question.key];
        for (truth, (count, what)) in
            [counted, denied].into_iter().zip(answer.counts.iter().zip(["hit", "denied"]))
        {
            self.check_count(question, truth, count)
                .map_err(|(kind, why)| fault(kind, format!("{what}: {why}")))?;
        }
        answer.decision.as_ref().map_or(Ok(()), |decision| self.check_peek(question, decision))
    }

    fn check_count(&self, question: &Question, truth: &Truth, count: &Count) -> Result<(), Fault> {
        let &Question { key, at_ms, window_ms } = question;
        let truth = truth.window(at_ms, window_ms, &self.models[key], self.now_ms);
        let TrueHits { inner, certain, all, outer, is_known } = truth;
        let Count { estimate, lower, upper, .. } = *count;
        let most = upper.unwrap_or(u64::MAX);
        let kind = if lower > all || most < certain {
            Kind::Bounds
        } else if estimate < lower || estimate > most {
            Kind::Estimate
        } else if upper.is_some() != is_known {
            Kind::Unknown
        } else if lower < inner || upper.is_some_and(|upper| upper > outer) || estimate > outer {
            Kind::WideBounds
        } else {
            return Ok(());
        };
        Err(fault(kind, format!("{}: {count:?}, true: {truth:?}", self.about(question))))
    }

    /// The sum of a series' points equals the estimate.
    fn check_series(&self, question: &Question, estimate: u64) -> Result<(), Fault> {
        let &Question { key, at_ms, window_ms } = question;
        let resolution_ms = self.models[key].resolution_ms;
        let step_ms = (window_ms / resolution_ms / POINTS + 1) * resolution_ms;
        let (window, step, at) = (span(window_ms), span(step_ms), Some(time(at_ms)));
        let points = self.server.store.series(KEYS[key], window, step, at, self.now());
        let sum: u64 = points.iter().flatten().map(|point| point.hits).sum();
        if points.is_ok() && sum == estimate {
            return Ok(());
        }
        Err(fault(
            Kind::Series,
            format!("{}: {estimate} in steps of {step_ms} ms: {points:?}", self.about(question)),
        ))
    }

    /// A limit that is far from used up counts all hits of its window, and none that are far from it.
    fn check_peek(&self, question: &Question, decision: &Decision) -> Result<(), Fault> {
        let &Question { key, at_ms, window_ms } = question;
        let truth = self.truths[key].counted.used(at_ms, window_ms, &self.models[key], self.now_ms);
        let used = LARGE_MAX - decision.left();
        let kind = if used < truth.certain {
            Kind::LimitAdmits
        } else if used > truth.outer || !decision.is_allowed() {
            Kind::LimitDenies
        } else {
            return Ok(());
        };
        Err(fault(kind, format!("{}: a limit counts {used}, true: {truth:?}", self.about(question))))
    }

    fn about(&self, question: &Question) -> String {
        let &Question { key, at_ms, window_ms } = question;
        let (ago_ms, class) = (self.now_ms - at_ms, &self.models[key]);
        let key = String::from_utf8_lossy(KEYS[key]);
        let now: Timestamp = self.now();
        format!("{key}, {window_ms} ms that end {ago_ms} ms before {now:?}, {class:?}")
    }
}
