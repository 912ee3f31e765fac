//! The binary `lately` as its users run it.

mod bench;
mod books;
mod check;
mod clients;
mod common;
mod completions;
mod count;
mod count_errors;
mod count_real_log;
mod dice;
mod disk_fails;
mod disk_full;
mod dump;
mod flood;
mod greedy;
mod kept;
mod kill;
mod ledger;
mod races;
mod rules;
mod running;
mod serve;
mod talk;
mod wire;
