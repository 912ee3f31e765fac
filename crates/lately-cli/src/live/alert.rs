//! An alert of a server, as `ALERTS` has it.

use std::collections::HashMap;

use redis::{FromRedisValue, Value, from_redis_value};

use crate::table::printable;

/// The keys that a line names.
const SHOWN_KEYS: usize = 3;

/// A line about an alert: what it found, and who contributed most. `None` if the answer has no such alert.
pub(crate) fn line(alert: Value) -> Option<String> {
    let fields: HashMap<String, Value> = from_redis_value(alert).ok()?;
    let text = |name: &str| field::<String>(&fields, name);
    let (name, state, kind) = (text("name")?, text("state")?, text("kind")?);
    let (threshold, window, hits) = (text("threshold")?, text("window")?, text("hits")?);
    let limit = match (kind.as_str(), text("baseline")) {
        ("spike", Some(baseline)) => format!("{threshold} times the usual {baseline}"),
        ("spike", None) => "a spike".to_owned(),
        (kind, _) => format!("{kind} {threshold}"),
    };
    let keys = field::<Vec<(Vec<u8>, u64, f64)>>(&fields, "keys").unwrap_or_default();
    let keys = keys.iter().take(SHOWN_KEYS);
    let keys = keys.map(|(key, _, share)| format!("{} {:.0} %", printable(key), share * 100.0));
    let mut line =
        format!("alert {} is {state}: {hits} hits in {window}, {limit}", printable(name.as_bytes()));
    for (index, key) in keys.enumerate() {
        line += if index == 0 { ": " } else { ", " };
        line += &key;
    }
    Some(line)
}

fn field<T: FromRedisValue>(fields: &HashMap<String, Value>, name: &str) -> Option<T> {
    from_redis_value(fields.get(name)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn alert(fields: &[(&str, Value)]) -> Value {
        Value::Array(fields.iter().flat_map(|(name, value)| [bulk(name), value.clone()]).collect())
    }

    #[test]
    fn a_line_has_the_alert_and_its_keys() {
        let key = |key: &str, share: &str| Value::Array(vec![bulk(key), Value::Int(9), bulk(share)]);
        let above = [
            ("name", bulk("busy")),
            ("state", bulk("firing")),
            ("kind", bulk("above")),
            ("threshold", Value::Int(5)),
            ("window", bulk("1m")),
            ("hits", Value::Int(12)),
            ("baseline", Value::Nil),
            ("keys", Value::Array(vec![key("k", "0.75"), key("u:\u{1b}", "0.25")])),
        ];
        let expected = "alert busy is firing: 12 hits in 1m, above 5: k 75 %, u:\\u{1b} 25 %";
        assert_eq!(line(alert(&above)).as_deref(), Some(expected));
        let mut spike = above.clone();
        (spike[2].1, spike[3].1, spike[6].1, spike[7].1) =
            (bulk("spike"), bulk("4"), bulk("2.5"), Value::Array(Vec::new()));
        let expected = "alert busy is firing: 12 hits in 1m, 4 times the usual 2.5";
        assert_eq!(line(alert(&spike)).as_deref(), Some(expected));
        assert_eq!(line(alert(&above[1..])), None);
        assert_eq!(line(Value::Int(1)), None);
    }
}
