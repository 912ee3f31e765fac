//! Sliding-window hit counters and rate limits, for every key and any window.
//!
//! [`Store`] counts for many keys, from any thread. [`HitCounter`] counts one thing in one thread;
//! [`AtomicCounter`] and [`StripedCounter`] count one thing that many threads hit. Nothing here does I/O
//! or reads a clock on its own: you pass the time in, and [`SystemClock`] is one source of it.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lately::{Clock, Store, SystemClock, days, minutes};
//!
//! let clock = SystemClock::new();
//! let store = Store::builder().retain(days(7)).memory_ceiling(256 << 20).build()?;
//! store.hit(b"user:42", clock.now())?;
//! let count = store.hits(b"user:42", minutes(5), clock.now());
//! assert_eq!((count.lower, count.estimate, count.upper), (1, 1, Some(1)));
//! let decision = store.limit(b"login:alice", 3, minutes(1), 1, clock.now())?;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.remaining, 2);
//! # Ok(())
//! # }
//! ```
//!
//! - **Counting**: [`Store::hit`] counts a hit and returns the hits of the default window. [`Store::hits`] reads any
//!   window as a [`Count`]: an estimate between a lower and an upper bound.
//! - **Deciding**: [`Store::limit`] decides a request by a limit, and counts it in the same step if it is allowed.
//!   [`Decision::is_allowed`] is the answer, [`Decision::retry`] says when to try again. [`Store::decide_all`] decides by
//!   several limits at once.
//! - **Several nodes**: [`route`] says which node a key belongs to. [`Store::take_unsent`] and [`Store::merge`]
//!   exchange counts.
//! - **Memory**: without [`StoreBuilder::memory_ceiling`] a store has no bound. At the ceiling it evicts
//!   keys, but never one whose limit is in force.

mod allocation;
mod cache_line;
mod class;
mod clock;
mod count;
mod delta;
mod divisor;
mod entry;
mod error;
mod fingerprint;
mod frame;
mod gcra;
mod hit_counter;
mod ladder;
mod leb128;
mod limit;
pub mod limits;
mod lockout;
mod machine;
mod merge;
mod number;
mod panes;
pub mod route;
mod series;
mod settings;
mod shared;
mod store;
mod sync;
mod thread_number;
mod time;
mod uniques;
mod window;

pub use class::Pattern;
pub use clock::{Clock, ManualClock, SystemClock};
pub use count::Count;
pub use delta::{
    CountedId, Delta, DeltaBatch, DeltaFormat, DeltaMark, Deltas, Forgotten, Generation, LimitState, Sequence,
};
pub use error::{
    HitError, LimitError, LockoutError, Malformed, MergeError, QueryError, SettingsError, TimeError,
    Unreadable,
};
pub use gcra::{Arrival, Rate, Throttle};
pub use hit_counter::HitCounter;
pub use ladder::{Ladder, RUNGS_MS};
pub use limit::{Admission, Decision, JointDecision, Retry};
pub use lockout::{Factor, Lockout, PastLockout, StartedLockout};
pub use machine::{give_blocks_back, give_memory_back, give_program_back, share_arenas};
pub use merge::{
    Cell, Changes, KeyChanges, Level, LevelSets, LevelTable, Levels, LevelsId, Merged, NoOrigin, Origin,
    PaneWidths, Tally,
};
pub use series::{Point, SeriesReader};
pub use settings::{DEFAULT_WINDOW, Settings, SettingsBuilder};
pub use shared::{AtomicCounter, StripedCounter};
pub use store::{
    BusyKeys, Content, Cursor, EvictionGuard, HitOnce, HitsByNode, JointRequest, LearnedMembers, Limit,
    LimitGuard, MemberHit, MemoryStats, Newcomers, Op, Outcome, OwnMembers, OwnSpan, Part, Portion, Question,
    RateGuard, Replay, Request, ScanPage, SentMembers, Source, Store, StoreBuilder, Taken, Tier, UnsentKey,
};
pub use time::{Span, Timestamp, days, hours, milliseconds, minutes, seconds};
pub use uniques::{Member, MemberSet};
