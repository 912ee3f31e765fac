//! Exact limits that other nodes decide, and hits with ids that they count. The connection waits for the answer, and what follows in its
//! pipeline is asked with it.

use std::mem;
use std::sync::Arc;

use lately::{Decision, HitOnce, MemberHit};
use lately_resp::command::spec_of;
use lately_resp::{Command, CommandError, Encoder, Selected};

use super::decided::{self, Words};
use super::questions::Waiting;
use super::run::Run;
use super::{Session, integer};
use crate::limits::{ASKED_AHEAD, OWNER_TIMEOUT};
use crate::service::NamedRequest;
use crate::service::owners::{ARGUMENT, Ask, Asked, Decider, IdHits, Link, NotCounted, Verdict};

/// Whether another node decides a request.
pub(super) enum ByOwner {
    /// This node does.
    No,
    /// Its answer is not there yet.
    Waits,
    Answered(OwnerAnswer),
}

/// What is answered to a request that another node decides.
pub(super) enum OwnerAnswer {
    Decided(Decision),
    Counted(u64),
    /// The error has a code, and names the command if it is about an argument.
    Refused {
        command: &'static str,
        code: &'static str,
        error: String,
    },
    /// Requests of a transaction do not wait. Why the node decides, and its name.
    InTransaction {
        why: String,
        node: String,
    },
}

impl OwnerAnswer {
    pub(super) fn write(&self, reply: &mut Encoder<'_>) {
        match self {
            OwnerAnswer::Decided(decision) => decided::write(&Ok(*decision), Words::Limit, reply),
            OwnerAnswer::Counted(hits) => reply.integer(integer(*hits)),
            OwnerAnswer::Refused { command, code: ARGUMENT, error } => {
                reply.error(CommandError::about_argument(error, command));
            }
            OwnerAnswer::Refused { code, error, .. } => reply.error(format_args!("{code} {error}")),
            OwnerAnswer::InTransaction { why, node } => reply.error(format_args!(
                "ERR {why}, and node {node} decides this key: send the command outside of MULTI"
            )),
        }
    }
}

fn named<'a>(command: &Command<'a>) -> Option<NamedRequest<'a>> {
    let Command::LimitByRule { key, name, cost, at, is_peek } = *command else { return None };
    let (address, instead, is_spent, is_exempt) = (None, None, false, false);
    Some(NamedRequest { key, name, cost, at, is_peek, address, instead, is_spent, is_exempt })
}

fn hits<'a>(command: &Command<'a>) -> Option<IdHits<'a>> {
    match *command {
        Command::HitOnce(HitOnce { key, weight, at, id }) => {
            Some(IdHits { key, weight, at, id, member: None })
        }
        Command::HitMember(MemberHit { key, weight, at, id: Some(id), member }) => {
            Some(IdHits { key, weight, at, id, member: Some(member) })
        }
        _ => None,
    }
}

fn of_hits(counted: Result<u64, NotCounted>) -> ByOwner {
    ByOwner::Answered(match counted {
        Ok(hits) => OwnerAnswer::Counted(hits),
        Err(NotCounted { code, error }) => OwnerAnswer::Refused { command: "hit", code, error },
    })
}

fn follow(verdict: Verdict, run: &mut Run<'_>) -> ByOwner {
    match verdict {
        Verdict::Decided(decided) => ByOwner::Answered(OwnerAnswer::Decided(decided.decision)),
        Verdict::Refused { code, error } => {
            ByOwner::Answered(OwnerAnswer::Refused { command: Words::Limit.command(), code, error })
        }
        Verdict::Here { is_exempt } => {
            run.is_exempt = is_exempt;
            ByOwner::No
        }
    }
}

impl Session {
    /// Whether another node decides a command: asks it, or takes its answer. When it is away, `run` may learn that the command is allowed.
    #[inline]
    pub(super) fn by_owner(&mut self, command: &Command<'_>, run: &mut Run<'_>) -> ByOwner {
        if self.service.owners.is_none() {
            return ByOwner::No;
        }
        if let Some(hits) = hits(command) {
            return self.hits_by_owner(&hits);
        }
        match named(command) {
            Some(request) => self.named_by_owner(&request, run),
            None => ByOwner::No,
        }
    }

    fn named_by_owner(&mut self, request: &NamedRequest<'_>, run: &mut Run<'_>) -> ByOwner {
        let rules = self.service.rules.get();
        let Some(limit) = rules.find(request.name).map(|number| &rules.rule(number).limit) else {
            return ByOwner::No;
        };
        let service = Arc::clone(&self.service);
        let link = match service.decider(limit, request.key) {
            Decider::Here => return ByOwner::No,
            _ if request.cost < 0 => return ByOwner::No,
            Decider::Nobody => return follow(service.without_owner(limit, request), run),
            Decider::There(link) => link,
        };
        if self.executed.is_some() {
            let (why, node) = (format!("limit '{}' is exact", limit.name), link.node.clone());
            return ByOwner::Answered(OwnerAnswer::InTransaction { why, node });
        }
        match self.asked_of(link, Ask::new(request, false)) {
            Some(asked) => follow(service.verdict(&asked, limit), run),
            None => ByOwner::Waits,
        }
    }

    fn hits_by_owner(&mut self, hits: &IdHits<'_>) -> ByOwner {
        let service = Arc::clone(&self.service);
        let link = match service.owner_of(hits.key) {
            Decider::Here => return ByOwner::No,
            Decider::Nobody => {
                return of_hits(Err(service.own_name_is_not_known()));
            }
            Decider::There(link) => link,
        };
        if self.executed.is_some() {
            let (why, node) = ("the hits have an id".to_owned(), link.node.clone());
            return ByOwner::Answered(OwnerAnswer::InTransaction { why, node });
        }
        let ask = Ask::of_hits(hits);
        // The owner was asked before the deletion: its answer is taken.
        let is_asked = self.asked.front().is_some_and(|asked| asked.is_of(&ask));
        if let Some(refused) = service.deletion_of(hits.key).filter(|_| !is_asked) {
            return of_hits(Err(refused));
        }
        match self.asked_of(link, ask) {
            Some(asked) => of_hits(service.counted(&asked)),
            None => ByOwner::Waits,
        }
    }

    /// What a node was asked. `None` if its answer is to be waited for.
    fn asked_of(&mut self, link: &Link, ask: Ask) -> Option<Arc<Asked>> {
        let has_waited = matches!(mem::take(&mut self.waiting), Waiting::Over(_));
        let asked = match self.asked.pop_front().filter(|asked| asked.is_of(&ask)) {
            Some(asked) => asked,
            None => {
                // What was asked ahead was for other requests.
                self.asked.clear();
                link.ask(ask)
            }
        };
        if asked.wait().is_over() || has_waited {
            return Some(asked);
        }
        self.waiting = Waiting::For(Arc::clone(asked.wait()), 2 * OWNER_TIMEOUT);
        self.asked.push_front(asked);
        None
    }

    /// Asks for the requests behind one that waits, as far as other nodes decide them, too. Other commands may change what they decide, so it
    /// ends at the first one.
    pub(super) fn ask_ahead(&mut self, requests: Selected<'_>) {
        let rules = self.service.rules.get();
        // The first one is for the request that waits.
        let mut place = 1;
        for args in requests.take(ASKED_AHEAD) {
            let Ok(spec) = spec_of(args) else { return };
            let Ok(command) = spec.read(args) else { return };
            // What the client may not ask is refused when its turn comes.
            if self.check_rights(spec, args).is_err() {
                return;
            }
            let (decider, ask) = if let Some(hits) = hits(&command) {
                // It is refused when its turn comes, or may be asked for by then.
                if self.service.deletion_of(hits.key).is_some() {
                    return;
                }
                (Some(self.service.owner_of(hits.key)), Ask::of_hits(&hits))
            } else if let Some(request) = named(&command).filter(|request| request.cost >= 0) {
                let limit = rules.find(request.name).map(|number| &rules.rule(number).limit);
                (limit.map(|limit| self.service.decider(limit, request.key)), Ask::new(&request, false))
            } else {
                return;
            };
            let Some(Decider::There(link)) = decider else { continue };
            // Those that were asked for while an earlier one waited are there.
            if place >= self.asked.len() {
                self.asked.push_back(link.ask(ask));
            }
            place += 1;
        }
    }

    /// The memory of what owners were asked for.
    pub(super) fn asked_bytes(&self) -> usize {
        self.asked.iter().map(|asked| asked.held_bytes()).sum()
    }
}
