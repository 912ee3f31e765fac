//! What a thread needs to run a batch. The connections of a thread take turns: the memory a turn works
//! in is warm, and a connection that waits holds next to nothing.

use std::cell::RefCell;

use lately_resp::Requests;

use crate::limits::{KEPT_BYTES, READ_BYTES, SHORT_BYTES};
use crate::session::Run;

/// Buffers of a turn, empty between turns.
pub(super) struct Workbench {
    pub(super) input: Vec<u8>,
    pub(super) requests: Requests,
    pub(super) run: Run<'static>,
    pub(super) output: Vec<u8>,
}

thread_local! {
    static WORKBENCH: RefCell<Workbench> = RefCell::new(Workbench {
        input: Vec::with_capacity(READ_BYTES + SHORT_BYTES),
        requests: Requests::new(),
        run: Run::default(),
        output: Vec::new(),
    });
}

impl Workbench {
    /// Does a piece of work with this thread's workbench.
    pub(super) fn with<T>(work: impl FnOnce(&mut Workbench) -> T) -> T {
        WORKBENCH.with_borrow_mut(|bench| {
            let result = work(bench);
            bench.input.clear();
            bench.output.clear();
            bench.output.shrink_to(KEPT_BYTES);
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_is_usual() {
        let kept_after = |bytes: usize| {
            Workbench::with(|bench| bench.output.resize(bytes, b'x'));
            Workbench::with(|bench| {
                assert!(bench.output.is_empty());
                bench.output.capacity()
            })
        };
        assert_eq!(kept_after(KEPT_BYTES), KEPT_BYTES);
        assert_eq!(kept_after(KEPT_BYTES + 1), KEPT_BYTES);
    }
}
