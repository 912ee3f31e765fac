//! Runs the recipes of `docs/guide/logs.md` and `alerts.md`, and compares their output with that in the document.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::data;
use crate::running::serve_with;

/// The day after the logs of the guide were written, 2024-03-13.
const WRITTEN: Duration = Duration::from_secs(1_710_288_000);

/// The words of a command line. Single quotes keep a word together.
fn words(typed: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, piece) in typed.split('\'').enumerate() {
        let mut parts = if index % 2 == 1 { vec![piece] } else { piece.split(' ').collect() }.into_iter();
        if let (Some(word), Some(first)) = (words.last_mut(), parts.next()) {
            word.push_str(first);
        }
        words.extend(parts.map(str::to_owned));
    }
    words
}

#[test]
fn the_recipes_for_logs_print_what_they_show() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(data("guide")).expect("the logs of the guide") {
        let from = entry.expect("a log").path();
        let to = folder.path().join(from.file_name().expect("a name"));
        fs::copy(&from, &to).expect("a copy");
        File::options()
            .append(true)
            .open(&to)
            .and_then(|log| log.set_modified(UNIX_EPOCH + WRITTEN))
            .expect("a time");
    }
    // A server whose retention is longer than the age of the logs.
    let config = folder.path().join("lately.toml");
    fs::write(&config, "[[class]]\nmatch = \"web:*\"\nretain = \"1600w\"\n").expect("room");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let recipes = run_recipes(&page("logs.md"), folder.path(), &server.resp);
    assert!(recipes >= 20, "{recipes}");
}

/// A page of the guide.
fn page(name: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    fs::read_to_string(guide.join(name)).expect("a page")
}

/// Runs the commands `lately` of a page in a folder. Returns how many there are.
fn run_recipes(page: &str, folder: &Path, server: &str) -> usize {
    let mut recipes = 0;
    for block in page.split("```console\n$ lately ").skip(1) {
        let block = block.split("```").next().expect("a block ends");
        let (typed, shown) = block.split_once('\n').expect("a line is typed");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lately"));
        command.env("LATELY_SERVER", server);
        let output = command.args(words(typed)).current_dir(folder).output().expect("the binary runs");
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_eq!((printed.as_str(), output.status.code()), (shown, Some(0)), "{typed}");
        recipes += 1;
    }
    recipes
}

/// The replay of a rule, on a log with a flood: for twenty seconds `/login` has 1,500 requests a second, and all else one.
#[test]
fn the_page_about_alerts_replays_its_rule() {
    let page = page("alerts.md");
    let folder = tempfile::tempdir().expect("a folder");
    let rule = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a rule");
    fs::write(folder.path().join("lately.toml"), rule).expect("room");
    let mut log = String::new();
    for second in 0..600 {
        let at = format!("[12/Mar/2024:14:{:02}:{:02} +0000]", second / 60, second % 60);
        let floods = if (120..140).contains(&second) { 1_500 } else { 0 };
        for (path, count) in [("/", 1), ("/login", floods)] {
            let line = format!("198.51.100.7 - - {at} \"GET {path} HTTP/1.1\" 200 5\n");
            log.push_str(&line.repeat(count));
        }
    }
    fs::write(folder.path().join("access.log"), log).expect("room");
    assert_eq!(run_recipes(&page, folder.path(), ""), 1);
}

#[test]
fn typed_lines_become_words() {
    assert_eq!(words("a b 'c d'e 'f'"), ["a", "b", "c de", "f"]);
}
