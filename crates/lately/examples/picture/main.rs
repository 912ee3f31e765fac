//! Draws `docs/guide/limits.svg` and writes the figures of `docs/guide/limits.md`: one trace, decided by each kind of limit.
//! `cargo xtask picture` runs it. With `--check` it writes nothing, and fails where they are not as it would make them.

mod drawing;
mod figures;
mod fixed;
mod limiter;
mod replay;
mod trace;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use replay::Replay;

const PICTURE: &str = "limits.svg";
const DOCUMENT: &str = "limits.md";

fn main() -> ExitCode {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let result = match words.as_slice() {
        [docs] => write(Path::new(docs)),
        [flag, docs] if flag == "--check" => check(Path::new(docs)),
        _ => Err("usage: picture [--check] FOLDER".to_owned()),
    };
    let Err(sentence) = result else { return ExitCode::SUCCESS };
    // There is nowhere left to say that this failed.
    drop(writeln!(io::stderr(), "picture: {sentence}"));
    ExitCode::FAILURE
}

/// What a file is to have in it, and its name.
struct Made {
    name: &'static str,
    is: String,
    must_be: String,
}

fn make(docs: &Path) -> Result<[Made; 2], String> {
    let replays = Replay::all();
    let read = |name: &str| {
        let path = docs.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let document = read(DOCUMENT)?;
    let with_figures = figures::put(&document, &figures::table(&replays))?;
    // The first time there is no picture.
    let picture = read(PICTURE).unwrap_or_default();
    Ok([
        Made { name: PICTURE, is: picture, must_be: drawing::draw(&replays) },
        Made { name: DOCUMENT, is: document, must_be: with_figures },
    ])
}

fn write(docs: &Path) -> Result<(), String> {
    for Made { name, is, must_be } in make(docs)? {
        if is != must_be {
            let path = docs.join(name);
            fs::write(&path, must_be).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn check(docs: &Path) -> Result<(), String> {
    match make(docs)?.into_iter().find(|made| made.is != made.must_be) {
        None => Ok(()),
        Some(made) => {
            let path = docs.join(made.name);
            Err(format!("{} is not what is drawn now; `cargo xtask picture` draws it again", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_and_its_figures_are_what_the_limits_decide() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
        assert_eq!(check(&docs), Ok(()));
    }
}
