//! `flame query`: SQL over an archive.

use crate::output::{Format, write};
use crate::store::Store;
use crate::{Error, tables};
use clap::Args;
use datafusion::catalog::{CatalogProvider as _, MemoryCatalogProvider};
use datafusion::execution::context::SQLOptions;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::path::PathBuf;
use std::sync::Arc;

/// Query the archive of a fleet by SQL
///
/// Each table of a module is MODULE.TABLE, and has the columns node and principal besides its own. What was
/// lost on the way is in fleet.losses. SHOW TABLES lists the tables.
#[derive(Args)]
pub struct Query {
    /// The statement, as in "SELECT node, count(*) FROM flow.flows GROUP BY node"
    sql: String,

    /// The folder of the archive
    #[arg(short, long, value_name = "FOLDER", env = "FLAME_ARCHIVE")]
    archive: PathBuf,

    /// The form of the result
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// The file to write; needed for Parquet
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Query {
    pub fn run(self) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let batches = runtime.block_on(async {
            let context = session(&Store::open(&self.archive, false)?).await?;
            // Queries change nothing, and read nothing but the archive.
            let only =
                SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
            let frame = context.sql_with_options(&self.sql, only).await?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            Ok::<_, Error>((schema, frame.collect().await?))
        });
        let (schema, batches) = batches?;
        write(self.format, self.output.as_deref(), &schema, &batches)
    }
}

/// Makes a session over what the archive holds now.
pub async fn session(store: &Store) -> Result<SessionContext, Error> {
    let state = store.load().await?;
    let config = SessionConfig::new()
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema("archive", "fleet");
    let context = SessionContext::new_with_config(config);
    context.register_object_store(&tables::URL.parse()?, store.objects.clone());
    let catalog = Arc::new(MemoryCatalogProvider::new());
    for (module, tables) in tables::tables(store, &state).await? {
        catalog.register_schema(&module, tables)?;
    }
    context.register_catalog("archive", catalog);
    Ok(context)
}
