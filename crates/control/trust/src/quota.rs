//! The quotas that credentials have used, across runs: a file for each credential, next to the audit log.
//!
//! The folder is locked while a file is read and replaced. Each file holds a MAC under the node's key, so
//! that only the node can have written it. A file that cannot be read gives nothing: a run is refused rather
//! than started with full quotas.
//!
//! The file of a credential that has expired is removed. Then another one, the horizon, states up to which
//! expiry that was done: if the clock goes back, a credential that expires before it has no quotas.

use crate::grant::Link;
use crate::hex::hex;
use crate::key::Secret;
use flame_base::lock;
use flame_files::Folder;
use flame_plan::Share;
use flame_quota::{Allowance, Amounts, Ledger, Quota, State};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The format of the files. Those of format 1 did not state it.
const FORMAT: u32 = 2;
const PURPOSE: &str = "quota 2";
/// Maximum length of a file, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Maximum number of seconds by which time stamps of packets may be ahead of the node's clock.
const AHEAD: u64 = 60;
/// The number of seconds for which a file stays after the expiry of its credential.
const GRACE: u64 = 24 * 60 * 60;
const HORIZON: &str = "horizon";
/// The unit in which memory is claimed, in bytes, so that growth by a page does not access the file.
const PART: u64 = 16 << 20;

/// The reason why the folder of ledgers or one of its files cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("quotas {path}: {error}")]
pub struct QuotaError {
    pub path: String,
    pub error: Error,
}

/// The quotas of a node, by the id of their credential.
pub struct Quotas {
    folder: Arc<Folder>,
    path: PathBuf,
    secret: Arc<Secret>,
}

impl Quotas {
    /// Opens the folder of ledgers, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created, or is not private to this user.
    pub fn open(path: &Path, secret: Arc<Secret>) -> Result<Self, QuotaError> {
        let folder =
            Folder::private(path).map_err(|error| QuotaError { path: path.display().to_string(), error })?;
        Ok(Self { folder: Arc::new(folder), path: path.to_owned(), secret })
    }

    /// Opens the ledger of one credential, by its id. `expires` is the time from which it is not valid, under
    /// any policy. A live run receives quotas for each second in which packets arrive, by the node's clock. A
    /// run over captures also receives them for each second of the node's clock in which it begins.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or was not signed by this node.
    pub fn ledger(
        &self,
        id: &str,
        (quota, expires): (Quota, u64),
        live: bool,
    ) -> Result<impl Ledger + use<>, QuotaError> {
        let (name, path) = (name_of(id), self.path.clone());
        let (folder, secret) = (self.folder.clone(), self.secret.clone());
        let file = QuotaFile { folder, path, secret, name, quota, expires, live, claimed: Mutex::new(0) };
        // A file that cannot be read is reported before anything runs.
        file.change(|_| ())?;
        Ok(file)
    }

    /// Opens the allowance of a chain for the compilation of modules. Its ledgers are apart from those of the
    /// same links' other quotas.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Quotas::ledger`].
    pub fn allowance(&self, links: &[Link]) -> Result<Allowance, QuotaError> {
        let limited = links.iter().filter_map(|link| Some((link, link.compilation()?)));
        let ledger = |(link, share): (&Link, Share)| {
            let (amounts, memory) = (Amounts::default(), u64::MAX);
            let quota = Quota { per_second: amounts, per_packet: amounts, share: Some(share), memory };
            let ledger = self.ledger(&format!("compile {}", link.id), (quota, link.expires), true)?;
            Ok((share, Arc::new(ledger) as Arc<dyn Ledger>))
        };
        Ok(Allowance::new(limited.map(ledger).collect::<Result<_, _>>()?))
    }

    /// Checks that the horizon can be read. Without it, no ledger is begun and none is removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or the horizon cannot be read.
    pub fn look(&self) -> Result<(), QuotaError> {
        let at = |error| QuotaError { path: self.path.display().to_string(), error };
        let _lock = self.folder.lock().map_err(at)?;
        horizon(&self.folder, &self.path, &self.secret).map(drop)
    }

    /// Removes the ledgers of credentials that expired a day before `now` or earlier, in seconds since 1970,
    /// but for those with an id in `used` and those in which processes have memory. A file that cannot be
    /// read stays.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or the horizon cannot be read or written.
    pub fn sweep(&self, now: u64, used: &[String]) -> Result<usize, QuotaError> {
        let used: BTreeSet<String> = used.iter().map(|id| name_of(id)).collect();
        let at = |error| QuotaError { path: self.path.display().to_string(), error };
        let horizon = || horizon(&self.folder, &self.path, &self.secret);
        // A horizon that cannot be read is reported before there is anything to remove.
        self.look()?;
        let old = |name: &String| {
            let content = read_ledger(&self.folder, &self.secret, name).ok().flatten()?;
            content.is_over(now).then_some(content.expires?)
        };
        let mut names = self.folder.names().map_err(at)?;
        names.retain(|name| name != HORIZON && !used.contains(name));
        // Each is locked for a moment only: what runs draws from others meanwhile.
        names.retain(|name| self.folder.lock().is_ok_and(|_lock| old(name).is_some()));
        let mut count = 0;
        for name in names {
            let _lock = self.folder.lock().map_err(at)?;
            let Some(expires) = old(&name) else { continue };
            // First: without the file, the horizon is all that is known of it.
            if expires > horizon()? {
                let content = Content { expires: Some(expires), ..Content::default() };
                write(&self.folder, &self.secret, HORIZON, &content).map_err(at)?;
            }
            self.folder.remove(&name).map_err(at)?;
            count += 1;
        }
        Ok(count)
    }
}

/// Returns the name of the ledger of a credential.
fn name_of(id: &str) -> String {
    hex(&Sha256::digest(id)[..16])
}

struct QuotaFile {
    folder: Arc<Folder>,
    path: PathBuf,
    secret: Arc<Secret>,
    name: String,
    quota: Quota,
    expires: u64,
    live: bool,
    /// Bytes of memory that this process has claimed.
    claimed: Mutex<u64>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    state: State,
    /// The memory of running processes.
    processes: Vec<Process>,
    /// The expiry of the credential, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

impl Content {
    /// Returns whether the credential expired long before `now`, and no process uses the ledger.
    fn is_over(&self, now: u64) -> bool {
        let is_old = self.expires.is_some_and(|expires| expires.saturating_add(GRACE) <= now);
        is_old && !self.processes.iter().any(|process| began(process.id) == Some(process.began))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    id: u32,
    /// The time when the process started, in the kernel's ticks. It distinguishes processes that had the same
    /// id.
    began: u64,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    #[serde(default = "unstated")]
    format: u32,
    content: String,
    mac: String,
}

/// Returns the format of files that state none.
fn unstated() -> u32 {
    1
}

/// Returns the time when a process started, if it exists.
fn began(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the process is in brackets and may contain any characters.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn mac(secret: &Secret, name: &str, content: &str) -> String {
    hex(&secret.derive(PURPOSE, format!("{name}\0{content}").as_bytes()))
}

/// Reads a file that this node wrote, if it exists. An error of a file that another program wrote ends
/// with `remedy`.
fn read(folder: &Folder, secret: &Secret, name: &str, remedy: &str) -> io::Result<Option<Content>> {
    let Some(text) = folder.read(name, MAX_BYTES)? else { return Ok(None) };
    let sealed = serde_json::from_slice::<Sealed>(&text).ok();
    if let Some(found) = sealed.as_ref().map(|sealed| sealed.format).filter(|found| *found != FORMAT) {
        let how = format!("format {found}; this program reads {FORMAT}: {remedy}");
        return Err(Error::new(io::ErrorKind::InvalidData, how));
    }
    let sealed = sealed.filter(|sealed| mac(secret, name, &sealed.content) == sealed.mac);
    let content = sealed.and_then(|sealed| serde_json::from_str(&sealed.content).ok());
    match content.filter(|content: &Content| content.state.is_sound()) {
        Some(content) => Ok(Some(content)),
        None => {
            let how = format!("it was changed, damaged, or is another node's: {remedy}");
            Err(Error::new(io::ErrorKind::InvalidData, how))
        }
    }
}

/// Reads the ledger of a credential, if it exists.
fn read_ledger(folder: &Folder, secret: &Secret, name: &str) -> io::Result<Option<Content>> {
    read(folder, secret, name, "remove it to give the credential all its quotas anew")
}

/// Replaces a file atomically, so that a process that is killed leaves a complete one.
fn write(folder: &Folder, secret: &Secret, name: &str, content: &Content) -> io::Result<()> {
    let content = serde_json::to_string(content)?;
    let mac = mac(secret, name, &content);
    folder.put(name, &serde_json::to_vec(&Sealed { format: FORMAT, content, mac })?)
}

/// Returns the latest expiry of a credential whose file was removed. The folder is locked.
fn horizon(folder: &Folder, path: &Path, secret: &Secret) -> Result<u64, QuotaError> {
    // Its removal matters only to a clock that goes back.
    let remedy = "restore it, or remove it if the node's clock is right: it keeps expired credentials from quotas \
                  while the clock is wrong";
    // A file that cannot be read for another reason, as a link or a folder, has the same remedy.
    let unreadable = |error: Error| match error.kind() {
        io::ErrorKind::InvalidData => error,
        _ => Error::new(io::ErrorKind::InvalidData, format!("{error}: {remedy}")),
    };
    let found = read(folder, secret, HORIZON, remedy).map_err(|error| QuotaError {
        path: path.join(HORIZON).display().to_string(),
        error: unreadable(error),
    })?;
    Ok(found.and_then(|content| content.expires).unwrap_or(0))
}

impl QuotaFile {
    fn error(&self, error: Error) -> QuotaError {
        QuotaError { path: self.path.join(&self.name).display().to_string(), error }
    }

    fn read(&self) -> Result<Content, QuotaError> {
        let found = read_ledger(&self.folder, &self.secret, &self.name);
        if let Some(content) = found.map_err(|error| self.error(error))? {
            return Ok(content);
        }
        if self.expires <= horizon(&self.folder, &self.path, &self.secret)? {
            let how = "the credential had expired when the node's clock was later, and what it had used is not known any more: issue another one";
            return Err(self.error(Error::new(io::ErrorKind::InvalidData, how)));
        }
        Ok(Content { state: State::new(&self.quota), ..Content::default() })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Content) -> T) -> Result<T, QuotaError> {
        let _lock = self.folder.lock().map_err(|error| self.error(error))?;
        let before = self.read()?;
        let mut content = before.clone();
        let changed = change(&mut content);
        if content != before {
            // A credential that used nothing leaves no file, so narrowed credentials do not fill the disk.
            content.expires = Some(self.expires).filter(|expires| *expires != u64::MAX);
            let written = write(&self.folder, &self.secret, &self.name, &content);
            written.map_err(|error| self.error(error))?;
        }
        Ok(changed)
    }
}

impl Ledger for QuotaFile {
    fn begin(&self) {
        if self.live {
            return;
        }
        // If the file can no longer be written, the calls below give nothing.
        let _ = self.change(|c| c.state.begin(&self.quota, now_ns()));
    }

    fn draw(&self, second: Option<u64>, want: Amounts) -> Amounts {
        // All future seconds count as one: otherwise, a capture with forged times could use up the quotas of
        // others for later seconds.
        let now = now_ns() / 1_000_000_000;
        let second = second.map(|second| second.min(now.saturating_add(AHEAD)));
        self.change(|c| c.state.draw(&self.quota, second, want)).unwrap_or_default()
    }

    fn give_back(&self, amounts: Amounts) {
        if amounts != Amounts::default() {
            let _ = self.change(|c| c.state.give_back(&self.quota, amounts));
        }
    }

    fn reserve(&self, over: Duration, want: Duration) -> Duration {
        if self.quota.share.is_none() {
            return want;
        }
        self.change(|c| c.state.reserve(&self.quota, now_ns(), over, want)).unwrap_or_default()
    }

    fn give_back_time(&self, time: Duration) {
        if !time.is_zero() {
            let _ = self.change(|c| c.state.give_back_time(time));
        }
    }

    fn refilled_in(&self) -> Option<Duration> {
        self.change(|c| c.state.refilled_in(&self.quota, now_ns())).ok().flatten()
    }

    fn may_own(&self, bytes: u64) -> bool {
        let mut claimed = lock(&self.claimed);
        // A claim that is a little too large stays, so that not every change accesses the file.
        let is_enough = bytes > 0 && bytes <= *claimed && *claimed - bytes < 2 * PART;
        if self.quota.memory == u64::MAX || is_enough || bytes == *claimed {
            return true;
        }
        let id = std::process::id();
        let Some(me) = began(id) else { return false };
        let claim = |content: &mut Content| {
            content.processes.retain(|p| p.id != id && began(p.id) == Some(p.began));
            let others = content.processes.iter().fold(0u64, |all, p| all.saturating_add(p.bytes));
            let left = self.quota.memory.saturating_sub(others);
            let rounded = bytes.checked_next_multiple_of(PART).unwrap_or(bytes).min(left);
            let mine = if bytes <= left { rounded } else { *claimed };
            if mine > 0 {
                content.processes.push(Process { id, began: me, bytes: mine });
            }
            (bytes <= left, mine)
        };
        match self.change(claim) {
            Ok((may, mine)) => {
                *claimed = mine;
                may
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn quota() -> Quota {
        let per_second = Amounts { records: 100, bytes: 1 << 20, transmit: 0 };
        let share = Some(Share { slice_ns: 1_000_000, period_ns: 3_600_000_000_000 });
        Quota { per_second, per_packet: Amounts::default(), share, memory: 100 << 20 }
    }

    const TEN: Amounts = Amounts { records: 10, bytes: 100, transmit: 0 };

    #[test]
    fn what_one_run_used_the_next_does_not_have() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Arc::new(Secret::generate());
        let path = folder.path().join("quotas");
        let open = || Quotas::open(&path, secret.clone()).unwrap();
        let ledger = |id: &str| open().ledger(id, (quota(), u64::MAX), false).unwrap();
        let all = |second| (0..100).filter(|_| ledger("a").draw(second, TEN) == TEN).count();
        assert_eq!(all(None), 10);
        assert_eq!((all(Some(7)), all(Some(7)), all(Some(9)), all(Some(8))), (10, 0, 10, 10));
        assert_eq!(ledger("b").draw(None, TEN), TEN, "another credential's");
        ledger("a").give_back(TEN);
        assert_eq!(all(Some(8)), 1);
        let half = Duration::from_micros(500);
        assert_eq!(ledger("a").reserve(Duration::ZERO, half), half);
        assert_eq!(ledger("a").reserve(half, half), Duration::ZERO, "of a run before");
        // Memory is claimed by running processes, not by ended ones.
        let mine = ledger("a");
        assert!(mine.may_own(60 << 20) && !mine.may_own(101 << 20) && mine.may_own(99 << 20));
        let other = Process { id: 1, began: began(1).unwrap_or(1), bytes: 80 << 20 };
        let gone = Process { id: 1, began: u64::MAX, bytes: 80 << 20 };
        let b = QuotaFile {
            folder: Arc::new(Folder::private(&path).unwrap()),
            path: path.clone(),
            secret: secret.clone(),
            name: "b".into(),
            quota: quota(),
            expires: u64::MAX,
            live: false,
            claimed: Mutex::new(0),
        };
        b.change(|c| c.processes.extend([other, gone])).unwrap();
        assert!(!b.may_own(30 << 20) && b.may_own(20 << 20));
        assert!(b.may_own(0));
    }

    #[test]
    fn compilation_is_paid_across_runs_and_by_each_link() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Arc::new(Secret::generate());
        let open = || Quotas::open(&folder.path().join("quotas"), secret.clone()).unwrap();
        let link = |id: &str, value: &str| {
            let rights = crate::Field::Compile.rights(value).unwrap();
            Link { id: id.to_owned(), expires: u64::MAX, rights }
        };
        let (root, narrowed) = (link("a", "10s/1h"), link("b", "4s/1h"));
        let second = Duration::from_secs(1);
        let chain = [root.clone(), narrowed];
        let time = |links: &[Link]| open().allowance(links).unwrap().reserve(60 * second).map(|r| r.time());
        open().allowance(&chain).unwrap().reserve(3 * second).unwrap().used(2 * second);
        assert_eq!(time(&chain), Ok(2 * second), "what a run before left");
        // It was reserved and never returned, as by a run that was killed.
        let spent = time(&chain).unwrap_err();
        assert_eq!(spent.share, Share { slice_ns: 4_000_000_000, period_ns: 3_600_000_000_000 });
        assert!(spent.wait.is_some_and(|wait| wait > 3500 * second), "{spent}");
        assert_eq!(time(&[root]), Ok(6 * second));
        // Other quotas of the link are others.
        let ledger = open().ledger("a", (quota(), u64::MAX), true).unwrap();
        assert_eq!(ledger.reserve(Duration::ZERO, Duration::from_micros(9)), Duration::from_micros(9));
    }

    #[test]
    fn a_credential_that_used_nothing_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quotas");
        let quotas = Quotas::open(&path, Arc::new(Secret::generate())).unwrap();
        let files = || std::fs::read_dir(&path).unwrap().count();
        let before = files();
        let ledgers: Vec<_> =
            (0..10).map(|n| quotas.ledger(&n.to_string(), (quota(), u64::MAX), true).unwrap()).collect();
        ledgers.iter().for_each(|ledger| ledger.begin());
        ledgers[0].give_back(TEN);
        assert!(files() <= before + 1, "but for the lock");
        let locked = files();
        assert_eq!(ledgers[1].draw(None, TEN), TEN);
        assert_eq!(files(), locked + 1);
    }

    #[test]
    fn a_file_of_another_format_is_refused_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quotas");
        let quotas = Quotas::open(&path, Arc::new(Secret::generate())).unwrap();
        let open = || quotas.ledger("a", (quota(), u64::MAX), true);
        assert_eq!(open().unwrap().draw(None, TEN), TEN);
        let name = name_of("a");
        let text = String::from_utf8(quotas.folder.read(&name, MAX_BYTES).unwrap().unwrap()).unwrap();
        assert!(text.starts_with("{\"format\":2,"), "{text}");
        for (found, stated) in [(1, "{"), (1, "{\"format\":1,"), (3, "{\"format\":3,")] {
            let other = text.replacen("{\"format\":2,", stated, 1);
            quotas.folder.put(&name, other.as_bytes()).unwrap();
            let refused = open().map(drop).unwrap_err().to_string();
            let said = format!("format {found}; this program reads 2: remove it to give the credential");
            assert!(refused.contains(&said), "{refused}");
        }
    }

    /// A change of the clock does not restore a credential's quota.
    #[test]
    fn ledgers_of_expired_credentials_are_removed_and_give_nothing_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quotas");
        let quotas = Quotas::open(&path, Arc::new(Secret::generate())).unwrap();
        let open = |id: &str, expires| quotas.ledger(id, (quota(), expires), false);
        let draw = |id: &str, expires| open(id, expires).map(|l| l.draw(None, TEN)).unwrap_or_default();
        for (id, expires) in [("a", 1000), ("b", 2000), ("used", 1000), ("none", u64::MAX)] {
            assert_eq!(draw(id, expires), TEN);
        }
        assert!(open("owns", 1000).unwrap().may_own(1 << 20));
        let files = || quotas.folder.names().unwrap().len();
        assert_eq!(files(), 5);
        let used = ["used".to_owned()];
        let held = open("a", 1000).unwrap();
        assert_eq!(quotas.sweep(1000 + GRACE - 1, &used).unwrap(), 0);
        assert_eq!(quotas.sweep(1000 + GRACE, &used).unwrap(), 1);
        assert_eq!((quotas.sweep(1000 + GRACE, &used).unwrap(), files()), (0, 5), "and the horizon");
        // The clock goes back.
        let error = open("a", 1000).map(drop).unwrap_err().to_string();
        assert!(error.contains("issue another one"), "{error}");
        assert_eq!((held.draw(None, TEN), held.may_own(1)), (Amounts::default(), false));
        assert_eq!(draw("other", 999), Amounts::default(), "nobody knows what it had used");
        // Others have what they had.
        for (id, expires) in [("b", 2000), ("used", 1000), ("none", u64::MAX), ("new", 1001)] {
            let all = (0..20).filter(|_| draw(id, expires) == TEN).count();
            assert_eq!(all, if id == "new" { 10 } else { 9 }, "{id}");
        }
        // A horizon that another program wrote is ignored.
        let horizon = path.join(HORIZON);
        std::fs::write(&horizon, "{}").unwrap();
        // Also if there is nothing to remove.
        for refused in [open("other", 5000).map(drop), quotas.sweep(0, &[]).map(drop)] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(&format!("{}: ", horizon.display())), "{error}");
            assert!(
                error.contains("if the node's clock is right") && !error.contains("quotas anew"),
                "{error}"
            );
        }
        assert!(quotas.sweep(u64::MAX, &[]).is_err());
        assert_eq!(files(), 6, "nothing is removed without it");
        std::fs::remove_file(&horizon).unwrap();
        std::os::unix::fs::symlink("elsewhere", &horizon).unwrap();
        let error = open("other", 5000).map(drop).unwrap_err();
        assert_eq!(error.error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("if the node's clock is right"), "{error}");
        std::fs::remove_file(&horizon).unwrap();
        open("other", 5000).unwrap();
        assert_eq!(quotas.sweep(0, &[]).unwrap(), 0);
    }

    /// Starting a run each second gives no larger quota on a live interface.
    #[test]
    fn live_runs_are_paid_by_the_seconds_of_packets_alone() {
        let folder = tempfile::tempdir().unwrap();
        let quotas = Quotas::open(&folder.path().join("quotas"), Arc::new(Secret::generate())).unwrap();
        let (mut all, first) = (0, now_ns() / 1_000_000_000);
        for second in first..first + 3 {
            for _ in 0..2 {
                let live = quotas.ledger("a", (quota(), u64::MAX), true).unwrap();
                live.begin();
                all += (0..100).filter(|_| live.draw(Some(second), TEN) == TEN).count();
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        assert_eq!(all, 30);
    }

    /// Holders of narrowed credentials share a meter, and a capture can contain any times.
    #[test]
    fn nobody_uses_up_seconds_that_are_to_come() {
        let folder = tempfile::tempdir().unwrap();
        let quotas = Quotas::open(&folder.path().join("quotas"), Arc::new(Secret::generate())).unwrap();
        let (folder, path, secret) = (quotas.folder.clone(), quotas.path.clone(), quotas.secret.clone());
        let (name, claimed, quota) = (name_of("a"), Mutex::new(0), quota());
        let bob = QuotaFile { folder, path, secret, name, quota, expires: u64::MAX, live: false, claimed };
        let now = now_ns() / 1_000_000_000;
        let year = 31_000_000;
        for second in [60, year].into_iter().chain((2..80).map(|n| n * (year + 1_000_000))) {
            bob.draw(Some(now + second), TEN);
        }
        assert_eq!(bob.change(|c| c.state.paid.len()).unwrap(), 1);
        let alice = quotas.ledger("a", (quota, u64::MAX), false).unwrap();
        let all = (0..100).filter(|_| alice.draw(Some(now), TEN) == TEN).count();
        assert_eq!(all, 10, "what this second pays");
    }

    #[test]
    fn a_state_that_somebody_wrote_gives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Arc::new(Secret::generate());
        let path = folder.path().join("quotas");
        let open = |secret: &Arc<Secret>| {
            Quotas::open(&path, secret.clone()).unwrap().ledger("a", (quota(), u64::MAX), false)
        };
        let held = open(&secret).map_err(|e| e.to_string()).inspect(|l| {
            l.draw(None, TEN);
        });
        let held = held.unwrap_or_else(|e| panic!("{e}"));
        let file = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
        let good = std::fs::read_to_string(&file).unwrap();
        let refused = |text: &str, secret: &Arc<Secret>| {
            std::fs::write(&file, text).unwrap();
            let error = open(secret).map(drop).unwrap_err().to_string();
            assert!(error.contains("remove it"), "{error}");
        };
        refused(&good.replace("90", "99"), &secret);
        refused(&good[..good.len() / 2], &secret);
        refused(&good, &Arc::new(Secret::generate()));
        assert_eq!(held.draw(None, TEN), TEN, "put back, it is good again");
        refused("{}", &secret);
        assert_eq!(held.draw(None, TEN), Amounts::default());
        assert_eq!(held.reserve(Duration::ZERO, Duration::from_nanos(1)), Duration::ZERO);
        assert!(!held.may_own(1));
        std::fs::write(&file, &good).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(open(&secret).map(drop).unwrap_err().to_string().contains("others may"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Quotas::open(&path, secret.clone()).map(drop).unwrap_err().to_string().contains("chmod 700"));
    }
}
