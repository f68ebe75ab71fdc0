//! The caller of a command: the operator, or a user who may run this program as the node's user and nothing
//! more.

use crate::error::Error;
use flame_plan::Audience;
use signal_hook::consts::{SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The path of this machine's policy. If the file exists, only root can run modules without it.
pub const MACHINE_POLICY: &str = "/etc/flame/policy.toml";

/// The user who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root, from root's own shell.
    Operator,
    /// A user, with that user's own rights.
    User,
    /// A user with the rights of the node's user, lent by `sudo`.
    Through { uid: u32 },
}

impl Caller {
    pub fn here() -> Self {
        static HERE: OnceLock<Caller> = OnceLock::new();
        *HERE.get_or_init(|| {
            // sudo sets this variable whatever the caller's environment holds. Callers who set it themselves
            // only reduce their own rights.
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

    /// Prepares the process before anything else is done: limits set by the caller's shell must not affect
    /// the node's files, and the caller's terminal must not stop the process while it holds one of the node's
    /// locks.
    pub fn settle(self) -> Result<(), Error> {
        if !matches!(self, Self::Through { .. }) {
            return Ok(());
        }
        flame_files::settle().map_err(|e| format!("this process's limits: {e}"))?;
        for signal in [SIGTSTP, SIGTTIN, SIGTTOU, SIGQUIT] {
            // The signal is caught and ignored.
            signal_hook::flag::register(signal, Arc::default())?;
        }
        Ok(())
    }

    /// Returns an error if the caller acts with the node's rights, which must not be used for `what`.
    pub fn may_name(self, what: &str, instead: &str) -> Result<(), Error> {
        match self {
            Self::Through { .. } => Err(format!("{what} is not for users of this node: {instead}").into()),
            _ => Ok(()),
        }
    }
}

/// Opens a file named by the caller, with the caller's rights at most.
pub fn open(path: &Path) -> Result<File, Error> {
    let Caller::Through { uid } = Caller::here() else {
        return File::open(path).map_err(|e| format!("{}: {e}", path.display()).into());
    };
    open_of(path, uid)
}

/// Opens a file that belongs to user `uid`. The node's user may read files that the caller may not, so only
/// the caller's own files are accepted.
fn open_of(path: &Path, uid: u32) -> Result<File, Error> {
    let fail = |reason: String| -> Error { format!("{}: {reason}", path.display()).into() };
    // A pipe at this path must not block the node.
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

/// Returns the path of this machine's policy, if there is one. The file must be writable by root only.
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

/// Returns the policy in force: the one named, or this machine's, which only root may replace or omit.
pub fn policy(named: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    policy_for(Caller::here(), machine_policy()?, named)
}

/// Returns the audience of messages about the policy in force, and of those that are printed before a command
/// knows its policy: the operator is who chooses it. Where this machine has one, that is root.
pub fn audience() -> Audience {
    match Caller::here() {
        Caller::Operator => Audience::Operator,
        Caller::User if machine_policy().is_ok_and(|machine| machine.is_none()) => Audience::Operator,
        Caller::User | Caller::Through { .. } => Audience::Holder,
    }
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
            // Setting the variable gives no rights of the operator.
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
        // Without a machine policy, a caller who borrowed the node's rights cannot name one either.
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
