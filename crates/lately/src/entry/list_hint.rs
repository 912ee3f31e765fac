//! The address of a list in six bytes: a hint in the slot, so that the list can be prefetched before the
//! state is loaded.

use super::Entry;
use super::list::prefetch_list;

/// The address of a list, and about where its moments end; zeros if unknown. The hint may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ListHint([u8; ListHint::BYTES]);

/// Allocations start at multiples of this. The bits below are used for the end of the moments.
const STEP: usize = 16;

impl ListHint {
    /// Bytes it takes.
    pub(crate) const BYTES: usize = 6;

    /// The hint for the list of an entry, if it has one.
    #[inline]
    pub(crate) fn of(entry: &Entry) -> ListHint {
        let Entry::List { head, bytes } = entry else { return ListHint::default() };
        let word = (bytes.as_ptr().addr() & !(STEP - 1)) | head.tail_steps().min(STEP - 1);
        let [a, b, c, d, e, f, ..] = (word as u64).to_le_bytes();
        ListHint([a, b, c, d, e, f])
    }

    pub(crate) fn from_bytes(bytes: [u8; ListHint::BYTES]) -> ListHint {
        ListHint(bytes)
    }

    pub(crate) fn to_bytes(self) -> [u8; ListHint::BYTES] {
        self.0
    }

    /// Prefetches the list. False if the address is unknown.
    #[inline]
    pub(crate) fn prefetch(self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        let word = usize::try_from(u64::from_le_bytes([a, b, c, d, e, f, 0, 0])).unwrap_or(0);
        let start = std::ptr::without_provenance::<u8>(word & !(STEP - 1));
        prefetch_list(start, word & (STEP - 1));
        word != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::time::Timestamp;

    #[test]
    fn only_lists_have_a_hint() {
        let (settings, mut entry) = (Settings::default(), Entry::new());
        let mut known = 0;
        for ms in (0..400_000).step_by(700) {
            let at = Timestamp::from_millis(1_700_000_000_000 + ms).expect("a time");
            entry.add(at, 1, &settings, at).expect("counted");
            let found = ListHint::of(&entry);
            let is_list = matches!(entry, Entry::List { .. });
            assert_eq!((found != ListHint::default(), found.prefetch()), (is_list, is_list));
            assert_eq!(ListHint::from_bytes(found.to_bytes()), found);
            known += u32::from(is_list);
        }
        assert!(known > 100);
        // A wrong hint does no harm.
        assert!(ListHint::from_bytes([u8::MAX; ListHint::BYTES]).prefetch());
    }
}
