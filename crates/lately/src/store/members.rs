//! The distinct members of keys over nodes: those of this store, to be sent, and those that others have sent.
//!
//! A member counts from its last hit, whoever has counted that. So the members of all nodes are the union of what each has, with the
//! later time of both: it may be merged in any order, and more than once.

use std::sync::Arc;

use super::Store;
use super::others::{Others, Tier};
use crate::delta::DeltaBatch;
use crate::time::Timestamp;
use crate::uniques::Uniques;

/// The members of a key that a node has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentMembers<'a> {
    /// The bytes of [`Store::own_members`].
    pub bytes: &'a [u8],
    /// Members that were hit at this time or before are deleted. The node did not know that.
    pub deleted_until: Option<Timestamp>,
}

/// The members of a key that a store has counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OwnMembers {
    /// Their encoding.
    pub bytes: Vec<u8>,
    /// When the store counted the first of them, whatever the time of its hit. An earlier deletion does not concern them. The epoch if that is not
    /// known, because some were read from a checkpoint or a dump.
    pub since: Timestamp,
}

/// What was learned of the members of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LearnedMembers {
    /// The memory that all that is known of the key from others takes, in bytes.
    pub known_bytes: usize,
    /// How many nodes sent what cannot be read. It is left out.
    pub malformed: usize,
    /// Which of what was sent has only members that are older than the retention of the key's class: their numbers, from 0 on.
    pub expired: Vec<usize>,
}

impl Store {
    /// The distinct members of a key that this store has counted, for [`Store::learn_members`] of others. `None` if there are none.
    #[must_use]
    pub fn own_members(&self, key: &[u8], now: Timestamp) -> Option<OwnMembers> {
        let hash = self.hash(key);
        let (mut shard, _, mut context) = self.lock_for(hash, now, None);
        let place = shard.place_of(key, hash).and_then(|place| shard.alive(place, &mut context))?;
        let since = shard.members_since(place);
        let bytes = shard.write_members(place, &self.classes);
        (!bytes.is_empty()).then_some(OwnMembers { bytes, since })
    }

    /// Removes the members of a key that this store has counted until a time: another node has deleted them. A rollback does not bring them back.
    pub fn drop_members(&self, key: &[u8], until: Timestamp, now: Timestamp, deltas: &mut DeltaBatch) {
        deltas.advance(now);
        let hash = self.hash(key);
        let (mut shard, _, mut context) = self.lock_for(hash, now, Some(deltas));
        shard.drop_members((key, hash), until, &mut context);
    }

    /// Replaces what is known from one engine of the members that others have counted of a key. [`Store::unique`] counts them from here on.
    pub fn learn_members<'a>(
        &self,
        key: &[u8],
        tier: Tier,
        sent: impl Iterator<Item = SentMembers<'a>>,
        now: Timestamp,
    ) -> LearnedMembers {
        let (settings, now) = (self.settings_of(key), self.advance(now));
        let (mut all, mut malformed, mut expired) = (Uniques::default(), 0, Vec::new());
        for (number, SentMembers { bytes, deleted_until }) in sent.enumerate() {
            let Some(saved) = Uniques::read(bytes) else {
                malformed += 1;
                continue;
            };
            let mut members = saved.fit(settings, now);
            if members.clone().tidy(settings, now) {
                expired.push(number);
            }
            deleted_until.iter().for_each(|&until| members.drop_until(until));
            if all.is_empty() {
                all = members;
            } else {
                all.absorb(members, settings, now);
            }
        }
        let is_empty = all.tidy(settings, now);
        if is_empty && self.others.get().is_none() {
            return LearnedMembers { known_bytes: 0, malformed, expired };
        }
        let others = self.others.get_or_init(Others::new);
        let members = (!is_empty).then(|| Arc::new(all));
        let known_bytes = self.replace(others, key, |held| held.set_members(tier, members));
        LearnedMembers { known_bytes, malformed, expired }
    }

    /// The members of a key that others have counted.
    pub(super) fn members_of_others(&self, key: &[u8], hash: u64, now: Timestamp) -> Option<Arc<Uniques>> {
        self.others.get()?.part(hash).get(key)?.members(self.settings_of(key), now)
    }
}
