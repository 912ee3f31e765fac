//! A node that writes the hits of its clients to Kafka (`role = "produce"`), and counts none of them itself.
//!
//! The reply to a hit waits until the brokers have acknowledged it, as it waits for the disk elsewhere. The node that counts the topic counts
//! it, and this one learns of it with all other counts.

use std::sync::Arc;

use lately::{Count, HitError, HitOnce, MemberHit, Op, Outcome, Store, Timestamp};
use lately_engines::{Delivery, HitRecord, HitRecords, KafkaRole, WriteHits};
use lately_resp::command::Verb;

use super::Refused;
use crate::config::Config;

/// What a node with `role = "ingest"` replies to clients.
const COUNTS_ONLY: &str = "this node only counts the records of Kafka (role = \"ingest\"): use a node with the role both, serve or produce";

/// What a node with `role = "produce"` replies to limits.
const NO_LIMITS: &str = "this node writes hits to Kafka and decides no limits (role = \"produce\"): use a node with the role both or serve";

/// The same of the hits of a source.
pub(crate) const NO_SOURCES: &str = "this node writes hits to Kafka (role = \"produce\") and keeps no positions of sources: use a node with the role both or serve, or lately produce";

/// The same of too many hits.
const TOO_MANY: &str =
    "this node writes hits to Kafka (role = \"produce\"): a hit has a count of at most 4294967296";

/// Writes the hits of clients.
pub(crate) struct Edge {
    writer: Box<dyn WriteHits>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// What a node does with an operation.
pub(super) enum Plan<'o> {
    /// It writes hits.
    Write {
        record: HitRecord<'o>,
        is_in_window: bool,
    },
    /// It asks the store.
    Ask,
    /// The hit is invalid.
    Fail(HitError),
    Refuse(Refused),
}

/// Why a node of this role refuses requests with a verb.
pub(crate) fn refusal(role: Option<KafkaRole>, verb: Option<Verb>) -> Option<&'static str> {
    match (role?, verb?) {
        (KafkaRole::Ingest, Verb::Read | Verb::Hit | Verb::Limit | Verb::Delete) => Some(COUNTS_ONLY),
        (KafkaRole::Produce, Verb::Limit) => Some(NO_LIMITS),
        _ => None,
    }
}

/// The role of a node that counts through Kafka.
pub(crate) fn role_of(config: &Config) -> Option<KafkaRole> {
    config.cluster.as_ref().and_then(|cluster| cluster.kafka.as_ref()).map(|kafka| kafka.role)
}

impl Edge {
    pub(crate) fn new(writer: Box<dyn WriteHits>, wake: Arc<dyn Fn() + Send + Sync>) -> Edge {
        Edge { writer, wake }
    }

    /// Gives hits to the brokers. Whoever waits for replies is woken when the result is there.
    ///
    /// # Errors
    /// Nothing was given.
    pub(super) fn write(&self, records: &HitRecords, now: Timestamp) -> Result<Arc<Delivery>, Refused> {
        let delivery = Arc::new(Delivery::calling(Arc::clone(&self.wake)));
        self.writer.write(records, now, &delivery).map_err(Refused::Unwritten)?;
        Ok(delivery)
    }
}

impl<'o> Plan<'o> {
    pub(super) fn of(op: &Op<'o>, store: &Store, now: Timestamp) -> Plan<'o> {
        match *op {
            Op::Hit { key, weight, at } => Plan::of_hit(key, (None, None), (weight, at), store, now),
            Op::HitOnce { key, weight, id } => {
                Plan::of_hit(key, (Some(id), None), (weight, None), store, now)
            }
            Op::HitOnceAt(ref hit) => {
                let HitOnce { key, weight, at, id } = **hit;
                Plan::of_hit(key, (Some(id), None), (weight, at), store, now)
            }
            Op::HitMember(ref hit) => {
                let MemberHit { key, weight, at, id, member } = **hit;
                Plan::of_hit(key, (id, Some(member)), (weight, at), store, now)
            }
            Op::Limit { .. }
            | Op::Decide(_)
            | Op::Refund(_)
            | Op::Throttle { .. }
            | Op::ThrottleBy(_)
            | Op::LimitAll(_) => Plan::Refuse(Refused::Never(NO_LIMITS)),
            _ => Plan::Ask,
        }
    }

    /// Checks a hit as the node will that counts it.
    fn of_hit(
        key: &'o [u8],
        (id, member): (Option<&'o [u8]>, Option<&'o [u8]>),
        (hits, at): (u64, Option<Timestamp>),
        store: &Store,
        now: Timestamp,
    ) -> Plan<'o> {
        if hits > HitRecords::MOST_HITS {
            return Plan::Refuse(Refused::Never(TOO_MANY));
        }
        let settings = store.settings_of(key);
        if let Some(id) = id {
            let checked = HitOnce::check_id(id);
            if let Err(error) = checked.and_then(|()| settings.dedupe().ok_or(HitError::NoDedupe)) {
                return Plan::Fail(error);
            }
        }
        if let Some(member) = member {
            let counts = if settings.unique() { Ok(()) } else { Err(HitError::NoMembers) };
            if let Err(error) = MemberHit::check_member(member).and(counts) {
                return Plan::Fail(error);
            }
        }
        let record = HitRecord { key, at: at.unwrap_or(now), hits, id, member };
        let Some(at) = at else { return Plan::Write { record, is_in_window: true } };
        let (age_ms, skew_ms) = (now.as_millis() - at.as_millis(), settings.max_skew().as_millis());
        let time = |ms: i64| Timestamp::from_millis(ms.max(0)).unwrap_or(Timestamp::MAX);
        if -age_ms > skew_ms {
            let latest = time(now.as_millis() + skew_ms);
            return Plan::Fail(HitError::Future { at, latest, max_skew: settings.max_skew() });
        }
        if age_ms > settings.levels().retain_ms() {
            return Plan::Fail(HitError::Late {
                at,
                oldest: time(now.as_millis() - settings.levels().retain_ms()),
            });
        }
        Plan::Write { record, is_in_window: age_ms < settings.window().as_millis() }
    }

    /// The question to the store for the reply, if there is one.
    pub(super) fn question(&self, op: &Op<'o>) -> Option<Op<'o>> {
        match self {
            Plan::Write { record, .. } => Some(Op::Hits { key: record.key, window: None, at: None }),
            Plan::Ask => Some(op.clone()),
            Plan::Fail(_) | Plan::Refuse(_) => None,
        }
    }
}

/// The outcome of a hit that is written: what is known, and these hits.
pub(super) fn outcome_of_hit(known: &Outcome, hits: u64) -> Outcome {
    let known = match known {
        Outcome::Hits(Count { estimate, .. }) => *estimate,
        _ => unreachable!("a question is answered with a count"),
    };
    Outcome::Hit(Ok(known.saturating_add(hits)))
}
