//! A batch has the same replies as its requests sent one by one.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use std::time::Duration;

use crate::limits::{RUN_OPERATIONS, RUN_TIMED_OPERATIONS, TIME_SLICE};
use crate::protocol::fixture::set_slow;
use crate::service::named_limits::tests::limit;

const COMMANDS: [&str; 39] = [
    "HIT k",
    "HIT k",
    "HIT k",
    "HIT l 3",
    "HIT l 0",
    "HIT m 5 AT 1700000000",
    "HIT k AT 1699999900",
    "HIT k AT 99999999999",
    "HIT k AT 1",
    "HIT k 9223372036854775800",
    "HIT k x",
    "HIT",
    "MHIT k 1 l 2 k 3",
    "MHIT k 1 l",
    "HITS k",
    "HITS l 1m 1h 1d",
    "HITS m BOUNDS AT 1700000040",
    "HITS k 0",
    "MHITS 5m k l m none",
    "RATE k",
    "RATE l 1m",
    "SERIES k 5s 1s",
    "LIMIT k 9 5m COST 4",
    "LIMIT l 3 1s LOCKOUT 1m",
    "LIMIT k 7 1h PEEK",
    "DEL k",
    "DEL k l m",
    "EXISTS k l k",
    "FLUSHALL",
    "TTL m",
    "MULTI",
    "MULTI",
    "EXEC",
    "DISCARD",
    "HELLO 3",
    "RESET",
    "NOSUCH k",
    "PING hello",
    "DBSIZE",
];

/// Symptom: late hits that took a millisecond each were executed to the end of the read, and others waited for seconds. Cause: a
/// turn was bounded in bytes and arguments. Fix: it is bounded in time, and after requests that took long fewer are executed
/// at once.
#[test]
fn a_slice_is_bounded_in_time() {
    const REQUESTS: usize = 400;
    let check = |time, request: &str, reply: &str, first: usize, later: usize| {
        let mut talk = Talk::new();
        let bytes = format!("{request}\n").repeat(REQUESTS).into_bytes();
        set_slow(time);
        let (mut replies, mut turns) = (Vec::new(), Vec::new());
        let (mut requests, mut args) = (Requests::new(), Args::new());
        requests.parse(&bytes, &Limits::default(), &mut args);
        let mut position = 0;
        while position < REQUESTS {
            let (mut run, mut out) = (Run::default(), Vec::new());
            let left = requests.range(position..REQUESTS, &bytes);
            let (done, flow) = talk.session.batch(left, &mut run, seconds(NOW_S), &mut out);
            run.finish(&talk.service, seconds(NOW_S), &mut out);
            let is_last = position + done == REQUESTS;
            assert!(is_last || flow == Flow::Yield, "{turns:?} {flow:?}");
            turns.push(done);
            position += done;
            replies.extend(out);
        }
        set_slow(Duration::ZERO);
        let expected: String = (1..=REQUESTS).map(|number| reply.replace('N', &number.to_string())).collect();
        assert_eq!(String::from_utf8(replies).expect("text"), expected, "{request}");
        assert_eq!(
            (turns[0], turns[1..].iter().max().copied()),
            (first, (later > 0).then_some(later)),
            "{turns:?}"
        );
    };
    let late = "HIT k 1 AT 1700000000";
    check(Duration::ZERO, late, ":N\r\n", REQUESTS, 0);
    check(TIME_SLICE, late, ":N\r\n", RUN_TIMED_OPERATIONS, RUN_TIMED_OPERATIONS);
    check(1_000 * TIME_SLICE, late, ":N\r\n", RUN_TIMED_OPERATIONS, 1);
    let given_back = "*5\r\n:1\r\n:5\r\n:5\r\n:0\r\n:0\r\n";
    check(TIME_SLICE, "LIMIT k 5 1m COST -1", given_back, 1, 1);
    check(1_000 * TIME_SLICE, "LIMIT k 5 1m PEEK", given_back, RUN_OPERATIONS, 1);
    let denied = "*5\r\n:0\r\n:0\r\n:0\r\n:-1\r\n:0\r\n";
    check(1_000 * TIME_SLICE, "LIMIT k 0 1m", denied, RUN_OPERATIONS, 1);
    check(1_000 * TIME_SLICE, "LIMIT k 0 1m AT 1700000000", denied, RUN_TIMED_OPERATIONS, 1);
    check(1_000 * TIME_SLICE, "HIT k", ":N\r\n", RUN_OPERATIONS, 1);
    // The time of a run is known when the next request finds no room in it.
    check(
        1_000 * TIME_SLICE,
        "HITS k 1m 2m 3m 4m 5m 6m",
        "*6\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
        11,
        1,
    );
    check(1_000 * TIME_SLICE, "TYPE k", "+none\r\n", 1, 1);
    let unknown =
        format!("-ERR no such limit 'x': the config has none. Usage: {LIMIT}\r\n").replace('\\', "");
    check(TIME_SLICE / 4, "LIMIT k @x", &unknown, 4, 4);
}

/// Requests that are repeated with other keys, with other requests between them.
const REPEATED: [&str; 24] = [
    "HIT {}",
    "HIT {}",
    "hit {}",
    "HIT {} 2",
    "HIT {} 0",
    "HIT {} AT 1699999900",
    "HIT {} ID 1",
    "HIT {} 2 ID 1 AT 1699999900",
    "HITS {}",
    "HITS {} 1m",
    "HITS {} 1m 1h",
    "HITS {} BOUNDS",
    "HITS {} DENIED",
    "MHIT {} 1",
    "MHIT {} 1 k 1",
    "LIMIT {} 4 1m",
    "LIMIT {} 4 1m PEEK",
    "LIMIT {} @few",
    "LIMIT {} @none",
    "MLIMIT {} 9 1m",
    "CL.THROTTLE {} 3 9 60",
    "CL.THROTTLE {} 3 9 60 0",
    "MULTI",
    "EXEC",
];

/// The bytes of requests: some inline, some as arrays.
fn written(commands: &[(usize, bool)]) -> Vec<Vec<u8>> {
    let written = commands.iter().map(|&(command, as_words)| {
        let line = COMMANDS[command];
        let mut bytes = Vec::new();
        if as_words {
            bytes.extend_from_slice(format!("{line}\n").as_bytes());
        } else {
            lately_resp::write_request(&mut bytes, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        }
        bytes
    });
    written.collect()
}

proptest! {
    #[test]
    fn a_batch_answers_as_its_requests_one_by_one(
        commands in vec((0..COMMANDS.len(), any::<bool>()), 1..200),
        cuts in vec(1..150_usize, 1..20),
    ) {
        let requests = written(&commands);
        let (mut single, mut batched) = (Talk::new(), Talk::new());
        let mut cuts = cuts.iter().cycle();
        let mut left = &requests[..];
        while !left.is_empty() {
            let (batch, rest) = left.split_at(left.len().min(*cuts.next().expect("cycled")));
            left = rest;
            let expected: Vec<u8> = batch.iter().flat_map(|request| single.send_through(request, 1)).collect();
            let got = batched.send_through(&batch.concat(), batch.len());
            prop_assert_eq!(barred(&got), barred(&expected));
            prop_assert_eq!(batched.flow, single.flow);
        }
        // After `RESET`, `INFO` is answered, whatever state the session was in.
        single.send(b"RESET\n", 1);
        batched.send(b"RESET\n", 1);
        for field in ["total_hits", "refused_hits", "total_commands_processed", "used_memory_keys"] {
            prop_assert_eq!(batched.info(field), single.info(field));
        }
    }

    #[test]
    fn repeated_requests_are_answered_as_if_sent_one_by_one(
        asked in vec((0..REPEATED.len(), vec(0..5_usize, 1..6)), 1..30),
    ) {
        let mut requests = Vec::new();
        for (command, keys) in asked {
            for key in keys {
                let words = REPEATED[command].split(' ').map(|word| match word {
                    "{}" => ["k", "l", "m", "long", ""][key].as_bytes(),
                    word => word.as_bytes(),
                });
                let mut bytes = Vec::new();
                lately_resp::write_request(&mut bytes, &words.collect::<Vec<_>>());
                requests.push(bytes);
            }
        }
        let ids = lately::Settings::builder().dedupe(lately::minutes(1)).build().expect("valid");
        let classes = || vec![(lately::Pattern::new(b"*"), ids.clone())];
        let config = || Config { limits: vec![limit("few")], classes: classes(), ..Config::default() };
        let (mut single, mut batched) = (Talk::with(config()), Talk::with(config()));
        let expected: Vec<u8> = requests.iter().flat_map(|request| single.send_through(request, 1)).collect();
        let got = batched.send_through(&requests.concat(), requests.len());
        prop_assert_eq!(barred(&got), barred(&expected));
        single.send(b"RESET\n", 1);
        batched.send(b"RESET\n", 1);
        for field in ["total_hits", "refused_hits", "repeated_hits", "denied_hits", "total_commands_processed"] {
            prop_assert_eq!(batched.info(field), single.info(field));
        }
    }

    #[test]
    fn a_batch_counts_as_defined(
        steps in vec((0..4_u8, 0..600_u64, 1..5_u64, any::<bool>()), 1..3 * RUN_OPERATIONS),
    ) {
        let (mut requests, mut expected) = (String::new(), String::new());
        let mut hits: Vec<(u8, u64, u64)> = Vec::new();
        for &(key, age, weight, asks) in &steps {
            let at = NOW_S - age;
            if asks {
                requests += &format!("HITS k{key} 1m AT {at}\n");
            } else {
                requests += &format!("HIT k{key} {weight} AT {at}\n");
                hits.push((key, at, weight));
            }
            let window = if asks { 60 } else { 300 };
            let within = |then: u64| then <= at && at - then < window;
            let of_key = hits.iter().filter(|hit| hit.0 == key && within(hit.1));
            expected += &format!(":{}|", of_key.map(|hit| hit.2).sum::<u64>());
        }
        // Everything is within the exact span, so every answer is exact.
        let hour = lately::Settings::builder().exact(lately::minutes(60)).build().expect("valid");
        let classes = vec![(lately::Pattern::new(b"k*"), hour)];
        let mut talk = Talk::with(Config { classes, ..Config::default() });
        prop_assert_eq!(barred(&talk.send(requests.as_bytes(), steps.len())), expected);
    }
}

#[test]
fn runs_of_any_length_are_answered() {
    for len in [1, RUN_OPERATIONS - 1, RUN_OPERATIONS, RUN_OPERATIONS + 1, 3 * RUN_OPERATIONS] {
        let mut talk = Talk::new();
        let requests = "HIT k\n".repeat(len - 1) + &format!("MHITS 1m{}\n", " k".repeat(len));
        let mut expected: String = (1..len).map(|hits| format!(":{hits}|")).collect();
        expected += &format!("*{len}|{}", format!(":{}|", len - 1).repeat(len));
        assert_eq!(barred(&talk.send(requests.as_bytes(), len)), expected);
    }
}

#[test]
fn a_batch_stops_at_the_output_bound() {
    let message = "x".repeat(crate::limits::OUTPUT_BYTES / 2);
    let echo = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{message}\r\n", message.len());
    let (mut talk, mut requests, mut args) = (Talk::new(), Requests::new(), Args::new());
    let bytes = echo.repeat(3);
    requests.parse(bytes.as_bytes(), &Limits::default(), &mut args);
    let (done, flow) = talk.session.batch(
        requests.iter(bytes.as_bytes()),
        &mut Run::default(),
        seconds(NOW_S),
        &mut Vec::new(),
    );
    assert_eq!((done, flow), (2, Flow::Continue));
}

#[test]
fn a_run_continues_with_the_next_connection() {
    let mut talk = Talk::v3();
    let mut other = connect(&talk.service);
    let bytes = b"HIT k 3\nRATE k 1m\nHIT k 2\nRATE k 1m\nPING\nHIT k\n";
    let (mut requests, mut args, mut run, mut out) =
        (Requests::new(), Args::new(), Run::default(), Vec::new());
    requests.parse(bytes, &Limits::default(), &mut args);
    let now = seconds(NOW_S);
    let mut part = |session: &mut Session, numbers: Range<usize>| {
        assert_eq!(session.batch(requests.range(numbers, bytes), &mut run, now, &mut out).1, Flow::Continue);
        run.end_connection(&out);
    };
    part(&mut talk.session, 0..2);
    part(&mut other, 2..2);
    part(&mut other, 2..5);
    part(&mut talk.session, 5..6);
    run.finish(&talk.service, now, &mut out);
    let mut start = 0;
    let replies: Vec<_> =
        run.ends().iter().map(|&end| barred(&out[std::mem::replace(&mut start, end)..end])).collect();
    assert_eq!(replies, [":3|,0.05|", "", ":5|$19|0.08333333333333333|+PONG|", ":6|"]);
    assert_eq!((talk.info("total_hits").as_str(), start), ("6", out.len()));
}

#[test]
fn repeated_requests_stop_at_the_output_bound() {
    const HITS: usize = 5_000;
    let bytes = b"*2\r\n$4\r\nRATE\r\n$1\r\na\r\n*2\r\n$3\r\nHIT\r\n$1\r\nk\r\n".to_vec();
    let hits = b"*2\r\n$3\r\nHIT\r\n$1\r\nk\r\n".repeat(HITS);
    let bytes = [bytes, hits].concat();
    let (mut talk, mut requests, mut args) = (Talk::new(), Requests::new(), Args::new());
    let mut out = vec![b'+'; crate::limits::OUTPUT_BYTES - 1_000];
    requests.parse(&bytes, &Limits::default(), &mut args);
    let (mut run, now) = (Run::default(), talk.service.now());
    let (done, flow) = talk.session.batch(requests.iter(&bytes), &mut run, now, &mut out);
    run.finish(&talk.service, now, &mut out);
    assert_eq!(flow, Flow::Continue);
    // The batch stops after some runs of 64 replies.
    assert!((150..500).contains(&done), "{done}");
    let lines = out.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, done + 1, "a rate has two lines");
    assert!(out.ends_with(format!(":{}\r\n", done - 1).as_bytes()));
}
