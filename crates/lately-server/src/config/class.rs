//! `[[class]]`: settings of the keys a pattern matches.

use std::collections::BTreeSet;

use lately::limits::MAX_CLASSES;
use lately::{Pattern, Settings, SettingsError, Span};
use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use super::value::{Length, Match, Precision};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[class]]")]
pub(super) struct ClassConfig {
    #[serde(rename = "match")]
    pattern: Spanned<Match>,
    resolution: Option<Spanned<Length>>,
    window: Option<Spanned<Length>>,
    exact: Option<Spanned<Length>>,
    retain: Option<Spanned<Length>>,
    max_skew: Option<Spanned<Length>>,
    precision: Option<Spanned<Precision>>,
}

/// Checks all classes; a problem is placed at the first that is wrong.
pub(super) fn settle_all(classes: Vec<Spanned<ClassConfig>>) -> Result<Vec<(Pattern, Settings)>, Problem> {
    if let Some(class) = classes.get(MAX_CLASSES) {
        let message = SettingsError::Classes { most: MAX_CLASSES }.to_string();
        return Err(Problem { at: class.span(), message });
    }
    let mut patterns = BTreeSet::new();
    for class in &classes {
        let pattern = &class.get_ref().pattern;
        if !patterns.insert(pattern.get_ref().0.as_str()) {
            let message = format!(
                "a second class of the pattern '{}': the first one counts, remove one",
                pattern.get_ref().0
            );
            return Err(Problem { at: pattern.span(), message });
        }
    }
    classes.into_iter().map(settle).collect()
}

/// How long hits of any key are kept, at most. No key gets as far as what is behind a class of all.
pub(super) fn longest_retention(classes: &[(Pattern, Settings)]) -> Span {
    let all = classes.iter().position(|(pattern, _)| pattern.as_bytes() == b"*");
    let (met, rest) = match all {
        Some(all) => (&classes[..all], &classes[all].1),
        None => (classes, &Settings::default()),
    };
    met.iter().map(|(_, settings)| settings.retain()).fold(rest.retain(), Ord::max)
}

/// Checks a class's settings against each other; a problem is placed at the setting it is about.
fn settle(class: Spanned<ClassConfig>) -> Result<(Pattern, Settings), Problem> {
    let header = class.span();
    let class = class.into_inner();
    let length = |value: &Option<Spanned<Length>>| value.as_ref().map(|value| value.get_ref().0);
    let mut builder = Settings::builder();
    let set = |builder: lately::SettingsBuilder,
               setter: fn(lately::SettingsBuilder, Span) -> lately::SettingsBuilder,
               value: &Option<Spanned<Length>>| match length(value) {
        Some(span) => setter(builder, span),
        None => builder,
    };
    builder = set(builder, lately::SettingsBuilder::resolution, &class.resolution);
    builder = set(builder, lately::SettingsBuilder::window, &class.window);
    builder = set(builder, lately::SettingsBuilder::exact, &class.exact);
    builder = set(builder, lately::SettingsBuilder::retain, &class.retain);
    builder = set(builder, lately::SettingsBuilder::max_skew, &class.max_skew);
    if let Some(precision) = &class.precision {
        builder = builder.precision(precision.get_ref().0);
    }
    let settings = builder.build().map_err(|error| {
        let at = match error {
            SettingsError::Resolution { .. } => class.resolution.map(|value| value.span()),
            SettingsError::Precision { .. } => class.precision.map(|value| value.span()),
            SettingsError::ExactTooShort { .. } | SettingsError::ExactTooLong { .. } => {
                class.exact.map(|value| value.span())
            }
            SettingsError::RetainTooShort { what, .. } => {
                // Where it is not said it is the default, and the other is what does not fit.
                let other = if what == "window" { class.window } else { class.exact };
                class.retain.or(other).map(|value| value.span())
            }
            _ => None,
        };
        Problem { at: at.unwrap_or(header), message: error.to_string() }
    })?;
    Ok((Pattern::new(class.pattern.get_ref().0.as_bytes()), settings))
}
