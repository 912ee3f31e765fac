//! An engine in the memory of one process, for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lately::{Cell, Origin, Tally};

use crate::{Block, Engine, EngineError, Told, Write};

/// An engine that keeps counts until it is dropped. Clones share what they keep.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    blocks: Arc<Mutex<Blocks>>,
}

/// By key, width and number.
type Blocks = HashMap<(Box<[u8]>, i64, i64), Tallies>;
type Tallies = HashMap<(Origin, Cell), Tally>;

impl Engine for Memory {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        for Write { block, counts, .. } in writes {
            let held = blocks.entry((block.key.into(), block.width_ms, block.number)).or_default();
            for &(origin, cell, tally) in counts {
                held.entry((origin.clone(), cell)).or_default().merge(tally);
            }
        }
        Ok(())
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let held = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let told = blocks.iter().map(|block| {
            let tallies = held.get(&(block.key.into(), block.width_ms, block.number));
            let tallies = tallies.into_iter().flatten();
            tallies.map(|((origin, cell), tally)| (origin.clone(), *cell, *tally)).collect()
        });
        Ok(told.collect())
    }
}
