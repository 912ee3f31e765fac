//! The document of a full run: what the figures mean, the machine, the versions, the command, and all tables.

use std::fs;
use std::process::Command;

use lately::{Clock, SystemClock};

use crate::row::Row;
use crate::server::process::throttlecrab_program;
use crate::table::{Form, missed, render, summary};

/// What this program was built from.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const RIVALS: [&str; 4] = ["governor", "throttlecrab", "trypema", "dashmap"];

/// What a reader has to know.
const EXPLAINED: &str = "\
`cargo xtask bench` writes this file: do not edit it. It has every row of one full run. Readers find a selection in
[benchmarks](../benchmarks.md), whose tables `cargo xtask figures` fills from here.

## How to read a row

The benchmark starts every server itself, and the contenders take turns. A figure is the median over the rounds, and a ratio
is the median of the rounds' ratios, unless the row names another statistic. Server and load share the cores of the machine.
Figures move by a tenth from run to run; those of threads that write one cache line move by much more.

- **must**: a run fails when a figure misses it. **aim**: the figure we would like. Both were set before the code was
  written, on another machine with two cores. There `INCR` at pipeline 64 served 1.15 M/s at 0.87 µs of CPU each; governor
  took 11.3 ns un-keyed and 175 ns on 1 M u64 keys, throttlecrab 481 ns, dashmap 36 ns, an addition to a bare array 5 ns on
  1 M and 17 ns on 10 M keys, one of 64 places of memory fetched together 11 ns, and one of two threads that share a counter
  29 ns with `fetch_add`.
- **holds by ratio**: the figure misses the must, but the rival or the bare machine named beside it is slower here than it was
  there, by as much or more. Hits by key are compared with the bare machine. Two threads on one store are compared with two
  threads on a store each. The worst pause is compared with that of a server that does nothing.
- **lately bench**: the load generator of this repository. It takes less of the processor than redis-benchmark does.
  Latency is that of a batch of requests, up to its last reply.
- **server CPU**: processor time of all threads of the server, divided by its operations.
- **doing nothing**: a server that parses requests and answers a constant, on tokio or on a bare event queue.
- **bare miss**: the time to read a word that is in no cache. Each address depends on the read before, or 64 addresses are
  known at once.
- **by the time on a core**: the time during which other processes had the core is left out.
- **accounted for**: what the store counts towards its ceiling. The figure itself is resident memory.
- **full keys**: a hit a minute for a week, and one a second for the last five minutes.
- **durability**: *off* is `--in-memory`. The folders are on the disk of the build. So is the append-only file of Redis, which is
  never rewritten. While checkpoints are made, another connection requests the next one all the time. *Half the load* is half
  of what *off* served under full load in the same run; its latency runs from when a request was due. Recovery runs from the
  start of the process until `/readyz` answers 200, for 16-byte keys with a hit each, with the checkpoint in the page cache.
- **decisions**: each command has a server of its own, the same million keys, and limits that none of them reaches. The Redis
  scripts decide as well, and count nothing that they deny. *All denied* uses keys that are at their limit of ten. *All
  allowed* uses keys with eight hits at the start of a round. A wrong decision makes a round void. throttlecrab-server gets one
  request at a time, because pipelines stall it.
";

/// What is known of the run before it starts: afterwards the machine would seem busier than it was.
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

/// The whole document, as Markdown.
pub(crate) fn document(rows: &[Row], setting: &Setting, command: &str) -> String {
    let mut text = format!("# Measurements\n\n{EXPLAINED}\n## The run\n\n");
    let throttlecrab =
        throttlecrab_program().map(|path| version_of(&path.to_string_lossy(), &["--version"], ""));
    let facts = [
        ("date", setting.date.clone()),
        ("command", format!("`{command}`")),
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
    ];
    text.push_str("| | |\n|---|---|\n");
    for (name, fact) in facts {
        text.push_str(&format!("| {name} | {} |\n", fact.replace('|', "\\|")));
    }
    text.push_str(&format!("\n**{}.**\n{}", summary(rows), missed(rows)));
    text.push_str(&render(rows, Form::Markdown));
    text
}

/// Our version and commit, and whether what was measured is what was committed.
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
    let told = RIVALS.map(|name| format!("{name} {}", version(name).as_deref().unwrap_or("unknown")));
    told.join(", ")
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

/// What a program says of itself, after what is known already.
fn version_of(program: &str, words: &[&str], known: &str) -> String {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success());
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    [known, said.as_deref().unwrap_or("not installed")].join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Must;

    #[test]
    fn the_document_names_the_machine_and_what_was_missed() {
        let rows = [
            Row::new("server", "HIT ÷ INCR", 2.0, "×", Must::AtLeast(2.4, 3.0)),
            Row::new("server", "CPU", 0.3, "µs", Must::AtMost(0.36, 0.26)),
            Row::new("server", "HIT ÷ INCR, lately bench, pipeline 64", 4.0, "×", Must::AtLeast(3.2, 4.2)),
        ];
        let setting = Setting { date: "2026-11-21T08:00:00Z".to_owned(), load: "0.10".to_owned() };
        let text = document(&rows, &setting, "cargo xtask bench");
        for part in [
            "| date | 2026-11-21T08:00:00Z |\n",
            "| command | `cargo xtask bench` |\n",
            "| load average before the run | 0.10 |\n",
            "**2 of 3 musts hold, 1 missed; 0 rows for comparison.**\n- missed: HIT ÷ INCR: 2 ×, must be ≥ 2.4\n",
            "# Measurements\n\n",
            "\n## How to read a row\n",
            "\n## The run\n",
            "\n## server\n",
            "| HIT ÷ INCR | 2 × | ≥ 2.4 | ≥ 3 | MISSED |  |\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_rivals_have_versions() {
        let lock_file = "[[package]]\nname = \"governor\"\nversion = \"1.2.3\"\nsource = \"x\"\n";
        assert!(rivals(lock_file).starts_with("governor 1.2.3, throttlecrab unknown, "));
        assert!(!rivals(LOCK_FILE).contains("unknown"), "{}", rivals(LOCK_FILE));
    }

    #[test]
    fn a_program_that_is_not_there() {
        assert_eq!(version_of("no-such-program-at-all", &[], ""), "not installed");
        assert_eq!(version_of("no-such-program-at-all", &[], "0.1.0"), "0.1.0 not installed");
    }
}
