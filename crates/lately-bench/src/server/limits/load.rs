//! The requests of the section. Limits are never reached, except in the loads of denied requests.

use lately_load::{Answer, Ending, Plan, run};

use crate::options::Options;
use crate::server::failure::Failure;
use crate::server::plans::{fill, round};
use crate::server::process::Process;

pub(super) const PREFIX: &str = "key:";

/// A request, and the kind of its reply.
#[derive(Clone)]
pub(super) struct Load {
    request: String,
    answer: Answer,
}

impl Load {
    pub(super) fn hit() -> Load {
        Load { request: "HIT {key}".to_owned(), answer: Answer::Line }
    }

    pub(super) fn limit() -> Load {
        Load::limit_of(1_000, "1m")
    }

    pub(super) fn limit_of(max: u64, window: &str) -> Load {
        Load::decision(format!("LIMIT {{key}} {max} {window}"))
    }

    /// Three random keys.
    pub(super) fn joint() -> Load {
        Load::decision("MLIMIT {key} 1000 1m {key} 10000 1h {key} 100000 1d".to_owned())
    }

    /// A thousand at once, and a thousand a minute. The reply 0 means allowed.
    pub(super) fn throttle() -> Load {
        let request = "CL.THROTTLE {key} 999 1000 60".to_owned();
        Load { request, answer: Answer::Decision { allowed: b'0' } }
    }

    /// The same for throttlecrab-server.
    pub(super) fn rival_throttle() -> Load {
        Load::decision("THROTTLE {key} 1000 1000 60".to_owned())
    }

    /// A decision whose reply 1 means allowed.
    pub(super) fn decision(request: String) -> Load {
        Load { request, answer: Answer::Decision { allowed: b'1' } }
    }

    /// A round over a million keys.
    pub(super) fn round(&self, options: &Options, server: &Process, pipeline: usize) -> Plan {
        Plan { answer: self.answer, ..round(options, server, &self.request, PREFIX, pipeline) }
    }

    /// Each key this many times; all requests must be allowed.
    pub(super) fn fill(&self, server: &Process, keys: u64, passes: u64) -> Result<(), Failure> {
        let plan = fill(server, &self.request, PREFIX, keys);
        filled(&Plan { answer: self.answer, ending: Ending::Requests(keys * passes), ..plan })
    }

    /// Each key once, for a server that stalls with pipelines.
    pub(super) fn fill_singly(&self, server: &Process, keys: u64) -> Result<(), Failure> {
        let plan = fill(server, &self.request, PREFIX, keys);
        filled(&Plan { answer: self.answer, clients: 50, pipeline: 1, ..plan })
    }
}

fn filled(plan: &Plan) -> Result<(), Failure> {
    let report = run(plan)?;
    match report.first_error {
        Some(first) => {
            Err(Failure::new(format!("filling: {} error replies, such as: {first}", report.errors)))
        }
        None if report.denied > 0 => {
            Err(Failure::new(format!("filling: {} requests were denied", report.denied)))
        }
        None => Ok(()),
    }
}
