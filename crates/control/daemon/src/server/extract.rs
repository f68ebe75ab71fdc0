//! Parts of a request, read with limits of size and time. Every refusal is a problem in JSON.

use super::App;
use super::shares::Part;
use super::slots::Slots;
use crate::engine::Engine;
use crate::identity::{Caller, Connection};
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
        if self.0.detail.is_some() {
            // Only the operator's connection makes a reply of it.
            response.extensions_mut().insert(self.0.clone());
        }
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
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

fn connection(parts: &Parts) -> Result<Arc<Connection>, Refusal> {
    let found = parts.extensions.get::<Arc<Connection>>().cloned();
    found.ok_or_else(|| Problem::new(Code::Internal, "a request without a connection", "report this").into())
}

/// The connection of a request, which has been charged for it.
pub struct Connected(pub Arc<Connection>);

impl FromRequestParts<Arc<App>> for Connected {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Refusal> {
        connection(parts).map(Self)
    }
}

/// The principal of a request.
pub struct Authenticated(pub Caller, pub Arc<Connection>);

impl FromRequestParts<Arc<App>> for Authenticated {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let connection = connection(parts)?;
        if let Some(caller) = connection.known_caller(&app.engine) {
            return Ok(Self(caller, connection));
        }
        let (of_work, payer) = (connection.clone(), connection.payer(&app.engine));
        let caller = working(app, payer.as_deref(), move |engine| of_work.caller(engine)).await?;
        Ok(Self(caller, connection))
    }
}

/// Does `work` on a thread where it may block, in a place of `who`, or the operator's.
pub async fn working<T: Send + 'static>(
    app: &Arc<App>,
    who: Option<&str>,
    work: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Refusal> {
    in_place(app, &app.working, who, work).await
}

/// Does `work` in one of the given places.
pub async fn in_place<T: Send + 'static>(
    app: &Arc<App>,
    places: &Slots,
    who: Option<&str>,
    work: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Refusal> {
    let engine = app.engine.clone();
    let done = places.run(who, move || work(&engine)).await;
    Ok(done.unwrap_or_else(|e| {
        let problem = Problem::new(Code::Internal, "a fault of the node", "report this with the node's log");
        Err(problem.with_detail(e.to_string()))
    })?)
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

impl<T: DeserializeOwned + Send + 'static> FromRequestParts<Arc<App>> for Params<T> {
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

/// A body of JSON from a principal. Its bytes are charged while the second part lives, which therefore
/// belongs into the closure that does the work.
pub struct Body<T>(pub T, pub Reserved);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        read(request, app, usize::MAX).await.map(|(value, bytes)| Self(value, bytes))
    }
}

/// A body of JSON from anyone, who may not fill the node's memory.
pub struct SmallBody<T>(pub T, pub Reserved);

/// Bytes of a body that are charged. The operator is not charged.
pub type Reserved = Option<Part>;

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for SmallBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        // Twice the longest credential, for escapes.
        let read = read(request, app, 2 * flame_trust::MAX_BYTES).await;
        read.map(|(value, bytes)| Self(value, bytes))
    }
}

/// Reads a body of at most `most` bytes, and no more than the node's limit. Before its first byte is read,
/// its length is reserved.
async fn read<T: DeserializeOwned + Send + 'static>(
    request: Request,
    app: &Arc<App>,
    most: usize,
) -> Result<(T, Reserved), Refusal> {
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
    let payer = connection(&parts)?.payer(&app.engine);
    let reserved = match payer {
        None => None,
        Some(payer) => {
            // A body of unknown length may have all that is allowed.
            let bytes = stated.unwrap_or(limits.request_bytes);
            let each = (limits.bodies / 2).max(app.engine.config().limits.request_bytes);
            let part = app.bodies.take(&payer, bytes, each, limits.bodies);
            Some(part.ok_or_else(|| {
                Problem::new(
                    Code::TooMany,
                    format!("there is no room for a body of {bytes} bytes beside those of other requests"),
                    "wait until earlier requests have ended, or state a content-length",
                )
            })?)
        }
    };
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
    // Not on a thread of the API: it takes its time for a long body.
    let parsed = tokio::task::spawn_blocking(move || (serde_json::from_slice(&bytes), reserved)).await;
    let (value, reserved) = parsed.map_err(|e| {
        let problem = Problem::new(Code::Internal, "a fault of the node", "report this with the node's log");
        problem.with_detail(e.to_string())
    })?;
    let value = value.map_err(|e| {
        Problem::new(Code::Invalid, format!("body: {e}"), "see GET /v1/openapi.json for its fields")
    })?;
    Ok((value, reserved))
}
