//! The descriptors of a domain, level by level.

use std::collections::HashMap;

use crate::rule::RuleNumber;
use crate::wildcard::Wildcard;

/// Descriptors beside each other.
#[derive(Default, Debug)]
pub(crate) struct Level(HashMap<Box<str>, Key>);

/// The descriptors of a level that have the same key.
#[derive(Default, Debug)]
struct Key {
    /// The lines of all, by their values.
    lines: HashMap<Box<str>, usize>,
    exact: HashMap<Box<str>, Descriptor>,
    /// In the order of the file: the first that matches counts.
    wildcards: Vec<(Wildcard, Descriptor)>,
    /// The one without a value.
    any: Option<Box<Descriptor>>,
}

/// A descriptor of a file.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) rule: Option<RuleNumber>,
    /// All values that match it are counted together.
    pub(crate) shares_threshold: bool,
    /// Its statistics name the value, where the file does not.
    pub(crate) has_value_in_metric: bool,
    pub(crate) level: Level,
}

/// How a descriptor of a file matches an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'t> {
    Exact,
    /// By this text, which has a `*`.
    Wildcard(&'t str),
    /// It has no value.
    Any,
}

impl Level {
    /// Adds the descriptor of this line. An empty value is none.
    ///
    /// # Errors
    /// The line of the descriptor that has the same key and value.
    pub(crate) fn insert(
        &mut self,
        (key, value): (&str, &str),
        line: usize,
        descriptor: Descriptor,
    ) -> Result<(), usize> {
        let of_key = self.0.entry(key.into()).or_default();
        if let Some(first) = of_key.lines.insert(value.into(), line) {
            return Err(first);
        }
        match Wildcard::new(value) {
            _ if value.is_empty() => of_key.any = Some(Box::new(descriptor)),
            Some(wildcard) => of_key.wildcards.push((wildcard, descriptor)),
            None => drop(of_key.exact.insert(value.into(), descriptor)),
        }
        Ok(())
    }

    /// The descriptor for an entry: the one with its value, else the first with a `*` that matches, else the one without
    /// a value.
    pub(crate) fn find(&self, key: &str, value: &str) -> Option<(&Descriptor, How<'_>)> {
        let of_key = self.0.get(key)?;
        if let Some(exact) = of_key.exact.get(value) {
            return Some((exact, How::Exact));
        }
        if let Some((wildcard, descriptor)) = of_key.wildcards.iter().find(|(it, _)| it.matches(value)) {
            return Some((descriptor, How::Wildcard(&wildcard.text)));
        }
        of_key.any.as_deref().map(|any| (any, How::Any))
    }
}
