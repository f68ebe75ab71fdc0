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

/// Returns a sink that passes records to `records` and prints notices. If the same person reads both, as
/// `is_shown` states, notices that were printed are not passed on.
pub fn tee(records: Box<dyn Sink>, is_shown: bool) -> Box<dyn Sink> {
    let mut printed = 0;
    flame_record::each(records, move |module, table, batch| {
        if table.name != TABLE {
            return true;
        }
        let texts = flame_record::texts(batch, COLUMN);
        for text in texts.iter().take(MOST - printed) {
            complain!("flame: {module}: {text}");
            printed += 1;
        }
        !is_shown || printed == MOST
    })
}
