//! `lately count --html`: the page has the numbers of `--json`, stays small and loads nothing.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{access_log, data, has, lately, lately_reading, python};

/// The documented bound: 200 kB for any log.
const MOST_BYTES: usize = 200_000;

/// Lines in the combined format.
const LINE: &str = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n";

/// The content of a page, as an HTML parser finds it.
struct Page(Value);

impl Page {
    fn read(path: &Path) -> Page {
        let text = fs::read_to_string(path).expect("a page");
        assert!(text.len() < MOST_BYTES, "{} bytes", text.len());
        assert!(!text.contains("://"), "it names an address");
        let run = python("report_reader.py", &[path.to_str().expect("text")]);
        assert_eq!(run.code, Some(0), "{}", run.err);
        Page(serde_json::from_str(&run.out).expect("JSON"))
    }

    /// The rows of a table without its head.
    fn rows(&self, table: &str) -> &[Value] {
        self.0["tables"][table].as_array().map_or(&[], |rows| &rows[1..])
    }

    fn text(&self, id: &str) -> &str {
        self.0["ids"][id].as_str().expect(id)
    }
}

fn cell<'v>(row: &'v Value, column: usize, what: &str) -> &'v str {
    row[column][what].as_str().unwrap_or_default()
}

/// Unix seconds of the time in a cell.
fn at(row: &Value, column: usize) -> f64 {
    let time: jiff::Timestamp = cell(row, column, "time").parse().expect("a time");
    time.as_millisecond() as f64 / 1_000.0
}

/// The number at the start of a text, which has commas in it.
fn number(text: &str) -> u64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    text[..end].replace(',', "").parse().expect(text)
}

fn json(args: &[&str]) -> Vec<Value> {
    let run = lately(&[&["count", "--json"], args].concat());
    assert_eq!(run.code, Some(0), "{}", run.err);
    run.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn a_page_has_the_numbers_of_json() {
    if !has("python3") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.html");
    let html = path.to_str().expect("text");
    let log = access_log();
    let log = log.path.as_str();
    for (key, window, filters) in [
        ("ip", &["--window", "5m"][..], &[][..]),
        ("path", &["--window", "1d", "--top", "100"], &[]),
        ("ip", &["--at", "1431900000", "--window", "1h", "--top", "3"], &["--where", "status=200"]),
        ("status", &["--window", "250ms", "--top", "0"], &["--since", "2015-05-18T00:00:00Z"]),
    ] {
        let case = format!("{key} {window:?} {filters:?}");
        let run = lately(&[&["count", log, "--html", html, "--key", key], window, filters].concat());
        assert_eq!((run.out.as_str(), run.code), ("", Some(0)), "{}", run.err);
        let page = Page::read(&path);
        let expected = json(&[&[log, "--key", key], window, filters].concat());
        let rows = page.rows("keys");
        assert_eq!(rows.len(), expected.len(), "{case}");
        for (row, expected) in rows.iter().zip(&expected) {
            let key = if row[0]["full"].is_string() { "full" } else { "text" };
            assert_eq!(cell(row, 0, key), expected["key"], "{case}");
            for (column, name) in [(1, "hits"), (2, "peak"), (4, "total")] {
                let number = number(cell(row, column, "text"));
                assert_eq!(Some(number), expected[name].as_u64(), "{case}: {row} {expected}");
            }
            assert_eq!(Some(at(row, 3)), expected["peak_at"].as_f64(), "{case}: {row} {expected}");
        }
        // Lines without the field are left out.
        let present = format!("{key}~.");
        let filters = &[filters, &["--where", &present]].concat()[..];
        let all = &json(&[&[log, "--key", "*"], window, filters].concat())[0];
        for name in ["hits", "peak", "total"] {
            assert_eq!(Some(number(page.text(name))), all[name].as_u64(), "{case}: {name}");
        }
        let charts = page.0["charts"].as_array().expect("charts").len();
        assert_eq!(
            charts,
            1 + expected.len().min(12),
            "{case}: one of all hits, and one of each of the first keys"
        );
        let steps = page.rows("steps");
        let width_ms = (at(&steps[1], 0) - at(&steps[0], 0)) * 1_000.0;
        let series = json(&[&[log, "--step", &format!("{width_ms}ms")], filters].concat());
        let series = series.iter().map(|step| (step["at"].as_f64(), step["hits"].as_u64()));
        let shown = steps.iter().map(|row| (Some(at(row, 0)), Some(number(cell(row, 1, "text")))));
        assert_eq!(shown.collect::<Vec<_>>(), series.collect::<Vec<_>>(), "{case}");
    }
}

/// The keys contain markup, quotes, direction marks and line ends.
#[test]
fn text_of_the_log_is_escaped() {
    if !has("python3") {
        return;
    }
    let keys = [
        "<script>alert(1)</script>",
        "\" onmouseover=\"alert(1)",
        "' style='background:url(//x)",
        "</title></style></svg></bdi>-->]]>",
        "{{ title }}&amp;&#60;",
        "\u{1b}[31m\u{7}\u{202e}\u{feff}\r\n\t\u{85}\u{2028}",
        "\\u{1b}",
    ];
    let line = |key: &str| format!("{}\n", serde_json::json!({"time": 1_431_857_103, "ip": key}));
    // The key is shortened, so the whole key is in an attribute.
    let log: String = keys.iter().flat_map(|key| [line(key), line(&key.repeat(30))]).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let hostile = folder.path().join("<b> \"'&\u{202e}.log");
    let log_path = hostile.to_str().expect("text");
    fs::write(&hostile, log + "hello\n").expect("a file");
    let html = folder.path().join("report.html");
    let condition = "ip!=<i a=\"b\">";
    let options = ["--top", "0", "--where", condition];
    let run = lately(&[&["count", log_path, "--html", html.to_str().expect("text")], &options[..]].concat());
    assert_eq!(run.code, Some(0), "{}", run.err);
    let page = Page::read(&html);
    let rows = page.rows("keys");
    let table = lately(&[&["count", log_path], &options[..]].concat()).out;
    // The key in a line of the table comes after three numbers and a time.
    let shown: Vec<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.split_once("2015-05-17T10:05:03Z      1  ").expect(line).1)
        .collect();
    assert_eq!((rows.len(), shown.len()), (2 * keys.len(), 2 * keys.len()));
    for (row, shown) in rows.iter().zip(shown) {
        let (text, full) = (cell(row, 0, "text"), cell(row, 0, "full"));
        match text.strip_suffix('…') {
            None => assert_eq!(text, shown),
            Some(start) => {
                assert!(shown.starts_with(start), "{shown}: {row}");
                assert!(shown.starts_with(full.trim_end_matches('…')), "{shown}: {row}");
                assert!(full == shown || full.ends_with('…') && full.len() > 300, "{shown}: {row}");
            }
        }
    }
    let place =
        cell(&page.rows("problems")[0], 2, "full").to_owned() + cell(&page.rows("problems")[0], 2, "text");
    assert!(place.contains(r#"<b> "'&\u{202e}.log:15"#), "{place}");
}

#[test]
fn a_page_is_small_for_any_log() {
    if !has("python3") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let html = folder.path().join("report.html");
    let html = html.to_str().expect("text");
    // The longest file names, with characters whose escapes are longest, and more logs than the page names.
    let mut logs = Vec::new();
    for number in 0..30_u64 {
        let name = format!("{number:03}{}", "\"\u{1}".repeat(126));
        let path = folder.path().join(name);
        let line = |key: u64| {
            // 1,024 bytes, most of which become six or more when escaped, and a number that makes the key distinct.
            let fill = ["\u{1f}", "\"", "'", "\u{202e}", "🧀"][usize::try_from(key % 5).expect("little")];
            let text = format!("{key:04}{}", fill.repeat(1_020 / fill.len()));
            let at = 1_431_857_103 + key * 86_400 + key * key;
            format!("{}\n", serde_json::json!({"time": at, "ip": text}))
        };
        fs::write(&path, (number * 100..number * 100 + 100).map(line).collect::<String>()).expect("a file");
        logs.push(path.into_os_string().into_string().expect("text"));
    }
    fs::write(&logs[0], fs::read_to_string(&logs[0]).expect("a log") + "hello\n{}\n").expect("a file");
    let logs: Vec<&str> = logs.iter().map(String::as_str).collect();
    let condition = format!("ip!={}", "\"<&>'".repeat(2_000));
    let conditions: Vec<&str> = ["--where", &condition].repeat(16);
    for top in ["1", "10", "12", "100", "101", "0"] {
        let run = lately(
            &[&["count", "--format", "json", "--html", html, "--top", top], &conditions[..], &logs].concat(),
        );
        assert_eq!(run.code, Some(0), "{}", run.err);
        let page = Page::read(Path::new(html));
        let shown = top.parse().ok().filter(|top| (1..=100).contains(top)).unwrap_or(100);
        assert_eq!((page.rows("keys").len(), number(page.text("total"))), (shown, 3_000));
        let message = format!("lately: count: the page has the first {shown} of 3000 keys");
        assert!(run.err.contains(&message), "{}", run.err);
    }
}

#[test]
fn a_page_lists_what_is_missing() {
    if !has("python3") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let html = folder.path().join("report.html");
    let count = |log: &str, options: &[&str]| {
        let args = [&["count", "-", "--html", html.to_str().expect("text")], options].concat();
        let run = lately_reading(&args, log.as_bytes());
        (run.code, run.err)
    };
    let notes = || Page::read(&html).0["notes"].to_string();
    let ahead = LINE.replace("17/May/2015", "19/May/2015");
    assert_eq!(count(&format!("{LINE}{ahead}hello\n"), &[]).0, Some(0));
    assert!(
        notes().contains("The newest time, 2015-05-19 10:05:03 UTC, is 2 days after all others."),
        "{}",
        notes()
    );
    let page = Page::read(&html);
    let problem = &page.rows("problems")[0];
    let cells = [0, 1, 2].map(|column| cell(problem, column, "text"));
    assert_eq!(cells, ["not of the format", "1", "standard input:3"]);
    assert_eq!(
        count(&format!("{LINE}hello\n"), &["--strict"]).0,
        Some(2),
        "the page is written all the same"
    );
    assert_eq!(notes(), "[]");
    assert_eq!(count(LINE, &["--where", "status=404"]).0, Some(0));
    assert!(notes().contains("No line meets the conditions."), "{}", notes());
    assert_eq!(count("", &[]).0, Some(0));
    assert!(notes().contains("There are no lines."), "{}", notes());
    // For a log that is cut off, the page counts the readable part and has a note.
    let log = fs::read(data("combined.log.xz")).expect("test data");
    let cut = folder.path().join("cut.log.xz");
    fs::write(&cut, [&log[..], &log[..20]].concat()).expect("a file");
    let cut = cut.to_str().expect("text");
    assert_eq!(lately(&["count", cut, "--html", html.to_str().expect("text")]).code, Some(2));
    assert!(notes().contains("could not be read to its end"), "{}", notes());
    assert_eq!(number(Page::read(&html).text("total")), 3);
}

#[test]
fn a_page_replaces_a_file_once_it_is_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().expect("text");
    let log = path("access.log");
    fs::write(&log, LINE).expect("a file");
    let there = || {
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    };
    fs::write(path("old.html"), "old").expect("a file");
    let refused = |args: &[&str], what: &str, cause: &str| {
        let run = lately_reading(&[&["count"], args].concat(), b"hello\n");
        assert_eq!((run.out.as_str(), run.code), ("", Some(2)), "{}", run.err);
        let expected = format!("lately: {what}: {cause}");
        assert!(run.err.starts_with(&expected) && run.err.contains("\nhint: "), "{expected}\n{}", run.err);
        assert_eq!(there(), ["access.log", "old.html"], "nothing is left behind");
        assert_eq!(fs::read_to_string(path("old.html")).expect("a file"), "old");
    };
    let missing = path("missing/report.html");
    refused(&[&log, "--html", &missing], &missing, "No such file or directory");
    refused(&[&log, "--html", &path("")], &path(""), "it is a folder");
    refused(&[&log, "--html", &log], "--html", "the page would replace the log");
    refused(&["-", "--html", &path("old.html")], "standard input", "no known format");
    refused(&["-", "--html", &path("old.html"), "--format", "combined"], "count", "none of 1 line parses");
    for other in [&["--json"][..], &["--csv"], &["--step", "1m"]] {
        refused(&[&[log.as_str(), "--html", &path("old.html")], other].concat(), "command line", "");
    }
    let run = lately(&["count", &log, "--html", &path("old.html")]);
    assert_eq!((run.out.as_str(), run.code), ("", Some(0)), "{}", run.err);
    let page = fs::read_to_string(path("old.html")).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
    assert_eq!(there(), ["access.log", "old.html"]);
    assert_eq!(lately(&["count", &log, "--html", "-"]).out, page, "- is standard output");
}
