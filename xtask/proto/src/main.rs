//! Compiles the protocol files in one folder to Rust and to a descriptor set in another.

use std::error::Error;
use std::path::Path;

use prost::Message;

/// The files with services, and in them the packages that they import.
const FILES: [&str; 3] =
    ["envoy/service/ratelimit/v3/rls.proto", "grpc/health/v1/health.proto", "lately/v1/lately.proto"];

/// Messages that the server sends, without services. Reflection does not show them.
const MESSAGES: [&str; 2] = ["opentelemetry/otlp.proto", "prometheus/write.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &arguments[..] else {
        return Err("give the folder of the files, and that of the results".into());
    };
    let descriptors = protox::compile(FILES, [from])?;
    std::fs::write(Path::new(to).join("descriptors.bin"), descriptors.encode_to_vec())?;
    prost_build::Config::new().out_dir(to).include_file("packages.rs").compile_fds(descriptors)?;
    prost_build::Config::new().out_dir(to).compile_fds(protox::compile(MESSAGES, [from])?)?;
    Ok(())
}
