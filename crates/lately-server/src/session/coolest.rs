//! The least-hit of keys: `COOLEST`.

use std::collections::{BinaryHeap, HashSet};

use lately::limits::MAX_SCAN_SLOTS;
use lately::{Cursor, Op, Outcome, Span, Store, Timestamp};
use lately_resp::Encoder;
use lately_resp::command::{Among, Coolest};

use super::{Session, integer};

impl Session {
    pub(super) fn coolest(&self, coolest: &Coolest<'_>, now: Timestamp, reply: &mut Encoder<'_>) {
        let &Coolest { count, window, below, among } = coolest;
        let store = &*self.engine.store;
        let is_below = |hits: u64| below.is_none_or(|below| hits < below);
        match among {
            Among::Keys(keys) => {
                let mut seen = HashSet::new();
                let keys: Vec<&[u8]> = keys.iter().filter(|key| seen.insert(*key)).collect();
                let mut rows: Vec<(u64, &[u8])> =
                    hits(store, &keys, window, now).zip(keys.iter().copied()).collect();
                rows.retain(|&(hits, _)| is_below(hits));
                // Those that are equal stay as they were named.
                rows.sort_by_key(|&(hits, _)| hits);
                rows.truncate(count);
                write(&rows, reply);
            }
            Among::Prefix(prefix) => {
                // The most-hit of those found so far is on top, and goes when there are too many.
                let mut rows: BinaryHeap<(u64, Box<[u8]>)> = BinaryHeap::new();
                let mut cursor = Cursor::START;
                loop {
                    let mut page = store.scan(cursor, None, MAX_SCAN_SLOTS, now);
                    page.keys.retain(|key| key.starts_with(prefix));
                    let keys: Vec<&[u8]> = page.keys.iter().map(|key| &**key).collect();
                    let counts: Vec<u64> = hits(store, &keys, window, now).collect();
                    for row in counts.into_iter().zip(page.keys).filter(|&(hits, _)| is_below(hits)) {
                        rows.push(row);
                        if rows.len() > count {
                            rows.pop();
                        }
                    }
                    cursor = page.next;
                    if cursor == Cursor::START {
                        break;
                    }
                }
                write(&rows.into_sorted_vec(), reply);
            }
        }
    }
}

/// The hits of each key in a window.
fn hits(
    store: &Store,
    keys: &[&[u8]],
    window: Option<Span>,
    now: Timestamp,
) -> impl Iterator<Item = u64> + use<> {
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::Hits { key, window, at: None }).collect();
    let mut outcomes = Vec::with_capacity(ops.len());
    store.apply(&ops, now, &mut outcomes);
    outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Hits(count) => count.estimate,
        _ => unreachable!("a question is answered with a count"),
    })
}

fn write(rows: &[(u64, impl AsRef<[u8]>)], reply: &mut Encoder<'_>) {
    reply.array(rows.len());
    for (hits, key) in rows {
        reply.array(2);
        reply.bulk(key);
        reply.integer(integer(*hits));
    }
}
