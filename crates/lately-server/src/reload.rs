//! Reloads the config file while the server runs. New limits take effect at once, everything else at the next start.
//!
//! The file is read once a second and its content compared with what was loaded. A change is loaded when two reads in
//! a row find the same content, because an editor writes in pieces. Content is compared, not the time or the inode:
//! that finds every kind of change, whether the file is written in place, replaced, or reached by a link that moved, as
//! in Kubernetes. SIGHUP has the file read and loaded at once.
//!
//! A file with a mistake changes nothing. The mistake is logged once per content, and again after each SIGHUP.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use crate::config::{Config, NamedLimit, Source};
use crate::limits::CONFIG_LOOK_EVERY;
use crate::service::Service;
use crate::stopper::Stopper;

/// Makes a server reload its config file. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Reloader(Arc<Notify>);

impl Reloader {
    /// Requests a reload. The server logs the result: see [`Server::log_to`](crate::Server::log_to).
    pub fn reload(&self) {
        self.0.notify_one();
    }
}

/// The content of the file, or why it cannot be read.
type Content = Result<String, String>;

/// The state of the file.
struct Reload {
    source: Source,
    /// The config at the start.
    started: Config,
    /// The content that was loaded or refused last.
    judged: Content,
    /// The content that the last look found, if it differs from `judged`.
    changed: Option<Content>,
}

/// The result of a look.
#[derive(Default, PartialEq, Debug)]
struct Change {
    /// The new limits, if they replace the old ones.
    limits: Option<Vec<NamedLimit>>,
    /// Lines to log.
    news: Vec<String>,
}

/// Checks the file for changes until the server stops.
pub(crate) async fn keep(
    service: Arc<Service>,
    source: Option<Source>,
    (reloader, stopper): (Reloader, Stopper),
    tell: impl Fn(&str),
) {
    let mut ticks = tokio::time::interval(CONFIG_LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let is_watched = source.as_ref().is_some_and(|source| source.is_regular);
    let mut kept = source.map(Reload::new);
    loop {
        let is_asked = tokio::select! {
            _ = ticks.tick(), if is_watched => false,
            () = reloader.0.notified() => true,
            () = stopper.stopped() => return,
        };
        let Some(mut reload) = kept.take() else {
            tell("config: there is no file to reload: the server was started without --config");
            continue;
        };
        // Reading may block on a slow disk.
        let looking = tokio::task::spawn_blocking(move || {
            let found = Source::read_again(&reload.source.path).map_err(|error| error.to_string());
            let change = reload.look(found, is_asked);
            (reload, change)
        });
        let (reload, Change { limits, news }) = tokio::select! {
            looked = looking => looked.expect("a panic is a bug that has been reported"),
            () = stopper.stopped() => return,
        };
        kept = Some(reload);
        if let Some(limits) = limits {
            service.rules.replace(&limits);
        }
        news.iter().for_each(|news| tell(news));
    }
}

impl Reload {
    fn new(source: Source) -> Reload {
        let started = Config::parse(&source.text).unwrap_or_default();
        let judged = Ok(source.text.clone());
        Reload { source, started, judged, changed: None }
    }

    /// Compares the content with what was loaded, and loads it when it is requested or stable.
    fn look(&mut self, found: Content, is_asked: bool) -> Change {
        if !is_asked && found == self.judged {
            self.changed = None;
            return Change::default();
        }
        if !is_asked && self.changed.as_ref() != Some(&found) {
            self.changed = Some(found);
            return Change::default();
        }
        self.changed = None;
        let change = self.judge(&found);
        self.judged = found;
        change
    }

    fn judge(&self, found: &Content) -> Change {
        let path = &self.source.path;
        let config = found
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|text| not_empty(text).ok_or_else(|| format!("{} is empty", path.display())))
            .and_then(|text| Config::parse(text).map_err(|problem| problem.in_file(path, text).to_string()));
        let config = match config {
            Ok(config) => config,
            Err(why) => {
                let news = vec![format!("config: {why}: the old config stays")];
                return Change { limits: None, news };
            }
        };
        let differs = |name| format!("config: {name} differs: it takes effect at the next start");
        let limits = config.limits.len();
        let noun = if limits == 1 { "limit" } else { "limits" };
        let reloaded = format!("config: {} reloaded: {limits} {noun}", path.display());
        let news =
            self.started.fixed_differences(&config).into_iter().map(differs).chain([reloaded]).collect();
        Change { limits: Some(config.limits), news }
    }
}

/// Refuses an empty file. It is a valid config, but while the server runs it is more likely a file being rewritten.
fn not_empty(text: &String) -> Option<&String> {
    Some(text).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[limit]]\nname = \"a\"\nmax = 1\nwindow = 1\n";
    const RELOADED: &str = "config: lately.toml reloaded: 1 limit";

    fn reload() -> Reload {
        Reload::new(Source { path: "lately.toml".into(), text: String::new(), is_regular: true })
    }

    /// The lines logged after a look that finds this content.
    fn news(reload: &mut Reload, found: &str) -> Vec<String> {
        reload.look(Ok(found.to_owned()), false).news
    }

    #[test]
    fn a_change_is_loaded_once_it_is_stable() {
        let mut reload = reload();
        assert_eq!(news(&mut reload, ""), [""; 0]);
        // While a file is being written it may be empty, or half of it may be valid.
        for found in [ONE, "# a", "# ab", "# a", " \n"] {
            assert_eq!(news(&mut reload, found), [""; 0], "{found}");
        }
        assert_eq!(news(&mut reload, ONE), [""; 0]);
        let change = reload.look(Ok(ONE.to_owned()), false);
        assert_eq!(change.news, [RELOADED]);
        assert_eq!(change.limits.map(|limits| limits[0].name.clone()), Some("a".to_owned()));
        assert_eq!(reload.look(Ok(ONE.to_owned()), false), Change::default());
        assert_eq!(
            [news(&mut reload, "# none"), news(&mut reload, "# none")].concat(),
            ["config: lately.toml reloaded: 0 limits"]
        );
        // An editor empties the file first.
        assert_eq!(
            [news(&mut reload, "\n"), news(&mut reload, "\n")].concat(),
            ["config: lately.toml is empty: the old config stays"]
        );
    }

    #[test]
    fn a_requested_reload_happens_at_once() {
        let mut reload = reload();
        let mut ask = |found: &str| reload.look(Ok(found.to_owned()), true);
        assert_eq!(ask(ONE).news, [RELOADED]);
        assert_eq!(ask(ONE).news, [RELOADED]);
        assert_eq!(
            ask("x").news,
            [
                "config: lately.toml:1:2: write `x = …`: a key and its value have = between them: the old config stays"
            ]
        );
        assert_eq!(ask("x").news.len(), 1);
        // A look does not log it again.
        assert_eq!(news(&mut reload, "x"), [""; 0]);
        assert_eq!(news(&mut reload, "x"), [""; 0]);
    }

    #[test]
    fn a_bad_file_is_logged_once_and_changes_nothing() {
        let mut reload = reload();
        assert_eq!(news(&mut reload, "[sever]"), [""; 0]);
        let change = reload.look(Ok("[sever]".to_owned()), false);
        assert_eq!(change.limits, None);
        assert!(
            change.news[0].starts_with("config: lately.toml:1:2: unknown field `sever`"),
            "{:?}",
            change.news
        );
        assert!(change.news[0].ends_with(": the old config stays"), "{:?}", change.news);
        assert_eq!(news(&mut reload, "[sever]"), [""; 0]);
        let gone = || Err("lately.toml: it is gone".to_owned());
        assert_eq!(reload.look(gone(), false), Change::default());
        assert_eq!(
            reload.look(gone(), false).news,
            ["config: lately.toml: it is gone: the old config stays"]
        );
        assert_eq!(reload.look(gone(), false), Change::default());
        // The first good file after a bad one is logged, too.
        assert_eq!(news(&mut reload, "# none"), [""; 0]);
        assert_eq!(news(&mut reload, "# none"), ["config: lately.toml reloaded: 0 limits"]);
    }

    #[test]
    fn settings_that_need_a_restart_are_logged() {
        let mut reload = reload();
        let text = format!("[memory]\nceiling = \"2GiB\"\n[[class]]\nmatch = \"a\"\n{ONE}");
        let change = reload.look(Ok(text), true);
        let differs = ["memory.ceiling", "[[class]]"]
            .map(|name| format!("config: {name} differs: it takes effect at the next start"));
        assert_eq!(change.news, [&differs[..], &[RELOADED.to_owned()]].concat());
        assert_eq!(change.limits.map(|limits| limits.len()), Some(1));
        assert_eq!(reload.look(Ok(String::new()), true).news.len(), 1);
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
