//! A web service that takes 100 requests a minute from each address.

use std::error::Error;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lately::{Clock, Retry, SettingsError, Store, SystemClock, minutes};
use tokio::net::TcpListener;

/// What all requests share.
struct Limiter {
    store: Store,
    clock: SystemClock,
    max_a_minute: u64,
}

/// An IPv4 address, or the /64 network of an IPv6 address: a customer has at least that much.
fn key(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("ip:{address}"),
        IpAddr::V6(address) => format!("ip:{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

async fn limit_by_address(
    State(limiter): State<Arc<Limiter>>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let (key, now) = (key(client.ip()), limiter.clock.now());
    match limiter.store.limit(key.as_bytes(), limiter.max_a_minute, minutes(1), 1, now) {
        Ok(decision) if decision.is_allowed() => next.run(request).await,
        Ok(decision) => {
            let mut response = StatusCode::TOO_MANY_REQUESTS.into_response();
            if let Retry::After(wait) = decision.retry {
                let seconds = wait.as_millis().unsigned_abs().div_ceil(1_000);
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
            response
        }
        // The memory is full of keys that are at their limit. Nothing is known of this one.
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn app(max_a_minute: u64) -> Result<Router, SettingsError> {
    let store = Store::builder().memory_ceiling(64 << 20).build()?;
    let limiter = Arc::new(Limiter { store, clock: SystemClock::new(), max_a_minute });
    let limit = middleware::from_fn_with_state(limiter, limit_by_address);
    Ok(Router::new().route("/", get(|| async { "hello\n" })).layer(limit))
}

async fn serve(listener: TcpListener, app: Router) -> std::io::Result<()> {
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    Ok(serve(listener, app(100)?).await?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn the_page_about_embedding_has_this_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &str| fs::read_to_string(root.join(path)).expect("it is in the repository");
        let program = read("examples/embedding.rs");
        let program = program.split("\n#[cfg(test)]").next().expect("a program");
        let page = read("../../docs/guide/embedding.md");
        let shown =
            page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
        assert_eq!(shown, program);
    }

    /// The status and the header `retry-after` of a request.
    async fn request(address: SocketAddr) -> (String, Option<u64>) {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it answers");
        let status = text.split(' ').nth(1).expect("a status").to_owned();
        let retry = text.lines().find_map(|line| line.strip_prefix("retry-after: "));
        (status, retry.map(|seconds| seconds.parse().expect("seconds")))
    }

    #[tokio::test]
    async fn requests_past_the_limit_are_denied() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, app(2).expect("valid")));
        assert_eq!(request(address).await, ("200".to_owned(), None));
        assert_eq!(request(address).await, ("200".to_owned(), None));
        let (status, retry) = request(address).await;
        assert_eq!(status, "429");
        assert!(retry.is_some_and(|seconds| (1..=60).contains(&seconds)), "{retry:?}");
    }

    #[test]
    fn an_ipv6_network_has_one_key() {
        let check =
            |address: &str, expected: &str| assert_eq!(key(address.parse().expect(address)), expected);
        check("192.0.2.1", "ip:192.0.2.1");
        check("::ffff:192.0.2.1", "ip:192.0.2.1");
        check("2001:db8:1:2:3:4:5:6", "ip:2001:db8:1:2::/64");
    }
}
