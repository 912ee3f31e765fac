//! The distinct members of records that this node has counted. Pure: it does no I/O, and time is passed in.
//!
//! A member that is added twice is there once. So members need no offsets, as hits do: who is not sure whether they are written adds them again.
//! From time to time a node writes what it has of a key, as a text about the key. The text has a name of its own, so no other writer replaces it, and
//! readers take the union of all texts. Here are only the members of keys that have changed since: the next member of a key begins with its text.
//! The record that says up to where a partition is complete also says of which records all members are written. The next owner reads the partition from
//! there on, and takes the members of what is counted already.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use lately::{MemberSet, Origin, Settings, Timestamp};

use super::config::Classes;
use super::key_texts::KeyTexts;
use super::state_record::KeyTextRecord;
use crate::MemberText;
use crate::limits::{
    KAFKA_MEMBERS_AT_ONCE_BYTES, KAFKA_MEMBERS_BYTES_A_MS, KAFKA_MEMBERS_EVERY_MS, KAFKA_MEMBERS_SELDOM_MS,
    KAFKA_SLACK_MS,
};

/// The members of keys that are to be written.
pub(super) struct RecordMembers {
    /// The node of the names of texts.
    topic: String,
    /// The number in the name of the texts of this node: that of no other node, and of no other start.
    number: u64,
    most_bytes: usize,
    changed: HashMap<Box<[u8]>, Changed>,
    bytes: usize,
    /// When they are to be written.
    due_ms: i64,
}

/// The members of a key: all that this node has counted since its start.
struct Changed {
    set: MemberSet,
    /// See [`MemberText::applied`].
    applied: Timestamp,
}

/// The member of a hit that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberOf<'m> {
    pub(super) key: &'m [u8],
    pub(super) member: &'m [u8],
    pub(super) at: Timestamp,
    /// Whether its hit was counted before. Then it may have been deleted since.
    pub(super) is_again: bool,
}

/// What a key takes beside its members.
const KEY_BYTES: usize = 160;

impl RecordMembers {
    /// There are none yet. They are written early if they take more than `most_bytes`.
    pub(super) fn new(topic: &str, most_bytes: usize) -> RecordMembers {
        RecordMembers {
            topic: topic.to_owned(),
            number: RandomState::new().hash_one(topic),
            most_bytes,
            changed: HashMap::new(),
            bytes: 0,
            due_ms: 0,
        }
    }

    /// The name of the texts of this node.
    fn name(&self) -> String {
        Origin::new(&self.topic, self.number).expect("the name was checked").to_string()
    }

    /// Adds a member, unless its hit has left the retention. A hit that is ahead of the clock counts as of now. `texts` has what is written.
    pub(super) fn add(&mut self, member: MemberOf<'_>, texts: &KeyTexts, class: &Settings, now: Timestamp) {
        let MemberOf { key, member, at, is_again } = member;
        if now.as_millis() - at.as_millis() > class.levels().retain_ms() {
            return;
        }
        let at = at.min(now.saturating_add(class.max_skew()));
        if !self.changed.contains_key(key) {
            let read = |text: MemberText| Some((MemberSet::read(&text.members, class, now)?, text.applied));
            let written = texts.get(key, &self.name()).and_then(MemberText::read).and_then(read);
            let (set, applied) = written.unwrap_or((MemberSet::default(), now));
            let changed = Changed { set, applied };
            self.bytes += KEY_BYTES + key.len() + changed.set.bytes();
            self.changed.insert(key.into(), changed);
        }
        let Some(changed) = self.changed.get_mut(key) else { return };
        if is_again {
            changed.applied = Timestamp::MIN;
        }
        let before = changed.set.bytes();
        changed.set.add(member, at, class, now);
        self.bytes = self.bytes + changed.set.bytes() - before;
    }

    /// Whether there are members of a key, here or among the texts.
    pub(super) fn knows(&self, key: &[u8], texts: &KeyTexts) -> bool {
        self.changed.contains_key(key) || texts.get(key, &self.name()).is_some()
    }

    /// Memory of the members, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all members are written.
    pub(super) fn are_written(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether members are to be written now.
    pub(super) fn are_due(&self, now: Timestamp) -> bool {
        !self.are_written() && (now.as_millis() >= self.due_ms || self.bytes > self.most_bytes)
    }

    /// The next ones that are to be written. They follow the deletions that `texts` has.
    pub(super) fn next_texts(
        &mut self,
        writer: u64,
        texts: &KeyTexts,
        classes: &dyn Classes,
        now: Timestamp,
    ) -> Vec<KeyTextRecord> {
        let name = self.name();
        let (mut next, mut bytes) = (Vec::new(), 0);
        for (key, Changed { set, applied }) in &mut self.changed {
            if bytes >= KAFKA_MEMBERS_AT_ONCE_BYTES {
                break;
            }
            let deleted = texts
                .of_key(key, now)
                .into_iter()
                .filter_map(|(_, text)| Some(MemberText::read(&text)?.deleted));
            if let Some(deleted) = deleted.max().filter(|deleted| *deleted > *applied) {
                self.bytes -= set.bytes();
                set.drop_until(deleted);
                self.bytes += set.bytes();
                *applied = deleted;
            }
            let version = texts.next_version(key, &name, now);
            classes.with(key, &mut |class| {
                let text =
                    MemberText { deleted: Timestamp::MIN, applied: *applied, members: set.write(class) };
                let kept_ms = class.retain().as_millis() + class.exact().as_millis() + KAFKA_SLACK_MS;
                let text = text.write();
                bytes += key.len() + text.len();
                next.push(KeyTextRecord {
                    writer,
                    key: key.clone(),
                    name: name.clone(),
                    version,
                    until_ms: now.as_millis().saturating_add(kept_ms),
                    text: Some(text),
                });
            });
        }
        next
    }

    /// These texts are acknowledged, and no member was added since they were made.
    pub(super) fn written<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>, bytes: usize, now: Timestamp) {
        for key in keys {
            if let Some(changed) = self.changed.remove(key) {
                self.bytes -= KEY_BYTES + key.len() + changed.set.bytes();
            }
        }
        if self.changed.is_empty() {
            let pause_ms = i64::try_from(bytes / KAFKA_MEMBERS_BYTES_A_MS).unwrap_or(i64::MAX);
            let pause_ms = pause_ms.clamp(KAFKA_MEMBERS_EVERY_MS, KAFKA_MEMBERS_SELDOM_MS);
            self.due_ms = now.as_millis().saturating_add(pause_ms);
        }
    }

    /// Drops all members here, and the texts of this node from `texts`. What is written stays in the state topic, and further texts have another name.
    pub(super) fn drop_all(&mut self, texts: &mut KeyTexts) {
        (self.changed, self.bytes) = (HashMap::new(), 0);
        texts.drop_name(&self.name());
        self.number = RandomState::new().hash_one(self.number);
    }
}

#[cfg(test)]
mod tests {
    use lately::{SentMembers, Store, Tier};

    use super::*;

    struct One(Settings);

    impl Classes for One {
        fn with(&self, _: &[u8], call: &mut dyn FnMut(&Settings)) {
            call(&self.0);
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms).expect("a time")
    }

    fn class() -> One {
        One(Settings::builder().unique(true).build().expect("valid"))
    }

    fn hit(member: &[u8], ms: i64) -> MemberOf<'_> {
        MemberOf { key: b"k", member, at: at(ms), is_again: false }
    }

    /// Writes all members.
    fn write(members: &mut RecordMembers, texts: &mut KeyTexts, now: Timestamp) {
        while !members.are_written() {
            let next = members.next_texts(7, texts, &class(), now);
            next.iter().for_each(|text| texts.merge(text.clone()));
            members.written(next.iter().map(|text| &*text.key), 1, now);
        }
    }

    /// The members that readers of the texts count in the default window: the fewest and the most.
    fn count(texts: &KeyTexts, deleted_until: Option<Timestamp>, now: Timestamp) -> (u64, Option<u64>) {
        let store = Store::builder().settings(Settings::builder().unique(true)).build().expect("valid");
        let texts = texts.of_key(b"k", now);
        let texts: Vec<_> = texts.iter().map(|(_, text)| MemberText::read(text).expect("a text")).collect();
        let with_members = texts.iter().filter(|text| !text.members.is_empty());
        let sent = with_members.map(|text| SentMembers {
            bytes: &text.members,
            deleted_until: deleted_until.filter(|deleted| *deleted > text.applied),
        });
        assert_eq!(store.learn_members(b"k", Tier::Local, sent, now).malformed, 0);
        let count = store.unique(b"k", None, now).expect("its class counts members");
        (count.lower, count.upper)
    }

    #[test]
    fn a_key_has_one_text_however_often_it_is_written() {
        let (class, mut members, mut texts) =
            (class(), RecordMembers::new("hits", 4_000), KeyTexts::default());
        for number in 0..60_i64 {
            let member = number.to_string();
            members.add(hit(member.as_bytes(), number), &texts, &class.0, at(number));
            assert!(!members.are_written() && members.bytes() > 0);
            write(&mut members, &mut texts, at(number));
            assert!(members.bytes() == 0 && texts.of_key(b"k", at(number)).len() == 1);
        }
        assert_eq!(count(&texts, None, at(100)), (60, Some(60)));
    }

    #[test]
    fn much_is_written_in_several_steps() {
        let (class, mut members, texts) = (class(), RecordMembers::new("hits", 1 << 20), KeyTexts::default());
        let keys: Vec<String> = (0..3_000).map(|number| format!("{number:01000}")).collect();
        for key in &keys {
            for member in (0..200_u8).map(|number| [number]) {
                let hit = MemberOf { key: key.as_bytes(), ..hit(&member, 0) };
                members.add(hit, &texts, &class.0, at(0));
            }
        }
        let mut steps = 0;
        while !members.are_written() {
            let next = members.next_texts(7, &texts, &class, at(0));
            let bytes = |text: &KeyTextRecord| text.key.len() + text.text.as_ref().map_or(0, String::len);
            assert!(next.iter().map(bytes).sum::<usize>() < KAFKA_MEMBERS_AT_ONCE_BYTES + 32_000);
            members.written(next.iter().map(|text| &*text.key), 1, at(0));
            steps += 1;
        }
        assert!(steps > 1 && members.bytes() == 0, "{steps}");
    }

    #[test]
    fn old_hits_leave_no_member_and_those_ahead_of_the_clock_count_as_of_now() {
        let (class, mut members, mut texts) =
            (class(), RecordMembers::new("hits", 4_000), KeyTexts::default());
        members.add(hit(b"m", -8 * 86_400_000), &texts, &class.0, at(0));
        assert!(members.are_written() && members.bytes() == 0);
        members.add(hit(b"m", 86_400_000), &texts, &class.0, at(0));
        assert!(members.are_due(at(0)));
        write(&mut members, &mut texts, at(0));
        assert_eq!((count(&texts, None, at(0)).0, count(&texts, None, at(400_000)).0), (1, 0));
        members.add(hit(b"m", 1), &texts, &class.0, at(1));
        assert!(!members.are_due(at(999)) && members.are_due(at(1_000)));
    }

    /// A deletion takes the members of before, also those that are read again after it, and no others.
    #[test]
    fn members_follow_deletions() {
        let (class, mut members, mut texts) =
            (class(), RecordMembers::new("hits", 4_000), KeyTexts::default());
        members.add(hit(b"before", 0), &texts, &class.0, at(0));
        write(&mut members, &mut texts, at(0));
        let deletion = MemberText { deleted: at(5_000), applied: at(5_000), members: Vec::new() };
        texts.merge(KeyTextRecord {
            writer: 1,
            key: (*b"k").into(),
            name: "a.1".to_owned(),
            version: 1,
            until_ms: i64::MAX,
            text: Some(deletion.write()),
        });
        assert_eq!(count(&texts, Some(at(5_000)), at(6_000)), (0, Some(0)));
        members.add(hit(b"after", 10_000), &texts, &class.0, at(10_000));
        write(&mut members, &mut texts, at(10_000));
        assert_eq!(members.bytes(), 0);
        assert_eq!(count(&texts, Some(at(5_000)), at(11_000)), (1, Some(1)));
        // The next owner reads the first record again.
        let mut next = RecordMembers::new("hits", 4_000);
        next.add(MemberOf { is_again: true, ..hit(b"before", 0) }, &texts, &class.0, at(12_000));
        write(&mut next, &mut texts, at(12_000));
        assert_eq!(count(&texts, Some(at(5_000)), at(13_000)), (1, Some(1)));
    }
}
