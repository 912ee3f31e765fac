//! The size of an allocation with the allocator's own bytes, which count towards the ceiling.

/// The bytes that glibc's malloc takes for `bytes`: one word more, in steps of two words. 0 for 0. Other
/// allocators are similar.
pub(crate) const fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// The most bytes that fit in the same allocation as `bytes`.
pub(crate) const fn filled(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        _ => allocated(bytes) - 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_sizes_match_glibc() {
        assert_eq!([0, 1, 24, 25, 40, 41].map(allocated), [0, 32, 32, 48, 48, 64]);
        assert_eq!([0, 1, 24, 25, 40, 41].map(filled), [0, 24, 24, 40, 40, 56]);
    }
}
