//! The binary `lately` as its users run it.

mod bench;
mod clients;
mod common;
mod completions;
mod count;
mod count_errors;
mod count_real_log;
mod dice;
mod flood;
mod greedy;
mod kill;
mod ledger;
mod running;
mod serve;
mod talk;
mod wire;
