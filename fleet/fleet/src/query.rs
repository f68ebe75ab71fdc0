//! `flame query`: SQL over an archive, of all of it, or of what a credential may see.
//!
//! | limit of a query | unit | at it | not covered |
//! | --- | --- | --- | --- |
//! | `--memory`; under a credential at most [`MEMORY`] | bytes that operators and views hold | the query fails | the result before it is written, pages of files in use, what a function of SQL makes |
//! | under a credential [`DATA`] | bytes of the process for data | the process is aborted, and the audit log has the entry that it began | |
//! | `--time`; under a credential at most [`LONGEST`] | time, looked at between two batches | the query fails | opening the archive's manifest, writing the result |
//! | spilled rows | under a credential none, otherwise files of the engine in the folder of temporary files | the query fails | |

use crate::config::size;
use crate::holder::Holder;
use crate::output::{Format, write};
use crate::store::Store;
use crate::tables::{losses, provider, tables};
use crate::view::View;
use crate::{Error, tables as archive};
use clap::Args;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider as _, MemoryCatalogProvider, TableProvider};
use datafusion::dataframe::DataFrame;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use flame_fleet_control::Seconds;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of the catalog with a holder's own tables, and with tables of the operator that it is shown.
const ARCHIVE: &str = "archive";
const SHOWN: &str = "shown";
/// The schema of what is about the archive itself.
const FLEET: &str = "fleet";
/// The most bytes of memory of a query under a credential, of all data of its process, and its longest time.
pub const MEMORY: u64 = 1 << 30;
pub const DATA: u64 = 2 * MEMORY;
pub const LONGEST: Duration = Duration::from_secs(600);
/// The outcome in the audit log of a query that has none yet.
const BEGINS: &str = "begins";
/// The time between two notes of a query that runs.
const NOTE: Duration = Duration::from_secs(5);

/// Query the archive of a fleet by SQL
///
/// Each table of a module is MODULE.TABLE, and has the columns node and principal besides its own. What was
/// lost on the way is in fleet.losses. SHOW TABLES lists the tables. Under a credential, these are the tables
/// of its principal; tables of the operator that its role may see are shown.MODULE.TABLE.
#[derive(Args)]
pub struct Query {
    /// The statement, as in "SELECT node, count(*) FROM flow.flows GROUP BY node"
    sql: String,

    #[command(flatten)]
    access: Access,
}

/// Who reads which archive, and the form of the result.
#[derive(Args)]
pub struct Access {
    /// The folder of the archive
    #[arg(short, long, value_name = "FOLDER", env = "FLAME_ARCHIVE")]
    archive: PathBuf,

    /// The policy under which a credential is accepted
    #[arg(long, value_name = "FILE", requires = "credential")]
    policy: Option<PathBuf>,

    /// The credential whose holder queries; it sees its own rows, and what the policy shows to its role
    #[arg(long, value_name = "FILE", requires_all = ["policy", "identity"])]
    credential: Option<PathBuf>,

    /// Secret key of the credential's holder; - reads it from standard input
    #[arg(long, value_name = "FILE", requires = "credential")]
    identity: Option<PathBuf>,

    /// The most memory of the query, as 4GiB; under a credential at most 1GiB, which it is there without this
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,

    /// The longest time of the query, as 90s; under a credential at most 10m, which it is there without this
    #[arg(long, value_name = "TIME")]
    time: Option<Seconds>,

    /// The form of the result
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// The file to write; needed for Parquet
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Query {
    pub fn run(self) -> Result<(), Error> {
        self.access.write(&self.sql, async |context| {
            let frame = ask(&context, &self.sql).await?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            Ok((schema, frame.collect().await?))
        })
    }
}

impl Access {
    /// Returns the holder of the credential, if one is stated.
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        match (&self.policy, &self.credential, &self.identity) {
            (Some(policy), Some(credential), Some(identity)) => {
                Ok(Some(Holder::open(policy, credential, identity, now())?))
            }
            _ => Ok(None),
        }
    }

    /// Writes the result of a query in a session of its own. Under a credential, the audit log has the query
    /// before it runs, and its outcome before its result is written.
    pub fn write(
        &self,
        text: &str,
        query: impl AsyncFnOnce(SessionContext) -> Result<(SchemaRef, Vec<RecordBatch>), Error>,
    ) -> Result<(), Error> {
        let holder = self.holder()?;
        if let Some(holder) = &holder {
            // A process that is aborted leaves this one.
            holder.audit(text, BEGINS)?;
        }
        let done = self.read(holder.as_ref(), query);
        if let Some(holder) = &holder {
            let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            let outcome = match &done {
                Ok((_, batches)) => format!("{} rows", rows(batches)),
                Err(e) => format!("error: {e}"),
            };
            holder.audit(text, &outcome)?;
        }
        let (schema, batches) = done?;
        self.show(&schema, &batches)
    }

    /// Returns the result of a query in a session of its own.
    pub fn read<T>(
        &self,
        holder: Option<&Holder>,
        query: impl AsyncFnOnce(SessionContext) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut memory, mut longest) = (self.memory, self.time.map(|time| Duration::from_secs(time.0)));
        if holder.is_some() {
            memory = Some(memory.map_or(MEMORY, |memory| memory.min(MEMORY)));
            longest = Some(longest.map_or(LONGEST, |longest| longest.min(LONGEST)));
            // The account below is of operators: `repeat` makes gigabytes that are in none.
            flame_files::limit_data(DATA)?;
        }
        let pool = pool(memory);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            let store = Store::open(&self.archive, false)?;
            let context = match holder {
                Some(holder) => session_of(&store, holder, &pool).await?,
                None => session(&store, &pool).await?,
            };
            bounded(query(context), longest, NOTE, &*pool).await
        });
        // What was ended may still compute a batch.
        runtime.shutdown_background();
        done
    }

    /// Writes a result in the form that was asked for.
    pub fn show(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<(), Error> {
        write(self.format, self.output.as_deref(), schema, batches)
    }
}

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn memory(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| format!("{text:?}: expected a size as in 4GiB"))
}

/// Returns the account of a query's memory.
pub fn pool(bound: Option<u64>) -> Arc<dyn MemoryPool> {
    match bound {
        Some(bound) => Arc::new(GreedyMemoryPool::new(usize::try_from(bound).unwrap_or(usize::MAX))),
        None => Arc::new(UnboundedMemoryPool::default()),
    }
}

/// Waits for a query up to its longest time. Every `note`, a line on standard error states that it runs.
async fn bounded<T>(
    query: impl Future<Output = Result<T, Error>>,
    longest: Option<Duration>,
    note: Duration,
    pool: &dyn MemoryPool,
) -> Result<T, Error> {
    let mut query = std::pin::pin!(query);
    let mut waited = Duration::ZERO;
    loop {
        let next = longest.map_or(note, |longest| note.min(longest.saturating_sub(waited)));
        match tokio::time::timeout(next, query.as_mut()).await {
            Ok(done) => return done,
            Err(_) => waited += next,
        }
        if longest.is_some_and(|longest| waited >= longest) {
            return Err(format!(
                "the query had no result after {waited:?}, expected one within that (--time, under a \
                 credential at most {LONGEST:?}): ask for less, by node or by time"
            )
            .into());
        }
        let held = pool.reserved() >> 20;
        eprintln!("flame: note: the query has run for {} s, and holds {held} MiB", waited.as_secs());
    }
}

/// Plans a statement that changes nothing.
pub async fn ask(context: &SessionContext, sql: &str) -> Result<DataFrame, Error> {
    let only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    Ok(context.sql_with_options(sql, only).await?)
}

fn config() -> SessionConfig {
    SessionConfig::new()
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(ARCHIVE, FLEET)
}

/// Makes a session over what the archive holds now.
pub async fn session(store: &Store, pool: &Arc<dyn MemoryPool>) -> Result<SessionContext, Error> {
    let state = store.load().await?;
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc()?;
    let context = SessionContext::new_with_config_rt(config(), runtime);
    context.register_object_store(&archive::URL.parse()?, store.objects.clone());
    let catalog = Arc::new(MemoryCatalogProvider::new());
    for (module, tables) in tables(store, state.files.iter()).await? {
        let tables = tables.into_iter().map(|(name, table)| (name, table as Arc<dyn TableProvider>));
        catalog.register_schema(&module, provider(tables)?)?;
    }
    let own: Arc<dyn TableProvider> = Arc::new(losses(&state, |_| true)?);
    catalog.register_schema(FLEET, provider([("losses".to_owned(), own)])?)?;
    context.register_catalog(ARCHIVE, catalog);
    Ok(context)
}

/// Makes a session over one table of a module.
pub fn session_over(
    module: &str,
    table: (&str, Arc<dyn TableProvider>),
    pool: &Arc<dyn MemoryPool>,
) -> Result<SessionContext, Error> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc()?;
    let context = SessionContext::new_with_config_rt(config(), runtime);
    let catalog = Arc::new(MemoryCatalogProvider::new());
    catalog.register_schema(module, provider([(table.0.to_owned(), table.1)])?)?;
    context.register_catalog(ARCHIVE, catalog);
    Ok(context)
}

/// Makes a session over what a holder may see of the archive now. It has views and nothing else: the store of
/// the archive is known to another session, which only the views use.
pub async fn session_of(
    store: &Store,
    holder: &Holder,
    pool: &Arc<dyn MemoryPool>,
) -> Result<SessionContext, Error> {
    let state = store.load().await?;
    let no_files = || DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = || {
        let builder = RuntimeEnvBuilder::new().with_memory_pool(pool.clone());
        builder.with_disk_manager_builder(no_files()).build_arc()
    };
    let inner = SessionContext::new_with_config_rt(SessionConfig::new(), runtime()?);
    inner.register_object_store(&archive::URL.parse()?, store.objects.clone());
    let context = SessionContext::new_with_config_rt(config(), runtime()?);
    // A new session knows the files of the machine.
    context.runtime_env().deregister_object_store(&"file:///".parse()?)?;

    let own =
        tables(store, state.files.iter().filter(|file| holder.owns(&file.node, &file.principal))).await?;
    let shown = tables(store, state.files.iter().filter(|file| holder.shown(file).is_some())).await?;
    for (name, all) in [(ARCHIVE, own), (SHOWN, shown)] {
        let catalog = Arc::new(MemoryCatalogProvider::new());
        for (module, tables) in all {
            let mut views: BTreeMap<String, Arc<dyn TableProvider>> = BTreeMap::new();
            for (table, behind) in tables {
                let view = match behind.file().and_then(|file| holder.shown(file)) {
                    Some(shown) => View::shown(&inner, behind.clone(), &shown.clone(), holder)?,
                    None => View::own(&inner, behind, holder)?,
                };
                views.extend(view.map(|view| (table, Arc::new(view) as _)));
            }
            catalog.register_schema(&module, provider(views)?)?;
        }
        if name == ARCHIVE {
            let seen = losses(&state, |of| of.principal == holder.name && holder.sees_node(&of.node))?;
            catalog.register_schema(FLEET, provider([("losses".to_owned(), Arc::new(seen) as _)])?)?;
        }
        context.register_catalog(name, catalog);
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn a_query_ends_with_its_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (pool, ms) = (pool(None), Duration::from_millis);
        let within = |query: &dyn Fn() -> Result<u8, Error>, is_ready: bool, longest| {
            let query = async { if is_ready { query() } else { pending().await } };
            runtime.block_on(bounded(query, longest, ms(10), &*pool))
        };
        let error = within(&|| Ok(1), false, Some(ms(35))).unwrap_err().to_string();
        assert!(error.contains("no result after 35ms"), "{error}");
        assert_eq!(within(&|| Ok(1), true, Some(ms(35))).unwrap(), 1);
        assert_eq!(within(&|| Ok(2), true, None).unwrap(), 2);
        // A query that is done counts, however late it is looked at.
        assert_eq!(within(&|| Ok(3), true, Some(Duration::ZERO)).unwrap(), 3);
    }
}
