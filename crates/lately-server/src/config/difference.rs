//! The settings that differ between two configs and cannot change while a server runs.

use super::{Config, Storage};

impl Config {
    /// The names of the settings that differ, as the file writes them. Limits, alerts and users are left out, and so are the files
    /// of TLS.
    pub(crate) fn fixed_differences(&self, other: &Config) -> Vec<&'static str> {
        // Every field is named, so that a new one does not compile until it is handled here.
        let Config {
            resp,
            http,
            grpc,
            metrics,
            hosts,
            trusted_proxies,
            ratelimit_headers,
            users: _,
            tls,
            insecure,
            loops: _,
            has_extra_loop: _,
            max_clients,
            max_http_connections: _,
            idle_timeout,
            storage,
            storage_path,
            ceiling_bytes,
            classes,
            limits: _,
            alerts: _,
            rule_folder: _,
            cluster,
            histories,
            otlp,
            source: _,
        } = self;
        let default = Storage::default().path;
        let path_of = |path: &Option<_>| path.clone().unwrap_or_else(|| default.clone());
        let durability_of = |storage: &Option<Storage>| storage.as_ref().map(|storage| storage.durability);
        let named = [
            ("server.resp", *resp != other.resp),
            ("server.http", *http != other.http),
            ("server.grpc", *grpc != other.grpc),
            ("server.metrics", *metrics != other.metrics),
            ("server.hosts", *hosts != other.hosts),
            ("server.trusted_proxies", *trusted_proxies != other.trusted_proxies),
            ("server.ratelimit_headers", *ratelimit_headers != other.ratelimit_headers),
            ("server.tls", tls.is_some() != other.tls.is_some()),
            ("server.insecure", *insecure != other.insecure),
            ("server.max_clients", *max_clients != other.max_clients),
            ("server.idle_timeout", *idle_timeout != other.idle_timeout),
            ("storage.path", path_of(storage_path) != path_of(&other.storage_path)),
            ("storage.durability", durability_of(storage) != durability_of(&other.storage)),
            ("memory.ceiling", *ceiling_bytes != other.ceiling_bytes),
            ("[[class]]", *classes != other.classes),
            ("[cluster]", *cluster != other.cluster),
            ("[[history]]", *histories != other.histories),
            ("[otlp]", *otlp != other.otlp),
        ];
        named.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_fields_are_named() {
        let parse = |text: &str| Config::parse(text).expect(text);
        let check = |before: &str, after: &str, expected: &[&str]| {
            assert_eq!(parse(before).fixed_differences(&parse(after)), expected, "{before} {after}");
            assert_eq!(parse(after).fixed_differences(&parse(before)), expected, "{after} {before}");
        };
        let server = "[server]\nresp = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\ngrpc = \"127.0.0.1:3\"\nmetrics = \"0.0.0.0:4\"\nhosts = [\"a\"]\n\
            trusted_proxies = [\"10.0.0.0/8\"]\nratelimit_headers = \"off\"\ninsecure = true\n\
            max_clients = 5\nidle_timeout = 7\n";
        let all = [
            "server.resp",
            "server.http",
            "server.grpc",
            "server.metrics",
            "server.hosts",
            "server.trusted_proxies",
            "server.ratelimit_headers",
            "server.insecure",
            "server.max_clients",
            "server.idle_timeout",
        ];
        check("", server, &all);
        check("", "[storage]\npath = \"./elsewhere\"", &["storage.path"]);
        check("", "[storage]\npath = \"./lately-data\"\ndurability = \"interval\"", &[]);
        check("", "[storage]\ndurability = \"off\"", &["storage.durability"]);
        check("[storage]\ndurability = \"always\"", "", &["storage.durability"]);
        check("", "[memory]\nceiling = \"2GiB\"", &["memory.ceiling"]);
        check("", "[memory]\nceiling = \"1024MiB\"", &[]);
        let class = |more: &str| format!("[[class]]\nmatch = \"a\"\n{more}");
        check("", &class(""), &["[[class]]"]);
        check(&class(""), &class("window = \"5m\""), &[]);
        check(&class(""), &class("window = \"4m\""), &["[[class]]"]);
        let cluster = "[cluster]\nengine = \"redis\"\nnode = \"a\"\nurls = [\"redis://127.0.0.1\"]";
        check("", cluster, &["[cluster]"]);
        check("", "[cluster]\nengine = \"none\"", &[]);
        let history = "[[history]]\nname = \"a\"\nurl = \"http://a/\"\nmatch = \"a\"";
        check("", history, &["[[history]]"]);
        check("", "[otlp]\ntraces = \"http://a/\"", &["[otlp]"]);
        check("", "[server]\ntls = { cert = \"c\", key = \"k\" }", &["server.tls"]);
        check(
            "[server]\ntls = { cert = \"c\", key = \"k\" }",
            "[server]\ntls = { cert = \"d\", key = \"k\" }\npassword_file = \"p\"",
            &[],
        );
        check("", "[[limit]]\nname = \"a\"\nmax = 1\nwindow = 1", &[]);
    }
}
