//! Counts by place. Up to some thousands have equal width: the narrowest that holds the largest of them. More are in
//! blocks, each with a width of its own, so that a large count widens its block only. Blocks without counts take no
//! memory.

use std::ops::Range;

use crate::allocation::allocated;
use crate::machine::prefetch;

/// Counts by place.
#[derive(Clone, Debug)]
pub(super) enum Cells {
    Flat(Counts),
    Blocks(Box<Blocks>),
}

/// Counts of equal width.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    bytes: Box<[u8]>,
    len: u32,
    width: Width,
}

/// Counts in blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    blocks: Box<[Option<Box<Block>>]>,
    len: u32,
    /// The heap bytes of all blocks.
    block_bytes: usize,
}

/// Successive counts, of which at least one is not 0.
#[derive(Clone, Debug)]
struct Block {
    sum: u64,
    counts: Counts,
}

/// The cells of a block.
const BLOCK: u32 = 1 << 10;

/// Up to this number of cells there are no blocks: adding is faster, and most keys have less.
const MOST_FLAT: u32 = 1 << 12;

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

impl Counts {
    fn new(len: u32, width: Width) -> Counts {
        let bytes = vec![0; (len as usize * width.bits()).div_ceil(8)].into_boxed_slice();
        Counts { bytes, len, width }
    }

    #[inline]
    fn get(&self, cell: u32) -> u64 {
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

    /// Sets a count. Widens all if it does not fit.
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

    fn sum(&self, cells: Range<u32>) -> u64 {
        cells.map(|cell| self.get(cell)).sum()
    }

    /// See [`Cells::reach`].
    fn reach(&self, cells: Range<u32>, sum: u64) -> Result<u32, u64> {
        let mut left = sum;
        for cell in cells {
            let count = self.get(cell);
            if count >= left {
                return Ok(cell);
            }
            left -= count;
        }
        Err(left)
    }

    /// Narrows the counts as far as they allow.
    fn narrow(&mut self) {
        let most = (0..self.len).map(|cell| self.get(cell)).max().unwrap_or(0);
        if Width::of(most) < self.width {
            self.convert(Width::of(most));
        }
    }

    #[cold]
    fn convert(&mut self, width: Width) {
        let mut counts = Counts::new(self.len, width);
        for cell in 0..self.len {
            counts.set(cell, self.get(cell));
        }
        *self = counts;
    }

    fn heap_bytes(&self) -> usize {
        allocated(self.bytes.len())
    }
}

impl Block {
    fn heap_bytes(&self) -> usize {
        allocated(size_of::<Block>()) + self.counts.heap_bytes()
    }
}

impl Blocks {
    fn new(len: u32) -> Blocks {
        Blocks { blocks: vec![None; len.div_ceil(BLOCK) as usize].into_boxed_slice(), len, block_bytes: 0 }
    }

    fn block(&self, cell: u32) -> Option<&Block> {
        self.blocks[(cell / BLOCK) as usize].as_deref()
    }

    fn get(&self, cell: u32) -> u64 {
        self.block(cell).map_or(0, |block| block.counts.get(cell % BLOCK))
    }

    fn add(&mut self, cell: u32, more: u64) {
        if more == 0 {
            return;
        }
        let Blocks { blocks, block_bytes, .. } = self;
        let slot = &mut blocks[(cell / BLOCK) as usize];
        let before = slot.as_ref().map_or(0, |block| block.heap_bytes());
        let block =
            slot.get_or_insert_with(|| Box::new(Block { sum: 0, counts: Counts::new(BLOCK, Width::Four) }));
        block.counts.set(cell % BLOCK, block.counts.get(cell % BLOCK) + more);
        block.sum += more;
        *block_bytes = *block_bytes + block.heap_bytes() - before;
    }

    fn take(&mut self, cell: u32, most: u64) -> u64 {
        let Blocks { blocks, block_bytes, .. } = self;
        let slot = &mut blocks[(cell / BLOCK) as usize];
        let Some(block) = slot else { return 0 };
        let count = block.counts.get(cell % BLOCK);
        let taken = count.min(most);
        block.counts.set(cell % BLOCK, count - taken);
        block.sum -= taken;
        if block.sum == 0 {
            *block_bytes -= block.heap_bytes();
            *slot = None;
        }
        taken
    }

    /// Calls `take` with the blocks of a range of cells: the first cell of a block, the cells of it that are in the range,
    /// and the block. It stops when `take` returns a value, and returns that.
    fn find<T>(
        &self,
        cells: Range<u32>,
        mut take: impl FnMut(u32, Range<u32>, Option<&Block>) -> Option<T>,
    ) -> Option<T> {
        let blocks = cells.start / BLOCK..cells.end.div_ceil(BLOCK);
        blocks.filter(|_| !cells.is_empty()).find_map(|block| {
            let first = block * BLOCK;
            let of_block = cells.start.max(first) - first..cells.end.min(first + BLOCK) - first;
            take(first, of_block, self.block(first))
        })
    }

    fn sum(&self, cells: Range<u32>) -> u64 {
        let mut sum = 0;
        self.find(cells, |_, cells, block| -> Option<()> {
            sum += block.map_or(0, |block| {
                if cells.len() == BLOCK as usize { block.sum } else { block.counts.sum(cells) }
            });
            None
        });
        sum
    }

    fn reach(&self, cells: Range<u32>, sum: u64) -> Result<u32, u64> {
        let mut left = sum;
        let found = self.find(cells, |first, cells, block| {
            let block = block?;
            if cells.len() == BLOCK as usize && block.sum < left {
                left -= block.sum;
                return None;
            }
            match block.counts.reach(cells, left) {
                Ok(cell) => Some(first + cell),
                Err(fewer) => {
                    left = fewer;
                    None
                }
            }
        });
        found.ok_or(left)
    }

    fn narrow(&mut self) {
        for block in self.blocks.iter_mut().flatten() {
            self.block_bytes -= block.heap_bytes();
            block.counts.narrow();
            self.block_bytes += block.heap_bytes();
        }
    }

    fn heap_bytes(&self) -> usize {
        let of_slots = size_of::<Option<Box<Block>>>() * self.blocks.len();
        allocated(size_of::<Blocks>()) + allocated(of_slots) + self.block_bytes
    }
}

impl Cells {
    /// The memory of `len` counts, of which `filled` successive ones may be other than 0, and up to `most`.
    pub(super) fn bytes_for(len: u32, filled: u32, most: u64) -> usize {
        let of_counts = |len: u32| allocated((len as usize * Width::of(most).bits()).div_ceil(8));
        if len <= MOST_FLAT {
            return of_counts(len);
        }
        let blocks = len.div_ceil(BLOCK) as usize;
        let filled = blocks.min(filled.div_ceil(BLOCK) as usize + 1);
        allocated(size_of::<Blocks>())
            + allocated(size_of::<Option<Box<Block>>>() * blocks)
            + filled * (allocated(size_of::<Block>()) + of_counts(BLOCK))
    }

    /// `len` counts of 0.
    pub(super) fn new(len: u32) -> Cells {
        if len > MOST_FLAT {
            Cells::Blocks(Box::new(Blocks::new(len)))
        } else {
            Cells::Flat(Counts::new(len, Width::Four))
        }
    }

    pub(super) fn len(&self) -> u32 {
        match self {
            Cells::Flat(counts) => counts.len,
            Cells::Blocks(blocks) => blocks.len,
        }
    }

    #[inline]
    pub(super) fn get(&self, cell: u32) -> u64 {
        match self {
            Cells::Flat(counts) => counts.get(cell),
            Cells::Blocks(blocks) => blocks.get(cell),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, cell: u32, more: u64) {
        match self {
            Cells::Flat(counts) => counts.set(cell, counts.get(cell) + more),
            Cells::Blocks(blocks) => blocks.add(cell, more),
        }
    }

    /// Takes at most `most` of a count. Returns how many.
    pub(super) fn take(&mut self, cell: u32, most: u64) -> u64 {
        match self {
            Cells::Flat(counts) => {
                let count = counts.get(cell);
                let taken = count.min(most);
                if taken > 0 {
                    counts.set(cell, count - taken);
                }
                taken
            }
            Cells::Blocks(blocks) => blocks.take(cell, most),
        }
    }

    /// The sum of a range of cells.
    pub(super) fn sum(&self, cells: Range<u32>) -> u64 {
        match self {
            Cells::Flat(counts) => counts.sum(cells),
            Cells::Blocks(blocks) => blocks.sum(cells),
        }
    }

    /// The cell in which the sum from the start of the range reaches `sum`, which is not 0. If it does not, the missing
    /// rest.
    pub(super) fn reach(&self, cells: Range<u32>, sum: u64) -> Result<u32, u64> {
        match self {
            Cells::Flat(counts) => counts.reach(cells, sum),
            Cells::Blocks(blocks) => blocks.reach(cells, sum),
        }
    }

    /// The first cell from `cell` on that may have a count that is not 0.
    pub(super) fn next_filled(&self, cell: u32) -> u32 {
        match self {
            Cells::Flat(_) => cell,
            Cells::Blocks(blocks) if cell >= blocks.len || blocks.block(cell).is_some() => cell,
            Cells::Blocks(blocks) => ((cell / BLOCK + 1) * BLOCK).min(blocks.len),
        }
    }

    /// Narrows the cells as far as the counts allow.
    pub(super) fn narrow(&mut self) {
        match self {
            Cells::Flat(counts) => counts.narrow(),
            Cells::Blocks(blocks) => blocks.narrow(),
        }
    }

    /// Prefetches a cell.
    #[inline]
    pub(super) fn prefetch(&self, cell: u32) {
        match self {
            Cells::Flat(Counts { bytes, width, .. }) => {
                prefetch(bytes.as_ptr().wrapping_add(cell as usize * width.bits() / 8));
            }
            Cells::Blocks(blocks) => prefetch(blocks.blocks.as_ptr().wrapping_add((cell / BLOCK) as usize)),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Cells::Flat(counts) => counts.heap_bytes(),
            Cells::Blocks(blocks) => blocks.heap_bytes(),
        }
    }

    /// Panics if a sum is not that of its cells.
    pub(super) fn check_consistency(&self) {
        let Cells::Blocks(blocks) = self else { return };
        for block in blocks.blocks.iter().flatten() {
            assert!(block.sum > 0, "a block without counts");
            assert_eq!(block.sum, block.counts.sum(0..BLOCK), "the sum of a block");
        }
        let bytes: usize = blocks.blocks.iter().flatten().map(|block| block.heap_bytes()).sum();
        assert_eq!(blocks.block_bytes, bytes, "the bytes of the blocks");
    }
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
            let len = if is_long { 8_999 } else { MOST_FLAT };
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
            assert_eq!(cells.heap_bytes(), allocated(least));
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
            assert_eq!(cells.heap_bytes(), allocated(8 * len as usize));
            cells.narrow();
            for (cell, &count) in (0..).zip(&expected) {
                assert_eq!(cells.take(cell, u64::MAX), count);
            }
            cells.narrow();
            assert_eq!(cells.heap_bytes(), allocated(least));
        }
    }

    #[test]
    fn a_huge_count_widens_its_block_only() {
        let mut cells = Cells::new(1 << 20);
        let empty = cells.heap_bytes();
        assert!(empty < 10_000, "{empty}");
        for block in 0..1 << 10 {
            cells.add(block * BLOCK + 7, 1);
        }
        let filled = cells.heap_bytes();
        assert!(filled < 600_000, "{filled}");
        cells.add(7, 1 << 40);
        assert!(cells.heap_bytes() < filled + 8 * BLOCK as usize, "{}", cells.heap_bytes());
        cells.check_consistency();
        (0..1 << 10).for_each(|block| _ = cells.take(block * BLOCK + 7, u64::MAX));
        assert_eq!(cells.heap_bytes(), empty);
        assert_eq!(size_of::<Cells>(), 24);
    }
}
