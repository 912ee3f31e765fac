//! What is in `packaging`, and the Dockerfile.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{command, installed, lately, skip, test_file};
use crate::running::{FREE, PATIENCE, Running, start, start_command};

/// A file of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).expect(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Checks that the server takes a config file. Returns what `lately check` prints.
fn checked(config: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lately.toml");
    fs::write(&file, config).expect("room");
    let run = lately(&["check", text(&file)]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{config}");
    run.out
}

#[test]
fn the_config_of_the_package_is_valid() {
    let config = read("packaging/lately.toml");
    assert!(checked(&config).contains("storage: path /var/lib/lately, durability interval"));
    // With everything that it only suggests, too.
    let lines = config.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || rest.contains(" = ") => rest,
        _ => line,
    });
    let whole = checked(&lines.collect::<Vec<_>>().join("\n"));
    assert!(whole.contains("metrics 0.0.0.0:9180") && whole.contains("limit login: 5 in 1m"), "{whole}");
    assert!(whole.contains("node eu-1") && whole.contains("upstream redis://global"), "{whole}");
}

#[test]
fn the_unit_starts_a_server_that_reports_to_systemd() {
    let unit = read("packaging/systemd/lately.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).expect(key);
    assert_eq!(value("Type="), "notify");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lately.toml");
    let free = "[server]\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n";
    let data = folder.path().join("data");
    fs::write(&config, format!("{free}[storage]\npath = '{}'\n", text(&data))).expect("room");
    let socket_path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&socket_path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The file of options is read, and what it suggests is put in place.
    assert_eq!(value("EnvironmentFile="), "-/etc/default/lately");
    let suggested = read("packaging/default/lately");
    let options =
        suggested.lines().find_map(|line| line.strip_prefix("# LATELY_OPTIONS=\"")?.strip_suffix('"'));
    let rules = folder.path().join("rules");
    fs::create_dir(&rules).expect("room");
    fs::write(rules.join("web.yaml"), RULES).expect("room");
    let options = options.expect("options").replace("/etc/lately/ratelimit", text(&rules));
    let started = value("ExecStart=/usr/bin/lately ").replace("/etc/lately/lately.toml", text(&config));
    let started = started.strip_suffix("$LATELY_OPTIONS").expect("options").to_owned() + &options;
    let words: Vec<_> = started.split(' ').collect();
    let server = start_command(command(&words).env("NOTIFY_SOCKET", &socket_path)).loaded();
    let mut message = [0; 16];
    let bytes = socket.recv(&mut message).expect("a message");
    assert_eq!(&message[..bytes], b"READY=1\n");
    assert_eq!(server.ask::<u64>("HIT k"), 1);
    assert!(server.get("/metrics").contains("\nlately_ratelimit_config_failing 0\n"));
    assert!(data.is_dir());
}

/// Rules of envoyproxy/ratelimit.
const RULES: &str =
    "domain: web\ndescriptors:\n  - key: path\n    rate_limit: { unit: minute, requests_per_unit: 5 }\n";

/// The words of an instruction of the Dockerfile that is a list.
fn instruction(name: &str) -> Vec<String> {
    let file = read("Dockerfile");
    let list = file.lines().find_map(|line| Some(line.split_once(name)?.1));
    serde_json::from_str(list.expect(name)).expect("a list")
}

#[test]
fn the_image_starts_a_server_and_finds_it_healthy() {
    let folder = tempfile::tempdir().expect("a folder");
    let entry = instruction("ENTRYPOINT ");
    assert_eq!(entry[0], "/usr/bin/lately");
    let data = folder.path().join("data");
    let here = |word: &String| match word.as_str() {
        "/var/lib/lately/data" => text(&data).to_owned(),
        "0.0.0.0:9180" => "127.0.0.1:0".to_owned(),
        word => word.to_owned(),
    };
    let mut words: Vec<_> = entry[1..].iter().map(here).collect();
    words.extend(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"].map(str::to_owned));
    let mut server: Running = start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let metrics = server.address("metrics ");
    let server = server.loaded();
    assert!(data.is_dir());
    assert!(read("Dockerfile").contains("\nENV LATELY_HTTP=127.0.0.1:9180\n"));
    let check = instruction("HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ");
    assert_eq!(check[0], "/usr/bin/lately");
    let check: Vec<_> = check[1..].iter().map(String::as_str).collect();
    let healthy = || command(&check).env("LATELY_HTTP", &metrics).status().expect("it runs").code();
    assert_eq!(healthy(), Some(0));
    drop(server);
    assert_eq!(healthy(), Some(2));
}

/// Renders the chart. `None` where Helm cannot be had: the test is skipped.
#[expect(clippy::needless_pass_by_value, reason = "values are written in place")]
fn rendered(values: Value) -> Option<Value> {
    let python = installed("LATELY_TEST_HELM")?;
    let chart = path("packaging/helm/lately");
    let mut command = Command::new(python);
    command.arg(test_file("chart.py")).arg(chart).arg(values.to_string());
    let output = command.output().expect("Python runs");
    if output.status.code() == Some(3) {
        skip("Helm cannot be had for this processor");
        return None;
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// The objects of the chart with these values, which lint finds good.
fn objects(values: Value) -> Option<Value> {
    let mut rendered = rendered(values)?;
    assert_eq!(rendered["error"], Value::Null);
    assert_eq!(rendered["problems"], json!([]));
    Some(rendered["objects"].take())
}

fn config(objects: &Value) -> &str {
    objects["ConfigMap hits-lately"]["data"]["lately.toml"].as_str().expect("a config")
}

#[test]
fn the_chart_makes_a_server_with_a_volume() {
    let limit = "[[limit]]\nname = \"login\"\nmax = 5\nwindow = \"1m\"\n";
    let values = json!({
        "insecure": true, "ceiling": "2GiB", "hosts": ["hits.example.org"], "config": limit,
        "server": "max_clients = 5000\nidle_timeout = \"10m\"\n",
    });
    let Some(objects) = objects(values) else { return };
    let says = checked(config(&objects));
    let hosts = "hosts hits-lately hits-lately.web hits-lately.web.svc hits-lately.web.svc.cluster.local hits.example.org";
    for part in [
        "resp 0.0.0.0:7379, http 0.0.0.0:7380, grpc 127.0.0.1:7381, metrics 0.0.0.0:9180",
        "insecure true, max_clients 5000, idle_timeout 10m",
        "path /var/lib/lately/data, durability interval",
        "ceiling 2147483648B",
        "limit login: 5 in 1m",
    ] {
        assert!(says.contains(part), "{part}: {says}");
    }
    assert!(says.replace(',', "").contains(hosts), "{says}");
    let set = &objects["StatefulSet hits-lately"]["spec"];
    assert_eq!(set["replicas"], 1);
    assert_eq!(set["serviceName"], "hits-lately-headless");
    let claim = &set["volumeClaimTemplates"][0];
    assert_eq!(
        (&claim["metadata"]["name"], &claim["spec"]["resources"]["requests"]["storage"]),
        (&json!("data"), &json!("8Gi"))
    );
    let pod = &set["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["volumes"], json!([{"name": "config", "configMap": {"name": "hits-lately"}}]));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "lately:0.1.0");
    assert_eq!(container["args"], Value::Null);
    assert_eq!(container["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "metrics"}));
    assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/healthz", "port": "metrics"}));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    for service in ["Service hits-lately", "Service hits-lately-headless"] {
        assert_eq!(objects[service]["spec"]["selector"], set["selector"]["matchLabels"], "{service}");
    }
    assert_eq!(objects["Service hits-lately-headless"]["spec"]["clusterIP"], "None");
}

#[test]
fn the_chart_mounts_passwords_and_certificates() {
    let values = json!({
        "replicas": 3,
        "passwords": {"existingSecret": "users"},
        "tls": {"existingSecret": "certificate", "clientCa": true},
        "cluster": {"existingSecret": "redis"},
        "persistence": {"enabled": false},
        "extraArgs": ["--threads=2"],
    });
    let Some(objects) = objects(values) else { return };
    let config = config(&objects);
    let tls = r#"tls = { cert = "/etc/lately/tls/tls.crt", key = "/etc/lately/tls/tls.key", client_ca = "/etc/lately/tls/ca.crt" }"#;
    for line in [r#"password_file = "/etc/lately/passwords/password""#, tls] {
        assert!(config.lines().any(|found| found == line), "{line}: {config}");
    }
    assert!(!config.contains("insecure"), "{config}");
    let set = &objects["StatefulSet hits-lately"]["spec"];
    assert_eq!((&set["replicas"], &set["volumeClaimTemplates"]), (&json!(3), &Value::Null));
    let pod = &set["template"]["spec"];
    let secret = |name: &str| json!({"secretName": name, "defaultMode": 0o440});
    assert_eq!(
        pod["volumes"],
        json!([
            {"name": "config", "configMap": {"name": "hits-lately"}},
            {"name": "passwords", "secret": secret("users")},
            {"name": "tls", "secret": secret("certificate")},
            {"name": "data", "emptyDir": {}},
        ])
    );
    let container = &pod["containers"][0];
    assert_eq!(container["args"], json!(["--node=$(POD_NAME)", "--cluster=$(CLUSTER_URL)", "--threads=2"]));
    let reference = json!({"secretKeyRef": {"name": "redis", "key": "url"}});
    assert_eq!(container["env"][1], json!({"name": "CLUSTER_URL", "valueFrom": reference}));
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let paths: Vec<_> = mounts.iter().map(|mount| mount["mountPath"].as_str().expect("a path")).collect();
    assert_eq!(paths, ["/etc/lately/config", "/var/lib/lately", "/etc/lately/passwords", "/etc/lately/tls"]);
}

/// The values give the server what it needs for several data centres, and for the rules of Envoy.
#[test]
fn the_chart_counts_together_and_mounts_rules() {
    let values = json!({
        "replicas": 2,
        "insecure": true,
        "cluster": {
            "urls": ["redis://redis-0:6379", "redis://redis-1:6379"],
            "node": "eu-$(POD_NAME)",
            "upstream": {"existingSecret": "global", "key": "address"},
        },
        "ratelimit": {"existingConfigMap": "rules"},
    });
    let Some(objects) = objects(values) else { return };
    let says = checked(config(&objects));
    assert!(says.contains("grpc 0.0.0.0:7381"), "{says}");
    let pod = &objects["StatefulSet hits-lately"]["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().expect("volumes");
    assert!(volumes.contains(&json!({"name": "ratelimit", "configMap": {"name": "rules"}})), "{volumes:?}");
    let container = &pod["containers"][0];
    let mount = json!({"name": "ratelimit", "mountPath": "/etc/lately/ratelimit", "readOnly": true});
    assert!(container["volumeMounts"].as_array().expect("mounts").contains(&mount), "{container}");
    assert!(
        container["ports"]
            .as_array()
            .expect("ports")
            .contains(&json!({"name": "grpc", "containerPort": 7381}))
    );
    let arguments: Vec<&str> = container["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .map(|argument| argument.as_str().expect("text"))
        .collect();
    let expected = [
        "--node=eu-$(POD_NAME)",
        "--cluster=redis://redis-0:6379",
        "--cluster=redis://redis-1:6379",
        "--upstream=$(UPSTREAM_URL)",
        "--ratelimit-config=/etc/lately/ratelimit",
    ];
    assert_eq!(arguments, expected);
    let reference = json!({"secretKeyRef": {"name": "global", "key": "address"}});
    assert_eq!(container["env"][1], json!({"name": "UPSTREAM_URL", "valueFrom": reference}));
    let pod_name = json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    assert_eq!(container["env"][0], pod_name);
    for service in ["Service hits-lately", "Service hits-lately-headless"] {
        let port = json!({"name": "grpc", "port": 7381, "targetPort": "grpc"});
        assert!(objects[service]["spec"]["ports"].as_array().expect("ports").contains(&port), "{service}");
    }
    // The server takes these arguments.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("web.yaml"), RULES).expect("room");
    let here = |argument: &str| {
        let argument = argument
            .replace("$(POD_NAME)", "hits-lately-0")
            .replace("$(UPSTREAM_URL)", "redis://global:6379");
        argument.replace("/etc/lately/ratelimit", text(folder.path()))
    };
    let arguments: Vec<String> = arguments.into_iter().map(here).collect();
    let mut server = start(
        &[&FREE[..], &["--in-memory"], &arguments.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
    );
    server.wait_for_message("counting together with others as node eu-hits-lately-0 through ");
}

#[test]
fn the_chart_refuses_values_that_contradict_each_other() {
    let both = json!({"insecure": true, "cluster": {"urls": ["redis://a/"], "existingSecret": "b"}});
    for (values, expected) in [
        (json!({}), "set passwords.existingSecret to a Secret with a password, or insecure=true"),
        (json!({"insecure": true, "replicas": 2}), "replicas is more than 1: set cluster.urls or"),
        (both, "set cluster.urls or cluster.existingSecret, not both"),
        (
            json!({"insecure": true, "cluster": {"upstream": {"urls": ["redis://a"]}}}),
            "cluster.upstream is the server that data centres share: set cluster.urls",
        ),
        (
            json!({"insecure": true, "replicas": 2, "cluster": {"urls": ["redis://a"], "node": "eu-1"}}),
            "cluster.node needs $(POD_NAME), or the pods share a name",
        ),
        (
            json!({"insecure": true, "cluster": {"urls": ["redis://a"], "upstream": {"urls": ["b"], "existingSecret": "c"}}}),
            "set cluster.upstream.urls or cluster.upstream.existingSecret, not both",
        ),
        (json!({"insecure": true, "cluster": {"node": "eu 1"}}), "'eu 1' does not match pattern"),
        (
            json!({"insecure": true, "password": {"existingSecret": "a"}}),
            "additional properties 'password' not allowed",
        ),
        (json!({"insecure": true, "replicas": "2"}), "at '/replicas': got string, want integer"),
    ] {
        let shown = values.to_string();
        let Some(rendered) = rendered(values) else { return };
        let error = rendered["error"].as_str().unwrap_or_default();
        assert!(error.contains(expected), "{shown}: {rendered}");
    }
}
