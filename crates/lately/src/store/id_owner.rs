//! Whose ids they are.

/// Whose ids they are: those of a key, from its first one on until the key is forgotten or its hits are given back.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(C, packed(4))]
pub(super) struct Owner {
    /// Numbers an owner in its shard, while it is in memory. A key that is restored from a dump has the salt that it had, but
    /// not the ids that came after the dump. 0: there are no ids.
    pub(super) number: u32,
    /// The secret that the ids are hashed with. It is kept with them on disks.
    pub(super) salt: u64,
}

impl Owner {
    /// No ids.
    pub(super) const NONE: Owner = Owner { number: 0, salt: 0 };
}
