//! How far a node has followed another one. Pure, like the replica.

/// What is asked for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Changes that the other node published.
    Own,
    /// Changes that it learned from others, and this node lacks.
    Learned,
}

/// Where to go on with a node.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Following {
    /// Its replica, 0 before it was reached.
    life: u64,
    own: u64,
    learned: u64,
    /// Whether all own changes were there at the last answer.
    is_up_to_date: bool,
    /// When it was last asked for all that it had learned, and had nothing more.
    learned_ms: Option<i64>,
    /// Whether everything that it had was read: own changes, then learned ones, then own ones again, for a cell may move from the latter
    /// to the former meanwhile.
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum Stage {
    #[default]
    New,
    OwnRead,
    LearnedRead,
    Complete,
}

impl Following {
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Whether everything that this replica had at some time since the start was read.
    pub(super) fn is_complete(&self) -> bool {
        self.stage == Stage::Complete
    }

    /// What to ask for. What was learned is asked for now and then, because the follower has most of it by then.
    pub(super) fn next(&self, now_ms: i64, every_ms: i64) -> Question {
        let is_due = self.learned_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= every_ms);
        if self.is_up_to_date && is_due { Question::Learned } else { Question::Own }
    }

    /// The number after which to go on.
    pub(super) fn after(&self, question: Question) -> u64 {
        match question {
            Question::Own => self.own,
            Question::Learned => self.learned,
        }
    }

    /// Notes an answer whose changes were merged: by which replica, from where to where, and whether it was all. True if all own changes
    /// of the replica up to there are merged now.
    pub(super) fn note(
        &mut self,
        question: Question,
        (life, after, until, is_all): (u64, u64, u64, bool),
        now_ms: i64,
    ) -> bool {
        if life != self.life {
            *self = Following { life, ..Following::default() };
        }
        let place = match question {
            Question::Own => &mut self.own,
            Question::Learned => &mut self.learned,
        };
        // A late answer says nothing of what came between.
        if after > *place {
            return false;
        }
        *place = until.max(*place);
        match question {
            Question::Own => {
                self.is_up_to_date = is_all;
                if is_all {
                    self.stage = match self.stage {
                        Stage::New => Stage::OwnRead,
                        Stage::LearnedRead => Stage::Complete,
                        stage => stage,
                    };
                }
                is_all
            }
            Question::Learned => {
                if is_all {
                    self.learned_ms = Some(now_ms);
                    self.stage = self.stage.max(Stage::LearnedRead);
                }
                false
            }
        }
    }
}
