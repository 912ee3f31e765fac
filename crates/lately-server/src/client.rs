//! A client of HTTP, for a request now and then: a connection for each.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::VERSION;
use crate::limits::DELIVERY_TIMEOUT;

/// Sends a body of this type by POST. Succeeds when the receiver takes it in time: its status is 2xx. What else it answers is not read.
///
/// # Errors
/// Why it was not taken.
pub(crate) async fn post(to: &Uri, headers: &[(&str, String)], body: (&str, Body)) -> Result<(), String> {
    let sent = tokio::time::timeout(DELIVERY_TIMEOUT, send(to, headers, body)).await;
    match sent.map_err(|_| format!("no answer within {} s", DELIVERY_TIMEOUT.as_secs()))?? {
        status if status.is_success() => Ok(()),
        status => Err(format!("it answered {status}")),
    }
}

async fn send(
    to: &Uri,
    headers: &[(&str, String)],
    (content_type, body): (&str, Body),
) -> Result<StatusCode, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let authority = to.authority().ok_or("the URL has no host")?;
    let has_tls = to.scheme_str() == Some("https");
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
    let mut request = Request::post(to.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, content_type)
        .header(USER_AGENT, format!("lately/{VERSION}"));
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(body).map_err(|error| text(&error))?;
    let socket = TcpStream::connect((host, port)).await.map_err(|error| text(&error))?;
    if !has_tls {
        return exchange(TokioIo::new(socket), request).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| text(&error))?;
    let stream = TlsConnector::from(tls()?).connect(name, socket).await.map_err(|error| text(&error))?;
    exchange(TokioIo::new(stream), request).await
}

/// Ends a task when it is dropped.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange<S>(stream: S, request: Request<Body>) -> Result<StatusCode, String>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
    let _connection = AbortOnDrop(tokio::spawn(async move {
        // The request gets the error.
        let _ = connection.await;
    }));
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    Ok(response.status())
}

/// TLS with the authorities that the system trusts, read when they are first needed.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static TLS: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    };
    TLS.get_or_init(load).clone()
}
