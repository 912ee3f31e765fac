//! The messages between nodes, and their one method.
//!
//! A node asks another for what has changed there after a number, again and again. The answer waits until there is something, or until the time
//! that the question gives is over. Nothing is kept between two questions, so one that is lost or repeated does no harm.
//!
//! A parent does not know where its children are. So its questions travel as answers: a child *reports* the answer to the last question of its parent, and
//! gets the next one.

/// The version of these messages, and of the pages in them.
pub(super) const PROTOCOL: u32 = 1;

/// The path of the method.
pub(super) const FOLLOW: &str = "/lately.peers.v1.Peers/Follow";
/// That with which a child answers its parent.
pub(super) const REPORT: &str = "/lately.peers.v1.Peers/Report";

/// Asks for changes.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FollowRequest {
    #[prost(uint32, tag = "1")]
    pub(super) protocol: u32,
    /// The name of the node that asks, and the number of its replica.
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(fixed64, tag = "3")]
    pub(super) follower: u64,
    /// The replica that it knows at this address; 0 for none. The numbers below are of that one.
    #[prost(fixed64, tag = "4")]
    pub(super) life: u64,
    /// All changes up to this one are merged.
    #[prost(uint64, tag = "5")]
    pub(super) after: u64,
    /// What it asks for: see [`Question`](super::following::Question).
    #[prost(uint32, tag = "6")]
    pub(super) question: u32,
    /// How far it has followed others, so that it does not get what it has.
    #[prost(message, repeated, tag = "7")]
    pub(super) seen: Vec<Followed>,
    /// How long the answer may wait for a change.
    #[prost(uint32, tag = "8")]
    pub(super) wait_ms: u32,
    /// Whether it has this node as a parent.
    #[prost(bool, tag = "9")]
    pub(super) is_child: bool,
    /// Whether it waits for a start, or knows of one that another node waits for.
    #[prost(bool, tag = "10")]
    pub(super) asks_starts: bool,
}

/// Answers the last question of a parent.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReportRequest {
    #[prost(uint32, tag = "1")]
    pub(super) protocol: u32,
    /// The name of the child, and the number of its replica.
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(fixed64, tag = "3")]
    pub(super) life: u64,
    /// Nothing if there was no question yet.
    #[prost(message, optional, tag = "4")]
    pub(super) answer: Option<FollowResponse>,
    /// Whether it exchanges changes with other nodes than this parent and its own children.
    #[prost(bool, tag = "5")]
    pub(super) has_others: bool,
    /// Whether it stops, and has nothing more.
    #[prost(bool, tag = "6")]
    pub(super) is_leaving: bool,
}

/// A replica, and up to which number its own changes are merged.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Followed {
    #[prost(fixed64, tag = "1")]
    pub(super) life: u64,
    #[prost(uint64, tag = "2")]
    pub(super) until: u64,
}

/// A start of a node, and whether the one that answers has what it knew after it had read its neighbours.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Start {
    #[prost(fixed64, tag = "1")]
    pub(super) life: u64,
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(bool, tag = "3")]
    pub(super) is_read: bool,
}

/// Changes.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FollowResponse {
    /// The replica that answers. If it is not the one of the question, it answers from the start.
    #[prost(fixed64, tag = "1")]
    pub(super) life: u64,
    /// The first change comes after this one.
    #[prost(uint64, tag = "2")]
    pub(super) after: u64,
    /// Go on behind this one.
    #[prost(uint64, tag = "3")]
    pub(super) until: u64,
    /// Whether nothing more has changed.
    #[prost(bool, tag = "4")]
    pub(super) is_all: bool,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) page: Vec<u8>,
    /// The name of the node that answers.
    #[prost(string, tag = "6")]
    pub(super) node: String,
    /// Whether it has a parent or children. Then it is asked for all changes at once.
    #[prost(bool, tag = "7")]
    pub(super) relays: bool,
    /// In the last page of all changes: how far it has followed others. That holds for whoever has merged the page, too.
    #[prost(message, repeated, tag = "8")]
    pub(super) seen: Vec<Followed>,
    /// If one of both waits for starts, or knows of some that others wait for: those that the one that answers knows, its own included.
    #[prost(message, repeated, tag = "9")]
    pub(super) starts: Vec<Start>,
    /// Its name and those of the nodes above it, if a child asks.
    #[prost(string, repeated, tag = "10")]
    pub(super) above: Vec<String>,
    /// Whether it has read all that others know. A node that has not does not wait for the starts of such a node.
    #[prost(bool, tag = "11")]
    pub(super) is_complete: bool,
}
