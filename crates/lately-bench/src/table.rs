//! Rows as tables for a terminal.

use std::fmt::Write;

use crate::row::{Must, Row};

const HEADER: [&str; 6] = ["figure", "value", "must", "aim", "verdict", "beside it in the same run"];

/// All rows, as one table after the other, each with its name.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.table) {
            names.push(row.table);
        }
    }
    for name in names {
        _ = writeln!(text, "\n{name}\n");
        let cells: Vec<[String; 6]> = rows.iter().filter(|row| row.table == name).map(cells).collect();
        table(&mut text, &cells);
    }
    text
}

/// A line with the number of bounds that were met and missed.
pub(crate) fn summary(rows: &[Row]) -> String {
    let bound = rows.iter().filter(|row| row.must != Must::Nothing).count();
    let missed = rows.iter().filter(|row| !row.holds()).count();
    let by_ratio = match rows.iter().filter(|row| row.holds_by_ratio()).count() {
        0 => String::new(),
        count => format!(", {count} of them by ratio"),
    };
    format!(
        "{} of {bound} musts hold{by_ratio}, {missed} missed; {} rows for comparison",
        bound - missed,
        rows.len() - bound
    )
}

/// The rows that miss their bound, a line each.
pub(crate) fn missed(rows: &[Row]) -> String {
    let missed = rows.iter().filter(|row| !row.holds());
    missed
        .map(|row| {
            let [name, value, must, ..] = cells(row);
            format!("- missed: {name}: {value}, must be {must}\n")
        })
        .collect()
}

fn cells(row: &Row) -> [String; 6] {
    let (sign, must, aim) = match row.must {
        Must::AtLeast(must, aim) => ("≥", Some(must), Some(aim).filter(|&aim| aim > must)),
        Must::AtMost(must, aim) => ("≤", Some(must), Some(aim).filter(|&aim| aim < must)),
        Must::Nothing => ("", None, None),
    };
    let bound =
        |bound: Option<f64>| bound.map_or_else(String::new, |bound| format!("{sign} {}", number(bound)));
    let value =
        if row.value.is_nan() { "none".to_owned() } else { format!("{} {}", number(row.value), row.unit) };
    [row.name.clone(), value, bound(must), bound(aim), verdict(row).to_owned(), row.note.clone()]
}

/// `MISSED` makes the run fail. An aim that is not beyond the bound does not count.
pub(crate) fn verdict(row: &Row) -> &'static str {
    let aim = match row.must {
        Must::Nothing => return "",
        Must::AtLeast(must, aim) => aim > must && row.value >= aim,
        Must::AtMost(must, aim) => aim < must && row.value <= aim,
    };
    match (row.holds(), aim) {
        (false, _) => "MISSED",
        (true, false) if row.holds_by_ratio() => "holds by ratio",
        (true, false) => "holds",
        (true, true) => "aim reached",
    }
}

fn table(text: &mut String, rows: &[[String; 6]]) {
    let header = HEADER.map(str::to_owned);
    let width = |column: usize| {
        let cells = rows.iter().chain([&header]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    for row in [&header].into_iter().chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            _ = match column {
                1..=3 => write!(line, "{cell:>width$}  "),
                5 => write!(line, "{cell}"),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        _ = writeln!(text, "{}", line.trim_end());
    }
}

/// The value as [`number`] shows it. `None` if there is none.
pub(crate) fn rounded(value: f64) -> Option<f64> {
    number(value).replace(',', "").parse().ok()
}

/// Three significant digits, and commas between thousands.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) =
        plain.split_once('.').map_or((plain.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > 0 && left.is_multiple_of(3) && !(at == 1 && whole.starts_with('-')) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction.trim_end_matches('0') {
        "" => grouped,
        fraction => format!("{grouped}.{fraction}"),
    }
}

/// Several numbers, separated by spaces.
pub(crate) fn numbers(values: &[f64]) -> String {
    values.iter().map(|value| number(*value)).collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Rival;

    fn rows() -> Vec<Row> {
        vec![
            Row::new("server", "HIT ÷ INCR", 2.5, "×", Must::AtLeast(2.4, 3.0)).note("Redis 1.15 M/s"),
            Row::new("server", "worst pause", 1.5, "ms", Must::AtMost(1.0, 0.3)),
            Row::new("memory", "Redis ZSET", 191.4, "bytes", Must::Nothing),
        ]
    }

    #[test]
    fn numbers_are_readable() {
        let check = |value: f64, expected: &str| assert_eq!(number(value), expected);
        check(1_234_567.8, "1,234,568");
        check(-123_456.0, "-123,456");
        check(999.6, "1,000");
        check(42.04, "42");
        check(2.5, "2.5");
        check(0.0421, "0.042");
        check(0.0, "0");
        check(f64::NAN, "none");
        let check = |value: f64, expected: Option<f64>| assert_eq!(rounded(value), expected);
        check(1_234_567.8, Some(1_234_568.0));
        check(0.0421, Some(0.042));
        check(f64::NAN, None);
    }

    #[test]
    fn rows_stand_under_their_tables() {
        let text = render(&rows());
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "server");
        assert_eq!(lines[1], "figure        value   must    aim  verdict  beside it in the same run");
        assert_eq!(lines[2], "HIT ÷ INCR    2.5 ×  ≥ 2.4    ≥ 3  holds    Redis 1.15 M/s");
        assert_eq!(lines[3], "worst pause  1.5 ms    ≤ 1  ≤ 0.3  MISSED");
        assert_eq!(lines[4], "memory");
        assert_eq!(summary(&rows()), "1 of 2 musts hold, 1 missed; 1 rows for comparison");
        assert_eq!(missed(&rows()), "- missed: worst pause: 1.5 ms, must be ≤ 1\n");
        let rival = Rival { name: "doing nothing", here: 4.0, there: 2.0 };
        let slower = rows().into_iter().map(|row| row.by(Some(rival))).collect::<Vec<Row>>();
        assert_eq!(
            summary(&slower),
            "2 of 2 musts hold, 1 of them by ratio, 0 missed; 1 rows for comparison"
        );
        assert!(render(&slower).contains("≤ 0.3  holds by ratio"));
    }
}
