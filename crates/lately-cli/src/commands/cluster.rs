//! `lately cluster`: the nodes that count together.

use std::io::{self, Write};

use clap::Args;
use lately::Timestamp;
use serde_json::Value;

use crate::error::{CliError, Outcome};
use crate::http::text_of;
use crate::output;
use crate::server::ServerArgs;
use crate::table::{self, harmless, harmless_json};

/// Print the nodes that a server counts together with, a row for each.
///
/// UNSENT is the number of keys with counts that the other nodes do not have yet. STALENESS_MS is how
/// long ago the node exchanged counts, LAG_MS the age of the oldest hits that it may not have sent. STATE is ok, or degraded and why. On a Redis Cluster, a second
/// table has its servers and their slots.
#[derive(Args)]
pub(crate) struct Cluster {
    /// Print one object, as GET /v1/cluster has it.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,

    /// Address of the server's HTTP listener, which has the list [default: as the server reports].
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
}

pub(crate) fn run(cluster: &Cluster) -> Result<Outcome, CliError> {
    let address = cluster.server.address();
    let text = text_of(cluster.server.http(cluster.http.as_deref())?.get("/v1/cluster")?).unwrap_or_default();
    let answer = serde_json::from_str::<Value>(&text).ok().filter(|answer| answer["nodes"].is_array());
    let answer = answer.ok_or_else(|| {
        CliError::new(&address, "its answer cannot be understood", "is it a lately server?")
    })?;
    output::data(|out| {
        if cluster.json {
            writeln!(out, "{}", harmless_json(text.trim_end()))
        } else {
            write_table(out, &answer)
        }
    })?;
    if let Some(why) = answer["list_error"].as_str() {
        output::message(&format!("hint: the other nodes are not known: {why}"));
    }
    Ok(Outcome::Done)
}

fn write_table(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => harmless(text),
        Value::Null => "-".to_owned(),
        number => number.to_string(),
    };
    // To the second, as a clock shows it.
    let time = |value: &Value| {
        let seconds = value.as_f64().map(f64::floor).and_then(|seconds| seconds.to_string().parse().ok());
        seconds.map_or_else(|| text(value), |at: Timestamp| table::utc(at))
    };
    writeln!(out, "engine  {}", text(&answer["engine"]))?;
    writeln!(out, "asked   {}", text(&answer["node"]))?;
    let upstream = &answer["upstream"];
    if upstream.is_object() {
        let state = upstream["degraded"].as_str().map_or("ok".to_owned(), |why| {
            let since = match &upstream["away_since"] {
                Value::Null => String::new(),
                since => format!(" since {}", time(since)),
            };
            format!("degraded{since}: {}", harmless(why))
        });
        writeln!(out, "upstream  {}", text(&upstream["engine"]))?;
        writeln!(out, "  aggregator      {}", text(&upstream["aggregator"]))?;
        writeln!(out, "  staleness_ms    {}", text(&upstream["staleness_ms"]))?;
        writeln!(out, "  waiting_blocks  {}", text(&upstream["waiting_blocks"]))?;
        writeln!(out, "  state           {state}")?;
    }
    writeln!(out)?;
    let nodes = answer["nodes"].as_array().into_iter().flatten();
    let rows = nodes.map(|node| {
        let state =
            node["degraded"].as_str().map_or("ok".to_owned(), |why| format!("degraded: {}", harmless(why)));
        [
            text(&node["node"]),
            time(&node["last_seen"]),
            text(&node["staleness_ms"]),
            text(&node["lag_ms"]),
            text(&node["unsent_keys"]),
            text(&node["version"]),
            text(&node["origin"]),
            state,
        ]
    });
    let header = ["NODE", "LAST_SEEN", "STALENESS_MS", "LAG_MS", "UNSENT", "VERSION", "ORIGIN", "STATE"];
    table::write(out, header, &rows.collect::<Vec<_>>())?;
    let servers: Vec<_> = answer["engine_servers"].as_array().into_iter().flatten().collect();
    // A single server has all slots.
    if servers.len() < 2 {
        return Ok(());
    }
    let slots = |server: &Value| {
        let ranges = server["slots"].as_array().into_iter().flatten();
        ranges.map(text).collect::<Vec<_>>().join(" ")
    };
    let rows = servers.iter().map(|server| [text(&server["server"]), slots(server)]);
    writeln!(out)?;
    table::write(out, ["ENGINE_SERVER", "SLOTS"], &rows.collect::<Vec<_>>())
}
