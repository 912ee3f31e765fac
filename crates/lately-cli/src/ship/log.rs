//! A log that is sent: the file at its path, and the rotated files that were there before. Each is read to its end, over renames, copies
//! and compression, because the server knows files by their start.
//!
//! The server also has a mark for each log, which is a time. Rotated files that it does not know, and that were last written up to that
//! time, are not sent: they were rotated before the first start, or the server has forgotten them. Files with later writes are sent, even
//! if the server was not there until after a rotation.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lately::Timestamp;
use lately_logs::{CutLines, Options, Scanned};

use crate::error::CliError;
use crate::limits::{COARSE_FILE_TIME_NS, FILE_TIME_SLACK, FORMER_KEPT, MAX_FORMER_FILES, SHIP_LATE};
use crate::live::claims::FileId;
use crate::log_file;
use crate::new_file::folder;
use crate::output;
use crate::ship::name::Names;
use crate::ship::part::{Filled, Found, Part, PartError, id_of, modified_ns};
use crate::ship::rotated::is_rotated;
use crate::ship::sender::{Position, Sender, Sent, unreadable};
use crate::ship::state::State;

/// The options for reading logs.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) options: &'a Options,
    pub(crate) names: &'a Names,
    /// Whether the user gives the format or the fields of times.
    pub(crate) has_own_times: bool,
    /// Whether the logs are read to their ends once.
    pub(crate) is_once: bool,
}

/// A log by its path.
pub(crate) struct Log<'a> {
    path: &'a Path,
    how: How<'a>,
    /// The start of this run.
    started: Timestamp,
    /// The path with all links resolved.
    place: PathBuf,
    /// The files, the one at the path last.
    parts: Vec<Part<'a>>,
    current: Option<FileId>,
    /// The file that was at the path at the last look, also if it was empty.
    at_path: Option<FileId>,
    /// Whether the server had lines of the current file when it was found.
    is_current_known: bool,
    polled_at: Option<Timestamp>,
    /// The connection on which rotated files were searched for.
    polled_on: u64,
    /// The mark on the server.
    mark: Option<u64>,
    /// The next mark, when everything that the last search found is sent.
    next_mark: Option<u64>,
    /// Whether a file could not be read. The mark then stays, so that the next start finds the file.
    keeps_mark: bool,
    /// The summaries of the files that were read to their end.
    scanned: Vec<Scanned>,
    /// The problem that was reported last, while it lasts.
    reported: Option<String>,
    has_reported_format: bool,
    /// Whether a rotated file could not be opened, perhaps because it was renamed at that moment.
    must_poll_again: bool,
    /// Whether more files wait to be sent than can be open at a time.
    has_waiting: bool,
    /// Files that are not read again: with `--once` all that were read to their end, otherwise only the compressed ones.
    finished: Vec<(FileId, String)>,
    has_failed: bool,
}

/// The outcome of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// All lines were sent.
    AtEnd,
    /// There are more lines.
    More,
    /// The end was requested, and the server does not answer.
    Stopped,
}

/// A rotated file of which the server has all lines up to a position.
struct SentFile {
    found: Found,
    source: String,
    position: u64,
    /// Its writer may continue it.
    is_fresh: bool,
}

/// Adds a file, if it may get more lines. The newest are kept.
fn keep_fresh(fresh: &mut VecDeque<SentFile>, sent: Option<SentFile>) {
    fresh.extend(sent.filter(|sent| sent.is_fresh));
    if fresh.len() > MAX_FORMER_FILES {
        fresh.pop_front();
    }
}

/// The files that logs read, by inode and by their name on the server.
pub(crate) type Taken = Vec<(FileId, String)>;

impl<'a> Log<'a> {
    pub(crate) fn new(path: &'a Path, how: How<'a>, now: Timestamp) -> Log<'a> {
        Log {
            path,
            how,
            started: now,
            place: place(path),
            parts: Vec::new(),
            current: None,
            at_path: None,
            is_current_known: false,
            polled_at: None,
            polled_on: 0,
            mark: None,
            next_mark: None,
            keeps_mark: false,
            scanned: Vec::new(),
            reported: None,
            has_reported_format: how.options.format.is_some(),
            must_poll_again: false,
            has_waiting: false,
            finished: Vec::new(),
            has_failed: false,
        }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// Whether nothing is left to read, with `--once` or after an error.
    pub(crate) fn is_done(&self) -> bool {
        self.has_failed
            || (self.how.is_once && self.polled_at.is_some() && self.parts.is_empty() && !self.has_waiting)
    }

    /// Whether the log was given up because of an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Gives up the log.
    pub(crate) fn give_up(&mut self) {
        self.has_failed = true;
        self.scanned.extend(self.parts.drain(..).map(Part::into_scanned));
    }

    /// The files that it reads, and those that it must not read again.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (FileId, String)> {
        let finished = self.finished.iter().filter(|_| self.how.is_once).cloned();
        self.parts.iter().map(|part| (part.id, part.source.clone())).chain(finished)
    }

    /// The number of lines so far that do not parse.
    pub(crate) fn malformed_lines(&self) -> u64 {
        let finished = self.scanned.iter().map(Scanned::malformed_lines);
        finished.chain(self.parts.iter().map(Part::malformed_lines)).sum()
    }

    /// The summaries of its files.
    pub(crate) fn scanned(self) -> impl Iterator<Item = Scanned> {
        self.scanned.into_iter().chain(self.parts.into_iter().map(Part::into_scanned))
    }

    /// Finds the files of the log, and sends their new lines. `others` are the files of other logs.
    pub(crate) fn round(
        &mut self,
        sender: &mut Sender<'_>,
        others: &Taken,
        now: Timestamp,
    ) -> Result<Round, CliError> {
        if self.is_done() {
            return Ok(Round::AtEnd);
        }
        if !self.poll_files(sender, others, now)? {
            return Ok(Round::Stopped);
        }
        let mut all = if self.has_waiting { Round::More } else { Round::AtEnd };
        let mut index = 0;
        let mut cut = CutLines::default();
        while index < self.parts.len() {
            let is_current = self.current == Some(self.parts[index].id);
            let part = &mut self.parts[index];
            // A line that was cut by a container runtime ends in the next file.
            part.resume(std::mem::take(&mut cut));
            let filled = match part.fill(sender.prefix.len(), now) {
                // The next look finds what became of it.
                Ok(Filled::Rewritten) => return Ok(Round::More),
                Ok(filled) => filled,
                // An unreadable rotated file does not stop the log.
                Err(PartError::Read(error)) if !self.how.is_once && !is_current => {
                    let name = log_file::name(&part.path);
                    output::message(&format_args!("lately: ship: {name}: {error}; its rest is not sent"));
                    self.scanned.push(self.parts.remove(index).into_scanned());
                    self.keeps_mark = true;
                    continue;
                }
                Err(error) => return Err(unreadable(&part.path, error)),
            };
            cut = part.cut_lines();
            let format = part.format();
            self.report_format(format);
            let part = &mut self.parts[index];
            match sender.send(part)? {
                Sent::Done => {}
                Sent::Restarted => return Ok(Round::More),
                Sent::Stopped => return Ok(Round::Stopped),
            }
            if filled == Filled::More {
                // The next file comes after all of this one.
                return Ok(Round::More);
            }
            if self.is_over(index, now) {
                match self.finish(index, sender)? {
                    Sent::Done => continue,
                    Sent::Restarted => return Ok(Round::More),
                    Sent::Stopped => return Ok(Round::Stopped),
                }
            }
            index += 1;
        }
        if !self.set_mark(sender)? {
            all = Round::Stopped;
        }
        Ok(all)
    }

    /// Whether a file that was read to its end will get no more lines.
    fn is_over(&self, index: usize, now: Timestamp) -> bool {
        let part = &self.parts[index];
        let is_quiet = now.as_millis() - part.quiet_since.as_millis() > FORMER_KEPT.as_millis();
        let is_former = self.current != Some(part.id);
        self.how.is_once
            || part.is_compressed()
            || (is_former && self.has_waiting)
            || (is_former && is_quiet && (self.current.is_some() || part.is_deleted()))
    }

    /// Sends the last line of a file, if it has no line end, and closes the file.
    fn finish(&mut self, index: usize, sender: &mut Sender<'_>) -> Result<Sent, CliError> {
        let part = &mut self.parts[index];
        if let Err(error) = part.finish() {
            return Err(unreadable(&part.path, error));
        }
        let sent = sender.send(part)?;
        if sent == Sent::Done {
            let part = self.parts.remove(index);
            if part.is_compressed() || self.how.is_once {
                self.finished.push((part.id, part.source.clone()));
            }
            self.scanned.push(part.into_scanned());
        }
        Ok(sent)
    }

    /// Moves the mark to the last write of the files that were found and sent. Returns false if the end was requested.
    fn set_mark(&mut self, sender: &mut Sender<'_>) -> Result<bool, CliError> {
        let is_held = self.keeps_mark || self.has_waiting || self.must_poll_again;
        let Some(next) = self.next_mark.filter(|_| !is_held) else { return Ok(true) };
        let least_ns = u64::try_from(FORMER_KEPT.as_millis()).unwrap_or(0) * 1_000_000;
        match self.mark {
            Some(mark) if next >= mark + least_ns => {
                self.mark = sender.advance(&self.log_source(), mark, next)?;
                Ok(self.mark.is_some())
            }
            _ => Ok(true),
        }
    }

    /// The name of the mark.
    fn log_source(&self) -> String {
        let file_name = self.place.file_name().unwrap_or_default();
        self.how.names.of_log(folder(&self.place), file_name.as_encoded_bytes())
    }

    /// Finds the file at the path, and rotated files with unsent lines. Returns false if the end was requested.
    fn poll_files(
        &mut self,
        sender: &mut Sender<'_>,
        others: &Taken,
        now: Timestamp,
    ) -> Result<bool, CliError> {
        let rewritten = self.drop_rewritten();
        // Since the last poll, which is long ago, files may have appeared and disappeared.
        let is_late =
            self.polled_at.is_none_or(|at| now.as_millis() - at.as_millis() > SHIP_LATE.as_millis());
        let is_first = self.polled_at.is_none();
        // A restarted server may have earlier positions.
        let is_other_server = self.polled_on != sender.link.connection();
        let mut is_changed = !rewritten.is_empty() || is_first || is_other_server;
        is_changed |= self.must_poll_again || self.has_waiting;
        if is_first || !self.how.is_once || !rewritten.is_empty() {
            // One that was empty may have got lines before it was renamed.
            let at_path = fs::metadata(self.path).ok().map(|metadata| id_of(&metadata));
            is_changed |= std::mem::replace(&mut self.at_path, at_path) != at_path;
            let Some(has_found) = self.poll_path(sender, others, &rewritten, now)? else {
                return Ok(false);
            };
            is_changed |= has_found;
        }
        self.polled_at = Some(now);
        // Later files have later writes. A file may not have been written since it was found.
        let written = self.parts.iter().filter_map(|part| part.modified_ns().ok()).min();
        self.next_mark = written.map(|written_ns| written_ns.saturating_sub(1));
        if !is_changed {
            return Ok(true);
        }
        let is_there = self.find_rotated(sender, others, &rewritten, is_late, now)?;
        if is_there && rewritten.iter().any(|source| self.parts.iter().all(|part| part.source != *source)) {
            let name = log_file::name(self.path);
            output::message(&format_args!(
                "lately: ship: {name} was truncated without a copy: lines may be missing"
            ));
        }
        Ok(is_there)
    }

    /// Checks the file at the path. Returns whether it is another one, or `None` if the end was requested.
    fn poll_path(
        &mut self,
        sender: &mut Sender<'_>,
        others: &Taken,
        rewritten: &[String],
        now: Timestamp,
    ) -> Result<Option<bool>, CliError> {
        let found = match fs::metadata(self.path) {
            Ok(metadata) if self.parts.iter().any(|part| part.id == id_of(&metadata)) => {
                self.reported = None;
                return Ok(Some(self.current.replace(id_of(&metadata)) != Some(id_of(&metadata))));
            }
            Ok(_) => Found::open(self.path.to_owned(), self.how.has_own_times),
            Err(error) => Err(error),
        };
        let was_there = self.current.take().is_some();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.report(&match error.kind() {
                    io::ErrorKind::NotFound => " is not there: it is waited for".to_owned(),
                    _ => format!(": {error}"),
                });
                return Ok(Some(was_there));
            }
        };
        self.place = place(self.path);
        let is_whole = found.is_compressed || (self.how.is_once && !found.head.is_cut());
        let Some(source) = self.how.names.of(folder(&self.place), &found.head, is_whole) else {
            if self.how.is_once && found.head.is_cut() {
                self.report(": its first line with a time has no end: it is not sent");
            } else if found.head.has_lines_without_time() {
                self.report(" has no line with a time yet: its lines wait");
            }
            return Ok(Some(was_there));
        };
        // rsync replaces a file by a copy with more lines. The copy is read in its place.
        self.parts.retain(|part| part.source != source || !part.is_replaced_by(&found).unwrap_or(false));
        if self.is_taken(others, found.id, &source) {
            if !others.iter().any(|(id, _)| *id == found.id) {
                self.report(" begins as another file that is read: its lines are not sent");
            }
            return Ok(Some(was_there));
        }
        self.reported = None;
        let Some(Position { at, is_of_state, .. }) = sender.position(&source)? else { return Ok(None) };
        let (position, len) = (at.unwrap_or(0), found.len());
        let is_shorter = !found.is_compressed && len < position;
        if !found.is_same() {
            // It was rewritten while the server was asked. The first read finds that, and the next look finds its copy.
        } else if is_shorter && is_of_state {
            return Err(CliError::new(
                log_file::name(self.path),
                format_args!("the file of --state has position {position} for it, and it ends at {len}"),
                "remove that line to send the file from its start",
            ));
        } else if found.is_within_line(position) {
            self.report(&format!(
                " was sent up to byte {position}, which is within a line: lines before that are not sent; was it written anew?"
            ));
        } else if position > 0 && (is_shorter || rewritten.contains(&source)) {
            self.report(&format!(
                " ends at byte {len} and begins as a file that was sent up to byte {position}: lines before that are not sent"
            ));
        }
        self.current = Some(found.id);
        self.is_current_known = at.is_some();
        self.add(found, source, position, now)?;
        // Other files may have had the path since the last look.
        Ok(Some(true))
    }

    fn is_taken(&self, others: &Taken, id: FileId, source: &str) -> bool {
        others.iter().any(|(other, name)| *other == id || name == source)
            || self.parts.iter().any(|part| part.id == id || part.source == source)
    }

    fn add(&mut self, found: Found, source: String, position: u64, now: Timestamp) -> Result<(), CliError> {
        let path = found.path.clone();
        let part = Part::new(found, source, position, self.how.options, now);
        self.parts.push(part.map_err(|error| unreadable(&path, error))?);
        Ok(())
    }

    /// Closes files that were truncated or rewritten. Returns their sources, whose unsent lines are then searched for in copies.
    fn drop_rewritten(&mut self) -> Vec<String> {
        let mut sources = Vec::new();
        // A read error here is ignored, because the next read finds it.
        for gone in self.parts.extract_if(.., |part| part.is_rewritten().unwrap_or(false)) {
            sources.push(gone.source.clone());
            self.scanned.push(gone.into_scanned());
        }
        sources
    }

    /// Finds rotated files with unsent lines: files that the server knows and that are longer now, files that it does not know and that
    /// were written after the mark, and copies of rewritten files. The oldest come first. Returns false if the end was requested.
    fn find_rotated(
        &mut self,
        sender: &mut Sender<'_>,
        others: &Taken,
        rewritten: &[String],
        is_late: bool,
        now: Timestamp,
    ) -> Result<bool, CliError> {
        let Some(position) = sender.position(&self.log_source())? else { return Ok(false) };
        self.mark = position.at;
        if self.mark.is_some() {
            sender.state.remove(&self.start_source());
        }
        self.must_poll_again = false;
        self.has_waiting = false;
        let connection = sender.link.connection();
        if !self.how.is_once && self.polled_on != connection {
            self.finished.clear();
        }
        self.polled_on = connection;
        let rotated = self.rotated_files();
        let is_first_start = self.mark.is_none();
        if is_first_start && !self.set_first_mark(&rotated, sender)? {
            return Ok(false);
        }
        let Some(mark) = self.mark else { return Ok(true) };
        // Whether one of the files was sent before.
        let mut has_known = self.parts.iter().any(|part| match self.current == Some(part.id) {
            true => self.is_current_known || part.connection != 0,
            false => !part.is_deleted(),
        });
        let current = self.parts.iter().find(|part| self.current == Some(part.id));
        let current_ns = current.and_then(|part| part.modified_ns().ok()).unwrap_or(0);
        // Whether an older file has unsent lines. Files between it and the current one were not sent either, even if the clock was set
        // back and they seem older than the mark.
        let mut is_after_unsent = false;
        let mut seen = Vec::new();
        // The newest files without new lines.
        let mut fresh = VecDeque::new();
        // The last file before the next one, if the server has all its lines. Its last line may be cut, and end in the next one.
        let mut last = None;
        for (modified, written_ns, path) in rotated {
            let is_near = written_ns + 2 * COARSE_FILE_TIME_NS >= mark;
            let Ok(found) = Found::open(path, self.how.has_own_times) else {
                self.must_poll_again |= is_near && is_fresh(modified, now);
                self.keeps_mark |= is_near;
                continue;
            };
            // Its writer may continue it for a while.
            let is_fresh = !found.is_compressed && is_fresh(modified, now);
            let Some(source) = self.how.names.of(folder(&self.place), &found.head, !is_fresh) else {
                continue;
            };
            if self.is_taken(others, found.id, &source) {
                has_known |= is_near;
                keep_fresh(&mut fresh, last.take());
                continue;
            }
            let is_copy = rewritten.contains(&source);
            // The length of a compressed file shows only when it is read. Old ones were read before.
            if found.is_compressed && !is_near && !is_copy {
                keep_fresh(&mut fresh, last.take());
                continue;
            }
            let Some(Position { at, .. }) = sender.position(&source)? else { return Ok(false) };
            let is_new =
                |written_ns| latest_ns(written_ns) > mark || (is_after_unsent && written_ns <= current_ns);
            let is_finished = self.finished.iter().any(|(_, name)| *name == source);
            let is_longer = match at {
                None => is_copy || is_new(modified_ns(&found.metadata).unwrap_or(written_ns)),
                Some(_) if found.is_compressed => !is_finished,
                Some(position) => found.len() > position,
            };
            has_known |= at.is_some() && (is_near || is_longer);
            is_after_unsent |= at.is_some() && is_longer && !found.is_compressed;
            seen.push(source.clone());
            let previous = last.take();
            if is_longer && self.parts.len() > MAX_FORMER_FILES {
                self.has_waiting = true;
            } else if is_longer {
                match previous {
                    Some(SentFile { found, source, position, .. }) if at.unwrap_or(0) == 0 => {
                        self.add(found, source, position, now)?;
                    }
                    previous => keep_fresh(&mut fresh, previous),
                }
                self.add(found, source, at.unwrap_or(0), now)?;
            } else {
                keep_fresh(&mut fresh, previous);
                let is_fresh = is_fresh && !self.how.is_once;
                last = at.map(|position| SentFile { found, source, position, is_fresh });
            }
        }
        let is_unsent = |part: &Part<'_>| self.current == Some(part.id) && part.sent == 0;
        if let Some(last) = last.filter(|last| last.is_fresh || self.parts.iter().any(is_unsent)) {
            fresh.push_back(last);
        }
        for SentFile { found, source, position, .. } in fresh {
            if !self.has_waiting && self.parts.len() <= MAX_FORMER_FILES {
                self.add(found, source, position, now)?;
            }
        }
        if !self.how.is_once {
            self.finished.retain(|(_, source)| seen.contains(source));
        }
        if is_late && !is_first_start && !has_known && self.current.is_some() {
            let name = log_file::name(self.path);
            output::message(&format_args!(
                "lately: ship: the file that was {name} and sent last is gone: lines may be missing"
            ));
        }
        // Older lines are sent first, and the end of a cut line is in the next file.
        let current = self.current;
        self.parts
            .sort_by_cached_key(|part| (current == Some(part.id), part.modified_ns().unwrap_or(u64::MAX)));
        Ok(true)
    }

    /// Sets the mark at the first start, because files that were rotated before it are not sent. Returns false if the end was requested.
    fn set_first_mark(
        &mut self,
        rotated: &[(SystemTime, u64, PathBuf)],
        sender: &mut Sender<'_>,
    ) -> Result<bool, CliError> {
        // A start that no server saw was earlier.
        let start = sender.state.get(&self.start_source());
        let current = self.parts.iter().find(|part| self.current == Some(part.id) && !part.is_compressed());
        let mark = match current.and_then(|part| Some((part, part.modified_ns().ok()?))) {
            Some((part, written_ns)) => {
                // The file was just found.
                if part.sent > 0 && part.connection == 0 {
                    output::message(&format_args!(
                        "lately: ship: {} begins as a file that was sent under another name: lines up to byte {} are not sent again",
                        log_file::name(self.path),
                        part.sent
                    ));
                }
                let mark = self.first_mark(Some(written_ns), rotated);
                Some(start.map_or(mark, |start| start.min(mark)))
            }
            None => start,
        };
        let Some(mark) = mark else { return Ok(true) };
        self.mark = sender.advance(&self.log_source(), 0, mark)?;
        Ok(self.mark.is_some())
    }

    /// The mark of a first start. It is before the last write of the current file, whose lines may be sent later. It is after the times of
    /// files that were rotated before the start, also if those times are cut later.
    fn first_mark(&self, written_ns: Option<u64>, rotated: &[(SystemTime, u64, PathBuf)]) -> u64 {
        let started_ms = self.started.saturating_sub(FILE_TIME_SLACK).as_millis();
        let started_ns = u64::try_from(started_ms).unwrap_or(0) * 1_000_000;
        let mut before_start = rotated.iter().map(|(_, modified_ns, _)| *modified_ns).rev();
        let newest = before_start.find(|modified_ns| *modified_ns < started_ns);
        let least = newest.map_or(started_ns, |newest| started_ns.min(newest + COARSE_FILE_TIME_NS));
        written_ns.map_or(least, |written_ns| least.min(written_ns.saturating_sub(1)))
    }

    /// The name of the mark of the first start in the file of --state.
    fn start_source(&self) -> String {
        format!("{}:start", self.log_source())
    }

    /// Sets the mark of a first start in the file of --state, before a server is asked: if none answers until the end, the next start goes on
    /// from there.
    pub(crate) fn set_start(&self, state: &mut State) {
        let source = self.start_source();
        if state.get(&source).is_some() || state.get(&self.log_source()).is_some() {
            return;
        }
        let found = Found::open(self.path.to_owned(), self.how.has_own_times).ok();
        if found.as_ref().is_some_and(|found| found.is_compressed) {
            return;
        }
        // A file without a line that could be sent may be older than rotated ones.
        let found =
            found.filter(|found| self.how.names.of(folder(&self.place), &found.head, false).is_some());
        let written_ns = found.and_then(|found| modified_ns(&found.metadata).ok());
        state.set(&source, self.first_mark(written_ns, &self.rotated_files()));
    }

    /// Whether no server has answered what it knows of the log.
    pub(crate) fn was_never_answered(&self) -> bool {
        self.polled_on == 0 && !self.has_failed
    }

    /// The rotated files in the folder of the log, by the time of their last write.
    fn rotated_files(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let Some(log) = self.place.file_name().map(OsStr::as_encoded_bytes) else { return Vec::new() };
        let Ok(entries) = fs::read_dir(folder(&self.place)) else { return Vec::new() };
        let of_entry = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, modified_ns(&metadata).ok()?, entry.path()))
        };
        let is_rotated = |entry: &fs::DirEntry| is_rotated(entry.file_name().as_encoded_bytes(), log);
        let mut rotated: Vec<_> = entries.flatten().filter(is_rotated).filter_map(of_entry).collect();
        rotated.sort_unstable();
        rotated
    }

    fn report_format(&mut self, format: Option<&str>) {
        if let Some(format) = format.filter(|_| !self.has_reported_format) {
            self.has_reported_format = true;
            output::message(&format_args!("lately: ship: {} is read as {format}", log_file::name(self.path)));
        }
    }

    /// Reports a problem with the file once while it lasts.
    fn report(&mut self, what: &str) {
        if self.reported.as_deref() != Some(what) {
            output::message(&format_args!("lately: ship: {}{what}", log_file::name(self.path)));
            self.reported = Some(what.to_owned());
        }
    }
}

/// The path with all links resolved, also if the file itself is missing.
fn place(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = folder(path);
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        folder.join(path.file_name().unwrap_or_default())
    })
}

/// The latest time at which a file may have been written last. Some programs and file systems cut times to seconds.
fn latest_ns(written_ns: u64) -> u64 {
    let is_cut = written_ns.is_multiple_of(1_000_000_000);
    if is_cut { written_ns + COARSE_FILE_TIME_NS } else { written_ns }
}

/// Whether a file was written in the last [`FORMER_KEPT`].
fn is_fresh(modified: SystemTime, now: Timestamp) -> bool {
    let since_epoch = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let modified_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    now.as_millis() - modified_ms <= FORMER_KEPT.as_millis()
}
