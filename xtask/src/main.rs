//! One verb per job.
fn main() {}
