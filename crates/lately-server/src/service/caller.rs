//! A connection, as far as logins go: its address, and the passwords that were right on it.
//!
//! A login with a password that was right on the same connection never waits, whatever others at the same address do. Other
//! connections have no advantage from it. A proxy may send requests of many clients on one connection, so another password
//! for the same user makes the connection forget the right one: guesses on it wait like those on any other.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::hmac::Tag;

use super::access::Principal;
use super::users::{CurrentUsers, User};
use crate::limits::MAX_USERS_OF_CONNECTION;

/// A connection that logs in.
pub(crate) struct Caller {
    pub(super) address: IpAddr,
    /// Users, each with the keyed hash of the password that was right.
    right: Mutex<Vec<(Arc<User>, Tag)>>,
    /// A login on it has failed. Its further logins wait behind the first ones of other connections.
    has_failed: AtomicBool,
}

impl Caller {
    pub(crate) fn new(address: IpAddr) -> Arc<Caller> {
        Arc::new(Caller { address, right: Mutex::default(), has_failed: AtomicBool::new(false) })
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    pub(super) fn fail(&self) {
        self.has_failed.store(true, Relaxed);
    }

    fn right(&self) -> MutexGuard<'_, Vec<(Arc<User>, Tag)>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user, if this password was right on this connection and the user still has it. Forgets it otherwise.
    pub(super) fn recall(&self, name: &[u8], password: &[u8], users: &CurrentUsers) -> Option<Arc<User>> {
        let mut right = self.right();
        let index = right.iter().position(|(user, _)| user.name.as_bytes() == name)?;
        let (user, tag) = &right[index];
        if users.keyed.is_of(Some(tag), password)
            && let Principal::User(user) = users.renewed(&Principal::User(Arc::clone(user)))
        {
            return Some(user);
        }
        right.swap_remove(index);
        None
    }

    /// Remembers a password that was right.
    pub(super) fn remember(&self, user: &Arc<User>, password: &[u8], users: &CurrentUsers) {
        let mut right = self.right();
        right.retain(|(other, _)| other.name != user.name);
        if right.len() >= MAX_USERS_OF_CONNECTION {
            right.remove(0);
        }
        // Most connections have one user.
        right.reserve_exact(1);
        right.push((Arc::clone(user), users.keyed.tag(password)));
    }
}
