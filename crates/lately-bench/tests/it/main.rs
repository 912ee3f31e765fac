//! Decisions beside those of another program's library, and what users of others asked for. Nothing is timed here.

mod redis_cell;
mod throttlecrab;
