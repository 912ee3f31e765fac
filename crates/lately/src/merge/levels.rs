//! The widths of the cells in which counts travel, by the age of the hits.
//!
//! A hit is in a cell of each level. A reader takes the counts of recent times from the finest level, of older times from
//! coarser ones. So a cell never changes its width, and what was sent is never sent again in another width. A level has
//! about a thousand cells while it is in use.

use crate::ladder::{Ladder, PRECISION_UNIT, RUNGS_MS};
use crate::limits::{CELLS_OF_A_LEVEL, WIDE_CELLS_EVERY_MS};
use crate::time::{Span, Timestamp};

use super::Cell;

/// The levels of a class, finest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    list: Vec<Level>,
    id: LevelsId,
    /// What the class says of the widths of its panes. Earlier versions did not tell that to other nodes.
    pane_widths: Option<PaneWidths>,
    /// The panes that the class may have at each age.
    ladder: Ladder,
}

/// What a class says of the widths of its panes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaneWidths {
    /// Until which age panes are as wide as the resolution, in milliseconds.
    pub exact_ms: i64,
    /// How wide older ones may be, in millionths of their age.
    pub precision_ppm: i64,
}

impl PaneWidths {
    /// The least that may be assumed of a class of which nothing is known.
    const ANY: PaneWidths = PaneWidths { exact_ms: 1, precision_ppm: PRECISION_UNIT };

    pub(crate) fn ladder(self, resolution_ms: i64) -> Option<Ladder> {
        let PaneWidths { exact_ms, precision_ppm } = self;
        let exact = Span::from_millis(exact_ms)?;
        (1..=PRECISION_UNIT)
            .contains(&precision_ppm)
            .then(|| Ladder::new(resolution_ms, exact, precision_ppm))
    }
}

/// The widths of the finest cells of [`Levels::around`]: a minute, an hour, one day, ten and a hundred.
const WIDTHS_AROUND_MS: [i64; 5] = [60_000, 3_600_000, 86_400_000, 864_000_000, 8_640_000_000];

/// Tells levels from others. It is made of the widths and ages alone, those of panes among them, so equal levels have the same one everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LevelsId(u32);

impl LevelsId {
    /// The id with a number.
    #[must_use]
    pub const fn new(number: u32) -> LevelsId {
        LevelsId(number)
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The 32-bit hash of Fowler, Noll and Vo (FNV-1a) over all numbers.
    fn of(list: &[Level], pane_widths: Option<PaneWidths>) -> LevelsId {
        let numbers = list.iter().flat_map(|level| [level.width_ms, level.from_age_ms, level.until_age_ms]);
        let of_panes = pane_widths.map(|widths| [widths.exact_ms, widths.precision_ppm]);
        let numbers = numbers.chain(of_panes.into_iter().flatten());
        let bytes = numbers.flat_map(i64::to_le_bytes);
        LevelsId(
            bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)),
        )
    }
}

/// One level: from which age to which age of the hits it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// The width of its cells, in milliseconds.
    pub width_ms: i64,
    /// It is read for hits that are about this old, in milliseconds.
    pub from_age_ms: i64,
    /// The next level, or the end of the retention, takes over at this age.
    pub until_age_ms: i64,
}

impl Level {
    /// The cell of this level that has a time.
    #[must_use]
    pub fn cell(&self, at: Timestamp) -> Cell {
        self.cell_of_ms(at.as_millis())
    }

    /// The cell of this level that has a millisecond.
    #[must_use]
    pub fn cell_of_ms(&self, at_ms: i64) -> Cell {
        Cell::of(at_ms, self.width_ms)
    }

    /// The first millisecond that is not read from this level but from a finer one.
    fn end_ms(&self, now: Timestamp) -> i64 {
        if self.from_age_ms == 0 {
            return i64::MAX;
        }
        (now.as_millis() - self.from_age_ms).div_euclid(self.width_ms) * self.width_ms
    }
}

impl Levels {
    /// The levels of a class: the resolution in the exact span, and then widths that its precision permits.
    pub(crate) fn new(
        ladder: Ladder,
        (resolution_ms, retain_ms): (i64, i64),
        pane_widths: PaneWidths,
    ) -> Levels {
        let mut level = Level { width_ms: resolution_ms, from_age_ms: 0, until_age_ms: retain_ms };
        let mut list = Vec::new();
        loop {
            let wanted_ms = level.from_age_ms.saturating_add(level.width_ms.saturating_mul(CELLS_OF_A_LEVEL));
            let next = ladder.next_wider(level.width_ms, wanted_ms).filter(|&(_, age_ms)| age_ms < retain_ms);
            let Some((width_ms, from_age_ms)) = next else { break };
            // From one age on, several widths may be permitted.
            if level.from_age_ms < from_age_ms {
                list.push(Level { until_age_ms: from_age_ms, ..level });
            }
            level = Level { width_ms, from_age_ms, until_age_ms: retain_ms };
        }
        list.push(level);
        let pane_widths = Some(pane_widths);
        Levels { id: LevelsId::of(&list, pane_widths), list, pane_widths, ladder }
    }

    /// Levels as another node has named them, finest first; `None` when they are no levels: each is wider than the one before,
    /// and takes over from it. Without the widths of its panes, they may be as wide as any class has them.
    #[must_use]
    pub fn from_list(list: Vec<Level>, pane_widths: Option<PaneWidths>) -> Option<Levels> {
        let is_rung =
            |level: &Level| RUNGS_MS.contains(&level.width_ms) && level.from_age_ms < level.until_age_ms;
        let follows = |pair: &[Level]| {
            pair[0].width_ms < pair[1].width_ms && pair[0].until_age_ms == pair[1].from_age_ms
        };
        let is_valid = list.first().is_some_and(|level| level.from_age_ms == 0)
            && list.last().is_some_and(|level| level.until_age_ms <= Span::MAX.as_millis())
            && list.iter().all(is_rung)
            && list.windows(2).all(follows);
        let finest = list.first().filter(|_| is_valid)?;
        let ladder = pane_widths.unwrap_or(PaneWidths::ANY).ladder(finest.width_ms)?;
        Some(Levels { id: LevelsId::of(&list, pane_widths), list, pane_widths, ladder })
    }

    /// Levels of which each cell around a range of time has all of it, its last millisecond excluded. The finest cells have one of five widths, so
    /// that there are few such levels. `None` if none of them has the range.
    #[must_use]
    pub fn around((start_ms, end_ms): (i64, i64), retain_ms: i64) -> Option<Levels> {
        let has = |width_ms: &i64| end_ms <= Cell::of(start_ms, *width_ms).end_ms();
        let width_ms = WIDTHS_AROUND_MS.into_iter().find(has)?;
        let exact_ms = retain_ms.min(width_ms.saturating_mul(CELLS_OF_A_LEVEL));
        let pane_widths = PaneWidths { exact_ms, precision_ppm: PRECISION_UNIT / 100 };
        Some(Levels::new(pane_widths.ladder(width_ms)?, (width_ms, retain_ms), pane_widths))
    }

    /// Tells these levels from others.
    #[must_use]
    pub fn id(&self) -> LevelsId {
        self.id
    }

    /// How long hits are kept, in milliseconds.
    #[must_use]
    pub fn retain_ms(&self) -> i64 {
        self.list.last().map_or(0, |level| level.until_age_ms)
    }

    /// The levels, finest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Level] {
        &self.list
    }

    /// Whether the second level is read so soon that its cells cannot wait for the next time when wider ones are sent.
    pub(crate) fn has_urgent_wider_cells(&self) -> bool {
        self.list.len() > 1 && self.list[0].until_age_ms < 2 * WIDE_CELLS_EVERY_MS
    }

    /// For each level the first and one past the last millisecond that are read from it at `now`, finest first. Together they
    /// are all times: none is read twice.
    pub fn ranges_ms(&self, now: Timestamp) -> impl Iterator<Item = (Level, i64, i64)> + '_ {
        let ends = self.list.iter().map(move |level| level.end_ms(now));
        let starts = ends.clone().skip(1).chain([i64::MIN]);
        self.list.iter().zip(starts.zip(ends)).map(|(level, (start, end))| (*level, start, end))
    }

    /// What the class says of the widths of its panes, if that is known.
    #[must_use]
    pub fn pane_widths(&self) -> Option<PaneWidths> {
        self.pane_widths
    }

    /// The widest pane around a time that the class may have at `now`: its first millisecond, and one past its last.
    #[must_use]
    pub fn widest_pane_ms(&self, at_ms: i64, now: Timestamp) -> (i64, i64) {
        let (start_ms, width_ms) = self.ladder.cell(at_ms, now.as_millis());
        (start_ms, start_ms + width_ms)
    }

    /// The cells of a hit, finest first: one of each level that is read for its time at `now` or later.
    pub fn cells_of(&self, at: Timestamp, now: Timestamp) -> impl Iterator<Item = Cell> + '_ {
        let cells = self.ranges_ms(now).map(move |(level, from_ms, _)| (level.cell(at), from_ms));
        cells.filter(|(cell, from_ms)| *from_ms <= cell.start_ms).map(|(cell, _)| cell)
    }

    /// Whether a cell is read at `now` or later.
    pub(crate) fn is_kept(&self, cell: Cell, now: Timestamp) -> bool {
        let range = self.ranges_ms(now).find(|(level, ..)| level.width_ms == cell.width_ms);
        range.is_some_and(|(level, from_ms, _)| {
            // No coarser level takes over from the last one: its hits leave the retention.
            let kept_ms = now.as_millis() - level.until_age_ms - 2 * level.width_ms;
            from_ms <= cell.start_ms && (from_ms > i64::MIN || kept_ms <= cell.start_ms)
        })
    }

    /// Whether a cell is read at `now`.
    #[must_use]
    pub fn is_read(&self, cell: Cell, now: Timestamp) -> bool {
        let mut ranges = self.ranges_ms(now);
        ranges.any(|(level, start, end)| {
            level.width_ms == cell.width_ms && start <= cell.start_ms && cell.end_ms() <= end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::time::{days, milliseconds, minutes, seconds};

    #[test]
    fn levels_are_few_and_not_wider_than_the_precision_permits() {
        let widths = |settings: &Settings| -> Vec<(i64, i64)> {
            let levels = settings.levels();
            let list = levels.as_slice().iter();
            list.map(|level| (level.width_ms / 1_000, level.from_age_ms / 1_000)).collect()
        };
        let expected = [(1, 0), (10, 1_000), (60, 6_000), (600, 60_000), (3_600, 360_000)];
        assert_eq!(widths(&Settings::default()), expected);
        let coarse = Settings::builder().precision(0.5).retain(days(365)).build().expect("valid");
        assert_eq!(widths(&coarse), [(1, 0), (300, 600), (86_400, 172_800), (8_640_000, 17_280_000)]);
        let short = Settings::builder().retain(minutes(10)).build().expect("valid");
        assert_eq!(widths(&short), [(1, 0)]);
    }

    #[test]
    fn levels_that_another_node_has_named_have_the_panes_of_its_class() {
        let now = Timestamp::from_millis(1_700_000_123_457).expect("a time");
        let coarse = Settings::builder().precision(0.1);
        let short = Settings::builder().retain(minutes(10));
        for settings in [Settings::builder(), coarse, short].map(|settings| settings.build().expect("valid"))
        {
            let levels = settings.levels();
            let read = |widths| Levels::from_list(levels.as_slice().to_vec(), widths).expect("levels");
            assert_eq!(&read(levels.pane_widths()), levels);
            let of_earlier_version = read(None);
            assert_ne!(of_earlier_version.id(), levels.id());
            for age_ms in [0, 250_000, 36_000_000] {
                let at_ms = now.as_millis() - age_ms;
                let (start_ms, width_ms) = settings.ladder().cell(at_ms, now.as_millis());
                assert_eq!(levels.widest_pane_ms(at_ms, now), (start_ms, start_ms + width_ms), "{age_ms}");
                let widest = of_earlier_version.widest_pane_ms(at_ms, now);
                assert!(widest.0 <= start_ms && start_ms + width_ms <= widest.1, "{age_ms}");
            }
            for (exact_ms, precision_ppm) in [(0, 1), (1, 0), (1, PRECISION_UNIT + 1), (-5, 7), (i64::MAX, 7)]
            {
                let widths = PaneWidths { exact_ms, precision_ppm };
                assert_eq!(Levels::from_list(levels.as_slice().to_vec(), Some(widths)), None, "{widths:?}");
            }
        }
    }

    #[test]
    fn the_narrowest_cells_around_a_range_are_found() {
        let retain_ms = days(7).as_millis();
        let width =
            |range_ms| Levels::around(range_ms, retain_ms).map(|levels| levels.as_slice()[0].width_ms);
        assert_eq!(width((1_000, 1_001)), Some(60_000));
        assert_eq!(width((60_000, 120_000)), Some(60_000));
        assert_eq!(width((59_999, 60_001)), Some(3_600_000));
        assert_eq!(width((8_640_000_000 - 1, 8_640_000_000 + 1)), None);
        let levels = Levels::around((0, 60_000), retain_ms).expect("they are found");
        // A reader asks for about a thousand cells of a level.
        let now = Timestamp::from_millis(1_700_000_000_000).expect("a time");
        for (level, from_ms, end_ms) in levels.ranges_ms(now) {
            let range_ms = end_ms.min(now.as_millis()) - from_ms.max(now.as_millis() - retain_ms);
            assert!(range_ms / level.width_ms <= 2 * CELLS_OF_A_LEVEL, "{level:?}");
        }
        let (first_ms, end_ms) = levels.widest_pane_ms(now.as_millis() - 3_000_000, now);
        assert_eq!(end_ms - first_ms, 60_000);
    }

    #[test]
    fn each_time_is_read_from_one_level() {
        let fine =
            Settings::builder().resolution(milliseconds(10)).window(seconds(2)).build().expect("valid");
        for settings in [Settings::default(), fine] {
            let levels = settings.levels();
            for now_ms in [1_700_000_000_000, 1_700_000_123_457] {
                let now = Timestamp::from_millis(now_ms).expect("a time");
                let mut before = i64::MAX;
                for (level, start_ms, end_ms) in levels.ranges_ms(now) {
                    assert_eq!(end_ms, before);
                    before = start_ms;
                    let on_grid = |ms: i64| ms == i64::MAX || ms == i64::MIN || ms % level.width_ms == 0;
                    assert!(on_grid(start_ms) && on_grid(end_ms), "{level:?}");
                    // A pane of this width may be as young as this.
                    let newest_end_ms = end_ms.min(now_ms);
                    assert!(settings.ladder().pane_width_ms(now_ms - newest_end_ms) >= level.width_ms);
                }
                assert_eq!(before, i64::MIN);
            }
        }
    }
}
