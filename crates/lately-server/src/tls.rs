//! TLS: the certificate of the server, replaced as a whole by a reload. Connections that are open keep the old one.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::{FileError, Tls, read_file};

/// The current certificate, and who signs those of clients.
pub(crate) struct CurrentTls(RwLock<Arc<ServerConfig>>);

impl CurrentTls {
    pub(crate) fn new(files: &Tls) -> Result<CurrentTls, FileError> {
        Ok(CurrentTls(RwLock::new(load(files)?)))
    }

    pub(crate) fn get(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, config: Arc<ServerConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

/// Reads the files.
///
/// # Errors
/// The first file that cannot be used.
pub(crate) fn load(files: &Tls) -> Result<Arc<ServerConfig>, FileError> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| FileError::new(&files.cert, error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| FileError::new(path, error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| FileError::new(path, error))?)
        }
    };
    let key = read_file(&files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| FileError::new(&files.key, "no private key in PEM"))?;
    let usable = provider.key_provider.load_private_key(key.clone_key());
    usable.map_err(|_| {
        FileError::new(
            &files.key,
            "TLS takes keys of RSA from 2,048 bits on, ECDSA with P-256 or P-384, and Ed25519",
        )
    })?;
    let config = builder.with_single_cert(certificates(&files.cert)?, key);
    let config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let key = files.key.display();
            FileError::new(&files.cert, format!("the key in {key} belongs to another certificate"))
        }
        error => FileError::new(&files.cert, error),
    });
    Ok(Arc::new(config?))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let none = || FileError::new(path, "no certificate in PEM");
    let content = read_file(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(none)
}
