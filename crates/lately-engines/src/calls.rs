//! Calls between nodes over gRPC, with mutual TLS or without: how they are answered, and connections to other nodes.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::http::uri::{Authority, PathAndQuery};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Response, Status, client, server};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::PeerTls;
use crate::limits::{ENGINE_TIMEOUT, PEER_WAIT};
use crate::node_listener::{Call, NodeBody, NodeRoom, serve};
use crate::peers::{Address, Configs};

/// Answers the calls of other nodes.
pub type NodeMethods = Arc<
    dyn Fn(Request<NodeBody>) -> Pin<Box<dyn Future<Output = NodeResponse> + Send>> + Send + Sync + 'static,
>;

/// An answer.
pub type NodeResponse = hyper::Response<tonic::body::Body>;

/// Bytes both ways.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Bytes for S {}

pub(crate) type Stream = Pin<Box<dyn Bytes>>;

/// Answers other nodes, as long as it is polled. Its connections end with it. `warn` gets why connections are refused. The files of TLS are
/// read for each connection.
pub async fn serve_nodes(
    listener: TcpListener,
    tls: Option<PeerTls>,
    methods: (NodeMethods, Arc<NodeRoom>),
    warn: impl Fn(String) + Send + Sync + 'static,
) {
    serve(listener, move || load(tls.as_ref()), methods, warn).await;
}

/// Answers a request with a method, which gets at most this many bytes.
pub async fn answer_node<Q, A, F>(
    request: Request<NodeBody>,
    most_bytes: usize,
    method: impl Fn(Q) -> F + Send + Sync,
) -> NodeResponse
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
    F: Future<Output = Result<A, Status>> + Send,
{
    let mut grpc = server::Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(most_bytes);
    let service = service_fn(move |request: tonic::Request<Q>| {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        let answer = method(request.into_inner());
        async move {
            let answer = answer.await?;
            if let Some(call) = call {
                call.give_out(answer.encoded_len()).await?;
            }
            Ok(Response::new(answer))
        }
    });
    grpc.unary(service, request).await
}

/// Calls a method of another node.
///
/// # Errors
/// [`Status`]: it has refused the request, or there was no answer.
pub async fn call_node<Q, A>(
    grpc: &mut client::Grpc<Channel>,
    path: &'static str,
    request: Q,
    within: Duration,
) -> Result<A, Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let answered = timeout(within, async {
        grpc.ready().await.map_err(|error| Status::unavailable(cause(&error)))?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<Q, A>::default());
        grpc.unary(tonic::Request::new(request), path, codec).await
    });
    let late = |_| Status::deadline_exceeded(format!("no answer within {within:?}"));
    Ok(answered.await.map_err(late)??.into_inner())
}

/// Why a call has failed.
#[must_use]
pub fn reason(status: &Status) -> String {
    if status.source().is_some() { cause(status) } else { status.message().to_owned() }
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
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
