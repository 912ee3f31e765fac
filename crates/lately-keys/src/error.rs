//! Invalid templates and networks.

use std::error::Error;
use std::fmt;

use crate::limits::MAX_KEY_FIELDS;

/// An invalid template or network.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The key template is invalid.
    Template {
        /// What was given.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// The key template has more than [`MAX_KEY_FIELDS`] fields.
    Fields {
        /// How many it has.
        fields: usize,
    },
    /// An exempt network cannot contain any key.
    Exempt {
        /// The network.
        text: String,
        /// The key template.
        key: String,
        /// The reason.
        cause: &'static str,
    },
    /// The network is invalid.
    Network {
        /// What was given.
        text: String,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Template { text, cause } => write!(
                f,
                "invalid template '{text}': {cause}; give a field, such as ip, or a template, such as '{{ip}} {{path}}'"
            ),
            KeyError::Fields { fields } => {
                write!(f, "a key of {fields} fields is too long: give at most {MAX_KEY_FIELDS}")
            }
            KeyError::Exempt { text, key, cause } => write!(
                f,
                "{text} exempts nothing of the key '{key}': {cause}; give a network as large as those of the key, and write an address as {{field/32/128}}"
            ),
            KeyError::Network { text } => {
                write!(f, "invalid network '{text}': give an address or a network, such as 10.0.0.0/8")
            }
        }
    }
}

impl Error for KeyError {}
