//! One measurement: a load on a server, by our generator or by redis-benchmark.

use std::process::{Command, Stdio};

use lately_load::{Plan, run};

use crate::output;
use crate::rounds::median;
use crate::server::failure::Failure;
use crate::server::process::Process;
use crate::table::number;

/// The result of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    /// The server's processor time per operation.
    pub(crate) cpu_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) worst_us: f64,
}

impl Measured {
    /// No figure, which misses every bound.
    pub(crate) const NONE: Measured = Measured {
        per_second: f64::NAN,
        cpu_us: f64::NAN,
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        p999_us: f64::NAN,
        worst_us: f64::NAN,
    };

    /// Measures a load of our generator. All decisions must be "allowed".
    pub(crate) fn load(server: &Process, plan: &Plan) -> Measured {
        Measured::or_none(load(server, plan, Verdict::Allowed))
    }

    /// The same for requests that must be denied.
    pub(crate) fn load_denied(server: &Process, plan: &Plan) -> Measured {
        Measured::or_none(load(server, plan, Verdict::Denied))
    }

    /// A figure. NaN if the load failed, which is reported.
    pub(crate) fn number_or_none(figure: Result<f64, Failure>) -> f64 {
        figure.unwrap_or_else(|failure| {
            output::message(format_args!("lately-bench: {failure}"));
            f64::NAN
        })
    }

    /// The figures. NaN if the load failed, which is reported.
    pub(crate) fn or_none(measured: Result<Measured, Failure>) -> Measured {
        measured.unwrap_or_else(|failure| {
            output::message(format_args!("lately-bench: {failure}"));
            Measured::NONE
        })
    }

    /// Measures a load of redis-benchmark: a million keys, 50 connections.
    pub(crate) fn redis_benchmark(
        server: &Process,
        words: &[&str],
        pipeline: usize,
        requests: u64,
    ) -> Measured {
        Measured::or_none(redis_benchmark(server, words, pipeline, requests))
    }

    /// The median of each figure.
    pub(crate) fn median(rounds: &[Measured]) -> Measured {
        let of = |figure: fn(&Measured) -> f64| median(&rounds.iter().map(figure).collect::<Vec<f64>>());
        Measured {
            per_second: of(|m| m.per_second),
            cpu_us: of(|m| m.cpu_us),
            p50_us: of(|m| m.p50_us),
            p99_us: of(|m| m.p99_us),
            p999_us: of(|m| m.p999_us),
            worst_us: of(|m| m.worst_us),
        }
    }

    /// `p50 0.1, p99 0.2, p99.9 0.3 ms; server CPU 0.25 µs`.
    pub(crate) fn describe(&self) -> String {
        // redis-benchmark has no p99.9.
        let shares = [("p50", self.p50_us), ("p99", self.p99_us), ("p99.9", self.p999_us)];
        let shown = shares.into_iter().filter(|(_, us)| us.is_finite());
        let shown: Vec<String> = shown.map(|(name, us)| format!("{name} {}", number(us / 1e3))).collect();
        format!("{} ms; server CPU {} µs", shown.join(", "), number(self.cpu_us))
    }
}

/// The required decisions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Denied,
}

fn load(server: &Process, plan: &Plan, verdict: Verdict) -> Result<Measured, Failure> {
    let before = server.cpu_ns()?;
    let report = run(plan)?;
    let spent = server.cpu_ns()? - before;
    if let Some(first) = &report.first_error {
        return Err(Failure::new(format!("{} error replies, such as: {first}", report.errors)));
    }
    let (others, other) = match verdict {
        Verdict::Allowed => (report.denied, "denied"),
        Verdict::Denied => (report.requests - report.denied, "not denied"),
    };
    if others > 0 {
        return Err(Failure::new(format!("{others} of {} requests were {other}", report.requests)));
    }
    let latency = |share: f64| report.latency(share).as_secs_f64() * 1e6;
    Ok(Measured {
        per_second: report.per_second(),
        cpu_us: microseconds_each(spent, report.requests),
        p50_us: latency(0.5),
        p99_us: latency(0.99),
        p999_us: latency(0.999),
        worst_us: latency(1.0),
    })
}

fn redis_benchmark(
    server: &Process,
    words: &[&str],
    pipeline: usize,
    requests: u64,
) -> Result<Measured, Failure> {
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-h",
        "127.0.0.1",
        "-p",
        &server.address.port().to_string(),
        "--csv",
        "-c",
        "50",
        "-r",
        "1000000",
    ]);
    command.args(["-P", &pipeline.to_string(), "-n", &requests.to_string()]).args(words);
    let before = server.cpu_ns()?;
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("redis-benchmark did not start: {error}")))?;
    let spent = server.cpu_ns()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = parse_csv(&text).ok_or_else(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Failure::new(format!(
            "redis-benchmark {}: no figures: {}{}",
            words.join(" "),
            text.trim(),
            stderr.trim()
        ))
    })?;
    Ok(Measured { cpu_us: microseconds_each(spent, requests), ..figures })
}

/// Parses the columns
/// `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95…","p99…","max_latency_ms"`.
fn parse_csv(text: &str) -> Option<Measured> {
    let line = text.lines().rfind(|line| line.starts_with('"'))?;
    let fields: Vec<f64> = line
        .rsplit("\",\"")
        .take(7)
        .map(|field| field.trim_matches('"').parse().ok())
        .collect::<Option<_>>()?;
    let [max, p99, _p95, p50, _min, _average, per_second] = fields.try_into().ok()?;
    Some(Measured { per_second, p50_us: p50 * 1e3, p99_us: p99 * 1e3, worst_us: max * 1e3, ..Measured::NONE })
}

/// The time of each operation.
#[expect(clippy::cast_precision_loss, reason = "a mean is not counted to the last digit")]
pub(crate) fn microseconds_each(nanoseconds: u64, operations: u64) -> f64 {
    nanoseconds as f64 / 1e3 / operations as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_redis_benchmark() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\"HIT key:__rand_int__\",\"999000.98\",\"1.5\",\"0.2\",\"1.4\",\"2.1\",\"2.5\",\"9.5\"\n";
        let found = parse_csv(text).expect("figures");
        assert_eq!(
            (found.per_second, found.p50_us, found.p99_us, found.worst_us),
            (999_000.98, 1_400.0, 2_500.0, 9_500.0)
        );
        assert!(parse_csv("WARNING: could not connect\n").is_none());
        assert!(parse_csv("\"test\",\"rps\"\n").is_none());
    }

    #[test]
    fn a_failed_measurement_has_no_figure() {
        assert!(Measured::or_none(Err(Failure::new("no such server"))).per_second.is_nan());
        assert!(Measured::median(&[Measured::NONE, Measured::NONE]).cpu_us.is_nan());
    }
}
