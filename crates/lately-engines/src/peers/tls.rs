//! Mutual TLS between nodes: each shows a certificate, and takes those that its authorities have signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The files of TLS between nodes, in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerTls {
    /// The authorities that sign the certificates of nodes.
    pub ca: PathBuf,
    /// The certificate of this node, and those between it and its authority. It needs the name by which others reach this node.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A file of TLS cannot be used.
#[derive(thiserror::Error, Debug)]
#[error("{}: {why}", .path.display())]
pub struct PeerTlsError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub why: String,
}

/// What the files say.
#[derive(Clone)]
pub(crate) struct Configs {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

fn failed(path: &Path, why: impl std::fmt::Display) -> PeerTlsError {
    PeerTlsError { path: path.to_owned(), why: format!("{why}") }
}

fn read(path: &Path) -> Result<Vec<u8>, PeerTlsError> {
    std::fs::read(path).map_err(|error| failed(path, error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PeerTlsError> {
    let content = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| failed(path, "no certificate in PEM"))
}

impl PeerTls {
    /// Reads the files, as a start does.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn check(&self) -> Result<(), PeerTlsError> {
        self.load().map(drop)
    }

    /// Reads the files.
    pub(crate) fn load(&self) -> Result<Configs, PeerTlsError> {
        let PeerTls { ca, cert, key } = self;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| failed(ca, error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let chain = certificates(cert)?;
        let key_der = PrivateKeyDer::from_pem_slice(&read(key)?);
        let key_der = key_der.map_err(|_| failed(key, "no private key in PEM"))?;
        let usable = provider.key_provider.load_private_key(key_der.clone_key());
        usable.map_err(|_| {
            failed(key, "TLS takes keys of RSA from 2,048 bits on, ECDSA with P-256 or P-384, and Ed25519")
        })?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|error| failed(ca, error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_protocol_versions(&[&rustls::version::TLS13]);
        let server = server.map_err(|error| failed(cert, error))?.with_client_cert_verifier(verifier);
        let server = server.with_single_cert(chain.clone(), key_der.clone_key());
        let mut server = server.map_err(|error| failed(cert, error))?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        let client = ClientConfig::builder_with_provider(provider);
        let client = client.with_protocol_versions(&[&rustls::version::TLS13]);
        let client = client.map_err(|error| failed(cert, error))?.with_root_certificates(roots);
        let client = client.with_client_auth_cert(chain, key_der);
        let mut client = client.map_err(|error| failed(cert, error))?;
        client.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Configs { server: Arc::new(server), client: Arc::new(client) })
    }
}
