//! The rules of all files, and the search among them.

use std::collections::HashMap;

use crate::error::{Place, Problem, RulesError};
use crate::file::{self, Domain, Read};
use crate::limits::{MAX_RULES_BYTES, MAX_YAML_NODES};
use crate::rule::{Rule, RuleNumber};
use crate::tree::{How, Level};
use crate::yaml;

/// The rules of a set of files. Each file has one domain.
#[derive(Default, Debug)]
pub struct Rules {
    domains: HashMap<Box<str>, Level>,
    rules: Vec<Rule>,
}

/// The rule for a descriptor of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<'r> {
    /// Its index.
    pub number: RuleNumber,
    /// For each entry: the value with `*` that is counted in place of its own.
    pub shared: Vec<Option<&'r str>>,
    /// The name of the statistics, if it is not the path of the rule.
    pub metric: Option<String>,
}

impl Rules {
    /// Reads files, each given by its name and its text.
    ///
    /// # Errors
    /// [`RulesError`]: the first mistake, or the first thing that is not supported.
    pub fn parse<N: AsRef<str>, T: AsRef<str>>(files: &[(N, T)]) -> Result<Rules, RulesError> {
        let (mut read, mut left_nodes, mut left_bytes) = (Read::default(), MAX_YAML_NODES, MAX_RULES_BYTES);
        let mut domains: HashMap<Box<str>, Level> = HashMap::new();
        let mut first_files: HashMap<Box<str>, &str> = HashMap::new();
        for (name, text) in files {
            let (name, text) = (name.as_ref(), text.as_ref());
            let domain = check_length(text, &mut left_bytes)
                .and_then(|()| yaml::parse(text, &mut left_nodes))
                .and_then(|root| file::read(root, &mut read))
                .map_err(|problem| problem.in_file(name))?;
            let Domain { name: domain, at, level } = domain;
            if let Some(first) = first_files.insert(domain.clone(), name) {
                let message = format!("a second file for the domain '{domain}': the first is {first}");
                return Err(Problem::new(at, message).in_file(name));
            }
            domains.insert(domain, level);
        }
        Ok(Rules { domains, rules: read.rules })
    }

    /// Whether a file is for this domain.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The number of domains.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// The rule of an index that these rules gave.
    ///
    /// # Panics
    /// If other rules gave the index.
    #[must_use]
    pub fn rule(&self, number: RuleNumber) -> &Rule {
        &self.rules[number.index()]
    }

    /// All rules, in the order of the files.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule for a descriptor. At each level the value itself counts before values with `*`, and those before no value.
    /// There is no rule if the levels end before the entries, or have none where the entries end.
    #[must_use]
    pub fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<Found<'_>> {
        let mut level = self.domains.get(domain)?;
        let mut steps = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (descriptor, how) = level.find(key, value)?;
            steps.push((descriptor, how));
            level = &descriptor.level;
        }
        let number = steps.last()?.0.rule?;
        let shared = steps.iter().map(|(descriptor, how)| match how {
            How::Wildcard(text) if descriptor.shares_threshold => Some(*text),
            _ => None,
        });
        let shared: Vec<Option<&str>> = shared.collect();
        let rule = self.rule(number);
        let names_values = steps.iter().any(|(descriptor, _)| descriptor.has_value_in_metric);
        let metric = (rule.has_detailed_metric || names_values).then(|| {
            let values = steps.iter().zip(entries).zip(&shared).map(
                |(((descriptor, how), (_, value)), shared)| match (shared, how) {
                    (Some(text), _) => text,
                    _ if rule.has_detailed_metric || descriptor.has_value_in_metric => *value,
                    (None, How::Exact) => *value,
                    (None, How::Wildcard(text)) => *text,
                    (None, How::Any) => "",
                },
            );
            path(entries.iter().map(|(key, _)| *key).zip(values))
        });
        Some(Found { number, shared, metric: metric.filter(|metric| **metric != *rule.path) })
    }

    /// Removes the rules that others of the same request replace. The rules were found for the descriptors of a request.
    pub fn drop_replaced(&self, found: &mut [Option<Found<'_>>]) {
        let rule = |found: &Option<Found<'_>>| found.as_ref().map(|found| self.rule(found.number));
        let replaced: Vec<&str> =
            found.iter().filter_map(rule).flat_map(|rule| &rule.replaces).map(|name| &**name).collect();
        for found in found {
            // An unlimited rule takes part in no count that another could replace.
            let is_replaced = rule(found).is_some_and(|rule| {
                rule.limit.is_some() && !rule.name.is_empty() && replaced.contains(&&*rule.name)
            });
            if is_replaced {
                *found = None;
            }
        }
    }
}

/// Keys with their values, as the path of a rule has them: `key_value.key`.
#[must_use]
pub fn path<'p>(entries: impl Iterator<Item = (&'p str, &'p str)>) -> String {
    let mut path = String::new();
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            path.push('.');
        }
        path.push_str(key);
        if !value.is_empty() {
            path.push('_');
            path.push_str(value);
        }
    }
    path
}

fn check_length(text: &str, left_bytes: &mut usize) -> Result<(), Problem> {
    *left_bytes = left_bytes.checked_sub(text.len()).ok_or_else(|| {
        let at = Place { line: 1, column: 1 };
        Problem::new(at, format!("too long: the files together have at most {MAX_RULES_BYTES} bytes"))
    })?;
    Ok(())
}
