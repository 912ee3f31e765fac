//! The few rows a newcomer should see, and all that were lost: a table that can be put into another document.

use crate::row::Row;
use crate::table::brief;

/// A row is shown when its name begins with one of these; in this order.
const SHOWN: [&str; 29] = [
    "HIT ÷ INCR, redis-benchmark, pipeline 64",
    "HIT ÷ INCR, redis-benchmark, pipeline 16",
    "HIT ÷ INCR, redis-benchmark, pipeline 1",
    "HIT ÷ INCR, lately bench, pipeline 64",
    "HIT ÷ INCR, lately bench, pipeline 16",
    "HIT ÷ INCR, lately bench, pipeline 1",
    "server CPU per HIT",
    "HIT ÷ doing nothing",
    "HIT on one hot key ÷",
    "HITS over 5 min on 1,000 ",
    "HITS over 24 h on 1,000 ",
    "HITS over 7 d on 1,000 ",
    "LIMIT ÷ HIT, pipeline 64",
    "LIMIT ÷ redis ",
    "MLIMIT of 3 keys ÷ LIMIT",
    "LIMIT, all denied ÷ ",
    "CL.THROTTLE ÷ HIT, pipeline 64",
    "server CPU per CL.THROTTLE ÷ ",
    "worst pause",
    "hit, one at a time, 1 M keys",
    "hit, batches of 64, 1 M keys",
    "two threads ÷ one, hits in batches of 64, 1 M keys",
    "bytes per key: ",
    "HIT, durability interval ÷ off, pipeline 64",
    "HIT, durability interval ÷ off, pipeline 1",
    "HIT, durability interval ÷ INCR with an append-only file each second, pipeline 64",
    "p99.9 of HIT while checkpoints are made ÷ off, half ",
    "HIT, durability always",
    "recovery after a kill from ",
];

/// What each of them says, as Markdown. A run that left a section out has no such rows.
pub(crate) fn table(rows: &[Row]) -> String {
    let of = |start: &&str| rows.iter().filter(|row| starts(&row.name, start)).collect::<Vec<&Row>>();
    let shown: Vec<&Row> = SHOWN.iter().flat_map(of).collect();
    let is_shown = |row: &&Row| shown.iter().any(|shown| std::ptr::eq(*shown, *row));
    let lost = rows.iter().filter(|row| !row.holds() && !is_shown(row));
    brief(shown.iter().copied().chain(lost))
}

/// Whether a name begins so. A start that ends in a word is not the beginning of a longer one.
fn starts(name: &str, start: &str) -> bool {
    let rest = name.strip_prefix(start);
    rest.is_some_and(|rest| start.ends_with(' ') || !rest.starts_with(|next: char| next.is_alphanumeric()))
        && !name.contains("live panes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Must;

    #[test]
    fn rows_come_in_their_order_and_lost_ones_too() {
        let row = |name: &str, value: f64, must: Must| Row::new("any", name, value, "×", must);
        let rows = [
            row("hit, one at a time, 1 M keys", 120.0, Must::AtMost(110.0, 80.0)).beside("governor 175|0"),
            row("bytes per key: 1 M keys, one hit", 50.0, Must::AtMost(52.0, 42.0)),
            row("hit, one at a time, 1 M keys with 60 live panes", 1.0, Must::Nothing),
            row("hit, one at a time, 10 M keys", 500.0, Must::AtMost(210.0, 160.0)),
            row("HIT ÷ INCR, redis-benchmark, pipeline 16", 1.4, Must::AtLeast(1.3, 1.45)),
            row("HIT ÷ INCR, redis-benchmark, pipeline 1", 1.0, Must::AtLeast(0.93, 1.05)),
            row("redis hash of seconds, script, pipeline 1", 1.0, Must::Nothing),
        ];
        assert_eq!(
            table(&rows),
            "| figure | value | must | | beside it in the same run |\n\
             |---|---:|---:|---|---|\n\
             | HIT ÷ INCR, redis-benchmark, pipeline 16 | 1.4 × | ≥ 1.3 | holds |  |\n\
             | HIT ÷ INCR, redis-benchmark, pipeline 1 | 1 × | ≥ 0.93 | holds |  |\n\
             | hit, one at a time, 1 M keys | 120 × | ≤ 110 | MISSED | governor 175\\|0 |\n\
             | bytes per key: 1 M keys, one hit | 50 × | ≤ 52 | holds |  |\n\
             | hit, one at a time, 10 M keys | 500 × | ≤ 210 | MISSED |  |\n"
        );
    }

    #[test]
    fn a_start_is_whole_words() {
        assert!(starts("HIT ÷ INCR, lately bench, pipeline 1", SHOWN[5]));
        assert!(!starts("HIT ÷ INCR, lately bench, pipeline 16", SHOWN[5]));
        assert!(starts("HITS over 7 d on 1,000 full keys ÷ HIT on 1 M keys, pipeline 64", SHOWN[11]));
        assert!(!starts("HITS over 5 min on the same ÷ HIT on 1 M keys, pipeline 64", SHOWN[9]));
        assert!(!starts("redis INCR, pipeline 1", SHOWN[5]));
    }
}
