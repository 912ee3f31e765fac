//! The users of the config: found by name, replaced as a whole by a reload.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError, RwLock};

use super::access::{Keys, Principal, Verbs};
use super::password::{Keyed, Password, first_line};
use crate::config::{self, FileError};

/// A user, and what it may do.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) verbs: Verbs,
    pub(crate) keys: Keys,
    pub(super) password: Arc<Password>,
}

/// All users.
pub(crate) struct Users {
    by_name: HashMap<String, Entry>,
    /// A password for each cost of verification, in the order of the costs.
    by_cost: Vec<Arc<Password>>,
    /// The config has none: every client may do everything.
    is_open: bool,
}

struct Entry {
    user: Arc<User>,
    /// The keyed hash of the line of the password file that counts, to find out whether it has changed.
    line: ring::hmac::Tag,
}

/// The current users.
pub(crate) struct CurrentUsers {
    users: RwLock<Arc<Users>>,
    /// Counts up whenever they are replaced.
    version: AtomicU64,
    pub(super) keyed: Keyed,
}

impl CurrentUsers {
    /// Nobody can log in before the first [`CurrentUsers::replace`]. Whether clients have to is known from the start.
    pub(crate) fn new(users: &[config::User]) -> CurrentUsers {
        let users = Users { by_name: HashMap::new(), by_cost: Vec::new(), is_open: users.is_empty() };
        let users = RwLock::new(Arc::new(users));
        CurrentUsers { users, version: AtomicU64::new(0), keyed: Keyed::new() }
    }

    pub(crate) fn get(&self) -> Arc<Users> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the password files of these users. Who has the same first line as now keeps its password, and need not be
    /// verified again. It takes long for new passwords.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn load(&self, users: &[config::User]) -> Result<Users, FileError> {
        let current = self.get();
        let (mut by_name, mut by_cost) = (HashMap::new(), BTreeMap::new());
        for config in users {
            let content = config::read_file(&config.password_file)?;
            let tag = self.keyed.tag(first_line(&content));
            let before = current.by_name.get(&config.name);
            let password = match before.filter(|before| before.line.as_ref() == tag.as_ref()) {
                Some(before) => Arc::clone(&before.user.password),
                None => Arc::new(Password::of_file(&config.password_file, &content)?),
            };
            by_cost.entry(password.cost()).or_insert_with(|| Arc::clone(&password));
            let user = User {
                name: config.name.clone(),
                verbs: Verbs::of(&config.verbs),
                keys: Keys::of(&config.keys),
                password,
            };
            by_name.insert(config.name.clone(), Entry { user: Arc::new(user), line: tag });
        }
        Ok(Users { by_name, by_cost: by_cost.into_values().collect(), is_open: users.is_empty() })
    }

    pub(crate) fn replace(&self, users: Users) {
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(users);
        // Pairs with `version`: who sees the new number finds the new users.
        self.version.fetch_add(1, Release);
    }

    /// A number that changes when the users do.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// What a client is before it logs in.
    pub(crate) fn stranger(&self) -> Principal {
        if self.get().is_open() { Principal::Anyone } else { Principal::Nobody }
    }

    /// What a client is now that had these permissions with this version of the users.
    pub(crate) fn current<'p>(&self, principal: &'p Principal, version: u64) -> Cow<'p, Principal> {
        if version == self.version() { Cow::Borrowed(principal) } else { Cow::Owned(self.renewed(principal)) }
    }

    /// What a client is now, after the users were replaced. It has to log in again if its user is gone or has another
    /// password.
    pub(crate) fn renewed(&self, principal: &Principal) -> Principal {
        let users = self.get();
        let Some(before) = principal.user() else { return self.stranger() };
        let now = users.find(&before.name).filter(|now| Arc::ptr_eq(&now.password, &before.password));
        now.map_or_else(|| self.stranger(), |user| Principal::User(Arc::clone(user)))
    }
}

impl Users {
    /// Whether clients need not log in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name).map(|entry| &entry.user)
    }

    /// A password that takes as long to verify as that of some user. `name` is the keyed hash of a name without a user:
    /// each has one of the costs that users have, and always the same, so that the time does not show that it has no user.
    pub(super) fn stand_in(&self, name: u64) -> Option<&Arc<Password>> {
        let index = usize::try_from(name >> 32).unwrap_or_default().checked_rem(self.by_cost.len())?;
        self.by_cost.get(index)
    }
}

#[cfg(test)]
impl User {
    /// A user that nobody can log in as.
    pub(crate) fn with(verbs: &[lately_resp::command::Verb], keys: &[&str]) -> Arc<User> {
        use std::sync::LazyLock;
        static PASSWORD: LazyLock<Arc<Password>> = LazyLock::new(|| Arc::new(Password::of_nobody()));
        let keys: Vec<_> = keys.iter().map(|key| lately::Pattern::new(key.as_bytes())).collect();
        let password = Arc::clone(&PASSWORD);
        Arc::new(User { name: "web".to_owned(), verbs: Verbs::of(verbs), keys: Keys::of(&keys), password })
    }
}
