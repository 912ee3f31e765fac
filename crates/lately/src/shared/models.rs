//! Models of the protocol: loom explores the interleavings, with a bounded number of preemptions, and the
//! values that a load may see. Panes are milliseconds; two are kept, in two slots.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::error::HitError;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Span, Timestamp, milliseconds};

use super::rings::{Rings, Shape};

/// The most preemptions in a run.
const PREEMPTIONS: usize = 3;

const WINDOW: Span = milliseconds(2);

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

/// The ring that a thread hits.
#[derive(Clone, Copy)]
enum Ring {
    Common,
    Own(usize),
}

use Ring::{Common, Own};

fn rings(thread_rings: usize) -> Rings {
    Rings::new(Shape { resolution: milliseconds(1), window: 2, span: 2, slots: 2, thread_rings }, WINDOW)
}

fn hit(rings: &Rings, ring: Ring, pane: i64) -> Result<(), HitError> {
    match ring {
        Common => rings.add(at(pane), 1),
        Own(own) => rings.add_own(own, at(pane), 1),
    }
}

fn at(pane: i64) -> Timestamp {
    Timestamp::from_millis(pane).expect("a time")
}

/// A counter, and the numbers of its sent and acknowledged hits.
struct Watched {
    rings: Rings,
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

impl Watched {
    fn new(thread_rings: usize) -> Watched {
        Watched { rings: rings(thread_rings), sent: AtomicU64::new(0), acknowledged: AtomicU64::new(0) }
    }

    fn hit(&self, ring: Ring, pane: i64) {
        // AcqRel, partner of the loads in `read`.
        self.sent.fetch_add(1, Ordering::AcqRel);
        hit(&self.rings, ring, pane).expect("counted");
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
    }

    fn read(&self, pane: i64) -> u64 {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let hits = self.rings.hits(WINDOW, at(pane));
        // A read-modify-write always sees the latest value.
        let sent = self.sent.fetch_add(0, Ordering::AcqRel);
        assert!((acknowledged..=sent).contains(&hits), "{acknowledged} <= {hits} <= {sent}");
        hits
    }
}

#[test]
fn two_hits_race_the_roll_of_a_slot() {
    model(|| {
        let rings = Arc::new(rings(0));
        hit(&rings, Common, 10).expect("the first");
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || hit(&other, Common, 12).expect("newer"));
        hit(&rings, Common, 12).expect("newer");
        thread.join().expect("no panic");
        assert_eq!((rings.hits(WINDOW, at(12)), rings.hits(WINDOW, at(12))), (2, 2));
        assert_eq!(rings.hits(WINDOW, at(11)), 0, "the former pane of the slot is gone");
    });
}

#[test]
fn a_hit_races_the_roll_of_its_own_slot() {
    model(|| {
        let rings = Arc::new(rings(0));
        hit(&rings, Common, 10).expect("the first");
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || hit(&other, Common, 12).expect("newer"));
        // The hit is counted before the roll and leaves with its pane, or it is late. It is never in the new
        // pane.
        let outcome = hit(&rings, Common, 10);
        assert!(matches!(outcome, Ok(()) | Err(HitError::Late { .. })), "{outcome:?}");
        thread.join().expect("no panic");
        assert_eq!((rings.hits(WINDOW, at(12)), rings.hits(milliseconds(1), at(12))), (1, 1));
    });
}

#[test]
fn a_withdrawn_hit_leaves_no_trace_in_the_total() {
    model(|| {
        let rings = Arc::new(rings(0));
        hit(&rings, Common, 10).expect("the first");
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || {
            hit(&other, Common, 12).expect("newer");
            hit(&other, Common, 13).expect("newer");
            other.hits(WINDOW, at(13))
        });
        let outcome = hit(&rings, Common, 10);
        assert!(matches!(outcome, Ok(()) | Err(HitError::Late { .. })), "{outcome:?}");
        let seen = thread.join().expect("no panic");
        assert!((2..=3).contains(&seen), "{seen}");
        assert_eq!((rings.hits(WINDOW, at(13)), rings.hits(WINDOW, at(13))), (2, 2));
    });
}

#[test]
fn a_hit_races_a_read_of_the_running_total() {
    model(|| {
        let counter = Arc::new(Watched::new(0));
        counter.hit(Common, 10);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || other.hit(Common, 10));
        counter.hit(Common, 11);
        counter.read(11);
        counter.read(11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (3, 3));
    });
}

#[test]
fn late_hits_race_reads_of_a_sealed_pane() {
    model(|| {
        let counter = Arc::new(Watched::new(0));
        counter.hit(Common, 10);
        counter.hit(Common, 11);
        assert_eq!(counter.read(11), 2);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || {
            other.hit(Common, 10);
            assert!(other.read(11) >= 3);
        });
        counter.read(11);
        counter.read(11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (3, 3));
    });
}

#[test]
fn two_late_hits_race_a_read_of_a_sealed_pane() {
    model(|| {
        let counter = Arc::new(Watched::new(0));
        counter.hit(Common, 10);
        counter.hit(Common, 11);
        assert_eq!(counter.read(11), 2);
        let threads = [(); 2].map(|()| {
            let other = Arc::clone(&counter);
            thread::spawn(move || other.hit(Common, 10))
        });
        counter.read(11);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!((counter.read(11), counter.read(11)), (4, 4));
    });
}

#[test]
fn a_read_races_a_filling() {
    model(|| {
        let counter = Arc::new(Watched::new(0));
        counter.hit(Common, 10);
        assert_eq!(counter.read(10), 1);
        counter.hit(Common, 11);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || assert_eq!(other.read(11), 2));
        assert_eq!(counter.read(11), 2);
        thread.join().expect("no panic");
        assert_eq!(counter.read(11), 2);
    });
}

#[test]
fn a_read_races_a_filling_for_another_time() {
    model(|| {
        let rings = Arc::new(rings(0));
        hit(&rings, Common, 10).expect("the first");
        hit(&rings, Common, 11).expect("newer");
        assert_eq!(rings.hits(WINDOW, at(11)), 2);
        let other = Arc::clone(&rings);
        // The reader is the thread that runs second. Loom lets a load see the store before the last one; for
        // a store it considers only the last load, which here may be the filler's own.
        let thread = thread::spawn(move || assert_eq!(other.hits(WINDOW, at(11)), 2));
        assert_eq!(rings.hits(WINDOW, at(12)), 1);
        thread.join().expect("no panic");
        assert_eq!((rings.hits(WINDOW, at(12)), rings.hits(WINDOW, at(11))), (1, 2));
    });
}

#[test]
fn a_new_pane_races_reads_of_two_clocks() {
    model(|| {
        let counter = Arc::new(Watched::new(0));
        counter.hit(Common, 10);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || other.hit(Common, 11));
        // The first reader's clock is ahead of every hit, but not behind the second reader's window.
        counter.read(11);
        assert_eq!(counter.rings.hits(WINDOW, at(10)), 1);
        counter.read(11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (2, 2));
        assert_eq!(counter.rings.hits(WINDOW, at(10)), 1);
    });
}

#[test]
fn three_threads_hit_and_read() {
    model(|| {
        let counter = Arc::new(Watched::new(0));
        counter.hit(Common, 10);
        let late = Arc::clone(&counter);
        let late = thread::spawn(move || late.hit(Common, 10));
        let new = Arc::clone(&counter);
        let new = thread::spawn(move || new.hit(Common, 11));
        counter.read(11);
        late.join().expect("no panic");
        new.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (3, 3));
    });
}

#[test]
fn own_rings_add_up_while_they_roll() {
    model(|| {
        let counter = Arc::new(Watched::new(2));
        counter.hit(Own(0), 10);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || {
            other.hit(Own(1), 10);
            other.hit(Own(1), 11);
        });
        counter.hit(Own(0), 11);
        counter.read(11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (4, 4));
    });
}

#[test]
fn a_hit_of_an_own_ring_races_a_filling() {
    model(|| {
        let counter = Arc::new(Watched::new(1));
        counter.hit(Own(0), 10);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || {
            other.hit(Own(0), 10);
            other.hit(Own(0), 11);
        });
        counter.read(11);
        counter.read(11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (3, 3));
    });
}

#[test]
fn a_late_hit_of_an_own_ring_races_reads() {
    model(|| {
        let counter = Arc::new(Watched::new(1));
        counter.hit(Own(0), 10);
        counter.hit(Own(0), 11);
        assert_eq!(counter.read(11), 2);
        let other = Arc::clone(&counter);
        let thread = thread::spawn(move || {
            other.hit(Own(0), 10);
            assert!(other.read(11) >= 3);
        });
        counter.read(11);
        counter.read(11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (3, 3));
    });
}

#[test]
fn an_own_ring_lags_behind_the_newest_pane() {
    model(|| {
        let counter = Arc::new(Watched::new(1));
        counter.hit(Own(0), 10);
        counter.hit(Common, 11);
        assert_eq!(counter.read(11), 2);
        let other = Arc::clone(&counter);
        // The hit is late, but the newest of its ring, so no version changes.
        let thread = thread::spawn(move || other.hit(Own(0), 10));
        counter.read(11);
        counter.hit(Common, 11);
        thread.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (4, 4));
    });
}

#[test]
fn an_own_ring_wraps_around_while_it_is_read() {
    model(|| {
        let rings = Arc::new(rings(1));
        hit(&rings, Own(0), 10).expect("the first");
        hit(&rings, Own(0), 11).expect("newer");
        assert_eq!(rings.hits(WINDOW, at(11)), 2);
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || {
            hit(&other, Own(0), 12).expect("newer");
            hit(&other, Own(0), 13).expect("newer");
            hit(&other, Own(0), 11).expect_err("late");
        });
        // Older hits may have left by now. No hit is counted in another pane.
        assert!(rings.hits(WINDOW, at(11)) <= 2);
        thread.join().expect("no panic");
        assert_eq!((rings.hits(WINDOW, at(13)), rings.hits(WINDOW, at(13))), (2, 2));
    });
}

#[test]
fn an_own_ring_gets_another_owner() {
    model(|| {
        let counter = Arc::new(Watched::new(1));
        let other = Arc::clone(&counter);
        let first = thread::spawn(move || {
            other.hit(Own(0), 10);
            other.hit(Own(0), 11);
        });
        counter.read(11);
        first.join().expect("no panic");
        counter.hit(Own(0), 11);
        counter.hit(Own(0), 10);
        assert_eq!((counter.read(11), counter.read(11)), (4, 4));
    });
}

#[test]
fn common_and_own_rings_are_hit_and_read() {
    model(|| {
        let counter = Arc::new(Watched::new(1));
        counter.hit(Common, 10);
        let own = Arc::clone(&counter);
        let own = thread::spawn(move || {
            own.hit(Own(0), 11);
            own.hit(Own(0), 10);
        });
        counter.hit(Common, 11);
        counter.read(11);
        own.join().expect("no panic");
        assert_eq!((counter.read(11), counter.read(11)), (4, 4));
    });
}
