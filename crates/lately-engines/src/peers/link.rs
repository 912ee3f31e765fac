//! Exchanges between nodes of one process, one by one, for tests that decide what arrives and when.

use std::sync::Arc;

use super::following::{Following, Question};
use super::stats::PeerRole;
use super::wire::{FollowResponse, ReportRequest};
use super::{Peers, Shared, lock};
use crate::{EngineError, Write};

/// A node of a mesh that follows another one.
pub struct PeerLink {
    shared: Arc<Shared>,
    number: usize,
    following: Following,
}

/// An answer of another node.
#[derive(Clone)]
pub struct PeerAnswer(Question, FollowResponse);

/// What a child says to its parent.
#[derive(Clone)]
pub struct PeerReport(ReportRequest);

impl Peers {
    /// The way to the node with this number among the addresses: those of nodes beside it, then those of its parents.
    #[must_use]
    pub fn link(&self, number: usize) -> PeerLink {
        let role = lock(&self.shared.contacts).get(number).map(|contact| contact.role);
        let is_parent = role == Some(PeerRole::Parent);
        let following = if is_parent { Following::of_relay() } else { Following::default() };
        PeerLink { shared: Arc::clone(&self.shared), number, following }
    }

    /// Answers the last question of a parent.
    ///
    /// # Errors
    /// Why the parent does not ask.
    pub fn report(&self, parent: &Peers) -> Result<PeerReport, String> {
        let question = parent.shared.take_report(&self.shared.report(None));
        let question = question.map_err(|refusal| refusal.to_string())?;
        self.shared.note_follower(question.follower, self.shared.asked_after(&question));
        Ok(PeerReport(self.shared.report(Some(self.shared.answer(&question)))))
    }

    /// Takes what a child reported. It may be late, or taken before.
    ///
    /// # Errors
    /// Why it is not merged.
    pub fn take_report(&self, report: &PeerReport) -> Result<(), String> {
        self.shared.take_report(&report.0).map(drop).map_err(|refusal| refusal.to_string())
    }

    /// Whether each other node was read, or could not be reached. Claims of names wait for that.
    #[must_use]
    pub fn has_met(&self) -> bool {
        self.shared.has_met()
    }

    /// Merges counts of this node. Others get them when they ask.
    ///
    /// # Errors
    /// [`EngineError::NoRoom`]: some are not merged.
    pub fn merge(&self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        self.write(writes).map(drop)
    }
}

impl PeerLink {
    /// Asks the other node.
    ///
    /// # Errors
    /// Why it does not answer.
    pub fn ask(&self, other: &PeerLink) -> Result<PeerAnswer, String> {
        let (question, request) = self.shared.question(self.number, &self.following);
        other.shared.check(&request).map_err(|refusal| refusal.to_string())?;
        Ok(PeerAnswer(question, other.shared.answer(&request)))
    }

    /// Takes an answer. It may be late, or taken before.
    ///
    /// # Errors
    /// Why it is not merged.
    pub fn take(&mut self, answer: &PeerAnswer) -> Result<(), String> {
        self.shared.take(self.number, (answer.0, &answer.1), &mut self.following)
    }

    /// The other node cannot be reached.
    pub fn fail(&self, why: &str) {
        self.shared.note_contact(self.number, Some(why.to_owned()), &self.following);
    }
}

/// What an answer brings, for traces.
#[cfg(test)]
fn brought(answer: &FollowResponse) -> String {
    let FollowResponse { life, after, until, is_all, starts, page, .. } = answer;
    let counts = super::page::Page::read(page).expect("a node wrote it").counts;
    format!("{life:x} {after}..{until}, all: {is_all}, {starts:?}, {counts:?}")
}

#[cfg(test)]
impl std::fmt::Debug for PeerAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&brought(&self.1))
    }
}

#[cfg(test)]
impl std::fmt::Debug for PeerReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.answer.as_ref().map(brought).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lately::{Cell, LevelsId, ManualClock, Origin, Tally, Timestamp};

    use super::super::PeersConfig;
    use super::super::replica::Replica;
    use super::super::wire::PROTOCOL;
    use super::*;
    use crate::{Block, Engine, Known};

    const START_MS: i64 = 1_700_000_000_000;

    fn node(name: &str, other: &str) -> (Peers, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START_MS).expect("a time")));
        let urls = vec![format!("peer://{other}")];
        let config = PeersConfig::new(name, urls, Arc::<ManualClock>::clone(&clock));
        (Peers::new(config).expect("an address"), clock)
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
    }

    /// Has a node read everything of another one.
    fn follow(link: &mut PeerLink, other: &PeerLink) {
        for _ in 0..3 {
            let answer = link.ask(other).expect("it answers");
            link.take(&answer).expect("there is room");
        }
    }

    #[test]
    fn a_node_that_speaks_nonsense_changes_nothing_and_is_named() {
        let (mut one, _) = node("a", "b");
        let mut link = one.link(0);
        let node = "b".to_owned();
        let good =
            FollowResponse { life: 9, until: 5, is_all: true, page: vec![0; 5], node, ..Default::default() };
        let bad = FollowResponse { page: vec![5, 1], ..good.clone() };
        let error = link.take(&PeerAnswer(Question::Own(0), bad)).expect_err("it is no page");
        assert_eq!(error, "it sent what is no page of counts: a list is too long: nothing was changed");
        assert!(link.following.life() == 0 && !one.has_met());
        link.take(&PeerAnswer(Question::Own(0), good)).expect("an empty page");
        assert_eq!(link.following.life(), 9);
        assert_eq!(run(one.scan(None, 9)).expect("it answers"), (Vec::new(), None));
    }

    #[test]
    fn questions_that_are_none_are_refused() {
        let (one, _) = node("a", "b");
        let link = one.link(0);
        let error = link.ask(&one.link(0)).expect_err("it is itself");
        assert!(error.starts_with("it is this server itself"), "{error}");
        let (_, mut request) = link.shared.question(0, &link.following);
        request.protocol = PROTOCOL + 1;
        let (other, _) = node("b", "a");
        let error = other.link(0).shared.check(&request).expect_err("another version").to_string();
        assert!(
            error.contains("speaks version 1 of the protocol of peers, and the other one version 2"),
            "{error}"
        );
    }

    #[test]
    fn a_name_is_claimed_once_and_two_that_have_it_know_it() {
        let ((mut one, clock), (mut other, other_clock)) = (node("a", "b"), node("a", "c"));
        let (mut link, mut back) = (one.link(0), other.link(0));
        let seconds = Duration::from_secs;
        let claim = |engine: &mut Peers, holder: &str| {
            run(engine.claim("a", holder, &|_| false, seconds(5))).expect("it is not away")
        };
        // Both start at once, and do not know each other.
        link.fail("cut off");
        back.fail("cut off");
        assert_eq!((claim(&mut one, "a.1"), claim(&mut other, "a.2")), (None, None));
        follow(&mut back, &link);
        assert_eq!(claim(&mut other, "a.2").as_deref(), Some("a.1"));
        follow(&mut link, &back);
        assert_eq!(claim(&mut one, "a.1").as_deref(), Some("a.2"));
        // A third one waits until both have let it go.
        let (mut third, third_clock) = node("a", "b");
        let mut way = third.link(0);
        follow(&mut way, &back);
        assert!(claim(&mut third, "a.3").is_some());
        run(other.claim("a", "a.2", &|_| false, Duration::from_millis(1))).expect("it is not away");
        follow(&mut way, &back);
        assert_eq!(claim(&mut third, "a.3").as_deref(), Some("a.1"));
        // One was killed: its claim ends.
        for clock in [&clock, &other_clock, &third_clock] {
            clock.set(Timestamp::from_millis(START_MS + 5_001).expect("a time"));
        }
        assert_eq!(claim(&mut third, "a.3"), None);
        // Its next start is known to be the same server.
        let former = run(third.claim("a", "a.4", &|of| of == "a.3", seconds(5)));
        assert_eq!(former.expect("it is not away"), None);
        follow(&mut link, &way);
    }

    #[test]
    fn counts_are_dropped_when_they_are_over() {
        let ((mut one, clock), (other, _)) = (node("a", "b"), node("b", "a"));
        let (mut link, mut back) = (one.link(0), other.link(0));
        let cell = Cell::of(START_MS, 1_000);
        let (origin, tally) = (Origin::new("a", 1).expect("a name"), Tally { counted: 3, deleted: 0 });
        let known = Known { origin, levels: LevelsId::new(7), cell, tally, removed: 0 };
        let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
        let block = |key| Block::of(key, known.levels, cell);
        let until_ms = block(b"k").end_ms() + 60_000;
        let write = |key| Write {
            block: block(key),
            keep_until: Timestamp::from_millis(until_ms).expect("a time"),
            counts: vec![&known],
        };
        let writes: Vec<_> = keys.iter().map(|key| write(key.as_bytes())).collect();
        one.merge(&writes).expect("there is room");
        follow(&mut back, &link);
        assert_eq!(other.shared.replica().len(), 200);
        let held_bytes = one.shared.replica().held_bytes();
        clock.set(Timestamp::from_millis(until_ms + 1).expect("a time"));
        let now = one.shared.now();
        (0..9).for_each(|_| one.shared.replica().tidy(20, now));
        assert_eq!(one.shared.replica().len(), 20, "each turn begins behind the last key of the one before");
        one.shared.replica().tidy(200, now);
        let held = |replica: &Replica| (replica.len(), replica.held_bytes());
        assert_eq!(held(&one.shared.replica()), (0, 0));
        assert!(held_bytes > 200 * 200 && held_bytes < 200 * 500, "{held_bytes}");
        // The other one has them still: its clock is behind. They do not come back.
        follow(&mut link, &back);
        assert_eq!(run(one.read(&[block(b"k7")])).expect("it answers"), [vec![]]);
    }
}
