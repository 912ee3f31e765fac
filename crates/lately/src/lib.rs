//! Sliding-window hit counters: how many hits came lately, for every key and any window.
//!
//! [`HitCounter`] counts one thing; [`Store`] counts for many keys, from any thread. Both answer any
//! window at read time, from a resolution of 1 ms up to 1,000,000,000 s, and say with each answer
//! how far off it can be ([`Count`]). Nothing here reads a clock on its own or does I/O: time is
//! passed in, [`SystemClock`] is one source of it.
//!
//! ```
//! use lately::{Clock, Store, SystemClock, days, minutes};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = SystemClock::new();
//! let store = Store::builder().exact(minutes(6)).retain(days(7)).build()?;
//! store.hit(b"user:42", clock.now())?;
//! assert_eq!(store.hits(b"user:42", minutes(5), clock.now()).estimate, 1);
//! # Ok(())
//! # }
//! ```

mod allocation;
mod class;
mod clock;
mod count;
mod delta;
mod divisor;
mod entry;
mod error;
mod frame;
mod gcra;
mod hit_counter;
mod ladder;
mod limit;
pub mod limits;
mod machine;
mod number;
mod own_line;
mod panes;
mod series;
mod settings;
mod shared;
mod store;
mod sync;
mod thread_number;
mod time;
mod varint;
mod window;

pub use class::Pattern;
pub use clock::{Clock, ManualClock, SystemClock};
pub use count::Count;
pub use delta::{Beside, Delta, DeltaBatch, DeltaFormat, Deltas, Forgotten, Generation, Sequence};
pub use error::{HitError, LimitError, Malformed, QueryError, SettingsError, TimeError, Unreadable};
pub use gcra::{Arrival, Rate, Throttle};
pub use hit_counter::HitCounter;
pub use ladder::{Ladder, RUNGS_MS};
pub use limit::{Decision, JointDecision, Retry};
pub use machine::{give_blocks_back, give_memory_back, share_arenas};
pub use series::Point;
pub use settings::{DEFAULT_WINDOW, Settings, SettingsBuilder};
pub use shared::{AtomicCounter, StripedCounter};
pub use store::{
    Content, Cursor, Guard, JointRequest, Limit, MemoryStats, Op, Outcome, Part, Portion, Question, Replay,
    Request, ScanPage, Store, StoreBuilder,
};
pub use time::{Span, Timestamp, days, hours, milliseconds, minutes, seconds};
