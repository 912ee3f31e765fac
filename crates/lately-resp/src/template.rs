//! Recognizes requests that differ from the one before only in their key, like most in a pipeline. A
//! comparison of bytes finds their arguments, and the server repeats the last operation with the new key
//! (`Selected::repeated_keys`) instead of parsing a command.
//!
//! This is a second path besides `short_array.rs`, for speed. Without it, a `HIT` at pipeline 64 takes 7 to
//! 13 % more of the server's processor time, and a `LIMIT` 8 to 15 % more (redis-benchmark, 50 connections,
//! three series of 9 to 21 interleaved rounds on a busy machine). At pipeline 16 there is no difference.
//! `cargo xtask bench --compare REV` has the rows. The test below compares both paths.

use crate::short_array::read_bulk;

/// The parts of a request that the next ones may share, split at the key.
#[derive(Clone, Debug)]
pub(crate) struct Template<'b> {
    /// Its bytes before the key, and where the length of the key starts in them.
    before: &'b [u8],
    name_end: usize,
    /// Its bytes after the key.
    behind: &'b [u8],
    key_len: usize,
    /// The range of its arguments among all ranges.
    args: (usize, usize),
}

impl<'b> Template<'b> {
    /// The template of a request with these bytes and these ranges of arguments. `None` if it has no key.
    pub(crate) fn of(
        bytes: &'b [u8],
        args: (usize, usize),
        ranges: &[(usize, usize)],
    ) -> Option<Template<'b>> {
        let &[(_, name_end), (key, key_end), ..] = ranges.get(args.0..args.1)? else { return None };
        Some(Template {
            before: &bytes[..key],
            name_end: name_end + 2,
            behind: &bytes[key_end..],
            key_len: key_end - key,
            args,
        })
    }

    /// Parses a request of this template at the start of `bytes`. Returns its length and the range of its
    /// arguments. If there is none, nothing is appended.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        bytes: &'b [u8],
        ranges: &mut Vec<(usize, usize)>,
    ) -> Option<(usize, (usize, usize))> {
        if starts_with(bytes, self.before) {
            let key_end = self.before.len() + self.key_len;
            let is_same = starts_with(bytes.get(key_end..)?, self.behind);
            return is_same.then_some((key_end + self.behind.len(), self.args));
        }
        self.read_another_length(bytes, ranges)
    }

    /// Like `read`, for a key of another length.
    #[inline(never)]
    fn read_another_length(
        &mut self,
        bytes: &'b [u8],
        ranges: &mut Vec<(usize, usize)>,
    ) -> Option<(usize, (usize, usize))> {
        if !starts_with(bytes, &self.before[..self.name_end]) {
            return None;
        }
        let (key, key_end) = read_bulk(bytes, self.name_end)?;
        if !starts_with(&bytes[key_end..], self.behind) {
            return None;
        }
        let behind_at = self.before.len() + self.key_len;
        let start = ranges.len();
        ranges.extend_from_within(self.args.0..self.args.0 + 1);
        ranges.push((key, key_end));
        for index in self.args.0 + 2..self.args.1 {
            let (arg, arg_end) = ranges[index];
            let other = |at: usize| at - behind_at + key_end;
            ranges.push((other(arg), other(arg_end)));
        }
        self.args = (start, ranges.len());
        self.before = &bytes[..key];
        self.key_len = key_end - key;
        Some((key_end + self.behind.len(), self.args))
    }
}

/// Whether `bytes` starts with `start`. Comparing slices would be a call; for short ones this is one or two
/// loads each.
#[inline(always)]
fn starts_with(bytes: &[u8], start: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..start.len()) else { return false };
    match start.len() {
        2 => bytes.first_chunk::<2>() == start.first_chunk(),
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
    use crate::limits::Limits;
    use crate::request::write_request;
    use crate::requests::Requests;

    /// A request: its name, a number in its key, and the words after the key.
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
        fn requests_equal_the_sent_ones_after_any_others(
            sent in prop::collection::vec((request(), 1..4_usize), 1..12),
            cut in 0..40_usize,
            taken in prop::sample::select(vec![1, usize::MAX]),
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
            for (args, words) in requests.iter(&buffer).zip(&sent) {
                prop_assert!(args.iter().eq(words.iter().map(String::as_bytes)), "{:?}", words);
            }
            let (mut left, mut sent) = (requests.iter(&buffer), sent.iter());
            while left.next().is_some() {
                let before = sent.next().expect("as many as were found");
                for (key, words) in left.repeated_keys(|_| true).take(taken).zip(sent.by_ref()) {
                    prop_assert!(key == words[1].as_bytes() && (1..=1_024).contains(&key.len()));
                    prop_assert_eq!((&before[..1], &before[2..]), (&words[..1], &words[2..]));
                }
            }
            prop_assert_eq!(sent.count(), ends.len() - whole);
        }
    }
}
