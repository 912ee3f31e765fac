//! PostgreSQL: a row for each node and cell, in partitions that are dropped when they are over.
//!
//! Each statement is sent with its parameters and their types in one round trip, and nothing is kept in the session. So a pooler
//! may give each transaction to another connection. A statement whose connection failed is not sent again here. The caller does
//! that.

mod address;
mod partitions;
mod refusal;
mod schema;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures_util::future::try_join_all;
use lately::{Cell, LevelsId, Origin, Tally};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};

use crate::layout::CELLS_OF_A_BLOCK;
use crate::limits::{CHANGED_LASTS, ENGINE_COMMANDS, ENGINE_TIMEOUT};
use crate::url::Parts;
use crate::{
    Block, Engine, EngineError, KeyText, Known, List, NamedTexts, OwnedBlock, Place, Server, Told, Write,
};

use address::Address;
use partitions::Partition;
use refusal::Failure;

/// The parameters of a statement with their types.
type Parameters<'p> = [(&'p (dyn ToSql + Sync), Type)];

/// Keys, each with its places in a list of blocks.
type Places<'k> = BTreeMap<&'k [u8], Vec<usize>>;

/// A PostgreSQL database.
pub struct Postgres {
    addresses: Vec<Address>,
    session: Option<Session>,
    /// How often a connection was lost, or another server answered.
    life: u64,
    /// When the server began, as it writes it. Another one has taken over when it changes.
    server_began: Option<String>,
    /// The node whose name was claimed in this life.
    claimed: Option<String>,
    /// The partitions that are there, each with the time until which it is kept.
    partitions: HashMap<Partition, i64>,
    /// See [`Engine::warning`].
    warning: Option<String>,
}

/// A connection to the server of an address.
struct Session {
    client: Client,
    /// The index of the address.
    address: usize,
}

impl Postgres {
    /// An engine in the database at these addresses, such as `postgres://user:password@127.0.0.1:5432/database`. The first one that
    /// takes writes is used. Nothing is connected yet.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid.
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Result<Postgres, EngineError> {
        Ok(Postgres {
            addresses: Address::all(urls)?,
            session: None,
            life: 0,
            server_began: None,
            claimed: None,
            partitions: HashMap::new(),
            warning: None,
        })
    }

    /// Whether an address is one of PostgreSQL, by its scheme.
    #[must_use]
    pub fn is_meant(url: &str) -> bool {
        address::is_postgres(Parts::of(url).scheme)
    }

    /// A server that this engine and another one both use, with the same database: what one writes, the other reads.
    #[must_use]
    pub fn shared_server(&self, other: &Postgres) -> Option<String> {
        let is_shared = |address: &&Address| other.addresses.iter().any(|their| their.shares_with(address));
        self.addresses.iter().find(is_shared).map(|address| address.server.clone())
    }

    fn begin_life(&mut self) {
        self.life += 1;
        self.claimed = None;
        self.partitions.clear();
    }

    /// Drops the connection. The server may have failed, and have lost the last writes.
    fn drop_session(&mut self) {
        self.session = None;
        self.begin_life();
    }

    /// Connects to the first server that takes writes, unless there is a connection. Creates the tables if they are missing.
    async fn connect(&mut self) -> Result<(), EngineError> {
        if self.session.as_ref().is_some_and(|session| !session.client.is_closed()) {
            return Ok(());
        }
        if self.session.is_some() {
            self.drop_session();
        }
        let mut failed = None;
        for (index, address) in self.addresses.iter().enumerate() {
            match open(address).await {
                Ok(client) => {
                    self.session = Some(Session { client, address: index });
                    return self.create_tables().await;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.expect("there is an address"))
    }

    async fn create_tables(&mut self) -> Result<(), EngineError> {
        let found = self.query("SELECT to_regclass('lately.version')::text", &[]).await?;
        if found.first().and_then(|row| row.get::<_, Option<String>>(0)).is_none() {
            self.run(schema::CREATE).await?;
        }
        let version = self.query("SELECT number FROM lately.version", &[]).await?;
        match version.first().map(|row| row.get::<_, i32>(0)) {
            Some(schema::VERSION) => Ok(()),
            number => {
                let answer = match number {
                    Some(number) => format!(
                        "the schema lately has version {number}, and this server knows {}",
                        schema::VERSION
                    ),
                    None => "the table lately.version is empty".to_owned(),
                };
                let server = self.server().to_owned();
                self.drop_session();
                Err(EngineError::Refused { server, answer })
            }
        }
    }

    /// The server that is connected, for messages.
    fn server(&self) -> &str {
        let index = self.session.as_ref().map_or(0, |session| session.address);
        &self.addresses[index].server
    }

    /// Sends a statement on the connection. Nothing is connected here.
    async fn query(&mut self, statement: &str, parameters: &Parameters<'_>) -> Result<Vec<Row>, EngineError> {
        let answered = self.ask(statement, parameters).await;
        answered.map_err(|failure| self.note(failure))
    }

    async fn ask(&self, statement: &str, parameters: &Parameters<'_>) -> Result<Vec<Row>, Failure> {
        let Some(Session { client, address }) = &self.session else {
            return Err(Failure::Lost(EngineError::Away("the connection was lost".to_owned())));
        };
        let address = &self.addresses[*address];
        match timeout(ENGINE_TIMEOUT, client.query_typed(statement, parameters)).await {
            Ok(answer) => answer.map_err(|error| Failure::of(&error, address)),
            Err(_) => Err(Failure::Lost(no_answer(address))),
        }
    }

    /// Sends statements without parameters, as one transaction.
    async fn run(&mut self, statements: &str) -> Result<(), EngineError> {
        let Some(Session { client, address }) = &self.session else {
            return Err(EngineError::Away("the connection was lost".to_owned()));
        };
        let address = &self.addresses[*address];
        let done = match timeout(ENGINE_TIMEOUT, client.batch_execute(statements)).await {
            Ok(done) => done.map_err(|error| Failure::of(&error, address)),
            Err(_) => Err(Failure::Lost(no_answer(address))),
        };
        done.map_err(|failure| self.note(failure))
    }

    fn note(&mut self, failure: Failure) -> EngineError {
        match failure {
            // If somebody has dropped tables, they are created anew with the next connection.
            Failure::Lost(_) | Failure::Missing(_) => self.drop_session(),
            Failure::Refused(_) => {}
        }
        failure.into_error()
    }

    /// Creates the partitions that are missing.
    async fn create_partitions(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        let mut needed = Partition::of(writes);
        needed.retain(|partition, until_ms| {
            self.partitions.get(partition).is_none_or(|held_ms| held_ms < until_ms)
        });
        if needed.is_empty() {
            return Ok(());
        }
        let created = needed.iter().map(|(partition, &until_ms)| partition.create(until_ms));
        let statements = format!("{};\n{}", schema::LOCK, created.collect::<String>());
        self.run(&statements).await?;
        self.partitions.extend(needed);
        Ok(())
    }

    /// Drops the partitions that are over.
    async fn drop_partitions(&mut self) -> Result<(), EngineError> {
        let over = self.query(schema::OVER, &[]).await?;
        let partition = |row: &Row| Partition { width_ms: row.get(0), number: row.get(1) };
        let over: Vec<Partition> = over.iter().map(partition).collect();
        let dropped = over.iter().map(|partition| partition.drop());
        let statements = format!("{};\n{}", schema::LOCK, dropped.collect::<String>());
        self.run(&statements).await?;
        over.iter().for_each(|partition| _ = self.partitions.remove(partition));
        self.query(schema::DROP_KEY_TEXTS, &[]).await.map(drop)
    }

    async fn send_some(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        self.create_partitions(writes).await?;
        let rows = Rows::of(writes);
        self.query(schema::SEND, &rows.parameters()).await.map(drop)
    }
}

/// Connects to a server that takes writes.
async fn open(address: &Address) -> Result<Client, EngineError> {
    let connect = async {
        match &address.tls {
            None => {
                let (client, connection) = address.config.connect(NoTls).await?;
                tokio::spawn(connection);
                Ok(client)
            }
            Some(tls) => {
                let (client, connection) = address.config.connect(tls.clone()).await?;
                tokio::spawn(connection);
                Ok(client)
            }
        }
    };
    match timeout(ENGINE_TIMEOUT, connect).await {
        Ok(connected) => connected.map_err(|error| Failure::of(&error, address).into_error()),
        Err(_) => Err(no_answer(address)),
    }
}

fn no_answer(address: &Address) -> EngineError {
    EngineError::Away(format!("{}: no answer within {} s", address.server, ENGINE_TIMEOUT.as_secs()))
}

/// Counts as columns.
#[derive(Default)]
struct Rows<'w> {
    keys: Vec<&'w [u8]>,
    levels: Vec<i64>,
    widths: Vec<i64>,
    panes: Vec<i64>,
    nodes: Vec<String>,
    counted: Vec<i64>,
    deleted: Vec<i64>,
    removed: Vec<i64>,
}

impl<'w> Rows<'w> {
    fn of(writes: &'w [Write<'_>]) -> Rows<'w> {
        let mut rows = Rows::default();
        // A larger count is written as the largest number.
        let number = |hits: u64| i64::try_from(hits).unwrap_or(i64::MAX);
        for Write { block, counts, .. } in writes {
            for Known { origin, cell, tally, removed, .. } in counts {
                rows.keys.push(block.key);
                rows.levels.push(block.levels.number().into());
                rows.widths.push(block.width_ms);
                rows.panes.push(cell.start_ms);
                rows.nodes.push(origin.to_string());
                rows.counted.push(number(tally.counted));
                rows.deleted.push(number(tally.deleted));
                rows.removed.push(number(*removed));
            }
        }
        rows
    }

    fn parameters(&self) -> [(&(dyn ToSql + Sync), Type); 8] {
        [
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.levels, Type::INT8_ARRAY),
            (&self.widths, Type::INT8_ARRAY),
            (&self.panes, Type::INT8_ARRAY),
            (&self.nodes, Type::TEXT_ARRAY),
            (&self.counted, Type::INT8_ARRAY),
            (&self.deleted, Type::INT8_ARRAY),
            (&self.removed, Type::INT8_ARRAY),
        ]
    }
}

/// What a row of a block says. `None` if no node wrote it.
fn known(row: &Row, block: &Block<'_>) -> Option<Known> {
    let number = |column: usize| u64::try_from(row.get::<_, i64>(column)).ok();
    let (start_ms, origin) = (row.get::<_, i64>(1), row.get::<_, &str>(2).parse::<Origin>().ok()?);
    let cell = Cell::of(start_ms, block.width_ms);
    let tally = Tally { counted: number(3)?, deleted: number(4)? };
    let is_cell = cell.start_ms == start_ms;
    is_cell.then_some(Known { origin, levels: block.levels, cell, tally, removed: number(5)? })
}

/// The block of a row: its key, levels, width, and the number that the last column leads to.
fn block(row: &Row, number: impl Fn(i64, i64) -> Option<i64>) -> Option<OwnedBlock> {
    let (levels, width_ms) = (u32::try_from(row.get::<_, i64>(1)).ok()?, row.get::<_, i64>(2));
    let number = number(width_ms, row.get(3))?;
    OwnedBlock::read(row.get(0), LevelsId::new(levels), width_ms, number)
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

const fn name_of(list: List) -> &'static str {
    match list {
        List::Nodes => "nodes",
        List::Levels => "levels",
        List::BusyKeys => "busy",
    }
}

impl Engine for Postgres {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        for writes in writes.chunks(ENGINE_COMMANDS) {
            self.connect().await?;
            self.send_some(writes).await?;
        }
        Ok(())
    }

    async fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> Result<Option<String>, EngineError> {
        self.connect().await?;
        let lasts_ms = milliseconds(lasts);
        let mine: [(&(dyn ToSql + Sync), Type); 3] =
            [(&node, Type::TEXT), (&holder, Type::TEXT), (&lasts_ms, Type::INT8)];
        let claimed = self.query(schema::CLAIM, &mine).await?;
        let Some(row) = claimed.first() else {
            let held = self.query(schema::HOLDER, &mine[..1]).await?;
            let held = held.first().map(|row| row.get::<_, String>(0));
            return match held {
                Some(held) if is_former(&held) => {
                    // No other server takes the name while it is held.
                    let [name, new, lasts] = mine;
                    self.query(schema::TAKE_OVER, &[name, new, lasts, (&held, Type::TEXT)]).await?;
                    self.claimed = Some(node.to_owned());
                    Ok(None)
                }
                // It has just been let go: the next attempt gets it.
                held => Ok(Some(held.unwrap_or_default())),
            };
        };
        let (before, began, is_over): (Option<String>, String, bool) = (row.get(0), row.get(1), row.get(2));
        let is_emptied = before.is_none() && self.claimed.as_deref() == Some(node);
        let is_another = self.server_began.replace(began.clone()).is_some_and(|known| known != began);
        if is_emptied || is_another {
            // Behind a pooler, a failover is not seen otherwise.
            self.begin_life();
        }
        self.claimed = Some(node.to_owned());
        if is_over {
            self.drop_partitions().await?;
        }
        Ok(None)
    }

    async fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        lasts: Duration,
    ) -> Result<(), EngineError> {
        self.connect().await?;
        let (list, lasts_ms) = (name_of(list), milliseconds(lasts));
        let of = [(&list as &(dyn ToSql + Sync), Type::TEXT), (&name, Type::TEXT)];
        let Some(text) = text else {
            return self.query(schema::REMOVE_TEXT, &of).await.map(drop);
        };
        let [list, name] = of;
        let parameters = [list, name, (&text, Type::TEXT), (&lasts_ms, Type::INT8)];
        self.query(schema::SET_TEXT, &parameters).await.map(drop)
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        self.connect().await?;
        let texts = self.query(schema::TEXTS, &[(&name_of(list), Type::TEXT)]).await?;
        Ok(texts.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    fn carries_key_texts(&self) -> bool {
        true
    }

    async fn set_key_texts(&mut self, texts: &[KeyText<'_>]) -> Result<(), EngineError> {
        for texts in texts.chunks(ENGINE_COMMANDS) {
            self.connect().await?;
            let (set, removed): (Vec<&KeyText<'_>>, Vec<_>) =
                texts.iter().partition(|text| text.text.is_some());
            let keys =
                |texts: &[&KeyText<'_>]| texts.iter().map(|text| text.key.to_vec()).collect::<Vec<_>>();
            let names =
                |texts: &[&KeyText<'_>]| texts.iter().map(|text| text.name.to_owned()).collect::<Vec<_>>();
            if !set.is_empty() {
                let contents: Vec<&str> = set.iter().filter_map(|text| text.text).collect();
                let until_ms: Vec<i64> = set.iter().map(|text| text.keep_until.as_millis()).collect();
                let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                    (&keys(&set), Type::BYTEA_ARRAY),
                    (&names(&set), Type::TEXT_ARRAY),
                    (&contents, Type::TEXT_ARRAY),
                    (&until_ms, Type::INT8_ARRAY),
                ];
                self.query(schema::SET_KEY_TEXTS, &parameters).await?;
            }
            if !removed.is_empty() {
                let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                    [(&keys(&removed), Type::BYTEA_ARRAY), (&names(&removed), Type::TEXT_ARRAY)];
                self.query(schema::REMOVE_KEY_TEXTS, &parameters).await?;
            }
        }
        Ok(())
    }

    async fn key_texts(&mut self, keys: &[&[u8]]) -> Result<Vec<NamedTexts>, EngineError> {
        let mut all = vec![NamedTexts::new(); keys.len()];
        if keys.is_empty() {
            return Ok(all);
        }
        self.connect().await?;
        let rows = self.query(schema::KEY_TEXTS, &[(&keys, Type::BYTEA_ARRAY)]).await?;
        let places: HashMap<&[u8], usize> = keys.iter().copied().zip(0..).collect();
        for row in &rows {
            if let Some(&place) = places.get(row.get::<_, &[u8]>(0)) {
                all[place].push((row.get(1), row.get(2)));
            }
        }
        Ok(all)
    }

    fn life(&self) -> u64 {
        self.life
    }

    fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    fn servers(&self) -> Vec<Server> {
        let server = |_: &Session| Server { name: self.server().to_owned(), slots: Vec::new() };
        self.session.iter().map(server).collect()
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let mut told = vec![Told::new(); blocks.len()];
        if blocks.is_empty() {
            return Ok(told);
        }
        self.connect().await?;
        // Keys in the same block of time are read together, and blocks that follow each other, too, if they are of the same keys.
        let mut by_time: BTreeMap<(LevelsId, i64, i64), Places<'_>> = BTreeMap::new();
        for (index, block) in blocks.iter().enumerate() {
            let keys = by_time.entry((block.levels, block.width_ms, block.number)).or_default();
            keys.entry(block.key).or_default().push(index);
        }
        let by_time: Vec<_> = by_time.into_iter().collect();
        let runs = by_time.chunk_by(|((levels, width_ms, number), keys), (next, next_keys)| {
            (*levels, *width_ms, number + 1) == *next && keys.keys().eq(next_keys.keys())
        });
        let this = &*self;
        let reads = runs.map(async |run| {
            let block = |places: &Places<'_>| blocks[places.values().next().expect("it has a key")[0]];
            let (first, last) = (block(&run[0].1), block(&run[run.len() - 1].1));
            let names: Vec<&[u8]> = run[0].1.keys().copied().collect();
            let (levels, from_ms, end_ms) =
                (i64::from(first.levels.number()), first.start_ms(), last.end_ms());
            let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
                (&names, Type::BYTEA_ARRAY),
                (&levels, Type::INT8),
                (&first.width_ms, Type::INT8),
                (&from_ms, Type::INT8),
                (&end_ms, Type::INT8),
            ];
            this.ask(schema::READ, &parameters).await.map(|rows| (run, rows))
        });
        let answers = try_join_all(reads).await.map_err(|failure| self.note(failure))?;
        for (run, rows) in answers {
            let ((levels, width_ms, first), _) = run[0];
            for row in &rows {
                let (key, start_ms): (&[u8], i64) = (row.get(0), row.get(1));
                let number = Block::of(key, levels, Cell { start_ms, width_ms }).number;
                let places = usize::try_from(number - first).ok().and_then(|index| run.get(index));
                let indices = places.and_then(|(_, keys)| keys.get(key)).map_or(&[][..], Vec::as_slice);
                for &index in indices {
                    match known(row, &blocks[index]) {
                        Some(known) => told[index].push(known),
                        None => {
                            let key = String::from_utf8_lossy(blocks[index].key).escape_debug().to_string();
                            let what = format!("a row of node_id '{}'", row.get::<_, &str>(2).escape_debug());
                            self.warning.get_or_insert(EngineError::Foreign { name: key, what }.to_string());
                        }
                    }
                }
            }
        }
        Ok(told)
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        for blocks in blocks.chunks(ENGINE_COMMANDS) {
            self.connect().await?;
            let keys: Vec<&[u8]> = blocks.iter().map(|block| block.key).collect();
            let column = |number: fn(&Block<'_>) -> i64| blocks.iter().map(number).collect::<Vec<i64>>();
            let levels = column(|block| block.levels.number().into());
            let (widths, numbers) = (column(|block| block.width_ms), column(|block| block.number));
            let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                (&keys, Type::BYTEA_ARRAY),
                (&levels, Type::INT8_ARRAY),
                (&widths, Type::INT8_ARRAY),
                (&numbers, Type::INT8_ARRAY),
            ];
            self.query(schema::NOTE_CHANGED, &parameters).await?;
        }
        Ok(())
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        self.connect().await?;
        let (most, lasts_ms) = (i64::try_from(most).unwrap_or(i64::MAX), milliseconds(CHANGED_LASTS));
        let rows = self.query(schema::TAKE_CHANGED, &[(&most, Type::INT8), (&lasts_ms, Type::INT8)]).await?;
        Ok(rows.iter().filter_map(|row| block(row, |_, number| Some(number))).collect())
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        self.connect().await?;
        let rows = self.query(schema::CHANGED, &[]).await?;
        Ok(rows.first().map_or(0, |row| usize::try_from(row.get::<_, i64>(0)).unwrap_or(0)))
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        self.connect().await?;
        let (key, levels, width_ms, from_ms) = match from {
            Some(Place::Behind(last)) => {
                let behind_ms = last.as_block().end_ms();
                (&last.key[..], i64::from(last.levels.number()), last.width_ms, behind_ms)
            }
            _ => (&[][..], i64::MIN, i64::MIN, i64::MIN),
        };
        let count = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&key, Type::BYTEA),
            (&levels, Type::INT8),
            (&width_ms, Type::INT8),
            (&from_ms, Type::INT8),
            (&count, Type::INT8),
        ];
        let rows = self.query(schema::SCAN, &parameters).await?;
        let number = |width_ms: i64, pane_ms: i64| {
            Some(pane_ms.div_euclid(width_ms.checked_mul(CELLS_OF_A_BLOCK).filter(|block_ms| *block_ms > 0)?))
        };
        let (mut blocks, mut listed) = (Vec::new(), HashSet::new());
        for block in rows.iter().filter_map(|row| block(row, number)) {
            if listed.insert(block.clone()) {
                blocks.push(block);
            }
        }
        // Without a block of ours there is nothing behind which to go on.
        let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < count;
        let next = blocks.last().filter(|_| !is_last).cloned().map(Place::Behind);
        Ok((blocks, next))
    }
}
