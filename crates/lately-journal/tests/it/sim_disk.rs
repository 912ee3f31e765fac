//! A disk in memory that loses unsynced data, fails, and stops in the middle of a write.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use lately_journal::{Disk, DiskFile};

use test_support::{Rng, trace};

/// The bytes that a disk writes completely or not at all.
const SECTOR: usize = 512;
/// The error after the end.
const ENDED: &str = "the process ended";

/// A disk that outlives the processes that use it.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Rng,
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    /// The names after a loss of power, and the changes since.
    synced_names: BTreeMap<String, usize>,
    name_changes: Vec<(String, Option<usize>)>,
    /// The bytes that can be written before the process ends. Other operations cost one byte.
    fuel: Option<u64>,
    /// The changes of any kind that can be made before it ends.
    calls: Option<u64>,
    is_dead: bool,
    writes_fail: bool,
    syncs_fail: bool,
    folder_syncs_fail: bool,
    /// The highest total size of the files.
    size: usize,
    /// The highest total size so far.
    most_bytes: usize,
}

#[derive(Default, Debug)]
struct FileState {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    changes: Vec<Change>,
    /// Bytes before this one need not stay in memory.
    released: u64,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl FileState {
    /// Writes a part of the unsynced data.
    fn write_some(&mut self, rng: &mut Rng) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Truncate(size) if rng.once_in(2) => self.synced.truncate(size),
                Change::Truncate(_) => {}
                Change::Write(offset, bytes) => match rng.index(3) {
                    0 => {}
                    1 => write(&mut self.synced, offset, &bytes),
                    _ => {
                        for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
                            if rng.once_in(2) {
                                write(&mut self.synced, offset + sector * SECTOR, bytes);
                            }
                        }
                    }
                },
            }
        }
    }
}

/// A file of the disk.
#[derive(Debug)]
pub(crate) struct SimFile {
    disk: SimDisk,
    file: usize,
}

fn write(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    let end = offset + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(written);
}

impl SimDisk {
    pub(crate) fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            rng: Rng::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            name_changes: Vec::new(),
            fuel: None,
            calls: None,
            is_dead: false,
            writes_fail: false,
            syncs_fail: false,
            folder_syncs_fail: false,
            size: usize::MAX,
            most_bytes: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics in here")
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.is_dead { Err(io::Error::other(ENDED)) } else { Ok(state) }
    }

    /// Starts an operation other than reading or writing, unless the process ends here.
    fn fueled(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.alive()?;
        if state.burn(1) == 1 { Ok(state) } else { Err(io::Error::other(ENDED)) }
    }

    /// From now on, the process ends after this many written bytes.
    pub(crate) fn end_after(&self, bytes: Option<u64>) {
        self.state().fuel = bytes;
    }

    /// From now on, the process ends after this many changes.
    pub(crate) fn end_after_calls(&self, calls: Option<u64>) {
        self.state().calls = calls;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    pub(crate) fn fail_writes(&self, fail: bool) {
        self.state().writes_fail = fail;
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        let mut state = self.state();
        (state.syncs_fail, state.folder_syncs_fail) = (fail, fail);
    }

    /// Files cannot be synced, but their names can.
    pub(crate) fn fail_file_syncs(&self) {
        self.state().syncs_fail = true;
    }

    /// From now on, this is the highest total size of the files.
    pub(crate) fn resize(&self, bytes: usize) {
        self.state().size = bytes;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.state().room() < SECTOR
    }

    /// Another process takes over. Everything written is there.
    pub(crate) fn restart(&self) {
        self.fail_writes(false);
        self.fail_syncs(false);
        let mut state = self.state();
        (state.is_dead, state.fuel, state.calls) = (false, None, None);
    }

    /// A loss of power. Unsynced data is there in part.
    pub(crate) fn lose_power(&self) {
        let mut state = self.state();
        let State { rng, files, names, synced_names, name_changes, .. } = &mut *state;
        let kept = rng.index(name_changes.len() + 1);
        for (name, file) in name_changes.drain(..).take(kept) {
            match file {
                Some(file) => synced_names.insert(name, file),
                None => synced_names.remove(&name),
            };
        }
        *names = synced_names.clone();
        for file in files {
            file.write_some(rng);
            file.bytes.clone_from(&file.synced);
        }
    }

    /// The highest total size of the files since the last call.
    pub(crate) fn take_most_bytes(&self) -> usize {
        let mut state = self.state();
        let bytes = state.bytes();
        std::mem::replace(&mut state.most_bytes, bytes)
    }

    /// The names of the files and their sizes.
    pub(crate) fn files(&self) -> Vec<(String, usize)> {
        let state = self.state();
        state.names.iter().map(|(name, &file)| (name.clone(), state.files[file].bytes.len())).collect()
    }

    /// The bytes of a file that must stay in memory.
    pub(crate) fn unreleased(&self, name: &str) -> u64 {
        let state = self.state();
        let file = &state.files[state.names[name]];
        file.bytes.len() as u64 - file.released
    }

    /// A disk with the same files, all synced.
    pub(crate) fn copy(&self) -> SimDisk {
        let copy = SimDisk::new(0);
        let (state, mut to) = (self.state(), copy.state());
        for (name, &file) in &state.names {
            let bytes = state.files[file].bytes.clone();
            let number = to.files.len();
            to.files.push(FileState { synced: bytes.clone(), bytes, ..FileState::default() });
            to.names.insert(name.clone(), number);
        }
        to.synced_names = to.names.clone();
        drop(to);
        copy
    }

    /// Flips a bit of a file.
    pub(crate) fn flip(&self, name: &str, bit: usize) {
        let mut state = self.state();
        let file = state.names[name];
        state.files[file].bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

impl State {
    /// Uses up fuel. Returns how much of it there was.
    fn burn(&mut self, wanted: usize) -> usize {
        if let Some(calls) = &mut self.calls {
            self.is_dead = *calls == 0;
            *calls = calls.saturating_sub(1);
            if self.is_dead {
                return 0;
            }
        }
        let Some(fuel) = &mut self.fuel else { return wanted };
        let left = usize::try_from(*fuel).unwrap_or(usize::MAX);
        *fuel = fuel.saturating_sub(wanted as u64);
        self.is_dead = left < wanted;
        left.min(wanted)
    }

    fn bytes(&self) -> usize {
        self.names.values().map(|&file| self.files[file].bytes.len()).sum()
    }

    fn room(&self) -> usize {
        self.size.saturating_sub(self.bytes())
    }

    fn rename(&mut self, name: &str, file: Option<usize>) {
        match file {
            Some(file) => self.names.insert(name.to_owned(), file),
            None => self.names.remove(name),
        };
        self.name_changes.push((name.to_owned(), file));
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.alive()?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.fueled()?;
        if state.writes_fail && state.rng.once_in(2) {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = state.files.len();
        trace(|| format!("create {name}, file {file}"));
        state.files.push(FileState::default());
        state.rename(name, Some(file));
        Ok(SimFile { disk: self.clone(), file })
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let file = self.alive()?.find(name)?;
        Ok(SimFile { disk: self.clone(), file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.fueled()?;
        let file = state.find(from)?;
        trace(|| format!("rename {from} to {to}"));
        state.rename(to, Some(file));
        state.rename(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.fueled()?;
        state.find(name)?;
        state.rename(name, None);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.fueled()?;
        trace(|| format!("sync folder, fails: {}", state.folder_syncs_fail));
        if state.folder_syncs_fail {
            return Err(io::Error::other("input/output error"));
        }
        state.synced_names = state.names.clone();
        state.name_changes.clear();
        Ok(())
    }

    fn room(&self) -> io::Result<u64> {
        Ok(self.alive()?.room() as u64)
    }

    fn reserve(&self, name: &str, bytes: u64) -> io::Result<()> {
        let found = self.alive()?.find(name);
        let file = found.or_else(|_| self.create(name).map(|file| file.file))?;
        let mut state = self.fueled()?;
        let size = usize::try_from(bytes).expect("small");
        let grows = size.saturating_sub(state.files[file].bytes.len());
        if state.room() < grows {
            return Err(ErrorKind::StorageFull.into());
        }
        state.files[file].bytes.resize(size, 0);
        state.most_bytes = state.most_bytes.max(state.bytes());
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.alive()?.files[self.file].bytes.len() as u64)
    }

    fn read_bytes(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.alive()?;
        let bytes = &state.files[self.file].bytes;
        let offset = usize::try_from(offset).expect("small").min(bytes.len());
        let count = into.len().min(bytes.len() - offset);
        into[..count].copy_from_slice(&bytes[offset..offset + count]);
        Ok(count)
    }

    fn write_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.alive()?;
        let offset = usize::try_from(offset).expect("small");
        let mut result = Ok(());
        let mut count = bytes.len();
        // On a full disk some writes still find room.
        if state.writes_fail && state.rng.once_in(2) {
            count = state.rng.index(bytes.len() + 1);
            result = Err(ErrorKind::StorageFull.into());
        }
        let grows = (offset + count).saturating_sub(state.files[self.file].bytes.len());
        let lacks = grows.saturating_sub(state.room());
        if lacks > 0 {
            count = count.saturating_sub(lacks);
            result = Err(ErrorKind::StorageFull.into());
        }
        let burnt = state.burn(count);
        if burnt < count {
            count = burnt;
            result = Err(io::Error::other(ENDED));
        }
        let file = &mut state.files[self.file];
        write(&mut file.bytes, offset, &bytes[..count]);
        file.changes.push(Change::Write(offset, bytes[..count].to_vec()));
        state.most_bytes = state.most_bytes.max(state.bytes());
        result
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut state = self.disk.fueled()?;
        let size = usize::try_from(size).expect("small");
        trace(|| format!("truncate file {} to {size}", self.file));
        let file = &mut state.files[self.file];
        file.bytes.truncate(size);
        file.changes.push(Change::Truncate(size));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.fueled()?;
        let fails = state.syncs_fail;
        trace(|| format!("sync file {}, fails: {fails}", self.file));
        let State { rng, files, .. } = &mut *state;
        let file = &mut files[self.file];
        if fails {
            // Everything counts as written from now on, and lost data never comes back.
            file.write_some(rng);
            return Err(io::Error::other("input/output error"));
        }
        for change in std::mem::take(&mut file.changes) {
            match change {
                Change::Write(offset, bytes) => write(&mut file.synced, offset, &bytes),
                Change::Truncate(size) => file.synced.truncate(size),
            }
        }
        Ok(())
    }

    fn release(&self, bytes: Range<u64>) {
        let Ok(mut state) = self.disk.alive() else { return };
        let file = &mut state.files[self.file];
        assert!(bytes.start >= file.released, "once is enough");
        for change in &file.changes {
            if let Change::Write(offset, _) = change {
                assert!(*offset as u64 >= bytes.end, "what is released is synced");
            }
        }
        file.released = bytes.end;
    }
}
