//! The time from the start of a server, after a kill, until it has all counts again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use lately_load::run;
use tempfile::TempDir;

use super::kept::Kept;
use super::persistence::Persistence;
use super::{TABLE, to_f64};
use crate::clock::{nanos_between, now, pause};
use crate::options::Options;
use crate::output;
use crate::rounds::{Contender, interleave, median};
use crate::row::{Must, Row};
use crate::server::failure::Failure;
use crate::server::plans::fill;
use crate::server::process::Process;
use crate::table::number;

/// Keys of 16 bytes with a hit each.
const KEYS: u64 = 3_000_000;
const QUICK_KEYS: u64 = 1_000_000;

/// The interval of checks whether the counts are complete, and the most checks.
const ASK_EVERY: Duration = Duration::from_millis(2);
const ASKS: u32 = 30_000;

pub(super) fn rows(options: &Options) -> Result<Vec<Row>, Failure> {
    let keys = options.pick(KEYS, QUICK_KEYS);
    let checkpoint = Left::of(options, keys, Kept::checkpoint)?;
    let log = Left::of(options, keys, |_| Ok(()))?;
    let round = |left: &Left| left.seconds(options, keys);
    let mut contenders = [
        Contender::new("a checkpoint", || round(&checkpoint)),
        Contender::new("the log alone", || round(&log)),
    ];
    let names = contenders.each_ref().map(|contender| contender.name);
    let figures = interleave(&mut contenders, options.rounds());
    let row = |((name, left), seconds): ((&str, &Left), &Vec<f64>)| {
        let millions = to_f64(keys) / 1e6;
        let note = format!(
            "{} M keys in {} s; checkpoint {} MB, log {} MB",
            number(millions),
            number(median(seconds)),
            number(to_f64(left.persistence.checkpoint_bytes) / 1e6),
            number(to_f64(left.persistence.log_bytes) / 1e6)
        );
        let name = format!("recovery after a kill from {name}");
        Row::new(TABLE, name, millions / median(seconds), "M keys/s", Must::AtLeast(1.5, 1.5)).note(note)
    };
    Ok(names.into_iter().zip([&checkpoint, &log]).zip(&figures).map(row).collect())
}

/// The folder of a server that was killed.
struct Left {
    folder: TempDir,
    /// The journal's last statistics.
    persistence: Persistence,
}

impl Left {
    /// The folder of a server that got each key once, and then `finish`.
    fn of(
        options: &Options,
        keys: u64,
        finish: impl FnOnce(&Kept) -> Result<(), Failure>,
    ) -> Result<Left, Failure> {
        let server = Kept::start(options, "interval")?;
        run(&fill(&server.process, "HIT {key}", "key:", keys))?;
        finish(&server)?;
        let persistence = server.persistence()?;
        Ok(Left { persistence, folder: server.kill() })
    }

    /// The time until another server has everything. `None` if something is missing.
    fn seconds(&self, options: &Options, keys: u64) -> f64 {
        recover(options, self.folder.path(), keys).unwrap_or_else(|failure| {
            output::message(format_args!("lately-bench: {failure}"));
            f64::NAN
        })
    }
}

/// Starts a server in a folder, waits until it is ready, and kills it, so that the folder stays as it is.
fn recover(options: &Options, folder: &Path, keys: u64) -> Result<f64, Failure> {
    let start = now();
    let mut server = Process::lately_in(folder, "interval", options)?;
    let http = server.http_address()?;
    for _ in 0..ASKS {
        if is_ready(http)? {
            let seconds = nanos_between(start, now()) / 1e9;
            let found: u64 = redis::cmd("DBSIZE").query(&mut server.connect()?)?;
            return match found == keys {
                true => Ok(seconds),
                false => Err(Failure::new(format!("of {keys} keys {found} were recovered"))),
            };
        }
        pause(ASK_EVERY);
    }
    Err(Failure::new("the server is not ready"))
}

fn is_ready(http: SocketAddr) -> Result<bool, Failure> {
    let mut connection = TcpStream::connect(http)?;
    connection.write_all(b"GET /readyz HTTP/1.1\r\nHost: lately\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
