//! Reads the descriptors of a file, and checks them.

use std::rc::Rc;

use crate::error::{Place, Problem, shown};
use crate::limits::{
    MAX_RULE_DEPTH, MAX_RULE_DESCRIPTORS, MAX_RULE_NAME_BYTES, MAX_RULE_PATH_BYTES, MAX_RULE_REPLACES,
};
use crate::rule::{Limit, Rule, RuleNumber, Unit};
use crate::tree::{Descriptor, Level};
use crate::yaml::{Kind, Node};

/// What was read of all files so far.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) rules: Vec<Rule>,
    descriptors: usize,
}

/// A domain, and where the file names it.
pub(crate) struct Domain {
    pub(crate) name: Box<str>,
    pub(crate) at: Place,
    pub(crate) level: Level,
}

/// The keys of a file, of a descriptor, of `rate_limit`, and of an entry of `replaces`.
const FILE: Keys = Keys { place: "a file", names: &["domain", "descriptors"] };
const DESCRIPTOR: Keys = Keys {
    place: "a descriptor",
    names: &[
        "key",
        "value",
        "rate_limit",
        "descriptors",
        "shadow_mode",
        "quota_mode",
        "share_threshold",
        "detailed_metric",
        "value_to_metric",
    ],
};
const RATE_LIMIT: Keys =
    Keys { place: "`rate_limit`", names: &["unit", "requests_per_unit", "unlimited", "name", "replaces"] };
const REPLACES: Keys = Keys { place: "an entry of `replaces`", names: &["name"] };

/// The keys that a map may have.
struct Keys {
    place: &'static str,
    names: &'static [&'static str],
}

/// A map whose keys are known.
struct Fields<'n> {
    fields: Vec<(&'n str, &'n Node)>,
}

/// The way to a descriptor.
struct Parent<'p> {
    domain: &'p str,
    /// The path of the descriptors above, with a dot behind each.
    path: &'p str,
    depth: usize,
}

/// Reads the only document of a file.
pub(crate) fn read(root: Option<Rc<Node>>, read: &mut Read) -> Result<Domain, Problem> {
    let start = Place { line: 1, column: 1 };
    let root = root.ok_or_else(|| Problem::new(start, "an empty file: write its `domain`"))?;
    let fields = Fields::of(&root, &FILE)?;
    let domain = fields.text("domain")?.filter(|(_, name)| !name.is_empty());
    let (at, name) = domain.ok_or_else(|| Problem::new(root.at, "a file needs a `domain`"))?;
    check_name("domain", name, at)?;
    let parent = Parent { domain: name, path: "", depth: 0 };
    Ok(Domain { name: name.into(), at, level: level(&fields, &parent, read)? })
}

/// Reads `descriptors`.
fn level(fields: &Fields<'_>, parent: &Parent<'_>, read: &mut Read) -> Result<Level, Problem> {
    let mut level = Level::default();
    for node in fields.list("descriptors")? {
        let fields = Fields::of(node, &DESCRIPTOR)?;
        descriptor(&fields, node.at, parent, &mut level, read)?;
    }
    Ok(level)
}

/// Reads a descriptor, and adds it to its level.
fn descriptor(
    fields: &Fields<'_>,
    at: Place,
    parent: &Parent<'_>,
    level: &mut Level,
    read: &mut Read,
) -> Result<(), Problem> {
    read.descriptors += 1;
    if read.descriptors > MAX_RULE_DESCRIPTORS {
        return Err(Problem::new(
            at,
            format!("too many descriptors: at most {MAX_RULE_DESCRIPTORS} in all files"),
        ));
    }
    if parent.depth == MAX_RULE_DEPTH {
        return Err(Problem::new(
            at,
            format!("nested too deep: at most {MAX_RULE_DEPTH} levels of descriptors"),
        ));
    }
    let key = fields.text("key")?.filter(|(_, key)| !key.is_empty());
    let (_, key) = key.ok_or_else(|| Problem::new(at, "a descriptor needs a `key`"))?;
    if key.contains('*') {
        let message = format!("`*` in the key '{}' is not supported: only values may have it", shown(key));
        return Err(Problem::new(at, message));
    }
    let (value_at, value) = fields.text("value")?.unwrap_or((at, ""));
    let path = match value {
        "" => format!("{}{key}", parent.path),
        value => format!("{}{key}_{value}", parent.path),
    };
    if path.len() > MAX_RULE_PATH_BYTES {
        let message = format!(
            "its keys and values from the top are too long: at most {MAX_RULE_PATH_BYTES} bytes together"
        );
        return Err(Problem::new(at, message));
    }
    let shares_threshold = fields.flag("share_threshold")?;
    if shares_threshold && !value.contains('*') {
        let message = "`share_threshold` is for a `value` with `*`: this one is counted alone anyway";
        return Err(Problem::new(if value.is_empty() { at } else { value_at }, message));
    }
    let rule = rule(fields, parent.domain, &path, read)?;
    let below = Parent { domain: parent.domain, path: &format!("{path}."), depth: parent.depth + 1 };
    let found = Descriptor {
        rule,
        shares_threshold,
        has_value_in_metric: fields.flag("value_to_metric")?,
        level: self::level(fields, &below, read)?,
    };
    level.insert((key, value), at.line, found).map_err(|first| {
        let value = if value.is_empty() { String::new() } else { format!(" and the value '{value}'") };
        Problem::new(
            at,
            format!("a second descriptor with the key '{key}'{value}: the first is in line {first}"),
        )
    })
}

/// Reads `rate_limit`, and the flags beside it.
fn rule(
    fields: &Fields<'_>,
    domain: &str,
    path: &str,
    read: &mut Read,
) -> Result<Option<RuleNumber>, Problem> {
    let [is_shadow, is_quota, has_detailed_metric] =
        [fields.flag("shadow_mode")?, fields.flag("quota_mode")?, fields.flag("detailed_metric")?];
    let Some(node) = fields.get("rate_limit") else { return Ok(None) };
    let fields = Fields::of(node, &RATE_LIMIT)?;
    let (name_at, name) = fields.text("name")?.unwrap_or((node.at, ""));
    check_name("name", name, name_at)?;
    let rule = Rule {
        domain: domain.into(),
        path: path.into(),
        limit: limit(&fields, node.at)?,
        name: name.into(),
        replaces: replaces(&fields, name)?,
        is_shadow,
        is_quota,
        has_detailed_metric,
    };
    let number = RuleNumber(u32::try_from(read.rules.len()).expect("the number of descriptors is bounded"));
    read.rules.push(rule);
    Ok(Some(number))
}

fn limit(fields: &Fields<'_>, at: Place) -> Result<Option<Limit>, Problem> {
    let units = || Unit::ALL.map(Unit::name).join(", ");
    let unit = fields.text("unit")?;
    let requests = fields.number("requests_per_unit")?.unwrap_or(0);
    if fields.flag("unlimited")? {
        return match unit {
            Some((at, _)) => Err(Problem::new(at, "an unlimited rule has no `unit`: remove one of them")),
            None => Ok(None),
        };
    }
    let (at, name) =
        unit.ok_or_else(|| Problem::new(at, format!("`rate_limit` needs a `unit`: {}", units())))?;
    let unit = Unit::parse(name).ok_or_else(|| {
        Problem::new(at, format!("unknown unit '{}': give one of {}", shown(name), units()))
    })?;
    Ok(Some(Limit { requests, unit }))
}

fn replaces(fields: &Fields<'_>, own: &str) -> Result<Box<[Box<str>]>, Problem> {
    let mut names = Vec::new();
    for node in fields.list("replaces")? {
        if names.len() == MAX_RULE_REPLACES {
            return Err(Problem::new(node.at, format!("a rule replaces at most {MAX_RULE_REPLACES} others")));
        }
        let fields = Fields::of(node, &REPLACES)?;
        let name = fields.text("name")?.filter(|(_, name)| !name.is_empty());
        let (at, name) =
            name.ok_or_else(|| Problem::new(node.at, "an entry of `replaces` needs a `name`"))?;
        check_name("name", name, at)?;
        if name == own {
            return Err(Problem::new(at, format!("'{name}' is this rule: it cannot replace itself")));
        }
        names.push(name.into());
    }
    Ok(names.into())
}

fn check_name(what: &str, name: &str, at: Place) -> Result<(), Problem> {
    if name.len() <= MAX_RULE_NAME_BYTES {
        return Ok(());
    }
    Err(Problem::new(at, format!("`{what}` is too long: at most {MAX_RULE_NAME_BYTES} bytes")))
}

impl<'n> Fields<'n> {
    fn of(node: &'n Node, keys: &Keys) -> Result<Fields<'n>, Problem> {
        let Kind::Map(children) = &node.kind else {
            return Err(Problem::new(node.at, format!("{} is a map: `key: value`", keys.place)));
        };
        let (mut fields, mut merged) = (Vec::new(), Vec::new());
        for pair in children.chunks_exact(2) {
            let [key, value] = [&*pair[0], &*pair[1]];
            let Kind::Scalar { text, is_plain } = &key.kind else {
                return Err(Problem::new(key.at, "a list or a map as a key"));
            };
            match keys.names.iter().find(|name| **name == &**text) {
                None if &**text == "<<" && *is_plain => merged.push(value),
                None => return Err(keys.unknown(text, key.at)),
                Some(name) if fields.iter().any(|(other, _)| other == name) => {
                    return Err(Problem::new(key.at, format!("a second `{name}`: remove one")));
                }
                Some(name) => fields.push((*name, value)),
            }
        }
        for value in merged {
            let lists: Vec<&Node> = match &value.kind {
                Kind::List(maps) => maps.iter().map(|map| &**map).collect(),
                _ => vec![value],
            };
            for map in lists {
                let of_map = Fields::of(map, keys)?.fields;
                let new = of_map.into_iter().filter(|(name, _)| fields.iter().all(|(own, _)| own != name));
                let new: Vec<_> = new.collect();
                fields.extend(new);
            }
        }
        Ok(Fields { fields })
    }

    /// The value of a key. `None` if it is missing or null.
    fn get(&self, name: &str) -> Option<&'n Node> {
        let (_, node) = self.fields.iter().find(|(other, _)| *other == name)?;
        let is_null = matches!(&node.kind, Kind::Scalar { text, is_plain: true }
            if ["", "~", "null", "Null", "NULL"].contains(&&**text));
        Some(*node).filter(|_| !is_null)
    }

    fn scalar(&self, name: &str) -> Result<Option<(&'n Node, &'n str, bool)>, Problem> {
        let Some(node) = self.get(name) else { return Ok(None) };
        match &node.kind {
            Kind::Scalar { text, is_plain } => Ok(Some((node, text, *is_plain))),
            _ => Err(Problem::new(node.at, format!("`{name}` is a text, a number or a boolean"))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<(Place, &'n str)>, Problem> {
        Ok(self.scalar(name)?.map(|(node, text, _)| (node.at, text)))
    }

    /// A boolean, with the words of YAML 1.1. False if it is missing.
    fn flag(&self, name: &str) -> Result<bool, Problem> {
        let Some((node, text, is_plain)) = self.scalar(name)? else { return Ok(false) };
        let is = |words: [&str; 4]| is_plain && words.iter().any(|word| is_in_yaml_case(text, word));
        match (is(["true", "yes", "on", "y"]), is(["false", "no", "off", "n"])) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => Err(Problem::new(node.at, format!("`{name}` is true or false"))),
        }
    }

    /// A decimal number.
    fn number(&self, name: &str) -> Result<Option<u32>, Problem> {
        let Some((node, text, is_plain)) = self.scalar(name)? else { return Ok(None) };
        let digits: String = text.chars().filter(|digit| *digit != '_').collect();
        // YAML 1.1 reads 010 as 8, and YAML 1.2 as 10.
        let is_decimal = is_plain
            && text.starts_with(|first: char| first.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        let number = digits.parse().ok().filter(|_| is_decimal);
        let most = u32::MAX;
        let refuse =
            || Problem::new(node.at, format!("`{name}` is a whole number from 0 to {most}, without quotes"));
        number.ok_or_else(refuse).map(Some)
    }

    fn list(&self, name: &str) -> Result<&'n [Rc<Node>], Problem> {
        let Some(node) = self.get(name) else { return Ok(&[]) };
        match &node.kind {
            Kind::List(nodes) => Ok(nodes),
            _ => Err(Problem::new(node.at, format!("`{name}` is a list: write - before each entry"))),
        }
    }
}

/// Whether a text is a word in lower case, in upper case, or with a capital.
fn is_in_yaml_case(text: &str, word: &str) -> bool {
    text.eq_ignore_ascii_case(word)
        && (text[1..] == word[1..] || text.bytes().all(|byte| byte.is_ascii_uppercase()))
}

impl Keys {
    fn unknown(&self, key: &str, at: Place) -> Problem {
        let elsewhere = [&FILE, &DESCRIPTOR, &RATE_LIMIT].into_iter().find(|keys| keys.names.contains(&key));
        let (key, place) = (shown(key), self.place);
        let message = match elsewhere {
            Some(keys) => format!("`{key}` has no effect in {place}: it belongs into {}", keys.place),
            None if key == "metadata" => "`metadata` is not supported: remove it".to_owned(),
            None => format!("unknown key `{key}`: {place} has {}", self.names.join(", ")),
        };
        Problem::new(at, message)
    }
}
