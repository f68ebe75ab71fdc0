use crate::client::{Client, NodeArgs, module_path, quoted};
use crate::console::complain;
use crate::error::Error;
use crate::exit::Status;
use crate::format::FormatArg;
use crate::signals::Signals;
use crate::table_args::TableArgs;
use arrow_ipc::reader::StreamReader;
use bytes::{Buf, BytesMut};
use clap::Args;
use flame_abi::manifest::Manifest;
use flame_api::{CURSOR, Cursor, Frame, LOST, MAX_FRAME, Problem};
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{RecordBatch, Sink};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait before a check for Ctrl-C.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// The time between two attempts to reach the node again.
const RETRY: Duration = Duration::from_secs(1);

/// Print the records of an installed module
///
/// The node keeps the latest rows of each module. Every row has a place, the cursor: give the one that was
/// printed at the end to continue there. Rows that were dropped meanwhile are counted.
#[derive(Args)]
pub struct Records {
    /// Name of the module on the node
    #[arg(required_unless_present = "accounting")]
    name: Option<String>,

    /// Instead of a module's records, print the use of processor, memory, blocks and records: per interval,
    /// of each of your modules and of your session; for the operator, of all
    #[arg(long, conflicts_with_all = ["name", "principal"])]
    accounting: bool,

    /// Principal of the module, for the operator
    #[arg(long)]
    principal: Option<String>,

    /// Wait for further records until Ctrl-C, also across broken connections and restarts of the node
    #[arg(long)]
    follow: bool,

    /// Place to begin at, as printed at the end [default: the oldest row that is kept]
    #[arg(long)]
    cursor: Option<Cursor>,

    /// Format of the records [default: by the extension of -o, or else table]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,

    /// Tables to print, as for `flame run` [default: all]
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,

    #[command(flatten)]
    table_args: TableArgs,

    /// Output file or folder [default: standard output]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Print nothing but records and errors
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    node: NodeArgs,
}

/// The reason why rows could not be written here. To ask the node again would not help.
#[derive(Debug)]
struct Unwritten(Error);

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unwritten {}

/// The outcome of one reply.
enum Ended {
    /// All of it was read.
    Whole,
    Broken(Error),
    Interrupted,
}

impl Records {
    pub fn run(self) -> Result<Status, Error> {
        let signals = Signals::new()?;
        let mut output = Output { args: &self, sink: None };
        let mut cursor = self.cursor;
        let read = self.read(&mut cursor, &mut output, signals.stop());
        let is_unwritten = read.as_ref().is_err_and(|e| e.is::<Unwritten>());
        // What was read before an error stays, unless the output itself failed.
        let finished = if is_unwritten { Ok(()) } else { output.finish() };
        if let Some(cursor) = cursor
            && (read.is_ok() || self.cursor != Some(cursor))
        {
            self.note(&format!("next: --cursor {cursor}"));
        }
        read?;
        finished?;
        Ok(Status::Done)
    }

    /// Reads replies from the cursor on, until there are no more.
    fn read(
        &self,
        cursor: &mut Option<Cursor>,
        output: &mut Output<'_>,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let mut waiting = false;
        loop {
            let before = *cursor;
            let ended = match self.one(cursor, output, stop) {
                Err(e) if e.is::<Unwritten>() => return Err(e),
                Err(e) if waiting && e.downcast_ref::<Problem>().is_none() => Ended::Broken(e),
                Err(e) if cursor.is_some() && self.follow && e.downcast_ref::<Problem>().is_none() => {
                    Ended::Broken(e)
                }
                Err(e) if e.downcast_ref::<Problem>().is_some_and(is_gone) && *cursor != self.cursor => {
                    self.note(&format!("{e}; its records end here"));
                    return Ok(());
                }
                Err(e) => return Err(e),
                Ok(ended) => ended,
            };
            match ended {
                Ended::Interrupted => return Ok(()),
                Ended::Broken(e) if self.follow => {
                    if !waiting {
                        self.note(&format!("{e}; the node is asked again every second"));
                    }
                    waiting = true;
                    std::thread::sleep(RETRY);
                }
                Ended::Broken(e) => return Err(e),
                // A reply ends where the module was updated, and without --follow at the latest row.
                Ended::Whole if self.follow => waiting = false,
                Ended::Whole if *cursor == before => return Ok(()),
                Ended::Whole => waiting = false,
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            complain!("flame: {text}");
        }
    }

    /// Reads one reply from the cursor on.
    fn one(
        &self,
        cursor: &mut Option<Cursor>,
        output: &mut Output<'_>,
        stop: &AtomicBool,
    ) -> Result<Ended, Error> {
        let mut client = Client::open(&self.node)?;
        let mut path = match &self.name {
            Some(name) => module_path(name, "/records", self.principal.as_deref(), None),
            None => "/v1/accounting".to_owned(),
        };
        path += if path.contains('?') { "&" } else { "?" };
        path += &format!("format=arrow&follow={}", self.follow);
        if let Some(cursor) = cursor {
            path += &format!("&cursor={}", quoted(&cursor.to_string()));
        }
        let response = client.stream(&path)?;
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let first: Cursor = header(CURSOR).ok_or("the node's reply has no cursor")?.parse()?;
        match header(LOST).as_deref() {
            None | Some("0") => {}
            Some("unknown") => self.note(
                "the node was restarted, or the module was installed anew: an unknown number of rows was lost",
            ),
            Some(n) => self.note(&format!("{n} rows were dropped by the node before they were read")),
        }
        *cursor = Some(first);
        self.frames(&client, response, cursor, output, stop)
    }

    fn frames(
        &self,
        client: &Client,
        response: Response<Incoming>,
        cursor: &mut Option<Cursor>,
        output: &mut Output<'_>,
        stop: &AtomicBool,
    ) -> Result<Ended, Error> {
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        loop {
            while let Some((frame, batch)) = take(&mut bytes)? {
                let next = frame.first + batch.num_rows() as u64;
                output.write(&frame, &batch).map_err(Unwritten)?;
                if let Some(cursor) = cursor {
                    cursor.row = next;
                }
            }
            if stop.load(Ordering::Relaxed) || output.closed() {
                return Ok(Ended::Interrupted);
            }
            let part =
                client.runtime.block_on(async { tokio::time::timeout(STOP_CHECK, body.frame()).await });
            match part {
                Err(_) => {}
                Ok(None) if bytes.is_empty() => return Ok(Ended::Whole),
                Ok(None) => return Ok(Ended::Broken("the node's reply is cut short".into())),
                Ok(Some(Err(e))) => return Ok(Ended::Broken(format!("the connection broke: {e}").into())),
                Ok(Some(Ok(frame))) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            }
        }
    }
}

fn is_gone(problem: &Problem) -> bool {
    problem.code == flame_api::Code::NotFound
}

/// Takes a whole frame from the front of `bytes`, if there is one.
fn take(bytes: &mut BytesMut) -> Result<Option<(Frame, RecordBatch)>, Error> {
    let length = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let Some(head) = length(0) else { return Ok(None) };
    if head > MAX_FRAME {
        return Err(
            format!("the node's reply has a frame of {head} bytes, at most {MAX_FRAME} are read").into()
        );
    }
    let Some(body) = length(4 + head) else { return Ok(None) };
    if body > MAX_FRAME {
        return Err(
            format!("the node's reply has a batch of {body} bytes, at most {MAX_FRAME} are read").into()
        );
    }
    let whole = 8 + head + body;
    if bytes.len() < whole {
        return Ok(None);
    }
    let frame: Frame = serde_json::from_slice(&bytes[4..4 + head])?;
    let mut reader = StreamReader::try_new(&bytes[8 + head..whole], None)?;
    let batch = reader.next().ok_or("the node's reply has an empty frame")??;
    bytes.advance(whole);
    Ok(Some((frame, batch)))
}

/// The output of records, which is opened with the first rows.
struct Output<'a> {
    args: &'a Records,
    sink: Option<(Box<dyn Sink>, CatalogEntry)>,
}

impl Output<'_> {
    fn write(&mut self, frame: &Frame, batch: &RecordBatch) -> Result<(), Error> {
        if let Some(manifest) = &frame.manifest {
            let manifest = Arc::new(Manifest::from_toml(manifest)?);
            let mut hash = [0; 32];
            for (byte, at) in hash.iter_mut().zip((0..frame.hash.len()).step_by(2)) {
                *byte = frame
                    .hash
                    .get(at..at + 2)
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .unwrap_or(0);
            }
            let name = self.args.name.clone().unwrap_or_else(|| manifest.name.clone());
            let entry = CatalogEntry { name, hash, manifest };
            let same =
                self.sink.as_ref().is_some_and(|(_, old)| old.manifest.tables == entry.manifest.tables);
            if !same {
                self.reopen(entry)?;
            }
        }
        let Some((sink, entry)) = &mut self.sink else {
            return Err("the node's reply has no manifest".into());
        };
        let table = entry.manifest.tables.iter().find(|table| table.name == frame.table);
        let table = table.ok_or_else(|| format!("the manifest has no table {:?}", frame.table))?;
        // The module has another name in the node's plan.
        let schema = flame_record::rows::arrow_schema(entry, table);
        let batch = RecordBatch::try_new(schema, batch.columns().to_vec())?;
        sink.write(&entry.name, table, &batch)?;
        if self.args.follow {
            sink.flush()?;
        }
        Ok(())
    }

    fn reopen(&mut self, entry: CatalogEntry) -> Result<(), Error> {
        if let Some((sink, _)) = self.sink.take() {
            sink.finish()?;
            if self.args.output.is_some() {
                return Err(
                    "the module was updated and has other tables: continue in another file, from the cursor"
                        .into(),
                );
            }
        }
        let tables = self.args.tables.clone();
        let options =
            flame_record::Options { live: self.args.follow, tables, ..flame_record::Options::default() };
        let output = self.args.output.as_deref();
        let format = crate::format::of(self.args.format, output)?;
        let options = self.args.table_args.apply(options, output);
        let catalog = Catalog { modules: vec![entry.clone()] };
        if let Some(left_out) = flame_record::left_out(format, output, &catalog, &options)
            && !self.args.quiet
        {
            crate::command::run::left_out_note(&left_out);
        }
        let sink = flame_record::open(format, output, &catalog, &options)?;
        self.sink = Some((sink, entry));
        Ok(())
    }

    fn closed(&self) -> bool {
        self.sink.as_ref().is_some_and(|(sink, _)| sink.closed())
    }

    fn finish(self) -> Result<(), Error> {
        self.sink.map_or(Ok(()), |(sink, _)| Ok(sink.finish()?))
    }
}
