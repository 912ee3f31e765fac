//! Shrinks a failing script.

use super::play::Finding;
use super::script::{Act, Script, Step};

/// The number of scripts that are tried.
const TRIES: usize = 600;

/// A function that plays a script.
type Play = fn(&Script) -> Result<(), Finding>;

/// The shortest script with a finding of the same kind, and that finding.
pub(crate) fn shrink(script: &Script, finding: Finding, play: Play) -> (Script, Finding) {
    let mut shortest = (script.clone(), finding);
    let mut tries = TRIES;
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
                if try_shorter(&mut shortest, shorter, play, &mut tries) {
                    is_better = true;
                } else {
                    from += run;
                }
            }
            run /= 2;
        }
        for index in (0..shortest.0.steps.len()).rev() {
            while let Some(step) = shortest.0.steps.get(index).and_then(Step::fewer) {
                let mut shorter = shortest.0.clone();
                shorter.steps[index] = step;
                if !try_shorter(&mut shortest, shorter, play, &mut tries) {
                    break;
                }
                is_better = true;
            }
        }
    }
    shortest
}

/// Replaces the script by a shorter one, if that has a finding of the same kind. Returns whether it has.
fn try_shorter(shortest: &mut (Script, Finding), mut shorter: Script, play: Play, tries: &mut usize) -> bool {
    if *tries == 0 {
        return false;
    }
    *tries -= 1;
    let Err(finding) = play(&shorter) else { return false };
    if finding.kind != shortest.1.kind {
        return false;
    }
    shorter.steps.truncate(finding.steps);
    *shortest = (shorter, finding);
    true
}

impl Step {
    /// The same step with half as many hits.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::play::Kind;
    use crate::classes::script::Choices;

    /// Finds that a key was hit at least twice, and then deleted.
    fn forgotten_after_two_hits(script: &Script) -> Result<(), Finding> {
        let mut is_hit = false;
        for (index, step) in script.steps.iter().enumerate() {
            match step.act {
                Act::Hits { times, .. } => is_hit |= times >= 2,
                Act::Forget { .. } if is_hit => {
                    return Err(Finding { kind: Kind::Bounds, what: String::new(), steps: index + 1 });
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[test]
    fn shrinking_leaves_out_irrelevant_steps() {
        let scripts = (0..200).map(|seed| Script::any(&mut Choices::of_seed(seed)));
        let mut found = 0;
        for script in scripts {
            let Err(finding) = forgotten_after_two_hits(&script) else { continue };
            let (shortest, finding) = shrink(&script, finding, forgotten_after_two_hits);
            let acts: Vec<Act> = shortest.steps.iter().map(|step| step.act).collect();
            assert!(
                matches!(acts[..], [Act::Hits { times: 2 | 3, .. }, Act::Forget { .. }])
                    && finding.steps == 2,
                "{acts:?}"
            );
            found += 1;
        }
        assert!(found > 10, "{found} scripts");
    }
}
