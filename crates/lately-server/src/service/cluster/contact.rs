//! How it goes with an engine: whether it can be reached, and since when it cannot.

use lately::{Tier, Timestamp};

/// What is known of an engine from the attempts to exchange counts with it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Contact {
    /// Why the last attempt failed. `None` when it did not.
    pub(crate) failure: Option<String>,
    /// Since when all attempts have failed.
    pub(crate) away_since: Option<Timestamp>,
    /// When it was last reached.
    pub(crate) reached: Option<Timestamp>,
}

impl Contact {
    /// Notes an attempt. Returns a line for the log if it went otherwise than the one before.
    pub(super) fn note(&mut self, failure: Option<String>, tier: Tier, now: Timestamp) -> Option<String> {
        let (engine, counts_on) = match tier {
            Tier::Local => ("the cluster", "this node counts on, and sends its counts later"),
            Tier::Upstream => {
                ("the upstream engine", "this data centre counts on, and its counts are sent later")
            }
        };
        let line = match (&self.failure, &failure) {
            (Some(_), None) => Some(format!("{engine} is reached again")),
            (None, Some(why)) => Some(format!("{engine} cannot be reached: {why}: {counts_on}")),
            _ => None,
        };
        match failure {
            None => (self.away_since, self.reached) = (None, Some(now)),
            Some(_) => _ = self.away_since.get_or_insert(now),
        }
        self.failure = failure;
        line
    }

    /// Whether the last attempt reached it.
    pub(crate) fn is_ok(&self) -> bool {
        self.failure.is_none() && self.reached.is_some()
    }

    /// How long ago it was last reached; `None` when it never was.
    pub(crate) fn staleness_ms(&self, now: Timestamp) -> Option<i64> {
        Some((now.as_millis() - self.reached?.as_millis()).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_logged_once() {
        let time = |ms| Timestamp::from_millis(ms).expect("a time");
        let mut contact = Contact::default();
        let mut check =
            |ms, failure: Option<&str>, line: Option<&str>, expected: (Option<i64>, Option<i64>)| {
                assert_eq!(
                    contact.note(failure.map(str::to_owned), Tier::Local, time(ms)).as_deref(),
                    line,
                    "{ms}"
                );
                let millis = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
                assert_eq!((millis(contact.away_since), millis(contact.reached)), expected, "{ms}");
                assert_eq!(contact.is_ok(), failure.is_none());
            };
        let away = "the cluster cannot be reached: no: this node counts on, and sends its counts later";
        check(1, Some("no"), Some(away), (Some(1), None));
        check(2, Some("never"), None, (Some(1), None));
        check(3, None, Some("the cluster is reached again"), (None, Some(3)));
        check(4, None, None, (None, Some(4)));
        check(5, Some("no"), Some(away), (Some(5), Some(4)));
        assert_eq!(contact.staleness_ms(time(9)), Some(5));
    }
}
