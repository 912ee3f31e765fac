//! What few operations need of a place in the table: the generation of its key, whose its ids are, its members, and
//! whether its hits were sent to other nodes.

use super::chunks::Chunks;
use super::id_owner::Owner;
use super::key_state::Extras;
use super::unsent::Unsent;
use crate::allocation::allocated;
use crate::delta::Generation;
use crate::machine::prefetch;
use crate::uniques::Uniques;

/// Values by place, of a table and of the one before while slots move.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Absent generations are the first one: nothing is stored until a key is deleted.
    generations: Chunks<Generation>,
    generations_before: Chunks<Generation>,
    /// Whose the ids of keys are. Nothing is stored until a key has one.
    owners: Vec<Owner>,
    owners_before: Vec<Owner>,
    /// The members of keys. Nothing is stored until a key has one.
    uniques: Vec<Option<Box<Uniques>>>,
    uniques_before: Vec<Option<Box<Uniques>>>,
    /// The memory of all members, in bytes.
    uniques_bytes: usize,
    /// `None` if nothing is sent to other nodes.
    unsent: Option<Unsent>,
}

impl Places {
    /// The values for a table without keys.
    pub(super) fn clear(&mut self, places: u32) {
        self.generations = Chunks::new(places);
        self.generations_before = Chunks::default();
        (self.owners, self.owners_before) = (Vec::new(), Vec::new());
        (self.uniques, self.uniques_before, self.uniques_bytes) = (Vec::new(), Vec::new(), 0);
        if let Some(unsent) = &mut self.unsent {
            unsent.clear(places);
        }
    }

    /// The values for a new table. With `is_moving`, the slots of the old one move to it.
    pub(super) fn resize(&mut self, places: u32, is_moving: bool) {
        let generations = std::mem::replace(&mut self.generations, Chunks::new(places));
        let room = if self.owners.is_empty() { 0 } else { places as usize };
        let owners = std::mem::replace(&mut self.owners, vec![Owner::NONE; room]);
        let room = if self.uniques.is_empty() { 0 } else { places as usize };
        let uniques = std::mem::replace(&mut self.uniques, none(room));
        if is_moving {
            self.generations_before = generations;
            self.owners_before = owners;
            self.uniques_before = uniques;
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.resize(places, is_moving);
        }
    }

    /// A slot has moved from a place of the old table.
    pub(super) fn moved(&mut self, from: u32, to: u32) {
        self.generations.set(to, self.generations_before.get(from));
        if let Some(&owner) = self.owners_before.get(from as usize) {
            self.owners[to as usize] = owner;
        }
        if let Some(uniques) = self.uniques_before.get_mut(from as usize) {
            self.uniques[to as usize] = uniques.take();
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.moved(from, to);
        }
    }

    /// All slots have moved.
    pub(super) fn end_move(&mut self) {
        self.generations_before = Chunks::default();
        self.owners_before = Vec::new();
        self.uniques_before = Vec::new();
        if let Some(unsent) = &mut self.unsent {
            unsent.end_move();
        }
    }

    /// The key at a place is gone.
    pub(super) fn free(&mut self, place: u32) {
        self.generations.set(place, Generation::default());
        self.set_owner(place, Owner::NONE);
        _ = self.take_uniques(place);
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

    /// The owner of the ids and a copy of the members of the key at a place.
    pub(super) fn owner_and_members(&self, place: u32) -> Extras {
        let uniques = self.uniques.get(place as usize).cloned().flatten();
        Extras { owner: self.owner(place), uniques, ..Extras::default() }
    }

    /// The owner of the ids of the key at a place.
    pub(super) fn owner(&self, place: u32) -> Owner {
        self.owners.get(place as usize).copied().unwrap_or(Owner::NONE)
    }

    /// The numbers of all owners.
    pub(super) fn owners(&self) -> Vec<u32> {
        let all = self.owners.iter().chain(&self.owners_before);
        all.filter(|&&owner| owner != Owner::NONE).map(|owner| owner.number).collect()
    }

    /// Prefetches the owner of a place.
    pub(super) fn prefetch_owner(&self, place: u32) {
        if let Some(owner) = self.owners.get(place as usize) {
            prefetch(owner);
        }
    }

    /// Sets an owner in a table with this many places.
    pub(super) fn set_first_owner(&mut self, place: u32, owner: Owner, places: u32) {
        if self.owners.is_empty() {
            self.owners = vec![Owner::NONE; places as usize];
        }
        self.set_owner(place, owner);
    }

    /// Sets the owner of a place, if there are any.
    pub(super) fn set_owner(&mut self, place: u32, owner: Owner) {
        if let Some(held) = self.owners.get_mut(place as usize) {
            *held = owner;
        }
    }

    /// The members of the key at a place, if it has any.
    pub(super) fn uniques(&self, place: u32) -> Option<&Uniques> {
        self.uniques.get(place as usize)?.as_deref()
    }

    /// Changes the members of the key at a place in a table with this many places.
    pub(super) fn change_uniques<T>(
        &mut self,
        place: u32,
        places: u32,
        change: impl FnOnce(&mut Uniques) -> T,
    ) -> T {
        if self.uniques.is_empty() {
            self.uniques = none(places as usize);
        }
        let uniques = &mut self.uniques[place as usize];
        let before = uniques.as_ref().map_or(0, |uniques| uniques.bytes());
        let uniques = uniques.get_or_insert_default();
        let result = change(uniques);
        self.uniques_bytes = self.uniques_bytes + uniques.bytes() - before;
        result
    }

    /// Removes the members of the key at a place.
    pub(super) fn take_uniques(&mut self, place: u32) -> Option<Box<Uniques>> {
        let uniques = self.uniques.get_mut(place as usize)?.take()?;
        self.uniques_bytes -= uniques.bytes();
        Some(uniques)
    }

    /// Prefetches where the members of the key at a place are.
    pub(super) fn prefetch_uniques(&self, place: u32) {
        if let Some(uniques) = self.uniques.get(place as usize) {
            prefetch(uniques);
        }
    }

    pub(super) fn check_uniques(&self) {
        let all = || self.uniques.iter().chain(&self.uniques_before).flatten();
        all().for_each(|uniques| uniques.check_consistency());
        assert_eq!(
            all().map(|uniques| uniques.bytes()).sum::<usize>(),
            self.uniques_bytes,
            "members are accounted"
        );
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
        let owners = [&self.owners, &self.owners_before]
            .map(|owners| allocated(size_of::<Owner>() * owners.capacity()));
        let uniques = [&self.uniques, &self.uniques_before]
            .map(|uniques| allocated(size_of::<Option<Box<Uniques>>>() * uniques.capacity()));
        let uniques = self.uniques_bytes + uniques.iter().sum::<usize>();
        generations + owners.iter().sum::<usize>() + uniques + unsent
    }

    /// Whether nothing is left of a table before.
    pub(super) fn has_moved(&self) -> bool {
        self.generations_before.is_empty()
            && self.owners_before.is_empty()
            && self.uniques_before.is_empty()
            && self.unsent.as_ref().is_none_or(Unsent::has_moved)
    }
}

/// No members, for this many places.
fn none(places: usize) -> Vec<Option<Box<Uniques>>> {
    let mut none = Vec::new();
    none.reserve_exact(places);
    none.resize_with(places, || None);
    none
}
