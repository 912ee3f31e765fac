//! What the system knows of this process.

/// Bytes of memory the process has, or `None` where the system does not say.
pub(crate) fn resident_bytes() -> Option<u64> {
    // Unlike `statm` it needs no page size.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_has_memory() {
        let touched = vec![1_u8; 8 << 20];
        assert!(super::resident_bytes().is_some_and(|bytes| bytes > touched.len() as u64));
    }
}
