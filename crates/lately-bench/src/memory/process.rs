//! This program once more, to fill one layout and say what that took.

use std::process::{Command, ExitCode, Stdio};

use super::fill::{Kept, fill};
use super::layout::{Keeper, LAYOUTS, Layout};
use crate::say;

/// The hidden first argument: a layout and a keeper follow, by their places in their tables.
const CHILD: &str = "--fill-layout";
/// Where Linux says what a process takes.
const STATUS: &str = "/proc/self/status";

/// Bytes per key as a process of its own measures them.
pub(crate) fn measure(layout: &Layout, keeper: Keeper) -> Result<f64, String> {
    let place = |name: &str| LAYOUTS.iter().position(|layout| layout.name == name);
    let layout = place(layout.name).ok_or("a layout that is not in the table")?;
    let keeper = Keeper::ALL.iter().position(|&other| other == keeper).ok_or("a keeper not in the table")?;
    let program = std::env::current_exe().map_err(|error| format!("no program to start again: {error}"))?;
    let child = Command::new(program)
        .args([CHILD, &layout.to_string(), &keeper.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("a process to measure in: {error}"))?;
    let text = String::from_utf8_lossy(&child.stdout);
    text.trim().parse().map_err(|_| format!("the process that measures ended with {}", child.status))
}

/// Fills and prints, if the first argument says so.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != CHILD {
        return None;
    }
    let mut place = || words.next().and_then(|word| word.parse::<usize>().ok());
    let layout = place().and_then(|place| LAYOUTS.get(place));
    let keeper = place().and_then(|place| Keeper::ALL.get(place));
    let filled = match (layout, keeper) {
        (Some(layout), Some(&keeper)) => bytes_per_key(layout, keeper),
        _ => Err("no such layout or keeper".to_owned()),
    };
    let said = filled.and_then(|bytes| say::data(&format!("{bytes}\n")).map_err(|error| error.to_string()));
    Some(match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::message(format_args!("lately-bench: {error}"));
            ExitCode::from(2)
        }
    })
}

fn bytes_per_key(layout: &Layout, keeper: Keeper) -> Result<f64, String> {
    let mut kept = Kept::new(keeper, layout.keys);
    let before = resident_kib()?;
    fill(&mut kept, layout);
    let grown_kib = resident_kib()?.saturating_sub(before);
    // After the measure, and so that what was filled is still there.
    if kept.keys() != layout.keys as usize {
        return Err(format!("{} keys were filled in, {} are there", layout.keys, kept.keys()));
    }
    Ok(grown_kib as f64 * 1_024.0 / f64::from(layout.keys))
}

fn resident_kib() -> Result<u64, String> {
    let status = std::fs::read_to_string(STATUS).map_err(|error| format!("{STATUS}: {error}"))?;
    resident_of(&status).ok_or_else(|| format!("{STATUS}: no line such as `VmRSS: 123 kB`"))
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read() {
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t   1234 kB\nThreads:\t1\n"), Some(1_234));
        assert_eq!(resident_of("Name:\tx\n"), None);
        assert_eq!(resident_of("VmRSS:\t12 MB\n"), None);
    }
}
