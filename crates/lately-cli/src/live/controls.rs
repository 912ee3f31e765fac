//! The settings that the keyboard changes: the window, the order of the keys, and the filter.

use lately::{Span, hours, minutes, seconds};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::limits::MAX_FILTER_CHARS;
use crate::live::hits::Sort;

/// The windows that `w` cycles through, in addition to the one of the command line.
const WINDOWS: [Span; 5] = [seconds(10), minutes(1), minutes(5), minutes(15), hours(1)];

#[derive(Debug)]
pub(crate) struct Controls {
    windows: Vec<Span>,
    window: usize,
    sort: Sort,
    filter: String,
    is_editing: bool,
}

/// The action of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Nothing,
    Redraw,
    Leave,
}

impl Controls {
    pub(crate) fn new(window: Span) -> Controls {
        let mut windows: Vec<Span> = WINDOWS.into_iter().chain([window]).collect();
        windows.sort_unstable();
        windows.dedup();
        let window = windows.iter().position(|one| *one == window).unwrap_or_default();
        Controls { windows, window, sort: Sort::Hits, filter: String::new(), is_editing: false }
    }

    pub(crate) fn window(&self) -> Span {
        self.windows[self.window]
    }

    /// The longest window there is.
    pub(crate) fn longest(&self) -> Span {
        self.windows.last().copied().unwrap_or(self.window())
    }

    pub(crate) fn sort(&self) -> Sort {
        self.sort
    }

    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    /// Whether the user is typing the filter.
    pub(crate) fn is_editing(&self) -> bool {
        self.is_editing
    }

    pub(crate) fn press(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && key.code == KeyCode::Char('c') {
            return Wish::Leave;
        }
        if self.is_editing { self.edit(key.code, has_control) } else { self.command(key.code) }
    }

    fn command(&mut self, code: KeyCode) -> Wish {
        let windows = self.windows.len();
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Leave,
            KeyCode::Char('/') => self.is_editing = true,
            KeyCode::Char('w') => self.window = (self.window + 1) % windows,
            KeyCode::Char('W') => self.window = (self.window + windows - 1) % windows,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Hits => Sort::Latest,
                    Sort::Latest => Sort::Key,
                    Sort::Key => Sort::Hits,
                }
            }
            _ => return Wish::Nothing,
        }
        Wish::Redraw
    }

    fn edit(&mut self, code: KeyCode, has_control: bool) -> Wish {
        match code {
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_editing = false;
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char('u') if has_control => self.filter.clear(),
            KeyCode::Char(letter) if !has_control && self.filter.chars().count() < MAX_FILTER_CHARS => {
                self.filter.push(letter);
            }
            _ => return Wish::Nothing,
        }
        Wish::Redraw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(controls: &mut Controls, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\r' => KeyCode::Enter,
                '\x08' => KeyCode::Backspace,
                '\x1b' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            assert_eq!(controls.press(KeyEvent::new(code, KeyModifiers::NONE)), Wish::Redraw, "{key:?}");
        }
    }

    #[test]
    fn windows_cycle() {
        let mut controls = Controls::new(minutes(5));
        let mut seen = Vec::new();
        for _ in 0..WINDOWS.len() {
            seen.push(controls.window());
            press(&mut controls, "w");
        }
        assert_eq!(seen, [minutes(5), minutes(15), hours(1), seconds(10), minutes(1)]);
        press(&mut controls, "WW");
        assert_eq!((controls.window(), controls.longest()), (seconds(10), hours(1)));
        // One of the command line takes its place.
        let mut controls = Controls::new(hours(2));
        assert_eq!((controls.window(), controls.longest()), (hours(2), hours(2)));
        press(&mut controls, "W");
        assert_eq!(controls.window(), hours(1));
    }

    #[test]
    fn sort_orders_cycle() {
        let mut controls = Controls::new(minutes(5));
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(controls.sort());
            press(&mut controls, "s");
        }
        assert_eq!(seen, [Sort::Hits, Sort::Latest, Sort::Key, Sort::Hits]);
    }

    #[test]
    fn a_filter_is_typed() {
        let mut controls = Controls::new(minutes(5));
        press(&mut controls, "/qws/x\x08");
        assert_eq!((controls.filter(), controls.is_editing()), ("qws/", true));
        press(&mut controls, "\r");
        assert_eq!((controls.filter(), controls.is_editing()), ("qws/", false));
        press(&mut controls, "/ä\r");
        assert_eq!(controls.filter(), "qws/ä");
        press(&mut controls, "/\x1b");
        assert_eq!((controls.filter(), controls.is_editing()), ("", false));
        press(&mut controls, "/ab");
        controls.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(controls.filter(), "");
        press(&mut controls, &"x".repeat(MAX_FILTER_CHARS));
        let more = controls.press(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::NONE));
        assert_eq!((more, controls.filter()), (Wish::Nothing, &*"x".repeat(MAX_FILTER_CHARS)));
    }

    #[test]
    fn three_keys_quit() {
        let press = |controls: &mut Controls, code, modifiers| controls.press(KeyEvent::new(code, modifiers));
        let mut controls = Controls::new(minutes(5));
        for (code, modifiers) in [
            (KeyCode::Char('q'), KeyModifiers::NONE),
            (KeyCode::Esc, KeyModifiers::NONE),
            (KeyCode::Char('c'), KeyModifiers::CONTROL),
        ] {
            assert_eq!(press(&mut controls, code, modifiers), Wish::Leave);
        }
        assert_eq!(press(&mut controls, KeyCode::Char('x'), KeyModifiers::NONE), Wish::Nothing);
        press(&mut controls, KeyCode::Char('/'), KeyModifiers::NONE);
        assert_eq!(press(&mut controls, KeyCode::Char('q'), KeyModifiers::NONE), Wish::Redraw);
        assert_eq!(press(&mut controls, KeyCode::Char('c'), KeyModifiers::CONTROL), Wish::Leave);
    }
}
