//! Users over real connections: bounds before the login, HTTP, and reloads.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use lately_server::Config;
use tempfile::TempDir;
use test_support::until;

use crate::common::{Running, Wire, config, standing_clock};

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

/// A folder with the config file and the password files of `default` and `web`.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("default"), "d-secret\n").expect("room");
    fs::write(folder.path().join("web"), "w-secret\n").expect("room");
    write_config(folder.path(), "\"read\", \"hit\"");
    folder
}

pub(crate) fn write_config(folder: &Path, verbs: &str) {
    let file = |name: &str| folder.join(name).display().to_string();
    let (default, web) = (file("default"), file("web"));
    let text = format!(
        "[server]\npassword_file = \"{default}\"\n[storage]\ndurability = \"off\"\n\
         [[user]]\nname = \"web\"\npassword_file = \"{web}\"\nkeys = [\"web:*\"]\nverbs = [{verbs}]\n"
    );
    fs::write(folder.join("lately.toml"), text).expect("room");
}

/// A server with the config of a folder.
pub(crate) fn start(folder: &TempDir) -> Running {
    let loaded = Config::load(&folder.path().join("lately.toml")).expect("valid");
    let free = config();
    let metrics = Some(free.http);
    Running::with(
        Config { resp: free.resp, http: free.http, grpc: free.grpc, metrics, ..loaded },
        standing_clock(),
    )
}

fn array(words: &[&str]) -> String {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{words}", words.matches("\r\n$").count() + 1)
}

#[test]
fn requests_are_short_before_the_login() {
    let folder = folder();
    let server = start(&folder);
    let count = "-ERR Protocol error: unauthenticated multibulk length\r\n";
    let bulk = "-ERR Protocol error: unauthenticated bulk length\r\n";
    for (sent, expected) in [
        ("*10\r\n", ""),
        ("*11\r\n", count),
        ("*2\r\n$4\r\nAUTH\r\n$16384\r\n", ""),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", bulk),
        ("PING\r\n*11\r\n", &format!("{NOAUTH}{count}")),
    ] {
        let mut wire = server.connect();
        wire.send(sent);
        wire.finish();
        wire.expect_rest(expected);
    }
    // Behind a login, a request may have any length, in the same write or a later one.
    let words: Vec<String> = (0..20).flat_map(|key| [format!("k{key}"), "1".to_owned()]).collect();
    let many = array(&["MHIT"].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>());
    let replies = |count: usize| format!("*20\r\n{}", format!(":{count}\r\n").repeat(20));
    for (round, login) in [(1, true), (2, true), (3, false)] {
        let mut wire = server.connect();
        let auth = array(&["AUTH", "d-secret"]);
        if login {
            wire.ask(format!("{auth}{many}PING\r\n"), format!("+OK\r\n{}+PONG\r\n", replies(round)));
        } else {
            wire.ask(auth, "+OK\r\n");
            wire.ask(&many, replies(round));
        }
    }
}

#[test]
fn an_http_verb_ends_a_connection_before_the_login() {
    let folder = folder();
    let server = start(&folder);
    let mut wire = server.connect();
    wire.send("POST / HTTP/1.1\r\nHost: x\r\n\r\nAUTH d-secret\r\n");
    let rest = String::from_utf8(wire.rest()).expect("text");
    assert!(!rest.contains("+OK"), "{rest}");
}

/// Sends a request with these headers. Returns the status and the whole answer.
fn http(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut wire = Wire::connect(address);
    wire.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"));
    let answer = String::from_utf8_lossy(&wire.rest()).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, answer)
}

const BEARER: &str = "Authorization: Bearer d-secret\r\n";
/// `web:w-secret`
const WEB: &str = "Authorization: Basic d2ViOnctc2VjcmV0\r\n";
/// `web:wrong`
const WRONG: &str = "Authorization: Basic d2ViOndyb25n\r\n";

#[test]
fn http_clients_log_in_with_each_request() {
    let folder = folder();
    let server = start(&folder);
    let check = |method: &str, path: &str, headers: &str, status: u16, words: &str| {
        let (got, answer) = http(server.http, method, path, headers);
        let answer = answer.to_lowercase();
        assert_eq!(got, status, "{method} {path} {headers}: {answer}");
        assert!(answer.contains(words), "{method} {path} {headers}: {answer}");
        assert!(!answer.contains("secret"), "{answer}");
        if status == 401 {
            assert!(answer.contains("\r\nwww-authenticate: basic realm=\"lately\""), "{answer}");
            assert!(answer.contains("\r\ncontent-type: application/problem+json"), "{answer}");
        }
    };
    check("POST", "/v1/hit/web:1", "", 401, "log in with basic");
    check("POST", "/v1/hit/web:1", WRONG, 401, "the user or the password is wrong");
    check("POST", "/v1/hit/web:1", "Authorization: Bearer w-secret\r\n", 401, "is wrong");
    check("POST", "/v1/hit/web:1", "Authorization: Digest x\r\n", 401, "neither basic nor bearer");
    check("POST", "/v1/hit/web:1", BEARER, 200, "\"hits\":1");
    check("POST", "/v1/hit/web:1", WEB, 200, "\"hits\":2");
    check("POST", "/v1/hit/a", WEB, 403, "user web has no permissions to access the key 'a'");
    check("GET", "/v1/dump", WEB, 403, "user web has no permissions for /v1/dump");
    check("GET", "/v1/dump", BEARER, 200, "application/vnd.lately.dump");
    check("POST", "/v1/restore", WEB, 403, "user web has no permissions for /v1/restore");
    check("POST", "/v1/restore", "", 401, "");
    check("GET", "/metrics", "", 401, "");
    check("GET", "/metrics", WEB, 403, "on all keys");
    check("GET", "/metrics", BEARER, 200, "lately_requests_forbidden_total 4");
    check("GET", "/healthz", "", 200, "ok");
    check("GET", "/readyz", "", 200, "ready");
    check("GET", "/nothing", "", 404, "");
    // The listener of metrics is open.
    let metrics = server.metrics.expect("it has one");
    let (status, answer) = http(metrics, "GET", "/metrics", "");
    assert!(status == 200 && answer.contains("\nlately_logins_failed_total 2\n"), "{answer}");
    assert_eq!(http(metrics, "POST", "/v1/hit/a", BEARER).0, 404);
}

/// A browser logs in with a form, and its cookie reads what the user may read.
#[test]
fn a_session_reads_what_its_user_may() {
    let folder = folder();
    let server = start(&folder);
    let log_in = |body: &str| {
        let lines = format!(
            "Content-Type: application/json\r\nlately-page: 1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        http(server.http, "POST", "/v1/session", &lines)
    };
    for (body, status) in [
        (r#"{"user":"web","password":"wrong"}"#, 401),
        (r#"{"user":"nobody","password":"w-secret"}"#, 401),
        (r#"{"user":"web"}"#, 400),
        ("x", 400),
    ] {
        let (found, answer) = log_in(body);
        assert_eq!(found, status, "{answer}");
        assert!(!answer.contains("set-cookie") && !answer.contains("Basic"), "{answer}");
    }
    let cookie = |user: &str, password: &str| {
        let (status, answer) = log_in(&format!(r#"{{"user":"{user}","password":"{password}"}}"#));
        assert_eq!(status, 204, "{answer}");
        let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        let (pair, rest) = line.split_once("; ").expect("attributes");
        assert_eq!(rest, "Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict");
        assert!(pair.starts_with(&format!("lately-session-{}=", server.http.port())), "{pair}");
        format!("Cookie: other=1; {pair}\r\n")
    };
    let (web, all) = (cookie("web", "w-secret"), cookie("default", "d-secret"));
    let check = |method: &str, path: &str, lines: &str, status: u16, part: &str| {
        let (found, answer) = http(server.http, method, path, lines);
        assert_eq!(found, status, "{method} {path} {lines}: {answer}");
        assert!(answer.contains(part), "{method} {path} {lines}: {answer}");
    };
    check("GET", "/v1/session", &web, 200, r#"{"user":"web","reads":"some"}"#);
    check("GET", "/v1/session", &all, 200, r#"{"user":"default","reads":"all"}"#);
    check("GET", "/v1/session", "", 401, "www-authenticate: Basic");
    check("GET", "/v1/session", "lately-page: 1\r\n", 401, "www-authenticate: Session");
    check("GET", "/v1/events", "Accept: text/event-stream\r\n", 401, "www-authenticate: Session");
    check("GET", "/v1/hits/web:1", &web, 200, "\"hits\":0");
    check("GET", "/v1/hits/other", &web, 403, "NOPERM");
    check("GET", "/v1/status", &web, 403, "on all keys");
    check("GET", "/v1/status", &all, 200, "\"problems\":[]");
    check("GET", "/v1/limits", &all, 200, "\"limits\":[");
    // It only reads, even what its user may do otherwise.
    for (method, path) in [
        ("POST", "/v1/hit/web:1"),
        ("DELETE", "/v1/key/web:1"),
        ("GET", "/v1/auth?key=k&max=1&window=1m"),
        ("GET", "/v1/dump"),
    ] {
        check(method, path, &all, 401, "log in with Basic");
    }
    // A password takes precedence.
    check("POST", "/v1/hit/web:1", &format!("{all}{WEB}"), 200, "\"hits\":1");
    check("GET", "/v1/session", &format!("{all}{WRONG}"), 401, "is wrong");
    check("DELETE", "/v1/session", &all, 204, "Max-Age=0; HttpOnly; SameSite=Strict");
    check("GET", "/v1/session", &all, 401, "");
    check("GET", "/v1/session", "Cookie: lately-session-1=x\r\n", 401, "");
    // A new password ends the sessions of its user.
    fs::write(folder.path().join("web"), "n-secret\n").expect("room");
    server.reloader.reload();
    until("the session ends", || http(server.http, "GET", "/v1/session", &web).0 == 401);
}

/// Sends a request of `web` on a connection that stays open. Returns the status and the body of the answer.
fn ask(wire: &mut Wire, request: &str) -> (u16, String) {
    wire.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\n{WEB}\r\n"));
    answer(wire)
}

/// The status and the body of the next answer.
fn answer(wire: &mut Wire) -> (u16, String) {
    let status = wire.line().split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut length = 0;
    loop {
        match wire.line().split_once(": ") {
            None => break,
            Some(("content-length", value)) => length = value.parse().expect("a number"),
            Some(_) => {}
        }
    }
    (status, String::from_utf8(wire.take(length)).expect("text"))
}

#[test]
fn failed_logins_of_others_do_not_disturb_clients_that_are_connected() {
    let folder = folder();
    let server = start(&folder);
    let (mut http, mut resp) = (Wire::connect(server.http), server.connect());
    assert_eq!(ask(&mut http, "POST /v1/hit/web:1").0, 200);
    resp.ask("AUTH web w-secret\r\nHIT web:1\r\n", "+OK\r\n:2\r\n");
    // From the same address, for the same user, all at once.
    let bad = || {
        let mut wire = server.connect();
        wire.send("AUTH web wrong\r\n");
        wire
    };
    let _waiting: Vec<Wire> = (0..40).map(|_| bad()).collect();
    until("a new connection is refused", || {
        ask(&mut Wire::connect(server.http), "GET /v1/hits/web:1").0 == 503
    });
    for hits in [3, 5] {
        assert_eq!(
            ask(&mut http, "POST /v1/hit/web:1"),
            (200, format!("{{\"key\":\"web:1\",\"hits\":{hits}}}"))
        );
        resp.ask("AUTH web w-secret\r\n", "+OK\r\n");
        resp.ask("HIT web:1\r\n", format!(":{}\r\n", hits + 1));
    }
}

/// Symptom: a user moved a source of `default`, whose next hits were then taken for known ones. Cause: the source `log` of the user `web` was kept under
/// the name `web:log`, which `default` may give to a source, too. Fix: such a source of `default` has another name inside.
#[test]
fn a_user_does_not_move_the_sources_of_default() {
    let folder = folder();
    let server = start(&folder);
    let (mut web, mut default) = (server.connect(), server.connect());
    web.ask("AUTH web w-secret\r\nINGEST log 10 9000000\r\n", "+OK\r\n*3\r\n:9000000\r\n:0\r\n:0\r\n");
    default.ask("AUTH d-secret\r\n", "+OK\r\n");
    for (name, end) in [("web:log", 20), (":web:log", 30), ("other:log", 40), ("log", 50)] {
        default.ask(format!("INGEST {name}\r\n"), "$-1\r\n");
        let counted = format!("*3\r\n:{end}\r\n:1\r\n:0\r\n");
        default.ask(format!("INGEST {name} 10 {end} orders 1 1700000000\r\n"), &counted);
    }
    for (name, end) in [("web:log", 20), (":web:log", 30), ("other:log", 40), ("log", 50)] {
        default.ask(format!("INGEST {name}\r\n"), format!(":{end}\r\n"));
    }
    web.ask("INGEST log\r\n", ":9000000\r\n");
}

#[test]
fn lines_that_come_after_their_user_is_gone_are_not_counted() {
    let folder = folder();
    let server = start(&folder);
    let chunk = |wire: &mut Wire, line: &str| wire.send(format!("{:x}\r\n{line}\r\n", line.len()));
    let begin = || {
        let mut wire = Wire::connect(server.http);
        wire.send(format!(
            "POST /v1/hits HTTP/1.1\r\nHost: localhost\r\n{WEB}Transfer-Encoding: chunked\r\n\r\n"
        ));
        chunk(&mut wire, "{\"key\":\"web:1\"}\n");
        wire
    };
    let (mut narrowed, mut default) = (begin(), server.connect());
    default.ask("AUTH d-secret\r\n", "+OK\r\n");
    let mut gone = begin();
    until("two lines are counted", || default.number("HITS web:1\r\n") == 2);
    let mut web = server.connect();
    web.ask("AUTH web w-secret\r\nHIT web:2\r\n", "+OK\r\n:1\r\n");
    write_config(folder.path(), "\"read\"");
    server.reloader.reload();
    until("the user may not hit", || {
        web.send("HIT web:2\r\n");
        web.line().starts_with("-NOPERM")
    });
    chunk(&mut narrowed, "{\"key\":\"web:1\",\"n\":100}\n");
    let (status, body) = answer(&mut narrowed);
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("no permissions for /v1/hits; 1 line was counted before"), "{body}");
    fs::write(folder.path().join("web"), "new-secret").expect("room");
    server.reloader.reload();
    until("the user has to log in again", || {
        web.send("PING\r\n");
        web.line().starts_with("-NOAUTH")
    });
    chunk(&mut gone, "{\"key\":\"web:1\",\"n\":100}\n");
    let (status, body) = answer(&mut gone);
    assert_eq!(status, 401, "{body}");
    assert!(body.contains("log in again; 1 line was counted before"), "{body}");
    default.ask("HITS web:1\r\n", ":2\r\n");
}

#[test]
fn a_reload_replaces_users_and_passwords() {
    let folder = folder();
    let server = start(&folder);
    let (mut web, mut default) = (server.connect(), server.connect());
    web.ask("AUTH web w-secret\r\nHIT web:1\r\n", "+OK\r\n:1\r\n");
    default.ask("AUTH d-secret\r\n", "+OK\r\n");
    write_config(folder.path(), "\"read\"");
    server.reloader.reload();
    until("the user may not hit", || {
        web.send("HIT web:2\r\n");
        web.line() != ":1" || {
            web.ask("HITS web:1\r\n", ":1\r\n");
            default.ask("DEL web:2\r\n", ":1\r\n");
            false
        }
    });
    // The file of the password alone changes, and nobody asks for a reload.
    fs::write(folder.path().join("web"), "new-secret").expect("room");
    until("the user has to log in again", || {
        web.send("PING\r\n");
        web.line().starts_with("-NOAUTH")
    });
    web.ask("AUTH web w-secret\r\n", WRONGPASS);
    web.ask("AUTH web new-secret\r\nHITS web:1\r\n", "+OK\r\n:1\r\n");
    // A bad file changes nothing.
    fs::write(folder.path().join("web"), "").expect("room");
    server.reloader.reload();
    fs::write(folder.path().join("default"), "newer-secret").expect("room");
    server.reloader.reload();
    let mut next = server.connect();
    next.ask("AUTH d-secret\r\n", "+OK\r\n");
    fs::write(folder.path().join("web"), "new-secret").expect("room");
    server.reloader.reload();
    until("the password of default is new", || {
        default.send("PING\r\n");
        default.line().starts_with("-NOAUTH")
    });
    default.ask("AUTH newer-secret\r\n", "+OK\r\n");
    web.ask("HITS web:1\r\n", ":1\r\n");
}

/// Kubernetes mounts a secret as `NAME -> ..data/NAME` and `..data -> ..TIME`, and replaces the link `..data`.
#[test]
fn a_password_is_followed_through_links() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for (version, password) in [("..1", "first"), ("..2", "second")] {
        fs::create_dir(at(version)).expect("room");
        fs::write(at(version).join("default"), password).expect("room");
    }
    fs::remove_file(at("default")).expect("a file");
    symlink("..1", at("..data")).expect("room");
    symlink("..data/default", at("default")).expect("room");
    let server = start(&folder);
    let mut wire = server.connect();
    wire.ask("AUTH first\r\n", "+OK\r\n");
    symlink("..2", at("..next")).expect("room");
    fs::rename(at("..next"), at("..data")).expect("room");
    until("the client has to log in again", || {
        wire.send("PING\r\n");
        wire.line().starts_with("-NOAUTH")
    });
    wire.ask("AUTH second\r\n", "+OK\r\n");
}

/// A reload must not open a server that listens beyond loopback.
#[test]
fn users_cannot_be_removed_beyond_loopback() {
    let folder = folder();
    let loaded = Config::load(&folder.path().join("lately.toml")).expect("valid");
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let server = Running::with(Config { resp: everywhere, http: config().http, ..loaded }, standing_clock());
    let mut wire = Wire::connect(SocketAddr::from(([127, 0, 0, 1], server.resp.port())));
    wire.ask("PING\r\nAUTH d-secret\r\n", format!("{NOAUTH}+OK\r\n"));
    fs::write(folder.path().join("lately.toml"), "[storage]\ndurability = \"off\"\n").expect("room");
    server.reloader.reload();
    // The next change is loaded, and the one before was not.
    fs::write(folder.path().join("default"), "another").expect("room");
    write_config(folder.path(), "\"read\"");
    server.reloader.reload();
    until("the password is new", || {
        wire.send("PING\r\n");
        let line = wire.line();
        assert!(line == "+PONG" || line.starts_with("-NOAUTH"), "{line}");
        Wire::connect(SocketAddr::from(([127, 0, 0, 1], server.resp.port()))).ask("PING\r\n", NOAUTH);
        line.starts_with("-NOAUTH")
    });
}

#[test]
fn a_missing_password_file_is_no_start() {
    let folder = folder();
    fs::remove_file(folder.path().join("web")).expect("a file");
    let loaded = Config::load(&folder.path().join("lately.toml")).expect("valid");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let free = config();
    let loaded = Config { resp: free.resp, http: free.http, grpc: free.grpc, ..loaded };
    let bound = runtime.block_on(lately_server::Server::bind(loaded, standing_clock()));
    let error = bound.map(|_| ()).expect_err("no file").to_string();
    let expected = format!("{}: No such file", folder.path().join("web").display());
    assert!(error.starts_with(&expected), "{error}");
}
