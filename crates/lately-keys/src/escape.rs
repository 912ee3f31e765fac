//! Escapes separators in the parts of a key, so that different parts make different keys.

/// Appends a part to a key. `%` and the separators are written as in URLs: `%`, then two hex digits in lower case. So the part
/// ends at the first separator, whatever a client wrote.
///
/// # Panics
/// If `%` is a separator: it starts the escapes.
pub fn push_escaped(key: &mut Vec<u8>, part: &[u8], separators: &[u8]) {
    assert!(!separators.contains(&b'%'), "% starts the escapes");
    for &byte in part {
        if byte == b'%' || separators.contains(&byte) {
            key.extend_from_slice(format!("%{byte:02x}").as_bytes());
        } else {
            key.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_escaped() {
        let check = |part: &str, separators: &[u8], expected: &str| {
            let mut key = b"k=".to_vec();
            push_escaped(&mut key, part.as_bytes(), separators);
            assert_eq!(String::from_utf8(key).expect("text"), format!("k={expected}"));
        };
        check("a:b", b":", "a%3ab");
        check("a:b", b",", "a:b");
        check("1,b=2%3A%", b",=", "1%2cb%3d2%253A%25");
        check("é", "é".as_bytes(), "%c3%a9");
        check("", b":", "");
    }
}
