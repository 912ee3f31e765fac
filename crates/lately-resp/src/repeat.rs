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
        if !starts_with(buffer.get(start..)?, self.before) {
            return None;
        }
        let key = read_bulk(buffer, start + self.before.len())?;
        let behind_at = key.1 + 2;
        if !starts_with(&buffer[behind_at..], self.behind) {
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

/// Whether bytes start with others. A comparison of slices is a call; of short ones this is a load or two of each.
#[inline(always)]
fn starts_with(bytes: &[u8], start: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..start.len()) else { return false };
    match start.len() {
        0 => true,
        8..=16 => {
            bytes.first_chunk::<8>() == start.first_chunk() && bytes.last_chunk::<8>() == start.last_chunk()
        }
        17..=32 => {
            bytes.first_chunk::<16>() == start.first_chunk() && bytes.last_chunk::<16>() == start.last_chunk()
        }
        _ => bytes == start,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::args::Args;
    use crate::command::{Before, Command};
    use crate::limits::Limits;
    use crate::request::write_request;
    use crate::requests::Requests;

    /// A request: its name, a number that its key is made of, and what follows the key.
    fn request() -> impl Strategy<Value = Vec<String>> {
        let names = prop::sample::select(vec!["HIT", "hit", "LIMIT", "LIMIS", "CL.THROTTLE", "HITS"]);
        let keys = prop::sample::select(vec![0, 1, 1, 2, 2, 2, 16, 16, 17, 98, 99, 100, 1_025]);
        let rests = prop::sample::select(vec![
            "",
            "",
            "5 1m",
            "5 1m",
            "5 1s",
            "5 2m",
            "1 2 3",
            "1 9 3",
            "7",
            "5 1m PEEK",
        ]);
        (names, keys, rests).prop_map(|(name, key, rest)| {
            let key = std::iter::repeat_n('k', key).collect();
            [name.into(), key].into_iter().chain(rest.split_whitespace().map(String::from)).collect()
        })
    }

    proptest! {
        #[test]
        fn requests_are_what_was_sent_whatever_came_before(
            sent in prop::collection::vec((request(), 1..4_usize), 1..12),
            cut in 0..40_usize,
        ) {
            let sent: Vec<_> = sent.into_iter().flat_map(|(request, times)| std::iter::repeat_n(request, times)).collect();
            let (mut buffer, mut ends) = (Vec::new(), Vec::new());
            for words in &sent {
                write_request(&mut buffer, &words.iter().map(String::as_bytes).collect::<Vec<_>>());
                ends.push(buffer.len());
            }
            buffer.truncate(buffer.len() - cut.min(buffer.len()));
            let whole = ends.iter().filter(|&&end| end <= buffer.len()).count();
            let mut requests = Requests::new();
            let progress = requests.parse(&buffer, &Limits::default(), &mut Args::new());
            prop_assert_eq!((requests.len(), progress.consumed), (whole, whole.checked_sub(1).map_or(0, |last| ends[last])));
            let mut before = Before::default();
            for (args, words) in requests.iter(&buffer).zip(&sent) {
                prop_assert!(args.iter().eq(words.iter().map(String::as_bytes)), "{:?}", words);
                let text = |parsed: Result<Command<'_>, _>| format!("{parsed:?}");
                prop_assert_eq!(text(Command::parse_next(args, &mut before)), text(Command::parse(args)));
            }
        }
    }
}
