//! Counts of one width each: the narrowest that holds the largest of them.

use crate::allocation::allocated;
use crate::machine::prefetch;

/// Counts by place.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    bytes: Box<[u8]>,
    len: u32,
    width: Width,
}

/// Bits of a count.
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
        let bytes = vec![0; (len as usize * width.bits()).div_ceil(8)].into_boxed_slice();
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

    /// Sets a count, in wider cells when it does not fit.
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
    }

    /// Sets a count to 0; gives what it was.
    pub(super) fn take(&mut self, cell: u32) -> u64 {
        let count = self.get(cell);
        if count > 0 {
            self.set(cell, 0);
        }
        count
    }

    /// Makes the cells as narrow as the counts allow.
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
        *self = cells;
    }

    /// Has a cell fetched.
    #[inline]
    pub(super) fn prefetch(&self, cell: u32) {
        prefetch(self.bytes.as_ptr().wrapping_add(cell as usize * self.width.bits() / 8));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocated(self.bytes.len())
    }
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8], cell: usize) -> [u8; N] {
    bytes[cell * N..][..N].try_into().expect("as long as that")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_width_come_back() {
        for len in [1, 2, 361] {
            let mut cells = Cells::new(len);
            let mut expected = vec![0; len as usize];
            let least = len.div_ceil(2) as usize;
            assert_eq!(cells.bytes.len(), least);
            for (step, most) in
                (0..).zip([15, 16, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, u64::MAX])
            {
                let cell = step * 40 % len;
                cells.take(cell);
                cells.add(cell, most);
                expected[cell as usize] = most;
                let counts: Vec<u64> = (0..len).map(|cell| cells.get(cell)).collect();
                assert_eq!(counts, expected);
            }
            assert_eq!(cells.width, Width::SixtyFour);
            cells.narrow();
            for (cell, &count) in (0..).zip(&expected) {
                assert_eq!(cells.take(cell), count);
            }
            cells.narrow();
            assert_eq!((cells.width, cells.heap_bytes()), (Width::Four, allocated(least)));
        }
    }
}
