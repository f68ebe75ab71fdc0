//! The archive's tables for queries.

use crate::Error;
use crate::parquet_files::schema;
use crate::store::{File, State, Store};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::datasource::{MemTable, TableType};
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use flame_fleet_protocol::Subject;
use flame_fleet_protocol::subject::Parts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The address of the archive's store within a session.
pub const URL: &str = "archive://fleet";
/// The columns that each table has after its own.
pub const OWN: [&str; 2] = ["node", "principal"];

/// A table: files of nodes with columns that go together.
#[derive(Debug)]
pub struct Table {
    schema: TableSchema,
    files: Vec<File>,
}

/// Tables by module and name.
pub type Tables = BTreeMap<String, BTreeMap<String, Arc<Table>>>;

/// Columns that go together, and the files that have them.
type Columns = (Schema, Vec<File>);

/// Returns the tables of files. Columns that were added continue a table; where a column has another type
/// than before, another one begins, `NAME_2`.
pub async fn tables<'a>(store: &Store, files: impl Iterator<Item = &'a File>) -> Result<Tables, Error> {
    let mut schemas: BTreeMap<&str, SchemaRef> = BTreeMap::new();
    let mut found: BTreeMap<(&str, &str), Vec<Columns>> = BTreeMap::new();
    for file in files {
        if !schemas.contains_key(file.schema.as_str()) {
            schemas.insert(&file.schema, schema(store, &file.schema).await?);
        }
        let Some(own) = schemas.get(file.schema.as_str()) else { continue };
        let tables = found.entry((&file.module, &file.table)).or_default();
        let fits = tables.iter_mut().find_map(|(schema, files)| Some((merged(schema, own)?, schema, files)));
        match fits {
            Some((new, schema, files)) => {
                *schema = new;
                files.push(file.clone());
            }
            None => tables.push((Schema::clone(own), vec![file.clone()])),
        }
    }
    let mut all = Tables::new();
    for ((module, name), tables) in found {
        for (n, (schema, files)) in tables.into_iter().enumerate() {
            let name = if n == 0 { name.to_owned() } else { format!("{name}_{}", n + 1) };
            let own = OWN.map(|name| Arc::new(Field::new(name, DataType::Utf8, false)));
            let schema = TableSchema::builder(Arc::new(viewed(&schema)))
                .with_table_partition_cols(own.to_vec())
                .build();
            let table = Arc::new(Table { schema, files });
            all.entry(module.to_owned()).or_default().insert(name, table);
        }
    }
    Ok(all)
}

/// Returns columns as queries read them: texts are not copied out of their pages.
fn viewed(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8 => Arc::new(Field::clone(field).with_data_type(DataType::Utf8View)),
        _ => field.clone(),
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

impl Table {
    /// Returns one of the table's files: they differ in nodes and principals only.
    pub fn file(&self) -> Option<&File> {
        self.files.first()
    }
}

/// Returns a schema of a catalog with these tables.
pub fn provider(
    tables: impl IntoIterator<Item = (String, Arc<dyn TableProvider>)>,
) -> Result<Arc<dyn SchemaProvider>> {
    let all = MemorySchemaProvider::new();
    tables.into_iter().try_for_each(|(name, table)| all.register_table(name, table).map(drop))?;
    Ok(Arc::new(all))
}

/// Returns the columns of both, or nothing if one has two types. Those that not all files have may be null.
fn merged(old: &Schema, new: &Schema) -> Option<Schema> {
    let is_other = |field: &Arc<Field>| {
        new.field_with_name(field.name()).is_ok_and(|other| other.data_type() != field.data_type())
    };
    if old.fields().iter().any(is_other) {
        return None;
    }
    let optional = |field: &Arc<Field>, other: &Schema| match other.field_with_name(field.name()) {
        Ok(same) => Arc::new(Field::clone(field).with_nullable(field.is_nullable() || same.is_nullable())),
        Err(_) => Arc::new(Field::clone(field).with_nullable(true)),
    };
    let added = new.fields().iter().filter(|field| old.field_with_name(field.name()).is_err());
    let all =
        old.fields().iter().map(|field| optional(field, new)).chain(added.map(|field| optional(field, old)));
    Some(Schema::new(all.collect::<Vec<_>>()))
}

/// Returns the table of what was lost between a node's spool and the archive.
pub fn losses(state: &State, is_seen: impl Fn(&Parts) -> bool) -> Result<MemTable, Error> {
    let mut rows = Vec::new();
    for lost in &state.losses {
        let parts = Subject::parse(&lost.subject)?.parts();
        if is_seen(&parts) {
            rows.push((parts, lost));
        }
    }
    let text = |of: fn(&Parts) -> &String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(|(parts, _)| of(parts))))
    };
    let number = |of: fn(&crate::store::Lost) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|(_, lost)| of(lost))))
    };
    let time = |of: fn(&crate::store::Lost) -> u64| -> ArrayRef {
        let times = rows.iter().map(|(_, lost)| i64::try_from(of(lost)).unwrap_or(i64::MAX));
        Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC"))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("node", text(|parts| &parts.node)),
        ("principal", text(|parts| &parts.principal)),
        ("module", text(|parts| &parts.module)),
        ("table", text(|parts| &parts.table)),
        ("rows", number(|lost| lost.rows)),
        ("bytes", number(|lost| lost.bytes)),
        ("since", time(|lost| lost.since)),
        ("until", time(|lost| lost.until)),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    Ok(MemTable::try_new(batch.schema(), vec![vec![batch]])?)
}

#[async_trait::async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.table_schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let count = session.config().target_partitions().clamp(1, self.files.len().max(1));
        let mut groups = vec![Vec::new(); count];
        for (n, file) in self.files.iter().enumerate() {
            let own = [&file.node, &file.principal].map(|name| ScalarValue::Utf8(Some(name.clone())));
            let part =
                PartitionedFile::new(file.path.clone(), file.bytes).with_partition_values(own.to_vec());
            groups[n % count].push(part);
        }
        let source = Arc::new(ParquetSource::new(self.schema.clone()));
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::parse(URL)?, source)
            .with_file_groups(groups.into_iter().map(FileGroup::new).collect())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
}
