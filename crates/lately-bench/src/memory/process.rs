//! Starts this program again, to fill one layout and measure it.

use std::fmt;
use std::process::{Command, ExitCode, Stdio};

use super::counters::{COUNT, COUNTERS};
use super::fill::{BASE_KEYS, Kept, fill, give_base, render};
use super::layout::{Keeper, LAYOUTS, Layout};
use crate::output;

/// The hidden first argument for a layout. The index of the layout, the number of keys and a keeper follow.
const CHILD: &str = "--fill-layout";
/// The hidden first argument for a counter without a key. The index of the counter follows.
const COUNTERS_CHILD: &str = "--make-counters";
/// The results of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Filled {
    /// The growth of the resident set by all keys.
    pub(crate) grown: f64,
    /// The growth that the keeper accounts for; 0 if it does not.
    pub(crate) accounted: f64,
    /// The memory of the empty keeper.
    pub(crate) empty: f64,
    /// The memory with the base keys, before the measured ones.
    pub(crate) base: f64,
}

impl Filled {
    fn parse(text: &str) -> Option<Filled> {
        let numbers = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()?;
        let [grown, accounted, empty, base] = numbers.try_into().ok()?;
        Some(Filled { grown, accounted, empty, base })
    }

    fn render(&self) -> String {
        format!("{} {} {} {}\n", self.grown, self.accounted, self.empty, self.base)
    }
}

/// The memory of `keys` keys, measured by a separate process.
pub(crate) fn measure(layout: &Layout, keys: u32, keeper: Keeper) -> Result<Filled, String> {
    let place = |name: &str| LAYOUTS.iter().position(|layout| layout.name == name);
    let layout = place(layout.name).ok_or("a layout that is not in the table")?;
    let keeper = Keeper::ALL.iter().position(|&other| other == keeper).ok_or("a keeper not in the table")?;
    let text = again(&[CHILD, &layout.to_string(), &keys.to_string(), &keeper.to_string()])?;
    Filled::parse(&text).ok_or_else(|| format!("the process that measures said {text}"))
}

/// The bytes of one counter without a key, measured by a separate process. NaN on an error.
pub(crate) fn bytes_of_a_counter(name: &str) -> f64 {
    let place = COUNTERS.iter().position(|(other, _)| *other == name);
    let text = place.and_then(|place| again(&[COUNTERS_CHILD, &place.to_string()]).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(f64::NAN)
}

/// The output of this program for these arguments.
fn again(words: &[&str]) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| format!("no program to start again: {error}"))?;
    let child = Command::new(program)
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("a process to measure in: {error}"))?;
    match child.status.success() {
        true => Ok(String::from_utf8_lossy(&child.stdout).into_owned()),
        false => Err(format!("the process that measures ended with {}", child.status)),
    }
}

/// Fills a layout or makes counters, and prints the result, if the first argument requests it.
pub(crate) fn run_as_child() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    let first = words.next()?;
    let numbers: Vec<Option<u32>> = words.map(|word| word.parse().ok()).collect();
    let found = match (first.as_str(), numbers.as_slice()) {
        (CHILD, &[Some(layout), Some(keys), Some(keeper)]) => fill_numbered(layout, keys, keeper),
        (COUNTERS_CHILD, &[Some(counter)]) => counter_bytes(counter).map(|bytes| format!("{bytes}\n")),
        (CHILD | COUNTERS_CHILD, _) => Err(format!("{first} takes the numbers its parent gives it")),
        _ => return None,
    };
    let written = found.and_then(|text| output::data(&text).map_err(|error| error.to_string()));
    Some(match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::message(format_args!("lately-bench: {error}"));
            ExitCode::from(2)
        }
    })
}

fn fill_numbered(layout: u32, keys: u32, keeper: u32) -> Result<String, String> {
    let layout = LAYOUTS.get(layout as usize).ok_or("a layout that is not in the table")?;
    let keeper = Keeper::ALL.get(keeper as usize).ok_or("a keeper that is not in the table")?;
    Ok(filled(layout, keys, *keeper)?.render())
}

fn counter_bytes(counter: u32) -> Result<f64, String> {
    let (_, make) = COUNTERS.get(counter as usize).ok_or("a counter that is not in the table")?;
    let mut made = Vec::with_capacity(COUNT as usize);
    // The first request allocates what every request needs.
    made.push(make());
    let before = resident_bytes()?;
    made.extend((1..COUNT).map(|_| make()));
    Ok((resident_bytes()? - before) / f64::from(COUNT - 1))
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
    // After the measurement, so that the keeper still exists during it.
    if kept.keys() != base_keys + rendered.len() {
        return Err(format!("{keys} keys and {BASE_KEYS} were filled in, {} are there", kept.keys()));
    }
    Ok(Filled {
        grown: full - base,
        accounted: kept.accounted_bytes() - base_accounted,
        empty: empty - nothing,
        base: base - nothing,
    })
}

/// The resident memory of this process: see [`resident_of`].
fn resident_bytes() -> Result<f64, String> {
    resident_of("self")
}

/// The resident memory of a process without its program: its used pages do not depend
/// on keys. `process` is its number, or `self`.
pub(crate) fn resident_of(process: impl fmt::Display) -> Result<f64, String> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let kib = anonymous_kib(&text).ok_or_else(|| format!("{path}: no line such as `Anonymous: 123 kB`"))?;
    Ok(f64::from(kib) * 1_024.0)
}

fn anonymous_kib(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read() {
        assert_eq!(
            anonymous_kib("Rss:    9999 kB\nAnonymous:        1234 kB\nLazyFree: 0 kB\n"),
            Some(1_234)
        );
        assert_eq!(anonymous_kib("Rss:    9999 kB\n"), None);
        assert_eq!(anonymous_kib("Anonymous: 12 MB\n"), None);
        assert!(resident_of("no such process").is_err());
    }

    #[test]
    fn figures_are_parsed_back() {
        let filled = Filled { grown: 50.25, accounted: 49.0, empty: 4_096.0, base: 8_192.0 };
        assert_eq!(Filled::parse(&filled.render()), Some(filled));
        assert_eq!(Filled::parse("1 2 3\n"), None);
        assert_eq!(Filled::parse(""), None);
    }

    // Other tests share the resident set of this process, so it is not checked here.
    #[test]
    fn keys_are_accounted_for() {
        let filled = filled(&LAYOUTS[0], 50_000, Keeper::Store).expect("a process can look at itself");
        assert!((30.0..100.0).contains(&(filled.accounted / 50_000.0)), "{filled:?}");
        let filled = fill_numbered(0, 1_000, 0).expect("the first layout in the store");
        assert!(Filled::parse(&filled).is_some(), "{filled}");
    }

    #[test]
    fn unknown_layouts_are_refused() {
        assert!(fill_numbered(99, 1, 0).is_err() && fill_numbered(0, 1, 99).is_err());
        assert!(counter_bytes(99).is_err());
        assert!(bytes_of_a_counter("no such counter").is_nan());
    }
}
