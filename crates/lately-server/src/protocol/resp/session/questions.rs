//! What commands read of keys, and whether they have to wait until the hits of other nodes on these are known.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use lately::Timestamp;
use lately_resp::command::{Among, Coolest, Top, spec_of};
use lately_resp::{ArgList, Command, Selected};

use super::Session;
use crate::limits::CLUSTER_READ_KEYS;
use crate::service::cluster::Wait;
use crate::service::{Asked, TopQuestion};

/// What the next command waits for.
#[derive(Default)]
pub(super) enum Waiting {
    #[default]
    No,
    /// The connection is to wait for this, and for this long at most.
    For(Arc<Wait>, Duration),
    /// It has waited: the command is executed now.
    Over(Arc<Wait>),
}

/// Whether a command can be executed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// It has to wait before.
    Waits,
    /// There is no room for what other nodes counted of its keys.
    NoRoom,
}

/// The keys that a command reads, each with a window. Commands that never wait read none.
fn questions<'a>(command: &Command<'a>) -> impl Iterator<Item = Asked<'a>> + Clone + use<'a> {
    let (key, keys, window, at) = match *command {
        Command::Hits { key, windows, at } => (Some(key), None, windows.iter().max(), at),
        Command::HitsBounds { key, window, at }
        | Command::HitsStaleness { key, window, at }
        | Command::HitsByOrigin { key, window, at }
        | Command::Rate { key, window, at } => (Some(key), None, window, at),
        Command::Unique { key, window, .. } => (Some(key), None, window, None),
        Command::Series { key, window, at, .. } => (Some(key), None, Some(window), at),
        Command::MultiHits { window, keys } => (None, Some(keys), Some(window), None),
        Command::Coolest(Coolest { window, among: Among::Keys(keys), .. }) => {
            (None, Some(keys), window, None)
        }
        _ => (None, None, None, None),
    };
    let keys = key.into_iter().chain(keys.into_iter().flat_map(ArgList::iter));
    keys.map(move |key| Asked { key, window, at })
}

/// What `TOP` asks.
pub(super) fn question_of<'a>(top: &Top<'a>) -> TopQuestion<'a> {
    let &Top { count, window, prefix, .. } = top;
    TopQuestion { count, window, prefix, pattern: None }
}

impl Session {
    /// Whether a command may have to wait before it is executed.
    #[inline]
    pub(super) fn may_wait(&self, command: &Command<'_>) -> bool {
        self.service.cluster.is_some()
            && (matches!(command, Command::Top(_)) || questions(command).next().is_some())
    }

    /// Whether a command has to wait. Those in a transaction never do.
    pub(super) fn readiness(&mut self, command: &Command<'_>, now: Timestamp) -> Readiness {
        let wait = match mem::take(&mut self.waiting) {
            Waiting::Over(wait) => wait,
            _ if self.executed.is_some() => return Readiness::Ready,
            _ => {
                let wait = match command {
                    Command::Top(top) => self.service.wait_for_top(question_of(top), now),
                    _ => self.service.wait_for(questions(command), now),
                };
                let Some((wait, timeout)) = wait else {
                    return Readiness::Ready;
                };
                if !wait.is_over() {
                    self.waiting = Waiting::For(wait, timeout);
                    return Readiness::Waits;
                }
                wait
            }
        };
        if wait.is_refused() && questions(command).nth(1).is_some() {
            Readiness::NoRoom
        } else {
            Readiness::Ready
        }
    }

    /// Notes what the commands behind one that waits will ask, so that all of it is read together.
    pub(super) fn look_ahead(&self, requests: Selected<'_>, now: Timestamp) {
        for args in requests.take(CLUSTER_READ_KEYS) {
            let Ok(command) = spec_of(args).and_then(|spec| self.read(spec, args)) else { continue };
            questions(&command).for_each(|asked| self.service.note_question(asked, now));
        }
    }

    /// What the next command waits for, once.
    pub(crate) fn take_wait(&mut self) -> Option<(Arc<Wait>, Duration)> {
        match mem::take(&mut self.waiting) {
            Waiting::For(wait, timeout) => Some((wait, timeout)),
            Waiting::No | Waiting::Over(_) => None,
        }
    }

    /// The next command does not wait any more.
    pub(crate) fn end_wait(&mut self, wait: Arc<Wait>) {
        self.waiting = Waiting::Over(wait);
    }
}
