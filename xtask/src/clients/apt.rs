//! Installs Debian packages whose programs are missing.

use std::process::Command;

use super::nginx;
use crate::run::{self, Failure, Outcome, find, succeeds};
use crate::say;

/// Installs what tests need and is missing.
pub(super) fn install_missing() -> Outcome {
    install_packages(&missing())?;
    match missing().as_slice() {
        [] => Ok(()),
        still => {
            Err(Failure::new(format!("test: installed, but still not on the PATH: {}", still.join(" "))))
        }
    }
}

/// Installs packages, as root or through a sudo without a password. Otherwise the error has the command to
/// type.
pub(super) fn install_packages(packages: &[&str]) -> Outcome {
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("sudo apt-get install -y --no-install-recommends {}", packages.join(" "));
    if find("apt-get").is_none() {
        let packages = packages.join(" ");
        return Err(Failure::new(format!("test: no apt-get here; install what Debian calls: {packages}")));
    }
    let root = run::output(Command::new("id").arg("-u"), "test: id")?.trim() == "0";
    if !root && !succeeds(Command::new("sudo").args(["-n", "true"])) {
        return Err(Failure::new(format!(
            "test: packages are missing and this user is not root. Run: {by_hand}"
        )));
    }
    say::step(&format!("test: apt-get install {}", packages.join(" ")));
    // Package lists are often missing in images and often fresh elsewhere. So they are fetched only if the
    // installation fails without them.
    if run::run(&mut install(root, packages), "install").is_err() {
        run::run(apt_get(root).arg("update"), "test: apt-get update (are the package mirrors reachable?)")?;
        run::run(&mut install(root, packages), &format!("test: apt-get (by hand: {by_hand})"))?;
    }
    Ok(())
}

fn missing() -> Vec<&'static str> {
    let mut packages = Vec::new();
    let server = find("redis-server").or_else(|| find("redis-check-rdb"));
    if server.is_none() || find("redis-cli").is_none() || find("redis-benchmark").is_none() {
        packages.push("redis-tools");
    }
    for program in [
        "pgbouncer",
        "strace",
        "openssl",
        "curl",
        "chromium",
        "prometheus",
        "prometheus-alertmanager",
        "victoria-metrics",
    ] {
        if find(program).is_none() {
            packages.push(program);
        }
    }
    if find("h2load").is_none() {
        packages.push("nghttp2-client");
    }
    if find("groff").is_none() {
        packages.push("groff-base");
    }
    for (program, package) in [("nft", "nftables"), ("ip", "iproute2")] {
        if find(program).is_none() {
            packages.push(package);
        }
    }
    // Its programs are not on the PATH.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    if !versions.into_iter().any(|version| version.path().join("bin/initdb").is_file()) {
        packages.push("postgresql");
    }
    if nginx::find().is_none() {
        packages.push("nginx");
    }
    if find("python3").is_none() {
        packages.extend(["python3", "python3-venv"]);
    } else if !succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        packages.push("python3-venv");
    }
    packages
}

fn install(root: bool, packages: &[&str]) -> Command {
    let mut command = apt_get(root);
    command.args(["install", "-y", "--no-install-recommends"]).args(packages);
    command
}

fn apt_get(root: bool) -> Command {
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.args(["-n", "env"]);
    }
    // Another apt-get may be running, especially on a new machine.
    // In run level 1 no service of a new package starts.
    command.args([
        "DEBIAN_FRONTEND=noninteractive",
        "RUNLEVEL=1",
        "apt-get",
        "-qq",
        "-o",
        "DPkg::Lock::Timeout=300",
    ]);
    command
}
