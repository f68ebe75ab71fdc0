//! Parts of a request, read with limits of size and time. Every refusal is a problem in JSON.

use super::App;
use crate::identity::{Access, Caller, Connection, Peer};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flame_api::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A reply that is not a success.
pub struct Refusal(pub Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.0)).into_response();
        if self.0.code == Code::TooMany {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// A reply in JSON.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => ([(CONTENT_TYPE, json)], bytes).into_response(),
            Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
        }
    }
}

fn connection(parts: &Parts) -> Result<Arc<Connection>, Refusal> {
    let found = parts.extensions.get::<Arc<Connection>>().cloned();
    found.ok_or_else(|| Problem::new(Code::Internal, "a request without a connection", "report this").into())
}

/// The connection of a peer that may make requests at all, whose rate is counted.
pub struct Connected(pub Arc<Connection>);

impl FromRequestParts<Arc<App>> for Connected {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let connection = connection(parts)?;
        if let Peer::Unix { uid, access: Access::None } = connection.peer {
            return Err(Problem::new(
                Code::Forbidden,
                format!("user {uid} has no access to this node"),
                "the operator adds users to [socket] of node.toml: users = [\"NAME\"]",
            )
            .into());
        }
        limit(app, &connection.label())?;
        Ok(Self(connection))
    }
}

/// The principal of a request, whose rate is counted. The operator has no limit.
pub struct Authenticated(pub Caller, pub Arc<Connection>);

impl FromRequestParts<Arc<App>> for Authenticated {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let connection = connection(parts)?;
        let caller = match connection.caller(&app.engine) {
            Ok(caller) => caller,
            Err(problem) => {
                // Also tells users without access why they have none.
                Connected::from_request_parts(parts, app).await?;
                return Err(problem.into());
            }
        };
        if let Caller::Principal { owner, .. } = &caller {
            limit(app, &format!("{} {}", owner.root, owner.principal))?;
        }
        Ok(Self(caller, connection))
    }
}

fn limit(app: &App, who: &str) -> Result<(), Refusal> {
    let per_second = app.engine.config().limits.requests_per_second;
    app.rates.take(who, per_second).map_err(|wait| {
        Problem::new(
            Code::TooMany,
            format!("more than {per_second} requests in a second"),
            format!("wait {} ms", wait.as_millis() + 1),
        )
        .into()
    })
}

/// The operator.
pub struct Operator;

impl FromRequestParts<Arc<App>> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        match Authenticated::from_request_parts(parts, app).await? {
            Authenticated(Caller::Operator, _) => Ok(Self),
            _ => Err(Problem::new(
                Code::Forbidden,
                "this is the operator's",
                "ask the operator: root, or the node's user, on the node's Unix socket",
            )
            .into()),
        }
    }
}

/// The name of a module in the path.
pub struct Name(pub String);

impl FromRequestParts<Arc<App>> for Name {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let name = Path::<String>::from_request_parts(parts, app).await;
        let name = name.map_err(|e| {
            Problem::new(Code::Invalid, format!("path: {}", e.body_text()), "write the module's name plainly")
        })?;
        Ok(Self(name.0))
    }
}

/// The parameters after the question mark.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Refusal> {
        let query = Query::<T>::try_from_uri(&parts.uri).map_err(|e| {
            let text = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Problem::new(
                Code::Invalid,
                format!("query: {text}"),
                "see GET /v1/openapi.json for the parameters",
            )
        })?;
        Ok(Self(query.0))
    }
}

/// A body of JSON from a principal.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        read(request, app, usize::MAX).await.map(Self)
    }
}

/// A body of JSON from anyone, who may not fill the node's memory.
pub struct SmallBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for SmallBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        // Twice the longest credential, for escapes.
        read(request, app, 2 * flame_trust::MAX_BYTES).await.map(Self)
    }
}

/// Reads a body of at most `most` bytes, and no more than the node's limit.
async fn read<T: DeserializeOwned>(request: Request, app: &Arc<App>, most: usize) -> Result<T, Refusal> {
    let mut limits = app.engine.config().limits;
    limits.request_bytes = limits.request_bytes.min(most);
    let (parts, body) = request.into_parts();
    let is_json = parts.headers.get(CONTENT_TYPE).and_then(|t| t.to_str().ok()).is_some_and(|t| {
        t.split(';').next().is_some_and(|t| t.trim().eq_ignore_ascii_case("application/json"))
    });
    if !is_json {
        return Err(Problem::new(
            Code::MediaType,
            "the body is not declared as JSON",
            "send the header content-type: application/json",
        )
        .into());
    }
    let too_large = || {
        Problem::new(
            Code::TooLarge,
            format!("the body has more than {} bytes", limits.request_bytes),
            "make the module smaller, or ask the operator for a higher limit (request_bytes in [limits])",
        )
    };
    let stated = parts.headers.get(CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|n| n > limits.request_bytes) {
        return Err(too_large().into());
    }
    let read = axum::body::to_bytes(body, limits.request_bytes);
    let bytes = match tokio::time::timeout(limits.request_time, read).await {
        Err(_) => {
            return Err(Problem::new(
                Code::Timeout,
                format!("the body did not arrive within {:?}", limits.request_time),
                "send it faster, or ask the operator for more time (request_time in [limits])",
            )
            .into());
        }
        Ok(Err(e)) => {
            let limited =
                std::error::Error::source(&e).is_some_and(|e| e.is::<http_body_util::LengthLimitError>());
            return Err(match limited {
                true => too_large().into(),
                false => Problem::new(Code::Invalid, format!("body: {e}"), "send the whole body").into(),
            });
        }
        Ok(Ok(bytes)) => bytes,
    };
    let value = serde_json::from_slice(&bytes).map_err(|e| {
        Problem::new(Code::Invalid, format!("body: {e}"), "see GET /v1/openapi.json for its fields")
    })?;
    Ok(value)
}
