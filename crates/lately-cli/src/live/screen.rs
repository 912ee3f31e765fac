//! The terminal of a live view: the whole screen, and keys without echo. It is restored on every exit, including a panic.

use std::io::{self, BufWriter, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::backend::Backend;
use ratatui_core::layout::{Rect, Size};
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::limits::{MAX_SCREEN_COLUMNS, MAX_SCREEN_LINES};
use crate::live::view::{Picture, draw};

/// Whether the terminal has to be restored.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    /// The backend that draws on a part of the terminal.
    area: Rect,
}

/// The part of a terminal that is drawn on. Terminals do not always report their true size.
fn area_of(size: Size) -> Rect {
    Rect::new(0, 0, size.width.min(MAX_SCREEN_COLUMNS), size.height.min(MAX_SCREEN_LINES))
}

impl Screen {
    pub(crate) fn open() -> io::Result<Screen> {
        // The message of a panic is printed after the screen is left, so that it stays visible.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        let opened = execute!(stdout(), EnterAlternateScreen).and_then(|()| {
            let backend = CrosstermBackend::new(BufWriter::new(stdout()));
            let area = area_of(backend.size()?);
            let options = TerminalOptions { viewport: Viewport::Fixed(area) };
            Ok(Screen { terminal: Terminal::with_options(backend, options)?, area })
        });
        match opened {
            Ok(screen) => Ok(screen),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// The columns and lines of that part.
    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        let area = area_of(self.terminal.size()?);
        Ok((area.width, area.height))
    }

    pub(crate) fn draw(&mut self, picture: &Picture<'_>) -> io::Result<()> {
        let area = area_of(self.terminal.size()?);
        if area != self.area {
            self.terminal.resize(area)?;
            self.area = area;
        }
        self.terminal.draw(|frame| {
            let area = frame.area();
            if let Some(cursor) = draw(picture, frame.buffer_mut(), area) {
                frame.set_cursor_position(cursor);
            }
        })?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, once: leaving the screen a second time would move the cursor over later output. Errors are
/// ignored, because the terminal may be closed.
fn restore() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        _ = disable_raw_mode();
        _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    const PANICS: &str = "LATELY_TEST_PANICS";

    /// The test starts itself again in a terminal, where it panics.
    #[test]
    fn a_panic_restores_the_terminal_and_shows_its_message() {
        if env::var_os(PANICS).is_some() {
            let _screen = Screen::open().expect("a terminal");
            panic!("this is on purpose");
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let path = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
        let slave = File::options().read(true).write(true).open(path).expect("the other end");
        let modes = |slave: &File| tcgetattr(slave.as_fd()).expect("a terminal").local_modes;
        let before = modes(&slave);
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
        let copy = || slave.try_clone().expect("a descriptor");
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", "live::screen::tests::a_panic_restores_the_terminal_and_shows_its_message"]);
        command.args(["--nocapture", "--test-threads", "1"]).env(PANICS, "1").env("TERM", "xterm");
        let mut child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it starts");
        drop(command);
        let mut master = File::from(master);
        let mut terminal = vt100::Parser::new(50, 200, 1_000);
        let mut bytes = [0; 4_096];
        let mut had_screen = false;
        // The terminal stays open here, so this byte marks the end of the output.
        while !terminal.screen().contents().contains("test result: FAILED") {
            let count = master.read(&mut bytes).expect("it writes");
            for byte in &bytes[..count] {
                terminal.process(&[*byte]);
                had_screen |= terminal.screen().alternate_screen();
            }
        }
        let screen = terminal.screen();
        assert!(had_screen && !screen.alternate_screen() && !screen.hide_cursor());
        assert!(screen.contents().contains("this is on purpose"), "{}", screen.contents());
        assert_eq!(modes(&slave), before);
        assert!(!child.wait().expect("it ends").success());
    }
}
