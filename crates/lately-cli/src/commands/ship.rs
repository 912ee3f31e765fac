//! `lately ship`: the hits of logs that grow, sent to a server, each line once.

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

/// Send the hits of logs that grow to a server, with their times, each line once.
///
/// A file is followed by its name, through rotation. Every 200 ms, or each 1000 hits, a batch goes to the server, which keeps with the
/// counts how far each file was read: no line is lost or counted twice, over stops and crashes of either side. While the server
/// does not answer it is tried again.
///
/// The server knows a file by its first line with a time, its folder and the name of the machine. So a file may be renamed, copied or
/// compressed while nothing is running: when it is beside the log, with the log's name and a number or a date behind it, the rest of it is
/// sent at the next start. Files that were rotated before the first start are not sent, unless they are named.
///
/// With another --prefix, --key, --where or a --format of your own a log is counted once more, from its start: the hits that it has counted
/// under the old keys stay.
///
/// Hits that are older than the server keeps, or ahead of its clock, are refused; how many is reported at once, and then every minute.
///
/// SIGINT and SIGTERM have it send what it has read and end with exit code 0. JSON has to be an object per line. Standard input and pipes
/// have no positions, and are refused.
#[derive(Args)]
#[command(mut_arg("top", |arg| arg.hide(true)))]
#[command(mut_arg("files", |arg| arg.help("Logs. gzip, zstd, bzip2 and xz are decompressed")))]
pub(crate) struct Ship {
    #[command(flatten)]
    server: ServerArgs,

    /// Put this before each key.
    #[arg(long, value_name = "P", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Send what is in the files and end. A last line without an end is a line.
    #[arg(long)]
    once: bool,

    /// Keep the positions in this file as well. It counts where the server does not know a file: when more than 10,000 files were sent
    /// to it, or counts are in memory only and are not to be sent again after a start of the server. One process at a time has it.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// What tells the logs of this machine from those of others; keep it the same [default: the name of the host].
    #[arg(long, value_name = "NAME")]
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

/// Errors of logs suggest standard input where that is read.
fn without_stdin(error: CliError) -> CliError {
    match error {
        CliError::Failed { what, cause, hint } if hint.contains(" -") => {
            let hint = "give the path of a log that this user may read".to_owned();
            CliError::Failed { what, cause, hint }
        }
        error => error,
    }
}

/// Sends what is in the logs, until the end is asked for, or all that is to be sent once was.
fn send_all(
    logs: &mut [Log<'_>],
    sender: &mut Sender<'_>,
    clock: &SystemClock,
    is_once: bool,
) -> Result<(), CliError> {
    let (mut losses, mut unsaved) = (Losses::default(), None);
    loop {
        // What was there when the end was asked for is sent.
        let is_last = sender.link.is_to_stop();
        let mut all = Round::AtEnd;
        for index in 0..logs.len() {
            let others = logs.iter().enumerate().filter(|(other, _)| *other != index);
            let others: Taken = others.flat_map(|(_, log)| log.taken()).collect();
            match logs[index].round(sender, &others, clock.now()) {
                Ok(Round::AtEnd) => {}
                Ok(Round::More) => all = Round::More,
                Ok(Round::Stopped) => return Ok(()),
                // The other logs go on.
                Err(error) if logs.len() > 1 => {
                    output::error(&error);
                    logs[index].give_up();
                }
                Err(error) => return Err(error),
            }
        }
        match sender.state.save() {
            Err(error) if is_once => return Err(error),
            // The server has the positions, too. It is tried again with the next one.
            saved => {
                let cause = saved.err().map(|error| error.to_string());
                if let Some(cause) = cause.as_ref().filter(|_| unsaved != cause) {
                    output::message(&cause.lines().next().unwrap_or_default());
                }
                unsaved = cause;
            }
        }
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

/// What does not count of logs that are followed.
#[derive(Default)]
struct Losses {
    /// Hits that were refused, those with too long keys, and lines that do not parse, when they were reported last.
    reported: [u64; 3],
    at: Option<Timestamp>,
}

impl Losses {
    /// Reports what was lost since the last report, if that was a while ago.
    fn report(&mut self, sender: &Sender<'_>, logs: &[Log<'_>], now: Timestamp) {
        let malformed = logs.iter().map(Log::malformed_lines).sum();
        let lost = [sender.refused, sender.too_long, malformed];
        let is_early =
            self.at.is_some_and(|at| now.as_millis() - at.as_millis() < SHIP_REPORT_EVERY.as_millis());
        // A file that is read again has its lines once more.
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
