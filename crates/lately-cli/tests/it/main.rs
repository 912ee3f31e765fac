//! The binary `lately` as its users run it.

mod common;
mod completions;
mod count;
mod count_errors;
mod count_real_log;
