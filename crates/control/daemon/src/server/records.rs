//! Streams the rows of a module's spool, from a cursor, in the format that the client asks for.

use super::App;
use super::extract::{Authenticated, Name, Params, Refusal, working};
use crate::engine::Engine;
use crate::identity::{Caller, Connection};
use crate::reach::Made;
use crate::spool::{Batch, Read, Spool};
use arrow_ipc::writer::StreamWriter;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use flame_api::{AccountingQuery, CURSOR, Code, Cursor, Encoding, Frame, LOST, Problem, RecordsQuery};
use flame_base::lock;
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Format, Sink};
use hyper::body::Frame as BodyFrame;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use utoipa::IntoResponses;
use utoipa::openapi::{self, ContentBuilder, RefOr, ResponseBuilder};

/// The number of parts of a reply that wait for a slow client. The client's spool keeps the rest.
const WAITING: usize = 2;

/// The time after which a stream is decided on again. It is also decided on when policy or configuration have
/// changed.
const AGAIN: Duration = Duration::from_millis(500);

/// The description of a reply with rows, for OpenAPI.
struct Rows;

impl IntoResponses for Rows {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let types = Encoding::ALL.map(Encoding::content_type);
        let rows = types
            .into_iter()
            .fold(ResponseBuilder::new(), |rows, kind| rows.content(kind, ContentBuilder::new().build()));
        BTreeMap::from([("200".to_owned(), rows.description("Rows in the format that was asked for").into())])
    }
}

/// The rows of a module
///
/// The reply begins at the cursor, or at the oldest row that is kept. Its header `flame-cursor` is the cursor
/// of its first row, and `flame-lost` the number of rows between the two that were dropped, or `unknown` if
/// the node was restarted meanwhile. It ends where rows are missing, or where the module was updated:
/// continue with another request.
#[utoipa::path(get, path = "/v1/modules/{name}/records", params(("name" = String, Path), RecordsQuery),
    responses(Rows, (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn records(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Name(name): Name,
    Params(query): Params<RecordsQuery>,
) -> Result<Response, Refusal> {
    let request = RowRequest { connection, of: Of::Module { name, principal: query.principal.clone() } };
    reply(&app, &caller, request, &query).await
}

/// The use of sessions and modules, per interval
///
/// A principal reads its own session, the operator all of them. The session's credential has to cover each
/// module that the principal has, or had when the rows were made. The reply has the form of a module's rows.
#[utoipa::path(get, path = "/v1/accounting", params(AccountingQuery),
    responses(Rows, (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(super) async fn accounting(
    State(app): State<Arc<App>>,
    Authenticated(caller, connection): Authenticated,
    Params(query): Params<AccountingQuery>,
) -> Result<Response, Refusal> {
    let AccountingQuery { cursor, format, follow } = query;
    let query = RecordsQuery { cursor, format, follow, principal: None };
    reply(&app, &caller, RowRequest { connection, of: Of::Accounting }, &query).await
}

/// Begins the reply with the rows of a spool.
async fn reply(
    app: &Arc<App>,
    caller: &Caller,
    request: RowRequest,
    query: &RecordsQuery,
) -> Result<Response, Refusal> {
    let authority = Authority {
        request: Arc::new(request),
        payer: caller.tenant(),
        version: app.engine.version(),
        decided: Instant::now(),
        made: None,
        app: app.clone(),
    };
    let request = authority.request.clone();
    let spool = working(app, authority.payer.as_deref(), move |engine| request.spool(engine, None)).await?;
    let invalid =
        |e: String| Problem::new(Code::Invalid, e, "leave out the cursor to begin with the oldest row");
    let cursor = query.cursor.as_deref().map(str::parse::<Cursor>).transpose().map_err(invalid)?;
    let (mut row, mut lost) = match cursor {
        None => (spool.filled().first, "0".to_owned()),
        Some(cursor) if cursor.epoch == spool.epoch => (cursor.row.min(spool.filled().next), "0".to_owned()),
        // Rows of a node that was restarted are gone.
        Some(_) => (spool.filled().first, "unknown".to_owned()),
    };
    let first = match spool.read(row) {
        Read::Batch { lost: missing, batch } => {
            if lost == "0" {
                lost = missing.to_string();
            }
            row = batch.first;
            Some(batch)
        }
        _ => None,
    };
    let header = Cursor { epoch: spool.epoch, row }.to_string();
    let encoder = match &first {
        Some(batch) => Some(Encoder::new(query.format, batch)?),
        None => None,
    };
    let (sender, receiver) = mpsc::channel(WAITING);
    let stream = Stream {
        spool,
        row,
        format: query.format,
        follow: query.follow,
        ending: app.ending.clone(),
        authority,
    };
    tokio::spawn(stream.run(encoder, sender));
    let content = HeaderValue::from_static(query.format.content_type());
    let mut response = Response::new(Body::new(Received(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content);
    for (name, value) in [(CURSOR, header), (LOST, lost)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// A body whose parts arrive through a channel.
struct Received(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Received {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|part| part.map(|bytes| Ok(BodyFrame::data(bytes))))
    }
}

/// The right to read rows.
struct Authority {
    app: Arc<App>,
    request: Arc<RowRequest>,
    payer: Option<String>,
    /// The version of policy and configuration of the last decision, and its time.
    version: u64,
    decided: Instant,
    /// The rights under which the rows were made that were decided on last.
    made: Option<Made>,
}

/// A request for rows, and the connection that it came from.
struct RowRequest {
    connection: Arc<Connection>,
    of: Of,
}

/// The rows that a request is for.
enum Of {
    Module {
        name: String,
        principal: Option<String>,
    },
    /// The accounting of the caller's session.
    Accounting,
}

impl RowRequest {
    /// Returns the rows, if the connection may read them now, and those that were made under these rights.
    fn spool(&self, engine: &Engine, made: Option<&Made>) -> Result<Arc<Spool>, Problem> {
        let caller = self.connection.caller(engine)?;
        engine.permit_made(&caller, made.into_iter().flat_map(|made| made.iter()).map(|reach| &**reach))?;
        match &self.of {
            Of::Module { name, principal } => {
                let permit = engine.permit(&caller, principal.as_deref(), name, true)?;
                engine.spool(&permit.owner, name)
            }
            Of::Accounting => engine.permit_all(&caller),
        }
    }
}

impl Authority {
    /// Returns whether the rows may still be read, and the next ones, made under these rights. It is decided
    /// again after its time, after changes, and for other rights.
    async fn holds(&mut self, spool: &Arc<Spool>, made: Option<Made>) -> bool {
        let version = self.app.engine.version();
        let decided = self.made.as_ref();
        let is_known = made.as_ref().is_none_or(|made| decided.is_some_and(|of| Arc::ptr_eq(of, made)));
        if version == self.version && self.decided.elapsed() < AGAIN && is_known {
            return true;
        }
        let (request, of) = (self.request.clone(), made.clone());
        let work = move |engine: &Engine| request.spool(engine, of.as_ref());
        let now = working(&self.app, self.payer.as_deref(), work).await;
        (self.version, self.decided) = (version, Instant::now());
        self.made = made.or_else(|| self.made.take());
        match now {
            Ok(now) => Arc::ptr_eq(&now, spool),
            // A module that was removed has a last few rows, which could be read when they were made.
            Err(Refusal(problem)) => problem.code == Code::NotFound && spool.is_closed(),
        }
    }
}

struct Stream {
    spool: Arc<Spool>,
    row: u64,
    format: Encoding,
    follow: bool,
    ending: watch::Receiver<bool>,
    authority: Authority,
}

impl Stream {
    /// Sends rows until there are no more, or the client is gone.
    async fn run(mut self, mut encoder: Option<Encoder>, sender: mpsc::Sender<Bytes>) {
        let mut changed = self.spool.subscribe();
        loop {
            changed.borrow_and_update();
            let next = self.spool.read(self.row);
            let made = if let Read::Batch { batch, .. } = &next { Some(batch.made.clone()) } else { None };
            if !self.authority.holds(&self.spool, made).await {
                break;
            }
            match next {
                Read::Batch { lost, batch } => {
                    if lost > 0 {
                        break;
                    }
                    let encoder = match &mut encoder {
                        Some(encoder) => encoder,
                        none => match Encoder::new(self.format, &batch) {
                            Ok(new) => none.insert(new),
                            Err(_) => return,
                        },
                    };
                    if !encoder.fits(&batch) {
                        break;
                    }
                    self.row = batch.next();
                    let Ok(bytes) = encoder.encode(&batch) else { return };
                    let sent = bytes.len() as u64;
                    if !bytes.is_empty() && sender.send(bytes).await.is_err() {
                        return;
                    }
                    self.spool.usage.add_sent(sent);
                }
                Read::Nothing if self.follow && !*self.ending.borrow() => {
                    // At the end of the node its spools are closed, but not before the last rows arrived.
                    tokio::select! {
                        _ = changed.changed() => {}
                        () = tokio::time::sleep(AGAIN) => {}
                        () = sender.closed() => return,
                    }
                }
                Read::Nothing | Read::End => break,
            }
        }
        if let Some(bytes) = encoder.and_then(Encoder::finish) {
            let _ = sender.send(bytes).await;
        }
    }
}

/// Memory that a sink writes to.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *lock(&self.0)).into()
    }
}

/// Turns batches of one version of a module into bytes.
struct Encoder {
    entry: Arc<CatalogEntry>,
    to: To,
}

enum To {
    Sink { sink: Box<dyn Sink>, written: Shared },
    Frames { has_manifest: bool },
}

impl Encoder {
    fn new(format: Encoding, batch: &Batch) -> Result<Self, Problem> {
        let format = match format {
            Encoding::Arrow => {
                return Ok(Self { entry: batch.entry.clone(), to: To::Frames { has_manifest: false } });
            }
            Encoding::Json => Format::Json,
            Encoding::Csv => Format::Csv,
            Encoding::Eve => Format::Eve,
            Encoding::Table => Format::Table,
        };
        let written = Shared::default();
        let catalog = Catalog { modules: vec![(*batch.entry).clone()] };
        let options =
            flame_record::Options { guard_formulas: Some(false), ..flame_record::Options::default() };
        let sink =
            flame_record::open_writer(format, Box::new(written.clone()), "the reply", &catalog, &options);
        let sink =
            sink.map_err(|e| Problem::new(Code::Invalid, e.to_string(), "choose format=json or arrow"))?;
        Ok(Self { entry: batch.entry.clone(), to: To::Sink { sink, written } })
    }

    /// Returns whether the batch is of the same version of the module.
    fn fits(&self, batch: &Batch) -> bool {
        Arc::ptr_eq(&self.entry, &batch.entry)
    }

    fn encode(&mut self, batch: &Batch) -> Result<Bytes, ()> {
        match &mut self.to {
            To::Sink { sink, written } => {
                sink.write(&self.entry.name, batch.table(), &batch.rows).map_err(drop)?;
                sink.flush().map_err(drop)?;
                Ok(written.take())
            }
            To::Frames { has_manifest } => {
                let manifest =
                    (!std::mem::replace(has_manifest, true)).then(|| self.entry.manifest.to_toml());
                let frame = Frame {
                    first: batch.first,
                    table: batch.table().name.clone(),
                    manifest: manifest.transpose().map_err(drop)?,
                    hash: flame_trust::hex(&self.entry.hash),
                };
                let head = serde_json::to_vec(&frame).map_err(drop)?;
                let mut body = Vec::new();
                let mut writer = StreamWriter::try_new(&mut body, &batch.rows.schema()).map_err(drop)?;
                writer.write(&batch.rows).and_then(|()| writer.finish()).map_err(drop)?;
                drop(writer);
                let length = |part: &[u8]| (part.len() as u32).to_be_bytes();
                Ok([&length(&head)[..], &head, &length(&body), &body].concat().into())
            }
        }
    }

    fn finish(self) -> Option<Bytes> {
        let To::Sink { sink, written } = self.to else { return None };
        sink.finish().ok()?;
        Some(written.take()).filter(|bytes| !bytes.is_empty())
    }
}
