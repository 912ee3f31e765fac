//! Layouts of lines as an expression with a group for each field: those of load balancers and of syslog, and the
//! format strings of nginx and Apache.
//!
//! Matching stays linear for any line. Between quotes a field ends at the first quote that no backslash escapes,
//! because servers escape the quotes that clients send. Outside of quotes a field has no unescaped quote.

use regex::bytes::Regex;

use crate::error::SetupError;
use crate::format::expression;

/// The fields of a line, found by an expression.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(crate) regex: Regex,
    /// The names of the fields and their groups. A group may have several names.
    pub(crate) names: Vec<(String, usize)>,
    /// The groups for the time. The first that has a time counts.
    pub(crate) times: Vec<usize>,
    pub(crate) one_pass: Option<OnePass>,
}

/// A second expression with the same groups that is matched in one pass: at each byte there is only one way to
/// continue. It accepts lines whose unquoted fields have no blanks. It accepts more texts as addresses, which are
/// checked afterwards. If it accepts a line, it finds the same fields as the first expression. Other lines are
/// matched by the first one.
#[derive(Clone, Debug)]
pub(crate) struct OnePass {
    pub(crate) regex: Regex,
    /// Groups that must be an address, and the expression for an address.
    pub(crate) addresses: Vec<(usize, Regex)>,
}

/// The content of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Address,
    /// An address, or a name with dots: the prefix of a wrapped line is neither.
    Host,
    Number,
    Decimal,
    Status,
    LogDate,
    /// Text without blanks.
    Word,
    /// Words with commas between them.
    List,
    /// Anything but unescaped quotes.
    Any,
}

impl Kind {
    fn expression(self) -> &'static str {
        match self {
            Kind::Address => ADDRESS,
            Kind::Host => HOST,
            Kind::Number => r"\d+|-",
            Kind::Decimal => r"\d+(?:\.\d+)?|-",
            Kind::Status => r"\d{1,3}|-",
            Kind::LogDate => r"\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [-+]\d{4}",
            Kind::Word => r#"[^" ]*"#,
            Kind::List => r#"[^" ,]+(?:, ?[^" ,]+)*"#,
            Kind::Any => QUOTED,
        }
    }
}

/// The library matches expressions with more groups in several passes.
const MAX_ONE_PASS_GROUPS: usize = 16;

impl Kind {
    /// An expression for an unquoted field that ends where the next token begins. `None` if there is none, or if
    /// there could be several ends.
    fn in_one_pass(self, rest: &[Token]) -> Option<&'static str> {
        let next = match rest.first() {
            Some(Token::Text(text)) => text.bytes().next(),
            _ => None,
        };
        match self {
            Kind::Any if rest.is_empty() => Some(QUOTED),
            // The first unescaped quote after it belongs to the layout, and the tokens before that have a fixed
            // length. So the field can end in one place only.
            Kind::Any => (next == Some(b' ') && has_fixed_way_to_quote(rest)).then_some(r#"[^" \\]*"#),
            Kind::Address => (next.is_none_or(|next| b" \"[]()|,".contains(&next)))
                .then_some(r"[0-9a-fA-F]*[.:][0-9a-fA-F:.]*(?:%[0-9A-Za-z._-]+)?|unix:|-"),
            Kind::Host => {
                next.is_none_or(|next| b" \"[]()|,".contains(&next)).then_some(r"[0-9A-Za-z._:%-]*")
            }
            Kind::Word | Kind::List => {
                next.is_none_or(|next| b" \"".contains(&next)).then(|| self.expression())
            }
            Kind::Number | Kind::Status => {
                next.is_none_or(|next| !next.is_ascii_digit()).then(|| self.expression())
            }
            Kind::Decimal => {
                next.is_none_or(|next| !next.is_ascii_digit() && next != b'.').then(|| self.expression())
            }
            Kind::LogDate => Some(self.expression()),
        }
    }
}

/// Whether there are only texts and dates before the next quote of the layout.
fn has_fixed_way_to_quote(rest: &[Token]) -> bool {
    rest.iter()
        .map_while(|token| match token {
            // A backslash could make the quote part of a field.
            Token::Text(text) if text.contains('\\') => None,
            Token::Text(text) => Some(text.contains('"')),
            Token::Field { kind, .. } => (*kind == Kind::LogDate).then_some(false),
        })
        .any(|has_quote| has_quote)
}

/// A part of a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Text(String),
    Field { names: Vec<String>, kind: Kind, is_time: bool },
}

/// Dots or colons distinguish an address from a word such as `Dec`.
macro_rules! ip {
    () => {
        r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*(?:%[0-9A-Za-z._-]+)?"
    };
}
const ADDRESS: &str = concat!(ip!(), "|unix:|-");
const HOST: &str = concat!(ip!(), r"|[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)+\.?|localhost|-");

const QUOTED: &str = r#"(?:[^"\\]|\\.)*"#;

/// Application and classic load balancers of AWS.
pub(crate) fn alb() -> Layout {
    builtin(&format!(
        r#"^(?:(?<type>[a-z0-9]+) )?(?<time>\d{{4}}-\d\d-\d\dT[\d:.]+Z) (?<elb>\S+) (?<ip>[0-9a-fA-F:.]+):(?<port>\d+) (?<target>\S+) (?<request_processing_time>-?[\d.]+) (?<target_processing_time>-?[\d.]+) (?<response_processing_time>-?[\d.]+) (?<status>\d+|-) (?<target_status>\d+|-) (?<received_bytes>\d+) (?<bytes>\d+) "(?<request>{QUOTED})"(?: "(?<agent>{QUOTED})" (?<ssl_cipher>\S+) (?<ssl_protocol>\S+)(?: (?<target_group>\S+) "(?<trace_id>{QUOTED})" "(?<vhost>{QUOTED})")?.*)?$"#
    ))
}

/// HAProxy's `option httplog`.
pub(crate) fn haproxy() -> Layout {
    builtin(
        r#"^(?<ip>[0-9a-fA-F:.]+):(?<port>\d+) \[(?<time>[^\]\[" ]+)\] (?<frontend>[^ "]+) (?<backend>[^ /"]+)/(?<server>[^ "]+) (?<timers>[-+/\d]+) (?<status>-?\d+) (?<bytes>\+?\d+) (?<request_cookie>[^ "]+) (?<response_cookie>[^ "]+) (?<termination>[^ "]+) (?<connections>[+/\d]+) (?<queues>[/\d]+)(?: \{(?<request_headers>[^"{}]*)\})?(?: \{(?<response_headers>[^"{}]*)\})? "(?<request>[^"]*)"?$"#,
    )
}

/// Envoy's default access log, and Istio's, which has more fields.
///
/// Envoy escapes nothing. A path has no blanks, so a quote in it does not end a field. After the numbers only the
/// agent may have quotes, but not the three characters `" "` between two fields: a second occurrence of them would be
/// ambiguous, also one that begins with the quote before the agent, or ends with the quote after it.
pub(crate) fn envoy() -> Layout {
    const AGENT: &str = r#"(?:(?: [^"]|[^" ]|"+[^" ]|"+ [^"])(?:[^"]|"+[^" ]|"+ [^"])*"*|"*| )"#;
    builtin(&format!(
        r#"^\[(?<time>\d{{4}}-\d\d-\d\dT[\d:.]+Z)\] "(?<request>[^" ]+ [^ ]+ [^" ]+)" (?<status>\d+) (?<flags>[^ "]+) (?:(?<details>[^ "]+) (?<termination>[^ "]+) "(?<failure>[^"]*)" )?(?<received_bytes>\d+) (?<bytes>\d+) (?<duration>\d+|-) (?<service_time>\d+|-) "(?<ip>[^"]*)" "(?<agent>{AGENT})" "(?<request_id>[^"]*)" "(?<vhost>[^"]*)" "(?<upstream>[^"]*)"(?: [^"]*)?$"#
    ))
}

/// Syslog: RFC 5424, and RFC 3164 with old times, which have no year, or with new ones.
pub(crate) fn syslog() -> Layout {
    let mut layout = builtin(
        r"(?s)^(?:<(?<pri>\d{1,3})>)?(?:(?<version>1) (?<rfc5424>\d{4}-\d\d-\d\dT\S+|-) (?<host5424>\S+) (?<app5424>\S+) (?<pid5424>\S+) (?<msgid>\S+) (?:-|(?<data>(?:\[(?:[^\]\\]|\\.)*\])+))(?: (?:\xef\xbb\xbf)?(?<message5424>.*))?|(?<time>[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*) (?<host>[^\s:]+) (?<app>[^\s:\[\]]+)(?:\[(?<pid>[^\]\s]*)\])?: ?(?<message>.*))$",
    );
    // Both layouts have the same fields.
    for (name, group) in layout.names.clone() {
        if name == "rfc5424" {
            layout.times.push(group);
        }
        if let Some(name) = name.strip_suffix("5424").filter(|name| *name != "rfc") {
            layout.names.push((name.to_owned(), group));
        }
    }
    layout.names.retain(|(name, _)| !name.ends_with("5424"));
    layout
}

/// An expression whose groups are the fields. One of them is `time`.
fn builtin(pattern: &str) -> Layout {
    let regex = expression(pattern).expect("a fixed expression compiles");
    let names: Vec<(String, usize)> = regex
        .capture_names()
        .enumerate()
        .filter_map(|(group, name)| Some((name?.to_owned(), group)))
        .collect();
    let times = names.iter().filter(|(name, _)| name == "time").map(|(_, group)| *group).collect();
    Layout { regex, names, times, one_pass: None }
}

/// Parses the value of `log_format` in nginx's configuration.
pub(crate) fn nginx(text: &str) -> Result<Layout, SetupError> {
    let error = |cause: &str| SetupError::Layout { text: text.into(), cause: cause.into() };
    let joined = config_text(text, "log_format").ok_or_else(|| error("a quote is not closed"))?;
    let mut tokens = Vec::new();
    let mut rest = joined.as_str();
    while let Some(at) = rest.find('$') {
        push_text(&mut tokens, &rest[..at]);
        rest = &rest[at + 1..];
        let (name, after) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or_else(|| error("a '{' is not closed"))?,
            None => {
                let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
                rest.split_at(rest.find(|character| !is_name(character)).unwrap_or(rest.len()))
            }
        };
        if name.is_empty() {
            return Err(error("a '$' has no name"));
        }
        let (kind, alias, is_time) = nginx_variable(name);
        let names = std::iter::once(name).chain(alias).map(str::to_owned).collect();
        tokens.push(Token::Field { names, kind, is_time });
        rest = after;
    }
    push_text(&mut tokens, rest);
    compile(&tokens, "$time_local, $time_iso8601 or $msec").map_err(|cause| error(&cause))
}

/// The kind of a variable of nginx, and the name of its field.
fn nginx_variable(name: &str) -> (Kind, Option<&'static str>, bool) {
    match name {
        "remote_addr" => (Kind::Address, Some("ip"), false),
        "realip_remote_addr" => (Kind::Address, Some("peer"), false),
        "remote_user" => (Kind::Any, Some("user"), false),
        "time_local" => (Kind::LogDate, None, true),
        "time_iso8601" => (Kind::Word, None, true),
        "msec" => (Kind::Decimal, None, true),
        "status" => (Kind::Status, None, false),
        "body_bytes_sent" => (Kind::Number, Some("bytes"), false),
        "bytes_sent"
        | "request_length"
        | "connection"
        | "connection_requests"
        | "pid"
        | "remote_port"
        | "server_port" => (Kind::Number, None, false),
        "request_time" => (Kind::Decimal, None, false),
        "http_referer" => (Kind::Any, Some("referer"), false),
        "http_user_agent" => (Kind::Any, Some("agent"), false),
        "http_x_forwarded_for" | "proxy_add_x_forwarded_for" => (Kind::List, Some("forwarded"), false),
        "host" | "http_host" | "server_name" => (Kind::Word, Some("vhost"), false),
        "request_method" => (Kind::Word, Some("method"), false),
        "request_uri" => (Kind::Word, Some("url"), false),
        "server_protocol" => (Kind::Word, Some("protocol"), false),
        "uri" => (Kind::Any, Some("path"), false),
        "scheme" | "request_id" | "pipe" | "gzip_ratio" | "ssl_protocol" | "ssl_cipher" | "server_addr" => {
            (Kind::Word, None, false)
        }
        _ => (Kind::Any, None, false),
    }
}

/// Parses the value of `LogFormat` in Apache's configuration.
pub(crate) fn apache(text: &str) -> Result<Layout, SetupError> {
    let error = |cause: &str| SetupError::Layout { text: text.into(), cause: cause.into() };
    let joined = config_text(text, "LogFormat").ok_or_else(|| error("a quote is not closed"))?;
    let joined = joined.replace("\\\"", "\"").replace("\\t", "\t");
    let mut tokens = Vec::new();
    let mut rest = joined.as_str();
    while let Some(at) = rest.find('%') {
        push_text(&mut tokens, &rest[..at]);
        rest = rest[at + 1..]
            .trim_start_matches(|c: char| matches!(c, '<' | '>' | '!' | ',') || c.is_ascii_digit());
        let (argument, after) = match rest.strip_prefix('{') {
            Some(inner) => {
                let (argument, after) = inner.split_once('}').ok_or_else(|| error("a '{' is not closed"))?;
                (Some(argument), after)
            }
            None => (None, rest),
        };
        let after = after.strip_prefix('^').map_or(after, |trailer| trailer.get(1..).unwrap_or(""));
        let directive = after.chars().next().ok_or_else(|| error("a '%' has no letter"))?;
        rest = &after[directive.len_utf8()..];
        if directive == '%' {
            push_text(&mut tokens, "%");
            continue;
        }
        if directive == 't' && argument.is_none() {
            push_text(&mut tokens, "[");
        }
        let Some((names, kind, is_time)) = apache_directive(directive, argument) else {
            return Err(error(&format!("'%{directive}' is not known")));
        };
        tokens.push(Token::Field { names, kind, is_time });
        if directive == 't' && argument.is_none() {
            push_text(&mut tokens, "]");
        }
    }
    push_text(&mut tokens, rest);
    compile(&tokens, "%t").map_err(|cause| error(&cause))
}

/// The name of the field of a directive of Apache, and its kind.
fn apache_directive(directive: char, argument: Option<&str>) -> Option<(Vec<String>, Kind, bool)> {
    let named = |name: &str, kind| Some((vec![name.to_owned()], kind, false));
    if let Some(argument) = argument {
        let argument = argument.to_ascii_lowercase();
        return match directive {
            'a' | 'h' => named("peer", Kind::Address),
            't' => Some((vec!["time".to_owned()], Kind::Any, true)),
            'p' => named("port", Kind::Number),
            'T' => named("duration", Kind::Number),
            'P' => named("pid", Kind::Number),
            'i' | 'o' | 'e' | 'n' | 'C' | 'x' | 'c' => {
                let alias = match (directive, argument.as_str()) {
                    ('i', "referer") => None,
                    ('i', "user-agent") => Some("agent"),
                    ('i', "x-forwarded-for") => Some("forwarded"),
                    ('i', "host") => Some("vhost"),
                    _ => None,
                };
                let kind = if alias == Some("forwarded") { Kind::List } else { Kind::Any };
                let names = std::iter::once(argument).chain(alias.map(str::to_owned)).collect();
                Some((names, kind, false))
            }
            _ => None,
        };
    }
    match directive {
        'a' => named("ip", Kind::Address),
        'h' => named("ip", Kind::Host),
        'l' => named("ident", Kind::Word),
        'u' => named("user", Kind::Any),
        't' => Some((vec!["time".to_owned()], Kind::LogDate, true)),
        'r' => named("request", Kind::Any),
        's' => named("status", Kind::Status),
        'b' | 'B' => named("bytes", Kind::Number),
        'O' => named("bytes_sent", Kind::Number),
        'I' => named("bytes_received", Kind::Number),
        'S' => named("bytes_total", Kind::Number),
        'D' => named("duration_us", Kind::Number),
        'T' => named("duration", Kind::Number),
        'k' => named("keepalives", Kind::Number),
        'p' => named("port", Kind::Number),
        'P' => named("pid", Kind::Number),
        'v' | 'V' => named("vhost", Kind::Word),
        'A' => named("server_address", Kind::Address),
        'm' => named("method", Kind::Word),
        'U' => named("path", Kind::Any),
        'q' => named("query", Kind::Word),
        'H' => named("protocol", Kind::Word),
        'f' => named("file", Kind::Any),
        'R' => named("handler", Kind::Word),
        'L' => named("id", Kind::Word),
        'X' => named("connection", Kind::Word),
        _ => None,
    }
}

/// The value of a directive: without the directive's name and the format's name, with its quoted pieces joined.
fn config_text(text: &str, directive: &str) -> Option<String> {
    let text = text.trim().trim_end_matches(';');
    let mut rest = match text.strip_prefix(directive) {
        Some(rest) => rest.find(['"', '\'']).map_or(rest, |at| &rest[at..]),
        None => text,
    };
    if !rest.starts_with('\'') && (directive == "log_format" || !rest.starts_with('"')) {
        return Some(rest.to_owned());
    }
    let mut joined = String::new();
    while let Some(quote) = rest.chars().next().filter(|quote| matches!(quote, '"' | '\'')) {
        let inner = &rest[1..];
        let mut escaped = false;
        let end = inner.find(|character| {
            let closes = character == quote && !escaped;
            escaped = character == '\\' && !escaped;
            closes
        })?;
        joined += &inner[..end];
        rest = inner[end + 1..].trim_start();
    }
    Some(joined)
}

fn push_text(tokens: &mut Vec<Token>, text: &str) {
    match tokens.last_mut() {
        _ if text.is_empty() => {}
        Some(Token::Text(before)) => before.push_str(text),
        _ => tokens.push(Token::Text(text.to_owned())),
    }
}

fn compile(tokens: &[Token], times_are: &str) -> Result<Layout, String> {
    let (mut pattern, mut one_pass) = ("(?s)^".to_owned(), Some("(?s)^".to_owned()));
    let mut addresses = Vec::new();
    let (mut names, mut times, mut group) = (Vec::new(), Vec::new(), 0);
    for (at, token) in tokens.iter().enumerate() {
        let is_quote = |token: Option<&Token>, starts: bool| match token {
            Some(Token::Text(text)) => {
                if starts {
                    text.starts_with('"')
                } else {
                    text.ends_with('"')
                }
            }
            _ => false,
        };
        match token {
            Token::Text(text) => {
                let text = regex::escape(text);
                pattern += &text;
                one_pass = one_pass.map(|one_pass| one_pass + &text);
            }
            Token::Field { names: field, kind, is_time } => {
                if matches!(tokens.get(at + 1), Some(Token::Field { .. })) {
                    return Err(format!("nothing is between '{}' and what follows it", field[0]));
                }
                let before = at.checked_sub(1).and_then(|at| tokens.get(at));
                let quoted = is_quote(before, false) && is_quote(tokens.get(at + 1), true);
                let is_text = matches!(kind, Kind::Any | Kind::Word | Kind::List);
                group += 1;
                let expression_of = if quoted && is_text { QUOTED } else { kind.expression() };
                pattern += &format!("({expression_of})");
                let in_one_pass =
                    if quoted && is_text { Some(QUOTED) } else { kind.in_one_pass(&tokens[at + 1..]) };
                one_pass =
                    one_pass.zip(in_one_pass).map(|(one_pass, field)| one_pass + &format!("({field})"));
                if matches!(kind, Kind::Address | Kind::Host) {
                    addresses.push((
                        group,
                        expression(&format!("^(?:{expression_of})$")).map_err(|error| error.to_string())?,
                    ));
                }
                names.extend(field.iter().map(|name| (name.clone(), group)));
                if *is_time {
                    times.push(group);
                }
            }
        }
    }
    if times.is_empty() {
        return Err(format!("it has no time, {times_are}"));
    }
    pattern += "$";
    let regex = expression(&pattern).map_err(|error| error.to_string())?;
    let one_pass = one_pass
        .filter(|_| group <= MAX_ONE_PASS_GROUPS)
        .map(|one_pass| expression(&(one_pass + "$")))
        .transpose();
    let one_pass = one_pass.map_err(|error| error.to_string())?.map(|regex| OnePass { regex, addresses });
    Ok(Layout { regex, names, times, one_pass })
}
