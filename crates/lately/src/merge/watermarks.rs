//! How far the messages of each origin were merged.

use std::collections::HashMap;

use super::{Changes, Origin, OriginId};

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {
    /// It was merged, and with it everything up to its end.
    Applied,
    /// All of it was merged before.
    Repeated,
    /// It was merged, but what the origin sent after this number was not, and before it: the origin is to send that again.
    Missing {
        /// The watermark of the origin.
        after: u64,
    },
}

/// The origins, and the watermark of each: all of its messages up to this number were merged.
#[derive(Default, Debug)]
pub(crate) struct Watermarks {
    ids: HashMap<Origin, OriginId>,
    list: Vec<(Origin, u64)>,
}

impl Watermarks {
    /// The number of an origin, new or not. `None` when there are `most` others.
    pub(crate) fn id(&mut self, origin: &Origin, most: usize) -> Option<OriginId> {
        if let Some(&id) = self.ids.get(origin) {
            return Some(id);
        }
        let id = OriginId(u32::try_from(self.list.len()).ok().filter(|_| self.list.len() < most)?);
        self.ids.insert(origin.clone(), id);
        self.list.push((origin.clone(), 0));
        Some(id)
    }

    pub(crate) fn origin(&self, id: OriginId) -> &Origin {
        &self.list[id.0 as usize].0
    }

    pub(crate) fn find(&self, origin: &Origin) -> Option<OriginId> {
        self.ids.get(origin).copied()
    }

    /// All messages of the origin up to this number were merged.
    pub(crate) fn watermark(&self, origin: &Origin) -> u64 {
        self.find(origin).map_or(0, |id| self.list[id.0 as usize].1)
    }

    /// Whether all of a message was merged before.
    pub(crate) fn has(&self, changes: &Changes) -> bool {
        changes.until <= self.watermark(&changes.origin)
    }

    /// Takes note that a message of the origin with this number was merged.
    pub(crate) fn note(&mut self, id: OriginId, changes: &Changes) -> Merged {
        let watermark = &mut self.list[id.0 as usize].1;
        if changes.after > *watermark {
            return Merged::Missing { after: *watermark };
        }
        *watermark = changes.until.max(*watermark);
        Merged::Applied
    }
}
