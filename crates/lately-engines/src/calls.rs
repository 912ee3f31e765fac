//! Calls between nodes over gRPC, with mutual TLS or without: a listener for those of other nodes, and connections to them.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::http::uri::Authority;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::PeerTls;
use crate::limits::{ENGINE_TIMEOUT, MAX_PEER_CONNECTIONS, PEER_WAIT};

/// Answers the calls of other nodes.
pub type NodeMethods = Arc<
    dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = NodeResponse> + Send>> + Send + Sync + 'static,
>;

/// An answer.
pub type NodeResponse = hyper::Response<tonic::body::Body>;

/// Bytes both ways.
trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Bytes for S {}

type Stream = Pin<Box<dyn Bytes>>;

/// Answers other nodes, as long as it is polled. Its connections end with it. `warn` gets why connections are refused.
pub async fn serve_nodes(
    listener: TcpListener,
    tls: Option<PeerTls>,
    methods: NodeMethods,
    warn: impl Fn(String) + Send + Sync + 'static,
) {
    let (places, warn, tls) =
        (Arc::new(Semaphore::new(MAX_PEER_CONNECTIONS)), Arc::new(warn), tls.map(Arc::new));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((socket, _)) = accepted else {
            // File descriptors ran out. The end of a connection frees one.
            let _ = timeout(Duration::from_millis(100), std::future::pending::<()>()).await;
            continue;
        };
        let (methods, warn, tls) = (Arc::clone(&methods), Arc::clone(&warn), tls.clone());
        connections.spawn(async move {
            let _place = place;
            match timeout(ENGINE_TIMEOUT, accept(socket, tls.as_deref())).await {
                Ok(Ok(stream)) => connection(stream, methods).await,
                Ok(Err(error)) => warn(format!("a connection of another node was refused: {error}")),
                Err(_) => {}
            }
        });
    }
}

async fn accept(socket: TcpStream, tls: Option<&PeerTls>) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Box::pin(socket)) };
    // Read for each connection: the files may have been replaced.
    let tls = tls.load().map_err(io::Error::other)?;
    Ok(Box::pin(TlsAcceptor::from(tls.server).accept(socket).await?))
}

async fn connection(stream: Stream, methods: NodeMethods) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = methods(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(2 * PEER_WAIT))
        .keep_alive_timeout(ENGINE_TIMEOUT)
        .max_concurrent_streams(8);
    // A connection that ends early is made anew by the other node.
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
}

/// Connects to a node at an address such as `eu-2:7382`.
///
/// # Errors
/// Why it is not reached.
pub async fn connect_node(address: &Authority, tls: Option<&PeerTls>) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
    let endpoint = endpoint
        .connect_timeout(ENGINE_TIMEOUT)
        .http2_keep_alive_interval(2 * PEER_WAIT)
        .keep_alive_timeout(ENGINE_TIMEOUT)
        .keep_alive_while_idle(true);
    let (address, tls) = (address.clone(), tls.cloned());
    let connector = service_fn(move |_: Uri| {
        let (address, tls) = (address.clone(), tls.clone());
        async move { open(&address, tls.as_ref()).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| cause(&error))
}

async fn open(address: &Authority, tls: Option<&PeerTls>) -> io::Result<Stream> {
    let opened = timeout(ENGINE_TIMEOUT, async {
        let socket = TcpStream::connect(address.as_str()).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Box::pin(socket) as Stream) };
        let host = address.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::other("its host is no name that a certificate can have"))?;
        let tls = tls.load().map_err(io::Error::other)?;
        Ok(Box::pin(TlsConnector::from(tls.client).connect(name, socket).await?) as Stream)
    });
    opened.await.unwrap_or_else(|_| Err(io::Error::other("no answer within 2 s")))
}

/// The innermost cause of an error, which says what happened.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
