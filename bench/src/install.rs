//! Installs over a node's API, from the request to the module's first packet, and revocations, from the
//! request to the module's end.

use crate::fixture::Error;
use crate::made::empty;
use crate::node::{Connection, Node, bursts};
use crate::row::{Row, Target, median};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const GROUP: &str = "API: a cached module under a credential, on a node";
const CONFIG: &str = "[sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\n\
    [limits]\nmodules = 1000\nrequests_per_second = 100000\nconnections = 4096\n";

/// Waits until the operator sees that `is` so of a module, and returns the milliseconds since `begin`.
fn until(
    operator: &mut Connection<'_>,
    (module, principal): (&str, &str),
    begin: Instant,
    is: impl Fn(&Value) -> bool,
) -> Result<f64, Error> {
    loop {
        let shown = operator.show(module, principal)?;
        if is(&shown) {
            return Ok(begin.elapsed().as_secs_f64() * 1e3);
        }
        if begin.elapsed() > Duration::from_secs(10) {
            return Err(format!("{module} of {principal} after ten seconds: {shown}").into());
        }
    }
}

pub fn rows(flame: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    // Under a grant that hides anything, packets would wait for the end of a block.
    let wasm = empty("all")?;
    // There is a packet at any time.
    let node = Node::start(flame, CONFIG, &[("dense.pcap", &bursts(1, 0))])?;
    let mut operator = node.connect()?;
    let works = |shown: &Value| shown["account"]["processed"].as_u64() > Some(0);
    let (mut alone, mut beside, mut posted, mut listed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let name = format!("p{round}");
        let holder = node.principal(&name, &[])?;
        let mut session = node.session(&holder)?;
        // What is compiled is its principal's, and stays with a module that is stopped. Its process ends.
        session.install("cached", &wasm, None)?;
        session.request("POST", "/v1/modules/cached/stop", Some(&serde_json::json!({})))?;
        std::thread::sleep(Duration::from_millis(200));
        let mut installed = |module: &str| -> Result<f64, Error> {
            let begin = Instant::now();
            session.install(module, &wasm, None)?;
            until(&mut operator, (module, &name), begin, works)
        };
        let of_first = installed("first")?;
        let of_second = installed("second")?;
        let credential = serde_json::json!({ "credential": holder.text() });
        let begin = Instant::now();
        operator.request("POST", "/v1/revocations", Some(&credential))?;
        let has_ended = |shown: &Value| shown["state"] == "evicted";
        let of_post = until(&mut operator, ("first", &name), begin, has_ended)?;

        let name = format!("q{round}");
        let holder = node.principal(&name, &[])?;
        let mut session = node.session(&holder)?;
        session.install("first", &wasm, None)?;
        let mut revoked = std::fs::OpenOptions::new().append(true).open(node.path("revoked"))?;
        let begin = Instant::now();
        writeln!(revoked, "key {}", holder.key())?;
        revoked.sync_all()?;
        let of_list = until(&mut operator, ("first", &name), begin, has_ended)?;
        // The first round does not count.
        if round > 0 {
            alone.push(of_first);
            beside.push(of_second);
            posted.push(of_post);
            listed.push(of_list);
        }
    }
    let row = |name: &str, times: Vec<f64>, most: f64, detail: &str| {
        let longest = times.iter().copied().fold(0.0, f64::max);
        let detail = format!("{detail}; the longest {longest:.1} ms");
        Row::ratio(GROUP, name, median(times), detail).unit("ms").target(Target::AtMost(most))
    };
    Ok(vec![
        row("install to the first packet", alone, 10.0, "in a new process"),
        row("the same, beside another", beside, 10.0, "in the process of its principal"),
        row("revocation by the API", posted, 1000.0, "to the end of the module"),
        row("revocation in the list", listed, 1000.0, "from the write of the file to the end of the module"),
    ])
}
