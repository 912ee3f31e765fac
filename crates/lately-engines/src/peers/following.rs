//! How far a node has followed another one. Pure, like the replica.

use super::wire::Start;

/// What is asked for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Changes that the other node published, asked for after this many readings of what it learned. This number stays here.
    Own(u32),
    /// Changes that it learned from others, and this node lacks.
    Learned,
    /// Both.
    All,
}

impl Question {
    /// The number in a message.
    pub(super) fn number(self) -> u32 {
        match self {
            Question::Own(_) => 0,
            Question::Learned => 1,
            Question::All => 2,
        }
    }

    /// The question with a number.
    pub(super) fn of(number: u32) -> Option<Question> {
        [Question::Own(0), Question::Learned, Question::All].into_iter().find(|it| it.number() == number)
    }
}

/// Where to go on with a node.
#[derive(Clone, Default, Debug)]
pub(super) struct Following {
    /// Its replica, 0 before it was reached.
    life: u64,
    own: u64,
    learned: u64,
    /// Whether it is asked for all at once: it has a parent or children, or is a parent or a child of this node.
    relays: bool,
    /// Whether all own changes were there at the last answer.
    is_up_to_date: bool,
    /// How often all that it had learned was read, and when last.
    learned_reads: u32,
    learned_ms: Option<i64>,
    /// Whether everything that it had was read: own changes, then learned ones, then own ones again, for a cell may move from the latter
    /// to the former meanwhile.
    stage: Stage,
    /// What it said of starts when it had nothing more that it had learned. It holds once its own changes are read, too.
    starts: Vec<Start>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum Stage {
    #[default]
    New,
    OwnRead,
    LearnedRead,
    Complete,
}

/// What an answer says of itself: by which replica, from where to where, and whether it was all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) life: u64,
    pub(super) after: u64,
    pub(super) until: u64,
    pub(super) is_all: bool,
    /// Whether the node has a parent or children.
    pub(super) relays: bool,
}

impl Following {
    /// Of a parent or a child: it is asked for all from the start.
    pub(super) fn of_relay() -> Following {
        Following { relays: true, ..Following::default() }
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Whether everything that this replica had at some time since the start was read.
    pub(super) fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// Whether the answer may wait for a change: what was there is read.
    pub(super) fn may_wait(&self) -> bool {
        if self.relays { self.is_up_to_date } else { self.is_complete() }
    }

    /// What to ask for. What was learned is asked for now and then, because the follower has most of it by then.
    pub(super) fn next(&self, now_ms: i64, every_ms: i64) -> Question {
        if self.relays {
            return Question::All;
        }
        let is_due = self.learned_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= every_ms);
        if self.is_up_to_date && is_due { Question::Learned } else { Question::Own(self.learned_reads) }
    }

    /// The number after which to go on.
    pub(super) fn after(&self, question: Question) -> u64 {
        match question {
            Question::Own(_) => self.own,
            Question::Learned => self.learned,
            Question::All => self.own.min(self.learned),
        }
    }

    /// Notes an answer whose changes were merged. Something if all own changes of the replica up to there are merged now: what it said of
    /// starts when it had no more than what is merged.
    pub(super) fn note(
        &mut self,
        question: Question,
        answered: Answered,
        starts: Vec<Start>,
        now_ms: i64,
    ) -> Option<Vec<Start>> {
        let Answered { life, after, until, is_all, relays } = answered;
        if life != self.life {
            *self = Following { life, relays: self.relays, ..Following::default() };
        }
        self.relays |= relays;
        // A late answer says nothing of what came between.
        if after > self.after(question) {
            return None;
        }
        if question != Question::Learned {
            self.own = until.max(self.own);
        }
        if !matches!(question, Question::Own(_)) {
            self.learned = until.max(self.learned);
        }
        match question {
            Question::Own(reads) => {
                self.is_up_to_date = is_all;
                if !is_all {
                    return None;
                }
                // An answer from before the last reading says nothing of what moved meanwhile.
                let is_current = reads == self.learned_reads;
                self.stage = match self.stage {
                    Stage::New => Stage::OwnRead,
                    Stage::LearnedRead if is_current => Stage::Complete,
                    stage => stage,
                };
                Some(if is_current { std::mem::take(&mut self.starts) } else { Vec::new() })
            }
            Question::Learned => {
                if is_all {
                    self.learned_ms = Some(now_ms);
                    self.learned_reads = self.learned_reads.wrapping_add(1);
                    self.stage = self.stage.max(Stage::LearnedRead);
                    self.starts = starts;
                }
                None
            }
            // Both are in one order here, so nothing moves from one to the other unseen.
            Question::All => {
                self.is_up_to_date = is_all;
                if is_all {
                    self.stage = Stage::Complete;
                }
                is_all.then_some(starts)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a node lacked a count that moved from what the other had learned to its own changes. Cause: an answer that came twice, the second time late, was
    /// taken for the last of the three readings. Fix: each reading of own changes says how often the others were read before.
    #[test]
    fn an_answer_that_comes_twice_completes_nothing() {
        let mut following = Following::default();
        let answered = Answered { life: 7, after: 0, until: 0, is_all: true, relays: false };
        let first = following.next(0, 1_000);
        let mut take = |question| {
            following.note(question, answered, Vec::new(), 0);
            (following.next(0, 1_000), following.is_complete())
        };
        assert_eq!(take(first), (Question::Learned, false));
        let (last, is_complete) = take(Question::Learned);
        assert!(!is_complete && take(first) == (last, false) && take(last) == (last, true));
    }
}
