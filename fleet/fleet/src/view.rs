//! A table as a holder sees it: a barrier that queries do not look behind.
//!
//! The plan of a view is made and run in a session of its own. The holder's session has only its result, as a
//! leaf: no rule of the optimizer moves an expression of the query to rows or columns that the view hides,
//! and EXPLAIN shows nothing of it. Of a query's conditions, only comparisons of a visible column with a
//! literal are evaluated within the view. They cannot fail, and remove whole rows of the result, since a
//! group has one value of each of its columns.

use crate::Error;
use crate::holder::Holder;
use crate::tables::{OWN, Table};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions::datetime::expr_fn::date_bin;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, TableProviderFilterPushDown, binary_expr, ident, lit,
};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::prelude::SessionContext;
use flame_trust::{ROWS, ShownTable};
use futures_util::StreamExt as _;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A table as a holder sees it.
pub struct View {
    /// The session that reads the archive.
    inner: SessionContext,
    table: Arc<Table>,
    columns: Vec<Expr>,
    groups: Option<Groups>,
    /// The visible columns whose values are as in the archive's rows.
    comparable: BTreeSet<String>,
    schema: SchemaRef,
}

/// The rows for which one row stands.
struct Groups {
    least: u64,
    sums: Vec<Expr>,
}

impl View {
    /// Makes the view of a holder's own table. Returns nothing if no column is visible.
    pub fn own(inner: &SessionContext, table: Arc<Table>, holder: &Holder) -> Result<Option<Self>, Error> {
        let schema = table.schema();
        let seen = schema.fields().iter().filter(|field| is_own(field) || holder.exposes(field));
        let names: BTreeSet<_> = seen.map(|field| field.name().clone()).collect();
        let columns = names_in_order(&schema, &names).map(ident).collect();
        Self::new(inner, table, columns, None, names)
    }

    /// Makes the view of a table of the operator. Returns nothing if no column is visible.
    pub fn shown(
        inner: &SessionContext,
        table: Arc<Table>,
        shown: &ShownTable,
        holder: &Holder,
    ) -> Result<Option<Self>, Error> {
        let schema = table.schema();
        let is_seen = |field: &Field| is_own(field) || holder.exposes(field) && !holder.is_transformed(field);
        let stated = |names: &[String]| -> Vec<Field> {
            let known = names.iter().filter_map(|name| schema.field_with_name(name).ok());
            known.filter(|field| is_seen(field)).cloned().collect()
        };
        let (keys, least) = (stated(&shown.columns), holder.group(shown));
        let sums = stated(&shown.sums).into_iter().filter(|field| field.data_type().is_numeric());
        let is_rounded =
            |field: &Field| matches!(field.data_type(), DataType::Timestamp(..)) && holder.resolution() > 1;
        let comparable = keys.iter().filter(|field| !is_rounded(field)).map(|field| field.name().clone());
        let column = |field: &Field| match is_rounded(field) {
            false => ident(field.name()),
            true => {
                let ns = i64::try_from(holder.resolution()).unwrap_or(i64::MAX);
                let stride = lit(ScalarValue::new_interval_mdn(0, 0, ns));
                let origin = lit(ScalarValue::TimestampNanosecond(Some(0), Some("UTC".into())));
                date_bin(stride, ident(field.name()), origin).alias(field.name())
            }
        };
        let groups = (least > 1).then(|| Groups {
            least,
            sums: sums.map(|field| sum(ident(field.name())).alias(field.name())).collect(),
        });
        Self::new(inner, table, keys.iter().map(column).collect(), groups, comparable.collect())
    }

    fn new(
        inner: &SessionContext,
        table: Arc<Table>,
        columns: Vec<Expr>,
        groups: Option<Groups>,
        comparable: BTreeSet<String>,
    ) -> Result<Option<Self>, Error> {
        if columns.is_empty() {
            return Ok(None);
        }
        let schema = table.schema();
        let mut view = Self { inner: inner.clone(), table, columns, groups, comparable, schema };
        view.schema = Arc::new(view.rows(&[])?.schema().as_arrow().clone());
        Ok(Some(view))
    }

    /// Returns the visible rows that fulfil comparisons.
    fn rows(&self, comparisons: &[Expr]) -> Result<DataFrame> {
        let mut rows = self.inner.read_table(self.table.clone())?;
        for comparison in comparisons {
            rows = rows.filter(comparison.clone())?;
        }
        let Some(Groups { least, sums }) = &self.groups else { return rows.select(self.columns.clone()) };
        let number = std::iter::once(count(lit(1)).alias(ROWS));
        let rows = rows.aggregate(self.columns.clone(), number.chain(sums.iter().cloned()).collect())?;
        rows.filter(ident(ROWS).gt_eq(lit(i64::try_from(*least).unwrap_or(i64::MAX))))
    }

    /// Returns a condition as a comparison of a visible column with a literal, if it is one.
    fn comparison(&self, condition: &Expr) -> Option<Expr> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
        let (column, op, literal) = match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(literal, _)) => (column, *op, literal),
            (Expr::Literal(literal, _), Expr::Column(column)) => (column, op.swap()?, literal),
            _ => return None,
        };
        let is_comparison = matches!(
            op,
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        let is_one = is_comparison && self.comparable.contains(&column.name);
        is_one.then(|| binary_expr(ident(&column.name), op, lit(literal.clone())))
    }
}

/// Returns whether the archive adds this column.
fn is_own(field: &Field) -> bool {
    OWN.contains(&field.name().as_str())
}

fn names_in_order<'a>(
    schema: &'a SchemaRef,
    names: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    schema.fields().iter().map(|field| field.name()).filter(|name| names.contains(*name))
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

#[async_trait::async_trait]
impl TableProvider for View {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let of = |filter: &&Expr| match self.comparison(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(of).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let comparisons: Vec<_> = filters.iter().filter_map(|filter| self.comparison(filter)).collect();
        let mut rows = self.rows(&comparisons)?;
        let mut schema = self.schema.clone();
        if let Some(columns) = projection {
            schema = Arc::new(schema.project(columns)?);
            // Rows are counted by the first column.
            let read = if columns.is_empty() { &[0][..] } else { columns };
            rows =
                rows.select(read.iter().map(|&n| ident(self.schema.field(n).name())).collect::<Vec<_>>())?;
        }
        if limit.is_some() {
            rows = rows.limit(0, limit)?;
        }
        let plan = rows.create_physical_plan().await.map_err(hidden)?;
        Ok(Arc::new(Barrier::new(plan, schema, self.inner.task_ctx())))
    }
}

/// The result of a view within a plan of the holder's session.
struct Barrier {
    behind: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    properties: Arc<PlanProperties>,
}

impl Barrier {
    fn new(behind: Arc<dyn ExecutionPlan>, schema: SchemaRef, context: Arc<TaskContext>) -> Self {
        let of = behind.properties();
        let partitions = Partitioning::UnknownPartitioning(of.partitioning.partition_count());
        let (emission, bounds) = (of.emission_type, of.boundedness);
        let properties =
            PlanProperties::new(EquivalenceProperties::new(schema), partitions, emission, bounds);
        Self { behind, context, properties: Arc::new(properties) }
    }
}

/// Returns an error without what the view hides.
fn hidden(error: DataFusionError) -> DataFusionError {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => {
            DataFusionError::ResourcesExhausted("the query needs more memory than it may have".to_owned())
        }
        _ => DataFusionError::Execution(
            "a table cannot be read: the archive's operator finds the reason by a query without a policy"
                .to_owned(),
        ),
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Barrier")
    }
}

impl DisplayAs for Barrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

impl ExecutionPlan for Barrier {
    fn name(&self) -> &str {
        "View"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.behind.execute(partition, self.context.clone()).map_err(hidden)?;
        let schema = self.schema();
        let of = schema.clone();
        let rows = rows.map(move |batch| {
            let batch = batch.map_err(hidden)?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.columns()[..of.fields().len()].to_vec();
            Ok(RecordBatch::try_new_with_options(of.clone(), columns, &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
