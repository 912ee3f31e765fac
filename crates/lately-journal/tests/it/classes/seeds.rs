//! Many seeds, one after the other.
//!
//! `LATELY_SIM_SEED` plays one seed; `LATELY_SIM_SEEDS` so many; `LATELY_SIM_SECONDS` for so long, others each
//! time.

use std::collections::BTreeMap;

use lately::{Clock, SystemClock};

use super::{Choices, Finding, Kind, Script, play, shrink};

/// Seeds that are played where nothing else is asked for.
const SEEDS: u64 = 1_000;
/// Findings that are made shorter and told in full.
const TOLD: usize = 5;

/// Says something also where the output of tests is kept back.
fn say(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{line}\n").as_bytes());
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn tell(seed: u64, script: &Script, finding: Finding) {
    say(&format!("seed {seed}: {:?} after {} steps: {}", finding.kind, finding.steps, finding.what));
    let (script, finding) = shrink(script, finding);
    say(&format!("  shorter: {:?} {:?}", finding.kind, script.classes));
    script.steps.iter().for_each(|step| say(&format!("    {:?}", step.act)));
    say(&format!("  {}", finding.what));
}

#[test]
fn answers_are_true_while_classes_change() {
    let one = number("LATELY_SIM_SEED");
    let clock = SystemClock::new();
    let until = number("LATELY_SIM_SECONDS").map(|seconds| clock.now().saturating_add(lately::seconds(seconds)));
    let seeds = number("LATELY_SIM_SEEDS").unwrap_or(SEEDS);
    let first = one.unwrap_or(if until.is_some() { clock.now().as_millis().cast_unsigned() } else { 0 });
    let (mut played, mut found): (u64, BTreeMap<Kind, Vec<u64>>) = (0, BTreeMap::new());
    let goes_on = |played: u64| match (one, until) {
        (Some(_), _) => played < 1,
        (None, Some(until)) => clock.now() < until,
        (None, None) => played < seeds,
    };
    while goes_on(played) {
        let seed = first + played;
        let script = Script::any(&mut Choices::of_seed(seed));
        if let Err(finding) = play(&script) {
            let seeds = found.entry(finding.kind).or_default();
            seeds.push(seed);
            if seeds.len() <= TOLD {
                tell(seed, &script, finding);
            }
        }
        played += 1;
    }
    for (kind, seeds) in &found {
        say(&format!("{kind:?}: {} seeds, {:?}", seeds.len(), &seeds[..seeds.len().min(10)]));
    }
    say(&format!("{played} seeds with changing classes"));
    assert!(found.is_empty(), "answers that cannot be true");
}
