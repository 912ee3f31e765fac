//! `lately top`: the busiest keys of growing logs, or of a server, live.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use clap::{Arg, Args};
use lately::{Clock, DEFAULT_WINDOW, Span, SystemClock, Timestamp, minutes, seconds};
use lately_logs::{Options, ScanError, Template};
use ratatui_crossterm::crossterm::event as terminal;

use crate::error::{CliError, Outcome};
use crate::limits::{ASK_EVERY, LINE_SKEW, MIN_EVERY, POLL_EVERY, RANKING_SHARE, WAITING_EVENTS};
use crate::live::busiest::{self, Answer, Asked};
use crate::live::claims::Claims;
use crate::live::controls::{Controls, Wish};
use crate::live::decisions::Decisions;
use crate::live::event::{self, Event, Stop};
use crate::live::follower::Polled;
use crate::live::hits::{Hits, Question, Ranked, Row};
use crate::live::screen::Screen;
use crate::live::source::{Source, Trouble};
use crate::live::view::{Below, Picture, Rest, rate, rows_in, steps_in};
use crate::log_args::{LogArgs, scan_error, setup_hint};
use crate::log_file;
use crate::output;
use crate::server::ServerArgs;
use crate::table;

/// Show the busiest keys of growing logs, or of a server, live.
///
/// On a terminal it fills the screen. Each key has its hits in the window, their rate, the hits in the last 10 seconds,
/// the peak (the most hits in any window of that length in the last hour), and a chart of the window. Keyboard: / filters
/// by text, s changes the order, w and W change the window, q, Esc and Ctrl-C quit. The screen of a server also has its
/// alerts, and requests a second on its named limits. In a pipe, or with --json, it prints
/// rows every --every, and nothing while there are none.
///
/// Lines that are already in a file are counted, too, by their times. The window ends now, by the clock of this machine:
/// if all lines of a log are older than the window, there are no rows; use lately count for such a log. Lines more than
/// 10 seconds ahead of the clock are not counted. Windows up to an hour are exact, longer ones to 1 % of their length.
///
/// Files are followed by name, through rotations, four times a second. A renamed file is read to its end before its
/// successor. A truncated file is read from its start, and lines that were not read yet are read from a copy beside it,
/// as logrotate makes one. Each file is counted once, even if it has several of the given names. A missing file is
/// waited for. Standard input, pipes and compressed files are read to their end; without other logs that ends the
/// command.
///
/// Without FILE it shows the busiest keys of a server, by its command TOP, once a second. Its keys have no peak, and the
/// first line says how many hits any other key has at most. / filters the 1,000 busiest keys, --prefix all of them. While
/// the server is away, the last answer stays.
///
/// SIGINT and SIGTERM end it with exit code 0. Lines that do not parse are skipped; their number and the reasons go to
/// standard error at the end. If no line parses, that is an error. JSON must be one object per line.
#[derive(Args)]
#[command(mut_args(for_logs_or_a_server))]
pub(crate) struct Top {
    /// Length of the window: whole seconds, or a number with s, m, h, d or w.
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value_t = DEFAULT_WINDOW, value_parser = window)]
    window: Span,

    /// How often to print rows or draw the screen [default: 1s, on a terminal 250ms].
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = every)]
    every: Option<Span>,

    #[command(flatten)]
    logs: LogArgs,

    /// Print a JSON object per line: key (key_b64 when it is no UTF-8), at, hits, rate, and of logs the peak.
    #[arg(long)]
    json: bool,

    /// Of a server: only keys that begin with this.
    #[arg(long, value_name = "P", conflicts_with = "files", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prefix: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Options about reading logs.
const OF_LOGS: [&str; 10] =
    ["strict", "format", "key", "filters", "since", "until", "zone", "time_format", "time", "time_field"];

/// Options about a server.
const OF_A_SERVER: [&str; 7] = ["server", "user", "password_file", "tls", "cacert", "cert", "cert_key"];

/// Without a file it is about a server.
fn for_logs_or_a_server(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "files" => arg.required(false),
        id if OF_LOGS.contains(&id) => arg.requires("files"),
        id if OF_A_SERVER.contains(&id) => arg.conflicts_with("files"),
        _ => arg,
    }
}

fn window(text: &str) -> Result<Span, String> {
    let window: Span = text.parse().map_err(|error: lately::TimeError| error.to_string())?;
    if window.as_millis() % seconds(1).as_millis() != 0 {
        return Err("give whole seconds".into());
    }
    Ok(window)
}

fn every(text: &str) -> Result<Span, String> {
    let every: Span = text.parse().map_err(|error: lately::TimeError| error.to_string())?;
    if every < MIN_EVERY { Err(format!("give {MIN_EVERY} or more")) } else { Ok(every) }
}

pub(crate) fn run(top: &Top) -> Result<Outcome, CliError> {
    if top.logs.files().is_empty() {
        return LiveServer::new(top)?.run();
    }
    let options = top.logs.options(&Template::default())?;
    options.check().map_err(|error| CliError::new("top", error, setup_hint("top")))?;
    log_file::check_followed(top.logs.files())?;
    let controls = Controls::new(top.window);
    let hits = Hits::new(controls.longest());
    let hits = hits.map_err(|error| CliError::new("--window", error, "see lately top --help"))?;
    // A followed path may get another file than before.
    let (files, _) = log_file::once(top.logs.files(), log_file::is_stream);
    let claims = Claims::default();
    let sources = files.iter().enumerate();
    let sources = sources.map(|(number, path)| Source::new(path, &options, number, &claims));
    let sources: Result<Vec<_>, _> = sources.collect();
    let sources = sources.map_err(|error| CliError::new("top", error, setup_hint("top")))?;
    let (sender, events) = sync_channel(WAITING_EVENTS);
    let stop = event::catch_signals(&sender)
        .map_err(|error| CliError::new("top", error, "signals cannot be caught"))?;
    let mut live =
        Live { top, options: &options, sources, hits, controls, clock: SystemClock::new(), events, stop };
    if has_screen(top) {
        let screen = Screen::open().map_err(|error| no_terminal(&error))?;
        event::read_keyboard(&sender);
        live.run(&sender, &mut Output::Screen(screen))?;
    } else {
        live.run(&sender, &mut Output::Rows(ShownNotes::default()))?;
    }
    live.finish()
}

/// Whether the keys are shown on the whole screen.
fn has_screen(top: &Top) -> bool {
    io::stdout().is_terminal() && !top.json && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn has_colour() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn no_terminal(error: &io::Error) -> CliError {
    CliError::new("terminal", error, "lately top | cat prints rows")
}

/// A view, with its state.
struct Live<'a> {
    top: &'a Top,
    options: &'a Options,
    sources: Vec<Source<'a>>,
    hits: Hits,
    controls: Controls,
    clock: SystemClock,
    events: Receiver<Event>,
    stop: Stop,
}

/// The output of the view.
enum Output {
    Rows(ShownNotes),
    Screen(Screen),
}

/// The notes that were written to standard error and still hold. A note that ends and comes back is written again.
#[derive(Default)]
struct ShownNotes {
    notes: Vec<About>,
}

/// A note for the user, in addition to the rows.
struct Note {
    about: About,
    text: String,
}

/// The subject of a note, with the number of its log where there is one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Format(usize),
    File(usize, Trouble),
    Unparsed(usize),
    Old,
    Ahead,
    Memory,
}

/// How a round of the loop ends.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Redraw,
    Leave,
}

impl Live<'_> {
    /// Runs until the end: polls the logs and draws, each when it is due, and waits for events.
    fn run(&mut self, sender: &SyncSender<Event>, output: &mut Output) -> Result<(), CliError> {
        for (number, source) in self.sources.iter().enumerate() {
            source.start(number, sender);
        }
        let is_screen = matches!(output, Output::Screen(_));
        let every = self.top.every.unwrap_or(if is_screen { POLL_EVERY } else { seconds(1) });
        let mut now = self.clock.now();
        let (mut poll_at, mut show_at) = (now, now);
        // Rows of a partly read log would mislead.
        let mut has_caught_up = is_screen;
        loop {
            if now >= poll_at {
                let polled = self.poll(now)?;
                has_caught_up |= polled == Polled::AtEnd;
                poll_at = if polled == Polled::More { now } else { now.saturating_add(POLL_EVERY) };
            }
            let has_ended = !is_screen && self.sources.iter().all(Source::has_ended);
            if (has_caught_up && now >= show_at) || has_ended {
                self.show(output, now)?;
                self.hits.sweep(now);
                let took_ms = self.clock.now().as_millis() - now.as_millis();
                let pause_ms = every.as_millis().max(RANKING_SHARE * took_ms);
                show_at = now.saturating_add(Span::from_millis(pause_ms).unwrap_or(every));
            }
            if has_ended {
                return Ok(());
            }
            match self.wait(poll_at.min(show_at))? {
                Next::Go => {}
                Next::Redraw => show_at = now,
                Next::Leave => return Ok(()),
            }
            now = self.clock.now();
        }
    }

    fn poll(&mut self, now: Timestamp) -> Result<Polled, CliError> {
        let Live { sources, hits, .. } = self;
        let mut all = Polled::AtEnd;
        for source in sources {
            let polled = source.poll(hits, now).map_err(|error| scan_error("top", source.path(), &error))?;
            if polled == Polled::More {
                all = Polled::More;
            }
        }
        Ok(all)
    }

    /// Waits for an event until a given time, and handles all events.
    fn wait(&mut self, until: Timestamp) -> Result<Next, CliError> {
        let wait_ms = until.as_millis() - self.clock.now().as_millis();
        let wait = Duration::from_millis(wait_ms.max(0).unsigned_abs());
        let mut event = self.events.recv_timeout(wait).ok();
        let (mut next, mut taken) = (Next::Go, 0);
        while let Some(current) = event {
            match self.take(current)? {
                Next::Go => {}
                Next::Redraw => next = Next::Redraw,
                Next::Leave => return Ok(Next::Leave),
            }
            taken += 1;
            // The number of events in a round is bounded, so that the view is drawn.
            let may_go_on = taken < WAITING_EVENTS && !self.stop.load(Ordering::Relaxed);
            event = if may_go_on { self.events.try_recv().ok() } else { None };
        }
        Ok(if self.stop.load(Ordering::Relaxed) { Next::Leave } else { next })
    }

    fn take(&mut self, event: Event) -> Result<Next, CliError> {
        let Live { sources, hits, clock, controls, .. } = self;
        let (number, outcome) = match event {
            Event::Piece { source, bytes } => (source, sources[source].piece(&bytes, hits, clock.now())),
            Event::End { source, failure } => (source, sources[source].end(failure, hits, clock.now())),
            Event::Terminal(terminal::Event::Key(key)) => {
                return Ok(match controls.press(key) {
                    Wish::Nothing => Next::Go,
                    Wish::Redraw => Next::Redraw,
                    Wish::Leave => Next::Leave,
                });
            }
            Event::Terminal(terminal::Event::Resize(..)) => return Ok(Next::Redraw),
            Event::Terminal(_) | Event::Signal | Event::Answered(_) => return Ok(Next::Go),
            Event::NoKeyboard(error) => return Err(no_terminal(&error)),
        };
        outcome.map_err(|error| scan_error("top", sources[number].path(), &error))?;
        Ok(Next::Go)
    }

    fn show(&mut self, output: &mut Output, now: Timestamp) -> Result<(), CliError> {
        match output {
            Output::Rows(shown) => {
                let ranked = self.rank(self.top.logs.top().unwrap_or(usize::MAX), 1, now);
                let notes: Vec<Note> = self.formats().chain(self.notes(&ranked, now)).collect();
                for note in notes.iter().filter(|note| !shown.notes.contains(&note.about)) {
                    output::message(&format_args!("lately: top: {}", note.text));
                }
                shown.notes = notes.into_iter().map(|note| note.about).collect();
                let window = self.controls.window();
                output::data(|out| {
                    if self.top.json {
                        write_json(out, &ranked, window, now)
                    } else {
                        write_table(out, &ranked, window, now)
                    }
                })
            }
            Output::Screen(screen) => self.draw(screen, now).map_err(|error| no_terminal(&error)),
        }
    }

    fn draw(&mut self, screen: &mut Screen, now: Timestamp) -> io::Result<()> {
        let (width, height) = screen.size()?;
        let rows = rows_in(height, Below::NONE).min(self.top.logs.named_top().unwrap_or(usize::MAX));
        let ranked = self.rank(rows, steps_in(width), now);
        let notes: Vec<String> =
            self.progress().chain(self.notes(&ranked, now).map(|note| note.text)).collect();
        let names = self.sources.iter().map(|source| {
            let format = source.scanned().format.map(|format| format!(" ({format})"));
            log_file::name(source.path()) + &format.unwrap_or_default()
        });
        let picture = Picture {
            subject: &names.collect::<Vec<_>>().join(", "),
            now: whole_second(now),
            window: self.controls.window(),
            ranked: &ranked,
            rest: Rest::Summed,
            below: Below::NONE,
            controls: &self.controls,
            notes: &notes,
            has_colour: has_colour(),
        };
        screen.draw(&picture)
    }

    fn rank(&self, rows: usize, steps: usize, now: Timestamp) -> Ranked {
        let controls = &self.controls;
        let (window, sort, filter) = (controls.window(), controls.sort(), controls.filter());
        self.hits.rank(&Question { window, sort, filter, rows, steps }, now)
    }

    /// Notes of the detected formats.
    fn formats(&self) -> impl Iterator<Item = Note> {
        let detected = self.sources.iter().enumerate().filter(|_| self.options.format.is_none());
        detected.filter_map(|(number, source)| {
            let format = source.scanned().format?;
            let text = format!("{} is read as {format}", log_file::name(source.path()));
            Some(Note { about: About::Format(number), text })
        })
    }

    /// The progress of files that are not read to their end.
    fn progress(&self) -> impl Iterator<Item = String> {
        self.sources.iter().filter_map(|source| {
            let percent = source.percent_read();
            (percent < 99).then(|| format!("{percent} % of {} is read", log_file::name(source.path())))
        })
    }

    /// The notes that hold now.
    fn notes(&self, ranked: &Ranked, now: Timestamp) -> impl Iterator<Item = Note> {
        let of_logs = self.sources.iter().enumerate().flat_map(|(number, source)| {
            let name = log_file::name(source.path());
            let trouble = source
                .trouble()
                .map(|trouble| Note { about: About::File(number, trouble), text: source.describe(trouble) });
            let scanned = source.scanned();
            let is_unparsed = scanned.lines > 0 && scanned.parsed() == 0;
            let unparsed = is_unparsed
                .then(|| Note { about: About::Unparsed(number), text: format!("no line of {name} parses") });
            trouble.into_iter().chain(unparsed)
        });
        let is_empty = ranked.keys == 0 && self.controls.filter().is_empty();
        let window = self.controls.window();
        let old = self.hits.newest().filter(|newest| is_empty && newest.saturating_add(window) < now);
        let old = old.map(|newest| {
            let newest = table::utc(newest);
            let text =
                format!("the newest line, {newest}, is older than the window; lately count shows old logs");
            Note { about: About::Old, text }
        });
        let ahead = (self.hits.ahead() > 0).then(|| Note {
            about: About::Ahead,
            text: format!("lines more than {LINE_SKEW} ahead of the clock are not counted"),
        });
        let forgotten = (self.hits.forgotten() > 0).then(|| Note {
            about: About::Memory,
            text: "there is no memory for all keys: the least hit ones are left out".to_owned(),
        });
        of_logs.chain(old).chain(ahead).chain(forgotten)
    }

    /// Logs the lines that did not parse, as `count` does.
    fn finish(self) -> Result<Outcome, CliError> {
        let Live { top, sources, mut hits, clock, .. } = self;
        let mut read = top.logs.reading("top");
        for source in sources {
            let path: &Path = source.path();
            let scanned = source.finish(&mut hits, clock.now());
            read.add(path, scanned.map_err(|error: ScanError| scan_error("top", path, &error))?);
        }
        read.check_some()?;
        read.outcome()
    }
}

fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis() / 1_000 * 1_000).unwrap_or(now)
}

fn write_json(out: &mut dyn Write, ranked: &Ranked, window: Span, now: Timestamp) -> io::Result<()> {
    let at = now.as_millis() / 1_000;
    for row in &ranked.rows {
        let (key, hits) = (output::key_member(&row.key), row.hits);
        let rate = hits as f64 / window.as_seconds_f64();
        let peak = row.peak.map_or(String::new(), |peak| format!(",\"peak\":{peak}"));
        writeln!(out, "{{{key},\"at\":{at},\"hits\":{hits},\"rate\":{rate}{peak}}}")?;
    }
    Ok(())
}

fn write_table(out: &mut dyn Write, ranked: &Ranked, window: Span, now: Timestamp) -> io::Result<()> {
    if ranked.rows.is_empty() {
        return Ok(());
    }
    let at = table::utc(whole_second(now));
    let numbers = |row: &Row| [at.clone(), row.hits.to_string(), rate(row.hits, window)];
    if ranked.rows.iter().all(|row| row.peak.is_some()) {
        let cells = ranked.rows.iter().map(|row| {
            let [at, hits, rate] = numbers(row);
            [at, hits, rate, row.peak.unwrap_or_default().to_string(), table::printable(&row.key)]
        });
        return table::write(out, ["AT (UTC)", "HITS", "RATE/s", "PEAK", "KEY"], &cells.collect::<Vec<_>>());
    }
    let cells = ranked.rows.iter().map(|row| {
        let [at, hits, rate] = numbers(row);
        [at, hits, rate, table::printable(&row.key)]
    });
    table::write(out, ["AT (UTC)", "HITS", "RATE/s", "KEY"], &cells.collect::<Vec<_>>())
}

/// The view of a server, with its state.
struct LiveServer<'a> {
    top: &'a Top,
    address: String,
    controls: Controls,
    clock: SystemClock,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    stop: Stop,
    questions: SyncSender<Asked>,
    screen: Option<Screen>,
    answer: Option<Answer>,
    /// The decisions of the last answers, and what is shown of them.
    decisions: Decisions,
    below: Below,
    /// Why there is no newer answer.
    failure: Option<String>,
    /// When the question was asked that is not answered yet.
    asked_at: Option<Timestamp>,
    ask_at: Timestamp,
}

impl<'a> LiveServer<'a> {
    fn new(top: &'a Top) -> Result<LiveServer<'a>, CliError> {
        let (sender, events) = sync_channel(WAITING_EVENTS);
        let stop = event::catch_signals(&sender)
            .map_err(|error| CliError::new("top", error, "signals cannot be caught"))?;
        Ok(LiveServer {
            top,
            address: top.server.address(),
            controls: Controls::new(top.window),
            clock: SystemClock::new(),
            events,
            questions: busiest::ask_from(&top.server, &sender),
            sender,
            stop,
            screen: None,
            answer: None,
            decisions: Decisions::default(),
            below: Below::default(),
            failure: None,
            asked_at: None,
            ask_at: Timestamp::MIN,
        })
    }

    /// Asks when it is due, shows what was answered, and handles the keyboard, until the end.
    fn run(mut self) -> Result<Outcome, CliError> {
        if has_screen(self.top) {
            self.screen = Some(Screen::open().map_err(|error| no_terminal(&error))?);
            event::read_keyboard(&self.sender);
        }
        loop {
            let now = self.clock.now();
            if self.asked_at.is_none() && now >= self.ask_at {
                self.asked_at = Some(now);
                let asked = self.question()?;
                // The thread takes questions for as long as there is a view.
                _ = self.questions.send(asked);
            }
            // A question is always answered, at the latest after the timeouts of the connection.
            let until = if self.asked_at.is_some() { now.saturating_add(minutes(1)) } else { self.ask_at };
            let wait_ms = until.as_millis() - self.clock.now().as_millis();
            let wait = Duration::from_millis(wait_ms.max(0).unsigned_abs());
            let next = self.events.recv_timeout(wait).map_or(Ok(Next::Go), |event| self.take(event))?;
            if next == Next::Redraw {
                self.draw()?;
            }
            if next == Next::Leave || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(Outcome::Done)
    }

    fn question(&self) -> Result<Asked, CliError> {
        let mut asked = Asked {
            window: self.controls.window(),
            sort: self.controls.sort(),
            prefix: self.top.prefix.clone().unwrap_or_default(),
            filter: self.controls.filter().to_owned(),
            rows: self.top.logs.top(),
            steps: None,
        };
        if let Some(screen) = &self.screen {
            let (width, height) = screen.size().map_err(|error| no_terminal(&error))?;
            asked.rows =
                Some(rows_in(height, &self.below).min(self.top.logs.named_top().unwrap_or(usize::MAX)));
            asked.steps = Some(steps_in(width));
        }
        Ok(asked)
    }

    fn take(&mut self, event: Event) -> Result<Next, CliError> {
        Ok(match event {
            Event::Answered(answered) => {
                let now = self.clock.now();
                let took_ms = self.asked_at.take().map_or(0, |at| now.as_millis() - at.as_millis());
                let every = self.top.every.unwrap_or(ASK_EVERY);
                let pause_ms = every.as_millis().max(RANKING_SHARE * took_ms);
                self.ask_at = now.saturating_add(Span::from_millis(pause_ms).unwrap_or(every));
                self.show(answered)?;
                Next::Go
            }
            Event::Terminal(terminal::Event::Key(key)) => match self.controls.press(key) {
                // The question is another one.
                Wish::Redraw => {
                    self.ask_at = self.clock.now();
                    Next::Redraw
                }
                Wish::Nothing => Next::Go,
                Wish::Leave => Next::Leave,
            },
            Event::Terminal(terminal::Event::Resize(..)) => {
                self.ask_at = self.clock.now();
                Next::Redraw
            }
            Event::NoKeyboard(error) => return Err(no_terminal(&error)),
            Event::Terminal(_) | Event::Signal | Event::Piece { .. } | Event::End { .. } => Next::Go,
        })
    }

    /// Shows an answer. A failure ends the view only if there was no answer before.
    fn show(&mut self, answered: Result<Answer, CliError>) -> Result<(), CliError> {
        match answered {
            Ok(mut answer) => {
                self.failure = None;
                if self.screen.is_none() {
                    write_answer(&answer, self.top.json)?;
                }
                self.decisions.add(self.clock.now(), std::mem::take(&mut answer.limits));
                let alerts = std::mem::take(&mut answer.alerts);
                self.below = Below { alerts, limits: self.decisions.rates() };
                self.answer = Some(answer);
            }
            Err(error) if self.answer.is_none() => return Err(error),
            Err(CliError::Failed { what, cause, .. }) => {
                let failure = format!("{what}: {cause}");
                if self.screen.is_none() && self.failure.is_none() {
                    output::message(&format_args!("lately: top: {failure}"));
                }
                self.failure = Some(failure);
            }
            Err(closed) => return Err(closed),
        }
        self.draw()
    }

    fn draw(&mut self) -> Result<(), CliError> {
        let (Some(screen), Some(answer)) = (&mut self.screen, &self.answer) else { return Ok(()) };
        let notes: Vec<String> = self.failure.iter().cloned().collect();
        let picture = Picture {
            subject: &self.address,
            now: answer.now,
            window: answer.window,
            ranked: &answer.ranked,
            rest: Rest::AtMost(answer.others_upper),
            below: &self.below,
            controls: &self.controls,
            notes: &notes,
            has_colour: has_colour(),
        };
        screen.draw(&picture).map_err(|error| no_terminal(&error))
    }
}

fn write_answer(answer: &Answer, is_json: bool) -> Result<(), CliError> {
    let Answer { now, window, ranked, .. } = answer;
    output::data(|out| {
        if is_json { write_json(out, ranked, *window, *now) } else { write_table(out, ranked, *window, *now) }
    })
}
