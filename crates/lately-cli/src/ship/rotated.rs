//! The names of rotated files: the name of the log, followed by a number or a date.

/// The suffixes of compressed files.
const COMPRESSED: [&[u8]; 4] = [b".gz", b".zst", b".bz2", b".xz"];

/// Whether a file of this name is a rotated one of the log: `access.log.1`, `access.log-20240312.gz`, `access.log.2024-03-12T09:00:04Z`,
/// `access.log.old`, `access.log.gz`. `access.log.ssl` and `access.log2` are logs of their own.
pub(crate) fn is_rotated(name: &[u8], log: &[u8]) -> bool {
    let Some(suffix) = name.strip_prefix(log).filter(|suffix| !suffix.is_empty()) else { return false };
    let rest = COMPRESSED.iter().find_map(|end| suffix.strip_suffix(*end)).unwrap_or(suffix);
    let is_of_dates =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'+' | b'T' | b'Z');
    match rest {
        [] | b".old" | b"-old" => true,
        [b'.' | b'-' | b'_', end @ ..] => {
            end.first().is_some_and(u8::is_ascii_digit) && end.iter().all(is_of_dates)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_dates_are_rotations() {
        let check = |suffix: &str, expected: bool| {
            let name = format!("access.log{suffix}");
            assert_eq!(is_rotated(name.as_bytes(), b"access.log"), expected, "{name}");
        };
        for suffix in [
            ".0",
            ".1",
            ".12",
            ".1.gz",
            ".2.zst",
            "-1.xz",
            ".gz",
            ".old",
            ".old.gz",
            "-20240312",
            "-20240312.bz2",
            ".2024-03-12",
            ".2024-03-12_09-00",
            "_2024-03-12",
            "-2024031209",
            "-20240312-1710234004.gz",
            ".2024-03-12T09:00:04Z",
            ".2024-03-12T09:00:04+01:00",
            ".1710234004",
        ] {
            check(suffix, true);
        }
        for suffix in [
            "",
            ".ssl",
            "-errors",
            ".grep",
            "2",
            ".1.tmp",
            ".",
            "-",
            ".gz.tmp",
            ".old.bak",
            ".1-errors",
            ".-1",
            ".lock",
        ] {
            check(suffix, false);
        }
        assert!(!is_rotated(b"other.log.1", b"access.log"));
    }
}
