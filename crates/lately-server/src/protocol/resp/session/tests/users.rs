//! Users: logins, and what is refused before them.

use std::fs;

use lately::Pattern;
use lately_resp::command::{CommandFlag, Verb, commands};
use lately_resp::write_request;
use tempfile::TempDir;

use super::*;
use crate::config::User;

const NOAUTH: &str = "-NOAUTH Authentication required.|";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.|";

/// Users with password files.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a folder"))
    }

    /// A user whose password is its name and `-secret`.
    fn user(&self, name: &str, verbs: &[Verb], keys: &[&str]) -> User {
        let password_file = self.0.path().join(name);
        fs::write(&password_file, format!("{name}-secret\n")).expect("room");
        let keys = keys.iter().map(|key| Pattern::new(key.as_bytes())).collect();
        User { name: name.to_owned(), password_file, keys, verbs: verbs.to_vec() }
    }
}

/// A client of a server with the users `default` and `web`.
fn talk(files: &Files) -> Talk {
    let all = files.user("default", Verb::ALL, &["*"]);
    let web = files.user("web", &[Verb::Read, Verb::Hit], &["web:*"]);
    Talk::with(Config { users: vec![all, web], ..Config::default() })
}

/// Replaces the users, as a reload does.
fn replace(talk: &Talk, users: &[User]) {
    let loaded = talk.service.users.load(users).expect("files");
    talk.service.users.replace(loaded);
}

#[test]
fn a_client_has_to_log_in() {
    let files = Files::new();
    let mut talk = talk(&files);
    for spec in commands().flat_map(|spec| spec.subcommands.iter().chain([spec])) {
        let may = spec.has(CommandFlag::NoAuth);
        assert_eq!(may, ["hello", "auth", "reset", "quit"].contains(&spec.name), "{}", spec.name);
        // Any refused `EXEC` is an abort, as in Redis.
        if !may && spec.name != "exec" {
            talk.check(&spec.name.replace('|', " "), NOAUTH);
            // A subcommand that does not exist is said not to, as in Redis.
            if spec.subcommands.is_empty() {
                talk.check(&format!("{} a b c", spec.name.replace('|', " ")), NOAUTH);
            }
        }
    }
    let hello = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time|";
    talk.check_all(&[
        ("HELLO", hello),
        ("HELLO 3", hello),
        ("RESET", "+RESET|"),
        ("AUTH wrong", WRONGPASS),
        ("AUTH web default-secret", WRONGPASS),
        ("AUTH nobody default-secret", WRONGPASS),
        ("HELLO 3 AUTH web wrong", WRONGPASS),
        ("AUTH", "-ERR wrong number of arguments for 'auth' command|"),
        ("PING", NOAUTH),
    ]);
    talk.check_all(&[("AUTH default-secret", "+OK|"), ("PING", "+PONG|"), ("ACL WHOAMI", "$7|default|")]);
    assert!(talk.ask("CLIENT INFO").contains(" user=default "));
    // A failed login changes nothing.
    talk.check_all(&[("AUTH web wrong", WRONGPASS), ("ACL WHOAMI", "$7|default|"), ("HIT a", ":1|")]);
    talk.check_all(&[("AUTH web web-secret", "+OK|"), ("ACL WHOAMI", "$3|web|"), ("HIT web:1", ":1|")]);
    assert!(talk.ask("CLIENT INFO").contains(" user=web "));
    talk.check("HIT a", "-NOPERM User web has no permissions to access the 'a' key|");
    talk.check("FLUSHALL", "-NOPERM User web has no permissions to run the 'flushall' command|");
    talk.check("DBSIZE", "-NOPERM User web has no permissions to run the 'dbsize' command on all keys|");
    talk.check_all(&[("RESET", "+RESET|"), ("HIT web:1", NOAUTH)]);
    assert!(talk.ask("HELLO 3 AUTH web web-secret SETNAME n").starts_with("%7|"));
    talk.check("ACL WHOAMI", "$3|web|");
    // Unknown commands are known to be so, as in Redis.
    assert!(talk.twin().ask("GET a").starts_with("-ERR unknown command 'GET'"));
}

#[test]
fn requests_after_a_login_in_one_write_are_executed() {
    let files = Files::new();
    let mut talk = talk(&files);
    let expected = ["+OK|", ":1|", ":2|", WRONGPASS, ":3|"].concat();
    let sent = b"AUTH web web-secret\nHIT web:1\nHIT web:1\nAUTH web no\nHIT web:1\n";
    assert_eq!(barred(&talk.send(sent, 5)), expected);
}

#[test]
fn the_user_default_may_have_no_password() {
    let files = Files::new();
    let web = files.user("web", Verb::ALL, &["*"]);
    let mut talk = Talk::with(Config { users: vec![web], ..Config::default() });
    talk.check_all(&[
        ("PING", NOAUTH),
        ("AUTH web-secret", WRONGPASS),
        ("AUTH default anything", WRONGPASS),
        ("AUTH web web-secret", "+OK|"),
    ]);
}

#[test]
fn without_users_everybody_is_default() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("ACL WHOAMI", "$7|default|"),
        ("AUTH default any", "+OK|"),
        ("AUTH web any", WRONGPASS),
        ("ACL", "-ERR wrong number of arguments for 'acl' command|"),
        ("ACL SETUSER a", "-ERR unknown subcommand 'SETUSER'. Try ACL HELP.|"),
    ]);
    assert!(talk.ask("AUTH any").starts_with("-ERR AUTH <password> called without any password"));
    assert!(talk.ask("ACL HELP").contains("+WHOAMI|"));
}

#[test]
fn a_login_inside_a_transaction_is_refused() {
    let files = Files::new();
    let mut talk = talk(&files);
    let refused = "-ERR Command not allowed inside a transaction|";
    for login in ["AUTH web web-secret", "HELLO 3 AUTH web web-secret"] {
        talk.check_all(&[
            ("AUTH default-secret", "+OK|"),
            ("MULTI", "+OK|"),
            (login, refused),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ("ACL WHOAMI", "$7|default|"),
        ]);
    }
}

#[test]
fn a_replaced_user_has_its_new_permissions_at_once() {
    let files = Files::new();
    let mut talk = talk(&files);
    let all = || files.user("default", Verb::ALL, &["*"]);
    talk.check_all(&[("AUTH web web-secret", "+OK|"), ("HIT web:1", ":1|")]);
    let mut other = talk.twin();
    other.check_all(&[("AUTH default-secret", "+OK|"), ("HIT a", ":1|")]);
    replace(&talk, &[all(), files.user("web", &[Verb::Read], &["a*"])]);
    talk.check("HIT a", "-NOPERM User web has no permissions to run the 'hit' command|");
    talk.check("HITS a", ":1|");
    // Another password, and then none.
    let web = files.user("web", Verb::ALL, &["*"]);
    fs::write(&web.password_file, "another").expect("room");
    replace(&talk, &[all(), web]);
    talk.check_all(&[
        ("HITS a", NOAUTH),
        ("AUTH web web-secret", WRONGPASS),
        ("AUTH web another", "+OK|"),
        ("HITS a", ":1|"),
    ]);
    replace(&talk, &[all()]);
    talk.check_all(&[("HITS a", NOAUTH), ("AUTH web another", WRONGPASS)]);
    assert!(talk.twin().ask("PING").starts_with("-NOAUTH"));
    // The other user was never touched.
    other.check("HIT a", ":2|");
    replace(&talk, &[]);
    talk.check("HIT a", ":3|");
    other.check_all(&[("HIT a", ":4|"), ("ACL WHOAMI", "$7|default|")]);
    // From no users to some: who is connected has to log in.
    replace(&talk, &[all()]);
    other.check_all(&[("MULTI", NOAUTH), ("AUTH default-secret", "+OK|"), ("HIT a", ":5|")]);
}

#[test]
fn a_transaction_needs_its_login_at_the_end() {
    let files = Files::new();
    let mut talk = talk(&files);
    talk.check_all(&[("AUTH default-secret", "+OK|"), ("MULTI", "+OK|"), ("HIT a", "+QUEUED|")]);
    replace(&talk, &[files.user("web", Verb::ALL, &["*"])]);
    assert!(talk.ask("EXEC").starts_with("-EXECABORT Transaction discarded because of: NOAUTH"));
    talk.check_all(&[("AUTH web web-secret", "+OK|"), ("DBSIZE", ":0|")]);
}

#[test]
fn forbidden_keys_end_a_pipeline_of_repeated_requests() {
    let files = Files::new();
    let mut talk = talk(&files);
    talk.check("AUTH web web-secret", "+OK|");
    let (mut bytes, mut expected) = (Vec::new(), String::new());
    for number in 0..100 {
        let is_forbidden = number % 7 == 3;
        let key = if is_forbidden { format!("w{number:02}") } else { format!("web:{number:02}") };
        write_request(&mut bytes, &[b"HIT", key.as_bytes()]);
        expected += &if is_forbidden {
            format!("-NOPERM User web has no permissions to access the '{key}' key|")
        } else {
            ":1|".to_owned()
        };
    }
    assert_eq!(barred(&talk.send(&bytes, 100)), expected);
}

/// The password is in none of the places that show what the server or a client does.
#[test]
fn secrets_are_shown_nowhere() {
    let files = Files::new();
    let mut talk = talk(&files);
    let mut shown = String::new();
    for line in [
        "AUTH default-secret-wrong",
        "AUTH web web-secret",
        "AUTH default-secret",
        "HELLO 3 AUTH default default-secret",
        "CLIENT LIST",
        "CLIENT INFO",
        "INFO everything",
        "CONFIG GET *",
        "ACL HELP",
        "HELLO 3 AUTH web default-secret-wrong",
    ] {
        shown += &talk.ask(line);
    }
    shown += &crate::protocol::http::metrics::pieces(&talk.service).collect::<String>();
    shown += &format!("{:?} {:?}", talk.service.config, talk.session.principal);
    assert!(shown.contains("lately_keys") && shown.contains("cmd=client\\|list"), "{shown}");
    for secret in ["secret", "argon2"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert_eq!(talk.info("acl_access_denied_auth"), "2");
}
