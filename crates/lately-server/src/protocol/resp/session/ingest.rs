//! `INGEST`: the hits of a stretch of a source.

use lately::{Source, Timestamp};
use lately_resp::Encoder;
use lately_resp::command::Stretch;

use super::written::{Written, refuse};
use super::{Session, integer};
use crate::service::{self, IngestError, Ingested, code_of};

impl Session {
    /// Replies how far a source was read.
    pub(super) fn position(&self, source: Source<'_>, out: &mut Vec<u8>) {
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
        let Stretch { source, from, to, .. } = stretch;
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
