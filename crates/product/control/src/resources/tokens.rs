//! Tokens of callers over TCP.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use longshore_api::access::{NewToken, Role, TokenInfo, TokenRequest};
use longshore_api::envelope::{Listing, Versioned};

use crate::answer::{Answer, document, list};
use crate::app::App;
use crate::caller::Known;
use crate::input::Input;
use crate::route::{Content, Route, of};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            "GET",
            "/api/v1/tokens",
            "listTokens",
            "Names, roles and ends of tokens",
            Some(Role::Admin),
            Content::Json(of::<Listing<TokenInfo>>),
            get(tokens),
        ),
        Route {
            body: Some(of::<TokenRequest>),
            ..Route::new(
                "POST",
                "/api/v1/tokens",
                "createToken",
                "Make a token. The answer is the only place where its secret is told",
                Some(Role::Admin),
                Content::Json(of::<Versioned<NewToken>>),
                post(create),
            )
        },
        Route::new(
            "GET",
            "/api/v1/tokens/{name}",
            "getToken",
            "Name, role and end of a token",
            Some(Role::Admin),
            Content::Json(of::<Versioned<TokenInfo>>),
            get(token),
        ),
        Route::new(
            "DELETE",
            "/api/v1/tokens/{name}",
            "deleteToken",
            "Revoke a token",
            Some(Role::Admin),
            Content::Nothing,
            delete(remove),
        ),
    ]
}

async fn tokens(State(app): State<Arc<App>>) -> Answer {
    Ok(list(app.tokens.list()))
}

async fn token(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    Ok(document(app.tokens.get(&name)?))
}

async fn create(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Input(request): Input<TokenRequest>,
) -> Answer {
    let token = app.record(move |app| {
        let step = format!("create token {} ({})", request.name, request.role);
        app.audited(&known.caller, &step, || app.tokens.create(&request))
    });
    Ok(document(token.await??))
}

async fn remove(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Known>,
    Path(name): Path<String>,
) -> Answer {
    app.record(move |app| {
        let step = format!("remove token {name}");
        app.audited(&known.caller, &step, || app.tokens.remove(&name))
    })
    .await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
