//! The examples that define a counter, on every type of the crate that can run them.

use std::fs;
use std::path::Path;

#[path = "../../../../examples/cache_admission.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod cache_admission;

use lately::{HitCounter, Span, Store, Timestamp, seconds};

fn second(second: u64) -> Timestamp {
    Timestamp::from_seconds(second).expect("a time")
}

#[test]
fn the_examples_on_a_counter() {
    let mut counter = HitCounter::new();
    for at in [1, 2, 3] {
        assert!(counter.hit(at));
    }
    assert_eq!(counter.hits(4), 3);
    counter.hit(300);
    assert_eq!((counter.hits(300), counter.hits(301)), (4, 3));

    let mut counter = HitCounter::new();
    assert_eq!((counter.load(300), counter.rate(300)), (0, 0.0));
    for at in [1, 2, 2, 3, 150, 301] {
        counter.hit(at);
    }
    assert_eq!((counter.load(300), counter.load(200)), (5, 2));
    assert_eq!(counter.rate(300), 5.0 / 300.0);
}

#[test]
fn the_examples_on_a_store() {
    let store = Store::builder().build().expect("valid");
    for at in [1, 2, 3] {
        store.hit(b"k", second(at)).expect("counted");
    }
    let hits = |at: u64| store.hits_at(b"k", seconds(300), second(at), second(301)).estimate;
    assert_eq!(store.hits(b"k", seconds(300), second(4)).estimate, 3);
    assert_eq!(store.hit(b"k", second(300)), Ok(4));
    assert_eq!((hits(300), hits(301), hits(2), hits(0)), (4, 3, 2, 0));
    let shortest = store.hits_at(b"k", Span::MIN, second(300), second(301));
    assert_eq!(shortest.estimate, 1, "a window is at least a pane");
}

/// The example in the crate documentation is compiled, and README.md has the same lines.
#[test]
fn readme_and_crate_docs_have_the_same_example() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(path).expect("it is in the repository")
    };
    let (front_page, readme) = (read("src/lib.rs"), read("../../README.md"));
    let compiled = front_page.split("//! ```\n").nth(1).expect("an example");
    let shown =
        readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let compiled = compiled.lines().map(|line| line.strip_prefix("//!").expect("documentation").trim_start());
    let compiled: Vec<&str> = compiled.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let shown: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(shown, compiled);
}

/// The example of a cache prints what the list of the examples shows.
#[test]
fn a_cache_that_takes_in_what_is_hot_has_more_hits() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/README.md");
    let readme = fs::read_to_string(readme).expect("the list of the examples");
    let report = cache_admission::report();
    let typed = "$ cargo run --release -p lately --example cache_admission";
    assert!(readme.contains(&format!("```console\n{typed}\n{report}```\n")), "{report}");
}
