//! The levels of all keys under a set of classes, and all levels that the hits of one key may be counted in.
//!
//! Nodes of a cluster may have different classes, and a node may start with other classes than before. Then hits of a key are
//! in cells of other levels than those of its class here.

use std::sync::Arc;

use crate::class::Pattern;
use crate::limits::MAX_CLASSES;

use super::{Levels, LevelsId};

/// The levels of all keys under a set of classes. A key has those of the first pattern that matches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelTable {
    classes: Vec<(Pattern, Arc<Levels>)>,
    default: Arc<Levels>,
}

impl LevelTable {
    /// A table; `None` when there are more than [`MAX_CLASSES`] patterns.
    #[must_use]
    pub fn new(classes: Vec<(Pattern, Levels)>, default: Levels) -> Option<LevelTable> {
        let fits = classes.len() <= MAX_CLASSES;
        let classes = classes.into_iter().map(|(pattern, levels)| (pattern, Arc::new(levels))).collect();
        fits.then(|| LevelTable { classes, default: Arc::new(default) })
    }

    /// The patterns and their levels, in order.
    pub fn classes(&self) -> impl Iterator<Item = (&Pattern, &Levels)> {
        self.classes.iter().map(|(pattern, levels)| (pattern, &**levels))
    }

    /// The levels of keys that match no pattern.
    #[must_use]
    pub fn default_levels(&self) -> &Levels {
        &self.default
    }

    /// How long hits are kept at most, in milliseconds.
    #[must_use]
    pub fn retain_ms(&self) -> i64 {
        let all = self.classes().map(|(_, levels)| levels).chain([&*self.default]);
        all.map(Levels::retain_ms).max().unwrap_or(0)
    }

    pub(crate) fn of(&self, key: &[u8]) -> &Arc<Levels> {
        let class = self.classes.iter().find(|(pattern, _)| pattern.matches(key));
        class.map_or(&self.default, |(_, levels)| levels)
    }
}

/// All levels that hits of a key may be counted in: those of its class first, and those that it has under other classes.
#[derive(Clone, Debug)]
pub struct LevelSets<'s> {
    own: &'s Levels,
    others: Vec<Arc<Levels>>,
}

impl<'s> LevelSets<'s> {
    pub(crate) fn new(own: &'s Levels, tables: &[LevelTable], key: &[u8]) -> LevelSets<'s> {
        let mut others: Vec<Arc<Levels>> = Vec::new();
        for levels in tables.iter().map(|table| table.of(key)) {
            if **levels != *own && !others.contains(levels) {
                others.push(Arc::clone(levels));
            }
        }
        LevelSets { own, others }
    }

    /// The levels of the key's class here.
    #[must_use]
    pub fn own(&self) -> &Levels {
        self.own
    }

    /// Those that it has under other classes.
    pub fn others(&self) -> impl Iterator<Item = &Levels> {
        self.others.iter().map(|levels| &**levels)
    }

    /// All of them, those of its class first.
    pub fn all(&self) -> impl Iterator<Item = &Levels> {
        [self.own].into_iter().chain(self.others())
    }

    /// Those with an id, if they are known.
    #[must_use]
    pub fn of(&self, id: LevelsId) -> Option<&Levels> {
        self.all().find(|levels| levels.id() == id)
    }

    /// Until which age cells of these levels with a width are read, in milliseconds. The next level is read in whole cells, which are wider.
    #[must_use]
    pub fn until_age_ms(&self, id: LevelsId, width_ms: i64) -> i64 {
        let mut levels =
            self.of(id).into_iter().flat_map(Levels::as_slice).skip_while(|level| level.width_ms != width_ms);
        let Some(level) = levels.next() else { return self.all().map(Levels::retain_ms).max().unwrap_or(0) };
        level.until_age_ms + levels.next().map_or(0, |next| next.width_ms)
    }
}
