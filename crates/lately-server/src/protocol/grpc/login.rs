//! Who makes a call: the metadata `authorization`, as in HTTP.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tonic::Status;

use crate::protocol::http::{Link, credentials};
use crate::service::Service;
use crate::service::access::Principal;
use crate::service::login::LoginError;

/// Sets the principal of the connection for this call.
pub(super) async fn log_in(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(mut link) = request.extensions().get::<Link>().cloned() else { return next.run(request).await };
    link.users_version = service.users.version();
    // A test may have set it.
    if service.users.get().is_open() {
        request.extensions_mut().insert(link);
        return next.run(request).await;
    }
    link.principal = match credentials(request.headers()) {
        Err(why) => return Status::unauthenticated(format!("WRONGPASS {why}")).into_http(),
        Ok(None) => Principal::Nobody,
        Ok(Some((user, password))) => match service.login(user.as_bytes(), &password, &link.caller).await {
            Ok(principal) => principal,
            Err(LoginError::Wrong) => {
                return Status::unauthenticated("WRONGPASS the user or the password is wrong").into_http();
            }
            Err(LoginError::Busy) => {
                return Status::unavailable("too many logins are waiting: try again later").into_http();
            }
        },
    };
    request.extensions_mut().insert(link);
    next.run(request).await
}
