//! `lately count` on a log, compared with awk's count of the first field, and with goaccess.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::clock;
use crate::folder;
use crate::options::Options;
use crate::output;
use crate::rounds::{Contender, interleave, median, median_ratio};
use crate::row::{Must, Row};
use crate::server::process::{find, lately_binary};
use crate::table::number;

const TABLE: &str = "logs";

/// The size of the log, and of that of a quick run.
const LOG_BYTES: u64 = 300_000_000;
const QUICK_LOG_BYTES: u64 = 60_000_000;

const AGENT: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36";

/// The clients in it. A tenth of them have half of the lines.
const CLIENTS: u64 = 2_000;

const MEGABYTE: f64 = 1e6;

/// The rows of this section, if they are wanted.
pub(crate) fn rows(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    let sections =
        [("logs/combined", combined as fn(&Options) -> _), ("logs/json", json), ("logs/layout", layout)];
    for (section, of) in sections {
        if options.wants(section) {
            rows.extend(output::section(section, || of(options)).unwrap_or_else(|error| {
                output::message(format_args!("lately-bench: {section}: {error}"));
                vec![Row::new(
                    TABLE,
                    format!("{section}: {error}"),
                    f64::NAN,
                    "MB/s",
                    Must::AtLeast(0.0, 0.0),
                )]
            }));
        }
    }
    rows
}

fn combined(options: &Options) -> io::Result<Vec<Row>> {
    let log = Log::write(options, combined_line)?;
    let lately = lately_binary(options).map_err(|failure| io::Error::other(failure.to_string()))?;
    let counted = || log.seconds(Command::new(&lately).arg("count").arg(&log.path));
    let mawk =
        || log.seconds(Command::new("mawk").arg("{c[$1]++} END{for (k in c) print c[k], k}").arg(&log.path));
    let mut contenders = vec![Contender::new("lately count", counted), Contender::new("mawk", mawk)];
    let figures: Vec<Vec<f64>> = interleave(&mut contenders, options.rounds());
    let [ours, awk] = [&figures[0], &figures[1]].map(|seconds| log.rate(median(seconds)));
    let ratio = median_ratio(&figures[1], &figures[0]);
    let note = format!("mawk {} MB/s", number(awk));
    let mut rows = vec![
        Row::new(TABLE, "lately count, combined log", ours, "MB/s", Must::Nothing).note(note),
        Row::new(TABLE, "lately count ÷ mawk, combined log", ratio, "×", Must::AtLeast(2.4, 3.0)),
        memory_row(&lately, &log)?,
    ];
    if !options.quick {
        rows.push(goaccess_row(&log, ours)?);
    }
    Ok(rows)
}

fn json(options: &Options) -> io::Result<Vec<Row>> {
    let log = Log::write(options, json_line)?;
    let lately = lately_binary(options).map_err(|failure| io::Error::other(failure.to_string()))?;
    let counted = || log.seconds(Command::new(&lately).arg("count").arg(&log.path));
    let figures = interleave(&mut [Contender::new("lately count", counted)], options.rounds());
    let rate = log.rate(median(&figures[0]));
    Ok(vec![Row::new(TABLE, "lately count, JSON lines", rate, "MB/s", Must::AtLeast(500.0, 600.0))])
}

/// The same lines, read by the format string of nginx's configuration.
fn layout(options: &Options) -> io::Result<Vec<Row>> {
    const MAIN: &str = r#"nginx:$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
    let log = Log::write(options, combined_line)?;
    let lately = lately_binary(options).map_err(|failure| io::Error::other(failure.to_string()))?;
    let counted = || log.seconds(Command::new(&lately).args(["count", "--format", MAIN]).arg(&log.path));
    let figures = interleave(&mut [Contender::new("lately count", counted)], options.rounds());
    let rate = log.rate(median(&figures[0]));
    Ok(vec![Row::new(
        TABLE,
        "lately count, a log_format of nginx",
        rate,
        "MB/s",
        Must::AtLeast(100.0, 200.0),
    )])
}

/// One round, because it takes a minute.
fn goaccess_row(log: &Log, ours: f64) -> io::Result<Row> {
    let name = "goaccess, combined log";
    if find("goaccess").is_none() {
        let row = Row::new(TABLE, name, f64::NAN, "MB/s", Must::Nothing);
        return Ok(row.note("not measured: not installed: apt-get install goaccess"));
    }
    let report = log.folder.path().join("report.json");
    let mut command = Command::new("goaccess");
    command
        .arg(&log.path)
        .args(["--no-global-config", "--log-format=COMBINED", "--no-progress", "-o"])
        .arg(report);
    let rate = log.rate(log.seconds(&mut command));
    let row = Row::new(TABLE, name, rate, "MB/s", Must::Nothing);
    Ok(row.note(format!("lately count is {} times as fast", number(ours / rate))))
}

/// The highest memory at any time, up to the end of its input.
fn memory_row(lately: &Path, log: &Log) -> io::Result<Row> {
    let mut child = Command::new(lately)
        .args(["count", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        io::copy(&mut File::open(&log.path)?, &mut input)?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        drop(input);
        child.wait()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
        let megabytes = kib.map_or(f64::NAN, |kib| kib * 1_024.0 / MEGABYTE);
        return Ok(Row::new(
            TABLE,
            "peak memory of lately count",
            megabytes,
            "MB",
            Must::AtMost(200.0, 50.0),
        ));
    }
    Err(io::Error::other("no pipe"))
}

/// A log in a folder of its own.
struct Log {
    folder: TempDir,
    path: PathBuf,
    bytes: f64,
}

impl Log {
    fn write(
        options: &Options,
        line: fn(&mut BufWriter<File>, Request) -> io::Result<()>,
    ) -> io::Result<Log> {
        let folder = folder::on_disk()?;
        let path = folder.path().join("access.log");
        let most = options.pick(LOG_BYTES, QUICK_LOG_BYTES);
        let mut out = BufWriter::new(File::create(&path)?);
        // Lines have 230 to 340 bytes.
        for number in 0..most / 250 {
            line(&mut out, Request::of(number))?;
        }
        out.flush()?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let bytes = path.metadata()?.len() as f64;
        Ok(Log { folder, path, bytes })
    }

    /// The time that a command takes. NaN if it fails.
    fn seconds(&self, command: &mut Command) -> f64 {
        let start = clock::now();
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if status.is_ok_and(|status| status.success()) { start.elapsed().as_secs_f64() } else { f64::NAN }
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.bytes / MEGABYTE / seconds
    }
}

/// The content of a line. It depends only on its number, so each run has the same log.
#[derive(Clone, Copy)]
struct Request {
    client: u64,
    second: u64,
    page: u64,
    bytes: u64,
}

impl Request {
    fn of(number: u64) -> Request {
        let random = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = (random ^ (random >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let clients = if random.is_multiple_of(2) { CLIENTS / 10 } else { CLIENTS };
        Request {
            client: (random >> 8) % clients,
            // 500 a second.
            second: number / 500,
            page: (random >> 24) % 3_000,
            bytes: (random >> 40) % 50_000,
        }
    }

    fn address(self) -> String {
        format!("10.{}.{}.{}", self.client / 65_536, self.client / 256 % 256, self.client % 256)
    }
}

fn combined_line(out: &mut BufWriter<File>, request: Request) -> io::Result<()> {
    let Request { second, page, bytes, .. } = request;
    let (hour, minute, rest) = (second / 3_600 % 24, second / 60 % 60, second % 60);
    writeln!(
        out,
        "{} - - [12/Mar/2024:{hour:02}:{minute:02}:{rest:02} +0000] \"GET /articles/{page}?page=2 HTTP/1.1\" 200 {bytes} \"https://www.example.com/articles/\" \"{AGENT}\"",
        request.address()
    )
}

fn json_line(out: &mut BufWriter<File>, request: Request) -> io::Result<()> {
    let Request { second, page, bytes, .. } = request;
    let (hour, minute, rest) = (second / 3_600 % 24, second / 60 % 60, second % 60);
    let ip = request.address();
    writeln!(
        out,
        "{{\"time\":\"2024-03-12T{hour:02}:{minute:02}:{rest:02}+00:00\",\"remote_addr\":\"{ip}\",\"ip\":\"{ip}\",\"request\":\"GET /articles/{page}?page=2 HTTP/1.1\",\"status\":200,\"bytes\":{bytes},\"referer\":\"https://www.example.com/articles/\",\"agent\":\"{AGENT}\"}}"
    )
}
