//! The picture, as SVG: for each kind of limit the requests of the trace, and how many of them it had admitted lately.

use std::fmt::Write;

use crate::limiter::{MAX, window};
use crate::replay::{Replay, Request};
use crate::trace::LENGTH_MS;

const WIDTH: i64 = 800;
const LEFT: f64 = 40.0;
const RIGHT: f64 = LEFT + LENGTH_MS as f64 * PER_MS;
const PER_MS: f64 = 0.016;

/// Requests of so many milliseconds are a column.
const COLUMN_MS: i64 = 500;
const DOT: f64 = 6.0;

const TOP: f64 = 52.0;
const LANE: f64 = 166.0;
/// In a lane: where dots stand, and where the count is 0.
const DOTS: f64 = 48.0;
const ZERO: f64 = 124.0;
const PER_HIT: f64 = 3.2;

/// Colours that can be told apart without colour too: what is denied is hollow, what is too much lies above the line.
const STYLE: &str = "\
text { font: 12px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328; }
.name { font-weight: 600; font-size: 14px; }
.how { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.quiet { fill: #59636e; }
.most { text-anchor: end; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.back { fill: #ffffff; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.edge { stroke: #59636e; stroke-width: 1; stroke-dasharray: 2 3; }
.admitted { fill: #0969da; stroke: #0969da; }
.denied { fill: none; stroke: #818b98; }
.within { fill: #0969da; fill-opacity: 0.18; }
.beyond { fill: #cf222e; fill-opacity: 0.55; }
.step { fill: none; stroke: #0969da; stroke-width: 1.5; }
.limit { stroke: #cf222e; stroke-width: 1.2; stroke-dasharray: 6 3; }
.over { fill: #cf222e; font-weight: 600; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
.back { fill: #0d1117; }
.grid { stroke: #3d444d; }
.edge { stroke: #9198a1; }
.admitted { fill: #4493f8; stroke: #4493f8; }
.denied { stroke: #9198a1; }
.within { fill: #4493f8; }
.beyond { fill: #f85149; }
.step { stroke: #4493f8; }
.limit { stroke: #f85149; }
.over { fill: #f85149; }
}
";

/// The whole picture.
pub(crate) fn draw(replays: &[Replay]) -> String {
    let mut svg = Svg(String::new());
    let bottom = (0..replays.len()).fold(TOP, |top, _| top + LANE);
    let window_s = window().as_millis() / 1_000;
    svg.line(&format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">"#,
        height = bottom + 4.0
    ));
    svg.line("<title>What limits admit at the edge of a window</title>");
    svg.line(&format!("<style>\n{STYLE}</style>"));
    svg.line(r#"<rect class="back" width="100%" height="100%"/>"#);
    svg.legend(window_s);
    for (replay, top) in replays.iter().zip((0..).map(|lane| TOP + LANE * f64::from(lane))) {
        svg.lane(replay, top, window_s);
    }
    svg.line("</svg>");
    svg.0
}

fn x(at_ms: i64) -> f64 {
    LEFT + at_ms as f64 * PER_MS
}

struct Svg(String);

impl Svg {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.line(&format!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#));
    }

    fn straight(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.line(&format!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    fn dot(&mut self, class: &str, x: f64, y: f64) {
        self.line(&format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="2.2"/>"#));
    }

    fn legend(&mut self, window_s: i64) {
        let y = 20.0;
        self.text("name", LEFT, y, &format!("A limit of {MAX} in {window_s} s, one client"));
        self.dot("admitted", 300.0, y - 4.0);
        self.text("quiet", 308.0, y, "admitted");
        self.dot("denied", 376.0, y - 4.0);
        self.text("quiet", 384.0, y, "denied");
        self.straight("step", (440.0, y - 4.0), (460.0, y - 4.0));
        self.text("quiet", 466.0, y, &format!("admitted in the last {window_s} s"));
        self.straight("limit", (622.0, y - 4.0), (642.0, y - 4.0));
        self.text("quiet", 648.0, y, "limit");
        self.straight("edge", (694.0, y - 10.0), (694.0, y + 2.0));
        self.text("quiet", 700.0, y, "window begins");
    }

    fn lane(&mut self, replay: &Replay, top: f64, window_s: i64) {
        let title = format!(
            r#"<tspan class="name">{}</tspan>  <tspan class="how quiet" dx="8">{}</tspan>"#,
            replay.name, replay.how
        );
        self.text("", LEFT, top, &title);
        let most = replay.most();
        let class = if most as u64 > MAX { "over" } else { "" };
        let most = format!(r#"at most <tspan class="{class}">{most}</tspan> in any {window_s} s"#);
        self.text("most", RIGHT, top, &most);
        self.scale(top);
        for &begun_ms in &replay.begun_ms {
            self.straight("edge", (x(begun_ms), top + 10.0), (x(begun_ms), top + ZERO));
        }
        self.dots(&replay.requests, top + DOTS);
        self.count(replay, top + ZERO);
    }

    fn scale(&mut self, top: f64) {
        let zero = top + ZERO;
        for hits in [0, MAX, 2 * MAX] {
            let y = zero - hits as f64 * PER_HIT;
            self.text("quiet end", LEFT - 6.0, y + 4.0, &hits.to_string());
            self.straight("grid", (LEFT, y), (RIGHT, y));
        }
        for at_ms in (0..=LENGTH_MS).step_by(5_000) {
            self.straight("grid", (x(at_ms), zero), (x(at_ms), zero + 4.0));
            self.text("quiet middle", x(at_ms), zero + 15.0, &format!("{} s", at_ms / 1_000));
        }
    }

    /// A dot for each request, those of a column on top of each other.
    fn dots(&mut self, requests: &[Request], floor: f64) {
        let mut column = None;
        let mut y = floor;
        for request in requests {
            let own = request.at_ms / COLUMN_MS;
            y = if column == Some(own) { y - DOT } else { floor };
            column = Some(own);
            let class = if request.is_admitted { "admitted" } else { "denied" };
            self.dot(class, x(own * COLUMN_MS + COLUMN_MS / 2), y);
        }
    }

    /// How many were admitted lately, as a line of steps; what is above the limit stands out.
    fn count(&mut self, replay: &Replay, zero: f64) {
        let leave = replay.admitted_ms().map(|at_ms| at_ms + window().as_millis());
        let mut changes: Vec<i64> =
            replay.admitted_ms().chain(leave).filter(|&at_ms| at_ms < LENGTH_MS).collect();
        changes.sort_unstable();
        changes.dedup();
        let y = |hits: u64| zero - hits as f64 * PER_HIT;
        let mut step = format!("M{LEFT:.1} {zero:.1}");
        let mut beyond = format!("M{LEFT:.1} {:.1}", y(MAX));
        for at_ms in changes {
            let hits = replay.admitted_lately(at_ms) as u64;
            for (path, hits) in [(&mut step, hits), (&mut beyond, hits.max(MAX))] {
                write!(path, "H{:.1}V{:.1}", x(at_ms), y(hits)).expect("text takes it");
            }
        }
        for path in [&mut step, &mut beyond] {
            write!(path, "H{RIGHT:.1}").expect("text takes it");
        }
        self.line(&format!(r#"<path class="within" d="{step}V{zero:.1}Z"/>"#));
        self.line(&format!(r#"<path class="beyond" d="{beyond}V{:.1}Z"/>"#, y(MAX)));
        self.line(&format!(r#"<path class="step" d="{step}"/>"#));
        self.straight("limit", (LEFT, y(MAX)), (RIGHT, y(MAX)));
    }
}
