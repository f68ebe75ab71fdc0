//! The memory of idle instances of `flow`.

use crate::fixture::{Error, instance, plan};
use crate::row::{Row, Target};
use flame_admit::Protection;
use flame_block::Pool;
use flame_run::Engines;
use std::path::Path;

pub fn rows(engine: &Engines, folder: &Path) -> Result<Vec<Row>, Error> {
    let plan = plan(&std::fs::read(folder.join("flow.wasm"))?, Protection::Auto, &[])?;
    let pool = Pool::new(4)?;
    let before = resident()?;
    let instances = (0..100).map(|_| instance(engine, &plan, &pool)).collect::<Result<Vec<_>, _>>()?;
    let mib = (resident()? - before) / (1 << 20) as f64;
    drop(instances);
    let name = "100 idle instances of flow";
    let row = Row::ratio("memory", name, mib, "resident, tables as they are at the start".into());
    Ok(vec![row.unit("MiB").target(Target::AtMost(1024.0))])
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> Result<f64, Error> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    Ok(text.split(' ').nth(1).ok_or("statm")?.parse::<f64>()? * 4096.0)
}
