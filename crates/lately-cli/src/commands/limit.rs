//! `lately limit`: asks a server whether a request stays within a limit.

use std::ffi::OsString;
use std::io::{self, Write};
use std::str::FromStr;

use clap::Args;
use lately::{Factor, Span};

use crate::error::{CliError, Outcome};
use crate::numbers;
use crate::output;
use crate::server::{ServerArgs, key_bytes};

/// Decide a request by a rate limit on a server. An allowed request is counted.
///
/// A request is allowed when the key then has at most MAX hits in the window that ends now. The command prints a line
/// with name and value for each of:
///
/// allowed: yes or no. max: the limit. remaining: what is left of it, below 0 after an overdraft. retry_after_ms: milliseconds until the same
/// request would be allowed; 0 when it is allowed, never when it costs more than max. reset_after_ms: milliseconds
/// until all of max is free again.
///
/// Exit code 0: allowed. 1: denied. 2: an error.
#[derive(Args)]
pub(crate) struct Limit {
    /// The key: 1 to 1024 bytes.
    key: OsString,

    /// The most hits in a window; or @ and the name of a limit in the server's config, without WINDOW.
    #[arg(value_name = "MAX|@NAME", allow_negative_numbers = true)]
    rule: Rule,

    /// Length of the window: seconds, or a number with ms, s, m, h, d or w.
    #[arg(allow_negative_numbers = true)]
    window: Option<Span>,

    /// How many hits the request costs. Below 0: give that many hits back, which is always allowed.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = numbers::cost)]
    cost: i64,

    /// Decide only: count nothing and start no lockout.
    #[arg(long)]
    peek: bool,

    /// Allow while there is room for one hit, and count the whole cost: for costs that are known afterwards.
    #[arg(long)]
    overdraft: bool,

    /// If the request is denied, deny all requests of the key for this long: seconds, or a number with ms, s, m, h, d
    /// or w.
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    lockout: Option<Span>,

    /// Multiply each further lockout of the key by this factor, such as 2 or 1.5.
    #[arg(long, value_name = "F", requires = "lockout", allow_negative_numbers = true)]
    lockout_factor: Option<Factor>,

    /// The longest lockout: seconds, or a number with ms, s, m, h, d or w. Default: 1d, or --lockout if that is longer.
    #[arg(long, value_name = "D", requires = "lockout", allow_negative_numbers = true)]
    lockout_max: Option<Span>,

    /// Print an object: key (key_b64 when it is no UTF-8), allowed, max, remaining, retry_after_ms (null for
    /// never), reset_after_ms.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// A limit, by its numbers or its name.
#[derive(Clone)]
enum Rule {
    /// At most `max` hits in the window.
    Max(u64),
    /// A named limit of the server, with its `@`.
    Named(String),
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        match numbers::hits(text) {
            Ok(max) => Ok(Rule::Max(max)),
            Err(_) if text.starts_with('@') && text.len() > 1 => Ok(Rule::Named(text.to_owned())),
            Err(_) => match text.split_once('/') {
                Some((max, window)) if numbers::hits(max).is_ok() && !window.is_empty() => {
                    let window = if window.parse::<Span>().is_ok() { window } else { "1m" };
                    Err(format!("give max and window as two arguments, such as {max} {window}"))
                }
                _ => Err("give a whole number of hits, such as 100, or the name of a limit, such as @login"
                    .to_owned()),
            },
        }
    }
}

/// The answer of the server.
struct Decision {
    allowed: bool,
    max: u64,
    remaining: i64,
    /// `None` is never.
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
}

pub(crate) fn run(limit: &Limit) -> Result<Outcome, CliError> {
    let command = limit.command()?;
    let reply = limit.server.connect()?.ask(&command)?;
    let decision = Decision::read(reply);
    output::data(|out| {
        if limit.json {
            write_json(out, key_bytes(&limit.key), &decision)
        } else {
            write_lines(out, &decision)
        }
    })?;
    Ok(if decision.allowed { Outcome::Done } else { Outcome::Negative })
}

impl Limit {
    fn command(&self) -> Result<redis::Cmd, CliError> {
        let mut command = redis::cmd("LIMIT");
        command.arg(key_bytes(&self.key));
        match (&self.rule, self.window) {
            (Rule::Max(max), Some(window)) => command.arg(max).arg(window.to_string()),
            (Rule::Named(name), None) => command.arg(name),
            (Rule::Max(max), None) => {
                let cause = format!("a max of {max} needs a window");
                return Err(CliError::new("limit", cause, "give KEY MAX WINDOW, such as user:42 100 1m"));
            }
            (Rule::Named(name), Some(_)) => {
                let cause = format!("{name} has a window of its own");
                return Err(CliError::new("limit", cause, format!("give KEY {name}")));
            }
        };
        // Options that were not given are not sent, because a named limit may have its own lockout.
        if self.cost != 1 {
            command.arg("COST").arg(self.cost);
        }
        if self.peek {
            command.arg("PEEK");
        }
        if let Some(lockout) = self.lockout {
            command.arg("LOCKOUT").arg(lockout.to_string());
        }
        if let Some(factor) = self.lockout_factor {
            command.arg("FACTOR").arg(factor.get());
        }
        if let Some(longest) = self.lockout_max {
            command.arg("MAX").arg(longest.to_string());
        }
        if self.overdraft {
            command.arg("OVERDRAFT");
        }
        Ok(command)
    }
}

impl Decision {
    /// Decodes the five integers of the reply. A negative wait means never.
    fn read((allowed, max, remaining, retry_after_ms, reset_after_ms): (u8, u64, i64, i64, u64)) -> Decision {
        let retry_after_ms = u64::try_from(retry_after_ms).ok();
        Decision { allowed: allowed == 1, max, remaining, retry_after_ms, reset_after_ms }
    }
}

fn write_json(out: &mut dyn Write, key: &[u8], decision: &Decision) -> io::Result<()> {
    let Decision { allowed, max, remaining, retry_after_ms, reset_after_ms } = decision;
    let key = output::key_member(key);
    let retry = retry_after_ms.map_or("null".to_owned(), |wait_ms| wait_ms.to_string());
    write!(out, "{{{key},\"allowed\":{allowed},\"max\":{max},\"remaining\":{remaining},")?;
    writeln!(out, "\"retry_after_ms\":{retry},\"reset_after_ms\":{reset_after_ms}}}")
}

fn write_lines(out: &mut dyn Write, decision: &Decision) -> io::Result<()> {
    let Decision { allowed, max, remaining, retry_after_ms, reset_after_ms } = decision;
    writeln!(out, "allowed         {}", if *allowed { "yes" } else { "no" })?;
    writeln!(out, "max             {max}")?;
    writeln!(out, "remaining       {remaining}")?;
    match retry_after_ms {
        Some(wait_ms) => writeln!(out, "retry_after_ms  {wait_ms}")?,
        None => writeln!(out, "retry_after_ms  never")?,
    }
    writeln!(out, "reset_after_ms  {reset_after_ms}")
}
