//! The columns of the modules trajectory and rtt, in batches of an archive or of a stream.

use crate::Error;
use crate::rtt::Handshakes;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use flame_fleet_join::{Flow, Window};

/// Returns a column as `kind`.
fn column(batch: &RecordBatch, name: &str, kind: &DataType) -> Result<ArrayRef, Error> {
    let found = batch.column_by_name(name);
    let expected = "expected the columns of the modules trajectory and rtt; a credential shows addresses by \
                    the exposure headers";
    let found = found.ok_or_else(|| format!("no column {name}, {expected}"))?;
    Ok(cast(found, kind)?)
}

/// Returns a column of words.
pub fn words(batch: &RecordBatch, name: &str) -> Result<ArrayRef, Error> {
    column(batch, name, &DataType::Utf8)
}

/// Adds the flows of a batch of the table `flow`. A flow without readable addresses has no direction.
pub fn flows(batch: &RecordBatch, window: &mut Window) -> Result<(), Error> {
    let numbers = column(batch, "flow", &DataType::UInt64)?;
    let numbers = numbers.as_primitive::<UInt64Type>();
    let (src, dst) = (words(batch, "src")?, words(batch, "dst")?);
    let (src, dst) = (src.as_string::<i32>(), dst.as_string::<i32>());
    let small = |name| column(batch, name, &DataType::Int64);
    let small = [small("proto")?, small("sport")?, small("dport")?];
    let [proto, sport, dport] = small.each_ref().map(|array| array.as_primitive::<Int64Type>());
    for n in (0..batch.num_rows()).filter(|n| !src.is_null(*n) && !dst.is_null(*n)) {
        // The columns of the module have these types.
        let port = |of: i64| u16::try_from(of).unwrap_or_default();
        let flow = Flow {
            proto: u8::try_from(proto.value(n)).unwrap_or_default(),
            source: (src.value(n).to_owned(), port(sport.value(n))),
            destination: (dst.value(n).to_owned(), port(dport.value(n))),
        };
        window.flow(numbers.value(n), flow);
    }
    Ok(())
}

/// Adds the packets of a batch of the table `log`, each of the node that `node` returns for its row.
pub fn packets<'a>(
    batch: &RecordBatch,
    node: impl Fn(usize) -> &'a str,
    window: &mut Window,
) -> Result<(), Error> {
    let times = column(batch, "ts_ns", &DataType::Int64)?;
    let (flows, labels) =
        (column(batch, "flow", &DataType::UInt64)?, column(batch, "label", &DataType::UInt64)?);
    let (times, flows) = (times.as_primitive::<Int64Type>(), flows.as_primitive::<UInt64Type>());
    let labels = labels.as_primitive::<UInt64Type>();
    for n in 0..batch.num_rows() {
        let label = u32::try_from(labels.value(n)).unwrap_or_default();
        window.packet(node(n), flows.value(n), label, times.value(n));
    }
    Ok(())
}

/// Returns the settings in a batch of the table `setting`, each as a line.
pub fn settings(batch: &RecordBatch) -> Result<Vec<String>, Error> {
    let names = ["hash", "sampling", "payload", "seeds"];
    let all = names.map(|name| words(batch, name));
    let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    let line = |n| all.iter().map(|of| of.as_string::<i32>().value(n)).collect::<Vec<_>>().join(" ");
    Ok((0..batch.num_rows()).map(line).collect())
}

/// Adds the handshakes of a batch of the table `handshake`.
pub fn handshakes(batch: &RecordBatch, node: &str, into: &mut Handshakes) -> Result<(), Error> {
    let number = |name| column(batch, name, &DataType::Int64);
    let (times, targets, trips) = (number("syn_ns")?, words(batch, "dst")?, number("rtt_ns")?);
    let (times, trips) = (times.as_primitive::<Int64Type>(), trips.as_primitive::<Int64Type>());
    let targets = targets.as_string::<i32>();
    for n in (0..batch.num_rows()).filter(|n| !targets.is_null(*n)) {
        into.add(node, times.value(n), targets.value(n), trips.value(n));
    }
    Ok(())
}
