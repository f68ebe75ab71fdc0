//! Rows of tables `notice` on standard error: the texts of a module for people, whatever the format of
//! records. Only for modules of the operator; under a grant, text that a module composes leaves in records
//! alone.

use crate::console::complain;
use flame_record::Sink;

/// The name of the table, and of its column.
const TABLE: &str = "notice";
const COLUMN: &str = "text";
/// The number of rows that are printed.
const MOST: usize = 64;

/// Returns a sink that passes records to `records` and prints notices.
pub fn tee(records: Box<dyn Sink>) -> Box<dyn Sink> {
    let mut printed = 0;
    flame_record::each(records, move |module, table, batch| {
        if table.name == TABLE {
            for text in flame_record::texts(batch, COLUMN).into_iter().take(MOST - printed) {
                complain!("flame: {module}: {text}");
                printed += 1;
            }
        }
        true
    })
}
