//! The subcommands, one file each, with the arguments, whose comments are the help, and `run`.

pub(crate) mod backtest;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod count;
pub(crate) mod dump;
pub(crate) mod health;
pub(crate) mod hit;
pub(crate) mod hits;
pub(crate) mod limit;
pub(crate) mod man;
pub(crate) mod produce;
pub(crate) mod restore;
pub(crate) mod route;
pub(crate) mod serve;
pub(crate) mod ship;
pub(crate) mod top;
