//! Keys at their limit: denied requests, compared with allowed requests on keys with as many hits.

use std::cell::{Cell, RefCell};

use lately_load::{Ending, Plan};

use super::TABLE;
use super::figures::Figures;
use super::load::Load;
use crate::options::Options;
use crate::rounds::Contender;
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::measured::Measured;
use crate::server::plans::KEYS;
use crate::server::process::Process;

/// The hits of a key of the limit that denies.
const MAX: u64 = 10;
/// The number of rounds before the allowed keys are made again. A round adds a hit to each of them: at first
/// they have fewer hits than the denied keys by half of this number, in the end more by half of it.
const GROWTH: u64 = 4;
/// A limit that is never reached, with as many digits, and a window that no hit leaves.
const WIDE_MAX: u64 = 99;
const WINDOW: &str = "1h";
const PIPELINE: usize = 64;

const DENIED: &str = "LIMIT, all denied";
const ALLOWED: &str = "all allowed, as many hits in each window";

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let keys = options.pick(KEYS, KEYS / 5);
    let round = |load: &Load, server| Plan {
        keys,
        ending: Ending::Requests(keys),
        ..load.round(options, server, PIPELINE)
    };
    let (narrow, wide) = (Load::limit_of(MAX, WINDOW), Load::limit_of(WIDE_MAX, WINDOW));
    let (denying, allowing) = (Process::lately(options)?, Process::lately(options)?);
    narrow.fill(&denying, keys, MAX)?;
    let (denied_plan, allowed_plan) = (round(&narrow, &denying), round(&wide, &allowing));
    let wrong = RefCell::new(0);
    let denied = || -> Result<Measured, Failure> {
        let before = Tally::of(&denying)?;
        let measured = Measured::load_denied(&denying, &denied_plan);
        *wrong.borrow_mut() += Tally::of(&denying)?.is_off(&before, Tally { hits: 0, denied: keys });
        Ok(measured)
    };
    let round = Cell::new(0_u64);
    let allowed = || -> Result<Measured, Failure> {
        if round.replace(round.get() + 1).is_multiple_of(GROWTH) {
            redis::cmd("FLUSHALL").exec(&mut allowing.connect()?)?;
            wide.fill(&allowing, keys, MAX - GROWTH / 2)?;
        }
        let before = Tally::of(&allowing)?;
        let measured = Measured::load(&allowing, &allowed_plan);
        *wrong.borrow_mut() += Tally::of(&allowing)?.is_off(&before, Tally { hits: keys, denied: 0 });
        Ok(measured)
    };
    let contenders = vec![
        Contender::new(DENIED, || Measured::or_none(denied())),
        Contender::new(ALLOWED, || Measured::or_none(allowed())),
    ];
    let rounds = options.rounds() * usize::try_from(GROWTH).expect("a few");
    let figures = Figures::of(contenders, rounds, PIPELINE);
    let name = "hits that INFO counted otherwise than the replies said, denied and allowed";
    Ok(vec![
        figures.throughput(DENIED, ALLOWED, Must::Nothing),
        Row::new(TABLE, name, f64::from(wrong.into_inner()), "", Must::AtMost(0.0, 0.0)),
    ])
}

/// The hits that the server has counted and denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tally {
    hits: u64,
    denied: u64,
}

impl Tally {
    fn of(server: &Process) -> Result<Tally, Failure> {
        let text: String = redis::cmd("INFO").arg("stats").query(&mut server.connect()?)?;
        Tally::parse(&text).ok_or_else(|| Failure::new("INFO says nothing of hits that were denied"))
    }

    fn parse(text: &str) -> Option<Tally> {
        let field = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.next()?.trim_end().parse().ok()
        };
        Some(Tally { hits: field("total_hits")?, denied: field("denied_hits")? })
    }

    /// The difference between these hits and those that were sent since `before`.
    fn is_off(self, before: &Tally, since: Tally) -> u32 {
        let off = |now: u64, before: u64, since: u64| now.abs_diff(before + since);
        let sum = off(self.hits, before.hits, since.hits) + off(self.denied, before.denied, since.denied);
        u32::try_from(sum).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_parsed_for_hits_and_denials() {
        let tally = Tally::parse("# Stats\r\ntotal_hits:10\r\nrefused_hits:0\r\ndenied_hits:4\r\n");
        assert_eq!(tally, Some(Tally { hits: 10, denied: 4 }));
        assert_eq!(Tally::parse("# Stats\r\ntotal_hits:10\r\n"), None);
        let (before, after) = (Tally { hits: 10, denied: 4 }, Tally { hits: 17, denied: 9 });
        assert_eq!(after.is_off(&before, Tally { hits: 7, denied: 5 }), 0);
        assert_eq!(after.is_off(&before, Tally { hits: 5, denied: 8 }), 5);
    }
}
