//! `[storage]`: where counts are kept.

use std::path::PathBuf;
use std::str::FromStr;

use lately_journal::Durability;
use serde::{Deserialize, Deserializer, de};

/// The data folder and its durability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Storage {
    /// The folder. It is made if it does not exist.
    pub path: PathBuf,
    /// What an acknowledged hit survives.
    pub durability: Durability,
    /// Start although files are damaged, without the counts that cannot be read.
    pub repair: bool,
}

impl Default for Storage {
    fn default() -> Storage {
        Storage { path: PathBuf::from("./lately-data"), durability: Durability::Interval, repair: false }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table: [storage]")]
pub(super) struct StorageConfig {
    #[serde(default, deserialize_with = "folder")]
    path: Option<PathBuf>,
    durability: Option<Mode>,
}

/// The value of `durability`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode(Option<Durability>);

impl Mode {
    /// What an acknowledged hit survives; `None` for `off`.
    #[must_use]
    pub fn durability(self) -> Option<Durability> {
        self.0
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "off" => Ok(Mode(None)),
            "interval" => Ok(Mode(Some(Durability::Interval))),
            "always" => Ok(Mode(Some(Durability::Always))),
            _ => Err("give off, interval or always".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Mode, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|hint| de::Error::custom(format!("invalid durability '{text}': {hint}")))
    }
}

fn folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(de::Error::custom("path is empty: name a folder, or say durability = \"off\""));
    }
    parse_folder(&path)
        .map(Some)
        .map_err(|error| de::Error::custom(format!("invalid path '{path}': {error}")))
}

/// Parses the path of a folder. `~` and `$` are refused: no shell replaces them here, and a folder with that name would
/// be made.
///
/// # Errors
/// How to correct it.
pub fn parse_folder(text: &str) -> Result<PathBuf, String> {
    if text.starts_with(['~', '$']) {
        let why = "~ and $ are a shell's to replace, and none reads this";
        return Err(format!("{why}: write the whole path, or ./{text} if that is its name"));
    }
    Ok(PathBuf::from(text))
}

impl StorageConfig {
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    /// The storage settings; `None` keeps counts in memory only.
    pub(super) fn settle(self) -> Option<Storage> {
        let defaults = Storage::default();
        let durability = self.durability.map_or(Some(defaults.durability), Mode::durability)?;
        let path = self.path.unwrap_or(defaults.path);
        Some(Storage { path, durability, ..defaults })
    }
}
