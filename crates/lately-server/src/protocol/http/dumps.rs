//! `GET /v1/dump` and `POST /v1/restore`: streams, read and written by blocking threads.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{RawQuery, State};
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, RETRY_AFTER, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::body::Frame;
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::timeout;

use super::listener::Link;
use super::pace::{Pace, Upload};
use super::places::{Place, Transfers};
use super::problem::{Document, problem};
use crate::RUN_ID_HEADER;
use crate::limits::{DUMP_PIECE_BYTES, HTTP_DISCARD_BYTES, LINGER, MAX_DUMPS, TRANSFER_PIECES};
use crate::service::Service;
use crate::service::dumps::{RestoreError, Restored};
use crate::service::spool_file::spool_folder;

/// The pace of a transfer: that of its connection or, where it shares the connection with other requests, its own.
fn pace_of(link: &Link, version: Version) -> Arc<Pace> {
    if version != Version::HTTP_2 {
        return Arc::clone(&link.pace);
    }
    let pace = Pace::of_transfer(&link.pace);
    tokio::spawn(Pace::keep_up(Arc::downgrade(&pace)));
    pace
}

/// The reason to refuse any dump or restore now, if there is one.
fn refusal(service: &Service, headers: &HeaderMap) -> Option<Response> {
    if headers.get(RUN_ID_HEADER).is_some_and(|wanted| wanted != service.run_id.as_str()) {
        let detail = format!("this is not the server with the {RUN_ID_HEADER} of the request");
        return Some(problem(StatusCode::MISDIRECTED_REQUEST, "another server", &detail));
    }
    let detail = "the server is loading its counts: try again later";
    service.is_loading().then(|| problem(StatusCode::SERVICE_UNAVAILABLE, "loading", &detail))
}

/// The body of a dump.
struct Pieces {
    pieces: Receiver<io::Result<Bytes>>,
    /// The rest of the current piece.
    left: Bytes,
    /// Bytes handed out last. When more are requested, the client has taken them.
    handed_bytes: usize,
    place: Place,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let taken_bytes = std::mem::take(&mut self.handed_bytes);
        self.place.pace().moved(taken_bytes);
        if self.left.is_empty() {
            self.place.pace().is_at_us();
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Ok(piece)) => self.left = piece,
                other => {
                    self.place.pace().is_at_the_client();
                    return Poll::Ready(other.map(|end| end.map(Frame::data)));
                }
            }
        }
        self.place.pace().is_at_the_client();
        let count = self.left.len().min(DUMP_PIECE_BYTES);
        self.handed_bytes = count;
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(count)))))
    }
}

/// A dump of all keys, of the moment at which it ends.
#[utoipa::path(
    get, path = "/v1/dump", tag = "server",
    responses(
        (status = 200, description = "The dump.", body = Vec<u8>, content_type = "application/vnd.lately.dump"),
    ),
)]
pub(super) async fn dump(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    Extension(transfers): Extension<Transfers>,
    RawQuery(query): RawQuery,
    version: Version,
    headers: HeaderMap,
) -> Response {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        let detail = format!("invalid query '{query}': a dump takes none");
        return problem(StatusCode::BAD_REQUEST, "invalid query", &detail);
    }
    if let Some(refusal) = refusal(&service, &headers) {
        return refusal;
    }
    let place = match transfers.dumps.take(&pace_of(&link, version)).await {
        Ok(place) => place,
        Err(seconds) => return busy(&format!("{MAX_DUMPS} other dumps are under way"), seconds),
    };
    let (send, pieces) = mpsc::channel(TRANSFER_PIECES);
    tokio::task::spawn_blocking(move || {
        let dumped =
            service.dump(|piece| send.blocking_send(Ok(Bytes::from_owner(service.charged(piece)))).is_ok());
        if let Err(why) = dumped {
            // The stream breaks off, so the client sees an incomplete dump.
            let _ = send.blocking_send(Err(io::Error::other(why)));
        }
    });
    let body = Body::new(Pieces { pieces, left: Bytes::new(), handed_bytes: 0, place });
    ([(CONTENT_TYPE, "application/vnd.lately.dump")], body).into_response()
}

/// The answer when all places are taken.
fn busy(detail: &str, seconds: u64) -> Response {
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "busy", &detail);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Restores the keys of a dump.
#[utoipa::path(
    post, path = "/v1/restore", tag = "server",
    params(("replace" = Option<bool>, Query, description = "Whether the keys that are there may be replaced.")),
    request_body(content = Vec<u8>, content_type = "application/vnd.lately.dump"),
    responses(
        (status = 200, description = "All is restored.", body = Restored),
        (status = 408, description = "The dump comes too slowly.", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "There are keys, and they may not be replaced.", body = Document, content_type = "application/problem+json"),
        (status = 415, description = "The body has a content coding.", body = Document, content_type = "application/problem+json"),
        (status = 501, description = "The body has an unknown transfer coding.", body = Document, content_type = "application/problem+json"),
        (status = 507, description = "There is no room for it.", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn restore(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
    Extension(transfers): Extension<Transfers>,
    RawQuery(query): RawQuery,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let pace = &pace_of(&link, version);
    let begun = match begin_restore(&service, query.as_deref(), &headers) {
        Ok(replace) => match transfers.restores.take(pace).await {
            Ok(place) => Ok((place, replace)),
            Err(seconds) => Err(busy("another restore is under way", seconds).into()),
        },
        Err(refusal) => Err(refusal),
    };
    let (place, replace) = match begun {
        Ok(begun) => begun,
        Err(refusal) => {
            discard(&headers, body).await;
            return *refusal;
        }
    };
    let (send, pieces) = mpsc::channel(TRANSFER_PIECES);
    pace.set_upload(Some(Upload::Unchanged));
    // The thread holds the place, because it goes on when the client has gone.
    let restored = tokio::task::spawn_blocking(move || {
        let restored = {
            let counts = service.config.storage.as_ref().map(|storage| storage.path.as_path());
            let mut body = Incoming { pieces, piece: Bytes::new() };
            service.restore(&mut body, &spool_folder(counts), replace)
        };
        drop(place);
        restored
    });
    let left = carry(body, send, pace).await;
    pace.set_upload(None);
    transfers.restores.keep(pace);
    let restored = restored.await.expect("a panic is a bug that has been reported");
    pace.is_at_the_client();
    // A client that is answered while it still sends takes that for a failure.
    if let Some(body) = left {
        discard(&HeaderMap::new(), body).await;
    }
    restored.map_or_else(|error| refused(&error), |restored| Json(restored).into_response())
}

/// Refuses a body that is compressed or coded. hyper itself accepts any transfer coding before chunked.
pub(super) fn coded(headers: &HeaderMap) -> Option<Response> {
    let codings = |name| {
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        values.collect::<Vec<_>>().join(", ")
    };
    let transfer = codings(TRANSFER_ENCODING);
    if !transfer.is_empty() && !transfer.eq_ignore_ascii_case("chunked") {
        let detail = format!(
            "transfer-encoding '{transfer}' is not supported: send the body as it is, chunked or with a content-length"
        );
        return Some(problem(StatusCode::NOT_IMPLEMENTED, "unknown transfer coding", &detail));
    }
    let content = codings(CONTENT_ENCODING);
    if content.is_empty() || content.eq_ignore_ascii_case("identity") {
        return None;
    }
    let detail = format!("content-encoding '{content}' is not supported: send the body as it is");
    let mut response = problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown content coding", &detail);
    response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Some(response)
}

/// Checks whether a restore may begin. Returns whether keys may be replaced.
fn begin_restore(
    service: &Arc<Service>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<bool, Box<Response>> {
    if let Some(refusal) = refusal(service, headers) {
        return Err(refusal.into());
    }
    if let Some(refusal) = coded(headers) {
        return Err(refusal.into());
    }
    let replace = match query {
        None | Some("" | "replace=false") => false,
        Some("replace=true") => true,
        Some(other) => {
            let detail = format!("invalid query '{other}': give replace=true, or nothing");
            return Err(problem(StatusCode::BAD_REQUEST, "invalid query", &detail).into());
        }
    };
    service.check_restore(replace).map_err(|error| refused(&error))?;
    Ok(replace)
}

/// The answer to a failed restore.
fn refused(error: &RestoreError) -> Response {
    let (status, title) = match error {
        RestoreError::Dump(_) => (StatusCode::BAD_REQUEST, "invalid dump"),
        RestoreError::NotEmpty { .. } => (StatusCode::CONFLICT, "not empty"),
        RestoreError::Clustered => (StatusCode::CONFLICT, "counts together"),
        RestoreError::TooLarge { .. } => (StatusCode::INSUFFICIENT_STORAGE, "too large"),
        RestoreError::Spool { .. } => (StatusCode::INSUFFICIENT_STORAGE, "no room to check it"),
        RestoreError::Refused { .. } => (StatusCode::SERVICE_UNAVAILABLE, "refused"),
    };
    problem(status, title, error)
}

/// The next piece of a body. `None` at its end.
pub(super) async fn next_piece(body: &mut Body) -> Option<io::Result<Bytes>> {
    loop {
        match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await? {
            Ok(frame) => {
                // Trailers say nothing here.
                if let Ok(data) = frame.into_data() {
                    return Some(Ok(data));
                }
            }
            Err(error) => return Some(Err(io::Error::other(error))),
        }
    }
}

/// Passes a body to the thread that reads it. Returns the rest when the thread stops reading.
async fn carry(mut body: Body, send: mpsc::Sender<io::Result<Bytes>>, pace: &Pace) -> Option<Body> {
    loop {
        pace.is_at_the_client();
        let piece = tokio::select! {
            piece = next_piece(&mut body) => piece,
            () = send.closed() => return Some(body),
        };
        pace.is_at_us();
        let piece = piece?;
        let is_over = piece.is_err();
        pace.moved(piece.as_ref().map_or(0, Bytes::len));
        if send.send(piece).await.is_err() {
            return Some(body);
        }
        if is_over {
            return None;
        }
    }
}

/// Reads and discards the body of a refused request until the client pauses, because a client may not read an answer
/// while it sends. A client that waits for `100 Continue` has not begun to send.
pub(super) async fn discard(headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let mut left_bytes = HTTP_DISCARD_BYTES;
    while let Ok(Some(Ok(piece))) = timeout(LINGER, next_piece(&mut body)).await
        && piece.len() <= left_bytes
    {
        left_bytes -= piece.len();
    }
}

/// A body, for a blocking thread.
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
