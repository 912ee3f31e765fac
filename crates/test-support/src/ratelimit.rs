//! A naive model of the rules of envoyproxy/ratelimit: descriptors as they are in a file, searched one by one. It is drawn
//! from bytes, so that a fuzzer and a property test have the same one.

use std::fmt::Write;

/// A descriptor of a file.
#[derive(Clone, Debug)]
pub struct ModelDescriptor {
    /// Its key.
    pub key: &'static str,
    /// Its value, empty if it has none.
    pub value: &'static str,
    /// `share_threshold`
    pub shares: bool,
    /// `value_to_metric`
    pub names_value: bool,
    /// `rate_limit`
    pub rule: Option<ModelRule>,
    /// `descriptors`
    pub below: Vec<ModelDescriptor>,
}

/// The `rate_limit` of a descriptor, with the flags beside it.
#[derive(Clone, Debug)]
pub struct ModelRule {
    /// `requests_per_unit`, or `None` for `unlimited`.
    pub requests: Option<u32>,
    /// `name`, empty if it has none.
    pub name: &'static str,
    /// `replaces`
    pub replaces: Vec<&'static str>,
    /// `shadow_mode`
    pub is_shadow: bool,
    /// `quota_mode`
    pub is_quota: bool,
    /// `detailed_metric`
    pub is_detailed: bool,
}

/// The entries of a descriptor of a request.
pub type ModelEntries = Vec<(&'static str, &'static str)>;

/// What the model finds for a descriptor of a request.
#[derive(Clone, Debug)]
pub struct ModelFound<'m> {
    /// The rule.
    pub rule: &'m ModelRule,
    /// The entries that are counted: with the value of the file where that is shared.
    pub counted: ModelEntries,
    /// The name of the statistics.
    pub metric: String,
}

const KEYS: [&str; 2] = ["a", "b"];
const VALUES: [&str; 8] = ["", "x", "xy", "x*", "*y", "x*y", "*", "x*x*"];
const ENTRY_VALUES: [&str; 7] = ["", "x", "xy", "xxy", "y", "z", "x*"];
const NAMES: [&str; 3] = ["", "one", "two"];
/// Levels of descriptors, and descriptors beside each other.
const MAX_LEVELS: usize = 3;
const MAX_BESIDE: usize = 4;

/// Bytes that choices are made by. After the last one, every choice is the first.
#[derive(Debug)]
pub struct Choices<'b>(pub &'b [u8]);

impl Choices<'_> {
    fn below(&mut self, most: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % most
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// True once in this many times.
    fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// The descriptors of a domain.
    pub fn descriptors(&mut self) -> Vec<ModelDescriptor> {
        self.level(MAX_LEVELS)
    }

    fn level(&mut self, levels: usize) -> Vec<ModelDescriptor> {
        let mut level: Vec<ModelDescriptor> = Vec::new();
        for _ in 0..self.below(MAX_BESIDE + 1) {
            let (key, value) = (self.one(&KEYS), self.one(&VALUES));
            let shares = value.contains('*') && self.rarely(2);
            let (names_value, has_rule) = (self.rarely(3), !self.rarely(4));
            let rule = has_rule.then(|| self.rule());
            let below = if levels > 1 { self.level(levels - 1) } else { Vec::new() };
            if !level.iter().any(|other| (other.key, other.value) == (key, value)) {
                level.push(ModelDescriptor { key, value, shares, names_value, rule, below });
            }
        }
        level
    }

    fn rule(&mut self) -> ModelRule {
        let requests = (!self.rarely(6)).then(|| self.one(&[2, 1, 0, 3, 10]));
        let name = self.one(&NAMES);
        let replaced = self.one(&["", "", "one", "two"]);
        let replaces = [replaced].into_iter().filter(|other| !other.is_empty() && *other != name).collect();
        let [is_shadow, is_quota, is_detailed] = [5, 3, 4].map(|times| self.rarely(times));
        ModelRule { requests, name, replaces, is_shadow, is_quota, is_detailed }
    }

    /// The descriptors of a request, each with its hits.
    pub fn request(&mut self) -> Vec<(ModelEntries, u64)> {
        let descriptors = 1 + self.below(3);
        let descriptor = |choices: &mut Self| {
            let length = choices.below(MAX_LEVELS + 2);
            let entries = (0..length).map(|_| (choices.one(&KEYS), choices.one(&ENTRY_VALUES))).collect();
            (entries, choices.one(&[1, 1, 1, 2, 0, 5]))
        };
        (0..descriptors).map(|_| descriptor(self)).collect()
    }

    /// Whether all bytes are used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The file of a domain. Limits are by the hour.
#[must_use]
pub fn model_file(domain: &str, descriptors: &[ModelDescriptor]) -> String {
    let mut text = format!("domain: {domain}\n");
    write_level(&mut text, descriptors, 0);
    text
}

fn write_level(text: &mut String, level: &[ModelDescriptor], indent: usize) {
    let space = " ".repeat(indent);
    if level.is_empty() {
        return;
    }
    let _ = writeln!(text, "{space}descriptors:");
    for ModelDescriptor { key, value, shares, names_value, rule, below } in level {
        let _ = writeln!(text, "{space}- key: {key}");
        if !value.is_empty() {
            let _ = writeln!(text, "{space}  value: \"{value}\"");
        }
        let mut flag = |name: &str, is_set: bool| {
            if is_set {
                let _ = writeln!(text, "{space}  {name}: true");
            }
        };
        flag("share_threshold", *shares);
        flag("value_to_metric", *names_value);
        if let Some(ModelRule { requests, name, replaces, is_shadow, is_quota, is_detailed }) = rule {
            flag("shadow_mode", *is_shadow);
            flag("quota_mode", *is_quota);
            flag("detailed_metric", *is_detailed);
            let limit = requests.map_or("unlimited: true".to_owned(), |requests| {
                format!("unit: hour\n{space}    requests_per_unit: {requests}")
            });
            let _ = writeln!(text, "{space}  rate_limit:\n{space}    {limit}");
            if !name.is_empty() {
                let _ = writeln!(text, "{space}    name: {name}");
            }
            for replaced in replaces {
                let _ = writeln!(text, "{space}    replaces: [{{ name: {replaced} }}]");
            }
        }
        write_level(text, below, indent + 2);
    }
}

/// What there is for the descriptors of a request.
#[must_use]
pub fn model_find<'m>(
    descriptors: &'m [ModelDescriptor],
    request: &[(ModelEntries, u64)],
) -> Vec<Option<ModelFound<'m>>> {
    let mut found: Vec<_> = request.iter().map(|(entries, _)| find(descriptors, entries)).collect();
    let all: Vec<&ModelRule> = found.iter().flatten().map(|found: &ModelFound<'_>| found.rule).collect();
    for place in &mut found {
        let is_replaced = place.as_ref().is_some_and(|found| {
            let name = found.rule.name;
            found.rule.requests.is_some() && all.iter().any(|rule| rule.replaces.contains(&name))
        });
        if is_replaced {
            *place = None;
        }
    }
    found
}

fn find<'m>(mut level: &'m [ModelDescriptor], entries: &ModelEntries) -> Option<ModelFound<'m>> {
    let mut way = Vec::new();
    for (key, value) in entries {
        let of_key = || level.iter().filter(|descriptor| descriptor.key == *key);
        let exact = of_key().find(|it| !it.value.is_empty() && !it.value.contains('*') && it.value == *value);
        let starred = || of_key().find(|it| it.value.contains('*') && matches(it.value, value));
        let any = || of_key().find(|it| it.value.is_empty());
        let descriptor = exact.or_else(starred).or_else(any)?;
        way.push(descriptor);
        level = &descriptor.below;
    }
    let rule = way.last()?.rule.as_ref()?;
    let (mut counted, mut names) = (Vec::new(), Vec::new());
    for (descriptor, (key, value)) in way.iter().zip(entries) {
        let is_shared = descriptor.shares && descriptor.value.contains('*');
        counted.push((*key, if is_shared { descriptor.value } else { value }));
        let shown = match (is_shared, rule.is_detailed || descriptor.names_value) {
            (false, true) => value,
            _ => descriptor.value,
        };
        names.push(if shown.is_empty() { (*key).to_owned() } else { format!("{key}_{shown}") });
    }
    Some(ModelFound { rule, counted, metric: names.join(".") })
}

/// Whether a value is like a text in which `*` stands for any text.
fn matches(pattern: &str, value: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => value.is_empty(),
        Some(("*", rest)) => (0..=value.len()).any(|start| matches(rest, &value[start..])),
        Some((first, rest)) => value.strip_prefix(first).is_some_and(|value| matches(rest, value)),
    }
}
