//! The levels in which others count: those of nodes with other classes, and of earlier starts with other classes.
//!
//! Each node writes its own table into the engine, where it stays as long as hits that were counted by it. So after a change of
//! the classes, all nodes read the hits that were counted before, and a deletion marks them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lately::{Level, LevelTable, Levels, LevelsId, PaneWidths, Pattern, Store, Tier, Timestamp};
use lately_engines::{Engine, EngineError, List};
use serde::{Deserialize, Serialize};

use super::reconcile::after;
use super::worker::parts;
use crate::limits::{
    BLOCK_SLACK_MS, MAX_LEVEL_TABLE_BYTES, MAX_LEVEL_TABLES, TABLE_RENEWED_AFTER_MS, TABLES_EVERY_MS,
    TABLES_RETRY_MS,
};
use crate::service::Service;

/// The tables that are known.
#[derive(Default)]
pub(super) struct Tables {
    known: Mutex<Known>,
    /// The longest retention of the classes here, in milliseconds.
    retain_ms: OnceLock<i64>,
}

#[derive(Default)]
struct Known {
    /// Tables as texts, and until when the engines must keep each.
    until_ms: BTreeMap<String, i64>,
    /// When each engine is read again.
    due: HashMap<Tier, Timestamp>,
    /// How often the tables of others have changed.
    changes: u64,
}

impl Tables {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the tables of others have changed.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Adds cells that hold a range of time as a whole, for hits of a pane that is wider than those of its class: it comes from a dump, or from an
    /// earlier start that told nobody of its classes. The other nodes get them as if they were those of another class. Not if the levels that
    /// have the range already are those of a class. False if nothing new was added.
    pub(super) fn add_around(
        &self,
        range_ms: (i64, i64),
        held: Option<LevelsId>,
        store: &Store,
        now: Timestamp,
    ) -> bool {
        let retain_ms = *self.retain_ms.get_or_init(|| store.level_table().retain_ms());
        let Some(levels) = Levels::around(range_ms, retain_ms) else { return false };
        if held.is_some_and(|held| held != levels.id()) {
            return false;
        }
        let table = LevelTable::new(Vec::new(), levels).expect("it has no classes");
        let is_new = self.lock().note(&write(&table), now.as_millis() + lasts_ms(&table));
        if is_new {
            let own = store.level_table();
            let mut known = self.lock();
            _ = known.give(store, &own);
            known.due.clear();
        }
        is_new
    }
}

/// A table as JSON in the engine. The last class has all other keys.
#[derive(Serialize, Deserialize)]
struct Text {
    classes: Vec<Class>,
}

#[derive(Serialize, Deserialize)]
struct Class {
    /// The pattern, with a character for each of its bytes.
    #[serde(rename = "match")]
    pattern: String,
    /// The width of the cells of each level, and from and until which age it is read, in milliseconds.
    levels: Vec<(i64, i64, i64)>,
    /// Until which age panes are as wide as the resolution, in milliseconds, and how wide older ones may be, in millionths of their age. Earlier
    /// versions did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    panes: Option<(i64, i64)>,
}

fn class(pattern: &[u8], levels: &Levels) -> Class {
    let level = |level: &Level| (level.width_ms, level.from_age_ms, level.until_age_ms);
    Class {
        pattern: pattern.iter().copied().map(char::from).collect(),
        levels: levels.as_slice().iter().map(level).collect(),
        panes: levels.pane_widths().map(|widths| (widths.exact_ms, widths.precision_ppm)),
    }
}

fn write(table: &LevelTable) -> String {
    let classes = table.classes().map(|(pattern, levels)| class(pattern.as_bytes(), levels));
    let text = Text { classes: classes.chain([class(b"*", table.default_levels())]).collect() };
    serde_json::to_string(&text).expect("it has texts and numbers")
}

/// Whether the table comes from [`Tables::add_around`], not from a class.
fn is_around(table: &LevelTable) -> bool {
    let levels = table.default_levels();
    let width_ms = levels.as_slice()[0].width_ms;
    table.classes().next().is_none()
        && Levels::around((0, width_ms), levels.retain_ms()).as_ref() == Some(levels)
}

/// How long a table is needed after a hit was counted by it, in milliseconds.
fn lasts_ms(table: &LevelTable) -> i64 {
    table.retain_ms() + BLOCK_SLACK_MS + TABLE_RENEWED_AFTER_MS
}

/// The table that a node wrote; `None` for anything else.
fn read(text: &str) -> Option<LevelTable> {
    if text.len() > MAX_LEVEL_TABLE_BYTES {
        return None;
    }
    let mut classes = Vec::new();
    for Class { pattern, levels, panes } in serde_json::from_str::<Text>(text).ok()?.classes {
        let level = |(width_ms, from_age_ms, until_age_ms)| Level { width_ms, from_age_ms, until_age_ms };
        let pattern: Option<Vec<u8>> = pattern.chars().map(|byte| u8::try_from(byte).ok()).collect();
        let widths = panes.map(|(exact_ms, precision_ppm)| PaneWidths { exact_ms, precision_ppm });
        let levels = Levels::from_list(levels.into_iter().map(level).collect(), widths)?;
        classes.push((Pattern::new(&pattern?), levels));
    }
    let (_, default) = classes.pop()?;
    LevelTable::new(classes, default)
}

/// Reads the tables that an engine has, and writes those that it lacks, if that `is_due` by now or by time. Returns a line for the log when others
/// count in levels that were not known, or when the engine refuses the tables: then counts are exchanged without them.
///
/// # Errors
/// [`EngineError::Away`]: the tables of others are not known.
pub(super) async fn renew(
    engine: &mut impl Engine,
    tier: Tier,
    service: &Service,
    is_due: bool,
) -> Result<Option<String>, EngineError> {
    let tables = &parts(service).0.tables;
    let now = service.now();
    if !is_due && tables.lock().due.get(&tier).is_some_and(|due| now < *due) {
        return Ok(None);
    }
    let (line, again_ms) = match exchange(engine, service, now).await {
        Ok(line) => (line, TABLES_EVERY_MS),
        Err(away @ EngineError::Away(_)) => return Err(away),
        Err(refused) => {
            let line = format!("the classes of other nodes: {refused}: hits of other classes may be missing");
            (Some(line), TABLES_RETRY_MS)
        }
    };
    tables.lock().due.insert(tier, after(now, again_ms));
    Ok(line)
}

async fn exchange(
    engine: &mut impl Engine,
    service: &Service,
    now: Timestamp,
) -> Result<Option<String>, EngineError> {
    let tables = &parts(service).0.tables;
    let now_ms = now.as_millis();
    let held = engine.texts(List::Levels).await?;
    let held: HashMap<String, i64> =
        held.into_iter().map(|(text, until_ms)| (text, until_ms.parse().unwrap_or(i64::MIN))).collect();
    let own = service.store.level_table();
    let in_use = held.iter().filter(|(_, until_ms)| now_ms <= **until_ms);
    let in_use: Vec<_> = in_use.map(|(text, &until_ms)| (text, until_ms, read(text))).collect();
    let unread = in_use.iter().any(|(.., table)| table.is_none()).then(|| {
        "a set of classes in the engine cannot be read, and may be of a later version: hits of its classes may be missing".to_owned()
    });
    let (needed, line) = {
        let known = &mut *tables.lock();
        let mut is_new = known.note(&write(&own), now_ms + lasts_ms(&own));
        for (text, until_ms, table) in &in_use {
            // A clock that is far ahead may have written it.
            let until_ms = |table: &LevelTable| (*until_ms).min(now_ms + lasts_ms(table));
            is_new |= table.as_ref().is_some_and(|table| known.note(text, until_ms(table)));
        }
        let count = known.until_ms.len();
        known.until_ms.retain(|_, until_ms| now_ms <= *until_ms);
        let line =
            if is_new || known.until_ms.len() < count { known.give(&service.store, &own) } else { None };
        (known.until_ms.clone(), line)
    };
    let last_ms = needed.values().max().map_or(0, |last_ms| last_ms - now_ms);
    let lasts = Duration::from_millis(u64::try_from(last_ms).unwrap_or(0));
    for (text, until_ms) in &needed {
        if held.get(text).is_none_or(|held_ms| held_ms.saturating_add(TABLE_RENEWED_AFTER_MS) < *until_ms) {
            engine.set_text(List::Levels, text, Some(&until_ms.to_string()), lasts).await?;
        }
    }
    // What this version cannot read may be of a later one.
    for (text, _) in held.iter().filter(|(_, until_ms)| **until_ms < now_ms) {
        engine.set_text(List::Levels, text, None, lasts).await?;
    }
    Ok(line.or(unread))
}

impl Known {
    /// Notes a table that is needed until then. True if it was not known.
    fn note(&mut self, text: &str, until_ms: i64) -> bool {
        let held = self.until_ms.get_mut(text);
        let is_new = held.is_none();
        match held {
            Some(held) => *held = until_ms.max(*held),
            None => _ = self.until_ms.insert(text.to_owned(), until_ms),
        }
        is_new
    }

    /// Gives the store the tables of others. Returns a line for the log.
    fn give(&mut self, store: &Store, own: &LevelTable) -> Option<String> {
        self.changes += 1;
        let mut others: Vec<(i64, LevelTable)> = Vec::new();
        for (text, &until_ms) in &self.until_ms {
            others.extend(read(text).filter(|table| table != own).map(|table| (until_ms, table)));
        }
        // First those of classes; of these, those that are needed longest.
        others.sort_by_key(|(until_ms, table)| (is_around(table), Reverse(*until_ms)));
        let count = others.len();
        others.truncate(MAX_LEVEL_TABLES);
        store.set_other_levels(others.into_iter().map(|(_, table)| table).collect());
        match count {
            0 => None,
            1..=MAX_LEVEL_TABLES => Some(format!(
                "other nodes have other classes, or had: hits are read in {count} more sets of widths"
            )),
            _ => Some(format!(
                "{count} sets of classes were in use in the cluster: hits of the oldest are not read, past {MAX_LEVEL_TABLES}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use lately::{Settings, days, hours, milliseconds, minutes};

    use super::*;

    fn levels(settings: &Settings) -> Levels {
        settings.levels().clone()
    }

    #[test]
    fn tables_are_read_as_they_were_written() {
        let fine =
            Settings::builder().resolution(milliseconds(10)).window(minutes(1)).build().expect("valid");
        let coarse = Settings::builder().resolution(hours(1)).window(hours(5)).build().expect("valid");
        let named =
            vec![(Pattern::new(b"ad:*"), levels(&fine)), (Pattern::new(b"\xff\"\\[\0"), levels(&coarse))];
        for named in [Vec::new(), named] {
            let table = LevelTable::new(named, levels(&Settings::default())).expect("few");
            assert_eq!(read(&write(&table)), Some(table));
        }
        for window in [minutes(1), minutes(7), hours(1), hours(30), days(6)] {
            for precision in [0.0001, 0.01, 0.5] {
                for resolution in [milliseconds(1), milliseconds(1_000), minutes(1)] {
                    let settings =
                        Settings::builder().resolution(resolution).window(window).precision(precision);
                    let Ok(settings) = settings.build() else { continue };
                    let table = LevelTable::new(Vec::new(), levels(&settings)).expect("few");
                    assert_eq!(read(&write(&table)), Some(table), "{window} {precision} {resolution}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_table_is_left_out() {
        let of = |levels: &str| format!("{{\"classes\":[{{\"match\":\"*\",\"levels\":[{levels}]}}]}}");
        assert!(read(&of("[1000,0,600000]")).is_some());
        assert!(read(&of("[1000,0,600000],[60000,600000,900000]")).is_some());
        for text in [
            String::new(),
            "{}".to_owned(),
            "{\"classes\":[]}".to_owned(),
            of(""),
            of("[1001,0,600000]"),
            of("[1000,1,600000]"),
            of("[1000,0,0]"),
            of("[1000,0,9223372036854775807]"),
            of("[1000,0,600000],[60000,700000,900000]"),
            of("[60000,0,600000],[1000,600000,900000]"),
            of("[1000,0,600000]").replace('*', "\u{100}"),
            of("[1000,0,600000]").replace('*', &"*".repeat(MAX_LEVEL_TABLE_BYTES)),
        ] {
            assert_eq!(read(&text), None, "{text}");
        }
    }
}
