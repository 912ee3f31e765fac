//! The RESP listener: takes connections while there is room, and tells them to end on a stop.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::pause;
use crate::engine::{Engine, Stats};
use crate::limits::{ACCEPT_RETRY, DRAIN_TIMEOUT, WRITE_TIMEOUT};
use crate::stopper::Stopper;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// Serves until the stop, then waits for the connections to finish what they had read.
pub(crate) async fn serve(listener: TcpListener, engine: Arc<Engine>, stopper: Stopper) {
    let room = Arc::new(Semaphore::new(engine.config.max_clients.min(Semaphore::MAX_PERMITS)));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopper.stopped() => break,
            // Ended tasks are collected as they end.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((socket, address)) => {
                Stats::add(&engine.stats.connections, 1);
                let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                    Stats::add(&engine.stats.refused_connections, 1);
                    connections.spawn(refuse(socket));
                    continue;
                };
                let (engine, stopper) = (Arc::clone(&engine), stopper.clone());
                connections.spawn(async move {
                    // A connection that cannot be set up, or breaks, ends: the client sees it.
                    let _ = converse(socket, address, engine, stopper).await;
                    drop(permit);
                });
            }
            // The client has gone already, or there are no file descriptors: then an end frees one.
            Err(_) => tokio::select! {
                Some(_) = connections.join_next() => {}
                () = pause(ACCEPT_RETRY) => {}
            },
        }
    }
    drop(listener);
    engine.clients.call_all();
    let drained = async { while connections.join_next().await.is_some() {} };
    // What is not drained by then belongs to clients that do not take their replies.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

async fn refuse(mut socket: TcpStream) {
    let refusal = async {
        socket.write_all(TOO_MANY_CLIENTS).await?;
        socket.shutdown().await
    };
    let _ = tokio::time::timeout(WRITE_TIMEOUT, refusal).await;
}

async fn converse(
    socket: TcpStream,
    address: SocketAddr,
    engine: Arc<Engine>,
    stopper: Stopper,
) -> std::io::Result<()> {
    // Replies are written whole: there is nothing to wait for.
    socket.set_nodelay(true)?;
    let client = engine.clients.connect(address, socket.local_addr()?, engine.now());
    let result = Connection::new(socket, Arc::clone(&engine), Arc::clone(&client), stopper).run().await;
    engine.clients.disconnect(&client);
    result
}
