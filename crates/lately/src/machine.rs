//! What is asked of the machine and of the allocator: memory before it is needed, and less of it. The one place with
//! `unsafe` in this workspace.

/// Has the cache line at `address` fetched, whatever is there, if anything. It is a hint: it reads nothing the program can
/// see and cannot fault, wherever it points.
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

/// As `prefetch`, of a value that may lie on two lines.
#[inline]
pub(crate) fn prefetch_all<T>(value: *const T) {
    prefetch(value);
    prefetch(value.wrapping_add(1).cast::<u8>().wrapping_sub(1));
}

/// Has threads share the arenas of glibc's allocator: from here on it makes no more than `most` of them, at least one.
/// False when it cannot be told, as with other allocators.
///
/// By default each thread has an arena of its own, and what one thread frees is no room for another. Keys whose lists
/// several threads grow in turn then take up to a fifth more memory. Some four threads to an arena are as quick. Say it before
/// the threads are started: one that has an arena keeps it.
#[expect(clippy::must_use_candidate, reason = "it is a wish")]
pub fn share_arenas(most: u16) -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: the declaration is that of malloc.h.
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        /// From malloc.h.
        const M_ARENA_MAX: c_int = -8;
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: it sets one number, under the lock of the first arena. A thread that starts meanwhile reads that number
        // before or after. Test: `arenas_are_shared`.
        unsafe {
            mallopt(M_ARENA_MAX, most.max(1).into()) == 1
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = most;
        false
    }
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

    #[test]
    fn arenas_are_shared() {
        let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
        assert_eq!([0, 1, u16::MAX].map(share_arenas), [is_glibc; 3]);
        let lengths = [1, 2].map(|len| std::thread::spawn(move || vec![7; len * 1_000].len()));
        assert_eq!(lengths.map(|thread| thread.join().expect("it allocates")), [1_000, 2_000]);
    }
}
