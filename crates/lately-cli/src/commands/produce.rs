//! `lately produce`: writes the hits of logs to a topic of Kafka.

use clap::Args;

use crate::error::{CliError, Outcome};
use crate::log_args::LogArgs;

/// Write the hits of logs to a topic of Kafka, one record for each line, with the key and the time of its hit.
///
/// Servers with engine = "kafka" count these records. Each line is in the topic once, also if a broker fails meanwhile. A run that
/// is started again writes all lines again.
///
/// Records are in the compact form. Those of a key are all in one partition, the one that the Java clients of Kafka choose, too.
#[derive(Args)]
#[command(mut_arg("top", |arg| arg.hide(true)))]
pub(crate) struct Produce {
    /// Brokers: HOST:PORT, or several of them with commas. With TLS and a login, an address as in a config:
    /// kafka+ssl://USER:PASSWORD@HOST:PORT?ca=FILE. In the environment, other users of this machine do not see the password.
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9092",
        env = "LATELY_BROKERS",
        hide_env_values = true
    )]
    brokers: String,

    /// The topic with the hits.
    #[arg(long, value_name = "TOPIC", default_value = "lately-hits")]
    topic: String,

    /// Put this before each key.
    #[arg(long, value_name = "P", default_value = "", hide_default_value = true)]
    prefix: String,

    #[command(flatten)]
    logs: LogArgs,
}

#[cfg(not(feature = "kafka"))]
pub(crate) fn run(_produce: &Produce) -> Result<Outcome, CliError> {
    let cause = "this build is without Kafka";
    Err(CliError::new("produce", cause, "use a package, or build with --features kafka"))
}

#[cfg(feature = "kafka")]
pub(crate) fn run(produce: &Produce) -> Result<Outcome, CliError> {
    use lately_logs::Template;

    use crate::output;
    use crate::topic::Topic;

    if produce.logs.names_top() {
        let cause = "--top does not go with produce: it prints no rows";
        return Err(CliError::new("command line", cause, "leave it out"));
    }
    let mut topic = Topic::open(&produce.brokers, &produce.topic)?;
    let (mut key, mut too_long) = (produce.prefix.clone().into_bytes(), 0_u64);
    let read = produce.logs.read("produce", &Template::default(), |record| {
        key.truncate(produce.prefix.len());
        key.extend_from_slice(record.key);
        if key.len() > lately::limits::MAX_KEY_BYTES {
            too_long += 1;
        } else {
            topic.write(&key, record.at);
        }
    });
    let written = topic.finish();
    let mut read = read?;
    let records = written?;
    let noun = if records == 1 { "record" } else { "records" };
    output::message(&format_args!("lately: produce: {records} {noun} written to {}", produce.topic));
    if too_long > 0 {
        let why = "with the prefix the key is longer than 1024 bytes";
        output::message(&format_args!("lately: produce: {too_long} hits not written: {why}"));
    }
    read.check_some()?;
    read.outcome()
}
