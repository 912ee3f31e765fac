//! The listener for calls of other nodes. What its clients hold is bounded and counted: connections, messages that arrive, and answers
//! until they are taken. A client that keeps the server waiting is disconnected, and one without a call makes room for another.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tower::service_fn;

use crate::calls::{NodeMethods, Stream};
use crate::limits::{
    ENGINE_TIMEOUT, LEAST_NODE_BYTES, LEAST_NODE_CONNECTIONS, MAX_NODE_BYTES, MAX_NODE_CALLS,
    MAX_NODE_HEAD_BYTES, MAX_PEER_CONNECTIONS, NODE_CONNECTION_BYTES, NODE_COPIES, NODE_LATE_LOOKS,
    NODE_LOOK_EVERY, NODE_WINDOW_BYTES, NODES_SHARE, PEER_WAIT,
};
use crate::pause::pause;
use crate::peers::Configs;

/// The memory that the clients of a listener for nodes may hold.
#[derive(Debug)]
pub struct NodeRoom {
    most_connections: usize,
    most_bytes: usize,
    free_bytes: Arc<Semaphore>,
    connections: AtomicUsize,
}

impl NodeRoom {
    /// The room on a server with this memory ceiling.
    #[must_use]
    pub fn new(ceiling_bytes: u64) -> Arc<NodeRoom> {
        let part_bytes = usize::try_from(ceiling_bytes / NODES_SHARE).unwrap_or(usize::MAX);
        let most_bytes = part_bytes.clamp(LEAST_NODE_BYTES, MAX_NODE_BYTES);
        let fit = part_bytes / NODE_CONNECTION_BYTES;
        Arc::new(NodeRoom {
            most_connections: fit.clamp(LEAST_NODE_CONNECTIONS, MAX_PEER_CONNECTIONS),
            most_bytes,
            free_bytes: Arc::new(Semaphore::new(most_bytes)),
            connections: AtomicUsize::new(0),
        })
    }

    /// What the clients hold, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let messages = self.most_bytes - self.free_bytes.available_permits();
        messages + self.connections.load(Relaxed) * NODE_CONNECTION_BYTES
    }
}

/// A connection of another node.
struct Connection {
    room: Arc<NodeRoom>,
    calls: Mutex<Vec<Weak<Call>>>,
    /// Looks at it so far: its time.
    looks: AtomicU64,
    ended: Notify,
}

impl Connection {
    fn new(room: &Arc<NodeRoom>) -> Arc<Connection> {
        room.connections.fetch_add(1, Relaxed);
        let (room, calls, looks) = (Arc::clone(room), Mutex::default(), AtomicU64::new(0));
        Arc::new(Connection { room, calls, looks, ended: Notify::new() })
    }

    fn begin_call(self: &Arc<Connection>) -> Arc<Call> {
        let state = CallState { waits_since: Some(self.looks.load(Relaxed)), held: None };
        let call = Arc::new(Call { connection: Arc::clone(self), state: Mutex::new(state) });
        let mut calls = self.calls();
        calls.retain(|call| call.strong_count() > 0);
        calls.push(Arc::downgrade(&call));
        call
    }

    /// Whether the server works on none of its calls.
    fn is_idle(&self) -> bool {
        self.calls().iter().filter_map(Weak::upgrade).all(|call| call.state().waits_since.is_some())
    }

    /// Returns once a call has kept the server waiting for too long.
    async fn late(&self) {
        loop {
            pause(NODE_LOOK_EVERY).await;
            let look = self.looks.fetch_add(1, Relaxed) + 1;
            let is_late = |call: Arc<Call>| {
                call.state().waits_since.is_some_and(|since| look - since >= NODE_LATE_LOOKS)
            };
            if self.calls().iter().filter_map(Weak::upgrade).any(is_late) {
                return;
            }
        }
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Weak<Call>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.room.connections.fetch_sub(1, Relaxed);
    }
}

/// A call of another node, until its answer is taken.
pub(crate) struct Call {
    connection: Arc<Connection>,
    state: Mutex<CallState>,
}

struct CallState {
    /// The look in which the server began to wait for the client. `None`: it works.
    waits_since: Option<u64>,
    held: Option<OwnedSemaphorePermit>,
}

impl Call {
    fn works(&self) {
        self.state().waits_since = None;
    }

    fn waits(&self) {
        self.state().waits_since = Some(self.connection.looks.load(Relaxed));
    }

    /// Counts bytes of its message that have come.
    fn take_in(&self, bytes: usize) -> Result<(), Status> {
        let permits = u32::try_from(bytes * NODE_COPIES).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.connection.room.free_bytes).try_acquire_many_owned(permits);
        self.hold(room.map_err(|_| no_room())?);
        Ok(())
    }

    /// Waits for room for its answer.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn give_out(&self, bytes: usize) -> Result<(), Status> {
        let permits = u32::try_from(bytes * NODE_COPIES).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.connection.room.free_bytes).acquire_many_owned(permits);
        match timeout(PEER_WAIT, room).await {
            Ok(Ok(held)) => self.hold(held),
            _ => return Err(no_room()),
        }
        Ok(())
    }

    fn hold(&self, more: OwnedSemaphorePermit) {
        let mut state = self.state();
        match &mut state.held {
            Some(held) => held.merge(more),
            None => state.held = Some(more),
        }
    }

    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_room() -> Status {
    Status::resource_exhausted("the messages of other nodes take all the memory that there is for them")
}

/// The message of a call.
pub struct NodeBody {
    body: Incoming,
    call: Arc<Call>,
}

impl Body for NodeBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if let Err(status) = self.call.take_in(bytes) {
            return Poll::Ready(Some(Err(status.into())));
        }
        if frame.is_none() || self.body.is_end_stream() {
            self.call.works();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer that is on its way.
struct Answer {
    body: tonic::body::Body,
    _call: Arc<Call>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Answers other nodes, as long as it is polled. Its connections end with it.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: impl Fn() -> io::Result<Option<Configs>> + Send + Sync + 'static,
    (methods, room): (NodeMethods, Arc<NodeRoom>),
    warn: impl Fn(String) + Send + Sync + 'static,
) {
    let shared = Arc::new((tls, warn));
    let (mut running, mut open) = (JoinSet::new(), Vec::new());
    loop {
        make_room(&mut running, &mut open, room.most_connections).await;
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = running.join_next() => continue,
        };
        let Ok((socket, _)) = accepted else {
            // File descriptors ran out. The end of a connection frees one.
            pause(NODE_LOOK_EVERY / 10).await;
            continue;
        };
        let connection = Connection::new(&room);
        open.push(Arc::downgrade(&connection));
        let (methods, shared) = (Arc::clone(&methods), Arc::clone(&shared));
        running.spawn(async move {
            let (tls, warn) = &*shared;
            tokio::select! {
                () = answer(socket, (tls, warn), methods, &connection) => {}
                () = connection.late() => {}
                () = connection.ended.notified() => {}
            }
        });
    }
}

/// Waits until there is room for another connection. Ends the oldest that has no call at work.
async fn make_room(running: &mut JoinSet<()>, open: &mut Vec<Weak<Connection>>, most: usize) {
    loop {
        while running.try_join_next().is_some() {}
        // One that has ended keeps memory until it leaves the list.
        open.retain(|connection| connection.strong_count() > 0);
        if running.len() < most {
            return;
        }
        let idle = open.iter().filter_map(Weak::upgrade).find(|connection| connection.is_idle());
        if let Some(idle) = idle {
            // A stall of the process may have left calls in the sockets: whoever has sent one has its turn first.
            yield_now().await;
            if idle.is_idle() {
                idle.ended.notify_one();
            }
        }
        tokio::select! {
            _ = running.join_next() => {}
            () = pause(NODE_LOOK_EVERY / 10) => {}
        }
    }
}

async fn answer(
    socket: TcpStream,
    (tls, warn): (&impl Fn() -> io::Result<Option<Configs>>, &impl Fn(String)),
    methods: NodeMethods,
    connection: &Arc<Connection>,
) {
    match timeout(ENGINE_TIMEOUT, accept(socket, tls())).await {
        Ok(Ok(stream)) => answer_calls(stream, methods, connection).await,
        Ok(Err(error)) => warn(format!("a connection of another node was refused: {error}")),
        Err(_) => {}
    }
}

async fn accept(socket: TcpStream, tls: io::Result<Option<Configs>>) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    let Some(tls) = tls? else { return Ok(Box::pin(socket)) };
    Ok(Box::pin(TlsAcceptor::from(tls.server).accept(socket).await?))
}

async fn answer_calls(stream: Stream, methods: NodeMethods, connection: &Arc<Connection>) {
    let connection = Arc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let call = connection.begin_call();
        if request.body().is_end_stream() {
            call.works();
        }
        let mut request = request.map(|body| NodeBody { body, call: Arc::clone(&call) });
        request.extensions_mut().insert(Arc::clone(&call));
        let answered = methods(request);
        async move {
            let response = answered.await;
            call.waits();
            Ok::<_, Infallible>(response.map(|body| Answer { body, _call: call }))
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(2 * PEER_WAIT))
        .keep_alive_timeout(ENGINE_TIMEOUT)
        .initial_stream_window_size(NODE_WINDOW_BYTES)
        .initial_connection_window_size(NODE_WINDOW_BYTES)
        .max_send_buf_size(NODE_WINDOW_BYTES as usize)
        .max_header_list_size(MAX_NODE_HEAD_BYTES)
        .max_concurrent_streams(MAX_NODE_CALLS);
    // A connection that ends early is made anew by the other node.
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tonic::client::Grpc;

    use super::*;
    use crate::calls::{answer_node, call_node, connect_node};
    use crate::limits::MAX_PEER_MESSAGE_BYTES;

    /// The least room.
    const CEILING_BYTES: u64 = 1 << 20;

    const PATH: &str = "/call";

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// The start of a connection, and the heads of calls, as RFC 9113 and 7541 have them.
    fn heads(calls: u32) -> Vec<u8> {
        let fields = b"\x83\x86\x44\x05/call\x41\x01x\x5f\x10application/grpc";
        let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
        (0..calls).for_each(|call| bytes.extend(frame(1, 4, 2 * call + 1, fields)));
        bytes
    }

    /// Runs a test beside a listener with the least room, whose method answers with what it is sent.
    fn with_listener<F: Future<Output = ()>>(test: impl FnOnce(String, Arc<NodeRoom>) -> F) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Time passes when nothing else happens.
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address").to_string();
            let room = NodeRoom::new(CEILING_BYTES);
            let methods: NodeMethods = Arc::new(|request| {
                let echo = async |message: Vec<u8>| Ok(message);
                Box::pin(answer_node(request, MAX_PEER_MESSAGE_BYTES, move |message| Box::pin(echo(message))))
            });
            let served = serve(listener, || Ok(None), (methods, Arc::clone(&room)), |why| panic!("{why}"));
            tokio::select! {
                () = served => {}
                () = test(address, room) => {}
            }
        });
    }

    async fn call(address: &str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
        let address = address.parse().expect("an address");
        let mut grpc = Grpc::new(connect_node(&address, None).await.map_err(Status::unavailable)?);
        call_node(&mut grpc, PATH, message, ENGINE_TIMEOUT * 10).await
    }

    #[test]
    fn calls_are_answered_and_hold_nothing_afterwards() {
        with_listener(async |address, room| {
            for bytes in [0, 1, 300_000] {
                let message = vec![7; bytes];
                assert_eq!(call(&address, message.clone()).await.expect("an answer"), message);
            }
            while room.held_bytes() > 0 {
                pause(NODE_LOOK_EVERY).await;
            }
            let refused = call(&address, vec![7; LEAST_NODE_BYTES]).await.expect_err("too long");
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        });
    }

    /// Symptom: a thousand connections that sent nothing locked all other nodes out. Cause: places for connections were given away once.
    /// Fix: a connection without a call at work makes room.
    #[test]
    fn a_silent_connection_makes_room_for_another() {
        with_listener(async |address, room| {
            let mut silent = Vec::new();
            for _ in 0..3 * LEAST_NODE_CONNECTIONS {
                silent.push(TcpStream::connect(&address).await.expect("it listens"));
            }
            assert_eq!(call(&address, vec![1]).await.expect("an answer"), [1]);
            assert!(room.connections.load(Relaxed) <= LEAST_NODE_CONNECTIONS);
        });
    }

    /// Symptom: eight connections that sent messages by half held 460 MiB at a ceiling of 64 MiB, for as long as they answered pings.
    /// Cause: nothing bounded the messages of all connections, or the time of one. Fix: both have a bound.
    #[test]
    fn messages_that_do_not_end_are_bounded_and_cut() {
        with_listener(async |address, room| {
            let most_bytes = LEAST_NODE_BYTES + LEAST_NODE_CONNECTIONS * NODE_CONNECTION_BYTES;
            let mut client = TcpStream::connect(&address).await.expect("it listens");
            client.write_all(&heads(MAX_NODE_CALLS)).await.expect("it is taken");
            // The start of a message of 8 MB, then as much as the window takes.
            let start = [&[0, 0, 0x7a, 0x12, 0][..], &[0; 1_000]].concat();
            for call in 0..MAX_NODE_CALLS {
                client.write_all(&frame(0, 0, 2 * call + 1, &start)).await.expect("it is taken");
            }
            let (mut reader, _writer) = client.into_split();
            let (mut has_held, is_over) = (false, AtomicBool::new(false));
            let read = async {
                // The server ends the connection, though nobody else wants its place.
                while reader.read(&mut [0; 4_096]).await.is_ok_and(|bytes| bytes > 0) {}
                is_over.store(true, Relaxed);
            };
            let watch = async {
                while !is_over.load(Relaxed) {
                    has_held |= room.held_bytes() >= NODE_CONNECTION_BYTES + NODE_COPIES * start.len();
                    assert!(room.held_bytes() <= most_bytes, "{}", room.held_bytes());
                    pause(NODE_LOOK_EVERY / 10).await;
                }
            };
            tokio::join!(read, watch);
            assert!(has_held);
            while room.held_bytes() > 0 {
                pause(NODE_LOOK_EVERY).await;
            }
        });
    }

    #[test]
    fn the_room_is_a_part_of_the_ceiling() {
        let check = |ceiling_mib: u64, connections: usize, mib: usize| {
            let room = NodeRoom::new(ceiling_mib << 20);
            assert_eq!((room.most_connections, room.most_bytes >> 20), (connections, mib), "{ceiling_mib}");
            assert_eq!(room.held_bytes(), 0);
        };
        check(1, LEAST_NODE_CONNECTIONS, 2);
        check(64, 128, 8);
        check(1_024, MAX_PEER_CONNECTIONS, 64);
        check(1 << 20, MAX_PEER_CONNECTIONS, 64);
    }
}
