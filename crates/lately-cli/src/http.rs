//! A client for what goes over HTTP: dump, restore and the list of nodes.

use std::io::{self, ErrorKind, Read};

use lately::{Clock, SystemClock, Timestamp};
use lately_server::limits::{FAIR_BYTES, FAIR_SHARE, HTTP_LEAST_BYTES};
use lately_server::{RUN_ID_HEADER, Restored};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder, SendBody};

use crate::error::CliError;
use crate::limits::MAX_ANSWER_BYTES;
use crate::login::Login;

/// A server's HTTP listener.
pub(crate) struct Http {
    address: String,
    /// The `run_id` of the server, if it is known, so that another one refuses.
    run_id: Option<String>,
    scheme: &'static str,
    authorization: Option<String>,
    agent: Agent,
}

const NO_HTTP: &str = "does the server listen for HTTP there? --http names another address";
/// The hint when the connection ended before the answer.
const HALF: &str = "some keys may have been restored: restore the dump again with --replace";

impl Http {
    pub(crate) fn new(address: String, run_id: Option<String>, login: &Login) -> Result<Http, CliError> {
        // The body of an error has the cause.
        let mut config = Agent::config_builder().http_status_as_error(false);
        if let Some(tls) = login.https()? {
            config = config.tls_config(tls);
        }
        let agent = config.build().into();
        Ok(Http { address, run_id, scheme: login.http_scheme(), authorization: login.authorization(), agent })
    }

    /// Adds what every request has.
    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let request = match &self.run_id {
            Some(run_id) => request.header(RUN_ID_HEADER, run_id),
            None => request,
        };
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// The body of an answer, or the error in it.
    fn answer(&self, answer: Response<Body>) -> Result<impl Read + use<>, CliError> {
        let status = answer.status();
        let body = answer.into_body().into_reader();
        if status.is_success() {
            return Ok(body);
        }
        let problem = object_of(body);
        let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
        let title = problem.as_ref().and_then(|problem| problem["title"].as_str());
        let hint = match status.as_u16() {
            404 if title == Some("no cluster") => {
                "start it with --cluster URL --node NAME to count together with other servers"
            }
            401 => "log in with --password-file FILE, and --user NAME if it is not default",
            403 if title == Some("NOPERM") => "log in as a user that may: --user NAME --password-file FILE",
            403 => "run it on the machine of the server, or give the near end of an SSH tunnel with --http",
            408 => "send it faster: from a file on this machine, for example",
            404 => "the server is of another version",
            409 if title == Some("counts together") => "name the folder with --data",
            409 => "use --replace to replace them",
            421 => "give the address of its HTTP listener with --http",
            503 => "try again later",
            505 => "give the address of its HTTP listener with --http: this looks like that of gRPC",
            _ => "nothing was changed",
        };
        Err(CliError::new(&self.address, detail.unwrap_or(status.as_str()), hint))
    }

    /// Gets a path.
    pub(crate) fn get(&self, path: &str) -> Result<impl Read + use<>, CliError> {
        let answer = self.signed(self.agent.get(format!("{}://{}{path}", self.scheme, self.address)));
        self.answer(answer.call().map_err(|error| CliError::new(&self.address, cause(&error), NO_HTTP))?)
    }

    /// Uploads a dump.
    pub(crate) fn restore(
        &self,
        name: &str,
        dump: &mut impl Read,
        replace: bool,
    ) -> Result<Restored, CliError> {
        let url = format!("{}://{}/v1/restore?replace={replace}", self.scheme, self.address);
        // With `Expect`, a server refuses before the dump is sent.
        let request = self.signed(self.agent.post(url)).header("expect", "100-continue");
        let request = request.content_type("application/vnd.lately.dump");
        let mut dump = Meter::new(dump);
        let answer = request.send(SendBody::from_reader(&mut dump));
        let answer = answer.map_err(|error| {
            if let Some(error) = dump.failed.take() {
                return CliError::new(name, error, "nothing was changed");
            }
            if dump.bytes > 0 && !dump.is_at_end {
                // A server restores nothing before it has the end of the dump.
                let slow = dump
                    .too_slow()
                    .map(|rate| format!("the server ended the upload: slower than {rate} B/s"));
                return CliError::new(
                    &self.address,
                    slow.unwrap_or_else(|| cause(&error)),
                    "nothing was changed",
                );
            }
            // Keys may have been restored only if the whole dump was sent.
            CliError::new(&self.address, cause(&error), if dump.is_at_end { HALF } else { NO_HTTP })
        })?;
        let is_about_the_dump = answer.status() == 400;
        let answer = self.answer(answer).map_err(|error| match error {
            CliError::Failed { cause, hint, .. } if is_about_the_dump => CliError::new(name, cause, hint),
            error => error,
        });
        let restored = object_of(answer?).and_then(|answer| {
            let keys = answer["keys"].as_u64()?.try_into().ok()?;
            let evicted = |name| answer[name].as_u64();
            let (evicted_keys, evicted_dump_keys) = (evicted("evicted_keys")?, evicted("evicted_dump_keys")?);
            let sources_ahead = usize::try_from(evicted("sources_ahead").unwrap_or(0)).ok()?;
            Some(Restored { keys, evicted_keys, evicted_dump_keys, sources_ahead })
        });
        restored.ok_or_else(|| {
            CliError::new(&self.address, "its answer cannot be understood", "is it a lately server?")
        })
    }
}

/// The text of an answer, if it is one. It is cut after [`MAX_ANSWER_BYTES`].
pub(crate) fn text_of(answer: impl Read) -> Option<String> {
    let mut text = String::new();
    answer.take(MAX_ANSWER_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn object_of(answer: impl Read) -> Option<Value> {
    serde_json::from_str(&text_of(answer)?).ok()
}

/// The cause of a failed request, in words.
pub(crate) fn cause(error: &ureq::Error) -> String {
    use ErrorKind::{ConnectionReset, UnexpectedEof};
    match error {
        ureq::Error::Protocol(_) => "what listens there does not speak HTTP".to_owned(),
        ureq::Error::Io(error) => match (error.kind(), error.raw_os_error()) {
            (UnexpectedEof, _) | (ConnectionReset, None) => {
                "the connection ended without an answer: does what listens there speak HTTP?".to_owned()
            }
            _ => error.to_string(),
        },
        error => error.to_string(),
    }
}

/// A reader that measures the rate at which it is read, and remembers its end or error.
pub(crate) struct Meter<R> {
    reader: R,
    clock: SystemClock,
    began: Option<Timestamp>,
    bytes: u64,
    is_at_end: bool,
    failed: Option<String>,
}

impl<R> Meter<R> {
    pub(crate) fn new(reader: R) -> Meter<R> {
        let clock = SystemClock::new();
        Meter { reader, clock, began: None, bytes: 0, is_at_end: false, failed: None }
    }

    /// The least rate that this reader missed, in bytes a second, if it was slow for long enough to be disconnected.
    pub(crate) fn too_slow(&self) -> Option<u64> {
        let elapsed_ms = self.clock.now().as_millis() - self.began?.as_millis();
        too_slow(self.bytes, elapsed_ms.max(0).unsigned_abs())
    }
}

fn too_slow(bytes: u64, elapsed_ms: u64) -> Option<u64> {
    let is_below = |rate: u64| bytes.saturating_mul(1_000) < rate.saturating_mul(elapsed_ms);
    let is_long = u128::from(elapsed_ms) >= FAIR_SHARE.as_millis();
    match (is_below(HTTP_LEAST_BYTES), is_below(FAIR_BYTES) && is_long) {
        (true, _) => Some(HTTP_LEAST_BYTES),
        (false, true) => Some(FAIR_BYTES),
        (false, false) => None,
    }
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.began.get_or_insert_with(|| self.clock.now());
        let read = self.reader.read(buffer);
        match &read {
            Ok(count) => {
                self.bytes += *count as u64;
                self.is_at_end |= *count == 0 && !buffer.is_empty();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.failed = Some(error.to_string()),
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_transfer_reports_the_missed_rate() {
        let check = |bytes: u64, elapsed_ms: u64, expected| assert_eq!(too_slow(bytes, elapsed_ms), expected);
        check(319_999, 10_000, Some(32_000));
        check(320_000, 10_000, None);
        check(29_999_999, 30_000, Some(1_000_000));
        check(29_999_999, 29_999, None);
        check(30_000_000, 30_000, None);
    }
}
