//! `lately ship`: sends the hits of growing logs to a server, each line once.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use clap::Args;
use lately::{Clock, SystemClock, Timestamp};
use lately_logs::Template;

use crate::error::{CliError, Outcome};
use crate::limits::{SHIP_EVERY, SHIP_REPORT_EVERY, WAITING_EVENTS};
use crate::live::event;
use crate::log_args::{LogArgs, setup_hint};
use crate::log_file;
use crate::output;
use crate::server::ServerArgs;
use crate::ship::link::Link;
use crate::ship::log::{How, Log, Round, Taken};
use crate::ship::name::Names;
use crate::ship::sender::Sender;
use crate::ship::state::State;

/// Send the hits of growing logs to a server, with their times, each line once.
///
/// Files are followed by name, through rotations. Every 200 ms, or every 1000 hits, a batch goes to the server. With the counts, the
/// server keeps the position up to which each file was read: no line is lost or counted twice, over stops and crashes of either side.
/// If the server does not answer, ship retries.
///
/// The server knows a file by its first line with a time, its folder and the name of the machine. A file may be renamed, copied or
/// compressed while ship is not running: the next start sends the rest of it, if it is in the folder of the log and has the log's name
/// followed by a number or a date. Files that were rotated before the first start are not sent, unless they are named.
///
/// With another --prefix, --key or --where, or a --format with its own fields, a log is counted again from its start. Hits that were
/// counted under the old keys stay.
///
/// Hits that are older than the server keeps, or ahead of its clock, are refused. Their number is reported at once, and then every
/// minute.
///
/// On SIGINT and SIGTERM it sends the lines that it has read, and ends with exit code 0. JSON must be one object per line. Standard
/// input and pipes have no positions, and are refused.
#[derive(Args)]
#[command(mut_arg("top", |arg| arg.hide(true)))]
#[command(mut_arg("files", |arg| arg.help("Logs. gzip, zstd, bzip2 and xz are decompressed")))]
pub(crate) struct Ship {
    #[command(flatten)]
    server: ServerArgs,

    /// Put this before each key.
    #[arg(long, value_name = "P", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Send the current lines of the files and end. A last line without a line end counts as a line.
    #[arg(long)]
    once: bool,

    /// Keep the positions in this file, too. They are used if the server does not know a file: because more than 10,000 files were
    /// sent to it, or because it was restarted and keeps counts in memory only. Only one process at a time can use the file.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// A name that distinguishes the logs of this machine from those of others; do not change it [default: the host name].
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    machine: Option<String>,

    #[command(flatten)]
    logs: LogArgs,
}

pub(crate) fn run(ship: &Ship) -> Result<Outcome, CliError> {
    if ship.logs.names_top() {
        return Err(CliError::new(
            "command line",
            "--top does not go with ship: it prints no rows",
            "leave it out",
        ));
    }
    let options = ship.logs.options(&Template::default())?;
    options.check().map_err(|error| CliError::new("ship", error, setup_hint("ship")))?;
    let check = if ship.once { log_file::check } else { log_file::check_followed };
    check(ship.logs.files()).map_err(without_stdin)?;
    if let Some(pipe) = ship.logs.files().iter().find(|path| log_file::is_pipe(path)) {
        let hint = "write it to a file and name that; lately hit and INGEST count without one";
        return Err(CliError::new(log_file::name(pipe), "a pipe has no positions to go on from", hint));
    }
    let machine = ship
        .machine
        .clone()
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let counted = [vec![ship.prefix.clone()], ship.logs.counted(&Template::default())].concat();
    let (names, clock) = (Names::new(machine, counted), SystemClock::new());
    let has_own_times = ship.logs.has_own_times();
    let how = How { options: &options, names: &names, has_own_times, is_once: ship.once };
    let state = State::open(ship.state.as_deref())?;
    let (signals, events) = sync_channel(WAITING_EVENTS);
    let stop = event::catch_signals(&signals)
        .map_err(|error| CliError::new("ship", error, "signals cannot be caught"))?;
    let mut sender = Sender::new(Link::new(&ship.server, events, stop), state, &ship.prefix);
    let (files, _) = log_file::once(ship.logs.files(), |_| true);
    let mut logs: Vec<Log<'_>> = files.iter().map(|path| Log::new(path, how, clock.now())).collect();
    let sent = send_all(&mut logs, &mut sender, &clock, ship.once);
    sender.state.save()?;
    sent?;
    report(&sender);
    if !sender.state.is_kept() && logs.iter().any(Log::was_never_answered) {
        output::message(
            &"lately: ship: no server has answered: if this was the first start, the next one sends no file that is rotated by then; with --state it does",
        );
    }
    let failed = logs.iter().filter(|log| log.has_failed()).count();
    let mut read = ship.logs.reading("ship");
    for log in logs {
        let path = log.path();
        log.scanned().for_each(|scanned| read.add(path, scanned));
    }
    let outcome = read.outcome()?;
    if failed > 0 {
        let cause = format!("{failed} of {} logs were not read to their end", files.len());
        return Err(CliError::new("ship", cause, "the messages before say why"));
    }
    Ok(outcome)
}

/// Replaces a hint that suggests standard input, which `ship` does not read.
fn without_stdin(error: CliError) -> CliError {
    match error {
        CliError::Failed { what, cause, hint } if hint.contains(" -") => {
            let hint = "give the path of a log that this user may read".to_owned();
            CliError::Failed { what, cause, hint }
        }
        error => error,
    }
}

/// Sends the lines of the logs until a signal, or with `--once` until everything was sent.
fn send_all(
    logs: &mut [Log<'_>],
    sender: &mut Sender<'_>,
    clock: &SystemClock,
    is_once: bool,
) -> Result<(), CliError> {
    let (mut losses, mut unsaved) = (Losses::default(), None);
    logs.iter().for_each(|log| log.set_start(&mut sender.state));
    save(&mut sender.state, &mut unsaved, is_once)?;
    loop {
        // After a signal there is one more round, for the lines that are already there.
        let is_last = sender.link.is_to_stop();
        let mut all = Round::AtEnd;
        for index in 0..logs.len() {
            let others = logs.iter().enumerate().filter(|(other, _)| *other != index);
            let others: Taken = others.flat_map(|(_, log)| log.taken()).collect();
            match logs[index].round(sender, &others, clock.now()) {
                Ok(Round::AtEnd) => {}
                Ok(Round::More) => all = Round::More,
                Ok(Round::Stopped) => return Ok(()),
                // The other logs continue.
                Err(error) if logs.len() > 1 => {
                    output::error(&error);
                    logs[index].give_up();
                }
                Err(error) => return Err(error),
            }
        }
        save(&mut sender.state, &mut unsaved, is_once)?;
        if !is_once {
            losses.report(sender, logs, clock.now());
        }
        if logs.iter().all(Log::has_failed) {
            return Ok(());
        }
        let is_done = is_once && logs.iter().all(Log::is_done);
        if is_done || is_last {
            return Ok(());
        }
        if all == Round::AtEnd {
            sender.link.pause(SHIP_EVERY);
        }
    }
}

/// Saves the positions. Without `--once` an error is no end: the server has the positions, too, and the next round tries again. It is reported
/// once while it lasts; `unsaved` is the last one.
fn save(state: &mut State, unsaved: &mut Option<String>, is_once: bool) -> Result<(), CliError> {
    let cause = match state.save() {
        Err(error) if is_once => return Err(error),
        saved => saved.err().map(|error| error.to_string()),
    };
    if let Some(cause) = cause.as_ref().filter(|_| *unsaved != cause) {
        output::message(&cause.lines().next().unwrap_or_default());
    }
    *unsaved = cause;
    Ok(())
}

/// The lines and hits of followed logs that do not count.
#[derive(Default)]
struct Losses {
    /// Refused hits, hits with too long keys, and lines that do not parse, as of the last report.
    reported: [u64; 3],
    at: Option<Timestamp>,
}

impl Losses {
    /// Reports losses since the last report, if that was a while ago.
    fn report(&mut self, sender: &Sender<'_>, logs: &[Log<'_>], now: Timestamp) {
        let malformed = logs.iter().map(Log::malformed_lines).sum();
        let lost = [sender.refused, sender.too_long, malformed];
        let is_early =
            self.at.is_some_and(|at| now.as_millis() - at.as_millis() < SHIP_REPORT_EVERY.as_millis());
        // When a file is read again, its lines are counted anew, so a number may fall.
        let [refused, too_long, malformed] =
            std::array::from_fn(|kind| lost[kind].saturating_sub(self.reported[kind]));
        if is_early || refused + too_long + malformed == 0 {
            return;
        }
        report_refused(refused, too_long);
        if malformed > 0 {
            let lines = if malformed == 1 { "line does" } else { "lines do" };
            output::message(&format_args!("lately: ship: {malformed} {lines} not parse"));
        }
        (self.reported, self.at) = (lost, Some(now));
    }
}

fn report(sender: &Sender<'_>) {
    let &Sender { accepted, refused, too_long, .. } = sender;
    output::message(&format_args!("lately: ship: {} counted", hits(accepted)));
    report_refused(refused, too_long);
}

fn report_refused(refused: u64, too_long: u64) {
    if refused > 0 {
        let why = "older than the server keeps, or ahead of its clock";
        output::message(&format_args!("lately: ship: {} refused: {why}", hits(refused)));
    }
    if too_long > 0 {
        let why = "with the prefix the key is longer than 1024 bytes";
        output::message(&format_args!("lately: ship: {} not sent: {why}", hits(too_long)));
    }
}

fn hits(count: u64) -> String {
    format!("{count} {}", if count == 1 { "hit" } else { "hits" })
}
