//! How a client reaches a server that has users or TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use redis::{Client, ClientTlsConfig, IntoConnectionInfo, RedisResult, TlsCertificates};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::error::CliError;

/// The user, and the files of TLS.
#[derive(Args, Clone)]
pub(crate) struct LoginArgs {
    /// The user to log in as [env: LATELY_USER] [default: default].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The file with the password of the user, in its first line [env: LATELY_PASSWORD_FILE].
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Connect with TLS, and trust the authorities of this system.
    #[arg(long)]
    tls: bool,

    /// Connect with TLS, and trust the authority in this file (PEM) [env: LATELY_CACERT].
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Connect with TLS, and show the certificate in this file (PEM).
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,

    /// The file with the key of --cert (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
}

/// The contents of the files.
#[derive(Default)]
pub(crate) struct Login {
    user: Option<String>,
    password: Option<String>,
    tls: Option<TlsFiles>,
}

struct TlsFiles {
    authority: Option<Vec<u8>>,
    /// A certificate and its key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

/// A variable of the environment. An empty one is ignored.
fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl LoginArgs {
    /// Whether there is something to do before the first command.
    pub(crate) fn is_any(&self) -> bool {
        self.password_file().is_some() || self.has_tls()
    }

    fn user(&self) -> Option<String> {
        self.user.clone().or_else(|| of_environment("LATELY_USER"))
    }

    fn password_file(&self) -> Option<PathBuf> {
        self.password_file.clone().or_else(|| of_environment("LATELY_PASSWORD_FILE").map(PathBuf::from))
    }

    fn authority(&self) -> Option<PathBuf> {
        self.cacert.clone().or_else(|| of_environment("LATELY_CACERT").map(PathBuf::from))
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls || self.authority().is_some() || self.cert.is_some()
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<Login, CliError> {
        let (user, password_file) = (self.user(), self.password_file());
        if let (Some(user), None) = (&user, &password_file) {
            let cause = format!("user {user} needs a password");
            return Err(CliError::new("--user", cause, "name the file that has it with --password-file"));
        }
        let password = password_file.as_deref().map(password_in).transpose()?;
        if !self.has_tls() {
            return Ok(Login { user, password, tls: None });
        }
        let authority = self.authority().map(|path| authority_in(&path)).transpose()?;
        let own = self.cert.as_deref().zip(self.cert_key.as_deref());
        let own = own.map(|(cert, key)| Ok((read("--cert", cert)?, read("--cert-key", key)?)));
        Ok(Login { user, password, tls: Some(TlsFiles { authority, own: own.transpose()? }) })
    }
}

fn read(option: &str, path: &Path) -> Result<Vec<u8>, CliError> {
    let failed =
        |error| CliError::new(option, format!("{}: {error}", path.display()), "name a file that can be read");
    fs::read(path).map_err(failed)
}

fn authority_in(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = read("--cacert", path)?;
    if String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") {
        return Ok(bytes);
    }
    let cause = format!("{}: it has no certificate in PEM form", path.display());
    Err(CliError::new(
        "--cacert",
        cause,
        "name the certificate of the authority that signed that of the server",
    ))
}

fn password_in(path: &Path) -> Result<String, CliError> {
    let text = String::from_utf8_lossy(&read("--password-file", path)?).into_owned();
    // Some editors begin a file with this mark.
    let password = text.trim_start_matches('\u{feff}').lines().next().unwrap_or_default();
    if password.is_empty() {
        let cause = format!("{}: its first line is empty", path.display());
        return Err(CliError::new("--password-file", cause, "write the password to its first line"));
    }
    Ok(password.to_owned())
}

impl Login {
    /// A client for the Redis protocol.
    pub(crate) fn redis(&self, address: &str) -> RedisResult<Client> {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let info = format!("{scheme}://{address}/").into_connection_info()?;
        // Otherwise the client would wait for a silent server twice.
        let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
            if let Some(user) = &self.user {
                settings = settings.set_username(user);
            }
        }
        let info = info.set_redis_settings(settings);
        let Some(TlsFiles { authority, own }) = &self.tls else { return Client::open(info) };
        let client_tls =
            own.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: authority.clone() })
    }

    /// The user and its password, if there is one.
    pub(crate) fn user_and_password(self) -> Option<(String, String)> {
        let user = self.user.unwrap_or_else(|| "default".to_owned());
        self.password.map(|password| (user, password))
    }

    pub(crate) fn http_scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The value of `Authorization`.
    pub(crate) fn authorization(&self) -> Option<String> {
        let password = self.password.as_ref()?;
        let user = self.user.as_deref().unwrap_or_default();
        Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
    }

    /// TLS for HTTP.
    pub(crate) fn https(&self) -> Result<Option<TlsConfig>, CliError> {
        let Some(TlsFiles { authority, own }) = &self.tls else { return Ok(None) };
        let invalid = |option: &str| {
            let option = option.to_owned();
            move |error: ureq::Error| CliError::new(option, error, "give a file in PEM")
        };
        let roots = match authority {
            Some(pem) => vec![Certificate::from_pem(pem).map_err(invalid("--cacert"))?],
            None => {
                let known = rustls_native_certs::load_native_certs().certs;
                known.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
            }
        };
        let own = match own {
            Some((cert, key)) => {
                let cert = Certificate::from_pem(cert).map_err(invalid("--cert"))?;
                let key = PrivateKey::from_pem(key).map_err(invalid("--cert-key"))?;
                Some(ClientCert::new_with_certs(&[cert], key))
            }
            None => None,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(own);
        Ok(Some(config.build()))
    }
}
