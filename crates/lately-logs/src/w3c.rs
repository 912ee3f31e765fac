//! The extended format of the W3C, which IIS and CloudFront write: `#Fields:` names the fields of the lines after it.

/// The fields of the lines, and the places of the wanted ones.
#[derive(Clone, Debug)]
pub(crate) struct W3c {
    wanted: Vec<String>,
    /// The number of fields of a line, from `#Fields:` on.
    fields: Option<usize>,
    places: Vec<Option<usize>>,
}

/// The names of fields here, and their names in the format.
const ALIASES: [(&str, &[&str]); 10] = [
    ("ip", &["c-ip"]),
    ("path", &["cs-uri-stem"]),
    ("status", &["sc-status"]),
    ("method", &["cs-method"]),
    ("user", &["cs-username"]),
    ("vhost", &["cs-host", "x-host-header", "cs(Host)"]),
    ("agent", &["cs(User-Agent)"]),
    ("referer", &["cs(Referer)"]),
    ("bytes", &["sc-bytes"]),
    ("forwarded", &["x-forwarded-for", "cs(X-Forwarded-For)"]),
];

impl W3c {
    pub(crate) fn new(wanted: &[String]) -> W3c {
        W3c { wanted: wanted.to_vec(), fields: None, places: Vec::new() }
    }

    /// Parses a `#Fields:` line. Other lines that start with `#` are comments.
    pub(crate) fn directive(&mut self, line: &[u8]) {
        let Some(names) = line.strip_prefix(b"#Fields:") else { return };
        let names: Vec<&[u8]> =
            names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty()).collect();
        let place = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted.as_bytes()));
        let by_alias = |wanted: &str| {
            let (_, others) = ALIASES.iter().find(|(alias, _)| *alias == wanted)?;
            others.iter().find_map(|other| place(other))
        };
        self.places = self.wanted.iter().map(|wanted| place(wanted).or_else(|| by_alias(wanted))).collect();
        self.fields = Some(names.len());
    }

    /// The wanted values of a line. `None` if it has another number of fields, or no `#Fields:` line came yet.
    pub(crate) fn find<'a>(&self, line: &'a [u8]) -> Option<Vec<Option<&'a [u8]>>> {
        let separator = if line.contains(&b'\t') { b'\t' } else { b' ' };
        let values: Vec<&[u8]> = line.split(|&byte| byte == separator).collect();
        let is_whole = self.fields == Some(values.len());
        is_whole.then(|| self.places.iter().map(|place| place.map(|place| values[place])).collect())
    }
}
