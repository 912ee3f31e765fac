//! `[[class]]`: settings of the keys a pattern matches.

use lately::{Pattern, Settings, SettingsError, Span};
use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use super::value::{Length, Match, Precision};
use crate::limits::MAX_CONFIG_CLASSES;

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
    dedupe: Option<Spanned<Length>>,
    #[serde(default)]
    top: bool,
    #[serde(default)]
    unique: bool,
}

/// Checks all classes. The problem points at the first wrong one.
pub(super) fn settle_all(classes: Vec<Spanned<ClassConfig>>) -> Result<Vec<(Pattern, Settings)>, Problem> {
    if let Some(class) = classes.get(MAX_CONFIG_CLASSES) {
        let message = SettingsError::Classes { most: MAX_CONFIG_CLASSES }.to_string();
        return Err(Problem { at: class.span(), message });
    }
    for (index, class) in classes.iter().enumerate() {
        let pattern = &class.get_ref().pattern;
        let of = |class: &Spanned<ClassConfig>| Pattern::new(class.get_ref().pattern.get_ref().0.as_bytes());
        if let Some(before) = classes[..index].iter().find(|before| covers(&of(before), &of(class))) {
            let before = &before.get_ref().pattern.get_ref().0;
            let message = if *before == pattern.get_ref().0 {
                format!("a second class of the pattern '{before}': the first one counts, remove one")
            } else {
                format!(
                    "no key gets to this class: '{before}', which comes before it, matches all its keys: move it to before that, or remove it"
                )
            };
            return Err(Problem { at: pattern.span(), message });
        }
    }
    classes.into_iter().map(settle).collect()
}

/// Whether a pattern is known to match all keys that another matches: the two are equal, the other matches one key, or
/// the first is a prefix and a star.
pub(super) fn covers(pattern: &Pattern, other: &Pattern) -> bool {
    let (start, rest) = literal(pattern.as_bytes());
    let (other_start, other_rest) = literal(other.as_bytes());
    let is_prefix = !rest.is_empty() && rest.iter().all(|&byte| byte == b'*');
    pattern == other
        || other_rest.is_empty() && pattern.matches(&other_start)
        || is_prefix && other_start.starts_with(&start)
}

/// The literal prefix of a pattern, and the rest.
fn literal(pattern: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut start, mut rest) = (Vec::new(), pattern);
    loop {
        match rest {
            [] | [b'*' | b'?' | b'[', ..] => return (start, rest),
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => {
                start.push(*byte);
                rest = tail;
            }
        }
    }
}

/// The longest retention of any key. When a class matches all keys, the default settings apply to none.
pub(super) fn longest_retention(classes: &[(Pattern, Settings)]) -> Span {
    let all = Pattern::new(b"*");
    let default = Settings::default();
    let rest = (!classes.iter().any(|(pattern, _)| covers(pattern, &all))).then_some(&default);
    let settings = classes.iter().map(|(_, settings)| settings).chain(rest);
    settings.map(Settings::retain).max().unwrap_or(default.retain())
}

/// Checks the settings of a class against each other. The problem points at the setting that is wrong.
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
    builder = set(builder, lately::SettingsBuilder::dedupe, &class.dedupe);
    builder = builder.top(class.top);
    builder = builder.unique(class.unique);
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
                // When it is not given it has its default, and the other setting is the wrong one.
                let other = match what {
                    "window" => class.window,
                    "dedupe" => class.dedupe,
                    _ => class.exact,
                };
                class.retain.or(other).map(|value| value.span())
            }
            _ => None,
        };
        Problem { at: at.unwrap_or(header), message: error.to_string() }
    })?;
    Ok((Pattern::new(class.pattern.get_ref().0.as_bytes()), settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_covering_pattern_matches_all_keys_of_another() {
        let check = |pattern: &str, other: &str, expected: bool| {
            let [pattern, other] = [pattern, other].map(|text| Pattern::new(text.as_bytes()));
            assert_eq!(covers(&pattern, &other), expected, "{pattern:?} {other:?}");
        };
        for covered in ["*", "**", "a", "a*", "?", "[ab]*", "\\*"] {
            check("*", covered, true);
            check("**", covered, true);
        }
        check("ad:*", "ad:slow:*", true);
        check("ad:*", "ad:?[0-9]", true);
        check("ad:*", "ad:", true);
        check("ad:*", "\\ad:x*", true);
        check("a?c", "abc", true);
        check("a?c", "a?c", true);
        check("a\\*", "a*", false);
        check("a\\*", "a\\*", true);
        check("ad:*", "ad*", false);
        check("ad:*", "*", false);
        check("ad:*", "?d:x", false);
        check("ad", "ad:*", false);
        check("ad", "ad*", false);
        check("a*c", "abc", true);
        check("a*c", "ab*", false);
        check("?*", "a", true);
    }
}
