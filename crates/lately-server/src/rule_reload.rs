//! Reloads the rules of envoyproxy/ratelimit when their files change, as [`crate::reload`] does for the config.
//!
//! Kubernetes mounts a folder whose files are links to `..data/…`, and moves the link `..data`. Contents are compared, so
//! that is found as well.

use std::sync::Arc;

use lately_ratelimit::Rules;

use crate::config::{RuleFiles, RuleFolder};

/// The state of the folder.
pub(crate) struct RuleReload {
    folder: RuleFolder,
    /// What was loaded or refused last: the files, or why they cannot be read.
    handled: Result<RuleFiles, String>,
    /// What the last check found, if it differs from `handled`.
    changed: Option<Result<RuleFiles, String>>,
}

/// The result of a load.
pub(crate) struct RuleChange {
    /// The new rules, or `None` if the old ones stay.
    pub(crate) rules: Option<Arc<Rules>>,
    pub(crate) log_line: String,
}

impl RuleReload {
    /// Remembers the files at the start.
    pub(crate) fn new(folder: RuleFolder) -> RuleReload {
        RuleReload { handled: Ok(folder.files.clone()), folder, changed: None }
    }

    /// Reads the files, and loads them when that is requested, or when two reads in a row find the same change.
    pub(crate) fn check(&mut self, is_requested: bool) -> Option<RuleChange> {
        let found = RuleFiles::read(&self.folder.path).map_err(|error| error.to_string());
        if !is_requested && found == self.handled {
            self.changed = None;
            return None;
        }
        if !is_requested && self.changed.as_ref() != Some(&found) {
            self.changed = Some(found);
            return None;
        }
        self.changed = None;
        self.handled = found;
        Some(self.load())
    }

    fn load(&self) -> RuleChange {
        let path = &self.folder.path;
        let loaded = self
            .handled
            .clone()
            .and_then(|files| RuleFolder::of(path.clone(), files).map_err(|error| error.to_string()));
        match loaded {
            Ok(folder) => {
                let log_line = format!("ratelimit-config: {} reloaded: {folder}", path.display());
                RuleChange { rules: Some(folder.rules), log_line }
            }
            Err(why) => {
                let log_line = format!("ratelimit-config: {why}: the old rules stay");
                RuleChange { rules: None, log_line }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const SHOP: &str =
        "domain: shop\ndescriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 1 } }]";

    fn reload(folder: &Path) -> RuleReload {
        fs::write(folder.join("shop.yaml"), "domain: shop").expect("room");
        RuleReload::new(RuleFolder::load(folder).expect("valid"))
    }

    /// The log line of a check, and whether it has new rules.
    fn check(reload: &mut RuleReload, is_requested: bool) -> Option<(String, bool)> {
        let change = reload.check(is_requested)?;
        let folder = reload.folder.path.display().to_string();
        Some((change.log_line.replace(&folder, "D"), change.rules.is_some()))
    }

    #[test]
    fn a_change_is_loaded_once_it_is_stable() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut reload = reload(folder.path());
        assert_eq!(check(&mut reload, false), None);
        for text in ["domain: s", SHOP] {
            fs::write(folder.path().join("shop.yaml"), text).expect("room");
            assert_eq!(check(&mut reload, false), None, "{text}");
        }
        let reloaded = Some(("ratelimit-config: D reloaded: 1 domain, 1 rule".to_owned(), true));
        assert_eq!(check(&mut reload, false), reloaded);
        assert_eq!(check(&mut reload, false), None);
        assert_eq!(check(&mut reload, true), reloaded);
        fs::write(folder.path().join("other.yaml"), "domain: other").expect("room");
        let reloaded = Some(("ratelimit-config: D reloaded: 2 domains, 1 rule".to_owned(), true));
        assert_eq!(check(&mut reload, true), reloaded);
    }

    #[test]
    fn a_mistake_is_logged_once_and_the_old_rules_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut reload = reload(folder.path());
        fs::write(folder.path().join("shop.yaml"), "domain: shop\nrules: []").expect("room");
        assert_eq!(check(&mut reload, false), None);
        let unknown = "ratelimit-config: D/shop.yaml:2:1: unknown key `rules`: a file has domain, descriptors: the old rules stay";
        assert_eq!(check(&mut reload, false), Some((unknown.to_owned(), false)));
        assert_eq!(check(&mut reload, false), None);
        fs::remove_file(folder.path().join("shop.yaml")).expect("it is there");
        assert_eq!(check(&mut reload, false), None);
        let none = "ratelimit-config: D: it has no files *.yaml: the old rules stay";
        assert_eq!(check(&mut reload, false), Some((none.to_owned(), false)));
        fs::write(folder.path().join("shop.yaml"), "domain: shop").expect("room");
        assert_eq!(check(&mut reload, false), None);
        let reloaded = "ratelimit-config: D reloaded: 1 domain, 0 rules";
        assert_eq!(check(&mut reload, false), Some((reloaded.to_owned(), true)));
    }
}
