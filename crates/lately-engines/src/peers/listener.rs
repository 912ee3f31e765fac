//! Answers the nodes that follow this one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::server::Grpc;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::following::Question;
use super::stream::Stream;
use super::wire::{FOLLOW, FollowRequest, FollowResponse, REPORT, ReportRequest};
use super::{Refusal, Shared};
use crate::limits::{ENGINE_TIMEOUT, MAX_PEER_CONNECTIONS, MAX_PEER_MESSAGE_BYTES, PEER_WAIT};

/// Accepts connections, as long as it is polled.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MAX_PEER_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            // File descriptors ran out. The end of a connection frees one.
            super::pause(Duration::from_millis(100)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Ok(stream)) = timeout(ENGINE_TIMEOUT, accept(socket, &shared)).await {
                connection(stream, shared).await;
            }
        });
    }
}

async fn accept(socket: TcpStream, shared: &Shared) -> std::io::Result<Stream> {
    socket.set_nodelay(true)?;
    match shared.tls() {
        None => Ok(Box::pin(socket)),
        Some(tls) => {
            let accepted = TlsAcceptor::from(tls.server).accept(socket).await;
            match accepted {
                Ok(stream) => Ok(Box::pin(stream)),
                Err(error) => {
                    shared.warn(format!("a connection to the listener for peers was refused: {error}"));
                    Err(error)
                }
            }
        }
    }
}

async fn connection(stream: Stream, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(request, shared).await) }
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

async fn respond(request: Request<Incoming>, shared: Arc<Shared>) -> hyper::Response<tonic::body::Body> {
    match request.uri().path() {
        FOLLOW => {
            let codec = ProstCodec::<FollowResponse, FollowRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MAX_PEER_MESSAGE_BYTES);
            let service = service_fn(move |request: tonic::Request<FollowRequest>| {
                let shared = Arc::clone(&shared);
                async move { answer(request.into_inner(), &shared).await.map(Response::new) }
            });
            grpc.unary(service, request).await
        }
        REPORT => {
            let codec = ProstCodec::<FollowRequest, ReportRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MAX_PEER_MESSAGE_BYTES);
            let service = service_fn(move |request: tonic::Request<ReportRequest>| {
                let shared = Arc::clone(&shared);
                async move { shared.take_report(request.get_ref()).map(Response::new).map_err(Status::from) }
            });
            grpc.unary(service, request).await
        }
        _ => Status::unimplemented("only nodes of Lately talk here").into_http(),
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::Itself => Status::already_exists(refusal.to_string()),
            Refusal::Wrong(why) => Status::failed_precondition(why),
        }
    }
}

async fn answer(request: FollowRequest, shared: &Shared) -> Result<FollowResponse, Status> {
    shared.check(&request)?;
    // Who asks for what was learned only says nothing of own changes.
    if Question::of(request.question) != Some(Question::Learned) {
        shared.note_follower(request.follower, shared.asked_after(&request));
    }
    shared.wait_for(&request).await;
    Ok(shared.answer(&request))
}
