//! The interface of all engines.

use std::future::Future;
use std::time::Duration;

use lately::{Cell, LevelsId, Origin, Span, Tally, Timestamp};

use crate::EngineError;
use crate::layout::CELLS_OF_A_BLOCK;

/// An engine carries counts between nodes.
pub trait Engine: Send {
    /// Sends counts. After an error any part of them may have arrived: send them again.
    ///
    /// # Errors
    /// [`EngineError`]: not all counts are known to have arrived.
    fn send(&mut self, writes: &[Write<'_>]) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Claims the name of a node for a while, or renews the claim. Returns the holder, if that is another one. A name
    /// is taken over if `is_former` is true for its holder: that is an earlier start of the same server.
    ///
    /// # Errors
    /// [`EngineError`]: the holder is not known.
    fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> impl Future<Output = Result<Option<String>, EngineError>> + Send;

    /// Stores a text under a name in a list, which replaces the one before, or removes it. All texts of the list are kept
    /// for this while after the last one was stored.
    ///
    /// # Errors
    /// [`EngineError`]: the text may not be stored.
    fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        lasts: Duration,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// The names and texts of a list, in any order.
    ///
    /// # Errors
    /// [`EngineError`]: the texts could not be read.
    fn texts(
        &mut self,
        list: List,
    ) -> impl Future<Output = Result<Vec<(String, String)>, EngineError>> + Send;

    /// Whether it carries texts about keys. An engine that does not has none.
    fn carries_key_texts(&self) -> bool {
        false
    }

    /// Stores texts about keys, each under a name. A text replaces the one before of this name, or removes it. Only one node writes under a name.
    ///
    /// # Errors
    /// [`EngineError`]: not all of them are known to be stored.
    fn set_key_texts(&mut self, _: &[KeyText<'_>]) -> impl Future<Output = Result<(), EngineError>> + Send {
        std::future::ready(Ok(()))
    }

    /// The names and texts of each key, in the order of the keys.
    ///
    /// # Errors
    /// [`EngineError`]: nothing was read.
    fn key_texts(
        &mut self,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<NamedTexts>, EngineError>> + Send {
        std::future::ready(Ok(vec![NamedTexts::new(); keys.len()]))
    }

    /// The number of this life of the engine. While it stays the same, everything that was sent is still there. It
    /// changes when the connection was lost: the engine may have failed over to a server without the last writes, or
    /// may be empty.
    fn life(&self) -> u64;

    /// What was wrong with something that was read and left out, once.
    fn warning(&mut self) -> Option<String> {
        None
    }

    /// Whether the engine has everything that earlier starts of this node have sent, as far as anybody has it. An engine that has its counts from
    /// other nodes may lack some of them after a start.
    fn is_complete(&self) -> bool {
        true
    }

    /// Whose counts may be missing, because they do not reach this node now.
    fn away(&self) -> Away {
        Away::Nobody
    }

    /// Why counts of other nodes may be missing, although calls succeed.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Waits until what was sent last is safe, before the node ends.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Visits keys whose hits this node counts although none of its clients has sent them, such as those of records: the keys of a page,
    /// counted from 0. Returns whether there are more pages.
    fn visit_records(&self, _page: usize, _visit: &mut VisitRecords<'_>) -> bool {
        false
    }

    /// The servers that share the data, as they were last known. Empty before they are known.
    fn servers(&self) -> Vec<Server> {
        Vec::new()
    }

    /// Reads blocks. Returns the counts of each, in the same order.
    ///
    /// # Errors
    /// [`EngineError`]: nothing was read.
    fn read(&mut self, blocks: &[Block<'_>]) -> impl Future<Output = Result<Vec<Told>, EngineError>> + Send;

    /// Notes that blocks were written, for [`Engine::take_changed`]. The notes are kept for an hour after the last one.
    ///
    /// # Errors
    /// [`EngineError`]: not all of them are known to be noted.
    fn note_changed(&mut self, blocks: &[Block<'_>]) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Takes about `most` noted blocks, each once, however often it was noted.
    ///
    /// # Errors
    /// [`EngineError`]: some notes may be taken and lost.
    fn take_changed(
        &mut self,
        most: usize,
    ) -> impl Future<Output = Result<Vec<OwnedBlock>, EngineError>> + Send;

    /// The number of noted blocks.
    ///
    /// # Errors
    /// [`EngineError`]: the number is not known.
    fn changed(&mut self) -> impl Future<Output = Result<usize, EngineError>> + Send;

    /// Lists about `count` blocks from a place on, from the start without one. Also returns the next place, if there is
    /// one. From the start to the end, each block that exists all the time is listed at least once.
    ///
    /// # Errors
    /// [`EngineError`]: nothing was listed.
    fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> impl Future<Output = Result<(Vec<OwnedBlock>, Option<Place>), EngineError>> + Send;
}

/// Gets a key of records, and a function that returns its hits in a window that ends at a time. These are all hits of that window, and some of
/// the two cells that its ends cut.
pub type VisitRecords<'v> = dyn FnMut(&[u8], &dyn Fn(Span, Timestamp) -> u64) + 'v;

/// Names and texts, in any order.
pub type NamedTexts = Vec<(String, String)>;

/// A text about a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyText<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The name of the text: letters, digits and `_ - . @`.
    pub name: &'a str,
    /// `None` removes it.
    pub text: Option<&'a str>,
    /// How long the engine must keep it.
    pub keep_until: Timestamp,
}

/// Nodes that do not reach this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Away {
    /// All reach it.
    Nobody,
    /// Some do not. These do.
    AllBut(Vec<String>),
}

/// A list of texts that all nodes share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum List {
    /// What each node says of itself.
    Nodes,
    /// The levels in which nodes count, and until when each table of them is needed.
    Levels,
    /// The busy keys of each node.
    BusyKeys,
}

/// A claim that is shorter lets the name go.
pub(crate) const CLAIM_LEAST: Duration = Duration::from_secs(1);

impl List {
    /// Its number in what nodes send each other.
    pub(crate) const fn number(self) -> u8 {
        match self {
            List::Nodes => 0,
            List::Levels => 1,
            List::BusyKeys => 4,
        }
    }
}

/// How far the blocks of an engine are listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A place that a server names.
    Cursor {
        /// The server whose blocks are listed.
        server: String,
        /// The place among them.
        cursor: u64,
    },
    /// Behind a block, in the order of blocks.
    Behind(OwnedBlock),
}

/// A server of an engine, with its part of the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its address, without a password.
    pub name: String,
    /// Its hash slots: the first and the last one of each range, in order.
    pub slots: Vec<(u16, u16)>,
}

/// The counts of a block.
pub type Told = Vec<Known>;

/// The count of an origin in a cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The origin that counted.
    pub origin: Origin,
    /// The levels that the cell is of.
    pub levels: LevelsId,
    /// The cell.
    pub cell: Cell,
    /// The hits that were counted and deleted.
    pub tally: Tally,
    /// The deleted hits that the origin itself has removed. So a restart of the origin does not remove them again.
    pub removed: u64,
}

impl Known {
    /// Takes the maximum of each number.
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
    /// How long the engine must keep the block.
    pub keep_until: Timestamp,
    /// The counts. Each cell of an origin occurs once.
    pub counts: Vec<&'a Known>,
}

/// Adjacent cells of one key, which an engine reads and writes together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The levels that its cells are of.
    pub levels: LevelsId,
    /// The width of its cells, in milliseconds.
    pub width_ms: i64,
    /// The number of the block among those of this width, counted from the epoch.
    pub number: i64,
}

/// A block that owns its key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnedBlock {
    /// The key.
    pub key: Box<[u8]>,
    /// The levels that its cells are of.
    pub levels: LevelsId,
    /// The width of its cells, in milliseconds.
    pub width_ms: i64,
    /// The number of the block among those of this width, counted from the epoch.
    pub number: i64,
}

impl OwnedBlock {
    /// A block of what was read from an engine. `None` if it is none: its key is empty, or its first or last millisecond is no time.
    pub(crate) fn read(key: &[u8], levels: LevelsId, width_ms: i64, number: i64) -> Option<OwnedBlock> {
        let ends = [number, number.checked_add(1)?].map(|number| number.checked_mul(CELLS_OF_A_BLOCK));
        let is_in_time = ends.iter().all(|end| end.is_some_and(|end| end.checked_mul(width_ms).is_some()));
        let is_block = width_ms > 0 && !key.is_empty() && is_in_time;
        is_block.then(|| OwnedBlock { key: key.into(), levels, width_ms, number })
    }

    /// The same block with a borrowed key.
    #[must_use]
    pub fn as_block(&self) -> Block<'_> {
        Block { key: &self.key, levels: self.levels, width_ms: self.width_ms, number: self.number }
    }
}

impl From<Block<'_>> for OwnedBlock {
    fn from(Block { key, levels, width_ms, number }: Block<'_>) -> OwnedBlock {
        OwnedBlock { key: key.into(), levels, width_ms, number }
    }
}

impl<'a> Block<'a> {
    /// The block of a cell.
    #[must_use]
    pub fn of(key: &'a [u8], levels: LevelsId, cell: Cell) -> Block<'a> {
        let Cell { start_ms, width_ms } = cell;
        Block { key, levels, width_ms, number: start_ms.div_euclid(width_ms * CELLS_OF_A_BLOCK) }
    }

    /// The blocks of a width that have a cell between two times.
    pub fn between(
        key: &'a [u8],
        (levels, width_ms): (LevelsId, i64),
        from_ms: i64,
        to_ms: i64,
    ) -> impl Iterator<Item = Block<'a>> {
        let number = |ms: i64| ms.div_euclid(width_ms * CELLS_OF_A_BLOCK);
        (number(from_ms)..=number(to_ms - 1)).map(move |number| Block { key, levels, width_ms, number })
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
