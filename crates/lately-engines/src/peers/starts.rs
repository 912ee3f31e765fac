//! Nodes that were started again and have not read yet what their neighbours know.
//!
//! Such a node may lack what an earlier start of it had passed on. So a node that starts waits for those of them that it reads, for those that
//! they have read, and so on: until each of them has read its own neighbours, and what it knew by then has come here. The others have what they
//! passed on, and nobody waits for them, or for a node that is away and beside none that has started.
//!
//! What a node says of starts comes with all that it knows, and is noted when that is merged.

use std::collections::HashMap;

use super::wire::Start;
use crate::limits::{MAX_PEER_LIVES, PEER_CHILD_GONE_MS};

/// The starts that this one waits for, or has waited for.
#[derive(Default)]
pub(super) struct Starts {
    /// By the number of their replica.
    known: HashMap<u64, Known>,
    /// Whether there was no room for one. It is waited for then.
    is_full: bool,
}

struct Known {
    node: String,
    /// Whether this node has what that start, or a later one of its node, knew after it had read its neighbours.
    is_read: bool,
    since_ms: i64,
}

impl Starts {
    /// Notes what a node says of starts, itself among them: all that it knows is merged.
    pub(super) fn merge(&mut self, starts: Vec<Start>, sender: u64, now_ms: i64) {
        for Start { life, node, is_read } in starts {
            let has_room = self.known.len() < MAX_PEER_LIVES;
            if is_read && life == sender {
                self.let_go(&node);
            }
            match self.known.get_mut(&life) {
                Some(known) => known.is_read |= is_read,
                None if is_read => {}
                None if has_room => _ = self.known.insert(life, Known { node, is_read, since_ms: now_ms }),
                None => self.is_full = true,
            }
        }
    }

    /// Waits no longer for the starts of a node: a later one has read what they passed on, and that is here.
    pub(super) fn let_go(&mut self, node: &str) {
        let of_node = self.known.values_mut().filter(|known| known.node == node);
        of_node.for_each(|known| known.is_read = true);
    }

    /// Waits no longer for those that have not read all within an hour, and later forgets them. The node may be gone.
    pub(super) fn tidy(&mut self, now_ms: i64) {
        let is_over = |known: &Known, ms: i64| now_ms - known.since_ms >= ms;
        self.known.values_mut().for_each(|known| known.is_read |= is_over(known, PEER_CHILD_GONE_MS));
        self.known.retain(|_, known| !is_over(known, 2 * PEER_CHILD_GONE_MS));
        self.is_full &= self.known.len() == MAX_PEER_LIVES;
    }

    /// Whether none is waited for.
    pub(super) fn are_read(&self) -> bool {
        !self.is_full && self.known.values().all(|known| known.is_read)
    }

    /// What this node says of them.
    pub(super) fn list(&self) -> impl Iterator<Item = Start> {
        let start = |(&life, known): (&u64, &Known)| {
            let Known { node, is_read, .. } = known;
            Start { life, node: node.clone(), is_read: *is_read }
        };
        self.known.iter().map(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(life: u64, node: &str, is_read: bool) -> Start {
        Start { life, node: node.to_owned(), is_read }
    }

    /// The life of the sender, and what it says.
    type Message<'m> = (u64, &'m [(u64, &'m str, bool)]);

    /// What is left to wait for after these messages.
    fn check(messages: &[Message<'_>], expected: &[u64]) {
        let mut starts = Starts::default();
        for (sender, said) in messages {
            let said = said.iter().map(|&(life, node, is_read)| start(life, node, is_read));
            starts.merge(said.collect(), *sender, 0);
        }
        let mut left: Vec<u64> =
            starts.list().filter(|start| !start.is_read).map(|start| start.life).collect();
        left.sort_unstable();
        assert_eq!(left, expected, "{messages:?}");
        assert_eq!(starts.are_read(), expected.is_empty());
    }

    #[test]
    fn starts_are_waited_for_until_they_have_read() {
        check(&[(1, &[(1, "a", true)])], &[]);
        check(&[(1, &[(1, "a", false), (2, "b", false)])], &[1, 2]);
        check(&[(1, &[(1, "a", false), (2, "b", false)]), (1, &[(1, "a", true), (2, "b", false)])], &[2]);
        // Others know it, too.
        check(&[(1, &[(1, "a", true), (2, "b", false)]), (3, &[(3, "c", true), (2, "b", true)])], &[]);
        // A later start has read what this one has passed on; another node need not have read that.
        check(&[(1, &[(1, "a", true), (2, "b", false)]), (4, &[(4, "b", true)])], &[]);
        check(&[(1, &[(1, "a", true), (2, "b", false)]), (3, &[(4, "b", true)])], &[2]);
        check(&[(1, &[(1, "a", true), (2, "b", false)]), (4, &[(4, "b", false)])], &[2, 4]);
        // It has read, and does not begin again.
        check(&[(1, &[(1, "a", false)]), (1, &[(1, "a", true)]), (2, &[(1, "a", false)])], &[]);
    }

    #[test]
    fn starts_are_let_go_after_an_hour_and_forgotten_after_two() {
        let mut starts = Starts::default();
        starts.merge(vec![start(1, "a", false)], 1, 5);
        starts.tidy(PEER_CHILD_GONE_MS + 4);
        assert!(!starts.are_read());
        starts.tidy(PEER_CHILD_GONE_MS + 5);
        assert!(starts.are_read() && starts.list().count() == 1);
        starts.tidy(2 * PEER_CHILD_GONE_MS + 5);
        assert_eq!(starts.list().count(), 0);
    }

    #[test]
    fn starts_without_room_are_waited_for() {
        let mut starts = Starts::default();
        let lives = |count: usize| 1..=count as u64;
        starts.merge(lives(MAX_PEER_LIVES).map(|life| start(life, "a", false)).collect(), 1, 0);
        starts.let_go("a");
        assert!(starts.are_read());
        starts.merge(lives(MAX_PEER_LIVES + 1).map(|life| start(life, "a", false)).collect(), 1, 0);
        assert!(!starts.are_read() && starts.list().count() == MAX_PEER_LIVES);
        starts.tidy(2 * PEER_CHILD_GONE_MS);
        assert!(starts.are_read());
    }
}
