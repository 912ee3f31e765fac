//! The logs of a live view: files that are followed, and streams that are read to their end in a thread each.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::SyncSender;

use lately::Timestamp;
use lately_logs::{Cutter, Feed, Line, Options, Record, ScanError, Scanned, SetupError};

use crate::live::claims::Claims;
use crate::live::event::Event;
use crate::live::follower::{Follower, Polled, State};
use crate::live::hits::Hits;
use crate::log_file;

/// Bytes of a stream that are counted at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A log, and the state of reading it.
pub(crate) struct Source<'o> {
    path: &'o Path,
    feed: Feed<'o>,
    kind: Kind,
}

enum Kind {
    File(Box<Follower>),
    Stream(Stream),
}

/// A problem with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    Missing,
    Unreadable,
    /// It was truncated this many times without a copy of its content.
    Truncated(u64),
}

#[derive(Default)]
struct Stream {
    cutter: Cutter,
    has_ended: bool,
    failure: Option<io::Error>,
}

impl<'o> Source<'o> {
    /// A log that is followed, or read to its end if it is standard input, a pipe, or compressed.
    pub(crate) fn new(
        path: &'o Path,
        options: &'o Options,
        number: usize,
        claims: &Claims,
    ) -> Result<Source<'o>, SetupError> {
        let kind = if log_file::is_stream(path) {
            Kind::Stream(Stream::default())
        } else {
            Kind::File(Box::new(Follower::new(path, number, claims)))
        };
        Ok(Source { path, feed: Feed::new(options)?, kind })
    }

    /// Starts to read a stream. Its pieces arrive as events with this number.
    pub(crate) fn start(&self, number: usize, events: &SyncSender<Event>) {
        if matches!(self.kind, Kind::Stream(_)) {
            let (path, events) = (self.path.to_owned(), events.clone());
            std::thread::spawn(move || {
                let end = read_pieces(&path, |bytes| {
                    // The view has ended.
                    events.send(Event::Piece { source: number, bytes }).is_ok()
                });
                _ = events.send(Event::End { source: number, failure: end.err() });
            });
        }
    }

    pub(crate) fn path(&self) -> &'o Path {
        self.path
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(&self.kind, Kind::Stream(stream) if stream.has_ended)
    }

    /// The summary of the log so far.
    pub(crate) fn scanned(&self) -> &Scanned {
        self.feed.scanned()
    }

    /// The problem with the file, if there is one.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let Kind::File(follower) = &self.kind else { return None };
        match (follower.state(), follower.unsaved_truncations()) {
            (State::Missing, _) => Some(Trouble::Missing),
            (State::Unreadable(_), _) => Some(Trouble::Unreadable),
            (State::Read, 0) => None,
            (State::Read, times) => Some(Trouble::Truncated(times)),
        }
    }

    /// The text of a problem.
    pub(crate) fn describe(&self, trouble: Trouble) -> String {
        let name = log_file::name(self.path);
        let state = match &self.kind {
            Kind::File(follower) => follower.state(),
            Kind::Stream(_) => &State::Read,
        };
        match (trouble, state) {
            (Trouble::Truncated(1), _) => {
                format!("{name} was truncated without a copy: lines may be missing")
            }
            (Trouble::Truncated(times), _) => {
                format!("{name} was truncated {times} times without a copy: lines may be missing")
            }
            (_, State::Unreadable(cause)) => format!("{name}: {cause}"),
            _ => format!("{name} is not there: waiting for it"),
        }
    }

    /// The part of a file that was read, in percent.
    pub(crate) fn percent_read(&self) -> u64 {
        match &self.kind {
            Kind::File(follower) => follower.percent_read(),
            Kind::Stream(_) => 100,
        }
    }

    /// Counts the new lines of a file.
    pub(crate) fn poll(&mut self, hits: &mut Hits, now: Timestamp) -> Result<Polled, ScanError> {
        let Source { feed, kind, .. } = self;
        feed.set_now(now);
        let Kind::File(follower) = kind else { return Ok(Polled::AtEnd) };
        if follower.check_path(now) {
            feed.drop_partial();
        }
        let mut lines = Lines { feed, hits, now, outcome: Ok(()) };
        let polled = follower.poll(now, &mut |line| lines.take(line));
        lines.done()?;
        Ok(polled)
    }

    /// Counts a piece of a stream.
    pub(crate) fn piece(&mut self, bytes: &[u8], hits: &mut Hits, now: Timestamp) -> Result<(), ScanError> {
        let Source { feed, kind: Kind::Stream(stream), .. } = self else { return Ok(()) };
        let mut lines = Lines { feed, hits, now, outcome: Ok(()) };
        stream.cutter.push(bytes, |line| lines.take(line));
        lines.done()
    }

    /// Ends a stream.
    pub(crate) fn end(
        &mut self,
        failure: Option<io::Error>,
        hits: &mut Hits,
        now: Timestamp,
    ) -> Result<(), ScanError> {
        let Source { feed, kind: Kind::Stream(stream), .. } = self else { return Ok(()) };
        let mut lines = Lines { feed, hits, now, outcome: Ok(()) };
        stream.cutter.finish(|line| lines.take(line));
        (stream.has_ended, stream.failure) = (true, failure);
        lines.done()
    }

    /// Ends the log.
    pub(crate) fn finish(mut self, hits: &mut Hits, now: Timestamp) -> Result<Scanned, ScanError> {
        let failure = match self.kind {
            Kind::Stream(stream) => stream.failure,
            Kind::File(_) => {
                // A partial line does not count, because its writer may be in the middle of it.
                self.feed.drop_partial();
                None
            }
        };
        match self.feed.finish(&[], &mut |record: Record<'_>| hits.hit(record.key, record.at, now)) {
            Ok(scanned) => Ok(Scanned { failure, ..scanned }),
            // If a read error cut the log, that is the failure, and not its unknown format.
            Err(ScanError::Unknown { .. }) if failure.is_some() => {
                Ok(Scanned { failure, ..Scanned::default() })
            }
            Err(error) => Err(error),
        }
    }
}

/// Counts lines until an error.
struct Lines<'a, 'o> {
    feed: &'a mut Feed<'o>,
    hits: &'a mut Hits,
    now: Timestamp,
    outcome: Result<(), ScanError>,
}

impl Lines<'_, '_> {
    fn take(&mut self, line: Line<'_>) {
        if self.outcome.is_ok() {
            let Lines { feed, hits, now, .. } = self;
            self.outcome = feed.line(line, &mut |record| hits.hit(record.key, record.at, *now));
        }
    }

    fn done(self) -> Result<(), ScanError> {
        let Lines { feed, hits, now, outcome } = self;
        outcome?;
        feed.detect_early(&mut |record| hits.hit(record.key, record.at, now))
    }
}

/// Reads a stream to its end, or until `give` returns false.
fn read_pieces(path: &Path, give: impl Fn(Vec<u8>) -> bool) -> io::Result<()> {
    let mut reader = log_file::open_stream(path)?;
    loop {
        let mut bytes = vec![0; PIECE_BYTES];
        match reader.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                bytes.truncate(count);
                if !give(bytes) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
