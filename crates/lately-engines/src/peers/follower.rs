//! Follows another node: asks for its changes, again and again, and merges them.

use std::io;
use std::sync::Arc;

use hyper::http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::Shared;
use super::address::Address;
use super::following::Following;
use super::stream::Stream;
use super::wire::{FOLLOW, FollowRequest, FollowResponse};
use crate::limits::{ENGINE_TIMEOUT, MAX_PEER_MESSAGE_BYTES, PEER_RETRY, PEER_WAIT};

/// Follows a node, as long as it is polled. `number` is its place among those that are followed.
pub(super) async fn follow(address: Address, number: usize, shared: Arc<Shared>) {
    let mut following = Following::default();
    loop {
        let failure = match connect(&address, &shared).await {
            Ok(channel) => exchange(channel, &mut following, number, &shared).await,
            Err(failure) => failure,
        };
        shared.note_contact(number, Some(format!("{address}: {failure}")), &following);
        super::pause(PEER_RETRY).await;
    }
}

async fn connect(address: &Address, shared: &Arc<Shared>) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
    let endpoint = endpoint
        .connect_timeout(ENGINE_TIMEOUT)
        .http2_keep_alive_interval(2 * PEER_WAIT)
        .keep_alive_timeout(ENGINE_TIMEOUT)
        .keep_alive_while_idle(true);
    let (address, shared) = (address.clone(), Arc::clone(shared));
    let connector = service_fn(move |_: Uri| {
        let (address, shared) = (address.clone(), Arc::clone(&shared));
        async move { open(&address, &shared).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| cause(&error))
}

async fn open(address: &Address, shared: &Shared) -> io::Result<Stream> {
    let opened = timeout(ENGINE_TIMEOUT, async {
        let socket = TcpStream::connect((address.host.as_str(), address.port)).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = shared.tls() else { return Ok(Box::pin(socket) as Stream) };
        let name = ServerName::try_from(address.host.clone())
            .map_err(|_| io::Error::other("its host is no name that a certificate can have"))?;
        let stream = TlsConnector::from(tls.client).connect(name, socket).await?;
        Ok(Box::pin(stream) as Stream)
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

/// Asks until something fails. Returns what.
async fn exchange(channel: Channel, following: &mut Following, number: usize, shared: &Shared) -> String {
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_PEER_MESSAGE_BYTES);
    loop {
        let (question, request) = shared.question(following);
        let answered = timeout(PEER_WAIT + ENGINE_TIMEOUT, async {
            client.ready().await.map_err(|error| cause(&error))?;
            let path = PathAndQuery::from_static(FOLLOW);
            let codec = ProstCodec::<FollowRequest, FollowResponse>::default();
            let answer = client.unary(Request::new(request), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
                Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented => {
                    format!("it answered: {}", status.message())
                }
                _ => cause(&status),
            })
        });
        let answer = match answered.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => return failure,
            Err(_) => return format!("no answer within {} s", (PEER_WAIT + ENGINE_TIMEOUT).as_secs()),
        };
        if let Err(failure) = shared.take(number, (question, &answer), following) {
            return failure;
        }
    }
}
