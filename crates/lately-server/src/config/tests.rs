//! Valid and invalid config files, and the error messages.

use lately::{Factor, Lockout};
use lately_engines::{GroupProtocol, PeerTls};
use lately_journal::Durability;

use super::*;
use crate::limits::{
    MAX_CONFIG_BYTES, MAX_EXEMPT, MAX_HOSTS, MAX_LIMIT_NAME_BYTES, MAX_LIMITS, MAX_TRUSTED_PROXIES,
    MAX_USER_NAME_BYTES, MAX_USER_PATTERNS, MAX_USERS,
};

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text).map_err(|problem| problem.in_file(Path::new("lately.toml"), text).to_string())
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = parse("").expect("valid");
    assert_eq!(config.resp.to_string(), "127.0.0.1:7379");
    assert_eq!(config.http.to_string(), "127.0.0.1:7380");
    assert!(!config.insecure);
    assert_eq!(config.ceiling_bytes, 1 << 30);
    assert_eq!(config.storage, Some(Storage::default()));
    assert_eq!(Storage::default().path, Path::new("./lately-data"));
    assert_eq!(Storage::default().durability, Durability::Interval);
}

#[test]
fn every_supported_key_is_taken() {
    let config = parse(
        r#"
        [server]
        resp = "0.0.0.0:1"
        http = "[::1]:2"
        metrics = "0.0.0.0:4"
        hosts = ["lately.example.org", "[2001:db8::1]"]
        trusted_proxies = ["10.0.0.0/8", "2001:db8::1"]
        ratelimit_headers = "draft-06"
        insecure = true
        max_clients = 7
        idle_timeout = "5m"
        password_file = "/run/default"
        tls = { cert = "/run/cert", key = "/run/key", client_ca = "/run/ca" }

        [storage]
        path = "/var/lib/lately"
        durability = "always"

        [memory]
        ceiling = "512MiB"

        [[class]]
        match = "ad:*"
        resolution = "100ms"
        window = "10s"
        exact = "36s"
        retain = 86400
        max_skew = "1s"
        precision = 0.05
        top = true

        [[class]]
        match = "*"

        [[limit]]
        name = "login"
        max = 5
        window = "1m"
        lockout = "15m"
        lockout_factor = 1.5
        lockout_max = "1h"
        overdraft = true
        exempt = ["10.0.0.0/8", "login:monitor*"]
        shadow = true
        key = "login:{header:x-real-ip/32/64}"
        deny = 429
        ipv4_prefix = 24
        ipv6_prefix = 48
        domain = "edge"
        descriptors = { remote_address = "*" }

        [[limit]]
        name = "none"
        max = 0
        window = 90

        [[user]]
        name = "web"
        password_file = "/run/web"
        keys = ["web:*", "x"]
        verbs = ["read", "hit", "limit", "delete", "admin"]
        "#,
    )
    .expect("valid");
    assert_eq!((config.resp.port(), config.http.port()), (1, 2));
    assert_eq!(config.metrics.map(|address| address.to_string()).as_deref(), Some("0.0.0.0:4"));
    let hosts = ["lately.example.org", "2001:db8::1"].map(|host| host.parse::<HostName>().expect(host));
    assert_eq!(config.hosts, hosts);
    let proxies: Vec<String> = config.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(proxies, ["10.0.0.0/8", "2001:db8::1"]);
    assert_eq!(config.ratelimit_headers, RateLimitHeaders::Draft06);
    assert_eq!((config.insecure, config.max_clients), (true, 7));
    assert_eq!(config.idle_timeout, Some(Duration::from_secs(300)));
    assert_eq!(config.ceiling_bytes, 512 << 20);
    let storage = config.storage.expect("it is kept");
    assert_eq!(
        (storage.path.as_path(), storage.durability),
        (Path::new("/var/lib/lately"), Durability::Always)
    );
    assert_eq!(parse("[storage]\ndurability = \"off\"").expect("valid").storage, None);
    let (pattern, settings) = &config.classes[0];
    assert!(pattern.matches(b"ad:1"));
    assert_eq!(settings.retain(), lately::days(1));
    assert_eq!((settings.precision(), settings.top()), (0.05, true));
    assert_eq!(config.classes[1].1, Settings::default());
    let login = NamedLimit {
        name: "login".to_owned(),
        max: 5,
        window: lately::minutes(1),
        lockout: Some(
            Lockout::growing(
                lately::minutes(15),
                Factor::new(1.5).expect("a factor"),
                Some(lately::hours(1)),
            )
            .expect("it fits"),
        ),
        is_overdraft: true,
        exempt: ["10.0.0.0/8", "login:monitor*"].map(|exempt| exempt.parse().expect(exempt)).into(),
        is_shadow: true,
        exact: None,
        key: Some(KeyTemplate::parse("login:{header:x-real-ip/32/64}").expect("valid")),
        deny: Deny::TooManyRequests,
        prefix: lately_keys::Prefix::new(24, 48).expect("lengths"),
        domain: Some("edge".to_owned()),
        descriptors: [("remote_address".to_owned(), "*".to_owned())].into(),
    };
    let none = NamedLimit {
        name: "none".to_owned(),
        max: 0,
        window: lately::seconds(90),
        lockout: None,
        is_overdraft: false,
        exempt: Vec::new(),
        is_shadow: false,
        exact: None,
        key: None,
        deny: Deny::Forbidden,
        prefix: lately_keys::Prefix::new(32, 64).expect("lengths"),
        domain: None,
        descriptors: [].into(),
    };
    assert_eq!(config.limits, [login, none]);
    let user = |name: &str, keys: &[&str]| User {
        name: name.to_owned(),
        password_file: format!("/run/{name}").into(),
        keys: keys.iter().map(|key| Pattern::new(key.as_bytes())).collect(),
        verbs: lately_resp::command::Verb::ALL.to_vec(),
    };
    assert_eq!(config.users, [user("default", &["*"]), user("web", &["web:*", "x"])]);
    let client_ca = Some("/run/ca".into());
    assert_eq!(config.tls, Some(Tls { cert: "/run/cert".into(), key: "/run/key".into(), client_ca }));
    assert_eq!(parse("[server]\nidle_timeout = 0").expect("valid").idle_timeout, None);
}

#[test]
fn a_bad_file_is_refused_with_line_and_column() {
    let check = |text: &str, expected: &str| {
        let error = parse(text).expect_err(expected);
        assert!(error.starts_with("lately.toml:") && error.contains(expected), "{error}");
    };
    check(
        "[server]\nresp = \"localhost\"",
        ":2:8: invalid address 'localhost': give a port, too: localhost:PORT",
    );
    check("[server]\n\nresp = 5", ":3:8: invalid address '5'");
    check("[server]\nrsep = \"127.0.0.1:1\"", ":2:1: unknown field `rsep`, expected one of `resp`, `http`");
    check("[server]\nmetrics = \"9180\"", ":2:11: invalid address '9180'");
    check("[server]\nhosts = \"a\"", ":2:9: hosts is a list: write [\"a\"]");
    check("[server]\nhosts = [\"a\", \"http://b:80\"]", ":2:9: invalid host 'http://b:80': give a name or");
    check("[server]\ntrusted_proxies = \"a\"", ":2:19: trusted_proxies is a list: write [\"a\"]");
    check(
        "[server]\ntrusted_proxies = [\"10.0.0.0/33\"]",
        ":2:19: invalid network '10.0.0.0/33': give an address or a network, such as 10.0.0.0/8",
    );
    check(
        "[server]\nratelimit_headers = \"new\"",
        ":2:21: invalid ratelimit_headers \"new\": give one of \"current\", \"draft-06\", \"x-draft-03\", \"off\"",
    );
    check("[sever]", ":1:2: unknown field `sever`, expected one of `server`");
    check(
        "[server]\ninsecure = \"yes\"",
        ":2:12: invalid type: string \"yes\", expected true or false, without quotes",
    );
    check(
        "[server]\nmax_clients = 0",
        ":2:15: invalid number of clients '0': give a whole number, 1 or more",
    );
    check(
        "[server]\nmax_clients = 99999999999999999999",
        ":2:15: invalid number of clients '99999999999999999999': no machine has so much memory",
    );
    for (value, shown) in
        [("1979-05-27", "1979-05-27"), ("[5]", "[…]"), ("{ a = 5 }", "{…}"), ("[]", "[…]"), ("{}", "{…}")]
    {
        let clients = format!(":2:15: invalid number of clients '{shown}': give a whole number, 1 or more");
        check(&format!("[server]\nmax_clients = {value}"), &clients);
        check(
            &format!("[server]\nresp = {value}"),
            &format!(":2:8: invalid address '{shown}': give an IP address"),
        );
    }
    check("[server]\nmax_clients = -1", ":2:15: invalid number of clients '-1'");
    check("[server]\nhosts = [5]", ":2:9: invalid type: integer `5`, expected a text in quotes");
    let long = parse(&"x".repeat(1 << 20)).expect_err("no value");
    assert!(long.starts_with("lately.toml:1:") && long.len() < 1_200, "{}", long.len());
    check("server = true", ":1:10: invalid type: boolean `true`, expected a table: [server]");
    check("storage = 3", ":1:11: invalid type: integer `3`, expected a table: [storage]");
    check("[memory]\nceiling = \"1 giga\"", ":2:11: invalid size '1 giga': give a whole number with KiB");
    check("[memory]\nceiling = 0", ":2:11: invalid size '0'");
    let most = "such as 512MiB, from 1MiB to 128TiB";
    for size in ["99999999TiB", "129TiB", "140737488355329", "18446744073709551616"] {
        check(&format!("[memory]\nceiling = \"{size}\""), most);
    }
    assert_eq!(parse("[memory]\nceiling = \"128TiB\"").expect("the most").ceiling_bytes, 1 << 47);
    check("[memory]\nceiling = \"1023KiB\"", ":2:11: invalid size '1023KiB'");
    check(
        "[storage]\ndurability = \"fsync\"",
        ":2:14: invalid durability 'fsync': give off, interval or always",
    );
    check("[storage]\nfolder = \".\"", ":2:1: unknown field `folder`");
    check("[[class]]\nresolution = \"1s\"", "missing field `match`");
    check("[[class]]\nmatch = \"a\"\nresolution = \"3s\"", ":3:14: resolution 3s is none of");
    check("[[class]]\nmatch = \"a\"\nwindow = \"fast\"", ":3:10: invalid duration 'fast'");
    check("[[class]]\nmatch = \"a\"\nwindow = \"5m\"\nexact = \"5m\"", ":4:9: exact 5m is too short");
    check("[[class]]\nmatch = \"a\"\nprecision = 2", ":3:13: precision 2 is out of range");
    check("[[class]]\nmatch = \"a\"\nwindow = \"8d\"", ":3:10: retain 7d is shorter than window");
    check("[memory]\nceiling = 1e9", ":2:11: invalid size '1000000000.0': give a whole number with KiB");
    check("[storage]\npath = \"\"", ":2:8: path is empty: name a folder, or say durability = \"off\"");
    check(
        "[[class]]\nmatch = \"a\"\nprecision = \"0.01\"",
        ":3:13: invalid precision \"0.01\": give a number without quotes, 0.0001 to 1, such as 0.01",
    );
    check(
        "[[class]]\nmatch = [\"a\", \"b\"]",
        ":2:9: match is one pattern: write a table of its own for each",
    );
    check("[[class]]\nmatch = \"\"", ":2:9: match is empty, and so is no key: * matches all keys");
    check("[[class]]\nmatch = 5", ":2:9: invalid match 5: give a pattern in quotes, such as \"ad:*\"");
    check(
        "[[class]]\nmatch = \"a\"\n[[class]]\nmatch = \"a\"",
        ":4:9: a second class of the pattern 'a': the first one counts, remove one",
    );
    for (first, second) in [("*", "ad:*"), ("ad:*", "ad:slow:*"), ("a?", "ab"), ("**", "*")] {
        check(
            &format!("[[class]]\nmatch = \"{first}\"\n[[class]]\nmatch = \"{second}\""),
            &format!(
                ":4:9: no key gets to this class: '{first}', which comes before it, matches all its keys: move it to before that, or remove it"
            ),
        );
    }
    for path in ["~", "~/x", "~you/x", "$HOME/x"] {
        check(
            &format!("[storage]\npath = \"{path}\""),
            &format!(
                ":2:8: invalid path '{path}': ~ and $ are a shell's to replace, and none reads this: write the whole path, or ./{path} if that is its name"
            ),
        );
    }
    let path = |text: &str| parse(&format!("[storage]\npath = \"{text}\"")).expect("a path").storage_path;
    assert_eq!(path("./~/x"), Some("./~/x".into()));
    assert_eq!(path("a~$"), Some("a~$".into()));
    check_limits(check);
    check("[server\n", ":1:8:");
    check("a = 1\na = 2", ":2:1: duplicate key `a`: remove one");
}

#[test]
fn users_are_checked() {
    let user = |name: &str, keys: &str, verbs: &str| {
        format!("[[user]]\nname = \"{name}\"\npassword_file = \"p\"\nkeys = [{keys}]\nverbs = [{verbs}]\n")
    };
    let good = |name: &str| user(name, "\"*\"", "\"read\"");
    let check = |text: &str, expected: &str| {
        let error = parse(text).expect_err(expected);
        assert!(error.starts_with("lately.toml:") && error.contains(expected), "{error}");
    };
    let longest = "n".repeat(MAX_USER_NAME_BYTES);
    assert!(parse(&good(&longest)).is_ok() && parse(&good("a_-.@9")).is_ok());
    for bad in ["", "a:b", "a b", "ä", &format!("{longest}n")] {
        check(&good(bad), &format!(":2:8: invalid name '{bad}': give 1 to 64 letters"));
    }
    check(&(good("a") + &good("a")), ":7:8: a second user is named 'a': give each its own name");
    let default = "[server]\npassword_file = \"d\"\n";
    check(
        &(default.to_owned() + &good("default")),
        ":4:8: the user default has its password_file in [server]",
    );
    assert_eq!(parse(&good("default")).expect("valid").users.len(), 1);
    check("[server]\npassword_file = \"\"", ":2:17: the path is empty: name a file");
    check("[server]\npassword_file = \"~/p\"", ":2:17: invalid path '~/p'");
    check(&user("a", "", "\"read\""), ":4:8: keys is empty");
    check(&user("a", "\"x\", \"\"", "\"read\""), ":4:14: invalid pattern of 0 bytes");
    let key = format!("\"{}\"", "k".repeat(1_024));
    assert!(parse(&user("a", &key, "\"read\"")).is_ok());
    check(&user("a", &key.replacen('k', "kk", 1), "\"read\""), "invalid pattern of 1025 bytes");
    let keys = |count: usize| vec!["\"k\""; count].join(", ");
    assert!(parse(&user("a", &keys(MAX_USER_PATTERNS), "\"read\"")).is_ok());
    check(
        &user("a", &keys(MAX_USER_PATTERNS + 1), "\"read\""),
        "too many keys: a user has at most 64 patterns",
    );
    check(&user("a", "\"*\"", ""), ":5:9: verbs is empty: give some of read, hit, limit, delete, admin");
    check(&user("a", "\"*\"", "\"write\""), ":5:10: unknown verb 'write': give some of read");
    check(&user("a", "\"*\"", "\"read\", \"read\""), ":5:18: the verb 'read' is given twice");
    for missing in ["name", "password_file", "keys", "verbs"] {
        let text: String = good("a")
            .lines()
            .filter(|line| !line.starts_with(missing))
            .fold(String::new(), |all, line| all + line + "\n");
        check(&text, &format!("missing field `{missing}`"));
    }
    let many = |count: usize| (0..count).map(|number| good(&format!("u{number}"))).collect::<String>();
    assert_eq!(parse(&many(MAX_USERS)).expect("valid").users.len(), MAX_USERS);
    check(&many(MAX_USERS + 1), "too many users: a config has at most 128");
    check("[user]\nname = \"a\"", "write [[user]], with two brackets");
    check("[server]\ntls = { cert = \"c\" }", "missing field `key`");
    check("[server]\ntls = { cert = \"\", key = \"k\" }", "the path is empty");
}

fn check_limits(check: impl Fn(&str, &str)) {
    let limit = |more: &str| format!("[[limit]]\nname = \"a\"\nmax = 1\nwindow = \"1m\"\n{more}");
    check("[[limit]]\nmax = 1\nwindow = 1", "missing field `name`");
    check("[[limit]]\nname = \"a\"\nwindow = 1", "missing field `max`");
    check("[[limit]]\nname = \"a\"\nmax = 1", "missing field `window`");
    check("limit = 3", ":1:1: write [[limit]], with two brackets: there may be several");
    check(&limit("lock_out = \"1h\""), ":5:1: unknown field `lock_out`, expected one of `name`, `max`, ");
    check(&limit("shadow = 1"), ":5:10: invalid type: integer `1`, expected true or false, without quotes");
    check(&limit("lockout = \"0s\""), ":5:11: invalid duration '0s'");
    let growing = |more: &str| limit(&format!("lockout = \"15m\"\n{more}"));
    check(
        &limit("lockout_factor = 2"),
        ":5:18: lockout_factor goes with lockout: give the length of the first one, such as \"15m\"",
    );
    check(&limit("lockout_max = \"1d\""), ":5:15: lockout_max goes with lockout");
    for bad in ["0.5", "\"2\"", "nan", "-2", "true"] {
        let error = format!(
            ":6:18: invalid lockout_factor {}: give a number without quotes, from 1 on, such as 2 or 1.5",
            if bad == "nan" { "NaN" } else { bad }
        );
        check(&growing(&format!("lockout_factor = {bad}")), &error);
    }
    check(
        &growing("lockout_max = \"1m\""),
        ":6:15: the longest lockout, 1m, is shorter than the first, 15m: give a longer one",
    );
    check(
        &limit("overdraft = 1"),
        ":5:13: invalid type: integer `1`, expected true or false, without quotes",
    );
    check(&limit("exempt = \"10.0.0.0/8\""), ":5:10: exempt is a list: write [\"10.0.0.0/8\"]");
    check(&limit("exempt = [\"10.0.0.0/33\"]"), ":5:10: invalid network '10.0.0.0/33'");
    let keyed = |key: &str, exempt: &str| limit(&format!("key = \"{key}\"\nexempt = [\"{exempt}\"]"));
    check(
        &keyed("{client}", "2001:db8::1"),
        ":6:10: 2001:db8::1 exempts nothing of the key '{client}': the networks of the key are larger",
    );
    check(
        &keyed("{client/16} {header:x-user}", "10.0.0.0/24"),
        ":6:10: 10.0.0.0/24 exempts nothing of the key",
    );
    check(
        &keyed("{header:x-user} {header:x-team}", "10.0.0.0/8"),
        ":6:10: 10.0.0.0/8 exempts nothing of the key '{header:x-user} {header:x-team}': no field of the key is known to be an address",
    );
    let many = |count: usize| limit(&format!("exempt = [{}]", vec!["\"a\""; count].join(",")));
    assert_eq!(parse(&many(MAX_EXEMPT)).expect("at the bound").limits[0].exempt.len(), MAX_EXEMPT);
    check(&many(MAX_EXEMPT + 1), ":5:10: too many exempt: a limit has at most 256");
    check(
        &limit("key = \"login:{ip}\""),
        ":5:7: invalid template 'login:{ip}': unknown field 'ip': give {client}",
    );
    check(&limit("deny = 404"), ":5:8: invalid deny 404: give 403 (for nginx) or 429");
    check(&limit("deny = \"403\""), ":5:8: invalid deny \"403\": give 403");
    check(
        &limit("ipv4_prefix = 33"),
        ":5:15: invalid length of a prefix '33': give a whole number from 0 to 32",
    );
    check(
        &limit("ipv6_prefix = 129"),
        ":5:15: invalid length of a prefix '129': give a whole number from 0 to 128",
    );
    check(&limit("domain = 1"), ":5:10: invalid type: integer `1`, expected a text in quotes");
    check(
        &limit("descriptors = \"*\""),
        ":5:15: invalid type: string \"*\", expected a table, such as { key = \"value\" }",
    );
    check(&limit("descriptors = { a = 1 }"), ":5:21: invalid type: integer `1`, expected a text in quotes");
    for (text, expected) in [
        (
            "domain = \"edge\"",
            ":5:10: domain goes with descriptors: add descriptors, such as { remote_address = \"*\" }",
        ),
        (
            "domain = \"edge\"\ndescriptors = {}",
            ":6:15: descriptors are empty, so the limit is for none: add descriptors, such as { remote_address = \"*\" }",
        ),
        (
            "descriptors = { a = \"*\" }",
            ":5:15: descriptors go with a domain: add that of the proxy, such as domain = \"edge\"",
        ),
        (
            "domain = \"edge\"\ndescriptors = { a = \"*b\" }",
            ":6:15: '*b' has a * that is not at its end: give a start and *, or the whole value",
        ),
    ] {
        check(&limit(text), expected);
    }
    check(&limit("max = 2"), ":5:1: duplicate key `max`");
    check(
        &limit("[[limit]]\n").replacen("[[limit]]", "limit = []\n[[limit]]", 1),
        ":2:3: duplicate key `limit`",
    );
    check(
        &limit("").replace("max = 1", "max = -1"),
        ":3:7: invalid max '-1': give a whole number from 0 to 9223372036854775807",
    );
    check(&limit("").replace("max = 1", "max = 1.5"), ":3:7: invalid max '1.5': give a whole number from 0");
    check(
        &limit("").replace("max = 1", "max = true"),
        ":3:7: invalid max 'true': give a whole number from 0",
    );
    check(
        &limit("").replace("\"1m\"", "1.5"),
        ":4:10: invalid duration '1.5': give whole seconds or a number with",
    );
    check(&limit("").replace("\"1m\"", "\"soon\""), ":4:10: invalid duration 'soon'");
    for bad in ["", "a b", "ä", "@", "@a b", "a,b"] {
        let name = format!("invalid name '{bad}': give 1 to 64 letters, digits, or any of _ - . :");
        check(&limit("").replace("\"a\"", &format!("\"{bad}\"")), &format!(":2:8: {name}"));
    }
    for (bad, taken) in [("domain:a", "domain:"), ("ratelimit:hour:a", "ratelimit:")] {
        let name = format!("invalid name '{bad}': other keys start with '{taken}'");
        check(&limit("").replace("\"a\"", &format!("\"{bad}\"")), &format!(":2:8: {name}"));
    }
    let bare = "invalid name '@a': requests write the @, the config does not: a";
    check(&limit("").replace("\"a\"", "\"@a\""), &format!(":2:8: {bare}"));
    check(&limit("").replace("\"a\"", "7"), ":2:8: invalid type: integer `7`, expected a text in quotes");
    let twice = limit(&limit("").replace("max", "  max").replace("name", " name"));
    check(&twice, ":6:9: a second limit is named 'a': give each its own name");
    let alike = twice.replacen("\"a\"", "\"a:b\"", 1).replacen("\"a\"", "\"a_b\"", 1);
    check(&alike, "'a:b' and 'a_b' have the same name in INFO: give each its own name");
    let longer = "[[limit]]\nname = \"a\"\nmax = 1\nwindow = \"30d\"\n";
    check(longer, ":4:10: window 30d is longer than the longest retention, 7d: give a shorter window");
    let kept = format!("{longer}[[class]]\nmatch = \"a\"\nretain = \"30d\"\n");
    assert_eq!(parse(&kept).expect("some key keeps that").limits.len(), 1);
    let all = |retain| format!("[[class]]\nmatch = \"*\"\nretain = \"{retain}\"\n");
    check(&format!("{longer}{}", all("1d")), ":4:10: window 30d is longer than the longest retention, 1d");
    check(&format!("{longer}{}", all("1d").replace('*', "**")), "retention, 1d: give a shorter window");
    assert_eq!(parse(&format!("{longer}{}", all("30d"))).expect("all keys keep that").limits.len(), 1);
    check("[limit]\nname = \"a\"", ":1:2: write [[limit]], with two brackets: there may be several");
    check("[class.a]\nretain = \"1d\"", ":1:2: write [[class]], with two brackets");
}

#[test]
fn limits_have_bounds() {
    let limits = |count: usize, name_bytes: usize| {
        let limit =
            |number: usize| format!("[[limit]]\nname = \"{number:0>name_bytes$}\"\nmax = 1\nwindow = 1\n");
        parse(&(0..count).map(limit).collect::<String>())
    };
    assert_eq!(limits(MAX_LIMITS, 4).map(|config| config.limits.len()), Ok(MAX_LIMITS));
    let line = 4 * MAX_LIMITS + 1;
    let expected = format!("lately.toml:{line}:1: too many limits: a config has at most 1024");
    assert_eq!(limits(MAX_LIMITS + 1, 4).err(), Some(expected));
    assert!(limits(2, MAX_LIMIT_NAME_BYTES).is_ok());
    let expected = format!("': give 1 to {MAX_LIMIT_NAME_BYTES} letters");
    assert!(limits(2, MAX_LIMIT_NAME_BYTES + 1).is_err_and(|error| error.contains(&expected)));
    let usual = "[[limit]]\nname = \"Az_09-.:\"\nmax = 9223372036854775807\nwindow = 1";
    assert_eq!(parse(usual).map(|config| config.limits[0].max), Ok(i64::MAX.unsigned_abs()));
}

#[test]
fn hosts_have_a_bound() {
    let hosts = |count: usize| parse(&format!("[server]\nhosts = [{}]", "\"a\",".repeat(count)));
    assert_eq!(hosts(MAX_HOSTS).map(|config| config.hosts.len()), Ok(MAX_HOSTS));
    let expected = format!("lately.toml:2:9: too many hosts: a server has at most {MAX_HOSTS}");
    assert_eq!(hosts(MAX_HOSTS + 1).err(), Some(expected));
}

#[test]
fn trusted_proxies_have_a_bound() {
    let proxies =
        |count: usize| parse(&format!("[server]\ntrusted_proxies = [{}]", "\"::1\",".repeat(count)));
    let most = MAX_TRUSTED_PROXIES;
    assert_eq!(proxies(most).map(|config| config.trusted_proxies.len()), Ok(most));
    let expected = format!("lately.toml:2:19: too many trusted_proxies: a server has at most {most}");
    assert_eq!(proxies(most + 1).err(), Some(expected));
}

#[test]
fn classes_have_a_bound() {
    let classes = |count: usize| {
        parse(&(0..count).map(|number| format!("[[class]]\nmatch = \"{number}\"\n")).collect::<String>())
    };
    assert_eq!(classes(240).map(|config| config.classes.len()), Ok(240));
    assert_eq!(classes(241).err().as_deref(), Some("lately.toml:481:1: too many classes: at most 240"));
}

#[test]
fn a_config_has_a_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = |bytes: u64| {
        let path = folder.path().join("lately.toml");
        // A comment as long as the file.
        let text = "#".repeat(usize::try_from(bytes).expect("a length"));
        std::fs::write(&path, text).expect("a file");
        Config::load(&path)
    };
    assert!(load(MAX_CONFIG_BYTES).is_ok());
    assert!(matches!(load(MAX_CONFIG_BYTES + 1), Err(ConfigError::TooLong { .. })));
}

#[test]
fn the_clock_uses_the_smallest_max_skew() {
    let least = |text: &str| Config::parse(text).expect("a config").least_max_skew().as_millis();
    assert_eq!(least(""), 10_000);
    assert_eq!(least("[[class]]\nmatch = \"a*\"\nmax_skew = \"1h\"\n"), 10_000);
    assert_eq!(least("[[class]]\nmatch = \"a*\"\nmax_skew = \"2s\"\n"), 2_000);
}

#[test]
fn kafka_has_keys_of_its_own() {
    let parse = |lines: &str| Config::parse(&format!("[cluster]\n{lines}"));
    let good = "engine = \"kafka\"\nnode = \"eu-1\"\nurls = [\"kafka://k1:9092\", \"kafka://k2\"]\n";
    let check = |lines: &str, expected: &str| {
        let message = parse(lines).expect_err(lines).message;
        assert!(message.contains(expected), "{message}");
    };
    let redis = "engine = \"redis\"\nnode = \"eu-1\"\nurls = [\"redis://127.0.0.1:7100\"]\n";
    check(
        &format!("{redis}topic = \"hits\""),
        "topic in [cluster] is for Kafka, and the engine is redis: leave it out",
    );
    if !cfg!(feature = "kafka") {
        return check(good, "this build is without Kafka: use a package, or build with --features kafka");
    }
    let kafka = |more: &str| {
        let cluster = parse(&format!("{good}{more}")).expect(more).cluster.expect("it is there");
        assert_eq!(cluster.engine(), "kafka");
        cluster.kafka.expect("it is Kafka")
    };
    let by_default = kafka("");
    assert_eq!((by_default.topic.as_str(), by_default.group.as_str()), ("lately-hits", "lately"));
    assert_eq!((by_default.role, by_default.session.as_secs()), (KafkaRole::Both, 10));
    let given = kafka(
        "topic = \"app.hits\"\ngroup = \"g\"\nrole = \"serve\"\ngroup_protocol = \"consumer\"\nsession = \"1s\"",
    );
    assert_eq!((given.topic.as_str(), given.group.as_str()), ("app.hits", "g"));
    assert_eq!((given.role, given.protocol), (KafkaRole::Serve, GroupProtocol::Consumer));
    assert_eq!(kafka("role = \"ingest\"").role, KafkaRole::Ingest);
    assert_eq!(kafka("role = \"produce\"").role, KafkaRole::Produce);
    assert_eq!(kafka("session = \"5m\"").session.as_secs(), 300);
    let alert = "[[alert]]\nname = \"many\"\nmatch = \"*\"\nabove = 5\nwindow = \"10s\"\n";
    let history = "[[history]]\nname = \"p\"\nurl = \"http://127.0.0.1:9090/api/v1/write\"\nmatch = \"*\"\n";
    check(
        &format!("{good}role = \"ingest\"\n{history}"),
        "[[history]] needs counts, and a node with role = \"ingest\" knows those of some partitions only",
    );
    assert_eq!(kafka(&format!("role = \"serve\"\n{history}")).role, KafkaRole::Serve);
    for role in ["ingest", "produce"] {
        assert_eq!(kafka(&format!("role = \"{role}\"\n{alert}")).role.name(), role);
    }
    let owners = "peer = \"127.0.0.1:0\"\nowners = { eu-1 = \"a:1\", eu-2 = \"b:1\" }\n";
    check(
        &format!("{good}role = \"produce\"\n{owners}"),
        "a node with role = \"produce\" decides no limits: leave [cluster.owners] out",
    );
    assert_eq!(kafka(&format!("role = \"serve\"\n{owners}")).role, KafkaRole::Serve);
    check(&format!("{good}session = \"999ms\""), "session of 999ms is out of range: give 1s to 300s");
    check(&format!("{good}session = \"301s\""), "session of 301s is out of range");
    check(&format!("{good}role = \"edge\""), "unknown role 'edge': give both, serve, ingest or produce");
    check(
        &format!("{good}group_protocol = \"new\""),
        "unknown group_protocol 'new': give classic or consumer",
    );
    check(&format!("{good}topic = \"a b\""), "invalid topic 'a b': give 1 to 64 letters");
    check(&format!("{good}topic = \"eu-1\""), "give the node another one than 'eu-1'");
    check(&format!("{good}upstream = [\"redis://a\"]"), "through Kafka have no upstream engine");
    check(
        &good.replace("kafka://k1:9092", "kafka://me:secret@k1"),
        "'kafka://…@k1': without TLS, say how to log in",
    );
    check(&good.replace("\"kafka\"", "\"redis\""), "these addresses are not of the engine redis");
}

#[test]
fn a_cluster_needs_an_engine_a_node_and_an_address() {
    let parse = |lines: &str| Config::parse(&format!("[cluster]\n{lines}"));
    let good = "engine = \"redis\"\nnode = \"eu-1\"\nurls = [\"redis://127.0.0.1:7100\"]\n";
    let cluster = parse(&format!("{good}flush = \"20ms\"")).expect("valid").cluster.expect("it is there");
    assert_eq!((cluster.node.as_str(), cluster.urls.concat().as_str()), ("eu-1", "redis://127.0.0.1:7100"));
    assert_eq!(cluster.flush.as_millis(), 20);
    let timeout = |line: &str| {
        let parsed = parse(&format!("{good}{line}")).expect(line).cluster.expect("it is there");
        parsed.read_timeout.map(|timeout| timeout.as_millis())
    };
    assert_eq!(timeout(""), Some(50));
    assert_eq!(timeout("read_timeout = \"5s\""), Some(5_000));
    assert_eq!(timeout("read_timeout = \"0\""), None);
    assert_eq!(timeout("read_timeout = 0"), None);
    assert_eq!(parse("engine = \"none\"").expect("valid").cluster, None);
    let alone = parse("engine = \"none\"\nowners = { a = \"127.0.0.1:1\", b = \"127.0.0.1:2\" }");
    assert!(alone.expect_err("refused").message.contains("this one counts alone: name an engine"));
    let check = |lines: &str, expected: &str| {
        let message = parse(lines).expect_err(lines).message;
        assert!(message.contains(expected), "{message}");
    };
    check("", "names no engine: add engine = \"redis\"");
    check("engine = \"reddis\"", "unknown engine 'reddis': give redis, postgres, kafka, peers or none");
    check("engine = \"redis\"", "names no node: add a name of this server, such as node = \"eu-1\"");
    check("engine = \"redis\"\nnode = \"eu-1\"", "names no server: add urls");
    for (engine, scheme) in [("redis", "redis"), ("kafka", "kafka"), ("peers", "peer")] {
        let empty = format!("engine = \"{engine}\"\nnode = \"eu-1\"\nurls = []");
        check(&empty, &format!("no address: give a list of them, such as [\"{scheme}://HOST:PORT\"]"));
    }
    check("engine = \"postgres\"\nnode = \"eu-1\"", "urls = [\"postgres://USER@HOST:PORT/DATABASE\"]");
    check(
        &good.replace("\"redis\"", "\"postgres\""),
        "these addresses are not of the engine postgres: give postgres://",
    );
    let postgres = good.replace("redis://127.0.0.1:7100", "postgres://me@db/counts");
    check(&postgres, "these addresses are not of the engine redis: give redis://HOST:PORT");
    let postgres = postgres.replace("\"redis\"", "\"postgres\"");
    assert_eq!(parse(&postgres).expect("valid").cluster.expect("it is there").engine(), "postgres");
    let upstream = "upstream = [\"postgres://other@db/counts\"]";
    check(&format!("{postgres}{upstream}"), "db:5432/counts is the engine of this data centre");
    check(&good.replace("eu-1", "eu.1"), "invalid node name 'eu.1': give 1 to 64 letters");
    check(&good.replace("redis://127.0.0.1:7100", "http://a"), "invalid URL 'http://a'");
    let several = parse(&good.replace("[\"redis", "[\"redis://a\", \"redis")).expect("valid").cluster;
    assert_eq!(several.expect("it is there").urls, ["redis://a", "redis://127.0.0.1:7100"]);
    check(&good.replace("[\"redis", "[\"redis://me@a\", \"redis"), "have the same scheme, user, password");
    let list = "[\"redis://127.0.0.1:7100\"]";
    let example = "such as [\"redis://127.0.0.1:6379\"]";
    check(&good.replace(list, "\"redis://a\""), &format!("\"redis://a\" is no list of addresses, {example}"));
    check(&good.replace(list, "[6379]"), "6379 is no address: give a text");
    check(&format!("{good}upstream = []"), "no address");
    check(&format!("{good}read_timeout = \"5001ms\""), "read_timeout of 5001ms is too long: at most 5s");
    check(&format!("{good}flash = 1"), "unknown field `flash`");
}

#[test]
fn a_mesh_needs_the_other_nodes_and_an_address_of_this_one() {
    let parse = |lines: &str| Config::parse(&format!("[cluster]\n{lines}"));
    let urls = "engine = \"peers\"\nnode = \"a\"\nurls = [\"peer://eu-2\", \"peer://127.0.0.1:7392\"]\n";
    let good = format!("{urls}peer = \"127.0.0.1:7382\"\n");
    let cluster = parse(&good).expect("valid").cluster.expect("it is there");
    assert_eq!((cluster.engine(), cluster.is_mesh()), ("peers", true));
    let listen = "127.0.0.1:7382".parse().expect("an address");
    assert_eq!(cluster.peer, Some(PeerConfig { listen, ..PeerConfig::default() }));
    assert_eq!(parse(urls).expect("a default").cluster.expect("it is there").peer, cluster.peer);
    let tls = "tls = { ca = \"/run/ca\", cert = \"/run/cert\", key = \"/run/key\" }";
    let peer = parse(&format!("{good}{tls}")).expect("valid").cluster.expect("it is there").peer;
    let files = PeerTls { ca: "/run/ca".into(), cert: "/run/cert".into(), key: "/run/key".into() };
    assert_eq!(peer.expect("it is there").tls, Some(files));
    let check = |lines: &str, expected: &str| {
        let message = parse(lines).expect_err(lines).message;
        assert!(message.contains(expected), "{message}");
    };
    check(
        &good.replace("7392", "7382"),
        "127.0.0.1:7382 is this server itself: give the addresses of the other nodes only",
    );
    check(&good.replace("127.0.0.1:7392", "EU-2:7382"), "'peer://EU-2:7382': the address is there twice");
    check(
        &good.replace("peer://eu-2", "redis://eu-2"),
        "'redis://eu-2': the addresses of other nodes begin with peer://",
    );
    check(
        &good.replace("peer://", "http://"),
        "these addresses are not of the engine peers: give peer://HOST:PORT",
    );
    check(
        &good.replace("peers", "redis"),
        "these addresses are not of the engine redis: give redis://HOST:PORT",
    );
    check(&good.replace("127.0.0.1:7382", "eu-1:7382"), "invalid address 'eu-1:7382'");
    check(&format!("{good}upstream = [\"redis://a\"]"), "have no upstream engine: leave it out");
    check(&format!("{good}tls = {{ cert = \"c\" }}"), "missing field `ca`");
    let redis = "engine = \"redis\"\nnode = \"a\"\nurls = [\"redis://h\"]\n";
    check(&format!("{redis}peer = \"127.0.0.1:7382\""), "and the engine is redis: leave it out");
    check(
        &format!("{redis}{tls}"),
        "tls in [cluster] is for connections of nodes to each other, and there are none",
    );
}

#[test]
fn a_node_of_a_tree_has_parents_or_is_the_root() {
    let parse = |lines: &str| Config::parse(&format!("[cluster]\nengine = \"peers\"\nnode = \"a\"\n{lines}"));
    let read = |lines: &str| {
        let cluster = parse(lines).expect("valid").cluster.expect("it is there");
        (cluster.through(), cluster.urls.len(), cluster.parents().len(), cluster.is_mesh())
    };
    assert_eq!(read(""), ("the nodes below this one".to_owned(), 0, 0, true));
    assert_eq!(read("parent = \"peer://eu\""), ("parent peer://eu".to_owned(), 0, 1, true));
    assert_eq!(
        read("urls = [\"eu-2:7382\"]\nparent = [\"top-1\", \"dns://top\"]"),
        ("eu-2:7382 parent top-1 dns://top".to_owned(), 1, 2, true)
    );
    let check = |lines: &str, expected: &str| {
        let message = parse(lines).expect_err(lines).message;
        assert!(message.contains(expected), "{message}");
    };
    check("parent = 5", "5 is no address of a parent: give that of a node above this one, such as");
    check("parent = []", "no address of a parent");
    check("parent = [true]", "true is no address of a parent");
    check(
        "parent = \"redis://h\"",
        "parent: invalid URL 'redis://h': the addresses of other nodes begin with",
    );
    check(
        "parent = [\"h\", \"peer://H:7382\"]",
        "parent: invalid URL 'peer://H:7382': the address is there twice",
    );
    check(
        "parent = \"127.0.0.1:7382\"",
        "parent: 127.0.0.1:7382 is this server itself: give the address of a node that is nearer",
    );
    check("urls = [\"h\"]\nparent = \"peer://h\"", "parent: h:7382 is in urls, too: give a node once");
    check("parent = \"h\"\nupstream = [\"redis://h\"]", "have no upstream engine: leave it out");
    let redis = "[cluster]\nengine = \"redis\"\nnode = \"a\"\nurls = [\"redis://h\"]\nparent = \"peer://h\"";
    let message = Config::parse(redis).expect_err("another engine").message;
    assert!(
        message.contains("a parent is for nodes that reach each other directly, and the engine is redis"),
        "{message}"
    );
}
