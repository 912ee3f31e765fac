//! Each format: a small log, what is read of it, and what clients cannot do to it.

use std::collections::BTreeMap;

use lately_logs::{Format, LineParser, Malformed, Options, Parsed, Times, scan};
use proptest::prelude::*;

/// How a log is read: its format, or none, the key, and what else.
fn read(
    log: &[u8],
    format: Option<&str>,
    key: &str,
    change: impl FnOnce(&mut Options),
) -> (String, Vec<(i64, String)>) {
    let now = lately::Timestamp::from_seconds(1_795_000_000).expect("in range");
    let mut options = Options {
        format: format.map(|format| format.parse::<Format>().expect(format)),
        key: key.parse().expect(key),
        times: Times { now, ..Times::default() },
        ..Options::default()
    };
    change(&mut options);
    let mut records = Vec::new();
    let scanned = scan(log, &options, |record| {
        records.push((record.at.as_millis(), String::from_utf8_lossy(record.key).into_owned()));
    });
    let scanned = scanned.expect("a log");
    assert_eq!(scanned.malformed, [], "{}", String::from_utf8_lossy(log));
    (scanned.format.unwrap_or("none").to_owned(), records)
}

/// A request, from which each format's line is written.
#[derive(Clone, Copy)]
struct Hit {
    /// Seconds from 2024-03-12T09:00:00Z on; milliseconds.
    second: i64,
    millis: i64,
    ip: &'static str,
    method: &'static str,
    url: &'static str,
    status: u16,
    agent: &'static str,
}

const START_S: i64 = 1_710_234_000;

const HITS: [Hit; 6] = [
    hit(1, 250, "198.51.100.7", "GET", "/a?b=c", 200, "curl/8.0"),
    hit(1, 999, "192.0.2.1", "POST", "/login", 401, "Probe (x; y)"),
    hit(2, 0, "198.51.100.7", "GET", "/", 503, "-"),
    hit(59, 1, "2001:db8::7", "HEAD", "/a", 304, "a=b"),
    hit(61, 500, "192.0.2.1", "POST", "/login", 401, "curl/8.0"),
    hit(3599, 0, "192.0.2.1", "GET", "/x/y.z", 200, "curl/8.0"),
];

const fn hit(
    second: i64,
    millis: i64,
    ip: &'static str,
    method: &'static str,
    url: &'static str,
    status: u16,
    agent: &'static str,
) -> Hit {
    Hit { second, millis, ip, method, url, status, agent }
}

impl Hit {
    /// `09:00:01`.
    fn clock(&self) -> String {
        format!("09:{:02}:{:02}", self.second / 60, self.second % 60)
    }

    fn iso(&self) -> String {
        format!("2024-03-12T{}.{:03}Z", self.clock(), self.millis)
    }

    fn request(&self) -> String {
        format!("{} {} HTTP/1.1", self.method, self.url)
    }

    fn combined(&self) -> String {
        let Hit { ip, status, agent, .. } = self;
        let (clock, request) = (self.clock(), self.request());
        format!("{ip} - - [12/Mar/2024:{clock} +0000] \"{request}\" {status} 5 \"-\" \"{agent}\"")
    }

    fn json(&self) -> String {
        let Hit { ip, status, agent, .. } = self;
        let (iso, path) = (self.iso(), self.path());
        format!(
            "{{\"time\":\"{iso}\",\"ip\":\"{ip}\",\"path\":\"{path}\",\"status\":{status},\"agent\":\"{agent}\"}}"
        )
    }

    fn path(&self) -> &'static str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// When it was, in whole seconds where the format has no more.
    fn at_ms(&self, has_millis: bool) -> i64 {
        (START_S + self.second) * 1_000 + if has_millis { self.millis } else { 0 }
    }
}

/// Reads what `line` writes, with the format named and by itself, and compares with the hits. A format that takes an
/// argument is not told by the lines.
fn check(named: &str, header: &str, has_millis: bool, line: impl Fn(&Hit) -> String) {
    let log: String =
        std::iter::once(header.to_owned()).chain(HITS.iter().map(|hit| line(hit) + "\n")).collect();
    let expected: Vec<(i64, String)> = HITS
        .iter()
        .map(|hit| (hit.at_ms(has_millis), format!("{} {} {}", hit.ip, hit.path(), hit.status)))
        .collect();
    let by_ip = HITS.iter().fold(BTreeMap::new(), |mut counts, hit| {
        *counts.entry(hit.ip.to_owned()).or_insert(0) += 1;
        counts
    });
    let utc = |options: &mut Options| options.times.zone = Some("UTC".parse().expect("a zone"));
    let name = named.split(':').next().unwrap_or(named);
    let is_told = !named.contains(':') && named != "common";
    for format in [Some(named), None].into_iter().take(if is_told { 2 } else { 1 }) {
        let (found, records) = read(log.as_bytes(), format, "{ip} {path} {status}", utc);
        assert_eq!((found.as_str(), records), (name, expected.clone()), "{log}");
        let (_, records) = read(log.as_bytes(), format, "ip", utc);
        let counts = records.into_iter().fold(BTreeMap::new(), |mut counts, (_, ip)| {
            *counts.entry(ip).or_insert(0) += 1;
            counts
        });
        assert_eq!(counts, by_ip, "{log}");
        let denied = |options: &mut Options| {
            utc(options);
            options.filters = vec!["status=4xx".parse().expect("a condition")];
        };
        let (_, records) = read(log.as_bytes(), format, "*", denied);
        assert_eq!(records.len(), HITS.iter().filter(|hit| hit.status / 100 == 4).count(), "{log}");
    }
}

#[test]
fn combined_common_and_vhost() {
    check("combined", "", false, Hit::combined);
    check("common", "", false, |hit| {
        hit.combined().replace(" \"-\" ", "|").split('|').next().expect("a start").to_owned()
    });
    check("vhost", "", false, |hit| format!("www.example.com:443 {}", hit.combined()));
    check("vhost", "# a comment\n\n", false, |hit| format!("www.example.com {}", hit.combined()));
}

/// A line as a carrier has it.
type Wrap = fn(&Hit, &str) -> String;

/// Symptom: what carriers put before a line was counted as its client. Fix: known carriers are taken off.
#[test]
fn lines_in_wrappers_are_those_lines() {
    let wrappers: [(&str, Wrap); 9] = [
        ("RFC 3164", |hit, line| format!("Mar 12 {} web1 nginx: {line}", hit.clock())),
        ("RFC 3164 with a number", |hit, line| format!("<190>Mar 12 {} web1 nginx[7]: {line}", hit.clock())),
        ("rsyslog", |hit, line| format!("{} web1 nginx: {line}", hit.iso())),
        ("RFC 5424", |hit, line| format!("<34>1 {} web1 nginx 7 - [x@1 a=\"[\\]\"] {line}", hit.iso())),
        ("CRI", |hit, line| format!("{} stdout F {line}", hit.iso())),
        ("docker compose", |_, line| format!("web-1  | {line}")),
        ("grep -H", |_, line| format!("logs/access.log:{line}")),
        ("docker", |hit, line| {
            let log = serde_json::Value::from(format!("{line}\n"));
            format!("{{\"log\":{log},\"stream\":\"stdout\",\"time\":\"{}\"}}", hit.iso())
        }),
        ("journald", |hit, line| {
            let message = serde_json::Value::from(line);
            let micros = hit.at_ms(true) * 1_000;
            format!("{{\"__REALTIME_TIMESTAMP\":\"{micros}\",\"_PID\":\"7\",\"MESSAGE\":{message}}}")
        }),
    ];
    for (_, wrap) in wrappers {
        check("combined", "", false, |hit| wrap(hit, &hit.combined()));
        check("json", "", true, |hit| wrap(hit, &hit.json()));
        check("vhost", "", false, |hit| wrap(hit, &format!("www.example.com:443 {}", hit.combined())));
    }
}

/// Symptom: logfmt in docker's json-file was read as JSON, whose fields are docker's. Fix: the format is that of what docker put its JSON
/// around, unless only docker's own fields have the key.
#[test]
fn the_format_of_what_docker_wrote_is_that_of_its_text() {
    let docker = |text: &str| {
        let log = serde_json::Value::from(format!("{text}\n"));
        format!("{{\"log\":{log},\"stream\":\"stdout\",\"time\":\"2024-03-12T09:00:01Z\"}}\n")
    };
    let logfmt = docker("level=info ip=192.0.2.1 msg=\"a b\"");
    let check = |log: &str, key: &str, format: &str, expected: &str| {
        let mut options = Options { key: key.parse().expect(key), ..Options::default() };
        options.times.now = lately::Timestamp::from_seconds(1_795_000_000).expect("in range");
        let mut last = String::new();
        let scanned =
            scan(log.as_bytes(), &options, |record| last = String::from_utf8_lossy(record.key).into_owned());
        assert_eq!((scanned.expect(log).format, last.as_str()), (Some(format), expected), "{key}: {log}");
    };
    for key in ["ip", "{level} {ip}"] {
        check(&logfmt.repeat(3), key, "logfmt", if key == "ip" { "192.0.2.1" } else { "info 192.0.2.1" });
    }
    let started = docker("ready") + &logfmt.repeat(3);
    check(&started, "ip", "logfmt", "192.0.2.1");
    check(&started, "*", "logfmt", "*");
    check(&started, "level", "logfmt", "info");
    check(&started, "stream", "json", "stdout");
    check(&docker("ready").repeat(3), "*", "json", "*");
    check(&docker("{\"ip\":\"a\"}").repeat(3), "ip", "json", "a");
    check(&(docker("ready") + &docker("{\"ip\":\"a\"}").repeat(3)), "ip", "json", "a");
    let syslog = "<34>1 2024-03-12T09:00:01Z web1 app 7 - - hello";
    check(&docker(syslog).repeat(3), "*", "syslog", "*");
}

#[test]
fn json_in_its_shapes() {
    check("json", "", true, Hit::json);
    check("json", "", true, |hit| hit.json().replace(',', ",\n  ").replace('{', "{\n"));
    check("json", "[", true, |hit| hit.json() + if hit.second == 3599 { "]" } else { "," });
    check("json", "{\"Records\": [", true, |hit| hit.json() + if hit.second == 3599 { "]}" } else { "," });
}

#[test]
fn logfmt() {
    check("logfmt", "", true, |hit| {
        let (time, agent, path) = (hit.iso(), hit.agent, hit.path());
        format!(
            "time={time} level=info msg=\"a \\\"b\\\" ip=x\" ip={} path={path} status={} agent=\"{agent}\"",
            hit.ip, hit.status
        )
    });
}

#[test]
fn w3c_of_iis_and_cloudfront() {
    let header = "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time cs-method cs-uri-stem cs-uri-query c-ip cs(User-Agent) sc-status\n";
    check("w3c", header, false, |hit| {
        let agent = hit.agent.replace(' ', "+");
        format!(
            "2024-03-12 {} {} {} - {} {agent} {}",
            hit.clock(),
            hit.method,
            hit.path(),
            hit.ip,
            hit.status
        )
    });
    let header =
        "#Version: 1.0\n#Fields: date time x-edge-location c-ip cs-method cs(Host) cs-uri-stem sc-status\n";
    check("w3c", header, false, |hit| {
        let (clock, path) = (hit.clock(), hit.path());
        format!(
            "2024-03-12\t{clock}\tFRA6\t{}\t{}\td1.cloudfront.net\t{path}\t{}",
            hit.ip, hit.method, hit.status
        )
    });
}

#[test]
fn load_balancers_of_aws() {
    check("alb", "", true, |hit| {
        let Hit { ip, method, url, status, agent, .. } = hit;
        let (iso, request) = (hit.iso(), format!("{method} https://www.example.com:443{url} HTTP/2.0"));
        format!(
            "h2 {iso} app/web/50dc {ip}:2817 10.0.0.1:80 0.000 0.001 0.000 {status} {status} 34 366 \"{request}\" \"{agent}\" ECDHE TLSv1.2 arn:aws:x \"Root=1-5\" \"www.example.com\" \"arn:aws:y\" 0 {iso} \"forward\" \"-\" \"-\" \"10.0.0.1:80\" \"200\" \"-\" \"-\" TID_1"
        )
    });
    // Classic.
    check("alb", "", true, |hit| {
        let Hit { ip, method, url, status, agent, .. } = hit;
        format!(
            "{} web {ip}:2817 10.0.0.1:80 0.000073 0.001048 0.000057 {status} {status} 0 29 \"{method} http://www.example.com:80{url} HTTP/1.1\" \"{agent}\" - -",
            hit.iso()
        )
    });
}

#[test]
fn haproxy() {
    check("haproxy", "", true, |hit| {
        let Hit { ip, status, millis, .. } = hit;
        let (clock, request) = (hit.clock(), hit.request());
        format!(
            "Mar 12 {clock} lb1 haproxy[14389]: {ip}:33317 [12/Mar/2024:{clock}.{millis:03}] http-in static/srv1 10/0/30/69/109 {status} 2750 - - ---- 1/1/1/1/0 0/0 {{1wt.eu}} {{}} \"{request}\""
        )
    });
}

#[test]
fn envoy_and_istio() {
    let line = |hit: &Hit, istio: &str| {
        let Hit { ip, status, agent, .. } = hit;
        let (iso, request) = (hit.iso(), hit.request());
        format!(
            "[{iso}] \"{request}\" {status} - {istio}0 154 0 0 \"{ip}\" \"{agent}\" \"cc21d9b0\" \"web\" \"127.0.0.1:8080\""
        )
    };
    check("envoy", "", true, |hit| line(hit, ""));
    check("envoy", "", true, |hit| {
        line(hit, "via_upstream - \"-\" ") + " inbound|80|| 127.0.0.1:1 10.0.0.1:80 10.0.0.2:1 - default"
    });
}

#[test]
fn formats_of_nginx_and_apache() {
    let main = r#"nginx:'$remote_addr - $remote_user [$time_local] "$request" ' '$status $body_bytes_sent "$http_referer" "$http_user_agent"'"#;
    check(main, "", false, Hit::combined);
    let times = "nginx:$msec|$time_iso8601|$remote_addr|$request_uri|$status|$request_time";
    check(times, "", true, |hit| {
        let at = hit.at_ms(true);
        format!(
            "{}.{:03}|2024-03-12T{}+00:00|{}|{}|{}|0.003",
            at / 1_000,
            at % 1_000,
            hit.clock(),
            hit.ip,
            hit.url,
            hit.status
        )
    });
    let json = r#"nginx:log_format main escape=json '{"t":"$time_iso8601","a":"$remote_addr","r":"$request","s":$status}';"#;
    check(json, "", false, |hit| {
        let (time, request) = (format!("2024-03-12T{}+00:00", hit.clock()), hit.request());
        format!("{{\"t\":\"{time}\",\"a\":\"{}\",\"r\":\"{request}\",\"s\":{}}}", hit.ip, hit.status)
    });
    let combined =
        r#"apache:LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"" combined"#;
    check(combined, "", false, Hit::combined);
    let other = r#"apache:%{%Y-%m-%dT%H:%M:%S}t.%{msec_frac}t %v:%p %a %m %U%q %H %>s %D"#;
    let refused = other.parse::<Format>().map(|_| ()).expect_err("fields that touch").to_string();
    assert!(refused.contains("nothing is between 'path' and what follows it"), "{refused}");
    check(r#"apache:%v:%p %a %u [%{%Y-%m-%dT%H:%M:%S%z}t] "%m %U" %>s %D"#, "", false, |hit| {
        let time = format!("2024-03-12T{}+0000", hit.clock());
        format!(
            "www.example.com:443 {} - [{time}] \"{} {}\" {} 1234",
            hit.ip,
            hit.method,
            hit.path(),
            hit.status
        )
    });
}

#[test]
fn syslog_has_fields_of_its_own() {
    let log = "Mar 12 09:00:01 web1 sshd[7]: Failed password\nMar 12 09:00:02 web2 cron: x\n<34>1 2024-03-12T09:00:03Z web1 app 9 ID [a b=\"\\]\"] y\n";
    let change = |options: &mut Options| {
        options.times.zone = Some("UTC".parse().expect("a zone"));
        options.times.written = lately::Timestamp::from_seconds(1_710_235_000);
    };
    let (format, records) = read(log.as_bytes(), None, "{host} {app} {message}", change);
    let at = |second: i64| (START_S + second) * 1_000;
    let expected = [(at(1), "web1 sshd Failed password"), (at(2), "web2 cron x"), (at(3), "web1 app y")];
    assert_eq!(
        (format.as_str(), records),
        ("syslog", expected.map(|(at, key)| (at, key.to_owned())).to_vec())
    );
}

#[test]
fn regular_expressions() {
    check(r#"regex:^(?<time>\S+) (?<ip>\S+) \S+ (?<path>[^? ]+)\S* (?<status>\d+)$"#, "", true, |hit| {
        format!("{} {} {} {} {}", hit.iso(), hit.ip, hit.method, hit.url, hit.status)
    });
}

/// What a client may send: pieces of what servers write between fields, escapes, and other bytes.
fn text() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 18] = [
        b" ",
        b"\"",
        b"\\",
        b"[",
        b"] ",
        b" - - [",
        b" [12/Mar/2024:08:00:01 +0000] \"GET /evil HTTP/1.1\" 200 5 \"-\" \"-\"",
        b"\" 404 0 \"-\" \"-\"",
        b", 203.0.113.9",
        b"203.0.113.9 ",
        b"203.0.113.9 - - ",
        b"{\"time\":1}",
        b"\\x22",
        b"\xc3\xa9\xff",
        b"\t\x01",
        b"a",
        b"-",
        b" 7 \"r\" \"u\" 3ms",
    ];
    proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..6).prop_map(|pieces| pieces.concat())
}

/// As nginx writes what clients send, and as Apache does.
fn escaped(text: &[u8], is_nginx: bool) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in text {
        match byte {
            b'"' | b'\\' if !is_nginx => escaped.extend([b'\\', byte]),
            b'\t' if !is_nginx => escaped.extend(b"\\t"),
            b'"' | b'\\' | ..0x20 | 0x7f.. => escaped.extend(format!("\\x{byte:02X}").into_bytes()),
            byte => escaped.push(byte),
        }
    }
    escaped
}

/// As Traefik quotes headers: Go's `strconv.Quote`. What is empty is a dash without quotes.
fn quoted(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return b"-".to_vec();
    }
    let mut quoted = vec![b'"'];
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => quoted.extend(format!("\\{character}").bytes()),
                '\t' => quoted.extend(b"\\t"),
                character if character.is_control() => {
                    quoted.extend(format!("\\x{:02x}", u32::from(character)).bytes());
                }
                character => quoted.extend(character.to_string().bytes()),
            }
        }
        chunk.invalid().iter().for_each(|byte| quoted.extend(format!("\\x{byte:02x}").bytes()));
    }
    quoted.push(b'"');
    quoted
}

/// The fields that no client chooses, and the user: what a line is read as.
fn fields_of(line: &[u8], format: &str) -> Vec<(i64, String)> {
    read(line, Some(format), "{ip}|{status}|{bytes}|{user}", |_| {}).1
}

fn expected(user: &[u8]) -> Vec<(i64, String)> {
    let key = [b"198.51.100.7|404|153|", user].concat();
    vec![((START_S + 1) * 1_000, String::from_utf8_lossy(&key).into_owned())]
}

/// Symptom: a client hid its line of Traefik, or forged one, by a date in its referer. Cause: the last date of the line was taken for the
/// server's. Fix: the last before the referer, which is found from the end of the line.
#[test]
fn a_date_in_a_referer_of_traefik_is_no_date_of_the_line() {
    for (referer, agent) in [
        (r#" - - [203.0.113.9 {\"time\":1}] "#, " - - ["),
        (" - - [12/Mar/2024:08:00:01 +0000] ", " 200 5 "),
        (r#" - - [12/Mar/2024:08:00:01 +0000] \"GET /evil HTTP/1.1\" 200 5 "#, r"\\"),
    ] {
        let line = format!(
            "198.51.100.7 - jo [12/Mar/2024:09:00:01 +0000] \"GET /?a HTTP/1.1\" 404 153 \"{referer}\" \"{agent}\" 7 \"web@docker\" \"http://10.0.0.1:80\" 12ms"
        );
        assert_eq!(fields_of(line.as_bytes(), "combined"), expected(b"jo"), "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Neither as nginx writes it nor as Apache does.
    #[test]
    fn no_text_of_a_client_changes_another_field(
        user in text(), path in text(), referer in text(), agent in text(), is_nginx in any::<bool>(),
    ) {
        let [user, path, referer, agent] = [user, path, referer, agent].map(|text| escaped(&text, is_nginx));
        let parts: [&[u8]; 9] = [
            b"198.51.100.7 - ", &user, b" [12/Mar/2024:09:00:01 +0000] \"GET /", &path, b" HTTP/1.1\" 404 153 \"",
            &referer, b"\" \"", &agent, b"\"",
        ];
        let line = parts.concat();
        prop_assert_eq!(fields_of(&line, "combined"), expected(&user));
        let referer_and_agent = read(&line, Some("combined"), "{referer}|{agent}", |_| {}).1;
        let key = String::from_utf8_lossy(&[&referer[..], b"|", &agent].concat()).into_owned();
        prop_assert_eq!(referer_and_agent, vec![((START_S + 1) * 1_000, key)]);
        let nginx = r#"nginx:$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
        let apache = r#"apache:%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;
        prop_assert_eq!(fields_of(&line, if is_nginx { nginx } else { apache }), expected(&user));
        let with_vhost = [b"www.example.com:443 ", &line[..]].concat();
        prop_assert_eq!(fields_of(&with_vhost, "vhost"), expected(&user));
        let in_syslog = [b"Mar 12 09:00:01 web1 nginx: ", &line[..]].concat();
        prop_assert_eq!(fields_of(&in_syslog, "combined"), expected(&user));
    }

    /// Traefik writes the user as it came; its paths are escaped, its queries are as they came but have no blanks.
    #[test]
    fn no_text_of_a_client_changes_another_field_of_traefik(
        user in text(), query in text(), referer in text(), agent in text(),
    ) {
        let user: Vec<u8> = user.into_iter().filter(|byte| *byte != b'\n').collect();
        let query: Vec<u8> = query.into_iter().filter(|byte| !byte.is_ascii_whitespace() && *byte != 1).collect();
        let user = if user.is_empty() { b"-".to_vec() } else { user };
        let [referer, agent] = [referer, agent].map(|text| quoted(&text));
        let parts: [&[u8]; 9] = [
            b"198.51.100.7 - ", &user, b" [12/Mar/2024:09:00:01 +0000] \"GET /?", &query, b" HTTP/1.1\" 404 153 ",
            &referer, b" ", &agent, b" 7 \"web@docker\" \"http://10.0.0.1:80\" 12ms",
        ];
        prop_assert_eq!(fields_of(&parts.concat(), "combined"), expected(&user));
    }

    /// As nginx writes it into JSON that a `log_format` makes: with `\xHH`, or with `escape=json`.
    #[test]
    fn no_text_of_a_client_changes_another_field_of_json_by_nginx(user in text(), agent in text(), is_escaped in any::<bool>()) {
        let written = |text: &[u8]| {
            if is_escaped {
                return escaped(text, true);
            }
            let mut written = Vec::new();
            for &byte in text {
                match byte {
                    b'"' | b'\\' => written.extend([b'\\', byte]),
                    b'\n' => written.extend(b"\\n"),
                    b'\t' => written.extend(b"\\t"),
                    ..0x20 => written.extend(format!("\\u{byte:04X}").bytes()),
                    byte => written.push(byte),
                }
            }
            written
        };
        let parts: [&[u8]; 5] = [
            b"{\"agent\":\"", &written(&agent), b"\",\"time\":\"2024-03-12T09:00:01+00:00\",\"ip\":\"198.51.100.7\",\"status\":404,\"bytes\":\"153\",\"user\":\"", &written(&user), b"\"}",
        ];
        let line = parts.concat();
        prop_assert_eq!(fields_of(&line, "json"), expected(&user));
        let mut agents = Vec::new();
        let options = Options { key: "{agent}|{user}".parse().expect("a key"), ..Options::default() };
        let scanned = scan(&line[..], &options, |record| agents.push(record.key.to_vec())).expect("a log");
        prop_assert_eq!((scanned.format, agents), (Some("json"), vec![[&agent[..], b"|", &user].concat()]));
    }

    /// Envoy writes what clients send as it came. Where its text could be that of two fields, the line is refused.
    #[test]
    fn no_text_of_a_client_changes_another_field_of_envoy(
        path in text(), forwarded in text(), agent in text(), vhost in text(), is_istio in any::<bool>(),
    ) {
        let path: Vec<u8> = path.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let (details, more) = if is_istio { ("via_upstream - \"-\" ", " inbound|80|| 127.0.0.1:1 - default") } else { ("", "") };
        let parts: [&[u8]; 13] = [
            b"[2024-03-12T09:00:01.000Z] \"GET /", &path, b" HTTP/2\" 404 NR ", details.as_bytes(), b"0 153 0 - \"198.51.100.7",
            &forwarded, b"\" \"", &agent, b"\" \"id\" \"web", &vhost, b"\" \"10.0.0.1:80\"", more.as_bytes(), b"",
        ];
        let line = parts.concat();
        let has_quote = |text: &[u8]| text.contains(&b'"');
        // A blank alone is not: nothing can be between the quotes around it.
        let is_ambiguous =
            agent.starts_with(b" \"") || [&agent[..], b"\""].concat().windows(3).any(|part| part == b"\" \"");
        let options = Options {
            format: Some("envoy".parse().expect("a format")),
            key: "{ip}|{status}|{bytes}|{path}|{agent}|{request_id}|{vhost}|{upstream}".parse().expect("a key"),
            ..Options::default()
        };
        let mut parser = LineParser::new(options.format.as_ref().expect("it is there"), &options).expect("a parser");
        let parsed = parser.parse(&line).map(|parsed| match parsed {
            Parsed::Hit(record) => record.key.to_vec(),
            _ => Vec::new(),
        });
        let path = path.split(|&byte| byte == b'?').next().expect("a part");
        let key: [&[u8]; 8] = [
            b"198.51.100.7", &forwarded, b"|404|153|/", path, b"|", &agent, b"|id|web", &vhost,
        ];
        let expected = if has_quote(&forwarded) || has_quote(&vhost) || is_ambiguous {
            Err(Malformed::Shape)
        } else {
            Ok([&key.concat()[..], b"|10.0.0.1:80"].concat())
        };
        prop_assert_eq!(parsed, expected, "{}", line.escape_ascii());
    }

    #[test]
    fn no_text_of_a_client_changes_another_field_of_json_and_logfmt(user in text(), agent in text()) {
        let [user, agent] = [user, agent].map(|text| String::from_utf8_lossy(&text).into_owned());
        let json = serde_json::json!({
            "user": user, "agent": agent, "time": "2024-03-12T09:00:01Z", "ip": "198.51.100.7", "status": 404, "bytes": 153,
        });
        let logfmt = format!(
            "user={} time=2024-03-12T09:00:01Z ip=198.51.100.7 status=404 bytes=153 agent={}",
            serde_json::Value::from(user.as_str()), serde_json::Value::from(agent),
        );
        prop_assert_eq!(fields_of(json.to_string().as_bytes(), "json"), expected(user.as_bytes()));
        prop_assert_eq!(fields_of(logfmt.as_bytes(), "logfmt"), expected(user.as_bytes()));
    }
}

/// A text of a client that is cut at any place of its own choice: what it sends stands behind a filler.
fn long_text() -> impl Strategy<Value = Vec<u8>> {
    let row: &[u8] = b"203.0.113.9 - - [12/Mar/2024:08:00:01 +0000] \"GET /evil HTTP/1.1\" 200 5 \"-\" \"-\"";
    let syslog: &[u8] = b"Mar 12 08:00:01 evil evil: 203.0.113.9";
    let json: &[u8] = b"{\"time\":\"2024-03-12T08:00:01Z\",\"ip\":\"203.0.113.9\"}";
    let logfmt: &[u8] = b"x time=2024-03-12T08:00:01Z ip=203.0.113.9 status=200 bytes=5 user=evil ";
    let evil = proptest::sample::select(vec![row, syslog, json, logfmt]);
    let filler = prop_oneof![Just(0), Just(PART_BYTES - 200), 0..3 * PART_BYTES];
    (filler, 0..200_usize, evil, text(), 0..4_usize).prop_map(|(filler, more, evil, text, times)| {
        [b"x".repeat(filler + more), [evil, &text].concat().repeat(times)].concat()
    })
}

/// Where docker and containerd cut.
const PART_BYTES: usize = 16 * 1024;

/// A line as docker's json-file driver has it, in one record or several: each part is made text for itself.
fn in_docker(line: &[u8], stream: &str) -> Vec<String> {
    let whole = [line, b"\n"].concat();
    let parts = whole.chunks(PART_BYTES).map(|part| {
        let log = serde_json::Value::from(String::from_utf8_lossy(part));
        format!("{{\"log\":{log},\"stream\":\"{stream}\",\"time\":\"2024-03-12T09:00:01.5Z\"}}\n")
    });
    parts.collect()
}

/// A line as containerd has it.
fn in_cri(line: &[u8], stream: &str) -> Vec<Vec<u8>> {
    let last = line.len().saturating_sub(1) / PART_BYTES;
    let parts = line.chunks(PART_BYTES).enumerate().map(|(part, text)| {
        let tag = if part == last { "F" } else { "P" };
        [format!("2024-03-12T09:00:01.5Z {stream} {tag} ").as_bytes(), text, b"\n"].concat()
    });
    parts.collect()
}

/// The parts of two lines, one from each in turn, with a short line before them and behind them.
fn woven(short: Vec<u8>, one: Vec<Vec<u8>>, other: Vec<Vec<u8>>) -> Vec<u8> {
    let (mut one, mut other, mut log) = (one.into_iter(), other.into_iter(), short.clone());
    loop {
        let (first, second) = (one.next(), other.next());
        if first.is_none() && second.is_none() {
            return [log, short].concat();
        }
        log.extend(first.into_iter().chain(second).flatten());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Symptom: a client that sent a long text made rows of its own. Cause: each part of a line that docker or containerd had cut was
    /// read as a line. Fix: the parts of a stream are joined before they are read.
    #[test]
    fn no_text_of_a_client_is_a_line_where_containers_cut_it(sent in long_text(), other in long_text()) {
        let nginx = "nginx:$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_user_agent\"";
        let access = |text: &[u8]| {
            let start = b"198.51.100.7 - jo [12/Mar/2024:09:00:01 +0000] \"GET / HTTP/1.1\" 404 153 \"-\" \"";
            [start, &escaped(text, true)[..], b"\""].concat()
        };
        let in_nginx = |text: &[u8]| String::from_utf8_lossy(&access(text)).replace("\"-\" ", "").into_bytes();
        let json = |text: &[u8]| {
            let agent = serde_json::Value::from(String::from_utf8_lossy(text));
            format!("{{\"agent\":{agent},\"time\":\"2024-03-12T09:00:01Z\",\"ip\":\"198.51.100.7\",\"status\":404,\"bytes\":153,\"user\":\"jo\"}}").into_bytes()
        };
        let logfmt = |text: &[u8]| {
            let agent = serde_json::Value::from(String::from_utf8_lossy(text));
            format!("time=2024-03-12T09:00:01Z ip=198.51.100.7 status=404 bytes=153 user=jo agent={agent}").into_bytes()
        };
        let syslog = |text: &[u8]| {
            [b"<34>1 2024-03-12T09:00:01Z web1 app 7 - - 198.51.100.7|404|153|jo ", &escaped(text, true)[..]].concat()
        };
        let row = expected(b"jo").remove(0);
        // JSON and logfmt have the time of the container runtime.
        let carried = (row.0 + 500, row.1.clone());
        let of_syslog = (row.0, "web1 app".to_owned());
        type Write<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
        let formats: [(&str, &str, Write<'_>, &(i64, String)); 5] = [
            ("combined", "{ip}|{status}|{bytes}|{user}", &access, &row),
            (nginx, "{ip}|{status}|{bytes}|{user}", &in_nginx, &row),
            ("json", "{ip}|{status}|{bytes}|{user}", &json, &carried),
            ("logfmt", "{ip}|{status}|{bytes}|{user}", &logfmt, &carried),
            ("syslog", "{host} {app}", &syslog, &of_syslog),
        ];
        for (format, key, line, row) in formats {
            let (short, one, other) = (line(b"curl"), line(&sent), line(&other));
            let docker = |line: &[u8], stream| in_docker(line, stream).into_iter().map(String::into_bytes).collect::<Vec<_>>();
            let logs = [
                woven(docker(&short, "stdout").concat(), docker(&one, "stdout"), docker(&other, "stderr")),
                woven(in_cri(&short, "stdout").concat(), in_cri(&one, "stdout"), in_cri(&other, "stderr")),
            ];
            for log in logs {
                let (_, records) = read(&log, Some(format), key, |_| {});
                prop_assert_eq!(&records, &vec![row.clone(); 4], "{}", format);
            }
        }
    }
}

/// Each takes engines that backtrack a time that doubles with every byte, or grows with a high power of them. The test
/// ends only when that is not so.
#[test]
fn expressions_take_linear_time() {
    let long = "a".repeat(1 << 18);
    let every: lately_logs::Template = "*".parse().expect("a key");
    for expression in ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*a){9}$", "(a*)*(a*)*$", "(a+){2,}x?$"] {
        let check = |format: &str, filter: Option<&str>, line: String, expected: Result<bool, Malformed>| {
            let options = Options {
                key: every.clone(),
                filters: filter.into_iter().map(|filter| filter.parse().expect(filter)).collect(),
                ..Options::default()
            };
            let mut parser = LineParser::new(&format.parse().expect(format), &options).expect(format);
            let parsed = parser.parse(line.as_bytes()).map(|parsed| matches!(parsed, Parsed::Hit(_)));
            assert_eq!(parsed, expected, "{format} {filter:?}");
        };
        let format = format!("regex:^(?<time>[0-9]+) {expression}");
        check(&format, None, format!("1710234000 {long}"), Ok(true));
        check(&format, None, format!("1710234000 {long}!"), Err(Malformed::Shape));
        let filter = format!("who~^{expression}");
        let json = |end: &str| format!("{{\"time\":1710234000,\"who\":\"{long}{end}\"}}");
        check("json", Some(&filter), json(""), Ok(true));
        check("json", Some(&filter), json("!"), Ok(false));
    }
}

/// Symptom: `" """ "id"` after the address was read as an agent of a blank and a quote, though it may also be an address that
/// ends with a quote and a blank, and no agent. Cause: the quote before the agent was not looked at. Fix: both are refused.
#[test]
fn an_agent_that_shares_a_quote_with_its_neighbours_is_refused() {
    let status = |agent: &str| {
        let line = format!(
            "[2024-03-12T09:00:01.000Z] \"GET / HTTP/2\" 404 NR 0 153 0 - \"198.51.100.7\" \"{agent}\" \"id\" \"web\" \"10.0.0.1:80\""
        );
        let options = Options { format: Some("envoy".parse().expect("a format")), ..Options::default() };
        let mut parser =
            LineParser::new(options.format.as_ref().expect("it is there"), &options).expect("a parser");
        parser.parse(line.as_bytes()).is_ok()
    };
    for agent in ["", " ", "\"", "curl \"8\"", "a\" b", "\" b", " b"] {
        assert!(status(agent), "{agent:?}");
    }
    for agent in [" \"", " \"b", "a\" \"b", "a\" "] {
        assert!(!status(agent), "{agent:?}");
    }
}
