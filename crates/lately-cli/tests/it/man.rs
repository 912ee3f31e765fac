//! `lately man`.

use std::fs;
use std::process::Command;

use crate::common::{has, lately};

#[test]
fn each_command_has_a_man_page_that_renders() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = lately(&["man", folder.path().to_str().expect("text")]);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
    let help = lately(&["--help"]).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty())?;
        (name != "help").then(|| format!("lately-{name}.1"))
    });
    let mut expected: Vec<_> = commands.chain(["lately.1".to_owned()]).collect();
    expected.sort();
    let pages = || fs::read_dir(folder.path()).expect("pages").map(|page| page.expect("a page").path());
    let mut names: Vec<_> =
        pages().map(|page| page.file_name().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, expected);
    assert!(names.len() > 15, "{names:?}");
    if !has("groff") {
        return;
    }
    for page in pages() {
        let render = ["-man", "-Tutf8", "-ww", "-z"];
        let output = Command::new("groff").args(render).arg(&page).output().expect("groff runs");
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.success(), warnings.as_str()), (true, ""), "{}", page.display());
    }
}

#[test]
fn a_folder_that_is_missing_is_refused() {
    let run = lately(&["man", "no/such/folder"]);
    assert_eq!(run.code, Some(2));
    assert!(run.err.ends_with("hint: name a folder that exists and can be written\n"), "{}", run.err);
}
