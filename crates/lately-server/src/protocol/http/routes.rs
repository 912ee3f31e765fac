//! The routes of HTTP, each with what a client must be allowed to do, and the routers of the two listeners.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};
use axum::{Extension, Router};
use lately_resp::command::Verb;
use tower::{Service as _, service_fn};

use super::alerts;
use super::cluster;
use super::counts;
use super::decisions::{self, AUTH};
use super::dumps::{self, next_piece};
use super::events::{self, Events};
use super::guard::Guard;
use super::keys;
use super::listener::{Link, Routes, Speaks};
use super::login::{challenge_page, log_in, refuse, refused};
use super::long_body::LongBody;
use super::metrics;
use super::named_limits;
use super::ndjson;
use super::openapi;
use super::page;
use super::places::Transfers;
use super::problem::{Problem, problem};
use super::query::key_of;
use super::requests::{Requests, in_a_place};
use super::series;
use super::session::{self, is_of_page};
use super::status;
use super::top;
use super::traced::{naming_routes, traced};
use crate::service::access::{Keys, Principal};
use crate::service::cluster::Cluster;
use crate::service::{Refused, Service};
use crate::stopper::Stopper;

/// A path and its method.
pub(super) struct Route {
    path: &'static str,
    /// Whether a key follows the path. Without one, the route is about all keys.
    has_key: bool,
    /// Whether the handler finds the keys, and checks them.
    checks_keys: bool,
    /// What a client must be allowed to do. `None`: every client may ask.
    verb: Option<Verb>,
    guard: Guard,
    method: fn(&'static Route) -> MethodRouter<Arc<Service>>,
}

impl Route {
    const fn new(
        path: &'static str,
        verb: Option<Verb>,
        method: fn(&'static Route) -> MethodRouter<Arc<Service>>,
    ) -> Route {
        let guard = Guard::SameSite;
        Route { path, has_key: false, checks_keys: false, verb, guard, method }
    }

    /// A key follows the path.
    const fn with_key(self) -> Route {
        Route { has_key: true, ..self }
    }

    const fn guarded(self, guard: Guard) -> Route {
        Route { guard, ..self }
    }

    /// The handler finds the keys, and checks them.
    const fn checking_keys(self) -> Route {
        Route { checks_keys: true, ..self }
    }

    pub(super) fn get<T: 'static>(
        &'static self,
        handler: impl Handler<T, Arc<Service>>,
    ) -> MethodRouter<Arc<Service>> {
        routing::get(Admitting { route: self, handler })
    }

    fn post<T: 'static>(&'static self, handler: impl Handler<T, Arc<Service>>) -> MethodRouter<Arc<Service>> {
        routing::post(Admitting { route: self, handler })
    }

    fn delete<T: 'static>(
        &'static self,
        handler: impl Handler<T, Arc<Service>>,
    ) -> MethodRouter<Arc<Service>> {
        routing::delete(Admitting { route: self, handler })
    }
}

/// A handler that only gets the requests that its route admits.
#[derive(Clone)]
struct Admitting<H> {
    route: &'static Route,
    handler: H,
}

impl<T: 'static, H: Handler<T, Arc<Service>>> Handler<T, Arc<Service>> for Admitting<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, mut request: Request, service: Arc<Service>) -> Self::Future {
        Box::pin(async move {
            match admit(self.route, &service, &mut request).await {
                Ok(()) => self.handler.call(request, service).await,
                Err(problem) => refuse(request, problem).await,
            }
        })
    }
}

const TOP: &str = "/v1/top";

pub(super) const METRICS: &str = "/metrics";

/// Whether the server runs, and whether it is ready.
pub(super) const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// Routes for monitoring. They read no keys and change nothing. On a listener of their own every client may ask.
static WATCHING: [Route; 3] = [
    Route::new(HEALTH[0], None, |it| it.get(health)).guarded(Guard::AnyClient),
    Route::new(HEALTH[1], None, |it| it.get(ready)).guarded(Guard::AnyClient),
    Route::new(METRICS, Some(Verb::Read), |it| it.get(metrics)).guarded(Guard::AnyClient),
];

/// Routes about counts, and about the nodes that count.
static COUNTING: [Route; 18] = [
    Route::new("/v1/hit/", Some(Verb::Hit), |it| it.post(counts::hit)).with_key(),
    Route::new("/v1/hits/", Some(Verb::Read), |it| it.get(counts::hits)).with_key(),
    Route::new("/v1/unique/", Some(Verb::Read), |it| it.get(counts::unique)).with_key(),
    Route::new("/v1/hits", Some(Verb::Hit), |it| it.post(ndjson::hits)).checking_keys(),
    Route::new("/v1/series/", Some(Verb::Read), |it| it.get(series::series)).with_key(),
    Route::new(TOP, Some(Verb::Read), |it| it.get(top::top)),
    Route::new("/v1/alerts", Some(Verb::Read), |it| it.get(alerts::alerts)),
    Route::new("/v1/limit/", Some(Verb::Limit), |it| it.post(decisions::limit)).with_key(),
    Route::new(AUTH, Some(Verb::Limit), |it| it.get(decisions::auth)).checking_keys(),
    Route::new("/v1/key/", Some(Verb::Delete), |it| it.delete(keys::delete)).with_key(),
    Route::new("/v1/cluster", Some(Verb::Read), |it| it.get(cluster::nodes)),
    Route::new("/v1/key/", Some(Verb::Read), |it| it.get(keys::state)).with_key(),
    Route::new("/v1/limits", Some(Verb::Read), |it| it.get(named_limits::limits)),
    Route::new("/v1/session", None, |it| it.get(session::who)),
    Route::new("/v1/session", None, |it| it.post(session::begin)),
    Route::new("/v1/session", None, |it| it.delete(session::end)),
    Route::new("/v1/status", Some(Verb::Read), |it| it.get(status::status)),
    Route::new("/openapi.json", None, |it| it.get(openapi::document)),
];

/// The stream of events.
static STREAMS: [Route; 1] = [Route::new("/v1/events", Some(Verb::Read), |it| it.get(events::events))];

/// Routes that read or replace all keys.
static TRANSFERS: [Route; 2] = [
    Route::new("/v1/dump", Some(Verb::Admin), |it| it.get(dumps::dump)).guarded(Guard::SameMachine),
    Route::new("/v1/restore", Some(Verb::Admin), |it| it.post(dumps::restore)).guarded(Guard::SameMachine),
];

/// The files of the dashboard.
pub(super) static PAGE: Route = Route::new("/", None, |_| MethodRouter::new());

/// The routes for monitoring, for a listener of their own.
pub(crate) fn watching(service: Arc<Service>) -> Routes {
    let requests = Requests::of_http(&service);
    let watched = router(&WATCHING).fallback(not_watched).with_state(service);
    // Nobody logs in there.
    Routes::new(service_fn(move |request| {
        let (requests, router) = (Arc::clone(&requests), watched.clone());
        async move { Ok(in_a_place(&requests, request, async |request| route(router, request).await).await) }
    }))
}

/// All routes, and the dashboard.
pub(crate) fn all(service: Arc<Service>, stopper: Stopper) -> Routes {
    let events = Events::new(&service, stopper);
    let requests = Requests::of_http(&service);
    let transfers = Extension(Transfers::new(&service));
    let router = router(&TRANSFERS)
        .layer(transfers)
        .merge(router(&STREAMS).layer(Extension(events)))
        .merge(router(&COUNTING))
        .merge(page::routes())
        .merge(router(&WATCHING))
        .fallback(not_found)
        .with_state(Arc::clone(&service));
    let door = (Arc::clone(&service), requests, naming_routes(router, &service));
    let entered = service_fn(move |request| {
        let entered = enter(door.clone(), request);
        async move { Ok(entered.await) }
    });
    traced(entered, service, Speaks::Http)
}

fn router(routes: &'static [Route]) -> Router<Arc<Service>> {
    let mut router = Router::new();
    for route in routes {
        router = router.route(route.path, (route.method)(route));
        if route.has_key {
            router = router.route(&format!("{}{{*key}}", route.path), (route.method)(route));
        }
    }
    router.method_not_allowed_fallback(wrong_method)
}

async fn route(mut router: Router, request: Request) -> Response {
    let Ok(response) = router.call(request).await;
    response
}

/// Runs a request in a place of its own, once its user is known.
///
/// This, [`admit`] and the handler are all that a request passes. More layers would cost more than the request: each copies
/// those inside it, and allocates.
async fn enter(
    (service, requests, router): (Arc<Service>, Arc<Requests>, Router),
    request: Request,
) -> Response {
    let run = async |mut request: Request| {
        let is_of_page = is_of_page(request.headers());
        let mut response = match log_in(&service, &mut request).await {
            Ok(()) => route(router, request).await,
            Err(problem) => refuse(request, problem).await,
        };
        if is_of_page {
            challenge_page(&mut response);
        }
        response
    };
    in_a_place(&requests, request, run).await
}

/// Checks where a request comes from, what its client may do, and that it has no body that nobody reads.
///
/// # Errors
/// Why it is refused.
async fn admit(route: &Route, service: &Service, request: &mut Request) -> Result<(), Problem> {
    let link = request.extensions().get().expect("the listener sets it");
    route.guard.check(service, link, request)?;
    check_access(route, service, link, request.uri())?;
    let has_arguments = route.has_key && request.method() == Method::POST;
    if has_arguments && has_content(request.body_mut()).await {
        let (path, uri) = (route.path, request.uri().path());
        return Err(Problem::bad(format!(
            "{path}KEY takes no body: give arguments in the query, as in {uri}?at=1700000000"
        )));
    }
    Ok(())
}

/// Whether there is a byte in a body. Where all arguments are in the query, what it says would be ignored.
async fn has_content(body: &mut Body) -> bool {
    if body.is_end_stream() {
        return false;
    }
    if let Some(bytes) = body.size_hint().exact() {
        return bytes > 0;
    }
    loop {
        match next_piece(body).await {
            None => return false,
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(_) => return true,
        }
    }
}

/// Checks what a client may do.
fn check_access(route: &Route, service: &Service, link: &Link, uri: &Uri) -> Result<(), Problem> {
    // The handler refuses a key that is invalid.
    let find = |keys: &Keys| {
        let of_path = || key_of(uri, route.path).ok().filter(|key| !keys.has(key));
        if route.checks_keys { Some(None) } else { route.has_key.then(of_path) }
    };
    // A page of another site might use a session. So a session only reads.
    let is_session = link.session.is_some() && !matches!(route.verb, None | Some(Verb::Read));
    let principal = if is_session { &Principal::Nobody } else { &link.principal };
    principal.check(route.verb, find).map_err(|forbidden| {
        service.stats.refused(&forbidden);
        refused(principal, &forbidden, uri.path())
    })?;
    // What is not about keys may be asked of every node.
    let is_about_keys = route.has_key || route.checks_keys || route.path == TOP;
    match service.refusal(route.verb).filter(|_| is_about_keys) {
        Some(why) => Err(Problem::of_refused(&Refused::Never(why))),
        None => Ok(()),
    }
}

async fn not_found(uri: Uri) -> Response {
    let detail = format!("there is nothing at {}: /openapi.json lists all paths", uri.path());
    problem(StatusCode::NOT_FOUND, "not found", &detail)
}

async fn not_watched(uri: Uri) -> Response {
    let [health, ready] = HEALTH;
    let detail = format!("there is nothing at {} here, but {health}, {ready} and {METRICS}", uri.path());
    problem(StatusCode::NOT_FOUND, "not found", &detail)
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not take {method}", uri.path());
    problem(StatusCode::METHOD_NOT_ALLOWED, "wrong method", &detail)
}

/// Whether the server runs.
#[utoipa::path(
    get, path = "/healthz", tag = "server",
    responses((status = 200, description = "It runs.", body = String, content_type = "text/plain")),
)]
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// Whether all counts are loaded, and no other node has the name of this one.
#[utoipa::path(
    get, path = "/readyz", tag = "server",
    responses(
        (status = 200, description = "They are.", body = String, content_type = "text/plain"),
        (status = 503, description = "They are not yet.", body = String, content_type = "text/plain"),
    ),
)]
pub(super) async fn ready(State(service): State<Arc<Service>>) -> (StatusCode, String) {
    if service.cluster.as_ref().is_some_and(|cluster| cluster.state().waits_for_name) {
        let line = "waiting: another server has the name of this node\n";
        return (StatusCode::SERVICE_UNAVAILABLE, line.to_owned());
    }
    if !service.is_loading() {
        // Who asks need not log in, so the reason is not shown.
        let failing = service.cluster.iter().flat_map(Cluster::failing);
        let lines = failing.map(|engine| format!("degraded: {engine}\n"));
        return (StatusCode::OK, ["ready\n".to_owned()].into_iter().chain(lines).collect());
    }
    let (done_bytes, total_bytes) = service.progress.bytes();
    (StatusCode::SERVICE_UNAVAILABLE, format!("loading: {done_bytes} of {total_bytes} bytes\n"))
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(
    State(service): State<Arc<Service>>,
    Extension(link): Extension<Link>,
) -> impl IntoResponse {
    let mut pieces = metrics::pieces(&service);
    let first = pieces.next().unwrap_or_default();
    // A short answer has a length.
    let body = match pieces.next() {
        None => Body::from(first),
        Some(second) => {
            let pieces = [first, second].into_iter().chain(pieces);
            Body::new(LongBody::new(pieces, service, link.pace))
        }
    };
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], body)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use axum::http;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use tower::Layer;

    use super::super::listener::Speaks;
    use super::super::openapi::tests::described;
    use super::*;
    use crate::config::Config;
    use crate::limits::TOP_PIECE_BYTES;
    use crate::protocol::fixture::{engine_of, loading_engine, service};
    use crate::protocol::permissions::{Expected, Guide, Needs, everybody};
    use crate::service::commit::Changes;
    use crate::service::named_limits::tests::limit;
    use crate::service::users::User;
    use crate::service::{Batch, TopQuestion};

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(future)
    }

    /// A connection between two addresses.
    fn link(peer: [u8; 4], local: [u8; 4], principal: Principal) -> Link {
        let link = Link::new((peer, 1).into(), (local, 1).into(), Speaks::Http);
        Link { principal, ..link }
    }

    /// The status and body of the answer.
    async fn asked(service: &Arc<Service>, link: Link, method: &str, path: &str) -> (StatusCode, String) {
        let request =
            http::Request::builder().method(method).uri(path).header("host", "localhost").body(Body::empty());
        // Streams of events end.
        let stopper = Stopper::new();
        stopper.stop();
        let routes =
            TowerToHyperService::new(Layer::layer(&Extension(link), all(Arc::clone(service), stopper)));
        let response = routes.call(request.expect("a request")).await.expect("it does not fail");
        let status = response.status();
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        // A long body makes the next piece once the socket has taken the one before. Dropping a piece stands for that.
        while let Some(piece) = next_piece(&mut body).await {
            bytes.extend_from_slice(&piece.expect("a body"));
        }
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A server that listens beyond loopback still refuses dumps and restores by other machines.
    #[test]
    fn only_clients_on_the_same_machine_may_dump() {
        let asked = |peer, local, path: &'static str| {
            let method = if path == "/v1/restore" { "POST" } else { "GET" };
            run(async move { asked(&service(), link(peer, local, Principal::Anyone), method, path).await })
        };
        let (remote, own) = ([192, 0, 2, 9], [192, 0, 2, 7]);
        for path in ["/v1/dump", "/v1/restore"] {
            let (status, body) = asked(remote, own, path);
            assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
            assert!(body.contains(path) && body.contains("192.0.2.9 is on another"), "{body}");
        }
        assert_eq!(asked(own, own, "/v1/dump").0, StatusCode::OK);
        assert_eq!(asked([127, 0, 0, 1], own, "/v1/dump").0, StatusCode::OK);
        for path in ["/healthz", "/metrics"] {
            assert_eq!(asked(remote, own, path).0, StatusCode::OK, "{path}");
        }
    }

    const LOCAL: [u8; 4] = [127, 0, 0, 1];

    /// Each route, by each client. The test fails if a route has no row here.
    #[test]
    fn each_route_needs_its_verb_and_its_keys() {
        const ONE: &[&str] = &["app:1"];
        let routes: Vec<&Route> =
            WATCHING.iter().chain(&COUNTING).chain(&STREAMS).chain(&TRANSFERS).collect();
        let expected = [
            ("GET", "/healthz", Needs::Nothing),
            ("GET", "/readyz", Needs::Nothing),
            ("GET", "/metrics", Needs::AllKeys(Verb::Read)),
            ("POST", "/v1/hit/", Needs::Keys(Verb::Hit, ONE)),
            ("GET", "/v1/hits/", Needs::Keys(Verb::Read, ONE)),
            ("GET", "/v1/unique/", Needs::Keys(Verb::Read, ONE)),
            // A line with a key that is not allowed is refused by itself.
            ("POST", "/v1/hits", Needs::Keys(Verb::Hit, &[])),
            ("GET", "/v1/series/", Needs::Keys(Verb::Read, ONE)),
            ("GET", "/v1/top", Needs::AllKeys(Verb::Read)),
            ("GET", "/v1/alerts", Needs::AllKeys(Verb::Read)),
            ("POST", "/v1/limit/", Needs::Keys(Verb::Limit, ONE)),
            ("GET", "/v1/auth", Needs::Keys(Verb::Limit, ONE)),
            ("DELETE", "/v1/key/", Needs::Keys(Verb::Delete, ONE)),
            ("GET", "/v1/cluster", Needs::AllKeys(Verb::Read)),
            ("GET", "/v1/key/", Needs::Keys(Verb::Read, ONE)),
            ("GET", "/v1/limits", Needs::AllKeys(Verb::Read)),
            ("GET", "/v1/session", Needs::Login),
            ("POST", "/v1/session", Needs::Nothing),
            ("DELETE", "/v1/session", Needs::Nothing),
            ("GET", "/v1/status", Needs::AllKeys(Verb::Read)),
            ("GET", "/openapi.json", Needs::Nothing),
            ("GET", "/v1/events", Needs::AllKeys(Verb::Read)),
            ("GET", "/v1/dump", Needs::AllKeys(Verb::Admin)),
            ("POST", "/v1/restore", Needs::AllKeys(Verb::Admin)),
        ];
        assert_eq!(
            routes.iter().map(|route| route.path).collect::<Vec<_>>(),
            expected.map(|(_, path, _)| path)
        );
        let name = |route: &Route| route.path.to_owned() + if route.has_key { "{key}" } else { "" };
        let mut described = described();
        described.sort();
        let paths = routes.iter().zip(expected).map(|(route, (method, ..))| (method.to_owned(), name(route)));
        let mut paths: Vec<_> = paths.collect();
        paths.sort();
        assert_eq!(described, paths, "the description has each route");
        let guide = Guide::read();
        for (route, (method, path, needs)) in routes.iter().zip(expected) {
            guide.check(&format!("{}`", path.trim_end_matches('/')), needs);
            let verb = match needs {
                Needs::Nothing | Needs::Login => None,
                Needs::Keys(verb, _) | Needs::AllKeys(verb) => Some(verb),
            };
            let has_key = matches!(needs, Needs::Keys(..));
            assert_eq!((route.verb, route.has_key || route.checks_keys), (verb, has_key), "{path}");
            let path = if route.has_key { format!("{path}app%3a1") } else { path.to_owned() };
            let query = match route.path {
                "/v1/series/" => "?step=1",
                "/v1/limit/" => "?max=1&window=1",
                "/v1/auth" => "?key=app:1&max=1&window=1",
                _ => "",
            };
            let target = path.clone() + query;
            for who in everybody() {
                let service = service();
                let (status, body) =
                    run(asked(&service, link(LOCAL, LOCAL, who.principal()), method, &target));
                let expected = who.expected(needs);
                let (refusal, words) = match &expected {
                    Expected::Allowed => (None, String::new()),
                    Expected::NoLogin => (Some(StatusCode::UNAUTHORIZED), "log in with Basic".to_owned()),
                    Expected::NoVerb => (Some(StatusCode::FORBIDDEN), format!("permissions for {path}\"")),
                    Expected::NoKey(key) => (Some(StatusCode::FORBIDDEN), format!("access the key '{key}'")),
                    Expected::NotAllKeys => (Some(StatusCode::FORBIDDEN), format!("for {path} on all keys")),
                };
                let case = format!("{method} {path} by {}: {status} {body}", who.shown());
                let is_refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
                assert_eq!(Some(status).filter(|_| is_refused), refusal, "{case}");
                assert!(body.contains(&words), "{case}");
                let counts = ["/v1/hit/", "/v1/limit/", "/v1/auth"].contains(&route.path);
                let is_counted = counts && expected == Expected::Allowed;
                assert_eq!(service.key_count(), usize::from(is_counted), "{case}");
            }
        }
    }

    #[test]
    fn routes_refuse_forbidden_keys() {
        let service = service();
        let principal = Principal::User(User::with(Verb::ALL, &["app:*"]));
        let check = |method, path: &str, expected: StatusCode| {
            let (status, body) = run(asked(&service, link(LOCAL, LOCAL, principal.clone()), method, path));
            assert_eq!(status, expected, "{path}: {body}");
        };
        check("POST", "/v1/hit/app:1", StatusCode::OK);
        check("POST", "/v1/hit/%61pp:1", StatusCode::OK);
        check("GET", "/v1/hits/app:1", StatusCode::OK);
        for path in ["/v1/hit/other", "/v1/hit/app%3", "/v1/hit/"] {
            let is_key = path.ends_with("other");
            check("POST", path, if is_key { StatusCode::FORBIDDEN } else { StatusCode::BAD_REQUEST });
        }
        check("GET", "/v1/hits/other", StatusCode::FORBIDDEN);
        for (method, before, after, status) in [
            ("GET", "/v1/series/", "?step=1", StatusCode::OK),
            // The default class counts no members.
            ("GET", "/v1/unique/", "", StatusCode::UNPROCESSABLE_ENTITY),
            ("POST", "/v1/limit/", "?max=9&window=1", StatusCode::OK),
            ("GET", "/v1/auth?key=", "&max=9&window=1", StatusCode::NO_CONTENT),
        ] {
            check(method, &format!("{before}app:1{after}"), status);
            check(method, &format!("{before}other{after}"), StatusCode::FORBIDDEN);
        }
        // These routes concern all keys.
        check("GET", "/v1/top", StatusCode::FORBIDDEN);
        check("GET", "/v1/top?prefix=app:", StatusCode::FORBIDDEN);
        check("GET", "/v1/cluster", StatusCode::FORBIDDEN);
        check("GET", "/v1/dump", StatusCode::FORBIDDEN);
        check("POST", "/v1/restore", StatusCode::FORBIDDEN);
        check("DELETE", "/v1/key/other", StatusCode::FORBIDDEN);
        assert_eq!(service.key_count(), 1);
        check("DELETE", "/v1/key/app:1", StatusCode::NO_CONTENT);
        assert_eq!(service.key_count(), 0);
    }

    #[test]
    fn a_server_without_a_cluster_says_so() {
        let (status, body) =
            run(asked(&service(), link(LOCAL, LOCAL, Principal::Anyone), "GET", "/v1/cluster"));
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(
            body,
            r#"{"title":"no cluster","status":404,"detail":"this server is not part of a cluster"}"#
        );
    }

    #[test]
    fn long_metrics_are_whole() {
        let limits = (0..100).map(|number| limit(&format!("n{number}"))).collect();
        let service = engine_of(Config { limits, ..Config::default() });
        let (status, body) = run(asked(&service, link(LOCAL, LOCAL, Principal::Anyone), "GET", "/metrics"));
        assert_eq!(status, StatusCode::OK);
        for number in 0..100 {
            let lines = body.lines().filter(|line| line.contains(&format!("limit=\"n{number}\"")));
            assert_eq!(lines.count(), 3, "{number}");
        }
        assert!(body.contains("\nlately_keys 0\n") && body.contains("lately_build_info"), "{body}");
    }

    fn hit<'k>(service: &Service, key: &'k [u8], count: u64) {
        let add = |batch: &mut Batch<'k>| batch.hit(key, count, None);
        service.execute_alone(&mut Changes::default(), service.now(), add).0.expect("counted");
    }

    /// An answer of several pieces. Its memory is charged until the client has taken it.
    #[test]
    fn a_long_answer_about_top_is_whole() {
        let service = service();
        let fill = "\u{7}".repeat(1_000);
        let keys = 3 * TOP_PIECE_BYTES / fill.len();
        for number in 1..=keys as u64 {
            let key = format!("{fill}{number}");
            hit(&service, key.as_bytes(), number);
        }
        let path = format!("/v1/top?k={keys}");
        let (status, body) = run(asked(&service, link(LOCAL, LOCAL, Principal::Anyone), "GET", &path));
        assert_eq!(status, StatusCode::OK);
        let body: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
        let rows = body["keys"].as_array().expect("an array").iter();
        let hits: Vec<_> = rows.map(|row| row["hits"].as_u64().expect("a number")).collect();
        assert_eq!(hits, (1..=keys as u64).rev().collect::<Vec<_>>());
        assert_eq!(service.stats.connection_bytes.load(Relaxed), 0);
        let (keys, held) =
            run(service.top(TopQuestion { count: keys, window: None, prefix: b"", pattern: None }))
                .ok()
                .expect("there is room");
        let bytes: usize = keys.rows.iter().map(|row| row.key.len()).sum();
        assert!(service.stats.connection_bytes.load(Relaxed) >= bytes as u64);
        drop(held);
        assert_eq!(service.stats.connection_bytes.load(Relaxed), 0);
    }

    /// Answers that wait for slow clients do not take more than the share of connections.
    #[test]
    fn answers_about_top_are_bounded_in_sum() {
        let service = engine_of(Config { ceiling_bytes: 4 << 20, ..Config::default() });
        let share: usize = (4 << 20) / 8;
        for number in 0..100 {
            let key = format!("{number:01000}");
            hit(&service, key.as_bytes(), 1);
        }
        let status = |path| run(asked(&service, link(LOCAL, LOCAL, Principal::Anyone), "GET", path));
        assert_eq!(status("/v1/top?k=100").0, StatusCode::OK);
        let others = share + share / 2;
        service.charge(0, others);
        let (refused, body) = status("/v1/top?k=100");
        assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("other answers take the memory for this one"), "{body}");
        assert_eq!(status("/v1/top?k=1").0, StatusCode::OK);
        assert_eq!(service.stats.connection_bytes.load(Relaxed), others as u64);
    }

    #[test]
    fn readyz_reports_the_loading_progress() {
        let (status, text) = run(ready(State(loading_engine())));
        assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "loading: 0 of 0 bytes\n"));
    }
}
