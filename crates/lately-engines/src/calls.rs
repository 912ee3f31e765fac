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
use crate::peers::{Address, Configs};

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

/// Answers other nodes, as long as it is polled. Its connections end with it. `warn` gets why connections are refused. The files of TLS are
/// read for each connection.
pub async fn serve_nodes(
    listener: TcpListener,
    tls: Option<PeerTls>,
    methods: NodeMethods,
    warn: impl Fn(String) + Send + Sync + 'static,
) {
    serve(listener, move || load(tls.as_ref()), methods, warn).await;
}

/// Connects to a node at an address such as `eu-2:7382`.
///
/// # Errors
/// Why it is not reached.
pub async fn connect_node(address: &Authority, tls: Option<&PeerTls>) -> Result<Channel, String> {
    let host = address.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = address.port_u16().ok_or("its address has no port")?;
    let tls = tls.cloned();
    connect(&Address { host, port, ip: None }, move || load(tls.as_ref())).await
}

fn load(tls: Option<&PeerTls>) -> io::Result<Option<Configs>> {
    tls.map(PeerTls::load).transpose().map_err(io::Error::other)
}

/// The same with TLS from elsewhere.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: impl Fn() -> io::Result<Option<Configs>> + Send + Sync + 'static,
    methods: NodeMethods,
    warn: impl Fn(String) + Send + Sync + 'static,
) {
    let (places, shared) = (Arc::new(Semaphore::new(MAX_PEER_CONNECTIONS)), Arc::new((tls, warn)));
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
        let (methods, shared) = (Arc::clone(&methods), Arc::clone(&shared));
        connections.spawn(async move {
            let _place = place;
            let (tls, warn) = &*shared;
            match timeout(ENGINE_TIMEOUT, accept(socket, tls())).await {
                Ok(Ok(stream)) => connection(stream, methods).await,
                Ok(Err(error)) => warn(format!("a connection of another node was refused: {error}")),
                Err(_) => {}
            }
        });
    }
}

async fn accept(socket: TcpStream, tls: io::Result<Option<Configs>>) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    let Some(tls) = tls? else { return Ok(Box::pin(socket)) };
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

/// Connects to a node.
///
/// # Errors
/// Why it is not reached.
pub(crate) async fn connect(
    address: &Address,
    tls: impl Fn() -> io::Result<Option<Configs>> + Clone + Send + Sync + 'static,
) -> Result<Channel, String> {
    let named = Address { ip: None, ..address.clone() };
    let endpoint = Endpoint::from_shared(format!("http://{named}")).map_err(|error| error.to_string())?;
    let endpoint = endpoint
        .connect_timeout(ENGINE_TIMEOUT)
        .http2_keep_alive_interval(2 * PEER_WAIT)
        .keep_alive_timeout(ENGINE_TIMEOUT)
        .keep_alive_while_idle(true);
    let address = address.clone();
    let connector = service_fn(move |_: Uri| {
        let (address, tls) = (address.clone(), tls.clone());
        async move { open(&address, tls()).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| cause(&error))
}

async fn open(address: &Address, tls: io::Result<Option<Configs>>) -> io::Result<Stream> {
    let opened = timeout(ENGINE_TIMEOUT, async {
        let socket = match address.ip {
            Some(ip) => TcpStream::connect((ip, address.port)).await?,
            None => TcpStream::connect((address.host.as_str(), address.port)).await?,
        };
        socket.set_nodelay(true)?;
        let Some(tls) = tls? else { return Ok(Box::pin(socket) as Stream) };
        let name = ServerName::try_from(address.host.clone())
            .map_err(|_| io::Error::other("its host is no name that a certificate can have"))?;
        Ok(Box::pin(TlsConnector::from(tls.client).connect(name, socket).await?) as Stream)
    });
    opened.await.unwrap_or_else(|_| Err(io::Error::other("no answer within 2 s")))
}

/// The innermost cause of an error, which says what happened.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
