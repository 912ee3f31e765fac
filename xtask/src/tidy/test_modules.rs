//! Checks that a `mod` names each test file. Otherwise the file is silently not compiled.

use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in tree.with_extension("rs") {
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        let (folder, module) = match name {
            "main.rs" => continue,
            // A folder module is named one folder further up.
            "mod.rs" => folder.rsplit_once('/').unwrap_or(("", folder)),
            _ => (folder, name.trim_end_matches(".rs")),
        };
        if !folder.ends_with("/tests/it") {
            continue;
        }
        let main = format!("{folder}/main.rs");
        let named = tree.get(&main).is_some_and(|main| names(&main.text, module));
        if !named {
            problems.push(format!("{}: never runs; {main} lacks `mod {module};`", file.path));
        }
    }
    problems
}

fn names(main: &str, module: &str) -> bool {
    main.lines().any(|line| {
        line.trim().trim_start_matches("pub ").strip_prefix("mod ") == Some(&format!("{module};"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_test_file_is_found() {
        let tree = Tree::of(&[
            ("crates/a/tests/it/main.rs", "//! Tests.\nmod serve;\nmod common;\n// mod lost;\n"),
            ("crates/a/tests/it/serve.rs", ""),
            ("crates/a/tests/it/common/mod.rs", ""),
            ("crates/a/tests/it/common/deeper.rs", ""),
            ("crates/a/tests/it/lost.rs", ""),
            ("crates/b/tests/it/alone.rs", ""),
            ("crates/b/src/lost.rs", ""),
        ]);
        let expected = [
            "crates/a/tests/it/lost.rs: never runs; crates/a/tests/it/main.rs lacks `mod lost;`",
            "crates/b/tests/it/alone.rs: never runs; crates/b/tests/it/main.rs lacks `mod alone;`",
        ];
        assert_eq!(check(&tree), expected);
    }
}
