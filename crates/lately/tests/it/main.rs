//! Tests of the public interface: against the exact model, and from many threads.

mod exact_log;
mod examples;
mod joint;
mod limits;
mod limits_page;
mod model;
mod shared;
mod subject;
mod threads;
mod throttle;
mod time_text;
mod trace;
