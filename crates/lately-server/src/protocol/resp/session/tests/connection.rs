//! Commands about the connection and the server.

use super::*;

#[test]
fn ping_echo_and_errors() {
    let script = [
        ("PING", "+PONG|"),
        ("ping hello", "$5|hello|"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command|"),
        ("ECHO 'a b'", "$3|a b|"),
        ("ECHO ''", "$0||"),
        ("SELECT 0", "+OK|"),
        ("SELECT 1", "-ERR DB index is out of range|"),
        ("SELECT x", NOT_INTEGER),
        (
            "GET k",
            "-ERR unknown command 'GET', with args beginning with: 'k' (use HITS key [window]: it returns the hits of a window)|",
        ),
        ("PUBLIC k", "-ERR unknown command 'PUBLIC', with args beginning with: 'k' |"),
        ("CLUSTER INFO", "-ERR This instance has cluster support disabled|"),
        // Text of a client cannot look like a separate reply.
        ("\"X\\r\\n+OK\\r\\n\"", "-ERR unknown command 'X  +OK  ', with args beginning with: |"),
    ];
    Talk::new().check_all(&script);
    Talk::v3().check_all(&script);
}

#[test]
fn hello_switches_the_protocol_before_its_reply() {
    let fields = |version: u8| {
        format!(
            "$6|server|$5|redis|$7|version|{}$5|proto|:{version}|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|",
            bulk(crate::REDIS_VERSION)
        )
    };
    let mut talk = Talk::new();
    talk.check("HELLO", &format!("*14|{}", fields(2)));
    talk.check("HELLO 3", &format!("%7|{}", fields(3)));
    talk.check("HELLO", &format!("%7|{}", fields(3)));
    talk.check("HELLO 2", &format!("*14|{}", fields(2)));
    talk.check("HELLO 3 AUTH default x SETNAME y", &format!("%7|{}", fields(3)));
    talk.check("CLIENT GETNAME", "$1|y|");
    talk.check("HELLO 2 setname z", &format!("*14|{}", fields(2)));
    talk.check("CLIENT GETNAME", "$1|z|");
}

#[test]
fn a_refused_hello_changes_nothing() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("HELLO 4", "-NOPROTO unsupported protocol version|"),
        ("HELLO 1", "-NOPROTO unsupported protocol version|"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range|"),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'|"),
        ("HELLO 3 NAME y", "-ERR Syntax error in HELLO option 'NAME'|"),
        ("HELLO 3 AUTH alice x SETNAME y", "-WRONGPASS invalid username-password pair or user is disabled.|"),
        (
            "HELLO 3 SETNAME 'a b'",
            "-ERR Client names cannot contain spaces, newlines or special characters.|",
        ),
        ("CLIENT GETNAME", "$-1|"),
    ]);
}

#[test]
fn auth_knows_the_default_user() {
    Talk::new().check_all(&[
        ("AUTH default x", "+OK|"),
        ("AUTH alice x", "-WRONGPASS invalid username-password pair or user is disabled.|"),
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?|",
        ),
        ("AUTH a b c", SYNTAX),
    ]);
}

#[test]
fn client_info_shows_its_settings() {
    let mut talk = Talk::new();
    talk.check_all(&[
        ("CLIENT ID", ":1|"),
        ("CLIENT GETNAME", "$-1|"),
        ("CLIENT SETNAME y", "+OK|"),
        ("CLIENT GETNAME", "$1|y|"),
        ("CLIENT SETINFO LIB-NAME some-client", "+OK|"),
        ("CLIENT SETINFO lib-ver 1.2", "+OK|"),
        ("CLIENT SETINFO LIB-AGE 3", "-ERR Unrecognized option 'LIB-AGE'|"),
        ("CLIENT NO-EVICT ON", "+OK|"),
        ("CLIENT NO-TOUCH OFF", "+OK|"),
        ("CLIENT REPLY ON", "+OK|"),
        ("CLIENT TRACKING OFF", "+OK|"),
        ("CLIENT TRACKING ON", "-ERR client tracking is not supported|"),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command|"),
        ("CLIENT MAINT_NOTIFICATIONS ON", "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.|"),
    ]);
    talk.clock.set(seconds(NOW_S + 7));
    let line = |name: &str, age: u8, protocol: u8, command: &str| {
        format!(
            "id=1 addr=127.0.0.1:50000 laddr=127.0.0.1:7379 name={name} age={age} idle=7 flags=N db=0 sub=0 psub=0 multi=-1 cmd={command} user=default lib-name=some-client lib-ver=1.2 resp={protocol}\n"
        )
    };
    let expected = bulk(&line("y", 7, 2, "client|info")).replace("client|", "client\\|");
    talk.check("CLIENT INFO", &expected);
    talk.check("CLIENT SETNAME ''", "+OK|");
    talk.check("CLIENT GETNAME", "$-1|");
    assert!(talk.ask("HELLO 3").starts_with('%'));
    talk.check("CLIENT GETNAME", "_|");
    talk.clock.set(seconds(NOW_S + 14));
    let second = connect(&talk.service);
    let list = talk.ask("CLIENT LIST");
    let (head, lines) = list.split_once("|txt:").expect("a verbatim string");
    // The text has one bar for its line end, and one escaped bar that was sent.
    assert_eq!(head, format!("={}", lines.len() - 2 + "txt:".len()));
    let (first_line, second_line) = lines.split_once('\n').expect("two lines");
    assert_eq!(format!("{first_line}\n"), line("", 14, 3, "client\\|list"));
    assert!(second_line.starts_with("id=2 ") && second_line.ends_with("resp=2\n|"), "{second_line}");
    talk.service.clients.disconnect(&second.client);
    assert_eq!(talk.info("connected_clients"), "1");
}

/// The values of `flags`, `multi` and `cmd` of the second of two clients, in `CLIENT LIST` as sent to the first.
fn shown(talk: &mut Talk) -> String {
    let list = talk.ask("CLIENT LIST ID 2");
    let fields = list.split_whitespace().filter_map(|field| field.split_once('='));
    let wanted = fields.filter(|(name, _)| ["flags", "multi", "cmd"].contains(name));
    wanted.map(|(_, value)| value).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_client_is_shown_with_its_last_command_and_its_transaction() {
    let mut asking = Talk::new();
    let mut other = asking.twin();
    assert_eq!(shown(&mut asking), "N -1 NULL");
    for (line, expected) in [
        ("HIT k", "N -1 hit"),
        ("client setname y", "N -1 client\\|setname"),
        ("HIT k x", "N -1 hit"),
        ("NOSUCH", "N -1 NULL"),
        ("CLIENT NOSUCH", "N -1 NULL"),
        ("MULTI", "x 0 multi"),
        ("HIT k", "x 1 hit"),
        ("HIT k x", "x 2 hit"),
        ("HIT", "x 2 hit"),
        ("DISCARD", "N -1 discard"),
        ("MULTI", "x 0 multi"),
        ("HIT k", "x 1 hit"),
        ("EXEC", "N -1 exec"),
    ] {
        other.ask(line);
        assert_eq!(shown(&mut asking), expected, "{line}");
    }
    // After a pipeline, the last command is shown.
    other.send(b"PING\nHIT a\nHIT b\nHITS a\nHITS b\n", 5);
    assert_eq!(shown(&mut asking), "N -1 hits");
    other.ask("MULTI");
    let inside = other.ask("CLIENT INFO");
    assert_eq!(inside, "+QUEUED|");
    assert_eq!(other.ask("CLIENT LIST"), "+QUEUED|");
    let reply = other.ask("EXEC");
    assert_eq!(reply.matches(" flags=x db=0 sub=0 psub=0 multi=2 cmd=exec ").count(), 2, "{reply}");
    assert_eq!(shown(&mut asking), "N -1 exec");
}

#[test]
fn clients_are_listed_by_id_and_type() {
    let mut talk = Talk::new();
    let _others = [(); 3].map(|()| connect(&talk.service));
    let mut check = |filter: &str, expected: &[&str]| {
        let list = talk.ask(&format!("CLIENT LIST {filter}"));
        let ids: Vec<&str> = list
            .split_whitespace()
            .filter_map(|field| field.rsplit('|').next()?.strip_prefix("id="))
            .collect();
        assert_eq!(ids, expected, "{filter}");
    };
    check("TYPE normal", &["1", "2", "3", "4"]);
    check("TYPE pubsub", &[]);
    check("ID 3", &["3"]);
    // Each client is listed once, in the order of the ids.
    check("ID 4 99 2 4 -1 0", &["2", "4"]);
    check("ID 99", &[]);
    talk.check("CLIENT LIST ID x", "-ERR Invalid client ID|");
}

/// Symptom: the names of clients took memory that was not accounted for, and made a `CLIENT LIST` of tens of
/// megabytes. Cause: a name could have a kilobyte. Fix: it has at most 128 bytes.
#[test]
fn names_of_clients_are_bounded() {
    let mut talk = Talk::new();
    let most = "n".repeat(lately_resp::limits::MAX_CLIENT_NAME_BYTES);
    for what in ["SETNAME", "SETINFO LIB-NAME", "SETINFO LIB-VER"] {
        talk.check(&format!("CLIENT {what} {most}"), "+OK|");
        let refused = talk.ask(&format!("CLIENT {what} {most}n"));
        assert!(refused.ends_with(" is too long: it has at most 128 bytes|"), "{refused}");
    }
    assert!(3 * most.len() < crate::limits::CONNECTION_BYTES / 4);
    // With the longest addresses and times, a line is below three quarters of a kilobyte.
    let longest = 2 * ("[]:65535".len() + 39) + 3 * 20;
    let list = talk.ask("CLIENT LIST");
    assert!(list.len() + longest < 768, "{}", list.len());
}

#[test]
fn reset_and_quit() {
    let mut talk = Talk::v3();
    talk.check_all(&[
        ("CLIENT SETNAME y", "+OK|"),
        ("CLIENT SETINFO LIB-NAME some-client", "+OK|"),
        ("CLIENT SETINFO LIB-VER 1.2", "+OK|"),
        ("RESET", "+RESET|"),
        ("CLIENT GETNAME", "$-1|"),
        ("RATE k", "$1|0|"),
    ]);
    // The library name and version stay.
    assert!(talk.ask("CLIENT INFO").contains(" name= "));
    assert!(talk.ask("CLIENT INFO").contains(" lib-name=some-client lib-ver=1.2 resp=2"));
    assert_eq!(talk.flow, Flow::Continue);
    talk.check("QUIT", "+OK|");
    assert_eq!(talk.flow, Flow::Close);
}

#[test]
fn shutdown_stops_without_a_reply() {
    for line in ["SHUTDOWN", "SHUTDOWN NOSAVE", "shutdown save now force"] {
        let mut talk = Talk::new();
        talk.check(line, "");
        assert_eq!(talk.flow, Flow::Shutdown);
    }
    let mut talk = Talk::new();
    talk.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.|");
    talk.check("SHUTDOWN SAVE NOSAVE", SYNTAX);
    assert_eq!(talk.flow, Flow::Continue);
}

#[test]
fn commands_are_described() {
    let script = |talk: &mut Talk, starts: [&str; 4]| {
        let lines = ["COMMAND", "COMMAND INFO hit nosuch", "COMMAND DOCS", "COMMAND DOCS hit nosuch"];
        for (line, start) in lines.into_iter().zip(starts) {
            let reply = talk.ask(line);
            assert!(reply.starts_with(start), "{line}: {reply:.40}");
        }
        assert!(talk.ask("COMMAND HELP").starts_with("*13|+COMMAND <subcommand>"));
        talk.check("COMMAND COUNT", ":45|");
        assert!(talk.ask("COMMAND LIST").starts_with("*45|$3|hit|"));
    };
    script(&mut Talk::new(), ["*45|*10|", "*2|*10|$3|hit|", "*90|$3|hit|", "*2|$3|hit|*10|"]);
    script(&mut Talk::v3(), ["*45|*10|", "*2|*10|$3|hit|", "%45|$3|hit|", "%1|$3|hit|%5|"]);
}

#[test]
fn config_get_finds_by_pattern() {
    let script = [
        ("CONFIG GET save", "$4|save|$0||"),
        ("CONFIG GET APPENDONLY", "$10|appendonly|$2|no|"),
        ("CONFIG GET max*", "$10|maxclients|$5|10000|$9|maxmemory|$10|1073741824|"),
        ("CONFIG GET port databases", "$9|databases|$1|1|$4|port|$4|7379|"),
        ("CONFIG GET nosuch", ""),
    ];
    for (line, fields) in script {
        let found = fields.matches('$').count() / 2;
        Talk::new().check(line, &format!("*{}|{fields}", found * 2));
        Talk::v3().check(line, &format!("%{found}|{fields}"));
    }
    Talk::new().check_all(&[
        ("CONFIG RESETSTAT", "-ERR CONFIG RESETSTAT is not supported: counters begin anew at a start|"),
        ("CONFIG SET save x", "-ERR CONFIG SET is not supported: settings come from the config file|"),
        ("CONFIG REWRITE", "-ERR CONFIG REWRITE is not supported: settings come from the config file|"),
    ]);
}

/// Symptom: one request with fifty patterns of a megabyte, or 128 of a kilobyte, kept other clients waiting. Cause: each
/// byte of the patterns is compared with the names. Fix: the bytes of all patterns together have a bound.
#[test]
fn patterns_of_config_get_have_bounds() {
    let mut talk = Talk::new();
    let many = |count: usize| format!("CONFIG GET{}", " x".repeat(count));
    let long =
        |bytes: usize| format!("CONFIG GET xx{}", format!(" *[{}]", "a".repeat(bytes / 2 - 4)).repeat(2));
    talk.check(&many(128), "*0|");
    talk.check(&many(129), "-ERR CONFIG GET takes at most 128 patterns|");
    talk.check(&long(1_024), "*0|");
    talk.check(&long(1_026), "-ERR CONFIG GET takes at most 1024 bytes of patterns|");
}

#[test]
fn time_returns_the_time_of_the_clock() {
    let mut talk = Talk::new();
    talk.check("TIME", "*2|$10|1700000040|$1|0|");
    talk.clock.set(Timestamp::from_millis(1_700_000_040_250).expect("in range"));
    talk.check("TIME", "*2|$10|1700000040|$6|250000|");
}

#[test]
fn info_has_the_fields_clients_parse() {
    let mut talk = Talk::new();
    talk.clock.set(seconds(NOW_S + 86_401));
    talk.check("MHIT a 1 b 2", "*2|:1|:2|");
    for (field, value) in [
        ("redis_version", crate::REDIS_VERSION),
        ("redis_mode", "standalone"),
        ("tcp_port", "7379"),
        ("uptime_in_seconds", "86401"),
        ("uptime_in_days", "1"),
        ("connected_clients", "1"),
        ("maxclients", "10000"),
        ("maxmemory", "1073741824"),
        ("maxmemory_human", "1.00G"),
        ("blocked_clients", "0"),
        ("rdb_bgsave_in_progress", "0"),
        ("instantaneous_ops_per_sec", "0"),
        ("loading", "0"),
        ("total_hits", "3"),
        ("refused_hits", "0"),
        ("evicted_keys", "0"),
        ("role", "master"),
        ("cluster_enabled", "0"),
        ("db0", "keys=2,expires=2"),
    ] {
        assert_eq!(talk.info(field), value, "{field}");
    }
    assert_ne!(talk.info("used_memory"), "0");
    assert!(talk.info("used_memory_human").ends_with(['B', 'K']));
    // Other tests of this process may have started programs.
    let of_children = talk.info("used_cpu_sys_children");
    assert!(of_children.len() >= 8 && of_children.parse::<f64>().is_ok(), "{of_children}");
    for field in ["used_cpu_sys", "used_cpu_user"] {
        assert!(talk.info(field).parse::<f64>().is_ok_and(|seconds| seconds >= 0.0), "{field}");
    }
    talk.check("INFO replication", "$48|# Replication|role:master|connected_slaves:0||");
    talk.check("INFO nosuch", "$0||");
    let sections = talk.ask("info KEYSPACE cluster");
    assert!(sections.contains("# Cluster|cluster_enabled:0||# Keyspace|db0:"), "{sections}");
    assert_eq!(talk.ask("INFO everything").matches("# ").count(), 11);
    talk.check("FLUSHALL", "+OK|");
    assert!(talk.ask("INFO").ends_with("||# Keyspace||"));
    let mut talk = Talk::v3();
    assert!(talk.ask("INFO cluster").starts_with("=34|txt:# Cluster|cluster_enabled:0||"));
}

#[test]
fn instantaneous_ops_covers_the_last_seconds() {
    let mut talk = Talk::new();
    talk.service.note_throughput();
    talk.send(&b"PING\n".repeat(500), 500);
    talk.clock.set(seconds(NOW_S + 1));
    assert_eq!(talk.info("instantaneous_ops_per_sec"), "500");
}

/// Symptom: two `HIT a 9223372036854775807` made `total_hits` run backward. Cause: the counters wrapped. Fix: they
/// saturate at the largest integer of RESP.
#[test]
fn counters_never_run_backward() {
    let mut talk = Talk::new();
    let fields = ["total_hits", "refused_hits", "denied_hits", "total_commands_processed"];
    let mut before = [0; 4];
    for line in [
        "HIT a 9223372036854775807",
        "HIT b 9223372036854775807",
        "HIT a 9223372036854775807",
        "HIT b 9223372036854775807",
        "HIT b 9223372036854775807",
        "LIMIT c 0 1m COST 9223372036854775807",
        "LIMIT c 0 1m COST 9223372036854775807",
        "LIMIT c 0 1m COST 9223372036854775807",
        "MLIMIT d 0 1m e 0 1m f 0 1m COST 9223372036854775807",
        "MHIT g 9223372036854775807 h 9223372036854775807 i 9223372036854775807",
    ] {
        talk.ask(line);
        let after = fields.map(|field| talk.info(field).parse().expect("an integer of RESP"));
        let ran_on = before.iter().zip(&after).all(|(before, after): (&i64, &i64)| before <= after);
        assert!(ran_on, "{line}: {before:?} {after:?}");
        before = after;
    }
    assert_eq!(before[..3], [i64::MAX; 3]);
    let metrics: String = crate::protocol::http::metrics::pieces(&talk.service).collect();
    for name in ["lately_hits_total", "lately_hits_refused_total", "lately_hits_denied_total"] {
        assert!(metrics.contains(&format!("\n{name} 9223372036854775807\n")), "{metrics}");
    }
}

#[test]
fn commands_for_keys_are_refused_while_loading() {
    let storage = Some(crate::Storage::default());
    let mut talk = Talk::with(Config { storage, ..Config::default() });
    let loading = "-LOADING Lately is loading the dataset in memory|";
    for command in ["HIT k", "HITS k", "MHIT k 1", "DEL k", "SCAN 0", "DBSIZE", "FLUSHALL", "PING", "BGSAVE"]
    {
        talk.check(command, loading);
    }
    assert!(talk.ask("HELLO 3").starts_with("%7|"));
    talk.check("CLIENT SETNAME me", "+OK|");
    assert_eq!(talk.info("loading"), "1");
    talk.check("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: |");
}

/// Symptom: of a pipeline `MULTI HIT HIT EXEC`, one hit counted, and `EXEC` was an error. Cause: `MULTI` was refused, and the load ended
/// before the next command. Fix: as in Redis, a transaction may begin, and a command that is refused aborts it.
#[test]
fn a_transaction_over_the_end_of_loading_runs_not_at_all() {
    let storage = Some(crate::Storage::default());
    let mut talk = Talk::with(Config { storage, ..Config::default() });
    let loading = "-LOADING Lately is loading the dataset in memory|";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
    for ends_before_exec in [false, true] {
        for (command, expected) in [("MULTI", "+OK|"), ("HIT k", loading), ("HIT k", loading)] {
            talk.check(command, expected);
        }
        if ends_before_exec {
            talk.service.loaded_nothing();
            talk.check("HIT k", "+QUEUED|");
        }
        talk.check("EXEC", aborted);
    }
    talk.check("HITS k", ":0|");
    talk.check("EXEC", "-ERR EXEC without MULTI|");
}

/// 600 idle clients.
fn crowd(talk: &Talk) -> Vec<Arc<crate::service::clients::Client>> {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    (0..600).map(|_| talk.service.clients.connect(address, address, talk.service.now())).collect()
}

#[test]
fn a_long_list_of_clients_is_written_in_slices() {
    let mut talk = Talk::new();
    let crowd = crowd(&talk);
    assert_eq!((talk.first_of("CLIENT LIST"), talk.flow), (String::new(), Flow::More));
    let mut out = Vec::new();
    let mut held = Vec::new();
    while talk.flow == Flow::More {
        assert!(out.is_empty());
        held.push(talk.session.held_bytes());
        talk.flow = talk.session.resume(false, &mut Written::default(), &mut out);
    }
    assert_eq!(held.len(), 601_usize.div_ceil(crate::limits::CLIENTS_STEP));
    assert!(
        held[2] > 2 * crate::limits::CLIENTS_STEP * "id=1 addr= laddr= name= age= idle=".len(),
        "{held:?}"
    );
    assert_eq!(talk.session.held_bytes(), 0);
    let list = String::from_utf8(out).expect("text");
    let (head, lines) = list.split_once("\r\n").expect("a bulk string");
    assert_eq!(head, format!("${}", lines.len() - "\r\n".len()));
    let lines: Vec<&str> = lines.trim_end().lines().collect();
    assert_eq!(lines.len(), 601);
    assert!(lines[0].contains(" cmd=client|list "), "{}", lines[0]);
    // The same in a transaction, and after some of the clients have left.
    crowd[..100].iter().for_each(|client| talk.service.clients.disconnect(client));
    assert_eq!(talk.ask("MULTI") + &talk.ask("CLIENT LIST") + &talk.ask("PING"), "+OK|+QUEUED|+QUEUED|");
    let reply = talk.ask("EXEC");
    assert!(reply.starts_with("*2|$") && reply.ends_with("|+PONG|"), "{reply:.20}");
    assert_eq!(reply.matches("laddr=").count(), 501);
}

#[test]
fn an_error_about_the_ceiling_names_the_users_of_memory() {
    const MIB: usize = 1 << 20;
    let mut talk = Talk::with(Config { ceiling_bytes: MIB as u64, ..Config::default() });
    talk.service.charge(0, MIB);
    let full = "-OOM the memory ceiling of 1048576 bytes is reached, and no key may be evicted: ";
    let others = "connections, sources, the journal and other nodes take";
    talk.check("HIT k", &format!("{full}{others} 1048576 bytes|"));
    talk.service.charge(MIB, MIB / 2);
    let reply = (0..20_000)
        .map(|n| talk.ask(&format!("LIMIT k{n} 1 1h LOCKOUT 1d COST 2")))
        .find(|reply| reply.starts_with('-'));
    assert_eq!(reply, Some(format!("{full}their limits are in force, and {others} 524288 bytes|")));
    talk.service.charge(MIB / 2, 0);
    let reply = (20_000..60_000)
        .map(|n| talk.ask(&format!("LIMIT k{n} 1 1h LOCKOUT 1d COST 2")))
        .find(|reply| reply.starts_with('-'));
    assert_eq!(reply, Some(format!("{full}their limits are in force|")));
}
