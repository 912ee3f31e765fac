//! Requests that are like the one before but for their key, as in a pipeline most are: a comparison finds their arguments.

use std::ops::Range;

use crate::usual::read_bulk;

/// What is the same in a request and those like it, cut at the key.
#[derive(Clone, Debug)]
pub(crate) struct Shape<'b> {
    /// Its bytes up to the length of the key, and where among them the name is.
    before: &'b [u8],
    name: (usize, usize),
    /// Its bytes behind the line of the key, where those begin in the buffer, and the arguments there.
    behind: &'b [u8],
    behind_at: usize,
    others: Range<usize>,
}

impl<'b> Shape<'b> {
    /// Of a request in these bytes with these of the ranges for arguments; `None` when it has no key.
    pub(crate) fn of(
        buffer: &'b [u8],
        bytes: Range<usize>,
        args: Range<usize>,
        ranges: &[(usize, usize)],
    ) -> Option<Shape<'b>> {
        let &[(name_start, name_end), (_, key_end), ..] = ranges.get(args.clone())? else { return None };
        let behind_at = key_end + 2;
        Some(Shape {
            before: &buffer[bytes.start..name_end + 2],
            name: (name_start - bytes.start, name_end - bytes.start),
            behind: &buffer[behind_at..bytes.end],
            behind_at,
            others: args.start + 2..args.end,
        })
    }

    /// Reads a request of this shape at `start`: adds where its arguments lie and gives where it ends. Adds nothing when what
    /// is there has another shape.
    #[inline(always)]
    pub(crate) fn read(
        &self,
        buffer: &[u8],
        start: usize,
        ranges: &mut Vec<(usize, usize)>,
    ) -> Option<usize> {
        let before = buffer.get(start..)?.get(..self.before.len())?;
        if !is_same(before, self.before) {
            return None;
        }
        let key = read_bulk(buffer, start + before.len())?;
        let behind_at = key.1 + 2;
        if !self.behind.is_empty() && !buffer.get(behind_at..)?.starts_with(self.behind) {
            return None;
        }
        ranges.push((self.name.0 + start, self.name.1 + start));
        ranges.push(key);
        for index in self.others.clone() {
            let (arg_start, arg_end) = ranges[index];
            let other = |at: usize| at - self.behind_at + behind_at;
            ranges.push((other(arg_start), other(arg_end)));
        }
        Some(behind_at + self.behind.len())
    }
}

/// Whether these are the same bytes. A comparison of slices is a call; of short ones this is a load or two of each.
#[inline]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    match a.len() {
        _ if a.len() != b.len() => false,
        3 => (a[0], a[1], a[2]) == (b[0], b[1], b[2]),
        4..8 => a.first_chunk::<4>() == b.first_chunk() && a.last_chunk::<4>() == b.last_chunk(),
        8..=16 => a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk(),
        _ => a == b,
    }
}
