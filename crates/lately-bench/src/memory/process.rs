//! This program once more, to fill one layout and say what that took.

use std::process::{Command, ExitCode, Stdio};

use super::fill::{Kept, fill};
use super::layout::{Keeper, LAYOUTS, Layout};
use crate::say;

/// The hidden first argument: a layout, by its place in its table, the number of keys and a keeper follow.
const CHILD: &str = "--fill-layout";
/// Where Linux says what a process takes.
const STATUS: &str = "/proc/self/status";

/// Bytes per key as a process of its own measures them.
pub(crate) fn measure(layout: &Layout, keys: u32, keeper: Keeper) -> Result<f64, String> {
    let place = |name: &str| LAYOUTS.iter().position(|layout| layout.name == name);
    let layout = place(layout.name).ok_or("a layout that is not in the table")?;
    let keeper = Keeper::ALL.iter().position(|&other| other == keeper).ok_or("a keeper not in the table")?;
    let program = std::env::current_exe().map_err(|error| format!("no program to start again: {error}"))?;
    let child = Command::new(program)
        .args([CHILD, &layout.to_string(), &keys.to_string(), &keeper.to_string()])
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
    let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
    let layout = number().and_then(|place| LAYOUTS.get(place as usize));
    let keys = number();
    let keeper = number().and_then(|place| Keeper::ALL.get(place as usize));
    let filled = match (layout, keys, keeper) {
        (Some(layout), Some(keys), Some(&keeper)) => bytes_per_key(layout, keys, keeper),
        _ => Err(format!("{CHILD} takes a layout, a number of keys and a keeper")),
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

fn bytes_per_key(layout: &Layout, keys: u32, keeper: Keeper) -> Result<f64, String> {
    let mut kept = Kept::new(keeper, keys);
    let before = resident_kib()?;
    fill(&mut kept, keys, layout.hits);
    let grown_kib = resident_kib()?.saturating_sub(before);
    // After the measure, and so that what was filled is still there.
    if kept.keys() != keys as usize {
        return Err(format!("{keys} keys were filled in, {} are there", kept.keys()));
    }
    Ok(grown_kib as f64 * 1_024.0 / f64::from(keys))
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
