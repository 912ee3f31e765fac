//! `[cluster]`: other nodes to count together with.

use std::time::Duration;

use lately::Span;
use serde::Deserialize;
use toml::Spanned;

use super::error::Problem;
use super::value::{Length, Timeout};
use crate::limits::MAX_READ_TIMEOUT;
use crate::service::cluster::ClusterConfig;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [cluster]")]
pub(super) struct ClusterSection {
    engine: Option<Spanned<String>>,
    node: Option<Spanned<String>>,
    urls: Option<Spanned<Vec<String>>>,
    upstream: Option<Spanned<Vec<String>>>,
    flush: Option<Length>,
    read_timeout: Option<Spanned<Timeout>>,
}

/// Checks the section. Without an engine, or with `engine = "none"`, the server counts alone.
pub(super) fn settle(section: Option<Spanned<ClusterSection>>) -> Result<Option<ClusterConfig>, Problem> {
    let Some(section) = section else { return Ok(None) };
    let (at, section) = (section.span(), section.into_inner());
    let problem = |at, message: &str| Problem { at, message: message.to_owned() };
    match section.engine.as_ref().map(|engine| (engine.get_ref().as_str(), engine.span())) {
        Some(("redis", _)) => {}
        Some(("none", _)) => return Ok(None),
        Some((other, at)) => {
            return Err(Problem { at, message: format!("unknown engine '{other}': give redis or none") });
        }
        None => return Err(problem(at, "[cluster] names no engine: add engine = \"redis\"")),
    }
    let Some(node) = section.node else {
        return Err(problem(
            at,
            "[cluster] names no node: add a name of this server, such as node = \"eu-1\"",
        ));
    };
    let Some(urls) = section.urls else {
        return Err(problem(at, "[cluster] names no server: add urls = [\"redis://HOST:PORT\"]"));
    };
    let config = ClusterConfig::new(node.get_ref(), urls.get_ref()).map_err(|message| {
        let at = if message.contains("node name") { node.span() } else { urls.span() };
        Problem { at, message }
    })?;
    let config = match section.upstream {
        Some(upstream) => config
            .with_upstream(upstream.get_ref())
            .map_err(|message| Problem { at: upstream.span(), message })?,
        None => config,
    };
    let time = |span: Span| Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(0));
    let read_timeout = match section.read_timeout {
        Some(timeout) if timeout.get_ref().0.is_some_and(|timeout| timeout > MAX_READ_TIMEOUT) => {
            let most = MAX_READ_TIMEOUT.as_secs();
            return Err(Problem { at: timeout.span(), message: format!("read_timeout is at most {most}s") });
        }
        Some(timeout) => timeout.into_inner().0,
        None => config.read_timeout,
    };
    let flush = section.flush.map_or(config.flush, |flush| time(flush.0));
    Ok(Some(ClusterConfig { flush, read_timeout, ..config }))
}
