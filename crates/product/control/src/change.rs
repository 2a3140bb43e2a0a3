//! Changes: from a request to the engine, and back.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use longshore_api::change::Wish;
use longshore_api::problem::Problem;

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
        let plane = Arc::clone(&app.plane);
        let plan = app.pools.plans.run(move || plane.plan(&wish, options));
        return Ok(document(plan.await??));
    }
    let own = Arc::clone(app);
    let applied = app.pools.changes.run(move || {
        let applied = own.plane.apply(wish, options, &known.caller)?;
        // Also for a client that has gone away and asks again.
        let goes_on = !applied.draining.is_empty();
        let operation = goes_on.then(|| own.operations.begin(&applied));
        Ok::<_, Box<Problem>>((applied, operation))
    });
    let (applied, operation) = applied.await??;
    let mut response = at_revision(applied.revision, &applied);
    if let Some(id) = operation {
        *response.status_mut() = StatusCode::ACCEPTED;
        if let Ok(place) = HeaderValue::try_from(format!("/api/v1/operations/{id}")) {
            response.headers_mut().insert(header::LOCATION, place);
        }
    }
    Ok(response)
}
