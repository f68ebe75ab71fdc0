//! Credentials: the cost of an install, and that they cost nothing on the path of a packet; pseudonyms
//! compared to those of traceanon.

use crate::commands::time;
use crate::fixture::{Error, base, blocks};
use crate::modules::KEY;
use crate::row::{Row, Target, Way, laps, median, paired};
use flame_admit::Protection;
use flame_block::Pool;
use flame_compile::{Cache, Compiler, InstallRequest, ModuleInfo};
use flame_plan::{Expose, Limits, OnFault, ViewSpec};
use flame_run::Loaded;
use flame_transform::{Key, Prefix};
use flame_trust::{Credential, Field, Grant, Mint, ModuleRequest, Narrow, Policy, Secret};
use flame_view::View;
use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const INSTALL: &str = "credentials: installing";
const PACKETS: &str = "credentials: on a packet's way";

pub fn rows(flame: &Path, trace: &Path, folder: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let node = Node::new()?;
    let mut rows = installing(&node, folder, rounds)?;
    rows.push(hides_nothing(&node, flame, trace, rounds)?);
    rows.extend(prefix(trace, rounds)?);
    match addresses(trace, rounds) {
        Ok(row) => rows.push(row),
        Err(reason) => eprintln!("left out: traceanon's addresses: {reason}"),
    }
    Ok(rows)
}

/// A node's folder, and a credential of three blocks.
struct Node {
    folder: tempfile::TempDir,
    text: String,
}

impl Node {
    fn new() -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let (root, node) = (Secret::generate(), Secret::generate());
        node.write_new(&folder.path().join("node.key"))?;
        let role = "select = \"\"\nexpose = \"all\"\ncalls = \"records, messages\"\ncode = \"any\"\n\
            records_per_second = 1000000000\nbytes_per_second = \"64GiB\"";
        let policy = format!(
            "[node]\nname = \"n\"\nkey = \"node.key\"\n[roots]\noperator = \"{}\"\n[roles.all]\n{role}\n",
            root.public()
        );
        std::fs::write(folder.path().join("policy.toml"), policy)?;
        let narrow = |fields: &[(Field, &str)]| Narrow {
            fields: fields.iter().map(|(f, v)| (*f, (*v).to_owned())).collect(),
            ..Narrow::default()
        };
        let code = narrow(&[(Field::Code, "any"), (Field::Expires, "2099-01-01T00:00:00Z")]);
        let mint = Mint { principal: "alice".to_owned(), role: "all".to_owned(), narrow: code };
        // The three blocks restrict nothing that affects speed.
        let second = narrow(&[(Field::Interface, "file, eth0"), (Field::Memory, "128MiB")]);
        let third = narrow(&[(Field::Calls, "records, messages")]);
        let credential = Credential::mint(&root, &mint)?.narrow(&second, None)?.narrow(&third, None)?;
        let text = credential.text();
        std::fs::write(folder.path().join("cred"), &text)?;
        Ok(Self { folder, text })
    }

    fn policy(&self) -> Result<Policy, Error> {
        Ok(Policy::open(&self.folder.path().join("policy.toml"))?)
    }

    fn grant(&self, policy: &Policy, module: &ModuleInfo) -> Result<Grant, Error> {
        let credential = Credential::parse(&self.text)?;
        let module_request = ModuleRequest::new(&module.manifest, module.hash, module.messages, Vec::new())?;
        let request = flame_trust::GrantRequest {
            credential: Some(&credential),
            module: &module_request,
            place: &flame_trust::Place::captures(),
            now: flame_trust::time::now(),
            possession: None,
        };
        Ok(policy.grant(&request)?)
    }
}

fn installing(node: &Node, modules: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let engine = flame_run::Engines::new()?;
    let cache = tempfile::tempdir()?;
    let compiler =
        Compiler::in_process(flame_compile::Engines::new()?, Some(Cache::open(&cache.path().join("cache"))?));
    let wasm = std::fs::read(modules.join("flow.wasm"))?;
    let policy = node.policy()?;
    let module = compiler.examine(&wasm)?;
    let install = || -> Result<Loaded, Error> {
        let (policy, module) = (node.policy()?, compiler.examine(&wasm)?);
        let grant = node.grant(&policy, &module)?;
        View::new(&grant.view(), None)?;
        let request = InstallRequest {
            view: grant.view(),
            settings: Default::default(),
            on_fault: OnFault::Stop,
            limits: grant.limits(Limits::default()),
            protection: Protection::Auto,
            costs: None,
            time_limit: None,
            terms: grant.terms(),
        };
        let installed = compiler.install_examined(&wasm, &module, &request)?;
        Ok(Loaded::new(&engine, &installed.plan)?)
    };
    install()?;
    let timed = |what: &mut dyn FnMut() -> Result<(), Error>| -> Result<f64, Error> {
        let mut times = Vec::new();
        for _ in 0..rounds * 10 {
            let start = Instant::now();
            what()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(times))
    };
    let verify = || -> Result<View, Error> { Ok(View::new(&node.grant(&policy, &module)?.view(), None)?) };
    let verified = timed(&mut || verify().map(drop))?;
    let installed = timed(&mut || install().map(drop))?;
    let row = |name: &str, ms: f64, most: f64, detail: &str| {
        Row::ratio(INSTALL, name, ms, detail.to_owned()).unit("ms").target(Target::AtMost(most))
    };
    Ok(vec![
        row("verify, grant, compile the view", verified, 2.0, "a credential of three blocks, from its text"),
        row(
            "install a cached module",
            installed,
            5.0,
            "flow: read policy and keys, check, grant, take from the cache, load",
        ),
    ])
}

/// Times the same command without a grant and under a grant that hides nothing.
fn hides_nothing(node: &Node, flame: &Path, trace: &Path, rounds: usize) -> Result<Row, Error> {
    let words = |more: &[&str]| -> Vec<String> {
        let (flame, trace) = (flame.to_string_lossy(), trace.to_string_lossy());
        // The trace is read repeatedly, so that the install is a small part.
        let often: Vec<&str> = (0..8).flat_map(|_| ["-r", &*trace]).collect();
        let all =
            [&[&*flame, "run", "flow"][..], &often, &["-q", "--expose", "all", "-o", "/dev/null"], more]
                .concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let (policy, credential) = (node.folder.path().join("policy.toml"), node.folder.path().join("cred"));
    let (policy, credential) = (policy.to_string_lossy(), credential.to_string_lossy());
    let (without, under) = (words(&[]), words(&["--policy", &policy, "--credential", &credential]));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (without, under) = (time(&without)?, time(&under)?);
        if round > 0 {
            a.push(under);
            b.push(without);
        }
    }
    let detail = format!("{:.3} / {:.3} s", median(a.clone()), median(b.clone()));
    let row = Row::ratio(PACKETS, "a grant that hides nothing / none", paired(&a, &b), detail);
    Ok(row.target(Target::AtMost(1.02)))
}

/// Times headers with addresses by prefix, compared to unchanged headers.
fn prefix(trace: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let blocks = blocks(trace, 64)?;
    let packets: usize = blocks.iter().map(|b| b.descriptors.len()).sum();
    let pool = RefCell::new(Pool::new(1)?);
    let transforms = flame_transform::parse("ip=prefix")?;
    let plain = ViewSpec { expose: Expose::Headers, ..ViewSpec::default() };
    let views = [plain.clone(), ViewSpec { transforms, ..plain }];
    let key = Key::new([7; 32]);
    let mut views = views.iter().map(|spec| View::new(spec, Some(&key))).collect::<Result<Vec<_>, _>>()?;
    let [mut plain, mut changed] = {
        let second = views.pop().ok_or("two views")?;
        [views.pop().ok_or("two views")?, second]
    };
    let see = |view: &mut View| -> Result<(), Error> {
        for block in &blocks {
            let mut pool = pool.borrow_mut();
            let (descriptors, data) = pool.slot(0);
            let link = |i: usize| block.block.packets[i].link;
            view.copy(&block.descriptors, link, &block.block.data, descriptors, data, base(0))?;
        }
        Ok(())
    };
    let mut ways: [Way<'_, Error>; 2] = [Box::new(|| see(&mut plain)), Box::new(|| see(&mut changed))];
    let times = laps(rounds * 3, &mut ways)?;
    let ns: Vec<f64> = times[1].iter().zip(&times[0]).map(|(b, a)| (b - a) * 1e9 / packets as f64).collect();
    let detail =
        format!("beyond {:.1} ns for headers as they are", median(times[0].clone()) * 1e9 / packets as f64);
    let row = Row::ratio(PACKETS, "headers: addresses by prefix", median(ns), detail);
    Ok(vec![row.unit("ns").target(Target::AtMost(25.0))])
}

/// Times the pseudonyms of the same addresses: traceanon's, less the time of copying the trace, and ours.
fn addresses(trace: &Path, rounds: usize) -> Result<Row, Error> {
    let mut all: Vec<u32> = Vec::new();
    for block in blocks(trace, usize::MAX)? {
        for d in &block.descriptors {
            let at = d.addr as usize + usize::from(d.l3);
            if let Some(&[0x45, ..]) = block.block.data.get(at..)
                && let Some(header) = block.block.data.get(at + 12..at + 20)
            {
                all.extend(header.as_chunks::<4>().0.iter().map(|a| u32::from_be_bytes(*a)));
            }
        }
    }
    let from = format!("pcapfile:{}", trace.display());
    let words = |more: &[&str]| -> Vec<String> {
        [&["traceanon"][..], more, &[&from, "pcapfile:/dev/null"]]
            .concat()
            .iter()
            .map(|w| (*w).to_owned())
            .collect()
    };
    let (copy, encrypt) = (words(&[]), words(&["-s", "-d", "-c", "0123456789abcdef0123456789abcdef"]));
    let key = Key::parse(KEY.as_bytes())?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let took = time(&encrypt)? - time(&copy)?;
        let mut prefix = Prefix::new(&key);
        let start = Instant::now();
        black_box(all.iter().fold(0, |sum: u32, a| sum.wrapping_add(prefix.ipv4(*a))));
        let own = start.elapsed().as_secs_f64();
        if round > 0 {
            theirs.push(took);
            ours.push(own);
        }
    }
    let ns = |times: &[f64]| median(times.to_vec()) * 1e9 / all.len() as f64;
    let detail = format!("{:.1} / {:.1} ns an address, {} of them", ns(&theirs), ns(&ours), all.len());
    let row = Row::ratio(PACKETS, "Crypto-PAn: traceanon / a view", paired(&theirs, &ours), detail);
    Ok(row.target(Target::AtLeast(10.0)))
}
