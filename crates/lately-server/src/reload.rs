//! Reloads the config file while the server runs, and the files of passwords and certificates that it names. New limits, alerts,
//! users, passwords and certificates take effect at once, everything else at the next start.
//!
//! The files are read once a second and their content compared with what was loaded. A change is loaded when two reads in
//! a row find the same content, because an editor writes in pieces. Content is compared, not the time or the inode:
//! that finds every kind of change, whether the file is written in place, replaced, or reached by a link that moved, as
//! in Kubernetes. SIGHUP has the file read and loaded at once.
//!
//! A file with a mistake changes nothing. The mistake is logged once per content, and again after each SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::config::{Alert, Config, FileError, NamedLimit, Source, Tls, read_file};
use crate::limits::CONFIG_CHECK_EVERY;
use crate::rule_reload::{RuleChange, RuleReload};
use crate::server::{check_addresses, check_exact, check_secrets};
use crate::service::Service;
use crate::service::password::Keyed;
use crate::service::users::Users;
use crate::stopper::Stopper;
use crate::tls::{self, CurrentTls};

/// Makes a server reload its config file. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Reloader(Arc<Reloads>);

#[derive(Debug, Default)]
struct Reloads {
    /// How many were requested.
    requested: watch::Sender<u64>,
    /// How many of these are done.
    done: watch::Sender<u64>,
}

impl Reloader {
    /// Requests a reload. The server logs the result: see [`Server::log_to`](crate::Server::log_to).
    pub fn reload(&self) {
        self.0.requested.send_modify(|requested| *requested += 1);
    }

    /// Requests a reload, and waits until it is done or refused. Never ends once the server has stopped.
    pub async fn reloaded(&self) {
        self.reload();
        let requested = *self.0.requested.borrow();
        // The sender is not dropped before this ends.
        let mut done = self.0.done.subscribe();
        let _ = done.wait_for(|done| *done >= requested).await;
    }
}

/// What a reload replaces.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) service: Arc<Service>,
    pub(crate) tls: Option<Arc<CurrentTls>>,
}

/// What a check finds.
#[derive(Clone, PartialEq, Debug)]
struct Found {
    /// The content of the config file, or why it cannot be read.
    config: Result<String, String>,
    /// Keyed hashes of the contents of the files that it names, or why they cannot be read.
    files: Vec<Result<Vec<u8>, String>>,
}

/// The state of the files.
pub(crate) struct Reload {
    source: Source,
    /// The config at the start.
    started: Config,
    /// What was loaded or refused last.
    handled: Found,
    /// What the last check found, if it differs from `handled`.
    changed: Option<Found>,
    /// The content of the config file that names the files below, and these.
    named: (String, Vec<PathBuf>),
    keyed: Keyed,
}

/// The result of a check.
#[derive(Default)]
struct Change {
    /// What replaces the old.
    loaded: Option<Loaded>,
    /// Lines to log.
    log_lines: Vec<String>,
}

/// What takes effect at once.
struct Loaded {
    limits: Vec<NamedLimit>,
    alerts: Vec<Alert>,
    users: Users,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// Checks the files for changes until the server stops.
pub(crate) async fn keep(
    live: Live,
    (mut kept, mut rules): (Option<Reload>, Option<RuleReload>),
    (reloader, stopper): (Reloader, Stopper),
    log: impl Fn(&str),
) {
    let mut ticks = tokio::time::interval(CONFIG_CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let is_watched = kept.as_ref().is_some_and(|reload| reload.source.is_regular);
    let is_any_watched = is_watched || rules.is_some();
    let (mut requests, mut done) = (reloader.0.requested.subscribe(), 0);
    loop {
        reloader.0.done.send_replace(done);
        let is_requested = tokio::select! {
            _ = ticks.tick(), if is_any_watched => false,
            _ = async { requests.wait_for(|requested| *requested > done).await.is_ok() } => true,
            () = stopper.stopped() => return,
        };
        if is_requested {
            done = *requests.borrow();
        }
        if let Some(mut reload) = rules.take() {
            let checking = tokio::task::spawn_blocking(move || {
                let change = reload.check(is_requested);
                (reload, change)
            });
            let (reload, change) = tokio::select! {
                checked = checking => checked.expect("a panic is a bug that has been reported"),
                () = stopper.stopped() => return,
            };
            rules = Some(reload);
            if let Some(RuleChange { rules, log_line }) = change {
                live.service.reload_rules(rules);
                log(&log_line);
            }
        }
        if !is_requested && !is_watched {
            continue;
        }
        let Some(mut reload) = kept.take() else {
            if rules.is_none() {
                log("config: there is no file to reload: the server was started without --config");
            }
            continue;
        };
        let of_look = live.clone();
        // Reading may block on a slow disk.
        let checking = tokio::task::spawn_blocking(move || {
            let found = reload.read();
            let change = reload.check(&of_look, found, is_requested);
            (reload, change)
        });
        let (reload, Change { loaded, log_lines }) = tokio::select! {
            checked = checking => checked.expect("a panic is a bug that has been reported"),
            () = stopper.stopped() => return,
        };
        kept = Some(reload);
        if let Some(Loaded { limits, alerts, users, tls }) = loaded {
            live.service.rules.replace(&limits);
            live.service.replace_alerts(&alerts);
            live.service.users.replace(users);
            if let (Some(current), Some(tls)) = (&live.tls, tls) {
                current.replace(tls);
            }
        }
        log_lines.iter().for_each(|line| log(line));
    }
}

impl Reload {
    /// Remembers the contents at the start.
    pub(crate) fn new(source: Source) -> Reload {
        let started = Config::parse(&source.text).unwrap_or_default();
        let named = (source.text.clone(), files_of(&started));
        let handled = Found { config: Ok(source.text.clone()), files: Vec::new() };
        let mut reload = Reload { source, started, handled, changed: None, named, keyed: Keyed::new() };
        reload.handled.files = reload.read_files();
        reload
    }

    /// Reads the config file, and the files that it names. If it is invalid, those that the one before named.
    fn read(&mut self) -> Found {
        let config = Source::read_again(&self.source.path).map_err(|error| error.to_string());
        if let Ok(text) = &config
            && *text != self.named.0
            && let Ok(parsed) = Config::parse(text)
        {
            self.named = (text.clone(), files_of(&parsed));
        }
        Found { config, files: self.read_files() }
    }

    fn read_files(&self) -> Vec<Result<Vec<u8>, String>> {
        let hash = |path: &PathBuf| {
            let content = read_file(path).map_err(|error| error.to_string())?;
            Ok(self.keyed.tag(&content).as_ref().to_vec())
        };
        self.named.1.iter().map(hash).collect()
    }

    /// Compares the contents with what was loaded, and loads them when that is requested or they are stable.
    fn check(&mut self, live: &Live, found: Found, is_requested: bool) -> Change {
        if !is_requested && found == self.handled {
            self.changed = None;
            return Change::default();
        }
        if !is_requested && self.changed.as_ref() != Some(&found) {
            self.changed = Some(found);
            return Change::default();
        }
        self.changed = None;
        let change = self.load(live, &found.config);
        self.handled = found;
        change
    }

    fn load(&self, live: &Live, found: &Result<String, String>) -> Change {
        let path = &self.source.path;
        let config = found
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|text| not_empty(text).ok_or_else(|| format!("{} is empty", path.display())))
            .and_then(|text| Config::parse(text).map_err(|problem| problem.in_file(path, text).to_string()));
        let loaded = config.and_then(|config| load(live, &config).map(|loaded| (config, loaded)));
        let (config, loaded) = match loaded {
            Ok(both) => both,
            Err(why) => {
                let log_lines = vec![format!("config: {why}: the old config stays")];
                return Change { loaded: None, log_lines };
            }
        };
        let differs = |name| format!("config: {name} differs: it takes effect at the next start");
        let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let mut reloaded =
            format!("config: {} reloaded: {}", path.display(), count(config.limits.len(), "limit"));
        if !config.alerts.is_empty() {
            reloaded += &format!(", {}", count(config.alerts.len(), "alert"));
        }
        if !config.users.is_empty() {
            reloaded += &format!(", {}", count(config.users.len(), "user"));
        }
        let log_lines =
            self.started.fixed_differences(&config).into_iter().map(differs).chain([reloaded]).collect();
        Change { loaded: Some(loaded), log_lines }
    }
}

/// Loads what takes effect at once.
fn load(live: &Live, config: &Config) -> Result<Loaded, String> {
    // The server listens where it listened at the start, and users may be gone.
    let running = &live.service.config;
    let open = Config {
        resp: running.resp,
        http: running.http,
        grpc: running.grpc,
        metrics: None,
        insecure: running.insecure,
        users: config.users.clone(),
        ..Config::default()
    };
    check_addresses(&open).map_err(|error| error.to_string())?;
    check_exact(&config.limits, running).map_err(|error| error.to_string())?;
    // The classes stay those of the start.
    let longest = running.longest_retention();
    if let Some(NamedLimit { name, window, .. }) = config.limits.iter().find(|limit| limit.window > longest) {
        return Err(format!(
            "limit '{name}': window {window} is longer than {longest}, the longest retention of the classes in force: new classes take effect at the next start"
        ));
    }
    let text = |error: FileError| error.to_string();
    let users = live.service.users.load(&config.users).map_err(text)?;
    // Whether there is TLS cannot change while the server runs.
    let files = config.tls.as_ref().filter(|_| live.tls.is_some());
    let tls = files.map(tls::load).transpose().map_err(text)?;
    check_secrets(&config.alerts).map_err(|error| error.to_string())?;
    Ok(Loaded { limits: config.limits.clone(), alerts: config.alerts.clone(), users, tls })
}

/// The files that a config names.
fn files_of(config: &Config) -> Vec<PathBuf> {
    let of_tls = |tls: &Tls| {
        let client_ca = tls.client_ca.clone();
        [tls.cert.clone(), tls.key.clone()].into_iter().chain(client_ca).collect::<Vec<_>>()
    };
    let of_users = config.users.iter().map(|user| user.password_file.clone());
    of_users.chain(config.tls.as_ref().map(of_tls).unwrap_or_default()).collect()
}

/// Refuses an empty file. It is a valid config, but while the server runs it is more likely a file being rewritten.
fn not_empty(text: &String) -> Option<&String> {
    Some(text).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fixture::service;

    const ONE: &str = "[[limit]]\nname = \"a\"\nmax = 1\nwindow = 1\n";
    const RELOADED: &str = "config: lately.toml reloaded: 1 limit";

    /// Symptom: after a reload every request of a limit was an error. Cause: its window was compared with the classes of the
    /// file, which take effect at the next start. Fix: it is compared with those in force, too.
    #[test]
    fn a_limit_that_the_classes_in_force_cannot_decide_is_refused() {
        let (mut reload, live) = (reload(), live());
        let long = "[[class]]\nmatch = \"*\"\nretain = \"30d\"\n\n[[limit]]\nname = \"a\"\nmax = 1\nwindow = \"14d\"\n";
        let change = reload.check(&live, found(Ok(long)), true);
        assert!(change.loaded.is_none());
        assert_eq!(
            change.log_lines,
            [
                "config: limit 'a': window 14d is longer than 7d, the longest retention of the classes in force: new classes take effect at the next start: the old config stays"
            ]
        );
    }

    fn live() -> Live {
        Live { service: service(), tls: None }
    }

    fn reload() -> Reload {
        Reload::new(Source { path: "lately.toml".into(), text: String::new(), is_regular: true })
    }

    /// What a check finds that reads this.
    fn found(config: Result<&str, &str>) -> Found {
        Found { config: config.map(str::to_owned).map_err(str::to_owned), files: Vec::new() }
    }

    /// The limits that replace the old ones.
    fn limits(change: Change) -> Option<Vec<NamedLimit>> {
        change.loaded.map(|loaded| loaded.limits)
    }

    fn is_nothing(change: &Change) -> bool {
        change.loaded.is_none() && change.log_lines.is_empty()
    }

    /// The lines logged after a check that finds this content.
    fn log_lines(reload: &mut Reload, found: &str) -> Vec<String> {
        reload.check(&live(), self::found(Ok(found)), false).log_lines
    }

    #[test]
    fn a_change_is_loaded_once_it_is_stable() {
        let mut reload = reload();
        assert_eq!(log_lines(&mut reload, ""), [""; 0]);
        // While a file is being written it may be empty, or half of it may be valid.
        for found in [ONE, "# a", "# ab", "# a", " \n"] {
            assert_eq!(log_lines(&mut reload, found), [""; 0], "{found}");
        }
        assert_eq!(log_lines(&mut reload, ONE), [""; 0]);
        let change = reload.check(&live(), found(Ok(ONE)), false);
        assert_eq!(change.log_lines, [RELOADED]);
        assert_eq!(limits(change).map(|limits| limits[0].name.clone()), Some("a".to_owned()));
        assert!(is_nothing(&reload.check(&live(), found(Ok(ONE)), false)));
        assert_eq!(
            [log_lines(&mut reload, "# none"), log_lines(&mut reload, "# none")].concat(),
            ["config: lately.toml reloaded: 0 limits"]
        );
        // An editor empties the file first.
        assert_eq!(
            [log_lines(&mut reload, "\n"), log_lines(&mut reload, "\n")].concat(),
            ["config: lately.toml is empty: the old config stays"]
        );
    }

    #[test]
    fn a_requested_reload_happens_at_once() {
        let mut reload = reload();
        let mut ask = |text: &str| reload.check(&live(), found(Ok(text)), true);
        assert_eq!(ask(ONE).log_lines, [RELOADED]);
        assert_eq!(ask(ONE).log_lines, [RELOADED]);
        assert_eq!(
            ask("x").log_lines,
            [
                "config: lately.toml:1:2: write `x = …`: a key and its value have = between them: the old config stays"
            ]
        );
        assert_eq!(ask("x").log_lines.len(), 1);
        // A look does not log it again.
        assert_eq!(log_lines(&mut reload, "x"), [""; 0]);
        assert_eq!(log_lines(&mut reload, "x"), [""; 0]);
    }

    #[test]
    fn a_bad_file_is_logged_once_and_changes_nothing() {
        let mut reload = reload();
        assert_eq!(log_lines(&mut reload, "[sever]"), [""; 0]);
        let change = reload.check(&live(), found(Ok("[sever]")), false);
        assert!(change.loaded.is_none());
        assert!(
            change.log_lines[0].starts_with("config: lately.toml:1:2: unknown field `sever`"),
            "{:?}",
            change.log_lines
        );
        assert!(change.log_lines[0].ends_with(": the old config stays"), "{:?}", change.log_lines);
        assert_eq!(log_lines(&mut reload, "[sever]"), [""; 0]);
        let gone = || found(Err("lately.toml: it is gone"));
        assert!(is_nothing(&reload.check(&live(), gone(), false)));
        assert_eq!(
            reload.check(&live(), gone(), false).log_lines,
            ["config: lately.toml: it is gone: the old config stays"]
        );
        assert!(is_nothing(&reload.check(&live(), gone(), false)));
        // The first good file after a bad one is logged, too.
        assert_eq!(log_lines(&mut reload, "# none"), [""; 0]);
        assert_eq!(log_lines(&mut reload, "# none"), ["config: lately.toml reloaded: 0 limits"]);
    }

    #[test]
    fn settings_that_need_a_restart_are_logged() {
        let mut reload = reload();
        let text = format!("[memory]\nceiling = \"2GiB\"\n[[class]]\nmatch = \"a\"\n{ONE}");
        let change = reload.check(&live(), found(Ok(&text)), true);
        let differs = ["memory.ceiling", "[[class]]"]
            .map(|name| format!("config: {name} differs: it takes effect at the next start"));
        assert_eq!(change.log_lines, [&differs[..], &[RELOADED.to_owned()]].concat());
        assert_eq!(limits(change).map(|limits| limits.len()), Some(1));
        assert_eq!(reload.check(&live(), found(Ok("")), true).log_lines.len(), 1);
    }

    #[test]
    fn a_missing_or_irregular_file_is_not_reread() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |name: &str| {
            let read = Source::read_again(&folder.path().join(name));
            read.map_err(|error| error.to_string().replace(&folder.path().display().to_string(), "."))
        };
        std::fs::write(folder.path().join("file"), ONE).expect("room");
        assert_eq!(read("file").as_deref(), Ok(ONE));
        assert_eq!(read("").err().as_deref(), Some("./: not a regular file: it cannot be read again"));
        assert!(read("gone").is_err_and(|error| error.starts_with("./gone: No such file")));
    }
}
