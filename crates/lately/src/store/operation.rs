//! Batches: the operations of one read of a connection, applied at one time.

use super::Store;
use super::executor::Executor;
use super::key::shard_of;
use crate::count::Count;
use crate::delta::DeltaBatch;
use crate::error::{HitError, LimitError};
use crate::gcra::{Rate, Throttle};
use crate::limit::{Admission, Decision, JointDecision};
use crate::limits::{MAX_ID_BYTES, MAX_MEMBER_BYTES};
use crate::lockout::Lockout;
use crate::time::{Span, Timestamp};

/// Operations that are prefetched together. With more of them, their memory would not stay in the first-level
/// cache.
pub(super) const STAGED: usize = 16;

/// An operation of [`Store::apply`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Op<'a> {
    /// Count hits.
    Hit {
        /// The key.
        key: &'a [u8],
        /// How many.
        weight: u64,
        /// When they happened; `None` is now.
        at: Option<Timestamp>,
    },
    /// Count hits of now with an id: [`Store::hit_once`]. [`Op::of_once`] makes it.
    HitOnce {
        /// The key.
        key: &'a [u8],
        /// How many.
        weight: u64,
        /// The id.
        id: &'a [u8],
    },
    /// Count hits with an id and a time. Boxed, as are other rare operations, to keep [`Op`] small.
    HitOnceAt(Box<HitOnce<'a>>),
    /// Count hits with a member: [`Store::hit_member`].
    HitMember(Box<MemberHit<'a>>),
    /// Read the hits in a window.
    Hits {
        /// The key.
        key: &'a [u8],
        /// Length of the window; `None` is the default of the key's class.
        window: Option<Span>,
        /// Where the window ends; `None` is now.
        at: Option<Timestamp>,
    },
    /// Read the distinct members in a window that ends now: [`Store::unique`].
    Unique {
        /// The key.
        key: &'a [u8],
        /// Length of the window; `None` is the default of the key's class.
        window: Option<Span>,
    },
    /// Read the hits in a window that limits denied. Boxed.
    Denied(Box<Question<'a>>),
    /// Decide a request by a limit, now.
    Limit {
        /// The key.
        key: &'a [u8],
        /// The most hits in any window of this length.
        max: u64,
        /// Length of the window, to the millisecond.
        window: Span,
        /// How many hits.
        cost: u64,
    },
    /// Decide a request by a limit, with a time, a peek, a shadow, a lockout or another admission.
    Decide(Box<Request<'a>>),
    /// Give the hits of a request back: [`Store::refund`].
    Refund(Box<Request<'a>>),
    /// Decide a request for one hit by a rate, now.
    Throttle {
        /// The key.
        key: &'a [u8],
        /// The rate.
        rate: Rate,
    },
    /// Decide a request by a rate, for any number of hits.
    ThrottleBy(Box<Throttle<'a>>),
    /// Decide a request by several limits.
    LimitAll(Box<JointRequest<'a>>),
}

/// Hits with an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HitOnce<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How many. 0 counts nothing and leaves no id.
    pub weight: u64,
    /// When they happened; `None` is now.
    pub at: Option<Timestamp>,
    /// The id: 1 to [`MAX_ID_BYTES`] bytes.
    pub id: &'a [u8],
}

impl HitOnce<'_> {
    /// Checks the length of an id.
    ///
    /// # Errors
    /// [`HitError::IdLength`] when it is empty or longer than [`MAX_ID_BYTES`].
    pub fn check_id(id: &[u8]) -> Result<(), HitError> {
        match id.len() {
            1..=MAX_ID_BYTES => Ok(()),
            bytes => Err(HitError::IdLength { bytes }),
        }
    }
}

/// Hits with a member, and with an id or without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberHit<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How many. 0 counts nothing, and leaves neither an id nor a member.
    pub weight: u64,
    /// When they happened; `None` is now.
    pub at: Option<Timestamp>,
    /// The id: see [`HitOnce`]. Hits whose id was counted before leave no member.
    pub id: Option<&'a [u8]>,
    /// The member: 1 to [`MAX_MEMBER_BYTES`] bytes.
    pub member: &'a [u8],
}

impl MemberHit<'_> {
    /// Checks the length of a member.
    ///
    /// # Errors
    /// [`HitError::MemberLength`] when it is empty or longer than [`MAX_MEMBER_BYTES`].
    pub fn check_member(member: &[u8]) -> Result<(), HitError> {
        match member.len() {
            1..=MAX_MEMBER_BYTES => Ok(()),
            bytes => Err(HitError::MemberLength { bytes }),
        }
    }
}

/// The arguments of [`Op::Denied`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Length of the window; `None` is the default of the key's class.
    pub window: Option<Span>,
    /// Where the window ends; `None` is now.
    pub at: Option<Timestamp>,
}

/// A request that a limit decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The most hits in any window of this length.
    pub max: u64,
    /// Length of the window, to the millisecond.
    pub window: Span,
    /// Hits that the request takes. 0 takes none, and is allowed while the limit is not exceeded.
    pub cost: u64,
    /// The time of the request; `None` is now. Later hits count against it, too.
    pub at: Option<Timestamp>,
    /// Whether to decide only, without counting.
    pub is_peek: bool,
    /// Whether the caller lets denied requests through, too. They are then counted neither as hits nor as denied.
    pub is_shadow: bool,
    /// How long every request of the key is denied after a denial. Denials during a lockout do not extend it. A peek
    /// starts none.
    pub lockout: Option<Lockout>,
    /// When it is admitted.
    pub admission: Admission,
}

impl<'a> Request<'a> {
    /// A request now, for `cost` hits of a key that may have at most `max` in any window of this length.
    #[must_use]
    pub fn new(key: &'a [u8], max: u64, window: Span, cost: u64) -> Request<'a> {
        Request {
            key,
            max,
            window,
            cost,
            at: None,
            is_peek: false,
            is_shadow: false,
            lockout: None,
            admission: Admission::Whole,
        }
    }
}

/// A limit of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The most hits in any window of this length.
    pub max: u64,
    /// Length of the window, to the millisecond.
    pub window: Span,
}

/// A request that several limits decide, of one key or several. If all allow it, its hits are counted once for each
/// key. Otherwise none are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointRequest<'a> {
    /// The limits, at most [`MAX_LIMITS`](crate::limits::MAX_LIMITS). A key may have several.
    pub limits: Vec<Limit<'a>>,
    /// See [`Request::cost`].
    pub cost: u64,
    /// See [`Request::at`].
    pub at: Option<Timestamp>,
    /// See [`Request::is_peek`].
    pub is_peek: bool,
}

/// The result of an [`Op`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The result of [`Op::Hit`], [`Op::HitOnce`], [`Op::HitOnceAt`] and [`Op::HitMember`]: the hits in the default window that ends at the hit, or why it was refused.
    Hit(Result<u64, HitError>),
    /// The result of [`Op::HitOnce`], [`Op::HitOnceAt`] and [`Op::HitMember`] when hits with its id were counted before: the hits in the default window that ends at the
    /// hit. Nothing was counted.
    Repeated(u64),
    /// The result of [`Op::Hits`] and [`Op::Denied`].
    Hits(Count),
    /// The result of [`Op::Unique`]: the members, or why there is no answer.
    Unique(Result<Count, HitError>),
    /// The result of [`Op::Limit`], [`Op::Decide`], [`Op::Refund`], [`Op::Throttle`] and [`Op::ThrottleBy`].
    Limit(Result<Decision, LimitError>),
    /// The result of [`Op::LimitAll`].
    LimitAll(Result<JointDecision, LimitError>),
}

impl<'a> Op<'a> {
    #[inline(always)]
    pub(super) fn key(&self) -> &'a [u8] {
        match self {
            Op::LimitAll(request) => request.limits.first().map_or(b"", |limit| limit.key),
            _ => self.lone_key().expect("the others are about one key"),
        }
    }

    /// The key of an operation on one key. `None` for joint limits, which are applied in a batch of their
    /// own.
    #[inline(always)]
    fn lone_key(&self) -> Option<&'a [u8]> {
        if let Op::Hit { key, .. } = self {
            // The most frequent case.
            return Some(key);
        }
        self.lone_key_of_others()
    }

    fn lone_key_of_others(&self) -> Option<&'a [u8]> {
        match self {
            Op::Hit { key, .. }
            | Op::HitOnce { key, .. }
            | Op::Hits { key, .. }
            | Op::Unique { key, .. }
            | Op::Limit { key, .. }
            | Op::Throttle { key, .. } => Some(key),
            Op::HitOnceAt(hit) => Some(hit.key),
            Op::HitMember(hit) => Some(hit.key),
            Op::Denied(question) => Some(question.key),
            Op::Decide(request) | Op::Refund(request) => Some(request.key),
            Op::ThrottleBy(request) => Some(request.key),
            Op::LimitAll(_) => None,
        }
    }

    /// The operation for hits with an id.
    #[must_use]
    #[inline]
    pub fn of_once(hit: HitOnce<'a>) -> Op<'a> {
        match hit {
            HitOnce { key, weight, at: None, id } => Op::HitOnce { key, weight, id },
            _ => Op::HitOnceAt(Box::new(hit)),
        }
    }

    /// The hits with an id, if it is an operation for some.
    #[must_use]
    #[inline]
    pub fn as_once(&self) -> Option<HitOnce<'a>> {
        match *self {
            Op::HitOnce { key, weight, id } => Some(HitOnce { key, weight, at: None, id }),
            Op::HitOnceAt(ref hit) => Some(**hit),
            _ => None,
        }
    }

    /// The operation for a request.
    #[must_use]
    pub fn of(request: Request<'a>) -> Op<'a> {
        match request {
            Request {
                key,
                max,
                window,
                cost,
                at: None,
                is_peek: false,
                is_shadow: false,
                lockout: None,
                admission: Admission::Whole,
            } => Op::Limit { key, max, window, cost },
            _ => Op::Decide(Box::new(request)),
        }
    }

    /// The operation for a request by a rate.
    #[must_use]
    pub fn of_throttle(request: Throttle<'a>) -> Op<'a> {
        match request {
            Throttle { key, rate, quantity: 1 } => Op::Throttle { key, rate },
            _ => Op::ThrottleBy(Box::new(request)),
        }
    }
}

impl Outcome {
    pub(super) fn into_hit(self) -> Result<u64, HitError> {
        match self {
            Outcome::Hit(result) => result,
            Outcome::Repeated(hits) => Ok(hits),
            _ => unreachable!("a hit is answered with hits"),
        }
    }

    pub(super) fn into_count(self) -> Count {
        match self {
            Outcome::Hits(count) => count,
            _ => unreachable!("a question is answered with a count"),
        }
    }

    pub(super) fn into_unique(self) -> Result<Count, HitError> {
        match self {
            Outcome::Unique(result) => result,
            _ => unreachable!("a question about members is answered with a count"),
        }
    }

    pub(super) fn into_joint(self) -> Result<JointDecision, LimitError> {
        match self {
            Outcome::LimitAll(decided) => decided,
            _ => unreachable!("a joint request is answered with a joint decision"),
        }
    }

    pub(super) fn into_decision(self) -> Result<Decision, LimitError> {
        match self {
            Outcome::Limit(decided) => decided,
            _ => unreachable!("a request is answered with a decision"),
        }
    }
}

impl Store {
    /// Applies `ops` in order, all at the time `now`, and appends an outcome for each to `out`. The outcomes are those of
    /// single calls; the memory of all keys is prefetched.
    pub fn apply(&self, ops: &[Op<'_>], now: Timestamp, out: &mut Vec<Outcome>) {
        self.apply_staged(ops, out, Executor::new(self, now, None));
    }

    /// Applies `ops` like [`Store::apply`], and appends the changes to `deltas`.
    pub fn apply_into(
        &self,
        ops: &[Op<'_>],
        now: Timestamp,
        out: &mut Vec<Outcome>,
        deltas: &mut DeltaBatch,
    ) {
        deltas.advance(now);
        self.apply_staged(ops, out, Executor::new(self, now, Some(deltas)));
    }

    pub(super) fn apply_staged(&self, ops: &[Op<'_>], out: &mut Vec<Outcome>, mut executor: Executor<'_>) {
        let mut rest = ops;
        while !rest.is_empty() {
            let mut hashes = [0; STAGED];
            let mut staged = 0;
            for (hash, op) in hashes.iter_mut().zip(rest) {
                let Some(key) = op.lone_key() else { break };
                *hash = self.hash(key);
                staged += 1;
            }
            let (of_one, others) = rest.split_at(staged);
            rest = others;
            match of_one {
                [] => {
                    let joint = rest.iter().position(|op| op.lone_key().is_some()).unwrap_or(rest.len());
                    let (joint, others) = rest.split_at(joint);
                    executor.apply_joint(joint, out);
                    rest = others;
                }
                // A single operation gains nothing from a prefetch.
                [op] => out.push(executor.apply_one(op, hashes[0])),
                of_one => {
                    let mut places = [None; STAGED];
                    let places = &mut places[..staged];
                    self.fetch_slots(&hashes[..staged], places);
                    executor.apply(of_one, &hashes[..staged], places, out);
                }
            }
        }
        executor.end(ops.last().map_or(b"", Op::key));
    }

    /// Prefetches the slots of these hashes, one stage at a time for all of them, so that their cache misses
    /// overlap. Records in `places` where the slots most likely are.
    pub(super) fn fetch_slots(&self, hashes: &[u64], places: &mut [Option<u32>]) {
        if hashes.len() < 2 {
            return;
        }
        // Old tables are being dropped. Skipping the prefetch costs time only.
        let Some(view) = self.prefetch_tables.view() else { return };
        let mut tables = [None; STAGED];
        for (&hash, tables) in hashes.iter().zip(&mut tables) {
            *tables = view.tables(shard_of(hash));
            if let Some(tables) = tables {
                tables.prefetch_tags(hash);
            }
        }
        for ((&hash, tables), place) in hashes.iter().zip(&tables).zip(places) {
            if let Some(tables) = tables {
                *place = tables.prefetch_slot(hash);
                if place.is_none() {
                    tables.prefetch_free(hash);
                }
            }
            self.shards[shard_of(hash)].prefetch();
        }
    }

    /// Applies one operation.
    #[inline(never)]
    pub(super) fn apply_one(&self, op: &Op<'_>, now: Timestamp) -> Outcome {
        let mut executor = Executor::new(self, now, None);
        let outcome = executor.apply_one(op, self.hash(op.key()));
        executor.end(op.key());
        outcome
    }
}
