//! The addresses on which the server may listen.

use std::net::{SocketAddr, TcpListener};

use lately_server::{Config, Server, ServerError};

use crate::common::{Running, Wire, config, standing_clock};

fn bind(config: Config) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Server::bind(config, standing_clock())).map(|_| ())
}

#[test]
fn the_server_listens_beyond_loopback_only_if_allowed() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let refusal = |what: &str| {
        format!(
            "refusing to listen on 0.0.0.0:0 for {what}: there are no users, anybody who reaches it could count, read and delete"
        )
    };
    for (what, config) in
        [("RESP", Config { resp: everywhere, ..config() }), ("HTTP", Config { http: everywhere, ..config() })]
    {
        let error = bind(config.clone()).expect_err("exposed");
        assert_eq!(error.to_string(), refusal(what));
        assert!(bind(Config { insecure: true, ..config }).is_ok());
    }
    // The listener of health and metrics gives no access to keys, so it may be anywhere.
    assert!(bind(Config { metrics: Some(everywhere), ..config() }).is_ok());
    let server = Running::with(Config { resp: everywhere, insecure: true, ..config() }, standing_clock());
    assert_eq!(server.resp.ip(), everywhere.ip());
    let mut client = Wire::connect(SocketAddr::from(([127, 0, 0, 1], server.resp.port())));
    client.ask("PING\r\n", "+PONG\r\n");
    client.ask("CONFIG GET bind\r\n", "*2\r\n$4\r\nbind\r\n$7\r\n0.0.0.0\r\n");
}

#[test]
fn an_address_in_use_is_reported() {
    let taken = TcpListener::bind(config().resp).expect("a free port");
    let address = taken.local_addr().expect("bound");
    for (what, config) in [
        ("RESP", Config { resp: address, ..config() }),
        ("HTTP", Config { http: address, ..config() }),
        ("metrics", Config { metrics: Some(address), ..config() }),
    ] {
        let error = bind(config).expect_err("in use").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} for {what}: ")), "{error}");
    }
}

#[test]
fn the_config_sets_the_addresses() {
    let server = Running::start();
    let port = server.resp.port().to_string();
    assert_ne!(port, "0");
    let expected = format!("*2\r\n$4\r\nport\r\n${}\r\n{port}\r\n", port.len());
    server.connect().ask("CONFIG GET port\r\n", expected);
}
