//! The use of each session, in records: a row for each module and session at the end of each interval.
//!
//! A session is a principal, `operator`, or `system`, which has what the node itself uses: the work of each
//! source, and in a row without a source all else of the process. The operator reads exact numbers of all
//! sessions. A principal reads the rows of its own session, with the use as of the last tick of each grant.
//! Numbers that a module can choose are rounded up to a power of two there.

mod sheet;

use crate::reach::{Reach, add_to};
use crate::spool::Spool;
use crate::store::Owner;
use flame_abi::manifest::Manifest;
use flame_base::lock;
use flame_plan::CatalogEntry;
use flame_quota::{Usage, Used};
use flame_record::Rows;
use flame_worker::Charging;
use nix::time::{ClockId, clock_gettime};
pub use sheet::Amounts;
use sheet::Sheet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The bytes of rows that are kept for a principal, and for the operator.
const SPOOL: (u64, u64) = (1 << 20, 16 << 20);
/// The maximum number of principals without modules whose rows are kept.
const FORMER: usize = 256;

/// The tables, as a manifest declares them.
const MANIFEST: &str = include_str!("accounting.toml");

/// The owner of use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Session {
    System,
    Of(Owner),
}

/// One module, or the own work of a source.
struct Item {
    session: Session,
    module: String,
    source: String,
    usage: Arc<Usage>,
    before: Used,
    /// The use as of the last tick of its grant before the last interval, and so far as its principal sees
    /// it.
    released: Used,
    shown: Amounts,
    /// The rights that the module had since the last interval ended, or before and until then in a change
    /// that was in progress, the present ones last.
    made: Vec<Arc<Reach>>,
    is_changing: bool,
}

pub struct Accounting {
    inner: Mutex<Inner>,
    charging: Vec<Arc<Charging>>,
    /// The rows of all sessions, for the operator.
    all: Arc<Spool>,
    entry: Arc<CatalogEntry>,
    /// The tables without rows. All batches in the spools share their schemas.
    tables: Rows,
}

struct Inner {
    items: Vec<Item>,
    sessions: BTreeMap<Owner, Arc<Spool>>,
    /// The processor times in all rows: of sources and modules, and of the rest of the process.
    measured_ns: u64,
    rest_ns: u64,
    /// The end of the last interval.
    since: Instant,
}

/// Returns the processor time of this process, of all its threads.
fn process_ns() -> u64 {
    // Every Linux has this clock.
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

impl Accounting {
    /// Creates the accounts. `sources` are the names of the sources, and what measures their threads.
    ///
    /// # Errors
    ///
    /// Returns an error if the tables' text cannot be read, which a test excludes.
    pub fn new<'a>(sources: impl Iterator<Item = (&'a String, Arc<Charging>)>) -> Result<Self, String> {
        let manifest = Manifest::from_toml(MANIFEST).map_err(|e| e.to_string())?;
        let name = manifest.name.clone();
        let entry = Arc::new(CatalogEntry { name, hash: [0; 32], manifest: Arc::new(manifest) });
        let (names, charging): (Vec<_>, Vec<_>) = sources.unzip();
        let item = |(source, charging): (&String, &Arc<Charging>)| Item {
            session: Session::System,
            module: String::new(),
            source: source.clone(),
            // Its threads may have begun.
            before: Used::default(),
            released: Used::default(),
            usage: charging.system.clone(),
            shown: Amounts::default(),
            made: Vec::new(),
            is_changing: false,
        };
        let inner = Inner {
            items: names.into_iter().zip(&charging).map(item).collect(),
            sessions: BTreeMap::new(),
            measured_ns: 0,
            rest_ns: 0,
            since: Instant::now(),
        };
        let all = Arc::new(Spool::new(SPOOL.1, Arc::default()));
        let tables = Rows::new(&entry);
        Ok(Self { inner: Mutex::new(inner), charging, all, entry, tables })
    }

    /// Begins to account for a module, until nothing else holds `usage`. `reach` has its rights.
    pub(crate) fn add(
        &self,
        (owner, module, source): (&Owner, &str, &str),
        usage: &Arc<Usage>,
        reach: Option<&Arc<Reach>>,
    ) {
        lock(&self.inner).items.push(Item {
            session: Session::Of(owner.clone()),
            module: module.to_owned(),
            source: source.to_owned(),
            before: Used::default(),
            released: Used::default(),
            usage: usage.clone(),
            shown: Amounts::default(),
            made: reach.cloned().into_iter().collect(),
            is_changing: false,
        });
    }

    /// Records that an instance of a module begins which has these rights, in a change of it.
    pub(crate) fn begins(&self, usage: &Arc<Usage>, reach: Option<&Arc<Reach>>) {
        if let Some(item) = lock(&self.inner).item(usage) {
            item.is_changing = true;
            item.begins(reach);
        }
    }

    /// Records that no change of a module is in progress: all instances have ended, except an instance with
    /// these rights.
    pub(crate) fn settled(&self, usage: &Arc<Usage>, reach: Option<&Arc<Reach>>) {
        if let Some(item) = lock(&self.inner).item(usage) {
            item.is_changing = false;
            item.begins(reach);
        }
    }

    /// Returns the rows of a session, or of all sessions for the operator.
    pub fn spool(&self, owner: &Owner) -> Arc<Spool> {
        match owner.is_operator() {
            true => self.all.clone(),
            false => lock(&self.inner).of_session(owner),
        }
    }

    /// Returns the use of a module so far as its principal sees it: up to the last interval, and rounded.
    pub fn shown(&self, usage: &Arc<Usage>) -> Amounts {
        lock(&self.inner).item(usage).map(|item| item.shown).unwrap_or_default()
    }

    /// Ends an interval: adds its rows to the spools.
    pub fn end_interval(&self) {
        let mut inner = lock(&self.inner);
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let interval_ns = inner.since.elapsed().as_nanos() as u64;
        inner.since = Instant::now();
        let mut exact = Sheet::new(&self.tables, (ended, interval_ns));
        let mut own: BTreeMap<Owner, Sheet> = BTreeMap::new();
        let mut measured = 0;
        // Calls that have not ended would otherwise count as the rest of the process, and then again.
        self.charging.iter().for_each(|charging| charging.settle());
        inner.items.retain_mut(|item| {
            // Nothing is added after the last other owner has dropped it.
            let is_last = Arc::strong_count(&item.usage) == 1;
            let now = item.usage.used();
            let used = Amounts::between(&item.before, &now);
            // Other processes are no part of the time of this one.
            measured += used.cpu_ns - (now.apart_ns - item.before.apart_ns);
            item.before = now;
            exact.module(&item.session, &item.module, &item.source, &used);
            if let Session::Of(owner) = &item.session
                && !owner.is_operator()
            {
                // As of the last tick: the interval may be shorter than the grant's resolution.
                let now = item.usage.shown();
                let rounded = Amounts::between(&item.released, &now).rounded();
                item.released = now;
                item.shown.add(&rounded, true);
                let sheet = own.entry(owner.clone());
                let sheet = sheet.or_insert_with(|| Sheet::new(&self.tables, (ended, interval_ns)));
                item.made.iter().for_each(|reach| add_to(&mut sheet.made, reach));
                if !item.is_changing {
                    item.made.drain(..item.made.len().saturating_sub(1));
                }
                sheet.module(&item.session, &item.module, &item.source, &rounded);
            }
            !is_last
        });
        inner.measured_ns += measured;
        // Read later than the others, so that they are not more than it. Of the time from then to now, the
        // next interval has the owner.
        let rest = process_ns().saturating_sub(inner.measured_ns).saturating_sub(inner.rest_ns);
        inner.rest_ns += rest;
        exact.module(&Session::System, "", "", &Amounts { cpu_ns: rest, ..Amounts::default() });
        exact.write(&self.all, &self.entry);
        for (owner, sheet) in own {
            let spool = inner.of_session(&owner);
            sheet.write(&spool, &self.entry);
        }
        inner.forget();
    }

    /// Ends the streams of all readers.
    pub fn close(&self) {
        self.all.close();
        lock(&self.inner).sessions.values().for_each(|spool| spool.close());
    }
}

impl Item {
    /// Records that the module has these rights now.
    fn begins(&mut self, reach: Option<&Arc<Reach>>) {
        if let Some(reach) = reach {
            self.made.retain(|known| !known.is_like(reach));
            self.made.push(reach.clone());
        }
    }
}

impl Inner {
    fn item(&mut self, usage: &Arc<Usage>) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| Arc::ptr_eq(&item.usage, usage))
    }

    fn of_session(&mut self, owner: &Owner) -> Arc<Spool> {
        let new = || Arc::new(Spool::new(SPOOL.0, Arc::default()));
        self.sessions.entry(owner.clone()).or_insert_with(new).clone()
    }

    /// Drops the rows of principals without modules, if they are many.
    fn forget(&mut self) {
        let Self { items, sessions, .. } = self;
        let has_items =
            |owner: &Owner| items.iter().any(|i| matches!(&i.session, Session::Of(of) if of == owner));
        if sessions.len() > FORMER {
            sessions.retain(|owner, _| has_items(owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Read;
    use crate::test_world::MANIFEST;
    use flame_trust::{ModuleRequest, Place, Rights};

    fn owner(name: &str) -> Owner {
        match name {
            "" => Owner::default(),
            name => Owner { root: "root".to_owned(), principal: name.to_owned() },
        }
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the rows of one table, as JSON.
    fn rows(spool: &Spool, table: &str) -> Vec<serde_json::Value> {
        let (mut at, mut all) = (0, Vec::new());
        while let Read::Batch { batch, .. } = spool.read(at) {
            at = batch.next();
            if batch.table().name == table {
                let (written, options) = (Written::default(), flame_record::Options::default());
                let catalog = flame_plan::Catalog { modules: vec![(*batch.entry).clone()] };
                let (to, format) = (Box::new(written.clone()), flame_record::Format::Json);
                let mut sink = flame_record::open_writer(format, to, "test", &catalog, &options).unwrap();
                sink.write(&batch.entry.name, batch.table(), &batch.rows).unwrap();
                sink.finish().unwrap();
                let text = String::from_utf8(lock(&written.0).clone()).unwrap();
                all.extend(text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()));
            }
        }
        all
    }

    /// Intervals may be shorter than those of a grant.
    #[test]
    fn a_principal_has_the_use_as_of_the_ticks_of_its_grant() {
        let accounting = Accounting::new(std::iter::empty()).unwrap();
        let (alice, usage) = (owner("alice"), Arc::<Usage>::default());
        accounting.add((&alice, "flow", "tap"), &usage, None);
        usage.begin();
        let uses = |ns, is_tick: bool| {
            usage.add_cpu(ns);
            is_tick.then(|| usage.release());
            accounting.end_interval();
            let sum = |spool: &Spool| -> u64 {
                let of = |row: &serde_json::Value| row["cpu_ns"].as_u64().unwrap();
                rows(spool, "module").iter().filter(|row| row["session"] == "alice").map(of).sum()
            };
            (
                accounting.shown(&usage).cpu_ns,
                sum(&accounting.spool(&alice)),
                sum(&accounting.spool(&owner(""))),
            )
        };
        assert_eq!(uses(5, false), (0, 0, 5));
        assert_eq!(uses(5, true), (16, 16, 10));
        assert_eq!(uses(7, false), (16, 16, 17));
    }

    #[test]
    fn rows_have_the_rights_of_all_instances_in_their_interval() {
        let reach = |hash: u8| {
            let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
            let module = ModuleRequest::new(&manifest, [hash; 32], false, Vec::new()).unwrap();
            let place = Place::interface("eth0").unwrap();
            Arc::new(Reach { module: Arc::new(module), place, rights: Rights::all() })
        };
        let accounting = Accounting::new(std::iter::empty()).unwrap();
        let (alice, usage) = (owner("alice"), Arc::<Usage>::default());
        let [old, new, refused] = [1, 2, 3].map(reach);
        let ends = || {
            accounting.end_interval();
            let (spool, mut at, mut made) = (accounting.spool(&alice), 0, Vec::new());
            while let Read::Batch { batch, .. } = spool.read(at) {
                (at, made) = (batch.next(), batch.made.iter().map(|reach| reach.module.hash[0]).collect());
            }
            made
        };
        accounting.add((&alice, "flow", "tap"), &usage, Some(&old));
        assert_eq!(ends(), [1]);
        accounting.begins(&usage, Some(&new));
        assert_eq!([ends(), ends()], [[1, 2], [1, 2]]);
        accounting.settled(&usage, Some(&new));
        assert_eq!((ends(), ends()), (vec![1, 2], vec![2]));
        // A change that fails ends with the rights before it.
        accounting.begins(&usage, Some(&refused));
        accounting.settled(&usage, Some(&new));
        assert_eq!((ends(), ends()), (vec![3, 2], vec![2]));
    }

    #[test]
    fn rows_add_up_and_principals_see_their_own_rounded() {
        let charging = Arc::<Charging>::default();
        let (name, source) = ("tap".to_owned(), charging.system.clone());
        let accounting = Accounting::new([(&name, charging)].into_iter()).unwrap();
        let [a, b, c] = [0; 3].map(|_| Arc::<Usage>::default());
        accounting.add((&owner("alice"), "flow", "tap"), &a, None);
        accounting.add((&owner("alice"), "count", "tap"), &b, None);
        accounting.add((&owner(""), "count", "tap"), &c, None);
        [(&source, 100), (&a, 1000), (&b, 23), (&c, 5)].iter().for_each(|(usage, ns)| usage.add_cpu(*ns));
        a.add_packets(7);
        a.add_sent(11);
        a.transmitted.store(13, std::sync::atomic::Ordering::Relaxed);
        accounting.end_interval();
        b.add_cpu(1);
        drop(b);
        accounting.end_interval();
        accounting.end_interval();
        let all = rows(&accounting.spool(&owner("")), "module");
        let number = |row: &serde_json::Value, column: &str| row[column].as_u64().unwrap();
        let sum = |rows: &[serde_json::Value], session: &str| {
            rows.iter().filter(|r| r["session"] == session).map(|r| number(r, "cpu_ns")).sum::<u64>()
        };
        assert_eq!((sum(&all, "alice"), sum(&all, "operator")), (1024, 5));
        assert!(sum(&all, "system") > 100, "the rest of the process");
        let sessions = rows(&accounting.spool(&owner("")), "session");
        for session in ["alice", "operator", "system"] {
            assert_eq!(sum(&sessions, session), sum(&all, session));
        }
        // The module that is gone has a last row in the second interval, and none in the third.
        let of = |module: &str| {
            all.iter().filter(|r| r["session"] == "alice" && r["module_name"] == module).count()
        };
        assert_eq!((of("flow"), of("count")), (3, 2));
        let own = rows(&accounting.spool(&owner("alice")), "module");
        assert!(own.iter().all(|r| r["session"] == "alice"));
        assert_eq!(sum(&own, "alice"), 1024 + 32 + 1, "each rounded up");
        let of_first = ["packets", "sent_bytes", "transmitted_bytes"].map(|column| number(&own[0], column));
        assert_eq!(of_first, [7, 11, 13]);
        assert_eq!(accounting.shown(&a).cpu_ns, 1024);
        assert!(rows(&accounting.spool(&owner("bob")), "module").is_empty());
    }

    #[test]
    fn intervals_share_their_schemas_and_keep_little_more_than_their_rows() {
        let accounting = Accounting::new(std::iter::empty()).unwrap();
        let stays = Arc::<Usage>::default();
        accounting.add((&owner("stays"), "m", "tap"), &stays, None);
        const INTERVALS: u64 = 100;
        (0..INTERVALS).for_each(|_| accounting.end_interval());
        let spool = accounting.spool(&owner(""));
        let schemas = (0..spool.filled().next).map(|row| match spool.read(row) {
            Read::Batch { batch, .. } => batch.rows.schema(),
            _ => panic!("row {row}"),
        });
        let schemas: Vec<_> = schemas.collect();
        let table = &accounting.tables;
        for schema in &schemas {
            let is_shared = |of: &_| Arc::ptr_eq(of, schema);
            assert!(table.schemas().any(is_shared), "{schema:?}");
        }
        // Two rows of modules and two of sessions, of 16 columns at most.
        let bytes = spool.filled().bytes / INTERVALS;
        assert!(bytes < 2 * 16 * 512, "{bytes} bytes an interval");
    }

    #[test]
    fn principals_who_left_are_forgotten_when_they_are_many() {
        let accounting = Accounting::new(std::iter::empty()).unwrap();
        let stays = Arc::<Usage>::default();
        accounting.add((&owner("stays"), "m", "tap"), &stays, None);
        for n in 0..3 * FORMER {
            accounting.add((&owner(&format!("p{n}")), "m", "tap"), &Arc::default(), None);
            accounting.end_interval();
        }
        let inner = lock(&accounting.inner);
        assert!(inner.sessions.len() <= FORMER + 1 && inner.items.len() == 1, "{}", inner.sessions.len());
        assert!(inner.sessions.contains_key(&owner("stays")));
    }
}
