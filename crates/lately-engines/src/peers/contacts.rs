//! The nodes that this one reaches by itself: those in `urls`, and its parents.

use std::collections::BTreeMap;

use super::address::Target;
use super::following::Following;
use super::stats::PeerRole;
use crate::Away;
use crate::limits::MAX_PEER_ABOVE;

/// All of them.
pub(super) struct Contacts {
    next: usize,
    list: BTreeMap<usize, Contact>,
    names: BTreeMap<String, Name>,
}

/// How it goes with a node that this one follows.
#[derive(Clone)]
pub(super) struct Contact {
    pub(super) role: PeerRole,
    /// Its address, and its name once it was reached.
    pub(super) address: String,
    pub(super) node: Option<String>,
    /// Whether it was reached, or could not be.
    is_tried: bool,
    failure: Option<String>,
    /// Everything that it had at some time since the start is merged.
    is_complete: bool,
    /// Everything that it had published is merged, and it was not away since.
    is_current: bool,
    /// Whether it knows that this node stops.
    pub(super) has_left: bool,
    /// It and the nodes above it.
    above: Vec<String>,
}

/// How it goes with a name that has the addresses of nodes.
#[derive(Default)]
struct Name {
    is_tried: bool,
    is_resolved: bool,
    failure: Option<String>,
}

impl Contacts {
    /// None is reached yet.
    pub(super) fn new(targets: &[(PeerRole, Target)]) -> Contacts {
        let mut contacts = Contacts { next: 0, list: BTreeMap::new(), names: BTreeMap::new() };
        for (role, target) in targets {
            match target {
                Target::Node(address) => _ = contacts.add(*role, address.to_string()),
                Target::Name(name) => _ = contacts.names.insert(name.to_string(), Name::default()),
            }
        }
        contacts
    }

    /// One more. Returns its number.
    pub(super) fn add(&mut self, role: PeerRole, address: String) -> usize {
        let contact = Contact {
            role,
            address,
            node: None,
            is_tried: false,
            failure: None,
            is_complete: false,
            is_current: false,
            has_left: false,
            above: Vec::new(),
        };
        let number = self.next;
        self.next += 1;
        self.list.insert(number, contact);
        number
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<Contact> {
        self.list.remove(&number)
    }

    pub(super) fn get(&self, number: usize) -> Option<&Contact> {
        self.list.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Contact> {
        self.list.get_mut(&number)
    }

    /// A name was resolved, or could not be. Its last addresses stay.
    pub(super) fn note_name(&mut self, name: &str, failure: Option<String>) {
        let held = self.names.entry(name.to_owned()).or_default();
        held.is_tried = true;
        held.is_resolved |= failure.is_none();
        held.failure = failure;
    }

    /// Whether there is a parent.
    pub(super) fn has_parent(&self) -> bool {
        self.list.values().any(|contact| contact.role == PeerRole::Parent)
    }

    /// Whether this node exchanges changes with several others that are not below it.
    pub(super) fn are_several(&self) -> bool {
        self.list.len() > 1 || !self.names.is_empty()
    }

    /// Whether each was read, or could not be reached.
    pub(super) fn are_tried(&self) -> bool {
        self.names.values().all(|name| name.is_tried) && self.list.values().all(|contact| contact.is_tried)
    }

    /// Whether each was read.
    pub(super) fn are_complete(&self) -> bool {
        self.names.values().all(|name| name.is_resolved)
            && self.list.values().all(|contact| contact.is_complete)
    }

    /// Whether each parent that answers knows that this node stops.
    pub(super) fn have_left(&self) -> bool {
        let mut parents = self.list.values().filter(|contact| contact.role == PeerRole::Parent);
        parents.all(|contact| contact.has_left || contact.failure.is_some())
    }

    /// The nodes that are away. Behind a parent there may be any.
    pub(super) fn away(&self) -> Away {
        let away = |contact: &&Contact| !contact.is_current;
        let (away, here): (Vec<_>, Vec<_>) = self.list.values().partition(away);
        if away.is_empty() {
            return Away::Nobody;
        }
        let is_parent = away.iter().any(|contact| contact.role == PeerRole::Parent);
        Away::AllBut(
            here.into_iter().filter(|_| !is_parent).filter_map(|contact| contact.node.clone()).collect(),
        )
    }

    /// The nodes above this one.
    pub(super) fn above(&self) -> Vec<String> {
        let mut above: Vec<String> =
            self.list.values().flat_map(|contact| contact.above.iter().cloned()).collect();
        above.sort_unstable();
        above.dedup();
        above.truncate(MAX_PEER_ABOVE);
        above
    }

    /// The nodes that cannot be followed, or should not be. `node` is the name of this one.
    pub(super) fn failure(&self, node: &str) -> Option<String> {
        let contacts = self.list.values();
        let contacts =
            contacts.filter_map(|contact| contact.failure.clone().or_else(|| contact.loop_with(node)));
        let names = self.names.values().filter(|name| !name.is_resolved);
        let mut failures = names.filter_map(|name| name.failure.clone()).chain(contacts);
        let first = failures.next()?;
        Some(match failures.count() {
            0 => first,
            more => format!("{first}; and {more} more"),
        })
    }
}

impl Contact {
    /// It answered, or failed.
    pub(super) fn note(&mut self, failure: Option<String>, following: &Following) {
        self.is_tried |= failure.is_some() || following.may_wait();
        self.is_complete |= following.is_complete();
        self.is_current &= failure.is_none();
        self.failure = failure;
    }

    /// Everything that it has published is merged.
    pub(super) fn note_read(&mut self) {
        self.is_current = true;
    }

    /// It is this node itself: there is nothing to read.
    pub(super) fn is_self(&mut self) {
        (self.is_tried, self.is_complete, self.is_current, self.failure) = (true, true, true, None);
    }

    /// It says that these nodes are above it. Returns what is wrong with that, if it was not before. `node` is the name of this one.
    pub(super) fn set_above(&mut self, above: &[String], node: &str) -> Option<String> {
        let is_name = |name: &&String| lately::Origin::new(name, 0).is_some();
        let was_wrong = self.loop_with(node).is_some();
        self.above = above.iter().filter(is_name).take(MAX_PEER_ABOVE).cloned().collect();
        self.loop_with(node).filter(|_| !was_wrong)
    }

    fn loop_with(&self, node: &str) -> Option<String> {
        let Contact { address, above, .. } = self;
        above.iter().any(|above| above == node).then(|| {
            format!(
                "{address}: this node, '{node}', is above it: the parents are in a loop. Give each node a parent that is nearer to the root, and the root \
                 none"
            )
        })
    }
}
