//! Parts of JSON that several answers have.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lately::Timestamp;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

/// The name of a key: `key`, or `key_b64` when it is no UTF-8.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema, Debug)]
pub(crate) enum Key {
    #[serde(rename = "key")]
    Text(String),
    #[serde(rename = "key_b64")]
    Bytes(String),
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        match std::str::from_utf8(key) {
            Ok(text) => Key::Text(text.to_owned()),
            Err(_) => Key::Bytes(BASE64_STANDARD.encode(key)),
        }
    }
}

/// A time in Unix seconds, without a fraction where it has none.
pub(crate) fn seconds(at: Timestamp) -> Number {
    let millis = at.as_millis();
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let fraction = Number::from_f64(millis as f64 / 1_000.0);
    fraction.filter(|_| millis % 1_000 != 0).unwrap_or_else(|| (millis / 1_000).into())
}
