//! The paths of the API.

use super::extract::{Connected, Refusal};
use super::{App, metrics, openapi, records, routes};
use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flame_api::{Code, Problem};
use std::sync::Arc;

pub fn router(app: Arc<App>) -> Router {
    let nowhere = || async {
        Refusal(Problem::new(Code::NotFound, "no such path", "see GET /v1/openapi.json for the paths"))
    };
    let not_so = || async {
        Refusal(Problem::new(Code::Method, "this path has no such method", "see GET /v1/openapi.json"))
    };
    Router::new()
        .route("/v1/health", get(routes::health))
        .route("/v1/openapi.json", get(openapi_json))
        .route("/v1/session", get(routes::session).post(routes::answer))
        .route("/v1/session/challenge", post(routes::challenge))
        .route("/v1/status", get(routes::status))
        .route("/v1/status/security", get(routes::security))
        .route("/v1/sources", get(routes::sources))
        .route("/v1/credentials", get(routes::credentials))
        .route("/v1/capacity", get(routes::capacity))
        .route("/v1/revocations", post(routes::revoke).delete(routes::withdraw))
        .route("/v1/modules", get(routes::list).post(routes::install))
        .route("/v1/modules/{name}", get(routes::show).put(routes::update).delete(routes::remove))
        .route("/v1/modules/{name}/stop", post(routes::stop))
        .route("/v1/modules/{name}/renew", post(routes::renew))
        .route("/v1/modules/{name}/log", get(routes::log))
        .route("/v1/modules/{name}/ask", post(routes::ask))
        .route("/v1/modules/{name}/records", get(records::records))
        .route("/v1/accounting", get(records::accounting))
        .route("/metrics", get(metrics::metrics))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .with_state(app)
}

async fn openapi_json(_: Connected) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], openapi::description()).into_response()
}
