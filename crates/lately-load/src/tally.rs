//! The numbers of replies, over all connections.

#[derive(Default)]
pub(crate) struct Tally {
    /// Error replies.
    pub(crate) errors: u64,
    /// The first of them without its marker, as far as it came in one piece.
    pub(crate) first_error: Option<String>,
    /// Replies that say that the request was allowed, and that it was denied.
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
}

impl Tally {
    /// Counts a decision.
    #[inline]
    pub(crate) fn decided(&mut self, is_allowed: bool) {
        self.allowed += u64::from(is_allowed);
        self.denied += u64::from(!is_allowed);
    }

    /// Counts an error reply. It starts with its marker.
    pub(crate) fn error(&mut self, reply: &[u8]) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| {
            let line = reply[1..].split(|&byte| byte == b'\r').next().unwrap_or_default();
            String::from_utf8_lossy(line).into_owned()
        });
    }
}
