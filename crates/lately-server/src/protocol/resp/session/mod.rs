//! A session: the commands of one client in, replies out. It does no I/O.

mod alerts;
mod connection;
mod decided;
mod info;
mod ingest;
mod keys;
mod login;
mod long_request;
mod origins;
mod owners;
mod questions;
mod run;
mod slow;
mod transaction;
mod written;

use std::collections::VecDeque;
use std::sync::Arc;

use lately::Timestamp;
use lately_resp::command::{ClientCommand, CommandFlag, CommandSpec, spec_of};
use lately_resp::limits::BEFORE_LOGIN;
use lately_resp::{ArgList, Command, CommandError, Encoder, Limits, Protocol, Selected, texts};

use crate::limits::{LIGHT_ARGUMENTS, OUTPUT_BYTES, SLICE_ARGUMENTS};
use crate::service::access::{Forbidden, Principal};
use crate::service::caller::Caller;
use crate::service::clients::{Client, Doing};
use crate::service::login::Login;
use crate::service::owners::Asked;
use crate::service::{Service, Stats};
use alerts::Subscription;
use long_request::LongRequest;
use owners::ByOwner;
use questions::{Readiness, Waiting};
pub(crate) use run::Run;
use run::{Slowness, Target};
use slow::Slow;
use transaction::{Execution, Transaction, is_exec, refuse_exec};
pub(crate) use written::Written;
use written::refuse;

/// What the connection does after a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Continue with the next request.
    Continue,
    /// Send the replies, serve other clients, then execute the next requests.
    Yield,
    /// Send the replies, wait for what [`Session::take_wait`] returns, then execute the next requests.
    Wait,
    /// Send the replies, serve other clients, then call [`Session::resume`].
    More,
    /// Send the replies and close the connection.
    Close,
    /// Stop the server.
    Shutdown,
}

/// The state of one connection.
pub(crate) struct Session {
    service: Arc<Service>,
    client: Arc<Client>,
    principal: Principal,
    /// The version of the users that the principal is of.
    users_version: u64,
    /// The connection, for logins.
    caller: Arc<Caller>,
    /// The login that the next command asks for, or waits for.
    login: Option<Login>,
    protocol: Protocol,
    transaction: Option<Transaction>,
    execution: Option<Execution>,
    /// A slow command that is not finished.
    slow: Option<Box<Slow>>,
    /// The number of commands of the `EXEC` that runs now.
    executed: Option<usize>,
    /// What the next command waits for.
    waiting: Waiting,
    /// Alerts that start or end, if the client has subscribed.
    subscription: Option<Subscription>,
    /// How long its requests took.
    slowness: Slowness,
    /// Requests of exact limits that the owners of their keys were asked for, in their order.
    asked: VecDeque<Arc<Asked>>,
}

/// The executed part of a batch.
struct Ran<'a> {
    /// The number of requests.
    done: usize,
    flow: Flow,
    /// The arguments of the last one, repetitions with other keys left out.
    last: Option<ArgList<'a>>,
}

/// A parsed request.
type Parse<'a> = Result<Command<'a>, CommandError>;

impl Session {
    pub(crate) fn new(service: Arc<Service>, client: Arc<Client>) -> Session {
        let users_version = service.users.version();
        Session {
            principal: service.users.stranger(),
            users_version,
            caller: Caller::new(client.address().ip()),
            login: None,
            service,
            client,
            protocol: Protocol::default(),
            transaction: None,
            execution: None,
            slow: None,
            executed: None,
            waiting: Waiting::No,
            subscription: None,
            slowness: Slowness::default(),
            asked: VecDeque::new(),
        }
    }

    /// Executes requests of a batch until one changes the [`Flow`], the replies reach their bound, or the requests had
    /// [`SLICE_ARGUMENTS`] or took [`TIME_SLICE`](crate::limits::TIME_SLICE). Requests that can be executed together are collected in `run`; all replies are in `out` once the run is finished. `now` is the time
    /// of the batch. Returns the number of requests.
    pub(crate) fn batch<'a>(
        &mut self,
        requests: Selected<'a>,
        run: &mut Run<'a>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> (usize, Flow) {
        let Ran { done, flow, last } = self.requests(requests, run, now, out);
        Stats::add(&self.service.stats.commands, done as u64);
        if let Some(args) = last {
            self.did(spec_of(args).ok().map(|spec| spec.name));
        }
        (done, flow)
    }

    fn requests<'a>(
        &mut self,
        mut requests: Selected<'a>,
        run: &mut Run<'a>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Ran<'a> {
        self.renew_principal();
        let (mut done, mut flow, mut last) = (0, Flow::Continue, None);
        run.begin_slice(self.slowness, self.target(now), out);
        // An `EXEC` has bounds of its own.
        let most = if self.executed.is_some() { usize::MAX } else { SLICE_ARGUMENTS };
        let mut arguments = 0;
        while flow == Flow::Continue
            && out.len() < OUTPUT_BYTES
            && arguments < most
            && !run.is_slice_over()
            && let Some(args) = requests.next()
        {
            let mut parsed = spec_of(args).and_then(|spec| self.read(spec, args));
            let is_loading = self.service.is_loading();
            let may_wait = self.transaction.is_none()
                && !is_loading
                && parsed.as_ref().is_ok_and(|command| self.may_wait(command));
            let readiness = match &parsed {
                Ok(command) if may_wait => self.readiness(command, now),
                _ => Readiness::Ready,
            };
            if readiness == Readiness::Waits {
                self.look_ahead(requests, now);
                flow = Flow::Wait;
                break;
            }
            if let Ok(command) = &parsed
                && self.waits_for_login(command)
            {
                flow = Flow::Wait;
                break;
            }
            let by_owner = match &parsed {
                Ok(command) if self.transaction.is_none() && !is_loading => self.by_owner(command, run),
                _ => ByOwner::No,
            };
            if let ByOwner::Waits = by_owner {
                self.ask_ahead(requests);
                flow = Flow::Wait;
                break;
            }
            last = Some(args);
            let target = self.target(now);
            if let ByOwner::Answered(answer) = by_owner {
                run.apply(target, out);
                answer.write(&mut Encoder::new(out, self.protocol));
                done += 1;
                continue;
            }
            if let Ok(command) = &mut parsed
                && readiness == Readiness::Ready
                && !is_loading
                && self.transaction.is_none()
                && !LongRequest::is_one(args, command)
                && run.add(command, self.protocol, target, out)
            {
                if args.len() > LIGHT_ARGUMENTS || has_several_windows(command) {
                    arguments += args.len();
                }
                done += 1;
                // Other keys may need a wait: then the requests come one by one.
                if !may_wait {
                    let keys = requests.repeated_keys(|key| self.principal.has_key(key));
                    done += run.add_again(keys, target, out);
                }
                continue;
            }
            flow = match &parsed {
                Ok(_) if is_loading && !spec_of(args).is_ok_and(|spec| spec.runs_while_loading) => {
                    self.transaction.iter_mut().for_each(Transaction::abort);
                    Encoder::new(out, self.protocol).error(texts::LOADING);
                    Flow::Continue
                }
                Ok(_) if readiness == Readiness::NoRoom => {
                    run.apply(target, out);
                    Encoder::new(out, self.protocol).error(texts::NO_ROOM_FOR_KEYS);
                    Flow::Continue
                }
                parsed => {
                    arguments += args.len();
                    run.apply(target, out);
                    let begun = (self.service.moment)();
                    let flow = self.request(args, parsed, &mut run.written, now, out);
                    run.worked((self.service.moment)().saturating_duration_since(begun));
                    flow
                }
            };
            done += 1;
        }
        if flow == Flow::Continue && (arguments >= most || run.is_slice_over()) {
            flow = Flow::Yield;
        }
        self.slowness = run.end_slice(self.target(now), out);
        Ran { done, flow, last }
    }

    fn target(&self, now: Timestamp) -> Target<'_> {
        Target { service: &self.service, now }
    }

    /// Reads a request, and checks that the client may send it.
    #[inline]
    fn read<'a>(&self, spec: &'static CommandSpec, args: ArgList<'a>) -> Parse<'a> {
        if self.principal.is_nobody() && !spec.has(CommandFlag::NoAuth) {
            return Err(CommandError::NotLoggedIn);
        }
        if self.is_bound_to_subscription(spec) {
            return Err(CommandError::Subscribed { name: spec.name });
        }
        let mut parsed = spec.read(args);
        if parsed.is_ok()
            && let Err(forbidden) = self.check_rights(spec, args)
        {
            parsed = Err(self.forbidden(spec, &forbidden));
        }
        if parsed.is_ok()
            && let Some(why) = self.service.refusal(spec.verb)
        {
            parsed = Err(CommandError::Refused { error: why.to_owned() });
        }
        parsed
    }

    /// Whether the client may send a request.
    fn check_rights<'a>(
        &self,
        spec: &'static CommandSpec,
        args: ArgList<'a>,
    ) -> Result<(), Forbidden<&'a [u8]>> {
        self.principal.check(spec.verb, |keys| spec.find_key(args, |key| !keys.has(key)).ok())
    }

    /// The error of a request that the client may not send.
    #[cold]
    fn forbidden(&self, spec: &'static CommandSpec, forbidden: &Forbidden<&[u8]>) -> CommandError {
        self.service.stats.refused(forbidden);
        let (user, name) = (self.principal.name().to_owned(), spec.name);
        match forbidden {
            Forbidden::Login => CommandError::NotLoggedIn,
            Forbidden::Verb => CommandError::ForbiddenCommand { user, name },
            Forbidden::Key(key) => CommandError::forbidden_key(user, key),
            Forbidden::AllKeys => CommandError::ForbiddenOnAllKeys { user, name },
        }
    }

    /// The bounds of its requests. They are tight before the login.
    pub(crate) fn limits(&self) -> Limits {
        if self.principal.is_nobody() { BEFORE_LOGIN } else { Limits::default() }
    }

    /// Whether the client has to log in.
    pub(crate) fn is_nobody(&self) -> bool {
        self.principal.is_nobody()
    }

    /// Records the last command and the length of the transaction, for `CLIENT LIST`.
    fn did(&self, command: Option<&'static str>) {
        self.client.did(Doing {
            command,
            queued: self.transaction.as_ref().map(Transaction::len).or(self.executed),
            is_subscribed: self.is_subscribed(),
        });
    }

    /// Executes a request that is not part of a run.
    fn request(
        &mut self,
        args: ArgList<'_>,
        parsed: &Parse<'_>,
        written: &mut Written,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Flow {
        if self.transaction.is_some() {
            return self.in_transaction(args, parsed, written, now, out);
        }
        match parsed {
            Ok(command) if LongRequest::is_one(args, command) => {
                let request = LongRequest::new(args, command, self.protocol, out);
                self.begin(Slow::Many(request), (written, now), out)
            }
            Ok(command) => self.command(command, written, now, out),
            Err(_) if speaks_http(args) => {
                Stats::add(&self.service.stats.http_connections, 1);
                Flow::Close
            }
            Err(error) if is_exec(args) => {
                refuse_exec(error, &mut Encoder::new(out, self.protocol));
                Flow::Continue
            }
            Err(error) => {
                Encoder::new(out, self.protocol).error(error);
                Flow::Continue
            }
        }
    }

    /// Drops a slow command, because the client is gone. Returns whether an `EXEC` has more commands to run: these are
    /// executed.
    pub(crate) fn abandon(&mut self) -> bool {
        self.slow = None;
        self.execution.is_some()
    }

    /// Memory held by the session.
    pub(crate) fn held_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::held_bytes)
            + self.execution.as_ref().map_or(0, Execution::held_bytes)
            + self.slow.as_ref().map_or(0, |slow| slow.held_bytes())
            + self.asked_bytes()
    }

    fn command(
        &mut self,
        command: &Command<'_>,
        written: &mut Written,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Flow {
        // `HELLO` switches the protocol before its own reply, so it makes its own encoder.
        let mut reply = Encoder::new(out, self.protocol);
        match command {
            Command::Series { key, window, step, at } => {
                return self.series(key, (*window, *step), *at, (written, now), out);
            }
            Command::HitsStaleness { key, window, at } => self.hits_staleness(key, (*window, *at), now, out),
            Command::HitsByOrigin { key, window, at } => self.hits_by_origin(key, (*window, *at), now, out),
            Command::Coolest(coolest) => return self.coolest(coolest, (written, now), out),
            Command::Top(top) => return self.top(top, (written, now), out),
            Command::Client(ClientCommand::List(which)) => {
                return self.list_clients(*which, (written, now), out);
            }
            Command::Alerts => self.alerts(out),
            Command::Subscribe { channels } => self.subscribe(*channels, out),
            Command::Unsubscribe { channels } => self.unsubscribe(*channels, out),
            Command::Ingest(stretch) => self.ingest(*stretch, written, now, out),
            Command::Position { source } => self.position(*source, out),
            Command::Delete { keys } => self.delete(*keys, written, now, out),
            Command::Exists { keys } => {
                reply.integer(integer(self.service.existing(keys.iter(), now) as u64));
            }
            Command::Scan(scan) => return self.scan(scan, (written, now), out),
            Command::DatabaseSize => reply.integer(integer(self.service.key_count() as u64)),
            Command::FlushAll => match self.service.delete_all(now) {
                Ok(()) => reply.ok(),
                Err(refused) => refuse(out, &refused),
            },
            Command::Type { key } => {
                reply.simple(if self.service.existing([*key].into_iter(), now) > 0 {
                    "hits"
                } else {
                    "none"
                });
            }
            Command::TimeToLive { key } => reply.integer(self.time_to_live_ms(key, now, 1_000)),
            Command::TimeToLiveMillis { key } => reply.integer(self.time_to_live_ms(key, now, 1)),
            Command::Multi => {
                self.transaction = Some(Transaction::default());
                reply.ok();
            }
            Command::Exec => reply.error(texts::EXEC_WITHOUT_MULTI),
            Command::Discard => reply.error(texts::DISCARD_WITHOUT_MULTI),
            _ => return self.connection_command(command, now, out),
        }
        Flow::Continue
    }
}

/// Whether a request of few arguments is several operations.
fn has_several_windows(command: &Command<'_>) -> bool {
    matches!(command, Command::Hits { windows, .. } if windows.len() > 1)
}

/// Whether the request is HTTP. A web page may send commands in the body of an HTTP request; as in Redis, none of them
/// is executed.
fn speaks_http(args: ArgList<'_>) -> bool {
    let name = args.get(0).unwrap_or_default();
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

/// A count as a RESP integer. It fits, because of [`lately::limits::MAX_TOTAL`].
fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
