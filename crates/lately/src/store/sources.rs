//! The sources of hits, and how far each was read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::mark::{Before, Mark, Name};
use crate::allocation::allocated;
use crate::limits::{MAX_SOURCE_BYTES, MAX_SOURCES};

/// The name of a source: a file, a partition of a topic. What stands before its first colon is its owner, which is empty if there
/// is no colon. When there are too many sources, those of the owner with the most are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// A source of this name; `None` if it is empty or longer than [`MAX_SOURCE_BYTES`].
    #[must_use]
    pub fn new(name: &'a [u8]) -> Option<Source<'a>> {
        (1..=MAX_SOURCE_BYTES).contains(&name.len()).then_some(Source(name))
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'a [u8] {
        self.0
    }
}

/// The memory of a source besides its name: its part of tree nodes, which are at least half full, and an owner, as if each had its own.
const SOURCE_BYTES: usize = 2
    * (size_of::<(Name, Mark)>()
        + size_of::<(u64, Name)>()
        + size_of::<(Name, Owner)>()
        + size_of::<Share>());

/// An [`Arc`] has two counters before what it has.
const COUNTERS_BYTES: usize = 2 * size_of::<usize>();

/// The bytes of the sources of an owner, when the least recently changed one changed, and the owner. Of the greatest share, the oldest source is
/// forgotten first.
type Share = (usize, Reverse<u64>, Name);

/// Positions by the name of the source.
#[derive(Default, Debug)]
pub(super) struct Sources {
    pub(super) marks: BTreeMap<Name, Mark>,
    owners: HashMap<Name, Owner>,
    shares: BTreeSet<Share>,
    /// The number of position changes so far.
    heard: u64,
    bytes: usize,
}

/// The sources of an owner.
#[derive(Default, Debug)]
struct Owner {
    bytes: usize,
    /// Their names by [`Mark::heard`].
    by_age: BTreeMap<u64, Name>,
}

impl Owner {
    fn share(&self, name: &Name) -> Share {
        let oldest = self.by_age.keys().next().copied().unwrap_or(u64::MAX);
        (self.bytes, Reverse(oldest), Arc::clone(name))
    }
}

fn bytes_of(name: &[u8]) -> usize {
    let owner = owner_of(name);
    allocated(COUNTERS_BYTES + name.len()) + allocated(COUNTERS_BYTES + owner.len()) + SOURCE_BYTES
}

fn owner_of(name: &[u8]) -> &[u8] {
    name.iter().position(|&byte| byte == b':').map_or(b"", |end| &name[..end])
}

impl Sources {
    fn insert(&mut self, name: Name, mark: Mark) -> Option<Mark> {
        let before = self.remove(&name);
        let bytes = bytes_of(&name);
        self.bytes += bytes;
        self.change_owner(&name, |owner| {
            owner.bytes += bytes;
            owner.by_age.insert(mark.heard, Arc::clone(&name));
        });
        self.marks.insert(name, mark);
        before.map(|(_, mark)| mark)
    }

    fn remove(&mut self, name: &[u8]) -> Option<(Name, Mark)> {
        let (name, mark) = self.marks.remove_entry(name)?;
        let bytes = bytes_of(&name);
        self.bytes -= bytes;
        self.change_owner(&name, |owner| {
            owner.bytes -= bytes;
            owner.by_age.remove(&mark.heard);
        });
        Some((name, mark))
    }

    /// Changes the owner of a source. An owner without sources is dropped.
    fn change_owner(&mut self, source: &[u8], change: impl FnOnce(&mut Owner)) {
        let name = owner_of(source);
        let known = self.owners.remove_entry(name);
        let (name, mut owner) = known.unwrap_or_else(|| (name.into(), Owner::default()));
        self.shares.remove(&owner.share(&name));
        change(&mut owner);
        if !owner.by_age.is_empty() {
            self.shares.insert(owner.share(&name));
            self.owners.insert(name, owner);
        }
    }

    /// Sets a position. Past [`MAX_SOURCES`] and these bytes, other sources are forgotten: of the owner whose sources take the most
    /// memory, the one that changed least recently. So an owner with no more than its share keeps its sources, however many others
    /// have. The same calls in the same order forget the same ones.
    pub(super) fn set(&mut self, name: &[u8], position: u64, most_bytes: usize) -> Before {
        self.heard += 1;
        let mark = self.insert(name.into(), Mark { position, heard: self.heard });
        let mut forgotten = Vec::new();
        while self.marks.len() > MAX_SOURCES || self.bytes > most_bytes && self.marks.len() > 1 {
            let Some(oldest) = self.oldest_of_largest().map(Arc::clone) else { break };
            forgotten.extend(self.remove(&oldest));
        }
        Before { mark, forgotten }
    }

    /// Of the owner whose sources take the most memory, the least recently changed source. The newest of all stays.
    fn oldest_of_largest(&self) -> Option<&Name> {
        let (_, _, owner) = self.shares.iter().rev().find(|(_, oldest, _)| oldest.0 < self.heard)?;
        self.owners.get(owner)?.by_age.values().next()
    }

    /// Rolls a position back.
    pub(super) fn roll_back(&mut self, name: &[u8], before: Before) {
        match before.mark {
            Some(mark) => _ = self.insert(name.into(), mark),
            None => _ = self.remove(name),
        }
        for (name, mark) in before.forgotten {
            self.insert(name, mark);
        }
    }

    /// All sources, the least recently changed first.
    pub(super) fn in_order(&self) -> Vec<(&[u8], u64)> {
        let mut marks: Vec<_> = self.marks.iter().collect();
        marks.sort_unstable_by_key(|(_, mark)| mark.heard);
        marks.into_iter().map(|(name, mark)| (&**name, mark.position)).collect()
    }

    /// The memory of all sources, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Vec<u8> {
        format!("source:{number}").into_bytes()
    }

    #[test]
    fn the_least_recently_used_source_is_forgotten() {
        let mut sources = Sources::default();
        let all = usize::MAX;
        (0..MAX_SOURCES).for_each(|number| _ = sources.set(&name(number), 1, all));
        sources.set(&name(0), 2, all);
        let (bytes, full) = (sources.bytes(), sources.in_order().len());
        let before = sources.set(b"another", 7, all);
        assert_eq!((full, sources.in_order().len()), (MAX_SOURCES, MAX_SOURCES));
        let has = |sources: &Sources, name: &[u8]| sources.marks.contains_key(name);
        assert!(has(&sources, &name(0)) && !has(&sources, &name(1)) && has(&sources, b"another"));
        assert_eq!(sources.in_order().last(), Some(&(&b"another"[..], 7)));
        sources.roll_back(b"another", before);
        assert!(has(&sources, &name(1)) && !has(&sources, b"another"));
        assert_eq!((sources.bytes(), sources.in_order()[0]), (bytes, (&name(1)[..], 1)));
        let before = sources.set(&name(5), 9, all);
        sources.roll_back(&name(5), before);
        assert_eq!(sources.marks[&name(5)[..]].position, 1);
    }

    /// The source that goes next, found by a look at all of them.
    fn next_by_definition(sources: &Sources) -> Option<&Name> {
        let all = || sources.marks.iter().filter(|(_, mark)| mark.heard < sources.heard);
        let bytes_of_owner = |name: &[u8]| -> usize {
            let names = sources.marks.keys().filter(|other| owner_of(other) == owner_of(name));
            names.map(|name| bytes_of(name)).sum()
        };
        let oldest = |name: &[u8]| {
            all().filter(|(other, _)| owner_of(other) == owner_of(name)).map(|(_, mark)| mark.heard).min()
        };
        let greatest = all().max_by_key(|(name, _)| (bytes_of_owner(name), Reverse(oldest(name))))?.0;
        let of_owner = all().filter(|(name, _)| owner_of(name) == owner_of(greatest));
        of_owner.min_by_key(|(_, mark)| mark.heard).map(|(name, _)| name)
    }

    #[test]
    fn the_source_that_goes_next_is_found_without_a_look_at_all() {
        let (mut sources, mut random) = (Sources::default(), 1_u64);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..2_000 {
            let name = format!("{}:{:0>2$}", next(5), next(40), usize::try_from(next(30)).expect("small"));
            let before = sources.set(name.as_bytes(), next(1_000), 20_000);
            if next(4) == 0 {
                sources.roll_back(name.as_bytes(), before);
            }
            assert_eq!(sources.oldest_of_largest(), next_by_definition(&sources));
            assert_eq!(sources.bytes, sources.marks.keys().map(|name| bytes_of(name)).sum::<usize>());
            assert_eq!(
                sources.owners.values().map(|owner| owner.by_age.len()).sum::<usize>(),
                sources.marks.len()
            );
            assert_eq!(sources.shares.len(), sources.owners.len());
        }
        assert!((5..150).contains(&sources.marks.len()), "{}", sources.marks.len());
    }

    /// Symptom: a user who sent hits of 10,000 sources had the positions of all others forgotten. Cause: the oldest source was
    /// forgotten, whoever had it. Fix: the owner with the most loses one.
    #[test]
    fn an_owner_with_many_sources_leaves_those_of_others_alone() {
        let (mut sources, all) = (Sources::default(), usize::MAX);
        let has = |sources: &Sources, name: &[u8]| sources.marks.contains_key(name);
        let others = [&b"web:access.log"[..], b"web:error.log", b"access.log", b":x:y", b"db:1"];
        others.iter().for_each(|name| _ = sources.set(name, 1, all));
        for number in 0..=MAX_SOURCES {
            sources.set(&name(number), 1, all);
        }
        assert_eq!(sources.marks.len(), MAX_SOURCES);
        assert!(others.iter().all(|name| has(&sources, name)));
        assert!(!has(&sources, &name(0)) && has(&sources, &name(MAX_SOURCES)));
        // Two owners share the rest. A new owner takes its place from the larger one.
        for number in 0..MAX_SOURCES {
            sources.set(format!("late:{number}").as_bytes(), 1, all);
        }
        let of = |sources: &Sources, owner: &[u8]| {
            sources.marks.keys().filter(|name| owner_of(name) == owner).count()
        };
        let shares = [of(&sources, b"source"), of(&sources, b"late")];
        assert_eq!(shares.iter().sum::<usize>(), MAX_SOURCES - others.len());
        // Their names have about the same lengths.
        assert!(shares.iter().all(|share| *share > MAX_SOURCES / 3), "{shares:?}");
        assert!(others.iter().all(|name| has(&sources, name)));
        // By memory, too. The newest source is never the one that goes.
        sources.set(b"new:1", 1, 1);
        assert!(sources.marks.len() == 1 && has(&sources, b"new:1"));
    }

    #[test]
    fn a_name_has_a_bound() {
        for (len, is_one) in [(0, false), (1, true), (MAX_SOURCE_BYTES, true), (MAX_SOURCE_BYTES + 1, false)]
        {
            assert_eq!(Source::new(&vec![b's'; len]).is_some(), is_one, "{len}");
        }
    }
}
