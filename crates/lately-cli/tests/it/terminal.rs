//! Runs a program in a terminal: presses keys and reads the screen.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The most reads until the screen shows the expected content. The view writes at least once a second, because its clock
/// advances.
const READS: usize = 400;

pub(crate) struct Terminal {
    master: File,
    /// Kept open, so that the terminal can be read after the program has ended.
    slave: File,
    child: Child,
    parser: vt100::Parser,
    pub(crate) had_screen: bool,
}

/// The state after the end of the program.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// Whether the terminal is restored: line editing and echo are on, and the normal screen is shown with its cursor.
    pub(crate) is_restored: bool,
    /// The text on the normal screen.
    pub(crate) messages: String,
}

impl Terminal {
    /// Runs `lately` with a terminal of this size as its own.
    pub(crate) fn run(args: &[&str], (columns, lines): (u16, u16), environment: &[(&str, &str)]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let path = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
        let slave = File::options().read(true).write(true).open(path).expect("the other end");
        let copy = || slave.try_clone().expect("a descriptor");
        let mut terminal = Terminal {
            child: Command::new("setsid")
                .args(["--ctty", env!("CARGO_BIN_EXE_lately")])
                .args(args)
                .env_remove("NO_COLOR")
                .env("TERM", "xterm-256color")
                .envs(environment.iter().copied())
                .stdin(copy())
                .stdout(copy())
                .stderr(copy())
                .spawn()
                .expect("setsid starts"),
            master: File::from(master),
            slave,
            parser: vt100::Parser::new(lines, columns, 0),
            had_screen: false,
        };
        terminal.resize((columns, lines));
        terminal
    }

    pub(crate) fn resize(&mut self, size: (u16, u16)) {
        self.resize_as(size, size);
    }

    /// Makes the terminal report one size and show another one.
    pub(crate) fn resize_as(&mut self, (columns, lines): (u16, u16), shown: (u16, u16)) {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master.as_fd(), size).expect("a size");
        self.parser.screen_mut().set_size(shown.1, shown.0);
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it is open");
    }

    /// Waits until the screen meets a condition.
    pub(crate) fn wait(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        for _ in 0..READS {
            if is_so(&self.lines()) {
                return;
            }
            self.read();
        }
        panic!("{what}: not on\n{}", self.lines().join("\n"));
    }

    /// The lines of the screen, without blanks at their ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        let screen = self.parser.screen();
        let (_, columns) = screen.size();
        screen.rows(0, columns).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Whether anything on the screen has a colour.
    pub(crate) fn has_colour(&self) -> bool {
        let screen = self.parser.screen();
        let (lines, columns) = screen.size();
        let mut places = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
        places.any(|(line, column)| {
            let cell = screen.cell(line, column);
            cell.is_some_and(|cell| {
                (cell.fgcolor(), cell.bgcolor()) != (vt100::Color::Default, vt100::Color::Default)
            })
        })
    }

    /// Sends a signal, such as TERM.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
    }

    /// Reads until the program has left its screen, and waits for its end.
    pub(crate) fn ended(mut self) -> Ended {
        for _ in 0..READS {
            if self.had_screen && !self.parser.screen().alternate_screen() {
                break;
            }
            self.read();
        }
        let code = self.child.wait().expect("it ends").code();
        // This text marks the end of the output.
        self.slave.write_all(b"(end)").expect("it is open");
        while !self.parser.screen().contents().contains("(end)") {
            self.read();
        }
        let screen = self.parser.screen();
        let modes = tcgetattr(self.slave.as_fd()).expect("a terminal").local_modes;
        let is_cooked = modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        Ended {
            code,
            is_restored: is_cooked && !screen.alternate_screen() && !screen.hide_cursor(),
            messages: screen.contents().replace("(end)", ""),
        }
    }

    fn read(&mut self) {
        // After the program's end, this byte ends the read.
        if self.child.try_wait().expect("it is ours").is_some() {
            self.slave.write_all(b"\0").expect("it is open");
        }
        let mut bytes = [0; 16 * 1_024];
        let count = self.master.read(&mut bytes).expect("it writes");
        self.parser.process(&bytes[..count]);
        self.had_screen |= self.parser.screen().alternate_screen();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
