//! Counts of equal width: the narrowest that holds the largest of them.

use std::ops::Range;

use crate::allocation::allocated;
use crate::machine::prefetch;

/// Counts by place.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// The counts. If there are many, the sum of each [`BLOCK`] of them follows.
    bytes: Box<[u8]>,
    len: u32,
    width: Width,
}

/// The cells of a block, which has a sum.
const BLOCK: u32 = 1 << 10;

const SUM_BYTES: usize = size_of::<u64>();

/// Up to this number of cells there are no sums: they take memory, and adding is fast.
const WITHOUT_SUMS: u32 = 1 << 12;

/// The bits of a count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Width {
    Four,
    Eight,
    Sixteen,
    ThirtyTwo,
    SixtyFour,
}

impl Width {
    const ALL: [Width; 5] = [Width::Four, Width::Eight, Width::Sixteen, Width::ThirtyTwo, Width::SixtyFour];

    fn bits(self) -> usize {
        4 << self as usize
    }

    fn of(count: u64) -> Width {
        let fits = |width: &Width| count <= u64::MAX >> (u64::BITS as usize - width.bits());
        Width::ALL.into_iter().find(fits).expect("64 bits hold every count")
    }
}

impl Cells {
    /// `len` counts of 0.
    pub(super) fn new(len: u32) -> Cells {
        Cells::of_width(len, Width::Four)
    }

    fn of_width(len: u32, width: Width) -> Cells {
        let sums_bytes = if len > WITHOUT_SUMS { len.div_ceil(BLOCK) as usize * SUM_BYTES } else { 0 };
        let bytes = vec![0; counts_bytes(len, width) + sums_bytes].into_boxed_slice();
        Cells { bytes, len, width }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, cell: u32) -> u64 {
        let cell = cell as usize;
        let bytes = &self.bytes;
        match self.width {
            Width::Four => u64::from(bytes[cell / 2] >> (cell % 2 * 4) & 0xf),
            Width::Eight => u64::from(bytes[cell]),
            Width::Sixteen => u64::from(u16::from_le_bytes(chunk(bytes, cell))),
            Width::ThirtyTwo => u64::from(u32::from_le_bytes(chunk(bytes, cell))),
            Width::SixtyFour => u64::from_le_bytes(chunk(bytes, cell)),
        }
    }

    /// Sets a count. Widens all cells if it does not fit.
    #[inline]
    fn set(&mut self, cell: u32, count: u64) {
        let cell = cell as usize;
        if count > u64::MAX >> (u64::BITS as usize - self.width.bits()) {
            self.convert(Width::of(count));
        }
        let bytes = &mut self.bytes;
        let [low, high, c, d, ..] = count.to_le_bytes();
        match self.width {
            Width::Four => {
                let byte = &mut bytes[cell / 2];
                *byte = if cell.is_multiple_of(2) { *byte & 0xf0 | low } else { *byte & 0xf | low << 4 };
            }
            Width::Eight => bytes[cell] = low,
            Width::Sixteen => bytes[cell * 2..][..2].copy_from_slice(&[low, high]),
            Width::ThirtyTwo => bytes[cell * 4..][..4].copy_from_slice(&[low, high, c, d]),
            Width::SixtyFour => bytes[cell * 8..][..8].copy_from_slice(&count.to_le_bytes()),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, cell: u32, more: u64) {
        self.set(cell, self.get(cell) + more);
        if self.len > WITHOUT_SUMS {
            self.set_sum(cell / BLOCK, self.sum_of(cell / BLOCK) + more);
        }
    }

    /// The sum of a range of cells.
    pub(super) fn sum(&self, cells: Range<u32>) -> u64 {
        let mut sum = 0;
        let mut cell = cells.start;
        while cell < cells.end {
            match self.whole_block(cell, cells.end) {
                Some(block) => {
                    sum += block;
                    cell += BLOCK;
                }
                None => {
                    sum += self.get(cell);
                    cell += 1;
                }
            }
        }
        sum
    }

    /// The cell in which the sum from the start of the range reaches `sum`. If it does not, the missing rest.
    pub(super) fn reach(&self, cells: Range<u32>, sum: u64) -> Result<u32, u64> {
        let mut left = sum;
        let mut cell = cells.start;
        while cell < cells.end {
            if let Some(block) = self.whole_block(cell, cells.end).filter(|&block| block < left) {
                left -= block;
                cell += BLOCK;
                continue;
            }
            let count = self.get(cell);
            if count >= left {
                return Ok(cell);
            }
            left -= count;
            cell += 1;
        }
        Err(left)
    }

    /// The sum of the block that starts at `cell`, if the block ends by `end`.
    fn whole_block(&self, cell: u32, end: u32) -> Option<u64> {
        let is_whole = self.len > WITHOUT_SUMS && cell.is_multiple_of(BLOCK) && end - cell >= BLOCK;
        is_whole.then(|| self.sum_of(cell / BLOCK))
    }

    fn sum_of(&self, block: u32) -> u64 {
        u64::from_le_bytes(chunk(&self.bytes[counts_bytes(self.len, self.width)..], block as usize))
    }

    fn set_sum(&mut self, block: u32, sum: u64) {
        let sums = &mut self.bytes[counts_bytes(self.len, self.width)..];
        sums[block as usize * SUM_BYTES..][..SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// Takes at most `most` of a count. Returns how many.
    pub(super) fn take(&mut self, cell: u32, most: u64) -> u64 {
        let count = self.get(cell);
        let taken = count.min(most);
        if taken > 0 {
            self.set(cell, count - taken);
            if self.len > WITHOUT_SUMS {
                self.set_sum(cell / BLOCK, self.sum_of(cell / BLOCK) - taken);
            }
        }
        taken
    }

    /// Narrows the cells as far as the counts allow.
    pub(super) fn narrow(&mut self) {
        let most = (0..self.len()).map(|cell| self.get(cell)).max().unwrap_or(0);
        if Width::of(most) < self.width {
            self.convert(Width::of(most));
        }
    }

    #[cold]
    fn convert(&mut self, width: Width) {
        let mut cells = Cells::of_width(self.len(), width);
        for cell in 0..self.len() {
            cells.set(cell, self.get(cell));
        }
        let sums = &self.bytes[counts_bytes(self.len, self.width)..];
        cells.bytes[counts_bytes(self.len, width)..].copy_from_slice(sums);
        *self = cells;
    }

    /// Prefetches a cell.
    #[inline]
    pub(super) fn prefetch(&self, cell: u32) {
        prefetch(self.bytes.as_ptr().wrapping_add(cell as usize * self.width.bits() / 8));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocated(self.bytes.len())
    }

    /// Panics if a sum is not that of its cells.
    pub(super) fn check_consistency(&self) {
        let blocks = if self.len > WITHOUT_SUMS { self.len.div_ceil(BLOCK) } else { 0 };
        for block in 0..blocks {
            let cells = block * BLOCK..((block + 1) * BLOCK).min(self.len);
            assert_eq!(self.sum_of(block), cells.map(|cell| self.get(cell)).sum::<u64>(), "block {block}");
        }
    }
}

/// The bytes of the counts, without sums.
fn counts_bytes(len: u32, width: Width) -> usize {
    (len as usize * width.bits()).div_ceil(8)
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8], cell: usize) -> [u8; N] {
    bytes[cell * N..][..N].try_into().expect("as long as that")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn sums_equal_the_sums_of_the_cells(
            is_long in any::<bool>(),
            counts in prop::collection::vec((0..9_000_u32, 0..2_000_u64), 0..60),
            taken in prop::collection::vec(0..9_000_u32, 0..10),
            ranges in prop::collection::vec((0..9_000_u32, 0..9_000_u32, 1..100_000_u64), 1..20),
        ) {
            let len = if is_long { 8_999 } else { WITHOUT_SUMS };
            let mut cells = Cells::new(len);
            let mut expected = vec![0; len as usize];
            for (cell, more) in counts {
                cells.add(cell % len, more);
                expected[(cell % len) as usize] += more;
            }
            for cell in taken {
                let held = &mut expected[(cell % len) as usize];
                let some = cells.take(cell % len, 700);
                prop_assert_eq!(some, 700.min(*held));
                cells.check_consistency();
                prop_assert_eq!(some + cells.take(cell % len, u64::MAX), std::mem::take(held));
            }
            cells.narrow();
            cells.check_consistency();
            for (start, end, wanted) in ranges {
                let range = start % len..end % len;
                let of_range = expected.get(range.start as usize..range.end as usize).unwrap_or_default();
                let sum: u64 = of_range.iter().sum();
                prop_assert_eq!(cells.sum(range.clone()), sum);
                let mut reached = 0;
                let cell = (range.start..).zip(of_range).find(|(_, count)| {
                    reached += **count;
                    reached >= wanted
                });
                prop_assert_eq!(cells.reach(range, wanted), cell.map(|(cell, _)| cell).ok_or(wanted.saturating_sub(sum)));
            }
        }
    }

    #[test]
    fn counts_of_every_width_round_trip() {
        for len in [1, 2, 361] {
            let mut cells = Cells::new(len);
            let mut expected = vec![0; len as usize];
            let least = len.div_ceil(2) as usize;
            assert_eq!(cells.bytes.len(), least);
            for (step, most) in
                (0..).zip([15, 16, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, u64::MAX])
            {
                let cell = step * 40 % len;
                cells.take(cell, u64::MAX);
                cells.add(cell, most);
                expected[cell as usize] = most;
                let counts: Vec<u64> = (0..len).map(|cell| cells.get(cell)).collect();
                assert_eq!(counts, expected);
            }
            assert_eq!(cells.width, Width::SixtyFour);
            cells.narrow();
            for (cell, &count) in (0..).zip(&expected) {
                assert_eq!(cells.take(cell, u64::MAX), count);
            }
            cells.narrow();
            assert_eq!((cells.width, cells.heap_bytes()), (Width::Four, allocated(least)));
        }
    }
}
