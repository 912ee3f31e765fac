//! Templates of keys: one field of a line or a request, or several with text between them.

use std::fmt;
use std::str::FromStr;

use crate::address::Prefix;
use crate::error::KeyError;
use crate::limits::MAX_KEY_FIELDS;

/// The template, and the key, of all lines.
const ALL: &str = "*";

/// Names of fields that have an address, in whatever object.
const ADDRESS_FIELDS: [&str; 12] = [
    "ip",
    "client",
    "peer",
    "addr",
    "address",
    "remote_addr",
    "realip_remote_addr",
    "remote_ip",
    "client_ip",
    "clientip",
    "c-ip",
    "sourceIPAddress",
];

/// A key template: a field name (`ip`), or text with fields in braces (`{ip} {path}`), where `{{` and
/// `}}` are the braces themselves. A field may have a length of a prefix for IPv4, and for IPv6:
/// `{ip/24/64}`. `*` is the same key for all lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// As it was given.
    text: String,
    parts: Vec<Part>,
    fields: Vec<String>,
}

/// A part of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Text between fields.
    Text(String),
    /// Index into the fields.
    Field(usize),
    /// The network of an address: index into the fields, and how much of it counts.
    Network(usize, Prefix),
}

impl Template {
    /// The names of the fields, in the order they stand in the key.
    #[must_use]
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The parts of the key, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The part that is the address of a client: the only field; else the first with a prefix; else the first whose name
    /// is that of an address.
    #[must_use]
    pub fn address_part(&self) -> Option<usize> {
        let field = |part: &Part| match part {
            Part::Text(_) => None,
            Part::Field(field) | Part::Network(field, _) => Some(*field),
        };
        let is_address = |part: &Part| {
            let name = field(part).and_then(|field| self.fields[field].rsplit('.').next());
            name.is_some_and(|name| ADDRESS_FIELDS.contains(&name))
        };
        let is_network = |part: &Part| matches!(part, Part::Network(..));
        let first = |is: &dyn Fn(&Part) -> bool| self.parts.iter().position(is);
        match self.fields.len() {
            1 => first(&|part| field(part).is_some()),
            _ => first(&is_network).or_else(|| first(&is_address)),
        }
    }

    fn push_text(&mut self, piece: char) {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(piece),
            _ => self.parts.push(Part::Text(piece.into())),
        }
    }

    /// Adds a field, with or without a prefix. An error is what is wrong with the prefix.
    fn push_field(&mut self, text: &str) -> Result<(), &'static str> {
        let index = self.fields.len();
        let (name, part) = match text.split_once('/') {
            Some((name, bits)) if !name.is_empty() && Prefix::is_meant(bits) => {
                let prefix = Prefix::parse(bits).ok_or(
                    "a prefix has at most 32 bits of IPv4 and 128 of IPv6, such as /24, or /24/64 for both",
                )?;
                (name, Part::Network(index, prefix))
            }
            _ => (text, Part::Field(index)),
        };
        self.parts.push(part);
        self.fields.push(name.into());
        Ok(())
    }
}

/// The address of the client: `ip`.
impl Default for Template {
    fn default() -> Template {
        Template { text: "ip".into(), parts: vec![Part::Field(0)], fields: vec!["ip".into()] }
    }
}

/// The text it was made of.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Template {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Template, KeyError> {
        let error = |cause| KeyError::Template { text: text.into(), cause };
        let mut template = Template { text: text.into(), parts: Vec::new(), fields: Vec::new() };
        if text == ALL {
            template.parts.push(Part::Text(ALL.into()));
            return Ok(template);
        }
        if !text.is_empty() && !text.contains(['{', '}']) {
            template.push_field(text).map_err(error)?;
            return Ok(template);
        }
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if rest.starts_with("{{") || rest.starts_with("}}") {
                template.push_text(first);
                rest = &rest[2..];
            } else if first == '{' {
                let (name, after) = rest[1..].split_once('}').ok_or_else(|| error("a '{' is not closed"))?;
                if name.is_empty() || name.contains('{') {
                    return Err(error("a field in braces has no name"));
                }
                template.push_field(name).map_err(error)?;
                rest = after;
            } else if first == '}' {
                return Err(error("a '}' closes nothing; write '}}' for the brace itself"));
            } else {
                template.push_text(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        match template.fields.len() {
            0 => Err(error("it names no field")),
            fields if fields > MAX_KEY_FIELDS => Err(KeyError::Fields { fields }),
            _ => Ok(template),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_parse() {
        let check = |text: &str, parts: &[Part], fields: &[&str]| {
            let template: Template = text.parse().expect(text);
            assert_eq!(template.parts, parts, "{text}");
            assert_eq!(template.fields, fields, "{text}");
            assert_eq!(template.to_string(), text);
        };
        let literal = |text: &str| Part::Text(text.into());
        check("ip", &[Part::Field(0)], &["ip"]);
        check("@user.id", &[Part::Field(0)], &["@user.id"]);
        check("{ip}", &[Part::Field(0)], &["ip"]);
        check("{ip} {path}", &[Part::Field(0), literal(" "), Part::Field(1)], &["ip", "path"]);
        check("é{{{ip}}}", &[literal("é{"), Part::Field(0), literal("}")], &["ip"]);
        let network = Part::Network(0, Prefix::parse("24/64").expect("a prefix"));
        let network = std::slice::from_ref(&network);
        check("ip/24/64", network, &["ip"]);
        check("{ip/24/64}", network, &["ip"]);
        check("{ip/x}", &[Part::Field(0)], &["ip/x"]);
        check("a/24b", &[Part::Field(0)], &["a/24b"]);
        check("a/b", &[Part::Field(0)], &["a/b"]);
        check("*", &[literal("*")], &[]);
        assert_eq!("ip".parse(), Ok(Template::default()));
    }

    #[test]
    fn the_address_of_a_key_is_found() {
        let check = |text: &str, part: Option<usize>| {
            assert_eq!(text.parse::<Template>().expect(text).address_part(), part, "{text}");
        };
        check("*", None);
        check("user", Some(0));
        check("u:{user}", Some(1));
        check("{user} {client.ip}", Some(2));
        check("{ip} {peer}", Some(0));
        check("{ip} {who/24}", Some(2));
        check("{user} {path}", None);
        check("{user} {client}", Some(2));
    }

    #[test]
    fn bad_templates_are_refused() {
        for bad in [
            "",
            "{",
            "}",
            "{ip",
            "ip}",
            "{}",
            "{{ip}}",
            "{a{b}",
            "{ip}}",
            "{ip/33}",
            "ip/24/129",
            "{ip/24/}",
            "ip/1/2/3",
            "{a} {ip/999}",
        ] {
            assert!(matches!(bad.parse::<Template>(), Err(KeyError::Template { .. })), "{bad}");
        }
    }

    #[test]
    fn the_number_of_fields_is_bounded() {
        assert!("{a}".repeat(MAX_KEY_FIELDS).parse::<Template>().is_ok());
        let error = KeyError::Fields { fields: MAX_KEY_FIELDS + 1 };
        assert_eq!("{a}".repeat(MAX_KEY_FIELDS + 1).parse::<Template>(), Err(error));
    }
}
