//! The cells of a sketch. Each has the stamp of the pane in which a member last hit it.
//!
//! A member belongs to one cell: the low bits of its hash choose the register, the zeros after them the level. Half of the
//! members are in level 0, a quarter in level 1, and so on. Levels in which few cells are hit are lists of these cells.

use crate::allocation::allocated;
use crate::leb128;
use crate::limits::{SKETCH_FULL_LEVELS, SKETCH_LOW_CELLS, SKETCH_REGISTERS};

use super::Member;
use super::panes::{NewStamps, Stamp};

/// Levels are from 0 to this number less one. The last one has the members of all levels that would follow.
pub(super) const LEVELS: usize = 32;

const REGISTERS: usize = SKETCH_REGISTERS as usize;
const REGISTER_BITS: u32 = SKETCH_REGISTERS.ilog2();

/// A level is a list up to this many cells. An array takes as much.
const MOST_LISTED: usize = REGISTERS / 3;
/// Below this number of cells, the highest array becomes a list again.
const LEAST_IN_ARRAY: usize = REGISTERS / 6;
/// By how many cells the list grows.
const MORE: usize = 32;

/// Where a member belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    level: u8,
    register: u16,
}

impl Place {
    #[expect(clippy::cast_possible_truncation, reason = "both are below their bounds")]
    pub(super) fn of(Member(hash): Member) -> Place {
        let zeros = (hash >> REGISTER_BITS).trailing_zeros().min(LEVELS as u32 - 1);
        Place { level: zeros as u8, register: (hash % u64::from(SKETCH_REGISTERS)) as u16 }
    }
}

/// A listed cell in three bytes: the level and the register, in order, and the stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Listed([u8; 3]);

impl Listed {
    fn new(place: Place, stamp: Stamp) -> Listed {
        let [high, low] = Listed::order(place).to_be_bytes();
        Listed([high, low, stamp])
    }

    /// Five bits of level, and eleven of the register.
    fn order(Place { level, register }: Place) -> u16 {
        u16::from(level) << REGISTER_BITS | register
    }

    fn place(self) -> Place {
        let order = u16::from_be_bytes([self.0[0], self.0[1]]);
        Place { level: self.level(), register: order % SKETCH_REGISTERS }
    }

    fn level(self) -> u8 {
        self.0[0] >> (REGISTER_BITS - 8)
    }
}

const _: () = assert!(LEVELS << REGISTER_BITS == 1 << u16::BITS, "a place fits two bytes");

/// How many cells of a level were hit, and how many were not.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) hit: u32,
    pub(super) cells: u32,
}

/// The cells of a sketch.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// The cells of the lowest levels, one level after the other.
    arrays: Vec<Stamp>,
    /// Where each of these levels begins, and the end of the last one.
    begins: [u16; LEVELS + 1],
    /// The number of these levels.
    levels: u8,
    /// The cells of the higher levels that were hit, in order.
    list: Vec<Listed>,
}

impl Default for Cells {
    fn default() -> Cells {
        Cells { arrays: Vec::new(), begins: [0; LEVELS + 1], levels: 0, list: Vec::new() }
    }
}

impl Cells {
    /// Sets the stamp of a cell, unless it has a newer one.
    #[inline]
    pub(super) fn set(&mut self, place: Place, stamp: Stamp) {
        match self.find(place) {
            Ok(held) => *held = stamp.max(*held),
            Err(index) => self.insert(index, Listed::new(place, stamp)),
        }
    }

    /// The stamp of a cell, or where it belongs in the list.
    #[inline]
    fn find(&mut self, place: Place) -> Result<&mut Stamp, usize> {
        if place.level < self.levels {
            let level = usize::from(place.level);
            let (begin, end) = (self.begins[level], self.begins[level + 1]);
            // Sizes are powers of two.
            return Ok(&mut self.arrays[usize::from(begin + (place.register & (end - begin - 1)))]);
        }
        let order = Listed::order(place).to_be_bytes();
        let index = self.list.binary_search_by_key(&order, |listed| [listed.0[0], listed.0[1]])?;
        Ok(&mut self.list[index].0[2])
    }

    fn insert(&mut self, index: usize, listed: Listed) {
        if self.list.len() == self.list.capacity() {
            self.list.reserve_exact(MORE);
        }
        self.list.insert(index, listed);
        while self.list.get(MOST_LISTED).is_some_and(|listed| listed.level() == self.levels) {
            self.add_array();
        }
    }

    /// Makes an array of the lowest level of the list. Arrays that are far below lose cells, so that all have a bound.
    fn add_array(&mut self) {
        let count = usize::from(self.levels) + 1;
        let low_levels = count.saturating_sub(SKETCH_FULL_LEVELS);
        let low_cells = match low_levels {
            0 => REGISTERS,
            low_levels => 1 << (SKETCH_LOW_CELLS / low_levels).ilog2(),
        };
        let sizes: Vec<_> = (0..count - 1)
            .map(|level| if level < low_levels { low_cells.min(self.size(level)) } else { self.size(level) })
            .chain([REGISTERS])
            .collect();
        self.resize(&sizes);
        let listed = self.list.iter().take_while(|listed| usize::from(listed.level()) < count).count();
        for listed in self.list.drain(..listed).collect::<Vec<_>>() {
            self.set(listed.place(), listed.0[2]);
        }
        self.list.shrink_to(self.list.len() + MORE);
    }

    /// Gives each array a size, which is at most the one it has. Cells that become one keep the newest stamp.
    fn resize(&mut self, sizes: &[usize]) {
        let mut arrays = vec![0; sizes.iter().sum()];
        let mut begins = [0; LEVELS + 1];
        let mut rest = &mut arrays[..];
        for (level, &size) in sizes.iter().enumerate() {
            let (array, others) = rest.split_at_mut(size);
            if level < usize::from(self.levels) {
                for (index, &stamp) in self.array(level).iter().enumerate() {
                    let cell = &mut array[index % size];
                    *cell = stamp.max(*cell);
                }
            }
            begins[level + 1] = begins[level] + u16::try_from(size).expect("arrays are bounded");
            rest = others;
        }
        self.levels = u8::try_from(sizes.len()).expect("there are few levels");
        (self.arrays, self.begins) = (arrays, begins);
    }

    fn size(&self, level: usize) -> usize {
        usize::from(self.begins[level + 1] - self.begins[level])
    }

    fn array(&self, level: usize) -> &[Stamp] {
        &self.arrays[usize::from(self.begins[level])..usize::from(self.begins[level + 1])]
    }

    /// Gives all cells new stamps. Makes lists of arrays that have few cells left.
    pub(super) fn restamp(&mut self, new: &NewStamps) {
        self.arrays.iter_mut().for_each(|stamp| *stamp = new[usize::from(*stamp)]);
        self.list.iter_mut().for_each(|listed| listed.0[2] = new[usize::from(listed.0[2])]);
        self.list.retain(|listed| listed.0[2] != 0);
        while let Some(highest) = usize::from(self.levels).checked_sub(1)
            && let hit = self.array(highest).iter().filter(|&&stamp| stamp != 0).count()
            && (hit == 0 || hit < LEAST_IN_ARRAY && self.size(highest) == REGISTERS)
        {
            let level = self.levels - 1;
            let cells = (0..).zip(self.array(highest)).filter(|&(_, &stamp)| stamp != 0);
            let mut list: Vec<_> =
                cells.map(|(register, &stamp)| Listed::new(Place { level, register }, stamp)).collect();
            list.append(&mut self.list);
            self.list = list;
            let sizes: Vec<_> = (0..highest).map(|level| self.size(level)).collect();
            self.resize(&sizes);
        }
        self.list.shrink_to(self.list.len() + MORE);
    }

    /// Adds the cells of another sketch, whose stamps become new ones.
    pub(super) fn merge(&mut self, other: &Cells, new: &NewStamps) {
        while self.levels < other.levels {
            self.add_array();
        }
        let sizes: Vec<_> = (0..usize::from(self.levels))
            .map(|level| match level < usize::from(other.levels) {
                true => self.size(level).min(other.size(level)),
                false => self.size(level),
            })
            .collect();
        self.resize(&sizes);
        for (level, number) in (0..usize::from(other.levels)).zip(0..) {
            for (register, &stamp) in (0..).zip(other.array(level)).filter(|&(_, &stamp)| stamp != 0) {
                self.set(Place { level: number, register }, new[usize::from(stamp)]);
            }
        }
        for listed in &other.list {
            self.set(listed.place(), new[usize::from(listed.0[2])]);
        }
        self.list.retain(|listed| listed.0[2] != 0);
    }

    /// How many cells of each level have this stamp or a newer one.
    pub(super) fn tally(&self, from: Stamp) -> [Tally; LEVELS] {
        let mut tallies = [Tally { hit: 0, cells: SKETCH_REGISTERS.into() }; LEVELS];
        for (level, tally) in tallies.iter_mut().enumerate().take(usize::from(self.levels)) {
            // Sums of bytes, which the compiler does many at once.
            let hit = self.array(level).chunks(255).map(|cells| {
                u32::from(cells.iter().map(|&stamp| u8::from(stamp >= from)).fold(0, u8::wrapping_add))
            });
            *tally = Tally { hit: hit.sum(), cells: u32::try_from(self.size(level)).unwrap_or(0) };
        }
        for listed in self.list.iter().filter(|listed| listed.0[2] >= from) {
            tallies[usize::from(listed.level())].hit += 1;
        }
        tallies
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocated(self.arrays.capacity()) + allocated(self.list.capacity() * size_of::<Listed>())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.levels);
        (0..usize::from(self.levels)).for_each(|level| leb128::push(out, self.size(level) as u64));
        out.extend_from_slice(&self.arrays);
        leb128::push(out, self.list.len() as u64);
        self.list.iter().for_each(|listed| out.extend_from_slice(&listed.0));
    }

    /// Reads cells whose stamps are at most `newest`.
    pub(super) fn read(bytes: &mut &[u8], newest: Stamp) -> Option<Cells> {
        let levels = *bytes.split_off_first()?;
        if usize::from(levels) > LEVELS {
            return None;
        }
        let mut cells = Cells { levels, ..Cells::default() };
        for level in 0..usize::from(levels) {
            let size = u16::try_from(leb128::take(bytes)?).ok()?;
            if !size.is_power_of_two() || usize::from(size) > REGISTERS {
                return None;
            }
            cells.begins[level + 1] = cells.begins[level].checked_add(size)?;
        }
        cells.arrays = bytes.split_off(..usize::from(cells.begins[usize::from(levels)]))?.to_vec();
        let most = (LEVELS - usize::from(levels)) * REGISTERS;
        let len = usize::try_from(leb128::take(bytes)?).ok().filter(|&len| len <= most)?;
        let listed = bytes.split_off(..len * size_of::<Listed>())?;
        cells.list = listed.as_chunks().0.iter().map(|&listed| Listed(listed)).collect();
        let stamps = cells.list.iter().map(|listed| listed.0[2]);
        let is_valid = cells.arrays.iter().all(|&stamp| stamp <= newest)
            && stamps.clone().all(|stamp| (1..=newest).contains(&stamp))
            && cells.list.is_sorted_by(|one, two| one.0[..2] < two.0[..2])
            && cells.list.first().is_none_or(|first| first.level() >= levels)
            && cells.arrays.len() <= SKETCH_FULL_LEVELS * REGISTERS + SKETCH_LOW_CELLS
            && cells.list.get(MOST_LISTED).is_none_or(|listed| listed.level() > levels);
        is_valid.then_some(cells)
    }

    pub(super) fn check_consistency(&self, newest: Stamp) {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        assert!(Cells::read(&mut &bytes[..], newest).is_some(), "cells are as they are read");
    }
}
