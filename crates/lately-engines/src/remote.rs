//! The engine that addresses name by their scheme.

use std::time::Duration;

use crate::{
    Away, Block, Engine, EngineError, KeyText, List, NamedTexts, OwnedBlock, Peers, Place, Postgres, Redis,
    Server, Told, VisitRecords, Write,
};

/// An engine of one of the kinds that a config can name.
pub enum Remote {
    /// Redis or Valkey.
    Redis(Redis),
    /// PostgreSQL.
    Postgres(Postgres),
    /// A mesh of nodes.
    Peers(Peers),
    /// Kafka.
    #[cfg(feature = "kafka")]
    Kafka(Box<crate::Kafka>),
}

/// Evaluates an expression with the engine, whichever it is.
macro_rules! with {
    ($remote:expr, $engine:ident => $result:expr) => {
        match $remote {
            Remote::Redis($engine) => $result,
            Remote::Postgres($engine) => $result,
            Remote::Peers($engine) => $result,
            #[cfg(feature = "kafka")]
            Remote::Kafka($engine) => $result,
        }
    };
}

impl Remote {
    /// The engine at these addresses, unless they are those of nodes or brokers: these need more. Nothing is connected yet.
    ///
    /// # Errors
    /// [`EngineError::Url`]: an address is invalid, or they are of different kinds.
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Result<Remote, EngineError> {
        if urls.first().is_some_and(|url| Postgres::is_meant(url.as_ref())) {
            Postgres::new(urls).map(Remote::Postgres)
        } else {
            Redis::new(urls).map(Remote::Redis)
        }
    }

    /// Its kind, as in the config.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Remote::Redis(_) => "redis",
            Remote::Postgres(_) => "postgres",
            Remote::Peers(_) => "peers",
            #[cfg(feature = "kafka")]
            Remote::Kafka(_) => "kafka",
        }
    }

    /// A server that this engine and another one both use, with the same database: what one writes, the other reads.
    #[must_use]
    pub fn shared_server(&self, other: &Remote) -> Option<String> {
        match (self, other) {
            (Remote::Redis(ours), Remote::Redis(theirs)) => ours.shared_server(theirs),
            (Remote::Postgres(ours), Remote::Postgres(theirs)) => ours.shared_server(theirs),
            _ => None,
        }
    }
}

impl Engine for Remote {
    async fn send(&mut self, writes: &[Write<'_>]) -> Result<(), EngineError> {
        with!(self, engine => engine.send(writes).await)
    }

    async fn claim(
        &mut self,
        node: &str,
        holder: &str,
        is_former: &(dyn Fn(&str) -> bool + Sync),
        lasts: Duration,
    ) -> Result<Option<String>, EngineError> {
        with!(self, engine => engine.claim(node, holder, is_former, lasts).await)
    }

    async fn set_text(
        &mut self,
        list: List,
        name: &str,
        text: Option<&str>,
        lasts: Duration,
    ) -> Result<(), EngineError> {
        with!(self, engine => engine.set_text(list, name, text, lasts).await)
    }

    async fn texts(&mut self, list: List) -> Result<Vec<(String, String)>, EngineError> {
        with!(self, engine => engine.texts(list).await)
    }

    fn carries_key_texts(&self) -> bool {
        with!(self, engine => engine.carries_key_texts())
    }

    async fn set_key_texts(&mut self, texts: &[KeyText<'_>]) -> Result<(), EngineError> {
        with!(self, engine => engine.set_key_texts(texts).await)
    }

    async fn key_texts(&mut self, keys: &[&[u8]]) -> Result<Vec<NamedTexts>, EngineError> {
        with!(self, engine => engine.key_texts(keys).await)
    }

    fn life(&self) -> u64 {
        with!(self, engine => engine.life())
    }

    fn warning(&mut self) -> Option<String> {
        with!(self, engine => engine.warning())
    }

    fn is_complete(&self) -> bool {
        with!(self, engine => engine.is_complete())
    }

    fn away(&self) -> Away {
        with!(self, engine => engine.away())
    }

    fn problem(&self) -> Option<String> {
        with!(self, engine => engine.problem())
    }

    async fn close(&mut self) {
        with!(self, engine => engine.close().await);
    }

    fn visit_records(&self, page: usize, visit: &mut VisitRecords<'_>) -> bool {
        with!(self, engine => engine.visit_records(page, visit))
    }

    fn servers(&self) -> Vec<Server> {
        with!(self, engine => engine.servers())
    }

    async fn read(&mut self, blocks: &[Block<'_>]) -> Result<Vec<Told>, EngineError> {
        with!(self, engine => engine.read(blocks).await)
    }

    async fn note_changed(&mut self, blocks: &[Block<'_>]) -> Result<(), EngineError> {
        with!(self, engine => engine.note_changed(blocks).await)
    }

    async fn take_changed(&mut self, most: usize) -> Result<Vec<OwnedBlock>, EngineError> {
        with!(self, engine => engine.take_changed(most).await)
    }

    async fn changed(&mut self) -> Result<usize, EngineError> {
        with!(self, engine => engine.changed().await)
    }

    async fn scan(
        &mut self,
        from: Option<&Place>,
        count: usize,
    ) -> Result<(Vec<OwnedBlock>, Option<Place>), EngineError> {
        with!(self, engine => engine.scan(from, count).await)
    }
}
