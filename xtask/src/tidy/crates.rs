//! Checks the dependencies between crates: they point inward, and the core has hardly any.

use std::path::Path;

use super::tree::Tree;
use crate::run::{self, Outcome, cargo};

/// A crate, and the crates of the workspace that it may depend on.
struct Place {
    name: &'static str,
    inner: &'static [&'static str],
    /// All crates that may be built for it, including indirect dependencies, if they are restricted.
    whole: Option<&'static [&'static str]>,
}

/// From the inside out. Dependencies of tests are not restricted: tests of an inner crate may use an outer
/// one.
const PLACES: [Place; 15] = [
    Place { name: "lately", inner: &[], whole: Some(&["foldhash", "thin-vec"]) },
    Place { name: "lately-classics", inner: &[], whole: Some(&[]) },
    Place { name: "lately-resp", inner: &["lately"], whole: None },
    Place {
        name: "lately-keys",
        inner: &["lately"],
        whole: Some(&["foldhash", "itoa", "lately", "memchr", "thin-vec"]),
    },
    Place { name: "lately-ratelimit", inner: &[], whole: None },
    Place { name: "lately-logs", inner: &["lately", "lately-keys"], whole: None },
    Place { name: "lately-journal", inner: &["lately"], whole: None },
    Place { name: "lately-tower", inner: &["lately", "lately-keys"], whole: None },
    Place { name: "lately-engines", inner: &["lately"], whole: None },
    Place {
        name: "lately-server",
        inner: &[
            "lately",
            "lately-engines",
            "lately-keys",
            "lately-ratelimit",
            "lately-resp",
            "lately-logs",
            "lately-journal",
        ],
        whole: None,
    },
    Place { name: "lately-load", inner: &["lately-resp"], whole: None },
    Place {
        name: "lately-cli",
        inner: &[
            "lately",
            "lately-engines",
            "lately-resp",
            "lately-logs",
            "lately-journal",
            "lately-server",
            "lately-load",
        ],
        whole: None,
    },
    // Rivals are dependencies of this crate only.
    Place {
        name: "lately-bench",
        inner: &[
            "lately",
            "lately-classics",
            "lately-engines",
            "lately-resp",
            "lately-load",
            "lately-tower",
            "test-support",
        ],
        whole: None,
    },
    Place { name: "test-support", inner: &["lately"], whole: None },
    Place { name: "xtask", inner: &[], whole: None },
];

/// A folder with a manifest must have the name of its package.
pub(super) fn check_names(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in tree.files() {
        let Some(folder) =
            file.path.strip_suffix("/Cargo.toml").and_then(|path| path.strip_prefix("crates/"))
        else {
            continue;
        };
        let name = file.text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        if name != Some(folder) {
            let name = name.unwrap_or("nothing");
            problems.push(format!("{}: the package is called {name}; its folder says {folder}", file.path));
        }
    }
    problems
}

/// Compares the dependencies that cargo resolves with the table.
pub(super) fn check_dependencies(root: &Path) -> Outcome<Vec<String>> {
    let mut direct = cargo(root);
    direct.args(["tree", "--locked", "--workspace", "--edges", "normal", "--depth", "1"]);
    direct.args(["--prefix", "depth", "--no-dedupe", "--format", "{p}"]);
    let mut problems = directions(&run::output(&mut direct, "tidy: cargo tree")?);
    for place in &PLACES {
        if let Some(whole) = place.whole {
            let mut all = cargo(root);
            all.args(["tree", "--locked", "--package", place.name, "--edges", "normal"]);
            all.args(["--prefix", "none", "--no-dedupe", "--format", "{p}"]);
            problems.extend(difference(place.name, whole, &run::output(&mut all, "tidy: cargo tree")?));
        }
    }
    Ok(problems)
}

/// Parses `tree`, which has lines such as `0lately-cli v0.1.0 (…)`, and `1lately v0.1.0 (…)` for its
/// dependencies.
fn directions(tree: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut current: Option<&Place> = None;
    let place = |name: &str| PLACES.iter().find(|place| place.name == name);
    for line in tree.lines() {
        let name = |rest: &'_ str| rest.split(' ').next().unwrap_or(rest).to_owned();
        if let Some(owner) = line.strip_prefix('0').map(name) {
            current = place(&owner);
            if current.is_none() {
                problems.push(format!(
                    "{owner}: has no place in the table of xtask/src/tidy/crates.rs; give it one"
                ));
            }
        } else if let (Some(owner), Some(used)) = (current, line.strip_prefix('1').map(name))
            && place(&used).is_some()
            && !owner.inner.contains(&used.as_str())
        {
            problems.push(format!("{}: depends on {used}; dependencies point inward", owner.name));
        }
    }
    problems
}

/// Parses `tree`, which has a line per crate; the first is that of `name` itself.
fn difference(name: &str, expected: &[&str], tree: &str) -> Option<String> {
    let mut found: Vec<_> = tree.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    found.sort_unstable();
    found.dedup();
    (found != expected).then(|| {
        let list = |names: &[&str]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        format!(
            "{name}: depends on {}; the table of xtask/src/tidy/crates.rs says {}",
            list(&found),
            list(expected)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_called_as_its_package() {
        let good = ("crates/lately/Cargo.toml", "[package]\nname = \"lately\"\n");
        let bad = ("crates/logs/Cargo.toml", "[package]\nname = \"lately-logs\"\n[[bin]]\nname = \"logs\"\n");
        let other = ("fuzz/Cargo.toml", "[package]\nname = \"lately-fuzz\"\n");
        let problems = check_names(&Tree::of(&[good, bad, other]));
        assert_eq!(
            problems,
            ["crates/logs/Cargo.toml: the package is called lately-logs; its folder says logs"]
        );
    }

    #[test]
    fn dependencies_point_inward() {
        let check = |tree: &str, expected: &[&str]| assert_eq!(directions(tree), expected, "{tree}");
        check("0lately v0.1.0 (x)\n1hashbrown v0.17.1\n\n0lately-resp v0.1.0 (x)\n1lately v0.1.0 (x)\n", &[]);
        let outward = "0lately-resp v0.1.0 (x)\n1lately-server v0.1.0 (x)\n1lately-logs v0.1.0 (x)\n";
        let resp = |used: &str| format!("lately-resp: depends on {used}; dependencies point inward");
        check(outward, &[&resp("lately-server"), &resp("lately-logs")]);
        let unknown = "lately-new: has no place in the table of xtask/src/tidy/crates.rs; give it one";
        check("0lately-new v0.1.0 (x)\n1lately v0.1.0 (x)\n", &[unknown]);
    }

    #[test]
    fn a_new_dependency_of_the_core_is_named() {
        let expected = ["foldhash", "hashbrown"];
        let tree = "lately v0.1.0 (x)\nhashbrown v0.17.1\nfoldhash v0.2.0\nfoldhash v0.2.0\n";
        assert_eq!(difference("lately", &expected, tree), None);
        let problem = difference("lately", &expected, &format!("{tree}serde v1.0.0\n")).unwrap();
        assert!(problem.starts_with("lately: depends on foldhash, hashbrown, serde; "), "{problem}");
        assert!(
            difference("lately", &expected, "lately v0.1.0 (x)\n").unwrap().contains("depends on nothing;")
        );
    }
}
