//! The paths of the API.

use super::App;
use super::extract::{Authenticated, Body, Connected, Json, Name, Operator, Params, Refusal, SmallBody};
use super::{metrics, openapi, records};
use crate::change::Presented;
use crate::engine::Engine;
use crate::identity::{Caller, operator};
use crate::store::Owner;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flame_api::{
    Challenge, ChallengeRequest, Change, Code, Health, InstallRequest, LogLine, Module, Modules, Problem,
    RenewRequest, RevokeRequest, Session, SessionRequest, Sources, Status, UpdateRequest, Whose,
};
use std::sync::Arc;

type Reply<T> = Result<Json<T>, Refusal>;

pub fn router(app: Arc<App>) -> Router {
    let nowhere = || async {
        Refusal(Problem::new(Code::NotFound, "no such path", "see GET /v1/openapi.json for the paths"))
    };
    let not_so = || async {
        Refusal(Problem::new(Code::Method, "this path has no such method", "see GET /v1/openapi.json"))
    };
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/openapi.json", get(openapi_json))
        .route("/v1/session", get(session).post(answer))
        .route("/v1/session/challenge", post(challenge))
        .route("/v1/status", get(status))
        .route("/v1/sources", get(sources))
        .route("/v1/revocations", post(revoke))
        .route("/v1/modules", get(list).post(install))
        .route("/v1/modules/{name}", get(show).put(update).delete(remove))
        .route("/v1/modules/{name}/stop", post(stop))
        .route("/v1/modules/{name}/renew", post(renew))
        .route("/v1/modules/{name}/log", get(log))
        .route("/v1/modules/{name}/records", get(records::records))
        .route("/metrics", get(metrics::metrics))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .with_state(app)
}

/// Runs `change` on a thread where it may block.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    change: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Refusal> {
    let engine = app.engine.clone();
    let done = tokio::task::spawn_blocking(move || change(&engine)).await;
    let done = done.unwrap_or_else(|e| {
        Err(Problem::new(
            Code::Internal,
            format!("a fault of the node: {e}"),
            "report this with the node's log",
        ))
    });
    Ok(done?)
}

/// Runs a change that compiles a module. Few of them run at the same time.
async fn compiling<T: Send + 'static>(
    app: &Arc<App>,
    change: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Refusal> {
    let closed = |_| Problem::new(Code::Unavailable, "the node stops", "repeat the request when it is back");
    let _permit = app.compiling.acquire().await.map_err(closed)?;
    blocking(app, change).await
}

fn meant(caller: &Caller, engine: &Engine, change: &Change) -> Result<Owner, Problem> {
    caller.of(engine, change.principal.as_deref())
}

/// Whether the node works
#[utoipa::path(get, path = "/v1/health", responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(super) async fn health(State(app): State<Arc<App>>, _: Connected) -> Response {
    let health = app.engine.health();
    let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

async fn openapi_json(_: Connected) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], openapi::description()).into_response()
}

/// The principal of this connection
#[utoipa::path(get, path = "/v1/session",
    responses((status = 200, body = Session), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn session(Authenticated(caller, _): Authenticated) -> Json<Session> {
    Json(match caller {
        Caller::Operator => operator(),
        Caller::Principal { session, .. } => session,
    })
}

/// Begin a session: present a credential
#[utoipa::path(post, path = "/v1/session/challenge", request_body = ChallengeRequest,
    responses((status = 200, body = Challenge), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn challenge(
    State(app): State<Arc<App>>,
    Connected(connection): Connected,
    SmallBody(request): SmallBody<ChallengeRequest>,
) -> Reply<Challenge> {
    let nonce = blocking(&app, move |engine| connection.challenge(engine, &request)).await?;
    Ok(Json(Challenge { nonce: nonce.to_vec() }))
}

/// Complete a session: answer the challenge
#[utoipa::path(post, path = "/v1/session", request_body = SessionRequest,
    responses((status = 200, body = Session), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Connected(connection): Connected,
    SmallBody(request): SmallBody<SessionRequest>,
) -> Reply<Session> {
    Ok(Json(blocking(&app, move |engine| connection.answer(engine, &request)).await?))
}

/// The node's state, for the operator
#[utoipa::path(get, path = "/v1/status",
    responses((status = 200, body = Status), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn status(State(app): State<Arc<App>>, _: Operator) -> Reply<Status> {
    Ok(Json(blocking(&app, |engine| Ok(engine.status())).await?))
}

/// The sources of packets
#[utoipa::path(get, path = "/v1/sources",
    responses((status = 200, body = Sources), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn sources(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
) -> Reply<Sources> {
    let operator = caller.is_operator();
    Ok(Json(blocking(&app, move |engine| Ok(Sources { sources: engine.sources(operator) })).await?))
}

/// Revoke a credential or a key, for the operator
#[utoipa::path(post, path = "/v1/revocations", request_body = RevokeRequest,
    responses((status = 204), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    _: Operator,
    Body(request): Body<RevokeRequest>,
) -> Result<StatusCode, Refusal> {
    blocking(&app, move |engine| engine.revoke(&request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The modules of the caller; for the operator, all modules
#[utoipa::path(get, path = "/v1/modules",
    responses((status = 200, body = Modules), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
) -> Reply<Modules> {
    let owner = (!caller.is_operator()).then(|| caller.owner());
    Ok(Json(blocking(&app, move |engine| Ok(Modules { modules: engine.list(owner.as_ref()) })).await?))
}

/// Install a module
#[utoipa::path(post, path = "/v1/modules", request_body = InstallRequest,
    responses((status = 201, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn install(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Body(request): Body<InstallRequest>,
) -> Result<(StatusCode, Json<Module>), Refusal> {
    let shown: Presented = connection.proof(request.answer.as_ref())?;
    let module = compiling(&app, move |engine| engine.install(&caller.owner(), request, shown)).await?;
    Ok((StatusCode::CREATED, Json(module)))
}

/// One module
#[utoipa::path(get, path = "/v1/modules/{name}", params(("name" = String, Path), Whose),
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
    Name(name): Name,
    Params(whose): Params<Whose>,
) -> Reply<Module> {
    Ok(Json(
        blocking(&app, move |engine| engine.show(&caller.of(engine, whose.principal.as_deref())?, &name))
            .await?,
    ))
}

/// Change code, settings or narrowing of a module
#[utoipa::path(put, path = "/v1/modules/{name}", params(("name" = String, Path)), request_body = UpdateRequest,
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Name(name): Name,
    Body(request): Body<UpdateRequest>,
) -> Reply<Module> {
    // Code that was proved before needs no other proof.
    let shown = match (&request.answer, &request.wasm) {
        (None, None) => None,
        (answer, _) => connection.proof(answer.as_ref())?,
    };
    let change = move |engine: &Engine| engine.update(&caller.owner(), &name, request, shown);
    Ok(Json(compiling(&app, change).await?))
}

/// Give a module the credential of this session
#[utoipa::path(post, path = "/v1/modules/{name}/renew", params(("name" = String, Path)), request_body = RenewRequest,
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Name(name): Name,
    Body(request): Body<RenewRequest>,
) -> Reply<Module> {
    let shown = connection.proof(Some(&request.answer))?;
    let none =
        || Problem::new(Code::Invalid, "no credential was presented", "begin a session with the new one");
    let shown = shown.ok_or_else(none)?;
    let change = move |engine: &Engine| engine.renew(&caller.owner(), &name, request.revision, shown);
    Ok(Json(compiling(&app, change).await?))
}

/// Stop a module, which stays installed
#[utoipa::path(post, path = "/v1/modules/{name}/stop", params(("name" = String, Path), Change),
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn stop(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
    Name(name): Name,
    Params(change): Params<Change>,
) -> Reply<Module> {
    let done = move |engine: &Engine| engine.stop(&meant(&caller, engine, &change)?, &name, change.revision);
    Ok(Json(blocking(&app, done).await?))
}

/// Remove a module and its records
#[utoipa::path(delete, path = "/v1/modules/{name}", params(("name" = String, Path), Change),
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
    Name(name): Name,
    Params(change): Params<Change>,
) -> Reply<Module> {
    let done =
        move |engine: &Engine| engine.remove(&meant(&caller, engine, &change)?, &name, change.revision);
    Ok(Json(blocking(&app, done).await?))
}

/// The log of a module
#[utoipa::path(get, path = "/v1/modules/{name}/log", params(("name" = String, Path), Whose),
    responses((status = 200, body = Vec<LogLine>), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn log(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
    Name(name): Name,
    Params(whose): Params<Whose>,
) -> Reply<Vec<LogLine>> {
    Ok(Json(app.engine.log(&caller.of(&app.engine, whose.principal.as_deref())?, &name)?))
}
