//! `lately completions`.

use crate::common::lately;

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = lately(&["completions", shell]);
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{shell}");
        assert!(run.out.contains("count") && run.out.contains("window"), "{shell}: {}", run.out);
    }
    assert_eq!(lately(&["completions", "cmd"]).code, Some(2));
}
