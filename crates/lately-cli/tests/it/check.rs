//! `lately check`.

use std::path::Path;

use crate::common::{Run, lately};

/// Runs `lately check` on a file with this text. In the output, FILE stands for the path.
fn check(text: impl AsRef<[u8]>, more: &[&str]) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lately.toml");
    std::fs::write(&file, text).expect("room for a file");
    let file = file.to_str().expect("text");
    let run = lately(&[&["check", file], more].concat());
    Run { err: run.err.replace(file, "FILE"), ..run }
}

const FULL: &str = r#"
[server]
resp = "0.0.0.0:1"
http = "[::1]:2"
metrics = "0.0.0.0:3"
hosts = ["A.example", "[::1]"]
trusted_proxies = ["10.1.2.3/8", "::1"]
ratelimit_headers = "off"
insecure = true
max_clients = 7
idle_timeout = 0

[storage]
path = "/var/lib/lately"
durability = "always"

[memory]
ceiling = "1MiB"

[[class]]
match = "ad:*"
resolution = "100ms"
window = "10s"
exact = "36s"
retain = 86400
max_skew = "1s"
precision = 0.05
dedupe = "10m"
top = true
unique = true

[[class]]
match = "\u001b*"

[[limit]]
name = "login"
max = 5
window = "1m"
lockout = "15m"
lockout_factor = 2
lockout_max = "1d"
overdraft = true
exempt = ["10.0.0.0/8", "login:\u001b*"]

[[limit]]
name = "edge:1"
max = 0
window = 90
shadow = true
key = "e:{header:x-real-ip/24}"
deny = 429
ipv4_prefix = 28
domain = "edge\n"
descriptors = { remote_address = "*", a = "b" }

[[alert]]
name = "ddos"
match = "endpoint:*"
above = 10_000
window = "10s"
for = "3s"
cooldown = "1m"
webhook = "http://127.0.0.1:9000/hook"

[[alert]]
name = "odd"
match = "\u001b"
spike = 2.5
window = "1m"
keep_firing = 5
alertmanager = "http://127.0.0.1:9093"
"#;

#[test]
fn check_prints_the_settings() {
    let run = check(FULL, &[]);
    let expected = r"server: resp 0.0.0.0:1, http [::1]:2, grpc 127.0.0.1:7381, metrics 0.0.0.0:3, hosts a.example ::1, trusted_proxies 10.0.0.0/8 ::1, ratelimit_headers off, insecure true, max_clients 7, idle_timeout never
storage: path /var/lib/lately, durability always
memory: ceiling 1048576B
class ad:*: resolution 100ms, window 10s, exact 36s, retain 1d, max_skew 1s, precision 0.05, dedupe 10m, top true, unique true
class \u{1b}*: resolution 1s, window 5m, exact 6m, retain 7d, max_skew 10s, precision 0.01
limit login: 5 in 1m, overdraft true, lockout 15m, lockout_factor 2, lockout_max 1d, exempt 10.0.0.0/8 login:\u{1b}*, shadow false, key none, deny 403, ipv4_prefix 32, ipv6_prefix 64
limit edge:1: 0 in 90s, overdraft false, lockout none, exempt none, shadow true, key e:{header:x-real-ip/24}, deny 429, ipv4_prefix 28, ipv6_prefix 64, domain edge\n, descriptor a=b, descriptor remote_address=*
alert ddos: endpoint:* above 10000 in 10s, for 3s, keep_firing 0, cooldown 1m, webhook http://127.0.0.1:9000/hook, webhook_secret_file none
alert odd: \u{1b} spike 2.5 in 1m, least 10, for 0, keep_firing 5s, cooldown 0, alertmanager http://127.0.0.1:9093/
";
    assert_eq!((run.out.as_str(), run.code), (expected, Some(0)));
    assert_eq!(run.err, "");
    let empty = "server: resp 127.0.0.1:7379, http 127.0.0.1:7380, grpc 127.0.0.1:7381, metrics none, hosts none, trusted_proxies none, ratelimit_headers current, insecure false, max_clients 10000, idle_timeout 1h
storage: path ./lately-data, durability interval
memory: ceiling 1073741824B
";
    let run = check("", &[]);
    assert_eq!((run.out.as_str(), run.err.as_str(), run.code), (empty, "", Some(0)));
    let run = check("[storage]\ndurability = \"off\"", &[]);
    assert!(run.out.contains("\nstorage: path ./lately-data, durability off\n"), "{}", run.out);
}

#[test]
fn check_prints_the_settings_as_json() {
    let run = check(FULL, &["--json"]);
    let expected = concat!(
        r#"{"server":{"resp":"0.0.0.0:1","http":"[::1]:2","grpc":"127.0.0.1:7381","metrics":"0.0.0.0:3","#,
        r#""hosts":["a.example","::1"],"trusted_proxies":["10.0.0.0/8","::1"],"ratelimit_headers":"off","insecure":true,"max_clients":7,"idle_timeout_ms":null},"#,
        r#""storage":{"path":"/var/lib/lately","durability":"always"},"memory":{"ceiling_bytes":1048576},"#,
        r#""classes":[{"match":"ad:*","resolution_ms":100,"window_ms":10000,"exact_ms":36000,"retain_ms":86400000,"max_skew_ms":1000,"precision":0.05,"dedupe_ms":600000,"top":true,"unique":true},"#,
        r#"{"match":"\u001b*","resolution_ms":1000,"window_ms":300000,"exact_ms":360000,"retain_ms":604800000,"max_skew_ms":10000,"precision":0.01,"dedupe_ms":null,"top":false,"unique":false}],"#,
        r#""limits":[{"name":"login","max":5,"window_ms":60000,"overdraft":true,"lockout_ms":900000,"lockout_factor":2.0,"lockout_max_ms":86400000,"exempt":["10.0.0.0/8","login:\u001b*"],"shadow":false,"exact":false,"on_owner_down":null,"key":null,"deny":403,"ipv4_prefix":32,"ipv6_prefix":64,"domain":null,"descriptors":{}},"#,
        r#"{"name":"edge:1","max":0,"window_ms":90000,"overdraft":false,"lockout_ms":null,"lockout_factor":null,"lockout_max_ms":null,"exempt":[],"shadow":true,"exact":false,"on_owner_down":null,"key":"e:{header:x-real-ip/24}","deny":429,"ipv4_prefix":28,"ipv6_prefix":64,"domain":"edge\n","descriptors":{"a":"b","remote_address":"*"}}],"#,
        r#""alerts":[{"name":"ddos","match":"endpoint:*","kind":"above","threshold":10000.0,"least":null,"window_ms":10000,"for_ms":3000,"keep_firing_ms":0,"cooldown_ms":60000,"webhook":"http://127.0.0.1:9000/hook","webhook_secret_file":null,"alertmanager":null},"#,
        r#"{"name":"odd","match":"\u001b","kind":"spike","threshold":2.5,"least":10,"window_ms":60000,"for_ms":0,"keep_firing_ms":5000,"cooldown_ms":0,"webhook":null,"webhook_secret_file":null,"alertmanager":"http://127.0.0.1:9093/"}],"#,
        r#""tls":null,"users":[],"cluster":null,"otlp":null,"histories":[],"ratelimit_config":null}"#,
        "\n"
    );
    assert_eq!((run.out.as_str(), run.code), (expected, Some(0)));
    let cluster =
        "[cluster]\nengine = \"redis\"\nnode = \"eu-1\"\nurls = [\"redis://me:secret@127.0.0.1:7100\"]\n";
    let line =
        "cluster: engine redis, node eu-1, urls redis://…@127.0.0.1:7100, flush 50ms, read_timeout 50ms\n";
    assert!(check(cluster, &[]).out.ends_with(line), "{}", check(cluster, &[]).out);
    let object = r#""cluster":{"engine":"redis","node":"eu-1","urls":["redis://…@127.0.0.1:7100"],"upstream":[],"peer":null,"owners":{},"flush_ms":50,"read_timeout_ms":50},"#;
    assert!(check(cluster, &["--json"]).out.contains(object), "{}", check(cluster, &["--json"]).out);
    let sentinels = cluster.replace(
        "redis://me:secret@127.0.0.1:7100",
        "rediss+sentinel://me:secret@h1,h2/main?sentinel_password=secret",
    );
    let line = "urls rediss+sentinel://…@h1,h2/main?sentinel_password=…, flush 50ms, read_timeout 50ms\n";
    assert!(check(&sentinels, &[]).out.ends_with(line), "{}", check(&sentinels, &[]).out);
    let mesh = cluster.replace("redis://me:secret@127.0.0.1:7100", "peer://eu-2").replace("redis", "peers");
    let files = "tls = { ca = \"/dev/null\", cert = \"c\", key = \"k\" }\n";
    let mesh = format!("{mesh}peer = \"127.0.0.1:7382\"\n");
    let line = "cluster: engine peers, node eu-1, urls peer://eu-2, peer 127.0.0.1:7382, tls none, flush 50ms, read_timeout 50ms\n";
    assert!(check(&mesh, &[]).out.ends_with(line), "{}", check(&mesh, &[]).out);
    let member = r#""peer":{"address":"127.0.0.1:7382","parent":[],"tls":null},"#;
    assert!(check(&mesh, &["--json"]).out.contains(member), "{}", check(&mesh, &["--json"]).out);
    let root = mesh.replace("urls = [\"peer://eu-2\"]\n", "");
    let line = "cluster: engine peers, node eu-1, urls none, peer 127.0.0.1:7382, tls none, flush 50ms, read_timeout 50ms\n";
    assert!(check(&root, &[]).out.ends_with(line), "{}", check(&root, &[]).out);
    let edge = format!("{root}parent = \"eu-2:7382\"\n");
    let part = "urls none, parent eu-2:7382, peer 127.0.0.1:7382, tls none,";
    assert!(check(&edge, &[]).out.contains(part), "{}", check(&edge, &[]).out);
    let run = check(format!("{mesh}{files}"), &[]);
    assert!(run.code == Some(2) && run.err.contains("/dev/null: no certificate in PEM"), "{}", run.err);
    let two_levels = format!("{cluster}upstream = [\"redis://me:secret@127.0.0.1:7200\"]\n");
    let line =
        "urls redis://…@127.0.0.1:7100, upstream redis://…@127.0.0.1:7200, flush 50ms, read_timeout 50ms\n";
    assert!(check(&two_levels, &[]).out.ends_with(line), "{}", check(&two_levels, &[]).out);
    let member = r#""upstream":["redis://…@127.0.0.1:7200"],"#;
    assert!(check(&two_levels, &["--json"]).out.contains(member), "{}", check(&two_levels, &["--json"]).out);
    let run = check("", &["--json"]);
    assert!(run.out.contains(r#""idle_timeout_ms":3600000},"#), "{}", run.out);
    assert!(run.out.contains(r#""metrics":null,"hosts":[],"#), "{}", run.out);
    assert!(
        run.out.ends_with(
            "\"limits\":[],\"alerts\":[],\"tls\":null,\"users\":[],\"cluster\":null,\"otlp\":null,\"histories\":[],\"ratelimit_config\":null}\n"
        ),
        "{}",
        run.out
    );
}

#[test]
fn a_bad_config_is_reported_with_its_position() {
    let refused = |text: &str, expected: &str| {
        for more in [&[][..], &["--json"]] {
            let run = check(text, more);
            let expected =
                format!("lately: config: {expected}\nhint: lately serve would not start with it\n");
            assert_eq!((run.out.as_str(), run.err.as_str(), run.code), ("", expected.as_str(), Some(2)));
        }
    };
    refused(
        "[[limit]]\nname = \"login\"\nmax = -1\nwindow = \"1m\"\n",
        "FILE:3:7: invalid max '-1': give a whole number from 0 to 9223372036854775807",
    );
    refused(
        "[[limit]]\nname = \"a\"\nmax = 1\nwindow = 1\n[[limit]]\nname = \"a\"\nmax = 1\nwindow = 1\n",
        "FILE:6:8: a second limit is named 'a': give each its own name",
    );
    refused("\n[cluster]\n", "FILE:2:1: [cluster] names no engine: add engine = \"redis\"");
    let upstream = |urls: &str, upstream: &str| {
        format!("[cluster]\nengine = \"redis\"\nnode = \"a\"\nurls = {urls}\nupstream = {upstream}\n")
    };
    refused(
        &upstream("[\"redis://me:secret@h1\", \"redis://me:secret@h2\"]", "[\"redis://h2:6379/0\"]"),
        "FILE:5:12: upstream: h2:6379 is the engine of this data centre: give that of all data centres, or none",
    );
    refused(
        &upstream("[\"redis://h1\"]", "[\"http://h2\"]"),
        "FILE:5:12: upstream: invalid URL 'http://h2': it begins with none of redis://, rediss://, redis+sentinel://, postgres://, kafka://, peer://",
    );
    refused(
        &upstream("[\"redis://h1\"]", "[]"),
        "FILE:5:12: no address: give a list of them, such as [\"redis://HOST:PORT\"]",
    );
    refused(
        "[cluster]\nengine = \"redis\"\nnode = \"a\"\nupstream = [\"redis://h2\"]\n",
        "FILE:1:1: [cluster] names no server: add urls = [\"redis://HOST:PORT\"]",
    );
    refused(
        "\n[clusters]\n",
        "FILE:2:2: unknown field `clusters`, expected one of `server`, `storage`, `memory`, `class`, `limit`, `alert`, `user`, `cluster`, `history`, `otlp`",
    );
    refused("x", "FILE:1:2: write `x = …`: a key and its value have = between them");
    let run = check(b"[server]\n# \xc3\xa4\xff\n", &[]);
    assert!(run.err.starts_with("lately: config: FILE:2:4: not UTF-8: "), "{}", run.err);
    let run = lately(&["check", "nowhere.toml"]);
    let gone = "lately: config: nowhere.toml: No such file or directory (os error 2)\nhint: lately serve would not start with it\n";
    assert_eq!((run.out.as_str(), run.err.as_str(), run.code), ("", gone, Some(2)));
    assert_eq!(lately(&["check"]).code, Some(2));
}

#[test]
fn the_reference_shows_the_output_of_its_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).expect("it is in the repository");
    let block = |opening: &str| {
        page.split(opening).nth(1).and_then(|rest| rest.split("```").next()).expect("an example")
    };
    let run = check(block("```toml\n"), &[]);
    assert_eq!((run.err.as_str(), run.code), ("", Some(0)));
    assert_eq!(run.out, block("```text\n$ lately check lately.toml\n"));
}

#[test]
fn a_refused_address_is_a_mistake() {
    let run = check("[server]\nhttp = \"0.0.0.0:1\"\n", &[]);
    let expected = "lately: config: refusing to listen on 0.0.0.0:1 for HTTP: there are no users, ";
    assert!(run.err.starts_with(expected), "{}", run.err);
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)));
}

#[test]
fn two_listeners_at_one_address_are_a_mistake() {
    let check = |resp: &str, http: &str, is_refused: bool| {
        let run = check(format!("[server]\ninsecure = true\nresp = \"{resp}\"\nhttp = \"{http}\"\n"), &[]);
        let expected = format!(
            "lately: config: RESP and HTTP cannot both listen on {http}: give each its own port\nhint: set another port with --resp or --http, or in the config file\n"
        );
        let expected = if is_refused { (expected, Some(2)) } else { (String::new(), Some(0)) };
        assert_eq!((run.err, run.code), expected, "{resp} {http}");
    };
    check("127.0.0.1:7000", "127.0.0.1:7000", true);
    check("0.0.0.0:7000", "127.0.0.1:7000", true);
    check("[::]:7000", "127.0.0.1:7000", true);
    check("127.0.0.1:7000", "[::]:7000", true);
    check("127.0.0.1:7000", "127.0.0.1:7001", false);
    check("127.0.0.1:7000", "127.0.0.2:7000", false);
    check("127.0.0.1:7000", "[::1]:7000", false);
    check("127.0.0.1:0", "127.0.0.1:0", false);
}

#[test]
fn the_hint_names_both_listeners_of_an_address() {
    let run = check("[server]\nhttp = \"127.0.0.1:7\"\nmetrics = \"127.0.0.1:7\"\n", &[]);
    let expected =
        "lately: config: HTTP and metrics cannot both listen on 127.0.0.1:7: give each its own port
hint: set another port with --http or --metrics, or in the config file
";
    assert_eq!((run.err.as_str(), run.code), (expected, Some(2)));
}

/// Runs `lately` with a folder that has this file of rules. In the output, DIR stands for the folder.
fn with_rules(rules: &str, command: &[&str], config: Option<&str>) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let (rules_folder, file) = (folder.path().join("rules"), folder.path().join("lately.toml"));
    std::fs::create_dir(&rules_folder).expect("room");
    std::fs::write(rules_folder.join("shop.yaml"), rules).expect("room");
    let rules_folder = rules_folder.to_str().expect("text");
    let file = config.map(|text| {
        std::fs::write(&file, text).expect("room");
        file.to_str().expect("text")
    });
    let file: Vec<&str> = file.into_iter().collect();
    let run = lately(&[command, &file[..], &["--ratelimit-config", rules_folder]].concat());
    Run { err: run.err.replace(rules_folder, "DIR"), ..run }
}

const RULES: &str = "domain: shop
descriptors:
- key: path
  rate_limit: { unit: day, requests_per_unit: 5 }
- key: user
  descriptors:
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 9 }
";

#[test]
fn rules_of_envoyproxy_ratelimit_are_checked() {
    let run = with_rules(RULES, &["check"], None);
    let counts = "ratelimit_config: 1 domain, 2 rules\n";
    assert_eq!((run.out.as_str(), run.err.as_str(), run.code), (counts, "", Some(0)));
    let run = with_rules(RULES, &["check"], Some("[memory]\nceiling = \"1MiB\""));
    assert!(run.out.ends_with(&format!("\nmemory: ceiling 1048576B\n{counts}")), "{}", run.out);
    let run = with_rules(RULES, &["check", "--json"], None);
    assert!(run.out.ends_with(",\"ratelimit_config\":{\"domains\":1,\"rules\":2}}\n"), "{}", run.out);
}

#[test]
fn wrong_rules_are_refused_with_one_text() {
    let refused = |rules: &str, expected: &str| {
        for (command, hint) in
            [("check", "lately serve would not start with it"), ("serve", "the server was not started")]
        {
            let run = with_rules(rules, &[command], None);
            let expected = format!("lately: ratelimit-config: {expected}\nhint: {hint}\n");
            assert_eq!((run.out.as_str(), run.err.as_str(), run.code), ("", expected.as_str(), Some(2)));
        }
    };
    refused(
        &RULES.replace("hour", "fortnight"),
        "DIR/shop.yaml:8:25: unknown unit 'fortnight': give one of second, minute, hour, day, week, month, year",
    );
    refused(
        &format!("{RULES}  metadata: {{}}\n"),
        "DIR/shop.yaml:9:3: `metadata` is not supported: remove it",
    );
    let run = lately(&["check", "--ratelimit-config", "nowhere"]);
    let gone = "lately: ratelimit-config: nowhere: No such file or directory (os error 2)\nhint: lately serve would not start with it\n";
    assert_eq!((run.err.as_str(), run.code), (gone, Some(2)));
}
