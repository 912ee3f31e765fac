//! The busiest keys of a server, asked for on a thread of their own, so that the keyboard is served while the server walks.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use lately::{Span, Timestamp};
use redis::{Value, from_redis_value};

use crate::error::CliError;
use crate::limits::{FILTERED_KEYS, MAX_SERVER_KEYS};
use crate::live::alert;
use crate::live::decisions::Sums;
use crate::live::event::Event;
use crate::live::hits::{LATEST, Ranked, Row, Sort};
use crate::server::{Server, ServerArgs};
use crate::table::printable;

/// What the server is asked for.
pub(crate) struct Asked {
    pub(crate) window: Span,
    pub(crate) sort: Sort,
    /// What the keys begin with.
    pub(crate) prefix: String,
    /// A text that the printed key must contain, ignoring case.
    pub(crate) filter: String,
    /// The most rows; `None` is as many as a server returns.
    pub(crate) rows: Option<usize>,
    /// The steps of each curve. `None`: the hits of the window are enough.
    pub(crate) steps: Option<usize>,
}

/// What it answered. The sums are those of the rows.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The time of the server.
    pub(crate) now: Timestamp,
    pub(crate) window: Span,
    pub(crate) ranked: Ranked,
    /// The most hits in the window that another key can have. `None` if that is not known.
    pub(crate) others_upper: Option<u64>,
    /// For a screen: a line for each alert, and what each named limit has decided.
    pub(crate) alerts: Vec<String>,
    pub(crate) limits: Vec<Sums>,
}

/// Asks on a thread of its own. Each question is answered by an event. After a failure it connects again.
pub(crate) fn ask_from(server: &ServerArgs, events: &SyncSender<Event>) -> SyncSender<Asked> {
    let (sender, questions): (_, Receiver<Asked>) = sync_channel(1);
    let (server, events) = (server.clone(), events.clone());
    thread::spawn(move || {
        let mut connection: Option<Server> = None;
        for asked in questions {
            let connected = connection.take().map_or_else(|| server.connect(), Ok);
            let answered = connected.and_then(|connected| {
                let answer = answer(&connected, &asked)?;
                connection = Some(connected);
                Ok(answer)
            });
            if events.send(Event::Answered(answered)).is_err() {
                return;
            }
        }
    });
    sender
}

fn answer(server: &Server, asked: &Asked) -> Result<Answer, CliError> {
    let (seconds, _): (u64, u64) = server.ask(&redis::cmd("TIME"))?;
    let ranked_by = if asked.sort == Sort::Latest { LATEST } else { asked.window };
    let rows = asked.rows.unwrap_or(MAX_SERVER_KEYS);
    let mut command = redis::cmd("TOP");
    command.arg(if asked.filter.is_empty() { rows } else { FILTERED_KEYS.max(rows) });
    command.arg(ranked_by.to_string());
    if !asked.prefix.is_empty() {
        command.arg("PREFIX").arg(&asked.prefix);
    }
    let mut reply: Vec<Value> = server.ask(command.arg("BOUNDS"))?;
    let unexpected = || CliError::new("TOP", "unexpected answer", "is it a lately server of this version?");
    let others: i64 = reply.pop().and_then(|value| from_redis_value(value).ok()).ok_or_else(unexpected)?;
    let found = reply.into_iter().map(|row| from_redis_value(row).map_err(|_| unexpected()));
    let found = found.collect::<Result<Vec<(Vec<u8>, u64, u64, i64)>, _>>()?;
    let filter = asked.filter.to_lowercase();
    let is_wanted = |key: &[u8]| filter.is_empty() || printable(key).to_lowercase().contains(&filter);
    let mut rows: Vec<Row> = found
        .into_iter()
        .filter(|(key, ..)| is_wanted(key))
        .take(rows)
        .map(|(key, hits, ..)| Row {
            key: key.into(),
            hits,
            latest: hits,
            peak: None,
            denied: 0,
            curve: Vec::new(),
        })
        .collect();
    if let Some(steps) = asked.steps.filter(|_| !rows.is_empty()) {
        add_details(server, asked, steps, &mut rows)?;
    }
    if asked.sort == Sort::Key {
        rows.sort_by(|one, other| one.key.cmp(&other.key));
    }
    // The bound of another order is not one of the window.
    let is_bound = asked.sort != Sort::Latest && asked.filter.is_empty();
    let others_upper = u64::try_from(others).ok().filter(|_| is_bound);
    let (keys, hits) = (rows.len(), rows.iter().map(|row| row.hits).sum());
    let now = Timestamp::from_seconds(seconds).ok_or_else(unexpected)?;
    let (alerts, limits) =
        if asked.steps.is_some() { alerts_and_limits(server)? } else { Default::default() };
    let ranked = Ranked { rows, keys, hits };
    Ok(Answer { now, window: asked.window, ranked, others_upper, alerts, limits })
}

/// Asks for what a screen shows below the keys. A user who may not read it sees none of it.
fn alerts_and_limits(server: &Server) -> Result<(Vec<String>, Vec<Sums>), CliError> {
    let mut commands = redis::pipe();
    commands.cmd("ALERTS").cmd("INFO").arg("limits");
    let mut answers = server.ask_each::<Value>(commands)?.into_iter();
    let mut next = || answers.next()?.ok();
    let alerts = next().and_then(|alerts| from_redis_value::<Vec<Value>>(alerts).ok()).unwrap_or_default();
    let info = next().and_then(|info| from_redis_value::<String>(info).ok()).unwrap_or_default();
    Ok((alerts.into_iter().filter_map(alert::line).collect(), Sums::of_info(&info)))
}

/// Asks for what a screen shows of each key: the hits in both windows, those that limits denied, and the curve.
fn add_details(server: &Server, asked: &Asked, steps: usize, rows: &mut [Row]) -> Result<(), CliError> {
    let (hits_in, ranked_latest) = match asked.sort {
        Sort::Latest => (asked.window, true),
        Sort::Hits | Sort::Key => (LATEST, false),
    };
    let mut command = redis::cmd("MHITS");
    command.arg(hits_in.to_string());
    rows.iter().for_each(|row| _ = command.arg(&*row.key));
    let counts: Vec<u64> = server.ask(&command)?;
    let second_ms = 1_000;
    let most_steps = i64::try_from(steps.max(1)).unwrap_or(i64::MAX);
    let step_ms = (asked.window.as_millis() / second_ms / most_steps + 1) * second_ms;
    let step = Span::from_millis(step_ms).unwrap_or(asked.window);
    let mut series = redis::pipe();
    for row in &*rows {
        series.cmd("SERIES").arg(&*row.key).arg(asked.window.to_string()).arg(step.to_string());
    }
    let mut denied = redis::pipe();
    for row in &*rows {
        denied.cmd("HITS").arg(&*row.key).arg(asked.window.to_string()).arg("DENIED");
    }
    for (row, denied) in rows.iter_mut().zip(server.ask_each::<u64>(denied)?) {
        row.denied = denied.unwrap_or(0);
    }
    // A class with wide panes has no series of such steps: then there is no curve.
    let curves = server.ask_each::<Vec<(Value, u64)>>(series)?;
    for ((row, count), curve) in rows.iter_mut().zip(counts).zip(curves) {
        *(if ranked_latest { &mut row.hits } else { &mut row.latest }) = count;
        let points: Vec<u64> = curve.unwrap_or_default().into_iter().map(|(_, hits)| hits).collect();
        row.curve = points[points.len().saturating_sub(steps)..].to_vec();
    }
    Ok(())
}
