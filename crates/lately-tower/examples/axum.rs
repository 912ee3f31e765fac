//! A web service on axum with two limits: by the address of the client, and by its API key.
//!
//! `cargo run -p lately-tower --example axum`, then `curl -i http://127.0.0.1:3000/`.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use lately_tower::{BuildError, Limits, by_client_address, by_header, days, minutes};
use tokio::net::TcpListener;

fn app(max_a_minute: u64) -> Result<Router, BuildError> {
    let limits = Limits::builder()
        .limit("ip", by_client_address(), max_a_minute, minutes(1))
        .limit("key", by_header("x-api-key"), 10_000, days(1))
        // Those of your load balancer. Only what it wrote into X-Forwarded-For is believed.
        .trusted_proxies(["10.0.0.0/8"])
        .memory_ceiling(64 << 20)
        .build()?;
    Ok(Router::new().route("/", get(|| async { "hello\n" })).layer(limits.layer()))
}

async fn serve(listener: TcpListener, app: Router) -> std::io::Result<()> {
    // The layer needs the address of the peer.
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
    fn the_page_about_embedding_has_the_example_of_axum() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &str| fs::read_to_string(root.join(path)).expect("it is in the repository");
        let program = read("examples/axum.rs");
        let program = program.split("\n#[cfg(test)]").next().expect("a program");
        let (_, program) = program.split_once("\n\n").expect("a first paragraph");
        let page = read("../../docs/guide/embedding.md");
        let shown = page.split("```rust\n").nth(2).and_then(|rest| rest.split("```").next());
        assert_eq!(shown, Some(program));
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
    async fn requests_past_the_limit_of_the_example_are_denied() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, app(2).expect("valid")));
        assert_eq!(request(address).await, ("200".to_owned(), None));
        assert_eq!(request(address).await, ("200".to_owned(), None));
        let (status, retry) = request(address).await;
        assert_eq!(status, "429");
        assert!(retry.is_some_and(|seconds| (1..=60).contains(&seconds)), "{retry:?}");
    }
}
