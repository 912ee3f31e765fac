//! `lately top` on a terminal.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::common::has;
use crate::terminal::Terminal;
use crate::top::{append, lines};

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

/// A folder with a log: three lines of `a` and two of `bb` twenty seconds ago, and one of `c` now.
fn log() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    append(&path, &lines(&[("a", 20), ("a", 20), ("a", 20), ("bb", 20), ("bb", 20), ("c", 0)]));
    (folder, path)
}

/// The keys on the screen, from top to bottom.
pub(crate) fn keys(lines: &[String]) -> Vec<&str> {
    let rows = lines.iter().skip(3).take_while(|line| !line.is_empty());
    rows.filter_map(|line| line.split_whitespace().last()).collect()
}

#[test]
fn the_screen_follows_the_log_and_the_keyboard() {
    if !has("setsid") {
        return;
    }
    for (columns, height) in SIZES {
        let (_folder, path) = log();
        let mut terminal = Terminal::run(&["top", path.to_str().expect("text")], (columns, height), &[]);
        terminal.wait("the first page", |lines| keys(lines) == ["a", "bb", "c"]);
        let shown = terminal.lines();
        assert!(
            shown[0].starts_with("lately top  ") && shown[0].contains("access.log (json)"),
            "{}",
            shown[0]
        );
        assert!(shown[0].ends_with('Z') && shown[0].len() == usize::from(columns), "{}", shown[0]);
        assert!(shown[1].starts_with("last 5m: 6 hits, 0.02/s, 3 keys"), "{}", shown[1]);
        assert!(shown[1].ends_with("by hits"), "{}", shown[1]);
        let row: Vec<&str> = shown[3].split_whitespace().collect();
        assert_eq!((&row[..4], row[row.len() - 1]), (&["3", "0.01", "0", "3"][..], "a"));
        assert!(shown[3].contains('█'), "{}", shown[3]);
        assert_eq!(shown[usize::from(height) - 1], "/ filter   s sort   w window   q quit");
        assert!(terminal.has_colour() && terminal.had_screen);

        append(&path, &lines(&[("c", 0), ("c", 0), ("c", 0)]));
        terminal.wait("new lines", |lines| keys(lines) == ["c", "a", "bb"] && lines[1].contains(" 9 hits"));

        append(&path, &lines(&[("a", 20), ("a", 20)]));
        terminal.wait("late lines", |lines| keys(lines) == ["a", "c", "bb"]);
        terminal.press("s");
        terminal.wait("another order", |lines| {
            lines[1].ends_with("by the last 10s") && lines[3].split_whitespace().last() != Some("bb")
        });
        terminal.press("s");
        terminal.wait("by key", |lines| lines[1].ends_with("by key") && keys(lines) == ["a", "bb", "c"]);
        terminal.press("s");
        terminal.wait("the first order", |lines| lines[1].ends_with("by hits"));

        terminal.press("w");
        terminal.wait("a longer window", |lines| lines[1].starts_with("last 15m: 11 hits"));
        terminal.press("W");
        terminal.wait("the window of before", |lines| lines[1].starts_with("last 5m: 11 hits"));

        terminal.press("/B");
        terminal.wait("a filter", |lines| {
            lines[usize::from(height) - 1].starts_with("/B") && keys(lines) == ["bb"]
        });
        terminal.press("\r");
        terminal.wait("a filter that is kept", |lines| {
            lines[1].starts_with("last 5m: 2 hits, 0.01/s, 1 key with B")
                && lines[usize::from(height) - 1].starts_with("/ filter")
        });
        terminal.press("/\x7f");
        terminal.wait("a filter that is taken back", |lines| keys(lines) == ["a", "c", "bb"]);
        terminal.press("\r");

        // After rotations, the screen has the new lines and no notes.
        fs::rename(&path, path.with_extension("1")).expect("a rename");
        append(&path.with_extension("1"), &lines(&[("new", 0)]));
        append(&path, &lines(&[("newer", 0)]));
        terminal.wait("both files", |lines| lines[1].contains(": 13 hits") && lines[1].contains("5 keys"));

        let (columns, height) = (columns - 20, height - 9);
        terminal.resize((columns, height));
        terminal.wait("another size", |lines| {
            lines[0].len() == usize::from(columns)
                && lines[0].ends_with('Z')
                && lines[usize::from(height) - 1].starts_with("/ filter")
        });
        terminal.press("q");
        let ended = terminal.ended();
        assert_eq!((ended.code, ended.is_restored, ended.messages.trim()), (Some(0), true, ""));
    }
}

#[test]
fn every_exit_restores_the_terminal() {
    if !has("setsid") {
        return;
    }
    let (_folder, path) = log();
    for way in ["q", "\x1b", "\x03", "TERM", "INT", "HUP"] {
        let mut terminal = Terminal::run(&["top", path.to_str().expect("text")], SIZES[0], &[]);
        terminal.wait("the first page", |lines| keys(lines).len() == 3);
        if way.len() == 1 {
            terminal.press(way);
        } else {
            terminal.signal(way);
        }
        let ended = terminal.ended();
        assert_eq!((ended.code, ended.is_restored, ended.messages.trim()), (Some(0), true, ""), "{way:?}");
    }
}

#[test]
fn an_error_is_shown_after_the_screen_is_left() {
    if !has("setsid") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    append(&path, "hello\nhello\n");
    let mut terminal = Terminal::run(&["top", path.to_str().expect("text")], SIZES[0], &[]);
    terminal.wait("the first page", |lines| lines[1].contains("0 hits"));
    terminal.press("q");
    let ended = terminal.ended();
    assert_eq!((ended.code, ended.is_restored), (Some(2), true));
    assert!(ended.messages.contains("no known format in the first 2 lines"), "{}", ended.messages);
}

#[test]
fn keys_are_escaped_on_the_screen_and_colours_can_be_off() {
    if !has("setsid") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    append(&path, &lines(&[("a\\u001b[2Jb\\u202e", 0)]));
    let missing = folder.path().join("later.log");
    let files = [path.to_str().expect("text"), missing.to_str().expect("text")];
    let mut terminal = Terminal::run(&["top", files[0], files[1]], SIZES[0], &[("NO_COLOR", "1")]);
    terminal.wait("the first page", |lines| lines[3].ends_with(r"a\u{1b}[2Jb\u{202e}"));
    terminal.wait("what is missing", |lines| lines[22].ends_with("later.log is not there: waiting for it"));
    assert!(!terminal.has_colour());
    append(&missing, &lines(&[("later", 0)]));
    terminal.wait("the other log", |lines| lines[22].is_empty() && keys(lines).contains(&"later"));
    terminal.press("q");
    assert_eq!(terminal.ended().code, Some(0));
}

#[test]
fn rows_can_be_printed_on_a_terminal() {
    if !has("setsid") {
        return;
    }
    let (_folder, path) = log();
    for (args, environment) in [(&["--json"][..], &[][..]), (&[], &[("TERM", "dumb")])] {
        let args = [&["top", path.to_str().expect("text")], args].concat();
        let mut terminal = Terminal::run(&args, SIZES[0], environment);
        terminal.wait("rows", |lines| {
            lines.iter().any(|line| line.contains("\"key\":\"a\"") || line.ends_with("  a"))
        });
        assert!(!terminal.had_screen);
        terminal.press("\x03");
        terminal.had_screen = true;
        let ended = terminal.ended();
        assert_eq!((ended.code, ended.is_restored), (Some(0), true));
    }
}

/// Symptom: `top` panicked in a terminal that reported 65,535 columns and lines. Cause: it allocated a cell for each of them.
/// Fix: it draws on a part.
#[test]
fn a_terminal_with_an_absurd_size_is_drawn_in_part() {
    if !has("setsid") {
        return;
    }
    let (_folder, path) = log();
    let mut terminal = Terminal::run(&["top", path.to_str().expect("text")], (80, 24), &[]);
    terminal.wait("the first page", |lines| keys(lines) == ["a", "bb", "c"]);
    for (said, shown) in
        [((u16::MAX, u16::MAX), (1_600, 600)), ((1, 1), (1, 1)), ((u16::MAX, 24), (1_600, 24))]
    {
        terminal.resize_as(said, shown);
        terminal.wait("all of the screen", |lines| {
            shown == (1, 1) && lines[0] == "l"
                || keys(lines) == ["a", "bb", "c"] && lines[0].len() == 1_600 && lines[0].ends_with('Z')
        });
    }
    terminal.resize((80, 24));
    terminal.wait("the first size", |lines| lines[0].len() == 80 && lines[0].ends_with('Z'));
    terminal.press("q");
    let ended = terminal.ended();
    assert_eq!((ended.code, ended.is_restored, ended.messages.trim()), (Some(0), true, ""));
}
