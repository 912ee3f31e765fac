//! Requests that name their limit: what the config says of it, and what it says to whom.

use std::sync::Arc;

use lately::{Decision, LimitError, Op, Request, Timestamp};
use lately_resp::{CommandError, Encoder, Protocol};

use super::{Change, Reply, Run, Target};
use crate::rules::{RuleTally, Rules, Said};

/// `LIMIT key @name` and its options.
pub(super) struct Named<'a> {
    pub(super) key: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) cost: u64,
    pub(super) at: Option<Timestamp>,
    pub(super) is_peek: bool,
}

impl<'a> Run<'a> {
    /// Adds a request by the limits of the config; the error is the reply where it has none of the name.
    pub(super) fn add_named(&mut self, named: &Named<'a>, target: Target<'_>, out: &mut Vec<u8>) {
        let rules = self.rules.get_or_insert_with(|| target.engine.rules.get());
        let &Named { key, name, cost, at, is_peek } = named;
        let Some(number) = rules.find(name) else {
            let unknown = rules.unknown(name);
            self.apply(target, out);
            // Both versions of the protocol have the same errors.
            return Encoder::new(out, Protocol::default())
                .error(CommandError::about_argument(unknown, "limit"));
        };
        let limit = &rules.rule(number).limit;
        let lockout = limit.lockout.filter(|_| !limit.is_shadow);
        let request = Request::new(key, limit.max, limit.window, cost);
        let request = Request { at, is_peek, is_shadow: limit.is_shadow, lockout, ..request };
        let rule = (!is_peek).then_some(number);
        let change = Change::of(&request).counted_by(rule);
        self.push_whole(Op::of(request), Reply::Limit(change), target, out);
    }
}

/// What a limit said, to be counted if it has a name and this was no peek.
pub(super) fn said<'r>(
    rules: Option<&'r Arc<Rules>>,
    change: Change,
    decided: &Result<Decision, LimitError>,
) -> Option<(&'r Arc<RuleTally>, Said)> {
    let (rule, Ok(decision)) = (change.rule?, decided) else { return None };
    let said = match (decision.is_allowed(), change.is_shadow) {
        (true, _) => Said::Allowed,
        (false, false) => Said::Denied,
        (false, true) => Said::WouldDeny,
    };
    Some((&rules?.rule(rule).tally, said))
}
