//! gRPC, by the client of tonic.

use std::str::FromStr;

use futures_util::StreamExt;
use lately::{Pattern, Settings, minutes};
use lately_server::Config;
use lately_server::config::RuleFolder;
use lately_server::limits::{DRAIN_TIMEOUT, GRPC_HIT_STREAM_PART, LEAST_GRPC_CALLS};
use prost::Message;
use test_support::until;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::common::{NOW_S, Running, config, standing_clock};
use crate::users::{folder, start, write_config};
use messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use messages::envoy::service::ratelimit::v3::rate_limit_response::Code as Answer;
use messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use messages::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use messages::lately::v1::hit_stream_response::Result as Streamed;
use messages::lately::v1::limit_request::{Given, Limit};
use messages::lately::v1::{
    HitRequest, HitResponse, HitStreamResponse, HitsRequest, HitsResponse, LimitRequest, LimitResponse,
    UniqueRequest, UniqueResponse,
};

#[expect(unreachable_pub, reason = "it is generated")]
pub(crate) mod messages {
    include!("../../src/protocol/grpc/generated/packages.rs");
}

const HIT: &str = "/lately.v1.Lately/Hit";
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const LIMITS: &str = r#"
    [[limit]]
    name = "address"
    domain = "edge"
    descriptors = { remote_address = "*" }
    max = 3
    window = "1m"

    [[limit]]
    name = "admin"
    domain = "edge"
    descriptors = { path = "/admin" }
    max = 1
    window = "1h"

    [[limit]]
    name = "path"
    domain = "edge"
    descriptors = { path = "/a*" }
    max = 100
    window = "10s"

    [[limit]]
    name = "shadow"
    domain = "edge"
    descriptors = { user = "*", path = "*" }
    max = 1
    window = "1s"
    shadow = true
"#;

fn with_limits(text: &str) -> Running {
    with_limits_and(text, None)
}

/// A server with the limits of a config, and with rules of envoyproxy/ratelimit.
pub(crate) fn with_limits_and(text: &str, rule_folder: Option<RuleFolder>) -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lately.toml");
    std::fs::write(&path, text).expect("room");
    let loaded = Config::load(&path).expect("valid");
    let free = config();
    let config = Config {
        resp: free.resp,
        http: free.http,
        grpc: free.grpc,
        source: None,
        storage: None,
        rule_folder,
        ..loaded
    };
    Running::with(config, standing_clock())
}

pub(crate) async fn client(server: &Running) -> Grpc<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).expect("an address");
    let mut client = Grpc::new(endpoint.connect().await.expect("the server listens"));
    client.ready().await.expect("it is connected");
    client
}

pub(crate) async fn ask<A, R>(client: &mut Grpc<Channel>, path: &'static str, asked: A) -> Result<R, Status>
where
    A: Message + Send + Sync + 'static,
    R: Message + Default + Send + Sync + 'static,
{
    client.ready().await.expect("it is connected");
    let path = PathAndQuery::from_static(path);
    let codec: ProstCodec<A, R> = ProstCodec::default();
    Ok(client.unary(Request::new(asked), path, codec).await?.into_inner())
}

fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').expect("key=value");
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = text.split(' ').filter(|text| !text.is_empty()).map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

pub(crate) fn asked(descriptors: &[&str]) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|text| descriptor(text)).collect();
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

/// The answer, as a text: the code, and of each status the code, the limit, what is left and when there is more.
fn shown(response: &RateLimitResponse) -> Vec<String> {
    let code = |code: i32| Answer::try_from(code).expect("a code").as_str_name();
    let statuses = response.statuses.iter().map(|status| {
        let mut text = code(status.code).to_owned();
        if let Some(limit) = &status.current_limit {
            let unit = limit.unit().as_str_name();
            text += &format!(
                " {} {}/{unit} left {}",
                limit.name, limit.requests_per_unit, status.limit_remaining
            );
        }
        if let Some(reset) = &status.duration_until_reset {
            text += &format!(" reset {}.{:03}", reset.seconds, reset.nanos / 1_000_000);
        }
        text
    });
    [code(response.overall_code).to_owned()].into_iter().chain(statuses).collect()
}

pub(crate) fn answer(server: &Running, asked: RateLimitRequest) -> RateLimitResponse {
    let answer = server.block_on(async {
        let mut client = client(server).await;
        ask::<_, RateLimitResponse>(&mut client, SHOULD_RATE_LIMIT, asked).await
    });
    answer.expect("an answer")
}

pub(crate) fn check(server: &Running, asked: RateLimitRequest, expected: &[&str]) {
    assert_eq!(shown(&answer(server, asked)), expected);
}

#[test]
fn each_descriptor_is_decided_on_its_own() {
    let server = with_limits(LIMITS);
    let both = || asked(&["path=/admin", "remote_address=192.0.2.1"]);
    check(
        &server,
        both(),
        &["OK", "OK admin 1/HOUR left 0 reset 3600.000", "OK address 3/MINUTE left 2 reset 60.000"],
    );
    // The denial of one does not keep the other from being counted.
    check(
        &server,
        both(),
        &[
            "OVER_LIMIT",
            "OVER_LIMIT admin 1/HOUR left 0 reset 3600.000",
            "OK address 3/MINUTE left 1 reset 60.000",
        ],
    );
    let mut client = server.connect();
    client.ask("HITS address:remote_address%3d192.0.2.1\r\n", ":0\r\n");
    client.ask("HITS address:remote_address=192.0.2.1\r\n", ":2\r\n");
    client.ask("HITS admin:path=/admin\r\n", ":1\r\n");
}

#[test]
fn the_most_specific_limit_decides() {
    let server = with_limits(LIMITS);
    check(
        &server,
        asked(&["path=/about", "path=/b", "path=/about user=1 more=2", "other=1", ""]),
        &["OK", "OK path 100/UNKNOWN left 99 reset 10.000", "OK", "OK", "OK", "OK"],
    );
    check(&server, RateLimitRequest { domain: "other".to_owned(), ..asked(&["path=/admin"]) }, &["OK", "OK"]);
}

#[test]
fn hits_addend_of_a_descriptor_replaces_that_of_the_request() {
    let server = with_limits(LIMITS);
    let with = |of_request, of_descriptor| {
        let mut asked = RateLimitRequest { hits_addend: of_request, ..asked(&["remote_address=192.0.2.1"]) };
        asked.descriptors[0].hits_addend = of_descriptor;
        asked
    };
    check(&server, with(2, None), &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
    // Present and 0: it only checks.
    check(&server, with(2, Some(0)), &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
    check(&server, with(1, Some(2)), &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 1 reset 60.000"]);
    check(&server, with(2, Some(1)), &["OK", "OK address 3/MINUTE left 0 reset 60.000"]);
    check(&server, with(0, None), &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 0 reset 60.000"]);
    // More than the limit ever allows.
    check(&server, with(4, None), &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 0 reset 60.000"]);
}

/// A descriptor for one address, with its hits.
fn of_address(text: &str, hits: u64) -> RateLimitRequest {
    let mut asked = asked(&[&format!("remote_address={text}")]);
    asked.descriptors[0].hits_addend = Some(hits);
    asked
}

#[test]
fn an_overdraft_is_denied_with_the_next_request() {
    let server =
        with_limits(&LIMITS.replace("name = \"address\"\n", "name = \"address\"\noverdraft = true\n"));
    let check = |hits, expected: &[&str]| check(&server, of_address("192.0.2.1", hits), expected);
    // It only checks: there is room for one hit.
    check(0, &["OK", "OK address 3/MINUTE left 3"]);
    check(2, &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
    check(0, &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
    check(500, &["OK", "OK address 3/MINUTE left 0 reset 60.000"]);
    // No room for one.
    check(0, &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 0 reset 60.000"]);
    // Requests that ran at the same time report what they spent. It counts, although Envoy could not deny them.
    check(1, &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 0 reset 60.000"]);
    check(40, &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 0 reset 60.000"]);
    server.connect().ask("HITS address:remote_address=192.0.2.1\r\n", ":543\r\n");
}

/// Without `overdraft`, and with hits of the request, a denied request counts nothing.
#[test]
fn only_reports_of_an_overdraft_count_without_room() {
    let server = with_limits(&LIMITS.replace("name = \"path\"\n", "name = \"path\"\noverdraft = true\n"));
    let over = |left| format!("OVER_LIMIT address 3/MINUTE left {left} reset 60.000");
    check(&server, of_address("192.0.2.1", 3), &["OK", "OK address 3/MINUTE left 0 reset 60.000"]);
    check(&server, of_address("192.0.2.1", 5), &["OVER_LIMIT", &over(0)]);
    server.connect().ask("HITS address:remote_address=192.0.2.1\r\n", ":3\r\n");
    let path = |of_request, of_descriptor| {
        let mut asked = RateLimitRequest { hits_addend: of_request, ..asked(&["path=/a"]) };
        asked.descriptors[0].hits_addend = of_descriptor;
        answer(&server, asked).overall_code
    };
    let [ok, over] = [1, 2];
    assert_eq!(path(1, Some(100)), ok);
    assert_eq!(path(7, None), over);
    server.connect().ask("HITS path:path=/a\r\n", ":100\r\n");
    assert_eq!(path(1, Some(9)), over);
    server.connect().ask("HITS path:path=/a\r\n", ":109\r\n");
}

#[test]
fn negative_hits_are_given_back() {
    let server = with_limits(LIMITS);
    let refund = |hits| {
        let mut asked = of_address("192.0.2.1", hits);
        asked.descriptors[0].is_negative_hits = true;
        asked
    };
    check(&server, of_address("192.0.2.1", 3), &["OK", "OK address 3/MINUTE left 0 reset 60.000"]);
    check(&server, refund(2), &["OK", "OK address 3/MINUTE left 2 reset 60.000"]);
    // Never more than was counted.
    check(&server, refund(100), &["OK", "OK address 3/MINUTE left 3"]);
    server.connect().ask("HITS address:remote_address=192.0.2.1\r\n", ":0\r\n");
}

#[test]
fn a_limit_that_a_descriptor_brings_along_replaces_that_of_the_config() {
    let server = with_limits(LIMITS);
    let with = |text: &str, requests_per_unit, unit| {
        let mut asked = asked(&[text]);
        asked.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit, unit });
        asked
    };
    let address = |max, unit| with("remote_address=192.0.2.1", max, unit);
    check(&server, address(1, 3), &["OK", "OK address 1/HOUR left 0 reset 3600.000"]);
    check(&server, address(1, 3), &["OVER_LIMIT", "OVER_LIMIT address 1/HOUR left 0 reset 3600.000"]);
    // The hits are those of the key, whatever the limit.
    let without = asked(&["remote_address=192.0.2.1"]);
    check(&server, without, &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
    // A descriptor for which the config has no limit.
    check(&server, with("plan=free", 1, 2), &["OK", "OK  1/MINUTE left 0 reset 60.000"]);
    check(&server, with("plan=free", 1, 2), &["OVER_LIMIT", "OVER_LIMIT  1/MINUTE left 0 reset 60.000"]);
    check(&server, with("plan=paid", 0, 2), &["OVER_LIMIT", "OVER_LIMIT  0/MINUTE left 0"]);
    server.connect().ask("HITS domain:edge:plan=free\r\n", ":1\r\n");
    for unit in [0, 8, -1] {
        let answer = server.block_on(async {
            let mut client = client(&server).await;
            ask::<_, RateLimitResponse>(&mut client, SHOULD_RATE_LIMIT, address(1, unit)).await
        });
        let expected =
            format!("invalid unit {unit} of a limit: give SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR");
        assert_eq!(answer.expect_err("no unit").message(), expected);
    }
}

/// Only the address that the proxy found exempts a request: a client chooses its paths.
#[test]
fn a_network_exempts_by_the_address_of_the_descriptor() {
    let exempt = "max = 1\nwindow = \"1h\"\nexempt = [\"10.0.0.0/8\"]\n";
    let limit = |name: &str, keys: &str| {
        format!("[[limit]]\nname = \"{name}\"\ndomain = \"edge\"\ndescriptors = {{ {keys} }}\n{exempt}")
    };
    let limits = limit("by-path", "path = \"*\"") + &limit("by-both", "path = \"*\", remote_address = \"*\"");
    let server = with_limits(&limits);
    let overall = |text: &str| {
        let answer = server.block_on(async {
            let mut client = client(&server).await;
            ask::<_, RateLimitResponse>(&mut client, SHOULD_RATE_LIMIT, asked(&[text])).await
        });
        shown(&answer.expect("an answer"))[0].clone()
    };
    let twice = |text: &str| [overall(text), overall(text)];
    assert_eq!(twice("path=/10.1.2.3"), ["OK", "OVER_LIMIT"]);
    assert_eq!(twice("path=/10.1.2.3 remote_address=192.0.2.1"), ["OK", "OVER_LIMIT"]);
    assert_eq!(twice("path=/ remote_address=10.1.2.3"), ["OK", "OK"]);
}

#[test]
fn a_limit_in_shadow_allows_and_counts() {
    let server = with_limits(LIMITS);
    let expected = ["OK", "OK shadow 1/SECOND left 0 reset 1.000"];
    for _ in 0..3 {
        check(&server, asked(&["path=/ user=7"]), &expected);
    }
    let mut info = server.connect();
    info.send("INFO limits\r\n");
    let mut text = Vec::new();
    info.reply(&mut text);
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("shadow=1,allowed=1,denied=0,would_deny=2"), "{text}");
}

#[test]
fn addresses_count_by_their_network() {
    let server = with_limits(LIMITS);
    let address = |text: &str| asked(&[&format!("remote_address={text}")]);
    check(&server, address("2001:db8::1"), &["OK", "OK address 3/MINUTE left 2 reset 60.000"]);
    check(&server, address("2001:db8::ffff"), &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
    check(&server, address("2001:db8:0:1::1"), &["OK", "OK address 3/MINUTE left 2 reset 60.000"]);
    check(&server, address("::ffff:192.0.2.1"), &["OK", "OK address 3/MINUTE left 2 reset 60.000"]);
    check(&server, address("192.0.2.1"), &["OK", "OK address 3/MINUTE left 1 reset 60.000"]);
}

#[test]
fn a_value_that_is_too_long_for_a_key_is_limited() {
    let server = with_limits(LIMITS);
    let long = format!("remote_address={}", "x".repeat(5_000));
    for left in [2, 1, 0] {
        let status = format!("OK address 3/MINUTE left {left} reset 60.000");
        check(&server, asked(&[&long]), &["OK", &status]);
    }
    check(&server, asked(&[&long]), &["OVER_LIMIT", "OVER_LIMIT address 3/MINUTE left 0 reset 60.000"]);
    let other = format!("remote_address={}", "y".repeat(5_000));
    check(&server, asked(&[&other]), &["OK", "OK address 3/MINUTE left 2 reset 60.000"]);
}

#[test]
fn requests_have_bounds() {
    let server = with_limits(LIMITS);
    let refused = |asked: RateLimitRequest| {
        let answer = server.block_on(async {
            let mut client = client(&server).await;
            ask::<_, RateLimitResponse>(&mut client, SHOULD_RATE_LIMIT, asked).await
        });
        answer.err().map(|status| (status.code(), status.message().to_owned()))
    };
    let invalid = |why: &str| Some((Code::InvalidArgument, why.to_owned()));
    assert_eq!(
        refused(RateLimitRequest { domain: String::new(), ..asked(&["a=b"]) }),
        invalid("the domain is empty")
    );
    assert_eq!(refused(asked(&[])), invalid("there are no descriptors"));
    let most = lately_server::limits::MAX_DESCRIPTORS;
    assert_eq!(refused(asked(&vec!["a=b"; most])), None);
    assert_eq!(refused(asked(&vec!["a=b"; most + 1])), invalid("65 descriptors: a request has at most 64"));
    let most = lately_server::limits::MAX_DESCRIPTOR_ENTRIES;
    assert_eq!(refused(asked(&[&vec!["a=b"; most].join(" ")])), None);
    assert_eq!(
        refused(asked(&[&vec!["a=b"; most + 1].join(" ")])),
        invalid("33 entries: a descriptor has at most 32")
    );
    let bytes = |bytes: usize| {
        let mut asked = asked(&["a="]);
        asked.descriptors[0].entries[0].value = "x".repeat(bytes - 100);
        let missing = bytes - asked.encoded_len();
        asked.descriptors[0].entries[0].value += &"x".repeat(missing);
        assert_eq!(asked.encoded_len(), bytes);
        refused(asked).map(|(code, _)| code)
    };
    let most = lately_server::limits::MAX_GRPC_MESSAGE_BYTES;
    assert_eq!(bytes(most), None);
    assert_eq!(bytes(most + 1), Some(Code::OutOfRange));
}

fn hit(key: &str) -> HitRequest {
    HitRequest { key: key.into(), n: None, at_ms: None, id: None, member: None }
}

#[test]
fn hits_are_counted_and_read() {
    let server = Running::start();
    server.block_on(async {
        let mut client = client(&server).await;
        let answer: HitResponse =
            ask(&mut client, "/lately.v1.Lately/Hit", HitRequest { n: Some(4), ..hit("k") })
                .await
                .expect("counted");
        assert_eq!(answer.hits, 4);
        let windows = HitsRequest { key: b"k".to_vec(), windows_ms: vec![1_000, 60_000], at_ms: None };
        let answer: HitsResponse = ask(&mut client, "/lately.v1.Lately/Hits", windows).await.expect("read");
        let windows: Vec<_> = answer.windows.iter().map(|it| (it.window_ms, it.hits, it.upper)).collect();
        assert_eq!(windows, [(1_000, 4, Some(4)), (60_000, 4, Some(4))]);
        assert_eq!(answer.as_of_ms, i64::try_from(NOW_S * 1_000).expect("in range"));
        for (key, at_ms, code) in [
            ("", None, Code::InvalidArgument),
            ("\0alert:k", None, Code::InvalidArgument),
            ("k", Some(1_000), Code::OutOfRange),
            ("k", Some(i64::MIN), Code::InvalidArgument),
        ] {
            let refused =
                ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Hit", HitRequest { at_ms, ..hit(key) });
            assert_eq!(refused.await.expect_err("refused").code(), code, "{key} {at_ms:?}");
        }
    });
}

#[test]
fn distinct_members_are_counted_over_grpc() {
    let settings = Settings::builder().unique(true).build().expect("valid");
    let classes = vec![(Pattern::new(b"seen:*"), settings)];
    let server = Running::with(Config { classes, ..config() }, standing_clock());
    server.block_on(async {
        let mut client = client(&server).await;
        let of = |key: &str, member: &[u8]| HitRequest { member: Some(member.to_vec()), ..hit(key) };
        for (member, hits) in [(b"1", 1), (b"1", 2), (b"2", 3)] {
            let counted =
                ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Hit", of("seen:k", member)).await;
            assert_eq!(counted.expect("counted").hits, hits);
        }
        let unique = |key: &str, window_ms| UniqueRequest { key: key.into(), window_ms };
        let path = "/lately.v1.Lately/Unique";
        let answer =
            ask::<_, UniqueResponse>(&mut client, path, unique("seen:k", None)).await.expect("known");
        assert_eq!((answer.window_ms, answer.unique, answer.lower, answer.upper), (300_000, 2, 2, Some(2)));
        let longest = unique("seen:k", Some(30 * 86_400_000));
        let answer = ask::<_, UniqueResponse>(&mut client, path, longest).await.expect("known");
        assert_eq!((answer.unique, answer.upper), (2, None));
        for (key, member, code) in [
            ("seen:k", &[][..], Code::InvalidArgument),
            ("seen:k", &[b'm'; 257], Code::InvalidArgument),
            ("k", b"1", Code::FailedPrecondition),
        ] {
            let refused = ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Hit", of(key, member)).await;
            assert_eq!(refused.expect_err("refused").code(), code, "{key}");
        }
        for (key, window_ms, code) in
            [("k", None, Code::FailedPrecondition), ("seen:k", Some(0), Code::InvalidArgument)]
        {
            let refused = ask::<_, UniqueResponse>(&mut client, path, unique(key, window_ms)).await;
            assert_eq!(refused.expect_err("refused").code(), code, "{key}");
        }
    });
}

#[test]
fn hits_with_an_id_count_once_over_grpc() {
    let ids = Settings::builder().dedupe(minutes(10)).build().expect("valid");
    let classes = vec![(Pattern::new(b"once:*"), ids)];
    let server = Running::with(Config { classes, ..config() }, standing_clock());
    server.block_on(async {
        let mut client = client(&server).await;
        let once = |key: &str, id: &[u8]| HitRequest { id: Some(id.to_vec()), n: Some(2), ..hit(key) };
        for (id, hits) in [(b"1", 2), (b"1", 2), (b"2", 4), (b"1", 4)] {
            let counted =
                ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Hit", once("once:k", id)).await;
            assert_eq!(counted.expect("counted").hits, hits);
        }
        for (key, id, code) in [
            ("once:k", &[][..], Code::InvalidArgument),
            ("once:k", &[b'i'; 257], Code::InvalidArgument),
            ("k", b"1", Code::FailedPrecondition),
        ] {
            let refused = ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Hit", once(key, id)).await;
            assert_eq!(refused.expect_err("refused").code(), code, "{key}");
        }
    });
}

/// Symptom: a client that streamed hits without waiting for answers got GOAWAY `too_many_data_frames`. Cause: the client could
/// send ahead more short frames than the library tolerates. Fix: the window of a stream is so small that it cannot.
#[test]
fn a_client_may_stream_hits_without_waiting_for_answers() {
    const HITS: usize = 50_000;
    let server = Running::start();
    let last = server.block_on(async {
        let mut client = client(&server).await;
        let path = PathAndQuery::from_static("/lately.v1.Lately/HitStream");
        let codec: ProstCodec<HitRequest, HitStreamResponse> = ProstCodec::default();
        // The library puts messages that are ready together into one frame.
        let apart = futures_util::stream::iter(vec![hit("k"); HITS]).then(async |hit| {
            tokio::task::yield_now().await;
            hit
        });
        let mut answers =
            client.streaming(Request::new(apart), path, codec).await.expect("a stream").into_inner();
        let mut last = None;
        while let Some(answer) = answers.message().await.expect("the connection is not closed") {
            last = answer.result;
        }
        last
    });
    assert_eq!(last, Some(Streamed::Hits(HITS as u64)));
}

/// Streams that stay open take the places of streams, and calls of one message go on.
#[test]
fn open_streams_leave_places_for_calls() {
    let most = LEAST_GRPC_CALLS / GRPC_HIT_STREAM_PART;
    let server = Running::with(Config { ceiling_bytes: 4 << 20, ..config() }, standing_clock());
    server.block_on(async {
        let path = PathAndQuery::from_static("/lately.v1.Lately/HitStream");
        // Each on a connection of its own, because a connection has few streams at this ceiling.
        let open = async |_| {
            let mut client = client(&server).await;
            let codec: ProstCodec<HitRequest, HitStreamResponse> = ProstCodec::default();
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            let asked = futures_util::stream::pending::<HitRequest>().take_until(ended);
            client.streaming(Request::new(asked), path.clone(), codec).await.map(|answers| (end, answers))
        };
        let mut streams = Vec::new();
        for number in 0..most {
            streams.push(open(number).await.expect("it has a place"));
        }
        let refused = open(most).await.expect_err("there is no place");
        let mut client = client(&server).await;
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(refused.message(), "too many calls are in progress: try again later");
        let watched = ask::<_, HealthCheckResponse>(
            &mut client,
            "/grpc.health.v1.Health/Check",
            HealthCheckRequest { service: String::new() },
        );
        watched.await.expect("checks have places of their own");
        let answer = ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Hit", hit("k")).await;
        assert_eq!(answer.expect("it has a place").hits, 1);
        // A stream that ends frees its place.
        streams.pop();
        let freed = async {
            loop {
                client.ready().await.expect("it is connected");
                let codec: ProstCodec<HitRequest, HitStreamResponse> = ProstCodec::default();
                let asked = Request::new(futures_util::stream::iter([hit("k")]));
                if let Ok(answers) = client.streaming(asked, path.clone(), codec).await {
                    break answers.into_inner().message().await;
                }
            }
        };
        let answer = freed.await.expect("an answer").expect("one");
        assert_eq!(answer.result, Some(Streamed::Hits(2)));
    });
}

#[test]
fn a_stream_answers_each_hit_in_order() {
    let server = Running::start();
    let answers = server.block_on(async {
        let mut client = client(&server).await;
        let hits = (0..100).map(|number| if number == 50 { hit("") } else { hit("k") });
        let path = PathAndQuery::from_static("/lately.v1.Lately/HitStream");
        let codec: ProstCodec<HitRequest, HitStreamResponse> = ProstCodec::default();
        let asked = Request::new(futures_util::stream::iter(hits.collect::<Vec<_>>()));
        let mut answers = client.streaming(asked, path, codec).await.expect("a stream").into_inner();
        let mut all = Vec::new();
        while let Some(answer) = answers.message().await.expect("an answer") {
            all.push(answer.result.expect("a result"));
        }
        all
    });
    assert_eq!(answers.len(), 100);
    let mut hits = 0;
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Streamed::Hits(counted) => {
                hits += 1;
                assert_eq!(counted, hits);
            }
            Streamed::Refused(refusal) => {
                assert_eq!((number, refusal.code), (50, Code::InvalidArgument as i32), "{}", refusal.message);
            }
        }
    }
    server.connect().ask("HITS k\r\n", ":99\r\n");
}

#[test]
fn limits_are_given_or_named() {
    let server = with_limits(LIMITS);
    let limit = |limit| LimitRequest { key: b"k".to_vec(), limit, cost: None, peek: false, at_ms: None };
    let of = |given: Given| limit(Some(Limit::Given(given)));
    let plain = Given { max: 1, window_ms: 1_000, ..Given::default() };
    let given = || of(plain);
    server.block_on(async {
        let mut client = client(&server).await;
        let mut ask = async |asked| {
            ask::<LimitRequest, LimitResponse>(&mut client, "/lately.v1.Lately/Limit", asked).await
        };
        let answer = ask(given()).await.expect("decided");
        assert_eq!((answer.allowed, answer.remaining, answer.retry_after_ms), (true, 0, Some(0)));
        let answer = ask(given()).await.expect("decided");
        assert_eq!((answer.allowed, answer.remaining, answer.retry_after_ms), (false, 0, Some(1_000)));
        let answer = ask(LimitRequest { cost: Some(2), ..given() }).await.expect("decided");
        assert_eq!((answer.allowed, answer.retry_after_ms), (false, None));
        let answer = ask(limit(Some(Limit::Name("admin".to_owned())))).await.expect("decided");
        assert_eq!((answer.allowed, answer.max), (false, 1));
        let unknown = ask(limit(Some(Limit::Name("x".to_owned())))).await.expect_err("unknown");
        assert_eq!(unknown.code(), Code::NotFound);
        assert_eq!(ask(limit(None)).await.expect_err("no limit").code(), Code::InvalidArgument);
        let overdraft = || of(Given { overdraft: true, max: 3, ..plain });
        let answer = ask(LimitRequest { cost: Some(5), ..overdraft() }).await.expect("decided");
        assert_eq!((answer.allowed, answer.remaining), (true, -3));
        let answer = ask(LimitRequest { cost: Some(-4), ..overdraft() }).await.expect("decided");
        assert_eq!((answer.allowed, answer.remaining), (true, 1));
        let growing = Given { max: 0, lockout_ms: Some(1_000), lockout_factor: Some(2.0), ..plain };
        let answer = ask(of(growing)).await.expect("decided");
        assert_eq!((answer.allowed, answer.reset_after_ms), (false, 1_000));
        for wrong in [
            Given { lockout_factor: Some(2.0), ..plain },
            Given { lockout_max_ms: Some(1_000), ..plain },
            Given { lockout_ms: Some(1_000), lockout_factor: Some(0.5), ..plain },
            Given { lockout_ms: Some(1_000), lockout_max_ms: Some(999), ..plain },
        ] {
            assert_eq!(ask(of(wrong)).await.expect_err("wrong").code(), Code::InvalidArgument, "{wrong:?}");
        }
    });
}

#[test]
fn health_is_served_and_unknown_methods_are_not() {
    let server = Running::start();
    server.block_on(async {
        let mut client = client(&server).await;
        for service in ["", "lately.v1.Lately", "envoy.service.ratelimit.v3.RateLimitService"] {
            let asked = HealthCheckRequest { service: service.to_owned() };
            let answer: HealthCheckResponse =
                ask(&mut client, "/grpc.health.v1.Health/Check", asked).await.expect("a health");
            assert_eq!(answer.status().as_str_name(), "SERVING", "{service}");
        }
        let asked = HealthCheckRequest { service: "x".to_owned() };
        let unknown = ask::<_, HealthCheckResponse>(&mut client, "/grpc.health.v1.Health/Check", asked).await;
        assert_eq!(unknown.expect_err("unknown").code(), Code::NotFound);
        let unknown = ask::<_, HitResponse>(&mut client, "/lately.v1.Lately/Nothing", hit("k")).await;
        assert_eq!(unknown.expect_err("unknown").code(), Code::Unimplemented);
    });
}

/// `authorization` of the metadata, as in HTTP.
#[test]
fn clients_log_in_with_metadata() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("web");
    std::fs::write(&password, "w-secret\n").expect("room");
    let user = format!(
        "[[user]]\nname = \"web\"\npassword_file = \"{}\"\nkeys = [\"address:*\"]\nverbs = [\"limit\"]\n",
        password.display()
    );
    let server = with_limits(&format!("{LIMITS}{user}"));
    let call = |authorization: Option<&'static str>, descriptor: &str| {
        let mut asked = Request::new(asked(&[descriptor]));
        if let Some(value) = authorization {
            asked.metadata_mut().insert("authorization", value.parse().expect("text"));
        }
        server.block_on(async {
            let mut client = client(&server).await;
            let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::default();
            let answer = client.unary(asked, PathAndQuery::from_static(SHOULD_RATE_LIMIT), codec).await;
            answer.map_or_else(|status| status.code(), |_| Code::Ok)
        })
    };
    // web:w-secret and web:wrong
    let (right, wrong) = (Some("Basic d2ViOnctc2VjcmV0"), Some("Basic d2ViOndyb25n"));
    assert_eq!(call(right, "remote_address=192.0.2.1"), Code::Ok);
    assert_eq!(call(right, "path=/admin"), Code::PermissionDenied);
    assert_eq!(call(wrong, "remote_address=192.0.2.1"), Code::Unauthenticated);
    assert_eq!(call(None, "remote_address=192.0.2.1"), Code::Unauthenticated);
}

fn web<A>(asked: A) -> Request<A> {
    let mut asked = Request::new(asked);
    // web:w-secret
    asked.metadata_mut().insert("authorization", "Basic d2ViOnctc2VjcmV0".parse().expect("text"));
    asked
}

#[test]
fn a_client_that_has_called_does_not_wait_for_failed_logins_of_others() {
    let folder = folder();
    let server = start(&folder);
    let hit = async |client: &mut Grpc<Channel>| {
        client.ready().await.expect("it is connected");
        let codec: ProstCodec<HitRequest, HitResponse> = ProstCodec::default();
        let answer = client.unary(web(hit("web:1")), PathAndQuery::from_static(HIT), codec).await;
        answer.map(|answer| answer.into_inner().hits).map_err(|status| status.code())
    };
    let mut first = server.block_on(client(&server));
    assert_eq!(server.block_on(hit(&mut first)), Ok(1));
    let bad = || {
        let mut wire = server.connect();
        wire.send("AUTH web wrong\r\n");
        wire
    };
    let _waiting: Vec<_> = (0..40).map(|_| bad()).collect();
    until("a new client is refused", || {
        server.block_on(async { hit(&mut client(&server).await).await }) == Err(Code::Unavailable)
    });
    assert!(server.block_on(hit(&mut first)).is_ok());
}

/// The permissions of each message are those that its user has when it comes.
#[test]
fn a_stream_ends_when_its_user_is_gone() {
    let folder = folder();
    let server = start(&folder);
    let (send, mut asked) = tokio::sync::mpsc::unbounded_channel();
    send.send(hit("web:1")).expect("it is open");
    let asked = web(futures_util::stream::poll_fn(move |cx| asked.poll_recv(cx)));
    let mut answers = server.block_on(async {
        let codec: ProstCodec<HitRequest, HitStreamResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static("/lately.v1.Lately/HitStream");
        client(&server).await.streaming(asked, path, codec).await.expect("a stream").into_inner()
    });
    let mut next = || server.block_on(answers.message()).map(|answer| answer.and_then(|it| it.result));
    assert_eq!(next().expect("an answer"), Some(Streamed::Hits(1)));
    let mut wire = server.connect();
    wire.ask("AUTH web w-secret\r\nHIT web:1\r\n", "+OK\r\n:2\r\n");
    write_config(folder.path(), "\"read\"");
    server.reloader.reload();
    until("the user may not hit", || {
        wire.send("HIT web:2\r\n");
        wire.line().starts_with("-NOPERM")
    });
    send.send(hit("web:1")).expect("it is open");
    let Some(Streamed::Refused(refusal)) = next().expect("an answer") else { unreachable!("it is refused") };
    assert_eq!(refusal.code, Code::PermissionDenied as i32, "{}", refusal.message);
    std::fs::write(folder.path().join("web"), "new-secret").expect("room");
    server.reloader.reload();
    until("the user has to log in again", || {
        wire.send("PING\r\n");
        wire.line().starts_with("-NOAUTH")
    });
    send.send(hit("web:1")).expect("it is open");
    let status = next().expect_err("it has ended");
    assert_eq!(status.code(), Code::Unauthenticated, "{}", status.message());
    wire.ask("AUTH web new-secret\r\nHITS web:1\r\n", "+OK\r\n:2\r\n");
}

/// A client that watches the health neither keeps the server from stopping nor is left without an end.
#[test]
fn open_streams_end_with_the_server() {
    let server = Running::start();
    let mut watched = server.block_on(async {
        let mut client = client(&server).await;
        let path = PathAndQuery::from_str("/grpc.health.v1.Health/Watch").expect("a path");
        let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
        let asked = Request::new(HealthCheckRequest { service: String::new() });
        let mut watched = client.server_streaming(asked, path, codec).await.expect("a stream").into_inner();
        let first = watched.message().await.expect("a message").expect("the first");
        assert_eq!(first.status().as_str_name(), "SERVING");
        watched
    });
    let mut reflected = server.block_on(async {
        let mut client = client(&server).await;
        let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let asked = Request::new(futures_util::stream::pending::<()>());
        let codec: ProstCodec<(), ()> = ProstCodec::default();
        client.streaming(asked, PathAndQuery::from_static(path), codec).await.expect("a stream").into_inner()
    });
    server.stopper.stop();
    assert!(server.block_on(watched.message()).expect("no error").is_none());
    // The stop does not wait for the client.
    let end = server.block_on(async { timeout(DRAIN_TIMEOUT / 2, reflected.message()).await });
    assert_eq!(end.expect("soon").expect("no error"), None);
    server.ended();
}
