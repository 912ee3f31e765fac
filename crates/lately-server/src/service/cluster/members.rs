//! The distinct members of keys: what this node sends of them, and what it reads of others.
//!
//! For each key with members, every node has a text in the engine, which it alone writes: the members that it has counted. A reader takes the
//! union of all texts. So a text that is lost is written again, and one that is late is replaced.
//!
//! A text says two things about deletions, too. `deleted`: this node has deleted all members that were hit until then. `applied`: the members in this
//! text have followed all deletions up to then. A reader leaves out members of texts that have not followed a deletion yet. A node that reads of
//! a deletion removes its own members, and writes its text anew.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use lately::{DeltaBatch, LearnedMembers, Origin, OwnMembers, SentMembers, Tier, Timestamp};
use lately_engines::{Block, Engine, EngineError, KeyText, MemberText, NamedTexts, OwnedBlock};

use crate::limits::{
    BLOCK_SLACK_MS, MANY_MEMBERS_BYTES, MANY_MEMBERS_EVERY_MS, MAX_CHANGED_MEMBERS, MAX_MEMBER_DELETIONS,
    MEMBER_READ_KEYS, MEMBER_SEND_KEYS,
};
use crate::service::Service;

use super::outgoing::Outgoing;
use super::reconcile::{after, before};
use super::upstream::{Upstream, upstream_of};
use super::worker::{Worker, parts};

/// What is to be sent of the members of keys, and what is known of their deletions.
#[derive(Default)]
pub(super) struct Members {
    /// Keys whose text is to be written.
    changed: HashSet<Box<[u8]>>,
    /// Keys with many members, and when they were sent.
    sent: HashMap<Box<[u8]>, Timestamp>,
    deletions: HashMap<Box<[u8]>, Deletions>,
}

/// The deletions of a key's members.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Deletions {
    times: Times,
    /// The latest deletion by another data centre that is known here, or that was followed here.
    latest: Timestamp,
    /// Texts of earlier starts of this node, which go when its own is written.
    former: Vec<Origin>,
}

/// Up to when members are deleted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Times {
    /// Deleted by this node.
    deleted: Timestamp,
    /// The members here have followed all deletions until then.
    applied: Timestamp,
}

impl Times {
    /// The times of a text with these members. They have followed what was deleted before the first of them was counted.
    fn with(self, own: Option<OwnMembers>) -> MemberText {
        let OwnMembers { bytes, since } = own.unwrap_or_default();
        MemberText { deleted: self.deleted, applied: self.applied.max(since), members: bytes }
    }
}

impl Deletions {
    /// Notes a deletion that own members have followed.
    fn follow(&mut self, until: Timestamp) {
        self.latest = self.latest.max(until);
        self.times.applied = self.times.applied.max(until);
    }
}

/// What all nodes say of the members of a key.
#[derive(Default)]
struct Texts {
    own: Vec<(Origin, MemberText)>,
    others: Vec<(Origin, MemberText)>,
    /// How many texts no node wrote.
    malformed: usize,
}

impl Texts {
    fn read(texts: NamedTexts, outgoing: &Outgoing) -> Texts {
        let mut all = Texts::default();
        for (name, text) in texts {
            match (name.parse::<Origin>(), MemberText::read(&text)) {
                (Ok(origin), Some(text)) if outgoing.is_own(&origin) => all.own.push((origin, text)),
                (Ok(origin), Some(text)) => all.others.push((origin, text)),
                _ => all.malformed += 1,
            }
        }
        all
    }

    /// Until when any node has deleted the members.
    fn deleted(&self) -> Timestamp {
        let texts = self.own.iter().chain(&self.others);
        texts.map(|(_, text)| text.deleted).max().unwrap_or(Timestamp::MIN)
    }

    /// Learns the members of other nodes, as far as they are not deleted.
    fn learn(
        &self,
        service: &Service,
        (key, tier): (&[u8], Tier),
        deleted: Timestamp,
        now: Timestamp,
    ) -> Learned<'_> {
        let of_others: Vec<_> = self.others.iter().filter(|(_, text)| !text.members.is_empty()).collect();
        let sent = of_others.iter().map(|(_, text)| SentMembers {
            bytes: &text.members,
            deleted_until: Some(deleted).filter(|deleted| *deleted > text.applied),
        });
        let LearnedMembers { malformed, expired, .. } = service.store.learn_members(key, tier, sent, now);
        let malformed = self.malformed + malformed;
        let key = String::from_utf8_lossy(key).escape_debug().to_string();
        let left_out = (malformed > 0).then(|| {
            format!("the members of other nodes on '{key}' are left out: {malformed} texts in the engine cannot be read")
        });
        Learned { left_out, expired: expired.into_iter().map(|number| of_others[number]).collect() }
    }
}

/// What came of learning members.
struct Learned<'t> {
    /// What was left out, and why.
    left_out: Option<String>,
    /// Texts whose members are all older than the retention.
    expired: Vec<&'t (Origin, MemberText)>,
}

/// Of these keys, those whose class counts members.
fn with_members<'k>(service: &Service, keys: impl Iterator<Item = &'k [u8]>) -> Vec<&'k [u8]> {
    keys.filter(|key| service.store.settings_of(key).unique()).collect()
}

/// How long an engine keeps the texts about a key.
fn keep_until(service: &Service, key: &[u8], now: Timestamp) -> Timestamp {
    let settings = service.store.settings_of(key);
    after(now, settings.retain().as_millis() + settings.exact().as_millis() + BLOCK_SLACK_MS)
}

/// Why an engine refuses the texts about some keys. Everything else goes on. An engine that is away is an error.
fn refusal(error: EngineError) -> Result<String, EngineError> {
    match error {
        EngineError::Away(_) => Err(error),
        refused => Ok(format!("the members of some keys are not exchanged: {refused}")),
    }
}

/// The texts about keys. Those of a key that are refused, because somebody else has written there, are left out, and it is said why.
async fn texts_of<'k>(
    engine: &mut impl Engine,
    keys: &[&'k [u8]],
) -> Result<(Vec<(&'k [u8], NamedTexts)>, Option<String>), EngineError> {
    let refused = match engine.key_texts(keys).await {
        Ok(texts) => return Ok((keys.iter().copied().zip(texts).collect(), None)),
        Err(error) => refusal(error)?,
    };
    let mut all = Vec::with_capacity(keys.len());
    for &key in keys {
        match engine.key_texts(&[key]).await {
            Ok(texts) => all.extend(texts.into_iter().map(|texts| (key, texts))),
            Err(error) => _ = refusal(error)?,
        }
    }
    Ok((all, Some(refused)))
}

/// Reads the members that other data centres have counted of these keys. Returns what was left out.
pub(super) async fn read_above(
    engine: &mut impl Engine,
    service: &Service,
    keys: impl Iterator<Item = &[u8]>,
    now: Timestamp,
) -> Result<Option<String>, EngineError> {
    let keys = with_members(service, keys);
    let mut left_out = None;
    if !engine.carries_key_texts() {
        return Ok(left_out);
    }
    for keys in keys.chunks(MEMBER_READ_KEYS) {
        let (texts, refused) = texts_of(engine, keys).await?;
        left_out = refused.or(left_out);
        for (key, texts) in texts {
            let texts = Texts::read(texts, parts(service).1);
            let deleted = texts.deleted();
            if deleted > Timestamp::MIN {
                upstream_of(service).note_deleted_members(key, deleted);
            }
            left_out = texts.learn(service, (key, Tier::Upstream), deleted, now).left_out.or(left_out);
        }
    }
    Ok(left_out)
}

/// Copies the texts about the keys of blocks from the engine of a data centre to the upstream one.
pub(super) async fn copy_up(
    (local, upstream): (&mut impl Engine, &mut impl Engine),
    service: &Service,
    blocks: &[OwnedBlock],
    now: Timestamp,
) -> Result<(), EngineError> {
    let keys: BTreeSet<&[u8]> = blocks.iter().map(|block| &*block.key).collect();
    let keys = with_members(service, keys.into_iter());
    if !local.carries_key_texts() || !upstream.carries_key_texts() {
        return Ok(());
    }
    for keys in keys.chunks(MEMBER_READ_KEYS) {
        let (all, _) = texts_of(local, keys).await?;
        let texts = all.iter().flat_map(|(key, texts)| texts.iter().map(|text| (*key, text)));
        // What no node wrote stays where it is.
        let is_ours =
            |name: &str, text: &str| name.parse::<Origin>().is_ok() && MemberText::read(text).is_some();
        let texts = texts.filter(|(_, (name, text))| is_ours(name, text)).map(|(key, (name, text))| {
            KeyText { key, name, text: Some(text), keep_until: keep_until(service, key, now) }
        });
        // A text that is refused holds nothing up. Whoever reads it says so.
        upstream.set_key_texts(&texts.collect::<Vec<_>>()).await.or_else(|error| refusal(error).map(drop))?;
    }
    Ok(())
}

impl Members {
    /// Notes that the members of a key may have changed, or may be missing in the engine.
    pub(super) fn note(&mut self, key: &[u8], service: &Service) {
        if service.store.settings_of(key).unique() && self.changed.len() < MAX_CHANGED_MEMBERS {
            self.changed.insert(key.into());
        }
    }

    /// Whether there is little room to note more.
    pub(super) fn is_almost_full(&self) -> bool {
        self.changed.len() >= MAX_CHANGED_MEMBERS / 2
    }

    /// Takes the keys that are due. Those with many members are sent now and then, unless it is for `all`.
    fn take_due(&mut self, all: bool, now: Timestamp) -> Vec<Box<[u8]>> {
        let earliest = before(now, MANY_MEMBERS_EVERY_MS);
        self.sent.retain(|_, at| *at > earliest);
        let sent = &self.sent;
        self.changed.extract_if(|key| all || !sent.contains_key(key)).collect()
    }

    fn times(&self, key: &[u8]) -> Times {
        self.deletions.get(key).map_or_else(Times::default, |deletions| deletions.times)
    }

    /// Changes what is known of the deletions of a key. The memory is bounded: then the oldest deletions are forgotten.
    fn change(&mut self, key: &[u8], change: impl FnOnce(&mut Deletions)) {
        if self.deletions.len() >= MAX_MEMBER_DELETIONS && !self.deletions.contains_key(key) {
            let mut times: Vec<_> =
                self.deletions.values().map(|deletions| deletions.times.applied).collect();
            let oldest = *times.select_nth_unstable(MAX_MEMBER_DELETIONS / 8).1;
            let mut left = MAX_MEMBER_DELETIONS / 8;
            self.deletions.retain(|_, deletions| {
                let goes = deletions.times.applied <= oldest && left > 0;
                left -= usize::from(goes);
                !goes
            });
        }
        change(self.deletions.entry(key.into()).or_default());
    }
}

impl<E: Engine> Worker<E> {
    /// Sends the members of keys that have changed. Those of all of them with `all`, although some were sent a moment ago.
    pub(super) async fn send_members(&mut self, all: bool) -> Result<(), EngineError> {
        let (service, now) = (Arc::clone(&self.service), self.service.now());
        let elsewhere = parts(&service).0.upstream.as_ref().map(Upstream::take_deleted_members);
        for (key, until) in elsewhere.into_iter().flatten() {
            if self.has_followed(&key, until, now) {
                self.members.change(&key, |deletions| deletions.latest = deletions.latest.max(until));
            } else {
                self.drop_members(&key, until, now)?;
            }
        }
        let due = self.members.take_due(all, now);
        let mut sent = Ok(());
        for keys in due.chunks(MEMBER_SEND_KEYS) {
            if sent.is_ok() {
                sent = self.send_members_of(keys, now).await;
            }
            if sent.is_err() {
                // What failed may arrive late, and replace what is sent meanwhile. So it is sent once more when it has.
                self.members.changed.extend(keys.iter().cloned());
                keys.iter().for_each(|key| self.reconcile.note_older(key));
            }
        }
        // One text may have been refused. Hits are exchanged nevertheless.
        if let Err(error) = sent {
            self.warning = Some(refusal(error)?);
        }
        Ok(())
    }

    async fn send_members_of(&mut self, keys: &[Box<[u8]>], now: Timestamp) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        let origin = outgoing.origin().to_string();
        let (mut texts, mut removed) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys {
            if outgoing.is_deleted(key) {
                // The deletion goes first, and sends them.
                continue;
            }
            let text = self.members.times(key).with(service.store.own_members(key, now));
            if let Some(deletions) = self.members.deletions.get_mut(&**key) {
                let former = mem::take(&mut deletions.former);
                removed.extend(former.into_iter().map(|origin| (key, origin.to_string())));
            }
            let is_empty = text.members.is_empty() && text.deleted == Timestamp::MIN;
            let text = (!is_empty).then(|| text.write());
            if text.as_ref().is_some_and(|text| text.len() > MANY_MEMBERS_BYTES) {
                self.members.sent.insert(key.clone(), now);
            }
            texts.push((key, text));
        }
        let keep_until = |key: &[u8]| keep_until(&service, key, now);
        let own = texts.iter().map(|(key, text)| KeyText {
            key,
            name: &origin,
            text: text.as_deref(),
            keep_until: keep_until(key),
        });
        self.engine.set_key_texts(&own.collect::<Vec<_>>()).await?;
        self.note_texts(keys.iter().map(|key| &**key), now).await?;
        // What earlier starts had sent is in the texts of this one by now.
        let former =
            removed.iter().map(|(key, name)| KeyText { key, name, text: None, keep_until: keep_until(key) });
        let former: Vec<_> = former.collect();
        if former.is_empty() { Ok(()) } else { self.engine.set_key_texts(&former).await }
    }

    /// Tells the engine that the members of keys were deleted at these times.
    pub(super) async fn delete_members(
        &mut self,
        deleted: &[(&[u8], Timestamp)],
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if !self.engine.carries_key_texts() {
            return Ok(());
        }
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        let origin = outgoing.origin().to_string();
        let mut texts = Vec::new();
        for &(key, at) in deleted.iter().filter(|(key, _)| service.store.settings_of(key).unique()) {
            self.members.change(key, |deletions| {
                deletions.follow(at);
                deletions.times.deleted = deletions.times.deleted.max(at);
            });
            let text = self.members.times(key).with(service.store.own_members(key, now));
            texts.push((key, text.write()));
        }
        let written = texts.iter().map(|(key, text)| KeyText {
            key,
            name: &origin,
            text: Some(text),
            keep_until: keep_until(&service, key, now),
        });
        if let Err(error) = self.engine.set_key_texts(&written.collect::<Vec<_>>()).await {
            // The deletion of the hits goes on. That of the members is in the texts that are sent next.
            self.warning = Some(refusal(error)?);
            texts.iter().for_each(|(key, _)| self.members.note(key, &service));
        }
        self.note_texts(texts.iter().map(|(key, _)| *key), now).await
    }

    /// Notes that texts about keys were written, for the node that copies them upstream: it copies the texts of all keys whose blocks are noted.
    async fn note_texts(
        &mut self,
        keys: impl Iterator<Item = &[u8]>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        if parts(&service).0.upstream.is_none() {
            return Ok(());
        }
        let block = |key| {
            let sets = service.store.level_sets(key);
            let finest = sets.own().as_slice().first().map(|level| level.cell(now))?;
            Some(Block::of(key, sets.own().id(), finest))
        };
        self.engine.note_changed(&keys.filter_map(block).collect::<Vec<_>>()).await
    }

    /// Reads the members that others have counted of these keys, and follows the deletions of others. Only the deletions of keys that nobody
    /// reads here: then `is_learned` is false. Keys whose class does not count members are left out.
    pub(super) async fn read_members(
        &mut self,
        keys: impl Iterator<Item = &[u8]>,
        is_learned: bool,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if !self.engine.carries_key_texts() {
            return Ok(());
        }
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        let keys = with_members(&service, keys);
        for keys in keys.chunks(MEMBER_READ_KEYS) {
            let (texts, refused) = texts_of(&mut self.engine, keys).await?;
            self.warning = refused.or(self.warning.take());
            for (key, texts) in texts {
                let texts = Texts::read(texts, outgoing);
                let deleted = self.follow_deletion(key, &texts, now)?;
                if is_learned {
                    let Learned { left_out, expired } =
                        texts.learn(&service, (key, Tier::Local), deleted, now);
                    self.warning = left_out.or(self.warning.take());
                    self.remove_texts(key, &expired, now).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes texts of nodes that are gone for good, which nobody needs: as long as other nodes write about the key, an engine may keep them.
    async fn remove_texts(
        &mut self,
        key: &[u8],
        expired: &[&(Origin, MemberText)],
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let cluster = parts(&service).0;
        let sets = service.store.level_sets(key);
        // Another class may keep the members for longer.
        if expired.is_empty() || sets.others().any(|levels| levels.retain_ms() > sets.own().retain_ms()) {
            return Ok(());
        }
        let goes = |(origin, text): &&&(Origin, MemberText)| {
            keep_until(&service, key, text.deleted) < now && cluster.is_gone(origin, now)
        };
        let names: Vec<_> = expired.iter().filter(goes).map(|(origin, _)| origin.to_string()).collect();
        let keep_until = keep_until(&service, key, now);
        let removed: Vec<_> =
            names.iter().map(|name| KeyText { key, name, text: None, keep_until }).collect();
        if removed.is_empty() { Ok(()) } else { self.engine.set_key_texts(&removed).await }
    }

    /// Removes own members that other nodes have deleted. Returns until when the members of all nodes are deleted.
    fn follow_deletion(
        &mut self,
        key: &[u8],
        texts: &Texts,
        now: Timestamp,
    ) -> Result<Timestamp, EngineError> {
        let service = Arc::clone(&self.service);
        let outgoing = parts(&service).1;
        self.note_former(key, texts, &outgoing.origin());
        let deleted = texts.deleted();
        if !self.has_followed(key, deleted, now) {
            self.drop_members(key, deleted, now)?;
        }
        // A deletion that waits has removed own members already.
        let deleted = self.members.deletions.get(key).map_or(deleted, |known| known.latest.max(deleted));
        Ok(outgoing.deleted_at(key).map_or(deleted, |at| deleted.max(at)))
    }

    /// Whether own members have followed the deletions until a time.
    fn has_followed(&self, key: &[u8], until: Timestamp, now: Timestamp) -> bool {
        let times = self.members.times(key);
        times.applied >= until || times.with(self.service.store.own_members(key, now)).applied >= until
    }

    /// Takes over what earlier starts of this node say of deletions. Their members are in the store.
    fn note_former(&mut self, key: &[u8], texts: &Texts, origin: &Origin) {
        let former = || texts.own.iter().filter(|(of, _)| of != origin);
        if former().next().is_none() {
            return;
        }
        self.members.change(key, |Deletions { times, latest, former: names }| {
            for (_, text) in former() {
                times.deleted = times.deleted.max(text.deleted);
                times.applied = times.applied.max(text.applied);
            }
            *latest = times.deleted.max(*latest);
            *names = former().map(|(of, _)| of.clone()).collect();
        });
        self.members.changed.insert(key.into());
    }

    /// Removes own members that were hit until another node has deleted them.
    fn drop_members(&mut self, key: &[u8], until: Timestamp, now: Timestamp) -> Result<(), EngineError> {
        let service = Arc::clone(&self.service);
        let mut deltas = DeltaBatch::default();
        {
            let _entered = service.enter();
            service.store.drop_members(key, until, now, &mut deltas);
        }
        service.commit_through(&deltas).map_err(|refused| EngineError::Away(refused.to_string()))?;
        self.members.change(key, |deletions| deletions.follow(until));
        self.members.changed.insert(key.into());
        Ok(())
    }
}
