//! The arguments of a request: their places in the read buffer, and a view of them as byte strings.

use crate::limits::{IDLE_ARGUMENTS, KEPT_CAPACITY};

/// The arguments of one request, and the parser's progress with an incomplete request.
///
/// Made to be reused: it keeps its memory from one request to the next.
#[derive(Default, Debug)]
pub struct Args {
    /// Start and end of each argument, in the read buffer or in `unquoted`.
    pub(crate) ranges: Vec<(usize, usize)>,
    /// The words of an inline command without their quotes.
    pub(crate) unquoted: Vec<u8>,
    pub(crate) source: Source,
    pub(crate) progress: Progress,
}

/// The buffer that has the bytes of the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Source {
    #[default]
    Buffer,
    Unquoted,
}

/// Where to continue in an array that is incomplete.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Progress {
    /// Bytes that are parsed already.
    pub(crate) position: usize,
    /// Arguments that are still missing.
    pub(crate) missing: usize,
}

impl Args {
    /// No arguments.
    #[must_use]
    pub fn new() -> Args {
        Args::default()
    }

    /// The arguments of a complete request, out of the buffer it was parsed from. Panics if the buffer is
    /// shorter than the request.
    #[must_use]
    pub fn list<'a>(&'a self, buffer: &'a [u8]) -> ArgList<'a> {
        let bytes = match self.source {
            Source::Buffer => buffer,
            Source::Unquoted => &self.unquoted,
        };
        ArgList { bytes, ranges: &self.ranges }
    }

    /// The memory that it holds, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(usize, usize)>() + self.unquoted.capacity()
    }

    /// Frees the memory of a long request, unless such a request is incomplete.
    pub fn release(&mut self) {
        if self.progress.position == 0 {
            self.ranges.clear();
            self.ranges.shrink_to(IDLE_ARGUMENTS);
            self.unquoted = Vec::new();
        }
    }

    /// Drops an incomplete request, so that another buffer can be parsed.
    pub fn reset(&mut self) {
        self.progress = Progress::default();
        self.clear(Source::Buffer);
    }

    pub(crate) fn clear(&mut self, source: Source) {
        self.source = source;
        self.ranges.clear();
        self.ranges.shrink_to(KEPT_CAPACITY);
        self.unquoted.clear();
        self.unquoted.shrink_to(KEPT_CAPACITY);
    }
}

/// A view of arguments, borrowed from the read buffer.
#[derive(Clone, Copy, Debug)]
pub struct ArgList<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) ranges: &'a [(usize, usize)],
}

impl<'a> ArgList<'a> {
    /// The number of arguments.
    #[must_use]
    pub fn len(self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.ranges.is_empty()
    }

    /// The argument at `index`, or `None` past the last.
    #[must_use]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|&(start, end)| &self.bytes[start..end])
    }

    /// The arguments one by one.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone {
        self.ranges.iter().map(move |&(start, end)| &self.bytes[start..end])
    }

    /// The arguments from `index` on. Empty if there are fewer.
    #[must_use]
    pub fn from(self, index: usize) -> ArgList<'a> {
        ArgList { ranges: self.ranges.get(index..).unwrap_or_default(), ..self }
    }

    /// The first `count` arguments, or all when there are fewer.
    #[must_use]
    pub fn first(self, count: usize) -> ArgList<'a> {
        ArgList { ranges: &self.ranges[..count.min(self.ranges.len())], ..self }
    }
}

/// Compares the bytes of the arguments, not their places.
impl PartialEq for ArgList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ArgList<'_> {}
