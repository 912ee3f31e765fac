//! Servers of ours, one for each kind of request, so that none affects the keys of another.

use super::load::Load;
use crate::options::Options;
use crate::server::failure::Failure;
use crate::server::plans::KEYS;
use crate::server::process::Process;

pub(super) struct Servers {
    pub(super) hit: Process,
    pub(super) limit: Process,
    pub(super) joint: Process,
    pub(super) throttle: Process,
}

impl Servers {
    /// Starts the servers, and gives each key one hit.
    pub(super) fn start(options: &Options) -> Result<Servers, Failure> {
        let servers = Servers {
            hit: Process::lately(options)?,
            limit: Process::lately(options)?,
            joint: Process::lately(options)?,
            throttle: Process::lately(options)?,
        };
        Load::hit().fill(&servers.hit, KEYS, 1)?;
        Load::limit().fill(&servers.limit, KEYS, 1)?;
        Load::limit().fill(&servers.joint, KEYS, 1)?;
        Load::throttle().fill(&servers.throttle, KEYS, 1)?;
        Ok(servers)
    }
}
