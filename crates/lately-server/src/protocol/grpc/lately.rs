//! `lately.v1.Lately`: counting and limits.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use lately::limits::{MAX_KEY_BYTES, MAX_TOTAL};
use lately::{Factor, HitError, HitOnce, Lockout, MemberHit, Outcome, Retry, Span, Timestamp};
use lately_resp::limits::MAX_TOP_KEYS;
use prost::Message;
use tokio::time::timeout;
use tonic::{Response, Status, Streaming};

use super::messages::lately::hit_stream_response::Result as Answer;
use super::messages::lately::hits_response::Window;
use super::messages::lately::limit_request::{Given, Limit};
use super::messages::lately::{
    HitRequest, HitResponse, HitStreamResponse, HitsRequest, HitsResponse, LimitRequest, LimitResponse,
    Refusal, TopRequest, TopResponse, UniqueRequest, UniqueResponse, top_response,
};
use super::methods::Call;
use super::status::{of_decide, of_hit, of_refused};
use crate::limits::{DEFAULT_TOP_KEYS, MAX_HTTP_WINDOWS, STREAM_BATCH_HITS};
use crate::service::commit::Changes;
use crate::service::owners::IdHits;
use crate::service::response::WindowCount;
use crate::service::{self, Asked, Batch, Limiting, NoRoom, TopQuestion, TopRow};

pub(super) async fn hit(call: Call, asked: HitRequest) -> Result<HitResponse, Status> {
    let mut answers = count(&call, &[asked]).await;
    answers.pop().expect("each hit has an answer").map(|hits| HitResponse { hits })
}

/// Counts hits as they come. Those that have arrived are counted together.
pub(super) fn hit_stream(
    call: Call,
    asked: Streaming<HitRequest>,
) -> impl Stream<Item = Result<HitStreamResponse, Status>> {
    let open = call.link.pace.open_request();
    let asked = asked.ready_chunks(STREAM_BATCH_HITS);
    stream::unfold(Some((call, asked, VecDeque::new(), open)), async |state| {
        let (call, mut asked, mut answers, open) = state?;
        if answers.is_empty() {
            let next = more(&call, asked.next()).await;
            match next.and_then(|next| call.check_login().map(|()| next)) {
                Ok(Some(hits)) => {
                    // A message that cannot be read ends the stream, after the answers to those before it.
                    let (hits, end) = before_error(hits);
                    answers.extend(count(&call, &hits).await.into_iter().map(|answer| Ok(streamed(answer))));
                    answers.extend(end.map(Err));
                }
                Ok(None) => return None,
                Err(status) => return Some((Err(status), None)),
            }
        }
        let answer: Result<HitStreamResponse, Status> = answers.pop_front()?;
        let goes_on = answer.is_ok();
        Some((answer, goes_on.then_some((call, asked, answers, open))))
    })
}

/// The next messages of a stream. `None` at its end.
async fn more<T>(call: &Call, next: impl Future<Output = Option<T>>) -> Result<Option<T>, Status> {
    let idle = call.service.config.idle_timeout;
    let next = async {
        match idle {
            Some(idle) => timeout(idle, next)
                .await
                .map_err(|_| Status::deadline_exceeded("the stream was idle for too long")),
            None => Ok(next.await),
        }
    };
    tokio::select! {
        biased;
        next = next => next,
        () = call.stopper.stopped() => Err(Status::unavailable("the server stops")),
    }
}

fn before_error(asked: Vec<Result<HitRequest, Status>>) -> (Vec<HitRequest>, Option<Status>) {
    let mut hits = Vec::with_capacity(asked.len());
    for asked in asked {
        match asked {
            Ok(hit) => hits.push(hit),
            Err(status) => return (hits, Some(status)),
        }
    }
    (hits, None)
}

fn streamed(answer: Result<u64, Status>) -> HitStreamResponse {
    let result = match answer {
        Ok(hits) => Answer::Hits(hits),
        Err(status) => {
            Answer::Refused(Refusal { code: status.code().into(), message: status.message().to_owned() })
        }
    };
    HitStreamResponse { result: Some(result) }
}

/// Counts up to [`STREAM_BATCH_HITS`]. Returns once they are committed.
async fn count(call: &Call, asked: &[HitRequest]) -> Vec<Result<u64, Status>> {
    let checked: Vec<_> = asked.iter().map(|hit| check_hit(call, hit)).collect();
    let service = &call.service;
    let to_another_node = |(hit, at): (&HitRequest, &Result<Option<Timestamp>, Status>)| {
        let &HitRequest { ref key, n, ref id, ref member, .. } = hit;
        let (weight, member) = (n.unwrap_or(1), member.as_deref());
        let hits = IdHits { key, weight, at: *at.as_ref().ok()?, id: id.as_deref()?, member };
        service.ask_to_count(&hits)
    };
    let of_others: Vec<_> = asked.iter().zip(&checked).map(to_another_node).collect();
    let is_of_another: Vec<bool> = of_others.iter().map(Option::is_some).collect();
    let mut changes = Changes::default();
    let (mut outcomes, commit) = {
        let mut batch = Batch::default();
        for ((hit, at), of_another) in asked.iter().zip(&checked).zip(&of_others) {
            if let (Ok(at), None) = (at, of_another) {
                let with = (hit.id.as_deref(), hit.member.as_deref());
                batch.hit_with((&hit.key, hit.n.unwrap_or(1), *at), with);
            }
        }
        let _entered = service.enter();
        service.execute(&mut batch, &mut changes, service.now());
        let outcome = |response: service::Response<'_>| match response.outcome {
            Ok(Outcome::Hit(Ok(hits)) | Outcome::Repeated(hits)) => Ok(*hits),
            Ok(Outcome::Hit(Err(error))) => Err(of_hit(error)),
            Ok(_) => unreachable!("a hit was asked for"),
            Err(refused) => Err(of_refused(refused)),
        };
        let outcomes: Vec<_> = batch.responses().map(outcome).collect();
        (outcomes.into_iter(), service.commit(&mut [&mut changes]))
    };
    // The change is committed before the first await: a client that disconnects cannot undo it.
    let settled = service.settled(commit, changes).await;
    let mut counted = service.all_counted(of_others.into_iter().flatten().collect()).await.into_iter();
    let answer = |(checked, is_of_another): (Result<Option<Timestamp>, Status>, bool)| {
        checked?;
        if is_of_another {
            let counted = counted.next().expect("each node that was asked has said something");
            return counted.map_err(|refused| of_decide(&refused.into()));
        }
        let outcome = outcomes.next().expect("each operation has an outcome");
        settled.as_ref().map_err(of_refused).and(outcome)
    };
    checked.into_iter().zip(is_of_another).map(answer).collect()
}

/// Checks a hit. Returns its time.
fn check_hit(call: &Call, hit: &HitRequest) -> Result<Option<Timestamp>, Status> {
    check_key(call, &hit.key)?;
    check_count("n", hit.n)?;
    if let Some(id) = &hit.id {
        HitOnce::check_id(id).map_err(|error| of_hit(&error))?;
    }
    if let Some(member) = &hit.member {
        MemberHit::check_member(member).map_err(|error| of_hit(&error))?;
    }
    call.check_loaded()?;
    time(hit.at_ms)
}

pub(super) async fn hits(call: Call, asked: HitsRequest) -> Result<HitsResponse, Status> {
    let HitsRequest { key, windows_ms, at_ms } = asked;
    check_key(&call, &key)?;
    if windows_ms.len() > MAX_HTTP_WINDOWS {
        let given = windows_ms.len();
        return Err(Status::invalid_argument(format!(
            "{given} windows: a request has at most {MAX_HTTP_WINDOWS}"
        )));
    }
    let windows = windows_ms.into_iter().map(span).collect::<Result<Vec<_>, _>>()?;
    let at = time(at_ms)?;
    call.check_loaded()?;
    call.service.known(Asked { key: &key, window: windows.iter().copied().max(), at }).await;
    let now = call.service.now();
    let windows = call.service.counts(&key, (windows, at), false, now);
    let window = |WindowCount { window, count, rate, .. }: WindowCount| Window {
        window_ms: window.as_millis(),
        hits: count.estimate,
        lower: count.lower,
        upper: count.upper,
        rate,
    };
    Ok(HitsResponse {
        as_of_ms: at.unwrap_or(now).as_millis(),
        windows: windows.into_iter().map(window).collect(),
    })
}

pub(super) async fn unique(call: Call, asked: UniqueRequest) -> Result<UniqueResponse, Status> {
    let UniqueRequest { key, window_ms } = asked;
    check_key(&call, &key)?;
    let window = window_ms.map(span).transpose()?;
    call.check_loaded()?;
    call.service.known(Asked { key: &key, window, at: None }).await;
    let now = call.service.now();
    let (window, count) = call.service.unique(&key, window, now).map_err(|error| of_hit(&error))?;
    Ok(UniqueResponse {
        as_of_ms: now.as_millis(),
        window_ms: window.as_millis(),
        unique: count.estimate,
        lower: count.lower,
        upper: count.upper,
    })
}

pub(super) async fn limit(call: Call, asked: LimitRequest) -> Result<LimitResponse, Status> {
    check_key(&call, &asked.key)?;
    if let Some(cost) = asked.cost.filter(|cost| cost.unsigned_abs() > MAX_TOTAL) {
        return Err(Status::invalid_argument(format!(
            "invalid cost {cost}: give from -{MAX_TOTAL} to {MAX_TOTAL}"
        )));
    }
    let (cost, at) = (asked.cost.unwrap_or(1), time(asked.at_ms)?);
    let rules = call.service.rules.get();
    let limit = match &asked.limit {
        None => return Err(Status::invalid_argument("give the name of a limit, or max and window_ms")),
        Some(Limit::Name(name)) => Limiting::Named(&rules, name.as_bytes()),
        Some(Limit::Given(given)) => {
            check_count("max", Some(given.max))?;
            Limiting::Given {
                max: given.max,
                window: span(given.window_ms)?,
                lockout: lockout_of(given)?,
                is_overdraft: given.overdraft,
            }
        }
    };
    call.check_loaded()?;
    let (key, is_peek) = (&*asked.key, asked.peek);
    let request = service::LimitRequest { key, limit, cost, at, is_peek, address: None };
    let decided = call.service.decide(&request).await.map_err(|error| of_decide(&error))?;
    let decision = decided.decision;
    Ok(LimitResponse {
        allowed: decision.is_allowed(),
        max: decision.max,
        remaining: decision.remaining,
        retry_after_ms: match decision.retry {
            Retry::Now => Some(0),
            Retry::After(wait) => Some(wait.as_millis()),
            Retry::Never => None,
        },
        reset_after_ms: decision.reset_after.map_or(0, Span::as_millis),
    })
}

fn lockout_of(given: &Given) -> Result<Option<Lockout>, Status> {
    let &Given { lockout_ms, lockout_factor: factor, lockout_max_ms, .. } = given;
    let Some(first_ms) = lockout_ms else {
        if factor.is_some() || lockout_max_ms.is_some() {
            return Err(Status::invalid_argument("lockout_factor and lockout_max_ms go with lockout_ms"));
        }
        return Ok(None);
    };
    let first = span(first_ms)?;
    if factor.is_none() && lockout_max_ms.is_none() {
        return Ok(Some(Lockout::of(first)));
    }
    let factor = match factor {
        None => Factor::ONE,
        Some(given) => Factor::new(given).ok_or_else(|| {
            Status::invalid_argument(format!("invalid lockout_factor {given}: give 1 or more, such as 2"))
        })?,
    };
    let lockout = Lockout::growing(first, factor, lockout_max_ms.map(span).transpose()?);
    lockout.map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// The most-hit keys. The memory of the answer is charged until the client has it.
pub(super) async fn top(call: Call, asked: TopRequest) -> Result<Response<TopResponse>, Status> {
    call.check_all_keys()?;
    let TopRequest { k, window_ms, prefix } = asked;
    let count = k.map_or(Ok(DEFAULT_TOP_KEYS), |k| {
        usize::try_from(k).ok().filter(|count| *count <= MAX_TOP_KEYS).ok_or_else(|| {
            Status::invalid_argument(format!(
                "invalid k {k}: give how many keys are wanted, 0 to {MAX_TOP_KEYS}"
            ))
        })
    })?;
    if prefix.len() > MAX_KEY_BYTES {
        let bytes = prefix.len();
        return Err(Status::invalid_argument(format!(
            "invalid prefix of {bytes} bytes: give up to {MAX_KEY_BYTES} bytes that keys begin with"
        )));
    }
    let window = window_ms.map(span).transpose()?;
    call.check_loaded()?;
    let (keys, mut held) =
        call.service.top(TopQuestion { count, window, prefix: &prefix, pattern: None }).await?;
    let row = |TopRow { key, window, hits, lower, upper, rate }| top_response::Row {
        key: key.into(),
        window_ms: window.as_millis(),
        hits,
        lower,
        upper,
        rate,
    };
    let answer = TopResponse {
        as_of_ms: keys.as_of.as_millis(),
        rows: keys.rows.into_iter().map(row).collect(),
        others_upper: keys.others_upper,
    };
    // The buffer of the message may grow to twice of what is in it.
    held.hold_more(2 * answer.encoded_len())?;
    let mut response = Response::new(answer);
    response.extensions_mut().insert(Arc::new(held));
    Ok(response)
}

impl From<NoRoom> for Status {
    fn from(_: NoRoom) -> Status {
        Status::resource_exhausted(
            "OOM other answers take the memory for this one: try again, or ask for fewer keys",
        )
    }
}

fn check_key(call: &Call, key: &[u8]) -> Result<(), Status> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(of_hit(&HitError::KeyLength { bytes: key.len() }));
    }
    call.check([key])
}

fn check_count(name: &str, count: Option<u64>) -> Result<(), Status> {
    match count {
        Some(count) if count > MAX_TOTAL => {
            Err(Status::invalid_argument(format!("invalid {name} {count}: give up to {MAX_TOTAL}")))
        }
        _ => Ok(()),
    }
}

fn time(ms: Option<i64>) -> Result<Option<Timestamp>, Status> {
    let time = |ms| {
        Timestamp::from_millis(ms)
            .ok_or_else(|| Status::invalid_argument(format!("invalid at_ms {ms}: give Unix milliseconds")))
    };
    ms.map(time).transpose()
}

fn span(ms: i64) -> Result<Span, Status> {
    Span::from_millis(ms).ok_or_else(|| {
        Status::invalid_argument(format!("invalid duration {ms}: give 1 to 1,000,000,000,000 ms"))
    })
}
