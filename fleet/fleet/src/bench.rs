//! `flame fleet bench`, a chore: the rate from spool files through a server into an archive, beside the
//! rate of the server alone with the same messages.

use crate::Error;
use crate::agent::{Agent, TURN};
use crate::archive::{Archive, EACH};
use crate::store::Store;
use clap::Args;
use datafusion::arrow::array::{
    ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt8Array,
    UInt16Array, UInt64Array,
};
use datafusion::arrow::ipc::writer::StreamWriter;
use flame_fleet_nats::{Log as _, Nats, Published};
use flame_fleet_protocol::Subject;
use flame_spool::{Batch, Epoch, Writer, escape};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const PRINCIPAL: &str = "bench@0";
/// Rows of a batch: about 256 KiB, as a node writes them.
const ROWS: u64 = 2048;
/// A time in 2026.
const TIME: u64 = 1_780_000_000_000_000_000;

/// Measure the rate from spool files through a server into an archive
#[derive(Args)]
pub struct Bench {
    /// The address of a server without records
    #[arg(long, value_name = "ADDRESS")]
    server: String,

    /// A folder for spool and archive, which is made
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,

    /// The number of rows
    #[arg(long, default_value = "2000000")]
    rows: u64,
}

impl Bench {
    pub fn run(self) -> Result<(), Error> {
        std::fs::create_dir(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))?;
        let batches = self.rows.div_ceil(ROWS);
        let bodies = bodies()?;
        let alone = self.alone(batches, &bodies)?;
        let size: usize = (0..batches).map(|n| bodies[n as usize % bodies.len()].len()).sum();
        println!("server alone: {:.1} MB/s, {batches} messages", size as f64 / alone.as_secs_f64() / 1e6);

        let spool = self.folder.join("spool");
        let path = spool.join(escape(PRINCIPAL)).join("flow/flow");
        let mut writer = Writer::open(&path, 8 << 30, || Epoch(7))?;
        for n in 0..batches {
            let body = &bodies[n as usize % bodies.len()];
            writer.append(&Batch { rows: ROWS, first: TIME, last: TIME + 1, body })?;
        }
        writer.sync()?;
        let rows = batches * ROWS;
        let took = self.through(&spool, rows)?.as_secs_f64();
        println!(
            "spool to archive: {:.0} rows/s, {:.1} MB/s, {:.2} of the server alone; {rows} rows, {took:.1} s",
            rows as f64 / took,
            size as f64 / took / 1e6,
            alone.as_secs_f64() / took
        );
        Ok(())
    }

    /// Returns the time in which the server takes the messages.
    fn alone(&self, batches: u64, bodies: &[Vec<u8>]) -> Result<Duration, Error> {
        let mut log = Nats::connect(&self.server)?;
        let subject = Subject::new("bench", "alone@0", "flow", "flow")?;
        log.open(&subject, 8 << 30)?;
        let begun = Instant::now();
        for at in (0..batches).step_by(TURN) {
            let turn = at..batches.min(at + TURN as u64);
            let messages = turn.map(|n| bodies[n as usize % bodies.len()].clone()).collect();
            let answers = log.publish_all(&subject, messages, None)?;
            if answers.iter().any(|answer| !matches!(answer, Published::Taken(_))) {
                return Err("the server's stream is full: state fewer rows".into());
            }
        }
        let took = begun.elapsed();
        log.remove(&subject, u64::MAX - 1)?;
        Ok(took)
    }

    /// Returns the time in which all rows are archived.
    fn through(&self, spool: &Path, rows: u64) -> Result<Duration, Error> {
        let store = Store::open(&self.folder.join("archive"), true)?;
        let begun = Instant::now();
        thread::scope(|scope| {
            let sent = scope.spawn(|| -> Result<(), Error> {
                let mut log = Nats::connect(&self.server)?;
                let mut agent = Agent::new("bench", spool, 8 << 30);
                while agent.pass(&mut log)? {}
                println!("spool to server: {:.1} s", begun.elapsed().as_secs_f64());
                Ok(())
            });
            let mut log = Nats::connect(&self.server)?;
            let mut archive = Archive::load(store)?;
            while archive.rows() < rows {
                let principals = log.principals()?.into_iter().filter(|name| name == PRINCIPAL);
                let has_more = archive.pass(&mut log, &principals.collect::<Vec<_>>())?;
                if !has_more && archive.rows() < rows {
                    thread::sleep(EACH);
                }
            }
            let took = begun.elapsed();
            sent.join().map_err(|_| "the agent's thread failed")??;
            Ok(took)
        })
    }
}

/// Returns bodies of batches, with columns as the module `flow` has them.
fn bodies() -> Result<Vec<Vec<u8>>, Error> {
    (0..64).map(|seed| body(&mut fastrand::Rng::with_seed(seed))).collect()
}

fn body(rng: &mut fastrand::Rng) -> Result<Vec<u8>, Error> {
    let count = ROWS as usize;
    let mut address = |_| format!("10.{}.{}.{}", rng.u8(..4), rng.u8(..), rng.u8(..));
    let (src, dst): (Vec<_>, Vec<_>) =
        ((0..count).map(&mut address).collect(), (0..count).map(address).collect());
    let time = |rng: &mut fastrand::Rng| -> ArrayRef {
        let times = (0..count).map(|_| (TIME + rng.u64(..60_000_000_000)) as i64);
        Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC"))
    };
    let number = |rng: &mut fastrand::Rng, most: u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values((0..count).map(|_| rng.u64(..most))))
    };
    let byte = |rng: &mut fastrand::Rng| -> ArrayRef {
        Arc::new(UInt8Array::from_iter_values((0..count).map(|_| rng.u8(..32))))
    };
    let port = |rng: &mut fastrand::Rng| -> ArrayRef {
        Arc::new(UInt16Array::from_iter_values((0..count).map(|_| rng.u16(..))))
    };
    let ends = Arc::new(StringArray::from(vec!["idle", "active", "fin", "rst", "evicted", "end"]));
    let end = Int8Array::from_iter_values((0..count).map(|_| rng.i8(..6)).map(|n: i8| n.rem_euclid(6)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("proto", byte(rng)),
        ("src", Arc::new(StringArray::from(src))),
        ("sport", port(rng)),
        ("dst", Arc::new(StringArray::from(dst))),
        ("dport", port(rng)),
        ("first_ns", time(rng)),
        ("last_ns", time(rng)),
        ("packets_fwd", number(rng, 100)),
        ("packets_rev", number(rng, 100)),
        ("bytes_fwd", number(rng, 100_000)),
        ("bytes_rev", number(rng, 100_000)),
        ("tcp_flags_fwd", byte(rng)),
        ("tcp_flags_rev", byte(rng)),
        ("end", Arc::new(DictionaryArray::new(end, ends))),
        ("icmp_type", byte(rng)),
        ("icmp_code", byte(rng)),
        ("ip_bytes_fwd", number(rng, 100_000)),
        ("ip_bytes_rev", number(rng, 100_000)),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let mut stream = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    stream.write(&batch)?;
    Ok(stream.into_inner()?)
}
