//! An engine in the memory of one process, for tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lately::{Cell, Origin};

use crate::{Block, Engine, EngineError, KeyText, Known, List, NamedTexts, OwnedBlock, Place, Told, Write};

/// An engine that keeps counts until it is dropped. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    blocks: Arc<Mutex<Blocks>>,
    /// The holder of each node's name. Claims never expire here.
    holders: Arc<Mutex<HashMap<String, String>>>,
    /// The text about each node.
    texts: Arc<Mutex<HashMap<(List, String), String>>>,
    /// The texts about each key.
    key_texts: Arc<Mutex<HashMap<Box<[u8]>, KeyTexts>>>,
    /// The blocks that were noted as changed.
    changed: Arc<Mutex<BTreeSet<OwnedBlock>>>,
}

type KeyTexts = BTreeMap<String, String>;
type Blocks = HashMap<OwnedBlock, Tallies>;
type Tallies = HashMap<(Origin, Cell), Known>;

impl Engine for Memory {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        for Write { block, counts, .. } in writes {
            let held = blocks.entry((*block).into()).or_default();
            for &known in counts {
                held.entry((known.origin.clone(), known.cell))
                    .and_modify(|held| held.merge(known))
                    .or_insert_with(|| known.clone());
            }
        }
        Ok(())
    }

    async fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        _: Duration,
    ) -> Result<Option<String>, EngineError> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let held = holders.entry(node.to_owned()).or_insert_with(|| holder.to_owned());
        if is_former(held) {
            holder.clone_into(held);
        }
        Ok((held != holder).then(|| held.clone()))
    }

    async fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        _: Duration,
    ) -> Result<(), EngineError> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (list, name.to_owned());
        match text {
            Some(text) => texts.insert(name, text.to_owned()),
            None => texts.remove(&name),
        };
        Ok(())
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_list = texts.iter().filter(|((of, _), _)| *of == list);
        Ok(of_list.map(|((_, name), text)| (name.clone(), text.clone())).collect())
    }

    fn carries_key_texts(&self) -> bool {
        true
    }

    async fn set_key_texts(&mut self, texts: &[KeyText<'_>]) -> Result<(), EngineError> {
        let mut held = self.key_texts.lock().unwrap_or_else(PoisonError::into_inner);
        for &KeyText { key, name, text, .. } in texts {
            let of_key = held.entry(key.into()).or_default();
            match text {
                Some(text) => _ = of_key.insert(name.to_owned(), text.to_owned()),
                None => _ = of_key.remove(name),
            }
        }
        Ok(())
    }

    async fn key_texts(&mut self, keys: &[&[u8]]) -> Result<Vec<NamedTexts>, EngineError> {
        let held = self.key_texts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_key = |key: &&[u8]| held.get(*key).cloned().unwrap_or_default().into_iter().collect();
        Ok(keys.iter().map(of_key).collect())
    }

    fn life(&self) -> u64 {
        0
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let held = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let told = blocks.iter().map(|block| {
            let tallies = held.get(&OwnedBlock::from(*block));
            tallies.into_iter().flat_map(HashMap::values).cloned().collect()
        });
        Ok(told.collect())
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.extend(blocks.iter().map(|block| OwnedBlock::from(*block)));
        Ok(())
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(block) = changed.pop_first()
        {
            taken.push(block);
        }
        Ok(taken)
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        Ok(self.changed.lock().unwrap_or_else(PoisonError::into_inner).len())
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        let held = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<&OwnedBlock> = held.keys().collect();
        names.sort_unstable();
        let first = match from {
            Some(Place::Behind(last)) => names.partition_point(|name| *name <= last),
            _ => 0,
        };
        let page: Vec<_> = names.iter().skip(first).take(count).copied().cloned().collect();
        let is_last = first.saturating_add(count) >= names.len();
        let next = page.last().filter(|_| !is_last).cloned().map(Place::Behind);
        Ok((page, next))
    }
}
