//! Users and TLS, with the clients of the command line, redis-cli, redis-py and curl.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use test_support::Certificates;

use crate::common::{Run, has, installed, lately};
use crate::running::{FREE, Running, start};

/// A server with the users `default`, `web` and `backup`, and TLS for clients with a certificate if that is `tls`.
fn serve(certificates: &Certificates, tls: bool) -> Running {
    let file = |name: &str| certificates.file(name).display().to_string();
    let mut text = format!("[server]\npassword_file = \"{}\"\n", file("d.pw"));
    if tls {
        let (cert, key, ca) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        text += &format!("tls = {{ cert = \"{cert}\", key = \"{key}\", client_ca = \"{ca}\" }}\n");
    }
    for (name, keys, verbs) in
        [("web", "web:*", "\"read\", \"hit\", \"limit\""), ("backup", "*", "\"admin\"")]
    {
        let password = file(&format!("{name}.pw"));
        text += &format!(
            "[[user]]\nname = \"{name}\"\npassword_file = \"{password}\"\nkeys = [\"{keys}\"]\nverbs = [{verbs}]\n"
        );
    }
    for (name, password) in
        [("d", "d-secret"), ("web", "w-secret\n"), ("backup", "b-secret\nmore"), ("no", "no")]
    {
        fs::write(certificates.file(&format!("{name}.pw")), password).expect("room");
    }
    let config = file("lately.toml");
    fs::write(&config, text).expect("room");
    start(&[&FREE, &["--in-memory", "--config", &config][..]].concat())
}

/// Runs a client. FOLDER/ in an argument stands for the folder of the files.
fn client(server: &Running, certificates: &Certificates, line: &str) -> Run {
    let folder = certificates.file("").display().to_string();
    let words: Vec<String> = line.split(' ').map(|word| word.replace("FOLDER/", &folder)).collect();
    let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
    args.extend(["--server", &server.resp]);
    lately(&args)
}

/// Checks what clients print. An exit code of 2 is an error.
fn check(server: &Running, certificates: &Certificates, access: &str, script: &[(&str, i32, &str)]) {
    for (line, code, expected) in script {
        let run = client(server, certificates, &format!("{line}{access}"));
        assert_eq!(run.code, Some(*code), "{line}: {}{}", run.out, run.err);
        let printed = if *code == 2 { &run.err } else { &run.out };
        assert!(printed.contains(expected), "{line}: {printed}");
        assert!(!run.err.contains("secret") && !run.out.contains("secret"), "{line}: {}", run.err);
    }
}

#[test]
fn clients_log_in() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    let server = serve(&certificates, false);
    let files = &certificates;
    let log_in = "log in with --password-file FILE, and --user NAME if it is not default";
    check(&server, files, "", &[("hit a", 2, "NOAUTH Authentication required."), ("hit a", 2, log_in)]);
    let wrong = " --user web --password-file FOLDER/no.pw";
    check(&server, files, wrong, &[("hit a", 2, "hint: check --user and --password-file")]);
    check(&server, files, " --user web", &[("hit a", 2, "user web needs a password")]);
    check(&server, files, " --password-file FOLDER/gone", &[("hit a", 2, "gone: No such file")]);
    let web = " --user web --password-file FOLDER/web.pw";
    let may_not = "User web has no permissions to access the 'a' key";
    check(
        &server,
        files,
        web,
        &[
            ("hit web:1 3", 0, "3"),
            ("hits web:1", 0, "3"),
            ("limit web:2 1 1m", 0, "allowed"),
            ("limit web:2 1 1m", 1, "allowed"),
            ("hit a", 2, may_not),
            ("hit a", 2, "hint: log in as a user that may: --user NAME --password-file FILE"),
            ("dump --output FOLDER/w.dump", 2, "user web has no permissions for /v1/dump"),
            (
                "bench --seconds 1",
                2,
                "hint: log in as a user with the verbs read and hit, and the keys key:*",
            ),
        ],
    );
    let backup = " --user backup --password-file FOLDER/backup.pw";
    check(
        &server,
        files,
        backup,
        &[
            ("dump --output FOLDER/b.dump", 0, ""),
            ("restore FOLDER/b.dump --replace", 0, ""),
            ("hit a", 2, "NOPERM"),
        ],
    );
    let default = " --password-file FOLDER/d.pw";
    check(
        &server,
        files,
        default,
        &[("hits web:1", 0, "3"), ("bench --seconds 1 --keys 100", 0, "each key as sent")],
    );
}

#[test]
fn clients_speak_tls() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    certificates.sign("web", 1);
    certificates.sign("late", -1);
    let server = serve(&certificates, true);
    let login = " --user web --password-file FOLDER/web.pw";
    let own = " --cert FOLDER/web.pem --cert-key FOLDER/web-key.pem";
    let all = format!("{login} --cacert FOLDER/ca.pem{own}");
    check(&server, &certificates, &all, &[("hit web:1 3", 0, "3"), ("hits web:1", 0, "3")]);
    let backup = format!(" --user backup --password-file FOLDER/backup.pw --cacert FOLDER/ca.pem{own}");
    check(
        &server,
        &certificates,
        &backup,
        &[("dump --output FOLDER/b.dump", 0, ""), ("restore FOLDER/b.dump --replace", 0, "")],
    );
    // Without TLS, an authority, or a certificate; and with one that is expired.
    let expired = " --cert FOLDER/late.pem --cert-key FOLDER/late-key.pem";
    for access in [
        login.to_owned(),
        format!("{login} --tls{own}"),
        format!("{login} --cacert FOLDER/ca.pem"),
        format!("{login} --cacert FOLDER/ca.pem{expired}"),
    ] {
        check(&server, &certificates, &access, &[("hits web:1", 2, &server.resp)]);
    }
    check(&server, &certificates, &all, &[("hits web:1", 0, "3")]);
}

#[test]
fn clients_say_what_is_wrong_with_tls() {
    if !has("openssl") {
        return;
    }
    let certificates = Certificates::make();
    let file = |name: &str| certificates.file(name).display().to_string();
    let config = file("lately.toml");
    let serve = |cert: &str, key: &str| {
        let text = format!("[server]\ntls = {{ cert = \"{}\", key = \"{}\" }}\n", file(cert), file(key));
        fs::write(&config, text).expect("room");
        start(&[&FREE, &["--in-memory", "--config", &config][..]].concat())
    };
    let server = serve("cert.pem", "key.pem");
    let untrusted = "hint: --cacert names the authority that signed the certificate of the server";
    check(&server, &certificates, " --tls", &[("hit a", 2, untrusted)]);
    check(&server, &certificates, "", &[("hit a", 2, "with TLS, add --tls or --cacert FILE")]);
    let health = lately(&["health", "--http", &server.http]);
    assert!(health.err.contains("with TLS, name the listener of metrics"), "{}", health.err);
    let server = serve("ca.pem", "ca-key.pem");
    let of_authority = "make one with basicConstraints=CA:FALSE";
    check(&server, &certificates, " --cacert FOLDER/ca.pem", &[("hit a", 2, of_authority)]);
}

/// The output of a program, and whether it succeeded.
fn run(program: &str, args: &[&str]) -> (String, bool) {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().expect("it starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.success())
}

#[test]
fn redis_cli_and_curl_speak_tls() {
    if !has("openssl") || !has("redis-cli") || !has("curl") {
        return;
    }
    let certificates = Certificates::make();
    certificates.sign("web", 1);
    let server = serve(&certificates, true);
    let file = |name: &str| certificates.file(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("web.pem"), file("web-key.pem"));
    let tls = ["-h", "127.0.0.1", "-p", server.port(), "--tls", "--cacert", &ca];
    let own = ["--cert", &cert, "--key", &key];
    let login = ["--user", "web", "--pass", "w-secret", "--no-auth-warning"];
    let ask = |parts: &[&[&str]], command: &[&str]| run("redis-cli", &[&parts.concat(), command].concat());
    assert_eq!(ask(&[&tls, &own, &login], &["HIT", "web:1"]), ("1\n".to_owned(), true));
    assert_eq!(ask(&[&tls, &own, &login, &["-3"]], &["ACL", "WHOAMI"]), ("web\n".to_owned(), true));
    let (text, _) = ask(&[&tls, &own], &["HIT", "web:1"]);
    assert!(text.contains("NOAUTH"), "{text}");
    let (text, is_good) = ask(&[&tls, &login], &["HIT", "web:1"]);
    assert!(!is_good && !text.starts_with('2'), "{text}");
    let url = format!("https://{}/v1/hits/web:1", server.http);
    let curl = |more: &[&str]| run("curl", &[&["-sS", "--cacert", &ca, &url][..], more].concat());
    let (text, is_good) = curl(&[&own[..], &["-u", "web:w-secret"]].concat());
    assert!(is_good && text.contains("\"hits\":1"), "{text}");
    let (text, _) = curl(&own);
    assert!(text.contains("\"status\":401"), "{text}");
    let (text, is_good) = curl(&["-u", "web:w-secret"]);
    assert!(!is_good && !text.contains("hits"), "{text}");
}

#[test]
fn redis_py_speaks_tls() {
    let (Some(python), true) = (installed("LATELY_TEST_PYTHON"), has("openssl")) else { return };
    let certificates = Certificates::make();
    certificates.sign("web", 1);
    let server = serve(&certificates, true);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/redis_py_tls.py");
    let folder = certificates.file("");
    let mut command = Command::new(python);
    let command = command.arg(program).args(["127.0.0.1", server.port()]).arg(folder);
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.trim_end(), "ok 8 checks");
}

#[test]
fn check_reads_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (config, password) = (file("lately.toml"), file("web.pw"));
    let text = format!(
        "[[user]]\nname = \"web\"\npassword_file = \"{password}\"\nkeys = [\"web:*\", \"x\"]\nverbs = [\"read\"]\n"
    );
    fs::write(&config, text).expect("room");
    let gone = lately(&["check", &config]);
    assert!(gone.code == Some(2) && gone.err.contains(&format!("{password}: No such file")), "{}", gone.err);
    fs::write(&password, "w-secret").expect("room");
    let good = lately(&["check", &config]);
    let line = format!("user web: keys web:* x, verbs read, password_file {password}\n");
    assert!(good.code == Some(0) && good.out.contains(&line), "{}{}", good.out, good.err);
    let json = lately(&["check", &config, "--json"]).out;
    let expected = format!(
        "\"users\":[{{\"name\":\"web\",\"keys\":[\"web:*\",\"x\"],\"verbs\":[\"read\"],\"password_file\":\"{password}\"}}]"
    );
    assert!(json.contains(&expected) && !json.contains("secret"), "{json}");
}
