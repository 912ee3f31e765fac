//! The partitions of the table of counts: one for each width of cells, and in it one for each stretch of time.

use std::collections::HashMap;

use crate::Write;
use crate::layout::CELLS_OF_A_BLOCK;
use crate::limits::{PARTITION_BLOCKS, PARTITION_LEAST_MS};

/// A stretch of time of one width.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Partition {
    pub(super) width_ms: i64,
    /// Its number among those of this width, counted from the epoch.
    pub(super) number: i64,
}

/// The length of a partition. No block is in two of them.
fn length_ms(width_ms: i64) -> i64 {
    let block_ms = width_ms * CELLS_OF_A_BLOCK;
    let blocks = PARTITION_BLOCKS.max(PARTITION_LEAST_MS.div_euclid(block_ms) + 1);
    block_ms.saturating_mul(blocks)
}

impl Partition {
    fn end_ms(self) -> i64 {
        (self.number + 1).saturating_mul(length_ms(self.width_ms))
    }

    /// The partitions of counts, each with the time until which it is needed.
    pub(super) fn of(writes: &[Write<'_>]) -> HashMap<Partition, i64> {
        let mut needed = HashMap::new();
        for Write { block, keep_until, .. } in writes {
            let number = block.start_ms().div_euclid(length_ms(block.width_ms));
            let partition = Partition { width_ms: block.width_ms, number };
            // As long after its end as the block is kept after its own.
            let kept_ms = keep_until.as_millis().saturating_sub(block.end_ms());
            let until_ms = partition.end_ms().saturating_add(kept_ms);
            let held = needed.entry(partition).or_insert(until_ms);
            *held = until_ms.max(*held);
        }
        needed
    }

    fn parent(self) -> String {
        format!("lately.virtual_counter_{}", self.width_ms)
    }

    fn name(self) -> String {
        format!("lately.\"virtual_counter_{}_{}\"", self.width_ms, self.number)
    }

    /// Creates the partition, unless it is there.
    pub(super) fn create(self, keep_until_ms: i64) -> String {
        let Partition { width_ms, number } = self;
        let (parent, name) = (self.parent(), self.name());
        let from_ms = self.end_ms().saturating_sub(length_ms(width_ms));
        let end_ms = self.end_ms();
        format!(
            "CREATE TABLE IF NOT EXISTS {parent} PARTITION OF lately.virtual_counter FOR VALUES IN ({width_ms}) PARTITION BY RANGE (pane);
CREATE TABLE IF NOT EXISTS {name} PARTITION OF {parent} FOR VALUES FROM ({from_ms}) TO ({end_ms});
INSERT INTO lately.partition AS held VALUES ({width_ms}, {number}, {keep_until_ms})
ON CONFLICT (width_ms, number) DO UPDATE SET keep_until_ms = greatest(held.keep_until_ms, excluded.keep_until_ms);
"
        )
    }

    /// Drops the partition, if no count in it is read any more.
    pub(super) fn drop(self) -> String {
        let Partition { width_ms, number } = self;
        format!(
            "DO $$ BEGIN
DELETE FROM lately.partition WHERE width_ms = {width_ms} AND number = {number}
AND keep_until_ms < extract(epoch FROM now()) * 1000;
IF FOUND THEN DROP TABLE IF EXISTS {}; END IF;
END $$;
",
            self.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use lately::{Cell, LevelsId, Timestamp};

    use super::*;
    use crate::Block;

    #[test]
    fn a_block_is_in_one_partition() {
        for width_ms in [1, 10, 1_000, 60_000, 86_400_000] {
            let block_ms = width_ms * CELLS_OF_A_BLOCK;
            assert_eq!(length_ms(width_ms) % block_ms, 0);
            assert!(length_ms(width_ms) >= PARTITION_LEAST_MS);
            for at_ms in [-1, 0, 1_700_000_000_000] {
                let block = Block::of(b"k", LevelsId::new(1), Cell::of(at_ms, width_ms));
                let keep_until = Timestamp::from_millis(block.end_ms() + 5_000).expect("a time");
                let needed = Partition::of(&[Write { block, keep_until, counts: Vec::new() }]);
                let (partition, until_ms) = needed.into_iter().next().expect("one");
                let from_ms = partition.end_ms() - length_ms(width_ms);
                assert!(from_ms <= block.start_ms() && block.end_ms() <= partition.end_ms());
                assert_eq!(until_ms, partition.end_ms() + 5_000);
            }
        }
    }
}
