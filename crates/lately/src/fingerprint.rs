//! Fingerprints of ids: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) with a secret key.
//!
//! Whoever chooses ids without knowing the key finds two with the same fingerprint only by luck. Fingerprints are kept
//! on disks, so the algorithm must never change, which that of the standard library may.

/// The fingerprint of an id under a secret key.
pub(crate) fn fingerprint(salt: u64, id: &[u8]) -> u64 {
    siphash::<1, 3>((salt, salt.rotate_left(32)), id)
}

/// The state of the hash.
struct State([u64; 4]);

impl State {
    #[inline(always)]
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }

    #[inline(always)]
    fn word<const C: usize>(&mut self, word: u64) {
        self.0[3] ^= word;
        (0..C).for_each(|_| self.round());
        self.0[0] ^= word;
    }
}

/// SipHash with `C` rounds for each word and `D` at the end.
#[inline(always)]
fn siphash<const C: usize, const D: usize>((k0, k1): (u64, u64), bytes: &[u8]) -> u64 {
    let mut state = State([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = bytes.as_chunks::<8>();
    for &word in words {
        state.word::<C>(u64::from_le_bytes(word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state.word::<C>(u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
    state.0[2] ^= 0xff;
    (0..D).for_each(|_| state.round());
    state.0.into_iter().fold(0, |hash, word| hash ^ word)
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    /// The vectors of the authors are for two and four rounds: the key is 00 to 0f, the input 00, 01 and so on.
    #[test]
    fn the_hash_agrees_with_the_vectors_of_its_authors() {
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash::<2, 4>(key, &input), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash::<2, 4>(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash::<2, 4>(key, &input[..8]), 0x93f5_f579_9a93_2462);
    }

    /// The standard library has the same with one and three rounds, but does not promise it.
    #[test]
    fn one_and_three_rounds_agree_with_the_standard_library() {
        let input: Vec<u8> = (0..100).collect();
        for len in 0..input.len() {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write(&input[..len]);
            assert_eq!(siphash::<1, 3>((0, 0), &input[..len]), hasher.finish(), "{len} bytes");
        }
    }

    /// Data folders have these.
    #[test]
    fn fingerprints_never_change() {
        assert_eq!(fingerprint(1, b"order-1"), 0x3b35_9411_d9a4_5568);
        assert_eq!(
            fingerprint(u64::MAX - 1, b"a longer id, of more than three words"),
            0x714b_23bc_df8f_7ff2
        );
        assert_ne!(fingerprint(1, b"order-1"), fingerprint(2, b"order-1"));
        assert_ne!(fingerprint(1, b"order-1"), fingerprint(1, b"order-2"));
    }
}
