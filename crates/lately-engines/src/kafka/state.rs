//! What a node knows from the state topic. Pure: it does no I/O, and time is passed in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lately::{Origin, Settings, Timestamp};

use crate::limits::{
    KAFKA_ASKED_WITHIN_MS, KAFKA_IDS_FORGOTTEN_AT_ONCE, KAFKA_IDS_PART, KAFKA_MEMBERS_PART, KAFKA_PARTS,
    KAFKA_TEXTS_PART, KAFKA_TIDIED_TEXTS, MAX_PEER_TEXTS, MAX_PEER_TEXTS_BYTES,
};
use crate::{VisitRecords, Write};

use super::config::Classes;
use super::counts::{BlockId, Count, Counts, NoRoom};
use super::key_texts::KeyTexts;
use super::partition::Partition;
use super::record_members::{MemberOf, RecordMembers};
use super::state_record::{KeyTextRecord, StateRecord};

/// What is known.
pub(super) struct State {
    pub(super) counts: Counts,
    /// The name under which hits of the topic are counted. The incarnation is the partition.
    topic: String,
    /// The numbers under which this node has written since its start.
    writers: Vec<u64>,
    partitions: BTreeMap<i32, Partition>,
    /// The partitions whose counts are kept. `None`: all counts are.
    kept: Option<BTreeSet<i32>>,
    /// Whether this node counts records, and needs the ids of those that were counted.
    keeps_ids: bool,
    /// Ids that were forgotten early, because they took too much memory.
    pub(super) forgotten_ids: u64,
    texts: BTreeMap<(u8, String), (i64, String)>,
    texts_bytes: usize,
    pub(super) key_texts: KeyTexts,
    /// The members of records that this node has counted.
    pub(super) members: RecordMembers,
    /// For each name of a node, the servers that claim it, the first one first, and until when.
    claims: HashMap<String, Vec<(String, i64)>>,
    /// The last number of this node that was read in each partition of the state topic.
    nonces: HashMap<i32, u64>,
    /// Records that no node of this version has written.
    pub(super) foreign: u64,
    /// Texts about keys for which there was no room.
    pub(super) refused_texts: u64,
    /// Members of records for which there was no room.
    pub(super) refused_members: u64,
}

impl State {
    /// Nothing is known yet. The counts take about `most_bytes` at most.
    pub(super) fn new(topic: &str, most_bytes: usize) -> State {
        State {
            counts: Counts::new(most_bytes),
            topic: topic.to_owned(),
            writers: Vec::new(),
            partitions: BTreeMap::new(),
            kept: None,
            keeps_ids: true,
            forgotten_ids: 0,
            texts: BTreeMap::new(),
            texts_bytes: 0,
            key_texts: KeyTexts::default(),
            members: RecordMembers::new(topic, most_bytes / KAFKA_MEMBERS_PART),
            claims: HashMap::new(),
            nonces: HashMap::new(),
            foreign: 0,
            refused_texts: 0,
            refused_members: 0,
        }
    }

    /// Leaves out the ids of counted hits: this node counts no records.
    pub(super) fn keep_no_ids(&mut self) {
        self.keeps_ids = false;
    }

    /// Leaves out all counts but those of partitions that are given to [`State::keep`].
    pub(super) fn keep_some_only(&mut self) {
        self.kept = Some(BTreeSet::new());
    }

    /// Whether only the counts of some partitions are kept.
    pub(super) fn keeps_some_only(&self) -> bool {
        self.kept.is_some()
    }

    /// Keeps the counts of a partition from now on. What was read before was left out: the partition of the state topic that has them is to
    /// be read again.
    pub(super) fn keep(&mut self, partition: i32) {
        self.kept.iter_mut().for_each(|kept| _ = kept.insert(partition));
    }

    /// Leaves out the counts of a partition from now on, and drops those that are there.
    pub(super) fn drop_partition(&mut self, partition: i32) {
        let Some(kept) = &mut self.kept else { return };
        kept.remove(&partition);
        if kept.is_empty() {
            // The next owner reads the records whose members are not written.
            self.members.drop_all(&mut self.key_texts);
        }
        if self.partitions.remove(&partition).is_some()
            && let Ok(origin) = self.counts.origin(&self.origin(partition))
        {
            self.counts.drop_origin(origin);
            self.bound_ids();
        }
    }

    fn keeps(&self, partition: i32) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.contains(&partition))
    }

    /// A partition of the state topic is read from its beginning again.
    pub(super) fn reread(&mut self, partition: i32) {
        self.nonces.remove(&partition);
    }

    /// This node writes under a number from now on. It must differ from those of all others, also of earlier starts.
    pub(super) fn add_writer(&mut self, writer: u64) {
        self.writers.push(writer);
    }

    /// The origin of a partition of the hits topic.
    fn origin(&self, partition: i32) -> Origin {
        let number = u64::try_from(partition).expect("a number of a partition");
        Origin::new(&self.topic, number).expect("the name was checked")
    }

    /// Whether an origin is a partition of the hits topic.
    fn is_partition(&self, origin: &Origin) -> bool {
        origin.node() == self.topic
    }

    /// A partition of the hits topic, and all counts.
    ///
    /// # Errors
    /// [`NoRoom`]: there are too many origins.
    pub(super) fn partition(&mut self, number: i32) -> Result<(&mut Partition, &mut Counts), NoRoom> {
        if !self.partitions.contains_key(&number) {
            let origin = self.counts.origin(&self.origin(number))?;
            self.partitions.insert(number, Partition::new(number, origin));
        }
        Ok((self.partitions.get_mut(&number).expect("it is there"), &mut self.counts))
    }

    /// Visits keys with records that this node counts: those of a page. Returns whether there are more pages.
    pub(super) fn visit_records(&self, page: usize, visit: &mut VisitRecords<'_>) -> bool {
        let origins: Vec<_> = self.partitions.values().filter_map(Partition::owned_origin).collect();
        !origins.is_empty() && self.counts.visit(page, &origins, visit)
    }

    /// Merges a record of a partition of the state topic.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing is merged. It must be merged before the next one.
    pub(super) fn merge(
        &mut self,
        from: i32,
        (key, value): (&[u8], Option<&[u8]>),
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        match StateRecord::read(key, value) {
            Some(record) => self.merge_record(from, record, now),
            None => {
                self.foreign += 1;
                Ok(())
            }
        }
    }

    /// Merges a record that was read before. Claims and texts of lists were taken then: a claim lasts from when it is first read.
    ///
    /// # Errors
    /// Those of [`State::merge`].
    pub(super) fn merge_again(
        &mut self,
        from: i32,
        (key, value): (&[u8], Option<&[u8]>),
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        match StateRecord::read(key, value) {
            None | Some(StateRecord::Claim { .. } | StateRecord::Text { .. }) => Ok(()),
            Some(record) => self.merge_record(from, record, now),
        }
    }

    fn merge_record(&mut self, from: i32, record: StateRecord, now: Timestamp) -> Result<(), NoRoom> {
        match record {
            StateRecord::Hits { partition, .. }
            | StateRecord::Ids { partition, .. }
            | StateRecord::Complete { partition, .. }
                if !self.keeps(partition) => {}
            StateRecord::Ids { .. } if !self.keeps_ids => {}
            StateRecord::Ids { partition, first, last, ids } => {
                self.partition(partition)?.0.note_ids((first, last), ids.as_deref());
                self.bound_ids();
            }
            StateRecord::Counts { .. } if self.kept.is_some() => {}
            StateRecord::Hits { partition, block, until, keep_until_ms, counts, .. } => {
                let origin = self.origin(partition);
                let counts: Vec<Count> = counts
                    .into_iter()
                    .map(|(place, counted)| Count {
                        place,
                        tally: lately::Tally { counted, deleted: 0 },
                        removed: 0,
                    })
                    .collect();
                self.counts.merge(&block.as_block(), &origin, &counts, keep_until_ms, now)?;
                // Hits of others are not counted any more.
                if keep_until_ms >= now.as_millis() {
                    let id = BlockId::from(&block.as_block());
                    self.partition(partition)?.0.note_hits(&block.key, id, until);
                }
            }
            StateRecord::Complete { partition, until, members_until, .. } => {
                self.partition(partition)?.0.note_complete(until, members_until);
            }
            StateRecord::Counts { origin, block, keep_until_ms, counts, .. } => {
                self.counts.merge(&block.as_block(), &origin, &counts, keep_until_ms, now)?;
            }
            StateRecord::Nonce { writer, nonce } => {
                // An old one says nothing: the topic may have been compacted since.
                let age_ms = now.as_millis().saturating_sub_unsigned(nonce);
                if self.writers.contains(&writer) && age_ms <= KAFKA_ASKED_WITHIN_MS {
                    self.nonces.insert(from, nonce);
                }
            }
            StateRecord::Text { list, name, text } => self.set_text(list, name, text),
            StateRecord::KeyText(_) if self.kept.is_some() => {}
            StateRecord::KeyText(record) => {
                // It is written again within the hour. Counts do not wait for that.
                self.refused_texts += u64::from(self.set_key_text(record, now).is_err());
            }
            StateRecord::Claim { node, holder, lasts_ms } => {
                let until_ms = lasts_ms.map(|lasts_ms| {
                    now.as_millis().saturating_add(i64::try_from(lasts_ms).unwrap_or(i64::MAX))
                });
                self.claim(node, holder, until_ms, now);
            }
        }
        Ok(())
    }

    /// Merges counts of this node, and marks of deleted hits. Returns what the writer is to write of these blocks.
    ///
    /// # Errors
    /// [`NoRoom`]: some of it is not merged.
    pub(super) fn write(
        &mut self,
        writes: &[Write<'_>],
        writer: u64,
        now: Timestamp,
    ) -> Result<Vec<StateRecord>, NoRoom> {
        let mut records = Vec::with_capacity(writes.len());
        for Write { block, keep_until, counts } in writes {
            let mut origins: Vec<(&Origin, Vec<Count>)> = Vec::new();
            for known in counts {
                let (_, place) = BlockId::of(known.levels, known.cell);
                let mut count = Count { place, tally: known.tally, removed: known.removed };
                if self.is_partition(&known.origin) {
                    // Only who counts the partition says how many hits it has, and up to which record.
                    count.tally.counted = 0;
                }
                match origins.iter_mut().find(|(origin, _)| **origin == known.origin) {
                    Some((_, counts)) => counts.push(count),
                    None => origins.push((&known.origin, vec![count])),
                }
            }
            for (origin, counts) in origins {
                self.counts.merge(block, origin, &counts, keep_until.as_millis(), now)?;
                let number = self.counts.origin(origin)?;
                let Some((mut counts, keep_until_ms)) = self.counts.of_origin(block, number) else {
                    continue;
                };
                if self.is_partition(origin) {
                    counts.iter_mut().for_each(|count| count.tally.counted = 0);
                    counts.retain(|count| count.tally.deleted > 0 || count.removed > 0);
                }
                records.push(StateRecord::Counts {
                    writer,
                    origin: origin.clone(),
                    block: (*block).into(),
                    keep_until_ms,
                    counts,
                });
            }
        }
        Ok(records)
    }

    /// Takes a text of this node before it is read.
    pub(super) fn merge_own_text(&mut self, record: StateRecord) {
        if let StateRecord::Text { list, name, text } = record {
            self.set_text(list, name, text);
        }
    }

    fn set_text(&mut self, list: u8, name: String, text: Option<(i64, String)>) {
        let key = (list, name);
        let bytes = |text: &str, key: &(u8, String)| text.len() + key.1.len();
        if let Some((_, held)) = self.texts.remove(&key) {
            self.texts_bytes -= bytes(&held, &key);
        }
        let Some((until_ms, text)) = text else { return };
        let more = bytes(&text, &key);
        if self.texts.len() < MAX_PEER_TEXTS && self.texts_bytes + more <= MAX_PEER_TEXTS_BYTES {
            self.texts_bytes += more;
            self.texts.insert(key, (until_ms, text));
        }
    }

    /// Takes a text about a key.
    ///
    /// # Errors
    /// [`NoRoom`]: it is not taken.
    pub(super) fn set_key_text(&mut self, record: KeyTextRecord, now: Timestamp) -> Result<(), NoRoom> {
        let Some(growth) = self.key_texts.growth(&record) else { return Ok(()) };
        if record.until_ms <= now.as_millis() && !self.key_texts.has(&record) {
            return Ok(());
        }
        let held_bytes = self.counts.held_bytes().saturating_add_signed(growth);
        if growth > 0 && held_bytes > self.counts.most_bytes() {
            return Err(NoRoom);
        }
        self.key_texts.merge(record);
        self.charge();
        Ok(())
    }

    /// Adds the member of a hit that counts. If texts take their part of the memory, keys without members get none.
    pub(super) fn add_member(&mut self, member: MemberOf<'_>, class: &Settings, now: Timestamp) {
        let bytes = self.key_texts.bytes() + self.members.bytes();
        if bytes > self.counts.most_bytes() / KAFKA_TEXTS_PART
            && !self.members.knows(member.key, &self.key_texts)
        {
            self.refused_members += 1;
            return;
        }
        self.members.add(member, &self.key_texts, class, now);
    }

    /// The next members of records that are to be written. The texts are taken here, too.
    pub(super) fn member_texts(
        &mut self,
        writer: u64,
        classes: &dyn Classes,
        now: Timestamp,
    ) -> Vec<KeyTextRecord> {
        let texts = self.members.next_texts(writer, &self.key_texts, classes, now);
        for text in &texts {
            // Whoever has no room for the text of a key would write the next one without it.
            self.key_texts.merge(text.clone());
        }
        self.charge();
        texts
    }

    /// The names and texts of a list.
    pub(super) fn texts(&self, list: u8, now: Timestamp) -> Vec<(String, String)> {
        let of_list = self.texts.range((list, String::new())..).take_while(|((of, _), _)| *of == list);
        let live = of_list.filter(|(_, (until_ms, _))| *until_ms > now.as_millis());
        live.map(|((_, name), (_, text))| (name.clone(), text.clone())).collect()
    }

    fn claim(&mut self, node: String, holder: String, until_ms: Option<i64>, now: Timestamp) {
        let holders = self.claims.entry(node).or_default();
        holders.retain(|(held, until_ms)| *held == holder || *until_ms > now.as_millis());
        let held = holders.iter_mut().position(|(held, _)| *held == holder);
        match (until_ms, held) {
            (Some(until_ms), Some(held)) => holders[held].1 = until_ms,
            (Some(until_ms), None) => holders.push((holder, until_ms)),
            (None, Some(held)) => _ = holders.remove(held),
            (None, None) => {}
        }
        self.claims.retain(|_, holders| !holders.is_empty());
    }

    /// The servers that claim the name of a node, the first one first.
    pub(super) fn holders(&self, node: &str, now: Timestamp) -> Vec<String> {
        let holders = self.claims.get(node).into_iter().flatten();
        let live = holders.filter(|(_, until_ms)| *until_ms > now.as_millis());
        live.map(|(holder, _)| holder.clone()).collect()
    }

    /// The last number of this node that was read in a partition of the state topic.
    pub(super) fn nonce(&self, partition: i32) -> u64 {
        self.nonces.get(&partition).copied().unwrap_or(0)
    }

    /// Charges the memory of all ids. If they take too much, those that would be over next are forgotten.
    pub(super) fn bound_ids(&mut self) {
        let most_bytes = self.counts.most_bytes() / KAFKA_IDS_PART;
        while self.ids_bytes() > most_bytes {
            let mut ends_ms: Vec<i64> =
                self.partitions.values().flat_map(|partition| partition.ids().ends_ms()).collect();
            let forgotten = ends_ms.len() / KAFKA_IDS_FORGOTTEN_AT_ONCE;
            let until_ms =
                if ends_ms.is_empty() { i64::MAX } else { *ends_ms.select_nth_unstable(forgotten).1 };
            let partitions = self.partitions.values_mut();
            let forgotten: usize = partitions.map(|partition| partition.forget_ids(until_ms)).sum();
            self.forgotten_ids += forgotten as u64;
        }
        self.charge();
    }

    fn ids_bytes(&self) -> usize {
        self.partitions.values().map(|partition| partition.ids().bytes()).sum()
    }

    /// Charges what is held beside the counts.
    fn charge(&mut self) {
        self.counts.charge(self.ids_bytes() + self.key_texts.bytes() + self.members.bytes());
    }

    /// Drops what is over, of some parts of the counts.
    pub(super) fn tidy(&mut self, parts: usize, now: Timestamp) {
        self.counts.tidy(parts, now);
        self.partitions.values_mut().for_each(|partition| partition.tidy_ids(KAFKA_PARTS / parts.max(1)));
        self.key_texts.tidy(KAFKA_TIDIED_TEXTS * parts, now);
        self.bound_ids();
        let texts_bytes = &mut self.texts_bytes;
        self.texts.retain(|(_, name), (until_ms, text)| {
            let is_kept = *until_ms > now.as_millis();
            *texts_bytes -= if is_kept { 0 } else { name.len() + text.len() };
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids::{CountedId, Fingerprint};
    use super::*;

    #[test]
    fn ids_take_their_part_of_the_memory_at_most() {
        let (most_bytes, now) = (1 << 20, Timestamp::from_millis(1_000_000).expect("a time"));
        let mut state = State::new("hits", most_bytes);
        let mut all = 0;
        let known =
            |state: &State| state.partitions.values().map(|partition| partition.ids().len()).sum::<usize>();
        for batch in 0..100 {
            for partition in 0..2 {
                // Later ones are over later, and none is over yet.
                let id = |number: i64| CountedId {
                    fingerprint: Fingerprint(number.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    offset: 100 * batch + number,
                    at_ms: batch,
                    time_ms: batch,
                    until_ms: 1_000 + 100 * batch + number,
                };
                let ids = Some((0..100).map(id).collect());
                let (first, last) = (100 * batch, 100 * batch + 99);
                let record = StateRecord::Ids { partition, first, last, ids };
                let (key, value) = (record.key(), record.value());
                state.merge(0, (&key, value.as_deref()), now).expect("there is room");
                all += 100;
                let bytes = state.counts.held_bytes();
                assert!(bytes <= most_bytes / 2 && bytes / 100 < known(&state), "{bytes}");
            }
        }
        assert!(state.forgotten_ids > 0 && state.forgotten_ids == all - known(&state) as u64);
        // The oldest are forgotten.
        let ends = state.partitions.values().flat_map(|partition| partition.ids().ends_ms());
        let oldest_ms = ends.min().expect("some are known");
        let [known, most] = [known(&state), 2 * usize::try_from(11_000 - oldest_ms).expect("small")];
        assert!(known == most, "{known} of {most}");
        // A node that counts no records has none.
        let mut state = State::new("hits", most_bytes);
        state.keep_no_ids();
        let record = StateRecord::Ids { partition: 0, first: 0, last: 0, ids: Some(Vec::new()) };
        let (key, value) = (record.key(), record.value());
        state.merge(0, (&key, value.as_deref()), now).expect("there is room");
        assert!(state.partitions.is_empty());
    }

    /// Symptom: a node that only counts waited for its own name for longer than five seconds after it was killed. Cause: it read the claim of
    /// its former start again whenever it got a partition. Fix: claims are taken once.
    #[test]
    fn a_claim_lasts_from_when_it_is_first_read() {
        let at = |ms: i64| Timestamp::from_millis(ms).expect("a time");
        let claim =
            StateRecord::Claim { node: "a".to_owned(), holder: "dead".to_owned(), lasts_ms: Some(5_000) };
        let (key, value) = (claim.key(), claim.value());
        let mut state = State::new("hits", 1 << 20);
        state.merge(0, (&key, value.as_deref()), at(10_000)).expect("there is room");
        assert_eq!(state.holders("a", at(14_999)), ["dead"]);
        state.merge_again(0, (&key, value.as_deref()), at(14_000)).expect("there is room");
        assert!(state.holders("a", at(15_000)).is_empty());
    }
}
