//! The messages between a node and the owner of a key.

use lately::{Decision, Retry, Span, Timestamp};

use crate::service::{Decided, NamedRequest};

use super::IdHits;

/// The version of these messages.
pub(super) const PROTOCOL: u32 = 2;

/// The path of the method.
pub(super) const DECIDE: &str = "/lately.owners.v1.Owners/Decide";

/// Requests about keys that the node decides which they are sent to.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DecideRequest {
    #[prost(uint32, tag = "1")]
    pub(super) protocol: u32,
    /// The name of the node that is to decide.
    #[prost(string, tag = "2")]
    pub(super) owner: String,
    /// A hash of the names of all owners. Nodes that know others do not agree on the owner of a key.
    #[prost(fixed64, tag = "3")]
    pub(super) owners: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) asks: Vec<Ask>,
}

/// The answers, in the order of the requests.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DecideResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) answers: Vec<Answer>,
}

/// A request of a named limit, or hits with an id.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ask {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) limit: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) cost: i64,
    #[prost(sint64, optional, tag = "4")]
    pub(super) at_ms: Option<i64>,
    #[prost(bool, tag = "5")]
    pub(super) is_peek: bool,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub(super) address: Option<Vec<u8>>,
    /// A max and a window that replace those of the config.
    #[prost(message, optional, tag = "7")]
    pub(super) instead: Option<Instead>,
    #[prost(bool, tag = "8")]
    pub(super) is_spent: bool,
    /// Whether the answer is to say when one more hit is free.
    #[prost(bool, tag = "9")]
    pub(super) wants_more: bool,
    /// Hits to be counted, not a limit.
    #[prost(message, optional, tag = "10")]
    pub(super) hits: Option<Hits>,
}

/// Hits with an id.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Hits {
    #[prost(uint64, tag = "1")]
    pub(super) weight: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) id: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) member: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Instead {
    #[prost(uint64, tag = "1")]
    pub(super) max: u64,
    #[prost(uint64, tag = "2")]
    pub(super) window_ms: u64,
}

/// A decision, or why there is none.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Answer {
    /// The first word of the error in RESP, and the rest. Empty if there is a decision.
    #[prost(string, tag = "1")]
    pub(super) code: String,
    #[prost(string, tag = "2")]
    pub(super) error: String,
    #[prost(uint64, tag = "3")]
    pub(super) max: u64,
    #[prost(sint64, tag = "4")]
    pub(super) remaining: i64,
    /// 0: it is allowed. Missing: it never will be.
    #[prost(uint64, optional, tag = "5")]
    pub(super) retry_ms: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) reset_ms: Option<u64>,
    #[prost(uint64, tag = "7")]
    pub(super) window_ms: u64,
    #[prost(uint64, optional, tag = "8")]
    pub(super) more_after_ms: Option<u64>,
    /// The hits in the default window of the key, if hits were counted.
    #[prost(uint64, optional, tag = "9")]
    pub(super) hits: Option<u64>,
}

fn ms_of(span: Span) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(0)
}

fn span_of(ms: u64) -> Option<Span> {
    i64::try_from(ms).ok().and_then(Span::from_millis)
}

impl Ask {
    pub(crate) fn new(request: &NamedRequest<'_>, wants_more: bool) -> Ask {
        let &NamedRequest { key, name, cost, at, is_peek, address, instead, is_spent, .. } = request;
        let instead = instead.map(|(max, window)| Instead { max, window_ms: ms_of(window) });
        Ask {
            key: key.to_vec(),
            limit: name.to_vec(),
            cost,
            at_ms: at.map(Timestamp::as_millis),
            is_peek,
            address: address.map(<[u8]>::to_vec),
            instead,
            is_spent,
            wants_more,
            ..Ask::default()
        }
    }

    /// Hits to be counted, with an id.
    pub(crate) fn of_hits(hits: &IdHits<'_>) -> Ask {
        let &IdHits { key, weight, at, id, member } = hits;
        let hits = Hits { weight, id: id.to_vec(), member: member.map(<[u8]>::to_vec) };
        Ask { key: key.to_vec(), at_ms: at.map(Timestamp::as_millis), hits: Some(hits), ..Ask::default() }
    }

    /// Its time; `None` if it is none.
    pub(super) fn at(&self) -> Option<Option<Timestamp>> {
        match self.at_ms {
            None => Some(None),
            Some(at_ms) => Timestamp::from_millis(at_ms).map(Some),
        }
    }

    /// Its memory beside itself, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let hits = self.hits.as_ref();
        let of_hits = hits.map_or(0, |hits| hits.id.len() + hits.member.as_ref().map_or(0, Vec::len));
        self.key.len() + self.limit.len() + of_hits
    }

    /// The request. `None` if a time or a window is none.
    pub(super) fn request(&self) -> Option<NamedRequest<'_>> {
        let at = self.at()?;
        let instead = match self.instead {
            None => None,
            Some(Instead { max, window_ms }) => Some((max, span_of(window_ms)?)),
        };
        Some(NamedRequest {
            key: &self.key,
            name: &self.limit,
            cost: self.cost,
            at,
            is_peek: self.is_peek,
            address: self.address.as_deref(),
            instead,
            is_spent: self.is_spent,
            is_exempt: false,
        })
    }
}

impl Answer {
    pub(super) fn of(decided: &Decided) -> Answer {
        let Decided { decision, window, more_after } = decided;
        Answer {
            code: String::new(),
            error: String::new(),
            max: decision.max,
            remaining: decision.remaining,
            retry_ms: match decision.retry {
                Retry::Now => Some(0),
                Retry::After(wait) => Some(ms_of(wait)),
                Retry::Never => None,
            },
            reset_ms: decision.reset_after.map(ms_of),
            window_ms: ms_of(*window),
            more_after_ms: more_after.map(ms_of),
            hits: None,
        }
    }

    pub(super) fn of_hits(hits: u64) -> Answer {
        Answer { hits: Some(hits), ..Answer::default() }
    }

    pub(super) fn refused(code: &str, error: impl std::fmt::Display) -> Answer {
        Answer { code: code.to_owned(), error: format!("{error}"), ..Answer::default() }
    }

    /// The decision, unless it is an error. `None` if it is neither.
    pub(super) fn decided(&self) -> Option<Decided> {
        let retry = match self.retry_ms {
            None => Retry::Never,
            Some(0) => Retry::Now,
            Some(ms) => Retry::After(span_of(ms)?),
        };
        let span = |ms: Option<u64>| ms.map(|ms| span_of(ms).ok_or(())).transpose().ok();
        let decision =
            Decision { max: self.max, remaining: self.remaining, retry, reset_after: span(self.reset_ms)? };
        Some(Decided { decision, window: span_of(self.window_ms)?, more_after: span(self.more_after_ms)? })
    }
}
