//! Makes a script that fails shorter.

use super::play::{Finding, play};
use super::script::{Act, Script, Step};

/// Scripts that are tried.
const TRIES: usize = 600;

/// The shortest script that was found with a finding of the same kind, and that.
pub(crate) fn shrink(script: &Script, finding: Finding) -> (Script, Finding) {
    let mut shortest = (script.clone(), finding);
    let mut tries = 0;
    shortest.0.steps.truncate(shortest.1.steps);
    let mut is_better = true;
    while is_better {
        is_better = false;
        let mut run = shortest.0.steps.len().div_ceil(2);
        while run > 0 {
            let mut from = 0;
            while from < shortest.0.steps.len() {
                let mut shorter = shortest.0.clone();
                shorter.steps.drain(from..(from + run).min(shorter.steps.len()));
                if try_shorter(&mut shortest, shorter, &mut tries) { is_better = true } else { from += run }
            }
            run /= 2;
        }
        for index in (0..shortest.0.steps.len()).rev() {
            while let Some(step) = shortest.0.steps.get(index).and_then(Step::fewer) {
                let mut shorter = shortest.0.clone();
                shorter.steps[index] = step;
                if !try_shorter(&mut shortest, shorter, &mut tries) {
                    break;
                }
                is_better = true;
            }
        }
    }
    shortest
}

fn try_shorter(shortest: &mut (Script, Finding), mut shorter: Script, tries: &mut usize) -> bool {
    *tries += 1;
    if *tries > TRIES {
        return false;
    }
    let Err(finding) = play(&shorter) else { return false };
    if finding.kind != shortest.1.kind {
        return false;
    }
    shorter.steps.truncate(finding.steps);
    *shortest = (shorter, finding);
    true
}

impl Step {
    /// The same with half as many hits.
    fn fewer(&self) -> Option<Step> {
        let mut act = self.act;
        let times = match &mut act {
            Act::Hits { times, .. }
            | Act::Late { times, .. }
            | Act::Limit { times, .. }
            | Act::Refused { times, .. } => times,
            Act::Checkpoint { hits, .. } | Act::Dump { hits, .. } => hits,
            _ => return None,
        };
        *times /= 2;
        (*times > 0).then_some(Step { act, ..*self })
    }
}
