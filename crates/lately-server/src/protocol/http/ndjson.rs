//! `POST /v1/hits`: hits of many keys, a JSON object on each line.
//!
//! The body is read as a stream. Its lines are counted as they come, so a body that breaks off has been counted up to there.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::limits::{MAX_KEY_BYTES, MAX_TOTAL};
use lately::{HitError, HitOnce, MemberHit, Outcome, TimeError, Timestamp};
use lately_resp::command::Verb;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::dumps::{coded, discard, next_piece};
use super::listener::Link;
use super::login::{no_key, refused, unauthorized};
use super::pace::{Pace, Upload};
use super::problem::{Document, Problem};
use super::query::{Query, shown};
use crate::limits::{
    MAX_HTTP_BODY_BYTES, MAX_HTTP_LINE_BYTES, MAX_REJECTED_LINES, NDJSON_BATCH_LINES, RUN_OPERATIONS,
};
use crate::service::access::{Forbidden, Principal};
use crate::service::commit::Changes;
use crate::service::owners::{ARGUMENT, IdHits, NotCounted, TRY_AGAIN};
use crate::service::{Batch, DecideError, Refused, Service, code_of};

/// What became of the lines.
#[derive(Serialize, Default, ToSchema)]
pub(super) struct LinesAnswer {
    /// Lines whose hits were counted.
    accepted: u64,
    /// Lines that were rejected.
    rejected_lines: u64,
    /// The first of them.
    rejected: Vec<RejectedLine>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct RejectedLine {
    /// The number of the line, from 1.
    line: u64,
    error: String,
}

/// A line.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object, such as {\"key\":\"user:42\"}")]
struct Line<'l> {
    #[serde(borrow)]
    key: Option<Cow<'l, str>>,
    /// A key that is no UTF-8, in Base64.
    #[serde(borrow)]
    key_b64: Option<Cow<'l, str>>,
    /// The number of hits: 1.
    #[serde(borrow)]
    #[schema(value_type = Option<i64>, minimum = 0)]
    n: Option<&'l RawValue>,
    /// The time of the hits in Unix seconds: now.
    #[serde(borrow)]
    #[schema(value_type = Option<f64>)]
    at: Option<&'l RawValue>,
    /// The id of the hits, up to 256 bytes. Hits of the key with the same id count once within the `dedupe` of its class.
    #[serde(borrow)]
    id: Option<Cow<'l, str>>,
    /// Whose hits they are, up to 256 bytes. The distinct members of a key are counted if its class has `unique`.
    #[serde(borrow)]
    member: Option<Cow<'l, str>>,
}

/// The fields that are texts.
const TEXTS: [&str; 4] = ["key", "key_b64", "id", "member"];

/// The hits of a line.
struct Hits<'l> {
    line: u64,
    key: Cow<'l, [u8]>,
    count: u64,
    at: Option<Timestamp>,
    id: Option<Cow<'l, str>>,
    member: Option<Cow<'l, str>>,
}

/// Counts hits of many keys, a JSON object on each line.
#[utoipa::path(
    post, path = "/v1/hits", tag = "counting",
    request_body(content = Line, content_type = "application/x-ndjson", description = "An object on each line."),
    responses(
        (status = 200, description = "What became of the lines.", body = LinesAnswer),
        (status = 413, description = "The body is too long.", body = Document, content_type = "application/problem+json"),
        (status = 415, description = "The body has a content coding.", body = Document, content_type = "application/problem+json"),
        (status = 501, description = "The body has an unknown transfer coding.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn hits(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    version: Version,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(refusal) = begin(&service, &uri, &headers) {
        discard(&headers, body).await;
        return *refusal;
    }
    let pace = Arc::clone(&link.pace);
    let mut lines = Lines { service, link, answer: LinesAnswer::default(), line: 0 };
    // The error of a slow upload is text of HTTP/1.
    let is_answered = version != Version::HTTP_2;
    let read = lines.read(body, &pace, is_answered).await;
    pace.set_upload(None);
    pace.is_at_the_client();
    match read {
        Ok(()) => Json(lines.answer).into_response(),
        Err((problem, body)) => {
            discard(&headers, body).await;
            problem.and(&Upload::Counted(lines.answer.accepted).to_string()).into_response()
        }
    }
}

/// Checks whether the lines may be read.
fn begin(service: &Service, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Response>> {
    let refused = |problem: Problem| Box::new(problem.into_response());
    Query::of(uri, "none").and_then(Query::end).map_err(refused)?;
    if let Some(refusal) = coded(headers) {
        return Err(refusal.into());
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_HTTP_BODY_BYTES) {
        return Err(refused(too_long()));
    }
    if service.is_loading() {
        return Err(refused(Problem::loading()));
    }
    Ok(())
}

fn too_long() -> Problem {
    let detail = format!("the body is longer than {MAX_HTTP_BODY_BYTES} bytes: send it in parts");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too long", &detail)
}

/// The lines of a body, cut where the network did not.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// The rest of a line that is too long is skipped.
    is_skipping: bool,
}

impl LineBuffer {
    /// Adds a piece of the body. Returns the lines that are complete, each with its end.
    fn add(&mut self, mut piece: &[u8]) -> Vec<u8> {
        let end_of = |bytes: &[u8]| bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        if self.is_skipping {
            let Some(end) = end_of(piece) else { return Vec::new() };
            (self.is_skipping, piece) = (false, &piece[end..]);
        }
        self.bytes.extend_from_slice(piece);
        let end = self.bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.bytes.drain(..end).collect()
    }

    /// Whether the line that is not complete is too long already. Then the rest of it is skipped.
    fn skip_too_long(&mut self) -> bool {
        let is_too_long = self.bytes.len() > MAX_HTTP_LINE_BYTES;
        if is_too_long {
            (self.bytes, self.is_skipping) = (Vec::new(), true);
        }
        is_too_long
    }
}

/// A body that is read.
struct Lines {
    service: Arc<Service>,
    link: Link,
    answer: LinesAnswer,
    /// The number of lines so far.
    line: u64,
}

impl Lines {
    /// Counts all lines. If the client `is_answered` when it becomes too slow, the error has their number. An error here has the rest of the body.
    async fn read(&mut self, mut body: Body, pace: &Pace, is_answered: bool) -> Result<(), (Problem, Body)> {
        let (mut buffer, mut left_bytes) = (LineBuffer::default(), MAX_HTTP_BODY_BYTES);
        loop {
            pace.set_upload(is_answered.then_some(Upload::Counted(self.answer.accepted)));
            pace.is_at_the_client();
            let piece = next_piece(&mut body).await;
            pace.is_at_us();
            let piece = match piece {
                None => break,
                Some(Err(error)) => return Err((Problem::bad(format!("the body broke off: {error}")), body)),
                Some(Ok(piece)) => piece,
            };
            pace.moved(piece.len());
            let Some(left) = left_bytes.checked_sub(piece.len() as u64) else {
                return Err((too_long(), body));
            };
            left_bytes = left;
            if let Err(problem) = self.count(&buffer.add(&piece)).await {
                return Err((problem, body));
            }
            if buffer.skip_too_long() {
                self.line += 1;
                self.reject(self.line, too_long_line());
            }
        }
        self.count(&buffer.bytes).await.map_err(|problem| (problem, body))
    }

    /// Counts complete lines. Returns once they are committed.
    async fn count(&mut self, lines: &[u8]) -> Result<(), Problem> {
        if lines.is_empty() {
            return Ok(());
        }
        let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
        let all: Vec<&[u8]> = lines.split(|&byte| byte == b'\n').collect();
        for lines in all.chunks(NDJSON_BATCH_LINES) {
            self.count_some(lines).await?;
        }
        Ok(())
    }

    async fn count_some(&mut self, lines: &[&[u8]]) -> Result<(), Problem> {
        let principal = self.standing()?;
        let (mut hits, mut rejected) = (Vec::with_capacity(lines.len()), Vec::new());
        for line in lines {
            self.line += 1;
            match Hits::parse(line, self.line, &principal) {
                _ if line.trim_ascii().is_empty() => {}
                Ok(parsed) => hits.push(parsed),
                Err(error) => rejected.push((self.line, error)),
            }
        }
        let service = Arc::clone(&self.service);
        let (mut lines_of_others, mut asked) = (Vec::new(), Vec::new());
        hits.retain(|hits| match hits.with_id().and_then(|hits| service.ask_to_count(&hits)) {
            Some(of_another) => {
                lines_of_others.push(hits.line);
                asked.push(of_another);
                false
            }
            None => true,
        });
        let (mut changes, mut accepted, mut failed) = (Changes::default(), 0, None);
        for (line, counted) in lines_of_others.into_iter().zip(service.all_counted(asked).await) {
            match counted {
                Ok(_) => accepted += 1,
                Err(NotCounted { code: ARGUMENT, error }) => rejected.push((line, error)),
                // None of these lines is said to be counted. Those with an id count once if they are sent again.
                Err(refused @ NotCounted { code: TRY_AGAIN | "MISCONF", .. }) => {
                    return Err(DecideError::from(refused).into());
                }
                Err(NotCounted { code, error }) => rejected.push((line, format!("{code} {error}"))),
            }
        }
        let commit = {
            let _entered = service.enter();
            for hits in hits.chunks(RUN_OPERATIONS) {
                let (mut batch, now) = (Batch::default(), service.now());
                for Hits { key, count, at, id, member, .. } in hits {
                    let [id, member] = [id, member].map(|text| text.as_deref().map(str::as_bytes));
                    batch.hit_with((key, *count, *at), (id, member));
                }
                service.execute(&mut batch, &mut changes, now);
                for (hits, response) in hits.iter().zip(batch.responses()) {
                    match response.outcome {
                        Ok(Outcome::Hit(Ok(_)) | Outcome::Repeated(_)) => accepted += 1,
                        Ok(Outcome::Hit(Err(error))) => {
                            rejected.push((hits.line, format!("{} {error}", code_of(error))));
                        }
                        Ok(_) => unreachable!("a hit was asked for"),
                        Err(refused @ Refused::Never(_)) => {
                            rejected.push((hits.line, format!("{} {refused}", refused.code())));
                        }
                        Err(refused) => failed = Some(refused.clone()),
                    }
                }
            }
            service.commit(&mut [&mut changes])
        };
        service.settled(commit, changes).await.map_err(|refused| Problem::of_refused(&refused))?;
        self.answer.accepted += accepted;
        rejected.sort_by_key(|(line, _)| *line);
        rejected.into_iter().for_each(|(line, error)| self.reject(line, error));
        failed.map_or(Ok(()), |refused| Err(Problem::of_refused(&refused)))
    }

    /// What the client may do now. The users may be replaced while the body comes.
    fn standing(&self) -> Result<Principal, Problem> {
        let principal = self.link.standing(&self.service).into_owned();
        let Err(forbidden) = principal.check(Some(Verb::Hit), |_| Some(None::<Vec<u8>>)) else {
            return Ok(principal);
        };
        self.service.stats.refused(&forbidden);
        Err(match forbidden {
            Forbidden::Login => unauthorized("the user is gone or has another password: log in again"),
            forbidden => refused(&principal, &forbidden, "/v1/hits"),
        })
    }

    fn reject(&mut self, line: u64, error: String) {
        self.answer.rejected_lines += 1;
        if self.answer.rejected.len() < MAX_REJECTED_LINES {
            self.answer.rejected.push(RejectedLine { line, error });
        }
    }
}

fn too_long_line() -> String {
    format!("the line is longer than {MAX_HTTP_LINE_BYTES} bytes")
}

impl<'l> Hits<'l> {
    /// The hits, if they have an id.
    fn with_id(&self) -> Option<IdHits<'_>> {
        let &Hits { ref key, count, at, ref id, ref member, .. } = self;
        let member = member.as_deref().map(str::as_bytes);
        Some(IdHits { key, weight: count, at, id: id.as_deref()?.as_bytes(), member })
    }

    fn parse(text: &'l [u8], line: u64, principal: &Principal) -> Result<Hits<'l>, String> {
        if text.len() > MAX_HTTP_LINE_BYTES {
            return Err(too_long_line());
        }
        // serde would take an array of its members, too.
        if text.trim_ascii_start().first() == Some(&b'[') {
            return Err(
                "invalid type: sequence, expected an object, such as {\"key\":\"user:42\"}".to_owned()
            );
        }
        let parsed: Line<'l> = serde_json::from_slice(text).map_err(|error| describe(&error, text))?;
        let key: Cow<'l, [u8]> = match (parsed.key, parsed.key_b64) {
            (Some(Cow::Borrowed(key)), None) => Cow::Borrowed(key.as_bytes()),
            (Some(Cow::Owned(key)), None) => Cow::Owned(key.into_bytes()),
            (None, Some(key)) => {
                let decoded = STANDARD.decode(&*key);
                Cow::Owned(decoded.map_err(|error| format!("invalid key_b64 '{}': {error}", shown(&key)))?)
            }
            (None, None) => return Err("key is missing".to_owned()),
            (Some(_), Some(_)) => return Err("give key or key_b64, not both".to_owned()),
        };
        let count = parsed.n.map_or(Ok(1), |n| {
            let count = n.get().parse().ok().filter(|&count: &u64| count <= MAX_TOTAL);
            count.ok_or_else(|| {
                format!("invalid n {}: n is a whole number from 0 to {MAX_TOTAL}", shown(n.get()))
            })
        })?;
        // A time may be a number or a text.
        let at = parsed
            .at
            .map(|at| at.get().trim_matches('"').parse().map_err(|error: TimeError| error.to_string()));
        let at = at.transpose().map_err(|error| format!("at: {error}"))?;
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(format!("ERR {}", HitError::KeyLength { bytes: key.len() }));
        }
        if let Some(id) = &parsed.id
            && let Err(error) = HitOnce::check_id(id.as_bytes())
        {
            return Err(format!("ERR {error}"));
        }
        if let Some(member) = &parsed.member
            && let Err(error) = MemberHit::check_member(member.as_bytes())
        {
            return Err(format!("ERR {error}"));
        }
        if !principal.has_key(&key) {
            return Err(format!("NOPERM {}", no_key(principal, &key)));
        }
        Ok(Hits { line, key, count, at, id: parsed.id, member: parsed.member })
    }
}

/// An error of JSON, without the line: that is always the first. It names the field, which serde does not.
fn describe(error: &serde_json::Error, line: &[u8]) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let fields: Option<serde_json::Map<_, _>> = serde_json::from_slice(line).ok();
    let is_text = |value: &serde_json::Value| value.is_string() || value.is_null();
    let wrong =
        fields.iter().flatten().find(|(name, value)| TEXTS.contains(&name.as_str()) && !is_text(value));
    match wrong {
        Some((name, value)) if error.is_data() && what.starts_with("invalid type") => {
            format!("invalid {name} {}: {name} is a text", shown(&value.to_string()))
        }
        _ if error.is_data() => what.to_owned(),
        _ => format!("invalid JSON at column {}: {what}", error.column()),
    }
}

/// Checks a body of any bytes that comes in pieces.
#[cfg(any(test, fuzzing))]
pub(crate) mod check {
    use serde_json::Value;

    use super::*;

    /// The same lines come out however the body is cut, and a line that is taken has the key, the count and the time of its
    /// JSON object.
    ///
    /// # Panics
    /// They do not.
    pub(crate) fn check(body: &[u8], piece_bytes: usize) {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for piece in body.chunks(piece_bytes.max(1)) {
            lines.extend(buffer.add(piece));
            assert!(!buffer.skip_too_long(), "the body is short");
        }
        lines.extend(&buffer.bytes);
        assert_eq!(lines, body);
        body.split(|&byte| byte == b'\n').for_each(line);
    }

    fn line(text: &[u8]) {
        let Ok(hits) = Hits::parse(text, 1, &Principal::Anyone) else { return };
        let object: Value = serde_json::from_slice(text).expect("a line that was taken is JSON");
        let has_meaning = |(name, value): (&String, &Value)| {
            ["key", "key_b64", "n", "at", "id", "member"].contains(&name.as_str()) || value.is_null()
        };
        assert!(object.as_object().expect("it is an object").iter().all(has_meaning), "{object}");
        match object.get("key").filter(|key| !key.is_null()) {
            Some(key) => assert_eq!(key.as_str().map(str::as_bytes), Some(&*hits.key)),
            None => assert_eq!(object["key_b64"], STANDARD.encode(&hits.key)),
        }
        let count = object.get("n").filter(|count| !count.is_null());
        assert_eq!(count.map_or(Some(1), Value::as_u64), Some(hits.count), "{object}");
        let id = object.get("id").filter(|id| !id.is_null());
        assert_eq!(id.and_then(Value::as_str), hits.id.as_deref(), "{object}");
        let member = object.get("member").filter(|member| !member.is_null());
        assert_eq!(member.and_then(Value::as_str), hits.member.as_deref(), "{object}");
        assert_eq!(hits.at.is_some(), object.get("at").is_some_and(|at| !at.is_null()), "{object}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Result<(Vec<u8>, u64, Option<String>), String> {
        let hits = Hits::parse(line.as_bytes(), 1, &Principal::Anyone)?;
        Ok((hits.key.into_owned(), hits.count, hits.at.map(|at| at.to_string())))
    }

    #[test]
    fn a_line_is_an_object() {
        let check = |line: &str, key: &[u8], count, at: Option<&str>| {
            assert_eq!(parsed(line), Ok((key.to_owned(), count, at.map(str::to_owned))), "{line}");
        };
        check(r#"{"key":"a"}"#, b"a", 1, None);
        check(" {\"key\" : \"\\u00e9\", \"n\": 0}\r", "é".as_bytes(), 0, None);
        check(r#"{"key_b64":"/wA=","n":3,"at":1700000000.25}"#, b"\xff\0", 3, Some("1700000000.25"));
        check(r#"{"at":"1700000000","key":"a"}"#, b"a", 1, Some("1700000000"));
        check(r#"{"key":"a","n":null,"id":null}"#, b"a", 1, None);
    }

    #[test]
    fn an_error_of_a_line_names_the_mistake() {
        let check = |line: &str, expected: &str| {
            let error = parsed(line).expect_err(line);
            assert!(error.starts_with(expected), "{line}: {error}");
        };
        check("{", "invalid JSON at column 1: EOF while parsing");
        check("no", "invalid JSON at column 2: expected ident");
        check("[1]", "invalid type: sequence, expected an object");
        check(r#" ["a",null,5,null,null,null]"#, "invalid type: sequence, expected an object");
        check("{}", "key is missing");
        check(r#"{"kye":"a"}"#, "unknown field `kye`, expected one of `key`, `key_b64`, `n`");
        check(r#"{"key":"a","key_b64":"YQ=="}"#, "give key or key_b64, not both");
        check(r#"{"key_b64":"?"}"#, "invalid key_b64 '?': ");
        check(r#"{"key":""}"#, "ERR ");
        check(r#"{"key":7}"#, "invalid key 7: key is a text");
        check(r#"{"key":"a","member":["b"]}"#, "invalid member [\"b\"]: member is a text");
        check(r#"{"key":"a","n":-1}"#, "invalid n -1: n is a whole number from 0 to 9223372036854775807");
        check(r#"{"key":"a","n":"5"}"#, "invalid n \"5\": n is");
        check(r#"{"key":"a","n":1.5}"#, "invalid n 1.5: n is");
        check(r#"{"key":"a","at":"soon"}"#, "at: invalid time 'soon'");
        check(r#"{"key":"a","at":{}}"#, "at: invalid time '{}'");
        check(r#"{"key":"a","id":7}"#, "invalid id 7: id is a text");
        check(r#"{"key":"a","id":""}"#, "ERR invalid id of 0 bytes");
    }

    /// The longest key, with each byte escaped, fits a line.
    #[test]
    fn lines_have_a_bound() {
        let longest = format!(r#"{{"key":"{}"}}"#, "\\u0061".repeat(MAX_KEY_BYTES));
        assert!(parsed(&longest).is_ok());
        let padded = longest.clone() + &" ".repeat(MAX_HTTP_LINE_BYTES - longest.len());
        assert!(parsed(&padded).is_ok());
        assert_eq!(parsed(&(padded + " ")), Err(too_long_line()));
    }

    #[test]
    fn lines_are_found_wherever_the_network_cuts_them() {
        let long = "x".repeat(MAX_HTTP_LINE_BYTES + 1);
        let body = format!("a\n\nbc\n{long}\nd\n{}\ne", "y".repeat(MAX_HTTP_LINE_BYTES));
        for step in [1, 2, 3, 1_000, MAX_HTTP_LINE_BYTES, body.len()] {
            let (mut buffer, mut lines, mut too_long) = (LineBuffer::default(), Vec::new(), 0);
            for piece in body.as_bytes().chunks(step) {
                lines.extend(buffer.add(piece));
                too_long += usize::from(buffer.skip_too_long());
            }
            assert!(buffer.bytes.len() <= MAX_HTTP_LINE_BYTES);
            lines.extend(&buffer.bytes);
            // A long line whose end comes with its last byte is refused when it is parsed.
            let text = String::from_utf8(lines).expect("text");
            too_long += text.matches(&long).count();
            assert_eq!(
                text.replace(&format!("{long}\n"), ""),
                body.replace(&format!("{long}\n"), ""),
                "{step}"
            );
            assert_eq!(too_long, 1, "{step}");
        }
    }

    proptest! {
        #[test]
        fn a_body_may_be_cut_anywhere(
            body in r#"(\{("(key|key_b64|n|at|id|x)":("a[}]?"|"YQ=="|1|7\.5|-1|1e2|null|"7"|"\\u00e9"),?){0,3}\}|\n| ){0,6}"#,
            piece_bytes in 1..40_usize,
        ) {
            check::check(body.as_bytes(), piece_bytes);
        }
    }
}
