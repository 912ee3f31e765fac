//! `lately backtest`: replays a log against limits, or against an alert.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use lately::{Factor, Lockout, LockoutError, Span};
use lately_logs::{Backtest, Exempt, Limit, Prefix, Replay, Template, Verdict};
use lately_server::Config;
use lately_server::alerts::{AlertReplay, Fired};

use crate::error::{CliError, Outcome};
use crate::log_args::LogArgs;
use crate::output;
use crate::table;

/// Replay a log against limits: which keys would have been denied, and when first. Or against an alert: when it would have
/// started and ended.
///
/// Each line is a request. Requests are decided in the order of their times; at the same time, in the order of the
/// lines. A request is allowed when every --limit has room: fewer than MAX requests of its key were allowed in the
/// WINDOW before it. Windows are exact to the millisecond. Denied requests do not count.
///
/// It prints for each key the denied requests, the allowed requests, and the time of the first denial. Rows are sorted
/// by denied, then allowed, most first, then by key. Keys without a denial are included. Tables have times in UTC, and
/// escape unprintable bytes of keys. The totals go to standard error.
///
/// With --alert and --config, each line is a hit, and the alert of that name in the config is evaluated at the end of
/// each 100 ms of the log, until its last line. It prints each start, the end (none if it fires at the end of the log), the hits in the
/// window at the start, the most until the end, and the keys with the most hits at the start. --key makes keys that the alert's match
/// matches, such as --key 'endpoint:{path}'.
///
/// Lines that do not parse are skipped. Their number, the reasons, and the first line of each reason go to standard
/// error. If no line parses, that is an error.
#[derive(Args)]
#[command(group(ArgGroup::new("rule").required(true).multiple(true)))]
pub(crate) struct BacktestArgs {
    /// The most requests of a key in any window, such as 100/1m or 5/s. May be repeated: then all limits must allow a
    /// request. MAX may be 0. WINDOW: seconds, or a number with ms, s, m, h, d or w, or a unit alone.
    #[arg(long = "limit", group = "rule", value_name = "MAX/WINDOW", allow_negative_numbers = true)]
    limits: Vec<Limit>,

    /// After a denial, deny all requests of the key for this long: seconds, or a number with ms, s, m, h, d or w.
    /// Denials during a lockout do not extend it.
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    lockout: Option<Span>,

    /// Multiply each further lockout of a key by this factor, such as 2 or 1.5.
    #[arg(
        long,
        value_name = "FACTOR",
        requires = "lockout",
        allow_negative_numbers = true,
        default_value = "1"
    )]
    escalate: Factor,

    /// The longest lockout: seconds, or a number with ms, s, m, h, d or w. Default: 1d, or --lockout if that is longer. A key
    /// that was not locked out for that long starts again with --lockout.
    #[arg(long, value_name = "D", requires = "lockout", allow_negative_numbers = true)]
    lockout_max: Option<Span>,

    /// Never deny keys with an address in this network, such as 10.0.0.0/8, or keys that match this pattern, such as
    /// 'login:monitor*'. May be repeated. If a key has several fields, its address is the field with a prefix, such as
    /// {client/32/128}, or else ip, client, peer, remote_addr and the like.
    #[arg(long, value_name = "CIDR|PATTERN")]
    exempt: Vec<Exempt>,

    /// Replay the alert of this name in --config.
    #[arg(long, value_name = "NAME", group = "rule", requires = "config", conflicts_with_all = ["limits", "lockout", "exempt"])]
    alert: Option<String>,

    /// The config file with the alert.
    #[arg(long, value_name = "FILE", requires = "alert", conflicts_with = "limits")]
    config: Option<PathBuf>,

    #[command(flatten)]
    logs: LogArgs,

    /// Print a JSON object per line: key (key_b64 when it is no UTF-8), allowed, denied, first_denied_at (null without
    /// a denial). With --alert: started_at, ended_at (null if it fires at the end), hits, baseline (null without one), peak, keys.
    #[arg(long)]
    json: bool,

    /// Print comma-separated values with a header, with the same fields as --json. first_denied_at is empty without a
    /// denial. Keys are not escaped.
    #[arg(long, conflicts_with_all = ["json", "alert"])]
    csv: bool,
}

pub(crate) fn run(args: &BacktestArgs) -> Result<Outcome, CliError> {
    if let (Some(name), Some(config)) = (&args.alert, &args.config) {
        return run_alert(args, name, config);
    }
    let refused = |error| CliError::new("--limit", error, "see lately backtest --help");
    let lockout = args.lockout.map(|first| Lockout::growing(first, args.escalate, args.lockout_max));
    let lockout = lockout.transpose().map_err(|error| {
        let cause = match error {
            LockoutError::Longest { first, longest } => {
                format!("--lockout {first} is longer than --lockout-max {longest}")
            }
            error => error.to_string(),
        };
        let hint = "--lockout-max is the longest of the lockouts, the first is --lockout";
        CliError::new("command line", cause, hint)
    })?;
    let mut backtest = Backtest::new(&args.limits, lockout, &args.exempt).map_err(refused)?;
    let key = args.logs.key().cloned().unwrap_or_default();
    let whole = Prefix::new(32, 128).expect("the lengths of addresses");
    for exempt in &args.exempt {
        exempt
            .check(&key, whole)
            .map_err(|error| CliError::new("--exempt", error, "see lately backtest --help"))?;
    }
    let mut read = args.logs.read("backtest", &Template::default(), |record| backtest.request(record))?;
    read.check_some()?;
    if backtest.lacks_addresses() {
        let cause = "no key has an address: the networks exempt nothing";
        return Err(CliError::new(
            "--exempt",
            cause,
            "exempt keys by a pattern, or count by an address, such as --key ip",
        ));
    }
    let replay = backtest.replay(args.logs.top());
    let verdicts = &replay.verdicts;
    output::data(|out| {
        if args.json {
            write_json(out, verdicts)
        } else if args.csv {
            write_csv(out, verdicts)
        } else {
            write_table(out, verdicts)
        }
    })?;
    output::message(&Summary { replay: &replay, has_lockout: args.lockout.is_some() });
    read.outcome()
}

/// Replays an alert of a config.
fn run_alert(args: &BacktestArgs, name: &str, config: &Path) -> Result<Outcome, CliError> {
    let config = Config::load(config).map_err(|error| CliError::new("config", error, "see lately check"))?;
    let names: Vec<&str> = config.alerts.iter().map(|alert| alert.rule.name.as_str()).collect();
    let Some(alert) = config.alerts.iter().find(|alert| alert.rule.name == *name) else {
        let there_are = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let cause = format!("no alert is named '{name}': the config has {there_are}");
        return Err(CliError::new("--alert", cause, "give the name of an [[alert]]"));
    };
    let mut replay = AlertReplay::new(alert.rule.clone());
    let mut read =
        args.logs.read("backtest", &Template::default(), |record| replay.hit(record.key, record.at))?;
    read.check_some()?;
    let (hits, others) = replay.counts();
    let mut fired = replay.run().map_err(|error| CliError::new("backtest", error, "please report it"))?;
    let starts = fired.len();
    fired.truncate(args.logs.top().unwrap_or(usize::MAX));
    output::data(|out| if args.json { write_fired_json(out, &fired) } else { write_fired(out, &fired) })?;
    let s = |count: u64| if count == 1 { "" } else { "s" };
    let pattern = table::printable(alert.rule.pattern.as_bytes());
    output::message(&format_args!(
        "lately: backtest: alert {name} starts {starts} time{}: {hits} hit{} of {pattern}, {others} of other keys",
        s(starts as u64),
        s(hits)
    ));
    read.outcome()
}

fn write_fired_json(out: &mut dyn Write, fired: &[Fired]) -> io::Result<()> {
    for Fired { started, ended, hits, baseline, peak, keys } in fired {
        let key = |(key, hits, share): &(Box<[u8]>, u64, f64)| {
            format!("{{{},\"hits\":{hits},\"share\":{share}}}", output::key_member(key))
        };
        let keys: Vec<String> = keys.iter().map(key).collect();
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
        let (ended, baseline) =
            (or_null(ended.map(|at| at.to_string())), or_null(baseline.map(|it| it.to_string())));
        writeln!(
            out,
            "{{\"started_at\":{started},\"ended_at\":{ended},\"hits\":{hits},\"baseline\":{baseline},\"peak\":{peak},\"keys\":[{}]}}",
            keys.join(",")
        )?;
    }
    Ok(())
}

fn write_fired(out: &mut dyn Write, fired: &[Fired]) -> io::Result<()> {
    if fired.is_empty() {
        return Ok(());
    }
    let cells = |fired: &Fired| {
        let key = |(key, _, share): &(Box<[u8]>, u64, f64)| {
            format!("{} {:.0} %", table::printable(key), share * 100.0)
        };
        let keys: Vec<String> = fired.keys.iter().map(key).collect();
        let ended = fired.ended.map_or("-".to_owned(), table::utc);
        [table::utc(fired.started), ended, fired.hits.to_string(), fired.peak.to_string(), keys.join(", ")]
    };
    let cells: Vec<_> = fired.iter().map(cells).collect();
    table::write(out, ["STARTED (UTC)", "ENDED (UTC)", "HITS", "PEAK", "MOST BY"], &cells)
}

fn write_json(out: &mut dyn Write, verdicts: &[Verdict]) -> io::Result<()> {
    for Verdict { key, allowed, denied, first_denied_at } in verdicts {
        let key = output::key_member(key);
        let first = first_denied_at.map_or("null".to_owned(), |at| at.to_string());
        writeln!(out, "{{{key},\"allowed\":{allowed},\"denied\":{denied},\"first_denied_at\":{first}}}")?;
    }
    Ok(())
}

fn write_csv(out: &mut dyn Write, verdicts: &[Verdict]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["key", "allowed", "denied", "first_denied_at"])?;
    for Verdict { key, allowed, denied, first_denied_at } in verdicts {
        let first = first_denied_at.map_or(String::new(), |at| at.to_string());
        let others = [allowed.to_string(), denied.to_string(), first];
        csv.write_record(std::iter::once(&key[..]).chain(others.iter().map(String::as_bytes)))?;
    }
    csv.flush()
}

fn write_table(out: &mut dyn Write, verdicts: &[Verdict]) -> io::Result<()> {
    if verdicts.is_empty() {
        return Ok(());
    }
    let cells = |verdict: &Verdict| {
        let first = verdict.first_denied_at.map_or("-".to_owned(), table::utc);
        let key = table::printable(&verdict.key);
        [verdict.denied.to_string(), verdict.allowed.to_string(), first, key]
    };
    let cells: Vec<_> = verdicts.iter().map(cells).collect();
    table::write(out, ["DENIED", "ALLOWED", "FIRST DENIED (UTC)", "KEY"], &cells)
}

/// The totals, as a sentence.
struct Summary<'a> {
    replay: &'a Replay,
    has_lockout: bool,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replay { requests, denied, keys, denied_keys, lockouts, .. } = self.replay;
        let s = |count: u64| if count == 1 { "" } else { "s" };
        write!(f, "lately: backtest: {denied} of {requests} request{} and ", s(*requests))?;
        write!(f, "{denied_keys} of {} would have been denied", output::keys(*keys))?;
        if self.has_lockout {
            write!(f, ", with {lockouts} lockout{}", s(*lockouts))?;
        }
        Ok(())
    }
}
