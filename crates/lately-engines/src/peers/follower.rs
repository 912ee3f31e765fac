//! Follows another node: asks for its changes, again and again, and merges them. A parent gets the changes of this node over the same connection.

use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use tonic::client::Grpc;
use tonic::transport::Channel;

use super::address::Address;
use super::following::Following;
use super::stats::PeerRole;
use super::wire::{FOLLOW, FollowRequest, FollowResponse, REPORT};
use super::{Refusal, Shared, lock};
use crate::calls::{self, call_node, reason};
use crate::limits::{ENGINE_TIMEOUT, MAX_PEER_MESSAGE_BYTES, PEER_RETRY, PEER_WAIT};
use crate::pause::pause;

/// Follows a node, as long as it is polled. `number` is its place among the contacts.
pub(super) async fn follow(address: Address, number: usize, shared: Arc<Shared>) {
    let role = lock(&shared.contacts).get(number).map(|contact| contact.role);
    let is_parent = role == Some(PeerRole::Parent);
    let mut following = if is_parent { Following::of_relay() } else { Following::default() };
    let tls = {
        let shared = Arc::clone(&shared);
        move || Ok(shared.tls())
    };
    loop {
        let ended = match calls::connect(&address, tls.clone()).await {
            Ok(channel) if is_parent => {
                tokio::select! {
                    ended = exchange(channel.clone(), &mut following, number, &shared) => ended,
                    ended = report(channel, &shared) => ended,
                }
            }
            Ok(channel) => exchange(channel, &mut following, number, &shared).await,
            Err(failure) => Ended::Failed(failure),
        };
        match ended {
            // A name has the address of this node, too.
            Ended::Itself if address.ip.is_some() => {
                shared.note_self(number);
                return;
            }
            Ended::Left => {
                if let Some(contact) = lock(&shared.contacts).get_mut(number) {
                    contact.has_left = true;
                }
                shared.contacted.notify_waiters();
                return;
            }
            Ended::Itself => shared.note_contact(
                number,
                Some(format!("{address}: it answered: {}", Refusal::Itself)),
                &following,
            ),
            Ended::Failed(failure) => {
                shared.note_contact(number, Some(format!("{address}: {failure}")), &following);
            }
        }
        pause(PEER_RETRY).await;
    }
}

/// Why an exchange is over.
enum Ended {
    Failed(String),
    /// The other node is this one.
    Itself,
    /// The parent knows that this node stops.
    Left,
}

/// Calls a method of another node.
async fn call<Q, A>(
    client: &mut Grpc<Channel>,
    path: &'static str,
    request: Q,
    within: Duration,
) -> Result<A, Ended>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    call_node(client, path, request, within).await.map_err(|status| match status.code() {
        Code::AlreadyExists => Ended::Itself,
        Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented => {
            Ended::Failed(format!("it answered: {}", status.message()))
        }
        _ => Ended::Failed(reason(&status)),
    })
}

/// Asks until something fails. Returns what.
async fn exchange(channel: Channel, following: &mut Following, number: usize, shared: &Shared) -> Ended {
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_PEER_MESSAGE_BYTES);
    loop {
        let (question, request) = shared.question(number, following);
        let answer: FollowResponse =
            match call(&mut client, FOLLOW, request, PEER_WAIT + ENGINE_TIMEOUT).await {
                Ok(answer) => answer,
                Err(ended) => return ended,
            };
        if let Err(failure) = shared.take(number, (question, &answer), following) {
            return Ended::Failed(failure);
        }
    }
}

/// Answers the questions of a parent until something fails, or this node stops.
async fn report(channel: Channel, shared: &Shared) -> Ended {
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_PEER_MESSAGE_BYTES);
    let mut leaving = shared.is_leaving.subscribe();
    let mut answer: Option<FollowResponse> = None;
    loop {
        let report = shared.report(answer.take());
        let is_leaving = report.is_leaving;
        let question: FollowRequest = match call(&mut client, REPORT, report, ENGINE_TIMEOUT).await {
            Ok(question) => question,
            Err(ended) => return ended,
        };
        if is_leaving {
            return Ended::Left;
        }
        match shared.check(&question) {
            Ok(()) => {}
            Err(Refusal::Itself) => return Ended::Itself,
            Err(Refusal::Wrong(why)) => return Ended::Failed(why),
        }
        shared.note_follower(question.follower, shared.asked_after(&question));
        tokio::select! {
            () = shared.wait_for(&question) => {}
            _ = leaving.wait_for(|is_leaving| *is_leaving) => {}
        }
        answer = Some(shared.answer(&question));
    }
}
