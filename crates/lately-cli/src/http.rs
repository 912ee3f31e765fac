//! The HTTP side of a running server.

use std::io::{ErrorKind, Read};

use lately_server::{RUN_ID_HEADER, Restored};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body, SendBody};

use crate::error::CliError;

/// A server's HTTP listener.
pub(crate) struct Http {
    address: String,
    /// Which server is meant.
    run_id: String,
    agent: Agent,
}

const NO_HTTP: &str = "does the server listen for HTTP there? --http names another address";
/// The connection ended before there was an answer.
const HALF: &str = "some of the keys may be there: restore the dump again with --replace";

impl Http {
    pub(crate) fn new(address: String, run_id: String) -> Http {
        // What a server says is wrong is in the body of its answer.
        let agent = Agent::config_builder().http_status_as_error(false).build().into();
        Http { address, run_id, agent }
    }

    /// The body of an answer, or what it says is wrong.
    fn answer(&self, answer: Response<Body>) -> Result<impl Read + use<>, CliError> {
        let status = answer.status();
        let mut body = answer.into_body().into_reader();
        if status.is_success() {
            return Ok(body);
        }
        let mut text = String::new();
        let _ = body.read_to_string(&mut text);
        let said = serde_json::from_str::<Value>(&text).ok();
        let detail = said.as_ref().and_then(|problem| problem["detail"].as_str());
        let hint = match status.as_u16() {
            403 => "run it on the machine of the server, or give the near end of an SSH tunnel with --http",
            404 => "the server is of another version",
            409 => "say --replace if that is meant",
            421 => "give the address of its HTTP listener with --http",
            503 => "try again later",
            _ => "nothing was changed",
        };
        Err(CliError::new(&self.address, detail.unwrap_or(status.as_str()), hint))
    }

    /// What there is at a path.
    pub(crate) fn get(&self, path: &str) -> Result<impl Read + use<>, CliError> {
        let answer =
            self.agent.get(format!("http://{}{path}", self.address)).header(RUN_ID_HEADER, &self.run_id);
        self.answer(answer.call().map_err(|error| CliError::new(&self.address, error, NO_HTTP))?)
    }

    /// Sends a dump; gives what came of it.
    pub(crate) fn restore(&self, dump: &mut impl Read, replace: bool) -> Result<Restored, CliError> {
        let url = format!("http://{}/v1/restore?replace={replace}", self.address);
        // A server that refuses does so before any of it is sent.
        let request =
            self.agent.post(url).header(RUN_ID_HEADER, &self.run_id).header("expect", "100-continue");
        let request = request.content_type("application/vnd.lately.dump");
        let answer = request.send(SendBody::from_reader(dump));
        let answer = answer.map_err(|error| {
            let is_unknown = !matches!(error, ureq::Error::ConnectionFailed | ureq::Error::HostNotFound)
                && !matches!(&error, ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused);
            CliError::new(&self.address, error, if is_unknown { HALF } else { NO_HTTP })
        })?;
        let mut text = String::new();
        let read = self.answer(answer)?.read_to_string(&mut text);
        let restored = serde_json::from_str::<Value>(&text).ok().and_then(|answer| {
            let keys = answer["keys"].as_u64()?.try_into().ok()?;
            Some(Restored { keys, evicted_keys: answer["evicted_keys"].as_u64()? })
        });
        restored.filter(|_| read.is_ok()).ok_or_else(|| {
            CliError::new(&self.address, "it gave no answer that makes sense", "is it a lately server?")
        })
    }
}
