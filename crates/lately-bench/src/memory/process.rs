//! This program once more, to fill one layout and say what that took.

use std::process::{Command, ExitCode, Stdio};

use super::fill::{BASE_KEYS, Kept, fill, give_base, render};
use super::layout::{Keeper, LAYOUTS, Layout};
use crate::say;

/// The hidden first argument: a layout, by its place in its table, the number of keys and a keeper follow.
const CHILD: &str = "--fill-layout";
/// Where Linux says what a process takes.
const STATUS: &str = "/proc/self/status";

/// What a process of its own found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Filled {
    /// What the keys added to the resident set, each.
    pub(crate) bytes_per_key: f64,
    /// What the keeper accounts for itself, each; 0 where it does not.
    pub(crate) accounted: f64,
    /// What the keeper took before, with nothing in it.
    pub(crate) empty: f64,
    /// The same with the keys in it that are there beside those that are measured.
    pub(crate) base: f64,
}

impl Filled {
    fn parse(text: &str) -> Option<Filled> {
        let numbers = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()?;
        let [bytes_per_key, accounted, empty, base] = numbers.try_into().ok()?;
        Some(Filled { bytes_per_key, accounted, empty, base })
    }

    fn render(&self) -> String {
        format!("{} {} {} {}\n", self.bytes_per_key, self.accounted, self.empty, self.base)
    }
}

/// Bytes per key as a process of its own measures them.
pub(crate) fn measure(layout: &Layout, keys: u32, keeper: Keeper) -> Result<Filled, String> {
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
    Filled::parse(&text).ok_or_else(|| format!("the process that measures ended with {}", child.status))
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
        (Some(layout), Some(keys), Some(&keeper)) => filled(layout, keys, keeper),
        _ => Err(format!("{CHILD} takes a layout, a number of keys and a keeper")),
    };
    let said = filled.and_then(|filled| say::data(&filled.render()).map_err(|error| error.to_string()));
    Some(match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::message(format_args!("lately-bench: {error}"));
            ExitCode::from(2)
        }
    })
}

fn filled(layout: &Layout, keys: u32, keeper: Keeper) -> Result<Filled, String> {
    let rendered = render(0..keys);
    let nothing = resident_bytes()?;
    let mut kept = Kept::new(keeper, keys);
    let empty = resident_bytes()?;
    give_base(&mut kept);
    let (base, base_keys, base_accounted) = (resident_bytes()?, kept.keys(), kept.accounted_bytes());
    fill(&mut kept, &rendered, layout.hits);
    let full = resident_bytes()?;
    // After the measure, and so that what was filled is still there.
    if kept.keys() != base_keys + rendered.len() {
        return Err(format!("{keys} keys and {BASE_KEYS} were filled in, {} are there", kept.keys()));
    }
    let keys = f64::from(keys);
    Ok(Filled {
        bytes_per_key: (full - base) / keys,
        accounted: (kept.accounted_bytes() - base_accounted) / keys,
        empty: empty - nothing,
        base: base - nothing,
    })
}

fn resident_bytes() -> Result<f64, String> {
    let status = std::fs::read_to_string(STATUS).map_err(|error| format!("{STATUS}: {error}"))?;
    resident_of(&status)
        .map(|kib| f64::from(kib) * 1_024.0)
        .ok_or_else(|| format!("{STATUS}: no line such as `VmRSS: 123 kB`"))
}

fn resident_of(status: &str) -> Option<u32> {
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

    #[test]
    fn what_was_found_is_read_back() {
        let filled = Filled { bytes_per_key: 50.25, accounted: 49.0, empty: 4_096.0, base: 8_192.0 };
        assert_eq!(Filled::parse(&filled.render()), Some(filled));
        assert_eq!(Filled::parse("1 2 3\n"), None);
        assert_eq!(Filled::parse(""), None);
    }

    #[test]
    fn a_key_costs_what_it_added() {
        let filled = filled(&LAYOUTS[0], 50_000, Keeper::Store).expect("a process can look at itself");
        assert!(filled.bytes_per_key > 30.0 && filled.accounted > 30.0, "{filled:?}");
        assert!(filled.base > filled.empty, "{filled:?}");
    }
}
