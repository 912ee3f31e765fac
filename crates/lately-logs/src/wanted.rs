//! The names of the requested fields, for lines that name their fields: JSON and logfmt.

/// The most requested names: those of the key, of the conditions, of a time template, and the names of the known
/// fields of [`crate::fields`].
pub(crate) const MAX_WANTED: usize = 128;

/// Indices of names, as bits.
pub(crate) type Set = u128;

const BUCKETS: usize = 128;

/// The requested names.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    names: Vec<String>,
    /// The names that equal a member's name or start with it and a dot, by the bucket of that. Most members are not
    /// requested.
    buckets: Box<[Set; BUCKETS]>,
}

impl Wanted {
    /// At most [`MAX_WANTED`] names, each once.
    pub(crate) fn new(names: &[String]) -> Wanted {
        debug_assert!(names.len() <= MAX_WANTED, "keys, conditions and times have few fields");
        let mut buckets = Box::new([0; BUCKETS]);
        for (index, name) in names.iter().enumerate() {
            let dots = name.match_indices('.').map(|(at, _)| at);
            for end in dots.chain([name.len()]) {
                buckets[bucket(&name.as_bytes()[..end])] |= 1 << index;
            }
        }
        Wanted { names: names.to_vec(), buckets }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// The index of a name, if it is requested.
    #[inline(always)]
    pub(crate) fn index(&self, name: &[u8]) -> Option<usize> {
        indices(self.buckets[bucket(name)]).find(|&index| self.names[index].as_bytes() == name)
    }

    /// Of the names in `depth`, those that equal the name of this member, and those of fields inside it.
    #[inline]
    pub(crate) fn matched(&self, depth: Depth, member: &[u8]) -> (Set, Set) {
        let at_root = depth.prefix_len == 0;
        let candidates = depth.looked_for & if at_root { self.buckets[bucket(member)] } else { Set::MAX };
        let (mut is, mut inside) = (0, 0);
        for index in indices(candidates) {
            let bit = 1 << index;
            match self.names[index].as_bytes()[depth.prefix_len..].strip_prefix(member) {
                Some([]) => is |= bit,
                Some([b'.', ..]) => inside |= bit,
                _ => {}
            }
        }
        (is, inside)
    }
}

/// The bucket of the name of a member.
fn bucket(name: &[u8]) -> usize {
    let first = name.first().map_or(0, |first| usize::from(*first & 31));
    (first + 5 * name.len()) % BUCKETS
}

/// The names to find in an object.
#[derive(Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) looked_for: Set,
    /// The length of the names of the enclosing objects, each with its dot.
    pub(crate) prefix_len: usize,
}

impl Depth {
    /// All names, outside of any object.
    pub(crate) const ROOT: Depth = Depth { looked_for: Set::MAX, prefix_len: 0 };
}

/// The indices in a set.
#[inline]
pub(crate) fn indices(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros() as usize;
        // An empty set ends the iteration.
        set &= set.checked_sub(1)?;
        Some(index)
    })
}

/// Values that most lines have at most.
const EXPECTED_FIELDS: usize = 8;

/// The values found in a line, as written.
#[derive(Debug)]
pub(crate) struct Found<V> {
    names: Set,
    /// By the index of the name. Of several values the last counts.
    values: Vec<(usize, V)>,
}

impl<V: Copy> Found<V> {
    pub(crate) fn new() -> Found<V> {
        Found { names: 0, values: Vec::with_capacity(EXPECTED_FIELDS) }
    }

    /// Adds a value under these names.
    #[inline]
    pub(crate) fn add(&mut self, names: Set, value: V) {
        indices(names).for_each(|index| self.insert(index, value));
    }

    /// Adds a value under the name with this index.
    #[inline]
    pub(crate) fn insert(&mut self, index: usize, value: V) {
        self.names |= 1 << index;
        self.values.push((index, value));
    }

    #[inline]
    pub(crate) fn has(&self, index: usize) -> bool {
        self.names & (1 << index) != 0
    }

    /// The value under the name with this index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<V> {
        if !self.has(index) {
            return None;
        }
        self.values.iter().rev().find(|(name, _)| *name == index).map(|(_, value)| *value)
    }
}
