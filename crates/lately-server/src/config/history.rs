//! `[[history]]`: where the hits of closed panes are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use lately::{Pattern, Settings, Span};
use serde::Deserialize;
use toml::Spanned;

use super::alert::{is_name, url_of};
use super::class;
use super::error::Problem;
use super::user::path;
use super::value::{Length, Match, shown};
use crate::limits::{
    DEFAULT_HISTORY_DELAY, DEFAULT_HISTORY_INTERVAL, DEFAULT_HISTORY_KEYS, HISTORY_DELAY, HISTORY_INTERVAL,
    HISTORY_KEYS, HISTORY_MARGIN, MAX_ALERT_PATTERN_BYTES, MAX_HISTORIES, MAX_HISTORY_HEADERS,
    MAX_HISTORY_LABELS, MAX_HISTORY_NAME_BYTES, MAX_HISTORY_VALUE_BYTES, MAX_LIMIT_NAME_BYTES,
};

/// Where hits are sent, and which.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    /// Its unique name: letters, digits and `_ - .`.
    pub name: String,
    /// The receiver.
    pub url: Uri,
    /// The protocol of the receiver.
    pub protocol: HistoryProtocol,
    /// The keys.
    pub pattern: Pattern,
    /// The width of the panes.
    pub interval: Span,
    /// How long after its end a pane is closed.
    pub delay: Span,
    /// Most keys with samples within an hour.
    pub max_keys: usize,
    /// The name of the metric.
    pub metric: String,
    /// Labels of all samples, by name.
    pub labels: BTreeMap<String, String>,
    /// Headers of all requests.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How the server logs in.
    pub login: Option<HistoryLogin>,
}

/// A protocol that samples are sent by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryProtocol {
    /// Prometheus remote write 1.0.
    RemoteWrite,
    /// Prometheus remote write 2.0.
    RemoteWrite2,
    /// OTLP over HTTP.
    Otlp,
}

impl HistoryProtocol {
    const ALL: [HistoryProtocol; 3] =
        [HistoryProtocol::RemoteWrite, HistoryProtocol::RemoteWrite2, HistoryProtocol::Otlp];
}

impl fmt::Display for HistoryProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HistoryProtocol::RemoteWrite => "remote-write",
            HistoryProtocol::RemoteWrite2 => "remote-write-2",
            HistoryProtocol::Otlp => "otlp",
        })
    }
}

/// How requests log in at a receiver. The file is read for each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HistoryLogin {
    /// By a user and the password in a file.
    Basic {
        /// The user.
        user: String,
        /// The file.
        password_file: PathBuf,
    },
    /// By the token in a file.
    Bearer {
        /// The file.
        token_file: PathBuf,
    },
}

impl HistoryLogin {
    /// The file of the secret.
    #[must_use]
    pub fn file(&self) -> &PathBuf {
        match self {
            HistoryLogin::Basic { password_file, .. } => password_file,
            HistoryLogin::Bearer { token_file } => token_file,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [[history]]")]
pub(super) struct HistoryConfig {
    name: Spanned<String>,
    url: Spanned<String>,
    protocol: Option<Spanned<String>>,
    #[serde(rename = "match")]
    pattern: Spanned<Match>,
    interval: Option<Spanned<Length>>,
    delay: Option<Spanned<Length>>,
    max_keys: Option<Spanned<toml::Value>>,
    metric: Option<Spanned<String>>,
    labels: Option<Spanned<BTreeMap<String, Spanned<String>>>>,
    headers: Option<Spanned<BTreeMap<String, Spanned<String>>>>,
    user: Option<Spanned<String>>,
    password_file: Option<Spanned<String>>,
    token_file: Option<Spanned<String>>,
}

/// Checks all sections. The problem points at the first wrong one.
pub(super) fn settle(
    histories: Vec<Spanned<HistoryConfig>>,
    classes: &[(Pattern, Settings)],
) -> Result<Vec<History>, Problem> {
    if let Some(history) = histories.get(MAX_HISTORIES) {
        let message = format!("too many histories: a config has at most {MAX_HISTORIES}");
        return Err(Problem { at: history.span(), message });
    }
    let mut names = BTreeSet::new();
    histories.into_iter().map(|history| settle_one(history.into_inner(), classes, &mut names)).collect()
}

fn settle_one(
    history: HistoryConfig,
    classes: &[(Pattern, Settings)],
    names: &mut BTreeSet<String>,
) -> Result<History, Problem> {
    let name = history.name.get_ref().clone();
    if !is_name(&name) {
        let message = format!(
            "invalid name '{name}': give 1 to {MAX_LIMIT_NAME_BYTES} letters, digits, or any of _ - ."
        );
        return Err(Problem { at: history.name.span(), message });
    }
    if !names.insert(name.clone()) {
        let message = format!("a second history is named '{name}': give each its own name");
        return Err(Problem { at: history.name.span(), message });
    }
    let text = history.pattern.get_ref().0.as_bytes();
    if text.len() > MAX_ALERT_PATTERN_BYTES {
        let message = format!(
            "match has {} bytes: the pattern of a history has at most {MAX_ALERT_PATTERN_BYTES}",
            text.len()
        );
        return Err(Problem { at: history.pattern.span(), message });
    }
    let pattern = Pattern::new(text);
    let protocol = history.protocol.as_ref().map_or(Ok(HistoryProtocol::RemoteWrite), protocol_of)?;
    let example = match protocol {
        HistoryProtocol::Otlp => "http://127.0.0.1:4318/v1/metrics",
        _ => "http://127.0.0.1:9090/api/v1/write",
    };
    let interval = length_of(
        history.interval.as_ref(),
        "interval",
        DEFAULT_HISTORY_INTERVAL,
        HISTORY_INTERVAL.into_inner(),
    )?;
    let delay =
        length_of(history.delay.as_ref(), "delay", DEFAULT_HISTORY_DELAY, HISTORY_DELAY.into_inner())?;
    check_classes(&pattern, (interval, delay), classes).map_err(|message| {
        let at = history.interval.as_ref().map(Spanned::span);
        let at = at.or(history.delay.as_ref().map(Spanned::span)).unwrap_or(history.pattern.span());
        Problem { at, message }
    })?;
    Ok(History {
        name,
        url: url_of(&history.url, "url", example)?,
        protocol,
        pattern,
        interval,
        delay,
        max_keys: history.max_keys.as_ref().map_or(Ok(DEFAULT_HISTORY_KEYS), max_keys_of)?,
        metric: history.metric.as_ref().map_or_else(|| Ok("lately_hits".to_owned()), metric_of)?,
        labels: history.labels.map_or_else(|| Ok(BTreeMap::new()), |labels| labels_of(&labels))?,
        headers: history.headers.map_or_else(|| Ok(Vec::new()), |headers| headers_of(&headers))?,
        login: login_of(history.user, history.password_file, history.token_file)?,
    })
}

fn protocol_of(protocol: &Spanned<String>) -> Result<HistoryProtocol, Problem> {
    let text = protocol.get_ref();
    let found = HistoryProtocol::ALL.into_iter().find(|known| known.to_string() == *text);
    found.ok_or_else(|| Problem {
        at: protocol.span(),
        message: format!("unknown protocol '{text}': give remote-write, remote-write-2 or otlp"),
    })
}

fn length_of(
    length: Option<&Spanned<Length>>,
    name: &str,
    default: Span,
    (least, most): (Span, Span),
) -> Result<Span, Problem> {
    let Some(length) = length else { return Ok(default) };
    let span = length.get_ref().0;
    if (least..=most).contains(&span) {
        return Ok(span);
    }
    Err(Problem { at: length.span(), message: format!("invalid {name} {span}: give {least} to {most}") })
}

fn max_keys_of(value: &Spanned<toml::Value>) -> Result<usize, Problem> {
    let number = value.get_ref().as_integer().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| HISTORY_KEYS.contains(number)).ok_or_else(|| {
        let (given, least, most) = (shown(value.get_ref()), HISTORY_KEYS.start(), HISTORY_KEYS.end());
        let message =
            format!("invalid max_keys {given}: give a whole number from {least} to {most}, without quotes");
        Problem { at: value.span(), message }
    })
}

fn is_identifier(text: &str, more: &[u8]) -> bool {
    let may_begin = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || more.contains(&byte);
    text.bytes().next().is_some_and(may_begin)
        && text.bytes().all(|byte| may_begin(byte) || byte.is_ascii_digit())
        && text.len() <= MAX_HISTORY_NAME_BYTES
}

fn metric_of(metric: &Spanned<String>) -> Result<String, Problem> {
    let text = metric.get_ref();
    if is_identifier(text, b":") {
        return Ok(text.clone());
    }
    let message = format!(
        "invalid metric '{text}': give 1 to {MAX_HISTORY_NAME_BYTES} letters, digits, _ or :, a digit not first"
    );
    Err(Problem { at: metric.span(), message })
}

/// Labels that the server sets.
const OWN_LABELS: [&str; 3] = ["key", "key_b64", "node"];

fn labels_of(
    labels: &Spanned<BTreeMap<String, Spanned<String>>>,
) -> Result<BTreeMap<String, String>, Problem> {
    let problem = |at, message: String| Err(Problem { at, message });
    if labels.get_ref().len() > MAX_HISTORY_LABELS {
        return problem(
            labels.span(),
            format!("too many labels: a history has at most {MAX_HISTORY_LABELS}"),
        );
    }
    let mut settled = BTreeMap::new();
    for (name, value) in labels.get_ref() {
        if OWN_LABELS.contains(&name.as_str()) {
            return problem(
                value.span(),
                format!("invalid label '{name}': the server sets it: leave it out"),
            );
        }
        if !is_identifier(name, b"") || name.starts_with("__") {
            let right = format!("give 1 to {MAX_HISTORY_NAME_BYTES} letters, digits or _");
            let message = format!("invalid label '{name}': {right}, a digit not first, and no __ in front");
            return problem(value.span(), message);
        }
        let text = value.get_ref();
        if !(1..=MAX_HISTORY_VALUE_BYTES).contains(&text.len()) {
            let message =
                format!("the label '{name}' has {} bytes: give 1 to {MAX_HISTORY_VALUE_BYTES}", text.len());
            return problem(value.span(), message);
        }
        settled.insert(name.clone(), text.clone());
    }
    Ok(settled)
}

/// Headers that the server sets.
const OWN_HEADERS: [&str; 8] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "user-agent",
];

fn headers_of(
    headers: &Spanned<BTreeMap<String, Spanned<String>>>,
) -> Result<Vec<(HeaderName, HeaderValue)>, Problem> {
    let problem = |at, message: String| Problem { at, message };
    if headers.get_ref().len() > MAX_HISTORY_HEADERS {
        let message = format!("too many headers: a history has at most {MAX_HISTORY_HEADERS}");
        return Err(problem(headers.span(), message));
    }
    let mut settled: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for (name, value) in headers.get_ref() {
        let wrong = |right: &str| problem(value.span(), format!("invalid header '{name}': {right}"));
        let parsed: HeaderName = name.parse().map_err(|_| wrong("give a name such as \"X-Scope-OrgID\""))?;
        if parsed == "authorization" {
            return Err(wrong("a secret does not belong here: give token_file, or user and password_file"));
        }
        if OWN_HEADERS.contains(&parsed.as_str()) || parsed.as_str().starts_with("x-prometheus-remote-") {
            return Err(wrong("the server sets it: leave it out"));
        }
        if settled.iter().any(|(other, _)| *other == parsed) {
            return Err(wrong("it is given twice: remove one"));
        }
        let text = value.get_ref();
        if text.len() > MAX_HISTORY_VALUE_BYTES {
            return Err(wrong(&format!(
                "it has {} bytes: give at most {MAX_HISTORY_VALUE_BYTES}",
                text.len()
            )));
        }
        let text = text.parse().map_err(|_| wrong("a value has no control characters"))?;
        settled.push((parsed, text));
    }
    Ok(settled)
}

fn login_of(
    user: Option<Spanned<String>>,
    password_file: Option<Spanned<String>>,
    token_file: Option<Spanned<String>>,
) -> Result<Option<HistoryLogin>, Problem> {
    let problem = |at, message: &str| Err(Problem { at, message: message.to_owned() });
    match (user, password_file, token_file) {
        (None, None, None) => Ok(None),
        (Some(user), Some(file), None) => {
            // A colon would end the name.
            if user.get_ref().is_empty()
                || user.get_ref().len() > MAX_HISTORY_VALUE_BYTES
                || user.get_ref().contains(|c: char| c == ':' || c.is_control())
            {
                return problem(user.span(), "invalid user: give a name without colons");
            }
            let password_file = path(&file)?;
            Ok(Some(HistoryLogin::Basic { user: user.into_inner(), password_file }))
        }
        (None, None, Some(file)) => Ok(Some(HistoryLogin::Bearer { token_file: path(&file)? })),
        (_, _, Some(file)) => {
            problem(file.span(), "a history logs in one way: give token_file, or user and password_file")
        }
        (Some(user), None, None) => problem(user.span(), "user goes with password_file: name the file"),
        (None, Some(file), None) => problem(file.span(), "password_file goes with user: give the name"),
    }
}

/// Refuses panes that some key does not keep until they are sent.
fn check_classes(
    pattern: &Pattern,
    (interval, delay): (Span, Span),
    classes: &[(Pattern, Settings)],
) -> Result<(), String> {
    for (name, settings) in classes_of(pattern, classes) {
        let resolution = settings.resolution();
        let of = name.map_or_else(
            || "keys without a class".to_owned(),
            |name| format!("class '{}'", String::from_utf8_lossy(name.as_bytes())),
        );
        if interval.as_millis() % resolution.as_millis() != 0 {
            return Err(format!(
                "interval {interval} is no multiple of {resolution}, the resolution of {of}, which match names, too"
            ));
        }
        // Twice: a pane is sent while the next one is counted.
        let needed_ms = 2 * interval.as_millis() + delay.as_millis() + HISTORY_MARGIN.as_millis();
        let needed = Span::from_millis(needed_ms).unwrap_or(Span::MAX);
        let refused = |what: &str, kept: Span, field: &str| {
            Err(format!(
                "panes of {interval} are not kept until they are sent: those of {of} are {what} after {kept}: give them a class with {field} = \"{needed}\" or more"
            ))
        };
        if settings.retain() < needed {
            return refused("forgotten", settings.retain(), "retain");
        }
        if let Some(kept) = kept_apart(interval, &settings).filter(|kept| *kept < needed) {
            return refused("merged", kept, "exact");
        }
    }
    Ok(())
}

/// The classes whose keys may match a pattern, with the default one at last, where it may.
pub(super) fn classes_of<'c>(
    pattern: &Pattern,
    classes: &'c [(Pattern, Settings)],
) -> Vec<(Option<&'c Pattern>, Settings)> {
    let mut found = Vec::new();
    for (class, settings) in classes {
        if class.meets(pattern) {
            found.push((Some(class), settings.clone()));
        }
        if class::covers(class, pattern) {
            return found;
        }
    }
    found.push((None, Settings::default()));
    found
}

/// For how long a class surely keeps panes of this width apart; `None` for as long as it keeps hits.
fn kept_apart(interval: Span, settings: &Settings) -> Option<Span> {
    let rungs = lately::RUNGS_MS.into_iter().filter(|rung| interval.as_millis() % rung != 0);
    let ages = rungs.filter_map(|rung| settings.ladder().age_of_ms(rung)).min()?;
    let age_ms = ages.max(settings.exact().as_millis());
    (age_ms < settings.retain().as_millis()).then(|| Span::from_millis(age_ms).unwrap_or(Span::MAX))
}

impl History {
    /// For how long a receiver may be away before panes are merged that it does not have, by the classes of the config.
    #[must_use]
    pub fn catches_up(&self, classes: &[(Pattern, Settings)]) -> Span {
        let of =
            |(_, settings): (_, Settings)| kept_apart(self.interval, &settings).unwrap_or(settings.retain());
        classes_of(&self.pattern, classes).into_iter().map(of).min().unwrap_or(Span::MAX)
    }

    /// The settings of all classes whose keys may match.
    pub(crate) fn settings(&self, classes: &[(Pattern, Settings)]) -> Vec<Settings> {
        classes_of(&self.pattern, classes).into_iter().map(|(_, settings)| settings).collect()
    }
}

#[cfg(test)]
mod tests {
    use lately::{minutes, seconds};

    use super::super::Config;
    use super::*;

    fn history(more: &str) -> String {
        format!("[[history]]\nname = \"a\"\nurl = \"http://h:9090/api/v1/write\"\nmatch = \"k:*\"\n{more}\n")
    }

    #[test]
    fn a_history_has_all_that_the_file_says() {
        let parse =
            |text: &str| Config::parse(text).unwrap_or_else(|problem| panic!("{problem:?}")).histories;
        let [least] = &parse(&history(""))[..] else { panic!("there is one") };
        assert_eq!((least.name.as_str(), least.protocol), ("a", HistoryProtocol::RemoteWrite));
        assert_eq!((least.interval, least.delay, least.max_keys), (minutes(1), seconds(10), 10_000));
        assert_eq!((least.metric.as_str(), least.labels.len(), &least.login), ("lately_hits", 0, &None));
        let more = "protocol = \"otlp\"\ninterval = \"30s\"\ndelay = 5\nmax_keys = 7\nmetric = \"site:hits\"\n\
            labels = { env = \"prod\" }\nheaders = { \"X-Scope-OrgID\" = \"team\" }\ntoken_file = \"/run/token\"";
        let [all] = &parse(&history(more))[..] else { panic!("there is one") };
        assert_eq!((all.protocol, all.interval, all.delay), (HistoryProtocol::Otlp, seconds(30), seconds(5)));
        assert_eq!((all.max_keys, all.metric.as_str()), (7, "site:hits"));
        assert_eq!(all.labels, [("env".to_owned(), "prod".to_owned())].into());
        assert_eq!((all.headers[0].0.as_str(), all.headers[0].1.as_bytes()), ("x-scope-orgid", &b"team"[..]));
        assert_eq!(all.login, Some(HistoryLogin::Bearer { token_file: "/run/token".into() }));
        let basic = parse(&history("user = \"u\"\npassword_file = \"/run/p\""));
        let expected = HistoryLogin::Basic { user: "u".to_owned(), password_file: "/run/p".into() };
        assert_eq!(basic[0].login, Some(expected));
    }

    #[test]
    fn a_wrong_value_is_named_with_the_right_one() {
        let check = |text: &str, expected: &str| {
            let message = Config::parse(text).expect_err(text).message;
            assert_eq!(message, expected, "{text}");
        };
        let of = |more: &str, expected: &str| check(&history(more), expected);
        check("[history]\nname = \"a\"", "write [[history]], with two brackets: there may be several");
        check("[[history]]\nname = \"a\"\nurl = \"http://h/\"", "missing field `match`");
        let named = |name: &str| history("").replace("\"a\"", &format!("\"{name}\""));
        check(&named("a/b"), "invalid name 'a/b': give 1 to 64 letters, digits, or any of _ - .");
        check(&history("").repeat(2), "a second history is named 'a': give each its own name");
        let many: String = (0..=MAX_HISTORIES).map(|number| named(&format!("h{number}"))).collect();
        check(&many, "too many histories: a config has at most 8");
        let url = |url: &str| history("").replace("http://h:9090/api/v1/write", url);
        check(&url("h:9090"), "invalid url 'h:9090': give a URL, such as http://127.0.0.1:9090/api/v1/write");
        check(
            &url("http://u:p@h/"),
            "invalid url 'http://u:p@h/': a URL with a password is not possible: leave out what is before the @",
        );
        of("protocol = \"remote\"", "unknown protocol 'remote': give remote-write, remote-write-2 or otlp");
        of("interval = \"500ms\"", "invalid interval 500ms: give 1s to 1d");
        of("interval = \"2d\"", "invalid interval 2d: give 1s to 1d");
        of("delay = \"2h\"", "invalid delay 2h: give 1s to 1h");
        for max_keys in ["0", "1_000_001", "\"many\""] {
            let shown = max_keys.replace('_', "");
            of(
                &format!("max_keys = {max_keys}"),
                &format!("invalid max_keys {shown}: give a whole number from 1 to 1000000, without quotes"),
            );
        }
        of(
            "metric = \"a-b\"",
            "invalid metric 'a-b': give 1 to 128 letters, digits, _ or :, a digit not first",
        );
        of("labels = { key = \"x\" }", "invalid label 'key': the server sets it: leave it out");
        let label = "give 1 to 128 letters, digits or _, a digit not first, and no __ in front";
        of("labels = { __a = \"x\" }", &format!("invalid label '__a': {label}"));
        of("labels = { 1a = \"x\" }", &format!("invalid label '1a': {label}"));
        of("labels = { a = \"\" }", "the label 'a' has 0 bytes: give 1 to 1024");
        of("headers = { Host = \"x\" }", "invalid header 'Host': the server sets it: leave it out");
        of(
            "headers = { Authorization = \"x\" }",
            "invalid header 'Authorization': a secret does not belong here: give token_file, or user and password_file",
        );
        of("headers = { \"a b\" = \"x\" }", "invalid header 'a b': give a name such as \"X-Scope-OrgID\"");
        of("user = \"u\"", "user goes with password_file: name the file");
        of("password_file = \"p\"", "password_file goes with user: give the name");
        of(
            "user = \"u\"\npassword_file = \"p\"\ntoken_file = \"t\"",
            "a history logs in one way: give token_file, or user and password_file",
        );
        of("user = \"u:v\"\npassword_file = \"p\"", "invalid user: give a name without colons");
    }

    #[test]
    fn panes_that_a_class_does_not_keep_are_refused() {
        let check = |class: &str, more: &str, expected: Result<&str, &str>| {
            let text = format!("{class}\n{}", history(more));
            let found = Config::parse(&text)
                .map(|config| config.histories[0].catches_up(&config.classes).to_string())
                .map_err(|problem| problem.message);
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        };
        let class = |pattern: &str, more: &str| format!("[[class]]\nmatch = \"{pattern}\"\n{more}");
        // Panes of a minute are merged after 30,000 s, by the default precision.
        check("", "", Ok("500m"));
        check("", "interval = 1", Ok("6m"));
        check("", "interval = \"15s\"", Ok("6m"));
        check("", "interval = \"10s\"", Ok("50m"));
        check("", "interval = \"1h\"", Ok("7d"));
        check(&class("k:*", "precision = 0.001"), "", Ok("5000m"));
        check(
            &class("k:slow", "resolution = \"10s\""),
            "interval = \"15s\"",
            Err(
                "interval 15s is no multiple of 10s, the resolution of class 'k:slow', which match names, too",
            ),
        );
        // Its keys are of another class.
        check(&class("other:*", "resolution = \"10s\""), "interval = \"15s\"", Ok("6m"));
        check(
            &format!("{}\n{}", class("k:*", ""), class("*", "resolution = \"10s\"")),
            "interval = \"15s\"",
            Ok("6m"),
        );
        check(
            "",
            "interval = 1\ndelay = \"10m\"",
            Err(
                "panes of 1s are not kept until they are sent: those of keys without a class are merged after 6m: give them a class with exact = \"662s\" or more",
            ),
        );
        // Symptom: a class of other keys with a short retention stopped the whole history, without a word. Cause: only the time until panes
        // are merged was checked, and not that of the retention, nor the margin.
        let short = |retain: &str| {
            class("k:x*", &format!("retain = \"{retain}\"\nwindow = \"1s\"\nexact = \"{retain}\""))
        };
        check(
            &short("75s"),
            "interval = \"10s\"",
            Err(
                "panes of 10s are not kept until they are sent: those of class 'k:x*' are forgotten after 75s: give them a class with retain = \"90s\" or more",
            ),
        );
        check(&short("90s"), "interval = \"10s\"", Ok("90s"));
        check(&class("k:*", "exact = \"1h\""), "interval = 1\ndelay = \"10m\"", Ok("1h"));
    }
}
