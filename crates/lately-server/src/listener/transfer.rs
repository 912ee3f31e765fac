//! `GET /v1/dump` and `POST /v1/restore`: streams, read and written by threads that may wait.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc::{self, Receiver};

use crate::RUN_ID_HEADER;
use crate::engine::Engine;
use crate::limits::{MAX_DUMPS, TRANSFER_PIECES};
use crate::transfer::RestoreError;

/// Counts what a connection has carried: one that carries something is not timed out.
#[derive(Clone, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    fn made(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A problem, as RFC 9457 has it.
#[derive(Serialize)]
struct Problem {
    title: &'static str,
    status: u16,
    detail: String,
}

fn problem(status: StatusCode, title: &'static str, detail: &dyn std::fmt::Display) -> Response {
    let body = Problem { title, status: status.as_u16(), detail: detail.to_string() };
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// Why there is neither a dump nor a restore now, if so.
fn refusal(engine: &Engine, headers: &HeaderMap) -> Option<Response> {
    if headers.get(RUN_ID_HEADER).is_some_and(|wanted| wanted != engine.run_id.as_str()) {
        let detail = format!("this is not the server with the {RUN_ID_HEADER} of the request");
        return Some(problem(StatusCode::MISDIRECTED_REQUEST, "another server", &detail));
    }
    let detail = "the server is loading its counts: try again later";
    engine.is_loading().then(|| problem(StatusCode::SERVICE_UNAVAILABLE, "loading", &detail))
}

/// Pieces of a body as they are made.
struct Pieces {
    pieces: Receiver<io::Result<Bytes>>,
    progress: Progress,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = self.pieces.poll_recv(cx);
        self.progress.made();
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

pub(super) async fn dump(
    State(engine): State<Arc<Engine>>,
    Extension(progress): Extension<Progress>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal(&engine, &headers) {
        return refusal;
    }
    let Some(dumping) = Dumping::begin(&engine) else {
        let detail = format!("{MAX_DUMPS} other dumps are under way");
        return problem(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail);
    };
    let (send, pieces) = mpsc::channel(TRANSFER_PIECES);
    tokio::task::spawn_blocking(move || {
        let dumped = dumping.0.dump(|piece| send.blocking_send(Ok(piece.into())).is_ok());
        if let Err(why) = dumped {
            // The stream breaks off: whoever reads it finds no end.
            let _ = send.blocking_send(Err(io::Error::other(why)));
        }
    });
    let body = Body::new(Pieces { pieces, progress });
    ([(CONTENT_TYPE, "application/vnd.lately.dump")], body).into_response()
}

/// One of a few dumps at a time: what happens meanwhile is held for each.
struct Dumping(Arc<Engine>);

impl Dumping {
    fn begin(engine: &Arc<Engine>) -> Option<Dumping> {
        let one_more = |dumps| (dumps < MAX_DUMPS).then_some(dumps + 1);
        engine.dumps.fetch_update(Relaxed, Relaxed, one_more).ok().map(|_| Dumping(Arc::clone(engine)))
    }
}

impl Drop for Dumping {
    fn drop(&mut self) {
        self.0.dumps.fetch_sub(1, Relaxed);
    }
}

pub(super) async fn restore(
    State(engine): State<Arc<Engine>>,
    Extension(progress): Extension<Progress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Some(refusal) = refusal(&engine, &headers) {
        return refusal;
    }
    let replace = match query.as_deref() {
        None | Some("" | "replace=false") => false,
        Some("replace=true") => true,
        Some(other) => {
            let detail = format!("invalid query '{other}': give replace=true, or nothing");
            return problem(StatusCode::BAD_REQUEST, "invalid query", &detail);
        }
    };
    let (send, pieces) = mpsc::channel(TRANSFER_PIECES);
    let moves = progress.clone();
    let carried = tokio::spawn(carry(body, send, progress));
    let restored = tokio::task::spawn_blocking(move || {
        engine.restore(&mut Incoming { pieces, piece: Bytes::new() }, replace, || moves.made())
    });
    let restored = restored.await.expect("a panic is a bug that has been reported");
    // Who is answered while it still sends takes that for a failure.
    let _ = carried.await;
    match restored {
        Ok(restored) => Json(restored).into_response(),
        Err(error @ RestoreError::Dump(_)) => problem(StatusCode::BAD_REQUEST, "invalid dump", &error),
        Err(error @ RestoreError::NotEmpty { .. }) => problem(StatusCode::CONFLICT, "not empty", &error),
        Err(error @ RestoreError::TooLarge { .. }) => {
            problem(StatusCode::INSUFFICIENT_STORAGE, "too large", &error)
        }
        Err(error @ RestoreError::Busy) => problem(StatusCode::SERVICE_UNAVAILABLE, "busy", &error),
        Err(error @ RestoreError::Refused { .. }) => {
            problem(StatusCode::SERVICE_UNAVAILABLE, "refused", &error)
        }
    }
}

/// Carries a body to the thread that reads it; what that does not want is thrown away.
async fn carry(mut body: Body, send: mpsc::Sender<io::Result<Bytes>>, progress: Progress) {
    let mut send = Some(send);
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        progress.made();
        let piece = match frame {
            None => return,
            Some(Ok(frame)) => frame.into_data().map_err(|_| io::Error::other("trailers")),
            Some(Err(error)) => Err(io::Error::other(error)),
        };
        let is_over = piece.is_err();
        if let Some(open) = &send
            && open.send(piece).await.is_err()
        {
            send = None;
        }
        if is_over {
            return;
        }
    }
}

/// A body, for a thread that may wait.
struct Incoming {
    pieces: Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Incoming {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        let count = room.len().min(self.piece.len());
        room[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
