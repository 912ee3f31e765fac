//! The JSON of a full run: the machine, the versions, the command, and all rows. `docs/internals/measurements.md` explains it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use lately::{Clock, SystemClock};
use serde::Serialize;

use crate::row::{Must, Row};
use crate::server::process::throttlecrab_program;
use crate::table::{rounded, verdict};

/// What this program was built from.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const RIVALS: [&str; 4] = ["governor", "throttlecrab", "trypema", "dashmap"];

/// Facts that are collected before the run, because the machine is busier after it.
pub(crate) struct Setting {
    date: String,
    load: String,
}

impl Setting {
    pub(crate) fn now() -> Setting {
        let seconds = SystemClock::new().now().as_millis() / 1_000;
        let date = jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| seconds.to_string(), |date| date.to_string());
        let load = file("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
        Setting { date, load }
    }
}

/// A row of the file. A figure that could not be measured is null.
#[derive(Serialize)]
struct Entry<'r> {
    table: &'static str,
    name: &'r str,
    value: Option<f64>,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<f64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    verdict: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    #[serde(rename = "beside")]
    note: &'r str,
}

impl<'r> Entry<'r> {
    fn of(row: &'r Row) -> Entry<'r> {
        let (at_least, at_most, aim) = match row.must {
            Must::AtLeast(must, aim) => (Some(must), None, Some(aim).filter(|&aim| aim > must)),
            Must::AtMost(must, aim) => (None, Some(must), Some(aim).filter(|&aim| aim < must)),
            Must::Nothing => (None, None, None),
        };
        let Row { table, name, value, unit, note, .. } = row;
        let value = rounded(*value);
        Entry { table, name, value, unit, at_least, at_most, aim, verdict: verdict(row), note }
    }
}

/// The whole file: the facts of the run, and one line for each row.
pub(crate) fn document(rows: &[Row], setting: &Setting, command: &str) -> serde_json::Result<String> {
    let throttlecrab =
        throttlecrab_program().map(|path| version_of(&path.to_string_lossy(), &["--version"], ""));
    let facts = BTreeMap::from([
        ("date", setting.date.clone()),
        ("command", command.to_owned()),
        ("processor", processor()),
        ("memory", memory()),
        ("system", format!("Linux {}", file("/proc/sys/kernel/osrelease").trim())),
        ("load average before the run", setting.load.clone()),
        ("lately", lately()),
        ("compiler", version_of("rustc", &["--version"], "")),
        ("rivals in the process", rivals(LOCK_FILE)),
        ("redis", version_of("redis-server", &["--version"], "")),
        ("redis-benchmark", version_of("redis-benchmark", &["--version"], "")),
        ("throttlecrab-server", throttlecrab.unwrap_or_else(|| "not installed".to_owned())),
    ]);
    let run = serde_json::to_string(&facts)?;
    let rows: Vec<String> =
        rows.iter().map(|row| serde_json::to_string(&Entry::of(row))).collect::<Result<_, _>>()?;
    Ok(format!("{{\n\"run\":{run},\n\"rows\":[\n{}\n]\n}}\n", rows.join(",\n")))
}

/// Our version and commit, and whether the measured program is the committed one.
fn lately() -> String {
    let commit = version_of("git", &["rev-parse", "--short", "HEAD"], env!("CARGO_PKG_VERSION"));
    let changes = Command::new("git").args(["status", "--porcelain", "--", ".", ":!docs"]).output();
    let is_clean = changes.is_ok_and(|changes| changes.status.success() && changes.stdout.is_empty());
    if is_clean { commit } else { format!("{commit}, with changes that are not committed") }
}

/// The rivals that are built in, and their versions.
fn rivals(lock_file: &str) -> String {
    let version = |name: &str| {
        let after = lock_file.split_once(&format!("\nname = \"{name}\"\nversion = \""))?.1;
        Some(after.split_once('"')?.0.to_owned())
    };
    let versions = RIVALS.map(|name| format!("{name} {}", version(name).as_deref().unwrap_or("unknown")));
    versions.join(", ")
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn processor() -> String {
    let text = file("/proc/cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores", model.map_or("unknown", |(_, model)| model))
}

fn memory() -> String {
    let text = file("/proc/meminfo");
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let gigabytes = kilobytes.and_then(|text| text.parse::<u64>().ok()).map(|kilobytes| kilobytes >> 20);
    gigabytes.map_or_else(|| "unknown".to_owned(), |gigabytes| format!("{gigabytes} GiB"))
}

/// The version of a program, after `known`.
fn version_of(program: &str, words: &[&str], known: &str) -> String {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success());
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    [known, version.as_deref().unwrap_or("not installed")].join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_machine_and_every_row() {
        let rows = [
            Row::new("server", "HIT ÷ INCR", 2.004, "×", Must::AtLeast(2.4, 3.0)).note("Redis \"7\""),
            Row::new("server", "CPU", 1_234.56, "µs", Must::AtMost(1_300.0, 1_300.0)),
            Row::new("memory", "ZSET", f64::NAN, "bytes", Must::Nothing),
        ];
        let setting = Setting { date: "2026-11-21T08:00:00Z".to_owned(), load: "0.10".to_owned() };
        let text = document(&rows, &setting, "cargo xtask bench").expect("it is JSON");
        let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(json["run"]["date"], "2026-11-21T08:00:00Z");
        assert_eq!(json["run"]["load average before the run"], "0.10");
        let expected = [
            r#"{"table":"server","name":"HIT ÷ INCR","value":2.0,"unit":"×","at_least":2.4,"aim":3.0,"verdict":"MISSED","beside":"Redis \"7\""},"#,
            r#"{"table":"server","name":"CPU","value":1235.0,"unit":"µs","at_most":1300.0,"verdict":"holds"},"#,
            r#"{"table":"memory","name":"ZSET","value":null,"unit":"bytes"}"#,
        ];
        assert!(text.ends_with(&format!("\"rows\":[\n{}\n]\n}}\n", expected.join("\n"))), "{text}");
    }

    #[test]
    fn the_rivals_have_versions() {
        let lock_file = "[[package]]\nname = \"governor\"\nversion = \"1.2.3\"\nsource = \"x\"\n";
        assert!(rivals(lock_file).starts_with("governor 1.2.3, throttlecrab unknown, "));
        assert!(!rivals(LOCK_FILE).contains("unknown"), "{}", rivals(LOCK_FILE));
    }

    #[test]
    fn a_missing_program_has_no_version() {
        assert_eq!(version_of("no-such-program-at-all", &[], ""), "not installed");
        assert_eq!(version_of("no-such-program-at-all", &[], "0.1.0"), "0.1.0 not installed");
    }
}
