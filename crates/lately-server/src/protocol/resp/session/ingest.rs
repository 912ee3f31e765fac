//! `INGEST`: the hits of a stretch of a source.

use std::borrow::Cow;

use lately::{Source, Timestamp};
use lately_resp::Encoder;
use lately_resp::command::Stretch;

use super::written::{Written, refuse};
use super::{Session, integer};
use crate::config::DEFAULT_USER;
use crate::service::edge::NO_SOURCES;
use crate::service::{self, IngestError, Ingested, Refused, code_of};

impl Session {
    /// The name under which a source of this client is kept: the user, a colon, and the name. So no user can move the sources of
    /// another one, and each has its share of them. For `default`, and without users, it is the name alone. No name of a user has a
    /// colon. A name that begins like those of a user gets a colon in front, because no user is called nothing.
    fn name_of<'n>(&self, source: Source<'n>) -> Cow<'n, [u8]> {
        match self.principal.user() {
            Some(user) if user.name != DEFAULT_USER => {
                Cow::Owned([user.name.as_bytes(), b":", source.name()].concat())
            }
            _ => {
                let users = self.service.users.get();
                let before_colon =
                    source.name().iter().position(|&byte| byte == b':').map(|end| &source.name()[..end]);
                let is_of_user = |name: &[u8]| {
                    name.is_empty() || str::from_utf8(name).is_ok_and(|name| users.find(name).is_some())
                };
                match before_colon.filter(|name| is_of_user(name)) {
                    Some(_) => Cow::Owned([b":", source.name()].concat()),
                    None => Cow::Borrowed(source.name()),
                }
            }
        }
    }

    /// Replies how far a source was read.
    pub(super) fn position(&self, source: Source<'_>, out: &mut Vec<u8>) {
        let name = self.name_of(source);
        let Some(source) = Source::new(&name) else { return write_too_long(out) };
        let mut reply = Encoder::new(out, self.protocol);
        match self.service.position(source) {
            Ok(Some(position)) => reply.integer(integer(position)),
            Ok(None) => reply.null(),
            Err(error) => write_error(error, 0, out),
        }
    }

    pub(super) fn ingest(
        &self,
        stretch: Stretch<'_>,
        written: &mut Written,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        if self.service.edge.is_some() {
            return refuse(out, &Refused::Never(NO_SOURCES));
        }
        let Stretch { source, from, to, .. } = stretch;
        let name = self.name_of(source);
        let Some(source) = Source::new(&name) else { return write_too_long(out) };
        let counted = service::Stretch { source, from, to };
        match self.service.ingest(&counted, stretch.hits(), &mut written.changes, now) {
            Ok(Ingested { position, accepted, refused, is_change }) => {
                let start = out.len();
                let mut reply = Encoder::new(out, self.protocol);
                reply.array(3);
                [position, accepted, refused].into_iter().for_each(|number| reply.integer(integer(number)));
                if is_change && self.service.has_journal() {
                    written.replied(start, out.len());
                }
            }
            Err(error) => write_error(error, from, out),
        }
    }
}

fn write_too_long(out: &mut Vec<u8>) {
    Encoder::new(out, lately_resp::Protocol::default()).error(format_args!(
        "ERR the source and the name of the user have more than {} bytes together",
        lately::limits::MAX_SOURCE_BYTES - 1
    ));
}

fn write_error(error: IngestError, from: u64, out: &mut Vec<u8>) {
    let mut reply = Encoder::new(out, lately_resp::Protocol::default());
    match error {
        IngestError::Elsewhere { position } => reply.error(format_args!(
            "ERR the source is at {position} and the batch begins at {from}: go on from {position}"
        )),
        IngestError::Busy => {
            reply.error(
                "TRYAGAIN another batch of the source, or a restore, is being written: wait for its reply",
            );
        }
        IngestError::Hit(error) => reply.error(format_args!("{} {error}", code_of(&error))),
        IngestError::Refused(refused) => refuse(out, &refused),
    }
}
