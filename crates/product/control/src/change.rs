//! Changes: from a request to the engine, and back.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use longshore_api::change::Wish;

use crate::answer::{Answer, at_revision, document};
use crate::app::App;
use crate::caller::Known;
use crate::input::Asked;

/// Plans a change, or carries it out.
///
/// 202 with the place of the operation while volumes still drain; else 200.
pub(crate) async fn change(app: &Arc<App>, known: Known, asked: Asked, wish: Wish) -> Answer {
    let options = asked.options;
    if asked.dry_run {
        let plan = app.blocking(move |app| app.plane.plan(&wish, options));
        return Ok(document(plan.await??));
    }
    let applied = app.blocking(move |app| app.plane.apply(wish, options, &known.caller));
    let applied = applied.await??;
    let mut response = at_revision(applied.revision, &applied);
    if !applied.draining.is_empty() {
        let id = app.operations.begin(&applied);
        *response.status_mut() = StatusCode::ACCEPTED;
        if let Ok(place) = HeaderValue::try_from(format!("/api/v1/operations/{id}")) {
            response.headers_mut().insert(header::LOCATION, place);
        }
    }
    Ok(response)
}
