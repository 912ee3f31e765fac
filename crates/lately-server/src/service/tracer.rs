//! Spans of requests, until they are sent by OTLP. A request has one if its client asks for it, or by chance.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use lately::Timestamp;

use crate::limits::MAX_QUEUED_SPANS;

/// Decides which requests have spans, and keeps those that have ended.
pub(crate) struct Tracer {
    /// Requests without a trace whose number is below have one.
    below: u64,
    state: RandomState,
    requests: AtomicU64,
    ended: Mutex<Vec<Span>>,
    pub(crate) dropped: AtomicU64,
}

/// Where the span of a request belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Context {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
    /// The span of the client.
    pub(crate) parent_id: Option<[u8; 8]>,
}

/// A request that was answered.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Span {
    pub(crate) context: Context,
    pub(crate) start: Timestamp,
    pub(crate) took_ns: u64,
    pub(crate) request: TracedRequest,
}

/// What is known of a request. Keys and users are not.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TracedRequest {
    Http {
        method: &'static str,
        /// The path without the key. `None` if there is nothing at it.
        route: Option<Arc<str>>,
        status: u16,
    },
    Grpc {
        /// Such as `/lately.v1.Lately/Hit`. `None` if there is no such method.
        path: Option<Arc<str>>,
        /// The status of an answer that is an error.
        status: Option<u16>,
    },
}

impl Tracer {
    /// A tracer of this share of the requests whose clients have no trace, 0 to 1.
    pub(crate) fn new(share: f64) -> Tracer {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "it is from 0 to 2^64, and 1 is all"
        )]
        let below = (share * u64::MAX as f64) as u64;
        Tracer {
            below,
            state: RandomState::new(),
            requests: AtomicU64::new(0),
            ended: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Where the span of a request belongs. `None`: it has none. A client with a trace decides itself.
    pub(crate) fn begin(&self, traceparent: Option<&[u8]>) -> Option<Context> {
        let number = self.requests.fetch_add(1, Relaxed);
        let random = |part: u8| self.state.hash_one((number, part));
        // All bits may be 0 once in 2^64, which is no id.
        let span_id = random(0).max(1).to_be_bytes();
        match traceparent.and_then(Parent::parse) {
            Some(Parent { is_sampled: false, .. }) => None,
            Some(Parent { trace_id, span_id: parent_id, .. }) => {
                Some(Context { trace_id, span_id, parent_id: Some(parent_id) })
            }
            None if random(1) < self.below || self.below == u64::MAX => {
                let mut trace_id = [0; 16];
                trace_id[..8].copy_from_slice(&random(2).to_be_bytes());
                trace_id[8..].copy_from_slice(&random(3).max(1).to_be_bytes());
                Some(Context { trace_id, span_id, parent_id: None })
            }
            None => None,
        }
    }

    /// Keeps a span until it is taken. When too many wait, it is dropped.
    pub(crate) fn end(&self, span: Span) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() < MAX_QUEUED_SPANS {
            ended.push(span);
        } else {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// The spans that have ended since the last call.
    pub(crate) fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The header `traceparent` of W3C Trace Context.
#[derive(PartialEq, Eq, Debug)]
struct Parent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    is_sampled: bool,
}

impl Parent {
    /// `None` if it is invalid: then the request has no trace.
    fn parse(header: &[u8]) -> Option<Parent> {
        let mut fields = header.split(|byte| *byte == b'-');
        let [version] = hex(fields.next()?)?;
        let (trace_id, span_id, [flags]) = (hex(fields.next()?)?, hex(fields.next()?)?, hex(fields.next()?)?);
        // Later versions may have more fields.
        let has_form = version != 0xff && (version != 0 || fields.next().is_none());
        let is_valid = has_form && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Parent { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// Bytes in hexadecimal, in lower case.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_of_the_client_goes_on() {
        let context = Tracer::new(0.0).begin(Some(HEADER.as_bytes())).expect("it is sampled");
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        assert_eq!(context.parent_id, Some(0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()));
        assert_ne!(Some(context.span_id), context.parent_id);
        let tracer = Tracer::new(1.0);
        let not_sampled = HEADER.replace("-01", "-00");
        assert_eq!(tracer.begin(Some(not_sampled.as_bytes())), None);
        // Other flags say nothing of this.
        let flags = HEADER.replace("-01", "-03");
        assert!(tracer.begin(Some(flags.as_bytes())).is_some_and(|context| context.parent_id.is_some()));
    }

    #[test]
    fn an_invalid_header_is_no_trace() {
        let check = |header: &str, is_valid: bool| {
            assert_eq!(Parent::parse(header.as_bytes()).is_some(), is_valid, "{header}");
        };
        check(HEADER, true);
        // A later version, with another field.
        check(&HEADER.replacen("00-", "cc-", 1), true);
        check(&(HEADER.replacen("00-", "cc-", 1) + "-what-the-future-will-be"), true);
        for wrong in [
            "",
            "00",
            &HEADER.replacen("00-", "ff-", 1),
            &(HEADER.to_owned() + "-more"),
            &(HEADER.to_owned() + "-"),
            &HEADER.to_uppercase(),
            &HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &HEADER.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &HEADER.replace("4bf9", "4bf"),
            &HEADER.replace("4bf9", "4bfg"),
            &HEADER.replace("-01", "-1"),
            &HEADER.replace("-01", ""),
            &HEADER.replacen("00-", "0-", 1),
            &HEADER.replace('-', "_"),
            "\u{7f}",
        ] {
            check(wrong, false);
        }
    }

    #[test]
    fn the_share_of_requests_with_a_trace_is_kept() {
        let traced = |share: f64| {
            let tracer = Tracer::new(share);
            (0..10_000).filter_map(|_| tracer.begin(None)).count()
        };
        assert_eq!((traced(0.0), traced(1.0)), (0, 10_000));
        let some = traced(0.1);
        assert!((800..1_200).contains(&some), "{some}");
        let tracer = Tracer::new(1.0);
        let contexts: Vec<Context> = (0..1_000).filter_map(|_| tracer.begin(None)).collect();
        assert!(contexts.iter().all(|context| context.parent_id.is_none()));
        let ids: std::collections::BTreeSet<_> = contexts.iter().map(|context| context.trace_id).collect();
        assert_eq!(ids.len(), 1_000);
    }

    #[test]
    fn spans_that_wait_are_bounded() {
        let tracer = Tracer::new(1.0);
        let context = tracer.begin(None).expect("all");
        let request = TracedRequest::Http { method: "GET", route: None, status: 404 };
        let span = Span { context, start: Timestamp::MIN, took_ns: 1, request };
        (0..MAX_QUEUED_SPANS + 3).for_each(|_| tracer.end(span.clone()));
        assert_eq!(tracer.dropped.load(Relaxed), 3);
        assert_eq!(tracer.take().len(), MAX_QUEUED_SPANS);
        tracer.end(span.clone());
        assert_eq!(tracer.take(), [span]);
    }
}
