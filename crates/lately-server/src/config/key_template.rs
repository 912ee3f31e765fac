//! `key` of a `[[limit]]`: the key that a request of another server is counted under, from its headers.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use axum::http::HeaderName;
use lately_keys::{Exempt, KeyError, Part, Prefix, Template, push_escaped};

/// The field that is the address of the client.
const CLIENT: &str = "client";

/// Starts the name of a field that is a header.
const HEADER: &str = "header:";

/// What the key has for a header that is missing.
const MISSING: &[u8] = b"-";

/// Headers to which every proxy adds an address. A client can begin them with any text.
const LISTS: [&str; 2] = ["x-forwarded-for", "forwarded"];

/// A template over the headers of a request, such as `login:{header:x-real-ip/32/64}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyTemplate {
    template: Template,
    /// The fields, in the order of the template.
    fields: Vec<Field>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Field {
    /// The address of the client, by `trusted_proxies`.
    Client,
    Header(HeaderName),
}

impl KeyTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<KeyTemplate, String> {
        let example = "give {client}, or a header such as {header:x-real-ip}";
        if !text.contains(['{', '}']) && text != "*" {
            return Err(format!("invalid template '{text}': it names no field: {example}"));
        }
        let template: Template = text.parse().map_err(|error: lately_keys::KeyError| {
            let error = error.to_string();
            // The rest of that message is about logs.
            error.split("; give a field").next().unwrap_or(&error).to_owned()
        })?;
        let field = |name: &String| match name.strip_prefix(HEADER) {
            None if name == CLIENT => Ok(Field::Client),
            None => Err(format!("invalid template '{text}': unknown field '{name}': {example}")),
            Some(header) => match HeaderName::try_from(header) {
                Ok(header) if LISTS.contains(&header.as_str()) => Err(format!(
                    "invalid template '{text}': a client can forge '{header}': write {{client}}, which takes the address that the first of trusted_proxies saw"
                )),
                Ok(header) => Ok(Field::Header(header)),
                Err(_) => Err(format!("invalid template '{text}': '{header}' is no name of a header")),
            },
        };
        let fields = template.fields().iter().map(field).collect::<Result<_, _>>()?;
        for (index, part) in template.parts().iter().enumerate() {
            let is_field = |part: &Part| !matches!(part, Part::Text(_));
            let wrong = match template.parts().get(index + 1) {
                Some(Part::Text(text)) if text.starts_with('%') && index + 2 < template.parts().len() => {
                    "the text between two fields starts with %"
                }
                Some(next) if is_field(part) && is_field(next) => "two fields have no text between them",
                _ => continue,
            };
            return Err(format!(
                "invalid template '{text}': {wrong}: separate them as in {{client}}:{{header:x-user}}"
            ));
        }
        Ok(KeyTemplate { template, fields })
    }

    /// Whether this is the text of a template, valid or not, so hardly meant as a key.
    pub(crate) fn is_one(key: &[u8]) -> bool {
        let Ok(text) = str::from_utf8(key) else { return false };
        let names_field = |field: &str| {
            let name = field.split('/').next().unwrap_or(field);
            ["client", "ip"].contains(&name) || name.starts_with("header:")
        };
        // `{{` is a brace.
        let is_field = |before: &str, after: &str| {
            !before.ends_with('{') && after.split_once('}').is_some_and(|(field, _)| names_field(field))
        };
        text.match_indices('{').any(|(at, _)| is_field(&text[..at], &text[at + 1..]))
    }

    /// Whether the key has headers, which are believed only if a trusted proxy sent them.
    pub(crate) fn has_headers(&self) -> bool {
        self.fields.iter().any(|field| matches!(field, Field::Header(_)))
    }

    /// Whether some request has this key.
    pub(crate) fn may_make(&self, key: &[u8]) -> bool {
        let (mut rest, mut is_after_field) = (key, false);
        for (index, part) in self.template.parts().iter().enumerate() {
            let Part::Text(text) = part else {
                is_after_field = true;
                continue;
            };
            let is_last = index + 1 == self.template.parts().len();
            // The first byte of the text is escaped in the field before it, unless that is the last one.
            let at = match (is_after_field, is_last) {
                (false, _) => rest.starts_with(text.as_bytes()).then_some(0),
                (true, true) => rest.ends_with(text.as_bytes()).then(|| rest.len() - text.len()),
                (true, false) => rest.windows(text.len()).position(|part| part == text.as_bytes()),
            };
            let Some(at) = at else { return false };
            rest = &rest[at + text.len()..];
            is_after_field = false;
        }
        is_after_field || rest.is_empty()
    }

    /// Checks that keys of the template can be exempt.
    ///
    /// # Errors
    /// They have no address, or larger networks.
    pub(super) fn check_exempt(&self, exempt: &Exempt, prefix: Prefix) -> Result<(), KeyError> {
        exempt.check(&self.template, prefix)
    }

    /// The address in the key of a request, or its network. Empty if there is none.
    pub(crate) fn address<'h>(
        &self,
        prefix: Prefix,
        client: IpAddr,
        header: impl Fn(&HeaderName) -> Option<Cow<'h, [u8]>>,
    ) -> Vec<u8> {
        let part = self.template.address_part().map(|part| &self.template.parts()[part]);
        part.map(|part| self.value(part, (prefix, client), &header)).unwrap_or_default()
    }

    /// The key of a request. A field that is an address becomes its network, by the lengths in the template, else by
    /// `prefix`. Requests with different fields have different keys: in each field but the last, the first byte of the text
    /// after it is escaped.
    pub(crate) fn key<'h>(
        &self,
        prefix: Prefix,
        client: IpAddr,
        header: impl Fn(&HeaderName) -> Option<Cow<'h, [u8]>>,
    ) -> Vec<u8> {
        let mut key = Vec::new();
        let mut left = self.fields.len();
        for (index, part) in self.template.parts().iter().enumerate() {
            if let Part::Text(text) = part {
                key.extend_from_slice(text.as_bytes());
                continue;
            }
            let value = self.value(part, (prefix, client), &header);
            left -= 1;
            match self.template.parts().get(index + 1) {
                Some(Part::Text(after)) if left > 0 => {
                    push_escaped(&mut key, &value, &after.as_bytes()[..1]);
                }
                _ => key.extend_from_slice(&value),
            }
        }
        key
    }

    /// The value of a part.
    fn value<'h>(
        &self,
        part: &Part,
        (prefix, client): (Prefix, IpAddr),
        header: &impl Fn(&HeaderName) -> Option<Cow<'h, [u8]>>,
    ) -> Vec<u8> {
        let (field, prefix) = match part {
            Part::Text(text) => return text.clone().into_bytes(),
            Part::Field(field) => (&self.fields[*field], prefix),
            Part::Network(field, own) => (&self.fields[*field], own.or_v6_of(prefix)),
        };
        match field {
            Field::Client => prefix.network_of(client).to_string().into_bytes(),
            Field::Header(name) => {
                header(name).map_or(MISSING.to_vec(), |value| prefix.apply(value.trim_ascii()).into_owned())
            }
        }
    }
}

/// As the config writes it.
impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.template.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key of a request with these headers.
    fn key_of(template: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let header = |name: &HeaderName| {
            headers.iter().find(|(header, _)| name == header).map(|(_, value)| value.as_bytes().into())
        };
        let prefix = Prefix::new(32, 64).expect("lengths");
        let client = IpAddr::from([192, 0, 2, 1]);
        KeyTemplate::parse(template).expect(template).key(prefix, client, header)
    }

    #[test]
    fn a_template_knows_its_keys() {
        let check = |template: &str, key: &str, expected: bool| {
            let template = KeyTemplate::parse(template).expect(template);
            assert_eq!(template.may_make(key.as_bytes()), expected, "{template} {key}");
        };
        for (template, key, expected) in [
            ("login:{client}", "login:10.0.0.1", true),
            ("login:{client}", "login:", true),
            ("login:{client}", "logins:10.0.0.1", false),
            ("login:{client}", "log", false),
            ("{client}", "anything", true),
            ("{client}!", "a!b!", true),
            ("{client}!", "a!b", false),
            ("{header:x-a}:{client}", "a:b", true),
            ("{header:x-a}:{client}", "ab", false),
            ("a{header:x-a}:b:{client}", "a:b:", true),
            ("a{header:x-a}:b:{client}", "axb:b", false),
            ("*", "*", true),
            ("*", "x", false),
        ] {
            check(template, key, expected);
        }
    }

    #[test]
    fn a_client_cannot_move_the_ends_of_fields() {
        let check = |template: &str, [a, b]: [&str; 2], expected: &str| {
            let key = key_of(template, &[("a", a), ("b", b)]);
            assert_eq!(String::from_utf8_lossy(&key), expected);
        };
        check("{header:a}:{header:b}", ["x", "y"], "x:y");
        check("{header:a}:{header:b}", ["x:y", "z"], "x%3ay:z");
        // The last field ends with the key.
        check("{header:a}:{header:b}", ["x", "y:z%"], "x:y:z%");
        check("k:{header:a}", ["x:y%", ""], "k:x:y%");
        check("{header:a} - {header:b}.", ["x - y", "z."], "x%20-%20y - z..");
        check("{header:a}:{header:b}", ["2001:db8::1", "x"], "2001%3adb8%3a%3a/64:x");
    }

    proptest! {
        #[test]
        fn different_fields_have_different_keys(
            texts in proptest::array::uniform2("[:/ab2.é-]{1,3}"),
            [one, other] in proptest::array::uniform2(proptest::array::uniform3("[:/%ab2f.é-]{0,6}")),
        ) {
            let template = format!("{{header:a}}{}{{header:b}}{}{{header:c}}", texts[0], texts[1]);
            let key = |[a, b, c]: &[String; 3]| key_of(&template, &[("a", a), ("b", b), ("c", c)]);
            let prefix = Prefix::new(32, 64).expect("lengths");
            let counted = |fields: &[String; 3]| fields.each_ref().map(|field| prefix.apply(field.as_bytes()).into_owned());
            prop_assert_eq!(key(&one) == key(&other), counted(&one) == counted(&other), "{:?}", key(&one));
        }
    }

    #[test]
    fn a_key_is_made_of_headers_and_the_client() {
        let prefix = Prefix::new(32, 64).expect("lengths");
        let check = |template: &str, client: &str, ip: Option<&str>, expected: &str| {
            let template = KeyTemplate::parse(template).expect(template);
            let header = |name: &HeaderName| {
                assert_eq!(name, "x-real-ip");
                ip.map(|ip| Cow::Borrowed(ip.as_bytes()))
            };
            let key = template.key(prefix, client.parse().expect(client), header);
            assert_eq!(String::from_utf8_lossy(&key), expected);
        };
        check("login:{client}", "198.51.100.7", None, "login:198.51.100.7");
        check("login:{client}", "::ffff:198.51.100.7", None, "login:198.51.100.7");
        check("{client}", "2001:db8:1:2:3::4", None, "2001:db8:1:2::/64");
        check("{client/24}", "198.51.100.7", None, "198.51.100.0/24");
        // A template that names no length for IPv6 has that of the limit.
        check("{client/24}", "2001:db8:1:2:3::4", None, "2001:db8:1:2::/64");
        check("{client/24/48}", "2001:db8:1:2:3::4", None, "2001:db8:1::/48");
        check("a:{header:x-real-ip}", "::1", Some("2001:DB8:1:2:3::4"), "a:2001:db8:1:2::/64");
        check("a:{header:X-Real-IP/32/64}", "::1", Some(" ::ffff:192.0.2.1 "), "a:192.0.2.1");
        check("{header:x-real-ip}", "::1", Some("fe80::1%eth0"), "fe80::/64");
        check("{header:x-real-ip}", "::1", Some("user 7"), "user 7");
        check("{header:x-real-ip}:{client}", "192.0.2.9", None, "-:192.0.2.9");
        check("*", "192.0.2.9", None, "*");
    }

    #[test]
    fn wrong_templates_name_the_mistake() {
        let check = |text: &str, expected: &str| {
            let error = KeyTemplate::parse(text).expect_err(text);
            assert!(error.starts_with(&format!("invalid template '{text}': {expected}")), "{error}");
            assert!(!error.contains("{path}"), "{error}");
        };
        check("", "it names no field: give {client}, or a header such as {header:x-real-ip}");
        check("login", "it names no field");
        check("{ip}", "unknown field 'ip': give {client}, or a header");
        check("login:{client", "a '{' is not closed");
        check("login:{}", "a field in braces has no name");
        check("{client/33}", "a prefix has at most 32 bits");
        check("{header:}", "'' is no name of a header");
        check("{header:x y}", "'x y' is no name of a header");
        check("{header:X-Forwarded-For}", "a client can forge 'x-forwarded-for': write {client}");
        check("{header:forwarded/24}", "a client can forge 'forwarded'");
        check("{client}{header:a}", "two fields have no text between them: separate them as in {client}:");
        check("k{client}%{header:a}", "the text between two fields starts with %");
    }
}
