//! The methods, each with what a client must be allowed to do, and their router.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Extension, Router};
use futures_util::{Stream, StreamExt, TryFutureExt};
use lately_resp::command::Verb;
use prost::Message;
use tokio::time::timeout;
use tonic::server::{Grpc, NamedService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Layer, service_fn};

use super::login::log_in;
use super::messages::DESCRIPTORS;
use super::status::{loading, of_forbidden, of_refused};
use super::{envoy, health, lately};
use crate::limits::{
    GRPC_HIT_STREAM_PART, GRPC_OPEN_PART, GRPC_UNARY_PART, HTTP_TIMEOUT, MAX_GRPC_MESSAGE_BYTES,
};
use crate::protocol::http::{Link, Requests, Routes, Speaks, most_calls, naming_routes, traced};
use crate::service::access::{Forbidden, Principal};
use crate::service::{Refused, Service};
use crate::stopper::Stopper;

/// A method of a service.
struct Method {
    path: &'static str,
    /// What a client must be allowed to do. `None`: every client may call it.
    verb: Option<Verb>,
    handler: fn() -> MethodRouter<Door>,
}

impl Method {
    const fn new(path: &'static str, verb: Option<Verb>, handler: fn() -> MethodRouter<Door>) -> Method {
        Method { path, verb, handler }
    }
}

const HIT_STREAM: &str = "/lately.v1.Lately/HitStream";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

static METHODS: [Method; 9] = [
    Method::new("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", Some(Verb::Limit), || {
        post(|call: Call, request: Request| unary(request, call, envoy::should_rate_limit))
    }),
    Method::new("/lately.v1.Lately/Hit", Some(Verb::Hit), || {
        post(|call: Call, request: Request| unary(request, call, lately::hit))
    }),
    Method::new(HIT_STREAM, Some(Verb::Hit), || {
        post(|call: Call, request: Request| streaming(request, call, lately::hit_stream))
    }),
    Method::new("/lately.v1.Lately/Hits", Some(Verb::Read), || {
        post(|call: Call, request: Request| unary(request, call, lately::hits))
    }),
    Method::new("/lately.v1.Lately/Limit", Some(Verb::Limit), || {
        post(|call: Call, request: Request| unary(request, call, lately::limit))
    }),
    Method::new("/lately.v1.Lately/Unique", Some(Verb::Read), || {
        post(|call: Call, request: Request| unary(request, call, lately::unique))
    }),
    Method::new("/lately.v1.Lately/Top", Some(Verb::Read), || {
        post(|call: Call, request: Request| respond(request, call, lately::top))
    }),
    Method::new("/grpc.health.v1.Health/Check", None, || {
        post(|call: Call, request: Request| unary(request, call, health::check))
    }),
    Method::new(WATCH, None, || {
        post(|call: Call, request: Request| server_streaming(request, call, health::watch))
    }),
];

/// The places for calls in progress. The parts are apart, so that clients that need not log in take none from the others.
struct Places {
    unary: Arc<Requests>,
    hit_streams: Arc<Requests>,
    checks: Arc<Requests>,
    /// `Watch` and reflection.
    open_streams: Arc<Requests>,
}

impl Places {
    fn new(service: &Arc<Service>) -> Arc<Places> {
        let calls = most_calls(service.config.ceiling_bytes);
        let places = |part| Requests::new(Speaks::Grpc, calls / part, service);
        Arc::new(Places {
            unary: places(GRPC_UNARY_PART),
            hit_streams: places(GRPC_HIT_STREAM_PART),
            checks: places(GRPC_OPEN_PART),
            open_streams: places(GRPC_OPEN_PART),
        })
    }

    fn of(&self, path: &str) -> &Arc<Requests> {
        match path {
            HIT_STREAM => &self.hit_streams,
            WATCH => &self.open_streams,
            _ => match METHODS.iter().find(|method| method.path == path) {
                Some(Method { verb: Some(_), .. }) => &self.unary,
                Some(_) => &self.checks,
                // Reflection, or no method.
                None => &self.open_streams,
            },
        }
    }
}

/// What all calls share.
#[derive(Clone)]
struct Door {
    service: Arc<Service>,
    stopper: Stopper,
}

/// A call, for its handler.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) service: Arc<Service>,
    pub(super) stopper: Stopper,
    pub(super) link: Link,
    method: &'static Method,
}

impl Call {
    /// Checks the keys of a call. Nothing may be executed before.
    pub(super) fn check<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<(), Status> {
        let mut keys = keys.into_iter();
        let principal = &*self.link.standing(&self.service);
        let find = |allowed: &crate::service::access::Keys| {
            Some(keys.find(|key| !allowed.has(key)).map(<[u8]>::to_vec))
        };
        principal.check(self.method.verb, find).map_err(|forbidden| self.refuse(principal, &forbidden))
    }

    /// Checks a call about all keys. Nothing may be executed before.
    pub(super) fn check_all_keys(&self) -> Result<(), Status> {
        let principal = &*self.link.standing(&self.service);
        principal.check(self.method.verb, |_| None).map_err(|forbidden| self.refuse(principal, &forbidden))
    }

    fn refuse(&self, principal: &Principal, forbidden: &Forbidden<Vec<u8>>) -> Status {
        self.service.stats.refused(forbidden);
        of_forbidden(principal, forbidden, self.method.path)
    }

    /// Ends a stream whose client has to log in again.
    pub(super) fn check_login(&self) -> Result<(), Status> {
        if self.link.standing(&self.service).is_nobody() {
            return Err(Status::unauthenticated(
                "NOAUTH the user is gone or has another password: log in again",
            ));
        }
        Ok(())
    }

    /// Refuses a call while the counts are loaded.
    pub(super) fn check_loaded(&self) -> Result<(), Status> {
        if self.service.is_loading() { Err(loading()) } else { Ok(()) }
    }
}

impl axum::extract::FromRequestParts<Door> for Call {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &Door,
    ) -> Result<Call, Infallible> {
        Ok(parts.extensions.get::<Call>().expect("a layer made it").clone())
    }
}

/// All methods, and reflection.
pub(crate) fn routes(service: Arc<Service>, stopper: Stopper) -> Routes {
    let places = Places::new(&service);
    let door = Door { service: Arc::clone(&service), stopper };
    let mut router = Router::new();
    for method in &METHODS {
        let handler = (method.handler)();
        router = router
            .route(method.path, handler.route_layer(from_fn_with_state((method, door.clone()), check_verb)));
    }
    let described =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    let v1 = described().build_v1().expect("the descriptors are valid");
    let v1alpha = described().build_v1alpha().expect("the descriptors are valid");
    let router = router
        .route_service(&path_of(&v1), reflected(v1, door.stopper.clone()))
        .route_service(&path_of(&v1alpha), reflected(v1alpha, door.stopper.clone()))
        .fallback(unknown)
        .with_state(door);
    let logged_in = from_fn_with_state(Arc::clone(&service), log_in).layer(naming_routes(router, &service));
    traced(from_fn_with_state(places, in_time).layer(logged_in), service, Speaks::Grpc)
}

fn path_of<S: NamedService>(_: &S) -> String {
    format!("/{}/{{method}}", S::NAME)
}

/// Reflection, as a service of axum. Its streams end when the server stops.
fn reflected<S>(
    service: S,
    stopper: Stopper,
) -> impl tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + Sync
where
    S: tower::Service<Request, Response = axum::http::Response<tonic::body::Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    service_fn(move |request: Request| {
        let stopper = stopper.clone();
        let stopped = async move { stopper.stopped().await };
        let request =
            request.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(stopped))));
        let answered = service.clone().call(request);
        async move { answered.await.map(|response| response.map(Body::new)) }
    })
}

/// Refuses what the client may not do with any key. The handler checks the keys.
async fn check_verb(
    State((method, door)): State<(&'static Method, Door)>,
    Extension(link): Extension<Link>,
    mut request: Request,
    next: Next,
) -> Response {
    let call = Call { service: door.service, stopper: door.stopper, link, method };
    if let Err(status) = call.check([]) {
        return status.into_http();
    }
    if let Some(why) = call.service.refusal(method.verb) {
        return of_refused(&Refused::Never(why)).into_http();
    }
    request.extensions_mut().insert(call);
    next.run(request).await
}

/// Refuses what is no call, such as a request that a web page has a browser send, and a call for which there is no place. Ends
/// a call whose message does not arrive in time. The messages of a stream have more time.
async fn in_time(
    State(places): State<Arc<Places>>,
    Extension(link): Extension<Link>,
    request: Request,
    next: Next,
) -> Response {
    if request.version() != Version::HTTP_2 {
        return (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC needs HTTP/2\n").into_response();
    }
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !kind.starts_with(b"application/grpc") {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not application/grpc\n")
            .into_response();
    }
    let _open = link.pace.open_request();
    let requests = Arc::clone(places.of(request.uri().path()));
    let run = async |request| match timeout(HTTP_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Status::deadline_exceeded("the message did not arrive in time").into_http(),
    };
    match requests.run(&link.pace, request, run).await {
        Ok(response) => response,
        Err(_) => Status::resource_exhausted("too many calls are in progress: try again later").into_http(),
    }
}

async fn unknown(request: Request) -> Response {
    Status::unimplemented(format!("there is no method {}", request.uri().path())).into_http()
}

fn grpc<Reply, Asked>() -> Grpc<ProstCodec<Reply, Asked>>
where
    Reply: Message + Send + 'static,
    Asked: Message + Default + Send + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES)
}

async fn unary<Asked, Reply, Answered>(
    request: Request,
    call: Call,
    handle: fn(Call, Asked) -> Answered,
) -> Response
where
    Asked: Message + Default + Send + 'static,
    Reply: Message + Send + 'static,
    Answered: Future<Output = Result<Reply, Status>>,
{
    respond(request, call, |call, asked| handle(call, asked).map_ok(tonic::Response::new)).await
}

/// Like [`unary`], for answers that have extensions.
async fn respond<Asked, Reply, Answered>(
    request: Request,
    call: Call,
    handle: impl Fn(Call, Asked) -> Answered,
) -> Response
where
    Asked: Message + Default + Send + 'static,
    Reply: Message + Send + 'static,
    Answered: Future<Output = Result<tonic::Response<Reply>, Status>>,
{
    let handle = service_fn(|request: tonic::Request<Asked>| handle(call.clone(), request.into_inner()));
    grpc().unary(handle, request).await.map(Body::new)
}

async fn server_streaming<Asked, Reply, Answers>(
    request: Request,
    call: Call,
    handle: fn(Call, Asked) -> Result<Answers, Status>,
) -> Response
where
    Asked: Message + Default + Send + 'static,
    Reply: Message + Send + 'static,
    Answers: Stream<Item = Result<Reply, Status>> + Send + 'static,
{
    let handle = service_fn(|request: tonic::Request<Asked>| {
        let answers = handle(call.clone(), request.into_inner());
        async { answers.map(tonic::Response::new) }
    });
    grpc().server_streaming(handle, request).await.map(Body::new)
}

async fn streaming<Asked, Reply, Answers>(
    request: Request,
    call: Call,
    handle: fn(Call, Streaming<Asked>) -> Answers,
) -> Response
where
    Asked: Message + Default + Send + 'static,
    Reply: Message + Send + 'static,
    Answers: Stream<Item = Result<Reply, Status>> + Send + 'static,
{
    let handle = service_fn(|request: tonic::Request<Streaming<Asked>>| {
        let answers = handle(call.clone(), request.into_inner());
        async { Ok::<_, Status>(tonic::Response::new(answers)) }
    });
    grpc().streaming(handle, request).await.map(Body::new)
}

#[cfg(test)]
mod tests {
    use axum::http;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use prost_types::FileDescriptorSet;
    use tonic::Code;

    use super::super::messages::descriptor::RateLimitDescriptor;
    use super::super::messages::envoy::RateLimitRequest;
    use super::super::messages::health::HealthCheckRequest;
    use super::super::messages::lately::limit_request::{Given, Limit};
    use ::lately::{Pattern, Settings};

    use super::super::messages::lately::{HitRequest, HitsRequest, LimitRequest, UniqueRequest};
    use super::*;
    use crate::config::{Config, NamedLimit};
    use crate::protocol::fixture::engine_of;
    use crate::protocol::http::Speaks;
    use crate::protocol::permissions::{Expected, Needs, everybody};
    use crate::service::named_limits::tests::limit;

    /// A service with a limit that counts the key `app:1`.
    fn service() -> Arc<Service> {
        let limit = NamedLimit { domain: Some("edge".to_owned()), ..limit("app:1") };
        let settings = Settings::builder().unique(true).build().expect("valid");
        let classes = vec![(Pattern::new(b"app:*"), settings)];
        engine_of(Config { limits: vec![limit], classes, ..Config::default() })
    }

    /// The code and message with which a call is refused before its answer begins.
    async fn refusal(
        service: &Arc<Service>,
        principal: Principal,
        path: &str,
        message: &[u8],
    ) -> Option<(Code, String)> {
        let local = ([127, 0, 0, 1], 1).into();
        let link = Link { principal, ..Link::new(local, local, Speaks::Grpc) };
        let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
        let body = [&[0], &length[..], message].concat();
        let request = http::Request::post(path).version(Version::HTTP_2).header("te", "trailers");
        let request = request.header("content-type", "application/grpc").body(Body::from(body));
        let routes = Extension(link).layer(routes(Arc::clone(service), Stopper::new()));
        let response = TowerToHyperService::new(routes).call(request.expect("a request")).await;
        let response = response.expect("it does not fail");
        let status = Status::from_header_map(response.headers())?;
        (status.code() != Code::Ok).then(|| (status.code(), status.message().to_owned()))
    }

    /// Each method, by each client. The test fails if a method has no row here.
    #[tokio::test]
    async fn each_method_needs_its_verb_and_its_keys() {
        const ONE: &[&str] = &["app:1"];
        let key = || b"app:1".to_vec();
        let hit = || HitRequest { key: key(), ..HitRequest::default() }.encode_to_vec();
        let hits = HitsRequest { key: key(), ..HitsRequest::default() };
        let unique = UniqueRequest { key: key(), window_ms: None };
        let given = Given { max: 1, window_ms: 1, ..Given::default() };
        let limit = LimitRequest { key: key(), limit: Some(Limit::Given(given)), ..LimitRequest::default() };
        let descriptors = vec![RateLimitDescriptor::default()];
        let asked = RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 };
        let health = || HealthCheckRequest::default().encode_to_vec();
        let expected = [
            (Needs::Keys(Verb::Limit, ONE), asked.encode_to_vec(), 1),
            (Needs::Keys(Verb::Hit, ONE), hit(), 1),
            // A hit of a key that is not allowed is refused by itself, in the stream.
            (Needs::Keys(Verb::Hit, &[]), hit(), 0),
            (Needs::Keys(Verb::Read, ONE), hits.encode_to_vec(), 0),
            (Needs::Keys(Verb::Limit, ONE), limit.encode_to_vec(), 1),
            (Needs::Keys(Verb::Read, ONE), unique.encode_to_vec(), 0),
            (Needs::AllKeys(Verb::Read), Vec::new(), 0),
            (Needs::Nothing, health(), 0),
            (Needs::Nothing, health(), 0),
        ];
        assert_eq!(METHODS.len(), expected.len());
        for (method, (needs, message, keys)) in METHODS.iter().zip(expected) {
            for who in everybody() {
                let service = service();
                let refused = refusal(&service, who.principal(), method.path, &message).await;
                let expected = who.expected(needs);
                let (code, words) = match &expected {
                    Expected::Allowed => (None, String::new()),
                    Expected::NoLogin => (Some(Code::Unauthenticated), "send authorization".to_owned()),
                    Expected::NoKey(key) => (Some(Code::PermissionDenied), format!("the key '{key}'")),
                    Expected::NoVerb | Expected::NotAllKeys => {
                        (Some(Code::PermissionDenied), format!("permissions for {}", method.path))
                    }
                };
                let case = format!("{} by {}: {refused:?}", method.path, who.shown());
                assert_eq!(refused.as_ref().map(|(code, _)| *code), code, "{case}");
                assert!(refused.is_none_or(|(_, message)| message.contains(&words)), "{case}");
                let counted = if expected == Expected::Allowed { keys } else { 0 };
                assert_eq!(service.key_count(), counted, "{case}");
            }
        }
    }

    /// What reflection shows is what is served.
    #[test]
    fn the_descriptors_have_each_method() {
        let described = FileDescriptorSet::decode(DESCRIPTORS).expect("valid");
        let mut paths = Vec::new();
        for file in described.file {
            for service in &file.service {
                let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
                paths.extend(service.method.iter().map(|method| path(method.name())));
            }
        }
        paths.sort();
        let mut served: Vec<_> = METHODS.iter().map(|method| method.path.to_owned()).collect();
        served.sort();
        assert_eq!(paths, served);
    }

    /// A web page can have a browser send neither.
    #[tokio::test]
    async fn calls_need_http_2_and_their_content_type() {
        let check = async |version, kind: &str, expected: StatusCode| {
            let local = ([127, 0, 0, 1], 1).into();
            let link = Link::new(local, local, Speaks::Grpc);
            let request = http::Request::post(METHODS[1].path).version(version).header("content-type", kind);
            let routes = Extension(link).layer(routes(service(), Stopper::new()));
            let request = request.body(Body::empty()).expect("a request");
            let response = TowerToHyperService::new(routes).call(request).await.expect("it does not fail");
            assert_eq!(response.status(), expected, "{kind}");
        };
        check(Version::HTTP_11, "application/grpc", StatusCode::HTTP_VERSION_NOT_SUPPORTED).await;
        check(Version::HTTP_2, "text/plain", StatusCode::UNSUPPORTED_MEDIA_TYPE).await;
        check(Version::HTTP_2, "application/grpc+proto", StatusCode::OK).await;
    }
}
