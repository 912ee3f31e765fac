//! Options of `count` and `backtest`: compressed logs, conditions, zones, series, growing lockouts.

use std::io::Write;

use bzip2::write::BzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::common::{Run, data, lately, lately_reading};

fn count(args: &[&str], log: &[u8]) -> Run {
    lately_reading(&[&["count", "-", "--json"], args].concat(), log)
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory does not fail")
}

/// A log so long that half of its compressed bytes contain whole lines.
fn long_log() -> Vec<u8> {
    let line = |n: u64| {
        let host = n.wrapping_mul(2_654_435_761) % 250;
        let (minute, second, path) = (n / 60 % 60, n % 60, n.wrapping_mul(n).wrapping_mul(40_503));
        format!(
            "10.0.0.{host} - - [12/Mar/2024:09:{minute:02}:{second:02} +0000] \"GET /{path:x} HTTP/1.1\" 200 5\n"
        )
    };
    (0..40_000).map(line).collect::<String>().into_bytes()
}

/// The sum of the totals, which are the last values of the rows.
fn total(run: &Run) -> u64 {
    let total =
        |row: &str| row.rsplit(':').next().and_then(|last| last.trim_end_matches('}').parse::<u64>().ok());
    run.out.lines().map(|row| total(row).expect(row)).sum()
}

#[test]
fn compressed_logs_are_detected_by_their_first_bytes() {
    let log = std::fs::read(data("guide/combined.log")).expect("test data");
    let xz = std::fs::read(data("combined.log.xz")).expect("test data");
    let zstd = compress_to_vec(&log[..], CompressionLevel::Fastest);
    // A skippable frame: its magic, a length, and that number of bytes.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let once = count(&[], &log);
    let twice = count(&[], &log.repeat(2));
    assert_eq!((total(&once), total(&twice)), (3, 6));
    for (name, one) in [("zstd", zstd), ("bzip2", bzip2(&log)), ("xz", xz)] {
        assert_eq!(count(&[], &one).out, once.out, "{name}");
        let run = count(&[], &one.repeat(2));
        assert_eq!((&run.out, run.code), (&twice.out, Some(0)), "{name}, two members: {}", run.err);
        if name == "zstd" {
            assert_eq!(count(&[], &[&skipped[..], &one, &skipped, &one].concat()).out, twice.out);
        }
        let run = count(&[], &[&one[..], b"junk!!"].concat());
        assert_eq!((&run.out, run.code), (&once.out, Some(2)), "{name}, junk behind");
    }
}

/// Symptom: a log that was cut off while it was copied had no rows at all. Fix: the readable part has its rows, and the exit
/// code is 2.
#[test]
fn a_cut_log_gives_its_rows_and_fails() {
    let log = long_log();
    for (name, whole) in
        [("zstd", compress_to_vec(&log[..], CompressionLevel::Fastest)), ("bzip2", bzip2(&log))]
    {
        let run = count(&["--top", "0"], &whole);
        assert_eq!((total(&run), run.code), (40_000, Some(0)), "{name}: {}", run.err);
        let run = count(&["--top", "0"], &whole[..whole.len() - 100]);
        assert!((1..40_000).contains(&total(&run)) && run.code == Some(2), "{name}: {}", run.err);
        assert!(run.err.contains("hint: the compressed data is damaged or cut off"), "{name}: {}", run.err);
    }
}

/// Symptom: a zstd log with a flipped bit was counted as if it were whole. Cause: its checksum was not compared.
#[test]
fn a_flipped_bit_in_a_compressed_log_fails() {
    let log = long_log();
    let zstd = compress_to_vec(&log[..], CompressionLevel::Fastest);
    for (name, whole) in [("zstd", zstd), ("bzip2", bzip2(&log))] {
        for part in 1..20 {
            let mut damaged = whole.clone();
            damaged[whole.len() * part / 20] ^= 2;
            let run = count(&["--top", "0"], &damaged);
            assert_eq!(run.code, Some(2), "{name}, part {part}: {}", run.err);
        }
    }
}

#[test]
fn an_invalid_zstd_log_is_refused_in_words() {
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    // The second byte of the header is a window, of 16 GiB, and the id of a dictionary comes third.
    let check = |rest: &[u8], cause: &str| {
        let run = count(&[], &[&magic[..], rest].concat());
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
        assert!(run.err.contains(cause), "{}", run.err);
    };
    check(b"abc", "standard input: damaged or cut zstd data\n");
    check(b"\x00\xc0\x01\x00\x00", "its zstd window has ");
    check(b"\x01\x00\x07\x01\x00\x00", "compressed with a dictionary (7), which is not supported");
}

#[test]
fn series_add_up_to_the_total() {
    let log = data("guide/combined.log");
    let check = |args: &[&str], out: &str| {
        let run = lately(&[&["count", log.as_str(), "--step", "2s"], args].concat());
        assert_eq!((run.out.as_str(), run.code), (out, Some(0)), "{args:?}: {}", run.err);
    };
    check(
        &["--json"],
        "{\"at\":1710234000,\"hits\":1}\n{\"at\":1710234002,\"hits\":1}\n{\"at\":1710234004,\"hits\":1}\n",
    );
    check(
        &["--json", "--key", "ip", "--top", "1"],
        "{\"key\":\"198.51.100.7\",\"at\":1710234000,\"hits\":1}\n{\"key\":\"198.51.100.7\",\"at\":1710234002,\"hits\":0}\n{\"key\":\"198.51.100.7\",\"at\":1710234004,\"hits\":1}\n",
    );
    check(
        &["--csv", "--key", "status", "--top", "1"],
        "key,at,hits\n200,1710234000,1\n200,1710234002,0\n200,1710234004,0\n",
    );
    check(
        &[],
        "            AT (UTC)  HITS\n2024-03-12T09:00:00Z  1\n2024-03-12T09:00:02Z  1\n2024-03-12T09:00:04Z  1\n",
    );
}

#[test]
fn values_are_separated_by_commas() {
    let log = b"{\"time\":1431900000,\"ip\":\"a,\\\"b\\\"\\n\"}\n{\"time\":1431900000.5,\"ip\":\"c\"}\n";
    let run = lately_reading(&["count", "-", "--csv"], log);
    assert_eq!(
        run.out,
        "key,hits,peak,peak_at,total\n\"a,\"\"b\"\"\n\",1,1,1431900000,1\nc,1,1,1431900000,1\n"
    );
}

#[test]
fn conditions_and_times_choose_lines() {
    let log = std::fs::read(data("guide/combined.log")).expect("test data");
    let check = |args: &[&str], expected: u64| {
        let run = count(args, &log);
        assert_eq!((total(&run), run.code), (expected, Some(0)), "{args:?}: {}", run.err);
    };
    check(&["--where", "status=2xx"], 1);
    check(&["--where", "status>=400", "--where", "method=POST"], 1);
    check(&["--where", "path~^/login$"], 1);
    check(&["--where", "agent!~curl"], 2);
    check(&["--where", "status=1xx"], 0);
    check(&["--since", "2024-03-12T09:00:03Z"], 2);
    check(&["--until", "2024-03-12T10:00:03", "--zone", "+01:00"], 2);
    check(&["--since", "2h ago"], 0);
    let run = lately_reading(&["backtest", "-", "--json", "--limit", "0/1m", "--where", "status=401"], &log);
    assert_eq!(
        run.out,
        "{\"key\":\"192.0.2.1\",\"allowed\":0,\"denied\":1,\"first_denied_at\":1710234003}\n"
    );
}

/// Symptom: one line far ahead silently made the hits of all other keys 0. Fix: that is reported.
#[test]
fn a_line_far_ahead_is_reported() {
    let line = |ip: &str, time: &str| format!("{{\"ip\":\"{ip}\",\"time\":\"{time}\"}}\n");
    let log = line("a", "2024-03-12T09:00:00Z")
        + &line("b", "2024-03-12T09:00:01Z")
        + &line("c", "2031-01-01T00:00:00Z");
    let message = "lately: count: the newest time, 2031-01-01T00:00:00Z, is ";
    assert!(count(&[], log.as_bytes()).err.contains(message));
    assert!(!count(&["--at", "2024-03-12T09:00:01Z"], log.as_bytes()).err.contains(message));
    assert!(!count(&["--until", "2030-01-01T00:00:00Z"], log.as_bytes()).err.contains(message));
}

#[test]
fn lockouts_grow_and_networks_are_exempt() {
    let line = |ip: &str, second: u64| format!("{{\"ip\":\"{ip}\",\"time\":{}}}\n", 1_710_234_000 + second);
    // Lockouts at 1 for 10 s, at 11 for 20 s, at 31 for the longest, 25 s, and at 56.
    let times = [0, 1, 10, 11, 30, 31, 55, 56];
    let log: String =
        times.iter().map(|&second| line("192.0.2.1", second) + &line("10.1.2.3", second)).collect();
    let args = [
        "backtest",
        "-",
        "--json",
        "--limit",
        "1/1h",
        "--lockout",
        "10s",
        "--escalate",
        "2",
        "--lockout-max",
        "25s",
    ];
    let run = lately_reading(&[&args[..], &["--exempt", "10.0.0.0/8"]].concat(), log.as_bytes());
    assert_eq!(
        run.out,
        "{\"key\":\"192.0.2.1\",\"allowed\":1,\"denied\":7,\"first_denied_at\":1710234001}\n{\"key\":\"10.1.2.3\",\"allowed\":8,\"denied\":0,\"first_denied_at\":null}\n"
    );
    assert!(run.err.ends_with(", with 4 lockouts\n"), "{}", run.err);
    let short = ["backtest", "-", "--limit", "1/1h", "--lockout", "2h", "--lockout-max", "1h"];
    let run = lately_reading(&short, log.as_bytes());
    let message = "lately: command line: --lockout 2h is longer than --lockout-max 1h";
    assert!(run.code == Some(2) && run.out.is_empty() && run.err.starts_with(message), "{}", run.err);
    let run = lately_reading(&["backtest", "-", "--limit", "1/1h", "--escalate", "2"], log.as_bytes());
    assert!(run.code == Some(2) && run.err.contains("--lockout"), "{}", run.err);
}

/// Symptom: a network silently exempted nothing if the key had several fields. Fix: the address among the fields counts; if
/// none is known, that is an error.
#[test]
fn networks_exempt_keys_with_several_fields() {
    let line =
        |ip: &str, user: &str| format!("{{\"ip\":\"{ip}\",\"user\":\"{user}\",\"time\":1710234000}}\n");
    let log = line("10.1.2.3", "a,b").repeat(3) + &line("192.0.2.1", "10.1.2.3").repeat(3);
    let backtest = |args: &[&str]| {
        let exempt = ["backtest", "-", "--csv", "--limit", "1/s", "--exempt", "10.0.0.0/8"];
        lately_reading(&[&exempt[..], args].concat(), log.as_bytes())
    };
    let header = "key,allowed,denied,first_denied_at\n";
    for (key, rows) in [
        ("{user} {ip}", "10.1.2.3 192.0.2.1,1,2,1710234000\n\"a,b 10.1.2.3\",3,0,\n"),
        ("{ip/16/64} {user}", "192.0.0.0/16 10.1.2.3,1,2,1710234000\n\"10.1.0.0/16 a,b\",3,0,\n"),
    ] {
        let run = backtest(&["--key", key]);
        assert_eq!((run.out, run.code), (format!("{header}{rows}"), Some(0)), "{}", run.err);
    }
    let run = backtest(&["--key", "{user} {time}"]);
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)));
    let message = "lately: --exempt: 10.0.0.0/8 exempts nothing of the key '{user} {time}': no field of the key is known to be an address";
    assert!(run.err.starts_with(message), "{}", run.err);
    let run = lately_reading(
        &["backtest", "-", "--limit", "1/s", "--exempt", "10.0.0.0/8", "--key", "who"],
        log.replace("user", "who").replace("10.1.2.3", "b").as_bytes(),
    );
    assert_eq!((run.out.as_str(), run.code), ("", Some(2)));
    assert!(
        run.err.contains("lately: --exempt: no key has an address: the networks exempt nothing"),
        "{}",
        run.err
    );
}

/// Symptom: a typo in the field of a condition silently left no lines. Fix: the field is named.
#[test]
fn a_missing_field_of_a_condition_is_named() {
    let log = "{\"ip\":\"a\",\"status\":500,\"time\":1710234000}\n".repeat(2);
    let count = |conditions: &[&str]| {
        let args = conditions.iter().flat_map(|condition| ["--where", condition]);
        let args: Vec<&str> = ["count", "-", "--json", "--format", "json"].into_iter().chain(args).collect();
        lately_reading(&args, log.as_bytes())
    };
    let message = "no line has the field statsu of --where";
    let run = count(&["statsu=500"]);
    assert_eq!((run.out.as_str(), run.code), ("", Some(0)));
    assert!(run.err.contains(&format!("lately: count: standard input: {message}\n")), "{}", run.err);
    assert!(count(&["statsu!=500"]).err.contains(message));
    // If no line meets the first condition, the fields of later ones are unknown.
    for conditions in [&["status=500"][..], &["status=404"], &["status=404", "statsu=500"]] {
        let run = count(conditions);
        assert!(run.code == Some(0) && !run.err.contains("no line has"), "{}", run.err);
    }
}

/// Symptom: `--key _SYSTEMD_UNIT` left out each service that logs JSON. Fix: a line has the fields of journald or docker in
/// addition to those of the text.
#[test]
fn fields_of_the_wrapper_around_json_can_be_keys() {
    let journald = |unit: &str, message: &str| {
        let message = serde_json::Value::from(message);
        format!(
            "{{\"__REALTIME_TIMESTAMP\":\"1710234000000000\",\"_SYSTEMD_UNIT\":\"{unit}\",\"MESSAGE\":{message}}}\n"
        )
    };
    let docker = |stream: &str, log: &str| {
        let log = serde_json::Value::from(format!("{log}\n"));
        format!("{{\"log\":{log},\"stream\":\"{stream}\",\"time\":\"2024-03-12T09:00:00Z\"}}\n")
    };
    let object = "{\"time\":\"2020-01-01T00:00:00Z\",\"_SYSTEMD_UNIT\":\"ssh.service\",\"stream\":\"stderr\",\"level\":\"info\"}";
    let pairs = "time=2020-01-01T00:00:00Z stream=stderr _SYSTEMD_UNIT=ssh.service";
    for (key, texts, all) in [
        (
            "_SYSTEMD_UNIT",
            [object, "plain", pairs],
            [("web.service", &journald as &dyn Fn(&str, &str) -> String)],
        ),
        ("stream", [object, "Traceback", pairs], [("stdout", &docker)]),
    ] {
        for (name, record) in all {
            // The order of the lines does not matter.
            for turn in 0..texts.len() {
                let log: String = (0..30)
                    .map(|line| record(name, texts[if line < 20 { turn } else { (turn + line) % 3 }]))
                    .collect();
                let run = lately_reading(&["count", "-", "--json", "--key", key], log.as_bytes());
                let row = format!("\"key\":\"{name}\"");
                assert!(run.out.contains(&row) && run.out.lines().count() == 1, "{} {}", run.out, run.err);
                assert_eq!(total(&run), 30, "{}", run.err);
                assert!(run.out.contains("\"peak_at\":1710234000"), "{}", run.out);
            }
        }
    }
}

/// Symptom: `access.log*` silently counted a log twice if one of the names was a link to another.
#[test]
fn a_log_given_twice_is_read_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let log = std::fs::read(data("guide/combined.log")).expect("test data");
    std::fs::write(path("a.log"), &log).expect("room");
    std::fs::write(path("b.log"), &log).expect("room");
    std::os::unix::fs::symlink("a.log", path("current.log")).expect("a link");
    let args = ["count", "--json", &path("a.log"), &path("b.log"), &path("current.log"), &path("./b.log")];
    let run = lately(&args);
    assert_eq!((total(&run), run.code), (6, Some(0)), "{}", run.err);
    for again in ["current.log", "./b.log"] {
        let message =
            format!("lately: count: {} is the same file as a log before it: it is read once", path(again));
        assert!(run.err.contains(&message), "{}", run.err);
    }
}

/// Symptom: a client with an IPv4-mapped IPv6 address had two keys, and two limits in a backtest. Cause: only combined lines
/// had one spelling for each address. Fix: an address has one spelling in every format, in keys and in conditions.
#[test]
fn an_address_has_one_spelling_in_every_format() {
    let times = "2024-03-12T09:00:0";
    let json = format!(
        "{{\"time\":\"{times}1Z\",\"client\":{{\"ip\":\"::ffff:203.0.113.5\"}}}}\n{{\"time\":\"{times}2Z\",\"client\":{{\"ip\":\"203.0.113.5\"}}}}\n"
    );
    let logfmt = format!("time={times}1Z ip=::ffff:203.0.113.5\ntime={times}2Z ip=203.0.113.5\n");
    let regex = format!("{times}1Z ::FFFF:203.0.113.5\n{times}2Z 203.0.113.5\n");
    let nginx = "::ffff:203.0.113.5 [12/Mar/2024:09:00:01 +0000]\n203.0.113.5 [12/Mar/2024:09:00:02 +0000]\n";
    for (log, args) in [
        (json.as_str(), &["--key", "client.ip"][..]),
        (&json, &["--key", "client.ip", "--where", "client.ip=::ffff:203.0.113.5"]),
        (&json, &["--key", "client.ip", "--where", "client.ip=203.0.113.0/24"]),
        (&logfmt, &[]),
        (&regex, &["--format", r"regex:^(?<time>\S+) (?<ip>\S+)$"]),
        (nginx, &["--format", "nginx:$remote_addr [$time_local]"]),
    ] {
        let run = count(args, log.as_bytes());
        assert!(run.out.contains("\"203.0.113.5\"") && run.out.lines().count() == 1, "{args:?}: {}", run.out);
        assert_eq!((total(&run), run.code), (2, Some(0)), "{args:?}: {}", run.err);
    }
}

/// Symptom: without `--key` nothing was counted in JSON logs, because servers use other names for the client. Fix: the known
/// names are tried, and standard error names the one that was found.
#[test]
fn the_fields_of_servers_are_found_in_json_and_logfmt() {
    let at = "\"time\":\"2024-03-12T09:00:01Z\"";
    let nginx = r#"{"time_iso8601":"2024-03-12T09:00:01+00:00","remote_addr":"198.51.100.7","realip_remote_addr":"10.0.0.1","http_x_forwarded_for":"203.0.113.9","request":"GET /a?b=c HTTP/1.1","status":"503","server_name":"www.example.com","remote_user":"jo"}"#;
    let nginx_uri = r#"{"msec":"1710234001.000","remote_addr":"198.51.100.7","request_method":"GET","request_uri":"/a?b=c","uri":"/index.php","status":"503","http_host":"www.example.com","remote_user":"jo"}"#;
    let caddy = r#"{"level":"info","ts":1710234001.5,"msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"5000","client_ip":"198.51.100.7","proto":"HTTP/2.0","method":"GET","host":"www.example.com","uri":"/a?b=c"},"user_id":"jo","status":503}"#;
    let traefik = format!(
        r#"{{"ClientAddr":"10.0.0.1:5000","ClientHost":"198.51.100.7","ClientUsername":"jo","DownstreamStatus":503,"OriginStatus":200,"RequestHost":"www.example.com","RequestMethod":"GET","RequestPath":"/a?b=c",{at}}}"#
    );
    let envoy = r#"{"start_time":"x","timestamp":"2024-03-12T09:00:01.000Z","downstream_remote_address":"198.51.100.7:5000","downstream_direct_remote_address":"10.0.0.1:80","method":"GET","path":"/a?b=c","response_code":503,"authority":"www.example.com","user":"jo"}"#;
    let google = r#"{"timestamp":"2024-03-12T09:00:01Z","httpRequest":{"requestMethod":"GET","requestUrl":"https://www.example.com/a?b=c","status":503,"remoteIp":"198.51.100.7","serverIp":"10.0.0.1"},"user":"jo","vhost":"www.example.com"}"#;
    let logfmt = r#"time=2024-03-12T09:00:01Z method=GET path="/a?b=c" host=www.example.com remote_addr=198.51.100.7:5000 status=503 user=jo"#;
    let key = "{ip} {path} {status} {method} {user} {vhost}";
    for (line, ip_is) in [
        (nginx, "remote_addr"),
        (nginx_uri, "remote_addr"),
        (caddy, "request.client_ip"),
        (&traefik, "ClientHost"),
        (envoy, "downstream_remote_address"),
        (google, "httpRequest.remoteIp"),
        (logfmt, "remote_addr"),
    ] {
        let run =
            count(&["--key", key, "--where", "status=5xx", "--where", "ip=198.51.100.0/24"], line.as_bytes());
        let expected = "{\"key\":\"198.51.100.7 /a 503 GET jo www.example.com\",\"hits\":1,";
        assert!(run.out.starts_with(expected), "{line}: {}{}", run.out, run.err);
        let (by_default, explicit) =
            (count(&[], line.as_bytes()), count(&["--key", "{ip}"], line.as_bytes()));
        assert!(
            by_default.out.starts_with("{\"key\":\"198.51.100.7\",\"hits\":1,"),
            "{line}: {}",
            by_default.out
        );
        assert_eq!((&by_default.out, &by_default.err), (&explicit.out, &explicit.err));
        let message = format!("lately: count: standard input: ip is {ip_is}\n");
        assert!(by_default.err.ends_with(&message), "{line}: {}", by_default.err);
    }
    let cloudtrail =
        r#"{"Records":[{"eventTime":"2024-03-12T09:00:01Z","sourceIPAddress":"2001:DB8:0::7"}]}"#;
    let run = count(&[], cloudtrail.as_bytes());
    assert!(run.out.starts_with("{\"key\":\"2001:db8::7\",\"hits\":1,"), "{}{}", run.out, run.err);
    // If lines have different names, each counts by its own, and that is reported.
    let ip = format!("{{{at},\"ip\":\"192.0.2.1\",\"remote_addr\":\"10.0.0.1\"}}\n");
    let remote = format!("{{{at},\"remote_addr\":\"192.0.2.1\"}}\n");
    let run = count(&[], (ip.repeat(2) + &remote).as_bytes());
    assert_eq!((total(&run), run.code), (3, Some(0)));
    let message = "lately: count: standard input: ip is ip (2 lines), remote_addr (1 line)\n";
    assert!(run.err.ends_with(message), "{}", run.err);
    assert!(!count(&[], ip.as_bytes()).err.contains("ip is"));
}

#[test]
fn conditions_that_match_nothing_are_named() {
    let log = std::fs::read(data("guide/combined.log")).expect("test data");
    for args in [&["--where", "status=599"][..], &["--since", "2h"], &["--where", "ip=203.0.113.0/24"]] {
        let run = count(args, &log);
        let message = "lately: count: --where, --since and --until leave none of 3 lines";
        assert!(run.out.is_empty() && run.err.contains(message), "{args:?}: {}", run.err);
    }
    let run = count(&["--since", "2024-03-13T00:00:00Z", "--until", "2024-03-12"], &log);
    assert!(run.code == Some(2) && run.err.contains("it has no zone"), "{}", run.err);
    let run = count(&["--since", "2024-03-13", "--until", "2024-03-12 09:00", "--zone", "UTC"], &log);
    let message = "--since 2024-03-13 is later than --until 2024-03-12 09:00: no line is between them";
    assert!(run.code == Some(2) && run.err.contains(message), "{}", run.err);
    let run = count(&["--since", "2024-03-12", "--until", "2024-03-12 10:00", "--zone", "UTC"], &log);
    assert_eq!((total(&run), run.code), (3, Some(0)), "{}", run.err);
    for (condition, message) in [("status==500", "'==' is no operator"), ("bytes<=5", "'<=' is no operator")]
    {
        let run = count(&["--where", condition], &log);
        assert!(run.code == Some(2) && run.err.contains(message), "{}", run.err);
    }
}

/// Symptom: because of one other line, a container's log of combined lines was read as JSON lines, none of which has a key.
/// Fix: the format is that of most lines with the key.
#[test]
fn one_foreign_line_does_not_change_the_format() {
    let wrapped = |text: &str| {
        format!("{{\"log\":\"{text}\\n\",\"stream\":\"stdout\",\"time\":\"2024-03-12T09:00:01Z\"}}\n")
    };
    let combined = r#"198.51.100.7 - - [12/Mar/2024:09:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\""#;
    let log = wrapped("/docker-entrypoint.sh: ready") + &wrapped(combined).repeat(50);
    let run = count(&[], log.as_bytes());
    assert_eq!((total(&run), run.code), (50, Some(0)), "{}", run.err);
    assert!(run.err.contains("is read as combined"), "{}", run.err);
}

/// Symptom: the first word of a wrapper was counted as the client. Cause: `%h` matched any word. Fix: it matches an address,
/// or a name with dots.
#[test]
fn a_wrapper_is_not_taken_for_the_client() {
    let line = r#"198.51.100.7 - - [12/Mar/2024:09:00:01 +0000] "GET / HTTP/1.1" 200"#;
    for front in [
        "",
        "Mar 12 09:00:01 web1 httpd: ",
        "Dec 12 09:00:01 web1 httpd: ",
        "Feb  2 09:00:01 web1 httpd[7]: ",
        "web-1  | ",
        "2024-03-12T09:00:01.5Z stdout F ",
        "<34>1 2024-03-12T09:00:01Z web1 httpd 7 - - ",
        "access.log:",
    ] {
        for format in [
            r#"apache:%h %l %u %t "%r" %>s"#,
            r#"nginx:$remote_addr - $remote_user [$time_local] "$request" $status"#,
        ] {
            let run = count(&["--format", format], format!("{front}{line}\n").as_bytes());
            assert!(run.out.contains("\"198.51.100.7\""), "{front}, {format}: {}{}", run.out, run.err);
        }
    }
    let named = line.replace("198.51.100.7", "client.example.com");
    let run = count(&["--format", r#"apache:%h %l %u %t "%r" %>s"#], named.as_bytes());
    assert!(run.out.contains("\"client.example.com\""), "{}{}", run.out, run.err);
    let zone = line.replace("198.51.100.7", "fe80::1%eth0");
    let run = count(
        &["--format", r#"nginx:$remote_addr - $remote_user [$time_local] "$request" $status"#],
        zone.as_bytes(),
    );
    assert!(run.out.contains("\"fe80::1\""), "{}{}", run.out, run.err);
}

/// Symptom: a client could forge rows of other clients with a text longer than a record of the container's log. Cause: each
/// part was read as a line. Fix: the parts of a line are joined.
#[test]
fn a_line_cut_by_a_container_runtime_is_one_line() {
    let line = |agent: &str| format!("198.51.100.7 [12/Mar/2024:09:00:01 +0000] 200 {agent}");
    let forged = line("forged").replace("198.51.100.7", "203.0.113.9");
    let nginx = ["--format", "nginx:$remote_addr [$time_local] $status $http_user_agent"];
    let cri = |stream: &str, tag: &str, text: &str| format!("2024-03-12T09:00:01.5Z {stream} {tag} {text}\n");
    let docker = |stream: &str, text: &str| {
        let log = serde_json::Value::from(text);
        format!("{{\"log\":{log},\"stream\":\"{stream}\",\"time\":\"2024-03-12T09:00:01.5Z\"}}\n")
    };
    let (start, end) = (line(&"x".repeat(9_000)), forged + &"y".repeat(9_000));
    let short = line("curl");
    let in_cri = cri("stdout", "P", &start)
        + &cri("stderr", "F", &short)
        + &cri("stdout", "F", &end)
        + &cri("stdout", "F", &short);
    let in_docker = docker("stdout", &start)
        + &docker("stderr", &(short.clone() + "\n"))
        + &docker("stdout", &(end.clone() + "\n"))
        + &docker("stdout", &(short + "\n"));
    for log in [&in_cri, &in_docker] {
        let run = count(&nginx, log.as_bytes());
        let row = "{\"key\":\"198.51.100.7\",\"hits\":3,\"peak\":3,\"peak_at\":1710234001,\"total\":3}\n";
        assert_eq!((run.out.as_str(), run.code), (row, Some(0)), "{}", run.err);
        let backtest = [&["backtest", "-", "--json", "--limit", "1/1h"], &nginx[..]].concat();
        let run = lately_reading(&backtest, log.as_bytes());
        let row = "{\"key\":\"198.51.100.7\",\"allowed\":1,\"denied\":2,\"first_denied_at\":1710234001}\n";
        assert_eq!((run.out.as_str(), run.code), (row, Some(0)), "{}", run.err);
        // The log ends within the line. Its start is read as a line, like the last line of any log.
        let cut = log.split_inclusive('\n').take(2).collect::<String>();
        assert_eq!(total(&count(&nginx, cut.as_bytes())), 2);
    }
    // A joined line past the bound is refused, with its own reason.
    let part = docker("stdout", &"x".repeat(16 * 1024));
    let log = in_docker + &part.repeat(65) + &docker("stdout", &(end + "\n"));
    let run = count(&nginx, log.as_bytes());
    let message = "1 of 4 lines does not parse: cut into parts, longer than 1048576 bytes (1, line 5)";
    assert!(total(&run) == 3 && run.err.contains(message), "{}", run.err);
}
