//! Where samples are sent: a request, and what its answer means.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use prost::Message;
use zeroize::Zeroizing;

use super::message::{KeyHits, Template};
use crate::client::{self, Answer};
use crate::config::{FileError, History, HistoryLogin, HistoryProtocol, read_file};
use crate::limits::{MAX_RETRY_AFTER, RECEIVER_ANSWER_CHARS};
use crate::otlp::generated::ExportMetricsServiceResponse;
use crate::service::history::Pane;
use crate::service::password::first_line;

/// What became of the samples of a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Taken,
    /// This many were refused, and the others taken.
    InPart(u64, String),
    /// None was taken. Some of them may be at fault.
    Refused(String),
    /// None was taken. The same request may succeed later, after this time if it is known.
    Later(String, Option<Duration>),
}

/// A receiver of samples.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) url: Uri,
    protocol: HistoryProtocol,
    template: Template,
    headers: HeaderMap,
    login: Option<HistoryLogin>,
}

impl Receiver {
    pub(super) fn new(history: &History, node: Option<&str>) -> Receiver {
        let template = Template::new(history, node);
        let mut headers = template.headers();
        headers.extend(history.headers.iter().cloned());
        let (url, protocol, login) = (history.url.clone(), history.protocol, history.login.clone());
        Receiver { url, protocol, template, headers, login }
    }

    /// Sends samples of a pane in one request.
    pub(super) async fn send(&self, samples: &[KeyHits], pane: Pane) -> Sent {
        let mut headers = self.headers.clone();
        if let Some(login) = self.login.clone() {
            // Reading may block on a slow disk.
            let value = tokio::task::spawn_blocking(move || authorization(&login)).await;
            match value.expect("a panic is a bug that has been reported") {
                Ok(value) => _ = headers.insert(AUTHORIZATION, value),
                Err(error) => return Sent::Later(error.to_string(), None),
            }
        }
        let body = self.template.body(samples, pane);
        match client::ask(&self.url, headers, body.into()).await {
            Ok(answer) => read_answer(self.protocol, samples.len() as u64, &answer),
            Err(why) => Sent::Later(why, None),
        }
    }
}

/// Reads the secret of a login, and returns the header with it.
///
/// # Errors
/// The file cannot be read, or has no secret.
pub(crate) fn authorization(login: &HistoryLogin) -> Result<HeaderValue, FileError> {
    let path = login.file();
    let content = read_file(path)?;
    let secret = first_line(&content);
    if secret.is_empty() {
        return Err(FileError::new(path, "its first line is empty: write the secret there"));
    }
    let text = Zeroizing::new(match login {
        HistoryLogin::Basic { user, .. } => {
            let pair = Zeroizing::new([user.as_bytes(), b":", secret].concat());
            [b"Basic ", BASE64_STANDARD.encode(&pair).as_bytes()].concat()
        }
        HistoryLogin::Bearer { .. } => [b"Bearer ", secret].concat(),
    });
    let mut value = HeaderValue::from_bytes(&text)
        .map_err(|_| FileError::new(path, "its first line has control characters: write the secret there"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What an answer to a request with this many samples means.
fn read_answer(protocol: HistoryProtocol, samples: u64, answer: &Answer) -> Sent {
    const WRITTEN: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
    let Answer { status, headers, body } = answer;
    let number = |name: &HeaderName| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let written = number(&WRITTEN).filter(|_| protocol == HistoryProtocol::RemoteWrite2);
    if status.is_success() {
        return match protocol {
            HistoryProtocol::RemoteWrite => Sent::Taken,
            // A receiver that does not know the version may have read an empty request of another one.
            HistoryProtocol::RemoteWrite2 => match written {
                None => Sent::Later(
                    format!(
                        "it answered {status} without the header {WRITTEN}: it does not know remote write 2.0: give protocol = \"remote-write\""
                    ),
                    None,
                ),
                Some(written) if written < samples => {
                    Sent::InPart(samples - written, format!("it wrote {written} of {samples} samples"))
                }
                Some(_) => Sent::Taken,
            },
            HistoryProtocol::Otlp => {
                let partial = ExportMetricsServiceResponse::decode(&body[..]).ok();
                match partial.and_then(|answer| answer.partial_success) {
                    Some(partial) if partial.rejected_data_points > 0 => {
                        let refused = partial.rejected_data_points.unsigned_abs().min(samples);
                        Sent::InPart(refused, shown(partial.error_message.as_bytes()))
                    }
                    _ => Sent::Taken,
                }
            }
        };
    }
    let shown = shown(body);
    let why = if shown.is_empty() {
        format!("it answered {status}")
    } else {
        format!("it answered {status}: {shown}")
    };
    match *status {
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            match written {
                Some(written) if written > 0 && written <= samples => Sent::InPart(samples - written, why),
                _ => Sent::Refused(why),
            }
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE if protocol == HistoryProtocol::RemoteWrite2 => Sent::Later(
            format!("{why}: it does not know remote write 2.0: give protocol = \"remote-write\""),
            None,
        ),
        _ => {
            let after = number(&RETRY_AFTER).map(|s| Duration::from_secs(s).min(MAX_RETRY_AFTER));
            Sent::Later(why, after)
        }
    }
}

/// The start of a text for the log.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().take(RECEIVER_ANSWER_CHARS).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_became_of_the_samples() {
        use HistoryProtocol::{Otlp, RemoteWrite, RemoteWrite2};
        let check = |protocol, status: u16, header: &[(&str, &str)], body: &[u8], expected: Sent| {
            let mut headers = HeaderMap::new();
            for (name, value) in header {
                headers.insert(
                    HeaderName::try_from(*name).expect("a name"),
                    HeaderValue::try_from(*value).expect("a value"),
                );
            }
            let status = StatusCode::from_u16(status).expect("a status");
            let answer = Answer { status, headers, body: body.to_vec() };
            assert_eq!(read_answer(protocol, 10, &answer), expected, "{protocol} {status}");
        };
        let written = |number| [("x-prometheus-remote-write-samples-written", number)];
        let no = |why: &str| why.to_owned();
        check(RemoteWrite, 204, &[], b"", Sent::Taken);
        check(RemoteWrite, 200, &written("3"), b"", Sent::Taken);
        check(RemoteWrite2, 204, &written("10"), b"", Sent::Taken);
        check(RemoteWrite2, 204, &written("7"), b"", Sent::InPart(3, no("it wrote 7 of 10 samples")));
        let old = "it answered 204 No Content without the header x-prometheus-remote-write-samples-written: it does not know remote write 2.0: give protocol = \"remote-write\"";
        check(RemoteWrite2, 204, &[], b"", Sent::Later(no(old), None));
        check(
            RemoteWrite2,
            415,
            &[],
            b"no\n",
            Sent::Later(
                no(
                    "it answered 415 Unsupported Media Type: no: it does not know remote write 2.0: give protocol = \"remote-write\"",
                ),
                None,
            ),
        );
        check(RemoteWrite2, 400, &written("9"), b"", Sent::InPart(1, no("it answered 400 Bad Request")));
        check(RemoteWrite2, 400, &written("0"), b"", Sent::Refused(no("it answered 400 Bad Request")));
        check(
            RemoteWrite,
            400,
            &[],
            b"out of order sample\nmore",
            Sent::Refused(no("it answered 400 Bad Request: out of order sample")),
        );
        check(RemoteWrite, 413, &[], b"", Sent::Refused(no("it answered 413 Payload Too Large")));
        let later = |why: &str, after: Option<u64>| Sent::Later(no(why), after.map(Duration::from_secs));
        check(RemoteWrite, 503, &[], b"", later("it answered 503 Service Unavailable", None));
        check(
            RemoteWrite,
            429,
            &[("retry-after", "7")],
            b"",
            later("it answered 429 Too Many Requests", Some(7)),
        );
        check(
            RemoteWrite,
            429,
            &[("retry-after", "99999")],
            b"",
            later("it answered 429 Too Many Requests", Some(600)),
        );
        check(RemoteWrite, 401, &[], b"", later("it answered 401 Unauthorized", None));
        check(RemoteWrite, 301, &[], b"", later("it answered 301 Moved Permanently", None));
        check(Otlp, 200, &[], b"", Sent::Taken);
        // partial_success { rejected_data_points: 4, error_message: "no" }
        let partial = b"\x0a\x06\x08\x04\x12\x02no";
        check(Otlp, 200, &[], partial, Sent::InPart(4, no("no")));
    }

    #[test]
    fn a_login_is_read_from_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let bearer = HistoryLogin::Bearer { token_file: file.clone() };
        let basic = HistoryLogin::Basic { user: "Aladdin".to_owned(), password_file: file.clone() };
        let header = |login| {
            let value = authorization(login).map(|value| value.to_str().expect("text").to_owned());
            value.map_err(|error| error.to_string().replace(&file.display().to_string(), "FILE"))
        };
        assert!(header(&bearer).is_err_and(|error| error.starts_with("FILE: No such file")));
        // The example of RFC 7617.
        std::fs::write(&file, "open sesame\r\nmore\n").expect("room");
        assert_eq!(header(&basic).as_deref(), Ok("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert_eq!(header(&bearer).as_deref(), Ok("Bearer open sesame"));
        std::fs::write(&file, "\u{feff}open sesame\n").expect("room");
        assert_eq!(header(&bearer).as_deref(), Ok("Bearer open sesame"));
        std::fs::write(&file, "\n").expect("room");
        let empty = "FILE: its first line is empty: write the secret there";
        assert_eq!(header(&basic).err().as_deref(), Some(empty));
        std::fs::write(&file, "a\x01b").expect("room");
        assert!(
            header(&bearer).is_err_and(|error| error.ends_with("control characters: write the secret there"))
        );
    }
}
