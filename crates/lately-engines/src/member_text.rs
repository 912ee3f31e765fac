//! What somebody who counts a key says of its distinct members, as a text about the key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lately::Timestamp;

/// The members that one writer has counted of a key, and up to when members are deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberText {
    /// The writer has deleted all members that were hit until then.
    pub deleted: Timestamp,
    /// The members here have followed all deletions until then.
    pub applied: Timestamp,
    /// The bytes of [`lately::OwnMembers`]. Empty if there are none.
    pub members: Vec<u8>,
}

/// The first byte of a text.
const VERSION: u8 = 1;

impl MemberText {
    /// The text.
    #[must_use]
    pub fn write(&self) -> String {
        let MemberText { deleted, applied, members } = self;
        let times = [*deleted, *applied].map(|time| time.as_millis().to_le_bytes());
        STANDARD.encode([&[VERSION], &times[0][..], &times[1], members].concat())
    }

    /// Reads a text. `None` if no node wrote it.
    #[must_use]
    pub fn read(text: &str) -> Option<MemberText> {
        let bytes = STANDARD.decode(text).ok()?;
        let (version, rest) = bytes.split_first()?;
        let (times, members) = rest.split_at_checked(16)?;
        let time = |bytes: &[u8]| Timestamp::from_millis(i64::from_le_bytes(bytes.try_into().ok()?));
        let (deleted, applied) = (time(&times[..8])?, time(&times[8..])?);
        (*version == VERSION).then(|| MemberText { deleted, applied, members: members.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_were_written() {
        let at = |ms| Timestamp::from_millis(ms).expect("a time");
        for (deleted, members) in [(Timestamp::MIN, &b""[..]), (at(1_700_000_000_123), b"\0\xff some")] {
            let text = MemberText { deleted, applied: at(7), members: members.into() };
            assert_eq!(MemberText::read(&text.write()), Some(text));
        }
        let empty = STANDARD.encode([VERSION; 16]);
        for text in ["", "?", "AQ==", &empty, &STANDARD.encode([2; 17]), &STANDARD.encode([0xff; 40])] {
            assert_eq!(MemberText::read(text), None, "{text}");
        }
    }
}
