//! What few operations need of a place in the table: the generation of its key, the secret of its ids, and whether its hits
//! were sent to other nodes.

use super::chunks::Chunks;
use super::unsent::Unsent;
use crate::delta::Generation;

/// Values by place, of a table and of the one before while slots move.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Absent generations are the first one: nothing is stored until a key is deleted.
    generations: Chunks<Generation>,
    generations_before: Chunks<Generation>,
    /// The secrets that the ids of keys are hashed with. 0: the key has no ids.
    salts: Chunks<u64>,
    salts_before: Chunks<u64>,
    /// `None` if nothing is sent to other nodes.
    unsent: Option<Unsent>,
}

impl Places {
    /// The values for a table without keys.
    pub(super) fn clear(&mut self, places: u32) {
        self.generations = Chunks::new(places);
        self.generations_before = Chunks::default();
        self.salts = Chunks::new(places);
        self.salts_before = Chunks::default();
        if let Some(unsent) = &mut self.unsent {
            unsent.clear(places);
        }
    }

    /// The values for a new table. With `is_moving`, the slots of the old one move to it.
    pub(super) fn resize(&mut self, places: u32, is_moving: bool) {
        let generations = std::mem::replace(&mut self.generations, Chunks::new(places));
        let salts = std::mem::replace(&mut self.salts, Chunks::new(places));
        if is_moving {
            self.generations_before = generations;
            self.salts_before = salts;
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.resize(places, is_moving);
        }
    }

    /// A slot has moved from a place of the old table.
    pub(super) fn moved(&mut self, from: u32, to: u32) {
        self.generations.set(to, self.generations_before.get(from));
        self.salts.set(to, self.salts_before.get(from));
        if let Some(unsent) = &mut self.unsent {
            unsent.moved(from, to);
        }
    }

    /// All slots have moved.
    pub(super) fn end_move(&mut self) {
        self.generations_before = Chunks::default();
        self.salts_before = Chunks::default();
        if let Some(unsent) = &mut self.unsent {
            unsent.end_move();
        }
    }

    /// The key at a place is gone.
    pub(super) fn free(&mut self, place: u32) {
        self.generations.set(place, Generation::default());
        self.salts.set(place, 0);
        if let Some(unsent) = &mut self.unsent {
            _ = unsent.take(place, u8::MAX);
        }
    }

    pub(super) fn generation(&self, place: u32) -> Generation {
        self.generations.get(place)
    }

    pub(super) fn set_generation(&mut self, place: u32, generation: Generation) {
        self.generations.set(place, generation);
    }

    pub(super) fn salt(&self, place: u32) -> u64 {
        self.salts.get(place)
    }

    pub(super) fn set_salt(&mut self, place: u32, salt: u64) {
        self.salts.set(place, salt);
    }

    pub(super) fn unsent(&self) -> Option<&Unsent> {
        self.unsent.as_ref()
    }

    #[inline]
    pub(super) fn unsent_mut(&mut self) -> Option<&mut Unsent> {
        self.unsent.as_mut()
    }

    pub(super) fn track_unsent(&mut self, unsent: Unsent) {
        self.unsent = Some(unsent);
    }

    pub(super) fn bytes(&self) -> usize {
        let unsent = self.unsent.as_ref().map_or(0, Unsent::bytes);
        let generations = self.generations.bytes() + self.generations_before.bytes();
        generations + self.salts.bytes() + self.salts_before.bytes() + unsent
    }

    /// Whether nothing is left of a table before.
    pub(super) fn has_moved(&self) -> bool {
        self.generations_before.is_empty()
            && self.salts_before.is_empty()
            && self.unsent.as_ref().is_none_or(Unsent::has_moved)
    }
}
