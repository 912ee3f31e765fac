//! The document of a full run: the rows to begin with, the machine, the versions, the command, and all tables.

use std::fs;
use std::process::Command;

use lately::{Clock, SystemClock};

use crate::row::Row;
use crate::server::process::throttlecrab_program;
use crate::short;
use crate::table::{Form, missed, render, summary};

/// What this program was built from.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const RIVALS: [&str; 6] = ["governor", "throttlecrab", "trypema", "dashmap", "fjall", "redb"];

/// What a reader has to know.
const EXPLAINED: &str = "\
## What the figures mean

`cargo xtask bench` starts everything itself and writes this file: do not edit. Contenders take turns. A figure is the
median over the rounds and a ratio the median of the rounds' ratios, unless the row says otherwise; so a ratio may be
a little off the quotient of the two figures beside it. Server and load share the machine's cores. Single figures move by
a tenth from run to run, those of threads that write one cache line by much more.

- **Must**, **aim**: what a figure has to be, and what it should be. They were set before the first line was written, on
  another machine of two cores: `INCR` at pipeline 64 did 1.15 M/s there for 0.87 µs each, governor 11.3 ns un-keyed and 175 ns on 1 M
  u64 keys, throttlecrab 481 ns, dashmap 36 ns, adding to a bare array 5 ns on 1 M and 17 ns on 10 M, one of 64 places of
  memory asked for together 11 ns, and a thread of two that share a counter 29 ns with `fetch_add`.
- **Must by ratio**: the must over what a rival or the bare machine did there. Where that is slower here than there, a figure that
  is a time is judged by it, and the verdict says so: *holds by ratio*. Where it is quicker, the must stays as it is. Hits by
  key are judged by the bare machine: what governor took there was with a clock of its own, which is left out here, and twice
  as long where the compiler chose so. Here hits of 1 M keys, one after the other, took from half of its time to all of it, in
  runs of one program; 0.63 of it they took there. A pause of the server may take what it must and what a server that does nothing took. Two threads on one store are judged by two that
  share nothing, a store with half of the keys each, where those are not twice as quick as one: what a virtual machine calls two
  cores may be one that takes turns.
- **lately bench**: the load generator of this repository, which takes little of the processor; redis-benchmark takes more
  than most servers here. Latency is that of a batch of requests, up to its last reply.
- **Server CPU**: processor time of all threads of the server over its operations.
- **Doing nothing**: a server that parses and answers a constant, on tokio as throttlecrab and others are built, or on a bare
  event queue. What it shows of pauses is the machine's.
- **Bare miss**: reading a word at a place that nobody has looked at, each place known by the one before; or 64 places known
  at once.
- **By the time on a core**: as if no other process had taken the core meanwhile.
- **Accounted for**: what the store counts towards its ceiling; the figure itself is of resident memory.
- **Full keys**: a hit a minute for a week and one a second for the last five minutes.
- **Durability**: *off* is `--in-memory`. The folders lie on the disk where the build is, that of the append-only file of Redis,
  which is never rewritten, too. While checkpoints are made, another connection asks for the next all the time; a round in which
  none came to its end does not count. *Half the load* is half of what *off* did under full load in the same run, with latency
  from when a request was due. Recovery is from the start of the process until `/readyz` says so, of 16-byte keys with a hit
  each, while the page cache has the checkpoint.
- **Decisions**: a server of ours each, on the same million keys, and limits that none of them reaches; the scripts of Redis
  decide too, and count nothing that they deny. *All denied* is on keys that are at their limit of ten, *all allowed* on keys
  that have eight when a round begins, and twelve when the third behind it ends. Each reply of a round is looked at: one that decides otherwise
  than it should makes the round void. throttlecrab-server gets one request at a time, as pipelines stall it.
- **Journal**: carriers that a journal could stand on. A batch is 64 hits in 1.5 KiB, one record of the file and one value of
  the others. It is with the operating system when the next one begins, but with redb, whose commits without a sync stay in
  its own memory; *syncs held back* is redb over a file that passes syncs on when it is told to. The writer is killed and
  its files are opened again, while the page cache has them.
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
    let mut text = format!(
        "# Benchmarks\n\n## Short\n\nWritten by `cargo xtask bench` on {}, {}: {}. The rows to look at first, and all that\n\
         were missed; they stand in the tables below, too.\n\n{}\n{EXPLAINED}\n## The run\n\n",
        processor(),
        setting.date,
        summary(rows),
        short::table(rows)
    );
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
            "# Benchmarks\n\n## Short\n\n",
            "| HIT ÷ INCR, lately bench, pipeline 64 | 4 × | ≥ 3.2 | holds |  |\n| HIT ÷ INCR | 2 × |",
            "\n## What the figures mean\n",
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
