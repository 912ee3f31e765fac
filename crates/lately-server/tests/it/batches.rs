//! Pipelines of all kinds of commands, cut anywhere, have the same replies as their commands sent one by one to another
//! server.

use lately_resp::write_request;

use crate::common::{Lots, Running};

const COMMANDS: [&str; 24] = [
    "HIT k",
    "HIT k",
    "HIT l 2 AT 1700000000",
    "HIT k AT 5",
    "HIT",
    "MHIT k 1 l 2 m 3",
    "HITS k",
    "HITS l 1m 1d",
    "HITS l BOUNDS",
    "MHITS 5m k l m",
    "RATE k",
    "SERIES k 1h 1s",
    "DEL k",
    "EXISTS k l m",
    "FLUSHALL",
    "TTL k",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "HELLO 3",
    "RESET",
    "NOSUCH",
    "CONFIG GET max*",
];

#[test]
fn a_cut_pipeline_answers_as_its_commands_one_by_one() {
    for seed in 0..12 {
        let (single_server, server) = (Running::start(), Running::start());
        let (mut single, mut piped) = (single_server.connect(), server.connect());
        let mut lots = Lots::from_seed(seed);
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let line = COMMANDS[lots.below(COMMANDS.len())];
            let mut request = Vec::new();
            if lots.below(3) == 0 {
                request.extend_from_slice(format!("{line}\r\n").as_bytes());
            } else {
                write_request(&mut request, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            }
            single.send(&request);
            single.reply(&mut replies);
            requests.append(&mut request);
        }
        // The stream ends with a framing error, whose reply comes last.
        requests.extend_from_slice(b"*1\r\n!\r\nPING\r\n");
        replies.extend_from_slice(b"-ERR Protocol error: expected '$', got '!'\r\n");
        let longest = [1, 30, 5_000, 100_000][usize::try_from(seed).expect("small") % 4];
        std::thread::scope(|scope| {
            let mut left = &requests[..];
            let mut sender = piped.other();
            scope.spawn(move || {
                while !left.is_empty() {
                    let (piece, rest) = left.split_at(left.len().min(1 + lots.below(longest)));
                    sender.send(piece);
                    left = rest;
                }
            });
            piped.expect(&replies);
        });
        piped.expect_rest("");
    }
}
