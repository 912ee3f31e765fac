//! Reads a file frame by frame, and finds the next frame behind damage.

use std::io;

use crate::disk::DiskFile;
use crate::frame::{HEAD_BYTES, Head, Kind, MAGIC_BYTES, OLDEST_VERSION, VERSION};
use crate::limits::READ_BYTES;

/// A reader of frames.
pub(crate) struct Scan<'a, F> {
    file: &'a F,
    /// Bytes of the file from `start` on. The first `at` of them have been read.
    buffer: Vec<u8>,
    start: u64,
    at: usize,
    /// The end of the file, or of its valid part.
    end: u64,
    /// The number of the last frame.
    number: Option<u64>,
    /// How far the file was synced, according to the frames that were read.
    synced: u64,
    /// The offsets of frames that are left out, in order.
    misplaced: Vec<u64>,
}

/// The next thing in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// A frame.
    Frame { number: u64, payload: &'a [u8] },
    /// The end.
    End,
    /// Damage, from [`Scan::offset`] on.
    Damage,
}

/// The header of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The header of this kind, with this version.
    Well(u8),
    /// The header of this kind, with an unknown version.
    Version(u8),
    /// Another header, or none.
    Damage,
}

impl<'a, F: DiskFile> Scan<'a, F> {
    /// Reads a file up to `end`, or completely.
    pub(crate) fn new(file: &'a F, end: Option<u64>) -> io::Result<Scan<'a, F>> {
        let size = file.size()?;
        let end = end.map_or(size, |end| end.min(size));
        Ok(Scan {
            file,
            buffer: Vec::new(),
            start: 0,
            at: 0,
            end,
            number: None,
            synced: 0,
            misplaced: Vec::new(),
        })
    }

    /// The offset of the next step.
    pub(crate) fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// The bytes from here to the end.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.offset()
    }

    /// How far the file was synced, according to the frames that were read.
    pub(crate) fn known_synced(&self) -> u64 {
        self.synced
    }

    /// Reads the header of the file. The frames follow.
    pub(crate) fn begin(&mut self, kind: Kind) -> io::Result<Begin> {
        let begin = match kind.version_of(self.peek(MAGIC_BYTES)?) {
            Some(version @ OLDEST_VERSION..=VERSION) => Begin::Well(version),
            Some(other) => Begin::Version(other),
            None => Begin::Damage,
        };
        if let Begin::Well(_) = begin {
            self.skip_begin();
        }
        Ok(begin)
    }

    /// Skips the header, whatever it is.
    pub(crate) fn skip_begin(&mut self) {
        self.go_to((MAGIC_BYTES as u64).min(self.end));
    }

    /// The next frame.
    pub(crate) fn step(&mut self) -> io::Result<Step<'_>> {
        if self.left() == 0 {
            return Ok(Step::End);
        }
        let Some(head) = Head::read(self.peek(HEAD_BYTES)?) else { return Ok(Step::Damage) };
        let frame_bytes = HEAD_BYTES + head.len;
        // Numbers rise. A frame with a lower number is a remainder of an earlier file content.
        let is_next = self.number.is_none_or(|number| head.number > number)
            && (self.misplaced.is_empty() || self.misplaced.binary_search(&self.offset()).is_err());
        if !is_next || !head.fits(self.peek(frame_bytes)?.get(HEAD_BYTES..).unwrap_or_default()) {
            return Ok(Step::Damage);
        }
        self.number = Some(head.number);
        self.synced = self.synced.max(head.synced);
        let payload = self.at + HEAD_BYTES..self.at + frame_bytes;
        self.at += frame_bytes;
        Ok(Step::Frame { number: head.number, payload: &self.buffer[payload] })
    }

    /// Leaves out the fewest whole frames, so that the numbers of all others rise: those of a write that went to a wrong place.
    /// Without this, one of them with a high number hides all that follow it. Does not move.
    pub(crate) fn leave_misplaced_out(&mut self) -> io::Result<()> {
        let (offset, number, synced) = (self.offset(), self.number, self.synced);
        let (mut offsets, mut numbers) = (Vec::new(), Vec::new());
        loop {
            let at = self.offset();
            self.number = None;
            if let Step::Frame { number, .. } = self.step()? {
                offsets.push(at);
                numbers.push(number);
            } else if !self.resume()? {
                break;
            }
        }
        let mut kept = longest_rising(&numbers).into_iter().peekable();
        let misplaced = (0..offsets.len()).filter(|&index| kept.next_if_eq(&index).is_none());
        self.misplaced = misplaced.map(|index| offsets[index]).collect();
        self.go_to(offset);
        (self.number, self.synced) = (number, synced);
        Ok(())
    }

    /// Whether a whole frame is here, wherever it belongs.
    pub(crate) fn is_at_frame(&mut self) -> io::Result<bool> {
        let Some(head) = Head::read(self.peek(HEAD_BYTES)?) else { return Ok(false) };
        let frame_bytes = HEAD_BYTES + head.len;
        Ok(head.fits(self.peek(frame_bytes)?.get(HEAD_BYTES..).unwrap_or_default()))
    }

    /// Continues with the first whole frame behind damage. Returns false and stays if there is none.
    pub(crate) fn resume(&mut self) -> io::Result<bool> {
        let damaged = self.offset();
        while self.left() > 1 {
            self.at += 1;
            // Heads have a checksum, so hardly any wrong place looks like one.
            if Head::read(self.peek(HEAD_BYTES)?).is_some() {
                let (offset, number, synced) = (self.offset(), self.number, self.synced);
                let found = matches!(self.step()?, Step::Frame { .. });
                self.go_to(offset);
                (self.number, self.synced) = (number, synced);
                if found {
                    return Ok(true);
                }
            }
        }
        self.go_to(damaged);
        Ok(false)
    }

    /// How far the file was synced, according to the frames from here on. Does not move.
    pub(crate) fn synced(&mut self) -> io::Result<u64> {
        let (offset, number, synced) = (self.offset(), self.number, self.synced);
        while self.resume()? {
            while matches!(self.step()?, Step::Frame { .. }) {}
        }
        let found = std::mem::replace(&mut self.synced, synced);
        self.go_to(offset);
        self.number = number;
        Ok(found)
    }

    fn go_to(&mut self, offset: u64) {
        match usize::try_from(offset.wrapping_sub(self.start)) {
            Ok(at) if offset >= self.start && at <= self.buffer.len() => self.at = at,
            _ => (self.buffer, self.start, self.at) = (Vec::new(), offset, 0),
        }
    }

    /// The next bytes: `wanted` of them, or fewer at the end.
    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let wanted = usize::try_from(self.left()).map_or(wanted, |left| left.min(wanted));
        if self.buffer.len() < self.at + wanted {
            self.buffer.drain(..self.at.min(self.buffer.len()));
            self.start += self.at as u64;
            self.at = 0;
            let held = self.buffer.len();
            let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
            self.buffer.resize(wanted.max(READ_BYTES).min(left), 0);
            let read = self.file.read_bytes(&mut self.buffer[held..], self.start + held as u64)?;
            self.buffer.truncate(held + read);
            if self.buffer.len() < wanted {
                // The file became shorter after it was opened.
                self.end = self.start + self.buffer.len() as u64;
            }
        }
        let end = self.buffer.len().min(self.at + wanted);
        Ok(&self.buffer[self.at..end])
    }
}

/// The indices of the longest subsequence of numbers that rise (Schensted, "Longest increasing and decreasing subsequences",
/// 1961).
fn longest_rising(numbers: &[u64]) -> Vec<usize> {
    // By length less one: the index where the best subsequence of that length ends, which is the one with the lowest number.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; numbers.len()];
    for (index, &number) in numbers.iter().enumerate() {
        let len = ends.partition_point(|&end| numbers[end] < number);
        before[index] = len.checked_sub(1).map(|len| ends[len]);
        if len == ends.len() { ends.push(index) } else { ends[len] = index }
    }
    let mut longest: Vec<_> = std::iter::successors(ends.last().copied(), |&index| before[index]).collect();
    longest.reverse();
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rising_numbers_are_found() {
        for (numbers, longest) in [
            (&[][..], &[][..]),
            (&[7], &[0]),
            (&[1, 2, 3], &[0, 1, 2]),
            (&[1, 9, 2, 3], &[0, 2, 3]),
            (&[1, 2, 9, 1, 3, 4], &[0, 1, 4, 5]),
            (&[5, 5, 6], &[0, 2]),
            (&[8, 9, 1, 2, 3], &[2, 3, 4]),
        ] {
            let found = longest_rising(numbers);
            let rising = found.windows(2).all(|pair| numbers[pair[0]] < numbers[pair[1]]);
            assert!(rising && found.len() == longest.len(), "{numbers:?}: {found:?}");
        }
        assert_eq!(longest_rising(&[1, 9, 2, 3]), [0, 2, 3]);
    }
}
