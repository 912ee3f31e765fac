//! A better error for `[class]` in place of `[[class]]`, and for `[[server]]` in place of `[server]`.

use toml::de::{DeTable, DeValue};

use super::error::Problem;

/// Refuses the first table with the wrong number of brackets.
pub(super) fn check(document: &DeTable<'_>) -> Result<(), Problem> {
    for name in ["class", "limit", "alert", "user", "history"] {
        if let Some((key, value)) = document.get_key_value(name)
            && !matches!(value.get_ref(), DeValue::Array(_))
        {
            let message = format!("write [[{name}]], with two brackets: there may be several");
            return Err(Problem { at: key.span(), message });
        }
    }
    for name in ["server", "storage", "memory", "cluster", "otlp"] {
        if let Some((key, value)) = document.get_key_value(name)
            && matches!(value.get_ref(), DeValue::Array(_))
        {
            let message = format!("write [{name}], with one bracket: there is only one");
            return Err(Problem { at: key.span(), message });
        }
    }
    Ok(())
}
