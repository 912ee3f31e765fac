//! `--ratelimit-config`: rules that change while the server runs.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::running::{Running, serve_with};

fn rules(unit: &str) -> String {
    format!(
        "domain: shop\ndescriptors:\n- key: path\n  rate_limit: {{ unit: {unit}, requests_per_unit: 5 }}\n"
    )
}

/// Makes a folder as Kubernetes does: each file is a link to `..data/…`, and `..data` is a link to a folder.
fn mount(folder: &Path, texts: &[(&str, &str)]) {
    for (name, text) in texts {
        std::fs::create_dir(folder.join(name)).expect("room");
        std::fs::write(folder.join(name).join("shop.yaml"), text).expect("room");
    }
    symlink(texts[0].0, folder.join("..data")).expect("links");
    symlink("..data/shop.yaml", folder.join("shop.yaml")).expect("links");
}

/// Moves the link `..data`.
fn swap(folder: &Path, to: &str) {
    symlink(to, folder.join("..data_tmp")).expect("links");
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("the same folder");
}

/// The metrics of the reloads: reloads, errors, and whether the files have a mistake.
fn reloads(server: &Running) -> [u64; 3] {
    let metrics = server.get("/metrics");
    ["reloads_total", "errors_total", "failing"].map(|name| {
        let line = format!("\nlately_ratelimit_config_{name} ");
        let value = metrics.split_once(&line).and_then(|(_, rest)| rest.lines().next());
        value.expect(name).parse().expect("a number")
    })
}

#[test]
fn a_swapped_folder_is_reloaded_and_a_mistake_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules");
    std::fs::create_dir(&path).expect("room");
    let two = format!("{}- key: user\n  rate_limit: {{ unit: day, requests_per_unit: 1 }}\n", rules("hour"));
    mount(&path, &[("..1", &rules("hour")), ("..2", &rules("fortnight")), ("..3", &two)]);
    let mut server = serve_with(&["--ratelimit-config", path.to_str().expect("text")]);
    assert_eq!(reloads(&server), [0, 0, 0]);
    swap(&path, "..2");
    let path_text = path.display();
    server.wait_for_message(&format!(
        "lately: ratelimit-config: {path_text}/shop.yaml:4:23: unknown unit 'fortnight'"
    ));
    assert_eq!(reloads(&server), [0, 1, 1]);
    assert!(
        server
            .get("/metrics")
            .contains("\nlately_ratelimit_total_hits_total{domain=\"shop\",rule=\"path\"} 0\n")
    );
    swap(&path, "..3");
    server.wait_for_message(&format!("lately: ratelimit-config: {path_text} reloaded: 1 domain, 2 rules\n"));
    assert_eq!(reloads(&server), [1, 1, 0]);
    assert!(
        server
            .get("/metrics")
            .contains("\nlately_ratelimit_total_hits_total{domain=\"shop\",rule=\"user\"} 0\n")
    );
    // SIGHUP loads them even if nothing has changed.
    server.signal("HUP");
    server.wait_for_message(&format!("lately: ratelimit-config: {path_text} reloaded: 1 domain, 2 rules\n"));
    server.signal("TERM");
    let run = server.ended();
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(!run.err.contains("there is no file to reload"), "{}", run.err);
    let mistakes = run.err.lines().filter(|line| line.contains("fortnight")).collect::<Vec<_>>();
    assert!(mistakes.len() == 1 && mistakes[0].ends_with(": the old rules stay"), "{mistakes:?}");
}
