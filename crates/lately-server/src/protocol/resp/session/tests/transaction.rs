//! `MULTI EXEC DISCARD`.

use lately_resp::limits::MAX_BATCH_ARGUMENTS;

use super::super::Written;
use super::*;
use crate::limits::{MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS, OUTPUT_BYTES};

#[test]
fn queued_commands_run_at_exec() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("EXEC", "-ERR EXEC without MULTI|"),
        ("DISCARD", "-ERR DISCARD without MULTI|"),
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("HIT k 2", "+QUEUED|"),
        ("HITS k 1m 5m", "+QUEUED|"),
        ("PING 'a b'", "+QUEUED|"),
        ("HIT \"\\r\\n\\x00\"", "+QUEUED|"),
    ]);
    assert_eq!(talk.service.key_count(), 0);
    talk.check("EXEC", "*5|:1|:3|*2|:3|:3|$3|a b|:1|");
    talk.check_all(&[("HITS k", ":3|"), ("HITS \"\\r\\n\\x00\"", ":1|")]);
    talk.check_all(&[("MULTI", "+OK|"), ("EXEC", "*0|"), ("EXEC", "-ERR EXEC without MULTI|")]);
}

#[test]
fn discard_drops_queued_commands() {
    Talk::new().check_all(&[
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("DISCARD", "+OK|"),
        ("EXEC", "-ERR EXEC without MULTI|"),
        ("HITS k", ":0|"),
    ]);
}

#[test]
fn an_error_while_queueing_aborts() {
    let aborting = [
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: |"),
        (
            "HIT",
            "-ERR wrong number of arguments for 'hit' command. Usage: HIT <key> [<count>] [AT <time>] [ID <id>] [MEMBER <member>]|",
        ),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.|"),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction|"),
        ("SHUTDOWN ABORT", "-ERR Command not allowed inside a transaction|"),
    ];
    for (line, error) in aborting {
        let mut talk = Talk::new();
        talk.check_all(&[("MULTI", "+OK|"), ("HIT k", "+QUEUED|"), (line, error), ("HIT k", "+QUEUED|")]);
        assert_eq!(talk.flow, Flow::Continue);
        talk.check_all(&[
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ("HITS k", ":0|"),
            ("MULTI", "+OK|"),
            ("HIT k", "+QUEUED|"),
            ("EXEC", "*1|:1|"),
        ]);
    }
}

/// The replies are those of Redis 7.0.15.
#[test]
fn exec_with_arguments_ends_the_transaction() {
    let refused =
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command|";
    Talk::new().check_all(&[
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("EXEC x", refused),
        ("HITS k", ":0|"),
        ("EXEC", "-ERR EXEC without MULTI|"),
        ("exec x", refused),
        ("PING", "+PONG|"),
    ]);
}

#[test]
fn an_error_at_exec_is_one_of_the_replies() {
    Talk::new().check_all(&[
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("HIT k x", "+QUEUED|"),
        ("SELECT 1", "+QUEUED|"),
        ("HIT k AT 99999999999", "+QUEUED|"),
        ("HIT k", "+QUEUED|"),
        (
            "EXEC",
            "*5|:1|-ERR invalid count 'x': give a whole number from 0 to 9223372036854775807. Usage: HIT <key> [<count>] [AT <time>] [ID <id>] [MEMBER <member>]|-ERR DB index is out of range|-FUTURE hit at 99999999999 is too far ahead of the clock, the latest time taken is 1700000050: max_skew is 10s|:2|",
        ),
    ]);
}

#[test]
fn a_nested_multi_is_refused_and_changes_nothing() {
    Talk::new().check_all(&[
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("MULTI", "-ERR MULTI calls can not be nested|"),
        ("EXEC", "*1|:1|"),
    ]);
}

#[test]
fn reset_and_quit_end_a_transaction() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("RESET", "+RESET|"),
        ("EXEC", "-ERR EXEC without MULTI|"),
        ("HITS k", ":0|"),
        ("MULTI", "+OK|"),
        ("HIT k", "+QUEUED|"),
        ("QUIT", "+OK|"),
    ]);
    assert_eq!(talk.flow, Flow::Close);
    assert_eq!(talk.service.key_count(), 0);
}

#[test]
fn hello_inside_switches_the_replies_after_it() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("MULTI", "+OK|"),
        ("RATE k", "+QUEUED|"),
        ("HELLO 3", "+QUEUED|"),
        ("RATE k", "+QUEUED|"),
    ]);
    let reply = talk.ask("EXEC");
    assert!(reply.starts_with("*3|$1|0|%7|") && reply.ends_with(",0|"), "{reply}");
}

#[test]
fn each_command_counts_once() {
    let mut talk = Talk::new();
    talk.check_all(&[("MULTI", "+OK|"), ("HIT k", "+QUEUED|"), ("EXEC", "*1|:1|")]);
    assert_eq!(talk.info("total_commands_processed"), "3");
    assert_eq!(talk.info("total_hits"), "1");
}

#[test]
fn a_transaction_is_bounded_in_bytes() {
    let mut talk = Talk::new();
    talk.check("MULTI", "+OK|");
    let mut request = Vec::new();
    lately_resp::write_request(&mut request, &[b"ECHO", &vec![b'x'; lately_resp::limits::MAX_BULK_BYTES]]);
    let mut echo = || String::from_utf8(talk.send(&request, 1)).expect("text");
    for _ in 0..MAX_QUEUED_BYTES / request.len() {
        assert_eq!(echo(), "+QUEUED\r\n");
    }
    let error = echo();
    assert!(error.starts_with("-ERR transaction too large: at most "), "{error}");
    talk.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.|");
}

#[test]
fn a_transaction_is_bounded_in_commands() {
    let mut talk = Talk::new();
    talk.check("MULTI", "+OK|");
    for _ in 0..MAX_QUEUED_COMMANDS {
        assert_eq!(talk.ask("PING"), "+QUEUED|");
    }
    let error = talk.ask("PING");
    assert!(error.starts_with("-ERR transaction too large: at most 1048576 commands"), "{error}");
    talk.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.|");
}

/// Symptom: 64 MiB of queued requests could make gigabytes of replies, all held at once. Cause: `EXEC` ran to its end
/// before anything was sent. Fix: it pauses at the output bound.
#[test]
fn the_replies_of_exec_come_in_parts() {
    let mut talk = Talk::new();
    let docs_bytes = talk.ask("COMMAND DOCS").len();
    talk.check("MULTI", "+OK|");
    let queued = 4 * OUTPUT_BYTES / docs_bytes;
    for _ in 0..queued {
        talk.check("COMMAND DOCS", "+QUEUED|");
    }
    talk.check("HIT k", "+QUEUED|");
    let (mut replies, mut parts) = (talk.first_of("EXEC"), 1);
    while talk.flow == Flow::More {
        let mut out = Vec::new();
        talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
        assert!(out.len() < OUTPUT_BYTES + (64 << 10), "{}", out.len());
        replies += &barred(&out);
        parts += 1;
    }
    assert_eq!(talk.flow, Flow::Continue);
    assert!(parts > 2, "{parts}");
    assert!(replies.starts_with(&format!("*{}|*90|$3|hit|", queued + 1)) && replies.ends_with("|:1|"));
    assert_eq!(replies.matches("*90|$3|hit|").count(), queued);
    talk.check("HITS k", ":1|");
}

/// Symptom: a client that queued a hundred thousand slow reads and left kept a core busy for minutes. Cause: a transaction
/// always ran to its end. Fix: if the client is gone, only its writes run.
#[test]
fn a_transaction_of_a_gone_client_runs_only_its_writes() {
    let mut talk = Talk::new();
    talk.check("HIT k", ":1|");
    talk.check("MULTI", "+OK|");
    let slow = 8 * OUTPUT_BYTES / talk.ask("COMMAND DOCS").len().max(10_000);
    let mut queue = |line: &str| talk.check(line, "+QUEUED|");
    (0..slow).for_each(|_| queue("COMMAND DOCS"));
    for line in ["HIT a", "HITS a", "LIMIT b 1 1m", "PING", "MLIMIT c 1 1m", "CL.THROTTLE d 1 1 1", "DEL k"] {
        queue(line);
    }
    talk.first_of("EXEC");
    assert_eq!(talk.flow, Flow::More);
    let mut out = Vec::new();
    talk.flow = talk.session.resume(true, &mut Written::default(), &mut out);
    assert_eq!(talk.flow, Flow::Continue);
    let replies = barred(&out);
    assert!(
        replies.starts_with(":1|*5|:1|") && replies.ends_with("|:1|") && !replies.contains("PONG"),
        "{replies}"
    );
    assert_eq!(replies.matches("*5|").count(), 3, "{replies}");
    talk.check("EXISTS a b c d k", ":4|");
}

/// Symptom: a transaction of many slow commands with short replies kept its thread busy for seconds. Cause: `EXEC` paused
/// for other clients only at the output bound. Fix: it also pauses after a number of commands.
#[test]
fn other_clients_run_between_the_commands_of_exec() {
    let mut talk = Talk::new();
    for queued in [MAX_BATCH_ARGUMENTS / 2, MAX_BATCH_ARGUMENTS / 2 + 1] {
        talk.check("FLUSHALL", "+OK|");
        talk.check("MULTI", "+OK|");
        (0..queued).for_each(|_| talk.check("HIT k", "+QUEUED|"));
        assert_eq!(talk.first_of("EXEC"), format!("*{queued}|"));
        let mut parts = Vec::new();
        while talk.flow == Flow::More {
            let mut out = Vec::new();
            talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
            parts.push(barred(&out));
        }
        assert_eq!(talk.service.key_count(), 1);
        assert!(parts[0].starts_with(":1|:2|"));
        assert_eq!(parts.get(1), (queued > MAX_BATCH_ARGUMENTS / 2).then_some(&format!(":{queued}|")));
    }
}
