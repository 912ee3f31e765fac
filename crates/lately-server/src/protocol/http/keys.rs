//! `DELETE /v1/key/{key}`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::problem::Problem;
use super::query::{Query, key_of};
use crate::service::Service;
use crate::service::commit::Changes;

/// Deletes a key. It is no error if there is none.
#[utoipa::path(
    delete, path = "/v1/key/{key}", tag = "keys",
    params(("key" = String, Path, description = "Up to 1,024 bytes, percent-encoded.")),
    responses((status = 204, description = "There is no such key any more.")),
)]
pub(super) async fn delete(State(service): State<Arc<Service>>, uri: Uri) -> Result<StatusCode, Problem> {
    let key = key_of(&uri, "/v1/key/")?;
    Query::of(&uri, "none")?.end()?;
    if service.is_loading() {
        return Err(Problem::loading());
    }
    let mut changes = Changes::default();
    let commit = {
        let _entered = service.enter();
        let deleted = service.delete([&*key].into_iter(), &mut changes, service.now());
        deleted.map_err(|refused| Problem::of_refused(&refused))?;
        service.commit(&mut [&mut changes])
    };
    service.settled(commit, changes).await.map_err(|refused| Problem::of_refused(&refused))?;
    Ok(StatusCode::NO_CONTENT)
}
