//! The document of a full run: the rows to begin with, the machine, the versions, the command, and all tables.

use std::fs;
use std::process::Command;

use lately::{Clock, SystemClock};

use crate::row::Row;
use crate::short;
use crate::table::{Form, render, summary};

/// What this program was built from.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const RIVALS: [&str; 4] = ["governor", "throttlecrab", "trypema", "dashmap"];

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
        "# Benchmarks\n\n## Short\n\nWritten by `cargo xtask bench` on {}, {}. `≥` and `≤` say what a figure must be. The same as in the\n\
         tables below, where there are more.\n\n{}\n## The run\n\n",
        processor(),
        setting.date,
        short::table(rows)
    );
    text.push_str(
        "Written by `cargo xtask bench`, which starts everything itself: do not edit. What the figures mean and where the\n\
         musts come from is in the design. Contenders take turns; each figure is the median over the rounds, each ratio the\n\
         median of the rounds' ratios. Server and load share the machine. `lately bench` names the load generator of this\n\
         repository, which costs little; beside it stands redis-benchmark, which costs more than most servers here. Latency\n\
         is that of a batch of requests, up to its last reply. Server CPU is the processor time of all threads of the\n\
         server over the operations.\n\n",
    );
    let facts = [
        ("date", setting.date.clone()),
        ("command", format!("`{command}`")),
        ("processor", processor()),
        ("memory", memory()),
        ("system", format!("Linux {}", file("/proc/sys/kernel/osrelease").trim())),
        ("load average before the run", setting.load.clone()),
        ("lately", version_of("git", &["rev-parse", "--short", "HEAD"], env!("CARGO_PKG_VERSION"))),
        ("compiler", version_of("rustc", &["--version"], "")),
        ("rivals in the process", rivals(LOCK_FILE)),
        ("redis", version_of("redis-server", &["--version"], "")),
        ("redis-benchmark", version_of("redis-benchmark", &["--version"], "")),
    ];
    text.push_str("| | |\n|---|---|\n");
    for (name, fact) in facts {
        text.push_str(&format!("| {name} | {} |\n", fact.replace('|', "\\|")));
    }
    text.push_str(&format!("\n**{}.**\n", summary(rows)));
    for row in rows.iter().filter(|row| !row.holds()) {
        text.push_str(&format!("- missed: {}\n", row.name));
    }
    text.push_str(&render(rows, Form::Markdown));
    text
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
            "**2 of 3 musts hold, 1 missed; 0 rows for comparison.**\n- missed: HIT ÷ INCR\n",
            "# Benchmarks\n\n## Short\n\n",
            "| HIT ÷ INCR, lately bench, pipeline 64 | 4 × | ≥ 3.2 | holds |  |\n\n## The run\n",
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
