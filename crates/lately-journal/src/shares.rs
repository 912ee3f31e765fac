//! A file of items that are sorted into shares, which can be read one at a time.
//!
//! A share is written in runs, between the runs of other shares.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::limits::{RUN_BYTES, SHARES};

/// Shares in a file.
pub(crate) struct Shares<F> {
    file: F,
    end: u64,
    shares: Vec<Share>,
    runs: usize,
}

#[derive(Clone, Default)]
struct Share {
    /// Bytes that are not written yet.
    waiting: Vec<u8>,
    /// The offsets and the lengths of its runs.
    runs: Vec<(u64, usize)>,
}

impl<F: Read + Write + Seek> Shares<F> {
    /// Shares in an empty file.
    pub(crate) fn new(file: F) -> Shares<F> {
        Shares { file, end: 0, shares: vec![Share::default(); SHARES], runs: 0 }
    }

    /// Calls `append` to append an item to a share.
    pub(crate) fn append(&mut self, share: usize, append: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let waiting = &mut self.shares[share].waiting;
        append(waiting);
        if waiting.len() < RUN_BYTES {
            return Ok(());
        }
        self.write(share)
    }

    fn write(&mut self, share: usize) -> io::Result<()> {
        let Share { waiting, runs } = &mut self.shares[share];
        if waiting.is_empty() {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(waiting)?;
        runs.push((self.end, waiting.len()));
        self.runs += 1;
        self.end += waiting.len() as u64;
        waiting.clear();
        waiting.shrink_to(2 * RUN_BYTES);
        Ok(())
    }

    /// Calls `take` with the items of a share, in the order in which they were appended. It gets
    /// `piece_bytes` at once, or up to a run more, and at least one item. Errors of the file are converted by
    /// `failed`.
    pub(crate) fn read<E>(
        &mut self,
        share: usize,
        piece_bytes: usize,
        failed: impl Fn(io::Error) -> E,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.write(share).map_err(&failed)?;
        self.shares[share].waiting = Vec::new();
        let mut piece = Vec::new();
        for &(start, len) in &self.shares[share].runs {
            let before = piece.len();
            piece.resize(before + len, 0);
            let read = self.file.seek(SeekFrom::Start(start));
            read.and_then(|_| self.file.read_exact(&mut piece[before..])).map_err(&failed)?;
            if piece.len() >= piece_bytes {
                take(&piece)?;
                piece.clear();
            }
        }
        if piece.is_empty() { Ok(()) } else { take(&piece) }
    }

    /// The shares that are not empty.
    pub(crate) fn filled(&self) -> Vec<usize> {
        let is_filled = |share: &usize| {
            let Share { waiting, runs } = &self.shares[*share];
            !waiting.is_empty() || !runs.is_empty()
        };
        (0..SHARES).filter(is_filled).collect()
    }

    /// Memory that grows with the file, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.runs * size_of::<(u64, usize)>()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn shares_are_read_in_pieces_of_whole_items() {
        let mut shares = Shares::new(Cursor::new(Vec::new()));
        let item = |number: usize| vec![u8::try_from(number % 251).expect("a byte"); 1 + number % 700];
        let items = 50 * SHARES;
        for number in 0..items {
            let appended = shares.append(number % SHARES, |bytes| bytes.extend(item(number)));
            appended.expect("written");
        }
        assert!(shares.held_bytes() > 0);
        // The memory of an item larger than a run is freed.
        shares.append(1, |bytes| bytes.resize(bytes.len() + 50 * RUN_BYTES, 7)).expect("written");
        assert!(shares.shares[1].waiting.capacity() <= 2 * RUN_BYTES);
        for share in [0, 2, SHARES - 1, 0] {
            for piece_bytes in [0, RUN_BYTES + 1, usize::MAX] {
                let (mut read, mut pieces) = (Vec::new(), 0);
                let taken = shares.read(
                    share,
                    piece_bytes,
                    |error| error,
                    |piece| {
                        pieces += 1;
                        read.extend_from_slice(piece);
                        Ok(())
                    },
                );
                taken.expect("read");
                let wanted: Vec<u8> = (share..items).step_by(SHARES).flat_map(item).collect();
                assert!(read == wanted, "share {share}");
                assert!((piece_bytes == usize::MAX) == (pieces == 1), "{pieces} pieces");
            }
        }
        let failed = shares.read(1, 0, |error| error, |_| Err(io::Error::other("enough")));
        assert_eq!(failed.expect_err("the error of the callback").to_string(), "enough");
    }
}
