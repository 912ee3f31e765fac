//! Opens logs: files and standard input, plain or compressed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use lately::Timestamp;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::CliError;
use crate::table::printable_path;

/// Compressed bytes read at once.
const READ_BYTES: usize = 128 * 1024;

/// The most bytes at the start of a file that are needed to detect its compression.
const MAGIC_BYTES: u64 = 6;

/// The most memory for decompressing a block of xz; `xz -9` needs half of it.
const XZ_MEMORY_KIB: u32 = 128 * 1024;

/// The compression of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

impl Compression {
    /// Detects the compression by the first bytes of a file.
    fn of(magic: &[u8]) -> Option<Compression> {
        match magic {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            // After the level comes a block, or the end of an empty file.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72] => {
                Some(Compression::Bzip2)
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Some(Compression::Xz),
            _ => None,
        }
    }

    fn reader(self, reader: impl BufRead + 'static) -> Box<dyn Read> {
        match self {
            Compression::Gzip => Box::new(Members { member: Some(GzDecoder::new(reader)) }),
            Compression::Zstd => {
                Box::new(Frames { reader, decoder: FrameDecoder::new(), in_frame: false, failure: None })
            }
            Compression::Bzip2 => Box::new(MultiBzDecoder::new(reader)),
            Compression::Xz => Box::new(XzReader::new_mem_limit(reader, true, XZ_MEMORY_KIB)),
        }
    }
}

/// Checks all logs before any is read. Refuses missing files, directories, and standard input twice.
pub(crate) fn check(paths: &[PathBuf]) -> Result<(), CliError> {
    for path in paths.iter().filter(|path| !is_stdin(path)) {
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        if metadata.is_dir() {
            let hint = format!("name the files in it, such as {}", printable_path(&path.join("access.log")));
            return Err(CliError::new(name(path), "is a directory", hint));
        }
        // Only plain files are opened here, because a pipe would lose its writer.
        if metadata.is_file() {
            File::open(path).map_err(|error| unreadable(path, &error))?;
        }
    }
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        let hint = "name '-' once; a file of this name is './-'";
        return Err(CliError::new("-", "standard input cannot be read twice", hint));
    }
    Ok(())
}

/// Checks logs, but allows missing files, which may appear later.
pub(crate) fn check_followed(paths: &[PathBuf]) -> Result<(), CliError> {
    let is_missing =
        |path: &Path| fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let there = paths.iter().filter(|path| is_stdin(path) || !is_missing(path));
    check(&there.cloned().collect::<Vec<_>>())
}

/// The logs to read, and those that are the same file as an earlier one, by a link or another path. A missing file, a pipe, and
/// a log for which `meant` returns false are always read.
pub(crate) fn once(paths: &[PathBuf], meant: impl Fn(&Path) -> bool) -> (Vec<&Path>, Vec<&Path>) {
    let mut seen = Vec::new();
    let is_new = |path: &&Path| {
        let metadata = fs::metadata(path).ok().filter(|metadata| metadata.is_file() && !is_stdin(path));
        let id = metadata.filter(|_| meant(path)).map(|metadata| (metadata.dev(), metadata.ino()));
        let is_new = id.is_none_or(|id| !seen.contains(&id));
        seen.extend(id);
        is_new
    };
    paths.iter().map(PathBuf::as_path).partition(is_new)
}

/// Whether a log is read once, to its end: standard input, a pipe, or a compressed file.
pub(crate) fn is_stream(path: &Path) -> bool {
    let is_compressed = |path| {
        let mut magic = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAGIC_BYTES).read_to_end(&mut magic));
        read.is_ok() && Compression::of(&magic).is_some()
    };
    is_stdin(path)
        || fs::metadata(path)
            .is_ok_and(|metadata| if metadata.is_file() { is_compressed(path) } else { true })
}

/// Whether a log is standard input, or is not a plain file.
pub(crate) fn is_pipe(path: &Path) -> bool {
    is_stdin(path) || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// The time of the last write to a log. `None` for a pipe.
pub(crate) fn written(path: &Path) -> Option<Timestamp> {
    let modified = fs::metadata(path).ok().filter(|_| !is_stdin(path))?.modified().ok()?;
    let since_epoch = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    Timestamp::from_seconds(since_epoch.as_secs())
}

/// Opens a log. Decompresses it if its first bytes show that it is compressed, whatever its name.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, CliError> {
    open_stream(path).map_err(|error| unreadable(path, &error))
}

/// Decompresses like [`open`].
pub(crate) fn open_stream(path: &Path) -> io::Result<Box<dyn Read>> {
    let raw: Box<dyn Read> = if is_stdin(path) { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    decompress(raw)
}

/// Whether a file with these first bytes is compressed.
pub(crate) fn is_compressed(magic: &[u8]) -> bool {
    Compression::of(&magic[..magic.len().min(usize::try_from(MAGIC_BYTES).unwrap_or(usize::MAX))]).is_some()
}

/// Decompresses a reader if its first bytes show that it is compressed.
pub(crate) fn decompress(raw: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    // A pipe may return a single byte first, so the bytes are read separately and chained before the rest.
    let mut reader = BufReader::with_capacity(READ_BYTES, raw);
    let mut magic = Vec::new();
    reader.by_ref().take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let compression = Compression::of(&magic);
    let whole = io::Cursor::new(magic).chain(reader);
    Ok(match compression {
        Some(compression) => compression.reader(whole),
        None => Box::new(whole),
    })
}

/// Reads the members of a gzip file, one after the other. Like gzip, it skips zeros after a member: tapes and some disks
/// pad files with them.
struct Members<R> {
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let reader = self.member.take().map(GzDecoder::into_inner);
            self.member = reader.map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// The next member, if there is more than zeros.
fn next_member<R: BufRead>(mut reader: R) -> io::Result<Option<GzDecoder<R>>> {
    loop {
        let rest = reader.fill_buf()?;
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        match (rest.len(), zeros) {
            (0, _) => return Ok(None),
            (len, zeros) if zeros < len => {
                reader.consume(zeros);
                return Ok(Some(GzDecoder::new(reader)));
            }
            (_, zeros) => reader.consume(zeros),
        }
    }
}

/// Reads the frames of a zstd file, one after the other, without skippable frames.
struct Frames<R> {
    reader: R,
    decoder: FrameDecoder,
    in_frame: bool,
    /// The error that cut the last frame.
    failure: Option<io::Error>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            while self.in_frame && self.decoder.can_collect() == 0 {
                if self.decoder.is_finished() {
                    self.in_frame = false;
                    self.check_sum()?;
                } else {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    if let Err(error) = self.decoder.decode_blocks(&mut self.reader, one) {
                        self.end_cut_frame(&error)?;
                    }
                }
            }
            if self.in_frame {
                return self.decoder.read(buffer);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            if self.reader.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.reader) {
                Ok(()) => self.in_frame = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut self.reader.by_ref().take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid_zstd(&error)),
            }
        }
    }
}

impl<R: BufRead> Frames<R> {
    /// Compares the checksum of a frame that has one, and was not cut.
    fn check_sum(&self) -> io::Result<()> {
        let is_right = match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(told), Some(found)) => told == found || self.failure.is_some(),
            _ => true,
        };
        let error = || io::Error::new(io::ErrorKind::InvalidData, "the checksum of the zstd data is wrong");
        if is_right { Ok(()) } else { Err(error()) }
    }

    /// Ends a cut frame. Until the end of a frame, the decoder holds back as much as a later block may refer to, so it gets
    /// an empty last block. The error comes after the bytes that were held back.
    fn end_cut_frame(&mut self, error: &FrameDecoderError) -> io::Result<()> {
        // A header of an empty last block, and room for a checksum, which is not verified.
        const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
        let is_cut = self.failure.is_none() && self.reader.fill_buf()?.is_empty();
        let error = if is_cut { io::Error::from(io::ErrorKind::UnexpectedEof) } else { invalid_zstd(error) };
        if !is_cut || self.decoder.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::All).is_err() {
            return Err(error);
        }
        self.failure = Some(error);
        Ok(())
    }
}

/// Names what is wrong with a zstd file. The decoder's own texts are those of its types.
fn invalid_zstd(error: &FrameDecoderError) -> io::Error {
    let cause = match error {
        FrameDecoderError::DictNotProvided { dict_id } => {
            format!("it is compressed with a dictionary ({dict_id}), which is not supported")
        }
        FrameDecoderError::WindowSizeTooBig { requested, max } => {
            format!("its zstd window has {requested} bytes, and at most {max} are supported")
        }
        _ => return io::Error::new(io::ErrorKind::InvalidData, "damaged or cut zstd data"),
    };
    io::Error::new(io::ErrorKind::Unsupported, cause)
}

/// The error of a log that was opened but could not be read to its end.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> CliError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "give the path of a log, or - for standard input",
        io::ErrorKind::PermissionDenied => "read it as a user who may, or pipe it in and give -",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            "the compressed data is damaged or cut off; the rows are of what comes before that"
        }
        io::ErrorKind::Unsupported => "decompress it, such as with zstd -d, pipe it in, and give -",
        _ => "the rows are of what could be read",
    };
    CliError::new(name(path), error, hint)
}

/// The name of a log in messages.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { printable_path(path) }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
