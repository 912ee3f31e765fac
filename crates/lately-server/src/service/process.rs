//! Memory and processor time of this process, from `/proc`.

use std::time::Duration;

/// Resident memory of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// All but the pages of files.
    pub(crate) own_bytes: u64,
    /// The pages of its program and of other files, which the system can drop.
    pub(crate) file_bytes: u64,
}

impl Resident {
    /// `None` where the system does not report it.
    pub(crate) fn read() -> Option<Resident> {
        // Unlike `statm`, `status` needs no page size.
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kibibytes << 10)
        };
        let all_bytes = bytes("VmRSS:")?;
        let own_bytes = bytes("RssAnon:")?;
        Some(Resident { own_bytes, file_bytes: all_bytes.saturating_sub(own_bytes) })
    }

    pub(crate) fn all_bytes(self) -> u64 {
        self.own_bytes + self.file_bytes
    }
}

/// Resident memory of the process. `None` where the system does not report it.
pub(crate) fn resident_bytes() -> Option<u64> {
    Resident::read().map(Resident::all_bytes)
}

/// Processor time in user and system mode, of the process and of its children that have ended.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ProcessorTimes {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) children_user: Duration,
    pub(crate) children_system: Duration,
}

/// The processor times of this process. Zero where the system does not report them.
pub(crate) fn processor_times() -> ProcessorTimes {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse_processor_times(&stat, rustix::param::clock_ticks_per_second()).unwrap_or_default()
}

fn parse_processor_times(stat: &str, ticks_per_second: u64) -> Option<ProcessorTimes> {
    // The second field is a name in brackets, which may have blanks in it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut time = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_millis(ticks.saturating_mul(1_000).checked_div(ticks_per_second)?))
    };
    let (user, system) = (time()?, time()?);
    Some(ProcessorTimes { user, system, children_user: time()?, children_system: time()? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_has_memory() {
        let touched = vec![1_u8; 8 << 20];
        let resident = super::Resident::read().expect("a size");
        assert!(resident.own_bytes > touched.len() as u64);
        assert!(resident.file_bytes > 0 && resident.all_bytes() > resident.own_bytes);
    }

    #[test]
    fn a_process_has_time_on_processors() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 1 30 4 20 0 1 0";
        let times = super::parse_processor_times(stat, 100).expect("times");
        let millis = |time: std::time::Duration| time.as_millis();
        assert_eq!((millis(times.user), millis(times.system)), (2_500, 10));
        assert_eq!((millis(times.children_user), millis(times.children_system)), (300, 40));
        let own = || super::processor_times().user + super::processor_times().system;
        let before = own();
        // The loop ends only when the process has used processor time.
        while own() == before {}
    }
}
