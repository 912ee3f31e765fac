//! The layer with hyper alone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use lately::minutes;
use lately_tower::{Limits, by_client_address};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

use crate::common::{Web, build};

/// A service of hyper.
#[derive(Clone)]
struct Hello;

impl<B> Service<Request<B>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Ok(Response::new("hello".to_owned())))
    }
}

/// Adds the address of the peer to requests.
#[derive(Clone)]
struct WithPeer<S>(S, SocketAddr);

impl<B, S: Service<Request<B>>> Service<Request<B>> for WithPeer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.1);
        self.0.call(request)
    }
}

#[tokio::test]
async fn a_service_of_hyper_is_limited() {
    let limits = build(Limits::builder().limit("ip", by_client_address(), 2, minutes(1)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let layer = limits.layer();
    tokio::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            let service = TowerToHyperService::new(WithPeer(layer.layer(Hello), peer));
            tokio::spawn(async move {
                Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await
            });
        }
    });
    let web = Web { address };
    let first = web.get("").await;
    assert_eq!((first.status(), first.body.as_str()), (200, "hello"));
    assert_eq!(web.statuses(&["", ""]).await, [200, 429]);
}
