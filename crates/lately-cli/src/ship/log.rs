//! A log that is sent: the file that has its path, and those that had it before. Each is read to its end, over renames, copies and
//! compression, because the server knows files by what they begin with.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lately::Timestamp;
use lately_logs::{Options, Scanned};

use crate::error::CliError;
use crate::limits::{FORMER_KEPT, MAX_SHIP_SIBLINGS, SHIP_HEAD_BYTES};
use crate::live::claims::FileId;
use crate::log_file;
use crate::new_file::folder;
use crate::output;
use crate::ship::name::Names;
use crate::ship::part::{Filled, Found, Part, PartError, id_of};
use crate::ship::sender::{Sender, Sent, unreadable};

/// A log by its path.
pub(crate) struct Log<'a> {
    path: &'a Path,
    /// Its folder, whatever links lead there.
    folder: PathBuf,
    options: &'a Options,
    names: &'a Names,
    /// Whether it is read to its end once.
    is_once: bool,
    parts: Vec<Part<'a>>,
    current: Option<FileId>,
    has_looked: bool,
    is_done: bool,
    /// What was in the files that were read to their end.
    scanned: Vec<Scanned>,
    told: Option<String>,
    has_told_format: bool,
    /// Whether a file beside the log could not be opened: it may have got another name at that moment.
    is_to_look_again: bool,
    /// Compressed files that were read to their end.
    finished: VecDeque<String>,
}

/// How a round of a log went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// All that is there was sent.
    AtEnd,
    /// There is more.
    More,
    /// The end was asked for, and the server does not answer.
    Stopped,
}

/// Files that logs read, by number and by name for the server.
pub(crate) type Taken = Vec<(FileId, String)>;

impl<'a> Log<'a> {
    pub(crate) fn new(path: &'a Path, options: &'a Options, names: &'a Names, is_once: bool) -> Log<'a> {
        let beside = folder(path);
        Log {
            path,
            folder: fs::canonicalize(beside).unwrap_or_else(|_| beside.to_owned()),
            options,
            names,
            is_once,
            parts: Vec::new(),
            current: None,
            has_looked: false,
            is_done: false,
            scanned: Vec::new(),
            told: None,
            has_told_format: options.format.is_some(),
            is_to_look_again: false,
            finished: VecDeque::new(),
        }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// Whether it was to be read once, and was.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Files it reads.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (FileId, String)> {
        self.parts.iter().map(|part| (part.id, part.source.clone()))
    }

    /// What was in its files.
    pub(crate) fn scanned(self) -> impl Iterator<Item = Scanned> {
        self.scanned.into_iter().chain(self.parts.into_iter().map(Part::into_scanned))
    }

    /// Looks which files there are, and sends what is new in them. `others` are the files of other logs.
    pub(crate) fn round(
        &mut self,
        sender: &mut Sender<'_>,
        others: &Taken,
        now: Timestamp,
    ) -> Result<Round, CliError> {
        if !self.look(sender, others, now)? {
            return Ok(Round::Stopped);
        }
        let mut all = Round::AtEnd;
        let mut index = 0;
        while index < self.parts.len() {
            let part = &mut self.parts[index];
            let filled = match part.fill(now) {
                Ok(filled) => filled,
                // It does not keep the log from being sent.
                Err(PartError::Read(error)) if !self.is_once && self.current != Some(part.id) => {
                    let name = log_file::name(&part.path);
                    output::message(&format_args!("lately: ship: {name}: {error}; its rest is not sent"));
                    self.scanned.push(self.parts.remove(index).into_scanned());
                    continue;
                }
                Err(error) => return Err(unreadable(&part.path, error)),
            };
            let format = part.format();
            self.tell_format(format);
            let part = &mut self.parts[index];
            match sender.send(part)? {
                Sent::Done => {}
                Sent::Restarted => {
                    all = Round::More;
                    index += 1;
                    continue;
                }
                Sent::Stopped => return Ok(Round::Stopped),
            }
            if filled == Filled::More {
                all = Round::More;
            } else if self.is_over(index, now) {
                match self.finish(index, sender)? {
                    Sent::Done => continue,
                    Sent::Restarted => all = Round::More,
                    Sent::Stopped => return Ok(Round::Stopped),
                }
            }
            index += 1;
        }
        Ok(all)
    }

    /// Whether nothing more will come in a file that was read to its end.
    fn is_over(&self, index: usize, now: Timestamp) -> bool {
        let part = &self.parts[index];
        let is_quiet = now.as_millis() - part.quiet_since.as_millis() > FORMER_KEPT.as_millis();
        let is_former = self.current != Some(part.id);
        self.is_once
            || part.is_compressed()
            || (is_former && is_quiet && (self.current.is_some() || part.is_deleted()))
    }

    /// Sends the last line of a file, if it has no end, and closes it.
    fn finish(&mut self, index: usize, sender: &mut Sender<'_>) -> Result<Sent, CliError> {
        let part = &mut self.parts[index];
        if let Err(error) = part.finish() {
            return Err(unreadable(&part.path, error));
        }
        let sent = sender.send(part)?;
        if sent == Sent::Done {
            let part = self.parts.remove(index);
            if part.is_compressed() {
                self.finished.push_back(part.source.clone());
                if self.finished.len() > MAX_SHIP_SIBLINGS {
                    self.finished.pop_front();
                }
            }
            self.scanned.push(part.into_scanned());
            self.is_done |= self.is_once;
        }
        Ok(sent)
    }

    /// Finds the file that has the path, and others whose rest was not sent. False when the end was asked for.
    fn look(&mut self, sender: &mut Sender<'_>, others: &Taken, now: Timestamp) -> Result<bool, CliError> {
        let is_first = !self.has_looked;
        let rewritten = self.drop_rewritten();
        let mut is_changed = !rewritten.is_empty() || is_first || self.is_to_look_again;
        let found = match fs::metadata(self.path) {
            Ok(metadata) if self.parts.iter().any(|part| part.id == id_of(&metadata)) => {
                is_changed |= self.current != Some(id_of(&metadata));
                self.current = Some(id_of(&metadata));
                None
            }
            Ok(_) => Some(Found::open(self.path.to_owned(), SHIP_HEAD_BYTES)),
            Err(error) => Some(Err(error)),
        };
        match found {
            None => self.told = None,
            Some(Err(error)) => {
                self.tell(&match error.kind() {
                    io::ErrorKind::NotFound => "is not there: it is waited for".to_owned(),
                    _ => error.to_string(),
                });
                is_changed |= self.current.take().is_some();
            }
            Some(Ok(found)) => {
                self.told = None;
                is_changed |= self.current.take().is_some();
                let is_whole = self.is_once || found.is_compressed;
                match self.names.of(&self.folder, &found.head, is_whole) {
                    None => self.is_done |= is_whole,
                    Some(source) if self.is_taken(others, found.id, &source) => {
                        if !others.iter().any(|(id, _)| *id == found.id) {
                            self.tell("begins as another file that is read: it is not read twice");
                        }
                        self.is_done |= self.is_once;
                    }
                    Some(source) => {
                        let Some((_, position)) = sender.position(&source)? else { return Ok(false) };
                        self.current = Some(found.id);
                        self.add(found, source, position.unwrap_or(0), now)?;
                        // Others may have had the path since the last look.
                        is_changed = true;
                    }
                }
            }
        }
        self.has_looked = true;
        if !is_changed || self.is_once {
            return Ok(true);
        }
        let is_there = self.look_beside(sender, others, now)?;
        if is_there && rewritten.iter().any(|source| self.parts.iter().all(|part| part.source != *source)) {
            let name = log_file::name(self.path);
            output::message(&format_args!(
                "lately: ship: {name} was truncated without a copy: lines may be missing"
            ));
        }
        Ok(is_there)
    }

    fn is_taken(&self, others: &Taken, id: FileId, source: &str) -> bool {
        others.iter().any(|(other, name)| *other == id || name == source)
            || self.parts.iter().any(|part| part.id == id || part.source == source)
    }

    fn add(&mut self, found: Found, source: String, position: u64, now: Timestamp) -> Result<(), CliError> {
        let path = found.path.clone();
        let part = Part::new(found, source, position, self.options, now);
        self.parts.push(part.map_err(|error| unreadable(&path, error))?);
        Ok(())
    }

    /// Closes files that were truncated or written anew; gives their sources. What was not sent of them is looked for beside them.
    fn drop_rewritten(&mut self) -> Vec<String> {
        let mut sources = Vec::new();
        // What cannot be read now is found out when it is read.
        for gone in self.parts.extract_if(.., |part| part.is_rewritten().unwrap_or(false)) {
            sources.push(gone.source.clone());
            self.scanned.push(gone.into_scanned());
        }
        sources
    }

    /// Looks for files beside the log that have lines that were not sent: those that the server knows and that are longer by now, and
    /// those it does not know that were written after one that it knows.
    fn look_beside(
        &mut self,
        sender: &mut Sender<'_>,
        others: &Taken,
        now: Timestamp,
    ) -> Result<bool, CliError> {
        let mut oldest_known: Option<SystemTime> = None;
        let mut unknown = Vec::new();
        for found in self.beside(now) {
            let modified = found.metadata.modified().ok();
            // Its writer may go on with it for a while.
            let is_fresh = !found.is_compressed && modified.is_some_and(|modified| is_fresh(modified, now));
            let Some(source) = self.names.of(&self.folder, &found.head, !is_fresh) else { continue };
            if self.is_taken(others, found.id, &source) {
                // It may have been compressed since.
                let is_own = self.parts.iter().any(|part| part.id == found.id || part.source == source);
                if is_own {
                    oldest_known = oldest_known.into_iter().chain(modified).min();
                }
                continue;
            }
            let Some((_, position)) = sender.position(&source)? else { return Ok(false) };
            match position {
                Some(position) => {
                    oldest_known = oldest_known.into_iter().chain(modified).min();
                    let is_longer = match found.is_compressed {
                        true => !self.finished.contains(&source),
                        false => found.metadata.len() > position,
                    };
                    if is_longer || is_fresh {
                        self.add(found, source, position, now)?;
                    }
                }
                None => unknown.push((modified, found, source)),
            }
        }
        for (modified, found, source) in unknown {
            let is_newer = modified.zip(oldest_known).is_some_and(|(modified, known)| modified >= known);
            if is_newer && !self.is_taken(others, found.id, &source) {
                self.add(found, source, 0, now)?;
            }
        }
        // Older lines are sent first.
        let current = self.current;
        self.parts.sort_by_key(|part| current == Some(part.id));
        Ok(true)
    }

    /// Files in the folder of the log whose names start with its name, the newest; plain ones first.
    fn beside(&mut self, now: Timestamp) -> Vec<Found> {
        let Some(name) = self.path.file_name() else { return Vec::new() };
        let Ok(entries) = fs::read_dir(folder(self.path)) else { return Vec::new() };
        let is_beside = |entry: &fs::DirEntry| {
            let of_entry = entry.file_name();
            of_entry != name && of_entry.as_encoded_bytes().starts_with(name.as_encoded_bytes())
        };
        let mut newest: Vec<_> = entries
            .flatten()
            .filter(is_beside)
            .filter_map(|entry| {
                Some((entry.metadata().ok().filter(fs::Metadata::is_file)?.modified().ok()?, entry.path()))
            })
            .collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        newest.truncate(MAX_SHIP_SIBLINGS);
        self.is_to_look_again = false;
        let mut found = Vec::new();
        for (modified, path) in newest {
            match Found::open(path, SHIP_HEAD_BYTES) {
                Ok(opened) => found.push(opened),
                Err(_) => self.is_to_look_again |= is_fresh(modified, now),
            }
        }
        found.sort_by_key(|found| found.is_compressed);
        found
    }

    fn tell_format(&mut self, format: Option<&str>) {
        if let Some(format) = format.filter(|_| !self.has_told_format) {
            self.has_told_format = true;
            output::message(&format_args!("lately: ship: {} is read as {format}", log_file::name(self.path)));
        }
    }

    /// Reports what is wrong with the file, once until it is over.
    fn tell(&mut self, what: &str) {
        if self.told.as_deref() != Some(what) {
            output::message(&format_args!("lately: ship: {} {what}", log_file::name(self.path)));
            self.told = Some(what.to_owned());
        }
    }
}

/// Whether a file was written in the last [`FORMER_KEPT`].
fn is_fresh(modified: SystemTime, now: Timestamp) -> bool {
    let since_epoch = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let modified_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    now.as_millis() - modified_ms <= FORMER_KEPT.as_millis()
}
