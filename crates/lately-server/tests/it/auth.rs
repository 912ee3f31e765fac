//! Limits over HTTP, and `GET /v1/auth` for proxies.

use lately_server::Config;
use serde_json::{Value, json};

use crate::common::{Running, Wire, standing_clock};

const LIMITS: &str = r#"
    [server]
    resp = "127.0.0.1:0"
    http = "127.0.0.1:0"
    grpc = "127.0.0.1:0"
    trusted_proxies = ["127.0.0.1", "10.0.0.0/8"]

    [storage]
    durability = "off"

    [[limit]]
    name = "login"
    max = 2
    window = "1m"
    key = "login:{client}"

    [[limit]]
    name = "api"
    max = 1
    window = "1500ms"
    key = "api:{header:x-api-key}"
    deny = 429

    [[limit]]
    name = "watched"
    max = 0
    window = "10s"
    shadow = true
    key = "*"

    [[limit]]
    name = "keyless"
    max = 1
    window = "1m"
"#;

/// A server with a config file.
fn running(text: &str) -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    std::fs::write(&path, text).expect("room");
    Running::with(Config::load(&path).expect("valid"), standing_clock())
}

/// An answer: its status, the lines of its head without `date`, and its body.
struct Answer {
    status: u16,
    head: Vec<String>,
    body: Value,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ String| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
        self.head.iter().find(|line| value(line)).map(|line| &line[name.len() + 2..])
    }
}

fn ask(server: &Running, first: &str, headers: &[&str]) -> Answer {
    let mut wire = Wire::connect(server.http);
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    wire.send(format!("{first} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"));
    let answer = String::from_utf8(wire.rest()).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    Answer {
        status,
        head: lines.map(str::to_owned).collect(),
        body: serde_json::from_str(body).unwrap_or_default(),
    }
}

#[test]
fn a_limit_is_decided_over_http() {
    let server = running(LIMITS);
    let limit = |query: &str| ask(&server, &format!("POST /v1/limit/k?{query}"), &[]);
    let allowed = limit("max=2&window=1m");
    assert_eq!(allowed.status, 200);
    assert_eq!(
        allowed.body,
        json!({"key": "k", "allowed": true, "max": 2, "remaining": 1, "retry_after_ms": 0, "reset_after_ms": 60_000})
    );
    assert_eq!(allowed.header("ratelimit-policy"), Some("\"default\";q=2;w=60"));
    assert_eq!(allowed.header("ratelimit"), Some("\"default\";r=1;t=60"));
    assert_eq!(allowed.header("retry-after"), None);
    assert_eq!(limit("max=2&window=60&peek=true&cost=1").body["remaining"], 1);
    assert_eq!(limit("max=2&window=60").body["remaining"], 0);
    let denied = limit("max=2&window=60");
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(
        denied.body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "quota exceeded",
            "status": 429,
            "detail": "the limit is reached: retry after 1m",
            "violated-policies": ["default"],
            "key": "k",
            "allowed": false,
            "max": 2,
            "remaining": 0,
            "retry_after_ms": 60_000,
            "reset_after_ms": 60_000,
        })
    );
    assert_eq!(
        (denied.header("retry-after"), denied.header("ratelimit")),
        (Some("60"), Some("\"default\";r=0;t=60"))
    );
    let never = limit("max=2&window=60&cost=3");
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    assert_eq!(never.body["retry_after_ms"], Value::Null);
    let named = limit("limit=login&cost=2");
    assert_eq!((named.status, named.body["max"].clone()), (429, json!(2)));
    assert_eq!(named.header("ratelimit-policy"), Some("\"login\";q=2;w=60"));
    assert_eq!(named.body["violated-policies"], json!(["login"]));
    let lock = || ask(&server, "POST /v1/limit/l?max=1&window=1&lockout=90s", &[]);
    assert_eq!(lock().status, 200);
    let locked = lock();
    assert_eq!((locked.status, locked.header("retry-after")), (429, Some("90")));
    assert_eq!(limit("limit=watched").status, 200);
    // A request that a shadow limit would deny is not counted.
    server.connect().ask("HITS k\r\n", ":2\r\n");
}

#[test]
fn a_proxy_asks_whether_a_request_may_pass() {
    let server = running(LIMITS);
    let login = |forwarded: &str| {
        ask(&server, "GET /v1/auth?limit=login", &[&format!("X-Forwarded-For: {forwarded}")])
    };
    for (forwarded, remaining) in [("198.51.100.7", 1), ("1.1.1.1, 198.51.100.7, 10.0.0.9", 0)] {
        let answer = login(forwarded);
        assert_eq!((answer.status, answer.body.clone()), (204, Value::Null));
        assert_eq!(answer.header("ratelimit"), Some(format!("\"login\";r={remaining};t=60").as_str()));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let denied = login("::ffff:198.51.100.7");
    assert_eq!((denied.status, denied.header("retry-after")), (403, Some("60")));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!((&denied.body["title"], &denied.body["key"]), (&json!("quota exceeded"), &Value::Null));
    // Any address of a /64 is the same client.
    assert_eq!([login("2001:db8::1").status, login("2001:db8::2").status], [204, 204]);
    assert_eq!(login("2001:db8::ffff:3").status, 403);
    assert_eq!(login("2001:db8:0:1::3").status, 204);
    let mut keys = server.connect();
    keys.ask("HITS login:198.51.100.7\r\n", ":2\r\n");
    keys.ask("HITS login:2001:db8::/64\r\n", ":2\r\n");
    keys.ask("HITS login:1.1.1.1\r\n", ":0\r\n");
    let api = |key: &[&str]| ask(&server, "GET /v1/auth?limit=api", key);
    assert_eq!([api(&["X-Api-Key: a"]).status, api(&["X-Api-Key: b"]).status], [204, 204]);
    let denied = api(&["X-Api-Key:  a "]);
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("2")));
    assert_eq!(denied.header("ratelimit-policy"), Some("\"api\";q=1"));
    assert_eq!([api(&[]).status, api(&[]).status], [204, 429]);
    assert_eq!(api(&["X-Api-Key: a", "X-Api-Key: b"]).status, 204);
    keys.ask("HITS \"api:a, b\"\r\n", ":1\r\n");
    keys.ask("HITS api:-\r\n", ":1\r\n");
    assert_eq!(ask(&server, "GET /v1/auth?limit=watched", &[]).status, 204);
    // A key that is named counts, with the status that is asked for.
    let given = |query: &str| ask(&server, &format!("GET /v1/auth?{query}"), &[]).status;
    assert_eq!(given("key=a%20b&max=1&window=1"), 204);
    assert_eq!(given("key=a+b&max=1&window=1"), 403);
    assert_eq!(given("key=a+b&max=1&window=1&deny=429"), 429);
    assert_eq!([given("key=x&limit=login"), given("key=x&limit=login&cost=2")], [204, 403]);
    assert_eq!(given("limit=keyless"), 400);
    // Not one key for all clients.
    let literal = ask(&server, "GET /v1/auth?key=login:%7Bclient%7D&max=5&window=1m", &[]);
    assert_eq!(literal.status, 400);
    let detail = literal.body["detail"].as_str().expect("a text");
    assert!(detail.starts_with("invalid key 'login:{client}': a template works in `key`"), "{detail}");
    for key in ["%7Bheader:x-forwarded-for%7D", "a:%7Bclient/33/1%7D", "%7Bip%7D"] {
        assert_eq!(given(&format!("key={key}&max=5&window=1m")), 400, "{key}");
    }
    for key in ["%7Buser%7D:a", "*", "%7B%7Bclient%7D%7D", "%7Bclients%7D"] {
        assert_eq!(given(&format!("key={key}&max=5&window=1m")), 204, "{key}");
    }
}

/// What a proxy passes on may come from a page of any site.
#[test]
fn headers_of_trusted_proxies_only_are_believed() {
    let foreign = ["Origin: https://app.example", "Sec-Fetch-Site: cross-site", "Content-Type: text/plain"];
    let forwarded = [&foreign[..], &["X-Forwarded-For: 198.51.100.7", "X-Api-Key: a"]].concat();
    let trusted = running(LIMITS);
    assert_eq!(ask(&trusted, "GET /v1/auth?limit=login", &forwarded).status, 204);
    assert_eq!(ask(&trusted, "POST /v1/limit/k?limit=login", &forwarded).status, 403);
    let untrusted = running(&LIMITS.replace("\"127.0.0.1\", ", ""));
    let answer = ask(&untrusted, "GET /v1/auth?limit=login", &forwarded);
    assert_eq!((answer.status, &answer.body["title"]), (403, &json!("foreign Origin")));
    let plain = ["X-Forwarded-For: 198.51.100.7", "X-Api-Key: a"];
    assert_eq!(ask(&untrusted, "GET /v1/auth?limit=login", &plain).status, 204);
    untrusted.connect().ask("HITS login:127.0.0.1\r\n", ":1\r\n");
    let answer = ask(&untrusted, "GET /v1/auth?limit=api", &plain);
    assert_eq!((answer.status, &answer.body["title"]), (403, &json!("untrusted peer")));
    let detail = answer.body["detail"].as_str().expect("a text");
    assert!(detail.contains("127.0.0.1 is no proxy") && detail.contains("trusted_proxies"), "{detail}");
    untrusted.connect().ask("DBSIZE\r\n", ":1\r\n");
}

/// A page can have a browser on the machine of the proxy ask, but cannot add the headers of a proxy.
#[test]
fn a_page_beside_a_trusted_proxy_is_refused() {
    let server = running(LIMITS);
    let victim = "GET /v1/auth?key=victim&max=0&window=1s&lockout=1h";
    for (page, title) in [
        (&["Origin: https://evil.example"][..], "foreign Origin"),
        (&["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"], "foreign site"),
        (&["Sec-Fetch-Site: cross-site", "Accept-Language: x-real-ip", "X-Api-Key: a"], "foreign site"),
    ] {
        let answer = ask(&server, victim, page);
        assert_eq!((answer.status, &answer.body["title"]), (403, &json!(title)));
        server.connect().ask("DBSIZE\r\n", ":0\r\n");
        for header in
            ["Forwarded: for=1", "X-Forwarded-Uri: /", "X-Original-URI: /", "X-Real-IP: 198.51.100.7"]
        {
            let sent = [page, &[header]].concat();
            assert_eq!(ask(&server, "GET /v1/auth?limit=watched", &sent).status, 204, "{header}");
        }
        server.connect().ask("FLUSHALL\r\n", "+OK\r\n");
    }
}

#[test]
fn the_headers_of_limits_have_a_switch() {
    for (style, expected) in [
        ("current", vec!["ratelimit", "ratelimit-policy"]),
        ("draft-06", vec!["ratelimit-limit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset"]),
        ("x-draft-03", vec!["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("off", vec![]),
    ] {
        let server =
            running(&LIMITS.replace("[server]", &format!("[server]\nratelimit_headers = \"{style}\"")));
        let answer = ask(&server, "POST /v1/limit/k?limit=login", &[]);
        let names = answer.head.iter().filter_map(|line| line.split(':').next());
        let mut names: Vec<_> = names.filter(|name| name.contains("ratelimit")).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{style}");
    }
}

#[test]
fn an_exempt_address_passes() {
    let server = running(&format!(
        "{LIMITS}\n[[limit]]\nname = \"inner\"\nmax = 0\nwindow = \"1m\"\nkey = \"{{header:x-user}} {{client}}\"\nexempt = [\"192.0.2.0/24\", \"admin *\"]\n"
    ));
    let status = |user: &str, client: &str| {
        let headers = [format!("x-user: {user}"), format!("x-forwarded-for: {client}")];
        ask(&server, "GET /v1/auth?limit=inner", &[&headers[0], &headers[1]]).status
    };
    assert_eq!([status("jo", "192.0.2.7"), status("jo", "192.0.2.7")], [204, 204]);
    assert_eq!(status("admin", "198.51.100.7"), 204);
    // A client cannot choose its address by a name.
    assert_eq!([status("192.0.2.7", "198.51.100.7"), status("jo", "198.51.100.7")], [403, 403]);
}
