//! What every engine does.

use std::future::Future;
use std::time::Duration;

use lately::{Cell, Level, Origin, Tally, Timestamp};

use crate::EngineError;
use crate::layout::CELLS_OF_A_BLOCK;

/// What carries counts from node to node.
pub trait Engine: Send {
    /// Sends counts. When it fails, any part of them may have arrived; send them again.
    ///
    /// # Errors
    /// [`EngineError`] says why not all are known to have arrived.
    fn send(&mut self, writes: &[Write<'_>]) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Claims the name of a node for a while, or claims it again. Returns the holder, if another one has it. A name whose holder
    /// `is_former` is taken from it: that is an earlier life of the same server.
    ///
    /// # Errors
    /// [`EngineError`] says why it is not known who has it.
    fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> impl Future<Output = Result<Option<String>, EngineError>> + Send;

    /// Keeps a short text about a node, in place of the one before, or removes it. Texts of all nodes are kept for a while
    /// after the last of them came.
    ///
    /// # Errors
    /// [`EngineError`] says why it is not known to be kept.
    fn report(
        &mut self,
        node: &str,
        status: Option<&str>,
        lasts: Duration,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// The texts about all nodes, each with the name of its node, in no order.
    ///
    /// # Errors
    /// [`EngineError`] says why they are not known.
    fn nodes(&mut self) -> impl Future<Output = Result<Vec<(String, String)>, EngineError>> + Send;

    /// Which life of the engine this is. While the number stays, what was sent is there. A new one means that the connection
    /// was lost: the engine may have failed over to a server without the last writes, or come back empty.
    fn life(&self) -> u64;

    /// Reads blocks. Returns what is known of each, in their order.
    ///
    /// # Errors
    /// [`EngineError`] says why nothing was read.
    fn read(&mut self, blocks: &[Block<'_>]) -> impl Future<Output = Result<Vec<Told>, EngineError>> + Send;
}

/// What an engine has of a block.
pub type Told = Vec<Known>;

/// What is known of a cell of an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Who counted.
    pub origin: Origin,
    /// The cell.
    pub cell: Cell,
    /// What was counted and deleted.
    pub tally: Tally,
    /// Of the deleted hits, those that the origin itself has removed. So no start of it removes them again.
    pub removed: u64,
}

impl Known {
    /// Takes the greater of all numbers.
    pub fn merge(&mut self, other: &Known) {
        self.tally.merge(other.tally);
        self.removed = self.removed.max(other.removed);
    }
}

/// The counts of one origin in cells of one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write<'a> {
    /// The block.
    pub block: Block<'a>,
    /// Until when the engine is to keep the block.
    pub keep_until: Timestamp,
    /// The counts. A cell of an origin is there once.
    pub counts: Vec<&'a Known>,
}

/// Cells of one key that lie together: an engine reads and writes them at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The width of its cells, in milliseconds.
    pub width_ms: i64,
    /// Which block of that width it is, from the epoch on.
    pub number: i64,
}

impl<'a> Block<'a> {
    /// The block of a cell.
    #[must_use]
    pub fn of(key: &'a [u8], cell: Cell) -> Block<'a> {
        let Cell { start_ms, width_ms } = cell;
        Block { key, width_ms, number: start_ms.div_euclid(width_ms * CELLS_OF_A_BLOCK) }
    }

    /// The blocks of a level that have a cell between two times.
    pub fn between(key: &'a [u8], level: Level, from_ms: i64, to_ms: i64) -> impl Iterator<Item = Block<'a>> {
        let width_ms = level.width_ms;
        let number = |ms: i64| ms.div_euclid(width_ms * CELLS_OF_A_BLOCK);
        (number(from_ms)..=number(to_ms - 1)).map(move |number| Block { key, width_ms, number })
    }

    /// Its first millisecond.
    #[must_use]
    pub fn start_ms(&self) -> i64 {
        self.number * self.width_ms * CELLS_OF_A_BLOCK
    }

    /// One past its last millisecond.
    #[must_use]
    pub fn end_ms(&self) -> i64 {
        (self.number + 1) * self.width_ms * CELLS_OF_A_BLOCK
    }
}
