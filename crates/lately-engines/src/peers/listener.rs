//! Answers the nodes that follow this one.

use std::sync::Arc;

use hyper::Request;
use tokio::net::TcpListener;
use tonic::Status;

use super::following::Question;
use super::wire::{FOLLOW, FollowRequest, FollowResponse, REPORT};
use super::{Refusal, Shared};
use crate::calls::{NodeMethods, NodeResponse, answer_node};
use crate::limits::MAX_PEER_MESSAGE_BYTES;
use crate::node_listener::{self, NodeBody};

/// Answers other nodes, as long as it is polled. Methods that are not of the mesh are among `more`, if any.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, more: Option<NodeMethods>) {
    let (of_tls, of_warn, room) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared.room));
    let methods: NodeMethods =
        Arc::new(move |request| Box::pin(respond(request, Arc::clone(&shared), more.clone())));
    node_listener::serve(
        listener,
        move || Ok(of_tls.tls()),
        (methods, room),
        move |warning| of_warn.warn(warning),
    )
    .await;
}

async fn respond(request: Request<NodeBody>, shared: Arc<Shared>, more: Option<NodeMethods>) -> NodeResponse {
    match request.uri().path() {
        FOLLOW => {
            let method = |question| {
                let shared = Arc::clone(&shared);
                async move { answer(question, &shared).await }
            };
            answer_node(request, MAX_PEER_MESSAGE_BYTES, method).await
        }
        REPORT => {
            let method = |report| {
                let shared = Arc::clone(&shared);
                async move { shared.take_report(&report).map_err(Status::from) }
            };
            answer_node(request, MAX_PEER_MESSAGE_BYTES, method).await
        }
        _ => match more {
            Some(more) => more(request).await,
            None => Status::unimplemented("only nodes of Lately talk here").into_http(),
        },
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
