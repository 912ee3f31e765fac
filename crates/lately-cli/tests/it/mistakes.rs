//! Plausible mistakes and their exact errors, which name the wrong value and a right one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;

use crate::common::{command, lately};
use crate::running::serve;
use crate::wire::{Reply, Wire};

const LIMIT: &str = "Usage: LIMIT <key> (<max> <window>|<@name>) [COST <cost>] [PEEK] [OVERDRAFT] [LOCKOUT <lockout> [FACTOR <factor>] [MAX <longest>]] [AT <time>]";
const MLIMIT: &str = "Usage: MLIMIT <key> <max> <window> ... [COST <cost>] [PEEK] [AT <time>]";
const HIT: &str = "Usage: HIT <key> [<count>] [AT <time>] [ID <id>] [MEMBER <member>]";
const HITS: &str = "Usage: HITS <key> [<window> ...] [BOUNDS|DENIED|STALENESS|BY ORIGIN] [AT <time>]";
const COOLEST: &str = "Usage: COOLEST <k> [WINDOW <window>] [BELOW <n>] (<key> ...|PREFIX <prefix>)";
const TOP: &str = "Usage: TOP <k> [<window>] [PREFIX <prefix>] [BOUNDS]";
const UNIQ: &str = "Usage: UNIQ <key> [<window>] [BOUNDS]";
const SERIES: &str = "Usage: SERIES <key> <window> <step> [AT <time>]";
const THROTTLE: &str = "Usage: CL.THROTTLE <key> <max_burst> <count_per_period> <period> [<quantity>]";
const COUNT: &str = "give a whole number from 0 to 9223372036854775807";
const MLIMIT_NUMBERS: &str = "give numbers, such as 5 1m: MLIMIT takes max and window, and no @name";
const DURATION: &str = "give whole seconds or a number with ms, s, m, h, d or w, such as 300, 5m or 250ms, from 1ms to 1000000000s";

#[test]
fn requests() {
    let server = serve();
    let mut client = Wire::connect(&server.resp).expect("it listens");
    let mut check = |request: &str, expected: &str| {
        assert_eq!(client.ask(request), Reply::Error(expected.to_owned()), "{request}");
    };
    let kept = |window| {
        format!(
            "invalid window {window}: hits of this key are kept for 7d (`retain`), a limit can ask for no more"
        )
    };
    for (request, error, usage) in [
        ("HIT k abc", format!("invalid count 'abc': {COUNT}"), HIT),
        ("HIT k 1.5", format!("invalid count '1.5': {COUNT}"), HIT),
        ("HIT k -1", format!("invalid count '-1': {COUNT}"), HIT),
        ("HIT k 1 2", "unexpected argument '2'".into(), HIT),
        ("HIT", "wrong number of arguments for 'hit' command".into(), HIT),
        ("HIT k AT", "AT needs a time, such as 1700000000, after it".into(), HIT),
        (
            "HIT k AT 1795612808000",
            "invalid time '1795612808000': it looks like milliseconds: give Unix seconds, 1795612808".into(),
            HIT,
        ),
        (
            "HIT k AT 2026-11-25",
            "invalid time '2026-11-25': give Unix seconds from 0 to 253402300799, such as 1700000000 or 1700000000.25"
                .into(),
            HIT,
        ),
        (
            "HITS a b 5m",
            "invalid duration 'b': HITS takes one key. For several: MHITS 5m key key".into(),
            HITS,
        ),
        ("UNIQ k AT 5", "unexpected argument 'AT': UNIQ counts until now".into(), UNIQ),
        ("HITS k 5min", format!("invalid duration '5min': {DURATION}"), HITS),
        (
            "HITS a 5m BOUNDS 1h",
            "unexpected argument '1h': windows come before BOUNDS, DENIED, STALENESS, BY ORIGIN and AT".into(),
            HITS,
        ),
        ("LIMIT k 1m 5", format!("invalid max '1m': {COUNT}"), LIMIT),
        ("LIMIT k 5/1m", "invalid max '5/1m': give max and window as two arguments, such as 5 1m".into(), LIMIT),
        ("LIMIT k 5/min", "invalid max '5/min': give max and window as two arguments, such as 5 1m".into(), LIMIT),
        ("LIMIT k 5", "wrong number of arguments for 'limit' command".into(), LIMIT),
        ("LIMIT k 5 1m LOCKOUT", "LOCKOUT needs a duration, such as 5m, after it".into(), LIMIT),
        ("LIMIT k 5 1m COST", "COST needs a number of hits after it".into(), LIMIT),
        ("LIMIT k 5 1m PEEK PEEK", "PEEK is given twice".into(), LIMIT),
        (
            "MLIMIT a 5 1m b 10",
            "the limit of 'b' has no window: give key, max and window of each limit".into(),
            MLIMIT,
        ),
        ("MLIMIT a @login", format!("invalid max '@login': {MLIMIT_NUMBERS}"), MLIMIT),
        ("MLIMIT a 5/1m", "invalid max '5/1m': give max and window as two arguments, such as 5 1m".into(), MLIMIT),
        ("MLIMIT a 5 1m LOCKOUT 1m", "LOCKOUT does not go with MLIMIT".into(), MLIMIT),
        ("MLIMIT a 5 1m b 5 30d", format!("limit 2: {}", kept("30d")), MLIMIT),
        ("LIMIT k 5 30d", kept("30d"), LIMIT),
        ("LIMIT k @login", "no such limit 'login': the config has none".into(), LIMIT),
        (
            "LIMIT k @login LOCKOUT 1m",
            "LOCKOUT does not go with @name: the limit has its own in the config".into(),
            LIMIT,
        ),
        ("HIT k MEMBER \"\"", "invalid member of 0 bytes: a member has 1 to 256 bytes".into(), HIT),
        ("HIT k ID \"\"", "invalid id of 0 bytes: an id has 1 to 256 bytes".into(), HIT),
        ("HIT \"\"", "invalid key of 0 bytes: a key has 1 to 1024 bytes".into(), HIT),
        ("HITS k 1h 7d BOUNDS", "unexpected argument '7d': BOUNDS takes at most one window".into(), HITS),
        ("HITS k 1h 7d DENIED", "unexpected argument '7d': DENIED takes at most one window".into(), HITS),
        ("HITS k DENIED BOUNDS", "BOUNDS does not go with DENIED".into(), HITS),
        (
            "SERIES k 5m 1500ms",
            "invalid step 1500ms: give a multiple of the key's resolution, 1s".into(),
            SERIES,
        ),
        (
            "SERIES k 7d 1s",
            "604800 points are too many: a series has at most 100000; give a wider step".into(),
            SERIES,
        ),
        ("COOLEST 1 PREFIX", "PREFIX needs what keys begin with, such as server:, after it".into(), COOLEST),
        ("COOLEST 1 PREFIX a b", "unexpected argument 'b': one PREFIX takes the place of all keys".into(), COOLEST),
        ("COOLEST 1 PREFIX \"\"", "invalid prefix '': give 1 to 1024 bytes that keys begin with".into(), COOLEST),
        (
            "COOLEST 1 a WINDOW 5m",
            "unexpected argument 'WINDOW': WINDOW and BELOW come before PREFIX and the keys".into(),
            COOLEST,
        ),
        ("COOLEST 1 a PREFIX b", "unexpected argument 'PREFIX': PREFIX takes the place of the keys".into(), COOLEST),
        ("TOP ten", "invalid k 'ten': give how many keys are wanted, 0 to 10000".into(), TOP),
        ("TOP 10 5x", format!("invalid duration '5x': {DURATION}"), TOP),
        ("TOP 10 5m 1h", "unexpected argument '1h': one window comes before PREFIX and BOUNDS".into(), TOP),
        ("COOLEST a b", "invalid k 'a': give how many keys are wanted, 0 to 16384".into(), COOLEST),
        ("CL.THROTTLE k 15 30 1m", "invalid period '1m': give whole seconds, from 1 to 1000000000".into(), THROTTLE),
        ("CL.THROTTLE k 15 0 60", "zero rates are not supported".into(), THROTTLE),
        (
            "CL.THROTTLE k 1000000000000000 1 1000000000",
            "invalid rate: max_burst hits at this rate would take longer than 146 million years".into(),
            THROTTLE,
        ),
        ("CL.THROTTLE k 15 30", "wrong number of arguments for 'cl.throttle' command".into(), THROTTLE),
    ] {
        check(request, &format!("ERR {error}. {usage}"));
    }
    for (request, expected) in [
        (
            "INCR k",
            "unknown command 'INCR', with args beginning with: 'k' (use HIT key [count]: it counts hits and returns those of the last window)",
        ),
        (
            "GET k",
            "unknown command 'GET', with args beginning with: 'k' (use HITS key [window]: it returns the hits of a window)",
        ),
        (
            "EXPIRE k 60",
            "unknown command 'EXPIRE', with args beginning with: 'k' '60' (hits expire by themselves: the window is an argument of HITS and LIMIT, `retain` of a [[class]] in the config says how long keys stay)",
        ),
        (
            "ZADD k 1 a",
            "unknown command 'ZADD', with args beginning with: 'k' '1' 'a' (use HIT key [count] [AT time]: a key holds hits and their times)",
        ),
        ("KEYS *", "unknown command 'KEYS', with args beginning with: '*' (use SCAN cursor [MATCH pattern])"),
    ] {
        check(request, &format!("ERR {expected}"));
    }
    let Reply::Error(future) = client.ask("HIT k AT 99999999999") else { panic!("it is far ahead") };
    assert!(
        future.starts_with(
            "FUTURE hit at 99999999999 is too far ahead of the clock, the latest time taken is "
        )
    );
    assert!(future.ends_with(": max_skew is 10s"), "{future}");
}

#[test]
fn command_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("notes"), "").expect("a file");
    let path = folder.path().to_str().expect("text");
    let check = |line: &str, cause: &str, hint: &str| {
        let args: Vec<String> = line.split(' ').map(|word| word.replace("FOLDER", path)).collect();
        let run = lately(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let expected = format!("lately: {cause}\nhint: {hint}\n");
        let message = run.err.replace(path, "FOLDER");
        assert_eq!(
            (message.as_str(), run.out.as_str(), run.code),
            (expected.as_str(), "", Some(2)),
            "{line}"
        );
    };
    let unexpected = |flag: &str| format!("command line: unexpected argument '{flag}' found");
    let address = |address: &str| format!("command line: --resp <ADDR>: invalid address '{address}'");
    let see = "see lately serve --help";
    let name_a_file = "name a file with --output FILE, or redirect standard output";
    let resp = "use --resp 127.0.0.1:PORT; HTTP has its own port, --http 127.0.0.1:PORT";
    check("serve --port 6379", &unexpected("--port"), resp);
    check("serve -p 6379", &unexpected("-p"), resp);
    check("serve --bind 0.0.0.0", &unexpected("--bind"), "use --resp ADDR:PORT and --http ADDR:PORT");
    check("serve --dir /var/lib", &unexpected("--dir"), "use --data DIR");
    check(
        "serve --maxmemory 1gb",
        &unexpected("--maxmemory"),
        "set ceiling = \"1GiB\" below [memory] in a config file, and pass it with --config",
    );
    check("hit k --port 6379", &unexpected("--port"), "use --server HOST:PORT");
    check("check --config lately.toml", &unexpected("--config"), "name the file alone: lately check FILE");
    check("hits k -w 5m", &unexpected("-w"), "use --window 5m");
    check(
        "count a.log --limit 5/1m",
        &unexpected("--limit"),
        "lately backtest FILE --limit 5/1m tries a limit on a log",
    );
    check("hits k --windows 5m", &unexpected("--windows"), "a similar argument exists: '--window'");
    check(
        "serve --resp 6379",
        &format!("{}: give an IP address, too, such as 127.0.0.1:6379", address("6379")),
        see,
    );
    check(
        "serve --resp localhost",
        &format!("{}: give a port, too: localhost:PORT", address("localhost")),
        see,
    );
    check(
        "serve --resp example.org:7379",
        &format!(
            "{}: give an IP address and a port, such as 127.0.0.1:7379 or [::1]:7379; names other than localhost are not looked up",
            address("example.org:7379")
        ),
        see,
    );
    check(
        "serve --resp 127.0.0.1:7000 --http localhost:7000",
        "serve: RESP and HTTP cannot both listen on 127.0.0.1:7000: give each its own port",
        "set another port with --resp or --http, or in the config file",
    );
    check(
        "serve --in-memory --resp 127.0.0.1:0 --http 127.0.0.1:7000 --metrics 127.0.0.1:7000",
        "serve: HTTP and metrics cannot both listen on 127.0.0.1:7000: give each its own port",
        "set another port with --http or --metrics, or in the config file",
    );
    check(
        "serve --in-memory --resp 203.0.113.9:7379 --insecure",
        "serve: 203.0.113.9 is no address of this machine",
        "0.0.0.0 listens on all of them",
    );
    check(
        "serve --resp ::1:7379",
        &format!("{}: an address of version 6 is in brackets: [::1]:7379", address("::1:7379")),
        see,
    );
    let tilde = |path: &str| {
        format!(
            "command line: invalid value '{path}' for '--data <DIR>': ~ and $ are a shell's to replace, and none reads this: write the whole path, or ./{path} if that is its name"
        )
    };
    check("serve --data ~/x", &tilde("~/x"), see);
    check("serve --data=$HOME/x", &tilde("$HOME/x"), see);
    check("restore FOLDER/notes --data=~/x", &tilde("~/x"), "see lately restore --help");
    // `/dev/ptmx` is the other end of a terminal, and counts as a terminal.
    for line in ["dump -o /dev/ptmx", "dump --data FOLDER/none --output /dev/ptmx"] {
        check(line, "dump: a dump is binary, not text for a terminal", name_a_file);
    }
    check("restore FOLDER", "FOLDER: it is a folder", "name a file that lately dump wrote");
    check(
        "restore FOLDER/notes --data FOLDER/none",
        "FOLDER/notes: the dump cannot be restored: it is no dump of lately",
        "nothing was restored",
    );
    check(
        "dump --data d --server X",
        "command line: the argument '--data <DIR>' cannot be used with '--server <ADDR>'",
        "usage: lately dump --data <DIR>",
    );
    check(
        "dump --http 127.0.0.1",
        "--http: invalid address '127.0.0.1': it has no port",
        "give HOST:PORT, such as 127.0.0.1:7380",
    );
    for (line, wrong) in [
        ("dump --http http://127.0.0.1:7380", "'http://127.0.0.1:7380': it begins with http://"),
        ("health --http 127.0.0.1:7380/readyz", "'127.0.0.1:7380/readyz': it has a path"),
        ("restore FOLDER/notes --http :7380", "':7380': it has no host"),
    ] {
        let error = format!("--http: invalid address {wrong}");
        check(line, &error, "give HOST:PORT, such as 127.0.0.1:7380");
    }
    check(
        "hit k --server :7379",
        "--server: invalid address ':7379'",
        "give HOST:PORT, such as 127.0.0.1:7379",
    );
    check(
        "serve --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0 --data FOLDER",
        "serve: FOLDER is no folder of counts: it has other files in it, such as notes",
        "name a folder of its own with --data: an empty one, or one that is not there yet",
    );
    check(
        "dump --data FOLDER -o FOLDER/none/dump",
        "FOLDER/none/dump: No such file or directory (os error 2)",
        "is there such a folder, with room for it, and may it be written?",
    );
    check(
        "serve --durability fsync",
        "command line: invalid value 'fsync' for '--durability <MODE>': give off, interval or always",
        see,
    );
    check(
        "count --window 5min -",
        &format!("command line: --window <W>: invalid duration '5min': {DURATION}"),
        "see lately count --help",
    );
    check(
        "limit k 5/1m",
        "command line: invalid value '5/1m' for '<MAX|@NAME>': give max and window as two arguments, such as 5 1m",
        "see lately limit --help",
    );
    check("limit k 5", "limit: a max of 5 needs a window", "give KEY MAX WINDOW, such as user:42 100 1m");
    check(
        "backtest - --limit 1m/5",
        "command line: --limit <MAX/WINDOW>: invalid limit '1m/5': invalid MAX '1m': give a whole number from 0 to 9223372036854775807, as in 100/1m",
        "see lately backtest --help",
    );
    check(
        "backtest - --limit 5/1m --config FOLDER/notes",
        "command line: the argument '--limit <MAX/WINDOW>' cannot be used with '--config <FILE>'",
        "usage: lately backtest <--limit <MAX/WINDOW>|--alert <NAME>> <FILE>...",
    );
    check(
        "count - --time {",
        "command line: --time <TEMPLATE>: invalid template '{': a '{' is not closed; give a field, such as ip, or a template, such as '{ip} {path}'",
        "see lately count --help",
    );
    check(
        "hit k abc",
        "command line: invalid value 'abc' for '[N]': give a whole number of hits, 0 to 9223372036854775807",
        "see lately hit --help",
    );
    check(
        "hit k --server localhost",
        "--server: invalid address 'localhost'",
        "give HOST:PORT, such as 127.0.0.1:7379",
    );
}

/// Symptom: `lately` panicked. Cause: a hint read the arguments as text. Fix: one that is no text is no command.
#[test]
fn arguments_that_are_no_text() {
    for args in [&[&b"-x\xff"[..]][..], &[b"\xff"], &[b"--\xff"], &[b"\xff", b"--nope"]] {
        let run = command(&[]).args(args.iter().map(|arg| OsStr::from_bytes(arg))).output().expect("it ends");
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(
            text.starts_with("lately: command line: ") && run.status.code() == Some(2),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn a_dump_to_a_terminal() {
    let terminal = File::options().read(true).write(true).open("/dev/ptmx").expect("a terminal");
    let run = command(&["dump"]).stdout(terminal).output().expect("it ends");
    let expected = "lately: dump: a dump is binary, not text for a terminal\nhint: name a file with --output FILE, or redirect standard output\n";
    assert_eq!((String::from_utf8_lossy(&run.stderr).as_ref(), run.status.code()), (expected, Some(2)));
}

#[test]
fn config_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lately.toml");
    let path = file.to_str().expect("text");
    let check = |text: &str, expected: &str| {
        std::fs::write(&file, text).expect("a file");
        let run = lately(&["check", path]);
        let expected =
            format!("lately: config: FILE:{expected}\nhint: lately serve would not start with it\n");
        assert_eq!((run.err.replace(path, "FILE"), run.code), (expected, Some(2)), "{text}");
    };
    let limit = |line: &str| format!("[[limit]]\nname = \"login\"\nmax = 5\nwindow = \"1m\"\n{line}\n");
    let with = |from: &str, to: &str| limit("").replace(from, to);
    check(
        &with("= 5", "= five"),
        "3:7: invalid max 'five': give a whole number from 0 to 9223372036854775807",
    );
    check(&with("\"1m\"", "1m"), "4:10: `1m` is not in quotes: write \"1m\"");
    check(&with("= 5", "= 05"), "3:7: `05` is no number of TOML: write 5");
    check(&with("= 5", "= 5,"), "3:8: `5,` ends with a `,`: leave it out");
    check(&with("= 5", "= -5"), "3:7: invalid max '-5': give a whole number from 0 to 9223372036854775807");
    check(
        &with("= 5", "= \"5/1m\""),
        "3:7: invalid max '5/1m': give a whole number from 0 to 9223372036854775807",
    );
    check(&with("1m", "1 min"), &format!("4:10: invalid duration '1 min': {DURATION}"));
    check(&with("max = 5\n", ""), "1:1: missing field `max`");
    check(&with("[[limit]]", "[limit]"), "1:2: write [[limit]], with two brackets: there may be several");
    check(
        &with("[[limit]]", "[[limits]]"),
        "1:3: unknown field `limits`, expected one of `server`, `storage`, `memory`, `class`, `limit`, `alert`, `user`, `cluster`, `history`, `otlp`",
    );
    check(&limit("shadow = yes"), "5:10: `yes` is no value of TOML: give true or false, without quotes");
    check(
        &limit("shadow = \"true\""),
        "5:10: invalid type: string \"true\", expected true or false, without quotes",
    );
    check("[storage]\npath = ./x\n", "2:8: `./x` is not in quotes: write \"./x\"");
    check(
        "[storage]\ndurability = \"fsync\"\n",
        "2:14: invalid durability 'fsync': give off, interval or always",
    );
    check(
        "[server]\nresp = 127.0.0.1:7379\n",
        "2:13: `127.0.0.1:7379` is not in quotes: write \"127.0.0.1:7379\"",
    );
    check(
        "[server]\nresp = 7379\n",
        "2:8: invalid address '7379': give an IP address, too, such as 127.0.0.1:7379",
    );
    check("resp = \"127.0.0.1:7379\"\n", "1:1: `resp` belongs below [server]");
    check("server:\n  resp: x\n", "1:8: write `server = …`: a key and its value have = between them");
    check(
        "[memory]\nceiling = \"1G\"\n",
        "2:11: invalid size '1G': give a whole number with KiB, MiB, GiB or TiB, such as 512MiB, from 1MiB to 128TiB",
    );
    check(
        "[memory]\nceiling = \"99999999TiB\"\n",
        "2:11: invalid size '99999999TiB': give a whole number with KiB, MiB, GiB or TiB, such as 512MiB, from 1MiB to 128TiB",
    );
    check(
        "[storage]\npath = \"~/x\"\n",
        "2:8: invalid path '~/x': ~ and $ are a shell's to replace, and none reads this: write the whole path, or ./~/x if that is its name",
    );
    check(
        "[[class]]\nmatch = \"*\"\n\n[[class]]\nmatch = \"ad:*\"\n",
        "5:9: no key gets to this class: '*', which comes before it, matches all its keys: move it to before that, or remove it",
    );
    check(
        &with("login", "@login"),
        "2:8: invalid name '@login': requests write the @, the config does not: login",
    );
    check(
        &with("login", "log in"),
        "2:8: invalid name 'log in': give 1 to 64 letters, digits, or any of _ - . :",
    );
    check("[server\nresp = \"x\"\n", "1:8: `[server` has no end: close it with ]");
}

/// A head that is refused before any route is asked has a document, too. It comes after the answers to the requests before it.
#[test]
fn heads_of_http() {
    let server = serve();
    let answer_to = |head: &str| {
        let mut socket = TcpStream::connect(&server.http).expect("it listens");
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it reads");
        let (mut answer, mut room) = (Vec::new(), [0; 4 << 10]);
        while !answer.ends_with(b"ok\n") {
            let count = socket.read(&mut room).expect("an answer");
            assert!(count > 0, "{:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&room[..count]);
        }
        socket.write_all(head.as_bytes()).expect("it reads");
        answer.clear();
        socket.read_to_end(&mut answer).expect("the connection ends in order");
        String::from_utf8(answer).expect("text")
    };
    let bounds = "the head of a request has at most 16 KiB and 100 headers";
    let no_request = "this is no request of HTTP/1.1: a line such as 'GET /v1/hits/a HTTP/1.1', then headers";
    let long = "x".repeat(17 << 10);
    for (head, status, title, detail) in [
        (format!("GET /v1/hits/k HTTP/1.1\r\na: {long}\r\n\r\n"), 431, "too large", bounds),
        (format!("GET /v1/hits/{long} HTTP/1.1\r\n\r\n"), 431, "too large", bounds),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101)), 431, "too large", bounds),
        ("GET\r\n\r\n".to_owned(), 400, "invalid request", no_request),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "invalid request", no_request),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400, "invalid request", no_request),
        ("\u{1}\u{2}\u{3} / HTTP/1.1\r\n\r\n".to_owned(), 400, "invalid request", no_request),
        (
            "GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(),
            400,
            "invalid request",
            no_request,
        ),
        (
            "POST /v1/hit/a#b HTTP/1.1\r\n\r\n".to_owned(),
            400,
            "invalid target",
            "a target has no '#': write %23 for one in a key",
        ),
    ] {
        let answer = answer_to(&head);
        let (head_of_answer, body) = answer.split_once("\r\n\r\n").expect(&answer);
        assert!(head_of_answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:.40}: {answer}");
        assert!(head_of_answer.contains("\r\ncontent-type: application/problem+json\r\n"), "{answer}");
        let expected = format!(r#"{{"title":"{title}","status":{status},"detail":"{detail}"}}"#);
        assert_eq!(body, expected, "{head:.40}");
    }
    assert_eq!(server.ask::<u64>("DBSIZE"), 0);
}
