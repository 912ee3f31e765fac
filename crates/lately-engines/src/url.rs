//! Addresses of engines.

/// An address in parts: `SCHEME://LOGIN@HOSTS/PATH?QUERY`.
pub(crate) struct Parts<'u> {
    pub(crate) scheme: &'u str,
    pub(crate) login: &'u str,
    pub(crate) hosts: &'u str,
    pub(crate) path: &'u str,
    pub(crate) query: &'u str,
}

impl<'u> Parts<'u> {
    pub(crate) fn of(url: &'u str) -> Parts<'u> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        // A password may contain any character, even a `/` or a `?` that was not encoded.
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        Parts { scheme, login, hosts, path, query }
    }
}

/// An address without user and password, for messages.
#[must_use]
pub fn without_password(url: &str) -> String {
    let Parts { scheme, login, hosts, path, query } = Parts::of(url);
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let login = if login.is_empty() { "" } else { "…@" };
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    let shown = query.split('&').filter(|option| !option.is_empty()).map(|option| {
        let is_shown =
            ["ca=", "cert=", "key=", "mechanism=", "sslmode=", "sslrootcert=", "sslcert=", "sslkey="]
                .iter()
                .any(|name| option.starts_with(name));
        let name = option.split('=').next().unwrap_or(option);
        if is_shown { option.to_owned() } else { format!("{name}=…") }
    });
    let query = shown.collect::<Vec<_>>().join("&");
    let query = if query.is_empty() { query } else { format!("?{query}") };
    format!("{scheme}{login}{hosts}{path}{query}")
}
