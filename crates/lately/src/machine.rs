//! Calls to the processor, to the allocator and to the system: prefetching, allocator settings, returning memory and the
//! pages of the program; and a clock that the standard library does not read. The only `unsafe` code of this workspace.

use std::time::Duration;

/// Prefetches the cache line at `address`, which may be any. It is a hint: it has no visible effect and
/// cannot fault.
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

/// Prefetches a value that may lie on two cache lines.
#[inline]
pub(crate) fn prefetch_all<T>(value: *const T) {
    prefetch(value);
    prefetch(value.wrapping_add(1).cast::<u8>().wrapping_sub(1));
}

/// Limits glibc's allocator to `most` arenas, at least one. Call it before other threads are started. False with other
/// allocators.
///
/// By default each thread has its own arena, and cannot reuse memory that another has freed. Keys whose lists several
/// threads grow then take up to a fifth more memory. Up to four threads per arena are as fast.
#[expect(clippy::must_use_candidate, reason = "it is a wish")]
pub fn share_arenas(most: u16) -> bool {
    /// `M_ARENA_MAX` of malloc.h.
    const ARENA_MAX: i32 = -8;
    set_allocator(ARENA_MAX, most.max(1).into())
}

/// Makes glibc's allocator map each block of `bytes` or more separately, and return it to the system when it is freed.
/// False with other allocators.
///
/// By default that size grows to 32 MiB as blocks are freed, and the process keeps the memory of large buffers.
#[expect(clippy::must_use_candidate, reason = "it is a wish")]
pub fn give_blocks_back(bytes: u32) -> bool {
    /// `M_MMAP_THRESHOLD` of malloc.h.
    const MMAP_THRESHOLD: i32 = -3;
    set_allocator(MMAP_THRESHOLD, i32::try_from(bytes).unwrap_or(i32::MAX))
}

/// Sets a parameter of glibc's allocator. False if it cannot be set, as with other allocators.
fn set_allocator(parameter: i32, value: i32) -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: the declaration is that of malloc.h.
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: it sets one number, under the lock of the first arena. A thread that starts meanwhile reads that number
        // before or after. Tests: `arenas_are_shared`, `large_blocks_are_given_back`.
        unsafe {
            mallopt(parameter, value) == 1
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = (parameter, value);
        false
    }
}

/// Makes glibc's allocator return free pages to the system. It takes some milliseconds, during which allocations of other
/// threads wait. Returns whether it returned any; false with other allocators.
#[expect(clippy::must_use_candidate, reason = "it is a wish")]
pub fn give_memory_back() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: the declaration is that of malloc.h.
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> c_int;
        }
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: it changes nothing but memory that is free, under the locks of the arenas. Test:
        // `unused_memory_is_returned`.
        unsafe {
            malloc_trim(0) == 1
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Has the system take the pages of the program out of the memory of the process. Those that are used again come back from the
/// system's cache of files. Much of a program is used only at its start, and stays resident otherwise. It takes some
/// microseconds. Returns whether the system did it; false on systems other than 64-bit Linux.
///
/// A debugger's breakpoints in the program are lost.
pub fn give_program_back() -> bool {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        use std::ffi::{c_char, c_int, c_void};
        use std::ptr::{null_mut, with_exposed_provenance_mut};
        /// A part of a program: `Elf64_Phdr` of elf.h.
        #[repr(C)]
        struct Segment {
            kind: u32,
            flags: u32,
            _offset: usize,
            address: usize,
            _physical_address: usize,
            file_bytes: usize,
            _memory_bytes: usize,
            align_bytes: usize,
        }
        /// The start of `dl_phdr_info` of link.h.
        #[repr(C)]
        struct Object {
            base: usize,
            _name: *const c_char,
            segments: *const Segment,
            segment_count: u16,
        }
        type Visit = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: the declarations are those of link.h and of sys/mman.h.
        unsafe extern "C" {
            fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int;
            fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
        }
        /// Gives back an object. Returns 1 if the system did it, else -1. Both end the visits.
        #[expect(unsafe_code, reason = "C calls it, with pointers")]
        unsafe extern "C" fn visit(object: *const Object, _: usize, _: *mut c_void) -> c_int {
            /// `PT_LOAD` and `PF_W` of elf.h, and `MADV_DONTNEED` of mman.h.
            const LOADED: u32 = 1;
            const WRITABLE: u32 = 2;
            const NOT_NEEDED: c_int = 4;
            // SAFETY: `dl_iterate_phdr` gives an object with this number of segments, for the time of the call.
            let (base, segments) = unsafe {
                let object = &*object;
                (object.base, std::slice::from_raw_parts(object.segments, object.segment_count.into()))
            };
            let given = segments
                .iter()
                .filter(|segment| segment.kind == LOADED && segment.flags & WRITABLE == 0)
                .map(|segment| {
                    // Whole pages: an alignment is a multiple of a page.
                    let align_bytes = segment.align_bytes.max(1);
                    let start = (base + segment.address).next_multiple_of(align_bytes);
                    let end = base + segment.address + segment.file_bytes;
                    (start, (end - end % align_bytes).saturating_sub(start))
                })
                .filter(|&(_, bytes)| bytes > 0)
                .all(|(start, bytes)| {
                    // SAFETY: these pages are the file's, and nobody writes to them: relocations change segments that are
                    // writable first. So they are the same when they are read again. Test: `a_program_that_was_given_back_runs_on`.
                    unsafe { madvise(with_exposed_provenance_mut(start), bytes, NOT_NEEDED) == 0 }
                });
            if given { 1 } else { -1 }
        }
        #[expect(unsafe_code, reason = "there is no safe call for it")]
        // SAFETY: `visit` takes what it gives, and does not unwind. The first object is the program, and it is the only one that is
        // visited.
        unsafe {
            dl_iterate_phdr(visit, null_mut()) == 1
        }
    }
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    false
}

/// The time since the machine was booted, including sleep: `CLOCK_BOOTTIME`. `None` if there is no such
/// clock. `Instant` does not advance while a machine sleeps.
pub(crate) fn since_boot() -> Option<Duration> {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        use std::ffi::{c_int, c_long};
        /// From time.h, on 64-bit machines.
        #[repr(C)]
        struct Timespec {
            seconds: i64,
            nanoseconds: c_long,
        }
        #[expect(unsafe_code, reason = "the standard library reads no such clock")]
        // SAFETY: the declaration is that of time.h.
        unsafe extern "C" {
            fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
        }
        /// From linux/time.h.
        const CLOCK_BOOTTIME: c_int = 7;
        let mut time = Timespec { seconds: 0, nanoseconds: 0 };
        #[expect(unsafe_code, reason = "the standard library reads no such clock")]
        // SAFETY: it writes to `time`, which is of the type it expects and outlives the call, and to nothing else. Test:
        // `time_since_boot_goes_on`.
        let failed = unsafe { clock_gettime(CLOCK_BOOTTIME, &raw mut time) } != 0;
        let (seconds, nanoseconds) = (u64::try_from(time.seconds), u32::try_from(time.nanoseconds));
        (!failed).then(|| Some(Duration::new(seconds.ok()?, nanoseconds.ok()?))).flatten()
    }
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_memory_is_returned() {
        let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
        let byte_of = |n: usize| n.to_le_bytes()[0];
        let pieces: Vec<Vec<u8>> = (0..20_000).map(|n| vec![byte_of(n); 10_000]).collect();
        // Every other piece stays.
        let kept: Vec<Vec<u8>> = pieces.into_iter().step_by(2).collect();
        assert!(!is_glibc || give_memory_back());
        assert!(
            (0..20_000).step_by(2).zip(&kept).all(|(n, piece)| piece.iter().all(|&byte| byte == byte_of(n)))
        );
    }

    #[test]
    fn a_program_that_was_given_back_runs_on() {
        /// A table among the constants of the program.
        static TABLE: [&str; 3] = ["a", "b", "c"];
        let is_known = cfg!(all(target_os = "linux", target_pointer_width = "64"));
        let others: Vec<_> = (0..2)
            .map(|_| std::thread::spawn(|| (0..1_000).map(|n| format!("{n}").len()).sum::<usize>()))
            .collect();
        for _ in 0..100 {
            assert_eq!(give_program_back(), is_known);
            assert_eq!(TABLE.concat().to_uppercase(), "ABC");
        }
        assert!(others.into_iter().all(|thread| thread.join().is_ok_and(|bytes| bytes == 2_890)));
    }

    #[test]
    fn time_since_boot_goes_on() {
        let [first, second] = [(); 2].map(|()| since_boot());
        assert_eq!(first.is_some(), cfg!(all(target_os = "linux", target_pointer_width = "64")));
        assert!(first <= second && first != Some(Duration::ZERO));
        // Compare with the uptime in seconds that the system shows.
        let uptime = std::fs::read_to_string("/proc/uptime").ok();
        let uptime_s = uptime.and_then(|text| text.split('.').next()?.parse::<u64>().ok());
        if let Some((now, uptime_s)) = since_boot().zip(uptime_s) {
            assert!(now.as_secs().abs_diff(uptime_s) <= 1, "{now:?}, {uptime_s} s");
        }
    }

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

    /// Checks what the process can see: the parameter is set, and blocks of both kinds hold their content.
    #[test]
    fn large_blocks_are_given_back() {
        let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
        assert_eq!(give_blocks_back(64 << 10), is_glibc);
        let mut blocks = [1_000, 100_000].map(|len| vec![7_u8; len]);
        blocks.iter_mut().for_each(|block| block.resize(2 * block.len(), 8));
        assert_eq!(
            blocks.map(|block| block.iter().map(|&byte| u32::from(byte)).sum::<u32>()),
            [15_000, 1_500_000]
        );
    }
}
