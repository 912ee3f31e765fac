//! Better messages for invalid TOML. The parser names the rule of its grammar that failed, which does not help a user
//! who left out quotes.

use toml::de::DeTable;

use super::File;
use super::error::Problem;
use super::value::{Clients, Most, PRECISION};

/// A better message for a common mistake.
pub(super) fn explained(problem: Problem, text: &str) -> Problem {
    match explain(&problem, text) {
        Some(message) => Problem { message, ..problem },
        None => problem,
    }
}

fn explain(problem: &Problem, text: &str) -> Option<String> {
    let at = problem.at.start.min(text.len());
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(start..)?.lines().next().unwrap_or_default();
    let says = |part: &str| problem.message.starts_with(part);
    if says("duplicate key") {
        return None;
    }
    if says("key with no value") {
        return Some(without_equals_sign(line));
    }
    if says("unclosed table") {
        return Some(format!("`{}` has no end: close it with ]", line.trim()));
    }
    if says("invalid key-value pair") {
        return Some("this is no TOML: write a [table], and key = value on a line each".to_owned());
    }
    if says("unexpected key or value")
        && let Some(key) = second_key(line.get(at - start..)?)
    {
        return Some(a_line_each(key));
    }
    let is_text = says("invalid basic string") || says("invalid literal string");
    let control = text.get(at..)?.chars().next().filter(|it| it.is_control() && !"\r\n".contains(*it));
    if let (true, Some(control)) = (is_text, control) {
        let quotes = if says("invalid literal string") { " in double quotes" } else { "" };
        let (shown, code) = (control.escape_unicode(), u32::from(control));
        return Some(format!(
            "a text cannot hold the control character {shown}: write \\u{code:04x}{quotes}"
        ));
    }
    if is_text && line.contains(['"', '\'']) {
        return Some("the text has no end: close it with the quote that it begins with".to_owned());
    }
    if says("missing escaped value") {
        return Some(
            "\\ begins an escape in double quotes: write \\\\, or put the text in single quotes".to_owned(),
        );
    }
    explain_value(line, at - start)
}

/// The key of a second `key = value` on one line.
fn second_key(rest: &str) -> Option<&str> {
    let (key, _) = rest.trim_start_matches([',', ';', ' ', '\t']).split_once('=')?;
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    Some(key.trim()).filter(|key| !key.is_empty() && key.bytes().all(is_bare))
}

fn a_line_each(key: &str) -> String {
    format!("write `{key} = …` on a line of its own: a line has one key")
}

/// The message for a line without a value.
fn without_equals_sign(line: &str) -> String {
    let line = line.trim();
    if line.starts_with("//") || line.starts_with(';') {
        return "a comment begins with #".to_owned();
    }
    if line.ends_with(']') && !line.contains('[') {
        return format!("`{line}` has no beginning: open it with [");
    }
    let end = line.find([':', ' ', '\t']).unwrap_or(line.len());
    format!("write `{} = …`: a key and its value have = between them", &line[..end])
}

/// The message for an invalid value. An element of an array that spans lines has no key before it.
fn explain_value(line: &str, at: usize) -> Option<String> {
    let after_key = line.find('=').map_or(0, |equals| equals + 1);
    let (until, whole) = (line.get(..at)?, line.get(after_key..)?);
    let is_nested = after_key == 0 || whole.trim_start().starts_with(['[', '{']);
    let is_in_text = until.matches('"').count() % 2 == 1;
    if at < after_key || (is_nested && is_in_text) {
        return None;
    }
    let separator = until.rfind(['=', ',', '[', '{']).map_or(0, |before| before + 1);
    let (before, rest) = line.split_at_checked(if is_nested { separator } else { after_key })?;
    let rest = rest.split(" #").next().unwrap_or_default();
    let value = if is_nested { rest.split([',', ']', '}']).next().unwrap_or_default() } else { rest }.trim();
    let key = before
        .trim()
        .trim_end_matches(['=', ' ', '\t'])
        .rsplit(['{', ',', ' ', '\t'])
        .next()
        .unwrap_or_default();
    if value.is_empty() {
        return (!key.is_empty()).then(|| format!("no value after `{key} =`"));
    }
    if is_value(value) {
        return None;
    }
    let shorter = value.trim_end_matches([',', ';']);
    if shorter.len() < value.len() && is_value(shorter) {
        return Some(format!("`{value}` ends with a `{}`: leave it out", &value[shorter.len()..]));
    }
    if value.starts_with(['"', '\'', '[', '{']) {
        return None;
    }
    if value.starts_with(['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']) {
        return Some(format!("`{value}` has typographic quotes: use straight ones, \" or '"));
    }
    if !is_nested
        && let Some((first, rest)) = value.split_once([' ', '\t', ',', ';'])
        && is_value(first)
        && let Some(key) = second_key(rest)
    {
        return Some(a_line_each(key));
    }
    if !is_nested && let Some(message) = of_field(key, value) {
        return Some(message);
    }
    if ["yes", "no", "on", "off", "true", "false"].contains(&value.to_ascii_lowercase().as_str()) {
        return Some(format!("`{value}` is no value of TOML: give true or false, or a text in quotes"));
    }
    if let Some(number) = number(value) {
        return Some(format!("`{value}` is no number of TOML: write {number}"));
    }
    Some(format!("`{value}` is not in quotes: write {}", quoted(value)))
}

/// The message for a field that takes no text.
fn of_field(key: &str, value: &str) -> Option<String> {
    match key {
        "precision" if number(value).is_none() => Some(format!("`{value}` is no precision: {PRECISION}")),
        "hosts" | "trusted_proxies" => {
            Some(format!("`{value}` is no list: give a list: [{}]", quoted(value)))
        }
        "max" => value.parse::<Most>().err(),
        "max_clients" => value.parse::<Clients>().err(),
        "insecure" | "shadow" | "unique" => {
            Some(format!("`{value}` is no value of TOML: give true or false, without quotes"))
        }
        "descriptors" => Some(format!("`{value}` is no table: give a table, such as {{ key = \"value\" }}")),
        _ => None,
    }
}

/// A number as TOML writes it, such as 1000 for `1,000`.
fn number(value: &str) -> Option<String> {
    let number: f64 = value.parse().ok().filter(|number: &f64| number.is_finite())?;
    Some(number.to_string())
}

fn is_value(value: &str) -> bool {
    DeTable::parse(&format!("x = {value}")).is_ok()
}

/// Quotes a text, in single quotes if it needs escapes.
fn quoted(value: &str) -> String {
    if value.contains(['"', '\\']) { format!("'{value}'") } else { format!("\"{value}\"") }
}

/// The tables of a config.
const TABLES: [&str; 8] =
    ["[server]", "[storage]", "[memory]", "[[class]]", "[[limit]]", "[[alert]]", "[[user]]", "[cluster]"];

/// The tables that have a key.
fn tables_of(key: &str) -> Vec<&'static str> {
    let has = |table: &&str| {
        let read: Result<File, _> = toml::from_str(&format!("{table}\n{key} = 0"));
        read.map_or_else(|error| !error.message().starts_with("unknown field"), |_| true)
    };
    let is_bare = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    TABLES.into_iter().filter(|table| is_bare && has(table)).collect()
}

/// Expectations of the deserializer, and plainer words for them.
const EXPECTED: [(&str, &str); 4] = [
    ("expected a boolean", "expected true or false, without quotes"),
    ("expected a string", "expected a text in quotes"),
    ("expected a map", "expected a table, such as { key = \"value\" }"),
    ("expected a sequence", "expected a list, such as [\"a\", \"b\"]"),
];

/// A better message for a value of the wrong type, and for a key outside any table.
pub(super) fn of_values(problem: Problem) -> Problem {
    let too_large =
        problem.message.strip_prefix("invalid type: integer `").and_then(|rest| rest.split_once("` as "));
    if let Some((number, _)) = too_large {
        let message = format!("invalid number {number}: it is too large: no number is above {}", i64::MAX);
        return Problem { message, ..problem };
    }
    for (expected, better) in EXPECTED {
        if let Some(told) = problem.message.strip_suffix(expected) {
            return Problem { message: format!("{told}{better}"), ..problem };
        }
    }
    let outside = problem.message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((key, _)) = outside.filter(|(_, rest)| rest.starts_with(", expected one of `server`")) else {
        return problem;
    };
    match tables_of(key).as_slice() {
        [] => problem,
        tables => Problem { message: format!("`{key}` belongs below {}", tables.join(" or ")), ..problem },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn syntax_errors_name_the_mistake() {
        let check = |text: &str, expected: &str| {
            let problem = Config::parse(text).expect_err(text);
            assert_eq!(problem.message, expected, "{text}");
        };
        let quotes = |value: &str| format!("`{value}` is not in quotes: write \"{value}\"");
        for value in [
            "five",
            "fast",
            "ten",
            "nope",
            "info",
            "./x",
            "/var/lib",
            "5m",
            "1GiB",
            "127.0.0.1:7379",
            "localhost:7379",
            "always",
            "*",
            "ad:*",
            "5 per minute",
            "1%",
            "-x",
            "2026-13-01",
        ] {
            for line in
                [format!("x = {value}"), format!("x={value} # a comment"), format!("  x   =  {value}  ")]
            {
                check(&format!("[server]\n{line}\n[storage]"), &quotes(value));
            }
        }
        for (line, expected) in [
            (
                "precision = 1%",
                "`1%` is no precision: give a number without quotes, 0.0001 to 1, such as 0.01",
            ),
            (
                "hosts = lately.example.org",
                "`lately.example.org` is no list: give a list: [\"lately.example.org\"]",
            ),
            ("max = five", "invalid max 'five': give a whole number from 0 to 9223372036854775807"),
            ("max_clients = many", "invalid number of clients 'many': give a whole number, 1 or more"),
            ("insecure = yes", "`yes` is no value of TOML: give true or false, without quotes"),
            ("descriptors = all", "`all` is no table: give a table, such as { key = \"value\" }"),
            ("max = 5 window = 1", "write `window = …` on a line of its own: a line has one key"),
            ("name = \"a\", max = 5", "write `max = …` on a line of its own: a line has one key"),
            ("x = \"a\u{1}b\"", "a text cannot hold the control character \\u{1}: write \\u0001"),
            ("x = \"\u{7f}\"", "a text cannot hold the control character \\u{7f}: write \\u007f"),
            (
                "x = 'a\u{1}'",
                "a text cannot hold the control character \\u{1}: write \\u0001 in double quotes",
            ),
            ("[[server]]", "write [server], with one bracket: there is only one"),
            ("[[otlp]]", "write [otlp], with one bracket: there is only one"),
            ("[[cluster]]", "write [cluster], with one bracket: there is only one"),
            ("[[storage]]", "write [storage], with one bracket: there is only one"),
            ("[[memory]]", "write [memory], with one bracket: there is only one"),
        ] {
            check(line, expected);
        }
        check("x = a\\d", "`a\\d` is not in quotes: write 'a\\d'");
        check("x = { a = b }", &quotes("b"));
        check("x = { a = 1, b = c, d = 1 }", &quotes("c"));
        check("x = [\"a\", b]", &quotes("b"));
        let bool =
            |value: &str| format!("`{value}` is no value of TOML: give true or false, or a text in quotes");
        for value in ["yes", "True", "FALSE", "off"] {
            check(&format!("x = {value}"), &bool(value));
        }
        check("x = [\n  a,\n]", &quotes("a"));
        check("x = [\n  \"a\",\n  ./b\n]", &quotes("./b"));
        check("x = ad:[0-9]*", &quotes("ad:[0-9]*"));
        check("server]", "`server]` has no beginning: open it with [");
        check("x = 1\nx = 2", "duplicate key `x`: remove one");
        check("[[limit]]\n[limit]", "duplicate key `limit`: remove one");
        // A mistake after a string is not reported inside the string.
        check("x = \"a = b\" c", "unexpected key or value, expected newline, `#`");
        check("x = 05", "`05` is no number of TOML: write 5");
        check("x = .01", "`.01` is no number of TOML: write 0.01");
        check("x = 5.", "`5.` is no number of TOML: write 5");
        check("x = 5,", "`5,` ends with a `,`: leave it out");
        check("x = \"a\";", "`\"a\";` ends with a `;`: leave it out");
        check("]", "missing table open, expected `[`");
        check("x =", "no value after `x =`");
        check("x = # none", "no value after `x =`");
        check("x = { a = }", "no value after `a =`");
        check(
            "x = \u{201c}a\u{201d}",
            "`\u{201c}a\u{201d}` has typographic quotes: use straight ones, \" or '",
        );
        check("server:\n  resp: 1", "write `server = …`: a key and its value have = between them");
        check("max_clients 5", "write `max_clients = …`: a key and its value have = between them");
        check("// a comment", "a comment begins with #");
        check("[server\n", "`[server` has no end: close it with ]");
        check("{\"server\": {}}", "this is no TOML: write a [table], and key = value on a line each");
        check("x = \"a\ny = 1", "the text has no end: close it with the quote that it begins with");
        check("x = 'a", "the text has no end: close it with the quote that it begins with");
        check(
            "x = \"\\d\"",
            "\\ begins an escape in double quotes: write \\\\, or put the text in single quotes",
        );
        check("resp = \"127.0.0.1:7379\"", "`resp` belongs below [server]");
        check("window = \"5m\"", "`window` belongs below [[class]] or [[limit]] or [[alert]]");
        check("max = 5", "`max` belongs below [[limit]]");
        check(
            "nosuch = 5",
            "unknown field `nosuch`, expected one of `server`, `storage`, `memory`, `class`, `limit`, `alert`, `user`, `cluster`, `history`, `otlp`",
        );
    }

    proptest::proptest! {
        /// Every text parses or gets a message; none panics.
        #[test]
        fn any_text_parses_or_gets_a_message(text in "([a-z]{1,3} ?[=:]? ?|[\\[\\]{},\"'#\\\\\n. ]|[0-9ä“]){0,12}") {
            if let Err(problem) = Config::parse(&text) {
                proptest::prop_assert!(!problem.message.is_empty());
            }
        }
    }
}
