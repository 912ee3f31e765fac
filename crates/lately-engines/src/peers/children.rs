//! The nodes below this one: they name it as their parent, and it does not know them before they come.
//!
//! Hits that this node had sent before it was started again may be with a child only. So the names of its children are kept, and it compares what
//! it has only when it has read all that each of them knows. A child that stops is let go at once. One that is away for an hour is let go, too.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use super::following::Following;
use crate::limits::{MAX_PEER_FOLLOWERS, PEER_CHILD_GONE_MS, PEER_SILENT_MS};

/// Keeps the names of the children of a node for its next start.
pub type KeepChildren = Arc<dyn Fn(&[&str]) -> io::Result<()> + Send + Sync>;

/// The children of a node.
pub(super) struct Children {
    /// Those that came since the start, by the number of their replica.
    following: HashMap<u64, Child>,
    by_name: BTreeMap<String, Known>,
    /// The replicas of those that have stopped, and when. A question of theirs may arrive after their last report.
    stopped_ms: HashMap<u64, i64>,
    keep: Option<KeepChildren>,
}

#[derive(Clone)]
struct Child {
    name: String,
    following: Following,
    /// Whether it exchanges changes with others than this node and its children.
    has_others: bool,
    asked_ms: i64,
}

struct Known {
    /// Whether everything that it knew at some time since the start was read.
    is_complete: bool,
    seen_ms: i64,
}

impl Children {
    /// The children of before this start.
    pub(super) fn new(names: Vec<String>, keep: Option<KeepChildren>, now_ms: i64) -> Children {
        let known = |name| (name, Known { is_complete: false, seen_ms: now_ms });
        let by_name = names.into_iter().take(MAX_PEER_FOLLOWERS).map(known).collect();
        Children { following: HashMap::new(), by_name, stopped_ms: HashMap::new(), keep }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether one has not answered for a while.
    pub(super) fn are_silent(&self, now_ms: i64) -> bool {
        self.by_name.values().any(|known| now_ms - known.seen_ms >= PEER_SILENT_MS)
    }

    /// Whether each was read.
    pub(super) fn are_complete(&self) -> bool {
        self.by_name.values().all(|known| known.is_complete)
    }

    fn kept(&self) -> io::Result<()> {
        let names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        self.keep.as_ref().map_or(Ok(()), |keep| keep(&names))
    }

    /// A child is here. Its name is kept before it gets anything.
    ///
    /// # Errors
    /// Why it gets nothing.
    pub(super) fn meet(&mut self, name: &str, life: u64, now_ms: i64) -> Result<(), String> {
        if self.stopped_ms.contains_key(&life) {
            return Ok(());
        }
        if let Some(known) = self.by_name.get_mut(name) {
            known.seen_ms = now_ms;
            return Ok(());
        }
        if self.by_name.len() >= MAX_PEER_FOLLOWERS {
            return Err(format!("it has {MAX_PEER_FOLLOWERS} children: give this node another parent"));
        }
        self.by_name.insert(name.to_owned(), Known { is_complete: false, seen_ms: now_ms });
        self.kept().map_err(|error| {
            self.by_name.remove(name);
            format!("it cannot keep the name of this node: {error}")
        })
    }

    /// A child has stopped.
    pub(super) fn leave(&mut self, name: &str, life: u64, now_ms: i64) -> io::Result<()> {
        self.following.remove(&life);
        if self.stopped_ms.contains_key(&life) {
            return Ok(());
        }
        self.by_name.remove(name);
        self.kept()?;
        if self.stopped_ms.len() < MAX_PEER_FOLLOWERS {
            self.stopped_ms.insert(life, now_ms);
        }
        Ok(())
    }

    /// Lets those go that were away for long.
    pub(super) fn tidy(&mut self, now_ms: i64) -> io::Result<()> {
        let before = self.by_name.len();
        self.by_name.retain(|_, known| now_ms - known.seen_ms < PEER_CHILD_GONE_MS);
        self.following.retain(|_, child| now_ms - child.asked_ms < PEER_CHILD_GONE_MS);
        self.stopped_ms.retain(|_, stopped_ms| now_ms - *stopped_ms < PEER_SILENT_MS);
        if self.by_name.len() < before { self.kept() } else { Ok(()) }
    }

    /// How far a child was followed.
    pub(super) fn following(&self, life: u64) -> Following {
        self.following.get(&life).map_or_else(Following::of_relay, |child| child.following.clone())
    }

    /// Notes how far a child was followed.
    pub(super) fn note(
        &mut self,
        (name, life): (&str, u64),
        following: &Following,
        has_others: bool,
        now_ms: i64,
    ) {
        if self.stopped_ms.contains_key(&life) {
            return;
        }
        if let Some(known) = self.by_name.get_mut(name) {
            known.is_complete |= following.is_complete();
        }
        if self.following.len() >= MAX_PEER_FOLLOWERS {
            self.following.retain(|_, child| now_ms - child.asked_ms < PEER_SILENT_MS);
        }
        if self.following.len() < MAX_PEER_FOLLOWERS || self.following.contains_key(&life) {
            let following = following.clone();
            let child = Child { name: name.to_owned(), following, has_others, asked_ms: now_ms };
            self.following.insert(life, child);
        }
    }

    /// Whether a child may have changes from elsewhere, too.
    pub(super) fn has_others(&self, life: u64) -> bool {
        self.following.get(&life).is_some_and(|child| child.has_others)
    }

    /// Whether a replica is that of a child that came since the start.
    pub(super) fn name(&self, life: u64) -> Option<&str> {
        self.following.get(&life).map(|child| child.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_stopped_does_not_come_back_with_a_late_question() {
        let mut children = Children::new(Vec::new(), None, 0);
        children.meet("edge", 7, 0).expect("room");
        children.leave("edge", 7, 10).expect("nothing is kept");
        children.meet("edge", 7, 11).expect("it gets its answer");
        assert!(children.is_empty());
        children.meet("edge", 8, 12).expect("room");
        children.leave("edge", 7, 13).expect("it is said again");
        assert!(!children.is_empty(), "the next start is another replica");
    }
}
