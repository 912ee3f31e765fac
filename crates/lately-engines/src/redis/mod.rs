//! Redis and Valkey: a sorted set for each block, with a time to live.
//!
//! The data is on one server, a Redis Cluster, or a master that Sentinels name. All of them are handled as hash slots
//! with owners; a single server owns all slots. Commands go to the owner of their slot, and redirections to a new
//! owner are followed. A command whose connection failed is not sent again here. The caller does that.

mod address;
mod connection;
mod refusal;
mod slots;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::time::Duration;

use futures_util::future::join_all;
use lately::Origin;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value, from_redis_value};

use crate::layout::{members, name, name_of_texts, read_block, read_name};
use crate::limits::{CHANGED_LASTS, CHANGED_SETS, ENGINE_COMMANDS, LASTING_BLOCKS, REDIRECTIONS};
use crate::{Block, Engine, EngineError, KeyText, List, NamedTexts, OwnedBlock, Place, Server, Told, Write};

use address::{Host, Route, Servers};
use connection::{Connection, Failure, Mode};
use slots::{Slots, slot, text};

/// The key of a list: a hash of names and texts. It is one key, so that it can be read with one command from a Redis
/// Cluster, too.
const fn key_of(list: List) -> &'static [u8] {
    match list {
        List::Nodes => b"lately:nodes",
        List::Levels => b"lately:levels",
        List::BusyKeys => b"lately:busy",
    }
}

/// Redis or Valkey: one server, a cluster, or a master that Sentinels name.
#[derive(Debug)]
pub struct Redis {
    servers: Servers,
    /// The owners of the slots. `None` before they are needed, and after a failure.
    slots: Option<Slots>,
    /// The working connections, to servers with data and to Sentinels. Connections are opened only by this type.
    connections: HashMap<Host, Connection>,
    /// The number of times that a connection was lost or a replica took over.
    life: u64,
    /// The last known owners of slots.
    owner_ids: Vec<String>,
    /// The number of lookups of slot owners, so that a different server is queried each time.
    lookups: usize,
    /// The node whose name was claimed in this life.
    claimed: Option<String>,
    /// Hashes of the blocks whose time to live was set in this life.
    lasting: HashSet<u64>,
    /// See [`Engine::warning`].
    warning: Option<String>,
    hasher: RandomState,
}

/// The room that a command has at first: for a `ZADD` of one count, so that most need no more.
const USUAL_ARGUMENTS: usize = 6;
const USUAL_BYTES: usize = 80;

/// A command on one key.
struct Command {
    /// Its name, for errors.
    name: &'static str,
    slot: u16,
    command: Cmd,
}

impl Command {
    fn new(name: &'static str, key: &[u8]) -> Command {
        let mut command = Cmd::with_capacity(USUAL_ARGUMENTS, key.len() + USUAL_BYTES);
        command.arg(name).arg(key);
        Command { name, slot: slot(key), command }
    }

    fn arg(mut self, argument: impl redis::ToRedisArgs) -> Command {
        self.command.arg(argument);
        self
    }
}

/// A command without an answer.
struct Unanswered {
    /// The index of the command.
    index: usize,
    /// Where a server redirected it, and whether for this command only.
    redirected: Option<(Host, Redirect)>,
}

/// How a server redirected a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Redirect {
    /// The slot has another owner: `MOVED`.
    Moved,
    /// The slot is being migrated: `ASK`. The key is at the new owner already, or does not exist.
    Ask,
}

impl Redis {
    /// An engine on the servers at these addresses, such as `redis://user:password@127.0.0.1:6379/0`: one server, or
    /// some of a Redis Cluster. `redis+sentinel://HOST:PORT,HOST:PORT/MASTER` is the master that Sentinels name.
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid.
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Result<Redis, EngineError> {
        Ok(Redis {
            servers: Servers::of(urls)?,
            slots: None,
            connections: HashMap::new(),
            life: 0,
            owner_ids: Vec::new(),
            warning: None,
            lookups: 0,
            claimed: None,
            lasting: HashSet::new(),
            hasher: RandomState::new(),
        })
    }

    /// A server that this engine and another one both use, with the same database: what one writes, the other reads.
    #[must_use]
    pub fn shared_server(&self, other: &Redis) -> Option<String> {
        let (ours, theirs) = (&self.servers, &other.servers);
        let is_same = ours.login.db() == theirs.login.db() && ours.route.master() == theirs.route.master();
        let shared = ours.seeds.iter().find(|seed| theirs.seeds.contains(seed));
        shared.filter(|_| is_same).map(Host::to_string)
    }

    fn begin_life(&mut self) {
        self.life += 1;
        self.lasting.clear();
        self.claimed = None;
    }

    /// The connection to a server that is not a Sentinel. Connects if necessary.
    async fn connection(&mut self, host: &Host) -> Result<&mut Connection, EngineError> {
        if !self.connections.contains_key(host) {
            let connection = Connection::open(&self.servers, host, &self.servers.login).await?;
            self.connections.insert(host.clone(), connection);
        }
        Ok(self.connections.get_mut(host).expect("it was made"))
    }

    /// Drops a connection, so that late answers are not taken for answers to later commands. The server may have
    /// failed and lost the last writes.
    fn drop_connection(&mut self, host: &Host) {
        self.connections.remove(host);
        self.slots = None;
        self.begin_life();
    }

    /// Looks up the owners of the slots. Queries `first` first.
    async fn look_up(&mut self, first: Option<&Host>) -> Result<(), EngineError> {
        self.lookups = self.lookups.wrapping_add(1);
        let slots = match self.servers.route {
            Route::Direct => self.find_owners(first).await?,
            Route::Sentinel { .. } => Slots::single(self.find_master().await?),
        };
        if !slots.ids().iter().copied().eq(self.owner_ids.iter().map(String::as_str)) {
            // A replica may have taken over without the last writes. A slot that only moves to another owner loses
            // nothing.
            self.begin_life();
            self.owner_ids = slots.ids().into_iter().map(str::to_owned).collect();
        }
        let hosts: HashSet<&Host> = slots.owners().into_iter().chain(slots.replicas()).collect();
        if matches!(self.servers.route, Route::Direct) {
            self.connections.retain(|host, _| hosts.contains(host));
        }
        self.slots = Some(slots);
        Ok(())
    }

    /// Finds the owners of the slots. Queries the connected servers in rotation, then the known ones, then those of
    /// the config.
    async fn find_owners(&mut self, first: Option<&Host>) -> Result<Slots, EngineError> {
        let mut connected: Vec<Host> = self.connections.keys().cloned().collect();
        connected.sort_unstable();
        if !connected.is_empty() {
            let turn = self.lookups % connected.len();
            connected.rotate_left(turn);
        }
        let slots = self.slots.take().unwrap_or_default();
        let known = slots.owners().into_iter().chain(slots.replicas()).chain(&self.servers.seeds);
        let candidates: Vec<Host> = first.into_iter().chain(&connected).chain(known).cloned().collect();
        let (mut queried, mut failed) = (HashSet::new(), None);
        for host in candidates {
            if !queried.insert(host.clone()) {
                continue;
            }
            match self.slots_of(&host).await {
                Ok(slots) => return Ok(slots),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("there is a seed"))
    }

    /// The owners of the slots according to one server.
    async fn slots_of(&mut self, host: &Host) -> Result<Slots, EngineError> {
        let connection = self.connection(host).await?;
        let answer = match connection.mode().await {
            Ok(Mode::Cluster) => connection.query("CLUSTER SLOTS", redis::cmd("CLUSTER").arg("SLOTS")).await,
            Ok(Mode::Single) if self.servers.seeds.len() == 1 => return Ok(Slots::single(host.clone())),
            Ok(mode) => {
                let answer = match mode {
                    Mode::Sentinel => "it is a Sentinel: give redis+sentinel://HOST:PORT/MASTER",
                    _ => "it is no part of a Redis Cluster, so give its address alone",
                };
                return Err(EngineError::Refused { server: host.to_string(), answer: answer.to_owned() });
            }
            Err(failure) => Err(failure),
        };
        let answer = self.check(host, answer)?;
        Slots::read(&answer, host).ok_or_else(|| EngineError::Refused {
            server: host.to_string(),
            answer: "something else than the owners of slots".to_owned(),
        })
    }

    /// Finds the master by the Sentinels.
    async fn find_master(&mut self) -> Result<Host, EngineError> {
        let mut sentinels = self.servers.seeds.clone();
        let turn = self.lookups % sentinels.len();
        sentinels.rotate_left(turn);
        let mut failed = None;
        for sentinel in sentinels {
            match self.master_from(&sentinel).await {
                Ok(master) => return Ok(master),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("there is a Sentinel"))
    }

    /// The master according to one Sentinel.
    async fn master_from(&mut self, sentinel: &Host) -> Result<Host, EngineError> {
        let Route::Sentinel { master, login } = &self.servers.route else { unreachable!("it is one") };
        let connection = match self.connections.get_mut(sentinel) {
            Some(connection) => connection,
            None => {
                let connection = Connection::open(&self.servers, sentinel, login).await?;
                self.connections.entry(sentinel.clone()).or_insert(connection)
            }
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let unknown = format!("no master '{}' is known", master.escape_debug());
        let answer = connection.query("SENTINEL GET-MASTER-ADDR-BY-NAME", &command).await;
        let answer = answer.map_err(|failure| {
            self.connections.remove(sentinel);
            failure.into_error()
        })?;
        let host = if let Value::Array(parts) = &answer
            && let [name, port] = parts.as_slice()
            && let (Some(name), Some(Ok(port))) = (text(name), text(port).map(str::parse))
        {
            Some(Host { name: name.to_owned(), port })
        } else {
            None
        };
        host.ok_or_else(|| EngineError::Refused { server: sentinel.to_string(), answer: unknown })
    }

    /// Converts a failure to an error. Drops a connection that failed.
    fn check<T>(&mut self, host: &Host, answer: Result<T, Failure>) -> Result<T, EngineError> {
        answer.map_err(|failure| {
            if matches!(failure, Failure::Lost(_)) {
                self.drop_connection(host);
            }
            failure.into_error()
        })
    }

    /// Sends commands to the owners of their slots, to all owners at the same time, and returns the answers in the
    /// order of the commands. If one command fails, the others are sent nevertheless.
    async fn run<T: FromRedisValue>(&mut self, mut commands: Vec<Command>) -> Result<Vec<T>, EngineError> {
        let mut answers: Vec<Option<Value>> = vec![None; commands.len()];
        let mut unanswered: Vec<Unanswered> =
            (0..commands.len()).map(|index| Unanswered { index, redirected: None }).collect();
        // The first error. Later ones may be its consequences.
        let mut failed = None;
        let mut moved_to = None;
        if self.slots.is_none() && !unanswered.is_empty() {
            self.look_up(None).await?;
        }
        for _ in 0..=REDIRECTIONS {
            if unanswered.is_empty() {
                break;
            }
            // Few servers, and many commands for each.
            let mut by_server: Vec<(Host, bool, Vec<usize>)> = Vec::new();
            let mut has_unowned = false;
            for Unanswered { index, redirected } in unanswered.drain(..) {
                let slot = commands[index].slot;
                let owner = self.slots.as_ref().and_then(|slots| slots.owner(slot));
                let to = match &redirected {
                    Some((host, redirect)) => Some((host, *redirect == Redirect::Ask)),
                    None => owner.map(|owner| (owner, false)),
                };
                let Some((host, asking)) = to else {
                    has_unowned = true;
                    failed.get_or_insert(EngineError::ClusterDown(format!("slot {slot} has no server")));
                    continue;
                };
                match by_server.iter_mut().find(|(of, ask, _)| of == host && *ask == asking) {
                    Some((.., indices)) => indices.push(index),
                    None => by_server.push((host.clone(), asking, vec![index])),
                }
            }
            if has_unowned {
                self.slots = None;
            }
            let mut exchanges = Vec::with_capacity(by_server.len());
            for (host, asking, indices) in by_server {
                match self.connection(&host).await {
                    Ok(connection) => {
                        exchanges.push(exchange(connection.clone(), &mut commands, indices, asking));
                    }
                    Err(error) => {
                        self.slots = None;
                        failed.get_or_insert(error);
                    }
                }
            }
            for Exchanged { connection, sent, asking, indices, outcomes } in join_all(exchanges).await {
                let host = connection.server();
                let values = match outcomes {
                    Ok(values) => values,
                    Err(error) => {
                        self.drop_connection(host);
                        failed.get_or_insert(error);
                        continue;
                    }
                };
                let sent = sent.cmd_iter().skip(usize::from(asking)).step_by(1 + usize::from(asking));
                for ((index, value), sent) in indices.into_iter().zip(values).zip(sent) {
                    let (error, name) = match value {
                        Ok(value) => {
                            answers[index] = Some(value);
                            continue;
                        }
                        Err(error) => error,
                    };
                    if let Some((to, redirect)) = redirection(&error, host) {
                        if redirect == Redirect::Moved {
                            moved_to = Some(to.clone());
                        }
                        commands[index].command = sent.clone();
                        unanswered.push(Unanswered { index, redirected: Some((to, redirect)) });
                        continue;
                    }
                    let refusal = connection.refusal(&error, name);
                    match refusal {
                        // The server was the master before. Its last writes may be lost.
                        EngineError::ReadOnly { .. } => self.drop_connection(host),
                        EngineError::ClusterDown(_) => self.slots = None,
                        _ => {}
                    }
                    failed.get_or_insert(refusal);
                }
            }
        }
        if let Some(host) = moved_to {
            // The answers are valid even if this fails. Then the next command is redirected again.
            let _ = self.look_up(Some(&host)).await;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if !unanswered.is_empty() {
            return Err(EngineError::ClusterDown("its servers disagree on who has a slot".to_owned()));
        }
        let answers = answers.into_iter().map(|answer| {
            from_redis_value(answer.expect("each has an answer or an error")).map_err(|error| {
                EngineError::Refused { server: "the engine".to_owned(), answer: error.to_string() }
            })
        });
        answers.collect()
    }

    /// Checks whether the owners are the same, and whether they answer.
    async fn check_servers(&mut self) -> Result<(), EngineError> {
        let lookup = self.look_up(None).await;
        if self.slots.is_none() {
            // Without Sentinels the master is assumed to stay the same.
            lookup?;
        }
        let owners: Vec<Host> = self.slots.iter().flat_map(Slots::owners).cloned().collect();
        let mut connections = Vec::with_capacity(owners.len());
        for owner in &owners {
            // Commands that need an unreachable server get the error.
            if let Ok(connection) = self.connection(owner).await {
                connections.push(connection.clone());
            }
        }
        for (connection, answer) in join_all(connections.into_iter().map(ping)).await {
            let _ = self.check(connection.server(), answer);
        }
        Ok(())
    }
}

fn as_texts(fields: Vec<(Vec<u8>, Vec<u8>)>) -> NamedTexts {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    fields.into_iter().map(|(name, value)| (text(name), text(value))).collect()
}

/// A command on one of the sets with the names of changed blocks.
fn of_changed(command: &'static str, set: u16) -> Command {
    Command::new(command, format!("lately:changed:{set}").as_bytes())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Sends a command that every server answers.
async fn ping(mut connection: Connection) -> (Connection, Result<Mode, Failure>) {
    let answer = connection.mode().await;
    (connection, answer)
}

/// The answer to a command, or an error and the name of the failed command.
type Outcome = Result<Value, (RedisError, &'static str)>;

/// Commands that were sent to one server, and what came of them.
struct Exchanged {
    connection: Connection,
    /// The commands. With `asking`, each is behind an `ASKING`.
    sent: Pipeline,
    asking: bool,
    /// Their indices.
    indices: Vec<usize>,
    outcomes: Result<Vec<Outcome>, EngineError>,
}

/// Takes some of the commands, and sends them to one server.
fn exchange(
    mut connection: Connection,
    commands: &mut [Command],
    indices: Vec<usize>,
    asking: bool,
) -> impl Future<Output = Exchanged> + use<> {
    let mut sent = Pipeline::with_capacity(indices.len() * (1 + usize::from(asking)));
    sent.ignore_errors();
    let mut names = Vec::with_capacity(indices.len());
    for &index in &indices {
        if asking {
            sent.cmd("ASKING");
        }
        sent.add_command(mem::take(&mut commands[index].command));
        names.push(commands[index].name);
    }
    async move {
        let outcomes = connection.run(&sent).await.map(|answers| {
            let mut answers = answers.into_iter();
            let mut next = |name| -> Outcome {
                answers.next().expect("an answer to each command").map_err(|error| (error, name))
            };
            let outcomes = names.iter().map(|&name| {
                let asked = if asking { next("ASKING") } else { Ok(Value::Nil) };
                let outcome = next(name);
                asked.and(outcome)
            });
            outcomes.collect()
        });
        Exchanged { connection, sent, asking, indices, outcomes }
    }
}

/// The server to which an error redirects a command.
fn redirection(error: &RedisError, from: &Host) -> Option<(Host, Redirect)> {
    let (address, _) = error.redirect_node()?;
    let redirect = if error.code() == Some("ASK") { Redirect::Ask } else { Redirect::Moved };
    let (name, port) = address.rsplit_once(':')?;
    let name = if ["", "?"].contains(&name) { &from.name } else { name.trim_matches(['[', ']']) };
    Some((Host { name: name.to_owned(), port: port.parse().ok()? }, redirect))
}

impl Engine for Redis {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        for writes in writes.chunks(ENGINE_COMMANDS / 2) {
            let mut new = Vec::new();
            let mut commands = Vec::with_capacity(2 * writes.len());
            let mut last: Option<(&Origin, String)> = None;
            let life = self.life;
            for Write { block, keep_until, counts } in writes {
                let name = name(block);
                let mut add = Command::new("ZADD", &name).arg("GT");
                for known in counts {
                    // Most are of one origin.
                    let (_, origin) = match last.take().filter(|(origin, _)| **origin == known.origin) {
                        Some(same) => last.insert(same),
                        None => last.insert((&known.origin, known.origin.to_string())),
                    };
                    for (member, score) in members(known, origin) {
                        add = add.arg(score).arg(member);
                    }
                }
                commands.push(add);
                let hash = self.hasher.hash_one(block);
                if !self.lasting.contains(&hash) {
                    new.push(hash);
                    commands.push(Command::new("PEXPIREAT", &name).arg(keep_until.as_millis()));
                }
            }
            self.run::<Value>(commands).await?;
            if self.lasting.len() > LASTING_BLOCKS {
                self.lasting.clear();
            }
            if life == self.life {
                self.lasting.extend(new);
            }
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
        self.check_servers().await?;
        let (name, lasts_ms) = (format!("lately:node:{node}"), milliseconds(lasts));
        let command = |command| Command::new(command, name.as_bytes());
        let set = || command("SET").arg(holder);
        let answers: Vec<Option<String>> =
            self.run(vec![set().arg("NX").arg("PX").arg(lasts_ms), command("GET")]).await?;
        let (is_new, held) = (answers[0].is_some(), &answers[1]);
        match held {
            Some(held) if is_former(held) => {
                // No other server takes the name while it exists.
                self.run::<Value>(vec![set().arg("PX").arg(lasts_ms)]).await?;
            }
            Some(held) if held != holder => return Ok(Some(held.clone())),
            _ => {
                if is_new && self.claimed.as_deref() == Some(node) {
                    // The name existed before. The server was emptied, or the claim expired.
                    self.begin_life();
                }
                self.run::<Value>(vec![command("PEXPIRE").arg(lasts_ms)]).await?;
            }
        }
        self.claimed = Some(node.to_owned());
        Ok(None)
    }

    async fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        lasts: Duration,
    ) -> Result<(), EngineError> {
        let command = |command| Command::new(command, key_of(list));
        let commands = match text {
            Some(text) => {
                let set = command("HSET").arg(name).arg(text);
                vec![set, command("PEXPIRE").arg(milliseconds(lasts))]
            }
            None => vec![command("HDEL").arg(name)],
        };
        self.run::<Value>(commands).await.map(drop)
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        let texts: Vec<Vec<(Vec<u8>, Vec<u8>)>> =
            self.run(vec![Command::new("HGETALL", key_of(list))]).await?;
        Ok(texts.into_iter().flat_map(as_texts).collect())
    }

    fn carries_key_texts(&self) -> bool {
        true
    }

    async fn set_key_texts(&mut self, texts: &[KeyText<'_>]) -> Result<(), EngineError> {
        for texts in texts.chunks(ENGINE_COMMANDS / 2) {
            let commands = texts.iter().flat_map(|&KeyText { key, name, text, keep_until }| {
                let of_key = name_of_texts(key);
                let set = match text {
                    Some(text) => Command::new("HSET", &of_key).arg(name).arg(text),
                    None => Command::new("HDEL", &of_key).arg(name),
                };
                [set, Command::new("PEXPIREAT", &of_key).arg(keep_until.as_millis())]
            });
            self.run::<Value>(commands.collect()).await?;
        }
        Ok(())
    }

    async fn key_texts(&mut self, keys: &[&[u8]]) -> Result<Vec<NamedTexts>, EngineError> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(ENGINE_COMMANDS) {
            let commands = keys.iter().map(|key| Command::new("HGETALL", &name_of_texts(key))).collect();
            let texts: Vec<Vec<(Vec<u8>, Vec<u8>)>> = self.run(commands).await?;
            all.extend(texts.into_iter().map(as_texts));
        }
        Ok(all)
    }

    fn life(&self) -> u64 {
        self.life
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let mut all = Vec::with_capacity(blocks.len());
        for blocks in blocks.chunks(ENGINE_COMMANDS) {
            let commands: Vec<_> = blocks
                .iter()
                .map(|block| Command::new("ZRANGE", &name(block)).arg(0).arg(-1).arg("WITHSCORES"))
                .collect();
            let sets: Vec<Vec<(Vec<u8>, f64)>> = self.run(commands).await?;
            for (block, members) in blocks.iter().zip(&sets) {
                let (counts, foreign) = read_block(block, members);
                all.push(counts);
                if self.warning.is_none() {
                    self.warning = foreign.map(|error| error.to_string());
                }
            }
        }
        Ok(all)
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        for blocks in blocks.chunks(ENGINE_COMMANDS) {
            let mut by_set: [Vec<Vec<u8>>; CHANGED_SETS as usize] = Default::default();
            for block in blocks {
                let name = name(block);
                by_set[usize::from(slot(&name) % CHANGED_SETS)].push(name);
            }
            let sets = (0..CHANGED_SETS).zip(by_set).filter(|(_, names)| !names.is_empty());
            let commands = sets.flat_map(|(set, names)| {
                let lasts_ms = milliseconds(CHANGED_LASTS);
                [of_changed("SADD", set).arg(names), of_changed("PEXPIRE", set).arg(lasts_ms)]
            });
            self.run::<Value>(commands.collect()).await?;
        }
        Ok(())
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        let of_each = most.div_ceil(usize::from(CHANGED_SETS));
        let commands: Vec<_> = (0..CHANGED_SETS).map(|set| of_changed("SPOP", set).arg(of_each)).collect();
        let names: Vec<Vec<Vec<u8>>> = self.run(commands).await?;
        Ok(names.into_iter().flatten().filter_map(|name| read_name(&name)).collect())
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        let commands: Vec<_> = (0..CHANGED_SETS).map(|set| of_changed("SCARD", set)).collect();
        let counts: Vec<usize> = self.run(commands).await?;
        Ok(counts.into_iter().sum())
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        if self.slots.is_none() {
            self.look_up(None).await?;
        }
        let owners = self.slots.iter().flat_map(Slots::owners);
        let mut owners: Vec<_> = owners.map(|owner| (owner.to_string(), owner.clone())).collect();
        owners.sort_unstable();
        let from = from.and_then(|place| match place {
            Place::Cursor { server, cursor } => Some((server, *cursor)),
            Place::Behind(_) => None,
        });
        let mut left = owners.into_iter().skip_while(|(name, _)| from.is_some_and(|(first, _)| name < first));
        let Some((server, owner)) = left.next() else { return Ok((Vec::new(), None)) };
        let cursor = from.filter(|(first, _)| **first == server).map_or(0, |(_, cursor)| cursor);
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg("lately:*").arg("COUNT").arg(count);
        let answer = self.connection(&owner).await?.query("SCAN", &command).await;
        let answer = self.check(&owner, answer)?;
        let (cursor, names): (u64, Vec<Vec<u8>>) = from_redis_value(answer)
            .map_err(|error| EngineError::Refused { server: server.clone(), answer: error.to_string() })?;
        let blocks = names.iter().filter_map(|name| read_name(name)).collect();
        let next = if cursor == 0 { left.next().map(|(server, _)| server) } else { Some(server) };
        Ok((blocks, next.map(|server| Place::Cursor { server, cursor })))
    }

    fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    fn servers(&self) -> Vec<Server> {
        self.slots.as_ref().map_or_else(Vec::new, Slots::of_each)
    }
}
