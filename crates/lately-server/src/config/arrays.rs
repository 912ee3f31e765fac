//! Tables that there may be several of: each has two brackets. One bracket is an easy slip, and what TOML makes of it
//! says nothing to whoever made it.

use toml::de::{DeTable, DeValue};

use super::error::Problem;

/// Refuses the first such table that is a single one, or no table; and the first that there is only one of and has two brackets.
pub(super) fn check(document: &DeTable<'_>) -> Result<(), Problem> {
    for name in ["class", "limit"] {
        if let Some((key, value)) = document.get_key_value(name)
            && !matches!(value.get_ref(), DeValue::Array(_))
        {
            let message = format!("write [[{name}]], with two brackets: there may be several");
            return Err(Problem { at: key.span(), message });
        }
    }
    for name in ["server", "storage", "memory"] {
        if let Some((key, value)) = document.get_key_value(name)
            && matches!(value.get_ref(), DeValue::Array(_))
        {
            let message = format!("write [{name}], with one bracket: there is only one");
            return Err(Problem { at: key.span(), message });
        }
    }
    Ok(())
}
