//! Who may do what: the clients of the tests that go over all commands and all routes, and what is expected of each.

use std::sync::Arc;

use lately_resp::command::Verb;

use crate::service::access::Principal;
use crate::service::users::User;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    Nothing,
    /// A login, if there are users.
    Login,
    /// The verb, and these keys.
    Keys(Verb, &'static [&'static str]),
    /// The verb, and all keys.
    AllKeys(Verb),
}

/// What becomes of a request.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    Allowed,
    NoLogin,
    NoVerb,
    NoKey(&'static str),
    NotAllKeys,
}

/// A client, by one verb and one pattern.
pub(crate) enum Who {
    Anyone,
    Nobody,
    User(Verb, &'static str),
}

/// Clients without users, without a login, and of each verb with each pattern.
pub(crate) fn everybody() -> impl Iterator<Item = Who> {
    let patterns = ["*", "app:*", "app:1", "other:*"];
    let users = Verb::ALL.iter().flat_map(move |&verb| patterns.map(|pattern| Who::User(verb, pattern)));
    [Who::Anyone, Who::Nobody].into_iter().chain(users)
}

impl Who {
    pub(crate) fn principal(&self) -> Principal {
        match self {
            Who::Anyone => Principal::Anyone,
            Who::Nobody => Principal::Nobody,
            Who::User(verb, pattern) => Principal::User(Arc::clone(&User::with(&[*verb], &[pattern]))),
        }
    }

    pub(crate) fn expected(&self, needs: Needs) -> Expected {
        let (verb, pattern) = match (self, needs) {
            (_, Needs::Nothing) | (Who::Anyone, _) => return Expected::Allowed,
            (Who::Nobody, _) => return Expected::NoLogin,
            (Who::User(verb, pattern), _) => (*verb, *pattern),
        };
        let has = |key: &str| match pattern.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => key == pattern,
        };
        match needs {
            Needs::Nothing | Needs::Login => Expected::Allowed,
            Needs::Keys(needed, _) | Needs::AllKeys(needed) if needed != verb => Expected::NoVerb,
            Needs::Keys(_, keys) => {
                keys.iter().find(|key| !has(key)).map_or(Expected::Allowed, |key| Expected::NoKey(key))
            }
            Needs::AllKeys(_) if pattern == "*" => Expected::Allowed,
            Needs::AllKeys(_) => Expected::NotAllKeys,
        }
    }

    pub(crate) fn shown(&self) -> String {
        match self {
            Who::Anyone => "anyone".to_owned(),
            Who::Nobody => "nobody".to_owned(),
            Who::User(verb, pattern) => format!("{} {pattern}", verb.name()),
        }
    }
}

/// What the guide to users says.
pub(crate) struct Guide {
    text: String,
}

impl Guide {
    pub(crate) fn read() -> Guide {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/security.md");
        Guide { text: std::fs::read_to_string(path).expect("the guide") }
    }

    /// Checks that a command or a path, between its marks, is in the row of its verb, and among those about all keys if it is one of them.
    pub(crate) fn check(&self, name: &str, needs: Needs) {
        if let Needs::Keys(verb, _) | Needs::AllKeys(verb) = needs {
            let start = format!("| `{}` |", verb.name());
            let row = self.text.lines().find(|line| line.starts_with(&start)).expect("a row");
            assert!(row.contains(name), "{name} is not in the row of its verb: {row}");
        }
        let (_, of_all_keys) = self.text.split_once("A command about all keys").expect("the list");
        let of_all_keys = of_all_keys.split("\n- ").next().unwrap_or_default();
        let is_of_all = matches!(needs, Needs::AllKeys(_));
        assert_eq!(of_all_keys.contains(name), is_of_all, "{name} in the list of commands about all keys");
    }
}
