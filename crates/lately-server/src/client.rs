//! A client of HTTP, for a request now and then: a connection for each.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use futures_util::StreamExt;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::VERSION;
use crate::limits::{DELIVERY_TIMEOUT, RECEIVER_ANSWER_BYTES, RECEIVER_ANSWER_TIMEOUT};

/// The answer of a receiver.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The first bytes of the body.
    pub(crate) body: Vec<u8>,
}

/// Sends a body of this type by POST. Succeeds when the receiver takes it in time: its status is 2xx.
///
/// # Errors
/// Why it was not taken.
pub(crate) async fn post(to: &Uri, headers: &[(&str, String)], body: (&str, Body)) -> Result<(), String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).map_err(|error| error.to_string())?;
        map.insert(name, HeaderValue::try_from(value).map_err(|error| error.to_string())?);
    }
    map.insert(CONTENT_TYPE, HeaderValue::try_from(body.0).map_err(|error| error.to_string())?);
    match within(send(to, map, body.1, 0)).await?.status {
        status if status.is_success() => Ok(()),
        status => Err(format!("it answered {status}")),
    }
}

/// Sends a body by POST, and returns the answer that came in time, whatever its status is.
///
/// # Errors
/// There is no answer.
pub(crate) async fn ask(to: &Uri, headers: HeaderMap, body: Body) -> Result<Answer, String> {
    within(send(to, headers, body, RECEIVER_ANSWER_BYTES)).await
}

async fn within(sent: impl Future<Output = Result<Answer, String>>) -> Result<Answer, String> {
    let sent = timeout(DELIVERY_TIMEOUT, sent).await;
    sent.map_err(|_| format!("no answer within {} s", DELIVERY_TIMEOUT.as_secs()))?
}

/// Sends a request, and reads up to this many bytes of the answer's body.
async fn send(to: &Uri, headers: HeaderMap, body: Body, most: usize) -> Result<Answer, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let authority = to.authority().ok_or("the URL has no host")?;
    let has_tls = to.scheme_str() == Some("https");
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
    let mut request = Request::post(to.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(USER_AGENT, format!("lately/{VERSION}"))
        .body(body)
        .map_err(|error| text(&error))?;
    request.headers_mut().extend(headers);
    let socket = TcpStream::connect((host, port)).await.map_err(|error| text(&error))?;
    if !has_tls {
        return exchange(TokioIo::new(socket), request, most).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| text(&error))?;
    let stream = TlsConnector::from(tls()?).connect(name, socket).await.map_err(|error| text(&error))?;
    exchange(TokioIo::new(stream), request, most).await
}

/// Ends a task when it is dropped.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange<S>(stream: S, request: Request<Body>, most: usize) -> Result<Answer, String>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
    let _connection = AbortOnDrop(tokio::spawn(async move {
        // The request gets the error.
        let _ = connection.await;
    }));
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let (head, body) = response.into_parts();
    let (mut pieces, mut bytes) = (Body::new(body).into_data_stream(), Vec::new());
    let read = async {
        while bytes.len() < most
            && let Some(Ok(piece)) = pieces.next().await
        {
            bytes.extend_from_slice(&piece[..piece.len().min(most - bytes.len())]);
        }
    };
    // What does not come is not needed: the status says what happened.
    let _ = timeout(RECEIVER_ANSWER_TIMEOUT, read).await;
    Ok(Answer { status: head.status, headers: head.headers, body: bytes })
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
