//! A node for tests of its engine, without workers.

use crate::accounting::Accounting;
use crate::config::Config;
use crate::engine::{Engine, Modules};
use crate::granted::Granted;
use crate::life::{Entry, Key, Life};
use crate::reconcile::Wish;
use crate::reserve::Ledger;
use crate::source::{SourceRun, open};
use crate::store::{Owner, Proof, Store, Stored};
use flame_abi::manifest::Manifest;
use flame_api::{Reservation, RevokeRequest, State};
use flame_compile::ModuleInfo;
use flame_node::{AdmittedModule, Applicant, Node, Possession, Presented};
use flame_plan::{Limits, ModuleClass, ModuleId, ModulePlan, OnFault, Terms, ViewSpec};
use flame_run::Engines;
use flame_trust::{Challenge, Credential, Field, Mint, Narrow, Place, Secret};
use flame_worker::Module;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

pub const MANIFEST: &str = "abi = 1\nname = \"probe\"\nversion = \"1\"\ndescription = \"d\"\n\
    [[tables]]\nname = \"t\"\ncolumns = [{ name = \"n\", type = \"u64\" }]\n";
pub const NAME: &str = "probe";
pub const HASH: [u8; 32] = [7; 32];
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node in a folder, with a principal.
pub struct World {
    pub folder: tempfile::TempDir,
    pub root: Secret,
    pub alice: Secret,
    pub engine: Arc<Engine>,
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, alice) = (Secret::generate(), Secret::generate());
        Secret::generate().write_new(&folder.path().join("node.key")).unwrap();
        std::fs::write(folder.path().join("revoked"), "").unwrap();
        write_policy(folder.path(), &root, "");
        let text = "[node]\nstorage = \"state\"\npolicy = \"policy.toml\"\n[socket]\npath = \"sock\"\n\
                    [sources.tap]\ninterface = \"eth0\"\n[limits]\nmodules = 8\n";
        let config = Config::parse(text.as_bytes(), "node.toml", folder.path()).unwrap();
        let node = Node::open(&folder.path().join("policy.toml")).unwrap();
        let capacity = config.capacity;
        let engine = Arc::new(Engine {
            store: Store::open(&config.storage).unwrap(),
            cache: config.storage.join("cache"),
            config: RwLock::new(config),
            sources: BTreeMap::new(),
            node: Some(node).into(),
            read_at: Default::default(),
            modules: Modules::new(Ledger::new(capacity, capacity)).into(),
            changed: Default::default(),
            pinned: Default::default(),
            revocations: Default::default(),
            recording: Default::default(),
            version: Default::default(),
            reports: Default::default(),
            stopping: Default::default(),
            accounting: Accounting::new(std::iter::empty()).unwrap(),
            outbox: None,
            started: 0,
        });
        Self { folder, root, alice, engine }
    }

    pub fn credential(&self, fields: &[(Field, &str)]) -> Credential {
        let mut narrow = Narrow { holder: Some(self.alice.public()), ..Narrow::default() };
        narrow.fields = fields.iter().map(|(field, value)| (*field, (*value).to_owned())).collect();
        narrow.fields.push((Field::Code, "any".to_owned()));
        let mint = Mint { principal: "alice".to_owned(), role: "all".to_owned(), narrow };
        Credential::mint(&self.root, &mint).unwrap()
    }

    pub fn owner(&self) -> Owner {
        Owner { root: self.root.public().to_string(), principal: "alice".to_owned() }
    }

    pub fn key(&self) -> Key {
        (self.owner(), NAME.to_owned())
    }

    /// Decides on a module under a credential.
    pub fn decide(&self, credential: &Credential) -> (Arc<AdmittedModule>, Proof) {
        let manifest = Arc::new(Manifest::parse(MANIFEST.as_bytes()).unwrap());
        let info = ModuleInfo { hash: HASH, manifest, messages: false, size: Default::default() };
        let challenge = Challenge::new().unwrap();
        let answer = challenge.answer(&self.alice, credential, &info.hash);
        let proof = Proof {
            credential: credential.text(),
            challenge: challenge.to_bytes(),
            key: answer.key.to_string(),
            signature: answer.signature,
        };
        let applicant = self.applicant(credential, Possession::Answered(challenge, answer));
        (Arc::new(applicant.admit(&info, &[], &[]).unwrap()), proof)
    }

    /// Presents a credential to the node.
    pub fn applicant(&self, credential: &Credential, possession: Possession) -> Applicant {
        let (credential, place) = (Some(credential.clone()), Place::interface("eth0").unwrap());
        let presented = Presented { credential, possession, place, options: "test".to_owned() };
        Applicant { node: self.engine.present_node().unwrap(), presented: Arc::new(presented) }
    }

    /// Installs a module that runs under a credential, as far as that goes without workers.
    pub fn install(&self, credential: &Credential) {
        self.install_as(NAME, credential);
    }

    /// Installs a module under another name.
    pub fn install_as(&self, name: &str, credential: &Credential) {
        let (decided, proof) = self.decide(credential);
        let entered = self.engine.present_node().unwrap().installed(&decided, name, None).unwrap();
        let plan = plan(ModuleId(1), name);
        let stored = Stored { owner: self.owner(), name: name.to_owned(), proof: Some(proof), ..stored(0) };
        self.engine.store.put(&stored, None, None).unwrap();
        let mut entry = Entry::new(stored, 1 << 20, Arc::default());
        let granted = Granted { watched: self.engine.watch(("tap", plan.id), decided).unwrap(), entered };
        entry.life = Life::begun(Module::from(plan), Some(granted), None);
        self.engine.modules().insert((self.owner(), name.to_owned()), entry);
    }

    /// Gives the node its source, which replays a capture.
    pub fn with_source(mut self) -> Self {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demo/demo.pcap");
        let text = format!(
            "[node]\nstorage = \"state\"\n[socket]\npath = \"sock\"\n\
             [sources.tap]\nfile = {demo:?}\nrepeat = true\n"
        );
        let config = Config::parse(text.as_bytes(), "node.toml", self.folder.path()).unwrap();
        let config = config.sources["tap"].clone();
        let (opened, engines) = (open(&config).unwrap(), Engines::new().unwrap());
        let source = SourceRun::start("tap", config, &engines, None, None, (opened, None)).unwrap();
        Arc::get_mut(&mut self.engine).unwrap().sources.insert("tap".to_owned(), source);
        self
    }

    /// Lets the storage refuse all rows of modules, or take them again.
    pub fn refuse_rows(&self, refuses: bool) {
        self.refuse_rows_of("%", refuses);
    }

    /// Lets the storage refuse the rows of modules with names like `pattern`, or take them again.
    pub fn refuse_rows_of(&self, pattern: &str, refuses: bool) {
        let database = rusqlite::Connection::open(self.folder.path().join("state/node.sqlite")).unwrap();
        for table in ["modules", "ends"] {
            let change = match refuses {
                true => format!(
                    "CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} WHEN NEW.name LIKE '{pattern}'
                     BEGIN SELECT RAISE(ABORT, 'no'); END;"
                ),
                false => format!("DROP TRIGGER refuse_{table};"),
            };
            database.execute_batch(&change).unwrap();
        }
    }

    /// Ends the instance `id` of the module, for a reason that its owner did not give.
    pub fn fail(&self, id: ModuleId, reason: &str) {
        let (state, reason) = (State::Failed, reason.to_owned());
        self.engine.reconcile(&self.key(), Wish::End { of: Some(id), state, reason }).unwrap();
    }

    /// Enters a module that was taken out, as its change does.
    pub fn enter(&self, key: Key, mut entry: Entry) {
        entry.life.live_mut().unwrap().replaced();
        self.engine.modules().insert(key, entry);
    }

    /// Takes down what workers have evicted, and what leaves for another reason.
    pub fn take_down(&self) {
        self.engine.mark_evicted_by_workers();
        self.engine.take_down_leaving();
    }

    /// Returns whether the module has an instance.
    pub fn is_live(&self) -> bool {
        self.engine.modules()[&self.key()].life.live().is_some()
    }

    pub fn state(&self) -> State {
        self.engine.modules()[&self.key()].stored.state
    }

    /// Returns the row that is stored.
    pub fn row(&self) -> Option<Stored> {
        self.row_of(NAME)
    }

    /// Returns the row that is stored of a module.
    pub fn row_of(&self, name: &str) -> Option<Stored> {
        self.engine.store.modules().unwrap().into_iter().find(|row| row.name == name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap_or_default()
    }
}

/// Waits until `is_so`, for at most the time `limit`. Returns whether it is.
pub fn within(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() && start.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    is_so()
}

/// Returns a module of the operator with settings of some bytes.
pub fn stored(bytes: usize) -> Stored {
    Stored {
        owner: Owner::default(),
        name: NAME.to_owned(),
        source: "tap".to_owned(),
        hash: HASH,
        signatures: String::new(),
        settings: Arc::new(BTreeMap::from([("text".to_owned(), "x".repeat(bytes))])),
        narrow: Vec::new(),
        proof: None,
        reserved: Reservation::default(),
        state: State::Running,
        reason: None,
        revision: 1,
        installed: 0,
    }
}

/// Returns the plan of a module without code.
pub fn plan(id: ModuleId, name: &str) -> ModulePlan {
    ModulePlan {
        id,
        name: name.to_owned(),
        hash: HASH,
        manifest: Arc::new(Manifest::parse(MANIFEST.as_bytes()).unwrap()),
        code: Arc::new([]),
        view: ViewSpec::default(),
        limits: Limits::default(),
        parameters: Vec::new(),
        texts: Vec::new(),
        on_fault: OnFault::Stop,
        terms: Terms::default(),
        class: ModuleClass::Metered,
        process: None,
        tenant: None,
        seed: None,
    }
}

pub fn write_policy(folder: &Path, root: &Secret, more: &str) {
    let policy = format!(
        "[node]\nname = \"tap1\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit.log\"\n\
         [roots]\noperator = \"{}\"\n[roles.all]\nselect = \"\"\nexpose = \"all\"\n\
         calls = \"records, messages\"\ncode = \"any\"\n{more}",
        root.public()
    );
    std::fs::write(folder.join("policy.toml"), policy).unwrap();
}

pub fn revocation(credential: &Credential) -> RevokeRequest {
    RevokeRequest { credential: Some(credential.text()), ..RevokeRequest::default() }
}

impl Drop for World {
    fn drop(&mut self) {
        self.engine.stopping.store(true, std::sync::atomic::Ordering::SeqCst);
        self.engine.sources.values().for_each(SourceRun::stop);
    }
}
