//! Reads a file frame by frame, and finds the next frame behind damage.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

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
    /// Where frames are left out, in order.
    misplaced: Vec<Range<u64>>,
    /// Frames from this number on belong to a later file.
    below: Option<u64>,
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
            below: None,
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
        let Some(head) = self.whole_frame()? else { return Ok(Step::Damage) };
        let frame_bytes = HEAD_BYTES + head.len;
        // Numbers rise. A frame with a lower number is a remainder of an earlier file content.
        let is_next = self.number.is_none_or(|number| head.number > number)
            && self.below.is_none_or(|below| head.number < below)
            && !self.is_misplaced(self.offset());
        if !is_next {
            return Ok(Step::Damage);
        }
        self.number = Some(head.number);
        self.synced = self.synced.max(head.synced);
        let payload = self.at + HEAD_BYTES..self.at + frame_bytes;
        self.at += frame_bytes;
        Ok(Step::Frame { number: head.number, payload: &self.buffer[payload] })
    }

    /// Leaves out few whole frames, so that the numbers of all others rise: those of a write that went to a wrong place.
    /// Without this, one of them with a high number hides all that follow it. Does not move.
    pub(crate) fn leave_misplaced_out(&mut self) -> io::Result<()> {
        let (offset, number, synced) = (self.offset(), self.number, self.synced);
        let mut order = Order::default();
        loop {
            let start = self.offset();
            self.number = None;
            if let Step::Frame { number, .. } = self.step()? {
                order.add(Place { number, start, end: self.offset() });
            } else if !self.resume()? {
                break;
            }
        }
        self.misplaced = order.misplaced();
        self.go_to(offset);
        (self.number, self.synced) = (number, synced);
        Ok(())
    }

    fn is_misplaced(&self, offset: u64) -> bool {
        let next = self.misplaced.partition_point(|range| range.end <= offset);
        self.misplaced.get(next).is_some_and(|range| range.start <= offset)
    }

    /// Frames from this number on belong to a later file. One of them here is in the wrong place.
    pub(crate) fn end_before(&mut self, number: u64) {
        self.below = Some(number);
    }

    /// Whether a whole frame is here, wherever it belongs.
    pub(crate) fn is_at_frame(&mut self) -> io::Result<bool> {
        Ok(self.whole_frame()?.is_some())
    }

    /// The head of the frame that is here, if all of it has the right checksums.
    fn whole_frame(&mut self) -> io::Result<Option<Head>> {
        let Some(head) = Head::read(self.peek(HEAD_BYTES)?) else { return Ok(None) };
        let payload = self.peek(HEAD_BYTES + head.len)?.get(HEAD_BYTES..).unwrap_or_default();
        Ok(Some(head).filter(|head| head.fits(payload)))
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

/// A frame: its number and where it is.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    start: u64,
    end: u64,
}

/// Finds frames that are in a wrong place, by their numbers, which rise in a file. Where a number is lower than the one before it, either
/// the frames before it are wrong, or those from it on: the fewer are.
#[derive(Default)]
struct Order {
    /// The newest frames that are right, as far as is known: at most [`LOOKED_BACK`].
    right: VecDeque<Place>,
    /// Frames with lower numbers behind them.
    lower: Vec<Place>,
    /// Where wrong frames are.
    wrong: Vec<Range<u64>>,
}

/// Frames that a write to a wrong place can have at most, to be found before all that follow are taken for wrong.
const LOOKED_BACK: usize = 4_096;

impl Order {
    fn add(&mut self, place: Place) {
        let rises = |last: Option<&Place>| last.is_none_or(|last| last.number < place.number);
        if rises(self.right.back()) {
            self.leave_out_lower();
            self.keep(place);
        } else if rises(self.lower.last()) && self.lower.len() <= LOOKED_BACK {
            self.lower.push(place);
            let first = self.lower[0].number;
            let higher = self.right.iter().rev().take_while(|right| right.number >= first).count();
            if self.lower.len() > higher {
                self.right
                    .drain(self.right.len() - higher..)
                    .for_each(|place| self.wrong.push(place.start..place.end));
                std::mem::take(&mut self.lower).into_iter().for_each(|place| self.keep(place));
            }
        } else {
            self.wrong.push(place.start..place.end);
        }
    }

    fn keep(&mut self, place: Place) {
        self.right.push_back(place);
        if self.right.len() > LOOKED_BACK {
            self.right.pop_front();
        }
    }

    fn leave_out_lower(&mut self) {
        self.lower.drain(..).for_each(|place| self.wrong.push(place.start..place.end));
    }

    /// Where wrong frames are, in order. Adjacent ones are one range.
    fn misplaced(mut self) -> Vec<Range<u64>> {
        self.leave_out_lower();
        self.wrong.sort_unstable_by_key(|range| range.start);
        self.wrong.dedup_by(|next, range| {
            let is_next = next.start == range.end;
            if is_next {
                range.end = next.end;
            }
            is_next
        });
        self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_a_wrong_place_are_found() {
        let check = |numbers: &[u64], expected: &[u64]| {
            let mut order = Order::default();
            let places = (0..).zip(numbers).map(|(start, &number)| Place { number, start, end: start + 1 });
            places.for_each(|place| order.add(place));
            let found: Vec<u64> = order.misplaced().into_iter().flatten().collect();
            assert_eq!(found, expected, "{numbers:?}");
        };
        check(&[], &[]);
        check(&[1, 2, 3], &[]);
        check(&[1, 9, 3, 4], &[1]);
        check(&[1, 2, 1, 4, 5], &[2]);
        check(&[1, 8, 9, 3, 4, 5, 6], &[1, 2]);
        check(&[5, 5, 6], &[1]);
        check(&[8, 9, 1, 2, 3], &[0, 1]);
        check(&[1, 2, 3, 1, 2], &[3, 4]);
        check(&[1, 9, 3, 2, 4, 5], &[1, 3]);
        let many: Vec<u64> = (0..20_000).chain([5]).chain(20_000..30_000).collect();
        check(&many, &[20_000]);
    }
}
