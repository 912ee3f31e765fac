//! `lately health`: whether a server is ready.

use clap::Args;
use ureq::Agent;

use crate::error::{CliError, Outcome};
use crate::http::cause;
use crate::limits::SERVER_TIMEOUT;
use crate::output;
use crate::server::check_http;
use crate::table::harmless;

/// Ask a server whether it is ready.
///
/// Prints what GET /readyz returns. Exit code 0: ready. 1: not ready, because counts are being loaded. 2: no
/// answer.
///
/// Health checks of containers can use it, because it needs nothing but the binary.
#[derive(Args)]
pub(crate) struct Health {
    /// Address of the server's HTTP listener, or of its listener for health and metrics, which has no TLS.
    #[arg(
        long,
        value_name = "ADDR",
        env = "LATELY_HTTP",
        hide_env_values = true,
        default_value = "127.0.0.1:7380"
    )]
    http: String,
}

pub(crate) fn run(health: &Health) -> Result<Outcome, CliError> {
    check_http(&health.http)?;
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(SERVER_TIMEOUT))
        .build()
        .into();
    let failed = |error: ureq::Error| {
        let hint = match error {
            ureq::Error::Protocol(_) => "with TLS, name the listener of metrics: that has none",
            _ => "--http names the HTTP listener of a running server",
        };
        CliError::new(&health.http, cause(&error), hint)
    };
    let mut answer = agent.get(format!("http://{}/readyz", health.http)).call().map_err(failed)?;
    let text = answer.body_mut().read_to_string().map_err(failed)?;
    let outcome = match answer.status().as_u16() {
        200 => Outcome::Done,
        503 => Outcome::Negative,
        status => {
            let cause = format!("GET /readyz has status {status}");
            return Err(CliError::new(&health.http, cause, "is it a lately server?"));
        }
    };
    output::data(|out| writeln!(out, "{}", harmless(text.trim_end())))?;
    Ok(outcome)
}
