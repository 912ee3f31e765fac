//! Checks that each crate has one version: a second one must be built, downloaded and trusted, too.

/// Crates that may have several versions, with reasons. They are in deny.toml, too.
const SEVERAL_VERSIONS: [&str; 8] = [
    // 0.22 is a dependency of tonic, gRPC.
    "base64",
    // Version 2 is a dependency of utoipa, of a part of jiff that is never built, and of rivals in lately-bench.
    "syn",
    // Older versions are dependencies of dashmap and governor, rivals in lately-bench.
    "hashbrown",
    // 0.3 is a dependency of ahash, in the same rivals; r-efi 5 comes with it, for UEFI only. 0.2 is a dependency of ring,
    // the cryptography of TLS.
    "getrandom",
    "r-efi",
    // 0.9 is a dependency of x509-cert, which tokio-postgres-rustls reads certificates with.
    "const-oid",
    // 0.14 is a dependency of tokio-postgres, for WebAssembly only.
    "wasi",
    // 0.52 is a dependency of ring, for Windows only.
    "windows-sys",
];

/// Checks the text of a Cargo.lock.
pub(super) fn check(text: &str) -> Vec<String> {
    let mut packages = packages(text);
    packages.sort_unstable();
    let mut problems = Vec::new();
    for same in packages.chunk_by(|a, b| a.0 == b.0) {
        let name = same[0].0;
        if same.len() > 1 && !SEVERAL_VERSIONS.contains(&name) {
            let versions: Vec<_> = same.iter().map(|(_, version)| *version).collect();
            let versions = versions.join(" and ");
            problems.push(format!(
                "Cargo.lock: {name} {versions}: align what asks for it, or list it with a reason"
            ));
        }
    }
    problems
}

/// The name and the version of each `[[package]]`, if they are in its first two lines.
fn packages(text: &str) -> Vec<(&str, &str)> {
    text.split("[[package]]\n").skip(1).filter_map(package).collect()
}

fn package(entry: &str) -> Option<(&str, &str)> {
    let mut lines = entry.lines();
    let name = lines.next()?.strip_prefix("name = \"")?.strip_suffix('"')?;
    let version = lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')?;
    Some((name, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str)]) -> String {
        let entry = |(name, version): &(&str, &str)| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"x\"\n\n")
        };
        "version = 4\n\n".to_owned() + &packages.iter().map(entry).collect::<String>()
    }

    #[test]
    fn a_second_version_is_named() {
        assert!(check(&lock(&[("bytes", "1.12.1"), ("libc", "0.2.1")])).is_empty());
        let problems = check(&lock(&[("rand", "0.9.0"), ("libc", "0.2.1"), ("rand", "0.10.3")]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("Cargo.lock: rand 0.10.3 and 0.9.0: "), "{}", problems[0]);
    }
}
