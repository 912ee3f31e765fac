//! Alerts over sockets: what subscribers and HTTP clients get from a running server.

use std::sync::Arc;
use std::time::Duration;

use lately::Timestamp;
use lately_server::{Config, Storage};
use serde_json::{Value, json};

use crate::common::{NOW_S, Running, Wire, config, standing_clock};
use crate::interfaces::{Http, resp};

const DDOS: &str = "[[alert]]\nname = \"ddos\"\nmatch = \"endpoint:*\"\nabove = 10\nwindow = \"10s\"\n";

/// A config of this text.
fn with(text: &str) -> Config {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    std::fs::write(&path, text).expect("room");
    let Config { alerts, .. } = Config::load(&path).expect("valid");
    Config { alerts, ..config() }
}

/// The next message of a subscriber.
fn message(wire: &mut Wire, kind: char) -> Value {
    wire.expect(format!("{kind}3\r\n$7\r\nmessage\r\n$13\r\nlately:alerts\r\n"));
    let length = wire.line();
    let text = wire.take(length[1..].parse::<usize>().expect("a length") + 2);
    serde_json::from_slice(&text[..text.len() - 2]).expect("JSON")
}

const SUBSCRIBED: &str = "3\r\n$9\r\nsubscribe\r\n$13\r\nlately:alerts\r\n:1\r\n";

#[test]
fn subscribers_get_an_alert_with_its_keys_when_it_starts_and_ends() {
    let clock = standing_clock();
    let server = Running::with(with(DDOS), Arc::<lately::ManualClock>::clone(&clock));
    let mut wires = [server.connect(), server.connect()];
    wires[0].ask("SUBSCRIBE lately:alerts\r\n", format!("*{SUBSCRIBED}"));
    wires[1].send("HELLO 3\r\n");
    wires[1].reply(&mut Vec::new());
    wires[1].ask("SUBSCRIBE lately:alerts\r\n", format!(">{SUBSCRIBED}"));
    let (mut client, mut http) = (server.connect(), Http::connect(&server));
    resp(&mut client, "MHIT endpoint:a 9 endpoint:b 3 other 50").expect("counted");
    let data = json!({
        "name": "ddos", "state": "firing", "match": "endpoint:*", "kind": "above", "threshold": 10, "window": "10s", "hits": 12,
        "baseline": null, "peak": 12, "since": NOW_S, "ended_at": null,
        "keys": [{"key": "endpoint:a", "hits": 9, "share": 0.75}, {"key": "endpoint:b", "hits": 3, "share": 0.25}],
    });
    for (wire, kind) in wires.iter_mut().zip(['*', '>']) {
        assert_eq!(
            message(wire, kind),
            json!({"type": "alert.started", "timestamp": "2023-11-14T22:14:00Z", "data": data})
        );
    }
    let rule = |state: &str, hits: u64| {
        json!({
            "name": "ddos", "state": state, "match": "endpoint:*", "kind": "above", "threshold": 10, "window": "10s", "hits": hits,
            "baseline": null, "starts": 1,
        })
    };
    let answer = json!({"as_of": NOW_S, "alerts": [data], "ended": [], "rules": [rule("firing", 12)]});
    assert_eq!(http.ask("GET /v1/alerts"), (200, answer));
    let Ok(Value::Array(alerts)) = resp(&mut client, "ALERTS") else { panic!("an array") };
    assert_eq!(alerts[0][1], json!("ddos"));
    assert_eq!(alerts[0][19], json!([["endpoint:a", 9, "0.75"], ["endpoint:b", 3, "0.25"]]));
    clock.set(Timestamp::from_seconds(NOW_S + 20).expect("a time"));
    for (wire, kind) in wires.iter_mut().zip(['*', '>']) {
        let ended = message(wire, kind);
        assert_eq!((&ended["type"], &ended["data"]["ended_at"]), (&json!("alert.ended"), &json!(NOW_S + 20)));
        assert_eq!((&ended["data"]["hits"], &ended["data"]["peak"]), (&json!(0), &json!(12)));
    }
    let mut past = data.clone();
    (past["state"], past["hits"], past["ended_at"]) = (json!("ended"), json!(0), json!(NOW_S + 20));
    let answer = json!({"as_of": NOW_S + 20, "alerts": [], "ended": [past], "rules": [rule("quiet", 0)]});
    assert_eq!(http.ask("GET /v1/alerts"), (200, answer));
    // A subscriber of protocol 2 still answers, and then takes requests again.
    wires[0].ask("PING\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    wires[0].ask("UNSUBSCRIBE\r\n", "*3\r\n$11\r\nunsubscribe\r\n$13\r\nlately:alerts\r\n:0\r\n");
    wires[0].ask("HIT endpoint:z\r\n", ":1\r\n");
    let (_, _, metrics) = crate::http::request(&server, "GET", "/metrics");
    for line in ["lately_alert_firing{alert=\"ddos\"} 0\n", "lately_alert_starts_total{alert=\"ddos\"} 1\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    server.stopper.stop();
    server.ended();
}

/// A client of any kind gets an error when it would change a total.
#[test]
fn a_total_is_refused_to_clients() {
    let server = Running::with(with(DDOS), standing_clock());
    let (mut client, mut http) = (server.connect(), Http::connect(&server));
    resp(&mut client, "HIT endpoint:a 5").expect("counted");
    let why = "the key is reserved: those that begin with a zero byte and 'alert:' have the totals of alerts: take another one";
    for line in ["HIT", "HITS", "DEL"] {
        let line = format!("{line} \"\\x00alert:endpoint:*\"");
        let expected = if line.starts_with("HITS") { Ok(json!(5)) } else { Err(format!("ERR {why}")) };
        assert_eq!(resp(&mut client, &line), expected, "{line}");
    }
    let sent = format!("INGEST log 0 9 endpoint:a 1 {NOW_S} \"\\x00alert:endpoint:*\" 1 {NOW_S}");
    // The other hits of a log count.
    assert_eq!(resp(&mut client, &sent), Ok(json!([9, 1, 1])));
    let key = "%00alert:endpoint:*";
    for path in [format!("POST /v1/hit/{key}"), format!("POST /v1/limit/{key}?max=1&window=1m")] {
        let (status, problem) = http.ask(&path);
        assert_eq!((status, &problem["detail"]), (400, &json!(why)), "{path}");
    }
    let (status, problem) = http.ask(&format!("DELETE /v1/key/{key}"));
    assert_eq!((status, &problem["detail"]), (400, &json!(why)));
    assert_eq!(resp(&mut client, "HITS \"\\x00alert:endpoint:*\""), Ok(json!(6)));
}

/// A subscriber waits, and sends nothing for long.
#[test]
fn a_subscriber_is_not_idle() {
    let config = Config { idle_timeout: Some(Duration::from_millis(1)), ..with(DDOS) };
    let server = Running::with(config, standing_clock());
    let mut idle = server.connect();
    idle.ask("PING\r\n", "+PONG\r\n");
    let mut subscriber = server.connect();
    subscriber.ask("SUBSCRIBE lately:alerts\r\n", format!("*{SUBSCRIBED}"));
    idle.expect_rest("");
    server.connect().send("HIT endpoint:a 11\r\n");
    assert_eq!(message(&mut subscriber, '*')["type"], "alert.started");
}

/// A total is in the journal with its hits: after a restart it has what was counted before.
#[test]
fn a_total_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = Storage { path: folder.path().join("data"), ..Storage::default() };
    let config = || Config { storage: Some(storage.clone()), ..with(DDOS) };
    let server = Running::with(config(), standing_clock());
    loaded(&server);
    resp(&mut server.connect(), "MHIT endpoint:a 6 endpoint:b 4").expect("counted");
    server.stopper.stop();
    server.ended();
    let server = Running::with(config(), standing_clock());
    loaded(&server);
    let mut client = server.connect();
    assert_eq!(resp(&mut client, "DBSIZE"), Ok(json!(2)));
    let mut subscriber = server.connect();
    subscriber.ask("SUBSCRIBE lately:alerts\r\n", format!("*{SUBSCRIBED}"));
    resp(&mut client, "HIT endpoint:a").expect("counted");
    let started = message(&mut subscriber, '*');
    assert_eq!(started["data"]["hits"], json!(11));
    assert_eq!(started["data"]["keys"][0], json!({"key": "endpoint:a", "hits": 7, "share": 7.0 / 11.0}));
}

/// Waits until the counts are loaded.
fn loaded(server: &Running) {
    while crate::http::request(server, "GET", "/readyz").0 != 200 {}
}

#[test]
fn a_reload_adds_changes_and_removes_alerts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    let write =
        |text: &str| std::fs::write(&path, format!("[storage]\ndurability = \"off\"\n{text}")).expect("room");
    write("");
    let Config { source, .. } = Config::load(&path).expect("valid");
    let server = Running::with(Config { source, ..config() }, standing_clock());
    let mut subscriber = server.connect();
    subscriber.ask("SUBSCRIBE lately:alerts\r\n", format!("*{SUBSCRIBED}"));
    let mut client = server.connect();
    resp(&mut client, "HIT endpoint:a 50").expect("counted");
    write(DDOS);
    server.block_on(server.reloader.reloaded());
    // A new rule begins with a total of 0.
    resp(&mut client, "HIT endpoint:a 11").expect("counted");
    let started = message(&mut subscriber, '*');
    assert_eq!((&started["data"]["hits"], &started["type"]), (&json!(11), &json!("alert.started")));
    // A mistake changes nothing.
    write(
        "[[alert]]\nname = \"ddos\"\nmatch = \"endpoint:*\"\nabove = 10\nwindow = \"10s\"\nwebhook = \"here\"\n",
    );
    server.block_on(server.reloader.reloaded());
    assert_eq!(resp(&mut client, "ALERTS").map(|alerts| alerts.as_array().map(Vec::len)), Ok(Some(1)));
    // Another threshold: the alert of the old one ends, and the total stays.
    write(&DDOS.replace("10\n", "60\n"));
    server.block_on(server.reloader.reloaded());
    assert_eq!(message(&mut subscriber, '*')["type"], json!("alert.ended"));
    resp(&mut client, "HIT endpoint:b 50").expect("counted");
    assert_eq!(message(&mut subscriber, '*')["data"]["hits"], json!(61));
    write("");
    server.block_on(server.reloader.reloaded());
    assert_eq!(message(&mut subscriber, '*')["type"], json!("alert.ended"));
    assert_eq!(resp(&mut client, "ALERTS"), Ok(json!([])));
    assert_eq!(resp(&mut client, "DBSIZE"), Ok(json!(2)));
}
