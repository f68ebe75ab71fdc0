//! Who asks for a command: the operator, or somebody who may run this program as the node's user and nothing
//! more.

use crate::error::Error;
use signal_hook::consts::{SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The policy of this machine. If it is there, nobody but root runs modules without it.
pub const MACHINE_POLICY: &str = "/etc/flame/policy.toml";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root, from a shell of its own.
    Operator,
    /// A user, with the rights of that user.
    User,
    /// A user, with the rights of the node's user, who lent them by `sudo`.
    Through { uid: u32 },
}

impl Caller {
    pub fn here() -> Self {
        static HERE: OnceLock<Caller> = OnceLock::new();
        *HERE.get_or_init(|| {
            // sudo sets it, whatever the caller's environment says. Who sets it himself only takes from
            // himself.
            let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
            Self::of(flame_files::effective_user(), flame_files::real_user(), sudo)
        })
    }

    fn of(effective: u32, real: u32, sudo: Option<u32>) -> Self {
        match sudo {
            Some(uid) if uid != effective && uid != 0 => Self::Through { uid },
            _ if real != effective => Self::Through { uid: real },
            _ if effective == 0 => Self::Operator,
            _ => Self::User,
        }
    }

    /// Before anything else is done: what the caller's shell set for itself must not reach the node's files,
    /// nor may the caller's terminal stop the process while it holds a lock of the node's.
    pub fn settle(self) -> Result<(), Error> {
        if !matches!(self, Self::Through { .. }) {
            return Ok(());
        }
        flame_files::settle().map_err(|e| format!("this process's limits: {e}"))?;
        for signal in [SIGTSTP, SIGTTIN, SIGTTOU, SIGQUIT] {
            // Taken, and nothing comes of it.
            signal_hook::flag::register(signal, Arc::default())?;
        }
        Ok(())
    }

    /// Refuses what would be done with the node's rights.
    pub fn may_name(self, what: &str, instead: &str) -> Result<(), Error> {
        match self {
            Self::Through { .. } => Err(format!("{what} is not for users of this node: {instead}").into()),
            _ => Ok(()),
        }
    }
}

/// Opens a file that the caller names, with no more than the caller's rights.
pub fn open(path: &Path) -> Result<File, Error> {
    let Caller::Through { uid } = Caller::here() else {
        return File::open(path).map_err(|e| format!("{}: {e}", path.display()).into());
    };
    open_of(path, uid)
}

/// What the node's user may read is not what its caller may: only files of the caller's own are.
fn open_of(path: &Path, uid: u32) -> Result<File, Error> {
    let fail = |reason: String| -> Error { format!("{}: {reason}", path.display()).into() };
    // A pipe in its place does not hold the node up.
    let nonblocking = flame_files::NONBLOCK;
    let file = File::options().read(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(|e| fail(format!("{e} (it must be yours, and readable to the node's user)")))?;
    let metadata = file.metadata().map_err(|e| fail(e.to_string()))?;
    if !metadata.is_file() || metadata.uid() != uid {
        let found = if metadata.is_file() {
            format!("it belongs to user {}", metadata.uid())
        } else {
            "it is no file".into()
        };
        return Err(fail(format!(
            "{found}; files are read with your own rights only: give one of user {uid}"
        )));
    }
    Ok(file)
}

/// This machine's policy, if it has one. It must be root's alone.
pub fn machine_policy() -> Result<Option<PathBuf>, Error> {
    machine_policy_at(Path::new(MACHINE_POLICY), 0)
}

fn machine_policy_at(path: &Path, root: u32) -> Result<Option<PathBuf>, Error> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("this machine's policy {}: {e}", path.display()).into()),
    };
    if !metadata.is_file() || metadata.uid() != root || metadata.mode() & 0o022 != 0 {
        let path = path.display();
        return Err(format!("this machine's policy {path}: it must be a file that belongs to root and that only root may change: chown root:root {path}, chmod 644 {path}").into());
    }
    Ok(Some(path.to_owned()))
}

/// The policy that holds: the one that was named, or this machine's, which only root may leave out.
pub fn policy(named: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    policy_for(Caller::here(), machine_policy()?, named)
}

fn policy_for(
    caller: Caller,
    machine: Option<PathBuf>,
    named: Option<&Path>,
) -> Result<Option<PathBuf>, Error> {
    let Some(machine) = machine.filter(|_| caller != Caller::Operator) else {
        if let (Caller::Through { .. }, Some(_)) = (caller, named) {
            caller.may_name("--policy", "the node's is installed by root")?;
        }
        return Ok(named.map(Path::to_owned));
    };
    let same = |a: &Path, b: &Path| match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    };
    match named {
        Some(named) if !same(named, &machine) => Err(format!(
            "--policy {}: this machine's policy is {}, and only root runs modules under another, or none",
            named.display(),
            machine.display()
        )
        .into()),
        _ => Ok(Some(machine)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_who_called_sudo() {
        let cases = [
            ((0, 0, None), Caller::Operator),
            ((0, 0, Some(0)), Caller::Operator),
            ((0, 0, Some(1000)), Caller::Through { uid: 1000 }),
            ((900, 900, Some(1000)), Caller::Through { uid: 1000 }),
            ((900, 1000, None), Caller::Through { uid: 1000 }),
            ((0, 1000, None), Caller::Through { uid: 1000 }),
            ((1000, 1000, None), Caller::User),
            // Nobody becomes the operator by saying so.
            ((1000, 1000, Some(0)), Caller::User),
            ((1000, 1000, Some(1000)), Caller::User),
        ];
        for ((effective, real, sudo), caller) in cases {
            assert_eq!(Caller::of(effective, real, sudo), caller, "{effective} {real} {sudo:?}");
        }
    }

    #[test]
    fn files_are_read_with_the_callers_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let me = flame_files::effective_user();
        assert!(open_of(&path, me).is_ok());
        let refused = open_of(&path, me + 1).unwrap_err().to_string();
        assert!(refused.contains(&format!("it belongs to user {me}")), "{refused}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        assert!(open_of(&link, me + 1).is_err(), "a link is what it points at");
        assert!(open_of(folder.path(), me).unwrap_err().to_string().contains("it is no file"));
    }

    #[test]
    fn only_root_runs_without_the_machines_policy() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (machine, other) = (folder.path().join("policy.toml"), folder.path().join("other.toml"));
        std::fs::write(&machine, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let me = flame_files::effective_user();
        let of = |caller, named: Option<&Path>| {
            policy_for(caller, machine_policy_at(&machine, me).unwrap(), named)
        };
        let through = Caller::Through { uid: 1000 };
        for caller in [Caller::User, through] {
            assert_eq!(of(caller, None).unwrap(), Some(machine.clone()));
            assert_eq!(of(caller, Some(&machine)).unwrap(), Some(machine.clone()));
            assert!(of(caller, Some(&other)).unwrap_err().to_string().contains("only root"));
        }
        assert_eq!(of(Caller::Operator, None).unwrap(), None);
        assert_eq!(of(Caller::Operator, Some(&other)).unwrap(), Some(other.clone()));
        // Without one, whoever borrowed the node's rights names none either.
        assert!(policy_for(through, None, Some(&other)).is_err());
        assert_eq!(policy_for(Caller::User, None, Some(&other)).unwrap(), Some(other.clone()));
        assert_eq!(machine_policy_at(&folder.path().join("none"), me).unwrap(), None);
        for mode in [0o664, 0o646] {
            std::fs::set_permissions(&machine, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(machine_policy_at(&machine, me).is_err());
        }
        std::fs::set_permissions(&machine, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(machine_policy_at(&machine, me + 1).is_err(), "it is not root's");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&machine, &link).unwrap();
        assert!(machine_policy_at(&link, me).is_err());
    }
}
