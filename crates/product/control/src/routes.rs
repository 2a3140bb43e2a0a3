//! The table of routes: the router and the OpenAPI document are made from it.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use longshore_api::access::Role;
use longshore_api::problem::{Problem, ProblemCode};

use crate::answer::Failure;
use crate::app::App;
use crate::dashboard;
use crate::guard::{Needs, guard, same_origin};
use crate::input::BODY_BYTES_MAX;
use crate::requests::RequestKind;
use crate::resources::{config, events, health, logins, maps, objects, pools, sessions, tokens};
use crate::route::{Mount, Route};

pub(crate) fn routes() -> Vec<Route> {
    let mut routes = health::routes();
    routes.extend(objects::routes());
    routes.extend(maps::routes());
    routes.extend(config::routes());
    routes.extend(pools::routes());
    routes.extend(sessions::routes());
    routes.extend(tokens::routes());
    routes.extend(logins::routes());
    routes.extend(events::routes());
    routes
}

fn mounts() -> Vec<Mount> {
    let mut mounts = objects::mounts();
    mounts.extend(config::mounts());
    mounts.extend(pools::mounts());
    mounts
}

/// Everything that answers requests.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        if let Some(handler) = route.handler {
            router = add(router, app, route.path, route.method, route.needs, handler);
        }
    }
    for Mount { path, handler } in mounts() {
        router = add(router, app, path, "POST", Some(Role::Admin), handler);
    }
    for (method, path, handler) in dashboard::routes() {
        router = add(router, app, path, method, None, handler);
    }
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(app), same_origin))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(app))
}

fn add(
    router: Router<Arc<App>>,
    app: &Arc<App>,
    path: &'static str,
    method: &'static str,
    needs: Option<Role>,
    handler: MethodRouter<Arc<App>>,
) -> Router<Arc<App>> {
    let guarded = (Arc::clone(app), Needs(needs));
    let counted = (Arc::clone(app), path, method);
    let handler = handler
        .route_layer(from_fn_with_state(guarded, guard))
        .route_layer(from_fn_with_state(counted, count));
    router.route(path, handler)
}

/// Counts answers, for metrics.
async fn count(
    State((app, route, method)): State<(Arc<App>, &'static str, &'static str)>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let response = next.run(request).await;
    let code = response.status().as_u16();
    let kind = RequestKind {
        route,
        method,
        code,
    };
    app.requests.count(kind, began.elapsed());
    response
}

async fn no_route(request: Request) -> Response {
    let title = format!("there is nothing at {}", request.uri().path());
    let problem = Problem::new(ProblemCode::NotFound, title);
    let failure: Failure = problem.advise("see /openapi.json for what there is").into();
    failure.into_response()
}

async fn no_method(request: Request) -> Response {
    let title = format!(
        "{} has no method {}",
        request.uri().path(),
        request.method()
    );
    let problem = Problem::new(ProblemCode::MethodNotAllowed, title);
    let failure: Failure = problem.advise("see /openapi.json for what there is").into();
    failure.into_response()
}
