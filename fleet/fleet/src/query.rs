//! `flame query`: SQL over an archive, of all of it, or of what a credential may see.

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
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of the catalog with a holder's own tables, and with tables of the operator that it is shown.
const ARCHIVE: &str = "archive";
const SHOWN: &str = "shown";
/// The schema of what is about the archive itself.
const FLEET: &str = "fleet";
/// The most bytes of memory of a query under a credential.
const MEMORY: usize = 1 << 30;

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

    /// The form of the result
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// The file to write; needed for Parquet
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Query {
    pub fn run(self) -> Result<(), Error> {
        self.access.write(async |context| {
            let frame = ask(&context, &self.sql).await?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            Ok((schema, frame.collect().await?))
        })
    }
}

impl Access {
    /// Writes the result of a query in a session of its own.
    pub fn write(
        &self,
        query: impl AsyncFnOnce(SessionContext) -> Result<(SchemaRef, Vec<RecordBatch>), Error>,
    ) -> Result<(), Error> {
        let holder = match (&self.policy, &self.credential, &self.identity) {
            (Some(policy), Some(credential), Some(identity)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                Some(Holder::open(policy, credential, identity, now)?)
            }
            _ => None,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (schema, batches) = runtime.block_on(async {
            let store = Store::open(&self.archive, false)?;
            let context = match &holder {
                Some(holder) => session_of(&store, holder).await?,
                None => session(&store).await?,
            };
            query(context).await
        })?;
        write(self.format, self.output.as_deref(), &schema, &batches)
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
pub async fn session(store: &Store) -> Result<SessionContext, Error> {
    let state = store.load().await?;
    let context = SessionContext::new_with_config(config());
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

/// Makes a session over what a holder may see of the archive now. It has views and nothing else: the store of
/// the archive is known to another session, which only the views use.
pub async fn session_of(store: &Store, holder: &Holder) -> Result<SessionContext, Error> {
    let state = store.load().await?;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(MEMORY));
    let runtime = || RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc();
    let inner = SessionContext::new_with_config_rt(SessionConfig::new(), runtime()?);
    inner.register_object_store(&archive::URL.parse()?, store.objects.clone());
    let context = SessionContext::new_with_config_rt(config(), runtime()?);
    // A new session knows the files of the machine.
    context.runtime_env().deregister_object_store(&"file:///".parse()?)?;

    let own = tables(store, state.files.iter().filter(|file| holder.owns(file))).await?;
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
