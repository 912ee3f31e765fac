//! How far a long log is, on a terminal: one line on standard error, written over, removed at the end.

use std::cell::Cell;
use std::io::{self, IsTerminal, Read, Write};

/// Bytes between two states of the line.
const STEP_BYTES: u64 = 8 << 20;

pub(crate) struct Progress {
    shown: bool,
    bytes: Cell<u64>,
    lines: Cell<u64>,
}

impl Progress {
    /// Shown when standard error is a terminal.
    pub(crate) fn new() -> Progress {
        Progress { shown: io::stderr().is_terminal(), bytes: Cell::new(0), lines: Cell::new(0) }
    }

    /// Counts what is read through the reader it returns.
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
        let count = self.reader.read(buffer)?;
        self.progress.add_bytes(count);
        Ok(count)
    }
}
