//! The handlers of requests about the node, its sessions and its modules.

use super::App;
use super::extract::{
    Authenticated, Body, Connected, Json, Name, Operator, Params, Refusal, Reserved, SmallBody, in_place,
    working,
};
use crate::change::Presented;
use crate::engine::Engine;
use crate::identity::{Caller, operator};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flame_api::{
    Capacity, Challenge, ChallengeRequest, Change, Code, Credentials, Health, InstallRequest, LogLine,
    Module, Modules, Problem, Question, RenewRequest, RevokeRequest, Security, Served, Session,
    SessionRequest, Sources, Status, UpdateRequest, Whose,
};
use std::sync::Arc;

type Reply<T> = Result<Json<T>, Refusal>;

/// Does `work` for a caller.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    caller: &Caller,
    work: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Refusal> {
    working(app, caller.tenant().as_deref(), work).await
}

/// Makes a change that compiles a module. Few of them are made at the same time. The body is charged until
/// the change has ended.
async fn compiling<T: Send + 'static>(
    app: &Arc<App>,
    caller: &Caller,
    body: Reserved,
    change: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Refusal> {
    let change = move |engine: &Engine| {
        let done = change(engine);
        drop(body);
        done
    };
    in_place(app, &app.compiling, caller.tenant().as_deref(), change).await
}

/// The health of the node
#[utoipa::path(get, path = "/v1/health", responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(super) async fn health(State(app): State<Arc<App>>, Connected(connection): Connected) -> Response {
    let mut health = app.engine.health();
    if connection.payer(&app.engine).is_some() {
        // They name files and modules of others.
        health.reasons.clear();
    }
    let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
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
    SmallBody(request, body): SmallBody<ChallengeRequest>,
) -> Reply<Challenge> {
    let payer = connection.payer(&app.engine);
    let work = move |engine: &Engine| {
        let _body = body;
        connection.challenge(engine, &request)
    };
    Ok(Json(working(&app, payer.as_deref(), work).await?))
}

/// Complete a session: answer the challenge
#[utoipa::path(post, path = "/v1/session", request_body = SessionRequest,
    responses((status = 200, body = Session), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Connected(connection): Connected,
    SmallBody(request, body): SmallBody<SessionRequest>,
) -> Reply<Session> {
    let payer = connection.payer(&app.engine);
    let places = app.sessions.clone();
    let work = move |engine: &Engine| {
        let _body = body;
        let each = (engine.config().limits.connections / 4).max(1);
        let place = |tenant: &str| {
            places.take(tenant, 1, each, usize::MAX).ok_or_else(|| {
                Problem::new(
                    Code::TooMany,
                    format!("this principal has {each} connections already"),
                    "close some, or ask the operator for a higher limit (connections in [limits])",
                )
            })
        };
        connection.answer(engine, &request, place)
    };
    Ok(Json(working(&app, payer.as_deref(), work).await?))
}

/// The node's state, for the operator
#[utoipa::path(get, path = "/v1/status",
    responses((status = 200, body = Status), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn status(State(app): State<Arc<App>>, _: Operator) -> Reply<Status> {
    Ok(Json(blocking(&app, &Caller::Operator, |engine| Ok(engine.status())).await?))
}

/// The rights of the node's processes, for the operator
#[utoipa::path(get, path = "/v1/status/security",
    responses((status = 200, body = Security), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn security(State(app): State<Arc<App>>, _: Operator) -> Reply<Security> {
    let unreadable = |e: std::io::Error| {
        Problem::new(Code::Unavailable, format!("/proc: {e}"), "mount /proc where the node runs")
    };
    Ok(Json(blocking(&app, &Caller::Operator, move |engine| engine.security().map_err(unreadable)).await?))
}

/// The credentials under which modules are installed, for the operator
#[utoipa::path(get, path = "/v1/credentials",
    responses((status = 200, body = Credentials), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn credentials(State(app): State<Arc<App>>, _: Operator) -> Reply<Credentials> {
    Ok(Json(blocking(&app, &Caller::Operator, |engine| Ok(engine.credentials())).await?))
}

/// The sources of packets
#[utoipa::path(get, path = "/v1/sources",
    responses((status = 200, body = Sources), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn sources(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
) -> Reply<Sources> {
    let audience = caller.audience();
    let work = move |engine: &Engine| Ok(Sources { sources: engine.sources(audience) });
    Ok(Json(blocking(&app, &caller, work).await?))
}

/// The resources that can be reserved, and the reservations of this session
#[utoipa::path(get, path = "/v1/capacity",
    responses((status = 200, body = Capacity), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn capacity(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
) -> Reply<Capacity> {
    let owner = caller.owner();
    Ok(Json(blocking(&app, &caller, move |engine| Ok(engine.capacity(&owner))).await?))
}

/// Revoke a credential or a key, for the operator
#[utoipa::path(post, path = "/v1/revocations", request_body = RevokeRequest,
    responses((status = 204), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    _: Operator,
    Body(request, _): Body<RevokeRequest>,
) -> Result<StatusCode, Refusal> {
    blocking(&app, &Caller::Operator, move |engine| engine.revoke(&request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Withdraw a revocation that was made here, for the operator
#[utoipa::path(delete, path = "/v1/revocations", request_body = RevokeRequest,
    responses((status = 204), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn withdraw(
    State(app): State<Arc<App>>,
    _: Operator,
    Body(request, _): Body<RevokeRequest>,
) -> Result<StatusCode, Refusal> {
    blocking(&app, &Caller::Operator, move |engine| engine.withdraw(&request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The modules of the caller; for the operator, all modules
#[utoipa::path(get, path = "/v1/modules",
    responses((status = 200, body = Modules), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
) -> Reply<Modules> {
    let of_work = caller.clone();
    let work = move |engine: &Engine| {
        let permitted = engine.permitted(&of_work);
        let mut modules = engine.list(permitted.as_deref(), of_work.audience());
        if permitted.is_some() {
            modules.extend(engine.outlines(&of_work));
            modules.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(Modules { modules })
    };
    Ok(Json(blocking(&app, &caller, work).await?))
}

/// Install a module
#[utoipa::path(post, path = "/v1/modules", request_body = InstallRequest,
    responses((status = 201, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn install(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Body(request, body): Body<InstallRequest>,
) -> Result<(StatusCode, Json<Module>), Refusal> {
    let shown: Presented = connection.proof(request.answer.as_ref())?;
    let owner = caller.owner();
    let change = move |engine: &Engine| engine.install(&owner, request, shown);
    let module = compiling(&app, &caller, body, change).await?;
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
    let of_work = caller.clone();
    let work = move |engine: &Engine| {
        let permit = engine.permit_end(&of_work, whose.principal.as_deref(), &name)?;
        Ok(permit.shown(engine.show_to(&permit.owner, &name, of_work.audience())?))
    };
    Ok(Json(blocking(&app, &caller, work).await?))
}

/// Change code, settings or narrowing of a module
#[utoipa::path(put, path = "/v1/modules/{name}", params(("name" = String, Path)), request_body = UpdateRequest,
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Name(name): Name,
    Body(mut request, body): Body<UpdateRequest>,
) -> Reply<Module> {
    // Code that was proved before needs no other proof.
    let shown = match (&request.answer, &request.wasm) {
        (None, None) => None,
        (answer, _) => connection.proof(answer.as_ref())?,
    };
    let of_work = caller.clone();
    let change = move |engine: &Engine| {
        let permit = engine.permit(&of_work, None, &name, false)?;
        request.revision = permit.revision(request.revision);
        engine.update(&permit.owner, &name, request, shown, of_work.session())
    };
    Ok(Json(compiling(&app, &caller, body, change).await?))
}

/// Give a module the credential of this session
#[utoipa::path(post, path = "/v1/modules/{name}/renew", params(("name" = String, Path)), request_body = RenewRequest,
    responses((status = 200, body = Module), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Name(name): Name,
    Body(mut request, body): Body<RenewRequest>,
) -> Reply<Module> {
    let shown = connection.proof(Some(&request.answer))?;
    let none =
        || Problem::new(Code::Invalid, "no credential was presented", "begin a session with the new one");
    let shown = shown.ok_or_else(none)?;
    let of_work = caller.clone();
    let change = move |engine: &Engine| {
        let _body = body;
        let permit = engine.permit(&of_work, None, &name, false)?;
        request.revision = permit.revision(request.revision);
        engine.renew(&permit.owner, &name, &request, shown)
    };
    // Not behind modules that are compiled: the credential may end meanwhile.
    Ok(Json(in_place(&app, &app.renewing, caller.tenant().as_deref(), change).await?))
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
    let of_work = caller.clone();
    let done = move |engine: &Engine| {
        let permit = engine.permit_end(&of_work, change.principal.as_deref(), &name)?;
        Ok(permit.shown(engine.stop(&permit.owner, &name, permit.revision(change.revision))?))
    };
    Ok(Json(blocking(&app, &caller, done).await?))
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
    let of_work = caller.clone();
    let done = move |engine: &Engine| {
        let permit = engine.permit_end(&of_work, change.principal.as_deref(), &name)?;
        Ok(permit.shown(engine.remove(&permit.owner, &name, permit.revision(change.revision))?))
    };
    Ok(Json(blocking(&app, &caller, done).await?))
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
    let of_work = caller.clone();
    let work = move |engine: &Engine| {
        let permit = engine.permit_end(&of_work, whose.principal.as_deref(), &name)?;
        engine.log(&permit.owner, &name, &of_work)
    };
    Ok(Json(blocking(&app, &caller, work).await?))
}

/// Ask a service of a module
#[utoipa::path(post, path = "/v1/modules/{name}/ask", params(("name" = String, Path), Whose), request_body = Question,
    responses((status = 200, body = Served), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn ask(
    State(app): State<Arc<App>>,
    Authenticated(caller, _): Authenticated,
    Name(name): Name,
    Params(whose): Params<Whose>,
    Body(question, body): Body<Question>,
) -> Reply<Served> {
    let of_work = caller.clone();
    let work = move |engine: &Engine| {
        let _body = body;
        let permit = engine.permit(&of_work, whose.principal.as_deref(), &name, false)?;
        engine.ask(&permit.owner, &name, &question)
    };
    Ok(Json(blocking(&app, &caller, work).await?))
}
