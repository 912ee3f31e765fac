//! Redis and Valkey: a sorted set for each block, with a time to live.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError};

use crate::layout::{members, name, told};
use crate::{Block, Engine, EngineError, Told, Write};

/// How long a connection attempt, and an answer, may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Commands that are sent together.
const TOGETHER: usize = 1_000;

/// Blocks that are known to have their time to live.
const LASTING: usize = 200_000;

/// A hash with the status of each node. It is one key, so that it can be read at once from a Redis Cluster, too.
const NODES: &str = "lately:nodes";

/// One Redis or Valkey server.
#[derive(Debug)]
pub struct Redis {
    client: Client,
    /// `None` until it is needed, and after a failure: only this decides when to try again.
    connection: Option<MultiplexedConnection>,
    /// How often it was connected, or has lost what it had.
    life: u64,
    /// Whether the name of the node was claimed.
    is_claimed: bool,
    /// Hashes of the blocks that have their time to live, in this life.
    lasting: HashSet<u64>,
    hasher: RandomState,
}

impl Redis {
    /// The server at an address, such as `redis://:password@127.0.0.1:6379/0`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`EngineError::Url`] when the address is not one.
    pub fn new(url: &str) -> Result<Redis, EngineError> {
        let client = Client::open(url)
            .map_err(|error| EngineError::Url { url: without_password(url), why: error.to_string() })?;
        Ok(Redis {
            client,
            connection: None,
            life: 0,
            is_claimed: false,
            lasting: HashSet::new(),
            hasher: RandomState::new(),
        })
    }

    async fn connection(&mut self) -> Result<&mut MultiplexedConnection, EngineError> {
        if self.connection.is_none() {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(TIMEOUT))
                .set_response_timeout(Some(TIMEOUT));
            let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
            self.connection = Some(connection.map_err(|error| error_of(&error))?);
            self.life += 1;
            self.lasting.clear();
        }
        Ok(self.connection.as_mut().expect("it was made"))
    }

    async fn run<T: redis::FromRedisValue>(&mut self, pipeline: &Pipeline) -> Result<T, EngineError> {
        let connection = self.connection().await?;
        match pipeline.query_async(connection).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                // What is still on its way must not be taken for the answer to something else.
                self.connection = None;
                Err(error_of(&error))
            }
        }
    }
}

impl Engine for Redis {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        for writes in writes.chunks(TOGETHER / 2) {
            let mut new = Vec::new();
            let mut pipeline = Pipeline::with_capacity(2 * writes.len());
            for Write { block, keep_until, counts } in writes {
                let name = name(block);
                let add = pipeline.cmd("ZADD").arg(&name).arg("GT");
                for (member, score) in counts.iter().flat_map(|known| members(known)) {
                    add.arg(score).arg(member);
                }
                add.ignore();
                let hash = self.hasher.hash_one(block);
                if !self.lasting.contains(&hash) {
                    new.push(hash);
                    pipeline.cmd("PEXPIREAT").arg(name).arg(keep_until.as_millis()).ignore();
                }
            }
            self.run::<()>(&pipeline).await?;
            if self.lasting.len() > LASTING {
                self.lasting.clear();
            }
            self.lasting.extend(new);
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
        let (name, lasts_ms) =
            (format!("lately:node:{node}"), u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
        let mut set = Pipeline::new();
        set.cmd("SET").arg(&name).arg(holder).arg("NX").arg("PX").arg(lasts_ms);
        set.cmd("GET").arg(&name);
        let (is_new, held): (Option<String>, Option<String>) = self.run(&set).await?;
        match held {
            Some(held) if is_former(&held) => {
                // Nobody else takes it while it is there.
                let mut take = Pipeline::new();
                take.cmd("SET").arg(&name).arg(holder).arg("PX").arg(lasts_ms).ignore();
                self.run::<()>(&take).await?;
                self.is_claimed = true;
                Ok(None)
            }
            Some(held) if held != holder => Ok(Some(held)),
            _ => {
                // It was there: somebody has emptied the server, or it was not renewed for long.
                if is_new.is_some() && self.is_claimed {
                    self.life += 1;
                    self.lasting.clear();
                }
                self.is_claimed = true;
                let mut renew = Pipeline::new();
                renew.cmd("PEXPIRE").arg(&name).arg(lasts_ms).ignore();
                self.run::<()>(&renew).await?;
                Ok(None)
            }
        }
    }

    async fn report(&mut self, node: &str, status: Option<&str>, lasts: Duration) -> Result<(), EngineError> {
        let mut pipeline = Pipeline::new();
        match status {
            Some(status) => {
                let lasts_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
                pipeline.cmd("HSET").arg(NODES).arg(node).arg(status).ignore();
                pipeline.cmd("PEXPIRE").arg(NODES).arg(lasts_ms).ignore();
            }
            None => _ = pipeline.cmd("HDEL").arg(NODES).arg(node).ignore(),
        }
        self.run(&pipeline).await
    }

    async fn nodes(&mut self) -> Result<Vec<(String, String)>, EngineError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HGETALL").arg(NODES);
        let (nodes,): (Vec<(Vec<u8>, Vec<u8>)>,) = self.run(&pipeline).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(nodes.into_iter().map(|(node, status)| (text(node), text(status))).collect())
    }

    fn life(&self) -> u64 {
        self.life
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        let mut all = Vec::with_capacity(blocks.len());
        for blocks in blocks.chunks(TOGETHER) {
            let mut pipeline = Pipeline::with_capacity(blocks.len());
            for block in blocks {
                pipeline.cmd("ZRANGE").arg(name(block)).arg(0).arg(-1).arg("WITHSCORES");
            }
            let sets: Vec<Vec<(Vec<u8>, f64)>> = self.run(&pipeline).await?;
            for (block, members) in blocks.iter().zip(&sets) {
                all.push(told(block, members)?);
            }
        }
        Ok(all)
    }
}

fn error_of(error: &RedisError) -> EngineError {
    let is_away = error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_connection_refusal()
        || matches!(error.kind(), ErrorKind::Io);
    if is_away { EngineError::Away(error.to_string()) } else { EngineError::Refused(error.to_string()) }
}

/// An address without the user and the password, to be shown.
#[must_use]
pub fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}
