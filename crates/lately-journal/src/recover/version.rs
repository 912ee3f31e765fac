//! The version of a file. Its header has it in one byte without a checksum. Its frames show it, too.

use std::io;

use lately::Deltas;

use super::checkpoint_reader::End;
use crate::disk::DiskFile;
use crate::frame::{Kind, VERSION, delta_format};
use crate::limits::VERSION_FRAMES;
use crate::log::{BATCH, CLOSED, SEGMENT, SETTLED, SYNCED};
use crate::part::{END, HEAD, PARTS, are_parts, take_time};
use crate::scan::{Scan, Step};

/// The last version before [`VERSION`] with other frames. Version 1 is decoded in the same way.
pub(super) const BEFORE: u8 = 2;

/// The versions in which the first whole frames of a file can be decoded, the newest first. Empty if the
/// version is unknown. `None` if no frame is whole.
pub(super) fn versions_of(file: &impl DiskFile, kind: Kind) -> io::Result<Option<Vec<u8>>> {
    let mut versions = None;
    let mut scan = Scan::new(file, None)?;
    scan.skip_begin();
    let mut decoded = 0;
    while decoded < VERSION_FRAMES {
        match scan.step()? {
            Step::Frame { payload, .. } => {
                // Other frames are the same in all versions.
                decoded += usize::from(matches!(
                    (kind, payload.first()),
                    (Kind::Log, Some(&BATCH)) | (_, Some(&PARTS))
                ));
                let versions = versions.get_or_insert_with(|| vec![VERSION, BEFORE]);
                versions.retain(|&version| can_be_decoded(payload, kind, version));
            }
            Step::Damage => {
                if !scan.resume()? {
                    break;
                }
            }
            Step::End => break,
        }
    }
    Ok(versions)
}

/// Whether a payload can be decoded as one of this kind and version.
fn can_be_decoded(payload: &[u8], kind: Kind, version: u8) -> bool {
    match (kind, payload.split_first()) {
        (Kind::Checkpoint, Some((&PARTS, parts))) => are_parts(parts, version),
        (Kind::Checkpoint, Some((&END, rest))) => End::read(rest).is_some(),
        (Kind::Log, Some((&BATCH, mut rest))) => take_time(&mut rest).is_some_and(|now| {
            Deltas::of_format(delta_format(version), now, rest).all(|delta| delta.is_ok())
        }),
        (Kind::Checkpoint, Some((&HEAD, _)))
        | (Kind::Log, Some((&(SEGMENT | SETTLED | CLOSED | SYNCED), _))) => true,
        _ => false,
    }
}
