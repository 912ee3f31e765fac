//! Named limits, and changes of the config while the server runs.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::running::{Running, serve_in, serve_with, words};

/// A server, and the config file that it was started with.
struct Ruled {
    server: Running,
    config: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ruled {
    fn start(text: &str) -> Ruled {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("lately.toml");
        std::fs::write(&config, text).expect("room for a file");
        let server = serve_with(&["--config", config.to_str().expect("text")]);
        Ruled { server, config, _folder: folder }
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.config, text).expect("room for a file");
    }

    /// Waits until the server logs a reload.
    fn wait_for_reload(&mut self, limits: &str) {
        let message = format!("lately: config: {} reloaded: {limits}\n", self.config.display());
        self.server.wait_for_message(&message);
    }

    fn limit(&self, rest: &str) -> Vec<i64> {
        self.server.ask(&format!("LIMIT {rest}"))
    }

    /// The error of a command.
    fn refused(&self, line: &str) -> String {
        words(line).exec(&mut self.server.connect()).expect_err(line).to_string()
    }

    /// Stops the server and returns what it wrote to standard error.
    fn messages(self) -> String {
        self.server.signal("TERM");
        let run = self.server.ended();
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.err
    }
}

fn limit(name: &str, more: &str) -> String {
    format!("[[limit]]\nname = \"{name}\"\n{more}\n")
}

const LOGIN: &str = "max = 2\nwindow = \"1h\"\nlockout = \"2h\"";

#[test]
fn a_named_limit_allows_denies_and_locks_out() {
    let server = Ruled::start(&limit("login", LOGIN));
    assert_eq!(server.limit("k @login"), [1, 2, 1, 0, 3_600_000]);
    assert_eq!(server.limit("k @login PEEK")[..3], [1, 2, 1]);
    assert_eq!(server.limit("k @login COST 3 PEEK")[..4], [0, 2, 1, -1]);
    assert_eq!(server.limit("k @login")[..3], [1, 2, 0]);
    // The lockout is longer than the window.
    assert_eq!(server.limit("k @login")[..4], [0, 2, 0, 7_200_000]);
    assert_eq!(server.limit("k 1000 1ms PEEK")[0], 0);
    assert_eq!(server.server.ask::<u64>("HITS k"), 2);
    let unknown = server.refused("LIMIT k @nosuch");
    assert!(unknown.contains("no such limit 'nosuch': the config has login"), "{unknown}");
    let lockout = server.refused("LIMIT k @login LOCKOUT 5m");
    assert!(lockout.contains("LOCKOUT does not go with @name"), "{lockout}");
    let expected = "max=2,window_ms=3600000,lockout_ms=7200000,shadow=0,allowed=2,denied=1,would_deny=0";
    assert_eq!(server.server.info("limit_login"), expected);
    let metrics = server.server.get("/metrics");
    for (decision, requests) in [("allowed", 2), ("denied", 1), ("would_deny", 0)] {
        let line =
            format!("\nlately_limit_requests_total{{limit=\"login\",decision=\"{decision}\"}} {requests}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[test]
fn a_reload_ends_a_shadow() {
    let shadow = |shadow: bool| limit("login", &format!("{LOGIN}\nshadow = {shadow}"));
    let mut server = Ruled::start(&shadow(true));
    for remaining in [1, 0, 0, 0] {
        assert_eq!(server.limit("k @login")[..4], [1, 2, remaining, 0]);
    }
    assert_eq!(server.server.ask::<u64>("HITS k"), 2);
    let tally = |server: &Ruled| {
        let line = server.server.info("limit_login");
        line.split_once(",allowed=").expect("a tally").1.to_owned()
    };
    assert_eq!(tally(&server), "2,denied=0,would_deny=2");
    server.write(&shadow(false));
    server.server.signal("HUP");
    server.wait_for_reload("1 limit");
    assert_eq!(server.limit("k @login")[..4], [0, 2, 0, 7_200_000]);
    assert_eq!(tally(&server), "2,denied=1,would_deny=2");
}

#[test]
fn a_hang_up_reloads_the_limits_and_no_count_is_lost() {
    let two = limit("a", "max = 3\nwindow = \"1h\"") + &limit("b", LOGIN);
    let mut server = Ruled::start(&two);
    assert_eq!(server.limit("k @a COST 2")[..3], [1, 3, 1]);
    assert_eq!(server.limit("k @a COST 2")[..3], [0, 3, 1]);
    assert_eq!(server.limit("locked @b COST 2")[0], 1);
    assert_eq!(server.limit("locked @b")[0], 0);
    server.write(&(limit("a", "max = 2\nwindow = \"1h\"") + &limit("c", "max = 0\nwindow = 1")));
    server.server.signal("HUP");
    server.wait_for_reload("2 limits");
    // Earlier hits count against the new max.
    assert_eq!(server.limit("k @a")[..3], [0, 2, 0]);
    assert_eq!(server.limit("new @c")[..4], [0, 0, 0, -1]);
    assert!(server.refused("LIMIT k @b").contains("the config has a, c"));
    assert_eq!(server.limit("locked 100 1ms PEEK")[0], 0);
    let expected = "max=2,window_ms=3600000,lockout_ms=0,shadow=0,allowed=1,denied=2,would_deny=0";
    assert_eq!(server.server.info("limit_a"), expected);
    // A requested reload is logged even if nothing has changed.
    server.server.signal("HUP");
    server.wait_for_reload("2 limits");
    assert_eq!(server.server.ask::<u64>("HITS k"), 2);
}

#[test]
fn requests_go_on_while_the_limits_are_reloaded() {
    const RELOADS: usize = 20;
    const REQUESTS: usize = 20_000;
    let text = |max: usize| limit("a", &format!("max = {max}\nwindow = \"1h\""));
    let mut server = Ruled::start(&text(1_000_000));
    let mut connection = server.server.connect();
    let asking = std::thread::spawn(move || {
        let mut pipeline = redis::pipe();
        (0..100).for_each(|_| _ = pipeline.cmd("LIMIT").arg("k").arg("@a"));
        let replies = (0..REQUESTS / 100).flat_map(|_| {
            let replies: Vec<Vec<i64>> = pipeline.query(&mut connection).expect("replies");
            replies
        });
        replies.filter(|reply| reply[0] == 1).count()
    });
    for reload in 0..RELOADS {
        server.write(&text(1_000_001 + reload));
        server.server.signal("HUP");
        server.wait_for_reload("1 limit");
    }
    assert_eq!(asking.join().expect("a client"), REQUESTS);
    assert_eq!(server.server.ask::<usize>("HITS k"), REQUESTS);
    assert!(server.server.info("limit_a").contains(&format!(",allowed={REQUESTS},denied=0,")));
}

/// Renames a file over the config, as editors do.
fn rename_over(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("room for a file");
    std::fs::rename(&new, path).expect("the same folder");
}

#[test]
fn a_changed_file_is_reloaded() {
    let text = |max: u32| limit("a", &format!("max = {max}\nwindow = \"1h\""));
    let mut server = Ruled::start(&text(1));
    assert_eq!(server.limit("k @a")[..3], [1, 1, 0]);
    server.write(&text(2));
    server.wait_for_reload("1 limit");
    assert_eq!(server.limit("k @a")[..3], [1, 2, 0]);
    rename_over(&server.config, &text(3));
    server.wait_for_reload("1 limit");
    assert_eq!(server.limit("k @a")[..3], [1, 3, 0]);
    let expected = "max=3,window_ms=3600000,lockout_ms=0,shadow=0,allowed=3,denied=0,would_deny=0";
    assert_eq!(server.server.info("limit_a"), expected);
}

/// Kubernetes replaces a link to the folder of the file. The path given to the server is a link as well.
#[test]
fn a_changed_link_is_a_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = |max: u32| limit("a", &format!("max = {max}\nwindow = \"1h\""));
    for (name, max) in [("..1", 1), ("..2", 2)] {
        std::fs::create_dir(folder.path().join(name)).expect("room");
        std::fs::write(folder.path().join(name).join("lately.toml"), text(max)).expect("room");
    }
    let link = |to: &str, name: &str| symlink(to, folder.path().join(name)).expect("links");
    link("..1", "..data");
    link("..data/lately.toml", "lately.toml");
    let config = folder.path().join("lately.toml");
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    let path = folder.path().to_owned();
    let mut server = Ruled { server, config, _folder: folder };
    assert_eq!(server.limit("k @a")[..3], [1, 1, 0]);
    symlink("..2", path.join("..data_tmp")).expect("links");
    std::fs::rename(path.join("..data_tmp"), path.join("..data")).expect("the same folder");
    server.wait_for_reload("1 limit");
    assert_eq!(server.limit("k @a")[..3], [1, 2, 0]);
}

#[test]
fn a_bad_file_does_not_change_the_limits() {
    let good = limit("a", "max = 1\nwindow = \"1h\"");
    let mut server = Ruled::start(&good);
    let path = server.config.display().to_string();
    let bad = good.clone() + &limit("b", "max = 9\nwindow = \"soon\"");
    server.write(&bad);
    let message = format!("lately: config: {path}:8:10: invalid duration 'soon': ");
    server.server.wait_for_message(&message);
    assert_eq!(server.limit("k @a")[..3], [1, 1, 0]);
    assert!(server.refused("LIMIT k @b").contains("no such limit 'b': the config has a"));
    // A requested reload logs the error again, here that there is no file.
    server.server.signal("HUP");
    server.server.wait_for_message(&message);
    std::fs::remove_file(&server.config).expect("it was there");
    server.server.signal("HUP");
    let gone =
        format!("lately: config: {path}: No such file or directory (os error 2): the old config stays\n");
    server.server.wait_for_message(&gone);
    assert_eq!(server.limit("k @a")[..3], [0, 1, 0]);
    server.write(&bad.replace("soon", "1h"));
    server.wait_for_reload("2 limits");
    assert_eq!(server.limit("k @b")[..3], [1, 9, 7]);
    let messages = server.messages();
    let lines: Vec<&str> = messages.lines().filter(|line| line.starts_with(&message)).collect();
    assert_eq!(lines.len(), 2, "{messages}");
    assert!(lines.iter().all(|line| line.ends_with(": the old config stays")), "{messages}");
}

#[test]
fn a_reload_logs_settings_that_need_a_restart() {
    let mut server = Ruled::start("[server]\nmax_clients = 7\n");
    server.write(
        &("[server]\nmax_clients = 8\n[memory]\nceiling = \"2GiB\"\n".to_owned()
            + &limit("a", "max = 1\nwindow = \"1h\"")),
    );
    server.server.signal("HUP");
    for name in ["server.max_clients", "memory.ceiling"] {
        let message = format!("lately: config: {name} differs: it takes effect at the next start\n");
        server.server.wait_for_message(&message);
    }
    server.wait_for_reload("1 limit");
    assert_eq!(server.server.ask::<Vec<String>>("CONFIG GET maxclients"), ["maxclients", "7"]);
    assert_eq!(server.limit("k @a")[0], 1);
}

/// A config from a pipe, such as a shell's `<(…)`, can be read only once.
#[test]
fn a_config_from_a_pipe_is_not_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&config).status().expect("mkfifo").success());
    let writer = {
        let config = config.clone();
        std::thread::spawn(move || std::fs::write(config, limit("a", "max = 1\nwindow = \"1h\"")))
    };
    let server = serve_with(&["--config", config.to_str().expect("text")]);
    writer.join().expect("a writer").expect("it was read");
    let mut server = Ruled { server, config, _folder: folder };
    server.server.signal("HUP");
    let message = format!(
        "{}: not a regular file: it cannot be read again: the old config stays\n",
        server.config.display()
    );
    server.server.wait_for_message(&message);
    assert_eq!(server.limit("k @a")[..3], [1, 1, 0]);
}

#[test]
fn hits_of_named_limits_survive_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let data = folder.path().join("data");
    let config_text = config.to_str().expect("text");
    std::fs::write(&config, limit("login", LOGIN)).expect("room for a file");
    let ask = |server: &Running| server.ask::<Vec<i64>>("LIMIT k @login")[0];
    let server = serve_in(&data, &["--config", config_text]);
    assert_eq!([ask(&server), ask(&server), ask(&server)], [1, 1, 0]);
    server.signal("KILL");
    drop(server);
    std::fs::write(&config, limit("login", LOGIN).replace("max = 2", "max = 9")).expect("room for a file");
    let server = serve_in(&data, &["--config", config_text]);
    // The key is still locked out.
    assert_eq!(ask(&server), 0);
    assert_eq!(server.ask::<u64>("HITS k"), 2);
    assert!(server.info("limit_login").ends_with("allowed=0,denied=1,would_deny=0"));
}
