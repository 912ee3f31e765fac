//! `lately hit`: counts hits on a server.

use std::ffi::OsString;

use clap::Args;
use lately::Timestamp;

use crate::error::{CliError, Outcome};
use crate::numbers;
use crate::output;
use crate::server::{ServerArgs, key_bytes};

/// Count hits of a key on a server, and print its hits in the default window.
#[derive(Args)]
pub(crate) struct Hit {
    /// The key: 1 to 1024 bytes.
    key: OsString,

    /// How many hits.
    #[arg(value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = numbers::hits)]
    count: u64,

    /// When the hits happened, in Unix seconds [default: now].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    at: Option<Timestamp>,

    /// The id of the hits: hits of the key with the same id count once within the `dedupe` of its class.
    #[arg(long, value_name = "ID")]
    id: Option<OsString>,

    /// Whose hits they are: the distinct members of the key are counted if its class has `unique`.
    #[arg(long, value_name = "MEMBER")]
    member: Option<OsString>,

    /// Print an object: key (key_b64 when it is no UTF-8) and hits.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(hit: &Hit) -> Result<Outcome, CliError> {
    let mut command = redis::cmd("HIT");
    command.arg(key_bytes(&hit.key)).arg(hit.count);
    if let Some(at) = hit.at {
        command.arg("AT").arg(at.to_string());
    }
    if let Some(id) = &hit.id {
        command.arg("ID").arg(key_bytes(id));
    }
    if let Some(member) = &hit.member {
        command.arg("MEMBER").arg(key_bytes(member));
    }
    let hits: u64 = hit.server.connect()?.ask(&command)?;
    output::data(|out| {
        if hit.json {
            writeln!(out, "{{{},\"hits\":{hits}}}", output::key_member(key_bytes(&hit.key)))
        } else {
            writeln!(out, "{hits}")
        }
    })?;
    Ok(Outcome::Done)
}
