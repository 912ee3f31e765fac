//! `lately bench`: puts load on a server and checks its counts.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lately::Span;
use lately_load::{Checked, Counted, Counts, Ending, LoadError, Login, Order, Plan, Report, Request, Word};

use crate::error::{CliError, Outcome};
use crate::numbers;
use crate::output;
use crate::server::ServerArgs;

/// Put load on a server: print throughput and latency, and check the count of every key.
///
/// It hits the keys key:000000000000 and up; no other client may hit them meanwhile. Latency is measured per batch of
/// --pipeline requests, from sending to the last reply. With --rate it is measured from the time at which the batch was
/// due, even if it was sent later. Exit code 1: a count was wrong, or a reply was an error.
#[derive(Args)]
pub(crate) struct Bench {
    /// The command to send: hit, hits (reads only) or incr (for a Redis server).
    #[arg(long, value_enum, default_value_t = Load::Hit)]
    command: Load,

    /// The window that hits reads [default: the default window of the key's class].
    #[arg(long, value_name = "W")]
    window: Option<Span>,

    /// Requests a connection sends before it waits for their replies: 1 to 10,000.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = numbers::whole::<usize>)]
    pipeline: usize,

    /// Connections: 1 to 10,000.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 50, value_parser = numbers::whole::<usize>)]
    clients: usize,

    /// Distinct keys: 1 (a single hot key) to 100,000,000. The counts of all are read before and after.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1_000_000, value_parser = numbers::whole::<u64>)]
    keys: u64,

    /// The order of the keys.
    #[arg(long, value_enum, default_value_t = KeyOrder::Permuted)]
    order: KeyOrder,

    /// Draw keys by Zipf's law: the key of rank r comes r^S times less often than the first. 0 to 10.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = numbers::fraction, conflicts_with = "order")]
    zipf: Option<f64>,

    /// How many seconds to send: 0.001 to 86,400.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value = "5", value_parser = numbers::seconds)]
    seconds: Duration,

    /// Requests a second over all connections, sent on schedule [default: as many as the server answers].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::whole::<u64>)]
    rate: Option<u64>,

    /// Print a JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    Hit,
    Hits,
    Incr,
}

#[derive(Clone, Copy, ValueEnum)]
enum KeyOrder {
    /// In a mixed order. A key is repeated only after all others.
    Permuted,
    /// In the order of their numbers.
    Sequential,
    /// At random, all with the same probability.
    Uniform,
}

pub(crate) fn run(bench: &Bench) -> Result<Outcome, CliError> {
    if bench.window.is_some() && bench.command != Load::Hits {
        return Err(CliError::new("--window", "only hits asks for a window", "add --command hits"));
    }
    // Bounds first: they need no server.
    let unconnected = bench.plan(SocketAddr::from(([127, 0, 0, 1], 0)));
    unconnected.check().map_err(|error| CliError::new("bench", error, "see lately bench --help"))?;
    let (address, login) = bench.server.resolve()?;
    let login = login.map(|(user, password)| Login { user, password });
    let plan = Plan { address, login, ..unconnected };
    let incr = bench.command == Load::Incr;
    let how = if incr { Counted::Values } else { Counted::Hits };
    let before = Counts::read(&plan, how).map_err(|error| failure(&plan, incr, &error))?;
    let report = lately_load::run(&plan).map_err(|error| failure(&plan, incr, &error))?;
    let after = Counts::read(&plan, how).map_err(|error| failure(&plan, incr, &error))?;
    let checked = after.check(&before, &plan, if bench.command == Load::Hits { 0 } else { report.requests });
    output::data(|out| {
        if bench.json {
            write_json(out, &report, &checked)
        } else {
            write_lines(out, bench, &report, &checked)
        }
    })?;
    Ok(verdict(&report, &checked))
}

impl Bench {
    fn plan(&self, address: SocketAddr) -> Plan {
        let fixed = |text: &str| Word::Fixed(text.as_bytes().to_vec());
        let name = match self.command {
            Load::Hit => "HIT",
            Load::Hits => "HITS",
            Load::Incr => "INCR",
        };
        let mut words = vec![fixed(name), Word::Key(b"key:".to_vec())];
        words.extend(self.window.map(|window| fixed(&window.to_string())));
        let order = match (self.zipf, self.order) {
            (Some(exponent), _) => Order::Zipf(exponent),
            (None, KeyOrder::Permuted) => Order::Permuted,
            (None, KeyOrder::Sequential) => Order::Sequential,
            (None, KeyOrder::Uniform) => Order::Uniform,
        };
        Plan {
            keys: self.keys,
            order,
            clients: self.clients,
            pipeline: self.pipeline,
            ending: Ending::After(self.seconds),
            rate: self.rate,
            ..Plan::new(address, Request::new(&words))
        }
    }
}

fn failure(plan: &Plan, incr: bool, error: &LoadError) -> CliError {
    let hint = match error {
        LoadError::Connect { .. } => "are there as many connections as the server and ulimit -n allow?",
        LoadError::Login { .. } => "check --user and --password-file",
        LoadError::Counts(error) if error.code() == Some("NOPERM") => {
            "log in as a user with the verbs read and hit, and the keys key:*"
        }
        LoadError::Counts(_) if incr => "is it a Redis server? lately takes --command hit",
        LoadError::Counts(_) => "is it a lately server? Redis takes --command incr",
        _ => "the counts were not checked",
    };
    CliError::new(plan.address.to_string(), error, hint)
}

/// Logs error replies and wrong counts.
fn verdict(report: &Report, checked: &Checked) -> Outcome {
    if let Some(first) = &report.first_error {
        output::message(&format_args!("lately: bench: {} error replies, such as: {first}", report.errors));
    }
    if let Some((key, sent, counted)) = &checked.first_wrong {
        output::message(&format_args!(
            "lately: bench: {} keys have another count than they were sent: {key} was sent {sent}, and has {counted}",
            checked.wrong_keys
        ));
        output::message(&"hint: does another client hit these keys, or does the server evict keys?");
    }
    if report.errors == 0 && checked.holds() { Outcome::Done } else { Outcome::Negative }
}

/// Quantiles of the latency, and their names.
const SHARES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("worst", 1.0)];

fn write_lines(out: &mut dyn Write, bench: &Bench, report: &Report, checked: &Checked) -> io::Result<()> {
    let Bench { clients, pipeline, .. } = bench;
    let (requests, seconds) = (report.requests, report.elapsed.as_secs_f64());
    writeln!(out, "requests    {requests} in {seconds:.2} s, {clients} connections, {pipeline} at a time")?;
    writeln!(out, "throughput  {:.0} a second", report.per_second())?;
    let latency: Vec<String> =
        SHARES.iter().map(|(name, share)| format!("{name} {:.3} ms", milliseconds(report, *share))).collect();
    writeln!(out, "latency     {}", latency.join(", "))?;
    writeln!(out, "errors      {}", report.errors)?;
    let verdict = match (checked.holds(), bench.command) {
        (false, _) => "not as sent",
        (true, Load::Hits) => "as before",
        (true, _) => "each key as sent",
    };
    writeln!(out, "counts      {} of {} hits, {verdict}", checked.counted, checked.sent)
}

fn write_json(out: &mut dyn Write, report: &Report, checked: &Checked) -> io::Result<()> {
    let mut object = serde_json::json!({
        "requests": report.requests,
        "seconds": report.elapsed.as_secs_f64(),
        "per_second": report.per_second(),
        "errors": report.errors,
        "sent": checked.sent,
        "counted": checked.counted,
        "wrong_keys": checked.wrong_keys,
    });
    for (name, share) in SHARES {
        object[format!("{}_ms", name.replace('.', "_"))] = milliseconds(report, share).into();
    }
    writeln!(out, "{object}")
}

/// Rounds to the microsecond.
fn milliseconds(report: &Report, share: f64) -> f64 {
    (report.latency(share).as_secs_f64() * 1e6).round() / 1e3
}
