//! The progress of a long log on a terminal: one line on standard error, which is removed at the end.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Read, Write};

use lately::{Clock, SystemClock};

use crate::output;
use crate::pace::Pace;

/// The number of bytes between two updates of the line.
const STEP_BYTES: u64 = 8 << 20;

pub(crate) struct Progress {
    shown: bool,
    bytes: Cell<u64>,
    lines: Cell<u64>,
    watchdog: Option<Watchdog>,
}

/// Reports once that lines are parsed slowly.
struct Watchdog {
    command: &'static str,
    /// A hint about a faster way.
    hint: &'static str,
    clock: SystemClock,
    pace: RefCell<Pace>,
}

impl Watchdog {
    /// Records that the next bytes are requested.
    fn ask(&self, is_shown: bool) {
        if let Some(bytes_per_second) = self.pace.borrow_mut().ask(self.clock.now()) {
            if is_shown {
                _ = write!(io::stderr(), "\r\x1b[K");
            }
            output::message(&slow(self.command, bytes_per_second));
            output::message(&format_args!("hint: {}", self.hint));
        }
    }
}

/// The message about slow parsing.
fn slow(command: &str, bytes_per_second: u64) -> String {
    let megabytes = bytes_per_second as f64 / 1e6;
    format!("lately: {command}: the regular expression takes long: {megabytes:.1} MB of log a second")
}

impl Progress {
    /// The progress, which is shown if standard error is a terminal.
    pub(crate) fn new() -> Progress {
        let shown = io::stderr().is_terminal();
        Progress { shown, bytes: Cell::new(0), lines: Cell::new(0), watchdog: None }
    }

    /// Reports once that lines are parsed slowly, with a faster way if there is one.
    pub(crate) fn warn_when_slow(&mut self, command: &'static str, faster: Option<&'static str>) {
        let warning = |hint| Watchdog { command, hint, clock: SystemClock::new(), pace: RefCell::default() };
        self.watchdog = faster.map(warning);
    }

    /// A reader that counts its bytes as progress.
    pub(crate) fn watch<R: Read>(&self, reader: R) -> Watched<'_, R> {
        Watched { reader, progress: self }
    }

    pub(crate) fn line(&self) {
        self.lines.set(self.lines.get() + 1);
    }

    fn add_bytes(&self, count: usize) {
        let before = self.bytes.get();
        let after = before + count as u64;
        self.bytes.set(after);
        if self.shown && before / STEP_BYTES != after / STEP_BYTES {
            _ = write!(io::stderr(), "\r{} MB, {} lines", after / 1_000_000, self.lines.get());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown && self.bytes.get() >= STEP_BYTES {
            _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A reader whose bytes count as progress.
pub(crate) struct Watched<'p, R> {
    reader: R,
    progress: &'p Progress,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let progress = self.progress;
        if let Some(watchdog) = &progress.watchdog {
            watchdog.ask(progress.shown);
        }
        let count = self.reader.read(buffer)?;
        progress.add_bytes(count);
        if let Some(watchdog) = &progress.watchdog {
            watchdog.pace.borrow_mut().come(watchdog.clock.now(), count);
        }
        Ok(count)
    }
}
