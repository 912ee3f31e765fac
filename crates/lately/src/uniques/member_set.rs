//! The distinct members of one key, outside a store.

use super::{Member, Uniques};
use crate::settings::Settings;
use crate::time::Timestamp;

/// The distinct members of a key's hits that something else than a store has counted, such as the records of a topic.
/// [`Store::learn_members`](crate::Store::learn_members) takes what [`MemberSet::write`] returns.
#[derive(Clone, Default, Debug)]
pub struct MemberSet(Uniques);

impl MemberSet {
    /// The members of which [`MemberSet::write`] made these bytes, without those that are older than the retention. `None` if the bytes are none.
    #[must_use]
    pub fn read(bytes: &[u8], settings: &Settings, now: Timestamp) -> Option<MemberSet> {
        let mut members = Uniques::read(bytes)?.fit(settings, now);
        members.tidy(settings, now);
        Some(MemberSet(members))
    }

    /// Adds a member that was hit at a time. The settings are those of the key's class.
    pub fn add(&mut self, member: &[u8], at: Timestamp, settings: &Settings, now: Timestamp) {
        self.0.add(Member::new(member), at, settings, now);
    }

    /// Removes the members that were last hit in the pane of a time or before.
    pub fn drop_until(&mut self, until: Timestamp) {
        self.0.drop_until(until);
    }

    /// All members, encoded as those of [`OwnMembers`](crate::OwnMembers).
    #[must_use]
    pub fn write(&self, settings: &Settings) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.write(settings, &mut bytes);
        bytes
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SentMembers, Store, Tier};
    use crate::time::{days, minutes, seconds};

    #[test]
    fn a_store_counts_the_members_of_a_set_once() {
        let settings = Settings::builder().unique(true).build().expect("valid");
        let at = |second: i32| {
            Timestamp::from_millis(1_700_000_000_000 + 1_000 * i64::from(second)).expect("a time")
        };
        let (mut set, mut other) = (MemberSet::default(), MemberSet::default());
        for number in 0..60_u8 {
            set.add(&[number], at(0), &settings, at(1));
            other.add(&[number + 20], at(50), &settings, at(51));
        }
        let store = Store::builder().settings(Settings::builder().unique(true)).build().expect("valid");
        let texts = [set.write(&settings), other.write(&settings)];
        let sent = texts.iter().map(|bytes| SentMembers { bytes, deleted_until: None });
        store.learn_members(b"k", Tier::Local, sent, at(60));
        let count = |window| {
            let count = store.unique(b"k", Some(window), at(60)).expect("its class counts members");
            (count.lower, count.upper)
        };
        assert_eq!((count(minutes(5)), count(seconds(30))), ((80, Some(80)), (60, Some(60))));
        let later = at(60).saturating_add(days(8));
        let read = |now| MemberSet::read(&texts[0], &settings, now).expect("they were written so");
        assert_eq!(read(at(60)).write(&settings), texts[0]);
        assert!(read(later).write(&settings).len() < 20 && read(at(60)).bytes() > 60 * Member::BYTES);
        set.drop_until(at(0));
        assert!(set.write(&settings).len() < 20);
    }
}
