//! `ALERTS`, `SUBSCRIBE` and `UNSUBSCRIBE`.

use super::*;
use crate::limits::MAX_UNREAD_ALERTS;
use crate::protocol::resp::session::alerts::Unsubscribed;
use crate::service::notice::Notice;

const ALERTS: &str = "[[alert]]\nname = \"many\"\nmatch = \"k:*\"\nabove = 2\nwindow = \"10s\"\n\
    [[alert]]\nname = \"odd\"\nmatch = \"s\"\nspike = 2.5\nwindow = \"10s\"\nfor = \"3s\"\nleast = 5\n";

fn talk() -> Talk {
    let Config { alerts, .. } = Config::parse(ALERTS).expect("valid");
    Talk::with(Config { alerts, ..Config::default() })
}

impl Talk {
    /// Evaluates the alerts, and publishes those that start or end.
    fn evaluate(&self) -> Vec<Notice> {
        let changed = self.service.evaluate_alerts();
        changed.iter().cloned().for_each(|notice| self.service.publish_alert(notice));
        changed
    }

    fn messages(&mut self) -> Result<String, Unsubscribed> {
        let mut out = Vec::new();
        self.session.messages(&mut out).map(|()| barred(&out))
    }
}

#[test]
fn alerts_returns_those_that_are_active() {
    let mut talk = talk();
    talk.check("ALERTS", "*0|");
    for window in 0..6 {
        talk.clock.set(seconds(NOW_S + 10 * window));
        talk.ask("HIT s 4");
        talk.evaluate();
    }
    talk.check("MHIT k:1 3 s 30", "*2|:3|:54|");
    talk.evaluate();
    let many = "*20|$4|name|$4|many|$5|state|$6|firing|$5|match|$3|k:*|$4|kind|$5|above|$9|threshold|:2|$6|window|$3|10s|\
        $4|hits|:3|$8|baseline|$-1|$5|since|$10|1700000090|$4|keys|*0|";
    let odd = "*20|$4|name|$3|odd|$5|state|$7|pending|$5|match|$1|s|$4|kind|$5|spike|$9|threshold|$3|2.5|$6|window|$3|10s|\
        $4|hits|:34|$8|baseline|$1|4|$5|since|$10|1700000090|$4|keys|*0|";
    talk.check("ALERTS", &format!("*2|{many}{odd}"));
    assert!(talk.info("alert_many") == "state=firing,hits=3,starts=1", "{}", talk.info("alert_many"));
    assert_eq!(talk.info("alert_odd"), "state=pending,hits=34,starts=0");
    let mut third = talk.twin();
    assert!(third.ask("HELLO 3").starts_with("%7|"));
    assert!(third.ask("ALERTS").starts_with("*2|%10|$4|name|$4|many|"));
}

#[test]
fn a_subscriber_gets_what_starts_and_ends() {
    let mut talk = talk();
    talk.check_all(&[
        ("UNSUBSCRIBE", "*3|$11|unsubscribe|$-1|:0|"),
        ("SUBSCRIBE lately:alerts", "*3|$9|subscribe|$13|lately:alerts|:1|"),
        ("SUBSCRIBE lately:alerts lately:alerts", "*3|$9|subscribe|$13|lately:alerts|:1|*3|$9|subscribe|$13|lately:alerts|:1|"),
        ("PING", "*2|$4|pong|$0||"),
        ("PING hello", "*2|$4|pong|$5|hello|"),
        (
            "HIT k:1",
            "-ERR Can't execute 'hit': only (P\\|S)SUBSCRIBE / (P\\|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context|",
        ),
    ]);
    assert_eq!(talk.messages().as_deref(), Ok(""));
    let mut other = talk.twin();
    other.ask("HELLO 3");
    other.check("SUBSCRIBE lately:alerts", ">3|$9|subscribe|$13|lately:alerts|:1|");
    // A client of protocol 3 may send everything meanwhile.
    other.check_all(&[("HIT k:1 3", ":3|"), ("PING", "+PONG|")]);
    let mut normal = talk.twin();
    let subscribed = normal.ask("CLIENT LIST TYPE pubsub");
    assert_eq!(subscribed.matches(" flags=P db=0 sub=1 psub=0 ").count(), 2, "{subscribed}");
    let others = normal.ask("CLIENT LIST TYPE normal");
    assert_eq!(
        (others.matches(" flags=N db=0 sub=0 psub=0 ").count(), others.matches("id=").count()),
        (1, 1),
        "{others}"
    );
    let started = talk.evaluate();
    let event = started[0].event();
    assert_eq!(talk.messages(), Ok(format!("*3|$7|message|$13|lately:alerts|{}", bulk(&event))));
    assert_eq!(other.messages(), Ok(format!(">3|$7|message|$13|lately:alerts|{}", bulk(&event))));
    assert_eq!(talk.messages().as_deref(), Ok(""));
    let event: serde_json::Value = serde_json::from_str(&event).expect("JSON");
    assert_eq!(event["type"], "alert.started");
    assert_eq!(event["timestamp"], "2023-11-14T22:14:00Z");
    let data = serde_json::json!({
        "name": "many", "state": "firing", "match": "k:*", "kind": "above", "threshold": 2, "window": "10s", "hits": 3,
        "baseline": null, "peak": 3, "since": NOW_S, "ended_at": null, "keys": [],
    });
    assert_eq!(event["data"], data);
    talk.clock.set(seconds(NOW_S + 10));
    talk.check("UNSUBSCRIBE lately:alerts", "*3|$11|unsubscribe|$13|lately:alerts|:0|");
    talk.evaluate();
    assert_eq!(talk.messages().as_deref(), Ok(""));
    assert!(
        other.messages().is_ok_and(|message| message.contains("\"type\":\"alert.ended\"")
            && message.contains("\"ended_at\":1700000050"))
    );
    other.check("RESET", "+RESET|");
    assert!(!other.session.is_subscribed());
    talk.twin().check_all(&[
        ("SUBSCRIBE news", "-ERR unknown channel 'news': the one channel is lately:alerts|"),
        ("SUBSCRIBE", "-ERR wrong number of arguments for 'subscribe' command|"),
        (
            "PSUBSCRIBE *",
            "-ERR unknown command 'PSUBSCRIBE', with args beginning with: '*' (the one channel is that of alerts: use SUBSCRIBE lately:alerts)|",
        ),
        ("MULTI", "+OK|"),
        ("SUBSCRIBE lately:alerts", "-ERR Command not allowed inside a transaction|"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
    ]);
}

#[test]
fn a_subscriber_that_is_too_far_behind_is_cut_off() {
    let mut talk = talk();
    talk.ask("SUBSCRIBE lately:alerts");
    let mut other = talk.twin();
    other.ask("HIT k:1 3");
    let notice = talk.evaluate().remove(0);
    (1..MAX_UNREAD_ALERTS).for_each(|_| talk.service.publish_alert(notice.clone()));
    assert!(talk.messages().is_ok_and(|messages| messages.matches("|message|").count() == MAX_UNREAD_ALERTS));
    (0..=MAX_UNREAD_ALERTS).for_each(|_| talk.service.publish_alert(notice.clone()));
    assert_eq!(talk.messages(), Err(Unsubscribed));
}
