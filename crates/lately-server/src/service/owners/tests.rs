//! What travels between nodes, and whom a node decides for.

use lately::milliseconds;
use proptest::prelude::*;

use super::wire::Instead;
use super::*;

fn config(node: &str, owners: &[&str]) -> ClusterConfig {
    let owners =
        owners.iter().zip(7_000..).map(|(name, port)| ((*name).to_owned(), format!("127.0.0.1:{port}")));
    let config = ClusterConfig::new(node, &["redis://127.0.0.1:1"]).expect("valid");
    config.with_owners(owners.collect()).expect("valid")
}

fn owners(node: &str, names: &[&str]) -> Owners {
    Owners::new(&config(node, names)).expect("there are some")
}

#[test]
fn all_nodes_agree_on_the_owner_of_a_key() {
    let names = ["eu-1", "eu-2", "us-1"];
    let all = names.map(|name| owners(name, &names));
    assert!(all.iter().all(|one| one.hash == all[0].hash));
    for key in (0..1_000).map(|key| format!("k{key}")) {
        let named = Nodes::new(names).of(key.as_bytes()).copied();
        for (one, name) in all.iter().zip(names) {
            let owner = one.link(key.as_bytes()).map_or(name, |link| &link.node);
            assert_eq!(Some(owner), named, "{key}");
        }
    }
}

#[test]
fn a_node_decides_only_for_nodes_with_the_same_owners() {
    let one = owners("a", &["a", "b"]);
    let request = |owner: &str, other: &Owners| DecideRequest {
        protocol: PROTOCOL,
        owner: owner.to_owned(),
        owners: other.hash,
        asks: Vec::new(),
    };
    let other = owners("b", &["a", "b"]);
    assert_eq!(one.check(&request("a", &other)), Ok(()));
    assert_eq!(one.check(&request("b", &other)), Err("the node there is a".to_owned()));
    for names in [&["a", "b", "c"][..], &["a", "bc"], &["ab", "b", "a"]] {
        let other = owners("a", names);
        let refused = one.check(&request("a", &other)).expect_err("other owners");
        assert!(refused.starts_with("its config has other owners"), "{refused}");
    }
    let newer = DecideRequest { protocol: PROTOCOL + 1, ..request("a", &other) };
    assert!(one.check(&newer).expect_err("another version").contains("version 2"));
}

fn any_span() -> impl Strategy<Value = lately::Span> {
    (1..=1_000_000_000_000_u64).prop_map(milliseconds)
}

fn any_decided() -> impl Strategy<Value = Decided> {
    let retry = prop_oneof![Just(Retry::Now), Just(Retry::Never), any_span().prop_map(Retry::After)];
    let spans = (prop::option::of(any_span()), any_span(), prop::option::of(any_span()));
    (any::<u64>(), any::<i64>(), retry, spans).prop_map(
        |(max, remaining, retry, (reset_after, window, more_after))| Decided {
            decision: Decision { max, remaining, retry, reset_after },
            window,
            more_after,
        },
    )
}

proptest! {
    /// What a node reads of an answer is what the owner decided.
    #[test]
    fn a_decision_arrives_as_it_was(decided in any_decided()) {
        let read = Answer::of(&decided).decided().expect("it is one");
        prop_assert_eq!(read.decision, decided.decision);
        prop_assert_eq!((read.window, read.more_after), (decided.window, decided.more_after));
    }

    /// An owner is asked what the client has asked.
    #[test]
    fn a_request_arrives_as_it_was(
        key in prop::collection::vec(any::<u8>(), 0..20),
        (cost, is_peek, is_spent) in (0..=i64::MAX, any::<bool>(), any::<bool>()),
        at in prop::option::of(0..9_000_000_000_000_i64),
        address in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        instead in prop::option::of((any::<u64>(), any_span())),
    ) {
        let request = NamedRequest {
            key: &key,
            name: b"login",
            cost,
            at: at.and_then(Timestamp::from_millis),
            is_peek,
            address: address.as_deref(),
            instead,
            is_spent,
            is_exempt: false,
        };
        let ask = Ask::new(&request, true);
        let read = ask.request().expect("valid");
        prop_assert!(Ask::new(&read, true) == ask && read.at == request.at && read.instead == instead);
    }

    #[test]
    fn hits_arrive_as_they_were(
        key in prop::collection::vec(any::<u8>(), 1..20),
        weight in any::<u64>(),
        at in prop::option::of(0..9_000_000_000_000_i64),
        id in prop::collection::vec(any::<u8>(), 1..20),
        member in prop::option::of(prop::collection::vec(any::<u8>(), 1..20)),
    ) {
        let at = at.and_then(Timestamp::from_millis);
        let ask = Ask::of_hits(&IdHits { key: &key, weight, at, id: &id, member: member.as_deref() });
        let bytes = prost::Message::encode_to_vec(&ask);
        let read = <Ask as prost::Message>::decode(&*bytes).expect("it is one");
        prop_assert_eq!((&read, read.at()), (&ask, Some(at)));
        let hits = read.hits.expect("it has some");
        prop_assert_eq!((hits.weight, hits.id, hits.member), (weight, id, member));
    }

    /// Any message of another node is a decision or an error.
    #[test]
    fn any_message_is_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(answer) = <Answer as prost::Message>::decode(&*bytes) {
            let _ = answer.decided();
        }
        if let Ok(ask) = <Ask as prost::Message>::decode(&*bytes) {
            let _ = ask.request();
        }
    }
}

#[test]
fn spans_that_are_none_are_refused() {
    let ask = |instead| Ask { instead: Some(instead), ..Ask::default() };
    assert!(ask(Instead { max: 1, window_ms: 0 }).request().is_none());
    assert!(ask(Instead { max: 1, window_ms: u64::MAX }).request().is_none());
    assert!(Answer { retry_ms: Some(u64::MAX), window_ms: 1, ..Answer::default() }.decided().is_none());
    assert!(Answer { reset_ms: Some(0), window_ms: 1, ..Answer::default() }.decided().is_none());
}
