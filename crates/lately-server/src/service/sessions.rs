//! Sessions of the dashboard: a browser that has logged in shows a random token instead of a password.
//!
//! Tokens are kept as keyed hashes. A session ends when it was not used for a while, when it is old, and when its user is
//! gone or has another password.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lately::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

use super::Service;
use super::access::Principal;
use super::users::User;
use crate::limits::{MAX_SESSIONS, MAX_SESSIONS_OF_USER, SESSION_BYTES, SESSION_IDLE_MS, SESSION_LIFE_MS};

/// The sessions, by the hash of their token.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Token, Session>>);

/// The keyed hash of the text that a browser shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Token([u8; 32]);

struct Session {
    user: Arc<User>,
    began: Timestamp,
    used: Timestamp,
}

impl Session {
    fn is_over(&self, now: Timestamp) -> bool {
        let since_ms = |then: Timestamp| now.as_millis() - then.as_millis();
        since_ms(self.used) >= SESSION_IDLE_MS || since_ms(self.began) >= SESSION_LIFE_MS
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// The token of a text.
    pub(crate) fn token_of(&self, text: &[u8]) -> Token {
        let hash = self.users.keyed.tag(text);
        Token(hash.as_ref().try_into().expect("a tag has 32 bytes"))
    }

    /// Begins a session, and returns the text for the browser. The session of the same user, or of all, that was not used for
    /// longest ends when there are too many.
    pub(crate) fn begin_session(&self, user: &Arc<User>, now: Timestamp) -> String {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).expect("the system gives random bytes");
        let text = URL_SAFE_NO_PAD.encode(random);
        let token = self.token_of(text.as_bytes());
        let mut sessions = self.sessions.lock();
        self.remove_sessions(&mut sessions, |session| session.is_over(now));
        let of_user = sessions.values().filter(|session| session.user.name == user.name).count();
        let is_full = sessions.len() >= MAX_SESSIONS;
        if is_full || of_user >= MAX_SESSIONS_OF_USER {
            let others =
                sessions.iter().filter(|(_, it)| of_user < MAX_SESSIONS_OF_USER || it.user.name == user.name);
            if let Some(oldest) = others.min_by_key(|(_, session)| session.used).map(|(token, _)| *token) {
                sessions.remove(&oldest);
                self.charge(SESSION_BYTES, 0);
            }
        }
        sessions.insert(token, Session { user: Arc::clone(user), began: now, used: now });
        self.charge(0, SESSION_BYTES);
        text
    }

    /// What a browser with this token may do. Its session goes on.
    pub(crate) fn principal_of_session(&self, token: Token, now: Timestamp) -> Principal {
        let mut sessions = self.sessions.lock();
        let Some(session) = sessions.get_mut(&token) else { return Principal::Nobody };
        let principal = self.users.renewed(&Principal::User(Arc::clone(&session.user)));
        match (&principal, session.is_over(now)) {
            (Principal::User(user), false) => {
                session.user = Arc::clone(user);
                session.used = now;
                principal
            }
            _ => {
                sessions.remove(&token);
                self.charge(SESSION_BYTES, 0);
                Principal::Nobody
            }
        }
    }

    /// Ends a session, if there is one.
    pub(crate) fn end_session(&self, token: Token) {
        if self.sessions.lock().remove(&token).is_some() {
            self.charge(SESSION_BYTES, 0);
        }
    }

    fn remove_sessions(&self, sessions: &mut HashMap<Token, Session>, is_over: impl Fn(&Session) -> bool) {
        let before = sessions.len();
        sessions.retain(|_, session| !is_over(session));
        self.charge((before - sessions.len()) * SESSION_BYTES, 0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use lately::ManualClock;
    use lately_resp::command::Verb;

    use super::*;
    use crate::config::{self, Config};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms).expect("a time")
    }

    /// A server with the users a and b, and the config of these.
    pub(crate) fn service() -> (Service, Vec<config::User>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let users = ["a", "b"].map(|name| {
            let password_file = folder.path().join(name);
            std::fs::write(&password_file, name).expect("room");
            let keys = vec![lately::Pattern::new(b"*")];
            config::User { name: name.to_owned(), password_file, keys, verbs: vec![Verb::Read] }
        });
        let config = Config { users: users.to_vec(), ..Config::default() };
        let service = Service::new(config, Arc::new(ManualClock::new(at(0)))).expect("valid");
        service.users.replace(service.users.load(&service.config.users).expect("files"));
        (service, users.to_vec(), folder)
    }

    pub(crate) fn user(service: &Service, name: &str) -> Arc<User> {
        Arc::clone(service.users.get().find(name).expect("a user"))
    }

    fn who(service: &Service, text: &str, now: i64) -> Option<String> {
        let principal = service.principal_of_session(service.token_of(text.as_bytes()), at(now));
        principal.user().map(|user| user.name.clone())
    }

    fn charged_bytes(service: &Service) -> usize {
        usize::try_from(service.stats.connection_bytes.load(Relaxed)).expect("small")
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_and_when_it_is_old() {
        let (service, _, _folder) = service();
        let text = service.begin_session(&user(&service, "a"), at(0));
        let name = Some("a".to_owned());
        assert_eq!(who(&service, "x", 0), None);
        assert_eq!(who(&service, &text, SESSION_IDLE_MS - 1), name);
        assert_eq!(who(&service, &text, 2 * SESSION_IDLE_MS - 2), name);
        assert_eq!(charged_bytes(&service), SESSION_BYTES);
        assert_eq!(who(&service, &text, 3 * SESSION_IDLE_MS - 2), None);
        assert_eq!(charged_bytes(&service), 0);
        let text = service.begin_session(&user(&service, "a"), at(0));
        let uses = (0..SESSION_LIFE_MS).step_by(usize::try_from(SESSION_IDLE_MS / 2).expect("small"));
        uses.for_each(|now| assert_eq!(who(&service, &text, now), name));
        assert_eq!(who(&service, &text, SESSION_LIFE_MS), None);
        let text = service.begin_session(&user(&service, "a"), at(0));
        service.end_session(service.token_of(text.as_bytes()));
        assert_eq!((who(&service, &text, 0), charged_bytes(&service)), (None, 0));
    }

    #[test]
    fn a_session_ends_with_its_user_and_has_the_permissions_of_now() {
        let (service, users, folder) = service();
        let text = service.begin_session(&user(&service, "a"), at(0));
        let other = service.begin_session(&user(&service, "b"), at(0));
        let may_hit = |service: &Service| {
            let principal = service.principal_of_session(service.token_of(text.as_bytes()), at(0));
            principal.check(Some(Verb::Hit), |_| None::<Option<()>>).is_ok()
        };
        assert!(!may_hit(&service));
        let reload = |users: &[config::User]| {
            service.users.replace(service.users.load(users).expect("files"));
        };
        let more = config::User { verbs: vec![Verb::Read, Verb::Hit], ..users[0].clone() };
        reload(&[more.clone(), users[1].clone()]);
        assert!(may_hit(&service));
        reload(std::slice::from_ref(&more));
        assert_eq!(who(&service, &other, 0), None, "the user is gone");
        assert_eq!(who(&service, &text, 0), Some("a".to_owned()));
        std::fs::write(folder.path().join("a"), "new").expect("room");
        reload(&[more]);
        assert_eq!(who(&service, &text, 0), None, "the user has another password");
        assert_eq!(charged_bytes(&service), 0);
    }

    #[test]
    fn there_are_few_sessions() {
        let (service, _, _folder) = service();
        let [a, b] = ["a", "b"].map(|name| user(&service, name));
        let of_b = service.begin_session(&b, at(0));
        let begin = |now| service.begin_session(&a, at(now));
        let of_a: Vec<String> = (0..).take(MAX_SESSIONS_OF_USER).map(begin).collect();
        assert!(who(&service, &of_a[0], 100).is_some());
        // The one that was not used for longest makes room.
        let last = begin(100);
        let found: Vec<bool> = of_a.iter().map(|text| who(&service, text, 100).is_some()).collect();
        assert_eq!(found.iter().filter(|is_there| !**is_there).count(), 1);
        assert!(!found[1] && who(&service, &last, 100).is_some() && who(&service, &of_b, 100).is_some());
        assert_eq!(charged_bytes(&service), (MAX_SESSIONS_OF_USER + 1) * SESSION_BYTES);
    }
}
