//! Errors as the status of a call.

use crate::service::Refused;
use lately::{HitError, LimitError};
use tonic::{Code, Status};

use crate::protocol::http::no_key;
use crate::service::access::{Forbidden, Principal};
use crate::service::owners::{ARGUMENT, TRY_AGAIN};
use crate::service::{DecideError, code_of};

pub(super) fn of_hit(error: &HitError) -> Status {
    let code = match error {
        HitError::KeyLength { .. }
        | HitError::Reserved { .. }
        | HitError::IdLength { .. }
        | HitError::MemberLength { .. } => Code::InvalidArgument,
        HitError::NoDedupe | HitError::NoMembers => Code::FailedPrecondition,
        HitError::OutOfMemory { .. } => Code::ResourceExhausted,
        _ => Code::OutOfRange,
    };
    Status::new(code, format!("{} {error}", code_of(error)))
}

pub(super) fn of_refused(refused: &Refused) -> Status {
    let text = format!("{} {refused}", refused.code());
    match refused {
        Refused::Never(_) => Status::failed_precondition(text),
        _ => Status::unavailable(text),
    }
}

pub(super) fn of_decide(error: &DecideError) -> Status {
    match error {
        DecideError::Refused(refused) => of_refused(refused),
        DecideError::Limit(LimitError::Hit(hit)) => of_hit(hit),
        DecideError::Limit(error) => Status::invalid_argument(error.to_string()),
        DecideError::Unknown(text) => Status::not_found(text.clone()),
        DecideError::Owner { code: ARGUMENT, error } => Status::invalid_argument(error.clone()),
        DecideError::Owner { code, error } => {
            let status = match *code {
                "OOM" => Code::ResourceExhausted,
                "MISCONF" | TRY_AGAIN => Code::Unavailable,
                _ => Code::OutOfRange,
            };
            Status::new(status, format!("{code} {error}"))
        }
        DecideError::Refund(text) => Status::failed_precondition(text.clone()),
    }
}

pub(super) fn loading() -> Status {
    Status::unavailable("LOADING the server is loading its counts: try again in a second")
}

/// The status of a call that the client may not make.
pub(super) fn of_forbidden(principal: &Principal, forbidden: &Forbidden<Vec<u8>>, path: &str) -> Status {
    let user = principal.name();
    match forbidden {
        Forbidden::Login => Status::unauthenticated(
            "NOAUTH send authorization metadata: Basic, or Bearer and the password of the user default",
        ),
        Forbidden::Key(key) => Status::permission_denied(format!("NOPERM {}", no_key(principal, key))),
        Forbidden::Verb | Forbidden::AllKeys => {
            Status::permission_denied(format!("NOPERM user {user} has no permissions for {path}"))
        }
    }
}
