//! The dashboard at `/`: files in the binary. All that it shows comes from the routes that every client has.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;

use super::routes::{PAGE, wrong_method};
use crate::service::Service;

/// A file of the page: its path, its type and its content.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";

macro_rules! file {
    ($path:literal, $name:literal, $kind:expr) => {
        File { path: $path, kind: $kind, content: include_str!(concat!("../../page/", $name)) }
    };
}

static FILES: &[File] = &[
    file!("/", "index.html", HTML),
    file!("/page/style.css", "style.css", CSS),
    file!("/page/icon.svg", "icon.svg", ICON),
    file!("/page/theme.js", "theme.js", SCRIPT),
    file!("/page/main.js", "main.js", SCRIPT),
    file!("/page/dom.js", "dom.js", SCRIPT),
    file!("/page/format.js", "format.js", SCRIPT),
    file!("/page/api.js", "api.js", SCRIPT),
    file!("/page/live.js", "live.js", SCRIPT),
    file!("/page/chart.js", "chart.js", SCRIPT),
    file!("/page/list.js", "list.js", SCRIPT),
    file!("/page/keylink.js", "keylink.js", SCRIPT),
    file!("/page/now.js", "now.js", SCRIPT),
    file!("/page/keys.js", "keys.js", SCRIPT),
    file!("/page/key.js", "key.js", SCRIPT),
    file!("/page/limits.js", "limits.js", SCRIPT),
    file!("/page/alerts.js", "alerts.js", SCRIPT),
    file!("/page/cluster.js", "cluster.js", SCRIPT),
    file!("/page/memory.js", "memory.js", SCRIPT),
    file!("/page/login.js", "login.js", SCRIPT),
];

/// The page loads nothing from elsewhere, runs no script but its own files, and cannot be framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    // A browser asks each time whether its copy is current: after an update of the server all files are new.
    (CACHE_CONTROL, "no-cache"),
];

/// The version of all files.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let contents: Vec<&str> = FILES.iter().map(|file| file.content).collect();
    format!("\"{:016x}\"", BuildHasherDefault::<DefaultHasher>::default().hash_one(contents))
});

/// The routes of the files.
pub(super) fn routes() -> Router<Arc<Service>> {
    let add = |router: Router<Arc<Service>>, file: &'static File| {
        router.route(file.path, PAGE.get(async move |headers: HeaderMap| answer(file, &headers)))
    };
    FILES.iter().fold(Router::new(), add).method_not_allowed_fallback(wrong_method)
}

fn answer(file: &File, headers: &HeaderMap) -> impl IntoResponse + use<> {
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == TAG.as_bytes());
    let head = (HEADERS, [(ETAG, TAG.as_str()), (CONTENT_TYPE, file.kind)]);
    match is_known {
        true => (StatusCode::NOT_MODIFIED, head, ""),
        false => (StatusCode::OK, head, file.content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> &'static str {
        FILES.iter().find(|file| file.path == path).expect(path).content
    }

    #[test]
    fn the_page_is_small_and_whole() {
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
        assert!(bytes < 150_000, "{bytes}");
        let named = |text: &str| FILES.iter().filter(|file| text.contains(file.path)).count();
        assert_eq!(named(text("/")), FILES.len(), "the page names all files");
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            for import in file.content.split("from \"./").skip(1) {
                let name = import.split('"').next().expect("a name");
                text(&format!("/page/{name}"));
            }
        }
    }

    /// A key is any bytes. It is set as text, so that nothing in it is markup.
    #[test]
    fn no_script_reads_markup_or_makes_code() {
        for file in FILES {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
            {
                assert!(!file.content.contains(word), "{}: {word}", file.path);
            }
        }
        let page = text("/");
        for word in ["style=", "<style", "onclick", "onload", "javascript:"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.split("<script").skip(1).all(|tag| tag.contains("src=\"/page/")));
        assert!(!POLICY.contains("unsafe"));
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for file in FILES {
            let others = file.content.matches("://").count();
            let names = file.content.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(others, names, "{}", file.path);
        }
    }

    #[test]
    fn a_known_file_is_not_sent_again() {
        let response = |tag: Option<&str>| {
            let headers = tag.map(|tag| (IF_NONE_MATCH, tag.parse().expect("a value"))).into_iter().collect();
            answer(&FILES[0], &headers).into_response()
        };
        let first = response(None);
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[CONTENT_SECURITY_POLICY], POLICY);
        let tag = first.headers()[ETAG].to_str().expect("text");
        assert_eq!(response(Some(tag)).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(response(Some("\"x\"")).status(), StatusCode::OK);
    }
}
