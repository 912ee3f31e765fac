//! An engine in the memory of one process, for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lately::{Cell, Origin};

use crate::{Block, Engine, EngineError, Known, Told, Write};

/// An engine that keeps counts until it is dropped. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    blocks: Arc<Mutex<Blocks>>,
    /// The holder of each node's name. Claims never expire here.
    holders: Arc<Mutex<HashMap<String, String>>>,
    /// The text about each node.
    statuses: Arc<Mutex<HashMap<String, String>>>,
}

/// The counts by key, width and number of their block.
type Blocks = HashMap<(Box<[u8]>, i64, i64), Tallies>;
type Tallies = HashMap<(Origin, Cell), Known>;

impl Engine for Memory {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        for Write { block, counts, .. } in writes {
            let held = blocks.entry((block.key.into(), block.width_ms, block.number)).or_default();
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

    async fn report(&mut self, node: &str, status: Option<&str>, _: Duration) -> Result<(), EngineError> {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        match status {
            Some(status) => statuses.insert(node.to_owned(), status.to_owned()),
            None => statuses.remove(node),
        };
        Ok(())
    }

    async fn nodes(&mut self) -> Result<Vec<(String, String)>, EngineError> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(statuses.iter().map(|(node, status)| (node.clone(), status.clone())).collect())
    }

    fn life(&self) -> u64 {
        0
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let held = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let told = blocks.iter().map(|block| {
            let tallies = held.get(&(block.key.into(), block.width_ms, block.number));
            tallies.into_iter().flat_map(HashMap::values).cloned().collect()
        });
        Ok(told.collect())
    }
}
