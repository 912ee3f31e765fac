//! This program once more, to write batches as a server would, and to be killed while they are not all synced.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use super::batches::{BATCH_BYTES, Batches};
use super::carrier::Kind;
use crate::clock::{nanos_between, now, process_nanos};
use crate::memory::resident_of;
use crate::say;

/// The hidden first argument: a carrier, by its place among them, and a number of batches follow. The carrier is
/// in the folder that the process works in.
const CHILD: &str = "--write-journal";
/// How often there is a sync.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// Batches that follow the last sync.
pub(super) const TAIL: u64 = 1_000;

/// What it took to write the batches that were synced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Written {
    /// From before the first batch to after the last sync.
    pub(super) nanos: f64,
    /// What of that was spent in syncs.
    pub(super) sync_nanos: f64,
    /// The processor time of all threads.
    pub(super) cpu_nanos: f64,
    /// Bytes that the process had the system write for each byte of a batch.
    pub(super) bytes_a_byte: f64,
    /// What the process has of the machine's memory, its program left out.
    pub(super) resident_bytes: f64,
}

/// Has another process write so many batches and a tail that is not synced, and kills it.
pub(super) fn write_and_kill(kind: Kind, folder: &Path, batches: u64) -> Result<Written> {
    let place = Kind::ALL.iter().position(|&other| other == kind);
    let place = place.ok_or_else(|| Error::other("a carrier that is not in the table"))?;
    let child = Command::new(std::env::current_exe()?)
        .args([CHILD, &place.to_string(), &batches.to_string()])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut child = Killed(child);
    let out = child.0.stdout.take().ok_or_else(|| Error::other("a pipe was asked for"))?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let process = child.0.id();
    let [nanos, sync_nanos, cpu_nanos] = parse(&line)
        .ok_or_else(|| Error::other(format!("the process that writes said `{}`", line.trim())))?;
    let text = std::fs::read_to_string(format!("/proc/{process}/io"))?;
    let bytes =
        bytes_written(&text).ok_or_else(|| Error::other("/proc: no line such as `write_bytes: 1`"))?;
    let resident_bytes = resident_of(process).map_err(Error::other)?;
    let bytes_a_byte = bytes / ((batches + TAIL) as f64 * BATCH_BYTES as f64);
    Ok(Written { nanos, sync_nanos, cpu_nanos, bytes_a_byte, resident_bytes })
}

/// A process that does not outlive its handle, and gets no time to clean up.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn parse(line: &str) -> Option<[f64; 3]> {
    let numbers = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()?;
    numbers.try_into().ok()
}

fn bytes_written(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.trim().parse().ok()
}

/// Writes and waits for its end, if the first argument says so.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first()? != CHILD {
        return None;
    }
    let number = |at: usize| words.get(at).and_then(|word| word.to_str()?.parse::<u32>().ok());
    let kind = number(1).and_then(|place| Kind::ALL.get(place as usize));
    let done = match (kind, number(2)) {
        (Some(&kind), Some(batches)) => write_and_wait(kind, u64::from(batches)),
        _ => Err(Error::other(format!("{CHILD} takes the numbers its parent gives it"))),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::message(format_args!("lately-bench: {error}"));
            ExitCode::from(2)
        }
    })
}

fn write_and_wait(kind: Kind, count: u64) -> Result<()> {
    let mut batches = Batches::new();
    let mut carrier = kind.open(Path::new("."), half_of(count))?;
    let (start, busy, mut sync_nanos) = (now(), process_nanos(), 0.0);
    let mut last_sync = start;
    for number in 0..count {
        carrier.append(number, batches.batch(number))?;
        let written = now();
        if number + 1 == count || written.duration_since(last_sync) >= SYNC_INTERVAL {
            carrier.sync()?;
            last_sync = now();
            sync_nanos += nanos_between(written, last_sync);
        }
    }
    let (nanos, cpu_nanos) = (nanos_between(start, last_sync), process_nanos() - busy);
    for number in count..count + TAIL {
        carrier.append(number, batches.batch(number))?;
    }
    say::data(&format!("{nanos} {sync_nanos} {cpu_nanos}\n"))?;
    // The end is a kill; should the parent be gone, so is the other end of this.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    std::io::stdout().flush()
}

/// The batch before which the journal is cut.
pub(super) fn half_of(batches: u64) -> u64 {
    (batches + TAIL) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        assert_eq!(parse("1 2.5 3\n"), Some([1.0, 2.5, 3.0]));
        assert_eq!(parse("1 2\n"), None);
        assert_eq!(parse(""), None);
        assert_eq!(bytes_written("wchar: 7\nwrite_bytes: 4096\ncancelled_write_bytes: 0\n"), Some(4_096.0));
        assert_eq!(bytes_written("wchar: 7\n"), None);
    }
}
