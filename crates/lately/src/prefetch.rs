//! Asking for memory before it is needed: the one place with `unsafe` in this workspace.
//!
//! A prefetch is a hint. It reads nothing the program can see and cannot fault, wherever it points.

/// Has the cache line at `address` fetched, whatever is there, if anything.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: the instruction is part of every x86-64 processor (SSE), dereferences nothing and
        // ignores addresses that are not mapped. Test: `a_prefetch_of_anything_is_harmless`.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefetch_of_anything_is_harmless() {
        prefetch(std::ptr::from_ref(&7_u64));
        prefetch(std::ptr::null::<u64>());
        prefetch(std::ptr::without_provenance::<u64>(usize::MAX));
    }
}
