//! What the system knows of this process and of the machine.

use std::time::Duration;

/// Bytes of memory the process has, or `None` where the system does not say.
pub(crate) fn resident_bytes() -> Option<u64> {
    // Unlike `statm` it needs no page size.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// How long the cores of the machine have been idle, in sum, or `None` where the system does not say.
pub(crate) fn idle_time() -> Option<Duration> {
    let times = std::fs::read_to_string("/proc/uptime").ok()?;
    let idle = times.split_whitespace().nth(1)?.parse().ok()?;
    // Where it is not kept it is 0.
    Duration::try_from_secs_f64(idle).ok().filter(|idle| !idle.is_zero())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_has_memory() {
        let touched = vec![1_u8; 8 << 20];
        assert!(super::resident_bytes().is_some_and(|bytes| bytes > touched.len() as u64));
    }

    #[test]
    fn a_machine_is_idle_at_times() {
        let [before, after] = [(); 2].map(|()| super::idle_time());
        assert!(before.is_some() && before <= after);
    }
}
