//! The hits of one key over a whole log, by pane, in about two bytes per hit.
//!
//! Lines are nearly in order, so the hits are a list of (step to the pane, hits there), encoded as variable-length
//! integers: 7 bits per byte, lowest first. A step may be negative. When the list has doubled since it was last
//! sorted, it is sorted and equal panes are merged. So its size is bounded by the distinct panes of the key, in
//! whatever order the lines come.

/// A shorter list is not sorted.
const SORT_BYTES: usize = 4_096;

/// A multiset of panes.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// The steps and hits of all runs but the newest. The first step is from pane 0.
    written: Vec<u8>,
    /// The pane of the last written run.
    written_pane: i64,
    /// The newest run, which still grows.
    pane: i64,
    hits: u32,
    /// The length of `written` at which it is sorted.
    sort_at: u32,
}

impl Runs {
    /// No hits yet. The first is in `pane`.
    pub(crate) fn new(pane: i64) -> Runs {
        let sort_at = u32::try_from(SORT_BYTES).unwrap_or(u32::MAX);
        Runs { written: Vec::new(), written_pane: 0, pane, hits: 0, sort_at }
    }

    /// Adds a hit in `pane`, which is from 0 to [`lately::Timestamp::MAX`].
    pub(crate) fn hit(&mut self, pane: i64) {
        if pane == self.pane && self.hits < u32::MAX {
            self.hits += 1;
            return;
        }
        write_run(&mut self.written, self.pane - self.written_pane, self.hits.into());
        self.written_pane = self.pane;
        (self.pane, self.hits) = (pane, 1);
        if self.written.len() >= self.sort_at as usize {
            self.sort();
        }
    }

    /// Writes the panes with hits, and their hits, to `panes`, oldest first.
    pub(crate) fn sorted_into(&self, panes: &mut Vec<(i64, u64)>) {
        panes.clear();
        let (mut rest, mut pane) = (&self.written[..], 0);
        while !rest.is_empty() {
            let (step, hits) = read_run(&mut rest);
            pane += step;
            panes.push((pane, hits));
        }
        panes.push((self.pane, self.hits.into()));
        panes.sort_unstable_by_key(|(pane, _)| *pane);
        panes.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 += later.1;
            }
            same
        });
    }

    fn sort(&mut self) {
        let mut panes = Vec::new();
        let newest = (self.pane, self.hits);
        self.hits = 0;
        self.sorted_into(&mut panes);
        self.written.clear();
        self.written_pane = 0;
        for (pane, hits) in panes.into_iter().filter(|(_, hits)| *hits > 0) {
            write_run(&mut self.written, pane - self.written_pane, hits);
            self.written_pane = pane;
        }
        (self.pane, self.hits) = newest;
        self.sort_at = u32::try_from(2 * self.written.len().max(SORT_BYTES / 2)).unwrap_or(u32::MAX);
    }
}

/// The step, zigzag-encoded, with a low bit that says whether the number of hits follows. Mostly it is 1 and left
/// out.
fn write_run(bytes: &mut Vec<u8>, step: i64, hits: u64) {
    let zigzag = (step << 1) ^ (step >> 63);
    write_integer(bytes, zigzag.cast_unsigned() << 1 | u64::from(hits != 1));
    if hits != 1 {
        write_integer(bytes, hits);
    }
}

fn read_run(bytes: &mut &[u8]) -> (i64, u64) {
    let head = read_integer(bytes);
    let zigzag = (head >> 1).cast_signed();
    let step = (zigzag >> 1) ^ -(zigzag & 1);
    let hits = if head & 1 == 1 { read_integer(bytes) } else { 1 };
    (step, hits)
}

fn write_integer(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push((value & 0x7f) as u8);
}

fn read_integer(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lately::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn check(panes: &[i64]) {
        let mut expected = BTreeMap::new();
        for &pane in panes {
            *expected.entry(pane).or_insert(0) += 1;
        }
        let mut runs = Runs::new(panes[0]);
        panes.iter().for_each(|&pane| runs.hit(pane));
        let mut found = Vec::new();
        runs.sorted_into(&mut found);
        assert_eq!(found, Vec::from_iter(expected));
    }

    #[test]
    fn the_ends_of_time_fit() {
        let last = Timestamp::MAX.as_millis();
        check(&[0]);
        check(&[last, 0, last, 0, 0, last, 1]);
    }

    #[test]
    fn disorder_does_not_make_it_long() {
        let mut runs = Runs::new(0);
        for hit in 0..1_000_000 {
            runs.hit(1_431_857_103 + hit * 7_919 % 100);
        }
        assert!(runs.written.len() <= SORT_BYTES, "{} bytes for 100 panes", runs.written.len());
        check(&Vec::from_iter((0..50_000).map(|hit| hit * 7_919 % 9_973)));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(panes in proptest::collection::vec(0..300_i64, 1..5_000)) {
            check(&panes);
        }
    }
}
