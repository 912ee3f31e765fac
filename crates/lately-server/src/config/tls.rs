//! `tls` in `[server]`: the certificate of the server, and who signs those of clients.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use super::user::path;

/// The files of TLS, in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificate of the server, and those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that sign certificates of clients. With it, each client needs one.
    pub client_ca: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: tls = { cert = \"…\", key = \"…\" }")]
pub(super) struct TlsConfig {
    cert: Spanned<String>,
    key: Spanned<String>,
    client_ca: Option<Spanned<String>>,
}

impl TlsConfig {
    pub(super) fn settle(&self) -> Result<Tls, Problem> {
        let client_ca = self.client_ca.as_ref().map(path).transpose()?;
        Ok(Tls { cert: path(&self.cert)?, key: path(&self.key)?, client_ca })
    }
}
