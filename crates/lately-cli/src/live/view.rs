//! Draws a live view: a header, a row for each key, notes, and the keys of the keyboard.

use lately::{Span, Timestamp};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::{Color, Modifier, Style};

use crate::live::controls::Controls;
use crate::live::decisions::Rates;
use crate::live::hits::{LATEST, Ranked, Row, Sort};
use crate::table::{printable, utc};

/// Lines that are not rows of keys: two of the header, the columns' names, notes, help.
const OTHER_LINES: u16 = 5;

/// The least width of a column of numbers, and the gap between columns.
const NUMBER_WIDTH: usize = 7;
const GAP: &str = "  ";

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The content of the view.
pub(crate) struct Picture<'a> {
    /// The logs, or the server.
    pub(crate) subject: &'a str,
    pub(crate) now: Timestamp,
    /// The window of the numbers.
    pub(crate) window: Span,
    pub(crate) ranked: &'a Ranked,
    pub(crate) rest: Rest,
    pub(crate) below: &'a Below,
    pub(crate) controls: &'a Controls,
    pub(crate) notes: &'a [String],
    pub(crate) has_colour: bool,
}

/// What a server has beside its keys. It is shown below them, in at most half of their lines.
#[derive(Default, Debug)]
pub(crate) struct Below {
    /// A line for each alert.
    pub(crate) alerts: Vec<String>,
    /// The named limits, in the order in which they are shown.
    pub(crate) limits: Vec<Rates>,
}

impl Below {
    /// Nothing.
    pub(crate) const NONE: &'static Below = &Below { alerts: Vec::new(), limits: Vec::new() };

    /// The number of lines on a screen of this height. They include an empty one above them.
    fn height(&self, height: u16) -> usize {
        let limits = if self.limits.is_empty() { 0 } else { self.limits.len() + 1 };
        match self.alerts.len() + limits {
            0 => 0,
            lines => (lines + 1).min(usize::from(height.saturating_sub(OTHER_LINES)) / 2),
        }
    }

    /// The alerts, and then a table of the limits.
    fn lines(&self) -> impl Iterator<Item = (String, Part)> {
        let alerts = self.alerts.iter().map(|alert| (alert.clone(), Part::Alert));
        let header = ["ALLOWED/s", "DENIED/s", "WOULD DENY/s"];
        let line = move |cells: [String; 3], name: &str| {
            let cells = cells.iter().zip(header).map(|(cell, name)| format!("{cell:>0$}{GAP}", name.len()));
            cells.collect::<String>() + name
        };
        let is_none = self.limits.is_empty();
        let names = (!is_none).then(|| (line(header.map(str::to_owned), "LIMIT"), Part::Names));
        let rows = self.limits.iter().map(move |limit| {
            let cells = [limit.allowed, limit.denied, limit.would_deny]
                .map(|rate| rate.map_or("-".to_owned(), digits));
            (line(cells, &printable(limit.name.as_bytes())), Part::Row)
        });
        alerts.chain(names).chain(rows)
    }
}

/// A line of [`Below`].
enum Part {
    Alert,
    /// The names of the columns of limits.
    Names,
    Row,
}

/// What is known of the keys that are not among the rows.
#[derive(Clone, Copy)]
pub(crate) enum Rest {
    /// Their number and their hits are in the sums.
    Summed,
    /// The most hits that any of them has, if that is known.
    AtMost(Option<u64>),
}

/// The number of keys that fit on the screen, above other lines.
pub(crate) fn rows_in(height: u16, below: &Below) -> usize {
    usize::from(height.saturating_sub(OTHER_LINES)) - below.height(height)
}

/// The number of steps of a curve.
pub(crate) fn steps_in(width: u16) -> usize {
    (usize::from(width) / 6).clamp(8, 60)
}

/// The text of a rate in hits per second.
pub(crate) fn rate(hits: u64, window: Span) -> String {
    digits(hits as f64 / window.as_seconds_f64())
}

fn digits(rate: f64) -> String {
    let decimals = if rate < 10.0 { 2 } else { usize::from(rate < 100.0) };
    format!("{rate:.decimals$}")
}

/// Draws the view. Returns the position of the cursor while the filter is typed.
pub(crate) fn draw(picture: &Picture<'_>, buffer: &mut Buffer, area: Rect) -> Option<Position> {
    let Picture { subject, now, window, ranked, rest, below, controls, notes, has_colour } = picture;
    let coloured = |colour| if *has_colour { Style::new().fg(colour) } else { Style::new() };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut page = Page { buffer, area };
    page.line(0, &format!("lately top{GAP}{subject}"), bold);
    page.right(0, &utc(*now), Style::new());
    let window = *window;
    let keys = if ranked.keys == 1 { "key" } else { "keys" };
    let mut summary = format!(
        "last {window}: {} hits, {}/s, {} {keys}",
        ranked.hits,
        rate(ranked.hits, window),
        ranked.keys
    );
    if let Rest::AtMost(most) = rest {
        summary += " shown";
        summary += &most.map_or(String::new(), |most| format!(", others at most {most} each"));
    }
    if !controls.filter().is_empty() {
        summary += &format!(" with {}", printable(controls.filter().as_bytes()));
    }
    page.line(1, &summary, Style::new());
    let sort = match controls.sort() {
        Sort::Hits => "by hits",
        Sort::Latest => "by the last 10s",
        Sort::Key => "by key",
    };
    page.right(1, sort, Style::new());
    let columns = Columns::new(&ranked.rows, window, steps_in(area.width));
    page.line(2, &columns.header(), bold.add_modifier(Modifier::REVERSED));
    page.fill(2, bold.add_modifier(Modifier::REVERSED));
    let room = rows_in(area.height, below);
    for (line, row) in (3..).zip(ranked.rows.iter().take(room)) {
        let [numbers, curve, key] = columns.row(row);
        let after = page.text(line, 0, &numbers, Style::new());
        let after = page.text(line, after, &curve, coloured(Color::Cyan));
        page.text(line, after, &key, Style::new());
    }
    let last = area.height.saturating_sub(1);
    // The first line of them is empty.
    let height = below.height(area.height);
    let first = last.saturating_sub(u16::try_from(height).unwrap_or(u16::MAX));
    for (line, (text, part)) in (first..).zip(below.lines().take(height.saturating_sub(1))) {
        let style = match part {
            Part::Alert => coloured(Color::Red),
            Part::Names => bold,
            Part::Row => Style::new(),
        };
        page.line(line, &text, style);
    }
    if !notes.is_empty() && last > 3 {
        page.line(last - 1, &notes.join("; "), coloured(Color::Yellow));
    }
    if controls.is_editing() {
        let prompt = format!("/{}", printable(controls.filter().as_bytes()));
        let end = page.line(last, &prompt, bold);
        page.right(last, "Enter keeps it, Esc clears it", Style::new());
        return (area.height > 0)
            .then(|| Position::new(area.x + end.min(area.width.saturating_sub(1)), area.y + last));
    }
    page.line(last, "/ filter   s sort   w window   q quit", coloured(Color::DarkGray));
    None
}

/// The part of a buffer that is drawn to, by lines.
struct Page<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl Page<'_> {
    /// Writes `text` to a line from `column` on, as far as there is room. Returns the column after it.
    fn text(&mut self, line: u16, column: u16, text: &str, style: Style) -> u16 {
        if line >= self.area.height || column >= self.area.width {
            return column;
        }
        let room = usize::from(self.area.width - column);
        let (end, _) = self.buffer.set_stringn(self.area.x + column, self.area.y + line, text, room, style);
        end - self.area.x
    }

    fn line(&mut self, line: u16, text: &str, style: Style) -> u16 {
        self.text(line, 0, text, style)
    }

    /// Writes `text` at the right end of a line, with a gap before it.
    fn right(&mut self, line: u16, text: &str, style: Style) {
        let text = format!("{GAP}{text}");
        let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
        if let Some(column) = self.area.width.checked_sub(width) {
            self.text(line, column, &text, style);
        }
    }

    /// Styles a whole line.
    fn fill(&mut self, line: u16, style: Style) {
        if line < self.area.height {
            self.buffer.set_style(Rect { y: self.area.y + line, height: 1, ..self.area }, style);
        }
    }
}

/// The columns of numbers, and their widths.
struct Columns {
    window: Span,
    /// The hits, the rate, the latest hits, the peak if it is known, and what limits denied, if they did.
    numbers: Vec<(Number, usize)>,
    steps: usize,
}

impl Columns {
    fn new(rows: &[Row], window: Span, steps: usize) -> Columns {
        let mut numbers = vec![Number::Hits, Number::Rate, Number::Latest];
        if rows.iter().all(|row| row.peak.is_some()) {
            numbers.push(Number::Peak);
        }
        if rows.iter().any(|row| row.denied > 0) {
            numbers.push(Number::Denied);
        }
        let width = |number: Number| {
            rows.iter().map(move |row| number.of(row, window).len()).fold(NUMBER_WIDTH, usize::max)
        };
        let numbers = numbers.into_iter().map(|number| (number, width(number))).collect();
        Columns { window, numbers, steps }
    }

    fn header(&self) -> String {
        let numbers = self.aligned(Number::name);
        format!("{numbers}{:<1$}{GAP}KEY", "CURVE", self.steps)
    }

    /// The numbers, the curve and the key of a row.
    fn row(&self, row: &Row) -> [String; 3] {
        let curve: String = bars(&row.curve).collect();
        let curve = format!("{curve:<0$}", self.steps);
        [self.aligned(|number| number.of(row, self.window)), curve, format!("{GAP}{}", printable(&row.key))]
    }

    fn aligned(&self, text: impl Fn(Number) -> String) -> String {
        let cells = self.numbers.iter().map(|&(number, width)| (text(number), width));
        cells.map(|(text, width)| format!("{text:>width$}{GAP}")).collect()
    }
}

/// A column of numbers.
#[derive(Clone, Copy)]
enum Number {
    Hits,
    Rate,
    Latest,
    Peak,
    Denied,
}

impl Number {
    fn name(self) -> String {
        match self {
            Number::Hits => "HITS".into(),
            Number::Rate => "RATE/s".into(),
            Number::Latest => format!("{LATEST}"),
            Number::Peak => "PEAK".into(),
            Number::Denied => "DENIED".into(),
        }
    }

    fn of(self, row: &Row, window: Span) -> String {
        match self {
            Number::Hits => row.hits.to_string(),
            Number::Rate => rate(row.hits, window),
            Number::Latest => row.latest.to_string(),
            Number::Peak => row.peak.map_or(String::new(), |peak| peak.to_string()),
            Number::Denied => row.denied.to_string(),
        }
    }
}

/// A bar for each step, relative to the highest one. Any hit is visible.
fn bars(steps: &[u64]) -> impl Iterator<Item = char> {
    let most = steps.iter().copied().max().unwrap_or(0).max(1);
    steps.iter().map(move |&hits| {
        let eighths = (u128::from(hits) * 8).div_ceil(u128::from(most));
        BARS[usize::try_from(eighths).unwrap_or(8)]
    })
}

#[cfg(test)]
mod tests {
    use lately::{minutes, seconds};
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;
    use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    fn ranked() -> Ranked {
        let row = |key: &[u8], hits, latest, peak, curve: &[u64]| Row {
            key: key.into(),
            hits,
            latest,
            peak: Some(peak),
            denied: 0,
            curve: curve.to_vec(),
        };
        let rows = vec![
            row(b"198.51.100.7", 1_234_567, 40_000, 1_234_567, &[1, 2, 3, 4, 5, 6, 7, 8, 0, 100]),
            row(b"a\x1b[31mb \xe2\x80\xae\xff", 30, 1, 99, &[0, 0, 0, 1]),
            row("Käse 🧀".as_bytes(), 1, 0, 1, &[1]),
        ];
        Ranked { rows, keys: 3, hits: 1_234_598 }
    }

    fn screen(width: u16, height: u16, picture: &Picture<'_>) -> (String, Option<Position>) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory does not fail");
        let mut cursor = None;
        terminal
            .draw(|frame| {
                let area = frame.area();
                cursor = draw(picture, frame.buffer_mut(), area);
            })
            .expect("memory does not fail");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let lines = (0..height).map(|y| line(y).trim_end().to_owned() + "\n");
        (lines.collect(), cursor)
    }

    fn picture<'a>(ranked: &'a Ranked, controls: &'a Controls, notes: &'a [String]) -> Picture<'a> {
        let now = Timestamp::from_seconds(1_710_234_004).expect("a time");
        let rest = Rest::Summed;
        let window = controls.window();
        Picture {
            subject: "access.log (combined)",
            now,
            window,
            ranked,
            rest,
            below: Below::NONE,
            controls,
            notes,
            has_colour: true,
        }
    }

    #[test]
    fn a_page_has_a_row_for_each_key() {
        let (ranked, controls) = (ranked(), Controls::new(minutes(5)));
        let notes = ["3 lines do not parse".to_owned(), "b.log is not there: waiting for it".to_owned()];
        let (shown, cursor) = screen(80, 12, &picture(&ranked, &controls, &notes));
        let expected = "\
lately top  access.log (combined)                           2024-03-12T09:00:04Z
last 5m: 1234598 hits, 4115/s, 3 keys                                    by hits
   HITS   RATE/s      10s     PEAK  CURVE          KEY
1234567     4115    40000  1234567  ▁▁▁▁▁▁▁▁ █     198.51.100.7
     30     0.10        1       99     █           a\\u{1b}[31mb \\u{202e}\\xff
      1     0.00        0        1  █              Käse 🧀




3 lines do not parse; b.log is not there: waiting for it
/ filter   s sort   w window   q quit
";
        assert_eq!((shown.replace("🧀 ", "🧀").as_str(), cursor), (expected, None));
    }

    #[test]
    fn a_page_of_a_server_bounds_the_other_keys() {
        let mut ranked = ranked();
        ranked.rows.iter_mut().for_each(|row| row.peak = None);
        let controls = Controls::new(minutes(5));
        let first_lines = |rest, expected: &str| {
            let (shown, _) = screen(90, 8, &Picture { rest, ..picture(&ranked, &controls, &[]) });
            assert_eq!(shown.lines().nth(1), Some(expected));
            shown
        };
        let shown = first_lines(
            Rest::AtMost(Some(1)),
            "last 5m: 1234598 hits, 4115/s, 3 keys shown, others at most 1 each                 by hits",
        );
        assert_eq!(shown.lines().nth(2), Some("   HITS   RATE/s      10s  CURVE            KEY"));
        assert_eq!(shown.lines().nth(3), Some("1234567     4115    40000  ▁▁▁▁▁▁▁▁ █       198.51.100.7"));
        first_lines(
            Rest::AtMost(None),
            "last 5m: 1234598 hits, 4115/s, 3 keys shown                                        by hits",
        );
    }

    #[test]
    fn what_limits_denied_is_a_column_if_they_did() {
        let mut ranked = ranked();
        ranked.rows.iter_mut().for_each(|row| row.peak = None);
        ranked.rows[1].denied = 12;
        let (shown, _) = screen(90, 8, &picture(&ranked, &Controls::new(minutes(5)), &[]));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[2], "   HITS   RATE/s      10s   DENIED  CURVE            KEY");
        assert_eq!(lines[3], "1234567     4115    40000        0  ▁▁▁▁▁▁▁▁ █       198.51.100.7");
        assert!(lines[4].starts_with("     30     0.10        1       12"), "{}", lines[4]);
    }

    fn below() -> Below {
        let rates = |name: &str, rates: [Option<f64>; 3]| {
            let [allowed, denied, would_deny] = rates;
            Rates { name: name.to_owned(), allowed, denied, would_deny }
        };
        Below {
            alerts: vec!["alert busy is firing: 12 hits in 1m, above 5: k 75 %".to_owned()],
            limits: vec![
                rates("login", [Some(1234.5), Some(20.0), Some(0.0)]),
                rates("sea\x1brch", [None; 3]),
            ],
        }
    }

    #[test]
    fn alerts_and_limits_are_below_the_keys() {
        let (ranked, controls, below) = (ranked(), Controls::new(minutes(5)), below());
        let notes = ["a note".to_owned()];
        let picture = Picture { below: &below, ..picture(&ranked, &controls, &notes) };
        let (shown, _) = screen(80, 15, &picture);
        let expected = "
alert busy is firing: 12 hits in 1m, above 5: k 75 %
ALLOWED/s  DENIED/s  WOULD DENY/s  LIMIT
     1234      20.0          0.00  login
        -         -             -  sea\\u{1b}rch
a note
/ filter   s sort   w window   q quit
";
        let lines: Vec<&str> = shown.split_inclusive('\n').collect();
        assert_eq!(lines[8..].concat(), expected);
        assert!(lines[5].contains("Käse"), "{shown}");
        // On a low screen they take at most half of the lines of keys.
        let (shown, _) = screen(80, 9, &picture);
        let lines: Vec<&str> = shown.split_inclusive('\n').collect();
        assert!(lines[4].contains("u{1b}[31mb") && lines[5] == "\n", "{shown}");
        assert!(lines[6].starts_with("alert busy") && lines[7] == "a note\n", "{shown}");
    }

    #[test]
    fn a_filter_is_shown_with_the_cursor_while_typing() {
        let ranked = ranked();
        let mut controls = Controls::new(seconds(10));
        for letter in "s/ab\u{9b}".chars() {
            controls.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
        }
        let (shown, cursor) = screen(80, 8, &picture(&ranked, &controls, &[]));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[1],
            r"last 10s: 1234598 hits, 123460/s, 3 keys with ab\u{9b}           by the last 10s"
        );
        assert_eq!(
            lines[7],
            r"/ab\u{9b}                                          Enter keeps it, Esc clears it"
        );
        assert_eq!(cursor, Some(Position::new(9, 7)));
        assert_eq!(rows_in(8, Below::NONE), 3);
    }

    #[test]
    fn any_size_is_drawn() {
        let (ranked, below) = (ranked(), below());
        let notes = ["a note".to_owned()];
        let mut controls = Controls::new(minutes(5));
        for is_editing in [false, true] {
            if is_editing {
                controls.press(KeyEvent::new(KeyCode::Char('/'), KeyModifiers::NONE));
            }
            for (width, height) in (0..90).flat_map(|width| (0..10).map(move |height| (width, height))) {
                let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                let picture = Picture { below: &below, ..picture(&ranked, &controls, &notes) };
                draw(&picture, &mut buffer, Rect::new(0, 0, width, height));
            }
        }
    }

    #[test]
    fn colours_can_be_left_out() {
        let (ranked, controls) = (ranked(), Controls::new(minutes(5)));
        let colours = |has_colour| {
            let area = Rect::new(0, 0, 80, 12);
            let mut buffer = Buffer::empty(area);
            let notes = ["a note".to_owned()];
            draw(&Picture { has_colour, ..picture(&ranked, &controls, &notes) }, &mut buffer, area);
            buffer.content.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
        };
        assert!(colours(true) > 0);
        assert_eq!(colours(false), 0);
    }

    #[test]
    fn the_digits_of_a_rate_depend_on_its_size() {
        let check = |hits, window, expected: &str| assert_eq!(rate(hits, window), expected);
        check(1, minutes(5), "0.00");
        check(3, seconds(1), "3.00");
        check(999, seconds(10), "99.9");
        check(1_000, seconds(10), "100");
    }
}
